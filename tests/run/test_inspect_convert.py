"""`inspect` tells what each format holds and lacks; `convert` writes it elsewhere and says what it changed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.cli import main
from jaxeval.io import InputError, open_source, write_store
from jaxeval.run.convert import RECORD, convert
from jaxeval.run.inspect import Inspection, as_json, inspect, text
from jaxeval.types import Episode
from tests.executions import per_frame
from tests.io.breakable import LENGTHS, RATE_HZ, SAMPLES, motion

KNOWS_SUCCESS = {"maniskill", "lerobot v3.0", "lerobot v2.1", "npz", "store", "robolab"}
HAS_WIDTH = {"maniskill", "robomimic", "lerobot v3.0", "lerobot v2.1", "npz", "store"}
NAMES_JOINTS = {"maniskill", "lerobot v3.0", "lerobot v2.1", "npz", "store"}
NAMES_TASK = {"maniskill", "robomimic", "robolab", "lerobot v3.0", "lerobot v2.1", "npz", "store"}


def inspected(folder: Path, name: str) -> Inspection:
    sample = SAMPLES[name]
    sample.write(folder)
    (found,) = inspect(open_source(folder / sample.path, **sample.options))
    return found


# -------------------------------------------------------------------------------------------------------- inspect


@pytest.mark.parametrize("name", list(SAMPLES))
def test_inspect_tells_what_a_format_holds_and_what_each_metric_lacks(tmp_path: Path, name: str) -> None:
    found, sample = inspected(tmp_path, name), SAMPLES[name]
    lengths = [LENGTHS[k] for k in sample.episodes]
    assert (found.episodes_n, found.inspected_n, found.frames_n) == (len(lengths), len(lengths), sum(lengths))
    assert set(sample.names) <= set(found.bodies) <= {*sample.names, "table", "base"}
    assert found.rate_hz is not None and abs(found.rate_hz - RATE_HZ) < 1e-3 and found.rate_is_even
    assert (found.gaps_n, found.invalid_n) == (0, 0)
    shortest, longest = (n - 1 for n in (min(lengths), max(lengths)))
    np.testing.assert_allclose(found.duration_s, [shortest / RATE_HZ, longest / RATE_HZ], atol=1e-5)
    assert set(found.success) <= ({"success", "failure"} if name in KNOWS_SUCCESS else {"unknown"})
    assert found.gripper_width is (name in HAS_WIDTH)
    assert found.robot == ("panda" if name in NAMES_JOINTS else None)
    assert bool(found.task) is (name in NAMES_TASK)
    assert found.format and (found.declared or name == "store")

    lacks = found.missing
    assert list(lacks) == ["geometric", "smoothness", "kinematic", "tracking", "stages"]
    assert ("a known success" in lacks["geometric"]) is (name not in KNOWS_SUCCESS)
    assert ("the gripper's width" in lacks["geometric"]) is (name not in HAS_WIDTH)
    assert f"a task spec for '{found.task or 'unnamed'}'" in lacks["geometric"]  # no spec of pushing comes along
    assert f"a task spec for '{found.task or 'unnamed'}'" in lacks["stages"]
    assert (lacks["kinematic"] == "") is (name in NAMES_JOINTS)
    assert (lacks["smoothness"] == "") is ("tcp" in found.bodies or len(found.bodies) == 1)
    assert ("a second body" in lacks["tracking"]) is (len(found.bodies) == 1)

    said = text([found])
    for shown in (found.path, "what each metric lacks", "25 Hz, even steps", *found.bodies):
        assert shown in said
    assert json.loads(json.dumps(as_json([found])))[0]["frames_n"] == sum(lengths)


def test_a_bundled_task_lacks_nothing_that_is_there() -> None:
    (found,) = inspect(open_source("bundled:stack_cube_demos"), episodes_n=5)
    assert (found.episodes_n, found.inspected_n) == (40, 5) and found.success == {"success": 39, "failure": 1}
    assert found.missing["geometric"] == found.missing["smoothness"] == found.missing["kinematic"] == ""
    assert found.missing["stages"] == ""
    assert "first 5 read frame by frame" in text([found])


def test_gaps_invalid_frames_and_errors_are_counted(tmp_path: Path) -> None:
    e = motion()
    late = per_frame(e, lambda x: x.copy())
    time_s = late.time_s.copy()
    time_s[7:] += 2.0
    jump, lost = e.poses.copy(), np.ones(e.n_frames, bool)
    jump[9:, 0, 4] += 0.5
    lost[3:5] = False
    some = [
        dataclasses.replace(late, time_s=time_s, episode_id="gap"),
        dataclasses.replace(e, poses=jump, episode_id="jump"),
        dataclasses.replace(e, frame_valid=lost, episode_id="lost"),
    ]
    write_store(tmp_path / "s", some, task="push")
    (found,) = inspect(open_source(tmp_path / "s"))
    assert (found.gaps_n, found.invalid_n, found.rate_is_even) == (1, 2, False)
    assert found.episode_findings == {"time_gap": 1, "pose_jump": 1}
    assert "1 episodes hold errors and get no numbers" in found.missing["smoothness"]
    said = text([found])
    assert "error: 1 x pose_jump" in said and "warning: 1 x time_gap" in said


# -------------------------------------------------------------------------------------------------------- convert


@pytest.mark.parametrize("to", ["store", "lerobot", "tum"])
@pytest.mark.parametrize("name", ["maniskill", "robomimic", "lerobot v2.1", "mcap", "tum folder", "store"])
def test_what_is_converted_is_the_same_motion(tmp_path: Path, name: str, to: str) -> None:
    sample = SAMPLES[name]
    (tmp_path / "in").mkdir()
    sample.write(tmp_path / "in")
    source = open_source(tmp_path / "in" / sample.path, **sample.options)
    made = convert(source, tmp_path / "out", to=to, task="push")
    assert (made.kind, made.episodes_n, made.left_out, made.refused) == (to, len(sample.episodes), [], [])
    assert made.frames_n == sum(LENGTHS[k] for k in sample.episodes)
    folders = sorted(p for p in (tmp_path / "out").iterdir() if p.is_dir()) if to == "tum" else [tmp_path / "out"]
    back = [e for folder in folders for e in open_source(folder).iter_episodes()]
    for e, k in zip(sorted(back, key=lambda e: -e.n_frames), sample.episodes, strict=True):
        assert to == "tum" or e.task == "push"
        np.testing.assert_allclose(e.time_s, motion(k).time_s, atol=1e-6)
        for body in sample.bodies:
            np.testing.assert_allclose(e.body(body), motion(k).body(body), atol=2e-6)
        if to != "tum" and name in HAS_WIDTH:
            np.testing.assert_allclose(e.gripper_width_m, motion(k).gripper_width_m, atol=1e-7)
        if to != "tum" and name in KNOWS_SUCCESS:
            assert e.success_at_end is True
    record = tmp_path / "out" / RECORD if to == "tum" else tmp_path / f"out.{RECORD}"
    told = json.loads(record.read_text())
    assert (told["kind"], told["episodes_n"], told["frames_n"]) == (to, made.episodes_n, made.frames_n)
    assert (to == "tum" and name in HAS_WIDTH) is ("not_in_tum" in {a["code"] for a in told["actions"]})


def joined() -> Episode:
    """Two recordings in one: the stamps step back 1.5 s half way."""
    e = motion()
    time_s = np.concatenate([10 + e.time_s, 8.5 + e.time_s])
    twice = per_frame(e, lambda x: np.concatenate([x, x]))
    return dataclasses.replace(twice, time_s=time_s, episode_id="joined")


def write_joined(folder: Path) -> Path:
    """As one npz-free format keeps it: a store takes an episode as it is, and its findings say what is wrong."""
    write_store(folder / "joined", [joined(), motion(1)], task="push")
    return folder / "joined"


def test_clean_splits_a_joined_recording_and_lists_it(tmp_path: Path) -> None:
    source = open_source(write_joined(tmp_path))
    assert source.table()["findings"][0] == ["epoch_time", "time_not_increasing"]
    made = convert(source, tmp_path / "clean")
    store = open_source(tmp_path / "clean")
    assert made.episodes_n == store.n_episodes == 3 and made.frames_n == 2 * LENGTHS[0] + LENGTHS[1]
    assert store.table()["episode_id"] == ["joined/part=0", "joined/part=1", "run 1"]
    assert not any("time_not_increasing" in codes for codes in store.table()["findings"])
    for e in list(store.iter_episodes())[:2]:
        np.testing.assert_allclose(e.poses, motion().poses, atol=2e-6)
        np.testing.assert_allclose(e.time_s, motion().time_s, atol=1e-6)
    told = json.loads((tmp_path / f"clean.{RECORD}").read_text())
    (split,) = [a for a in told["actions"] if a["code"] == "stamps_step_back"]
    assert (
        "step back by 2" in split["found"] and "row 14" in split["found"] and split["action"].startswith("split there")
    )


def test_without_clean_it_stays_as_it_is_and_is_said(tmp_path: Path) -> None:
    made = convert(open_source(write_joined(tmp_path)), tmp_path / "same", clean=False)
    store = open_source(tmp_path / "same")
    assert made.episodes_n == 2 and store.table()["length"] == [2 * LENGTHS[0], LENGTHS[1]]
    assert "time_not_increasing" in store.table()["findings"][0]


def test_bodies_are_renamed_and_chosen(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [motion()], task="push")
    convert(open_source(tmp_path / "s"), tmp_path / "out", rename={"cube": "peg"}, bodies=("tcp", "peg"), group="night")
    (e,) = open_source(tmp_path / "out").iter_episodes()
    assert (e.bodies, e.group, e.task) == (("tcp", "peg"), "night", "push")
    np.testing.assert_allclose(e.body("peg"), motion().body("cube"), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"to": "csv"}, "to is 'csv'; expected one of store, lerobot, tum"),
        ({"precision": "float16"}, "expected float32 or float64"),
        ({"rename": {"spoon": "fork"}}, "no body spoon; it has cube, tcp"),
        ({"rename": {"cube": "tcp"}}, "two bodies the same name"),
        ({"bodies": ("spoon",)}, "no body spoon"),
        ({"to": "lerobot", "fps": -1.0}, "fps is -1.0"),
    ],
)
def test_what_cannot_be_converted_is_said_in_one_sentence(tmp_path: Path, settings: dict, said: str) -> None:
    write_store(tmp_path / "s", [motion()], task="push")
    with pytest.raises(InputError) as caught:
        convert(open_source(tmp_path / "s"), tmp_path / "out", **settings)
    assert said in str(caught.value) and "\n" not in str(caught.value) and ";" in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]


@pytest.mark.parametrize("to", ["store", "lerobot", "tum"])
def test_what_is_there_is_not_written_over(tmp_path: Path, to: str) -> None:
    write_store(tmp_path / "s", [motion()], task="push")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("keep")
    with pytest.raises(InputError, match="exist"):
        convert(open_source(tmp_path / "s"), tmp_path / "out", to=to)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_only_what_convert_wrote_is_written_over(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [motion()], task="push")
    source, mine = open_source(tmp_path / "s"), tmp_path / "mine"
    mine.mkdir()  # an empty folder is as good as none
    for _ in range(2):
        convert(source, mine, to="tum", overwrite=True)
        assert {p.name for p in mine.iterdir()} == {RECORD, "run_0"}
    (mine / RECORD).rename(mine / "thesis.txt")
    for to in ("tum", "store"):
        with pytest.raises(InputError, match="so it is not overwritten; choose another path"):
            convert(source, mine, to=to, overwrite=True)
    assert (mine / "thesis.txt").exists()


# --------------------------------------------------------------------------------------------------- command line


def test_inspect_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SAMPLES["tum folder"].write(tmp_path)
    assert main(["inspect", f"{tmp_path}/run", f"out={tmp_path}/told"]) == 0
    said = capsys.readouterr().out
    assert "TUM or EuRoC files of one motion" in said and "cube, tcp" in said and "success at end     1 unknown" in said
    assert json.loads((tmp_path / "told" / "inspection.json").read_text())[0]["bodies"] == ["cube", "tcp"]
    assert main(["inspect", f"{tmp_path}/nowhere.h5"]) == 1
    assert "there is no such file or folder; check the path" in capsys.readouterr().err


def test_convert_and_score_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SAMPLES["maniskill"].write(tmp_path)
    assert main(["convert", f"{tmp_path}/t.h5", f"out={tmp_path}/s"]) == 0
    assert f"store: {tmp_path}/s" in capsys.readouterr().out
    asked = ["score", f"episodes={tmp_path}/s", "metrics=[smoothness,kinematic]", f"out={tmp_path}/scores"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "SPARC" in said and "least w" in said and f"scores: {tmp_path}/scores/scores.parquet" in said
    rows = pq.read_table(tmp_path / "scores" / "scores.parquet").to_pylist()
    assert [r["length"] for r in rows] == list(LENGTHS) and all(r["kinematic.min_w"] > 0 for r in rows)
    assert all(r["Q"] is None and r["valid"] for r in rows)
    assert main(["convert", f"{tmp_path}/t.h5", f"out={tmp_path}/s"]) == 1
    assert "it exists already" in capsys.readouterr().err
    assert main(["score", f"episodes={tmp_path}/s", "metrics=[geometric]", f"out={tmp_path}/q"]) == 1
    assert "geometric needs a reference" in capsys.readouterr().err
    assert main(["convert", f"episodes={tmp_path}/t.h5"]) == 1
    assert "out is not given" in capsys.readouterr().err


def test_convert_gives_a_task_to_a_file_that_names_none(tmp_path: Path) -> None:
    SAMPLES["tum folder"].write(tmp_path)
    assert main(["convert", f"{tmp_path}/run", f"out={tmp_path}/s", "task_name=push_cube"]) == 0
    assert open_source(tmp_path / "s").task == "push_cube"
