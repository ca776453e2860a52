"""The report's figures. Each `draw_*` fills axes that it is given; each `*_figure` makes a whole figure of them.

Colours are told apart by colour-blind people and keep their order in black and white (one hue from light to dark;
Okabe-Ito with hatches). Dark is what asks for attention: high cost, many pinned directions, a tight spread. Nothing
here touches pyplot.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "++", "--")
INK, FAINT = "#222222", "#8a8a8a"
OUTCOMES = {"succeeded": OKABE_ITO[0], "failed": OKABE_ITO[5]}
WIDTH_IN, DPI = 9.6, 140
GOLDEN = 0.6180339887
"""Spreads dots across a row without two of them close by."""
DOTS_N = 300
"""Dots drawn for one group at most; the box is made of all."""
UNSEEN_SHARE = 0.01
"""Of the highest cost of an execution: a relation that never costs as much is too thin to see, and has no legend."""


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes, the same for the same figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    out = io.BytesIO()
    figure.savefig(
        out, format="png", dpi=DPI, facecolor="white", metadata={"Software": None}, pil_kwargs={"optimize": True}
    )
    return out.getvalue()


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """An empty figure as wide as the page."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def plain(ax: Axes, *, keep: tuple[str, ...] = ("bottom", "left")) -> None:
    """Axes with faint lines, at these sides alone."""
    for side, spine in ax.spines.items():
        spine.set_visible(side in keep)
        spine.set_color(FAINT)
    ax.tick_params(colors=INK, labelsize=10, length=3)


def title(ax: Axes, text: str, *, above_names: bool = False) -> None:
    """Title at the left, clear of the sub-tasks' names where these stand above the axes."""
    ax.set_title(label(text, 90), loc="left", fontsize=11, fontweight="bold", color=INK, pad=20 if above_names else 6)


def colour_bar(figure: FigureBase, mesh: Any, axes: Any, text: str, *, ticks: Any = None, aspect: int = 12) -> Any:
    """Colour bar beside axes."""
    bar = figure.colorbar(mesh, ax=axes, ticks=ticks, pad=0.015, fraction=0.04, aspect=aspect)
    bar.set_label(text, fontsize=10, color=INK)
    bar.ax.tick_params(labelsize=10)
    bar.ax.minorticks_off()
    return bar


def draw_strips(ax: Axes, rows: Sequence[np.ndarray], *, colours: Sequence[str] = (OKABE_ITO[0],)) -> None:
    """A row of dots for each set of numbers, the first at the top, with a bar at the median; colours in turn."""
    for y, values in enumerate(rows):
        some = values[np.unique(np.linspace(0, len(values) - 1, min(len(values), DOTS_N)).astype(int))]
        height = y + ((np.arange(len(some)) * GOLDEN) % 1 - 0.5) * 0.5
        dots = ax.scatter(some, height, s=26, color=colours[y % len(colours)], edgecolor="white", linewidth=0.6)
        dots.set(zorder=3, clip_on=False)
        if len(values):
            ax.plot([np.median(values)] * 2, [y - 0.34, y + 0.34], color=INK, linewidth=2.2, zorder=4)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="x", color="#e4e4e4", linewidth=0.8, zorder=0)
    ax.set_axisbelow(True)
    plain(ax)
    ax.tick_params(axis="y", length=0)


# ------------------------------------------------------------------------------------------------- Q of every execution


def draw_quality(ax: Axes, groups: list[tuple[str, np.ndarray, np.ndarray]], *, note: bool = True) -> None:
    """Q by group: a dot an execution, a box for the middle half, a bar at the median; crosses where the gate closed.

    ``groups``: (name, Q, gate closed) of the judged executions, first at the top.
    """
    from matplotlib.patches import Rectangle

    values = np.concatenate([q for _, q, _ in groups] or [np.zeros(0)])
    lowest = float(values.min()) if values.size else 0.0
    start = np.floor(lowest * 10 - 0.2) / 10 if lowest >= 0.5 else 0.0
    for y, (_, q, closed) in enumerate(groups):
        shown = np.unique(np.linspace(0, len(q) - 1, min(len(q), DOTS_N)).astype(int)) if len(q) else np.zeros(0, int)
        height = y + ((np.arange(len(shown)) * GOLDEN) % 1 - 0.5) * 0.5
        if len(q) >= 4:
            low, middle, high = np.quantile(q, [0.25, 0.5, 0.75])
            box = Rectangle(
                (low, y - 0.34), high - low, 0.68, facecolor="#dce6ef", edgecolor=FAINT, linewidth=1, zorder=1
            )
            ax.add_patch(box)
            ax.plot([middle, middle], [y - 0.34, y + 0.34], color=INK, linewidth=2.5, zorder=2, solid_capstyle="butt")
        open_, shut = shown[~closed[shown]], shown[closed[shown]]
        ax.scatter(
            q[open_], height[~closed[shown]], s=34, color=OKABE_ITO[0], edgecolor="white", linewidth=0.7, zorder=3,
            clip_on=False,
        )  # fmt: skip
        ax.scatter(
            q[shut], height[closed[shown]], s=40, color=OKABE_ITO[5], marker="x", linewidth=1.8, zorder=3, clip_on=False
        )
        if note:
            mean = f"mean {q.mean():.3f}" if len(q) else "none judged"
            words = f"{mean}, n = {len(q)}" + (f", {int(closed.sum())} closed" if closed.any() else "")
            ax.text(1.01, y, words, transform=ax.get_yaxis_transform(), va="center", fontsize=10, color=INK)
    ax.set_yticks(range(len(groups)), [label(name) for name, _, _ in groups])
    ax.set_ylim(len(groups) - 0.4, -0.6)
    ax.set_xlim(start - (0.02 if start == 0 else 0), 1.005)
    ax.set_xlabel("Q" if start == 0 else f"Q (the axis starts at {start:.1f})", fontsize=11, color=INK)
    ax.grid(axis="x", color="#e4e4e4", linewidth=0.8, zorder=0)
    ax.set_axisbelow(True)
    plain(ax)


def quality_figure(groups: list[tuple[str, np.ndarray, np.ndarray]]) -> Figure:
    """Q of every execution by group."""
    from matplotlib.lines import Line2D

    figure = new_figure(1.5 + 0.62 * max(1, len(groups)))
    ax = figure.subplots()
    draw_quality(ax, groups)
    keys = [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            color=OKABE_ITO[0],
            markeredgecolor="white",
            markersize=7,
            label="one execution",
        ),
        Line2D([], [], color=INK, linewidth=2.5, label="median, in the box of the middle half"),
    ]
    if any(closed.any() for _, _, closed in groups):
        closed_key = Line2D([], [], marker="x", linestyle="", color=OKABE_ITO[5], markeredgewidth=1.8, markersize=7)
        closed_key.set_label("one whose gate closed (Q = 0)")
        keys.insert(1, closed_key)
    figure.legend(handles=keys, loc="outside upper left", ncols=3, frameon=False, fontsize=10)
    return figure


# ------------------------------------------------------------------------------------------------ maps over progress


def _nothing_here(ax: Axes) -> None:
    """Hatching behind a map: it shows where cells are left out."""
    from matplotlib.patches import Rectangle

    behind = Rectangle((0, 0), 1, 1, transform=ax.transAxes, facecolor="#f4f4f4", edgecolor="#c4c4c4", hatch="////")
    behind.set(zorder=0, linewidth=0)
    ax.add_patch(behind)


def _progress_axes(ax: Axes, rows: list[str], sub_tasks: list[str], bins_n: int, *, names: bool) -> None:
    """Relations down, progress across, a line between sub-tasks and their names above."""
    P = len(sub_tasks)
    for p in range(1, P):
        ax.axvline(p * bins_n, color=INK, linewidth=1.1, zorder=4)
    for y in range(1, len(rows)):
        ax.axhline(y, color="#b4b8bc", linewidth=0.8, zorder=3)
    ax.set_xlim(0, P * bins_n)
    ax.set_ylim(len(rows), 0)
    ax.set_yticks(np.arange(len(rows)) + 0.5, [label(row) for row in rows])
    ax.set_xticks([])
    plain(ax, keep=("top", "bottom", "left", "right"))
    ax.tick_params(length=0)
    if names:
        for p, name in enumerate(sub_tasks):
            ax.text((p + 0.5) * bins_n, -0.08, label(name, 16), ha="center", va="bottom", fontsize=10, color=INK)


def draw_cost_map(
    ax: Axes, cost: np.ndarray, rows: list[str], sub_tasks: list[str], bins_n: int, *, top: float, names: bool = True
) -> Any:
    """Mean frame cost [J, L] of a group over progress; dark is costly, hatched has no frame. Returns the mesh."""
    _nothing_here(ax)
    mesh = ax.pcolormesh(
        np.arange(cost.shape[1] + 1), np.arange(cost.shape[0] + 1), np.ma.masked_invalid(cost), cmap="Blues",
        vmin=0.0, vmax=top, zorder=2,
    )  # fmt: skip
    _progress_axes(ax, rows, sub_tasks, bins_n, names=names)
    return mesh


def cost_figure(
    groups: list[tuple[str, np.ndarray]], rows: list[str], sub_tasks: list[str], bins_n: int, top: float
) -> Figure:
    """One cost map a group, one under the other, on the colour scale that all groups share (``top`` is its end)."""
    figure = new_figure(0.75 + sum(0.55 + 0.27 * len(rows) for _ in groups))
    axes = figure.subplots(len(groups), 1, squeeze=False)[:, 0]
    for i, (ax, (name, cost)) in enumerate(zip(axes, groups, strict=True)):
        mesh = draw_cost_map(ax, cost, rows, sub_tasks, bins_n, top=top, names=i == 0)
        title(ax, name, above_names=i == 0)
    axes[-1].set_xlabel("progress within each sub-task", fontsize=11, color=INK)
    colour_bar(figure, mesh, list(axes), "mean frame cost of the relation", aspect=12 * len(groups))
    return figure


def draw_pinned_count(
    ax: Axes, pinned_n: np.ndarray, rows: list[str], sub_tasks: list[str], bins_n: int, *, names: bool = True
) -> Any:
    """Pinned directions (0 to 6) of every relation over progress [J, L]; each run of equal cells holds its number."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    cmap = ListedColormap(colormaps["Blues"](np.linspace(0.0, 1.0, 7)))
    J, L = pinned_n.shape
    mesh = ax.pcolormesh(
        np.arange(L + 1), np.arange(J + 1), pinned_n, cmap=cmap, norm=BoundaryNorm(np.arange(-0.5, 7.0), 7), zorder=2
    )
    for j in range(J):
        edges = [0, *(l for l in range(1, L) if pinned_n[j, l] != pinned_n[j, l - 1] or l % bins_n == 0), L]
        for a, b in pairwise(edges):
            n = int(pinned_n[j, a])
            ax.text(
                (a + b) / 2, j + 0.53, str(n), ha="center", va="center", fontsize=10 if b - a > 1 else 8.5, zorder=5,
                color="white" if n >= 4 else "black",
            )  # fmt: skip
    _progress_axes(ax, rows, sub_tasks, bins_n, names=names)
    return mesh


def draw_spread(
    ax: Axes,
    spread_mm: np.ndarray,
    rows: list[str],
    sub_tasks: list[str],
    bins_n: int,
    *,
    top: float,
    names: bool = False,
) -> Any:
    """Spread of the demonstrations along what they pin [J, L], in mm; dark is tight, hatched has nothing pinned."""
    _nothing_here(ax)
    J, L = spread_mm.shape
    mesh = ax.pcolormesh(
        np.arange(L + 1),
        np.arange(J + 1),
        np.ma.masked_invalid(spread_mm),
        cmap="Blues_r",
        vmin=0.0,
        vmax=top,
        zorder=2,
    )
    _progress_axes(ax, rows, sub_tasks, bins_n, names=names)
    return mesh


def constraint_figure(
    pinned_n: np.ndarray, spread_mm: np.ndarray, rows: list[str], sub_tasks: list[str], bins_n: int, top: float
) -> Figure:
    """What the reference holds: pinned directions and the spread along them (mm, ``top`` ends the scale)."""
    figure = new_figure(1.5 + 2 * (0.35 + 0.33 * len(rows)))
    upper, lower = figure.subplots(2, 1)
    counts = draw_pinned_count(upper, pinned_n, rows, sub_tasks, bins_n)
    title(upper, "pinned directions, of 6", above_names=True)
    colour_bar(figure, counts, upper, "count", ticks=range(7)).ax.invert_yaxis()
    mesh = draw_spread(lower, spread_mm, rows, sub_tasks, bins_n, top=top)
    title(lower, "spread of the demonstrations along the pinned directions (median), mm")
    lower.set_xlabel("progress within each sub-task", fontsize=11, color=INK)
    colour_bar(figure, mesh, lower, "mm").ax.invert_yaxis()
    return figure


# ------------------------------------------------------------------------------------------------------ one execution


def draw_track(
    ax: Axes, t_s: np.ndarray, cost: np.ndarray, rows: list[str], sub_tasks: list[str], ends_s: np.ndarray, worst: int
) -> None:
    """Frame cost over time, stacked by relation [J, F]; sub-task boundaries dashed, the worst frame marked.

    ``ends_s``: when each sub-task ended, NaN if never; ``worst``: index into the frames given.
    """
    base = np.zeros_like(t_s)
    least = UNSEEN_SHARE * float(cost.sum(axis=0).max(initial=0.0))
    for j, name in enumerate(rows):
        highest = cost[j].max(initial=0.0)
        if highest <= 0:
            continue
        words = name if highest >= least else "_"  # not in the legend
        area = ax.fill_between(t_s, base, base + cost[j], facecolor=OKABE_ITO[j % 8], label=words, linewidth=0.6)
        area.set(hatch=HATCHES[j % 8], edgecolor="white" if j % 8 == 0 else INK)
        base = base + cost[j]
    top = max(float(base.max(initial=0.0)), 1e-3)
    ax.plot(t_s, base, color=INK, linewidth=0.8)
    start = float(t_s[0]) if len(t_s) else 0.0
    end = float(t_s[-1]) if len(t_s) else 1.0
    ax.set_xlim(start, max(end, start + 1e-6))
    ax.set_ylim(0, top * 1.22)
    left, taken = start, [start - 1.0] * 3  # end of the last name on each of three levels
    for p, name in enumerate(sub_tasks):
        reached = bool(np.isfinite(ends_s[p]))
        right = float(ends_s[p]) if reached else end
        words = label(name, 16) if reached else f"{label(name, 16)} (never ends)"
        half = 0.0075 * (end - start) * (len(words) + 1)
        level = next((i for i in range(3) if (left + right) / 2 - half > taken[i]), 2)
        taken[level] = (left + right) / 2 + half
        ax.text(
            (left + right) / 2, 1.015 + 0.085 * level, words, ha="center", va="bottom", fontsize=9.5, color=INK,
            transform=ax.get_xaxis_transform(),
        )  # fmt: skip
        if not reached:
            break
        if right < end:
            ax.axvline(right, color=FAINT, linewidth=1.1, linestyle=(0, (4, 3)), zorder=0)
        left = right
    peak = float(base[worst])
    ax.plot([t_s[worst]], [peak], marker="v", color=INK, markersize=9, zorder=5, clip_on=False)
    side = "left" if t_s[worst] < start + 0.6 * (end - start) else "right"
    ax.annotate(
        f"worst frame, {t_s[worst]:.2f} s", (t_s[worst], peak), xytext=(10 if side == "left" else -10, 5),
        textcoords="offset points", ha=side, va="bottom", fontsize=10, color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0},
    )  # fmt: skip
    ax.set_xlabel("time, s", fontsize=11, color=INK)
    ax.set_ylabel("frame cost", fontsize=11, color=INK)
    plain(ax)


def track_figure(
    t_s: np.ndarray, cost: np.ndarray, rows: list[str], sub_tasks: list[str], ends_s: np.ndarray, worst: int
) -> Figure:
    """Frame cost of one execution over time."""
    figure = new_figure(3.0)
    ax = figure.subplots()
    draw_track(ax, t_s, cost, rows, sub_tasks, ends_s, worst)
    if ax.get_legend_handles_labels()[0]:
        figure.legend(loc="outside right upper", frameon=False, fontsize=10, handlelength=2.2, handleheight=1.4)
    return figure


def label(text: str, n: int = 28) -> str:
    """Text for a figure: cut to n characters, dollar signs as they are (not mathematics)."""
    text = text if len(text) <= n else text[: n - 1] + "…"
    return text.replace("$", r"\$")
