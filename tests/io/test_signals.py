"""Signals of an episode: named columns that go into the store, come out, are padded, and are refused if they differ."""

import dataclasses
import json

import numpy as np
import pytest

from jaxeval.io import InputError, append_store, clean, open_source, open_store, store_hash, write_store
from jaxeval.io.source import Loaded
from jaxeval.types import Episode, pad_episodes

NAMES = ("force", "contact")


def episode(k: int, frames_n: int, **changes: object) -> Episode:
    rng = np.random.default_rng(k)
    pose = np.tile([1.0, 0, 0, 0, 0, 0, 0], (frames_n, 1, 1))
    pose[:, 0, 4] = rng.uniform(0, 0.01, frames_n)
    e = Episode.of(
        poses=pose,
        time_s=np.arange(frames_n) / 50,
        valid=np.ones(frames_n, bool),
        signals={"force": rng.normal(size=frames_n), "contact": rng.normal(size=(frames_n, 6))},
        bodies=("cube",),
        episode_id=f"e{k}",
        task="t",
    )
    return dataclasses.replace(e, **changes)


def test_what_goes_in_comes_out_in_the_stores_precision(tmp_path) -> None:
    want = [episode(k, n) for k, n in enumerate((3, 70, 5))]
    for precision in ("float32", "float64"):
        store = write_store(tmp_path / precision, want, task="t", precision=precision)
        assert store.signals == {"contact": 6, "force": 0}
        for got, e in zip(store.read(), want, strict=True):
            for name in NAMES:
                np.testing.assert_array_equal(got.signals[name], e.signals[name].astype(precision))
    append_store(tmp_path / "float64", [episode(9, 4)])
    (last,) = open_store(tmp_path / "float64").read(3)
    np.testing.assert_array_equal(last.signals["contact"], episode(9, 4).signals["contact"])


def test_batches_pad_signals_as_poses_in_a_store_and_in_memory(tmp_path) -> None:
    want = [episode(k, n) for k, n in enumerate((3, 70, 5))]
    store = write_store(tmp_path / "s", want, task="t", precision="float64")
    for source in (store, Loaded(tmp_path / "s", want, [])):
        seen = {}
        for rows, batch in source.batches(bodies=("cube",), episodes_n=2, dtype=np.float64, signals=NAMES):
            padded = pad_episodes([want[r] for r in rows], length=batch.poses.shape[1], dtype=np.float64, signals=NAMES)
            for name in NAMES:
                np.testing.assert_array_equal(batch.signals[name], padded.signals[name])
                for row, x in zip(rows, batch.signals[name], strict=True):
                    n = want[row].n_frames
                    np.testing.assert_array_equal(x[:n], want[row].signals[name])
                    np.testing.assert_array_equal(x[n:], np.repeat(x[n - 1 : n], len(x) - n, axis=0))
            seen |= dict.fromkeys(rows.tolist())
        assert sorted(seen) == [0, 1, 2]
        ((_, batch), *_) = source.batches(bodies=("cube",), episodes_n=2)
        assert batch.signals == {}


def test_signals_that_are_not_there_are_named_with_those_that_are(tmp_path) -> None:
    store = write_store(tmp_path / "s", [episode(0, 3)], task="t")
    for source in (store, Loaded(tmp_path / "s", [episode(0, 3)], []), open_source(tmp_path / "s")):
        with pytest.raises(InputError, match=r"s: no signal torque; it has contact, force|it has force, contact"):
            source.batches(bodies=("cube",), episodes_n=2, signals=("torque",))


@pytest.mark.parametrize(
    "signals, says",
    [
        ({"force": np.zeros(4)}, r"e1: its signals are force, expected contact \[6\], force"),
        ({"force": np.zeros(4), "contact": np.zeros((4, 5))}, r"contact \[5\], force, expected contact \[6\], force"),
        (None, "its signals are none"),
        (
            {"force": np.zeros(3), "contact": np.zeros((4, 6))},
            r"signals\['force'\] has shape \(3,\); \(4,\)|shape \(3,\)",
        ),
    ],
)
def test_other_signals_than_the_first_episodes_are_refused_and_nothing_is_left(tmp_path, signals, says) -> None:
    with pytest.raises(InputError, match=says):
        write_store(tmp_path / "s", [episode(0, 3), episode(1, 4, signals=signals)], task="t")
    assert not list(tmp_path.iterdir())


def test_the_hash_sees_signals_and_stores_without_any_keep_theirs(tmp_path) -> None:
    changed = episode(0, 3)
    changed.signals["contact"][1, 2] += 1
    stores = [write_store(tmp_path / str(k), [e], task="t") for k, e in enumerate((episode(0, 3), changed))]
    assert store_hash(stores[0]) != store_hash(stores[1])
    bare = write_store(tmp_path / "bare", [episode(0, 3, signals=None)], task="t")
    meta = json.loads((tmp_path / "bare" / "meta.json").read_text())
    assert meta.pop("signals") == {}
    known = store_hash(bare)
    (tmp_path / "bare" / "meta.json").write_text(json.dumps(meta))  # as written before there were signals
    older = open_store(tmp_path / "bare")
    assert store_hash(older) == known and older.read()[0].signals is None


def test_widths_that_no_store_says_are_refused(tmp_path) -> None:
    write_store(tmp_path / "s", [episode(0, 3)], task="t")
    path = tmp_path / "s" / "meta.json"
    meta = json.loads(path.read_text())
    for wrong in ([1], {"force": -1}, {"force": "x"}):
        path.write_text(json.dumps(meta | {"signals": wrong}))
        with pytest.raises(InputError, match=r"'signals' is .*, which no store says"):
            open_store(tmp_path / "s")
    path.write_text(json.dumps(meta | {"signals": {"force": 0, "contact": 6, "more": 0}}))
    with pytest.raises(InputError, match=r"column signal.more is missing"):
        open_store(tmp_path / "s")


def test_putting_frames_in_order_takes_their_signals_along() -> None:
    e = episode(0, 6)
    swapped = [0, 1, 3, 2, 4, 5]
    mixed = dataclasses.replace(
        e,
        poses=e.poses[swapped],
        time_s=e.time_s[swapped],
        signals={name: x[swapped] for name, x in e.signals.items()},
    )
    (mended,) = clean(mixed).episodes
    np.testing.assert_array_equal(mended.time_s, e.time_s)
    for name in NAMES:
        np.testing.assert_array_equal(mended.signals[name], e.signals[name])
