"""Float64 SciPy twin of the pose errors: rotations are scipy's, nearest points come from a KD-tree."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation


def errors(estimate: np.ndarray, truth: np.ndarray, points: np.ndarray, turns: Rotation) -> dict[str, float]:
    """Errors of one pose (wxyz_xyz) from the true one; ``turns`` are the body's symmetries, identity included."""
    R_est, R = (Rotation.from_quat(p[:4], scalar_first=True) for p in (estimate, truth))
    seen = R_est.apply(points) + estimate[4:]
    meant = R.apply(points) + truth[4:]
    copies = [R.apply(turn.apply(points)) + truth[4:] for turn in turns]
    return {
        "translation_m": float(np.linalg.norm(estimate[4:] - truth[4:])),
        "rotation_rad": float((R.inv() * R_est).magnitude()),
        "rotation_symmetric_rad": float(min((R.inv() * R_est * turn).magnitude() for turn in turns)),
        "add_m": float(np.linalg.norm(seen - meant, axis=1).mean()),
        "add_s_m": float(cKDTree(meant).query(seen)[0].mean()),
        "mssd_m": float(min(np.linalg.norm(seen - copy, axis=1).max() for copy in copies)),
    }
