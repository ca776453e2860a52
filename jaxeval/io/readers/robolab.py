"""RoboLab HDF5 files, ``run_K.hdf5`` with ``data/demo_N``, and the ``episode_results.jsonl`` of their output folder.

Certain, from RoboLab's documentation (docs/data.md, docs/frames.md): ``states/rigid_object/NAME/root_pose`` is
position then quaternion wxyz, relative to the environment's origin; ``ee_pose/position`` and ``ee_pose/orientation``
(wxyz) are in the robot's root frame, which ``robot_root_pose`` places, and a demonstration without that group has its
root at the origin; ``initial_state/cameras`` is xyzw and is not read; states and ``ee_pose`` are recorded after a step
and ``actions`` before it, so row t led to frame t; a line of the results names ``env_name``, ``run``, ``env_id``,
``success`` and ``dt``. Our reading: the step is ``dt`` of the results, else ``decimation * sim.dt`` of ``env_cfg.json``
beside the file; the end effector's link (``base_link``, a flange) stands for ``tcp``; files of Isaac Lab's own recorder
have the same states and are read without a ``tcp``. Finger joints have no names in the file, so the width is unknown.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.findings import FileFindings
from jaxeval.io.initial_condition import initial_condition_id, task_name
from jaxeval.io.poses import composed
from jaxeval.io.readers.hdf5 import HDF5_FINDINGS, Node, holds, opened, rate_hz, read_each
from jaxeval.io.readers.recordings import wxyz_xyz
from jaxeval.io.readers.robomimic import demos, has_scene_states
from jaxeval.io.readers.scene import start_hash
from jaxeval.types import Episode, Finding

RECORD = "record it with RoboLab's recorder, which writes states/rigid_object/NAME/root_pose"

ROBOLAB_FINDINGS: dict[str, tuple[str, str]] = {
    "no_tcp": ("warning", "no ee_pose: the gripper's pose is unknown and its pairs are left out"),
    "tcp_is_end_effector_link": ("info", "tcp is the link that ee_pose records, a flange and not the fingertips"),
    "tcp_frame_assumed": ("warning", "no robot_root_pose: ee_pose is taken as relative to the environment's origin"),
    "no_gripper": ("info", "finger joints have no names in the file: gripper width is unknown"),
    "no_results": ("warning", "no episode_results.jsonl: outcomes come from the file's own attributes"),
    "bad_results": ("warning", "lines of episode_results.jsonl are not JSON objects: they are passed over"),
    "success_disagrees": ("warning", "episode_results.jsonl and the file's attribute differ: success is unknown"),
    "success_unknown": ("warning", "no outcome for an episode: success unknown, which is not failure"),
    "quaternion_order": ("warning", "recorded with Isaac Lab 3 or later, which turned to xyzw: wxyz is a doubt"),
    **HDF5_FINDINGS,
}
"""Findings of `read_robolab`: code -> (severity, meaning)."""


def is_robolab(path: str | Path) -> bool:
    """Whether it is an HDF5 file with ``data/demo_N/states`` or ``ee_pose``; looks at names alone."""
    return holds(Path(path), has_scene_states)


def read_robolab(path: str | Path, *, control_freq_hz: float | None = None) -> tuple[list[Episode], list[Finding]]:
    """Episodes of one run in the order of their numbers, and findings. `control_freq_hz` overrides the recorded step.

    Raises:
        InputError: no such file, a Git-LFS pointer, not HDF5, no ``data/demo_0``, no step time, or no readable episode.
    """
    path = Path(path)
    findings = FileFindings(path, ROBOLAB_FINDINGS)
    with opened(path, findings, "a RoboLab .hdf5") as root:
        names = demos(root)
        if not names:
            found = ", ".join(root.names()[:5]) or "nothing"
            raise InputError(f"{path}: no group data/demo_0 but {found}; expected a RoboLab recording")
        about = _about(root, control_freq_hz, findings)
        return read_each(root, names, lambda demo: _episode(demo, about, findings), findings, RECORD), findings.found


# ------------------------------------------------------------------------------------------------- one episode


def _episode(demo: Node, about: _About, findings: FileFindings) -> Episode:
    number = int(demo.name.rsplit("_", 1)[1])
    objects = demo.group("states", "rigid_object")
    names = [] if objects is None else objects.names()
    if objects is None or not names:
        raise InputError(f"{demo.path}: {demo.name} has no 'states/rigid_object', so no poses of objects; {RECORD}")
    frames_n = len(objects.array(f"{names[0]}/root_pose", columns=7))
    poses = {n: wxyz_xyz(objects.array(f"{n}/root_pose", rows=frames_n, columns=7)) for n in names}
    movable = tuple(poses)
    tcp = _tcp(demo, frames_n, findings)
    if tcp is not None:
        poses["tcp"] = tcp
    joints = None
    if demo.has("states/articulation/robot/joint_position"):
        joints = demo.array("states/articulation/robot/joint_position", rows=frames_n)
    findings.add("no_gripper", "joint_position without names", "the finger joints", "gripper width is unknown")
    actions = demo.array("actions") if demo.has("actions") else None
    success = _success(demo, about.outcome.get(number), findings)
    seed = demo.attribute("seed")
    seed = seed if isinstance(seed, int) and not isinstance(seed, bool) else None
    return Episode.of(
        poses=np.stack(list(poses.values()), axis=1),
        time_s=np.arange(frames_n) * about.step_s,
        joints=joints if joints is not None and joints.ndim == 2 else None,
        actions=actions if actions is not None and actions.ndim == 2 and len(actions) == frames_n else None,
        success_once=True if success else None,
        success_at_end=success,
        seed=seed,
        bodies=tuple(poses),
        episode_id=f"{about.env_name}/{demo.path.stem}/{demo.name.removeprefix('data/')}",
        initial_condition_id=initial_condition_id(about.env_name, seed),
        initial_condition_hash=start_hash(poses, movable),
        group=about.group,
        task=task_name(about.env_name),
        source=f"{demo.path} ({about.env_name})",
    )


def _tcp(demo: Node, frames_n: int, findings: FileFindings) -> np.ndarray | None:
    """[T, 7] of the end effector's link relative to the environment's origin."""
    if demo.group("ee_pose") is None:
        findings.add("no_tcp", "no ee_pose", "the gripper's pose", "its pairs are left out")
        return None
    in_root = _pose_group(demo, "ee_pose", frames_n)
    findings.add("tcp_is_end_effector_link", "ee_pose", "a frame between the fingers", "the recorded link is taken")
    if demo.group("robot_root_pose") is not None:
        return composed(_pose_group(demo, "robot_root_pose", frames_n), in_root)
    findings.add("tcp_frame_assumed", "no robot_root_pose", "where the robot stands", "its root is at the origin")
    return in_root


def _pose_group(demo: Node, key: str, frames_n: int) -> np.ndarray:
    position = demo.array(f"{key}/position", rows=frames_n, columns=3)
    return np.concatenate([demo.array(f"{key}/orientation", rows=frames_n, columns=4), position], axis=1)


def _success(demo: Node, outcome: bool | None, findings: FileFindings) -> bool | None:
    recorded = demo.attribute("success")
    own = bool(recorded) if isinstance(recorded, bool | int | np.bool_) and recorded in (0, 1) else None
    if own is not None and outcome is not None and own != outcome:
        found = f"{outcome} in episode_results.jsonl, {own} in the attribute"
        findings.add("success_disagrees", found, "one outcome", "unknown", where=f"{demo.path}/{demo.name}")
        return None
    if own is None and outcome is None:
        where = f"{demo.path}/{demo.name}"
        findings.add(
            "success_unknown", "no outcome", "a line of episode_results.jsonl", "success is unknown", where=where
        )
    return own if outcome is None else outcome


# ------------------------------------------------------------------------------------------ the files beside it


@dataclass(frozen=True)
class _About:
    """What ``env_args``, the results and ``env_cfg.json`` say of one run."""

    env_name: str
    step_s: float
    group: str
    outcome: dict[int, bool] = field(default_factory=dict)


def _about(root: Node, control_freq_hz: float | None, findings: FileFindings) -> _About:
    path = root.path
    data = root.group("data")
    args = (None if data is None else data.json("env_args")) or {}
    recorded = args.get("env_name")
    env_name = recorded if isinstance(recorded, str) and recorded else path.parent.name
    _check_version(root, findings)
    run = re.fullmatch(r"run_(\d+)", path.stem)
    lines = [r for r in _results(path, findings) if r.get("env_name") in (env_name, path.parent.name)]
    lines = [r for r in lines if run is not None and _run_of(r) == int(run[1])]
    outcome: dict[int, bool] = {}
    for line in lines:  # lines are appended: the last one of an episode holds
        number = line.get("env_id", 0)
        if isinstance(number, int) and isinstance(line.get("success"), bool):
            outcome[number] = line["success"]
    steps = [line.get("dt") for line in lines]
    step_s = _step_s(path, control_freq_hz, steps)
    policies = {line["policy"] for line in lines if isinstance(line.get("policy"), str)}
    return _About(env_name, step_s, policies.pop() if len(policies) == 1 else "", outcome)


def _run_of(line: dict[str, Any]) -> int | None:
    """Index of the run: ``run``, or the number at the end of ``run_name`` in results of one environment."""
    named = re.search(r"_(\d+)$", str(line.get("run_name", "")))
    run = line.get("run", int(named[1]) if named else None)
    return run if isinstance(run, int) else None


def _step_s(path: Path, control_freq_hz: float | None, steps: list[Any]) -> float:
    if control_freq_hz is not None:
        if rate_hz(control_freq_hz) is None:
            raise InputError(f"control_freq_hz is {control_freq_hz!r}, expected a positive number of Hz; correct it")
        return 1.0 / control_freq_hz
    possible = {step for step in steps if rate_hz(step) is not None}
    if len(possible) == 1:
        return float(possible.pop())
    try:
        cfg = json.loads((path.parent / "env_cfg.json").read_text("utf-8-sig"))
        step = cfg["decimation"] * cfg["sim"]["dt"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        step = None
    if rate_hz(step) is None:
        raise InputError(
            f"{path}: no time step: neither 'dt' in episode_results.jsonl nor decimation and sim.dt in env_cfg.json; "
            "keep these files beside the recording or give control_freq_hz"
        )
    return float(step)  # type: ignore[arg-type]


def _results(path: Path, findings: FileFindings) -> list[dict[str, Any]]:
    """Lines of the results in the output folder (one above the run's), or beside the file."""
    for folder in (path.parent.parent, path.parent):
        beside = folder / "episode_results.jsonl"
        try:
            text = beside.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
        lines = [_json_object(line) for line in text.splitlines() if line.strip()]
        if bad := sum(line is None for line in lines):
            found = f"{bad} of {len(lines)} lines of {beside.name}"
            findings.add("bad_results", found, "one JSON object a line", "passed over")
        return [line for line in lines if line is not None]
    findings.add("no_results", "no episode_results.jsonl", "it in the folder above", "the file's attributes are taken")
    return []


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _check_version(root: Node, findings: FileFindings) -> None:
    groups = [g for g in (root, root.group("data"), *(root.group(d) for d in demos(root)[:1])) if g is not None]
    version = next((v for g in groups if (v := g.attribute("isaaclab_version")) is not None), None)
    major = re.match(r"\d+", str(version))
    if major is not None and int(major[0]) >= 3:
        found = f"isaaclab_version {version}"
        findings.add("quaternion_order", found, "version 2, whose quaternions are wxyz", "wxyz is taken; check it")
