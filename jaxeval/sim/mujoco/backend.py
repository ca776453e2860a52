"""How episodes run on MuJoCo and MJX: batches of jobs at any speed, with every signal that metrics read.

What is recorded is not judged while it runs: an episode's success is `metrics.stages.monitor` of its finished record.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from jaxeval.io.initial_condition import initial_condition_hash, initial_condition_id
from jaxeval.io.store import Compression
from jaxeval.metrics.stages import (
    Cause,
    StageGeometry,
    StageParams,
    Stages,
    StageSignals,
    monitor,
    sentence,
    stack_signals,
)  # fmt: skip
from jaxeval.policies.policy import Policy, World, episode_key
from jaxeval.policies.registry import digest_of, make_policy
from jaxeval.sim.engine import Job, Setting, by_speed
from jaxeval.sim.mujoco.embodiment import Embodiment, embodiment_names, load_embodiment
from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task
from jaxeval.sim.parts import Outcome
from jaxeval.sim.workers import begin_worker
from jaxeval.types import Episode, InputError

if TYPE_CHECKING:
    from jaxeval.sim.mujoco.environment import Environments, Signals

DEFAULT_EMBODIMENT = "g1"
HAND = "tcp"
"""The body whose pose is the hand's."""
SIGNALS = (
    "fraction", "object_velocity", "fingertip_position", "fingertip_force", "receptacle_force", "joint_velocity",
    "contact_point", "contact_normal", "contact_force", "contact_finger",
)  # fmt: skip
"""Of `environment.Signals`, those that an Episode holds under ``signals``; it has others as poses, joints, times."""


@dataclass(frozen=True)
class MuJoCo:
    """A rollout on MuJoCo (C, on the CPU), or with ``name`` "mjx" on MJX: ``batch_n`` episodes side by side."""

    setting: Setting
    name: str = "mujoco"
    SCRIPT: ClassVar[str] = "expert"
    """The policy where none is named."""
    BATCH_N: ClassVar[int] = 20
    """Episodes side by side where no number is given."""
    SETTINGS: ClassVar[tuple[str, ...]] = (
        "embodiment", "speed", "told_speed", "speed_range", "observations", "batch_n", "spec",
    )  # fmt: skip
    compression: ClassVar[Compression] = "lz4"
    """25 times faster to write than the other, for a third more room."""

    @property
    def task(self) -> str:
        """The task's name."""
        return self.of.name

    @property
    def of(self) -> Task:
        """The task."""
        return load_mujoco_task(self.setting.task)

    @property
    def embodiment(self) -> Embodiment:
        """The robot."""
        return load_embodiment(self.setting.embodiment or DEFAULT_EMBODIMENT)

    def check(self) -> MuJoCo:
        """Itself; InputError where there is no such task or embodiment, or no grasp of it for the task."""
        self.require()
        thing = self.of.thing.name
        if self.embodiment.grasps.keys().isdisjoint({thing}):
            able = [n for n in embodiment_names() if thing in load_embodiment(n).grasps]
            raise InputError(
                f"embodiment '{self.embodiment.name}' has no grasp for {self.task}; expected one of {', '.join(able)}"
            )
        return self

    def identity(self) -> dict[str, Any]:
        """What an episode depends on besides its job."""
        s = self.setting
        return {
            "task": self.task,
            **_task_digest(s.task),
            "simulator": self.name,
            "embodiment": s.embodiment or DEFAULT_EMBODIMENT,
            **_digest(s.embodiment or DEFAULT_EMBODIMENT),
            "policy": s.policy,
            **digest_of(s.policy, self.name),
            "policy_options": s.options,
            "seed": s.seed,
            "observations": s.observations,
        }

    def id_of(self, job: Job) -> str:
        """``parcel_stow/seed=0/episode=12/g1/expert/speed=2``; the simulator too where it is not the task's first."""
        told_speed = "" if job.told_speed is None else f"/told={job.told_speed:g}"
        embodiment = self.setting.embodiment or DEFAULT_EMBODIMENT
        embodiment = embodiment if not embodiment.endswith(".yaml") else Path(embodiment).stem
        where = "" if self.name == "mujoco" else f"/{self.name}"
        policy = self.setting.policy_label
        return f"{self._start(job)}/{embodiment}{where}/{policy}/speed={job.speed:g}{told_speed}{job.tag}"

    def _start(self, job: Job) -> str:
        return f"{initial_condition_id(self.task, self.setting.seed)}/episode={job.episode}"

    def batches(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Up to ``batch_n`` jobs, sorted by speed."""
        return by_speed(jobs, self.setting.batch_n)

    def require(self) -> None:
        """InputError where MuJoCo is not installed."""
        require_mujoco()

    def close(self) -> None:
        """Nothing is left open."""

    begin = staticmethod(begin_worker)

    def work(self, batch: Sequence[Job], out: Path) -> list[tuple[Episode, Outcome]]:
        """Run a batch in this process."""
        began = time.perf_counter()
        episodes = run_batch(self, batch)
        seconds = round((time.perf_counter() - began) / len(batch), 4)
        return [
            (e, Outcome(e.episode_id, bool(e.success_at_end), e.n_frames, seconds, why, e.group)) for e, why in episodes
        ]


def _task_digest(task: str) -> dict[str, str]:
    """SHA-256 of a task's file of the person's own, which may change between rollouts; else nothing."""
    if not task.endswith((".yaml", ".yml")):
        return {}
    return {"task_sha256": hashlib.sha256(Path(task).read_bytes()).hexdigest()}


def _digest(embodiment: str) -> dict[str, str]:
    """SHA-256 of a description of the person's own and its MJCF, which may change between rollouts; else nothing."""
    if not embodiment.endswith(".yaml"):
        return {}
    files = Path(embodiment), load_embodiment(embodiment).mjcf
    return {"embodiment_sha256": hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()}


def require_mujoco() -> None:
    """InputError where MuJoCo is not installed."""
    try:
        import mujoco  # noqa: F401
    except ImportError as error:
        raise InputError("MuJoCo is not installed, expected it for this task; pip install 'jaxeval[mujoco]'") from error


@cache
def _environments(simulator: str, task: str, embodiment: str) -> Any:
    """Of this process."""
    module = importlib.import_module(f"jaxeval.sim.mujoco.{'environment' if simulator == 'mujoco' else simulator}")
    return module.Environments(load_mujoco_task(task), load_embodiment(embodiment))


@cache
def _policy(rollout: MuJoCo, variant: tuple[tuple[str, Any], ...]) -> Policy:
    """Of this process: planning a path once serves all of its batches."""
    s = rollout.setting
    options = s.options | dict(variant)
    envs = _environments("mujoco", s.task, s.embodiment or DEFAULT_EMBODIMENT)
    return make_policy(s.policy, world_of(envs, rollout.name), options)


def world_of(envs: Environments, simulator: str) -> World:
    """Where a policy acts; the observation is that of one start."""
    from jaxeval.sim.mujoco.environment import seen

    task, embodiment = envs.task, envs.embodiment
    first = seen(envs, envs.reset([episode_key(0, 0)], 1.0)).of(0)
    low, high = (embodiment.action(x) for x in embodiment.joint_range[embodiment.actuated].T)
    return World(task.name, simulator, embodiment.name, low, high, first, envs.layout, (task, embodiment))


def run_batch(rollout: MuJoCo, batch: Sequence[Job]) -> list[tuple[Episode, str]]:
    """Episodes of a batch as recorded and judged, each with why it failed ("" for a success)."""
    s = rollout.setting
    envs = _environments(rollout.name, s.task, s.embodiment or DEFAULT_EMBODIMENT)
    module = importlib.import_module(type(envs).__module__)
    policies = [_policy(rollout, job.variant) for job in batch]
    keys = [episode_key(s.seed, job.episode) for job in batch]
    speeds = np.array([job.speed for job in batch])
    told_speed = np.array([job.speed if job.told_speed is None else job.told_speed for job in batch])
    run = module.record(envs, policies, keys, speeds, told_speed, width=s.batch_n)
    episodes = [
        episode_of(envs.task, envs.embodiment, *rows, rollout=rollout, job=job)
        for *rows, job in zip(run.signals, run.actions, run.observations, batch, strict=True)
    ]
    return [judged(episode, envs.task, failed) for episode, failed in zip(episodes, run.failed, strict=True)]


def episode_of(
    task: Task,
    embodiment: Embodiment,
    signals: Signals,
    actions: Float[np.ndarray, "T A"],
    observation: Float[np.ndarray, "T O"],
    *,
    rollout: MuJoCo,
    job: Job,
) -> Episode:
    """The Episode that a recorded run is, not yet judged: frame t is what action t led to, so the first action is NaN.

    Bodies are the object, the hand (``tcp``), the ``receptacle`` (centre of its entrance, x into it) and the table;
    sub-tasks are the phases. ``initial_condition_hash`` is of the object's first pose and the first joints. ``signals``
    are SIGNALS, with ``phase``, ``told_speed`` and, if kept, ``observation``; where a fingertip or a contact has more
    than one number they lie one after the other.
    """
    thing, rows = task.thing.name, len(signals.phase)
    table = next(b for b in task.boxes if b.name == "table")
    standing = np.tile([np.asarray(task.geometry.T_world_entrance), [1.0, 0, 0, 0, *table.centre]], (rows, 1, 1))
    unknown = np.full(3, np.nan)
    told_speed = job.speed if job.told_speed is None else job.told_speed
    kept = {name: np.asarray(getattr(signals, name), float) for name in SIGNALS}
    kept = {name: x.reshape(rows, -1) if x.ndim > 1 else x for name, x in kept.items()}
    kept |= {"phase": signals.phase.astype(float), "told_speed": np.full(rows, told_speed)}
    if rollout.setting.observations:
        kept["observation"] = observation
    return Episode.of(
        poses=np.concatenate([np.stack([signals.object_pose, signals.hand_pose], axis=1), standing], axis=1),
        time_s=signals.time_s,
        sub_task=signals.phase.astype(np.int32),
        joints=signals.joint_position,
        actions=actions,
        half_size_m=np.stack([np.array(task.thing.size) / 2, unknown, unknown, np.array(table.size) / 2]),
        signals=kept,
        seed=job.episode,
        speed=job.speed,
        bodies=(thing, HAND, "receptacle", "table"),
        sub_task_names=task.schedule.names,
        joint_names=embodiment.joints,
        episode_id=rollout.id_of(job),
        initial_condition_id=rollout._start(job),
        initial_condition_hash=initial_condition_hash(
            signals.object_pose[:1], (thing,), joints=signals.joint_position[0]
        ),
        group=job.group or rollout.setting.policy_label,
        task=task.name,
        source=f"{'MuJoCo' if rollout.name == 'mujoco' else 'MJX'} {task.name} {embodiment.name}",
        attributes={
            "policy": rollout.setting.policy_label,
            "embodiment": embodiment.name,
            "simulator": rollout.name,
            "told_speed": float(told_speed),
            **dict(job.variant),
        },
    )


def stage_signals(episode: Episode, thing: str) -> StageSignals:
    """What `metrics.stages` reads, of an episode of a MuJoCo task whose object is ``thing``."""
    if episode.signals is None:
        raise InputError(f"{episode.episode_id}: no signals; expected those of a MuJoCo rollout")
    velocity = episode.signals["object_velocity"]
    return StageSignals(
        phase=episode.signals["phase"].astype(np.int32),
        T_world_object=episode.body(thing),
        linear_m_s=velocity[:, :3],
        angular_rad_s=velocity[:, 3:],
        T_world_hand=episode.body(HAND),
        finger_n=episode.signals["fingertip_force"],
        receptacle_n=episode.signals["receptacle_force"],
        valid=episode.valid_of(thing, HAND),
    )


def judged(episode: Episode, task: Task, failed: str = "") -> tuple[Episode, str]:
    """The episode with its success, and why it failed ("" for a success). It is judged as a store will hold it.

    ``failed``: why the policy gave up, which is no success whatever came of it.

    ``success_at_end`` is the monitor's ``success``: what it asks of the end is asked of the last step.
    """
    stages = stages_of(episode.prepared(), task)
    success = bool(stages.success) and not failed
    why = (
        failed if failed or success else sentence(int(stages.cause), int(stages.drop_phase), phases=task.schedule.names)
    )
    return (
        replace(
            episode,
            success_once=bool(stages.success_once) or success,
            success_at_end=None if int(stages.cause) == Cause.NOT_JUDGED else success,
        ),
        why,
    )


def stages_of(episode: Episode, task: Task, params: StageParams | None = None) -> Stages:
    """The monitor's findings of one episode, as NumPy scalars."""
    signals = jax.tree.map(lambda x: x[0], stack_signals([stage_signals(episode, task.thing.name)]))
    return jax.tree.map(np.asarray, _monitor(signals, task.geometry, params or StageParams()))


@jax.jit
def _monitor(signals: StageSignals, geometry: StageGeometry, params: StageParams) -> Stages:
    return monitor(signals, geometry=geometry, params=params)
