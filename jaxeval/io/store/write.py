"""How the native store is laid out on disk, and how it gets there without ever showing half a store.

``jaxeval.io.store.store`` has the public functions; this file has the two schemas, the writer of whole shards, and the
renames that make a write atomic.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxeval.door import check_and_prepare
from jaxeval.io.errors import InputError
from jaxeval.io.files import replacing
from jaxeval.io.store.attributes import typed
from jaxeval.types import Attribute, Episode, Finding, near_origin, one_of

FORMAT = "jaxeval-store"
FORMAT_VERSION = 2
READABLE = (1, 2)
"""Format versions that are read; new stores are of the last."""
ROW_GROUP_FRAMES_N = 65_536
"""A row group closes at the first episode that brings it to this many frames: the unit of a range read."""
LATER: dict[str, pa.DataType] = {
    "start_ns": pa.int64(),
    "mended": pa.list_(pa.struct([(f.name, pa.string()) for f in fields(Finding)])),
}
"""Columns of ``episodes.parquet`` that came after format 2: stores written before lack them."""
UNITS = {
    "start_ns": "nanoseconds, the recording's clock at t_s = 0",
    "t_s": "seconds from the episode's start",
    "gripper_width_m": "metres",
    "pose.<body>": "T_world_body as wxyz_xyz: unit quaternion, then metres from the episode's origin_m",
    "half_size_m.<body>": "metres, half extents",
    "joints": "radians, metres for sliding joints; NaN where not recorded",
    "actions": "as recorded; row t led to frame t; NaN where not recorded",
    "signal.<name>": "as recorded",
    "frame_valid": "the frame exists",
    "valid.<body>": "the body was seen in the frame",
}


@dataclass(frozen=True)
class Layout:
    """What all episodes of one store share."""

    bodies: tuple[str, ...]
    joints_n: int
    actions_n: int
    joint_names: tuple[str, ...]
    precision: str  # "float32" | "float64"
    signals: tuple[tuple[str, int], ...] = ()  # name and width, 0 for one number a frame

    @classmethod
    def of(cls, e: Episode, precision: str) -> Layout:
        """That of one episode."""

        def width(array: np.ndarray | None) -> int:
            return 0 if array is None else int(array.shape[1])

        return cls(
            e.bodies, width(e.joints), width(e.actions), e.joint_names, precision, signal_widths(e.signals or {})
        )

    @property
    def dtype(self) -> np.dtype:
        """Of the poses."""
        return np.dtype(self.precision)


def signal_widths(signals: Mapping[str, np.ndarray]) -> tuple[tuple[str, int], ...]:
    """Name and width of every signal, by name; the width of one number a frame is 0."""
    return tuple((name, x.shape[1] if x.ndim == 2 else 0) for name, x in sorted(signals.items()))


def _vector(size: int, dtype: np.dtype) -> pa.DataType:
    """Fixed-size list whose items are never null: reads twice as fast as one that may hold nulls."""
    return pa.list_(pa.field("item", pa.from_numpy_dtype(dtype), nullable=False), size)


def frame_schema(layout: Layout, version: int = FORMAT_VERSION) -> pa.Schema:
    """Columns of ``frames/part-*.parquet``, one row a frame; format 1 has one mask, of the frame."""
    fields = [
        pa.field("episode", pa.int64(), nullable=False),
        pa.field("frame", pa.int32(), nullable=False),
        pa.field("t_s", pa.float64(), nullable=False),
        pa.field("valid" if version == 1 else "frame_valid", pa.bool_(), nullable=False),
        pa.field("sub_task", pa.dictionary(pa.int32(), pa.string())),
        pa.field("gripper_width_m", pa.float32()),
    ]
    fields += [pa.field(f"pose.{b}", _vector(7, layout.dtype), nullable=False) for b in layout.bodies]
    if version > 1:
        fields += [pa.field(f"valid.{b}", pa.bool_(), nullable=False) for b in layout.bodies]
    for name, size in (("joints", layout.joints_n), ("actions", layout.actions_n)):
        if size:
            fields.append(pa.field(name, _vector(size, np.dtype(np.float32)), nullable=False))
    for name, size in layout.signals:
        kind = _vector(size, layout.dtype) if size else pa.from_numpy_dtype(layout.dtype)
        fields.append(pa.field(f"signal.{name}", kind, nullable=False))
    return pa.schema(fields)


def episode_schema(bodies: tuple[str, ...]) -> pa.Schema:
    """Columns of ``episodes.parquet``, one row an episode; ``findings`` are the codes of ``Episode.check``.

    Columns ``attribute.<name>`` come after these, of the attributes that there are.
    """
    fields: list[tuple[str, pa.DataType]] = [
        ("episode", pa.int64()),
        ("episode_id", pa.string()),
        ("shard", pa.int32()),
        ("first_frame", pa.int64()),
        ("length", pa.int32()),
        ("success_once", pa.bool_()),
        ("success_at_end", pa.bool_()),
        ("seed", pa.int64()),
        ("initial_condition_id", pa.string()),
        ("initial_condition_hash", pa.string()),
        ("speed", pa.float64()),
        ("group", pa.string()),
        ("source", pa.string()),
        ("task", pa.string()),
        ("findings", pa.list_(pa.string())),
        ("origin_m", pa.list_(pa.float64(), 3)),
    ]
    sizes = [(f"half_size_m.{b}", pa.list_(pa.float64(), 3)) for b in bodies]
    return pa.schema([*fields, *sizes, *LATER.items()])


def with_later(episodes: pa.Table) -> pa.Table:
    """The table of episodes with the columns of `LATER`, nulls where it was written before there were any."""
    for name, kind in LATER.items():
        if name not in episodes.column_names:
            episodes = episodes.append_column(name, pa.nulls(episodes.num_rows, kind))
    return episodes


def _encodings(schema: pa.Schema) -> dict[str, str]:
    """Floats by byte planes (smaller, and as fast to read), counters by their differences."""
    out = {"episode": "DELTA_BINARY_PACKED", "frame": "DELTA_BINARY_PACKED"}
    for f in schema:
        if pa.types.is_fixed_size_list(f.type):
            out[f"{f.name}.list.element"] = "BYTE_STREAM_SPLIT"
        elif pa.types.is_floating(f.type):
            out[f.name] = "BYTE_STREAM_SPLIT"
    return out


def _rows(array: np.ndarray | None, frames_n: int, size: int) -> np.ndarray:
    """[T, size] float32, NaN when the episode does not hold the array."""
    if array is None:
        return np.full((frames_n, size), np.nan, np.float32)
    return np.asarray(array, np.float32)


def _named(signals: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{name} [{size}]" if size else name for name, size in signals) or "none"


class FrameFile:
    """One file of frames being written; each table becomes a row group."""

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        codec, level = {"zstd": ("zstd", 19), "lz4": ("lz4", None), "none": ("none", None)}[compression]
        self._parquet = pq.ParquetWriter(
            path,
            schema,
            use_dictionary=["sub_task"],  # pyright: ignore[reportArgumentType]
            column_encoding=_encodings(schema) if compression != "none" else None,
            compression=codec,
            compression_level=level,
            write_page_checksum=True,
        )

    def write(self, table: pa.Table) -> None:
        """Add a row group."""
        self._parquet.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        """Finish the file."""
        self._parquet.close()

    def __enter__(self) -> FrameFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def with_masks(table: pa.Table, layout: Layout) -> pa.Table:
    """Frames of format 1 in the newest: the frame's one mask is also that of every body."""
    columns = {name: table[name] for name in table.column_names} | {"frame_valid": table["valid"]}
    columns |= {f"valid.{b}": table["valid"] for b in layout.bodies}
    schema = frame_schema(layout)
    return pa.table([columns[name] for name in schema.names], schema=schema)


class ShardWriter:
    """Writes episodes as whole shards into `folder`; holds the frames of one row group and the table of episodes."""

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        *,
        named: Path,
        task: str,
        sub_task_names: tuple[str, ...] = (),
        first: tuple[int, int, int] = (0, 0, 0),
        episodes_per_shard: int,
        compression: str,
        attributes: tuple[Sequence[str], Sequence[Mapping[str, Attribute]]] = ((), ()),
        as_they_are: bool = False,
    ) -> None:
        one_of("compression", compression, ("lz4", "zstd", "none"))
        one_of("precision", layout.precision, ("float32", "float64"))
        self.folder, self.layout, self.named, self.task = folder, layout, named, task
        self.sub_task_names = list(sub_task_names)
        self.episode, self.frame, self.shard = first
        self.episodes_per_shard = episodes_per_shard
        self.files: list[Path] = []
        self._ids, self._attributes = list(attributes[0]), list(attributes[1])
        self.schema, self.rows = frame_schema(layout), []
        self.compression, self.as_they_are = compression, as_they_are
        self._pending: list[dict[str, np.ndarray]] = []
        self._pending_frames = self._in_shard = 0
        self._parquet: FrameFile | None = None

    def add(self, e: Episode) -> None:
        """Check, prepare and take in one episode; InputError when it does not fit the store."""
        name, layout = e.episode_id or f"episode {self.episode}", self.layout
        findings, e = ((), e) if self.as_they_are else check_and_prepare(e)
        if shape := next((f for f in findings if f.code in ("shape", "attribute")), None):
            raise InputError(str(shape), code=shape.code)
        if e.n_frames == 0:
            raise InputError(f"{name}: it has no frames, expected at least 1; leave this episode out")
        if set(e.bodies) != set(layout.bodies):
            raise InputError(
                f"{name}: it has bodies {', '.join(e.bodies)} where the store has {', '.join(layout.bodies)}; "
                "write episodes with other bodies to their own store"
            )
        for key, array, size in (("joints", e.joints, layout.joints_n), ("actions", e.actions, layout.actions_n)):
            if array is not None and array.shape != (e.n_frames, size):
                raise InputError(
                    f"{name}: {key} has shape {array.shape}, expected {(e.n_frames, size)} as in the first episode; "
                    "write it to its own store"
                )
        if (found := signal_widths(e.signals or {})) != layout.signals:
            raise InputError(
                f"{name}: its signals are {_named(found)}, expected {_named(layout.signals)} as in the first episode; "
                "write it to its own store"
            )
        e = e.with_bodies(layout.bodies)
        poses = e.poses
        origin = near_origin(poses, e.valid) if layout.precision == "float32" else np.zeros(3)
        if origin.any():
            poses = np.concatenate([poses[..., :4], poses[..., 4:] - origin], axis=-1)
        columns = {
            "episode": np.full(e.n_frames, self.episode, np.int64),
            "frame": np.arange(e.n_frames, dtype=np.int32),
            "t_s": np.asarray(e.time_s, np.float64),
            "frame_valid": e.frame_valid,
            "sub_task": self._labels(e),
            "gripper_width_m": _rows(None if e.gripper_width_m is None else e.gripper_width_m[:, None], e.n_frames, 1),
            "joints": _rows(e.joints, e.n_frames, layout.joints_n),
            "actions": _rows(e.actions, e.n_frames, layout.actions_n),
            "poses": poses.astype(layout.dtype),
        }
        columns |= {f"signal.{k}": np.asarray(x, layout.dtype) for k, x in (e.signals or {}).items()}
        columns |= {f"valid.{b}": e.valid[:, i] for i, b in enumerate(layout.bodies)}
        half = np.full((len(e.bodies), 3), np.nan) if e.half_size_m is None else np.asarray(e.half_size_m)
        if self._in_shard == self.episodes_per_shard:
            self._close_shard()
        self.rows.append(
            {
                "episode": self.episode,
                "episode_id": name if not e.episode_id else e.episode_id,
                "shard": self.shard,
                "first_frame": self.frame,
                "length": e.n_frames,
                "success_once": e.success_once,
                "success_at_end": e.success_at_end,
                "seed": e.seed,
                "initial_condition_id": e.initial_condition_id,
                "initial_condition_hash": e.initial_condition_hash,
                "speed": e.speed,
                "group": e.group,
                "source": e.source,
                "task": e.task or self.task,
                "findings": list(dict.fromkeys(f.code for f in (*e.mended, *findings))),
                "origin_m": origin.tolist(),
                "start_ns": e.start_ns,
                "mended": [asdict(f) for f in e.mended],
            }
            | {
                f"half_size_m.{b}": h.tolist() if np.isfinite(h).all() else None
                for b, h in zip(layout.bodies, half, strict=True)
            }
        )
        self._ids.append(self.rows[-1]["episode_id"])
        self._attributes.append(e.attributes)
        self._pending.append(columns)
        self._pending_frames += e.n_frames
        self._in_shard += 1
        self.episode += 1
        self.frame += e.n_frames
        if self._pending_frames >= ROW_GROUP_FRAMES_N:
            self._flush()

    def close(self) -> pa.Table:
        """Finish the last shard; returns the table of the episodes written."""
        self._close_shard()
        return pa.Table.from_pylist(self.rows, schema=episode_schema(self.layout.bodies))

    def attributes(self) -> dict[str, pa.Array]:
        """Columns of the attributes of all episodes, those there were included; InputError where kinds differ."""
        try:
            return typed(self._ids, self._attributes)
        except InputError as error:
            raise InputError(f"{self.named}: {error}", code=error.code, key=error.key) from error

    def publish(self) -> None:
        """Give the finished shards the names that readers look for."""
        with writing(self.named):
            for file in self.files:
                file.rename(file.with_suffix(""))
            _sync(self.folder / "frames")

    def abandon(self) -> None:
        """Drop what is open and delete the shards that are not published."""
        if self._parquet is not None:
            self._parquet.close()
        for file in self.files:
            file.unlink(missing_ok=True)

    def _labels(self, e: Episode) -> np.ndarray:
        """Recorded labels as indices into the store's names, -1 for none; new names are added."""
        if e.sub_task is None:
            return np.full(e.n_frames, -1, np.int32)
        for label in e.sub_task_names:
            if label not in self.sub_task_names:
                self.sub_task_names.append(label)
        table = np.array([self.sub_task_names.index(label) for label in e.sub_task_names] + [-1], np.int32)
        return table[np.where((e.sub_task >= 0) & (e.sub_task < len(table) - 1), e.sub_task, -1)]

    def _flush(self) -> None:
        if not self._pending:
            return
        frames = {key: np.concatenate([p[key] for p in self._pending]) for key in self._pending[0]}
        poses = frames.pop("poses")
        for i, b in enumerate(self.layout.bodies):
            frames[f"pose.{b}"] = np.ascontiguousarray(poses[:, i])
        width = frames["gripper_width_m"][:, 0]
        columns: list[pa.Array] = []
        for f in self.schema:
            if f.name == "sub_task":
                index = pa.array(frames["sub_task"], mask=frames["sub_task"] < 0)
                columns.append(pa.DictionaryArray.from_arrays(index, pa.array(self.sub_task_names, pa.string())))
            elif f.name == "gripper_width_m":
                columns.append(pa.array(width, mask=np.isnan(width)))
            elif pa.types.is_fixed_size_list(f.type):
                columns.append(pa.FixedSizeListArray.from_arrays(pa.array(frames[f.name].reshape(-1)), type=f.type))
            else:
                columns.append(pa.array(frames[f.name], f.type))
        with writing(self.named):
            if self._parquet is None:
                self.files.append(shard_path(self.folder, self.shard, partial=True))
                self._parquet = FrameFile(self.files[-1], self.schema, self.compression)
            self._parquet.write(pa.Table.from_arrays(columns, schema=self.schema))
        self._pending, self._pending_frames = [], 0

    def _close_shard(self) -> None:
        self._flush()
        if self._parquet is None:
            return
        with writing(self.named):
            self._parquet.close()
            _sync(self.files[-1])
        self._parquet, self._in_shard = None, 0
        self.shard += 1


def shard_path(folder: Path, shard: int, *, partial: bool = False) -> Path:
    """``frames/part-00000.parquet``; a shard still being written has a name that no ``*.parquet`` glob matches."""
    return folder / "frames" / f"part-{shard:05d}.parquet{'.writing' if partial else ''}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # pyarrow's own complaints are faults of ours
            raise
        reason = os.strerror(error.errno)
        raise InputError(f"{path}: cannot write there ({reason}); choose a folder with space that you own") from error


@contextmanager
def atomic_folder(path: Path, *, replace: bool) -> Iterator[Path]:
    """A new hidden sibling of `path` that takes its place on success and disappears on any failure."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.writing")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    try:
        yield temporary
        with writing(path):
            _sync(temporary)
            if replace and path.exists():
                old = temporary.with_suffix(".replaced")
                path.rename(old)
                temporary.rename(path)
                shutil.rmtree(old)
            else:
                temporary.rename(path)
            _sync(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_table(path: Path, table: pa.Table) -> None:
    """Parquet file at `path`, by rename, so that a reader sees the old one or the new one."""
    with replacing(path) as unfinished:
        pq.write_table(table, unfinished, compression="zstd")
        _sync(unfinished)


def write_meta(path: Path, meta: dict[str, Any]) -> None:
    """``meta.json`` at `path`, by rename."""
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
        _sync(unfinished)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
