"""What the features of a LeRobot data set mean, from their names in ``info.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxeval.io.findings import FileFindings

POSE = "observation.pose."
VALID = "observation.valid."
AXES = ("x", "y", "z", "qx", "qy", "qz", "qw")
"""Names of a pose's components, in the order in which `write_lerobot` writes them."""
WXYZ_XYZ = ("qw", "qx", "qy", "qz", "x", "y", "z")
TCP_LABELS = frozenset({"", "state", "tcp", "tcp_pose", "ee", "ee_pose", "eef", "eef_pose", "end_effector"})
"""Labels of a pose that is the end effector's; an empty one stands for the state's only pose."""

NAME_FINDINGS: dict[str, tuple[str, str]] = {
    "no_poses": ("warning", "no feature is a pose: joints alone are known, and forward kinematics can give the tcp"),
    "tcp_by_name": ("info", "the pose of the end effector, or the state's only one, is taken as tcp"),
    "pose_order_unknown": ("warning", "observation.pose.NAME without names x, y, z, qx, qy, qz, qw: left out"),
    "pose_repeated": ("warning", "two features give the pose of one body: the first is taken"),
    "joints_from_state": ("info", "observation.state is read as joints; its unit is not stated, radians are expected"),
    "joint_units_unknown": ("warning", "joints named *.pos may be degrees or shares of the range, not radians"),
    "state_not_read": ("info", "observation.state has no names, or other than joints': it is left out"),
}
"""Findings of `roles_of`."""


@dataclass(frozen=True)
class Roles:
    """Which feature plays which part; a pose is a feature and its columns in the order wxyz_xyz."""

    poses: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    joints: str | None = None
    joint_names: tuple[str, ...] = ()
    gripper_width: str | None = None
    action: str | None = None
    success: str | None = None
    valid: str | None = None
    timestamp: str | None = None
    body_valid: dict[str, str] = field(default_factory=dict)  # body -> feature, where each has its own

    @property
    def columns(self) -> list[str]:
        """Features that are read."""
        single = (self.joints, self.gripper_width, self.action, self.success, self.valid, self.timestamp)
        several = [*(f for f, _ in self.poses.values()), *self.body_valid.values()]
        return list(dict.fromkeys(several + [f for f in single if f is not None]))


def names_of(feature: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Names of a feature's entries, of a list, ``{"axes": [...]}`` or ``{"motors": [...]}``; None if there are none."""
    names = feature.get("names")
    if isinstance(names, Mapping):
        names = [n for values in names.values() if isinstance(values, list) for n in values]
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        return None
    shape = feature.get("shape")
    return tuple(names) if isinstance(shape, list | tuple) and list(shape) == [len(names)] else None


def pose_slots(names: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Label -> columns of qw, qx, qy, qz, x, y, z, for each prefix and suffix that has all seven once.

    >>> pose_slots(("x", "y", "z", "qx", "qy", "qz", "qw"))
    {'': (6, 3, 4, 5, 0, 1, 2)}
    >>> pose_slots(("cube_qw", "cube_qx", "cube_qy", "cube_qz", "cube_x", "cube_y", "cube_z", "gripper"))
    {'cube': (0, 1, 2, 3, 4, 5, 6)}
    """
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for i, name in enumerate(names):
        parts = re.fullmatch(r"(|.*[^A-Za-z0-9])(q[wxyz]|[xyz])(|[^A-Za-z0-9].*)", name)
        if parts is not None:
            found.setdefault((parts[1], parts[3]), {}).setdefault(parts[2], []).append(i)
    slots = {}
    for (before, after), at in found.items():
        if all(len(at.get(axis, [])) == 1 for axis in AXES):
            label = re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", before + after)
            slots[label] = tuple(at[axis][0] for axis in WXYZ_XYZ)
    return slots


def roles_of(features: Mapping[str, Mapping[str, Any]], findings: FileFindings) -> Roles:
    """The part that each feature plays; doubts become findings."""
    poses = _poses(features, findings)
    joints, joint_names = _joints(features, {feature for feature, _ in poses.values()}, findings)
    if not poses:
        found = f"features {', '.join(f for f in features if f.startswith('observation.')) or 'none observed'}"
        action = "record observation.pose.NAME with names x, y, z, qx, qy, qz, qw, or give robot= for the tcp"
        findings.add("no_poses", found, "a pose among them", action)

    def present(name: str) -> str | None:
        return name if name in features else None

    return Roles(
        poses,
        joints,
        joint_names,
        present("observation.gripper_width"),
        present("action"),
        present("next.success"),
        present("observation.valid"),
        present("timestamp"),
        {b: f"{VALID}{b}" for b in poses if f"{VALID}{b}" in features},
    )


def _poses(features: Mapping[str, Mapping[str, Any]], findings: FileFindings) -> dict[str, tuple[str, tuple[int, ...]]]:
    poses: dict[str, tuple[str, tuple[int, ...]]] = {}
    observed = [f for f in features if f.startswith("observation.")]
    for feature in sorted(observed, key=lambda f: not f.startswith(POSE)):  # declared poses first, in their order
        names = names_of(features[feature])
        slots = pose_slots(names) if names else {}
        if feature.startswith(POSE) and not slots:
            found = f"{feature} with names {features[feature].get('names')!r}"
            findings.add("pose_order_unknown", found, ", ".join(AXES), "name its entries in info.json", where=feature)
        for label, columns in slots.items():
            body = _body(feature, label)
            if body == "tcp" and feature != f"{POSE}tcp":
                findings.add("tcp_by_name", f"the pose {label!r} of {feature}", f"{POSE}tcp", "taken as the gripper's")
            if body in poses:
                found = f"{body} in {poses[body][0]} and {feature}"
                findings.add("pose_repeated", found, "one", f"{poses[body][0]} is taken", where=body)
            else:
                poses[body] = (feature, columns)
    return poses


def _body(feature: str, label: str) -> str:
    if feature.startswith(POSE):
        body = feature.removeprefix(POSE)
        return f"{body}_{label}" if label else body
    label = label or feature.removeprefix("observation.")
    return "tcp" if label.lower() in TCP_LABELS else label


def _joints(
    features: Mapping[str, Mapping[str, Any]], taken: set[str], findings: FileFindings
) -> tuple[str | None, tuple[str, ...]]:
    for feature in ("observation.joints", "observation.state"):
        if feature not in features or feature in taken:
            continue
        names = names_of(features[feature])
        if names is None or {"x", "y", "z"} <= set(names):
            found = f"{feature} with names {features[feature].get('names')!r}"
            findings.add("state_not_read", found, "joint names", "left out")
            continue
        if feature == "observation.state":
            findings.add("joints_from_state", f"{feature} with {', '.join(names)}", "observation.joints", "radians")
        if any(name.endswith(".pos") for name in names):
            found = f"joints {', '.join(names)}"
            findings.add("joint_units_unknown", found, "radians", "kept as recorded; do not use metrics of joints")
        return feature, names
    return None, ()
