"""The tasks that run on MuJoCo and MJX, by name."""

from __future__ import annotations

from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.parcel_stow import PARCEL_STOW
from jaxeval.sim.mujoco.tasks.peg_insertion import PEG_INSERTION
from jaxeval.sim.mujoco.tasks.upright_placement import UPRIGHT_PLACEMENT
from jaxeval.types import InputError

TASKS = {task.name: task for task in (PARCEL_STOW, PEG_INSERTION, UPRIGHT_PLACEMENT)}


def mujoco_task_names() -> list[str]:
    """Names that ``load_mujoco_task`` takes."""
    return sorted(TASKS)


def load_mujoco_task(name: str) -> Task:
    """The task of that name; InputError lists those there are."""
    if name not in TASKS:
        raise InputError(f"task '{name}': there is none on MuJoCo; expected one of {', '.join(mujoco_task_names())}")
    return TASKS[name]
