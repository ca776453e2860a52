"""`jaxeval rollout` of the tasks that run on MuJoCo: a policy at several execution speeds, and how each ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.policies.policy import Policy
from jaxeval.run.rollout import Rolled, check_counts, cores_n
from jaxeval.sim.mujoco.backend import Job, MakePolicy, Setting, require_mujoco
from jaxeval.sim.mujoco.embodiment import Embodiment, embodiment_names, load_embodiment, path_of
from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task
from jaxeval.sim.rollout import rollout as run_jobs
from jaxeval.types import InputError

SPEEDS = (0.05, 20.0)
"""Least and greatest speed that is run: at one an episode lasts minutes, at the other a phase one step."""


def make_expert(task: Task, embodiment: Embodiment) -> Policy:
    """The task's scripted expert."""
    return task.expert(embodiment)


def make_random(task: Task, embodiment: Embodiment) -> Policy:
    """Uniform targets within the joints' ranges."""
    return task.random(embodiment)


POLICIES: dict[str, MakePolicy] = {"expert": make_expert, "random": make_random}


def rollout_mujoco(
    task: str,
    out: str | Path,
    *,
    embodiment: str = "g1",
    policy: str = "expert",
    speed: Sequence[float] = (1.0,),
    told_speed: Sequence[float] | None = None,
    episodes: int = 1,
    first: int = 0,
    seed: int = 0,
    processes: int | None = None,
    batch_n: int = 20,
    observations: bool = False,
    configuration: dict[str, Any] | None = None,
    progress: bool = False,
) -> Rolled:
    """Roll a policy out at every speed from the same starts, and keep all episodes; what ``out`` has is not run again.

    With ``told_speed`` every speed is run once for each speed that the policy is told instead. Starts are keys
    ``first`` to ``first + episodes`` of ``seed``, the same at every speed and for every policy.

    Raises:
        InputError: a setting makes no sense, ``out`` is another rollout's, or MuJoCo is not installed.
    """
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InputError(f"policy '{policy}': expected one of {', '.join(POLICIES)} for this task; choose one of these")
    if not isinstance(observations, bool):
        raise InputError(f"observations is {observations!r}; expected true or false; correct the setting")
    processes = cores_n() if processes is None else processes
    check_counts(
        episodes=(episodes, 1), first=(first, 0), seed=(seed, 0), processes=(processes, 1), batch_n=(batch_n, 1)
    )
    check_counts(**{"first + episodes - 1": (first + episodes - 1, 0)})
    load_mujoco_task(task)
    require_mujoco()
    embodiment = str(embodiment)
    if load_embodiment(embodiment).grasps.keys().isdisjoint({load_mujoco_task(task).thing.name}):
        able = [n for n in embodiment_names() if load_mujoco_task(task).thing.name in load_embodiment(n).grasps]
        raise InputError(f"embodiment '{embodiment}' has no grasp for {task}; expected one of {', '.join(able)}")
    embodiment = str(path_of(embodiment).resolve()) if embodiment.endswith(".yaml") else embodiment
    speeds, told = _speeds("speed", speed), [None] if told_speed is None else _speeds("told_speed", told_speed)
    keys = range(first, first + episodes)
    jobs = [Job(k, float(r), None if t is None else float(t)) for r in speeds for t in told for k in keys]
    setting = Setting(task, embodiment, policy, POLICIES[policy], seed, batch_n, observations)
    if observations:  # what a training file needs to name the entries
        layout = load_mujoco_task(task).observed(load_embodiment(embodiment))
        configuration = (configuration or {}) | {
            "observation_layout": {k: [s.start, s.stop] for k, s in layout.items()}
        }
    store, outcomes = run_jobs(
        setting, jobs, out, processes_n=processes, configuration=configuration, progress=progress
    )
    return Rolled(task, store, tuple(outcomes))


def _speeds(name: str, given: Sequence[Any]) -> list[float]:
    low, high = SPEEDS
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise InputError(
                f"{name} holds {value!r}, expected numbers from {low:g} to {high:g}, 1 for nominal; correct the setting"
            )
        if float(f"{value:g}") != value:  # ids tell speeds so
            raise InputError(f"{name} holds {value!r}, expected at most six digits; round it to {value:g}")
    if not given or len(set(given)) != len(given):
        raise InputError(f"{name} is {list(given)}, expected at least one speed and each once; correct the setting")
    return [float(value) for value in given]


def table(rolled: Rolled) -> str:
    """A row a speed: episodes, successes with their 95 % Wilson interval, and the causes of the others."""
    from jaxeval.stats.proportions import wilson

    store = rolled.store
    speeds = dict(zip(store.column("episode_id").tolist(), store.column("speed").tolist(), strict=True))
    groups: dict[tuple[str, str], list[Any]] = {}
    for outcome in rolled.outcomes:
        _, _, told = outcome.episode_id.partition("/told=")
        groups.setdefault((f"{speeds[outcome.episode_id]:g}", told), []).append(outcome)
    lines = [
        f"{'speed':>6}{'told':>6}{'episodes':>10}{'succeeded':>11}  {'95 % interval':16}{'steps':>7}{'s':>7}  causes"
    ]
    for (r, told), outcomes in groups.items():
        k, n = sum(o.success for o in outcomes), len(outcomes)
        rate = wilson(k, n)
        causes = Counter(o.failed for o in outcomes if not o.success)
        causes = "; ".join(f"{count} {cause or 'not kept why'}" for cause, count in causes.most_common()) or "-"
        known = [o.seconds for o in outcomes if np.isfinite(o.seconds)]
        steps, seconds = np.mean([o.frames - 1 for o in outcomes]), f"{np.mean(known):.2f}" if known else "-"
        counts = f"{r:>6}{told or '-':>6}{n:>10}{k:>11}  [{rate.low:.3f}, {rate.high:.3f}]"
        lines.append(f"{counts}  {steps:>7.1f}{seconds:>7}  {causes}")
    return "\n".join(lines)
