"""Batched inverse kinematics: damped least squares from many seeds at once, or along a trajectory from the last frame.

The damping is Sugihara's (2011, IEEE T-RO 27(5)): it falls with the squared error, so that steps are careful far away
and Newton's close by, without trial steps. Joints at a limit that a step would cross are held for that step. Inside,
components lead and configurations trail (see ``model``); nothing here calls LAPACK.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxeval.linalg import rotation_rows, solve_positive
from jaxeval.metrics.kinematic import joint_limit_margin
from jaxeval.robots.model import Frame, Robot, chain, cross, forward_kinematics, jacobian_of
from jaxeval.types import pytree

METRES_PER_RADIAN = 0.3
"""Weight of a rotation error beside a position error: about a forearm, so that both steer the step."""
FLOOR = 1e-6
"""Damping left at no error; keeps the 6 x 6 system solvable at a singularity in float32."""
STEP = 0.6
"""Longest step of any joint in an iteration (radians, metres)."""
POOL_N = 4096
"""Configurations whose poses are compared with each target to choose the seeds."""


@pytree
class Solved:
    """What inverse kinematics found. ``joints`` is the best candidate whether or not it converged: ask ``converged``.

    The errors are measured by forward kinematics of ``joints``; ``limit_margin`` is 0 where a joint stands at a limit
    and 1 where all stand mid-range.
    """

    joints: Float[Array, "... n"]
    converged: Bool[Array, " ..."]
    position_error_m: Float[Array, " ..."]
    rotation_error_rad: Float[Array, " ..."]
    limit_margin: Float[Array, " ..."]


def inverse_kinematics(
    robot: Robot,
    T_base_tip: Float[Array, "B 7"],
    *,
    near: Float[Array, " n"] | None = None,
    position_tolerance_m: float = 1e-3,
    rotation_tolerance_rad: float = float(np.radians(0.1)),
    seeds_n: int = 16,
    iterations_n: int = 20,
) -> Solved:
    """Joints that bring the tip to each pose (wxyz_xyz, base frame, metres), all seeds of all targets at once.

    Seeds are those of a fixed pool of configurations whose poses lie nearest to the target, one from each of
    ``seeds_n`` parts of the pool. Of the seeds that converged, the one nearest to ``near`` is returned (mid-range by
    default); where none did, the one with the least error, and ``converged`` is False. Joints are always within limits.
    The same call gives the same joints. Pure: may be jitted with ``seeds_n`` and ``iterations_n`` static.

    Oracle: forward kinematics of what is found; Pinocchio.
    """
    lower, upper = _range(robot, T_base_tip.dtype)
    near = (lower + upper) / 2 if near is None else jnp.asarray(near, T_base_tip.dtype)
    q = _seeds(robot, T_base_tip, seeds_n)  # [n, S, B]
    target = frame_of(T_base_tip.T[:, None])
    q = jax.lax.fori_loop(0, iterations_n, lambda _, q: damped_step(robot, q, target), q)
    position, rotation = pose_error(robot, q, target)  # [S, B]
    good = (position < position_tolerance_m) & (rotation < rotation_tolerance_rad)
    far = jnp.sum((q - near[:, None, None]) ** 2, axis=0)
    error = position + METRES_PER_RADIAN * rotation
    best = jnp.argmin(jnp.where(good, far, 1e6 + error), axis=0)[None]  # [1, B]

    def chosen(a: Array) -> Array:
        return jnp.take_along_axis(a, best, axis=0)[0]

    joints = jnp.take_along_axis(q, best[None], axis=1)[:, 0]
    return Solved(
        joints=joints.T,
        converged=chosen(good),
        position_error_m=chosen(position),
        rotation_error_rad=chosen(rotation),
        limit_margin=joint_limit_margin(joints, *_limits(robot, joints)),
    )


def follow(
    robot: Robot,
    T_base_tip: Float[Array, "T 7"],
    start: Float[Array, " n"],
    *,
    position_tolerance_m: float = 1e-3,
    rotation_tolerance_rad: float = float(np.radians(0.1)),
    iterations_n: int = 10,
) -> Solved:
    """Joints along a trajectory of tip poses, each frame from the last that converged, by least steps.

    Damped least squares moves an arm with joints to spare as little as it can, so the path depends on ``start`` alone:
    give the recorded first configuration, or that of :func:`inverse_kinematics` for the first frame. A frame that
    cannot be reached is flagged and the next one starts from the last that was.
    """

    def frame(q: Array, pose: Array) -> tuple[Array, Solved]:
        target = frame_of(pose)
        found = jax.lax.fori_loop(0, iterations_n, lambda _, q: damped_step(robot, q, target), q)
        position, rotation = pose_error(robot, found, target)
        good = (position < position_tolerance_m) & (rotation < rotation_tolerance_rad)
        solved = Solved(
            joints=found,
            converged=good,
            position_error_m=position,
            rotation_error_rad=rotation,
            limit_margin=joint_limit_margin(found, *_limits(robot, found)),
        )
        return jnp.where(good, found, q), solved

    return jax.lax.scan(frame, jnp.asarray(start, T_base_tip.dtype), T_base_tip)[1]


def pose_error(robot: Robot, q: Float[Array, "n ..."], target: Frame) -> tuple[Array, Array]:
    """(position error in metres, rotation error in radians) of the tip."""
    error = tip_error(chain(robot, q).tip, target)
    norm = jnp.sqrt(jnp.sum(error.reshape(2, 3, *error.shape[1:]) ** 2, axis=1))
    return norm[0], norm[1]


def damped_step(robot: Robot, q: Float[Array, "n ..."], target: Frame) -> Float[Array, "n ..."]:
    """One step of damped least squares, ``dq = J^T (J J^T + (e^T e + floor) I)^-1 e``, within limits."""
    at = chain(robot, q)
    weight = jnp.array([1.0] * 3 + [METRES_PER_RADIAN] * 3, q.dtype).reshape(6, *(1,) * (q.ndim - 1))
    e = weight * tip_error(at.tip, target)
    J = weight[:, None] * jacobian_of(robot, at)  # [6, n, ...]
    lower, upper = _limits(robot, q)
    slope = jnp.sum(J * e[:, None], axis=0)
    held = ((q <= lower) & (slope < 0)) | ((q >= upper) & (slope > 0))
    J = jnp.where(held[None], 0.0, J)
    A = jnp.sum(J[:, None] * J[None], axis=2)  # J J^T, [6, 6, ...]
    y = solve_positive(A, e, damping=jnp.sum(e * e, axis=0) + FLOOR)
    step = jnp.sum(J * y[:, None], axis=0)
    longest = jnp.max(jnp.abs(step), axis=0)
    return jnp.clip(q + step * jnp.minimum(1.0, STEP / jnp.maximum(longest, 1e-9))[None], lower, upper)


def _limits(robot: Robot, q: Float[Array, "n ..."]) -> tuple[Array, Array]:
    shape = (-1, *(1,) * (q.ndim - 1))
    return jnp.asarray(robot.lower, q.dtype).reshape(shape), jnp.asarray(robot.upper, q.dtype).reshape(shape)


def _range(robot: Robot, dtype: Any) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """``Robot.range`` of a robot that may be traced."""
    lower, upper = jnp.asarray(robot.lower, dtype), jnp.asarray(robot.upper, dtype)
    return jnp.where(jnp.isfinite(lower), lower, -jnp.pi), jnp.where(jnp.isfinite(upper), upper, jnp.pi)


def tip_error(tip: Frame, target: Frame) -> Float[Array, "6 ..."]:
    """Translation and rotation vector (base frame) that take the tip to the target; zero at half a turn exactly."""
    sine2 = cross(tip.x, target.x) + cross(tip.y, target.y) + cross(tip.z, target.z)  # 2 sin(angle) axis
    cosine2 = jnp.sum(tip.x * target.x + tip.y * target.y + tip.z * target.z, axis=0) - 1  # 2 cos(angle)
    length = jnp.sqrt(jnp.sum(sine2 * sine2, axis=0) + 1e-20)
    return jnp.concatenate([target.t - tip.t, (jnp.arctan2(length, cosine2) / length)[None] * sine2])


def frame_of(pose: Float[Array, "7 ..."]) -> Frame:
    """Axes and origin of poses (wxyz_xyz), components leading: what :func:`damped_step` aims at."""
    R = rotation_rows(pose[:4])
    x, y, z = (jnp.stack([row[j] for row in R]) for j in range(3))
    return Frame(x, y, z, pose[4:])


def _seeds(robot: Robot, T_base_tip: Float[Array, "B 7"], seeds_n: int) -> Float[Array, "n S B"]:
    """The pool's configurations whose poses lie nearest to each target, one from each of ``seeds_n`` parts."""
    lower, upper = _range(robot, T_base_tip.dtype)
    per = -(-POOL_N // seeds_n)
    u = np.random.default_rng(0).uniform(size=(seeds_n * per, robot.joints_n))
    pool = lower[None] + jnp.asarray(u, T_base_tip.dtype) * (upper - lower)[None]
    poses = jax.vmap(partial(forward_kinematics, robot))(pool)
    # squared chord between rotations: 8 (1 - |cos(angle / 2)|), close to angle^2
    away = 8 * (1 - jnp.abs(poses[:, :4] @ T_base_tip[:, :4].T)) * METRES_PER_RADIAN**2
    position, goal = poses[:, 4:], T_base_tip[:, 4:]
    away += jnp.sum(position**2, axis=1)[:, None] - 2 * position @ goal.T + jnp.sum(goal**2, axis=1)[None]
    nearest = jnp.argmin(away.reshape(seeds_n, per, -1), axis=1)  # [S, B]
    return jnp.moveaxis(pool.reshape(seeds_n, per, -1)[jnp.arange(seeds_n)[:, None], nearest], 2, 0)
