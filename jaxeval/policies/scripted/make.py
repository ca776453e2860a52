"""Factories of the scripted policies, as ``policies.registry`` finds them."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array

from jaxeval.policies.policy import Act, Observation, Policy, World, random_policy
from jaxeval.policies.scripted.arm import ARMS
from jaxeval.policies.scripted.deviations import fault as fault_of
from jaxeval.policies.scripted.deviations import tilt
from jaxeval.policies.scripted.oracle import arm_of, oracle
from jaxeval.policies.scripted.tasks import TASKS
from jaxeval.types import InputError


def make_expert(world: World) -> Policy:
    """The scripted expert of a task on MuJoCo."""
    task, embodiment = world.source
    return task.expert(embodiment)


def make_oracle(world: World, *, tilt_deg: float = 0.0, fault: str = "") -> Policy:
    """The oracle of a world's task: clean, tilting what it carries by ``tilt_deg``, or with a planted ``fault``."""
    return oracle_of(world.task, tilt_deg=tilt_deg, fault=fault)


def oracle_of(task: str, *, tilt_deg: float = 0.0, fault: str = "") -> Policy:
    """As `make_oracle`, of a task by its name."""
    if task not in TASKS:
        raise InputError(f"task '{task}': no oracle; expected one of {', '.join(TASKS)}; choose one of these")
    if tilt_deg and fault:
        raise InputError(f"tilt {tilt_deg:g} deg and fault '{fault}' together; expected one of them; run them apart")
    if fault:
        return oracle(TASKS[task], name=fault, change=fault_of(fault, task).change)
    return oracle(TASKS[task], change=tilt(task, float(np.radians(tilt_deg))) if tilt_deg else None)


def make_random(world: World) -> Policy:
    """Uniform joint targets within the arm's limits, whichever arm it is, and any opening of the gripper."""
    if world.simulator != "maniskill" or world.embodiment not in ARMS:
        return random_policy(world.low, world.high)

    def init(seen: Observation, key: Array) -> tuple[Policy, Any]:
        lower, upper = arm_of(seen).chain().range()
        policy = random_policy(np.append(lower, 0.0), np.append(upper, 1.0))
        return policy, policy.init(seen, key)

    def act(state: tuple[Policy, Any], seen: Observation) -> Act:
        policy, inner = state
        made = policy.act(inner, seen)
        joints = dict(zip(seen.joint_names, seen.joints.tolist(), strict=True))
        action = arm_of(seen).action(made.action[:-1], float(made.action[-1]), joints)
        return Act(action, (policy, made.state), made.info)

    return Policy("random", init, act, host=True, traceable=False, labels=lambda _: ("random",))
