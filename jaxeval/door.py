"""The one gate: findings about a doubtful episode, and the copy of an episode that metrics take (host, NumPy).

``Episode.check()`` and ``Episode.prepared()`` are these two functions. Behind them nothing is checked again.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxeval.linalg import rotation_rows
from jaxeval.types import FINDINGS, FROZEN_JUMP_M, FROZEN_S, IDENTITY_POSE, JUMP_M, Episode, Finding

OFF_UNIT = 1e-3
"""Quaternions whose length is off by more are listed; all are normalised."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_INT = 2**63
_FIELDS = frozenset(f.name for f in dataclasses.fields(Episode))


def attribute_faults(attributes: Mapping[str, object]) -> list[tuple[str, str]]:
    """(finding, expectation) of every attribute that a store cannot keep; empty where all can be kept.

    >>> attribute_faults({"policy": "act", "seed": 3})
    [("attribute 'seed' has the name of a field", 'another name')]
    """
    out: list[tuple[str, str]] = []
    for name, value in attributes.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            out.append((f"attribute {name!r} is no name", "letters, digits and _, not beginning with a digit"))
        elif name in _FIELDS:
            out.append((f"attribute '{name}' has the name of a field", "another name"))
        elif not isinstance(value, (str, bool, int, float)):
            out.append((f"attribute '{name}' is {value!r:.60}", "a text, a number or a truth value"))
        elif isinstance(value, float) and not math.isfinite(value):
            out.append((f"attribute '{name}' is {value}", "a finite number"))
        elif isinstance(value, int) and not -_LONGEST_INT <= value < _LONGEST_INT:
            out.append((f"attribute '{name}' is {value}", "a whole number of 64 bits"))
    return out


def _bad_poses(poses: Float[np.ndarray, "T N 7"]) -> tuple[Bool[np.ndarray, "T N"], Bool[np.ndarray, "T N"]]:
    """Poses that are not finite, and poses with a zero quaternion."""
    finite = np.isfinite(poses)
    if finite.all():  # one pass over all numbers is faster than one over each pose
        non_finite = np.zeros(poses.shape[:2], bool)
    else:
        non_finite = ~finite.all(axis=2)
        poses = np.where(finite, poses, 1.0)
    zero: Bool[np.ndarray, "T N"] = np.einsum("tni,tni->tn", poses[..., :4], poses[..., :4]) < 4.1e-18
    if zero.any():
        zero &= (np.abs(poses[..., :4]) < 1e-9).all(axis=-1)
    return np.asarray(non_finite, bool), zero


def _runs(mask: Bool[np.ndarray, " T"]) -> list[tuple[int, int]]:
    """Half-open [start, stop) runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _previous(valid: Bool[np.ndarray, "T N"]) -> Int[np.ndarray, "T N"]:
    """The last frame before each at which the body is valid, -1 where there is none."""
    index = np.where(valid, np.arange(len(valid))[:, None], -1)
    before = np.full_like(index, -1)
    before[1:] = np.maximum.accumulate(index, axis=0)[:-1]
    return before


def _of_bodies(bad: Bool[np.ndarray, "T N"], bodies: tuple[str, ...]) -> list[tuple[str, Int[np.ndarray, " n"]]]:
    """("cube: ", its bad frames) of each body; once, without a name, where it is the same frames of all of them."""
    if not bad.any():
        return []
    if (bad == bad[:, :1]).all():
        return [("", np.flatnonzero(bad[:, 0]))]
    return [(f"{b}: ", np.flatnonzero(bad[:, i])) for i, b in enumerate(bodies) if bad[:, i].any()]


def check(e: Episode, *, jump_m: float = JUMP_M, up_axis: int = 2) -> tuple[Finding, ...]:
    """Everything doubtful about an episode, as named findings (see FINDINGS). Nothing is changed."""
    return tuple(_shapes(e)) or _checked(e, _look(e), jump_m, up_axis)


def check_and_prepare(e: Episode) -> tuple[tuple[Finding, ...], Episode]:
    """`check` and `prepare` of one episode in one pass; one whose shapes do not fit comes back as it is."""
    if findings := tuple(_shapes(e)):
        return findings, e
    look = _look(e)
    return _checked(e, look, JUMP_M, 2), _prepared(e, look)


def _shapes(e: Episode) -> list[Finding]:
    """A finding for each array that has no row for each frame, or no entry for each body."""
    n, bodies_n = e.n_frames, len(e.bodies)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "poses": (e.poses.shape, (n, bodies_n, 7)),
        "time_s": (e.time_s.shape, (n,)),
        "valid": (e.valid.shape, (n, bodies_n)),
        "frame_valid": (e.frame_valid.shape, (n,)),
    }
    for key, array in (("gripper_width_m", e.gripper_width_m), ("sub_task", e.sub_task)):
        if array is not None:
            shapes[key] = (array.shape, (n,))
    signals = [(f"signals[{name!r}]", array) for name, array in (e.signals or {}).items()]
    for key, array in (("joints", e.joints), ("actions", e.actions), *signals):
        if array is not None:
            shapes[key] = (array.shape, (n, *array.shape[1:2]))
    if e.half_size_m is not None:
        shapes["half_size_m"] = (e.half_size_m.shape, (bodies_n, 3))
    return [
        _finding(e, "shape", f"{key} has shape {got}", f"{want}", "write the arrays with one row a frame")
        for key, (got, want) in shapes.items()
        if got != want
    ]


def _checked(e: Episode, look: _Look, jump_m: float, up_axis: int) -> tuple[Finding, ...]:
    """`check` of arrays whose shapes fit."""
    n, bodies_n = e.n_frames, len(e.bodies)
    out: list[Finding] = []

    def add(code: str, found: str, expected: str, action: str) -> None:
        out.append(_finding(e, code, found, expected, action))

    for found, expected in attribute_faults(e.attributes):
        add("attribute", found, expected, "correct it or leave it out")

    exists, valid = look.exists, look.valid
    seen = exists & valid.any(axis=1) if bodies_n else exists  # frames in which something was measured
    if not seen.any():
        add("no_valid_frame", f"0 of {n} frames are valid", "at least 2", "check the tracker or the mask")
        return tuple(out)
    if int(seen.sum()) < 2:
        add("too_few_frames", f"{int(seen.sum())} valid frame", "at least 2", "record the whole execution")
    out += _changes(e, look)
    if lost := [b for i, b in enumerate(e.bodies) if not valid[:, i].any()]:
        found = f"{', '.join(lost)}: no valid pose in {n} frames"
        add("body_lost", found, "a pose in most frames", "relations with it are not judged")

    poses = e.poses if valid.all() else np.where(valid[..., None], e.poses, IDENTITY_POSE)
    if (far := float(np.abs(poses[..., 4:]).max(initial=0.0))) > 20.0:
        add("units", f"a position component of {far:.4g}", "metres", "divide by 1000 if these are millimetres")
    _check_time(e.time_s, exists, seen, add)
    _check_motion(e, poses, valid, seen, jump_m, add)

    first = poses[np.argmax(valid, axis=0), np.arange(bodies_n), :4][valid.any(axis=0)]
    upright, other = _upright_share(first, up_axis)
    if other - upright > 0.5:
        add(
            "quaternion_order",
            f"{upright:.0%} of the bodies that tell stand upright at the start as read, {other:.0%} in another order",
            "wxyz",
            "check the order that the source declares",
        )
    if not e.bodies:
        add("no_body", "joints alone", "poses of bodies", "forward kinematics of a named robot gives the tip's")
    if e.gripper_width_m is None:
        add("no_gripper_width", "no gripper width", "metres a frame", "record the sum of the finger joints")
    if e.success_at_end is None:
        add("success_unknown", "no success flag", "success_at_end", "the gate uses poses alone")
    return tuple(out)


_Add = Callable[[str, str, str, str], None]
"""Notes a finding: code, found, expected, action."""


def _check_time(stamps_s: np.ndarray, exists: np.ndarray, seen: np.ndarray, add: _Add) -> None:
    """Stamps of the frames that exist increase; gaps are between those in which something was measured."""
    time_s, frames = np.asarray(stamps_s, np.float64)[exists], np.flatnonzero(exists)
    steps = np.diff(time_s)
    if steps.size and (steps <= 0).any():
        frame = int(frames[1:][steps <= 0][0])
        add(
            "time_not_increasing",
            f"{int((steps <= 0).sum())} steps repeat or go back (first at frame {frame})",
            "increasing seconds",
            "sort, split or drop those frames",
        )
        return
    steps, frames = np.diff(np.asarray(stamps_s, np.float64)[seen]), np.flatnonzero(seen)
    if steps.size and (steps > max(10 * float(np.median(steps)), 0.5)).any():
        frame = int(frames[int(np.argmax(steps))])
        add("time_gap", f"{steps.max():.3g} s after frame {frame}", "an even rate", "scored as recorded")


def _check_motion(e: Episode, poses: np.ndarray, valid: np.ndarray, seen: np.ndarray, jump_m: float, add: _Add) -> None:
    """Bodies that jump between two frames in which they are valid, and tracks that stand still to the last bit."""
    before = _previous(valid)
    both = valid & (before >= 0)
    last = np.take_along_axis(poses, np.maximum(before, 0)[..., None], axis=0)
    moved = np.where(both, np.linalg.norm(poses[..., 4:] - last[..., 4:], axis=-1), 0.0)  # [T, N], to each frame
    if moved.size and float(moved.max()) > jump_m:
        t, b = np.unravel_index(int(np.argmax(moved)), moved.shape)
        add(
            "pose_jump",
            f"{e.bodies[int(b)]} moves {moved[t, b]:.3g} m between frames {before[t, b]} and {int(t)}",
            f"at most {jump_m} m",
            "split the recording or mark the lost frames invalid",
        )
    frames, time_s = np.flatnonzero(seen), np.asarray(e.time_s, np.float64)[seen]
    there = valid[frames]
    compared = there[1:] & there[:-1]
    same = (np.einsum("tni->tn", np.abs(np.diff(poses[frames], axis=0))) == 0) | ~compared
    # where some are lost, one that stands fixed all the time tells nothing
    tells = compared.all(axis=1) | (compared & np.any(moved > 0, axis=0, keepdims=True)).any(axis=1)
    for a, b in _runs(np.asarray(same.all(axis=1) & tells & (len(e.bodies) > 0))):
        span = float(time_s[b] - time_s[a])
        if span < FROZEN_S:
            continue
        held = [body for i, body in enumerate(e.bodies) if compared[a:b, i].all()]
        who = "every body" if len(held) == len(e.bodies) else ", ".join(held) or "what was seen"
        where = f"frames {frames[a]}-{frames[b]} ({span:.2f} s) hold identical poses of {who}"
        step = np.where(there[b], moved[frames[b + 1]], 0.0) if b + 1 < len(frames) else np.zeros(1)
        if float(step.max()) > FROZEN_JUMP_M:
            jump = f"{where}, then {e.bodies[int(step.argmax())]} jumps {step.max():.3g} m"
            add("frozen_then_jump", jump, "a live track", "mark those frames invalid")
        else:
            add("frozen", where, "a live track", "a stall of the robot is scored as one")


def _upright_share(first_wxyz: Float[np.ndarray, "n 4"], up_axis: int) -> tuple[float, float]:
    """Share of bodies with one axis along `up_axis` when first seen: as read, and read in another order.

    Bodies resting on a table have a face down. The angle between successive quaternions is the same in either
    order, so continuity cannot tell them apart; gravity can. Only bodies that stand in one reading alone count.
    """

    def tilt_deg(wxyz: np.ndarray) -> np.ndarray:
        q = (wxyz / np.maximum(np.linalg.norm(wxyz, axis=-1, keepdims=True), 1e-12)).T
        rotation = np.array(rotation_rows(q))
        return np.degrees(np.arccos(np.minimum(np.abs(rotation[up_axis]).max(axis=0), 1.0)))

    as_read, best = tilt_deg(first_wxyz), (1.0, 1.0)
    for order in ([3, 0, 1, 2], [1, 2, 3, 0]):  # xyzw taken for wxyz, and wxyz taken for xyzw
        swapped = tilt_deg(first_wxyz[:, order])
        # stands within 3 deg in one reading and is off by over 15 in the other; half turns stand in any order
        stands, falls = (as_read < 3) & (swapped > 15), (swapped < 3) & (as_read > 15)
        if (n := int(stands.sum() + falls.sum())) > 0:
            shares = float(stands.sum() / n), float(falls.sum() / n)
            best = max(best, shares, key=lambda share: share[1] - share[0])
    return best


def prepare(e: Episode) -> Episode:
    """Copy fit for the metrics: time rebased in float64, bad poses invalid, quaternions unit and continuous.

    A body's invalid poses repeat its last valid one (before the first: that); a body that is never seen stands at the
    identity. Time is zero at the first frame, ``start_ns`` moves with it, and a frame without a usable stamp gets one
    between its neighbours'. What was changed is added to ``mended``.
    """
    return _prepared(e, _look(e))


def _prepared(e: Episode, look: _Look) -> Episode:
    exists, valid, mended = look.exists, look.valid, (*e.mended, *_changes(e, look))
    if not exists.any():
        poses = np.tile(IDENTITY_POSE, (*e.poses.shape[:2], 1))
        time_s = np.zeros(e.n_frames)
        return dataclasses.replace(e, valid=valid, frame_valid=exists, poses=poses, time_s=time_s, mended=mended)
    poses = look.filled.copy()
    poses[..., :4] = look.unit
    time_s = _placed(np.asarray(e.time_s, np.float64), exists)
    start_s, width = float(time_s[0]), e.gripper_width_m
    start_ns = round(start_s * 1e9)
    last_frame = np.maximum.accumulate(np.where(exists, np.arange(e.n_frames), int(np.argmax(exists))))
    return dataclasses.replace(
        e,
        poses=poses,
        time_s=time_s - start_s,
        valid=valid,
        frame_valid=exists,
        gripper_width_m=None if width is None else np.asarray(width, np.float64)[last_frame],
        start_ns=(e.start_ns or 0) + start_ns if start_ns else e.start_ns,
        mended=mended,
    )


@dataclass(frozen=True)
class _Look:
    """What :func:`check` and :func:`prepare` both look at."""

    non_finite: Bool[np.ndarray, "T N"]
    zero: Bool[np.ndarray, "T N"]
    exists: Bool[np.ndarray, " T"]  # frames that exist and have a stamp
    valid: Bool[np.ndarray, "T N"]  # bodies that have a pose in them
    filled: Float[np.ndarray, "T N 7"]  # the others repeat their last valid pose, before the first that
    length: Float[np.ndarray, "T N"]  # of the filled quaternions
    unit: Float[np.ndarray, "T N 4"]  # these, normalised, of the sign that continues the first frame's
    negative: Bool[np.ndarray, "T N"]  # where that is not the sign they had


def _look(e: Episode) -> _Look:
    non_finite, zero = _bad_poses(e.poses)
    exists = e.frame_valid & np.isfinite(e.time_s)
    valid = e.valid & exists[:, None] & ~non_finite & ~zero
    filled = np.asarray(e.poses, np.float64)
    if not valid.all():
        first = np.argmax(valid, axis=0)
        last = np.maximum.accumulate(np.where(valid, np.arange(len(valid))[:, None], first[None]), axis=0)
        kept = np.take_along_axis(filled, last[..., None], axis=0)
        filled = np.where(np.any(valid, axis=0)[None, :, None], kept, IDENTITY_POSE)
    length = np.linalg.norm(filled[..., :4], axis=-1)
    unit = filled[..., :4] / length[..., None]
    flips = np.einsum("tni,tni->tn", unit[1:], unit[:-1]) < 0
    negative = np.concatenate([np.zeros((1, unit.shape[1]), bool), np.logical_xor.accumulate(flips, axis=0)])
    if negative.any():
        unit = np.where(negative[..., None], -unit, unit)
    return _Look(non_finite, zero, exists, valid, filled, length, unit, negative)


def _placed(time_s: Float[np.ndarray, " T"], exists: Bool[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """Stamps of all frames: those that exist have their own.

    The others have theirs where these lie, in order, between those of the frames around them; else stamps at even steps
    between those (beyond the first and the last at the median step).
    """
    if exists.all():
        return time_s
    inside = np.where(exists, time_s, -np.inf)
    after = np.minimum.accumulate(np.where(exists, time_s, np.inf)[::-1])[::-1]
    fits = np.isfinite(time_s) & (time_s > np.maximum.accumulate(inside)) & (time_s < after)
    for a, b in _runs(~exists):
        fits[a:b] &= bool(fits[a:b].all() and (np.diff(time_s[a:b]) > 0).all())
    frames, known = np.arange(len(time_s)), np.flatnonzero(exists | fits)
    out = np.interp(frames, known, time_s[known])
    step = float(np.median(np.diff(time_s[known]) / np.diff(known))) if len(known) > 1 else 0.0
    out += step * (np.minimum(frames - known[0], 0) + np.maximum(frames - known[-1], 0))
    out[known] = time_s[known]
    return out


def _changes(e: Episode, look: _Look) -> list[Finding]:
    """What :func:`prepare` changes of an episode, as findings; none of one that is prepared."""
    out: list[Finding] = []

    def add(code: str, found: str, expected: str, action: str) -> None:
        out.append(_finding(e, code, found, expected, action))

    exists, valid = look.exists, look.valid
    no_time = ~np.isfinite(e.time_s)
    given = e.valid & e.frame_valid[:, None]
    bad = (given & (look.non_finite | no_time[:, None])) if e.bodies else (e.frame_valid & no_time)[:, None]
    for who, at in _of_bodies(bad, e.bodies):
        add("non_finite_pose", f"{who}{_frames(at)} NaN or inf", "finite numbers", "marked invalid")
    for who, at in _of_bodies(given & exists[:, None] & look.zero & ~look.non_finite, e.bodies):
        add("zero_quaternion", f"{who}{_frames(at)} (0,0,0,0)", "unit quaternions", "marked invalid")
    if not exists.any():
        return out
    off = np.where(valid, np.abs(look.length - 1), 0.0)
    for who, at in _of_bodies(off > OFF_UNIT, e.bodies):
        found = f"{who}{_frames(at)} a quaternion whose length is off by up to {off.max():.3g}"
        add("unnormalised_quaternion", found, "unit quaternions", "normalised")
    for who, at in _of_bodies(look.negative & valid, e.bodies):
        add("quaternion_sign", f"{who}{_frames(at)} a quaternion of the other sign", "one sign", "made continuous")
    if start_s := float(_placed(np.asarray(e.time_s, np.float64), exists)[0]):
        add("epoch_time", f"time starts at {start_s:.6g} s", "0 at the first frame", "rebased in float64")
    return out


def _finding(e: Episode, code: str, found: str, expected: str, action: str) -> Finding:
    return Finding(code, FINDINGS[code][0], _name(e), found, expected, action)


def _frames(at: Int[np.ndarray, " n"]) -> str:
    """``1 frame (3) holds``, ``5 frames (first 3) hold``."""
    return f"1 frame ({at[0]}) holds" if len(at) == 1 else f"{len(at)} frames (first {at[0]}) hold"


def _name(e: Episode) -> str:
    return f"{e.source}[{e.episode_id}]" if e.source else (e.episode_id or "episode")
