"""The gate at the door: every finding has a planted fault, and what `prepared` and padding promise is kept."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxeval.io import bundled, bundled_names
from jaxeval.types import (
    FINDINGS,
    JUMP_M,
    STATIC,
    TRACKING_FINDINGS,
    Episode,
    bucket_length,
    pad_episodes,
    pytree,
)
from tests.executions import axis_turn, small_episode

N = 40


def with_poses(change: Callable[[np.ndarray], None], e: Episode | None = None) -> Episode:
    e = e or small_episode(N)
    poses = e.poses.copy()
    change(poses)
    return dataclasses.replace(e, poses=poses)


def with_time(change: Callable[[np.ndarray], None]) -> Episode:
    e = small_episode(N)
    time_s = e.time_s.copy()
    change(time_s)
    return dataclasses.replace(e, time_s=time_s)


def set_(index: object, value: object) -> Callable[[np.ndarray], None]:
    return lambda x: x.__setitem__(index, value)


def add_(index: object, value: object) -> Callable[[np.ndarray], None]:
    return lambda x: x.__setitem__(index, x[index] + value)


def valid_only(*frames: int) -> Episode:
    return dataclasses.replace(small_episode(N), frame_valid=np.isin(np.arange(N), frames))


def standing(read_as_xyzw: bool) -> Episode:
    """Two cubes that rest on the table, turned 30 and 50 degrees about the vertical."""
    e = small_episode(N)
    poses = e.poses.copy()
    for k, yaw in enumerate((30, 50)):
        poses[:, k, :4] = axis_turn([0, 0, 1], np.radians(yaw))
    if read_as_xyzw:
        poses[..., :4] = poses[..., [1, 2, 3, 0]]
    return dataclasses.replace(e, poses=poses)


def freeze(start: int, stop: int, then_m: float = 0.0) -> Callable[[np.ndarray], None]:
    def change(poses: np.ndarray) -> None:
        poses[start:stop] = poses[start]
        poses[stop:, :, 4:] += poses[start, :, 4:] - poses[stop, :, 4:] + np.array([then_m, 0, 0])

    return change


PLANTED: dict[str, Callable[[], Episode]] = {
    "too_few_frames": lambda: valid_only(0),
    "shape": lambda: dataclasses.replace(small_episode(N), time_s=np.arange(N - 1) * 0.05),
    "time_not_increasing": lambda: with_time(lambda t: t.__setitem__(20, t[19])),
    "no_valid_frame": lambda: valid_only(),
    "pose_jump": lambda: with_poses(add_((slice(20, None), 1, 6), JUMP_M + 0.01)),
    "frozen_then_jump": lambda: with_poses(freeze(10, 25, then_m=0.1)),
    "non_finite_pose": lambda: with_poses(set_((7, 0, 5), np.nan)),
    "zero_quaternion": lambda: with_poses(set_((7, 1, slice(0, 4)), 0.0)),
    "unnormalised_quaternion": lambda: with_poses(lambda p: p.__setitem__((..., slice(0, 4)), 1.01 * p[..., :4])),
    "time_gap": lambda: with_time(add_(slice(20, None), 0.8)),
    "frozen": lambda: with_poses(freeze(10, 25)),
    "units": lambda: with_poses(add_((slice(None), 0, 4), 250.0)),
    "quaternion_order": lambda: standing(read_as_xyzw=True),
    "quaternion_sign": lambda: with_poses(lambda p: p.__setitem__((slice(20, None), 1, slice(0, 4)), -p[20:, 1, :4])),
    "epoch_time": lambda: with_time(add_(slice(None), 1.3e9)),
    "no_gripper_width": lambda: dataclasses.replace(small_episode(N), gripper_width_m=None),
    "no_body": lambda: small_episode(N).with_bodies(()),
    "body_lost": lambda: dataclasses.replace(small_episode(N), valid=np.tile([True, False], (N, 1))),
    "attribute": lambda: dataclasses.replace(small_episode(N), attributes={"seed": 3}),
    "success_unknown": lambda: dataclasses.replace(small_episode(N), success_at_end=None),
}


def codes(e: Episode) -> list[str]:
    return [f.code for f in e.check()]


def test_every_finding_has_a_planted_fault() -> None:
    assert set(PLANTED) == set(FINDINGS)
    assert set(FINDINGS) > TRACKING_FINDINGS
    assert {severity for severity, _ in FINDINGS.values()} == {"error", "warning", "info"}


@pytest.mark.parametrize("code", FINDINGS)
def test_a_planted_fault_gives_its_code_and_no_other(code: str) -> None:
    e = PLANTED[code]()
    before = copy.deepcopy(e)
    found = e.check()
    assert [f.code for f in found] == [code]
    assert found[0].severity == FINDINGS[code][0]
    sentence = str(found[0])
    assert "made up" in sentence and sentence.count(";") >= 2 and "\n" not in sentence
    for f in dataclasses.fields(e):
        np.testing.assert_array_equal(getattr(e, f.name), getattr(before, f.name))


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert codes(small_episode(N)) == []
    assert codes(standing(read_as_xyzw=False)) == []


def test_thresholds_are_where_they_are_said_to_be() -> None:
    assert codes(with_poses(add_((slice(20, None), 1, 6), JUMP_M - 0.01))) == []
    assert codes(with_poses(freeze(10, 19))) == []  # 0.4 s of identical poses
    assert codes(with_poses(freeze(10, 25, then_m=0.03))) == ["frozen"]
    assert codes(with_time(add_(slice(20, None), 0.4))) == []
    far = with_poses(add_((slice(20, None), 1, 6), JUMP_M - 0.01))
    assert [f.code for f in far.check(jump_m=0.2)] == ["pose_jump"]


@pytest.mark.parametrize(
    "name", ["poses", "valid", "frame_valid", "gripper_width_m", "sub_task", "joints", "actions", "half_size_m"]
)
def test_every_array_of_another_length_is_found(name: str) -> None:
    e = dataclasses.replace(
        small_episode(N),
        sub_task=np.zeros(N, int),
        joints=np.zeros((N, 3)),
        actions=np.zeros((N, 2)),
        half_size_m=np.ones((2, 3)),
    )
    assert codes(e) == []
    found = dataclasses.replace(e, **{name: getattr(e, name)[:-1]}).check()
    assert {f.code for f in found} == {"shape"}
    assert name == "poses" or name in str(found[0])


def test_a_stamp_that_is_no_number_costs_its_frame_and_is_told() -> None:
    e = with_time(set_(5, np.nan))
    assert codes(e) == ["non_finite_pose"] and "1 frame (5)" in str(e.check()[0])
    assert e.prepared().frame_valid.sum() == N - 1 and np.isfinite(e.prepared().time_s).all()


def test_several_faults_are_all_told() -> None:
    e = with_poses(set_((7, 0, 5), np.inf), with_poses(set_((9, 1, slice(0, 4)), 0.0)))
    e = dataclasses.replace(e, success_at_end=None, time_s=e.time_s + 5)
    assert set(codes(e)) == {"non_finite_pose", "zero_quaternion", "epoch_time", "success_unknown"}


@pytest.mark.parametrize("name", [n for n in bundled_names() if "/" not in n])
def test_bundled_episodes_are_clean(name: str) -> None:
    for e in bundled(name).iter_episodes():
        stalls = e.group == "fault stall"
        assert [str(f) for f in e.check() if f.severity != "info" and not (stalls and f.code == "frozen")] == []


# ------------------------------------------------------------------------------------------------------ prepared


def test_signs_of_quaternions_become_continuous() -> None:
    e = small_episode(N)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (N, 2, 1))
    flipped = with_poses(lambda p: p.__setitem__((..., slice(0, 4)), signs * p[..., :4]))
    q = flipped.prepared().poses[..., :4]
    assert ((q[1:] * q[:-1]).sum(-1) > 0).all()
    np.testing.assert_allclose(q[0], flipped.poses[0, :, :4], atol=1e-12)  # the first keeps its sign
    np.testing.assert_allclose(np.abs((q * e.poses[..., :4]).sum(-1)), 1, atol=1e-12)  # the same rotations


def test_invalid_frames_repeat_the_last_valid_one() -> None:
    e = with_poses(set_(slice(10, 13), np.nan))
    e = dataclasses.replace(e, frame_valid=np.arange(N) >= 2, gripper_width_m=np.arange(N, dtype=float))
    p = e.prepared()
    expected = np.arange(N)
    expected[:2], expected[10:13] = 2, 9
    assert p.valid.all(axis=1).tolist() == [t >= 2 and not 10 <= t < 13 for t in range(N)]
    assert p.frame_valid.tolist() == [t >= 2 for t in range(N)]  # lost bodies leave the frame
    np.testing.assert_allclose(p.poses, e.poses[expected], atol=1e-12)
    np.testing.assert_allclose(p.time_s, e.time_s, atol=1e-12)  # every frame keeps its place and its time
    np.testing.assert_array_equal(p.gripper_width_m, np.maximum(np.arange(N), 2))


def test_frames_without_a_usable_stamp_stand_between_their_neighbours() -> None:
    t = np.arange(N) * 0.05
    bad = {0: np.nan, 1: np.nan, 5: np.nan, 6: 3e9, 10: 0.501, 20: 0.95, 21: 0.95, N - 1: -np.inf}
    e = with_time(lambda time_s: time_s.__setitem__(list(bad), list(bad.values())))
    e = dataclasses.replace(e, frame_valid=~np.isin(np.arange(N), list(bad)))
    want = t.copy()
    want[10] = 0.501  # not valid, but in order: its own stamp
    p = e.prepared()
    np.testing.assert_allclose(p.time_s, want, atol=1e-12)
    assert not p.frame_valid[list(bad)].any() and p.frame_valid.sum() == N - len(bad)
    assert p.start_ns is None
    later = dataclasses.replace(e, time_s=e.time_s + 1.7e9).prepared()
    np.testing.assert_allclose(later.time_s, want, atol=1e-6)
    assert later.start_ns is not None and abs(later.start_ns - 1_700_000_000 * 10**9) < 1000


def test_what_was_mended_is_listed_once() -> None:
    e = with_poses(set_((7, 0, 5), np.inf), with_poses(set_((9, 1, slice(0, 4)), 0.0)))
    poses = e.poses.copy()
    poses[20:, 0, :4] *= -1.5
    p = dataclasses.replace(e, poses=poses, time_s=e.time_s + 5).prepared()
    assert [f"{f.code}: {f.found}" for f in p.mended] == [
        "non_finite_pose: cube: 1 frame (7) holds NaN or inf",
        "zero_quaternion: tcp: 1 frame (9) holds (0,0,0,0)",
        "unnormalised_quaternion: cube: 20 frames (first 20) hold a quaternion whose length is off by up to 0.5",
        "quaternion_sign: cube: 20 frames (first 20) hold a quaternion of the other sign",
        "epoch_time: time starts at 5 s",
    ]
    assert p.prepared().mended == p.mended and p.start_ns == 5 * 10**9


def test_a_wild_stamp_on_an_invalid_frame_does_not_make_time_step_back() -> None:
    e = dataclasses.replace(with_time(set_(5, 1e9)), frame_valid=np.arange(N) != 5)
    assert (np.diff(e.prepared().time_s) >= 0).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 2e9))
def test_prepared_is_idempotent_and_mutates_nothing(seed: int, start_s: float) -> None:
    rng = np.random.default_rng(seed)
    e = small_episode(N, seed=seed % 97)
    poses = e.poses * np.where(rng.random((N, 2, 1)) < 0.5, np.array([-1.02] * 4 + [1.0] * 3), 1.0)
    poses[rng.random(N) < 0.2] = np.nan
    poses[rng.integers(N), 0, :4] = 0
    e = dataclasses.replace(e, poses=poses, time_s=e.time_s + start_s, frame_valid=rng.random(N) < 0.8)
    e = dataclasses.replace(e, valid=rng.random((N, 2)) < 0.9)
    names = ("poses", "time_s", "valid", "frame_valid", "gripper_width_m")
    before = {name: getattr(e, name).copy() for name in names}
    once = e.prepared()
    twice = once.prepared()
    for name in names:
        np.testing.assert_array_equal(getattr(e, name), before[name])
        np.testing.assert_allclose(getattr(twice, name), getattr(once, name), rtol=0, atol=1e-15)
    assert np.isfinite(once.poses).all() and np.isfinite(once.time_s).all()
    np.testing.assert_allclose(np.linalg.norm(once.poses[..., :4], axis=-1), 1, atol=1e-12)
    assert once.time_s[0] == 0 and (np.diff(once.time_s) > 0).all()
    assert once.mended == twice.mended and not (once.valid & ~e.valid).any()


def test_an_episode_without_a_valid_frame_is_finite_all_the_same() -> None:
    p = with_poses(set_(slice(None), np.nan)).prepared()
    assert not p.valid.any() and np.isfinite(p.poses).all() and p.poses[3, 1].tolist() == [1, 0, 0, 0, 0, 0, 0]


def test_body_by_name() -> None:
    e = small_episode(N)
    np.testing.assert_array_equal(e.body("tcp"), e.poses[:, 1])
    with pytest.raises(KeyError, match="no body 'spoon'; it has cube, tcp"):
        e.body("spoon")


# ------------------------------------------------------------------------------------------------------- batches


@given(st.integers(1, 100_000))
def test_bucket_is_the_power_of_two_at_or_above(n: int) -> None:
    size = bucket_length(n)
    assert size >= n and size & (size - 1) == 0 and (size == 64 or size < 2 * n)
    assert bucket_length(size) == size


def test_buckets_by_hand() -> None:
    assert [bucket_length(n) for n in (0, 1, 64, 65, 128, 129, 1000)] == [64, 64, 64, 128, 128, 256, 1024]
    assert bucket_length(5, smallest=8) == 8


def test_padding_repeats_the_last_frame_and_is_not_valid() -> None:
    short, long = small_episode(5), small_episode(9, seed=1)
    short = dataclasses.replace(short, gripper_width_m=None, success_at_end=None)
    long = dataclasses.replace(long, success_at_end=False, frame_valid=np.arange(9) != 3)
    b = pad_episodes([short, long, small_episode(4)], dtype=np.float64)
    assert b.poses.shape == (3, 64, 2, 7) and b.n_episodes == 3 and b.bodies == ("cube", "tcp")
    assert b.frame_valid.sum(axis=1).tolist() == [5, 8, 4]
    assert not b.frame_valid[:, 9:].any() and not b.frame_valid[1, 3]
    np.testing.assert_array_equal(b.valid, np.repeat(b.frame_valid[..., None], 2, axis=2))
    np.testing.assert_array_equal(b.poses[0, :5], short.poses)
    np.testing.assert_array_equal(b.poses[0, 5:], np.broadcast_to(short.poses[-1], (59, 2, 7)))
    assert (np.diff(b.time_s) >= 0).all() and b.time_s[1, -1] == long.time_s[-1]
    assert np.isnan(b.gripper_width_m[0]).all() and (b.gripper_width_m[1] == 0.08).all()
    assert b.success.tolist() == [-1, 0, 1]
    assert pad_episodes([short]).poses.dtype == np.float32


def test_batches_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="it has the bodies tcp, bowl, expected cube, tcp as in"):
        pad_episodes([small_episode(5), small_episode(5, bodies=("tcp", "bowl"))])
    other = small_episode(5).with_bodies(("tcp", "cube"))  # the same bodies in another order are matched by name
    np.testing.assert_array_equal(*pad_episodes([small_episode(5), other]).poses)
    with pytest.raises(ValueError, match="does not hold an episode of 9 frames"):
        pad_episodes([small_episode(9)], length=8)


# -------------------------------------------------------------------------------------------------------- pytree


@pytree
class Sample:
    x: jax.Array
    maybe: jax.Array | None = None
    name: str = field(default="", metadata=STATIC)


def test_pytree_is_frozen_keyword_only_and_splits_leaves_from_static() -> None:
    s = Sample(x=jnp.ones(3), name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.x = jnp.zeros(3)
    with pytest.raises(TypeError):
        Sample(jnp.ones(3))
    assert len(jax.tree.leaves(s)) == 1  # None is no leaf, and neither is a name
    doubled = jax.tree.map(lambda v: 2 * v, s)
    assert isinstance(doubled, Sample) and doubled.name == "a" and float(doubled.x[0]) == 2


def test_static_fields_retrace_and_leaves_do_not() -> None:
    traced = []

    @jax.jit
    def f(s: Sample) -> jax.Array:
        traced.append(s.name)
        return s.x + len(s.name)

    f(Sample(x=jnp.ones(3), name="a"))
    f(Sample(x=jnp.zeros(3), name="a"))
    f(Sample(x=jnp.zeros(3), name="bb"))
    assert traced == ["a", "bb"]


def test_an_episode_is_a_pytree_of_its_arrays() -> None:
    e = small_episode(N)
    shifted = jax.tree.map(lambda x: x, e)
    assert shifted.bodies == e.bodies and shifted.success_at_end is True
