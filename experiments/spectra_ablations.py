"""One setting at a time (SPECTRA, Table IV) on the bundled StackCube executions.

    python experiments/spectra_ablations.py out=outputs/spectra_ablations

Learned from the first 30 successful demonstrations unless K says otherwise; clean Q is the mean over the ten
unperturbed executions, the drop is that minus the mean over the same ten carried with 45 degrees of tilt. Sets of
demonstrations share one vmapped fit, thresholds one vmapped score: only what changes a shape or a formula is compiled
again (M, penalty, weighting, deviation, calibration).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from bundled_task import Demonstrations, load, pick, quick_jit, score
from matplotlib.figure import Figure
from record import RESAMPLES_N, SEED, Interval, Record, arguments, keep_compiled_code, of_mean

from jaxeval.align import Alignment
from jaxeval.io import bundled
from jaxeval.metrics.geometric import GeometricParams, constraints
from jaxeval.report.figures import OKABE_ITO
from jaxeval.types import EpisodeBatch, Reference

DEFAULT_K, DEFAULT_M = 30, 10
KS, SETS_N = (5, 10, 15, 20), 8
MS = (1, 2, 5, 20)
FITS_N, OF_FIT = 5, 20  # the constraint count, over five fits from 20 of 39 demonstrations each
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
    ("z_0=calibrated", GeometricParams(calibrated=True)),
)
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
    "as the text beside it gives numbers (means over seven ManiSkill tasks); StackCube alone here"
)


@dataclass(frozen=True)
class Outcome:
    """Q of the paired executions under one setting: [S, seeds], S sets of demonstrations (1 for most settings)."""

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


@dataclass(frozen=True)
class Runs:
    """The clean and the 45-degree executions in one batch, in the same order of seeds."""

    batch: EpisodeBatch
    n: int

    def outcome(self, q: jax.Array, free: jax.Array) -> Outcome:
        """Split Q and gate-free Q ([rows] or [S, rows])."""
        q2, free2 = np.atleast_2d(np.asarray(q, float)), np.atleast_2d(np.asarray(free, float))
        clean, tilted = slice(0, self.n), slice(self.n, 2 * self.n)
        return Outcome(q2[:, clean], q2[:, tilted], free2[:, clean], free2[:, tilted])


def main(out: str) -> None:
    """Measure every setting, write `result.json` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Ablations of geometric quality on StackCube", SOURCE, out)
    demonstrations = load("stack_cube")
    runs = paired_runs(demonstrations)

    said("demonstration sets")
    masks, settings = demonstration_sets(demonstrations)
    learned = demonstrations.learn(masks)
    each = [demonstrations.align(runs.batch, duration_s) for duration_s in learned.duration_s]
    aligned = jax.tree.map(lambda *x: jnp.stack(x), *each)
    q, free = score_references(runs.batch, aligned, learned, bodies=demonstrations.bodies)
    outcomes = {name: runs.outcome(q[rows], free[rows]) for name, rows in settings.items()}
    default = pick(learned, 0)

    said("thresholds")
    stacked = jax.tree.map(lambda *x: jnp.asarray(x), *(params.check() for _, params in THRESHOLDS))
    q, free = score_thresholds(runs.batch, each[0], default, stacked, bodies=demonstrations.bodies)
    outcomes |= {name: runs.outcome(q[i], free[i]) for i, (name, _) in enumerate(THRESHOLDS)}

    said("formulas")
    for name, formula in FORMULAS:
        scored = demonstrations.score(runs.batch, default, formula.check())
        outcomes[name] = runs.outcome(scored.q, scored.gate_free)
    first = masks[:1]
    scored = demonstrations.score(runs.batch, pick(demonstrations.learn(first, deviation="decoupled"), 0))
    outcomes["deviation=decoupled"] = runs.outcome(scored.q, scored.gate_free)

    for m in MS:
        said(f"M = {m}")
        coarser = load("stack_cube", bins_n=m)
        scored = coarser.score(runs.batch, pick(coarser.learn(first), 0))
        outcomes[f"M={m}"] = runs.outcome(scored.q, scored.gate_free)

    for name in in_order(outcomes):
        add_rows(record, name, outcomes[name], outcomes["default"])
    stability(record, demonstrations, learned, settings["constraint count"])
    record.add_figure("ablations.png", ablation_figure(outcomes))
    record.finish()


def said(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def paired_runs(demonstrations: Demonstrations) -> Runs:
    """Clean and 45-degree executions of the same seeds."""
    found = {(e.group, e.seed): e for e in bundled("stack_cube_tilt").iter_episodes()}
    seeds = sorted({seed for _, seed in found if seed is not None})
    ordered = [found[f"tilt {tilt} deg", seed] for tilt in (0, 45) for seed in seeds]
    return Runs(demonstrations.padded(ordered), len(seeds))


def demonstration_sets(demonstrations: Demonstrations) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Masks of every set of demonstrations that is tried, the default's first, and which rows belong to what."""
    masks: list[np.ndarray] = [demonstrations.first(DEFAULT_K)[None]]
    rows: dict[str, np.ndarray] = {}

    def take(name: str, more: np.ndarray) -> None:
        start = sum(len(m) for m in masks)
        rows[name] = np.arange(start, start + len(more))
        masks.append(more)

    for k in KS:
        take(f"K={k}", demonstrations.random(k, SETS_N, pool=DEFAULT_K, seed=k))
        take(f"K={k} (the first {k})", demonstrations.first(k)[None])
    take("constraint count", demonstrations.random(OF_FIT, FITS_N, seed=0))
    return np.concatenate(masks), rows


@partial(quick_jit, static_argnames="bodies")
def score_references(
    batch: EpisodeBatch, aligned: Alignment, references: Reference, *, bodies: tuple[str, ...]
) -> tuple[jax.Array, jax.Array]:
    """(Q, gate-free Q) [S, rows] against stacked references, each with its own alignment, one after the other."""

    def one(x: tuple[Alignment, Reference]) -> tuple[jax.Array, jax.Array]:
        scored = score(batch, *x, GeometricParams(), bodies=bodies)
        return scored.q, scored.gate_free

    return jax.lax.map(one, (aligned, references))


@partial(quick_jit, static_argnames="bodies")
def score_thresholds(
    batch: EpisodeBatch, aligned: Alignment, reference: Reference, params: GeometricParams, *, bodies: tuple[str, ...]
) -> tuple[jax.Array, jax.Array]:
    """(Q, gate-free Q) [settings, rows]: a vmap over the float parameters, which all have a leading axis."""

    def one(mine: GeometricParams) -> tuple[jax.Array, jax.Array]:
        scored = score(batch, aligned, reference, mine, bodies=bodies)
        return scored.q, scored.gate_free

    return jax.vmap(one)(params)


# --------------------------------------------------------------------------------------------------------------- rows


def in_order(outcomes: dict[str, Outcome]) -> list[str]:
    """The default, then K, M, sigma_pin, sigma_0 and the formulas, as they are listed above."""
    k = [name for name in outcomes if name.startswith("K=")]
    m = [f"M={m}" for m in MS]
    rest = [name for name, _ in THRESHOLDS[1:]] + [name for name, _ in FORMULAS] + ["deviation=decoupled"]
    return ["default", *k, *m, *rest]


def add_rows(record: Record, name: str, outcome: Outcome, default: Outcome) -> None:
    """Clean Q and drop of one setting; where a gate closed, the same without gates."""
    clean_at, drop_at, clean_goes, drop_goes = PUBLISHED.get(name, (None, None, None, None))
    sets_n, n = outcome.clean.shape
    remarks = []
    if sets_n > 1:
        remarks.append(f"mean over {sets_n} random sets of demonstrations from the first {DEFAULT_K}, fixed seed")
    if name in ("sigma_pin=2 mm", "sigma_pin=3 mm"):
        remarks.append(FLOOR_FOLLOWS)
    closed = outcome.closed_n
    if any(closed):
        of = sets_n * n
        remarks.append(f"gate closed on {closed[0]} of {of} clean and {closed[1]} of {of} tilted")
    for quantity, values, published, goes, base in (
        (f"stack_cube clean Q, {name}", outcome.clean, clean_at, clean_goes, default.clean),
        (f"stack_cube drop at 45 deg, {name}", outcome.drop, drop_at, drop_goes, default.drop),
    ):
        told = direction(float(values.mean()), float(base.mean()), goes, name)
        note = "; ".join([*remarks, told])
        record.add(quantity, values.mean(), interval=interval(values), n=n, published=published, note=note)
    if any(closed):
        note = f"without the terminal gate; default {default.clean_free.mean():.3f} and {default.drop_free.mean():.3f}"
        for quantity, values in (
            (f"stack_cube clean Q, {name}, gate-free", outcome.clean_free),
            (f"stack_cube drop at 45 deg, {name}, gate-free", outcome.drop_free),
        ):
            record.add(quantity, values.mean(), interval=interval(values), n=n, note=note)


def direction(ours: float, default: float, published: str | None, name: str) -> str:
    """How a number moved from the default's, and whether the paper's moved that way."""
    if name == "default":
        settings = "sigma_pin=4 mm, sigma_0=3 mm, z_0=1.5, hinge, frames"
        return f"K={DEFAULT_K}, M={DEFAULT_M}, {settings}; published: mean of seven tasks"
    change = ours - default
    moved = f"{change:+.3f} against the default"
    if published is None:
        return f"{moved}; no published number"
    held = abs(change) < SAME if published == "same" else (change < 0) == (published == "lower")
    return f"{moved}; published: {published}: {'holds' if held else 'does not hold'}"


def interval(values: np.ndarray) -> Interval:
    """95 % percentile bootstrap of the mean over executions, and over sets of demonstrations if there are several."""
    sets_n, n = values.shape
    if sets_n == 1:
        return of_mean(values[0])
    rng = np.random.default_rng(SEED)
    sets, runs = rng.integers(0, sets_n, (RESAMPLES_N, sets_n)), rng.integers(0, n, (RESAMPLES_N, n))
    low, high = np.quantile(values[sets[:, :, None], runs[:, None, :]].mean(axis=(1, 2)), [0.025, 0.975])
    return float(low), float(high)


def stability(record: Record, demonstrations: Demonstrations, learned: Reference, rows: np.ndarray) -> None:
    """How often the number of pinned directions is the same whichever demonstrations are drawn."""
    mine = jax.tree.map(lambda x: x[rows], learned)
    found = quick_jit(jax.vmap(lambda r: jnp.sum(constraints(r, GeometricParams()).pinned, axis=-1)))(mine)
    count = np.asarray(found)  # [fits, J, L]
    agrees = (count == count[:1]).all(axis=0)
    near = (count.max(axis=0) - count.min(axis=0) <= 1).mean()
    by_pair = ", ".join(f"{p.name} {a.mean():.2f}" for p, a in zip(demonstrations.pairs, agrees, strict=True))
    record.add(
        "stack_cube constraint count agrees",
        agrees.mean(),
        n=agrees.size,
        published=0.90,
        note=f"share of relations and progress bins on which {FITS_N} fits, each on {OF_FIT} of {demonstrations.n} "
        f"demonstrations drawn at random, pin equally many directions (published: on 30 of 200, seven tasks); "
        f"by relation {by_pair}; within one of each other on {near:.2f}; no interval: bins are not independent",
    )


# ------------------------------------------------------------------------------------------------------------- figure


def ablation_figure(outcomes: dict[str, Outcome]) -> Figure:
    """Clean Q and drop at 45 degrees over K, M, sigma_pin and sigma_0; published means as hollow marks."""
    panels = (
        ("K, demonstrations", [*(f"K={k}" for k in KS), "default"], [*map(str, KS), str(DEFAULT_K)]),
        ("M, progress bins a sub-task", ["M=1", "M=2", "M=5", "default", "M=20"], ["1", "2", "5", "10", "20"]),
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
        ("clean Q", OKABE_ITO[0], "o", "-", 0, lambda o: o.clean.mean()),
        ("drop at 45 deg", OKABE_ITO[5], "s", "--", 1, lambda o: o.drop.mean()),
    )
    for ax, (title, names, ticks) in zip(axes, panels, strict=True):
        x = np.arange(len(names))
        ax.axvspan(names.index("default") - 0.3, names.index("default") + 0.3, color="#eeeeee", zorder=0)
        for label, colour, marker, line, which, value in looks:
            ours = [value(outcomes[name]) for name in names]
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
        "grey: default. Published: means of seven tasks, ours: StackCube. * with the floor at 0.75 of the threshold.",
        fontsize=9.5,
    )
    return figure


if __name__ == "__main__":
    main(arguments(sys.argv[1:], out="outputs/spectra_ablations")["out"])
