"""The rollout verb's work: a backend's jobs -> Episodes in a store, resumable at any moment; and ManiSkill's backend.

Every finished episode is a small store of its own beside the final one (``OUT.parts/``) until all are done; what is
killed loses the episodes under way and no others. Episode k is the same whatever the order, the batch or the process:
its scene is rebuilt and all its randomness comes from ``fold_in(seed, k)``. (On a GPU its start is the same; contacts
there are not reproducible to the last bit.)
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.initial_condition import initial_condition_hash, initial_condition_id
from jaxeval.io.store import Compression, Store
from jaxeval.policies.policy import Act, Observation, Policy, episode_key
from jaxeval.sim.maniskill.environment import Environments, require_maniskill, scenery
from jaxeval.sim.maniskill.key_frames import KeyFrames
from jaxeval.sim.parts import Outcome, Parts
from jaxeval.sim.workers import begin_maniskill_worker, in_processes
from jaxeval.types import Episode

PoliciesOf = Callable[..., Policy]
J = TypeVar("J")


class Backend(Protocol[J]):
    """What all episodes of a rollout share, and how a simulator runs a batch of its jobs. It is sent to processes."""

    @property
    def task(self) -> str:
        """The task's name."""
        ...

    @property
    def compression(self) -> Compression:
        """Of the store: ``zstd`` for small ones that travel, ``lz4`` where writing must not take minutes."""
        ...

    def told(self) -> dict[str, Any]:
        """What an episode depends on besides its job: stores hold it, and only hold episodes that agree in it."""
        ...

    def id_of(self, job: J) -> str:
        """The episode's id."""
        ...

    def part_of(self, job: J) -> str:
        """Name of the folder that holds the episode until all are done."""
        ...

    def batches(self, jobs: Sequence[J]) -> list[list[J]]:
        """Jobs that run side by side."""
        ...

    def require(self) -> None:
        """InputError if the simulator cannot run here."""
        ...

    def work(self, parts: Parts, batch: list[J]) -> list[Outcome]:
        """Run a batch in this process; each of its episodes becomes a part, with its outcome."""
        ...

    def close(self) -> None:
        """Let go of what `work` left open in this process."""
        ...

    @staticmethod
    def begin() -> None:
        """What a new process does first."""
        ...


@dataclass(frozen=True)
class Job:
    """One episode to run: its number (the environment's seed) and the variant of the policy that runs it.

    ``loose`` bodies are no longer fixed; with ``pictures`` its key frames are drawn.
    """

    episode: int
    variant: tuple[tuple[str, Any], ...] = ()
    group: str = "demonstrations"
    loose: tuple[str, ...] = ()
    pictures: bool = False

    @property
    def tag(self) -> str:
        """Part of the episode's id that tells variants of one start apart."""
        told = ((name, f"{value:g}" if isinstance(value, float) else value) for name, value in self.variant)
        return "".join(f"/{name}={value}" for name, value in told)


@dataclass(frozen=True)
class Setting:
    """What all episodes of a rollout share. ``make_policy(task, **variant)`` must be importable: workers call it."""

    task: str
    make_policy: PoliciesOf
    robot: str | None = None
    seed: int = 0
    steps_n: int = 2000
    backend: str = "cpu"
    envs_n: int = 1
    cameras: bool = False
    pictures: bool = False

    @property
    def robot_name(self) -> str:
        """The robot: the one set, or the environment's own."""
        return self.robot or scenery(self.task).robot

    @property
    def policy_name(self) -> str:
        """The policy, by the name of the function that makes it."""
        maker = self.make_policy.func if isinstance(self.make_policy, partial) else self.make_policy
        return getattr(maker, "__name__", str(maker)).removeprefix("make_")

    def told(self) -> dict[str, Any]:
        """What an episode depends on besides its job: stores hold it, and only hold episodes that agree in it."""
        maker = self.make_policy
        options = dict(maker.keywords) if isinstance(maker, partial) else {}
        return {
            "task": self.task,
            "robot": self.robot_name,
            "policy": self.policy_name,
            "policy_options": options,
            "seed": self.seed,
            "steps_n": self.steps_n,
            "backend": self.backend,
        }

    @property
    def compression(self) -> Compression:
        """Small, since these stores travel."""
        return "zstd"

    def id_of(self, job: Job) -> str:
        """``StackCube-v1/seed=12/tilt_deg=5``."""
        return _id(self.task, job, self.robot_name)

    def part_of(self, job: Job) -> str:
        """``0000012_tilt_deg-5``."""
        return f"{job.episode:07d}{job.tag.replace('/', '_').replace('=', '-')}"

    def batches(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Runs of up to ``envs_n`` jobs that can share a scene's copies."""
        alike = [[job for job in jobs if job.loose == loose] for loose in dict.fromkeys(job.loose for job in jobs)]
        return [group[i : i + self.envs_n] for group in alike for i in range(0, len(group), self.envs_n)]

    def require(self) -> None:
        """InputError if ManiSkill cannot run here."""
        require_maniskill()

    def work(self, parts: Parts, batch: list[Job]) -> list[Outcome]:
        """Run a batch in this process; each of its episodes becomes a part, with its outcome."""
        return _work(self, parts, batch)

    def close(self) -> None:
        """Close the environments of this process."""
        _close()

    begin = staticmethod(begin_maniskill_worker)


@dataclass
class Trace:
    """What happened so far in one copy of the environment."""

    seen: list[Observation]
    actions: list[np.ndarray] = field(default_factory=list)
    labels: list[str] = field(default_factory=lambda: ["start"])
    done: bool = False
    failed: str = ""
    seconds: float = 0.0

    def add(self, act: Act, seen: Observation) -> None:
        """One control step: the action and what was seen after it."""
        self.seen.append(replaced_images(seen))
        self.actions.append(np.asarray(act.action, np.float64))
        self.labels.append(act.label)


def replaced_images(seen: Observation) -> Observation:
    """Without its pictures, which the store does not hold."""
    return dataclasses.replace(seen, images={}) if seen.images else seen


# ------------------------------------------------------------------------------------------------------ one batch


def run_batch(
    envs: Environments,
    jobs: Sequence[Job],
    setting: Setting,
    policies: Sequence[Policy],
    key_frames: KeyFrames | None = None,
) -> list[Trace]:
    """Run one episode in every copy of the environment, each to its own end; ``key_frames`` draws each phase's last.

    Copies whose episode is over repeat their last action until all are, unrecorded. Copies beyond the jobs do as the
    last job does.
    """
    began = time.perf_counter()
    jobs_of_copies = [jobs[min(i, len(jobs) - 1)] for i in range(envs.n)]
    seen = envs.reset([job.episode for job in jobs_of_copies], loose=jobs[0].loose)
    traces = [Trace([replaced_images(s)]) for s in seen[: len(jobs)]]
    states = [p.init(s, episode_key(setting.seed, j.episode)) for p, s, j in zip(policies, seen, jobs, strict=False)]
    last = [np.zeros(0)] * envs.n
    while not all(t.done for t in traces):
        acts: list[Act | None] = []
        for i, trace in enumerate(traces):
            act = None
            if not trace.done:
                act = policies[i].act(states[i], seen[i])
                states[i], last[i] = act.state, act.action
                if act.done or len(trace.actions) >= setting.steps_n:
                    trace.done = True
                    trace.failed = act.failed or ("" if act.done else f"not done after {setting.steps_n} steps")
                if key_frames is not None and jobs[i].pictures and (trace.done or act.label != trace.labels[-1]):
                    key_frames.draw(envs, i, setting.part_of(jobs[i]), trace.labels)
                if trace.done:
                    act = None
            acts.append(act)
        if all(t.done for t in traces):
            break
        last[len(traces) :] = [last[len(traces) - 1]] * (envs.n - len(traces))
        seen = envs.step(np.stack(last))
        for trace, act, s in zip(traces, acts, seen, strict=False):
            if act is not None:
                trace.add(act, s)
    for trace in traces:
        trace.seconds = (time.perf_counter() - began) / len(traces)
    return traces


def episode_of(trace: Trace, job: Job, task: str, robot: str, *, policy: str | None = None) -> Episode:
    """The Episode that a finished trace is: frame t is what action t led to, so the first action is NaN.

    ``initial_condition_hash`` holds the first poses of every body that has a size but the table: what is moved, and
    what stands fixed beside it (bin, box, receptacle); neither the arm nor frames that are no bodies. It does not see
    the policy, so a clean and a perturbed run of one key agree. Two robots agree where the environment places its
    bodies before it draws the arm's joints, and differ where it does not (PlugCharger): then they are no pair.
    ``success_at_end`` is the environment's, and False where the policy gave up. Attributes are ``policy``,
    ``embodiment`` (the robot), ``simulator``, and what the job varies (``tilt_deg``, ``fault``).
    """
    seen, first = trace.seen, trace.seen[0]
    env = scenery(task, robot)
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
        episode_id=_id(task, job, robot),
        initial_condition_id=initial_condition_id(env.env_id, job.episode),
        initial_condition_hash=initial_condition_hash(start, movable),
        group=job.group,
        task=task,
        source=f"ManiSkill {env.env_id}",
        attributes={
            **({} if policy is None else {"policy": policy}),
            "embodiment": robot,
            "simulator": "maniskill",
            **dict(job.variant),
        },
    )


# ------------------------------------------------------------------------------------------------- many, resumably


def rollout(
    setting: Backend[J],
    jobs: Sequence[J],
    out: str | Path,
    *,
    processes_n: int = 2,
    configuration: dict[str, Any] | None = None,
    progress: bool = True,
) -> tuple[Store, list[Outcome]]:
    """Run those jobs that ``out`` does not hold yet; its store, and how every job went, now or earlier.

    ``configuration`` is kept in the store's meta.json, beside what the episodes depend on (``rollout``). Pictures go
    to ``OUT.frames/``.

    Raises:
        InputError: ``out`` is another rollout's store or being written, ManiSkill cannot run here, or a worker process
            ended; finished episodes are kept, and calling again goes on.
    """
    out = Path(out)
    ids = {job: setting.id_of(job) for job in jobs}
    if len(set(ids.values())) != len(jobs):
        raise InputError(f"{out}: {len(jobs)} jobs name {len(set(ids.values()))} episodes; expected each once")
    with Parts.held(out, setting.told()) as parts:
        stored = parts.stored()
        todo = [job for job in jobs if ids[job] not in stored]
        waiting = [job for job in todo if not parts.finished(setting.part_of(job))]
        if waiting:
            setting.require()
        done = len(jobs) - len(waiting), parts.succeeded(ids.values()) if waiting else 0
        for _ in _run(setting, setting.batches(waiting), parts, processes_n, progress, done):
            pass
        store, outcomes = parts.collect([setting.part_of(job) for job in todo], configuration, setting.compression)
    return store, [outcomes[ids[job]] for job in jobs]


def _id(task: str, job: Job, robot: str) -> str:
    env = scenery(task, robot)
    return f"{env.env_id}/seed={job.episode}{'' if robot == env.robot else f'/robot={robot}'}{job.tag}"


# ------------------------------------------------------------------------------------------------------- processes


def _run(
    setting: Backend[J],
    batches: list[list[J]],
    parts: Parts,
    processes_n: int,
    progress: bool,
    earlier: tuple[int, int],
) -> Iterator[Outcome]:
    """Run all batches and say how their episodes went as they end, in whatever order; ``earlier``: done, succeeded."""
    from tqdm import tqdm

    done, kept = earlier
    total = done + sum(map(len, batches))
    silent = not progress or not batches
    bar = tqdm(total=total, initial=done, desc=f"{setting.task}: episodes", disable=silent)
    if done:
        bar.set_postfix_str(f"{kept} succeeded", refresh=False)
    work = partial(setting.work, parts)
    alone = processes_n <= 1 or len(batches) <= 1
    with bar:
        try:
            here = _here(setting, work, batches)
            for outcome in here if alone else in_processes(work, batches, processes_n, begin=setting.begin):
                kept += outcome.success
                bar.update()
                bar.set_postfix_str(f"{kept} succeeded")
                yield outcome
        except BrokenProcessPool as error:
            raise InputError(
                f"{parts.out}: a worker process was killed, or memory ran out, after {bar.n} of {total} episodes; they "
                "are kept: run the same again, perhaps with fewer processes"
            ) from error


def _here(setting: Backend[J], work: Callable[[list[J]], list[Outcome]], batches: list[list[J]]) -> Iterator[Outcome]:
    """In this process, which has environments of its own only as long."""
    try:
        for batch in batches:
            yield from work(batch)
    finally:
        setting.close()


_open: dict[tuple[Any, ...], Environments] = {}
"""The environments of this process: one set at a time."""


def _close() -> None:
    while _open:
        _open.popitem()[1].close()


def _work(setting: Setting, parts: Parts, batch: list[Job]) -> list[Outcome]:
    """Run a batch in this process; each of its episodes becomes a part, with its outcome."""
    pictures = any(job.pictures for job in batch)
    key = (setting.task, setting.robot, setting.envs_n, setting.backend, setting.cameras)
    if key not in _open:
        _close()
        _open[key] = Environments(
            setting.task,
            robot=setting.robot,
            n=setting.envs_n,
            backend=setting.backend,
            cameras=setting.cameras,
            pictures=setting.pictures,
        )
    envs = _open[key]
    policies = [setting.make_policy(setting.task, **dict(job.variant)) for job in batch]
    key_frames = KeyFrames(parts.out.with_name(parts.out.name + ".frames")) if pictures else None
    outcomes = []
    for job, trace in zip(batch, run_batch(envs, batch, setting, policies, key_frames), strict=True):
        episode = episode_of(trace, job, setting.task, envs.robot, policy=setting.policy_name)
        outcome = Outcome(
            episode.episode_id,
            bool(episode.success_at_end),
            episode.n_frames,
            round(trace.seconds, 4),
            trace.failed,
            job.group,
        )
        parts.keep(setting.part_of(job), episode, outcome)
        outcomes.append(outcome)
    return outcomes
