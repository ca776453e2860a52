"""Rank correlations against SciPy, orders counted by hand, and the laws of ranks."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxeval.stats.estimate import Status
from jaxeval.stats.ranking import exact_p, kendall, midranks, permutation_p, pooled_mean, spearman

ROWS_N = 12
both = jax.jit(lambda x, y, valid: (spearman(x, y, valid), kendall(x, y, valid)))
exact = jax.jit(exact_p, static_argnames="of")
permuted = jax.jit(permutation_p, static_argnames=("of", "resamples_n"))


def padded(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """Columns filled up to ROWS_N with numbers that do not count, in random places; and the mask."""
    n = len(columns[0])
    place = np.sort(np.random.default_rng(n).permutation(ROWS_N)[:n])
    valid = np.zeros(ROWS_N, bool)
    valid[place] = True
    out = [np.full(ROWS_N, np.nan) for _ in columns]
    for column, values in zip(out, columns, strict=True):
        column[place] = values
    return *out, valid


def draw(seed: int, least: int = 4, most: int = ROWS_N) -> tuple[np.ndarray, np.ndarray]:
    """Two columns that vary, with ties half of the time."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(least, most + 1))
    x, noise = rng.normal(size=n), rng.normal(size=n)
    y = rng.uniform(-1, 1) * 2 * x + noise
    if seed % 2:
        x, y = np.round(x * 1.5), np.round(y * 1.5)
    x[:2], y[:2] = (0, 1), (0, 1)
    return x, y


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31 - 1))
def test_scipy_gives_the_same_values_and_p(seed: int) -> None:
    x, y = draw(seed)
    n = len(x)
    with jax.enable_x64(True):
        rho, tau = both(*padded(x, y))
    assert int(rho.n) == int(tau.n) == n
    least = 2 / math.factorial(n)
    theirs = scipy.stats.spearmanr(x, y)
    assert float(rho.value) == pytest.approx(theirs.statistic, abs=1e-12)
    if abs(theirs.statistic) < 1 - 1e-12:
        assert float(rho.p) == pytest.approx(max(theirs.pvalue, least), abs=1e-10)
    else:
        assert float(rho.p) == pytest.approx(least)  # where SciPy says 0
    theirs = scipy.stats.kendalltau(x, y, method="asymptotic")
    assert float(tau.value) == pytest.approx(theirs.statistic, abs=1e-12)
    assert float(tau.p) == pytest.approx(max(theirs.pvalue, least), abs=1e-10)
    for r in (rho, tau):
        assert -1 <= float(r.low) <= float(r.value) <= float(r.high) <= 1
        assert float(r.high) - float(r.low) > 1e-3


def test_intervals_by_their_formulas() -> None:
    x, y = np.arange(10.0), np.array([1, 0, 3, 2, 5, 4, 7, 6, 9, 8.0])
    with jax.enable_x64(True):
        rho, tau = both(*padded(x, y))
    z = scipy.stats.norm.ppf(0.975)
    for r, half in ((rho, z * math.sqrt((1 + float(rho.value) ** 2 / 2) / 7)), (tau, z * math.sqrt(0.437 / 6))):
        expected = np.tanh(np.arctanh(float(r.value)) + np.array([-half, half]))
        np.testing.assert_allclose([float(r.low), float(r.high)], expected, atol=1e-9)
    assert float(rho.value) == pytest.approx(1 - 6 * 10 / 990) and float(tau.value) == pytest.approx((40 - 5) / 45)


def test_perfect_agreement_has_an_interval_and_no_p_of_zero() -> None:
    x = np.arange(8.0)
    for y, sign in ((x, 1), (-x, -1)):
        for r in both(*padded(x, y)):
            assert float(r.value) == sign and float(r.high if sign > 0 else r.low) == sign
            assert 0.05 < float(r.high) - float(r.low) < 1
            assert float(r.p) == pytest.approx(2 / math.factorial(8), rel=1e-3) or float(r.p) > 2 / math.factorial(8)
    three = both(*padded(np.arange(3.0), np.arange(3.0)))
    assert [float(v) for v in three[0][:3]] == [1, -1, 1] and float(three[0].p) == pytest.approx(1 / 3)


# -------------------------------------------------------------------------------------------------------------- exact p


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**31 - 1))
def test_exact_p_counts_every_order(seed: int) -> None:
    x, y = draw(seed, 3, 6)
    columns = padded(x, y)
    orders = [np.array(o) for o in itertools.permutations(range(len(x)))]
    for of, statistic in (
        ("spearman", lambda a, b: scipy.stats.pearsonr(a, b).statistic),
        ("kendall", lambda a, b: np.sum(np.sign(a[:, None] - a) * np.sign(b[:, None] - b))),
    ):
        a, b = scipy.stats.rankdata(x), scipy.stats.rankdata(y)
        observed = abs(statistic(a, b))
        count = sum(abs(statistic(a, b[o])) >= observed - 1e-9 for o in orders)
        found = exact(*columns, of=of)
        assert Status.of(found.status) is Status.OK
        assert float(found.p) == pytest.approx(count / len(orders), rel=1e-5)


def test_exact_p_of_eight_rows_is_that_of_scipy() -> None:
    y = np.array([3, 1, 0, 2, 5, 7, 4, 6.0])
    found = exact(*padded(np.arange(8.0), y), of="kendall")
    assert float(found.p) == pytest.approx(scipy.stats.kendalltau(np.arange(8), y, method="exact").pvalue, rel=1e-5)
    assert Status.of(exact(*padded(np.arange(9.0), np.arange(9.0)), of="kendall").status) is Status.BAD_INPUT


def test_permutation_p_nears_the_exact_one_and_a_key_means_the_same_bits() -> None:
    columns = padded(np.arange(7.0), np.array([1, 0, 2, 2, 6, 3, 5.0]))
    for of in ("spearman", "kendall"):
        expected = float(exact(*columns, of=of).p)
        found = permuted(jax.random.key(3), *columns, of=of, resamples_n=4000)
        assert float(found.p) == pytest.approx(expected, abs=4 * math.sqrt(expected / 4000) + 1e-3)
        assert float(permuted(jax.random.key(3), *columns, of=of, resamples_n=4000).p) == float(found.p)
    keys = jax.random.split(jax.random.key(0), 2)
    mapped = jax.jit(jax.vmap(lambda k: permutation_p(k, *columns, resamples_n=300).p))(keys)
    alone = [float(permuted(k, *columns, of="spearman", resamples_n=300).p) for k in keys]
    assert mapped.tolist() == alone
    sure = permuted(jax.random.key(1), *padded(np.arange(12.0), np.arange(12.0)), of="spearman", resamples_n=999)
    assert float(sure.p) == pytest.approx(1 / 1000)  # never 0


# ----------------------------------------------------------------------------------------------------------------- laws


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31 - 1))
def test_only_the_order_counts(seed: int) -> None:
    x, y = draw(seed)
    order = np.random.default_rng(seed).permutation(len(x))
    with jax.enable_x64(True):
        base = both(*padded(x, y))
        for changed in (both(*padded(np.exp(x), y)), both(*padded(y, x)), both(*padded(x[order], y[order]))):
            np.testing.assert_allclose(np.array(changed, float), np.array(base, float), atol=1e-10)
        for turned, r in zip(both(*padded(x, -y)), base, strict=True):
            np.testing.assert_allclose(
                np.array(turned, float), [-r.value, -r.high, -r.low, r.p, r.n, r.status], atol=1e-10
            )


def test_midranks_share() -> None:
    x = np.array([5, 1, 5, 5, 2, -7, 2, 0.0])
    np.testing.assert_array_equal(midranks(jnp.asarray(x)), scipy.stats.rankdata(x))


def test_mapped_over_cells_it_is_the_loop() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 3, ROWS_N)).astype(np.float32)
    together = jax.jit(jax.vmap(lambda a, b: (spearman(a, b), kendall(a, b))))(x, y)
    for i in range(3):
        np.testing.assert_allclose(
            [[f[i] for f in r] for r in together], np.array(both(x[i], y[i], np.ones(ROWS_N, bool))), rtol=2e-5
        )


def test_large_columns_in_float32() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    y = np.round(0.5 * x + rng.normal(size=3000), 1)
    rho, tau = both(x, y, None)
    assert float(rho.value) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-5)
    assert float(tau.value) == pytest.approx(scipy.stats.kendalltau(x, y).statistic, abs=1e-5)


# ---------------------------------------------------------------------------------------------------------- what is not


@pytest.mark.parametrize("x64", [True, False])
def test_what_is_undefined_says_why(x64: bool) -> None:
    cases = (
        (np.full(5, 0.1), np.arange(5.0), Status.CONSTANT),
        (np.arange(5.0), np.full(5, 0.1), Status.CONSTANT),
        (np.arange(2.0), np.arange(2.0), Status.NOT_ENOUGH),
        (np.zeros(0), np.zeros(0), Status.NOT_ENOUGH),
        (np.array([0, 1, np.nan, 2]), np.arange(4.0), Status.BAD_INPUT),
        (np.arange(4.0), np.array([0, 1, np.inf, 2]), Status.BAD_INPUT),
    )
    with jax.enable_x64(x64):
        for x, y, expected in cases:
            columns = padded(x, y)
            for r in both(*columns):
                assert Status.of(r.status) is expected and np.isnan([r.value, r.low, r.high, r.p]).all()
                assert int(r.n) == len(x)
            for found in (
                exact(*columns, of="spearman"),
                permuted(jax.random.key(0), *columns, of="spearman", resamples_n=300),
            ):
                assert Status.of(found.status) is expected and np.isnan(found.p)


def test_pooled_means_leave_out_what_is_undefined() -> None:
    ok, constant = Status.OK.code, Status.CONSTANT.code
    mean = pooled_mean(np.array([0.5, np.nan, 0.9], np.float32), np.array([ok, constant, ok]))
    assert float(mean.value) == pytest.approx(0.7)  # and not .467 or nan
    assert (int(mean.used_n), int(mean.left_out_n)) == (2, 1)
    none = pooled_mean(np.array([np.nan], np.float32), np.array([constant]))
    assert Status.of(none.status) is Status.NO_DATA and np.isnan(none.value) and int(none.left_out_n) == 1
