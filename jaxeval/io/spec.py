"""Task specs: `conf/task/<name>.yaml` or any YAML of the same form, read into a TaskSpec.

Metres, radians and seconds, but for keys that end in ``_deg``. Keys (those marked * are needed):

``name`` *, ``instruction``: the task's name, as its episodes call it, and one sentence that tells somebody what to do.
``bodies`` *: a table, name -> ``shape`` {kind: box, half_size_m: [x, y, z]} | {kind: cylinder, radius_m, half_length_m}
    | {kind: sphere, radius_m} | {kind: mesh, vertices_m and faces, or file: FILE.npz}; ``symmetry`` {kind: none | spin
    | discrete | all, axis: [x, y, z], fold: n or copies_wxyz: [...]}; or ``frame_of``: a body declared before it, of
    which this is a named frame.
``support`` (table), ``gripper`` (tcp), ``manipulated``, ``reference``, ``frames``, ``ignored``: names of bodies, and
    what each is to the task.
``sub_tasks`` *: a list, in order: ``name`` *, ``means`` (one line for people) and ``until`` *, the predicates of
    `jaxeval.align.PREDICATES` that must all hold for the sub-task to end.
``simulators``: those that `jaxeval rollout` runs the task in (mujoco, mjx, maniskill), the default first.
``gate``: {use_success_flag: true, z_term: null}, what closes the gate of geometric quality.
``stages``: only of a grasp-and-insert task, see below. Without it the stages of the task are its sub-tasks.
``mujoco``: only of a task that runs on MuJoCo: scene and script, see `jaxeval.sim.mujoco.tasks.named`. Not read here.

``stages`` says where the stages of a grasp-and-insert task are, in the world's frame with z up. `jaxeval score
metrics=[stages]` finds them in any episodes that have these bodies and the signals ``phase`` (a number a frame, an
index into ``phases``), ``object_velocity`` (6: linear, then angular, in the world's frame), ``fingertip_force`` (one
number a fingertip, N, the thumb or opposing finger first) and ``receptacle_force`` (N)::

    stages:
      object: parcel                # * the body that is picked up and inserted; its symmetry is the body's
      hand: tcp                     # the body that is the hand; the gripper if left out
      phases: [REACH, LIFT, TRANSFER, INSERT, RELEASE]  # * in order; LIFT, TRANSFER, the insertion, RELEASE among them.
                                    # A table with the names as keys will do: MuJoCo tasks say there how long each takes
      insert_phase: INSERT          # the phase that is the insertion
      entrance:                     # * pose of the opening: its centre, the x axis into it, y and z across
        position_m: [0.49, 0.14, 0.93]
        turns_deg: [[z, 45]]        # turns about the body's own axes, one after the other; or wxyz: [1, 0, 0, 0]
      half_section_m: [0.08, 0.05]  # * half the opening's width along the entrance's y and z
      depth_m: 0.11                 # * of the receptacle behind the entrance
      goal: {turns_deg: [[z, 45], [y, -90]]}  # * orientation of the object when it is inserted; or wxyz: [...]
      pre_insert_m: [0.46, 0.11, 0.93]        # * position of the object before the insertion
      lift_z_m: 0.76                # * the object counts as lifted from this height on
      point_m: [0, 0, 0]            # the point of the object (in its own frame) whose depth counts
      friction: 0.5                 # coefficient between finger and object; only the metric `grasp` needs it
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.align import PREDICATES
from jaxeval.io.errors import InputError
from jaxeval.io.spec_stages import check_stages, stages_of
from jaxeval.types import SHAPES, SYMMETRIES, Body, Predicate, Shape, SubTask, Symmetry, TaskSpec


def conf_dir() -> Path:
    """Folder of the configuration: inside an installed package, or beside it in a clone."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "task").is_dir():
            return folder
    raise InputError(f"{package}: no conf/ folder beside or inside the package; reinstall jaxeval")


def task_names() -> list[str]:
    """Tasks that jaxeval knows."""
    return sorted(p.stem for p in (conf_dir() / "task").glob("*.yaml"))


def load_spec(task: str | Path) -> TaskSpec:
    """Spec of a known task by name, or of a YAML file by path. InputError says which key is wrong."""
    data, where = read_task(task)
    return spec_from_dict(data, where=where)


def known_spec(task: str) -> TaskSpec | None:
    """Spec of a task by name, None where it is none that jaxeval knows."""
    return load_spec(task) if task in task_names() else None


def read_task(task: str | Path) -> tuple[Any, str]:
    """(plain data, where it stands) of a known task by name, or of a YAML file by path."""
    import yaml

    path = Path(task)
    if path.suffix not in (".yaml", ".yml"):
        path = conf_dir() / "task" / f"{task}.yaml"
    if not path.is_file():
        raise InputError(f"{path}: no such task spec; known tasks are {', '.join(task_names())}, or give a YAML path")
    with path.open(encoding="utf-8-sig") as f:
        try:
            data = yaml.load(f, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError as error:
            raise InputError(f"{path}: not YAML ({str(error).splitlines()[0]}); fix the file") from error
    return data, str(path)


def spec_from_dict(data: Any, *, where: str = "task spec") -> TaskSpec:
    """TaskSpec from plain data, checked against the closed vocabulary. InputError names the key."""

    def fail(key: str, found: Any, expected: str) -> InputError:
        return InputError(f"{where}: {key} is {found!r}; expected {expected}; correct the task spec")

    def need(table: Any, key: str, path: str) -> Any:
        if not isinstance(table, Mapping) or key not in table:
            raise fail(f"{path}{key}", "missing", "a value")
        return table[key]

    raw_bodies = need(data, "bodies", "")
    if not isinstance(raw_bodies, Mapping) or not raw_bodies:
        raise fail("bodies", raw_bodies, "a table of bodies")
    shapes: dict[str, Shape] = {}
    bodies: list[Body] = []
    for name, raw in raw_bodies.items():
        path = f"bodies.{name}."
        raw = raw or {}
        owner = raw.get("frame_of")
        if owner is not None:
            if owner not in shapes:
                raise fail(f"{path}frame_of", owner, "a body declared before it")
            shape = shapes[owner]
        else:
            shape = _shape(need(raw, "shape", path), f"{path}shape.", fail)
        shapes[name] = shape
        bodies.append(Body(name, shape, _symmetry(raw.get("symmetry"), f"{path}symmetry", fail), owner))

    sub_tasks: list[SubTask] = []
    for i, raw in enumerate(need(data, "sub_tasks", "")):
        path = f"sub_tasks[{i}]."
        until = tuple(
            _predicate(u, f"{path}until[{n}].", set(shapes), fail) for n, u in enumerate(need(raw, "until", path))
        )
        if not until:
            raise fail(f"{path}until", "empty", "at least one predicate")
        sub_tasks.append(SubTask(str(need(raw, "name", path)), until, str(raw.get("means", ""))))
    if len({s.name for s in sub_tasks}) != len(sub_tasks) or not sub_tasks:
        raise fail("sub_tasks", [s.name for s in sub_tasks], "one or more sub-tasks with different names")

    gate = data.get("gate") or {}
    gripper, stages = str(data.get("gripper", "tcp")), data.get("stages")
    spec = TaskSpec(
        name=str(need(data, "name", "")),
        bodies=tuple(bodies),
        sub_tasks=tuple(sub_tasks),
        support=str(data.get("support", "table")),
        gripper=gripper,
        manipulated=tuple(data.get("manipulated") or ()),
        reference=str(data.get("reference") or ""),
        frames=tuple((str(k), str(v)) for k, v in (data.get("frames") or {}).items()),
        ignored=tuple(data.get("ignored") or ()),
        z_term=None if gate.get("z_term") is None else float(gate["z_term"]),
        use_success_flag=bool(gate.get("use_success_flag", True)),
        instruction=str(data.get("instruction", "")),
        simulators=tuple(data.get("simulators") or ()),
        stages=None if stages is None else stages_of(stages, gripper=gripper, fail=fail),
    )
    named = {
        "support": (spec.support,),
        "gripper": (spec.gripper,),
        "manipulated": spec.manipulated,
        "reference": (spec.reference,) if spec.reference else (),
        "frames": tuple(n for pair in spec.frames for n in pair),
        "ignored": spec.ignored,
    }
    for key, names in named.items():
        for name in names:
            if name not in shapes:
                raise fail(key, name, f"one of the bodies ({', '.join(shapes)})")
    check_stages(spec, fail)
    return spec


def _shape(raw: Any, path: str, fail: Any) -> Shape:
    kind = raw.get("kind") if isinstance(raw, Mapping) else raw
    if kind not in SHAPES:
        raise fail(f"{path}kind", kind, f"one of {', '.join(SHAPES)}")
    try:
        if kind == "box":
            x, y, z = (float(v) for v in raw["half_size_m"])
            size = (x, y, z)
        elif kind == "cylinder":
            size = (float(raw["radius_m"]), float(raw["radius_m"]), float(raw["half_length_m"]))
        elif kind == "sphere":
            radius = float(raw["radius_m"])
            size = (radius, radius, radius)
        else:
            vertices, faces = _mesh(raw)
            return Shape("mesh", (0.0, 0.0, 0.0), vertices, faces)
    except (KeyError, TypeError, ValueError) as error:
        wanted = {
            "box": "half_size_m with three lengths",
            "cylinder": "radius_m and half_length_m",
            "sphere": "radius_m",
            "mesh": "vertices_m and faces, or file naming an .npz that holds them",
        }[kind]
        raise fail(path.rstrip("."), dict(raw), wanted) from error
    if min(size) <= 0:
        raise fail(path.rstrip("."), size, "positive lengths")
    return Shape(kind, size)


def _mesh(raw: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    table: Any = np.load(raw["file"]) if "file" in raw else raw
    vertices, faces = np.asarray(table["vertices_m"], float), np.asarray(table["faces"], int)
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:
        raise ValueError("vertices_m must be [V, 3] and faces [F, 3]")
    return tuple(map(tuple, vertices.tolist())), tuple(map(tuple, faces.tolist()))


def _symmetry(raw: Any, path: str, fail: Any) -> Symmetry:
    if raw is None:
        return Symmetry()
    kind = raw.get("kind") if isinstance(raw, Mapping) else raw
    if kind not in SYMMETRIES:
        raise fail(path, raw, f"a kind among {', '.join(SYMMETRIES)}")
    raw = raw if isinstance(raw, Mapping) else {}
    axis = tuple(float(v) for v in raw.get("axis", (0.0, 0.0, 1.0)))
    if len(axis) != 3 or not np.linalg.norm(axis) > 0:
        raise fail(f"{path}.axis", axis, "three numbers, not all zero")
    if kind != "discrete":
        return Symmetry(kind, axis)
    if "fold" in raw:  # n equal turns about the axis
        n = int(raw["fold"])
        if n < 2:
            raise fail(f"{path}.fold", n, "two or more equal turns")
        unit = np.asarray(axis) / np.linalg.norm(axis)
        half = np.pi * np.arange(n) / n
        copies = np.column_stack([np.cos(half), np.sin(half)[:, None] * unit])
    else:
        copies = np.asarray(raw.get("copies_wxyz", ()), float)
        if copies.ndim != 2 or copies.shape[1] != 4 or not np.allclose(np.linalg.norm(copies, axis=1), 1, atol=1e-3):
            raise fail(f"{path}.copies_wxyz", raw.get("copies_wxyz"), "unit quaternions wxyz, or fold: n")
        if not (np.abs(copies[:, 0]) > 1 - 1e-6).any():
            copies = np.concatenate([[[1.0, 0, 0, 0]], copies])
    return Symmetry(kind, axis, tuple(map(tuple, copies.tolist())))


_NEEDS = {
    "gripper_closing": (),
    "gripper_closed": ("window_s",),
    "gripper_opening": (),
    "gripper_open": (),
    "lifted": ("body",),
    "near": ("body", "other"),
    "away": ("body", "other"),
    "held": ("body", "window_s"),
    "released": ("body", "window_s"),
    "moving": ("body",),
    "at_rest": ("body", "window_s"),
    "joint_past": ("body", "offset_m"),
}


def _predicate(raw: Any, path: str, bodies: set[str], fail: Any) -> Predicate:
    kind = raw.get("kind") if isinstance(raw, Mapping) else raw
    if kind not in PREDICATES:
        raise fail(f"{path}kind", kind, f"one of {', '.join(PREDICATES)}")
    keys = {"kind", "body", "other", "joint", "value_m", "fraction", "window_s", "axes", "offset_m", "range"}
    if unknown := set(raw) - keys:
        raise fail(f"{path}{sorted(unknown)[0]}", raw[sorted(unknown)[0]], f"only the keys {', '.join(sorted(keys))}")
    is_joint = kind == "joint_past"
    body = str(raw.get("joint" if is_joint else "body", ""))
    window = float(raw.get("window_s", 0.0))
    offset = tuple(float(v) for v in raw.get("offset_m", (0.0, 0.0, 0.0)))
    if is_joint:
        offset = (*(float(v) for v in raw.get("range", (0.0, 0.0))), 0.0)
    key = "fraction" if is_joint else "value_m"
    value = raw.get(key)
    if not isinstance(value, (int, float)) or not value > 0:
        raise fail(f"{path}{key}", value, "a positive number")
    for need in _NEEDS[kind]:
        if need == "window_s" and not window > 0:
            raise fail(f"{path}window_s", window, "a positive number of seconds")
        if need == "body" and not body:
            raise fail(f"{path}{'joint' if is_joint else 'body'}", body, "a name")
        if need == "offset_m" and offset[0] == offset[1]:
            raise fail(f"{path}range", raw.get("range"), "two different joint positions")
    other = str(raw.get("other", ""))
    if "other" in _NEEDS[kind] and not other:
        raise fail(f"{path}other", other, "the name of a body")
    for name in (other, "" if is_joint else body):
        if name and name not in bodies:
            raise fail(f"{path}body", name, f"one of the bodies ({', '.join(sorted(bodies))})")
    axes = str(raw.get("axes", "xyz"))
    if not axes or set(axes) - set("xyz"):
        raise fail(f"{path}axes", axes, "some of x, y, z")
    return Predicate(kind, body, other, float(value), window, axes, offset)  # type: ignore[arg-type]
