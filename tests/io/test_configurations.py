"""Configurations of stores: what several agree in, and what several calls asked for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from jaxeval.io import InputError, open_source, write_store
from jaxeval.io.store import open_store
from jaxeval.io.store.configurations import add_configuration, agreed, gathered
from jaxeval.run.convert import convert
from jaxeval.types import Episode

ROLLOUT = {"task": "parcel_stow", "embodiment": "panda", "policy": "expert", "seed": 5}


def episode(name: str) -> Episode:
    poses = np.tile([1.0, 0, 0, 0, 0, 0, 0], (5, 2, 1))
    return Episode(
        poses=poses,
        time_s=np.arange(5) / 10,
        valid=np.ones((5, 2), bool),
        frame_valid=np.ones(5, bool),
        bodies=("parcel", "tcp"),
        episode_id=name,
        task="parcel_stow",
    )


def store(path: Path, **configuration: object) -> Path:
    write_store(path, [episode(path.name)], task="parcel_stow", configuration=configuration)
    return path


def test_what_agrees_is_kept_and_the_rest_is_named() -> None:
    one = {"speed": [1.0], "rollout": ROLLOUT, "layout": {"a": [0, 1]}}
    two = {"speed": [2.0], "rollout": ROLLOUT | {"policy": "random"}, "layout": {"a": [0, 1]}}
    kept, differ = agreed([(Path("a"), one), (Path("b"), two)])
    assert kept == {"layout": {"a": [0, 1]}, "rollout": {k: v for k, v in ROLLOUT.items() if k != "policy"}}
    assert [f.found for f in differ] == [
        "its configuration has [1.0] under speed, that of b [2.0]",
        'its configuration has "expert" under rollout.policy, that of b "random"',
    ]
    assert agreed([(Path("a"), one)]) == (one, [])
    assert agreed([(Path("a"), {}), (Path("b"), {"x": 1})])[1][0].found.startswith("its configuration has nothing")


def test_a_converted_rollout_says_still_how_it_was_run(tmp_path: Path) -> None:
    made = convert(open_source(store(tmp_path / "a", rollout=ROLLOUT, speed=[1.0])), tmp_path / "out")
    assert open_store(tmp_path / "out").meta["configuration"] == {"rollout": ROLLOUT, "speed": [1.0]}
    assert not made.actions
    b, tum = store(tmp_path / "b", rollout=ROLLOUT, speed=[2.0]), tmp_path / "c.tum"
    made = convert(open_source([tmp_path / "a", b]), tmp_path / "both")
    assert open_store(tmp_path / "both").meta["configuration"] == {"rollout": ROLLOUT}
    assert [f.code for f in made.actions] == ["configurations_differ"] and "speed" in made.actions[0].found
    tum.write_text("".join(f"{k / 10} {k / 100} 0 0 0 0 0 1\n" for k in range(9)))
    renamed = dataclasses.replace(episode("d"), bodies=("c", "tcp"))
    write_store(tmp_path / "d", [renamed], task="", configuration={"rollout": ROLLOUT})
    convert(open_source([tmp_path / "d", tum]), tmp_path / "mixed", bodies=["c"], task="parcel_stow")
    assert open_store(tmp_path / "mixed").meta["configuration"] == {}


def test_a_film_of_a_converted_rollout_is_not_refused_for_want_of_how_it_was_run(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    from jaxeval.run.video import story_of

    convert(open_source(store(tmp_path / "a", rollout=ROLLOUT)), tmp_path / "out")
    with pytest.raises(InputError, match="lacks joints or signals"):  # as these episodes do, before and after
        story_of(open_store(tmp_path / "out"))


@pytest.mark.parametrize(
    ("before", "now", "asked"),
    [
        ({"speed": [1.0]}, {"speed": [2.0, 1]}, {"speed": [1.0, 2.0]}),
        ({"speed": [1.0]}, {"speed": [1.0]}, {"speed": [1.0]}),
        ({"told_speed": [1.0]}, {}, {"told_speed": [1.0, None]}),
        ({}, {"fault": ["stall"]}, {"fault": [None, "stall"]}),
        ({"processes": 1}, {"processes": 2}, {"processes": [1, 2]}),
        ({"episodes": 10}, {"episodes": 20}, {"first": 0, "episodes": 20}),
        ({"episodes": 10, "first": 0}, {"episodes": 5, "first": 10}, {"first": 0, "episodes": 15}),
        ({"episodes": 20, "first": 0}, {"episodes": 5, "first": 2}, {"first": 0, "episodes": 20}),
        ({"episodes": 10, "first": 0}, {"episodes": 5, "first": 50}, {"first": [0, 50], "episodes": [10, 5]}),
        ({"episodes": [10, 5], "first": [0, 50]}, {"episodes": 40, "first": 10}, {"first": 0, "episodes": 55}),
        ({"rollout": ROLLOUT}, {}, {"rollout": ROLLOUT}),
    ],
)
def test_what_two_calls_asked_for(before: dict, now: dict, asked: dict) -> None:
    assert gathered(before, now) == asked
    assert gathered(asked, now) == gathered(asked, before) == asked


def test_a_store_says_what_it_was_asked_for_in_all(tmp_path: Path) -> None:
    path = store(tmp_path / "a", rollout=ROLLOUT, speed=[1.0], episodes=2)
    written = (path / "meta.json").stat().st_mtime_ns
    add_configuration(open_store(path), {"speed": [1.0], "episodes": 2})
    add_configuration(open_store(path), {})
    assert (path / "meta.json").stat().st_mtime_ns == written
    add_configuration(open_store(path), {"speed": [2.0], "episodes": 4})
    told = {"rollout": ROLLOUT, "speed": [1.0, 2.0], "first": 0, "episodes": 4}
    assert open_store(path).meta["configuration"] == told
