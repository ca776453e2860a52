"""Pinned directions of references that are learned from drawn demonstrations: many draws in one compiled call.

A progress bin enters a reference by its representative pose alone, so these are made once and then drawn from. What
follows is `fit_reference` without what counting does not need; the experiments check that both count alike.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from bundled_task import Demonstrations, quick_jit
from jaxtyping import Array, Bool, Float, Int

from jaxeval import align, se3
from jaxeval.metrics.geometric import GeometricParams, constraints, over_pairs
from jaxeval.run.fit import mean_scale
from jaxeval.types import Pair, Reference, TaskSpec

PINNED_M = 0.004


def spreads(
    demonstrations: Demonstrations,
    rows: Int[np.ndarray, "S n"],
    pairs: tuple[Pair, ...],
    used: Bool[np.ndarray, "S n"] | None = None,
) -> Float[np.ndarray, "S J L 6"]:
    """Spread (metres, ascending) along each principal direction of S references; infinite where a symmetry frees it.

    Each reference is learned from the demonstrations in its row of `rows` as far as they are `used` (all are); one that
    stands there twice counts twice. A direction is pinned where its spread is below the threshold:
    ``(spreads < PINNED_M).sum(axis=-1)`` counts them.
    """
    of = np.array([demonstrations.pairs.index(p) for p in pairs])
    kept, places = np.unique(rows, return_inverse=True)
    poses = representatives(demonstrations, kept)[:, of]
    used = np.ones(rows.shape, bool) if used is None else used
    scale = scales(demonstrations, [row[u] for row, u in zip(rows, used, strict=True)], pairs)
    arrays = (jnp.asarray(x) for x in (places.reshape(rows.shape), used, scale))
    covariance, free = _covariances(poses, *arrays, pairs=pairs, spec=demonstrations.spec)
    return spread_of(np.asarray(covariance), np.asarray(free))


def spread_of(covariance: Float[np.ndarray, "... 6 6"], free: Float[np.ndarray, "... 6 6"]) -> np.ndarray:
    """Square roots of the eigenvalues, ascending; as many infinite ones at the end as directions are free."""
    values = np.linalg.eigvalsh(covariance.astype(float) + free)
    free_n = np.rint(np.trace(free, axis1=-2, axis2=-1))
    last = np.arange(6) >= 6 - free_n[..., None]
    return np.where(last, np.inf, np.sqrt(np.maximum(values, 0.0)))


def pinned_of(reference: Reference) -> Int[np.ndarray, "J L"]:
    """Pinned directions of a fitted reference, as `jaxeval` counts them."""
    return np.asarray(_pinned(reference)).sum(axis=-1)


def representatives(demonstrations: Demonstrations, kept: Int[np.ndarray, " n"]) -> Float[Array, "n J L 7"]:
    """Pose of every relation in every progress bin of some demonstrations."""
    P, M = len(demonstrations.spec.sub_tasks), demonstrations.bins_n
    return _represent(demonstrations.relative[kept], demonstrations.bins[kept], sub_tasks_n=P, bins_n=M)


def scales(
    demonstrations: Demonstrations, drawn: list[Int[np.ndarray, " n"]], pairs: tuple[Pair, ...]
) -> Float[np.ndarray, "S J 3 3"]:
    """Metres a radian of each pair, from the mean size over the demonstrations drawn."""
    episodes = demonstrations.episodes
    same = len({e.half_size_m.tobytes() for e in episodes if e.half_size_m is not None}) <= 1
    made = [mean_scale([episodes[k] for k in d], demonstrations.spec, pairs) for d in (drawn[:1] if same else drawn)]
    return np.stack(made * (len(drawn) if same else 1))


@partial(quick_jit, static_argnames=("sub_tasks_n", "bins_n"))
def _represent(relative: Array, bins: Array, *, sub_tasks_n: int, bins_n: int) -> Float[Array, "K J L 7"]:
    one = partial(align.bin_poses, sub_tasks_n=sub_tasks_n, bins_n=bins_n)
    return jax.vmap(lambda tracks, b: one(tracks, b)[0])(relative, bins)


@quick_jit
def _pinned(reference: Reference) -> Array:
    return constraints(reference, GeometricParams()).pinned


@partial(jax.jit, static_argnames=("pairs", "spec"))  # it runs long: compiled well
def _covariances(
    poses: Float[Array, "K J L 7"],
    rows: Int[Array, "S n"],
    used: Bool[Array, "S n"],
    scale: Float[Array, "S J 3 3"],
    *,
    pairs: tuple[Pair, ...],
    spec: TaskSpec,
) -> tuple[Float[Array, "S J L 6 6"], Float[Array, "S J L 6 6"]]:
    def one(x: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        row, counts, s = x
        weights = counts.astype(poses.dtype)

        def learn(geometry: se3.PairGeometry, T: Float[Array, "n L 7"]) -> tuple[Array, Array]:
            nominal = jax.vmap(lambda x: se3.lie_mean(x, weights, geometry=geometry).pose, in_axes=1)(T)
            free = jax.vmap(lambda x: se3.free_projector(x, geometry))(nominal)
            deviate = jax.vmap(lambda m, x, f: se3.deviation(m, x, geometry, free=f))
            d = jax.vmap(lambda x: deviate(nominal, x, free))(T)
            return jnp.einsum("kla,klb,k->lab", d, d, weights) / (jnp.sum(weights) - 1), free

        return over_pairs(learn, spec, pairs, s, jnp.swapaxes(poses[row], 0, 1))

    return jax.lax.map(one, (rows, used, scale))
