"""The rollout verb as far as it needs no simulator: which episodes it would run, its table, its refusals."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxeval.cli import main
from jaxeval.run.rollout import Rolled, jobs_of, table
from jaxeval.sim.parts import Outcome
from jaxeval.types import InputError


def test_every_key_once_for_every_angle_and_fault() -> None:
    jobs = jobs_of("place_sphere", episodes=2, first=7, tilt_deg=[0, 25], fault=["bin_dragged"], pictures_n=3)
    assert [(j.episode, j.group, j.tag, j.loose) for j in jobs] == [
        (7, "tilt 0 deg", "", ()),
        (8, "tilt 0 deg", "", ()),
        (7, "tilt 25 deg", "/tilt_deg=25", ()),
        (8, "tilt 25 deg", "/tilt_deg=25", ()),
        (7, "fault bin_dragged", "/fault=bin_dragged", ("bin",)),
        (8, "fault bin_dragged", "/fault=bin_dragged", ("bin",)),
    ]
    assert sum(j.pictures for j in jobs) == 3
    assert [(j.episode, j.group) for j in jobs_of("stack_cube", episodes=1)] == [(0, "demonstrations")]
    assert [j.group for j in jobs_of("stack_cube", episodes=1, policy="random")] == ["random"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"episodes": 0}, "episodes is 0; expected a whole number from 1 on"),
        ({"episodes": "x"}, "episodes is x"),
        ({"first": -1}, "first is -1"),
        ({"tilt_deg": ["a"]}, "tilt_deg holds a; expected up to 180 degrees"),
        ({"tilt_deg": [5, 5]}, "expected each once"),
        ({"fault": ["bin_dragged"]}, "not for task 'stack_cube'; expected one of place_sphere"),
        ({"policy": "random", "tilt_deg": [5]}, "has neither tilt_deg nor fault"),
    ],
)
def test_requests_that_make_no_sense(told: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        jobs_of("stack_cube", **{"episodes": 1, **told})


def test_the_table_counts_each_group_and_tells_each_failure() -> None:
    outcomes = (
        Outcome("S/seed=0", True, 100, 2.0, "", "tilt 0 deg"),
        Outcome("S/seed=1", True, 200, 4.0, "", "tilt 0 deg"),
        Outcome("S/seed=0/tilt_deg=25", False, 60, float("nan"), "waypoint 'carry': too far", "tilt 25 deg"),
        Outcome("S/seed=1/tilt_deg=25", False, 80, float("nan"), "", "tilt 25 deg"),
    )
    speeds = {"episode_id": np.array([o.episode_id for o in outcomes]), "speed": np.ones(4)}
    rolled = Rolled("stack_cube", SimpleNamespace(column=speeds.get), outcomes)  # type: ignore[arg-type]
    name, head, clean, tilted, *failures = table(rolled).splitlines()
    assert name == "stack_cube"
    assert head.split() == [
        "group",
        "speed",
        "told",
        "episodes",
        "succeeded",
        "95",
        "%",
        "interval",
        "steps",
        "s",
        "causes",
    ]
    assert clean.split() == ["tilt", "0", "deg", "1", "-", "2", "2", "[0.342,", "1.000]", "149.0", "3.00", "-"]
    assert tilted.split()[:10] == ["tilt", "25", "deg", "1", "-", "2", "0", "[0.000,", "0.658]", "69.0"]
    assert tilted.endswith("-  1 waypoint 'carry': too far; 1 it ended without success")
    assert failures == [
        "  S/seed=0/tilt_deg=25: waypoint 'carry': too far",
        "  S/seed=1/tilt_deg=25: it ended without success",
    ]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], "task is not given; expected task=..., one of close_drawer, "),
        (["task=stack_cube", "robot=r2d2"], "robot 'r2d2': expected one of panda"),
        (
            ["task=stack_cube", "policy=act"],
            "policy 'act': expected one of oracle, random, or package.module:factory of your own",
        ),
        (
            ["task=stack_cube", "batch_n=4"],
            "batch_n is 4 on the CPU backend; expected 1; run several",
        ),
        (["task=stack_cube"], "mani_skill: not installed, expected with ManiSkill 3; install them with `pip install"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    overrides: list[str],
    expected: str,
) -> None:
    monkeypatch.setattr(
        "jaxeval.sim.maniskill.environment.find_spec", lambda name: None if name == "mani_skill" else object()
    )
    assert main(["rollout", f"out={tmp_path}/deep/out", *overrides]) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(told) == 1 and told[0].startswith(f"jaxeval rollout: {expected}")
    assert not list(tmp_path.rglob("*.parts")) and not list(tmp_path.rglob("out"))
