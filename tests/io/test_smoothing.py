"""Smoothing: lines stay, white noise shrinks as the kernel says, ends do not lag, what is not smoothed stays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from jaxeval.io.smoothing import smoothed
from jaxeval.types import Episode, InputError


def episode(xyz: np.ndarray, rate_hz: float = 20.0) -> Episode:
    n = len(xyz)
    body = np.concatenate([np.tile([1.0, 0, 0, 0], (n, 1)), xyz], axis=1)
    still = np.tile([1.0, 0, 0, 0, 0.5, 0, 0], (n, 1))
    return Episode.of(
        poses=np.stack([body, still], axis=1), time_s=np.arange(n) / rate_hz, valid=np.ones(n, bool), bodies=("a", "b")
    )


def test_a_line_stays_a_line_up_to_both_ends() -> None:
    xyz = np.linspace([0, 0, 0], [0.3, -0.1, 0.2], 40)
    np.testing.assert_allclose(smoothed(episode(xyz), 0.5).poses[:, 0, 4:], xyz, atol=1e-12)


def test_white_noise_shrinks_by_the_kernel() -> None:
    noise = np.random.default_rng(0).normal(0, 0.002, (4000, 3))
    out = smoothed(episode(noise), 0.5).poses[20:-20, 0, 4:]
    u = np.arange(-4, 5) / 5  # frames within 0.25 s at 20 Hz; in the middle the line's value is the weighted mean
    w = (1 - u**2) ** 2
    assert out.std() == pytest.approx(0.002 * np.sqrt((w**2).sum()) / w.sum(), rel=0.05)


def test_lost_frames_do_not_count_and_stay_lost() -> None:
    xyz = np.zeros((40, 3))
    e = episode(xyz)
    bad = e.poses.copy()
    bad[10:14, 0, 4] = 9.0
    lost = dataclasses.replace(e, poses=bad, frame_valid=~np.isin(np.arange(40), range(10, 14)))
    out = smoothed(lost, 0.5)
    np.testing.assert_allclose(out.poses[out.frame_valid, 0, 4:], 0, atol=1e-12)
    assert not out.valid[10:14].any() and out.valid[:, 0].sum() == 36


def test_rotations_stay_unit_and_a_steady_turn_stays() -> None:
    e = episode(np.zeros((40, 3)))
    half = 0.5 * 0.4 * e.time_s
    poses = e.poses.copy()
    poses[:, 0, :4] = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=1)
    poses[::2, 0, :4] *= -1  # the same rotations
    out = smoothed(dataclasses.replace(e, poses=poses), 0.4).poses[:, 0, :4]
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-12)
    out = out * np.sign(out[:, :1])
    np.testing.assert_allclose(2 * np.arctan2(out[:, 3], out[:, 0]), 0.4 * e.time_s, atol=1e-4)


def test_only_the_bodies_asked_for_and_bad_windows() -> None:
    noise = np.random.default_rng(0).normal(0, 0.002, (40, 3))
    e = episode(noise)
    np.testing.assert_array_equal(smoothed(e, 0.5, bodies=["b"]).poses[:, 0], e.prepared().poses[:, 0])
    with pytest.raises(InputError, match=r"window_s is 0; expected a positive number of seconds"):
        smoothed(e, 0)
