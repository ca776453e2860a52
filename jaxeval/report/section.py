"""What a section of the report is: a name that metrics ask for, and a function that draws what it has to tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.report.html import Pictures, templates
from jaxeval.report.scored import Scored
from jaxeval.types import Reference

TABLE_N = 200
"""Rows of the table of executions."""


@dataclass(frozen=True)
class Cell:
    """A cell of the table of executions: what it shows (escaped unless it is Markup), and the number it sorts by."""

    shown: Any
    key: float | None = None


@dataclass(frozen=True)
class TableColumn:
    """A column that a section adds to the table of executions. ``of`` makes the cell of a row.

    ``css``: classes of its cells, ``head_css`` of its heading; ``sorted``: the table is in its order to begin with.
    """

    title: str
    of: Callable[[int], Cell]
    css: str = ""
    head_css: str = ""
    sorted: bool = False


@dataclass(frozen=True)
class Part:
    """What a section gives to the page; Markup, since its own template has escaped it.

    ``body``: its `<section>` elements. ``summary`` stands in the page's head, ``numbers`` (number, what it is) above
    it, ``method`` among the methods, ``script`` at the end. ``columns`` and ``order`` (rows, lowest first) are of the
    table of executions; the first section that has an order decides.
    """

    body: Any
    numbers: tuple[tuple[Any, str], ...] = ()
    summary: Any = ""
    method: Any = ""
    script: Any = ""
    columns: tuple[TableColumn, ...] = ()
    order: np.ndarray | None = None


@dataclass
class Context:
    """What a section may use beside the scores.

    ``reference``: the one that geometric quality was scored with, where it was given. ``pictures`` makes figures.
    ``skipped``: (title, lines) of what is left out; sections add to it. ``remarks``: sentences for the page's head.
    ``drawn``: sections before this one that had something to tell.
    """

    reference: Reference | None
    pictures: Pictures
    skipped: list[tuple[str, list[str]]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)

    def executions(self, scored: Scored) -> tuple[tuple[Any, str], ...]:
        """The number of executions for the head, for the first section; nothing for those after it."""
        return () if self.drawn else ((scored.n, "executions"),)


@dataclass(frozen=True)
class Section:
    """One section: ``name`` as in `Metric.section`, ``title`` for the page, and what draws it.

    ``draw`` returns None where it has nothing to tell.
    """

    name: str
    title: str
    draw: Callable[[Scored, Context], Part | None]


def template_of(module: str, **values: Any) -> Any:
    """The macros of a section's template, which lies beside its module and is named like it; they see ``values``."""
    return templates().get_template(f"sections/{Path(module).stem}.html.j2").make_module(values)
