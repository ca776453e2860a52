"""Robots from their descriptions: those that come with the package, and any URDF or MJCF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from jaxeval.linalg import rotation_rows
from jaxeval.robots.model import Robot
from jaxeval.types import InputError


def robot_names() -> tuple[str, ...]:
    """Names of the robots that come with the package."""
    return tuple(sorted(p.stem for p in data_folder("robots").glob("*.json")))


@cache
def load_robot(name: str) -> Robot:
    """A robot that comes with the package, by name; InputError lists those there are.

    >>> load_robot("panda").joints_n, load_robot("panda").tip_link
    (7, 'panda_hand_tcp')
    """
    path = data_folder("robots") / f"{name}.json"
    if not path.is_file():
        raise InputError(
            f"robot '{name}': none of that name comes with the package; expected one of {', '.join(robot_names())}; "
            "or read a description with read_robot(PATH, base_link=..., tip_link=...)"
        )
    return robot_from_dict(json.loads(path.read_text("utf-8")), name)


def read_robot(path: str | Path, *, base_link: str, tip_link: str, gripper_joints: Sequence[str] = ()) -> Robot:
    """The chain from ``base_link`` to ``tip_link`` of a URDF (.urdf) or MJCF (.xml).

    MJCF needs mujoco: ``pip install 'jaxeval[robots]'``; its links are bodies or sites. Meshes are not read.

    Raises:
        InputError: no such file or link, not readable, or a joint that is not hinged or sliding.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; expected a .urdf or an MJCF .xml; check the path")
    steps = (_urdf if path.suffix.lower() == ".urdf" else _mjcf)(path, base_link, tip_link)
    return robot_from_dict(described(steps, base_link, tip_link, tuple(gripper_joints), source=path.name), path.stem)


@dataclass(frozen=True)
class Step:
    """One step down a chain: ``T_parent_child`` at zero, and the joint on the child's frame if it moves."""

    R: np.ndarray
    t: np.ndarray
    kind: str = "fixed"  # "fixed" | "revolute" | "continuous" | "prismatic"
    name: str = ""
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)
    lower: float = -np.inf
    upper: float = np.inf
    velocity: float | None = None


def described(
    steps: list[Step], base_link: str, tip_link: str, gripper_joints: tuple[str, ...], *, source: str
) -> dict[str, Any]:
    """The chain as the package's JSON holds it: joints with their origins, and what follows the last one."""
    R, t, joints = np.eye(3), np.zeros(3), []
    for step in steps:
        R, t = R @ step.R, t + R @ step.t
        if step.kind == "fixed":
            continue
        axis = np.asarray(step.axis, float)
        joints.append(
            {
                "name": step.name,
                "kind": step.kind,
                "R": _rounded(R),
                "t_m": _rounded(t),
                "axis": _rounded(axis / np.linalg.norm(axis)),
                "lower": None if step.kind == "continuous" else float(step.lower),
                "upper": None if step.kind == "continuous" else float(step.upper),
                "velocity": step.velocity,
            }
        )
        R, t = np.eye(3), np.zeros(3)
    if not joints:
        raise InputError(f"{source}: no moving joint between {base_link} and {tip_link}; expected an arm between them")
    return {
        "source": source,
        "base_link": base_link,
        "tip_link": tip_link,
        "gripper_joints": list(gripper_joints),
        "joints": joints,
        "tip": {"R": _rounded(R), "t_m": _rounded(t)},
    }


def robot_from_dict(description: dict[str, Any], name: str) -> Robot:
    """The robot of a dictionary as `described` makes it, every joint's frame turned so that its axis is z."""
    joints = description["joints"]
    turned = [_z_to(np.array(j["axis"], np.float64)) for j in joints]  # R_joint_turned
    before = [np.eye(3), *turned]
    tip_R, tip_t = np.array(description["tip"]["R"], np.float64), np.array(description["tip"]["t_m"], np.float64)

    def column(key: str, missing: float = np.nan) -> Any:
        return np.array([missing if j[key] is None else j[key] for j in joints], np.float64)

    def stacked(items: Any) -> Any:
        return np.stack(list(items))

    return Robot(
        R_parent_joint=stacked(b.T @ np.array(j["R"]) @ a for b, j, a in zip(before, joints, turned, strict=False)),
        t_parent_joint=stacked(b.T @ np.array(j["t_m"]) for b, j in zip(before, joints, strict=False)),
        R_last_tip=turned[-1].T @ tip_R,  # type: ignore[arg-type]
        t_last_tip=turned[-1].T @ tip_t,  # type: ignore[arg-type]
        lower=column("lower", -np.inf),
        upper=column("upper", np.inf),
        velocity_limit=column("velocity"),
        sliding=tuple(j["kind"] == "prismatic" for j in joints),
        joint_names=tuple(j["name"] for j in joints),
        gripper_joints=tuple(description["gripper_joints"]),
        name=name,
        base_link=description["base_link"],
        tip_link=description["tip_link"],
        source=description["source"],
    )


def _z_to(axis: np.ndarray) -> np.ndarray:
    """A rotation that takes z to a unit axis (the shortest; half a turn about x for -z)."""
    if axis[2] < -1 + 1e-9:
        return np.diag([1.0, -1.0, -1.0])
    v = np.array([-axis[1], axis[0], 0.0])  # z x axis
    K = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
    return np.eye(3) + K + K @ K / (1 + axis[2])


def _rounded(array: np.ndarray) -> list[Any]:
    """To 1e-12, which tidies up sines of half turns and changes no pose that matters."""
    return (np.round(np.asarray(array, float), 12) + 0.0).tolist()


def data_folder(kind: str) -> Path:
    """Where the package keeps its robots or pools."""
    return Path(str(resources.files("jaxeval.robots"))).parent / "data" / kind


# ------------------------------------------------------------------------------------------------------ descriptions


def _urdf(path: Path, base_link: str, tip_link: str) -> list[Step]:
    """Steps of a URDF. The format's kinematics are six attributes of a joint; readers of whole models bring meshes."""
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not whole XML ({error}); expected a URDF; copy it again") from error
    above = {_link(path, j, "child"): j for j in root.iter("joint") if j.find("child") is not None}
    links = {str(link.get("name")) for link in root.iter("link")}
    _expect(path, "link", base_link, links)
    link, steps = _expect(path, "link", tip_link, links), []
    while link != base_link:
        if link not in above or len(steps) > len(links):
            raise InputError(f"{path}: {tip_link} does not hang on {base_link} but on {link}; choose another base_link")
        joint = above[link]
        steps.append(_urdf_step(path, joint))
        link = _link(path, joint, "parent")
    return steps[::-1]


def _urdf_step(path: Path, joint: ElementTree.Element) -> Step:
    name, kind = str(joint.get("name")), str(joint.get("type"))
    if kind not in ("fixed", "revolute", "continuous", "prismatic") or joint.find("mimic") is not None:
        what = "mimics another" if joint.find("mimic") is not None else f"is {kind}"
        raise InputError(f"{path}: joint {name} {what}; expected hinges or slides; choose another tip")
    xyz, rpy = (_numbers(path, joint, "origin", key, (0.0, 0.0, 0.0)) for key in ("xyz", "rpy"))
    axis = _numbers(path, joint, "axis", "xyz", (1.0, 0.0, 0.0))
    if kind != "fixed" and not any(axis):
        raise InputError(f"{path}: joint {name} has a zero axis; expected a direction; correct its <axis>")
    lower, upper = -np.inf, np.inf
    if kind in ("revolute", "prismatic"):
        lower, upper = (_numbers(path, joint, "limit", key, (np.nan,))[0] for key in ("lower", "upper"))
        if not lower <= upper:
            found = f"limits {lower} to {upper}"
            raise InputError(f"{path}: joint {name} has {found}; expected lower and upper; correct its <limit>")
    velocity = _numbers(path, joint, "limit", "velocity", (0.0,))[0]
    return Step(_of_rpy(*rpy), np.array(xyz), kind, name, axis, lower, upper, velocity or None)  # type: ignore[arg-type]


def _link(path: Path, joint: ElementTree.Element, which: str) -> str:
    found = joint.find(which)
    if found is None or not found.get("link"):
        raise InputError(f"{path}: joint {joint.get('name')} has no {which} link; expected one; correct the URDF")
    return str(found.get("link"))


def _numbers(
    path: Path, joint: ElementTree.Element, tag: str, key: str, default: tuple[float, ...]
) -> tuple[float, ...]:
    """Numbers of an attribute of a joint's element, ``default`` where it has none."""
    element = joint.find(tag)
    text = None if element is None else element.get(key)
    if text is None:
        return default
    try:
        values = tuple(float(x) for x in text.split())
    except ValueError:
        values = ()
    if len(values) != len(default) or not np.isfinite(values).all():
        raise InputError(
            f"{path}: joint {joint.get('name')}: <{tag} {key}> is '{text}'; expected {len(default)} numbers; correct it"
        )
    return values


def _of_rpy(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Rotation of URDF's fixed-axis angles: about x, then y, then z of the parent."""
    (sr, sp, sy), (cr, cp, cy) = np.sin([roll, pitch, yaw]), np.cos([roll, pitch, yaw])
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def _mjcf(path: Path, base_link: str, tip_link: str) -> list[Step]:
    try:
        import mujoco
    except ImportError as error:
        raise InputError(f"{path}: reading MJCF needs mujoco; pip install 'jaxeval[robots]'") from error
    try:
        description = mujoco.MjSpec.from_file(str(path))  # pyright: ignore[reportAttributeAccessIssue]
        for item in [
            *description.geoms,
            *description.meshes,
            *description.materials,
            *description.textures,
            *description.excludes,
        ]:
            description.delete(item)  # kinematics need no shapes, whose files may not be there
        description.compiler.boundmass, description.compiler.boundinertia = 1e-3, 1e-6
        model = description.compile()
    except Exception as error:  # mujoco raises ValueError, RuntimeError and its own
        raise InputError(f"{path}: not readable as MJCF ({error}); expected a model; check it") from error
    bodies = {model.body(i).name: i for i in range(model.nbody)}
    sites = {model.site(i).name: i for i in range(model.nsite)}
    _expect(path, "body", base_link, set(bodies))
    steps: list[Step] = []
    if tip_link in bodies:
        body = bodies[tip_link]
    else:
        site = sites[_expect(path, "body or site", tip_link, set(sites) | set(bodies))]
        body = int(model.site_bodyid[site])
        steps.append(Step(_of_quaternion(model.site_quat[site]), np.array(model.site_pos[site])))
    while body != bodies[base_link]:
        if body == 0:
            raise InputError(f"{path}: {tip_link} does not hang on {base_link}; choose another base_link")
        here: list[Step] = []
        for j in range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body]):
            kind = {2: "prismatic", 3: "revolute"}.get(int(model.jnt_type[j]))
            if kind is None:
                name = model.joint(j).name
                raise InputError(f"{path}: joint {name} is a ball or free joint; expected hinged or sliding ones")
            bounded = bool(model.jnt_limited[j])
            kind = "continuous" if kind == "revolute" and not bounded else kind
            at = np.array(model.jnt_pos[j])  # a hinge may stand off its body's origin
            low, high = (float(x) for x in model.jnt_range[j]) if bounded else (-np.inf, np.inf)
            axis = tuple(float(x) for x in model.jnt_axis[j])
            here += [
                Step(np.eye(3), at, kind, model.joint(j).name, axis, low, high),  # type: ignore[arg-type]
                Step(np.eye(3), -at),
            ]
        steps += [*here[::-1], Step(_of_quaternion(model.body_quat[body]), np.array(model.body_pos[body]))]
        body = int(model.body_parentid[body])
    return steps[::-1]


def _of_quaternion(wxyz: np.ndarray) -> np.ndarray:
    return np.array(rotation_rows(np.asarray(wxyz, float) / np.linalg.norm(wxyz)))


def _expect(path: Path, what: str, name: str, known: set[str]) -> str:
    if name not in known:
        raise InputError(f"{path}: no {what} '{name}'; it has {', '.join(sorted(known)[:40])}; choose among these")
    return name
