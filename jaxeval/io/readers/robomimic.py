"""robomimic HDF5 files: ``data/demo_i/obs`` with robosuite's observations, ``data.attrs["env_args"]`` as JSON.

Poses are in the world frame. ``robot0_eef_pos`` with ``robot0_eef_quat`` (xyzw) is the body ``tcp``; any other pair
``NAME_pos`` and ``NAME_quat`` is the body NAME. ``obs/object`` is a concatenation that differs between tasks and
robosuite versions, so a known layout is only used when the numbers confirm it: each vector also holds positions
relative to the gripper, which must agree with the poses read. Frame k is at k / control_freq. Row t of the file's
``actions`` follows observation t, hence it becomes the action that led to frame t + 1, and the last one has no frame.

Success is taken from sparse rewards (noughts and ones) alone: dense ones do not tell, and ``dones`` also marks the
end of a demonstration. All noughts means unknown, not failure. Filter keys under ``mask`` are used on request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.findings import FileFindings
from jaxeval.io.initial_condition import task_name
from jaxeval.io.poses import from_xyzw, rotation_matrices
from jaxeval.io.readers.hdf5 import HDF5_FINDINGS, Node, holds, numbered, opened, rate_hz, read_each
from jaxeval.io.readers.scene import start_hash
from jaxeval.types import Episode, Finding

CONTROL_FREQ_HZ = 20.0
"""robosuite's default rate, used when ``env_args`` does not give one."""
AGREES_M = 1e-3
"""Positions read from ``object`` must agree this well with those relative to the gripper, in the median frame."""
EXTRACT = "extract observations with robomimic/scripts/dataset_states_to_obs.py"
NAMED = "record each body as obs/NAME_pos and obs/NAME_quat (xyzw)"

ROBOMIMIC_FINDINGS: dict[str, tuple[str, str]] = {
    "no_env_args": ("warning", "data has no env_args in JSON: task and control frequency are unknown"),
    "default_control_freq": ("warning", "env_args gives no control frequency: 20 Hz is taken"),
    "no_tcp": ("warning", "no robot0_eef_pos and robot0_eef_quat: the gripper's pose is unknown"),
    "no_objects": ("warning", "neither named poses nor obs/object: poses of objects are unknown"),
    "object_poses_unknown": ("warning", "the layout of obs/object is not known or not confirmed: it is left out"),
    "gripper_width_from_joints": ("info", "gripper width is the sum of the two finger joints' absolute values"),
    "gripper_not_panda": ("warning", "two finger joints of a gripper other than Panda's: the width may be off"),
    "no_gripper": ("warning", "no robot0_gripper_qpos of two fingers: gripper width is unknown"),
    "success_unknown": ("warning", "no sparse reward in an episode: success unknown, which is not failure"),
    "filter_keys_ignored": ("info", "the file has filter keys: every demonstration is read"),
    **HDF5_FINDINGS,
}
"""Findings of `read_robomimic`: code -> (severity, meaning)."""

OBJECT_LAYOUTS: dict[str, tuple[str, ...]] = {
    "Lift": ("cube_pos cube_quat cube_offset",),
    "Stack": ("cubeA_pos cubeA_quat cubeB_pos cubeB_quat cubeA_offset cubeB_offset apart_3",),
    "PickPlaceCan": ("Can_pos Can_quat Can_in_eef other_4",),
    "NutAssemblySquare": (
        "SquareNut_pos SquareNut_quat SquareNut_in_eef other_4",
        "SquareNut_in_eef other_4 SquareNut_pos SquareNut_quat",
    ),
}
"""Layouts of ``obs/object`` by robosuite's environment, from its `_setup_observables` of versions 1.2 to 1.5.

``X_pos`` [3] and ``X_quat`` [4, xyzw] are in the world, ``X_offset`` [3] is X's position less the gripper's (or the
other way round), ``X_in_eef`` [3] is X's position in the gripper's frame, ``other_n`` is passed over.
"""


def is_robomimic(path: str | Path) -> bool:
    """Whether it is an HDF5 file with ``data/demo_i`` that is not RoboLab's; looks at names alone."""
    return holds(Path(path), lambda root: bool(demos(root)) and not has_scene_states(root))


def demos(root: Node) -> list[str]:
    """Paths of the demonstrations, ``data/demo_0`` and on, by their numbers."""
    data = root.group("data")
    return [] if data is None else [f"data/{name}" for name in numbered(data, "demo")]


def has_scene_states(root: Node) -> bool:
    """Whether one of the first demonstrations holds the states of a scene, as Isaac Lab records them."""
    groups = [root.group(name) for name in demos(root)[:3]]
    return any(g is not None and (g.group("states") or g.group("ee_pose")) for g in groups)


def read_robomimic(path: str | Path, *, filter_key: str | None = None) -> tuple[list[Episode], list[Finding]]:
    """Demonstrations of one file in the order of their numbers, and findings.

    With `filter_key`, only those of ``mask/KEY``.

    Raises:
        InputError: no such file, a Git-LFS pointer, not HDF5, no ``data/demo_0``, no such filter key, or no
            demonstration with observations.
    """
    path = Path(path)
    findings = FileFindings(path, ROBOMIMIC_FINDINGS)
    with opened(path, findings, "a robomimic .hdf5") as root:
        names = demos(root)
        if not names:
            found = ", ".join(root.names()[:5]) or "nothing"
            raise InputError(f"{path}: no group data/demo_0 but {found}; expected robomimic demonstrations")
        names = _filtered(root, names, filter_key, findings)
        about = _about(root, findings)
        return read_each(root, names, lambda demo: _episode(demo, about, findings), findings, EXTRACT), findings.found


def _filtered(root: Node, names: list[str], filter_key: str | None, findings: FileFindings) -> list[str]:
    mask = root.group("mask")
    keys = [] if mask is None else mask.names()
    if filter_key is None:
        if keys:
            action = "all are read; give filter_key=KEY for one"
            findings.add("filter_keys_ignored", f"mask/{', mask/'.join(keys)}", "all demonstrations", action)
        return names
    if mask is None or filter_key not in keys:
        raise InputError(f"{root.path}: no filter key mask/{filter_key}; it has {', '.join(keys) or 'none'}")
    kept = {f"data/{name}" for name in mask.strings(filter_key)}
    if not kept & set(names):
        raise InputError(f"{root.path}: mask/{filter_key} names no demonstration of the file; choose another key")
    return [name for name in names if name in kept]


@dataclass(frozen=True)
class _About:
    """What ``env_args`` says."""

    env_name: str
    control_freq_hz: float
    robots: str


def _about(root: Node, findings: FileFindings) -> _About:
    data = root.group("data")
    args = None if data is None else data.json("env_args")
    if args is None:
        findings.add("no_env_args", "no env_args in JSON", "what robomimic writes", "task unknown, 20 Hz is taken")
        return _About(root.path.stem, CONTROL_FREQ_HZ, "")
    kwargs = args.get("env_kwargs")
    kwargs = kwargs if isinstance(kwargs, dict) else {}
    rate = rate_hz(kwargs.get("control_freq"))
    if rate is None:
        found = f"control_freq {kwargs.get('control_freq')!r} in env_args"
        findings.add("default_control_freq", found, "Hz", f"{CONTROL_FREQ_HZ:g} Hz is taken")
    name = args.get("env_name")
    return _About(
        name if isinstance(name, str) and name else root.path.stem,
        CONTROL_FREQ_HZ if rate is None else rate,
        str(kwargs.get("robots", "")),
    )


# ------------------------------------------------------------------------------------------------- one episode


def _episode(demo: Node, about: _About, findings: FileFindings) -> Episode:
    obs = demo.group("obs")
    if obs is None or not obs.names():
        raise InputError(f"{demo.path}: {demo.name} has no 'obs', so no poses; {EXTRACT}")
    frames_n = _frames(obs)
    poses = _named_poses(obs, frames_n)
    tcp = poses.pop("robot0_eef", None)
    poses = {(f"{b[:6]}_tcp" if re.fullmatch(r"robot\d_eef", b) else b): p for b, p in poses.items()}
    if not [b for b in poses if not b.startswith("robot")]:
        poses |= _object_poses(obs, tcp, about, findings)
    movable = tuple(b for b in poses if not b.startswith("robot"))
    if tcp is None:
        found = "no robot0_eef_pos and robot0_eef_quat"
        findings.add("no_tcp", found, "the gripper's pose", "its pairs are left out")
    else:
        poses["tcp"] = tcp
    if not poses:
        raise InputError(f"{demo.path}: {demo.name}/obs holds no poses but {', '.join(obs.names()[:5])}; {NAMED}")
    joints = obs.array("robot0_joint_pos", rows=frames_n) if obs.has("robot0_joint_pos") else None
    if joints is not None and joints.ndim != 2:
        raise InputError(f"{demo.path}: {obs.name}/robot0_joint_pos has {joints.ndim} axes, expected 2; {EXTRACT}")
    once, at_end = _success(demo, frames_n, findings)
    return Episode.of(
        poses=np.stack(list(poses.values()), axis=1),
        time_s=np.arange(frames_n) / about.control_freq_hz,
        gripper_width_m=_gripper_width(obs, frames_n, about, findings),
        joints=joints,
        actions=actions_that_led(demo, frames_n),
        success_once=once,
        success_at_end=at_end,
        bodies=tuple(poses),
        episode_id=f"{about.env_name}/{demo.name.removeprefix('data/')}",
        initial_condition_hash=start_hash(poses, movable),
        group=demo.path.stem,
        task=task_name(about.env_name),
        source=f"{demo.path} ({about.env_name})",
    )


def _frames(obs: Node) -> int:
    """Frames of the gripper's position, or of the first data set there is."""
    names = [n for n in obs.names() if obs.has(n)]
    leading = [n for n in names if n == "robot0_eef_pos"] + [n for n in names if n.endswith("_pos")] + names
    if not leading:
        raise InputError(f"{obs.path}: {obs.name} holds no numbers; {EXTRACT}")
    return len(obs.array(leading[0]))


def _named_poses(obs: Node, frames_n: int) -> dict[str, np.ndarray]:
    """Body -> [T, 7] of every pair ``NAME_pos`` and ``NAME_quat`` that is not relative to another body."""
    stems = [n.removesuffix("_pos") for n in obs.names() if n.endswith("_pos") and "_to_" not in n]
    return {
        stem: from_xyzw(
            obs.array(f"{stem}_pos", rows=frames_n, columns=3), obs.array(f"{stem}_quat", rows=frames_n, columns=4)
        )
        for stem in stems
        if obs.has(f"{stem}_quat")
    }


def _object_poses(obs: Node, tcp: np.ndarray | None, about: _About, findings: FileFindings) -> dict[str, np.ndarray]:
    """Body -> [T, 7] out of ``obs/object``, if exactly one known layout agrees with the gripper's poses."""
    if not obs.has("object"):
        findings.add("no_objects", "no pair NAME_pos and NAME_quat", "poses of objects", NAMED)
        return {}
    values = obs.array("object")
    env = re.sub(r"_D\d+$", "", about.env_name)  # MimicGen's variants of the same environment
    found = f"obs/object {values.shape} of {about.env_name}"
    if values.ndim != 2 or tcp is None or len(values) != len(tcp) or env not in OBJECT_LAYOUTS:
        findings.add("object_poses_unknown", found, f"one of {', '.join(OBJECT_LAYOUTS)}", NAMED)
        return {}
    confirmed = [p for p in (_unpacked(values, layout, tcp) for layout in OBJECT_LAYOUTS[env]) if p]
    if len(confirmed) != 1:
        expected = f"positions that agree with those relative to the gripper to {AGREES_M:g} m"
        findings.add("object_poses_unknown", found, expected, NAMED)
        return {}
    return confirmed[0]


def _unpacked(values: np.ndarray, layout: str, tcp: np.ndarray) -> dict[str, np.ndarray] | None:
    """The poses of one layout, or None if its width or its relative positions disagree."""
    width = {"pos": 3, "quat": 4, "offset": 3, "eef": 3, "3": 3, "4": 4}
    parts: dict[str, np.ndarray] = {}
    at = 0
    for name in layout.split():
        n = width[name.rsplit("_", 1)[1]]
        parts[name] = values[:, at : at + n]
        at += n
    if at != values.shape[1]:
        return None
    R_tcp = rotation_matrices(tcp[:, :4])
    for name, relative in parts.items():
        body, _, kind = name.partition("_")
        if kind not in ("offset", "in_eef"):
            continue
        offset = parts[f"{body}_pos"] - tcp[:, 4:]
        if kind == "in_eef":
            offset = np.einsum("tji,tj->ti", R_tcp, offset)
        apart = np.linalg.norm(offset - relative, axis=1)
        if kind == "offset":  # robosuite turned the sign round between versions
            apart = min(apart, np.linalg.norm(offset + relative, axis=1), key=lambda d: np.median(d))
        if not np.median(apart) < AGREES_M:
            return None
    bodies = [name.removesuffix("_pos") for name in parts if name.endswith("_pos")]
    return {b: from_xyzw(parts[f"{b}_pos"], parts[f"{b}_quat"]) for b in bodies}


def _gripper_width(obs: Node, frames_n: int, about: _About, findings: FileFindings) -> np.ndarray | None:
    """[T] metres: the fingers' joints are +-half the width."""
    fingers = obs.array("robot0_gripper_qpos", rows=frames_n) if obs.has("robot0_gripper_qpos") else None
    if fingers is None or fingers.ndim != 2 or fingers.shape[1] != 2:
        found = "no robot0_gripper_qpos" if fingers is None else f"robot0_gripper_qpos {fingers.shape}"
        findings.add("no_gripper", found, "two finger joints in metres", "gripper width is unknown")
        return None
    code = "gripper_width_from_joints" if "Panda" in about.robots else "gripper_not_panda"
    found = f"robot0_gripper_qpos of {about.robots or 'an unknown robot'}"
    findings.add(code, found, "the distance between the fingers", "the sum of the joints' absolute values is taken")
    return np.abs(fingers).sum(axis=1)


def actions_that_led(demo: Node, frames_n: int) -> np.ndarray | None:
    """[T, A] with row t the action that led to frame t, when the file's row t follows frame t; row 0 is NaN."""
    if not demo.has("actions"):
        return None
    actions = demo.array("actions", rows=frames_n)
    if actions.ndim != 2:
        return None
    return np.concatenate([np.full((1, actions.shape[1]), np.nan), actions[:-1]])


def _success(demo: Node, frames_n: int, findings: FileFindings) -> tuple[bool | None, bool | None]:
    """(at any step, at the last step) of sparse rewards; None where they do not tell."""
    rewards: Any = demo.array("rewards", rows=frames_n) if demo.has("rewards") else None
    if rewards is not None and rewards.ndim == 1 and np.isin(rewards, (0.0, 1.0)).all() and rewards.any():
        return True, bool(rewards[-1])
    if rewards is None:
        found = "no rewards"
    else:
        found = "rewards all zero" if not rewards.any() else "rewards other than 0 and 1"
    findings.add("success_unknown", found, "a reward of 1 on success", "success is unknown", where=f"{demo.path}")
    return None, None
