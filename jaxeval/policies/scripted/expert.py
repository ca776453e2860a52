"""The scripted expert: waypoints of the hand, turned into joint knots before it moves, followed phase by phase.

Nothing in it changes with the execution speed: the knots, the gains and the path are one for all speeds, and only the
schedule that it is run under says when. It sees the object once, at the first step; all else is dead reckoning.

Source: ParcelStow, section 4.1.4 and appendix B (damping .05, step .15 rad, integral .08 within .35). Ours: the path is
cut into several knots a phase, so that the hand goes straight; the null-space motion is exactly of the null space, so
that knots meet 1 mm and .3 degrees where the source accepts 4 mm and 2; the path begins at the object as seen.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int
from scipy.spatial.transform import RigidTransform

from jaxeval.policies.policy import Act, Info, Observation, Policy, numpy_generator
from jaxeval.policies.scripted.arm import rigid, row
from jaxeval.types import InputError

if TYPE_CHECKING:
    import mujoco

DAMPING = 0.05
"""Lambda of damped least squares."""
STEP_RAD = 0.15
"""Largest step of a joint in one iteration."""
TO_MIDDLE = 0.3
"""Gain of the pull to the middle of the joints' ranges, in the null space of the hand's pose."""
ITERATIONS, STILL_RAD = 100, 1e-4
"""At most so many; fewer once no joint moves more than that."""
TOLERATED_M, TOLERATED_RAD = 1e-3, np.radians(0.3)
SIGHT = 1
"""Stream of the episode's key that errors of sight come from; the start's is another."""
KI, CORRECTION_RAD = 0.08, 0.35
"""Integral correction a control step, and its bound."""


@dataclass(frozen=True)
class Leg:
    """One phase of a script.

    ``hand`` are the hand poses to pass one after the other (a RigidTransform of many), or a function that gives them
    from the object's pose at the first step; None stays. ``closed`` is how far the hand is closed at the phase's end,
    0 to 1. In a ``dwell`` the joints' error is integrated.
    """

    name: str
    hand: Callable[[RigidTransform], RigidTransform] | RigidTransform | None
    closed: float
    dwell: bool


class Chain:
    """Joints that move a site of a MuJoCo model, the other joints being where ``posture`` (qpos) has them."""

    def __init__(self, model: mujoco.MjModel, joints: Sequence[str], site: str, posture: Float[np.ndarray, " nq"]):
        import mujoco

        self.model, self.data = model, mujoco.MjData(model)
        self.site = model.site(site).id
        self.qpos = np.array([model.joint(j).qposadr[0] for j in joints])
        self.dofs = np.array([model.joint(j).dofadr[0] for j in joints])
        self.lower, self.upper = np.array([model.joint(j).range for j in joints]).T
        self.posture = np.array(posture)

    def solve(
        self,
        goal: Float[np.ndarray, "7"],
        start: Float[np.ndarray, " n"],
        *,
        rest: Float[np.ndarray, " n"] | None = None,
    ) -> tuple[np.ndarray, float, float]:
        """Joints near ``start`` that bring the site to ``goal`` (wxyz_xyz, world); how far off it is: metres, radians.

        ``dq = J' (J J' + lambda^2 I)^-1 e + (I - J+ J) g (rest - q)``, no joint faster than ``STEP_RAD``. What the goal
        leaves free is drawn to ``rest``, by default the middle of the ranges. A joint at a limit that would go beyond
        it stays there, and the step is that of the others; it is free again in the next iteration.
        """
        rest, q = (self.lower + self.upper) / 2 if rest is None else rest, np.array(start)
        for _ in range(ITERATIONS):
            J = self._jacobian(q)
            step = self._step(J, self._error(goal), TO_MIDDLE * (rest - q), q)
            q = np.clip(q + step, self.lower, self.upper)
            if np.abs(step).max() < STILL_RAD:
                break
        self._jacobian(q)
        error = self._error(goal)
        return q, float(np.linalg.norm(error[:3])), float(np.linalg.norm(error[3:]))

    def _step(
        self, J: Float[np.ndarray, "6 n"], error: Float[np.ndarray, "6"], drawn: Float[np.ndarray, " n"], q: np.ndarray
    ) -> Float[np.ndarray, " n"]:
        """One iteration's step; joints at a limit that it would push beyond are left out of it."""
        free = np.ones(len(q), bool)
        while True:
            U, s, Vt = np.linalg.svd(J[:, free], full_matrices=False)
            null = drawn[free]
            step = np.zeros(len(q))
            step[free] = Vt.T @ (s / (s * s + DAMPING**2) * (U.T @ error)) + null - Vt.T @ (Vt @ null)
            pushed = free & (((q <= self.lower) & (step < 0)) | ((q >= self.upper) & (step > 0)))
            if not pushed.any():
                return step * min(1.0, STEP_RAD / max(float(np.abs(step).max()), 1e-12))
            free &= ~pushed

    def pose(self, joints: Float[np.ndarray, " n"]) -> Float[np.ndarray, "7"]:
        """Of the site in the world (wxyz_xyz) with these joints."""
        import mujoco

        self._jacobian(joints)
        wxyz = np.zeros(4)
        mujoco.mju_mat2Quat(wxyz, self.data.site_xmat[self.site])
        return np.concatenate([wxyz, self.data.site_xpos[self.site]])

    def singular_values(self, joints: Float[np.ndarray, " n"]) -> Float[np.ndarray, "6"]:
        """Of the site's Jacobian (metres and radians as they are), greatest first."""
        return np.linalg.svd(self._jacobian(joints), compute_uv=False)

    def _jacobian(self, joints: Float[np.ndarray, " n"]) -> Float[np.ndarray, "6 n"]:
        """Of the site, in the world: linear velocity, then angular. Leaves the site's pose in ``data``."""
        import mujoco

        self.data.qpos[:] = self.posture
        self.data.qpos[self.qpos] = joints
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        J = np.zeros((2, 3, self.model.nv))
        mujoco.mj_jacSite(self.model, self.data, J[0], J[1], self.site)
        return J.reshape(6, -1)[:, self.dofs]

    def _error(self, goal: Float[np.ndarray, "7"]) -> Float[np.ndarray, "6"]:
        """From the site to ``goal``: translation and rotation vector, in the world."""
        import mujoco

        q, error = np.zeros(4), np.zeros(6)
        mujoco.mju_mat2Quat(q, self.data.site_xmat[self.site])
        mujoco.mju_negQuat(q, q)
        mujoco.mju_mulQuat(q, goal[:4], q)
        mujoco.mju_quat2Vel(error[3:], q, 1.0)
        error[:3] = goal[4:] - self.data.site_xpos[self.site]
        return error


def joint_knots(
    chain: Chain, legs: Sequence[Leg], T_world_object: RigidTransform, start: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "K n"], ...]:
    """Joint positions to pass in every leg, the first of each being where the leg before it ended.

    Raises:
        InputError: the arm cannot reach a waypoint to within ``TOLERATED_M`` and ``TOLERATED_RAD``.
    """
    knots, q = [], np.array(start)
    for leg in legs:
        rows = [q]
        for goal in () if leg.hand is None else leg.hand(T_world_object) if callable(leg.hand) else leg.hand:
            q, off_m, off_rad = chain.solve(row(goal), q)
            if off_m > TOLERATED_M or off_rad > TOLERATED_RAD:
                raise InputError(
                    f"{leg.name}: the arm comes within {1e3 * off_m:.1f} mm and {np.degrees(off_rad):.1f} deg of "
                    f"waypoint {len(rows)}; expected {1e3 * TOLERATED_M:g} mm and {np.degrees(TOLERATED_RAD):.1g} deg; "
                    "move the base"
                )
            rows.append(q)
        knots.append(np.array(rows))
    return tuple(knots)


class Script(NamedTuple):
    """What is followed, as arrays of one length for all legs; K knots a leg, those after the ``last`` repeat it.

    ``closed`` is how far the hand is closed before the first leg and at the end of each. NumPy or JAX.
    """

    knots: Float[Any, "P K n"]
    last: Int[Any, " P"]
    closed: Float[Any, " P+1"]
    dwell: Bool[Any, " P"]


class ExpertState(NamedTuple):
    """The script of an episode, and the integral correction so far."""

    script: Script
    correction: Float[Any, " n"]

    @property
    def knots(self) -> tuple[Float[np.ndarray, "K n"], ...]:
        """Of every leg, its own."""
        return tuple(knots[: last + 1] for knots, last in zip(self.script.knots, self.script.last, strict=True))


def script_of(knots: Sequence[Float[np.ndarray, "K n"]], legs: Sequence[Leg]) -> Script:
    """Legs and their knots, of any number each, as one script."""
    most = max(len(rows) for rows in knots)
    return Script(
        np.array([np.concatenate([rows, np.repeat(rows[-1:], most - len(rows), axis=0)]) for rows in knots]),
        np.array([len(rows) - 1 for rows in knots]),
        np.array([0.0, *(leg.closed for leg in legs)]),
        np.array([leg.dwell for leg in legs]),
    )


def eased(fraction: Any) -> Any:
    """Cosine easing, (1 - cos(pi f)) / 2: at rest at both ends. A number, or NumPy or JAX arrays."""
    xp = fraction.__array_namespace__() if hasattr(fraction, "__array_namespace__") else np
    return (1 - xp.cos(xp.pi * fraction)) / 2


def followed(state: ExpertState, phase: Any, fraction: Any, joints: Float[Any, " n"]) -> tuple[Any, Any, ExpertState]:
    """Commanded arm joints ``[n]``, how far the hand is closed, and the state after, at a moment of the schedule.

    ``reference = knots at the eased fraction; in a dwell correction += KI (reference - joints)``. Pure, of NumPy or of
    JAX arrays alike (no branch on a value), and of one episode.
    """
    script, correction = state
    xp = script.knots.__array_namespace__()
    share = eased(fraction)
    last = script.last[phase]
    at = share * last
    below = xp.minimum(xp.floor(at), xp.maximum(last - 1, 0)).astype(last.dtype)
    lower, upper = script.knots[phase, below], script.knots[phase, xp.minimum(below + 1, last)]
    reference = lower + (at - below) * (upper - lower)
    integrated = xp.clip(correction + KI * (reference - joints), -CORRECTION_RAD, CORRECTION_RAD)
    correction = xp.where(script.dwell[phase], integrated, correction)
    closed = script.closed[phase] + (script.closed[phase + 1] - script.closed[phase]) * share
    return reference + correction, closed, ExpertState(script, correction)


def expert(
    chain: Chain,
    legs: Sequence[Leg],
    *,
    thing: str,
    nominal: RigidTransform,
    park: Float[np.ndarray, " n"],
    seen_within_m: float = 0.0,
    arm: Sequence[str],
    action: Callable[[Float[Any, " n"], Any], Float[Any, " A"]],
) -> Policy:
    """The expert of a task with these legs; it reads ``phase`` (index) and ``fraction`` from the observation's facts.

    It plans on the host (`init`); `act` is pure, of NumPy or of JAX arrays.

    ``park`` are the joints of the ``arm`` where the first leg ends. Legs after the last that depends on the object are
    planned once, with the ``thing`` at its ``nominal`` pose. The object is seen off by up to ``seen_within_m`` in x
    and y (uniform, from the episode's key), as by a camera: with perfect sight all episodes of a speed end alike.
    ``action(joints, closed)`` is the environment's action for commanded arm joints and a hand closed that far, of NumPy
    or of JAX arrays.
    """
    planned = joint_knots(chain, legs, nominal, park)
    seen_n = 1 + max(i for i, leg in enumerate(legs) if callable(leg.hand))

    def plan(T_world_object: Float[np.ndarray, "7"], key: Array) -> ExpertState:
        off = numpy_generator(key, SIGHT).uniform(-seen_within_m, seen_within_m, 2)
        at = rigid(T_world_object + np.array([0, 0, 0, 0, *off, 0]))
        knots = joint_knots(chain, legs[:seen_n], at, park)
        return ExpertState(script_of(knots + planned[seen_n:], legs), np.zeros(len(park)))

    def init(seen: Observation, key: Array) -> ExpertState:
        return plan(np.asarray(seen.poses[thing], float), key)

    def act(state: ExpertState, seen: Observation) -> Act:
        phase = seen.facts["phase"].astype(int)
        joints = seen.joints[np.array([seen.joint_names.index(j) for j in arm])]
        commanded, closed, state = followed(state, phase, seen.facts["fraction"], joints)
        return Act(action(commanded, closed), state, Info(phase))

    return Policy("expert", init, act, host=True, labels=lambda _: [leg.name for leg in legs])
