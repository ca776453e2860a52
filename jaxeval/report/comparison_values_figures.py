"""Figures of a comparison of values: means and differences along a condition, differences start by start, two sets.

In the style of `comparison_figures`; what is drawn are the rows of a comparison and the numbers behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.report.comparison_figures import Curves, Row, _legend, _panels, _style, draw_curves
from jaxeval.report.figures import DOTS_N, FAINT, GOLDEN, INK, label, plain, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def means_figure(panels: Curves, by: str, policies: Sequence[str], named: str) -> Figure:
    """Mean of every policy along a condition with its interval."""
    figure, axes = _panels(len(panels), 3.3)
    for ax, (task, series, levels) in zip(axes, panels, strict=True):
        draw_curves(ax, series, levels, by, policies, ("mean", "low", "high"), times=1)
        title(ax, task)
    axes[0].set_ylabel(label(f"mean of {named}", 44), fontsize=10.5, color=INK)
    _legend(figure, axes, policies)
    return figure


def differences_figure(panels: Curves, by: str, policies: Sequence[str], named: str, *, margin: float | None) -> Figure:
    """How much larger the first policy's mean is than each other's; grey: within the margin."""
    figure, axes = _panels(len(panels), 3.3)
    for ax, (task, series, levels) in zip(axes, panels, strict=True):
        _zero(ax, margin)
        known = [(name, [r for r in rows if r["low"] is not None]) for name, rows in series]
        draw_curves(ax, known, levels, by, policies, ("difference", "low", "high"), times=1)
        title(ax, task)
    axes[0].set_ylabel(label(f"{policies[0]} minus the other, {named}", 44), fontsize=10.5, color=INK)
    _legend(figure, axes, policies)
    return figure


def samples_figure(
    drawn: Sequence[tuple[str, Row, Any]], policies: Sequence[str], named: str, *, margin: float | None
) -> Figure:
    """The numbers behind a few cells: of pairs their differences in order, else both policies' values.

    Panels have scales of their own: one task's numbers may be a hundred times another's.
    """
    figure, axes = _panels(len(drawn), 3.5, shared=False)
    for ax, (where, row, samples) in zip(axes, drawn, strict=True):
        if samples.differences is not None:
            draw_differences(ax, row, samples.differences, policies, margin=margin)
        else:
            draw_values(ax, row, samples.a, samples.b, policies)
        title(ax, label(where, 34))
        ax.set_ylabel(label(_what(row, samples.differences is not None, named), 44), fontsize=10, color=INK)
    _legend(figure, axes, policies)
    return figure


def draw_differences(
    ax: Axes, row: Row, d: np.ndarray, policies: Sequence[str], *, margin: float | None = None
) -> None:
    """A dot a start, from the smallest difference to the largest, coloured by who is higher; the mean beside."""
    _zero(ax, margin)
    ordered = np.sort(d)
    place = np.unique(np.linspace(0, len(d) - 1, min(len(d), DOTS_N)).astype(int))
    x, y = (place + 0.5) / len(d), ordered[place]
    higher, lower = int((d > 0).sum()), int((d < 0).sum())
    for some, policy in ((y > 0, row["a"]), (y < 0, row["b"])):
        _dots(ax, x[some], y[some], policy, policies)
    ax.scatter(x[y == 0], y[y == 0], s=22, color=FAINT, edgecolor="white", linewidth=0.5, zorder=3)
    _mean(ax, 1.12, row["difference"], row["low"], row["high"])
    ax.set_xlim(-0.04, 1.24)
    ax.set_xticks([0.45, 1.12], [f"starts in order\n{higher} above 0, {lower} below", "mean"])
    _finish(ax)


def draw_values(ax: Axes, row: Row, a: np.ndarray, b: np.ndarray, policies: Sequence[str]) -> None:
    """Every run of both policies, the middle half as a box with the median, the mean with its interval beside."""
    from matplotlib.patches import Rectangle

    for x, side, values in ((0.0, "a", a), (1.0, "b", b)):
        some = values[np.unique(np.linspace(0, len(values) - 1, min(len(values), DOTS_N)).astype(int))]
        strip = x + ((np.arange(len(some)) * GOLDEN) % 1 - 0.5) * 0.34
        _dots(ax, strip, some, row[side], policies)
        if len(values) >= 4:
            low, middle, high = (row[f"{side}_{key}"] for key in ("q1", "median", "q3"))
            ax.add_patch(Rectangle((x - 0.22, low), 0.44, high - low, facecolor="#e9ebed", edgecolor=FAINT, zorder=1))
            ax.plot([x - 0.22, x + 0.22], [middle] * 2, color=INK, linewidth=1.6, zorder=2)
        _mean(ax, x + 0.34, row[f"{side}_mean"], row[f"{side}_low"], row[f"{side}_high"])
    ax.set_xlim(-0.4, 1.55)
    ax.set_xticks([0, 1], [label(f"{row[side]}, n = {len(v)}", 22) for side, v in (("a", a), ("b", b))])
    _finish(ax)


def _what(row: Row, paired: bool, named: str) -> str:
    return f"{row['a']} - {row['b']}, {named}" if paired else named


def _dots(ax: Axes, x: np.ndarray, y: np.ndarray, policy: str, policies: Sequence[str]) -> None:
    """Dots in a policy's colour."""
    style = _style(policy, policies)
    ax.scatter(x, y, s=22, color=style["color"], edgecolor="white", linewidth=0.5, zorder=3, label=style["label"])


def _mean(ax: Axes, x: float, mean: float, low: float | None, high: float | None) -> None:
    """A mean with its interval, where it has one."""
    if low is not None and high is not None:
        ax.errorbar(
            [x], [mean], [[mean - low], [high - mean]], fmt="none", color=INK, capsize=4, linewidth=1.5, zorder=4
        )
    ax.scatter([x], [mean], s=42, marker="D", color=INK, zorder=5)


def _zero(ax: Axes, margin: float | None) -> None:
    if margin is not None:
        ax.axhspan(-margin, margin, color="#e9ebed", zorder=0)
    ax.axhline(0, color=FAINT, linewidth=1.0, zorder=1)


def _finish(ax: Axes) -> None:
    ax.grid(axis="y", color="#e4e6e8", linewidth=0.8)
    ax.set_axisbelow(True)
    plain(ax)
    ax.tick_params(axis="x", labelsize=9, length=0)
