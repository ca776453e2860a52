"""SPARC, the spectral arc length of a speed profile, and the clock of a trajectory that it stands on.

V_k   = sum_n v_n exp(-2 pi i k n / K),  K = 2^(ceil(log2 N) + padlevel)         spectrum of N speeds, zero-padded
M_k   = |V_k| / |V_0|,  f_k = k f_s / K <= min(cutoff, f_s / 2)                   (v >= 0, so |V_0| is the largest)
e     = the last k with M_k >= amplitude
SPARC = -sum_{k < e} sqrt((1 / e)^2 + (M_{k+1} - M_k)^2)                          at most -1; nearer to -1: smoother
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval.linalg import divisor, safe_sqrt
from jaxeval.metrics.status import Status

# -------------------------------------------------------------------------------------------------------- time base


class TimeBase(NamedTuple):
    """The clock of the valid frames: first and last of them, how many, and the steps between them in seconds."""

    first: Int[Array, ""]
    last: Int[Array, ""]
    n: Int[Array, ""]
    step_s: Float[Array, ""]  # mean
    typical_s: Float[Array, ""]  # geometric mean: one long step hardly moves it, and it needs no sorting
    longest_s: Float[Array, ""]
    unbroken: Bool[Array, ""]  # no invalid frame between valid ones
    forward: Bool[Array, ""]  # every step is positive


def time_base(time_s: Float[Array, " T"], valid: Bool[Array, " T"]) -> TimeBase:
    """Clock of the valid frames. Steps are taken between frames that are both valid and adjacent."""
    frame = jnp.arange(time_s.shape[0], dtype=jnp.int32)
    n = jnp.sum(valid, dtype=jnp.int32)
    first = jnp.min(jnp.where(valid, frame, frame.shape[0] - 1))
    last = jnp.max(jnp.where(valid, frame, 0))
    _, step, adjacent = steps_between(time_s[:, None], time_s, valid)
    count = jnp.maximum(jnp.sum(adjacent), 1).astype(time_s.dtype)
    typical = jnp.exp(jnp.sum(jnp.where(step > 0, jnp.log(divisor(step)), 0.0)) / count)
    span = jnp.where(n > 0, time_s[last] - time_s[first], 0.0)
    return TimeBase(
        first=first,
        last=last,
        n=n,
        step_s=jax.lax.stop_gradient(span / jnp.maximum(n - 1, 1).astype(time_s.dtype)),
        typical_s=typical,
        longest_s=jnp.max(step, initial=0.0),
        unbroken=last - first + 1 == n,
        forward=jnp.all((step > 0) | ~adjacent),
    )


def steps_between(
    x: Float[Array, "T D"], time_s: Float[Array, " T"], valid: Bool[Array, " T"]
) -> tuple[Float[Array, "S D"], Float[Array, " S"], Bool[Array, " S"]]:
    """(change, seconds, both ends valid) of each of the T - 1 steps; zeros where an end is not valid."""
    both = valid[1:] & valid[:-1]
    x, time_s = jnp.where(valid[:, None], x, 0.0), jnp.where(valid, time_s, 0.0)
    return jnp.where(both[:, None], jnp.diff(x, axis=0), 0.0), jnp.where(both, jnp.diff(time_s), 0.0), both


# ------------------------------------------------------------------------------------------------------------- SPARC


class Sparc(NamedTuple):
    """``value``: at most -1, NaN where ``status`` is not 0. ``rate_hz``: mean sampling rate of the valid frames.

    ``end_hz``: frequency of the last bin that counted. Where it lies at half the rate (or at the cutoff), sampling (or
    the cutoff), and not the motion, ended the spectrum: values then depend on the rate, as those of noise do.
    """

    value: Float[Array, ""]
    status: Int[Array, ""]
    rate_hz: Float[Array, ""]
    end_hz: Float[Array, ""]


def sparc(
    speed: Float[Array, " T"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    *,
    cutoff_hz: float | Float[Array, ""] = 10.0,
    amplitude: float | Float[Array, ""] = 0.05,
    padlevel: int = 4,
    rate_min_hz: float | Float[Array, ""] = 6.0,
    gap_steps: float | Float[Array, ""] = 2.5,
    still: float | Float[Array, ""] = 1e-3,
) -> Sparc:
    """Spectral arc length of a speed profile: dimensionless, at most -1, higher is smoother.

    The formula is the module's. ``speed`` >= 0 in any unit (``still`` in the same one); unchanged when speeds are
    multiplied by a constant. The band ends at half the rate, which common implementations step over below 20 Hz. Uneven
    stamps without gaps are brought to an even grid of as many samples by linear interpolation: at 50 Hz with a tenth of
    the frames dropped the median error is 0.1 % (0.7 % if taken for even), with a drifting clock 0.01 % (1.5 %). A gap
    is an invalid frame between valid ones, or a step that is longer than ``gap_steps`` typical steps and than half a
    period of the cutoff (samples closer than that leave nothing of the band unseen).

    Undefined (NaN, ``status``): no motion, fewer than two frames, gaps, ``rate_min_hz`` not met, stamps that repeat or
    run backward, bad input. Source: Balasubramanian et al. 2015, J NeuroEng Rehabil 12:112. Golden:
    tests/golden/sparc_reference.json; oracle: tests/oracles/smoothness_numpy.py.

    >>> t = jnp.arange(101) / 100
    >>> out = jax.jit(sparc)(30 * t**2 - 60 * t**3 + 30 * t**4, t, jnp.ones(101, bool))
    >>> print(f"{out.value:.4f} {Status(int(out.status)).sentence}")
    -1.4058 ok
    """
    clock = time_base(time_s, valid)
    return _arc_length(
        *_even_samples(speed, time_s, valid, clock),
        clock,
        speed,
        time_s,
        valid,
        cutoff_hz=cutoff_hz,
        amplitude=amplitude,
        padlevel=padlevel,
        rate_min_hz=rate_min_hz,
        gap_steps=gap_steps,
        still=still,
    )


def speed_spectrum(
    speed: Float[Array, " T"], time_s: Float[Array, " T"], valid: Bool[Array, " T"], *, padlevel: int = 4
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """(f_k in Hz, M_k): the normalised spectrum that :func:`sparc` takes the arc length of, to look at.

    From 0 to half the rate where the valid frames need as long a transform as all T do; from there on it repeats.
    0 everywhere without motion.
    """
    clock = time_base(time_s, valid)
    samples, doublings = _even_samples(speed, time_s, valid, clock)
    total = jnp.sum(samples)
    M = _magnitudes(samples, padlevel) / divisor(total)
    magnitude = jnp.append(M[:-1].T.reshape(-1), M[-1, -1])
    rate_hz = _rate_hz(clock)
    bin_hz = rate_hz / jnp.exp2((doublings + padlevel).astype(rate_hz.dtype))
    return jnp.arange(len(magnitude), dtype=rate_hz.dtype) * bin_hz, magnitude


def _arc_length(
    samples: Float[Array, " L"],
    doublings: Int[Array, ""],
    clock: TimeBase,
    speed: Float[Array, " T"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    *,
    cutoff_hz: float | Float[Array, ""],
    amplitude: float | Float[Array, ""],
    padlevel: int,
    rate_min_hz: float | Float[Array, ""],
    gap_steps: float | Float[Array, ""],
    still: float | Float[Array, ""],
    low: bool = False,
) -> Sparc:
    """Arc length of the spectrum of ``samples`` (as :func:`_even_samples` spreads them out), or why there is none.

    ``low``: no bin counts but those of :func:`_low_magnitudes`.
    """
    rate_hz = _rate_hz(clock)
    total = jnp.sum(samples)
    M = (_low_magnitudes if low else _magnitudes)(samples, padlevel) / divisor(total)
    bins_n = jnp.exp2((doublings + padlevel).astype(rate_hz.dtype))  # K
    R, H = M.shape[0] - 1, M.shape[1]
    k = jnp.arange(R + 1, dtype=jnp.int32)[:, None] + R * jnp.arange(H, dtype=jnp.int32)[None]
    limit = _limit(clock, doublings, cutoff_hz=cutoff_hz, padlevel=padlevel)
    counts = (k.astype(rate_hz.dtype) <= limit) & (amplitude <= M)
    e = jnp.max(jnp.where(counts, k, 0))
    width = 1.0 / jnp.maximum(e, 1).astype(rate_hz.dtype)
    arc = jnp.where(k[:-1] < e, jnp.sqrt(width**2 + (M[1:] - M[:-1]) ** 2), 0.0)
    value = -jnp.sum(jnp.sum(arc, axis=0))  # the rows first: on a CPU that sum is vectorised

    gap_s = jnp.maximum(gap_steps * clock.typical_s, 0.5 / cutoff_hz)
    status = first_true(
        (Status.BAD_FRAME, jnp.any(valid & ~(jnp.isfinite(speed) & jnp.isfinite(time_s) & (speed >= 0)))),
        (Status.TOO_SHORT, clock.n < 2),
        (Status.TIME, ~clock.forward),
        (Status.GAPS, ~clock.unbroken | (clock.longest_s > gap_s)),
        (Status.LOW_RATE, rate_hz < 0.999 * rate_min_hz),
        (Status.NO_MOTION, jnp.max(jnp.where(valid, speed, 0.0)) < still),
        (Status.TOO_SHORT, e == 0),
    )
    value = jnp.where(status == Status.OK, value, jnp.nan)
    return Sparc(value, status, rate_hz, e.astype(rate_hz.dtype) * rate_hz / bins_n)


def _rate_hz(clock: TimeBase) -> Float[Array, ""]:
    return 1.0 / divisor(clock.step_s)


def _limit(
    clock: TimeBase, doublings: Int[Array, ""], *, cutoff_hz: float | Float[Array, ""], padlevel: int
) -> Float[Array, ""]:
    """Bin at the cutoff or at half the rate, with a hundredth to spare so that rounding of the stamps moves no bin."""
    rate_hz = _rate_hz(clock)
    bins_n = jnp.exp2((doublings + padlevel).astype(rate_hz.dtype))
    return jnp.minimum(cutoff_hz / rate_hz, 0.5) * bins_n + 0.01


def first_true(*tests: tuple[int, Bool[Array, ""]]) -> Int[Array, ""]:
    """Code of the first test that holds, Status.OK if none does."""
    status = jnp.asarray(Status.OK, jnp.int32)
    for code, holds in reversed(tests):
        status = jnp.where(holds, code, status)
    return status


def _even_samples(
    speed: Float[Array, " T"], time_s: Float[Array, " T"], valid: Bool[Array, " T"], clock: TimeBase
) -> tuple[Float[Array, " L"], Int[Array, ""]]:
    """(N samples on an even grid, spread out over L = 2^ceil(log2 T) places; ceil(log2 N))."""
    x, time_s = _cleaned(speed, valid), _cleaned(time_s, valid)
    T = x.shape[0]
    frame = jnp.arange(T, dtype=jnp.int32)
    inside = (frame >= clock.first) & (frame <= clock.last)
    step_s = divisor(clock.step_s)
    after_s = time_s - time_s[clock.first]
    # frames at or before each instant of the grid: each frame counts from the instant that follows it on
    instant = jnp.clip(jnp.ceil(jax.lax.stop_gradient(after_s) / step_s), 0, T - 1).astype(jnp.int32)
    before = jnp.cumsum(jnp.zeros(T, jnp.int32).at[instant].add(inside.astype(jnp.int32)))
    left = clock.first + jnp.clip(before - 1, 0, jnp.maximum(clock.n - 2, 0))

    _, step, _ = steps_between(x[:, None], after_s, inside)
    slope = jnp.append(jnp.diff(x) / divisor(step), 0.0)
    place = _places(T, clock.n)
    line = jnp.stack([x, slope, after_s], axis=1)[left[place.sample]]
    value = line[:, 0] + line[:, 1] * (place.sample.astype(x.dtype) * clock.step_s - line[:, 2])
    return jnp.where(place.taken, value, 0.0), place.doublings


def _samples_as_they_are(
    speed: Float[Array, " T"], time_s: Float[Array, " T"], valid: Bool[Array, " T"], clock: TimeBase
) -> tuple[Float[Array, " L"], Int[Array, ""]]:
    """:func:`_even_samples` of a trajectory that :func:`_is_even` and fills its row: there is nothing to move."""
    T = speed.shape[0]
    L_log2 = _length_log2(T)
    return jnp.pad(_cleaned(speed, valid), (0, 2**L_log2 - T)), jnp.asarray(L_log2, jnp.int32)


def _is_even(time_s: Float[Array, " T"], valid: Bool[Array, " T"], clock: TimeBase) -> Bool[Array, ""]:
    """Whether every frame is valid and its stamp within a thousandth of a step of an even grid."""
    grid = (jnp.arange(time_s.shape[0], dtype=jnp.int32) - clock.first).astype(time_s.dtype) * clock.step_s
    off = jnp.abs(time_s - time_s[clock.first] - grid)
    return jnp.all((off < 1e-3 * clock.step_s) & valid)


def _cleaned(x: Float[Array, " T"], valid: Bool[Array, " T"]) -> Float[Array, " T"]:
    return jnp.where(valid & jnp.isfinite(x), x, 0.0)


class _Places(NamedTuple):
    """Which sample stands at each of L places, whether one does, and ceil(log2 N).

    Sample n stands at place n L / 2^ceil(log2 N), with zeros between: bin k of the transform of L places, padded
    R-fold, is then bin k of that of the N samples, padded R-fold from their own length. So a trajectory may be padded.
    """

    sample: Int[Array, " L"]
    taken: Bool[Array, " L"]
    doublings: Int[Array, ""]


def _length_log2(T: int) -> int:
    """log2 of L, the places that T samples take."""
    return max(1, math.ceil(math.log2(T)))


def _places(T: int, n: Int[Array, ""]) -> _Places:
    L_log2 = _length_log2(T)
    doublings = jnp.sum(n > 2 ** jnp.arange(L_log2), dtype=jnp.int32)
    place = jnp.arange(2**L_log2, dtype=jnp.int32)
    sample = place >> (L_log2 - doublings)
    taken = (place == sample << (L_log2 - doublings)) & (sample < n)
    return _Places(jnp.minimum(sample, T - 1), taken, doublings)


def _magnitudes(samples: Float[Array, " L"], padlevel: int) -> Float[Array, "R1 H"]:
    """|V_k| of the samples padded with zeros to R L places, R = 2^padlevel, for k = 0 .. R L / 2.

    Row r, column q is bin k = r + R q; row R is row 0 one column later, so that the difference of two rows is that of
    neighbouring bins. Bin r + R q of the padded transform is bin q of the transform of v_n exp(-2 pi i r n / (R L)):
    R / 2 + 1 short transforms instead of a long one of mostly zeros; conjugates give the other rows.
    """
    L, R = samples.shape[0], 2**padlevel
    turn = np.exp(-2j * np.pi * np.outer(np.arange(R // 2 + 1), np.arange(L)) / (R * L))
    V = jnp.fft.fft(samples[None] * jnp.asarray(turn, jnp.result_type(samples, jnp.complex64)))
    M = safe_sqrt(jnp.real(V) ** 2 + jnp.imag(V) ** 2)
    H = L // 2
    return jnp.concatenate([M[: R // 2 + 1, :H][:R], M[R // 2 - 1 : 0 : -1, : H - 1 : -1][: R // 2], M[:1, 1 : H + 1]])


LOW_SHARE = 0.21
"""Share of the spectrum that lies below 10 Hz from 100 Hz sampling on, with a little to spare."""
LOW_L = 512
"""Up to so many places, the lowest bins are cheaper as two matrix products than as transforms."""


def _low_bins(L: int, padlevel: int) -> int:
    return math.ceil(LOW_SHARE * L * 2 ** (padlevel - 1))


def _low_magnitudes(samples: Float[Array, " L"], padlevel: int) -> Float[Array, "K 1"]:
    """The lowest bins of :func:`_magnitudes`, one a row.

    About the middle of the samples the even part has cosines alone and the odd part sines alone.
    """
    L, bins_n = samples.shape[0], _low_bins(samples.shape[0], padlevel)
    after, before = samples[L // 2 :], samples[L // 2 - 1 :: -1]
    angle = 2 * np.pi * np.outer(np.arange(L // 2) + 0.5, np.arange(bins_n)) / (2**padlevel * L)
    even = (after + before) @ jnp.asarray(np.cos(angle), samples.dtype)
    odd = (after - before) @ jnp.asarray(np.sin(angle), samples.dtype)
    return safe_sqrt(even**2 + odd**2)[:, None]


def sparc_batch(
    speed: Float[Array, "B T"],
    time_s: Float[Array, "B T"],
    valid: Bool[Array, "B T"],
    *,
    cutoff_hz: float | Float[Array, ""] = 10.0,
    amplitude: float | Float[Array, ""] = 0.05,
    padlevel: int = 4,
    rate_min_hz: float | Float[Array, ""] = 6.0,
    gap_steps: float | Float[Array, ""] = 2.5,
    still: float | Float[Array, ""] = 1e-3,
    rows_n: int = 500,
) -> Sparc:
    """:func:`sparc` of every row, ``rows_n`` at a time so that their spectra stay in a CPU's cache.

    Where all these rows are full and their stamps even, nothing is interpolated; where they are so dense that the
    cutoff lies low in the spectrum, only its lowest bins are made. Together, half the time.
    """
    judge = partial(
        _arc_length,
        cutoff_hz=cutoff_hz,
        amplitude=amplitude,
        padlevel=padlevel,
        rate_min_hz=rate_min_hz,
        gap_steps=gap_steps,
        still=still,
    )

    def some(rows: tuple[Array, Array, Array]) -> Sparc:
        clock = jax.vmap(time_base)(*rows[1:])
        even = jnp.all(jax.vmap(_is_even)(*rows[1:], clock))
        samples, doublings = jax.lax.cond(even, jax.vmap(_samples_as_they_are), jax.vmap(_even_samples), *rows, clock)
        given = (samples, doublings, clock, *rows)
        L = samples.shape[1]
        if L > LOW_L:
            return jax.vmap(judge)(*given)
        limit = jax.vmap(partial(_limit, cutoff_hz=cutoff_hz, padlevel=padlevel))(clock, doublings)
        low = jnp.max(limit) < _low_bins(L, padlevel) - 1
        return jax.lax.cond(low, jax.vmap(partial(judge, low=True)), jax.vmap(judge), *given)

    B = speed.shape[0]
    rows_n = min(rows_n, B)
    more = -B % rows_n
    rows = tuple(
        jnp.pad(x, ((0, more), (0, 0))).reshape((B + more) // rows_n, rows_n, -1) for x in (speed, time_s, valid)
    )
    return jax.tree.map(lambda x: x.reshape(-1)[:B], jax.lax.map(some, rows))
