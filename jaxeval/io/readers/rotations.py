"""Rotation matrices as files hold them, made into unit quaternions (host, float64)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from jaxeval.io.errors import InputError
from jaxeval.types import Finding

TOLERATED = 1e-6


def quaternions_of_matrices(
    matrices: Float[np.ndarray, "n 3 3"], *, where: str
) -> tuple[Float[np.ndarray, "n 4"], tuple[Finding, ...]]:
    """(wxyz, findings) of matrices that are rotations or nearly so, each projected to the nearest rotation.

    The nearest in the Frobenius norm is U diag(1, 1, det(U V^T)) V^T of the singular value decomposition. Rows that
    are off (``|R^T R - I|`` above 1e-6) are counted in a finding with the largest |det - 1|. Rows with NaN become the
    quaternion (0, 0, 0, 0), which marks the frame invalid. InputError where a row is no rotation at all (a mirror, or a
    scale beyond 10 %): then the file means something else.
    """
    matrices = np.asarray(matrices, np.float64)
    finite = np.asarray(np.isfinite(matrices).all(axis=(1, 2)))
    R = np.where(finite[:, None, None], matrices, np.eye(3))
    det = np.linalg.det(R)
    if (np.abs(det - 1) > 0.1).any():
        row = int(np.argmax(np.abs(det - 1)))
        raise InputError(
            f"{where}: row {row} has determinant {det[row]:.4g}; expected a rotation matrix (1); "
            "check the order of its entries and whether it holds a scale or a mirror"
        )
    u, _, vt = np.linalg.svd(R)
    sign = np.ones((len(R), 3))
    sign[:, 2] = np.linalg.det(u @ vt)
    nearest = (u * sign[:, None]) @ vt
    off = np.abs(np.swapaxes(R, 1, 2) @ R - np.eye(3)).max(axis=(1, 2)) > TOLERATED
    findings: tuple[Finding, ...] = ()
    if off.any():
        size = float(np.abs(det - 1)[off].max())
        findings = (
            Finding(
                "rotation_defect",
                "warning",
                where,
                f"{int(off.sum())} of {len(R)} matrices are not quite rotations (|det - 1| up to {size:.3g})",
                "orthonormal matrices",
                "projected to the nearest rotation",
            ),
        )
    return np.where(finite[:, None], _wxyz(nearest), 0.0), findings


def _wxyz(R: Float[np.ndarray, "n 3 3"]) -> Float[np.ndarray, "n 4"]:
    """Unit quaternions: the dominant eigenvector of Bar-Itzhack's symmetric 4 x 4 matrix, w not negative."""
    K = np.empty((len(R), 4, 4))
    trace = np.trace(R, axis1=1, axis2=2)
    K[:, 0, 0] = trace
    K[:, 1:, 1:] = R + np.swapaxes(R, 1, 2) - trace[:, None, None] * np.eye(3)
    skew = np.stack([R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]], axis=1)
    K[:, 0, 1:] = K[:, 1:, 0] = skew
    q = np.linalg.eigh(K)[1][:, :, -1]
    return q * np.where(q[:, :1] < 0, -1.0, 1.0)
