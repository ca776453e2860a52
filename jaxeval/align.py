"""From frames to stages: predicates find where each sub-task ends, elapsed time becomes a progress bin.

Written for one episode (poses [T, N, 7], time [T], frame_valid [T], gripper width [T]); the caller vmaps over episodes.
Everything is relative to the task's own bodies, so a change of world frame changes nothing. A predicate cannot hold in
a frame in which one of its bodies is not valid, and looks back at no such frame either. Source: SPECTRA III-A1; the
predicates are "pose-based heuristics" there, and ours here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxeval import se3
from jaxeval.linalg import safe_norm
from jaxeval.types import InputError, Predicate, TaskSpec, one_of

Margin = Float[Array, " T"]
"""How far each frame is past a predicate's threshold, in its unit; it holds where the margin is not negative."""


class Signals(NamedTuple):
    """What a predicate looks at. ``valid``: frames in which all that it needs was measured; no other is looked at.

    ``start`` is the first frame of the current sub-task.
    """

    poses: Float[Array, "T N 7"]
    time_s: Float[Array, " T"]
    valid: Bool[Array, " T"]
    gripper_width_m: Float[Array, " T"]
    joints: Float[Array, "T Q"]
    start: Int[Array, ""]


class Alignment(NamedTuple):
    """Where each sub-task ends and which progress bin each frame belongs to.

    ``ends``: first frame at which the sub-task's predicates hold (T when never). ``reached``: whether they ever do.
    ``bins``: p * M + m, -1 for invalid frames. ``started_s``/``ended_s``: the sub-task's bounds in seconds.
    """

    ends: Int[Array, " P"]
    reached: Bool[Array, " P"]
    bins: Int[Array, " T"]
    started_s: Float[Array, " P"]
    ended_s: Float[Array, " P"]

    @property
    def duration_s(self) -> Float[Array, " P"]:
        """Length of each sub-task."""
        return self.ended_s - self.started_s


# ------------------------------------------------------------------------------------------- the closed vocabulary


class Frames(NamedTuple):
    """Names resolved to columns: body -> N, joint -> Q; the support and its upward axis."""

    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    support: str
    gripper: str

    def of(self, signals: Signals, body: str) -> Float[Array, "T 7"]:
        """Track of a body in the world."""
        return signals.poses[:, self.bodies.index(body)]


def _position_in(T_w_a: Float[Array, "T 7"], T_w_b: Float[Array, "T 7"]) -> Float[Array, "T 3"]:
    return jax.vmap(se3.relative_pose)(T_w_a, T_w_b)[:, 4:]


def _since_start(x: Float[Array, " T"], s: Signals, worst: float) -> Float[Array, " T"]:
    """``x`` where the current sub-task has begun and the frame is valid, else ``worst`` (neutral for a running max)."""
    frames = jnp.arange(x.shape[0])
    return jnp.where((frames >= s.start) & s.valid, x, worst)


def _earlier(s: Signals, window_s: float) -> tuple[Int[Array, " T"], Bool[Array, " T"]]:
    """The last valid frame at least ``window_s`` before each frame, and whether there is one."""
    then = s.time_s - window_s
    index = jnp.searchsorted(s.time_s, then + 1e-4, side="right") - 1
    index = jnp.where(index >= 0, _last_valid(s.valid)[jnp.maximum(index, 0)], -1)
    return jnp.maximum(index, 0), index >= 0


def _last_valid(valid: Bool[Array, " T"]) -> Int[Array, " T"]:
    """The last valid frame up to each frame, -1 before the first."""
    return jax.lax.cummax(jnp.where(valid, jnp.arange(valid.shape[0]), -1))


def _began(s: Signals) -> Int[Array, ""]:
    """The frame that stands for the start of the sub-task: the last valid one up to it, else the first valid one."""
    at = _last_valid(s.valid)[jnp.clip(s.start, 0, s.valid.shape[0] - 1)]
    return jnp.where(at >= 0, at, jnp.argmax(s.valid))


def _moved(track: Float[Array, "T 7"], s: Signals, window_s: float) -> tuple[Float[Array, " T"], Bool[Array, " T"]]:
    """Metres between each frame's position and the one a window earlier."""
    index, reaches = _earlier(s, window_s)
    return safe_norm(track[:, 4:] - track[index, 4:]), reaches


def _when(applies: Bool[Array, " T"], margin: Margin) -> Margin:
    """The margin where the predicate can be asked at all; elsewhere it does not hold."""
    return jnp.where(applies, margin, -jnp.inf)


def _gripper_closing(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The gripper is ``value`` m narrower than it has been in this sub-task."""
    widest = jax.lax.cummax(_since_start(s.gripper_width_m, s, -jnp.inf))
    return widest - p.value - s.gripper_width_m


def _gripper_opening(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The gripper is ``value`` m wider than it has been in this sub-task."""
    narrowest = jax.lax.cummin(_since_start(s.gripper_width_m, s, jnp.inf))
    return s.gripper_width_m - narrowest - p.value


def _gripper_closed(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The gripper is narrower than at its widest and has changed by less than ``value`` m over ``window_s``."""
    index, reaches = _earlier(s, p.window_s)
    widest = jnp.max(jnp.where(s.valid, s.gripper_width_m, -jnp.inf))
    still = p.value - jnp.abs(s.gripper_width_m - s.gripper_width_m[index])
    return _when(reaches & (s.gripper_width_m < widest - p.value), still)


def _gripper_open(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The gripper is at least ``value`` m wide."""
    return s.gripper_width_m - p.value


def _lifted(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The body is ``value`` m above its height when the sub-task began (along the support's z axis)."""
    height = _position_in(f.of(s, p.body), f.of(s, p.other or f.support))[:, 2]
    return height - height[_began(s)] - p.value


def _distance(p: Predicate, f: Frames, s: Signals) -> Float[Array, " T"]:
    axes = jnp.asarray([float(axis in p.axes) for axis in "xyz"], s.poses.dtype)
    position = _position_in(f.of(s, p.body), f.of(s, p.other))
    offset = jnp.asarray(p.offset_m, s.poses.dtype)
    return jax.vmap(lambda x: safe_norm((x - offset) * axes))(position)


def _near(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The body is within ``value`` m of ``offset_m`` in the other body's frame, along ``axes``."""
    return p.value - _distance(p, f, s)


def _away(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The body is more than ``value`` m from ``offset_m`` in the other body's frame, along ``axes``."""
    return _distance(p, f, s) - p.value


def _still_in_gripper(p: Predicate, f: Frames, s: Signals) -> tuple[Float[Array, " T"], Bool[Array, " T"]]:
    in_gripper = jax.vmap(se3.relative_pose)(f.of(s, p.body), f.of(s, f.gripper))
    return _moved(in_gripper, s, p.window_s)


def _held(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The body stays within ``value`` m in the gripper's frame over ``window_s`` while the gripper moved more."""
    moved, reaches = _still_in_gripper(p, f, s)
    gripper_moved, _ = _moved(f.of(s, f.gripper), s, p.window_s)
    return _when(reaches, jnp.minimum(p.value - moved, gripper_moved - p.value))


def _released(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The body has moved more than ``value`` m in the gripper's frame over ``window_s``."""
    moved, reaches = _still_in_gripper(p, f, s)
    return _when(reaches, moved - p.value)


def _moving(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The body is ``value`` m from where it was when the sub-task began (in the support's frame)."""
    position = _position_in(f.of(s, p.body), f.of(s, p.other or f.support))
    origin = position[_began(s)]
    return jax.vmap(lambda x: safe_norm(x - origin))(position) - p.value


def _at_rest(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The body has moved less than ``value`` m over ``window_s``."""
    moved, reaches = _moved(f.of(s, p.body), s, p.window_s)
    return _when(reaches, p.value - moved)


def _joint_past(p: Predicate, f: Frames, s: Signals) -> Margin:
    """The joint has covered the fraction ``value`` of its way from ``offset_m[0]`` to ``offset_m[1]`` (rad or m)."""
    low, high, _ = p.offset_m
    return (s.joints[:, f.joints.index(p.body)] - low) / (high - low) - p.value


PREDICATES: dict[str, Callable[[Predicate, Frames, Signals], Margin]] = {
    "gripper_closing": _gripper_closing,
    "gripper_closed": _gripper_closed,
    "gripper_opening": _gripper_opening,
    "gripper_open": _gripper_open,
    "lifted": _lifted,
    "near": _near,
    "away": _away,
    "held": _held,
    "released": _released,
    "moving": _moving,
    "at_rest": _at_rest,
    "joint_past": _joint_past,
}
"""Everything a sub-task's ``until`` may say; the first line of each function is its meaning."""

_NEEDS_GRIPPER_FRAME = ("held", "released")


def needed_bodies(predicate: Predicate, spec: TaskSpec) -> tuple[str, ...]:
    """Bodies whose poses a predicate looks at, by name."""
    one_of("predicate kind", predicate.kind, PREDICATES)
    needs = {predicate.body, predicate.other} - {""}
    if predicate.kind == "joint_past":
        needs = set()
    if predicate.kind in _NEEDS_GRIPPER_FRAME:
        needs |= {spec.gripper}
    if predicate.kind in ("lifted", "moving") and not predicate.other:
        needs |= {spec.support}
    return tuple(sorted(needs))


def missing_bodies(predicate: Predicate, spec: TaskSpec, bodies: tuple[str, ...]) -> tuple[str, ...]:
    """Bodies that a predicate needs and that the episode does not have."""
    return tuple(b for b in needed_bodies(predicate, spec) if b not in bodies)


def needed_joints(spec: TaskSpec) -> tuple[tuple[str, str], ...]:
    """(joint, sub-task) of every predicate of a task that looks at a joint."""
    return tuple((u.body, s.name) for s in spec.sub_tasks for u in s.until if u.kind == "joint_past")


def require_joints(spec: TaskSpec, joint_names: tuple[str, ...], where: str = "") -> None:
    """InputError where a sub-task ends by a joint that the recording does not have."""
    for joint, sub_task in needed_joints(spec):
        if joint not in joint_names:
            raise InputError(
                f"{where}{': ' if where else ''}task {spec.name}: sub-task '{sub_task}' ends by the joint '{joint}', "
                f"found the joints {', '.join(joint_names) or 'of nothing'}; record it or change the task spec",
                code="missing_joint",
                key=joint,
            )


# ----------------------------------------------------------------------------------------------------- alignment


class _Recorded(NamedTuple):
    """One episode's arrays as `align_episode` gets them; ``valid`` None: every body was seen in every frame."""

    poses: Float[Array, "T N 7"]
    time_s: Float[Array, " T"]
    frame_valid: Bool[Array, " T"]
    valid: Bool[Array, "T N"] | None
    width: Float[Array, " T"]
    joints: Float[Array, "T Q"]


def _measured(u: Predicate, recorded: _Recorded, names: Frames, spec: TaskSpec) -> Bool[Array, " T"]:
    """Frames in which all that the predicate looks at is known."""
    there = recorded.frame_valid
    if recorded.valid is not None:
        for body in needed_bodies(u, spec):
            there = there & recorded.valid[:, names.bodies.index(body)]
    if u.kind.startswith("gripper_"):
        there = there & jnp.isfinite(recorded.width)
    if u.kind == "joint_past":
        there = there & jnp.isfinite(recorded.joints[:, names.joints.index(u.body)])
    return there


def _least_margin(
    predicates: list[Predicate], recorded: _Recorded, names: Frames, spec: TaskSpec, since: Int[Array, ""]
) -> tuple[Margin, Bool[Array, " T"]]:
    """(least margin of all predicates of a sub-task that begins at frame ``since``, frames in which all are known)."""
    margin, known = jnp.full_like(recorded.time_s, jnp.inf, recorded.poses.dtype), recorded.frame_valid
    for predicate in predicates:
        there = _measured(predicate, recorded, names, spec)
        signals = Signals(recorded.poses, recorded.time_s, there, recorded.width, recorded.joints, since)
        margin = jnp.minimum(margin, _when(there, PREDICATES[predicate.kind](predicate, names, signals)))
        known = known & there
    return margin, known


def align_episode(
    poses: Float[Array, "T N 7"],
    time_s: Float[Array, " T"],
    frame_valid: Bool[Array, " T"],
    gripper_width_m: Float[Array, " T"] | None,
    *,
    spec: TaskSpec,
    bodies: tuple[str, ...],
    bins_n: int,
    valid: Bool[Array, "T N"] | None = None,
    mean_duration_s: Float[Array, " P"] | None = None,
    joints: Float[Array, "T Q"] | None = None,
    joint_names: tuple[str, ...] = (),
) -> Alignment:
    """Sub-task boundaries and the progress bin of every frame.

    ``frame_valid`` says which frames exist: these get a bin. ``valid`` says which of ``bodies`` were seen in them
    (None: all of them, always); a predicate can hold, and looks back, only where all its bodies were. Where the
    gripper's width is not known (None, or NaN), predicates on it cannot hold, nor those on a joint where that is NaN;
    InputError where ``joint_names`` lack a joint of the task.

    Sub-tasks are latched and ordered: each ends at the first frame, after the end of the one before, at which all
    its predicates hold; that frame opens the next. The boundary in time is where the thresholds are crossed between two
    frames. Within a sub-task elapsed time maps to [0, 1) and to ``bins_n``
    equal bins. Frames after the last boundary belong to the last bin. In a sub-task that is never finished, elapsed
    time is divided by ``mean_duration_s`` (its mean over the demonstrations) and capped in its last bin.
    A predicate on a body that the episode does not have is left out; a sub-task with none left is passed over.
    Source: SPECTRA III-A1; progress inside an unfinished sub-task is our reading.
    """
    T = poses.shape[0]
    frames = jnp.arange(T)
    if len(bodies) != poses.shape[1]:
        raise InputError(f"{poses.shape[1]} poses a frame, expected those of {', '.join(bodies)}; name every column")
    names = Frames(bodies, joint_names, spec.support, spec.gripper)
    require_joints(spec, joint_names if joints is not None else ())
    joints = jnp.zeros((T, 0), poses.dtype) if joints is None else joints
    width = jnp.full(T, jnp.nan, poses.dtype) if gripper_width_m is None else gripper_width_m

    recorded = _Recorded(poses, time_s, frame_valid, valid, width, joints)

    previous = jnp.argmax(frame_valid).astype(jnp.int32)
    alive = jnp.any(frame_valid)
    ends, reached, progress_bins = [], [], jnp.full(T, -1, jnp.int32)
    started_s, ended_s = [], []
    start_time = time_s[previous]
    last = jnp.max(jnp.where(frame_valid, time_s, time_s[0]))
    for p, sub_task in enumerate(spec.sub_tasks):
        usable = [u for u in sub_task.until if not missing_bodies(u, spec, bodies)]
        if not usable:  # nothing to ask: passed over, without frames
            ends.append(jnp.where(alive, previous, T).astype(jnp.int32))
            reached.append(alive)
            started_s.append(start_time)
            ended_s.append(start_time)
            continue
        margin, known = _least_margin(usable, recorded, names, spec, previous)
        holds = known & (frames > previous) & alive & (margin >= 0)
        found = jnp.any(holds)
        end = jnp.where(found, jnp.argmax(holds), T).astype(jnp.int32)
        # bodies that were lost since before this sub-task began say only that it ended in between
        crossed = jnp.maximum(_crossing(margin, time_s, known, end), start_time)
        end_time = jnp.where(found, crossed, last)
        length = end_time - start_time
        if mean_duration_s is not None:
            length = jnp.where(found, length, mean_duration_s[p])
        fraction = (time_s - start_time) / jnp.maximum(length, 1e-6)
        m = jnp.clip(jnp.floor(fraction * bins_n + 1e-4), 0, bins_n - 1).astype(jnp.int32)
        inside = alive & (frames >= previous) & (frames < end)
        progress_bins = jnp.where(inside, p * bins_n + m, progress_bins)
        ends.append(end)
        reached.append(found)
        started_s.append(start_time)
        ended_s.append(end_time)
        alive, previous, start_time = alive & found, end, end_time
    after = alive & (frames >= previous)
    progress_bins = jnp.where(after, len(spec.sub_tasks) * bins_n - 1, progress_bins)
    progress_bins = jnp.where(frame_valid, progress_bins, -1)
    return Alignment(jnp.stack(ends), jnp.stack(reached), progress_bins, jnp.stack(started_s), jnp.stack(ended_s))


def _crossing(
    margin: Margin, time_s: Float[Array, " T"], valid: Bool[Array, " T"], end: Int[Array, ""]
) -> Float[Array, ""]:
    """Time at which the margin crosses zero, between frame ``end`` and the one before (linear); else that of ``end``.

    Where bodies move fast, half a frame is several millimetres: without it, progress would depend on the frame rate.
    """
    frames = jnp.arange(time_s.shape[0])
    now = jnp.clip(end, 0, time_s.shape[0] - 1)
    before = jnp.max(jnp.where(valid & (frames < now), frames, 0))  # the last valid one: lost frames change nothing
    below, above = margin[before], margin[now]
    usable = valid[before] & jnp.isfinite(below) & (below < 0) & (now > 0)
    step = jnp.where(usable, above - below, 1.0)
    fraction = jnp.where(usable, -below / step, 1.0)
    return time_s[before] + fraction * (time_s[now] - time_s[before])


def bin_poses(
    relative: Float[Array, "J T 7"],
    bins: Int[Array, " T"],
    *,
    sub_tasks_n: int,
    bins_n: int,
    valid: Bool[Array, "J T"] | None = None,
) -> tuple[Float[Array, "J L 7"], Bool[Array, "J L"], Bool[Array, "J L"]]:
    """Representative relative pose of every pair and progress bin: (poses, seen, converged).

    Lie mean of the frames in the bin in which the pair is ``valid`` (None: all); a bin without any (a sub-task shorter
    than M frames, or a body lost) is filled by the geodesic between the neighbouring bins of the same sub-task and is
    not ``seen``. Source: SPECTRA III-A1; filling is ours.
    """
    L = sub_tasks_n * bins_n
    if valid is None:
        mean = jax.vmap(lambda track: se3.segment_lie_mean(track, bins, segments_n=L))
        poses, seen, converged = mean(relative)
    else:
        safe = jnp.where(valid[..., None], relative, jnp.asarray(se3.IDENTITY, relative.dtype)[None, None])
        of_pairs = jnp.where(valid, bins[None], -1)
        poses, seen, converged = jax.vmap(partial(se3.segment_lie_mean, segments_n=L))(safe, of_pairs)
    if relative.shape[0] == 0:
        return poses, seen, converged
    filled, exists = jax.vmap(partial(_filled, sub_tasks_n=sub_tasks_n, bins_n=bins_n))(poses, seen)
    use = seen | ~exists
    return jnp.where(use[..., None], poses, filled), seen, converged | ~seen


def _filled(
    poses: Float[Array, "L 7"], seen: Bool[Array, " L"], *, sub_tasks_n: int, bins_n: int
) -> tuple[Float[Array, "L 7"], Bool[Array, " L"]]:
    """Every bin from its neighbours that were seen, and whether its sub-task has any: False where never entered."""
    L = sub_tasks_n * bins_n
    slots = jnp.arange(L).reshape(sub_tasks_n, bins_n)
    have = seen.reshape(sub_tasks_n, bins_n)
    before = jax.lax.cummax(jnp.where(have, slots, -1), axis=1)
    after = jax.lax.cummin(jnp.where(have, slots, L), axis=1, reverse=True)
    before, after = jnp.where(before < 0, after, before), jnp.where(after >= L, before, after)
    before, after = before.reshape(L), after.reshape(L)
    exists = (before >= 0) & (before < L)
    before, after = jnp.clip(before, 0, L - 1), jnp.clip(after, 0, L - 1)
    span = jnp.maximum(after - before, 1)
    fraction = jnp.where(after > before, (jnp.arange(L) - before) / span, 0.0).astype(poses.dtype)
    return jax.vmap(se3.interpolate)(poses[before], poses[after], fraction), exists


def relative_tracks(poses: Float[Array, "T N 7"], columns: tuple[tuple[int, int], ...]) -> Float[Array, "J T 7"]:
    """Relative pose track ``T_b_a`` of every pair, given as columns (a, b) of ``poses``."""
    a = poses[:, jnp.asarray([c[0] for c in columns])]
    b = poses[:, jnp.asarray([c[1] for c in columns])]
    return jnp.swapaxes(jax.vmap(jax.vmap(se3.relative_pose))(a, b), 0, 1)
