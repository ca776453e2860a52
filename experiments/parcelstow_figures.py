"""Figures of parcelstow_tables.py: success and differences along speed, matched outcomes, stages and causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from record import Record

from jaxeval.report import comparison_figures as F
from jaxeval.stats.proportions import wilson

LEARNERS = ("ACT-A", "ACT-B", "ACT-C", "Diffusion Policy", "DAgger")
SPEEDS = (1.0, 1.5, 2.0)
ORDER = (
    "acquired", "lifted_clear", "reoriented", "preinsert_reached", "inserted", "released", "settled", "success",
)  # fmt: skip
"""Stages as an episode reaches them."""
NEAR = 0.05
"""Two rates closer than this are called equivalent once both one-sided tests say so."""
Stages = dict[tuple[str, float], dict[str, str]]
"""Counts of a policy at a speed: how many episodes reached each stage."""


def figures(record: Record, stages: Stages, pairs: list[dict[str, Any]], causes: list[dict[str, str]]) -> None:
    """Figures 3, 4, 5a, 6a and 7 of the paper, with our intervals."""
    curves = ("expert", *LEARNERS[:3], "ACT-A n=50", "ACT-A n=100")
    record.add_figure("success.png", F.success_figure([success_panel(stages, "parcel", curves)], "speed r", curves))
    everyone = ("expert", *LEARNERS)
    baselines = success_panel(stages, "parcel, baselines", ("expert", "ACT-A", "Diffusion Policy", "DAgger"))
    record.add_figure("baselines.png", F.success_figure([baselines], "speed r", everyone))
    calibrated = success_panel(stages, "64 episodes a speed", ("expert calibration",))
    record.add_figure("calibration.png", F.success_figure([calibrated], "speed r", ("expert calibration",)))

    parcel = [r | told(r) for r in pairs if r["task"] == "parcel"]
    series = [(x, [r for r in parcel if r["learner"] == x]) for x in LEARNERS[:3]]
    speeds = sorted({r["speed r"] for _, rows in series for r in rows})
    panel = ("parcel, the same starts", series, speeds)
    record.add_figure("difference.png", F.difference_figure([panel], "speed r", everyone, margin=NEAR))
    fastest = [r for r in parcel if r["speed r"] == 2 and r["learner"] in LEARNERS[:3]]
    named = [(f"expert and {r['learner']}, r = 2", r) for r in fastest]
    record.add_figure("matched.png", F.pairs_figure(named))
    record.add_figure("comparison.png", beside(stages, next(r for r in fastest if r["learner"] == "ACT-A")))

    reached = [
        (policy, [{"stage": s} | rate_row(int(stages[policy, 2.0][s]), 100) for s in ORDER])
        for policy in ("expert", *LEARNERS[:3])
    ]
    record.add_figure("stages.png", F.stages_figure([("r = 2", reached)], ORDER, everyone))
    counted = [r | {"k": int(r["episodes_n"]), "n": 100, "speed r": float(r["speed"])} for r in causes]
    kinds = ["success", *sorted({r["cause"] for r in counted} - {"success"})]
    shown = [(x, [r for r in counted if r["policy"] == x and r["speed r"] in SPEEDS]) for x in everyone]
    record.add_figure("causes.png", F.causes_figure(shown, kinds, "speed r", SPEEDS))


def beside(stages: Stages, pair: dict[str, Any]) -> Figure:
    """Success of the expert and ACT-A along speed, and the same starts at r = 2."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    _, series, speeds = success_panel(stages, "", ("expert", "ACT-A"))
    F.draw_curves(left, series, speeds, "speed r", ("expert", "ACT-A"), ("rate", "low", "high"))
    left.set_ylabel("success, %", fontsize=10.5)
    left.legend(frameon=False, loc="lower left")
    F.draw_pairs(right, pair, "the same 100 starts, r = 2")
    return figure


def rate_row(k: int, n: int) -> dict[str, Any]:
    found = wilson(k, n)
    return {"rate": float(found.value), "low": float(found.low), "high": float(found.high)}


def success_panel(stages: Stages, title: str, policies: Sequence[str]) -> tuple[str, list[Any], list[float]]:
    """A panel of success_figure: the policies' cells over the speeds that they have."""

    def cells(policy: str) -> list[dict[str, Any]]:
        mine = ((r, row) for (p, r), row in stages.items() if p == policy)
        return [{"speed r": r} | rate_row(int(row["success"]), int(row["episodes_n"])) for r, row in mine]

    series = [(policy, cells(policy)) for policy in policies]
    return title, series, sorted({row["speed r"] for _, rows in series for row in rows})


def told(r: dict[str, Any]) -> dict[str, Any]:
    """A pairing as the figures want it: score interval, p, counts of a and b."""
    return {
        "speed r": float(r["speed"]),
        "difference": float(r["tango"].value),
        "low": float(r["tango"].low),
        "high": float(r["tango"].high),
        "p": float(r["exact"].p),
        "a": "expert",
        "b": r["learner"],
        "pairs_n": int(r["pairs_n"]),
        "both": int(r["both"]),
        "a_only": int(r["expert_only"]),
        "b_only": int(r["learner_only"]),
        "neither": int(r["neither"]),
    }
