"""Motion: smoothness and kinematics by group, speeds and manipulability along executions, trajectories in space."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxeval.metrics.kinematic import FLOOR
from jaxeval.report import motion as motion_parts
from jaxeval.report import motion_figures, motion_words, summary
from jaxeval.report.motion_space import plotly_js, trajectories_in_space
from jaxeval.report.scored import Scored
from jaxeval.report.section import Cell, Context, Part, Section, TableColumn, template_of


def draw(scored: Scored, context: Context) -> Part | None:
    """What the page says of motion; figures that cannot be drawn are named among what was skipped."""
    motion = motion_parts.read_motion(scored)
    if motion is None:
        return None
    groups, left_out = summary.lowest_groups(scored, motion.rank, summary.LISTED_N)
    page = template_of(
        __file__,
        scored=scored,
        body=motion.setting("smoothness.body") or "the tip",
        robot=motion.setting("kinematic.robot"),
        joints=motion.setting("kinematic.joints"),
        pool=motion.setting("kinematic.pool"),
        smoothness=motion_words.group_table(scored, motion.number, motion_words.SMOOTHNESS, groups),
        sub_tasks=motion_words.sub_task_table(scored, motion, groups),
        kinematic=motion_words.group_table(scored, motion.number, motion_words.KINEMATIC, groups),
        left_out=left_out,
        groups_n=len(groups),
        not_known=summary.shortened(motion_words.not_known(scored, motion)),
        parameters=motion_words.motion_parameters(scored, motion),
        floor=FLOOR,
        singular=motion_parts.SINGULAR_SIGMA,
        **(pictures := _figures(scored, motion, context)),
    )
    numbers = list(context.executions(scored))
    if motion_parts.SPARC in motion.number:
        sparc = motion.number[motion_parts.SPARC]
        known = sparc[np.isfinite(sparc)]
        words = "mean SPARC (at most −1)" + ("" if len(known) == scored.n else f", known for {len(known)}")
        numbers.append((f"{known.mean():.2f}".replace("-", "−") if len(known) else "–", words))
    return Part(
        body=page.sections(),
        numbers=tuple(numbers),
        method=page.method(),
        script=page.script() if pictures["space"] else "",
        columns=_columns(motion, leads=not context.drawn),
        order=np.argsort(motion.rank, kind="stable"),
    )


SECTION = Section("motion", "Motion", draw)


def _columns(motion: motion_parts.Motion, *, leads: bool) -> tuple[TableColumn, ...]:
    """Columns of the table of executions: all that tell of motion, or two of them where another section leads."""

    def of(quantity: motion_words.Quantity) -> TableColumn:
        def cell(i: int) -> Cell:
            value = float(motion.number[quantity.column][i])
            return Cell(quantity.words(value), value) if np.isfinite(value) else Cell("–", 1e9)

        in_order = leads and quantity.column == motion.ranked_by
        return TableColumn(quantity.title, cell, css="n", head_css="n wrap", sorted=in_order)

    columns = tuple(
        map(of, motion_words.scored_of(motion.number, motion_words.EXECUTION if leads else motion_words.BESIDE))
    )
    if not leads or not any(motion_words.status_words(motion, i) for i in range(len(motion.rank))):
        return columns
    return (*columns, TableColumn("Not known", lambda i: Cell(motion_words.status_words(motion, i))))


def _figures(scored: Scored, motion: motion_parts.Motion, context: Context) -> dict[str, Any]:
    """Speeds and spectra, manipulability, trajectories; None for each that cannot be drawn."""
    from markupsafe import Markup

    skipped, add = context.skipped, context.pictures.add
    out: dict[str, Any] = dict.fromkeys(("speed", "manipulability", "trajectories", "space"))
    chosen, paths = motion_parts.chosen_executions(scored, motion), motion_parts.chosen_paths(scored, motion)
    tracks = motion_parts.read_motion_frames(scored, [*(i for i, _ in chosen), *paths])
    if tracks is None:
        why = f"speeds, manipulability and trajectories: {motion_parts.FRAME_MOTION} was not written (frames=true)"
        skipped.append(("Figures of motion left out", [why]))
        return out
    if not chosen:
        why = "speeds and manipulability along executions: neither SPARC nor w is known of any"
        skipped.append(("Figures of motion left out", [why]))
    sub_tasks = [str(s) for s in scored.record.get("sub_tasks", ())]
    name = scored.text["episode"]
    drawn = [(i, f"{why}: {name[i]}", tracks[i]) for i, why in chosen if i in tracks]
    out |= _along(scored, motion, drawn, sub_tasks, context)
    seen = [i for i in paths if i in tracks and _has_path(tracks[i])]
    if seen:
        groups = sorted({int(scored.group[i]) for i in seen})
        names = [scored.groups[g] for g in groups]
        lines = [(groups.index(int(scored.group[i])), name[i], tracks[i]) for i in seen]
        alt = f"Trajectories of {len(seen)} executions in space, from above and from the side, by group"
        out |= {
            "trajectories": add(
                "trajectories", alt, lambda: motion_figures.trajectories_figure([(g, t) for g, _, t in lines], names)
            ),
            "space": trajectories_in_space(lines, names, sub_tasks),
            "plotly_js": Markup(plotly_js()),
            "paths_n": len(seen),
            "paths_groups": f" in {len(groups)} of {len(scored.groups)} groups" * (len(groups) < len(scored.groups)),
            "any_singular": any(t.singular.any() for _, _, t in lines),
        }
    return out


def _along(
    scored: Scored,
    motion: motion_parts.Motion,
    drawn: list[tuple[int, str, motion_parts.MotionTrack]],
    sub_tasks: list[str],
    context: Context,
) -> dict[str, Any]:
    """Speed with its spectrum, and manipulability, over time: (row, title, frames) of the executions chosen."""
    out: dict[str, Any] = {}
    settings = scored.record.get("settings", {}).get("smoothness", {})
    moved = [
        (title, t, motion_parts.spectrum_of(t, settings), float(motion.number[motion_parts.SPARC][i]))
        for i, title, t in drawn
        if t.speed_m_s is not None and np.isfinite(t.speed_m_s).any()
    ]
    if moved:
        words = "; ".join(f"{t}, SPARC {v:.2f}" if np.isfinite(v) else f"{t}, no SPARC" for t, _, _, v in moved)
        out["speed"] = context.pictures.add(
            "motion",
            f"Speed over time and its spectrum: {words}",
            lambda: motion_figures.motion_figure(moved, sub_tasks),
        )
    reached = [(title, t) for _, title, t in drawn if t.w is not None and np.isfinite(t.w).any()]
    if reached:
        words = "; ".join(f"{title}, least w {np.nanmin(t.w):.3f}" for title, t in reached if t.w is not None)
        out["manipulability"] = context.pictures.add(
            "manipulability", f"w and least singular value over time: {words}",
            lambda: motion_figures.manipulability_figure(reached, sub_tasks),
        )  # fmt: skip
    return out


def _has_path(track: motion_parts.MotionTrack) -> bool:
    return track.position_m is not None and bool(np.isfinite(track.position_m).all(axis=1).any())
