"""The errors of a pose tracker put on an execution whose poses are exact (host, float64).

It stands in for tracking on hardware. The gripper comes from the arm's encoders and the support does not move: both
stay exact, and everything else is seen late, with noise, and not always.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Bool, Float

from jaxeval.io.errors import InputError
from jaxeval.io.poses import composed, inverted
from jaxeval.io.writers.grid import poses_at
from jaxeval.types import Episode, TaskSpec

EXACT = ("table", "tcp")
"""Bodies that no tracker follows where no task is given: support and gripper, as TaskSpec names them by default."""
SAME_TIME_S = 1e-9


@dataclass(frozen=True)
class PoseNoise:
    """How well bodies are tracked. Zero throughout, the default, is a perfect tracker.

    The deviations are those of each axis, the slow part included: of the variance, ``slow_share`` belongs to a
    first-order Gauss-Markov process (its autocorrelation is ``exp(-|dt| / correlation_s)``), the rest to noise that is
    white from frame to frame.
    """

    position_m: float = 0.0  # along each axis of the world
    rotation_rad: float = 0.0  # of each component of the rotation vector, in the body's own frame
    slow_share: float = 0.0  # of the variance, 0 to 1
    correlation_s: float = 1.0
    dropout_rate_hz: float = 0.0  # losses of the track that start in a second, on average
    dropout_s: float = 0.5  # length of each
    delay_s: float = 0.0
    bodies: tuple[str, ...] | None = None  # those tracked; None: all but support, gripper and frames fixed to a body

    def check(self) -> None:
        """Silent if the settings make sense.

        Raises:
            InputError: the first setting that does not, in one sentence.
        """
        ranges = {
            "position_m": (0.0, 1.0, "metres from 0 to 1; divide by 1000 if these are millimetres"),
            "rotation_rad": (0.0, 1.0, "radians from 0 to 1; multiply by pi / 180 if these are degrees"),
            "slow_share": (0.0, 1.0, "a share of the variance from 0 to 1"),
            "correlation_s": (1e-6, 1e6, "seconds above 0; set slow_share to 0 for white noise alone"),
            "dropout_rate_hz": (0.0, 1e6, "dropouts a second, 0 or more; set 0 for none"),
            "dropout_s": (1e-6, 1e6, "seconds above 0; set dropout_rate_hz to 0 for no dropouts"),
            "delay_s": (0.0, 1e6, "seconds, 0 or more; what arrives early cannot be modelled"),
        }
        for name, (low, high, expected) in ranges.items():
            value = getattr(self, name)
            if not (isinstance(value, int | float) and low <= value <= high):
                raise InputError(f"pose noise: {name} is {value!r}, expected {expected}")
        if self.bodies is not None and (isinstance(self.bodies, str) or len(set(self.bodies)) != len(self.bodies)):
            found = f"pose noise: bodies is {self.bodies!r}"
            raise InputError(f"{found}, expected a tuple of different names; leave it out to track all that move")


def add_noise(episode: Episode, noise: PoseNoise, *, key: int | jax.Array, spec: TaskSpec | None = None) -> Episode:
    """Copy of `episode` as a tracker would have seen it, the gripper exact and on time.

    In order: the poses of tracked bodies come ``delay_s`` late, interpolated, and before that the body rests at its
    first pose; then ``T_seen = T_world_body Exp(phi)`` with the position moved by n in the world, phi and n as
    :class:`PoseNoise` says, at the episode's own time stamps; then dropouts start as a Poisson process, so that
    1 - exp(-rate length) of the frames are lost on average.

    A dropout loses the tracked bodies and leaves the frame: their ``valid`` is False there, and the tracked
    bodies hold the last pose seen (the first one seen, if lost at the start). A frame is invalid too if one is that
    the delayed pose would come from. What is not a pose (times, labels, gripper, success) stays as it was.

    Args:
        episode: times increasing over valid frames, e.g. from ``prepared()``; poses are not changed elsewhere.
        noise: the settings; they are checked.
        key: a seed or a jax key. It is folded with the episode's id and each body's name: the noise depends neither
            on the order of episodes nor on which others there are.
        spec: names the support and the gripper ("table" and "tcp" without it), and which named frames ride on a
            body: a frame moves with the error of its body and has none of its own.

    Raises:
        InputError: a setting out of range, a body that the episode lacks, or times that cannot be used.
    """
    noise.check()
    exact = EXACT if spec is None else (spec.support, spec.gripper)
    riding = {} if spec is None else {b.name: b.frame_of for b in spec.bodies if b.frame_of is not None}
    tracked = noise.bodies
    if tracked is None:
        tracked = tuple(b for b in episode.bodies if b not in exact and riding.get(b) not in episode.bodies)
    where = episode.source or episode.episode_id or "episode"
    if missing := [b for b in tracked if b not in episode.bodies]:
        found = f"{where}: pose noise names the body '{missing[0]}'"
        raise InputError(f"{found}, expected one of {', '.join(episode.bodies)}; correct `bodies`")
    time_s = _usable_time(episode, where)
    frames_of = {a: b for a, b in riding.items() if a in episode.bodies and b in tracked and a not in tracked}
    seen = [episode.bodies.index(b) for b in (*tracked, *frames_of)]

    poses, valid = np.array(episode.poses, np.float64), episode.valid & episode.frame_valid[:, None]
    if noise.delay_s > 0:
        for i in seen:
            if valid[:, i].any():
                late, in_time = _delayed(poses[:, i : i + 1], time_s, valid[:, i], noise.delay_s)
                poses[:, i], valid[:, i] = late[:, 0], valid[:, i] & in_time
    if noise.position_m > 0 or noise.rotation_rad > 0:
        true = poses.copy()
        for body in tracked:
            i = episode.bodies.index(body)
            poses[:, i] = _disturbed(true[:, i], time_s, noise, _generator(key, episode.episode_id, "body", body))
        for frame, body in frames_of.items():
            i, j = episode.bodies.index(frame), episode.bodies.index(str(body))
            poses[:, i] = composed(poses[:, j], composed(inverted(true[:, j]), true[:, i]))
    if noise.dropout_rate_hz > 0:
        lost = _lost(time_s, noise, _generator(key, episode.episode_id, "dropouts"))
        for i in seen:
            valid[:, i] &= ~lost
            if valid[:, i].any():
                first = int(np.argmax(valid[:, i]))
                last = np.maximum.accumulate(np.where(valid[:, i], np.arange(len(valid)), first))
                poses[:, i] = np.where(lost[:, None], poses[last, i], poses[:, i])
    return dataclasses.replace(episode, poses=poses, valid=valid)


def _usable_time(e: Episode, where: str) -> Float[np.ndarray, " T"]:
    """Times of an episode, those of its invalid frames filled in; InputError where valid ones do not increase."""
    frames = np.flatnonzero(e.frame_valid)
    time_s = np.asarray(e.time_s, np.float64)
    if len(frames) < 2:
        raise InputError(f"{where}: {len(frames)} valid frames, expected at least 2; leave this episode out")
    if not np.isfinite(time_s[frames]).all() or (np.diff(time_s[frames]) <= 0).any():
        raise InputError(f"{where}: time_s does not increase over valid frames; sort, split or drop those frames")
    return np.interp(np.arange(e.n_frames), frames, time_s[frames])


def _generator(key: int | jax.Array, *names: str) -> np.random.Generator:
    """Random numbers of their own for these names; a seed is the same as ``jax.random.key`` of it."""
    words = jax.random.key_data(jax.random.key(key) if isinstance(key, int) else key)
    text = "\0".join([*(str(w) for w in np.asarray(words).ravel()), *names])
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))


def _disturbed(
    T_world_body: Float[np.ndarray, "T 7"], time_s: Float[np.ndarray, " T"], noise: PoseNoise, rng: np.random.Generator
) -> Float[np.ndarray, "T 7"]:
    """Poses with noise: rotations from the right, positions in the world."""
    white, drive = rng.standard_normal((2, len(time_s), 6))
    mixed = math.sqrt(1 - noise.slow_share) * white
    mixed += math.sqrt(noise.slow_share) * gauss_markov(drive, time_s, correlation_s=noise.correlation_s)
    turn = noise.rotation_rad * mixed[:, 3:]
    angle = np.linalg.norm(turn, axis=1, keepdims=True)
    half = 0.5 * np.sinc(angle / (2 * np.pi)) * turn  # sin(angle / 2) along the axis, smooth at 0
    T_body_seen = np.concatenate([np.cos(angle / 2), half, np.zeros_like(turn)], axis=1)
    out = composed(T_world_body, T_body_seen)
    out[:, 4:] += noise.position_m * mixed[:, :3]
    return out


def gauss_markov(
    drive: Float[np.ndarray, "T c"], time_s: Float[np.ndarray, " T"], *, correlation_s: float
) -> Float[np.ndarray, "T c"]:
    """First-order Gauss-Markov process of unit stationary deviation at any times, from unit white `drive`.

    x_0 = w_0,  x_k = a_k x_{k-1} + sqrt(1 - a_k^2) w_k,  a_k = exp(-(t_k - t_{k-1}) / correlation_s): exact for uneven
    times, and stationary from the first frame.
    """
    keep = np.exp(-np.diff(time_s) / correlation_s)
    out = drive.copy()
    for k, a in enumerate(keep, start=1):
        out[k] = a * out[k - 1] + math.sqrt(1 - a * a) * drive[k]
    return out


def _delayed(
    poses: Float[np.ndarray, "T n 7"], time_s: Float[np.ndarray, " T"], valid: Bool[np.ndarray, " T"], delay_s: float
) -> tuple[Float[np.ndarray, "T n 7"], Bool[np.ndarray, " T"]]:
    """(poses as they were `delay_s` before, True where they come from valid frames or from before the first)."""
    frames = np.flatnonzero(valid)
    known_s, at_s = time_s[frames], time_s - delay_s
    right = np.clip(np.searchsorted(known_s, at_s), 1, len(frames) - 1)
    hit = np.minimum(np.abs(at_s - known_s[right]), np.abs(at_s - known_s[right - 1])) < SAME_TIME_S
    between = (np.diff(frames) == 1)[right - 1] & (at_s <= known_s[-1])
    return poses_at(poses[frames], known_s, at_s), hit | between | (at_s < known_s[0])


def _lost(time_s: Float[np.ndarray, " T"], noise: PoseNoise, rng: np.random.Generator) -> Bool[np.ndarray, " T"]:
    """Frames in a dropout. Starts reach back by one length, so that the first frame is as likely lost as any."""
    span_s = float(time_s[-1] - time_s[0]) + noise.dropout_s
    starts = time_s[0] - noise.dropout_s + span_s * rng.random(rng.poisson(noise.dropout_rate_hz * span_s))
    starts = np.concatenate([[-np.inf], np.sort(starts)])
    latest = starts[np.searchsorted(starts, time_s, side="right") - 1]  # all last equally long: only it can reach here
    return time_s - latest < noise.dropout_s
