"""Metrics as predictors: the form of a hold-out table, against scikit-learn and statsmodels on the same rows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, roc_auc_score

from jaxeval.io.errors import InputError
from jaxeval.report.agreement import latex, table, write
from jaxeval.run.agree import Settings, agree
from jaxeval.run.holdouts import coefficients, held_out, in_order
from jaxeval.stats.estimate import Status

N = 240
SPEED = np.repeat([1.0, 1.5, 2.0], N // 3)
POLICY = np.tile(np.array(["expert", "act"], object), N // 2)


def executions(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A margin, and success that is likelier where it is large and seldom at high speed."""
    rng = np.random.default_rng(seed)
    margin = rng.normal(size=N)
    odds = 1.2 * margin - 1.5 * (SPEED - 1.5) + 0.8 * (POLICY == "expert")
    return margin, rng.uniform(size=N) < 1 / (1 + np.exp(-odds))


def test_each_level_is_held_out_in_turn() -> None:
    margin, won = executions()
    rows = held_out({"margin": margin}, won.astype(object), SPEED.astype(object), by="speed")
    assert [r["held out"] for r in rows] == ["speed = 1", "speed = 1.5", "speed = 2"]
    for row, speed in zip(rows, (1.0, 1.5, 2.0), strict=True):
        test = speed == SPEED
        assert (row["fit_n"], row["test_n"]) == (N - N // 3, N // 3)
        assert row["AUROC"] == pytest.approx(roc_auc_score(won[test], margin[test]), abs=1e-9)
        assert row["balanced_accuracy_0"] == pytest.approx(balanced_accuracy_score(won[test], margin[test] > 0))
        tuned = balanced_accuracy_score(won[test], margin[test] > row["threshold"])
        assert row["balanced_accuracy"] == pytest.approx(tuned)
        model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(margin[~test, None], won[~test])
        p = model.predict_proba(margin[test, None])[:, 1]
        assert row["Brier"] == pytest.approx(brier_score_loss(won[test], p), abs=1e-6)
        base = np.full(test.sum(), won[~test].mean())
        assert row["Brier_0"] == pytest.approx(brier_score_loss(won[test], base), abs=1e-9)
        assert row["status"] == Status.OK.value


def test_fit_levels_are_tested_on_all_others() -> None:
    margin, won = executions()
    (row,) = held_out({"margin": margin}, won.astype(object), SPEED.astype(object), by="speed", fit=[1, 1.5])
    assert (row["held out"], row["fit_n"], row["test_n"]) == ("speed = 2", 2 * N // 3, N // 3)
    (alone,) = held_out({"margin": margin}, won.astype(object), SPEED.astype(object), by="speed", fit=1)
    assert (alone["held out"], alone["fit_n"]) == ("speed = 1.5, 2", N // 3)


def test_unknown_rows_are_left_out_and_one_class_is_told() -> None:
    margin, won = executions()
    success = won.astype(object)
    success[:5], margin[5:8] = None, np.nan
    success[(SPEED == 2.0)] = True
    rows = held_out({"margin": margin}, success, SPEED.astype(object), by="speed")
    assert rows[0]["test_n"] == N // 3 - 8
    assert rows[2]["AUROC"] is None and rows[2]["status"] == Status.ONE_CLASS.value


@pytest.mark.parametrize(
    "levels, fit, said",
    [
        (np.full(N, 1.0, object), None, "at least two"),
        (SPEED.astype(object), [3], "speed has no 3"),
        (SPEED.astype(object), [1, 1.5, 2], "left to test on"),
    ],
)
def test_levels_that_cannot_be(levels: np.ndarray, fit: list[float] | None, said: str) -> None:
    margin, won = executions()
    with pytest.raises(InputError, match=said):
        held_out({"margin": margin}, won.astype(object), levels, by="speed", fit=fit)


def test_coefficients_given_speed_against_statsmodels() -> None:
    margin, won = executions()
    rows = {r["policy"]: r for r in coefficients({"m": margin}, won.astype(object), POLICY, {"speed": SPEED})}
    assert list(rows) == ["expert", "act", "all, each its own intercept"]
    for policy, mine in (("expert", POLICY == "expert"), ("all, each its own intercept", np.ones(N, bool))):
        x = margin[mine]
        columns = [np.ones(mine.sum()), (x - x.mean()) / x.std(), SPEED[mine]]
        columns += [(POLICY == "act").astype(float)] if policy != "expert" else []
        fit = sm.Logit(won[mine], np.stack(columns, axis=1)).fit(disp=0, tol=1e-12)
        low, high = fit.conf_int()[1]
        row = rows[policy]
        assert (row["coefficient"], row["low"], row["high"]) == pytest.approx((fit.params[1], low, high), abs=1e-6)
        assert row["n"] == mine.sum()


def test_order_of_levels() -> None:
    assert in_order([10, 2.5, None, "act", 1, "", "expert"]) == ["1", "2.5", "10", "act", "expert"]
    assert in_order([1234567.0, 1234568.0]) == ["1234567", "1234568"]  # two seeds, not one 1.23457e+06


def test_what_every_policy_has_one_of_is_not_given_beside_its_intercept() -> None:
    margin, won = executions()
    weight = np.where(POLICY == "act", 1.5, 2.0)
    for name, values in (("policy", POLICY), ("weight", weight)):
        with pytest.raises(InputError, match=f"given={name}: it does not vary within any policy"):
            coefficients({"m": margin}, won.astype(object), POLICY, {name: values})
    with pytest.raises(InputError, match="given=speed: it does not vary, expected several levels"):
        coefficients({"m": margin}, won.astype(object), np.full(N, "act", object), {"speed": np.ones(N)})


def test_from_a_table_to_files(tmp_path: Path) -> None:
    margin, won = executions()
    with open(tmp_path / "runs.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["episode", "policy", "speed", "margin", "success_at_end"])
        lines.writerows(zip(range(N), POLICY, SPEED, margin, won, strict=True))
    made = agree(tmp_path / "runs.csv", columns=["margin"], holdout="speed", given=["speed"], settings=Settings())
    assert len(made.held_out) == 3 and len(made.coefficients) == 3
    assert "Success predicted where it was not fitted" in table(made) and r"\label{tab:holdouts}" in latex(made)
    write(made, tmp_path)
    assert len((tmp_path / "holdouts.csv").read_text().splitlines()) == 4
    with pytest.raises(InputError, match="without holdout"):
        agree(tmp_path / "runs.csv", columns=["margin"], fit=[1])
    with pytest.raises(InputError, match="no column 'sped'"):
        agree(tmp_path / "runs.csv", columns=["margin"], holdout="sped")
