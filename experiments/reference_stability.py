"""Does it matter which demonstrations a reference is learned from (SPECTRA, section IV-B)?

    python experiments/reference_stability.py out=outputs/reference_stability [data=FOLDER]

Five references of each task, each from 30 demonstrations drawn at random: on which share of progress samples (relation
and progress bin) do all five pin equally many directions? The five fits are repeated, so that their own luck shows.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from bundled_task import load
from matplotlib.figure import Figure
from oracle_data import TASKS, executions
from pinned_counts import PINNED_M, spreads
from record import Interval, Record, arguments, keep_compiled_code

from jaxeval.report.figures import INK, OKABE_ITO

FITS_N, OF_FIT, REPEATS_N = 5, 30, 8
SOURCE = (
    "SPECTRA: 'Shades of Success: Evaluating Manipulation Quality from Object-Centric Constraints', stability of the "
    "reference (five fits on 30 of 200 demonstrations, seven ManiSkill tasks)"
)


@dataclass(frozen=True)
class Agreement:
    """Where fits agree: [repeats, J, L] for all five, and the mean over pairs of fits."""

    relations: tuple[str, ...]
    sub_tasks: tuple[str, ...]
    pool_n: int
    of_five: np.ndarray
    of_two: np.ndarray
    near: np.ndarray  # all five within one of each other

    def by_sub_task(self) -> np.ndarray:
        """Share on which all five agree, [J, P]."""
        share = self.of_five.mean(axis=0)
        return share.reshape(share.shape[0], len(self.sub_tasks), -1).mean(axis=-1)


def main(out: str, data: str) -> None:
    """Measure everything; write `result.json` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Stability of the reference", SOURCE, out)
    found: dict[str, Agreement] = {}
    for task in TASKS:
        print(f"{task} ...", file=sys.stderr, flush=True)
        found[task] = agreement(task, data)
    add_rows(record, found)
    record.add_figure("reference_stability.png", stability_figure(found))
    record.finish()


def agreement(task: str, data: str) -> Agreement:
    """Where five fits of a task agree, several times over."""
    demonstrations = load(task, executions("oracle", task, data))
    rng = np.random.default_rng(0)
    n = demonstrations.n
    rows = np.stack([rng.choice(n, OF_FIT, replace=False) for _ in range(REPEATS_N * FITS_N)])
    count = (spreads(demonstrations, rows, demonstrations.pairs) < PINNED_M).sum(axis=-1)
    count = count.reshape(REPEATS_N, FITS_N, *count.shape[1:])
    return Agreement(
        relations=tuple(p.name for p in demonstrations.pairs),
        sub_tasks=tuple(s.name for s in demonstrations.spec.sub_tasks),
        pool_n=n,
        of_five=(count == count[:, :1]).all(axis=1),
        of_two=np.mean([count[:, a] == count[:, b] for a, b in combinations(range(FITS_N), 2)], axis=0),
        near=np.ptp(count, axis=1) <= 1,
    )


def add_rows(record: Record, found: dict[str, Agreement]) -> None:
    """Shares of progress samples over all tasks, and of each."""
    every = list(found.values())
    pools = sorted({a.pool_n for a in every})
    pool = "-".join(str(n) for n in (pools[0], pools[-1])) if len(pools) > 1 else str(pools[0])
    drawn = f"{FITS_N} fits on {OF_FIT} random of {pool} demonstrations"
    by = f"mean over {REPEATS_N} repeats and 95 % of them"
    sample = "progress samples (relation x bin) of seven tasks"
    for name, what, told, published in (
        ("pinned count agrees", "of_five", f"share of {sample} on which {drawn} pin equally many directions", 0.90),
        ("pinned count agrees, two fits", "of_two", f"the same for two of the {drawn}", None),
        ("pinned count agrees within one", "near", f"the same, all {FITS_N} within one of each other", None),
    ):
        share = np.concatenate([flat(getattr(a, what)) for a in every], axis=1)
        shared = OF_FIT * OF_FIT / np.mean([a.pool_n for a in every])
        note = f"{told}; two fits share {shared:.0f} of their {OF_FIT} on average (published: 4 to 5, of 200); {by}"
        add(record, name, share, published=published, note=note)
    for task, a in found.items():
        by_relation = ", ".join(f"{r} {s:.2f}" for r, s in zip(a.relations, a.of_five.mean(axis=(0, 2)), strict=True))
        note = f"{FITS_N} fits on {OF_FIT} random of {a.pool_n}; by relation {by_relation}; {by}"
        add(record, f"{task} pinned count agrees", flat(a.of_five), note=note)
        note = f"two of the {FITS_N} fits; {by}"
        add(record, f"{task} pinned count agrees, two fits", flat(a.of_two), note=note)


def flat(share: np.ndarray) -> np.ndarray:
    """[repeats, samples]."""
    return share.reshape(len(share), -1)


def add(record: Record, name: str, share: np.ndarray, *, note: str, published: float | None = None) -> None:
    """Mean over repeats and samples, with the spread of the repeats as its interval."""
    of_repeat = share.mean(axis=1)
    low, high = np.quantile(of_repeat, [0.025, 0.975])
    interval: Interval = float(min(low, of_repeat.mean())), float(max(high, of_repeat.mean()))
    record.add(name, of_repeat.mean(), interval=interval, n=share.shape[1], published=published, note=note)


def stability_figure(found: dict[str, Agreement]) -> Figure:
    """Left: the share of each task. Right: the same by relation and sub-task, a map for each task."""
    figure = Figure(figsize=(14.0, 13.0), layout="constrained")
    axes = figure.subplots(4, 2).ravel()
    mesh = None
    for ax, (task, a) in zip(axes, found.items(), strict=False):
        share = a.by_sub_task()
        mesh = ax.pcolormesh(share, cmap="cividis", vmin=0, vmax=1, edgecolor="white", linewidth=2)
        for (y, x), value in np.ndenumerate(share):
            colour = INK if value > 0.55 else "white"
            ax.text(x + 0.5, y + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=10.5, color=colour)
        ax.set_xticks(np.arange(len(a.sub_tasks)) + 0.5, a.sub_tasks, fontsize=11)
        ax.set_yticks(np.arange(len(a.relations)) + 0.5, a.relations, fontsize=11)
        ax.invert_yaxis()
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        name = f"{task.replace('_', ' ')}: {a.of_five.mean():.2f}"
        ax.set_title(name, loc="left", fontsize=13, fontweight="bold", color=INK)
    bars = axes[len(found)]
    names = [task.replace("_", " ") for task in found]
    for look, values, label in (
        ({"color": OKABE_ITO[4]}, [a.of_two.mean() for a in found.values()], "two fits agree"),
        ({"color": OKABE_ITO[0]}, [a.of_five.mean() for a in found.values()], "all five agree"),
    ):
        thick = 0.75 if label.startswith("two") else 0.4
        bars.barh(np.arange(len(names)), values, height=thick, label=label, **look)
    bars.axvline(0.9, color=OKABE_ITO[5], linestyle="--", label="published, all five")
    bars.set_yticks(np.arange(len(names)), names, fontsize=11)
    bars.set_xlim(0, 1)
    bars.invert_yaxis()
    bars.spines[["top", "right"]].set_visible(False)
    bars.set_xlabel("share of progress samples with the same pinned count", fontsize=11)
    bars.legend(fontsize=10, loc="upper center", bbox_to_anchor=(0.4, 1.16), ncols=3, frameon=False)
    assert mesh is not None
    bar = figure.colorbar(mesh, ax=list(axes), location="bottom", shrink=0.5, aspect=50, pad=0.01)
    bar.set_label("share of a sub-task's bins and of the repeats on which all five fits pin equally many", fontsize=11)
    return figure


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/reference_stability", data=""))
