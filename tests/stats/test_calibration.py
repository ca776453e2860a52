"""Prediction of success against scikit-learn, statsmodels, counts by hand and the tables of a public release."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import sklearn.metrics
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from jaxeval.stats import calibration as C
from jaxeval.stats.estimate import Status
from jaxeval.stats.logistic import dummies, logistic_fit, predict, standardised

ROWS_N = 40
PUBLISHED = json.loads((resources.files("jaxeval") / "data" / "parcelstow" / "force_closure.json").read_text())


@jax.jit
def judged(score: Any, success: Any, valid: Any, probability: Any) -> dict[str, Any]:
    return {
        "auroc": C.auroc(score, success, valid),
        "youden": C.youden(score, success, valid),
        "balanced": C.balanced_accuracy(score, success, valid, threshold=0.3),
        "brier": C.brier(probability, success, valid),
        "base": C.brier_base_rate(success, valid, base_rate=0.7),
        "quantile": C.quantile_bins(probability, success, valid, bins_n=5),
        "width": C.width_bins(probability, success, valid, bins_n=10),
    }


fit = jax.jit(logistic_fit)
area = jax.jit(C.auroc)
moved = jax.jit(C.transfer)


def padded(*columns: np.ndarray) -> list[np.ndarray]:
    """Columns filled up to ROWS_N with rows that do not count, after the mask of those that do."""
    rows = ROWS_N - len(columns[0])
    valid = np.arange(ROWS_N) < len(columns[0])
    fill = [np.nan if c.dtype.kind == "f" else True for c in columns]
    widths = [((0, rows), *[(0, 0)] * (c.ndim - 1)) for c in columns]
    return [valid, *(np.pad(c, w, constant_values=f) for c, w, f in zip(columns, widths, fill, strict=True))]


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Score (tied half of the time), success of both kinds, predicted probability."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, ROWS_N + 1))
    won = rng.uniform(size=n) < rng.uniform(0.2, 0.8)
    won[:2] = True, False
    score = rng.normal(size=n) + won * rng.uniform(-1, 3)
    if seed % 2:
        score = np.round(score)
    p = np.round(rng.uniform(size=n), 1) if seed % 3 else rng.uniform(size=n)
    score[:2] = 0.5, 0.75
    return score, won, p


def told(made: Any) -> str:
    return Status.of(made.status).name


# ------------------------------------------------------------------------------------------------------- scikit-learn


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31 - 1))
def test_scikit_learn_gives_the_same(seed: int) -> None:
    score, won, p = draw(seed)
    valid, score_, won_, p_ = padded(score, won, p)
    with jax.enable_x64(True):
        made = jax.tree.map(np.asarray, judged(score_, won_, valid, p_))
    a = made["auroc"]
    assert float(a.value) == pytest.approx(sklearn.metrics.roc_auc_score(won, score), abs=1e-12)
    assert (int(a.successes_n), int(a.failures_n)) == (won.sum(), (~won).sum())
    expected = sklearn.metrics.balanced_accuracy_score(won, score > 0.3)
    assert float(made["balanced"].value) == pytest.approx(expected, abs=1e-12)
    assert 0 <= made["balanced"].low < expected < made["balanced"].high <= 1 or expected in (0, 1)
    false, true, _ = sklearn.metrics.roc_curve(won, score)
    t = made["youden"]
    assert max(float(t.j), 0) == pytest.approx(np.max(true - false), abs=1e-12)
    above = score > t.threshold
    assert above.any() and not above.all()  # it separates
    assert float(t.j) == pytest.approx(above[won].mean() - above[~won].mean(), abs=1e-12)
    assert float(made["brier"].value) == pytest.approx(sklearn.metrics.brier_score_loss(won, p), abs=1e-12)
    assert float(made["base"].value) == pytest.approx(np.mean((0.7 - won) ** 2), abs=1e-12)

    edges = np.quantile(p, [0.2, 0.4, 0.6, 0.8])
    for bins, index in ((made["quantile"], (p[:, None] > edges).sum(axis=1)), (made["width"], np.ceil(p * 10) - 1)):
        for b in range(len(bins.n)):
            mine = np.maximum(index, 0) == b
            if bins is made["width"] and np.any(np.abs(p * 10 - np.round(p * 10)) < 1e-9):
                continue  # .3 is not 3/10
            assert bins.n[b] == mine.sum()
            if mine.any():
                np.testing.assert_allclose([bins.predicted[b], bins.observed[b]], [p[mine].mean(), won[mine].mean()])
        gap = np.nansum(bins.n * np.abs(bins.predicted - bins.observed)) / len(p)
        assert float(C.ece(bins).value) == pytest.approx(gap, abs=1e-6)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31 - 1))
def test_ends_of_auroc_solve_their_equation(seed: int) -> None:
    score, won, _ = draw(seed)
    valid, score_, won_ = padded(score, won)
    with jax.enable_x64(True):
        a = area(score_, won_, valid)
    value, m, f = float(a.value), int(a.successes_n), int(a.failures_n)
    z, c = scipy.stats.norm.ppf(0.975), (m + f) / 2 - 1

    def beyond(t: float) -> float:
        return (value - t) ** 2 - z * z * t * (1 - t) * (1 + c * (1 - t) / (2 - t) + c * t / (1 + t)) / (m * f)

    for end, bound in ((float(a.low), 1e-12), (float(a.high), 1 - 1e-12)):
        if value in (0, 1) and abs(value - bound) < 1e-9:
            assert end == value
        else:
            inner = value + (bound - value) * 1e-9
            assert end == pytest.approx(scipy.optimize.brentq(beyond, bound, inner), abs=1e-7)
    assert float(a.low) < float(a.high)


def test_area_by_hand_and_its_laws() -> None:
    """Successes 3, 2, 1 against failures 1, 0: of six pairs five are won and one is tied."""
    score, won = np.array([3, 2, 1, 1, 0.0]), np.array([1, 1, 1, 0, 0], bool)
    valid, score_, won_ = padded(score, won)
    a = area(score_, won_, valid)
    assert float(a.value) == pytest.approx(5.5 / 6) and not np.isclose(a.value, [5 / 6, 1.0]).any()
    np.testing.assert_allclose(np.array(area(np.exp(score_), won_, valid))[:3], np.array(a)[:3], rtol=1e-6)
    np.testing.assert_allclose(area(-score_, won_, valid).value, 1 - a.value, atol=1e-6)
    np.testing.assert_allclose(area(score_, ~won_, valid).value, 1 - a.value, atol=1e-6)
    sure = area(*(c for c in padded(np.arange(6.0), np.arange(6) > 2)[1:]), padded(np.arange(6.0))[0])
    assert float(sure.value) == 1 and float(sure.high) == 1 and 0.3 < float(sure.low) < 0.9  # and not of zero width
    equal = area(np.ones(ROWS_N), np.arange(ROWS_N) > 9, None)
    assert float(equal.value) == 0.5 and told(equal) == "OK"


# -------------------------------------------------------------------------------------------------------- logistic fits


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**31 - 1))
def test_statsmodels_and_scikit_learn_fit_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, ROWS_N + 1))
    x = rng.normal(size=(n, 2)) * [1, 30] + [5, -200]
    won = rng.uniform(size=n) < 1 / (1 + np.exp(-(x[:, 0] - 5) - 0.02 * (x[:, 1] + 200)))
    won[:2] = True, False
    valid, x_, won_ = padded(x, won)
    with jax.enable_x64(True):
        made = jax.tree.map(np.asarray, fit(x_, won_, valid))
    if told(made) == "DEGENERATE":
        return  # separated: the next test
    theirs = sm.Logit(won.astype(float), sm.add_constant(x)).fit(disp=0, maxiter=200)
    np.testing.assert_allclose(made.coefficients, theirs.params, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(made.standard_error, theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(np.stack([made.low, made.high], 1), theirs.conf_int(), rtol=1e-6, atol=1e-6)
    other = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000, solver="newton-cholesky").fit(x, won)
    np.testing.assert_allclose(predict(made, x), other.predict_proba(x)[:, 1], atol=1e-5)


@pytest.mark.parametrize("x64", [True, False])
def test_a_margin_with_failures_far_below_still_fits(x64: bool) -> None:
    """No closure is a margin of -1 and always a failure; what decides lies between 0 and .003."""
    rng = np.random.default_rng(4)
    margin = np.where(rng.uniform(size=1500) < 0.15, -1.0, rng.uniform(0, 0.003, 1500))
    won = (margin > -1) & (rng.uniform(size=1500) < 1 / (1 + np.exp(np.clip(-900 * (margin - 5e-4), -50, 50))))
    closed = margin > -1
    theirs = sm.Logit(won[closed].astype(float), sm.add_constant(margin[closed] * 1e3)).fit(disp=0)
    with jax.enable_x64(x64):
        made = fit(margin[:, None], won, None)
    assert told(made) == "OK"  # the far failures have probability 0 and no say in it
    np.testing.assert_allclose(made.coefficients, theirs.params * [1, 1e3], rtol=1e-6 if x64 else 1e-4)
    np.testing.assert_allclose(made.standard_error, theirs.bse * [1, 1e3], rtol=1e-6 if x64 else 1e-4)


@pytest.mark.parametrize("x64", [True, False])
def test_fits_that_do_not_exist_say_why(x64: bool) -> None:
    rng = np.random.default_rng(0)
    x, coin = rng.normal(size=(ROWS_N, 2)), rng.uniform(size=ROWS_N) < 0.5
    row = np.arange(ROWS_N)
    tied = np.stack([np.repeat(np.arange(20.0), 2), x[:, 0]], 1)
    cases = {
        "separated": (np.stack([row * 1.0, x[:, 0]], 1), row > 15, "DEGENERATE"),
        "separated but for a tie": (tied, row > 20, "DEGENERATE"),
        "separated by a group": (np.stack([x[:, 0], row < 10], 1), coin | (row < 10), "DEGENERATE"),
        "twice the same": (np.repeat(x[:, :1], 2, axis=1), coin, "DEGENERATE"),
        "constant": (np.stack([x[:, 0], np.full(ROWS_N, 0.1)], 1), coin, "DEGENERATE"),
        "one class": (x, np.ones(ROWS_N, bool), "ONE_CLASS"),
        "not finite": (np.where(row[:, None] == 3, np.inf, x), coin, "BAD_INPUT"),
        "fine": (x, coin, "OK"),
    }
    with jax.enable_x64(x64):
        for name, (features, won, expected) in cases.items():
            made = fit(features, won, np.ones(ROWS_N, bool))
            assert told(made) == expected, name
            assert np.isnan(made.coefficients).all() == (expected != "OK")
        assert told(fit(x, coin, np.zeros(ROWS_N, bool))) == "NO_DATA"


def test_standardised_features_and_fixed_effects() -> None:
    """A coefficient by one standard deviation is the raw one times it; dummies are statsmodels' categories."""
    rng = np.random.default_rng(7)
    x, policy = rng.normal(3, 2, 300), rng.integers(0, 3, 300)
    won = rng.uniform(size=300) < 1 / (1 + np.exp(-(x - 3) * 0.4 - policy))
    with jax.enable_x64(True):
        columns = np.concatenate([np.asarray(standardised(x[:, None])), np.asarray(dummies(policy, levels_n=3))], 1)
        made = jax.tree.map(np.asarray, fit(columns, won))
    theirs = sm.Logit(won.astype(float), sm.add_constant(np.stack([x, policy == 1, policy == 2], 1).astype(float)))
    params = theirs.fit(disp=0).params
    np.testing.assert_allclose(made.coefficients[1:], params[1:] * [x.std(), 1, 1], rtol=1e-6)


# ------------------------------------------------------------------------------------------- facts of a public release


def closure_rows(cell: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The sign of the margin and the success of every acquisition of a cell."""
    closed, open_, k = cell["closure_n"], cell["no_closure_n"], cell["closure_successes"]
    return np.repeat([1.0, -1.0], [closed, open_]), np.arange(closed + open_) < k


def test_balanced_accuracy_at_zero_of_every_published_cell() -> None:
    told_n = 0
    for cell in PUBLISHED["cells"]:
        margin, won = closure_rows(cell)
        rows = np.zeros(100), np.zeros(100, bool), np.arange(100) < len(margin)
        rows[0][: len(margin)], rows[1][: len(margin)] = margin, won
        made = judged_at_zero(*rows)
        if not 0 < cell["closure_successes"] < len(margin):
            assert cell["balanced_accuracy_0"] is None
            assert told(made) == ("NO_DATA" if not len(margin) else "ONE_CLASS")
        elif cell["balanced_accuracy_0"] is not None:  # of two policies nothing was published
            assert float(made.value) == pytest.approx(cell["balanced_accuracy_0"], abs=1e-6)
            told_n += 1
    assert told_n >= 20


base_rate = jax.jit(C.brier_base_rate)
judged_at_zero = jax.jit(lambda score, won, valid: C.balanced_accuracy(score, won, valid, threshold=0.0))


def test_area_is_its_share_decided_by_closure_and_the_rest() -> None:
    """No success without closure: AUROC = open / F + (1 - open / F) AUROC among the closed."""
    rng = np.random.default_rng(1)
    margin = np.where(rng.uniform(size=ROWS_N) < 0.3, -1.0, rng.uniform(0, 1, ROWS_N))
    won = (margin > 0) & (rng.uniform(size=ROWS_N) < 0.5)
    whole, closed = area(margin, won, np.ones(ROWS_N, bool)), area(margin, won, margin > 0)
    share = (margin <= 0).sum() / (~won).sum()
    assert 0.1 < share < 0.9
    assert float(whole.value) == pytest.approx(share + (1 - share) * float(closed.value), abs=1e-6)


def test_published_calibration_errors_follow_from_published_bins() -> None:
    assert len(PUBLISHED["transfers"]) == 11
    for row in PUBLISHED["transfers"]:
        n, predicted, observed = (np.array(column) for column in zip(*row["reliability"], strict=True))
        made = C.ece(C.Bins(n, predicted, observed))
        assert float(made.value) == pytest.approx(row["ece"], abs=1e-6), row
        won, valid = np.arange(1200) < row["test_successes"], np.arange(1200) < row["test_n"]
        base = base_rate(won, valid, base_rate=row["fit_successes"] / row["fit_n"])
        assert float(base.value) == pytest.approx(row["brier_base_rate"], abs=1e-6), row


def test_bins_of_the_release_come_of_its_ties() -> None:
    """250 of 1,132 predictions tied at the lowest: bins of 250, 203, 226, 226, 227, as published for one margin."""
    p = np.concatenate([np.full(250, 1e-4), np.linspace(0.82, 0.83, 882)])
    bins = jax.jit(C.quantile_bins)(p, np.zeros(1132, bool))
    assert bins.n.tolist() == [250, 203, 226, 226, 227]
    tied = np.concatenate([np.linspace(0.1, 0.2, 27), np.full(1105, 0.8)])
    assert sorted(jax.jit(C.quantile_bins)(tied, np.zeros(1132, bool)).n.tolist()) == [0, 0, 0, 0, 1132]


# ------------------------------------------------------------------------------------------------------------- transfer


def test_hold_outs_never_overlap() -> None:
    speed = np.array([0, 1, 2, 3, 1, 0])
    kept, tested = C.holdout(speed, fit=(0, 1), test=(2,))
    assert not np.any(kept & tested) and kept.tolist() == [True, True, False, False, True, True]
    with pytest.raises(ValueError, match=r"\[1\]"):
        C.holdout(speed, fit=(0, 1), test=(1, 2))
    kept, tested = C.leave_one_out(speed, levels_n=4)
    assert not np.any(kept & tested) and np.all(kept | tested) and tested.sum(axis=1).tolist() == [2, 2, 1, 1]


def test_transfer_is_its_parts() -> None:
    rng = np.random.default_rng(11)
    score, won = rng.normal(size=400), rng.uniform(size=400) < 0.5
    score += won * 0.8
    kept, tested = np.arange(400) < 250, np.arange(400) >= 260
    with jax.enable_x64(True):
        made = jax.tree.map(np.asarray, moved(score, won, kept, tested))
    assert (int(made.fit_n), int(made.test_n)) == (250, 140)
    model = sm.Logit(won[kept].astype(float), sm.add_constant(score[kept])).fit(disp=0)
    p = model.predict(sm.add_constant(score[tested]))
    false, true, _ = sklearn.metrics.roc_curve(won[kept], score[kept])
    assert float(made.threshold.j) == pytest.approx(np.max(true - false))
    truth = won[tested]
    for got, expected in (
        (made.auroc, sklearn.metrics.roc_auc_score(truth, score[tested])),
        (
            made.balanced_accuracy,
            sklearn.metrics.balanced_accuracy_score(truth, score[tested] > made.threshold.threshold),
        ),
        (made.balanced_accuracy_zero, sklearn.metrics.balanced_accuracy_score(truth, score[tested] > 0)),
        (made.brier, sklearn.metrics.brier_score_loss(truth, p)),
        (made.brier_base_rate, np.mean((won[kept].mean() - truth) ** 2)),
    ):
        assert told(got) == "OK" and float(got.value) == pytest.approx(expected, abs=1e-7)
    assert 0 < float(made.ece.value) < 0.3


def test_transfer_says_what_is_missing() -> None:
    rng = np.random.default_rng(2)
    score, won, half = rng.normal(size=ROWS_N), rng.uniform(size=ROWS_N) < 0.5, np.arange(ROWS_N) < 20
    overlap = moved(score, won, half, np.ones(ROWS_N, bool))
    for part in overlap[4:]:
        assert told(part) == "BAD_INPUT"
    sure = moved(score, np.where(half, score > 0, won), half, ~half)  # the fit rows are separated
    assert told(sure.logistic) == told(sure.brier) == told(sure.ece) == "DEGENERATE" and np.isnan(sure.brier.value)
    assert told(sure.threshold) == told(sure.auroc) == told(sure.balanced_accuracy) == "OK"
    one = moved(score, np.where(half, won, True), half, ~half)  # the test rows all succeed
    assert told(one.auroc) == told(one.balanced_accuracy) == "ONE_CLASS" and told(one.brier) == "OK"
    none = moved(score, won, np.zeros(ROWS_N, bool), half)
    assert told(none.threshold) == told(none.balanced_accuracy) == told(none.brier_base_rate) == "NO_DATA"
    assert told(none.auroc) == "OK" and np.isnan(none.fit_success)


# ---------------------------------------------------------------------------------------------------------- what is not


@pytest.mark.parametrize("x64", [True, False])
def test_what_is_undefined_says_why(x64: bool) -> None:
    won = np.arange(10) > 4
    cases = (
        (np.arange(10.0), np.ones(10, bool), "ONE_CLASS"),
        (np.arange(10.0), np.zeros(10, bool), "ONE_CLASS"),
        (np.zeros(0), np.zeros(0, bool), "NO_DATA"),
        (np.where(won, np.nan, 1.0), won, "BAD_INPUT"),
        (np.where(won, np.inf, 1.0), won, "BAD_INPUT"),
    )
    with jax.enable_x64(x64):
        for score, success, expected in cases:
            valid, score_, won_ = padded(score, success)
            made = judged(score_, won_, valid, np.where(valid, 0.5, np.nan))
            for name in ("auroc", "youden", "balanced"):
                assert told(made[name]) == expected and np.isnan(made[name][0]), (name, expected)
        valid, score_, won_ = padded(np.full(10, 0.1), won)
        made = judged(score_, won_, valid, score_ * 20)
        assert told(made["youden"]) == "CONSTANT" and told(made["auroc"]) == "OK" and told(made["brier"]) == "BAD_INPUT"
        empty = judged(score_, won_, np.zeros(ROWS_N, bool), score_)
        assert told(empty["brier"]) == told(empty["base"]) == told(C.ece(empty["quantile"])) == "NO_DATA"
        assert empty["quantile"].n.tolist() == [0] * 5


def test_groups_and_mapped_cells() -> None:
    rng = np.random.default_rng(3)
    score, won, group = rng.normal(size=ROWS_N), rng.uniform(size=ROWS_N) < 0.5, np.arange(ROWS_N) % 4
    won = won & (group != 2)
    pooled, each = jax.jit(C.auroc_by_group, static_argnames="groups_n")(score, won, group, groups_n=4)
    assert told(pooled) == "OK" and [Status.of(s).name for s in each.status] == ["OK", "OK", "ONE_CLASS", "OK"]
    assert int(each.successes_n[2]) == 0 and int(each.failures_n[2]) == 10
    for g in (0, 1, 3):
        expected = sklearn.metrics.roc_auc_score(won[group == g], score[group == g])
        assert float(each.value[g]) == pytest.approx(expected, abs=1e-6)
    assert jnp.result_type(float) == pooled.value.dtype
