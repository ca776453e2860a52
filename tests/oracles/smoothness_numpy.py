"""Float64 NumPy twins of SPARC and of the jerk, written from their definitions: a long transform, least squares.

Also the signals whose SPARC is known, by their formulas.
"""

from __future__ import annotations

import numpy as np


def sparc(speed: np.ndarray, rate_hz: float, *, cutoff_hz: float = 10.0, amplitude: float = 0.05, padlevel: int = 4):
    """(value, frequency of the last bin) of evenly sampled speeds; the band ends at half the rate."""
    K = 2 ** (int(np.ceil(np.log2(len(speed)))) + padlevel)
    M = np.abs(np.fft.rfft(speed, K))
    M = M / M.max()
    f = np.arange(len(M)) * rate_hz / K
    inside = np.flatnonzero(f <= min(cutoff_hz, rate_hz / 2))
    above = np.flatnonzero(M[inside] >= amplitude)
    f, M = f[above[0] : above[-1] + 1], M[above[0] : above[-1] + 1]
    return -np.sum(np.sqrt((np.diff(f) / (f[-1] - f[0])) ** 2 + np.diff(M) ** 2)), f[-1]


def jerk(positions: np.ndarray, time_s: np.ndarray, *, window_s: float, degree: int = 5) -> np.ndarray:
    """Third derivative at every frame of the polynomial fitted to the frames of its window, [T, 3]."""
    half = min(window_s / 2, (time_s[-1] - time_s[0]) / 2)
    out = np.zeros_like(positions)
    for i, t in enumerate(time_s):
        centre = np.clip(t, time_s[0] + half, time_s[-1] - half)
        near = np.abs(time_s - centre) <= half * 1.001
        powers = ((time_s[near] - t)[:, None] / half) ** np.arange(degree + 1)
        out[i] = 6 * np.linalg.lstsq(powers, positions[near], rcond=None)[0][3] / half**3
    return out


def minimum_jerk(tau: np.ndarray) -> np.ndarray:
    """Position of a unit reach at share tau of its duration; it rests before and after."""
    tau = np.clip(tau, 0, 1)
    return 10 * tau**3 - 15 * tau**4 + 6 * tau**5


def minimum_jerk_speed(tau: np.ndarray) -> np.ndarray:
    return 30 * tau**2 - 60 * tau**3 + 30 * tau**4


def noise(n: int, seed: int) -> np.ndarray:
    """Normal numbers that any language can make: a linear congruence and Box and Muller's cosine."""
    state, u = seed, []
    for _ in range(2 * n):
        state = (1664525 * state + 1013904223) % 2**32
        u.append(state / 2**32)
    u0, u1 = np.array(u[::2]), np.array(u[1::2])
    return np.sqrt(-2 * np.log(u0)) * np.cos(2 * np.pi * u1)


def known_signals() -> dict[str, np.ndarray]:
    """Speeds of tests/golden/sparc_reference.json, made from the formulas that stand there."""
    bump = 0.3 * minimum_jerk_speed(np.arange(101) / 100)
    slow = 0.1 * minimum_jerk_speed(np.arange(49) / 48)
    teleport, stutter = slow.copy(), slow.copy()
    teleport[30] += 2.0
    stutter[(np.arange(49) // 4) % 2 == 1] = 0
    out = {
        "gauss_doctest": np.exp(-5 * (np.arange(200) / 100 - 1) ** 2),
        "min_jerk": bump,
        "two_overlapped": np.pad(bump, (0, 50)) + np.pad(bump, (50, 0)),
        "two_separated": np.pad(bump, (0, 150)) + np.pad(bump, (150, 0)),
        "min_jerk_noisy": np.abs(bump + 0.05 * bump.max() * noise(101, 12345)),
        "short_4": np.array([0.0, 1, 1, 0]),
        "short_2": np.array([0.0, 1]),
        "single": np.ones(1),
        "const_zero": np.zeros(50),
        "const_one": np.ones(100),
        "impulse": np.eye(50)[25],
        "min_jerk_49f17_teleport": teleport,
        "min_jerk_49f17_stutter": stutter,
        "min_jerk_49f17_jitter": np.abs(slow + 0.1 * noise(49, 777)),
    }
    for rate_hz in (8, 10, 16, 17, 24, 30, 100):
        tau = np.arange(3 * rate_hz + 1) / (3 * rate_hz)
        out[f"min_jerk_T3_fs{rate_hz}"] = 0.1 * minimum_jerk_speed(tau)
    return out
