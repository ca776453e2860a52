"""Files that break tools of this kind, each with its right answer. The number is the trial's."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxeval.io import bundled
from jaxeval.io.readers.bop import read_bop
from jaxeval.io.readers.mcap import read_mcap
from jaxeval.io.readers.rosbag2 import read_rosbag2
from jaxeval.io.readers.trajectories import read_euroc, read_tum, read_tum_folder
from jaxeval.io.source import Loaded
from jaxeval.types import Episode, pad_episodes
from tests.executions import per_frame, small_episode
from tests.io.samples import (
    as_seconds,
    stamps_ns,
    write_sample_bop,
    write_sample_euroc,
    write_sample_mcap,
    write_sample_rosbag2,
    write_sample_tum,
)


def real() -> Episode:
    return bundled("stack_cube_demos").read(0, 1)[0]


def test_trial_14_one_zero_quaternion_in_a_file_costs_one_frame(tmp_path: Path) -> None:
    e = small_episode(1000, step_s=0.01)
    poses = e.poses.copy()
    poses[417, 0, :4] = 0
    spoilt = dataclasses.replace(e, poses=poses)
    path = write_sample_tum(tmp_path, spoilt, start_ns=0)
    loaded = Loaded(path, *read_tum_folder(path))
    assert "zero_quaternion" in loaded.episode_findings[0]
    (back,) = loaded.episodes
    assert np.flatnonzero(~back.valid.all(axis=1)).tolist() == [417] and np.isfinite(back.poses).all()
    keep = back.valid.all(axis=1)
    np.testing.assert_allclose(back.body("cube")[keep], e.body("cube")[keep], atol=1e-9)
    np.testing.assert_allclose(back.time_s[keep], e.time_s[keep], atol=1e-9)


def test_trial_15_matrices_of_an_estimator_are_projected_and_counted(tmp_path: Path) -> None:
    e = small_episode(20, bodies=("cube",))
    path = write_sample_bop(tmp_path, e)
    lines = path.read_text().splitlines()
    for frame, scale in ((3, 1.0137 ** (1 / 3)), (11, 0.998)):
        fields = lines[1 + frame].split(",")
        fields[4] = " ".join(repr(scale * float(x)) for x in fields[4].split())
        lines[1 + frame] = ",".join(fields)
    path.write_text("\n".join(lines) + "\n")
    (back,), findings = read_bop(path, fps=20)
    told = {f.code: f.found for f in findings}
    assert "2 of 20 matrices" in told["rotation_defect"] and "0.0137" in told["rotation_defect"]
    got = Rotation.from_quat(back.body("obj_000001")[:, :4], scalar_first=True)
    right = Rotation.from_quat(e.body("cube")[:, :4], scalar_first=True)
    assert (got.inv() * right).magnitude().max() < 1e-9  # a scale turns nothing


def test_trial_19_epoch_stamps_give_the_speeds_of_float64(tmp_path: Path) -> None:
    e = real()
    start_ns = 1_305_031_102_175_304_000
    for path, read in (
        (write_sample_tum(tmp_path / "tum", e, start_ns=start_ns), read_tum_folder),
        (write_sample_mcap(tmp_path / "mcap", e, start_ns=start_ns), read_mcap),
    ):
        (back,) = Loaded(path, *read(path)).episodes
        single = pad_episodes([back])
        moved = np.linalg.norm(np.diff(e.body("tcp")[:, 4:], axis=0), axis=1)
        n = e.n_frames
        xyz = single.poses[0, :n, back.bodies.index("tcp"), 4:]
        speed = np.linalg.norm(np.diff(xyz, axis=0), axis=1) / np.diff(single.time_s[0, :n])
        right = moved / np.diff(e.time_s)
        quick = right > 0.01
        assert quick.sum() > 50
        np.testing.assert_allclose(speed[quick], right[quick], rtol=0.002)
    naive = (stamps_ns(e, start_ns) / 1e9).astype(np.float32)
    assert len(set(naive.tolist())) <= 2  # what a reader that forgets would divide by


def broken_log() -> tuple[Episode, np.ndarray]:
    """Two recordings of 600 frames at 20 Hz, one after the other, with the usual faults; and the right times.

    The second steps back 26 s; the first has two repeated stamps and two swapped rows, the second pauses for 12 s.
    """
    e = small_episode(600, bodies=("cube", "box", "tcp"))
    order = [*range(100), 99, *range(100, 200), 200, 200, *range(201, 300), 301, 300, *range(302, 600)]
    again = np.arange(80, 600)
    time_s = np.concatenate([e.time_s[order], e.time_s[again] + np.where(again >= 400, 12.0, 0.0)])
    joined = per_frame(e, lambda x: x[np.concatenate([order, again])])
    return dataclasses.replace(joined, time_s=time_s), e.time_s


def test_trial_22_repeated_backward_and_missing_stamps_are_split_and_listed(tmp_path: Path) -> None:
    log, right_s = broken_log()
    clock = itertools.count(1_790_000_000_000_000_000, 1_000_000)  # the recorder's own runs on
    for path, read in (
        (
            write_sample_tum(tmp_path / "tum", dataclasses.replace(log, poses=log.poses[:, :1], bodies=("cube",))),
            read_tum,
        ),
        (write_sample_mcap(tmp_path / "mcap", log), read_mcap),
        (write_sample_rosbag2(tmp_path / "bag", log, log_ns=lambda _: next(clock)), read_rosbag2),
    ):
        path = path / "cube.txt" if read is read_tum else path
        parts, findings = read(path)
        assert [p.n_frames for p in parts] == [600, 320, 200]
        np.testing.assert_allclose(parts[0].time_s, right_s, atol=1e-9)
        np.testing.assert_allclose(np.diff(parts[1].time_s), 0.05, atol=1e-9)
        told = {f.code: f.found for f in findings}
        assert {"repeated_stamp", "late_rows", "stamps_step_back", "long_gap"} <= set(told)
        assert "2 rows (100, 202) repeat a stamp" in told["repeated_stamp"]
        assert "by 25.95 s at row 602" in told["stamps_step_back"]
        assert "12.1 s without a frame" in told["long_gap"]
        assert len({p.episode_id for p in parts}) == 3


@pytest.mark.parametrize("slower", [1.0, 0.25])
def test_trial_26_header_stamps_count_and_the_recorders_clock_does_not(tmp_path: Path, slower: float) -> None:
    e = real()
    wall_ns, sim_ns = 1_790_000_000_000_000_000, 5_000_000_000
    path = write_sample_mcap(
        tmp_path,
        e,
        start_ns=sim_ns,
        log_ns=lambda stamp: wall_ns + round((stamp - sim_ns) / slower) + stamp % 7_000_000,
    )
    (back,), findings = read_mcap(path)
    np.testing.assert_allclose(back.time_s, e.time_s, atol=1e-9)
    (told,) = [f for f in findings if f.code == "clocks_differ"]
    assert "1.79e+09 s ahead of header.stamp" in told.found and f"runs {1 / slower:.3g} times as fast" in told.found
    assert "header.stamp is used" in str(told)
    assert "clocks_differ" not in {f.code for f in read_mcap(write_sample_mcap(tmp_path, e))[1]}


def test_trial_27_nanoseconds_wxyz_and_seconds_xyzw_are_the_same_arrays(tmp_path: Path) -> None:
    e = real()
    csv, txt = write_sample_euroc(tmp_path / "csv", e), write_sample_tum(tmp_path / "txt", e)
    for body in e.bodies:
        (a,), _ = read_euroc(csv / f"{body}.csv")
        (b,), _ = read_tum(txt / f"{body}.txt")
        np.testing.assert_array_equal(a.time_s, b.time_s)
        np.testing.assert_array_equal(a.poses, b.poses)
        np.testing.assert_allclose(a.poses[:, 0], e.body(body), atol=1e-9)
        np.testing.assert_allclose(a.time_s, e.time_s, atol=1e-9)
    first = (txt / "cubeA.txt").read_text().splitlines()[1].split()
    assert first[0] == as_seconds(int((csv / "cubeA.csv").read_text().splitlines()[1].split(",")[0]))
