"""The page's part on motion: numbers, tables and figures under the names that `motion.html.j2` reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxeval.metrics.kinematic import FLOOR
from jaxeval.report import motion as M
from jaxeval.report import motion_figures as F
from jaxeval.report import motion_words as W
from jaxeval.report import summary as S
from jaxeval.report.motion_space import plotly_js, trajectories_in_space
from jaxeval.report.scored import Scored

Add = Callable[[str, str, Callable[[], Any]], Any]
"""Makes a figure: (name, what it shows in words, how) -> the picture."""


def motion_context(scored: Scored, motion: M.Motion, add: Add, skipped: list[tuple[str, list[str]]]) -> dict[str, Any]:
    """What the page says of motion; figures that cannot be drawn are added to ``skipped``, with the reason."""
    groups, left_out = S.lowest_groups(scored, motion.rank, S.LISTED_N)
    sparc = motion.number.get(M.SPARC, np.zeros(0))
    known = sparc[np.isfinite(sparc)]
    numbers: list[tuple[Any, str]] = [] if scored.has_q else [(scored.n, "executions")]
    if M.SPARC in motion.number:
        told = "mean SPARC (at most −1)" + ("" if len(known) == scored.n else f", known for {len(known)}")
        numbers.append((f"{known.mean():.2f}".replace("-", "−") if len(known) else "–", told))
    return {
        "numbers": numbers,
        "body": motion.setting("smoothness.body") or "the tip",
        "robot": motion.setting("kinematic.robot"),
        "joints": motion.setting("kinematic.joints"),
        "pool": motion.setting("kinematic.pool"),
        "smoothness": W.group_table(scored, motion, W.SMOOTHNESS, groups),
        "sub_tasks": W.sub_task_table(scored, motion, groups),
        "kinematic": W.group_table(scored, motion, W.KINEMATIC, groups),
        "tracking": W.tracking_tables(scored, motion, groups),
        "left_out": left_out,
        "groups_n": len(groups),
        "not_known": S.shortened(W.not_known(scored, motion)),
        "parameters": W.motion_parameters(scored, motion),
        "floor": FLOOR,
        "singular": M.SINGULAR_SIGMA,
        **_figures(scored, motion, add, skipped),
    }


def _figures(scored: Scored, motion: M.Motion, add: Add, skipped: list[tuple[str, list[str]]]) -> dict[str, Any]:
    from markupsafe import Markup

    out: dict[str, Any] = dict.fromkeys(("speed", "manipulability", "trajectories", "space"))
    chosen, paths = M.chosen_executions(scored, motion), M.chosen_paths(scored, motion)
    tracks = M.read_motion_frames(scored, [*(i for i, _ in chosen), *paths])
    if tracks is None:
        why = f"speeds, manipulability and trajectories: {M.FRAME_MOTION} was not written (frames=true)"
        skipped.append(("Figures of motion left out", [why]))
        return out
    if not chosen:
        why = "speeds and manipulability along executions: neither SPARC nor w is known of any"
        skipped.append(("Figures of motion left out", [why]))
    sub_tasks = [str(s) for s in scored.told.get("sub_tasks", ())]
    name = scored.text["episode"]
    drawn = [(i, f"{why}: {name[i]}", tracks[i]) for i, why in chosen if i in tracks]
    settings = scored.told.get("settings", {}).get("smoothness", {})
    moved = [
        (title, t, M.spectrum_of(t, settings), float(motion.number[M.SPARC][i]))
        for i, title, t in drawn
        if t.speed_m_s is not None and np.isfinite(t.speed_m_s).any()
    ]
    if moved:
        told = "; ".join(f"{t}, SPARC {v:.2f}" if np.isfinite(v) else f"{t}, no SPARC" for t, _, _, v in moved)
        out["speed"] = add(
            "motion", f"Speed over time and its spectrum: {told}", lambda: F.motion_figure(moved, sub_tasks)
        )
    reached = [(title, t) for _, title, t in drawn if t.w is not None and np.isfinite(t.w).any()]
    if reached:
        told = "; ".join(f"{title}, least w {np.nanmin(t.w):.3f}" for title, t in reached if t.w is not None)
        out["manipulability"] = add(
            "manipulability", f"w and least singular value over time: {told}",
            lambda: F.manipulability_figure(reached, sub_tasks),
        )  # fmt: skip
    seen = [i for i in paths if i in tracks and _has_path(tracks[i])]
    if seen:
        groups = sorted({int(scored.group[i]) for i in seen})
        names = [scored.groups[g] for g in groups]
        lines = [(groups.index(int(scored.group[i])), name[i], tracks[i]) for i in seen]
        alt = f"Trajectories of {len(seen)} executions in space, from above and from the side, by group"
        out |= {
            "trajectories": add(
                "trajectories", alt, lambda: F.trajectories_figure([(g, t) for g, _, t in lines], names)
            ),
            "space": trajectories_in_space(lines, names, sub_tasks),
            "plotly_js": Markup(plotly_js()),
            "paths_n": len(seen),
            "paths_groups": f" in {len(groups)} of {len(scored.groups)} groups" * (len(groups) < len(scored.groups)),
            "any_singular": any(t.singular.any() for _, _, t in lines),
        }
    return out


def _has_path(track: M.MotionTrack) -> bool:
    return track.position_m is not None and bool(np.isfinite(track.position_m).all(axis=1).any())
