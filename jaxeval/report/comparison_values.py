"""What a comparison of values leaves behind: tables (CSV and LaTeX), figures, and one self-contained HTML."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.records.columns import Direction
from jaxeval.report import comparison_parts, comparison_values_figures
from jaxeval.report.html import Picture, Pictures
from jaxeval.report.tables import Column, Row, plain_text, shown

FIGURES = ("values", "difference", "samples")
LEAST_N = 3
"""Cells whose numbers are drawn at least, where there are as many."""
DIRECTIONS = {"higher": "higher is better", "lower": "lower is better", None: "which is better was not given"}


@dataclass(frozen=True)
class Samples:
    """The numbers behind a row: of a's runs, of b's, and a - b of the pairs (None where unpaired)."""

    a: np.ndarray
    b: np.ndarray
    differences: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class ValueComparison(comparison_parts.Compared):
    """Policy a beside each of ``bs`` by the numbers in column ``value``.

    ``samples``: those of each cell, in the order of ``cells``; ``changes``: from the nominal level of ``by`` to the
    last. ``direction``: which values are better, None: not given.
    """

    value: str
    meaning: str
    unit: str
    direction: Direction | None
    samples: list[Samples]
    changes: list[dict[str, Any]] = field(default_factory=list)


def write_value_comparison(comparison: ValueComparison, out: str | Path) -> Path:
    """Write tables, figures and ``report.html`` into a folder; returns the HTML's path.

    InputError where nothing can be written there.
    """
    c = comparison
    return comparison_parts.write_cells(
        c,
        Path(out),
        "comparison_values.html.j2",
        printed=_printed(c),
        columns=printed_columns(c),
        caption=_caption(c),
        tables={"pooled": c.pooled, "changes": c.changes},
        figures=lambda pictures: _figures(c, pictures),
        context=_context(c),
    )


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
    columns = (
        Column("a_text", "a: n, mean [interval]"),
        Column("b_text", "b: n, mean [interval]"),
        Column("pairs_text", "pairs"),
        Column("difference_text", "a - b [interval]"),
        Column("effect_text", "effect"),
        Column("p_text", "p"),
        Column("p_corrected", "p corrected"),
        Column("rank_p", "rank p"),
    )
    return comparison_parts.printed_columns(comparison, columns)


def printed(comparison: ValueComparison) -> str:
    """What a terminal shows: the table, changes and pooled differences, and what must be known of the cells."""
    c = comparison
    head = f"{_named(c)}: {DIRECTIONS[c.direction]}"
    parts = [f"{head}\n{plain_text(_printed(c), printed_columns(c))}"]
    parts += [comparison_parts.lines(f"changes by {c.by}, a - b [interval]", [_change(c, row) for row in c.changes])]
    parts += [comparison_parts.lines("pooled, a - b [interval]", [_pooled(row) for row in c.pooled])]
    parts += [
        comparison_parts.lines(
            "remarks", [*comparison_parts.unpaired(c), *comparison_parts.first_of_each(comparison_parts.remarks(c))]
        )
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part)


def _named(c: ValueComparison) -> str:
    """The column with its unit."""
    return f"{c.value} ({c.unit})" if c.unit else c.value


def _change(c: ValueComparison, row: Row) -> str:
    """How two policies' means change, in a line."""
    means = ", ".join(f"{row[s]} {shown(row[f'{s}_from'])} to {shown(row[f'{s}_to'])}" for s in "ab")
    more = f"a - b by {with_interval(row['difference'], row['low'], row['high'], signed=True)}"
    return f"{comparison_parts.place_of(c, row)}: {means}; {more}{comparison_parts.how(row)}: {row['verdict']}"


def _pooled(row: Row) -> str:
    """One pooled difference, in a line."""
    return comparison_parts.pooled_line(row, with_interval(row["difference"], row["low"], row["high"], signed=True))


def _printed(c: ValueComparison) -> list[dict[str, Any]]:
    """Rows of the table with their numbers in words, on one line each."""
    out = []
    for row in c.cells:
        words = _in_words(row)
        words |= {f"{side}_text": f"{row[f'{side}_n']}, {words[f'{side}_text']}" for side in "ab"}
        out.append(row | words)
    return out


def _in_words(row: Row) -> dict[str, Any]:
    """Means, medians and differences with their intervals."""
    ends = row["bootstrap_low"], row["bootstrap_high"]
    boot, middle = ends[0] is not None, row["difference"]
    difference = with_interval(middle, row["low"], row["high"], signed=True)
    effect = with_interval(row["effect"], row["effect_low"], row["effect_high"], signed=True)
    words: dict[str, Any] = {
        "pairs_text": str(row["pairs_n"]) if row["pairing"] == "paired" else "unpaired",
        "difference_text": difference,
        "difference_alone": difference.partition(" [")[0],
        "interval_text": _bracket(difference),
        "bootstrap_text": _bracket(with_interval(middle, *ends, signed=True)) if boot else "",
        "effect_text": f"{row['effect_of']} {effect}" if row["effect"] is not None else "–",
        "effect_alone": f"{row['effect_of']} {effect.partition(' [')[0]}" if row["effect"] is not None else "–",
        "effect_interval": _bracket(effect),
        "superiority_text": "–" if row["superiority"] is None else f"{100 * row['superiority']:.0f} %",
        "seeds_text": f"{row['seeds_n']} seeds and starts" if row.get("seeds_n") else "",
        "p_text": row["p"] if row.get("seeds_p") is None else row["seeds_p"],
        "p_corrected": row["p_adjusted"] if row.get("seeds_p") is None else row["seeds_p_adjusted"],
    }
    for side in "ab":
        lost = row[f"{side}_recorded_n"] - row[f"{side}_n"]
        words[f"{side}_text"] = with_interval(*(row[f"{side}_{key}"] for key in ("mean", "low", "high")))
        words[f"{side}_spread"] = _spread(row, side)
        words[f"{side}_lost"] = f"{lost} left out" if lost else ""
    return words


def _spread(row: Row, side: str) -> str:
    """Median and quartiles of one side."""
    if row[f"{side}_median"] is None:
        return ""
    return with_interval(*(row[f"{side}_{key}"] for key in ("median", "q1", "q3")))


def _bracket(words: str) -> str:
    """The interval alone, of a number with its interval."""
    return "[" + words.partition(" [")[2] if " [" in words else ""


def _caption(c: ValueComparison) -> str:
    level = comparison_parts.level(c)
    seeds = any(row.get("seeds_p") is not None for row in c.cells)
    over = "; where several training seeds ran, intervals and p over seeds and starts" if seeds else ""
    return (
        f"{_named(c)} of {c.a} (a) and {', '.join(c.bs)} (b), {DIRECTIONS[c.direction]}: n and mean with {level} t "
        f"intervals; differences of means with {level} paired t intervals (Welch's where not paired); effect: d_z of "
        f"pairs, Hedges' g where not paired; p of the t tests, corrected over all rows ({c.settings['correction']}); "
        f"rank_p of signed-rank tests (Pratt's zeros; Mann-Whitney where not paired){over}."
    )


# --------------------------------------------------------------------------------------------------------- the figures


def _figures(c: ValueComparison, page: Pictures) -> dict[str, Picture | None]:
    """Pictures by name; None where there is nothing to draw."""
    out: dict[str, Picture | None] = dict.fromkeys(FIGURES)
    policies = list(dict.fromkeys([c.a, *c.bs]))
    if c.by and len({row[c.by] for row in c.cells}) > 1:
        by = c.by
        means, differences = comparison_parts.curves(c, by, _side)
        out["values"] = page.add(
            "values",
            f"Mean of {c.value} by {by}, a panel a task",
            lambda: comparison_values_figures.means_figure(means, by, policies, _named(c)),
        )
        out["difference"] = page.add(
            "difference",
            f"{c.a} minus each other policy by {by}",
            lambda: comparison_values_figures.differences_figure(
                differences, by, policies, _named(c), margin=c.settings["margin"]
            ),
        )
    if drawn := _drawn(c):
        out["samples"] = page.add(
            "samples",
            f"{c.value} of every start or run, of the largest effects",
            lambda: comparison_values_figures.samples_figure(drawn, policies, _named(c), margin=c.settings["margin"]),
        )
    return out


def _drawn(c: ValueComparison) -> list[tuple[str, Row, Samples]]:
    """Cells whose numbers are drawn: the largest effect of each task and policy, then the next largest."""
    every = [
        (comparison_parts.where(c, r), r, s) for r, s in zip(c.cells, c.samples, strict=True) if len(s.a) and len(s.b)
    ]
    every = sorted(every, key=lambda d: -abs(d[1]["effect"] or 0))
    first = {(r["task"], r["b"]): k for k, (_, r, _) in reversed(list(enumerate(every)))}
    order = sorted(range(len(every)), key=lambda k: (k not in first.values(), k))
    return [every[k] for k in order[: max(LEAST_N, min(len(first), comparison_parts.PANELS_N))]]


def _side(row: Row, side: str) -> dict[str, Any]:
    """Mean of one policy in a cell, with the cell's condition; one without an interval has one of no width."""
    mean = row[f"{side}_mean"]
    low, high = (mean if row[f"{side}_{key}"] is None else row[f"{side}_{key}"] for key in ("low", "high"))
    return {**row, "mean": mean, "low": low, "high": high}


# ------------------------------------------------------------------------------------------------------------ the page


def _context(c: ValueComparison) -> dict[str, Any]:
    """What the page says, as plain values."""
    rows = [row | _in_words(row) for row in c.cells]
    margin = c.settings["margin"]
    return {
        "rows": rows,
        "numbers": comparison_parts.verdicts(c, "better" if c.direction else "higher"),
        "has_seeds": any(r["seeds_text"] for r in rows),
        "named": _named(c),
        "direction": DIRECTIONS[c.direction],
        "margin": amount(margin, c.unit) if margin is not None else "",
        "change": [_change(c, row) for row in c.changes],
        "pooled": [_pooled(row) for row in c.pooled],
    }
