"""Joints of the embodiments that act in our tasks on MuJoCo, and how fast they may turn, for scoring a recording.

An embodiment is a robot as a task uses it, its hand included: ``jaxeval/sim/mujoco/embodiments/NAME.yaml`` describes
those of the package. What follows repeats their ``velocity_limits``, so that no simulator is needed to score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxeval.types import InputError


@dataclass(frozen=True)
class Joints:
    """Velocity limits (rad/s, m/s for a slide) of every joint: those of the arm, waist included, and of the hand."""

    arm: Mapping[str, float]
    hand: Mapping[str, float]

    @property
    def names(self) -> frozenset[str]:
        """Of all joints."""
        return frozenset((*self.arm, *self.hand))


_FINGERS = ("thumb_cmc_roll", "thumb_cmc_pitch", "thumb_dip", "index_mcp_pitch", "index_dip", "middle_mcp_pitch",
            "middle_dip", "ring_mcp_pitch", "ring_dip", "pinky_mcp_pitch", "pinky_dip")  # fmt: skip
EMBODIMENTS: Mapping[str, Joints] = {
    "g1": Joints(
        arm={
            "waist_yaw_joint": 32.0,
            "waist_roll_joint": 30.0,
            "waist_pitch_joint": 30.0,
            "right_shoulder_pitch_joint": 37.0,
            "right_shoulder_roll_joint": 37.0,
            "right_shoulder_yaw_joint": 37.0,
            "right_elbow_joint": 37.0,
            "right_wrist_roll_joint": 37.0,
            "right_wrist_pitch_joint": 22.0,
            "right_wrist_yaw_joint": 22.0,
        },
        hand=dict.fromkeys(_FINGERS, 3.0),
    ),
    "panda": Joints(
        arm={f"joint{k}": 2.175 if k < 5 else 2.61 for k in range(1, 8)},
        hand={"left_jaw": 0.2, "right_jaw": 0.2},
    ),
}


def embodiment_with(joint_names: Sequence[str]) -> str | None:
    """Name of the embodiment whose joints these are, None where they are those of none."""
    return next((name for name, joints in EMBODIMENTS.items() if joints.names == set(joint_names)), None)


def arm_velocity_limits(name: str | Path) -> dict[str, float]:
    """Velocity limit of the arm's joints of an embodiment, by name or by its description (a path ending in .yaml).

    >>> arm_velocity_limits("panda")["joint5"]
    2.61
    """
    if str(name).endswith(".yaml"):
        return _described(Path(name))
    if name not in EMBODIMENTS:
        raise InputError(f"embodiment '{name}': there is none; expected one of {', '.join(EMBODIMENTS)}; correct it")
    return dict(EMBODIMENTS[str(name)].arm)


def _described(path: Path) -> dict[str, float]:
    import yaml

    try:
        described: Any = yaml.safe_load(path.read_text("utf-8"))
        arm = [a["joint"] for a in described["actuators"] if a["part"] == "arm"]
        return {joint: float(described["velocity_limits"][joint]) for joint in arm}
    except (yaml.YAMLError, UnicodeDecodeError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: no velocity limits of the arm can be read ({' '.join(str(error).split())}); expected the "
            "description of an embodiment with `actuators` and `velocity_limits`; correct the file"
        ) from error
