"""`jaxeval rollout`: a policy in a simulator, a store of what it did, and how it went."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from jaxeval.io.errors import InputError
from jaxeval.io.store import Store
from jaxeval.policies.policy import Act, Observation, Policy, random_policy
from jaxeval.policies.scripted.deviations import fault as fault_of
from jaxeval.policies.scripted.make import make_oracle
from jaxeval.policies.scripted.oracle import arm_of
from jaxeval.sim.maniskill.environment import check_request
from jaxeval.sim.rollout import Job, Outcome, PoliciesOf, Setting
from jaxeval.sim.rollout import rollout as run_jobs

POLICIES = ("oracle", "random")
LARGEST_TILT_DEG = 180.0
LARGEST = 2**32 - 1
"""Beyond it a seed would repeat another's episodes."""


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


def make_random(task: str, *, steps_n: int) -> Policy:
    """Uniform joint targets within the arm's limits, whichever arm it is, and any opening of the gripper."""

    def init(seen: Observation, key: Array) -> tuple[Policy, Any]:
        lower, upper = arm_of(seen).chain().range()
        policy = random_policy(np.append(lower, 0.0), np.append(upper, 1.0), steps_n=steps_n)
        return policy, policy.init(seen, key)

    def act(state: tuple[Policy, Any], seen: Observation) -> Act:
        policy, inner = state
        made = policy.act(inner, seen)
        joints = dict(zip(seen.joint_names, seen.joints.tolist(), strict=True))
        action = arm_of(seen).action(made.action[:-1], float(made.action[-1]), joints)
        return made._replace(action=action, state=(policy, made.state))

    return Policy("random", init, act)


def jobs_of(
    task: str,
    *,
    episodes: int,
    first: int = 0,
    tilt_deg: Sequence[float] | None = None,
    fault: Sequence[str] | None = None,
    policy: str = "oracle",
    pictures_n: int = 0,
) -> list[Job]:
    """Keys ``first`` to ``first + episodes``, each once for every angle and every fault, or once as it is.

    Pictures are drawn of the first ``pictures_n``. InputError where a number, an angle or a fault makes no sense.
    """
    check_counts(episodes=(episodes, 1), first=(first, 0))
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
    if not variants:
        variants = [((), "demonstrations" if policy == "oracle" else policy, ())]
    return [
        Job(key, variant, group, loose, pictures=k * len(variants) + v < pictures_n)
        for v, (variant, group, loose) in enumerate(variants)
        for k, key in enumerate(range(first, first + episodes))
    ]


def rollout(
    task: str,
    out: str | Path,
    *,
    policy: str = "oracle",
    episodes: int = 1,
    first: int = 0,
    tilt_deg: Sequence[float] | None = None,
    fault: Sequence[str] | None = None,
    robot: str | None = None,
    seed: int = 0,
    processes: int | None = None,
    backend: str = "cpu",
    envs_n: int = 1,
    steps_n: int = 2000,
    frames: int = 0,
    configuration: dict[str, Any] | None = None,
    progress: bool = False,
) -> Rolled:
    """Roll a policy out and keep every episode, failed ones too; what ``out`` holds already is not run again.

    Raises:
        InputError: a setting makes no sense, ``out`` is another rollout's, or ManiSkill cannot run here.
    """
    if policy not in POLICIES:
        raise InputError(f"policy '{policy}': expected one of {', '.join(POLICIES)}; choose one of these")
    processes = processes if processes is not None else 1 if backend == "gpu" else cores_n()
    check_counts(seed=(seed, 0), processes=(processes, 1), envs_n=(envs_n, 1), steps_n=(steps_n, 1), frames=(frames, 0))
    check_request(task, robot, envs_n, backend)
    maker: PoliciesOf = make_oracle if policy == "oracle" else partial(make_random, steps_n=steps_n)
    jobs = jobs_of(
        task, episodes=episodes, first=first, tilt_deg=tilt_deg, fault=fault, policy=policy, pictures_n=frames
    )
    setting = Setting(
        task, maker, robot=robot, seed=seed, steps_n=steps_n, backend=backend, envs_n=envs_n, pictures=frames > 0
    )
    store, outcomes = run_jobs(
        setting, jobs, out, processes_n=processes, configuration=configuration, progress=progress
    )
    return Rolled(task, store, tuple(outcomes))


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
    """A row a group, and below it what went wrong where, as text."""
    groups = list(dict.fromkeys(o.group for o in rolled.outcomes))
    width = max(14, *map(len, groups)) + 2
    lines = [
        f"{'task':20}{'group':{width}}{'episodes':>9}{'kept':>7}  {'share kept':18}{'mean frames':>12}{'mean s':>9}",
    ]
    for group in groups:
        of = [o for o in rolled.outcomes if o.group == group]
        kept, n = sum(o.success for o in of), len(of)
        known = [o.seconds for o in of if np.isfinite(o.seconds)]
        seconds = f"{np.mean(known):.2f}" if known else "-"
        share = f"{kept / n:.1%} ({kept} of {n})"
        frames = np.mean([o.frames for o in of])
        lines.append(f"{rolled.task:20}{group:{width}}{n:9d}{kept:7d}  {share:18}{frames:12.1f}{seconds:>9}")
    for o in rolled.outcomes:
        if not o.success:
            lines.append(f"  {o.episode_id}: {o.failed or 'it ended without success'}")
    return "\n".join(lines)
