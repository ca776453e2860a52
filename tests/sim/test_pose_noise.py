"""A modelled tracker errs by as much as it says, at the times it says, and the same for the same key."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from jaxeval.io import bundled
from jaxeval.io.errors import InputError
from jaxeval.sim.pose_noise import PoseNoise, add_noise
from jaxeval.types import Body, Episode, Shape, TaskSpec
from tests.executions import axis_turn, small_episode

BODIES = ("cube", "bin", "table", "tcp")
NOISY = PoseNoise(position_m=0.003, rotation_rad=0.02, slow_share=0.5, dropout_rate_hz=0.5, dropout_s=0.2, delay_s=0.07)


def long_episode(n: int = 40_000, *, uneven: bool = False, bodies: tuple[str, ...] = BODIES) -> Episode:
    """Bodies at rest, each turned its own way, frames 0.05 s apart (or 0.02 and 0.08 by turns)."""
    poses = np.zeros((n, len(bodies), 7))
    for k in range(len(bodies)):
        poses[:, k, :4] = axis_turn([1, 2, k], 0.7 + k)
        poses[:, k, 4:] = 0.1 * k
    steps = np.where(np.arange(n - 1) % 2, 0.08, 0.02) if uneven else np.full(n - 1, 0.05)
    e = small_episode(n, bodies=bodies)
    return dataclasses.replace(e, poses=poses, time_s=np.concatenate([[0.0], np.cumsum(steps)]))


def body_turns(true: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Rotation vectors of the error q^-1 q_seen, written out by hand."""
    (w, x, y, z), (W, X, Y, Z) = (true[:, :4] * np.array([1, -1, -1, -1])).T, seen[:, :4].T
    vector = np.stack([w * X + x * W + y * Z - z * Y, w * Y - x * Z + y * W + z * X, w * Z + x * Y - y * X + z * W], 1)
    size = np.linalg.norm(vector, axis=1, keepdims=True)
    return vector / size * 2 * np.arctan2(size, (w * W - x * X - y * Y - z * Z)[:, None])


def test_a_perfect_tracker_changes_nothing() -> None:
    for e in [*bundled("stack_cube_tilt").read()[:2], long_episode(50)]:
        seen = add_noise(e, PoseNoise(), key=0)
        np.testing.assert_array_equal(seen.poses, e.poses)
        np.testing.assert_array_equal(seen.valid, e.valid)


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_each_axis_deviates_by_what_is_stated(share: float) -> None:
    e = long_episode()
    seen = add_noise(e, PoseNoise(position_m=0.004, rotation_rad=0.05, slow_share=share, correlation_s=0.2), key=1)
    for name in ("cube", "bin"):
        moved = (seen.body(name) - e.body(name))[:, 4:]
        turned = body_turns(e.body(name), seen.body(name))
        # 40,000 frames, at worst one independent one in eight: 1 % of sampling error
        np.testing.assert_allclose(moved.std(axis=0), 0.004, rtol=0.04)
        np.testing.assert_allclose(turned.std(axis=0), 0.05, rtol=0.04)
        errors = np.concatenate([moved, turned], axis=1)
        assert np.abs(np.corrcoef(errors.T) - np.eye(6)).max() < 0.05
    np.testing.assert_array_equal(seen.poses[:, 2:], e.poses[:, 2:])  # support and gripper
    assert abs(np.corrcoef(*(seen.body(b)[:, 4] for b in ("cube", "bin")))[0, 1]) < 0.05
    np.testing.assert_allclose(np.linalg.norm(seen.poses[..., :4], axis=-1), 1, atol=1e-12)


def test_rotation_acts_in_the_frame_of_the_body_and_position_in_the_world() -> None:
    """The same error of a body that is turned: its rotation vector stays as it is, and so does the shift."""
    e = long_episode(200)
    turned = dataclasses.replace(e, poses=np.roll(e.poses, 1, axis=1))
    noise = PoseNoise(position_m=0.004, rotation_rad=0.05)
    a, b = (add_noise(x, noise, key=2) for x in (e, turned))
    vectors = [body_turns(x.body("cube"), y.body("cube")) for x, y in ((e, a), (turned, b))]
    np.testing.assert_allclose(*vectors, atol=1e-12)
    shifts = [(y.body("cube") - x.body("cube"))[:, 4:] for x, y in ((e, a), (turned, b))]
    np.testing.assert_allclose(*shifts, atol=1e-12)
    assert np.abs(a.body("cube") - b.body("cube"))[:, :4].max() > 0.1  # in poses that differ


@pytest.mark.parametrize("uneven", [False, True])
def test_errors_are_alike_for_as_long_as_stated(uneven: bool) -> None:
    """Autocorrelation share * exp(-dt / tau) after 0.1 s and 0.5 s, by the clock and not by frames."""
    e = long_episode(uneven=uneven)
    noise = PoseNoise(position_m=0.01, slow_share=0.7, correlation_s=0.4)
    x = (add_noise(e, noise, key=3).poses - e.poses)[:, :2, 4:].reshape(e.n_frames, -1)
    for frames_n, dt in ((2, 0.1), (10, 0.5)):
        alike = (x[frames_n:] * x[:-frames_n]).mean() / (x**2).mean()
        np.testing.assert_allclose(alike, 0.7 * np.exp(-dt / 0.4), atol=0.02)
    if uneven:  # a frame 0.02 s later is more alike than one 0.08 s later
        ahead = (x[1:] * x[:-1]).mean(axis=1) / (x**2).mean()
        np.testing.assert_allclose([ahead[::2].mean(), ahead[1::2].mean()], 0.7 * np.exp([-0.05, -0.2]), atol=0.02)


def test_delay_is_the_motion_some_time_ago() -> None:
    """Constant speed and turn: position v (t - d), angle w (t - d), and the first pose until then."""
    e = long_episode(60)
    poses, t = e.poses.copy(), e.time_s
    poses[:, :, :4] = axis_turn([0, 0, 1], 0.4 * t)[:, None]
    poses[:, :, 4:] = np.array([0.2, 0, 0]) * t[:, None, None]
    e = dataclasses.replace(e, poses=poses)
    seen = add_noise(e, PoseNoise(delay_s=0.12), key=0)
    ago = np.maximum(t - 0.12, 0)
    np.testing.assert_allclose(seen.body("cube")[:, 4], 0.2 * ago, atol=1e-12)
    np.testing.assert_allclose(seen.body("cube")[:, :4], axis_turn([0, 0, 1], 0.4 * ago), atol=1e-12)
    np.testing.assert_array_equal(seen.body("tcp"), e.body("tcp"))
    assert seen.valid.all()


def test_a_frame_not_recorded_is_not_seen_later_either() -> None:
    e = long_episode(20)
    gap = dataclasses.replace(e, frame_valid=~np.isin(np.arange(20), [8, 9]))
    one_frame_late = add_noise(gap, PoseNoise(delay_s=0.05), key=0)
    assert list(np.flatnonzero(~one_frame_late.valid_of("cube"))) == [8, 9, 10]
    between_frames = add_noise(gap, PoseNoise(delay_s=0.07), key=0)
    assert list(np.flatnonzero(~between_frames.valid_of("cube"))) == [8, 9, 10, 11]


def test_dropouts_lose_the_tracked_bodies_and_hold_their_last_pose() -> None:
    e = long_episode()
    noise = PoseNoise(position_m=0.003, dropout_rate_hz=0.3, dropout_s=0.5)
    seen = add_noise(e, noise, key=4)
    lost = ~seen.valid_of("cube")
    assert seen.frame_valid.all() and seen.valid_of("tcp").all()
    np.testing.assert_allclose(lost.mean(), 1 - np.exp(-0.3 * 0.5), atol=0.01)  # 600 dropouts
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lost.astype(int), [0]])))
    lengths = edges[1::2] - edges[::2]
    assert lengths[:-1].min() == 10  # frames in 0.5 s; overlapping dropouts last longer
    first, length = int(edges[2]), int(lengths[1])
    held = seen.body("cube")[first - 1 : first + length]
    np.testing.assert_array_equal(held, np.broadcast_to(held[0], held.shape))
    without = add_noise(e, dataclasses.replace(noise, dropout_rate_hz=0.0), key=4)
    np.testing.assert_array_equal(seen.poses[seen.valid], without.poses[seen.valid])


def test_a_named_frame_rides_on_its_body() -> None:
    bodies = ("peg", "peg_head", "table", "tcp")
    box = Shape("box", (0.02, 0.02, 0.02))
    listed = (Body("peg", box), Body("peg_head", box, frame_of="peg"), Body("table", box), Body("tcp", box))
    spec = TaskSpec(name="peg", bodies=listed, sub_tasks=())
    e = long_episode(50, bodies=bodies)
    for k in (0, 1):
        e.poses[:, k, :4] = axis_turn([0, 0, 1], 0.5)
    e.poses[:, 1, 4:] = e.poses[:, 0, 4:] + np.array([0.2 * np.cos(0.5), 0.2 * np.sin(0.5), 0])  # 0.2 m along its x
    noise = PoseNoise(position_m=0.003, rotation_rad=0.1)
    seen = add_noise(e, noise, key=5, spec=spec)
    w, x, y, z = seen.body("peg")[:, :4].T
    x_axis = np.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)], axis=1)
    np.testing.assert_allclose((seen.body("peg_head") - seen.body("peg"))[:, 4:], 0.2 * x_axis, atol=1e-12)
    np.testing.assert_allclose(seen.body("peg_head")[:, :4], seen.body("peg")[:, :4], atol=1e-12)
    apart = add_noise(e, noise, key=5)  # without a task a frame is a body like any other
    assert np.abs(np.diff(apart.poses[:, :2, 4:], axis=1) - 0.2 * x_axis[:, None]).max() > 0.003
    np.testing.assert_array_equal(apart.body("peg"), seen.body("peg"))


def test_a_key_gives_the_same_bits_in_any_order() -> None:
    episodes = [dataclasses.replace(long_episode(100), episode_id=str(k)) for k in range(3)]
    forward = [add_noise(e, NOISY, key=7).poses for e in episodes]
    backward = [add_noise(e, NOISY, key=jax.random.key(7)).poses for e in reversed(episodes)][::-1]
    for a, b in zip(forward, backward, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.abs(forward[0] - forward[1]).max() > 1e-3
    assert np.abs(forward[0] - add_noise(episodes[0], NOISY, key=8).poses).max() > 1e-3
    swapped = dataclasses.replace(episodes[0], poses=episodes[0].poses[:, ::-1].copy(), bodies=tuple(reversed(BODIES)))
    np.testing.assert_array_equal(add_noise(swapped, NOISY, key=7).body("cube"), forward[0][:, 0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"position_m": 3.0}, "position_m is 3.0, expected metres"),
        ({"position_m": float("nan")}, "position_m is nan"),
        ({"rotation_rad": -0.1}, "rotation_rad is -0.1, expected radians"),
        ({"slow_share": 1.2}, "slow_share is 1.2, expected a share"),
        ({"correlation_s": 0.0}, "correlation_s is 0.0, expected seconds above 0"),
        ({"dropout_rate_hz": -1.0}, "dropout_rate_hz is -1.0"),
        ({"dropout_s": 0.0}, "dropout_s is 0.0, expected seconds above 0"),
        ({"delay_s": -0.1}, "delay_s is -0.1, expected seconds, 0 or more"),
        ({"bodies": ("cube", "cube")}, "expected a tuple of different names"),
        ({"bodies": ("cub",)}, "names the body 'cub', expected one of cube, bin, table, tcp"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(change: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=r"^[^\n]+$") as error:
        add_noise(long_episode(20), dataclasses.replace(NOISY, **change), key=0)
    assert says in str(error.value)


def test_times_that_step_back_are_refused() -> None:
    e = long_episode(20)
    e.time_s[10] = 0.0
    with pytest.raises(InputError, match="time_s does not increase"):
        add_noise(e, NOISY, key=0)
