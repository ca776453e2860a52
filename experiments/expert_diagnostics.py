"""What changes in the expert as it goes faster (ParcelStow, appendix E, table 6), and how its episodes end.

    python experiments/expert_diagnostics.py out=outputs/expert_diagnostics [embodiments=g1,panda] [episodes=100]

100 episodes of the expert at each of seven speeds, from the same starts at every speed (seed 2: neither those that the
grasps were searched with nor those of the calibration). Medians over the episodes in which a quantity exists. What is
under `data` is not run again; a run that was killed goes on.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from record import Record, arguments, keep_compiled_code
from stow_runs import Runs, interval, rolled_out

from jaxeval.report.figures import OKABE_ITO

SOURCE = "ParcelStow, appendix E, table 6 (Isaac Sim, Unitree G1 with a RealHand L6; ours: MuJoCo)"
SPEEDS = (0.5, 1.0, 1.5, 2.0, 2.25, 2.5, 3.0)
SUCCESS = (1.00, 1.00, 0.99, 0.84, 0.80, 0.29, 0.00)
DIAGNOSTICS = {
    "least orientation error before insertion, deg": (
        "stages.angle_before_insert_rad", np.degrees(1.0), (2.8, 2.2, 4.7, 7.6, 8.9, 10.3, 10.8),
    ),
    "insertion depth, mm": ("stages.depth_max_m", 1e3, (63.7, 56.3, 52.5, 50.0, 49.5, 49.1, 30.4)),
    "peak receptacle force, N": ("stages.receptacle_peak_n", 1.0, (2.7, 3.1, 4.7, 5.7, 7.0, 8.1, 13.6)),
    "arm velocity utilisation, share of limit": (
        "hand.arm_utilisation", 1.0, (0.10, 0.12, 0.08, 0.11, 0.12, 0.13, 0.16),
    ),
    "peak hand-parcel translation, mm": ("hand.slip_m", 1e3, (5.8, 8.2, 8.2, 8.1, 8.2, 8.5, 20.8)),
    "peak hand-parcel rotation, deg": ("hand.slip_rad", np.degrees(1.0), ()),
    "force-closure margin at acquisition, 1e-3": ("grasp.margin.acquired", 1e3, ()),
}  # fmt: skip
"""Column, factor to the printed unit, published medians at SPEEDS. The margin is that of `jaxeval score`: edges of unit
forces, torques about the parcel's centre over a length of 1 m."""
SEED = 2


def main(out: str, data: str, embodiments: str, episodes: str, speeds: str) -> None:
    """Roll out what is missing, write `result.json` and the figures into `out`."""
    keep_compiled_code()
    record = Record("The expert at higher execution speeds", SOURCE, out)
    chosen = [float(r) for r in speeds.split(",")]
    found: dict[str, Runs] = {}
    for e in embodiments.split(","):
        runs = found[e] = rolled_out(data, "parcel_stow", e, chosen, episodes=int(episodes), seed=SEED)
        for r in chosen:
            k, n = runs.successes(r)
            causes = Counter(runs["cause"][i] for i in runs.at(r) if runs["cause"][i] != "success")
            note = "; ".join(f"{count} {cause}" for cause, count in causes.most_common())
            record.add(
                f"{e}: success, r = {r:g}",
                k / n,
                interval=interval(k, n),
                n=n,
                published=published(SUCCESS, r),
                note=note,
            )
        for name, (column, times, values) in DIAGNOSTICS.items():
            for r in chosen:
                median, n = runs.quantile(column, r, times=times)
                if n:
                    record.add(f"{e}: {name}, r = {r:g}", median, n=n, published=published(values, r))
    record.add_figure("diagnostics.png", figure(found, chosen))
    record.add_figure("causes.png", causes_figure(found, chosen))
    record.finish()


def published(values: Sequence[float], speed: float) -> float | None:
    """At a speed; None where the paper has none."""
    return values[SPEEDS.index(speed)] if values and speed in SPEEDS else None


def figure(found: dict[str, Runs], speeds: Sequence[float]) -> Figure:
    """Success and every diagnostic over the speed: medians, from the tenth to the ninetieth percentile."""
    drawn = Figure(figsize=(12, 5.6), layout="constrained")
    axes = drawn.subplots(2, 4).ravel()
    for colour, (name, runs) in zip(OKABE_ITO, found.items(), strict=False):
        counts = [runs.successes(r) for r in speeds]
        rate, ends = np.array([k / n for k, n in counts]), np.array([interval(k, n) for k, n in counts]).T
        axes[0].errorbar(
            speeds, 100 * rate, 100 * np.abs(ends - rate), color=colour, marker="o", ms=4, capsize=2, label=name
        )
        for ax, (column, times, _) in zip(axes[1:], DIAGNOSTICS.values(), strict=False):
            low, median, high = (
                np.array([runs.quantile(column, r, at, times)[0] for r in speeds]) for at in (0.1, 0.5, 0.9)
            )
            ax.plot(speeds, median, color=colour, marker="o", ms=4)
            ax.fill_between(speeds, low, high, color=colour, alpha=0.2, lw=0)
    for ax, title, values in zip(
        axes, ("success, %", *DIAGNOSTICS), (tuple(100 * x for x in SUCCESS), *(v for _, _, v in DIAGNOSTICS.values())),
        strict=True,
    ):  # fmt: skip
        if values:
            ax.plot(SPEEDS, values, color="#777777", ls=":", marker="x", label="published")
        ax.set_title(title, fontsize=9)
        ax.axhline(0, lw=0)
        ax.set_ylim(bottom=1.05 * min(0.0, ax.dataLim.y0))  # margins may be negative
        ax.spines[["top", "right"]].set_visible(False)
    axes[1].axhline(10, color="#777777", lw=1, ls="--")
    axes[1].annotate("tolerated at the end", (0, 10), (2, 2), ("axes fraction", "data"), "offset points", fontsize=8)
    for ax in axes[4:]:
        ax.set_xlabel("execution speed r, times nominal")
    axes[0].legend(frameon=False, loc="lower left")
    drawn.supylabel("success: Wilson 95 %; else median, p10 to p90 shaded", fontsize=9)
    return drawn


def causes_figure(found: dict[str, Runs], speeds: Sequence[float]) -> Figure:
    """How episodes ended, of every embodiment at every speed."""
    drawn = Figure(figsize=(5 * len(found) + 2.5, 3.6), layout="constrained")
    causes = Counter(c for runs in found.values() for r in speeds for c in runs["cause"][runs.at(r)] if c != "success")
    order = ["success", *(cause for cause, _ in causes.most_common())]
    colours = dict(zip(order, ("#dfe2e4", *OKABE_ITO, "#222222", "#999999", "#bbbbbb"), strict=False))
    for ax, (name, runs) in zip(np.atleast_1d(drawn.subplots(1, len(found), sharey=True)), found.items(), strict=True):
        base = np.zeros(len(speeds))
        for cause in order:
            share = np.array([100 * np.mean(runs["cause"][runs.at(r)] == cause) for r in speeds])
            ax.bar(
                [f"{r:g}" for r in speeds],
                share,
                bottom=base,
                color=colours.get(cause, "#cccccc"),
                width=0.8,
                label=cause,
            )
            base += share
        ax.set(title=name, xlabel="execution speed r, times nominal", ylim=(0, 100))
        ax.spines[["top", "right"]].set_visible(False)
    first = drawn.axes[0]
    first.set_ylabel("episodes, %")
    drawn.legend(*first.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return drawn


if __name__ == "__main__":
    main(**arguments(
        sys.argv[1:], out="outputs/expert_diagnostics", data="outputs/rollouts", embodiments="g1,panda",
        episodes="100", speeds=",".join(f"{r:g}" for r in SPEEDS),
    ))  # fmt: skip
