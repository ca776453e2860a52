"""Attributes of episodes: checked at the door, kept in a store, carried into scores, read as records."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.door import attribute_faults
from jaxeval.io import InputError, append_store, open_store, write_store
from jaxeval.io.records import read_records
from jaxeval.io.source import Loaded, Source, open_source
from jaxeval.run.score import score
from jaxeval.types import Episode
from tests.executions import small_episode

TOLD: tuple[dict[str, Any], ...] = (
    {"policy": "act", "told_speed": 2, "delay": True, "seed_of_noise": 3},
    {"policy": "act", "told_speed": 1.5, "tracker": "foundation"},
    {},
)


def episodes(*told: dict[str, Any], first: int = 0) -> list[Episode]:
    e = dataclasses.replace(small_episode(), task="t")
    return [dataclasses.replace(e, episode_id=f"e{first + k}", attributes=a) for k, a in enumerate(told)]


def test_a_store_keeps_them_in_columns_of_their_own(tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", episodes(*TOLD), task="t")
    got = [dict(e.attributes) for e in store.read()]
    assert got == [TOLD[0] | {"told_speed": 2.0}, TOLD[1], {}]
    assert [type(v) for v in got[0].values()] == [str, float, bool, int]
    table = pq.read_table(tmp_path / "s" / "episodes.parquet")
    assert table["attribute.tracker"].to_pylist() == [None, "foundation", None]
    kinds = {n: str(table.schema.field(f"attribute.{n}").type) for n in store.attribute_names}
    assert kinds == {
        "policy": "string", "told_speed": "double", "delay": "bool", "seed_of_noise": "int64", "tracker": "string",
    }  # fmt: skip
    more = append_store(tmp_path / "s", episodes({"seed_of_noise": 0.5, "world_model": "w"}, first=3))
    assert more.read()[3].attributes == {"seed_of_noise": 0.5, "world_model": "w"}
    assert more.read()[0].attributes["seed_of_noise"] == 3.0 and more.read(1, 2)[0].attributes == TOLD[1]


def test_what_does_not_fit_together_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    said = "attribute 'told_speed' is text in e0, a number in e1; expected one kind in all episodes; write it alike"
    with pytest.raises(InputError, match=said):
        write_store(tmp_path / "s", episodes({"told_speed": "2"}, {"told_speed": 1.5}), task="t")
    assert not (tmp_path / "s").exists()
    store = write_store(tmp_path / "s", episodes({"delay": True}), task="t")
    with pytest.raises(InputError, match=r"s: attribute 'delay' is truth in e0, a whole number in e1"):
        append_store(tmp_path / "s", episodes({"delay": 1}, first=1))
    assert open_store(tmp_path / "s").hash == store.hash
    both = Source([Loaded(tmp_path / n, episodes({"x": v}), []) for n, v in (("a", 1), ("b", "one"))], [])
    with pytest.raises(InputError, match="attribute 'x' is a whole number in e0, text in e0"):
        both.table()


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"speed": 2.0}, "attribute 'speed' has the name of a field"),
        ({"told speed": 2.0}, "attribute 'told speed' is no name"),
        ({"delay": float("nan")}, "attribute 'delay' is nan; expected a finite number"),
        ({"options": [1, 2]}, r"attribute 'options' is \[1, 2\]; expected a text, a number or a truth value"),
        ({"nothing": None}, "attribute 'nothing' is None"),
        ({"large": 2**63}, "expected a whole number of 64 bits"),
    ],
)
def test_the_door_refuses_what_cannot_be_kept(attributes: dict[str, Any], said: str, tmp_path: Path) -> None:
    (e,) = episodes(attributes)
    assert [f.code for f in e.check()] == ["attribute"] and len(attribute_faults(attributes)) == 1
    with pytest.raises(InputError, match=said):
        write_store(tmp_path / "s", [e], task="t")


def test_scores_and_records_have_them(tmp_path: Path) -> None:
    write_store(tmp_path / "s", episodes(*TOLD[:2]), task="t")
    source = open_source(tmp_path / "s")
    score(None, source, metrics=["smoothness"], out=tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "scores.parquet")
    assert table["attribute.policy"].to_pylist() == ["act", "act"]
    assert table["attribute.seed_of_noise"].to_pylist() == [3, None]
    for where in (tmp_path / "s", tmp_path / "out"):
        records = read_records(where)
        assert records.policies == ("act",) and [r["told_speed"] for r in records.rows] == [2.0, 1.5]
        assert not [c for c in records.columns if c.startswith("attribute.")]


def csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_column_and_an_attribute_must_agree(tmp_path: Path) -> None:
    head = "episode,attribute.policy,told_speed,attribute.told_speed,attribute.training_seed,success"
    agree = csv(tmp_path / "a.csv", head, "1,act,2,2.0,007,1", "2,act,,1.5,007,0", "3,act,1.3333334,1.3333333333,007,1")
    rows = read_records(agree).rows
    assert [r["told_speed"] for r in rows] == [2, 1.5, 1.3333334] and rows[0]["training_seed"] == "007"
    wrong = csv(tmp_path / "b.csv", head, "1,act,2,2,0,1", "2,act,1,2,0,1")
    with pytest.raises(InputError, match=r"b.csv, line 3: told_speed is 1 and attribute.told_speed is 2, expected"):
        read_records(wrong)


def test_an_episode_says_itself_in_one_line() -> None:
    (e,) = episodes({"policy": "act"})
    assert repr(e) == "Episode('e0', t: cube, tcp; 40 frames in 1.95 s, 40 valid; success)"
    lost = dataclasses.replace(e, frame_valid=np.arange(40) > 3, success_at_end=None, task="")
    assert repr(lost) == "Episode('e0', no task: cube, tcp; 40 frames in 1.75 s, 36 valid; success unknown)"
    assert repr(lost.with_bodies(())).count("\n") == 0 and "no body" in repr(lost.with_bodies(()))


def test_findings_name_the_body_that_is_concerned() -> None:
    e = small_episode()
    poses = e.poses.copy()
    poses[7:9, 1, 5] = np.nan
    poses[3, 0, :4] = 0
    poses[20:, 1, 4] += 0.4
    found = {f.code: f.found for f in dataclasses.replace(e, poses=poses).check()}
    assert found["non_finite_pose"] == "tcp: 2 frames (first 7) hold NaN or inf"
    assert found["zero_quaternion"] == "cube: 1 frame (3) holds (0,0,0,0)"
    assert found["pose_jump"].startswith("tcp moves 0.4") and "between frames 19 and 20" in found["pose_jump"]
    poses[15:25, 1, 5] = np.nan  # lost while it moved: the jump is between the frames that show it
    jump = next(f for f in dataclasses.replace(e, poses=poses).check() if f.code == "pose_jump")
    assert "between frames 14 and 25" in jump.found


def test_a_frozen_body_is_told_while_another_is_lost() -> None:
    e = small_episode()
    poses, valid = e.poses.copy(), e.valid.copy()
    poses[25:, 0, 4:] += poses[10, 0, 4:] - poses[25, 0, 4:]
    poses[10:25, 0] = poses[10, 0]
    valid[10:25, 1] = False
    (found,) = dataclasses.replace(e, poses=poses, valid=valid).check()
    assert found.code == "frozen" and found.found == "frames 10-24 (0.70 s) hold identical poses of cube"
    poses[:, 0] = poses[0, 0]  # one that always stands still says nothing of the other
    assert dataclasses.replace(e, poses=poses, valid=valid).check() == ()
