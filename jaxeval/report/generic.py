"""The section of a metric that the report has no section of its own for: means by group, histograms, what is not known.

Names, units, directions and meanings are those that `score.json` keeps of the registered columns, so that a report can
be made where the metric itself is not installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.report import figures as F
from jaxeval.report import summary as S
from jaxeval.report.scored import SCORES, Scored, read_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OWN_SECTIONS = ("geometric", "motion", "tracking")
"""Sections that the report tells in its own words."""
TABLE_GROUPS_N, DRAWN_N, DRAWN_GROUPS_N, BINS_N = 8, 6, 8, 24
KINDS = ("number", "count", "truth")

Add = Callable[[str, str, Callable[[], Any]], Any]


def generic_sections(scored: Scored, add: Add, skipped: list[tuple[str, list[str]]]) -> list[dict[str, Any]]:
    """One entry a section: name, titles of groups, rows (column, unit, better, cells, meaning), picture, not known."""
    told = {k: v for k, v in scored.told.get("columns", {}).items() if v.get("section") not in OWN_SECTIONS}
    if not told:
        return []
    table = read_columns(scored.folder / SCORES, list(told), optional=lambda name: False)
    groups, left_out = S.lowest_groups(scored, np.full(scored.n, np.nan), TABLE_GROUPS_N)
    out = []
    for section in dict.fromkeys(v["section"] for v in told.values()):
        mine = {name: v for name, v in told.items() if v["section"] == section}
        values = {name: _numbers(table[name].to_pylist()) for name, v in mine.items() if v["kind"] in KINDS}
        rows = [
            (name, mine[name]["unit"], mine[name]["direction"] or "", _cells(scored, groups, x), mine[name]["meaning"])
            for name, x in values.items()
        ]
        statuses = {name: table[name].to_pylist() for name, v in mine.items() if v["kind"] == "status"}
        drawn = [n for n in values if mine[n]["kind"] == "number" and _varies(values[n])]
        drawn = sorted(drawn, key=lambda n: mine[n]["direction"] is None)[:DRAWN_N]  # those with a better side first
        if left_out:
            skipped.append((f"Groups left out of the table of {section}", S.shortened(left_out)))
        picture = None
        if drawn:
            alt = f"Histograms by group of {', '.join(drawn)}"
            titles = {n: f"{n}, {mine[n]['unit']}" if mine[n]["unit"] else n for n in drawn}
            picture = add(f"section_{section}", alt, partial(_histograms, scored, groups, values, titles))
        out.append(
            {
                "name": section,
                "groups": [(scored.groups[g], int((scored.group == g).sum())) for g in groups],
                "rows": rows,
                "picture": picture,
                "not_known": _not_known(statuses),
            }
        )
    return out


def _numbers(column: list[Any]) -> np.ndarray:
    return np.array([np.nan if x is None else float(x) for x in column])


def _varies(values: np.ndarray) -> bool:
    known = values[np.isfinite(values)]
    return len(known) > 1 and float(np.ptp(known)) > 0


def _cells(scored: Scored, groups: list[int], values: np.ndarray) -> list[str]:
    """Mean of each group to four digits, in brackets of how many executions where not of all; "–" where of none."""
    out = []
    for g in groups:
        mine = values[scored.group == g]
        known = mine[np.isfinite(mine)]
        word = f"{known.mean():.4g}".replace("-", "−") if len(known) else "–"
        out.append(word if len(known) in (0, len(mine)) else f"{word} ({len(known)})")
    return out


def _not_known(statuses: dict[str, list[str]]) -> list[str]:
    """A sentence for every status other than ok: of how many executions which column says what."""
    out = []
    for name, words in statuses.items():
        for sentence, n in Counter(w for w in words if w not in (None, "ok", "success")).most_common():
            out.append(f"{name}: {n} of {len(words)}: {sentence}")
    return S.shortened(out)


def _histograms(scored: Scored, groups: list[int], values: dict[str, np.ndarray], titles: dict[str, str]) -> Figure:
    """One histogram a column; groups one above the other on the same bins, each to its own largest bin."""
    shown = groups[:DRAWN_GROUPS_N]
    across = min(3, len(titles))
    down = -(-len(titles) // across)
    figure = F._figure(down * (0.9 + 0.42 * len(shown)))
    axes = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    for ax, (name, title) in zip(axes, titles.items(), strict=False):
        x = values[name]
        known = x[np.isfinite(x)]
        edges = np.linspace(known.min(), known.max(), BINS_N + 1)
        for row, g in enumerate(shown):
            mine = x[(scored.group == g) & np.isfinite(x)]
            count, _ = np.histogram(mine, edges)
            height = 0.85 * count / max(count.max(initial=0), 1)
            colour = F.OKABE_ITO[row % len(F.OKABE_ITO)]
            base = len(shown) - 1 - row
            ax.stairs(base + height, edges, baseline=base, fill=True, color=colour, alpha=0.85)
            if len(mine):
                ax.plot([mine.mean()] * 2, [base, base + 0.85], color=F.INK, linewidth=1.5)
        labels = [F.label(scored.groups[g], 20) for g in reversed(shown)]
        ax.set_yticks(np.arange(len(shown)) + 0.3, labels if ax.get_subplotspec().is_first_col() else [""] * len(shown))
        ax.set_ylim(-0.05, len(shown))
        ax.locator_params(axis="x", nbins=3)
        F._plain(ax)
        ax.tick_params(axis="y", length=0)
        ax.set_title(F.label(title, 40), loc="left", fontsize=10, color=F.INK)
    for ax in axes[len(titles) :]:
        ax.set_visible(False)
    return figure
