"""ROS 2 recordings: the same motion from .mcap and rosbag2, one tree of frames, one clock, and damaged files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace as Fields

import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

from jaxeval.io import InputError, bundled
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.mcap import is_mcap, read_mcap
from jaxeval.io.readers.ros_messages import ROS_FINDINGS, RosMessage, episodes_of_messages
from jaxeval.io.readers.rosbag2 import is_rosbag2, read_rosbag2
from jaxeval.types import Episode, Finding
from tests.executions import axis_turn, multiply, random_poses, small_episode
from tests.io.samples import T_WORLD_BASE, ros_messages, write_sample_mcap, write_sample_rosbag2

ONE = (1.0, 0.0, 0.0, 0.0)


def codes(findings: list[Finding]) -> list[str]:
    return [f.code for f in findings]


def real() -> Episode:
    """A bundled demonstration: four bodies, nine joints, 174 frames."""
    return bundled("stack_cube_demos").read(0, 1)[0]


# ------------------------------------------------------------------------------------------------- messages by hand


def header(frame: str, stamp_s: float) -> Fields:
    ns = round(stamp_s * 1e9)
    return Fields(frame_id=frame, stamp=Fields(sec=ns // 10**9, nanosec=ns % 10**9))


def turn(wxyz) -> Fields:
    return Fields(**dict(zip("wxyz", map(float, wxyz), strict=True)))


def place(xyz) -> Fields:
    return Fields(**dict(zip("xyz", map(float, xyz), strict=True)))


def message(topic: str, stamp_s: float, kind: str, content: Fields) -> RosMessage:
    return RosMessage(topic, round(stamp_s * 1e9), kind, content)


def pose(topic: str, stamp_s: float, xyz=(0, 0, 0), wxyz=ONE, *, frame: str = "world") -> RosMessage:
    content = Fields(header=header(frame, stamp_s), pose=Fields(position=place(xyz), orientation=turn(wxyz)))
    return message(topic, stamp_s, "geometry_msgs/msg/PoseStamped", content)


def link(parent: str, child: str, stamp_s: float, xyz=(0, 0, 0), wxyz=ONE) -> Fields:
    T = Fields(translation=place(xyz), rotation=turn(wxyz))
    return Fields(header=header(parent, stamp_s), child_frame_id=child, transform=T)


def tf(stamp_s: float, *links: Fields, topic: str = "/tf") -> RosMessage:
    return message(topic, stamp_s, "tf2_msgs/msg/TFMessage", Fields(transforms=list(links)))


def joints(stamp_s: float, **positions: float) -> RosMessage:
    content = Fields(header=header("", stamp_s), name=list(positions), position=list(positions.values()))
    return message("/joint_states", stamp_s, "sensor_msgs/msg/JointState", content)


def episodes(*messages: RosMessage, bodies: tuple[str, ...] | None = None) -> tuple[list[Episode], list[Finding]]:
    path = Path("run.mcap")
    return episodes_of_messages(path, messages, FileFindings(path, ROS_FINDINGS), bodies=bodies)


def cube(n: int = 5, step_s: float = 0.1, *, start_s: float = 1.0) -> list[RosMessage]:
    return [pose("/cube/pose", start_s + k * step_s, (k, 0, 0)) for k in range(n)]


# ------------------------------------------------------------------------------------------------ the same motion


@pytest.mark.parametrize("kind", ["mcap", "sqlite3", "rosbag2 of mcap", "db3 alone"])
def test_a_recording_gives_the_recorded_arrays(tmp_path: Path, kind: str) -> None:
    e = real()
    if kind == "mcap":
        (back,), findings = read_mcap(write_sample_mcap(tmp_path, e))
    else:
        path = write_sample_rosbag2(tmp_path, e, storage="mcap" if "mcap" in kind else "sqlite3")
        (back,), findings = read_rosbag2(next(path.glob("*.db3")) if kind == "db3 alone" else path)
    assert set(back.bodies) == {*e.bodies, "base"} and back.episode_id == "recording" and back.valid.all()
    for body in e.bodies:
        np.testing.assert_allclose(back.body(body), e.body(body), atol=1e-9)
    np.testing.assert_array_equal(back.body("base"), np.tile(T_WORLD_BASE, (e.n_frames, 1)))
    np.testing.assert_allclose(back.time_s, e.time_s, atol=1e-9)
    np.testing.assert_allclose(back.joints, e.joints, atol=1e-9)
    assert back.joint_names == e.joint_names
    np.testing.assert_allclose(back.gripper_width_m, e.gripper_width_m, atol=1e-6)  # recorded as float32
    assert (back.success_at_end, back.success_once, back.seed) == (None, None, None)
    assert codes(findings) == ["rebased", "gripper_width"]


# ------------------------------------------------------------------------------------------------- tree of frames


def test_chains_are_composed_to_the_root() -> None:
    still, moving, hand = random_poses(1, 0)[0], random_poses(6, 1), random_poses(6, 2)
    out = [tf(9.0, link("world", "table", 0, still[4:], still[:4]), topic="/tf_static")]
    for k in range(6):
        out.append(
            tf(1 + k, link("table", "arm", 1 + k, moving[k, 4:], moving[k, :4]),
               link("/arm", "hand", 1 + k, hand[k, 4:], hand[k, :4]))
        )  # fmt: skip
    (e,), _ = episodes(*out)
    assert e.bodies == ("table", "arm", "hand")
    arm = multiply(np.tile(still, (6, 1)), moving)
    np.testing.assert_allclose(e.body("arm"), arm, atol=1e-12)
    np.testing.assert_allclose(e.body("hand"), multiply(arm, hand), atol=1e-12)


def test_frames_that_nothing_ties_to_the_root_are_left_out() -> None:
    lost = [tf(1 + k / 10, link("camera", "cup", 1 + k / 10)) for k in range(5)]
    other = [pose("/tcp_pose", 1 + k / 10) for k in range(5)]
    (e,), findings = episodes(*cube(), *lost, *other)
    assert e.bodies == ("cube", "tcp")
    (left,) = [f for f in findings if f.code == "other_root"]
    assert "cup in frame 'camera', which nothing ties to 'world'" in left.found


def test_bodies_that_count_decide_which_frames_are_valid() -> None:
    rare = [tf(1 + k / 10, link("world", "arm", 1 + k / 10), link("arm", "hand", 1 + k / 10)) for k in (0, 1)]
    lost = [tf(1 + k / 10, link("camera", "cup", 1 + k / 10)) for k in range(5)]
    (e,), findings = episodes(*cube(), *rare, *lost)
    assert e.bodies == ("cube", "arm", "hand") and e.frame_valid.all() and e.valid_of("cube").all()
    assert e.valid_of("arm").tolist() == e.valid_of("hand").tolist() == [True, True, False, False, False]
    assert codes(findings).count("unmatched") == 2
    (e,), findings = episodes(*cube(), *rare, *lost, bodies=("cube",))
    assert e.bodies == ("cube",) and e.valid.all() and codes(findings) == ["rebased"]
    assert episodes(*cube(), *rare, *lost, bodies=("hand", "cube"))[0][0].bodies == ("hand", "cube")
    with pytest.raises(InputError, match="no frame spoon; it has cube, arm, hand, cup"):
        episodes(*cube(), *rare, *lost, bodies=("spoon",))
    with pytest.raises(InputError, match="cube in 'world', cup in 'camera', which nothing ties together"):
        episodes(*cube(), *rare, *lost, bodies=("cube", "cup"))


def test_names_of_topics() -> None:
    same = [pose(f"/{side}/cube/pose", 1 + k) for k in range(3) for side in ("left", "right")]
    assert episodes(*same)[0][0].bodies == ("left/cube/pose", "right/cube/pose")
    two = [*cube(3, 1.0), *(tf(1 + k, link("world", "cube", 1 + k, (9, 9, 9))) for k in range(4))]
    (e,), findings = episodes(*two)
    assert e.bodies == ("cube",) and e.n_frames == 4 and codes(findings) == ["several_sources", "rebased"]


def test_a_loop_of_frames_is_refused() -> None:
    with pytest.raises(InputError, match="form a loop"):
        episodes(*(tf(1 + k, link("a", "b", 1 + k), link("b", "a", 1 + k)) for k in range(3)))


# ------------------------------------------------------------------------------------------------------ one clock


def test_a_slower_body_is_interpolated_onto_the_clock_of_the_fastest() -> None:
    fast_s, slow_s = 1 + np.arange(61) / 60, 1.003 + np.arange(20) / 20
    turns = Rotation.from_quat(np.stack([axis_turn([1, 2, 3], 0.3 * k) for k in range(20)]), scalar_first=True)
    xyz = np.random.default_rng(0).normal(size=(20, 3))
    out = [pose("/tcp/pose", t) for t in fast_s]
    quats = turns.as_quat(scalar_first=True) * np.where(np.arange(20) % 2, -1, 1)[:, None]
    out += [pose("/cube/pose", t, xyz[k], quats[k]) for k, t in enumerate(slow_s)]
    (e,), findings = episodes(*out)
    np.testing.assert_allclose(e.time_s, fast_s - 1, atol=1e-9)
    inside = (fast_s >= slow_s[0]) & (fast_s <= slow_s[-1])
    np.testing.assert_array_equal(e.valid_of("cube"), inside)
    assert e.valid_of("tcp").all()
    right = Slerp(slow_s, turns)(fast_s[inside]).as_quat(scalar_first=True)
    got = e.body("cube")[inside]
    np.testing.assert_allclose(np.abs((got[:, :4] * right).sum(-1)), 1, atol=1e-9)
    for axis in range(3):
        np.testing.assert_allclose(got[:, 4 + axis], np.interp(fast_s[inside], slow_s, xyz[:, axis]), atol=1e-6)
    told = {f.code: f.found for f in findings}
    assert told["resampled"] == "cube (20 Hz) put on the 61 stamps of tcp (60 Hz)"
    assert told["unmatched"] == f"cube has no pose at {int((~inside).sum())} of 61 frames"


def test_nothing_is_interpolated_across_a_gap() -> None:
    clock = [pose("/tcp/pose", 1 + k / 10) for k in range(41)]
    seen = [k for k in range(0, 41) if not 10 < k < 15 and not 20 < k < 26]  # gaps of 5 and of 6 steps
    (e,), findings = episodes(*clock, *(pose("/cube/pose", 1 + k / 10, (k, 0, 0)) for k in seen))
    seen = e.valid_of("cube")
    assert np.flatnonzero(~seen).tolist() == [21, 22, 23, 24, 25] and e.valid_of("tcp").all()
    np.testing.assert_allclose(e.body("cube")[seen, 4], np.flatnonzero(seen), atol=1e-9)
    assert np.isnan(e.body("cube")[~seen]).all()
    assert codes(findings) == ["resampled", "unmatched", "rebased"]


def test_lost_poses_stay_gaps() -> None:
    out = cube(20) + [pose("/tcp/pose", m.log_ns / 1e9) for m in cube(20)]
    out[4] = pose("/cube/pose", 1.4, (4, 0, 0), (0, 0, 0, 0))
    out[6] = pose("/cube/pose", 1.6, (np.nan, 0, 0))
    (e,), _ = episodes(*out)
    assert {"zero_quaternion", "non_finite_pose"} <= {f.code for f in e.check()}
    assert np.flatnonzero(~e.prepared().valid_of("cube")).tolist() == [4, 6] and e.prepared().valid_of("tcp").all()


def test_recordings_that_were_joined_are_split() -> None:
    first = [*cube(60), *(tf(1 + k / 10, link("world", "tcp", 1 + k / 10)) for k in range(60))]
    again = sorted(first, key=lambda m: m.log_ns)
    out, findings = episodes(*again, *again, *(m for m in again if m.log_ns < 4e9))
    assert [e.episode_id for e in out] == ["run/part=0", "run/part=1", "run/part=2"]
    assert [e.n_frames for e in out] == [60, 60, 30] and all(e.valid.all() for e in out)
    assert codes(findings).count("stamps_step_back") == 4  # twice for each of two topics
    with pytest.raises(InputError, match="stamps step back cube 1 times, tcp 0 times"):
        episodes(*again, *cube(60))


def test_a_long_pause_splits() -> None:
    out, findings = episodes(*cube(20), *cube(20, start_s=15.0))
    assert [e.n_frames for e in out] == [20, 20] and codes(findings) == ["rebased", "long_gap"]


# ---------------------------------------------------------------------------------------------------------- joints


def test_gripper_width_comes_from_sliding_fingers_alone() -> None:
    def width(**positions: float) -> tuple[Episode, list[str]]:
        (e,), findings = episodes(*cube(), *(joints(1 + k / 10, **positions) for k in range(5)))
        return e, codes(findings)

    e, told = width(panda_joint1=1.5, panda_finger_joint1=0.03, panda_finger_joint2=0.02)
    np.testing.assert_allclose(e.gripper_width_m, 0.05)
    assert e.joint_names == ("panda_joint1", "panda_finger_joint1", "panda_finger_joint2") and "gripper_width" in told
    np.testing.assert_array_equal(e.joints, np.tile([1.5, 0.03, 0.02], (5, 1)))
    assert width(finger_joint=0.1)[0].gripper_width_m is None  # a hinge
    assert width(robotiq_85_left_finger_joint=0.1)[0].gripper_width_m is None
    assert width(elbow=0.1)[0].gripper_width_m is None
    e, told = width(left_finger_joint=0.7)
    assert e.gripper_width_m is None and "gripper_width" in told
    assert width()[0].joints is None


def test_joints_of_another_clock_are_interpolated_and_unknown_outside() -> None:
    (e,), _ = episodes(*cube(), *(joints(1.05 + k / 10, elbow=float(k)) for k in range(4)))
    np.testing.assert_allclose(e.joints[:, 0], [np.nan, 0.5, 1.5, 2.5, np.nan], atol=1e-9)
    assert e.valid.all()
    again = [*cube(60), *cube(60)]
    out, findings = episodes(*again, *(joints(1 + k / 10, elbow=0.0) for k in range(60)))
    assert len(out) == 2 and out[0].joints is None and "joints_left_out" in codes(findings)


# ----------------------------------------------------------------------------------------- what cannot be read


def test_recordings_without_poses_are_refused() -> None:
    with pytest.raises(InputError, match=r"run\.mcap: no poses .* to read; it holds nothing"):
        episodes()
    with pytest.raises(InputError, match="it holds joints"):
        episodes(joints(1.0, elbow=1.0))
    with pytest.raises(InputError, match="no frame moves"):
        episodes(tf(1.0, link("world", "table", 1.0), topic="/tf_static"))
    with pytest.raises(InputError, match="every header stamp is 0"):
        episodes(*(pose("/cube/pose", 0.0) for _ in range(5)))
    (e,), findings = episodes(*cube(), *(pose("/cup/pose", 0.0) for _ in range(5)))
    assert e.bodies == ("cube",) and "no_stamp" in codes(findings)


def test_odd_messages_are_left_out_and_said() -> None:
    odd = message("/cube/pose", 1.0, "geometry_msgs/msg/PoseStamped", Fields(header=header("world", 1.0)))
    late = message("/cube/pose", 1.0, "geometry_msgs/msg/PoseStamped", cube(1)[0].message)
    late.message.header.stamp.sec = 2**40
    (e,), findings = episodes(odd, late, *cube())
    assert e.n_frames == 5 and codes(findings) == ["undecodable", "rebased"]


def test_other_topics_are_passed_over_and_named(tmp_path: Path) -> None:
    stamp = next(
        m.header for _, _, m in ros_messages(small_episode(2, bodies=("a", "b", "tcp"))) if hasattr(m, "header")
    )
    only = [("/clock", k, stamp) for k in range(3)]
    for path, read in (
        (write_sample_mcap(tmp_path, real(), messages=iter(only)), read_mcap),
        (write_sample_rosbag2(tmp_path, real(), messages=iter(only)), read_rosbag2),
    ):
        with pytest.raises(InputError, match="it holds std_msgs/Header; record the topics of the bodies"):
            read(path)


def test_cut_mcap_files_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    e = small_episode(40, bodies=("cube", "box", "tcp"))
    path = write_sample_mcap(tmp_path, e, chunk_size=2000, compressed=False)
    (whole,), _ = read_mcap(path)
    data = path.read_bytes()
    kept = []
    for size in range(0, len(data), len(data) // 60):
        path.write_bytes(data[:size])
        try:
            (part,), findings = read_mcap(path)
        except InputError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            continue
        assert "damaged" in codes(findings)
        kept.append(part.n_frames)
        for body in part.bodies:
            seen = part.valid_of(body)
            np.testing.assert_array_equal(part.body(body)[seen], whole.body(body)[: part.n_frames][seen])
    assert kept == sorted(kept) and kept[0] < 20 and kept[-1] == 40
    flipped = bytearray(data)
    flipped[len(data) // 3] ^= 1
    path.write_bytes(bytes(flipped))
    (part,), findings = read_mcap(path)
    assert part.n_frames < 40 and "damaged" in codes(findings)


def test_bad_mcap_files_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("mcap_ros2")
    path = tmp_path / "a.mcap"
    for data, told in (
        (b"", "the file is empty"),
        (b"PK\x03\x04abcdefgh", "this is a zip archive"),
        (b"hello", "this is not an MCAP file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "this is a Git-LFS pointer"),
        (b"\x89MCAP0\r\n", "damaged before its first pose"),
        (b"\x89MCAP0\r\n" + bytes(range(256)), "damaged before its first pose"),
    ):
        path.write_bytes(data)
        assert is_mcap(path)
        with pytest.raises(InputError, match=rf"a\.mcap: .*{told}"):
            read_mcap(path)
    with pytest.raises(InputError, match="there is no such file"):
        read_mcap(tmp_path / "none.mcap")
    assert not is_mcap(tmp_path)


def test_bad_rosbag2_folders_are_refused(tmp_path: Path) -> None:
    e = small_episode(12, bodies=("cube", "box", "tcp"))
    path = write_sample_rosbag2(tmp_path, e)
    (db3,), about = path.glob("*.db3"), path / "metadata.yaml"
    data, yaml = db3.read_bytes(), about.read_text()
    assert is_rosbag2(path) and is_rosbag2(db3) and not is_rosbag2(tmp_path)
    for spoilt in (b"", data[:50], data[: len(data) // 2], b"version https://git-lfs.github.com/spec/v1\n"):
        db3.write_bytes(spoilt)
        with pytest.raises(InputError, match="recording"):
            read_rosbag2(path)
    db3.write_bytes(data)
    for spoilt in ("", ": [", "a: 1\n", yaml[:60], yaml.replace("version: 9", "version: 99"), "\x00"):
        about.write_text(spoilt)
        with pytest.raises(InputError, match="this rosbag2 cannot be opened"):
            read_rosbag2(path)
        assert is_rosbag2(path)
    about.write_text(yaml.replace("message_count: 12", "message_count: 13"))
    (part,), findings = read_rosbag2(path)
    assert part.n_frames == 12 and "37 messages of use, where the recorder counted" in findings[0].found
    about.unlink()
    with pytest.raises(InputError, match=r"no metadata\.yaml, expected a rosbag2 folder"):
        read_rosbag2(path)
    with pytest.raises(InputError, match="there is no such folder"):
        read_rosbag2(tmp_path / "none")
    assert read_rosbag2(db3)[0][0].n_frames == 12


def test_a_library_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e = small_episode(3, bodies=("cube", "box", "tcp"))
    for path, read, module in (
        (write_sample_mcap(tmp_path, e), read_mcap, "mcap.records"),
        (write_sample_rosbag2(tmp_path, e), read_rosbag2, "rosbags.rosbag2"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(InputError, match=r"pip install 'jaxeval\[ros\]'"):
            read(path)
