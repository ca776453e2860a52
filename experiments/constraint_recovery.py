"""Are the right directions found constrained (SPECTRA, section IV-B)? Fitted counts against a truth written beforehand.

    python experiments/constraint_recovery.py out=outputs/constraint_recovery [data=FOLDER]

A reference is learned from 30 demonstrations of each task. For every sub-task and every relation between objects (not
the gripper's) two counts of pinned directions are compared with `constraint_truth.yaml`: the smallest over the
sub-task's bins (throughout) and the last bin's (at the end). Every miss is printed and written to `misses.csv`, with
the spreads of the directions in question and, from `constraint_misses.yaml`, why we think that it differs.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from bundled_task import Demonstrations, load
from matplotlib.figure import Figure
from oracle_data import TASKS, executions
from pinned_counts import PINNED_M, spreads
from record import Interval, Record, arguments, keep_compiled_code

from jaxeval.report.figures import FAINT, INK, OKABE_ITO
from jaxeval.types import Pair

HERE = Path(__file__).parent
TRUTH, EXPLAINED = HERE / "constraint_truth.yaml", HERE / "constraint_misses.yaml"
KINDS = ("throughout", "end")
OBJECTS = ("m_r", "m_s", "r_s")
"""Roles of the relations that have a truth: all but the gripper's."""
DEMONSTRATIONS_N, DRAWS_N = 30, 40
FEW_N, FEW_DRAWS_N = 5, 40
SOURCE = (
    "SPECTRA: 'Shades of Success: Evaluating Manipulation Quality from Object-Centric Constraints', constraint "
    "recovery (166 of 176 checks on seven ManiSkill tasks, with its own truth of its own scripts)"
)
COLUMNS = (
    "task", "sub_task", "relation", "kind", "truth", "ours", "bin", "spreads_in_question_mm", "reason_of_truth",
    "why_it_differs",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One relation in one sub-task: what the truth says, and why."""

    task: str
    sub_task: str
    relation: str
    counts: tuple[int, int]  # throughout, at the end
    because: str


@dataclass(frozen=True)
class Fitted:
    """What the fits of a task say: counts [fits, cases, kinds]; spreads [cases, M, 6] of the first fit."""

    cases: tuple[Case, ...]
    ours: np.ndarray  # the reference of the first 30
    drawn: np.ndarray  # the same demonstrations, resampled
    few: np.ndarray  # five of them
    at: dict[float, np.ndarray]  # the first 30 under other thresholds: counts [cases, kinds]
    at_drawn: dict[float, np.ndarray]
    spreads_m: np.ndarray


def main(out: str, data: str) -> None:
    """Measure everything; write `result.json`, `misses.csv` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Constraint recovery", SOURCE, out)
    truth = yaml.safe_load(TRUTH.read_text())
    explained = yaml.safe_load(EXPLAINED.read_text())
    if set(truth) != set(TASKS):
        raise SystemExit(f"{TRUTH.name}: tasks {', '.join(truth)}; expected {', '.join(TASKS)}")
    fitted: dict[str, Fitted] = {}
    for task in TASKS:
        print(f"{task} ...", file=sys.stderr, flush=True)
        demonstrations = load(task, executions("oracle", task, data))
        fitted[task] = fit(demonstrations, cases(task, truth[task], demonstrations))
    add_rows(record, fitted)
    missed = misses(fitted, explained)
    with (record.out / "misses.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([COLUMNS, *missed])
    for row in missed:
        task, sub_task, relation, kind, true, ours, *rest = row
        print(f"missed: {task}, {sub_task}, {relation}, {kind}: truth {true}, ours {ours} | " + " | ".join(rest))
    record.add_figure("constraint_recovery.png", recovery_figure(fitted))
    record.finish()


def cases(task: str, told: dict[str, Any], demonstrations: Demonstrations) -> tuple[Case, ...]:
    """Cases of a task in the spec's order; SystemExit where the file has others than the spec."""
    pairs = object_pairs(demonstrations)
    expected = {(s.name, p.name) for s in demonstrations.spec.sub_tasks for p in pairs}
    given = {(sub_task, relation) for sub_task, relations in told.items() for relation in relations}
    if expected != given:
        odd = ", ".join(f"{s}: {r}" for s, r in sorted(expected ^ given))
        raise SystemExit(f"{TRUTH.name}, {task}: cases differ from those of the task spec ({odd})")
    found = []
    for s in demonstrations.spec.sub_tasks:
        for p in pairs:
            one = told[s.name][p.name]
            counts = (int(one["throughout"]), int(one["end"]))
            found.append(Case(task, s.name, p.name, counts, str(one["because"])))
    return tuple(found)


def object_pairs(demonstrations: Demonstrations) -> tuple[Pair, ...]:
    """The relations between objects, in the reference's order."""
    return tuple(p for p in demonstrations.pairs if p.role in OBJECTS)


def fit(demonstrations: Demonstrations, of: tuple[Case, ...]) -> Fitted:
    """Counts of the reference of the first 30 demonstrations, of resampled ones, and of five at a time."""
    rng = np.random.default_rng(0)
    pairs, n = object_pairs(demonstrations), DEMONSTRATIONS_N
    again = rng.integers(0, n, (DRAWS_N, n))
    few = np.stack([rng.permutation(n) for _ in range(FEW_DRAWS_N)])
    rows = np.concatenate([np.arange(n)[None], again, few])
    used = np.ones(rows.shape, bool)
    used[1 + DRAWS_N :, FEW_N:] = False
    found = spreads(demonstrations, rows, pairs, used)
    thirty, five = found[: 1 + DRAWS_N], found[1 + DRAWS_N :]
    P, M = len(demonstrations.spec.sub_tasks), demonstrations.bins_n

    def counted(found: np.ndarray, pin_m: float) -> np.ndarray:
        """[fits, cases, kinds]."""
        count = (found < pin_m).sum(axis=-1).reshape(len(found), len(pairs), P, M).swapaxes(1, 2)
        return np.stack([count.min(axis=-1), count[..., -1]], axis=-1).reshape(len(found), P * len(pairs), 2)

    by_pin = {pin: counted(thirty, pin) for pin in (PINNED_M, 0.009, np.inf)}
    return Fitted(
        cases=of,
        ours=by_pin[PINNED_M][0],
        drawn=by_pin[PINNED_M][1:],
        few=counted(five, PINNED_M),
        at={pin: c[0] for pin, c in by_pin.items()},
        at_drawn={pin: c[1:] for pin, c in by_pin.items()},
        spreads_m=thirty[0].reshape(len(pairs), P, M, 6).swapaxes(0, 1).reshape(P * len(pairs), M, 6),
    )


# --------------------------------------------------------------------------------------------------------------- rows


def add_rows(record: Record, fitted: dict[str, Fitted]) -> None:
    """Shares of checks in which the count is the truth's."""
    every = list(fitted.values())
    true = np.concatenate([truths(f) for f in every])
    hits = np.concatenate([f.ours for f in every]) == true
    drawn = np.concatenate([f.drawn for f in every], axis=1) == true
    by = f"95 %: the {DEMONSTRATIONS_N} demonstrations resampled {DRAWS_N} times, widened to hold ours"
    note = f"relations between objects in every sub-task of seven tasks, a reference of {DEMONSTRATIONS_N}; {by}"
    for name, kinds, published in (
        ("all checks", slice(None), 166 / 176),
        ("throughout", slice(0, 1), 82 / 88),
        ("at the end", slice(1, 2), 84 / 88),
    ):
        mine, others = hits[:, kinds], drawn[:, :, kinds]
        told = f"{int(mine.sum())} of {mine.size}; {note}"
        add(record, f"constraint recovery, {name}", mine, others, published=published, note=told)
    for task, f in fitted.items():
        mine, others = f.ours == truths(f), f.drawn == truths(f)
        told = f"{int(mine.sum())} of {mine.size}: throughout {int(mine[:, 0].sum())}, at the end "
        add(record, f"{task} constraint recovery", mine, others, note=told + f"{int(mine[:, 1].sum())}; {by}")

    few = np.concatenate([f.few for f in every], axis=1) == true
    over = float((np.concatenate([f.few for f in every], axis=1) > true).mean())
    share = few.mean(axis=(1, 2))
    record.add(
        f"constraint recovery, K={FEW_N}",
        share.mean(),
        interval=wide(share, share.mean()),
        n=true.size,
        published=0.824,
        note=f"mean over {FEW_DRAWS_N} draws of {FEW_N} of the {DEMONSTRATIONS_N} demonstrations, 95 % of the draws; "
        f"more directions than true are pinned in {over:.2f} of the checks",
    )
    for pin, name, published in ((0.009, "sigma_pin=9 mm", 0.75), (np.inf, "sigma_pin=infinite", 0.057)):
        mine = np.concatenate([f.at[pin] for f in every]) == true
        others = np.concatenate([f.at_drawn[pin] for f in every], axis=1) == true
        told = f"{int(mine.sum())} of {mine.size}; truth as for 4 mm; {by}"
        add(record, f"constraint recovery, {name}", mine, others, published=published, note=told)


def truths(f: Fitted) -> np.ndarray:
    """True counts [cases, kinds]."""
    return np.array([c.counts for c in f.cases])


def add(record: Record, name: str, hits: np.ndarray, drawn: np.ndarray, **told: Any) -> None:
    """A share of hits, with what the resampled demonstrations give as its interval."""
    share = hits.mean()
    record.add(name, share, interval=wide(drawn.mean(axis=(1, 2)), share), n=hits.size, **told)


def wide(draws: np.ndarray, ours: float) -> Interval:
    """95 % of the draws, widened to hold ours: resampling repeats demonstrations, which makes spreads smaller."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return min(float(low), float(ours)), max(float(high), float(ours))


# ------------------------------------------------------------------------------------------------------------- misses


def misses(fitted: dict[str, Fitted], explained: dict[str, Any]) -> list[list[str]]:
    """A row of COLUMNS for every check whose count is not the truth's."""
    out = []
    for task, f in fitted.items():
        for i, case in enumerate(f.cases):
            for k, kind in enumerate(KINDS):
                true, ours = case.counts[k], int(f.ours[i, k])
                if true == ours:
                    continue
                bins = (f.spreads_m[i] < PINNED_M).sum(axis=-1)
                m = int(np.argmin(bins)) if kind == "throughout" else len(bins) - 1
                low, high = sorted((true, ours))
                asked = ", ".join(f"{1e3 * s:.2f}" for s in f.spreads_m[i, m, low:high])
                why = explained.get(task, {}).get(case.sub_task, {}).get(case.relation, {}).get(kind, "not explained")
                row = [task, case.sub_task, case.relation, kind, str(true), str(ours), f"{m + 1} of {len(bins)}"]
                out.append([*row, asked, case.because, str(why)])
    return out


# ------------------------------------------------------------------------------------------------------------- figure


def recovery_figure(fitted: dict[str, Fitted]) -> Figure:
    """A map for each task: relations by sub-tasks; each cell holds the counts throughout and at the end."""
    figure = Figure(figsize=(14.0, 12.6), layout="constrained")
    axes = figure.subplots(4, 2).ravel()
    for ax, (task, f) in zip(axes, fitted.items(), strict=False):
        draw_map(ax, task, f)
    legend(axes[len(fitted)])
    return figure


def draw_map(ax: Any, task: str, f: Fitted) -> None:
    """One task's map."""
    stages = list(dict.fromkeys(c.sub_task for c in f.cases))
    relations = list(dict.fromkeys(c.relation for c in f.cases))
    for i, case in enumerate(f.cases):
        x, y = stages.index(case.sub_task), relations.index(case.relation)
        for k in range(2):
            cell(ax, x + 0.5 * k, y, case.counts[k], int(f.ours[i, k]))
    ax.set_xlim(0, len(stages))
    ax.set_ylim(len(relations), 0)
    ax.set_xticks(np.arange(len(stages)) + 0.5, stages, fontsize=11)
    ax.set_yticks(np.arange(len(relations)) + 0.5, relations, fontsize=11)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for x in range(len(stages) + 1):
        ax.axvline(x, color="white", linewidth=5)
    for y in range(len(relations) + 1):
        ax.axhline(y, color="white", linewidth=5)
    hits = f.ours == truths(f)
    name = task.replace("_", " ")
    ax.set_title(f"{name}: {int(hits.sum())} of {hits.size}", loc="left", fontsize=13, fontweight="bold", color=INK)


def cell(ax: Any, x: float, y: float, true: int, ours: int) -> None:
    """One check, half a cell wide."""
    from matplotlib.patches import Rectangle

    hit = true == ours
    look: dict[str, Any] = {"facecolor": "#dcebf5"} if hit else {"facecolor": OKABE_ITO[1], "hatch": "////"}
    ax.add_patch(Rectangle((x, y), 0.5, 1.0, edgecolor="white", linewidth=1.0, **look))
    text = str(true) if hit else f"{ours}\n≠{true}"
    box = None if hit else {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
    ax.text(
        x + 0.25, y + 0.5, text, ha="center", va="center", fontsize=11, color=INK, bbox=box,
        fontweight="normal" if hit else "bold", linespacing=0.95,
    )  # fmt: skip


def legend(ax: Any) -> None:
    """How a map is read."""
    ax.set_axis_off()
    ax.set_xlim(0, 8)
    ax.set_ylim(4, 0)
    lines: tuple[tuple[Callable[[], None], str], ...] = (
        (lambda: cell(ax, 0.3, 0.2, 3, 3), "pinned directions: as the truth says"),
        (lambda: cell(ax, 0.3, 1.5, 3, 2), "2 are pinned, the truth says 3"),
    )
    for row, (draw, text) in enumerate(lines):
        draw()
        ax.text(1.1, 0.7 + 1.3 * row, text, va="center", fontsize=12, color=INK)
    text = "left half of a cell: smallest count over the sub-task\nright half: count in its last bin"
    ax.text(0.3, 3.3, text, va="center", fontsize=12, color=FAINT)


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/constraint_recovery", data=""))
