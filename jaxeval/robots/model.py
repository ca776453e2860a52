"""A robot arm as arrays: the chain of joints from a base link to a tip, its poses and its Jacobian.

Everything is written for one configuration and in scalars, so that under ``vmap`` each scalar becomes one contiguous
array over configurations: no batched 3 x 3 products, which are slow on a CPU.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxeval import se3
from jaxeval.types import STATIC, pytree

Vector = tuple[Any, Any, Any]
Rotation = tuple[Vector, Vector, Vector]  # rows


@pytree
class Robot:
    """Serial chain of n joints from ``base_link`` to ``tip_link``; fixed joints between are part of the origins.

    Angles in radians, sliding joints in metres. A continuous joint has infinite limits. ``velocity_limit`` is NaN where
    the model's source does not state one.
    """

    R_parent_joint: Float[Array, "n 3 3"]  # of each joint's frame in the one before, at zero
    t_parent_joint: Float[Array, "n 3"]
    axis: Float[Array, "n 3"]  # unit, in the joint's own frame
    R_last_tip: Float[Array, "3 3"]
    t_last_tip: Float[Array, "3"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    velocity_limit: Float[Array, " n"]  # rad/s, m/s
    sliding: tuple[bool, ...] = field(metadata=STATIC)
    joint_names: tuple[str, ...] = field(metadata=STATIC)
    gripper_joints: tuple[str, ...] = field(default=(), metadata=STATIC)  # whose sum is the gripper's width
    name: str = field(metadata=STATIC)
    base_link: str = field(metadata=STATIC)
    tip_link: str = field(metadata=STATIC)
    source: str = field(default="", metadata=STATIC)  # package, version, file, licence

    @property
    def joints_n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)

    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper) with a full turn, -pi to pi, for continuous joints: the range to draw configurations from."""
        lower, upper = np.asarray(self.lower, float), np.asarray(self.upper, float)
        return np.where(np.isfinite(lower), lower, -np.pi), np.where(np.isfinite(upper), upper, np.pi)


class Chain(NamedTuple):
    """A configuration's geometry in the base frame, as scalars: joint axes and points on them, and the tip's pose."""

    axes: tuple[Vector, ...]
    points: tuple[Vector, ...]
    R: Rotation
    t: Vector


def chain(robot: Robot, q: Float[Array, " n"]) -> Chain:
    """Axes, points and tip of one configuration."""
    R: Rotation = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    t: Vector = (0.0, 0.0, 0.0)
    axes, points = [], []
    for i, sliding in enumerate(robot.sliding):
        t = add(t, apply(R, _vector(robot.t_parent_joint[i])))
        R = product(R, _matrix(robot.R_parent_joint[i]))
        axis = _vector(robot.axis[i])
        axes.append(apply(R, axis))
        points.append(t)
        if sliding:
            t = add(t, scaled(axes[-1], q[i]))
        else:
            R = product(R, turn(axis, q[i]))
    t = add(t, apply(R, _vector(robot.t_last_tip)))
    return Chain(tuple(axes), tuple(points), product(R, _matrix(robot.R_last_tip)), t)


def forward_kinematics(robot: Robot, q: Float[Array, " n"]) -> Float[Array, "7"]:
    """``T_base_tip`` (wxyz_xyz, metres) of one configuration.

    >>> from jaxeval.robots import load_robot
    >>> ready = jnp.array([0, -jnp.pi / 4, 0, -3 * jnp.pi / 4, 0, jnp.pi / 2, jnp.pi / 4])
    >>> forward_kinematics(load_robot("panda"), ready)[4:].round(3) + 0.0
    Array([0.307, 0.   , 0.487], dtype=float32)
    """
    _, _, R, t = chain(robot, q)
    return se3.from_matrix(jnp.stack([jnp.stack(row) for row in R]), jnp.stack(t))


def jacobian(robot: Robot, q: Float[Array, " n"]) -> Float[Array, "6 n"]:
    """Geometric Jacobian at the tip, in the base frame: rows are linear velocity (m/s), then angular (rad/s).

    Oracle: Pinocchio's frame Jacobian, LOCAL_WORLD_ALIGNED.
    """
    columns = columns_of(robot, chain(robot, q))
    return jnp.stack([jnp.stack([jnp.asarray(column[k], q.dtype) for column in columns]) for k in range(6)])


def columns_of(robot: Robot, at: Chain) -> list[tuple[Any, ...]]:
    """Columns of the Jacobian as six scalars each."""
    out = []
    for sliding, axis, point in zip(robot.sliding, at.axes, at.points, strict=True):
        out.append((*axis, 0.0, 0.0, 0.0) if sliding else (*cross(axis, subtract(at.t, point)), *axis))
    return out


# ------------------------------------------------------------------------------------- three-vectors as scalars


def add(a: Vector, b: Vector) -> Vector:
    """a + b."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def subtract(a: Vector, b: Vector) -> Vector:
    """a - b."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def scaled(a: Vector, s: Any) -> Vector:
    """s a."""
    return a[0] * s, a[1] * s, a[2] * s


def cross(a: Vector, b: Vector) -> Vector:
    """a x b."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def apply(R: Rotation, v: Vector) -> Vector:
    """R v."""
    x, y, z = (row[0] * v[0] + row[1] * v[1] + row[2] * v[2] for row in R)
    return x, y, z


def product(A: Rotation, B: Rotation) -> Rotation:
    """A B."""
    columns = [apply(A, (B[0][j], B[1][j], B[2][j])) for j in range(3)]
    x, y, z = ((columns[0][i], columns[1][i], columns[2][i]) for i in range(3))
    return x, y, z


def turn(axis: Vector, angle: Any) -> Rotation:
    """Rotation by ``angle`` about a unit axis (Rodrigues)."""
    x, y, z = axis
    s, c = jnp.sin(angle), jnp.cos(angle)
    k = 1 - c
    return (
        (c + x * x * k, x * y * k - z * s, x * z * k + y * s),
        (x * y * k + z * s, c + y * y * k, y * z * k - x * s),
        (x * z * k - y * s, y * z * k + x * s, c + z * z * k),
    )


def _vector(v: Float[Array, "3"]) -> Vector:
    return v[0], v[1], v[2]


def _matrix(R: Float[Array, "3 3"]) -> Rotation:
    return _vector(R[0]), _vector(R[1]), _vector(R[2])
