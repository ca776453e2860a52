"""Files to read, written from the bundled motion by each format's own library, and that library's plain reading.

A plain reading decodes every number of the file that jaxeval uses and looks at none of them: no check of units, order
of quaternions, clocks, scenes or outcomes. What a reader takes beyond it is the price of those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io import (
    bundled,
    bundled_path,
    read_lerobot,
    read_maniskill,
    read_mcap,
    read_rosbag2,
    read_tum,
    write_lerobot,
    write_tum,
)
from jaxeval.types import Episode


@dataclass(frozen=True)
class Format:
    """How a file is written, what reads it without checks, and what jaxeval reads it with."""

    name: str
    write: Callable[[Path, int], Path]  # (folder, frames or so) -> what to open
    peer: str
    plain: Callable[[Path], Any]
    read: Callable[[Path], Any]


def formats() -> list[Format]:
    """Those whose libraries are there, in the order of their names; a sentence is printed for any other."""
    known = [
        Format("TUM", _write_tum, "numpy.loadtxt", _plain_tum, read_tum),
        Format("ManiSkill h5", _write_maniskill, "h5py", _plain_hdf5, read_maniskill),
        Format("LeRobot v3.0", _write_lerobot, "pyarrow read_table", _plain_parquet, read_lerobot),
    ]
    try:
        import mcap_ros2  # noqa: F401
        import rosbags  # noqa: F401
    except ImportError as error:
        print(f"MCAP and rosbag2 are left out ({error}): pip install 'jaxeval[ros]'")
    else:
        known += [
            Format("MCAP", _write_mcap, "mcap-ros2-support", _plain_mcap, read_mcap),
            Format("rosbag2 (sqlite3)", _write_rosbag2, "rosbags", _plain_rosbag2, read_rosbag2),
        ]
    return known


def frames_of(episodes: list[Episode]) -> int:
    """How many frames were read."""
    return sum(e.n_frames for e in episodes)


def _recording(frames_n: int) -> Episode:
    """One long recording: a demonstration's motion there and back, over and over, at its own 20 Hz."""
    e = next(iter(bundled("stack_cube_demos").iter_episodes()))
    once = np.concatenate([np.arange(e.n_frames), np.arange(e.n_frames - 2, 0, -1)])
    frames = once[np.arange(frames_n) % len(once)]
    return replace(
        e,
        poses=np.asarray(e.poses, np.float64)[frames],
        time_s=np.arange(frames_n) / 20,
        valid=np.ones((frames_n, len(e.bodies)), bool),
        frame_valid=np.ones(frames_n, bool),
        gripper_width_m=None,
        joints=None,
        joint_names=(),
        actions=None,
        sub_task=None,
        sub_task_names=(),
    )


# --------------------------------------------------------------------------------------------------------------- TUM


def _write_tum(folder: Path, n: int) -> Path:
    write_tum(folder / "track.txt", _recording(n), "tcp")
    return folder / "track.txt"


def _plain_tum(path: Path) -> Any:
    return np.loadtxt(path, comments="#")


# ---------------------------------------------------------------------------------------------------------- ManiSkill


def _write_maniskill(folder: Path, n: int) -> Path:
    """The bundled raw recording's episodes under n names."""
    import h5py

    raw = bundled_path("stack_cube_demos").parent / "maniskill" / "StackCube-v1.h5"
    about = json.loads(raw.with_suffix(".json").read_text())
    some = about["episodes"]
    path = folder / raw.name
    with h5py.File(raw) as old, h5py.File(path, "w") as new:
        for k in range(n):
            old.copy(f"traj_{k % len(some)}", new, f"traj_{k}")
    about["episodes"] = [some[k % len(some)] | {"episode_id": k, "episode_seed": k} for k in range(n)]
    path.with_suffix(".json").write_text(json.dumps(about))
    return path


def _plain_hdf5(path: Path) -> Any:
    import h5py

    out: list[np.ndarray] = []
    with h5py.File(path) as file:
        file.visititems(lambda _, node: out.append(node[()]) if isinstance(node, h5py.Dataset) else None)
    return out


# ------------------------------------------------------------------------------------------------------------ LeRobot


def _write_lerobot(folder: Path, n: int) -> Path:
    some = list(bundled("stack_cube_demos").iter_episodes())
    write_lerobot(folder / "data_set", [replace(some[k % len(some)], episode_id=str(k)) for k in range(n)])
    return folder / "data_set"


def _plain_parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    out = []
    for file in sorted((path / "data").rglob("*.parquet")):
        for column in pq.read_table(file).columns:
            flat = column.combine_chunks()
            while hasattr(flat, "flatten") and flat.type.num_fields:
                flat = flat.flatten()
            out.append(flat.to_numpy(zero_copy_only=False))
    return out


# ---------------------------------------------------------------------------------------------------------------- ROS


def _messages(frames_n: int) -> Iterator[tuple[str, int, Any]]:
    """(topic, stamp in ns, message): the gripper as PoseStamped, the other bodies as one TFMessage a frame."""
    from rosbags.typesys import Stores, get_typestore

    t: Any = get_typestore(Stores.ROS2_HUMBLE).types
    e = _recording(frames_n)

    def header(stamp: int) -> Any:
        time = t["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
        return t["std_msgs/msg/Header"](stamp=time, frame_id="world")

    def parts(pose: np.ndarray, place: str) -> tuple[Any, Any]:
        w, x, y, z, *xyz = pose.tolist()
        return t[f"geometry_msgs/msg/{place}"](*xyz), t["geometry_msgs/msg/Quaternion"](x, y, z, w)

    others = [b for b in e.bodies if b != "tcp"]
    for k, seconds in enumerate(e.time_s.tolist()):
        stamp = 1_700_000_000_000_000_000 + round(seconds * 1e9)
        pose = t["geometry_msgs/msg/Pose"](*parts(e.body("tcp")[k], "Point"))
        yield "/tcp/pose", stamp, t["geometry_msgs/msg/PoseStamped"](header=header(stamp), pose=pose)
        moved = [
            t["geometry_msgs/msg/TransformStamped"](
                header=header(stamp),
                child_frame_id=b,
                transform=t["geometry_msgs/msg/Transform"](*parts(e.body(b)[k], "Vector3")),
            )
            for b in others
        ]
        yield "/tf", stamp, t["tf2_msgs/msg/TFMessage"](transforms=moved)


def _write_rosbag2(folder: Path, n: int) -> Path:
    from rosbags.rosbag2 import Writer
    from rosbags.typesys import Stores, get_typestore

    store, connections = get_typestore(Stores.ROS2_HUMBLE), dict[str, Any]()
    with Writer(folder / "recording", version=9) as writer:
        for topic, stamp, message in _messages(n):
            kind = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=store)
            writer.write(connections[topic], stamp, bytes(store.serialize_cdr(message, kind)))
    return folder / "recording"


def _plain_rosbag2(path: Path) -> Any:
    from rosbags.rosbag2 import Reader
    from rosbags.typesys import Stores, get_typestore

    store, n = get_typestore(Stores.ROS2_HUMBLE), 0
    with Reader(path) as reader:
        for connection, _, raw in reader.messages():
            store.deserialize_cdr(raw, connection.msgtype)
            n += 1
    return n


def _write_mcap(folder: Path, n: int) -> Path:
    from dataclasses import fields, is_dataclass

    from mcap.writer import CompressionType
    from mcap_ros2.writer import Writer
    from rosbags.typesys import Stores, get_typestore

    def plain(x: Any) -> Any:
        if is_dataclass(x):
            return {f.name: plain(getattr(x, f.name)) for f in fields(x)}
        return [plain(v) for v in x] if isinstance(x, list) else x

    store, schemas, path = get_typestore(Stores.ROS2_HUMBLE), dict[str, Any](), folder / "recording.mcap"
    with open(path, "wb") as file, Writer(file, compression=CompressionType.NONE) as writer:
        for topic, stamp, message in _messages(n):
            kind = message.__msgtype__
            if kind not in schemas:
                schemas[kind] = writer.register_msgdef(kind, store.generate_msgdef(kind, ros_version=2)[0])
            writer.write_message(topic, schemas[kind], plain(message), log_time=stamp, publish_time=stamp)
    return path


def _plain_mcap(path: Path) -> Any:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with open(path, "rb") as file:
        return sum(1 for _ in make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages())
