"""`jaxeval fit`: demonstrations in, Reference out."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import align, se3
from jaxeval.io.errors import InputError
from jaxeval.io.source import Source
from jaxeval.metrics import geometric
from jaxeval.metrics.geometric import fit_reference
from jaxeval.metrics.visibility import seen_enough
from jaxeval.segment.roles import infer_roles, interaction_pairs, suggest_symmetries
from jaxeval.types import Episode, EpisodeBatch, Pair, Reference, TaskSpec, pad_episodes


@dataclasses.dataclass(frozen=True)
class Fit:
    """A reference, the demonstrations it was learned from, and notes on what was noticed."""

    reference: Reference
    used: tuple[Episode, ...]
    left_out: tuple[tuple[str, str], ...]  # (episode, why)
    notes: tuple[str, ...]


def spec_bodies(spec: TaskSpec, present: Sequence[str]) -> tuple[str, ...]:
    """Bodies of the spec that an episode has, in the spec's order; only these go into batches."""
    return tuple(b.name for b in spec.bodies if b.name in present)


def with_bodies(episode: Episode, bodies: tuple[str, ...]) -> Episode:
    """The episode with these bodies alone, in this order."""
    return episode.with_bodies(bodies)


def joints_n(episodes: Sequence[Episode], spec: TaskSpec) -> int:
    """Joints to bring along: those of the first episode where a sub-task ends by one, else none."""
    return len(episodes[0].joint_names) if align.needed_joints(spec) else 0


def align_to_spec(batch: EpisodeBatch, *, spec: TaskSpec, bins_n: int, mean_duration_s: Any = None) -> align.Alignment:
    """Alignment of every episode of a padded batch with the sub-tasks of a task."""

    settings: dict[str, Any] = {
        "spec": spec,
        "bodies": batch.bodies,
        "bins_n": bins_n,
        "joint_names": batch.joint_names,
    }
    settings["mean_duration_s"] = mean_duration_s

    def one(poses: Any, time_s: Any, frame_valid: Any, width: Any, valid: Any, joints: Any) -> align.Alignment:
        return align.align_episode(poses, time_s, frame_valid, width, valid=valid, joints=joints, **settings)

    b = batch
    arrays = (b.poses, b.time_s, b.frame_valid, b.gripper_width_m, b.valid, b.joints)
    return jax.vmap(one)(*(None if x is None else jnp.asarray(x) for x in arrays))


@partial(jax.jit, static_argnames=("spec", "bins_n", "columns"))
def align_batch(
    batch: EpisodeBatch, *, spec: TaskSpec, bins_n: int, columns: tuple[tuple[int, int], ...]
) -> tuple[align.Alignment, Any, Any]:
    """Of a padded batch: alignment [B, ...], relative tracks [B, J, T, 7], which frames show each pair [B, J, T]."""
    aligned = align_to_spec(batch, spec=spec, bins_n=bins_n)
    relative = jax.vmap(lambda poses: align.relative_tracks(poses, columns))(jnp.asarray(batch.poses))
    valid = jnp.asarray(batch.valid)
    a, b = (valid[:, :, np.array([c[side] for c in columns], np.int32)] for side in (0, 1))
    return aligned, relative, jnp.swapaxes(a & b, 1, 2)


def mean_scale(episodes: Sequence[Episode], spec: TaskSpec, pairs: tuple[Pair, ...]) -> np.ndarray:
    """S_a of every pair, [J, 3, 3]: from the demonstrations' mean size where recorded, else from the spec's shape."""
    out = []
    for pair in pairs:
        body = spec.body(pair.a)
        owner = body.frame_of or body.name
        sizes = [
            e.half_size_m[e.bodies.index(owner)]
            for e in episodes
            if e.half_size_m is not None
            and owner in e.bodies
            and np.isfinite(e.half_size_m[e.bodies.index(owner)]).all()
        ]
        size = np.mean(sizes, axis=0) if sizes and body.shape.kind != "mesh" else None
        out.append(se3.scale_matrix(se3.surface_second_moment(body.shape, size_m=size)))
    return np.stack(out).astype(np.float32)


def quick_jit(f: Callable[..., Any], *, static_argnames: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Jit for code that runs briefly: on a CPU, compiling it well takes a hundred times longer than running it."""
    quick = {"xla_backend_optimization_level": "0"} if jax.default_backend() == "cpu" else {}
    return jax.jit(f, static_argnames=static_argnames, compiler_options=quick)


def fit(
    episodes: Sequence[Episode], spec: TaskSpec, *, bins_n: int = 10, deviation: str = "se3_log", dtype=np.float32
) -> Fit:
    """Learn a reference from demonstrations (prepared here), leaving out those that do not count, with the reason."""
    if deviation not in se3.DEVIATIONS:
        raise InputError(
            f"deviation is '{deviation}'; expected one of {', '.join(se3.DEVIATIONS)}; correct the setting"
        )
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
        first = f" (the first: {left_out[0][0]}: {left_out[0][1]})" if left_out else ""
        raise InputError(
            f"task {spec.name}: none of the {len(episodes)} demonstrations can be used{first}; "
            "expected successful episodes without errors; give others"
        )
    try:
        roles = infer_roles(good, spec)
    except ValueError as error:
        raise InputError(str(error)) from error
    pairs = interaction_pairs(roles, spec)
    bodies = spec_bodies(spec, good[0].bodies)
    good = [with_bodies(e, bodies) for e in good]
    columns = tuple((bodies.index(p.a), bodies.index(p.b)) for p in pairs)
    batch = pad_episodes(good, dtype=dtype, joints_n=joints_n(good, spec))
    aligned, relative, valid = align_batch(batch, spec=spec, bins_n=bins_n, columns=columns)
    shown = jax.vmap(partial(seen_enough, pairs=pairs, sub_tasks_n=len(spec.sub_tasks), bins_n=bins_n))
    complete = []
    for k, (e, reached, seen) in enumerate(
        zip(good, np.asarray(aligned.reached), np.asarray(shown(aligned.bins, valid)), strict=True)
    ):
        if not reached.all():
            name = spec.sub_tasks[int(np.argmin(reached))].name
            left_out.append((e.episode_id, f"sub-task '{name}' is never reached"))
        elif not seen.all():
            j, p = np.argwhere(~seen)[0]
            why = f"in sub-task '{spec.sub_tasks[p].name}', or at its end," if seen[j].any() else "at its end"
            left_out.append((e.episode_id, f"insufficient tracking: {pairs[j].name} is not seen {why}".rstrip(",")))
        else:
            complete.append(k)
    keep = np.array(complete, int)
    if len(keep) < 2:
        raise InputError(
            f"task {spec.name}: {len(keep)} of {len(episodes)} demonstrations can be used, expected at least 2 "
            f"(a spread needs two; left out: {'; '.join(f'{e}: {why}' for e, why in left_out[:2]) or 'none'}); "
            "give more demonstrations"
        )
    scale = mean_scale([good[k] for k in keep], spec, pairs)
    reference = quick_jit(
        partial(fit_reference, pairs=pairs, spec=spec, bins_n=bins_n, deviation=deviation),
    )(
        relative[keep],
        aligned.bins[keep],
        aligned.duration_s[keep],
        jnp.ones(len(keep), bool),
        scale=jnp.asarray(scale, dtype),
        valid=valid[keep],
    )
    last = np.max(np.where(np.asarray(valid), np.arange(valid.shape[2]), 0), axis=2)  # [B, J]
    final = np.asarray(relative)[keep[:, None], np.arange(len(pairs))[None], last[keep]]
    notes = [*roles.notes, *suggest_symmetries(final, pairs, spec)]
    if len(keep) < 7:
        spurious = 6 - max(len(keep) - 1, 0)
        notes.append(
            f"K = {len(keep)} demonstrations span at most {max(len(keep) - 1, 0)} of 6 directions: at least {spurious} "
            "directions of every relation are pinned for lack of samples; use 7 or more, better 30"
        )
    return Fit(reference, tuple(good[k] for k in keep), tuple(left_out), tuple(notes))


def fit_source(
    source: Source, spec: TaskSpec, *, demonstrations_n: int | None = None, bins_n: int = 10, deviation: str = "se3_log"
) -> Fit:
    """:func:`fit` on a source; `demonstrations_n` keeps the first K episodes that count. InputError names the fault."""
    if source.task != spec.name:
        raise InputError(
            f"{source.parts[0].path}: episodes of task '{source.task}', expected '{spec.name}' as in the task spec; "
            "give the spec of that task or other episodes"
        )
    if bins_n < 1 or (demonstrations_n is not None and demonstrations_n < 2):
        raise InputError(
            f"bins_n is {bins_n} and demonstrations_n is {demonstrations_n}; expected at least 1 bin a sub-task and at "
            "least 2 demonstrations (a spread needs two); raise them"
        )
    missing = [b.name for b in spec.bodies if b.name not in source.bodies]
    if missing:
        raise InputError(
            f"{source.parts[0].path}: no body {', '.join(missing)}; expected all bodies of task '{spec.name}' in "
            f"demonstrations (it has {', '.join(source.bodies)}); record them or take them out of the spec"
        )
    episodes = [e for e in source.iter_episodes()]
    if demonstrations_n is not None:
        usable = [
            e for e in episodes if e.success_at_end is not False and not any(f.severity == "error" for f in e.check())
        ]
        if len(usable) < demonstrations_n:
            raise InputError(
                f"{source.parts[0].path}: {len(usable)} successful demonstrations, expected demonstrations_n = "
                f"{demonstrations_n}; lower it or give more"
            )
        episodes = usable[:demonstrations_n]
    return fit(episodes, spec, bins_n=bins_n, deviation=deviation)


def provenance(made: Fit, source: Source, configuration: Any) -> dict[str, Any]:
    """The ``about`` of a reference's file: version, configuration, commit, the demonstrations' hash, ids left out."""
    return {
        "jaxeval": version("jaxeval"),
        "configuration": configuration,
        "commit": commit(),
        "demonstrations": [e.episode_id for e in made.used],
        "demonstrations_hash": source.hash,
        "source": [str(p.path.name) for p in source.parts],
        "left_out": [list(x) for x in made.left_out],
        "notes": list(made.notes),
    }


def commit() -> str | None:
    """Git commit of the clone that this code runs from; None outside one."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None if done.returncode == 0 else None


def table(made: Fit) -> str:
    """Pinned directions of every relation by sub-task, as text."""
    reference = made.reference
    pinned = np.asarray(geometric.constraints(reference, geometric.GeometricParams()).pinned).sum(axis=-1)
    by_sub_task = pinned.reshape(len(reference.pairs), len(reference.spec.sub_tasks), reference.bins_n)
    title, names = "pinned directions (least-most)", [s.name for s in reference.spec.sub_tasks]
    first = max(len(x) for x in (title, *(pair.name for pair in reference.pairs)))
    widths = [max(len(name), 3) + 2 for name in names]
    head = f"{title:{first}}" + "".join(f"{name:>{w}}" for name, w in zip(names, widths, strict=True))
    rows = [
        f"{pair.name:{first}}" + "".join(f"{_range(c):>{w}}" for c, w in zip(counts, widths, strict=True))
        for pair, counts in zip(reference.pairs, by_sub_task, strict=True)
    ]
    return "\n".join([f"task {reference.spec.name}: {len(made.used)} demonstrations", head, *rows])


def _range(counts: np.ndarray) -> str:
    """The least and the most of some counts, once where they are the same."""
    low, high = int(counts.min()), int(counts.max())
    return f"{low}-{high}" if low < high else str(low)
