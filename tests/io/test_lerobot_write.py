"""Writing LeRobot data sets: what is written is read back, and what is lost or changed is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.io import InputError, bundled
from jaxeval.io.readers.lerobot import read_lerobot
from jaxeval.io.writers.grid import poses_at
from jaxeval.io.writers.lerobot import write_lerobot
from jaxeval.types import Episode, Finding

V30 = Path(__file__).parents[1] / "data" / "lerobot_v30"
FILE = "data/chunk-000/file-000.parquet"


@pytest.fixture(scope="module")
def recorded() -> list[Episode]:
    return bundled("stack_cube_demos").read(0, 3)


def codes(findings: list[Finding]) -> set[str]:
    return {f.code for f in findings}


def test_what_is_written_is_read_back(tmp_path: Path, recorded: list[Episode]) -> None:
    findings = write_lerobot(tmp_path / "set", recorded, robot_type="panda")
    assert codes(findings) <= {"not_written", "rounded"} and "sub-task labels" in findings[0].found
    episodes, read_findings = read_lerobot(tmp_path / "set")
    assert read_findings == []
    for e, r in zip(episodes, recorded, strict=True):
        assert (e.bodies, e.joint_names, e.task) == (r.bodies, r.joint_names, r.task)
        assert (e.success_once, e.success_at_end) == (r.success_once, r.success_at_end)
        assert e.initial_condition_hash == r.initial_condition_hash
        np.testing.assert_allclose(e.poses, r.poses, atol=1e-7)
        np.testing.assert_allclose(e.time_s, r.time_s, atol=1e-6)
        np.testing.assert_allclose(e.gripper_width_m, r.gripper_width_m, atol=1e-8)
        np.testing.assert_array_equal(e.joints, r.joints)
        np.testing.assert_array_equal(e.actions[1:], r.actions[1:])
        assert e.valid.all()


def test_a_data_set_of_lerobots_own_is_written_as_it_was(tmp_path: Path) -> None:
    """The columns, their types and the statistics are those that LeRobot wrote for the same episodes."""
    episodes, _ = read_lerobot(V30)
    write_lerobot(tmp_path / "set", episodes, robot_type="panda")
    ours, theirs = pq.read_table(tmp_path / "set" / FILE), pq.read_table(V30 / FILE)
    shared = [n for n in theirs.column_names if n != "observation.state"]
    assert set(shared) <= set(ours.column_names)
    for name in shared:
        assert ours[name].type == theirs[name].type, name
        rows, wanted = (np.array(table[name].to_pylist(), float) for table in (ours, theirs))
        np.testing.assert_allclose(rows, wanted, atol=1e-7, err_msg=name)
    info, wanted = (json.loads((root / "meta/info.json").read_text()) for root in (tmp_path / "set", V30))
    assert {k: v for k, v in info.items() if k != "features"} == {k: v for k, v in wanted.items() if k != "features"}
    assert info["features"]["observation.pose.tcp"] == wanted["features"]["observation.pose.tcp"]
    stats, wanted = (json.loads((root / "meta/stats.json").read_text()) for root in (tmp_path / "set", V30))
    for name in ("observation.pose.tcp", "action"):
        assert set(stats[name]) == set(wanted[name])
        for key in ("min", "max", "mean", "std", "count"):
            np.testing.assert_allclose(stats[name][key], wanted[name][key], rtol=1e-5, atol=1e-6)
    tcp, wanted_tcp = stats["observation.pose.tcp"], wanted["observation.pose.tcp"]
    span = np.array(tcp["max"]) - np.array(tcp["min"])
    for key in ("q01", "q10", "q50", "q90", "q99"):  # LeRobot's come from a histogram of 40 frames
        assert (np.abs(np.array(tcp[key]) - wanted_tcp[key]) <= 0.06 * span).all(), key
    where = "meta/episodes/chunk-000/file-000.parquet"
    table, wanted = (pq.read_table(root / where) for root in (tmp_path / "set", V30))
    for name in (n for n in wanted.column_names if not n.startswith("stats/")):
        assert table[name].to_pylist() == wanted[name].to_pylist(), name
    tasks, wanted = (pq.read_table(root / "meta/tasks.parquet").to_pylist() for root in (tmp_path / "set", V30))
    assert tasks == wanted


def test_invalid_frames_and_gaps_are_marked(tmp_path: Path, recorded: list[Episode]) -> None:
    first = recorded[0]
    bad = np.arange(first.n_frames) % 17 == 5
    poses = np.where(bad[:, None, None], np.nan, first.poses)
    frames = np.arange(recorded[1].n_frames)
    rows = np.flatnonzero((frames < 40) | (frames > 60))  # a gap of a second
    keys = ("poses", "time_s", "valid", "frame_valid", "gripper_width_m", "joints", "actions", "sub_task")
    gap = replace(recorded[1], **{k: getattr(recorded[1], k)[rows] for k in keys})
    findings = write_lerobot(tmp_path / "set", [replace(first, poses=poses), gap])
    assert codes(findings) >= {"frames_missing"} and "resampled" not in codes(findings)
    (a, b), _ = read_lerobot(tmp_path / "set")
    np.testing.assert_array_equal(a.valid, np.repeat(~bad[:, None], len(a.bodies), axis=1))
    np.testing.assert_allclose(a.poses[~bad], first.poses[~bad], atol=1e-7)
    assert b.n_frames == recorded[1].n_frames
    np.testing.assert_array_equal(np.flatnonzero(~b.frame_valid), np.setdiff1d(np.arange(b.n_frames), rows))
    np.testing.assert_allclose(b.poses[b.frame_valid], recorded[1].poses[rows], atol=1e-7)
    np.testing.assert_array_equal(b.actions[rows][1:], recorded[1].actions[rows][1:])


def turning(time_s: np.ndarray) -> Episode:
    """A body that turns at 1 rad/s about z and moves at 0.1 m/s along x."""
    zero = np.zeros_like(time_s)
    pose = np.stack([np.cos(time_s / 2), zero, zero, np.sin(time_s / 2), 0.1 * time_s, zero, zero], axis=1)
    valid = np.ones(len(time_s), bool)
    return Episode.of(poses=pose[:, None], time_s=time_s, valid=valid, bodies=("top",), success_at_end=True)


def test_uneven_times_are_resampled_along_the_arc(tmp_path: Path) -> None:
    time_s = np.concatenate([[0], np.cumsum(np.tile([0.03, 0.07], 30))])
    findings = write_lerobot(tmp_path / "set", [turning(time_s)], fps=25)
    (finding,) = [f for f in findings if f.code == "resampled"]
    assert "76 frames" in finding.action
    (e,), _ = read_lerobot(tmp_path / "set")
    want = turning(np.arange(76) / 25)
    np.testing.assert_allclose(e.poses, want.poses, atol=1e-6)  # both rates are constant: the arc gives them exactly
    assert e.valid.all() and e.success_at_end is True


def test_a_rate_that_halves_is_said_with_its_size(tmp_path: Path, recorded: list[Episode]) -> None:
    findings = write_lerobot(tmp_path / "set", recorded, fps=10)
    assert sum(f.code == "resampled" for f in findings) == 3
    e, r = read_lerobot(tmp_path / "set")[0][0], recorded[0]
    assert e.n_frames == 88
    np.testing.assert_allclose(e.poses[:87], r.poses[::2][:87], atol=1e-6)
    np.testing.assert_array_equal(e.actions[1:87], r.actions[::2][1:87])  # the one that led to the frame


def test_interpolation_takes_the_short_way_and_stays_unit() -> None:
    half = np.deg2rad(50)
    a = np.array([1.0, 0, 0, 0, 0, 0, 0])
    b = np.array([-np.cos(half), -np.sin(half), 0, 0, 1, 2, 3])  # -q: the same rotation, 100 degrees about x
    got = poses_at(np.stack([a, b])[:, None], np.array([0.0, 1.0]), np.array([0.25]))[0, 0]
    angle = np.deg2rad(12.5)
    np.testing.assert_allclose(got, [np.cos(angle), np.sin(angle), 0, 0, 0.25, 0.5, 0.75], atol=1e-12)


def test_what_is_known_of_some_is_left_out_of_all(tmp_path: Path, recorded: list[Episode]) -> None:
    some = [replace(recorded[0], success_at_end=None, success_once=None, gripper_width_m=None), recorded[1]]
    findings = write_lerobot(tmp_path / "set", some)
    assert sum(f.code == "partly_known" for f in findings) == 2
    episodes, _ = read_lerobot(tmp_path / "set")
    assert [(e.success_at_end, e.gripper_width_m) for e in episodes] == [(None, None)] * 2
    lost = replace(recorded[0], success_once=True, success_at_end=False)
    assert "success_time_lost" in codes(write_lerobot(tmp_path / "lost", [lost]))
    assert read_lerobot(tmp_path / "lost")[0][0].success_at_end is False


def test_tasks_are_kept_apart(tmp_path: Path, recorded: list[Episode]) -> None:
    write_lerobot(tmp_path / "set", [recorded[0], replace(recorded[1], task="other"), recorded[2]])
    episodes, findings = read_lerobot(tmp_path / "set")
    assert [e.task for e in episodes] == ["stack_cube", "other", "stack_cube"] and "several_tasks" in codes(findings)
    write_lerobot(tmp_path / "one", recorded, task="Stack the cubes.")
    assert {e.task for e in read_lerobot(tmp_path / "one")[0]} == {"Stack the cubes."}


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path, recorded: list[Episode]) -> None:
    e = recorded[0]
    back = replace(e, time_s=e.time_s[::-1].copy())
    cases = [
        ([], "no episodes to write"),
        ([e, replace(e, bodies=("a", "b", "c", "d"))], "holds a, b, c, d"),
        ([e, replace(e, actions=e.actions[:, :3])], r"actions has \[3, 8\] entries"),
        ([replace(e, bodies=("a/b", "c", "d", "e"))], "body 'a/b' has a slash"),
        ([replace(e, frame_valid=np.zeros(e.n_frames, bool))], "0 of 174 frames are valid"),
        ([e, back], "steps repeat or go back"),
        ([e.with_bodies(())], "hold no body"),
        ([replace(e, time_s=e.time_s * np.where(e.time_s > 8, 1e9, 1))], "check its times"),
    ]
    for episodes, said in cases:
        with pytest.raises(InputError, match=said):
            write_lerobot(tmp_path / "set", episodes)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="fps is 0"):
        write_lerobot(tmp_path / "set", [e], fps=0)
    (tmp_path / "set").mkdir()
    with pytest.raises(InputError, match="it exists already"):
        write_lerobot(tmp_path / "set", [e])
