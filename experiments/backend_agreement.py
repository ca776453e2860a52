"""Whether MJX and MuJoCo give the same episodes: the expert's, from the same starts, at the same speeds.

    python experiments/backend_agreement.py out=outputs/backend_agreement [embodiments=panda,g1] [episodes=8]

Both backends begin from starts drawn on the host in float64 (compared bit for bit); MJX then rounds them to its own
precision, float32 or with `float64=true` float64. Over the first second, before anything is touched, states are
compared number by number. After the grasp contacts make small differences grow, which the figure shows; there what
the stage monitor says of every episode is compared. MJX on a CPU takes minutes: most of it to compile.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from record import Interval, Record, arguments, keep_compiled_code, of_share

from jaxeval.metrics.stages import Cause, StageParams, Stages, monitor, stack_signals
from jaxeval.policies.policy import episode_key
from jaxeval.report.figures import OKABE_ITO
from jaxeval.sim.mujoco import environment as mujoco
from jaxeval.sim.mujoco import mjx
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.environment import Signals
from jaxeval.sim.mujoco.schedule import CONTROL_HZ
from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW
from jaxeval.types import InputError

SOURCE = "MJX (JAX) against MuJoCo (C): one model, the deviations of MJX's are listed in jaxeval/sim/mujoco/mjx.py"
DIFFERENCES: dict[str, tuple[str, Callable[[Signals, Signals], np.ndarray]]] = {
    "joint position": ("rad", lambda a, b: np.abs(a.joint_position - b.joint_position).max(-1)),
    "object position": ("m", lambda a, b: np.linalg.norm(a.object_pose[:, 4:] - b.object_pose[:, 4:], axis=-1)),
    "object rotation": ("rad", lambda a, b: turned(a.object_pose[:, :4], b.object_pose[:, :4])),
}
"""Of two episodes, row by row; of joints the greatest."""


def turned(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Angle between orientations (wxyz), exact for small ones."""
    apart = np.minimum(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1))
    return 4 * np.arcsin(np.clip(apart / 2, 0, 1))


def main(out: str, embodiments: str, speeds: str, episodes: str, float64: str) -> None:
    """Run everything, write `result.json` and the figures into `out`."""
    keep_compiled_code()
    jax.config.update("jax_enable_x64", float64 == "true")
    precision = "float64" if float64 == "true" else "float32"
    record = Record("Agreement of MJX with MuJoCo", SOURCE, out)
    rates, n = [float(r) for r in speeds.split(",")], int(episodes)
    for name in embodiments.split(","):
        print(f"{name} ...", file=sys.stderr, flush=True)
        e = load_embodiment(name)
        try:
            envs = mjx.Environments(PARCEL_STOW, e)
        except InputError as missing:
            raise SystemExit(str(missing)) from missing
        expert = PARCEL_STOW.expert(e)
        keys = [episode_key(0, k) for k in range(n)] * len(rates)
        speed = np.repeat(rates, n)
        theirs, _ = mujoco.run(mujoco.Environments(PARCEL_STOW, e), [expert] * len(keys), keys, speed)
        starts(record, name, envs, theirs[:n], keys[:n])
        ours, _ = mjx.run(envs, expert, keys, speed)
        first_second(record, f"{name}, {precision}", ours, theirs, speed)
        stages(record, name, judged(PARCEL_STOW, ours), judged(PARCEL_STOW, theirs), speed)
        record.add_figure(f"divergence_{name}.png", divergence_figure(name, PARCEL_STOW, ours, theirs, speed))
    record.finish()


def starts(record: Record, name: str, envs: mjx.Environments, theirs: list[Signals], keys: list[jax.Array]) -> None:
    """Rows of the initial conditions: equal bit for bit, and what MJX's precision makes of them."""
    joints, poses = envs.starts(keys)
    first = [np.concatenate([s.joint_position[0], s.object_pose[0]]) for s in theirs]
    same = sum(np.array_equal(np.concatenate(pair), row) for *pair, row in zip(joints, poses, first, strict=True))
    n = len(keys)
    record.add(f"{name}: starts equal bit for bit (float64)", same / n, interval=of_share(same, n), n=n)
    state = jax.vmap(envs.before)((joints, poses), np.ones(n))
    host = mujoco.Environments(envs.task, envs.embodiment)
    rounded = np.asarray(state.qpos, float)
    record.add(f"{name}: start in MJX's precision, joints, rad", np.abs(rounded[:, host.joints] - joints).max(), n=n)
    at = rounded[:, host.thing_qpos :][:, :3]
    record.add(f"{name}: start in MJX's precision, object, m", np.abs(at - poses[:, 4:]).max(), n=n)


def first_second(record: Record, name: str, ours: list[Signals], theirs: list[Signals], speed: np.ndarray) -> None:
    """Rows of the greatest differences over the first second at r = 1, over all episodes."""
    pairs = [(cut(a, CONTROL_HZ), cut(b, CONTROL_HZ)) for a, b, r in zip(ours, theirs, speed, strict=True) if r == 1.0]
    for what, (unit, difference) in DIFFERENCES.items() if pairs else ():
        greatest = max(float(difference(a, b).max()) for a, b in pairs)
        record.add(f"{name}: first second, greatest {what} difference, {unit}", greatest, n=len(pairs))


def cut(s: Signals, steps_n: int) -> Signals:
    """The rows up to that step."""
    return Signals(*(np.asarray(x, float)[: steps_n + 1] for x in s))


def judged(task: Task, signals: list[Signals]) -> Stages:
    """What the stage monitor says of every episode."""
    one = jax.jit(jax.vmap(lambda s: monitor(s, geometry=task.geometry, params=StageParams())))
    return jax.tree.map(np.asarray, one(stack_signals([s.stages() for s in signals])))


def stages(record: Record, name: str, ours: Stages, theirs: Stages, speed: np.ndarray) -> None:
    """Rows of every speed: success on both, and how often flags, stages and causes are the same."""
    for r in np.unique(speed):
        here = speed == r
        n = int(here.sum())
        told = f"{name}, r = {r:g}"

        def share(what: str, hits: Any, note: str = "", told: str = told, n: int = n) -> tuple[int, Interval]:
            k = int(np.sum(hits))
            record.add(f"{told}: {what}", k / n, interval=of_share(k, n), n=n, note=f"{k}/{n}{note}")
            return k, of_share(k, n)

        share("success, MJX", ours.success[here])
        share("success, MuJoCo", theirs.success[here])
        for flag in ("success", "success_once", "still_at_end", "cause"):
            same = getattr(ours, flag)[here] == getattr(theirs, flag)[here]
            apart = [
                f"{k}: {Cause(int(ours.cause[here][k])).name} / {Cause(int(theirs.cause[here][k])).name}"
                for k in np.flatnonzero(~same)
            ]
            share(f"same {flag}", same, "; MJX / MuJoCo, " + ", ".join(apart) if apart else "")
        for stage in ours.reached._fields:
            a, b = (getattr(s.reached, stage)[here] for s in (ours, theirs))
            both = (a >= 0) & (b >= 0)
            steps = f"; greatest difference {np.abs(a - b)[both].max()} steps" if both.any() else ""
            share(f"same stage {stage}", (a >= 0) == (b >= 0), steps)


def divergence_figure(name: str, task: Task, ours: list[Signals], theirs: list[Signals], speed: np.ndarray) -> Figure:
    """Median and greatest difference over the episodes of a speed, against time."""
    rates = np.unique(speed)
    figure = Figure(figsize=(9.6, 3.2 * len(rates)), layout="constrained")
    for ax, r in zip(np.atleast_1d(figure.subplots(len(rates), 1)), rates, strict=True):
        pairs = [(a, b) for a, b, s in zip(ours, theirs, speed, strict=True) if s == r]
        time_s = pairs[0][1].time_s
        for (what, (unit, difference)), colour in zip(DIFFERENCES.items(), OKABE_ITO, strict=False):
            rows = np.array([difference(a, b) for a, b in pairs])
            ax.plot(time_s, np.median(rows, axis=0), color=colour, label=f"{what}, {unit}")
            ax.plot(time_s, rows.max(axis=0), color=colour, linewidth=0.8, linestyle=":")
        ends = np.cumsum(task.schedule.durations(float(r))) / CONTROL_HZ
        for phase, end, begin in zip(task.schedule.names, ends, [0.0, *ends[:-1]], strict=True):
            ax.axvline(end, color="#e4e4e4", linewidth=0.8, zorder=0)
            ax.text((begin + end) / 2, 1.01, phase.replace("_", "\n").lower(), transform=ax.get_xaxis_transform(),
                    ha="center", va="bottom", fontsize=6)  # fmt: skip
        ax.set_yscale("log")
        ax.set_xlim(0, time_s[-1])
        ax.set_ylabel(f"r = {r:g}\n|MJX - MuJoCo|")
        ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("s")
    ax.legend(frameon=False, fontsize=8, title=f"{name}: median of {len(pairs)} episodes, dotted the greatest")
    return figure


if __name__ == "__main__":
    main(
        **arguments(
            sys.argv[1:],
            out="outputs/backend_agreement",
            embodiments="panda",
            speeds="1,2,2.5",
            episodes="8",
            float64="false",
        )
    )
