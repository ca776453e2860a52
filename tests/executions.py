"""Bundled executions, the references learned from them, and scores: read, fitted and compiled once a test run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import align
from jaxeval.io import bundled
from jaxeval.io.spec import load_spec
from jaxeval.metrics.geometric import GeometricParams, GeometricQuality, fit_reference, geometric_quality
from jaxeval.run.fit import Fit, align_batch, fit, mean_scale, spec_bodies, with_bodies
from jaxeval.segment.roles import infer_roles, interaction_pairs
from jaxeval.types import Body, Episode, EpisodeBatch, Reference, Shape, TaskSpec, pad_episodes

BOX = Shape("box", (0.02, 0.02, 0.02))


def quick_jit(f: Callable[..., Any]) -> Callable[..., Any]:
    """Jit that spends little on optimising: on a CPU most of a test's time is compiling."""
    options = {"xla_backend_optimization_level": "0"} if jax.default_backend() == "cpu" else {}
    return jax.jit(f, compiler_options=options)


@cache
def spec(task: str = "stack_cube") -> TaskSpec:
    return load_spec(task)


@cache
def episodes(name: str = "stack_cube_demos") -> tuple[Episode, ...]:
    return tuple(bundled(name).read())


def of_tilt(degrees: int) -> list[Episode]:
    return [e for e in episodes("stack_cube_tilt") if e.group == f"tilt {degrees} deg"]


@cache
def fitted(dtype: str = "float32") -> Fit:
    """StackCube from all 40 bundled demonstrations, of which one fails and is left out."""
    return fit(episodes(), spec(), dtype=np.dtype(dtype))


def learned(dtype: str = "float32") -> Reference:
    """The reference of :func:`fitted`."""
    return fitted(dtype).reference


@cache
def demonstrations(name: str = "stack_cube_demos", dtype: str = "float32") -> tuple[tuple[Episode, ...], tuple, dict]:
    """(demonstrations that count, arguments of fit_reference, its keywords): for many fits with one compile."""
    task = spec(name.removesuffix("_demos"))
    good = [e for e in episodes(name) if e.success_at_end is not False]
    roles = infer_roles(good, task)
    pairs, bodies = interaction_pairs(roles, task), spec_bodies(task, good[0].bodies)
    good = [with_bodies(e, bodies) for e in good]
    columns = tuple((bodies.index(p.a), bodies.index(p.b)) for p in pairs)
    batch = pad_episodes(good, dtype=np.dtype(dtype))
    aligned, relative, _ = align_batch(batch, spec=task, bins_n=10, columns=columns)
    assert np.asarray(aligned.reached).all()
    scale = jnp.asarray(mean_scale(good, task, pairs), dtype)
    keywords = {"scale": scale, "pairs": pairs, "spec": task, "bins_n": 10}
    return tuple(good), (relative, aligned.bins, aligned.duration_s), keywords


@cache
def _learner(name: str) -> Callable[[Any], Reference]:
    _, arrays, keywords = demonstrations(name)
    return quick_jit(lambda demo_valid: fit_reference(*arrays, demo_valid, **keywords))


def learned_from(counts: np.ndarray, name: str = "stack_cube_demos") -> Reference:
    """Reference from the demonstrations for which ``counts`` is True; all subsets share one compile."""
    return _learner(name)(jnp.asarray(counts, bool))


@partial(jax.jit, static_argnames="bodies")
def score_batch(
    batch: EpisodeBatch, reference: Reference, params: GeometricParams, *, bodies: tuple[str, ...]
) -> GeometricQuality:
    """Alignment and quality of every episode of a padded batch."""
    return jax.vmap(lambda *arrays: score_one(*arrays, reference=reference, params=params, bodies=bodies))(
        batch.poses, batch.time_s, batch.frame_valid, batch.gripper_width_m, batch.success, batch.valid
    )


def score_one(
    poses: jax.Array,
    time_s: jax.Array,
    frame_valid: jax.Array,
    width: jax.Array,
    success: jax.Array,
    valid: jax.Array | None = None,
    *,
    reference: Reference,
    params: GeometricParams,
    bodies: tuple[str, ...],
) -> GeometricQuality:
    aligned = align.align_episode(
        poses,
        time_s,
        frame_valid,
        width,
        valid=valid,
        spec=reference.spec,
        bodies=bodies,
        bins_n=reference.bins_n,
        mean_duration_s=reference.duration_s,
    )
    told = {"reference": reference, "params": params, "bodies": bodies, "valid": valid}
    return geometric_quality(poses, aligned, success, **told)


def batch_of(
    executions: Sequence[Episode], *, length: int = 256, rows: int = 40, dtype: str = "float32"
) -> tuple[EpisodeBatch, tuple[str, ...]]:
    """Padded batch of prepared episodes, filled to ``rows`` by repeating the last, so that one compile serves all."""
    task = load_spec(executions[0].task) if executions[0].task else spec()
    bodies = spec_bodies(task, executions[0].bodies)
    filled = [with_bodies(e.prepared(), bodies) for e in executions]
    filled += filled[-1:] * (rows - len(filled))
    return pad_episodes(filled, length=length, dtype=np.dtype(dtype)), bodies


def scores(
    executions: Sequence[Episode],
    reference: Reference | None = None,
    params: GeometricParams | None = None,
    *,
    length: int = 256,
    dtype: str = "float32",
) -> GeometricQuality:
    """Quality of every execution, as NumPy arrays with one row an execution."""
    reference = learned() if reference is None else reference
    batch, bodies = batch_of(executions, length=length, dtype=dtype)
    out = score_batch(batch, reference, params or GeometricParams(), bodies=bodies)
    return jax.tree.map(lambda x: np.asarray(x)[: len(executions)], out)


# ------------------------------------------------------------------------------------------ changed executions


def moved(e: Episode, T: np.ndarray) -> Episode:
    """The same execution in another world frame: T (wxyz_xyz) from the left on every pose, in float64."""
    return dataclasses.replace(e, poses=multiply(np.broadcast_to(T, e.poses.shape), e.poses))


def multiply(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Product of poses (wxyz_xyz) in float64 NumPy, with nothing of the package in it."""
    rotated = quaternion_product(
        quaternion_product(A[..., :4], np.concatenate([np.zeros_like(B[..., :1]), B[..., 4:]], -1)),
        A[..., :4] * np.array([1.0, -1, -1, -1]),
    )[..., 1:]
    return np.concatenate([quaternion_product(A[..., :4], B[..., :4]), rotated + A[..., 4:]], axis=-1)


def quaternion_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    w, v, s, u = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    return np.concatenate([w * s - (v * u).sum(-1, keepdims=True), w * u + s * v + np.cross(v, u)], axis=-1)


def axis_turn(axis: Sequence[float], angle: float | np.ndarray) -> np.ndarray:
    """Quaternions wxyz of turns about an axis."""
    unit = np.asarray(axis, np.float64) / np.linalg.norm(axis)
    half = np.asarray(angle, np.float64)[..., None] / 2
    return np.concatenate([np.cos(half), np.sin(half) * unit], axis=-1)


def random_poses(n: int, seed: int, *, metres: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(n, 4))
    return np.concatenate(
        [q / np.linalg.norm(q, axis=-1, keepdims=True), rng.uniform(-metres, metres, (n, 3))], axis=-1
    )


def truncated(e: Episode, n: int) -> Episode:
    """The first n frames."""
    return per_frame(e, lambda x: x[:n])


def per_frame(e: Episode, f: Callable[[np.ndarray], np.ndarray]) -> Episode:
    """``f`` on every array that has one row a frame."""
    names = ("poses", "time_s", "valid", "frame_valid", "gripper_width_m", "sub_task", "joints", "actions")
    arrays = {name: getattr(e, name) for name in names}
    return dataclasses.replace(e, **{name: f(x) for name, x in arrays.items() if x is not None})


def resampled(e: Episode, factor: float) -> Episode:
    """The same motion sampled ``factor`` times as often: rotations along the great circle, the rest linear."""
    e = e.prepared()
    time_s = np.linspace(0.0, e.time_s[-1], round((e.n_frames - 1) * factor) + 1)
    at = np.clip(np.searchsorted(e.time_s, time_s, side="right") - 1, 0, e.n_frames - 2)
    f = (time_s - e.time_s[at]) / (e.time_s[at + 1] - e.time_s[at])
    start, end = e.poses[at], e.poses[at + 1]
    g = f[:, None, None]
    angle = np.arccos(np.clip((start[..., :4] * end[..., :4]).sum(-1, keepdims=True), -1, 1))
    safe = np.where(angle > 1e-7, np.sin(angle), 1.0)
    q = np.where(
        angle > 1e-7,
        (np.sin((1 - g) * angle) * start[..., :4] + np.sin(g * angle) * end[..., :4]) / safe,
        start[..., :4],
    )
    poses = np.concatenate([q, (1 - g) * start[..., 4:] + g * end[..., 4:]], axis=-1)
    width = (1 - f) * e.gripper_width_m[at] + f * e.gripper_width_m[at + 1]
    return dataclasses.replace(
        e,
        poses=poses,
        time_s=time_s,
        valid=np.ones(poses.shape[:2], bool),
        frame_valid=np.ones(len(time_s), bool),
        gripper_width_m=width,
        sub_task=None,
        joints=None,
        actions=None,
    )


def plain_bodies(*names: str) -> tuple[Body, ...]:
    """Bodies of one small cube shape."""
    return tuple(Body(name, BOX) for name in names)


def small_episode(
    n: int = 40, *, step_s: float = 0.05, bodies: tuple[str, ...] = ("cube", "tcp"), seed: int = 0
) -> Episode:
    """A clean made-up execution: every body drifts by millimetres a frame and turns a little."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) * step_s
    poses = np.zeros((n, len(bodies), 7))
    for k in range(len(bodies)):
        poses[:, k, :4] = axis_turn(rng.normal(size=3), 0.3 + 0.2 * t)
        poses[:, k, 4:] = rng.uniform(-0.3, 0.3, 3) + t[:, None] * rng.uniform(0.02, 0.06, 3)
    return Episode.of(
        poses=poses,
        time_s=t,
        valid=np.ones(n, bool),
        gripper_width_m=np.full(n, 0.08),
        success_once=True,
        success_at_end=True,
        bodies=bodies,
        episode_id="made up",
    )
