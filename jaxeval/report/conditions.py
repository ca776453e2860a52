"""Conditions that a scored set was run under, and rates of success with Wilson's intervals at their levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxeval.report.scored import Scored, natural
from jaxeval.stats.proportions import wilson

CONDITIONS = ("speed", "told_speed", "group")
"""Columns that are conditions wherever they differ; attributes are too, where they have few values."""
LEVELS_N = 12
"""A column of more values than this is no condition."""
ATTRIBUTE = "attribute."


@dataclass(frozen=True)
class Condition:
    """A column with few values: ``levels`` in order, and of every execution the index of its level, -1 for none."""

    column: str
    levels: tuple[Any, ...]
    level: np.ndarray

    @property
    def title(self) -> str:
        """Its name as people read it."""
        return self.column.removeprefix(ATTRIBUTE).replace("_", " ")

    @property
    def names(self) -> list[str]:
        """Its levels as people read them."""
        return [f"{v:g}" if isinstance(v, float) else str(v) for v in self.levels]

    @property
    def rows(self) -> list[np.ndarray]:
        """Executions at each level."""
        return [np.flatnonzero(self.level == k) for k in range(len(self.levels))]


def conditions(scored: Scored) -> list[Condition]:
    """What differs among the executions, speeds first; of columns that part them alike the first.

    A set without any difference has one condition: its groups.
    """
    names = [n for n in scored.table.column_names if n in CONDITIONS or n.startswith(ATTRIBUTE)]
    names.sort(key=lambda n: CONDITIONS.index(n) if n in CONDITIONS else len(CONDITIONS))
    out: list[Condition] = []
    for name in names:
        values = scored.text["group"] if name == "group" else scored.values(name)
        made = _condition(name, values)
        if made is not None and not any(_alike(made, other) for other in out):
            out.append(made)
    return out or [Condition("group", scored.groups, scored.group)]


def _condition(name: str, values: Sequence[Any]) -> Condition | None:
    """A column as a condition; None where it does not differ, differs too much, or is no plain value."""
    known = {v for v in values if isinstance(v, (str, bool, int, float)) and v == v}
    if not 2 <= len(known) <= LEVELS_N:
        return None
    numbers = not any(isinstance(v, (str, bool)) for v in known)
    levels = tuple(sorted(known) if numbers else sorted(known, key=lambda v: natural(str(v))))
    place = {v: k for k, v in enumerate(levels)}
    return Condition(name, levels, np.array([place.get(v, -1) for v in values]))


def _alike(a: Condition, b: Condition) -> bool:
    """Whether two conditions part the executions in the same way."""
    pairs = set(zip(a.level.tolist(), b.level.tolist(), strict=True))
    return len(pairs) == len({x for x, _ in pairs}) == len({y for _, y in pairs})


def rates(truths: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    """{k, n, rate, low, high} of truths (1, 0, NaN where not known), each with its 95 % interval; None where n is 0."""
    n = np.array([np.isfinite(x).sum() for x in truths], float)
    k = np.array([np.nansum(x) for x in truths], float)
    size = 1 << max(0, len(n) - 1).bit_length()  # so that few lengths are compiled
    more = (0, size - len(n))
    found = _wilson(np.pad(k, more), np.pad(n, more))
    ends = zip(*(np.asarray(x, float)[: len(n)] for x in (found.value, found.low, found.high)), strict=True)
    return [
        {"k": int(a), "n": int(b)} | dict(zip(("rate", "low", "high"), end if b else (None,) * 3, strict=True))
        for a, b, end in zip(k, n, ends, strict=True)
    ]


@jax.jit
def _wilson(k: Any, n: Any) -> Any:
    return jax.vmap(wilson)(k, n)


def percent(row: dict[str, Any]) -> str:
    """A rate in percent with its interval: "84 [76, 90]"; "–" where there is none."""
    if row["rate"] is None:
        return "–"
    return "{:.0f} [{:.0f}, {:.0f}]".format(*(100 * row[key] for key in ("rate", "low", "high")))
