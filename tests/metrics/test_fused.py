"""The kernel behind `score` is the public function: values, gradients, every option, whatever the layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.align import Alignment
from jaxeval.metrics import fused
from jaxeval.metrics.geometric import GeometricParams, geometric_quality
from jaxeval.types import Body, Pair, Reference, Shape, SubTask, Symmetry, TaskSpec
from tests.executions import multiply, quick_jit

P, M, K, T = 2, 3, 9, 40
L = P * M
BODIES = ("a", "b", "table", "tcp")
PAIRS = (Pair("a", "b", "m_r"), Pair("a", "table", "m_s"), Pair("b", "table", "r_s"), Pair("a", "tcp", "m_g"))
SPIN = Symmetry("spin", (0.0, 0.6, 0.8))
HALF_TURNS = Symmetry("discrete", copies_wxyz=((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)))
NONE, ALL = Symmetry(), Symmetry("all")


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    with jax.enable_x64(dtype == "float64"):
        yield


def turns(rng: np.random.Generator, size: float, n: int) -> np.ndarray:
    """Poses near the identity: a rotation of about ``size`` rad and as many times 4 cm."""
    phi = rng.normal(0, size, (n, 3))
    angle = np.linalg.norm(phi, axis=-1, keepdims=True)
    xyz = np.where(angle > 0, np.sin(angle / 2) * phi / np.where(angle > 0, angle, 1.0), 0.0)
    return np.concatenate([np.cos(angle / 2), xyz, rng.normal(0, 0.04 * size, (n, 3))], axis=-1)


def inverse(pose: np.ndarray) -> np.ndarray:
    q = pose[..., :4] * [1.0, -1, -1, -1]
    back = np.concatenate([q, np.zeros_like(pose[..., 4:])], axis=-1)
    at = np.concatenate([np.ones_like(q[..., :1]), np.zeros_like(q[..., 1:]), -pose[..., 4:]], axis=-1)
    return multiply(back, at)


Case = tuple[Reference, np.ndarray, Alignment, np.ndarray]


def case(dtype: str, *, of_a: Symmetry = NONE, of_b: Symmetry = NONE, deviation: str = "se3_log") -> Case:
    """Four executions of a made-up task: at the nominal, near it, turned by exactly pi, and far off.

    In the second sub-task every nominal rotation is the identity, so that an error of exactly pi has w = 0 exactly.
    """
    rng = np.random.default_rng(5)
    n = len(BODIES)
    world = np.stack([turns(rng, 1.0, n) for _ in range(L)])  # [L, N, 7]
    world[M:, :, :4] = [1.0, 0, 0, 0]
    world[..., 4:] = np.round(rng.normal(0, 0.3, (L, n, 3)) * 64) / 64
    shapes = Shape("box", (0.02, 0.03, 0.04))
    bodies = tuple(Body(b, shapes, {"a": of_a, "b": of_b}.get(b, NONE)) for b in BODIES)
    spec = TaskSpec(name="made_up", bodies=bodies, sub_tasks=tuple(SubTask(f"part {p}", ()) for p in range(P)))
    of = {name: world[:, i] for i, name in enumerate(BODIES)}
    nominal = np.stack([multiply(inverse(of[p.b]), of[p.a]) for p in PAIRS])
    spread = rng.uniform(0.001, 0.006, (1, len(PAIRS), L, 6))
    deviations = rng.normal(0, 1, (K, len(PAIRS), L, 6)) * spread
    scale = np.stack([np.diag([0.02, 0.025, 0.03]) + 0.002 for _ in PAIRS])
    reference = Reference(
        nominal=nominal.astype(dtype),
        deviations=deviations.astype(dtype),
        seen=np.ones((K, len(PAIRS), L), bool),
        terminal=deviations[:, :, -1].astype(dtype),
        demo_valid=np.arange(K) != 2,
        converged=np.ones((len(PAIRS), L), bool),
        scale=scale.astype(dtype),
        duration_s=np.ones(P, dtype),
        pairs=PAIRS,
        spec=spec,
        bins_n=M,
        deviation=deviation,
    )
    bins = np.sort(rng.integers(0, L, (4, T)), axis=1)
    bins[:, -1] = L - 1
    bins[:, 30:33] = -1
    poses = world[np.maximum(bins, 0)]  # [4, T, N, 7]
    for k, size in ((1, 0.05), (3, 0.2)):
        poses[k] = multiply(poses[k], np.stack([turns(rng, size, n) for _ in range(T)]))
    half_turn = np.where((bins[2] >= M)[:, None], np.eye(7)[rng.integers(1, 4, T)], np.eye(7)[0])
    poses[2, :, 0] = multiply(poses[2, :, 0], half_turn)
    reached = np.ones((4, P), bool)
    reached[3, 1] = False
    alignment = Alignment(
        np.full((4, P), T), reached, bins.astype(np.int32), np.zeros((4, P), dtype), np.ones((4, P), dtype)
    )
    return reference, poses.astype(dtype), alignment, np.array([1, 1, -1, 0], np.int32)


def on_device(x: Any) -> Any:
    return jax.tree.map(jnp.asarray, x)


def public(poses, alignment, success, *, reference, params, bodies):
    one = partial(geometric_quality, reference=reference, params=params, bodies=bodies)
    return jax.vmap(one)(poses, alignment, success)


@cache
def slopes(quality, bodies: tuple[str, ...]):
    """Compiled once for all numbers that a case and the Params may hold."""

    def total(poses, params, alignment, success, reference):
        out = quality(poses, alignment, success, reference=reference, params=params, bodies=bodies)
        return jnp.sum(out.gate_free), out

    return quick_jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))


def with_gradients(quality, made: Case, params: GeometricParams, bodies: tuple[str, ...] = BODIES):
    """(parts, gradient in the poses and the Params) of the sum of the gate-free qualities."""
    reference, poses, alignment, success = on_device(made)
    poses = poses[:, :, [BODIES.index(b) for b in bodies]]
    (_, out), gradients = slopes(quality, bodies)(poses, on_device(params), alignment, success, reference)
    return jax.tree.map(np.asarray, (out, gradients))


def assert_same(made: Case, params: GeometricParams, dtype: str, bodies: tuple[str, ...] = BODIES) -> Any:
    exact = 1e-12 if dtype == "float64" else 2e-5
    with precision(dtype):
        ours, of_ours = with_gradients(fused.fused_quality, made, params, bodies)
        theirs, of_theirs = with_gradients(public, made, params, bodies)
    for field in dataclasses.fields(ours):
        got, want = getattr(ours, field.name), getattr(theirs, field.name)
        assert got.shape == want.shape, field.name
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=50 * exact, atol=10 * exact, err_msg=field.name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=field.name)
    for got, want in zip(jax.tree.leaves(of_ours), jax.tree.leaves(of_theirs), strict=True):
        assert np.isfinite(want).all()
        assert np.isfinite(got).all()
        assert np.abs(got - want).max() <= 50 * exact * max(1.0, float(np.abs(want).max()))
    return ours


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "default": ({}, {}, BODIES),
    "squared, decoupled": ({"penalty": "squared"}, {"deviation": "decoupled"}, BODIES),
    "saturating by progress": ({"penalty": "saturating", "weighting": "progress"}, {}, BODIES),
    "calibrated": ({"calibrated": True, "z_0_quantile": 0.5}, {}, BODIES),
    "thresholds": ({"sigma_pin_m": 0.009, "sigma_0_m": 0.002, "z_0": 0.5, "term_factor": 0.5}, {}, BODIES),
    "no gripper": ({}, {}, ("b", "table", "a")),
    "a spins": ({}, {"of_a": SPIN}, BODIES),
    "a discrete": ({}, {"of_a": HALF_TURNS}, BODIES),
    "a any, b spins": ({}, {"of_a": ALL, "of_b": SPIN}, BODIES),
}
SLOW = ("a discrete", "a any, b spins")  # to compile, for want of a path of their own


@pytest.mark.parametrize("option", [pytest.param(o, marks=[pytest.mark.slow] * (o in SLOW)) for o in OPTIONS])
def test_values_and_gradients_are_those_of_the_public_function(option: str) -> None:
    params, of_case, bodies = OPTIONS[option]
    ours = assert_same(case("float64", **of_case), GeometricParams(**params), "float64", bodies)
    assert ours.gate_free[0] > 0.9999  # at the nominal
    assert ours.gate_free[3] < 0.9


def test_in_float32_too() -> None:
    assert_same(case("float32"), GeometricParams(), "float32", BODIES)


def test_a_turn_by_pi_is_an_ordinary_one() -> None:
    """The third execution is off by exactly pi: w = 0 to the last bit, and Q falls, with a gradient."""
    made = case("float32")
    _, poses, alignment, _ = made
    upright = alignment.bins[2] >= M
    assert (poses[2, upright, 0, 0] == 0).all()
    ours, (of_poses, _) = with_gradients(fused.fused_quality, made, GeometricParams(penalty="saturating"))
    assert 0 < ours.gate_free[2] < 0.99
    assert np.abs(of_poses[2, upright]).max() > 0


@cache
def kernel(frames_in_chunk: int, bodies: tuple[str, ...]):
    """The kernel as it is compiled while the module's constant has that value."""
    return quick_jit(partial(fused.fused_quality, bodies=bodies))


def fuse(made: Case, params: GeometricParams, *, bodies: tuple[str, ...] = BODIES):
    reference, poses, alignment, success = on_device(made)
    out = kernel(fused.FRAMES_IN_CHUNK, bodies)(poses, alignment, success, reference=reference, params=params)
    return jax.tree.map(np.asarray, out)


def test_padding_changes_nothing_and_invalid_frames_are_never_read() -> None:
    reference, poses, alignment, success = made = case("float32")
    plain = fuse(made, GeometricParams())
    more = np.full((4, 50, *poses.shape[2:]), np.nan, np.float32)
    poses = np.where((alignment.bins >= 0)[..., None, None], poses, np.float32(np.nan))
    bins = np.concatenate([alignment.bins, np.full((4, 50), -1, np.int32)], axis=1)
    padded = (reference, np.concatenate([poses, more], axis=1), alignment._replace(bins=bins), success)
    longer, (of_poses, of_params) = with_gradients(fused.fused_quality, padded, GeometricParams())
    for name in ("q", "gate_free", "pair_cost", "sub_task_cost"):
        np.testing.assert_allclose(getattr(longer, name), getattr(plain, name), rtol=3e-5, atol=1e-6, equal_nan=True)
    for name in ("gate_code", "gate_index", "status", "worst_frame", "worst_pair", "worst_sub_task"):
        np.testing.assert_array_equal(getattr(longer, name), getattr(plain, name))
    np.testing.assert_array_equal(longer.frame_pair_cost[:, :, T:], 0)
    assert np.isfinite(of_poses).all()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(of_params))


@pytest.mark.parametrize("episodes_n", [1, 7])
def test_an_episode_scores_the_same_in_any_batch(episodes_n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are cut across episodes, and the last is filled up."""
    reference, poses, alignment, success = made = case("float32")
    whole = fuse(made, GeometricParams())
    monkeypatch.setattr(fused, "FRAMES_IN_CHUNK", 33)
    rows = np.arange(episodes_n) % 4
    some = (reference, poses[rows], jax.tree.map(lambda x: x[rows], alignment), success[rows])
    part = fuse(some, GeometricParams())
    jax.tree.map(lambda got, want: np.testing.assert_allclose(got, want[rows], rtol=3e-5, atol=1e-6), part, whole)


def test_undefined_scores_say_why() -> None:
    reference, poses, alignment, success = case("float32")
    bins = alignment.bins.copy()
    bins[0], bins[1, 1:] = -1, -1
    out = fuse((reference, poses, alignment._replace(bins=bins), success), GeometricParams())
    assert out.status.tolist() == [1, 1, 0, 0]
    assert np.isnan(out.q[:2]).all()
    for calibrated in (False, True):
        nothing = GeometricParams(sigma_pin_m=1e-6, sigma_0_m=1e-7, calibrated=calibrated)
        out = fuse((reference, poses, alignment, success), nothing)
        assert out.status.tolist() == [2] * 4
        assert np.isnan(out.q).all()
        assert (out.pair_cost == 0).all()


def test_a_sweep_is_one_trace_and_one_vmap() -> None:
    reference, poses, alignment, success = on_device(case("float32"))
    traces = []

    @jax.jit
    def q(params: GeometricParams) -> jax.Array:
        traces.append(1)
        run = partial(fused.fused_quality, reference=reference, bodies=BODIES)
        return run(poses, alignment, success, params=params).gate_free

    sweep = [GeometricParams(z_0=z, sigma_pin_m=s) for z, s in ((1.5, 0.004), (0.7, 0.009), (2.5, 0.0035))]
    one_by_one = np.stack([np.asarray(q(params)) for params in sweep])
    assert len(traces) == 1
    assert len({tuple(row) for row in one_by_one.round(6).tolist()}) == 3
    stacked = jax.tree.map(lambda *x: jnp.asarray(x), *sweep)
    at_once = jax.jit(jax.vmap(q))(stacked)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-5)


def test_tables_made_once_serve_every_batch() -> None:
    reference, poses, alignment, success = on_device(case("float32"))
    told = {"reference": reference, "params": GeometricParams(), "bodies": BODIES}
    made = quick_jit(partial(fused.tables, **told))()
    by_tables = quick_jit(lambda made: fused.quality_by_tables(poses, alignment, success, made, **told))(made)
    at_once = quick_jit(lambda: fused.fused_quality(poses, alignment, success, **told))()
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), by_tables, at_once)


@pytest.mark.parametrize(("degree", "right_to"), [(9, 3e-8), (23, 1e-13)])
def test_the_polynomial_of_the_logarithm(degree: int, right_to: float) -> None:
    """4 atan(y) / y between identity (y = 0) and pi (y = 1)."""
    y = np.linspace(1e-3, 1, 1001)
    R = np.polynomial.polynomial.polyval(2 * y**2 - 1, fused._remainder(degree))
    assert np.abs(1 - y**2 * R - np.arctan(y) / y).max() < right_to
