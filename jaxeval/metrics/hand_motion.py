"""How the hand carried an object: motion of the object in the hand, use of the arm's speed, peak speeds of the hand.

Written for one episode with its mask; the caller vmaps. The steps that bound a quantity (acquisition, first step of a
phase) are those that ``stages.monitor`` found, -1 for never. NaN beside a status that says why (a Status).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxeval import se3
from jaxeval.linalg import safe_norm
from jaxeval.metrics.smoothness import angular_speed_of, speed_of
from jaxeval.metrics.status import Status


def relative_motion(
    T_world_hand: Float[Array, "T 7"], T_world_object: Float[Array, "T 7"], grasp: Int[Array, ""]
) -> tuple[Float[Array, " T"], Float[Array, " T"]]:
    """(metres, radians) that the object has moved in the hand since step ``grasp``, at every step; lower is better.

    ``Xi(t) = (T_hand_object(grasp))^-1 T_hand_object(t)``: the length of its translation and its angle. Unchanged when
    the world frame changes, or the hand's frame is another point of the same rigid hand.
    Source: ParcelStow, Eq. 11, and Eq. 12 before the maximum over time.
    """
    T_hand_object = jax.vmap(se3.relative_pose)(T_world_object, T_world_hand)
    at_grasp = T_hand_object[jnp.maximum(grasp, 0)]
    Xi = jax.vmap(lambda T: se3.log_decoupled(se3.relative_pose(T, at_grasp)))(T_hand_object)
    return safe_norm(Xi[:, :3]), safe_norm(Xi[:, 3:])


class HandMotion(NamedTuple):
    """Peaks of one episode, lower is gentler. A number is NaN exactly where the status after it is not 0."""

    slip_m: Float[Array, ""]  # d_p, Eq. 12
    slip_rad: Float[Array, ""]  # d_R, Eq. 12
    slip_status: Int[Array, ""]
    arm_utilisation: Float[Array, ""]  # U_arm, Eq. 8: 1 is a joint at its velocity limit
    arm_status: Int[Array, ""]
    speed_m_s: Float[Array, ""]
    turn_rad_s: Float[Array, ""]
    speed_status: Int[Array, ""]


def hand_motion(
    T_world_hand: Float[Array, "T 7"],
    T_world_object: Float[Array, "T 7"],
    arm_velocity: Float[Array, "T n"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    velocity_limit: Float[Array, " n"],
    *,
    acquired: Int[Array, ""],
    lift: Int[Array, ""],
    release: Int[Array, ""],
) -> HandMotion:
    """Peak motion of the object in the hand, utilisation of the arm's joint speeds, and peak speeds of the hand.

    ``d_p = max |trans Xi(t)|`` and ``d_R = max |log R_Xi(t)|`` over the steps from ``acquired`` to before ``release``
    (to the end if no step releases); ``U_arm = max_t max_j |dq_j/dt| / limit_j`` over ``t >= lift``. ``arm_velocity``
    and ``velocity_limit`` hold the arm's joints alone, rad/s; a joint without a finite positive limit does not count.

    Our reading: the paper's Eq. 12 has no end, but motion after the hand lets go is no slip; its peak hand speeds name
    no interval, and are taken, like U_arm, from the lift on, by central differences of the hand's pose.
    Source: ParcelStow, Eq. 8, 11, 12. Unchanged when the world frame changes.
    """
    step = jnp.arange(valid.shape[0], dtype=jnp.int32)
    identity = jnp.asarray(se3.IDENTITY, T_world_hand.dtype)[None]
    hand = jnp.where(valid[:, None], T_world_hand, identity)
    body = jnp.where(valid[:, None], T_world_object, identity)

    carried = valid & (acquired >= 0) & (step >= acquired) & ((release < 0) | (step < release))
    moved_m, turned_rad = relative_motion(hand, body, acquired)
    slip_status = jnp.where(jnp.any(carried), Status.OK, Status.NO_GRASP)

    lifting = valid & (lift >= 0) & (step >= lift)
    limited = jnp.isfinite(velocity_limit) & (velocity_limit > 0)
    used = jnp.abs(jnp.where(lifting[:, None], arm_velocity, 0.0)) / jnp.where(limited, velocity_limit, 1.0)[None]
    counts = lifting[:, None] & limited[None]
    no_limit = jnp.where(jnp.any(limited), Status.OK, Status.NO_LIMIT)
    arm_status = jnp.where(jnp.any(lifting), no_limit, Status.NO_LIFT)

    paired = valid[1:] & valid[:-1]  # a step has a speed if a neighbour is valid
    known = lifting & (jnp.pad(paired, (1, 0)) | jnp.pad(paired, (0, 1)))
    no_motion = jnp.where(jnp.any(known), Status.OK, Status.LONE_STEPS)
    speed_status = jnp.where(jnp.any(lifting), no_motion, Status.NO_LIFT)

    def peak(x: Float[Array, "..."], where: Bool[Array, "..."], status: Int[Array, ""]) -> Float[Array, ""]:
        return jnp.where(status == Status.OK, jnp.max(jnp.where(where, x, 0.0)), jnp.nan)

    return HandMotion(
        slip_m=peak(moved_m, carried, slip_status),
        slip_rad=peak(turned_rad, carried, slip_status),
        slip_status=slip_status,
        arm_utilisation=peak(used, counts, arm_status),
        arm_status=arm_status,
        speed_m_s=peak(speed_of(hand[:, 4:], time_s, valid), known, speed_status),
        turn_rad_s=peak(angular_speed_of(hand[:, :4], time_s, valid), known, speed_status),
        speed_status=speed_status,
    )
