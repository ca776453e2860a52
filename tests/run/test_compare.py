"""`jaxeval compare` and `jaxeval plan`: published numbers, an oracle for each kind of number, what is left behind."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import binomtest, boschloo_exact, chi2_contingency, t
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from jaxeval.cli import main
from jaxeval.io.errors import InputError
from jaxeval.io.records import Records
from jaxeval.report.comparison import Comparison, printed, write_comparison
from jaxeval.run.compare import Settings, compare
from jaxeval.run.compare_estimates import multiplier, unpaired_p
from jaxeval.run.compare_seeds import Stratum, varied
from jaxeval.run.plan import plan
from jaxeval.stats.estimate import PairCounts
from jaxeval.stats.paired import equivalence, pooled_difference
from jaxeval.stats.planning import pairs_for_difference

QUICK = Settings(resamples_n=2000)
LEARNERS = ["ACT-A", "ACT-B", "ACT-C", "Diffusion Policy"]


@pytest.fixture(scope="module")
def published() -> Comparison:
    return compare("bundled:parcelstow", "expert", LEARNERS, by="speed", pairing="auto", last=2)


def cell(made: Comparison, b: str, speed: float, task: str = "parcel") -> dict[str, Any]:
    return next(r for r in made.cells if (r["task"], r["b"], r["speed"]) == (task, b, speed))


def runs(policy: str, outcomes: list[bool], **more: Any) -> list[dict[str, Any]]:
    """Runs from starts 0, 1, ..."""
    known = {"policy": policy, "training_seed": None, "task": "t", "episode": None, "success_once": None}
    return [
        known | {"initial_condition_id": str(k), "initial_condition_hash": f"h{k}", "success_at_end": s} | more
        for k, s in enumerate(outcomes)
    ]


def records(*parts: list[dict[str, Any]]) -> Records:
    every = tuple(row for part in parts for row in part)
    return Records(every, ("",) * len(every))


def paired(both: int, a_only: int, b_only: int, neither: int, **more: Any) -> list[dict[str, Any]]:
    a = [True] * (both + a_only) + [False] * (b_only + neither)
    b = [True] * both + [False] * a_only + [True] * b_only + [False] * neither
    return [*runs("a", a, **more), *runs("b", b, **more)]


# ------------------------------------------------------------------------------------------------ published numbers


def test_the_published_comparison(published: Comparison) -> None:
    told = cell(published, "ACT-A", 2)
    assert (told["both"], told["a_only"], told["b_only"], told["neither"]) == (42, 42, 11, 5)
    assert told["difference"] == pytest.approx(0.31)
    assert told["p"] == pytest.approx(2.2475594e-5, rel=1e-6)  # published as 2.2e-5
    assert (told["bootstrap_low"], told["bootstrap_high"]) == pytest.approx((0.18, 0.44), abs=0.0101)
    assert (told["a_low"], told["a_high"]) == pytest.approx((0.7558, 0.8990), abs=1e-4)
    assert (told["b_low"], told["b_high"]) == pytest.approx((0.4329, 0.6249), abs=1e-4)
    assert told["verdict"] == "expert better" and told["interval"] == "Tango score"
    rates = {(r["b"], r["speed"]): r["b_k"] for r in published.cells if r["task"] == "parcel"}
    table_1 = {"ACT-A": (100, 91, 53), "ACT-B": (70, 58, 36), "ACT-C": (62, 44, 14), "Diffusion Policy": (68, 73, 54)}
    assert {b: tuple(rates[b, s] for s in (1, 1.5, 2)) for b in LEARNERS} == table_1


def test_every_number_of_the_published_cells_against_other_libraries(published: Comparison) -> None:
    p = [r["p"] for r in published.cells]
    np.testing.assert_allclose(
        [r["p_adjusted"] for r in published.cells], multipletests(p, method="holm")[1], rtol=1e-9
    )
    for row in published.cells:
        wilson = proportion_confint(row["b_k"], row["b_n"], method="wilson")
        np.testing.assert_allclose((row["b_low"], row["b_high"]), wilson, atol=1e-9)
        if row["pairing"] == "paired":
            m = row["a_only"] + row["b_only"]
            exact = binomtest(row["a_only"], m).pvalue if m else 1.0
            assert row["p"] == pytest.approx(exact, rel=1e-9)
            assert row["low"] <= row["difference"] <= row["high"] and row["low"] < row["high"]
        else:
            newcomb = confint_proportions_2indep(row["a_k"], row["a_n"], row["b_k"], row["b_n"], method="newcomb")
            np.testing.assert_allclose((row["low"], row["high"]), newcomb, atol=1e-9)
            assert "unpaired" in row["note"] and row["b"] == "Diffusion Policy" and row["task"] == "parcel"
    dp = cell(published, "Diffusion Policy", 2)
    assert dp["p"] == pytest.approx(boschloo_exact([[84, 54], [16, 46]]).pvalue, rel=1e-6)


def test_decreases_and_pooled(published: Comparison) -> None:
    told = {(r["b"], r["task"]): r for r in published.decreases}
    act = told["ACT-A", "parcel"]
    assert (act["from"], act["to"], act["a_decrease"], act["b_decrease"]) == pytest.approx((1, 2, 0.16, 0.47))
    assert act["difference"] == pytest.approx(0.31) and 0 < act["low"] < 0.31 < act["high"] and act["p"] < 0.001
    assert act["verdict"] == "ACT-A loses more than expert"
    # the published decreases are .14 and .16; 100 runs cannot tell them apart
    dp = told["Diffusion Policy", "parcel"]
    assert dp["difference"] == pytest.approx(-0.02) and dp["low"] < 0 < dp["high"]
    assert dp["verdict"] == "decreases are not distinguishable" and dp["pairing"] == "unpaired"
    pooled = {(r["b"], r["task"]): r for r in published.pooled}
    assert pooled["ACT-A", "parcel"]["difference"] == pytest.approx((16 + 0 + 8 + 31 + 44 + 29 + 0) / 700)
    assert pooled["Diffusion Policy", "all tasks"]["left_out_n"] == 7
    assert pooled["Diffusion Policy", "parcel"]["how"].startswith("Mantel-Haenszel")


# ---------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("counts", "margin", "verdict"),
    [
        ((10, 30, 4, 6), 0.05, "a better"),
        ((26, 2, 20, 2), 0.05, "b better"),
        ((50, 0, 0, 50), 0.05, "equivalent within 5 points"),
        ((50, 0, 0, 0), 0.05, "not distinguishable: no discordant pairs in 50"),
        ((500, 30, 8, 462), 0.05, "a better, though equivalent within 5 points"),
        ((20, 6, 6, 8), 0.05, "not distinguishable: no difference was seen"),
        ((62, 50, 44, 44), 0.05, "not distinguishable: about 3,900 more pairs would tell"),
    ],
)
def test_verdicts(counts: tuple[int, int, int, int], margin: float, verdict: str) -> None:
    told = compare(records(paired(*counts)), "a", "b", settings=Settings(resamples_n=2000, margin=margin)).cells[0]
    assert told["verdict"] == verdict


def test_a_policy_against_itself() -> None:
    told = compare(records(runs("a", [True] * 25 + [False] * 25)), "a", "a", settings=QUICK).cells[0]
    assert (told["both"], told["a_only"], told["b_only"], told["neither"]) == (25, 0, 0, 25)
    assert told["p"] == 1 and told["difference"] == 0 and told["low"] < 0 < told["high"]
    assert told["status"].startswith("no discordant pairs")


def test_swapping_the_policies_turns_every_sign() -> None:
    both = records(paired(10, 30, 4, 6))
    one, other = compare(both, "a", "b", settings=QUICK).cells[0], compare(both, "b", "a", settings=QUICK).cells[0]
    assert one["difference"] == -other["difference"] and one["p"] == other["p"]
    assert (one["low"], one["high"]) == pytest.approx((-other["high"], -other["low"]))
    assert one["verdict"] == other["verdict"] == "a better"


def test_the_same_key_gives_the_same_bits_whatever_cells_are_beside() -> None:
    few = compare(records(paired(10, 30, 4, 6, speed=1.0)), "a", "b", by="speed", settings=QUICK)
    many = compare(
        records(*(paired(5 + k, 20 + k, 3, 6, speed=2.0 + k) for k in range(7)), paired(10, 30, 4, 6, speed=1.0)),
        "a", "b", by="speed", settings=QUICK,
    )  # fmt: skip
    one, same = few.cells[0], next(r for r in many.cells if r["speed"] == 1)
    assert all(one[k] == same[k] for k in ("bootstrap_low", "bootstrap_high", "low", "high", "p", "p_mid"))
    assert [r["speed"] for r in many.cells] == sorted(r["speed"] for r in many.cells)


def test_unknown_success_is_in_no_rate() -> None:
    a = runs("a", [True] * 10)
    b = runs("b", [True] * 4 + [False] * 4) + [r | {"success_at_end": None, "initial_condition_id": f"x{k}"}
                                              for k, r in enumerate(runs("b", [True] * 2))]  # fmt: skip
    told = compare(records(a, b), "a", "b", settings=QUICK).cells[0]
    assert (told["b_k"], told["b_n"], told["b_unknown_n"], told["b_recorded_n"]) == (4, 8, 2, 10)
    assert "b: 2 of unknown success of 10" in told["note"] and told["pairs_n"] == 8
    nobody = records(*([r | {"success_at_end": None} for r in part] for part in (a, b)))
    with pytest.raises(InputError, match=r"success unknown: .* is empty in all 20 rows"):
        compare(nobody, "a", "b", settings=QUICK)


def test_training_seeds_that_differ_are_not_one_policy() -> None:
    """Three seeds of b: two as good as a, one that always fails. Every pair counts, and so do the seeds."""
    a = runs("a", [True] * 40)
    b = [r for seed, good in enumerate((True, True, False)) for r in runs("b", [good] * 40, training_seed=seed)]
    told = compare(records(a, b), "a", "b", settings=QUICK).cells[0]
    assert told["seeds_n"] == 3 and (told["pairs_n"], told["a_only"], told["b_only"]) == (120, 40, 0)
    assert told["p"] is None and told["p_mid"] is None and told["test"] is None and told["p_adjusted"] is None
    assert told["difference"] == pytest.approx(1 / 3) and (told["low"], told["high"]) == (-1, 1)  # t(2) * 1/3 is 1.4
    assert told["bootstrap_low"] == 0 and told["bootstrap_high"] == 1  # of the draws 1 / 27 take one seed alone
    assert told["verdict"] == "not distinguishable: training seeds differ too much to say (3 seeds)"
    assert "several training seeds (3 of b)" in told["note"]
    alike = [r for seed in range(3) for r in runs("b", [False] * 30 + [True] * 10, training_seed=seed)]
    told = compare(records(a, alike), "a", "b", settings=QUICK).cells[0]
    assert told["verdict"] == "a better"
    # 40 starts of which a alone wins 30, with Agresti and Min's half pair to each side and one that both do alike
    mean, n = 30 / 42, 42
    half = t.ppf(0.975, 39) * np.sqrt((31 / n - mean**2) / n)
    assert (told["low"], told["high"]) == pytest.approx((mean - half, mean + half))
    # unpaired they are seeds all the same
    told = compare(records(a, b), "a", "b", pairing="none", settings=QUICK).cells[0]
    assert told["p"] is None and (told["pairing"], told["low"], told["high"]) == ("unpaired", -1, 1)
    assert told["verdict"].startswith("not distinguishable: training seeds differ too much")


def seeded(rates: tuple[float, ...], rate: float, n: int = 400, tasks: int = 1, number: int = 3) -> Records:
    """A policy a of one run a start, and one b whose training seeds have these rates; all runs independent."""
    generator = np.random.default_rng(number)
    parts = []
    for k in range(tasks):
        parts.append(runs("a", list(map(bool, generator.random(n) < rate)), task=f"t{k}"))
        parts += [
            runs("b", list(map(bool, generator.random(n) < of_seed)), task=f"t{k}", training_seed=seed)
            for seed, of_seed in enumerate(rates)
        ]
    return records(*parts)


def test_equivalent_takes_the_training_seeds_into_account() -> None:
    """Seeds of 66, 80 and 94 %: their mean is a's rate, and no seed is."""
    far = compare(seeded((0.66, 0.8, 0.94), 0.8), "a", "b", settings=QUICK).cells[0]
    assert mcnemar_equivalent(far) < 0.05 and far["equivalence_p"] > 0.2
    assert far["verdict"] == "not distinguishable: training seeds differ too much to say (3 seeds)"
    generous = replace(QUICK, margin=0.15)
    near = compare(seeded((0.8, 0.8, 0.8), 0.8), "a", "b", settings=generous).cells[0]
    assert near["verdict"] == "equivalent within 15 points" and -0.15 < near["low"] < near["high"] < 0.15
    # the two one-sided tests and the interval at 1 - 2 alpha are one
    at_p = compare(
        seeded((0.8, 0.8, 0.8), 0.8), "a", "b", settings=replace(generous, level=1 - 2 * near["equivalence_p"])
    ).cells[0]
    assert max(-at_p["low"], at_p["high"]) == pytest.approx(0.15)


def mcnemar_equivalent(row: dict[str, Any]) -> float:
    """p of two one-sided score tests that take every pair for one of its own."""
    counts = PairCounts(*(row[k] for k in ("both", "a_only", "b_only", "neither")))
    return float(equivalence(counts, margin=0.05).p)


@pytest.mark.parametrize(("sd", "a_has_seeds"), [(0.0, False), (1.0, False), (1.0, True)])
def test_three_training_seeds_of_equals_are_seldom_told_apart(sd: float, a_has_seeds: bool) -> None:
    """In at most 5 % of comparisons (of 300: 8 % allows for chance); McNemar's test over all pairs says it far more."""
    generator = np.random.default_rng(5)
    n, seeds_n, told, counted = 100, 3, [], []
    population = 1 / (1 + np.exp(-0.8 - sd * generator.normal(size=100_000)))
    for _ in range(300):
        b = generator.random((seeds_n, n)) < generator.choice(population, seeds_n)[:, None]
        of_a = generator.choice(population, seeds_n)[:, None] if a_has_seeds else np.array([[population.mean()]])
        a = generator.random((len(of_a), n)) < of_a
        won = a.astype(int) - b.astype(int)
        seeds, starts = np.divmod(np.arange(seeds_n * n), n)
        low, high = varied([Stratum(won.ravel(), seeds.tolist(), starts.tolist(), 1.0, True)]).interval(0.95)
        told.append(low > 0 or high < 0)
        m = int((won != 0).sum())
        counted.append(binomtest(int((won == 1).sum()), m).pvalue <= 0.05)
    assert np.mean(told) <= 0.08 and np.mean(counted) > 0.1
    assert np.mean(told) < np.mean(counted) / 2


def test_pooled_and_decreases_of_several_training_seeds() -> None:
    """Equal policies that by chance differ by 9 points over two tasks: 600 pairs, but 200 starts and 3 seeds."""
    both = seeded((0.7, 0.7, 0.7), 0.61, 100, tasks=2, number=4)
    told = compare(both, "a", "b", settings=QUICK)
    (pooled,) = told.pooled
    assert pooled["how"] == "over seeds and starts (t)" and pooled["verdict"] == "not distinguishable"
    assert pooled["difference"] == pytest.approx(np.mean([r["difference"] for r in told.cells]))
    tango = pooled_difference(
        PairCounts(*(np.array([r[k] for r in told.cells]) for k in ("both", "a_only", "b_only", "neither")))
    )
    assert tango.high < 0  # what 600 independent pairs would say
    rows = [r | {"speed": float(r["task"][1:]) + 1, "task": "t"} for r in both.rows]
    (change,) = compare(records(rows), "a", "b", by="speed", settings=QUICK).decreases
    first, last = (compare(records([r for r in rows if r["speed"] == v]), "a", "b", settings=QUICK).cells[0]
                   for v in (1, 2))  # fmt: skip
    assert change["difference"] == pytest.approx(last["difference"] - first["difference"]) and change["p"] is None
    assert change["low"] < change["difference"] < change["high"] and change["how"] == pooled["how"]


def test_the_crossed_bootstrap_against_one_written_out() -> None:
    """And cells of other sizes beside it change nothing."""
    few = seeded((0.5, 0.7, 0.9), 0.7, 30)
    one = compare(few, "a", "b", settings=Settings(resamples_n=20_000)).cells[0]
    rows = few.rows
    won = np.array([[int(rows[i]["success_at_end"]) - int(rows[30 * (s + 1) + i]["success_at_end"])
                     for i in range(30)] for s in range(3)])  # fmt: skip
    generator = np.random.default_rng(0)
    weights = [generator.multinomial(n, np.full(n, 1 / n), 20_000) for n in (3, 30)]
    drawn = np.einsum("rs,si,ri->r", weights[0], won, weights[1], optimize=True) / 90
    assert (one["bootstrap_low"], one["bootstrap_high"]) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)
    others = [r | {"task": f"u{r['task']}"} for r in seeded((0.5, 0.5), 0.7, 50, tasks=3).rows]
    beside = compare(records(list(rows), others), "a", "b", settings=Settings(resamples_n=20_000)).cells
    same = next(r for r in beside if r["task"] == "t0")
    assert (same["bootstrap_low"], same["bootstrap_high"]) == (one["bootstrap_low"], one["bootstrap_high"])


def test_how_many_more_pairs_under_a_correction() -> None:
    """Ten cells of which none is told apart: each p would have to be a tenth, whatever it is clipped to."""
    tens = [paired(11, 14, 17, 18, task=f"t{k}") for k in range(10)]
    told = compare(records(*tens), "a", "b", settings=QUICK).cells[0]
    assert told["p"] > 0.7 and told["p_adjusted"] == 1
    alone = compare(records(tens[0]), "a", "b", settings=QUICK).cells[0]
    with jax.enable_x64(True):
        plans = [float(pairs_for_difference(14 / 60, 17 / 60, power=0.8, level=1 - 0.05 / m).n) for m in (1, 10)]
    assert [alone["more_n"], told["more_n"]] == [math.ceil(n + 60 / 3) - 60 for n in plans]
    assert told["more_n"] > 1.7 * alone["more_n"]
    # of ten, one is seen: nine are left (Holm), or it is the second of ten (Benjamini and Hochberg)
    p = np.array([0.001, *[1.0] * 9, np.nan])
    assert (multiplier(p, "holm", 0.05), multiplier(p, "bh", 0.05)) == (9, 5)


def test_many_unpaired_runs_take_a_score_test() -> None:
    a, b = runs("a", [True] * 399 + [False] * 101), runs("b", [True] * 370 + [False] * 130)
    told = compare(records(a, b), "a", "b", pairing="none", settings=QUICK)
    row = told.cells[0]
    chi_square = chi2_contingency([[399, 101], [370, 130]], correction=False).pvalue
    assert row["test"] == "score" and row["p"] == pytest.approx(chi_square, rel=1e-9)
    assert unpaired_p(500, 500, 500, 500) == (1.0, "score") and unpaired_p(0, 10, 9, 10)[1] == "Boschloo"
    # near the size where one takes over from the other they agree
    exact, score = (unpaired_p(k, n, k - 15, n)[0] for k, n in ((100, 150), (101, 151)))
    assert exact == pytest.approx(score, abs=0.012)


def test_a_policy_named_twice_is_compared_once() -> None:
    told = compare(records(paired(10, 30, 4, 6)), "a", ["b", "b"], settings=QUICK)
    assert len(told.cells) == 1 and told.bs == ("b",) and told.cells[0]["p"] == told.cells[0]["p_adjusted"]


def test_conditions_as_one_name() -> None:
    both = records(paired(10, 30, 4, 6, light="dim"), paired(10, 30, 4, 6, light="lit"))
    assert compare(both, "a", "b", conditions="light", settings=QUICK).conditions == ("light",)


def test_cells_follow_every_condition_and_one_that_a_side_lacks() -> None:
    """The expert is told no speed; the learner is told another one than it runs at."""
    a = [r for speed in (1.0, 2.0) for r in runs("a", [True] * 20, speed=speed)]
    b = [
        r
        for speed in (1.0, 2.0)
        for told in (1.0, 2.0)
        for r in runs("b", [speed == told] * 20, speed=speed, told_speed=told)
    ]
    made = compare(records(a, b), "a", "b", by="speed", settings=QUICK)
    assert [(r["speed"], r["told_speed"], r["b_k"], r["pairs_n"]) for r in made.cells] == [
        (1.0, 1.0, 20, 20), (1.0, 2.0, 0, 20), (2.0, 1.0, 0, 20), (2.0, 2.0, 20, 20)
    ]  # fmt: skip
    assert {(r["told_speed"], r["difference"]) for r in made.decreases} == {(1.0, 1.0), (2.0, -1.0)}


def test_bad_settings_are_one_sentence() -> None:
    both = records(paired(10, 30, 4, 6))
    for more, expected in (
        ({"settings": Settings(level=1.5)}, "level is 1.5, expected a number between 0 and 1"),
        ({"settings": Settings(correction="none")}, "correction is 'none', expected holm or bh"),  # type: ignore[arg-type]
        ({"pairing": "maybe"}, "pairing is 'maybe', expected one of required, auto, none"),
        ({"by": "pace"}, "no column 'pace'"),
        ({"success": "success_once"}, "success_once is empty in all"),
        ({"success": "won"}, "success is 'won'"),
    ):
        with pytest.raises(InputError, match=expected):
            compare(both, "a", "b", **({"settings": QUICK} | more))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no policy 'c', found a, b"):
        compare(both, "a", "c", settings=QUICK)
    with pytest.raises(InputError, match="nominal is given and by is not"):
        compare(both, "a", "b", nominal=1, settings=QUICK)
    speeds = records(*(paired(10, 30, 4, 6, speed=v) for v in (1.0, 2.0)))
    for name in ("nominal", "last"):
        with pytest.raises(InputError, match=f"{name} is 7, found 1, 2 in speed; expected one of these"):
            compare(speeds, "a", "b", by="speed", settings=QUICK, **{name: 7})  # type: ignore[arg-type]


def test_a_policy_without_a_run_that_counts() -> None:
    lost = [r | {"excluded": "sensor"} for r in runs("a", [True] * 10)]
    for pairing in ("required", "auto", "none"):
        with pytest.raises(InputError, match=r"a has no run that counts: 10 excluded \(sensor\) of 10"):
            compare(records(lost, runs("b", [True] * 10)), "a", "b", pairing=pairing, settings=QUICK)  # type: ignore[arg-type]
    # in one of two cells: that cell is not known, the other is
    some = records([r | {"speed": 1.0} for r in [*lost, *runs("b", [True] * 10)]], paired(10, 30, 4, 6, speed=2.0))
    told = compare(some, "a", "b", by="speed", settings=QUICK)
    assert [r["verdict"] for r in told.cells] == [
        "not known: a has no run that counts: 10 excluded (sensor) of 10", "a better"
    ]  # fmt: skip
    assert not told.decreases and not told.pooled[0]["left_out_n"] - 1 and "p" in told.cells[0]
    other = [r | {"success_once": r["success_at_end"], "success_at_end": None} for r in runs("b", [True] * 10)]
    with pytest.raises(InputError, match="a has success_at_end only; b has success_once only"):
        compare(records(runs("a", [True] * 10), other), "a", "b", settings=QUICK)


# -------------------------------------------------------------------------------------------------- what is left behind


def test_what_the_terminal_shows() -> None:
    a = [r | {"excluded": "sensor lost" if k < 2 else None} for k, r in enumerate(runs("a", [True] * 40, speed=1.0))]
    b = [r | {"success_once": True} for r in runs("b", [True] * 20 + [False] * 20, speed=1.0)]
    a = [r | {"success_once": True, "initial_condition_hash": None} for r in a]
    fast = [*runs("a", [True] * 30, speed=2.0), *runs("b", [False] * 30, speed=2.0)]
    fast[0]["initial_condition_hash"] = "another"
    told = printed(compare(records(a, b, fast), "a", "b", by="speed", pairing="auto", settings=QUICK))
    for part in (
        "decreases by speed, points [interval]:\n  t, speed 1 to 2: a loses 0.0, b loses 50.0",
        "pooled, a - b in points [interval]:\n  t, a - b: ",
        "1 of 2 cells are compared as unpaired",
        "38 of 38 pairs rest on initial_condition_id alone",
        "a: 2 excluded (sensor lost) of 40",
        "unequal denominators, 38/38 and 20/40: the difference is over the 38 pairs",
        "unpaired: 1 of 30 pairs of equal initial_condition_id did not begin alike",
        "b 20/40 by success_at_end, 40/40 by success_once",
    ):
        assert part in told
    every = records(*(paired(10, 30 - k, 4, 6 + k, task=f"t{k}", initial_condition_hash=None) for k in range(9)))
    told = printed(compare(every, "a", "b", settings=QUICK))
    assert told.count("rest on initial_condition_id alone") == 1


def test_a_speed_that_is_no_number_has_its_figures(tmp_path: Path) -> None:
    both = records(*(paired(10, 30, 4, 6, speed=v) for v in (1.0, math.inf)))
    write_comparison(compare(both, "a", "b", by="speed", settings=QUICK), tmp_path)
    unknown = records(*(paired(10, 30, 4, 6, speed=v) for v in (1.0, None)))
    assert not compare(unknown, "a", "b", by="speed", settings=QUICK).decreases  # an unknown speed is no level
    assert (tmp_path / "figures" / "success.png").is_file()


def test_several_training_seeds_are_written(tmp_path: Path) -> None:
    path = write_comparison(compare(seeded((0.5, 0.7, 0.9), 0.7, 30), "a", "b", settings=QUICK), tmp_path)
    html = path.read_text()
    assert "3 seeds and starts" in html and "too narrow for few seeds" in html
    assert "over seeds and starts and no p" in (tmp_path / "comparison.tex").read_text()


def test_what_is_written(tmp_path: Path, published: Comparison) -> None:
    (tmp_path / "figures").mkdir(parents=True)
    path = write_comparison(published, tmp_path)
    html = path.read_text()
    assert path == tmp_path / "report.html" and "42/42/11/5" in html and "http" not in html.replace("http-equiv", "")
    with open(tmp_path / "comparison.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(published.cells)
    back = next(r for r in rows if (r["task"], r["b"], r["speed"]) == ("parcel", "ACT-A", "2.0"))
    assert float(back["p"]) == cell(published, "ACT-A", 2)["p"] and back["a_k"] == "84"
    latex = (tmp_path / "comparison.tex").read_text()
    assert "53/100, 53 [43, 62]" in latex and r"success\_at\_end" in latex and latex.count(r"\\") == len(rows) + 1
    for name in ("pooled", "decreases", "stages", "causes"):
        assert (tmp_path / f"{name}.csv").is_file()
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {
        f"{n}.png" for n in ("success", "difference", "pairs", "stages", "causes")
    }


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "r.csv"
    lines = [f"a,{k},{k < 30}" for k in range(40)] + [f"b & co,{k},{k < 12}" for k in range(40)] + ["b & co,77,perhaps"]
    source.write_text("\n".join(["policy,start,success", *lines]))
    args = ["compare", f"records={source}", "a=a", "b='b & co'", "columns.initial_condition_id=start"]
    assert main([*args, "resamples_n=2000", f"out={tmp_path}/out"]) == 0
    out, err = capsys.readouterr()
    assert "30/40, 75 [60, 86]" in out and "12/18/0/10" in out and out.splitlines()[-1].startswith("report: ")
    assert "success_at_end is 'perhaps'" in err and "`success` is read as success_at_end" in err
    assert "b &amp; co" in (tmp_path / "out" / "report.html").read_text()
    assert (
        not (tmp_path / "out" / "stages.csv").exists() and not (tmp_path / "out" / "figures" / "success.png").exists()
    )
    assert main(["compare", f"records={source}", "a=a", "b=c", f"out={tmp_path}/none"]) == 1
    assert "no policy 'c', found a, b & co" in capsys.readouterr().err and not (tmp_path / "none").exists()
    head, *body = source.read_text().splitlines()
    for name in ("a", "b"):
        of_it = [line.split(",", 1)[1] for line in body if line.startswith(name)]
        (tmp_path / f"{name}.csv").write_text("\n".join([head.split(",", 1)[1], *of_it[:40]]))
    by_policy = [f"records.{name}={tmp_path}/{name}.csv" for name in ("a", "b")]
    assert main(["compare", *by_policy, "a=a", "b=b", *args[4:], "resamples_n=2000", f"out={tmp_path}/two"]) == 0
    assert "12/18/0/10" in capsys.readouterr().out
    assert main(["compare", "a=a", "b=b"]) == 1
    assert "records is not given" in capsys.readouterr().err


def test_a_plan() -> None:
    rows = plan(p=0.8, half_width=0.05, a=0.84, b=0.53, a_only=0.42, b_only=0.11)
    n = rows[0]["needed_n"]
    widths = [np.ptp(proportion_confint(0.8 * m, m, method="wilson")) / 2 for m in (n - 1, n)]
    assert widths[1] <= 0.05 < widths[0]
    assert [r["needed_n"] for r in rows[1:3]] == [35, 41]  # as the papers' formulas have it, see stats.planning
    for given, expected in (
        ({}, "nothing is asked"),
        ({"a": 0.5}, "a is given and b is not"),
        ({"a": 0.5, "b": 0.5}, "expected to be equal"),
        ({"p": 1.5, "half_width": 0.1}, "p is 1.5, expected"),
    ):
        with pytest.raises(InputError, match=expected):
            plan(**given)


def test_a_plan_for_a_comparison_watched_pair_by_pair() -> None:
    """The mean number of pairs to the end against a simulation of its own: log E by scipy."""
    told = plan(a_only=0.42, b_only=0.11)[1]
    generator = np.random.default_rng(1)
    won = generator.choice([1, -1, 0], p=[0.42, 0.11, 0.47], size=(4000, 400))
    a, b = np.cumsum(won == 1, axis=1), np.cumsum(won == -1, axis=1)
    decided = (a + b) * np.log(2) + betaln(1 + a, 1 + b) >= np.log(20)
    assert decided.any(axis=1).all()
    pairs = decided.argmax(axis=1) + 1
    assert told["needed_n"] == pytest.approx(pairs.mean(), rel=0.06)
    assert int(told["of"].split()[-2]) == pytest.approx(np.quantile(pairs, 0.9), rel=0.08)


def test_the_plan_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "a_only=0.42", "b_only=0.11"]) == 0
    assert " 41 " in capsys.readouterr().out
    assert main(["plan", "power=0.9"]) == 1
    assert "nothing is asked" in capsys.readouterr().err
