"""How smoothly a body moved: SPARC, jerk, path length and times, of a whole execution and of each sub-task.

Everything is written for one trajectory, with its own time stamps and a mask, and is vmapped by the caller. A number
that cannot be had is NaN beside a status that says why (a Status). SPARC itself is in spectral_arc.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxeval import se3
from jaxeval.linalg import divisor, safe_norm
from jaxeval.metrics.spectral_arc import Sparc as Sparc
from jaxeval.metrics.spectral_arc import first_true, steps_between, time_base
from jaxeval.metrics.spectral_arc import sparc as sparc
from jaxeval.metrics.spectral_arc import sparc_batch as sparc_batch
from jaxeval.metrics.status import Status
from jaxeval.types import STATIC, a_count, a_number, pytree

JERK_DEGREE = 5
"""Degree of the local polynomial: a minimum-jerk position is of degree 5, so its jerk comes out exact."""


@pytree
class SmoothnessParams:
    """How the motion metrics are set. Floats are leaves, so a sweep over them is one vmapped call.

    ``cutoff_hz``, ``amplitude``, ``padlevel``: SPARC's band, threshold and zero-padding (10 Hz, 0.05, 4 as published).
    ``rate_min_hz``: below, "fps too low" (6 Hz: a minimum-jerk reach of 1 s is within 0.5 % of its value at 100 Hz from
    there on; at 5 Hz it is 5 % off). ``gap_steps``: a step of time longer than this many typical ones is a gap, unless
    it is shorter than half a period of the cutoff. ``still_m_s``, ``still_rad_s``: nothing faster is no motion.
    ``idle_m_s``: slower steps are idle. ``jerk_window_s``: width of the window that a polynomial is fitted to.
    ``jerk_half_n``: frames on each side that the window may hold (20 serve 0.4 s at up to 100 Hz).
    """

    cutoff_hz: float | Float[Array, ""] = 10.0
    amplitude: float | Float[Array, ""] = 0.05
    rate_min_hz: float | Float[Array, ""] = 6.0
    gap_steps: float | Float[Array, ""] = 2.5
    still_m_s: float | Float[Array, ""] = 1e-3
    still_rad_s: float | Float[Array, ""] = 1e-2
    idle_m_s: float | Float[Array, ""] = 0.005
    jerk_window_s: float | Float[Array, ""] = 0.4
    padlevel: int = field(default=4, metadata=STATIC)
    jerk_half_n: int = field(default=20, metadata=STATIC)

    def check(self) -> SmoothnessParams:
        """Itself, or ValueError in one sentence. Call it on the host, before jit."""
        for name in ("cutoff_hz", "rate_min_hz", "still_m_s", "still_rad_s", "idle_m_s", "jerk_window_s"):
            value = a_number(f"smoothness.{name}", getattr(self, name))
            if not value > 0:
                raise ValueError(f"smoothness.{name} is {value}; expected a positive number")
        if not 0 < (amplitude := a_number("smoothness.amplitude", self.amplitude)) < 1:
            raise ValueError(f"smoothness.amplitude is {amplitude}; expected a number between 0 and 1")
        if not (gap := a_number("smoothness.gap_steps", self.gap_steps)) > 1:
            raise ValueError(f"smoothness.gap_steps is {gap}; expected a number above 1")
        a_count("smoothness.padlevel", self.padlevel, 0)
        a_count("smoothness.jerk_half_n", self.jerk_half_n, JERK_DEGREE // 2 + 1)
        return self


def sparc_settings(params: SmoothnessParams) -> dict[str, Any]:
    """The keywords of :func:`sparc` and :func:`sparc_batch` that ``params`` sets, for speeds in m/s."""
    names = ("cutoff_hz", "amplitude", "padlevel", "rate_min_hz", "gap_steps")
    return {name: getattr(params, name) for name in names} | {"still": params.still_m_s}


# ------------------------------------------------------------------------------------------------ speed, path, times


def _central(change: Float[Array, "S D"], seconds: Float[Array, " S"], both: Bool[Array, " S"]) -> Float[Array, "T D"]:
    """Rate of change at every frame from the steps on either side; from one of them at an end, 0 with none.

    With both, each step's rate is weighted by the other's duration: exact for constant acceleration at any stamps.
    """
    rate = change / divisor(seconds)[:, None]
    zero = jnp.zeros(1, seconds.dtype)
    before, after = jnp.concatenate([zero, seconds]), jnp.concatenate([seconds, zero])  # 0: no step on that side
    rate_before = jnp.concatenate([jnp.zeros_like(rate[:1]), rate])
    rate_after = jnp.concatenate([rate, jnp.zeros_like(rate[:1])])
    has_before, has_after = before > 0, after > 0
    w_before = jnp.where(has_before, jnp.where(has_after, after, 1.0), 0.0)
    w_after = jnp.where(has_after, jnp.where(has_before, before, 1.0), 0.0)
    weight = w_before + w_after
    weight = divisor(weight)
    return (w_before / weight)[:, None] * rate_before + (w_after / weight)[:, None] * rate_after


def speed_of(
    positions: Float[Array, "T 3"], time_s: Float[Array, " T"], valid: Bool[Array, " T"]
) -> Float[Array, " T"]:
    """Speed at every frame, m/s: central differences on the stamps, one-sided at ends and beside invalid frames.

    0 at invalid frames and at frames without a valid neighbour; mask them. Central differences halve white noise of
    the positions against plain steps. Unchanged when the world frame changes.
    """
    return safe_norm(_central(*steps_between(positions, time_s, valid)))


def angular_speed_of(
    wxyz: Float[Array, "T 4"], time_s: Float[Array, " T"], valid: Bool[Array, " T"]
) -> Float[Array, " T"]:
    """Angular speed at every frame, rad/s, as :func:`speed_of` has it; q and -q are one rotation."""
    return safe_norm(_central(*_turns(wxyz, time_s, valid)))


def _turns(
    wxyz: Float[Array, "T 4"], time_s: Float[Array, " T"], valid: Bool[Array, " T"]
) -> tuple[Float[Array, "S 3"], Float[Array, " S"], Bool[Array, " S"]]:
    """(rotation vector, seconds, both ends valid) of every step, in the body's frame."""
    _, seconds, both = steps_between(time_s[:, None], time_s, valid)
    poses = jnp.where(valid[:, None], jnp.pad(wxyz, ((0, 0), (0, 3))), jnp.asarray(se3.IDENTITY, wxyz.dtype)[None])
    turn = jax.vmap(lambda a, b: se3.log_decoupled(se3.relative_pose(b, a))[3:])(poses[:-1], poses[1:])
    return jnp.where(both[:, None], turn, 0.0), seconds, both


def path_length(
    positions: Float[Array, "T 3"], time_s: Float[Array, " T"], valid: Bool[Array, " T"]
) -> Float[Array, ""]:
    """Length of the path through the valid frames, metres, straight across invalid ones; 0 with fewer than two."""
    return jnp.sum(_bridged(positions, time_s, valid)[0])


def time_to_completion(time_s: Float[Array, " T"], valid: Bool[Array, " T"]) -> Float[Array, ""]:
    """Seconds from the first valid frame to the last; 0 with fewer than two."""
    clock = time_base(time_s, valid)
    return jnp.where(clock.n > 0, time_s[clock.last] - time_s[clock.first], 0.0)


def idle_time(
    positions: Float[Array, "T 3"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    *,
    idle_m_s: float | Float[Array, ""] = 0.005,
) -> Float[Array, ""]:
    """Seconds spent in steps between valid frames that are slower than ``idle_m_s``; lower is better."""
    length, seconds = _bridged(positions, time_s, valid)
    return jnp.sum(jnp.where(length < idle_m_s * seconds, seconds, 0.0))


def _bridged(
    positions: Float[Array, "T 3"], time_s: Float[Array, " T"], valid: Bool[Array, " T"]
) -> tuple[Float[Array, " T"], Float[Array, " T"]]:
    """(metres, seconds) from the valid frame before to each valid frame; 0 at invalid frames and at the first."""
    frame = jnp.arange(time_s.shape[0], dtype=jnp.int32)
    latest = jax.lax.cummax(jnp.where(valid, frame, -1))
    previous = jnp.concatenate([jnp.full(1, -1, jnp.int32), latest[:-1]])
    step = valid & (previous >= 0)
    from_ = jnp.maximum(previous, 0)
    change = jnp.where(step[:, None], positions - positions[from_], 0.0)
    return safe_norm(change), jnp.where(step, time_s - time_s[from_], 0.0)


# -------------------------------------------------------------------------------------------------------------- jerk


class Jerk(NamedTuple):
    """``vector`` m/s^3 at every frame, 0 where not ``known``."""

    vector: Float[Array, "T 3"]
    known: Bool[Array, " T"]
    status: Int[Array, ""]


def jerk_of(
    positions: Float[Array, "T 3"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    *,
    window_s: float | Float[Array, ""] = 0.4,
    half_n: int = 20,
) -> Jerk:
    """Third derivative of the position: a polynomial of degree 5 fitted to the frames within ``window_s``.

    Savitzky and Golay's filter on the actual stamps: least squares in polynomials that are orthogonal on the window's
    own frames, so no equations are solved. Near the ends the window stays inside and its polynomial is read off centre;
    a window longer than the motion shrinks to it. Exact for positions of degree 5, whatever the stamps. A frame is not
    ``known`` with fewer than 6 valid frames in its window. ``half_n`` bounds the frames on each side.
    """
    T, W = time_s.shape[0], 2 * half_n + 1
    clock = time_base(time_s, valid)
    safe_time = jnp.where(valid, time_s, 0.0)
    start, end = safe_time[clock.first], safe_time[clock.last]
    half_s = jnp.minimum(0.5 * jnp.asarray(window_s, time_s.dtype), 0.5 * (end - start))
    unit = divisor(half_s)
    centre = jnp.clip(safe_time, start + half_s, end - half_s)
    at = (safe_time - centre) / unit

    frame = jnp.arange(T, dtype=jnp.int32)
    begin = jnp.clip(frame - half_n, clock.first, jnp.maximum(clock.last - 2 * half_n, clock.first))
    # frames of the windows lead, [W, T]: sums over them are vectorised over the frames they are for
    index = begin[None] + jnp.arange(W, dtype=jnp.int32)[:, None]
    member = jnp.minimum(index, T - 1)
    u = (safe_time[member] - centre[None]) / unit
    used = valid[member] & (index < T) & (jnp.abs(u) <= 1.001)
    w = used.astype(time_s.dtype)
    safe = jnp.where(valid[:, None], positions, 0.0).T  # [3, T]
    x = safe[:, member] - safe[:, None]  # about the frame itself: nothing is lost far from the origin
    u = jnp.where(used, u, 0.0)

    p, p_old = jnp.ones_like(u), jnp.zeros_like(u)
    d = jnp.stack([jnp.ones_like(at), *[jnp.zeros_like(at)] * 3])  # p, p', p'', p''' at the frame
    d_old, norm_old = jnp.zeros_like(d), jnp.ones_like(at)
    third = jnp.zeros_like(safe)
    for _ in range(JERK_DEGREE + 1):
        norm = jnp.sum(w * p * p, axis=0)
        norm = jnp.where(norm > 1e-7, norm, 1.0)
        third = third + (d[3] / norm)[None] * jnp.sum((w * p)[None] * x, axis=1)
        a, b = jnp.sum(w * u * p * p, axis=0) / norm, norm / norm_old
        lower = jnp.concatenate([jnp.zeros_like(d[:1]), jnp.arange(1.0, 4.0, dtype=d.dtype)[:, None] * d[:3]])
        d, d_old = (at - a)[None] * d + lower - b[None] * d_old, d
        p, p_old, norm_old = (u - a[None]) * p - b[None] * p_old, p, norm

    known = valid & (jnp.sum(used, axis=0) > JERK_DEGREE)
    status = first_true(
        (Status.BAD_FRAME, jnp.any(valid & ~(jnp.isfinite(time_s) & jnp.all(jnp.isfinite(positions), axis=1)))),
        (Status.TOO_SHORT, clock.n <= JERK_DEGREE),
        (Status.TIME, ~clock.forward),
        (Status.WINDOW, half_s > (half_n + 0.5) * clock.step_s),
        (Status.LOW_RATE, ~jnp.any(known)),
    )
    known = known & (status == Status.OK)
    return Jerk(jnp.where(known[:, None], third.T / unit**3, 0.0), known, status)


# ---------------------------------------------------------------------------------------- a whole execution, its parts


@pytree
class Motion:
    """How one stretch of an execution moved. A number is NaN exactly where its status is not 0.

    ``status`` is that of ``path_m``, ``turn_rad``, ``duration_s`` and ``idle_s``; ``jerk_status`` that of both jerks.
    """

    path_m: Float[Array, "..."]
    turn_rad: Float[Array, "..."]
    duration_s: Float[Array, "..."]
    idle_s: Float[Array, "..."]
    status: Int[Array, "..."]
    sparc: Float[Array, "..."]
    sparc_status: Int[Array, "..."]
    turn_sparc: Float[Array, "..."]  # of the angular speed
    turn_sparc_status: Int[Array, "..."]
    jerk_mean_m_s3: Float[Array, "..."]
    jerk_peak_m_s3: Float[Array, "..."]
    jerk_status: Int[Array, "..."]


@pytree
class MotionQuality:
    """Motion of the whole and of every sub-task (leaves with a leading axis P)."""

    whole: Motion
    sub_tasks: Motion


def motion_quality(
    poses: Float[Array, "T 7"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    sub_task: Int[Array, " T"],
    *,
    params: SmoothnessParams,
    sub_tasks_n: int,
) -> MotionQuality:
    """SPARC, jerk, path and times of one body over an execution and over each of its sub-tasks.

    ``poses`` T_world_body (wxyz_xyz, metres); ``sub_task`` is the label of every frame, -1 for none. Differences are
    taken once, over the whole. A step belongs to the sub-task of the frame it ends in, so paths, durations and idle
    times of labelled frames add up to the whole's. The mean jerk is over time. Unchanged when the world frame changes.
    """
    length, seconds = _bridged(poses[:, 4:], time_s, valid)
    finite = jnp.all(jnp.isfinite(poses), axis=1) & jnp.isfinite(time_s)
    turns, turn_s, adjacent = _turns(poses[:, :4], time_s, valid)
    turn = jnp.append(jnp.zeros(1, length.dtype), safe_norm(turns))
    speed = speed_of(poses[:, 4:], time_s, valid)
    angular = safe_norm(_central(turns, turn_s, adjacent))
    jerk = jerk_of(poses[:, 4:], time_s, valid, window_s=params.jerk_window_s, half_n=params.jerk_half_n)
    jerk_size = safe_norm(jerk.vector)
    settings = sparc_settings(params)
    turning = dict(settings)
    turning["still"] = params.still_rad_s
    share_s = 0.5 * (seconds + jnp.append(seconds[1:], 0.0))  # seconds that a frame stands for

    def stretch(mine: Bool[Array, " T"]) -> Motion:
        frames = valid & mine
        clock = time_base(time_s, frames)
        steps = frames & (seconds > 0)
        bad = (Status.BAD_FRAME, jnp.any(frames & ~finite))
        backward = (Status.TIME, jnp.any(frames & (seconds < 0)) | ~clock.forward)
        status = first_true(bad, backward, (Status.TOO_SHORT, ~jnp.any(steps)))

        def known(x: Float[Array, ""], code: Int[Array, ""]) -> Float[Array, ""]:
            return jnp.where(code == Status.OK, x, jnp.nan)

        def over(x: Float[Array, " T"]) -> Float[Array, ""]:
            return known(jnp.sum(jnp.where(steps, x, 0.0)), status)

        moved = sparc(speed, time_s, frames, **settings)
        turned = sparc(angular, time_s, frames, **turning)
        seen = frames & jerk.known
        weight = jnp.where(seen, share_s, 0.0)
        mean = jnp.sum(weight * jerk_size) / jnp.maximum(jnp.sum(weight), 1e-9)
        too_short = (Status.TOO_SHORT, ~jnp.any(weight > 0))
        jerk_status = jnp.where(jerk.status == Status.OK, first_true(bad, backward, too_short), jerk.status)
        jerk_status = jnp.where(jerk_status == Status.OK, status, jerk_status)  # a lone frame has no motion to speak of
        return Motion(
            path_m=over(length),
            turn_rad=over(turn),
            duration_s=over(seconds),
            idle_s=over(jnp.where(length < params.idle_m_s * seconds, seconds, 0.0)),
            status=status,
            sparc=moved.value,
            sparc_status=moved.status,
            turn_sparc=turned.value,
            turn_sparc_status=turned.status,
            jerk_mean_m_s3=known(mean, jerk_status),
            jerk_peak_m_s3=known(jnp.max(jnp.where(seen, jerk_size, 0.0)), jerk_status),
            jerk_status=jerk_status,
        )

    parts = sub_task[None] == jnp.arange(sub_tasks_n)[:, None]
    # one stretch after the other: under vmap the spectra of a batch stay small
    motions = jax.lax.map(stretch, jnp.concatenate([jnp.ones((1, parts.shape[1]), bool), parts]))
    return MotionQuality(whole=jax.tree.map(lambda x: x[0], motions), sub_tasks=jax.tree.map(lambda x: x[1:], motions))


# ------------------------------------------------------------------------------------------------------- noise floor


def noise_floor(
    key: Array,
    positions: Float[Array, "T 3"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    *,
    sigma_m: float | Float[Array, ""],
    params: SmoothnessParams,
    draws_n: int = 64,
) -> Sparc:
    """SPARC of a clean motion as a tracker would see it: iid normal noise on every coordinate, ``draws_n`` times.

    What a tracker with noise ``sigma_m`` at these stamps reports for this motion; differences to other executions below
    its spread mean nothing. Leaves have a leading axis of draws.
    """

    settings = sparc_settings(params)

    def draw(k: Array) -> Sparc:
        noise = jax.random.normal(k, positions.shape, positions.dtype)
        noisy = positions + jnp.asarray(sigma_m, positions.dtype) * noise
        return sparc(speed_of(noisy, time_s, valid), time_s, valid, **settings)

    return jax.vmap(draw)(jax.random.split(key, draws_n))
