"""`jaxeval compare` and `jaxeval plan`: published numbers, an oracle for each kind of number, what is left behind."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import binomtest, boschloo_exact
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from jaxeval.cli import main
from jaxeval.io.errors import InputError
from jaxeval.io.records import Records
from jaxeval.report.comparison import Comparison, write_comparison
from jaxeval.run.compare import Settings, compare
from jaxeval.run.plan import plan

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
    assert told["p"] < 1e-9 and told["low"] > 0.2  # of these three seeds
    assert told["seeds_low"] == 0 and told["seeds_high"] > told["high"]  # of seeds like these
    assert told["verdict"] == "not distinguishable: training seeds differ too much (3 seeds)"
    assert "several training seeds" in told["note"]
    alike = [r for seed in range(3) for r in runs("b", [False] * 30 + [True] * 10, training_seed=seed)]
    assert compare(records(a, alike), "a", "b", settings=QUICK).cells[0]["verdict"] == "a better"


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


# -------------------------------------------------------------------------------------------------- what is left behind


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
        ({"p": 1.5, "half_width": 0.1}, "rates between 0 and 1"),
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
