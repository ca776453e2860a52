"""One small motion written in every format, for breaking: two bodies, 14 frames (and 11), every pose of a frame unlike
every other's, and between frames so even that an interpolated pose is the true one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxeval.io import write_store
from jaxeval.io.kinematics import tip_poses
from jaxeval.io.readers.recordings import PANDA_JOINTS
from jaxeval.io.writers.lerobot import write_lerobot
from jaxeval.robots import load_robot
from jaxeval.types import Episode
from tests.executions import axis_turn
from tests.io.foreign import write_robolab, write_robomimic
from tests.io.samples import (
    EPOCH_NS,
    write_sample_bop,
    write_sample_euroc,
    write_sample_mcap,
    write_sample_rosbag2,
    write_sample_tum,
)

RATE_HZ = 25.0
"""Not the 20 Hz, nor the 30, that readers take where a file does not say."""
LENGTHS = (14, 11)
BASE = np.array([1.0, 0, 0, 0, -0.6, 0.1, 0.02])


@cache
def motion(k: int = 0) -> Episode:
    """Execution k: a cube that drifts and turns, and a gripper whose pose is that of its arm's joints."""
    n = LENGTHS[k]
    t = np.arange(n) / RATE_HZ
    cube = np.concatenate(
        [axis_turn([1, 2, 3 + k], 0.4 + 0.5 * t), [[0.3, -0.2, 0.1 + 0.1 * k]] + t[:, None] * [[0.2, 0.15, -0.1]]],
        axis=1,
    )
    joints = np.tile([0.1, -0.5, 0.2, -2.0, 0.3, 1.5, 0.4 + 0.1 * k, 0.02, 0.02], (n, 1))
    joints[:, 6] += 0.6 * t  # the last joint alone turns, and the base drives on: both at an even rate
    tcp = tip_poses(load_robot("panda"), joints[:, :7], bases(n))
    return Episode.of(
        poses=np.stack([cube, tcp], axis=1),
        time_s=t,
        valid=np.ones(n, bool),
        gripper_width_m=np.full(n, 0.04),
        joints=joints,
        actions=np.tile(np.arange(4.0), (n, 1)),
        success_once=True,
        success_at_end=True,
        seed=7 + k,
        bodies=("cube", "tcp"),
        joint_names=PANDA_JOINTS,
        episode_id=f"run {k}",
        task="push",
    )


def bases(n: int) -> np.ndarray:
    """Poses of the arm's base, which drives along x at 0.3 m/s."""
    out = np.tile(BASE, (n, 1))
    out[:, 4] += 0.3 * np.arange(n) / RATE_HZ
    return out


@dataclasses.dataclass(frozen=True)
class Sample:
    """A format's file in a folder of its own: ``path`` relative to it, and what it holds."""

    path: str
    write: Callable[[Path], Any]
    episodes: tuple[int, ...] = (0, 1)
    bodies: tuple[str, ...] = ("cube", "tcp")
    names: tuple[str, ...] = ("cube", "tcp")  # what the format calls them
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def write_maniskill(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for k, n in enumerate(LENGTHS):
            e, traj = motion(k), file.create_group(f"traj_{k}")
            wxyz_last = np.concatenate([e.body("cube")[:, 4:], e.body("cube")[:, :4], np.zeros((n, 6))], axis=1)
            traj["env_states/actors/cube"] = wxyz_last
            base = bases(n)
            panda = np.concatenate([base[:, 4:], base[:, :4], np.zeros((n, 6)), e.joints, np.zeros((n, 9))], axis=1)
            traj["env_states/articulations/panda"] = panda
            traj["obs/extra/tcp_pose"] = np.concatenate([e.body("tcp")[:, 4:], e.body("tcp")[:, :4]], axis=1)
            traj["actions"] = e.actions[1:]
            traj["success"] = np.arange(1, n) >= n - 2
    rows = [{"episode_id": k, "episode_seed": 7 + k, "success": True} for k in range(len(LENGTHS))]
    info = {"env_id": "PushCube-v1", "env_kwargs": {"control_freq": RATE_HZ}}
    path.with_suffix(".json").write_text(json.dumps({"env_info": info, "episodes": rows, "source_type": "test"}))


def write_npz(path: Path) -> None:
    arrays: dict[str, Any] = {}
    meta = []
    for k, n in enumerate(LENGTHS):
        e = motion(k)
        for body in e.bodies:
            arrays[f"ep{k:03d}/pose/{body}"] = np.concatenate([e.body(body)[:, 4:], e.body(body)[:, :4]], axis=1)
        arrays[f"ep{k:03d}/phase"] = np.array(["reach"] * 5 + ["push"] * (n - 5))
        arrays[f"ep{k:03d}/success"] = np.arange(n) >= n - 2
        arrays[f"ep{k:03d}/gripper_width"], arrays[f"ep{k:03d}/qpos"] = e.gripper_width_m, e.joints
        arrays[f"ep{k:03d}/action"] = e.actions
        meta.append(
            {"task": "PushCube-v1", "seed": 7 + k, "control_freq": RATE_HZ, "table_pose": [0, 0, 0, 1, 0, 0, 0]}
        )
    np.savez(path, meta=json.dumps(meta), n_episodes=len(LENGTHS), **arrays)


def write_lerobot_v21(folder: Path) -> None:
    """The v3.0 data set as version 2.1 lays it out: a parquet file an episode, JSON lines for the tables."""
    made = folder.with_name("v30")
    write_lerobot(made, [motion(0), motion(1)])
    info = json.loads((made / "meta/info.json").read_text())
    info |= {
        "codebase_version": "v2.1",
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    }
    table = pq.read_table(made / "data/chunk-000/file-000.parquet")
    (folder / "meta").mkdir(parents=True)
    (folder / "data/chunk-000").mkdir(parents=True)
    numbers = np.array(table["episode_index"].to_pylist())
    for k in range(len(LENGTHS)):
        rows = table.take(pa.array(np.flatnonzero(numbers == k)))
        pq.write_table(rows, folder / f"data/chunk-000/episode_{k:06d}.parquet")
    lines = [{"episode_index": k, "tasks": ["push"], "length": n} for k, n in enumerate(LENGTHS)]
    (folder / "meta/info.json").write_text(json.dumps(info))
    (folder / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (folder / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "push"}) + "\n")
    shutil.rmtree(made)


def _robolab(folder: Path) -> None:
    write_robolab(folder, [motion(0), motion(1)], root=BASE)
    results = folder / "out/episode_results.jsonl"
    results.write_text(results.read_text().replace('"dt": 0.05', f'"dt": {1 / RATE_HZ}'))


def _robomimic(folder: Path) -> None:
    kwargs = {"control_freq": RATE_HZ, "robots": ["Panda"]}
    write_robomimic(folder / "demo.hdf5", [motion(0), motion(1)], env="Push", kwargs=kwargs)


def _of_ros(write: Callable[..., Any]) -> Callable[[Path], Any]:
    return lambda folder: write(folder, dataclasses.replace(motion(), joints=None, joint_names=()))


def _two_files(folder: Path, write: Callable[..., Any]) -> None:
    write(folder / "run", motion())


ONE = {"episodes": (0,)}
SAMPLES: dict[str, Sample] = {
    "maniskill": Sample("t.h5", lambda f: write_maniskill(f / "t.h5")),
    "robomimic": Sample("demo.hdf5", _robomimic),
    "robolab": Sample("out/StackTask/run_0.hdf5", _robolab),
    "lerobot v3.0": Sample("set", lambda f: write_lerobot(f / "set", [motion(0), motion(1)])),
    "lerobot v2.1": Sample("set", lambda f: write_lerobot_v21(f / "set")),
    "mcap": Sample("recording.mcap", _of_ros(write_sample_mcap), **ONE),
    "rosbag2": Sample("recording", _of_ros(write_sample_rosbag2), **ONE),
    "tum": Sample("run/cube.txt", lambda f: _two_files(f, write_sample_tum), bodies=("cube",), names=("cube",), **ONE),
    "euroc": Sample(
        "run/cube.csv", lambda f: _two_files(f, write_sample_euroc), bodies=("cube",), names=("cube",), **ONE
    ),
    "tum folder": Sample("run", lambda f: _two_files(f, write_sample_tum), **ONE),
    "bop": Sample(
        "estimates.csv",
        lambda f: write_sample_bop(f, motion()),
        names=("obj_000001", "obj_000002"),
        options={"fps": RATE_HZ},
        **ONE,
    ),
    "npz": Sample("demos.npz", lambda f: write_npz(f / "demos.npz")),
    "store": Sample("s", lambda f: write_store(f / "s", [motion(0), motion(1)], task="push")),
}
STAMP_NS = EPOCH_NS
