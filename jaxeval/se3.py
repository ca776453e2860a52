"""Poses: relative pose, Lie mean, deviation in metres, symmetry. The only importer of jaxlie.

A pose is ``wxyz_xyz``: unit quaternion (w first), then metres. ``T_b_a`` maps coordinates of a to coordinates of b.
Tangent vectors are ``(rho, phi)``: three translational, then three rotational components, in the frame on the right.
Everything here is written for one pose (or one set of poses) and is vmapped by the caller.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jaxlie
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval.linalg import eigh_small, safe_norm
from jaxeval.types import Shape, Symmetry, one_of

Pose = Float[Array, "7"]
Tangent = Float[Array, "6"]

DEVIATIONS = ("se3_log", "decoupled")
"""Kinds of `deviation`."""
IDENTITY = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
_SMALL_SQUARE = 1e-3  # rad^2: below, the series of exp and log are exact in float64; above, the closed forms are


# ------------------------------------------------------------------------------------------------ group operations


def compose(T_a_b: Pose, T_b_c: Pose) -> Pose:
    """``T_a_c = T_a_b T_b_c``; inner names cancel."""
    return (jaxlie.SE3(T_a_b) @ jaxlie.SE3(T_b_c)).wxyz_xyz


def inverse(T_a_b: Pose) -> Pose:
    """``T_b_a``."""
    return jaxlie.SE3(T_a_b).inverse().wxyz_xyz


def relative_pose(T_w_a: Pose, T_w_b: Pose) -> Pose:
    """``T_b_a = T_w_b^-1 T_w_a``: the pose of a in the frame of b. Unchanged when the world frame changes."""
    return (jaxlie.SE3(T_w_b).inverse() @ jaxlie.SE3(T_w_a)).wxyz_xyz


def exp(xi: Tangent) -> Pose:
    """Pose of a tangent vector ``(rho, phi)``."""
    rho, phi = xi[:3], xi[3:]
    square = jnp.sum(phi * phi)
    small = square < _SMALL_SQUARE
    # The inner where keeps the closed forms away from 0 / 0, whose gradient is NaN.
    square_safe = jnp.where(small, 1.0, square)
    angle = jnp.sqrt(square_safe)
    first = jnp.where(small, 1 / 2 - square / 24 + square**2 / 720, 2 * jnp.sin(angle / 2) ** 2 / square_safe)
    second = jnp.where(small, 1 / 6 - square / 120 + square**2 / 5040, (angle - jnp.sin(angle)) / angle**3)
    # jaxlie's SE3.exp takes V = R below |phi| = 3 mrad (float32), which is off by |phi| / 2 of the translation.
    t = rho + first * jnp.cross(phi, rho) + second * jnp.cross(phi, jnp.cross(phi, rho))
    return jnp.concatenate([jaxlie.SO3.exp(phi).wxyz, t])


def log(pose: Pose) -> Tangent:
    """Tangent vector ``(rho, phi)`` of a pose, ``|phi| <= pi``. Value and gradient are finite at identity and at pi."""
    phi, t = _rotation_vector(pose[:4]), pose[4:]
    square = jnp.sum(phi * phi)
    small = square < _SMALL_SQUARE
    square_safe = jnp.where(small, 1.0, square)
    half = jnp.sqrt(square_safe) / 2
    second = jnp.where(small, 1 / 12 + square / 720 + square**2 / 30240, (1 - half / jnp.tan(half)) / square_safe)
    rho = t - jnp.cross(phi, t) / 2 + second * jnp.cross(phi, jnp.cross(phi, t))
    return jnp.concatenate([rho, phi])


def log_decoupled(pose: Pose) -> Tangent:
    """``(t, phi)`` of a pose: its translation (metres) and its rotation vector (radians): R^3 x SO(3), not SE(3)."""
    return jnp.concatenate([pose[4:], _rotation_vector(pose[:4])])


def _rotation_vector(wxyz: Float[Array, "4"]) -> Float[Array, "3"]:
    """Rotation vector of a unit quaternion, the turn below pi: q and -q are one rotation.

    jaxlie's log takes every turn within 2e-5 of pi (float32) for pi itself, and its gradient there for 0.
    """
    q = jnp.where(wxyz[0] < 0, -wxyz, wxyz)
    w, v = q[0], q[1:]
    square = jnp.sum(v * v)
    small = square < _SMALL_SQUARE / 4
    sine = jnp.sqrt(jnp.where(small, 1.0, square))
    w_safe = jnp.where(small, w, 1.0)
    ratio = square / w_safe**2
    series = 2 / w_safe * (1 - ratio / 3 + ratio**2 / 5 - ratio**3 / 7)
    return v * jnp.where(small, series, 2 * jnp.arctan2(sine, w) / sine)


def as_matrix(wxyz: Float[Array, "4"]) -> Float[Array, "3 3"]:
    """Rotation matrix of a unit quaternion."""
    return jaxlie.SO3(wxyz).as_matrix()


def from_matrix(R: Float[Array, "3 3"], t: Float[Array, "3"]) -> Pose:
    """Pose of a rotation matrix and a translation."""
    return jnp.concatenate([jaxlie.SO3.from_matrix(R).wxyz, t])


# ------------------------------------------------------------------------------------------- surfaces and symmetry


def surface_second_moment(shape: Shape, *, size_m: np.ndarray | None = None) -> np.ndarray:
    """Second moment of a body's surface about its centroid, ``Lambda^2 = 1/A int x x^T dA``, [3, 3] in m^2.

    ``size_m`` replaces the shape's own size (half extents). Source: Bregier et al. 2018, IJCV 126(6).
    """
    half = np.asarray(shape.size_m if size_m is None else size_m, np.float64)
    if shape.kind == "sphere":
        return np.eye(3) * half[0] ** 2 / 3
    if shape.kind == "box":
        area = half[[1, 2, 0]] * half[[2, 0, 1]]  # of the face across each axis (a quarter of it)
        # a face across axis i contributes half_i^2; the other four faces contribute half_i^2 / 3
        return np.diag(half**2 * (area + (area.sum() - area) / 3) / area.sum())
    if shape.kind == "cylinder":
        radius, length = half[0], half[2]
        wall, caps = 2 * np.pi * radius * 2 * length, 2 * np.pi * radius**2
        across = (wall * radius**2 / 2 + caps * radius**2 / 4) / (wall + caps)
        along = (wall * length**2 / 3 + caps * length**2) / (wall + caps)
        return np.diag([across, across, along])
    if shape.kind == "mesh":
        v = np.asarray(shape.vertices_m, np.float64)[np.asarray(shape.faces, np.int64)]  # [F, 3 corners, 3]
        area = 0.5 * np.linalg.norm(np.cross(v[:, 1] - v[:, 0], v[:, 2] - v[:, 0]), axis=-1)
        centroid = (area[:, None] * v.mean(axis=1)).sum(axis=0) / area.sum()
        v = v - centroid
        total = v.sum(axis=1)
        # exact integral of x x^T over a triangle: A/12 (sum_i v_i v_i^T + (sum v)(sum v)^T)
        outer = np.einsum("fci,fcj->fij", v, v) + np.einsum("fi,fj->fij", total, total)
        return np.einsum("f,fij->ij", area, outer) / 12 / area.sum()
    raise ValueError(f"shape kind '{shape.kind}' is not one of box, cylinder, sphere, mesh")


def scale_matrix(second_moment: np.ndarray) -> np.ndarray:
    """``S = sqrt(tr(Lambda^2) I - Lambda^2)``, [3, 3] in metres a radian: |S phi| is the RMS surface displacement.

    Source: Bregier et al. 2018, small-rotation limit of their distance. A cube of edge e gives sqrt(10/36) e.
    """
    values, vectors = np.linalg.eigh(np.trace(second_moment) * np.eye(3) - second_moment)
    return vectors @ np.diag(np.sqrt(np.maximum(values, 0.0))) @ vectors.T


class PairGeometry(NamedTuple):
    """What a deviation needs to know about pair "a | b": S_a, and the symmetries of both bodies (static)."""

    scale: Float[Array, "3 3"]
    symmetry_a: Symmetry = Symmetry()
    symmetry_b: Symmetry = Symmetry()


def _best_turn(M: Float[Array, "3 3"], axis: Float[Array, "3"]) -> Float[Array, "4"]:
    """Quaternion of the turn about ``axis`` that maximises ``tr(R M)``; no turn where every turn is as good."""
    skew = jnp.stack([M[1, 2] - M[2, 1], M[2, 0] - M[0, 2], M[0, 1] - M[1, 0]])
    sine, cosine = jnp.dot(axis, skew), jnp.trace(M) - axis @ M @ axis
    flat = sine**2 + cosine**2 < 1e-20
    # atan2(0, 0) has no gradient: where no turn is better than another, take none and let nothing flow through it.
    angle = jnp.arctan2(jnp.where(flat, 0.0, sine), jnp.where(flat, 1.0, cosine))
    return jnp.concatenate([jnp.cos(angle / 2)[None], jnp.sin(angle / 2) * axis])


def _align_direction(source: Float[Array, "3"], target: Float[Array, "3"]) -> Float[Array, "4"]:
    """Shortest turn that takes the direction of ``source`` to that of ``target``; none where either is zero."""
    ls, lt = safe_norm(source), safe_norm(target)
    usable = (ls > 1e-9) & (lt > 1e-9)
    s = source / jnp.where(usable, ls, 1.0)
    t = target / jnp.where(usable, lt, 1.0)
    q = jnp.concatenate([(1.0 + jnp.dot(s, t))[None], jnp.cross(s, t)])
    length = safe_norm(q)
    usable = usable & (length > 1e-6)  # opposite directions: every half turn is as short
    return jnp.where(usable, q / jnp.where(usable, length, 1.0), jnp.array([1.0, 0, 0, 0], q.dtype))


def _moment(scale: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """``Lambda^2`` back from S: S^2 = tr(Lambda^2) I - Lambda^2, and tr(S^2) = 2 tr(Lambda^2)."""
    square = scale @ scale
    return 0.5 * jnp.trace(square) * jnp.eye(3, dtype=scale.dtype) - square


def _turn_world(T_b_a: Pose, nominal: Pose, geometry: PairGeometry) -> Pose:
    """Continuous symmetry of b: turn ``T_b_a`` about b's origin to bring a's surface nearest to the nominal."""
    kind = geometry.symmetry_b.kind
    if kind not in ("spin", "all"):
        return T_b_a
    R, R_nominal = as_matrix(T_b_a[:4]), as_matrix(nominal[:4])
    t, t_nominal = T_b_a[4:], nominal[4:]
    if kind == "all":
        first = jaxlie.SO3(_align_direction(t, t_nominal))
        R, t = first.as_matrix() @ R, first.apply(t)
        length = safe_norm(t_nominal)
        axis = jnp.where(length > 1e-9, t_nominal / jnp.where(length > 1e-9, length, 1.0), jnp.array([0.0, 0, 1]))
        T_b_a = jnp.concatenate([(first @ jaxlie.SO3(T_b_a[:4])).wxyz, t])
    else:
        axis = _unit(geometry.symmetry_b)
    # mean over the surface of (R_n x + t_n) . R(theta) (R x + t) = tr(R(theta) M); with a spin of a, at its best, only
    # the direction of its axis is compared; with any turn of a allowed, position alone decides.
    M, moment = jnp.outer(t, t_nominal), _moment(geometry.scale)
    if geometry.symmetry_a.kind in ("none", "discrete"):
        M = M + R @ moment @ R_nominal.T
    elif geometry.symmetry_a.kind == "spin":
        u = _unit(geometry.symmetry_a)
        M = M + 0.5 * (jnp.trace(moment) + u @ moment @ u) * jnp.outer(R @ u, R_nominal @ u)
    turned = jaxlie.SO3(_best_turn(M, axis))
    return jnp.concatenate([(turned @ jaxlie.SO3(T_b_a[:4])).wxyz, turned.apply(T_b_a[4:])])


def _turn_body(T_b_a: Pose, nominal: Pose, geometry: PairGeometry) -> Pose:
    """Continuous symmetry of a: turn a about its own axis to the copy nearest to the nominal."""
    kind = geometry.symmetry_a.kind
    if kind == "all":
        return jnp.concatenate([nominal[:4], T_b_a[4:]])
    if kind == "spin":
        error = as_matrix(nominal[:4]).T @ as_matrix(T_b_a[:4])
        spin = _best_turn(_moment(geometry.scale) @ error, _unit(geometry.symmetry_a))
        return jnp.concatenate([(jaxlie.SO3(T_b_a[:4]) @ jaxlie.SO3(spin)).wxyz, T_b_a[4:]])
    return T_b_a


def _unit(symmetry: Symmetry) -> Float[Array, "3"]:
    axis = np.asarray(symmetry.axis, np.float64)
    return jnp.asarray(axis / np.linalg.norm(axis), jnp.result_type(float))


def _copies(symmetry: Symmetry) -> np.ndarray:
    return np.asarray(symmetry.copies_wxyz if symmetry.kind == "discrete" else ((1.0, 0, 0, 0),), np.float64)


def symmetric_error(nominal: Pose, T_b_a: Pose, geometry: PairGeometry) -> Pose:
    """``nominal^-1 T`` for the symmetric copy of ``T_b_a`` that lies nearest to the nominal.

    Symmetries of a act from the right, of b from the left. Discrete copies are compared by |d| (Bregier et al. 2018).
    """
    left, right = _copies(geometry.symmetry_b), _copies(geometry.symmetry_a)

    def error(b_copy: Float[Array, "4"], a_copy: Float[Array, "4"]) -> Pose:
        b, a = jaxlie.SO3(b_copy.astype(T_b_a.dtype)), jaxlie.SO3(a_copy.astype(T_b_a.dtype))
        copy = jnp.concatenate([(b @ jaxlie.SO3(T_b_a[:4]) @ a).wxyz, b.apply(T_b_a[4:])])
        copy = _turn_body(_turn_world(copy, nominal, geometry), nominal, geometry)
        return relative_pose(copy, nominal)

    if len(left) == len(right) == 1:
        return error(jnp.asarray(left[0]), jnp.asarray(right[0]))
    pairs_b, pairs_a = np.repeat(left, len(right), axis=0), np.tile(right, (len(left), 1))
    errors = jax.vmap(error)(jnp.asarray(pairs_b), jnp.asarray(pairs_a))
    size = jax.vmap(lambda e: jnp.sum(_scaled(log_decoupled(e), geometry.scale) ** 2))(errors)
    return errors[jnp.argmin(size)]


def free_projector(nominal: Pose, geometry: PairGeometry) -> Float[Array, "6 6"]:
    """Projector onto the scaled tangent directions that a continuous symmetry leaves free, at the nominal."""
    columns: list[Float[Array, "6"]] = []
    if geometry.symmetry_a.kind in ("spin", "all"):
        axes = jnp.eye(3) if geometry.symmetry_a.kind == "all" else _unit(geometry.symmetry_a)[None]
        columns += [jnp.concatenate([jnp.zeros(3), geometry.scale @ u]) for u in axes]
    if geometry.symmetry_b.kind in ("spin", "all"):
        R, t = as_matrix(nominal[:4]), nominal[4:]
        axes = jnp.eye(3) if geometry.symmetry_b.kind == "all" else _unit(geometry.symmetry_b)[None]
        turns_a = geometry.symmetry_a.kind == "all"  # then a has no orientation to turn
        for u in axes:
            rotation = jnp.zeros(3) if turns_a else geometry.scale @ (R.T @ u)
            columns.append(jnp.concatenate([R.T @ jnp.cross(u, t), rotation]))
    if not columns:
        return jnp.zeros((6, 6), nominal.dtype)
    G = jnp.stack(columns, axis=1).astype(nominal.dtype)
    values, vectors = eigh_small(G @ G.T)
    # 1e-6 of the largest: with a and b both symmetric about one line, the same turn stands twice in G.
    spanned = vectors * (values > 1e-6 * values[-1])[None]
    return spanned @ spanned.T


def _scaled(xi: Tangent, scale: Float[Array, "3 3"]) -> Tangent:
    return jnp.concatenate([xi[:3], scale @ xi[3:]])


def deviation(
    nominal: Pose,
    T_b_a: Pose,
    geometry: PairGeometry,
    *,
    free: Float[Array, "6 6"] | None = None,
    kind: str = "se3_log",
) -> Tangent:
    """Scaled deviation ``d = (rho, S phi)`` of a relative pose from its nominal, in metres.

    ``xi = (rho, phi) = Log(nominal^-1 T)`` for the symmetric copy nearest to the nominal; free directions are projected
    out. ``kind``: "se3_log" (rho couples with phi) or "decoupled" (rho is the translation in the nominal's frame).
    Frames: a's nominal frame; unchanged when the world or b's frame changes. Source: SPECTRA III-A2 (our reading, the
    printed formulas are lost) with the scale of Bregier et al. 2018.
    """
    one_of("deviation", kind, DEVIATIONS)
    error = symmetric_error(nominal, T_b_a, geometry)
    xi = log(error) if kind == "se3_log" else log_decoupled(error)
    d = _scaled(xi, geometry.scale)
    return d if free is None else d - free @ d


# ------------------------------------------------------------------------------------------------------ Lie means


class LieMean(NamedTuple):
    """Mean pose, length of the last step (metres and radians together), spread, and whether it can be trusted.

    ``converged``: the last step is below 1e-4 (metres and radians). ``unique``: every
    rotation lies within 90 deg of the mean, so that no other mean exists; elsewhere (rotations 0, 120, 240 deg about
    one axis) the mean may be one of several.
    """

    pose: Float[Array, "7"]
    residual: Float[Array, ""]
    spread_rad: Float[Array, ""]
    converged: Bool[Array, ""]
    unique: Bool[Array, ""]


CONVERGED = 1e-4
_STEP_CAP = 1.0  # radians and metres: a mean of widely spread rotations must not overshoot


def lie_mean(
    poses: Float[Array, "n 7"],
    weights: Float[Array, " n"],
    *,
    geometry: PairGeometry | None = None,
    iterations_n: int = 30,
) -> LieMean:
    """Weighted Lie-group (Karcher) mean: the pose with ``sum_i w_i Log(mean^-1 T_i) = 0``.

    Starts at the medoid in rotation, so the order of the poses does not matter; steps are capped. With symmetric bodies
    the copy nearest to the current mean is taken, and the mean is the copy nearest to no turn at all.
    Source: SPECTRA III-A1 ("Lie-group mean").
    """
    geometry = geometry or PairGeometry(jnp.eye(3, dtype=poses.dtype))
    weights = weights.astype(poses.dtype)
    share = weights / jnp.maximum(jnp.sum(weights), 1e-12)
    mean = _canonical_copy(poses[_medoid(poses, share, geometry)], geometry)
    unscaled = (
        geometry._replace(scale=jnp.eye(3, dtype=poses.dtype)) if geometry.symmetry_a.kind == "none" else geometry
    )

    def offsets(mean: Pose) -> Float[Array, "n 6"]:
        errors = jax.vmap(lambda T: symmetric_error(mean, T, unscaled))(poses)
        return jax.vmap(log)(errors)

    def step(_: Int[Array, ""], carry: tuple[Pose, Float[Array, ""]]) -> tuple[Pose, Float[Array, ""]]:
        mean, _residual = carry
        delta = share @ offsets(mean)
        length = safe_norm(delta)
        delta = delta * jnp.minimum(1.0, _STEP_CAP / jnp.maximum(length, 1e-12))
        moved = compose(mean, exp(delta))
        return _normalised(moved), length

    mean, residual = jax.lax.fori_loop(0, iterations_n, step, (mean, jnp.zeros((), poses.dtype)))
    mean = _canonical_copy(mean, geometry)
    angles = jax.vmap(lambda xi: safe_norm(xi[3:]))(offsets(mean))
    spread = jnp.max(jnp.where(weights > 0, angles, 0.0))
    return LieMean(mean, residual, spread, residual < CONVERGED, spread < jnp.pi / 2)


def _normalised(pose: Pose) -> Pose:
    return jnp.concatenate([pose[:4] / safe_norm(pose[:4]), pose[4:]])


def _canonical_copy(pose: Pose, geometry: PairGeometry) -> Pose:
    """The symmetric copy of a mean that is nearest to the identity rotation: fixes the frame it is written in."""
    identity = jnp.asarray(IDENTITY, pose.dtype).at[4:].set(pose[4:])
    if geometry.symmetry_a.kind == "none":
        return pose
    return compose(identity, symmetric_error(identity, pose, geometry._replace(symmetry_b=Symmetry())))


def _medoid(poses: Float[Array, "n 7"], share: Float[Array, " n"], geometry: PairGeometry) -> Int[Array, ""]:
    """Index of the pose whose rotation is nearest to all others, symmetric copies counting as one."""
    R = jax.vmap(as_matrix)(poses[:, :4])
    a, b = geometry.symmetry_a, geometry.symmetry_b
    if a.kind == "all" or b.kind == "all":
        points = poses[:, 4:]
        square = jnp.sum((points[:, None] - points[None]) ** 2, axis=-1)
    elif a.kind == "spin" or b.kind == "spin":
        axis = (R @ _unit(a)) if a.kind == "spin" else (jnp.swapaxes(R, 1, 2) @ _unit(b))
        square = jnp.sum((axis[:, None] - axis[None]) ** 2, axis=-1)
    else:
        q = poses[:, :4]
        left, right = jnp.asarray(_copies(b), q.dtype), jnp.asarray(_copies(a), q.dtype)
        product = jax.vmap(lambda l, x, r: (jaxlie.SO3(l) @ jaxlie.SO3(x) @ jaxlie.SO3(r)).wxyz)
        n, m = len(left) * len(right), len(q)
        copies = product(
            jnp.repeat(left, len(right) * m, axis=0),
            jnp.tile(q, (n, 1)),
            jnp.tile(jnp.repeat(right, m, 0), (len(left), 1)),
        ).reshape(n, m, 4)
        square = 1 - jnp.max(jnp.einsum("id,cjd->cij", q, copies) ** 2, axis=0)
    cost = square @ share
    return jnp.argmin(jnp.where(share > 0, cost, jnp.inf))


def segment_lie_mean(
    poses: Float[Array, "T 7"], segment: Int[Array, " T"], *, segments_n: int, iterations_n: int = 8
) -> tuple[Float[Array, "L 7"], Bool[Array, " L"], Bool[Array, " L"]]:
    """Lie mean of the frames of every segment at once: (means, seen, converged). ``segment`` is -1 for no segment.

    Sums run over segments (``segment_sum``), not over an L x T weight matrix. Segments without frames are not ``seen``
    and hold the identity. Frames of one segment are close together, so the first of them is the start.
    """
    ids = jnp.where(segment >= 0, segment, segments_n)

    def total(x: Float[Array, "T ..."]) -> Float[Array, "L ..."]:
        return jax.ops.segment_sum(x, ids, num_segments=segments_n + 1)[:segments_n]

    count = total(jnp.ones_like(poses[:, 0]))
    seen = count > 0
    first = jax.ops.segment_min(jnp.arange(len(ids)), ids, num_segments=segments_n + 1)[:segments_n]
    mean = jnp.where(seen[:, None], poses[jnp.where(seen, first, 0)], jnp.asarray(IDENTITY, poses.dtype))
    divisor = jnp.maximum(count, 1.0)[:, None]
    frame_segment = jnp.clip(ids, 0, segments_n - 1)

    def step(_: Int[Array, ""], carry: tuple[Float[Array, "L 7"], Float[Array, " L"]]):
        mean, _residual = carry
        offsets = jax.vmap(lambda m, T: log(relative_pose(T, m)))(mean[frame_segment], poses)
        delta = total(offsets) / divisor
        return jax.vmap(lambda m, d: _normalised(compose(m, exp(d))))(mean, delta), safe_norm(delta)

    mean, residual = jax.lax.fori_loop(0, iterations_n, step, (mean, jnp.zeros(segments_n, poses.dtype)))
    return mean, seen, residual < CONVERGED


def interpolate(start: Pose, end: Pose, fraction: Float[Array, ""]) -> Pose:
    """Point at ``fraction`` of the geodesic from ``start`` to ``end``."""
    return compose(start, exp(fraction * log(relative_pose(end, start))))
