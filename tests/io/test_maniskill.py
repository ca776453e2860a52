"""ManiSkill's files: values against the file itself, and every way in which such files come broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from jaxeval.io import InputError, bundled, bundled_path, read_maniskill
from jaxeval.types import Finding

STACK, PEG = "maniskill/StackCube-v1.h5", "maniskill/PegInsertionSide-v1.h5"


def codes(findings: list[Finding]) -> set[str]:
    return {f.code for f in findings}


def same_sign(poses: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The first pose with its quaternion on the side of `like`'s: q and -q are one rotation."""
    flip = np.sign(poses[0, :4] @ like[0, :4])
    return np.concatenate([poses[0, :4] * flip, poses[0, 4:]])


def copied(folder: Path, name: str = STACK) -> Path:
    """A copy of a bundled pair that a test may spoil."""
    for suffix in (".h5", ".json"):
        shutil.copyfile(bundled_path(name).with_suffix(suffix), folder / f"t{suffix}")
    return folder / "t.h5"


def test_stack_cube_against_the_file() -> None:
    path = bundled_path(STACK)
    episodes, findings = read_maniskill(path)
    assert codes(findings) == {"tcp_by_forward_kinematics", "default_control_freq"}
    assert [e.seed for e in episodes] == [0, 1, 2]
    e = episodes[1]
    assert e.bodies == ("cubeA", "cubeB", "table", "tcp")
    with h5py.File(path) as file:
        row = file["traj_1/env_states/actors/cubeB"][40]
        robot = file["traj_1/env_states/articulations/panda_wristcam"][()]
        actions = file["traj_1/actions"][()]
    np.testing.assert_array_equal(e.body("cubeB")[40], np.float64([*row[3:7], *row[:3]]))
    np.testing.assert_allclose(e.gripper_width_m, robot[:, 20].astype(float) + robot[:, 21])
    assert e.gripper_width_m.max() == pytest.approx(0.08, abs=1e-3) and e.gripper_width_m.min() < 0.045
    np.testing.assert_array_equal(e.joints, robot[:, 13:22])
    assert np.isnan(e.actions[0]).all()
    np.testing.assert_array_equal(e.actions[1:], actions)
    np.testing.assert_allclose(e.time_s, np.arange(95) * 0.05)
    assert (e.success_once, e.success_at_end, e.task) == (True, True, "stack_cube")
    assert e.episode_id == e.initial_condition_id == "StackCube-v1/seed=1" and "StackCube-v1" in e.source


@pytest.mark.parametrize(("name", "store"), [(STACK, "stack_cube_demos"), (PEG, "peg_insertion_side_demos")])
def test_same_seed_same_start_in_both_formats(name: str, store: str) -> None:
    episodes, _ = read_maniskill(bundled_path(name))
    recorded = bundled(store).read(0, 3)
    assert [e.initial_condition_id for e in episodes] == [r.initial_condition_id for r in recorded]
    assert [e.initial_condition_hash for e in episodes] == [r.initial_condition_hash for r in recorded]
    for e, r in zip(episodes, recorded, strict=True):
        for body in set(e.bodies) & set(r.bodies):
            np.testing.assert_allclose(same_sign(e.body(body), r.body(body)), r.body(body)[0], atol=1e-6, err_msg=body)


def test_tcp_from_joints_is_the_recorded_one(tmp_path: Path) -> None:
    recorded, _ = read_maniskill(bundled_path(PEG))
    path = copied(tmp_path, PEG)
    with h5py.File(path, "a") as file:
        for k in range(3):
            del file[f"traj_{k}/obs/extra/tcp_pose"]
    computed, findings = read_maniskill(path)
    assert "tcp_by_forward_kinematics" in codes(findings) and "no_tcp" not in codes(findings)
    for e, r in zip(computed, recorded, strict=True):
        ours, theirs = e.body("tcp"), r.body("tcp")
        np.testing.assert_allclose(ours[:, 4:], theirs[:, 4:], atol=1e-6)
        assert np.abs(np.sum(ours[:, :4] * theirs[:, :4], axis=1)).min() > 1 - 1e-7  # float32 quaternions


def test_tcp_moves_with_the_robots_base(tmp_path: Path) -> None:
    path = copied(tmp_path)
    before = read_maniskill(path)[0][0].body("tcp")
    with h5py.File(path, "a") as file:
        state = file["traj_0/env_states/articulations/panda_wristcam"]
        base = state[0, :3].astype(float)
        state[:, 3:7] = [0, 0, 0, 1]  # half a turn about z
    after = read_maniskill(path)[0][0].body("tcp")
    np.testing.assert_allclose(after[:, 4:6] - base[:2], -(before[:, 4:6] - base[:2]), atol=1e-6)
    np.testing.assert_allclose(after[:, 6], before[:, 6], atol=1e-6)


def test_peg_has_frames_and_sizes() -> None:
    episodes, findings = read_maniskill(bundled_path(PEG))
    assert codes(findings) == {"default_control_freq"}
    assert episodes[0].bodies == ("box_with_hole", "peg", "table", "tcp", "peg_head", "box_hole")
    assert [e.success_at_end for e in episodes] == [False, False, True]
    e = episodes[2]
    half = e.half_size_m[e.bodies.index("peg")]
    assert np.isnan(e.half_size_m[e.bodies.index("tcp")]).all()
    distance = np.linalg.norm(e.body("peg_head")[:, 4:] - e.body("peg")[:, 4:], axis=-1)
    np.testing.assert_allclose(distance, half[0], rtol=1e-6)
    at_end = np.linalg.norm(e.body("peg_head")[-1, 4:] - e.body("box_hole")[-1, 4:])
    assert at_end < 0.04  # inserted: the head is at the hole, not the tail


def test_control_freq_and_seeds_come_from_the_json(tmp_path: Path) -> None:
    path = copied(tmp_path)
    data = json.loads(path.with_suffix(".json").read_text())
    data["env_info"]["env_kwargs"]["control_freq"] = 50
    data["episodes"][2]["episode_seed"] = 77
    path.with_suffix(".json").write_text(json.dumps(data))
    episodes, findings = read_maniskill(path)
    assert "default_control_freq" not in codes(findings)
    assert episodes[0].time_s[1] == pytest.approx(0.02) and episodes[2].seed == 77


@pytest.mark.parametrize("text", [None, "{", "[]", '{"env_info": 3}'])
def test_without_the_json_it_goes_on(tmp_path: Path, text: str | None) -> None:
    path = copied(tmp_path)
    beside = path.with_suffix(".json")
    beside.unlink() if text is None else beside.write_text(text)
    episodes, findings = read_maniskill(path)
    assert "no_json" in codes(findings)
    assert [(e.seed, e.initial_condition_id, e.episode_id) for e in episodes] == [
        (None, None, f"traj_{k}") for k in range(3)
    ]
    assert all(e.success_at_end for e in episodes) and all(e.initial_condition_hash for e in episodes)


def test_without_success_the_json_speaks_and_then_nobody(tmp_path: Path) -> None:
    path = copied(tmp_path, PEG)
    with h5py.File(path, "a") as file:
        for k in range(3):
            del file[f"traj_{k}/success"]
    episodes, findings = read_maniskill(path)
    assert "success_from_json" in codes(findings)
    assert [(e.success_once, e.success_at_end) for e in episodes] == [(None, False), (None, False), (True, True)]
    path.with_suffix(".json").unlink()
    episodes, findings = read_maniskill(path)
    assert "success_not_recorded" in codes(findings)
    assert [(e.success_once, e.success_at_end) for e in episodes] == [(None, None)] * 3


def test_success_that_flickers_is_told_twice(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with h5py.File(path, "a") as file:
        file["traj_0/success"][-1] = False
    episodes, _ = read_maniskill(path)
    assert (episodes[0].success_once, episodes[0].success_at_end) == (True, False)


def test_without_env_states_it_says_how_to_record(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with h5py.File(path, "a") as file:
        del file["traj_1/env_states"]
    episodes, findings = read_maniskill(path)
    assert [e.seed for e in episodes] == [0, 2]
    (bad,) = [f for f in findings if f.code == "unreadable_episode"]
    assert bad.severity == "error" and bad.where.endswith("traj_1")
    with h5py.File(path, "a") as file:
        del file["traj_0/env_states"], file["traj_2/env_states"]
    with pytest.raises(InputError, match=r"traj_0 has no 'env_states/actors'.*record_env_state=True"):
        read_maniskill(path)


def test_without_a_panda_the_width_is_unknown(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with h5py.File(path, "a") as file:
        for k in range(3):
            arms = file[f"traj_{k}/env_states/articulations"]
            arms.move("panda_wristcam", "xarm6_robotiq")
    episodes, findings = read_maniskill(path)
    assert {"no_gripper", "no_tcp"} <= codes(findings)
    assert all("state_dict" in str(f) for f in findings if f.code == "no_tcp")
    assert episodes[0].bodies == ("cubeA", "cubeB", "table")
    assert all(e.gripper_width_m is None and e.joints is None for e in episodes)


def test_another_arm_of_the_pandas_is_not_taken_for_one(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with h5py.File(path, "a") as file:
        for k in range(3):
            arms = file[f"traj_{k}/env_states/articulations"]
            arms["panda_stick"] = np.delete(arms["panda_wristcam"][()], [20, 21, 29, 30], axis=1)  # no fingers
            del arms["panda_wristcam"]
    episodes, findings = read_maniskill(path)
    assert {"no_gripper", "no_tcp"} <= codes(findings) and episodes[0].gripper_width_m is None


def test_an_episode_that_the_json_lists_and_the_file_lacks_is_said(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with h5py.File(path, "a") as file:
        del file["traj_1"]
    episodes, findings = read_maniskill(path)
    assert [e.seed for e in episodes] == [0, 2]
    (finding,) = [f for f in findings if f.code == "episodes_missing"]
    assert "traj_1" in finding.found


@pytest.mark.parametrize(
    "spoil",
    [
        {"env_info": {"env_id": "StackCube-v1", "env_kwargs": []}, "episodes": [None, {}, {"episode_id": [1]}]},
        {"env_info": {"env_id": "StackCube-v1", "env_kwargs": {"control_freq": "20"}}, "episodes": {"a": 1}},
        {"env_info": {"env_id": ["StackCube-v1"]}, "episodes": []},
        {"env_info": {"env_id": "StackCube-v1", "env_kwargs": {"control_freq": -5, "sim_config": 3}}},
    ],
)
def test_a_json_of_another_shape_is_a_doubt(tmp_path: Path, spoil: dict) -> None:
    path = copied(tmp_path)
    path.with_suffix(".json").write_text(json.dumps(spoil))
    episodes, findings = read_maniskill(path)
    assert len(episodes) == 3 and episodes[0].time_s[1] == 0.05 and episodes[0].seed is None
    assert codes(findings) & {"no_json", "default_control_freq"}


def test_success_of_other_values_costs_the_episode(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with h5py.File(path, "a") as file:
        n = len(file["traj_0/success"])
        del file["traj_0/success"]
        file["traj_0/success"] = np.full(n, np.nan)
    episodes, findings = read_maniskill(path)
    assert [e.seed for e in episodes] == [1, 2]
    assert "success holds other values" in next(f.found for f in findings if f.code == "unreadable_episode")


def test_a_zero_quaternion_costs_a_frame(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with h5py.File(path, "a") as file:
        file["traj_0/env_states/actors/cubeA"][30, 3:7] = 0
    e = read_maniskill(path)[0][0]
    valid = e.prepared().valid_of("cubeA")
    assert not valid[30] and valid.sum() == e.n_frames - 1 and e.prepared().valid_of("cubeB", "tcp").all()
    assert "zero_quaternion" in {f.code for f in e.check()}


@pytest.mark.parametrize("name", [STACK, PEG])
def test_truncated_anywhere_gives_whole_episodes_or_refuses(tmp_path: Path, name: str) -> None:
    whole = bundled_path(name).read_bytes()
    wanted, _ = read_maniskill(bundled_path(name))
    path = copied(tmp_path, name)
    salvaged = []
    for cut in np.linspace(1000, len(whole) - 1, 25).astype(int):
        path.write_bytes(whole[:cut])
        try:
            episodes, findings = read_maniskill(path)
        except InputError as error:
            assert "truncated" in str(error) or "cannot be read" in str(error)
            salvaged.append(0)
            continue
        assert {"truncated", "unreadable_episode"} <= codes(findings)
        assert sum(f.code == "unreadable_episode" for f in findings) == 3 - len(episodes)
        for e, want in zip(episodes, wanted, strict=False):
            assert e.bodies == want.bodies and e.success_at_end == want.success_at_end
            for key in ("poses", "joints", "actions"):
                np.testing.assert_array_equal(getattr(e, key), getattr(want, key))
        salvaged.append(len(episodes))
    assert salvaged == sorted(salvaged) and set(salvaged) == {0, 1, 2}


def test_what_is_not_a_trajectory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_maniskill(tmp_path / "none.h5")
    pointer = tmp_path / "data.hdf5"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 123\n")
    with pytest.raises(InputError, match=r"data\.hdf5: this is a Git-LFS pointer"):
        read_maniskill(pointer)
    (tmp_path / "text.h5").write_text("hello" * 1000)
    with pytest.raises(InputError, match=r"text\.h5: not an HDF5 file"):
        read_maniskill(tmp_path / "text.h5")
    (tmp_path / "empty.h5").write_bytes(b"")
    with pytest.raises(InputError, match=r"empty\.h5: not an HDF5 file"):
        read_maniskill(tmp_path / "empty.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data/demo_0/obs"] = np.zeros(3)
    with pytest.raises(InputError, match="no group traj_0 but data"):
        read_maniskill(tmp_path / "other.h5")
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file["traj_0/env_states"] = np.zeros((5, 40))
    with pytest.raises(InputError, match="a flat array, as ManiSkill 2 wrote it"):
        read_maniskill(tmp_path / "old.h5")
