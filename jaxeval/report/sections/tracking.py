"""Tracking: errors of every estimated track against the true one, how much was tracked, and frames that went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.report import figures, summary
from jaxeval.report.quantities import Quantity, group_table
from jaxeval.report.scored import Scored
from jaxeval.report.section import Cell, Context, Part, Section, TableColumn, template_of
from jaxeval.report.sections.generic import KINDS, not_known

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PREFIX = "tracking."
ERROR, COVERAGE = "translation_m_mean", "coverage"
ERRORS = (
    Quantity("translation_m_mean", "Position off, mm", 1, 1e3),
    Quantity("translation_m_p95", "its 95th percentile, mm", 1, 1e3),
    Quantity("rotation_symmetric_rad_mean", "Turned off, deg", 1, 180 / np.pi),
    Quantity("add_m_mean", "ADD, mm", 1, 1e3),
    Quantity("near_share", "Near, %", 0, 100),
    Quantity(COVERAGE, "Frames tracked, %", 0, 100),
)
FRAMES = (
    Quantity("lost_n", "Frames lost", 1),
    Quantity("jump_n", "Frames after a jump", 1),
    Quantity("frozen_n", "Frozen frames", 1),
    Quantity("stuck_n", "Frozen frames before a jump", 1),
)
DRAWN_TRACKS_N, DRAWN_GROUPS_N, TABLE_TRACKS_N = 4, 8, 3


def draw(scored: Scored, context: Context) -> Part | None:
    """A table a track by group, errors and coverage of every execution, and why errors are not known."""
    columns = scored.of_section(SECTION.name)
    numbers = {name: scored.floats(name) for name, about in columns.items() if about.kind in KINDS}
    tracks = [
        n[len(PREFIX) : -len(COVERAGE) - 1] for n in numbers if n.startswith(PREFIX) and n.endswith(f".{COVERAGE}")
    ]
    if not tracks:
        return None
    groups, left_out = summary.lowest_groups(scored, np.full(scored.n, np.nan), summary.LISTED_N)
    if left_out:
        context.skipped.append(("Groups left out of the tables of tracking", summary.shortened(left_out)))
    settings = scored.record.get("settings", {}).get("tracking", {})
    truth = dict(settings.get("tracks", ()))
    titles = {t: f"{t} against {truth[t]}" if t in truth else t for t in tracks}
    tables = [(titles[t], *(_table(scored, numbers, t, quantities, groups) for quantities in (ERRORS, FRAMES)))
              for t in tracks]  # fmt: skip
    drawn = [t for t in tracks if np.isfinite(numbers.get(f"{PREFIX}{t}.{ERROR}", np.zeros(0))).any()][:DRAWN_TRACKS_N]
    picture = None
    if drawn:
        alt = f"Position error and share of frames tracked of every execution, by group: {', '.join(drawn)}"
        picture = context.pictures.add("tracking", alt, lambda: _figure(scored, numbers, drawn, titles, groups))
    page = template_of(
        __file__, tables=tables, picture=picture, not_known=not_known(scored, columns), parameters=_parameters(settings)
    )
    return Part(
        body=page.sections(),
        method=page.method(),
        numbers=context.executions(scored),
        columns=_columns(numbers, tracks),
        order=np.argsort(-numbers[f"{PREFIX}{drawn[0]}.{ERROR}"], kind="stable") if drawn else None,
    )


SECTION = Section("tracking", "Tracking", draw)


def _columns(numbers: dict[str, np.ndarray], tracks: list[str]) -> tuple[TableColumn, ...]:
    """Columns of the table of executions: error and coverage of the first tracks."""

    def of(track: str, quantity: Quantity) -> TableColumn:
        values = numbers[f"{PREFIX}{track}.{quantity.column}"]

        def cell(i: int) -> Cell:
            return Cell(quantity.words(values[i]), float(values[i])) if np.isfinite(values[i]) else Cell("–", 1e9)

        return TableColumn(f"{track}: {quantity.title}", cell, css="n", head_css="n wrap")

    shown = [q for q in ERRORS if q.column in (ERROR, COVERAGE)]
    return tuple(of(t, q) for t in tracks[:TABLE_TRACKS_N] for q in shown if f"{PREFIX}{t}.{q.column}" in numbers)


def _table(
    scored: Scored, numbers: dict[str, np.ndarray], track: str, quantities: tuple[Quantity, ...], groups: list[int]
) -> Any:
    """Means by group of one track, None where none of the quantities was scored."""
    return group_table(
        scored,
        numbers,
        [Quantity(f"{PREFIX}{track}.{q.column}", q.title, q.digits, q.factor) for q in quantities],
        groups,
    )


def _parameters(settings: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(name, value, meaning) of what decides when an estimate is near the truth."""
    shown = (
        ("near_m", 1e3, "mm", "an estimate this close to the truth is near it,"),
        ("near_rad", 180 / np.pi, "deg", "if it is turned by no more than this"),
    )
    return [("near", f"{factor * settings[name]:g} {unit}", what) for name, factor, unit, what in shown
            if settings.get(name) is not None]  # fmt: skip


def _figure(
    scored: Scored, numbers: dict[str, np.ndarray], tracks: list[str], titles: dict[str, str], groups: list[int]
) -> Figure:
    """A row a track: position error of every execution by group at the left, the share of its frames at the right."""
    shown = groups[:DRAWN_GROUPS_N]
    figure = figures.new_figure(len(tracks) * (0.9 + 0.4 * len(shown)))
    axes = figure.subplots(len(tracks), 2, squeeze=False, sharey=True)
    for pair, track in zip(axes, tracks, strict=True):
        for ax, column, factor, what in (
            (pair[0], ERROR, 1e3, "mean position error, mm"),
            (pair[1], COVERAGE, 100, "frames tracked, %"),
        ):
            values = factor * numbers[f"{PREFIX}{track}.{column}"]
            figures.draw_strips(ax, [values[(scored.group == g) & np.isfinite(values)] for g in shown])
            ax.set_xlabel(what, fontsize=10, color=figures.INK)
        pair[0].set_xlim(left=0)
        pair[1].set_xlim(-3, 103)
        pair[0].set_yticks(range(len(shown)), [figures.label(scored.groups[g], 24) for g in shown])
        figures.title(pair[0], titles[track])
    return figure
