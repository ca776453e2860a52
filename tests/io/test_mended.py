"""What was wrong in a file is mended once, listed truly, and the same whether it is read from the file or from a store.

A motion is spoilt (bodies lost, zero quaternions, other lengths and signs, repeated and late stamps, a long pause),
written in every format that can hold the fault, and measured twice: straight from the file, and from a store of it.
Seeds 0 to 2 draw which faults there are and where.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxeval.io import open_source, open_store, write_store
from jaxeval.io.cleaning import accounts
from jaxeval.io.readers.trajectories import write_tum
from jaxeval.run.convert import convert
from jaxeval.run.inspect import inspect, text
from jaxeval.run.score import score
from jaxeval.types import Episode
from tests.io import breakable
from tests.io.breakable import RATE_HZ, SAMPLES, Sample
from tests.io.samples import EPOCH_NS

LENGTHS = (64, 40)
STAMPED = ("mcap", "rosbag2", "tum", "euroc", "tum folder", "store")
"""Formats whose frames have stamps of their own; the others count frames."""
MATRICES = ("bop",)
"""Formats of rotation matrices, which have no sign, no length and no zero."""
INTERPOLATED = ("mcap", "rosbag2")
"""Formats whose bodies have clocks of their own: a row of both is two."""
BY_BODY = ("tum folder", *INTERPOLATED)
ARRAYS = ("poses", "time_s", "valid", "frame_valid", "gripper_width_m", "joints", "actions")


@dataclass(frozen=True)
class Faults:
    """Frames of the first execution's cube that are spoilt, by kind; ``pause``: the frame before a pause of 30 s."""

    lost: tuple[int, ...]
    zero: tuple[int, ...]
    long: tuple[int, ...]
    negative: tuple[int, ...]
    repeated: int | None
    late: int | None
    pause: int | None

    @classmethod
    def drawn(cls, seed: int, name: str) -> Faults:
        rng = np.random.default_rng([seed, sum(map(ord, name))])
        frames = rng.permutation(np.arange(4, LENGTHS[0] - 4))
        start = int(rng.integers(0, 20))
        lost = tuple(range(start, start + int(rng.integers(1, 6))))  # from the first frame on, where it is drawn so
        rest = [int(f) for f in frames if int(f) not in lost]
        turned = name not in MATRICES
        stamped = name in STAMPED
        return cls(
            lost,
            tuple(sorted(rest[:2])) if turned else (),
            tuple(sorted(rest[2:5])) if turned else (),
            tuple(sorted(rest[5:9])) if turned else (),
            rest[9] if stamped and seed != 1 else None,
            rest[10] if stamped and seed != 1 and name not in INTERPOLATED else None,  # those are in order of arrival
            LENGTHS[0] // 2 if stamped and seed == 2 else None,
        )


def spoilt(e: Episode, faults: Faults) -> Episode:
    """The execution with faults in its first body, rows in the order in which a file would have them."""
    poses, time_s = e.poses.copy(), e.time_s.copy()
    poses[list(faults.zero), 0, :4] = 0
    poses[list(faults.long), 0, :4] *= 1.02
    poses[list(faults.negative), 0, :4] *= -1
    poses[list(faults.lost), 0] = np.nan
    if faults.pause is not None:
        time_s[faults.pause + 1 :] += 30.0
    rows = list(range(len(time_s)))
    if faults.late is not None:
        rows.insert(faults.late + 2, rows.pop(faults.late))
    if faults.repeated is not None:
        rows.insert(rows.index(faults.repeated) + 1, faults.repeated)
    arrays = {n: getattr(e, n)[rows] for n in ("valid", "frame_valid", "gripper_width_m", "joints", "actions")}
    return dataclasses.replace(e, poses=poses[rows], time_s=time_s[rows], **arrays)


def written(name: str, folder: Path, faults: Faults, patch: pytest.MonkeyPatch) -> Path:
    """The file of a format, spoilt; what its own writer would mend is spoilt in the file."""
    sample: Sample = SAMPLES[name]
    plain = breakable.motion.__wrapped__
    in_file = name in ("bop", "lerobot v3.0", "lerobot v2.1", "store")

    def motion(k: int = 0) -> Episode:
        e = plain(k)
        poses = e.poses.copy()
        poses[..., 4] += 0.05 * np.sin(3 * e.time_s)[:, None]
        e = dataclasses.replace(e, poses=poses)
        return spoilt(e, faults) if k == 0 and not in_file else e

    with patch.context() as m:
        m.setattr(breakable, "LENGTHS", LENGTHS)
        m.setattr(breakable, "motion", motion)
        folder.mkdir(parents=True, exist_ok=True)
        if name == "store":  # one that was written without cleaning
            write_store(folder / "s", [spoilt(motion(0), faults), motion(1)], task="push")
        else:
            sample.write(folder)
    if name == "bop":
        path = folder / sample.path
        lines = path.read_text().split("\n")
        for frame in faults.lost:
            at = next(i for i, line in enumerate(lines) if line.startswith(f"1,{frame},1,"))
            lines[at] = ",".join([*lines[at].split(",")[:4], " ".join(["nan"] * 9), " ".join(["nan"] * 3), "0.05"])
        path.write_text("\n".join(lines))
    if name.startswith("lerobot"):
        _spoil_parquet(min((folder / sample.path / "data").rglob("*.parquet")), faults)
    return folder / sample.path


def _spoil_parquet(path: Path, faults: Faults) -> None:
    table = pq.read_table(path)
    (name,) = [n for n in table.column_names if n.endswith("cube")]
    rows = table[name].to_pylist()
    first = int(np.flatnonzero(np.array(table["episode_index"].to_pylist()) == 0)[0])
    for kind, frames in (("zero", faults.zero), ("long", faults.long), ("negative", faults.negative)):
        for f in frames:
            row = np.array(rows[first + f])
            quaternion = slice(3, 7) if abs(np.linalg.norm(row[3:7]) - 1) < 1e-3 else slice(0, 4)
            row[quaternion] *= {"zero": 0.0, "long": 1.02, "negative": -1.0}[kind]
            rows[first + f] = row.tolist()
    for f in faults.lost:
        rows[first + f] = [float("nan")] * 7
    column = pa.array(rows, table[name].type)
    pq.write_table(table.set_column(table.column_names.index(name), table.field(name), column), path)


def counted(episodes: list[Episode], code: str) -> int:
    """Frames that the account of the episodes says were changed; each change is in one account a part."""
    found = {(f.where, f.found) for e in episodes for f in e.mended if f.code == code}
    return sum(int(re.search(r"(\d+) (?:frame|row)", one)[1]) for _, one in found)  # type: ignore[index]


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_file_and_its_store_give_the_same_and_the_account_is_true(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in ("mcap", "rosbag2"):
        pytest.importorskip("rosbags")
    faults = Faults.drawn(seed, name)
    path = written(name, tmp_path / "in", faults, monkeypatch)
    options = SAMPLES[name].options
    if name == "store":  # stores are read as they are: convert mends
        path = convert(open_source(path), tmp_path / "clean", to="store").path
    source = open_source(path, **options)
    made = convert(source, tmp_path / "out", to="store")
    store = open_source(tmp_path / "out")
    read, kept = [*source.iter_episodes()], [*store.iter_episodes()]
    assert len(read) == len(kept) == len(SAMPLES[name].episodes) + (faults.pause is not None)
    for a, b in zip(read, kept, strict=True):
        assert a.mended == b.mended and a.start_ns == b.start_ns and a.episode_id == b.episode_id
        for array in ARRAYS:
            x, y = getattr(a, array), getattr(b, array)
            assert (x is None) == (y is None), array
            if x is not None:
                np.testing.assert_allclose(x, y, atol=0 if x.dtype == bool or array == "time_s" else 3e-7, rtol=3e-7)
    # every frame keeps its place and its time; those spoilt, and no others, are invalid
    first = read[: 1 + (faults.pause is not None)]
    gone = np.concatenate([~e.valid[:, 0] for e in first])
    want = np.isin(np.arange(LENGTHS[0]), [*faults.lost, *faults.zero])
    if name in INTERPOLATED:  # the other body's clock: a short loss is bridged, and nothing else is lost
        assert not (gone & ~want).any() and bool(gone.any()) == (faults.lost[0] == 0)
    else:
        assert gone.tolist() == want.tolist()
    assert all(e.frame_valid.all() for e in first)
    steps = np.concatenate([np.diff(e.time_s) for e in first])
    np.testing.assert_allclose(steps, 1 / RATE_HZ, atol=1e-6)
    # the account says what was planted
    planted = {
        "zero_quaternion": len(faults.zero),
        "unnormalised_quaternion": len(faults.long),
        "repeated_stamp": (2 if name in BY_BODY else 1) * (faults.repeated is not None),
        "late_rows": int(faults.late is not None),
        "long_gap": int(faults.pause is not None),
    }
    for code, n in planted.items():
        got = (
            counted(first, code) if code != "long_gap" else len({f for e in first for f in e.mended if f.code == code})
        )
        assert (got == n) if code != "late_rows" else (bool(got) == bool(n)), (code, first[0].mended)
    if name != "bop" and not name.startswith("tum f"):
        lost = counted(first, "non_finite_pose")
        assert lost == len(faults.lost), first[0].mended
    if faults.negative and faults.lost[0] > 0:
        assert counted(first, "quaternion_sign") >= 1
    # and reaches people: convert's record, inspect, the scores' rows and notes
    assert {f.code for e in read for f in e.mended} <= {f.code for f in made.actions}
    shown = text(inspect(source))
    assert all(line in shown for line in accounts(source.table()["mended"]))
    body = SAMPLES[name].names[0]
    settings: Any = {"smoothness": {"body": body}}
    metrics = ["smoothness"]
    if len(source.bodies) > 1:
        settings |= {"tracking": {"tracks": {body: SAMPLES[name].names[1]}}}
    ours, theirs = (score_of(s, settings, metrics) for s in (source, store))
    assert ours.keys() == theirs.keys()
    for column, values in ours.items():
        if column in ("source", "task"):
            continue
        for v, w in zip(values, theirs[column], strict=True):
            same = abs(v - w) <= 1e-5 * max(1.0, abs(v)) if isinstance(v, float) and w is not None else v == w
            assert same, (column, v, w)
    assert (any(ours["mended"]) or name == "bop") and ours["mended"] == theirs["mended"]


def score_of(source: Any, settings: dict[str, Any], metrics: list[str]) -> dict[str, list[Any]]:
    from jaxeval.metrics.registry import metric_named

    chosen = {name: metric_named(name).Params(**given) for name, given in settings.items() if name in metrics}
    return score(None, source, metrics=metrics, settings=chosen).columns


# ------------------------------------------------------------------------------------------------------ the clock


def test_the_recordings_clock_is_kept_and_written_back(tmp_path: Path) -> None:
    """Nanoseconds since 1970 survive file -> store -> TUM to the last digit, also in parts of a recording."""
    SAMPLES["tum"].write(tmp_path)
    path = tmp_path / "run/cube.txt"
    lines = path.read_text().splitlines()
    convert(open_source(path), tmp_path / "s", to="store")
    (e,) = open_store(tmp_path / "s").read()
    assert e.start_ns == EPOCH_NS and e.time_s[0] == 0
    convert(open_source(tmp_path / "s"), tmp_path / "again", to="tum")
    again = next((tmp_path / "again").rglob("*.txt")).read_text().splitlines()
    assert [line.split()[0] for line in again[1:]] == [line.split()[0] for line in lines[1:]]
    later = [line.split()[0] for line in lines[8:]]
    moved = [f"{int(t.replace('.', '')) + 40 * 10**9}" for t in later]
    joined = lines[:8] + [
        " ".join([f"{t[:-9]}.{t[-9:]}", *line.split()[1:]]) for t, line in zip(moved, lines[8:], strict=True)
    ]
    path.write_text("\n".join(joined) + "\n")
    first, second = open_source(path).iter_episodes()
    assert first.start_ns == EPOCH_NS and second.time_s[0] == 0
    assert second.start_ns is not None and abs(second.start_ns - int(moved[0])) < 100
    write_tum(tmp_path / "part.txt", second, "cube")
    assert abs(float((tmp_path / "part.txt").read_text().splitlines()[1].split()[0]) - float(moved[0]) / 1e9) < 1e-6


def test_cleaning_is_a_choice(tmp_path: Path) -> None:
    """`convert clean=false` keeps the rows as the file has them, and their findings say so."""
    e = breakable.motion()
    rows = [0, 1, 2, 3, 3, *range(4, len(e.time_s))]
    arrays = {n: getattr(e, n)[rows] for n in ARRAYS}
    write_store(tmp_path / "s", [dataclasses.replace(e, **arrays)], task="push")
    source = open_source(tmp_path / "s")
    made = convert(source, tmp_path / "clean", to="store")
    assert made.frames_n == 14 and any("repeat a stamp" in str(f) for f in made.actions)
    assert convert(source, tmp_path / "raw", to="store", clean=False).frames_n == 15
