"""The relative-motion handoff: a policy acquires the object, then one shared controller carries it as the expert did.

It asks what an acquisition is worth: the hand keeps the shape and the place that the policy gave it, whatever the
policy, and moves on as the expert's does. Source: ParcelStow, section 4.3.2, Eq. 9 and 10.

What the paper leaves open is read as follows:

- the handoff is the first step of a phase, LIFT: "each policy executes the acquisition phases on its own". With the
  phase after it, every acquisition that its predicate counts (a rise of 20 mm) is over; ``at`` of a controller says;
- the expert's motion is that of the episode with the same start and speed, and is the one that it commanded. Commanding
  the measured one lets the drives lag twice; ``measured_motion`` gives that reading;
- the hand shape is the commanded one: a hand commanded to where its fingers are holds nothing. It opens during RELEASE
  as the expert's does, eased by the same cosine;
- the arm's commands keep the distance that they had from the measured joints at the handoff, which is what the drives
  need to hold the hand where it is. Nothing is integrated afterwards: the expert's own corrections are in its commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jaxeval.policies.policy import Act, Observation, Policy
from jaxeval.policies.scripted.arm import rigid, row
from jaxeval.policies.scripted.expert import Chain, eased
from jaxeval.types import InputError


def relative_hand_motion(T_world_hand: Float[np.ndarray, "S 7"]) -> Float[np.ndarray, "S 7"]:
    """``T_world_hand(0)^-1 T_world_hand(s)``: the motion in the hand's own frame at the first row (Eq. 9)."""
    path = rigid(T_world_hand)
    return row(path[0].inv() * path)


def commanded_hand(
    T_world_hand: Float[np.ndarray, "7"], relative: Float[np.ndarray, "S 7"]
) -> Float[np.ndarray, "S 7"]:
    """``T_world_hand relative(s)``: a relative motion begun at another hand pose (Eq. 10).

    A hand that is elsewhere by a rigid motion of the world is commanded along the path that this motion moves too.
    """
    return row(rigid(T_world_hand) * rigid(relative))


class ExpertMotion(NamedTuple):
    """An expert's arm from the handoff on, a row a control step.

    ``phase`` is an index, ``joints`` are radians. The hand's path is that of ``joints`` by forward kinematics; what it
    leaves free (the elbow) goes as theirs does.
    """

    phase: Int[np.ndarray, " S"]
    joints: Float[np.ndarray, "S n"]


@dataclass(frozen=True)
class SharedController:
    """What takes over from any policy, for one task and embodiment; ``Task.handoff_controller`` makes it.

    ``chain`` moves the joints named ``arm``. ``at`` is the phase (index) whose first step is the handoff, ``release``
    the one during which the hand opens to the targets ``opened``. ``targets(action)`` are the joints that an action
    commands, the arm's and the hand's; ``action`` is its inverse. A recorded episode of the expert that ends before the
    handoff gives no motion: InputError.
    """

    chain: Chain
    arm: tuple[str, ...]
    at: int
    release: int
    opened: Float[np.ndarray, " h"]
    targets: Callable[[Float[np.ndarray, "*T A"]], tuple[Float[np.ndarray, "*T n"], Float[np.ndarray, "*T h"]]]
    action: Callable[[Float[np.ndarray, " n"], Float[np.ndarray, " h"]], Float[np.ndarray, " A"]]

    def commanded_motion(self, phase: Int[np.ndarray, " T"], actions: Float[np.ndarray, "T A"]) -> ExpertMotion:
        """Of a recorded episode of the expert, row t of ``actions`` being what led to row t: where its arm was sent."""
        first = self._handoff_row(phase)
        return ExpertMotion(phase[first:-1], self.targets(actions[first + 1 :])[0])

    def measured_motion(self, phase: Int[np.ndarray, " T"], joints: Float[np.ndarray, "T n"]) -> ExpertMotion:
        """Of a recorded episode of the expert: where its arm (``joints``, in the order of ``arm``) came to be."""
        first = self._handoff_row(phase)
        return ExpertMotion(phase[first:], joints[first:])

    def _handoff_row(self, phase: Int[np.ndarray, " T"]) -> int:
        if phase[-1] < self.at:
            raise InputError(
                f"the expert's episode ends in phase {int(phase[-1])}; expected one that goes on past the handoff, "
                f"phase {self.at}; record it to its end"
            )
        return int(np.argmax(phase >= self.at))


class Before(NamedTuple):
    """Until the handoff: the policy's own state, and its last action (None before the first)."""

    own: Any
    action: Float[np.ndarray, " A"] | None


class After(NamedTuple):
    """From the handoff on: ``step`` control steps after it, all else as that moment had it."""

    step: int
    hand: Float[np.ndarray, "S 7"]  # T_world_hand to command, step by step
    joints: Float[np.ndarray, " n"]  # of the arm, measured
    ahead: Float[np.ndarray, " n"]  # how far the arm's commands were from those
    shape: Float[np.ndarray, " h"]  # hand targets, commanded


def handoff(policy: Policy, motion: ExpertMotion, controller: SharedController) -> Policy:
    """``policy`` until the handoff, then the controller along the expert's relative motion from where the hand is.

    The hand is commanded to ``T_world_hand(0) T_E(0)^-1 T_E(s)``, ``T_world_hand(0)`` measured at the handoff and
    ``T_E(s)`` the expert's; inverse kinematics stays near the arm's joints at the handoff plus the expert's motion of
    its own, so that no joint jumps. Where a pose is out of reach the hand goes as near as it can.

    Raises (when it acts):
        InputError: the expert's phases are not those of the episode: it was recorded at another speed.
    """
    c = controller
    relative = relative_hand_motion(np.array([c.chain.pose(q) for q in motion.joints]))

    def init(seen: Observation, key: Array) -> Before | After:
        return Before(policy.init(seen, key), None)

    def take_over(action: Float[np.ndarray, " A"] | None, seen: Observation) -> After:
        if action is None:
            raise InputError(f"the handoff, phase {c.at}, is where the episode starts; hand over in a later phase")
        measured = np.array([seen.joints[seen.joint_names.index(j)] for j in c.arm])
        joints, shape = c.targets(action)
        return After(0, commanded_hand(seen.poses["tcp"], relative), measured, joints - measured, shape)

    def act(state: Before | After, seen: Observation) -> Act:
        phase, fraction = int(seen.facts["phase"]), float(seen.facts["fraction"])
        if isinstance(state, Before):
            if phase < c.at:
                own = policy.act(state.own, seen)
                return own._replace(state=Before(own.state, own.action), info=own.info._replace(done=False))
            state = take_over(state.action, seen)
        s = state.step
        if s >= len(motion.phase) or motion.phase[s] != phase:
            now = f"phase {int(motion.phase[s])}" if s < len(motion.phase) else "over"
            raise InputError(
                f"{s} steps after the handoff the episode is in phase {phase} and the expert's motion in {now}; "
                "record the expert at the speed of the episode"
            )
        rest = state.joints + motion.joints[s] - motion.joints[0]
        joints, _, _ = c.chain.solve(state.hand[s], rest, rest=rest)
        open_ = eased(fraction) if phase == c.release else float(phase > c.release)
        shape = state.shape + open_ * (c.opened - state.shape)
        return Act(c.action(joints + state.ahead, shape), state._replace(step=s + 1))

    return Policy(f"{policy.name}, handed over", init, act, host=True, traceable=False)
