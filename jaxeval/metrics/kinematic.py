"""How well an arm could move where it was: manipulability, nearness to singularities and limits, use of its speed.

Written for one configuration: a Jacobian ``[6, n]`` whose rows are linear velocity (m/s), then angular (rad/s), in any
frame. Components lead, so that the same functions take many configurations at once as ``[6, n, ...]``.
"""

from __future__ import annotations

from dataclasses import field

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval.linalg import divisor, singular_values, volume
from jaxeval.metrics.status import Status
from jaxeval.types import STATIC, a_number, pytree

FLOOR = 0.01
"""Manipulability below this costs no more: 1 / 0.01 is the cost of a configuration that cannot be reached."""
UNREACHED_COST = 100.0


@pytree
class Manipulability:
    """One configuration's freedom to move. Higher is better; 0 at a singularity, never NaN.

    ``full`` depends on the length that turns radians into metres: compare it only at the same ``torque_length_m``.
    """

    translational: Float[Array, " ..."]  # m^3/rad^3 for three hinges that matter; no length to choose
    full: Float[Array, " ..."]
    sigma_min: Float[Array, " ..."]  # least singular value of the full Jacobian
    inverse_condition: Float[Array, " ..."]  # sigma_min / sigma_max in [0, 1]: 1 over the condition number


def manipulability(J: Float[Array, "6 n ..."], *, torque_length_m: float | Float[Array, ""] = 1.0) -> Manipulability:
    """Yoshikawa's index, translational and full, with the least singular value and the condition (higher is better).

    ``w = sqrt(det(J J^T))``, the volume of the velocity ellipsoid: the product of J's singular values, which is also
    what an arm with fewer joints than rows gets, whose determinant would be 0. The angular rows are first multiplied by
    ``torque_length_m`` (metres a radian). At a singular configuration w is 0 and its gradient finite.

    Source: Yoshikawa 1985, IJRR 4(2); "Maruyama's index" in KineBench is the same. Oracle: Pinocchio's Jacobian with
    numpy's determinant.
    """
    scaled = jnp.concatenate([J[:3], torque_length_m * J[3:]])
    sigma = singular_values(scaled)
    return Manipulability(
        translational=volume(J[:3]),
        full=volume(scaled),
        sigma_min=sigma[-1],
        inverse_condition=sigma[-1] / divisor(sigma[0]),
    )


# ------------------------------------------------------------------------------------------------- limits and speed


def joint_limit_margin(
    q: Float[Array, "n ..."], lower: Float[Array, "n ..."], upper: Float[Array, "n ..."]
) -> Float[Array, " ..."]:
    """Distance of the worst joint to its nearest limit, over half its range: 0 at a limit, 1 with all mid-range.

    Higher is better; negative outside. Joints without limits (infinite) do not count.
    """
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
    low, high = jnp.where(bounded, lower, -1.0), jnp.where(bounded, upper, 1.0)
    return jnp.min(jnp.where(bounded, jnp.minimum(q - low, high - q) / ((high - low) / 2), 1.0), axis=0)


def joint_velocity_utilisation(
    q: Float[Array, "T n"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    velocity_limit: Float[Array, " n"],
    *,
    since_s: float | Float[Array, ""] = 0.0,
) -> Float[Array, ""]:
    """``U = max_t max_j |dq_j/dt| / limit_j`` from ``since_s`` on: the most of its speed a joint used (lower: spare).

    Speeds are differences of successive valid frames over their own times. NaN where no joint has a limit or no two
    frames count: nothing to say. Source: ParcelStow, Eq. 8, whose ``since_s`` is the start of the lift.
    """
    step = time_s[1:] - time_s[:-1]
    counts = valid[1:] & valid[:-1] & (step > 0) & (time_s[:-1] >= since_s)
    speed = jnp.abs(q[1:] - q[:-1]) / jnp.where(counts, step, 1.0)[:, None]
    limited = jnp.isfinite(velocity_limit) & (velocity_limit > 0)
    used = jnp.where(counts[:, None] & limited[None], speed / jnp.where(limited, velocity_limit, 1.0)[None], -jnp.inf)
    most = jnp.max(used)
    return jnp.where(jnp.isfinite(most), most, jnp.nan)


# ------------------------------------------------------------------------------------------------ the frozen-pool score


@pytree
class CostPool:
    """Percentiles of the cost over a frozen pool of configurations: what a score is relative to.

    ``name`` carries the version; a pool is never changed, only followed by another.
    """

    p10: Float[Array, ""]
    p90: Float[Array, ""]
    name: str = field(default="", metadata=STATIC)


@pytree
class KinematicParams:
    """How the kinematic metrics are set. ``torque_length_m`` turns radians into metres in the full index."""

    torque_length_m: float | Float[Array, ""] = 1.0
    position_tolerance_m: float | Float[Array, ""] = 0.010
    rotation_tolerance_rad: float | Float[Array, ""] = float(np.radians(5.0))

    def check(self) -> KinematicParams:
        """Itself, or ValueError in one sentence. Call it on the host, before jit."""
        for name in ("torque_length_m", "position_tolerance_m", "rotation_tolerance_rad"):
            if not (value := a_number(f"kinematic.{name}", getattr(self, name))) > 0:
                raise ValueError(f"kinematic.{name} is {value}; expected a positive number")
        return self


@pytree
class KinematicQuality:
    """Kinematics of one execution. ``score`` and ``cost``: lower is better. Numbers are NaN where ``status`` is not 0.

    ``w``, ``w_full``, ``sigma_min`` are per frame, 0 where the frame does not count.
    """

    score: Float[Array, ""]
    cost: Float[Array, ""]
    coverage: Float[Array, ""]  # share of valid frames whose pose the arm reaches
    min_w: Float[Array, ""]  # translational, over the frames reached
    mean_w: Float[Array, ""]
    min_w_full: Float[Array, ""]
    min_sigma: Float[Array, ""]
    min_inverse_condition: Float[Array, ""]
    min_limit_margin: Float[Array, ""]
    velocity_utilisation: Float[Array, ""]
    w: Float[Array, " T"]
    sigma_min: Float[Array, " T"]
    status: Int[Array, ""]


def manipulability_cost(w: Float[Array, " ..."], ok: Bool[Array, " ..."]) -> Float[Array, " ..."]:
    """``c = 1 / (max(w, 0.01) + 1e-6)``, and 100 where the pose is not reached (lower is better).

    ``w`` is the translational index. Our reading of KineBench, whose cost is PyRoKi's manipulability residual.
    """
    return jnp.where(ok, 1.0 / (jnp.maximum(w, FLOOR) + 1e-6), UNREACHED_COST)


def pool_score(cost: Float[Array, " ..."], pool: CostPool) -> Float[Array, " ..."]:
    """``s = clip((C - P10) / (P90 - P10), 0, 1)`` of mean costs against a frozen pool (lower is better)."""
    return jnp.clip((cost - pool.p10) / (pool.p90 - pool.p10), 0.0, 1.0)


def kinematic_quality(
    J: Float[Array, "6 n T"],
    q: Float[Array, "T n"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    reached: Bool[Array, " T"],
    *,
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    velocity_limit: Float[Array, " n"],
    pool: CostPool,
    torque_length_m: float | Float[Array, ""] = 1.0,
) -> KinematicQuality:
    """Manipulability, limits and speed along one execution, from its joints and their Jacobians.

    ``reached`` marks frames whose pose the joints reach (all, where joints were recorded). The mean cost is over valid
    frames; read the score beside ``cost``, ``coverage`` and ``min_w``, since a mean hides one bad frame. Time does not
    enter but through the joint speeds; the frame of the Jacobian does not matter.
    """
    counts = valid & reached
    m = manipulability(J, torque_length_m=torque_length_m)
    n, n_reached = jnp.sum(valid), jnp.sum(counts)
    cost = jnp.sum(jnp.where(valid, manipulability_cost(m.translational, reached), 0.0)) / jnp.maximum(n, 1)
    margin = joint_limit_margin(q.T, lower[:, None], upper[:, None])
    some, any_reached = n > 0, n_reached > 0

    def least(x: Float[Array, " T"]) -> Float[Array, ""]:
        return jnp.where(any_reached, jnp.min(jnp.where(counts, x, jnp.inf)), jnp.nan)

    mean_w = jnp.sum(jnp.where(counts, m.translational, 0.0)) / jnp.maximum(n_reached, 1)
    return KinematicQuality(
        score=jnp.where(some, pool_score(cost, pool), jnp.nan),
        cost=jnp.where(some, cost, jnp.nan),
        coverage=jnp.where(some, n_reached / jnp.maximum(n, 1), jnp.nan),
        min_w=least(m.translational),
        mean_w=jnp.where(any_reached, mean_w, jnp.nan),
        min_w_full=least(m.full),
        min_sigma=least(m.sigma_min),
        min_inverse_condition=least(m.inverse_condition),
        min_limit_margin=least(margin),
        velocity_utilisation=joint_velocity_utilisation(q, time_s, counts, velocity_limit),
        w=jnp.where(counts, m.translational, 0.0),
        sigma_min=jnp.where(counts, m.sigma_min, 0.0),
        status=jnp.where(some, Status.OK, Status.NO_FRAMES),
    )
