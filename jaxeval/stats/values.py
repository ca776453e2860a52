"""Means of any number that an episode has, and their differences: in pairs or between independent runs, by Student's t.

Written for one cell, to be vmapped over many. In float32 what lies far from 0 loses its digits: take a centre off on
the host, in float64, before (`values_host.centred`), or run in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jaxtyping import Array, Bool, Float, Int, Num

from jaxeval.linalg import divisor
from jaxeval.stats.agreement import f_quantile
from jaxeval.stats.estimate import Scalar, Status, Test, is_level, status_of

Values = Num[Array, " N"] | Num[np.ndarray, " N"]
Valid = Bool[Array, " N"] | Bool[np.ndarray, " N"]
Others = Num[Array, " M"] | Num[np.ndarray, " M"]
OthersValid = Bool[Array, " M"] | Bool[np.ndarray, " M"]
ROUNDING = 4.0
"""Units in the last place of the largest value: values that lie no further apart do not vary."""
MOST_SHARE = 2.0**-8
"""Of the largest float: the reciprocal of a larger value is none that compiled code holds."""


class Mean(NamedTuple):
    """A mean, or a difference of two, with its interval and the two-sided p of 0; ``error`` is its standard error.

    NaN where the status says so; with NOT_ENOUGH and CONSTANT the value is a number, and with CONSTANT so are the ends.
    """

    value: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    p: Float[Array, ""]
    error: Float[Array, ""]
    df: Float[Array, ""]
    status: Int[Array, ""]


class _Sample(NamedTuple):
    """Of values in units of ``unit``, the largest: their mean, the variance of it, and how many they are."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]
    n: Float[Array, ""]
    unit: Float[Array, ""]
    finite: Bool[Array, ""]


def mean_of(x: Values, valid: Valid, *, level: Scalar = 0.95) -> Mean:
    """Mean of independent values; with differences a - b of matched pairs it is the paired t test.

    value = sum x / n;  error = s / sqrt(n), s² = sum (x - value)² / (n - 1);  value ± t(n - 1) error;
    p = P(|T| >= |value| / error), T with n - 1 degrees of freedom. In the values' unit.
    Exact where values are normal. Coverage of 95 % intervals for n = 5, 10, 30, 100 (simulated): uniform .93, .95, .95,
    .95; two humps .93, .94, .95, .95; exponential .88, .90, .93, .94; where one value in ten is far off and makes the
    mean, .47, .65, .90, .93, since it is often not among few.
    Undefined: NO_DATA for n = 0; NOT_ENOUGH for n = 1 (the value stands); CONSTANT where the values do not vary but for
    rounding (the interval is that point, no p); BAD_INPUT for a value that is not finite or beyond MOST_SHARE of the
    largest float, or a level outside (0, 1).
    Source: Student 1908, Biometrika 6:1. Oracle: scipy.stats.ttest_rel, ttest_1samp.

    >>> gain = mean_of(jnp.array([1.0, 2.0, 4.0, 5.0]), jnp.full(4, True))
    >>> f"{gain.value:.1f} [{gain.low:.3f}, {gain.high:.3f}], p {gain.p:.4f}"
    '3.0 [0.095, 5.905], p 0.0462'
    """
    s = _sample(x, valid)
    return _estimate(s.mean, s.variance, s.n - 1, s.unit, level, s.finite, empty=s.n == 0, single=s.n == 1)


def mean_difference(a: Values, valid_a: Valid, b: Others, valid_b: OthersValid, *, level: Scalar = 0.95) -> Mean:
    """Mean of a minus mean of b, of independent runs whose variances may differ (Welch).

    error² = v_a + v_b, v = s² / n;  df = (v_a + v_b)² / (v_a² / (n_a - 1) + v_b² / (n_b - 1));  value ± t(df) error.
    Taking both variances for one would be wrong where the smaller group varies more. In the values' unit. Coverage of
    95 % intervals, the other side twice as many and three times as wide: .94 to .95 from n = 5 on, but .80, .88, .94,
    .95 (n = 5, 10, 30, 100) where one value in ten makes the mean.
    Undefined: as `mean_of`; NO_DATA if either has no value, NOT_ENOUGH if either has one, CONSTANT if neither varies.
    Source: Welch 1947, Biometrika 34:28. Oracle: scipy.stats.ttest_ind(equal_var=False).

    >>> gain = mean_difference(jnp.array([1.0, 2.0, 6.0]), jnp.full(3, True), jnp.array([1.0, 1.5]), jnp.full(2, True))
    >>> f"{gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}], {gain.df:.2f} degrees"
    '1.75 [-4.60, 8.10], 2.11 degrees'
    """
    one, other = _sample(a, valid_a), _sample(b, valid_b)
    unit = jnp.maximum(one.unit, other.unit)
    shares = [s.unit / unit for s in (one, other)]
    means = [s.mean * share for s, share in zip((one, other), shares, strict=True)]
    parts = [s.variance * share * share for s, share in zip((one, other), shares, strict=True)]
    variance = parts[0] + parts[1]
    some = divisor(variance)
    of = [v / some for v in parts]  # squares of the parts themselves may underflow
    per_df = sum(w * w / jnp.maximum(s.n - 1, 1.0) for w, s in zip(of, (one, other), strict=True))
    df = jnp.where(variance > 0, 1 / divisor(per_df), one.n + other.n - 2)
    least = jnp.minimum(one.n, other.n)
    finite = one.finite & other.finite
    return _estimate(means[0] - means[1], variance, df, unit, level, finite, empty=least == 0, single=least == 1)


def within(made: Mean, *, margin: Scalar) -> Test:
    """Whether a mean, or a difference of means, lies within ± margin: two one-sided t tests, p the larger.

    p = max(P(T >= (value + margin) / error), P(T <= (value - margin) / error)), T with ``df`` degrees. A small p speaks
    for |mean| < margin; p < a exactly where the (1 - 2a) interval lies inside ± margin. "No difference found" is no
    such proof. The margin is in the values' unit.
    Undefined: with the status of ``made``, where that has no interval or one without width; BAD_INPUT unless the margin
    is a number above 0.
    Source: Schuirmann 1987, J. Pharmacokinet. Biopharm. 15:657. Oracle: statsmodels ttost_paired, ttost_ind.

    >>> same = mean_of(jnp.array([-0.1, 0.2, 0.1, -0.1, 0.0]), jnp.full(5, True))
    >>> f"{within(same, margin=0.2).p:.4f}"
    '0.0183'
    """
    margin = jnp.asarray(margin, jnp.result_type(float))
    possible = (margin > 0) & jnp.isfinite(margin)
    ok = (made.status == Status.OK.code) & possible
    error = jnp.where(ok, made.error, 1.0)
    value, margin = jnp.where(ok, made.value, 0.0), jnp.where(ok, margin, 1.0)
    p = _upper_tail((margin - jnp.abs(value)) / error, jnp.where(ok, made.df, 1.0))
    status = jnp.where(possible, made.status, Status.BAD_INPUT.code)
    return Test(jnp.where(ok, p, jnp.nan), status)


def t_quantile(level: Scalar, df: Scalar) -> Float[Array, ""]:
    """Half-width of the central interval of Student's t, in standard errors: 2.57 for a level of .95 and 5 degrees.

    Oracle: scipy.special.stdtrit.
    """
    level = jnp.asarray(level, jnp.result_type(float))
    return jnp.sqrt(f_quantile(1 - level, 1.0, df))


# ------------------------------------------------------------------------------------------------------------- inside


def _sample(x: Values, valid: Valid) -> _Sample:
    """In units of the largest value, so that no square is too large or too small to be held."""
    keep = jnp.asarray(valid)
    x = jnp.where(keep, jnp.asarray(x, jnp.result_type(float)), 0.0)
    finite = jnp.all(jnp.abs(x) <= MOST_SHARE * jnp.finfo(x.dtype).max)
    x = jnp.where(finite, x, 0.0)
    n = jnp.sum(keep).astype(x.dtype)
    largest = jnp.max(jnp.abs(x), initial=0.0)
    unit = divisor(largest)
    x = x / unit
    some = jnp.maximum(n, 1.0)
    mean = jnp.sum(x) / some
    apart = jnp.where(keep, x - mean, 0.0)
    mean = mean + jnp.sum(apart) / some  # the first one was rounded
    apart = jnp.where(keep, x - mean, 0.0)
    spread = jnp.max(jnp.abs(apart), initial=0.0)
    varies = spread > ROUNDING * jnp.finfo(x.dtype).eps
    scale = jnp.where(varies, spread, 1.0)
    squares = jnp.sum((apart / scale) ** 2)
    variance = jnp.where(varies, scale * scale * squares / (some * jnp.maximum(n - 1, 1.0)), 0.0)
    return _Sample(mean, variance, n, unit, finite)


def _estimate(
    mean: Array, variance: Array, df: Array, unit: Array, level: Scalar, finite: Array, *, empty: Array, single: Array
) -> Mean:
    """Everything in the values' own unit, with the status."""
    known = finite & is_level(level)
    level_ = jnp.where(known, jnp.asarray(level, mean.dtype), 0.5)
    df = jnp.maximum(df, 1.0)
    varies = variance > 0
    error = jnp.sqrt(variance)
    t = jnp.where(varies, mean / jnp.where(varies, error, 1.0), 0.0)
    half = jnp.where(varies, t_quantile(level_, df) * error, 0.0)
    value, low, high, error = (x * unit for x in (mean, mean - half, mean + half, error))
    low, high = jnp.minimum(low, value), jnp.maximum(high, value)
    whole = jnp.isfinite(low) & jnp.isfinite(high)
    status = status_of(
        (~known, Status.BAD_INPUT),
        (empty, Status.NO_DATA),
        (~jnp.isfinite(value), Status.DEGENERATE),
        (single, Status.NOT_ENOUGH),
        (~varies | (low == high), Status.CONSTANT),
        (~whole, Status.DEGENERATE),
    )
    ok, constant = status == Status.OK.code, status == Status.CONSTANT.code
    stands = ok | constant | (status == Status.NOT_ENOUGH.code)
    ends = ok | constant
    p = jnp.where(ok, 2 * _upper_tail(jnp.abs(t), df), jnp.nan)
    return Mean(
        jnp.where(stands, value, jnp.nan),
        jnp.where(ends, low, jnp.nan),
        jnp.where(ends, high, jnp.nan),
        p,
        jnp.where(ends, error, jnp.nan),
        jnp.where(ends, df, jnp.nan),
        status,
    )


def _upper_tail(t: Array, df: Array) -> Float[Array, ""]:
    """P(T >= t)."""
    square = t * t
    huge = ~jnp.isfinite(square)
    x = jnp.where(huge, 0.0, df / (df + jnp.where(huge, 1.0, square)))
    beyond = betainc(df / 2, jnp.full_like(df, 0.5), x) / 2  # P(T >= |t|)
    return jnp.where(t >= 0, beyond, 1 - beyond)
