"""The files of a LeRobot data set: ``info.json``, the table of episodes, and frames out of parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.hdf5 import measured, rate_hz

DATA_PATH = {
    2: "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    3: "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
}
CHUNK = 1000
DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, MemoryError)
"""What pyarrow raises on damaged files (InputError is a ValueError and must be caught first)."""

FILE_FINDINGS: dict[str, tuple[str, str]] = {
    "unreadable_table": ("error", "a file of the table of episodes cannot be read: its episodes are left out"),
    "episodes_missing": ("warning", "the table of episodes and info.json count differently"),
    "unreadable_episode": ("error", "an episode cannot be read: it is left out"),
}
"""Findings of this module."""


@dataclass(frozen=True)
class Row:
    """One line of the table of episodes."""

    number: int
    length: int
    file: str  # relative to the root
    task: str


@dataclass(frozen=True)
class DataSet:
    """What ``meta/`` says."""

    root: Path
    fps: float
    features: dict[str, dict[str, Any]]
    robot_type: str
    rows: list[Row]
    tasks: dict[int, str] = field(default_factory=dict)


def open_data_set(root: Path, findings: FileFindings) -> DataSet:
    """Read ``meta/``.

    Raises:
        InputError: no such folder, a pointer, no LeRobot info.json, another version, or no table of episodes.
    """
    info = _info(root)
    version = str(info.get("codebase_version"))
    major = int(version[1]) if version[:3] in ("v2.", "v3.") else 0
    if not major:
        raise InputError(
            f"{root}/meta/info.json: codebase_version {version!r}, expected v2.x or v3.x; convert it with lerobot"
        )
    fps = rate_hz(info.get("fps"))
    if fps is None:
        raise InputError(f"{root}/meta/info.json: fps {info.get('fps')!r}, expected a positive number; correct it")
    features = info.get("features")
    if not isinstance(features, dict) or not all(isinstance(f, dict) for f in features.values()):
        raise InputError(f"{root}/meta/info.json: 'features' is missing or no table of features; copy it again")
    lines = _episodes_v2(root, findings) if major == 2 else _episodes_v3(root, findings)
    tasks = _tasks(root, major)
    rows = {}
    for line in lines:
        number, length = line.get("episode_index"), line.get("length")
        if not isinstance(number, int) or not isinstance(length, int) or isinstance(number, bool) or length < 1:
            found = f"a line with episode_index {number!r} and length {length!r}"
            findings.add("unreadable_table", found, "whole numbers", "left out", where=f"{root}/meta/episodes")
            continue
        texts = line.get("tasks")
        task = texts[0] if isinstance(texts, list) and texts and isinstance(texts[0], str) else ""
        rows[number] = Row(number, length, _data_file(root, info, major, number, line), task)
    total = info.get("total_episodes")
    if isinstance(total, int) and total != len(rows):
        found = f"{len(rows)} lines in the table of episodes"
        findings.add("episodes_missing", found, f"{total} as info.json says", "those are read; copy the data set again")
    return DataSet(root, fps, features, str(info.get("robot_type") or ""), [rows[k] for k in sorted(rows)], tasks)


def _info(root: Path) -> dict[str, Any]:
    path = root / "meta" / "info.json"
    if not path.is_file():
        raise InputError(f"{root}: no meta/info.json, expected the folder of a LeRobot data set; check the path")
    refuse_lfs_pointer(path)
    try:
        info = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}), expected LeRobot's info.json; copy it again") from error
    if not isinstance(info, dict):
        raise InputError(f"{path}: no JSON object, expected LeRobot's info.json; copy it again")
    return info


def _episodes_v2(root: Path, findings: FileFindings) -> list[dict[str, Any]]:
    path = root / "meta" / "episodes.jsonl"
    lines = []
    try:
        refuse_lfs_pointer(path)
        text = path.read_text("utf-8-sig").splitlines()
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: it cannot be read ({error}), expected a line an episode; copy it again") from error
    for k, line in enumerate(text):
        try:
            value = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            value = line
        if isinstance(value, dict):
            lines.append(value)
        elif value is not None:
            findings.add(
                "unreadable_table", f"line {k} is no JSON object", "one an episode", "left out", where=str(path)
            )
    return lines


def _episodes_v3(root: Path, findings: FileFindings) -> list[dict[str, Any]]:
    paths = sorted((root / "meta" / "episodes").glob("*/*.parquet"))
    if not paths:
        raise InputError(
            f"{root}: no meta/episodes/chunk-*/file-*.parquet, expected the table of episodes; copy it again"
        )
    lines: list[dict[str, Any]] = []
    reasons: list[str] = []
    for path in paths:
        try:
            refuse_lfs_pointer(path)
            names = pq.read_schema(path).names
            wanted = ("episode_index", "length", "tasks", "data/chunk_index", "data/file_index")
            lines += pq.read_table(path, columns=[n for n in wanted if n in names]).to_pylist()
        except DAMAGE as error:
            reasons.append(_said(error))
            findings.add("unreadable_table", reasons[-1], "a whole parquet file", "copy it again", where=str(path))
    if not lines:
        found = reasons[0] if reasons else "it is empty"
        raise InputError(f"{paths[0]}: the table of episodes cannot be read ({found}); copy it again")
    return lines


def _tasks(root: Path, major: int) -> dict[int, str]:
    """task_index -> text, as far as it can be read: the table of episodes has the texts too."""
    try:
        if major == 2:
            lines = [
                json.loads(line) for line in (root / "meta" / "tasks.jsonl").read_text("utf-8-sig").splitlines() if line
            ]
            return {int(line["task_index"]): str(line["task"]) for line in lines}
        table = pq.read_table(root / "meta" / "tasks.parquet")
        texts = next(n for n in ("task", "__index_level_0__") if n in table.column_names)
        return dict(zip(table["task_index"].to_pylist(), map(str, table[texts].to_pylist()), strict=True))
    except (*DAMAGE, RecursionError, StopIteration):
        return {}


def _data_file(root: Path, info: dict[str, Any], major: int, number: int, line: dict[str, Any]) -> str:
    size = info.get("chunks_size")
    size = size if isinstance(size, int) and size > 0 else CHUNK
    at = {"episode_chunk": number // size, "episode_index": number}
    if major == 3:
        at = {"chunk_index": line.get("data/chunk_index"), "file_index": line.get("data/file_index")}
    template = info.get("data_path")
    try:
        file = (template if isinstance(template, str) else DATA_PATH[major]).format(**at)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{root}/meta: data_path {template!r} cannot be filled in for episode {number}; expected {DATA_PATH[major]}"
        ) from error
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise InputError(
            f"{root}/meta/info.json: data_path {template!r} leaves the folder; expected {DATA_PATH[major]}"
        )
    return file


# ------------------------------------------------------------------------------------------------------- frames


@dataclass(frozen=True)
class Frames:
    """The frames of one episode."""

    where: str
    table: pa.Table
    task: str

    @property
    def length(self) -> int:
        """Frames there are."""
        return self.table.num_rows

    def numbers(self, feature: str) -> np.ndarray:
        """[T, k] in float64, lists of lists flattened, missing numbers NaN; InputError for texts and uneven lists."""
        try:
            return self._numbers(feature)
        except InputError:
            raise
        except DAMAGE as error:
            raise InputError(f"{self.where}: {feature} cannot be read ({_said(error)}); copy the file again") from error

    def _numbers(self, feature: str) -> np.ndarray:
        if feature not in self.table.column_names:
            raise InputError(f"{self.where}: column '{feature}' is missing though info.json lists it; copy it again")
        values: Any = pa.concat_arrays(self.table[feature].chunks)
        values = getattr(values, "storage", values)
        width = 1
        while _is_list(values.type):
            fixed = pa.types.is_fixed_size_list(values.type)
            lengths = [values.type.list_size] if fixed else np.unique(values.value_lengths().drop_null()).tolist()
            if values.null_count or len(lengths) != 1 or not lengths[0]:
                found = f"lists of {lengths} entries and {values.null_count} missing"
                raise InputError(f"{self.where}: {feature} holds {found}, expected one width; record it again")
            width *= lengths[0]
            values = values.flatten()
        kind = values.type
        if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise InputError(f"{self.where}: {feature} holds {kind}, expected numbers; record it again")
        flat = measured(values.to_numpy(zero_copy_only=False))
        return flat.reshape(self.length, width)

    def columns(self, feature: str, slots: tuple[int, ...]) -> np.ndarray:
        """[T, len(slots)] of the columns named by `slots`."""
        values = self.numbers(feature)
        if values.shape[1] <= max(slots):
            raise InputError(
                f"{self.where}: {feature} has {values.shape[1]} columns, info.json names {max(slots) + 1}; "
                "copy or record the data set again"
            )
        return values[:, list(slots)]

    def scalar(self, feature: str) -> np.ndarray:
        """[T] of a feature with one number a frame."""
        values = self.numbers(feature)
        if values.shape[1] != 1:
            raise InputError(
                f"{self.where}: {feature} has {values.shape[1]} numbers a frame, expected 1; record it again"
            )
        return values[:, 0]

    def flags(self, feature: str) -> np.ndarray:
        """[T] of bool; InputError for anything but noughts and ones."""
        values = self.scalar(feature)
        if not np.isin(values, (0.0, 1.0)).all():
            raise InputError(f"{self.where}: {feature} holds other values than 0 and 1; expected flags")
        return values.astype(bool)


def iter_frames(data_set: DataSet, wanted: list[str]) -> Iterator[tuple[int, Frames | InputError]]:
    """(number, frames or why there are none) of every episode; a file that holds several is read once at a time."""
    by_file: dict[str, list[Row]] = {}
    for row in data_set.rows:
        by_file.setdefault(row.file, []).append(row)
    for file, rows in by_file.items():
        path = data_set.root / file
        try:
            table = _table(path, wanted)
        except InputError as error:
            yield from ((row.number, error) for row in rows)
            continue
        numbers = _indices(table, "episode_index")
        for row in rows:
            try:
                yield row.number, _frames_of(path, table, numbers, row, data_set.tasks)
            except InputError as error:
                yield row.number, error


def _table(path: Path, wanted: list[str]) -> pa.Table:
    if not path.is_file():
        raise InputError(
            f"{path}: there is no such file though the table of episodes names it; copy the data set again"
        )
    refuse_lfs_pointer(path)
    try:
        names = pq.read_schema(path).names
        columns = [n for n in (*wanted, "episode_index", "frame_index", "task_index") if n in names]
        return pq.read_table(path, columns=list(dict.fromkeys(columns)))
    except DAMAGE as error:
        raise InputError(f"{path}: not a whole parquet file ({_said(error)}); copy it again") from error


def _frames_of(path: Path, table: pa.Table, numbers: np.ndarray | None, row: Row, tasks: dict[int, str]) -> Frames:
    rows = np.arange(table.num_rows) if numbers is None else np.flatnonzero(numbers == row.number)
    if len(rows) != row.length:
        raise InputError(
            f"{path}: {len(rows)} frames of episode {row.number}, the table of episodes says {row.length}; "
            "copy the data set again"
        )
    own = table.take(pa.array(rows))
    order = _indices(own, "frame_index")
    if order is not None and not np.array_equal(order, np.arange(row.length)):
        raise InputError(
            f"{path}: frame_index of episode {row.number}, expected 0 to {row.length - 1} in order; record it again"
        )
    task = row.task
    index = _indices(own, "task_index")
    if not task and index is not None:
        task = tasks.get(int(index[0]), "")
    return Frames(str(path), own, task)


def _indices(table: pa.Table, name: str) -> np.ndarray | None:
    """[rows] of whole numbers, list scalars unwrapped; None if there is no such column or it holds something else."""
    if name not in table.column_names or not table.num_rows:
        return None
    try:
        values = Frames("", table, "").scalar(name)
    except InputError:
        return None
    return values if np.isfinite(values).all() else None


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _said(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
