"""ManiSkill 3 trajectory files: ``NAME.h5`` (``traj_0/env_states`` and so on) with ``NAME.json`` beside it.

Actors are rows of position xyz, quaternion wxyz and six velocities; an articulation is 13 numbers of its root, then
joint positions, then joint velocities. There are no time stamps: frame k is at k / control_freq. Without recorded
observations the gripper's pose comes from a Panda's joints by forward kinematics. What a file lacks is left unknown
and said in a Finding; an episode that cannot be read costs that episode.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.findings import FileFindings
from jaxeval.io.initial_condition import initial_condition_id, task_name
from jaxeval.io.kinematics import tip_poses
from jaxeval.io.poses import turned
from jaxeval.io.readers.hdf5 import HDF5_FINDINGS, Node, holds, numbered, opened, rate_hz, read_each
from jaxeval.io.readers.recordings import PANDA_JOINTS, wxyz_xyz
from jaxeval.io.readers.scene import start_hash
from jaxeval.robots import load_robot
from jaxeval.types import Episode, Finding

CONTROL_FREQ_HZ = 20.0
"""ManiSkill's default rate, used when the .json does not give one."""
TABLE = "table-workspace"
PANDAS = ("panda", "panda_wristcam")
"""Articulations with seven arm joints and two fingers, whose tip is between the fingers."""
ROOT = 13
"""Numbers of a root, or of an actor: position 3, quaternion wxyz 4, velocities 6."""
RECORD = "record it with RecordEpisode(env, ..., save_trajectory=True, record_env_state=True)"
REPLAY = (
    "replay it with `python -m mani_skill.trajectory.replay_trajectory --traj-path {path} -o state_dict --save-traj`"
)

MANISKILL_FINDINGS: dict[str, tuple[str, str]] = {
    "no_json": ("warning", "the .json beside the .h5 is missing or not readable: seeds and environment are unknown"),
    "default_control_freq": ("info", "the .json gives no control frequency: 20 Hz is taken"),
    "tcp_by_forward_kinematics": ("info", "no obs/extra/tcp_pose: the gripper's pose is computed from the joints"),
    "no_tcp": ("warning", "neither obs/extra/tcp_pose nor a Panda: the gripper's pose is unknown"),
    "episodes_missing": ("warning", "the .json lists episodes that the .h5 does not hold"),
    "no_gripper": ("warning", "no Panda among the articulations: gripper width and joints are unknown"),
    "success_from_json": ("info", "no success[T] in the .h5: only the outcome at the end is known, from the .json"),
    "success_not_recorded": ("warning", "no success in the .h5 or the .json: unknown, which is not failure"),
    **HDF5_FINDINGS,
}
"""Findings of `read_maniskill`: code -> (severity, meaning)."""


def is_maniskill(path: str | Path) -> bool:
    """Whether it is an HDF5 file with groups ``traj_0`` and so on; looks at the names alone."""
    return holds(Path(path), lambda root: bool(numbered(root, "traj")))


def read_maniskill(path: str | Path) -> tuple[list[Episode], list[Finding]]:
    """Episodes of one trajectory file in the order of their numbers, and findings about the file.

    Bodies are the actors, ``table`` for ``table-workspace``, ``tcp``, and, where observations hold them, ``peg_head``
    and ``box_hole``. A truncated file is read as far as whole episodes go.

    Raises:
        InputError: no such file, a Git-LFS pointer, not HDF5, no readable episode, or no ``env_states`` at all.
    """
    path = Path(path)
    findings = FileFindings(path, MANISKILL_FINDINGS)
    with opened(path, findings, "a ManiSkill .h5") as root:
        about = _read_json(path, findings)
        names = numbered(root, "traj")
        if not names:
            found = ", ".join(root.names()[:5]) or "nothing"
            raise InputError(f"{path}: no group traj_0 but {found}; expected a ManiSkill trajectory")
        absent = [f"traj_{k}" for k in about.numbers if f"traj_{k}" not in names]
        if absent:
            found = f"{len(absent)} episodes of the .json are not in the .h5 ({', '.join(absent[:3])})"
            findings.add("episodes_missing", found, "all of them", "the others are read; copy the file again")
        return read_each(root, names, lambda traj: _episode(traj, about, findings), findings, RECORD), findings.found


# ------------------------------------------------------------------------------------------------- one episode


def _episode(traj: Node, about: _About, findings: FileFindings) -> Episode:
    path, number = traj.path, int(traj.name[5:])
    actors = traj.group("env_states", "actors")
    if actors is None:
        flat = " (a flat array, as ManiSkill 2 wrote it)" if traj.has("env_states") else ""
        raise InputError(f"{path}: {traj.name} has no 'env_states/actors'{flat}, so no poses; {RECORD}")
    names = actors.names()
    if not names:
        raise InputError(f"{path}: {traj.name}/env_states/actors is empty, so no poses; {RECORD}")
    frames_n = len(actors.array(names[0], columns=ROOT))
    poses = {
        ("table" if a == TABLE else a): wxyz_xyz(actors.array(a, rows=frames_n, columns=ROOT)[:, :7]) for a in names
    }
    movable = tuple(b for b in poses if b != "table")
    panda = _panda(traj, frames_n)
    extra = traj.group("obs", "extra")
    if extra is not None and extra.has("tcp_pose"):
        poses["tcp"] = wxyz_xyz(extra.array("tcp_pose", rows=frames_n, columns=7))
    elif panda is not None:
        poses["tcp"] = tip_poses(load_robot("panda"), panda[:, ROOT : ROOT + 7], wxyz_xyz(panda[:, :7]))
        findings.add(
            "tcp_by_forward_kinematics",
            "no obs/extra/tcp_pose",
            "the gripper's pose",
            "computed from the Panda's joints",
        )
    else:
        replay = REPLAY.format(path=path)
        findings.add("no_tcp", "no obs/extra/tcp_pose", "the gripper's pose", f"its pairs are left out; {replay}")
    half_m = {}
    if extra is not None and "peg" in poses and extra.has("peg_half_size"):
        peg_half_m = extra.array("peg_half_size", rows=frames_n, columns=3)
        half_m["peg"] = peg_half_m[0]
        poses["peg_head"] = _moved_along_x(poses["peg"], peg_half_m[:, 0])
    if extra is not None and extra.has("box_hole_pose"):
        poses["box_hole"] = wxyz_xyz(extra.array("box_hole_pose", rows=frames_n, columns=7))
    if panda is None:
        found = f"articulations {', '.join(_articulations(traj)) or 'none'}"
        findings.add("no_gripper", found, f"one of {', '.join(PANDAS)}", "gripper width is unknown")
    joints = None if panda is None else panda[:, ROOT : ROOT + len(PANDA_JOINTS)]
    once, at_end = _success(traj, about.outcome.get(number), findings)
    seed = about.seed.get(number)
    bodies = tuple(poses)
    return Episode.of(
        poses=np.stack(list(poses.values()), axis=1),
        time_s=np.arange(frames_n) / about.control_freq_hz,
        gripper_width_m=None if joints is None else joints[:, -2:].sum(axis=-1),
        joints=joints,
        actions=_actions(traj, frames_n),
        half_size_m=np.array([half_m.get(b, [np.nan] * 3) for b in bodies], np.float64) if half_m else None,
        success_once=once,
        success_at_end=at_end,
        seed=seed,
        bodies=bodies,
        joint_names=() if joints is None else PANDA_JOINTS,
        episode_id=traj.name if seed is None else f"{about.env_id}/seed={seed}",
        initial_condition_id=initial_condition_id(about.env_id, seed),
        initial_condition_hash=start_hash(poses, movable),
        group=about.group,
        task=task_name(about.env_id),
        source=f"{path} ({about.env_id})",
    )


def _moved_along_x(poses: np.ndarray, distance_m: np.ndarray) -> np.ndarray:
    """[T, 7] poses translated by [T] metres along their own x axis."""
    axis = turned(poses[:, :4], np.array([1.0, 0.0, 0.0]))
    return np.concatenate([poses[:, :4], poses[:, 4:] + distance_m[:, None] * axis], axis=-1)


def _articulations(traj: Node) -> list[str]:
    group = traj.group("env_states", "articulations")
    return [] if group is None else group.names()


def _panda(traj: Node, frames_n: int) -> np.ndarray | None:
    """[T, 31] state of the Panda: 13 of the root, 9 joint positions, 9 joint velocities."""
    pandas = [a for a in _articulations(traj) if a in PANDAS]
    if not pandas:
        return None
    key = f"env_states/articulations/{pandas[0]}"
    return traj.array(key, rows=frames_n, columns=ROOT + 2 * len(PANDA_JOINTS))


def _actions(traj: Node, frames_n: int) -> np.ndarray | None:
    """[T, A] with row t the action that led to frame t; row 0 is NaN."""
    if not traj.has("actions"):
        return None
    actions = traj.array("actions")
    if actions.ndim != 2 or len(actions) != frames_n - 1:
        return None
    return np.concatenate([np.full((1, actions.shape[1]), np.nan), actions])


def _success(traj: Node, outcome: bool | None, findings: FileFindings) -> tuple[bool | None, bool | None]:
    """(at any step, at the last step); None where the file does not say."""
    if traj.has("success"):
        success = traj.flags("success")
        if len(success):
            return bool(success.any()), bool(success[-1])
    if outcome is not None:
        findings.add("success_from_json", "no 'success' in the .h5", "success[T]", "the .json's outcome is taken")
        return (True if outcome else None), outcome
    findings.add(
        "success_not_recorded",
        "no 'success' in the .h5 or the .json",
        "success[T]",
        "success is unknown; " + REPLAY.format(path=traj.path),
    )
    return None, None


# --------------------------------------------------------------------------------------------------- the .json


@dataclass(frozen=True)
class _About:
    """What the .json says, by episode number."""

    env_id: str
    control_freq_hz: float
    seed: dict[int, int]
    outcome: dict[int, bool]
    numbers: tuple[int, ...]
    group: str


def _read_json(path: Path, findings: FileFindings) -> _About:
    beside = path.with_suffix(".json")
    try:
        data = json.loads(beside.read_text("utf-8-sig"))
        info, rows = data["env_info"], data.get("episodes", [])
        env_id = info["env_id"]
        if not isinstance(env_id, str):
            raise TypeError("env_id is no text")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else "is not a ManiSkill .json"
        action = "seeds are unknown and 20 Hz is taken; copy the .json that was written with the .h5"
        findings.add("no_json", f"{beside.name} {reason}", "the pair .h5 and .json", action)
        named = [p for p in reversed((*path.parent.parts, path.stem)) if re.fullmatch(r"[A-Z]\w*-v\d+", p)]
        return _About(named[0] if named else path.stem, CONTROL_FREQ_HZ, {}, {}, (), path.stem)
    kwargs = info.get("env_kwargs")
    kwargs = kwargs if isinstance(kwargs, dict) else {}
    config = kwargs.get("sim_config")
    recorded = kwargs.get("control_freq") or (config.get("control_freq") if isinstance(config, dict) else None)
    rate = rate_hz(recorded)
    if rate is None:
        found = "no control_freq in the .json" if recorded is None else f"control_freq {recorded!r} in the .json"
        findings.add("default_control_freq", found, "Hz", f"{CONTROL_FREQ_HZ:g} Hz is taken")
    numbers, seeds, outcome = [], {}, {}
    for row in rows if isinstance(rows, list) else []:
        number = row.get("episode_id") if isinstance(row, dict) else None
        if not isinstance(number, int):
            continue
        numbers.append(number)
        reset = row.get("reset_kwargs")
        seed = row.get("episode_seed", reset.get("seed") if isinstance(reset, dict) else None)
        if isinstance(seed, int) and not isinstance(seed, bool):
            seeds[number] = seed
        if isinstance(row.get("success"), bool | int) and row["success"] in (0, 1):
            outcome[number] = bool(row["success"])
    return _About(
        env_id,
        CONTROL_FREQ_HZ if rate is None else rate,
        seeds,
        outcome,
        tuple(numbers),
        str(data.get("source_type") or path.stem),
    )
