"""Over which execution speeds an expert is to be trusted, found before any learner (ParcelStow, appendix D, table 5).

    python experiments/speed_calibration.py out=outputs/speed_calibration [embodiments=g1,panda] [episodes=64]

64 episodes of the expert at each candidate speed, from starts of their own (seed 1). The calibrated range is the run of
neighbouring candidates around the nominal speed at which at least 58 of 64 succeed, the least that the published range
holds (our reading: the paper names no rule). `task=peg_insertion` and `task=upright_placement` calibrate the sister
tasks, whose published counts are of 200 evaluation episodes. What is under `data` is not run again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from record import Record, arguments, keep_compiled_code
from stow_runs import Runs, interval, rolled_out

from jaxeval.report.figures import OKABE_ITO

SOURCE = "ParcelStow, appendix D, table 5 and figure 7 (Isaac Sim, Unitree G1 with a RealHand L6; ours: MuJoCo)"
LEAST = 58 / 64
SEED = 1


class Published(NamedTuple):
    """Successes of ``n`` episodes by speed, and the ends of the range that was demonstrated."""

    n: int
    successes: dict[float, int]
    range: tuple[float, float]

    def rate(self, speed: float) -> float | None:
        """Share of successes; None where nothing is published."""
        return self.successes[speed] / self.n if speed in self.successes else None


SISTER_SPEEDS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5)
PUBLISHED = {
    "parcel_stow": Published(
        64,
        {0.5: 63, 0.75: 63, 1.0: 63, 1.25: 64, 1.5: 64, 2.0: 58, 2.5: 19, 3.0: 1, 4.0: 0, 5.0: 0, 6.0: 3},
        (0.5, 2.0),
    ),
    "peg_insertion": Published(
        200, dict(zip(SISTER_SPEEDS, (195, 198, 182, 176, 150, 163, 172, 174), strict=True)), (0.5, 1.0)
    ),
    "upright_placement": Published(
        200, dict(zip(SISTER_SPEEDS, (176, 191, 185, 194, 193, 184, 105, 2), strict=True)), (0.75, 1.75)
    ),
}


def calibrated(speeds: Sequence[float], rates: Sequence[float], least: float = LEAST) -> tuple[float, float] | None:
    """Ends of the run of neighbouring speeds around 1 whose rates are at least ``least``; None if that of 1 is not.

    Both are of the candidates, in any order. Without 1 among them there is no range.
    """
    order = np.argsort(speeds)
    ordered, good = np.asarray(speeds)[order], np.asarray(rates)[order] >= least
    nominal = np.flatnonzero(good & (ordered == 1.0))
    if not len(nominal):
        return None
    here = int(nominal[0])
    low = here - int(np.argmin([*good[here::-1], False])) + 1
    high = here + int(np.argmin([*good[here:], False])) - 1
    return float(ordered[low]), float(ordered[high])


def main(out: str, data: str, task: str, embodiments: str, episodes: str, speeds: str) -> None:
    """Roll out what is missing, write `result.json` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Calibration of the expert over execution speeds", SOURCE, out)
    candidates = sorted(float(r) for r in speeds.split(","))
    told = PUBLISHED.get(task)
    found: dict[str, Runs] = {}
    for e in embodiments.split(","):
        runs = found[e] = rolled_out(data, task, e, candidates, episodes=int(episodes), seed=SEED)
        counts = {r: runs.successes(r) for r in candidates}
        for r, (k, n) in counts.items():
            published = told.rate(r) if told else None
            record.add(
                f"{e}: success, r = {r:g}", k / n, interval=interval(k, n), n=n, published=published, note=f"{k}/{n}"
            )
        limits = calibrated(candidates, [k / n for k, n in counts.values()])
        held = [r for r in candidates if limits and limits[0] <= r <= limits[1]]
        note = "at least 58 of 64 on each" if limits else "none: too few succeed at r = 1, or it is no candidate"
        record.add(f"{e}: candidates in the calibrated range", len(held), n=len(candidates), note=note)
        for end, value, published in zip(
            ("from", "to"), limits or (), told.range if told else (None, None), strict=False
        ):
            record.add(f"{e}: calibrated range, {end}, r", value, published=published)
        for r in candidates:
            for name, column in (
                ("arm velocity utilisation, share of limit", "hand.arm_utilisation"),
                ("hand speed, m/s", "hand.speed_m_s"),
            ):
                (median, n), (high, _) = runs.quantile(column, r), runs.quantile(column, r, 0.9)
                if n:
                    record.add(
                        f"{e}: peak {name}, r = {r:g}",
                        median,
                        n=n,
                        note=f"median; p90 {high:.2f}",
                    )
    record.add_figure("calibration.png", figure(found, candidates, told))
    record.finish()


def figure(found: dict[str, Runs], speeds: Sequence[float], told: Published | None) -> Figure:
    """Success with Wilson intervals, use of the arm's joint speeds, and the hand's peak speed, over the speed."""
    drawn = Figure(figsize=(10, 3.4), layout="constrained")
    success, used, fast = drawn.subplots(1, 3)
    for colour, (name, runs) in zip(OKABE_ITO, found.items(), strict=False):
        counts = [runs.successes(r) for r in speeds]
        rate = np.array([k / n for k, n in counts])
        ends = np.array([interval(k, n) for k, n in counts]).T
        success.errorbar(
            speeds, 100 * rate, 100 * np.abs(ends - rate), color=colour, marker="o", ms=4, capsize=2, label=name
        )
        for ax, column in ((used, "hand.arm_utilisation"), (fast, "hand.speed_m_s")):
            median, high = (np.array([runs.quantile(column, r, at)[0] for r in speeds]) for at in (0.5, 0.9))
            ax.plot(speeds, median, color=colour, marker="o", ms=4, label=name)
            ax.fill_between(speeds, median, high, color=colour, alpha=0.2, lw=0)
    shown = {r: 100 * rate for r in speeds if told and (rate := told.rate(r)) is not None}
    if shown:
        success.plot([*shown], [*shown.values()], color="#777777", ls=":", marker="x", label="published")
    used.axhline(1.0, color="#777777", ls="--", lw=1)
    for ax, title in (
        (success, "success, % (Wilson 95 %)"), (used, "peak arm joint speed / limit\n(median to p90)"),
        (fast, "peak hand speed, m/s\n(median to p90)"),
    ):  # fmt: skip
        ax.set(xlabel="execution speed r, times nominal", title=title, ylim=(0, None))
        ax.spines[["top", "right"]].set_visible(False)
    success.legend(frameon=False)
    return drawn


if __name__ == "__main__":
    main(**arguments(
        sys.argv[1:], out="outputs/speed_calibration", data="outputs/rollouts", task="parcel_stow",
        embodiments="g1,panda", episodes="64", speeds="0.5,0.75,1,1.25,1.5,2,2.5,3,4,5,6",
    ))  # fmt: skip
