"""Rates and their independent differences against other libraries, rational arithmetic, published examples, laws."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from jaxeval.stats import exact_host
from jaxeval.stats.estimate import Estimate, Status
from jaxeval.stats.proportions import (
    agresti_coull,
    binomial_tail,
    clopper_pearson,
    mantel_haenszel,
    newcombe,
    wilson,
)

ONE_RATE = {"wilson": wilson, "agresti_coull": agresti_coull, "beta": clopper_pearson}  # by statsmodels' names
all_three = jax.jit(lambda k, n, level: [method(k, n, level=level) for method in ONE_RATE.values()])
over_k = {name: jax.jit(jax.vmap(method, (0, None))) for name, method in ONE_RATE.items()}
unpaired = jax.jit(newcombe)
run_pooled = jax.jit(mantel_haenszel)
levels = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99])


@st.composite
def rates(draw: st.DrawFn, most: int = 5000) -> tuple[int, int]:
    n = draw(st.integers(1, most))
    return draw(st.integers(0, n)), n


def ends(e: Estimate) -> tuple[float, float]:
    return float(e.low), float(e.high)


def status(e) -> Status:
    return Status.of(e.status)


# --------------------------------------------------------------------------------------------------------- one rate


@pytest.mark.parametrize(
    ("k", "n", "low", "high"), [(84, 100, 0.7558, 0.8990), (53, 100, 0.4329, 0.6249), (0, 500, 0, 0.0076)]
)
def test_wilson_of_published_rates(k: int, n: int, low: float, high: float) -> None:
    e = wilson(k, n)
    assert ends(e) == pytest.approx((low, high), abs=5e-5) and float(e.value) == pytest.approx(k / n)
    wald = 1.959964 * math.sqrt(k / n * (1 - k / n) / n)
    assert abs(e.high - (k / n + wald)) > 0.002  # not the interval that one meets most often


def test_no_success_in_414() -> None:
    assert round(float(wilson(0, 414).high), 4) == 0.0092
    assert float(clopper_pearson(0, 414).high) == pytest.approx(1 - 0.025 ** (1 / 414), abs=1e-7)


@settings(deadline=None, max_examples=40)
@given(rates(), levels)
def test_intervals_are_those_of_statsmodels(rate: tuple[int, int], level: float) -> None:
    expected = [proportion_confint(*rate, alpha=1 - level, method=name) for name in ONE_RATE]
    expected = np.clip(np.nan_to_num(expected, nan=[0, 1]), 0, 1)
    with jax.enable_x64(True):
        np.testing.assert_allclose([ends(e) for e in all_three(*rate, level)], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose([ends(e) for e in all_three(*rate, level)], expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ONE_RATE)
@pytest.mark.parametrize("x64", [False, True])
def test_nothing_and_everything_are_clipped_exactly(name: str, x64: bool) -> None:
    with jax.enable_x64(x64):
        n = jnp.arange(1, 400)
        found = (jax.jit(jax.vmap(ONE_RATE[name]))(k, n) for k in (jnp.zeros_like(n), n))
        none, whole = (Estimate(*map(np.asarray, e)) for e in found)
    assert (none.low == 0).all() and (none.value == 0).all() and ((none.high > 0) & (none.high < 1)).all()
    assert (whole.high == 1).all() and (whole.value == 1).all() and ((whole.low > 0) & (whole.low < 1)).all()
    np.testing.assert_allclose(none.high, 1 - whole.low, atol=1e-6)


@pytest.mark.parametrize("name", ONE_RATE)
def test_intervals_widen_with_the_level_move_with_k_and_hold_the_rate(name: str) -> None:
    e, wide = over_k[name](jnp.arange(51), 50), jax.vmap(lambda k: ONE_RATE[name](k, 50, level=0.99))(jnp.arange(51))
    assert (jnp.diff(e.low) >= 0).all() and (jnp.diff(e.high) >= 0).all()
    assert (e.low <= e.value).all() and (e.value <= e.high).all() and (wide.high - wide.low > e.high - e.low).all()
    np.testing.assert_allclose(e.low, 1 - e.high[::-1], atol=1e-6)
    for k in (0, 17, 50):  # mapped or not, jitted or not
        np.testing.assert_allclose([x[k] for x in e], ONE_RATE[name](k, 50), atol=2e-7)


@pytest.mark.parametrize(
    ("k", "n", "level", "told"),
    [
        (0, 0, 0.95, Status.NO_DATA),
        (3, 2, 0.95, Status.BAD_INPUT),
        (1, 0, 0.95, Status.BAD_INPUT),
        (-1, 5, 0.95, Status.BAD_INPUT),
        (0, -5, 0.95, Status.BAD_INPUT),
        (1.5, 5, 0.95, Status.BAD_INPUT),
        (np.nan, 5, 0.95, Status.BAD_INPUT),
        (1, np.nan, 0.95, Status.BAD_INPUT),
        (1, np.inf, 0.95, Status.BAD_INPUT),
        (np.inf, np.inf, 0.95, Status.BAD_INPUT),
        (1, 5, 0.0, Status.BAD_INPUT),
        (1, 5, 95.0, Status.BAD_INPUT),
        (1, 5, np.nan, Status.BAD_INPUT),
    ],
)
def test_what_has_no_rate_says_why(k: float, n: float, level: float, told: Status) -> None:
    for e in all_three(float(k), float(n), level):
        assert status(e) is told and np.isnan([e.value, e.low, e.high]).all()


@pytest.mark.parametrize(("k", "n"), [(4999, 10_000), (99_990, 100_000), (500_000, 1_000_000), (1, 8_000_000)])
def test_clopper_pearson_of_many_in_float32(k: int, n: int) -> None:
    expected = scipy.stats.beta.ppf([0.025, 0.975], [k, k + 1], [n - k + 1, n - k])
    assert ends(clopper_pearson(k, n)) == pytest.approx(tuple(expected), abs=2e-7)


def test_binomial_tails_keep_their_digits_in_float32() -> None:
    cases = [
        (0, 123, 0.5),
        (6, 22, 0.5),
        (48_880, 100_000, 0.5),
        (496_500, 1_000_000, 0.5),
        (3, 400, 0.05),
        (9, 10, 0.9),
    ]
    k, n, p = (jnp.asarray(x, float) for x in zip(*cases, strict=True))
    np.testing.assert_allclose(jax.vmap(binomial_tail)(k, n, p), [scipy.stats.binom.cdf(*c) for c in cases], rtol=3e-5)


# --------------------------------------------------------------------------------------- coverage, as docstrings tell


def coverage(e: Estimate, n: int, p: np.ndarray) -> np.ndarray:
    inside = (np.asarray(e.low)[:, None] <= p) & (p <= np.asarray(e.high)[:, None])
    return (scipy.stats.binom.pmf(np.arange(n + 1)[:, None], n, p) * inside).sum(axis=0)


@pytest.mark.parametrize(("n", "least"), [(10, (83.5, 92.4, 95)), (25, (83.7, 93.0, 95)), (100, (83.8, 93.8, 95))])
def test_intervals_cover_what_is_told(n: int, least: tuple[float, ...]) -> None:
    for (name, method), percent in zip(over_k.items(), least, strict=True):
        with jax.enable_x64(True):
            e = method(jnp.arange(n + 1), n)
        beyond = np.concatenate([np.asarray(e.low) - 1e-9, np.asarray(e.high) + 1e-9])
        shares = coverage(e, n, beyond[(beyond > 0) & (beyond < 1)])  # where it drops
        assert shares.min() >= percent / 100 - 5e-4
        assert name == "beta" or shares.min() < percent / 100 + 1e-3


def test_wilson_at_five_percent_of_ten() -> None:
    e = over_k["wilson"](jnp.arange(11), 10)
    assert coverage(e, 10, np.array([0.05]))[0] == pytest.approx(0.95**10 + 10 * 0.05 * 0.95**9)  # 91.4 %


# ------------------------------------------------------------------------------------------- independent differences


@pytest.mark.parametrize(
    ("counts", "low", "high"),  # Newcombe 1998, table II, method 10
    [((56, 70, 48, 80), 0.0524, 0.3339), ((9, 10, 3, 10), 0.1705, 0.8090), ((5, 56, 0, 29), -0.0381, 0.1926)],
)
def test_newcombe_of_his_examples(counts: tuple[int, ...], low: float, high: float) -> None:
    assert ends(newcombe(*counts)) == pytest.approx((low, high), abs=5e-5)


@settings(deadline=None, max_examples=40)
@given(rates(300), rates(300), levels)
def test_newcombe_is_that_of_statsmodels(a: tuple[int, int], b: tuple[int, int], level: float) -> None:
    expected = confint_proportions_2indep(*a, *b, method="newcomb", compare="diff", alpha=1 - level)
    with jax.enable_x64(True):
        e = unpaired(*a, *b, level=level)
        assert ends(e) == pytest.approx(tuple(expected), abs=1e-9) and status(e) is Status.OK
        swapped = unpaired(*b, *a, level=level)
        assert swapped.value == -e.value and ends(swapped) == (-e.high, -e.low)
        assert -1 <= e.low <= e.value <= e.high <= 1


def test_newcombe_without_an_arm() -> None:
    assert status(newcombe(0, 0, 3, 5)) is Status.NO_DATA and status(newcombe(3, 5, 0, 0)) is Status.NO_DATA
    for counts in ((6, 5, 1, 5), (1, 5, -1, 5), (0, 0, 7, 5)):
        e = newcombe(*counts)
        assert status(e) is Status.BAD_INPUT and np.isnan(e.low)
    assert ends(newcombe(0, 20, 0, 20)) == pytest.approx((-float(wilson(0, 20).high), float(wilson(0, 20).high)))


def test_newcombe_covers_what_is_told() -> None:
    k = jnp.arange(11)
    e = jax.jit(jax.vmap(jax.vmap(newcombe, (None, None, 0, None)), (0, None, None, None)))(k, 10, k, 10)
    a, b = (scipy.stats.binom.pmf(k, 10, p) for p in (0.96, 0.04))
    assert a @ np.asarray((e.low <= 0.92) & (e.high >= 0.92)) @ b == pytest.approx(0.879, abs=5e-4)


# ---------------------------------------------------------------------------------------------------- pooled strata

STRATA = [(45, 50, 40, 50), (20, 40, 15, 60), (3, 9, 0, 4), (7, 7, 7, 7)]


def by_fractions(strata: list[tuple[int, ...]]) -> tuple[float, float]:
    """Pooled difference and Sato's variance, in whole numbers."""
    w = d = P = Q = Fraction(0)
    for k_a, n_a, k_b, n_b in strata:
        N = n_a + n_b
        w += Fraction(n_a * n_b, N)
        d += Fraction(k_a * n_b - k_b * n_a, N)
        P += Fraction(n_a**2 * k_b - n_b**2 * k_a, N**2) + Fraction(n_a * n_b * (n_b - n_a), 2 * N**2)
        Q += Fraction(k_a * (n_b - k_b) + k_b * (n_a - k_a), 2 * N)
    return float(d / w), float((d / w * P + Q) / w**2)


def pooled(*strata: tuple[int, ...]) -> Estimate:
    """Filled up to seven with strata where nothing was run, so that it is compiled once."""
    empty = [(0, 0, 0, 0)] * (7 - len(strata))
    return run_pooled(*np.array([*strata, *empty]).T)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(rates(60), rates(60)).map(lambda ab: (*ab[0], *ab[1])), min_size=4, max_size=4))
def test_mantel_haenszel_in_whole_numbers(strata: list[tuple[int, ...]]) -> None:
    d, V = by_fractions(strata)
    with jax.enable_x64(True):
        e = pooled(*strata)
    assert float(e.value) == pytest.approx(d, abs=1e-12) and status(e) is Status.OK
    if V > 1e-12:
        half = 1.959963984540054 * math.sqrt(V)
        assert ends(e) == pytest.approx((max(d - half, -1), min(d + half, 1)), abs=1e-9)
    else:
        assert e.low < e.high


def test_strata_may_be_shuffled_swapped_and_empty() -> None:
    with jax.enable_x64(True):
        e = pooled(*STRATA)
        shuffled = pooled(*(STRATA[i] for i in (2, 0, 3, 1)))
        np.testing.assert_allclose(shuffled, e, atol=1e-15)
        swapped = pooled(*((c, d, a, b) for a, b, c, d in STRATA))
        np.testing.assert_allclose(swapped[:3], (-e.value, -e.high, -e.low), atol=1e-12)
        more = pooled(*STRATA, (4, 9, 0, 0), (0, 0, 2, 2))
        np.testing.assert_allclose(more, e, atol=1e-15)
        alone = pooled((56, 70, 48, 80))
        assert alone.value == pytest.approx(0.2) and ends(alone) == pytest.approx(
            ends(newcombe(56, 70, 48, 80)), abs=0.02
        )


def test_strata_that_do_not_vary_still_have_a_width() -> None:
    for strata in (
        [(0, 20, 0, 20), (0, 30, 0, 30)],
        [(20, 20, 20, 20), (0, 30, 0, 30)],
        [(20, 20, 0, 20), (9, 9, 0, 9)],
    ):
        e = pooled(*strata)
        assert by_fractions(strata)[1] == 0 and status(e) is Status.OK and 0.02 < e.high - e.low < 0.4
    alone = pooled((0, 20, 0, 20))
    np.testing.assert_allclose(alone, newcombe(0, 20, 0, 20), atol=1e-7)


def test_strata_that_cannot_be() -> None:
    assert status(pooled((0, 0, 3, 5), (2, 4, 0, 0))) is Status.NO_DATA
    for strata in ([*STRATA, (6, 5, 1, 5)], [*STRATA, (6, 5, 0, 0)]):
        e = pooled(*strata)
        assert status(e) is Status.BAD_INPUT and np.isnan(e.value)


def test_satos_variance_is_that_of_many_evaluations() -> None:
    rng = np.random.default_rng(0)
    n_a, n_b, p_a = np.array([50, 20, 10, 5]), np.array([30, 40, 5, 5]), np.array([0.9, 0.5, 0.3, 0.8])
    k_a, k_b = rng.binomial(n_a, p_a, (20_000, 4)), rng.binomial(n_b, p_a - 0.2, (20_000, 4))
    e = jax.jit(jax.vmap(mantel_haenszel, (0, None, 0, None)))(k_a, n_a, k_b, n_b)
    variance = ((e.high - e.value) / 1.959964) ** 2
    assert float(variance.mean()) == pytest.approx(float(e.value.var()), rel=0.03)
    assert float(e.value.mean()) == pytest.approx(0.2, abs=0.002)
    assert np.mean((e.low <= 0.2) & (e.high >= 0.2)) == pytest.approx(0.95, abs=0.01)


# ---------------------------------------------------------------------------------------------------- exact tests


def chances(n_a: int, n_b: int, p: np.ndarray) -> np.ndarray:
    """P(k_a, k_b) [n_a + 1, n_b + 1, P] if both have rate p."""
    a, b = (scipy.stats.binom.pmf(np.arange(n + 1)[:, None], n, p) for n in (n_a, n_b))
    return a[:, None] * b[None]


GRID = np.linspace(0, 1, 4001)


@settings(deadline=None, max_examples=15)
@given(rates(12), rates(12))
def test_exact_tests_by_counting(a: tuple[int, int], b: tuple[int, int]) -> None:
    (k_a, n_a), (k_b, n_b) = a, b
    tests = {test: float(getattr(exact_host, test)(*a, *b).p) for test in ("fisher", "barnard", "boschloo")}
    total, ways = k_a + k_b, {}
    for x in range(max(0, total - n_b), min(n_a, total) + 1):
        ways[x] = math.comb(n_a, x) * math.comb(n_b, total - x)
    fisher = Fraction(sum(w for w in ways.values() if w <= ways[k_a]), sum(ways.values()))
    assert tests["fisher"] == pytest.approx(float(fisher), rel=1e-6)

    if 0 < total < n_a + n_b:
        table = [[k_a, k_b], [n_a - k_a, n_b - k_b]]
        x, y = np.arange(n_a + 1)[:, None], np.arange(n_b + 1)[None]
        m = np.clip((x + y) / (n_a + n_b), 1e-12, 1 - 1e-12)
        score = np.round(np.abs(x / n_a - y / n_b) / np.sqrt(m * (1 - m) * (1 / n_a + 1 / n_b)), 9)
        worst = (chances(n_a, n_b, GRID) * (score >= score[k_a, k_b])[..., None]).sum(axis=(0, 1)).max()
        assert worst - 1e-7 <= tests["barnard"] == pytest.approx(worst, rel=1e-4)
        assert tests["barnard"] > scipy.stats.barnard_exact(table, n=64).pvalue - 1e-6

        one_sided = []
        for tail in (
            scipy.stats.hypergeom.cdf(x, n_a + n_b, n_a, x + y),
            scipy.stats.hypergeom.sf(x - 1, n_a + n_b, n_a, x + y),
        ):
            far = np.round(tail, 12) <= np.round(tail[k_a, k_b], 12)
            one_sided.append((chances(n_a, n_b, GRID) * far[..., None]).sum(axis=(0, 1)).max())
        assert tests["boschloo"] == pytest.approx(min(2 * min(one_sided), 1), rel=1e-4)
        assert tests["boschloo"] == pytest.approx(scipy.stats.boschloo_exact(table, n=64).pvalue, rel=1e-3)


@pytest.mark.parametrize("name", ["fisher", "barnard", "boschloo"])
def test_exact_tests_without_an_answer(name: str) -> None:
    test = getattr(exact_host, name)
    for counts in ((0, 20, 0, 30), (20, 20, 30, 30)):  # scipy's Barnard and Boschloo give nan here
        assert test(*counts).p == 1 and status(test(*counts)) is Status.ONE_CLASS
    for counts, told in {
        (0, 0, 3, 5): Status.NO_DATA,
        (3, 5, 0, 0): Status.NO_DATA,
        (6, 5, 1, 5): Status.BAD_INPUT,
        (1.5, 5, 1, 5): Status.BAD_INPUT,
        (1, 5, np.nan, 5): Status.BAD_INPUT,
        (-1, 5, 1, 5): Status.BAD_INPUT,
    }.items():
        assert status(test(*counts)) is told and np.isnan(test(*counts).p)


def test_fifteen_of_500_against_none() -> None:
    expected = 2 * math.comb(500, 15) / math.comb(1000, 15)
    assert float(exact_host.fisher(15, 500, 0, 500).p) == pytest.approx(expected, rel=1e-5)
    assert exact_host.boschloo(15, 500, 0, 500).p < expected


def test_tables_that_tie_are_as_far_out() -> None:
    """1/1 against 1/3 is as far out as 0/1 against 2/3; rounding lets scipy leave the second out."""
    assert scipy.stats.barnard_exact([[1, 1], [0, 2]]).pvalue == pytest.approx(0.3125)
    assert float(exact_host.barnard(1, 1, 1, 3).p) == pytest.approx(0.5)
