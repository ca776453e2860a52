"""Matched pairs against a numerical twin of the score statistic, other libraries, published pairs, laws."""

from __future__ import annotations

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from jaxeval.stats.estimate import Estimate, PairCounts, Status
from jaxeval.stats.paired import (
    decrease_difference,
    decrease_difference_unpaired,
    equivalence,
    mcnemar_exact,
    mcnemar_mid_p,
    no_interaction,
    pooled_difference,
    tango,
)
from jaxeval.stats.proportions import newcombe

STRATA_N = 5
interval = jax.jit(tango)
mcnemars = jax.jit(lambda counts: (mcnemar_exact(counts), mcnemar_mid_p(counts)))
alike = jax.jit(equivalence)
over_pairs = jax.jit(jax.vmap(tango))
run_pooled = jax.jit(pooled_difference)
change = jax.jit(decrease_difference)
unchanged = jax.jit(no_interaction)

# both, a alone, b alone, neither -> difference, exact McNemar p, as others published them
PUBLISHED = [
    ((10, 30, 4, 6), 0.52, 6.16e-6),
    ((26, 2, 20, 2), -0.36, 1.21e-4),
    ((148, 134, 52, 166), 0.164, 1.57e-9),
    ((0, 15, 0, 485), 0.03, 6.10e-5),
    ((62, 50, 44, 44), 0.03, 0.606),
    ((73, 19, 51, 7), -0.213, 1.66e-4),
]


@st.composite
def pairs(draw: st.DrawFn, most: int = 300) -> tuple[int, ...]:
    n = draw(st.integers(1, most))
    cuts = sorted(draw(st.lists(st.integers(0, n), min_size=3, max_size=3)))
    return tuple(int(x) for x in np.diff([0, *cuts, n]))


def cells(counts: tuple[float, ...]) -> PairCounts:
    return PairCounts(*(float(x) for x in counts))


def ends(e: Estimate) -> tuple[float, float]:
    return float(e.low), float(e.high)


def status(e) -> Status:
    return Status.of(e.status)


# ------------------------------------------------------------------------------------------------------------ the twin


def likeliest(a_only: int, b_only: int, n: int, D: float) -> float:
    """P(b alone) of the largest multinomial likelihood with P(a alone) = P(b alone) + D, by its slope."""
    agree = n - a_only - b_only

    def slope(q: float) -> float:
        terms = ((a_only, q + D), (b_only, q), (-2 * agree, 1 - 2 * q - D))
        return sum(count / p for count, p in terms if count)

    least, most = max(0.0, -D) + 1e-15, (1 - D) / 2 - 1e-15
    if most <= least or slope(least) <= 0:
        return least
    return most if slope(most) >= 0 else brentq(slope, least, most, xtol=1e-17)


def score(strata: list[tuple[int, ...]], D: float) -> float:
    above = variance = 0.0
    for both, a_only, b_only, neither in strata:
        n = both + a_only + b_only + neither
        if n:
            above += a_only - b_only - n * D
            variance += n * (2 * likeliest(a_only, b_only, n, D) + D * (1 - D))
    return above / np.sqrt(variance)


def twin(*strata: tuple[int, ...], level: float = 0.95) -> tuple[float, float]:
    z = scipy.stats.norm.ppf((1 + level) / 2)
    n, a, b = (sum(x) for x in zip(*((sum(s), s[1], s[2]) for s in strata), strict=True))
    d, edge = (a - b) / n, 1 - 1e-10
    low = -1.0 if d <= -edge else brentq(lambda D: score(list(strata), D) - z, -edge, d - 1e-11, xtol=1e-13)
    high = 1.0 if d >= edge else brentq(lambda D: score(list(strata), D) + z, d + 1e-11, edge, xtol=1e-13)
    return low, high


@settings(deadline=None, max_examples=40)
@given(pairs(), st.sampled_from([0.5, 0.8, 0.95, 0.99]))
def test_tango_is_its_twin(counts: tuple[int, ...], level: float) -> None:
    expected = twin(counts, level=level)
    with jax.enable_x64(True):
        assert ends(interval(cells(counts), level=level)) == pytest.approx(expected, abs=1e-8)
    e = interval(cells(counts), level=level)
    assert ends(e) == pytest.approx(expected, abs=2e-6)
    assert -1 <= e.low <= e.value <= e.high <= 1 and e.low < e.high


@settings(deadline=None, max_examples=25)
@given(st.lists(pairs(60), min_size=1, max_size=STRATA_N))
def test_pooled_difference_is_its_twin(strata: list[tuple[int, ...]]) -> None:
    with jax.enable_x64(True):
        e = pooled(*strata)
    won, n = sum(s[1] - s[2] for s in strata), sum(map(sum, strata))
    assert float(e.value) == pytest.approx(won / n, abs=1e-15)
    assert ends(e) == pytest.approx(twin(*strata), abs=1e-8)


def pooled(*strata: tuple[int, ...]) -> Estimate:
    """Filled up with strata where nothing was run, so that it is compiled once."""
    empty = [(0, 0, 0, 0)] * (STRATA_N - len(strata))
    return run_pooled(PairCounts(*np.array([*strata, *empty], float).T))


# ---------------------------------------------------------------------------------------------------------- published


def test_tango_of_published_examples() -> None:
    # Fagerland, Lydersen & Laake 2014: complete response before and after therapy
    e = interval(cells((59, 6, 16, 80)))
    assert float(e.value) == pytest.approx(-10 / 161) and ends(e) == pytest.approx((-0.1240, -0.0054), abs=5e-5)
    for wrong in ((-0.1184, -0.0058), (-0.1245, 0.0003)):  # Wald, and with a correction
        assert ends(e) != pytest.approx(wrong, abs=2e-4)


@pytest.mark.parametrize(("counts", "difference", "p"), PUBLISHED)
def test_published_pairs(counts: tuple[int, ...], difference: float, p: float) -> None:
    e, (exact, mid) = interval(cells(counts)), mcnemars(cells(counts))
    assert float(e.value) == pytest.approx((counts[1] - counts[2]) / sum(counts), abs=1e-7)
    assert round(float(e.value), 3) == pytest.approx(difference, abs=1e-6)
    assert float(exact.p) == pytest.approx(p, rel=1e-2) and mid.p < exact.p
    assert (e.low > 0 or e.high < 0) == (p < 0.05)


def test_mid_p_of_the_paper() -> None:
    for counts, exact, mid in (((1, 1, 7, 12), 0.0703, 0.0391), ((59, 6, 16, 80), 0.0525, 0.0347)):
        assert [round(float(test.p), 4) for test in mcnemars(cells(counts))] == [exact, mid]


# ------------------------------------------------------------------------------------------------------------- McNemar


@settings(deadline=None, max_examples=40)
@given(pairs(400))
def test_mcnemar_is_that_of_scipy_and_statsmodels(counts: tuple[int, ...]) -> None:
    both, a_only, b_only, neither = counts
    m, k = a_only + b_only, min(a_only, b_only)
    expected = mcnemar([[both, a_only], [b_only, neither]], exact=True).pvalue
    if m:
        assert expected == pytest.approx(scipy.stats.binomtest(k, m).pvalue, rel=1e-9)
    mid = min(2 * scipy.stats.binom.cdf(k, m, 0.5) - scipy.stats.binom.pmf(k, m, 0.5), 1)
    with jax.enable_x64(True):
        assert [float(t.p) for t in mcnemars(cells(counts))] == pytest.approx([expected, mid], rel=1e-10)
    single = mcnemars(cells(counts))
    if expected > 1e-35:
        assert [float(t.p) for t in single] == pytest.approx([expected, mid], rel=1e-4)
    assert status(single[0]) is (Status.OK if m else Status.NO_DISCORDANT)


@pytest.mark.parametrize(
    ("k", "m"), [(0, 120), (11, 53), (380, 1000), (48_880, 100_000), (50_000, 100_000), (496_500, 1_000_000)]
)
def test_mcnemar_of_many_pairs_in_float32(k: int, m: int) -> None:
    exact, mid = mcnemars(cells((m, k, m - k, 0)))
    tail, there = scipy.stats.binom.cdf(k, m, 0.5), scipy.stats.binom.pmf(k, m, 0.5)
    assert exact.p.dtype == jnp.float32 and float(exact.p) == pytest.approx(min(2 * tail, 1), rel=1e-4)
    assert float(mid.p) == pytest.approx(2 * tail - there, rel=1e-4)


def test_no_discordant_pair_is_no_evidence_although_statsmodels_says_so() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert mcnemar([[50, 0], [0, 50]], exact=False, correction=True).pvalue == 0  # wrong: 1 is right
    for test in mcnemars(cells((50, 0, 0, 50))):
        assert test.p == 1 and status(test) is Status.NO_DISCORDANT


# ---------------------------------------------------------------------------------------------------------------- laws


@settings(deadline=None, max_examples=30)
@given(pairs())
def test_swapping_the_policies_flips_the_sign(counts: tuple[int, ...]) -> None:
    both, a_only, b_only, neither = counts
    e, swapped = interval(cells(counts)), interval(cells((both, b_only, a_only, neither)))
    np.testing.assert_allclose([swapped.value, *ends(swapped)], [-e.value, -e.high, -e.low], atol=1e-6)
    moved = interval(cells((0, a_only, b_only, neither + both)))  # where they agree does not matter
    np.testing.assert_array_equal(np.array(moved), np.array(e))
    exact, mid = mcnemars(cells(counts))
    assert exact.p == mcnemars(cells((both, b_only, a_only, neither)))[0].p and mid.p <= exact.p
    if abs(float((a_only - b_only) ** 2 - 3.8414588 * (a_only + b_only))) > 1e-3:
        assert (e.low > 0 or e.high < 0) == ((a_only - b_only) ** 2 > 3.8414588 * (a_only + b_only))


def test_one_more_win_moves_the_interval_up() -> None:
    a_only = np.arange(41)
    e = over_pairs(PairCounts(40 - a_only, a_only, np.zeros(41, int), np.zeros(41, int)))
    assert (np.diff(e.low) > 0).all() and (np.diff(e.high) > 0).all()
    for i in (0, 7, 40):  # mapped, jitted, plain
        each = [x[i] for x in e]
        np.testing.assert_allclose(each, interval(PairCounts(40 - i, i, 0, 0)), atol=1e-6)
        np.testing.assert_allclose(each, tango(PairCounts(40 - i, i, 0, 0)), atol=1e-6)


def test_strata_may_be_shuffled() -> None:
    strata = [(42, 42, 11, 5), (20, 9, 6, 15), (3, 0, 0, 4), (0, 1, 0, 0)]
    shuffled = [strata[i] for i in (2, 0, 3, 1)]
    np.testing.assert_allclose(pooled(*shuffled), pooled(*strata), atol=1e-6)
    one = pooled(strata[0])
    np.testing.assert_allclose(one, interval(cells(strata[0])), atol=1e-7)


@pytest.mark.parametrize(("n", "p_a", "p_b", "percent"), [(10, 0.7, 0.3, 92.4), (25, 0.98, 0.0, 91.1)])
def test_tango_covers_what_is_told(n: int, p_a: float, p_b: float, percent: float) -> None:
    a, b = (x.ravel() for x in np.meshgrid(np.arange(26), np.arange(26)))
    a, b = np.where(a + b <= n, a, 0), np.where(a + b <= n, b, 0)
    e = over_pairs(PairCounts(n - a - b, a, b, np.zeros_like(a)))
    held = np.asarray((e.low <= p_a - p_b + 1e-6) & (e.high >= p_a - p_b - 1e-6))
    where, first = np.unique(np.stack([a, b, n - a - b], axis=1), axis=0, return_index=True)
    chance = scipy.stats.multinomial.pmf(where, n, [p_a, p_b, 1 - p_a - p_b])
    assert 100 * chance @ held[first] == pytest.approx(percent, abs=0.05)


# ---------------------------------------------------------------------------------------------------------- degenerate


@pytest.mark.parametrize("n", [1, 2, 50, 100_000])
def test_pairs_that_all_agree_have_an_interval(n: int) -> None:
    e, z = interval(cells((n, 0, 0, 0))), 1.959964
    assert e.value == 0 and status(e) is Status.NO_DISCORDANT
    assert ends(e) == pytest.approx((-(z**2) / (n + z**2), z**2 / (n + z**2)), rel=1e-5, abs=1e-8)


def test_one_pair() -> None:
    e = interval(cells((0, 1, 0, 0)))
    assert (
        e.value == 1 and e.high == 1 and float(e.low) == pytest.approx((1 - 1.959964**2) / (1 + 1.959964**2), abs=1e-6)
    )
    all_won = interval(cells((0, 30, 0, 0)))
    assert all_won.high == 1 and float(all_won.low) == pytest.approx((30 - 1.959964**2) / (30 + 1.959964**2), abs=1e-6)


BAD = [(-1, 2, 3, 4), (1, -2, 3, 4), (1, 2, 3.5, 4), (1, 2, 3, np.nan), (np.inf, 2, 3, 4), (0, 0, 0, -1)]


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), *BAD])
def test_what_has_no_answer_says_why(counts: tuple[float, ...]) -> None:
    told = Status.BAD_INPUT if counts in BAD else Status.NO_DATA
    good = cells((42, 42, 11, 5))
    for e in (interval(cells(counts)), pooled(counts), change(cells(counts), good), change(good, cells(counts))):
        assert status(e) is told and np.isnan([e.value, e.low, e.high]).all()
    for test in (*mcnemars(cells(counts)), alike(cells(counts), margin=0.1), unchanged(cells(counts), good)):
        assert status(test) is told and np.isnan(test.p)
    if told is Status.BAD_INPUT:
        assert status(pooled(counts, (42, 42, 11, 5))) is told
    else:
        np.testing.assert_array_equal(np.array(pooled(counts, (42, 42, 11, 5))), np.array(pooled((42, 42, 11, 5))))


def test_levels_and_margins_that_cannot_be() -> None:
    counts = cells((42, 42, 11, 5))
    for level in (0.0, 1.0, 95.0, np.nan):
        assert status(interval(counts, level=level)) is Status.BAD_INPUT
    for margin in (0.0, -0.1, 1.0, np.nan):
        assert status(alike(counts, margin=margin)) is Status.BAD_INPUT and np.isnan(alike(counts, margin=margin).p)


# --------------------------------------------------------------------------------------------------------- equivalence


@settings(deadline=None, max_examples=30)
@given(pairs(), st.sampled_from([0.02, 0.05, 0.1, 0.3]))
def test_equivalence_is_two_one_sided_score_tests(counts: tuple[int, ...], margin: float) -> None:
    expected = scipy.stats.norm.sf(min(score([counts], -margin), -score([counts], margin)))
    with jax.enable_x64(True):
        p = float(alike(cells(counts), margin=margin).p)
        assert p == pytest.approx(expected, rel=1e-6)
        for a in (0.025, 0.05, 0.2):
            low, high = ends(interval(cells(counts), level=1 - 2 * a))
            if abs(p - a) > 1e-9:
                assert (p < a) == (-margin < low and high < margin)


def test_no_difference_found_is_not_equal() -> None:
    few, many = cells((8, 1, 1, 0)), cells((800, 100, 100, 0))
    assert mcnemars(few)[0].p == 1 and mcnemars(many)[0].p == 1
    assert alike(few, margin=0.05).p > 0.3 and alike(many, margin=0.05).p < 1e-3
    same = alike(cells((50, 0, 0, 50)), margin=0.05)
    assert status(same) is Status.OK and 0 < same.p < 0.02


# --------------------------------------------------------------------------------------------------------- interaction


def joined(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, float]:
    """Two (value, low, high) to the ends of their difference."""
    d = before[0] - after[0]
    return d - np.hypot(before[0] - before[1], after[2] - after[0]), d + np.hypot(
        before[2] - before[0], after[0] - after[1]
    )


@settings(deadline=None, max_examples=25)
@given(pairs(), pairs())
def test_difference_of_decreases_joins_two_twins(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    parts = [((c[1] - c[2]) / sum(c), *twin(c)) for c in (before, after)]
    with jax.enable_x64(True):
        e, p = change(cells(before), cells(after)), float(unchanged(cells(before), cells(after)).p)
        assert float(e.value) == pytest.approx(parts[0][0] - parts[1][0], abs=1e-14)
        assert ends(e) == pytest.approx(joined(*parts), abs=1e-7)
        again = change(cells(after), cells(before))
        assert ends(again) == pytest.approx((-float(e.high), -float(e.low)), abs=1e-12)
        if 1e-8 < p < 1 - 1e-6:  # the interval of level 1 - p just touches 0
            touching = change(cells(before), cells(after), level=1 - p)
            assert min(abs(float(touching.low)), abs(float(touching.high))) == pytest.approx(0, abs=1e-9)
        else:
            assert p <= 1e-8 or abs(float(e.value)) < 1e-6
    assert float(unchanged(cells(before), cells(after)).p) == pytest.approx(p, rel=2e-3, abs=1e-7)


def test_losses_that_are_alike() -> None:
    start, lost = cells((90, 5, 5, 0)), cells((40, 5, 5, 50))
    e, test = change(start, lost), unchanged(start, lost)
    assert e.value == 0 and e.low < 0 < e.high and test.p == 1 and status(test) is Status.OK
    quiet = cells((50, 0, 0, 50))
    assert status(change(quiet, quiet)) is Status.NO_DISCORDANT and unchanged(quiet, quiet).p == 1
    assert status(change(quiet, lost)) is Status.OK and change(quiet, quiet).low < 0


def test_losses_that_are_not_matched() -> None:
    """Expert 100 to 84 of 100, learner 100 to 53: 16 points against 47."""
    k = np.array([[100, 84], [100, 53]])
    n = np.full((2, 2), 100)
    e = decrease_difference_unpaired(k[0], n[0], k[1], n[1])
    assert float(e.value) == pytest.approx(0.16 - 0.47, abs=1e-6)
    wilsons = {x: (x / 100, *np.clip(proportion_confint(x, 100, method="wilson"), 0, 1)) for x in (100, 84, 53)}
    conditions = [(a - b, *joined(wilsons[100 * a], wilsons[100 * b])) for a, b in ((1, 1), (0.84, 0.53))]
    assert ends(e) == pytest.approx(joined(*conditions), abs=1e-6)
    assert ends(newcombe(84, 100, 53, 100)) == pytest.approx(conditions[1][1:], abs=1e-6)
    bad, none = decrease_difference_unpaired(k[0] + 1, n[0], k[1], n[1]), np.array([100, 0])
    assert status(bad) is Status.BAD_INPUT
    assert status(decrease_difference_unpaired(np.minimum(k[0], none), none, k[1], n[1])) is Status.NO_DATA


def test_no_interaction_is_rejected_as_often_as_asked() -> None:
    """Counted over all outcomes of ten pairs in each of two conditions."""
    all_cells = np.array([(a, b) for a, b in itertools.product(range(11), repeat=2) if a + b <= 10])
    counts = PairCounts(10 - all_cells.sum(1), *all_cells.T, np.zeros(len(all_cells), int))
    over = jax.jit(jax.vmap(jax.vmap(decrease_difference, (None, 0)), (0, None)))
    e = over(counts, counts)
    for p_from, p_to in (((0.3, 0.3), (0.1, 0.1)), ((0.5, 0.2), (0.4, 0.1)), ((0.3, 0.0), (0.35, 0.05))):
        chance = [
            scipy.stats.multinomial.pmf(np.c_[all_cells, counts.both], 10, [*p, 1 - sum(p)]) for p in (p_from, p_to)
        ]
        rejected = np.asarray((e.low > 0) | (e.high < 0))
        assert chance[0] @ rejected @ chance[1] < 0.055
