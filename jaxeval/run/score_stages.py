"""Scorer of MuJoCo tasks: stages, causes, motion in the hand, and force-closure margins of the contacts that were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.io.source import Source
from jaxeval.metrics import grasp as G
from jaxeval.metrics import hand_motion as H
from jaxeval.metrics import stages as S
from jaxeval.metrics.grasp_host import cone_wrenches, exact_margin
from jaxeval.run.score_motion import SMALL_N, compiled
from jaxeval.run.scorer import Batch, Measured, known, told, where
from jaxeval.sim.embodiment import arm_velocity_limits
from jaxeval.sim.mujoco_rollout import HAND
from jaxeval.sim.tasks.mujoco_tasks import load_mujoco_task, mujoco_task_names
from jaxeval.types import InputError

MOMENTS = ("acquired", "transfer", "insert")
"""When contact sets are taken: at the acquisition, at the end of the reorientation, and when the insertion begins."""
NO_MOMENT, NO_CONTACT = -1, -2
MARGIN_STATUS = G.STATUS_SENTENCES | {NO_MOMENT: "the episode did not come so far", NO_CONTACT: "no finger touched"}


@dataclass(frozen=True)
class GraspSetting:
    """How margins are measured: torques about the object's centre over ``torque_length_m``; None: task's friction."""

    edges_n: int = 8
    torque_length_m: float = 1.0
    friction: float | None = None

    def check(self) -> GraspSetting:
        """Itself, or ValueError in one sentence."""
        if self.edges_n < 3 or self.torque_length_m <= 0 or (self.friction is not None and self.friction < 0):
            raise ValueError(f"grasp is {self}; expected three edges or more, a positive length, friction 0 or more")
        return self


class StageScorer:
    """Stages and cause of every episode, how it was held, and the margins at MOMENTS (exact, see grasp_host).

    ``success_at_end`` and ``success_once`` are judged again, by these thresholds.
    """

    name, joints = "stages", False
    signals = (
        "phase", "object_velocity", "fingertip_force", "receptacle_force", "joint_velocity", "told_speed",
        "contact_point", "contact_normal", "contact_finger",
    )  # fmt: skip

    def __init__(self, source: Source, params: S.StageParams, grasp: GraspSetting) -> None:
        if source.task not in mujoco_task_names():
            raise InputError(
                f"{source.parts[0].path}: stages are told of {', '.join(mujoco_task_names())}, found episodes of "
                f"{source.task}; leave `stages` out of metrics"
            )
        self.task, self.params, self.grasp = load_mujoco_task(source.task), params.check(), grasp.check()
        self.bodies = (self.task.thing.name, HAND)
        self.small = source.n_episodes <= SMALL_N
        limits = arm_velocity_limits(source.joint_names)
        if not limits:
            raise InputError(
                f"{source.parts[0].path}: no embodiment has its joints ({', '.join(source.joint_names) or 'unnamed'}); "
                "give stores of one embodiment at a time"
            )
        self.arm = np.array([source.joint_names.index(j) for j in limits])
        self.limit = np.array([*limits.values()])

    def measure(self, batch: Batch) -> Measured:
        """Leaves of Stages and HandMotion, the told speed, and the margins."""
        data, n = batch.data, batch.n
        velocity = data.signals["object_velocity"]
        signals = S.StageSignals(
            phase=data.signals["phase"].astype(np.int32),
            T_world_object=batch.body(self.bodies[0]),
            linear_m_s=velocity[..., :3],
            angular_rad_s=velocity[..., 3:],
            T_world_hand=batch.body(HAND),
            finger_n=data.signals["fingertip_force"],
            receptacle_n=data.signals["receptacle_force"],
            valid=data.valid,
        )
        arm = data.signals["joint_velocity"][..., self.arm]
        run = compiled(_stages_and_motion, self.small)
        found = run(signals, arm, data.time_s, self.limit, self.task.geometry, self.params)
        stages, motion, retained = jax.tree.map(lambda x: np.asarray(x)[:n], found)
        moments = {"acquired": stages.reached.acquired, **stages.moments._asdict()}
        out: Measured = {f"first.{k}": v for k, v in stages.reached._asdict().items()}
        out |= {f"moment.{k}": v for k, v in stages.moments._asdict().items()}
        out |= {k: v for k, v in stages._asdict().items() if k not in ("reached", "moments")}
        out |= {f"hand.{k}": v for k, v in motion._asdict().items()}
        out["retained"] = retained
        out["told_speed"] = data.signals["told_speed"][:n, 0]
        for moment in MOMENTS:
            found = [self._margin(batch, k, int(step)) for k, step in enumerate(moments[moment])]
            for name, values in zip(
                ("margin", "min_weight", "contacts", "status"), zip(*found, strict=True), strict=True
            ):
                out[f"grasp.{name}.{moment}"] = np.array(values)
        for name, step in (*out.items(),):
            if name.startswith(("first.", "moment.")):
                out[f"{name}_s"] = np.where(step >= 0, data.time_s[np.arange(n), np.maximum(step, 0)], np.nan)
        return out

    def _margin(self, batch: Batch, episode: int, step: int) -> tuple[float, float, int, int]:
        """Margin, min-weight, contacts, status of the contacts at one step, about the object's centre, world axes."""
        if step < 0:
            return np.nan, np.nan, 0, NO_MOMENT
        s = batch.data.signals
        here = s["contact_finger"][episode, step] >= 0
        if not here.any():
            return np.nan, np.nan, 0, NO_CONTACT
        normals = s["contact_normal"][episode, step].reshape(-1, 3)[here].astype(float)
        W = cone_wrenches(
            s["contact_point"][episode, step].reshape(-1, 3)[here].astype(float),
            normals / np.linalg.norm(normals, axis=1, keepdims=True),
            friction=self.task.friction if self.grasp.friction is None else self.grasp.friction,
            torque_length_m=self.grasp.torque_length_m,
            origin_m=batch.body(self.bodies[0])[episode, step, 4:].astype(float),
            edges_n=self.grasp.edges_n,
        )
        exact = exact_margin(W)
        return float(exact.margin), float(exact.min_weight), int(here.sum()), int(exact.status)

    def columns(self, measured: Measured, refused: Sequence[str | None]) -> dict[str, list[Any]]:
        """``stage.<name>`` and ``cause``, as records have them; ``stages.``, ``hand.`` and ``grasp.`` quantities."""
        m, phases = measured, self.task.schedule.names
        judged = [r is None and int(s) == S.STATUS_OK for r, s in zip(refused, m["status"], strict=True)]
        out: dict[str, list[Any]] = {"told_speed": known(m["told_speed"], refused)}
        out |= {f"stage.{k.removeprefix('first.')}": where(m[k] >= 0, judged) for k in m if k.startswith("first.") and
                not k.endswith("_s")}  # fmt: skip
        ends = zip(m["cause"].tolist(), m["drop_phase"].tolist(), strict=True)
        causes = [S.sentence(cause, phase, phases=phases) for cause, phase in ends]
        out["cause"] = [r or cause for r, cause in zip(refused, causes, strict=True)]
        out["success_once"] = where(m["success_once"] | m["success"], judged)
        out["success_at_end"] = where(m["success"], judged)
        out["stages.still_at_end"] = where(m["success_at_end"], judged)
        out["stages.retained"] = where(m["retained"], judged)
        out["stages.status"] = told(m["status"], S.STATUS_SENTENCES, refused)
        for key in ("depth_max_m", "depth_final_m", "angle_final_rad", "angle_before_insert_rad", "receptacle_peak_n"):
            out[f"stages.{key}"] = known(m[key], refused)
        for key in (k for k in m if k.endswith("_s") and k.startswith(("first.", "moment."))):
            out[f"stages.{key.split('.')[1]}"] = known(m[key], refused)
        for key in (k for k in m if k.startswith("hand.")):
            status = key.endswith("status")
            out[key] = told(m[key], H.STATUS_SENTENCES, refused) if status else known(m[key], refused)
        for key in (k for k in m if k.startswith("grasp.")):
            status = key.startswith("grasp.status")
            out[key] = told(m[key], MARGIN_STATUS, refused) if status else known(m[key], refused)
        return out


def _stages_and_motion(
    signals: S.StageSignals, arm: Any, time_s: Any, limit: Any, geometry: S.StageGeometry, params: S.StageParams
) -> tuple[S.Stages, H.HandMotion, Any]:
    def one(row: tuple[Any, Any, Any]) -> tuple[S.Stages, H.HandMotion, Any]:
        s, arm, time_s = row
        stages = S.monitor(s, geometry=geometry, params=params)
        motion = H.hand_motion(
            jnp.asarray(s.T_world_hand), jnp.asarray(s.T_world_object), arm, time_s, jnp.asarray(s.valid), limit,
            acquired=stages.reached.acquired, lift=stages.moments.lift, release=stages.moments.release,
        )  # fmt: skip
        return stages, motion, S.retained(stages)

    return jax.lax.map(one, (signals, arm, time_s))


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
