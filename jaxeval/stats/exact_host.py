"""Exact tests of two independent rates of success, with scipy on the host: one cell a call, nothing is compiled."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxeval.stats.estimate import Scalar, Status, Test

TIE = 1 + 1e-9
"""Tables whose statistics differ by less are as far out as one another: rounding must not leave one out."""
RATES_N = 1001
"""Shared rates at which the largest probability is looked for before it is refined."""


def fisher(k_a: Scalar, n_a: Scalar, k_b: Scalar, n_b: Scalar) -> Test:
    """Fisher's exact two-sided test of p_a = p_b, k of n independent runs each, given how many succeeded in all.

    p = the probability of all tables with these margins that are no likelier than the one seen. Rejects at most as
    often as asked, and at small n far less often. For runs that do not share their starts: on matched pairs it throws
    the matching away, so use `paired.mcnemar_exact` there.
    ONE_CLASS (a warning): all runs succeeded, or none, and p = 1. Undefined: NO_DATA if either n is 0; BAD_INPUT
    unless 0 <= k <= n, both whole.
    Source: Fisher 1935, The Design of Experiments. Oracle: the sum over tables in whole numbers.

    >>> f"{fisher(8, 10, 2, 10).p:.4f}"
    '0.0230'
    """
    status, counts = _checked(k_a, n_a, k_b, n_b)
    if status is not Status.OK:
        return _test(status)
    from scipy.stats import hypergeom

    k_a_, n_a_, k_b_, n_b_ = counts
    chance = hypergeom.pmf(np.arange(n_a_ + 1), n_a_ + n_b_, n_a_, k_a_ + k_b_)
    return _test(status, chance[chance <= chance[k_a_] * TIE].sum())


def barnard(k_a: Scalar, n_a: Scalar, k_b: Scalar, n_b: Scalar) -> Test:
    """Barnard's exact two-sided test of p_a = p_b, with the pooled score statistic.

    p = the largest probability, over the shared rate, of a statistic at least as far out as the one seen. Rejects at
    most as often as asked, and mostly more often than `fisher`. Everything else as `fisher`.
    Source: Barnard 1947, Biometrika 34:123; the statistic of Suissa & Shuster 1985, JRSS A 148:317.
    Oracle: the maximum over a fine grid of rates. scipy.stats.barnard_exact agrees but where tables tie: rounding makes
    it leave some of them out, and its p is then too small.

    >>> f"{barnard(8, 10, 2, 10).p:.4f}"
    '0.0118'
    """
    status, counts = _checked(k_a, n_a, k_b, n_b)
    if status is not Status.OK:
        return _test(status)
    k_a_, n_a_, k_b_, n_b_ = counts
    x, y = np.ogrid[0.0 : n_a_ + 1, 0.0 : n_b_ + 1]
    total = x + y
    spread = np.maximum(total * (n_a_ + n_b_ - total), 1.0)  # 0 only where all or none succeed, and the score is 0
    score = (x * n_b_ - y * n_a_) ** 2 / spread
    return _test(status, _largest_chance(score * TIE >= score[k_a_, k_b_]))


def boschloo(k_a: Scalar, n_a: Scalar, k_b: Scalar, n_b: Scalar) -> Test:
    """Boschloo's exact two-sided test of p_a = p_b: Barnard's, with Fisher's one-sided p as the statistic.

    p = twice the smaller of the two one-sided p-values, at most 1, each the largest over the shared rate; one-sided it
    is never weaker than Fisher's. Everything else as `fisher`.
    Source: Boschloo 1970, Stat. Neerl. 24:1. Oracle: the maximum over a fine grid of rates; scipy.stats.boschloo_exact.

    >>> f"{boschloo(8, 10, 2, 10).p:.4f}"
    '0.0118'
    """
    status, counts = _checked(k_a, n_a, k_b, n_b)
    if status is not Status.OK:
        return _test(status)
    from scipy.stats import hypergeom

    k_a_, n_a_, k_b_, n_b_ = counts
    x, y = np.ogrid[0 : n_a_ + 1, 0 : n_b_ + 1]
    N, total = n_a_ + n_b_, x + y
    fewer, more = hypergeom.cdf(x, N, n_a_, total), hypergeom.sf(x - 1, N, n_a_, total)
    one_sided = [_largest_chance(tail <= tail[k_a_, k_b_] * TIE) for tail in (fewer, more)]
    return _test(status, 2 * min(one_sided))


def _largest_chance(tables: np.ndarray) -> float:
    """The largest probability that (k_a, k_b) is one of these tables [n_a + 1, n_b + 1], over a rate that both share.

    Given k_a + k_b it does not depend on the rate: what is left is the mean of that over one binomial.
    """
    from scipy.optimize import minimize_scalar
    from scipy.stats import binom, hypergeom

    n_a, n_b = tables.shape[0] - 1, tables.shape[1] - 1
    x, y = np.nonzero(tables)
    given = np.bincount(x + y, hypergeom.pmf(x, n_a + n_b, n_a, x + y), minlength=n_a + n_b + 1)
    total = np.arange(n_a + n_b + 1)

    def chance(angle: np.ndarray) -> np.ndarray:
        return binom.pmf(total, n_a + n_b, np.sin(angle)[..., None] ** 2) @ given

    angles = np.linspace(0, np.pi / 2, RATES_N)  # even steps of the arc sine: a binomial is as wide everywhere
    chances = chance(angles)
    best = int(np.argmax(chances))
    near = (angles[max(best - 1, 0)], angles[min(best + 1, RATES_N - 1)])
    refined = minimize_scalar(lambda x: -chance(np.asarray(x)), bounds=near, method="bounded", options={"xatol": 1e-9})
    return max(float(chances[best]), -float(refined.fun))  # pyright: ignore[reportAttributeAccessIssue]


def _checked(*counts: Scalar) -> tuple[Status, tuple[int, int, int, int]]:
    k_a, n_a, k_b, n_b = np.asarray(counts, float).tolist()
    whole = all(x.is_integer() for x in (k_a, n_a, k_b, n_b))
    if not (whole and 0 <= k_a <= n_a and 0 <= k_b <= n_b):
        return Status.BAD_INPUT, (0, 0, 0, 0)
    status = Status.OK
    if n_a == 0 or n_b == 0:
        status = Status.NO_DATA
    elif k_a + k_b in (0, n_a + n_b):
        status = Status.ONE_CLASS
    return status, (int(k_a), int(n_a), int(k_b), int(n_b))


def _test(status: Status, p: float = np.nan) -> Test:
    p = 1.0 if status is Status.ONE_CLASS else min(p, 1.0) if status is Status.OK else np.nan
    return Test(jnp.asarray(p, jnp.result_type(float)), jnp.asarray(status.code, jnp.int32))
