"""Plans against exact enumeration and statsmodels; adjusted p-values against statsmodels."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import power_proportions_2indep, proportion_confint

from jaxeval.stats.estimate import PairCounts, Status
from jaxeval.stats.multiplicity import benjamini_hochberg, holm
from jaxeval.stats.paired import mcnemar_exact, mcnemar_mid_p, tango
from jaxeval.stats.planning import Plan, episodes_for_difference, episodes_for_half_width, pairs_for_difference
from jaxeval.stats.proportions import newcombe

half_width = jax.jit(episodes_for_half_width)
difference = jax.jit(episodes_for_difference)
paired = jax.jit(pairs_for_difference)
MOST_N = 160


def number(plan: Plan) -> int:
    assert Status.of(plan.status) is Status.OK
    return int(plan.n)


# ---------------------------------------------------------------------------------------------------------- one rate


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 1), st.floats(0.02, 0.6), st.sampled_from([0.8, 0.95, 0.99]))
def test_half_width_is_reached_first_at_n(p: float, h: float, level: float) -> None:
    with jax.enable_x64(True):
        n = number(half_width(p, h, level=level))

    def half(n: int) -> float:
        low, high = proportion_confint(p * n, n, alpha=1 - level, method="wilson")
        return (high - low) / 2

    assert half(n) <= h + 1e-12 and (n == 1 or half(n - 1) > h - 1e-12)
    assert abs(number(half_width(p, h, level=level)) - n) <= 1  # in float32


def test_half_widths_that_are_known() -> None:
    assert number(half_width(0.5, 0.1)) == 93  # Wald's formula asks for 97
    assert number(half_width(0.84, 0.1)) == 51
    assert number(half_width(0.5, 0.05)) == 381
    assert number(half_width(0.5, 3.0)) == 1


# --------------------------------------------------------------------------------------------------------- differences


def unpaired_power(n: int, p_a: float, p_b: float) -> float:
    """Probability that Newcombe's interval leaves 0 out, over all outcomes."""
    k = np.arange(MOST_N + 1)
    e = newcombe_table(k, n)
    apart = np.nan_to_num(np.asarray((e.low > 0) | (e.high < 0)))[: n + 1, : n + 1]
    a, b = (scipy.stats.binom.pmf(k[: n + 1], n, p) for p in (p_a, p_b))
    return float(a @ apart @ b)


over_b = jax.vmap(lambda k_a, k_b, n: newcombe(k_a, n, k_b, n), (None, 0, None))
newcombe_table = jax.jit(lambda k, n: jax.vmap(over_b, (0, None, None))(k, k, n))


@pytest.mark.parametrize(
    ("p_a", "p_b", "n"), [(0.84, 0.53, 35), (0.95, 0.85, 141), (0.7, 0.4, 42), (0.9, 0.5, 20), (0.6, 0.1, 14)]
)
def test_unpaired_plans_have_their_power(p_a: float, p_b: float, n: int) -> None:
    assert number(difference(p_a, p_b)) == number(difference(p_b, p_a)) == n
    assert 0.79 < unpaired_power(n, p_a, p_b) < 0.89
    assert unpaired_power(int(0.75 * n), p_a, p_b) < 0.76
    more = number(difference(p_a, p_b, power=0.9))
    assert more > n and (more > MOST_N or 0.88 < unpaired_power(more, p_a, p_b) < 0.95)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.02, 0.98), st.floats(0.02, 0.98), st.sampled_from([0.6, 0.8, 0.95]))
def test_unpaired_plan_is_where_statsmodels_reaches_the_power(p_a: float, p_b: float, power: float) -> None:
    if abs(p_a - p_b) < 0.02:
        return
    with jax.enable_x64(True):
        n = number(difference(p_a, p_b, power=power, level=0.99))

    def reached(n: int) -> float:
        return power_proportions_2indep(p_a - p_b, p_b, n, alpha=0.01, return_results=False)

    assert reached(n) > power - 1e-3 and (n < 3 or reached(n - 1) < power + 1e-3)


def paired_power(n: int, p_a: float, p_b: float) -> dict[str, float]:
    """Probability over all outcomes that Tango's interval leaves 0 out, and that McNemar's tests reject."""
    a, b = (x.ravel() for x in np.meshgrid(np.arange(MOST_N + 1), np.arange(MOST_N + 1)))
    rest = n - a - b
    told = pairs_table(PairCounts(np.maximum(rest, 0), a, b, np.zeros_like(a)))
    possible = rest >= 0
    where = np.stack([a, b, rest], axis=1)[possible]
    chance = scipy.stats.multinomial.pmf(where, n, [p_a, p_b, 1 - p_a - p_b])
    return {name: float(chance @ np.asarray(rejects)[possible]) for name, rejects in told.items()}


def rejections(counts: PairCounts) -> dict[str, jax.Array]:
    e = tango(counts)
    return {
        "tango": (e.low > 0) | (e.high < 0),
        "exact": mcnemar_exact(counts).p < 0.05,
        "mid-p": mcnemar_mid_p(counts).p < 0.05,
    }


pairs_table = jax.jit(jax.vmap(rejections))


@pytest.mark.parametrize(
    ("p_a", "p_b", "n"), [(0.42, 0.11, 41), (0.3, 0.1, 77), (0.25, 0.05, 57), (0.1, 0.01, 105), (0.6, 0.1, 20)]
)
def test_paired_plans_have_their_power(p_a: float, p_b: float, n: int) -> None:
    assert number(paired(p_a, p_b)) == number(paired(p_b, p_a)) == n
    power = paired_power(n, p_a, p_b)
    assert 0.8 < power["tango"] < 0.87 and power["mid-p"] > 0.8
    assert power["exact"] < 0.79 < paired_power(n + round(1 / (p_a - p_b)), p_a, p_b)["exact"] + 0.005
    assert paired_power(int(0.75 * n), p_a, p_b)["tango"] < 0.77


def test_pairing_saves_episodes() -> None:
    """Rates .84 and .53, as published: their outcomes on the same starts were .42 and .11 apart from one another."""
    assert number(difference(0.84, 0.53)) == 35 and number(paired(0.42, 0.11)) == 41
    assert number(paired(0.32, 0.01)) == 25  # had the learner hardly ever succeeded where the expert failed


@pytest.mark.parametrize("plan", [difference, paired])
def test_plans_that_cannot_be(plan) -> None:
    same = plan(0.3, 0.3)
    assert Status.of(same.status) is Status.DEGENERATE and np.isnan(same.n)
    for p_a, p_b, power, level in [
        (-0.1, 0.5, 0.8, 0.95),
        (0.1, 1.5, 0.8, 0.95),
        (np.nan, 0.5, 0.8, 0.95),
        (0.1, 0.5, 1.0, 0.95),
        (0.1, 0.5, 0.0, 0.95),
        (0.1, 0.5, 0.8, 95.0),
    ]:
        bad = plan(p_a, p_b, power=power, level=level)
        assert Status.of(bad.status) is Status.BAD_INPUT and np.isnan(bad.n)
    assert int(plan(0.5, 0.0, power=0.01).n) == 1  # less than chance: any number does
    assert int(plan(0.3, 0.1, power=0.9).n) > int(plan(0.3, 0.1).n) > int(plan(0.3, 0.1, level=0.9).n)


def test_more_plans_that_cannot_be() -> None:
    assert Status.of(paired(0.7, 0.4).status) is Status.BAD_INPUT  # together more than all pairs
    assert number(paired(1.0, 0.0)) == 4 and number(difference(1.0, 0.0)) == 2
    for p, h, level in [(-0.1, 0.1, 0.95), (0.5, 0.0, 0.95), (0.5, -1.0, 0.95), (0.5, 0.1, 1.0), (np.nan, 0.1, 0.95)]:
        bad = half_width(p, h, level=level)
        assert Status.of(bad.status) is Status.BAD_INPUT and np.isnan(bad.n)


# ------------------------------------------------------------------------------------------------------- multiplicity

N = 12
adjusters = {"holm": jax.jit(holm), "fdr_bh": jax.jit(benjamini_hochberg)}
some = st.lists(st.tuples(st.floats(0, 1) | st.sampled_from([0.01, 0.05]), st.booleans()), min_size=N, max_size=N)


@settings(deadline=None, max_examples=40)
@given(some)
def test_adjusted_p_values_are_those_of_statsmodels(tests: list[tuple[float, bool]]) -> None:
    p, valid = (np.array(x) for x in zip(*tests, strict=True))
    for name, adjust in adjusters.items():
        expected = p.copy()
        if valid.any():
            expected[valid] = multipletests(p[valid], method=name)[1]
        with jax.enable_x64(True):
            np.testing.assert_allclose(adjust(p, valid), expected, atol=1e-12)
        np.testing.assert_allclose(adjust(p.astype(np.float32), valid), expected, rtol=2e-6, atol=1e-30)


def test_laws_of_adjusted_p_values() -> None:
    p = np.array([0.02, 0.001, 0.5, 0.03, 0.03, 0.9, 0.0, 1.0, 0.2, 0.04, 0.07, 0.6])
    everything, order = np.ones(N, bool), np.array([3, 1, 0, 2, 11, 10, 9, 8, 7, 6, 5, 4])
    strict, lenient = (np.asarray(adjust(p, everything)) for adjust in adjusters.values())
    assert (p <= lenient + 1e-7).all() and (lenient <= strict).all() and (strict <= 1).all()
    for adjust, all_at_once in zip(adjusters.values(), (strict, lenient), strict=True):
        np.testing.assert_allclose(adjust(p[order], everything), all_at_once[order], atol=1e-7)
        assert (np.diff(all_at_once[np.argsort(p)]) >= 0).all()
        mapped = jax.vmap(adjust)(jnp.stack([p, p[order]]), jnp.stack([everything, everything]))
        np.testing.assert_allclose(mapped[1], all_at_once[order], atol=1e-7)
        np.testing.assert_array_equal(adjust(p, ~everything), p.astype(np.float32))
        assert adjust(np.array([0.03]), np.array([True]))[0] == np.float32(0.03)


def test_tests_without_an_answer_do_not_count() -> None:
    for adjust, first in zip(adjusters.values(), (0.03, 0.03), strict=True):
        for nothing in (np.nan, -0.5, 7.0):
            p = np.concatenate([[0.01, 0.04, 0.03], np.full(N - 3, nothing)])
            out = np.asarray(adjust(p, np.ones(N, bool)))
            assert out[0] == pytest.approx(first) and out[1] == out[2]
            np.testing.assert_array_equal(out[3:], p[3:].astype(np.float32))


def test_holm_by_hand() -> None:
    """Each subset of three tests by the closed procedure that Holm's shortens."""
    p = np.array([0.01, 0.04, 0.03])
    closed = [
        max(
            min(len(s) * min(p[i] for i in s), 1)
            for size in (1, 2, 3)
            for s in itertools.combinations(range(3), size)
            if k in s
        )
        for k in range(3)
    ]
    np.testing.assert_allclose(holm(p, np.ones(3, bool)), closed, rtol=1e-6)
