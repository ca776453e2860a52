"""Stages and cause of every episode of a grasp-and-insert task, and how the object was held and carried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.metrics import hand_motion as H
from jaxeval.metrics import stages as S
from jaxeval.metrics.registry import Column, Context, Measured, Metric, Needs, Recorded, Told
from jaxeval.types import STATIC, EpisodeBatch, InputError, pytree

SIGNALS = ("phase", "object_velocity", "fingertip_force", "receptacle_force", "joint_velocity", "told_speed")


@pytree
class Judged:
    """What the monitor needs of the task and the arm: geometry, velocity limits, and the arm's joints' columns."""

    geometry: S.StageGeometry
    limit: Any
    arm: tuple[int, ...] = field(metadata=STATIC)
    phases: tuple[str, ...] = field(metadata=STATIC)


def staged_task(recorded: Recorded) -> Any:
    """The task whose stages can be told; InputError where it is none of those."""
    from jaxeval.sim.mujoco.tasks.named import load_mujoco_task, mujoco_task_names

    if recorded.task not in mujoco_task_names():
        raise InputError(
            f"{recorded.where}: stages are told of {', '.join(mujoco_task_names())}, found episodes of "
            f"{recorded.task or 'no named task'}; leave `stages` out of metrics",
            code="no_stages",
            key="stages",
        )
    return load_mujoco_task(recorded.task)


def needs(recorded: Recorded, params: S.StageParams) -> Needs:
    """The object and the hand, and what a rollout on MuJoCo records beside them."""
    from jaxeval.sim.mujoco.backend import HAND

    task = staged_task(recorded)
    if not recorded.joint_names:
        raise InputError(
            f"the joints differ: {recorded.joints_told or recorded.where}; expected one embodiment; "
            "score its stores by themselves",
            code="joints_differ",
        )
    limits = _limits(recorded)
    arm = tuple(recorded.joint_names.index(j) for j in limits or recorded.joint_names[:1])
    limit = np.array([*limits.values()] or [np.inf])  # infinite: no utilisation, and its status says why
    judged = Judged(geometry=task.geometry, limit=limit, arm=arm, phases=task.schedule.names)
    return Needs(bodies=(task.thing.name, HAND), signals=SIGNALS, constants=judged)


def _limits(recorded: Recorded) -> dict[str, float]:
    """Velocity limits of the arm, by joint; {} where its description is not known here.

    A rollout with a description of the person's own says where that is: its limits are not those of an embodiment
    whose joints have the same names.
    """
    from jaxeval.sim.mujoco.embodiment import arm_velocity_limits, embodiment_with

    told = {str((c.get("rollout") or {}).get("embodiment")) for c in recorded.configuration}
    own = next((name for name in told if name.endswith(".yaml")), None)
    if own is not None and (len(told) > 1 or not Path(own).is_file()):
        return {}
    name = own or embodiment_with(recorded.joint_names)
    limits = {} if name is None else arm_velocity_limits(name)
    return limits if set(limits) <= set(recorded.joint_names) else {}


def measure(batch: EpisodeBatch, context: Context, params: S.StageParams) -> Measured:
    """Leaves of Stages and HandMotion, and the told speed; see COLUMNS. ``first.``, ``moment.``: steps."""
    judged: Judged = context.constants
    signals = {k: jnp.asarray(v) for k, v in batch.signals.items()}
    velocity, time_s = signals["object_velocity"], jnp.asarray(batch.time_s)
    rows = S.StageSignals(
        phase=signals["phase"].astype(jnp.int32),
        T_world_object=jnp.asarray(batch.poses)[:, :, 0],
        linear_m_s=velocity[..., :3],
        angular_rad_s=velocity[..., 3:],
        T_world_hand=jnp.asarray(batch.poses)[:, :, 1],
        finger_n=signals["fingertip_force"],
        receptacle_n=signals["receptacle_force"],
        valid=jnp.asarray(batch.valid).all(axis=2),
    )

    def one(row: tuple[Any, Any, Any]) -> tuple[S.Stages, H.HandMotion, Any]:
        s, arm, time_s = row
        stages = S.monitor(s, geometry=judged.geometry, params=params)
        motion = H.hand_motion(
            jnp.asarray(s.T_world_hand), jnp.asarray(s.T_world_object), arm, time_s, jnp.asarray(s.valid), judged.limit,
            acquired=stages.reached.acquired, lift=stages.moments.lift, release=stages.moments.release,
        )  # fmt: skip
        return stages, motion, S.retained(stages)

    arm = signals["joint_velocity"][..., np.asarray(judged.arm)]
    stages, motion, retained = jax.lax.map(one, (rows, arm, time_s))
    ok = stages.status == S.STATUS_OK

    def truth(x: Any) -> Any:
        return jnp.where(ok, x.astype(jnp.int32), -1)

    episode = jnp.arange(time_s.shape[0])
    steps = {f"first.{k}": v for k, v in stages.reached._asdict().items()}
    steps |= {f"moment.{k}": v for k, v in stages.moments._asdict().items()}
    out: Measured = dict(steps)
    for name, step in steps.items():
        at = jnp.where(step >= 0, time_s[episode, jnp.maximum(step, 0)], jnp.nan)
        out[f"stages.{name.split('.')[1]}_s"] = at
    out |= {f"stage.{k}": truth(v >= 0) for k, v in stages.reached._asdict().items()}
    out |= {
        "cause_code": stages.cause,
        "drop_phase": stages.drop_phase,
        "success_once": truth(stages.success_once | stages.success),
        "success_at_end": truth(stages.success),
        "stages.still_at_end": truth(stages.success_at_end),
        "stages.retained": truth(retained),
        "stages.status": stages.status,
        "told_speed_measured": signals["told_speed"][:, 0],
    }
    out |= {f"stages.{k}": getattr(stages, k) for k, *_ in MEASURES}
    return out | {f"hand.{k}": v for k, v in motion._asdict().items()}


def _cause(measured: Mapping[str, np.ndarray], told: Told) -> Sequence[str | None]:
    phases = told.context.constants.phases
    ends = zip(measured["cause_code"].tolist(), measured["drop_phase"].tolist(), strict=True)
    return [S.sentence(cause, phase, phases=phases) for cause, phase in ends]


def _told_speed(measured: Mapping[str, np.ndarray], told: Told) -> Sequence[Any]:
    return [float(f"{speed:.6g}") for speed in measured["told_speed_measured"]]  # as it was given, before float32


STAGES = {
    "acquired": "lifted clear of its support, with thumb and another finger pressing",
    "lifted": "held at or above the lifting height",
    "reoriented": "held at the goal's orientation",
    "pre_insert": "held near the pose before insertion",
    "inserted": "past the entrance by the insertion depth",
    "released": "let go of after it was inserted",
    "settled": "at rest after it was released",
}
MOMENTS = {
    "lift": "the lifting phase began",
    "transfer": "the transfer began",
    "insert": "the insertion began",
    "release": "the release began",
    "touched": "the object touched the receptacle",
    "let_go": "the grip of the first drop ended",
    "dropped": "the drop was certain",
    "slipped": "the object had moved in the hand past the limits",
    "jammed": "the object had jammed at the receptacle",
}
MEASURES = (
    ("depth_max_m", "m", "higher", "greatest depth since the acquisition"),
    ("depth_final_m", "m", "higher", "depth at the last step"),
    ("angle_final_rad", "rad", "lower", "error of orientation at the last step"),
    ("angle_before_insert_rad", "rad", "lower", "least error of orientation while held, before the insertion"),
    ("receptacle_peak_n", "N", "lower", "largest force of the receptacle on the object"),
)
HAND_COLUMNS = (
    Column("hand.slip_m", unit="m", direction="lower", meaning="how far the object moved in the hand"),
    Column("hand.slip_rad", unit="rad", direction="lower", meaning="how far it turned in the hand"),
    Column("hand.slip_status", "status", meaning="ok, or why that is not known", sentences=H.STATUS_SENTENCES),
    Column("hand.arm_utilisation", direction="lower", meaning="largest joint speed over its limit, from the lift on"),
    Column("hand.arm_status", "status", meaning="ok, or why that is not known", sentences=H.STATUS_SENTENCES),
    Column("hand.speed_m_s", unit="m/s", meaning="largest speed of the hand, from the lift on"),
    Column("hand.turn_rad_s", unit="rad/s", meaning="largest angular speed of the hand, from the lift on"),
    Column("hand.speed_status", "status", meaning="ok, or why that is not known", sentences=H.STATUS_SENTENCES),
)
COLUMNS = (
    Column("told_speed", meaning="speed that the policy was told, times nominal", words=_told_speed),
    *(Column(f"stage.{k}", "truth", direction="higher", meaning=f"whether it was {v}") for k, v in STAGES.items()),
    Column("cause", "status", meaning="success, or the one cause of its failure", words=_cause),
    Column("success_once", "truth", direction="higher", meaning="it would have succeeded, had it ended at some step"),
    Column("success_at_end", "truth", direction="higher", meaning="success, by latched stages and the end state"),
    Column("stages.still_at_end", "truth", direction="higher", meaning="success, let go and still at the last step"),
    Column("stages.retained", "truth", direction="higher", meaning="not lost on the way to the receptacle"),
    Column("stages.status", "status", meaning="ok, or why the episode is not judged", sentences=S.STATUS_SENTENCES),
    *(Column(f"stages.{k}", unit=unit, direction=better, meaning=what) for k, unit, better, what in MEASURES),
    *(Column(f"stages.{k}_s", unit="s", meaning=f"when the object was first {v}") for k, v in STAGES.items()),
    *(Column(f"stages.{k}_s", unit="s", meaning=f"when {v}") for k, v in MOMENTS.items()),
    *HAND_COLUMNS,
)  # fmt: skip

METRIC = Metric("stages", S.StageParams, needs, measure, COLUMNS, section="stages")


def stages_table(columns: dict[str, list[Any]]) -> str:
    """A row a group and speed: share of episodes that reached each stage, success, and the causes, as text."""
    c = columns
    stages = [name.removeprefix("stage.") for name in c if name.startswith("stage.")]
    at: dict[tuple[str, str, str], list[int]] = {}
    for k, (group, speed, told_speed) in enumerate(zip(c["group"], c["speed"], c["told_speed"], strict=True)):
        other = "" if told_speed in (None, speed) else f"{told_speed:g}"
        at.setdefault((group or "-", "-" if speed is None else f"{speed:g}", other or "-"), []).append(k)
    width = max(8, *(len(group) for group, _, _ in at)) + 1
    lines = [f"{'group':{width}}{'speed':>6}{'told':>6}{'n':>6}  " + "".join(f"{s:>11}" for s in [*stages, "success"])]
    for (group, speed, other), rows in at.items():
        cells = []
        for name in [*(f"stage.{s}" for s in stages), "success_at_end"]:
            values = [c[name][k] for k in rows if c[name][k] is not None]
            cells.append(f"{np.mean(values):>11.1%}" if values else f"{'-':>11}")
        causes = Counter(cause for k in rows if (cause := c["cause"][k]) != S.Cause.SUCCESS.sentence)
        told_causes = "; ".join(f"{n} {cause}" for cause, n in causes.most_common())
        lines.append(f"{group:{width}}{speed:>6}{other:>6}{len(rows):>6}  {''.join(cells)}  {told_causes}")
    return "\n".join(lines)
