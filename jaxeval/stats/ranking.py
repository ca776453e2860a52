"""Whether two columns rank things alike: Spearman's rho and Kendall's tau-b with intervals and p-values, ties included.

Written for one pair of columns; `valid` says which rows count. A p-value is two-sided: the approximation that comes
with the coefficient, `exact_p` for up to 8 rows, `permutation_p` for any number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, erfc, gammaln, ndtri
from jaxtyping import Array, Bool, Float, Int, Key, Num, UInt32

from jaxeval.linalg import divisor
from jaxeval.stats.estimate import Scalar, Status, Test, is_level, status_of
from jaxeval.types import one_of

Column = Num[Array, " N"] | Num[np.ndarray, " N"]
Mask = Bool[Array, " N"] | Bool[np.ndarray, " N"] | None
Random = Key[Array, ""] | UInt32[Array, "2"]
Coefficient = Literal["spearman", "kendall"]

EXACT_N = 8
"""Rows of which all orders are gone through: 8! = 40,320."""


class Correlation(NamedTuple):
    """A rank correlation in [-1, 1] of ``n`` rows, with its interval and two-sided p; NaN where the status says so."""

    value: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    p: Float[Array, ""]
    n: Int[Array, ""]
    status: Int[Array, ""]


class Pooled(NamedTuple):
    """A mean of ``used_n`` values; ``left_out_n`` were undefined."""

    value: Float[Array, ""]
    used_n: Int[Array, ""]
    left_out_n: Int[Array, ""]
    status: Int[Array, ""]


def spearman(x: Column, y: Column, valid: Mask = None, *, level: Scalar = 0.95) -> Correlation:
    """Spearman's rank correlation; higher: x and y put the rows in more nearly the same order.

    rho = sum a b / sqrt(sum a^2 sum b^2), a and b the ranks (ties share their mean rank) less their mean. Interval:
    Fisher's z with the variance (1 + rho^2 / 2) / (n - 3) of Bonett & Wright (2000, Psychometrika 65, eq. 9); [-1, 1]
    for three rows. Simulated coverage of 95 %: .95 to .97 for n from 10 to 200 and rho up to .9 (normal data). p: t
    with n - 2 degrees of freedom, never below 2 / n!, the least that any order of n rows can have (`exact_p`). At
    +-1, where z is infinite, the interval starts half of the smallest change inside: 1 - 6 / (n (n^2 - 1)).

    Undefined: CONSTANT where x or y does not vary, NOT_ENOUGH below three rows, BAD_INPUT for a number that is not
    finite or a level outside (0, 1). Invariant to increasing maps of x or y; y -> -y turns the sign. Oracle:
    scipy.stats.spearmanr.

    >>> r = jax.jit(spearman)(jnp.array([1, 2, 3, 4, 5]), jnp.array([2, 1, 4, 3, 5]))
    >>> print(f"{r.value:.2f} [{r.low:.2f}, {r.high:.2f}], p {r.p:.3f}, n {r.n}")
    0.80 [-0.46, 0.99], p 0.104, n 5
    """
    keep, n = _kept(x, valid)
    a, b = centred_ranks(x, keep), centred_ranks(y, keep)
    status = _status(x, y, keep, level)
    size = jnp.sqrt(jnp.sum(a * a)) * jnp.sqrt(jnp.sum(b * b))
    rho = jnp.clip(jnp.sum(a * b) / divisor(size), -1.0, 1.0)
    few, m = n < 4, jnp.maximum(n, 4).astype(rho.dtype)
    low, high = _fisher(rho, (1 + rho**2 / 2) / (m - 3), 6 / (m * (m * m - 1)), few, level)
    df = jnp.maximum(n - 2, 1).astype(rho.dtype)
    p = betainc(df / 2, jnp.full_like(df, 0.5), (1 - rho) * (1 + rho))
    return _correlation(rho, low, high, jnp.clip(p, _least_p(n), 1.0), n, status)


def kendall(x: Column, y: Column, valid: Mask = None, *, level: Scalar = 0.95) -> Correlation:
    """Kendall's tau-b; higher: more pairs of rows stand in the same order in x and in y.

    tau = (concordant - discordant) / sqrt((n0 - ties in x) (n0 - ties in y)), n0 = n (n - 1) / 2 pairs. Interval:
    Fisher's z with the variance .437 / (n - 4) of Fieller, Hartley & Pearson (1957, Biometrika 44); [-1, 1] for three
    or four rows. Simulated coverage of 95 %: .94 to .97 for n from 20 to 200 and tau up to .7 (normal data), .92 at
    worst (n = 10, tau = .7). p: normal, with the variance of Kendall (1970, Rank Correlation Methods, chapter 4) for
    ties in both, never below 2 / n!. At +-1 the interval starts half of the smallest change inside:
    1 - 2 / (n (n - 1)). Work grows with n^2, memory with n.

    Undefined: CONSTANT where x or y does not vary, NOT_ENOUGH below three rows, BAD_INPUT for a number that is not
    finite or a level outside (0, 1). Invariant to increasing maps of x or y; y -> -y turns the sign. Oracle:
    scipy.stats.kendalltau.

    >>> r = jax.jit(kendall)(jnp.array([1, 2, 3, 4, 5]), jnp.array([2, 1, 4, 3, 5]))
    >>> print(f"{r.value:.2f} [{r.low:.2f}, {r.high:.2f}], p {r.p:.3f}, n {r.n}")
    0.60 [-0.54, 0.96], p 0.142, n 5
    """
    keep, n = _kept(x, valid)
    a, b = centred_ranks(x, keep), centred_ranks(y, keep)
    status = _status(x, y, keep, level)
    row = jnp.arange(keep.size)

    def add(s: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], None]:
        later = keep & keep[i] & (row > i)
        low = s[1] + jnp.sum(jnp.where(later, jnp.sign(a - a[i]) * jnp.sign(b - b[i]), 0)).astype(jnp.int32)
        return (s[0] + (low >> 16), low & 0xFFFF), None  # in two words: pairs outgrow one at 65,537 rows

    high, low = jax.lax.scan(add, (jnp.int32(0), jnp.int32(0)), row)[0]
    s = high.astype(a.dtype) * 2**16 + low.astype(a.dtype)
    m = jnp.maximum(n, 3).astype(a.dtype)
    pairs = m * (m - 1) / 2
    ties, triples, weights = zip(*(_ties(c, keep) for c in (x, y)), strict=True)
    untied = jnp.sqrt(jnp.maximum(pairs - ties[0], 0)) * jnp.sqrt(jnp.maximum(pairs - ties[1], 0))
    tau = jnp.clip(s / divisor(untied), -1.0, 1.0)
    few, k = n < 5, jnp.maximum(n, 5).astype(a.dtype)
    low, high = _fisher(tau, 0.437 / (k - 4), 2 / (k * (k - 1)), few, level)
    variance = (m * (m - 1) * (2 * m + 5) - weights[0] - weights[1]) / 18 + ties[0] * ties[1] / pairs
    variance = variance + triples[0] * triples[1] / (9 * m * (m - 1) * (m - 2))
    p = erfc(jnp.abs(s) / jnp.sqrt(2 * jnp.maximum(variance, 1e-12)))
    return _correlation(tau, low, high, jnp.clip(p, _least_p(n), 1.0), n, status)


def exact_p(x: Column, y: Column, valid: Mask = None, *, of: Coefficient = "spearman") -> Test:
    """Two-sided p of a rank correlation from all n! orders of y, for up to 8 rows that count; lower: more surprising.

    p = share of the orders in which the coefficient is at least as far from zero as it was; ties are kept as they are.
    In (0, 1]. Undefined: CONSTANT, NOT_ENOUGH below three rows, BAD_INPUT above eight or for a number that is not
    finite. Oracle: scipy.stats.kendalltau(method="exact"), scipy.stats.permutation_test.

    >>> f"{jax.jit(exact_p)(jnp.arange(5), jnp.array([2, 1, 4, 3, 5])).p * 120:.0f} of 120 orders"
    '16 of 120 orders'
    """
    keep, n = _kept(x, valid)
    status = status_of((n > EXACT_N, Status.BAD_INPUT), (True, Status.OK))
    status = jnp.where(status == Status.OK.code, _status(x, y, keep), status)
    size = min(keep.size, EXACT_N)
    first = jnp.argsort(~keep, stable=True)[:size]  # rows that count come first
    a, b, keep = (column[first] for column in (centred_ranks(x, keep), centred_ranks(y, keep), keep))
    orders = jnp.asarray(_orders(size))
    allowed = jnp.all((orders == jnp.arange(size)[None]) | keep[None], axis=1)  # the others stay where they are
    strength = _strength(a, b, keep, of)
    observed, every = strength(jnp.arange(size)), jax.vmap(strength)(orders)
    count = jnp.sum(allowed & (jnp.abs(every) >= _nearly(observed)))
    p = count / jnp.sum(allowed).astype(a.dtype)
    return Test(jnp.where(status == Status.OK.code, p, jnp.nan), status)


def permutation_p(
    key: Random, x: Column, y: Column, valid: Mask = None, *, of: Coefficient = "spearman", resamples_n: int = 9999
) -> Test:
    """Two-sided p of a rank correlation from random orders of y; lower: more surprising.

    p = (1 + orders at least as far from zero) / (1 + resamples_n), which is never 0 and keeps its size exactly (Phipson
    & Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9). Order k is drawn from ``fold_in(key, k)``. In (0, 1]. Undefined:
    CONSTANT, NOT_ENOUGH below three rows, BAD_INPUT for a number that is not finite. Oracle: `exact_p`.

    >>> p = jax.jit(permutation_p)(jax.random.key(0), jnp.arange(5), jnp.array([2, 1, 4, 3, 5])).p
    >>> bool(abs(p - 16 / 120) < 0.015)
    True
    """
    keep, n = _kept(x, valid)
    status = _status(x, y, keep)
    first = jnp.argsort(~keep, stable=True)
    a, b = centred_ranks(x, keep)[first], centred_ranks(y, keep)[first]
    row, strength = jnp.arange(keep.size), _strength(a, b, keep[first], of)
    observed = _nearly(strength(row))

    def one(k: Array) -> Array:
        drawn = jax.random.uniform(jax.random.fold_in(key, k), (keep.size,))
        order = jnp.argsort(jnp.where(row < n, drawn, 2.0 + row))  # the rows that do not count stay at the end
        return jnp.abs(strength(order)) >= observed

    further = jnp.sum(jax.lax.map(one, jnp.arange(resamples_n), batch_size=min(resamples_n, 256)))
    p = (1 + further).astype(a.dtype) / (1 + resamples_n)
    return Test(jnp.where(status == Status.OK.code, p, jnp.nan), status)


def pooled_mean(
    values: Float[Array, " S"] | Float[np.ndarray, " S"], status: Int[Array, " S"] | Int[np.ndarray, " S"]
) -> Pooled:
    """Mean of the values whose status is OK, and how many were undefined and so left out (none counts as 0).

    NO_DATA where all are undefined, BAD_INPUT where a value is not finite and its status OK.

    >>> mean = pooled_mean(jnp.array([0.8, jnp.nan]), jnp.array([Status.OK.code, Status.CONSTANT.code]))
    >>> print(f"{mean.value:.2f} of {mean.used_n}, {mean.left_out_n} left out")
    0.80 of 1, 1 left out
    """
    used = jnp.asarray(status) == Status.OK.code
    n = jnp.sum(used)
    mean = jnp.sum(jnp.where(used, jnp.asarray(values, float), 0.0)) / jnp.maximum(n, 1)
    outcome = status_of((n == 0, Status.NO_DATA), (~jnp.isfinite(mean), Status.BAD_INPUT))
    mean = jnp.where(outcome == Status.OK.code, mean, jnp.nan)
    return Pooled(mean, n.astype(jnp.int32), (used.size - n).astype(jnp.int32), outcome)


def midranks(values: Column, valid: Mask = None) -> Float[Array, " N"]:
    """Ranks from 1 among the valid values, which must be finite; ties share their mean rank. 0 where not valid.

    >>> midranks(jnp.array([3.0, 1.0, 3.0, 9.0]), jnp.array([True, True, True, False])).tolist()
    [2.5, 1.0, 2.5, 0.0]
    """
    keep, _ = _kept(values, valid)
    below, upto = _places(values, keep)
    return jnp.where(keep, (below + upto + 1) / 2, 0).astype(jnp.result_type(float))


def centred_ranks(values: Column, valid: Mask = None) -> Float[Array, " N"]:
    """`midranks` less their mean (n + 1) / 2; 0 where not valid, so that sums need no mask."""
    keep, n = _kept(values, valid)
    return jnp.where(keep, midranks(values, keep) - (n + 1) / 2, 0).astype(jnp.result_type(float))


def order_of(values: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Places from 0 of the valid values among them, equal values at one place; 0 where not valid.

    On the host, in float64: rank statistics of the places are those of the values, which float32 may hold as equal.

    >>> order_of(np.array([1.7e9 + 2, 1.7e9 + 1, np.nan, 1.7e9 + 2]), np.array([True, True, False, True])).tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    out = np.zeros(len(values))
    out[valid] = np.unique(np.asarray(values, float)[valid], return_inverse=True)[1]
    return out


# ------------------------------------------------------------------------------------------------------------- inside


def _kept(x: Column, valid: Mask) -> tuple[Bool[Array, " N"], Int[Array, ""]]:
    keep = jnp.ones(x.shape, bool) if valid is None else jnp.asarray(valid)
    return keep, jnp.sum(keep).astype(jnp.int32)


def _places(values: Column, keep: Array) -> tuple[Array, Array]:
    """How many valid values lie below each, and how many below or at it."""
    x = jnp.where(keep, jnp.asarray(values, float), jnp.inf)
    ordered = jnp.sort(x)
    return jnp.searchsorted(ordered, x, side="left"), jnp.searchsorted(ordered, x, side="right")


def _status(x: Column, y: Column, keep: Array, level: Scalar = 0.95) -> Int[Array, ""]:
    columns = [jnp.asarray(c, float) for c in (x, y)]
    infinite = [jnp.any(keep & ~jnp.isfinite(c)) for c in columns]
    constant = [
        jnp.max(jnp.where(keep, c, -jnp.inf), initial=-jnp.inf) <= jnp.min(jnp.where(keep, c, jnp.inf), initial=jnp.inf)
        for c in columns
    ]
    return status_of(
        (infinite[0] | infinite[1] | ~is_level(level), Status.BAD_INPUT),
        (jnp.sum(keep) < 3, Status.NOT_ENOUGH),
        (constant[0] | constant[1], Status.CONSTANT),
    )


def _ties(values: Column, keep: Array) -> tuple[Array, Array, Array]:
    """Over groups of t equal values: pairs t (t - 1) / 2, t (t - 1) (t - 2), and t (t - 1) (2 t + 5)."""
    below, upto = _places(values, keep)
    t = (upto - below).astype(jnp.result_type(float))

    def over(member: Array) -> Array:  # a group has t members, and each of them adds one t-th of it
        return jnp.sum(jnp.where(keep, member, 0))

    return over((t - 1) / 2), over((t - 1) * (t - 2)), over((t - 1) * (2 * t + 5))


def _fisher(r: Array, variance: Array, short: Array, few: Array, level: Scalar) -> tuple[Array, Array]:
    """Interval of a correlation on Fisher's scale, read no nearer to +-1 than ``short``; rounded outwards."""
    z = jnp.sign(r) * jnp.log((2 - jnp.maximum(1 - jnp.abs(r), short)) / jnp.maximum(1 - jnp.abs(r), short)) / 2
    most = 1 - jnp.finfo(r.dtype).epsneg  # the float next to 1: the interval of 1 has a width, however narrow
    half = ndtri((1 + jnp.asarray(level, r.dtype)) / 2) * jnp.sqrt(variance)
    low, high = jnp.minimum(jnp.tanh(z - half), most), jnp.maximum(jnp.tanh(z + half), -most)
    low, high = jnp.minimum(low, r), jnp.maximum(high, r)
    return jnp.where(few, -1.0, low), jnp.where(few, 1.0, high)


def _least_p(n: Array) -> Array:
    return jnp.exp(jnp.log(2.0) - gammaln(n.astype(jnp.result_type(float)) + 1))


def _correlation(value: Array, low: Array, high: Array, p: Array, n: Array, status: Array) -> Correlation:
    ok = status == Status.OK.code
    value, low, high, p = (jnp.where(ok, v, jnp.nan) for v in (value, low, high, p))
    return Correlation(value, low, high, p, n, status)


def _strength(a: Array, b: Array, keep: Array, of: Coefficient) -> Callable[[Array], Array]:
    """The coefficient times a constant, as a function of the order in which b is read; a and b are centred ranks.

    The order may only move rows that count.
    """
    one_of("coefficient", of, ("spearman", "kendall"))
    if of == "spearman":
        return lambda order: jnp.sum(a * b[order])
    signs = [jnp.where(keep[:, None] & keep[None], jnp.sign(c[:, None] - c[None]), 0) for c in (a, b)]
    return lambda order: jnp.sum(signs[0] * signs[1][order[:, None], order[None]])


def _nearly(observed: Array) -> Array:
    """The observed strength, less what rounding of equal sums may differ by."""
    return jnp.abs(observed) * (1 - 16 * jnp.finfo(observed.dtype).eps) - jnp.finfo(observed.dtype).eps


@cache
def _orders(n: int) -> np.ndarray:
    """All orders of n rows [n!, n]."""
    return np.array(list(permutations(range(n))), np.int8)
