"""What the report says of motion: means by group, what is not known and why, settings. Millimetres, degrees, percent.

A number that is not known is "–", never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxeval.metrics.kinematic import FLOOR
from jaxeval.report.motion import LEAST_W, SINGULAR_SIGMA, SPARC, Motion
from jaxeval.report.scored import Scored, natural


@dataclass(frozen=True)
class Quantity:
    """A column of scores as the report tells it: title with unit, factor to that unit, digits.

    ``least``: of a group the least is told, not the mean.
    """

    column: str
    title: str
    digits: int
    factor: float = 1.0
    least: bool = False

    def words(self, value: float) -> str:
        """The number in the title's unit; a true minus sign."""
        told = f"{self.factor * value:.{self.digits}f}"
        return told.replace("-", "−") if float(told) else told.lstrip("-")


SMOOTHNESS = (
    Quantity(SPARC, "SPARC", 2),
    Quantity("smoothness.turn_sparc", "SPARC of turning", 2),
    Quantity("smoothness.jerk_mean_m_s3", "Mean jerk, m/s³", 2),
    Quantity("smoothness.path_m", "Path, mm", 0, 1e3),
    Quantity("smoothness.turn_rad", "Turning, deg", 0, 180 / np.pi),
    Quantity("smoothness.duration_s", "Time, s", 2),
    Quantity("smoothness.idle_s", "Idle, s", 2),
)
KINEMATIC = (
    Quantity("kinematic.score", "Score (0 to 1, lower is better)", 3),
    Quantity("kinematic.cost", "Cost", 2),
    Quantity("kinematic.coverage", "Frames reached, %", 1, 100),
    Quantity(LEAST_W, "Least w of any", 3, least=True),
    Quantity("kinematic.min_sigma", "Least σ_min of any", 3, least=True),
    Quantity("kinematic.min_limit_margin", "Least margin to a limit, %", 0, 100, least=True),
    Quantity("kinematic.velocity_utilisation", "Joint speed used, %", 0, 100),
)
TRACKING = (
    Quantity("translation_m_mean", "Position off, mm", 1, 1e3),
    Quantity("translation_m_p95", "its 95th percentile, mm", 1, 1e3),
    Quantity("rotation_symmetric_rad_mean", "Turned off, deg", 1, 180 / np.pi),
    Quantity("add_m_mean", "ADD, mm", 1, 1e3),
    Quantity("near_share", "Near, %", 0, 100),
    Quantity("coverage", "Frames tracked, %", 0, 100),
)
EXECUTION = (
    SMOOTHNESS[0],
    SMOOTHNESS[2],
    SMOOTHNESS[3],
    SMOOTHNESS[5],
    replace(KINEMATIC[0], title="Kinematic score"),
    *KINEMATIC[1:3],
    replace(KINEMATIC[3], title="Least w"),
)
BESIDE_Q = (EXECUTION[0], EXECUTION[-1])
"""Columns of the table of executions: alone, and beside Q."""


# ------------------------------------------------------------------------------------------------------------- tables


def scored_of(motion: Motion, quantities: Sequence[Quantity]) -> list[Quantity]:
    """Those of the quantities that were scored."""
    return [q for q in quantities if q.column in motion.number]


def group_table(scored: Scored, motion: Motion, quantities: Sequence[Quantity], groups: Sequence[int]) -> Any:
    """{titles, rows} of means by group; None where none of the quantities was scored.

    A row is (group, executions, cells); a cell has in brackets for how many executions its number is known, where not
    for all, and is "–" where for none.
    """
    shown = scored_of(motion, quantities)
    if not shown:
        return None
    rows = []
    for g in groups:
        mine = scored.group == g
        cells = [_of_group(q, motion.number[q.column][mine]) for q in shown]
        rows.append((scored.groups[g], int(mine.sum()), cells))
    return {"titles": [q.title for q in shown], "rows": rows}


def _of_group(quantity: Quantity, values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return "–"
    told = quantity.words(float(known.min() if quantity.least else known.mean()))
    return told if len(known) == len(values) else f"{told} ({len(known)})"


def sub_task_table(scored: Scored, motion: Motion, groups: Sequence[int]) -> Any:
    """Mean SPARC by group, a column a sub-task; None without sub-tasks."""
    return group_table(scored, motion, [Quantity(f"{SPARC}.{s}", s, 2) for s in motion.sub_tasks], groups)


def tracking_tables(scored: Scored, motion: Motion, groups: Sequence[int]) -> list[tuple[str, Any]]:
    """(track, means by group) of every track compared with the truth."""
    truth = dict(scored.told.get("settings", {}).get("tracking", {}).get("tracks", ()))
    out = []
    for name in motion.tracks:
        quantities = [Quantity(f"tracking.{name}.{q.column}", q.title, q.digits, q.factor) for q in TRACKING]
        title = f"{name} against {truth[name]}" if name in truth else name
        out.append((title, group_table(scored, motion, quantities, groups)))
    return out


def not_known(scored: Scored, motion: Motion) -> list[str]:
    """A sentence for every status other than "ok": what is not known, for how many executions, why."""
    what = {
        "smoothness.status": "Path and times",
        f"{SPARC}_status": "SPARC",
        "smoothness.turn_sparc_status": "SPARC of turning",
        "smoothness.jerk_status": "Jerk",
        "kinematic.status": "Kinematics",
    }
    what |= {f"tracking.{t}.status": f"The error of {t}" for t in motion.tracks}
    what |= {f"{SPARC}_status.{s}": f"SPARC of the sub-task “{s}”" for s in motion.sub_tasks}
    out = []
    for column, name in what.items():
        count = Counter(t for t in motion.text.get(column, ()) if t and t != "ok")
        verb = "are" if name in ("Path and times", "Kinematics") else "is"
        out += [f"{name} {verb} not known for {n} of {scored.n} executions: {why}." for why, n in count.most_common()]
    return out


def execution_cells(motion: Motion, quantities: Sequence[Quantity], i: int) -> list[tuple[str, float | None]]:
    """(words, number or None) of every quantity scored, of one execution."""
    out: list[tuple[str, float | None]] = []
    for q in scored_of(motion, quantities):
        value = float(motion.number[q.column][i])
        out.append((q.words(value), value) if np.isfinite(value) else ("–", None))
    return out


def status_words(motion: Motion, i: int) -> str:
    """Why numbers of one execution are not known; empty where all are."""
    columns = [c for c in motion.text if c.endswith("status") and motion.text[c][i] not in ("", "ok")]
    return "; ".join(sorted({motion.text[c][i] for c in columns}, key=natural))


# --------------------------------------------------------------------------------------------------------- parameters


def motion_parameters(scored: Scored, motion: Motion) -> list[tuple[str, str, str]]:
    """(name, value, meaning) of every setting of the motion metrics that had a say."""
    settings = scored.told.get("settings", {})
    out: list[tuple[str, str, str]] = []

    def tell(family: str, *lines: tuple[str, str, float, str, str]) -> None:
        had = settings.get(family, {})
        for name, title, factor, unit, meaning in lines:
            if had.get(name) is not None:
                out.append((title, f"{factor * had[name]:g}{unit}", meaning))

    if scored_of(motion, SMOOTHNESS):
        tell(
            "smoothness",
            ("cutoff_hz", "cutoff", 1, " Hz", "end of SPARC’s band; half the rate where that is lower"),
            ("amplitude", "threshold", 1, "", "of the normalised spectrum, ends what counts in SPARC"),
            ("padlevel", "padding", 1, "", "doublings of the transform’s length by zeros"),
            ("rate_min_hz", "least rate", 1, " Hz", "below, SPARC is not known: fps too low"),
            ("gap_steps", "gap", 1, " steps", "a longer step of time is a gap, and SPARC not known"),
            ("still_m_s", "still", 1e3, " mm/s", "where nothing is faster there is no motion"),
            ("idle_m_s", "idle", 1e3, " mm/s", "slower steps count as idle time"),
            ("jerk_window_s", "jerk window", 1, " s", "to which the polynomial of the jerk is fitted"),
        )
    if scored_of(motion, KINEMATIC):
        out.append(("near a singularity", f"w < {FLOOR:g} or σ_min < {SINGULAR_SIGMA:g}", "marked in the figures"))
        tell("kinematic", ("torque_length_m", "length of a radian", 1, " m", "turns radians into metres in σ_min"))
        if "recorded" not in motion.setting("kinematic.joints"):
            tell(
                "kinematic",
                ("position_tolerance_m", "reached", 1e3, " mm", "a pose is reached within this distance"),
                ("rotation_tolerance_rad", "reached", 180 / np.pi, " deg", "and this angle"),
            )
    if motion.tracks:
        tell(
            "tracking",
            ("near_m", "near", 1e3, " mm", "an estimate this close to the truth is near it,"),
            ("near_rad", "near", 180 / np.pi, " deg", "if it is turned by no more than this"),
        )
    return out
