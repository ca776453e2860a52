"""Which of two policies succeeds more often on the same starts, looked at after every pair and stopped at any time.

Only discordant pairs tell. If neither policy is better, each is a fair coin, and whoever bets on it at fair odds, each
stake fixed before its pair is seen, cannot expect to gain: by Ville's inequality the wealth ever reaches 1 / alpha with
probability alpha at most, however often one looks and whenever one stops. The bet here is the running share of
discordant pairs won, (1 + wins) / (2 + discordant pairs): after A wins of a and B of b the wealth is

    E = 2^(A + B) Beta(1 + A, 1 + B),

the likelihood ratio of "some share, uniform on [0, 1]" to "one half". E is an e-value: its mean is at most 1 if neither
is better, 20 is evidence at the 5 % level, min(1, 1 / E) is a p-value. The order of the starts must be fixed
without knowledge of the outcomes.

Source: Robbins, Annals of Mathematical Statistics 41 (1970), 1397-1409 (mixtures, confidence sequences); Ville (1939);
Ramdas, Gruenwald, Vovk, Shafer, Statistical Science 38 (2023), 576-601 (testing by betting).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlog1py, xlogy
from jaxtyping import Array, Bool, Float, Int

from jaxeval.stats.estimate import Estimate, PairCounts, Scalar, Status, is_level, status_of


class Evidence(NamedTuple):
    """Evidence against "neither is better": the natural logarithm of the e-value, and a status. NaN where undefined."""

    log_e: Float[Array, ""]
    status: Int[Array, ""]


class Watch(NamedTuple):
    """A comparison watched pair by pair."""

    log_e: Float[Array, " T"]  # after each pair
    stop: Int[Array, ""]  # index of the pair after which the evidence suffices, -1 if never
    pairs_n: Int[Array, ""]  # valid pairs up to there, or all
    winner: Int[Array, ""]  # 1: a, -1: b, 0: not decided
    status: Int[Array, ""]


def evidence(counts: PairCounts) -> Evidence:
    """log E of the counts so far, in nats; positive speaks against "neither is better", log(1 / alpha) is significant.

    log E = (A + B) log 2 + log Beta(1 + A, 1 + B), A = a_only, B = b_only. Two-sided: swapping a and b changes nothing.
    0 with no discordant pair (NO_DISCORDANT, a warning); undefined with no pair (NO_DATA) and for counts that are
    negative, not whole or more than 1 / eps of the float in use (BAD_INPUT). Oracle: scipy.special.betaln, and the
    running product of ``watch``.

    >>> e = evidence(PairCounts(42, 42, 11, 5))
    >>> print(f"{jnp.exp(e.log_e):.0f}")
    2188
    """
    a, b, bad, status = _discordant(counts)
    lead = (a - b) / jnp.maximum(a + b, 1)
    log_e = xlog1py(a, lead) + xlog1py(b, -lead) + _log_beta_rest(a, b)
    undefined = (status == Status.NO_DATA.code) | bad
    return Evidence(jnp.where(undefined, jnp.nan, log_e), status)


def watch(a: Bool[Array, " T"], b: Bool[Array, " T"], valid: Bool[Array, " T"], *, level: Scalar = 0.95) -> Watch:
    """The evidence after each pair, and where to stop: the first pair with E >= 1 / (1 - level).

    a[t] and b[t] are the outcomes on start t; invalid pairs are passed over. When neither is better the probability to
    stop at all is at most 1 - level, for any number of pairs; over 400 pairs at 95 % it is .01 to .03.

    NO_DATA with no valid pair; NO_DISCORDANT (a warning) when no pair differs; BAD_INPUT for a level outside (0, 1).
    Oracle: ``evidence`` of the counts so far.

    >>> w = watch(jnp.full(12, True), jnp.full(12, False), jnp.full(12, True))
    >>> int(w.stop), int(w.pairs_n), int(w.winner)
    (7, 8, 1)
    """
    dtype = jnp.result_type(float)
    won = jnp.stack([valid & a & ~b, valid & b & ~a]).astype(dtype)
    before = jnp.cumsum(won, axis=1) - won
    stake = (1 + jnp.sum(won * before, axis=0)) / (2 + jnp.sum(before, axis=0))  # on the side that then won
    differs = jnp.sum(won, axis=0) > 0
    log_e = jnp.cumsum(jnp.where(differs, jnp.log(2 * stake), 0))

    known = is_level(level)
    enough = valid & (log_e >= -jnp.log1p(-jnp.asarray(level, dtype))) & known
    stopped = jnp.any(enough)
    stop = jnp.where(stopped, jnp.argmax(enough), -1).astype(jnp.int32)
    seen = valid & ((jnp.arange(valid.shape[0]) <= stop) | ~stopped)
    lead = jnp.sign(jnp.sum(jnp.where(seen, won[0] - won[1], 0))).astype(jnp.int32)
    status = status_of(
        (~known, Status.BAD_INPUT), (~jnp.any(valid), Status.NO_DATA), (~jnp.any(differs), Status.NO_DISCORDANT)
    )
    pairs_n = jnp.sum(seen, dtype=jnp.int32)
    undefined = ~known | ~jnp.any(valid)
    return Watch(jnp.where(undefined, jnp.nan, log_e), stop, pairs_n, jnp.where(stopped, lead, 0), status)


def share_of_discordant(counts: PairCounts, *, level: Scalar = 0.95) -> Estimate:
    """Share of discordant pairs that a won, A / (A + B), with an interval that holds at every look at once.

    In [0, 1]; 1/2 means that neither is better, and is outside the interval exactly when E >= 1 / (1 - level). The
    interval holds every share q that the bet did not refute, q^A (1 - q)^B > (1 - level) Beta(1 + A, 1 + B). The
    probability that it misses the true share at any look, ever, is at most 1 - level (Robbins 1970).

    With no discordant pair the value is NaN and the interval [0, 1] (NO_DISCORDANT); undefined as in ``evidence`` and
    for a level outside (0, 1) (BAD_INPUT). Oracle: scipy.optimize.brentq on the inequality.

    >>> e = share_of_discordant(PairCounts(42, 42, 11, 5))
    >>> print(f"{e.value:.2f} [{e.low:.2f}, {e.high:.2f}]")
    0.79 [0.59, 0.93]
    """
    a, b, bad, status = _discordant(counts)
    known = is_level(level)
    status = jnp.where(known, status, jnp.int32(Status.BAD_INPUT.code))
    bound = jnp.log1p(-jnp.asarray(level, a.dtype)) + _log_beta_rest(a, b)
    n = jnp.maximum(a + b, 1)
    value = a / n

    def refuted(q: Float[Array, ""]) -> Bool[Array, ""]:
        return xlogy(a, q * n / jnp.maximum(a, 1)) + xlogy(b, (1 - q) * n / jnp.maximum(b, 1)) <= bound

    low = jnp.where(a == 0, 0, _edge(refuted, jnp.zeros_like(value), value))
    high = jnp.where(b == 0, 1, _edge(refuted, jnp.ones_like(value), value))
    undefined = (status == Status.NO_DATA.code) | bad | ~known
    value = jnp.where(a + b == 0, jnp.nan, value)
    value, low, high = (jnp.where(undefined, jnp.nan, x) for x in (value, low, high))
    return Estimate(value, low, high, status)


def _log_beta_rest(a: Float[Array, ""], b: Float[Array, ""]) -> Float[Array, ""]:
    """log Beta(1 + a, 1 + b) less its large part, a log(a / (a + b)) + b log(b / (a + b)), which would cancel."""
    return _log_factorial_rest(a) + _log_factorial_rest(b) - _log_factorial_rest(a + b) - jnp.log1p(a + b)


SMALL_N = 16
SMALL = np.array([math.lgamma(1 + x) - x * math.log(max(x, 1)) + x for x in range(SMALL_N)])


def _log_factorial_rest(x: Float[Array, ""]) -> Float[Array, ""]:
    """log x! - (x log x - x) for whole x: a table, then Stirling's series, off by less than 1e-12."""
    large = jnp.maximum(x, SMALL_N)
    series = jnp.log(2 * jnp.pi * large) / 2 + 1 / (12 * large) - 1 / (360 * large**3) + 1 / (1260 * large**5)
    table = jnp.asarray(SMALL, x.dtype)[jnp.minimum(x, SMALL_N - 1).astype(jnp.int32)]
    return jnp.where(x < SMALL_N, table, series)


def _edge(refuted: Callable[[Array], Array], outside: Float[Array, ""], inside: Float[Array, ""]) -> Float[Array, ""]:
    """Where q stops being refuted on the way from outside to inside, by bisection."""

    def halve(_: Int[Array, ""], ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        out = refuted(middle)
        return jnp.where(out, middle, ends[0]), jnp.where(out, ends[1], middle)

    return jax.lax.fori_loop(0, 60, halve, (outside, inside))[0]


def _discordant(
    counts: PairCounts,
) -> tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""], Int[Array, ""]]:
    """a_only, b_only, whether counts cannot be, and the status."""
    cells = jnp.stack([jnp.asarray(c, jnp.result_type(float)) for c in counts])
    bad = ~jnp.all(jnp.isfinite(cells) & (cells >= 0) & (cells == jnp.round(cells)))
    bad = bad | (jnp.sum(cells) > 1 / jnp.finfo(cells.dtype).eps)
    _, a, b, _ = cells = jnp.where(bad, 0, cells)
    status = status_of(
        (bad, Status.BAD_INPUT), (jnp.sum(cells) == 0, Status.NO_DATA), (a + b == 0, Status.NO_DISCORDANT)
    )
    return a, b, bad, status
