"""The tasks that run on MuJoCo and MJX: those whose ``conf/task/<name>.yaml`` has a part ``mujoco``, read from there.

The same file is the task's spec (`jaxeval.io.spec`), so that bodies, sizes, sub-tasks, stages and phases are said once.
From ``bodies`` the scene takes the size of the object (``stages.object``, a box) and of every fixed box that is a body
too; from ``stages`` it takes the phases, the friction, which is that of every contact, and the geometry of the monitor.
``stages.phases`` is a table here: of each phase ``seconds`` at nominal speed, and ``scaled``, whether an execution at
speed r takes ``seconds / r`` (false if left out). Keys of ``mujoco`` (those marked * are needed; metres)::

    mujoco:
      mass_kg: 0.12           # * of the object
      start: {position_m: [0.35, 0, 0.721], turns_deg: [[z, 45]]}  # * nominal pose of the object, as stages.entrance
      jitter_m: 0.01          # the object starts up to this far from there in x and y
      seen_within_m: 0.003    # how far off the expert sees where the object lies
      friction_stiffness: 10  # MuJoCo's impratio: what is held creeps less the stiffer friction is against normals
      boxes:                  # * fixed boxes; `table` must be among them, and names of the receptacle's begin with that
        table: {centre_m: [0.55, 0, 0.68]}                                             # its size is the body's
        receptacle_plate: {centre_m: [0.48, 0.13, 0.72], size_m: [0.1, 0.1, 0.04], yaw_deg: 45}  # full; about z
      path:                   # * the object's pose at the end of each phase in which it is carried, in order
        LIFT: {position_m: [0.35, 0, 0.841], turns_deg: [[z, 45]]}
      retreat_m: [-0.07, -0.07, 0]  # * how the hand moves away in RETREAT, in the world
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from scipy.spatial.transform import RigidTransform

from jaxeval.io.spec import read_task, spec_from_dict, task_names
from jaxeval.io.spec_stages import Fail, number, numbers, rotation_of, table
from jaxeval.metrics.stages import StageGeometry
from jaxeval.policies.registry import loaded
from jaxeval.sim.mujoco.schedule import Phase, Schedule
from jaxeval.sim.mujoco.task import Box, Task, Thing
from jaxeval.types import InputError, TaskSpec

NEEDED = ("mass_kg", "start", "boxes", "path", "retreat_m")
OPTIONAL = ("jitter_m", "seen_within_m", "friction_stiffness")


@cache
def mujoco_task_names() -> list[str]:
    """Names that ``load_mujoco_task`` takes."""
    return [name for name in task_names() if "mujoco" in read_task(name)[0]]


@cache
def load_mujoco_task(name: str) -> Task:
    """The task of that name, of a YAML file, or ``package.module:TASK``. InputError lists those there are."""
    module, colon, attribute = name.partition(":")
    if colon:
        task = loaded(module, attribute, f"task '{name}'")
        if not isinstance(task, Task):
            raise InputError(f"task '{name}': it is a {type(task).__name__}; expected a jaxeval.sim.mujoco.task.Task")
        return task
    if not name.endswith((".yaml", ".yml")) and name not in mujoco_task_names():
        raise InputError(
            f"task '{name}': there is none on MuJoCo; expected one of {', '.join(mujoco_task_names())}, "
            "or of your own a YAML file or package.module:TASK; choose one of these"
        )
    data, where = read_task(name)
    return task_from_dict(data, where=where)


def task_from_dict(data: Any, *, where: str = "task spec") -> Task:
    """The task that plain data describe. InputError names the wrong key, what was found and what was expected."""
    spec = spec_from_dict(data, where=where)

    def fail(key: str, found: Any, expected: str) -> InputError:
        return InputError(f"{where}: {key} is {found!r}; expected {expected}; correct the task spec")

    if spec.stages is None or spec.stages.friction is None:
        key = "stages" if spec.stages is None else "stages.friction"
        raise fail(key, "missing", "a value: the scene takes it from there")
    described = data.get("mujoco")
    table(described, "mujoco", NEEDED, OPTIONAL, fail)
    schedule = _schedule(data["stages"]["phases"], fail)
    path = _named(described["path"], "mujoco.path", fail)
    if strange := [name for name in path if name not in schedule.names]:
        raise fail("mujoco.path", strange[0], f"phases among {', '.join(schedule.names)}")
    boxes = tuple(_box(spec, name, raw, fail) for name, raw in _named(described["boxes"], "mujoco.boxes", fail).items())
    if "table" not in [box.name for box in boxes]:
        raise fail("mujoco.boxes.table", "missing", "a box")
    optional = {key: number(described[key], f"mujoco.{key}", fail, least=0.0) for key in OPTIONAL if key in described}
    jitter = {"jitter_m": optional.pop("jitter_m")} if "jitter_m" in optional else {}
    mass = number(described["mass_kg"], "mujoco.mass_kg", fail, least=1e-6)
    start = _pose(described["start"], "mujoco.start", fail)
    return Task(
        name=spec.name,
        schedule=schedule,
        boxes=boxes,
        thing=Thing(spec.stages.object, _size(spec, spec.stages.object, fail), mass, start, **jitter),
        friction=spec.stages.friction,
        path={name: _pose(raw, f"mujoco.path.{name}", fail) for name, raw in path.items()},
        retreat=np.array(numbers(described["retreat_m"], "mujoco.retreat_m", fail)),
        geometry=StageGeometry.of(spec),
        **optional,
    )


def _named(raw: Any, key: str, fail: Fail) -> Mapping[str, Any]:
    """A table that is not empty."""
    if not isinstance(raw, Mapping) or not raw:
        raise fail(key, raw, "a table, name -> values")
    return raw


def _schedule(raw: Any, fail: Fail) -> Schedule:
    phases: list[Phase] = []
    for name, described in _named(raw, "stages.phases", fail).items():
        key = f"stages.phases.{name}"
        table(described, key, ("seconds",), ("scaled",), fail)
        if not isinstance(scaled := described.get("scaled", False), bool):
            raise fail(f"{key}.scaled", scaled, "true or false")
        phases.append(Phase(name, number(described["seconds"], f"{key}.seconds", fail, least=1e-3), scaled))
    return Schedule(tuple(phases))


def _box(spec: TaskSpec, name: str, raw: Any, fail: Fail) -> Box:
    key = f"mujoco.boxes.{name}"
    table(raw, key, ("centre_m",), ("size_m", "yaw_deg"), fail)
    x, y, z = numbers(raw["centre_m"], f"{key}.centre_m", fail)
    a, b, c = numbers(raw["size_m"], f"{key}.size_m", fail) if "size_m" in raw else _size(spec, name, fail)
    return Box(name, (x, y, z), (a, b, c), float(np.deg2rad(number(raw.get("yaw_deg", 0.0), f"{key}.yaw_deg", fail))))


def _size(spec: TaskSpec, name: str, fail: Fail) -> tuple[float, float, float]:
    """Full size of a body that is a box."""
    found = [b.shape for b in spec.bodies if b.name == name]
    if not found or found[0].kind != "box":
        raise fail(f"bodies.{name}", found[0].kind if found else "missing", "a box, whose size the scene takes from it")
    x, y, z = found[0].size_m
    return 2 * x, 2 * y, 2 * z


def _pose(raw: Any, key: str, fail: Fail) -> RigidTransform:
    rotation = rotation_of(raw, key, fail, also=("position_m",))
    return RigidTransform.from_components(numbers(raw["position_m"], f"{key}.position_m", fail), rotation)


PARCEL_STOW, PEG_INSERTION, UPRIGHT_PLACEMENT = map(
    load_mujoco_task, ("parcel_stow", "peg_insertion", "upright_placement")
)
