"""Values before they are compared, and how large a difference is beside their spread: on the host, in float64."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Num

from jaxeval.stats.estimate import Status

ROUNDING = 4.0
"""Units in the last place of the largest value: differences that lie no further apart are one."""
NEAR_T = 30.0
"""|t| up to which the noncentral t is inverted; beyond it loses digits, and its limit is as good."""


class Effect(NamedTuple):
    """A difference in standard deviations with its interval; NaN where the status says so."""

    value: float
    low: float
    high: float
    status: Status


# -------------------------------------------------------------------------------------------- before they are compared


def differences(a: Num[np.ndarray, " N"], b: Num[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """a - b of matched pairs in float64; differences that are equal but for rounding are made equal.

    0.3 - 0.2 and 0.2 - 0.1 differ in the last place, and 1e9 + 0.3 - 1e9 in the tenth: as ranks these are no ties, and
    as a spread they would make any constant difference certain. Sizes |a - b| whose neighbours lie within ROUNDING
    units in the last place of the largest value become their mean, and 0 where they reach 0.

    >>> d = differences(np.array([0.3, 0.2, 0.5]), np.array([0.2, 0.1, 0.5]))
    >>> 0.3 - 0.2 == 0.2 - 0.1, bool(d[0] == d[1]), d.round(9).tolist()
    (False, True, [0.1, 0.1, 0.0])
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    with np.errstate(over="ignore", invalid="ignore"):
        d = a - b
    if not d.size or not np.isfinite(d).all():
        return d
    apart = ROUNDING * np.finfo(float).eps * max(float(np.abs(a).max()), float(np.abs(b).max()))
    order = np.argsort(np.abs(d))
    sizes = np.abs(d)[order]
    group = np.cumsum(np.diff(sizes, prepend=0.0) > apart)  # group 0 reaches 0
    means = np.bincount(group, sizes) / np.maximum(np.bincount(group), 1)
    means[0] = 0.0
    out = np.empty_like(d)
    out[order] = means[group]
    return np.sign(d) * out


def centred(*columns: Num[np.ndarray, "..."]) -> tuple[float, tuple[Float[np.ndarray, "..."], ...]]:
    """One centre of all the columns, and the columns without it, in float64: what float32 can then hold.

    >>> centre, (a, b) = centred(np.array([1e9, 1e9 + 0.5]), np.array([1e9 + 0.25]))
    >>> (a.max() - b.max()).astype(np.float32).item()
    0.25
    """
    every = np.concatenate([np.asarray(c, float).ravel() for c in columns])
    known = every[np.isfinite(every)]
    centre = float(np.median(known)) if known.size else 0.0
    return centre, tuple(np.asarray(c, float) - centre for c in columns)


# ------------------------------------------------------------------------------------------------------------- effects


def d_z(d: Num[np.ndarray, " N"], *, level: float = 0.95) -> Effect:
    """Mean difference of matched pairs in standard deviations of these differences; positive: a is larger.

    d_z = mean / s (no correction for small n);  interval: the noncentral t(n - 1) at t = d_z sqrt(n), ends / sqrt(n).
    It is of the differences' spread, not the values': the more alike the pairs, the larger. Compare it between paired
    studies only. Undefined: NO_DATA, NOT_ENOUGH for one pair, CONSTANT where differences do not vary, BAD_INPUT.
    Source: Cohen 1988, section 2.3.5; Lakens 2013, Front. Psychol. 4:863; interval Steiger & Fouladi 1997.
    Oracle: scipy.stats.nct at the ends.

    >>> made = d_z(np.array([1.0, 2.0, 4.0, 5.0]))
    >>> f"{made.value:.2f} [{made.low:.2f}, {made.high:.2f}]"
    '1.64 [0.02, 3.19]'
    """
    d = np.asarray(d, float)
    if status := _lacking(d, level=level):
        return Effect(math.nan, math.nan, math.nan, status)
    mean, s = _moments(d)
    if s == 0:
        return Effect(math.nan, math.nan, math.nan, Status.CONSTANT)
    n = len(d)
    value = mean / s
    low, high = _noncentral(value * math.sqrt(n), n - 1, level)
    return Effect(value, low / math.sqrt(n), high / math.sqrt(n), Status.OK)


def hedges_g(a: Num[np.ndarray, " N"], b: Num[np.ndarray, " M"], *, level: float = 0.95) -> Effect:
    """Mean of a minus mean of b, of independent runs, in standard deviations of both; positive: a is larger.

    g = J (mean a - mean b) / s,  s² = ((n_a - 1) s_a² + (n_b - 1) s_b²) / m,  m = n_a + n_b - 2,
    J = Γ(m / 2) / (sqrt(m / 2) Γ((m - 1) / 2)), which takes the bias of small n off (1 - 3 / (4 m - 1), nearly);
    interval: J times the ends of the noncentral t(m) at t = d sqrt(n_a n_b / (n_a + n_b)), in the same scale. It takes
    both to have one variance, which the Welch interval of the difference does not.
    Undefined: NO_DATA for an empty side, NOT_ENOUGH for fewer than three values in all or one of a side, CONSTANT where
    neither varies, BAD_INPUT.
    Source: Hedges 1981, J. Educ. Stat. 6:107; interval Steiger & Fouladi 1997. Oracle: scipy.stats.nct at the ends.

    >>> made = hedges_g(np.array([1.0, 2.0, 6.0]), np.array([1.0, 1.5]))
    >>> f"{made.value:.2f} [{made.low:.2f}, {made.high:.2f}]"
    '0.58 [-0.83, 1.91]'
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    if status := _lacking(a, b, level=level):
        return Effect(math.nan, math.nan, math.nan, status)
    n_a, n_b = len(a), len(b)
    m = n_a + n_b - 2
    unit = float(max(np.abs(a).max(), np.abs(b).max())) or 1.0
    (mean_a, s_a), (mean_b, s_b) = _moments(a / unit), _moments(b / unit)
    s = math.sqrt(((n_a - 1) * s_a**2 + (n_b - 1) * s_b**2) / m)
    if s == 0:
        return Effect(math.nan, math.nan, math.nan, Status.CONSTANT)
    d, per_t = (mean_a - mean_b) / s, math.sqrt(1 / n_a + 1 / n_b)
    low, high = _noncentral(d / per_t, m, level)
    unbiased = math.exp(math.lgamma(m / 2) - math.lgamma((m - 1) / 2)) / math.sqrt(m / 2)
    return Effect(unbiased * d, unbiased * low * per_t, unbiased * high * per_t, Status.OK)


def _lacking(*columns: np.ndarray, level: float) -> Status | None:
    """Why there is no effect, if so."""
    if not 0 < level < 1 or not all(np.isfinite(c).all() for c in columns):
        return Status.BAD_INPUT
    least = min(map(len, columns))
    return Status.NO_DATA if least == 0 else Status.NOT_ENOUGH if least == 1 else None


def _moments(x: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation; 0 where the values do not vary but for rounding."""
    unit = float(np.abs(x).max()) or 1.0
    x = x / unit
    mean = float(x.mean())
    apart = x - mean
    spread = float(np.abs(apart).max())
    if spread <= ROUNDING * np.finfo(float).eps:
        return mean * unit, 0.0
    return mean * unit, unit * spread * math.sqrt(float(((apart / spread) ** 2).sum()) / (len(x) - 1))


def _noncentral(t: float, df: int, level: float) -> tuple[float, float]:
    """Noncentralities under which t lies at the upper, and at the lower, end of its central range.

    Beyond NEAR_T: t less what a chi of df and a normal may add, by MOVER.
    """
    from scipy.optimize import brentq
    from scipy.stats import chi2, nct, norm

    tails = ((1 + level) / 2, (1 - level) / 2)
    if abs(t) > NEAR_T:
        z = float(norm.ppf(tails[0]))
        ends = [abs(t) * math.sqrt(float(chi2.ppf(p, df)) / df) for p in tails]  # the larger one first
        near, far = (abs(t) + sign * math.hypot(abs(t) - end, z) for sign, end in ((-1, ends[1]), (1, ends[0])))
        return (near, far) if t > 0 else (-far, -near)
    found = []
    for p in tails:
        wide = 2.0
        while (nct.cdf(t, df, t - wide) < p or nct.cdf(t, df, t + wide) > p) and wide < 1e3:
            wide *= 2
        found.append(float(brentq(lambda x, p=p: float(nct.cdf(t, df, x)) - p, t - wide, t + wide, xtol=1e-9)))  # pyright: ignore[reportArgumentType]
    return found[0], found[1]
