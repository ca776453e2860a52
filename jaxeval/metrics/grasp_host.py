"""Exact grasp margins on the host, in float64: hulls by QHull, min-weight by HiGHS, distances by Lawson and Hanson.

What a published number rests on; ``jaxeval.metrics.grasp`` has the formulas, the conventions of wrenches, and the
batched form. Hulls are built in coordinates in which the wrenches are orthonormal, so that neither units nor the torque
length decide whether QHull finds a set flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxeval.metrics.grasp import (
    NORMAL_OFF,
    UNIT,
    UNIT_NORMAL,
)
from jaxeval.metrics.status import Status

RANK_TOL, ZERO, FLAT = 1e-9, 1e-12, 1e-8
WHOLE_N = 48
"""Wrenches up to which the whole hull is built; beyond, facets near the origin are refined, to the same margin."""


class ExactMargin(NamedTuple):
    """As ``grasp.GraspMargin``, but ``min_weight`` is signed: not above 0 without closure, NaN if flat."""

    margin: float
    min_weight: float
    direction: Float[np.ndarray, "6"]
    rank: int
    status: int


def cone_wrenches(
    points_m: Float[np.ndarray, "C 3"],
    normals: Float[np.ndarray, "C 3"],
    *,
    friction: float,
    torque_length_m: float,
    origin_m: Float[np.ndarray, "3"],
    edges_n: int = 8,
    edges: str = UNIT,
    turn_rad: float = 0.0,
) -> Float[np.ndarray, "W 6"]:
    """:func:`jaxeval.metrics.grasp.contact_wrenches` in float64 NumPy, all contacts valid; NaN rows for bad input."""
    if edges not in (UNIT, UNIT_NORMAL):
        raise ValueError(f"edges is '{edges}'; expected '{UNIT}' or '{UNIT_NORMAL}'")
    p, n = np.asarray(points_m, float), np.asarray(normals, float)
    length = np.linalg.norm(n, axis=1, keepdims=True)
    fine = np.isfinite(p).all() and bool((np.abs(length - 1) <= NORMAL_OFF).all()) and len(p) > 0
    if not (fine and 0 <= friction < np.inf and 0 < torque_length_m < np.inf and np.isfinite(origin_m).all()):
        return np.full((len(p) * edges_n, 6), np.nan)
    n = n / length
    axis = np.where(np.abs(n[:, :1]) < 0.9, [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]])
    a = axis - (axis * n).sum(axis=1, keepdims=True) * n
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    b = np.cross(n, a)
    t = (turn_rad + 2 * np.pi * np.arange(edges_n) / edges_n)[None, :, None]
    f = n[:, None] + friction * (np.cos(t) * a[:, None] + np.sin(t) * b[:, None])
    f = f / np.sqrt(1 + friction**2) if edges == UNIT else f
    arm = (p - np.asarray(origin_m, float)) / torque_length_m
    return np.concatenate([f, np.cross(arm[:, None], f)], axis=2).reshape(-1, 6)


def wrench_rank(W: Float[np.ndarray, "W 6"]) -> int:
    """How many directions the wrenches span, whatever the torque length (singular values above 1e-9 of the largest)."""
    torque = np.abs(W[:, 3:]).max(initial=0.0)
    sigma = np.linalg.svd(np.concatenate([W[:, :3], W[:, 3:] / (torque or 1.0)], axis=1), compute_uv=False)
    return int((sigma > RANK_TOL * sigma.max(initial=0.0)).sum()) if sigma.size and sigma[0] > 0 else 0


def exact_margin(W: Float[np.ndarray, "W 6"]) -> ExactMargin:
    """Signed Ferrari-Canny margin, min-weight margin, rank and status of a set of wrenches (higher is better).

    Least offset of a facet of the hull; outside, minus the distance to it. Frames and conventions: ``grasp``. Oracle:
    five published grasps, to 1e-6 of their margins, volumes and min-weights.

    >>> g = exact_margin(np.concatenate([np.eye(6), -np.eye(6)]))
    >>> Status(g.status).sentence, round(g.margin, 6), round(g.min_weight, 6)
    ('closure', 0.408248, 0.083333)
    """
    W = np.asarray(W, float)
    if not (len(W) and np.isfinite(W).all()):
        return ExactMargin(np.nan, np.nan, np.full(6, np.nan), 0, Status.BAD_CONTACT)
    rank = wrench_rank(W)
    if rank == 6 and not _flat(W):  # a flat set of full rank leaves the origin outside
        facets, offsets = _near_facets(W)
        k = int(offsets.argmin())
        if offsets[k] > ZERO * np.abs(W).max():
            return ExactMargin(float(offsets[k]), min_weight(W), facets[k], rank, Status.CLOSURE)
    nearest = nearest_point(W)
    distance = float(np.linalg.norm(nearest))
    outside = distance > ZERO * np.abs(W).max()
    away = -nearest / distance if outside else np.zeros(6)
    status = Status.NO_CLOSURE if rank == 6 else Status.DEGENERATE
    return ExactMargin(-distance if outside else 0.0, min_weight(W), away, rank, status)


def hull_volume(W: Float[np.ndarray, "W 6"]) -> float:
    """Volume of the wrenches' hull in (N, N m / L); 0 where they span fewer than six directions."""
    from scipy.spatial import ConvexHull, QhullError

    if wrench_rank(W) < 6 or _flat(W):
        return 0.0
    Q, R = np.linalg.qr(W)
    try:
        volume = ConvexHull(Q).volume
    except QhullError:  # see _planes; right to about 1e-10 of it
        volume = ConvexHull(Q, qhull_options="QJ").volume
    return float(volume * abs(np.prod(np.diag(R))))


def min_weight(W: Float[np.ndarray, "W 6"]) -> float:
    """``l* = max l: sum alpha w = 0, sum alpha = 1, alpha >= l`` by HiGHS; NaN where no such weights exist.

    In [-inf, 1 / W]; positive with closure only (of wrenches that span all six directions).
    """
    from scipy.optimize import linprog

    n = len(W)
    scale = np.abs(W).max(axis=0)
    balanced = W / np.where(scale > 0, scale, 1.0)
    equal = np.zeros((7, n + 1))
    equal[:6, :n], equal[6, :n] = balanced.T, 1.0
    # alpha = l + beta, beta >= 0
    equal[:6, n], equal[6, n] = balanced.sum(axis=0), n
    goal = np.r_[np.zeros(n), -1.0]
    bounds = [(0, None)] * n + [(None, None)]
    found = linprog(goal, A_eq=equal, b_eq=np.r_[np.zeros(6), 1.0], bounds=bounds, method="highs-ds")
    return float(-found.fun) if found.status == 0 else np.nan


def nearest_point(W: Float[np.ndarray, "W 6"]) -> Float[np.ndarray, "6"]:
    """Point of the wrenches' hull nearest to the origin."""
    from scipy.optimize import nnls

    scale = np.abs(W).max() or 1.0
    E = np.concatenate([W.T / scale, np.ones((1, len(W)))])
    weights, _ = nnls(E, np.r_[np.zeros(6), 1.0], maxiter=100 * len(W))
    return W.T @ (weights / weights.sum())


def margin_cvar(
    points_m: Float[np.ndarray, "C 3"],
    normals: Float[np.ndarray, "C 3"],
    *,
    friction_mean: float,
    friction_sd: float,
    beta: float = 0.95,
    nodes_n: int = 64,
    torque_length_m: float,
    origin_m: Float[np.ndarray, "3"],
    edges_n: int = 8,
    edges: str = UNIT,
) -> float:
    """Exact form of :func:`jaxeval.metrics.grasp.margin_cvar` (higher is better), with the same nodes of friction."""
    from scipy.special import ndtri

    level = (1 - beta) * (np.arange(nodes_n) + 0.5) / nodes_n
    frictions = np.maximum(friction_mean + friction_sd * ndtri(level), 0.0)
    return float(
        np.mean(
            [
                exact_margin(
                    cone_wrenches(
                        points_m,
                        normals,
                        friction=mu,
                        torque_length_m=torque_length_m,
                        origin_m=origin_m,
                        edges_n=edges_n,
                        edges=edges,
                    )
                ).margin
                for mu in frictions
            ]
        )
    )


class Sensitivity(NamedTuple):
    """How a margin depends on what nobody measures: (setting, lowest, highest margin over turns of the edges)."""

    edges: tuple[tuple[int, float, float], ...]
    torque_length_m: tuple[tuple[float, float, float], ...]

    def __str__(self) -> str:
        """A line for every setting."""
        lines = [f"{n:4d} edges                margin {low:.3g} .. {high:.3g}" for n, low, high in self.edges]
        lines += [
            f"torque length {length:7.3f} m margin {low:.3g} .. {high:.3g}"
            for length, low, high in self.torque_length_m
        ]
        return "\n".join(lines)


def margin_sensitivity(
    points_m: Float[np.ndarray, "C 3"],
    normals: Float[np.ndarray, "C 3"],
    *,
    friction: float,
    torque_length_m: float,
    origin_m: Float[np.ndarray, "3"],
    edges_n: Sequence[int] = (4, 8, 16, 32, 64),
    torque_lengths_m: Sequence[float] = (0.02, 0.05, 0.2, 1.0),
    turns_n: int = 4,
    edges: str = UNIT,
) -> Sensitivity:
    """Exact margins over numbers of edges (at ``torque_length_m``) and over torque lengths (with 8 edges).

    Every margin is taken with the edges turned by ``turns_n`` equal parts of their spacing: what moves there is the
    arbitrary basis of the tangent plane. Lowest and highest shrink to one number as the edges grow to a cone.
    """

    def over_turns(n: int, length_m: float) -> tuple[float, float]:
        turns = 2 * np.pi / n * np.arange(turns_n) / turns_n
        margins = [
            exact_margin(
                cone_wrenches(
                    points_m,
                    normals,
                    friction=friction,
                    torque_length_m=length_m,
                    origin_m=origin_m,
                    edges_n=n,
                    edges=edges,
                    turn_rad=float(turn),
                )
            ).margin
            for turn in turns
        ]
        return min(margins), max(margins)

    return Sensitivity(
        edges=tuple((n, *over_turns(n, torque_length_m)) for n in edges_n),
        torque_length_m=tuple((length, *over_turns(8, length)) for length in torque_lengths_m),
    )


def _flat(W: Float[np.ndarray, "W 6"]) -> bool:
    """Whether one hyperplane holds all wrenches, as where all contacts push on one face."""
    return wrench_rank(W - W.mean(axis=0)) < 6


def _near_facets(W: Float[np.ndarray, "W 6"]) -> tuple[Float[np.ndarray, "F 6"], Float[np.ndarray, " F"]]:
    """(unit outward normals, offsets) of facets of the hull, the nearest to the origin among them."""
    Q, R = np.linalg.qr(W)

    def facets(rows: Int[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        found = _planes(Q[rows])
        normals = np.linalg.solve(R, found[:, :6].T).T
        length = np.linalg.norm(normals, axis=1)
        return normals / length[:, None], -found[:, 6] / length

    rows = np.arange(len(W)) if len(W) <= WHOLE_N else np.unique(np.linspace(0, len(W) - 1, WHOLE_N).astype(int))
    while True:
        normals, offsets = facets(rows)
        if len(rows) == len(W):
            return normals, offsets
        reach = (W @ normals.T).max(axis=0)
        # The hull of all holds that of some: only facets nearer than the best bound can hide the nearest one.
        near: Bool[np.ndarray, " F"] = offsets < reach.min() * (1 + 1e-12)
        beyond = near & (reach > offsets + ZERO * np.abs(W).max())
        if not beyond.any():
            return normals[near], offsets[near]
        rows = np.union1d(rows, (W @ normals[beyond].T).argmax(axis=0))


def _planes(Q: Float[np.ndarray, "n 6"]) -> Float[np.ndarray, "F 7"]:
    """(unit outward normal, minus the offset) of every facet of the hull.

    Where many points lie in one plane, as those of two contacts on one face do, QHull may give up. Moved by about 1e-11
    they do not; the planes are then those of the facets' corners as they are, but for corners that span none.
    """
    from scipy.spatial import ConvexHull, QhullError

    try:
        return ConvexHull(Q).equations
    except QhullError:
        corners = Q[ConvexHull(Q, qhull_options="QJ").simplices]
    _, sigma, basis = np.linalg.svd(np.concatenate([corners, np.ones((len(corners), 6, 1))], axis=2))
    planes = basis[sigma[:, 5] > FLAT * sigma[:, 0], 6]
    planes /= np.linalg.norm(planes[:, :6], axis=1, keepdims=True)
    heights = planes[:, :6] @ Q.T + planes[:, 6:]
    low, high = heights.min(axis=1), heights.max(axis=1)
    planes[high > -low] *= -1
    return planes[np.minimum(-low, high) < FLAT]
