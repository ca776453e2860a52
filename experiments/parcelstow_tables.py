"""The published comparison of an expert and its learners across execution speeds, recomputed from its counts.

    python experiments/parcelstow_tables.py out=outputs/parcelstow_tables

Every printed figure that follows from counts stands beside ours, with what the paper leaves out: an interval, a test,
a correction over many cells. A note says that both agree to the printed digits, or why they cannot. The counts are in
jaxeval/data/parcelstow, the printed figures in parcelstow_published.yaml. `pairings.csv`: all 104 matched comparisons.
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml
from parcelstow_figures import LEARNERS, NEAR, ORDER, SPEEDS, Stages, figures
from record import Record, arguments, keep_compiled_code

from jaxeval.report.tables import write_csv
from jaxeval.stats.bootstrap import paired_bootstrap
from jaxeval.stats.estimate import Estimate, PairCounts
from jaxeval.stats.multiplicity import holm
from jaxeval.stats.paired import (
    decrease_difference,
    decrease_difference_unpaired,
    equivalence,
    mcnemar_exact,
    mcnemar_mid_p,
    tango,
)
from jaxeval.stats.proportions import newcombe, wilson

SOURCE = "Does Imitation Learning Preserve Temporal Robustness in Dexterous Manipulation? (ParcelStow), 2026"
SEED = 0
MARGINS = "rests on the margin of every episode, which the counts do not hold"


def main(out: str, resamples: str) -> None:
    """Recompute everything, write `result.json`, `pairings.csv` and the figures into `out`."""
    keep_compiled_code()
    jax.config.update("jax_enable_x64", True)
    published = yaml.safe_load((Path(__file__).parent / "parcelstow_published.yaml").read_text())
    stages = {(r["policy"], float(r["speed"])): r for r in table("stage_counts.csv")}
    record = Record("An expert and its learners across execution speeds, from counts", SOURCE, out)
    table_1(record, stages, published)
    pairs = pairings(record, published, int(resamples))
    decreases(record, stages, pairs)
    calibration(record, stages, published)
    demonstrations(record, stages, published)
    insertion(record, stages, published)
    handoff(record, published)
    force_closure(record, published)
    sister_tasks(record, pairs, published)
    figures(record, stages, pairs, table("cause_counts.csv"))
    record.finish()


# ------------------------------------------------------------------------------------------------- counts and notes


def table(name: str) -> list[dict[str, str]]:
    """Rows of one bundled table of counts."""
    return list(csv.DictReader(data(name).splitlines()))


def data(name: str) -> str:
    return (files("jaxeval.data") / "parcelstow" / name).read_text()


def rates(successes: Sequence[int], episodes: Sequence[int]) -> list[Estimate]:
    """Wilson intervals of many cells at once."""
    return rows_of(jax.vmap(wilson)(jnp.asarray(successes), jnp.asarray(episodes)))


def rows_of(estimates: Any) -> list[Any]:
    """A batched result as a list of single ones, in NumPy."""
    host = jax.tree.map(np.asarray, estimates)
    return [type(host)(*row) for row in zip(*host, strict=True)]


def add(
    record: Record,
    quantity: str,
    ours: Any,
    printed: float | None = None,
    *,
    digits: int = 2,
    interval: Sequence[Any] | None = None,
    n: int | None = None,
    note: str = "",
    reason: str = "",
) -> None:
    """A row whose note says whether ours rounds to what is printed; ``reason``: why it does not."""
    word = ""
    if printed is not None:
        same = abs(round(float(ours), digits) - printed) < 0.5 * 10.0**-digits
        word = "matches" if same else f"does not match: {reason or 'no reason found'}"
    told = "; ".join(part for part in (word, note) if part)
    pair = None if interval is None else (float(interval[0]), float(interval[1]))
    record.add(quantity, float(ours), interval=pair, n=n, published=printed, note=told)


def add_interval(record: Record, quantity: str, e: Estimate, printed: Sequence[float], n: int, note: str = "") -> None:
    """A row about an interval: published is [low, high]."""
    same = all(abs(round(float(x), 2) - p) < 0.005 for x, p in zip((e.low, e.high), printed, strict=True))
    near = max(abs(float(e.low) - printed[0]), abs(float(e.high) - printed[1]))
    word = "matches" if same else f"printed within {near:.3f} of it, rounded otherwise"
    told = "; ".join(part for part in (word, note) if part)
    interval = (float(e.low), float(e.high))
    record.add(quantity, float(e.value), interval=interval, n=n, published=list(printed), note=told)


def p_words(p: float) -> str:
    return f"p = {p:.2g}" if p >= 1e-3 else f"p = {p:.1e}"


# ------------------------------------------------------------------------------------------------ Table 1, Figures 3, 4


def table_1(record: Record, stages: Stages, published: dict[str, Any]) -> None:
    """The 18 cells with their intervals, the six decreases, and the two intervals that the text prints."""
    cells = [(policy, r) for policy in published["table_1"] for r in SPEEDS]
    k = [int(stages[cell]["success"]) for cell in cells]
    for (policy, r), found, successes in zip(cells, rates(k, [100] * len(k)), k, strict=True):
        printed = published["table_1"][policy][SPEEDS.index(r)]
        note = f"{successes}/100"
        add(record, f"Table 1: {policy}, r = {r:g}", found.value, printed, interval=found[1:3], n=100, note=note)
        if r == 2 and policy in published["wilson"]:
            add_interval(record, f"Section 5.1: Wilson, {policy}, r = 2", found, published["wilson"][policy], 100)
    for policy, printed in published["table_1"].items():
        one, two = (int(stages[policy, r]["success"]) for r in (1.0, 2.0))
        fell = newcombe(one, 100, two, 100)
        note = "unpaired (Newcombe): each speed has starts of its own"
        add(record, f"Table 1: {policy}, decrease", fell.value, printed[3], interval=fell[1:3], n=200, note=note)


def pairings(record: Record, published: dict[str, Any], resamples_n: int) -> list[dict[str, Any]]:
    """All 104 matched comparisons: rows about the ones in print, about the rest together, and `pairings.csv`."""
    rows: list[dict[str, Any]] = [dict(r) for r in table("matched_outcomes.csv")]
    matched = [r for r in rows if r["pairing"] == "verified"]
    counts = PairCounts(
        *(jnp.array([int(r[c]) for r in matched]) for c in ("both", "expert_only", "learner_only", "neither"))
    )
    keys = jax.random.split(jax.random.key(SEED), len(matched))
    found = {
        "tango": jax.jit(jax.vmap(tango))(counts),
        "bootstrap": jax.jit(jax.vmap(lambda k, c: paired_bootstrap(k, c, resamples_n=resamples_n)))(keys, counts),
        "exact": jax.jit(jax.vmap(mcnemar_exact))(counts),
        "mid": jax.jit(jax.vmap(mcnemar_mid_p))(counts),
        "near": jax.jit(jax.vmap(lambda c: equivalence(c, margin=NEAR)))(counts),
    }
    adjusted = np.asarray(holm(found["exact"].p, jnp.ones(len(matched), bool)))
    found = {name: rows_of(value) for name, value in found.items()}
    for i, r in enumerate(matched):
        r |= {name: value[i] for name, value in found.items()} | {"holm": float(adjusted[i])}
    parcel = {(r["learner"], float(r["speed"])): r for r in matched if r["task"] == "parcel"}
    figure_4(record, parcel, published)

    exact = sum(
        int(r["both"]) + int(r["expert_only"]) + int(r["learner_only"]) + int(r["neither"]) == int(r["pairs_n"])
        and abs(float(r["tango"].value) - float(r["difference"])) < 1e-9
        for r in matched
    )  # fmt: skip
    add(record, "pairings: counts and difference exact", exact, len(matched), digits=0, n=len(matched))
    note = "starts differ between expert and learner: compared as unpaired, never as pairs"
    add(record, "pairings: refused", len(rows) - len(matched), 9, digits=0, n=len(rows), note=note)
    for r in rows:
        if r["pairing"] != "verified" and float(r["speed"]) == 2:
            shared = f"the paper pairs 100; the release finds {r['mismatched_n']} of them to be other starts"
            add(
                record,
                f"pairings: {r['learner']}, r = 2, same starts",
                int(r["pairs_n"]),
                100,
                digits=0,
                n=100,
                reason=shared,
            )
    alone = sum(float(r["exact"].p) < 0.05 for r in matched)
    kept = int((adjusted < 0.05).sum())
    near = sum(float(r["near"].p) < 0.05 for r in matched)
    wide = max(float(r["bootstrap"].high - r["bootstrap"].low) for r in matched)
    add(record, "pairings: exact McNemar p < .05", alone, n=len(matched), note="one at a time")
    add(record, "pairings: the same after Holm", kept, n=len(matched), note="over all 104")
    add(
        record,
        f"pairings: equivalent within {100 * NEAR:.0f} points",
        near,
        n=len(matched),
        note="two one-sided score tests, 5 %",
    )
    add(record, "pairings: widest bootstrap interval", wide, n=len(matched))
    names = ("task", "learner", "method", "speed", "pairs_n", "both", "expert_only", "learner_only", "neither")
    told = [
        {name: r[name] for name in names}
        | {
            "difference": r["tango"].value,
            "tango_low": r["tango"].low,
            "tango_high": r["tango"].high,
            "bootstrap_low": r["bootstrap"].low,
            "bootstrap_high": r["bootstrap"].high,
            "mcnemar_exact_p": r["exact"].p,
            "mcnemar_mid_p": r["mid"].p,
            "holm_p": r["holm"],
            "equivalence_p": r["near"].p,
        }
        for r in matched
    ]
    write_csv(record.out / "pairings.csv", told)
    return matched


def figure_4(record: Record, parcel: dict[tuple[str, float], dict[str, Any]], published: dict[str, Any]) -> None:
    """G_L(r) of the three ACT policies with its bootstrap interval, and the matched outcomes at r = 2."""
    told = published["figure_4"]
    for (learner, r), cell in sorted(parcel.items()):
        if learner not in ("ACT-A", "ACT-B", "ACT-C"):
            continue
        printed = told["difference"].get(r) if learner == "ACT-A" else None
        boot, score = cell["bootstrap"], cell["tango"]
        note = f"score interval {score.low:.2f} .. {score.high:.2f}; exact McNemar {p_words(float(cell['exact'].p))}"
        note += f", Holm over 104: {cell['holm']:.2g}"
        if float(cell["near"].p) < 0.05:
            note += f"; equivalent within {100 * NEAR:.0f} points"
        add(record, f"Figure 4a: G, {learner}, r = {r:g}", score.value, printed, interval=boot[1:3], n=100, note=note)
    for outcome, printed in told["outcomes"].items():
        add(
            record,
            f"Figure 4b: {outcome.replace('_', ' ')}",
            int(parcel["ACT-A", 2.0][outcome]),
            printed,
            digits=0,
            n=100,
        )
    boot = parcel["ACT-A", 2.0]["bootstrap"]
    add_interval(record, "Figure 4: bootstrap interval, ACT-A, r = 2", boot, told["interval"], 100)
    mid = float(parcel["ACT-A", 2.0]["mid"].p)
    p = float(parcel["ACT-A", 2.0]["exact"].p)
    add(record, "Figure 4: exact McNemar p, ACT-A, r = 2", p, 2.2e-5, digits=6, n=100, note=f"mid-p {mid:.1e}")


def decreases(record: Record, stages: Stages, pairs: list[dict[str, Any]]) -> None:
    """Does a learner lose more from r = 1 to 2 than the expert? Section 5.1's claim, which needs an interaction."""
    cells = {(r["learner"], float(r["speed"])): r for r in pairs if r["task"] == "parcel"}
    for learner in LEARNERS:
        if (learner, 1.0) in cells and (learner, 2.0) in cells:
            how, n = "matched", 200
            one, two = (swapped(pair_counts([cells[learner, r]])) for r in (1.0, 2.0))
            more = rows_of(jax.vmap(decrease_difference)(one, two))[0]
        else:
            how, n = "unpaired, as not all starts match", 400
            k = jnp.array([[int(stages[policy, r]["success"]) for r in (1.0, 2.0)] for policy in (learner, "expert")])
            more = decrease_difference_unpaired(k[0], jnp.array([100, 100]), k[1], jnp.array([100, 100]))
        word = "more than" if more.low > 0 else "less than" if more.high < 0 else "not distinguishable from"
        note = f"{word} the expert's; {how}, each speed with starts of its own"
        note += "; at the floor at both speeds" if learner == "DAgger" else ""
        add(record, f"decrease beyond the expert's: {learner}", more.value, interval=more[1:3], n=n, note=note)


def swapped(counts: PairCounts) -> PairCounts:
    """The same pairs with the learner as a."""
    return counts._replace(a_only=counts.b_only, b_only=counts.a_only)


def pair_counts(rows: Sequence[dict[str, Any]]) -> PairCounts:
    return PairCounts(
        *(jnp.array([int(r[c]) for r in rows]) for c in ("both", "expert_only", "learner_only", "neither"))
    )


# ------------------------------------------------------------------------------------------ Tables 5 to 7, section 5.2


def calibration(record: Record, stages: Stages, published: dict[str, Any]) -> None:
    """Table 5, and the successes of Table 6."""
    for title, policy, of_n in (("table_5", "expert calibration", 64), ("table_6", "expert", 100)):
        printed = published[title]
        k = [int(stages[policy, float(r)]["success"]) for r in printed]
        for (r, value), found, successes in zip(printed.items(), rates(k, [of_n] * len(k)), k, strict=True):
            name = f"{title.replace('_', ' ').capitalize()}: expert, r = {r:g}"
            same = value if title == "table_6" else value / of_n
            digits = 2 if title == "table_6" else 6
            add(record, name, found.value, same, digits=digits, interval=found[1:3], n=of_n, note=f"{successes}/{of_n}")


def demonstrations(record: Record, stages: Stages, published: dict[str, Any]) -> None:
    """Table 7, and the two claims drawn from it."""
    for policy, cells in published["table_7"].items():
        k = [int(stages[policy, r]["success"]) for r in SPEEDS]
        for r, (rate, low, high), found in zip(SPEEDS, cells, rates(k, [100] * 3), strict=True):
            note = f"rate {'matches' if round(float(found.value), 2) == rate else 'does not match'}"
            add_interval(record, f"Table 7: {policy}, r = {r:g}", found, [low, high], 100, note)
    for r, claim in ((1.0, "nominal success grows"), (2.0, "success at r = 2 does not")):
        many, few = (int(stages[policy, r]["success"]) for policy in ("ACT-A", "ACT-A n=50"))
        rise = newcombe(many, 100, few, 100)
        note = f"'{claim}': unpaired, since the learners' pairs are not in the release's counts"
        add(
            record,
            f"Appendix F: rise from 50 to 297 demonstrations, r = {r:g}",
            rise.value,
            interval=rise[1:3],
            n=200,
            note=note,
        )


def insertion(record: Record, stages: Stages, published: dict[str, Any]) -> None:
    """Stages and causes at r = 2 (section 5.2), and where the stages do not nest."""
    for policy, counts in published["stages"].items():
        for stage, printed in counts.items():
            k = int(stages[policy, 2.0][stage])
            low, high = wilson(k, 100)[1:3]
            name = f"Section 5.2: {policy}, r = 2, {stage.replace('_', ' ')}"
            add(record, name, k, printed, digits=0, n=100, note=f"Wilson {low:.2f} .. {high:.2f}")
    causes = {(r["policy"], float(r["speed"]), r["cause"]): int(r["episodes_n"]) for r in table("cause_counts.csv")}
    for policy, counts in published["causes"].items():
        for cause, printed in counts.items():
            name = f"Section 5.2: {policy}, r = 2, {cause.replace('_', ' ')}"
            add(record, name, causes[policy, 2.0, cause], printed, digits=0, n=100)
    learner = stages["ACT-A", 2.0]
    latched = int(learner["settled"]) - int(learner["success"])
    note = (
        "inserted, released and settled, then outside the terminal tolerance, under the label 'insertion misalignment'"
    )
    add(record, "Section 5.2: ACT-A, r = 2, settled but failed", latched, n=100, note=note)
    crossed = [
        cell for cell, row in stages.items() if any(int(row[b]) > int(row[a]) for a, b in itertools.pairwise(ORDER))
    ]
    note = "a later stage was reached more often than an earlier one: reported as counted, never forced to nest"
    add(record, "stages: cells that do not nest", len(crossed), n=len(stages), note=note)


# ------------------------------------------------------------------------------------------------ sections 5.3 and 5.4


def handoff(record: Record, published: dict[str, Any]) -> None:
    """Retention and success under the shared hand motion (section 5.3, Figure 5b)."""
    told = published["handoff"]
    rows = {(r["policy"], float(r["speed"])): r for r in table("handoff_counts.csv")}
    for policy in told["retained"]:
        for what in ("acquired", "retained"):
            counts = [int(rows[policy, r][what]) for r in SPEEDS]
            of_n = [int(rows[policy, r]["episodes_n" if what == "acquired" else "handoff_n"]) for r in SPEEDS]
            for r, k, n, printed, found in zip(
                SPEEDS, counts, of_n, told[what][policy], rates(counts, of_n), strict=True
            ):
                note = f"Wilson {found.low:.3f} .. {found.high:.3f} of {n}"
                add(record, f"Section 5.3: {policy}, r = {r:g}, {what}", k, printed, digits=0, n=n, note=note)
    after = {policy: int(rows[policy, 2.0]["success"]) for policy in told["success"]}
    for policy, found in zip(after, rates(list(after.values()), [100] * len(after)), strict=True):
        note = f"Wilson {found.low:.2f} .. {found.high:.2f}"
        add(
            record,
            f"Section 5.3: {policy}, r = 2, success after handoff",
            after[policy],
            told["success"][policy],
            digits=0,
            n=100,
            note=note,
        )
    gap = newcombe(after["expert"], 100, after["ACT-A"], 100)
    note = "unpaired: the release counts no pairs of handoffs"
    add(
        record, "Section 5.3: expert - ACT-A after handoff, r = 2", gap.value, 0.31, interval=gap[1:3], n=200, note=note
    )
    touched = int(rows["ACT-C", 2.0]["touched_receptacle_first"]) / int(rows["ACT-C", 2.0]["handoff_n"])
    add(record, "Section 5.3: ACT-C, r = 2, touched the receptacle first", touched, told["touched_first"], n=100)
    for column, key in (
        ("translation_median_mm", "translation_below_mm"),
        ("rotation_median_deg", "rotation_below_deg"),
    ):
        worst = max(float(r[column]) for r in rows.values())
        word = "matches: below what is printed" if worst < told[key] else "does not match: above what is printed"
        record.add(
            f"Section 5.3: largest {column.replace('_', ' ')}", worst, n=len(rows), published=told[key], note=word
        )


def force_closure(record: Record, published: dict[str, Any]) -> None:
    """The one-sided result of section 5.4, and what of Table 8 follows from counts."""
    told = published["force_closure"]
    held = json.loads(data("force_closure.json"))
    main_cells = [c for c in held["cells"] if "n=" not in c["policy"]]
    without = sum(c["no_closure_n"] for c in main_cells)
    add(record, "Section 5.4: acquisitions without force closure", without, told["without"], digits=0, n=without)
    none = wilson(0, without)
    add(
        record,
        "Section 5.4: success without force closure, upper end",
        none.high,
        told["upper"],
        digits=3,
        interval=none[1:3],
        n=without,
    )
    expert = [c for c in main_cells if c["policy"] == "expert"]
    add(
        record,
        "Section 5.4: expert acquisitions with force closure",
        sum(c["closure_n"] for c in expert),
        told["expert"],
        digits=0,
        n=700,
    )
    subsets = sum(c["no_closure_n"] for c in held["cells"] if "n=" in c["policy"])
    add(record, "Section 5.4: the same of the two subset policies", subsets, told["subsets"], digits=0, n=subsets)
    mid = [c for c in main_cells if c["speed"] in SPEEDS and c["policy"] in ("expert", "ACT-A", "ACT-B", "ACT-C")]
    note = "expert and the three ACT policies"
    add(
        record,
        "Appendix I: the same at r = 1, 1.5, 2",
        sum(c["no_closure_n"] for c in mid),
        told["mid_speeds"],
        digits=0,
        note=note,
    )
    for policy, printed in told["shares"].items():
        mine = [c for c in main_cells if c["policy"] == policy]
        k, acquired, episodes = (sum(c[key] for c in mine) for key in ("no_closure_n", "acquired", "episodes_n"))
        found = wilson(k, acquired)
        note = f"{k} of {acquired} acquisitions" + (
            f"; of {episodes} episodes {k / episodes:.2f}" if episodes > acquired else ""
        )
        add(
            record,
            f"Section 5.4: share without force closure, {policy}",
            found.value,
            printed,
            interval=found[1:3],
            n=acquired,
            note=note,
        )
    cells = [c for c in main_cells if c["balanced_accuracy_0"] is not None]
    off = max(
        abs(balanced_accuracy_0(c["no_closure_n"], c["acquired"] - c["closure_successes"]) - c["balanced_accuracy_0"])
        for c in cells
    )
    add(record, "Table 8: worst deviation of a cell's balanced accuracy at 0", off, 0.0, digits=9, n=len(cells))
    for t in held["transfers"]:
        table_8(record, t, published["table_8"][f"{t['protocol']} | {t['margin']}"], told["ece"])


def balanced_accuracy_0(no_closure_n: int, failures_n: int) -> float:
    """Of the rule 'success where the margin is positive', no success lying below it: sensitivity 1."""
    return 0.5 * (1 + no_closure_n / failures_n)


def table_8(record: Record, t: dict[str, Any], printed: list[float], printed_ece: float) -> None:
    """One hold-out protocol: what follows from its counts, beside the printed row."""
    name = f"Table 8: {t['protocol']}, {t['margin']}"
    failures = t["test_n"] - t["test_successes"]
    p_fit, p_test = t["fit_successes"] / t["fit_n"], t["test_successes"] / t["test_n"]
    base = p_test * (1 - p_fit) ** 2 + (1 - p_test) * p_fit**2
    note = f"AUROC {printed[2]}, ba {printed[3]}, Brier {printed[5]}: {MARGINS}"
    add(record, f"{name}: base-rate Brier", base, printed[6], n=t["test_n"], note=note)
    if "risk-adjusted" in t["margin"]:
        note = f"successes below 0 are not counted apart; {MARGINS}"
        record.add(f"{name}: margins <= 0", t["test_no_closure_n"], n=t["test_n"], note=note)
    else:
        ours = balanced_accuracy_0(t["test_no_closure_n"], failures)
        share = t["test_no_closure_n"] / failures
        within = (t["auroc"] - share) / (1 - share)
        note = f"so of AUROC {t['auroc']:.2f} the sign gives {share:.2f}; among closures it is {within:.2f}"
        add(record, f"{name}: balanced accuracy at 0", ours, printed[4], n=t["test_n"], note=note)
    bins = np.array(t["reliability"])
    ece = float(np.sum(bins[:, 0] * np.abs(bins[:, 1] - bins[:, 2])) / bins[:, 0].sum())
    shown = printed_ece if name == "Table 8: speed holdout, acquisition" else round(t["ece"], 2)
    add(record, f"{name}: ECE", ece, shown, n=t["test_n"], note=f"bins of equal mass: {len(bins)}")


def sister_tasks(record: Record, pairs: list[dict[str, Any]], published: dict[str, Any]) -> None:
    """Peg insertion and upright placement: marginal successes of 200, which the pairings must add up to."""
    speeds = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5)
    for task, policies in published["sister_tasks"].items():
        cells = {float(r["speed"]): r for r in pairs if r["task"] == task and r["learner"] == "ACT seed 0"}
        for policy, printed in policies.items():
            alone = "expert_only" if policy == "expert" else "learner_only"
            k = [int(cells[r]["both"]) + int(cells[r][alone]) for r in speeds]
            for r, found, count, value in zip(speeds, rates(k, [200] * len(k)), k, printed, strict=True):
                add(
                    record,
                    f"{task}: {policy}, r = {r:g}",
                    found.value,
                    value / 200,
                    digits=6,
                    interval=found[1:3],
                    n=200,
                    note=f"{count}/200",
                )
        better = [r for r in speeds if float(cells[r]["tango"].high) < 0]
        note = "inside the demonstrated range a learner can beat its expert: r = " + ", ".join(f"{r:g}" for r in better)
        record.add(
            f"{task}: speeds at which ACT seed 0 beats the expert",
            len(better),
            n=len(speeds),
            note=note if better else "",
        )


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/parcelstow_tables", resamples="20000"))
