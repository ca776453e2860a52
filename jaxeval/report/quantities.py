"""Numbers of scores as the report tells them: title with unit, factor to that unit, digits; and their means by group.

Millimetres, degrees and percent are made here. A number that is not known is "–", never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxeval.report.scored import Scored

Numbers = Mapping[str, np.ndarray]
"""Values of all executions by column, NaN where not known."""


@dataclass(frozen=True)
class Quantity:
    """A column of scores as the report tells it: title with unit, factor to that unit, digits.

    ``least``: of a group the least is told, not the mean.
    """

    column: str
    title: str
    digits: int
    factor: float = 1.0
    least: bool = False

    def words(self, value: float) -> str:
        """The number in the title's unit; a true minus sign."""
        text = f"{self.factor * value:.{self.digits}f}"
        return text.replace("-", "−") if float(text) else text.lstrip("-")


def scored_of(numbers: Numbers, quantities: Sequence[Quantity]) -> list[Quantity]:
    """Those of the quantities that were scored."""
    return [q for q in quantities if q.column in numbers]


def group_table(scored: Scored, numbers: Numbers, quantities: Sequence[Quantity], groups: Sequence[int]) -> Any:
    """{titles, rows} of means by group; None where none of the quantities was scored.

    A row is (group, executions, cells); a cell has in brackets for how many executions its number is known, where not
    for all, and is "–" where for none.
    """
    shown = scored_of(numbers, quantities)
    if not shown:
        return None
    rows = []
    for g in groups:
        mine = scored.group == g
        cells = [_of_group(q, numbers[q.column][mine]) for q in shown]
        rows.append((scored.groups[g], int(mine.sum()), cells))
    return {"titles": [q.title for q in shown], "rows": rows}


def _of_group(quantity: Quantity, values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return "–"
    text = quantity.words(float(known.min() if quantity.least else known.mean()))
    return text if len(known) == len(values) else f"{text} ({len(known)})"
