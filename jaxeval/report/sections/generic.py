"""The section of a metric that nobody wrote one for: means by group, histograms, what is not known.

Names, units, directions and meanings are those that `score.json` keeps of the registered columns, so that a report can
be made where the metric itself is not installed. Other sections tell the rest of their columns in the same table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.report import figures, summary
from jaxeval.report.scored import About, Scored
from jaxeval.report.section import Context, Part, template_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE_GROUPS_N, DRAWN_N, DRAWN_GROUPS_N, BINS_N = 8, 6, 8, 24
KINDS = ("number", "count", "truth")


def draw(scored: Scored, context: Context, *, name: str) -> Part:
    """Every column that a metric wants told in the section of that name."""
    columns = scored.of_section(name)
    groups, left_out = summary.lowest_groups(scored, np.full(scored.n, np.nan), TABLE_GROUPS_N)
    values = {column: scored.floats(column) for column, about in columns.items() if about.kind in KINDS}
    drawn = [n for n in values if columns[n].kind == "number" and _varies(values[n])]
    drawn = sorted(drawn, key=lambda n: columns[n].direction is None)[:DRAWN_N]  # those with a better side first
    if left_out:
        context.skipped.append((f"Groups left out of the table of {name}", summary.shortened(left_out)))
    picture = None
    if drawn:
        alt = f"Histograms by group of {', '.join(drawn)}"
        titles = {n: f"{n}, {columns[n].unit}" if columns[n].unit else n for n in drawn}
        make = partial(_histograms, scored, groups, values, titles)
        picture = context.pictures.add(f"section_{name}", alt, make)
    page = template_of(
        __file__,
        name=name,
        table=means(scored, [(scored.groups[g], np.flatnonzero(scored.group == g)) for g in groups], columns),
        picture=picture,
        not_known=not_known(scored, columns),
    )
    numbers = context.executions(scored)
    valid = ((int(scored.valid.sum()), "of them valid"),) if numbers else ()
    return Part(body=page.sections(), numbers=(*numbers, *valid))


def means(
    scored: Scored, levels: Sequence[tuple[str, np.ndarray]], columns: Mapping[str, About]
) -> dict[str, Any] | None:
    """{groups: (name, executions), rows: (column, unit, better, cells, meaning)} of numbers, counts and truths.

    ``levels``: (name, executions) of each group.
    """
    rows = [
        (name, about.unit, about.direction or "", [cell(values[mine]) for _, mine in levels], about.meaning)
        for name, about in columns.items()
        if about.kind in KINDS
        for values in [scored.floats(name)]
    ]
    if not rows:
        return None
    return {"groups": [(name, len(mine)) for name, mine in levels], "rows": rows}


def cell(values: np.ndarray) -> str:
    """A mean to four digits, in brackets of how many executions where not of all; "–" where of none."""
    known = values[np.isfinite(values)]
    word = f"{known.mean():.4g}".replace("-", "−") if len(known) else "–"
    return word if len(known) in (0, len(values)) else f"{word} ({len(known)})"


def not_known(scored: Scored, columns: Mapping[str, About], good: Iterable[str] = ("ok", "success")) -> list[str]:
    """A sentence for every status that is not good: of how many executions which column says what."""
    out = []
    for name, about in columns.items():
        if about.kind == "status":
            words = Counter(w for w in scored.values(name) if w is not None and w not in good)
            out += [f"{name}: {n} of {scored.n}: {sentence}" for sentence, n in words.most_common()]
    return summary.shortened(out)


def _varies(values: np.ndarray) -> bool:
    known = values[np.isfinite(values)]
    return len(known) > 1 and float(np.ptp(known)) > 0


def _histograms(scored: Scored, groups: list[int], values: dict[str, np.ndarray], titles: dict[str, str]) -> Figure:
    """One histogram a column; groups one above the other on the same bins, each to its own largest bin."""
    shown = groups[:DRAWN_GROUPS_N]
    across = min(3, len(titles))
    down = -(-len(titles) // across)
    figure = figures.new_figure(down * (0.9 + 0.42 * len(shown)))
    axes = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    for ax, (name, title) in zip(axes, titles.items(), strict=False):
        x = values[name]
        known = x[np.isfinite(x)]
        edges = np.linspace(known.min(), known.max(), BINS_N + 1)
        for row, g in enumerate(shown):
            mine = x[(scored.group == g) & np.isfinite(x)]
            count, _ = np.histogram(mine, edges)
            height = 0.85 * count / max(count.max(initial=0), 1)
            colour = figures.OKABE_ITO[row % len(figures.OKABE_ITO)]
            base = len(shown) - 1 - row
            ax.stairs(base + height, edges, baseline=base, fill=True, color=colour, alpha=0.85)
            if len(mine):
                ax.plot([mine.mean()] * 2, [base, base + 0.85], color=figures.INK, linewidth=1.5)
        labels = [figures.label(scored.groups[g], 20) for g in reversed(shown)]
        ax.set_yticks(np.arange(len(shown)) + 0.3, labels if ax.get_subplotspec().is_first_col() else [""] * len(shown))
        ax.set_ylim(-0.05, len(shown))
        ax.locator_params(axis="x", nbins=3)
        figures.plain(ax)
        ax.tick_params(axis="y", length=0)
        ax.set_title(figures.label(title, 40), loc="left", fontsize=10, color=figures.INK)
    for ax in axes[len(titles) :]:
        ax.set_visible(False)
    return figure
