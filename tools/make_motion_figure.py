"""Draw docs/motion_quality.png, a figure of docs/metrics.md: speed, its spectrum and manipulability of two executions.

python tools/make_motion_figure.py [OUT.png]

One is a bundled execution of StackCube, the other the same with a tremor of the hand (4 Hz, 2 mm), by an arm standing
20 cm nearer. Both do the task. Spectrum and SPARC are of one sub-task; joints are found from the poses.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from jaxeval.io import bundled
from jaxeval.metrics.kinematic import manipulability, manipulability_cost
from jaxeval.metrics.smoothness import sparc, speed_of
from jaxeval.report import figures as F
from jaxeval.robots import follow, forward_kinematics, inverse_kinematics, jacobian, load_robot

OUT = Path(__file__).resolve().parents[1] / "docs" / "motion_quality.png"
SHOWN = ("tilt 0 deg", 1000)
TREMOR_HZ, TREMOR_M, NEARER_M = 4.0, 0.002, 0.20
SUB_TASK = "lift"
RATE_HZ = 50.0


class Run(NamedTuple):
    """One execution: speed [T], spectrum over ``f_hz``, manipulability [T], and the numbers that go with them."""

    name: str
    speed: np.ndarray
    f_hz: np.ndarray
    spectrum: np.ndarray
    w: np.ndarray
    sparc: float
    cost: float


def measured(name: str, poses: Any, time_s: Any, part: np.ndarray, robot: Any) -> Run:
    """Everything of a track of the tip in the arm's base frame; spectrum and SPARC of the frames in ``part``."""
    ok = jnp.ones(len(time_s), bool)
    speed = speed_of(poses[:, 4:], time_s, ok)
    start = inverse_kinematics(robot, poses[:1]).joints[0]
    found = follow(robot, poses, start)
    assert bool(found.converged.all()), "a pose is out of reach"
    w = jax.vmap(lambda q: manipulability(jacobian(robot, q)).translational)(found.joints)
    K = 2 ** (int(np.ceil(np.log2(part.sum()))) + 4)
    M = np.abs(np.fft.rfft(np.asarray(speed)[part], K))
    cost = float(jnp.mean(manipulability_cost(w, found.converged)))
    value = float(sparc(speed, time_s, jnp.asarray(part)).value)
    return Run(name, np.asarray(speed), np.fft.rfftfreq(K, 1 / RATE_HZ), M / M.max(), np.asarray(w), value, cost)


def main(out: Path) -> None:
    robot = load_robot("panda")
    e = next(e for e in bundled("stack_cube_tilt").iter_episodes() if (e.group, e.seed) == SHOWN).prepared()
    assert e.joints is not None
    q = jnp.asarray(e.joints[:, [e.joint_names.index(j) for j in robot.joint_names]], jnp.float32)
    recorded = np.asarray(jax.vmap(lambda q: forward_kinematics(robot, q))(q))
    time_s = np.arange(0, e.time_s[-1], 1 / RATE_HZ)
    at = np.stack([np.interp(time_s, e.time_s, column) for column in recorded.T], axis=1)
    at[:, :4] /= np.linalg.norm(at[:, :4], axis=1, keepdims=True)
    k = np.arange(-12, 13) / 6  # what lies between the recorded frames is rounded off, or its corners would be jerks
    kernel = np.exp(-0.5 * k**2) / np.exp(-0.5 * k**2).sum()
    at[:, 4:] = np.stack([np.convolve(np.pad(x, 12, "edge"), kernel, "valid") for x in at[:, 4:].T], axis=1)
    shaken = at.copy()
    moving = np.clip(time_s / 0.3, 0, 1)
    for axis, phase in ((4, 0.0), (5, 1.1), (6, 2.3)):
        shaken[:, axis] += moving * TREMOR_M * np.sin(2 * np.pi * TREMOR_HZ * time_s + phase)
    shaken[:, 4] -= NEARER_M
    t = jnp.asarray(time_s, jnp.float32)
    assert e.sub_task is not None
    within = e.time_s[np.asarray(e.sub_task) == e.sub_task_names.index(SUB_TASK)]
    part = (time_s >= within[0]) & (time_s <= within[-1])
    runs = [
        measured("as recorded", jnp.asarray(at, jnp.float32), t, part, robot),
        measured("trembling, arm 20 cm nearer", jnp.asarray(shaken, jnp.float32), t, part, robot),
    ]

    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1)
    upper, lower = parts
    speed, (spectrum, freedom) = upper.subplots(), lower.subplots(1, 2)
    for run, colour, line in zip(runs, F.OKABE_ITO[:2], ("-", "-"), strict=True):
        speed.plot(time_s, 1e3 * run.speed, line, color=colour, linewidth=1.6, label=run.name)
        spectrum.plot(run.f_hz, run.spectrum, line, color=colour, label=f"SPARC {run.sparc:.2f}")
        freedom.plot(time_s, run.w, line, color=colour, label=f"least {run.w.min():.3f}, cost {run.cost:.1f}")
    spectrum.axhline(0.05, color="#8a8a8a", linestyle=":", linewidth=1)
    spectrum.set(xlim=(0, 8), xlabel="frequency, Hz")
    speed.axvspan(within[0], within[-1], color="#f0f0f0", zorder=0, linewidth=0)
    speed.text(within.mean(), 0.97, SUB_TASK, transform=speed.get_xaxis_transform(), ha="center", va="top", fontsize=9)
    speed.set(xlabel="time, s", ylabel="mm/s", xlim=(0, time_s[-1]), ylim=(0, 290))
    freedom.set(ylim=(0, None), xlabel="time, s")
    F.title(speed, "speed of the gripper: one cube stacked, twice")
    F.title(spectrum, f"spectrum of the {SUB_TASK}: the longer, the less smooth")
    F.title(freedom, "manipulability w of the arm")
    speed.legend(frameon=False, fontsize=9, ncols=2, loc="upper right")
    for ax in (spectrum, freedom):
        ax.legend(frameon=False, fontsize=9)
    for ax in (speed, spectrum, freedom):
        ax.grid(axis="y", color="#e4e4e4")
        ax.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(F.png(figure))
    print(f"{out}: {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
