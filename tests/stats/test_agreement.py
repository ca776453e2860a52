"""Agreement of raters against published tables, stored values of other packages, and an analysis of variance."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import statsmodels.formula.api as smf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from statsmodels.stats.anova import anova_lm

from jaxeval.stats.agreement import Agreement, alpha_bootstrap, f_quantile, icc_2_1, icc_2_k, krippendorff_alpha
from jaxeval.stats.estimate import Status

PEERS = json.loads((Path(__file__).parents[1] / "golden" / "agreement_peers.json").read_text())
SCALES = ("nominal", "ordinal", "interval")
ITEMS_N, RATERS_N = 13, 5

iccs = jax.jit(lambda ratings, valid: (icc_2_1(ratings, valid), icc_2_k(ratings, valid)))
alpha = jax.jit(krippendorff_alpha, static_argnames="scale")
boot = jax.jit(alpha_bootstrap, static_argnames=("scale", "resamples_n"))

# Shrout & Fleiss 1979, table 2: six targets, four judges
JUDGES = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float)
# Krippendorff 2011: four observers, twelve units, 0 where one said nothing
OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
).T


def status(made: Agreement) -> Status:
    return Status.of(made.status)


def one(ratings: np.ndarray, valid: np.ndarray | None = None) -> Agreement:
    return iccs(ratings, valid)[0]


def mean(ratings: np.ndarray, valid: np.ndarray | None = None) -> Agreement:
    return iccs(ratings, valid)[1]


def padded(ratings: np.ndarray, valid: np.ndarray | None = None, *, raters_n: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Filled up to ITEMS_N items (and raters) with what does not count, and is no number."""
    valid = np.ones(ratings.shape, bool) if valid is None else valid
    more = ((0, ITEMS_N - len(ratings)), (0, max(raters_n - ratings.shape[1], 0)))
    return np.pad(ratings, more, constant_values=np.nan), np.pad(valid, more)


# ------------------------------------------------------------------------------------------------------------ published


def test_intraclass_correlations_of_the_published_table() -> None:
    with jax.enable_x64(True):
        r, r_k = one(JUDGES), mean(JUDGES)
    assert round(float(r.value), 2) == 0.29 and round(float(r_k.value), 2) == 0.62
    # by hand from its mean squares 11.2417 (targets), 32.4861 (judges), 1.0194 (residual)
    assert r.value == pytest.approx((11.241667 - 1.019444) / (11.241667 + 3 * 1.019444 + 4 * 31.466667 / 6), abs=1e-6)
    np.testing.assert_allclose([r.low, r.high, r_k.low, r_k.high], [0.019, 0.761, 0.071, 0.927], atol=5e-4)
    for wrong in (0.17, 0.71, 0.44, 0.91):  # ICC(1,1), ICC(3,1), ICC(1,4), ICC(3,4) of the same table
        assert abs(float(r.value) - wrong) > 0.08 and abs(float(r_k.value) - wrong) > 0.08


def test_alpha_of_krippendorffs_examples() -> None:
    there = OBSERVERS > 0
    found = [alpha(*padded(OBSERVERS * 1.0, there, raters_n=RATERS_N), scale=scale).value for scale in SCALES]
    np.testing.assert_allclose(found, [0.743, 0.815, 0.849], atol=5e-4)
    for words, value in ((("0100000010", "1110010000"), 0.095), (("aabbdcccedda", "babbbccceddd"), 0.692)):
        letters = np.array([[float(ord(c)) for c in word] for word in words]).T
        assert alpha(*padded(letters, raters_n=RATERS_N), scale="nominal").value == pytest.approx(value, abs=5e-4)


def test_one_disagreement_in_nineteen_is_no_agreement_beyond_chance() -> None:
    ratings = np.ones((19, 2))
    ratings[7, 1] = 2
    for scale in SCALES:
        made = alpha(ratings, scale=scale)
        assert abs(float(made.value)) < 1e-6 and status(made) is Status.OK  # and not 18/19


# ---------------------------------------------------------------------------------------------------- other packages


@pytest.mark.parametrize("study", PEERS["studies"], ids=range(20))
def test_values_and_intervals_of_other_packages(study: dict) -> None:
    ratings = np.array(study["ratings"])
    there = np.ones(ratings.shape, bool)
    for item, rater in study["missing"]:
        there[item, rater] = False
    with jax.enable_x64(True):
        for made, (value, low, high) in ((one, study["icc_2_1"]), (mean, study["icc_2_k"])):
            r = made(*padded(ratings))
            assert r.items_n == len(ratings)
            np.testing.assert_allclose([r.value, r.high], [value, high], atol=1e-9)
            if low <= value:
                np.testing.assert_allclose(r.low, low, atol=1e-9)
            else:  # there the package says 79.8 for the low end of ICC(2,k) = 0: 1 + (k - 1) r is negative
                assert r.low == -np.inf
        for scale, value in study["alpha"].items():
            got = alpha(*padded(ratings, there, raters_n=RATERS_N), scale=scale)
            np.testing.assert_allclose(got.value, value, atol=1e-9)
            assert got.items_n == (there.sum(axis=1) >= 2).sum()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31 - 1))
def test_mean_squares_are_those_of_an_analysis_of_variance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, ITEMS_N)), RATERS_N
    x = rng.normal(size=(n, 1)) + rng.normal(size=(1, k)) + rng.normal(size=(n, k)) + 50
    there = np.ones((n, k), bool)
    there[rng.integers(n), rng.integers(k)] = False  # one item is not complete
    whole = there.all(axis=1)
    table = pd.DataFrame(
        {"x": x[whole].ravel(), "item": np.repeat(np.arange(n - 1), k), "rater": np.tile(range(k), n - 1)}
    )
    ms = anova_lm(smf.ols("x ~ C(item) + C(rater)", table).fit()).eval("sum_sq / df").to_numpy()
    with jax.enable_x64(True):
        r, r_k = jax.tree.map(float, iccs(*padded(x, there)))
    assert r.items_n == n - 1
    np.testing.assert_allclose(
        r.value, (ms[0] - ms[2]) / (ms[0] + (k - 1) * ms[2] + k * (ms[1] - ms[2]) / (n - 1)), atol=1e-9
    )
    if status(r_k) is Status.OK:
        np.testing.assert_allclose(r_k.value, (ms[0] - ms[2]) / (ms[0] + (ms[1] - ms[2]) / (n - 1)), rtol=1e-8)
        assert r_k.low <= r_k.value <= r_k.high <= 1 + 1e-12
    assert r.low <= r.value <= r.high <= 1


@pytest.mark.parametrize("x64", [True, False])
def test_quantiles_of_f(x64: bool) -> None:
    rng = np.random.default_rng(3)
    tail = rng.choice([0.005, 0.025, 0.1], 200)
    d1, d2 = np.exp(rng.uniform(0, np.log(1e5), (2, 200)))
    with jax.enable_x64(x64):
        found = jax.jit(jax.vmap(f_quantile))(tail, d1, d2)
    np.testing.assert_allclose(found, scipy.stats.f.isf(tail, d1, d2), rtol=1e-10 if x64 else 3e-3)


# ----------------------------------------------------------------------------------------------------------------- laws


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31 - 1))
@example(823)  # four complete items on which raters agree so little that ICC(2,k) is undefined
def test_order_unit_and_names_do_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.clip(np.round(rng.normal(3, 1, (ITEMS_N, 1)) + rng.normal(0, 1, (ITEMS_N, RATERS_N))), 1, 5)
    x[:2, 0] = 1, 5  # not all the same
    there = rng.uniform(size=x.shape) > 0.2
    there[:4] = True
    rows, raters = rng.permutation(ITEMS_N), rng.permutation(RATERS_N)
    with jax.enable_x64(True):
        for made in (one, mean, *(partial(alpha, scale=scale) for scale in SCALES)):
            base = made(x, there)
            assert base.value <= 1 or (made is mean and status(base) is Status.DEGENERATE)
            np.testing.assert_allclose(made(x[rows][:, raters], there[rows][:, raters]), base, atol=1e-9)
            np.testing.assert_allclose(made(7 * x - 30, there), base, atol=1e-8)
        codes = rng.permutation(6)
        assert float(alpha(codes[x.astype(int)], there, scale="nominal").value) == pytest.approx(
            float(alpha(x, there, scale="nominal").value), abs=1e-12
        )
        assert float(alpha(np.exp(x), there, scale="ordinal").value) == pytest.approx(
            float(alpha(x, there, scale="ordinal").value), abs=1e-12
        )


def test_two_raters_nominal_alpha_by_hand() -> None:
    """Coincidences aa 4, ab 1, ba 1, bb 4 of ten ratings: 1 - 9 x 2 / (2 x 25)."""
    ratings = np.array([[0, 0], [0, 0], [1, 1], [1, 1], [0, 1]])
    assert alpha(ratings, scale="nominal").value == pytest.approx(1 - 9 * 2 / 50, abs=1e-6)


def test_mapped_over_studies_it_is_the_loop() -> None:
    x = np.random.default_rng(0).normal(size=(3, ITEMS_N, RATERS_N)).astype(np.float32)
    valid = np.ones(x.shape[1:], bool)
    for made in (lambda x: iccs(x, valid), lambda x: alpha(x, valid, scale="ordinal")):
        together = jax.vmap(made)(x)
        for i, alone in enumerate(map(made, x)):
            got = jax.tree.map(lambda field, i=i: field[i], together)
            np.testing.assert_allclose(np.ravel(got), np.ravel(alone), rtol=1e-4)


# ------------------------------------------------------------------------------------------------------------ bootstrap


def test_bootstrap_is_the_quantiles_of_alpha_of_resampled_items() -> None:
    rng = np.random.default_rng(5)
    x = np.clip(np.round(rng.normal(3, 1, (40, 1)) + rng.normal(0, 0.8, (40, RATERS_N))), 1, 5)
    there = rng.uniform(size=x.shape) > 0.2
    counted = np.flatnonzero(there.sum(axis=1) >= 2)
    rows = rng.choice(counted, (1000, counted.size))
    for scale in SCALES:
        made = boot(jax.random.key(1), x, there, scale=scale, resamples_n=1000)
        again = boot(jax.random.key(1), x, there, scale=scale, resamples_n=1000)
        assert [float(v) for v in made] == [float(v) for v in again]
        assert float(made.value) == pytest.approx(float(alpha(x, there, scale=scale).value), abs=1e-6)
        drawn = jax.vmap(partial(alpha, scale=scale))(x[rows], there[rows]).value
        np.testing.assert_allclose([made.low, made.high], np.quantile(drawn, [0.025, 0.975]), atol=0.03)


def test_bootstrap_leaves_out_resamples_in_which_nothing_varies() -> None:
    ratings = np.ones((6, 2))
    ratings[0] = [2, 2]  # (5/6)^6, a third of the resamples, miss it
    made = boot(jax.random.key(0), ratings, scale="ordinal", resamples_n=200)
    assert status(made) is Status.DEGENERATE and made.value == 1 and np.isnan(made.low) and np.isnan(made.high)
    ratings = np.repeat(np.arange(6.0)[:, None], 2, axis=1)  # a resample of one item alone: 6 in 46,656
    made = boot(jax.random.key(0), ratings, scale="interval", resamples_n=200)
    assert status(made) is Status.CONSTANT and made.low == made.high == made.value == 1  # a warning
    made = boot(jax.random.key(0), np.tile([1.0, 2.0], (6, 1)), scale="interval", resamples_n=200)
    assert status(made) is Status.CONSTANT and made.low == made.high == made.value < 0
    made = boot(jax.random.key(0), np.array([[1.0, 2.0]]), scale="interval", resamples_n=200)  # one item
    assert status(made) is Status.NOT_ENOUGH and made.value == 0 and np.isnan([made.low, made.high]).all()


# --------------------------------------------------------------------------------------------------------- what is not


@pytest.mark.parametrize("x64", [True, False])
def test_what_is_undefined_says_why(x64: bool) -> None:
    threes = np.full((10, RATERS_N), 3.0)
    steps = np.arange(10.0)[:, None] + np.zeros((1, RATERS_N))
    first = np.arange(RATERS_N) == 0
    cases = (
        (threes, None, Status.CONSTANT),
        (threes + 0.1, None, Status.CONSTANT),  # 3.1 is no binary fraction
        (steps, np.tile(first, (10, 1)), Status.NOT_ENOUGH),  # one rater
        (np.where(first, np.nan, steps), None, Status.BAD_INPUT),
        (np.where(first, np.inf, steps), None, Status.BAD_INPUT),
    )
    with jax.enable_x64(x64):
        for ratings, there, expected in cases:
            ratings, there = padded(ratings, there)
            for r in (*iccs(ratings, there), *(alpha(ratings, there, scale=scale) for scale in SCALES)):
                assert status(r) is expected and np.isnan([r.value, r.low, r.high]).all(), expected
            r = boot(jax.random.key(0), ratings, there, scale="ordinal", resamples_n=8)
            assert status(r) is expected and np.isnan([r.value, r.low, r.high]).all()
        for ratings, expected in (
            (steps[:, :1], Status.NOT_ENOUGH),
            (steps[:1], Status.NOT_ENOUGH),
            (np.array([[1.0, 2.0], [2.0, 1.0]]), Status.DEGENERATE),
            (np.array([[1.0, 2.0], [2.0, 1.0]] * 2), Status.DEGENERATE),  # MSR = 0, and r would be -2 without a width
            (np.tile(np.arange(4.0), (6, 1)), Status.DEGENERATE),  # 0 without a width
        ):
            assert [status(r) for r in iccs(*padded(ratings))] == [expected] * 2
        for r in iccs(*padded(steps)):
            assert [float(v) for v in r[:3]] == [1, 1, 1] and status(r) is Status.CONSTANT  # a warning


def test_a_million_away_float32_knows_alpha_too() -> None:
    near = np.random.default_rng(0).integers(1, 5, (ITEMS_N, RATERS_N)).astype(float)
    for scale in SCALES:
        here, there = (float(alpha(*padded(x), scale=scale).value) for x in (near, near + 1e6))
        assert there == here, scale  # such ratings are whole in float32
    for r, s in zip(iccs(*padded(near)), iccs(*padded(near + 1e6)), strict=True):
        assert [float(v) for v in r[:3]] == [float(v) for v in s[:3]]


def test_float32_agrees_with_float64_far_from_zero() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ITEMS_N, 1)) + rng.normal(size=(ITEMS_N, RATERS_N)) + 300
    with jax.enable_x64(True):
        exact = [float(v) for v in one(*padded(x))]
    assert jnp.result_type(float) == jnp.float32
    np.testing.assert_allclose([float(v) for v in one(*padded(x))], exact, rtol=3e-4)
