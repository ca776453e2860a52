"""One setting at a time (SPECTRA, Table IV) on seven ManiSkill tasks.

    python experiments/spectra_ablations.py out=outputs/spectra_ablations [data=DIR]

Learned from the first 30 demonstrations that count unless K says otherwise; clean Q is the mean over the ten
unperturbed executions, the drop is that minus the mean over the same ten carried at 45 degrees of tilt. Means over the
tasks stand beside the published ones. `fitted` gives the reference (or references) of every setting of a task.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from bundled_task import DEMONSTRATIONS_N, Batch, Demonstrations, load, pick, quick_jit
from matplotlib.figure import Figure
from oracle_data import TASKS, executions
from record import RESAMPLES_N, SEED, Record, arguments, keep_compiled_code

from jaxeval.metrics.geometric import GeometricParams, admissible_radius
from jaxeval.report.figures import OKABE_ITO
from jaxeval.types import Reference

DEFAULT_K, DEFAULT_M = DEMONSTRATIONS_N, 10
KS, SETS_N = (5, 10, 20), 3
MS = (1, 2, 5)
THRESHOLDS = (
    ("default", GeometricParams()),
    ("sigma_pin=2 mm", GeometricParams(sigma_pin_m=0.002, sigma_0_m=0.0015)),
    ("sigma_pin=3 mm", GeometricParams(sigma_pin_m=0.003, sigma_0_m=0.00225)),
    ("sigma_pin=6 mm", GeometricParams(sigma_pin_m=0.006)),
    ("sigma_pin=9 mm", GeometricParams(sigma_pin_m=0.009)),
    ("sigma_pin=infinite", GeometricParams(sigma_pin_m=np.inf)),
    ("sigma_0=1 mm", GeometricParams(sigma_0_m=0.001)),
    ("sigma_0=2 mm", GeometricParams(sigma_0_m=0.002)),
    ("sigma_0=3.5 mm", GeometricParams(sigma_0_m=0.0035)),
)
FLOOR_FOLLOWS = "the floor must lie below the threshold and is lowered with it (0.75 of it, as by default)"
FORMULAS = (
    ("penalty=squared", GeometricParams(penalty="squared")),
    ("penalty=saturating", GeometricParams(penalty="saturating")),
    ("weighting=progress", GeometricParams(weighting="progress")),
)
CALIBRATED, DECOUPLED = "z_0=calibrated", "deviation=decoupled"
# name -> (clean Q, drop at 45 deg) and how each compares with the default there; None: not stated in the text
PUBLISHED: dict[str, tuple[float | None, float | None, str | None, str | None]] = {
    "default": (0.99, 0.294, None, None),
    "K=5": (0.91, None, "lower", "higher"),
    "M=1": (0.91, 0.135, "lower", "lower"),
    "sigma_pin=9 mm": (0.99, None, "same", "same"),
    "sigma_pin=infinite": (0.99, 0.239, "same", "lower"),
    "sigma_0=1 mm": (None, 0.569, None, "higher"),
    "sigma_0=3.5 mm": (None, 0.255, None, "lower"),
}
SAME = 0.03
"""Differences below this count as "the same" where the paper says that little changes."""
SOURCE = (
    "SPECTRA: 'Shades of Success: Evaluating Manipulation Quality from Object-Centric Constraints', Table IV, as far "
    "as the text beside it gives numbers (means over seven ManiSkill tasks)"
)


@dataclass(frozen=True)
class Outcome:
    """Q of the paired executions of one task under one setting: [S, starts], S sets of demonstrations (mostly 1)."""

    clean: np.ndarray
    tilted: np.ndarray
    clean_free: np.ndarray  # without the terminal gate
    tilted_free: np.ndarray

    @property
    def drop(self) -> np.ndarray:
        return self.clean - self.tilted

    @property
    def drop_free(self) -> np.ndarray:
        return self.clean_free - self.tilted_free

    @property
    def closed_n(self) -> tuple[int, int]:
        """Clean and tilted executions on which the gate closed."""
        return int((self.clean == 0).sum()), int((self.tilted == 0).sum())


Outcomes = dict[str, list[Outcome]]
"""Setting -> one outcome for each task, in the order of TASKS."""


def main(out: str, data: str) -> None:
    """Measure every setting, write `result.json` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Ablations of geometric quality", SOURCE, out)
    outcomes: Outcomes = {}
    for task in TASKS:
        print(f"{task} ...", file=sys.stderr, flush=True)
        demonstrations = load(task, executions("oracle", task, data))
        runs, n = paired_runs(demonstrations, task, data)
        for name, references, params in fitted(demonstrations):
            outcomes.setdefault(name, []).append(outcome(demonstrations, runs, n, references, params))
    for name, of_tasks in outcomes.items():
        add_rows(record, "all tasks", name, of_tasks, outcomes["default"])
    for i, task in enumerate(TASKS):
        for name, of_tasks in outcomes.items():
            add_rows(record, task, name, [of_tasks[i]], [outcomes["default"][i]])
    record.add_figure("ablations.png", ablation_figure(outcomes))
    record.finish()


def fitted(demonstrations: Demonstrations) -> Iterator[tuple[str, Reference, GeometricParams]]:
    """Every setting of a task: its name, its references stacked along a leading axis, and how they are to be used.

    The default first, then K, M, sigma_pin, sigma_0 and the formulas. For each K several sets are drawn, from the
    default's demonstrations. With fewer bins than ten, each bin of the reference stands in the place of those it
    covers (`Demonstrations.learn`), so that all references have the same shape.
    """
    base = demonstrations.first(DEFAULT_K)[None]
    sets = [demonstrations.random(k, SETS_N, pool=DEFAULT_K, seed=k) for k in KS]
    learned = demonstrations.learn(np.concatenate([base, *sets]))
    default = pick(learned, slice(0, 1))
    yield "default", default, GeometricParams()
    for i, k in enumerate(KS):
        yield f"K={k}", pick(learned, slice(1 + i * SETS_N, 1 + (i + 1) * SETS_N)), GeometricParams()
    for m in MS:
        yield f"M={m}", demonstrations.learn(base, merged=DEFAULT_M // m), GeometricParams()
    for name, params in (*THRESHOLDS[1:], *FORMULAS):
        yield name, default, params
    z_0 = float(_calibrated(pick(default, 0)))
    yield CALIBRATED, default, GeometricParams(z_0=z_0)
    yield DECOUPLED, demonstrations.learn(base, deviation="decoupled"), GeometricParams()


_calibrated = quick_jit(lambda reference: admissible_radius(reference, GeometricParams(calibrated=True)))


def paired_runs(demonstrations: Demonstrations, task: str, data: str) -> tuple[Batch, int]:
    """The clean executions, then those at 45 degrees in the same order of starts, and how many starts there are."""
    found = {(e.group, e.seed): e for e in executions("oracle_tilt", task, data)}
    at = [{int(seed or 0) for group, seed in found if group == f"tilt {tilt} deg"} for tilt in (0, 45)]
    seeds = sorted(at[0] & at[1])
    runs = [found[f"tilt {tilt} deg", seed] for tilt in (0, 45) for seed in seeds]
    return demonstrations.padded(runs), len(seeds)


def outcome(
    demonstrations: Demonstrations, runs: Batch, n: int, references: Reference, params: GeometricParams
) -> Outcome:
    """Q of the clean and of the tilted executions against each of the stacked references."""
    scored = [demonstrations.score(runs, pick(references, s), params) for s in range(len(references.demo_valid))]
    q, free = (np.array([getattr(x, name) for x in scored], float) for name in ("q", "gate_free"))
    return Outcome(q[:, :n], q[:, n:], free[:, :n], free[:, n:])


# --------------------------------------------------------------------------------------------------------------- rows


def add_rows(record: Record, of: str, name: str, mine: list[Outcome], default: list[Outcome]) -> None:
    """Clean Q and drop of one setting, of one task or of all; where a gate closed, the same without gates."""
    clean_at, drop_at, clean_goes, drop_goes = PUBLISHED.get(name, (None, None, None, None))
    sets_n, n = len(mine[0].clean), sum(o.clean.shape[1] for o in mine)
    remarks = []
    if sets_n > 1:
        remarks.append(f"mean over {sets_n} random sets of demonstrations from the first {DEFAULT_K}, fixed seed")
    if name in ("sigma_pin=2 mm", "sigma_pin=3 mm"):
        remarks.append(FLOOR_FOLLOWS)
    closed = np.array([o.closed_n for o in mine]).sum(axis=0)
    if closed.any():
        remarks.append(f"gate closed on {closed[0]} of {sets_n * n} clean and {closed[1]} of {sets_n * n} tilted")
    for quantity, which, published, goes in (
        ("clean Q", "clean", clean_at, clean_goes),
        ("drop at 45 deg", "drop", drop_at, drop_goes),
    ):
        ours, base = mean(mine, which), mean(default, which)
        note = "; ".join([*remarks, direction(ours, base, goes, name)])
        note += "; published: mean of seven tasks" if published is not None and of != "all tasks" else ""
        at = {"interval": interval(mine, which), "n": n, "published": published}
        record.add(f"{of} {quantity}, {name}", ours, **at, note=note)
    if closed.any():
        note = f"without the terminal gate; default {mean(default, 'clean_free'):.3f}, {mean(default, 'drop_free'):.3f}"
        for quantity, which in (("clean Q", "clean_free"), ("drop at 45 deg", "drop_free")):
            at = {"interval": interval(mine, which), "n": n}
            record.add(f"{of} {quantity}, {name}, gate-free", mean(mine, which), **at, note=note)


def direction(ours: float, default: float, published: str | None, name: str) -> str:
    """How a number moved from the default's, and whether the paper's moved that way."""
    if name == "default":
        return f"K={DEFAULT_K}, M={DEFAULT_M}, sigma_pin=4 mm, sigma_0=3 mm, z_0=1.5, hinge, frames"
    change = ours - default
    moved = f"{change:+.3f} against the default"
    if published is None:
        return f"{moved}; no published number"
    held = abs(change) < SAME if published == "same" else (change < 0) == (published == "lower")
    return f"{moved}; published: {published}: {'holds' if held else 'does not hold'}"


def mean(of_tasks: list[Outcome], which: str) -> float:
    """Mean over tasks of each task's mean over its executions and sets of demonstrations."""
    return float(np.mean([getattr(o, which).mean() for o in of_tasks]))


def interval(of_tasks: list[Outcome], which: str) -> tuple[float, float]:
    """95 % percentile bootstrap over executions, and over sets of demonstrations if there are several, in each task."""
    rng = np.random.default_rng(SEED)
    drawn = np.zeros(RESAMPLES_N)
    for o in of_tasks:
        values = getattr(o, which)
        sets_n, n = values.shape
        sets, runs = rng.integers(0, sets_n, (RESAMPLES_N, sets_n)), rng.integers(0, n, (RESAMPLES_N, n))
        drawn += values[sets[:, :, None], runs[:, None, :]].mean(axis=(1, 2)) / len(of_tasks)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


# ------------------------------------------------------------------------------------------------------------- figure


def ablation_figure(outcomes: Outcomes) -> Figure:
    """Means over the tasks of clean Q and drop, over K, M, sigma_pin and sigma_0; published ones as hollow marks."""
    panels = (
        ("K, demonstrations", [*(f"K={k}" for k in KS), "default"], [*map(str, KS), str(DEFAULT_K)]),
        ("M, progress bins a sub-task", ["M=1", "M=2", "M=5", "default"], ["1", "2", "5", "10"]),
        (
            "pinning threshold, mm",
            ["sigma_pin=2 mm", "sigma_pin=3 mm", "default", "sigma_pin=6 mm", "sigma_pin=9 mm", "sigma_pin=infinite"],
            ["2*", "3*", "4", "6", "9", "∞"],
        ),
        (
            "floor of the spread, mm",
            ["sigma_0=1 mm", "sigma_0=2 mm", "default", "sigma_0=3.5 mm"],
            ["1", "2", "3", "3.5"],
        ),
    )
    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    axes = figure.subplots(2, 2, sharey=True).ravel()
    looks = (
        ("clean Q", OKABE_ITO[0], "o", "-", 0, "clean"),
        ("drop at 45 deg", OKABE_ITO[5], "s", "--", 1, "drop"),
    )
    for ax, (title, names, ticks) in zip(axes, panels, strict=True):
        x = np.arange(len(names))
        ax.axvspan(names.index("default") - 0.3, names.index("default") + 0.3, color="#eeeeee", zorder=0)
        for label, colour, marker, line, which, value in looks:
            ours = [mean(outcomes[name], value) for name in names]
            for task_values in np.array([[getattr(o, value).mean() for o in outcomes[name]] for name in names]).T:
                ax.plot(x, task_values, line, color=colour, linewidth=0.7, alpha=0.35, zorder=1)
            ax.plot(x, ours, line, color=colour, marker=marker, markersize=7, linewidth=2, label=label, zorder=3)
            theirs = [
                (i, p) for i, name in enumerate(names) if (p := PUBLISHED.get(name, (None,) * 4)[which]) is not None
            ]
            ax.plot(
                *np.array(theirs, float).reshape(-1, 2).T, linestyle="", marker=marker, markersize=13, zorder=2,
                markerfacecolor="none", markeredgecolor=colour, markeredgewidth=1.6, label=f"{label}, published",
            )  # fmt: skip
        ax.set_xticks(x, ticks)
        ax.set_xlabel(title, fontsize=11)
        ax.set_ylim(0, 1.06)
        ax.grid(axis="y", color="#e4e4e4")
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=10)
    figure.supxlabel(
        "means of seven tasks, ours and published; thin: each task; grey: default; * floor at 0.75 of the threshold",
        fontsize=9.5,
    )
    return figure


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/spectra_ablations", data=""))
