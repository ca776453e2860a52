"""A robot arm as arrays: the chain of joints from a base link to a tip, its poses and its Jacobian.

Each joint's frame is turned so that the joint's axis is its z axis: a hinge then mixes the x and y columns of the
rotation and nothing else. ``chain`` works on one configuration ``[n]`` and, with the components leading, on many at
once ``[n, ...]``: frames contiguous, which is what makes the solver fast on a CPU.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxeval import linalg, se3
from jaxeval.types import STATIC, pytree


@pytree
class Robot:
    """Serial chain of n joints from ``base_link`` to ``tip_link``; fixed joints between are part of the origins.

    Angles in radians, sliding joints in metres. A continuous joint has infinite limits. ``velocity_limit`` is NaN where
    the model's source does not state one.
    """

    R_parent_joint: Float[Array, "n 3 3"]  # of each joint's frame (its z the axis) in the one before, at zero
    t_parent_joint: Float[Array, "n 3"]
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

    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper) with a full turn, -pi to pi, for continuous joints: what to draw configurations from."""
        lower, upper = np.asarray(self.lower, float), np.asarray(self.upper, float)
        return np.where(np.isfinite(lower), lower, -np.pi), np.where(np.isfinite(upper), upper, np.pi)


class Frame(NamedTuple):
    """A frame in the base frame: its axes (the columns of the rotation) and its origin, [3, ...] each."""

    x: Array
    y: Array
    z: Array
    t: Array


class Chain(NamedTuple):
    """Geometry of configurations, in the base frame: the tip, the joints' axes and points on them [n, 3, ...]."""

    tip: Frame
    axes: Array
    points: Array


def _moved(f: Frame, R: Array, t: Array) -> Frame:
    """The frame that stands at (R, t) in frame f."""
    x, y, z = (f.x * R[0, j] + f.y * R[1, j] + f.z * R[2, j] for j in range(3))
    return Frame(x, y, z, f.t + f.x * t[0] + f.y * t[1] + f.z * t[2])


def chain(robot: Robot, q: Float[Array, "n ..."]) -> Chain:
    """Tip, axes and points of a configuration [n] or of many [n, ...]."""
    zero = jnp.zeros((3, *q.shape[1:]), q.dtype)
    base = Frame(zero.at[0].set(1), zero.at[1].set(1), zero.at[2].set(1), zero)

    def joint(f: Frame, at: tuple[Array, Array, Array, Array]) -> tuple[Frame, tuple[Array, Array]]:
        R, t, sliding, q_i = at
        f = _moved(f, R, t)
        angle, way = jnp.where(sliding, 0.0, q_i)[None], jnp.where(sliding, q_i, 0.0)[None]
        c, s = jnp.cos(angle), jnp.sin(angle)
        return Frame(c * f.x + s * f.y, c * f.y - s * f.x, f.z, f.t + way * f.z), (f.z, f.t)

    R, t, R_tip, t_tip = (
        jnp.asarray(a, q.dtype)
        for a in (robot.R_parent_joint, robot.t_parent_joint, robot.R_last_tip, robot.t_last_tip)
    )
    last, (axes, points) = jax.lax.scan(joint, base, (R, t, jnp.array(robot.sliding), q))
    return Chain(_moved(last, R_tip, t_tip), axes, points)


def forward_kinematics(robot: Robot, q: Float[Array, " n"]) -> Float[Array, "7"]:
    """``T_base_tip`` (wxyz_xyz, metres) of one configuration.

    >>> from jaxeval.robots import load_robot
    >>> ready = jnp.array([0, -jnp.pi / 4, 0, -3 * jnp.pi / 4, 0, jnp.pi / 2, jnp.pi / 4])
    >>> forward_kinematics(load_robot("panda"), ready)[4:].tolist()  # doctest: +ELLIPSIS
    [0.3068..., ..., 0.4868...]
    """
    tip = chain(robot, q).tip
    return se3.from_matrix(jnp.stack([tip.x, tip.y, tip.z], axis=1), tip.t)


def jacobian(robot: Robot, q: Float[Array, " n"]) -> Float[Array, "6 n"]:
    """Geometric Jacobian at the tip, in the base frame: rows are linear velocity (m/s), then angular (rad/s).

    Oracle: Pinocchio's frame Jacobian, LOCAL_WORLD_ALIGNED.
    """
    return jacobian_of(robot, chain(robot, q))


def jacobian_of(robot: Robot, at: Chain) -> Float[Array, "6 n ..."]:
    """Jacobian of a chain: a hinge moves the tip along ``axis x (tip - point)``, a slide along its axis."""
    axes, arms = jnp.moveaxis(at.axes, 0, 1), jnp.moveaxis(at.tip.t[None] - at.points, 0, 1)
    sliding = jnp.array(robot.sliding).reshape(1, -1, *(1,) * (axes.ndim - 2))
    linear = jnp.where(sliding, axes, cross(axes, arms))
    return jnp.concatenate([linear, jnp.where(sliding, 0.0, axes)])


def cross(a: Float[Array, "3 ..."], b: Float[Array, "3 ..."]) -> Float[Array, "3 ..."]:
    """a x b along the leading axis."""
    return jnp.stack(linalg.cross(a, b))
