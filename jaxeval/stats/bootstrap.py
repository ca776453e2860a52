"""The bootstrap: how a statistic would vary had other observations been drawn, estimated by resampling those at hand.

A resample is a vector of integer weights (how often each observation was drawn), never a gather of indices. Resample r
depends on the key and on r alone (for pairs, on the number of resamples too): the same key gives the same weights on
every device, in chunks of any size, under vmap or not. Random integers meet integers only.

``paired_bootstrap`` is for the 2x2 table of matched pairs. Everything else is a statistic of weights, a ``Resampling``
that draws them (``independent``, ``stratified``, ``nested``, ``crossed``), and ``bootstrap`` or ``bootstrap_bca``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, Shaped, UInt

from jaxeval.stats.estimate import Estimate, PairCounts, Scalar, Status, is_level, status_of

BLOCK = 256
"""Pairs whose summed outcome is drawn at once: a bound on memory, of no effect on the draws' distribution."""
MOST_PAIRS = 2**23
"""Pairs that are drawn: as many as float32 counts everywhere else, and few enough for the sums of 32-bit integers."""


# ------------------------------------------------------------------------------------------------- matched pairs


@partial(jax.jit, static_argnames=("resamples_n",))
def paired_bootstrap(
    key: PRNGKeyArray, counts: PairCounts, *, resamples_n: int = 20_000, level: Scalar = 0.95
) -> Estimate:
    """Percentile bootstrap interval of p_a - p_b over matched pairs, by drawing the 2x2 table.

    value = (a_only - b_only) / n; a resample draws n pairs with replacement from the n observed. In [-1, 1], positive
    when a is better. Quantiles interpolate linearly between order statistics (numpy's default, Hyndman and Fan's 7).

    Undefined with no pair (NO_DATA), and for counts that are negative or not whole, for more than 2^23 pairs or a level
    outside (0, 1) (BAD_INPUT). The bootstrap cannot vary what did not vary: with no discordant pair both ends are 0
    (NO_DISCORDANT), with every pair won by one side they are that one point (CONSTANT, as wherever the ends meet). Both
    are warnings not to use it: take ``paired.tango``. Coverage of 95 % intervals of 100 pairs is .936 to .969 where 4
    to 40 discordant pairs are expected, and falls to 0 with them, as sets without any get common (.63 where one is
    expected). It also fails where one side wins nearly every pair: .18, .40, .86 for 10, 25, 100 pairs at shares .98
    and .005 (docs/coverage.md).

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3. Oracle: the exact distribution
    by enumeration; scipy.stats.bootstrap.

    >>> e = paired_bootstrap(jax.random.key(0), PairCounts(42, 42, 11, 5))
    >>> f"{e.value:.2f} [{e.low:.2f}, {e.high:.2f}]"
    '0.31 [0.18, 0.44]'
    """
    cells = jnp.stack([jnp.asarray(c, jnp.result_type(float)) for c in counts])
    bad = ~jnp.all(jnp.isfinite(cells) & (cells >= 0) & (cells == jnp.round(cells)))
    bad = bad | (jnp.sum(cells) > MOST_PAIRS) | ~is_level(level)
    _, a, b, _ = whole = jnp.where(bad, 0, cells).astype(jnp.int32)
    n = jnp.sum(whole)
    won = _paired_draws(key, a, b, n, resamples_n=resamples_n)
    scale = jnp.maximum(n, 1).astype(cells.dtype)
    low, high = _quantiles(jnp.sort(won), _tails(level))  # integers sort four times as fast as floats
    status = status_of(
        (bad, Status.BAD_INPUT),
        (n == 0, Status.NO_DATA),
        (a + b == 0, Status.NO_DISCORDANT),
        ((a == n) | (b == n) | (low == high), Status.CONSTANT),
    )
    undefined = bad | (n == 0)
    value, low, high = (jnp.where(undefined, jnp.nan, x / scale) for x in (a - b, low, high))
    return Estimate(value, low, high, status)


def _paired_draws(
    key: PRNGKeyArray, a_only: Int[Array, ""], b_only: Int[Array, ""], n: Int[Array, ""], *, resamples_n: int
) -> Int[Array, " R"]:
    """a_only - b_only of each resample of n pairs: a sum of n draws of +1, -1 and 0.

    The sum over a block of at most BLOCK pairs is drawn by inverting its exact distribution function, held in units of
    2^-31 and computed in integers, so that every device draws the same. It is off by less than 4e-7.

    Resample r draws its first block from the r-th of resamples_n equal slices of [0, 1): up to BLOCK pairs, the ends of
    an interval then are those of the exact distribution, whatever the key. The order of the draws means nothing but
    this, so draws of two tables must not be combined one by one.
    """
    up, down = _share(a_only, n), _share(b_only, n)
    blocks_n = jnp.maximum(n - 1, 0) // BLOCK  # whole ones, after a first of n - blocks_n * BLOCK <= BLOCK pairs
    block, rest = (_sum_cdf(up, down, k) for k in (jnp.where(blocks_n > 0, BLOCK, 0), n - blocks_n * BLOCK))
    r = jnp.arange(resamples_n)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, r)

    def words(i: Int[Array, ""]) -> UInt[Array, " R"]:
        return jax.vmap(lambda k: jax.random.bits(jax.random.fold_in(k, i), (), jnp.uint32))(keys)

    def draw(cdf: UInt[Array, " J"], uniform: UInt[Array, " R"]) -> Int[Array, " R"]:
        return jnp.searchsorted(cdf, uniform, side="right").astype(jnp.int32) - BLOCK

    edges = (np.arange(resamples_n + 1, dtype=np.uint64) * 2**31 // resamples_n).astype(np.uint32)  # of the slices
    first = draw(rest, jnp.asarray(edges[:-1]) + _high_word(words(blocks_n), jnp.asarray(np.diff(edges))))
    return jax.lax.fori_loop(0, blocks_n, lambda i, won: won + draw(block, words(i) >> 1), first)


def _share(k: Int[Array, ""], n: Int[Array, ""]) -> UInt[Array, ""]:
    """floor(k / n * 2^31) by long division, as 64-bit integers may be off; 0 when n is 0."""
    n = jnp.maximum(n, 1).astype(jnp.uint32)
    k = k.astype(jnp.uint32)

    def bit(_: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
        quotient, left = carry[0] << 1, carry[1] << 1
        fits = (left >= n).astype(jnp.uint32)
        return quotient | fits, left - fits * n

    return jax.lax.fori_loop(0, 31, bit, (k // n, k % n))[0]


def _times(share: UInt[Array, ""], x: UInt[Array, " J"]) -> UInt[Array, " J"]:
    """floor(share * x / 2^31)."""
    return (_high_word(share, x) << 1) | (share * x >> 31)


def _sum_cdf(up: UInt[Array, ""], down: UInt[Array, ""], steps_n: Int[Array, ""]) -> UInt[Array, " J"]:
    """P(sum <= x), x = -BLOCK .. BLOCK - 1, of steps_n draws of +1, -1, 0; in units of 2^-31.

    Rounding keeps it monotone, as each of three terms is rounded for itself, and 0 and 1 exact.
    """
    one = jnp.uint32(2**31)
    stay = one - up - down
    start = jnp.where(jnp.arange(-BLOCK, BLOCK) >= 0, one, jnp.uint32(0))

    def step(_: Int[Array, ""], cdf: UInt[Array, " J"]) -> UInt[Array, " J"]:
        wide = jnp.concatenate([jnp.zeros(1, jnp.uint32), cdf, one[None]])
        return _times(up, wide[:-2]) + _times(stay, cdf) + _times(down, wide[2:])

    return jax.lax.fori_loop(0, steps_n, step, start)


# ------------------------------------------------------------------------------------------------ drawing weights


class Resampling(NamedTuple):
    """How observations are drawn again.

    ``draw(key)`` gives the weights of one resample, ``whole`` those of the data themselves (1 where an observation
    counts), ``status`` says whether drawing again can show all the variation there is.
    """

    draw: Callable[[PRNGKeyArray], Int[Array, " N"]]
    whole: Int[Array, " N"]
    status: Int[Array, ""]


class _Units(NamedTuple):
    """The units of one level: their number for each observation, and whom each may be replaced by."""

    number: Int[Array, " N"]  # of the unit that each observation belongs to
    exists: Bool[Array, " N"]  # units are numbered from 0; the rest of N places are empty
    first: Int[Array, " N"]  # the unit's siblings are numbered first .. first + size - 1
    size: Int[Array, " N"]


def independent(valid: Bool[Array, " N"]) -> Resampling:
    """Observations drawn one by one with replacement. NOT_ENOUGH with fewer than two."""
    return nested(jnp.arange(valid.shape[0]), valid=valid)


def stratified(stratum: Int[Array, " N"], *, valid: Bool[Array, " N"]) -> Resampling:
    """Observations drawn within their stratum (a task), as many as it has. NOT_ENOUGH when a stratum has only one."""
    return nested(jnp.arange(valid.shape[0]), valid=valid, within=stratum)


def nested(*levels: Int[Array, " N"], valid: Bool[Array, " N"], within: Int[Array, " N"] | None = None) -> Resampling:
    """Hierarchical: ids of levels from the top (training seed, initial condition, episode), each inside the one before.

    Every level's units are drawn with replacement among those of the same parent, and an observation's weight is the
    product over levels. Ids need be unique inside their parent only. ``within`` (a task) is kept as it is. Weights of a
    resample do not sum to the number of observations where groups differ in size: divide by their sum.

    Which levels? ``nested(seed)`` keeps each seed's episodes together and is right for the question "another seed".
    Further levels make the interval wider than it need be: L levels by up to sqrt(2^L - 1), where upper units do not
    differ.

    NOT_ENOUGH when there is only one unit at the top (one seed, however many episodes): nothing then tells how seeds
    vary, and an interval over episodes alone would be of that seed only (ask for it by leaving the level out).
    With K units at the top the interval is too narrow by about sqrt((K - 1) / K) and by the missing tail of
    Student's t: with 3 seeds a 95 % percentile interval covers about 75 %, with 5 about 84 %, with 10 about 90 %.
    Below ten seeds show every seed's value, or use mean ± t * s / sqrt(K) over the seeds' means with K - 1 degrees.

    Source: Davison and Hinkley, Bootstrap Methods and their Application (1997), section 3.8; product weights: Owen and
    Eckles, Annals of Applied Statistics 6 (2012), 895-927.
    """
    top = jnp.zeros_like(levels[0]) if within is None else within
    table, parent = [], top
    for ids in levels:
        table.append(_units(parent, ids, valid))
        parent = table[-1].number
    return _product(table, valid, alone=jnp.any(table[0].exists & (table[0].size < 2)))


def crossed(*levels: Int[Array, " N"], valid: Bool[Array, " N"]) -> Resampling:
    """Levels that meet in every combination, such as training seed and initial condition: each drawn for itself.

    An observation's weight is the product of its units' weights (Owen, The pigeonhole bootstrap, Annals of Applied
    Statistics 1 (2007), 386-411). The interval is not too narrow for any level but for few units, as in ``nested``;
    where none matters it is wider than it need be, by up to sqrt(2^L - 1). NOT_ENOUGH when a level has one unit.
    """
    table = [_units(jnp.zeros_like(ids), ids, valid) for ids in levels]
    return _product(table, valid, alone=jnp.any(jnp.stack([jnp.any(u.exists & (u.size < 2)) for u in table])))


def _units(parent: Int[Array, " N"], ids: Int[Array, " N"], valid: Bool[Array, " N"]) -> _Units:
    """Units are the distinct (parent, id) of valid observations, numbered in sorted order."""
    n = ids.shape[0]
    order = jnp.lexsort((ids, parent, ~valid))
    counts, parents, ids = valid[order], parent[order], ids[order]
    start = jnp.ones(min(n, 1), bool)
    new_parent = jnp.concatenate([start, parents[1:] != parents[:-1]])
    number = jnp.cumsum(counts & (new_parent | jnp.concatenate([start, ids[1:] != ids[:-1]])), dtype=jnp.int32) - 1
    family = jnp.cumsum(counts & new_parent, dtype=jnp.int32) - 1
    number, family = jnp.maximum(number, 0), jnp.maximum(family, 0)
    # Invalid observations come last in the order and share the last number: they add nothing and receive no weight.
    unit_family = jnp.zeros(n, jnp.int32).at[number].max(family)
    exists = jnp.zeros(n, bool).at[number].max(counts)
    size = jnp.zeros(n, jnp.int32).at[unit_family].add(exists.astype(jnp.int32))
    first = jnp.cumsum(size, dtype=jnp.int32) - size
    own = jnp.zeros(n, jnp.int32).at[order].set(number)
    return _Units(own, exists, first[unit_family], size[unit_family])


def _product(table: list[_Units], valid: Bool[Array, " N"], *, alone: Bool[Array, ""]) -> Resampling:
    """Weights that are products over levels."""

    def level(key: PRNGKeyArray, units: _Units) -> Int[Array, " N"]:
        words = jax.random.bits(key, units.size.shape, jnp.uint32)
        drawn = units.first + _high_word(words, units.size.astype(jnp.uint32)).astype(jnp.int32)
        times = jnp.zeros_like(units.size).at[drawn].add(units.exists.astype(jnp.int32))
        return times[units.number]

    def draw(key: PRNGKeyArray) -> Int[Array, " N"]:
        weights = valid.astype(jnp.int32)
        for i, units in enumerate(table):
            weights = weights * level(jax.random.fold_in(key, i), units)
        return weights

    status = status_of((~jnp.any(valid), Status.NO_DATA), (alone, Status.NOT_ENOUGH))
    return Resampling(draw, valid.astype(jnp.int32), status)


def _high_word(x: UInt[Array, "..."], y: UInt[Array, "..."]) -> UInt[Array, "..."]:
    """floor(x * y / 2^32) of 32-bit words. With random x it is a uniform draw below y, off by less than y / 2^32."""
    x_high, x_low, y_high, y_low = x >> 16, x & 0xFFFF, y >> 16, y & 0xFFFF
    outer, inner = x_high * y_low, x_low * y_high
    carry = (x_low * y_low >> 16) + (outer & 0xFFFF) + (inner & 0xFFFF)
    return x_high * y_high + (outer >> 16) + (inner >> 16) + (carry >> 16)


# --------------------------------------------------------------------------------------------------- the bootstrap


def bootstrap(
    key: PRNGKeyArray,
    statistic: Callable[[Int[Array, " N"]], Float[Array, "..."]],
    resampling: Resampling,
    *,
    resamples_n: int = 10_000,
    chunk_n: int = 1000,
    level: Scalar = 0.95,
) -> Estimate:
    """Percentile bootstrap interval of any statistic of weights; fields have the statistic's shape.

    value = statistic(whole). Undefined with no data (NO_DATA), where the statistic is not finite on the data
    (DEGENERATE) and for a level outside (0, 1) (BAD_INPUT). The value stands but the interval is NaN when the top of
    the hierarchy has a single unit (NOT_ENOUGH) and when the statistic is NaN in any resample (DEGENERATE: leaving
    those resamples out would bend the interval; count them in ``draws``). When no resample differs from the value, but
    for rounding, or too few do, the interval has no width, which says nothing about how sure it is (CONSTANT, a
    warning).

    Too narrow for small n: for a mean of n independent values it covers about what mean ± 1.96 s sqrt(n - 1) / n does.
    Source: Efron and Tibshirani (1993), section 13.3. Oracle: scipy.stats.bootstrap.

    >>> x, valid = jnp.array([1.0, 2.0, 4.0, 8.0]), jnp.full(4, True)
    >>> mean = lambda w: jnp.sum(w * x) / jnp.sum(w)
    >>> e = jax.jit(lambda key: bootstrap(key, mean, independent(valid), resamples_n=1000))(jax.random.key(0))
    >>> float(e.value), float(e.low) > 1.0, float(e.high) < 8.0
    (3.75, True, True)
    """
    drawn = draws(key, statistic, resampling.draw, resamples_n=resamples_n, chunk_n=chunk_n)
    return _estimate(statistic(resampling.whole), drawn, percentile(drawn, level=level), resampling.status, level)


def bootstrap_bca(
    key: PRNGKeyArray,
    statistic: Callable[[Int[Array, " N"]], Float[Array, ""]],
    valid: Bool[Array, " N"],
    *,
    resamples_n: int = 10_000,
    chunk_n: int = 1000,
    level: Scalar = 0.95,
) -> Estimate:
    """Bias-corrected and accelerated interval of a scalar statistic of independent observations; see ``bca_constants``.

    Closer to its level than the percentile interval when the statistic is biased or skewed, for about the same work.
    Statuses as in ``bootstrap``; DEGENERATE too when every draw lies on one side of the value, or when leaving out
    single observations does not move the statistic although resamples do.

    Source: Efron, JASA 82 (1987), 171-185; Efron and Tibshirani (1993), section 14.3. Oracle: scipy.stats.bootstrap.

    >>> x, valid = jnp.array([1.0, 2.0, 4.0, 8.0]), jnp.full(4, True)
    >>> mean = lambda w: jnp.sum(w * x) / jnp.sum(w)
    >>> e = jax.jit(lambda key: bootstrap_bca(key, mean, valid, resamples_n=1000))(jax.random.key(0))
    >>> float(e.value), float(e.low) > 1.0, float(e.high) < 8.0
    (3.75, True, True)
    """
    resampling = independent(valid)
    value = statistic(resampling.whole)
    drawn = draws(key, statistic, resampling.draw, resamples_n=resamples_n, chunk_n=chunk_n)
    left_out = jax.lax.map(
        lambda i: statistic(resampling.whole.at[i].set(0)), jnp.arange(valid.shape[0]), batch_size=chunk_n
    )
    interval = bca(drawn, value, left_out, valid=valid, level=level)
    return _estimate(value, drawn, interval, resampling.status, level)


def draws(
    key: PRNGKeyArray,
    statistic: Callable[[Int[Array, " N"]], Shaped[Array, "..."]],
    draw: Callable[[PRNGKeyArray], Int[Array, " N"]],
    *,
    resamples_n: int,
    chunk_n: int = 1000,
) -> Shaped[Array, "R ..."]:
    """statistic(draw(key of resample r)) for r = 0 .. resamples_n - 1, at most chunk_n at a time in memory."""

    def one(r: Int[Array, ""]) -> Shaped[Array, "..."]:
        return statistic(draw(jax.random.fold_in(key, r)))

    return jax.lax.map(one, jnp.arange(resamples_n), batch_size=chunk_n)


def _estimate(
    value: Float[Array, "..."],
    drawn: Float[Array, "R ..."],
    interval: tuple[Float[Array, "..."], Float[Array, "..."]],
    resampled: Int[Array, ""],
    level: Scalar,
) -> Estimate:
    """The value with the interval of its draws and the status, element by element."""
    no_data, not_enough = resampled == Status.NO_DATA.code, resampled == Status.NOT_ENOUGH.code

    def element(value: Array, drawn: Array, low: Array, high: Array) -> Estimate:
        constant = jnp.all(same(drawn, value))
        low, high = (jnp.where(constant, value, x) for x in (low, high))
        constant = constant | (low == high)
        undefined = no_data | ~jnp.isfinite(value) | ~is_level(level)
        unknown = undefined | not_enough | ~jnp.isfinite(low) | ~jnp.isfinite(high)
        status = status_of(
            (~is_level(level), Status.BAD_INPUT),
            (no_data, Status.NO_DATA),
            (~jnp.isfinite(value), Status.DEGENERATE),
            (not_enough, Status.NOT_ENOUGH),
            (unknown, Status.DEGENERATE),
            (constant, Status.CONSTANT),
        )
        low, high = (jnp.where(unknown, jnp.nan, x) for x in (low, high))
        return Estimate(jnp.where(undefined, jnp.nan, value), low, high, status)

    flat = jax.vmap(element, (0, 1, 0, 0))(
        value.reshape(-1), drawn.reshape(drawn.shape[0], -1), *(x.reshape(-1) for x in interval)
    )
    return Estimate(*(x.reshape(value.shape) for x in flat))


# ------------------------------------------------------------------------------------------- intervals from draws


def percentile(
    draws: Float[Array, "R ..."], *, level: Scalar = 0.95
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Quantiles (1 - level) / 2 and (1 + level) / 2 of the draws, interpolated linearly; NaN where any draw is NaN."""
    draws = jnp.sort(draws, axis=0)
    low, high = jnp.where(jnp.isnan(draws[-1])[None], jnp.nan, _quantiles(draws, _tails(level)))  # NaN sorts last
    return low, high


def _tails(level: Scalar) -> Float[Array, "2"]:
    tail = (1 - jnp.asarray(level, jnp.result_type(float))) / 2
    return jnp.stack([tail, 1 - tail])


def _quantiles(ordered: Num[Array, "R ..."], share: Float[Array, " Q"]) -> Float[Array, "Q ..."]:
    """Linear between order statistics: quantile p lies at (R - 1) p, counted from 0."""
    place = jnp.clip(share, 0, 1) * (ordered.shape[0] - 1)
    below = jnp.floor(place).astype(jnp.int32)
    lower, upper = ordered[below], ordered[jnp.minimum(below + 1, ordered.shape[0] - 1)]
    return lower + (place - below).reshape(-1, *[1] * (ordered.ndim - 1)) * (upper - lower)


def bca(
    draws: Float[Array, " R"],
    value: Float[Array, ""],
    left_out: Float[Array, " N"],
    *,
    valid: Bool[Array, " N"],
    level: Scalar = 0.95,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Quantiles of the draws at Phi(z0 + (z0 + z) / (1 - a (z0 + z))), z = ∓Phi^-1((1 + level) / 2).

    NaN where z0 or a is.
    """
    bias, acceleration = bca_constants(draws, value, left_out, valid=valid)
    z = ndtri((1 + jnp.asarray(level, draws.dtype)) / 2)
    z = bias + jnp.stack([-z, z])
    share = ndtr(bias + z / (1 - acceleration * z))
    defined = jnp.isfinite(bias) & jnp.isfinite(acceleration) & ~jnp.any(jnp.isnan(draws))
    low, high = jnp.where(defined, _quantiles(jnp.sort(draws), jnp.where(defined, share, 0)), jnp.nan)
    return low, high


def bca_constants(
    draws: Float[Array, " R"], value: Float[Array, ""], left_out: Float[Array, " N"], *, valid: Bool[Array, " N"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Bias z0 and acceleration a of BCa, from draws and leave-one-out values.

    z0 = Phi^-1(share of draws below the value, ties counted half); a = sum d^3 / (6 (sum d^2)^1.5), d = mean - value
    left out. z0 is infinite when all draws lie on one side; a is NaN when no single observation matters.
    Source: Efron and Tibshirani (1993), equations 14.14 and 14.15.
    """
    bias = ndtri(jnp.mean((draws < value) + 0.5 * (draws == value)))
    mean = jnp.sum(left_out, where=valid) / jnp.sum(valid)
    d = jnp.where(valid, mean - left_out, 0)
    d = d / jnp.max(jnp.abs(d))  # a does not depend on the scale, and cubes of small numbers underflow
    return bias, jnp.sum(d**3) / (6 * jnp.sum(d**2) ** 1.5)


def same(drawn: Float[Array, " R"], value: Float[Array, ""]) -> Bool[Array, " R"]:
    """Which draws are the value, but for what rounding of a sum in another order may change."""
    return jnp.abs(drawn - value) <= 4 * jnp.finfo(value.dtype).eps * jnp.abs(value)
