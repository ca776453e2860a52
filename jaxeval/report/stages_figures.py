"""Figures of stages: who came how far, how executions ended, and success by condition. Rates are in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.report.figures import FAINT, HATCHES, INK, OKABE_ITO, label, new_figure, plain, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rate = Mapping[str, Any]
"""k, n, rate, low, high; the last three None where n is 0."""
ACROSS_N = 3
"""Panels side by side at most."""


def draw_rates(ax: Axes, rows: Sequence[tuple[str, Rate]], *, colour: str = OKABE_ITO[0]) -> None:
    """A bar a rate, the first at the top, with its interval and k of n at the right."""
    for y, (_, row) in enumerate(rows):
        if row["rate"] is None:
            ax.text(2, y, "no data", va="center", fontsize=9, color=FAINT)
            continue
        rate, low, high = (100 * row[key] for key in ("rate", "low", "high"))
        ax.barh(y, rate, 0.72, color=colour, alpha=0.45, zorder=2)
        ax.plot([low, high], [y, y], color=INK, linewidth=1.3, zorder=3)
        words = f"{row['k']} of {row['n']}"
        ax.text(1.02, y, words, transform=ax.get_yaxis_transform(), va="center", fontsize=9, color=INK)
    ax.set_yticks(range(len(rows)), [label(name, 26) for name, _ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, 100)
    ax.set_xticks([0, 50, 100])
    ax.grid(axis="x", color="#e4e4e4", linewidth=0.8, zorder=0)
    ax.set_axisbelow(True)
    plain(ax)
    ax.tick_params(axis="y", length=0)


def rates_figure(panels: Sequence[tuple[str, Sequence[tuple[str, Rate]]]], words: str, *, shared: bool) -> Figure:
    """A panel of bars each: (title, rows of (name, rate)). ``shared``: all have the same names, told once a line."""
    across = min(ACROSS_N, len(panels))
    down = -(-len(panels) // across)
    rows_n = max(len(rows) for _, rows in panels)
    figure = new_figure(down * (0.75 + 0.27 * rows_n) + 0.25)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for k, (ax, (name, rows)) in enumerate(zip(axes, panels, strict=False)):
        draw_rates(ax, rows)
        title(ax, label(name, 30))
        if shared and k % across:
            ax.set_yticklabels([])
        if k >= len(panels) - across:
            ax.set_xlabel(words, fontsize=10, color=INK)
        if not shared and len(rows) < rows_n:  # bars of all panels are equally thick
            ax.set_ylim(rows_n - 0.5, -0.5)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    return figure


def endings_figure(levels: Sequence[str], causes: Sequence[str], count: np.ndarray) -> Figure:
    """How executions ended, stacked to 100 %: a bar a level, causes [levels, causes] in their order, success first."""
    figure = new_figure(1.2 + 0.42 * len(levels) + 0.22 * -(-len(causes) // 2))
    ax = figure.subplots()
    share = 100 * count / np.maximum(count.sum(axis=1, keepdims=True), 1)
    left = np.zeros(len(levels))
    for k, cause in enumerate(causes):
        colour = "#dfe2e4" if k == 0 else OKABE_ITO[(k - 1) % 8]
        hatch = "" if k == 0 else HATCHES[(k - 1 + (k - 1) // 8) % 8]  # a colour that comes again has another hatch
        edge: dict[str, Any] = {"hatch": hatch, "edgecolor": INK, "linewidth": 0.4} if hatch else {"edgecolor": "white"}
        ax.barh(range(len(levels)), share[:, k], 0.72, left=left, color=colour, label=label(cause, 60), **edge)
        left = left + share[:, k]
    ax.set_yticks(range(len(levels)), [label(name, 26) for name in levels])
    ax.set_ylim(len(levels) - 0.5, -0.5)
    ax.set_xlim(0, 100)
    ax.set_xlabel("executions, %", fontsize=10, color=INK)
    plain(ax)
    ax.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=9.5)
    return figure
