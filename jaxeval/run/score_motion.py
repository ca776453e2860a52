"""Scorers of motion: smoothness of a body, kinematics of an arm, tracks against the truth; and their frames on disk."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import se3
from jaxeval.io.source import Source
from jaxeval.metrics import kinematic as K
from jaxeval.metrics import smoothness as S
from jaxeval.metrics import tracking as T
from jaxeval.robots import Robot, follow, inverse_kinematics, load_pool, load_robot, read_robot, robot_names
from jaxeval.robots.model import chain, jacobian_of
from jaxeval.run.fit import quick_jit
from jaxeval.run.scorer import FRAME, Batch, Measured, known, told
from jaxeval.sim.embodiment import embodiment_with
from jaxeval.types import InputError, Reference, Shape, Symmetry

FRAME_MOTION = "frame_motion.parquet"
GRIPPER = "tcp"
POINT_N = 128
CHUNK_N = 16


SMALL_N = 512
"""Sources of up to so many episodes are measured by code that compiles in half the time and runs ten times slower."""


@cache
def compiled(f: Callable[..., Any], small: bool, *static: str) -> Callable[..., Any]:
    """Jitted once: fast to compile for small sources, else fast to run."""
    return quick_jit(f, static_argnames=static) if small else jax.jit(f, static_argnames=static)


# ---------------------------------------------------------------------------------------------------- smoothness


class SmoothnessScorer:
    """SPARC, jerk, path and times of one body: of the whole, and of every sub-task where there is a reference."""

    name, joints, signals = "smoothness", False, ()

    def __init__(
        self, source: Source, reference: Reference | None, params: S.SmoothnessParams, body: str | None
    ) -> None:
        self.params, self.small = params.check(), source.n_episodes <= SMALL_N
        self.body = moving_body(source, reference, body)
        self.bodies = (self.body,)
        self.sub_tasks = () if reference is None else tuple(s.name for s in reference.spec.sub_tasks)
        self.bins_n = 1 if reference is None else reference.bins_n

    def measure(self, batch: Batch) -> Measured:
        """Motion of the whole ("whole.path_m") and of sub-tasks ("part.path_m"), positions and speed of every frame."""
        n, poses = batch.n, batch.body(self.body)
        labels = np.full(poses.shape[:2], -1, np.int32)
        if batch.aligned is not None:
            bins = np.asarray(batch.aligned.bins)
            labels = np.where(bins >= 0, bins // self.bins_n, -1).astype(np.int32)
        data = batch.data
        motion = compiled(_motion, self.small, "sub_tasks_n")
        valid = batch.valid(self.body)
        args = (poses, data.time_s, valid, labels, self.params)
        quality, speed = motion(*args, sub_tasks_n=len(self.sub_tasks))
        out: Measured = {}
        for kind, motion in (("whole", quality.whole), ("part", quality.sub_tasks)):
            out |= {f"{kind}.{k}": np.asarray(v)[:n] for k, v in vars(motion).items()}
        out |= {f"{FRAME}{axis}_m": np.where(valid, poses[..., 4 + i], np.nan)[:n] for i, axis in enumerate("xyz")}
        return out | {f"{FRAME}speed_m_s": np.asarray(speed)[:n], f"{FRAME}sub_task": labels[:n]}

    def columns(self, measured: Measured, refused: Sequence[str | None]) -> dict[str, list[Any]]:
        """``smoothness.<quantity>`` and, per sub-task, ``smoothness.<quantity>.<sub-task>``; statuses as sentences."""
        out: dict[str, list[Any]] = {"smoothness.body": [self.body] * len(refused)}
        parts = [(name, p) for p, name in enumerate(self.sub_tasks)]
        for key, values in measured.items():
            kind, quantity = key.split(".")
            for name, column in [("", values)] if kind == "whole" else [(f".{s}", values[:, p]) for s, p in parts]:
                target = f"smoothness.{quantity}{name}"
                if quantity.endswith("status"):
                    out[target] = told(column, S.STATUS_SENTENCES, refused)
                else:
                    out[target] = known(column, refused)
        return out


def _motion(
    poses: Any, time_s: Any, valid: Any, labels: Any, params: S.SmoothnessParams, *, sub_tasks_n: int
) -> tuple[S.MotionQuality, Any]:
    """Motion quality of every episode, a few at a time so that their spectra stay in a CPU's cache; and speeds."""

    def one(row: tuple[Any, Any, Any, Any]) -> tuple[S.MotionQuality, Any]:
        poses, time_s, valid, labels = row
        quality = S.motion_quality(poses, time_s, valid, labels, params=params, sub_tasks_n=sub_tasks_n)
        return quality, S.speed_of(poses[:, 4:], time_s, valid)

    n = len(poses)
    chunks = n // math.gcd(n, CHUNK_N)
    folded = jax.tree.map(lambda x: x.reshape(chunks, -1, *x.shape[1:]), (poses, time_s, valid, labels))
    out = jax.lax.map(jax.vmap(one), folded)
    return jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), out)


def moving_body(source: Source, reference: Reference | None, body: str | None) -> str:
    """The body whose motion is measured: the one asked for, else the gripper's, else the only one there is."""
    gripper = GRIPPER if reference is None else reference.spec.gripper
    found = body or (gripper if gripper in source.bodies else source.bodies[0] if len(source.bodies) == 1 else None)
    if found is None or found not in source.bodies:
        raise InputError(
            f"{source.parts[0].path}: no body {body or gripper} whose motion could be measured; "
            f"it has {', '.join(source.bodies) or 'none at all'}; choose one with smoothness.body=NAME"
        )
    return found


# ---------------------------------------------------------------------------------------------------- kinematics


def robot_with(joint_names: Sequence[str]) -> str | None:
    """The robot that comes with the package whose joints these hold, by their names.

    Joints of an embodiment of MuJoCo's tasks are only its own robot's: a Panda's are there called as an xArm7's.
    """
    own = embodiment_with(tuple(joint_names)) or ""
    held = (n for n in robot_names() if n.startswith(own) and set(load_robot(n).joint_names) <= set(joint_names))
    return next(held, None)


@dataclass(frozen=True)
class ArmSetting:
    """Which arm, and where it stands. ``robot``: a name that comes with the package, or a URDF or MJCF with its links.

    None: the arm whose joint names the source has. ``T_world_base`` (wxyz_xyz) is needed only where joints were not
    recorded and are found from the gripper's poses; ``pool`` by default is that of the robot.
    """

    robot: str | None = None
    base_link: str | None = None
    tip_link: str | None = None
    T_world_base: tuple[float, ...] | None = None
    pool: str | None = None

    def load(self, source: Source) -> Robot:
        """The robot. InputError where none is named and the joint names tell none."""
        if self.robot is None:
            named = robot_with(source.joint_names)
            if named is None:
                has = ", ".join(source.joint_names) or "none"
                raise InputError(
                    f"{source.parts[0].path}: joint names {has} are those of no arm that comes with the package, "
                    f"expected kinematic.robot=NAME ({', '.join(robot_names())}) or a URDF or MJCF; name the arm"
                )
            return load_robot(named)
        if Path(self.robot).suffix in (".urdf", ".xml"):
            if self.base_link is None or self.tip_link is None:
                raise InputError(
                    f"{self.robot}: kinematic.base_link and kinematic.tip_link are needed; name both links"
                )
            return read_robot(self.robot, base_link=self.base_link, tip_link=self.tip_link)
        return load_robot(self.robot)


class KinematicScorer:
    """Manipulability, limits and speed of an arm, from recorded joints or, where there are none, found from poses."""

    name, signals = "kinematic", ()

    def __init__(self, source: Source, reference: Reference | None, params: K.KinematicParams, arm: ArmSetting) -> None:
        self.params, self.robot = params.check(), arm.load(source)
        self.small = source.n_episodes <= SMALL_N
        self.joints = set(self.robot.joint_names) <= set(source.joint_names)
        self.index = [source.joint_names.index(j) for j in self.robot.joint_names] if self.joints else []
        self.base: np.ndarray | None = None
        self.bodies: tuple[str, ...] = ()
        if not self.joints:
            if arm.T_world_base is None:
                raise InputError(
                    f"{source.parts[0].path}: no joints {', '.join(self.robot.joint_names)}, expected them or "
                    "kinematic.T_world_base=[w,x,y,z,x,y,z] to find them from the gripper's poses; give the base's pose"
                )
            self.base = np.asarray(arm.T_world_base, float)
            if self.base.shape != (7,) or abs(np.linalg.norm(self.base[:4]) - 1) > 1e-3:
                raise InputError(
                    f"kinematic.T_world_base is {arm.T_world_base}; expected a unit quaternion wxyz and metres xyz"
                )
            self.bodies = (moving_body(source, reference, None),)
        self.pool = _pool(arm.pool, self.robot)

    def measure(self, batch: Batch) -> Measured:
        """Kinematic quality of every episode, w and sigma_min of every frame."""
        n, data, p = batch.n, batch.data, self.params
        if self.joints:
            assert data.joints is not None
            q = data.joints[:, :, self.index]
            finite = np.asarray(np.isfinite(q).all(axis=-1))
            q, valid, reached = np.where(finite[..., None], q, 0.0), np.asarray(data.frame_valid) & finite, finite
        else:
            poses = np.asarray(batch.body(self.bodies[0]), np.float32)
            solved = compiled(_solve, self.small)(
                self.robot, poses, self.base, p.position_tolerance_m, p.rotation_tolerance_rad
            )
            q, valid, reached = np.asarray(solved.joints), batch.valid(self.bodies[0]), np.asarray(solved.converged)
        quality = compiled(_kinematics, self.small)(
            self.robot, q, data.time_s, valid, reached, self.pool, p.torque_length_m
        )
        out = {k: np.asarray(v)[:n] for k, v in vars(quality).items() if k not in ("w", "sigma_min")}
        counts = np.asarray(valid & reached)[:n]
        return out | {
            f"{FRAME}w": np.where(counts, np.asarray(quality.w)[:n], np.nan),
            f"{FRAME}sigma_min": np.where(counts, np.asarray(quality.sigma_min)[:n], np.nan),
        }

    def columns(self, measured: Measured, refused: Sequence[str | None]) -> dict[str, list[Any]]:
        """``kinematic.<quantity>``, with the robot, its pool and where the joints came from."""
        n = len(refused)
        status = measured["status"]
        if self.joints:  # recorded, but perhaps not in every episode
            status = np.where(status == K.STATUS_NO_FRAMES, K.STATUS_NO_JOINTS, status)
        out: dict[str, list[Any]] = {
            "kinematic.robot": [self.robot.name] * n,
            "kinematic.joints": ["recorded" if self.joints else "inverse kinematics"] * n,
            "kinematic.pool": [self.pool.name or None] * n,
            "kinematic.status": told(status, K.STATUS_SENTENCES, refused),
        }
        return out | {f"kinematic.{k}": known(v, refused) for k, v in measured.items() if k != "status"}


def _pool(name: str | None, robot: Robot) -> K.CostPool:
    """The pool asked for, else the robot's; one that gives no score where the robot has none."""
    try:
        return load_pool(name or f"{robot.name}_uniform_v1")
    except InputError:
        if name is not None:
            raise
        return K.CostPool(p10=np.float64(np.nan), p90=np.float64(np.nan))  # type: ignore[arg-type]


def _kinematics(
    robot: Robot, q: Any, time_s: Any, valid: Any, reached: Any, pool: K.CostPool, torque_length_m: Any
) -> K.KinematicQuality:
    limits = {k: jnp.asarray(getattr(robot, k), q.dtype) for k in ("lower", "upper", "velocity_limit")}

    def one(q: Any, time_s: Any, valid: Any, reached: Any) -> K.KinematicQuality:
        J = jacobian_of(robot, chain(robot, q.T))
        return K.kinematic_quality(J, q, time_s, valid, reached, pool=pool, torque_length_m=torque_length_m, **limits)

    return jax.vmap(one)(q, time_s, valid, reached)


def _solve(robot: Robot, poses: Any, base: Any, position_m: Any, rotation_rad: Any) -> Any:
    """Joints along every trajectory: the first frame's from many seeds, the others by least steps."""
    T_base_world = se3.inverse(jnp.asarray(base, poses.dtype))
    tips = jax.vmap(jax.vmap(lambda pose: se3.compose(T_base_world, pose)))(poses)
    tolerance = {"position_tolerance_m": position_m, "rotation_tolerance_rad": rotation_rad}
    start = inverse_kinematics(robot, tips[:, 0], **tolerance).joints
    return jax.vmap(lambda T, q: follow(robot, T, q, **tolerance))(tips, start)


# ---------------------------------------------------------------------------------------------------- tracks


class TrackingScorer:
    """Estimated tracks against true ones: errors, tails, hit rate, coverage, and frames lost, jumping or frozen."""

    name, joints, signals = "tracking", False, ()

    def __init__(
        self,
        source: Source,
        reference: Reference | None,
        params: T.TrackingParams,
        tracks: tuple[tuple[str, str], ...],
    ) -> None:
        if not tracks:
            raise InputError(
                f"{source.parts[0].path}: no tracks to compare, expected tracking.tracks={{ESTIMATE: TRUTH}} "
                f"with two of its bodies ({', '.join(source.bodies)}); name them"
            )
        self.params, self.tracks, self.small = params.check(), tracks, source.n_episodes <= SMALL_N
        self.bodies = tuple(dict.fromkeys(b for pair in tracks for b in pair))
        if absent := [b for b in self.bodies if b not in source.bodies]:
            raise InputError(
                f"{source.parts[0].path}: no body {', '.join(absent)}; it has {', '.join(source.bodies)}; "
                "choose tracking.tracks among these"
            )
        bodies = {} if reference is None else {b.name: b for b in reference.spec.bodies}
        self.shapes = [(bodies[t].shape, bodies[t].symmetry) if t in bodies else _POINT for _, t in tracks]

    def measure(self, batch: Batch) -> Measured:
        """Tracking quality of every pair ("NAME|quantity"), translation error of every frame."""
        data, n, out = batch.data, batch.n, {}
        due = np.zeros(data.frame_valid.shape, bool)
        due[:n] = np.arange(data.frame_valid.shape[1]) < batch.length[:, None]
        for (estimate, truth), (shape, symmetry) in zip(self.tracks, self.shapes, strict=True):
            points = jnp.asarray(_points(shape), data.poses.dtype)
            scale = jnp.asarray(se3.scale_matrix(se3.surface_second_moment(shape)), data.poses.dtype)
            a, b = batch.body(estimate), batch.body(truth)
            # a frame in which the truth was not seen can tell nothing of the estimate
            told = due & (batch.valid(truth) | ~np.asarray(data.frame_valid))
            args = (a, b, data.time_s, batch.valid(estimate, truth), told, points, scale, self.params)
            quality, masks = compiled(_tracks, self.small, "symmetry")(*args, symmetry=symmetry)
            found = {f"{k}_mean": v for k, v in quality.mean.items()}
            for k, v in quality.quantiles.items():
                found |= {f"{k}_p{100 * at:g}": v[:, i] for i, at in enumerate(T.QUANTILES)}
            found |= {k: getattr(quality, k) for k in ("near_share", "near_coverage", "coverage", "status")}
            found |= {f"{k}_n": v.sum(axis=1) for k, v in masks._asdict().items()}
            out |= {f"{estimate}|{k}": np.asarray(v)[:n] for k, v in found.items()}
            out[f"{FRAME}error_m.{estimate}"] = np.asarray(quality.frames.translation_m)[:n]
        return out

    def columns(self, measured: Measured, refused: Sequence[str | None]) -> dict[str, list[Any]]:
        """``tracking.<estimate>.<quantity>``; an episode refused for its tracking is told all the same."""
        nobody = [None if r is None or r.startswith("insufficient tracking") else r for r in refused]
        out: dict[str, list[Any]] = {}
        for key, values in measured.items():
            name, quantity = key.split("|")
            target = f"tracking.{name}.{quantity}"
            out[target] = told(values, T.STATUS_SENTENCES, nobody) if quantity == "status" else known(values, nobody)
        return out


_POINT = (Shape("sphere", (0.0, 0.0, 0.0)), Symmetry())
"""Of a body without a known shape: its origin alone, so that ADD is its translation error."""


def _points(shape: Shape) -> np.ndarray:
    return np.zeros((1, 3)) if not any(shape.size_m) and shape.kind != "mesh" else T.surface_points(shape, POINT_N)


def _tracks(
    estimate: Any, truth: Any, time_s: Any, valid: Any, due: Any, points: Any, scale: Any, params: T.TrackingParams,
    *, symmetry: Symmetry,
) -> tuple[T.TrackingQuality, T.TrackMasks]:  # fmt: skip
    def one(row: tuple[Any, ...]) -> tuple[T.TrackingQuality, T.TrackMasks]:
        a, b, time_s, valid, due = row
        quality = T.tracking_quality(a, b, valid, due, points, scale=scale, symmetry=symmetry, params=params)
        return quality, T.track_masks(a[:, None], time_s, valid, due, params=params)

    return jax.lax.map(one, (estimate, truth, time_s, valid, due))


# ---------------------------------------------------------------------------------------------------- frames on disk


class MotionWriter:
    """`frame_motion.parquet`: episode (row of scores.parquet), frame, t_s and what was measured in each frame."""

    def __init__(self, folder: Path) -> None:
        self.part, self.path = folder / f".{FRAME_MOTION}.writing", folder / FRAME_MOTION
        self.writer: Any = None

    def add(self, batch: Batch, measured: Measured) -> None:
        """Rows of a batch's valid frames; arrays [n, T]."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        b, t = np.nonzero(batch.data.frame_valid[: batch.n])
        columns = {"episode": batch.rows[b], "frame": t.astype(np.int32), "t_s": batch.data.time_s[b, t].astype(float)}
        columns |= {name.removeprefix(FRAME): values[b, t] for name, values in measured.items()}
        arrays = {k: pa.array(v, from_pandas=v.dtype.kind == "f") for k, v in columns.items()}
        table = pa.table(arrays)
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.part, table.schema, compression="zstd")
        self.writer.write_table(table)

    def close(self) -> None:
        """Finish the file and give it its name."""
        if self.writer is not None:
            self.writer.close()
            os.replace(self.part, self.path)

    def abandon(self) -> None:
        """Remove what is unfinished; nothing after :meth:`close`."""
        if self.writer is not None:
            self.writer.close()
        self.part.unlink(missing_ok=True)
