"""Poses as rows, wxyz_xyz: composed, inverted, interpolated (host, NumPy, float64, many at once).

The traced counterparts, written for one pose, are in ``jaxeval.se3``. ``T_b_a`` maps coordinates of a to coordinates of
b: its first four numbers are a unit quaternion (w first), the last three metres.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from jaxeval.linalg import conjugate, product, rotated, rotation_rows


def unit(q: Float[np.ndarray, "... 4"]) -> Float[np.ndarray, "... 4"]:
    """Unit quaternions; NaN where the length is zero (below 1e-9) or not finite."""
    length = np.linalg.norm(q, axis=-1, keepdims=True)
    fine = np.isfinite(length) & (length > 1e-9)
    return np.where(fine, q / np.where(fine, length, 1.0), np.nan)


def from_xyzw(position_m: Float[np.ndarray, "... 3"], xyzw: Float[np.ndarray, "... 4"]) -> Float[np.ndarray, "... 7"]:
    """Poses (wxyz_xyz) of positions and quaternions whose scalar comes last."""
    return np.concatenate([xyzw[..., 3:], xyzw[..., :3], position_m], axis=-1)


def rotation_matrices(wxyz: Float[np.ndarray, "... 4"]) -> Float[np.ndarray, "... 3 3"]:
    """Rotation matrices of quaternions, which are normalised; a zero one gives NaN."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        q = np.moveaxis(wxyz / np.linalg.norm(wxyz, axis=-1, keepdims=True), -1, 0)
    return np.moveaxis(np.array(rotation_rows(q)), (0, 1), (-2, -1))


def turned(wxyz: Float[np.ndarray, "... 4"], v: Float[np.ndarray, "... 3"]) -> Float[np.ndarray, "... 3"]:
    """``v`` turned by unit quaternions."""
    return np.stack(rotated(np.moveaxis(wxyz, -1, 0), np.moveaxis(v, -1, 0)), axis=-1)


def inverse_turn(wxyz: Float[np.ndarray, "... 4"]) -> Float[np.ndarray, "... 4"]:
    """Unit quaternions of the opposite turns."""
    return np.stack(conjugate(np.moveaxis(wxyz, -1, 0)), axis=-1)


def turn_from(start: Float[np.ndarray, "... 4"], end: Float[np.ndarray, "... 4"]) -> Float[np.ndarray, "... 4"]:
    """``start^* end``: the turn, in the body's frame, from one orientation to another."""
    q = product(conjugate(np.moveaxis(start, -1, 0)), np.moveaxis(end, -1, 0))
    return np.stack(np.broadcast_arrays(*q), axis=-1)


def composed(T_a_b: Float[np.ndarray, "T 7"], T_b_c: Float[np.ndarray, "T 7"]) -> Float[np.ndarray, "T 7"]:
    """``T_a_c = T_a_b T_b_c``, row by row."""
    A, B = np.asarray(T_a_b, np.float64), np.asarray(T_b_c, np.float64)
    wxyz = np.stack(product(A[:, :4].T, B[:, :4].T), axis=1)
    moved = np.einsum("tij,tj->ti", rotation_matrices(A[:, :4]), B[:, 4:])
    return np.concatenate([wxyz, A[:, 4:] + moved], axis=1)


def inverted(T_a_b: Float[np.ndarray, "T 7"]) -> Float[np.ndarray, "T 7"]:
    """``T_b_a``, row by row."""
    wxyz = inverse_turn(T_a_b[:, :4])
    return np.concatenate([wxyz, -np.einsum("tij,tj->ti", rotation_matrices(wxyz), T_a_b[:, 4:])], axis=1)


def position_in(T_w_a: Float[np.ndarray, "... 7"], T_w_b: Float[np.ndarray, "... 7"]) -> Float[np.ndarray, "... 3"]:
    """Position of a in b's frame."""
    return turned(inverse_turn(T_w_b[..., :4]), T_w_a[..., 4:] - T_w_b[..., 4:])


def interpolated(
    start: Float[np.ndarray, "... 7"], end: Float[np.ndarray, "... 7"], share: Float[np.ndarray, "... 1"]
) -> Float[np.ndarray, "... 7"]:
    """Poses at ``share`` (0 to 1) of the way: positions linearly, rotations along the great arc, the short way round.

    ``q = (sin((1 - f) a) p + sin(f a) r) / sin a`` with ``cos a = |p . r|`` for unit quaternions p and r.
    """
    cosine = np.sum(start[..., :4] * end[..., :4], axis=-1, keepdims=True)
    angle = np.arccos(np.clip(np.abs(cosine), 0.0, 1.0))
    near = angle < 1e-6  # the arc is straight there, and sin(angle) no divisor
    sine = np.where(near, 1.0, np.sin(angle))
    weights = [np.where(near, w, np.sin(w * angle) / sine) for w in (1 - share, share)]
    wxyz = weights[0] * start[..., :4] + weights[1] * np.where(cosine < 0, -1.0, 1.0) * end[..., :4]
    wxyz /= np.linalg.norm(wxyz, axis=-1, keepdims=True)
    return np.concatenate([wxyz, (1 - share) * start[..., 4:] + share * end[..., 4:]], axis=-1)
