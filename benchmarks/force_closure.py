"""Grasp margins in a batch beside QHull and HiGHS, a grasp at a time. `python benchmarks/force_closure.py`.

Random grasps of three to five contacts with eight edges, half on a box of 80 x 55 x 40 mm, half on the ellipsoid in it.
Before anything is timed every sign is compared with the exact one, and every margin: at least 99 % within 1e-3 of it.
One batched call gives the signed margin, the min-weight margin and the status; QHull gives the margin inside alone,
HiGHS the min-weight alone. `quick=true` takes fewer of everything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from record import arguments, median_s, row, write
from scipy.spatial import ConvexHull, QhullError

from jaxeval.metrics.grasp import STATUS_CLOSURE, grasp_margins
from jaxeval.metrics.grasp_host import cone_wrenches, exact_margin, min_weight

HALF_M = np.array([0.04, 0.0275, 0.02])
CONTACTS, EDGES_N, FRICTION, TORQUE_LENGTH_M = (3, 4, 5), 8, 0.5, 1.0
WITHIN = 1e-3


def random_grasp(rng: np.random.Generator, contacts_n: int, *, box: bool) -> tuple[np.ndarray, np.ndarray]:
    """Points (m) and inward normals on the box's faces or on the ellipsoid."""
    if not box:
        v = rng.normal(size=(contacts_n, 3))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        inward = -v / HALF_M
        return HALF_M * v, inward / np.linalg.norm(inward, axis=1, keepdims=True)
    points, normals = rng.uniform(-HALF_M, HALF_M, (contacts_n, 3)), np.zeros((contacts_n, 3))
    for k, (axis, side) in enumerate(
        zip(rng.integers(3, size=contacts_n), rng.choice([-1, 1], contacts_n), strict=True)
    ):
        points[k, axis], normals[k, axis] = side * HALF_M[axis], -side
    return points, normals


def random_wrenches(n: int) -> list[np.ndarray]:
    """Wrenches of n grasps, [contacts EDGES_N, 6] each."""
    rng = np.random.default_rng(3)
    return [
        cone_wrenches(
            *random_grasp(rng, CONTACTS[k % 3], box=k % 2 == 0),
            friction=FRICTION, torque_length_m=TORQUE_LENGTH_M, origin_m=np.zeros(3), edges_n=EDGES_N,
        )
        for k in range(n)
    ]  # fmt: skip


def padded(wrenches: list[np.ndarray]) -> tuple[jax.Array, jax.Array]:
    """One array and its mask."""
    rows = max(CONTACTS) * EDGES_N
    W, valid = np.zeros((len(wrenches), rows, 6), np.float32), np.zeros((len(wrenches), rows), bool)
    for k, w in enumerate(wrenches):
        W[k, : len(w)], valid[k, : len(w)] = w, True
    return jnp.asarray(W), jnp.asarray(valid)


def qhull_margin(W: np.ndarray) -> float:
    """Least facet offset as common code takes it; -1 where QHull fails."""
    try:
        return float(-ConvexHull(W).equations[:, -1].max())
    except QhullError:
        return -1.0


def agreement(wrenches: list[np.ndarray], found: Any) -> list[dict[str, Any]]:
    """Compare with the exact margins, assert what is promised, and tell the rest as rows without a time."""
    exact = [exact_margin(W) for W in wrenches]
    margin, status = np.asarray(found.margin, float), np.asarray(found.status)
    np.testing.assert_array_equal(status, [e.status for e in exact])
    theirs = np.array([e.margin for e in exact])
    touching = theirs == 0
    assert (margin[touching] == 0).all()
    off = np.abs(margin / np.where(touching, 1.0, theirs) - np.where(touching, 0.0, 1.0))
    closure = status == STATUS_CLOSURE
    np.testing.assert_allclose(
        np.asarray(found.min_weight)[closure], [e.min_weight for e in exact if e.status == STATUS_CLOSURE], rtol=1e-3
    )
    np.testing.assert_allclose(
        [qhull_margin(W) for W, c in zip(wrenches, closure, strict=True) if c], theirs[closure], rtol=1e-6
    )
    told = []
    for contacts_n in CONTACTS:
        mine = np.array([len(W) == contacts_n * EDGES_N for W in wrenches])
        for what, group in (("closure", mine & closure), ("no closure", mine & ~closure)):
            size = {"contacts": contacts_n, "which": what, "grasps": int(group.sum())}
            shares = {f"within {at:g}": float((off[group] <= at).mean()) for at in (1e-3, 1e-5)}
            told.append(size | shares | {"worst": float(off[group].max(initial=0.0))})
            print(", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in told[-1].items()))
    assert (off <= WITHIN).mean() >= 0.99 and (off[closure] <= WITHIN).mean() >= 0.99
    return told


def in_threads(f: Callable[[np.ndarray], float], wrenches: list[np.ndarray], workers_n: int) -> list[float]:
    """As many at once as there are cores, where the library lets go of the interpreter."""
    with ThreadPoolExecutor(workers_n) as pool:
        return list(pool.map(f, wrenches))


def main(out: str, quick: str) -> None:
    n = 60 if quick == "true" else 1000
    few = n // 5
    wrenches = random_wrenches(n)
    W, valid = padded(wrenches)
    told = agreement(wrenches, grasp_margins(W, valid))
    ours_s = median_s(lambda: grasp_margins(W, valid))
    size = f"B={n:,}, 3-5 contacts, {EDGES_N} edges"
    peers: dict[str, tuple[str, Callable[[], Any]]] = {
        "QHull": ("margin", lambda: [qhull_margin(w) for w in wrenches[:few]]),
        "QHull, two threads": ("margin", lambda: in_threads(qhull_margin, wrenches[:few], 2)),
        "HiGHS": ("min-weight", lambda: [min_weight(w) for w in wrenches[:few]]),
    }
    rows = [
        row(work, size, ours_s, peer=peer, peer_s=median_s(run) * n / few, unit="grasps/s", amount=n,
            note=f"peer timed on {few} of the grasps and scaled", agreement=told)
        for peer, (work, run) in peers.items()
    ]  # fmt: skip
    write(Path(out), "force_closure", rows)


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/benchmarks", quick="false"))
