"""Demonstrations of one bundled task, read and aligned once; references from any subsets of them with one compile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxeval import align
from jaxeval.io import bundled
from jaxeval.io.spec import load_spec
from jaxeval.metrics.fused import FusedQuality, fused_quality
from jaxeval.metrics.geometric import GeometricParams, fit_reference
from jaxeval.metrics.roles import infer_roles, interaction_pairs
from jaxeval.run.fit import mean_scale, spec_bodies, with_bodies
from jaxeval.types import Episode, EpisodeBatch, Pair, Reference, TaskSpec, bucket_length, pad_episodes

ROWS_N = 40
"""Rows of every batch: what is shorter is filled up, so that each task compiles once."""


def quick_jit(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Jit for code that runs a few times: on a CPU, compiling takes far longer than running does."""
    quick = {"xla_backend_optimization_level": "0"} if jax.default_backend() == "cpu" else {}
    return jax.jit(f, compiler_options=quick, **options)


@dataclasses.dataclass(frozen=True)
class Demonstrations:
    """The successful demonstrations of a bundled task, with what `fit_reference` needs of them.

    `length`: frames that every batch of this task is padded to; `ends`: frame at which each sub-task ended.
    """

    episodes: tuple[Episode, ...]
    spec: TaskSpec
    pairs: tuple[Pair, ...]
    bodies: tuple[str, ...]
    bins_n: int
    length: int
    relative: Float[Array, "K J T 7"]
    bins: Int[Array, "K T"]
    duration_s: Float[Array, "K P"]
    ends: Int[np.ndarray, "K P"]
    reached: np.ndarray

    @property
    def n(self) -> int:
        return len(self.episodes)

    def first(self, k: int) -> np.ndarray:
        """Mask of the first k demonstrations."""
        return np.arange(self.n) < k

    def random(self, k: int, sets_n: int, *, pool: int | None = None, seed: int) -> np.ndarray:
        """Masks [sets_n, K] of k demonstrations each, drawn from the first `pool` (all) without repeating one."""
        rng = np.random.default_rng(seed)
        drawn = np.zeros((sets_n, self.n), bool)
        for row in drawn:
            row[rng.choice(pool or self.n, k, replace=False)] = True
        return drawn

    def learn(self, masks: np.ndarray, *, deviation: str = "se3_log") -> Reference:
        """References from the subsets `masks` [S, K], stacked along a leading axis: one vmapped fit."""
        sizes = [
            mean_scale([e for e, m in zip(self.episodes, mask, strict=True) if m], self.spec, self.pairs)
            for mask in masks
        ]
        arrays = (self.relative, self.bins, self.duration_s, jnp.asarray(masks, bool), jnp.asarray(np.stack(sizes)))
        return _learn(*arrays, pairs=self.pairs, spec=self.spec, bins_n=self.bins_n, deviation=deviation)

    @cached_property
    def batch(self) -> EpisodeBatch:
        """The demonstrations themselves, padded for scoring."""
        return padded(self.episodes, self.length)

    def padded(self, episodes: Sequence[Episode]) -> EpisodeBatch:
        """Executions of this task, prepared and padded to the shape that every batch of it has."""
        return padded([with_bodies(e.prepared(), self.bodies) for e in episodes], self.length)

    def align(self, batch: EpisodeBatch, duration_s: Array) -> align.Alignment:
        """Alignment of a padded batch, given the mean durations of a reference's sub-tasks."""
        return _align(batch, duration_s, spec=self.spec, bodies=self.bodies, bins_n=self.bins_n)

    def score(self, batch: EpisodeBatch, reference: Reference, params: GeometricParams | None = None) -> FusedQuality:
        """Q and its parts of a padded batch against one reference."""
        aligned = self.align(batch, reference.duration_s)
        return _score(batch, aligned, reference, params or GeometricParams(), bodies=self.bodies)


def padded(episodes: Sequence[Episode], length: int) -> EpisodeBatch:
    """A batch of ROWS_N prepared episodes; the last is repeated where there are fewer."""
    ready = list(episodes)
    return pad_episodes(ready + ready[-1:] * (ROWS_N - len(ready)), length=length)


def load(task: str, *, bins_n: int = 10, changed: Callable[[Episode], Episode] = lambda e: e) -> Demonstrations:
    """The bundled successful demonstrations of a task, aligned; `changed` is applied to each beforehand."""
    spec = load_spec(task)
    good = [changed(e).prepared() for e in bundled(f"{task}_demos").iter_episodes() if e.success_at_end is not False]
    pairs = interaction_pairs(infer_roles(good, spec), spec)
    bodies = spec_bodies(spec, good[0].bodies)
    good = [with_bodies(e, bodies) for e in good]
    length = bucket_length(max(e.n_frames for e in good))
    batch, n = padded(good, length), len(good)
    columns = tuple((bodies.index(p.a), bodies.index(p.b)) for p in pairs)
    # mean durations count in sub-tasks that are never finished, and demonstrations finish all of theirs
    aligned = _align(batch, jnp.zeros(len(spec.sub_tasks)), spec=spec, bodies=bodies, bins_n=bins_n)
    return Demonstrations(
        episodes=tuple(good),
        spec=spec,
        pairs=pairs,
        bodies=bodies,
        bins_n=bins_n,
        length=length,
        relative=_relative(batch.poses, columns=columns)[:n],
        bins=aligned.bins[:n],
        duration_s=aligned.duration_s[:n],
        ends=np.asarray(aligned.ends)[:n],
        reached=np.asarray(aligned.reached)[:n],
    )


def thirds(n: int) -> np.ndarray:
    """Masks [3, n]: each leaves every third demonstration out, from the first, second or third on."""
    return np.arange(n)[None] % 3 != np.arange(3)[:, None]


def pick(reference: Reference, s: int) -> Reference:
    """One of the stacked references."""
    return jax.tree.map(lambda x: x[s], reference)


@partial(quick_jit, static_argnames=("spec", "bodies", "bins_n"))
def _align(
    batch: EpisodeBatch, duration_s: Array, *, spec: TaskSpec, bodies: tuple[str, ...], bins_n: int
) -> align.Alignment:
    def one(poses, time_s, valid, width):
        task = {"spec": spec, "bodies": bodies, "bins_n": bins_n, "mean_duration_s": duration_s}
        return align.align_episode(poses, time_s, valid, width, **task)

    return jax.vmap(one)(batch.poses, batch.time_s, batch.valid, batch.gripper_width_m)


@partial(quick_jit, static_argnames="columns")
def _relative(poses: Array, *, columns: tuple[tuple[int, int], ...]) -> Float[Array, "B J T 7"]:
    return jax.vmap(lambda p: align.relative_tracks(p, columns))(poses)


@partial(quick_jit, static_argnames=("pairs", "spec", "bins_n", "deviation"))
def _learn(
    relative: Array,
    bins: Array,
    duration_s: Array,
    masks: Array,
    scale: Array,
    *,
    pairs: tuple[Pair, ...],
    **static: Any,
) -> Reference:
    return jax.vmap(
        lambda mask, scale: fit_reference(relative, bins, duration_s, mask, scale=scale, pairs=pairs, **static)
    )(masks, scale)


def score(
    batch: EpisodeBatch,
    aligned: align.Alignment,
    reference: Reference,
    params: GeometricParams,
    *,
    bodies: tuple[str, ...],
) -> FusedQuality:
    """Q of a padded and aligned batch, as `jaxeval score` has it, to be vmapped over references or Params."""
    poses, success = jnp.asarray(batch.poses), jnp.asarray(batch.success)
    return fused_quality(poses, aligned, success, reference=reference, params=params, bodies=bodies)


_score = quick_jit(score, static_argnames="bodies")
