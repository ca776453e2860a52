"""LeRobot data sets, v2.0 to v3.0, read with pyarrow alone: a folder with ``meta/info.json`` and ``data/*.parquet``.

A feature whose names hold x, y, z and qx, qy, qz, qw (in any order, with any common prefix or suffix) is a pose: the
order comes from the names. ``observation.pose.NAME`` is the body NAME, ``left_x ... left_qw`` the body ``left``, and
an end effector's pose, or one without a label, is ``tcp``. Poses are taken as world poses in metres. Row t of
``action`` follows frame t, hence it becomes the action that led to frame t + 1, and the last one has no frame.
Videos and images are not opened. An episode that cannot be read costs that episode.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.findings import FileFindings
from jaxeval.io.kinematics import tip_poses
from jaxeval.io.readers.lerobot_files import FILE_FINDINGS, DataSet, Frames, iter_frames, open_data_set
from jaxeval.io.readers.lerobot_names import NAME_FINDINGS, Roles, roles_of
from jaxeval.io.readers.recordings import DERIVED
from jaxeval.io.readers.scene import SCENE_FINDINGS, same_scene, start_hash
from jaxeval.robots import Robot
from jaxeval.types import IDENTITY_POSE, Episode, Finding

SAME_RATE = 0.01
"""Median step and 1 / fps may differ by this share."""

LEROBOT_FINDINGS: dict[str, tuple[str, str]] = {
    "no_timestamp": ("info", "no timestamp: frame k is at k / fps"),
    "fps_disagrees": ("warning", "the time stamps do not step by 1 / fps: the time stamps are taken"),
    "tcp_by_forward_kinematics": (
        "info",
        "no pose of tcp: computed from the joints, with the base at the origin",
    ),
    "no_gripper": ("info", "no observation.gripper_width: gripper width is unknown"),
    "success_unknown": ("warning", "no next.success: success unknown, which is not failure"),
    "several_tasks": ("warning", "the data set holds several tasks: each episode names its own"),
    **NAME_FINDINGS,
    **FILE_FINDINGS,
    **SCENE_FINDINGS,
}
"""Findings of `read_lerobot`: code -> (severity, meaning)."""


def is_lerobot(path: str | Path) -> bool:
    """Whether it is a folder with ``meta/info.json``."""
    return (Path(path) / "meta" / "info.json").is_file()


def read_lerobot(path: str | Path, *, robot: Robot | None = None) -> tuple[list[Episode], list[Finding]]:
    """Episodes of one data set in the order of their numbers, and findings about it.

    Without any pose among the features the episodes hold no body and their joints alone. With `robot`, ``tcp`` is
    computed from joints of the robot's names, in radians and with the base at the world's origin.

    Raises:
        InputError: no such folder, a Git-LFS pointer, an info.json that is none, another version, no readable episode.
    """
    path = Path(path)
    findings = FileFindings(path, LEROBOT_FINDINGS)
    data_set = open_data_set(path, findings)
    roles = roles_of(data_set.features, findings)
    wanted = [f for f in roles.columns if f in data_set.features]
    episodes: list[Episode] = []
    places: list[str] = []
    reasons: list[str] = []
    for number, frames in iter_frames(data_set, wanted):
        where = f"{path}/episode_{number:06d}"
        try:
            if isinstance(frames, InputError):
                raise frames
            episodes.append(_episode(data_set, roles, number, frames, robot, findings))
            places.append(where)
        except InputError as error:
            reasons.append(str(error))
            findings.add("unreadable_episode", str(error), "a whole episode", "left out", where=where)
    if not episodes:
        reason = reasons[0] if reasons else f"{path}: the data set lists no episode, expected at least 1; record one"
        raise InputError(reason)
    if len(tasks := {e.task for e in episodes}) > 1:
        found = f"{len(tasks)} tasks ({', '.join(sorted(tasks)[:3])}...)"
        findings.add("several_tasks", found, "one task", "give the episodes of one to a metric")
    return same_scene(episodes, places, findings), findings.found


# ------------------------------------------------------------------------------------------------- one episode


def _episode(
    data_set: DataSet, roles: Roles, number: int, frames: Frames, robot: Robot | None, findings: FileFindings
) -> Episode:
    n = frames.length
    poses = {body: frames.columns(feature, slots) for body, (feature, slots) in roles.poses.items()}
    joints = frames.numbers(roles.joints) if roles.joints else None
    if joints is not None and joints.shape[1] != len(roles.joint_names):
        raise InputError(
            f"{frames.where}: {roles.joints} has {joints.shape[1]} columns, info.json names {len(roles.joint_names)}; "
            "copy or record the data set again"
        )
    if robot is not None and "tcp" not in poses:
        poses["tcp"] = _tcp(frames, robot, roles, joints)
        findings.add("tcp_by_forward_kinematics", "no pose of tcp", "the gripper's pose", f"computed for {robot.name}")
    once, at_end = _success(frames, roles, findings)
    movable = tuple(b for b in poses if b not in (*DERIVED, "table"))
    label = f"episode_{number:06d}"
    if roles.gripper_width is None:
        findings.add("no_gripper", "no observation.gripper_width", "metres a frame", "gripper width is unknown")
    return Episode(
        poses=np.stack(list(poses.values()), axis=1) if poses else np.zeros((n, 0, 7)),
        time_s=_time_s(data_set, frames, roles, findings),
        valid=np.stack([_seen(frames, roles, body) for body in poses], axis=1) if poses else np.ones((n, 0), bool),
        frame_valid=frames.flags(roles.valid) if roles.valid else np.ones(n, bool),
        gripper_width_m=frames.scalar(roles.gripper_width) if roles.gripper_width else None,
        joints=joints,
        actions=_actions(frames, roles),
        success_once=once,
        success_at_end=at_end,
        bodies=tuple(poses),
        joint_names=roles.joint_names,
        episode_id=f"{data_set.root.name}/{label}",
        initial_condition_hash=start_hash(poses, movable),
        group=data_set.root.name,
        task=frames.task or data_set.root.name,
        source=f"{data_set.root} ({data_set.robot_type or 'unknown robot'})",
    )


def _seen(frames: Frames, roles: Roles, body: str) -> np.ndarray:
    """[T] frames in which the body was seen; all, where the data set does not say."""
    return frames.flags(roles.body_valid[body]) if body in roles.body_valid else np.ones(frames.length, bool)


def _time_s(data_set: DataSet, frames: Frames, roles: Roles, findings: FileFindings) -> np.ndarray:
    if roles.timestamp is None:
        findings.add("no_timestamp", "no timestamp", "seconds a frame", f"steps of 1 / {data_set.fps:g} s are taken")
        return np.arange(frames.length) / data_set.fps
    time_s = frames.scalar(roles.timestamp)
    steps = np.diff(time_s[np.isfinite(time_s)])
    if steps.size and abs(float(np.median(steps)) * data_set.fps - 1) > SAME_RATE:
        found = f"a median step of {np.median(steps):.4g} s at {data_set.fps:g} fps"
        findings.add("fps_disagrees", found, f"{1 / data_set.fps:.4g} s", "the time stamps are taken")
    return time_s


def _tcp(frames: Frames, robot: Robot, roles: Roles, joints: np.ndarray | None) -> np.ndarray:
    if joints is None or not set(robot.joint_names) <= set(roles.joint_names):
        raise InputError(
            f"{frames.where}: joints {', '.join(roles.joint_names) or 'unknown'}, but {robot.name} has "
            f"{', '.join(robot.joint_names)}; rename them in info.json or give the robot they belong to"
        )
    q = joints[:, [roles.joint_names.index(name) for name in robot.joint_names]]
    return tip_poses(robot, q, np.tile(IDENTITY_POSE, (len(q), 1)))


def _actions(frames: Frames, roles: Roles) -> np.ndarray | None:
    """[T, A] with row t the action that led to frame t; row 0 is NaN."""
    if roles.action is None:
        return None
    actions = frames.numbers(roles.action)
    return np.concatenate([np.full((1, actions.shape[1]), np.nan), actions[:-1]])


def _success(frames: Frames, roles: Roles, findings: FileFindings) -> tuple[bool | None, bool | None]:
    """(at any step, at the last step); None where the data set does not say."""
    if roles.success is None:
        findings.add("success_unknown", "no next.success", "a flag a frame", "success is unknown")
        return None, None
    flags = frames.flags(roles.success)
    return bool(flags.any()), bool(flags[-1])
