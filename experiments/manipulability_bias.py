"""What a manipulability term inside inverse kinematics does to the pose, and how demonstrations score without one.

    python experiments/manipulability_bias.py out=outputs/manipulability_bias

Reachable Panda poses are solved again with ``weight / (w + 1e-6)`` as one more residual beside the pose's (50 a metre,
10 a radian, as in PyRoKi's example), from the solution without it. The arm gains manipulability w by leaving the pose,
which is why the score is measured along the motion as it was, and never with such a term. Where PyRoKi is installed,
its solver gets the same poses and starts. `targets`: how many poses; `episodes`: demonstrations of each task.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from record import RESAMPLES_N, SEED, Interval, Record, arguments, keep_compiled_code, of_mean, of_share

from jaxeval.io import bundled, bundled_names
from jaxeval.linalg import solve_positive, volume
from jaxeval.metrics.kinematic import CostPool, KinematicQuality, kinematic_quality
from jaxeval.report.figures import OKABE_ITO
from jaxeval.robots import Robot, forward_kinematics, inverse_kinematics, load_pool, load_robot
from jaxeval.robots.inverse import frame_of, pose_error
from jaxeval.robots.model import Frame, chain, cross, jacobian_of
from jaxeval.types import pad_episodes

SOURCE = (
    "KineBench scores extracted motions by PyRoKi's manipulability residual, with a weight inside the solver; the "
    "published errors at 0.2 are of PyRoKi on Panda poses that are not told"
)
WEIGHTS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5)
PUBLISHED = {("median", 0.2): 3.8, ("p95", 0.2): 19.0}
PER_METRE, PER_RADIAN = 50.0, 10.0
ITERATIONS_N = 80
PYROKI_N = 200
ROWS_N, LENGTH = 40, 1024  # what every bundled set is padded to, so that it compiles once


class Solutions(NamedTuple):
    """What a solver found for every pose at one weight: errors and manipulability, [B] each."""

    off_m: np.ndarray
    turn_rad: np.ndarray
    w: np.ndarray


def main(out: str, targets: str, episodes: str) -> None:
    """Measure everything, write `result.json` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Manipulability inside and outside of inverse kinematics", SOURCE, out)
    robot = load_robot("panda")
    curves = {}
    print("random poses ...", file=sys.stderr, flush=True)
    goals = poses_of(robot, random_joints(robot, int(targets)))
    found = jax.jit(partial(inverse_kinematics, robot))(goals)
    keep = np.flatnonzero(found.converged)
    goals, starts = goals[keep], found.joints[keep]
    curves["random poses"] = at_weights(robot, goals, starts)
    for damping, how in ((5e-4, "default damping"), (1.0, "damping 1")):
        if (theirs := in_pyroki(robot, goals[:PYROKI_N], starts[:PYROKI_N], damping)) is None:
            break
        curves[f"random poses, PyRoKi, {how}"] = theirs
    print("demonstrated poses ...", file=sys.stderr, flush=True)
    starts = demonstrated_joints(robot, int(targets), int(episodes))
    curves["demonstrated poses"] = at_weights(robot, poses_of(robot, starts), starts)
    for name, solutions in curves.items():
        add_rows(record, name, solutions)
    record.add_figure("bias.png", bias_figure(curves))
    scores(record, robot)
    record.finish()


# ------------------------------------------------------------------------------------------------------- poses, starts


def random_joints(robot: Robot, n: int) -> jax.Array:
    lower, upper = robot.range()
    return jnp.asarray(np.random.default_rng(4).uniform(lower, upper, (n, robot.joints_n)), jnp.float32)


def demonstrated_joints(robot: Robot, n: int, episodes_n: int) -> jax.Array:
    """Recorded configurations, evenly from the first demonstrations of every bundled task."""
    rows = []
    for name in bundled_names():
        for e in list(bundled(name).iter_episodes())[: episodes_n if name.endswith("demos") else 0]:
            assert e.joints is not None
            rows.append(e.joints[:, [e.joint_names.index(j) for j in robot.joint_names]])
    joints = np.concatenate(rows)
    return jnp.asarray(joints[np.linspace(0, len(joints) - 1, n).astype(int)], jnp.float32)


@jax.jit
def poses_of(robot: Robot, q: Any) -> Any:
    return jax.vmap(partial(forward_kinematics, robot))(q)


# ------------------------------------------------------------------------------------------------------------- solvers


def at_weights(robot: Robot, goals: Any, starts: Any) -> list[Solutions]:
    """Solutions at every weight from the same starts."""
    return [measured(robot, solve(robot, goals, starts, weight), goals) for weight in WEIGHTS]


def index_of(robot: Robot, q: Any) -> Any:
    """Translational manipulability of configurations [n, B]."""
    return volume(jacobian_of(robot, chain(robot, q))[:3])


def linearised(robot: Robot, q: Any, goal: Frame, weight: Any) -> tuple[Any, Any]:
    """(rows [7, n, B], what a step should bring them [7, B]): the pose's six, and manipulability's one."""
    at = chain(robot, q)
    turn = 0.5 * (cross(at.tip.x, goal.x) + cross(at.tip.y, goal.y) + cross(at.tip.z, goal.z))  # sin(angle) axis
    scale = jnp.array([PER_METRE] * 3 + [PER_RADIAN] * 3)[:, None]
    w, slope = index_of(robot, q), jax.grad(lambda q: jnp.sum(index_of(robot, q)))(q)
    rest = weight / (w + 1e-6)
    rows = jnp.concatenate([scale[:, None] * jacobian_of(robot, at), (-rest / (w + 1e-6) * slope)[None]])
    return rows, jnp.concatenate([scale * jnp.concatenate([goal.t - at.tip.t, turn]), -rest[None]])


@jax.jit
def solve(robot: Robot, goals: Any, starts: Any, weight: Any) -> Any:
    """Joints [B, n] by Levenberg and Marquardt, within limits: a step that does not lower the cost is not taken."""
    goal, (lower, upper) = frame_of(goals.T), (jnp.asarray(x, jnp.float32)[:, None] for x in (robot.lower, robot.upper))

    def step(_: Any, at: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        q, rows, wanted, damping = at
        way = jnp.sum(rows * wanted[:, None], axis=0)
        held = ((q <= lower) & (way < 0)) | ((q >= upper) & (way > 0))
        J = jnp.where(held[None], 0.0, rows)
        y = solve_positive(jnp.sum(J[:, None] * J[None], axis=2), wanted, damping=damping)
        new = jnp.clip(q + jnp.clip(jnp.sum(J * y[:, None], axis=0), -0.3, 0.3), lower, upper)
        new_rows, new_wanted = linearised(robot, new, goal, weight)
        better = jnp.sum(new_wanted**2, axis=0) < jnp.sum(wanted**2, axis=0)
        damping = jnp.clip(jnp.where(better, damping / 3, damping * 4), 1e-3, 1e6)
        return (
            jnp.where(better, new, q),
            jnp.where(better, new_rows, rows),
            jnp.where(better, new_wanted, wanted),
            damping,
        )

    q = starts.T
    first = (q, *linearised(robot, q, goal, weight), jnp.ones(q.shape[1]))
    return jax.lax.fori_loop(0, ITERATIONS_N, step, first)[0].T


@jax.jit
def _measured(robot: Robot, joints: Any, goals: Any) -> Any:
    return *pose_error(robot, joints.T, frame_of(goals.T)), index_of(robot, joints.T)


def measured(robot: Robot, joints: Any, goals: Any) -> Solutions:
    """By jaxeval's kinematics, whoever solved."""
    return Solutions(*(np.asarray(x, float) for x in _measured(robot, joints, goals)))


def in_pyroki(robot: Robot, goals: Any, starts: Any, damping: float) -> list[Solutions] | None:
    """The same by PyRoKi's solver and its own cost; None, with a sentence, where it is not installed.

    With the solver's default damping its first steps are long enough to leave the start's surroundings, and it stops
    short of a minimum: at weight 0.2 its median cost is 8.0, ours 3.0. Its basic example begins with a damping of 1.
    """
    sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from arm_peers import PyRoKi, missing, urdf_of  # pyright: ignore[reportMissingImports]

    if told := missing("PyRoKi"):
        print(told, file=sys.stderr)
        return None
    import jaxls  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as tmp:
        peer = PyRoKi(urdf_of(robot, Path(tmp) / "arm.urdf"))

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None))
    def solved(goal: Any, start: Any, weight: Any) -> Any:
        problem, q = peer.problem(goal, manipulability_weight=weight)
        from_start = jaxls.VarValues.make([q.with_value(start)])
        trust = jaxls.TrustRegionConfig(lambda_initial=damping)
        return problem.solve(
            initial_vals=from_start, verbose=False, linear_solver="dense_cholesky", trust_region=trust
        )[q]

    return [measured(robot, solved(goals, starts, jnp.float32(weight)), goals) for weight in WEIGHTS]


# --------------------------------------------------------------------------------------------------------------- rows


def add_rows(record: Record, name: str, solutions: list[Solutions]) -> None:
    """Errors, gain and shares at every weight."""
    n = len(solutions[0].w)
    ours = "PyRoKi's cost and solver" if "PyRoKi" in name else "our kinematics, Levenberg and Marquardt"
    for weight, found in zip(WEIGHTS, solutions, strict=True):
        for statistic, at in (("median", 0.5), ("p95", 0.95)):
            for what, unit, values in (
                ("position", "mm", 1e3 * found.off_m),
                ("rotation", "deg", np.degrees(found.turn_rad)),
            ):
                published = PUBLISHED.get((statistic, weight)) if what == "position" and "random" in name else None
                record.add(
                    f"{statistic} {what} error, {unit}, weight {weight:g}, {name}",
                    float(np.quantile(values, at)),
                    interval=of_quantile(values, at),
                    n=n,
                    published=published,
                    note=ours,
                )
        gain = found.w - solutions[0].w
        note = f"mean w {found.w.mean():.4f}, without the term {solutions[0].w.mean():.4f}"
        record.add(f"gain of w, weight {weight:g}, {name}", gain.mean(), interval=of_mean(gain), n=n, note=note)
        for told, off_m, turn_deg in (("1 mm and 0.1 deg", 1e-3, 0.1), ("10 mm and 5 deg", 1e-2, 5.0)):
            hits = int(((found.off_m < off_m) & (found.turn_rad < np.radians(turn_deg))).sum())
            record.add(
                f"share within {told}, weight {weight:g}, {name}",
                hits / n,
                interval=of_share(hits, n),
                n=n,
                note="Wilson interval",
            )


def of_quantile(values: np.ndarray, at: float) -> Interval:
    """Percentile bootstrap interval of a quantile over poses."""
    rows = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLES_N, len(values)))
    low, high = np.quantile(np.quantile(values[rows], at, axis=1), [0.025, 0.975])
    return float(low), float(high)


def bias_figure(curves: dict[str, list[Solutions]]) -> Figure:
    """Pose error (left) and manipulability (right) against the weight."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    at = np.arange(len(WEIGHTS))
    for (name, solutions), colour, marker in zip(curves.items(), OKABE_ITO, "osD^", strict=False):
        off_mm = np.array([np.quantile(1e3 * s.off_m, [0.5, 0.95]) for s in solutions])
        left.plot(at[1:], off_mm[1:, 0], color=colour, marker=marker)
        left.plot(at[1:], off_mm[1:, 1], "--", color=colour, marker=marker, markerfacecolor="white")
        right.plot(at, [s.w.mean() for s in solutions], color=colour, marker=marker, label=name)
    left.plot([], [], "k-", label="median")
    left.plot([], [], "k--", label="p95")
    published = [(WEIGHTS.index(weight), value) for (_, weight), value in PUBLISHED.items()]
    left.plot(*zip(*published, strict=True), "kx", markersize=9, markeredgewidth=2, label="published, both")
    left.axhline(10, color="#8a8a8a", linestyle=":", linewidth=1)
    left.set_yscale("log")
    left.set_ylabel("position error, mm")
    left.set_title("the pose is left ...", loc="left", fontsize=11, fontweight="bold")
    right.set_ylabel("mean manipulability w")
    right.set_title("... to gain manipulability", loc="left", fontsize=11, fontweight="bold")
    for ax, first in ((left, 1), (right, 0)):
        ax.set_xticks(at[first:], [f"{w:g}" for w in WEIGHTS[first:]])
        ax.set_xlabel("weight of the manipulability residual")
        ax.grid(axis="y", color="#e4e4e4")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=8)
    return figure


# ------------------------------------------------------------------------------------------------------ demonstrations


def scores(record: Record, robot: Robot) -> None:
    """Rows of every bundled set from its recorded joints: the score, and what stands beside it."""
    pool = load_pool("panda_uniform_v1")
    for name in bundled_names():
        if name.endswith(".h5"):
            continue  # raw recordings of the same tasks
        episodes = [e.prepared() for e in bundled(name).iter_episodes()]
        if episodes[0].joints is None:
            continue
        filled = [episodes[k % len(episodes)] for k in range(ROWS_N)]
        batch = pad_episodes(filled, length=LENGTH, joints_n=len(episodes[0].joint_names))
        assert batch.joints is not None and len(episodes) <= ROWS_N
        q = batch.joints[:, :, [episodes[0].joint_names.index(j) for j in robot.joint_names]]
        found = quality_of(robot, q, batch.time_s, batch.frame_valid, pool)
        for quantity in ("score", "cost", "coverage", "min_w"):
            values = np.asarray(getattr(found, quantity), float)[: len(episodes)]
            note = f"from recorded joints, pool {pool.name}; {values.min():.3f} to {values.max():.3f}"
            record.add(f"{name} {quantity}", values.mean(), interval=of_mean(values), n=values.size, note=note)


@jax.jit
def quality_of(robot: Robot, q: Any, time_s: Any, valid: Any, pool: CostPool) -> KinematicQuality:
    """Of every row of joints [B, T, n]; the joints were recorded, so every frame counts as reached."""
    limits = {k: jnp.asarray(getattr(robot, k), q.dtype) for k in ("lower", "upper", "velocity_limit")}

    def one(row: tuple[Any, Any, Any]) -> KinematicQuality:
        q, time_s, valid = row
        J = jacobian_of(robot, chain(robot, q.T))
        return kinematic_quality(J, q, time_s, valid, valid, pool=pool, **limits)

    return jax.lax.map(one, (q, time_s, valid))


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/manipulability_bias", targets="1000", episodes="10"))
