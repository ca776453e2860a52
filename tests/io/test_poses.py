"""Rows of poses against SciPy's rigid transforms."""

import numpy as np
import pytest
from scipy.spatial.transform import RigidTransform, Rotation, Slerp

from jaxeval.io import poses as P


def drawn(seed: int, n: int = 30) -> tuple[np.ndarray, RigidTransform]:
    rng = np.random.default_rng(seed)
    T = RigidTransform.from_components(rng.normal(size=(n, 3)), Rotation.random(n, rng=rng))
    return np.concatenate([T.rotation.as_quat(scalar_first=True), T.translation], axis=1), T


def same(rows: np.ndarray, T: RigidTransform) -> None:
    np.testing.assert_allclose(rows[:, 4:], T.translation, atol=1e-12)
    cosine = np.abs(np.sum(rows[:, :4] * T.rotation.as_quat(scalar_first=True), axis=1))
    np.testing.assert_allclose(cosine, 1.0, atol=1e-12)


def test_composed_and_inverted() -> None:
    (a, A), (b, B) = drawn(0), drawn(1)
    same(P.composed(a, b), A * B)
    same(P.inverted(a), A.inv())
    np.testing.assert_allclose(P.position_in(a, b), (B.inv() * A).translation, atol=1e-12)
    np.testing.assert_allclose(P.turned(a[:, :4], b[:, 4:]), A.rotation.apply(B.translation), atol=1e-12)
    same(np.concatenate([P.turn_from(a[:, :4], b[:, :4]), b[:, 4:]], axis=1),
         RigidTransform.from_components(B.translation, A.rotation.inv() * B.rotation))  # fmt: skip
    np.testing.assert_allclose(P.rotation_matrices(3 * a[None, :, :4])[0], A.rotation.as_matrix(), atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_interpolated_the_short_way_round(share: float) -> None:
    (a, A), (b, B) = drawn(0), drawn(1)
    b[0] = a[0]  # no way to go
    for sign in (1.0, -1.0):
        turned = b * np.array([sign] * 4 + [1.0] * 3)
        made = P.interpolated(a, turned, np.full((len(a), 1), share))
        for row, start, end in zip(made[1:], A[1:], B[1:], strict=True):
            at = Slerp([0.0, 1.0], Rotation.concatenate([start.rotation, end.rotation]))(share)
            assert abs(row[:4] @ at.as_quat(scalar_first=True)) == pytest.approx(1.0, abs=1e-12)
            np.testing.assert_allclose(row[4:], (1 - share) * start.translation + share * end.translation)
        np.testing.assert_allclose(made[0], a[0], atol=1e-12)


def test_zero_quaternions_become_nan_and_scalar_last_ones_are_reordered() -> None:
    q = P.unit(np.array([[0.0, 0, 0, 0], [0, 0, 3, 4], [np.inf, 0, 0, 1]]))
    assert np.isnan(q[[0, 2]]).all()
    np.testing.assert_allclose(q[1], [0, 0, 0.6, 0.8])
    np.testing.assert_array_equal(P.from_xyzw(np.array([[1, 2, 3]]), np.array([[4, 5, 6, 7]])), [[7, 4, 5, 6, 1, 2, 3]])
