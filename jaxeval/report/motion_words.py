"""What the report says of motion: means by group, what is not known and why, settings. Millimetres, degrees, percent.

A number that is not known is "–", never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jaxeval.metrics.kinematic import FLOOR
from jaxeval.report.motion import LEAST_W, SINGULAR_SIGMA, SPARC, Motion
from jaxeval.report.quantities import Quantity, group_table, scored_of
from jaxeval.report.scored import Scored, natural

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
EXECUTION = (
    SMOOTHNESS[0],
    SMOOTHNESS[2],
    SMOOTHNESS[3],
    SMOOTHNESS[5],
    replace(KINEMATIC[0], title="Kinematic score"),
    *KINEMATIC[1:3],
    replace(KINEMATIC[3], title="Least w"),
)
BESIDE = (EXECUTION[0], EXECUTION[-1])
"""Columns of the table of executions: alone, and beside those of another section."""


def sub_task_table(scored: Scored, motion: Motion, groups: Sequence[int]) -> Any:
    """Mean SPARC by group, a column a sub-task; None without sub-tasks."""
    return group_table(scored, motion.number, [Quantity(f"{SPARC}.{s}", s, 2) for s in motion.sub_tasks], groups)


def not_known(scored: Scored, motion: Motion) -> list[str]:
    """A sentence for every status other than "ok": what is not known, for how many executions, why."""
    what = {
        "smoothness.status": "Path and times",
        f"{SPARC}_status": "SPARC",
        "smoothness.turn_sparc_status": "SPARC of turning",
        "smoothness.jerk_status": "Jerk",
        "kinematic.status": "Kinematics",
    }
    what |= {f"{SPARC}_status.{s}": f"SPARC of the sub-task “{s}”" for s in motion.sub_tasks}
    out = []
    for column, name in what.items():
        count = Counter(t for t in motion.text.get(column, ()) if t and t != "ok")
        verb = "are" if name in ("Path and times", "Kinematics") else "is"
        out += [f"{name} {verb} not known for {n} of {scored.n} executions: {why}." for why, n in count.most_common()]
    return out


def status_words(motion: Motion, i: int) -> str:
    """Why numbers of one execution are not known; empty where all are."""
    columns = [c for c in motion.text if c.endswith("status") and motion.text[c][i] not in ("", "ok")]
    return "; ".join(sorted({motion.text[c][i] for c in columns}, key=natural))


# --------------------------------------------------------------------------------------------------------- parameters


def motion_parameters(scored: Scored, motion: Motion) -> list[tuple[str, str, str]]:
    """(name, value, meaning) of every setting of the motion metrics that had a say."""
    settings = scored.record.get("settings", {})
    out: list[tuple[str, str, str]] = []

    def tell(family: str, *lines: tuple[str, str, float, str, str]) -> None:
        had = settings.get(family, {})
        for name, title, factor, unit, meaning in lines:
            if had.get(name) is not None:
                out.append((title, f"{factor * had[name]:g}{unit}", meaning))

    if scored_of(motion.number, SMOOTHNESS):
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
    if scored_of(motion.number, KINEMATIC):
        out.append(("near a singularity", f"w < {FLOOR:g} or σ_min < {SINGULAR_SIGMA:g}", "marked in the figures"))
        tell("kinematic", ("torque_length_m", "length of a radian", 1, " m", "turns radians into metres in σ_min"))
        if "recorded" not in motion.setting("kinematic.joints"):
            tell(
                "kinematic",
                ("position_tolerance_m", "reached", 1e3, " mm", "a pose is reached within this distance"),
                ("rotation_tolerance_rad", "reached", 180 / np.pi, " deg", "and this angle"),
            )
    return out
