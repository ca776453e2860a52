"""The rollout engine: jobs -> Episodes in a store, resumable at any moment, whatever the simulator.

A simulator runs batches of jobs; a finished batch is one small store beside the final one (``OUT.parts/``) until all
are done, so that what is killed loses the batches under way and no others. Episode k is the same whatever the order,
the batch or the process: its scene is rebuilt and all its randomness comes from ``fold_in(seed, k)``. (On a GPU its
start is the same; contacts there are not reproducible to the last bit.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jaxeval.io.errors import InputError
from jaxeval.io.store import Compression, Store
from jaxeval.sim.parts import Outcome, Parts
from jaxeval.sim.workers import in_processes
from jaxeval.types import Episode


@dataclass(frozen=True)
class Job:
    """One episode to run: its number, from which its start and all its randomness come.

    ``speed``: the physical execution speed, times nominal; ``told_speed``: the one that the policy is told (None: that
    one). ``variant``: options of the policy that are this job's own. ``group``: what the episode is listed under.
    ``loose`` bodies are no longer fixed; with ``pictures`` its key frames are drawn.
    """

    episode: int
    speed: float = 1.0
    told_speed: float | None = None
    variant: tuple[tuple[str, Any], ...] = ()
    group: str = ""
    loose: tuple[str, ...] = ()
    pictures: bool = False

    @property
    def tag(self) -> str:
        """Part of an episode's id that tells variants of one start apart."""
        words = ((name, f"{value:g}" if isinstance(value, float) else value) for name, value in self.variant)
        return "".join(f"/{name}={value}" for name, value in words)


@dataclass(frozen=True)
class Setting:
    """What all episodes of a rollout share; each simulator reads what it has.

    ``task``: a task's name, or ``package.module:TASK`` of one's own. ``policy``: a name, or
    ``package.module:factory``; ``policy_options``, in JSON, go to its factory. ``embodiment``: the robot, None for the
    task's own. ``batch_n``: episodes side by side in a process. ``backend``: cpu or gpu. ``steps_n``: control steps
    after which an episode ends that has no end of its own, None for the task's. ``observations``: what a learner sees
    is kept. ``cameras``: policies see images. ``pictures``: key frames can be drawn. ``env_id``: the environment of a
    task that is not one of ours.
    """

    task: str
    policy: str
    policy_options: str = "{}"
    embodiment: str | None = None
    seed: int = 0
    batch_n: int = 20
    backend: str = "cpu"
    steps_n: int | None = None
    observations: bool = False
    cameras: bool = False
    pictures: bool = False
    env_id: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """What the policy's factory is given."""
        return json.loads(self.policy_options)

    @property
    def policy_label(self) -> str:
        """The policy as ids and attributes name it: ``my_module.make`` for ``my_module:make``."""
        return self.policy.replace(":", ".").rstrip("/").rsplit("/", 1)[-1]


class Simulator(Protocol):
    """How a simulator runs a batch of jobs of one setting. It is sent to processes."""

    @property
    def setting(self) -> Setting:
        """What all episodes share."""
        ...

    @property
    def task(self) -> str:
        """The task's name."""
        ...

    @property
    def compression(self) -> Compression:
        """Of the store: ``zstd`` for small ones that travel, ``lz4`` where writing must not take minutes."""
        ...

    def identity(self) -> dict[str, Any]:
        """What an episode depends on besides its job: a store holds it, and only episodes that agree in it."""
        ...

    def id_of(self, job: Job) -> str:
        """The episode's id."""
        ...

    def batches(self, jobs: Sequence[Job]) -> list[list[Job]]:
        """Jobs that run side by side."""
        ...

    def require(self) -> None:
        """InputError if the simulator cannot run here."""
        ...

    def work(self, batch: Sequence[Job], out: Path) -> list[tuple[Episode, Outcome]]:
        """Run a batch in this process; pictures go beside ``out``."""
        ...

    def close(self) -> None:
        """Let go of what `work` left open in this process."""
        ...

    @staticmethod
    def begin() -> None:
        """What a new process does first."""
        ...


def by_speed(jobs: Sequence[Job], batch_n: int) -> list[list[Job]]:
    """Batches of up to ``batch_n`` jobs, the slowest and so longest first: what runs side by side lasts as long."""
    order = sorted(jobs, key=lambda job: job.speed)
    return [order[i : i + batch_n] for i in range(0, len(order), batch_n)]


def rollout(
    simulator: Simulator,
    jobs: Sequence[Job],
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
        InputError: ``out`` is another rollout's store or being written, the simulator cannot run here, or a worker
            process ended; finished episodes are kept, and calling again goes on.
    """
    out = Path(out)
    ids = {job: simulator.id_of(job) for job in jobs}
    if len(set(ids.values())) != len(jobs):
        raise InputError(f"{out}: {len(jobs)} jobs name {len(set(ids.values()))} episodes; expected each once")
    with Parts.held(out, simulator.identity()) as parts:
        stored, finished = parts.stored(), parts.finished()
        todo = [job for job in jobs if ids[job] not in stored]
        waiting = [job for job in todo if ids[job] not in finished]
        if waiting:
            simulator.require()
        done = len(jobs) - len(waiting), parts.succeeded(ids.values()) if waiting else 0
        _run(simulator, simulator.batches(waiting), parts, processes_n, progress, done)
        store, outcomes = parts.collect([ids[job] for job in todo], configuration, simulator.compression)
    return store, [outcomes[ids[job]] for job in jobs]


@dataclass(frozen=True)
class _Work:
    """A batch run and kept, in whatever process."""

    simulator: Simulator
    parts: Parts

    def __call__(self, batch: list[Job]) -> list[Outcome]:
        made = self.simulator.work(batch, self.parts.out)
        self.parts.keep(made)
        return [outcome for _, outcome in made]


def _run(
    simulator: Simulator,
    batches: list[list[Job]],
    parts: Parts,
    processes_n: int,
    progress: bool,
    earlier: tuple[int, int],
) -> None:
    """Run all batches, in whatever order they end; ``earlier``: episodes done and succeeded before."""
    from tqdm import tqdm

    done, succeeded = earlier
    total = done + sum(map(len, batches))
    silent = not progress or not batches
    bar = tqdm(total=total, initial=done, desc=f"{simulator.task}: episodes", disable=silent)
    if done:
        bar.set_postfix_str(f"{succeeded} succeeded", refresh=False)
    work = _Work(simulator, parts)
    alone = processes_n <= 1 or len(batches) <= 1
    with bar:
        try:
            here = _here(simulator, work, batches)
            for outcome in here if alone else in_processes(work, batches, processes_n, begin=simulator.begin):
                succeeded += outcome.success
                bar.update()
                bar.set_postfix_str(f"{succeeded} succeeded")
        except BrokenProcessPool as error:
            raise InputError(
                f"{parts.out}: a worker process was killed, or memory ran out, after {bar.n} of {total} episodes; they "
                "are kept: run the same again, perhaps with fewer processes"
            ) from error


def _here(simulator: Simulator, work: _Work, batches: list[list[Job]]) -> Iterator[Outcome]:
    """As `in_processes`, in this one."""
    try:
        for batch in batches:
            yield from work(batch)
    finally:
        simulator.close()
