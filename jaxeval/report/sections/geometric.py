"""Geometric quality: Q by group, where its cost arises, the worst executions, and what the demonstrations hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.metrics import geometric
from jaxeval.report import figures, summary
from jaxeval.report.html import Picture
from jaxeval.report.scored import ABOUT, FRAME_COSTS, SCORES, Frames, Scored, read_frames
from jaxeval.report.section import TABLE_N, Cell, Context, Part, Section, TableColumn, template_of
from jaxeval.types import Reference

GROUPS_N, MAPS_N = 12, 6
"""Groups in the figure of Q; cost maps."""
COST_ALT = "Mean frame cost of every relation over progress, one map a group, sub-tasks from left to right"
HELD_ALT = "Pinned directions and the spread along them, for every relation and progress bin of the reference"


@dataclass(frozen=True)
class Shown:
    """What this section draws from: scores, their reference and parameters, and frames where they were written."""

    scored: Scored
    reference: Reference
    params: geometric.GeometricParams
    frames: Frames | None
    worst: list[int]

    @property
    def pairs(self) -> list[str]:
        """Names of the relations."""
        return [p.name for p in self.reference.pairs]

    @property
    def sub_tasks(self) -> list[str]:
        """Names of the sub-tasks."""
        return [s.name for s in self.reference.spec.sub_tasks]


def draw(scored: Scored, context: Context) -> Part | None:
    """Q and what it rests on; None where it was not scored, or where the reference is not given (a remark says so)."""
    reference = context.reference
    if not scored.has_q:
        return None
    if reference is None:
        if scored.sections == (SECTION.name,):
            raise InputError(
                f"{scored.folder / SCORES}: it holds no metric but geometric quality, expected the reference as well; "
                "give the one that these scores were made with (reference=PATH)"
            )
        context.remarks.append(
            "These scores hold the geometric quality Q as well: give the reference that they were made with "
            "(reference=PATH) and the report shows it."
        )
        return None
    order = np.lexsort((np.where(scored.valid, scored.number["gate_free_Q"], 0), np.where(scored.valid, scored.q, 2.0)))
    worst = summary.worst_executions(scored)
    frames = read_frames(scored, reference, tracks=worst, times=sorted({*order[:TABLE_N].tolist(), *worst}))
    shown = Shown(scored, reference, _params(scored), frames, worst)
    _skip(shown, context)
    held = summary.constraint_map(reference, shown.params)
    page = template_of(
        __file__,
        scored=scored,
        reference=reference,
        params=shown.params,
        parameters=summary.parameters(shown.params),
        demonstrations_n=_demonstrations_n(reference),
        headline=summary.headline(scored),
        groups=[summary.group_summary(scored, g) for g in summary.chosen_groups(scored, summary.LISTED_N)[0]],
        admissible_mm=held.admissible_mm,
        worst=[_worst(shown, i, k, context) for k, i in enumerate(worst, start=1)],
        frame_costs=FRAME_COSTS,
        **_pictures(shown, held, context),
    )
    return Part(
        body=page.sections(),
        numbers=_numbers(scored, reference),
        summary=page.summary(),
        method=page.method(),
        columns=_columns(shown, page),
        order=order,
    )


SECTION = Section("geometric", "Geometric quality", draw)


def _params(scored: Scored) -> geometric.GeometricParams:
    """The parameters that Q was scored with."""
    try:
        return geometric.GeometricParams(**scored.record["params"]).check()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{scored.folder / ABOUT}: params cannot be used ({error}); expected those of `jaxeval score`; score again"
        ) from error


def _demonstrations_n(reference: Reference) -> int:
    return int(np.asarray(reference.demo_valid).sum())


def _numbers(scored: Scored, reference: Reference) -> tuple[tuple[Any, str], ...]:
    judged_n, mean = int(scored.valid.sum()), summary.mean(scored.q[scored.valid])
    return (
        ("–" if mean is None else f"{mean:.3f}", "mean Q (0 to 1, higher is better)"),
        (judged_n, "executions judged"),
        (int(scored.closed.sum()), "gate closed, Q = 0"),
        (scored.n - judged_n, "not judged"),
        (_demonstrations_n(reference), "demonstrations"),
    )


def _skip(shown: Shown, context: Context) -> None:
    """Say what is left out of the figures, and which means are not unique."""
    reference, scored = shown.reference, shown.scored
    absent = f"cost over progress and time, times of worst frames: {FRAME_COSTS} was not written (frames=true)"
    title = "Relations whose mean is not unique (a demonstration lies over 90 deg from it, as free turns do), by bins"
    context.skipped += [(title, summary.shortened(unsure))] if (unsure := summary.unsure(reference)) else []
    context.skipped += [("Figures left out", [absent])] if shown.frames is None else []
    for what, n in (("the figure of Q", GROUPS_N), ("the cost maps", MAPS_N if shown.frames is not None else scored.n)):
        if names := summary.chosen_groups(scored, n)[1]:
            title = f"Groups left out of {what} (those with the lowest means are drawn)"
            context.skipped.append((title, summary.shortened(names)))


def _columns(shown: Shown, page: Any) -> tuple[TableColumn, ...]:
    """Columns of the table of executions: Q, the gate's reason or the largest departure, where and when."""
    rows: dict[int, dict[str, Any]] = {}

    def row(i: int) -> dict[str, Any]:
        if i not in rows:
            rows[i] = summary.execution_row(shown.scored, i, shown.frames)
        return rows[i]

    def quality(i: int) -> Cell:
        q = row(i)["q"]
        return Cell(page.quality(q), 2 if q is None else q)

    def when(i: int) -> Cell:
        time, frame = row(i)["time"], row(i)["frame"]
        if time is not None:
            return Cell(f"{time:.2f} s", time)
        return Cell("–", -1) if frame is None else Cell(f"frame {frame}", frame)

    return (
        TableColumn("Q", quality, css="q", sorted=True),
        TableColumn("Reason: closed gate, or largest departure", lambda i: Cell(page.reason(row(i)))),
        TableColumn("Worst sub-task", lambda i: Cell(row(i)["sub_task"] or "–")),
        TableColumn("Worst frame", when, css="n", head_css="n"),
    )


# ------------------------------------------------------------------------------------------------------------ pictures


def _pictures(shown: Shown, held: summary.ConstraintMap, context: Context) -> dict[str, Picture | None]:
    """Q by group, cost over progress (None without frames), and what the reference holds."""
    scored, frames = shown.scored, shown.frames
    groups = summary.chosen_groups(scored, GROUPS_N)[0]
    parts = [(scored.groups[g], scored.q[rows := scored.rows_of(g)], scored.closed[rows]) for g in groups]
    means = [f"{name} {q.mean():.3f}" for name, q, _ in parts if len(q)]
    add = context.pictures.add
    return {
        "quality_by_group": add(
            "quality",
            "Q of every execution by group; means: " + ", ".join(means),
            lambda: figures.quality_figure(parts),
        ),
        "maps": add("cost", COST_ALT, lambda: _maps(shown, frames))
        if frames is not None and np.isfinite(frames.mean_cost).any()
        else None,
        "constraints": add(
            "constraints",
            HELD_ALT,
            lambda: figures.constraint_figure(
                held.pinned_n, held.spread_mm, shown.pairs, shown.sub_tasks, shown.reference.bins_n,
                1e3 * float(shown.params.sigma_pin_m),
            ),
        ),
    }  # fmt: skip


def _maps(shown: Shown, frames: Frames) -> Any:
    scored = shown.scored
    drawn = [g for g in summary.chosen_groups(scored, MAPS_N)[0] if np.isfinite(frames.mean_cost[g]).any()]
    top = max(float(np.nanmax(frames.mean_cost[drawn])), 1e-3)
    maps = [(f"{scored.groups[g]} (n = {len(scored.rows_of(g))})", frames.mean_cost[g]) for g in drawn]
    return figures.cost_figure(maps, shown.pairs, shown.sub_tasks, shown.reference.bins_n, top)


def _worst(shown: Shown, i: int, rank: int, context: Context) -> dict[str, Any]:
    """What is told of one of the worst executions, with its cost over time where frames were written."""
    scored, frames = shown.scored, shown.frames
    row = summary.execution_row(scored, i, frames)
    row |= {
        "gate_free": float(scored.number["gate_free_Q"][i]),
        "pair": scored.text["worst_pair"][i],
        "direction": scored.text["worst_direction"][i],
        "gate_reason": scored.text["gate_reason"][i],
        "z": float(scored.number["worst_z"][i]),
        "picture": None,
        "stretch": None,
    }
    track = None if frames is None else frames.tracks.get(i)
    if track is None or row["frame"] is None or not (track.frame == row["frame"]).any():
        return row
    row["stretch"] = summary.costly_stretch(track.t_s, track.cost.sum(axis=0))
    at = int(np.flatnonzero(track.frame == row["frame"])[0])
    row["picture"] = context.pictures.add(
        f"worst_{rank}",
        f"Frame cost of {row['episode']} over time by relation; the worst frame is at {row['time']:.2f} s",
        lambda: figures.track_figure(track.t_s, track.cost, shown.pairs, shown.sub_tasks, scored.ends_s[i], at),
    )
    return row
