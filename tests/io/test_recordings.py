"""The npz recordings: order of the quaternion, labels, sizes, groups, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jaxeval.io import InputError, bundled, initial_condition_hash, read_recordings, task_name


def recording(path: Path, *, drop: str = "", **changes: object) -> Path:
    meta = {"task": "StackCube-v1", "seed": 7, "control_freq": 10, "cube_half_size": [0.02, 0.03, 0.04]}
    meta |= {"table_pose": [0, 0, -0.9, 0.6, 0, 0, 0.8]} | changes
    arrays = {
        "pose/cubeA": np.tile([1.0, 2, 3, 0.8, 0.6, 0, 0], (4, 1)),  # position first
        "pose/tcp": np.tile([0.1, 0.2, 0.3, 0, 1, 0, 0], (4, 1)),
        "gripper_width": np.array([0.08, 0.04, 0.04, 0.08], np.float32),
        "qpos": np.zeros((4, 9), np.float32),
        "action": np.ones((4, 8), np.float32),
        "phase": np.array(["start", "reach", "grasp", "reach"]),
        "success": np.array([False, True, True, False]),
    }
    keys = {f"ep000/{k}": v for k, v in arrays.items()} | {"meta": json.dumps([meta]), "n_episodes": 1}
    keys.pop(drop, None)
    np.savez(path, **keys)
    return path


def test_one_episode_worked_by_hand(tmp_path: Path) -> None:
    (e,) = read_recordings(recording(tmp_path / "r.npz"))
    assert e.bodies == ("cubeA", "tcp", "table")
    np.testing.assert_array_equal(e.body("cubeA")[2], [0.8, 0.6, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(e.body("table")[3], [0.6, 0, 0, 0.8, 0, 0, -0.9])
    np.testing.assert_array_equal(e.time_s, [0, 0.1, 0.2, 0.3][:1] + (np.arange(1, 4) / 10).tolist())
    assert [e.sub_task_names[i] for i in e.sub_task] == ["start", "reach", "grasp", "reach"]
    assert (e.success_once, e.success_at_end) == (True, False)
    np.testing.assert_array_equal(e.half_size_m[0], [0.02, 0.03, 0.04])
    assert np.isnan(e.half_size_m[1:]).all()
    assert (e.task, e.group, e.episode_id) == ("stack_cube", "r", "StackCube-v1/seed=7")
    assert (e.seed, e.speed, e.initial_condition_id) == (7, 1.0, "StackCube-v1/seed=7")


def test_tilt_names_its_group(tmp_path: Path) -> None:
    (e,) = read_recordings(recording(tmp_path / "r.npz", tilt=25.0))
    assert (e.group, e.episode_id) == ("tilt 25 deg", "StackCube-v1_tilt/seed=7/tilt=25")
    assert e.initial_condition_id == "StackCube-v1/seed=7"


def test_spheres_have_one_radius(tmp_path: Path) -> None:
    (e,) = read_recordings(recording(tmp_path / "r.npz", cube_half_size=0.05))
    np.testing.assert_array_equal(e.half_size_m[0], [0.05] * 3)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_recordings(tmp_path / "none.npz")
    (tmp_path / "lfs.npz").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(InputError, match="this is a Git-LFS pointer"):
        read_recordings(tmp_path / "lfs.npz")
    whole = recording(tmp_path / "r.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.npz: not a whole \.npz"):
        read_recordings(tmp_path / "cut.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InputError, match=r"text\.npz: not a whole \.npz"):
        read_recordings(tmp_path / "text.npz")
    with pytest.raises(InputError, match="key 'ep000/phase' is missing"):
        read_recordings(recording(tmp_path / "p.npz", drop="ep000/phase"))
    with pytest.raises(InputError, match="no key 'meta'"):
        read_recordings(recording(tmp_path / "m.npz", drop="meta"))


def test_bundled_stores_say_what_the_readme_says() -> None:
    told = {
        "stack_cube_demos": (40, {"demonstrations"}, {30}),
        "stack_cube_tilt": (40, {f"tilt {t} deg" for t in (0, 10, 25, 45)}, set()),
        "peg_insertion_side_demos": (40, {"demonstrations"}, {5, 20}),
        "place_sphere_demos": (40, {"demonstrations"}, set()),
        "poke_cube_demos": (20, {"demonstrations"}, set()),
    }
    for name, (episodes_n, groups, failed) in told.items():
        store = bundled(name)
        assert store.n_episodes == episodes_n
        assert set(store.column("group")) == groups
        assert {
            int(s) for s, ok in zip(store.column("seed"), store.column("success_at_end"), strict=True) if not ok
        } == failed
        assert all(len(f) == 0 for f in store.column("findings"))
        e = store.read(0, 1)[0]
        assert {"table", "tcp"} < set(e.bodies)
        assert np.abs(np.linalg.norm(e.poses[..., :4], axis=-1) - 1).max() < 1e-6
        assert np.median(np.diff(e.time_s)) == pytest.approx(0.05)
        assert e.gripper_width_m.max() <= 0.081 and e.sub_task is not None and e.joints.shape[1] == 9


def test_paired_tilts_start_alike() -> None:
    store = bundled("stack_cube_tilt")
    by_seed: dict[int, set[str]] = {}
    for seed, start in zip(store.column("seed"), store.column("initial_condition_hash"), strict=True):
        by_seed.setdefault(int(seed), set()).add(start)
    assert len(by_seed) == 10 and all(len(starts) == 1 for starts in by_seed.values())
    assert len(set.union(*by_seed.values())) == 10


def test_initial_condition_hash() -> None:
    poses = np.random.default_rng(0).normal(size=(2, 7))
    same = initial_condition_hash(poses, ("a", "b"))
    assert len(same) == 16 and int(same, 16) >= 0
    assert initial_condition_hash(poses[::-1], ("b", "a")) == same
    assert initial_condition_hash(poses * np.array([-1, -1, -1, -1, 1, 1, 1]), ("a", "b")) == same
    assert initial_condition_hash(poses, ("b", "a")) != same
    assert initial_condition_hash(poses + np.array([0, 0, 0, 0, 1e-5, 0, 0]), ("a", "b")) != same


def test_task_names() -> None:
    envs = (
        "StackCube-v1",
        "PegInsertionSide-v1",
        "PlaceSphere-v1",
        "PokeCube-v1",
        "LiftPegUpright-v2",
        "AssemblingKits",
    )
    names = ("stack_cube", "peg_insertion_side", "place_sphere", "poke_cube", "lift_peg_upright", "assembling_kits")
    assert tuple(map(task_name, envs)) == names
