"""Evaluation records from memory: scores, data frames or columns, read as the columns of a file are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError
from jaxeval.io.records.records import Records, Where, _records, _unknown, read_records
from jaxeval.io.tables import NAMES, Table, _cell, few

EXPECTED = "records, a path, a data frame, scores, or one of these a policy"


def records_of(
    found: Any, *, columns: Mapping[str, str] | None = None, names: Collection[str] = (), where: str = "records"
) -> Records:
    """Records of anything that holds them.

    Taken are records; whatever `read_records` reads; an object whose ``columns`` are a mapping (as `score` returns); a
    data frame of pandas or polars; a table of pyarrow; {policy: any of the last three}. ``columns`` and ``names`` as
    in `read_records`.

    Raises:
        InputError: none of these, or a table that holds no records.
    """
    if isinstance(found, Records):
        return found
    if isinstance(found, Mapping) and any(_is_table(one) for one in found.values()):
        if odd := [str(name) for name, one in found.items() if not _is_table(one)]:
            raise InputError(
                f"{where}: '{odd[0]}' is a {type(found[odd[0]]).__name__} beside tables, expected a table for every "
                "policy; read its file first"
            )
        parts = [
            records_from_columns(_columns(one), f"{where}[{name!r}]", policy=str(name), columns=columns, names=names)
            for name, one in found.items()
        ]
        return _joined(parts)
    if _is_table(found):
        return records_from_columns(_columns(found), where, columns=columns, names=names)
    if isinstance(found, (str, Path, Mapping, Sequence)):
        read: Where = found  # type: ignore[assignment]
        return read_records(read, columns=columns, names=names)
    raise InputError(f"{where}: found a {type(found).__name__}, expected {EXPECTED}; give one of these")


def records_from_columns(
    found: Mapping[str, Sequence[Any]],
    where: str,
    *,
    policy: str | None = None,
    columns: Mapping[str, str] | None = None,
    names: Collection[str] = (),
) -> Records:
    """Records of columns, a value an episode: lists, arrays or series, all of one length.

    ``where`` is how messages call them; ``policy`` says whose all rows are; the rest as in `read_records`. NaN and
    other marks of what is missing are unknown; columns of lists are left out.

    Raises:
        InputError: columns of different lengths, no row, or no column that says which policy it was.

    >>> records = records_from_columns({"policy": ["x", "y"], "Q": [0.5, float("nan")]}, "scores")
    >>> [row["Q"] for row in records.rows]
    [0.5, None]
    """
    cells = {str(name): _plain(column) for name, column in found.items()}
    cells = {name: column for name, column in cells.items() if not any(isinstance(v, (list, dict)) for v in column)}
    lengths = {name: len(column) for name, column in cells.items()}
    if len(set(lengths.values())) > 1:
        (one, n), (other, m) = sorted(lengths.items(), key=lambda x: x[1])[:: len(lengths) - 1]
        raise InputError(
            f"{where}: column '{one}' has {n} values and '{other}' {m}, expected as many in every column; correct them"
        )
    if not any(lengths.values()):
        raise InputError(f"{where}: found no row, expected a row an episode; check how it was made")
    text = {*NAMES, *names, *(old for new, old in (columns or {}).items() if new in NAMES)}
    typed = [[_cell(name, v, text) for v in column] for name, column in cells.items()]
    rows = tuple(dict(zip(cells, row, strict=True)) for row in zip(*typed, strict=True))
    table = Table(Path(where), tuple(cells), rows, tuple(f"row {k}" for k in range(1, len(rows) + 1)))
    notes: list[str] = []
    made = _records(table, policy, columns or {}, notes)
    kept = [(place, row) for place, row, fault in made if not fault]
    faults: dict[str, list[str]] = {}
    for place, _, fault in made:
        if fault:
            faults.setdefault(fault[0], []).append(f"{place}: {fault[1]}; the row is left out")
    refused = [sentence for sentences in faults.values() for sentence in few(table.path, sentences)]
    if not kept:
        raise InputError(f"{where}: no row could be read, expected a row an episode: {refused[0]}")
    places, own = zip(*kept, strict=True)
    return Records(own, places, tuple(refused), tuple([*notes, *_unknown(own)]))


def _joined(parts: Sequence[Records]) -> Records:
    """All rows of several records."""
    rows, places, refused, notes = (
        tuple(chain.from_iterable(getattr(part, key) for part in parts))
        for key in ("rows", "places", "refused", "notes")
    )
    return Records(rows, places, refused, notes)


def _is_table(found: Any) -> bool:
    """Whether it is a table of some library, told by what it can do."""
    if isinstance(found, (str, Path, Mapping, Records)):
        return False
    return isinstance(getattr(found, "columns", None), Mapping) or any(
        callable(getattr(found, name, None)) for name in ("to_pydict", "to_dict")
    )


def _columns(found: Any) -> Mapping[str, Sequence[Any]]:
    """The columns of a table of some library."""
    if isinstance(getattr(found, "columns", None), Mapping):
        return found.columns
    if callable(getattr(found, "to_pydict", None)):  # pyarrow
        return found.to_pydict()
    try:
        return found.to_dict(orient="list")  # pandas
    except TypeError:
        return found.to_dict(as_series=False)  # polars


def _plain(column: Any) -> list[Any]:
    """A column as values of Python's own; None where one is marked as missing."""
    values = column.tolist() if callable(getattr(column, "tolist", None)) else list(column)
    return [_value(v) for v in values]


def _value(value: Any) -> Any:
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", 0) == 0:
        value = value.item()  # of numpy or jax
    return None if type(value).__name__ in ("NAType", "NaTType") else value
