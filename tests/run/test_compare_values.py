"""`jaxeval compare value=COLUMN`: each number against another library, what is left out, what is left behind."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from jaxeval.cli import main
from jaxeval.io.errors import InputError
from jaxeval.io.records import Records
from jaxeval.report.comparison_values import ValueComparison, printed, write_value_comparison
from jaxeval.run.compare import Settings, compare
from jaxeval.run.compare_seeds import Stratum, varied_means

QUICK = Settings(resamples_n=1000)
RNG = np.random.default_rng(11)
HARD = RNG.normal(size=12)
A, B = 5 + HARD + 0.3 * RNG.normal(size=12), 4.5 + HARD + 0.3 * RNG.normal(size=12)


def runs(policy: str, values: Any, **more: Any) -> list[dict[str, Any]]:
    """Runs from starts 0, 1, ... with a time each."""
    known = {"policy": policy, "training_seed": None, "task": "t", "episode": None,
             "success_once": None, "success_at_end": None}  # fmt: skip
    return [
        known | {"initial_condition_id": str(k), "initial_condition_hash": f"h{k}", "t_s": v} | more
        for k, v in enumerate(values)
    ]


def records(*parts: list[dict[str, Any]]) -> Records:
    every = tuple(row for part in parts for row in part)
    return Records(every, tuple(f"row {k}" for k in range(1, len(every) + 1)))


def made(*parts: list[dict[str, Any]], settings: Settings = QUICK, **more: Any) -> ValueComparison:
    return compare(records(*parts), "a", "b", value="t_s", settings=settings, **more)


def only(*parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The one row; nothing in it is NaN or infinite."""
    [row] = made(*parts, **more).cells
    assert all(math.isfinite(v) for v in row.values() if isinstance(v, float)), row
    return row


# -------------------------------------------------------------------------------------------------------- the numbers


def test_pairs_are_as_scipy_has_them() -> None:
    row = only(runs("a", A), runs("b", B), settings=replace(QUICK, margin=1.0), better="lower")
    theirs, d = scipy.stats.ttest_rel(A, B), A - B
    assert (row["p"], row["p_adjusted"]) == pytest.approx((theirs.pvalue,) * 2) and row["test"] == "paired t"
    assert (row["low"], row["high"]) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert row["rank_p"] == pytest.approx(scipy.stats.wilcoxon(d).pvalue) and row["rank_test"] == "exact signed-rank"
    assert row["effect"] == pytest.approx(d.mean() / d.std(ddof=1)) and row["effect_of"] == "d_z"
    assert row["effect_low"] < row["effect"] < row["effect_high"] and row["superiority"] == np.mean(d > 0)
    assert (row["a_q1"], row["a_median"], row["a_q3"]) == pytest.approx(tuple(np.percentile(A, (25, 50, 75))))
    assert (row["a_mean"], row["a_sd"]) == pytest.approx((A.mean(), A.std(ddof=1)))
    assert row["median_difference"] == pytest.approx(np.median(d))
    boot = scipy.stats.bootstrap((d,), np.mean, n_resamples=5000, method="percentile", rng=0).confidence_interval
    assert (row["bootstrap_low"], row["bootstrap_high"]) == pytest.approx(tuple(boot), abs=0.05)
    assert row["equivalence_p"] == pytest.approx(ttost_paired(A, B, -1, 1)[0])
    assert row["verdict"] == "b better, though equivalent within 1"
    # those that would come from taking the pairs for strangers
    assert row["p"] < 0.01 < scipy.stats.ttest_ind(A, B, equal_var=False).pvalue


def test_runs_without_shared_starts_are_as_scipy_has_them() -> None:
    b = B[:9] * 3 - 8
    row = only(runs("a", A), runs("b", b), pairing="none")
    theirs = scipy.stats.ttest_ind(A, b, equal_var=False)
    assert row["p"] == pytest.approx(theirs.pvalue) and row["test"] == row["interval"] == "Welch t"
    assert (row["low"], row["high"]) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert row["rank_p"] == pytest.approx(scipy.stats.mannwhitneyu(A, b, method="exact").pvalue)
    assert row["superiority"] == pytest.approx(np.mean(A[:, None] > b)) and row["effect_of"] == "Hedges' g"
    boot = scipy.stats.bootstrap((A, b), lambda x, y, axis: x.mean(axis) - y.mean(axis), n_resamples=5000,
                                 method="percentile", rng=0).confidence_interval  # fmt: skip
    assert (row["bootstrap_low"], row["bootstrap_high"]) == pytest.approx(tuple(boot), abs=0.3)
    assert "unpaired as asked" in row["note"] and row["pairs_n"] == 0


def test_p_is_corrected_over_the_cells_and_cells_are_pooled_by_start() -> None:
    parts = [runs(p, x + shift * (p == "a"), speed=speed) for speed, shift in ((1, 0.0), (2, 0.1)) for p, x in
             (("a", A), ("b", B + 0.3))]  # fmt: skip
    told = made(*parts, by="speed")
    p = [r["p"] for r in told.cells]
    assert [r["p_adjusted"] for r in told.cells] == pytest.approx(multipletests(p, method="holm")[1])
    [pooled] = told.pooled  # every start was run twice, and differs alike: 12 starts, not 24
    d = A - B - 0.25
    half = scipy.stats.t.ppf(0.975, 11) * d.std(ddof=1) / np.sqrt(12)
    assert pooled["difference"] == pytest.approx(d.mean()) and pooled["high"] == pytest.approx(d.mean() + half)
    [change] = told.changes
    assert change["difference"] == pytest.approx(0.1) and change["verdict"].startswith("not known")
    assert change["a_to"] - change["a_from"] == pytest.approx(0.1)


# -------------------------------------------------------------------------------------------------------- the verdict


@pytest.mark.parametrize(
    ("shift", "better", "margin", "verdict"),
    [
        (1.0, "higher", None, "a better"),
        (1.0, "lower", None, "b better"),
        (-1.0, "lower", 0.5, "a better"),
        (1.0, "auto", None, "a higher (which is better was not given)"),
        (0.0, "higher", 1.0, "equivalent within 1"),
        (0.0, "higher", None, "not distinguishable: about"),
    ],
)
def test_verdicts(shift: float, better: str, margin: float | None, verdict: str) -> None:
    d = (A - B) - (A - B).mean() + 0.02 + shift
    row = only(runs("a", B + d), runs("b", B), better=better, settings=replace(QUICK, margin=margin))
    assert row["verdict"].startswith(verdict) and (row["equivalence_p"] is None) == (margin is None)


def test_a_column_that_is_known_says_which_is_better() -> None:
    rows = records(runs("a", A, success=1), runs("b", B, success=1))
    by_length = compare(rows, "a", "b", value="t_s", better="lower", settings=QUICK)
    assert "lower is better" in printed(by_length)
    assert "which is better was not given" in printed(compare(rows, "a", "b", value="t_s", settings=QUICK))


# ---------------------------------------------------------------------------------------------- what cannot be compared


def test_episodes_without_a_number_are_counted_beside() -> None:
    a, b = [None, *A[1:]], [*B[:5], None, None, float("inf"), None, None, None, *B[11:]]
    told = made(runs("a", a), runs("b", b))
    [row] = told.cells
    assert (row["a_n"], row["a_unknown_n"], row["b_n"], row["b_unknown_n"], row["pairs_n"]) == (11, 1, 6, 6, 5)
    theirs = scipy.stats.ttest_rel(np.array(A)[[1, 2, 3, 4, 11]], np.array(B)[[1, 2, 3, 4, 11]])
    assert row["p"] == pytest.approx(theirs.pvalue)
    assert "7 of 12 pairs have no t_s on a side (1 of a alone, 6 of b alone)" in row["note"]
    assert "without t_s: 1 of 12 of a and 6 of 12 of b; the comparison is conditional on having it" in row["note"]
    assert "not run by the other" not in row["note"] and "depends on the policy" not in row["note"]  # p is .07
    assert any("b: t_s is inf in 1 of 12 rows" in note for note in told.notes)
    worse = only(runs("a", A), runs("b", [*B[:5], *[None] * 7]))
    assert "which have one depends on the policy (Fisher's p" in worse["note"]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([2.0] * 8, [1.9] * 8, "a higher"),  # constant: by ranks, 2^(1 - 8)
        ([2.0] * 4, [1.9] * 4, "not distinguishable: about 2 more pairs would tell"),
        ([2.0] * 8, [2.0] * 8, "not distinguishable: no difference was seen"),
        ([2.0], [1.0], "not known: not enough"),
        ([1e9 + x for x in A], [1e9 + x for x in B], "a higher"),
        ([1e300 * x for x in A], [1e300 * x for x in B], "a higher"),
        ([1.0, 1e308], [-1e308, -1e308], "not known: bad input"),
        ([0.1 + 0.2] * 8, [0.3] * 8, "not distinguishable: no difference was seen"),
    ],
)
@pytest.mark.parametrize("pairing", ["required", "none"])
def test_degenerate_values_have_a_sentence(a: list, b: list, verdict: str, pairing: Any) -> None:
    row = only(runs("a", a), runs("b", b), pairing=pairing)
    if pairing == "required":
        assert row["verdict"].startswith(verdict)
    elif len(a) == 1:
        assert row["verdict"].startswith("not known: not enough")
    assert row["verdict"] and "nan" not in row["verdict"]


def test_a_side_without_a_number_in_one_cell_and_in_all() -> None:
    parts = [runs("a", A, speed=1), runs("b", B, speed=1), runs("a", A, speed=2), runs("b", [None] * 12, speed=2)]
    told = made(*parts, by="speed")
    assert told.cells[1]["verdict"] == "not known: b has no run that counts: 12 without t_s of 12"
    with pytest.raises(InputError, match="b has no run that counts: 12 without t_s of 12"):
        made(*parts[2:])


def test_runs_that_did_not_begin_alike_are_refused_as_for_success() -> None:
    other = [row | {"initial_condition_hash": "x"} for row in runs("b", B)]
    with pytest.raises(InputError, match="12 of 12 pairs of equal initial_condition_id did not begin alike"):
        made(runs("a", A), other)
    row = only(runs("a", A), other, pairing="auto")
    assert row["pairing"] == "unpaired" and "did not begin alike" in row["note"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"value": "x"}, "no column 'x', expected it for value=.*give one of t_s"),
        ({"value": "word"}, "row 1: word is 'no', expected a column of numbers; give one of t_s"),
        ({"value": "flag"}, "flag is True, expected a column of numbers; give columns.success_at_end=flag"),
        ({"value": "task"}, "value is task, which is a name"),
        ({"value": "success_once"}, "which is true or false, expected a column of numbers; give success=success_once"),
        ({"value": "t_s", "better": "more"}, "better is 'more', expected one of auto, higher, lower"),
        ({"value": "t_s", "by": "t_s"}, "value is 't_s', which is a condition too"),
        ({"value": "t_s", "success": "success_once"}, "are both given"),
        ({"value": "t_s", "last": 2}, "last is given and by is not"),
        ({"value": "t_s", "settings": Settings(margin=-1)}, "margin is -1, expected a number above 0 in its unit"),
        ({"better": "lower"}, "better is 'lower' and value is not given"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(more: dict[str, Any], sentence: str) -> None:
    rows = records(runs("a", A, word="no", flag=True), runs("b", B, word="no", flag=True))
    with pytest.raises(InputError, match=sentence):
        compare(rows, "a", "b", **more)


# ------------------------------------------------------------------------------------------------------ training seeds


def test_one_seed_and_pairs_give_the_paired_interval() -> None:
    told = varied_means([Stratum(A - B, ["s"] * 12, list(range(12)), 1.0, True)])
    assert told.interval(0.95, math.inf) == pytest.approx(tuple(scipy.stats.ttest_rel(A, B).confidence_interval(0.95)))
    assert told.p() == pytest.approx(scipy.stats.ttest_rel(A, B).pvalue, rel=1e-6)


def test_several_seeds_widen_the_interval_and_replace_the_tests() -> None:
    seeds = [runs("b", B + shift, training_seed=str(k)) for k, shift in enumerate((-0.5, 0.0, 0.5))]
    row = only(runs("a", A, training_seed="0"), *seeds)
    assert row["p"] is row["rank_p"] is row["p_adjusted"] is None and row["interval"] == "seeds and starts (t)"
    alone = only(runs("a", A), runs("b", B))
    assert row["high"] - row["low"] > 2 * (alone["high"] - alone["low"])
    assert row["verdict"].startswith("not distinguishable") and "3 seeds" in row["verdict"]
    assert row["difference"] == pytest.approx((A - B).mean()) and "3 of b" in row["note"]


@pytest.mark.slow
def test_equals_are_rarely_called_different_over_seeds() -> None:
    rng, seen, n = np.random.default_rng(3), {3: 0, 10: 0}, 600
    for seeds_n in seen:
        for _ in range(n):
            of_seed, of_start = rng.normal(size=seeds_n), rng.normal(size=30)
            x = (of_seed[:, None] + of_start + rng.normal(size=(seeds_n, 30))).ravel()
            stratum = Stratum(
                x, np.repeat(range(seeds_n), 30).tolist(), np.tile(range(30), seeds_n).tolist(), 1.0, True
            )
            low, high = varied_means([stratum]).interval(0.95, math.inf)
            seen[seeds_n] += low > 0 or high < 0
    assert all(count / n < 0.07 for count in seen.values()), seen


# ------------------------------------------------------------------------------------------------- what is left behind


def test_the_command_leaves_table_figures_and_page(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "scores.csv"
    rows = [*runs("a", A, speed=1), *runs("b", B, speed=1), *runs("a", A + 1, speed=2), *runs("b", B, speed=2)]
    with open(file, "w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    command = ["compare", f"records={file}", "a=a", "b=b", "value=t_s", "better=lower", "by=speed", "margin=0.2",
               "resamples_n=1000", f"out={tmp_path / 'out'}"]  # fmt: skip
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "t_s: lower is better" in said and "b better" in said and "changes by speed" in said
    for name in ("comparison.csv", "comparison.tex", "changes.csv", "pooled.csv", "report.html"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    assert {p.name for p in (tmp_path / "out" / "figures").iterdir()} == {"values.png", "difference.png", "samples.png"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/png") == 3 and "two one-sided t tests place the difference within 0.2" in page
    table = list(csv.DictReader((tmp_path / "out" / "comparison.csv").read_text().splitlines()))
    assert float(table[0]["p"]) == pytest.approx(scipy.stats.ttest_rel(A, B).pvalue)


def test_a_page_without_an_interval(tmp_path: Path) -> None:
    told = compare(records(runs("a", [2.0], task="<t>"), runs("b", [1.0], task="<t>")), "a", "b", value="t_s")
    write_value_comparison(told, tmp_path)
    assert "not known" in (tmp_path / "report.html").read_text() and "no data" not in printed(told)
