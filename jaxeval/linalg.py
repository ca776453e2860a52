"""Small linear algebra in plain arithmetic: roots with finite gradients, small eigenproblems, quaternions.

Matrices here are so small (2 to 12 rows) and their batches so large that unrolled arithmetic beats a library's calls:
it runs under ``vmap`` on any device. LAPACK's batched calls wait for the very threads that run them, and two of them in
one program can hang on a CPU of two cores (jaxlib 0.10). Where a docstring says ``[n, ...]``, the components lead and
any number of matrices or vectors lies along the axes that follow. The quaternion functions use operators alone and
take NumPy and JAX arrays.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# -------------------------------------------------------------------------------------------------- roots and quotients


def safe_sqrt(square: Float[Array, "..."]) -> Float[Array, "..."]:
    """Square root whose gradient at zero is zero instead of infinite; 0 for a negative number.

    >>> float(safe_sqrt(jnp.array(9.0))), float(jax.grad(safe_sqrt)(0.0))
    (3.0, 0.0)
    """
    positive = square > 0
    # The inner where keeps sqrt away from 0, whose derivative is infinite and would give 0 * inf = NaN.
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def safe_norm(x: Float[Array, "..."], *, axis: int = -1) -> Float[Array, "..."]:
    """Euclidean length along ``axis``, with gradient zero at zero instead of NaN."""
    return safe_sqrt(jnp.sum(x * x, axis=axis))


def divisor(x: Any) -> Array:
    """``x`` where it is positive, 1 elsewhere: what to divide by where the quotient is then not used, or 0 / 0 is 0.

    >>> [float(divisor(jnp.array(x))) for x in (2.0, 0.0, -3.0)]
    [2.0, 1.0, 1.0]
    """
    return jnp.where(x > 0, x, 1.0)


# --------------------------------------------------------------------------------------- eigenvalues, singular values


def round_robin(n: int) -> list[np.ndarray]:
    """Partner of every index in each round of a round-robin of n (even) players: n - 1 rounds of disjoint pairs."""
    order, rounds = list(range(n)), []
    for _ in range(n - 1):
        partner = np.empty(n, np.int32)
        for p, q in zip(order[: n // 2], order[: n // 2 - 1 : -1], strict=True):
            partner[p], partner[q] = q, p
        rounds.append(partner)
        order = [order[0], order[-1], *order[1:-1]]
    return rounds


def _jacobi(difference: Array, across: Array, sign: Array) -> tuple[Array, Array]:
    """(cosine, sine) of the rotations that make two rows orthogonal, or an off-diagonal entry zero.

    ``across`` is the entry between the two of a pair, ``difference`` the diagonal entry of the other less one's own,
    ``sign`` 1 for the first of a pair and -1 for the second, which turns the opposite way.
    """
    flat = jnp.abs(across) < float(jnp.finfo(across.dtype).tiny) * 1e4
    tau = sign * difference / jnp.where(flat, 1.0, 2.0 * across)
    t = sign * jnp.where(tau < 0, -1.0, 1.0) / (jnp.abs(tau) + jnp.sqrt(1.0 + tau * tau))
    t = jnp.where(flat, 0.0, t)
    c = 1.0 / jnp.sqrt(1.0 + t * t)
    return c, t * c


def eigh_small(A: Float[Array, "n n"], *, sweeps_n: int = 7) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """(ascending eigenvalues, eigenvectors as columns) of a small symmetric matrix of even size, by Jacobi rotations.

    Disjoint pairs of rows are rotated together. 7 sweeps bring a matrix of 12 rows to float64's precision.
    """
    n = A.shape[0]
    row, partners = np.arange(n), np.stack(round_robin(n))
    signs = jnp.asarray(np.where(row[None] < partners, 1.0, -1.0), A.dtype)

    def rotate(i: Int[Array, ""], carry: tuple[Float[Array, "n n"], Float[Array, "n n"]]):
        A, V = carry
        partner = jnp.asarray(partners)[i % (n - 1)]
        own = jnp.diagonal(A)
        across = 0.5 * (A[row, partner] + A[partner, row])  # the same for both of a pair, to the last bit
        c, s = _jacobi(own[partner] - own, across, signs[i % (n - 1)])
        A = c[:, None] * A - s[:, None] * A[partner]
        return A * c[None] - A[:, partner] * s[None], V * c[None] - V[:, partner] * s[None]

    A, V = jax.lax.fori_loop(0, sweeps_n * (n - 1), rotate, (0.5 * (A + A.T), jnp.eye(n, dtype=A.dtype)))
    order = jnp.argsort(jnp.diagonal(A))
    return jnp.diagonal(A)[order], V[:, order]


def singular_values(J: Float[Array, "m n ..."], *, sweeps_n: int = 6) -> Float[Array, "k ..."]:
    """Singular values of small matrices, largest first (k = min(m, n)), by one-sided Jacobi rotations.

    Pairs of rows are turned until all are orthogonal; their lengths are the singular values. Small values keep their
    digits, since nothing is squared.
    """
    if J.shape[0] > J.shape[1]:
        J = jnp.swapaxes(J, 0, 1)
    m = J.shape[0]
    if m % 2:
        J = jnp.concatenate([J, jnp.zeros_like(J[:1])])
    partners = np.stack(round_robin(len(J)))
    own = np.arange(len(J))
    first = jnp.asarray(own[None] < partners)  # of each pair, the row with the lower number

    def rotate(i: Int[Array, ""], A: Float[Array, "m n ..."]) -> Float[Array, "m n ..."]:
        r = i % len(partners)
        other = A[jnp.asarray(partners)[r]]
        sign = jnp.where(first[r], 1.0, -1.0).astype(A.dtype).reshape(-1, *(1,) * (A.ndim - 2))
        difference = jnp.sum(other * other, axis=1) - jnp.sum(A * A, axis=1)
        c, s = _jacobi(difference, jnp.sum(A * other, axis=1), sign)
        return c[:, None] * A - s[:, None] * other

    turned = jax.lax.fori_loop(0, sweeps_n * len(partners), rotate, J)
    return -jnp.sort(-safe_norm(turned, axis=1), axis=0)[:m]


def volume(J: Float[Array, "m n ..."]) -> Float[Array, " ..."]:
    """Product of the singular values of small matrices, by Gram and Schmidt: what each row adds to those before it.

    Squares nothing, so that small values keep their digits in float32.
    """
    if J.shape[0] > J.shape[1]:
        J = jnp.swapaxes(J, 0, 1)
    rows, out = list(J), jnp.ones(J.shape[2:], J.dtype)
    for i, row in enumerate(rows):
        length = safe_norm(row, axis=0)
        out = out * length
        direction = row / divisor(length)[None]
        for k in range(i + 1, len(rows)):
            rows[k] = rows[k] - direction * jnp.sum(direction * rows[k], axis=0)[None]
    return out


# ------------------------------------------------------------------------------------------------- triangular systems


def solve_positive(A: Float[Array, "m m ..."], b: Float[Array, "m ..."], *, damping: Any) -> Float[Array, "m ..."]:
    """x with ``(A + damping I) x = b`` for small symmetric positive matrices A, by unrolled L D L^T."""
    m = b.shape[0]
    L: list[list[Any]] = [[0.0] * m for _ in range(m)]
    D: list[Any] = []
    for j in range(m):
        D.append(A[j, j] + damping - sum(L[j][k] * L[j][k] * D[k] for k in range(j)))
        for i in range(j + 1, m):
            L[i][j] = (A[i, j] - sum(L[i][k] * L[j][k] * D[k] for k in range(j))) / D[j]
    y: list[Any] = []
    for i in range(m):
        y.append(b[i] - sum(L[i][k] * y[k] for k in range(i)))
    x: list[Any] = [0.0] * m
    for i in reversed(range(m)):
        x[i] = y[i] / D[i] - sum(L[k][i] * x[k] for k in range(i + 1, m))
    return jnp.stack(x)


def solve_lower(L: Float[Array, "n n"], x: Float[Array, " n"]) -> Float[Array, " n"]:
    """``L^-1 x`` of a lower triangular L."""
    out: list[Array] = []
    for k in range(len(x)):
        out.append((x[k] - sum(L[k, j] * o for j, o in enumerate(out))) / L[k, k])
    return jnp.stack(out)


def solve_lower_transposed(L: Float[Array, "n n"], x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """``L^-T x`` of a lower triangular L, for many x at once along the axes that follow."""
    out: list[Array] = []
    for k in reversed(range(len(x))):
        out.insert(0, (x[k] - sum(L[k + 1 + j, k] * o for j, o in enumerate(out))) / L[k, k])
    return jnp.stack(out)


def orthonormal(
    W: Float[Array, "W n"], *, tolerance: float
) -> tuple[Float[Array, "W n"], Float[Array, "n n"], Int[Array, ""]]:
    """(Q, L, rank) with ``W = Q L^T``, orthonormal columns of Q, L lower triangular, by Gram and Schmidt, twice.

    A column of W whose part that those before it do not explain is at most ``tolerance`` of its length gets a column
    of zeros in Q and 1 on L's diagonal.
    """
    columns: list[Array] = []
    L = jnp.eye(W.shape[1], dtype=W.dtype)
    rank = jnp.zeros((), jnp.int32)
    for k in range(W.shape[1]):
        v = W[:, k]
        whole = jnp.sqrt(jnp.sum(v * v))
        for _ in range(2):
            for j, q in enumerate(columns):
                along = jnp.sum(q * v)
                v = v - along * q
                L = L.at[k, j].add(along)
        length = jnp.sqrt(jnp.sum(v * v))
        new = length > tolerance * whole
        columns.append(jnp.where(new, v / jnp.where(new, length, 1.0), 0.0))
        L = L.at[k, k].set(jnp.where(new, length, 1.0))
        rank = rank + new
    return jnp.stack(columns, axis=1), L, rank


# -------------------------------------------------------------------------------- vectors and quaternions by component


Components: TypeAlias = Any
"""Components of a vector (x, y, z) or quaternion (w, x, y, z): a tuple of numbers or arrays, or an array whose leading
axis they are. NumPy or JAX."""


def cross(a: Components, b: Components) -> tuple[Any, Any, Any]:
    """``a x b``."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def conjugate(q: Components) -> tuple[Any, Any, Any, Any]:
    """The inverse of a unit quaternion."""
    return q[0], -q[1], -q[2], -q[3]


def product(p: Components, q: Components) -> tuple[Any, Any, Any, Any]:
    """Hamilton product ``p q``: the rotation q, then p.

    >>> product((0, 1, 0, 0), (0, 0, 1, 0))  # i j = k
    (0, 0, 0, 1)
    """
    a, b, c, d = p
    w, x, y, z = q
    return (
        a * w - b * x - c * y - d * z,
        a * x + b * w + c * z - d * y,
        a * y - b * z + c * w + d * x,
        a * z + b * y - c * x + d * w,
    )


def rotated(q: Components, v: Components) -> tuple[Any, Any, Any]:
    """``q v q^*``: v turned by a unit quaternion; of another length |q|, turned and |q|^2 times as long.

    >>> rotated((0, 0, 0, 1), (1, 2, 3))  # half a turn about z
    (-1, -2, 3)
    """
    w, u = q[0], (q[1], q[2], q[3])
    along = 2 * (u[0] * v[0] + u[1] * v[1] + u[2] * v[2])
    same = w * w - (u[0] * u[0] + u[1] * u[1] + u[2] * u[2])
    x, y, z = cross(u, v)
    return (
        same * v[0] + along * u[0] + 2 * w * x,
        same * v[1] + along * u[1] + 2 * w * y,
        same * v[2] + along * u[2] + 2 * w * z,
    )


def rotation_rows(q: Components, *, square: Any = 1) -> tuple[tuple[Any, Any, Any], ...]:
    """Rows of the rotation matrix of a unit quaternion; with ``square`` = |q|^2, of any, times that.

    >>> rotation_rows((0, 0, 0, 1))  # half a turn about z
    ((-1, 0, 0), (0, -1, 0), (0, 0, 1))
    """
    w, x, y, z = q
    return (
        (square - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), square - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), square - 2 * (x * x + y * y)),
    )
