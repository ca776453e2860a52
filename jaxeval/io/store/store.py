"""The native store: a folder of plain parquet that pandas, polars and DuckDB open as it is.

    frames/part-00000.parquet  one row a frame: episode, frame, t_s, frame_valid, sub_task, gripper_width_m,
                               pose.<body>, valid.<body>, ...
    episodes.parquet           one row an episode: episode_id, shard, first_frame, length, success, seed, group, ...,
                               attribute.<name> (null where an episode lacks it)
    meta.json                  format version, task, bodies, units, sub-task and joint names, configuration, commit

``frame_valid`` says whether the frame exists, ``valid.<body>`` whether the body was seen in it: columns of their own,
so that any program reads them and only those of the bodies asked for are read here. Format 1 had one column ``valid``
for both, and no attributes; it is read as it was. Episodes are stored *prepared* (time rebased in float64, quaternions
unit and continuous, bad poses invalid), together with the codes of what ``Episode.check`` found, so reading is copying.
``Store.batches`` is the fast way in: it pads whole row groups at once and holds one row group and one batch a padding
bucket in memory.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.store.attributes import PREFIX, attributes_of, names_in
from jaxeval.io.store.check import check_attributes, check_columns, check_episodes, check_meta
from jaxeval.io.store.read import (
    Frames,
    More,
    Padding,
    column_of,
    guarded,
    known,
    labels_of,
    lacks_signals,
    mask_columns,
    matrix,
    mended_of,
    read_row_group,
    success_of,
)
from jaxeval.io.store.write import (
    FORMAT,
    FORMAT_VERSION,
    LATER,
    READABLE,
    UNITS,
    FrameFile,
    Layout,
    ShardWriter,
    atomic_folder,
    episode_schema,
    frame_schema,
    shard_path,
    with_later,
    with_masks,
    write_meta,
    write_table,
    writing,
)
from jaxeval.types import Episode, EpisodeBatch, bucket_length

Compression = Literal["lz4", "zstd", "none"]

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
    as_they_are: bool = False,
) -> Store:
    """Write a new store and return it opened; all or nothing, and never more than one row group in memory.

    Poses are kept in `precision`; ``zstd`` is half a size smaller and ten times slower to write than ``lz4``. The
    bodies, joints and actions of the first episode are those of the store. Episodes are checked and prepared, unless
    they are to be kept `as_they_are`: for a store that is soon read again, with ``none`` for its compression.

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
            named=path,
            task=task,
            episodes_per_shard=episodes_per_shard,
            compression=compression,
            as_they_are=as_they_are,
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
        write_table(folder / "episodes.parquet", _with_attributes(table, writer.attributes()))
    return open_store(path)


def append_store(path: str | Path, episodes: Iterable[Episode]) -> Store:
    """Add episodes as whole new shards, seen by readers all at once; one writer at a time.

    A store of format 1 is rewritten in the newest format first: the same episodes, findings and hash.

    Raises:
        InputError: no store at `path`, or as `write_store`. The store is then as it was.
    """
    store = open_store(path)
    items = iter(episodes)
    first = next(items, None)
    if first is None:
        return store
    if store.version != FORMAT_VERSION:
        store = _upgraded(store)
    meta = dict(store.meta)
    writer = ShardWriter(
        store.path,
        store.layout,
        named=store.path,
        task=store.task,
        sub_task_names=store.sub_task_names,
        first=(store.n_episodes, store.n_frames, int(store.column("shard")[-1]) + 1),
        episodes_per_shard=meta["episodes_per_shard"],
        compression=meta["compression"],
        attributes=(store.column("episode_id").tolist(), attributes_of(store.episodes)),
    )
    table = _write_all(writer, first, items)
    write_meta(store.path / "meta.json", meta | {"sub_task_names": writer.sub_task_names})
    old = store.episodes.select([n for n in store.episodes.column_names if not n.startswith(PREFIX)])
    write_table(store.path / "episodes.parquet", _with_attributes(pa.concat_tables([old, table]), writer.attributes()))
    return open_store(path)


def _upgraded(store: Store) -> Store:
    """The store of format 1 rewritten in its place in the newest one, all or nothing; its other files stay."""
    with atomic_folder(store.path, replace=True) as folder:
        with writing(store.path):
            shutil.copytree(store.path, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("frames"))
            (folder / "frames").mkdir()
        for shard in np.unique(store.column("shard")).tolist():
            with FrameFile(shard_path(folder, shard), frame_schema(store.layout), store.meta["compression"]) as file:
                for path, footer, i in store._groups:
                    if path == shard_path(store.path, shard):
                        file.write(with_masks(read_row_group(path, footer, i, None), store.layout))
        write_meta(folder / "meta.json", store.meta | {"format_version": FORMAT_VERSION, "units": UNITS})
    return open_store(store.path)


def _with_attributes(table: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    for name, column in columns.items():
        table = table.append_column(f"{PREFIX}{name}", column)
    return table


def _write_all(writer: ShardWriter, first: Episode, items: Iterator[Episode]) -> pa.Table:
    try:
        writer.add(first)
        for episode in items:
            writer.add(episode)
        table = writer.close()
        writer.attributes()  # those that do not fit together are refused before anything is published
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
        meta = json.loads(meta_path.read_text("utf-8"))
        if meta["format"] != FORMAT:
            raise KeyError
        version = meta["format_version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f'{meta_path}: expected JSON with "format": "{FORMAT}"; write the store again') from error
    if version not in READABLE:
        raise InputError(
            f"{meta_path}: format_version {version}, expected {' or '.join(map(str, READABLE))}; "
            "read it with the jaxeval version named under created_by and write it again"
        )
    check_meta(meta_path, meta)
    return Store(path, meta)


class Store:
    """A store opened for reading. Poses are wxyz_xyz, metres; time is in seconds from each episode's start."""

    def __init__(self, path: Path, meta: dict[str, Any]) -> None:
        self.path, self.meta = path, meta
        self.version: int = meta["format_version"]
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
        self.episodes: pa.Table = guarded(table, lambda: pq.ParquetFile(table).read())
        self.episodes = with_later(self.episodes)
        check_columns(table, self.episodes.schema, episode_schema(self.bodies))
        check_episodes(table, self.episodes)
        check_attributes(table, self.episodes.schema)
        self.attribute_names: tuple[str, ...] = names_in(self.episodes)
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

        Rows ascend within a batch; a bucket's last batch may be smaller. Positions are in metres from
        ``origin_m`` of the batch (zero but for far-off worlds). ``joints`` brings the joints along, if the store has
        any, and ``signals`` those of these names. Memory: two row groups, and one batch a bucket.

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
        success = success_of(self.episodes["success_at_end"])
        buckets = np.array([bucket_length(n) for n in range(int(self._length.max(initial=0)) + 1)])[self._length]
        left = {int(b): int(n) for b, n in zip(*np.unique(buckets[start:stop], return_counts=True), strict=True)}
        pending: dict[int, Padding] = {}
        masks = mask_columns(bodies, self.version)
        columns = ["t_s", *masks, "gripper_width_m", *(f"pose.{b}" for b in bodies), *dict(more)]
        joint_names = self.joint_names if "joints" in dict(more) else ()
        chunks = list(self._chunks(start, stop))
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self._frames, *chunks[0], columns) if chunks else None
            for i, (a, b) in enumerate(chunks):
                assert ahead is not None
                exact = np.float64 if self.meta["precision"] == "float64" else dtype
                frames = Frames(ahead.result(), bodies, self.path, exact, more, version=self.version)
                if exact != dtype:
                    frames.near(self._first[a:b] - self._first[a], self._length[a:b], dtype)
                if i + 1 < len(chunks):
                    ahead = reader.submit(self._frames, *chunks[i + 1], columns)
                for bucket in np.unique(buckets[a:b]):
                    rows = a + np.flatnonzero(buckets[a:b] == bucket)
                    while rows.size:
                        if (padding := pending.get(int(bucket))) is None:
                            size = min(episodes_n, left[int(bucket)])
                            padding = pending[int(bucket)] = Padding(size, int(bucket), bodies, dtype, more)
                        now, rows = rows[: padding.room], rows[padding.room :]
                        first = self._first[now] - self._first[a]
                        padding.add(now, first, self._length[now], frames, self._origin[now])
                        if not padding.room:
                            left[int(bucket)] -= padding.size
                            yield pending.pop(int(bucket)).batch(success, joint_names)

    def _row_groups(self) -> tuple[list[tuple[Path, pq.FileMetaData, int]], np.ndarray]:
        """Every row group in order as (file, its footer, number), and the frames at which they begin and end."""
        groups: list[tuple[Path, pq.FileMetaData, int]] = []
        sizes: list[int] = []
        shards = self.column("shard")
        expected = frame_schema(self.layout, self.version)
        for shard in np.unique(shards):
            file = shard_path(self.path, int(shard))
            footer = guarded(file, lambda file=file: pq.read_metadata(file))
            check_columns(file, guarded(file, footer.schema.to_arrow_schema), expected)
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
        tables = [read_row_group(*group, columns) for group in self._groups[g0:g1]]
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        return table.slice(a - int(self._group_first[g0]), b - a)

    def _episodes(self, start: int, stop: int, table: pa.Table) -> list[Episode]:
        frames = Frames(table, self.bodies, self.path, np.float64, version=self.version)
        attributes = attributes_of(self.episodes.slice(start, stop - start))
        labels = labels_of(table["sub_task"], self.sub_task_names)
        extra = {
            name: matrix(table, name, self.meta[f"{name}_n"], self.path) if self.meta[f"{name}_n"] else None
            for name in ("joints", "actions")
        }
        signals = {s: column_of(table, f"signal.{s}", n, self.path).astype(np.float64) for s, n in self.signals.items()}
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
                    frame_valid=frames.frame_valid[here],
                    attributes=attributes[k - start],
                    gripper_width_m=known(frames.width_m[here].astype(np.float64)),
                    sub_task=labels[here] if (labels[here] >= 0).any() else None,
                    joints=known(None if extra["joints"] is None else extra["joints"][here]),
                    actions=known(None if extra["actions"] is None else extra["actions"][here]),
                    half_size_m=known(half),
                    signals={name: x[here] for name, x in signals.items()} or None,
                    bodies=self.bodies,
                    sub_task_names=self.sub_task_names,
                    joint_names=tuple(self.meta["joint_names"]),
                    start_ns=row["start_ns"],
                    mended=mended_of(row["mended"]),
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
    """SHA-256 (hex) of what the store says, whatever its format, its shards, its compression or where it came from.

    Frames, lengths, ids, success flags, seeds, speeds, groups, sizes and attributes count; ``source``, the recording's
    clock, what was noticed or mended, and meta.json do not. What format 1 could not say (attributes, bodies lost in
    frames that exist) counts only where it is said, so that the same episodes have the same hash in both formats.
    """
    store = store if isinstance(store, Store) else open_store(store)
    sums = {f"pose.{b}": hashlib.sha256() for b in store.bodies}
    arrays: dict[str, np.ndarray]
    sums |= {key: hashlib.sha256() for key in ("t_s", "valid", "gripper_width_m", "sub_task", "joints", "actions")}
    sums |= {f"lost.{b}": hashlib.sha256() for b in store.bodies}
    some_lost = False
    met: dict[int, int] = {}  # labels in the order in which frames first bear them
    for start, stop in store._chunks(0, store.n_episodes):
        table = store._frames(start, stop)
        frames = Frames(table, store.bodies, store.path, store.meta["precision"], version=store.version)
        arrays = {f"pose.{b}": frames.poses[:, i] for i, b in enumerate(store.bodies)}
        arrays |= {"t_s": frames.time_s, "valid": frames.frame_valid, "gripper_width_m": frames.width_m}
        lost = frames.frame_valid[:, None] & ~frames.valid
        some_lost |= bool(lost.any())
        arrays |= {f"lost.{b}": lost[:, i] for i, b in enumerate(store.bodies)}
        labels = labels_of(table["sub_task"], store.sub_task_names)
        for label in labels[np.sort(np.unique(labels, return_index=True)[1])]:
            met.setdefault(int(label), len(met))
        order = [met.get(k, 0) for k in range(-1, len(store.sub_task_names))]
        arrays["sub_task"] = np.array(order, np.int32)[labels + 1]
        for name in ("joints", "actions"):
            if store.meta[f"{name}_n"]:
                arrays[name] = matrix(table, name, store.meta[f"{name}_n"], store.path)
        for name, size in store.signals.items():
            arrays[f"signal.{name}"] = column_of(table, f"signal.{name}", size, store.path)
            sums.setdefault(f"signal.{name}", hashlib.sha256())
        for name, array in arrays.items():
            sums[name].update(np.ascontiguousarray(array).tobytes())
    whole = hashlib.sha256()
    for name, total in sorted(sums.items()):
        if name.startswith("lost.") and not some_lost:
            continue
        whole.update(f"{name}:{total.hexdigest()};".encode())
    names = [store.sub_task_names[k] if k >= 0 else None for k in met]
    facts = store.episodes.drop_columns(["source", "shard", "first_frame", "findings", *LATER])
    whole.update(json.dumps([store.task, store.bodies, names, facts.to_pylist()]).encode())
    return whole.hexdigest()


def _format_of(path: Path) -> str | None:
    try:
        return json.loads((path / "meta.json").read_text("utf-8"))["format"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
