"""One episode written in each format people have, by that format's own library where there is one.

Every function takes a folder and an episode with unit quaternions, and returns the path to open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxeval.types import Episode
from tests.executions import multiply

EPOCH_NS = 1_403_636_580_838_555_574  # a stamp of the EuRoC data set: float64 seconds resolve 0.24 us there
T_WORLD_BASE = np.array([0.8, 0.0, 0.0, 0.6, -0.615, 0.1, 0.05])  # a robot that stands turned beside the origin
EUROC_HEADER = (
    "#timestamp [ns],p_RS_R_x [m],p_RS_R_y [m],p_RS_R_z [m],q_RS_w [],q_RS_x [],q_RS_y [],q_RS_z [],v_RS_R_x [m s^-1]"
)


def stamps_ns(episode: Episode, start_ns: int = EPOCH_NS) -> np.ndarray:
    return start_ns + np.rint(np.asarray(episode.time_s) * 1e9).astype(np.int64)


def as_seconds(stamp_ns: int) -> str:
    """All nine decimals, which a float64 would not hold."""
    return f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"


def write_sample_tum(folder: Path, episode: Episode, *, start_ns: int = EPOCH_NS) -> Path:
    """A folder with one ``BODY.txt`` a body."""
    folder.mkdir(parents=True, exist_ok=True)
    for body in episode.bodies:
        rows = ["# timestamp tx ty tz qx qy qz qw"]
        for stamp, (w, x, y, z, *xyz) in zip(stamps_ns(episode, start_ns), episode.body(body).tolist(), strict=True):
            rows.append(" ".join([as_seconds(int(stamp)), *map(repr, (*xyz, x, y, z, w))]))
        (folder / f"{body}.txt").write_text("\n".join(rows) + "\n")
    return folder


def write_sample_euroc(folder: Path, episode: Episode, *, start_ns: int = EPOCH_NS) -> Path:
    """A folder with one ``BODY.csv`` a body."""
    folder.mkdir(parents=True, exist_ok=True)
    for body in episode.bodies:
        rows = [EUROC_HEADER]
        for stamp, (*wxyz, x, y, z) in zip(stamps_ns(episode, start_ns), episode.body(body).tolist(), strict=True):
            rows.append(",".join([str(stamp), *map(repr, (x, y, z, *wxyz, 0.0))]))
        (folder / f"{body}.csv").write_text("\n".join(rows) + "\n")
    return folder


def write_sample_bop(folder: Path, episode: Episode, *, scene: int = 1, missing: tuple[int, ...] = ()) -> Path:
    """A results file in which body k is object k + 1 and frame i image i; the last body is not found in `missing`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["scene_id,im_id,obj_id,score,R,t,time"]
    for frame, poses in enumerate(episode.poses):
        for k, (wxyz, xyz) in enumerate(zip(poses[:, :4], poses[:, 4:], strict=True)):
            if frame in missing and k == len(episode.bodies) - 1:
                continue
            R = Rotation.from_quat(wxyz, scalar_first=True).as_matrix()
            R_text, t_text = (" ".join(map(repr, v.ravel().tolist())) for v in (R, 1000 * xyz))
            rows.append(f"{scene},{frame},{k + 1},0.9,{R_text},{t_text},0.05")
    path = folder / "estimates.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


# ------------------------------------------------------------------------------------------------------------ ROS


def ros_types() -> Any:
    pytest.importorskip("rosbags")
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


def ros_messages(episode: Episode, *, start_ns: int = EPOCH_NS) -> Iterator[tuple[str, int, Any]]:
    """(topic, header stamp in ns, message): the first body a PoseStamped, the second Odometry, the others transforms.

    The body ``tcp`` is a transform in the frame ``base``, which a static transform holds at T_WORLD_BASE.
    """
    t = ros_types().types

    def header(frame: str, stamp: int) -> Any:
        time = t["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
        return t["std_msgs/msg/Header"](stamp=time, frame_id=frame)

    def transform(parent: str, child: str, stamp: int, pose: np.ndarray) -> Any:
        w, x, y, z, *xyz = map(float, pose)
        return t["geometry_msgs/msg/TransformStamped"](
            header=header(parent, stamp),
            child_frame_id=child,
            transform=t["geometry_msgs/msg/Transform"](
                translation=t["geometry_msgs/msg/Vector3"](*xyz), rotation=t["geometry_msgs/msg/Quaternion"](x, y, z, w)
            ),
        )

    def pose_of(pose: np.ndarray) -> Any:
        w, x, y, z, *xyz = map(float, pose)
        return t["geometry_msgs/msg/Pose"](
            position=t["geometry_msgs/msg/Point"](*xyz), orientation=t["geometry_msgs/msg/Quaternion"](x, y, z, w)
        )

    def odometry(child: str, stamp: int, pose: np.ndarray) -> Any:
        zero = t["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0)
        return t["nav_msgs/msg/Odometry"](
            header=header("world", stamp),
            child_frame_id=child,
            pose=t["geometry_msgs/msg/PoseWithCovariance"](pose=pose_of(pose), covariance=np.zeros(36)),
            twist=t["geometry_msgs/msg/TwistWithCovariance"](
                twist=t["geometry_msgs/msg/Twist"](linear=zero, angular=zero), covariance=np.zeros(36)
            ),
        )

    stamps = stamps_ns(episode, start_ns).tolist()
    still = transform("world", "base", stamps[0], T_WORLD_BASE)
    yield "/tf_static", stamps[0], t["tf2_msgs/msg/TFMessage"](transforms=[still])
    first, second, *others = episode.bodies
    in_base = multiply(np.broadcast_to(inverse(T_WORLD_BASE), (episode.n_frames, 7)), episode.body("tcp"))
    for k, stamp in enumerate(stamps):
        pose = pose_of(episode.body(first)[k])
        yield f"/{first}/pose", stamp, t["geometry_msgs/msg/PoseStamped"](header=header("world", stamp), pose=pose)
        yield "/odom", stamp, odometry(second, stamp, episode.body(second)[k])
        linked = [
            transform("base", b, stamp, in_base[k]) if b == "tcp" else transform("world", b, stamp, episode.body(b)[k])
            for b in others
        ]
        yield "/tf", stamp, t["tf2_msgs/msg/TFMessage"](transforms=linked)
        if episode.joints is not None:
            positions = np.asarray(episode.joints[k], np.float64)
            empty = np.zeros(0)
            yield (
                "/joint_states",
                stamp,
                t["sensor_msgs/msg/JointState"](
                    header=header("", stamp),
                    name=list(episode.joint_names),
                    position=positions,
                    velocity=empty,
                    effort=empty,
                ),
            )


def inverse(T: np.ndarray) -> np.ndarray:
    conjugate = np.array([T[0], *-T[1:4], 0, 0, 0])
    return multiply(conjugate, np.array([1.0, 0, 0, 0, *-T[4:]]))


def plain(message: Any) -> Any:
    """A message of rosbags as nested dictionaries and lists, which the writer of MCAP takes."""
    if dataclasses.is_dataclass(message):
        return {f.name: plain(getattr(message, f.name)) for f in dataclasses.fields(message)}
    if isinstance(message, list | np.ndarray):
        return [plain(m) for m in message] if isinstance(message, list) else message.tolist()
    return message


def write_sample_mcap(
    folder: Path,
    episode: Episode,
    *,
    start_ns: int = EPOCH_NS,
    log_ns: Any = None,
    messages: Iterator[tuple[str, int, Any]] | None = None,
    chunk_size: int = 2**20,
    compressed: bool = True,
) -> Path:
    """``recording.mcap`` by mcap-ros2-support; ``log_ns`` maps a header stamp to the recorder's clock."""
    pytest.importorskip("mcap_ros2")
    from mcap.writer import CompressionType
    from mcap_ros2.writer import Writer

    folder.mkdir(parents=True, exist_ok=True)
    path, store, schemas = folder / "recording.mcap", ros_types(), dict[str, Any]()
    compression = CompressionType.ZSTD if compressed else CompressionType.NONE
    with open(path, "wb") as file, Writer(file, chunk_size, compression) as writer:
        for topic, stamp, message in messages or ros_messages(episode, start_ns=start_ns):
            kind = message.__msgtype__
            if kind not in schemas:
                schemas[kind] = writer.register_msgdef(kind, store.generate_msgdef(kind, ros_version=2)[0])
            log = stamp if log_ns is None else log_ns(stamp)
            writer.write_message(topic, schemas[kind], plain(message), log_time=log, publish_time=log)
    return path


def write_sample_rosbag2(
    folder: Path,
    episode: Episode,
    *,
    storage: str = "sqlite3",
    start_ns: int = EPOCH_NS,
    log_ns: Any = None,
    messages: Iterator[tuple[str, int, Any]] | None = None,
) -> Path:
    """The folder ``recording`` by rosbags; ``storage`` is ``sqlite3`` (.db3) or ``mcap``."""
    pytest.importorskip("rosbags")
    from rosbags.rosbag2 import StoragePlugin, Writer

    folder.mkdir(parents=True, exist_ok=True)
    path, store, connections = folder / "recording", ros_types(), dict[str, Any]()
    plugin = StoragePlugin.MCAP if storage == "mcap" else StoragePlugin.SQLITE3
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        for topic, stamp, message in messages or ros_messages(episode, start_ns=start_ns):
            kind = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=store)
            log = stamp if log_ns is None else log_ns(stamp)
            writer.write(connections[topic], log, bytes(store.serialize_cdr(message, kind)))
    return path
