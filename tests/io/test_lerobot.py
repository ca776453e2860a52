"""LeRobot data sets written by LeRobot itself (see tests/data/lerobot_*/README.md), read with pyarrow alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxeval.io import InputError, bundled
from jaxeval.io.readers.lerobot import is_lerobot, read_lerobot
from jaxeval.io.readers.lerobot_names import names_of, pose_slots
from jaxeval.robots import load_robot
from jaxeval.types import Episode, Finding

DATA = Path(__file__).parents[1] / "data"
V21, V30 = DATA / "lerobot_v21", DATA / "lerobot_v30"
FILE = "data/chunk-000/file-000.parquet"
ARRAYS = ("poses", "time_s", "valid", "gripper_width_m", "joints", "actions")


@pytest.fixture(scope="module")
def recorded() -> list[Episode]:
    return bundled("stack_cube_demos").read(0, 3)


def codes(findings: list[Finding]) -> set[str]:
    return {f.code for f in findings}


def copied(folder: Path, source: Path) -> Path:
    return Path(shutil.copytree(source, folder / "set"))


def edit_info(root: Path, **changes: object) -> None:
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps(info | changes))


def edit_feature(root: Path, old: str, new: str | None, **changes: object) -> None:
    """Rename a feature (or drop it), in info.json and in the data."""
    info = json.loads((root / "meta/info.json").read_text())
    feature = info["features"].pop(old)
    if new is not None:
        info["features"][new] = feature | changes
    (root / "meta/info.json").write_text(json.dumps(info))
    table = pq.read_table(root / FILE)
    names = [new if n == old and new else n for n in table.column_names]
    table = table.rename_columns(names)
    pq.write_table(table if new else table.drop_columns([old]), root / FILE)


def edit_column(root: Path, name: str, column: pa.Array) -> None:
    table = pq.read_table(root / FILE)
    pq.write_table(table.set_column(table.column_names.index(name), name, column), root / FILE)


def test_both_versions_are_the_same_arrays() -> None:
    (old, old_findings), (new, new_findings) = read_lerobot(V21), read_lerobot(V30)
    assert codes(old_findings) == codes(new_findings) == {"joints_from_state"}
    assert len(old) == len(new) == 3
    for a, b in zip(old, new, strict=True):
        assert (a.bodies, a.task, a.joint_names, a.success_at_end) == (
            b.bodies,
            b.task,
            b.joint_names,
            b.success_at_end,
        )
        for key in ARRAYS:
            np.testing.assert_array_equal(getattr(a, key), getattr(b, key), err_msg=key)


def test_values_are_those_recorded(recorded: list[Episode]) -> None:
    episodes, _ = read_lerobot(V30)
    for e, r in zip(episodes, recorded, strict=True):
        rows = np.arange(r.n_frames - 1, -1, -4)[::-1]  # every fourth frame, the last one included
        assert set(e.bodies) == set(r.bodies) and e.joint_names == r.joint_names
        for body in r.bodies:
            np.testing.assert_array_equal(e.body(body), r.body(body)[rows].astype(np.float32))
        np.testing.assert_array_equal(e.joints, r.joints[rows])
        np.testing.assert_array_equal(e.actions[1:], r.actions[rows][1:])
        np.testing.assert_allclose(e.time_s, np.arange(len(rows)) / 5, rtol=1e-6)
        assert e.success_at_end == e.success_once == r.success_at_end
        assert np.isnan(e.actions[0]).all() and e.task == "stack_cube" and e.check() == ()


@pytest.mark.parametrize(
    ("names", "slots"),
    [
        ("x y z qx qy qz qw", {"": (6, 3, 4, 5, 0, 1, 2)}),
        ("qw qx qy qz x y z", {"": (0, 1, 2, 3, 4, 5, 6)}),
        ("left_qz left_x left_qw left_y left_qx left_z left_qy", {"left": (2, 4, 6, 0, 1, 3, 5)}),
        ("x.ee y.ee z.ee qx.ee qy.ee qz.ee qw.ee", {"ee": (6, 3, 4, 5, 0, 1, 2)}),
        ("a_x a_y a_z a_qx a_qy a_qz b_qw", {}),  # one component belongs to another body
        ("x y z roll pitch yaw", {}),
        ("x x y z qx qy qz qw", {}),  # which x?
        ("max y z qx qy qz qw", {}),  # an x within a word is none
    ],
)
def test_the_order_of_a_pose_comes_from_its_names(names: str, slots: dict[str, tuple[int, ...]]) -> None:
    assert pose_slots(tuple(names.split())) == slots


def test_names_come_as_a_list_or_in_a_table() -> None:
    assert names_of({"shape": [2], "names": ["a", "b"]}) == ("a", "b")
    assert names_of({"shape": [2], "names": {"motors": ["a", "b"]}}) == ("a", "b")
    assert names_of({"shape": [3], "names": ["a", "b"]}) is None
    assert names_of({"shape": [2], "names": None}) is None
    assert names_of({"shape": [2], "names": [["a"], ["b"]]}) is None


def test_a_pose_without_names_is_left_out_not_guessed(tmp_path: Path) -> None:
    root = copied(tmp_path, V30)
    edit_feature(root, "observation.pose.cubeB", "observation.pose.cubeB", names=None)
    episodes, findings = read_lerobot(root)
    assert "cubeB" not in episodes[0].bodies and "pose_order_unknown" in codes(findings)


def test_a_pose_in_the_state_is_the_end_effectors(tmp_path: Path) -> None:
    wanted = read_lerobot(V30)[0][0].body("tcp")
    root = copied(tmp_path, V30)
    edit_feature(root, "observation.state", None)
    edit_feature(
        root, "observation.pose.tcp", "observation.state", names={"axes": ["x", "y", "z", "qx", "qy", "qz", "qw"]}
    )
    episodes, findings = read_lerobot(root)
    assert "tcp_by_name" in codes(findings)
    np.testing.assert_array_equal(episodes[0].body("tcp"), wanted)


def test_joints_alone_give_no_body_unless_a_robot_is_given(tmp_path: Path) -> None:
    wanted = read_lerobot(V30)[0][0].body("tcp")
    root = copied(tmp_path, V30)
    for body in ("cubeA", "cubeB", "tcp", "table"):
        edit_feature(root, f"observation.pose.{body}", None)
    episodes, findings = read_lerobot(root)
    assert episodes[0].bodies == () and episodes[0].joints.shape == (44, 9) and "no_poses" in codes(findings)
    (e, *_), findings = read_lerobot(root, robot=load_robot("panda"))
    assert e.bodies == ("tcp",) and "tcp_by_forward_kinematics" in codes(findings)
    # ManiSkill's Panda stands at x = -0.615 m
    np.testing.assert_allclose(e.body("tcp")[:, 4:] - [0.615, 0, 0], wanted[:, 4:], atol=1e-6)
    edit_feature(root, "observation.state", "observation.state", names=[f"joint{i}" for i in range(9)])
    with pytest.raises(InputError, match=r"joints joint0, .* but panda has"):
        read_lerobot(root, robot=load_robot("panda"))


def test_degrees_are_a_doubt(tmp_path: Path) -> None:
    root = copied(tmp_path, V30)
    names = [f"{n}.pos" for n in "abcdefghi"]
    edit_feature(root, "observation.state", "observation.state", names=names)
    episodes, findings = read_lerobot(root)
    assert "joint_units_unknown" in codes(findings) and episodes[0].joint_names == tuple(names)


def test_what_lacks_is_unknown(tmp_path: Path) -> None:
    root = copied(tmp_path, V30)
    for feature in ("next.success", "observation.gripper_width", "action", "timestamp"):
        edit_feature(root, feature, None)
    episodes, findings = read_lerobot(root)
    assert {"success_unknown", "no_gripper", "no_timestamp"} <= codes(findings)
    e = episodes[0]
    assert (e.success_once, e.success_at_end, e.gripper_width_m, e.actions) == (None, None, None, None)
    np.testing.assert_allclose(e.time_s, np.arange(44) / 5)


def test_scalars_may_be_lists_of_length_one(tmp_path: Path) -> None:
    root = copied(tmp_path, V30)
    table = pq.read_table(root / FILE)
    for name in ("timestamp", "frame_index", "episode_index", "next.success", "observation.gripper_width"):
        edit_column(root, name, pa.array([[v] for v in table[name].to_pylist()]))
    for e, w in zip(read_lerobot(root)[0], read_lerobot(V30)[0], strict=True):
        assert e.success_at_end == w.success_at_end
        for key in ARRAYS:
            np.testing.assert_array_equal(getattr(e, key), getattr(w, key))


def test_time_stamps_win_over_fps(tmp_path: Path) -> None:
    root = copied(tmp_path, V30)
    edit_info(root, fps=30)
    episodes, findings = read_lerobot(root)
    assert "fps_disagrees" in codes(findings) and episodes[0].time_s[1] == pytest.approx(0.2)


def test_missing_numbers_cost_that_body_the_frame(tmp_path: Path) -> None:
    root = copied(tmp_path, V30)
    rows = pq.read_table(root / FILE)["observation.pose.cubeA"].to_pylist()
    rows[3][2] = None
    edit_column(root, "observation.pose.cubeA", pa.array(rows, pa.list_(pa.float32(), 7)))
    e = read_lerobot(root)[0][0].prepared()
    assert not e.valid_of("cubeA")[3] and e.valid_of("cubeA").sum() == 43
    assert e.valid_of("cubeB", "tcp").all()  # what lies beside it was seen


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("next.success", pa.array([2] * 128), "next.success holds other values than 0 and 1"),
        ("timestamp", pa.array(["now"] * 128), "timestamp holds string, expected numbers"),
        ("observation.pose.tcp", pa.array([[0.0] * (6 + k % 2) for k in range(128)]), "lists of .* expected one width"),
        ("observation.pose.tcp", pa.array([[0.0] * 6] * 128), "has 6 columns, info.json names 7"),
        ("frame_index", pa.array(list(range(127, -1, -1))), "frame_index of episode 0, expected 0 to 43"),
        ("episode_index", pa.array([0] * 128), "128 frames of episode 0, the table of episodes says 44"),
        ("observation.state", pa.array([[0.0] * 8] * 128), "observation.state has 8 columns, info.json names 9"),
        ("observation.state", pa.array([None, *[[0.0] * 9] * 127]), "1 missing"),
    ],
)
def test_a_column_of_another_kind_is_refused(tmp_path: Path, column: str, values: pa.Array, said: str) -> None:
    root = copied(tmp_path, V30)
    edit_column(root, column, values)
    try:
        _, findings = read_lerobot(root)
        found = [f.found for f in findings if f.code == "unreadable_episode"]
    except InputError as error:
        found = [str(error)]
    assert any(re.search(said, text) for text in found), found


def test_a_damaged_file_costs_its_episodes(tmp_path: Path) -> None:
    root = copied(tmp_path, V21)
    files = sorted((root / "data/chunk-000").iterdir())
    files[0].write_bytes(files[0].read_bytes()[:-100])
    files[1].write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 123\n")
    episodes, findings = read_lerobot(root)
    assert [e.episode_id for e in episodes] == ["set/episode_000002"]
    found = [f.found for f in findings if f.code == "unreadable_episode"]
    assert "not a whole parquet file" in found[0] and "Git-LFS pointer" in found[1]
    files[2].unlink()
    with pytest.raises(InputError, match=r"episode_000000\.parquet: not a whole parquet file"):
        read_lerobot(root)


def test_a_bad_line_of_the_table_costs_its_episode(tmp_path: Path) -> None:
    root = copied(tmp_path, V21)
    table = root / "meta/episodes.jsonl"
    lines = table.read_text().splitlines()
    table.write_text(
        "\n".join([lines[0], lines[1][:-9], lines[2].replace('"episode_index": 2', '"episode_index": "b"')])
    )
    episodes, findings = read_lerobot(root)
    assert [e.episode_id for e in episodes] == ["set/episode_000000"]
    assert sum(f.code == "unreadable_table" for f in findings) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"codebase_version": "v1.6"}, "codebase_version 'v1.6', expected v2.x or v3.x"),
        ({"fps": 0}, "fps 0, expected a positive number"),
        ({"features": [1]}, "no table of features"),
        ({"data_path": "data/{wrong}.parquet"}, "cannot be filled in"),
        ({"data_path": "../{chunk_index}{file_index}.parquet"}, "leaves the folder"),
    ],
)
def test_a_wrong_info_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    root = copied(tmp_path, V30)
    edit_info(root, **change)
    with pytest.raises(InputError, match=said):
        read_lerobot(root)


def test_what_is_no_data_set_is_refused(tmp_path: Path) -> None:
    assert is_lerobot(V21) and is_lerobot(V30) and not is_lerobot(tmp_path) and not is_lerobot(V30 / "meta/info.json")
    with pytest.raises(InputError, match=r"no meta/info\.json"):
        read_lerobot(tmp_path)
    root = copied(tmp_path, V30)
    shutil.rmtree(root / "meta/episodes")
    with pytest.raises(InputError, match="no meta/episodes"):
        read_lerobot(root)
    for text, said in (("{", "not JSON"), ("[]", "no JSON object"), ("version https://git-lfs", "Git-LFS pointer")):
        (root / "meta/info.json").write_text(text)
        with pytest.raises(InputError, match=said):
            read_lerobot(root)
