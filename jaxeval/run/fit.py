"""`jaxeval fit`: demonstrations in, Reference out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import align, se3
from jaxeval.metrics.geometric import fit_reference
from jaxeval.metrics.roles import infer_roles, interaction_pairs
from jaxeval.types import Episode, EpisodeBatch, Pair, Reference, TaskSpec, pad_episodes


@dataclasses.dataclass(frozen=True)
class Fit:
    """A reference, the demonstrations it rests on, and what was said on the way."""

    reference: Reference
    used: tuple[Episode, ...]
    left_out: tuple[tuple[str, str], ...]  # (episode, why)
    notes: tuple[str, ...]


def spec_bodies(spec: TaskSpec, present: Sequence[str]) -> tuple[str, ...]:
    """Bodies of the spec that an episode has, in the spec's order: what is padded and moved to the device."""
    return tuple(b.name for b in spec.bodies if b.name in present)


def with_bodies(episode: Episode, bodies: tuple[str, ...]) -> Episode:
    """The episode with these bodies alone, in this order."""
    columns = [episode.bodies.index(b) for b in bodies]
    half = None if episode.half_size_m is None else episode.half_size_m[columns]
    return dataclasses.replace(episode, poses=episode.poses[:, columns], bodies=bodies, half_size_m=half)


@partial(jax.jit, static_argnames=("spec", "bodies", "bins_n", "columns"))
def align_batch(
    batch: EpisodeBatch, *, spec: TaskSpec, bodies: tuple[str, ...], bins_n: int, columns: tuple[tuple[int, int], ...]
):
    """Alignment [B, ...] and relative tracks [B, J, T, 7] of a padded batch."""

    def one(poses, time_s, valid, width):
        aligned = align.align_episode(poses, time_s, valid, width, spec=spec, bodies=bodies, bins_n=bins_n)
        return aligned, align.relative_tracks(poses, columns)

    return jax.vmap(one)(batch.poses, batch.time_s, batch.valid, batch.gripper_width_m)


def mean_scale(episodes: Sequence[Episode], spec: TaskSpec, pairs: tuple[Pair, ...]) -> np.ndarray:
    """S_a of every pair, [J, 3, 3]: from the demonstrations' mean size where recorded, else from the spec's shape."""
    out = []
    for pair in pairs:
        body = spec.body(pair.a)
        owner = body.frame_of or body.name
        sizes = [
            e.half_size_m[e.bodies.index(owner)]
            for e in episodes
            if e.half_size_m is not None and owner in e.bodies and np.isfinite(e.half_size_m[e.bodies.index(owner)]).all()
        ]
        size = np.mean(sizes, axis=0) if sizes and body.shape.kind != "mesh" else None
        out.append(se3.scale_matrix(se3.surface_second_moment(body.shape, size_m=size)))
    return np.stack(out).astype(np.float32)


def _fit_jit(f):
    """Jit for code that runs once: on a CPU compiling takes a hundred times longer than the fit itself."""
    quick = {"xla_backend_optimization_level": "0"} if jax.default_backend() == "cpu" else {}
    return jax.jit(f, compiler_options=quick)


def fit(
    episodes: Sequence[Episode], spec: TaskSpec, *, bins_n: int = 10, deviation: str = "se3_log", dtype=np.float32
) -> Fit:
    """Learn a reference from demonstrations (prepared here), leaving out those that do not count, with the reason."""
    left_out: list[tuple[str, str]] = []
    good: list[Episode] = []
    for e in episodes:
        errors = [f for f in e.check() if f.severity == "error"]
        if errors:
            left_out.append((e.episode_id, str(errors[0])))
        elif e.success_at_end is False:
            left_out.append((e.episode_id, "not successful"))
        else:
            good.append(e.prepared())
    if not good:
        raise ValueError(f"task {spec.name}: none of the {len(episodes)} demonstrations can be used: {left_out[:3]}")
    roles = infer_roles(good, spec)
    pairs = interaction_pairs(roles, spec)
    bodies = spec_bodies(spec, good[0].bodies)
    good = [with_bodies(e, bodies) for e in good]
    columns = tuple((bodies.index(p.a), bodies.index(p.b)) for p in pairs)
    batch = pad_episodes(good, dtype=dtype)
    aligned, relative = align_batch(batch, spec=spec, bodies=bodies, bins_n=bins_n, columns=columns)
    complete = np.asarray(aligned.reached.all(axis=1))
    for e, reached, ok in zip(good, np.asarray(aligned.reached), complete, strict=True):
        if not ok:
            left_out.append((e.episode_id, f"sub-task '{spec.sub_tasks[int(np.argmin(reached))].name}' is never reached"))
    keep = np.flatnonzero(complete)
    scale = mean_scale([good[k] for k in keep], spec, pairs)
    reference = _fit_jit(
        partial(fit_reference, pairs=pairs, spec=spec, bins_n=bins_n, deviation=deviation),
    )(
        relative[keep],
        aligned.bins[keep],
        aligned.duration_s[keep],
        jnp.ones(len(keep), bool),
        scale=jnp.asarray(scale, dtype),
    )
    return Fit(reference, tuple(good[k] for k in keep), tuple(left_out), roles.notes)
