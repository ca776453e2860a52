"""Small linear algebra against NumPy's and SciPy's, and the gradients where a formula of the books has none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxeval import linalg


def test_singular_values_against_numpy_whatever_the_shape() -> None:
    rng = np.random.default_rng(0)
    for m, n in [(6, 7), (6, 5), (3, 7)]:
        J = rng.normal(size=(m, n, 40))
        J[:, :, 0] = np.outer(rng.normal(size=m), rng.normal(size=n))  # rank one
        J[:, :, 1] = 0.0
        with jax.enable_x64():
            ours, w = jax.jit(lambda J: (linalg.singular_values(J), linalg.volume(J)))(jnp.asarray(J))
        theirs = np.linalg.svd(np.moveaxis(J, -1, 0), compute_uv=False)
        np.testing.assert_allclose(ours.T, theirs, atol=1e-10)
        np.testing.assert_allclose(w, theirs.prod(axis=1), atol=1e-10)
        small = np.asarray(jax.jit(linalg.singular_values)(jnp.asarray(J, jnp.float32)))
        np.testing.assert_allclose(small.T, theirs, atol=2e-5)


@pytest.mark.parametrize("n", [2, 6, 12])
def test_eigenvalues_and_vectors_against_numpy(n: int) -> None:
    half = np.random.default_rng(n).normal(size=(20, n, n))
    A = half @ np.swapaxes(half, 1, 2)
    A[0] = np.eye(n)  # all eigenvalues alike
    A[1] = 0.0
    A[2] = np.outer(half[2, 0], half[2, 0])  # rank one
    with jax.enable_x64():
        values, vectors = jax.jit(jax.vmap(linalg.eigh_small))(jnp.asarray(A))
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A), atol=1e-10)
    np.testing.assert_allclose(vectors @ (values[..., None] * np.swapaxes(vectors, 1, 2)), A, atol=1e-10)
    np.testing.assert_allclose(np.swapaxes(vectors, 1, 2) @ vectors, np.broadcast_to(np.eye(n), A.shape), atol=1e-12)


def test_roots_have_finite_gradients_at_zero() -> None:
    x = jnp.array([0.0, 4.0, -1.0])
    np.testing.assert_allclose(linalg.safe_sqrt(x), [0.0, 2.0, 0.0])
    np.testing.assert_allclose(jax.vmap(jax.grad(linalg.safe_sqrt))(x), [0.0, 0.25, 0.0])
    v = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(linalg.safe_norm(v), [0.0, 5.0])
    np.testing.assert_allclose(linalg.safe_norm(v, axis=0), [3.0, 4.0])
    np.testing.assert_allclose(jax.grad(lambda v: linalg.safe_norm(v).sum())(v), [[0.0, 0.0], [0.6, 0.8]], rtol=1e-6)


def test_small_systems_against_numpy() -> None:
    rng = np.random.default_rng(0)
    B = rng.normal(size=(50, 6, 7))
    A, b = B @ B.swapaxes(1, 2), rng.normal(size=(50, 6))
    with jax.enable_x64():
        x = linalg.solve_positive(jnp.asarray(A.transpose(1, 2, 0)), jnp.asarray(b.T), damping=0.3)
    np.testing.assert_allclose(x.T, np.linalg.solve(A + 0.3 * np.eye(6), b[..., None])[..., 0], rtol=1e-9)


def test_factors_and_triangular_solves_give_back_what_they_were_made_of() -> None:
    W = np.random.default_rng(0).normal(size=(10, 6))
    W[:, 3] = W[:, 0] - 2 * W[:, 1]  # explained by the columns before it
    with jax.enable_x64():
        Q, L, rank = linalg.orthonormal(jnp.asarray(W), tolerance=1e-9)
        x = jnp.arange(1.0, 7.0)
        down, up = linalg.solve_lower(L, x), linalg.solve_lower_transposed(L, x)
    Q, L, x, down, up = map(np.asarray, (Q, L, x, down, up))
    assert rank == 5
    np.testing.assert_allclose(Q @ L.T, W, atol=1e-12)
    np.testing.assert_allclose(Q.T @ Q, np.diag([1.0, 1, 1, 0, 1, 1]), atol=1e-12)
    np.testing.assert_allclose(L @ down, x, atol=1e-12)
    np.testing.assert_allclose(L.T @ up, x, atol=1e-12)


def test_quaternions_of_numpy_arrays_against_scipy() -> None:
    rng = np.random.default_rng(0)
    p, q = Rotation.random(50, rng=rng), Rotation.random(50, rng=rng)
    a, b = (r.as_quat(scalar_first=True).T for r in (p, q))
    v = rng.normal(size=(50, 3))
    R = np.array(linalg.rotation_rows(a))
    np.testing.assert_allclose(np.moveaxis(R, -1, 0), p.as_matrix(), atol=1e-12)
    np.testing.assert_allclose(np.array(linalg.rotated(a, v.T)).T, p.apply(v), atol=1e-12)
    np.testing.assert_allclose(np.array(linalg.rotated(linalg.conjugate(a), v.T)).T, p.inv().apply(v), atol=1e-12)
    made = np.array(linalg.product(a, b)).T
    np.testing.assert_allclose(np.abs(np.sum(made * (p * q).as_quat(scalar_first=True), axis=1)), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.array(linalg.rotated(2 * a, v.T)).T, 4 * p.apply(v), atol=1e-12)
    np.testing.assert_allclose(np.array(linalg.rotation_rows(2 * a, square=4)), 4 * R, atol=1e-12)
