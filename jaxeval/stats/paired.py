"""Two policies on the same starts: the difference of their rates, tests of it, and how it changes between conditions.

Every function takes the 2x2 counts of one pairing (jax.vmap for many). What both or neither did only counts into n.
A test that only one of two runs could pass is decided by the discordant pairs: ``a_only`` and ``b_only``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float, Int

from jaxeval.linalg import divisor
from jaxeval.stats.estimate import Estimate, PairCounts, Scalar, Status, Test, status_of
from jaxeval.stats.proportions import (
    Counts,
    binomial_pmf,
    binomial_tail,
    bisect,
    cannot_be,
    difference,
    newcombe,
    normal_quantile,
)

Strata = tuple[Float[Array, " S"], Float[Array, " S"], Float[Array, " S"]]
"""a_only, b_only and n of each stratum."""
MOST_SD = 40.0
"""Standard deviations beyond which a p-value is 0 in float64."""


def tango(counts: PairCounts, *, level: Scalar = 0.95) -> Estimate:
    """Difference of two rates on the same starts p_a - p_b (positive: a succeeds more) with Tango's score interval.

    d = (a_only - b_only) / n; the ends are the two D at which T(D)² = z², with

        T(D) = (a_only - b_only - n D) / sqrt(n (2q + D - D²)),

    q the likeliest probability of b_only among those with p_a - p_b = D: the larger root of
    2n q² + ((2n - a_only + b_only) D - a_only - b_only) q - b_only D (1 - D) = 0. In [-1, 1].
    It is not of zero width when no pair is discordant: then the ends are ± z² / (n + z²), and the status,
    NO_DISCORDANT, is a warning. 0 lies outside exactly where McNemar's uncorrected chi-square rejects.
    Undefined: NO_DATA for n = 0; BAD_INPUT for counts that are negative, not whole or NaN, or unless 0 < level < 1.
    Source: Tango 1998, Stat. Med. 17:891. Covers 92.4 % at worst (n = 10), 91.1 % (25), 93.0 % (100); 95 to 97 % on
    average.
    Oracle: a twin that maximises the multinomial likelihood numerically; values that others published.

    >>> gain = tango(PairCounts(both=42, a_only=42, b_only=11, neither=5))
    >>> f"{gain.value:.2f} [{gain.low:.3f}, {gain.high:.3f}]"
    '0.31 [0.175, 0.434]'
    """
    return pooled_difference(_as_stratum(counts), level=level)


def pooled_difference(counts: PairCounts, *, level: Scalar = 0.95) -> Estimate:
    """Difference of two rates on the same starts pooled over strata (tasks, say): `tango` with the sums over strata.

    ``counts``: arrays [S]. d = sum (a_only - b_only) / sum n, so a stratum weighs as many pairs as it has, and one
    without any has no weight. The ends are the two D at which T(D)² = z²,

        T(D) = sum (a_only - b_only - n D) / sqrt(sum n (2q + D - D²)),  q of each stratum as in `tango`.

    It takes the difference to be the same in all strata, not the rates. In [-1, 1].
    NO_DISCORDANT (a warning): no stratum has a discordant pair. Undefined: NO_DATA if there is no pair at all;
    BAD_INPUT if any stratum's counts cannot be.
    Source: Tango 1998; sums of a score statistic over strata as in Miettinen & Nurminen 1985, Stat. Med. 4:213. Covers
    95.0 to 95.7 % in the four unlike strata that were simulated (n = 10 to 100 in each); no worst case is known.
    Oracle: the numerical twin of `tango`, summed over strata.

    >>> tasks = PairCounts(*jnp.array([[42, 20], [42, 9], [11, 6], [5, 15]]))
    >>> gain = pooled_difference(tasks)
    >>> f"{gain.value:.3f} [{gain.low:.3f}, {gain.high:.3f}]"
    '0.227 [0.122, 0.328]'
    """
    status, strata, d = _checked(counts, level)
    ok = status == Status.OK.code
    low, high = _ends(strata, d, normal_quantile(jnp.where(ok, level, 0.5)))
    a_only, b_only, _ = strata
    status = jnp.where(ok & (a_only + b_only == 0).all(), Status.NO_DISCORDANT.code, status)
    return Estimate(jnp.where(ok, d, jnp.nan), jnp.where(ok, low, jnp.nan), jnp.where(ok, high, jnp.nan), status)


def equivalence(counts: PairCounts, *, margin: Scalar) -> Test:
    """Whether two rates on the same starts differ by less than ``margin``: two one-sided score tests, p the larger.

    p = max(Phi(-T(-margin)), Phi(T(margin))), T as in `tango`. A small p speaks for |p_a - p_b| < margin; p < a
    exactly where the (1 - 2a) interval of `tango` lies inside ± margin. "No difference found" is no such proof.
    Undefined: NO_DATA; BAD_INPUT also unless 0 < margin < 1.
    Source: Tango 1998 for the statistic; Schuirmann 1987, J. Pharmacokinet. Biopharm. 15:657, for the two tests.
    Oracle: the numerical twin of `tango`'s statistic.

    >>> test = equivalence(PairCounts(both=80, a_only=5, b_only=5, neither=10), margin=0.1)
    >>> f"{test.p:.4f}"
    '0.0046'
    """
    margin = jnp.asarray(margin, jnp.result_type(float))
    possible = (margin > 0) & (margin < 1)
    status, strata, d = _checked(_as_stratum(counts), 0.95)
    status = jnp.where(possible, status, Status.BAD_INPUT.code)
    m = jnp.where(possible, margin, 0.5)
    n = strata[2].sum()

    def score(D: Float[Array, ""]) -> Float[Array, ""]:
        return (d - D) * jnp.sqrt(n / _variance(strata, D))

    p = ndtr(-jnp.minimum(score(-m), -score(m)))
    return Test(jnp.where(status == Status.OK.code, p, jnp.nan), status)


def mcnemar_exact(counts: PairCounts) -> Test:
    """Exact two-sided test of p_a = p_b on the same starts: a_only is a fair coin's count of the discordant pairs.

    m = a_only + b_only;  k = min(a_only, b_only);  p = min(1, 2 P(X <= k)), X ~ Binomial(m, 1/2).
    In float32 p is within 1e-4 of itself, down to 1e-37 and for up to a million pairs.
    NO_DISCORDANT (a warning): p = 1. Undefined: NO_DATA for n = 0; BAD_INPUT as `tango`.
    Source: McNemar 1947, Psychometrika 12:153, with the binomial. Never rejects more often than asked; far less often
    at few discordant pairs, where `mcnemar_mid_p` comes closer.
    Oracle: scipy.stats.binomtest, statsmodels mcnemar(exact=True).

    >>> test = mcnemar_exact(PairCounts(both=42, a_only=42, b_only=11, neither=5))
    >>> f"{test.p:.1e}"
    '2.2e-05'
    """
    status, m, k, ok = _discordant(counts)
    return Test(jnp.where(ok, jnp.minimum(2 * binomial_tail(k, m, jnp.full_like(m, 0.5)), 1.0), jnp.nan), status)


def mcnemar_mid_p(counts: PairCounts) -> Test:
    """`mcnemar_exact` with half the weight on the observed count: p = 2 P(X <= k) - P(X = k).

    Closer to the size asked for: over the cases of Fagerland et al. it never exceeded it, but that is no theorem.
    NO_DISCORDANT (a warning): p = 1. Undefined: as `mcnemar_exact`.
    Source: Fagerland, Lydersen & Laake 2013, BMC Med. Res. Methodol. 13:91.
    Oracle: scipy.stats.binom; the paper's examples.

    >>> test = mcnemar_mid_p(PairCounts(both=59, a_only=6, b_only=16, neither=80))
    >>> f"{test.p:.4f}"
    '0.0347'
    """
    status, m, k, ok = _discordant(counts)
    half = jnp.full_like(m, 0.5)
    p = 2 * binomial_tail(k, m, half) - binomial_pmf(k, m, half)
    return Test(jnp.where(ok, jnp.minimum(p, 1.0), jnp.nan), status)


# ---------------------------------------------------------------------------------------------- policy x condition


def decrease_difference(counts_from: PairCounts, counts_to: PairCounts, *, level: Scalar = 0.95) -> Estimate:
    """How much more a loses than b between two conditions: (p_a - p_b)(from) - (p_a - p_b)(to). Positive: a loses more.

    The same number as (p_a(from) - p_a(to)) - (p_b(from) - p_b(to)), the interaction policy x condition. In [-2, 2].
    a and b share their starts within each condition; the two conditions are independent, each with its own starts.
    Where the same starts were run in both conditions this is too wide: resample the starts instead (`stats.bootstrap`).
    The interval joins the two of `tango` by MOVER (see `proportions.difference`); it has a width even if no pair is
    discordant (NO_DISCORDANT, a warning: in neither condition).
    Undefined: NO_DATA if either condition has no pairs; BAD_INPUT as `tango`.
    Source: Zou & Donner 2008, Stat. Med. 27:1693 (MOVER); its use on two of Tango's intervals is ours. Covers 95.4 % at
    worst (n = 10 in each condition), 94.9 % (25), of 64 cases; 97 % on average.
    Oracle: the numerical twin of `tango`.

    >>> nominal, fast = PairCounts(100, 0, 0, 0), PairCounts(both=42, a_only=42, b_only=11, neither=5)
    >>> more = decrease_difference(nominal, fast)
    >>> f"{more.value:.2f} [{more.low:.3f}, {more.high:.3f}]"
    '-0.31 [-0.439, -0.170]'
    """
    before, after = tango(counts_from, level=level), tango(counts_to, level=level)
    change = difference(before, after)
    quiet = Status.NO_DISCORDANT.code
    warned = (change.status == Status.OK.code) & (before.status == quiet) & (after.status == quiet)
    return change._replace(status=jnp.where(warned, quiet, change.status))


def no_interaction(counts_from: PairCounts, counts_to: PairCounts) -> Test:
    """Test that a and b lose alike between two conditions, by `decrease_difference`.

    p = 1 - level of the interval that just touches 0, so p < a exactly where the (1 - a) interval leaves 0 out.
    NO_DISCORDANT (a warning): p = 1. Undefined, source: as `decrease_difference`.
    Oracle: its intervals.

    >>> nominal, fast = PairCounts(100, 0, 0, 0), PairCounts(both=42, a_only=42, b_only=11, neither=5)
    >>> test = no_interaction(nominal, fast)
    >>> f"{test.p:.1e}"
    '1.0e-04'
    """
    change = decrease_difference(counts_from, counts_to)
    both = [_checked(_as_stratum(counts), 0.95) for counts in (counts_from, counts_to)]
    (strata_from, d_from), (strata_to, d_to) = ((strata, d) for _, strata, d in both)

    sd = _touching(strata_from, d_from, strata_to, d_to)
    p = jnp.where(d_from == d_to, 1.0, 2 * ndtr(-sd))
    return Test(jnp.where(jnp.isnan(change.value), jnp.nan, p), change.status)


def decrease_difference_unpaired(
    k_a: Counts, n_a: Counts, k_b: Counts, n_b: Counts, *, level: Scalar = 0.95
) -> Estimate:
    """`decrease_difference` where nothing is matched: k of n of a and of b, each [from, to]. Positive: a loses more.

    (p_a[0] - p_a[1]) - (p_b[0] - p_b[1]) in [-2, 2]; the four Wilson intervals joined by MOVER, which is `newcombe` in
    each condition joined once more.
    Undefined: NO_DATA if any n is 0; BAD_INPUT as `proportions.wilson`.
    Source: as `decrease_difference`. Oracle: statsmodels' Wilson intervals, joined by hand.

    >>> more = decrease_difference_unpaired(*jnp.array([[100, 84], [100, 100], [100, 53], [100, 100]]))
    >>> f"{more.value:.2f} [{more.low:.3f}, {more.high:.3f}]"
    '-0.31 [-0.430, -0.178]'
    """
    before, after = (newcombe(k_a[i], n_a[i], k_b[i], n_b[i], level=level) for i in (0, 1))
    return difference(before, after)


# ---------------------------------------------------------------------------------------------- the score statistic


def _variance(strata: Strata, D: Float[Array, ""]) -> Float[Array, ""]:
    """Variance of a pair's difference if the true one is D: the likeliest under that, averaged over pairs."""
    a_only, b_only, n = strata
    D, along, against = jnp.abs(D), jnp.where(D >= 0, a_only, b_only), jnp.where(D >= 0, b_only, a_only)
    some = divisor(n)
    along, against = along / some, against / some
    # 2 q² + B q - C = 0; the form of its larger root that does not cancel, and that divides by 0 nowhere
    B, C = (2 - along + against) * D - along - against, against * D * (1 - D)
    root = jnp.sqrt(B * B + 8 * C)
    q = jnp.where(B > 0, 2 * C / jnp.where(B > 0, B + root, 1.0), (root - B) / 4)
    return (n * (2 * q + D * (1 - D))).sum() / n.sum()


@jax.jit  # for who calls without: a loop is compiled anew at each call
def _ends(strata: Strata, d: Float[Array, ""], sd: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Lowest and highest difference that lies within ``sd`` standard deviations of d."""
    n = strata[2].sum()

    def fits(D: Float[Array, ""]) -> Bool[Array, ""]:
        return n * (d - D) ** 2 <= sd * sd * _variance(strata, D)

    return bisect(fits, d, -jnp.ones_like(d)), bisect(fits, d, jnp.ones_like(d))


@jax.jit
def _touching(
    strata_from: Strata, d_from: Float[Array, ""], strata_to: Strata, d_to: Float[Array, ""]
) -> Float[Array, ""]:
    """Standard deviations at which the interval of d_from - d_to just touches 0."""
    d = d_from - d_to

    def leaves_zero_out(sd: Float[Array, ""]) -> Bool[Array, ""]:
        (low_from, high_from), (low_to, high_to) = _ends(strata_from, d_from, sd), _ends(strata_to, d_to, sd)
        down = jnp.hypot(d_from - low_from, high_to - d_to)
        up = jnp.hypot(high_from - d_from, d_to - low_to)
        return jnp.where(d > 0, d > down, -d > up)

    return bisect(leaves_zero_out, jnp.zeros_like(d), jnp.full_like(d, MOST_SD))


def _checked(counts: PairCounts, level: Scalar) -> tuple[Int[Array, ""], Strata, Float[Array, ""]]:
    """Status; a_only, b_only, n of the strata as floats (one pair that agrees where there is no answer); difference."""
    both, a_only, b_only, neither = (jnp.asarray(x, jnp.result_type(float)) for x in counts)
    n = both + a_only + b_only + neither
    bad = jnp.stack([cannot_be(k, n, level) for k in (both, a_only, b_only, neither)]).any()
    bad = bad | (n.sum() > 1 / jnp.finfo(n.dtype).eps)
    status = status_of((bad, Status.BAD_INPUT), (n.sum() == 0, Status.NO_DATA))
    ok = status == Status.OK.code
    a_only, b_only, n = jnp.where(ok, a_only, 0.0), jnp.where(ok, b_only, 0.0), jnp.where(ok, n, 1.0)
    return status, (a_only, b_only, n), (a_only - b_only).sum() / n.sum()


def _as_stratum(counts: PairCounts) -> PairCounts:
    """One cell's counts as arrays of one stratum."""
    both, a_only, b_only, neither = (jnp.asarray(x)[None] for x in counts)
    return PairCounts(both, a_only, b_only, neither)


def _discordant(counts: PairCounts) -> tuple[Int[Array, ""], Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """Status; discordant pairs, the fewer of their two kinds; whether there is an answer."""
    status, (a_only, b_only, _), _ = _checked(_as_stratum(counts), 0.95)
    ok = status == Status.OK.code
    m, k = (a_only + b_only)[0], jnp.minimum(a_only, b_only)[0]
    return jnp.where(ok & (m == 0), Status.NO_DISCORDANT.code, status), m, k, ok
