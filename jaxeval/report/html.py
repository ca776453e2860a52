"""One self-contained HTML of a scored set: no network, figures inside (and beside it as PNG), every word escaped."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.metrics import geometric as G
from jaxeval.report import figures as F
from jaxeval.report import motion as M
from jaxeval.report import motion_words as W
from jaxeval.report import summary as S
from jaxeval.report.generic import OWN_SECTIONS, generic_sections
from jaxeval.report.motion_part import motion_context
from jaxeval.report.scored import FRAME_COSTS, SCORES, Frames, Scored, read_frames, read_scored
from jaxeval.types import Reference

TABLE_N = 200
"""Rows of the table of executions."""
GROUPS_N, MAPS_N = 12, 6
"""Groups in the figure of Q; cost maps."""
COST_ALT = "Mean frame cost of every relation over progress, one map a group, sub-tasks from left to right"
HELD_ALT = "Pinned directions and the spread along them, for every relation and progress bin of the reference"


MOTION = ("motion", "manipulability", "trajectories")
FIGURES = tuple(
    f"{n}.png" for n in ("quality", "cost", "constraints", *MOTION, *(f"worst_{k + 1}" for k in range(S.WORST_N)))
)
"""Files that a report may leave in its `figures` folder."""


@dataclass(frozen=True)
class Picture:
    """A figure as the page holds it."""

    name: str
    alt: str
    data: str  # base64 of the PNG


def write_report(
    scores_dir: Path,
    reference: Reference | None,
    *,
    about: dict[str, Any],
    params: G.GeometricParams | None,
    out: Path,
) -> Path:
    """Write `out`/report.html and `out`/figures/*.png of the scores in `scores_dir`; returns the HTML's path.

    Geometric quality is told where Q was scored and the ``reference`` it was scored against is given, with its
    ``params``; motion wherever it was scored. ``about``: what is known about the reference (provenance). InputError
    when scores are missing, damaged, made with another reference or hold nothing to tell, or when `out` cannot be
    written. The HTML appears whole or not at all.
    """
    scored = read_scored(Path(scores_dir), reference)
    learned = reference if scored.has_q else None  # what Q is told with
    motion = M.read_motion(scored)
    others = any(c.get("section") not in OWN_SECTIONS for c in scored.told.get("columns", {}).values())
    if motion is None and learned is None and not others:
        raise InputError(
            f"{scored.folder / SCORES}: it holds no metric but geometric quality, expected the reference as well; "
            "give the one that these scores were made with (reference=PATH)"
        )
    shown = (_order(scored, motion, learned) if learned or motion else np.arange(scored.n))[:TABLE_N]
    frames, worst = None, [] if learned is None else S.worst_executions(scored)
    if learned is not None:
        frames = read_frames(scored, learned, tracks=worst, times=sorted({*shown.tolist(), *worst}))
    skipped = S.skipped(scored, learned, frames, about)
    page = _Page(_folder(Path(out) / "figures"))
    context: dict[str, Any] = {
        "scored": scored,
        "task": scored.told.get("task", "an unnamed task"),
        "instruction": "" if reference is None else reference.spec.instruction,
        "has_q": learned is not None,
        "lacks_reference": scored.has_q and learned is None,
        "numbers": [],
        "rows": _rows(scored, learned, motion, frames, shown),
        "row_titles": [],
        "sorted_by": None,
        "motion": None,
        "generic": generic_sections(scored, page.add, skipped),
        "skipped": skipped,
        "versions": S.versions(),
        "provenance": S.provenance(scored, about),
    }
    if learned is not None:
        params = (params or G.GeometricParams()).check()
        context |= _geometric(scored, learned, params, frames, worst, page, skipped)
    if motion is not None:
        quantities = W.scored_of(motion, W.EXECUTION if learned is None else W.BESIDE_Q)
        columns = [q.column for q in quantities]
        context["row_titles"] = [q.title for q in quantities]
        context["motion"] = motion_context(scored, motion, page.add, skipped)
        context["numbers"] += context["motion"]["numbers"]
        if learned is None and motion.ranked_by in columns:
            context["sorted_by"] = columns.index(motion.ranked_by)
    if learned is None and motion is None:
        context["numbers"] = [(scored.n, "executions"), (int(scored.valid.sum()), "of them valid")]
    path = Path(out) / "report.html"
    _replace(path, _environment().get_template("template.html.j2").render(context).encode())
    sections = {p.name for p in page.folder.glob("section_*.png")}
    for stale in (sections | set(FIGURES)) - page.made:  # of an earlier report in the same folder
        (page.folder / stale).unlink(missing_ok=True)
    return path


def _rows(
    scored: Scored, reference: Reference | None, motion: M.Motion | None, frames: Frames | None, shown: np.ndarray
) -> list[dict[str, Any]]:
    """Lines of the table of executions: Q with its reason where there is a reference, and motion."""
    rows = [S.plain_row(scored, i) if reference is None else S.execution_row(scored, i, frames) for i in shown]
    for i, row in zip(shown, rows, strict=True):
        quantities = W.EXECUTION if reference is None else W.BESIDE_Q
        row["motion"] = [] if motion is None else W.execution_cells(motion, quantities, i)
        row["not_known"] = "" if motion is None else W.status_words(motion, i)
    return rows


def _order(scored: Scored, motion: M.Motion | None, reference: Reference | None) -> np.ndarray:
    """Rows from the lowest on: by Q, or by what motion is ranked by; those without it last."""
    if reference is None and motion is not None:
        return np.argsort(motion.rank, kind="stable")
    free = np.where(scored.valid, scored.number["gate_free_Q"], 0)
    return np.lexsort((free, np.where(scored.valid, scored.q, 2.0)))


def _geometric(
    scored: Scored,
    reference: Reference,
    params: G.GeometricParams,
    frames: Frames | None,
    worst: list[int],
    page: _Page,
    skipped: list[tuple[str, list[str]]],
) -> dict[str, Any]:
    """What the page says of Q; groups left out of its figures are added to ``skipped``."""
    held = S.constraint_map(reference, params)
    groups, left_out = S.chosen_groups(scored, GROUPS_N)
    mapped, unmapped = S.chosen_groups(scored, MAPS_N)
    for what, names in (("the figure of Q", left_out), ("the cost maps", unmapped if frames is not None else [])):
        if names:
            title = f"Groups left out of {what} (of so many, the lowest means are drawn)"
            skipped.append((title, S.shortened(names)))
    judged_n, demonstrations_n = int(scored.valid.sum()), int(np.asarray(reference.demo_valid).sum())
    mean = S.mean(scored.q[scored.valid])
    return {
        "spec": reference.spec,
        "numbers": [
            ("–" if mean is None else f"{mean:.3f}", "mean Q (0 to 1, higher is better)"),
            (judged_n, "executions judged"),
            (int(scored.closed.sum()), "gate closed, Q = 0"),
            (scored.n - judged_n, "not judged"),
            (demonstrations_n, "demonstrations"),
        ],
        "headline": S.headline(scored),
        "groups": [S.group_summary(scored, g) for g in S.chosen_groups(scored, S.LISTED_N)[0]],
        "quality": page.add("quality", _quality_alt(scored, groups), lambda: _quality(scored, groups)),
        "maps": page.add("cost", COST_ALT, lambda: _maps(scored, reference, frames, mapped))
        if frames is not None and np.isfinite(frames.mean_cost).any()
        else None,
        "constraints": page.add("constraints", HELD_ALT, lambda: _constraints(reference, params, held)),
        "admissible_mm": held.admissible_mm,
        "worst": [_worst(scored, reference, i, k, frames, page) for k, i in enumerate(worst, start=1)],
        "params": params,
        "parameters": S.parameters(params),
        "reference": reference,
        "demonstrations_n": demonstrations_n,
        "frame_costs": FRAME_COSTS,
    }


class _Page:
    """Makes figures one at a time, leaves each beside the page as a PNG and gives the page its copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: set[str] = set()

    def add(self, name: str, alt: str, make: Callable[[], Any]) -> Picture:
        data = F.png(make())
        _replace(self.folder / f"{name}.png", data)
        self.made.add(f"{name}.png")
        return Picture(name, alt, base64.b64encode(data).decode())


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("jaxeval.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["q"] = lambda x: "–" if x is None or not np.isfinite(x) else f"{x:.3f}"
    return environment


def _worst(
    scored: Scored, reference: Reference, i: int, rank: int, frames: Frames | None, page: _Page
) -> dict[str, Any]:
    row = S.execution_row(scored, i, frames)
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
    row["stretch"] = S.costly_stretch(track.t_s, track.cost.sum(axis=0))
    alt = f"Frame cost of {row['episode']} over time by relation; the worst frame is at {row['time']:.2f} s"
    row["picture"] = page.add(
        f"worst_{rank}",
        alt,
        lambda: F.track_figure(
            track.t_s, track.cost, [p.name for p in reference.pairs], [s.name for s in reference.spec.sub_tasks],
            scored.ends_s[i], int(np.flatnonzero(track.frame == row["frame"])[0]),
        ),
    )  # fmt: skip
    return row


# ------------------------------------------------------------------------------------------------------------ pictures


def _quality(scored: Scored, groups: list[int]) -> Any:
    parts = [(scored.groups[g], scored.q[rows := scored.rows_of(g)], scored.closed[rows]) for g in groups]
    return F.quality_figure(parts)


def _quality_alt(scored: Scored, groups: list[int]) -> str:
    told = [f"{scored.groups[g]} {m:.3f}" for g in groups if (m := S.mean(scored.q[scored.rows_of(g)])) is not None]
    return "Q of every execution by group; means: " + ", ".join(told)


def _maps(scored: Scored, reference: Reference, frames: Frames | None, groups: list[int]) -> Any:
    assert frames is not None
    drawn = [g for g in groups if np.isfinite(frames.mean_cost[g]).any()]
    top = max(float(np.nanmax(frames.mean_cost[drawn])), 1e-3)
    return F.cost_figure(
        [(f"{scored.groups[g]} (n = {len(scored.rows_of(g))})", frames.mean_cost[g]) for g in drawn],
        [p.name for p in reference.pairs], [s.name for s in reference.spec.sub_tasks], reference.bins_n, top,
    )  # fmt: skip


def _constraints(reference: Reference, params: G.GeometricParams, held: S.ConstraintMap) -> Any:
    return F.constraint_figure(
        held.pinned_n, held.spread_mm, [p.name for p in reference.pairs], [s.name for s in reference.spec.sub_tasks],
        reference.bins_n, 1e3 * float(params.sigma_pin_m),
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- writing


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be made ({error.strerror}); expected a writable folder; choose another with out=DIR"
        ) from error
    return path


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); expected a writable folder; choose another with out=DIR"
        ) from error
    finally:
        part.unlink(missing_ok=True)
