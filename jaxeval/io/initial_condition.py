"""What names an episode's start: the id that a benchmark gives it, and a hash of where the bodies were."""

from __future__ import annotations

import hashlib
import re

import numpy as np
from jaxtyping import Float

STEP = 1e-6
"""Poses are rounded to this (metres, quaternion components) before hashing."""


def initial_condition_id(env_id: str, seed: int | None) -> str | None:
    """``StackCube-v1/seed=12``; None when the seed is not known."""
    return None if seed is None else f"{env_id}/seed={seed}"


def initial_condition_hash(
    poses: Float[np.ndarray, "N 7"], bodies: tuple[str, ...], joints: Float[np.ndarray, " Q"] | None = None
) -> str:
    """16 hex digits of the SHA-256 of first poses (wxyz_xyz, world) by body name: equal starts, equal hash.

    The poses go through float32 first, which is what simulators and stores keep, so that the same start read from two
    files hashes alike; q and -q are one rotation. Give the movable actors only: a file without the gripper's pose
    then still matches one with it.
    """
    total = hashlib.sha256()
    for name, pose in sorted(zip(bodies, np.asarray(poses, np.float32).astype(np.float64), strict=True)):
        lead = pose[:4][np.argmax(np.abs(pose[:4]))]
        pose = np.concatenate([pose[:4] * (-1.0 if lead < 0 else 1.0), pose[4:]])
        total.update(name.encode() + np.round(pose / STEP).astype(np.int64).tobytes())
    if joints is not None:
        total.update(b"joints" + np.round(np.asarray(joints, np.float32) / STEP).astype(np.int64).tobytes())
    return total.hexdigest()[:16]


def task_name(env_id: str) -> str:
    """``PegInsertionSide-v1`` -> ``peg_insertion_side``."""
    stem = re.sub(r"-v\d+$", "", env_id)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", stem).lower()
