"""The MuJoCo backend of `sim.rollout`: episodes of a task at given speeds, with every signal that metrics read.

What is recorded is not judged while it runs: an episode's success is `metrics.stages.monitor` of its finished record.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from jaxeval.policies.policy import Policy, episode_key
from jaxeval.sim.mujoco.embodiment import Embodiment, load_embodiment
from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task
from jaxeval.sim.parts import Outcome, Parts
from jaxeval.sim.workers import begin_worker
from jaxeval.types import Episode, InputError

if TYPE_CHECKING:
    from jaxeval.sim.mujoco.environment import Environments, Signals

HAND = "tcp"
"""The body whose pose is the hand's."""
SIGNALS = (
    "fraction", "object_velocity", "fingertip_position", "fingertip_force", "receptacle_force", "joint_velocity",
    "contact_point", "contact_normal", "contact_force", "contact_finger",
)  # fmt: skip
"""Of `environment.Signals`, those that an Episode holds under ``signals``; it has others as poses, joints, times."""
MakePolicy = Callable[..., Policy]


@dataclass(frozen=True)
class Job:
    """One episode: its key's number, the physical speed, and the speed that the policy is told (None: that one)."""

    episode: int
    speed: float
    told_speed: float | None = None


@dataclass(frozen=True)
class Setting:
    """What all episodes of a rollout share. ``make_policy(task, embodiment)`` must be importable: processes call it.

    ``batch_n`` episodes of one speed run side by side in a process. With ``observations`` the vector that a learner
    sees is kept too.
    """

    task: str
    embodiment: str
    policy: str
    make_policy: MakePolicy
    seed: int = 0
    batch_n: int = 20
    observations: bool = False

    @property
    def compression(self) -> Compression:
        """25 times faster to write than the other, for a third more room."""
        return "lz4"

    def told(self) -> dict[str, Any]:
        """What an episode depends on besides its job."""
        maker = self.make_policy
        return {
            "task": self.task,
            "embodiment": self.embodiment,
            **_digest(self.embodiment),
            "policy": self.policy,
            "policy_options": dict(maker.keywords) if isinstance(maker, partial) else {},
            "seed": self.seed,
            "observations": self.observations,
        }

    def id_of(self, job: Job) -> str:
        """``parcel_stow/seed=0/episode=12/g1/expert/speed=2``."""
        told = "" if job.told_speed is None else f"/told={job.told_speed:g}"
        embodiment = self.embodiment if not self.embodiment.endswith(".yaml") else Path(self.embodiment).stem
        return f"{self._start(job)}/{embodiment}/{self.policy}/speed={job.speed:g}{told}"

    def part_of(self, job: Job) -> str:
        """``speed-2_0000012``."""
        told = "" if job.told_speed is None else f"_told-{job.told_speed:g}"
        return f"speed-{job.speed:g}{told}_{job.episode:07d}"

    def _start(self, job: Job) -> str:
        return f"{initial_condition_id(self.task, self.seed)}/episode={job.episode}"

    def batches(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Up to ``batch_n`` jobs of one speed, the slowest and so longest first."""
        order = dict.fromkeys((job.speed, job.told_speed) for job in sorted(jobs, key=lambda job: job.speed))
        alike = [[job for job in jobs if (job.speed, job.told_speed) == at] for at in order]
        return [group[i : i + self.batch_n] for group in alike for i in range(0, len(group), self.batch_n)]

    def require(self) -> None:
        """InputError where MuJoCo is not installed."""
        require_mujoco()

    def close(self) -> None:
        """Nothing is left open."""

    begin = staticmethod(begin_worker)

    def work(self, parts: Parts, batch: list[Job]) -> list[Outcome]:
        """Run a batch in this process; each of its episodes becomes a part, with its outcome."""
        began = time.perf_counter()
        episodes = run_batch(self, batch)
        seconds = round((time.perf_counter() - began) / len(batch), 4)
        outcomes = []
        for job, (episode, why) in zip(batch, episodes, strict=True):
            outcome = Outcome(
                episode.episode_id, bool(episode.success_at_end), episode.n_frames, seconds, why, episode.group
            )
            parts.keep(self.part_of(job), episode, outcome)
            outcomes.append(outcome)
        return outcomes


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
def _ready(task: str, embodiment: str, make_policy: MakePolicy) -> tuple[Environments, Policy]:
    """Of this process: planning a path once serves all of its batches."""
    from jaxeval.sim.mujoco.environment import Environments

    t, e = load_mujoco_task(task), load_embodiment(embodiment)
    return Environments(t, e), make_policy(t, e)


def run_batch(setting: Setting, batch: Sequence[Job]) -> list[tuple[Episode, str]]:
    """Episodes of a batch as recorded and judged, each with why it failed ("" for a success)."""
    from jaxeval.sim.mujoco.environment import run

    envs, policy = _ready(setting.task, setting.embodiment, setting.make_policy)
    keys = [episode_key(setting.seed, job.episode) for job in batch]
    speeds = np.array([job.speed for job in batch])
    told = np.array([job.speed if job.told_speed is None else job.told_speed for job in batch])
    signals, actions = run(envs, [policy] * len(batch), keys, speeds, told)
    return [
        judged(episode_of(envs.task, envs.embodiment, s, a, setting=setting, job=job))
        for s, a, job in zip(signals, actions, batch, strict=True)
    ]


def episode_of(
    task: Task,
    embodiment: Embodiment,
    signals: Signals,
    actions: Float[np.ndarray, "T A"],
    *,
    setting: Setting,
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
    told = job.speed if job.told_speed is None else job.told_speed
    kept = {name: np.asarray(getattr(signals, name), float) for name in SIGNALS}
    kept = {name: x.reshape(rows, -1) if x.ndim > 1 else x for name, x in kept.items()}
    kept |= {"phase": signals.phase.astype(float), "told_speed": np.full(rows, told)}
    if setting.observations:
        from jaxeval.sim.mujoco.environment import observed

        kept["observation"] = observed(task, embodiment, signals, np.nan_to_num(actions), told)
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
        episode_id=setting.id_of(job),
        initial_condition_id=f"{initial_condition_id(task.name, setting.seed)}/episode={job.episode}",
        initial_condition_hash=initial_condition_hash(
            signals.object_pose[:1], (thing,), joints=signals.joint_position[0]
        ),
        group=setting.policy,
        task=task.name,
        source=f"MuJoCo {task.name} {embodiment.name}",
        attributes={
            "policy": setting.policy,
            "embodiment": embodiment.name,
            "simulator": "mujoco",
            "told_speed": float(told),
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


def judged(episode: Episode) -> tuple[Episode, str]:
    """The episode with its success, and why it failed ("" for a success). It is judged as a store will hold it.

    ``success_at_end`` is the monitor's ``success``: what it asks of the end is asked of the last step.
    """
    task = load_mujoco_task(episode.task)
    stages = stages_of(episode.prepared(), task)
    success = bool(stages.success)
    why = "" if success else sentence(int(stages.cause), int(stages.drop_phase), phases=task.schedule.names)
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
