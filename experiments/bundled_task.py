"""Demonstrations of one task, read and aligned once; references from any subsets of them, and Q against these.

Tracing and compiling take longer here than running does, and both happen once for each task, since a task's spec is
static. So tasks are first brought into a common form, in which those with the same symmetries are the same to the
compiler: six tracks (m and r as they are compared with each other, m, r, s, g), five pairs of these, SUB_TASKS_N
sub-tasks (those of a shorter task are the last; the ones before them have no frames), LENGTH frames, pieces of ROWS_N
executions, DEMONSTRATIONS_N rows of demonstrations (of which some may not count). Only alignment sees the task itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from oracle_data import executions

from jaxeval import align
from jaxeval.io.spec import load_spec
from jaxeval.metrics.fused import FusedQuality, fused_quality
from jaxeval.metrics.geometric import GATE_SUB_TASK, GeometricParams, fit_reference
from jaxeval.run.fit import mean_scale, spec_bodies, with_bodies
from jaxeval.segment.roles import infer_roles, interaction_pairs
from jaxeval.types import (
    Body,
    Episode,
    EpisodeBatch,
    Pair,
    Reference,
    Shape,
    SubTask,
    TaskSpec,
    bucket_length,
    pad_episodes,
)

ROWS_N, LENGTH, SUB_TASKS_N, DEMONSTRATIONS_N = 20, 384, 7, 30
BODIES = ("m_to_r", "r_to_m", "m", "r", "s", "g")
PAIRS = (
    Pair("m_to_r", "r_to_m", "m_r"),
    Pair("m", "s", "m_s"),
    Pair("r", "s", "r_s"),
    Pair("m", "g", "m_g"),
    Pair("r", "g", "r_g"),
)


def quick_jit(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Jit for code that runs a few times: on a CPU, compiling takes far longer than running does."""
    quick = {"xla_backend_optimization_level": "0"} if jax.default_backend() == "cpu" else {}
    return jax.jit(f, compiler_options=quick, **options)


class Batch(NamedTuple):
    """`n` executions, filled up to whole pieces of ROWS_N with the last one; `tracks` are those of BODIES."""

    episodes: EpisodeBatch
    tracks: Float[np.ndarray, "B T 6 7"]
    n: int


@dataclasses.dataclass(frozen=True)
class Demonstrations:
    """The demonstrations of a task that count, aligned.

    Those count that are successful and reach every sub-task; of `successful_n` some may not. Everything here is in
    the task's own form; the common one has `empty` sub-tasks before the first.
    """

    episodes: tuple[Episode, ...]
    spec: TaskSpec
    pairs: tuple[Pair, ...]
    bodies: tuple[str, ...]
    bins_n: int
    tracks: Float[np.ndarray, "K T 6 7"]
    aligned: align.Alignment  # arrays of NumPy
    successful_n: int

    @property
    def n(self) -> int:
        return len(self.episodes)

    @property
    def empty(self) -> int:
        return SUB_TASKS_N - len(self.spec.sub_tasks)

    @property
    def ends(self) -> Int[np.ndarray, "K P"]:
        """Frame at which each sub-task ended."""
        return np.asarray(self.aligned.ends)

    @property
    def bins(self) -> Int[np.ndarray, "K T"]:
        return np.asarray(self.aligned.bins)

    @property
    def relative(self) -> Float[Array, "K J T 7"]:
        """T_b_a of every pair."""
        return _relative(self.tracks)

    def first(self, k: int) -> np.ndarray:
        """Mask of the first k demonstrations."""
        return np.arange(self.n) < k

    def random(self, k: int, sets_n: int, *, pool: int | None = None, seed: int) -> np.ndarray:
        """Masks [sets_n, K] of k demonstrations each, drawn from the first `pool` (all) without repeating one."""
        rng = np.random.default_rng(seed)
        drawn = np.zeros((sets_n, self.n), bool)
        for row in drawn:
            row[rng.choice(min(pool or self.n, self.n), k, replace=False)] = True
        return drawn

    def learn(self, masks: np.ndarray, *, deviation: str = "se3_log", merged: int = 1) -> Reference:
        """References from the subsets `masks` [S, K], stacked along a leading axis: one vmapped fit.

        The subsets share DEMONSTRATIONS_N demonstrations at most. `merged` neighbouring bins become one
        (M = bins_n / merged), which then stands in the place of each of them.
        """
        used = np.flatnonzero(masks.any(axis=0))
        if len(used) > DEMONSTRATIONS_N:
            raise ValueError(f"{len(used)} demonstrations; expected {DEMONSTRATIONS_N} at most")
        rows = np.resize(used, DEMONSTRATIONS_N)
        aligned = _common_alignment(jax.tree.map(lambda x: x[rows], self.aligned), self.empty, self.bins_n)
        slots = np.arange(SUB_TASKS_N * self.bins_n) // merged * merged
        sizes = [mean_scale([self.episodes[k] for k in np.flatnonzero(m)], self.spec, self.pairs) for m in masks]
        arrays = (
            self.tracks[rows],
            np.where(aligned.bins < 0, -1, slots[aligned.bins]),
            aligned.duration_s,
            masks[:, rows] & (np.arange(DEMONSTRATIONS_N) < len(used)),
            np.stack(sizes),
        )
        static = {"spec": common(self.spec, self.pairs), "bins_n": self.bins_n, "deviation": deviation}
        learned = _of_slots(_learn(*map(jnp.asarray, arrays), **static), slots[self.empty * self.bins_n :])
        own = {"duration_s": learned.duration_s[:, self.empty :], "pairs": self.pairs, "spec": self.spec}
        return dataclasses.replace(learned, **own)

    def padded(self, episodes: Sequence[Episode]) -> Batch:
        """Executions of this task, prepared and padded."""
        ready = [with_bodies(e.prepared(), self.bodies) for e in episodes]
        made = padded(ready)
        return Batch(made, _tracks(made, self.bodies, self.pairs), len(ready))

    def score(self, batch: Batch, reference: Reference, params: GeometricParams | None = None) -> FusedQuality:
        """Q of every execution and its parts, as `jaxeval score` has them, in arrays of NumPy."""
        params, general = (params or GeometricParams()).check(), _common_reference(reference)
        parts = []
        for i, part in enumerate(pieces(batch.episodes)):
            aligned = _align(part, jnp.asarray(reference.duration_s), **self._task)
            aligned = _common_alignment(jax.tree.map(np.asarray, aligned), self.empty, self.bins_n)
            tracks = batch.tracks[ROWS_N * i : ROWS_N * (i + 1)]
            valid = jnp.asarray(part.valid)[:, :, self._columns]
            parts.append(_score(jnp.asarray(tracks), valid, aligned, jnp.asarray(part.success), general, params))
        q = jax.tree.map(lambda *x: np.concatenate(x)[: batch.n], *parts)
        own = np.where(q.gate_code == GATE_SUB_TASK, q.gate_index - self.empty, q.gate_index)
        costs = {"sub_task_cost": q.sub_task_cost[:, self.empty :], "worst_sub_task": q.worst_sub_task - self.empty}
        return dataclasses.replace(q, gate_index=own, **costs)

    @property
    def _columns(self) -> list[int]:
        return [self.bodies.index(name) for name in _names(self.pairs)]

    @property
    def _task(self) -> dict[str, Any]:
        return {"spec": self.spec, "bodies": self.bodies, "bins_n": self.bins_n}


def load(
    task: str, episodes: Sequence[Episode] | None = None, *, spec: TaskSpec | None = None, bins_n: int = 10
) -> Demonstrations:
    """Demonstrations of a task, aligned: `episodes`, or those of the scripted oracle that come with the package."""
    spec = spec or load_spec(task)
    found = executions("oracle", task, "") if episodes is None else episodes
    good = [e.prepared() for e in found if e.success_at_end is not False]
    pairs = interaction_pairs(infer_roles(good, spec), spec)
    bodies = spec_bodies(spec, good[0].bodies)
    good = [with_bodies(e, bodies) for e in good]
    batch = padded(good)
    # mean durations count in sub-tasks that are never finished, and demonstrations finish all of theirs
    unused, static = jnp.zeros(len(spec.sub_tasks)), {"spec": spec, "bodies": bodies, "bins_n": bins_n}
    aligned = jax.tree.map(lambda *x: np.concatenate(x), *[_align(part, unused, **static) for part in pieces(batch)])
    counts = np.flatnonzero(aligned.reached.all(axis=1)[: len(good)])
    return Demonstrations(
        episodes=tuple(good[k] for k in counts),
        spec=spec,
        pairs=pairs,
        bodies=bodies,
        bins_n=bins_n,
        tracks=_tracks(batch, bodies, pairs)[counts],
        aligned=jax.tree.map(lambda x: x[counts], aligned),
        successful_n=len(good),
    )


def pick(reference: Reference, s: int | slice) -> Reference:
    """One of the stacked references, or some."""
    return jax.tree.map(lambda x: x[s], reference)


def padded(episodes: Sequence[Episode]) -> EpisodeBatch:
    """A batch of prepared episodes, LENGTH frames or more, filled up with the last one to whole pieces of ROWS_N."""
    longest = max(e.n_frames for e in episodes)
    length = LENGTH if longest <= LENGTH else bucket_length(longest)
    return pad_episodes([*episodes, *[episodes[-1]] * (-len(episodes) % ROWS_N)], length=length)


def pieces(batch: EpisodeBatch) -> list[EpisodeBatch]:
    """The batch, ROWS_N rows at a time."""
    return [
        jax.tree.map(lambda x, i=i: jnp.asarray(x[i : i + ROWS_N]), batch) for i in range(0, batch.n_episodes, ROWS_N)
    ]


# ------------------------------------------------------------------------------------------------------- common form


def common(spec: TaskSpec, pairs: tuple[Pair, ...]) -> TaskSpec:
    """What compiled code needs to know of a task with one manipulated object and one reference object."""
    if tuple(p.role for p in pairs) != tuple(p.role for p in PAIRS):
        raise ValueError(f"task {spec.name}: pairs {', '.join(p.name for p in pairs)}; expected one m and one r")
    names = _names(pairs)
    box = Shape("box", (1.0, 1.0, 1.0))  # unused: sizes are in the scale
    return TaskSpec(
        name="common form",
        bodies=tuple(Body(b, box, spec.body(name).symmetry) for b, name in zip(BODIES, names, strict=True)),
        sub_tasks=tuple(SubTask(str(p), ()) for p in range(SUB_TASKS_N)),
        support="s",
        gripper="g",
        z_term=spec.z_term,
        use_success_flag=spec.use_success_flag,
    )


def _names(pairs: tuple[Pair, ...]) -> tuple[str, ...]:
    """The task's bodies that BODIES stand for."""
    m_r, m_s, r_s, m_g, _ = pairs
    return (m_r.a, m_r.b, m_s.a, r_s.a, m_s.b, m_g.b)


def _tracks(batch: EpisodeBatch, bodies: tuple[str, ...], pairs: tuple[Pair, ...]) -> Float[np.ndarray, "B T 6 7"]:
    return np.asarray(batch.poses)[:, :, [bodies.index(name) for name in _names(pairs)]]


def _common_alignment(aligned: align.Alignment, empty: int, bins_n: int) -> align.Alignment:
    """An alignment with `empty` sub-tasks before the first, which take no time and count as reached."""

    def before(x: Any, value: Any) -> Any:
        return np.concatenate([np.full((len(x), empty), value, x.dtype), x], axis=1)

    bins: Any = np.where(np.asarray(aligned.bins) < 0, -1, aligned.bins + empty * bins_n)
    return align.Alignment(
        ends=before(aligned.ends, 0),
        reached=before(aligned.reached, True),
        bins=bins,
        started_s=before(aligned.started_s, 0.0),
        ended_s=before(aligned.ended_s, 0.0),
    )


def _common_reference(reference: Reference) -> Reference:
    """A reference with the sub-tasks that it lacks before the first: no frame ever looks there."""
    empty = SUB_TASKS_N - len(reference.spec.sub_tasks)
    slots = np.maximum(np.arange(SUB_TASKS_N * reference.bins_n) - empty * reference.bins_n, 0)
    duration_s = jnp.concatenate([jnp.zeros(empty), reference.duration_s])
    named = {"duration_s": duration_s, "pairs": PAIRS, "spec": common(reference.spec, reference.pairs)}
    return dataclasses.replace(_of_slots(reference, slots), **named)


def _of_slots(reference: Reference, slots: np.ndarray) -> Reference:
    """The reference, or stacked ones, with these of its bins."""
    return dataclasses.replace(
        reference,
        nominal=reference.nominal[..., slots, :],
        deviations=reference.deviations[..., slots, :],
        seen=reference.seen[..., slots],
        converged=reference.converged[..., slots],
    )


@partial(quick_jit, static_argnames=("spec", "bodies", "bins_n"))
def _align(
    batch: EpisodeBatch, duration_s: Array, *, spec: TaskSpec, bodies: tuple[str, ...], bins_n: int
) -> align.Alignment:
    def one(poses, time_s, frame_valid, width, valid):
        task = {"spec": spec, "bodies": bodies, "bins_n": bins_n, "mean_duration_s": duration_s}
        return align.align_episode(poses, time_s, frame_valid, width, valid=valid, **task)

    return jax.vmap(one)(batch.poses, batch.time_s, batch.frame_valid, batch.gripper_width_m, batch.valid)


_COLUMNS = tuple((BODIES.index(p.a), BODIES.index(p.b)) for p in PAIRS)


@quick_jit
def _relative(tracks: Float[Array, "K T 6 7"]) -> Float[Array, "K J T 7"]:
    return jax.vmap(lambda poses: align.relative_tracks(poses, _COLUMNS))(tracks)


@partial(quick_jit, static_argnames=("spec", "bins_n", "deviation"))
def _learn(tracks: Array, bins: Array, duration_s: Array, masks: Array, scale: Array, **static: Any) -> Reference:
    relative = jax.vmap(lambda poses: align.relative_tracks(poses, _COLUMNS))(tracks)
    return jax.vmap(
        lambda mask, scale: fit_reference(relative, bins, duration_s, mask, scale=scale, pairs=PAIRS, **static)
    )(masks, scale)


@quick_jit
def _score(
    tracks: Array, valid: Array, aligned: align.Alignment, success: Array, reference: Reference, params: GeometricParams
) -> FusedQuality:
    told = {"reference": reference, "params": params, "bodies": BODIES, "valid": valid}
    return fused_quality(tracks, aligned, success, **told)
