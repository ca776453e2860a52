"""Whether agreement coefficients find what was put in, and whether Q ranks planted severities as raters would.

    python experiments/rating_agreement.py out=outputs/rating_agreement [data=DIR]

Simulated raters of a known reliability, in numbers and on a scale from 1 to 5: what ICC and Krippendorff's alpha say of
them, and how often their intervals hold the truth. Then the executions of seven tasks that were carried at 0, 5, 10, 25
and 45 degrees of tilt, and failures made of the clean ones, which stop half-way: Spearman's correlation of this planted
severity, and of simulated raters who see it with noise, with Q, overall, per task and among successes alone, in the
form of SPECTRA's Table III.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import get_args

import jax
import numpy as np
from matplotlib.figure import Figure
from oracle_data import TASKS
from record import SEED, Record, arguments, keep_compiled_code, of_share
from spectra_sensitivity import half_way, judged

from jaxeval.report.figures import FAINT, OKABE_ITO
from jaxeval.report.tables import plain_text
from jaxeval.stats.agreement import Scale, alpha_bootstrap, icc_2_1, icc_2_k, krippendorff_alpha
from jaxeval.stats.estimate import Status
from jaxeval.stats.ranking import Correlation, pooled_mean, spearman
from jaxeval.types import Episode

SOURCE = (
    "Shrout & Fleiss 1979, table 2; Krippendorff 2011, example C; SPECTRA: 'Shades of Success: Evaluating Manipulation "
    "Quality from Object-Centric Constraints', section IV-B and Table III (the form; its ratings are not public)"
)
RELIABILITIES, RATERS_SHARE = (0.3, 0.5, 0.7, 0.9), 0.2
ITEMS_N, RATERS_N, STUDIES_N, ALPHA_STUDIES_N = 30, 15, 1000, 200
SEEN = (5.0, 4.25, 3.5, 2.75, 2.0)
"""What a rater without bias or noise says of an execution at each tilt; of a failure, 1."""
BIAS, NOISE = 0.4, 0.7
"""Standard deviations of a simulated rater's severity and of each rating, in points of the scale from 1 to 5."""

JUDGES = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float)
OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
).T  # 0: nothing said

_spearman = jax.jit(jax.vmap(spearman, in_axes=(0, 0, 0)))


def main(out: str, data: str) -> None:
    """Measure everything, write `result.json` and the figures into `out`."""
    keep_compiled_code()
    record = Record("Agreement of raters, and of Q with planted severities", SOURCE, out)
    published(record)
    found = {kind: recovered(record, kind) for kind in ("numbers", "five points")}
    record.add_figure("recovered.png", recovery_figure(found))
    executions = gathered(data)
    correlations = ranked(record, executions)
    record.add_figure("severity.png", severity_figure(correlations))
    record.finish()


# ------------------------------------------------------------------------------------------------------- known answers


def published(record: Record) -> None:
    """The tables of the papers that define the coefficients."""
    for name, made, value in (("ICC(2,1)", icc_2_1, 0.29), ("ICC(2,4)", icc_2_k, 0.62)):
        r = jax.jit(made)(JUDGES)
        record.add(
            f"six targets, four judges {name}",
            float(r.value),
            interval=(float(r.low), float(r.high)),
            n=6,
            published=value,
            note="Shrout & Fleiss 1979, table 2; interval by McGraw & Wong",
        )
    for scale, value in zip(get_args(Scale), (0.743, 0.815, 0.849), strict=True):
        r = jax.jit(partial(krippendorff_alpha, scale=scale))(OBSERVERS, OBSERVERS > 0)
        record.add(
            f"four observers alpha ({scale})",
            float(r.value),
            n=int(r.items_n),
            published=value,
            note="Krippendorff 2011: twelve units, seven ratings missing; n: units with two ratings or more",
        )


@dataclass(frozen=True)
class Recovered:
    """One reliability put in: the coefficient of very many items and raters, and those of small studies."""

    reliability: float
    icc_true: float
    icc: np.ndarray
    alpha_true: float
    alpha: np.ndarray


def drawn(rng: np.random.Generator, kind: str, reliability: float, *shape: int) -> np.ndarray:
    """Ratings [..., items, raters] of which `reliability` of the variance is the items', a fixed share the raters'."""
    rest = 1 - reliability
    items = rng.normal(size=(*shape[:-1], 1)) * np.sqrt(reliability)
    raters = rng.normal(size=(*shape[:-2], 1, shape[-1])) * np.sqrt(rest * RATERS_SHARE)
    x = items + raters + rng.normal(size=shape) * np.sqrt(rest * (1 - RATERS_SHARE))
    return x if kind == "numbers" else np.clip(np.round(3 + 1.2 * x), 1, 5)


def recovered(record: Record, kind: str) -> list[Recovered]:
    """Rows of one kind of rating: mean estimate beside the truth, and coverage of the intervals."""
    out = []
    scale: Scale = "interval" if kind == "numbers" else "ordinal"
    studies = f"{ITEMS_N} items x {RATERS_N} raters"
    alpha_of = partial(alpha_bootstrap, scale=scale, resamples_n=400)
    alphas = jax.jit(lambda keys, x: jax.lax.map(lambda kx: alpha_of(*kx), (keys, x)))
    for reliability in RELIABILITIES:
        rng = np.random.default_rng(SEED)
        many = drawn(rng, kind, reliability, 3000, 200)
        icc_true = reliability if kind == "numbers" else float(jax.jit(icc_2_1)(many).value)
        alpha_true = float(jax.jit(partial(krippendorff_alpha, scale=scale))(many).value)
        x = drawn(rng, kind, reliability, STUDIES_N, ITEMS_N, RATERS_N)
        icc = jax.tree.map(np.asarray, jax.jit(jax.vmap(icc_2_1))(x))
        keys = jax.random.split(jax.random.key(SEED), ALPHA_STUDIES_N)
        alpha = jax.tree.map(np.asarray, alphas(keys, x[:ALPHA_STUDIES_N].astype(np.float32)))
        name = f"{kind}, reliability {reliability}"
        for what, r, true in (("ICC(2,1)", icc, icc_true), (f"alpha ({scale})", alpha, alpha_true)):
            n = len(r.value)
            low, high = np.quantile(r.value, [0.025, 0.975])
            beside = f"the truth is {true:.3f}"
            if kind != "numbers" or what != "ICC(2,1)":
                beside += " (of 3000 items x 200 raters drawn alike)"
            note = f"mean over {n} studies of {studies}; {beside}; interval: 95 % of the studies"
            record.add(f"{name} {what}", float(r.value.mean()), interval=(low, high), n=n, note=note)
            hits = int(((r.low <= true) & (true <= r.high)).sum())
            note = f"share of {n} studies of {studies} whose 95 % interval holds {true:.3f}; Wilson interval"
            record.add(f"{name} {what} coverage", hits / n, interval=of_share(hits, n), n=n, note=note)
        out.append(Recovered(reliability, icc_true, icc.value, alpha_true, alpha.value))
    return out


def recovery_figure(found: dict[str, list[Recovered]]) -> Figure:
    """Estimates against the reliability put in, with the range that holds 95 % of the studies."""
    figure = Figure(figsize=(8.4, 3.9), layout="constrained")
    axes = figure.subplots(1, len(found), sharex=True, sharey=True)
    for ax, (kind, made) in zip(axes, found.items(), strict=True):
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=1, zorder=0)
        scale = "interval" if kind == "numbers" else "ordinal"
        for k, (name, of) in enumerate((("ICC(2,1)", "icc"), (f"alpha ({scale})", "alpha"))):
            for r in made:
                values, x = getattr(r, of), r.reliability + (k - 0.5) * 0.03
                low, high = np.quantile(values, [0.025, 0.975])
                ax.plot([x, x], [low, high], color=OKABE_ITO[k], linewidth=2)
                ax.plot([x], [values.mean()], "o", color=OKABE_ITO[k], markersize=7, label=name)
                ax.plot([x - 0.02, x + 0.02], [getattr(r, f"{of}_true")] * 2, color="black", linewidth=1.5)
                name = "_"
        ax.plot([], [], color="black", linewidth=1.5, label="truth")
        ax.set_title(f"ratings in {kind}" if kind == "numbers" else "ratings from 1 to 5", fontsize=11)
        ax.set_xlabel("share of the variance that is the items'", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=9, loc="upper left")
    axes[0].set_ylabel("estimate: mean, 95 % of studies", fontsize=10)
    axes[0].set_xlim(0.2, 1)
    axes[0].set_ylim(0, 1)
    return figure


# --------------------------------------------------------------------------------------------------- planted severities


@dataclass(frozen=True)
class Executions:
    """The executions of all tasks, one entry each. ``seen``: how good they are, by what was planted.

    ``ratings`` [executions, raters] are simulated.
    """

    task: np.ndarray
    seen: np.ndarray
    success: np.ndarray
    metrics: dict[str, np.ndarray]
    ratings: np.ndarray


def gathered(data: str) -> Executions:
    """Judge every task's tilted executions and its planted failures, and let simulated raters see their severity."""
    rows: list[tuple[str, float, bool, float, float]] = []
    for task in TASKS:
        print(f"{task} ...", file=sys.stderr, flush=True)
        mine = judged(task, data)
        stopped = [half_way(mine.runs[i]) for i in mine.rows[0]]
        failed = mine.demonstrations.score(mine.demonstrations.padded(stopped), mine.reference)
        told = [
            (mine.runs[i], seen, bool(mine.runs[i].success_at_end), float(mine.scored.q[i]))
            for seen, row in zip(SEEN, mine.rows, strict=True)
            for i in row
        ]
        told += [(e, 1.0, False, float(q)) for e, q in zip(stopped, failed.q, strict=True)]
        rows += [(task, seen, success, q, path_m(e)) for e, seen, success, q in told]
    task, seen, success, q, path = (np.array(column) for column in zip(*rows, strict=True))
    rng = np.random.default_rng(SEED)
    bias, noise = rng.normal(0, BIAS, (1, RATERS_N)), rng.normal(0, NOISE, (len(seen), RATERS_N))
    ratings = np.clip(np.round(seen[:, None] + bias + noise), 1, 5)
    return Executions(task, seen, success, {"Q": q, "-path": -path, "success": success.astype(float)}, ratings)


def path_m(e: Episode) -> float:
    """Metres that the hand's centre went."""
    steps = np.diff(e.body("tcp")[e.valid_of("tcp"), 4:], axis=0)
    return float(np.linalg.norm(steps, axis=1).sum())


def ranked(record: Record, made: Executions) -> dict[tuple[str, str, str, str], dict[str, float]]:
    """(against, scope, task, metric) -> value, low, high, n, where it is defined; rows and printed tables of them."""
    both = {"all": np.ones(len(made.seen), bool), "successes": made.success}
    raters = (
        f"simulated raters: 5 for no tilt, 2 for 45 deg, 1 for failure; bias N(0, {BIAS}), noise N(0, {NOISE}), rounded"
    )
    key = jax.random.key(SEED)
    ordinal = jax.jit(partial(alpha_bootstrap, scale="ordinal", resamples_n=1000))
    for scope, mine in both.items():
        there = np.broadcast_to(mine[:, None], made.ratings.shape)
        for name, r, human in (
            ("ICC(2,1)", jax.jit(icc_2_1)(made.ratings, there), (0.82, 0.58)),
            ("ICC(2,k)", jax.jit(icc_2_k)(made.ratings, there), (0.99, 0.95)),
            ("alpha (ordinal)", ordinal(key, made.ratings, there), (0.76, 0.52)),
        ):
            told = f"{raters}; SPECTRA's fifteen people: {human[scope == 'successes']} on other executions"
            interval = (float(r.low), float(r.high))
            quantity = f"simulated raters, {scope} {name}"
            record.add(quantity, float(r.value), interval=interval, n=int(r.items_n), note=told)

    out: dict[tuple[str, str, str, str], dict[str, float]] = {}
    against = {"severity": made.seen, "mean rating": made.ratings.mean(axis=1)}
    for other, truth in against.items():
        for scope, mine in both.items():
            cells = [(task, m) for task in ("all tasks", *TASKS) for m in made.metrics]
            rows = [mine & ((made.task == task) | (task == "all tasks")) for task, _ in cells]
            values = np.stack([made.metrics[m] for _, m in cells])
            found: Correlation = jax.tree.map(
                np.asarray, _spearman(values, np.broadcast_to(truth, values.shape), np.stack(rows))
            )
            lines: dict[str, dict[str, str]] = {}
            for i, (task, metric) in enumerate(cells):
                value, n = float(found.value[i]), int(found.n[i])
                defined = int(found.status[i]) == Status.OK.code
                lines.setdefault(task, {"task": task})[metric] = (
                    f"{value:+.2f} ({n})" if defined else f"undefined ({n})"
                )
                if defined:
                    low, high = float(found.low[i]), float(found.high[i])
                    out[(other, scope, task, metric)] = {"value": value, "low": low, "high": high, "n": n}
            print(f"\nSpearman of each metric with {_of(other)}, {_told(scope)} (n)")
            print(plain_text(list(lines.values())))
            _add(record, other, scope, cells, found)
    return out


def _add(record: Record, other: str, scope: str, cells: list[tuple[str, str]], found: Correlation) -> None:
    """Q in every task and all of them; of each metric the mean over tasks, with what had to be left out."""
    independent = (
        "interval: Fisher's z, which takes executions to be independent, though each start was run at every tilt"
    )
    for i, (task, metric) in enumerate(cells):
        if metric != "Q" or int(found.status[i]) != Status.OK.code:
            continue
        interval = (float(found.low[i]), float(found.high[i]))
        record.add(
            f"{task} Spearman of Q and {other}, {scope}",
            float(found.value[i]),
            interval=interval,
            n=int(found.n[i]),
            note=f"{_told(scope)}; positive: higher Q where {_better(other)}; {independent}",
        )
    for metric in dict.fromkeys(m for _, m in cells):
        mine = [i for i, (task, m) in enumerate(cells) if m == metric and task != "all tasks"]
        mean = pooled_mean(found.value[mine], found.status[mine])
        left = [cells[i][0] for i in mine if int(found.status[i]) != Status.OK.code]
        record.add(
            f"tasks with Spearman of {metric} and {other} defined, {scope}",
            int(mean.used_n),
            n=len(mine),
            note=f"{_told(scope)}; "
            + (f"undefined, since {metric} does not vary: {', '.join(left)}" if left else "none is undefined"),
        )
        if int(mean.used_n):
            record.add(
                f"mean of tasks Spearman of {metric} and {other}, {scope}",
                float(mean.value),
                n=int(mean.used_n),
                note=f"{_told(scope)}; n: tasks in the mean, {int(mean.left_out_n)} undefined left out",
            )


def _of(other: str) -> str:
    return "the planted severity" if other == "severity" else "the mean of the simulated ratings"


def _better(other: str) -> str:
    return "less was planted" if other == "severity" else "the simulated ratings are higher"


def _told(scope: str) -> str:
    return "successes alone" if scope == "successes" else "all executions"


def severity_figure(found: dict[tuple[str, str, str, str], dict[str, float]]) -> Figure:
    """Spearman's correlation of Q with the planted severity and with simulated ratings, by task."""
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    names = ["all tasks", *TASKS]
    shown = {where[:3]: r for where, r in found.items() if where[3] == "Q"}
    for ax, scope in zip(axes, ("all", "successes"), strict=True):
        for k, other in enumerate(("severity", "mean rating")):
            label = f"with {_of(other)}"
            for y, task in enumerate(names):
                at = y + (k - 0.5) * 0.3
                r = shown.get((other, scope, task))
                if r is None:
                    ax.text(0.0, at, "undefined", color=FAINT, fontsize=9, va="center", ha="center")
                    continue
                ax.plot([r["low"], r["high"]], [at, at], color=OKABE_ITO[k], linewidth=2)
                ax.plot([r["value"]], [at], "o", color=OKABE_ITO[k], markersize=6, label=label, clip_on=False)
                label = "_"
        ax.axvline(0, color=FAINT, linewidth=1, zorder=0)
        ax.set_xlim(min(0.0, *(r["low"] for r in shown.values())), 1)
        ax.set_title(_told(scope), fontsize=11)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel("Spearman's correlation of Q", fontsize=10)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=10)
    return figure


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/rating_agreement", data=""))
