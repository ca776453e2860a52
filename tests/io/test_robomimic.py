"""robomimic's files: values against what was written, unknown success, and layouts that must be confirmed."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from jaxeval.io import InputError, bundled
from jaxeval.io.readers.maniskill import is_maniskill
from jaxeval.io.readers.robolab import is_robolab
from jaxeval.io.readers.robomimic import is_robomimic, read_robomimic
from jaxeval.types import Episode, Finding
from tests.io.foreign import XYZW, rotation, write_robomimic


@pytest.fixture(scope="module")
def recorded() -> list[Episode]:
    return bundled("stack_cube_demos").read(0, 2)


def codes(findings: list[Finding]) -> set[str]:
    return {f.code for f in findings}


def sparse(e: Episode) -> np.ndarray:
    return (np.arange(e.n_frames) >= e.n_frames - 5).astype(float)


def test_values_against_what_was_written(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robomimic(tmp_path / "d.hdf5", recorded, rewards=[sparse(e) for e in recorded])
    assert (is_robomimic(path), is_maniskill(path), is_robolab(path)) == (True, False, False)
    episodes, findings = read_robomimic(path)
    assert codes(findings) == {"gripper_width_from_joints"}
    for e, r in zip(episodes, recorded, strict=True):
        assert set(e.bodies) == set(r.bodies) and e.task == "stack"
        for body in r.bodies:
            np.testing.assert_array_equal(e.body(body), r.body(body))
        np.testing.assert_allclose(e.gripper_width_m, r.gripper_width_m, rtol=1e-12)
        np.testing.assert_array_equal(e.joints, r.joints[:, :7])
        np.testing.assert_array_equal(e.actions[1:], r.actions[1:])
        np.testing.assert_allclose(e.time_s, np.arange(r.n_frames) / 20)
        assert np.isnan(e.actions[0]).all() and (e.success_once, e.success_at_end) == (True, True)
    assert [e.episode_id for e in episodes] == ["Stack/demo_0", "Stack/demo_1"]


def test_demos_come_in_the_order_of_their_numbers(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robomimic(tmp_path / "d.hdf5", recorded)
    with h5py.File(path, "a") as file:
        file["data"].move("demo_1", "demo_10")
        file.copy("data/demo_0", file["data"], "demo_2")
    assert [e.episode_id for e in read_robomimic(path)[0]] == ["Stack/demo_0", "Stack/demo_2", "Stack/demo_10"]


@pytest.mark.parametrize(
    ("rewards", "said"), [(None, "no rewards"), (np.zeros, "all zero"), (lambda n: np.linspace(0, 1, n), "other than")]
)
def test_success_is_unknown_not_failure(tmp_path: Path, recorded: list[Episode], rewards, said: str) -> None:
    given = None if rewards is None else [rewards(e.n_frames) for e in recorded]
    episodes, findings = read_robomimic(write_robomimic(tmp_path / "d.hdf5", recorded, rewards=given))
    assert [(e.success_once, e.success_at_end) for e in episodes] == [(None, None)] * 2
    (finding,) = [f for f in findings if f.code == "success_unknown"]
    assert said in finding.found


def test_success_that_is_lost_again_is_told_twice(tmp_path: Path, recorded: list[Episode]) -> None:
    lost = [(np.arange(e.n_frames) == 50).astype(float) for e in recorded]
    episodes, _ = read_robomimic(write_robomimic(tmp_path / "d.hdf5", recorded, rewards=lost))
    assert [(e.success_once, e.success_at_end) for e in episodes] == [(True, False)] * 2


def object_of_stack(e: Episode, sign: float = 1.0) -> np.ndarray:
    a, b, tcp = e.body("cubeA"), e.body("cubeB"), e.body("tcp")
    offsets = [sign * (a[:, 4:] - tcp[:, 4:]), sign * (b[:, 4:] - tcp[:, 4:]), b[:, 4:] - a[:, 4:]]
    return np.concatenate([a[:, 4:], a[:, XYZW], b[:, 4:], b[:, XYZW], *offsets], axis=1)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_known_object_layout_is_read_when_its_numbers_agree(
    tmp_path: Path, recorded: list[Episode], sign: float
) -> None:
    objects = [object_of_stack(e, sign) for e in recorded]
    episodes, findings = read_robomimic(write_robomimic(tmp_path / "d.hdf5", recorded, named=False, objects=objects))
    assert "object_poses_unknown" not in codes(findings)
    for e, r in zip(episodes, recorded, strict=True):
        assert e.bodies == ("cubeA", "cubeB", "tcp")
        for body in e.bodies:
            np.testing.assert_array_equal(e.body(body), r.body(body))


@pytest.mark.parametrize("layout", ["version 1.2", "version 1.5"])
def test_square_is_read_in_either_order(tmp_path: Path, recorded: list[Episode], layout: str) -> None:
    objects = []
    for e in recorded:
        nut, tcp = e.body("cubeA"), e.body("tcp")
        inside = np.stack([rotation(q).T @ d for q, d in zip(tcp[:, :4], nut[:, 4:] - tcp[:, 4:], strict=True)])
        pose, relative = [nut[:, 4:], nut[:, XYZW]], [inside, np.tile([0.0, 0, 0, 1], (len(nut), 1))]
        objects.append(np.concatenate(pose + relative if layout == "version 1.2" else relative + pose, axis=1))
    path = write_robomimic(tmp_path / "d.hdf5", recorded, env="NutAssemblySquare", named=False, objects=objects)
    episodes, _ = read_robomimic(path)
    assert episodes[0].bodies == ("SquareNut", "tcp")
    np.testing.assert_array_equal(episodes[0].body("SquareNut"), recorded[0].body("cubeA"))


def test_unconfirmed_or_unknown_layout_is_no_pose(tmp_path: Path, recorded: list[Episode]) -> None:
    shifted = [object_of_stack(e) + np.eye(23)[14] * 0.01 for e in recorded]  # 1 cm off in one relative position
    for env, objects in (("Stack", shifted), ("Stack", [o[:, :20] for o in shifted]), ("ToolHang", shifted)):
        path = write_robomimic(tmp_path / f"{env}.hdf5", recorded, env=env, named=False, objects=objects)
        episodes, findings = read_robomimic(path)
        assert episodes[0].bodies == ("tcp",) and "object_poses_unknown" in codes(findings)
        assert "NAME_quat" in next(f.action for f in findings if f.code == "object_poses_unknown")


def test_filter_keys_are_used_on_request(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robomimic(tmp_path / "d.hdf5", recorded)
    with h5py.File(path, "a") as file:
        file["mask/train"] = np.array([b"demo_1"])
        file["mask/odd"] = np.arange(3.0)
    episodes, findings = read_robomimic(path)
    assert len(episodes) == 2 and "filter_keys_ignored" in codes(findings)
    assert [e.episode_id for e in read_robomimic(path, filter_key="train")[0]] == ["Stack/demo_1"]
    with pytest.raises(InputError, match="no filter key mask/valid; it has odd, train"):
        read_robomimic(path, filter_key="valid")
    with pytest.raises(InputError, match="odd"):
        read_robomimic(path, filter_key="odd")


def test_rate_and_gripper_are_told(tmp_path: Path, recorded: list[Episode]) -> None:
    for kwargs, code in (({"control_freq": "fast"}, "default_control_freq"), ({}, "gripper_not_panda")):
        path = write_robomimic(tmp_path / "d.hdf5", recorded, kwargs=kwargs)
        episodes, findings = read_robomimic(path)
        assert code in codes(findings) and episodes[0].time_s[1] == 0.05
    with h5py.File(path, "a") as file:
        file["data"].attrs["env_args"] = "{not json"
        del file["data/demo_0/obs/robot0_gripper_qpos"]
        file["data/demo_0/obs/robot0_gripper_qpos"] = np.zeros((recorded[0].n_frames, 6))
    episodes, findings = read_robomimic(path)
    assert {"no_env_args", "no_gripper"} <= codes(findings) and episodes[0].gripper_width_m is None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: d.__delitem__("obs"), "demo_0 has no 'obs'.*dataset_states_to_obs"),
        (
            lambda d: replaced(d, "obs/cubeA_pos", np.zeros((7, 3))),
            r"cubeA_pos has shape \(7, 3\), expected \(174, 3\)",
        ),
        (lambda d: replaced(d, "obs/cubeA_quat", np.zeros((174, 3))), r"cubeA_quat has shape \(174, 3\)"),
        (lambda d: replaced(d, "obs/robot0_eef_pos", np.array([b"x"] * 174)), "robot0_eef_pos is .*expected numbers"),
        (lambda d: replaced(d, "rewards", np.zeros(3)), r"rewards has shape \(3,\)"),
        (lambda d: replaced(d, "actions", np.zeros((3, 7))), r"actions has shape \(3, 7\)"),
    ],
)
def test_a_bad_episode_costs_itself(tmp_path: Path, recorded: list[Episode], spoil, said: str) -> None:
    path = write_robomimic(tmp_path / "d.hdf5", recorded)
    with h5py.File(path, "a") as file:
        spoil(file["data/demo_0"])
    episodes, findings = read_robomimic(path)
    assert [e.episode_id for e in episodes] == ["Stack/demo_1"]
    (bad,) = [f for f in findings if f.code == "unreadable_episode"]
    assert bad.where.endswith("demo_0")
    with h5py.File(path, "a") as file:
        del file["data/demo_1"]
    with pytest.raises(InputError, match=said):
        read_robomimic(path)


def replaced(group: h5py.Group, key: str, value: np.ndarray) -> None:
    if key in group:
        del group[key]
    group[key] = value


def test_nan_is_an_invalid_frame(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robomimic(tmp_path / "d.hdf5", recorded)
    with h5py.File(path, "a") as file:
        file["data/demo_0/obs/cubeA_pos"][9, 1] = np.nan
    valid = read_robomimic(path)[0][0].prepared().valid_of("cubeA")
    assert not valid[9] and valid.sum() == len(valid) - 1


def test_what_is_no_robomimic_file_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "empty.hdf5", "w") as file:
        file.create_group("data")
    with pytest.raises(InputError, match="no group data/demo_0 but data"):
        read_robomimic(tmp_path / "empty.hdf5")
    (tmp_path / "data.hdf5").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 123\n")
    with pytest.raises(InputError, match=r"data\.hdf5: this is a Git-LFS pointer"):
        read_robomimic(tmp_path / "data.hdf5")
    assert not is_robomimic(tmp_path / "data.hdf5") and not is_robomimic(tmp_path)
