"""What the columns of records mean: name, unit, which direction is better, in words.

`COLUMNS` are those that no metric owns. Columns of metrics belong to whoever computes them: a lookup that knows some is
given to `add_lookup`, and is asked for what is not here. Nothing is guessed from a name: where nobody says which
direction is better, `direction_of` is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class ColumnMeaning:
    """A column. ``unit`` is "" where it has none; ``direction``: which is better, None where neither is."""

    name: str
    meaning: str
    unit: str = ""
    direction: Direction | None = None


COLUMNS: dict[str, ColumnMeaning] = {
    c.name: c
    for c in (
        ColumnMeaning("success_once", "whether the episode succeeded at any moment", direction="higher"),
        ColumnMeaning("success_at_end", "whether the episode had succeeded when it ended", direction="higher"),
        ColumnMeaning("speed", "execution speed, of nominal"),
        ColumnMeaning("told_speed", "execution speed that the policy was told, of nominal"),
        ColumnMeaning("length", "frames of the episode", "frames"),
        ColumnMeaning("seed", "seed of the environment"),
        ColumnMeaning("training_seed", "seed with which the policy was trained"),
        ColumnMeaning("episode", "name or number of the episode"),
    )
}
"""Columns that no metric owns, by name."""

Lookup = Callable[[str], ColumnMeaning | None]
_LOOKUPS: list[Lookup] = []


def add_lookup(lookup: Lookup) -> None:
    """Ask this one too, after COLUMNS and the lookups before it; adding one again changes nothing."""
    if lookup not in _LOOKUPS:
        _LOOKUPS.append(lookup)


def meaning_of(column: str) -> ColumnMeaning | None:
    """What a column means; None where nobody says.

    >>> meaning_of("length").unit, meaning_of("my_number")
    ('frames', None)
    """
    told = (lookup(column) for lookup in (COLUMNS.get, *_LOOKUPS))
    return next((meaning for meaning in told if meaning is not None), None)


def direction_of(column: str) -> Direction | None:
    """Which values of a column are better: "higher", "lower", or None where neither is or nobody says.

    >>> direction_of("success_at_end"), direction_of("speed"), direction_of("my_number")
    ('higher', None, None)
    """
    meaning = meaning_of(column)
    return None if meaning is None else meaning.direction
