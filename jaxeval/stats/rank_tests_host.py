"""Rank tests of two policies' values, on the host in float64: one cell a call, exact for small n whatever the ties.

They ask whether one policy's values tend to be larger, not whether the means differ: an increasing map of the values
changes nothing of `rank_sum`, and outliers count as what they are, the largest.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Num

from jaxeval.stats.estimate import Status

EXACT_N = 50
"""Differences that are not 0 (of pairs), or values of each side, up to which p is exact."""


class RankTest(NamedTuple):
    """A rank statistic, its effect in [-1, 1] (positive: a is larger), the two-sided p, and whether that is exact.

    ``superiority``: how often a is larger, ties counted half. ``used_n``: pairs that differ, or values of both sides.
    NaN where the status says so; CONSTANT with p = 1 is a warning: all are tied.
    """

    statistic: float
    effect: float
    superiority: float
    p: float
    exact: bool
    used_n: int
    status: Status


def signed_rank(d: Num[np.ndarray, " N"]) -> RankTest:
    """Wilcoxon's signed-rank test that the differences a - b of matched pairs lie symmetrically about 0.

    |d| are ranked, ties sharing their mean rank and zeros ranked with the others and then left out (Pratt);
    W+ and W- are the sums of the ranks of positive and of negative differences, ``statistic`` is W+;
    effect = (W+ - W-) / (W+ + W-), the matched-pairs rank-biserial correlation;
    superiority = (pairs with d > 0 + half of those with d = 0) / n.
    p of up to EXACT_N differences that are not 0: twice the smaller tail of W+ over all 2^m signs of the ranks that
    were seen, ties and zeros as they are, at most 1; beyond: normal, with the variance sum r² / 4 of these ranks and
    half a unit taken off. The least p of m pairs is 2^(1 - m): 5 pairs never reach .05.
    CONSTANT (a warning): every difference is 0, p = 1 and effect 0. Undefined: NO_DATA for no pair, BAD_INPUT for a
    difference that is not finite.
    Source: Wilcoxon 1945, Biometrics Bull. 1:80; Pratt 1959, JASA 54:655; Kerby 2014, Compr. Psychol. 3:1.
    Oracle: all 2^m signs one by one; scipy.stats.wilcoxon(zero_method="pratt").

    >>> made = signed_rank(np.array([0.0, 1.0, 2.0, 2.0, -1.0, 4.0]))
    >>> f"W+ {made.statistic:g}, effect {made.effect:.2f}, p {made.p:.4f}"
    'W+ 17.5, effect 0.75, p 0.1875'
    """
    d = np.asarray(d, float)
    if not np.isfinite(d).all():
        return _undefined(Status.BAD_INPUT)
    if d.size == 0:
        return _undefined(Status.NO_DATA)
    superiority = float(np.mean((d > 0) + 0.5 * (d == 0)))
    ranks = _midranks(np.abs(d))[d != 0]
    above, total = float(ranks[d[d != 0] > 0].sum()), float(ranks.sum())
    m = len(ranks)
    if m == 0:
        return RankTest(0.0, 0.0, superiority, 1.0, True, 0, Status.CONSTANT)
    exact = m <= EXACT_N
    if exact:
        p = _two_sided(_sign_chances(np.rint(2 * ranks).astype(int)), round(2 * above))
    else:
        p = _normal_p(abs(above - total / 2) - 0.5, float(np.sum(ranks**2)) / 4)
    return RankTest(above, 2 * above / total - 1, superiority, p, exact, m, Status.OK)


def rank_sum(a: Num[np.ndarray, " N"], b: Num[np.ndarray, " M"]) -> RankTest:
    """Mann and Whitney's test that values of a and b, of independent runs, are drawn alike.

    U = pairs (one of a, one of b) in which a is larger, ties counted half: ``statistic``;
    superiority = U / (n_a n_b), an estimate of P(a > b) + P(a = b) / 2;  effect = 2 superiority - 1.
    p of up to EXACT_N values a side: twice the smaller tail of U over all choices of n_a of the values seen, ties as
    they are, at most 1; beyond: normal, with the variance
    n_a n_b / 12 (n + 1 - sum (t³ - t) / (n (n - 1))) over groups of t tied values and half a unit taken off.
    It is no test of medians, nor of means where the two vary differently.
    CONSTANT (a warning): all values are tied, p = 1 and effect 0. Undefined: NO_DATA if either side has no value,
    BAD_INPUT for a value that is not finite.
    Source: Mann & Whitney 1947, Ann. Math. Stat. 18:50. Oracle: all choices one by one; scipy.stats.mannwhitneyu.

    >>> made = rank_sum(np.array([1.0, 2.0, 6.0, 7.0]), np.array([1.0, 1.5, 0.5]))
    >>> f"U {made.statistic:g}, P(a > b) {made.superiority:.3f}, p {made.p:.4f}"
    'U 10.5, P(a > b) 0.875, p 0.1714'
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return _undefined(Status.BAD_INPUT)
    n_a, n_b = len(a), len(b)
    if not (n_a and n_b):
        return _undefined(Status.NO_DATA)
    both = np.concatenate([a, b])
    ranks, n = _midranks(both), n_a + n_b
    u = float(ranks[:n_a].sum()) - n_a * (n_a + 1) / 2
    superiority = u / (n_a * n_b)
    tied = np.unique(both, return_counts=True)[1].astype(float)
    if len(tied) == 1:
        return RankTest(u, 0.0, superiority, 1.0, True, n, Status.CONSTANT)
    exact = max(n_a, n_b) <= EXACT_N
    if exact:
        chances = _choice_chances(np.rint(2 * ranks).astype(int), n_a)
        p = _two_sided(chances, round(2 * u) + n_a * (n_a + 1))
    else:
        variance = n_a * n_b / 12 * (n + 1 - float(np.sum(tied**3 - tied)) / (n * (n - 1)))
        p = _normal_p(abs(u - n_a * n_b / 2) - 0.5, variance)
    return RankTest(u, 2 * superiority - 1, superiority, p, exact, n, Status.OK)


# ------------------------------------------------------------------------------------------------------------- inside


def _midranks(x: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Ranks from 1; ties share their mean rank."""
    _, group, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def _sign_chances(twice: np.ndarray) -> np.ndarray:
    """P(sum of those of the numbers that are drawn = 0, 1, ...), each drawn with probability 1/2."""
    chances = np.zeros(int(twice.sum()) + 1)
    chances[0] = 1.0
    for r in twice:
        drawn = np.zeros_like(chances)
        drawn[r:] = chances[: len(chances) - r]
        chances = (chances + drawn) / 2
    return chances


def _choice_chances(twice: np.ndarray, chosen_n: int) -> np.ndarray:
    """P(sum of ``chosen_n`` of the numbers = 0, 1, ...), every choice of as many equally likely.

    Row k of the table: P(k of the first i are chosen and sum to s), where of the numbers that are left each is as
    likely as the next: number i is chosen with (chosen_n - k) / (n - i). All terms are positive: no digit is lost.
    """
    n, most = len(twice), int(np.sort(twice)[len(twice) - chosen_n :].sum())
    table = np.zeros((chosen_n + 1, most + 1))
    table[0, 0] = 1.0
    for i, r in enumerate(np.sort(twice)):
        share = (chosen_n - np.arange(chosen_n + 1.0)[:, None]) / (n - i)  # may leave [0, 1] only where the chance is 0
        share = np.clip(share, 0.0, 1.0)
        chosen, table = table * share, table * (1 - share)
        table[1:, r:] += chosen[:-1, : most + 1 - r]
    return table[chosen_n]


def _two_sided(chances: np.ndarray, seen: int) -> float:
    """Twice the smaller of P(at most what was seen) and P(at least it)."""
    return min(1.0, 2 * min(float(chances[: seen + 1].sum()), float(chances[seen:].sum())))


def _normal_p(apart: float, variance: float) -> float:
    return min(1.0, math.erfc(max(apart, 0.0) / math.sqrt(2 * variance)))


def _undefined(status: Status) -> RankTest:
    return RankTest(math.nan, math.nan, math.nan, math.nan, False, 0, status)
