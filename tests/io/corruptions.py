"""Ways to break a file, a function each: it takes what there is and a `Draw`, and changes it in place.

What no reader could tell from data is never written: another finite number where numbers were, one axis in the place
of another, a rate that is a rate, half a row of zeros in a file without checksums.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

T = TypeVar("T")
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
RUBBISH = (
    b"",
    POINTER,
    b"hello\n",
    b"PK\x03\x04rest",
    b"\x89HDF\r\n\x1a\n",
    b"\x00" * 512,
    b"PAR1",
    b"{}",
    b"\xff\xfe\x00",
)


class Draw:
    """Choices of one case."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def one(self, items: Sequence[T]) -> T:
        return self._draw(st.sampled_from(list(items)))

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def some(self, n: int) -> list[int]:
        """One to n of the numbers 0 to n - 1."""
        return sorted(self._draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=n)))

    def span(self, n: int) -> slice:
        start = self.number(0, max(0, n - 1))
        return slice(start, self.number(start + 1, max(n, start + 1)))


# --------------------------------------------------------------------------------------------- any file, as bytes


def cut(path: Path, draw: Draw) -> None:
    """Truncated at any byte."""
    data = path.read_bytes()
    path.write_bytes(data[: draw.number(0, max(0, len(data) - 1))])


def replaced(path: Path, draw: Draw) -> None:
    """Something else under its name."""
    path.write_bytes(draw.one(RUBBISH))


def missing(path: Path, draw: Draw) -> None:
    """Not there, or a folder."""
    path.unlink()
    if draw.one([True, False]):
        path.mkdir()


def zeroed(path: Path, draw: Draw) -> None:
    """A range of zeros: only of files that carry checksums."""
    data = bytearray(path.read_bytes())
    at = draw.span(len(data))
    data[at] = bytes(at.stop - at.start)
    path.write_bytes(data)


def spoilt(path: Path, draw: Draw) -> None:
    """A few other bytes: only of files that carry checksums."""
    data = bytearray(path.read_bytes())
    for _ in range(draw.number(1, 8)):
        at = draw.number(0, len(data) - 1)
        data[at] ^= draw.number(1, 255)
    path.write_bytes(data)


BYTES = (cut, cut, replaced, missing)


# ----------------------------------------------------------------------------------------------------- a JSON file

WRONG_JSON: tuple[Any, ...] = (None, "", "x", [], {}, True, -1, [[1]], {"a": None})


def json_value(path: Path, draw: Draw, *, keep: Sequence[str] = ()) -> None:
    """A key at any depth is missing, or its value is of another kind (no other number: it could be one)."""
    value = json.loads(path.read_text())
    places: list[tuple[Any, Any]] = []

    def visit(node: Any, name: str) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            if f"{name}/{key}" not in keep and f"{name}/*" not in keep:
                places.append((node, key))
                visit(node[key], f"{name}/{key}")

    visit(value, "")
    node, key = draw.one(places)
    if draw.one([True, False]):
        del node[key]
    else:
        node[key] = draw.one([w for w in WRONG_JSON if type(w) is not type(node[key]) or isinstance(w, str | list)])
    path.write_text(json.dumps(value))


def json_text(path: Path, draw: Draw) -> None:
    """Its text is broken: letters within, or another kind of value in all."""
    text = path.read_text()
    at = draw.number(0, len(text) - 1)
    path.write_text(draw.one([text[:at] + "?" + text[at:], "null", "3", "[]", '"text"', "[" * 3000]))


# ---------------------------------------------------------------------------------------------------------- HDF5


def h5_paths(path: Path) -> tuple[list[str], list[str]]:
    """(groups, data sets) of a file."""
    groups: list[str] = []
    arrays: list[str] = []
    with h5py.File(path) as file:
        file.visititems(lambda name, node: (arrays if isinstance(node, h5py.Dataset) else groups).append(name))
    return groups, arrays


def is_pose(name: str, shape: tuple[int, ...]) -> bool:
    """Data sets whose rows hold a quaternion: a row of zeros is no pose."""
    return len(shape) == 2 and shape[1] >= 4 and any(w in name for w in ("pose", "actors", "quat", "orient"))


def h5_node_missing(path: Path, draw: Draw) -> None:
    groups, arrays = h5_paths(path)
    with h5py.File(path, "r+") as file:
        del file[draw.one(groups + arrays)]


def h5_node_of_other_kind(path: Path, draw: Draw) -> None:
    groups, arrays = h5_paths(path)
    with h5py.File(path, "r+") as file:
        name = draw.one(groups + arrays)
        del file[name]
        if name in groups:
            file[name] = draw.one([np.zeros(3), "text", np.float64(1.0)])
        else:
            file.create_group(name)


def h5_values(path: Path, draw: Draw) -> None:
    """NaN, infinite or huge numbers in some rows; rows of zeros where they are a pose."""
    _, arrays = h5_paths(path)
    with h5py.File(path, "r+") as file:
        name = draw.one([a for a in arrays if file[a].dtype.kind == "f" and file[a].size])
        values = file[name][()]
        rows = draw.span(len(values))
        bad = draw.one([np.nan, np.inf, -np.inf, 1e300])
        if is_pose(name, values.shape) and draw.one([True, False]):
            values[rows] = 0
        elif values.ndim == 2:
            values[rows, draw.number(0, values.shape[1] - 1)] = bad
        else:
            values[rows] = bad
        file[name][...] = values


def h5_shape(path: Path, draw: Draw) -> None:
    """Transposed, flat, an axis more, a column or row more or less, empty, one number."""
    _, arrays = h5_paths(path)
    with h5py.File(path, "r+") as file:
        name = draw.one(arrays)
        values = file[name][()]
        flat = np.asarray(values).ravel()
        changed = [
            values.T, flat, values[None], values[..., None], values[:0], flat[:1].reshape(()), values[:-1],
            values[..., :-1], np.concatenate([values, values[-1:]]),
        ]  # fmt: skip
        del file[name]
        file[name] = draw.one([c for c in changed if c.shape != values.shape])


def h5_dtype(path: Path, draw: Draw) -> None:
    """Texts for numbers; other bytes for the same numbers; whole numbers, which make zeros of a quaternion."""
    _, arrays = h5_paths(path)
    with h5py.File(path, "r+") as file:
        name = draw.one(arrays)
        values = file[name][()]
        kinds: list[Any] = ["S5", ">f8", "c16"] + ["f4"] * (values.dtype.kind == "f")
        kinds += ["i4", "i1"] * is_pose(name, values.shape)
        kind = draw.one(kinds)
        del file[name]
        file[name] = values.astype(kind)


def h5_columns(path: Path, draw: Draw) -> None:
    """Columns of poses turned round, so that positions stand among the quaternions."""
    _, arrays = h5_paths(path)
    with h5py.File(path, "r+") as file:
        poses = [a for a in arrays if is_pose(a, file[a].shape) and file[a].shape[1] >= 7 and "panda" not in a]
        if not poses:
            return h5_values_as_text(file, draw.one(arrays))
        name = draw.one(poses)
        values = file[name][()]
        values[:, :7] = np.roll(values[:, :7], draw.number(1, 2), axis=1)
        file[name][...] = values
    return None


def h5_values_as_text(file: h5py.File, name: str) -> None:
    values = file[name][()]
    del file[name]
    file[name] = np.full(values.shape, b"a lot")


def h5_attribute(path: Path, draw: Draw) -> None:
    groups, _ = h5_paths(path)
    with h5py.File(path, "r+") as file:
        held = [(g, k) for g in groups for k in file[g].attrs]
        if not held:
            return
        group, key = draw.one(held)
        wrong: list[Any] = [None, "", "no JSON", "[1, 2]", '{"env_kwargs": 3}', np.zeros(3), np.float64("nan"), "{}"]
        value = draw.one(wrong)
        del file[group].attrs[key]
        if value is not None:
            file[group].attrs[key] = value


def h5_zeroed(path: Path, draw: Draw) -> None:
    """A range of zeros beside the numbers, in a file whose own entries have checksums (the latest format)."""
    new = path.with_name(f"{path.name}.latest")
    with h5py.File(path) as old, h5py.File(new, "w", libver="latest") as file:
        for name in old:
            old.copy(name, file)
        arrays: list[Any] = []
        file.visititems(lambda _, node: arrays.append(node) if isinstance(node, h5py.Dataset) else None)
        spans = sorted((d.id.get_offset(), d.id.get_storage_size()) for d in arrays if d.id.get_offset())
    data = bytearray(new.read_bytes())
    ends = [0, *(a + n for a, n in spans)]
    starts = [*(a for a, _ in spans), len(data)]
    gaps = [(a, b) for a, b in zip(ends, starts, strict=True) if b > a]
    start, stop = draw.one(gaps)
    at = draw.span(stop - start)
    data[start + at.start : start + at.stop] = bytes(at.stop - at.start)
    path.write_bytes(data)
    new.unlink()


H5 = (
    *BYTES, h5_node_missing, h5_node_of_other_kind, h5_values, h5_values, h5_shape, h5_dtype, h5_columns, h5_attribute,
    h5_zeroed,
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- text

LETTERS = ("x", "", "nan", "inf", "-inf", "1_0", "0x10", "1,5", "--", "1e999", "²")


def text_field(path: Path, draw: Draw) -> None:
    """Letters, or nothing, in place of some numbers."""
    lines, sep = _lines(path)
    column = draw.number(1, max(1, len(lines[-1].split(sep)) - 1))
    for row in draw.some(len(lines)):
        fields = lines[row].split(sep)
        fields[min(column, len(fields) - 1)] = draw.one(LETTERS)
        lines[row] = sep.join(fields)
    path.write_text("\n".join(lines) + "\n")


def text_stamp(path: Path, draw: Draw) -> None:
    """Letters in place of some stamps."""
    lines, sep = _lines(path)
    for row in draw.some(len(lines)):
        lines[row] = sep.join([draw.one(LETTERS), *lines[row].split(sep)[1:]])
    path.write_text("\n".join(lines) + "\n")


def text_columns(path: Path, draw: Draw) -> None:
    """A column is missing or one too many, in all rows or in some."""
    lines, sep = _lines(path)
    rows = range(1, len(lines)) if draw.one([True, False]) else draw.some(len(lines))
    at, more = draw.number(0, len(lines[-1].split(sep)) - 1), draw.one([True, False])
    for row in rows:
        fields = lines[row].split(sep)
        fields[at : at + (not more)] = ["0.5"] * more
        lines[row] = sep.join(fields)
    path.write_text("\n".join(lines) + "\n")


def text_lines_gone(path: Path, draw: Draw) -> None:
    """Lines are missing, the header perhaps too."""
    lines, _ = _lines(path)
    gone = draw.some(len(lines))
    path.write_text("\n".join(line for k, line in enumerate(lines) if k not in gone) + "\n")


def text_lines_moved(path: Path, draw: Draw) -> None:
    """Lines stand elsewhere, or twice."""
    lines, _ = _lines(path)
    a, b = draw.number(0, len(lines) - 1), draw.number(0, len(lines) - 1)
    lines.insert(b, lines[a] if draw.one([True, False]) else lines.pop(a))
    path.write_text("\n".join(lines) + "\n")


def text_zeroed(path: Path, draw: Draw) -> None:
    """Bytes of zeros, as a disk leaves them that lost power."""
    zeroed(path, draw)


TEXT = (*BYTES, text_field, text_field, text_stamp, text_columns, text_lines_gone, text_lines_moved, text_zeroed)


def _lines(path: Path) -> tuple[list[str], str]:
    lines = path.read_text().splitlines()
    return lines, "," if "," in lines[-1] else " "


def quaternions_of_zeros(columns: slice) -> Callable[[Path, Draw], None]:
    """Rows whose fields `columns` are noughts."""

    def change(path: Path, draw: Draw) -> None:
        lines, sep = _lines(path)
        for row in range(1, len(lines))[draw.span(len(lines) - 1)]:
            fields = lines[row].split(sep)
            fields[columns] = ["0"] * len(fields[columns])
            lines[row] = sep.join(fields)
        path.write_text("\n".join(lines) + "\n")

    return change


def columns_turned(first: int, last: int) -> Callable[[Path, Draw], None]:
    """The columns of positions and quaternions one further, under a header that does not say so."""

    def change(path: Path, draw: Draw) -> None:
        lines, sep = _lines(path)
        by = draw.number(1, 2)
        for row in range(1, len(lines)):
            fields = lines[row].split(sep)
            turned = fields[first:last]
            fields[first:last] = turned[by:] + turned[:by]
            lines[row] = sep.join(fields)
        path.write_text("\n".join(lines) + "\n")

    return change


# -------------------------------------------------------------------------------------------------------- parquet


def is_vector(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)


def parquet_columns(path: Path, draw: Draw) -> None:
    """A column is missing or has another name; the order of columns says nothing."""
    table = pq.read_table(path)
    name = draw.one(table.column_names)
    names = [f"{n}?" if n == name else n for n in table.column_names]
    backward = table.select(table.column_names[::-1])
    pq.write_table(draw.one([table.drop_columns([name]), table.rename_columns(names), backward]), path)


def parquet_values(path: Path, draw: Draw) -> None:
    """NaN, nothing, or (in all of a pose) noughts in some rows of lists; uneven lists; texts."""
    table = pq.read_table(path)
    name = draw.one([n for n in table.column_names if is_vector(table[n].type)])
    rows: list[Any] = table[name].to_pylist()
    kind = draw.one(["nan", "null entry", "null row", "zeros", "short", "long", "text", "whole numbers"])
    at = range(len(rows))[draw.span(len(rows))]
    column = draw.number(0, len(rows[0] or [0]) - 1)
    for k in at:
        row = list(rows[k] or [])
        if kind == "nan" and row:
            row[column] = draw.one([float("nan"), float("inf")])
        elif kind == "null entry" and row:
            row[column] = None
        elif kind == "zeros":
            row = [0.0] * len(row)
        rows[k] = {"null row": None, "short": row[:-1], "long": [*row, 1.0]}.get(kind, row)
    if kind == "text":
        column_of: Any = pa.array([["x"] * len(r or []) for r in rows])
    elif kind == "whole numbers":
        column_of = pa.array([[int(v) if v == v else 0 for v in r or []] for r in rows])
    else:
        column_of = pa.array(rows, pa.list_(pa.float64()))
    pq.write_table(table.set_column(table.column_names.index(name), name, column_of), path)


def parquet_scalars(path: Path, draw: Draw) -> None:
    """Nothing, or texts, in a column of numbers, flags or names."""
    table = pq.read_table(path)
    name = draw.one([n for n in table.column_names if not is_vector(table[n].type)])
    rows: list[Any] = table[name].to_pylist()
    if draw.one([True, False]):
        column: Any = pa.array(["x"] * len(rows))
    else:
        for k in draw.some(len(rows)):
            rows[k] = None
        kind = table[name].type
        column = pa.array(rows, kind.value_type if pa.types.is_dictionary(kind) else kind)
    pq.write_table(table.set_column(table.column_names.index(name), name, column), path)


def parquet_rows(path: Path, draw: Draw) -> None:
    """Rows are missing or there twice."""
    table = pq.read_table(path)
    rows = draw.some(table.num_rows)
    kept = [k for k in range(table.num_rows) if k not in rows]
    pq.write_table(table.take(pa.array(draw.one([kept, [*range(table.num_rows), *rows]]), pa.int64())), path)


PARQUET = (*BYTES, parquet_columns, parquet_values, parquet_values, parquet_scalars, parquet_rows)


# ------------------------------------------------------------------------------------------------------------ npz


def npz_array(path: Path, draw: Draw) -> None:
    """A key is missing, or its array has another shape, kind or NaN."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    name = draw.one(list(arrays))
    values = arrays[name]
    flat = values.ravel()
    pose = "/pose/" in name
    ways: dict[str, Any] = {
        "gone": None, "flat": flat, "axis": values[None], "empty": flat[:0], "short": flat[:-1] if values.ndim == 1 else
        values[:-1] if values.ndim else flat, "text": np.full(values.shape, "x"), "object": values.astype(object),
        "scalar": flat[0], "narrow": values[..., :-1] if values.ndim else flat,
    }  # fmt: skip
    if pose:
        bad = values.copy()
        bad[draw.span(len(bad)), draw.number(0, 6)] = draw.one([np.nan, np.inf, 1e300])
        blank = values.copy()
        blank[draw.span(len(bad))] = 0
        ways |= {"bad": bad, "blank": blank, "whole": values.astype(int), "rolled": np.roll(values, 1, axis=1)}
    value = ways[draw.one(list(ways))]
    arrays = {k: v for k, v in arrays.items() if k != name} | ({} if value is None else {name: value})
    np.savez(path, **arrays)


def npz_meta(path: Path, draw: Draw) -> None:
    """``meta`` lacks a key or holds another kind of value."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    beside = path.with_name("meta.json.tmp")
    beside.write_text(str(arrays["meta"]))
    draw.one([json_value, json_text])(beside, draw)
    np.savez(path, **(arrays | {"meta": beside.read_text()}))
    beside.unlink()


NPZ = (*BYTES, zeroed, spoilt, npz_array, npz_array, npz_meta)


# --------------------------------------------------------------------------------------------------------- rosbag2


def db3_pages(path: Path, draw: Draw) -> None:
    """Whole pages of zeros."""
    data = bytearray(path.read_bytes())
    page = 4096
    at = draw.number(0, max(0, len(data) // page - 1))
    data[at * page : (at + 1) * page] = bytes(page)
    path.write_bytes(data)


def db3_rows(path: Path, draw: Draw) -> None:
    """Messages missing, empty, cut, of zeros, of letters or of another topic; topics of another type."""
    at, n = draw.number(1, 40), draw.number(1, 30)
    where = f"WHERE id >= {at} AND id < {at + n}"
    statements = [
        f"DELETE FROM messages {where}",
        f"UPDATE messages SET data = zeroblob(length(data)) {where}",
        f"UPDATE messages SET data = substr(data, 1, 20) {where}",
        f"UPDATE messages SET data = x'' {where}",
        f"UPDATE messages SET data = 'letters' {where}",
        f"UPDATE messages SET topic_id = 99 {where}",
        f"UPDATE messages SET topic_id = 1 {where}",
        f"UPDATE messages SET timestamp = 'noon' {where}",
        "UPDATE topics SET type = 'geometry_msgs/msg/Nothing'",
        "UPDATE topics SET type = 'sensor_msgs/msg/Image' WHERE id = 2",
        "UPDATE topics SET type = 'nav_msgs/msg/Odometry'",
        "UPDATE topics SET serialization_format = 'json'",
        "UPDATE topics SET name = NULL",
        "DELETE FROM topics WHERE id = 2",
        "DROP TABLE messages",
        "DROP TABLE topics",
        "ALTER TABLE messages RENAME COLUMN data TO dato",
    ]
    # a column that may not be NULL stays as it is
    with sqlite3.connect(path) as base, contextlib.suppress(sqlite3.IntegrityError):
        base.execute(draw.one(statements))
    base.close()


DB3 = (*BYTES, db3_pages, db3_rows, db3_rows, db3_rows)


def moved_away(folder: Path, _: Draw) -> None:
    """Nothing left but an empty folder."""
    shutil.rmtree(folder)
    folder.mkdir()
