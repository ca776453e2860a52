"""Manipulability, limits and speed of an arm, from recorded joints or, where there are none, found from poses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import se3
from jaxeval.metrics import kinematic
from jaxeval.metrics.registry import FRAME, Column, Context, Facts, Measured, Metric, Needs, Recorded
from jaxeval.metrics.status import Status
from jaxeval.robots import (
    Robot,
    embodiment_with,
    follow,
    inverse_kinematics,
    load_pool,
    load_robot,
    read_robot,
    robot_names,
)
from jaxeval.robots.model import chain, jacobian_of
from jaxeval.run.scorers.smoothness import moving_body
from jaxeval.types import NEAR_M, STATIC, EpisodeBatch, InputError, pytree


@pytree
class KinematicSetting(kinematic.KinematicParams):
    """KinematicParams, and which arm, and where it stands.

    ``robot``: a name that comes with the package, or a URDF or MJCF with its links; None: the arm whose joint names the
    source has. ``T_world_base`` (wxyz_xyz) is needed only where joints were not recorded and are found from the
    gripper's poses; ``pool`` by default is that of the robot.
    """

    robot: str | None = field(default=None, metadata=STATIC)
    base_link: str | None = field(default=None, metadata=STATIC)
    tip_link: str | None = field(default=None, metadata=STATIC)
    T_world_base: tuple[float, ...] | None = field(default=None, metadata=STATIC)
    pool: str | None = field(default=None, metadata=STATIC)


@pytree
class Arm:
    """What is measured with: the pool, the base where joints are found from poses, and the joints' columns."""

    pool: kinematic.CostPool
    base: Any  # wxyz_xyz, and whole metres to be added, exact in float32; None where joints were recorded
    index: tuple[int, ...] = field(metadata=STATIC)


def robot_with(joint_names: Sequence[str]) -> str | None:
    """The robot that comes with the package whose joints these hold, by their names.

    Joints of an embodiment of MuJoCo's tasks are only its own robot's: a Panda's are there called as an xArm7's.
    """
    own = embodiment_with(joint_names) or ""
    held = (n for n in robot_names() if n.startswith(own) and set(load_robot(n).joint_names) <= set(joint_names))
    return next(held, None)


def robot_of(recorded: Recorded, params: KinematicSetting) -> Robot:
    """The robot. InputError where none is named and the joint names tell none."""
    if params.robot is None:
        named = robot_with(recorded.joint_names)
        if named is None:
            has = ", ".join(recorded.joint_names) or "none"
            raise InputError(
                f"{recorded.where}: joint names {has} are those of no arm that comes with the package, "
                f"expected kinematic.robot=NAME ({', '.join(robot_names())}) or a URDF or MJCF; name the arm",
                code="no_robot",
                key="kinematic.robot",
            )
        return load_robot(named)
    if Path(params.robot).suffix in (".urdf", ".xml"):
        if params.base_link is None or params.tip_link is None:
            raise InputError(
                f"{params.robot}: kinematic.base_link and kinematic.tip_link are needed; name both links",
                code="no_links",
                key="kinematic.base_link",
            )
        return read_robot(params.robot, base_link=params.base_link, tip_link=params.tip_link)
    return load_robot(params.robot)


def needs(recorded: Recorded, params: KinematicSetting) -> Needs:
    """The arm, with its joints where they were recorded, else the gripper's poses and the pose of the arm's base."""
    robot = robot_of(recorded, params)
    pool = _pool(params.pool, robot)
    joints = set(robot.joint_names) <= set(recorded.joint_names)
    if joints:
        index = tuple(recorded.joint_names.index(j) for j in robot.joint_names)
        return Needs(joints=True, robot=robot, constants=Arm(pool=pool, base=None, index=index))
    if params.T_world_base is None:
        raise InputError(
            f"{recorded.where}: no joints {', '.join(robot.joint_names)}, expected them or "
            "kinematic.T_world_base=[w,x,y,z,x,y,z] to find them from the gripper's poses; give the base's pose",
            code="no_base",
            key="kinematic.T_world_base",
        )
    base = np.asarray(params.T_world_base, float)
    if base.shape != (7,) or abs(np.linalg.norm(base[:4]) - 1) > 1e-3:
        raise InputError(
            f"kinematic.T_world_base is {params.T_world_base}; expected a unit quaternion wxyz and metres xyz",
            code="bad_base",
            key="kinematic.T_world_base",
        )
    whole_m = np.where(np.abs(base[4:]) > NEAR_M, np.round(base[4:]), 0.0)
    base = np.concatenate([base[:4], base[4:] - whole_m, whole_m])
    body = moving_body(recorded, None)
    return Needs(bodies=(body,), robot=robot, constants=Arm(pool=pool, base=base, index=()))


def _pool(name: str | None, robot: Robot) -> kinematic.CostPool:
    """The pool asked for, else the robot's; one that gives no score where the robot has none."""
    try:
        return load_pool(name or f"{robot.name}_uniform_v1")
    except InputError:
        if name is not None:
            raise
        return kinematic.CostPool(p10=np.float64(np.nan), p90=np.float64(np.nan))  # type: ignore[arg-type]


def measure(batch: EpisodeBatch, context: Context, params: KinematicSetting) -> Measured:
    """Kinematic quality of every episode, w and sigma_min of every frame; see COLUMNS."""
    robot, arm, p = context.robot, context.constants, params
    if arm.base is None:
        assert batch.joints is not None
        q = jnp.asarray(batch.joints)[:, :, np.asarray(arm.index)]
        finite = jnp.isfinite(q).all(axis=-1)
        q, valid, reached = jnp.where(finite[..., None], q, 0.0), jnp.asarray(batch.frame_valid) & finite, finite
    else:
        q, reached = _solve(robot, jnp.asarray(batch.poses)[:, :, 0], _bases(arm.base, batch), p)
        valid = jnp.asarray(batch.valid)[:, :, 0]
    limits = {k: jnp.asarray(getattr(robot, k), q.dtype) for k in ("lower", "upper", "velocity_limit")}

    def one(q: Any, time_s: Any, valid: Any, reached: Any) -> kinematic.KinematicQuality:
        J = jacobian_of(robot, chain(robot, q.T))
        return kinematic.kinematic_quality(
            J, q, time_s, valid, reached, pool=arm.pool, torque_length_m=p.torque_length_m, **limits
        )

    quality = jax.vmap(one)(q, jnp.asarray(batch.time_s), valid, reached)
    out = {f"kinematic.{k}": v for k, v in vars(quality).items() if k not in ("w", "sigma_min")}
    if arm.base is None:  # recorded, but perhaps not in every episode
        status = out["kinematic.status"]
        out["kinematic.status"] = jnp.where(status == Status.NO_FRAMES, Status.NO_JOINTS, status)
    if context.frames:
        counts = valid & reached
        out[f"{FRAME}w"] = jnp.where(counts, quality.w, jnp.nan)
        out[f"{FRAME}sigma_min"] = jnp.where(counts, quality.sigma_min, jnp.nan)
    return out


def _bases(base: Any, batch: EpisodeBatch) -> Any:
    """The base's pose [B, 7], counted from each episode's origin."""
    B = batch.poses.shape[0]
    pose, whole_m = base[:7], base[7:]
    position = jnp.broadcast_to(whole_m, (B, 3)) - (0.0 if batch.origin_m is None else jnp.asarray(batch.origin_m))
    return jnp.concatenate([jnp.broadcast_to(pose[:4], (B, 4)), position + pose[None, 4:]], axis=-1)


def _solve(robot: Robot, poses: Any, bases: Any, p: KinematicSetting) -> tuple[Any, Any]:
    """(joints, pose reached) along every trajectory: the first frame's from many seeds, the others by least steps."""
    T_base_world = jax.vmap(se3.inverse)(jnp.asarray(bases, poses.dtype))
    tips = jax.vmap(lambda T, track: jax.vmap(lambda pose: se3.compose(T, pose))(track))(T_base_world, poses)
    tolerance = {
        "position_tolerance_m": p.position_tolerance_m,
        "rotation_tolerance_rad": p.rotation_tolerance_rad,
    }
    start = inverse_kinematics(robot, tips[:, 0], **tolerance).joints  # type: ignore[arg-type]
    found = jax.vmap(lambda T, q: follow(robot, T, q, **tolerance))(tips, start)  # type: ignore[arg-type]
    return found.joints, found.converged


def _robot(measured: Mapping[str, np.ndarray], facts: Facts) -> Sequence[str | None]:
    return [facts.context.robot.name] * len(facts.refused)


def _joints(measured: Mapping[str, np.ndarray], facts: Facts) -> Sequence[str | None]:
    recorded = facts.context.constants.base is None
    return ["recorded" if recorded else "inverse kinematics"] * len(facts.refused)


def _pool_name(measured: Mapping[str, np.ndarray], facts: Facts) -> Sequence[str | None]:
    return [facts.context.constants.pool.name or None] * len(facts.refused)


COLUMNS = (
    Column("kinematic.robot", "text", meaning="the arm", words=_robot),
    Column("kinematic.joints", "text", meaning="recorded, or found by inverse kinematics", words=_joints),
    Column("kinematic.pool", "text", meaning="pool of configurations that the score is relative to", words=_pool_name),
    Column("kinematic.status", "status", meaning="ok, or why there are no numbers"),
    Column("kinematic.score", direction="lower", short="kinematic score",
           meaning="mean cost relative to a frozen pool of configurations, 0 to 1"),
    Column("kinematic.cost", direction="lower", meaning="mean of 1 / translational manipulability, 100 if unreached"),
    Column("kinematic.coverage", direction="higher", meaning="share of valid frames whose pose the arm reaches"),
    Column("kinematic.min_w", direction="higher", short="least w, mean",
           meaning="least translational manipulability over the frames reached"),
    Column("kinematic.mean_w", direction="higher", meaning="mean translational manipulability"),
    Column("kinematic.min_w_full", direction="higher", meaning="least manipulability of translation and rotation"),
    Column("kinematic.min_sigma", direction="higher", meaning="least singular value of the full Jacobian"),
    Column("kinematic.min_inverse_condition", direction="higher", meaning="least 1 / condition number, 0 to 1"),
    Column("kinematic.min_limit_margin", direction="higher",
           meaning="least distance of a joint to its limit, over half its range"),
    Column("kinematic.velocity_utilisation", direction="lower", meaning="largest joint speed over its limit"),
)  # fmt: skip

METRIC = Metric("kinematic", KinematicSetting, needs, measure, COLUMNS, section="motion")
