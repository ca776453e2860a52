"""How well a track of a body's pose agrees with the truth, and where a track is lost, jumps or stands frozen.

With E = T^-1 T_est (T the true pose), points x of the body's surface and its symmetries S:

    translation  |t_est - t|                                ADD    mean_x |E x - x|
    rotation     |log R_E|                                  ADD-S  mean_x min_y |E x - y|
    symmetric    min_S |log (R_E S)|                        MSSD   min_S max_x |E x - S x|

All are 0 for a perfect track and grow with the error; metres and radians. They do not change when the world frame
does. Sources: Hinterstoisser et al. 2012 (ADD, ADD-S), Hodan et al. 2020 (MSSD), Bregier et al. 2018 (the nearest
symmetric copy). Oracle: tests/oracles/tracking_numpy.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval import se3
from jaxeval.linalg import safe_norm, safe_sqrt
from jaxeval.metrics.status import Status
from jaxeval.types import FROZEN_JUMP_M, FROZEN_S, JUMP_M, Shape, Symmetry, a_number, pytree

QUANTILES = (0.5, 0.9, 0.95, 0.99)
ERRORS = ("translation_m", "rotation_rad", "rotation_symmetric_rad", "add_m", "add_s_m", "mssd_m")


@pytree
class TrackingParams:
    """Thresholds. ``near_m`` and ``near_rad``: both kept within is a hit of the "5 degrees, 5 cm" rate.

    ``jump_m``, ``frozen_s``, ``frozen_jump_m`` are those of :meth:`jaxeval.types.Episode.check`.
    """

    near_m: float | Float[Array, ""] = 0.05
    near_rad: float | Float[Array, ""] = math.radians(5)
    jump_m: float | Float[Array, ""] = JUMP_M
    frozen_s: float | Float[Array, ""] = FROZEN_S
    frozen_jump_m: float | Float[Array, ""] = FROZEN_JUMP_M

    def check(self) -> TrackingParams:
        """Itself, or ValueError in one sentence. Call it on the host, before jit."""
        for name in ("near_m", "near_rad", "jump_m", "frozen_s", "frozen_jump_m"):
            value = a_number(f"tracking.{name}", getattr(self, name))
            if not value > 0:
                raise ValueError(f"tracking.{name} is {value}; expected a positive number")
        return self


# ---------------------------------------------------------------------------------------------------- against the truth


@pytree
class FrameErrors:
    """Errors of every frame; NaN where ``counted`` is False (no estimate, no truth, or not finite)."""

    translation_m: Float[Array, " T"]
    rotation_rad: Float[Array, " T"]
    rotation_symmetric_rad: Float[Array, " T"]
    add_m: Float[Array, " T"]
    add_s_m: Float[Array, " T"]
    mssd_m: Float[Array, " T"]
    counted: Bool[Array, " T"]


@pytree
class TrackingQuality:
    """A track against the truth. Means and quantiles are over counted frames, NaN where ``status`` is not 0.

    ``mean``, ``quantiles``: by the names in ERRORS; quantiles at 0.5, 0.9, 0.95, 0.99 (QUANTILES). ``near_share``:
    share of counted frames within ``near_m`` and ``near_rad`` (rotation to the nearest symmetric copy).
    ``near_coverage``: the same of all frames with a true pose, so that frames without an estimate count as misses.
    ``coverage``: share of frames with a true pose that have an estimate; NaN where there is no true pose.
    """

    mean: dict[str, Float[Array, ""]]
    quantiles: dict[str, Float[Array, "4"]]
    near_share: Float[Array, ""]
    near_coverage: Float[Array, ""]
    coverage: Float[Array, ""]
    status: Int[Array, ""]
    frames: FrameErrors


def frame_errors(
    estimate: Float[Array, "T 7"],
    truth: Float[Array, "T 7"],
    counted: Bool[Array, " T"],
    points: Float[Array, "M 3"],
    *,
    scale: Float[Array, "3 3"],
    symmetry: Symmetry,
    spin_n: int = 72,
    frames_n: int = 8,
) -> FrameErrors:
    """Errors of every frame of a track ``estimate`` (T_world_body, wxyz_xyz) from ``truth``, in the module's formulas.

    ``points`` on the surface, in the body's frame; ``scale`` is its S (metres a radian), which weighs the axes when the
    nearest copy under a continuous symmetry is sought. MSSD tries every discrete copy; of a spin, ``spin_n`` turns and
    the nearest copy (exact for that copy, else above the minimum by at most radius * pi / spin_n). ADD-S compares all
    pairs of points, ``frames_n`` frames at a time.
    """
    finite = jnp.all(jnp.isfinite(estimate) & jnp.isfinite(truth), axis=1)
    use = counted & finite
    identity = jnp.asarray(se3.IDENTITY, estimate.dtype)[None]
    estimate, truth = (jnp.where(use[:, None], poses, identity) for poses in (estimate, truth))
    geometry = se3.PairGeometry(scale, symmetry)
    turns = jnp.asarray(_turns(symmetry, spin_n), points.dtype)
    copies = jax.vmap(lambda q: points @ se3.as_matrix(q).T)(turns)  # S x of every symmetry, [C, M, 3]

    def one(rows: tuple[Array, Array]) -> tuple[Array, ...]:
        T_est, T = rows
        error = se3.relative_pose(T_est, T)
        nearest = se3.symmetric_error(T, T_est, geometry)
        seen = points @ se3.as_matrix(error[:4]).T + error[4:][None]
        # E S = nearest, hence S = E^-1 nearest and S^-1 x is what E x should have met
        back = points @ se3.as_matrix(se3.compose(se3.inverse(nearest), error)[:4]).T
        across = jnp.sum((seen[:, None] - points[None]) ** 2, axis=-1)
        reach = jnp.max(jnp.sum((seen[None] - jnp.concatenate([copies, back[None]])) ** 2, axis=-1), axis=1)
        return (
            safe_norm(T_est[4:] - T[4:]),
            safe_norm(se3.log_decoupled(error)[3:]),
            safe_norm(se3.log_decoupled(nearest)[3:]),
            jnp.mean(safe_norm(seen - points)),
            jnp.mean(safe_sqrt(jnp.min(across, axis=1))),
            safe_sqrt(jnp.min(reach)),
        )

    values = jax.lax.map(one, (estimate, truth), batch_size=frames_n)
    return FrameErrors(
        counted=use, **{name: jnp.where(use, x, jnp.nan) for name, x in zip(ERRORS, values, strict=True)}
    )


def _turns(symmetry: Symmetry, spin_n: int) -> np.ndarray:
    """Quaternions wxyz of the symmetries that MSSD tries, [C, 4]; of a spin, ``spin_n`` even turns."""
    if symmetry.kind == "discrete":
        return np.asarray(symmetry.copies_wxyz, np.float64)
    if symmetry.kind == "spin":
        axis = np.asarray(symmetry.axis, np.float64) / np.linalg.norm(symmetry.axis)
        half = np.pi * np.arange(spin_n) / spin_n
        return np.concatenate([np.cos(half)[:, None], np.sin(half)[:, None] * axis], axis=1)
    return np.array([[1.0, 0, 0, 0]])


def tracking_quality(
    estimate: Float[Array, "T 7"],
    truth: Float[Array, "T 7"],
    estimate_valid: Bool[Array, " T"],
    truth_valid: Bool[Array, " T"],
    points: Float[Array, "M 3"],
    *,
    scale: Float[Array, "3 3"],
    symmetry: Symmetry,
    params: TrackingParams,
) -> TrackingQuality:
    """Errors of a track from the truth: of every frame, their means and tails, hit rate and coverage.

    See :func:`frame_errors` for the arrays and :class:`TrackingQuality` for what comes back. Undefined (NaN, status)
    where no frame has both poses, or a pose that is marked valid is not finite. Padding with frames that are not valid
    changes nothing.
    """
    both = estimate_valid & truth_valid
    frames = frame_errors(estimate, truth, both, points, scale=scale, symmetry=symmetry)
    count = jnp.sum(frames.counted)
    status = jnp.where(
        jnp.any(both & ~frames.counted),
        Status.BAD_POSE,
        jnp.where(count > 0, Status.OK, Status.NO_COMMON_FRAMES),
    ).astype(jnp.int32)
    n = jnp.maximum(count, 1).astype(points.dtype)
    due = jnp.sum(truth_valid).astype(points.dtype)
    near = (frames.translation_m <= params.near_m) & (frames.rotation_symmetric_rad <= params.near_rad)
    hits = jnp.sum(near & frames.counted).astype(points.dtype)
    has_truth = due > 0

    def known(x: Array) -> Array:
        return jnp.where(status == Status.OK, x, jnp.nan)

    def mean(x: Float[Array, " T"]) -> Float[Array, ""]:
        return known(jnp.sum(jnp.where(frames.counted, x, 0.0)) / n)

    return TrackingQuality(
        mean={name: mean(getattr(frames, name)) for name in ERRORS},
        quantiles={name: known(masked_quantiles(getattr(frames, name), frames.counted)) for name in ERRORS},
        near_share=known(hits / n),
        near_coverage=known(hits / jnp.maximum(due, 1.0)),
        coverage=jnp.where(has_truth, jnp.sum(both).astype(points.dtype) / jnp.maximum(due, 1.0), jnp.nan),
        status=status,
        frames=frames,
    )


def masked_quantiles(
    x: Float[Array, " T"], counted: Bool[Array, " T"], at: tuple[float, ...] = QUANTILES
) -> Float[Array, " Q"]:
    """Quantiles of the counted values, linear between order statistics as NumPy's default; infinite with none."""
    ordered = jnp.sort(jnp.where(counted, x, jnp.inf))
    n = jnp.sum(counted, dtype=jnp.int32)
    place = jnp.asarray(at, x.dtype) * jnp.maximum(n - 1, 0).astype(x.dtype)
    low = jnp.floor(place).astype(jnp.int32)
    high = jnp.minimum(low + 1, jnp.maximum(n - 1, 0))
    share = place - low.astype(x.dtype)
    ends = ordered[low], ordered[high]
    return jnp.where(share > 0, ends[0] + share * (ends[1] - ends[0]), ends[0])


# ------------------------------------------------------------------------------------------------- the track by itself


class TrackMasks(NamedTuple):
    """Doubtful frames of a track. ``stuck`` are frozen ones after which a body jumps: the track was lost meanwhile."""

    lost: Bool[Array, " T"]  # due, but without a pose
    jump: Bool[Array, " T"]  # a body moved over jump_m since the valid frame before
    frozen: Bool[Array, " T"]  # part of a run of frozen_s or more in which every pose is bit-identical
    stuck: Bool[Array, " T"]  # frozen, and a body moves over frozen_jump_m at the end of the run


def track_masks(
    poses: Float[Array, "T N 7"],
    time_s: Float[Array, " T"],
    valid: Bool[Array, " T"],
    due: Bool[Array, " T"],
    *,
    params: TrackingParams,
) -> TrackMasks:
    """Frames in which the tracks of N bodies are lost, jump, or stand frozen; ``due``: frames that should have a pose.

    The rules of :meth:`jaxeval.types.Episode.check`, as masks: steps are between valid frames that follow one another,
    whatever lies between. For one body pass ``poses[:, None]``.
    """
    T = time_s.shape[0]
    frame = jnp.arange(T, dtype=jnp.int32)
    previous = jnp.concatenate([jnp.full(1, -1, jnp.int32), jax.lax.cummax(jnp.where(valid, frame, -1))[:-1]])
    step = valid & (previous >= 0)
    from_ = jnp.maximum(previous, 0)
    change = jnp.where(step[:, None, None], poses - poses[from_], 0.0)
    moved = jnp.sqrt(jnp.max(jnp.sum(change[..., 4:] ** 2, axis=-1), axis=1))
    still = step & jnp.all(change == 0, axis=(1, 2))

    # a run is named by its first frame: the latest valid frame that differs from the one before it
    run = jnp.maximum(jax.lax.cummax(jnp.where(valid & ~still, frame, -1)), 0)
    ends_s = jax.ops.segment_max(jnp.where(valid, time_s, -jnp.inf), run, num_segments=T)
    frozen_run = (ends_s - time_s >= params.frozen_s) & valid
    breaks = step & ~still & (moved > params.frozen_jump_m)
    broken_run = jax.ops.segment_max(breaks.astype(jnp.int32), run[from_], num_segments=T) > 0
    frozen = valid & frozen_run[run]
    return TrackMasks(
        lost=due & ~valid, jump=step & (moved > params.jump_m), frozen=frozen, stuck=frozen & broken_run[run]
    )


# ------------------------------------------------------------------------------------------------------ surface points


def surface_points(shape: Shape, points_n: int = 256) -> Float[np.ndarray, "M 3"]:
    """Points spread evenly over a body's surface, metres, the same every time; a box's corners are the first eight.

    Host only. Points follow the plastic-number sequence (Roberts 2018) on each face, faces in proportion to their area.
    ADD-S and MSSD of a mesh with sharp features may want its vertices instead.
    """
    if points_n < 16:
        raise ValueError(f"points_n is {points_n}; expected at least 16")
    half = np.asarray(shape.size_m, np.float64)
    if shape.kind == "sphere":
        i = np.arange(points_n) + 0.5
        z, angle = 1 - 2 * i / points_n, np.pi * (1 + np.sqrt(5)) * i
        across = np.sqrt(1 - z**2)
        return half[0] * np.stack([across * np.cos(angle), across * np.sin(angle), z], axis=1)
    if shape.kind == "cylinder":
        radius, length = half[0], half[2]
        face, u, v = _spread(np.array([2 * length, radius / 2, radius / 2]), points_n)
        out = radius * np.where(face == 0, 1.0, np.sqrt(v))
        z = np.choose(face, [length * (2 * v - 1), np.full_like(v, length), np.full_like(v, -length)])
        return np.stack([out * np.cos(2 * np.pi * u), out * np.sin(2 * np.pi * u), z], axis=1)
    if shape.kind == "box":
        corners = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 3, indexing="ij"), axis=-1).reshape(8, 3)
        face, u, v = _spread(np.repeat(half[[1, 2, 0]] * half[[2, 0, 1]], 2), points_n - 8)
        axis, n = face // 2, np.arange(points_n - 8)
        unit = np.zeros((points_n - 8, 3))
        unit[n, axis] = np.where(face % 2 == 0, -1.0, 1.0)
        unit[n, (axis + 1) % 3], unit[n, (axis + 2) % 3] = 2 * u - 1, 2 * v - 1
        return np.concatenate([corners, unit]) * half
    if shape.kind == "mesh":
        corner = np.asarray(shape.vertices_m, np.float64)[np.asarray(shape.faces, np.int64)]  # [F, 3 corners, 3]
        edges = corner[:, 1:] - corner[:, :1]
        face, u, v = _spread(np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=-1), points_n)
        u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
        return corner[face, 0] + u[:, None] * edges[face, 0] + v[:, None] * edges[face, 1]
    raise ValueError(f"shape kind '{shape.kind}' is not one of box, cylinder, sphere, mesh")


def _spread(area: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(face, u, v) of n points: faces in proportion to ``area``, (u, v) in the unit square of each."""
    face = np.searchsorted(np.cumsum(area) / np.sum(area), (np.arange(n) + 0.5) / n)
    i = np.arange(n) + 1
    return np.minimum(face, len(area) - 1), (0.5 + i * 0.7548776662466927) % 1, (0.5 + i * 0.5698402909980532) % 1
