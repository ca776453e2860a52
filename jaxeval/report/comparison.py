"""What a comparison leaves behind: tables (CSV and LaTeX), figures, and one self-contained HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxeval.report import comparison_figures, comparison_parts
from jaxeval.report.html import Picture, Pictures
from jaxeval.report.tables import Column, Row, plain_text

FIGURES = ("success", "difference", "pairs", "stages", "causes")
PAIRS_N, CELLS_N, CAUSES_N = 3, 4, 8
"""2x2 pictures; conditions whose stages are drawn; causes told apart in a figure."""
REST, SUCCEEDED = "other", "success"


@dataclass(frozen=True, kw_only=True)
class Comparison(comparison_parts.Compared):
    """How often policy a succeeds beside each of ``bs``.

    ``success``: which success is counted; ``decreases``: from the nominal level of ``by`` to the last; ``stages`` and
    ``causes``: counts of every policy.
    """

    success: str
    decreases: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    causes: list[dict[str, Any]] = field(default_factory=list)


def write_comparison(comparison: Comparison, out: str | Path) -> Path:
    """Write tables, figures and ``report.html`` into a folder; returns the HTML's path.

    InputError where nothing can be written there.
    """
    c = comparison
    return comparison_parts.write_cells(
        c,
        Path(out),
        "comparison.html.j2",
        printed=_printed(c),
        columns=printed_columns(c),
        caption=_caption(c),
        tables={"pooled": c.pooled, "decreases": c.decreases, "stages": c.stages, "causes": c.causes},
        figures=lambda pictures: _figures(c, pictures),
        context=_context(c),
    )


# --------------------------------------------------------------------------------------------------------- the table


def printed_columns(comparison: Comparison) -> list[Column]:
    """Columns of the table as people read it: k/n beside every rate, the difference with its interval, the verdict."""
    columns = (
        Column("a_text", "a: k/n, % [interval]"),
        Column("b_text", "b: k/n, % [interval]"),
        Column("counts", "both/a/b/neither"),
        Column("difference_text", "a - b, points [interval]"),
        Column("p"),
        Column("p_adjusted", "p corrected"),
    )
    return comparison_parts.printed_columns(comparison, columns)


def printed(comparison: Comparison) -> str:
    """What a terminal shows: the table, decreases and pooled differences, and what must be known of the cells."""
    c = comparison
    parts = [plain_text(_printed(c), printed_columns(c))]
    parts += [
        comparison_parts.lines(f"decreases by {c.by}, points [interval]", [_decrease(c, row) for row in c.decreases])
    ]
    parts += [comparison_parts.lines("pooled, a - b in points [interval]", [_pooled(row) for row in c.pooled])]
    lines = [
        *comparison_parts.unpaired(c),
        *comparison_parts.first_of_each(comparison_parts.remarks(c)),
        *comparison_parts.first_of_each([("", line) for line in _beside(c)]),
    ]
    parts += [comparison_parts.lines("remarks", lines)]
    return "\n\n".join(part.rstrip("\n") for part in parts if part)


def _decrease(c: Comparison, row: Row) -> str:
    """How much two policies lose, in a line."""
    losses = ", ".join(f"{row[s]} loses {100 * row[f'{s}_decrease']:.1f}" for s in "ab")
    more = f"{row['b']} by {points(row['difference'], row['low'], row['high'])} more"
    return f"{comparison_parts.place_of(c, row)}: {losses}; {more}{comparison_parts.how(row)}: {row['verdict']}"


def _pooled(row: Row) -> str:
    """One pooled difference, in a line."""
    return comparison_parts.pooled_line(row, points(row["difference"], row["low"], row["high"]))


def _printed(comparison: Comparison) -> list[dict[str, Any]]:
    """Rows of the table with their numbers in words, on one line each."""
    out = []
    for row in comparison.cells:
        words = _in_words(row)
        words |= {side + "_text": f"{row[f'{side}_k']}/{row[f'{side}_n']}, {words[side + '_text']}" for side in "ab"}
        words["difference_text"] = f"{words['difference_text']} {words['interval_text']}".strip()
        out.append(row | words)
    return out


def _in_words(row: Row) -> dict[str, str]:
    """Rates in percent, differences in points, with their intervals."""
    paired = row["pairing"] == "paired"
    seen = row["difference"] is not None
    boot = seen and row.get("bootstrap_low") is not None
    return {
        **{f"{side}_text": _percent(row, side) for side in "ab"},
        "counts": f"{row['both']}/{row['a_only']}/{row['b_only']}/{row['neither']}" if paired else "unpaired",
        "difference_text": f"{100 * row['difference']:+.1f}" if seen else "–",
        "interval_text": _interval(row["low"], row["high"]) if seen else "",
        "seeds_text": f"{row['seeds_n']} seeds and starts" if _over_seeds(row) else "",
        "bootstrap_text": _interval(row["bootstrap_low"], row["bootstrap_high"]) if boot else "",
    }


def _over_seeds(row: Row) -> bool:
    """Whether a row's interval is over training seeds and starts."""
    return row.get("seeds_p") is not None


def _percent(row: Row, side: str) -> str:
    if not row[f"{side}_n"]:
        return "no data"
    rate, low, high = (100 * row[f"{side}_{key}"] for key in ("rate", "low", "high"))
    return f"{rate:.0f} [{low:.0f}, {high:.0f}]"


def _interval(low: float, high: float) -> str:
    return f"[{100 * low:+.1f}, {100 * high:+.1f}]"


def points(value: float, low: float, high: float) -> str:
    """A difference of rates in points with its interval.

    >>> points(0.31, 0.176, 0.428)
    '+31.0 [+17.6, +42.8]'
    """
    return f"{100 * value:+.1f} {_interval(low, high)}"


def _caption(c: Comparison) -> str:
    level = comparison_parts.level(c)
    seeds = any(map(_over_seeds, c.cells))
    over = "; where several training seeds ran, intervals over seeds and starts and no p" if seeds else ""
    return (
        f"Success ({c.success}) of {c.a} (a) and {', '.join(c.bs)} (b): k of n with {level} Wilson intervals; matched "
        f"outcomes; differences with {level} intervals (Tango's where paired, Newcombe's where not); p of exact "
        f"McNemar tests ({_unpaired_tests(c)} where unpaired), corrected over all rows "
        f"({c.settings['correction']}){over}."
    )


def _unpaired_tests(c: Comparison) -> str:
    """The tests of unpaired cells, in words."""
    score = any(row.get("test") == "score" for row in c.cells)
    exact = any(row.get("test") == "Boschloo" for row in c.cells)
    names = [*(["Boschloo's"] if exact or not score else []), *(["the two-proportion score test's"] if score else [])]
    return names[0] + (f", with many runs {names[1]}" if len(names) > 1 else "")


# --------------------------------------------------------------------------------------------------------- the figures


def _figures(c: Comparison, page: Pictures) -> dict[str, Picture | None]:
    """Pictures by name; None where there is nothing to draw."""
    out: dict[str, Picture | None] = dict.fromkeys(FIGURES)
    policies = list(dict.fromkeys([c.a, *c.bs]))
    if c.by and len({row[c.by] for row in c.cells}) > 1:
        by, margin = c.by, c.settings["margin"]
        curves, differences = comparison_parts.curves(c, by, _side)
        out["success"] = page.add(
            "success",
            f"Success by {by}, a panel a task",
            lambda: comparison_figures.success_figure(curves, by, policies),
        )
        out["difference"] = page.add(
            "difference",
            f"{c.a} minus each other policy by {by}, in points",
            lambda: comparison_figures.difference_figure(differences, by, policies, margin=margin),
        )
    paired = sorted((r for r in c.cells if r["pairing"] == "paired"), key=lambda r: -abs(r["difference"]))
    largest = {(r["task"], r["b"]): r for r in reversed(paired)}  # of each task and b
    if drawn := [(comparison_parts.where(c, r), r) for r in paired if any(r is x for x in largest.values())][:PAIRS_N]:
        out["pairs"] = page.add(
            "pairs", "Matched outcomes of the largest differences", lambda: comparison_figures.pairs_figure(drawn)
        )
    if stages := _stage_panels(c):
        names = list(dict.fromkeys(r["stage"] for r in c.stages))
        out["stages"] = page.add(
            "stages", "Runs that reached each stage", lambda: comparison_figures.stages_figure(stages, names, policies)
        )
    if c.causes:
        panels, causes, levels = _cause_panels(c)
        out["causes"] = page.add(
            "causes", "How runs ended", lambda: comparison_figures.causes_figure(panels, causes, c.by, levels)
        )
    return out


def _side(row: Row, side: str) -> dict[str, Any]:
    """Rate of one policy in a cell, with the cell's condition."""
    return {**row, **{key: row[f"{side}_{key}"] for key in ("rate", "low", "high")}}


def _stage_panels(c: Comparison) -> list[tuple[str, list[tuple[str, list[dict[str, Any]]]]]]:
    """(condition, policies' rows) where stages were recorded, the largest differences first."""
    keys = ["task", *c.conditions]
    known = {tuple(r[k] for k in keys) for r in c.stages}
    order = sorted(c.cells, key=lambda r: -abs(r["difference"] or 0))
    places = [p for p in dict.fromkeys(tuple(r[k] for k in keys) for r in order) if p in known][:CELLS_N]
    out = []
    for place in places:
        here = [r for r in c.stages if tuple(r[k] for k in keys) == place]
        policies = [p for p in dict.fromkeys([c.a, *c.bs]) if any(r["policy"] == p for r in here)]
        out.append((comparison_parts.where(c, here[0]), [(p, [r for r in here if r["policy"] == p]) for p in policies]))
    return out


def _cause_panels(c: Comparison) -> tuple[list[tuple[str, list[dict[str, Any]]]], list[str], list[Any]]:
    """(policy, rows) of the first task with causes; the causes: success, the most frequent, the rest; the levels."""
    some = [r for r in c.causes if r["cause"] not in (SUCCEEDED, "unknown")] or c.causes
    task = some[0]["task"]
    rows = [r for r in c.causes if r["task"] == task and comparison_parts.in_plane(c, r)]
    total: dict[str, int] = {}
    for r in rows:
        total[r["cause"]] = total.get(r["cause"], 0) + r["k"]
    frequent = sorted((k for k in total if k != SUCCEEDED), key=lambda k: -total[k])[:CAUSES_N]
    rows = [r if r["cause"] in (SUCCEEDED, *frequent) else {**r, "cause": REST} for r in rows]
    causes = [SUCCEEDED, *frequent, *([REST] if any(r["cause"] == REST for r in rows) else [])]
    levels = sorted({r[c.by] for r in rows}, key=comparison_parts.number_first) if c.by else ["all"]
    policies = [p for p in dict.fromkeys([c.a, *c.bs]) if any(r["policy"] == p for r in rows)][
        : comparison_parts.PANELS_N
    ]
    ending = "" if task is None else f", {task}"
    return [(p + ending, [r for r in rows if r["policy"] == p]) for p in policies], causes, levels


# ------------------------------------------------------------------------------------------------------------ the page


def _context(c: Comparison) -> dict[str, Any]:
    """What the page says, as plain values."""
    rows = [row | _in_words(row) for row in c.cells]
    return {
        "rows": rows,
        "numbers": comparison_parts.verdicts(c, "better"),
        "has_seeds": any(r["seeds_text"] for r in rows),
        "unpaired_tests": _unpaired_tests(c),
        "beside": _beside(c),
        "points": points,
        "margin": f"{100 * c.settings['margin']:g}",
    }


def _beside(c: Comparison) -> list[str]:
    """Cells in which the other definition of success counts differently, with its counts."""
    other = next(name for name in ("success_once", "success_at_end") if name != c.success)
    out = []
    for row in c.cells:
        lines = [
            f"{row[side]} {row[f'{side}_k']}/{row[f'{side}_n']} by {c.success}, {row[f'{side}_{other}_k']}/"
            f"{row[f'{side}_{other}_n']} by {other}"
            for side in ("a", "b")
            if row[f"{side}_{other}_k"] not in (None, row[f"{side}_k"])
        ]
        out += [f"{comparison_parts.where(c, row)}: {'; '.join(lines)}"] if lines else []
    return list(dict.fromkeys(out))
