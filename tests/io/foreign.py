"""Writes recordings the way other people's recorders do, with h5py alone, for the readers' tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from jaxeval.types import Episode

XYZW = [1, 2, 3, 0]


def rotation(wxyz: np.ndarray) -> np.ndarray:
    """Rotation matrix of one quaternion, by rotating the axes with q v q*."""

    def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.array([a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])

    q = wxyz / np.linalg.norm(wxyz)
    back = q * [1, -1, -1, -1]
    return np.stack([times(times(q, np.array([0.0, *axis])), back)[1:] for axis in np.eye(3)], axis=1)


def write_robomimic(
    path: Path,
    episodes: Sequence[Episode],
    *,
    env: str = "Stack",
    rewards: Sequence[np.ndarray | None] | None = None,
    named: bool = True,
    objects: Sequence[np.ndarray] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> Path:
    """robomimic's layout; `named` writes each body as NAME_pos and NAME_quat, `objects` is obs/object."""
    kwargs = {"control_freq": 20, "robots": ["Panda"], "reward_shaping": False} if kwargs is None else kwargs
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(e.n_frames for e in episodes)
        data.attrs["env_args"] = json.dumps({"env_name": env, "type": 1, "env_kwargs": kwargs})
        for k, e in enumerate(episodes):
            demo = data.create_group(f"demo_{k}")
            demo.attrs["num_samples"] = e.n_frames
            demo["states"] = np.zeros((e.n_frames, 32))
            demo["actions"] = np.concatenate([e.actions[1:], e.actions[-1:]])
            demo["dones"] = np.arange(e.n_frames) == e.n_frames - 1
            obs = demo.create_group("obs")
            tcp = e.body("tcp")
            obs["robot0_eef_pos"], obs["robot0_eef_quat"] = tcp[:, 4:], tcp[:, XYZW]
            obs["robot0_gripper_qpos"] = np.stack([e.gripper_width_m / 2, -e.gripper_width_m / 2], axis=1)
            obs["robot0_joint_pos"] = e.joints[:, :7]
            for body in (b for b in e.bodies if named and b != "tcp"):
                obs[f"{body}_pos"], obs[f"{body}_quat"] = e.body(body)[:, 4:], e.body(body)[:, XYZW]
                obs[f"{body}_to_robot0_eef_pos"] = e.body(body)[:, 4:] - tcp[:, 4:]
            if objects is not None:
                obs["object"] = objects[k]
            reward = None if rewards is None else rewards[k]
            if reward is not None:
                demo["rewards"] = reward
    return path


def write_robolab(
    folder: Path, episodes: Sequence[Episode], *, results: bool = True, root: np.ndarray | None = None
) -> Path:
    """RoboLab's output folder; `root` places the robot (wxyz_xyz), its end effector is then recorded relative to it."""
    path = folder / "out" / "StackTask" / "run_0.hdf5"
    path.parent.mkdir(parents=True)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(e.n_frames for e in episodes)
        data.attrs["env_args"] = json.dumps({"env_name": "StackTask", "type": 2})
        for k, e in enumerate(episodes):
            n = e.n_frames
            demo = data.create_group(f"demo_{k}")
            demo.attrs["num_samples"], demo.attrs["seed"] = n, 100 + k
            demo["actions"] = e.actions
            tcp = e.body("tcp")
            if root is not None:
                R = rotation(root[:4])
                inverse = root[:4] * [1, -1, -1, -1]
                w, v = inverse[0], inverse[1:]
                W, V = tcp[:, :1], tcp[:, 1:4]
                wxyz = np.concatenate([w * W - V @ v[:, None], w * V + W * v + np.cross(v[None], V)], axis=1)
                tcp = np.concatenate([wxyz, (tcp[:, 4:] - root[4:]) @ R], axis=1)
                demo["robot_root_pose/position"] = np.tile(root[4:], (n, 1))
                demo["robot_root_pose/orientation"] = np.tile(root[:4], (n, 1))
            demo["ee_pose/position"], demo["ee_pose/orientation"] = tcp[:, 4:], tcp[:, :4]
            demo["states/articulation/robot/joint_position"] = e.joints
            demo["initial_state/cameras/wrist_cam/position"] = np.zeros((1, 3))
            demo["initial_state/cameras/wrist_cam/orientation"] = np.array([[0.0, 0, 0, 1]])
            for body in (b for b in e.bodies if b != "tcp"):
                pose = np.concatenate([e.body(body)[:, 4:], e.body(body)[:, :4]], axis=1)
                demo[f"states/rigid_object/{body}/root_pose"] = pose
                demo[f"states/rigid_object/{body}/root_velocity"] = np.zeros((n, 6))
    if results:
        lines = [
            {"env_name": "StackTask", "run": 0, "env_id": k, "policy": "pi05", "success": bool(k % 2), "dt": 0.05}
            for k in range(len(episodes))
        ]
        text = "\n".join(json.dumps(line) for line in lines)
        (folder / "out" / "episode_results.jsonl").write_text(text)
    return path
