"""Where an arm's tip was, from recorded joint positions (host, float64, many frames at once)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from jaxeval.io.poses import rotation_matrices
from jaxeval.io.readers.rotations import quaternions_of_matrices
from jaxeval.robots import Robot
from jaxeval.types import IDENTITY_POSE


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
    base = np.where(known[:, None], base, IDENTITY_POSE)
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
