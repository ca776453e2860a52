"""How many episodes an evaluation needs, before it is run: from rates that one expects, so a plan and no promise.

All numbers come from formulas for large samples; what they leave out was counted exactly and is told in each docstring.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Int

from jaxeval.linalg import divisor
from jaxeval.stats.estimate import Scalar, Status, is_level, status_of
from jaxeval.stats.proportions import normal_quantile


class Plan(NamedTuple):
    """Episodes (or pairs) needed: a whole number, as a float; NaN where the status says that there is none."""

    n: Float[Array, ""]
    status: Int[Array, ""]


def episodes_for_half_width(p: Scalar, half_width: Scalar, *, level: Scalar = 0.95) -> Plan:
    """Episodes after which `proportions.wilson` reaches no further than ± half_width about its middle, if k/n is p.

    The smallest n >= 1 with z sqrt(p(1-p)/n + z²/4n²) / (1 + z²/n) <= half_width, from the quadratic
    h² n² + z² (2h² - p(1-p)) n + z⁴ (h² - 1/4) = 0. Not knowing p, take 0.5, where most are needed. Exact; in float32
    one more or less beyond a million.
    Undefined: BAD_INPUT unless 0 <= p <= 1, 0 < half_width and 0 < level < 1; DEGENERATE where n is too large for a
    float.
    Source: Wilson 1927, solved for n. Oracle: a search over statsmodels' intervals.

    >>> f"{episodes_for_half_width(0.5, 0.1).n:.0f} {episodes_for_half_width(0.84, 0.1).n:.0f}"
    '93 51'
    """
    p, h, level = _floats(p, half_width, level)
    bad = ~(_rate(p) & (h > 0) & is_level(level))
    h = jnp.minimum(h, 1.0)  # beyond .5 one episode is enough
    z = normal_quantile(level)
    B, C = z * z * (2 * h * h - p * (1 - p)), z**4 * (h * h - 0.25)
    n = (-B + jnp.sqrt(jnp.maximum(B * B - 4 * h * h * C, 0.0))) / (2 * h * h)
    return _planned(n, (bad, Status.BAD_INPUT))


def episodes_for_difference(p_a: Scalar, p_b: Scalar, *, power: Scalar = 0.8, level: Scalar = 0.95) -> Plan:
    """Episodes per policy for `proportions.newcombe` to tell two independent policies apart with probability ``power``.

    n = ((z_level sqrt(2 m (1-m)) + z_power sqrt(p_a (1-p_a) + p_b (1-p_b))) / (p_a - p_b))²,  m = (p_a + p_b) / 2,
    rounded up; "told apart": the interval leaves 0 out. Counted exactly at 80 %, over rates .05 apart, that has a power
    of 79 to 89 %, and more for n < 5 or where a rate is 0 or 1. Fisher's test needs about 2 / |p_a - p_b| more.
    Undefined: DEGENERATE if p_a = p_b (no number suffices) or nearly so; BAD_INPUT unless 0 <= p <= 1, 0 < power < 1, 0
    < level < 1.
    Source: Fleiss, Levin & Paik 2003, Statistical Methods for Rates and Proportions, eq. 4.14.
    Oracle: statsmodels power_proportions_2indep; exact enumeration.

    >>> f"{episodes_for_difference(0.84, 0.53).n:.0f}"
    '35'
    """
    p_a, p_b, power, level = _floats(p_a, p_b, power, level)
    bad = ~(_rate(p_a) & _rate(p_b) & _asked(power, level))
    d, m = jnp.abs(p_a - p_b), (p_a + p_b) / 2
    under_null = normal_quantile(level) * jnp.sqrt(2 * m * (1 - m))
    spread = jnp.sqrt(p_a * (1 - p_a) + p_b * (1 - p_b))
    n = (jnp.maximum(under_null + ndtri(power) * spread, 0.0) / divisor(d)) ** 2
    return _planned(n, (bad, Status.BAD_INPUT), (d == 0, Status.DEGENERATE))


def pairs_for_difference(p_a_only: Scalar, p_b_only: Scalar, *, power: Scalar = 0.8, level: Scalar = 0.95) -> Plan:
    """Matched pairs with which `paired.tango` finds a difference of two policies on the same starts, with probability
    ``power``.

    ``p_a_only``, ``p_b_only``: expected shares of the pairs in which a alone, b alone succeeds.
    n = ((z_level sqrt(s) + z_power sqrt(s - d²)) / d)²,  s = p_a_only + p_b_only,  d = p_a_only - p_b_only, rounded up;
    "told apart": the interval leaves 0 out. Counted exactly at 80 %, that has a power of 80 to 86 %, and up to 98 %
    where one share is next to 0 or n is below 20. McNemar's mid-p has 80 % as well; the exact one needs about 1 / |d|
    more.
    Undefined: DEGENERATE if the shares are equal (no number suffices) or nearly so; BAD_INPUT unless both and their sum
    lie in [0, 1], 0 < power < 1 and 0 < level < 1.
    Source: Connor 1987, Biometrics 43:207. Oracle: exact enumeration of the discordant pairs.

    >>> f"{pairs_for_difference(0.42, 0.11).n:.0f}"
    '41'
    """
    a, b, power, level = _floats(p_a_only, p_b_only, power, level)
    bad = ~(_rate(a) & _rate(b) & (a + b <= 1) & _asked(power, level))
    s, d = a + b, jnp.abs(a - b)
    under_null, spread = normal_quantile(level) * jnp.sqrt(s), jnp.sqrt(jnp.maximum(s - d * d, 0.0))
    n = (jnp.maximum(under_null + ndtri(power) * spread, 0.0) / divisor(d)) ** 2
    return _planned(n, (bad, Status.BAD_INPUT), (d == 0, Status.DEGENERATE))


def _floats(*values: Scalar) -> tuple[Float[Array, ""], ...]:
    return tuple(jnp.asarray(x, jnp.result_type(float)) for x in values)


def _rate(p: Float[Array, ""]) -> Bool[Array, ""]:
    return (p >= 0) & (p <= 1)


def _asked(power: Float[Array, ""], level: Float[Array, ""]) -> Bool[Array, ""]:
    return (power > 0) & (power < 1) & is_level(level)


def _planned(n: Float[Array, ""], *cases: tuple[Array, Status]) -> Plan:
    """n rounded up, but not for what rounding errors put above a whole number; DEGENERATE where no float holds it."""
    status = status_of(*cases, (~jnp.isfinite(n), Status.DEGENERATE))
    whole = jnp.maximum(jnp.ceil(n * (1 - 4 * jnp.finfo(n.dtype).eps)), 1.0)
    return Plan(jnp.where(status == Status.OK.code, whole, jnp.nan), status)
