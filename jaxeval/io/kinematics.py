"""Where an arm's tip was, from recorded joint positions (host, float64, many frames at once)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from jaxeval.io.readers.rotations import quaternions_of_matrices
from jaxeval.robots import Robot


def tip_poses(
    robot: Robot, joints: Float[np.ndarray, "T n"], T_world_base: Float[np.ndarray, "T 7"]
) -> Float[np.ndarray, "T 7"]:
    """``T_world_tip`` (wxyz_xyz) of every frame: the base's pose composed with the chain of `robot`.

    Joints in radians or metres, in the order of ``robot.joint_names``; each turns about, or slides along, its frame's
    z axis, as in ``robots.forward_kinematics`` (which compiles anew for every length, so it is not used here). A frame
    whose numbers are not finite, or whose base has no orientation, becomes the quaternion (0, 0, 0, 0), which marks it
    invalid.
    """
    joints, base = np.asarray(joints, np.float64), np.asarray(T_world_base, np.float64)
    known = np.isfinite(joints).all(axis=1) & np.isfinite(base).all(axis=1) & (np.abs(base[:, :4]).max(axis=1) > 1e-9)
    q = np.where(known[:, None], joints, 0.0)
    base = np.where(known[:, None], base, [1.0, 0, 0, 0, 0, 0, 0])
    R, t = rotation_matrices(base[:, :4]), base[:, 4:]
    for i, sliding in enumerate(robot.sliding):
        t = t + R @ np.asarray(robot.t_parent_joint[i], np.float64)
        R = R @ np.asarray(robot.R_parent_joint[i], np.float64)
        if sliding:
            t = t + R[:, :, 2] * q[:, i : i + 1]
        else:
            half, zero = q[:, i] / 2, np.zeros(len(q))
            R = R @ rotation_matrices(np.stack([np.cos(half), zero, zero, np.sin(half)], axis=1))
    t = t + R @ np.asarray(robot.t_last_tip, np.float64)
    wxyz, _ = quaternions_of_matrices(R @ np.asarray(robot.R_last_tip, np.float64), where=robot.name)
    return np.concatenate([np.where(known[:, None], wxyz, 0.0), np.where(known[:, None], t, 0.0)], axis=1)


def composed(T_a_b: Float[np.ndarray, "T 7"], T_b_c: Float[np.ndarray, "T 7"]) -> Float[np.ndarray, "T 7"]:
    """``T_a_c = T_a_b T_b_c`` (wxyz_xyz)."""
    w, x, y, z = np.asarray(T_a_b, np.float64)[:, :4].T
    W, X, Y, Z = np.asarray(T_b_c, np.float64)[:, :4].T
    wxyz = np.stack(
        [
            w * W - x * X - y * Y - z * Z,
            w * X + x * W + y * Z - z * Y,
            w * Y - x * Z + y * W + z * X,
            w * Z + x * Y - y * X + z * W,
        ],
        axis=1,
    )
    moved = np.einsum("tij,tj->ti", rotation_matrices(T_a_b[:, :4]), T_b_c[:, 4:])
    return np.concatenate([wxyz, T_a_b[:, 4:] + moved], axis=1)


def rotation_matrices(wxyz: Float[np.ndarray, "T 4"]) -> Float[np.ndarray, "T 3 3"]:
    """Rotation matrices of quaternions, which are normalised; a zero one gives NaN."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        w, x, y, z = (wxyz / np.linalg.norm(wxyz, axis=1, keepdims=True)).T
    return np.stack(
        [
            np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], axis=1),
            np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], axis=1),
            np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], axis=1),
        ],
        axis=1,
    )
