"""Grasp margins in a batch beside QHull and HiGHS, a grasp at a time. `python benchmarks/force_closure.py`.

Random grasps of three to five contacts with eight edges, half on a box of 80 x 55 x 40 mm, half on the ellipsoid in it.
Before anything is timed every sign is compared with the exact one, and every margin: at least 99 % within 1e-3 of it.
One batched call gives the signed margin, the min-weight margin and the status; QHull gives the margin inside alone,
HiGHS the min-weight alone. QHull holds the interpreter, so that a second core takes a second process. Times are of the
wall; `ours_cpu_s` and `peer_cpu_s` sum the cores of this process, and say more where others load the machine.
`quick=true` takes fewer of everything.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from record import arguments, row, write
from scipy.spatial import ConvexHull, QhullError

from jaxeval.metrics.grasp import grasp_margins
from jaxeval.metrics.grasp_host import cone_wrenches, exact_margin, min_weight
from jaxeval.metrics.status import Status

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
    """Least facet offset as common code takes it; NaN where QHull gives up."""
    try:
        return float(-ConvexHull(W).equations[:, -1].max())
    except QhullError:
        return np.nan


def agreement(wrenches: list[np.ndarray], found: Any) -> list[dict[str, Any]]:
    """Compare with the exact margins, assert what is promised, and tell the rest as rows without a time."""
    exact = [exact_margin(W) for W in wrenches]
    margin, status = np.asarray(found.margin, float), np.asarray(found.status)
    np.testing.assert_array_equal(status, [e.status for e in exact])
    theirs = np.array([e.margin for e in exact])
    np.testing.assert_array_equal(np.sign(margin), np.sign(theirs))
    touching = theirs == 0
    off = np.abs(margin / np.where(touching, 1.0, theirs) - np.where(touching, 0.0, 1.0))
    closure = status == Status.CLOSURE
    np.testing.assert_allclose(
        np.asarray(found.min_weight)[closure], [e.min_weight for e in exact if e.status == Status.CLOSURE], rtol=1e-3
    )
    peers = np.array([qhull_margin(W) for W, c in zip(wrenches, closure, strict=True) if c])
    np.testing.assert_allclose(peers, np.where(np.isnan(peers), np.nan, theirs[closure]), rtol=1e-6)
    print(f"QHull gives up on {np.isnan(peers).sum()} of {closure.sum():,} grasps with closure")
    assert np.isnan(peers).mean() < 0.01
    contacts_n = np.array([len(W) // EDGES_N for W in wrenches])
    groups = [(n, what, (contacts_n == n) & which) for n in CONTACTS for what, which in sides(closure)]
    groups += [("3-5", what, which) for what, which in sides(closure)]
    told = []
    for n, what, group in groups:
        size = {"contacts": n, "which": what, "grasps": int(group.sum())}
        shares = {f"within {at:g}": float((off[group] <= at).mean()) for at in (WITHIN, 1e-5)}
        told.append(size | shares | {"worst": float(off[group].max(initial=0.0))})
        print(", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in told[-1].items()))
    assert (off <= WITHIN).mean() >= 0.99 and (off[closure] <= WITHIN).mean() >= 0.99
    print(f"worst of all {off.max():.1e} of the exact margin; all {len(off):,} signs as they are")
    return told


def sides(closure: np.ndarray) -> tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]]:
    """Grasps inside and outside, by name."""
    return ("closure", closure), ("no closure", ~closure)


def median_times_s(run: Callable[[], Any], *, repeats_n: int) -> tuple[float, float]:
    """Median (wall, CPU of all threads of this process) times in seconds, after a warm-up."""
    jax.block_until_ready(run())
    walls, cpus = [], []
    for _ in range(repeats_n):
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(run())
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


def main(out: str, quick: str) -> None:
    n = 60 if quick == "true" else 1000
    few = n // 5
    wrenches = random_wrenches(n)
    W, valid = padded(wrenches)
    told = agreement(wrenches, grasp_margins(W, valid))
    size = f"B={n:,}, 3-5 contacts, {EDGES_N} edges"
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        peers: dict[str, tuple[str, Callable[[], Any]]] = {
            "QHull": ("margin", lambda: [qhull_margin(w) for w in wrenches[:few]]),
            "QHull, 2 processes": ("margin", lambda: [*pool.map(qhull_margin, wrenches[:few], chunksize=few // 8)]),
            "HiGHS": ("min-weight", lambda: [min_weight(w) for w in wrenches[:few]]),
        }
        ours_s, ours_cpu_s = median_times_s(lambda: grasp_margins(W, valid), repeats_n=9)
        rows = []
        for peer, (work, run) in peers.items():
            wall_s, cpu_s = (s * n / few for s in median_times_s(run, repeats_n=3))
            more = {"ours_cpu_s": ours_cpu_s, "note": f"peer timed on {few} of the grasps and scaled"}
            if "processes" not in peer:
                more |= {"peer_cpu_s": cpu_s, "cpu_ratio": cpu_s / ours_cpu_s}
                print(f"{peer}: CPU time {cpu_s:.3g} s, ours {ours_cpu_s:.3g} s, ratio {cpu_s / ours_cpu_s:.1f}")
            rows.append(row(work, size, ours_s, peer=peer, peer_s=wall_s, unit="grasps/s", amount=n, **more))
    write(Path(out), "force_closure", [r | {"agreement": told} for r in rows])


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/benchmarks", quick="false"))
