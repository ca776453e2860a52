"""Scripted oracles: steps in the world, turned into joint commands by inverse kinematics and timed within limits.

A script is a tuple of steps, each planned when it begins, from what is then observed. What needs accuracy is aimed at
by moving the last *commanded* hand pose by the error that is left (``Scene.brought``): the arm settles a few
millimetres off its command, and correcting the measured pose instead would leave that error where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.transform import RigidTransform

from jaxeval.policies.policy import Act, Info, Observation, Policy, numpy_generator
from jaxeval.policies.scripted.arm import ARMS, Arm, line, rigid
from jaxeval.robots.inverse import follow
from jaxeval.types import InputError, bucket_length

SPEED_M_S, TURN_RAD_S = 0.35, 1.2
"""Peak speed of the hand in free space."""
LIMIT_SHARE = 0.8
"""Share of a joint's velocity limit that a command may ask for."""
LONGEST_S = 60.0
"""A step that takes longer cannot be followed: a joint jumps, however slowly the hand goes."""
TOLERATED_M, TOLERATED_RAD = 1e-3, np.radians(0.3)
"""How far off a commanded path inverse kinematics may be."""


@dataclass(frozen=True)
class Scene:
    """What a step is planned from: the observation, and the hand pose that was last commanded."""

    seen: Observation
    commanded: RigidTransform

    def pose(self, body: str) -> RigidTransform:
        """T_world_body."""
        return rigid(self.seen.poses[body])

    def half(self, body: str) -> Float[np.ndarray, "3"]:
        """Half extents of a body, metres."""
        return np.asarray(self.seen.half_size_m[body])

    @property
    def room(self) -> float:
        """How far lifts and detours of this arm go, as a share of the Panda's."""
        return arm_of(self.seen).room

    def brought(self, body: str, goal: RigidTransform) -> RigidTransform:
        """The hand pose to command so that a held body comes to ``goal``: the last command, moved by what is left."""
        return goal * self.pose(body).inv() * self.commanded


Aim = Callable[[Scene], RigidTransform]


@dataclass(frozen=True)
class Move:
    """Hand in a straight line to ``aim``. A carry waypoint, one that a deviation may tilt, names what is carried."""

    name: str
    aim: Aim
    speed: float = 1.0  # times SPEED_M_S and TURN_RAD_S
    settle_s: float = 0.0  # stand still afterwards: what is measured next is where the arm ends, not where it passes
    carry: str = ""


@dataclass(frozen=True)
class Grip:
    """Open (1) or close (0) the gripper: half of ``seconds`` to get there, the rest to settle."""

    name: str
    opening: float
    seconds: float = 0.8


@dataclass(frozen=True)
class Hold:
    """Stand still for ``seconds``, or shorter once the environment says success (if ``until_success``)."""

    name: str
    seconds: float
    until_success: bool = False


@dataclass(frozen=True)
class Stop:
    """End the script here; what follows is not done."""

    name: str


Step = Move | Grip | Hold | Stop
Script = tuple[Step, ...]


@dataclass(frozen=True)
class OracleState:
    """Where an oracle is in its script. ``path``: commands left of the current step, joints and opening in a row."""

    script: Script
    commanded: RigidTransform
    joints: Float[np.ndarray, " n"]
    opening: float = 1.0
    step: int = -1
    path: Float[np.ndarray, "t n+1"] = field(default_factory=lambda: np.zeros((0, 0)))
    failed: str = ""


class Unreachable(Exception):
    """A step that the arm cannot do; the message says by how much."""


def oracle(
    build: Callable[[Scene, np.random.Generator], Script],
    *,
    name: str = "oracle",
    change: Callable[..., Script] | None = None,
) -> Policy:
    """Policy that follows the script ``build(scene, generator)`` makes of the first observation.

    ``change(script, scene, generator)`` plants a deviation or a fault in it; its generator is another than the
    script's, so that the clean and the changed execution of one key share everything else.
    """

    def init(seen: Observation, key: Array) -> OracleState:
        arm = arm_of(seen)
        joints = arm_joints(seen, arm)
        scene = Scene(seen, rigid(seen.poses["tcp"]))
        script = build(scene, numpy_generator(key, 0))
        if change is not None:
            script = change(script, scene, numpy_generator(key, 1))
        return OracleState(script, scene.commanded, joints)

    return Policy(
        name,
        init,
        _act,
        host=True,
        traceable=False,
        ends=True,
        labels=lambda state: [step.name for step in state.script],
        failures=lambda state: ("", state.failed),
    )


def _act(state: OracleState, seen: Observation) -> Act:
    arm = arm_of(seen)
    while not state.failed and len(state.path) == 0:
        step = state.script[state.step + 1] if state.step + 1 < len(state.script) else Stop("end")
        if isinstance(step, Stop):
            return Act(_action(arm, state, seen), state, Info(_label(state), True))
        try:
            state = _begin(replace(state, step=state.step + 1), step, seen, arm)
        except Unreachable as why:
            state = replace(state, failed=f"waypoint '{step.name}': {why}")
    if state.failed:
        return Act(_action(arm, state, seen), state, Info(_label(state), True, 1))
    step = state.script[state.step]
    command, path = state.path[0], state.path[1:]
    if isinstance(step, Hold) and step.until_success and seen.success:
        path = path[:0]
    state = replace(state, joints=command[:-1], opening=float(command[-1]), path=path)
    return Act(_action(arm, state, seen), state, Info(_label(state)))


def _action(arm: Arm, state: OracleState, seen: Observation) -> Float[np.ndarray, " A"]:
    return arm.action(state.joints, state.opening, dict(zip(seen.joint_names, seen.joints.tolist(), strict=True)))


def _label(state: OracleState) -> int:
    return max(state.step, 0)


def _begin(state: OracleState, step: Step, seen: Observation, arm: Arm) -> OracleState:
    """Plan one step from what is seen as it begins."""
    goal, opening = state.commanded, np.full(1, state.opening)
    if isinstance(step, Move):
        T_world_base = rigid(seen.T_world_base)
        goal = arm.nearest(T_world_base, step.aim(Scene(seen, state.commanded)))
        joints = _plan(arm, T_world_base, state, goal, step.speed, seen.control_hz)
        still = round(step.settle_s * seen.control_hz)
    else:
        joints = state.joints[None]
        seconds = (
            step.seconds if isinstance(step, Hold) else arm.grip_s * step.seconds if isinstance(step, Grip) else 0.0
        )
        still = max(0, round(seconds * seen.control_hz) - 1)
        if isinstance(step, Grip):
            ramp = max(1, (still + 1) // 2)
            opening = state.opening + (step.opening - state.opening) * np.arange(1, ramp + 1) / ramp
    frames = np.arange(len(joints) + still)
    path = np.column_stack([joints[np.minimum(frames, len(joints) - 1)], opening[np.minimum(frames, len(opening) - 1)]])
    return replace(state, path=path, commanded=goal)


def _plan(
    arm: Arm, T_world_base: RigidTransform, state: OracleState, goal: RigidTransform, speed: float, rate_hz: float
) -> Float[np.ndarray, "t n"]:
    """Joint commands along the straight line to ``goal``, with the hand's and the joints' speeds within limits."""
    start = state.commanded
    away = float(np.linalg.norm(goal.translation - start.translation))
    turn = (start.rotation.inv() * goal.rotation).magnitude()
    seconds = 1.875 * max(away / (SPEED_M_S * speed), turn / (TURN_RAD_S * speed))  # 1.875: peak over mean
    limit = LIMIT_SHARE * np.asarray(arm.chain().velocity_limit)
    limit = np.where(np.isfinite(limit), limit, np.inf)
    while True:
        frames = max(2, int(np.ceil(seconds * rate_hz)))
        way = arm.nearest(T_world_base, _eased_line(start, goal, frames))
        joints = _joints(arm, T_world_base, way, state.joints)
        fastest = float(np.max(np.abs(np.diff(np.vstack([state.joints, joints]), axis=0)) * rate_hz / limit))
        if fastest <= 1.0:
            return joints
        if fastest > 20 or seconds > LONGEST_S:
            raise Unreachable(f"a joint would have to turn {fastest:.0f} times as fast as it can")
        seconds = frames / rate_hz * fastest * 1.05


def _eased_line(start: RigidTransform, goal: RigidTransform, frames: int) -> RigidTransform:
    """``frames`` poses from after ``start`` to ``goal``, at rest at both ends (minimum jerk)."""
    u = np.arange(1, frames + 1) / frames
    return line(start, goal, u**3 * (10 - 15 * u + 6 * u * u))


def _joints(arm: Arm, T_world_base: RigidTransform, line: RigidTransform, start: np.ndarray) -> np.ndarray:
    tips = T_world_base.inv() * line * arm.tip_to_hand.inv()
    poses = np.concatenate([tips.rotation.as_quat(scalar_first=True), tips.translation], axis=1)
    frames = len(poses)
    padded = poses[np.minimum(np.arange(bucket_length(frames)), frames - 1)]
    given = jnp.asarray(padded, jnp.float32), jnp.asarray(start, jnp.float32)
    joints, position, rotation = (np.asarray(x)[:frames] for x in _follower(arm.robot)(*given))
    off = np.flatnonzero((position > TOLERATED_M) | (rotation > TOLERATED_RAD))
    if off.size:
        t = int(off[0])
        raise Unreachable(
            f"the arm cannot follow the line to it; from {t / frames:.0%} of the way on it is off, there by "
            f"{1e3 * position[t]:.1f} mm and {np.degrees(rotation[t]):.1f} deg"
        )
    return joints.astype(np.float64)


@cache
def _follower(robot: str) -> Callable[..., Any]:
    from jaxeval.robots import load_robot

    def run(poses: Array, start: Array) -> tuple[Array, Array, Array]:
        within = {"position_tolerance_m": TOLERATED_M, "rotation_tolerance_rad": TOLERATED_RAD}
        found = follow(load_robot(robot), poses, start, **within)
        return found.joints, found.position_error_m, found.rotation_error_rad

    return jax.jit(run)


def arm_of(seen: Observation) -> Arm:
    """The arm of the observed robot; InputError names those there are."""
    if seen.robot not in ARMS:
        raise InputError(
            f"robot '{seen.robot}': no oracle moves it; expected one of {', '.join(ARMS)}; choose one of these"
        )
    return ARMS[seen.robot]


def arm_joints(seen: Observation, arm: Arm) -> Float[np.ndarray, " n"]:
    """Measured angles of the arm's own joints, in the order of its chain."""
    return np.array([seen.joints[seen.joint_names.index(j)] for j in arm.chain().joint_names], np.float64)
