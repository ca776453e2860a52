"""`jaxeval rollout`: a policy in a simulator, a store of what it did, and how it went."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.spec import load_spec
from jaxeval.io.store import Store
from jaxeval.policies.policy import episode_key, numpy_generator
from jaxeval.policies.registry import check_options, policy_named
from jaxeval.policies.scripted.deviations import fault as fault_of
from jaxeval.sim.engine import Job, Setting, Simulator
from jaxeval.sim.engine import rollout as run_jobs
from jaxeval.sim.named import SIMULATORS, simulator_class
from jaxeval.sim.parts import Outcome

LARGEST_TILT_DEG = 180.0
LARGEST = 2**32 - 1
"""Beyond it a seed would repeat another's episodes."""
SPEEDS = (0.05, 20.0)
"""Least and greatest speed that is run: at one an episode lasts minutes, at the other a phase one step."""
LISTED_N = 10
"""Episodes without success that the table names."""
SPEED = 3
"""Stream of the episode's key that its drawn speed comes from; others place objects, plan scripts and act at random."""


@dataclass(frozen=True)
class Rolled:
    """The store that a rollout wrote, and how each of its episodes went."""

    task: str
    store: Store
    outcomes: tuple[Outcome, ...]

    @property
    def successes_n(self) -> int:
        """Episodes that succeeded at their end."""
        return sum(o.success for o in self.outcomes)


def rollout(
    task: str,
    out: str | Path,
    *,
    simulator: str | None = None,
    policy: str | None = None,
    policy_options: Mapping[str, Any] | None = None,
    embodiment: str | None = None,
    robot: str | None = None,
    env_id: str | None = None,
    spec: str | Path | None = None,
    episodes: int = 1,
    first: int = 0,
    seed: int = 0,
    speed: Sequence[float] | None = None,
    told_speed: Sequence[float] | None = None,
    speed_range: Sequence[float] | None = None,
    tilt_deg: Sequence[float] | None = None,
    fault: Sequence[str] | None = None,
    processes: int | None = None,
    backend: str | None = None,
    batch_n: int | None = None,
    steps_n: int | None = None,
    observations: bool | None = None,
    frames: int | None = None,
    configuration: dict[str, Any] | None = None,
    progress: bool = False,
) -> Rolled:
    """Roll a policy out and keep every episode, failed ones too; what ``out`` holds already is not run again.

    ``task`` is a task's name, or on MuJoCo a YAML file or ``package.module:TASK``; ``env_id`` an environment of
    ManiSkill's that is none of ours, whose task ``spec`` describes. ``simulator``: the task's first, if None.
    ``policy``: a name or ``package.module:factory``; ``policy_options`` go to its factory. Starts are keys ``first`` to
    ``first + episodes`` of ``seed``, the same for every policy, speed, tilt and fault. Every key is run at every
    ``speed`` (times nominal) or at one drawn uniformly from ``speed_range``, and once for each speed that the policy is
    told instead (``told_speed``).

    Raises:
        InputError: a setting makes no sense or is not the simulator's, ``out`` is another rollout's, or the simulator
            cannot run here.
    """
    options = dict(policy_options or {})
    given: dict[str, Any] = {
        "embodiment": embodiment, "robot": robot, "env_id": env_id, "spec": spec, "speed": speed,
        "told_speed": told_speed, "speed_range": speed_range, "tilt_deg": tilt_deg, "fault": fault,
        "backend": backend, "batch_n": batch_n, "steps_n": steps_n, "observations": observations, "frames": frames,
    }  # fmt: skip
    name = simulator_of(task, simulator, env_id, spec)
    kind, made_with = simulator_class(name)
    _check_settings(given, kind.SETTINGS, task, name)
    batch_n = int(kind.BATCH_N) if batch_n is None else batch_n
    processes = processes if processes is not None else 1 if backend == "gpu" else cores_n()
    check_counts(
        seed=(seed, 0), processes=(processes, 1), batch_n=(batch_n, 1),
        steps_n=(1 if steps_n is None else steps_n, 1), frames=(frames or 0, 0),
    )  # fmt: skip
    policy = str(policy or kind.SCRIPT)
    check_options(policy, policy_named(policy, name)[0], options)
    setting = Setting(
        task=_task_of(task, env_id, spec),
        policy=policy,
        policy_options=json.dumps(options),
        embodiment=_robot_of(embodiment or robot),
        seed=seed,
        batch_n=batch_n,
        backend=backend or "cpu",
        steps_n=steps_n,
        observations=bool(observations),
        pictures=bool(frames),
        env_id=env_id or "",
    )
    runs: Simulator = kind(setting, **made_with).check()
    jobs = jobs_of(
        task, policy=setting.policy_label, episodes=episodes, first=first, seed=seed, speed=speed,
        told_speed=told_speed, speed_range=speed_range, tilt_deg=tilt_deg, fault=fault, pictures_n=frames or 0,
    )  # fmt: skip
    configuration = dict(configuration or {}) | kept_beside(runs)
    store, outcomes = run_jobs(runs, jobs, out, processes_n=processes, configuration=configuration, progress=progress)
    return Rolled(runs.task, store, tuple(outcomes))


def _check_settings(given: Mapping[str, Any], known: Sequence[str], task: str, simulator: str) -> None:
    """InputError for a setting that the simulator does not have, or that is no truth where it must be one."""
    for key, value in given.items():
        if value is not None and key not in known:
            raise InputError(f"{key}={value}: {task} runs in {simulator}, which has no such setting; leave it out")
    if not isinstance(given["observations"], bool | None):
        raise InputError(f"observations is {given['observations']!r}; expected true or false; correct the setting")


def _robot_of(embodiment: str | None) -> str | None:
    """A description's file by its whole path, so that other processes find it; else the name as it is."""
    if embodiment is None:
        return None
    return str(Path(embodiment).resolve()) if str(embodiment).endswith(".yaml") else str(embodiment)


def simulator_of(task: str, simulator: str | None, env_id: str | None, spec: str | Path | None) -> str:
    """The simulator that a task runs in: the one asked for, or its first; InputError where it does not run there."""
    if env_id is not None:
        there: tuple[str, ...] = ("maniskill",)
    elif ":" in task:
        there = ("mujoco", "mjx")
    else:
        there = load_spec(task).simulators or (("mujoco", "mjx") if _is_file(task) else ())
    if simulator is None and there:
        return there[0]
    if not there:
        raise InputError(f"task '{task}': it runs in no simulator; expected a task that does, such as stack_cube")
    if simulator not in there or simulator not in SIMULATORS:
        raise InputError(f"simulator '{simulator}': {task} runs in {', '.join(there)}; choose one of these")
    return simulator


def _is_file(task: str) -> bool:
    return task.endswith((".yaml", ".yml"))


def _task_of(task: str, env_id: str | None, spec: str | Path | None) -> str:
    """What the simulator is asked for: a task's name, its file by its whole path, or the spec's of an environment."""
    if env_id is None:
        return str(Path(task).resolve()) if _is_file(task) else task
    return env_id.rpartition(":")[2] if spec is None else load_spec(spec).name


def kept_beside(simulator: Simulator) -> dict[str, Any]:
    """What a training file needs to name the entries of the observations that a store keeps."""
    if not simulator.setting.observations:
        return {}
    runs: Any = simulator
    layout = runs.of.observed(runs.embodiment)
    return {"observation_layout": {name: [part.start, part.stop] for name, part in layout.items()}}


def jobs_of(
    task: str,
    *,
    policy: str = "oracle",
    episodes: int,
    first: int = 0,
    seed: int = 0,
    speed: Sequence[float] | None = None,
    told_speed: Sequence[float] | None = None,
    speed_range: Sequence[float] | None = None,
    tilt_deg: Sequence[float] | None = None,
    fault: Sequence[str] | None = None,
    pictures_n: int = 0,
) -> list[Job]:
    """Keys ``first`` to ``first + episodes``, each once for every speed, told speed, angle and fault.

    Pictures are drawn of the first ``pictures_n``. InputError where a number, an angle or a fault makes no sense.
    """
    check_counts(episodes=(episodes, 1), first=(first, 0))
    check_counts(**{"first + episodes - 1": (first + episodes - 1, 0)})
    if policy != "oracle" and (tilt_deg or fault):
        raise InputError(f"policy '{policy}' has neither tilt_deg nor fault; expected policy=oracle with these")
    variants: list[tuple[tuple[tuple[str, Any], ...], str, tuple[str, ...]]] = []
    for angle in tilt_deg or ():
        if isinstance(angle, str) or not np.isfinite(angle) or abs(angle) > LARGEST_TILT_DEG:
            raise InputError(f"tilt_deg holds {angle}; expected up to {LARGEST_TILT_DEG:g} degrees either way")
        variants.append(((("tilt_deg", float(angle)),) if angle else (), f"tilt {angle:g} deg", ()))
    for name in fault or ():
        variants.append(((("fault", name),), f"fault {name}", fault_of(name, task).loose))
    if len({variant for variant, _, _ in variants}) != len(variants):
        raise InputError("tilt_deg or fault holds a value twice; expected each once; take one out")
    variants = variants or [((), "demonstrations" if policy == "oracle" else policy, ())]
    if speed is not None and speed_range is not None:
        raise InputError("speed and speed_range are both given; expected one of them; leave one out")
    keys = range(first, first + episodes)
    told_speeds: list[float | None] = [None] if told_speed is None else [*_speeds("told_speed", told_speed)]
    if speed_range is None:
        speeds = [1.0] if speed is None else _speeds("speed", speed)
        order = [(r, t, k) for r in speeds for t in told_speeds for k in keys]
    else:
        low, high = _range(speed_range)
        order = [(_drawn(seed, k, low, high), t, k) for t in told_speeds for k in keys]
    return [
        Job(key, r, t, variant, label, loose, pictures=n * len(variants) + v < pictures_n)
        for v, (variant, label, loose) in enumerate(variants)
        for n, (r, t, key) in enumerate(order)
    ]


def _drawn(seed: int, episode: int, low: float, high: float) -> float:
    """The speed of an episode, uniform in the range, to four digits as ids tell it; its key's alone."""
    return float(f"{numpy_generator(episode_key(seed, episode), SPEED).uniform(low, high):.4g}")


def _range(given: Sequence[Any]) -> tuple[float, float]:
    if len(given) != 2 or not given[0] < given[1]:
        raise InputError(f"speed_range is {list(given)}; expected two rising numbers, as [0.5, 1.5]; correct it")
    low, high = _speeds("speed_range", given)
    return low, high


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


def cores_n() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_counts(**counts: tuple[Any, int]) -> None:
    """InputError for a setting (value, least value) that is no whole number, below its least or beyond 2^32 - 1."""
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} is {value}; expected a whole number from {least} on; correct the setting")
        if value > LARGEST:
            raise InputError(f"{name} is {value}; expected at most {LARGEST}, as keys hold; correct the setting")


def table(rolled: Rolled) -> str:
    """A row a group, speed and told speed: successes with their 95 % Wilson interval, and the causes of the others."""
    from jaxeval.stats.proportions import wilson

    store = rolled.store
    speeds = dict(zip(store.column("episode_id").tolist(), store.column("speed").tolist(), strict=True))
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for o in rolled.outcomes:
        _, _, told_speed = o.episode_id.partition("/told=")
        groups.setdefault((o.group, f"{speeds[o.episode_id]:g}", told_speed), []).append(o)
    if len(groups) > 40:  # a speed drawn for each key: by group alone
        groups = {}
        for o in rolled.outcomes:
            groups.setdefault((o.group, "drawn", ""), []).append(o)
    width = max(8, *(len(group) for group, _, _ in groups)) + 1
    lines = [
        f"{rolled.task}",
        f"{'group':{width}}{'speed':>6}{'told':>6}{'episodes':>10}{'succeeded':>11}  {'95 % interval':16}"
        f"{'steps':>7}{'s':>7}  causes",
    ]
    for (group, r, told_speed), outcomes in groups.items():
        k, n = sum(o.success for o in outcomes), len(outcomes)
        rate = wilson(k, n)
        causes = Counter(o.failed or "it ended without success" for o in outcomes if not o.success)
        words = "; ".join(f"{count} {cause}" for cause, count in causes.most_common(3)) or "-"
        known = [o.seconds for o in outcomes if np.isfinite(o.seconds)]
        steps, seconds = np.mean([o.frames - 1 for o in outcomes]), f"{np.mean(known):.2f}" if known else "-"
        counts = f"{group:{width}}{r:>6}{told_speed or '-':>6}{n:>10}{k:>11}  [{rate.low:.3f}, {rate.high:.3f}]"
        lines.append(f"{counts}  {steps:>7.1f}{seconds:>7}  {words}")
    failed = [o for o in rolled.outcomes if not o.success]
    lines += [f"  {o.episode_id}: {o.failed or 'it ended without success'}" for o in failed[:LISTED_N]]
    if len(failed) > LISTED_N:
        lines.append(f"  and {len(failed) - LISTED_N} more episodes without success")
    return "\n".join(lines)
