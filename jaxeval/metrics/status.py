"""Why a metric has a number or has none: one enumeration for all metrics of the package.

Traced code returns a member's code beside the number, `scores.parquet` holds its sentence. What estimates say of
themselves is `jaxeval.stats.estimate.Status`.

>>> Status(int(Status.NO_MOTION)).sentence
'no motion'
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Self


class Sentences(IntEnum):
    """Codes that stand for a sentence each, ``sentence``; members are ``NAME = code, sentence``."""

    sentence: str

    def __new__(cls, code: int, sentence: str) -> Self:
        """Member of that code."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member


class Status(Sentences):
    """OK, or why there is no number. A member stands for one sentence, whoever says it."""

    OK = 0, "ok"
    # geometric
    FEW_FRAMES = 1, "fewer than two valid frames"
    NOTHING_PINNED = 2, "no pinned direction in any frame: nothing to judge"
    TRACKING = 3, "insufficient tracking"
    # smoothness
    NO_MOTION = 11, "no motion"
    TOO_SHORT = 12, "too short"
    GAPS = 13, "has gaps"
    LOW_RATE = 14, "fps too low"
    TIME = 15, "time stamps repeat or run backward"
    BAD_FRAME = 16, "bad input: a valid frame is not finite, or a speed is negative"
    WINDOW = 17, "more frames in the jerk window than jerk_half_n allows"
    # kinematic
    NO_FRAMES = 21, "no valid frame"
    NO_JOINTS = 22, "no joint angles, and no pose of the tip to find them from"
    # tracking
    NO_COMMON_FRAMES = 31, "no frame with both an estimate and a true pose"
    BAD_POSE = 32, "bad input: a valid pose is not finite"
    # stages
    BAD_SIGNAL = 41, "a signal is not finite, or a rotation is not a unit quaternion"
    NO_STEPS = 42, "no valid step"
    NOT_HELD = 43, "the object was never held before the insertion"
    UNSEEN = 44, "what a sub-task ends by was never recorded: the pose of a body, a joint or the gripper's width"
    # motion of the hand
    NO_GRASP = 51, "the object was never acquired before the release"
    NO_LIFT = 52, "no valid step from the lift on"
    NO_LIMIT = 53, "no joint has a finite velocity limit"
    LONE_STEPS = 54, "no two successive valid steps from the lift on"
    # grasp: CLOSURE, NO_CLOSURE and DEGENERATE come with numbers
    CLOSURE = 61, "closure"
    NO_CLOSURE = 62, "no closure"
    DEGENERATE = 63, "degenerate: the wrenches span fewer than six directions, see rank"
    BAD_CONTACT = 64, "bad input: a valid contact is not finite, has no unit normal or no friction, or none is valid"
    NO_MOMENT = 65, "the episode did not come so far"
    NO_CONTACT = 66, "no finger touched"


SENTENCES: Mapping[int, str] = {int(status): status.sentence for status in Status}
"""By code."""
