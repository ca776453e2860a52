"""How well contacts hold an object against any wrench: signed Ferrari-Canny margin, min-weight margin, friction risk.

w_ij    = (f_ij, (p_i - o) x f_ij / L)                     wrench of edge j of contact i's friction cone
f_ij    = n_i + mu (cos t_j a_i + sin t_j b_i)             t_j = turn + 2 pi j / n; "unit" edges are divided by |f_ij|
margin  = min_{|d| = 1} max_ij w_ij . d                    inside the hull of the w: distance to its nearest facet;
                                                           outside: minus the distance from the origin to the hull
l*      = max l  s.t.  sum alpha w = 0, sum alpha = 1, alpha >= l
CVaR    = mean of the margin over the lowest 1 - beta of a friction mu ~ N(mean, sd), one for all contacts

``p`` in metres, ``n_i`` unit and into the object, ``o`` the point that torques are about, ``L`` the torque length: the
margin depends on both, closure and l* on neither. ``a_i`` is the world x axis laid into the contact's tangent plane
(the y axis where the normal is within 26 deg of x) and ``b_i = n_i x a_i``: turning the world, or ``turn_rad``, moves
the margin of few edges by up to tens of percent. All here are written for one grasp; :func:`grasp_margins` takes many.
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Int

from jaxeval.linalg import divisor, orthonormal, solve_lower, solve_lower_transposed
from jaxeval.metrics.status import Status
from jaxeval.types import pytree

UNIT, UNIT_NORMAL = "unit", "unit normal"
"""Lengths of a cone's edges: all 1, or normal component 1 (the paper's and the better known of the two differ)."""
NORMAL_OFF = 1e-3
STARTS_N, STEPS_N = 16, 64


@pytree
class GraspMargin:
    """What one set of contacts can resist (higher is better). ``margin`` and ``min_weight`` are NaN for bad input only.

    ``margin``: where the wrenches are degenerate it is minus the distance to their hull, or 0 where the hull holds the
    origin: inside a flat hull there is no ball. ``min_weight``: 0 without closure. ``direction``: the unit wrench
    that the contacts give least of, (force, torque / L).
    """

    margin: Float[Array, ""]
    min_weight: Float[Array, ""]
    direction: Float[Array, "6"]
    rank: Int[Array, ""]
    status: Int[Array, ""]


# -------------------------------------------------------------------------------------------------------- wrenches


def contact_wrenches(
    points_m: Float[Array, "C 3"],
    normals: Float[Array, "C 3"],
    valid: Bool[Array, " C"],
    *,
    friction: float | Float[Array, ""],
    torque_length_m: float | Float[Array, ""],
    origin_m: Float[Array, "3"],
    edges_n: int = 8,
    edges: str = UNIT,
    turn_rad: float | Float[Array, ""] = 0.0,
) -> tuple[Float[Array, "W 6"], Bool[Array, " W"]]:
    """Wrenches of the cones' edges (W = C edges_n rows, contact by contact) and which of them count.

    Only the ratios of ``points_m``, ``origin_m`` and ``torque_length_m`` enter, so that all three in millimetres give
    the same wrenches. Rows of contacts that do not count are 0. A valid contact with a number that is not finite, a
    normal off unit length by more than 1e-3, a negative friction or a torque length that is not positive makes all rows
    NaN, which :func:`grasp_margin` tells as bad input. Source: Ferrari and Canny 1992; ParcelStow's release (8 edges).
    """
    length = jnp.sqrt(jnp.sum(normals * normals, axis=1))
    usable = jnp.isfinite(points_m).all(axis=1) & (jnp.abs(length - 1.0) <= NORMAL_OFF)  # False for NaN
    fine = jnp.all(usable | ~valid) & (friction >= 0) & jnp.isfinite(friction) & (torque_length_m > 0)
    fine &= jnp.all(jnp.isfinite(origin_m)) & jnp.isfinite(torque_length_m)
    safe = valid & usable
    arm = jnp.where(safe[:, None], points_m - origin_m[None], 0.0) / jnp.where(fine, torque_length_m, 1.0)
    n = jnp.where(safe[:, None], normals, jnp.eye(3, dtype=normals.dtype)[2][None])
    n = n / jnp.sqrt(jnp.sum(n * n, axis=1, keepdims=True))
    axis = jnp.where(jnp.abs(n[:, :1]) < 0.9, jnp.array([[1.0, 0.0, 0.0]]), jnp.array([[0.0, 1.0, 0.0]])).astype(
        n.dtype
    )
    a = axis - jnp.sum(axis * n, axis=1, keepdims=True) * n
    a = a / jnp.sqrt(jnp.sum(a * a, axis=1, keepdims=True))
    b = jnp.cross(n, a)
    t = (jnp.asarray(2.0 * np.pi * np.arange(edges_n) / edges_n, n.dtype) + turn_rad)[None, :, None]
    f = n[:, None] + friction * (jnp.cos(t) * a[:, None] + jnp.sin(t) * b[:, None])
    if edges == UNIT:
        f = f / jnp.sqrt(1.0 + jnp.asarray(friction, f.dtype) ** 2)
    elif edges != UNIT_NORMAL:
        raise ValueError(f"edges is '{edges}'; expected '{UNIT}' or '{UNIT_NORMAL}'")
    W = jnp.concatenate([f, jnp.cross(jnp.broadcast_to(arm[:, None], f.shape), f)], axis=2)
    W = jnp.where(fine, jnp.where(safe[:, None, None], W, 0.0), jnp.nan)
    return W.reshape(-1, 6), jnp.repeat(valid, edges_n)


# ---------------------------------------------------------------------------------------------------------- margins


def grasp_margin(W: Float[Array, "W 6"], valid: Bool[Array, " W"], *, starts_n: int = STARTS_N) -> GraspMargin:
    """Signed Ferrari-Canny margin and min-weight margin of one set of wrenches (higher is better), and what they mean.

    The facets of the hull are the vertices of its polar ``P = {y : w . y <= 1}``; the margin is 1 over the length of
    P's longest vertex. ``starts_n`` walks go from the origin to a vertex, then along edges of P as long as y grows. One
    of them maximises ``-sum w . y`` instead, a linear programme that is bounded exactly where there is closure, and
    whose optimum z gives ``l* = 1 / (W + z)``. The walks give an upper bound of the margin: the margin itself where one
    ends at the longest vertex, with 16 walks nearly always (``benchmarks/force_closure.py`` counts); where a number is
    published, take ``grasp_host.exact_margin``. Outside, the distance is 1 over the length of the shortest y with
    ``w . y >= 1``, by a dual active-set method, which ends at the only solution.

    Closure is called where ``W l*`` (0 to 1, the same in all units) is above 1e-5 in float32, 1e-10 in float64. The
    gradient by W is that of the facet, the nearest point or the programme found: finite everywhere. Frames: a turn of
    all wrenches changes nothing. Oracle: QHull and HiGHS. Source: Ferrari and Canny 1992; Li et al. 2023 (FRoGGeR).

    >>> six = jnp.concatenate([jnp.eye(6), -jnp.eye(6)])
    >>> g = jax.jit(grasp_margin)(six, jnp.ones(12, bool))
    >>> Status(int(g.status)).sentence, round(float(g.margin), 4), round(float(g.min_weight), 4)  # 1 / sqrt(6), 1 / 12
    ('closure', 0.4082, 0.0833)
    """
    finite = jnp.all(jnp.isfinite(W) | ~valid[:, None]) & jnp.any(valid)
    frozen = jax.lax.stop_gradient(jnp.where(valid[:, None] & finite, W, 0.0))
    tol = _tolerances(frozen.dtype)
    count = jnp.sum(valid).astype(frozen.dtype)
    Q, L, rank = orthonormal(frozen, tolerance=tol.rank)
    walks = _walk(Q, L, starts_n, tol)

    length2 = jnp.where(walks.open, -jnp.inf, jnp.sum(walks.y * walks.y, axis=0))
    best = jnp.argmax(length2 / jnp.maximum(jnp.max(frozen @ walks.y, axis=0), 0.5) ** 2)
    ends = jnp.stack([walks.active[:, 0], jnp.take(walks.active, best, axis=1)])
    rows_of, inverse_of = jax.vmap(partial(_basis, Q))(ends)

    # The linear programme of walk 0, solved again without the perturbation.
    total = -jnp.sum(Q, axis=0)
    rows, inverse = rows_of[0], inverse_of[0]
    vertex = inverse @ jnp.ones(6, Q.dtype)
    z = total @ vertex
    weight = 1.0 / (count + jnp.maximum(z, 0.0))
    multipliers = inverse.T @ total  # optimal where none is negative; a proof of closure where all are above -1
    proved = jnp.all(multipliers > -0.5) & (jnp.max(Q @ vertex) < 1.5)
    closure = (rank == 6) & ~walks.open[0] & proved & (count * weight > tol.closure)
    weight = jnp.where(closure, weight, 0.0)
    alpha = weight * (valid.astype(Q.dtype) + rows.T @ multipliers)
    weight_slope = weight * alpha[:, None] * solve_lower_transposed(L, vertex)[None]

    # The longest vertex, solved again without the perturbation.
    rows, inverse = rows_of[1], inverse_of[1]
    y = solve_lower_transposed(L, inverse @ jnp.ones(6, Q.dtype))
    reach, rough = jnp.max(frozen @ y), jnp.take(walks.y, best, axis=1)
    polished = jnp.isfinite(reach) & (reach < 1.0 + tol.rank)
    y = jnp.where(polished, y, rough)
    size = jnp.sqrt(jnp.sum(y * y))
    inside = jnp.max(frozen @ y) / divisor(size)
    towards = y / divisor(size)
    shares = rows.T @ (inverse.T @ solve_lower(L, towards)) * inside
    shares = jnp.where(
        polished & jnp.all(jnp.isfinite(shares)), shares, _one_hot(jnp.argmax(frozen @ y), W.shape[0]).astype(Q.dtype)
    )

    # Outside: the nearest point of the hull.
    away, outer_shares = _nearest(frozen, valid, tol)
    outside = jnp.minimum(jnp.max(jnp.where(valid, frozen @ away, -jnp.inf)), 0.0)

    d = jnp.where(closure, towards, away)
    shares = jnp.where(closure, shares, jnp.where(outside < 0, outer_shares, 0.0))
    status = jnp.where(closure, Status.CLOSURE, jnp.where(rank < 6, Status.DEGENERATE, Status.NO_CLOSURE))
    nan = jnp.asarray(jnp.nan, Q.dtype)
    return GraspMargin(
        margin=_sloped(jnp.where(finite, jnp.where(closure, inside, outside), nan), shares[:, None] * d[None], W),
        min_weight=_sloped(jnp.where(finite, weight, nan), weight_slope, W),
        direction=jnp.where(finite, d, nan),
        rank=jnp.where(finite, rank, 0),
        status=jnp.where(finite, status, Status.BAD_CONTACT),
    )


@partial(jax.jit, static_argnames=("starts_n", "chunk_n"))
def grasp_margins(
    W: Float[Array, "B W 6"], valid: Bool[Array, "B W"], *, starts_n: int = STARTS_N, chunk_n: int = 64
) -> GraspMargin:
    """:func:`grasp_margin` of many grasps, ``chunk_n`` at a time: memory does not grow with B but for the answer."""
    B = W.shape[0]
    chunk = min(chunk_n, B)
    more = -B % chunk  # whole chunks only: another size would be compiled again
    padded = jnp.pad(W, ((0, more), (0, 0), (0, 0))), jnp.pad(valid, ((0, more), (0, 0)))
    chunks = jax.tree.map(lambda x: x.reshape(-1, chunk, *x.shape[1:]), padded)
    found = jax.lax.map(lambda g: jax.vmap(partial(grasp_margin, starts_n=starts_n))(*g), chunks)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:B], found)


# --------------------------------------------------------------------------------------------------- unsure friction


def tail_friction(
    *, mean: float | Float[Array, ""], sd: float | Float[Array, ""], beta: float = 0.95
) -> Float[Array, ""]:
    """``mean - sd phi(Phi^-1(beta)) / (1 - beta)``: mean of the lowest 1 - beta of a friction N(mean, sd).

    The margin at this one friction, with "unit normal" edges, is what the published risk margin (FIRMGrasp) turns out
    to be, to 1e-12; the mean of the margins themselves is :func:`margin_cvar`: 0.02 to 5 % off on five grasps.
    """
    x = ndtri(jnp.asarray(beta, jnp.result_type(float)))
    return mean - sd * jnp.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi) / (1.0 - beta)


def tail_frictions(
    *, mean: float | Float[Array, ""], sd: float | Float[Array, ""], beta: float = 0.95, nodes_n: int = 16
) -> Float[Array, " n"]:
    """Middles of ``nodes_n`` equally likely parts of the lowest 1 - beta of a friction N(mean, sd), not below 0."""
    level = jnp.asarray((1.0 - beta) * (np.arange(nodes_n) + 0.5) / nodes_n, jnp.result_type(float))
    return jnp.maximum(mean + sd * ndtri(level), 0.0)


def margin_cvar(
    points_m: Float[Array, "C 3"],
    normals: Float[Array, "C 3"],
    valid: Bool[Array, " C"],
    *,
    friction_mean: float | Float[Array, ""],
    friction_sd: float | Float[Array, ""],
    beta: float = 0.95,
    nodes_n: int = 16,
    torque_length_m: float | Float[Array, ""],
    origin_m: Float[Array, "3"],
    edges_n: int = 8,
    edges: str = UNIT,
    starts_n: int = STARTS_N,
) -> Float[Array, ""]:
    """Mean signed margin over the lowest 1 - beta of a friction N(mean, sd) that all contacts share (higher is better).

    The lower-tail CVaR where the margin grows with friction, as it does but for the edges' lengths. The paper takes
    beta .95 and sd .15. A negative friction counts as 0; NaN for bad input. 16 nodes are 0.3 % above many
    on a published grasp, 64 under 0.1 %. Oracle: ``grasp_host.margin_cvar``.
    """

    def margin(mu: Float[Array, ""]) -> Float[Array, ""]:
        W, counts = contact_wrenches(points_m, normals, valid, friction=mu, torque_length_m=torque_length_m,
                                     origin_m=origin_m, edges_n=edges_n, edges=edges)  # fmt: skip
        return grasp_margin(W, counts, starts_n=starts_n).margin

    frictions = tail_frictions(mean=friction_mean, sd=friction_sd, beta=beta, nodes_n=nodes_n).astype(points_m.dtype)
    return jnp.mean(jax.vmap(margin)(frictions))


def _sloped(value: Float[Array, ""], slope: Float[Array, "W 6"], W: Float[Array, "W 6"]) -> Float[Array, ""]:
    """``value`` with the gradient ``slope`` by W, where W is finite."""
    usable = jnp.where(jnp.isfinite(W) & jnp.isfinite(slope), W, 0.0)
    change = usable - jax.lax.stop_gradient(usable)
    return jax.lax.stop_gradient(value) + jnp.sum(
        jax.lax.stop_gradient(jnp.where(jnp.isfinite(slope), slope, 0.0)) * change
    )


def _one_hot(i: Int[Array, ""], n: int) -> Float[Array, " n"]:
    return (jnp.arange(n) == i).astype(jnp.float32)


# -------------------------------------------------------------------------------------- small linear algebra, in place


class _Tolerances(NamedTuple):
    closure: float  # of W l*, in [0, 1]
    rank: float  # of a row's length that the rows before it do not explain
    open: float  # of an edge's fastest closing slack: below this nothing closes it
    perturbation: float  # of the right-hand sides: octagons lie in one plane, so that vertices of P coincide


def _tolerances(dtype: np.dtype) -> _Tolerances:
    wide = dtype == jnp.float64
    return _Tolerances(1e-10, 1e-9, 1e-11, 1e-7) if wide else _Tolerances(1e-5, 3e-5, 1e-6, 1e-4)


def _basis(Q: Float[Array, "W 6"], active: Int[Array, "6"]) -> tuple[Float[Array, "6 W"], Float[Array, "6 6"]]:
    """(which rows are active, the inverse of these six rows), by Gauss and Jordan; not finite for a singular basis."""
    rows = (active[:, None] == jnp.arange(Q.shape[0])[None]).astype(Q.dtype)
    place = jnp.arange(6)

    def eliminate(k: Int[Array, ""], A: Float[Array, "6 12"]) -> Float[Array, "6 12"]:
        here = place == k
        column = A @ (jnp.arange(12) == k).astype(A.dtype)
        p = jnp.argmax(jnp.where(place >= k, jnp.abs(column), -1.0))
        pivot, own = A[p] / column[p], A[k]
        A = jnp.where((place == p)[:, None], own[None], A)
        column = jnp.where(place == p, column[k], column)
        return jnp.where(here[:, None], pivot[None], A - column[:, None] * pivot[None])

    return rows, jax.lax.fori_loop(0, 6, eliminate, jnp.concatenate([rows @ Q, jnp.eye(6, dtype=Q.dtype)], axis=1))[
        :, 6:
    ]


# ------------------------------------------------------------------------------------------------ walks on the polar


class _Walks(NamedTuple):
    """Walks on P, the last axis: slack s = s(theta) and point y(theta) by the slacks theta of the active rows."""

    rates: Float[Array, "W 6 K"]  # d s / d theta
    edges: Float[Array, "6 6 K"]  # d y / d theta: component, edge
    slopes: Float[Array, "6 K"]  # d objective / d theta, of the linear programme
    slack: Float[Array, "W K"]  # infinite for active rows: they close nothing
    y: Float[Array, "6 K"]
    active: Int[Array, "6 K"]
    open: Bool[Array, " K"]  # an edge that grows without end was found
    going: Bool[Array, " K"]


@cache
def _start_bases(starts_n: int) -> np.ndarray:
    """Orthonormal bases [6, 6, K] that point everywhere, the same in every run."""
    rng = np.random.default_rng(0)
    return np.moveaxis(np.linalg.qr(rng.normal(size=(starts_n, 6, 6)))[0], 0, -1)


def _closing(w: _Walks, tol: _Tolerances) -> Float[Array, "6 K"]:
    """1 / length of each edge; 0 or less for one that nothing closes."""
    inverse = 1.0 / jnp.maximum(w.slack, 1e-12)
    scale = jnp.max(jnp.abs(w.rates), axis=0)
    return jnp.max((-w.rates - tol.open * scale[None]) * inverse[:, None], axis=0)


def _pivot(
    w: _Walks, at: Float[Array, "6 K"], sign: Float[Array, " K"], tol: _Tolerances, *, free: bool = False
) -> _Walks:
    """Along edge ``at`` (one of six, one-hot) to where a row closes it; walks without ``going`` stay.

    ``free``: ``at`` is a direction of no row, so that no row becomes inactive.
    """
    row = jnp.arange(w.slack.shape[0], dtype=jnp.int32)[:, None]
    rate, edge = sign[None] * jnp.sum(w.rates * at[None], axis=1), sign[None] * jnp.sum(w.edges * at[None], axis=1)
    slope = sign * jnp.sum(w.slopes * at, axis=0)
    scale = jnp.max(jnp.abs(rate), axis=0)
    speed = (-rate - tol.open * scale[None]) / jnp.maximum(w.slack, 1e-12)
    fastest = jnp.max(speed, axis=0)
    new = jnp.max(jnp.where(speed == fastest[None], row, -1), axis=0)
    opened = w.going & (fastest <= 0)
    moves = w.going & (fastest > 0)
    hit = row == new[None]
    step = jnp.where(moves, jnp.sum(jnp.where(hit, w.slack, 0.0), axis=0), 0.0)
    own = jnp.take_along_axis(w.rates, jnp.maximum(new, 0)[None, None], axis=0)[0]
    own = jnp.where(at > 0, sign[None] * own, own)
    turn = jnp.sum(own * at, axis=0)
    turn = jnp.where(moves, turn, 1.0)
    step = jnp.where(moves, -step / turn, 0.0)
    # The column itself becomes rate / turn: own - at with its own entry turned from turn into turn - 1.
    off = jnp.where(moves[None], (own - at) / turn[None], 0.0)
    flip = jnp.where((at > 0) & moves[None], sign[None], 1.0)
    leaving = jnp.sum(jnp.where(at > 0, w.active, 0), axis=0, dtype=jnp.int32)
    slack = jnp.maximum(w.slack + step[None] * rate, 0.0)
    if not free:
        slack = jnp.where((row == leaving[None]) & moves[None], step[None], slack)
    return _Walks(
        rates=flip[None] * w.rates - rate[:, None] * off[None],
        edges=flip[None] * w.edges - edge[:, None] * off[None],
        slopes=flip * w.slopes - slope[None] * off,
        slack=jnp.where(hit & moves[None], jnp.inf, slack),
        y=w.y + step[None] * edge,
        active=jnp.where((at > 0) & moves[None], new[None], w.active),
        open=w.open | opened,
        going=moves,
    )


def _walk(Q: Float[Array, "W 6"], L: Float[Array, "6 6"], starts_n: int, tol: _Tolerances) -> _Walks:
    """Walks from the origin to vertices of P that no edge leaves upward: walk 0 up ``-sum q . x``, others up |y|.

    A step is a pivot of the simplex method, to the neighbour where the objective is highest.
    """
    n, dtype = Q.shape[0], Q.dtype
    bases = jnp.asarray(_start_bases(starts_n), dtype)
    linear = jnp.arange(starts_n) == 0
    nudge = 1.0 + tol.perturbation * np.random.default_rng(1).uniform(size=(n, 1))
    total = -jnp.sum(Q, axis=0)

    def descend(k: Int[Array, ""], w: _Walks) -> _Walks:
        """From a face of P to one of a dimension less, along the k-th direction that is still free."""
        at = jnp.broadcast_to((jnp.arange(6) == k)[:, None], (6, starts_n)).astype(dtype)
        uphill = jnp.where(
            linear, jnp.sum(w.slopes * at, axis=0), jnp.sum(w.edges * w.y[:, None] * at[None], axis=(0, 1))
        )
        return _pivot(w, at, jnp.where(uphill < 0, -1.0, 1.0).astype(dtype), tol, free=True)

    def improve(carry: tuple[Int[Array, ""], _Walks]) -> tuple[Int[Array, ""], _Walks]:
        i, w = carry
        speed = _closing(w, tol)
        closed = speed > 0
        length = 1.0 / jnp.where(closed, speed, 1.0)
        rise = 2.0 * jnp.sum(w.y[:, None] * w.edges, axis=0) + length * jnp.sum(w.edges * w.edges, axis=0)
        rise = length * jnp.where(linear[None], w.slopes, rise)
        grows = jnp.where(linear[None], w.slopes > 10.0 * tol.open, True)
        endless = jnp.any(~closed & grows, axis=0) & w.going
        rise = jnp.where(closed, rise, -jnp.inf)
        best = jnp.max(rise, axis=0)
        first = jnp.min(jnp.where(rise == best[None], jnp.arange(6)[:, None], 6), axis=0)
        higher = jnp.where(linear, jnp.any(grows, axis=0), best > 10.0 * tol.open * jnp.sum(w.y * w.y, axis=0))
        going = w.going & ~endless & higher
        w = w._replace(going=going, open=w.open | endless)
        at = (jnp.arange(6)[:, None] == first[None]).astype(dtype)
        return i + 1, _pivot(w, at, jnp.ones(starts_n, dtype), tol)

    w = _Walks(
        rates=-jnp.sum(Q[:, :, None, None] * bases[None], axis=1),
        edges=solve_lower_transposed(L, bases),
        slopes=jnp.sum(total[:, None, None] * bases, axis=0),
        slack=jnp.broadcast_to(jnp.asarray(nudge, dtype), (n, starts_n)),
        y=jnp.zeros((6, starts_n), dtype),
        active=jnp.zeros((6, starts_n), jnp.int32),
        open=jnp.zeros(starts_n, bool),
        going=jnp.ones(starts_n, bool),
    )
    w = jax.lax.fori_loop(0, 6, descend, w)
    return jax.lax.while_loop(lambda c: (c[0] < STEPS_N) & jnp.any(c[1].going), improve, (jnp.int32(0), w))[1]


# ------------------------------------------------------------------------------------------------ the nearest point


class _Search(NamedTuple):
    """The shortest y so far, and the six places for rows that hold with equality there (``used``)."""

    y: Float[Array, "6"]
    normals: Float[Array, "6 6"]
    multipliers: Float[Array, "6"]
    used: Bool[Array, "6"]
    rows: Int[Array, "6"]
    adding: Int[Array, ""]  # -1: choose one
    multiplier: Float[Array, ""]
    going: Bool[Array, ""]


def _split(w: Float[Array, "6"], s: _Search) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
    """(part of w that the used rows do not span, their coefficients in the rest), by Gram and Schmidt, twice."""
    q: list[Array] = []
    R: list[list[Array]] = []
    for k in range(6):
        v, coefficients = s.normals[k], [jnp.zeros((), w.dtype) for _ in q]
        for _ in range(2):
            for j in range(k):
                along = jnp.sum(q[j] * v)
                v, coefficients[j] = v - along * q[j], coefficients[j] + along
        length = jnp.sqrt(jnp.sum(v * v))
        ok = s.used[k] & (length > 0)
        q.append(jnp.where(ok, v / jnp.where(ok, length, 1.0), 0.0))
        R.append([*coefficients, jnp.where(ok, length, 1.0)])
    z, along = w, [jnp.zeros((), w.dtype) for _ in range(6)]
    for _ in range(2):
        for j in range(6):
            a = jnp.sum(q[j] * z)
            z, along[j] = z - a * q[j], along[j] + a
    r: list[Array] = [jnp.zeros((), w.dtype)] * 6
    for j in reversed(range(6)):
        rest = along[j] - sum((r[k] * R[k][j] for k in range(j + 1, 6)), jnp.zeros((), w.dtype))
        r[j] = jnp.where(s.used[j], rest / R[j][j], 0.0)
    return z, jnp.stack(r)


def _nearest(
    W: Float[Array, "W 6"], valid: Bool[Array, " W"], tol: _Tolerances
) -> tuple[Float[Array, "6"], Float[Array, " W"]]:
    """(unit direction away from the hull, convex weights of its point nearest to the origin), by Goldfarb and Idnani.

    The shortest y with ``w . y >= 1`` for all w: the most violated row is added, and rows whose multiplier it would
    turn negative are dropped. Where the hull holds the origin there is no such y, and the direction means nothing.
    """
    n, dtype = W.shape[0], W.dtype
    limit = 1e-6 if dtype == jnp.float32 else 1e-12

    def step(carry: tuple[Int[Array, ""], _Search]) -> tuple[Int[Array, ""], _Search]:
        i, s = carry
        short = jnp.where(valid, W @ s.y - 1.0, jnp.inf)
        worst = jnp.argmin(short).astype(jnp.int32)
        fresh = s.adding < 0
        p = jnp.where(fresh, worst, s.adding)
        going = s.going & ~(fresh & (short[worst] > -10.0 * limit))
        multiplier = jnp.where(fresh, 0.0, s.multiplier)
        w = W[p]
        z, back = _split(w, s)
        falls = s.used & (back > 0)
        dual = jnp.where(falls, s.multipliers / jnp.where(falls, back, 1.0), jnp.inf)
        drop = jnp.argmin(dual)
        size2, whole2 = jnp.sum(z * z), jnp.sum(w * w)
        spans = size2 > (10.0 * limit) ** 2 * whole2
        primal = jnp.where(spans, -short[p] / jnp.where(spans, size2, 1.0), jnp.inf)
        t = jnp.minimum(dual[drop], primal)
        going &= jnp.isfinite(t)
        t = jnp.where(going, t, 0.0)
        full = going & (primal <= dual[drop])
        dropped = going & ~full
        multipliers = jnp.where(s.used, s.multipliers - t * back, 0.0)
        multiplier = multiplier + t
        here = jnp.arange(6)
        slot = (here == jnp.argmin(s.used)) & full
        off = (here == drop) & dropped
        return i + 1, _Search(
            y=jnp.where(going & spans, s.y + t * z, s.y),
            normals=jnp.where(slot[:, None], w[None], jnp.where(off[:, None], 0.0, s.normals)),
            multipliers=jnp.where(slot, multiplier, jnp.where(off, 0.0, jnp.maximum(multipliers, 0.0))),
            used=(s.used | slot) & ~off,
            rows=jnp.where(slot, p, s.rows),
            adding=jnp.where(full, -1, p),
            multiplier=multiplier,
            going=going,
        )

    none = jnp.zeros(6, dtype)
    start = _Search(none, jnp.zeros((6, 6), dtype), none, jnp.zeros(6, bool), jnp.zeros(6, jnp.int32),
                  jnp.int32(-1), jnp.zeros((), dtype), jnp.any(valid))  # fmt: skip
    _, s = jax.lax.while_loop(lambda c: (c[0] < STEPS_N) & c[1].going, step, (jnp.int32(0), start))
    length = jnp.sqrt(jnp.sum(s.y * s.y))
    away = -s.y / divisor(length)
    share = s.multipliers / jnp.maximum(jnp.sum(s.multipliers), jnp.finfo(dtype).tiny)
    return away, jnp.sum(jnp.where(s.rows[:, None] == jnp.arange(n)[None], share[:, None], 0.0), axis=0)
