"""The figure of a gathered sweep: a curve over one swept setting, a heat map over two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jaxeval.io.files import replacing
from jaxeval.report import figures

ALL = "all"
LINES_N = 16
"""Groups that a curve's figure draws at most."""


def draw(rows: Sequence[Mapping[str, Any]], swept: Sequence[str], value: str, path: Path) -> Path | None:
    """Write the figure of a sweep over one or two settings; None, and nothing written, for another number."""
    if len(swept) not in (1, 2) or not any(row["mean"] is not None for row in rows):
        return None
    if any(row.get("speed") is not None for row in rows):
        figure = curve(_by_speed(rows, swept), "speed", value)
    else:
        figure = curve(rows, swept[0], value) if len(swept) == 1 else heat_map(rows, swept[0], swept[1], value)
    with replacing(path) as part:
        figure.savefig(part, dpi=150)
    return path


def _by_speed(rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that have a speed, each named after all else in which it may differ."""
    out = []
    for row in rows:
        if row.get("speed") is not None:
            told_speed = row.get("told_speed")
            words = [
                *(str(row[key]) for key in swept),
                row["group"],
                *([] if told_speed is None else [f"told {told_speed:g}"]),
            ]
            out.append({**row, "group": ", ".join(words)})
    return out


def curve(rows: Sequence[Mapping[str, Any]], setting: str, value: str) -> Figure:
    """Mean and 95 % interval along one setting, a line a group; words instead of numbers stand side by side."""
    figure = figures.new_figure(3.6)
    ax = figure.subplots()
    levels = _levels(rows, setting)
    numeric = all(isinstance(x, int | float) for x in levels)
    every = [g for g in dict.fromkeys(row["group"] for row in rows) if g != ALL] or [ALL]
    groups = every[:LINES_N]
    for k, group in enumerate(groups):
        mine = [row for row in rows if row["group"] == group and row["mean"] is not None]
        if not mine:
            continue
        mine.sort(key=lambda row: levels.index(row[setting]))
        x = np.array([row[setting] if numeric else levels.index(row[setting]) for row in mine], float)
        if not numeric:
            x = x + 0.1 * (k - (len(groups) - 1) / 2)
        y = np.array([row["mean"] for row in mine])
        low, high = (
            np.array([row["mean"] if row[key] is None else row[key] for row in mine]) for key in ("low", "high")
        )
        colour = figures.OKABE_ITO[k % len(figures.OKABE_ITO)]
        style = "-" if numeric else "none"
        ax.errorbar(x, y, [y - low, high - y], color=colour, linestyle=style, marker="o", capsize=3, label=group)
    if not numeric:
        ax.set_xticks(range(len(levels)), [str(x) for x in levels])
    ax.set_xlabel(setting)
    ax.set_ylabel(f"{value}, mean and 95 % interval")
    if len(groups) > 1:
        left_out = f"{len(groups)} of {len(every)} groups" if len(every) > len(groups) else None
        ax.legend(title=left_out, frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.grid(axis="y", color=figures.FAINT, linewidth=0.6, alpha=0.5)
    figures.plain(ax)
    return figure


def heat_map(rows: Sequence[Mapping[str, Any]], across: str, up: str, value: str) -> Figure:
    """Mean over all episodes for each pair of values of two settings; a cell without a run stays empty."""
    figure = figures.new_figure(3.6)
    ax = figure.subplots()
    of = [row for row in rows if row["group"] == ALL and row["mean"] is not None]
    x, y = _levels(of, across), _levels(of, up)
    grid = np.full((len(y), len(x)), np.nan)
    for row in of:
        grid[y.index(row[up]), x.index(row[across])] = row["mean"]
    image = ax.imshow(grid, origin="lower", aspect="auto", cmap="viridis")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for i, j in zip(*np.nonzero(np.isfinite(grid)), strict=True):
        ax.text(j, i, f"{grid[i, j]:.3g}", ha="center", va="center", color="white" if grid[i, j] < middle else "black")
    ax.set_xticks(range(len(x)), [str(v) for v in x])
    ax.set_yticks(range(len(y)), [str(v) for v in y])
    ax.set_xlabel(across)
    ax.set_ylabel(up)
    figure.colorbar(image, ax=ax, label=f"{value}, mean")
    return figure


def _levels(rows: Sequence[Mapping[str, Any]], setting: str) -> list[Any]:
    """Values of a setting in order: numbers rising, words as they come."""
    levels = list(dict.fromkeys(row[setting] for row in rows))
    return sorted(levels) if all(isinstance(x, int | float) for x in levels) else levels
