"""Many tests at once: p-values adjusted so that each may still be held against the level that was set for all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from numpy import ndarray

Ps = Float[Array, " N"] | Float[ndarray, " N"]
Mask = Bool[Array, " N"] | Bool[ndarray, " N"]


def holm(p: Ps, valid: Mask) -> Float[Array, " N"]:
    """P-values adjusted by Holm: rejecting those below a makes even one false rejection no likelier than a, always.

    Of the m valid ones in rising order, p_(i) -> max over j <= i of min(1, (m - j + 1) p_(j)). In [0, 1], never below
    p. Those that are not valid (tests without an answer) neither count into m nor change; one that is NaN or outside
    [0, 1] is not valid.
    Source: Holm 1979, Scand. J. Stat. 6:65. Oracle: statsmodels multipletests("holm").

    >>> adjusted = holm(jnp.array([0.01, 0.04, 0.03, 0.5]), jnp.array([True, True, True, False]))
    >>> [round(float(x), 3) for x in adjusted]
    [0.03, 0.06, 0.06, 0.5]
    """
    p, valid, order, m = _sorted(p, valid)
    rank = jnp.arange(p.shape[0])
    adjusted = jax.lax.cummax((m - rank).astype(p.dtype) * p[order])
    return _unsorted(adjusted, p, valid, order)


def benjamini_hochberg(p: Ps, valid: Mask) -> Float[Array, " N"]:
    """P-values adjusted by Benjamini and Hochberg: of those below a, on average at most a share a is rejected falsely.

    Of the m valid ones in rising order, p_(i) -> min over j >= i of min(1, m p_(j) / j). In [0, 1], never below p,
    never above `holm`. The share holds for tests that are independent or positively dependent. Valid as in `holm`.
    Source: Benjamini & Hochberg 1995, JRSS B 57:289. Oracle: statsmodels multipletests("fdr_bh").

    >>> adjusted = benjamini_hochberg(jnp.array([0.01, 0.04, 0.03, 0.5]), jnp.array([True, True, True, False]))
    >>> [round(float(x), 3) for x in adjusted]
    [0.03, 0.04, 0.04, 0.5]
    """
    p, valid, order, m = _sorted(p, valid)
    rank = jnp.arange(p.shape[0])
    scaled = jnp.where(rank < m, p[order] * (m / (rank + 1)).astype(p.dtype), jnp.inf)
    return _unsorted(jax.lax.cummin(scaled, reverse=True), p, valid, order)


def _sorted(p: Ps, valid: Mask) -> tuple[Array, Array, Array, Array]:
    """p, valid, the order that sorts the valid ones to the front, and how many they are."""
    p = jnp.asarray(p, jnp.result_type(float))
    valid = jnp.asarray(valid) & (p >= 0) & (p <= 1)
    return p, valid, jnp.argsort(jnp.where(valid, p, jnp.inf)), valid.sum()


def _unsorted(adjusted: Array, p: Array, valid: Array, order: Array) -> Float[Array, " N"]:
    return jnp.where(valid, jnp.zeros_like(p).at[order].set(jnp.minimum(adjusted, 1.0)), p)
