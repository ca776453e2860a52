"""The tasks that run on MuJoCo and MJX, by name."""

from __future__ import annotations

from jaxeval.policies.registry import loaded
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
    """The task of that name, or of one's own: ``package.module:TASK``. InputError lists those there are."""
    module, colon, attribute = name.partition(":")
    if colon:
        task = loaded(module, attribute, f"task '{name}'")
        if not isinstance(task, Task):
            raise InputError(f"task '{name}': it is a {type(task).__name__}; expected a jaxeval.sim.mujoco.task.Task")
        return task
    if name not in TASKS:
        raise InputError(
            f"task '{name}': there is none on MuJoCo; expected one of {', '.join(mujoco_task_names())}, or "
            "package.module:TASK of your own; choose one of these"
        )
    return TASKS[name]
