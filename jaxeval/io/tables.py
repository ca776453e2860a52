"""Tables as typed rows: parquet, CSV, TSV, JSON lines, JSON. Unknown is None; a bad line costs one line."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.readers.text_tables import number

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
"""Files that `read_table` reads."""
KINDS = "a table (.parquet, .csv, .tsv, .jsonl or .json with a list of objects)"
TRUTH = {"true": True, "false": False}
SEEDS = ("training_seed", "train_seed", "model_seed", "seed")
NAMES = (
    "policy", "group", "learner", "task", "cause", "episode", "episode_id", "rater",
    "initial_condition_id", "initial_condition_hash", *SEEDS,
)  # fmt: skip
"""Columns of names: text in every format, as it is written. As numbers 1.1 and 1.10 would be one, and 007 be 7."""
QUANTITIES = ("speed", "told_speed", "Q")
"""Columns of numbers however they are written: 0.5 and 0.50 are one speed."""
DELIMITERS = {".csv": ",;\t|", ".tsv": "\t,;|"}
"""What may stand between cells, the first where the line of column names holds it."""
TOLD_N = 3
"""Sentences about rows that are left out for one reason, before the others are only counted."""


@dataclass(frozen=True)
class Table:
    """Rows of one file, each a dict with the same keys; a cell is None where nothing is known.

    ``places`` says where each row stands ("line 7", "row 3"); ``refused`` holds what is said of those that were left
    out (`few`).
    """

    path: Path
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    places: tuple[str, ...]
    refused: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> list[Any]:
        """One column, a value a row. InputError where there is no such column."""
        if name not in self.columns:
            raise InputError(
                f"{self.path}: no column '{name}', found {', '.join(self.columns)}; expected '{name}'; "
                "rename a column or record it"
            )
        return [row[name] for row in self.rows]

    def where(self, k: int) -> str:
        """File and place of row k, as messages name it."""
        return f"{self.path}, {self.places[k]}"


def read_table(path: str | Path, *, names: Collection[str] = NAMES) -> Table:
    """The table in a file.

    Cells of text files get the type that their whole column allows: integers, else floats, else true/false, else text;
    an empty cell is None, and so is NaN. Columns in ``names`` are text in every format (`name_of`); `written_apart`
    finds those that should be too. Columns that hold lists are left out. A CSV may have semicolons, tabs or bars for
    commas, and a TSV likewise.

    Raises:
        InputError: no such file, a Git-LFS pointer, not a table, or not a row in it.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file, expected {KINDS}; check the path")
    refuse_lfs_pointer(path)
    read = {".parquet": _parquet, ".csv": _text, ".tsv": _text, ".jsonl": _json_lines, ".json": _json}.get(
        path.suffix.lower()
    )
    if read is None:
        raise InputError(f"{path}: found a file of kind '{path.suffix}', expected {KINDS}; convert it to one of these")
    table = read(path, names)
    if not table.rows:
        why = f" ({table.refused[0]})" if table.refused else ""
        raise InputError(f"{path}: found no row, expected at least 1{why}; check how it was written")
    return table


def _parquet(path: Path, names: Collection[str]) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        read = pq.read_table(path)
    except (pa.ArrowException, OSError):
        raise InputError(f"{path}: cut short or no parquet, expected a whole parquet file; copy it again") from None
    read = read.select([f.name for f in read.schema if not pa.types.is_nested(f.type)])
    columns = tuple(read.column_names)
    cells = [[_cell(c, v, names) for v in column.to_pylist()] for c, column in zip(columns, read.columns, strict=True)]
    rows = tuple(dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True))
    return Table(path, columns, rows, tuple(f"row {k}" for k in range(1, len(rows) + 1)))


def written_apart(paths: Iterable[str | Path]) -> set[str]:
    """Columns that hold versions or the like: in these files one number stands there in two ways, as 1.1 and 1.10 do.

    As numbers the two would be one. They are columns of CSV and TSV files, also of several together; a column that is
    text in one file is text in all. Whole numbers with and without a point are one (1 and 1.0), and so are QUANTITIES.
    A file that cannot be read says nothing here.
    """
    ways: dict[tuple[str, float], set[str]] = {}
    words: set[str] = set()
    numbers: set[str] = set()
    for path in map(Path, paths):
        if path.suffix.lower() not in DELIMITERS:
            continue
        try:
            columns, body, _ = _cells(path)
        except InputError:
            continue
        for c, name in enumerate(columns):
            known = {cell for _, row in body if (cell := row[c].strip()) and cell.lower() not in TRUTH}
            try:
                read = {cell: number(cell) for cell in known}
            except ValueError:
                words.add(name)
                continue
            numbers |= {name} if read else set()
            for cell, value in read.items():
                ways.setdefault((name, value), set()).add(re.sub(r"\.0*$", "", cell))
    apart = {name for (name, _), texts in ways.items() if len(texts) > 1}
    return (apart | (words & numbers)) - set(QUANTITIES)


def _text(path: Path, names: Collection[str]) -> Table:
    columns, body, refused = _cells(path)
    typed = [_typed(name, [row[c] for _, row in body], names) for c, name in enumerate(columns)]
    rows = tuple(dict(zip(columns, row, strict=True)) for row in zip(*typed, strict=True))
    return Table(path, columns, rows, tuple(f"line {n}" for n, _ in body), few(path, refused))


def _cells(path: Path) -> tuple[tuple[str, ...], list[tuple[int, list[str]]], list[str]]:
    """Column names, (line, cells) of every whole row, and sentences about the others, of a CSV or TSV file."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            delimiter = _delimiter(path, next((line for line in file if line.strip()), ""))
            file.seek(0)
            lines = csv.reader(file, delimiter=delimiter)
            numbered = [(lines.line_num, row) for row in lines if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as text ({error}), expected a CSV; write it again") from None
    if not numbered:
        raise InputError(f"{path}: the file is empty, expected a line of column names and a line a row; write it again")
    (_, head), body = numbered[0], numbered[1:]
    columns = tuple(name.strip() for name in head)
    twice = sorted({c for c in columns if columns.count(c) > 1})
    if twice:
        raise InputError(f"{path}, line 1: found the column '{twice[0]}' twice, expected it once; rename one of them")
    refused = [
        f"{path}, line {n}: found {len(row)} cells, expected {len(columns)} as in line 1; correct the line"
        for n, row in body
        if len(row) != len(columns)
    ]
    return columns, [(n, row) for n, row in body if len(row) == len(columns)], refused


def _delimiter(path: Path, head: str) -> str:
    """What stands between the column names in the first line: the usual, else the only other that could."""
    bare = re.sub(r'"[^"]*"', "", head)
    possible = DELIMITERS[path.suffix.lower()]
    return next((d for d in possible if d in bare), possible[0])


MISSING = ("NA", "N/A", "n/a", "na", "null")
"""What a cell says, besides nothing and NaN, where a number or a truth is not known."""


def _typed(column: str, texts: Sequence[str], names: Collection[str]) -> list[Any]:
    """Cells of one column of text as the narrowest of int, float, bool, text that holds them all."""
    if column in names:
        return [_cell(column, t, names) for t in texts]
    cells = [t.strip() for t in texts]
    known = [c for c in cells if c not in ("", *MISSING)]
    kinds = () if any("_" in c for c in known) else (int, float)  # Python takes 1_0 for ten
    for kind in (*kinds, lambda c: TRUTH[c.lower()]):
        try:
            made = {c: _known(kind(c)) for c in known}
        except (ValueError, KeyError):
            continue
        return [made.get(c) for c in cells]
    return [c or None for c in cells]


def _json_lines(path: Path, names: Collection[str]) -> Table:
    objects: list[tuple[str, dict[str, Any]]] = []
    refused = []
    for n, line in enumerate(_decoded(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            objects.append((f"line {n}", found))
        else:
            refused.append(f"{path}, line {n}: found no JSON object, expected one a line; correct or remove the line")
    return _of_objects(path, objects, refused, names)


def _json(path: Path, names: Collection[str]) -> Table:
    try:
        found = json.loads(_decoded(path))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: cannot be read as JSON ({error}), expected a list of objects; write it again"
        ) from None
    if not isinstance(found, list):
        raise InputError(f"{path}: found a JSON {type(found).__name__}, expected a list of objects; write it so")
    refused = [
        f"{path}, item {n}: found no JSON object, expected one a row; correct or remove it"
        for n, item in enumerate(found, 1)
        if not isinstance(item, dict)
    ]
    return _of_objects(path, [(f"item {n}", i) for n, i in enumerate(found, 1) if isinstance(i, dict)], refused, names)


def _decoded(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}), expected {KINDS}; write it again") from None


def _of_objects(
    path: Path, objects: list[tuple[str, dict[str, Any]]], refused: list[str], names: Collection[str]
) -> Table:
    flat = [(place, _flat(found)) for place, found in objects]
    columns = tuple(dict.fromkeys(key for _, found in flat for key in found))
    rows = tuple({c: _cell(c, found.get(c), names) for c in columns} for _, found in flat)
    return Table(path, columns, rows, tuple(place for place, _ in flat), few(path, refused))


def _flat(found: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as dotted columns: {"stage": {"lifted": true}} is ``stage.lifted``."""
    out: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, dict):
            out |= _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            out[f"{prefix}{key}"] = value
    return out


def _cell(column: str, value: Any, names: Collection[str]) -> Any:
    """A cell's value: text in a column of names, seeds without a fraction; None where it is NaN or says nothing."""
    if column not in names:
        return _known(value)
    name = name_of(value)
    return re.sub(r"^(-?[0-9]+)\.0+$", r"\1", name) if name and column in SEEDS else name


def name_of(value: Any) -> str | None:
    """A name as text, None where there is none: a number that is whole loses its point, a text stays as it is.

    >>> [name_of(cell) for cell in (7, 7.0, "7", "007", "1.10", " ", float("nan"))]
    ['7', '7', '7', '007', '1.10', None, None]
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    return None if text in ("", "nan", "NaN") else text


def few(path: Path, sentences: Sequence[str], n: int = TOLD_N) -> tuple[str, ...]:
    """The first few sentences about rows of a file, and one that counts the others.

    >>> few(Path("r.csv"), ["r.csv, line 2: ...", "r.csv, line 3: ...", "r.csv, line 4: ..."], 1)
    ('r.csv, line 2: ...', 'r.csv: 2 more rows are left out for the same reason')
    """
    more = [f"{path}: {len(sentences) - n} more rows are left out for the same reason"] if len(sentences) > n else []
    return (*sentences[:n], *more)


def _known(value: Any) -> Any:
    """The value, or None where it is NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value
