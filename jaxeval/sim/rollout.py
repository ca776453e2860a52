"""The rollout verb's work: environments + a policy + episode keys -> Episodes in a store, resumable at any moment.

Every finished episode is a small store of its own beside the final one (``OUT.parts/``) until all are done; what is
killed loses the episodes under way and no others. Episode k is the same whatever the order, the batch or the process:
its scene is rebuilt and all its randomness comes from ``fold_in(seed, k)``.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.initial_condition import initial_condition_hash, initial_condition_id
from jaxeval.io.store import Store, append_store, open_store, write_store
from jaxeval.policies.policy import Act, Observation, Policy, episode_key
from jaxeval.sim.maniskill import Environments, scenery
from jaxeval.types import Episode

PoliciesOf = Callable[..., Policy]


@dataclass(frozen=True)
class Job:
    """One episode to run: its number (the environment's seed) and the variant of the policy that runs it."""

    episode: int
    variant: tuple[tuple[str, Any], ...] = ()
    group: str = "demonstrations"
    loose: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """Part of the episode's id that tells variants of one start apart."""
        return "".join(f"/{name}={value:g}" if isinstance(value, float) else f"/{name}={value}" for name, value in self.variant)


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


def run_batch(envs: Environments, jobs: Sequence[Job], setting: Setting, policies: Sequence[Policy]) -> list[Trace]:
    """Run one episode in every copy of the environment, each to its own end.

    Copies whose episode is over repeat their last action until all are, unrecorded.
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
                    trace.done, act_failed = True, act.failed
                    trace.failed = act_failed or ("" if act.done else f"not done after {setting.steps_n} steps")
                    trace.seconds = time.perf_counter() - began
                    act = None
            acts.append(act)
        if all(t.done for t in traces):
            break
        last[len(traces) :] = [last[len(traces) - 1]] * (envs.n - len(traces))
        seen = envs.step(np.stack(last))
        for trace, act, s in zip(traces, acts, seen, strict=False):
            if act is not None:
                trace.add(act, s)
    return traces


def episode_of(trace: Trace, job: Job, task: str, robot: str) -> Episode:
    """The Episode that a finished trace is; its last frame repeats none, its actions' first row is NaN."""
    seen, first = trace.seen, trace.seen[0]
    env = scenery(task)
    bodies = tuple(first.poses)
    movable = tuple(b for b in bodies if b in first.half_size_m and b != "table")
    labels = tuple(dict.fromkeys(trace.labels))
    success = np.array([s.success for s in seen])
    width = len(trace.actions[0]) if trace.actions else 0
    poses = np.stack([[s.poses[b] for b in bodies] for s in seen])
    start = poses[0, [bodies.index(b) for b in movable]]
    named = "" if robot == env.robot else f"/robot={robot}"
    return Episode(
        poses=poses,
        time_s=np.array([s.time_s for s in seen]),
        valid=np.ones(len(seen), bool),
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
        episode_id=f"{env.env_id}/seed={job.episode}{named}{job.tag}",
        initial_condition_id=initial_condition_id(env.env_id, job.episode),
        initial_condition_hash=initial_condition_hash(start, movable),
        group=job.group,
        task=task,
        source=f"ManiSkill {env.env_id}",
    )


# ------------------------------------------------------------------------------------------------- many, resumably


@dataclass(frozen=True)
class Outcome:
    """How one episode went: kept in ``OUT.log.jsonl``, a line each."""

    episode_id: str
    success: bool
    frames: int
    seconds: float
    failed: str


def rollout(
    setting: Setting,
    jobs: Sequence[Job],
    out: str | Path,
    *,
    processes_n: int = 2,
    configuration: dict[str, Any] | None = None,
    progress: bool = True,
) -> tuple[Store, list[Outcome]]:
    """Run the jobs that ``out`` does not hold yet and return its store and how the new episodes went.

    Raises:
        InputError: ``out`` is another task's store, or ManiSkill cannot run here.
    """
    out = Path(out)
    robot = setting.robot or scenery(setting.task).robot
    ids = {job: _id(setting, job, robot) for job in jobs}
    if len(set(ids.values())) != len(jobs):
        raise InputError(f"{out}: {len(jobs)} jobs name {len(set(ids.values()))} episodes; expected each once")
    have = _stored(out, setting.task)
    parts = out.with_name(out.name + ".parts")
    parts.mkdir(parents=True, exist_ok=True)
    todo = [job for job in jobs if ids[job] not in have]
    waiting = [job for job in todo if not (parts / _part(job) / "meta.json").is_file()]
    batches = [
        alike[i : i + setting.envs_n]
        for loose in dict.fromkeys(job.loose for job in waiting)
        for alike in [[job for job in waiting if job.loose == loose]]
        for i in range(0, len(alike), setting.envs_n)
    ]
    outcomes: list[Outcome] = []
    with (parts / "log.jsonl").open("a") as log:
        for outcome in _run(setting, batches, parts, processes_n, progress, len(waiting)):
            outcomes.append(outcome)
            log.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
            log.flush()
    if todo:
        finished: Iterator[Episode] = (open_store(parts / _part(job)).read()[0] for job in todo)
        if have:
            append_store(out, finished)
        else:
            write_store(out, finished, task=setting.task, configuration=configuration, compression="zstd")
    told = out / "rollout.jsonl"
    with told.open("a") as file:
        file.write((parts / "log.jsonl").read_text())
    shutil.rmtree(parts)
    return open_store(out), outcomes


def _id(setting: Setting, job: Job, robot: str) -> str:
    env = scenery(setting.task)
    return f"{env.env_id}/seed={job.episode}{'' if robot == env.robot else f'/robot={robot}'}{job.tag}"


def _part(job: Job) -> str:
    return f"{job.episode:07d}{job.tag.replace('/', '_').replace('=', '-')}"


def _stored(out: Path, task: str) -> set[str]:
    if not out.exists():
        return set()
    store = open_store(out)
    if store.task != task:
        raise InputError(f"{out}: it holds episodes of '{store.task}', not of '{task}'; choose another folder")
    return set(store.column("episode_id").tolist())


def _run(
    setting: Setting, batches: list[list[Job]], parts: Path, processes_n: int, progress: bool, total: int
) -> Iterator[Outcome]:
    from tqdm import tqdm

    bar = tqdm(total=total, desc=f"{setting.task}: episodes", disable=not progress or not total)
    kept = 0

    def told(outcomes: list[Outcome]) -> Iterator[Outcome]:
        nonlocal kept
        for outcome in outcomes:
            kept += outcome.success
            bar.update()
            bar.set_postfix_str(f"{kept} succeeded")
            yield outcome

    with bar:
        if processes_n <= 1 or len(batches) <= 1:
            for batch in batches:
                yield from told(_work(setting, batch, parts))
            return
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(min(processes_n, len(batches)), context, initializer=_quiet)
        try:
            queue = iter(batches)
            running: set[Future[list[Outcome]]] = set()
            while True:
                while len(running) < 2 * processes_n and (batch := next(queue, None)) is not None:
                    running.add(pool.submit(_work, setting, batch, parts))
                if not running:
                    break
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from told(future.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()


def _quiet() -> None:
    """One thread for each worker, and a compilation cache that all share."""
    import os

    import jax
    import torch

    torch.set_num_threads(1)
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        jax.config.update("jax_compilation_cache_dir", str(home / "jaxeval"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


_open: dict[tuple[Any, ...], Environments] = {}


def _work(setting: Setting, batch: list[Job], parts: Path) -> list[Outcome]:
    key = (setting.task, setting.robot, setting.envs_n, setting.backend, setting.cameras)
    if key not in _open:
        _open[key] = Environments(
            setting.task, robot=setting.robot, n=setting.envs_n, backend=setting.backend, cameras=setting.cameras
        )
    envs = _open[key]
    policies = [setting.make_policy(setting.task, **dict(job.variant)) for job in batch]
    outcomes = []
    for job, trace in zip(batch, run_batch(envs, batch, setting, policies), strict=True):
        episode = episode_of(trace, job, setting.task, envs.robot)
        write_store(parts / _part(job), [episode], task=setting.task, precision="float64", overwrite=True)
        outcomes.append(
            Outcome(episode.episode_id, bool(episode.success_at_end), episode.n_frames, round(trace.seconds, 2), trace.failed)
        )
    return outcomes
