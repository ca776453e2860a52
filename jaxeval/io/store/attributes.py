"""Attributes of episodes as columns of a table: ``attribute.<name>``, null where an episode lacks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jaxeval.io.errors import InputError
from jaxeval.types import Attribute

PREFIX = "attribute."
KINDS: dict[type, tuple[str, pa.DataType]] = {
    str: ("text", pa.string()), bool: ("truth", pa.bool_()), int: ("a whole number", pa.int64()),
    float: ("a number", pa.float64()),
}  # fmt: skip
"""What an attribute may be, in words, and the type of its column."""


def _kind(value: Attribute) -> type:
    return next(kind for kind in (str, bool, int, float) if isinstance(value, kind))  # bool is an int: asked before


def typed(ids: Sequence[str], attributes: Sequence[Mapping[str, Attribute]]) -> dict[str, pa.Array]:
    """A column for every name, in order of appearance. Whole numbers among others become such.

    Raises:
        InputError: an attribute is text in one episode and a number in another, or the like.

    >>> {name: column.to_pylist() for name, column in typed(["a", "b"], [{"x": 1}, {"x": 0.5, "y": "z"}]).items()}
    {'x': [1.0, 0.5], 'y': [None, 'z']}
    """
    out: dict[str, pa.Array] = {}
    for name in dict.fromkeys(name for row in attributes for name in row):
        first: dict[type, str] = {}
        for episode, row in zip(ids, attributes, strict=True):
            if name in row:
                first.setdefault(_kind(row[name]), episode)
        if first.keys() == {int, float}:
            first = {float: first[float]}
        if len(first) > 1:
            kinds_found = ", ".join(f"{KINDS[kind][0]} in {episode}" for kind, episode in first.items())
            raise InputError(
                f"attribute '{name}' is {kinds_found}; expected one kind in all episodes; write it alike in each",
                code="attribute",
                key=name,
            )
        kind = next(iter(first))
        values = [None if name not in row else kind(row[name]) for row in attributes]
        out[name] = pa.array(values, KINDS[kind][1])
    return out


def names_in(table: pa.Table) -> tuple[str, ...]:
    """Names of the attributes that a table has columns of."""
    return tuple(n.removeprefix(PREFIX) for n in table.column_names if n.startswith(PREFIX))


def attributes_of(table: pa.Table) -> list[dict[str, Attribute]]:
    """The attributes of every row of a table."""
    out: list[dict[str, Any]] = [{} for _ in range(table.num_rows)]
    for name in names_in(table):
        for row, value in zip(out, table[PREFIX + name].to_pylist(), strict=True):
            if value is not None:
                row[name] = value
    return out
