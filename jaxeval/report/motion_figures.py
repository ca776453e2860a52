"""Figures of motion: speed and its spectrum, manipulability, trajectories. In the style of `figures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.metrics.kinematic import FLOOR
from jaxeval.report.figures import FAINT, INK, OKABE_ITO, label, new_figure, plain, title
from jaxeval.report.motion import SINGULAR_SIGMA, MotionTrack, Spectrum, sub_task_spans, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALARM = OKABE_ITO[5]
DASHES = ("solid", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)), (0, (3, 1.2, 1.2, 1.2)))
"""Line styles of groups beside their colours, in the order of OKABE_ITO."""


def draw_sub_tasks(ax: Axes, track: MotionTrack, sub_tasks: Sequence[str], *, letter: float = 0.0) -> int:
    """Dashed lines where sub-tasks end; their names above the axes, on up to three levels. Returns how many levels.

    ``letter``: width of a letter over that of the axes, 0 for no names.
    """
    spans = sub_task_spans(track)
    length = max(float(track.t_s[-1] - track.t_s[0]), 1e-6)
    taken = [-np.inf] * 3  # end of the last name on each level
    for p, start, end in spans:
        if end < track.t_s[-1]:
            ax.axvline(end, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)), zorder=0)
        if not letter or not 0 <= p < len(sub_tasks):
            continue
        words = label(sub_tasks[p], 16)
        half = 0.5 * letter * length * (len(words) + 1)
        level = next((i for i in range(3) if (start + end) / 2 - half > taken[i]), 2)
        taken[level] = (start + end) / 2 + half
        ax.text(
            (start + end) / 2, 1.02 + 0.1 * level, words, ha="center", va="bottom", fontsize=9, color=INK,
            transform=ax.get_xaxis_transform(),
        )  # fmt: skip
    return sum(np.isfinite(end) for end in taken)


def _title(ax: Axes, text: str, levels: int) -> None:
    """Title at the left, clear of the names of sub-tasks on so many levels."""
    pad = 6 + 11.5 * levels
    ax.set_title(label(text, 100), loc="left", fontsize=11, fontweight="bold", color=INK, pad=pad)


def _time_axis(ax: Axes, track: MotionTrack) -> None:
    ax.set_xlim(float(track.t_s[0]), max(float(track.t_s[-1]), float(track.t_s[0]) + 1e-6))
    plain(ax)


# ------------------------------------------------------------------------------------------------ speed and spectrum


def draw_speed(ax: Axes, name: str, track: MotionTrack, sub_tasks: Sequence[str], *, top_mm_s: float) -> None:
    """Speed over time, mm/s, on a scale that ends at ``top_mm_s``; ``name`` is the title."""
    assert track.speed_m_s is not None
    ax.fill_between(track.t_s, 1e3 * track.speed_m_s, color="#dce6ef", linewidth=0, zorder=1)
    ax.plot(track.t_s, 1e3 * track.speed_m_s, color=OKABE_ITO[0], linewidth=1.4, zorder=2)
    _title(ax, name, draw_sub_tasks(ax, track, sub_tasks, letter=0.0145))
    ax.set_ylim(0, 1.06 * top_mm_s)
    ax.set_ylabel("speed, mm/s", fontsize=10, color=INK)
    _time_axis(ax, track)


def draw_spectrum(ax: Axes, spectrum: Spectrum, *, words: bool) -> None:
    """Normalised speed spectrum on square-root axes: dark up to the last bin that counts in SPARC.

    The threshold of amplitude and the end of the band are marked; ``words``: and named.
    """
    f, M = spectrum.frequency_hz, spectrum.magnitude
    counts = f <= spectrum.end_hz * (1 + 1e-9)
    ax.plot(f, M, color="#b9c3cc", linewidth=1.2, zorder=2)
    ax.plot(f[counts], M[counts], color=OKABE_ITO[0], linewidth=1.7, zorder=3)
    ax.plot([spectrum.end_hz], [np.interp(spectrum.end_hz, f, M)], marker="o", color=INK, markersize=5.5, zorder=5)
    ax.axhline(spectrum.amplitude, color=ALARM, linewidth=1.1, linestyle=(0, (1.5, 1.5)), zorder=1)
    ax.axvline(spectrum.limit_hz, color=INK, linewidth=1.2, linestyle=(0, (6, 2)), zorder=1)
    # most of a motion lies in a corner: low frequencies, small magnitudes
    ax.set_xscale("function", functions=(_root, np.square))
    ax.set_yscale("function", functions=(_root, np.square))
    ax.set_xlim(0, max(1.15 * spectrum.limit_hz, min(12.0, float(f[-1]))))
    ax.set_ylim(0, 1.03)
    ticks = [t for t in (0, 0.2, 1, 2, 5, 10, 20, 50) if t <= ax.get_xlim()[1]]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.set_yticks([0, 0.05, 0.2, 0.5, 1], ["0", "0.05", "0.2", "0.5", "1"])
    if words:
        ends = {"cutoff": spectrum.cutoff_hz, "half the rate": f[-1]}
        at = [name for name, hz in ends.items() if spectrum.limit_hz >= 0.999 * hz]
        text = f"{spectrum.limit_hz:.3g} Hz: {' and '.join(at)}"
        offset = {"textcoords": "offset points", "fontsize": 9, "color": INK}
        ax.annotate(text, (spectrum.limit_hz, 0.97), xytext=(-4, 0), ha="right", va="top", **offset)
        ax.annotate(
            f"threshold {spectrum.amplitude:g}", (0.995 * spectrum.limit_hz, spectrum.amplitude), xytext=(-4, 2),
            ha="right", va="bottom", **offset,
        )  # fmt: skip
    ax.set_ylabel("spectrum", fontsize=10, color=INK)
    plain(ax)


def _root(x: Any) -> Any:
    return np.sqrt(np.maximum(x, 0.0))


def motion_figure(rows: Sequence[tuple[str, MotionTrack, Spectrum | None, float]], sub_tasks: Sequence[str]) -> Figure:
    """Speed over time beside its spectrum, a row an execution: (title, frames, spectrum, SPARC)."""
    named = any(len(sub_task_spans(track)) for _, track, _, _ in rows)
    figure = new_figure(0.35 + (2.25 if named else 1.95) * len(rows))
    axes = figure.subplots(len(rows), 2, squeeze=False, gridspec_kw={"width_ratios": [1.7, 1]})
    top = max(1e3 * float(np.nanmax(track.speed_m_s)) for _, track, _, _ in rows if track.speed_m_s is not None)
    for i, (left, right) in enumerate(axes):
        name, track, spectrum, sparc = rows[i]
        draw_speed(left, name, track, sub_tasks, top_mm_s=max(top, 1.0))
        if spectrum is None:
            right.set_axis_off()
            continue
        draw_spectrum(right, spectrum, words=i == 0)
        right.set_title(f"SPARC {sparc:.2f}".replace("-", "−"), loc="right", fontsize=11, color=INK)
    axes[-1, 0].set_xlabel("time, s", fontsize=11, color=INK)
    axes[-1, 1].set_xlabel("frequency, Hz", fontsize=11, color=INK)
    return figure


# ------------------------------------------------------------------------------------------------------ manipulability


def draw_manipulability(ax: Axes, track: MotionTrack, values: np.ndarray, *, floor: float, top: float) -> None:
    """One index along an execution: its floor, frames near a singularity as diamonds, those not reached hatched."""
    ax.plot(track.t_s, values, color=OKABE_ITO[0], linewidth=1.6, zorder=3)
    ax.axhline(floor, color=ALARM, linewidth=1.1, linestyle=(0, (1.5, 1.5)), zorder=1)
    near = track.singular
    ax.plot(track.t_s[near], values[near], linestyle="", marker="D", color=ALARM, markersize=4.5, zorder=4)
    ax.set_ylim(0, 1.08 * top)
    _time_axis(ax, track)
    missing = np.concatenate([[0], ~np.isfinite(values), [0]]).astype(int)
    starts, ends = np.flatnonzero(np.diff(missing) == 1), np.flatnonzero(np.diff(missing) == -1)
    edges = np.concatenate([track.t_s[:1], (track.t_s[1:] + track.t_s[:-1]) / 2, track.t_s[-1:]])
    for a, b in zip(starts, ends, strict=True):
        ax.axvspan(edges[a], edges[b], facecolor="#f4f4f4", edgecolor="#b4b4b4", hatch="////", linewidth=0, zorder=0)


def manipulability_figure(rows: Sequence[tuple[str, MotionTrack]], sub_tasks: Sequence[str]) -> Figure:
    """Translational w and the least singular value over time, a row an execution: (title, frames)."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    named = any(len(sub_task_spans(track)) for _, track in rows)
    figure = new_figure(0.75 + (2.05 if named else 1.75) * len(rows))
    axes = figure.subplots(len(rows), 2, squeeze=False)
    columns = [("w", "w, translational", FLOOR), ("sigma_min", "σ_min", SINGULAR_SIGMA)]
    for k, (attribute, words, floor) in enumerate(columns):
        every = [getattr(track, attribute) for _, track in rows]
        top = max((float(np.nanmax(v)) for v in every if np.isfinite(v).any()), default=floor)
        for i, (name, track) in enumerate(rows):
            ax = axes[i, k]
            draw_manipulability(ax, track, every[i], floor=floor, top=max(top, 2 * floor))
            levels = draw_sub_tasks(ax, track, sub_tasks, letter=0.018 if k == 0 else 0.0)
            ax.set_ylabel(words, fontsize=10, color=INK)
            if k == 0:
                _title(ax, name, levels)
        axes[-1, k].set_xlabel("time, s", fontsize=11, color=INK)
    keys: list[Any] = [Line2D([], [], color=ALARM, linewidth=1.1, linestyle=(0, (1.5, 1.5)))]
    keys[0].set_label(f"w = {FLOOR:g}, σ_min = {SINGULAR_SIGMA:g}")
    if any(track.singular.any() for _, track in rows):
        keys.append(Line2D([], [], color=ALARM, marker="D", linestyle="", markersize=4.5))
        keys[-1].set_label("below either: near a singularity")
    if any(not np.isfinite(track.w).all() for _, track in rows if track.w is not None):
        keys.append(
            Patch(facecolor="#f4f4f4", edgecolor="#b4b4b4", hatch="////", label="not reached, or joints missing")
        )
    figure.legend(handles=keys, loc="outside upper right", ncols=3, frameon=False, fontsize=10)
    return figure


# --------------------------------------------------------------------------------------------------------- trajectories


def trajectories_figure(paths: Sequence[tuple[int, MotionTrack]], groups: Sequence[str]) -> Figure:
    """Trajectories in space, from above and from the side: (index into ``groups``, frames). Millimetres, world frame.

    A dot is a start, a diamond a frame near a singularity.
    """
    from matplotlib.lines import Line2D

    figure = new_figure(5.6)
    grid = figure.add_gridspec(2, 2, width_ratios=[1.75, 1])
    space: Any = figure.add_subplot(grid[:, 0], projection="3d")
    above, side = figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])
    ends = []
    for g, track in paths:
        assert track.position_m is not None
        seen = np.isfinite(track.position_m).all(axis=1)
        x = 1e3 * track.position_m[seen]
        if not len(x):
            continue
        ends += [x.min(axis=0), x.max(axis=0)]
        near = x[track.singular[seen]]
        style = {"color": OKABE_ITO[g], "linestyle": DASHES[g], "linewidth": 1.0, "alpha": 0.85}
        line = x[thinned(len(x))]
        for ax, columns in ((space, [0, 1, 2]), (above, [0, 1]), (side, [0, 2])):
            ax.plot(*line[:, columns].T, **style)
            ax.plot(*x[:1, columns].T, linestyle="", marker="o", markersize=3, color=OKABE_ITO[g])
            ax.plot(*near[:, columns].T, linestyle="", marker="D", markersize=4, color=ALARM, zorder=5)
    low, high = np.min(ends, axis=0), np.max(ends, axis=0)
    size = np.maximum(high - low, 1.0)
    space.set_box_aspect(np.maximum(size, 0.15 * size.max()), zoom=1.15)
    space.view_init(elev=24, azim=-58)
    for ax, names in ((space, "xyz"), (above, "xy"), (side, "xz")):
        for axis, name in zip(("x", "y", "z"), names, strict=False):
            getattr(ax, f"set_{axis}label")(f"{name}, mm", fontsize=10, color=INK)
        ax.tick_params(labelsize=9, colors=INK)
        ax.locator_params(nbins=5)
    for ax, name in ((above, "from above"), (side, "from the side")):
        ax.set_aspect("equal", adjustable="datalim")
        title(ax, name)
        plain(ax)
    keys = [Line2D([], [], color=OKABE_ITO[g], linestyle=DASHES[g], linewidth=2, label=label(name))
            for g, name in enumerate(groups)]  # fmt: skip
    if any(track.singular.any() for _, track in paths):
        keys.append(Line2D([], [], color=ALARM, marker="D", linestyle="", markersize=5, label="near a singularity"))
    figure.legend(handles=keys, loc="outside upper left", ncols=5, frameon=False, fontsize=10)
    return figure
