"""Rates of success and their differences between independent runs: intervals of k out of n.

Every function takes the counts of one cell (jax.vmap for many). Counts are whole numbers up to 1 / eps of the float in
use (8 million in float32). Worst cases of coverage are over a grid of true rates, at a nominal 95 %; docs/coverage.md
has the tables and the command that makes them.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, ndtri
from jaxtyping import Array, Bool, Float, Int, Num
from numpy import ndarray

from jaxeval.linalg import divisor
from jaxeval.stats.estimate import Estimate, Scalar, Status, is_level, status_of

Counts = Num[Array, " S"] | Num[ndarray, " S"]
"""A count for each of S strata."""


def wilson(k: Scalar, n: Scalar, *, level: Scalar = 0.95) -> Estimate:
    """Rate of success k/n with Wilson's score interval.

    p = k/n;  (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n),  z the exact normal quantile; the low end of 0/n is
    0, the high end of n/n is 1. In [0, 1].
    Undefined: NO_DATA for n = 0; BAD_INPUT unless 0 <= k <= n, both whole, and 0 < level < 1.
    Source: Wilson 1927, JASA 22:209. Covers 83.5 % at worst (n = 10), 83.7 % (25), 83.8 % (100), where k = 0 or n is
    likely and p just outside the interval of 1/n; 95 % on average.
    Oracle: statsmodels proportion_confint("wilson").

    >>> rate = wilson(84, 100)
    >>> f"{rate.value:.2f} [{rate.low:.3f}, {rate.high:.3f}]"
    '0.84 [0.756, 0.899]'
    """
    status, k, n, level = _checked(k, n, level)
    z, p = normal_quantile(level), k / n
    middle = p + z * z / (2 * n)
    half = z * jnp.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return _estimate(status, p, *_clipped(low, high, k, n))


def agresti_coull(k: Scalar, n: Scalar, *, level: Scalar = 0.95) -> Estimate:
    """Rate of success k/n with Agresti and Coull's interval: Wald's, once z²/2 successes and failures are added.

    m = n + z²;  q = (k + z²/2) / m;  q ± z sqrt(q(1-q)/m), cut to [0, 1]. The value is k/n, not q.
    Undefined: as `wilson`.
    Source: Agresti & Coull 1998, Am. Stat. 52:119. Covers 92.4 % at worst (n = 10), 93.0 % (25), 93.8 % (100), 96 % on
    average, for it holds all of Wilson's.
    Oracle: statsmodels proportion_confint("agresti_coull").

    >>> rate = agresti_coull(84, 100)
    >>> f"{rate.value:.2f} [{rate.low:.3f}, {rate.high:.3f}]"
    '0.84 [0.755, 0.900]'
    """
    status, k, n, level = _checked(k, n, level)
    z = normal_quantile(level)
    m = n + z * z
    q = (k + z * z / 2) / m
    half = z * jnp.sqrt(q * (1 - q) / m)
    return _estimate(status, k / n, *_clipped(q - half, q + half, k, n))


def clopper_pearson(k: Scalar, n: Scalar, *, level: Scalar = 0.95) -> Estimate:
    """Rate of success k/n with Clopper and Pearson's exact interval, which covers at least ``level`` whatever p is.

    The low end solves P(X >= k | n, p) = a, the high end P(X <= k | n, p) = a, with a = (1 - level) / 2: the a-quantile
    of Beta(k, n-k+1) and the (1-a)-quantile of Beta(k+1, n-k). By bisection. In [0, 1].
    Undefined: as `wilson`.
    Source: Clopper & Pearson 1934, Biometrika 26:404. Covers 98.4 % on average (n = 10), 97.5 % (25), 96.4 % (100): it
    is wide.
    Oracle: scipy.stats.beta.ppf.

    >>> rate = clopper_pearson(84, 100)
    >>> f"{rate.value:.2f} [{rate.low:.3f}, {rate.high:.3f}]"
    '0.84 [0.753, 0.906]'
    """
    status, k, n, level = _checked(k, n, level)
    tail = (1 - level) / 2
    low, high = 1 - _highest_rate(n - k, n, tail), _highest_rate(k, n, tail)
    return _estimate(status, k / n, *_clipped(low, high, k, n))


def newcombe(k_a: Scalar, n_a: Scalar, k_b: Scalar, n_b: Scalar, *, level: Scalar = 0.95) -> Estimate:
    """Difference of two independent rates p_a - p_b (positive: a succeeds more) with Newcombe's hybrid score interval.

    d = p_a - p_b;  low = d - sqrt((p_a - l_a)² + (u_b - p_b)²);  high = d + sqrt((u_a - p_a)² + (p_b - l_b)²), with
    l, u from `wilson`. In [-1, 1]. For runs that do not share their starts: on matched pairs it throws the matching
    away, so use `paired.tango` there.
    Undefined: NO_DATA if either n is 0; BAD_INPUT as `wilson`.
    Source: Newcombe 1998, Stat. Med. 17:873, method 10. Covers 87.9 % at worst (n = 10 each), 89.5 % (25), 92.2 %
    (100), where one rate is almost 1 and the other almost 0; 95 % on average.
    Oracle: statsmodels confint_proportions_2indep("newcomb").

    >>> gain = newcombe(56, 70, 48, 80)
    >>> f"{gain.value:.2f} [{gain.low:.4f}, {gain.high:.4f}]"
    '0.20 [0.0524, 0.3339]'
    """
    a, b = wilson(k_a, n_a, level=level), wilson(k_b, n_b, level=level)
    return difference(a, b)


def mantel_haenszel(k_a: Counts, n_a: Counts, k_b: Counts, n_b: Counts, *, level: Scalar = 0.95) -> Estimate:
    """Difference of two independent rates p_a - p_b pooled over strata (tasks, say), by Mantel and Haenszel's weights.

    w_s = n_a n_b / (n_a + n_b);  d = sum w_s (p_a - p_b)_s / sum w_s;  d ± z sqrt(V), in [-1, 1], with Sato's variance

        V = (d sum P_s + sum Q_s) / (sum w_s)²,     N = n_a + n_b,
        P_s = (n_a² k_b - n_b² k_a + n_a n_b (n_b - n_a) / 2) / N²,
        Q_s = (k_a (n_b - k_b) + k_b (n_a - k_a)) / 2N,

    which holds for few large strata and for many small ones alike. It takes the difference to be the same in all
    strata. A stratum where either arm has no episode has no weight. Where V is 0 (no stratum varies) the ends are those
    of `newcombe` in each stratum instead, their distances from d_s added as sqrt(sum (w_s distance_s)²) / sum w_s.
    Undefined: NO_DATA if no stratum has episodes of both; BAD_INPUT if any stratum's counts cannot be.
    Source: Sato 1989, Biometrics 45:1323; Greenland & Robins 1985, Biometrics 41:55. Covers 94.6 to 94.9 % in the
    four unlike strata that were simulated (n = 10 to 100 in each); no worst case is known.
    Oracle: rational arithmetic on the formula; its variance against simulated differences.

    >>> gain = jax.jit(mantel_haenszel)(*jnp.array([[45, 20], [50, 40], [40, 15], [50, 40]]))
    >>> f"{gain.value:.4f} [{gain.low:.3f}, {gain.high:.3f}]"
    '0.1111 [-0.012, 0.234]'
    """
    per_stratum = jax.vmap(lambda *counts: newcombe(*counts, level=level))(k_a, n_a, k_b, n_b)
    bad = (per_stratum.status == Status.BAD_INPUT.code).any()
    used = per_stratum.status == Status.OK.code
    k_a, n_a, k_b, n_b = (jnp.where(used, x, 0).astype(jnp.result_type(float)) for x in (k_a, n_a, k_b, n_b))
    N = jnp.where(used, n_a + n_b, 1.0)
    w = n_a * (n_b / N)
    total = jnp.where(used.any(), w.sum(), 1.0)
    d = (k_a * (n_b / N) - k_b * (n_a / N)).sum() / total

    share_a, share_b = n_a / N, n_b / N
    P = share_a**2 * k_b - share_b**2 * k_a + share_a * share_b * (n_b - n_a) / 2
    Q = (k_a * ((n_b - k_b) / N) + k_b * ((n_a - k_a) / N)) / 2
    V = (d * P.sum() + Q.sum()) / total**2
    varies = (used & (k_a + k_b > 0) & (k_a + k_b < n_a + n_b)).any() & (jnp.abs(d) < 1)
    half = normal_quantile(level) * jnp.sqrt(jnp.where(varies, V, 0.0))

    def pooled(distance: Float[Array, " S"]) -> Float[Array, ""]:
        return jnp.sqrt((jnp.where(used, w * distance, 0.0) ** 2).sum()) / total

    below = jnp.where(varies, half, pooled(per_stratum.value - per_stratum.low))
    above = jnp.where(varies, half, pooled(per_stratum.high - per_stratum.value))
    status = status_of((bad, Status.BAD_INPUT), (~used.any(), Status.NO_DATA))
    return _estimate(status, d, jnp.maximum(d - below, -1.0), jnp.minimum(d + above, 1.0))


def difference(a: Estimate, b: Estimate) -> Estimate:
    """Difference a - b of two independent estimates; each end's distance is the root of the squared ones (MOVER).

    low = d - sqrt((a - low_a)² + (high_b - b)²);  high = d + sqrt((high_a - a)² + (b - low_b)²), in their unit and
    within the differences that their ranges allow. Undefined where either is, with that one's status.
    Source: Newcombe 1998; Zou & Donner 2008, Stat. Med. 27:1693. Oracle: through `newcombe`.

    >>> gain = difference(wilson(56, 70), wilson(48, 80))
    >>> f"{gain.low:.4f}"
    '0.0524'
    """
    d = a.value - b.value
    low = d - jnp.hypot(a.value - a.low, b.high - b.value)
    high = d + jnp.hypot(a.high - a.value, b.value - b.low)
    status = status_of(*((jnp.isnan(x.value) & (x.status == s.code), s) for s in reversed(Status) for x in (a, b)))
    return _estimate(status, d, low, high)


# ------------------------------------------------------------------------------------------- what the others use too


def normal_quantile(level: Scalar) -> Float[Array, ""]:
    """Half-width in standard deviations of the central interval: 1.96 for a level of .95."""
    return -ndtri(jnp.asarray((1 - level) / 2, jnp.result_type(float)))


def binomial_pmf(k: Float[Array, ""], n: Float[Array, ""], p: Float[Array, ""]) -> Float[Array, ""]:
    """P(X = k) of n trials, 0 <= k <= n, to a relative error of some eps even where lgamma(n) would lose all digits.

    Source: Loader 2000, "Fast and accurate computation of binomial probabilities": the log is a sum of small terms.
    """
    inside = (k > 0) & (k < n)
    x, y = jnp.where(inside, k, 1.0), jnp.where(inside, n - k, 1.0)
    m, q = x + y, 1 - p
    log = _stirling_error(m) - _stirling_error(x) - _stirling_error(y)
    log = log - _deviance(x, m * p) - _deviance(y, m * q)
    within = jnp.exp(log) * jnp.sqrt(m / x / (2 * jnp.pi * y))
    return jnp.where(inside, within, jnp.where(k > 0, p**n, jnp.exp(n * jnp.log1p(-p))))


@jax.jit  # for who calls without: a loop is compiled anew at each call
def binomial_tail(k: Float[Array, ""], n: Float[Array, ""], p: Float[Array, ""]) -> Float[Array, ""]:
    """P(X <= k) of n trials where k <= n p: the terms fall from the first on and are added while they count."""
    eps = jnp.finfo(n.dtype).eps
    odds = (1 - p) / divisor(p)

    def counts(state: tuple[Array, Array, Array]) -> Bool[Array, ""]:
        term, total, j = state
        return (term > eps * total) & (j < k)

    def add(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        term, total, j = state
        term = term * odds * (k - j) / (n - k + 1 + j)
        return term, total + term, j + 1

    one = jnp.ones_like(n)
    _, total, _ = jax.lax.while_loop(counts, add, (one, one, jnp.zeros_like(n)))
    return jnp.minimum(binomial_pmf(k, n, p) * total, 1.0)


def bisect(
    holds: Callable[[Float[Array, ""]], Bool[Array, ""]], start: Float[Array, ""], stop: Float[Array, ""]
) -> Float[Array, ""]:
    """Where ``holds`` turns from true (at ``start``) to false (at ``stop``), to the last bit of a number about 1."""

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        held, failed = ends
        middle = held + (failed - held) / 2
        go_on = holds(middle)
        return jnp.where(go_on, middle, held), jnp.where(go_on, failed, middle)

    held, failed = jax.lax.fori_loop(0, jnp.finfo(start.dtype).nmant + 4, halve, (start, stop))
    return held + (failed - held) / 2


def cannot_be(k: Float[Array, "..."], n: Float[Array, "..."], level: Scalar) -> Bool[Array, "..."]:
    """Whether k of n at this level is no question at all: a count that is negative, not whole, NaN, or too many."""
    most = 1 / jnp.finfo(n.dtype).eps
    whole = (k == jnp.floor(k)) & (n == jnp.floor(n))
    return ~(whole & (k >= 0) & (k <= n) & (n <= most) & is_level(level))


@jax.jit
def _highest_rate(k: Float[Array, ""], n: Float[Array, ""], tail: Float[Array, ""]) -> Float[Array, ""]:
    """The p at which P(X <= k) has fallen to ``tail``; 1 for k = n."""
    return bisect(lambda p: binomial_tail(k, n, p) > tail, k / n, jnp.ones_like(n))


def _checked(
    k: Scalar, n: Scalar, level: Scalar
) -> tuple[Int[Array, ""], Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Status; k, n, level as floats, 0 of 1 at .5 where there is no answer: nothing loops for long or divides by 0."""
    k, n, level_ = (jnp.asarray(x, jnp.result_type(float)) for x in (k, n, level))
    status = status_of((cannot_be(k, n, level), Status.BAD_INPUT), (n == 0, Status.NO_DATA))
    ok = status == Status.OK.code
    return status, jnp.where(ok, k, 0.0), jnp.where(ok, n, 1.0), jnp.where(ok, level_, 0.5)


def _clipped(low: Array, high: Array, k: Array, n: Array) -> tuple[Array, Array]:
    """Ends inside [0, 1], exactly 0 and 1 where nothing and everything succeeded, the other end apart from that."""
    below_one = 1 - jnp.finfo(low.dtype).epsneg  # the float next to 1
    return jnp.where(k == 0, 0.0, jnp.clip(low, 0.0, below_one)), jnp.where(k == n, 1.0, jnp.minimum(high, 1.0))


def _estimate(status: Array, value: Array, low: Array, high: Array) -> Estimate:
    ok = status == Status.OK.code
    return Estimate(jnp.where(ok, value, jnp.nan), jnp.where(ok, low, jnp.nan), jnp.where(ok, high, jnp.nan), status)


def _stirling_error(n: Float[Array, ""]) -> Float[Array, ""]:
    """log n! minus Stirling's approximation, n >= 1."""
    few = jnp.minimum(n, 16.0)
    exact = gammaln(few + 1) - (few + 0.5) * jnp.log(few) + few - 0.5 * jnp.log(2 * jnp.pi)
    s = 1 / (n * n)
    return jnp.where(n <= 16, exact, (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / n)


def _deviance(x: Float[Array, ""], mean: Float[Array, ""]) -> Float[Array, ""]:
    """x log(x / mean) + mean - x, x > 0, without cancelling where the two are close."""
    v = (x - mean) / (x + mean)
    s = v * v
    excess = s * v * (1 / 3 + s * (1 / 5 + s * (1 / 7 + s * (1 / 9 + s * (1 / 11 + s * (1 / 13 + s / 15))))))
    near = (x - mean) * v + 2 * x * excess
    far = x * jnp.log(x / divisor(mean)) + mean - x
    return jnp.where(jnp.abs(v) < 0.1, near, jnp.where(mean > 0, far, jnp.inf))
