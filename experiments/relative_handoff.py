"""What acquisitions are worth: policies acquire the parcel, then one shared controller carries it as the expert did.

    python experiments/relative_handoff.py out=outputs/relative_handoff episodes=100

Every policy runs end to end and handed over, from the same starts; the controller follows the hand motion of the
expert's episode with the same start and speed, relative to its pose at the handoff. Counts and their Wilson intervals
stand beside the published ones, which are of another robot and another simulator. There is no learner here: `sight` is
the expert that sees the parcel off by up to `sight_mm` instead of 3 mm, a stand-in that acquires worse in a known way.
`at` is the phase that begins with the handoff, `motion` whether the expert's motion is where its arm was sent
(commanded) or where it came to be (measured).
"""

from __future__ import annotations

import csv
import dataclasses
import sys
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from record import Record, arguments, bootstrap, keep_compiled_code

from jaxeval.metrics.hand_motion import HandMotion, hand_motion
from jaxeval.metrics.stages import StageParams, Stages, monitor, retained, stack_signals
from jaxeval.policies.policy import episode_key
from jaxeval.policies.scripted.arm import rigid
from jaxeval.policies.scripted.handoff import SharedController, handoff
from jaxeval.report import comparison_figures as F
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.environment import Environments, Signals, run
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW
from jaxeval.stats.proportions import wilson

SOURCE = (
    "Does Imitation Learning Preserve Temporal Robustness in Dexterous Manipulation? (ParcelStow), 2026, section 5.3"
)
ALL_STARTS = 100
"""Episodes of a published cell."""


class Judged(NamedTuple):
    """Episodes of one policy at one speed; the motion in the hand is that of the free carriage (leaves [B])."""

    stages: Stages
    retained: np.ndarray
    motion: HandMotion


def main(out: str, embodiment: str, speeds: str, episodes: str, seed: str, sight_mm: str, at: str, motion: str) -> None:
    """Run everything, write `result.json` and the figure into `out`."""
    if motion not in ("commanded", "measured"):
        raise SystemExit(f"relative_handoff.py: motion={motion}; expected commanded or measured")
    keep_compiled_code()
    record = Record(f"The relative-motion handoff on {embodiment}", SOURCE, out)
    robot = load_embodiment(embodiment)
    envs, controller = Environments(PARCEL_STOW, robot), PARCEL_STOW.handoff_controller(robot, at=at)
    keys = [episode_key(int(seed), k) for k in range(int(episodes))]
    dim = dataclasses.replace(PARCEL_STOW, seen_within_m=float(sight_mm) / 1e3)
    policies = {"expert": PARCEL_STOW.expert(robot), "sight": dim.expert(robot)}
    curves: dict[str, list[dict[str, float]]] = {}
    for speed in map(float, speeds.split(",")):
        print(f"r = {speed:g} ...", file=sys.stderr, flush=True)
        expert, actions = run(envs, [policies["expert"]] * len(keys), keys, speed)
        if motion == "commanded":
            motions = [controller.commanded_motion(s.phase, a) for s, a in zip(expert, actions, strict=True)]
        else:
            arm = robot.actuated[robot.is_arm]
            motions = [controller.measured_motion(s.phase, s.joint_position[:, arm]) for s in expert]
        for name, policy in policies.items():
            alone = expert if policy is policies["expert"] else run(envs, [policy] * len(keys), keys, speed)[0]
            after, _ = run(envs, [handoff(policy, m, controller) for m in motions], keys, speed)
            add_cell(record, name, speed, judge(envs, alone), judge(envs, after), curves)
            if name != "expert":
                add_offset(record, name, speed, controller, expert, after)
    record.add_figure("handoff.png", figure(curves, sorted({float(r) for r in speeds.split(",")})))
    record.finish()


def judge(envs: Environments, episodes: list[Signals]) -> Judged:
    """Stages of every episode, and its motion in the hand until the insertion begins or it touches the receptacle."""
    robot = envs.embodiment
    arm = robot.actuated[robot.is_arm]
    signals = stack_signals([s.stages() for s in episodes])
    stages = jax.jit(jax.vmap(lambda s: monitor(s, geometry=PARCEL_STOW.geometry, params=StageParams())))(signals)
    T = signals.valid.shape[1]
    velocity, time_s = (
        np.stack([np.pad(x, [(0, T - len(x))] + [(0, 0)] * (x.ndim - 1)) for x in rows])
        for rows in ([s.joint_velocity[:, arm] for s in episodes], [s.time_s for s in episodes])
    )
    m, acquired = stages.moments, stages.reached.acquired
    ends = np.where((m.touched >= np.maximum(acquired, 0)) & (m.touched < m.insert), m.touched, m.insert)
    moved = jax.jit(
        jax.vmap(
            lambda s, v, t, acquired, lift, end: hand_motion(
                s.T_world_hand, s.T_world_object, v, t, s.valid, jnp.asarray(robot.velocity_limit[arm]),
                acquired=acquired, lift=lift, release=end,
            )
        )
    )(signals, velocity, time_s, acquired, m.lift, ends)  # fmt: skip
    return Judged(jax.tree.map(np.asarray, stages), np.asarray(retained(stages)), jax.tree.map(np.asarray, moved))


def add_cell(
    record: Record, name: str, speed: float, alone: Judged, after: Judged, curves: dict[str, list[dict[str, float]]]
) -> None:
    """Acquired, retained, completed and the motion in the hand of one policy at one speed."""
    told = published(name, speed)
    n, acquired = len(after.retained), int((after.stages.reached.acquired >= 0).sum())
    add_share(record, f"{name}, r = {speed:g}, acquired", acquired, n, told.get("acquired"), ALL_STARTS)
    held = int(after.retained.sum())
    if acquired:
        what = f"{name}, r = {speed:g}, retained"
        rate = add_share(record, what, held, acquired, told.get("retained"), told.get("handoff_n", 1))
        curves.setdefault(f"{name}: retained", []).append({"speed r": speed} | rate)
    completed = int(after.stages.success.sum())
    rate = add_share(record, f"{name}, r = {speed:g}, completed", completed, n, told.get("success"), ALL_STARTS)
    curves.setdefault(f"{name}: completed", []).append({"speed r": speed} | rate)
    ended = int(alone.stages.success.sum())
    add_share(record, f"{name}, r = {speed:g}, completed without handoff", ended, n, told.get("end_to_end"), ALL_STARTS)
    for key, word, unit in (("slip_m", "translation", 1e3), ("slip_rad", "rotation", 180 / np.pi)):
        peaks = unit * getattr(after.motion, key)
        peaks = peaks[np.isfinite(peaks)]
        if len(peaks):
            column = f"{word}_median_{'mm' if unit == 1e3 else 'deg'}"
            record.add(
                f"{name}, r = {speed:g}, {column.replace('_', ' ')}",
                float(np.median(peaks)),
                interval=bootstrap(lambda rows, peaks=peaks: float(np.median(peaks[rows])), len(peaks)),
                n=len(peaks),
                published=told.get(column),
                note="peak motion in the hand while it is carried freely",
            )


def add_share(
    record: Record, quantity: str, k: int, n: int, printed: float | None, printed_n: float
) -> dict[str, float]:
    """A share with its Wilson interval, and the published one."""
    found = wilson(k, n)
    rate = {"rate": float(found.value), "low": float(found.low), "high": float(found.high)}
    note = f"{k}/{n}" + ("" if printed is None else f"; published {printed:g}/{printed_n:g}")
    told = None if printed is None else printed / printed_n
    record.add(quantity, rate["rate"], interval=(rate["low"], rate["high"]), n=n, published=told, note=note)
    return rate


def add_offset(
    record: Record, name: str, speed: float, c: SharedController, expert: list[Signals], after: list[Signals]
) -> None:
    """How far the parcel lies at the handoff from where the expert has it (the paper's Figure 6b)."""
    pairs = []
    for a, b in zip(expert, after, strict=True):
        row = int(np.argmax(a.phase >= c.at))
        pairs.append(rigid(a.object_pose[row]).inv() * rigid(b.object_pose[row]))
    for word, values in (
        ("mm", np.array([1e3 * np.linalg.norm(T.translation) for T in pairs])),
        ("deg", np.array([np.degrees(T.rotation.magnitude()) for T in pairs])),
    ):
        spread = bootstrap(lambda rows, values=values: float(np.median(values[rows])), len(values))
        quantity = f"{name}, r = {speed:g}, parcel's offset from the expert's at the handoff, median {word}"
        record.add(quantity, float(np.median(values)), interval=spread, n=len(values))


def published(name: str, speed: float) -> dict[str, Any]:
    """The published cell of that name; nothing for what the paper does not have."""
    folder = files("jaxeval") / "data" / "parcelstow"
    out: dict[str, Any] = {}
    for file in ("handoff_counts.csv", "stage_counts.csv"):
        for r in csv.DictReader((folder / file).read_text().splitlines()):
            if r["policy"] == name and float(r["speed"]) == speed:
                numbers = {k: float(v) for k, v in r.items() if k not in ("policy", "speed")}
                out |= numbers if file == "handoff_counts.csv" else {"end_to_end": numbers["success"]}
    return out


def figure(curves: dict[str, list[dict[str, float]]], speeds: list[float]) -> Figure:
    """The paper's Figure 5b: retained and completed along speed."""
    panel = (
        "after the handoff: retained of those acquired, completed of all",
        [(name, rows) for name, rows in curves.items()],
        speeds,
    )
    out = F.success_figure([panel], "speed r", tuple(curves))
    out.axes[0].set_ylabel("episodes, %", fontsize=10.5)
    return out


if __name__ == "__main__":
    main(
        **arguments(
            sys.argv[1:],
            out="outputs/relative_handoff",
            embodiment="panda",
            speeds="1,1.5,2",
            episodes="100",
            seed="7",
            sight_mm="12",
            at="LIFT",
            motion="commanded",
        )
    )
