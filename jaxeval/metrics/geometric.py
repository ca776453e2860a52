"""Geometric execution quality Q (SPECTRA): what demonstrations constrain, and how far an execution departs from it.

Notation of the paper in words: pair j, progress bin l = p * M + m, demonstration k, tangent direction i.

    d_jl    = (rho, S phi) of Log(nominal_jl^-1 T_j)              scaled deviation, metres        (III-A2)
    C_jl    = 1/(K-1) sum_k d d^T = V diag(sigma^2) V^T           spread of the demonstrations    (III-A3)
    pinned  : sigma < sigma_pin,  sigma floored at sigma_0                                        (III-A3)
    z_ji(t) = |v_i^T d_j(t)| / sigma_i,  e = max(0, z - z_0)      excess deviation                (III-B1)
    c(t)    = sum_j sum_pinned e / n(t)                           frame cost                      (III-B1)
    n(t)    : pinned directions of the pairs seen in that frame
    Q       = G exp(-mean_t c(t))                                 quality, G the terminal gate    (III-B2)

The printed formulas of III-A2 to III-B2 are lost; these are our reading of the prose, the tables and the ablations.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval import align, se3
from jaxeval.linalg import eigh_small
from jaxeval.metrics.pairs import PairGroup as PairGroup
from jaxeval.metrics.pairs import over_pairs as over_pairs
from jaxeval.metrics.pairs import pair_groups as pair_groups
from jaxeval.metrics.pairs import scored_pairs as scored_pairs
from jaxeval.metrics.status import Status
from jaxeval.metrics.visibility import (
    WEIGHTINGS,
    ends_in,
    frame_weights,
    judged_frames,
    named_pair,
    require_columns,
    seen_enough,
    visibility,
)
from jaxeval.types import STATIC, Pair, Reference, TaskSpec, a_number, one_of, pytree

PENALTIES = ("hinge", "squared", "saturating")

GATE_OPEN, GATE_SUB_TASK, GATE_TERMINAL, GATE_SUCCESS = 0, 1, 2, 3


@pytree
class GeometricParams:
    """How Q is set. Floats are leaves, so a sweep over them is one vmapped call.

    ``sigma_pin_m``: directions with a smaller spread are pinned (sigma_pin, 4 mm). ``sigma_0_m``: floor of the spread
    (sigma_0, 3 mm). ``z_0``: admissible radius in spreads (1.5). ``term_factor``: the terminal gate opens at the
    demonstrations' largest terminal deviation times this. ``z_0_quantile``: with ``calibrated``, z_0 is this quantile
    of the demonstrations' own leave-one-out z instead. ``coverage_min``: an execution of which a pinned pair was seen
    in a smaller share of the frames is "insufficient tracking" (.8). ``penalty``: hinge e, squared e^2, saturating 1 -
    exp(-e). ``weighting``: every frame counts the same, or every progress bin does.
    """

    sigma_pin_m: float | Float[Array, ""] = 0.004
    sigma_0_m: float | Float[Array, ""] = 0.003
    z_0: float | Float[Array, ""] = 1.5
    term_factor: float | Float[Array, ""] = 1.5
    z_0_quantile: float | Float[Array, ""] = 0.95
    coverage_min: float | Float[Array, ""] = 0.8
    calibrated: bool = field(default=False, metadata=STATIC)
    penalty: str = field(default="hinge", metadata=STATIC)
    weighting: str = field(default="frames", metadata=STATIC)

    def check(self) -> GeometricParams:
        """Itself, or ValueError in one sentence. Call it on the host, before jit."""
        if self.penalty not in PENALTIES:
            raise ValueError(f"metric.penalty is '{self.penalty}'; expected one of {', '.join(PENALTIES)}")
        if self.weighting not in WEIGHTINGS:
            raise ValueError(f"metric.weighting is '{self.weighting}'; expected one of {', '.join(WEIGHTINGS)}")
        for name in ("sigma_pin_m", "sigma_0_m", "z_0", "term_factor"):
            value = a_number(f"metric.{name}", getattr(self, name))
            if not value > 0:
                raise ValueError(f"metric.{name} is {value}; expected a positive number")
        for name in ("z_0_quantile", "coverage_min"):
            a_number(f"metric.{name}", getattr(self, name))
        if self.calibrated not in (True, False):
            raise ValueError(f"metric.calibrated is {self.calibrated!r}; expected true or false")
        if not 0 < float(self.z_0_quantile) < 1:
            raise ValueError(f"metric.z_0_quantile is {float(self.z_0_quantile)}; expected a number between 0 and 1")
        if not 0 <= float(self.coverage_min) <= 1:
            raise ValueError(f"metric.coverage_min is {float(self.coverage_min)}; expected a share from 0 to 1")
        if float(self.sigma_0_m) >= float(self.sigma_pin_m):
            raise ValueError(
                f"metric.sigma_0_m ({float(self.sigma_0_m)} m) is not below metric.sigma_pin_m "
                f"({float(self.sigma_pin_m)} m): no direction would ever be pinned and every Q would be 1; "
                "lower the floor or raise the threshold"
            )
        return self


class Constraints(NamedTuple):
    """Constrained directions of every pair and bin, smallest spread first.

    ``directions[j, l, :, i]`` is v_i in scaled tangent coordinates (rho, S phi); ``sigma_m`` is floored; ``free`` marks
    directions of a declared continuous symmetry, which are never pinned.
    """

    directions: Float[Array, "J L 6 6"]
    sigma_m: Float[Array, "J L 6"]
    pinned: Bool[Array, "J L 6"]
    free: Float[Array, "J L 6 6"]


@pytree
class GeometricQuality:
    """Q of one execution and every part of it.

    ``q`` in [0, 1], higher is better; NaN only where ``status`` is not 0 (a Status). ``gate_free`` is
    exp(-mean cost), what a reward differentiates. ``gate_code``: 0 open, 1 sub-task ``gate_index`` never reached, 2
    terminal pose off in pair ``gate_index // 6``, direction ``gate_index % 6``, 3 the success flag is False. Costs are
    dimensionless, lower is better; pair costs add up to the mean frame cost, and so do direction costs (axis c of a
    pair's nominal frame takes the share v_ic^2 of direction i). A sub-task's cost is the mean over its frames.
    Coverages are shares of the frames, [0, 1]: of each pair, and of each of ``bodies``. The ``worst_`` fields tell of
    the sub-task that cost most, and in it of the relation that did (named_pair).
    """

    q: Float[Array, ""]
    gate_free: Float[Array, ""]
    gate: Bool[Array, ""]
    gate_code: Int[Array, ""]
    gate_index: Int[Array, ""]
    status: Int[Array, ""]
    frame_cost: Float[Array, " T"]
    frame_pair_cost: Float[Array, "J T"]
    pair_cost: Float[Array, " J"]
    direction_cost: Float[Array, "J 6"]
    sub_task_cost: Float[Array, " P"]
    pair_coverage: Float[Array, " J"]
    body_coverage: Float[Array, " N"]
    worst_frame: Int[Array, ""]
    worst_pair: Int[Array, ""]
    worst_direction: Int[Array, ""]
    worst_sub_task: Int[Array, ""]
    worst_z: Float[Array, ""]
    worst_deviation: Float[Array, "6"]  # unscaled (rho, phi) of the worst pair at the worst frame: metres, radians
    worst_axis: Float[Array, "6"]  # v of the worst direction


# ------------------------------------------------------------------------------------------------------ the reference


def fit_reference(
    relative: Float[Array, "K J T 7"],
    bins: Int[Array, "K T"],
    duration_s: Float[Array, "K P"],
    demo_valid: Bool[Array, " K"],
    *,
    scale: Float[Array, "J 3 3"],
    pairs: tuple[Pair, ...],
    spec: TaskSpec,
    bins_n: int,
    deviation: str = "se3_log",
    valid: Bool[Array, "K J T"] | None = None,
) -> Reference:
    """Learn nominal relative poses and their spread from K demonstrations of one task.

    ``relative[k, j, t]`` is T_b_a of pair j; ``bins`` from :func:`jaxeval.align.align_episode` (-1: not a frame);
    demonstrations with ``demo_valid`` False do not count (so that one padded set serves many subsets, by vmap), nor do
    those that :func:`seen_enough` leaves out, by ``valid``: frames in which both bodies of a pair were (None: all).
    Returns the Reference; nothing of it is differentiated. K below 7 pins directions for lack of samples.
    Source: SPECTRA III-A1 to III-A3 (our reading). Every demonstration must have reached every sub-task.
    """
    P = len(spec.sub_tasks)
    represent = partial(align.bin_poses, sub_tasks_n=P, bins_n=bins_n)
    counts = jnp.broadcast_to((bins >= 0)[:, None], relative.shape[:3])  # [K, J, T]
    if valid is None:
        poses, seen, converged_bins = jax.vmap(represent)(relative, bins)  # [K, J, L, 7], [K, J, L], [K, J, L]
    else:
        counts = counts & valid
        poses, seen, converged_bins = jax.vmap(lambda x, b, v: represent(x, b, valid=v))(relative, bins, valid)
        shown = jax.vmap(partial(seen_enough, pairs=pairs, sub_tasks_n=P, bins_n=bins_n))(bins, valid)
        demo_valid = demo_valid & jnp.all(shown, axis=(1, 2))
    weights = demo_valid.astype(relative.dtype)
    last_frame = jnp.max(jnp.where(counts, jnp.arange(bins.shape[1]), 0), axis=2)  # [K, J]
    final = jnp.take_along_axis(relative, last_frame[..., None, None], axis=2)[:, :, 0]  # [K, J, 7]

    def learn(geometry: se3.PairGeometry, T: Float[Array, "K L 7"], last: Float[Array, "K 7"]):
        mean = jax.vmap(lambda x: se3.lie_mean(x, weights, geometry=geometry), in_axes=1)(T)
        free = jax.vmap(lambda x: se3.free_projector(x, geometry))(mean.pose)

        def deviate(n: Float[Array, "7"], x: Float[Array, "7"], f: Float[Array, "6 6"]) -> Float[Array, "6"]:
            return se3.deviation(n, x, geometry, free=f, kind=deviation)

        # the last bin once more, with each demonstration's last frame in place of its mean: one compiled deviation
        stacked = jnp.concatenate([T, last[:, None]], axis=1)
        nominal, free = (jnp.concatenate([x, x[-1:]]) for x in (mean.pose, free))
        d = jax.vmap(lambda x: jax.vmap(deviate)(nominal, x, free))(stacked)
        return mean.pose, mean.converged & mean.unique, d[:, :-1], d[:, -1]

    nominal, converged, deviations, terminal = over_pairs(
        learn, spec, pairs, scale, jnp.swapaxes(poses, 0, 1), jnp.swapaxes(final, 0, 1)
    )
    converged = converged & jnp.all(converged_bins | ~demo_valid[:, None, None], axis=0)
    total = jnp.maximum(jnp.sum(weights), 1.0)
    return Reference(
        nominal=nominal,
        deviations=jnp.swapaxes(deviations, 0, 1),
        seen=seen,
        terminal=jnp.swapaxes(terminal, 0, 1),
        demo_valid=demo_valid,
        converged=converged,
        scale=scale,
        duration_s=jnp.sum(duration_s * weights[:, None], axis=0) / total,
        pairs=pairs,
        spec=spec,
        bins_n=bins_n,
        deviation=deviation,
    )


def _free(reference: Reference) -> Float[Array, "J L 6 6"]:
    def project(geometry: se3.PairGeometry, nominal: Float[Array, "L 7"]) -> Float[Array, "L 6 6"]:
        return jax.vmap(lambda T: se3.free_projector(T, geometry))(nominal)

    return over_pairs(project, reference.spec, reference.pairs, reference.scale, reference.nominal)


def _axes_of_spread(
    covariance: Float[Array, "6 6"], free: Float[Array, "6 6"], sigma_0_m: Float[Array, ""]
) -> tuple[Float[Array, "6 6"], Float[Array, "6"]]:
    """Eigenvectors and floored spreads. Floored directions share one spread, so their basis is made canonical.

    With P the projector on the floored block, the eigenvectors of P diag(1..6) P span it in one way only; the other
    directions keep their own, pushed behind by distinct large eigenvalues.
    """
    values, vectors = eigh_small(covariance + free)  # 1 m^2 along free directions: far above any threshold
    sigma = jnp.sqrt(jnp.maximum(values, 0.0))
    floored = sigma <= sigma_0_m
    P = (vectors * floored[None]) @ vectors.T
    ranks = jnp.where(floored, 0.0, 100.0 * (1.0 + jnp.arange(6)))
    canonical = P @ jnp.diag(jnp.arange(1.0, 7.0, dtype=P.dtype)) @ P + (vectors * ranks[None]) @ vectors.T
    _, directions = eigh_small(canonical)
    return jax.lax.stop_gradient(directions), jax.lax.stop_gradient(sigma)


def _covariance(deviations: Float[Array, "K J L 6"], weights: Float[Array, " K"]) -> Float[Array, "J L 6 6"]:
    outer = jnp.einsum("kjla,kjlb,k->jlab", deviations, deviations, weights)
    return outer / jnp.maximum(jnp.sum(weights) - 1.0, 1.0)


def constraints(reference: Reference, params: GeometricParams) -> Constraints:
    """Constrained directions of a reference under given thresholds: which, and how much each admits.

    sigma_i = max(sqrt(lambda_i), sigma_0) for the eigenvalues of the demonstrations' covariance; pinned where
    sigma_i < sigma_pin and the direction is not free by symmetry. Source: SPECTRA III-A3 (our reading).
    """
    weights = reference.demo_valid.astype(reference.deviations.dtype)
    return _constraints(reference.deviations, weights, _free(reference), params)


def _constraints(
    deviations: Float[Array, "K J L 6"],
    weights: Float[Array, " K"],
    free: Float[Array, "J L 6 6"],
    params: GeometricParams,
) -> Constraints:
    C = _covariance(deviations, weights)
    floor = jnp.asarray(params.sigma_0_m, C.dtype)
    directions, sigma = jax.vmap(jax.vmap(lambda c, f: _axes_of_spread(c, f, floor)))(C, free)
    sigma = jnp.maximum(sigma, floor)
    is_free = jnp.einsum("jlai,jlab,jlbi->jli", directions, free, directions) > 0.5
    return Constraints(directions, sigma, (sigma < params.sigma_pin_m) & ~is_free, free)


def leave_one_out_z(reference: Reference, params: GeometricParams) -> Float[Array, "K J L 6"]:
    """z of every demonstration against the reference learned from all other demonstrations; NaN where no
    direction is pinned.

    To first order about the nominal: leaving k out moves the mean by -d_k/(K-1), so the deviation becomes d K/(K-1).
    """
    weights = reference.demo_valid.astype(reference.deviations.dtype)
    K = jnp.sum(weights)
    free = _free(reference)

    def one(k: Int[Array, ""]) -> Float[Array, "J L 6"]:
        others = weights.at[k].set(0.0)
        shift = reference.deviations[k] / jnp.maximum(K - 1, 1.0)
        found = _constraints(reference.deviations + shift[None], others, free, params)
        z = _z(reference.deviations[k] + shift, found.directions, found.sigma_m)
        return jnp.where(found.pinned & reference.demo_valid[k], z, jnp.nan)

    return jax.lax.map(one, jnp.arange(weights.shape[0]), batch_size=16)


def admissible_radius(reference: Reference, params: GeometricParams) -> Float[Array, ""]:
    """z_0: the fixed radius, or (calibrated) a quantile of the demonstrations' leave-one-out z."""
    if not params.calibrated:
        return jnp.asarray(params.z_0, reference.nominal.dtype)
    z = leave_one_out_z(reference, params)
    return jax.lax.stop_gradient(jnp.nanquantile(z, jnp.asarray(params.z_0_quantile, z.dtype)))


def terminal_limit(reference: Reference, found: Constraints, params: GeometricParams) -> Float[Array, " J"]:
    """z that each pair may have at the end: the spec's, else the demonstrations' largest times ``term_factor``.

    Never below z_0: a gate stricter than the admissible radius would close on executions that cost nothing (ours).
    """
    if reference.spec.z_term is not None:
        return jnp.full(len(reference.pairs), reference.spec.z_term, reference.nominal.dtype)
    z = jax.vmap(lambda d: _z(d, found.directions[:, -1], found.sigma_m[:, -1]))(reference.terminal)  # [K, J, 6]
    counts = terminal_directions(found)[None] & reference.demo_valid[:, None, None]
    largest = jnp.max(jnp.where(counts, z, 0.0), axis=(0, 2))
    return jnp.maximum(params.term_factor * largest, admissible_radius(reference, params))


def terminal_directions(found: Constraints) -> Bool[Array, "J 6"]:
    """Pinned directions of the last bin that are translations for at least a half (|v_rho|^2 >= 1/2)."""
    share = jnp.sum(found.directions[:, -1, :3] ** 2, axis=1)
    return found.pinned[:, -1] & (share >= 0.5)


def _z(
    d: Float[Array, "*A 6"], directions: Float[Array, "*A 6 6"], sigma: Float[Array, "*A 6"]
) -> Float[Array, "*A 6"]:
    """z_i = |v_i^T d| / sigma_i."""
    return jnp.abs(jnp.einsum("...ai,...a->...i", directions, d)) / sigma


# ---------------------------------------------------------------------------------------------------------- the score


def penalise(excess: Float[Array, "..."], penalty: str) -> Float[Array, "..."]:
    """Cost of an excess deviation e >= 0: hinge e (default), squared e^2, saturating 1 - exp(-e)."""
    one_of("penalty", penalty, PENALTIES)
    if penalty == "squared":
        return excess**2
    if penalty == "saturating":
        return 1.0 - jnp.exp(-excess)
    return excess


def geometric_quality(
    poses: Float[Array, "T N 7"],
    alignment: align.Alignment,
    success: Int[Array, ""],
    *,
    reference: Reference,
    params: GeometricParams,
    bodies: tuple[str, ...],
    valid: Bool[Array, "T N"] | None = None,
) -> GeometricQuality:
    """Geometric execution quality Q of one execution, in [0, 1], higher is better, with all its parts.

    Q = G exp(-mean_t c(t)), c(t) = sum over pairs and pinned directions of penalty(max(0, z - z_0)) / n(t), where
    z = |v^T d| / sigma in the frame's progress bin and n(t) counts the pinned directions there, over the pairs of which
    both bodies are ``valid`` in the frame (None: all are). The mean is over `visibility.judged_frames`: a frame all of
    whose pinned pairs are lost has no weight, since a cost of 0 there would be a measurement that nobody made.

    ``poses`` are T_world_body (wxyz_xyz, metres) of ``bodies``, in that order; ``alignment`` is align_episode's with
    the reference's mean durations; ``success`` is 1, 0 or -1 for unknown. Unchanged when the world frame changes. Pairs
    of which a body is missing are left out. Undefined (``status`` not 0, q NaN) with fewer than two valid frames,
    nothing pinned, or too little seen to judge ("insufficient tracking": a pinned pair in under ``coverage_min`` of the
    frames, or a pair of the terminal gate in no frame of the last progress bin). Source: SPECTRA III-B1, III-B2 (our
    reading). Oracle: tests/oracles, a float64 NumPy/SciPy twin.
    """
    require_columns(poses.shape[1], bodies)
    found = constraints(reference, params)
    use = scored_pairs(reference, bodies)
    bins = alignment.bins
    there = jnp.broadcast_to((bins >= 0)[:, None], poses.shape[:2])
    there = there if valid is None else there & valid
    safe_poses = jnp.where(there[..., None], poses, jnp.asarray(se3.IDENTITY, poses.dtype)[None, None])
    slot = jnp.where(bins >= 0, bins, 0)
    z_0 = admissible_radius(reference, params).astype(poses.dtype)
    seen = visibility(
        valid, bins, *pinned_pairs(found), pairs=reference.pairs, use=use, bodies=bodies,
        coverage_min=params.coverage_min, dtype=poses.dtype,
    )  # fmt: skip

    _, z = departures(safe_poses, slot, found, reference, bodies)
    in_bin = found.pinned[:, slot] & _row_mask(len(reference.pairs), use)[:, None, None]  # [J, T, 6]
    cost, n = _direction_costs(z, in_bin & seen.pairs[..., None], z_0, params)
    frame_pair_cost = jnp.sum(cost, axis=2)
    judged = judged_frames(seen.pairs, n, jnp.sum(in_bin, axis=(0, 2)), bins)
    judged_bins, L = jnp.where(judged, bins, -1), reference.nominal.shape[1]
    weights = frame_weights(judged_bins, L=L, weighting=params.weighting, dtype=poses.dtype)

    gate_code, gate_index = terminal_gate(
        z[jnp.arange(z.shape[0]), seen.last], found, terminal_limit(reference, found, params), alignment, success,
        reference, use,
    )  # fmt: skip
    summary = summarise(frame_pair_cost, n, bins, judged, weights, gate_code, seen.enough, reference=reference)

    shares = found.directions[:, slot] ** 2  # [J, T, 6 axes, 6 directions]
    direction_cost = jnp.einsum("jtai,jti,t->ja", shares, cost, weights)
    t, j = summary.worst_frame, summary.worst_pair
    worst = explain_frame(safe_poses[t], bins[t], j, found=found, reference=reference, bodies=bodies)
    return GeometricQuality(
        q=summary.q,
        gate_free=summary.gate_free,
        gate=gate_code == GATE_OPEN,
        gate_code=gate_code,
        gate_index=gate_index,
        status=summary.status,
        frame_cost=jnp.sum(frame_pair_cost, axis=0),
        frame_pair_cost=frame_pair_cost,
        pair_cost=summary.pair_cost,
        direction_cost=direction_cost,
        sub_task_cost=summary.sub_task_cost,
        pair_coverage=seen.pair_coverage,
        body_coverage=seen.body_coverage,
        worst_frame=t,
        worst_pair=j,
        worst_direction=worst.direction,
        worst_sub_task=summary.worst_sub_task,
        worst_z=worst.z,
        worst_deviation=worst.deviation,
        worst_axis=worst.axis,
    )


def _direction_costs(
    z: Float[Array, "J T 6"], counted: Bool[Array, "J T 6"], z_0: Float[Array, "..."], params: GeometricParams
) -> tuple[Float[Array, "J T 6"], Int[Array, " T"]]:
    """(cost of every direction as a share of its frame's, how many directions count in the frame)."""
    n = jnp.sum(counted, axis=(0, 2))
    cost = jnp.where(counted, penalise(jnp.maximum(z - z_0, 0.0), params.penalty), 0.0)
    return cost / jnp.maximum(n, 1)[None, :, None].astype(z.dtype), n


def pinned_pairs(found: Constraints) -> tuple[Bool[Array, " J"], Bool[Array, " J"]]:
    """Pairs with a pinned direction in any bin, and those with one that the terminal gate judges."""
    return jnp.any(found.pinned, axis=(1, 2)), jnp.any(terminal_directions(found), axis=1)


def departures(
    poses: Float[Array, "T N 7"],
    slot: Int[Array, " T"],
    found: Constraints,
    reference: Reference,
    bodies: tuple[str, ...],
) -> tuple[Float[Array, "J T 6"], Float[Array, "J T 6"]]:
    """(scaled deviation d, z of every direction) of each pair and frame, in progress bin ``slot``.

    Pairs of which a body is missing hold the deviation of an identity pose; the caller leaves them out.
    """

    def depart(geometry: se3.PairGeometry, T_b_a: Array, nominal: Array, free: Array, directions: Array, sigma: Array):
        def one(T: Float[Array, "7"], l: Int[Array, ""]) -> Float[Array, "6"]:
            return se3.deviation(nominal[l], T, geometry, free=free[l], kind=reference.deviation)

        d = jax.vmap(one)(T_b_a, slot)
        return d, _z(d, directions[slot], sigma[slot])

    use = scored_pairs(reference, bodies)
    columns = tuple(_columns(p, bodies) if j in use else (0, 0) for j, p in enumerate(reference.pairs))
    relative = align.relative_tracks(poses, columns)
    arrays = (relative, reference.nominal, found.free, found.directions, found.sigma_m)
    return over_pairs(depart, reference.spec, reference.pairs, reference.scale, *arrays)


class Departure(NamedTuple):
    """What went wrong at one frame: the worst direction of one pair, for people to read."""

    direction: Int[Array, ""]
    z: Float[Array, ""]
    deviation: Float[Array, "6"]  # unscaled (rho, phi): metres, radians, in a's nominal frame
    axis: Float[Array, "6"]  # v of the direction, scaled tangent coordinates


def explain_frame(
    poses: Float[Array, "N 7"],
    progress_bin: Int[Array, ""],
    pair: Int[Array, ""],
    *,
    found: Constraints,
    reference: Reference,
    bodies: tuple[str, ...],
) -> Departure:
    """The pinned direction of ``pair`` with the largest z at one frame, and the deviation there."""
    slot = jnp.maximum(progress_bin, 0)
    deviations, z = departures(poses[None], slot[None], found, reference, bodies)
    d, z = deviations[pair, 0], jnp.where(found.pinned[pair, slot], z[pair, 0], -1.0)
    direction = jnp.argmax(z)
    scale = reference.scale[pair]
    phi = jnp.cross(scale[1], scale[2]) * d[3] + jnp.cross(scale[2], scale[0]) * d[4]  # Cramer: scale is symmetric
    phi = (phi + jnp.cross(scale[0], scale[1]) * d[5]) / (scale[0] @ jnp.cross(scale[1], scale[2]))
    axis = found.directions[pair, slot, :, direction]
    return Departure(direction.astype(jnp.int32), z[direction], jnp.concatenate([d[:3], phi]), axis)


def _columns(pair: Pair, bodies: tuple[str, ...]) -> tuple[int, int]:
    return bodies.index(pair.a), bodies.index(pair.b)


def _row_mask(J: int, use: tuple[int, ...]) -> Bool[Array, " J"]:
    mask = np.zeros(J, bool)
    mask[list(use)] = True
    return jnp.asarray(mask)


def terminal_gate(
    z_last: Float[Array, "J 6"],
    found: Constraints,
    limit: Float[Array, " J"],
    alignment: align.Alignment,
    success: Int[Array, ""],
    reference: Reference,
    use: tuple[int, ...],
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """(code, index) of the first test that fails: a sub-task never reached, the terminal pose, the success flag.

    The terminal pose is judged on the translational pinned directions of (m | r) and (m | s), ``z_last`` of each at the
    last frame in which it was seen, against the last bin. Source: SPECTRA III-B2 and IV-C ("terminal position
    criteria"), our reading.
    """
    judged = jnp.asarray(ends_in(reference.pairs, use))
    off = terminal_directions(found) & judged[:, None] & (z_last > limit[:, None])
    ratio = jnp.where(off, z_last / jnp.maximum(limit, 1e-9)[:, None], 0.0)
    missed, misplaced = ~jnp.all(alignment.reached), jnp.any(off)
    failed = (success == 0) & reference.spec.use_success_flag
    code = jnp.where(
        missed, GATE_SUB_TASK, jnp.where(misplaced, GATE_TERMINAL, jnp.where(failed, GATE_SUCCESS, GATE_OPEN))
    )
    index = jnp.where(missed, jnp.argmin(alignment.reached), jnp.where(misplaced, jnp.argmax(ratio.ravel()), -1))
    return code.astype(jnp.int32), index.astype(jnp.int32)


class Summary(NamedTuple):
    """What follows from the cost of every frame and pair, whichever kernel made it."""

    q: Float[Array, ""]
    gate_free: Float[Array, ""]
    status: Int[Array, ""]
    pair_cost: Float[Array, " J"]
    sub_task_cost: Float[Array, " P"]
    worst_frame: Int[Array, ""]
    worst_pair: Int[Array, ""]
    worst_sub_task: Int[Array, ""]


def summarise(
    frame_pair_cost: Float[Array, "J T"],
    n: Int[Array, " T"],
    bins: Int[Array, " T"],
    judged: Bool[Array, " T"],
    weights: Float[Array, " T"],
    gate_code: Int[Array, ""],
    enough: Bool[Array, ""],
    *,
    reference: Reference,
) -> Summary:
    """Q, mean costs per pair and per sub-task over the ``judged`` frames, and where the cost is largest."""
    P, M = len(reference.spec.sub_tasks), reference.bins_n
    frames, valid = bins >= 0, judged
    pair_cost = frame_pair_cost @ weights
    gate_free = jnp.exp(-jnp.sum(pair_cost))
    frame_cost = jnp.sum(frame_pair_cost, axis=0)
    inside = (jnp.where(valid, bins, -M) // M)[None] == jnp.arange(P)[:, None]  # [P, T]
    in_sub_task = jnp.sum(inside, axis=1)
    sub_task_sum = jnp.sum(jnp.where(inside, frame_cost[None], 0.0), axis=1)
    sub_task_cost = sub_task_sum / jnp.maximum(in_sub_task, 1).astype(frame_cost.dtype)
    pinned = jnp.any(n > 0)
    status = jnp.where(pinned, Status.OK, Status.NOTHING_PINNED)
    status = jnp.where(pinned & (jnp.sum(judged) < 2), Status.FEW_FRAMES, status)
    status = jnp.where(enough, status, Status.TRACKING)
    status = jnp.where(jnp.sum(frames) < 2, Status.FEW_FRAMES, status)
    # a relation breaks over a stretch, and a single frame may stand out for other reasons: the sub-task that cost most
    # in all, the relation that did most of it, the bin in which that one did, and there the frame in which it cost most
    worst_sub_task = jnp.argmax(sub_task_sum)
    in_worst = inside[worst_sub_task]
    worst_pair = named_pair(frame_pair_cost @ in_worst.astype(frame_cost.dtype), reference.pairs)
    its_cost = jnp.where(in_worst, frame_pair_cost[worst_pair], 0.0)
    L = reference.nominal.shape[1]
    bin_cost = jax.ops.segment_sum(its_cost, jnp.where(valid, bins, L), num_segments=L + 1)[:L]
    in_worst_bin = in_worst & (bins == jnp.argmax(bin_cost))
    worst_frame = jnp.argmax(jnp.where(in_worst_bin, its_cost, -1.0))
    ok = status == Status.OK
    return Summary(
        q=jnp.where(ok, jnp.where(gate_code == GATE_OPEN, gate_free, 0.0), jnp.nan),
        gate_free=jnp.where(ok, gate_free, jnp.nan),
        status=status.astype(jnp.int32),
        pair_cost=pair_cost,
        sub_task_cost=sub_task_cost,
        worst_frame=worst_frame.astype(jnp.int32),
        worst_pair=worst_pair,
        worst_sub_task=worst_sub_task.astype(jnp.int32),
    )
