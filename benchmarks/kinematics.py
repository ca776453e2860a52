"""Motion metrics, inverse kinematics and readers beside what one would use instead. `python benchmarks/kinematics.py`.

Every pair gets the same input and its agreement is asserted before anything is timed. Rows of a peer that is not
installed are left out, with a sentence that says how to install it. `quick=true` takes fewer of everything.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from arm_peers import Pinocchio, PyRoKi, missing, urdf_of
from import_peers import formats, frames_of
from record import arguments, median_s, row, write

from jaxeval.linalg import volume
from jaxeval.metrics.kinematic import manipulability
from jaxeval.metrics.smoothness import sparc, sparc_batch
from jaxeval.robots import Robot, forward_kinematics, inverse_kinematics, load_robot
from jaxeval.robots.model import chain, jacobian_of
from jaxeval.run.scorers.smoothness import CHUNK_N

PEERS = ("almond-pyroki", "almond-jaxls", "pin", "monalysa", "h5py", "mcap-ros2-support", "rosbags")
MODULES = {"almond-pyroki": "pyroki", "almond-jaxls": "jaxls", "pin": "pinocchio", "mcap-ros2-support": "mcap_ros2"}
RATE_HZ = 100.0
LEAN = "NumPy, a trajectory at a time, real transform, cut at once"
POSITION_M, ROTATION_RAD = 1e-3, float(np.radians(0.1))
PYROKI_SEEDS_N = (24, 64)  # the fewest that find 99 %, and as many as its own benchmark takes


# ------------------------------------------------------------------------------------------------------------- SPARC


def published_sparc(speed: np.ndarray, rate_hz: float) -> float:
    """SPARC of one speed profile step by step as common code has it: the full transform, selections, arc length.

    That code sums the arc in a Python loop, which would be slower still; here it is summed by NumPy.
    """
    K = 2 ** (int(np.ceil(np.log2(len(speed)))) + 4)
    f, M = np.arange(K) * rate_hz / K, np.abs(np.fft.fft(speed, K))
    M = M / M.max()
    f, M = f[f <= 10.0], M[f <= 10.0]
    kept = np.flatnonzero(M >= 0.05)
    f, M = f[kept[0] : kept[-1] + 1], M[kept[0] : kept[-1] + 1]
    return -float(np.sqrt((np.diff(f) / (f[-1] - f[0])) ** 2 + np.diff(M) ** 2).sum())


def numpy_sparc(speed: np.ndarray, rate_hz: float) -> float:
    """SPARC of one speed profile from its definition: one real transform, then what lies below 10 Hz."""
    K = 2 ** (int(np.ceil(np.log2(len(speed)))) + 4)
    bins_n = int(min(10.0, rate_hz / 2) * K / rate_hz) + 1
    M = np.abs(np.fft.rfft(speed, K)[:bins_n])
    M /= M.max()
    e = np.flatnonzero(M >= 0.05)[-1]
    return -float(np.sqrt((1 / e) ** 2 + np.diff(M[: e + 1]) ** 2).sum())


def speeds(n: int, T: int) -> np.ndarray:
    """Speed profiles [n, T]: one to six strokes of a minimum-jerk reach, of random size, length and start."""
    rng = np.random.default_rng(0)
    t = np.arange(T)[None] / RATE_HZ
    out = np.zeros((n, T), np.float32)
    for k in range(6):
        start, duration = rng.uniform(0, 3.5, (n, 1)), rng.uniform(0.5, 1.5, (n, 1))
        tau = np.clip((t - start) / duration, 0, 1)
        size = rng.uniform(0.05, 0.5, (n, 1)) * (rng.integers(1, 7, (n, 1)) > k)
        out += size / duration * 30 * tau**2 * (1 - tau) ** 2
    return out


@jax.jit
def sparc_of_score(*rows: Any) -> Any:
    """SPARC as `jaxeval score` measures it: `sparc` of every row, CHUNK_N rows at a time."""
    folded = [x.reshape(len(x) // CHUNK_N, CHUNK_N, -1) for x in rows]
    return jax.lax.map(lambda some: jax.vmap(sparc)(*some).value, tuple(folded)).reshape(-1)


def sparc_rows(*, quick: bool) -> list[dict[str, Any]]:
    """One batch against a loop over trajectories: NumPy from the definition, and monalysa."""
    B, T = (496 if quick else 10_000), 500
    v = speeds(B, T)
    time_s = np.broadcast_to((np.arange(T) / RATE_HZ).astype(np.float32), (B, T))
    arrays = [jnp.asarray(a) for a in (v, time_s, np.ones((B, T), bool))]
    batch = jax.jit(sparc_batch)
    mine = np.asarray(batch(*arrays).value)
    np.testing.assert_allclose(mine, np.asarray(sparc_of_score(*arrays)), atol=2e-4)
    wide = v.astype(np.float64)

    peers: dict[str, Callable[[], Any]] = {
        "NumPy, a trajectory at a time, full transform as common code": lambda: [
            published_sparc(x, RATE_HZ) for x in wide
        ],
        LEAN: lambda: [numpy_sparc(x, RATE_HZ) for x in wide],
    }
    if told := missing("monalysa"):
        print(told)
    else:
        from monalysa.quality.smoothness import sparc as monalysa_sparc

        peers["monalysa loop"] = lambda: [monalysa_sparc(x, RATE_HZ)[0] for x in wide]
    for peer in peers.values():
        np.testing.assert_allclose(mine, peer(), atol=2e-4)
    peer_s = {name: median_s(peer, warm_up_n=0) for name, peer in peers.items()}
    return [
        row(f"SPARC, {way}" + (", leanest peer" if name == LEAN else ""), f"B={B:,} T={T}", ours_s, peer=name,
            peer_s=peer_s[name], unit="trajectories/s", amount=B)
        for way, ours_s in (
            ("as score measures it", median_s(lambda: sparc_of_score(*arrays))),
            ("sparc_batch", median_s(lambda: batch(*arrays))),
        )
        for name in peers
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------- inverse kinematics


def random_joints(robot: Robot, n: int, seed: int) -> np.ndarray:
    lower, upper = robot.range()
    return np.random.default_rng(seed).uniform(lower, upper, (n, robot.joints_n)).astype(np.float32)


def reached(robot: Robot, joints: Any, targets: Any) -> np.ndarray:
    """Which joints are within limits and bring the tip to within 1 mm and 0.1 deg: the same test for everyone."""
    at = np.asarray(_poses(robot, jnp.asarray(joints, jnp.float32)), float)
    wanted, (lower, upper) = np.asarray(targets, float), robot.range()
    chord = np.minimum(*(np.linalg.norm(at[:, :4] - sign * wanted[:, :4], axis=1) for sign in (1, -1)))
    turn, off = 4 * np.arcsin(np.minimum(chord / 2, 1)), np.linalg.norm(at[:, 4:] - wanted[:, 4:], axis=1)
    q = np.asarray(joints, float)
    within = ((q >= lower - 1e-3) & (q <= upper + 1e-3)).all(axis=1)
    return (off < POSITION_M) & (turn < ROTATION_RAD) & within


@jax.jit
def _poses(robot: Robot, q: Any) -> Any:
    return jax.vmap(partial(forward_kinematics, robot))(q)


def inverse_rows(robot: Robot, urdf: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Reachable random targets: ours, PyRoKi's beam with as many seeds as it takes, Pinocchio's closed loop."""
    n = 100 if quick else 1000
    targets = _poses(robot, jnp.asarray(random_joints(robot, n, seed=1)))
    seeds = random_joints(robot, 64, seed=2)
    solve = jax.jit(partial(inverse_kinematics, robot, position_tolerance_m=POSITION_M))
    rows = []

    def compared(peer: str | None, joints: Any = None, peer_s: float | None = None) -> None:
        mine = reached(robot, solve(targets).joints, targets).mean()
        size = f"Panda, {len(targets):,} targets, found {mine:.1%}"
        theirs = {}
        if peer is not None:
            share = float(reached(robot, joints, targets).mean())
            assert share >= 0.97 and mine >= 0.98, f"{peer} reaches {share:.1%} of the targets, jaxeval {mine:.1%}"
            theirs, peer = {"peer_found": share}, f"{peer}, {share:.1%}"
        ours_s = median_s(lambda: solve(targets))
        rows.append(row("inverse kinematics", size, ours_s, peer=peer, peer_s=peer_s, unit="targets/s",
                        amount=len(targets), found=float(mine), **theirs))  # fmt: skip

    if told := missing("PyRoKi"):
        print(told)
        compared(None)
    else:
        for seeds_n in PYROKI_SEEDS_N:
            peer = PyRoKi(urdf).solver(seeds[:seeds_n])
            joints = peer(targets)  # compiles
            peer_s = median_s(lambda peer=peer: peer(targets), warm_up_n=0)
            compared(f"PyRoKi, {seeds_n} seeds", joints, peer_s)
    if told := missing("Pinocchio"):
        print(told)
    else:
        lower, upper = robot.range()
        starts = np.concatenate([[(lower + upper) / 2], seeds]).astype(float)
        loop = partial(Pinocchio(urdf).closed_loop, np.asarray(targets, float), starts, iterations_n=20)
        compared("Pinocchio loop", loop(), median_s(loop, warm_up_n=0))
    return rows


# ----------------------------------------------------------------------------------------------------- manipulability


@jax.jit
def both_indices(robot: Robot, q: Any) -> Any:
    """Translational and full index of configurations [B, n]."""
    J = jacobian_of(robot, chain(robot, q.T))
    return volume(J[:3]), volume(J)


@jax.jit
def all_of_manipulability(robot: Robot, q: Any) -> Any:
    """The same with least singular value and condition."""
    return manipulability(jacobian_of(robot, chain(robot, q.T)))


def manipulability_rows(robot: Robot, urdf: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Random configurations: ours, Pinocchio one by one, PyRoKi's differentiated kinematics vmapped."""
    rows = []
    for n in (1000,) if quick else (1000, 100_000):
        q = random_joints(robot, n, seed=3)
        mine = both_indices(robot, jnp.asarray(q))
        peers: dict[str, Callable[[], Any]] = {}
        if told := missing("Pinocchio"):
            print(told)
        else:
            peers["Pinocchio loop"] = partial(Pinocchio(urdf).manipulability, q.astype(float))
        if told := missing("PyRoKi"):
            print(told)
        else:
            peers["PyRoKi, jacfwd"] = partial(PyRoKi(urdf).manipulability(), jnp.asarray(q))
        ours_s = median_s(lambda q=q: both_indices(robot, jnp.asarray(q)))
        for name, peer in peers.items():
            atol = 2e-5 if "Pinocchio" in name else 1e-3  # PyRoKi squares J in float32
            for a, b in zip(mine, peer(), strict=True):
                np.testing.assert_allclose(a, b, atol=atol)
            rows.append(row("manipulability", f"Panda, {n:,} configurations", ours_s, peer=name, peer_s=median_s(peer),
                            unit="configurations/s", amount=n))  # fmt: skip
        all_s = median_s(lambda q=q: all_of_manipulability(robot, jnp.asarray(q)))
        rows.append(
            row("manipulability, sigma", f"Panda, {n:,} configurations", all_s, unit="configurations/s", amount=n)
        )
    return rows


# ------------------------------------------------------------------------------------------------------------ readers


def importer_rows(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Readers on files of some megabytes: MB/s, and the time of the format's own library for the same numbers."""
    sizes = {"TUM": 60_000, "ManiSkill h5": 90, "LeRobot v3.0": 300, "MCAP": 5_000, "rosbag2 (sqlite3)": 5_000}
    rows = []
    for k, f in enumerate(formats()):
        place = folder / str(k)
        place.mkdir()
        n = sizes[f.name] // (10 if quick else 1)
        path = f.write(place, n)
        size = sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file()) / 1e6
        episodes, _ = f.read(path)
        frames_n = frames_of(episodes)
        assert frames_n >= n and all(np.isfinite(e.poses).all() for e in episodes), f.name
        ours_s, peer_s = median_s(lambda f=f, p=path: f.read(p)), median_s(lambda f=f, p=path: f.plain(p))
        rows.append(row(f.name, f"{size:.1f} MB, {frames_n:,} frames", ours_s, peer=f.peer, peer_s=peer_s, unit="MB/s",
                        amount=size))  # fmt: skip
    return rows


def main(argv: list[str]) -> None:
    """Measure, print, write `out`/kinematics.json."""
    settings = arguments(argv, out="outputs/benchmarks", quick="false", only="")
    quick, only = settings["quick"] == "true", [w for w in settings["only"].split(",") if w]
    load = [round(x, 1) for x in os.getloadavg()]
    robot = load_robot("panda")
    with tempfile.TemporaryDirectory() as tmp:
        urdf = urdf_of(robot, Path(tmp) / "panda.urdf")
        parts = {
            "sparc": lambda: sparc_rows(quick=quick),
            "manipulability": lambda: manipulability_rows(robot, urdf, quick=quick),
            "inverse": lambda: inverse_rows(robot, urdf, quick=quick),
            "importers": lambda: importer_rows(Path(tmp), quick=quick),
        }
        rows = []
        for name, part in parts.items():
            if not only or name in only:
                print(f"{name} ...", file=sys.stderr, flush=True)
                rows += part()
    path = write(Path(settings["out"]), "kinematics", rows)
    about = json.loads(path.read_text())
    about["machine"]["load_average_before"] = load
    about["versions"] |= {p: version(p) for p in PEERS if find_spec(MODULES.get(p, p)) is not None}
    about["command"] = " ".join(["python", *sys.argv])
    path.write_text(json.dumps(about, indent=1) + "\n")
    print(f"load average before: {load} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(sys.argv[1:])
