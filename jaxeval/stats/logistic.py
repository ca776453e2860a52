"""Logistic regression of success on a few features: coefficients with Wald intervals, or a status where none exist.

Written for one set of rows [N]; `valid` says which count. One small Newton iteration, no linear algebra library.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from jaxeval.linalg import divisor
from jaxeval.stats.estimate import Scalar, Status, is_level, status_of
from jaxeval.stats.proportions import normal_quantile

Truth = Bool[Array, " N"] | Bool[np.ndarray, " N"]
Codes = Int[Array, " N"] | Int[np.ndarray, " N"]
Features = Num[Array, "N D"] | Num[np.ndarray, "N D"]

NEWTON_N, FEATURES_N = 50, 8
NOT_YET = 4e-3
"""A last step this large, as a share of the largest log odds, goes on for ever: where separated, about 1 / NEWTON_N."""


class Logistic(NamedTuple):
    """logit P(success) = b_0 + b . x with Wald intervals; entry 0 is the intercept, entry d + 1 feature d."""

    coefficients: Float[Array, " D1"]
    low: Float[Array, " D1"]
    high: Float[Array, " D1"]
    standard_error: Float[Array, " D1"]
    n: Int[Array, ""]
    status: Int[Array, ""]


def logistic_fit(features: Features, success: Truth, valid: Truth | None = None, *, level: Scalar = 0.95) -> Logistic:
    """Maximum-likelihood logistic regression on up to 8 features, with Wald intervals.

    b maximises sum y eta - log(1 + e^eta), eta = b_0 + x . b; standard errors from the inverse information; interval
    b +- z se. Newton's method, 50 steps, each halved while the likelihood falls; the features are standardised within
    and centred at their weighted mean, so that a feature of which nearly all successes lie in a narrow band still fits.
    A coefficient is the change of the log odds by one unit of its feature: `standardised` features give it by one
    standard deviation; `dummies` add a policy's or a start's own intercept; speed is a feature as any other.

    Undefined: ONE_CLASS, NO_DATA, BAD_INPUT for a feature that is not finite or a level outside (0, 1), DEGENERATE
    where no finite maximum exists (a feature, or a sum of some, separates successes from failures, wholly or but for
    ties), where features are constant or depend on each other, or where a float does not hold a coefficient or its
    standard error (features of some 1e38).
    Oracle: statsmodels Logit (coefficients, standard errors, intervals), sklearn LogisticRegression without penalty.

    >>> x = jnp.array([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]])
    >>> fit = jax.jit(logistic_fit)(x, jnp.array([False, True, False, True, False, True]))
    >>> print(f"{fit.coefficients[1]:.2f} [{fit.low[1]:.2f}, {fit.high[1]:.2f}]")
    0.36 [-0.65, 1.38]
    """
    if features.shape[1] > FEATURES_N:
        raise ValueError(f"logistic_fit: {features.shape[1]} features; expected {FEATURES_N} at most")
    x = jnp.asarray(features, float)
    keep = jnp.ones(len(x), bool) if valid is None else jnp.asarray(valid)
    won = keep & jnp.asarray(success)
    m, f = jnp.sum(won), jnp.sum(keep & ~won)
    status = status_of(
        (jnp.any(keep[:, None] & ~jnp.isfinite(x)) | ~is_level(level), Status.BAD_INPUT),
        (m + f == 0, Status.NO_DATA),
        ((m == 0) | (f == 0), Status.ONE_CLASS),
    )
    x = jnp.where(keep[:, None] & jnp.isfinite(x), x, 0.0)
    middle, size = _moments(x, keep)
    z = jnp.where(keep[:, None], (x - middle[None]) / divisor(size)[None], 0.0)
    b0, b, last, (total, mean, H) = _newton(z, keep, won)
    inverse, least = _inverse(H)
    digits = jnp.finfo(x.dtype).eps
    apart = (last > NOT_YET) | (least < 64 * digits) | jnp.any(size <= 0) | ~jnp.isfinite(last)
    status = jnp.where((status == Status.OK.code) & apart, Status.DEGENERATE.code, status)

    scale = divisor(size)
    slopes = b / scale
    at = mean + middle / scale  # the weighted mean in units of z, from the features' own origin
    variance0 = 1 / total + at @ inverse @ at
    coefficients = jnp.concatenate([(b0 - middle @ slopes)[None], slopes])
    error = jnp.concatenate([jnp.sqrt(variance0)[None], jnp.sqrt(jnp.diagonal(inverse)) / scale])
    half = normal_quantile(level) * error
    held = jnp.all(jnp.isfinite(coefficients) & jnp.isfinite(half) & (error > 0))
    status = jnp.where((status == Status.OK.code) & ~held, Status.DEGENERATE.code, status)
    ok = status == Status.OK.code
    value, low, high, spread = (
        jnp.where(ok, v, jnp.nan) for v in (coefficients, coefficients - half, coefficients + half, error)
    )
    return Logistic(value, low, high, spread, (m + f).astype(jnp.int32), status)


def _newton(z: Array, keep: Array, won: Array) -> tuple[Array, Array, Array, tuple[Array, Array, Array]]:
    """(intercept, slopes, the last step as a share of the largest log odds, what is known about them there).

    What is known: the sum of the weights, the weighted mean of z, and the information about the slopes.
    """
    weight = keep.astype(z.dtype)

    def likelihood(eta: Array) -> Array:
        return -jnp.sum(weight * jax.nn.softplus(jnp.where(won, -eta, eta)))

    def information(eta: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Sum of weights, weighted mean of z, information about the slopes, and the gradients."""
        p = jax.nn.sigmoid(eta)
        w = weight * p * jax.nn.sigmoid(-eta)
        total = jnp.maximum(jnp.sum(w), jnp.finfo(z.dtype).tiny)
        mean = jnp.sum(w[:, None] * z, axis=0) / total
        c = jnp.where(keep[:, None], z - mean[None], 0.0)
        left = weight * jnp.where(won, jax.nn.sigmoid(-eta), -p)
        return total, mean, jnp.einsum("n,nd,ne->de", w, c, c), jnp.sum(left), jnp.sum(left[:, None] * c, axis=0)

    def step(_: Scalar, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        b0, b, _ = state
        eta = b0 + z @ b
        total, mean, H, g0, g = information(eta)
        move = _inverse(H)[0] @ g
        move0 = g0 / total - mean @ move
        change = move0 + z @ move
        tried = 0.5 ** jnp.arange(8.0).astype(z.dtype)
        best = tried[jnp.argmax(jax.vmap(lambda t: likelihood(eta + t * change))(tried))]
        far, size = (jnp.max(jnp.where(keep, jnp.abs(v), 0.0)) for v in (change, eta))
        return b0 + best * move0, b + best * move, far / (1 + size)

    rate = jnp.clip(jnp.sum(won.astype(z.dtype)) / jnp.maximum(jnp.sum(weight), 1.0), 1e-3, 1 - 1e-3)
    start = (jnp.log(rate / (1 - rate)), jnp.zeros(z.shape[1], z.dtype), jnp.asarray(jnp.inf, z.dtype))
    b0, b, last = jax.lax.fori_loop(0, NEWTON_N, step, start)
    return b0, b, last, information(b0 + z @ b)[:3]


def predict(fit: Logistic, features: Features) -> Float[Array, " N"]:
    """P(success) of every row by a fit; NaN where the fit has no coefficients.

    >>> none = jnp.zeros(2)
    >>> made = Logistic(jnp.array([0.0, 1.0]), none, none, none, jnp.int32(9), jnp.int32(0))
    >>> predict(made, jnp.array([[0.0]])).tolist()
    [0.5]
    """
    return jax.nn.sigmoid(fit.coefficients[0] + jnp.asarray(features, float) @ fit.coefficients[1:])


def standardised(features: Features, valid: Truth | None = None) -> Float[Array, "N D"]:
    """Features less their mean, by their standard deviation (of n, not n - 1) over the valid rows; 0 where constant.

    >>> standardised(jnp.array([[1.0], [3.0]])).tolist()
    [[-1.0], [1.0]]
    """
    x = jnp.asarray(features, float)
    keep = jnp.ones(len(x), bool) if valid is None else jnp.asarray(valid)
    middle, size = _moments(x, keep)
    return jnp.where(keep[:, None], (x - middle[None]) / divisor(size)[None], 0.0)


def dummies(codes: Codes, *, levels_n: int) -> Float[Array, "N L"]:
    """A column for each level but the first, 1 in its rows: fixed effects for `logistic_fit`.

    >>> dummies(jnp.array([0, 1, 2]), levels_n=3).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    return (jnp.asarray(codes)[:, None] == jnp.arange(1, levels_n)[None]).astype(jnp.result_type(float))


def _moments(x: Array, keep: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each column over the rows kept; 0 exactly for a constant one."""
    n, each = jnp.maximum(jnp.sum(keep), 1), keep[:, None]
    mean = jnp.sum(jnp.where(each, x / n, 0.0), axis=0)
    off = jnp.where(each, x - mean[None], 0.0)
    most = jnp.max(jnp.abs(off), axis=0, initial=0.0)
    unit = divisor(most)  # so that no square overflows or vanishes
    size = unit * jnp.sqrt(jnp.sum((off / unit[None]) ** 2, axis=0) / n)
    high, low = (
        of(jnp.where(each, x, start), axis=0, initial=start) for of, start in ((jnp.max, -jnp.inf), (jnp.min, jnp.inf))
    )
    return mean, jnp.where(high > low, size, 0.0)


def _inverse(H: Float[Array, "D D"]) -> tuple[Float[Array, "D D"], Float[Array, ""]]:
    """Inverse of a positive definite matrix by sweeping, and the least pivot as a share of its diagonal entry."""
    D = len(H)
    size = jnp.sqrt(jnp.maximum(jnp.diagonal(H), jnp.finfo(H.dtype).tiny))
    A, least = H / (size[:, None] * size[None]), jnp.ones((), H.dtype)
    for k in range(D):
        pivot = A[k, k]
        least = jnp.minimum(least, pivot)
        column = A[:, k] / divisor(pivot)
        swept = A - column[:, None] * A[k][None]
        A = swept.at[k].set(column).at[:, k].set(column).at[k, k].set(-1 / divisor(pivot))
    return -A / (size[:, None] * size[None]), least
