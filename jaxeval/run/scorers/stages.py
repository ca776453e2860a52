"""Stages and cause of every episode, and how the object was held and carried.

Of a task whose spec has ``stages`` they are those of ``metrics.stages``, told from recorded forces and velocities; of
any other task they are the sub-tasks of its spec (``metrics.sub_tasks``), told from poses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.align import needed_joints, require_joints
from jaxeval.metrics import hand_motion, sub_tasks
from jaxeval.metrics import stages as stages_metric
from jaxeval.metrics.registry import Column, Context, Facts, Measured, Metric, Needs, Recorded
from jaxeval.metrics.status import Status
from jaxeval.robots import arm_velocity_limits, embodiment_with
from jaxeval.types import STATIC, EpisodeBatch, InputError, StageSpec, TaskSpec, pytree

SIGNALS = ("phase", "object_velocity", "fingertip_force", "receptacle_force")
"""What a grasp-and-insert task's stages are told from, beside the poses of the object and of the hand."""
OPTIONAL = ("joint_velocity", "told_speed")
"""Signals that tell more where they were recorded: how near the arm came to its limits of speed, and the told speed."""
ALL_REACHED, NO_SUCCESS = "all sub-tasks reached", "all sub-tasks reached, but no success"
"""Causes of episodes that reached every sub-task and are not known, or known not, to have succeeded."""


@pytree
class Judged:
    """What the monitor needs of the task and the arm: geometry, velocity limits, and the arm's joints' columns."""

    geometry: stages_metric.StageGeometry
    limit: Any
    arm: tuple[int, ...] = field(metadata=STATIC)
    phases: tuple[str, ...] = field(metadata=STATIC)


@pytree
class Ordered:
    """The task whose sub-tasks are its stages, and which of them can be asked about."""

    spec: TaskSpec = field(metadata=STATIC)
    asked: tuple[bool, ...] = field(metadata=STATIC)


def staged(recorded: Recorded, metric: str) -> StageSpec:
    """``stages`` of the task's spec; InputError where it has none."""
    if recorded.spec is None or recorded.spec.stages is None:
        raise InputError(
            f"{recorded.where}: {metric} needs `stages` in the spec of the task, found "
            f"{_no_spec(recorded) if recorded.spec is None else f'none in that of {recorded.spec.name}'}; "
            f"give spec=FILE.yaml with them or leave `{metric}` out of metrics",
            code="no_stages",
            key=metric,
        )
    return recorded.spec.stages


def _no_spec(recorded: Recorded) -> str:
    return f"no spec of the task '{recorded.task}'" if recorded.task else "a task without a name"


def needs(recorded: Recorded, params: stages_metric.StageParams) -> Needs:
    """The object, the hand and the signals of a grasp-and-insert task, or the sub-tasks of any other."""
    if recorded.spec is None:
        raise InputError(
            f"{recorded.where}: stages are told by the spec of the task, found {_no_spec(recorded)}; "
            "give spec=FILE.yaml or leave `stages` out of metrics",
            code="no_stages",
            key="stages",
        )
    if recorded.spec.stages is None:
        return _sub_task_needs(recorded, recorded.spec)
    stages = recorded.spec.stages
    if recorded.joints_differ:
        raise InputError(
            f"the joints differ: {recorded.joints_differ}; expected one embodiment; score its stores by themselves",
            code="joints_differ",
        )
    optional = tuple(name for name in OPTIONAL if name in recorded.signals)
    limits = _limits(recorded) if "joint_velocity" in optional else {}
    if not limits:
        optional = tuple(name for name in optional if name != "joint_velocity")
    arm = tuple(recorded.joint_names.index(j) for j in limits)
    limit = np.array([*limits.values()] or [np.inf])  # infinite: no utilisation, and its status says why
    judged = Judged(geometry=stages_metric.StageGeometry.of(recorded.spec), limit=limit, arm=arm, phases=stages.phases)
    return Needs(bodies=(stages.object, stages.hand), signals=SIGNALS + optional, constants=judged)


def _sub_task_needs(recorded: Recorded, spec: TaskSpec) -> Needs:
    """Alignment with the sub-tasks; InputError where none can be asked about."""
    names, ask = tuple(s.name for s in spec.sub_tasks), sub_tasks.asked(spec, recorded.bodies)
    require_joints(spec, recorded.joint_names, recorded.where)
    if not any(ask):
        raise InputError(
            f"{recorded.where}: no sub-task of {spec.name} can be told, it has the bodies "
            f"{', '.join(recorded.bodies) or 'of nothing'}, expected {', '.join(b.name for b in spec.bodies)}; record "
            "them or leave `stages` out of metrics",
            code="no_body",
            key="stages",
        )
    lacking = [name for name, known in zip(names, ask, strict=True) if not known]
    note = f"stages: {', '.join(lacking)} cannot be told, the bodies that end them were not recorded"
    return Needs(
        alignment=True,
        joints=bool(needed_joints(spec)),
        constants=Ordered(spec=spec, asked=ask),
        labels={"sub_task": names},
        notes=(note,) if lacking else (),
    )


def _limits(recorded: Recorded) -> dict[str, float]:
    """Velocity limits of the arm, by joint; {} where its description is not known here.

    A rollout with a description of the person's own says where that is: its limits are not those of an embodiment
    whose joints have the same names.
    """
    known = {str((c.get("rollout") or {}).get("embodiment")) for c in recorded.configuration}
    own = next((name for name in known if name.endswith(".yaml")), None)
    if own is not None and (len(known) > 1 or not Path(own).is_file()):
        return {}
    name = own or embodiment_with(recorded.joint_names)
    limits = {} if name is None else arm_velocity_limits(name)
    return limits if set(limits) <= set(recorded.joint_names) else {}


def measure(batch: EpisodeBatch, context: Context, params: stages_metric.StageParams) -> Measured:
    """What the columns hold, of whichever stages the task has; see COLUMNS."""
    if isinstance(context.constants, Ordered):
        return _sub_tasks(batch, context, context.constants)
    return _grasp_and_insert(batch, context.constants, params)


def _sub_tasks(batch: EpisodeBatch, context: Context, ordered: Ordered) -> Measured:
    """Sub-tasks reached, when, the first not reached (index, -1 for none), and the recorded success (-1 unknown)."""

    def one(aligned: Any, valid: Any, frame_valid: Any, width: Any, joints: Any) -> sub_tasks.SubTaskStages:
        seen = sub_tasks.seen(
            valid, frame_valid, width, joints,
            spec=ordered.spec, bodies=batch.bodies, joint_names=batch.joint_names,
        )  # fmt: skip
        return sub_tasks.sub_task_stages(aligned, seen, asked=ordered.asked)

    arrays = (batch.valid, batch.frame_valid, batch.gripper_width_m, batch.joints)
    found = jax.vmap(one)(context.aligned, *(None if x is None else jnp.asarray(x) for x in arrays))
    return {
        "stage.<sub_task>": found.reached,
        "stages.<sub_task>_s": found.ended_s,
        "missed": found.missed,
        "stages.status": found.status,
        "recorded_success": jnp.asarray(batch.success),
    }


def _grasp_and_insert(batch: EpisodeBatch, judged: Judged, params: stages_metric.StageParams) -> Measured:
    """Leaves of Stages and HandMotion, and the told speed. ``first.``, ``moment.``: steps."""
    signals = {k: jnp.asarray(v) for k, v in batch.signals.items()}
    velocity, time_s = signals["object_velocity"], jnp.asarray(batch.time_s)
    rows = stages_metric.StageSignals(
        phase=signals["phase"].astype(jnp.int32),
        T_world_object=jnp.asarray(batch.poses)[:, :, 0],
        linear_m_s=velocity[..., :3],
        angular_rad_s=velocity[..., 3:],
        T_world_hand=jnp.asarray(batch.poses)[:, :, 1],
        finger_n=signals["fingertip_force"],
        receptacle_n=signals["receptacle_force"],
        valid=jnp.asarray(batch.valid).all(axis=2),
    )

    def one(row: tuple[Any, Any, Any]) -> tuple[stages_metric.Stages, hand_motion.HandMotion, Any]:
        s, arm, time_s = row
        stages = stages_metric.monitor(s, geometry=judged.geometry, params=params)
        motion = hand_motion.hand_motion(
            jnp.asarray(s.T_world_hand), jnp.asarray(s.T_world_object), arm, time_s, jnp.asarray(s.valid), judged.limit,
            acquired=stages.reached.acquired, lift=stages.moments.lift, release=stages.moments.release,
        )  # fmt: skip
        return stages, motion, stages_metric.retained(stages)

    still = jnp.zeros((*time_s.shape, 1), time_s.dtype)
    arm = signals["joint_velocity"][..., np.asarray(judged.arm)] if judged.arm else still
    stages, motion, retained = jax.lax.map(one, (rows, arm, time_s))
    ok = stages.status == Status.OK

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
        "stages.still_at_end": truth(stages.still_at_end),
        "stages.retained": truth(retained),
        "stages.status": stages.status,
    }
    if "told_speed" in signals:
        out["told_speed_measured"] = signals["told_speed"][:, 0]
    out |= {f"stages.{k}": getattr(stages, k) for k, *_ in MEASURES}
    return out | {f"hand.{k}": v for k, v in motion._asdict().items()}


def _cause(measured: Mapping[str, np.ndarray], facts: Facts) -> Sequence[str | None]:
    judged = facts.context.constants
    if isinstance(judged, Ordered):
        names = [s.name for s in judged.spec.sub_tasks]
        ends = zip(*(measured[k].tolist() for k in ("missed", "stages.status", "recorded_success")), strict=True)
        return [_ended(None if missed < 0 else names[missed], status, success) for missed, status, success in ends]
    ends = zip(measured["cause_code"].tolist(), measured["drop_phase"].tolist(), strict=True)
    return [stages_metric.sentence(cause, phase, phases=judged.phases) for cause, phase in ends]


def _ended(missed: str | None, status: int, success: int) -> str:
    """Success as it was recorded, else the first sub-task that was not reached, else why there is none such."""
    if success == 1:
        return stages_metric.Cause.SUCCESS.sentence
    if missed is not None:
        return f"{missed} not reached"
    if status != Status.OK:
        return f"not judged: {Status(status).sentence}"
    return NO_SUCCESS if success == 0 else ALL_REACHED


def _told_speed(measured: Mapping[str, np.ndarray], facts: Facts) -> Sequence[Any] | None:
    if "told_speed_measured" not in measured:
        return None
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
    Column("hand.slip_status", "status", meaning="ok, or why that is not known"),
    Column("hand.arm_utilisation", direction="lower", meaning="largest joint speed over its limit, from the lift on"),
    Column("hand.arm_status", "status", meaning="ok, or why that is not known"),
    Column("hand.speed_m_s", unit="m/s", meaning="largest speed of the hand, from the lift on"),
    Column("hand.turn_rad_s", unit="rad/s", meaning="largest angular speed of the hand, from the lift on"),
    Column("hand.speed_status", "status", meaning="ok, or why that is not known"),
)
COLUMNS = (
    Column("told_speed", meaning="speed that the policy was told, times nominal", words=_told_speed),
    *(Column(f"stage.{k}", "truth", direction="higher", meaning=f"whether it was {v}") for k, v in STAGES.items()),
    Column("stage.<sub_task>", "truth", direction="higher", meaning="whether the sub-task <sub_task> ended"),
    Column("stages.<sub_task>_s", unit="s", meaning="when <sub_task> ended"),
    Column("cause", "status", meaning="success, or the one cause of its failure", words=_cause),
    Column("success_once", "truth", direction="higher", meaning="it would have succeeded, had it ended at some step"),
    Column("success_at_end", "truth", direction="higher", meaning="success, by latched stages and the end state"),
    Column("stages.still_at_end", "truth", direction="higher", meaning="success, let go and still at the last step"),
    Column("stages.retained", "truth", direction="higher", meaning="not lost on the way to the receptacle"),
    Column("stages.status", "status", meaning="ok, or why the episode is not judged"),
    *(Column(f"stages.{k}", unit=unit, direction=better, meaning=what) for k, unit, better, what in MEASURES),
    *(Column(f"stages.{k}_s", unit="s", meaning=f"when the object was first {v}") for k, v in STAGES.items()),
    *(Column(f"stages.{k}_s", unit="s", meaning=f"when {v}") for k, v in MOMENTS.items()),
    *HAND_COLUMNS,
)  # fmt: skip

METRIC = Metric("stages", stages_metric.StageParams, needs, measure, COLUMNS, section="stages")


def stages_table(columns: dict[str, list[Any]]) -> str:
    """A row a group and speed: share of episodes that reached each stage, success, and the causes, as text."""
    c = columns
    stages = [name.removeprefix("stage.") for name in c if name.startswith("stage.")]
    wide = [max(11, len(s) + 2) for s in [*stages, "success"]]
    told_speeds = c.get("told_speed") or [None] * len(c["group"])
    at: dict[tuple[str, str, str], list[int]] = {}
    for k, (group, speed, told_speed) in enumerate(zip(c["group"], c["speed"], told_speeds, strict=True)):
        other = "" if told_speed in (None, speed) else f"{told_speed:g}"
        at.setdefault((group or "-", "-" if speed is None else f"{speed:g}", other or "-"), []).append(k)
    width = max(8, *(len(group) for group, _, _ in at)) + 1
    titles = "".join(f"{s:>{w}}" for s, w in zip([*stages, "success"], wide, strict=True))
    lines = [f"{'group':{width}}{'speed':>6}{'told':>6}{'n':>6}  {titles}"]
    for (group, speed, other), rows in at.items():
        cells = []
        for name, w in zip([*(f"stage.{s}" for s in stages), "success_at_end"], wide, strict=True):
            values = [c[name][k] for k in rows if c[name][k] is not None]
            cells.append(f"{np.mean(values):>{w}.1%}" if values else f"{'-':>{w}}")
        causes = Counter(cause for k in rows if (cause := c["cause"][k]) != stages_metric.Cause.SUCCESS.sentence)
        told_causes = "; ".join(f"{n} {cause}" for cause, n in causes.most_common())
        lines.append(f"{group:{width}}{speed:>6}{other:>6}{len(rows):>6}  {''.join(cells)}  {told_causes}")
    return "\n".join(lines)
