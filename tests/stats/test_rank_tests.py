"""Signed-rank and rank-sum tests against every sign and every choice one by one, SciPy, and by hand."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxeval.stats.estimate import Status
from jaxeval.stats.rank_tests_host import EXACT_N, rank_sum, signed_rank

few = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=9).map(np.array)


def two_sided(every: np.ndarray, seen: float) -> float:
    return min(1.0, 2 * min(np.mean(every <= seen + 1e-9), np.mean(every >= seen - 1e-9)))


@settings(deadline=None, max_examples=60)
@given(few)
def test_signed_rank_is_the_share_of_all_signs(d: np.ndarray) -> None:
    made = signed_rank(d)
    ranks = scipy.stats.rankdata(np.abs(d))
    seen, ranks = ranks[d > 0].sum(), ranks[d != 0]
    every = np.array([np.dot(ranks, sign) for sign in product((0, 1), repeat=len(ranks))])
    assert made.p == pytest.approx(two_sided(every, seen), abs=1e-12) and made.statistic == pytest.approx(seen)
    assert made.superiority == np.mean((d > 0) + 0.5 * (d == 0))
    turned = signed_rank(-d)
    assert turned.p == pytest.approx(made.p) and turned.effect == pytest.approx(-made.effect)


@settings(deadline=None, max_examples=60)
@given(few, few)
def test_rank_sum_is_the_share_of_all_choices(a: np.ndarray, b: np.ndarray) -> None:
    a, b = a[:5], b[:6]
    made, ranks = rank_sum(a, b), scipy.stats.rankdata(np.concatenate([a, b]))
    every = np.array([sum(chosen) for chosen in combinations(ranks, len(a))])
    assert made.p == pytest.approx(two_sided(every, ranks[: len(a)].sum()), abs=1e-12)
    pairs = np.sign(a[:, None] - b[None])
    assert made.superiority == pytest.approx(np.mean((pairs + 1) / 2)) and made.effect == pytest.approx(pairs.mean())
    assert rank_sum(np.exp(a), np.exp(b)).p == made.p  # an increasing map changes nothing


@pytest.mark.parametrize("n", [10, EXACT_N, EXACT_N + 1, 200])
def test_scipy_says_the_same(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.3, size=n), rng.normal(size=n)
    exact = n <= EXACT_N
    theirs = scipy.stats.wilcoxon(a, correction=not exact, method="exact" if exact else "asymptotic")
    assert signed_rank(a).p == pytest.approx(theirs.pvalue, rel=1e-9) and signed_rank(a).exact is exact
    theirs = scipy.stats.mannwhitneyu(a, b, method="exact" if exact else "asymptotic")
    assert rank_sum(a, b).p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert rank_sum(a, b).statistic == pytest.approx(theirs.statistic)
    a, b = np.round(2 * rng.normal(0.3, size=n + 60)), np.round(2 * rng.normal(size=n + 60))  # ties and zeros
    theirs = scipy.stats.wilcoxon(a, zero_method="pratt", correction=True, method="asymptotic")
    assert signed_rank(a).p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert rank_sum(a, b).p == pytest.approx(scipy.stats.mannwhitneyu(a, b, method="asymptotic").pvalue, rel=1e-9)


def test_golden_by_hand() -> None:
    # |d| 0 1 1 2 2 4, ranks 1 2.5 2.5 4.5 4.5 6: the zero keeps rank 1 and has no sign. W- = 2.5 of 20.
    # Of 32 signs a sum of at most 2.5 have: none, either 2.5 -> 3; p = 2 * 3 / 32.
    made = signed_rank(np.array([0.0, 1, -1, 2, 2, 4]))
    assert (made.statistic, made.effect, made.p) == pytest.approx((17.5, 0.75, 6 / 32))
    # Wilcoxon's own way, the zero left out first: ranks 1.5 1.5 3.5 3.5 5, W- 1.5; its effect is another
    assert abs(made.effect - (15 - 2 * 1.5) / 15) > 0.04
    # the normal approximation of 5 pairs
    assert abs(made.p - scipy.stats.wilcoxon([1.0, -1, 2, 2, 4], method="asymptotic").pvalue) > 0.05
    # a 1 2 6 7, b 0.5 1 1.5: a is larger in 10 of 12 pairs and tied in 1
    made = rank_sum(np.array([1.0, 2, 6, 7]), np.array([0.5, 1, 1.5]))
    assert made.superiority == pytest.approx(10.5 / 12) and made.p == pytest.approx(6 / 35)
    assert abs(made.superiority - 10 / 12) > 0.04 and abs(made.superiority - 11 / 12) > 0.04  # ties to one side


def test_the_least_p_of_few_pairs() -> None:
    assert [signed_rank(np.arange(1.0, m + 1)).p for m in (1, 5, 6)] == [1.0, 2**-4, 2**-5]
    assert signed_rank(np.ones(6)).p == 2**-5  # a constant difference has a test by ranks


@pytest.mark.parametrize(
    ("d", "expected"),
    [
        ([], Status.NO_DATA),
        ([0.0, 0], Status.CONSTANT),
        ([1.0, np.nan], Status.BAD_INPUT),
        ([1.0, np.inf], Status.BAD_INPUT),
    ],
)
def test_what_has_no_answer_says_so(d: list, expected: Status) -> None:
    pairs, sides = signed_rank(np.array(d)), rank_sum(np.array(d), np.array([0.0]))
    for made in (pairs, sides):
        assert made.status is expected
        numbers = [made.statistic, made.effect, made.superiority, made.p]
        assert np.isfinite(numbers).all() if expected is Status.CONSTANT else np.isnan(numbers).all()
    if expected is Status.CONSTANT:
        assert pairs.p == sides.p == 1 and pairs.effect == sides.effect == 0 and pairs.superiority == 0.5
