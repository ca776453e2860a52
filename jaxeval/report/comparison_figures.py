"""Figures of a comparison: success and its difference along a condition, matched outcomes, stages, causes.

In the style of `figures`. What is drawn are the rows of `comparison`, as they are in its tables; rates are in percent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.report.figures import FAINT, HATCHES, INK, OKABE_ITO, label, new_figure, plain, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Series = Sequence[tuple[str, Sequence[Row]]]
"""(policy, its rows), each."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("solid", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)), (0, (3, 1.2, 1.2, 1.2)))
COLUMNS_N = 3
"""Panels side by side at most."""
CLOSE_SHARE = 0.11
"""Of an axis: levels closer than this share one name."""


def _panels(n: int, height_in: float, *, columns_n: int = COLUMNS_N, shared: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure of n panels of equal size; those of the last line that are not needed are empty."""
    wide = min(n, columns_n)
    tall = math.ceil(n / wide)
    figure = new_figure(height_in * tall + 0.4)
    axes = figure.subplots(tall, wide, squeeze=False, sharey=shared).ravel().tolist()
    for ax in axes[n:]:
        ax.set_axis_off()
    return figure, axes[:n]


def _legend(figure: Figure, axes: Sequence[Axes], order: Sequence[str], columns_n: int = 5) -> None:
    """One legend above the panels of what any of them shows, in the order given."""
    named: dict[str, Any] = dict.fromkeys(label(name) for name in order)
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            named[name] = handle
    named = {name: handle for name, handle in named.items() if handle is not None}
    if named:
        figure.legend(
            list(named.values()), list(named), loc="outside upper center", ncols=min(columns_n, len(named)),
            frameon=False, fontsize=10, handlelength=2.6,
        )  # fmt: skip


def _style(name: str, policies: Sequence[str]) -> dict[str, Any]:
    """Colour, line and marker of a policy: the same in every panel and figure."""
    k = policies.index(name)
    return {
        "color": OKABE_ITO[k % 8], "linestyle": DASHES[k % len(DASHES)], "marker": MARKERS[k % len(MARKERS)],
        "markersize": 5.5, "linewidth": 1.7, "label": label(name),
    }  # fmt: skip


def positions(levels: Sequence[Any]) -> tuple[np.ndarray, list[str], bool]:
    """Where levels stand on an axis, their names, and whether the axis is one of (finite) numbers."""
    if levels and all(isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in levels):
        return np.asarray(levels, float), [f"{v:g}" for v in levels], True
    return np.arange(len(levels), dtype=float), [f"{v:g}" if isinstance(v, float) else str(v) for v in levels], False


def _level_axis(ax: Axes, levels: Sequence[Any], name: str) -> None:
    at, names, numeric = positions(levels)
    span = max(float(np.ptp(at)), 1e-9)
    last = -np.inf
    for k in np.argsort(at):  # names that would run into one another are left out
        if numeric and at[k] - last < CLOSE_SHARE * span:
            names[k] = ""
        else:
            last = at[k]
    ax.set_xticks(at, [label(n, 14) for n in names])
    pad = 0.05 * span if len(at) > 1 and numeric else 0.5
    ax.set_xlim(at.min() - pad, at.max() + pad)
    ax.set_xlabel(label(name, 40), fontsize=10.5, color=INK)


# ------------------------------------------------------------------------------------------------- along a condition


def draw_curves(
    ax: Axes,
    series: Series,
    levels: Sequence[Any],
    by: str,
    policies: Sequence[str],
    keys: tuple[str, str, str],
    *,
    times: float = 100,
) -> None:
    """A line and a band a policy over the levels of a condition; ``keys``: value, low, high of its rows.

    Drawn are these ``times`` 100, as rates are told in percent, or another number.
    """
    at, _, numeric = positions(levels)
    place = dict(zip(levels, at, strict=True))
    for k, (name, rows) in enumerate(series):
        known = [r for r in rows if r[keys[0]] is not None]
        x = np.array([place[r[by]] for r in known]) + (0 if numeric else 0.12 * (k - (len(series) - 1) / 2))
        y, low, high = (times * np.array([r[key] for r in known], float) for key in keys)
        style: dict[str, Any] = _style(name, policies) | ({} if numeric else {"linestyle": "none"})
        ax.plot(x, y, zorder=3, **style)
        if numeric and len(x) > 1:
            ax.fill_between(x, low, high, color=style["color"], alpha=0.16, linewidth=0, zorder=1)
        else:
            ax.errorbar(x, y, [y - low, high - y], color=style["color"], fmt="none", capsize=3, linewidth=1.2, zorder=2)
    _level_axis(ax, levels, by)
    ax.grid(axis="y", color="#e4e6e8", linewidth=0.8)
    ax.set_axisbelow(True)
    plain(ax)


Curves = Sequence[tuple[str, Series, Sequence[Any]]]
"""(task, its policies' rows, levels of the condition), each a panel."""


def success_figure(panels: Curves, by: str, policies: Sequence[str]) -> Figure:
    """Success of every policy along a condition with Wilson bands."""
    figure, axes = _panels(len(panels), 3.3)
    for ax, (task, series, levels) in zip(axes, panels, strict=True):
        draw_curves(ax, series, levels, by, policies, ("rate", "low", "high"))
        ax.set_ylim(-3, 103)
        title(ax, task)
    axes[0].set_ylabel("success, %", fontsize=10.5, color=INK)
    _legend(figure, axes, policies)
    return figure


def difference_figure(panels: Curves, by: str, policies: Sequence[str], *, margin: float) -> Figure:
    """How much more often the first policy succeeds than each other, in points; grey: within the margin."""
    figure, axes = _panels(len(panels), 3.3)
    for ax, (task, series, levels) in zip(axes, panels, strict=True):
        ax.axhspan(-100 * margin, 100 * margin, color="#e9ebed", zorder=0)
        ax.axhline(0, color=FAINT, linewidth=1.0, zorder=1)
        draw_curves(ax, series, levels, by, policies, ("difference", "low", "high"))
        title(ax, task)
    axes[0].set_ylabel(label(f"{policies[0]} minus the other, points", 44), fontsize=10.5, color=INK)
    _legend(figure, axes, policies)
    return figure


# ------------------------------------------------------------------------------------------------------ matched pairs


def draw_pairs(ax: Axes, row: Row, name: str) -> None:
    """The 2x2 of matched outcomes: what both, one, or neither did; the two that differ are coloured."""
    n = max(int(row["pairs_n"]), 1)
    corners = (("both", 0, 1), ("a_only", 1, 1), ("b_only", 0, 0), ("neither", 1, 0))
    for key, x, y in corners:
        share = row[key] / n
        base = {"a_only": OKABE_ITO[0], "b_only": OKABE_ITO[1]}.get(key, "#8a8a8a")
        colour = _pale(base, 0.12 + 0.75 * share)
        ax.add_patch(_square(x, y, colour))
        dark = share > {"a_only": 0.55, "b_only": 2.0}.get(key, 0.75)
        ax.text(x + 0.5, y + 0.5, f"{row[key]}", ha="center", va="center", fontsize=19, color="white" if dark else INK)
    ax.set_xlim(0, 2)
    ax.set_ylim(0, 2)
    ax.set_aspect("equal")
    a, b = label(str(row["a"]), 16), label(str(row["b"]), 16)
    ax.set_xticks([0.5, 1.5], [f"{b}\nsucceeds", f"{b}\nfails"])
    ax.set_yticks([1.5, 0.5], [f"{a}\nsucceeds", f"{a}\nfails"])
    plain(ax, keep=())
    ax.tick_params(length=0, labelsize=9.5)
    title(ax, name)
    ax.set_xlabel(_x_label(row), fontsize=9.5, color=INK)


def _x_label(row: Row) -> str:
    d, low, high = (100 * row[k] for k in ("difference", "low", "high"))
    ending = f"p = {row['p']:.2g}" if row["p"] is not None else f"{row['seeds_n']} training seeds"
    return f"{d:+.0f} [{low:+.0f}, {high:+.0f}] points, {ending}"


def _square(x: float, y: float, colour: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", linewidth=2.5)


def _pale(colour: str, share: float) -> tuple[float, ...]:
    """The colour mixed with white."""
    from matplotlib.colors import to_rgb

    return tuple(1 - share * (1 - c) for c in to_rgb(colour))


def pairs_figure(rows: Sequence[tuple[str, Row]]) -> Figure:
    """The 2x2 of a few cells, side by side."""
    figure = new_figure(3.9)
    places = figure.add_gridspec(1, max(len(rows), COLUMNS_N))
    for k, (name, row) in enumerate(rows):
        draw_pairs(figure.add_subplot(places[0, k]), row, name)
    return figure


# --------------------------------------------------------------------------------------------------- stages and causes


def stages_figure(panels: Sequence[tuple[str, Series]], stages: Sequence[str], policies: Sequence[str]) -> Figure:
    """Share of runs that reached each stage, a line a policy with Wilson intervals; a panel a condition."""
    figure, axes = _panels(len(panels), 3.6, columns_n=2)
    for ax, (name, series) in zip(axes, panels, strict=True):
        for k, (policy, rows) in enumerate(series):
            by_stage = {r["stage"]: r for r in rows}
            known = [s for s in stages if s in by_stage]
            x = np.array([stages.index(s) for s in known]) + 0.08 * (k - (len(series) - 1) / 2)
            y, low, high = (100 * np.array([by_stage[s][key] for s in known], float) for key in ("rate", "low", "high"))
            style = _style(policy, policies)
            ax.errorbar(
                x, y, [y - low, high - y], fmt="none", color=style["color"], linewidth=1.1, capsize=2.5, alpha=0.75
            )
            ax.plot(x, y, **style)
        names = [label(s.replace("_", " "), 20) for s in stages]
        ax.set_xticks(np.arange(len(stages)), names, rotation=35, ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.5, len(stages) - 0.5)
        ax.set_ylim(-3, 104)
        ax.grid(axis="y", color="#e4e6e8", linewidth=0.8)
        ax.set_axisbelow(True)
        plain(ax)
        title(ax, name)
    axes[0].set_ylabel("runs that reached it, %", fontsize=10.5, color=INK)
    _legend(figure, axes, policies)
    return figure


def causes_figure(
    panels: Sequence[tuple[str, Sequence[Row]]], causes: Sequence[str], by: str | None, levels: Sequence[Any]
) -> Figure:
    """How runs ended, stacked to 100 %, success first; a panel a policy, a bar a level of the condition."""
    figure, axes = _panels(len(panels), 2.9)
    at = np.arange(len(levels))
    for ax, (name, rows) in zip(axes, panels, strict=True):
        base = np.zeros(len(levels))
        for k, cause in enumerate(causes):
            here = [[r for r in rows if by is None or r[by] == v] for v in levels]
            share = np.array(
                [100 * sum(r["k"] for r in rs if r["cause"] == cause) / max([1, *(r["n"] for r in rs)]) for rs in here]
            )
            colour = "#dfe2e4" if cause == "success" else OKABE_ITO[(k - 1) % 8]
            hatch = (
                "" if cause == "success" else HATCHES[(k - 1 + (k - 1) // 8) % 8]
            )  # a colour that comes again has another hatch
            some = share > 0
            edge: dict[str, Any] = (
                {"hatch": hatch, "edgecolor": INK, "linewidth": 0.4} if hatch else {"edgecolor": "white"}
            )
            ax.bar(at[some], share[some], 0.78, bottom=base[some], color=colour, **edge)
            ax.bar([np.nan], [np.nan], color=colour, label=label(cause.replace("_", " ")), **edge)  # for the legend
            base = base + share
        ax.set_xticks(at, [label(n, 12) for n in positions(levels)[1]])
        ax.set_xlim(-0.6, max(len(levels), 3) - 0.4)
        ax.set_ylim(0, 100)
        if by is not None:
            ax.set_xlabel(label(by, 40), fontsize=10.5, color=INK)
        plain(ax)
        title(ax, name)
    axes[0].set_ylabel("runs, %", fontsize=10.5, color=INK)
    _legend(figure, axes, [c.replace("_", " ") for c in causes], 4)
    return figure
