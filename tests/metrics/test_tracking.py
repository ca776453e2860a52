"""Pose errors of tracks against a SciPy twin, their laws, and the masks of lost, jumping and frozen frames."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxeval import se3
from jaxeval.metrics import tracking
from jaxeval.metrics.status import Status
from jaxeval.metrics.tracking import ERRORS, TrackingParams
from jaxeval.types import Shape, Symmetry
from tests.executions import axis_turn, episodes, multiply, quick_jit, random_poses, small_episode
from tests.oracles import tracking_numpy as oracle

BOX = Shape("box", (0.02, 0.03, 0.05))
POINTS = tracking.surface_points(BOX, 48)
SCALE = se3.scale_matrix(se3.surface_second_moment(BOX))
HALF_TURN = Symmetry("discrete", (0.0, 0, 1), ((1.0, 0, 0, 0), (0.0, 0, 0, 1)))
SPIN = Symmetry("spin", (0.0, 0, 1))
PARAMS = TrackingParams()
T = 40

quality = {
    symmetry.kind: quick_jit(partial(tracking.tracking_quality, symmetry=symmetry, params=PARAMS))
    for symmetry in (Symmetry(), HALF_TURN, SPIN, Symmetry("all"))
}


def tracks(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(estimate, truth): off by up to centimetres and tens of degrees; frame 0 is exact, frame 1 half a turn."""
    rng = np.random.default_rng(seed)
    truth = random_poses(T, seed)
    off = np.concatenate(
        [axis_turn(rng.normal(size=3), rng.uniform(0, 0.6, T)), rng.normal(size=(T, 3)) * 0.01], axis=1
    )
    off[0] = [1, 0, 0, 0, 0, 0, 0]
    off[1] = [0, 0, 0, 1, 0, 0, 0]
    return multiply(truth, off), truth


def judge(
    kind: str, estimate: np.ndarray, truth: np.ndarray, seen: np.ndarray | None = None, due: np.ndarray | None = None,
    points: np.ndarray = POINTS, scale: np.ndarray = SCALE,
) -> tracking.TrackingQuality:  # fmt: skip
    dtype = jnp.zeros(0).dtype
    masks = [jnp.asarray(np.ones(len(truth), bool) if m is None else m) for m in (seen, due)]
    arrays = [jnp.asarray(x, dtype) for x in (estimate, truth)]
    out = quality[kind](*arrays, *masks, jnp.asarray(points, dtype), scale=jnp.asarray(scale, dtype))
    return jax.tree.map(np.asarray, out)


def code(sentence: str) -> int:
    return {status.sentence: int(status) for status in Status}[sentence]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 3e-6)])
@pytest.mark.parametrize("kind", ["none", "discrete"])
def test_every_error_is_the_twins(kind: str, dtype: str, tolerance: float) -> None:
    turns = Rotation.from_quat([[0, 0, 0, 1.0]] if kind == "none" else [[0, 0, 0, 1.0], [0, 0, 1, 0]])
    estimate, truth = tracks()
    with jax.enable_x64(dtype == "float64"):
        out = judge(kind, estimate, truth)
    assert out.status == 0 and out.coverage == 1
    for t in range(T):
        want = oracle.errors(estimate[t], truth[t], POINTS, turns)
        for name in ERRORS:
            assert getattr(out.frames, name)[t] == pytest.approx(want[name], abs=tolerance), (t, name)
    for name in ERRORS:
        values = getattr(out.frames, name)
        assert out.mean[name] == pytest.approx(values.mean(), rel=1e-5)
        np.testing.assert_allclose(out.quantiles[name], np.quantile(values, tracking.QUANTILES), rtol=1e-5, atol=1e-7)
    hits = (out.frames.translation_m <= 0.05) & (out.frames.rotation_symmetric_rad <= np.radians(5))
    assert out.near_share == pytest.approx(hits.mean()) and 0 < hits.sum() < T


def test_golden_numbers_of_a_box_turned_over() -> None:
    """A half turn about z: 0 with the symmetry declared; without it, 180 deg, and twice the distance from the axis."""
    pose = np.array([[0.5, 0.5, 0.5, 0.5, 1.0, 2.0, 3.0]])
    over = multiply(pose, np.array([[0.0, 0, 0, 1, 0, 0, 0]]))
    plain, declared = judge("none", over, pose), judge("discrete", over, pose)
    assert plain.frames.rotation_rad[0] == pytest.approx(np.pi, abs=1e-5)
    assert plain.frames.rotation_symmetric_rad[0] == pytest.approx(np.pi, abs=1e-5)
    assert plain.frames.mssd_m[0] == pytest.approx(2 * np.hypot(0.02, 0.03), rel=1e-4)
    assert plain.frames.add_m[0] == pytest.approx(2 * np.hypot(*POINTS[:, :2].T).mean(), rel=1e-4)
    assert declared.frames.rotation_rad[0] == pytest.approx(np.pi, abs=1e-5)
    assert declared.frames.rotation_symmetric_rad[0] < 1e-5 and declared.frames.mssd_m[0] < 1e-6
    assert (plain.near_share, declared.near_share) == (0, 1)
    beside = judge("none", pose + np.array([0, 0, 0, 0, 0.06, 0, 0]), pose)
    assert beside.near_share == 0  # 6 cm off, 0 deg
    for name in ("translation_m", "add_m", "mssd_m"):
        assert beside.mean[name] == pytest.approx(0.06, rel=1e-4)
    assert 0.01 < beside.mean["add_s_m"] < 0.05  # the nearest point lies nearer


def test_a_spin_and_any_turn_are_free() -> None:
    rng = np.random.default_rng(4)
    ring = tracking.surface_points(Shape("cylinder", (0.03, 0.03, 0.05)), 48)
    scale = se3.scale_matrix(se3.surface_second_moment(Shape("cylinder", (0.03, 0.03, 0.05))))
    truth = random_poses(T, 5)
    off = np.concatenate([axis_turn([0, 0, 1], rng.uniform(-3, 3, T)), rng.normal(size=(T, 3)) * 0.005], axis=1)
    shift = np.linalg.norm(off[:, 4:], axis=1)
    spun = judge("spin", multiply(truth, off), truth, points=ring, scale=scale)
    np.testing.assert_allclose(spun.frames.mssd_m, shift, atol=2e-6)  # exact, between two of the 72 turns too
    np.testing.assert_allclose(spun.frames.rotation_symmetric_rad, 0, atol=2e-5)
    assert judge("none", multiply(truth, off), truth, points=ring, scale=scale).mean["mssd_m"] > 0.02
    anyhow = np.concatenate([random_poses(T, 6)[:, :4], off[:, 4:]], axis=1)
    ball = judge("all", multiply(truth, anyhow), truth)
    np.testing.assert_allclose(ball.frames.mssd_m, shift, atol=2e-6)


def test_the_world_frame_the_sign_of_quaternions_and_padding_change_nothing() -> None:
    estimate, truth = tracks(1)
    base = judge("discrete", estimate, truth)
    turn = random_poses(1, 9)
    sign = np.random.default_rng(0).choice([-1.0, 1.0], (T, 1)) * np.array([1, 1, 1, 1, 0, 0, 0]) + np.array(
        [0, 0, 0, 0, 1, 1, 1]
    )
    for e, t in ((multiply(np.tile(turn, (T, 1)), estimate), multiply(np.tile(turn, (T, 1)), truth)), (
        estimate * sign, truth)):  # fmt: skip
        other = judge("discrete", e, t)
        for name in ERRORS:
            np.testing.assert_allclose(getattr(other.frames, name), getattr(base.frames, name), atol=5e-6)
    rubbish = np.full((24, 7), np.nan)
    mask = np.arange(T + 24) < T
    longer = judge("discrete", np.concatenate([estimate, rubbish]), np.concatenate([truth, rubbish]), mask, mask)
    assert longer.status == 0 and longer.coverage == 1
    for name in ERRORS:
        np.testing.assert_allclose(longer.mean[name], base.mean[name], rtol=1e-5)
        np.testing.assert_allclose(longer.quantiles[name], base.quantiles[name], rtol=1e-5, atol=1e-7)
        assert np.isnan(getattr(longer.frames, name)[T:]).all()


def test_lost_frames_lower_coverage_and_count_as_misses() -> None:
    _, truth = tracks(2)
    seen, due = np.arange(T) % 4 != 0, np.arange(T) < 36
    out = judge("none", truth, truth, seen, due)
    assert out.near_share == 1 and out.coverage == pytest.approx(27 / 36) == pytest.approx(float(out.near_coverage))
    none = judge("none", truth, truth, ~due, due)
    assert none.status == code("no frame with both an estimate and a true pose") and none.coverage == 0
    assert np.isnan(none.near_share) and all(np.isnan(none.mean[name]) for name in ERRORS)
    without = judge("none", truth, truth, seen, np.zeros(T, bool))
    assert without.status == none.status and np.isnan(without.coverage)
    spoilt = truth.copy()
    spoilt[5, 4] = np.inf
    assert judge("none", spoilt, truth).status == code("bad input: a valid pose is not finite")


def test_eager_vmap_and_gradients() -> None:
    estimate, truth = (jnp.asarray(x[:4], jnp.float32) for x in tracks(3))
    points, scale = jnp.asarray(POINTS, jnp.float32), jnp.asarray(SCALE, jnp.float32)
    errors = partial(tracking.frame_errors, points=points, scale=scale, symmetry=HALF_TURN)
    on = jnp.ones(4, bool)
    one = quick_jit(errors)(estimate, truth, on)
    batch = quick_jit(jax.vmap(errors, in_axes=(0, 0, None)))(
        jnp.stack([estimate, truth]), jnp.stack([truth, truth]), on
    )
    for name in ERRORS:
        np.testing.assert_allclose(getattr(batch, name)[0], getattr(one, name), atol=1e-6)

    def total(e: jax.Array) -> jax.Array:
        out = errors(e, truth, on)
        return sum(jnp.sum(getattr(out, name)) for name in ERRORS)

    slope = quick_jit(jax.grad(total))
    assert np.isfinite(slope(estimate)).all() and np.isfinite(slope(truth)).all()  # also where every error is 0
    assert np.abs(slope(estimate)[2:]).min(axis=1).max() > 0


# -------------------------------------------------------------------------------------------------------------- masks

masks_of = quick_jit(partial(tracking.track_masks, params=PARAMS))


def masks(poses: np.ndarray, time_s: np.ndarray, valid: np.ndarray, due: np.ndarray | None = None) -> dict:
    due = np.ones(len(time_s), bool) if due is None else due
    out = masks_of(
        jnp.asarray(poses, jnp.float32), jnp.asarray(time_s, jnp.float32), jnp.asarray(valid), jnp.asarray(due)
    )
    return {name: np.flatnonzero(m).tolist() for name, m in out._asdict().items()}


def test_trial_18_jumps_frozen_and_lost_frames_are_masked_where_the_check_finds_them() -> None:
    e = episodes()[0]
    n, cube = e.n_frames, e.bodies.index("cubeA")
    clean = masks(e.poses, e.time_s, e.frame_valid)
    assert clean["jump"] == clean["stuck"] == clean["lost"] == []
    assert ("frozen" in {f.code for f in e.check()}) == bool(clean["frozen"])

    poses = e.poses.copy()
    poses[60:, cube, 4] += 0.31
    assert masks(poses, e.time_s, e.frame_valid)["jump"] == [60]
    found = {f.code: str(f) for f in dataclasses.replace(e, poses=poses).check()}
    assert "between frames 59 and 60" in found["pose_jump"]

    stuck = e.poses.copy()
    stuck[30:90] = stuck[30]
    out = masks(stuck, e.time_s, e.frame_valid)
    assert out["stuck"] == list(range(30, 90)) and set(out["stuck"]) <= set(out["frozen"])
    assert "frames 30-89" in {f.code: str(f) for f in dataclasses.replace(e, poses=stuck).check()}["frozen_then_jump"]

    valid = e.frame_valid.copy()
    valid[40:50] = False
    due = np.arange(n) < n - 5
    out = masks(np.where(valid[:, None, None], stuck, np.nan), e.time_s, valid, due)
    assert out["lost"] == list(range(40, 50))
    assert out["stuck"] == [*range(30, 40), *range(50, 90)]  # a run goes on across lost frames


def test_a_stall_is_frozen_but_not_stuck_and_a_short_one_is_neither() -> None:
    e = small_episode(60)
    stall = e.poses.copy()
    stall[45:] = stall[45]
    out = masks(stall, e.time_s, e.frame_valid)
    assert out["frozen"] == list(range(45, 60)) and out["stuck"] == []
    short = e.poses.copy()
    short[20:30] = short[20]  # 0.45 s
    assert masks(short, e.time_s, e.frame_valid)["frozen"] == []
    short[20:31] = short[20]  # 0.5 s
    assert masks(short, e.time_s, e.frame_valid)["frozen"] == list(range(20, 31))
    one = masks(short[:, :1], e.time_s, e.frame_valid)
    assert one["frozen"] == list(range(20, 31))
    nothing = masks(short, e.time_s, np.zeros(60, bool))
    assert nothing == {"lost": list(range(60)), "jump": [], "frozen": [], "stuck": []}


# ---------------------------------------------------------------------------------------------------- surface points

MESH = Shape(
    "mesh",
    vertices_m=((0.0, 0, 0), (0.1, 0, 0), (0.0, 0.2, 0), (0.0, 0, 0.3)),
    faces=((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)),
)


@pytest.mark.parametrize(
    "shape",
    [BOX, Shape("sphere", (0.04,) * 3), Shape("cylinder", (0.03, 0.03, 0.1)), MESH],
    ids=lambda shape: shape.kind,
)
def test_surface_points_lie_on_the_surface_and_spread_over_it(shape: Shape) -> None:
    x = tracking.surface_points(shape, 4096)
    assert x.shape == (4096, 3) and np.array_equal(x, tracking.surface_points(shape, 4096))
    about = x - x.mean(axis=0)
    np.testing.assert_allclose(about.T @ about / len(x), se3.surface_second_moment(shape), atol=2e-2 * np.var(x))
    if shape.kind == "box":
        on = np.isclose(np.abs(x), np.array(shape.size_m))
        assert on.any(axis=1).all() and (np.abs(x) <= np.array(shape.size_m) + 1e-12).all() and on[:8].all()
    elif shape.kind == "sphere":
        np.testing.assert_allclose(np.linalg.norm(x, axis=1), 0.04)
    elif shape.kind == "cylinder":
        wall, cap = np.isclose(np.hypot(x[:, 0], x[:, 1]), 0.03), np.isclose(np.abs(x[:, 2]), 0.1)
        assert (wall | cap).all() and (wall & ~cap).mean() == pytest.approx(0.2 / 0.23, abs=0.01)
    with pytest.raises(ValueError, match="at least 16"):
        tracking.surface_points(shape, 3)


def test_settings_that_mean_nothing_are_refused() -> None:
    assert PARAMS.check() is PARAMS
    with pytest.raises(ValueError, match=r"tracking\.near_m is 0\.0; expected a positive number"):
        TrackingParams(near_m=0.0).check()
    with pytest.raises(ValueError, match="kind 'cone' is not one of"):
        tracking.surface_points(Shape("cone"), 64)
