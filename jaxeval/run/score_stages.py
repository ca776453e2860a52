"""Scorer of MuJoCo tasks: stages, causes, motion in the hand, and force-closure margins of the contacts that were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.io.source import Source
from jaxeval.io.store import Store
from jaxeval.metrics import grasp as G
from jaxeval.metrics import hand_motion as H
from jaxeval.metrics import stages as S
from jaxeval.metrics.grasp_host import ExactMargin, cone_wrenches, exact_margin
from jaxeval.run.score_motion import SMALL_N, compiled
from jaxeval.run.scorer import Batch, Measured, known, told, where
from jaxeval.sim.embodiment import arm_velocity_limits, embodiment_with
from jaxeval.sim.mujoco_rollout import HAND
from jaxeval.sim.tasks.mujoco_tasks import load_mujoco_task, mujoco_task_names
from jaxeval.types import InputError

MOMENTS = ("acquired", "transfer", "insert")
"""When contact sets are taken: at the acquisition, at the end of the reorientation, and when the insertion begins."""
NO_MOMENT, NO_CONTACT = -1, -2
MARGIN_STATUS = G.STATUS_SENTENCES | {NO_MOMENT: "the episode did not come so far", NO_CONTACT: "no finger touched"}


@dataclass(frozen=True)
class GraspSetting:
    """How margins are measured: torques about the object's centre over ``torque_length_m``; None: task's friction.

    Batched (`grasp.grasp_margins`, float32), or ``exact``, one by one on the host (`grasp_host`): 80 ms against .7 for
    the 64 edges of 8 contacts. On 120 such grasps of the experts the two differ by 2e-6 of the margin at most.
    """

    edges_n: int = 8
    torque_length_m: float = 1.0
    friction: float | None = None
    exact: bool = False

    def check(self) -> GraspSetting:
        """Itself, or ValueError in one sentence."""
        for name, least in (("edges_n", 3), ("torque_length_m", 1e-9), ("friction", 0)):
            value = getattr(self, name)
            if name == "friction" and value is None:
                continue
            kind = int if name == "edges_n" else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not least <= value < np.inf:
                what = "a whole number" if name == "edges_n" else "a number"
                raise ValueError(f"grasp.{name} is {value!r}; expected {what} from {least:g} on")
        return self


class StageScorer:
    """Stages and cause of every episode, how it was held, and the force-closure margins at MOMENTS.

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
        if not source.joint_names:
            named = "; ".join(f"{p.path} ({', '.join(p.joint_names[:2]) or 'unnamed'}, ...)" for p in source.parts[:4])
            raise InputError(f"the joints differ: {named}; expected one embodiment; score its stores by themselves")
        limits = _limits(source)
        self.arm = np.array([source.joint_names.index(j) for j in limits or source.joint_names[:1]])
        self.limit = np.array([*limits.values()] or [np.inf])  # infinite: no utilisation, and its status says why

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
            valid=batch.valid(*self.bodies),
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
            margins = self._margins(batch, moments[moment])
            out |= {f"grasp.{name}.{moment}": values for name, values in margins.items()}
        for name, step in (*out.items(),):
            if name.startswith(("first.", "moment.")):
                out[f"{name}_s"] = np.where(step >= 0, data.time_s[np.arange(n), np.maximum(step, 0)], np.nan)
        return out

    def _margins(self, batch: Batch, steps: np.ndarray) -> Measured:
        """Of the contacts at one step of each episode, about the object's centre, axes as the world's."""
        n, rows, s = batch.n, np.arange(batch.n), batch.data.signals
        at = np.maximum(steps, 0)
        touching = (s["contact_finger"][rows, at] >= 0) & (steps >= 0)[:, None]
        point, normal = (s[f"contact_{what}"][rows, at].reshape(n, -1, 3) for what in ("point", "normal"))
        length = np.linalg.norm(normal, axis=2, keepdims=True)
        normal = np.where(touching[..., None], normal / np.where(length > 0, length, 1.0), 0.0)
        W = np.zeros((n, normal.shape[1] * self.grasp.edges_n, 6))
        counts = np.repeat(touching, self.grasp.edges_n, axis=1)
        for k in np.flatnonzero(touching.any(axis=1)):
            W[k, counts[k]] = cone_wrenches(
                point[k, touching[k]].astype(float),
                normal[k, touching[k]].astype(float),
                friction=self.task.friction if self.grasp.friction is None else self.grasp.friction,
                torque_length_m=self.grasp.torque_length_m,
                origin_m=batch.body(self.bodies[0])[k, at[k], 4:].astype(float),
                edges_n=self.grasp.edges_n,
            )
        found = _exact(W, counts) if self.grasp.exact else G.grasp_margins(jnp.asarray(W), jnp.asarray(counts))
        status = np.where(touching.any(axis=1), np.asarray(found.status), NO_CONTACT)
        return {
            "margin": np.where(status >= 0, np.asarray(found.margin), np.nan),
            "min_weight": np.where(status >= 0, np.asarray(found.min_weight), np.nan),
            "contacts": touching.sum(axis=1),
            "status": np.where(steps >= 0, status, NO_MOMENT),
        }

    def columns(self, measured: Measured, refused: Sequence[str | None]) -> dict[str, list[Any]]:
        """``stage.<name>`` and ``cause``, as records have them; ``stages.``, ``hand.`` and ``grasp.`` quantities."""
        m, phases = measured, self.task.schedule.names
        judged = [r is None and int(s) == S.STATUS_OK for r, s in zip(refused, m["status"], strict=True)]
        told_speed = [float(f"{speed:.6g}") for speed in m["told_speed"]]  # as it was given, before float32
        out: dict[str, list[Any]] = {"told_speed": known(np.array(told_speed), refused)}
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


def _limits(source: Source) -> dict[str, float]:
    """Velocity limits of the arm, by joint; {} where its description is not known here.

    A rollout with a description of the person's own says where that is: its limits are not those of an embodiment
    whose joints have the same names.
    """
    stores = [p for p in source.parts if isinstance(p, Store)]
    told = {str((p.meta["configuration"].get("rollout") or {}).get("embodiment")) for p in stores}
    own = next((name for name in told if name.endswith(".yaml")), None)
    if own is not None and (len(told) > 1 or not Path(own).is_file()):
        return {}
    name = own or embodiment_with(source.joint_names)
    limits = {} if name is None else arm_velocity_limits(name)
    return limits if set(limits) <= set(source.joint_names) else {}


def _exact(W: np.ndarray, counts: np.ndarray) -> ExactMargin:
    """`grasp_host.exact_margin` of many, as arrays."""
    margins = [exact_margin(w[c]) for w, c in zip(W, counts, strict=True)]
    return ExactMargin(*(np.array(x) for x in zip(*margins, strict=True)))  # type: ignore[arg-type]


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
