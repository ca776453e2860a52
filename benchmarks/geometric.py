"""Geometric quality, side by side: a SciPy loop, vectorised NumPy, jaxeval. `python benchmarks/geometric.py out=DIR`.

All three get the same poses, progress bins and constraints of a StackCube reference, and give exp(-mean cost) of every
episode; they agree to 1e-5 before anything is timed. A frame-pair is one valid frame of one interaction pair.
`quick=true` leaves out the 100,000-episode stream and shortens the rest.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from record import arguments, median_s, row, write
from scipy.spatial.transform import Rotation

from jaxeval.io import open_source, write_store
from jaxeval.io.reference import save_reference
from jaxeval.io.spec import load_spec
from jaxeval.metrics import geometric as G
from jaxeval.metrics.fused import fused_quality
from jaxeval.run.fit import fit_source
from jaxeval.run.score_plan import align_to, make_plan
from jaxeval.run.scorers.geometric import scored_bodies
from jaxeval.types import EpisodeBatch, Reference

PARAMS = G.GeometricParams()


class Case:
    """B padded episodes of StackCube, aligned, and the constraints they are scored against."""

    def __init__(self, reference: Reference, batch: EpisodeBatch) -> None:
        self.reference, self.bodies, self.batch = reference, batch.bodies, batch
        self.aligned = jax.jit(align_to)(batch, reference)
        self.bins = np.asarray(self.aligned.bins)
        found = jax.jit(G.constraints)(reference, PARAMS)
        self.nominal = np.asarray(reference.nominal, np.float64)
        self.scale = np.asarray(reference.scale, np.float64)
        self.directions, self.sigma = np.asarray(found.directions, np.float64), np.asarray(found.sigma_m, np.float64)
        self.pinned = np.asarray(found.pinned)
        scored = [reference.pairs[j] for j in G.scored_pairs(reference, self.bodies)]
        self.columns = [(self.bodies.index(p.a), self.bodies.index(p.b)) for p in scored]

    @property
    def frame_pairs(self) -> int:
        return int((self.bins >= 0).sum()) * len(self.columns)


# -------------------------------------------------------------------------------------------------- peer: SciPy loop


def scipy_loop(case: Case, episodes_n: int) -> np.ndarray:
    """The method as one would first write it: for every episode, frame and pair, with SciPy's rotations."""
    out = []
    for e in range(episodes_n):
        costs = []
        for t in np.flatnonzero(case.bins[e] >= 0):
            l, total, n = case.bins[e, t], 0.0, 0
            for j, (a, b) in enumerate(case.columns):
                pinned = case.pinned[j, l]
                n += int(pinned.sum())
                T_a, T_b, T_n = case.batch.poses[e, t, a], case.batch.poses[e, t, b], case.nominal[j, l]
                R_a, R_b, R_n = (Rotation.from_quat(np.roll(T[:4], -1)) for T in (T_a, T_b, T_n))
                R_ba, t_ba = R_b.inv() * R_a, R_b.inv().apply(T_a[4:] - T_b[4:])
                E, t_e = R_n.inv() * R_ba, R_n.inv().apply(t_ba - T_n[4:])
                phi = E.as_rotvec()
                theta = np.linalg.norm(phi)
                K = np.array([[0, -phi[2], phi[1]], [phi[2], 0, -phi[0]], [-phi[1], phi[0], 0]])
                c = 1 / 12 if theta < 1e-3 else (1 - theta / 2 / np.tan(theta / 2)) / theta**2
                rho = (np.eye(3) - K / 2 + c * K @ K) @ t_e
                d = np.concatenate([rho, case.scale[j] @ phi])
                z = np.abs(case.directions[j, l].T @ d) / case.sigma[j, l]
                total += np.maximum(z - PARAMS.z_0, 0)[pinned].sum()
            costs.append(total / max(n, 1))
        out.append(np.exp(-np.mean(costs)))
    return np.array(out)


# --------------------------------------------------------------------------------------------- peer: vectorised NumPy


def numpy_vectorised(case: Case, dtype: Any, *, chunk_n: int = 16) -> np.ndarray:
    """The same with arrays: components first, frames contiguous, a few episodes at a time, to stay in cache."""
    nominal, S = case.nominal.astype(dtype), case.scale.astype(dtype)
    V = case.directions / case.sigma[:, :, None, :] * case.pinned[:, :, None, :]  # unpinned directions cost nothing
    W = np.concatenate([V[:, :, :3], np.einsum("jba,jlbi->jlai", S, V[:, :, 3:])], axis=2).astype(dtype)
    flat_W, flat_n = np.moveaxis(W, (2, 3), (0, 1)), np.moveaxis(nominal, 2, 0)
    pinned_n = case.pinned.sum(axis=(0, 2))
    out = []
    for start in range(0, len(case.bins), chunk_n):
        bins = case.bins[start : start + chunk_n]
        poses = np.moveaxis(case.batch.poses[start : start + chunk_n].astype(dtype), 3, 0)  # [7, B, T, N]
        slot, valid = np.maximum(bins, 0), bins >= 0
        cost = np.zeros(bins.shape, dtype)
        for j, (a, b) in enumerate(case.columns):
            A, B, N = poses[..., a], poses[..., b], flat_n[:, j][:, slot]
            q_bn, t = _product(B[:4], N[:4]), _turn_back(B[:4], A[4:] - B[4:]) - N[4:]
            q, t = _product(_conjugate(q_bn), A[:4]), _turn_back(N[:4], t)
            q = np.where(q[0] < 0, -q, q)
            sine = np.sqrt((q[1:] ** 2).sum(axis=0))
            theta = 2 * np.arctan2(sine, q[0])
            phi = q[1:] * np.where(sine > 1e-6, theta / np.maximum(sine, 1e-6), 2)
            small = theta < 1e-2
            angle = np.where(small, 1, theta)
            c = np.where(small, 1 / 12 + theta**2 / 720, (1 - angle / 2 / np.tan(angle / 2)) / angle**2)
            once = np.cross(phi, t, axis=0)
            rho = t - once / 2 + c * np.cross(phi, once, axis=0)
            d = np.concatenate([rho, phi])
            for i in range(6):
                z = np.abs((flat_W[:, i, j][:, slot] * d).sum(axis=0))
                cost += np.maximum(z - PARAMS.z_0, 0)
        cost = np.where(valid, cost / np.maximum(pinned_n[slot], 1), 0)
        out.append(np.exp(-cost.sum(axis=1) / valid.sum(axis=1)))
    return np.concatenate(out)


def _conjugate(q: np.ndarray) -> np.ndarray:
    return np.stack([q[0], -q[1], -q[2], -q[3]])


def _product(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    (a, b, c, d), (w, x, y, z) = p, q
    return np.stack(
        [
            a * w - b * x - c * y - d * z,
            a * x + b * w + c * z - d * y,
            a * y - b * z + c * w + d * x,
            a * z + b * y - c * x + d * w,
        ]
    )


def _turn_back(q: np.ndarray, x: np.ndarray) -> np.ndarray:
    once = np.cross(-q[1:], x, axis=0)
    return x + 2 * (q[0] * once + np.cross(-q[1:], once, axis=0))


# ----------------------------------------------------------------------------------------------------------- the rows


def make_case(
    reference: Reference, episodes_n: int, *, length: int = 256, bodies: tuple[str, ...] | None = None
) -> Case:
    """The bundled tilted executions, repeated to `episodes_n` and padded or cut to `length` frames."""
    source = open_source("bundled:stack_cube_tilt")
    bodies = bodies or scored_bodies(reference, source.bodies)
    _, some = next(source.batches(bodies=bodies, episodes_n=64))
    pick = np.arange(episodes_n) % some.n_episodes
    columns = [some.bodies.index(b) for b in bodies]
    T = some.poses.shape[1]
    frames = (
        np.minimum(np.arange(length) * max(1, T // length), T - 1) if length <= T else np.arange(length) * T // length
    )
    time_s = some.time_s[pick][:, frames]
    return Case(
        reference,
        EpisodeBatch(
            poses=np.ascontiguousarray(some.poses[pick][:, frames][:, :, columns]),
            time_s=time_s,
            valid=some.valid[pick][:, frames][:, :, columns],
            frame_valid=some.frame_valid[pick][:, frames],
            gripper_width_m=some.gripper_width_m[pick][:, frames],
            success=some.success[pick],
            bodies=bodies,
        ),
    )


@partial(jax.jit, static_argnames=("bodies",))
def _q_alone(poses: Any, aligned: Any, success: Any, reference: Reference, *, bodies: tuple[str, ...]) -> Any:
    quality = fused_quality(poses, aligned, success, reference=reference, params=PARAMS, bodies=bodies)
    return quality.q, quality.gate_free


@partial(jax.jit, static_argnames=("bodies",))
def _all_parts(poses: Any, aligned: Any, success: Any, reference: Reference, *, bodies: tuple[str, ...]) -> Any:
    return fused_quality(poses, aligned, success, reference=reference, params=PARAMS, bodies=bodies)


def ours(case: Case, run: Any = _q_alone) -> Any:
    """A call that scores the case with its arrays already on the device."""
    poses, success = jnp.asarray(case.batch.poses), jnp.asarray(case.batch.success)
    return lambda: run(poses, case.aligned, success, case.reference, bodies=case.bodies)


def side_by_side(reference: Reference, *, quick: bool) -> list[dict[str, Any]]:
    """Agreement to 1e-5, then the times of the three."""
    rows = []
    few, many = make_case(reference, 2 if quick else 4), make_case(reference, 256 if quick else 1000)
    mine = np.asarray(ours(few)()[1])
    np.testing.assert_allclose(mine, scipy_loop(few, len(mine)), atol=1e-5)
    peer_s = median_s(lambda: scipy_loop(few, len(mine)), warm_up_n=0)
    ours_s = median_s(ours(few))
    size = f"B={len(mine)} T=256 J={len(few.columns)}"
    at_scale_s = median_s(ours(many))
    rows.append(row("score", size, ours_s, peer="scipy loop", peer_s=peer_s, unit="frame-pairs/s",
                    amount=few.frame_pairs))  # fmt: skip
    scaled_s = peer_s * many.frame_pairs / few.frame_pairs
    size = (
        f"B={many.batch.n_episodes} T=256 J={len(many.columns)} (peer timed on {few.batch.n_episodes} episodes, scaled)"
    )
    rows.append(row("score", size, at_scale_s, peer="scipy loop", peer_s=scaled_s, unit="frame-pairs/s",
                    amount=many.frame_pairs))  # fmt: skip
    mine = np.asarray(ours(many)()[1])
    times = {}
    for dtype in (np.float32, np.float64):
        np.testing.assert_allclose(mine, numpy_vectorised(many, dtype), atol=1e-5)
        times[dtype.__name__] = median_s(partial(numpy_vectorised, many, dtype), warm_up_n=0)
    faster = min(times, key=lambda k: times[k])
    size = f"B={len(mine)} T=256 J={len(many.columns)}"
    rows.append(row("score", f"{size} (peer {faster})", at_scale_s, peer="numpy vectorised", peer_s=times[faster],
                    unit="frame-pairs/s", amount=many.frame_pairs))  # fmt: skip
    parts_s = median_s(ours(many, _all_parts))
    rows.append(row("score with all parts", size, parts_s, unit="frame-pairs/s", amount=many.frame_pairs))
    plan = dataclasses.replace(make_plan(reference, open_source("bundled:stack_cube_tilt")), quick=False)
    device, length = jax.tree.map(jnp.asarray, many.batch), many.batch.frame_valid.sum(axis=1)
    whole_s = median_s(lambda: list(plan.measure(device, length, False)))
    rows.append(row("align and score, all", size, whole_s, unit="frame-pairs/s", amount=many.frame_pairs))
    return rows


def growth(reference: Reference, *, quick: bool) -> list[dict[str, Any]]:
    """Time against episodes, frames and pairs."""
    rows = []
    cases = [(b, 256, None) for b in ((64, 256) if quick else (64, 256, 1024, 4096))]
    cases += [(512, t, None) for t in ((128,) if quick else (128, 512, 1024))]
    cases += [(512, 256, ("cubeA", "cubeB")), (512, 256, ("cubeA", "cubeB", "table"))]
    for b, t, bodies in cases:
        case = make_case(reference, b, length=t, bodies=bodies)
        pairs_n, amount = len(case.columns), case.frame_pairs
        seconds = median_s(ours(case))
        rows.append(row("score growth", f"B={b} T={t} J={pairs_n}", seconds, unit="frame-pairs/s", amount=amount))
    return rows


STREAM = """
import json, resource, sys, time
from jaxeval.io import open_source
from jaxeval.io.reference import load_reference
from jaxeval.run.score import score
reference, _ = load_reference(sys.argv[1])
start = time.perf_counter()
source = open_source(sys.argv[2])
scores = score(reference, source, out=sys.argv[3])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
frames = sum(scores.columns["length"])
print(json.dumps({"s": time.perf_counter() - start, "peak_gib": peak, "n": len(scores.q), "frames": frames}))
"""


def stream(reference: Path, folder: Path, *, stores_n: int = 20, episodes_n: int = 5000) -> dict[str, Any]:
    """100,000 episodes from disk to scores.parquet, in a process of its own: one store under twenty names."""
    some = list(open_source("bundled:stack_cube_tilt").iter_episodes())
    named = (dataclasses.replace(some[k % len(some)], episode_id=str(k)) for k in range(episodes_n))
    write_store(folder / "one" / "store", named, task="stack_cube")
    (folder / "many").mkdir()
    for k in range(stores_n):
        (folder / "many" / f"{k:02}").symlink_to(folder / "one" / "store", target_is_directory=True)
    args = [sys.executable, "-c", STREAM, str(reference), str(folder / "many"), str(folder / "scores")]
    told = json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    size = f"{told['n']} episodes, {told['frames'] / 1e6:.1f} M frames"
    return row("stream from stores", size, told["s"], unit="episodes/s", amount=told["n"], peak_gib=told["peak_gib"])


def starting(reference: Path, folder: Path, *, repeats_n: int) -> list[dict[str, Any]]:
    """Import time against `import jax`, and the first score from a shell, without and with a compilation cache."""

    def spent(code: list[str], **env: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, capture_output=True, env=os.environ | env)
        return time.perf_counter() - start

    timed = "import time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t)"

    def imported(name: str) -> float:
        command = [sys.executable, "-c", timed.format(name)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    jax_s, ours_s = ([imported(name) for _ in range(repeats_n + 1)][1:] for name in ("jax", "jaxeval"))
    rows = [
        row("import", "import jaxeval", float(np.median(ours_s)), peer="import jax", peer_s=float(np.median(jax_s)))
    ]
    args = ["-m", "jaxeval.cli", "score", f"reference={reference}", "episodes=bundled:stack_cube_tilt"]
    args += [f"out={folder}/first"]
    cold = [spent(args, JAX_COMPILATION_CACHE_DIR=str(folder / f"cache{k}")) for k in range(2)]
    warm = [spent(args, JAX_COMPILATION_CACHE_DIR=str(folder / "cache0")) for _ in range(repeats_n)]
    size = "40 episodes, process start to file"
    rows.append(row("first score", f"{size}, cold", float(min(cold))))
    rows.append(row("first score", f"{size}, cached", float(np.median(warm))))
    return rows


def compiling(reference: Reference) -> dict[str, Any]:
    """Trace and compile of what `score` runs, for one bucket, nothing cached."""
    case = make_case(reference, 64)
    plan = dataclasses.replace(make_plan(reference, open_source("bundled:stack_cube_tilt")), quick=False)
    enabled = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    start = time.perf_counter()
    list(plan.measure(case.batch, case.batch.frame_valid.sum(axis=1), False))
    jax.config.update("jax_enable_compilation_cache", enabled)
    return row("compile", "B=64 T=256 J=5, one bucket", time.perf_counter() - start)


def main(argv: list[str]) -> None:
    """Measure, print, write `out`/geometric.json."""
    settings = arguments(argv, out="outputs/benchmarks", quick="false")
    quick = settings["quick"] == "true"
    with tempfile.TemporaryDirectory() as tmp, jax.default_matmul_precision("highest"):
        folder = Path(tmp)
        made = fit_source(open_source("bundled:stack_cube_demos"), load_spec("stack_cube"), demonstrations_n=30)
        reference = jax.tree.map(jnp.asarray, made.reference)
        path = save_reference(folder / "reference", reference)
        rows = side_by_side(reference, quick=quick)
        rows += growth(reference, quick=quick)
        rows.append(compiling(reference))
        rows += starting(path, folder, repeats_n=3 if quick else 5)
        if not quick:
            rows.append(stream(path, folder))
        write(Path(settings["out"]), "geometric", rows)


if __name__ == "__main__":
    main(sys.argv[1:])
