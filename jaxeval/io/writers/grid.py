"""An episode put onto a grid of even times, k / fps, which is all that some formats hold (host, float64)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from jaxeval.io.errors import InputError
from jaxeval.io.poses import interpolated
from jaxeval.types import Episode

ON_GRID_S = 1e-4
"""Time stamps that lie this close to k / fps are on the grid (LeRobot's own tolerance)."""
LONGEST = 1_000_000
"""Frames of the longest episode: more means a wrong time stamp."""


@dataclass(frozen=True)
class Gridded:
    """An episode's frames at times k / fps. Frames that are not valid were not measured, but hold finite numbers."""

    frame_valid: Bool[np.ndarray, " n"]
    valid: Bool[np.ndarray, "n N"]
    poses: Float[np.ndarray, "n N 7"]
    gripper_width_m: Float[np.ndarray, " n"] | None
    joints: Float[np.ndarray, "n Q"] | None
    actions: Float[np.ndarray, "n A"] | None  # row k led to frame k
    apart: tuple[float, float] | None  # if resampled: largest (m, deg) between it and the recording, at its times


def gridded(e: Episode, fps: float, *, where: str) -> Gridded:
    """A prepared episode at k / fps, the last frame at or after its end; `where` names it in the error.

    Where time stamps lie on the grid, frames are copied and those that lack repeat the one before. Else positions and
    joints are interpolated linearly, rotations along the great arc, and actions are those of the next recorded frame.

    Raises:
        InputError: the episode lasts more than `LONGEST` frames.
    """
    frames = np.flatnonzero(e.frame_valid)
    time_s = e.time_s[frames]
    n = max(2, int(np.ceil((time_s[-1] - ON_GRID_S) * fps)) + 1)
    if n > LONGEST:
        found = f"{time_s[-1]:.4g} s at {fps:g} fps"
        raise InputError(f"{where}: {found}, expected up to {LONGEST} frames; check its times")
    slots = np.rint(time_s * fps).astype(int)
    steps = np.diff(slots)
    if np.abs(slots / fps - time_s).max() < ON_GRID_S and steps.min() > 0 and np.median(steps) == 1:
        recorded, valid = np.zeros(n, bool), np.zeros((n, len(e.bodies)), bool)
        recorded[slots], valid[slots] = True, e.valid[frames]
        at = frames[np.maximum.accumulate(np.where(recorded, np.searchsorted(slots, np.arange(n)), 0))]
        width, joints = (None if a is None else a[at] for a in (e.gripper_width_m, e.joints))
        return Gridded(recorded, valid, e.poses[at], width, joints, None if e.actions is None else e.actions[at], None)
    grid_s = np.arange(n) / fps
    poses, valid, apart = _interpolated_bodies(e, frames, grid_s)
    width = None if e.gripper_width_m is None else np.interp(grid_s, time_s, e.gripper_width_m[frames])
    joints = None if e.joints is None else linear(e.joints[frames], time_s, grid_s)
    at = frames[np.minimum(np.searchsorted(time_s, grid_s - 1e-9), len(frames) - 1)]
    actions = None if e.actions is None else e.actions[at]
    frame_valid = _bracketed(frames, time_s, grid_s)
    return Gridded(frame_valid, valid & frame_valid[:, None], poses, width, joints, actions, apart)


def _interpolated_bodies(
    e: Episode, frames: np.ndarray, grid_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """(poses, valid, largest m and deg apart from the recording) of every body, by the frames in which it is valid."""
    poses, valid = np.empty((len(grid_s), len(e.bodies), 7)), np.zeros((len(grid_s), len(e.bodies)), bool)
    apart = [(0.0, 0.0)]
    for i in range(len(e.bodies)):
        mine = frames[e.valid[frames, i]]
        if len(mine) < 2:
            poses[:, i] = e.poses[mine[0] if len(mine) else 0, i]
            continue
        time_s, track = e.time_s[mine], e.poses[mine, i][:, None]
        made = poses_at(track, time_s, grid_s)
        poses[:, i], valid[:, i] = made[:, 0], _bracketed(mine, time_s, grid_s)
        apart.append(_apart(poses_at(made, grid_s, time_s), track))
    m, deg = zip(*apart, strict=True)
    return poses, valid, (max(m), max(deg))


def poses_at(poses: np.ndarray, time_s: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """[n, N, 7] poses at `at_s`: positions linearly, rotations along the great arc (unit, continuous quaternions)."""
    right = np.clip(np.searchsorted(time_s, at_s), 1, len(time_s) - 1)
    left = right - 1
    share = np.clip((at_s - time_s[left]) / (time_s[right] - time_s[left]), 0.0, 1.0)[:, None, None]
    return interpolated(poses[left], poses[right], share)


def linear(values: np.ndarray, time_s: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """[n, Q] values at `at_s`, each column linearly."""
    return np.stack([np.interp(at_s, time_s, column) for column in values.T], axis=1)


def _bracketed(frames: np.ndarray, time_s: np.ndarray, grid_s: np.ndarray) -> np.ndarray:
    """[n] whether a frame was recorded then, or neighbours on both sides, less than ten median steps or 0.5 s apart."""
    right = np.clip(np.searchsorted(time_s, grid_s), 1, len(time_s) - 1)
    steps = np.diff(time_s)
    near = steps <= max(10 * float(np.median(steps)), 0.5)
    neighbours = np.diff(frames) == 1
    recorded = np.minimum(np.abs(grid_s - time_s[right]), np.abs(grid_s - time_s[right - 1])) < ON_GRID_S
    return (near & neighbours)[right - 1] | recorded


def _apart(poses: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """(largest distance in metres, largest angle in degrees) between poses."""
    moved = np.linalg.norm(poses[..., 4:] - others[..., 4:], axis=-1).max(initial=0.0)
    difference = np.minimum(
        np.linalg.norm(poses[..., :4] - others[..., :4], axis=-1),
        np.linalg.norm(poses[..., :4] + others[..., :4], axis=-1),
    ).max(initial=0.0)
    return float(moved), float(np.degrees(4 * np.arcsin(min(difference / 2, 1.0))))
