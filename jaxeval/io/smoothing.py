"""Tracks of a noisy tracker made smooth before they are scored: a local line through the frames around each one."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np
from jaxtyping import Bool, Float

from jaxeval.types import Episode, InputError


def smoothed(episode: Episode, window_s: float, *, bodies: Collection[str] | None = None) -> Episode:
    """Prepared copy whose poses (of ``bodies``, default all) follow a line fitted around each frame.

    Every component of a pose (position, and the quaternion made continuous and then unit again) is fitted by a line
    over the frames within half of ``window_s`` (seconds) in which the body is valid, weighted by (1 - (dt / half)^2)^2;
    the pose of a frame is the line's value there. At rest this averages white noise, and at either end it neither lags
    nor stops short; where a body accelerates by a it is off by a h^2 / 14, h half the window: 2 mm at 0.5 m/s^2 and 0.5
    s. What is invalid stays so. InputError for a window that is not positive. Weighted local regression: Cleveland
    1979.
    """
    if not window_s > 0:
        raise InputError(f"window_s is {window_s}; expected a positive number of seconds; correct the setting")
    e = episode.prepared()
    poses = e.poses.copy()
    kernels: dict[bytes, np.ndarray] = {}
    for name in e.bodies if bodies is None else bodies:
        i, valid = e.bodies.index(name), e.valid_of(name)
        if (key := valid.tobytes()) not in kernels:
            kernels[key] = _kernel(e.time_s, valid, window_s / 2)
        poses[:, i] = kernels[key] @ e.poses[:, i]
    poses[..., :4] /= np.linalg.norm(poses[..., :4], axis=-1, keepdims=True)
    return dataclasses.replace(e, poses=poses)


def _kernel(time_s: Float[np.ndarray, " T"], valid: Bool[np.ndarray, " T"], half_s: float) -> Float[np.ndarray, "T T"]:
    """Weights of all frames in the fitted value of each."""
    dt = time_s[None] - time_s[:, None]
    w = np.where(valid[None], np.clip(1 - (dt / half_s) ** 2, 0, None) ** 2, 0.0)
    w[np.diag_indices_from(w)] = np.maximum(w[np.diag_indices_from(w)], 1e-9)
    s0, s1, s2 = w.sum(axis=1), (w * dt).sum(axis=1), (w * dt * dt).sum(axis=1)
    alone = s0 * s2 - s1 * s1 <= 1e-12 * s0**2 * half_s**2  # a single frame within reach: it stays as it is
    kernel = np.where(alone[:, None], np.eye(len(dt)), (w * (s2[:, None] - s1[:, None] * dt)))
    return kernel / kernel.sum(axis=1, keepdims=True)
