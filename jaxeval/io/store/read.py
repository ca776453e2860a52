"""How frames of the native store come into memory: row groups as NumPy arrays, and padded batches filled from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.store.check import check_frames
from jaxeval.types import WORLD_POINTS, EpisodeBatch, Finding, from_origin, near_origin

More = tuple[tuple[str, int], ...]
"""Further columns to read, with their widths: joints and signals."""


def mask_columns(bodies: Sequence[str], version: int) -> tuple[str, ...]:
    """Names of the mask columns: that of the frame, then (from format 2 on) those of each body."""
    return ("valid",) if version == 1 else ("frame_valid", *(f"valid.{b}" for b in bodies))


class Frames:
    """Columns of one table of frames as numpy; poses are [T, N, 7], so that a frame is one run of memory."""

    def __init__(
        self, table: pa.Table, bodies: tuple[str, ...], path: Path, dtype: Any, more: More = (), *, version: int
    ) -> None:
        table = table.combine_chunks()
        masks = mask_columns(bodies, version)
        if absent := [n for n in ("t_s", *masks, *(f"pose.{b}" for b in bodies)) if table[n].null_count]:
            raise InputError(f"{path}: column {absent[0]} lacks values in some frames; write the store again")
        self.time_s = table["t_s"].to_numpy()
        self.frame_valid = table[masks[0]].to_numpy()
        if version == 1:  # one mask for all bodies
            self.valid = np.repeat(self.frame_valid[:, None], len(bodies), axis=1)
        else:
            self.valid = np.empty((table.num_rows, len(bodies)), bool)
            for i, name in enumerate(masks[1:]):
                self.valid[:, i] = table[name].to_numpy()
        self.width_m = table["gripper_width_m"].to_numpy()
        self.poses = np.empty((table.num_rows, len(bodies), 7), dtype)
        for i, b in enumerate(bodies):
            self.poses[:, i] = matrix(table, f"pose.{b}", 7, path)
        self.more = {name: column_of(table, name, size, path) for name, size in more}
        self.origin_m: dict[int, np.ndarray] = {}  # of episodes by their first frame, where it is not the world's
        check_frames(path, bodies, self.time_s, self.poses)

    def near(self, first: Int[np.ndarray, " n"], length: Int[np.ndarray, " n"], dtype: Any) -> None:
        """Count the positions of episodes far off from an origin among them, then round."""
        for a, n in zip(first.tolist(), length.tolist(), strict=True):
            here = slice(a, a + n)
            origin = near_origin(self.poses[here], self.valid[here])
            if origin.any():
                self.poses[here, :, 4:] -= origin
                self.origin_m[a] = origin
        self.poses = self.poses.astype(dtype)


class Padding:
    """One padding bucket being filled: a batch's arrays and how many of its episodes are in."""

    def __init__(self, size: int, length: int, bodies: tuple[str, ...], dtype: np.dtype, more: More) -> None:
        self.size, self.length, self.bodies, self.filled = size, length, bodies, 0
        self.rows = np.empty(size, np.int64)
        self.poses = np.empty((size, length, len(bodies), 7), dtype)
        self.time_s = np.empty((size, length), dtype)
        self.width_m = np.empty((size, length), dtype)
        self.valid = np.empty((size, length, len(bodies)), bool)
        self.frame_valid = np.empty((size, length), bool)
        self.origin_m = np.zeros((size, 3))
        self.more = {name: np.empty((size, length, n) if n else (size, length), dtype) for name, n in more}

    @property
    def room(self) -> int:
        """Episodes that still go in."""
        return self.size - self.filled

    def add(
        self, rows: np.ndarray, first: np.ndarray, length: np.ndarray, frames: Frames, origin_m: np.ndarray
    ) -> None:
        """Copy whole episodes (first frame and length in `frames`) into the next places; the last frame repeats."""
        at = slice(self.filled, self.filled + rows.size)
        step = np.arange(self.length)
        index = first[:, None] + np.minimum(step, length[:, None] - 1)
        self.rows[at] = rows
        self.time_s[at] = frames.time_s[index]
        self.width_m[at] = frames.width_m[index]
        real = step < length[:, None]
        self.valid[at] = frames.valid[index] & real[..., None]
        self.frame_valid[at] = frames.frame_valid[index] & real
        width = frames.poses.shape[1] * 7
        flat = self.poses[at].reshape(rows.size, self.length, width)  # a view: the batch is contiguous
        np.take(frames.poses.reshape(len(frames.poses), width), index, axis=0, out=flat, mode="clip")
        self.origin_m[at] = [o + frames.origin_m.get(a, 0.0) for o, a in zip(origin_m, first.tolist(), strict=True)]
        for name, array in self.more.items():
            array[at] = frames.more[name][index]
            if (signal := name.removeprefix("signal.")) in WORLD_POINTS:
                for k, episode in enumerate(range(self.filled, self.filled + rows.size)):
                    moved = from_origin(signal, frames.more[name][index[k]], self.origin_m[episode])
                    array[episode] = moved
        self.filled += rows.size

    def batch(self, success: np.ndarray, joint_names: tuple[str, ...]) -> tuple[np.ndarray, EpisodeBatch]:
        """(rows, the full batch)."""
        return self.rows, EpisodeBatch(
            poses=self.poses,
            time_s=self.time_s,
            valid=self.valid,
            frame_valid=self.frame_valid,
            gripper_width_m=self.width_m,
            success=success[self.rows],
            joints=self.more.get("joints"),
            signals={k.removeprefix("signal."): x for k, x in self.more.items() if k.startswith("signal.")},
            origin_m=self.origin_m,
            bodies=self.bodies,
            joint_names=joint_names,
        )


def read_row_group(file: Path, footer: pq.FileMetaData, i: int, columns: list[str] | None) -> pa.Table:
    """One row group, or some columns of it; InputError where it cannot be read."""

    def read() -> pa.Table:
        with pq.ParquetFile(file, metadata=footer, memory_map=True, page_checksum_verification=True) as parquet:
            return parquet.read_row_group(i, columns=columns)

    return guarded(file, read)


def matrix(table: pa.Table, name: str, size: int, path: Path) -> np.ndarray:
    """[T, size] from a column of fixed-size lists (or of lists that all have that size)."""
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    flat = column.flatten()
    if len(flat) != size * len(column):
        raise InputError(f"{path}: column {name} holds lists that are not {size} long; write the store again")
    return flat.to_numpy(zero_copy_only=False).reshape(-1, size)


def column_of(table: pa.Table, name: str, size: int, path: Path) -> np.ndarray:
    """[T, size], or [T] if the size is 0."""
    return matrix(table, name, size, path) if size else table[name].to_numpy()


def lacks_signals(path: Path, absent: Sequence[str], known: Iterable[str]) -> InputError:
    """What to say of signals that were not recorded."""
    return InputError(
        f"{path}: no signal {', '.join(absent)}; it has {', '.join(known) or 'none'}; "
        "rollouts of `jaxeval rollout task=parcel_stow` and its like have them"
    )


def labels_of(column: pa.ChunkedArray, names: tuple[str, ...]) -> np.ndarray:
    """[T] int32 indices into `names`, -1 for null."""
    out = [np.zeros(0, np.int32)]
    for chunk in column.chunks:
        chunk = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        table = np.array([names.index(n) if n in names else -1 for n in chunk.dictionary.to_pylist()] + [-1], np.int32)
        out.append(table[chunk.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)])
    return np.concatenate(out)


def success_of(column: pa.ChunkedArray) -> np.ndarray:
    """[B] int32: 1, 0, or -1 for unknown."""
    return column.cast(pa.int32()).fill_null(-1).to_numpy()


def mended_of(rows: Sequence[Mapping[str, str]] | None) -> tuple[Finding, ...]:
    """The account of one row of ``episodes.parquet``."""
    return tuple(Finding(**row) for row in rows or ())


def known(array: np.ndarray | None) -> np.ndarray | None:
    """None for an array that is NaN throughout: not recorded."""
    return None if array is None or np.isnan(array).all() else array


def guarded(path: Path, read: Any) -> Any:
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
