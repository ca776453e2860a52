"""ManiSkill 3 trajectory files: ``NAME.h5`` (``traj_0/env_states`` and so on) with ``NAME.json`` beside it.

Actors are rows of position xyz, quaternion wxyz and six velocities; an articulation is 13 numbers of its root, then
joint positions, then joint velocities. There are no time stamps: frame k is at k / control_freq. What a file lacks is
left unknown and said in a Finding; an episode that cannot be read costs that episode.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.findings import FileFindings
from jaxeval.io.initial_condition import initial_condition_hash, initial_condition_id, task_name
from jaxeval.io.recordings import PANDA_JOINTS, wxyz_xyz
from jaxeval.types import Episode, Finding

CONTROL_FREQ_HZ = 20.0
"""ManiSkill's default rate, used when the .json does not give one."""
TABLE = "table-workspace"
RECORD = "record it with RecordEpisode(env, ..., save_trajectory=True, record_env_state=True)"
REPLAY = (
    "replay it with `python -m mani_skill.trajectory.replay_trajectory --traj-path {path} -o state_dict --save-traj`"
)

MANISKILL_FINDINGS: dict[str, tuple[str, str]] = {
    "no_json": ("warning", "the .json beside the .h5 is missing or not readable: seeds and environment are unknown"),
    "default_control_freq": ("info", "the .json gives no control frequency: 20 Hz is taken"),
    "no_tcp": ("warning", "no obs/extra/tcp_pose: the gripper's pose is unknown and its pairs are left out"),
    "no_gripper": ("warning", "no Panda among the articulations: gripper width and joints are unknown"),
    "success_from_json": ("info", "no success[T] in the .h5: only the outcome at the end is known, from the .json"),
    "success_not_recorded": ("warning", "no success in the .h5 or the .json: unknown, which is not failure"),
    "truncated": ("warning", "the .h5 ends early: only episodes that lie whole before its end are read"),
    "unreadable_episode": ("error", "an episode cannot be read: it is left out"),
}
"""Findings of `read_maniskill`: code -> (severity, meaning)."""


def read_maniskill(path: str | Path) -> tuple[list[Episode], list[Finding]]:
    """Episodes of one trajectory file in the order of their numbers, and what is doubtful about the file.

    Bodies are the actors, ``table`` for ``table-workspace``, and, where observations hold them, ``tcp``, ``peg_head``
    and ``box_hole``. A truncated file is read as far as whole episodes go.

    Raises:
        InputError: no such file, a Git-LFS pointer, not HDF5, no readable episode, or no ``env_states`` at all.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file; check the path")
    refuse_lfs_pointer(path)
    findings = FileFindings(path, MANISKILL_FINDINGS)
    about = _read_json(path, findings)
    episodes: list[Episode] = []
    reasons: list[str] = []
    with _opened(path, findings) as (file, size):
        names = sorted((n for n in file if re.fullmatch(r"traj_\d+", n)), key=lambda n: int(n[5:]))
        if not names:
            raise InputError(
                f"{path}: no group traj_0 but {', '.join(list(file)[:5]) or 'nothing'}; expected a ManiSkill trajectory"
            )
        for name in names:
            try:
                episodes.append(_episode(_Trajectory(path, name, file[name], size), about, findings))
            except InputError as error:
                reasons.append(str(error))
                findings.add("unreadable_episode", str(error), "a whole episode", RECORD, where=f"{path}/{name}")
            except (OSError, RuntimeError, KeyError, ValueError) as error:
                said = str(error.args[0] if error.args else error)
                reasons.append(f"{path}: {name} cannot be read ({said}); copy the file again")
                findings.add("unreadable_episode", said, "a whole episode", "left out", where=f"{path}/{name}")
    if not episodes:
        raise InputError(reasons[0])
    if len({e.bodies for e in episodes}) > 1:
        raise InputError(f"{path}: its episodes hold different bodies; expected one scene a file; split the file")
    return episodes, findings.found


# ------------------------------------------------------------------------------------------------- one episode


def _episode(traj: _Trajectory, about: _About, findings: FileFindings) -> Episode:
    actors = traj.group("env_states", "actors")
    if actors is None:
        flat = " (a flat array, as ManiSkill 2 wrote it)" if "env_states" in traj.node else ""
        raise InputError(f"{traj.path}: {traj.name} has no 'env_states/actors'{flat}, so no poses; {RECORD}")
    poses = {("table" if a == TABLE else a): wxyz_xyz(traj.array(actors[a])[:, :7]) for a in sorted(actors)}
    if not poses:
        raise InputError(f"{traj.path}: {traj.name}/env_states/actors is empty, so no poses; {RECORD}")
    movable = tuple(b for b in poses if b != "table")
    frames_n = len(next(iter(poses.values())))
    extra = traj.group("obs", "extra")
    observed = {k: traj.array(extra[k]) for k in extra if len(extra[k]) == frames_n} if extra is not None else {}
    if "tcp_pose" in observed:
        poses["tcp"] = wxyz_xyz(observed["tcp_pose"])
    else:
        replay = REPLAY.format(path=traj.path)
        findings.add("no_tcp", "no obs/extra/tcp_pose", "the gripper's pose", f"its pairs are left out; {replay}")
    half_m = {}
    if "peg" in poses and "peg_half_size" in observed:
        half_m["peg"] = observed["peg_half_size"][0]
        poses["peg_head"] = _moved_along_x(poses["peg"], observed["peg_half_size"][:, 0])
    if "box_hole_pose" in observed:
        poses["box_hole"] = wxyz_xyz(observed["box_hole_pose"])
    joints = _joints(traj, findings)
    once, at_end = _success(traj, about.outcome.get(traj.number), findings)
    seed = about.seed.get(traj.number)
    bodies = tuple(poses)
    return Episode(
        poses=np.stack(list(poses.values()), axis=1),
        time_s=np.arange(frames_n) / about.control_freq_hz,
        valid=np.ones(frames_n, bool),
        gripper_width_m=None if joints is None else joints[:, -2:].sum(axis=-1),
        joints=joints,
        actions=_actions(traj, frames_n),
        half_size_m=np.array([half_m.get(b, [np.nan] * 3) for b in bodies], np.float64) if half_m else None,
        success_once=once,
        success_at_end=at_end,
        seed=seed,
        bodies=bodies,
        joint_names=PANDA_JOINTS if joints is not None and joints.shape[1] == len(PANDA_JOINTS) else (),
        episode_id=traj.name if seed is None else f"{about.env_id}/seed={seed}",
        initial_condition_id=initial_condition_id(about.env_id, seed),
        initial_condition_hash=initial_condition_hash(np.stack([poses[b][0] for b in movable]), movable),
        group=about.group,
        task=task_name(about.env_id),
        source=f"{traj.path} ({about.env_id})",
    )


def _moved_along_x(poses: np.ndarray, distance_m: np.ndarray) -> np.ndarray:
    """[T, 7] poses translated by [T] metres along their own x axis."""
    w, x, y, z = poses[:, :4].T
    axis = np.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)], axis=-1)
    return np.concatenate([poses[:, :4], poses[:, 4:] + distance_m[:, None] * axis], axis=-1)


def _joints(traj: _Trajectory, findings: FileFindings) -> np.ndarray | None:
    """[T, Q] joint positions of the Panda: the state is 13 of the root, Q positions, Q velocities."""
    robots = traj.group("env_states", "articulations")
    pandas = [n for n in sorted(robots) if n.startswith("panda")] if robots is not None else []
    if robots is None or not pandas:
        found = "no articulations" if robots is None else f"articulations {', '.join(robots)}"
        findings.add("no_gripper", found, "one whose name starts with 'panda'", "gripper width is unknown")
        return None
    state = traj.array(robots[pandas[0]])
    joints_n = (state.shape[1] - 13) // 2
    return state[:, 13 : 13 + joints_n]


def _actions(traj: _Trajectory, frames_n: int) -> np.ndarray | None:
    """[T, A] with row t the action that led to frame t; row 0 is NaN."""
    if "actions" not in traj.node or not hasattr(traj.node["actions"], "shape"):
        return None
    actions = traj.array(traj.node["actions"])
    if actions.ndim != 2 or len(actions) != frames_n - 1:
        return None
    return np.concatenate([np.full((1, actions.shape[1]), np.nan), actions])


def _success(traj: _Trajectory, outcome: bool | None, findings: FileFindings) -> tuple[bool | None, bool | None]:
    """(at any step, at the last step); None where the file does not say."""
    if "success" in traj.node:
        success = traj.array(traj.node["success"]).astype(bool)
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


# ------------------------------------------------------------------------------------------------- the two files


@dataclass(frozen=True)
class _About:
    """What the .json says, by episode number."""

    env_id: str
    control_freq_hz: float
    seed: dict[int, int]
    outcome: dict[int, bool]
    group: str


def _read_json(path: Path, findings: FileFindings) -> _About:
    beside = path.with_suffix(".json")
    try:
        data = json.loads(beside.read_text())
        info, rows = data["env_info"], data.get("episodes", [])
        env_id = info["env_id"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else "is not a ManiSkill .json"
        action = "seeds are unknown and 20 Hz is taken; copy the .json that was written with the .h5"
        findings.add("no_json", f"{beside.name} {reason}", "the pair .h5 and .json", action)
        named = [p for p in reversed((*path.parent.parts, path.stem)) if re.fullmatch(r"[A-Z]\w*-v\d+", p)]
        return _About(named[0] if named else path.stem, CONTROL_FREQ_HZ, {}, {}, "demonstrations")
    kwargs = info.get("env_kwargs") or {}
    rate = kwargs.get("control_freq") or (kwargs.get("sim_config") or {}).get("control_freq")
    if not rate:
        findings.add("default_control_freq", "no control_freq in the .json", "Hz", f"{CONTROL_FREQ_HZ:g} Hz is taken")
    seeds = {r["episode_id"]: r.get("episode_seed", (r.get("reset_kwargs") or {}).get("seed")) for r in rows}
    return _About(
        env_id,
        float(rate or CONTROL_FREQ_HZ),
        {k: int(s) for k, s in seeds.items() if isinstance(s, int)},
        {r["episode_id"]: bool(r["success"]) for r in rows if r.get("success") is not None},
        str(data.get("source_type") or "demonstrations"),
    )


@dataclass(frozen=True)
class _Trajectory:
    """One ``traj_i`` group of a file that is `size` bytes long."""

    path: Path
    name: str
    node: Any
    size: int

    @property
    def number(self) -> int:
        return int(self.name[5:])

    def group(self, *keys: str) -> Any | None:
        """The group under `keys`, or None if it is missing or no group."""
        node = self.node
        for key in keys:
            if not hasattr(node, "keys") or key not in node:
                return None
            node = node[key]
        return node if hasattr(node, "keys") else None

    def array(self, dataset: Any) -> np.ndarray:
        """The data set in float64; OSError if part of it lies beyond the end of the file."""
        if (end := _storage_end(dataset)) > self.size:
            raise OSError(f"{dataset.name} needs bytes up to {end}, the file has {self.size}")
        return np.asarray(dataset[()], np.float64)


def _storage_end(dataset: Any) -> int:
    """Where the data set's last byte lies in the file."""
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        return 0 if offset is None else int(offset) + int(dataset.id.get_storage_size())
    chunks = (dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks()))
    return max((int(c.byte_offset) + int(c.size) for c in chunks), default=0)


class _opened:
    """The .h5 as (h5py file, bytes there are); a truncated one reads as zeros past its end."""

    def __init__(self, path: Path, findings: FileFindings) -> None:
        import h5py

        self.size = path.stat().st_size
        try:
            self.file = h5py.File(path, "r")
        except OSError as error:
            stored = re.search(r"truncated file.*stored_eof = (\d+)", str(error))
            if stored is None:
                raise InputError(
                    f"{path}: not an HDF5 file or its head is damaged, expected a ManiSkill .h5; copy it again"
                ) from error
            found = f"{self.size} of {stored[1]} bytes"
            try:
                self.file = h5py.File(_Padded(path, int(stored[1])), "r")
                list(self.file)
            except (OSError, RuntimeError) as damaged:
                raise InputError(
                    f"{path}: the file is truncated ({found}) and its list of episodes is lost; copy it again"
                ) from damaged
            findings.add("truncated", found, "the whole file", "whole episodes are read; copy the file again")

    def __enter__(self) -> tuple[Any, int]:
        return self.file, self.size

    def __exit__(self, *_: object) -> None:
        self.file.close()


class _Padded(io.RawIOBase):
    """A file read as if it were `length` bytes long, zeros where there are none."""

    def __init__(self, path: Path, length: int) -> None:
        self._file, self._length, self._at = open(path, "rb"), length, 0  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        n = max(0, min(len(view), self._length - self._at))
        self._file.seek(self._at)
        data = self._file.read(n)
        view[:n] = data + bytes(n - len(data))
        self._at += n
        return n

    def close(self) -> None:
        self._file.close()
        super().close()
