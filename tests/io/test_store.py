"""The native store: what goes in comes out, batches are pad_episodes, and half a store is never seen."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxeval.io import InputError, append_store, bundled_path, open_store, store_hash, write_store
from jaxeval.io.store import store as store_module
from jaxeval.io.store import write as store_write
from jaxeval.types import Episode, bucket_length, pad_episodes

BODIES = ("cube", "tcp", "table")
LENGTHS = (3, 64, 65, 10, 200, 128, 129, 1, 7)


def episode(k: int, frames_n: int, bodies: tuple[str, ...] = BODIES, **changes: object) -> Episode:
    rng = np.random.default_rng([k, frames_n])
    poses = rng.normal(size=(frames_n, len(bodies), 7))
    poses[..., 4:] *= 0.05
    known = k % 3
    e = Episode.of(
        poses=poses,
        time_s=1.3e9 + np.cumsum(rng.uniform(0.01, 0.1, frames_n)),
        valid=rng.uniform(size=frames_n) > 0.1,
        gripper_width_m=None if known == 1 else rng.uniform(0, 0.08, frames_n),
        sub_task=None if known == 2 else rng.integers(-1, 2, frames_n).astype(np.int32),
        joints=rng.normal(size=(frames_n, 4)),
        half_size_m=np.array([[0.02] * 3, [np.nan] * 3, [np.nan] * 3]),
        success_once=(None, True, False)[known],
        success_at_end=(None, True, False)[known],
        seed=None if known == 1 else k,
        speed=1.5,
        bodies=bodies,
        sub_task_names=("reach", "lift") if k % 2 else ("lift", "place"),
        joint_names=("a", "b", "c", "d"),
        episode_id=f"e{k}",
        initial_condition_id=f"env/seed={k}",
        initial_condition_hash=f"{k:016x}",
        group="slow" if k % 2 else "fast",
        source="here",
        task="stack",
    )
    return dataclasses.replace(e, **changes).prepared()


def episodes(first: int = 0) -> list[Episode]:
    return [episode(first + k, n) for k, n in enumerate(LENGTHS)]


def assert_same(got: Episode, want: Episode, *, places: float) -> None:
    for name in ("poses", "time_s", "valid", "frame_valid", "gripper_width_m", "joints", "actions", "half_size_m"):
        a, b = getattr(got, name), getattr(want, name)
        assert (a is None) == (b is None), name
        if a is not None:
            tolerance = places if name == "poses" else 1e-12 if name == "time_s" else 1e-6
            np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=0, atol=tolerance, err_msg=name)
    assert labels(got) == labels(want)
    for name in (
        *("success_once", "success_at_end", "seed", "speed", "bodies", "joint_names", "episode_id", "group", "task"),
        *("initial_condition_id", "initial_condition_hash", "source"),
    ):
        assert getattr(got, name) == getattr(want, name), name


def labels(e: Episode) -> list[str | None] | None:
    if e.sub_task is None or (e.sub_task < 0).all():
        return None
    return [e.sub_task_names[i] if i >= 0 else None for i in e.sub_task]


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    monkeypatch.setattr(store_write, "ROW_GROUP_FRAMES_N", 100)
    want = episodes()
    store = write_store(tmp_path / "s", iter(want), task="stack", episodes_per_shard=4, precision=precision)
    assert (store.n_episodes, store.n_frames) == (len(LENGTHS), sum(LENGTHS))
    assert (store.bodies, store.task, store.meta["format_version"]) == (BODIES, "stack", 2)
    assert sorted(p.name for p in (tmp_path / "s" / "frames").iterdir()) == [f"part-0000{i}.parquet" for i in range(3)]
    assert len(store._groups) > 3
    got = list(store.iter_episodes())
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert_same(a, b, places=1e-6 if precision == "float32" else 1e-15)
    for start, stop in ((0, 1), (3, 6), (4, 9), (8, 9), (5, 5)):
        assert [e.episode_id for e in store.read(start, stop)] == [f"e{k}" for k in range(start, stop)]
        for a, b in zip(store.read(start, stop), want[start:stop], strict=True):
            assert_same(a, b, places=1e-6)


@pytest.mark.parametrize(("start", "stop"), [(0, None), (2, 7), (4, 5), (3, 3)])
@pytest.mark.parametrize("episodes_n", [1, 2, 100])
def test_batches_are_pad_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, stop: int | None, episodes_n: int
) -> None:
    monkeypatch.setattr(store_write, "ROW_GROUP_FRAMES_N", 100)
    store = write_store(tmp_path / "s", episodes(), task="stack", episodes_per_shard=4)
    bodies = ("table", "cube")
    seen: list[int] = []
    for rows, batch in store.batches(bodies=bodies, episodes_n=episodes_n, start=start, stop=stop):
        chosen = [store.read(int(r), int(r) + 1)[0] for r in rows]
        want = pad_episodes([e.with_bodies(bodies) for e in chosen])
        assert batch.bodies == bodies and len(rows) <= episodes_n
        assert {bucket_length(e.n_frames) for e in chosen} == {batch.poses.shape[1]}
        for name in ("poses", "time_s", "valid", "frame_valid", "gripper_width_m", "success"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(want, name), err_msg=name)
            assert getattr(batch, name).dtype == getattr(want, name).dtype, name
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(LENGTHS)))[start:stop]


def test_batches_refuse_an_absent_body_at_once() -> None:
    store = open_store(bundled_path("stack_cube_demos"))
    with pytest.raises(InputError, match=r"no body spoon; it has cubeA, cubeB, tcp, table"):
        store.batches(bodies=("cubeA", "spoon"), episodes_n=4)


def test_far_positions_keep_their_millimetres(tmp_path: Path) -> None:
    e = episode(0, 50)
    poses = e.poses.copy()
    poses[..., 4:] += [4.5e5, 5.4e6, 100.0]  # UTM: float32 steps are half a metre there
    far = dataclasses.replace(e, poses=poses)
    store = write_store(tmp_path / "s", [e, far], task="stack")
    np.testing.assert_allclose(store.read()[1].poses, poses, rtol=0, atol=1e-6)
    _, batch = next(store.batches(bodies=BODIES, episodes_n=2))
    near, moved = batch.poses[0, :50, :, 4:], batch.poses[1, :50, :, 4:]
    np.testing.assert_allclose(near - near[:1, :1], moved - moved[:1, :1], atol=1e-6)


def test_epoch_time_is_rebased_and_findings_are_kept(tmp_path: Path) -> None:
    e = episode(0, 20)
    poses = e.poses.copy()
    poses[7, 0, :4] = 0
    everything = {"valid": np.ones((20, 3), bool), "frame_valid": np.ones(20, bool)}
    raw = dataclasses.replace(e, poses=poses, time_s=1.3e9 + e.time_s, **everything)
    store = write_store(tmp_path / "s", [raw], task="stack")
    assert {"epoch_time", "zero_quaternion", "success_unknown"} <= set(store.column("findings")[0])
    got = store.read()[0]
    assert not got.valid[7, 0] and got.valid.sum() == 3 * 20 - 1 and got.frame_valid.all()
    np.testing.assert_allclose(got.time_s, e.time_s - e.time_s[0], atol=1e-6)


def test_hash_is_of_the_contents(tmp_path: Path) -> None:
    items = episodes()
    a = write_store(tmp_path / "a", items, task="stack")
    b = write_store(tmp_path / "b", items, task="stack", episodes_per_shard=2, compression="zstd")
    assert store_hash(a) == store_hash(tmp_path / "b") == b.hash
    assert (tmp_path / "a" / "frames" / "part-00000.parquet").read_bytes() == (
        write_store(tmp_path / "c", items, task="stack").path / "frames" / "part-00000.parquet"
    ).read_bytes()
    moved = dataclasses.replace(items[3], poses=items[3].poses + np.float32(1e-4))
    failed = dataclasses.replace(items[3], success_at_end=False)
    relabelled = dataclasses.replace(items[3], sub_task_names=("reach", "other"))
    hashes = {
        write_store(tmp_path / "d", [*items[:3], x, *items[4:]], task="stack", overwrite=True).hash
        for x in (items[3], moved, failed, relabelled, dataclasses.replace(items[3], group="new"))
    }
    assert len(hashes) == 5 and a.hash in hashes


def test_append_is_seen_whole(tmp_path: Path) -> None:
    first, more = episodes(), episodes(first=100)
    write_store(tmp_path / "s", first, task="stack", episodes_per_shard=5)
    store = append_store(tmp_path / "s", more)
    assert [e.episode_id for e in store.iter_episodes()] == [e.episode_id for e in first + more]
    for a, b in zip(store.iter_episodes(), first + more, strict=True):
        assert_same(a, b, places=1e-6)
    assert store.hash == write_store(tmp_path / "t", first + more, task="stack").hash
    with pytest.raises(InputError, match="bodies spoon where the store has cube, tcp, table"):
        append_store(tmp_path / "s", [more[0], episode(0, 5, ("spoon",), half_size_m=None)])
    assert open_store(tmp_path / "s").hash == store.hash


def test_exception_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> object:
        yield from episodes()
        raise RuntimeError("the simulator died")

    with pytest.raises(RuntimeError, match="the simulator died"):
        write_store(tmp_path / "s", broken(), task="stack", episodes_per_shard=2)
    assert list(tmp_path.iterdir()) == []
    before = write_store(tmp_path / "s", episodes(), task="stack").hash
    for write in (
        lambda: write_store(tmp_path / "s", broken(), task="stack", overwrite=True),
        lambda: append_store(tmp_path / "s", broken()),
    ):
        with pytest.raises(RuntimeError):
            write()
        assert open_store(tmp_path / "s").hash == before
        assert [p.name for p in tmp_path.iterdir()] == ["s"]
        assert [p.name for p in (tmp_path / "s" / "frames").iterdir()] == ["part-00000.parquet"]


KILLED = """
import os, sys
sys.path.insert(0, {root!r})
from jaxeval.io import append_store, bundled, write_store
from jaxeval.io.store import store
def some(at):
    yield from bundled("stack_cube_demos").read(0, 30)
    if at == "episode":
        os._exit(9)
def die(at, call):
    if at == "publish":
        store.write_table = lambda *_: os._exit(9)
    call(at)
    os._exit(0)
for at in ("episode", "publish"):
    for call in (
        lambda at: write_store(f"{folder}/new {{at}}", some(at), task="stack_cube", episodes_per_shard=7),
        lambda at: append_store(f"{folder}/old {{at}}", some(at)),
    ):
        if (child := os.fork()) == 0:
            die(at, call)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(folder, hash before) of writers that died: of ``new AT`` and, appending to five episodes, of ``old AT``."""
    folder = tmp_path_factory.mktemp("killed")
    for at in ("episode", "publish"):
        write_store(folder / f"old {at}", open_store(bundled_path("stack_cube_demos")).read(0, 5), task="stack_cube")
    before = open_store(folder / "old episode").hash
    code = KILLED.format(root=str(Path(__file__).parents[2]), folder=folder)
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["9"] * 4, done.stderr
    return folder, before


@pytest.mark.parametrize("at", ["episode", "publish"])
def test_killed_while_writing(killed: tuple[Path, str], at: str) -> None:
    folder, before = killed
    assert not (folder / f"new {at}").exists()
    assert open_store(folder / f"old {at}").hash == before
    again = append_store(folder / f"old {at}", open_store(bundled_path("stack_cube_demos")).read(5, 9))
    assert again.n_episodes == 9
    wanted = write_store(
        folder / f"new {at}", open_store(bundled_path("stack_cube_demos")).read(0, 9), task="stack_cube"
    )
    assert again.hash == store_hash(wanted)


def test_refuses_what_it_should_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_store(tmp_path / "s", episodes(), task="stack")
    with pytest.raises(InputError, match="it exists already; pass overwrite=True"):
        write_store(tmp_path / "s", episodes(), task="stack")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("keep")
    with pytest.raises(InputError, match="not a jaxeval store, so it is not overwritten"):
        write_store(tmp_path / "mine", episodes(), task="stack", overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "keep"
    with pytest.raises(InputError, match="no episodes to write"):
        write_store(tmp_path / "n", [], task="stack")
    with pytest.raises(InputError, match="it has no frames"):
        write_store(
            tmp_path / "n", [dataclasses.replace(episode(0, 1), **empty(), joints=None, actions=None)], task="stack"
        )
    with pytest.raises(InputError, match="joints has shape"):
        wide = dataclasses.replace(episode(1, 4), joints=np.zeros((4, 9)))
        write_store(tmp_path / "n", [episode(0, 4), wide], task="stack")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write there \(.+\); choose a folder"):
        write_store(tmp_path / "file" / "s", episodes(), task="stack")

    def no(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", no)
    with pytest.raises(InputError, match=r"cannot write there \(Permission denied\)"):
        write_store(tmp_path / "n", episodes(), task="stack")
    assert not (tmp_path / "n").exists()


def empty() -> dict[str, object]:
    return {
        "poses": np.zeros((0, 3, 7)),
        "time_s": np.zeros(0),
        "valid": np.zeros((0, 3), bool),
        "frame_valid": np.zeros(0, bool),
        "gripper_width_m": np.zeros(0),
        "sub_task": np.zeros(0, np.int32),
    }


def test_plain_parquet_that_others_open() -> None:
    path = bundled_path("peg_insertion_side_demos")
    frames = pq.read_table(path / "frames")
    store = open_store(path)
    assert frames.num_rows == store.n_frames
    assert frames["pose.peg"].type.list_size == 7 and frames["t_s"].type == pa.float64()
    row = frames.filter(pa.compute.equal(frames["episode"], 3)).to_pylist()[10]
    np.testing.assert_array_equal(np.float64(row["pose.peg"]), store.read(3, 4)[0].body("peg")[10])
    assert row["frame"] == 10 and row["sub_task"] in store.sub_task_names


def test_reads_a_store_whose_row_groups_others_have_cut(tmp_path: Path) -> None:
    store = write_store(tmp_path / "s", episodes(), task="stack")
    before = store.hash
    file = tmp_path / "s" / "frames" / "part-00000.parquet"
    pq.write_table(pq.read_table(file), file, row_group_size=37)
    again = open_store(tmp_path / "s")
    assert len(again._groups) > 10 and again.hash == before
    assert [e.n_frames for e in again.read(2, 5)] == list(LENGTHS[2:5])
    rows = [int(r) for rows, _ in again.batches(bodies=BODIES, episodes_n=2) for r in rows]
    assert sorted(rows) == list(range(len(LENGTHS)))


def spoil_truncate(path: Path) -> None:
    file = path / "frames" / "part-00000.parquet"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def spoil_lfs(path: Path) -> None:
    (path / "frames" / "part-00000.parquet").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


def spoil_column(path: Path) -> None:
    file = path / "frames" / "part-00000.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["pose.cube"]), file)


def spoil_rows(path: Path) -> None:
    file = path / "frames" / "part-00000.parquet"
    pq.write_table(pq.read_table(file).slice(0, 100), file)


def spoil_version(path: Path) -> None:
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | {"format_version": 99}))


SPOILED = [
    (spoil_truncate, r"part-00000\.parquet: truncated or corrupt.*; copy it again"),
    (spoil_lfs, r"part-00000\.parquet: this is a Git-LFS pointer"),
    (spoil_column, r"part-00000\.parquet: column pose\.cube is missing"),
    (spoil_rows, r"100 frames, expected 607 by episodes\.parquet"),
    (spoil_version, r"meta\.json: format_version 99, expected 1"),
    (lambda p: (p / "meta.json").unlink(), r"has no meta\.json, so it is not a jaxeval store"),
    (lambda p: (p / "meta.json").write_text("{"), r"meta\.json: expected JSON"),
    (lambda p: (p / "episodes.parquet").unlink(), r"episodes\.parquet: the file is missing"),
    (lambda p: (p / "episodes.parquet").write_bytes(b""), r"episodes\.parquet: truncated or corrupt"),
    (lambda p: (p / "frames" / "part-00000.parquet").unlink(), r"part-00000\.parquet: the file is missing"),
]


@pytest.mark.parametrize(("spoil", "says"), SPOILED)
def test_a_bad_store_is_refused_in_one_sentence(tmp_path: Path, spoil: object, says: str) -> None:
    write_store(tmp_path / "s", episodes(), task="stack")
    open_store(tmp_path / "s")
    spoil(tmp_path / "s")
    with pytest.raises(InputError, match=says) as caught:
        open_store(tmp_path / "s")
    assert "\n" not in str(caught.value) and str(tmp_path / "s") in str(caught.value)


def test_a_flipped_bit_is_found_when_read(tmp_path: Path) -> None:
    write_store(tmp_path / "s", episodes(), task="stack")
    file = tmp_path / "s" / "frames" / "part-00000.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(InputError, match="truncated or corrupt"):
        open_store(tmp_path / "s").read()


def test_missing_folder() -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        open_store("/nowhere/at/all")


def test_write_memory_is_one_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer holds at most a row group's frames, however many episodes stream through."""
    monkeypatch.setattr(store_write, "ROW_GROUP_FRAMES_N", 500)
    held: list[int] = []
    add = store_write.ShardWriter.add

    def watch(self: store_write.ShardWriter, e: Episode) -> None:
        add(self, e)
        held.append(self._pending_frames)

    monkeypatch.setattr(store_module.ShardWriter, "add", watch)
    write_store(tmp_path / "s", (episode(k, 90) for k in range(40)), task="stack", episodes_per_shard=9)
    assert len(held) == 40 and max(held) < 500 + 90
