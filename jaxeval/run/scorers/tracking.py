"""Estimated tracks against true ones: errors, tails, hit rate, coverage, and frames lost, jumping or frozen."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import se3
from jaxeval.metrics import tracking
from jaxeval.metrics.registry import FRAME, Column, Context, Measured, Metric, Needs, Recorded
from jaxeval.types import STATIC, EpisodeBatch, InputError, Shape, Symmetry, pytree

POINT_N = 128
_POINT = (Shape("sphere", (0.0, 0.0, 0.0)), Symmetry())
"""Of a body without a known shape: its origin alone, so that ADD is its translation error."""


@pytree
class TrackingSetting(tracking.TrackingParams):
    """TrackingParams, and ``tracks``: (estimate, truth), names of bodies."""

    tracks: tuple[tuple[str, str], ...] = field(default=(), metadata=STATIC)


@pytree
class Track:
    """One estimate and its truth: their names, points of the true body's surface, its scale and symmetry."""

    points: Any
    scale: Any
    estimate: str = field(metadata=STATIC)
    truth: str = field(metadata=STATIC)
    symmetry: Symmetry = field(metadata=STATIC)


def needs(recorded: Recorded, params: TrackingSetting) -> Needs:
    """Both bodies of every track."""
    if not params.tracks:
        raise InputError(
            f"{recorded.where}: no tracks to compare, expected tracking.tracks={{ESTIMATE: TRUTH}} "
            f"with two of its bodies ({', '.join(recorded.bodies)}); name them",
            code="no_tracks",
            key="tracking.tracks",
        )
    bodies = tuple(dict.fromkeys(b for pair in params.tracks for b in pair))
    if absent := [b for b in bodies if b not in recorded.bodies]:
        raise InputError(
            f"{recorded.where}: no body {', '.join(absent)}; it has {', '.join(recorded.bodies)}; "
            "choose tracking.tracks among these",
            code="no_body",
            key=absent[0],
        )
    reference = recorded.reference
    known = {} if reference is None else {b.name: (b.shape, b.symmetry) for b in reference.spec.bodies}
    tracks = []
    for estimate, truth in params.tracks:
        shape, symmetry = known.get(truth, _POINT)
        scale = np.asarray(se3.scale_matrix(se3.surface_second_moment(shape)), np.float32)
        points = np.asarray(_points(shape), np.float32)
        tracks.append(Track(points=points, scale=scale, estimate=estimate, truth=truth, symmetry=symmetry))
    labels = {"estimate": tuple(e for e, _ in params.tracks)}
    return Needs(bodies=bodies, constants=tuple(tracks), labels=labels)


def _points(shape: Shape) -> np.ndarray:
    return (
        np.zeros((1, 3)) if not any(shape.size_m) and shape.kind != "mesh" else tracking.surface_points(shape, POINT_N)
    )


def measure(batch: EpisodeBatch, context: Context, params: TrackingSetting) -> Measured:
    """Tracking quality of every pair, translation error of every frame; see COLUMNS."""
    time_s, valid, poses = (jnp.asarray(x) for x in (batch.time_s, batch.valid, batch.poses))
    frame_valid = jnp.asarray(batch.frame_valid)
    due = jnp.arange(valid.shape[1])[None] < jnp.asarray(context.length)[:, None]
    parts: list[Measured] = []
    for track in context.constants:
        e, t = (batch.bodies.index(name) for name in (track.estimate, track.truth))
        # a frame in which the truth was not seen can tell nothing of the estimate
        judged = due & (valid[:, :, t] | ~frame_valid)

        def one(row: tuple[Any, ...], track: Track = track) -> tuple[tracking.TrackingQuality, tracking.TrackMasks]:
            a, b, time_s, valid, due = row
            quality = tracking.tracking_quality(
                a, b, valid, due, track.points, scale=track.scale, symmetry=track.symmetry, params=params
            )
            return quality, tracking.track_masks(a[:, None], time_s, valid, due, params=params)

        quality, masks = jax.lax.map(
            one, (poses[:, :, e], poses[:, :, t], time_s, valid[:, :, e] & valid[:, :, t], judged)
        )
        found = {f"{k}_mean": v for k, v in quality.mean.items()}
        for k, v in quality.quantiles.items():
            found |= {f"{k}_p{100 * at:g}": v[:, i] for i, at in enumerate(tracking.QUANTILES)}
        found |= {k: getattr(quality, k) for k in ("near_share", "near_coverage", "coverage", "status")}
        found |= {f"{k}_n": v.sum(axis=1) for k, v in masks._asdict().items()}
        if context.frames:
            found[FRAME] = quality.frames.translation_m
        parts.append(found)
    out: Measured = {
        f"tracking.<estimate>.{k}": jnp.stack([p[k] for p in parts], axis=1) for k in parts[0] if k != FRAME
    }
    if context.frames:
        out |= {f"{FRAME}error_m.{t.estimate}": p[FRAME] for t, p in zip(context.constants, parts, strict=True)}
    return out


ERRORS = {
    "translation_m": ("m", "distance from the true position"),
    "rotation_rad": ("rad", "angle from the true rotation"),
    "rotation_symmetric_rad": ("rad", "angle from the nearest symmetric copy of the true rotation"),
    "add_m": ("m", "ADD: mean distance of the surface's points"),
    "add_s_m": ("m", "ADD-S: mean distance to the nearest points"),
    "mssd_m": ("m", "MSSD: largest distance, of the nearest symmetric copy"),
}
OF_ERRORS = {"mean": "mean", **{f"p{100 * at:g}": f"{100 * at:g} % quantile" for at in tracking.QUANTILES}}


def _column(name: str, **about: Any) -> Column:
    return Column(f"tracking.<estimate>.{name}", always=True, **about)


COLUMNS = (
    *(
        _column(f"{k}_{of}", unit=unit, direction="lower", meaning=f"{what}, {word} over frames")
        for (k, (unit, what)) in ERRORS.items()
        for of, word in OF_ERRORS.items()
    ),
    _column("near_share", direction="higher", meaning="share of counted frames within near_m and near_rad"),
    _column("near_coverage", direction="higher", meaning="the same of all frames with a true pose"),
    _column("coverage", direction="higher", meaning="share of frames with a true pose that have an estimate"),
    _column("status", kind="status", meaning="ok, or why there are no errors"),
    _column("lost_n", direction="lower", meaning="frames without an estimate"),
    _column("jump_n", direction="lower", meaning="frames after a jump of more than jump_m"),
    _column("frozen_n", direction="lower", meaning="frames of runs in which the estimate stands bit-identical"),
    _column("stuck_n", direction="lower", meaning="frozen frames after which the estimate jumps"),
)

METRIC = Metric("tracking", TrackingSetting, needs, measure, COLUMNS, section="tracking")
