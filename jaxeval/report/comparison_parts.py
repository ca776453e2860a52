"""What comparisons of success and of values share: their cells in words, curves along a condition, tables and page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxeval.io.records import shortened
from jaxeval.report import summary
from jaxeval.report.html import Picture, Pictures, write_page
from jaxeval.report.tables import Column, Row, shown, write_csv, write_latex

if TYPE_CHECKING:
    import pandas

FIGURES = ("success", "values", "difference", "pairs", "stages", "causes", "samples")
"""Figures that any comparison may leave in its folder."""
TABLES = ("pooled", "decreases", "changes", "stages", "causes")
"""Tables beside the cells' that any comparison may leave."""
PANELS_N = 6
"""Panels of a figure."""
CORRECTIONS = {"holm": "Holm's method", "bh": "Benjamini and Hochberg's method"}
LINES_N = 12
"""Lines of each kind that a terminal shows below the table."""
BETWEEN = " | "
"""Stands between the remarks of a cell."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Policy a beside each of ``bs``, of success or of a value: rows of tables, and what must be said of them.

    ``cells``: a row a task, condition and b; ``pooled``: over all cells of a b; ``by``: the condition that curves are
    drawn along; ``refused``: what was left out of the records.
    """

    a: str
    bs: tuple[str, ...]
    by: str | None
    conditions: tuple[str, ...]
    settings: dict[str, Any]
    cells: list[dict[str, Any]]
    pooled: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def to_pandas(self) -> pandas.DataFrame:
        """The cells, a row each."""
        import pandas

        return pandas.DataFrame(self.cells)


def lines(heading: str, remarks: list[str]) -> str:
    """A heading with its lines, LINES_N at most; nothing where there are none."""
    if not remarks:
        return ""
    more = [f"and {len(remarks) - LINES_N} more, in the report"] if len(remarks) > LINES_N else []
    return "\n".join([f"{heading}:", *(f"  {line}" for line in [*remarks[:LINES_N], *more])])


def how(row: Row) -> str:
    """How a difference was found, in brackets, where that is to be said."""
    words = [*(["unpaired"] if row["pairing"] == "unpaired" else []), *([row["how"]] if row.get("how") else [])]
    return f" ({', '.join(words)})" if words else ""


def first_of_each(words: list[tuple[str, str]]) -> list[str]:
    """Of remarks that differ in their numbers only the first, and how many more there are."""
    alike: dict[str, list[str]] = {}
    for place, note in words:
        alike.setdefault(re.sub(r"\d+", "#", note), []).append(f"{place}: {note}" if place else note)
    return [same[0] + (f" [and {len(same) - 1} like it]" if len(same) > 1 else "") for same in alike.values()]


def unpaired(c: Compared) -> list[str]:
    """How many cells could not be compared in pairs though pairs were wished for."""
    n = sum(row["pairing"] == "unpaired" for row in c.cells)
    if not n or c.settings["pairing"] == "none":
        return []
    return [f"{n} of {len(c.cells)} cells are compared as unpaired, which tells less; why is said of each"]


def remarks(c: Compared) -> list[tuple[str, str]]:
    """(cells, remark) of every remark once."""
    places: dict[str, list[str]] = {}
    for row in c.cells:
        for note in row["note"].split(BETWEEN) if row["note"] else ():
            places.setdefault(note, []).append(f"{row['b']}, {where(c, row)}")
    return [("every cell" if len(w) == len(c.cells) else shortened(w, 4), note) for note, w in places.items()]


def where(c: Compared, row: Row) -> str:
    """A cell in a few words."""
    words = [task(row["task"])] if row["task"] is not None else []
    words += [f"{key} {row[key]:g}" if isinstance(row[key], float) else f"{key} {row[key]}" for key in c.conditions]
    return ", ".join(words) or "all runs"


def task(name: Any) -> str:
    """A task's name, or what stands for it where none is recorded."""
    return "all runs" if name is None else str(name)


def in_plane(c: Compared, row: Row) -> bool:
    """Whether every condition but `by` has the value of the first row: what a curve is drawn through."""
    return all(row[k] == c.cells[0][k] for k in c.conditions if k != c.by)


def number_first(value: Any) -> tuple[int, Any]:
    """Sort key of levels: numbers by size, then the rest by name."""
    return (0, value) if isinstance(value, (int, float)) and not math.isnan(value) else (1, str(value))


def printed_columns(c: Compared, columns: Sequence[Column]) -> list[Column]:
    """Columns of the printed table: task where there is one, conditions, b, what is told of a cell, the verdict."""
    tasks = {row["task"] for row in c.cells} != {None}
    return [
        *([Column("task")] if tasks else []),
        *(Column(name) for name in c.conditions),
        Column("b", "a against"),
        *columns,
        Column("verdict"),
    ]


def place_of(c: Compared, row: Row) -> str:
    """Task, other conditions and the two levels of `by` that a row stands between, in a few words."""
    known = [str(row["task"])] if row["task"] is not None else []
    rest = ", ".join([*known, *(f"{k} {shown(row[k])}" for k in c.conditions if row.get(k) is not None)])
    return ", ".join(p for p in (rest, f"{c.by} {shown(row['from'])} to {shown(row['to'])}") if p)


def pooled_line(row: Row, words: str) -> str:
    """One pooled difference, in a line; ``told`` is the difference with its interval."""
    left = f", {row['left_out_n']} unpaired left out" if row["left_out_n"] else ""
    place = f"{row['task']}, " if row["task"] is not None else ""
    return (
        f"{place}{row['a']} - {row['b']}: {words} over {row['strata_n']} cells{left} ({row['how']}): {row['verdict']}"
    )


def curves(c: Compared, by: str, side: Callable[[Row, str], dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Panels of the policies and of their differences: (task, (policy, rows) each, levels of `by`).

    ``side`` makes of a cell the row of one policy, "a" or "b".
    """
    rows = [row for row in c.cells if in_plane(c, row)]
    alone, differences = [], []
    for name in list(dict.fromkeys(row["task"] for row in rows))[:PANELS_N]:
        here = [r for r in rows if r["task"] == name]
        levels = list(dict.fromkeys(sorted((r[by] for r in here), key=number_first)))
        of_a = {r[by]: side(r, "a") for r in sorted(here, key=lambda r: number_first(r[by]))}
        of_b = [(b, its) for b in c.bs if (its := [r for r in here if r["b"] == b])]
        apart = [(b, [side(r, "b") for r in its]) for b, its in of_b if b != c.a]
        alone.append((task(name), [(c.a, list(of_a.values())), *apart], levels))
        differences.append((task(name), of_b, levels))
    return alone, differences


def verdicts(c: Compared, word: str) -> list[tuple[int, str]]:
    """How many cells have which verdict, for the page's head; ``word``: what a policy is, such as better."""
    every = [row["verdict"] for row in c.cells]
    found = {name: sum(v.startswith(f"{name} {word}") for v in every) for name in dict.fromkeys([c.a, *c.bs])}
    return [
        *((n, f"cells: {name} {word}") for name, n in found.items() if n or name == c.a),
        (sum(v.startswith("equivalent") for v in every), "cells: equivalent"),
        (sum(v.startswith("not ") for v in every), "cells: not distinguishable"),
    ]


def write_cells(
    c: Compared,
    out: Path,
    template: str,
    *,
    printed: Sequence[Row],
    columns: Sequence[Column],
    caption: str,
    tables: Mapping[str, Sequence[Row]],
    figures: Callable[[Pictures], dict[str, Picture | None]],
    context: dict[str, Any],
) -> Path:
    """Write tables, figures and ``report.html`` into a folder, and remove those of an earlier comparison there.

    ``printed``: the cells in words, with their ``columns``, for LaTeX; ``context``: what the page says beside what
    every comparison says. InputError where nothing can be written there.
    """
    write_csv(out / "comparison.csv", c.cells)
    write_latex(out / "comparison.tex", printed, columns, caption=caption, label="tab:comparison")
    for name in TABLES:
        if rows := tables.get(name):
            write_csv(out / f"{name}.csv", rows)
        else:
            (out / f"{name}.csv").unlink(missing_ok=True)
    pictures = Pictures(out / "figures")
    made = figures(pictures)
    pictures.remove_others(FIGURES)
    shared = {
        "c": c, "pictures": made, "has_tasks": any(r["task"] for r in c.cells), "unpaired": unpaired(c),
        "conditions": list(c.conditions), "remarks": remarks(c), "level": level(c), "shown": shown,
        "correction": CORRECTIONS[c.settings["correction"]], "settings": sorted(c.settings.items()),
        "versions": summary.versions(),
    }  # fmt: skip
    return write_page(out / "report.html", template, **shared, **context)


def level(c: Compared) -> str:
    """Level of the intervals, as people read it: "95 %"."""
    return f"{100 * c.settings['level']:g} %"
