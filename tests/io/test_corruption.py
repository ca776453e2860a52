"""Broken files of every format: one sentence, or the poses that were written. Never a traceback, never a wrong number.

A case takes a small whole file (`breakable`), breaks it in one or two ways (`corruptions`) and reads all there is to
read, as `jaxeval score` and `jaxeval inspect` would. Either it is refused in one sentence that names the file and
says what to do, or every valid frame has finite unit-quaternion poses: those of the whole file at that time, unless a
finding about the episode says that its poses are in doubt.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jaxeval.io import InputError, open_source
from jaxeval.io.source import Source
from jaxeval.run.inspect import inspect, text
from jaxeval.types import Episode
from tests.io import corruptions as broken
from tests.io.breakable import LENGTHS, SAMPLES, Sample, motion
from tests.io.corruptions import Draw

FAST_N, SLOW_N = 12, 160
"""Cases a format: in every test run, and with ``-m slow``."""
IN_DOUBT = {"pose_jump", "frozen_then_jump", "unnormalised_quaternion", "units", "quaternion_order"}
"""Findings of an episode that say its poses are not to be trusted."""
MATRIX_IN_DOUBT = {"rotation_defect"}
RATE_TOLD = {"default_control_freq", "no_json", "no_env_args", "no_timestamp", "fps_disagrees"}
"""Findings of a file that say its times are not the recorded ones."""
CLOSE = 2e-6

Change = Callable[[Path, Draw], None]


def of(files: str, ways: Sequence[Change]) -> Callable[[Path, Draw], None]:
    """One of `ways` done to one of the files that match."""

    def change(folder: Path, draw: Draw) -> None:
        found = sorted(p for p in folder.rglob(files) if p.is_file())
        if found:
            draw.one(ways)(draw.one(found), draw)

    return change


META = (*broken.BYTES, broken.json_value, broken.json_value, broken.json_text)
WAYS: dict[str, tuple[Change, ...]] = {
    "maniskill": (of("t.h5", broken.H5), of("t.h5", broken.H5), of("t.json", META)),
    "robomimic": (of("demo.hdf5", broken.H5),),
    "robolab": (of("run_0.hdf5", broken.H5), of("run_0.hdf5", broken.H5), of("*.jsonl", broken.TEXT[:4])),
    "lerobot v3.0": (of("file-*.parquet", broken.PARQUET), of("file-*.parquet", broken.PARQUET), of("info.json", META)),
    "lerobot v2.1": (
        of("episode_*.parquet", broken.PARQUET),
        of("info.json", META),
        of("episodes.jsonl", broken.BYTES),
    ),
    "mcap": (of("*.mcap", (*broken.BYTES, broken.zeroed, broken.zeroed, broken.spoilt, broken.spoilt)),),
    "rosbag2": (of("*.db3", broken.DB3), of("*.db3", broken.DB3), of("metadata.yaml", broken.TEXT)),
    "tum": (of("cube.txt", (*broken.TEXT, broken.quaternions_of_zeros(slice(4, 8)), broken.columns_turned(1, 8))),),
    "euroc": (of("cube.csv", (*broken.TEXT, broken.quaternions_of_zeros(slice(4, 8)), broken.columns_turned(1, 8))),),
    "tum folder": (of("*.txt", (*broken.TEXT, broken.quaternions_of_zeros(slice(4, 8)))),),
    "bop": (of("*.csv", (*broken.TEXT, broken.quaternions_of_zeros(slice(4, 5)))),),
    "npz": (of("*.npz", broken.NPZ),),
    "store": (
        of("*.parquet", (*broken.PARQUET, broken.zeroed, broken.spoilt)),
        of("part-*.parquet", (*broken.PARQUET, broken.zeroed, broken.spoilt)),
        of("meta.json", META),
    ),
}


@pytest.fixture(scope="module", params=list(SAMPLES))
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, list[Episode]]:
    """(format, folder with the whole file, what is read from it)."""
    folder = tmp_path_factory.mktemp("whole")
    sample = SAMPLES[request.param]
    sample.write(folder)
    return request.param, folder, list(open_source(folder / sample.path, **sample.options).iter_episodes())


def test_the_whole_file_is_read_as_it_was_written(whole: tuple[str, Path, list[Episode]]) -> None:
    name, _, episodes = whole
    sample = SAMPLES[name]
    for k, e in zip(sample.episodes, episodes, strict=True):
        np.testing.assert_allclose(e.time_s, motion(k).time_s, atol=1e-6)
        for read, body in zip(sample.names, sample.bodies, strict=True):
            np.testing.assert_allclose(e.body(read), motion(k).body(body), atol=CLOSE)


@pytest.mark.parametrize(
    "cases_n", [pytest.param(FAST_N, id="few"), pytest.param(SLOW_N, id="many", marks=pytest.mark.slow)]
)
def test_broken_files_end_in_a_sentence_or_in_what_was_written(
    whole: tuple[str, Path, list[Episode]], tmp_path: Path, cases_n: int
) -> None:
    name, folder, episodes = whole
    sample, ends = SAMPLES[name], Counter[str]()

    @settings(
        max_examples=cases_n,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # a broken file is small already
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def cases(data: st.DataObject) -> None:
        draw = Draw(data.draw)
        case = tmp_path / "case"
        shutil.copytree(folder, case)
        try:
            draw.one(WAYS[name])(case, draw)
            if draw.number(0, 3) == 0:
                of("*", broken.BYTES)(case, draw)
            ends[outcome(case, sample, episodes)] += 1
        finally:
            shutil.rmtree(case)

    cases()
    assert ends.total() >= cases_n and (cases_n < SLOW_N or min(ends["refused"], ends["read"]) > 0), ends


def outcome(case: Path, sample: Sample, clean: list[Episode]) -> str:
    """``refused`` in a sentence, or ``read`` and true."""
    try:
        source = open_source(case / sample.path, **sample.options)
        table = source.table()
        episodes = list(source.iter_episodes())
        for _, batch in source.batches(bodies=source.bodies, episodes_n=4, joints=bool(source.joint_names)):
            assert np.isfinite(batch.poses[batch.valid]).all() and np.isfinite(batch.time_s[batch.frame_valid]).all()
        said = text(inspect(source))
    except InputError as error:
        sentence(str(error), case)
        return "refused"
    assert said and len(table["length"]) == len(episodes) == source.n_episodes
    for _, why in source.refused:
        sentence(why, case)
    for e, codes in zip(episodes, table["findings"], strict=True):
        true_poses(e, set(codes or ()), source, clean)
    return "read"


def sentence(said: str, case: Path) -> None:
    assert str(case) in said, said
    assert "\n" not in said and "Traceback" not in said and len(said) < 1000, said
    advice = said.rpartition(";")[2].strip()
    assert advice and ";" in said, said


def true_poses(e: Episode, codes: set[str], source: Source, clean: list[Episode]) -> None:
    """Every valid frame is finite and of unit quaternions, and is the clean pose of its time."""
    seen = e.valid_of(*e.bodies)
    poses, time_s = e.poses[seen], e.time_s[seen]
    assert np.isfinite(poses).all() and np.isfinite(time_s).all()
    np.testing.assert_allclose(np.linalg.norm(poses[..., :4], axis=-1), 1, atol=1e-6)
    of_file = {f.code for f in source.findings}
    if codes & IN_DOUBT or of_file & MATRIX_IN_DOUBT or not len(poses) or not e.bodies:
        return
    assert set(e.bodies) <= set(clean[0].bodies), e.bodies
    best = []
    for c in clean:
        truth = c.poses[:, [c.bodies.index(b) for b in e.bodies]]
        flipped = np.sign((poses[:, None, :, :4] * truth[None, :, :, :4]).sum(axis=-1, keepdims=True))
        quaternion = np.abs(poses[:, None, :, :4] - flipped * truth[None, :, :, :4]).max(axis=(2, 3))
        distance = np.maximum(quaternion, np.abs(poses[:, None, :, 4:] - truth[None, :, :, 4:]).max(axis=(2, 3)))
        row = distance.argmin(axis=1)
        late = (time_s - time_s[0]) - (c.time_s[row] - c.time_s[row[0]])
        best.append((float(distance.min(axis=1).max()), float(np.abs(late).max())))
    off, late_s = min(best)
    assert off < CLOSE, f"a pose that was never written (off by {off:.3g}) and no finding of {e.episode_id} says so"
    if not of_file & RATE_TOLD:
        assert late_s < CLOSE, f"poses of another time (by {late_s:.3g} s) and no finding says so"


# ------------------------------------------------------------------------------ faults once found, each with its answer


def npz_with(key: str, value: object) -> Change:
    def change(folder: Path, _: Draw) -> None:
        with np.load(folder / "demos.npz") as file:
            arrays = {k: file[k] for k in file.files}
        np.savez(folder / "demos.npz", **(arrays | {key: np.asarray(value)}))

    return change


def frames_with(column: str, values: pa.Array) -> Change:
    def change(folder: Path, _: Draw) -> None:
        path = folder / "s/frames/part-00000.parquet"
        table = pq.read_table(path)
        pq.write_table(table.set_column(table.column_names.index(column), column, values), path)

    return change


def meta_with(key: str, value: object) -> Change:
    def change(folder: Path, _: Draw) -> None:
        path = folder / "s/meta.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return change


FRAMES_N = sum(LENGTHS)
POSE = [1.0, 0, 0, 0, 0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("npz", npz_with("ep000/gripper_width", 0.04), "'ep000/gripper_width' holds float64 of shape ()"),
        ("npz", npz_with("ep001/qpos", np.zeros((11, 8))), "'ep001/qpos' holds float64 of shape (11, 8)"),
        ("npz", npz_with("ep000/pose/cube", np.zeros((14, 6))), "expected numbers of shape (T, 7)"),
        ("npz", npz_with("ep000/phase", np.zeros(14)), "expected texts of shape (14)"),
        ("npz", npz_with("meta", "null"), "'meta' is no list with an object an episode"),
        ("npz", npz_with("meta", '["text"]'), "'meta' is no list with an object an episode"),
        ("store", frames_with("pose.tcp", pa.array([[np.nan] * 7] + [POSE] * (FRAMES_N - 1))), "no unit quaternion"),
        ("store", frames_with("pose.tcp", pa.array([POSE] * (FRAMES_N - 1) + [[0.0] * 7])), "of frame 24 is no unit"),
        (
            "store",
            frames_with("frame_valid", pa.array(["yes"] * FRAMES_N)),
            "column frame_valid holds texts, expected fl",
        ),
        ("store", frames_with("t_s", pa.array([None] + [0.1] * (FRAMES_N - 1))), "column t_s lacks values"),
        ("store", meta_with("bodies", {"cube": 1}), "'bodies' is"),
        ("store", meta_with("joints_n", "9"), "'joints_n' is '9', which no store says"),
    ],
)
def test_faults_once_found(tmp_path: Path, name: str, change: Change, said: str) -> None:
    sample = SAMPLES[name]
    sample.write(tmp_path)
    change(tmp_path, Draw(lambda strategy: None))
    with pytest.raises(InputError) as caught:
        list(open_source(tmp_path / sample.path).iter_episodes())
    sentence(str(caught.value), tmp_path)
    assert said in str(caught.value)


def test_a_recorders_clock_that_is_no_number_costs_those_messages(tmp_path: Path) -> None:
    SAMPLES["rosbag2"].write(tmp_path)
    with sqlite3.connect(tmp_path / "recording/recording.db3") as base:
        base.execute("UPDATE messages SET timestamp = 'noon' WHERE id = 20")
    base.close()
    source = open_source(tmp_path / "recording")
    assert "undecodable" in {f.code for f in source.findings}
    (e,) = source.iter_episodes()
    assert np.abs(e.body("cube")[e.valid_of("cube")][0] - motion().body("cube")[0]).max() < CLOSE
