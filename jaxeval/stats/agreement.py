"""How far raters agree: intraclass correlations of complete ratings, Krippendorff's alpha of incomplete ones.

Ratings are [items, raters]; `valid` says which are there. Written for one study.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, UInt32

from jaxeval.linalg import divisor
from jaxeval.stats.bootstrap import percentile, same
from jaxeval.stats.estimate import Scalar, Status, is_level, status_of
from jaxeval.stats.proportions import binomial_pmf, normal_quantile
from jaxeval.types import one_of

Ratings = Num[Array, "N K"] | Num[np.ndarray, "N K"]
Present = Bool[Array, "N K"] | Bool[np.ndarray, "N K"] | None
Random = PRNGKeyArray | UInt32[Array, "2"]
Scale = Literal["nominal", "ordinal", "interval"]

DEFINED_SHARE = 0.95
"""Of a bootstrap's resamples: with fewer, there is no interval."""


class Agreement(NamedTuple):
    """A coefficient with its interval, from ``items_n`` items; the other items were left out for missing ratings.

    All NaN where the status says so. Low and high alone are NaN where a function makes no interval. Where the value is
    a number and the status CONSTANT, that is a warning: the interval has no width, which says nothing of certainty.
    """

    value: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    items_n: Int[Array, ""]
    status: Int[Array, ""]


class MeanSquares(NamedTuple):
    """Two-way analysis of variance of n items by k raters: between items, between raters, what is left."""

    items: Float[Array, ""]
    raters: Float[Array, ""]
    rest: Float[Array, ""]
    n: Int[Array, ""]
    k: int


# ----------------------------------------------------------------------------------------------- intraclass correlation


def icc_2_1(ratings: Ratings, valid: Present = None, *, level: Scalar = 0.95) -> Agreement:
    """ICC(2,1): reliability of one rater's rating, absolute agreement; higher is better.

    r = (MSR - MSE) / (MSR + (k - 1) MSE + k (MSC - MSE) / n): the share of a rating's variance that is the items', when
    items and raters are both drawn from many. At most 1; below 0 where raters differ more within items than between.
    An item that lacks a rating is left out. Interval: F quantiles with Satterthwaite's degrees of freedom; it covers
    close to ``level`` where ratings are normal (95 %, simulated, r from .3 to .9, .3 of the rest the raters': .93 to
    .96 for 10 and 30 items by 3 or 15 raters; with 100 items .95 for 15 raters, but .90 to .93 for 3, from whom little
    is known of raters). CONSTANT with numbers is a warning: the raters agree everywhere (but for rounding), and the
    interval of 1 has no width.

    Undefined: NOT_ENOUGH for one rater or fewer than two complete items, CONSTANT where all ratings are equal,
    DEGENERATE where the denominator is 0 or MSR is (every item has the same mean: r would be 0 or negative without any
    width), BAD_INPUT for a rating that is not finite or a level outside (0, 1). Invariant to the order of items
    and of raters and to a change of the ratings' origin and unit.
    Source: Shrout & Fleiss 1979, Psychol. Bull. 86:420; interval McGraw & Wong 1996, Psychol. Methods 1:30, case 2A,
    table 7. Oracle: values of pingouin in tests/golden, statsmodels' analysis of variance.

    >>> four_judges = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    >>> one = jax.jit(icc_2_1)(jnp.array(four_judges))
    >>> print(f"{one.value:.2f} [{one.low:.3f}, {one.high:.2f}] of {one.items_n} items")
    0.29 [0.019, 0.76] of 6 items
    """
    ms, status = _mean_squares(ratings, valid, level)
    n, k = ms.n.astype(ms.items.dtype), ms.k
    whole = ms.items + (k - 1) * ms.rest + k * (ms.raters - ms.rest) / n
    status = jnp.where((status == Status.OK.code) & (whole <= 0), Status.DEGENERATE.code, status)
    r = (ms.items - ms.rest) / divisor(whole)
    low, high = _ends(ms, r, level)
    return _result(r, jnp.minimum(low, r), jnp.clip(high, r, 1.0), ms.n, status)


def icc_2_k(ratings: Ratings, valid: Present = None, *, level: Scalar = 0.95) -> Agreement:
    """ICC(2,k): reliability of the mean of the k raters, absolute agreement; higher is better.

    r_k = (MSR - MSE) / (MSR + (MSC - MSE) / n) = k r / (1 + (k - 1) r) with r of `icc_2_1`, and its interval from that
    one's ends in the same way. At most 1 and unbounded below: an end of -inf says that no lower bound exists.

    Undefined: as `icc_2_1`; also DEGENERATE where MSR + (MSC - MSE) / n <= 0.
    Source and oracle: as `icc_2_1`.

    >>> four_judges = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    >>> mean = jax.jit(icc_2_k)(jnp.array(four_judges))
    >>> print(f"{mean.value:.2f} [{mean.low:.3f}, {mean.high:.3f}]")
    0.62 [0.071, 0.927]
    """
    ms, status = _mean_squares(ratings, valid, level)
    whole = ms.items + (ms.raters - ms.rest) / ms.n
    status = jnp.where((status == Status.OK.code) & (whole <= 0), Status.DEGENERATE.code, status)
    r = (ms.items - ms.rest) / divisor(whole)

    def of_mean(one: Array) -> Array:
        below = 1 + (ms.k - 1) * one
        return jnp.where(below > 0, ms.k * one / divisor(below), -jnp.inf)

    low, high = map(of_mean, _ends(ms, r / (ms.k - (ms.k - 1) * r), level))
    return _result(r, jnp.minimum(low, r), jnp.clip(high, r, 1.0), ms.n, status)


def _mean_squares(ratings: Ratings, valid: Present, level: Scalar) -> tuple[MeanSquares, Int[Array, ""]]:
    """Mean squares over the complete items, in some unit near the ratings' range; and the status."""
    x = jnp.asarray(ratings, float)
    k = x.shape[1]
    complete = jnp.ones(len(x), bool) if valid is None else jnp.all(jnp.asarray(valid), axis=1)
    each = complete[:, None]
    infinite = jnp.any(each & ~jnp.isfinite(x))
    x = jnp.where(each & jnp.isfinite(x), x, 0.0)
    n = jnp.sum(complete).astype(jnp.int32)
    m = jnp.maximum(n, 2).astype(x.dtype)
    x = _near(x, jnp.broadcast_to(each, x.shape))
    x = jnp.where(each, x - jnp.sum(x) / (m * k), 0.0)
    of_item, of_rater = jnp.mean(x, axis=1), jnp.sum(x, axis=0) / m
    mean = jnp.mean(of_rater)  # what rounding left
    rest = jnp.where(each, x - of_item[:, None] - of_rater[None] + mean, 0.0)
    more = max(k - 1, 1)
    squares = MeanSquares(
        items=k * jnp.sum(jnp.where(complete, of_item - mean, 0.0) ** 2) / (m - 1),
        raters=m * jnp.sum((of_rater - mean) ** 2) / more,
        rest=jnp.sum(rest**2) / ((m - 1) * more),
        n=jnp.maximum(n, 2),
        k=k,
    )
    status = status_of(
        (infinite | ~is_level(level), Status.BAD_INPUT),
        ((n < 2) | (k < 2), Status.NOT_ENOUGH),
        (_flat(ratings, each), Status.CONSTANT),
        (squares.items <= k * (4 * jnp.finfo(x.dtype).eps) ** 2, Status.DEGENERATE),
    )
    return squares._replace(n=n), status


def _ends(ms: MeanSquares, r: Array, level: Scalar) -> tuple[Array, Array]:
    """Ends of the interval of ICC(2,1), McGraw & Wong's table 7, case 2A."""
    n, k = jnp.maximum(ms.n, 2).astype(r.dtype), max(ms.k, 2)
    less = jnp.where(r < 1, 1 - r, 1.0)
    a, b = k * r / (n * less), 1 + k * r * (n - 1) / (n * less)
    # all raters agree: both mean squares are 0, and the degrees of freedom do not matter
    spread = (a * ms.raters) ** 2 / (k - 1) + (b * ms.rest) ** 2 / ((n - 1) * (k - 1))
    most = (n - 1) * (k - 1)
    v = (a * ms.raters + b * ms.rest) ** 2 / divisor(spread)
    v = jnp.where((spread > 0) & (r < 1), jnp.clip(v, 0.1, most + k - 1), most)
    tail = (1 - jnp.where(is_level(level), jnp.asarray(level, r.dtype), 0.5)) / 2
    above, below = jax.vmap(f_quantile, in_axes=(None, 0, 0))(tail, jnp.stack([n - 1, v]), jnp.stack([v, n - 1]))
    both = k * ms.raters + (k * n - k - n) * ms.rest
    whole = above * both + n * ms.items, both + n * below * ms.items
    ends = n * (ms.items - above * ms.rest), n * (below * ms.items - ms.rest)
    low, high = (e / divisor(w) for e, w in zip(ends, whole, strict=True))
    return low, high


# ------------------------------------------------------------------------------------------------- Krippendorff's alpha


def krippendorff_alpha(ratings: Ratings, valid: Present = None, *, scale: Scale) -> Agreement:
    """Krippendorff's alpha: agreement beyond chance, whoever rated what; higher is better. No interval (see below).

    alpha = 1 - D_o / D_e: D_o the mean squared difference of two ratings of one item (an item with m ratings counts
    m / n), D_e that of any two of all n ratings. Squared difference: nominal 1 unless equal; interval (c - d)^2;
    ordinal the number of ratings from c to d, the ends counted by half, squared, which is the interval one of mid-ranks
    among all ratings. At most 1; 0 where ratings agree as if dealt out at random (one disagreement of two raters, all
    else equal, is 0 and not nearly 1, since nothing else varied); below 0 where they disagree more than that. Items
    with one rating or none are left out. Work grows with items times raters.

    Undefined: NOT_ENOUGH where no item has two ratings, CONSTANT where all that count are equal, BAD_INPUT for a
    rating that is not finite. Invariant to the order of items and of raters, and to any renaming (nominal), increasing
    map (ordinal), change of origin and unit (interval).
    Source: Krippendorff 2011, Computing Krippendorff's Alpha-Reliability. Oracle: his examples, values of the package
    krippendorff in tests/golden, `alpha_bootstrap` for an interval.

    >>> ratings = jnp.array([[1, 1], [1, 1], [1, 2], [1, 1]])
    >>> f"{jax.jit(krippendorff_alpha, static_argnames='scale')(ratings, scale='nominal').value:.3f}"
    '0.000'
    """
    alpha, items_n, status = _alpha(ratings, valid, scale)
    one = jnp.ones(len(ratings), alpha_dtype := jnp.result_type(float))
    none = jnp.full((), jnp.nan, alpha_dtype)
    return _result(alpha(one), none, none, items_n, status)


def alpha_bootstrap(
    key: Random, ratings: Ratings, valid: Present = None, *, scale: Scale, resamples_n: int = 2000, level: Scalar = 0.95
) -> Agreement:
    """`krippendorff_alpha` with a percentile bootstrap interval over items: what other items might have given.

    Resample k draws as many of the items that count, with ``fold_in(key, k)``, and forms D_o and D_e anew. Those in
    which nothing varies have no alpha and are left out. The value stays and the interval is NaN with fewer than 95 %
    defined (DEGENERATE) and where only one item counts (NOT_ENOUGH); where all defined resamples have the same alpha
    the interval is that one point (CONSTANT, a warning). It takes the raters as given, and is too narrow for few items:
    simulated coverage of 95 % (five-point ratings by 3 and 15 raters who do not differ in level) is .90 to .97 for 100
    items, .88 to .96 for 30 and .75 to .91 for 10; of other raters' alpha, where raters do differ, .82 to .92 for 30
    items by 15.
    (Krippendorff's own bootstrap draws pairs of ratings instead of items.)

    Undefined: as `krippendorff_alpha`, and BAD_INPUT for a level outside (0, 1). Oracle: that function on each
    resample's items.

    >>> ratings = jnp.array([[1, 1], [2, 2], [3, 3], [3, 3], [2, 2], [1, 2], [4, 4], [1, 1], [2, 2], [5, 5], [3, 3]])
    >>> made = jax.jit(partial(alpha_bootstrap, scale="ordinal", resamples_n=200))(jax.random.key(0), ratings)
    >>> bool(0.6 < made.low < made.value < made.high <= 1)
    True
    """
    alpha, items_n, status = _alpha(ratings, valid, scale)
    counts = _pairable(ratings, valid).any(axis=1)
    first = jnp.argsort(~counts, stable=True)  # the items that count
    N = len(ratings)

    def one(k: Array) -> Array:
        drawn = jax.random.uniform(jax.random.fold_in(key, k), (N,))
        index = jnp.minimum((drawn * items_n).astype(jnp.int32), jnp.maximum(items_n - 1, 0))
        weight = jnp.zeros(N, drawn.dtype).at[first[index]].add(jnp.arange(N) < items_n)
        return alpha(weight)

    drawn = jax.lax.map(one, jnp.arange(resamples_n), batch_size=min(resamples_n, 16))
    defined = jnp.isfinite(drawn)
    low, high = percentile(_filled(drawn, defined), level=level)
    value = alpha(jnp.ones(N, drawn.dtype))
    constant = jnp.all(same(drawn, value) | ~defined)
    low, high = (jnp.where(constant, value, end) for end in (jnp.minimum(low, value), jnp.maximum(high, value)))
    why = status_of((items_n < 2, Status.NOT_ENOUGH), (jnp.mean(defined) < DEFINED_SHARE, Status.DEGENERATE))
    low, high = (jnp.where(why == Status.OK.code, end, jnp.nan) for end in (low, high))
    made = _result(value, low, high, items_n, jnp.where(is_level(level), status, Status.BAD_INPUT.code))
    return made._replace(status=jnp.where(made.status == Status.OK.code, why, made.status))


def _alpha(
    ratings: Ratings, valid: Present, scale: Scale
) -> tuple[Callable[[Float[Array, " N"]], Float[Array, ""]], Int[Array, ""], Int[Array, ""]]:
    """(alpha as a function of how often each item counts, items that count, status); NaN where nothing varies.

    Sorting and comparing is done here, once; a resample only sums.
    """
    x = jnp.asarray(ratings, float)
    pairable = _pairable(ratings, valid)
    infinite = jnp.any(pairable & ~jnp.isfinite(x))
    x = jnp.where(pairable & jnp.isfinite(x), x, 0.0)
    m = jnp.sum(pairable, axis=1).astype(x.dtype)
    several = jnp.maximum(m, 2.0)
    items_n = jnp.sum(m > 0).astype(jnp.int32)
    status = status_of(
        (infinite, Status.BAD_INPUT), (items_n == 0, Status.NOT_ENOUGH), (_flat(ratings, pairable), Status.CONSTANT)
    )

    flat, kept = x.reshape(-1), pairable.reshape(-1)
    place = jnp.where(kept, flat, jnp.inf)
    order = jnp.argsort(place)
    ordered = place[order]
    below, upto = (jnp.searchsorted(ordered, place, side=side) for side in ("left", "right"))
    of_item = order // max(x.shape[1], 1)

    def counted(weight: Array) -> tuple[Array, Array]:
        """How many ratings lie below each, and how many below or at it."""
        total = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.where(kept[order], weight[of_item], 0.0))])
        return total[below].reshape(x.shape), total[upto].reshape(x.shape)

    same = jnp.sum((x[:, :, None] == x[:, None, :]) & pairable[:, :, None] & pairable[:, None, :], axis=(1, 2))

    def nominal(weight: Array) -> tuple[Array, Array]:
        low, high = counted(weight)
        differ = jnp.sum(jnp.where(pairable, jnp.sum(weight * m) - (high - low), 0.0), axis=1)
        return jnp.sum(weight * (m * m - same) / (several - 1)), jnp.sum(weight * differ)

    def interval(weight: Array, at: Array) -> tuple[Array, Array]:
        n = jnp.maximum(jnp.sum(weight * m), 1.0)
        at = jnp.where(pairable, at - jnp.sum(weight[:, None] * jnp.where(pairable, at, 0.0)) / n, 0.0)
        mean = jnp.sum(at, axis=1) / several
        within = jnp.sum(jnp.where(pairable, at - mean[:, None], 0.0) ** 2, axis=1)
        return 2 * jnp.sum(weight * m * within / (several - 1)), 2 * n * jnp.sum(weight * jnp.sum(at**2, axis=1))

    def ordinal(weight: Array) -> tuple[Array, Array]:
        low, high = counted(weight)
        return interval(weight, (low + high) / 2)

    # nominal and ordinal take the ratings as they are: only their order counts
    how = {"nominal": nominal, "ordinal": ordinal, "interval": partial(interval, at=_near(x, pairable))}
    difference = how[one_of("scale", scale, how)]

    def alpha(weight: Array) -> Array:
        observed, expected = difference(weight)
        n = jnp.sum(weight * m)
        varies = _varies(x, pairable & (weight > 0)[:, None])
        return jnp.where(varies, 1 - (n - 1) * observed / jnp.where(varies, expected, 1.0), jnp.nan)

    return alpha, items_n, status


def _pairable(ratings: Ratings, valid: Present) -> Bool[Array, "N K"]:
    """Ratings of items that have at least two."""
    there = jnp.ones(ratings.shape, bool) if valid is None else jnp.asarray(valid)
    return there & (jnp.sum(there, axis=1, keepdims=True) >= 2)


def _near(x: Array, counts: Array) -> Array:
    """Ratings from the least on, in a unit that is a power of two and about the greatest: as exact as they are.

    Far from 0 their squares would lose what they differ by, and those of very large or small ones overflow or vanish.
    """
    least = jnp.min(jnp.where(counts, x, jnp.inf), initial=jnp.inf)
    off = jnp.where(counts, x - least, 0.0)
    most = jnp.max(off, initial=0.0)
    return jnp.ldexp(off, -jnp.frexp(divisor(most))[1])


def _varies(x: Array, counts: Array) -> Bool[Array, ""]:
    high = jnp.max(jnp.where(counts, x, -jnp.inf), initial=-jnp.inf)
    return high > jnp.min(jnp.where(counts, x, jnp.inf), initial=jnp.inf)


def _flat(ratings: Ratings, counts: Array) -> Bool[Array, ""]:
    return ~_varies(jnp.asarray(ratings, float), jnp.broadcast_to(counts, ratings.shape))


def _filled(drawn: Array, defined: Array) -> Array:
    """The draws, undefined ones replaced by defined ones spread over their whole range, so that quantiles stay."""
    n = jnp.maximum(jnp.sum(defined), 1)
    ordered = jnp.sort(jnp.where(defined, drawn, jnp.inf))
    at = jnp.linspace(0.0, 1.0, len(drawn)) * (n - 1)
    below = jnp.floor(at).astype(jnp.int32)
    above, share = jnp.minimum(below + 1, n - 1), at - below
    return jnp.where(jnp.all(defined), ordered, ordered[below] + share * (ordered[above] - ordered[below]))


def _result(value: Array, low: Array, high: Array, items_n: Array, status: Array) -> Agreement:
    """NaN where the status is not OK; DEGENERATE where the value is not finite, CONSTANT where there is no width."""
    status = jnp.where((status == Status.OK.code) & ~jnp.isfinite(value), Status.DEGENERATE.code, status)
    ok = status == Status.OK.code
    value, low, high = (jnp.where(ok, v, jnp.nan) for v in (value, low, high))
    return Agreement(value, low, high, items_n, jnp.where(low == high, Status.CONSTANT.code, status))


# ---------------------------------------------------------------------------------------------------------- F quantile


def f_quantile(tail: Scalar, d1: Scalar, d2: Scalar) -> Float[Array, ""]:
    """The value that F with (d1, d2) degrees of freedom exceeds with probability ``tail``; degrees may be fractions.

    Newton's method on log F, kept inside a bracket that each step narrows, from Wilson and Hilferty's approximation.
    The tail is Lentz's continued fraction times the binomial probability that keeps its digits, so that float32 holds
    up to 100,000 degrees of freedom. Oracle: scipy.stats.f.isf.

    >>> f"{f_quantile(0.025, 5, 4.19):.3f}"
    '8.803'
    """
    tail, d1, d2 = (jnp.asarray(v, jnp.result_type(float)) for v in (tail, d1, d2))
    z = normal_quantile(1 - 2 * tail)
    p, q = 2 / (9 * d1), 2 / (9 * d2)
    A, B = (1 - q) ** 2 - q * z * z, (1 - p) * (1 - q)
    root = (B + jnp.sqrt(jnp.maximum(B * B - A * ((1 - p) ** 2 - p * z * z), 0.0))) / jnp.where(A > 0.01, A, 0.01)
    start = 3 * jnp.log(jnp.clip(root, 0.01, 50.0))
    eps = jnp.finfo(tail.dtype).eps

    def go_on(state: tuple[Array, ...]) -> Array:
        _, low, high, step, i = state
        return (i < 100) & (jnp.abs(step) > 8 * eps) & (high - low > eps)

    def improve(state: tuple[Array, ...]) -> tuple[Array, ...]:
        t, low, high, _, i = state
        above, slope = _f_tail(t, d1, d2)
        low, high = jnp.where(above > tail, t, low), jnp.where(above > tail, high, t)
        new = t + (above - tail) / jnp.maximum(slope, jnp.finfo(t.dtype).tiny)
        new = jnp.where((new > low) & (new < high), new, low + (high - low) / 2)
        return new, low, high, new - t, i + 1

    ends = jnp.full_like(start, -80.0), jnp.full_like(start, 80.0)
    return jnp.exp(jax.lax.while_loop(go_on, improve, (start, *ends, jnp.ones_like(start), jnp.int32(0)))[0])


def _f_tail(t: Array, d1: Array, d2: Array) -> tuple[Array, Array]:
    """P(log F > t), and the density of log F at t."""
    a, b = d1 / 2, d2 / 2
    x = 1 / (1 + b / a * jnp.exp(-t))
    u = 1 / (1 + a / b * jnp.exp(t))
    mass = jnp.where(x < u, binomial_pmf(a, a + b, x), binomial_pmf(b, a + b, u))
    swapped = u > (b + 1) / (a + b + 2)
    share = mass * jnp.where(swapped, b, a) / (a + b)
    tail = share * _continued_fraction(*(jnp.where(swapped, m, n) for m, n in ((x, u), (a, b), (b, a))))
    return jnp.where(swapped, 1 - tail, tail), mass * a * b / (a + b)


def _continued_fraction(x: Array, a: Array, b: Array) -> Array:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny, eps = jnp.asarray(1e-30, x.dtype), jnp.finfo(x.dtype).eps

    def nonzero(v: Array) -> Array:
        return jnp.where(jnp.abs(v) < tiny, tiny, v)

    def go_on(state: tuple[Array, ...]) -> Array:
        *_, change, m = state
        return (m < 1000) & (jnp.abs(change - 1) > eps)

    def add(state: tuple[Array, ...]) -> tuple[Array, ...]:
        c, d, total, _, m = state
        change = jnp.ones_like(x)
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / nonzero(1 + term * d)
            c = nonzero(1 + term / c)
            change = change * c * d
        return c, d, total * change, change, m + 1

    one = jnp.ones_like(x)
    d = 1 / nonzero(1 - (a + b) * x / (a + 1))
    return jax.lax.while_loop(go_on, add, (one, d, d, jnp.full_like(x, 2.0), one))[2]
