"""Policies by name, for commands and worker processes."""

from __future__ import annotations

import numpy as np

from jaxeval.policies.policy import Policy
from jaxeval.policies.scripted.deviations import fault as fault_of
from jaxeval.policies.scripted.deviations import tilt
from jaxeval.policies.scripted.oracle import oracle
from jaxeval.policies.scripted.tasks import TASKS
from jaxeval.types import InputError


def make_oracle(task: str, *, tilt_deg: float = 0.0, fault: str = "") -> Policy:
    """The oracle of a task: clean, tilting what it carries by ``tilt_deg``, or with a planted ``fault``."""
    if task not in TASKS:
        raise InputError(f"task '{task}': no oracle; expected one of {', '.join(TASKS)}; choose one of these")
    if tilt_deg and fault:
        raise InputError(f"tilt {tilt_deg:g} deg and fault '{fault}' together; expected one of them; run them apart")
    if fault:
        return oracle(TASKS[task], name=fault, change=fault_of(fault, task).change)
    return oracle(TASKS[task], change=tilt(task, float(np.radians(tilt_deg))) if tilt_deg else None)
