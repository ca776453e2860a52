"""How episodes run in ManiSkill: batches of jobs side by side, and the Episodes that they become."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from jaxeval.io.initial_condition import initial_condition_hash, initial_condition_id
from jaxeval.io.store import Compression
from jaxeval.policies.batch import Batch
from jaxeval.policies.policy import Observation, Policy, World, episode_key
from jaxeval.policies.registry import digest_of, make_policy
from jaxeval.sim.engine import Job, Setting
from jaxeval.sim.maniskill.environment import Environments, check_request, require_maniskill, scenery
from jaxeval.sim.maniskill.key_frames import KeyFrames
from jaxeval.sim.parts import Outcome
from jaxeval.sim.workers import begin_worker
from jaxeval.types import Episode

LONGEST_N = 2000
"""Control steps after which an episode is given up whose policy says itself when it is over."""


@dataclass(frozen=True)
class ManiSkill:
    """A rollout in ManiSkill: ``batch_n`` copies of the environment at once, one on the CPU."""

    setting: Setting
    SCRIPT: ClassVar[str] = "oracle"
    """The policy where none is named."""
    BATCH_N: ClassVar[int] = 1
    """Episodes side by side where no number is given."""
    SETTINGS: ClassVar[tuple[str, ...]] = (
        "tilt_deg", "fault", "embodiment", "robot", "backend", "batch_n", "steps_n", "frames", "env_id", "spec",
    )  # fmt: skip
    compression: ClassVar[Compression] = "zstd"
    """Small, since these stores travel."""

    @property
    def task(self) -> str:
        """The task's name."""
        return self.setting.task

    @property
    def robot(self) -> str:
        """The robot: the one set, or the environment's own; empty where only the environment knows."""
        return self.setting.embodiment or self._scenery().robot

    def check(self) -> ManiSkill:
        """Itself; InputError where there is no such environment, robot or copies."""
        s = self.setting
        check_request(s.task, s.embodiment, s.batch_n, s.backend, s.env_id)
        return self

    def identity(self) -> dict[str, Any]:
        """What an episode depends on besides its job."""
        s = self.setting
        return {
            "task": s.task,
            "simulator": "maniskill",
            **({"env_id": s.env_id} if s.env_id else {}),
            "robot": self.robot,
            "policy": s.policy,
            **digest_of(s.policy, "maniskill"),
            "policy_options": s.options,
            "seed": s.seed,
            "steps_n": s.steps_n,
            "backend": s.backend,
        }

    def id_of(self, job: Job) -> str:
        """``StackCube-v1/seed=12/tilt_deg=5``; robot and policy where they are not the environment's and the oracle."""
        own = scenery(self.task, None, self.setting.env_id).robot
        robot = "" if self.robot == own else f"/robot={self.robot}"
        policy = "" if self.setting.policy in ("oracle", "random") else f"/policy={self.setting.policy_label}"
        return f"{self._scenery().env_id}/seed={job.episode}{robot}{policy}{job.tag}"

    def batches(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Runs of up to ``batch_n`` jobs that can share a scene's copies."""
        alike = [[job for job in jobs if job.loose == loose] for loose in dict.fromkeys(job.loose for job in jobs)]
        n = self.setting.batch_n
        return [group[i : i + n] for group in alike for i in range(0, len(group), n)]

    def require(self) -> None:
        """InputError if ManiSkill cannot run here."""
        require_maniskill()

    def work(self, batch: Sequence[Job], out: Path) -> list[tuple[Episode, Outcome]]:
        """Run a batch in this process; pictures go to ``OUT.frames/``."""
        s = self.setting
        key = (s.task, s.embodiment, s.env_id, s.batch_n, s.backend, s.cameras)
        if key not in _open:
            self.close()
            options = {"cameras": s.cameras, "pictures": s.pictures, "env_id": s.env_id}
            _open[key] = Environments(s.task, robot=s.embodiment, n=s.batch_n, backend=s.backend, **options)
        envs = _open[key]
        pictures = any(job.pictures for job in batch)
        key_frames = KeyFrames(out.with_name(out.name + ".frames")) if pictures else None
        made = []
        for job, trace in zip(batch, run_batch(envs, batch, self, key_frames=key_frames), strict=True):
            episode = episode_of(trace, job, self)
            success, seconds = bool(episode.success_at_end), round(trace.seconds, 4)
            outcome = Outcome(episode.episode_id, success, episode.n_frames, seconds, trace.failed, job.group)
            made.append((episode, outcome))
        return made

    def close(self) -> None:
        """Close the environments of this process."""
        while _open:
            _open.popitem()[1].close()
        _policies.clear()

    @staticmethod
    def begin() -> None:
        """As `begin_worker`, with ManiSkill loaded and one thread of torch's."""
        begin_worker()

        import mani_skill.envs  # noqa: F401  # pyright: ignore[reportMissingImports]
        import torch  # pyright: ignore[reportMissingImports]

        gc.freeze()  # ManiSkill collects garbage at every reset: what was imported until here is none
        torch.set_num_threads(1)

    def _scenery(self) -> Any:
        return scenery(self.setting.task, self.setting.embodiment, self.setting.env_id)


_open: dict[tuple[Any, ...], Environments] = {}
"""The environments of this process: one set at a time."""
_policies: dict[Any, Policy] = {}
"""The policies of this process, by setting and variant: each is made once."""


def _policy(simulator: ManiSkill, job: Job, envs: Environments, seen: Observation) -> Policy:
    s = simulator.setting
    key = (s, job.variant)
    if key not in _policies:
        low, high = envs.action_bounds
        world = World(s.task, "maniskill", envs.robot, low, high, seen.of(0), envs.layout)
        options = s.options | dict(job.variant)
        _policies[key] = make_policy(s.policy, world, options)
    return _policies[key]


@dataclass
class Trace:
    """What happened so far in one copy of the environment."""

    seen: list[Observation]
    actions: list[np.ndarray] = field(default_factory=list)
    labels: list[str] = field(default_factory=lambda: ["start"])
    done: bool = False
    failed: str = ""
    seconds: float = 0.0
    held_n: int = 0
    """Control steps in a row at which the environment has said success."""

    def add(self, action: np.ndarray, label: str, seen: Observation) -> None:
        """One control step: the action and what was seen after it."""
        self.seen.append(seen)
        self.actions.append(action)
        self.labels.append(label)
        self.held_n = self.held_n + 1 if seen.success else 0


def run_batch(
    envs: Environments,
    jobs: Sequence[Job],
    simulator: ManiSkill,
    policies: Sequence[Policy] | None = None,
    key_frames: KeyFrames | None = None,
) -> list[Trace]:
    """Run one episode in every copy of the environment, each to its own end; ``key_frames`` draws each phase's last.

    ``policies``: one an episode, instead of the setting's. Copies whose episode is over repeat their last action until
    all are, unrecorded. Copies beyond the jobs do as the last job does.
    """
    began, n, s = time.perf_counter(), len(jobs), simulator.setting
    jobs_of_copies = [jobs[min(i, n - 1)] for i in range(envs.n)]
    seen = envs.reset([job.episode for job in jobs_of_copies], loose=jobs[0].loose)
    if policies is None:
        policies = [_policy(simulator, job, envs, seen) for job in jobs]
    batch = Batch(policies, n, width=envs.n)
    now = _without_pictures([seen.of(i) for i in range(n)])
    traces = [Trace([one]) for one in now]
    batch.init(_first(seen, n), [episode_key(s.seed, job.episode) for job in jobs])
    hold_n = round(envs.scenery.hold_s * seen.control_hz)
    limits = [s.steps_n or (LONGEST_N if p.ends else envs.scenery.steps_n) for p in policies]
    while True:
        action, info = batch.act(_first(seen, n), [not t.done for t in traces])
        labels = ["" if t.done else _label(batch, i, int(info.label[i])) for i, t in enumerate(traces)]
        acting = []
        for i, trace in enumerate(traces):
            if trace.done:
                continue
            failed = batch.why(i, int(info.failed[i]))
            if info.done[i] or failed or len(trace.actions) >= limits[i]:
                trace.done = True
                given_up = policies[i].ends and not info.done[i]
                trace.failed = failed or (f"not done after {limits[i]} steps" if given_up else "")
            elif not policies[i].ends and trace.held_n >= hold_n > 0:
                trace.done = True
            if key_frames is not None and jobs[i].pictures and (trace.done or labels[i] != trace.labels[-1]):
                key_frames.draw(envs, i, _file_name(jobs[i]), trace.labels)
            if not trace.done:
                acting.append(i)
        if not acting:
            break
        seen = envs.step(np.concatenate([action, np.repeat(action[-1:], envs.n - n, axis=0)]))
        for i, one in zip(acting, _without_pictures([seen.of(i) for i in acting]), strict=True):
            traces[i].add(np.array(action[i]), labels[i], one)
    for trace in traces:
        trace.seconds = (time.perf_counter() - began) / n
    return traces


def _label(batch: Batch, i: int, label: int) -> str:
    words = batch.labels(i)
    return words[label] if label < len(words) else batch.policies[i].name


def _first(seen: Observation, n: int) -> Observation:
    """The first ``n`` copies of a batch."""
    import jax

    return seen if len(seen.success) == n else jax.tree.map(lambda x: x[:n], seen)


def _without_pictures(seen: Sequence[Observation]) -> list[Observation]:
    """Without the images, which a store does not hold."""
    return [dataclasses.replace(one, images={}) if one.images else one for one in seen]


def _file_name(job: Job) -> str:
    """``0000012_tilt_deg-5``."""
    return f"{job.episode:07d}{job.tag.replace('/', '_').replace('=', '-')}"


def episode_of(trace: Trace, job: Job, simulator: ManiSkill) -> Episode:
    """The Episode that a finished trace is: frame t is what action t led to, so the first action is NaN.

    ``initial_condition_hash`` holds the first poses of every body that has a size but the table: what is moved, and
    what stands fixed beside it (bin, box, receptacle); neither the arm nor frames that are no bodies. It does not see
    the policy, so a clean and a perturbed run of one key agree. Two robots agree where the environment places its
    bodies before it draws the arm's joints, and differ where it does not (PlugCharger): then they are no pair.
    ``success_at_end`` is the environment's, and False where the policy gave up. Attributes are ``policy``,
    ``embodiment`` (the robot), ``simulator``, and what the job varies (``tilt_deg``, ``fault``).
    """
    seen, first, setting = trace.seen, trace.seen[0], simulator.setting
    env_id = scenery(setting.task, setting.embodiment, setting.env_id).env_id
    bodies = tuple(first.poses)
    movable = tuple(b for b in bodies if b in first.half_size_m and b != "table")
    labels = tuple(dict.fromkeys(trace.labels))
    success = np.array([s.success for s in seen])
    width = len(trace.actions[0]) if trace.actions else 0
    poses = np.stack([[s.poses[b] for b in bodies] for s in seen])
    start = poses[0, [bodies.index(b) for b in movable]]
    return Episode.of(
        poses=poses,
        time_s=np.array([s.time_s for s in seen]),
        gripper_width_m=np.array([s.gripper_width_m for s in seen]),
        sub_task=np.array([labels.index(x) for x in trace.labels], np.int32),
        joints=np.stack([s.joints for s in seen]),
        actions=np.vstack([np.full((1, width), np.nan), *trace.actions]) if width else None,
        half_size_m=np.stack([np.asarray(first.half_size_m.get(b, np.full(3, np.nan))) for b in bodies]),
        success_once=bool(success.any()),
        success_at_end=bool(success[-1]) and not trace.failed,
        seed=job.episode,
        speed=1.0,
        bodies=bodies,
        sub_task_names=labels,
        joint_names=first.joint_names,
        episode_id=simulator.id_of(job),
        initial_condition_id=initial_condition_id(env_id, job.episode),
        initial_condition_hash=initial_condition_hash(start, movable),
        group=job.group,
        task=setting.task,
        source=f"ManiSkill {env_id}",
        attributes={
            "policy": setting.policy_label,
            "embodiment": first.robot,
            "simulator": "maniskill",
            **dict(job.variant),
        },
    )
