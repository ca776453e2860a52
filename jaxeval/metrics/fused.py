"""The same Q as :func:`jaxeval.metrics.geometric.geometric_quality`, for whole batches, laid out for speed.

One kernel behind `score`. Every component of a pose is an array of its own with frames contiguous, so that a compiler
turns the formulas into plain vector loops; what depends only on the reference is folded into one table a pair and bin:

    E      = (q_b q_n)^* q_a,  t = R(q_b q_n)^T (t_a - t_b) - R_n^T t_n      nominal^-1 T_b^-1 T_a, one rotation less
    xi     = Log(E, t)                                                       without a branch, see `_log`
    z      = |W xi|,  W = diag(pinned / sigma) V^T (I - F) diag(I, S)        unpinned rows are zero and cost nothing

A chunk of episodes goes through at a time and stays in cache. Everything that is not per frame and pair (constraints,
weights, gate, summary) is geometric.py's own. Values and gradients agree with the public function (tests/metrics).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval import align, se3
from jaxeval.linalg import conjugate, cross, product, rotated, rotation_rows
from jaxeval.metrics import geometric
from jaxeval.metrics.geometric import Constraints, GeometricParams, PairGroup
from jaxeval.metrics.visibility import (
    Visibility,
    ends_in,
    frame_weights,
    judged_frames,
    require_columns,
    visibility,
)
from jaxeval.types import Reference, Symmetry, one_of, pytree

FRAMES_IN_CHUNK = 4096
"""Frames (padding included) that go through at a time: each component of five pairs is then 80 kB."""

Parts = tuple[Float[Array, "U F"], ...]  # one array a component; U scored pairs of a kind, F frames of a chunk

ROWS_N = 4 + 3 + 36  # nominal quaternion, R_n^T t_n, W by rows


class Tables(NamedTuple):
    """What the frames are compared with; made once for a reference and its Params, then used for every batch.

    ``rows[:, j, l]``: nominal quaternion q_n, then R_n^T t_n (metres), then W (6 x 6 by rows, 1/m and 1/rad).
    ``pinned_n``: pinned directions of each scored pair in each bin, in the order of `scored_pairs`. ``limit``: z that
    each pair may have at the end.
    """

    rows: Float[Array, "43 J L"]
    pinned_n: Int[Array, "U L"]
    z_0: Float[Array, ""]
    limit: Float[Array, " J"]
    found: Constraints


@pytree
class FusedQuality:
    """Q of every execution of a batch, and its parts; fields as in :class:`geometric.GeometricQuality`.

    A jitted caller that returns ``q`` alone pays for q alone: the compiler drops the rest.
    """

    q: Float[Array, " B"]
    gate_free: Float[Array, " B"]
    gate: Bool[Array, " B"]
    gate_code: Int[Array, " B"]
    gate_index: Int[Array, " B"]
    status: Int[Array, " B"]
    pair_cost: Float[Array, "B J"]
    sub_task_cost: Float[Array, "B P"]
    pair_coverage: Float[Array, "B J"]
    body_coverage: Float[Array, "B N"]
    worst_frame: Int[Array, " B"]
    worst_pair: Int[Array, " B"]
    worst_sub_task: Int[Array, " B"]
    frame_pair_cost: Float[Array, "B J T"]


def tables(reference: Reference, params: GeometricParams, *, bodies: tuple[str, ...]) -> Tables:
    """Constraints, nominal poses and thresholds of a reference, folded for :func:`quality_by_tables`.

    Differentiable in the float Params, as far as the public function is.
    """
    found = geometric.constraints(reference, params)
    J, L = reference.nominal.shape[:2]
    dtype = reference.nominal.dtype
    scale = (
        jnp.zeros((J, 6, 6), dtype).at[:, :3, :3].set(jnp.eye(3, dtype=dtype)[None]).at[:, 3:, 3:].set(reference.scale)
    )
    kept = jnp.eye(6, dtype=dtype)[None, None] - found.free
    W = jnp.einsum("jlai,jlab,jbc->jlic", found.directions, kept, scale) / found.sigma_m[..., None]
    W = jnp.where(found.pinned[..., None], W, 0.0).reshape(J, L, 36)
    inverse = jax.vmap(jax.vmap(se3.inverse))(reference.nominal)
    rows = jnp.concatenate([reference.nominal[..., :4], -inverse[..., 4:], W], axis=-1)
    use = np.asarray(geometric.scored_pairs(reference, bodies), np.int32)
    z_0 = geometric.admissible_radius(reference, params)
    return Tables(
        rows=jnp.moveaxis(rows, -1, 0),
        pinned_n=jnp.sum(found.pinned[use], axis=2),
        z_0=jnp.where(jnp.isnan(z_0), 0.0, z_0),  # calibrated with nothing pinned: then nothing is compared with it
        limit=geometric.terminal_limit(reference, found, params),
        found=found,
    )


def fused_quality(
    poses: Float[Array, "B T N 7"],
    alignment: align.Alignment,
    success: Int[Array, " B"],
    *,
    reference: Reference,
    params: GeometricParams,
    bodies: tuple[str, ...],
    valid: Bool[Array, "B T N"] | None = None,
) -> FusedQuality:
    """Geometric execution quality Q of a batch of executions, in [0, 1], higher is better, with its parts.

    The same as :func:`jaxeval.metrics.geometric.geometric_quality` vmapped over the episodes. ``poses`` are
    T_world_body (wxyz_xyz, metres) of ``bodies``; ``alignment`` is align_episode's with a leading episode axis.
    """
    made = tables(reference, params, bodies=bodies)
    settings: dict[str, Any] = {"reference": reference, "params": params, "bodies": bodies, "valid": valid}
    return quality_by_tables(poses, alignment, success, made, **settings)


def quality_by_tables(
    poses: Float[Array, "B T N 7"],
    alignment: align.Alignment,
    success: Int[Array, " B"],
    made: Tables,
    *,
    reference: Reference,
    params: GeometricParams,
    bodies: tuple[str, ...],
    valid: Bool[Array, "B T N"] | None = None,
) -> FusedQuality:
    """:func:`fused_quality` with the tables already made: what a loop over many batches calls."""
    require_columns(poses.shape[2], bodies)
    B, T = alignment.bins.shape
    use = geometric.scored_pairs(reference, bodies)
    flat = tuple(
        (made.rows if len(g.members) == len(reference.pairs) else made.rows[:, np.asarray(g.members, np.int32)])
        .reshape(ROWS_N, -1)
        .astype(poses.dtype)
        for g in _groups(reference, bodies)
    )
    frames = alignment.bins >= 0
    seen = _seen(valid, alignment.bins, made, reference, params, use, bodies, poses.dtype)
    there = jnp.broadcast_to(frames[..., None], poses.shape[:3]) if valid is None else valid & frames[..., None]
    z_last = _terminal_z(poses, there, alignment.bins, seen.last, flat, reference, use, bodies)
    gate_code, gate_index = jax.vmap(
        lambda z, a, s: geometric.terminal_gate(z, made.found, made.limit, a, s, reference, use)
    )(z_last, alignment, success)

    costs, z_0 = _costs(reference, params, bodies), made.z_0.astype(poses.dtype)
    flattened = (
        poses.reshape(B * T, *poses.shape[2:]), there.reshape(B * T, there.shape[2]), alignment.bins.reshape(B * T),
    )  # fmt: skip
    cost = _in_chunks(lambda x: costs(*x, flat, z_0, reference.nominal, reference.scale), flattened)
    cost = jnp.swapaxes(cost.reshape(len(use), B, T), 0, 1)
    pairs_seen = seen.pairs[:, np.asarray(use, np.int32)]
    n, all_n = _pinned_n(made.pinned_n, alignment.bins, pairs_seen)
    share = 1.0 / jnp.maximum(n, 1).astype(poses.dtype)
    frame_pair_cost = _spread(jnp.where(pairs_seen, cost * share[:, None], 0.0), use, len(reference.pairs))

    def summary(
        cost: Float[Array, "J T"], n: Int[Array, " T"], judged: Bool[Array, " T"], bins: Int[Array, " T"],
        code: Int[Array, ""], enough: Bool[Array, ""],
    ):  # fmt: skip
        L = reference.nominal.shape[1]
        judged_bins = jnp.where(judged, bins, -1)
        weights = frame_weights(judged_bins, L=L, weighting=params.weighting, dtype=cost.dtype)
        return geometric.summarise(cost, n, bins, judged, weights, code, enough, reference=reference)

    judged = jax.vmap(judged_frames)(pairs_seen, n, all_n, alignment.bins)
    made_of = jax.vmap(summary)(frame_pair_cost, n, judged, alignment.bins, gate_code, seen.enough)
    return FusedQuality(
        q=made_of.q,
        gate_free=made_of.gate_free,
        gate=gate_code == geometric.GATE_OPEN,
        gate_code=gate_code,
        gate_index=gate_index,
        status=made_of.status,
        pair_cost=made_of.pair_cost,
        sub_task_cost=made_of.sub_task_cost,
        pair_coverage=seen.pair_coverage,
        body_coverage=seen.body_coverage,
        worst_frame=made_of.worst_frame,
        worst_pair=made_of.worst_pair,
        worst_sub_task=made_of.worst_sub_task,
        frame_pair_cost=frame_pair_cost,
    )


def _seen(
    valid: Bool[Array, "B T N"] | None,
    bins: Int[Array, "B T"],
    made: Tables,
    reference: Reference,
    params: GeometricParams,
    use: tuple[int, ...],
    bodies: tuple[str, ...],
    dtype: Any,
) -> Visibility:
    """What of every episode was seen, with a leading episode axis."""
    pinned, terminal = geometric.pinned_pairs(made.found)

    def look(valid: Bool[Array, "T N"] | None, bins: Int[Array, " T"]) -> Visibility:
        return visibility(
            valid, bins, pinned, terminal, pairs=reference.pairs, use=use, bodies=bodies,
            coverage_min=params.coverage_min, dtype=dtype,
        )  # fmt: skip

    return jax.vmap(lambda b: look(None, b))(bins) if valid is None else jax.vmap(look)(valid, bins)


def _terminal_z(
    poses: Float[Array, "B T N 7"],
    there: Bool[Array, "B T N"],
    bins: Int[Array, "B T"],
    last: Int[Array, "B J"],
    flat: tuple[Array, ...],
    reference: Reference,
    use: tuple[int, ...],
    bodies: tuple[str, ...],
) -> Float[Array, "B J 6"]:
    """z of each pair that the terminal gate judges, at the last frame in which the episode shows it; 0 of others."""
    gated = tuple(j for j in use if ends_in(reference.pairs, use)[j])
    B = poses.shape[0]
    by_pair = jnp.zeros((B, len(reference.pairs), 6), poses.dtype)
    if not gated:
        return by_pair
    at = jnp.concatenate([last[:, j] for j in gated])
    row = jnp.tile(jnp.arange(B), len(gated))
    z = _z(
        poses[row, at], there[row, at], bins[row, at], flat, reference.nominal, reference.scale, reference, bodies
    )  # fmt: skip
    by_use = jnp.stack(z, axis=-1).reshape(len(use), len(gated), B, 6)
    for g, j in enumerate(gated):
        by_pair = by_pair.at[:, j].set(by_use[use.index(j), g])
    return by_pair


def _pinned_n(
    pinned_n: Int[Array, "U L"], bins: Int[Array, "B T"], pairs_seen: Bool[Array, "B U T"]
) -> tuple[Int[Array, "B T"], Int[Array, "B T"]]:
    """Pinned directions in every frame: of the pairs seen there, and of all pairs."""
    frames, slot = bins >= 0, jnp.maximum(bins, 0)
    all_n = jnp.sum(pinned_n, axis=0).astype(jnp.int32).at[slot].get(mode="promise_in_bounds")

    def seen_n() -> Int[Array, "B T"]:
        n = all_n
        for u in range(len(pinned_n)):
            of_pair = pinned_n[u].astype(jnp.int32).at[slot].get(mode="promise_in_bounds")
            n = n - jnp.where(pairs_seen[:, u], 0, of_pair)
        return n

    n = jax.lax.cond(jnp.all(pairs_seen | ~frames[:, None]), lambda: jnp.where(frames, all_n, 0), seen_n)
    return n, all_n


def chunk_size(frames_n: int) -> int:
    """Frames a chunk: a divisor of ``frames_n`` near FRAMES_IN_CHUNK where there is one, at most half of them."""
    most = max(1, min(2 * FRAMES_IN_CHUNK, frames_n // 2))
    for size in sorted(range(most, most // 4, -1), key=lambda size: abs(size - FRAMES_IN_CHUNK)):
        if frames_n % size == 0:
            return size
    return min(most, FRAMES_IN_CHUNK)


def _in_chunks(
    f: Callable[[tuple[Float[Array, "C N 7"], Bool[Array, "C N"], Int[Array, " C"]]], Float[Array, "U C"]],
    xs: tuple[Float[Array, "F N 7"], Bool[Array, "F N"], Int[Array, " F"]],
) -> Float[Array, "U F"]:
    """``f`` over the frames, a chunk at a time, never all at once: a loop also keeps the compiler from repeating the
    whole kernel inside every sum over its result. The last chunk is filled up with invalid frames."""
    F = xs[2].shape[0]
    size = chunk_size(F)
    chunks_n = -(-F // size)
    if (missing := chunks_n * size - F) > 0:
        poses, there, bins = xs
        rows = (0, missing)
        xs = (
            jnp.pad(poses, (rows, (0, 0), (0, 0))),
            jnp.pad(there, (rows, (0, 0))),
            jnp.pad(bins, rows, constant_values=-1),
        )
    out = jax.lax.map(f, jax.tree.map(lambda x: x.reshape(chunks_n, size, *x.shape[1:]), xs))
    return jnp.swapaxes(out, 0, 1).reshape(out.shape[1], chunks_n * size)[:, :F]


def _spread(cost: Float[Array, "B U T"], use: tuple[int, ...], J: int) -> Float[Array, "B J T"]:
    """Costs of the scored pairs at their places among all pairs, zero elsewhere."""
    if use == tuple(range(J)):
        return cost
    return jnp.zeros((cost.shape[0], J, cost.shape[2]), cost.dtype).at[:, np.asarray(use, np.int32)].set(cost)


# ------------------------------------------------------------------------------------------- z of every frame and pair


def _costs(
    reference: Reference, params: GeometricParams, bodies: tuple[str, ...]
) -> Callable[..., Float[Array, "U F"]]:
    """Cost of every frame and scored pair, before the division by the number of pinned directions.

    The function returned takes (poses [F, N, 7], there [F, N], bins [F], flat, z_0, nominal, scale) and of
    ``reference`` and ``params`` only what is static is used. It is one long loop without branches. Differentiated as it
    stands, a compiler repeats that loop for every component of the gradient (thousands of times slower, measured), so
    backwards the same formulas run stage by stage.
    """

    def total(
        stage: Stage, poses: Array, there: Array, bins: Array, flat: Any, z_0: Array, nominal: Array, scale: Array
    ) -> Array:
        z = _z(poses, there, bins, flat, nominal, scale, reference, bodies, stage)
        return jnp.asarray(sum(geometric.penalise(jnp.maximum(z_i - z_0, 0.0), params.penalty) for z_i in z))

    @jax.custom_vjp
    def costs(*x: Any) -> Array:
        return total(_at_once, *x)

    def forward(*x: Any) -> tuple[Array, Any]:
        return costs(*x), x

    def backward(x: Any, cotangent: Array) -> Any:
        poses, there, bins, *rest = x
        stage = partial(_apart, jnp.any(bins >= 0))
        _, pull = jax.vjp(lambda poses, *rest: total(stage, poses, there, bins, *rest), poses, *rest)
        of_poses, *of_rest = pull(cotangent)
        return of_poses, None, None, *of_rest

    costs.defvjp(forward, backward)
    return costs


Stage = Callable[..., Any]


def _at_once(f: Callable[..., Any], *x: Any) -> Any:
    return f(*x)


def _apart(live: Bool[Array, ""], f: Callable[..., Any], *x: Any) -> Any:
    """``f(*x)`` (zeros for a chunk without valid frames), which the compiler cannot merge with what comes after."""
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(f, *x))
    return jax.lax.cond(live, f, lambda *_: zeros, *x)


def _groups(reference: Reference, bodies: tuple[str, ...]) -> tuple[PairGroup, ...]:
    return geometric.pair_groups(reference.spec, reference.pairs, geometric.scored_pairs(reference, bodies))


def _z(
    poses: Float[Array, "F N 7"],
    there: Bool[Array, "F N"],
    bins: Int[Array, " F"],
    flat: tuple[Float[Array, "43 _"], ...],
    nominal: Float[Array, "J L 7"],
    scale: Float[Array, "J 3 3"],
    reference: Reference,
    bodies: tuple[str, ...],
    stage: Stage = _at_once,
) -> Parts:
    """z of the six directions of every scored pair, six arrays [U, F]; zero where a direction is not pinned.

    ``flat``: one table a group of pairs, its pairs and bins in one axis.
    """
    slot = jnp.maximum(bins, 0)
    identity = jnp.asarray(se3.IDENTITY, poses.dtype)
    poses = jnp.where(there[..., None], poses, identity[None, None])  # whatever stands for a body not seen stays out
    groups = _groups(reference, bodies)
    parts = [
        _z_group(poses, slot, f, nominal, scale, reference, bodies, g, stage) for f, g in zip(flat, groups, strict=True)
    ]
    if not parts:
        return tuple(jnp.zeros((0, bins.shape[0]), poses.dtype) for _ in range(6))
    if len(parts) == 1:
        return parts[0]
    back = np.argsort([j for g in groups for j in g.members])
    return tuple(jnp.concatenate(component)[back] for component in zip(*parts, strict=True))


def _z_group(
    poses: Float[Array, "F N 7"],
    slot: Int[Array, " F"],
    flat: Float[Array, "43 _"],
    nominal: Float[Array, "J L 7"],
    scale: Float[Array, "J 3 3"],
    reference: Reference,
    bodies: tuple[str, ...],
    group: PairGroup,
    stage: Stage,
) -> Parts:
    """:func:`_z` of one group's pairs."""
    index = np.asarray(group.members, np.int32)
    L = nominal.shape[1]
    # a flat table a component, read at (pair, bin): the compiler reads it inside the loop that uses it
    at = (np.arange(len(index), dtype=np.int32) * L)[:, None] + slot[None]

    def row(c: int) -> Float[Array, "U F"]:
        return flat[c].at[at].get(mode="promise_in_bounds")

    def both(poses: Float[Array, "F N 7"]) -> tuple[Parts, Parts]:
        names = zip(*((reference.pairs[j].a, reference.pairs[j].b) for j in group.members), strict=True)
        a, b = (tuple(jnp.transpose(poses[:, [bodies.index(n) for n in side]], (2, 1, 0))) for side in names)
        return a, b

    def error(a: Parts, b: Parts) -> tuple[Parts, Parts]:
        if group.symmetry_b.kind != "none" or group.symmetry_a.kind == "discrete":
            return _error(a, b, nominal[index][:, slot], scale[index], group)
        q_bn = product(b[:4], tuple(row(c) for c in range(4)))
        t = _minus(rotated(conjugate(q_bn), _minus(a[4:], b[4:])), tuple(row(c) for c in range(4, 7)))
        if group.symmetry_a.kind == "all":
            return (), t
        q = product(conjugate(q_bn), a[:4])
        return (_unspun(q, scale[index], group.symmetry_a) if group.symmetry_a.kind == "spin" else q), t

    q, t = stage(error, *stage(both, poses))
    rho, phi = stage(partial(_log, kind=reference.deviation), q, t) if q else (t, ())
    return _weigh(rho, phi, row)


def _weigh(rho: Parts, phi: Parts, row: Callable[[int], Float[Array, "U F"]]) -> Parts:
    """|W xi|, six arrays; ``phi`` may be empty (a body that looks the same however it is turned)."""
    xi = (*rho, *phi)
    return tuple(jnp.abs(jnp.asarray(sum(row(7 + 6 * i + c) * x for c, x in enumerate(xi)))) for i in range(6))


def _error(
    a: Parts, b: Parts, nominal: Float[Array, "U F 7"], scale: Float[Array, "U 3 3"], group: PairGroup
) -> tuple[Parts, Parts]:
    """Quaternion and translation of nominal^-1 T for symmetries that have no path of their own here: se3's, slower."""

    def one(nominal: Float[Array, "7"], T_w_a: Float[Array, "7"], T_w_b: Float[Array, "7"], scale: Float[Array, "3 3"]):
        T_b_a = se3.relative_pose(T_w_a, T_w_b)
        return se3.symmetric_error(nominal, T_b_a, se3.PairGeometry(scale, group.symmetry_a, group.symmetry_b))

    over_frames = jax.vmap(one, in_axes=(0, 0, 0, None))
    error = jax.vmap(over_frames)(
        nominal.astype(a[0].dtype), jnp.stack(a, axis=-1), jnp.stack(b, axis=-1), scale.astype(a[0].dtype)
    )
    parts = tuple(jnp.moveaxis(error, -1, 0))
    return parts[:4], parts[4:]


# ---------------------------------------------------------------------------------- rotations, one array a component


def _minus(x: Parts, y: Parts) -> Parts:
    return tuple(i - j for i, j in zip(x, y, strict=True))


def _log(q: Parts, t: Parts, *, kind: str) -> tuple[Parts, Parts]:
    """(rho, phi) of the pose (q, t), the short way round: ``se3.log`` or ``se3.log_decoupled``, without a branch.

    With h = |q|, u = 1 / (h + w) and y = tan(theta / 4) = |v| u, which is at most 1: phi = 4 A u v for
    A = atan(y) / y = 1 - y^2 R(y^2), and the coefficient of phi x (phi x t) in V^-1 t, (1 - theta/2 cot(theta/2)) /
    theta^2, equals (1 + 2 R w u) / (16 A^2). R is a polynomial. No division by the angle: identity and pi are ordinary.
    """
    one_of("deviation", kind, se3.DEVIATIONS)
    dtype = q[0].dtype
    sign = jnp.where(q[0] < 0, -1.0, 1.0).astype(dtype)
    w, v = sign * q[0], tuple(sign * x for x in q[1:])
    square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2]
    h = jnp.sqrt(square + w * w)
    u = 1.0 / (h + w)
    y2 = square * u * u
    R = _polynomial(y2, _remainder(9 if dtype == jnp.float32 else 23))
    A = 1.0 - y2 * R
    phi = tuple(4.0 * A * u * x for x in v)
    if kind != "se3_log":
        return t, phi
    second = (1.0 + 2.0 * R * w * u) / (16.0 * A * A)
    once = cross(phi, t)
    twice = cross(phi, once)
    return tuple(t[i] - 0.5 * once[i] + second * twice[i] for i in range(3)), phi


def _polynomial(x: Float[Array, "U F"], coefficients: tuple[float, ...]) -> Float[Array, "U F"]:
    """Horner in 2 x - 1, highest power last."""
    s = 2.0 * x - 1.0
    out = jnp.full_like(s, coefficients[-1])
    for c in coefficients[-2::-1]:
        out = out * s + c
    return out


@cache
def _remainder(degree: int) -> tuple[float, ...]:
    """R(x) = (1 - atan(y) / y) / x, y = sqrt(x), on [0, 1]: interpolated at Chebyshev nodes, in powers of 2 x - 1.

    Degree 9 is right to 2e-9, degree 23 to 1e-14.
    """

    def R(s: np.ndarray) -> np.ndarray:
        x = (s + 1) / 2
        y = np.sqrt(x)
        series = sum((-1) ** n * x**n / (2 * n + 3) for n in range(16))
        return np.where(x < 0.05, series, (1 - np.arctan(y) / y) / np.maximum(x, 0.05))

    from numpy.polynomial import chebyshev

    fitted: Any = chebyshev.chebinterpolate(R, degree)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return tuple(float(c) for c in chebyshev.cheb2poly(fitted))


def _unspun(q: Parts, scale: Float[Array, "U 3 3"], symmetry: Symmetry) -> Parts:
    """``q`` followed by the turn about a's symmetry axis that brings a's surface nearest to the nominal.

    ``se3._turn_body`` with one array a component: the turn maximises tr(R(turn) Lambda^2 R(q)).
    """
    u = [float(c) for c in np.asarray(symmetry.axis, np.float64) / np.linalg.norm(symmetry.axis)]
    moment = jax.vmap(se3._moment)(scale.astype(q[0].dtype))  # pyright: ignore[reportPrivateUsage]
    w, x, y, z = q
    R = rotation_rows(q, square=w * w + x * x + y * y + z * z)
    M = [[sum(moment[:, i, k, None] * R[k][j] for k in range(3)) for j in range(3)] for i in range(3)]
    sine = u[0] * (M[1][2] - M[2][1]) + u[1] * (M[2][0] - M[0][2]) + u[2] * (M[0][1] - M[1][0])
    along = sum(u[i] * M[i][j] * u[j] for i in range(3) for j in range(3))
    cosine = M[0][0] + M[1][1] + M[2][2] - along
    flat = sine**2 + cosine**2 < 1e-20  # every turn is as good: none, and no gradient (atan2(0, 0) has none)
    angle = jnp.arctan2(jnp.where(flat, 0.0, sine), jnp.where(flat, 1.0, cosine))
    half_sine = jnp.sin(angle / 2)
    return product(q, (jnp.cos(angle / 2), u[0] * half_sine, u[1] * half_sine, u[2] * half_sine))
