"""Joints and velocity limits that scoring knows are those of the descriptions that the tasks on MuJoCo run with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jaxeval.robots import arm_velocity_limits, embodiment_with
from jaxeval.robots.embodiments import EMBODIMENTS
from jaxeval.types import InputError

DESCRIPTIONS = sorted((Path(__file__).parents[2] / "jaxeval" / "sim" / "mujoco" / "embodiments").glob("*.yaml"))


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=lambda p: p.stem)
def test_limits_are_those_of_the_description(path: Path) -> None:
    told, ours = yaml.safe_load(path.read_text()), EMBODIMENTS[path.stem]
    assert {**ours.arm, **ours.hand} == told["velocity_limits"]
    assert list(ours.arm) == [a["joint"] for a in told["actuators"] if a["part"] == "arm"]
    assert embodiment_with(tuple(told["velocity_limits"])) == path.stem
    assert embodiment_with(tuple(ours.arm)) is None  # without the hand it may be anybody's
    assert arm_velocity_limits(path) == arm_velocity_limits(path.stem) == dict(ours.arm)


def test_there_are_no_others_and_a_wrong_one_gets_a_sentence(tmp_path: Path) -> None:
    assert {p.stem for p in DESCRIPTIONS} == set(EMBODIMENTS)
    with pytest.raises(InputError, match="embodiment 'ur5e': there is none; expected one of g1, panda"):
        arm_velocity_limits("ur5e")
    (tmp_path / "mine.yaml").write_text("actuators: [{joint: a, part: arm}]\n")
    with pytest.raises(InputError, match=r"mine\.yaml: no velocity limits of the arm can be read"):
        arm_velocity_limits(tmp_path / "mine.yaml")
