"""Inputs that break tools of this kind, each with its right answer. The number is the trial's."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxeval import se3
from jaxeval.io import InputError, bundled_path, open_source
from jaxeval.io.readers.rotations import quaternions_of_matrices
from jaxeval.run.fit import fit
from jaxeval.segment.roles import suggest_symmetries
from jaxeval.types import TRACKING_FINDINGS, Episode, Pair, Symmetry, TaskSpec, pad_episodes
from tests.executions import (
    axis_turn,
    demonstrations,
    episodes,
    fitted,
    learned_from,
    quaternion_product,
    quick_jit,
    random_poses,
    scores,
    small_episode,
    spec,
)

COS, SIN = np.cos(np.radians(50)), np.sin(np.radians(50))  # .6428 and .766
HALF_TURNS = np.array([[[-1, 0, 0], [0, COS, -SIN], [0, -SIN, -COS]], [[-1, 0, 0], [0, 0, 1], [0, 1, 0]]])


def found(e: Episode) -> dict[str, str]:
    return {f.code: str(f) for f in e.check() if f.severity != "info"}


# ------------------------------------------------------------------------------------------- rotations and means


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_trial_11_log_near_a_half_turn(dtype: str, tolerance: float) -> None:
    with jax.enable_x64(dtype == "float64"):
        poses = quick_jit(jax.vmap(se3.from_matrix))(jnp.asarray(HALF_TURNS, dtype), jnp.zeros((2, 3), dtype))
        xi = quick_jit(jax.vmap(se3.log))(poses)
        np.testing.assert_allclose(np.linalg.norm(xi[:, 3:], axis=1), np.pi, atol=max(tolerance, 1e-6))
        back = quick_jit(jax.vmap(lambda x: se3.as_matrix(se3.exp(x)[:4])))(xi)
        np.testing.assert_allclose(back, HALF_TURNS, atol=1e-6)
        axes = np.random.default_rng(0).normal(size=(16, 3))
        theta = np.repeat(np.pi - 10.0 ** -np.arange(1, 16), 16)
        u = np.tile(axes / np.linalg.norm(axes, axis=1, keepdims=True), (15, 1))
        q = np.concatenate([np.cos(theta / 2)[:, None], np.sin(theta / 2)[:, None] * u], axis=1)
        out = quick_jit(jax.vmap(se3.log))(jnp.asarray(np.concatenate([q, 0 * u], axis=1), dtype))
        np.testing.assert_allclose(np.asarray(out, np.float64)[:, 3:], theta[:, None] * u, atol=tolerance)


def mean_of(quaternions: np.ndarray, *, iterations_n: int = 30) -> se3.LieMean:
    poses = np.concatenate([quaternions, np.zeros((len(quaternions), 3))], axis=1)
    return quick_jit(lambda p: se3.lie_mean(p, jnp.ones(len(p)), iterations_n=iterations_n))(jnp.asarray(poses))


def test_trial_12_mean_of_q_and_minus_q_is_q() -> None:
    q = axis_turn([1, 2, 3], 1.1)
    m = mean_of(np.stack([q, -q, -q]))
    assert abs(np.asarray(m.pose[:4]) @ q) == pytest.approx(1, abs=1e-6)
    assert m.converged and m.unique and m.spread_rad < 1e-3


def test_trial_12_a_mean_that_is_not_unique_says_so() -> None:
    thirds = np.stack([axis_turn([0, 0, 1], a) for a in np.radians([0, 120, 240])])
    m = mean_of(thirds)
    assert not m.unique
    assert np.degrees(m.spread_rad) == pytest.approx(120, abs=1)
    assert np.isfinite(m.pose).all()
    assert mean_of(thirds[:2]).unique  # two of them, 60 deg either side, have one mean


def test_trial_13_a_wide_spread_is_flagged_damped_and_capped() -> None:
    wide = np.stack([axis_turn([0, 0, 1], a) for a in np.radians([-100, -20, 0, 20, 100])])
    m = mean_of(wide)
    assert m.converged and not m.unique and np.degrees(m.spread_rad) == pytest.approx(100, abs=0.1)
    assert abs(float(m.pose[0])) == pytest.approx(1, abs=1e-5)  # and the mean is the one in the middle
    anywhere = random_poses(50, 0)[:, :4]
    m = mean_of(anywhere)
    assert not m.unique and np.isfinite(m.pose).all() and np.isfinite(m.residual)
    hasty = mean_of(anywhere, iterations_n=1)
    assert not hasty.converged and hasty.residual > 1e-3  # the length of the last step


def test_trial_14_one_zero_quaternion_costs_one_frame() -> None:
    e = small_episode(1000, step_s=0.01)
    poses = e.poses.copy()
    poses[417, 0, :4] = 0
    spoilt = dataclasses.replace(e, poses=poses)
    assert list(found(spoilt)) == ["zero_quaternion"] and "1 frame (417)" in found(spoilt)["zero_quaternion"]
    p = spoilt.prepared()
    assert p.valid.all(axis=1).sum() == 999 and not p.valid.all(axis=1)[417]
    keep = np.arange(1000) != 417
    np.testing.assert_allclose(p.poses[keep], e.poses[keep], atol=1e-12)
    assert np.isfinite(p.poses).all()


def test_trial_15_matrices_that_are_not_quite_rotations_are_projected() -> None:
    turns = Rotation.random(50, random_state=3)
    exact = turns.as_matrix()
    off = exact.copy()
    off[7] *= 1.0137 ** (1 / 3)
    off[9, 0, 1] += 0.01
    q, findings = quaternions_of_matrices(off, where="poses.csv")
    right = turns.as_quat()[:, [3, 0, 1, 2]]
    same = np.abs(np.sum(q * right, axis=1))
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(same[7], 1, atol=1e-12)  # a scale changes no direction
    np.testing.assert_allclose(np.delete(same, 9), 1, atol=1e-12)
    nearest = Rotation.from_matrix(off[9]).as_quat()[[3, 0, 1, 2]]  # scipy projects too
    np.testing.assert_allclose(abs(q[9] @ nearest), 1, atol=1e-12)
    assert [f.code for f in findings] == ["rotation_defect"]
    assert "2 of 50" in findings[0].found and "0.0137" in findings[0].found
    assert quaternions_of_matrices(exact, where="poses.csv")[1] == ()
    with pytest.raises(InputError, match="row 0 has determinant -1"):
        quaternions_of_matrices(np.diag([1.0, 1.0, -1.0])[None], where="poses.csv")


# ------------------------------------------------------------------------------------------------------ symmetry


def turned(e: Episode, body: str, quaternions: np.ndarray) -> Episode:
    """The body turned in its own frame, frame by frame."""
    poses, column = e.poses.copy(), e.bodies.index(body)
    poses[:, column, :4] = quaternion_product(poses[:, column, :4], quaternions)
    return dataclasses.replace(e, poses=poses)


def declaring(task: TaskSpec, name: str, symmetry: Symmetry) -> TaskSpec:
    bodies = tuple(dataclasses.replace(b, symmetry=symmetry) if b.name == name else b for b in task.bodies)
    return dataclasses.replace(task, bodies=bodies)


@pytest.mark.slow
def test_trial_16_a_yaw_that_alternates_has_no_effect_once_declared() -> None:
    """Cubes that look the same after a quarter turn, recorded by a tracker that cannot tell which."""
    quarter = axis_turn([0, 0, 1], np.pi / 2 * np.arange(4))
    task = declaring(spec(), "cubeA", Symmetry("discrete", (0.0, 0.0, 1.0), tuple(map(tuple, quarter.tolist()))))
    rng = np.random.default_rng(0)

    def flicker(e: Episode) -> Episode:
        return turned(e, "cubeA", quarter[rng.integers(0, 4, e.n_frames)])

    demos, runs = episodes()[:20], [e for e in episodes()[20:] if e.success_at_end]
    learned_here = fit(demos, task)
    reference = learned_here.reference
    assert not any(note.startswith("cubeA ends turned") for note in learned_here.notes)
    want, got = scores(runs, reference), scores([flicker(e) for e in runs], reference)
    np.testing.assert_allclose(got.q, want.q, atol=1e-4)
    assert want.q.mean() > 0.95
    undeclared = dataclasses.replace(reference, spec=spec())
    drop = want.gate_free - scores([flicker(e) for e in runs], undeclared).gate_free
    assert drop.min() > 0.05, drop


@pytest.mark.slow
def test_trial_16_a_spinning_sphere_has_no_effect_once_declared() -> None:
    good, _, _ = demonstrations("place_sphere_demos")
    task = spec("place_sphere")
    (sphere,) = [b.name for b in task.bodies if b.symmetry.kind == "all" and b.frame_of is None]
    counts = np.arange(len(good)) % 2 == 0
    reference = learned_from(counts, "place_sphere_demos")
    runs = [e for e, c in zip(good, counts, strict=True) if not c][:10]
    rng = np.random.default_rng(1)

    def spin(e: Episode) -> Episode:
        return turned(e, sphere, axis_turn(rng.normal(size=3), 7.0 * e.time_s + rng.uniform(0, 6)))

    want, got = scores(runs, reference, length=512), scores([spin(e) for e in runs], reference, length=512)
    np.testing.assert_allclose(got.q, want.q, atol=1e-4)
    np.testing.assert_allclose(got.gate_free, want.gate_free, atol=1e-4)
    assert want.gate_free.mean() > 0.9


@pytest.mark.parametrize(
    ("turns", "suggested"),
    [
        (axis_turn([0, 0, 1], np.pi * (np.arange(12) % 2)), "discrete, fold: 2"),
        (axis_turn([1, 0, 0], np.pi / 2 * (np.arange(12) % 4)), "discrete, fold: 4"),
        (axis_turn([0, 1, 0], np.linspace(0, 6, 12)), "spin, axis"),
        (random_poses(12, 0)[:, :4], "symmetry: all"),
        (axis_turn([0, 0, 1], np.radians(np.linspace(-20, 20, 12))), None),
    ],
    ids=["half-turns", "quarter-turns", "spin", "any-turn", "no-turn"],
)
def test_trial_16_an_undeclared_symmetry_is_suggested(turns: np.ndarray, suggested: str | None) -> None:
    pairs = (Pair("cubeA", "cubeB", "m_r"), Pair("cubeB", "table", "r_s"))
    rng = np.random.default_rng(0)
    noise = axis_turn([1, 1, 0], np.radians(rng.normal(size=12)))
    sign = rng.choice([-1.0, 1.0], (12, 1))
    wxyz = sign * quaternion_product(quaternion_product(axis_turn([3, 1, 2], 0.8)[None], noise), turns)
    final = np.zeros((12, 2, 7))
    final[..., :4] = wxyz[:, None]
    sentences = suggest_symmetries(final, pairs, spec())
    if suggested is None:
        assert sentences == ()
    else:
        assert len(sentences) == 1 and suggested in sentences[0] and sentences[0].startswith("cubeA ends turned")
    declared = declaring(spec(), "cubeA", Symmetry("all"))
    assert suggest_symmetries(final, pairs, declared) == ()


def test_trial_16_a_fit_suggests_the_symmetry_that_its_demonstrations_show() -> None:
    """StackCube leaves the yaw of its cubes free; to a fit, that looks like a spin, and it says so."""
    notes = [n for n in fitted().notes if n.startswith("cubeA ends turned")]
    assert notes and all("about one axis" in n and "spin, axis: [0.0, 0.0, 1.0]" in n for n in notes)


def test_trial_17_quaternions_in_the_other_order_are_found() -> None:
    """wxyz data read as xyzw: cubes that rest on the table no longer stand upright."""
    runs = [dataclasses.replace(e, poses=e.poses[..., [3, 0, 1, 2, 4, 5, 6]]) for e in episodes("stack_cube_tilt")]
    other = [dataclasses.replace(e, poses=e.poses[..., [1, 2, 3, 0, 4, 5, 6]]) for e in episodes("stack_cube_tilt")]
    assert np.mean(["quaternion_order" in found(e) for e in runs]) == 1
    assert np.mean(["quaternion_order" in found(e) for e in other]) == 1  # and xyzw data read as wxyz
    assert not any("quaternion_order" in found(e) for e in episodes("stack_cube_tilt"))
    assert "check the order" in found(runs[0])["quaternion_order"]


def test_trial_18_jumps_and_frozen_frames_are_found() -> None:
    e = episodes()[0]
    poses, t = e.poses.copy(), 60
    poses[t:, e.bodies.index("cubeA"), 4] += 0.31
    jump = found(dataclasses.replace(e, poses=poses))
    assert set(jump) == {"pose_jump"} and f"cubeA moves 0.31 m between frames {t - 1} and {t}" in jump["pose_jump"]
    assert "pose_jump" in TRACKING_FINDINGS and "frozen_then_jump" in TRACKING_FINDINGS
    stuck = e.poses.copy()
    stuck[30:90] = stuck[30]  # three seconds, after which the arm is elsewhere
    frozen = found(dataclasses.replace(e, poses=stuck))
    assert "frozen_then_jump" in frozen and "frames 30-89 (2.95 s)" in frozen["frozen_then_jump"]
    stall = e.poses.copy()
    stall[-20:] = stall[-20]
    assert set(found(dataclasses.replace(e, poses=stall))) == {"frozen"}  # a stall is a warning, not lost tracking


# ---------------------------------------------------------------------------------------------------------- time


def test_trial_19_epoch_stamps_in_float32_give_the_speeds_of_float64() -> None:
    e = episodes()[0]
    late = dataclasses.replace(e, time_s=e.time_s + 1.3e9)
    assert [f.code for f in late.check()] == ["epoch_time"]

    def speeds(poses: np.ndarray, time_s: np.ndarray) -> np.ndarray:
        return np.linalg.norm(np.diff(poses[:, 0, 4:], axis=0), axis=-1) / np.diff(time_s)

    exact = speeds(e.poses, e.time_s)
    batch = pad_episodes([late.prepared()], length=256)
    assert batch.time_s.dtype == np.float32
    got = speeds(batch.poses[0, : e.n_frames].astype(np.float64), batch.time_s[0, : e.n_frames].astype(np.float64))
    moving = exact > 0.01
    np.testing.assert_allclose(got[moving], exact[moving], rtol=2e-3)
    naive = late.time_s.astype(np.float32)
    assert (np.diff(naive) == 0).any()  # what a cast without rebasing makes of it
    np.testing.assert_allclose(scores([late]).q, scores([e]).q, atol=1e-5)


def test_trial_22_stamps_that_repeat_step_back_or_leave_a_gap_are_listed() -> None:
    e = small_episode(100)

    def stamped(change) -> dict[str, str]:
        time_s = e.time_s.copy()
        change(time_s)
        return found(dataclasses.replace(e, time_s=time_s))

    repeated = stamped(lambda t: t.__setitem__(40, t[39]))
    assert list(repeated) == ["time_not_increasing"] and "first at frame 40" in repeated["time_not_increasing"]
    back = stamped(lambda t: t.__setitem__(slice(50, None), t[50:] - 26.0))
    assert list(back) == ["time_not_increasing"] and "1 steps repeat or go back (first at frame 50)" in str(back)
    gap = stamped(lambda t: t.__setitem__(slice(70, None), t[70:] + 12.0))
    assert (list(gap) == ["time_gap"] and "12.1 s after frame 69" in gap["time_gap"]) or "12 s" in gap["time_gap"]
    assert {f.severity for f in dataclasses.replace(e, time_s=e.time_s[::-1].copy()).check()} >= {"error"}


# --------------------------------------------------------------------------------------------------------- files


def copied(folder: Path) -> Path:
    for ending in (".h5", ".json"):
        shutil.copyfile(bundled_path("maniskill/StackCube-v1.h5").with_suffix(ending), folder / f"t{ending}")
    return folder / "t.h5"


def test_trial_28_a_truncated_maniskill_file_gives_its_whole_episodes(tmp_path: Path) -> None:
    path = copied(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(0.75 * len(whole))])
    source = open_source(path)
    assert 0 < source.n_episodes < 3 and "truncated" in {f.code for f in source.findings}
    path.write_bytes(whole[:2000])
    with pytest.raises(InputError, match=r"t\.h5: "):
        open_source(path)


def test_trial_28_a_maniskill_file_without_success_is_unknown_not_failed(tmp_path: Path) -> None:
    path = copied(tmp_path)
    path.with_suffix(".json").unlink()
    with h5py.File(path, "a") as file:
        for k in range(3):
            del file[f"traj_{k}/success"]
    runs = list(open_source(path).iter_episodes())
    assert [e.success_at_end for e in runs] == [None] * 3
    assert pad_episodes(runs, length=256).success.tolist() == [-1] * 3


def test_trial_28_a_maniskill_file_without_states_says_how_to_record_them(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with h5py.File(path, "a") as file:
        for k in range(3):
            del file[f"traj_{k}/env_states"]
    with pytest.raises(InputError, match=r"env_states.*record_env_state=True"):
        open_source(path)


@pytest.mark.parametrize("name", ["data.hdf5", "data.h5", "data.npz"])
def test_trial_31_a_git_lfs_pointer_is_named_as_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n")
    with pytest.raises(InputError, match=rf"{name}: this is a Git-LFS pointer"):
        open_source(tmp_path / name)
