"""The native store: a folder of plain parquet that pandas, polars and DuckDB open as it is.

    frames/part-00000.parquet  one row a frame: episode, frame, t_s, valid, sub_task, gripper_width_m, pose.<body>, ...
    episodes.parquet           one row an episode: episode_id, shard, first_frame, length, success, seed, group, ...
    meta.json                  format version, task, bodies, units, sub-task and joint names, configuration, commit

Episodes are stored *prepared* (time rebased in float64, quaternions unit and continuous, bad frames invalid), together
with the codes of what ``Episode.check`` found, so reading is copying. ``Store.batches`` is the fast way in: it pads
whole row groups at once and holds one row group and one batch a padding bucket in memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.store_check import check_columns, check_episodes, check_frames, check_meta
from jaxeval.io.store_write import (
    FORMAT,
    FORMAT_VERSION,
    UNITS,
    Layout,
    ShardWriter,
    atomic_folder,
    episode_schema,
    frame_schema,
    shard_path,
    write_meta,
    write_table,
)
from jaxeval.types import Episode, EpisodeBatch, bucket_length

Compression = Literal["lz4", "zstd"]

# ---------------------------------------------------------------------------------------------------- writing


def write_store(
    path: str | Path,
    episodes: Iterable[Episode],
    *,
    task: str,
    configuration: dict[str, Any] | None = None,
    commit: str | None = None,
    overwrite: bool = False,
    episodes_per_shard: int = 2048,
    precision: Literal["float32", "float64"] = "float32",
    compression: Compression = "lz4",
) -> Store:
    """Write a new store and return it opened; all or nothing, and never more than one row group in memory.

    Poses are kept in `precision`; ``zstd`` is half a size smaller and ten times slower to write than ``lz4``. The
    bodies, joints and actions of the first episode are those of the store.

    Raises:
        InputError: `path` exists and is not to be overwritten (or is no store), cannot be written, or an episode has
            other bodies, other widths or no frame. Nothing is left behind.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path}: it exists already; pass overwrite=True, choose another path, or append to it")
    if path.exists() and _format_of(path) != FORMAT:
        raise InputError(f"{path}: it is not a jaxeval store, so it is not overwritten; choose another path")
    items = iter(episodes)
    first = next(items, None)
    if first is None:
        raise InputError(f"{path}: there are no episodes to write, expected at least 1; check what was read before")
    with atomic_folder(path, replace=overwrite) as folder:
        (folder / "frames").mkdir()
        writer = ShardWriter(
            folder,
            Layout.of(first, precision),
            told=path,
            task=task,
            episodes_per_shard=episodes_per_shard,
            compression=compression,
        )
        table = _write_all(writer, first, items)
        meta = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "created_by": f"jaxeval {_version()}",
            "commit": commit,
            "task": task,
            "bodies": list(writer.layout.bodies),
            "sub_task_names": writer.sub_task_names,
            "joint_names": list(writer.layout.joint_names),
            "joints_n": writer.layout.joints_n,
            "actions_n": writer.layout.actions_n,
            "signals": dict(writer.layout.signals),
            "precision": precision,
            "compression": compression,
            "episodes_per_shard": episodes_per_shard,
            "units": UNITS,
            "configuration": configuration or {},
        }
        write_meta(folder / "meta.json", meta)
        write_table(folder / "episodes.parquet", table)
    return open_store(path)


def append_store(path: str | Path, episodes: Iterable[Episode]) -> Store:
    """Add episodes as whole new shards, seen by readers all at once; one writer at a time.

    Raises:
        InputError: no store at `path`, or as `write_store`. The store is then as it was.
    """
    store = open_store(path)
    items = iter(episodes)
    first = next(items, None)
    if first is None:
        return store
    meta = dict(store.meta)
    writer = ShardWriter(
        store.path,
        store.layout,
        told=store.path,
        task=store.task,
        sub_task_names=store.sub_task_names,
        first=(store.n_episodes, store.n_frames, int(store.column("shard")[-1]) + 1),
        episodes_per_shard=meta["episodes_per_shard"],
        compression=meta["compression"],
    )
    table = _write_all(writer, first, items)
    write_meta(store.path / "meta.json", meta | {"sub_task_names": writer.sub_task_names})
    write_table(store.path / "episodes.parquet", pa.concat_tables([store.episodes, table]))
    return open_store(path)


def _write_all(writer: ShardWriter, first: Episode, items: Iterator[Episode]) -> pa.Table:
    try:
        writer.add(first)
        for episode in items:
            writer.add(episode)
        table = writer.close()
        writer.publish()
    except BaseException:
        writer.abandon()
        raise
    return table


def _version() -> str:
    try:
        return metadata.version("jaxeval")
    except metadata.PackageNotFoundError:
        return "unknown"


# ---------------------------------------------------------------------------------------------------- reading


def open_store(path: str | Path) -> Store:
    """Open a store for reading; every file is checked now, so that reading does not fail half way.

    Raises:
        InputError: the folder, a file or a column is missing, truncated, a Git-LFS pointer or of another version.
    """
    path = Path(path)
    if not path.is_dir():
        found = "it is a file" if path.exists() else "there is no such folder"
        raise InputError(f"{path}: {found}, expected the folder of a jaxeval store; check the path")
    meta_path = path / "meta.json"
    if not meta_path.is_file():
        raise InputError(f"{path}: it has no meta.json, so it is not a jaxeval store; write it with write_store")
    refuse_lfs_pointer(meta_path)
    try:
        meta = json.loads(meta_path.read_text())
        if meta["format"] != FORMAT:
            raise KeyError
        version = meta["format_version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f'{meta_path}: expected JSON with "format": "{FORMAT}"; write the store again') from error
    if version != FORMAT_VERSION:
        raise InputError(
            f"{meta_path}: format_version {version}, expected {FORMAT_VERSION}; "
            "read it with the jaxeval version named under created_by and write it again"
        )
    check_meta(meta_path, meta)
    return Store(path, meta)


class Store:
    """A store opened for reading. Poses are wxyz_xyz, metres; time is in seconds from each episode's start."""

    def __init__(self, path: Path, meta: dict[str, Any]) -> None:
        self.path, self.meta = path, meta
        self.task: str = meta["task"]
        self.bodies: tuple[str, ...] = tuple(meta["bodies"])
        self.sub_task_names: tuple[str, ...] = tuple(meta["sub_task_names"])
        self.joint_names: tuple[str, ...] = tuple(meta["joint_names"])
        self.signals: dict[str, int] = meta.get("signals", {})
        """Width of every recorded signal, 0 for one number a frame."""
        self.layout = Layout(
            self.bodies,
            meta["joints_n"],
            meta["actions_n"],
            self.joint_names,
            meta["precision"],
            tuple(self.signals.items()),
        )
        table = path / "episodes.parquet"
        self.episodes: pa.Table = _guarded(table, lambda: pq.read_table(table))
        check_columns(table, self.episodes.schema, episode_schema(self.bodies))
        check_episodes(table, self.episodes)
        self.n_episodes: int = self.episodes.num_rows
        self._length = self.column("length").astype(np.int64)
        self._first = np.concatenate([[0], np.cumsum(self._length)])
        self.n_frames: int = int(self._first[-1])
        if not np.array_equal(self._first[:-1], self.column("first_frame")):
            raise InputError(f"{table}: first_frame is not the running sum of length; write the store again")
        self._groups, self._group_first = self._row_groups()
        self._origin = np.stack(self.episodes["origin_m"].to_numpy()) if self.n_episodes else np.zeros((0, 3))

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, task={self.task!r}, {self.n_episodes} episodes, {self.n_frames} frames)"

    def column(self, name: str) -> np.ndarray:
        """One column of ``episodes.parquet`` as numpy; nulls become None or NaN."""
        return self.episodes[name].to_numpy()

    def read(self, start: int = 0, stop: int | None = None) -> list[Episode]:
        """Episodes [start, stop) in float64; only the row groups that hold them are read."""
        start, stop, _ = slice(start, stop).indices(self.n_episodes)
        return self._episodes(start, stop, self._frames(start, stop)) if stop > start else []

    def iter_episodes(self) -> Iterator[Episode]:
        """Every episode in order, one row group in memory at a time."""
        for start, stop in self._chunks(0, self.n_episodes):
            yield from self._episodes(start, stop, self._frames(start, stop))

    def batches(
        self,
        *,
        bodies: tuple[str, ...],
        episodes_n: int,
        start: int = 0,
        stop: int | None = None,
        dtype: Any = np.float32,
        joints: bool = False,
        signals: tuple[str, ...] = (),
    ) -> Iterator[tuple[np.ndarray, EpisodeBatch]]:
        """Padded batches of up to `episodes_n` episodes of one padding bucket, with the episodes' table rows.

        Rows ascend within a batch; a bucket's last batch may be smaller. Positions are in metres from the episode's
        ``origin_m`` (zero but for far-off worlds). ``joints`` brings the joints along, if the store has any, and
        ``signals`` those of these names. Memory: two row groups, and one batch a bucket.

        Raises:
            InputError: at once, if the store lacks one of `bodies` or `signals`; later, if a row group cannot be read.
        """
        self._require(bodies)
        if absent := [s for s in signals if s not in self.signals]:
            raise lacks_signals(self.path, absent, self.signals)
        start, stop, _ = slice(start, stop).indices(self.n_episodes)
        more = (("joints", self.meta["joints_n"]),) if joints and self.meta["joints_n"] else ()
        more += tuple((f"signal.{s}", self.signals[s]) for s in signals)
        return self._batches(tuple(bodies), episodes_n, start, stop, np.dtype(dtype), more)

    def _require(self, bodies: Iterable[str]) -> None:
        if absent := [b for b in bodies if b not in self.bodies]:
            raise InputError(
                f"{self.path}: no body {', '.join(absent)}; it has {', '.join(self.bodies)}; "
                "choose among these or record the missing ones"
            )

    def _batches(
        self, bodies: tuple[str, ...], episodes_n: int, start: int, stop: int, dtype: np.dtype, more: More
    ) -> Iterator[tuple[np.ndarray, EpisodeBatch]]:
        success = _success(self.episodes["success_at_end"])
        buckets = np.array([bucket_length(n) for n in range(int(self._length.max(initial=0)) + 1)])[self._length]
        left = {int(b): int(n) for b, n in zip(*np.unique(buckets[start:stop], return_counts=True), strict=True)}
        pending: dict[int, _Padding] = {}
        columns = ["t_s", "valid", "gripper_width_m", *(f"pose.{b}" for b in bodies), *dict(more)]
        chunks = list(self._chunks(start, stop))
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self._frames, *chunks[0], columns) if chunks else None
            for i, (a, b) in enumerate(chunks):
                assert ahead is not None
                frames = _Frames(ahead.result(), bodies, self.path, dtype, more)
                if i + 1 < len(chunks):
                    ahead = reader.submit(self._frames, *chunks[i + 1], columns)
                for bucket in np.unique(buckets[a:b]):
                    rows = a + np.flatnonzero(buckets[a:b] == bucket)
                    while rows.size:
                        if (padding := pending.get(int(bucket))) is None:
                            size = min(episodes_n, left[int(bucket)])
                            padding = pending[int(bucket)] = _Padding(size, int(bucket), bodies, dtype, more)
                        now, rows = rows[: padding.room], rows[padding.room :]
                        padding.add(now, self._first[now] - self._first[a], self._length[now], frames)
                        if not padding.room:
                            left[int(bucket)] -= padding.size
                            yield pending.pop(int(bucket)).batch(success)

    def _row_groups(self) -> tuple[list[tuple[Path, pq.FileMetaData, int]], np.ndarray]:
        """Every row group in order as (file, its footer, number), and the frames at which they begin and end."""
        groups: list[tuple[Path, pq.FileMetaData, int]] = []
        sizes: list[int] = []
        shards = self.column("shard")
        expected = frame_schema(self.layout)
        for shard in np.unique(shards):
            file = shard_path(self.path, int(shard))
            footer = _guarded(file, lambda file=file: pq.read_metadata(file))
            check_columns(file, _guarded(file, footer.schema.to_arrow_schema), expected)
            rows, want = footer.num_rows, int(self._length[shards == shard].sum())
            if rows != want:
                raise InputError(f"{file}: {rows} frames, expected {want} by episodes.parquet; write the store again")
            groups += [(file, footer, i) for i in range(footer.num_row_groups)]
            sizes += [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        return groups, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def _chunks(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Runs of episodes that end where a row group ends: what is read at once."""
        ends = np.flatnonzero(np.isin(self._first, self._group_first))  # episodes that begin with a row group
        for end in ends[(ends > start) & (ends < stop)]:
            yield start, int(end)
            start = int(end)
        if start < stop:
            yield start, stop

    def _frames(self, start: int, stop: int, columns: list[str] | None = None) -> pa.Table:
        """Frames of episodes [start, stop), from the row groups that hold them."""
        a, b = int(self._first[start]), int(self._first[stop])
        g0 = int(np.searchsorted(self._group_first, a, side="right")) - 1
        g1 = int(np.searchsorted(self._group_first, b, side="left"))
        tables = [_read_row_group(*group, columns) for group in self._groups[g0:g1]]
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        return table.slice(a - int(self._group_first[g0]), b - a)

    def _episodes(self, start: int, stop: int, table: pa.Table) -> list[Episode]:
        frames = _Frames(table, self.bodies, self.path, np.float64)
        labels = _labels(table["sub_task"], self.sub_task_names)
        extra = {
            name: _matrix(table, name, self.meta[f"{name}_n"], self.path) if self.meta[f"{name}_n"] else None
            for name in ("joints", "actions")
        }
        signals = {s: _column(table, f"signal.{s}", n, self.path).astype(np.float64) for s, n in self.signals.items()}
        out = []
        for k, row in enumerate(self.episodes.slice(start, stop - start).to_pylist(), start):
            here = slice(int(self._first[k] - self._first[start]), int(self._first[k + 1] - self._first[start]))
            poses = frames.poses[here].copy()
            poses[..., 4:] += self._origin[k]
            half = np.array([row[f"half_size_m.{b}"] or [np.nan] * 3 for b in self.bodies], np.float64)
            out.append(
                Episode(
                    poses=poses,
                    time_s=frames.time_s[here],
                    valid=frames.valid[here],
                    gripper_width_m=_known(frames.width_m[here].astype(np.float64)),
                    sub_task=labels[here] if (labels[here] >= 0).any() else None,
                    joints=_known(None if extra["joints"] is None else extra["joints"][here]),
                    actions=_known(None if extra["actions"] is None else extra["actions"][here]),
                    half_size_m=_known(half),
                    signals={name: x[here] for name, x in signals.items()} or None,
                    bodies=self.bodies,
                    sub_task_names=self.sub_task_names,
                    joint_names=tuple(self.meta["joint_names"]),
                    **{
                        key: row[key]
                        for key in (
                            "success_once",
                            "success_at_end",
                            "seed",
                            "speed",
                            "episode_id",
                            "initial_condition_id",
                            "initial_condition_hash",
                            "group",
                            "task",
                            "source",
                        )
                    },
                )
            )
        return out

    @property
    def hash(self) -> str:
        """``store_hash`` of this store."""
        return store_hash(self)


def store_hash(store: Store | str | Path) -> str:
    """SHA-256 (hex) of what the store says, whatever its shards, its compression or where it came from.

    Frames, lengths, ids, success flags, seeds, speeds, groups and sizes count; ``source`` and meta.json do not.
    """
    store = store if isinstance(store, Store) else open_store(store)
    sums = {f"pose.{b}": hashlib.sha256() for b in store.bodies}
    arrays: dict[str, np.ndarray]
    sums |= {key: hashlib.sha256() for key in ("t_s", "valid", "gripper_width_m", "sub_task", "joints", "actions")}
    met: dict[int, int] = {}  # labels in the order in which frames first bear them
    for start, stop in store._chunks(0, store.n_episodes):
        table = store._frames(start, stop)
        frames = _Frames(table, store.bodies, store.path, store.meta["precision"])
        arrays = {f"pose.{b}": frames.poses[:, i] for i, b in enumerate(store.bodies)}
        arrays |= {"t_s": frames.time_s, "valid": frames.valid, "gripper_width_m": frames.width_m}
        labels = _labels(table["sub_task"], store.sub_task_names)
        for label in labels[np.sort(np.unique(labels, return_index=True)[1])]:
            met.setdefault(int(label), len(met))
        order = [met.get(k, 0) for k in range(-1, len(store.sub_task_names))]
        arrays["sub_task"] = np.array(order, np.int32)[labels + 1]
        for name in ("joints", "actions"):
            if store.meta[f"{name}_n"]:
                arrays[name] = _matrix(table, name, store.meta[f"{name}_n"], store.path)
        for name, size in store.signals.items():
            arrays[f"signal.{name}"] = _column(table, f"signal.{name}", size, store.path)
            sums.setdefault(f"signal.{name}", hashlib.sha256())
        for name, array in arrays.items():
            sums[name].update(np.ascontiguousarray(array).tobytes())
    whole = hashlib.sha256()
    for name, total in sorted(sums.items()):
        whole.update(f"{name}:{total.hexdigest()};".encode())
    names = [store.sub_task_names[k] if k >= 0 else None for k in met]
    told = store.episodes.drop_columns(["source", "shard", "first_frame", "findings"])
    whole.update(json.dumps([store.task, store.bodies, names, told.to_pylist()]).encode())
    return whole.hexdigest()


# -------------------------------------------------------------------------------------------------- the fast path


More = tuple[tuple[str, int], ...]
"""Further columns to read, with their widths: joints and signals."""


class _Frames:
    """Columns of one table of frames as numpy; poses are [T, N, 7], so that a frame is one run of memory."""

    def __init__(self, table: pa.Table, bodies: tuple[str, ...], path: Path, dtype: Any, more: More = ()) -> None:
        table = table.combine_chunks()
        if absent := [n for n in ("t_s", "valid", *(f"pose.{b}" for b in bodies)) if table[n].null_count]:
            raise InputError(f"{path}: column {absent[0]} lacks values in some frames; write the store again")
        self.time_s = table["t_s"].to_numpy()
        self.valid = table["valid"].to_numpy()
        self.width_m = table["gripper_width_m"].to_numpy()
        self.poses = np.empty((table.num_rows, len(bodies), 7), dtype)
        for i, b in enumerate(bodies):
            self.poses[:, i] = _matrix(table, f"pose.{b}", 7, path)
        self.more = {name: _column(table, name, size, path) for name, size in more}
        check_frames(path, bodies, self.time_s, self.poses)


class _Padding:
    """One padding bucket being filled: a batch's arrays and how many of its episodes are in."""

    def __init__(self, size: int, length: int, bodies: tuple[str, ...], dtype: np.dtype, more: More) -> None:
        self.size, self.length, self.bodies, self.filled = size, length, bodies, 0
        self.rows = np.empty(size, np.int64)
        self.poses = np.empty((size, length, len(bodies), 7), dtype)
        self.time_s = np.empty((size, length), dtype)
        self.width_m = np.empty((size, length), dtype)
        self.valid = np.empty((size, length), bool)
        self.more = {name: np.empty((size, length, n) if n else (size, length), dtype) for name, n in more}

    @property
    def room(self) -> int:
        return self.size - self.filled

    def add(self, rows: np.ndarray, first: np.ndarray, length: np.ndarray, frames: _Frames) -> None:
        """Copy whole episodes (first frame and length in `frames`) into the next places; the last frame repeats."""
        at = slice(self.filled, self.filled + rows.size)
        step = np.arange(self.length)
        index = first[:, None] + np.minimum(step, length[:, None] - 1)
        self.rows[at] = rows
        self.time_s[at] = frames.time_s[index]
        self.width_m[at] = frames.width_m[index]
        self.valid[at] = frames.valid[index] & (step < length[:, None])
        width = frames.poses.shape[1] * 7
        flat = self.poses[at].reshape(rows.size, self.length, width)  # a view: the batch is contiguous
        np.take(frames.poses.reshape(len(frames.poses), width), index, axis=0, out=flat, mode="clip")
        for name, array in self.more.items():
            array[at] = frames.more[name][index]
        self.filled += rows.size

    def batch(self, success: np.ndarray) -> tuple[np.ndarray, EpisodeBatch]:
        return self.rows, EpisodeBatch(
            poses=self.poses,
            time_s=self.time_s,
            valid=self.valid,
            gripper_width_m=self.width_m,
            success=success[self.rows],
            joints=self.more.get("joints"),
            signals={k.removeprefix("signal."): x for k, x in self.more.items() if k.startswith("signal.")},
            bodies=self.bodies,
        )


def _read_row_group(file: Path, footer: pq.FileMetaData, i: int, columns: list[str] | None) -> pa.Table:
    def read() -> pa.Table:
        with pq.ParquetFile(file, metadata=footer, memory_map=True, page_checksum_verification=True) as parquet:
            return parquet.read_row_group(i, columns=columns)

    return _guarded(file, read)


def _matrix(table: pa.Table, name: str, size: int, path: Path) -> np.ndarray:
    """[T, size] from a column of fixed-size lists (or of lists that all have that size)."""
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    flat = column.flatten()
    if len(flat) != size * len(column):
        raise InputError(f"{path}: column {name} holds lists that are not {size} long; write the store again")
    return flat.to_numpy(zero_copy_only=False).reshape(-1, size)


def _column(table: pa.Table, name: str, size: int, path: Path) -> np.ndarray:
    """[T, size], or [T] if the size is 0."""
    return _matrix(table, name, size, path) if size else table[name].to_numpy()


def lacks_signals(path: Path, absent: Sequence[str], known: Iterable[str]) -> InputError:
    """What to say of signals that were not recorded."""
    return InputError(
        f"{path}: no signal {', '.join(absent)}; it has {', '.join(known) or 'none'}; "
        "rollouts of `jaxeval rollout task=parcel_stow` and its like have them"
    )


def _labels(column: pa.ChunkedArray, names: tuple[str, ...]) -> np.ndarray:
    """[T] int32 indices into `names`, -1 for null."""
    out = [np.zeros(0, np.int32)]
    for chunk in column.chunks:
        chunk = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        table = np.array([names.index(n) if n in names else -1 for n in chunk.dictionary.to_pylist()] + [-1], np.int32)
        out.append(table[chunk.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)])
    return np.concatenate(out)


def _success(column: pa.ChunkedArray) -> np.ndarray:
    """[B] int32: 1, 0, or -1 for unknown."""
    return column.cast(pa.int32()).fill_null(-1).to_numpy()


def _known(array: np.ndarray | None) -> np.ndarray | None:
    """None for an array that is NaN throughout: not recorded."""
    return None if array is None or np.isnan(array).all() else array


def _format_of(path: Path) -> str | None:
    try:
        return json.loads((path / "meta.json").read_text())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _guarded(path: Path, read: Any) -> Any:
    """`read()`, with whatever pyarrow says about a bad file turned into one sentence."""
    try:
        return read()
    except FileNotFoundError as error:
        raise InputError(f"{path}: the file is missing; copy the whole store or write it again") from error
    except PermissionError as error:
        raise InputError(f"{path}: no permission to read it; ask its owner or copy it") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError) as error:
        if path.is_file():
            refuse_lfs_pointer(path)
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(f"{path}: truncated or corrupt, not readable as parquet ({reason}); copy it again") from error
