"""Grasp: force-closure margins of the contacts at each moment, of successes and failures, and why there is none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.report import figures
from jaxeval.report.quantities import Quantity
from jaxeval.report.scored import Scored
from jaxeval.report.section import Context, Part, Section, template_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN, STATUS = "grasp.margin.", "grasp.status."
TOLD = (("grasp.margin.", "margin", 4), ("grasp.min_weight.", "least weight", 3), ("grasp.contacts.", "contacts", 1))
"""(prefix, words, digits) of the numbers of a moment."""


def draw(scored: Scored, context: Context) -> Part | None:
    """Means at each moment by outcome, margins drawn, and statuses counted."""
    names = scored.table.column_names
    moments = [name.removeprefix(MARGIN) for name in names if name.startswith(MARGIN)]
    if not moments:
        return None
    outcomes = _outcomes(scored)
    margins = {m: scored.floats(MARGIN + m) for m in moments}
    drawn = [m for m in moments if np.isfinite(margins[m]).any()]
    picture = None
    if drawn:
        alt = f"Force-closure margins at the moments {', '.join(drawn)}, by outcome"
        picture = context.pictures.add("grasp", alt, lambda: _figure(margins, drawn, outcomes))
    page = template_of(
        __file__,
        rows=[_row(scored, m, title, rows) for m in moments for title, rows in outcomes],
        titles=[words for prefix, words, _ in TOLD if prefix + moments[0] in names],
        statuses=_statuses(scored, [m for m in moments if STATUS + m in names]),
        picture=picture,
    )
    return Part(body=page.sections(), numbers=context.executions(scored))


SECTION = Section("grasp", "Grasp", draw)


def _outcomes(scored: Scored) -> list[tuple[str, np.ndarray]]:
    """(words, executions) of those that succeeded and of those that failed; all of them where nobody says."""
    if "success_at_end" in scored.table.column_names:
        success = scored.floats("success_at_end")
        parts = [("succeeded", np.flatnonzero(success == 1)), ("failed", np.flatnonzero(success == 0))]
        if any(len(rows) for _, rows in parts):
            return [(title, rows) for title, rows in parts if len(rows)]
    return [("all", np.arange(scored.n))]


def _row(scored: Scored, moment: str, outcome: str, rows: np.ndarray) -> tuple[str, str, int, int, list[str], str]:
    """Moment, outcome, executions, those with a margin, means, and how many hold: their margin is above 0."""
    margin = scored.floats(MARGIN + moment)[rows]
    known = margin[np.isfinite(margin)]
    cells = []
    for prefix, words, digits in TOLD:
        if prefix + moment in scored.table.column_names:
            values = scored.floats(prefix + moment)[rows]
            values = values[np.isfinite(values)]
            cells.append(Quantity("", words, digits).words(float(values.mean())) if len(values) else "–")
    closed = f"{int((known > 0).sum())} of {len(known)}" if len(known) else "–"
    return moment, outcome, len(rows), len(known), cells, closed


def _statuses(scored: Scored, moments: list[str]) -> dict[str, Any]:
    """{titles, rows}: how often each status was found, a row a sentence, a column a moment."""
    counts = {m: Counter(w for w in scored.values(STATUS + m) if w is not None) for m in moments}
    sentences = sorted({w for c in counts.values() for w in c}, key=lambda w: -sum(c[w] for c in counts.values()))
    rows = [(w, [counts[m][w] for m in moments]) for w in sentences]
    return {"titles": moments, "rows": rows}


def _figure(margins: dict[str, np.ndarray], moments: list[str], outcomes: list[tuple[str, np.ndarray]]) -> Figure:
    """A panel a moment: margins of every execution by outcome; left of the line the contacts hold nothing."""
    figure = figures.new_figure(1.3 + 0.55 * len(outcomes))
    axes = figure.subplots(1, len(moments), squeeze=False, sharey=True, sharex=True)[0]
    figure.set_layout_engine("constrained", w_pad=0.12)  # ends of neighbouring axes stay apart
    for ax, moment in zip(axes, moments, strict=True):
        values = [margins[moment][rows] for _, rows in outcomes]
        known = [v[np.isfinite(v)] for v in values]
        figures.draw_strips(
            ax, known, colours=[figures.OUTCOMES.get(title, figures.OKABE_ITO[0]) for title, _ in outcomes]
        )
        ax.axvline(0, color=figures.FAINT, linewidth=1.1, linestyle=(0, (4, 3)), zorder=0)
        ax.locator_params(axis="x", nbins=3)
        ax.set_yticks(range(len(outcomes)), [title for title, _ in outcomes])
        figures.title(ax, f"{moment} (n = {sum(map(len, known))})")
        ax.set_xlabel("margin", fontsize=10, color=figures.INK)
    return figure
