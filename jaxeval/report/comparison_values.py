"""What a comparison of values leaves behind: tables (CSV and LaTeX), figures, and one self-contained HTML."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.io.records.columns import Direction
from jaxeval.report import comparison_values_figures as F
from jaxeval.report import summary
from jaxeval.report.comparison import (
    CORRECTIONS,
    _first_of_each,
    _how,
    _in_plane,
    _lines,
    _number_first,
    _remarks,
    _task,
    _unpaired,
    _where,
)
from jaxeval.report.html import Picture, _environment, _Page
from jaxeval.report.tables import Column, Row, plain_text, shown, write_csv, write_latex, write_whole

if TYPE_CHECKING:
    import pandas

FIGURES = ("values", "difference", "samples")
STALE = ("success", "pairs", "stages", "causes")
"""Figures that a comparison of success leaves in the same folder."""
PANELS_N, LEAST_N = 6, 3
"""Panels of a figure at most; cells whose numbers are drawn at least, where there are as many."""
DIRECTIONS = {"higher": "higher is better", "lower": "lower is better", None: "which is better was not given"}


@dataclass(frozen=True)
class Samples:
    """The numbers behind a row: of a's runs, of b's, and a - b of the pairs (None where unpaired)."""

    a: np.ndarray
    b: np.ndarray
    differences: np.ndarray | None


@dataclass(frozen=True)
class ValueComparison:
    """Policy a beside each of ``bs`` by the numbers in column ``value``: rows of every table, what must be said.

    ``cells``: a row a task, condition and b, with ``samples`` in the same order; ``pooled``: over all cells of a b;
    ``changes``: from the nominal level of ``by`` to the last. ``direction``: which values are better, None: not given.
    """

    a: str
    bs: tuple[str, ...]
    by: str | None
    conditions: tuple[str, ...]
    value: str
    meaning: str
    unit: str
    direction: Direction | None
    settings: dict[str, Any]
    cells: list[dict[str, Any]]
    samples: list[Samples]
    pooled: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def to_pandas(self) -> pandas.DataFrame:
        """The cells, a row each."""
        import pandas

        return pandas.DataFrame(self.cells)


def write_value_comparison(comparison: ValueComparison, out: str | Path) -> Path:
    """Write tables, figures and ``report.html`` into a folder; returns the HTML's path.

    InputError where nothing can be written there.
    """
    c, out = comparison, Path(out)
    write_csv(out / "comparison.csv", c.cells)
    write_latex(out / "comparison.tex", _printed(c), printed_columns(c), caption=_caption(c), label="tab:comparison")
    for name, rows in (("pooled", c.pooled), ("changes", c.changes), ("decreases", []), ("stages", []), ("causes", [])):
        if rows:
            write_csv(out / f"{name}.csv", rows)
        else:
            (out / f"{name}.csv").unlink(missing_ok=True)  # of an earlier comparison in the same folder
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    page = _Page(folder)
    pictures = _figures(c, page)
    for stale in {f"{n}.png" for n in (*FIGURES, *STALE)} - page.made:
        (folder / stale).unlink(missing_ok=True)
    context = _context(c) | {"pictures": pictures}
    html = _environment().get_template("comparison_values.html.j2").render(context)
    return write_whole(out / "report.html", html.encode())


# ------------------------------------------------------------------------------------------------------------ in words


def amount(x: float, unit: str = "") -> str:
    """A number with its unit.

    >>> amount(0.02, "m"), amount(0.05)
    ('0.02 m', '0.05')
    """
    return f"{shown(x)} {unit}".strip()


def with_interval(x: float | None, low: float | None, high: float | None, *, signed: bool = False) -> str:
    """A number and its interval, with as many decimals as the interval's width deserves.

    >>> with_interval(0.99342, 0.9912, 0.9956), with_interval(-1234.5, -1300.0, -1170.0, signed=True)
    ('0.9934 [0.9912, 0.9956]', '-1234 [-1300, -1170]')
    >>> with_interval(2.5, None, None), with_interval(None, None, None)
    ('2.5', 'no data')
    """
    if x is None:
        return "no data"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return f"{x:+.4g}" if signed else f"{x:.4g}"
    half = (high - low) / 2
    digits = 4 if half <= 0 else 1 - math.floor(math.log10(half))
    if digits > 7 or max(abs(low), abs(high)) >= 1e9:
        form = "+.4g" if signed else ".4g"
    else:
        form = f"{'+' if signed else ''}.{max(digits, 0)}f"
    return f"{x:{form}} [{low:{form}}, {high:{form}}]"


def printed_columns(comparison: ValueComparison) -> list[Column]:
    """Columns of the table as people read it: n and mean of each, the difference with its interval, the verdict."""
    tasks = {row["task"] for row in comparison.cells} != {None}
    return [
        *([Column("task")] if tasks else []),
        *(Column(name) for name in comparison.conditions),
        Column("b", "a against"),
        Column("a_told", "a: n, mean [interval]"),
        Column("b_told", "b: n, mean [interval]"),
        Column("pairs_told", "pairs"),
        Column("difference_told", "a - b [interval]"),
        Column("effect_told", "effect"),
        Column("p_told", "p"),
        Column("p_corrected", "p corrected"),
        Column("rank_p", "rank p"),
        Column("verdict"),
    ]


def printed(comparison: ValueComparison) -> str:
    """What a terminal shows: the table, changes and pooled differences, and what must be known of the cells."""
    c = comparison
    head = f"{_named(c)}: {DIRECTIONS[c.direction]}"
    parts = [f"{head}\n{plain_text(_printed(c), printed_columns(c))}"]
    parts += [_lines(f"changes by {c.by}, a - b [interval]", [_change(c, row) for row in c.changes])]
    parts += [_lines("pooled, a - b [interval]", [_pooled(row) for row in c.pooled])]
    parts += [_lines("remarks", [*_unpaired(c), *_first_of_each(_remarks(c))])]
    return "\n\n".join(part.rstrip("\n") for part in parts if part)


def _named(c: ValueComparison) -> str:
    """The column with its unit."""
    return f"{c.value} ({c.unit})" if c.unit else c.value


def _change(c: ValueComparison, row: Row) -> str:
    """How two policies' means change, in a line."""
    task = [str(row["task"])] if row["task"] is not None else []
    rest = ", ".join([*task, *(f"{k} {shown(row[k])}" for k in c.conditions if row.get(k) is not None)])
    means = ", ".join(f"{row[s]} {shown(row[f'{s}_from'])} to {shown(row[f'{s}_to'])}" for s in "ab")
    more = f"a - b by {with_interval(row['difference'], row['low'], row['high'], signed=True)}"
    way = f"{c.by} {shown(row['from'])} to {shown(row['to'])}"
    return f"{', '.join(p for p in (rest, way) if p)}: {means}; {more}{_how(row)}: {row['verdict']}"


def _pooled(row: Row) -> str:
    """One pooled difference, in a line."""
    left = f", {row['left_out_n']} unpaired left out" if row["left_out_n"] else ""
    where = f"{row['task']}, " if row["task"] is not None else ""
    told = with_interval(row["difference"], row["low"], row["high"], signed=True)
    return f"{where}{row['a']} - {row['b']}: {told} over {row['strata_n']} cells{left} ({row['how']}): {row['verdict']}"


def _printed(c: ValueComparison) -> list[dict[str, Any]]:
    """Rows of the table with their numbers in words, on one line each."""
    out = []
    for row in c.cells:
        words = _in_words(row)
        words |= {f"{side}_told": f"{row[f'{side}_n']}, {words[f'{side}_told']}" for side in "ab"}
        out.append(row | words)
    return out


def _in_words(row: Row) -> dict[str, Any]:
    """Means, medians and differences with their intervals."""
    ends = row["bootstrap_low"], row["bootstrap_high"]
    boot, middle = ends[0] is not None, row["difference"]
    difference = with_interval(middle, row["low"], row["high"], signed=True)
    effect = with_interval(row["effect"], row["effect_low"], row["effect_high"], signed=True)
    told: dict[str, Any] = {
        "pairs_told": str(row["pairs_n"]) if row["pairing"] == "paired" else "unpaired",
        "difference_told": difference,
        "difference_alone": difference.partition(" [")[0],
        "interval_told": _bracket(difference),
        "bootstrap_told": _bracket(with_interval(middle, *ends, signed=True)) if boot else "",
        "effect_told": f"{row['effect_of']} {effect}" if row["effect"] is not None else "–",
        "effect_alone": f"{row['effect_of']} {effect.partition(' [')[0]}" if row["effect"] is not None else "–",
        "effect_interval": _bracket(effect),
        "superiority_told": "–" if row["superiority"] is None else f"{100 * row['superiority']:.0f} %",
        "seeds_told": f"{row['seeds_n']} seeds and starts" if row.get("seeds_n") else "",
        "p_told": row["p"] if row.get("seeds_p") is None else row["seeds_p"],
        "p_corrected": row["p_adjusted"] if row.get("seeds_p") is None else row["seeds_p_adjusted"],
    }
    for side in "ab":
        lost = row[f"{side}_recorded_n"] - row[f"{side}_n"]
        told[f"{side}_told"] = with_interval(*(row[f"{side}_{key}"] for key in ("mean", "low", "high")))
        told[f"{side}_spread"] = _spread(row, side)
        told[f"{side}_lost"] = f"{lost} left out" if lost else ""
    return told


def _spread(row: Row, side: str) -> str:
    """Median and quartiles of one side."""
    if row[f"{side}_median"] is None:
        return ""
    return with_interval(*(row[f"{side}_{key}"] for key in ("median", "q1", "q3")))


def _bracket(told: str) -> str:
    """The interval alone, of a number with its interval."""
    return "[" + told.partition(" [")[2] if " [" in told else ""


def _caption(c: ValueComparison) -> str:
    level = f"{100 * c.settings['level']:g} %"
    seeds = any(row.get("seeds_p") is not None for row in c.cells)
    over = "; where several training seeds ran, intervals and p over seeds and starts" if seeds else ""
    return (
        f"{_named(c)} of {c.a} (a) and {', '.join(c.bs)} (b), {DIRECTIONS[c.direction]}: n and mean with {level} t "
        f"intervals; differences of means with {level} paired t intervals (Welch's where not paired); effect: d_z of "
        f"pairs, Hedges' g where not paired; p of the t tests, corrected over all rows ({c.settings['correction']}); "
        f"rank_p of signed-rank tests (Pratt's zeros; Mann-Whitney where not paired){over}."
    )


# --------------------------------------------------------------------------------------------------------- the figures


def _figures(c: ValueComparison, page: _Page) -> dict[str, Picture | None]:
    """Pictures by name; None where there is nothing to draw."""
    out: dict[str, Picture | None] = dict.fromkeys(FIGURES)
    policies = list(dict.fromkeys([c.a, *c.bs]))
    if c.by and len({row[c.by] for row in c.cells}) > 1:
        by = c.by
        means, differences = _curves(c, by)
        out["values"] = page.add(
            "values",
            f"Mean of {c.value} by {by}, a panel a task",
            lambda: F.means_figure(means, by, policies, _named(c)),
        )
        out["difference"] = page.add(
            "difference",
            f"{c.a} minus each other policy by {by}",
            lambda: F.differences_figure(differences, by, policies, _named(c), margin=c.settings["margin"]),
        )
    if drawn := _drawn(c):
        out["samples"] = page.add(
            "samples",
            f"{c.value} of every start or run, of the largest effects",
            lambda: F.samples_figure(drawn, policies, _named(c), margin=c.settings["margin"]),
        )
    return out


def _drawn(c: ValueComparison) -> list[tuple[str, Row, Samples]]:
    """Cells whose numbers are drawn: the largest effect of each task and policy, then the next largest."""
    every = [(_where(c, r), r, s) for r, s in zip(c.cells, c.samples, strict=True) if len(s.a) and len(s.b)]
    every = sorted(every, key=lambda d: -abs(d[1]["effect"] or 0))
    first = {(r["task"], r["b"]): k for k, (_, r, _) in reversed(list(enumerate(every)))}
    order = sorted(range(len(every)), key=lambda k: (k not in first.values(), k))
    return [every[k] for k in order[: max(LEAST_N, min(len(first), PANELS_N))]]


def _curves(c: ValueComparison, by: str) -> tuple[list[Any], list[Any]]:
    """Panels of means and of their difference: (task, (policy, rows) each, levels of `by`)."""
    rows = [row for row in c.cells if _in_plane(c, row)]
    means, differences = [], []
    for task in list(dict.fromkeys(row["task"] for row in rows))[:PANELS_N]:
        here = [r for r in rows if r["task"] == task]
        levels = list(dict.fromkeys(sorted((r[by] for r in here), key=_number_first)))
        of_a = {r[by]: _side(r, "a") for r in sorted(here, key=lambda r: _number_first(r[by]))}
        of_b = [(b, its) for b in c.bs if (its := [r for r in here if r["b"] == b])]
        apart = [(b, [_side(r, "b") for r in its]) for b, its in of_b if b != c.a]
        means.append((_task(task), [(c.a, list(of_a.values())), *apart], levels))
        differences.append((_task(task), of_b, levels))
    return means, differences


def _side(row: Row, side: str) -> dict[str, Any]:
    """Mean of one policy in a cell, with the cell's condition; one without an interval has one of no width."""
    mean = row[f"{side}_mean"]
    low, high = (mean if row[f"{side}_{key}"] is None else row[f"{side}_{key}"] for key in ("low", "high"))
    return {**row, "mean": mean, "low": low, "high": high}


# ------------------------------------------------------------------------------------------------------------ the page


def _context(c: ValueComparison) -> dict[str, Any]:
    """What the page says, as plain values."""
    rows = [row | _in_words(row) for row in c.cells]
    verdicts = [row["verdict"] for row in c.cells]
    word = "better" if c.direction else "higher"
    found = {name: sum(v.startswith(f"{name} {word}") for v in verdicts) for name in dict.fromkeys([c.a, *c.bs])}
    numbers = [(n, f"cells: {name} {word}") for name, n in found.items() if n or name == c.a]
    numbers += [(sum(v.startswith("equivalent") for v in verdicts), "cells: equivalent")]
    numbers += [(sum(v.startswith("not ") for v in verdicts), "cells: not distinguishable")]
    margin = c.settings["margin"]
    return {
        "c": c, "rows": rows, "numbers": numbers, "has_tasks": any(r["task"] for r in rows), "named": _named(c),
        "direction": DIRECTIONS[c.direction], "has_seeds": any(r["seeds_told"] for r in rows),
        "unpaired": _unpaired(c), "conditions": list(c.conditions), "remarks": _remarks(c),
        "level": f"{100 * c.settings['level']:g} %", "margin": amount(margin, c.unit) if margin is not None else "",
        "shown": shown, "correction": CORRECTIONS[c.settings["correction"]], "settings": sorted(c.settings.items()),
        "versions": summary.versions(), "change": [_change(c, row) for row in c.changes],
        "pooled": [_pooled(row) for row in c.pooled],
    }  # fmt: skip
