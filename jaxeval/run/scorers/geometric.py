"""Geometric quality Q against a reference, the relation that broke, and the costs of every frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import align
from jaxeval.io.errors import InputError
from jaxeval.metrics import geometric
from jaxeval.metrics.fused import Tables, quality_by_tables, tables
from jaxeval.metrics.registry import FRAME, Column, Context, Facts, Measured, Metric, Needs, Recorded
from jaxeval.metrics.status import Status
from jaxeval.report.words import direction_words, gate_words
from jaxeval.run.fit import quick_jit
from jaxeval.types import STATIC, EpisodeBatch, Reference, pytree


@pytree
class Prepared:
    """What Q needs beside the reference: its folded tables, and which pairs are scored."""

    made: Tables
    use: tuple[int, ...] = field(metadata=STATIC)


def scored_bodies(reference: Reference, present: tuple[str, ...]) -> tuple[str, ...]:
    """Bodies of the reference's spec that the episodes have. InputError when no pair can be scored."""
    spec = reference.spec
    bodies = tuple(b.name for b in spec.bodies if b.name in present)
    if not geometric.scored_pairs(reference, bodies):
        wanted = ", ".join(p.name for p in reference.pairs)
        raise InputError(
            f"the episodes hold the bodies {', '.join(present)}; expected those of the reference's pairs ({wanted}); "
            "use a reference of this task or rename the bodies",
            code="no_pair",
        )
    return bodies


@cache
def _fold() -> Callable[..., Tables]:
    """:func:`jaxeval.metrics.fused.tables`, compiled quickly: it runs once."""
    return quick_jit(tables, static_argnames=("bodies",))


def needs(recorded: Recorded, params: geometric.GeometricParams) -> Needs:
    """Asks for the bodies of the reference's pairs that the source has; notes name those that it lacks."""
    reference = recorded.reference
    if reference is None:
        return Needs(reference=True)
    bodies = scored_bodies(reference, recorded.bodies)
    made = _fold()(reference, params, bodies=bodies)
    skipped, notes = tuple(p.name for p in reference.pairs if not {p.a, p.b} <= set(bodies)), ()
    if skipped:
        missing = [b.name for b in reference.spec.bodies if b.name not in bodies]
        over = ", ".join(_passed_over(reference, bodies)) or "none"
        notes = (
            f"{recorded.where}: no body {', '.join(missing)}, so {', '.join(skipped)} are not scored and "
            f"sub-tasks that depend on it alone are passed over ({over}); "
            "record it (for the gripper: obs_mode=state_dict) to score them",
        )
    constants = Prepared(made=made, use=geometric.scored_pairs(reference, bodies))
    return Needs(bodies=bodies, reference=True, constants=constants, notes=notes, skipped=skipped)


def _passed_over(reference: Reference, bodies: tuple[str, ...]) -> tuple[str, ...]:
    """Sub-tasks none of whose predicates can be asked for want of a body."""
    spec = reference.spec
    return tuple(s.name for s in spec.sub_tasks if all(align.missing_bodies(u, spec, bodies) for u in s.until))


def measure(batch: EpisodeBatch, context: Context, params: geometric.GeometricParams) -> Measured:
    """Q, gate, costs of relations and sub-tasks, and the worst departure as numbers; see COLUMNS."""
    reference, aligned, made = context.reference, context.aligned, context.constants.made
    assert reference is not None and aligned is not None
    poses, bodies = jnp.asarray(batch.poses), batch.bodies
    quality = quality_by_tables(
        poses, aligned, jnp.asarray(batch.success), made, reference=reference, params=params, bodies=bodies,
        valid=jnp.asarray(batch.valid),
    )  # fmt: skip
    ok = quality.status == Status.OK
    episode, frame = jnp.arange(poses.shape[0]), quality.worst_frame
    explain = jax.vmap(partial(geometric.explain_frame, found=made.found, reference=reference, bodies=bodies))
    worst = explain(poses[episode, frame], aligned.bins[episode, frame], quality.worst_pair)
    judged = ok & (quality.gate_free < 1)
    shift = jnp.sum(worst.axis[:, :3] ** 2, axis=1) >= 0.5
    exceeded = jnp.where(shift[:, None], worst.axis[:, :3], worst.axis[:, 3:])
    exceeded = exceeded / jnp.maximum(jnp.linalg.norm(exceeded, axis=1, keepdims=True), 1e-12)

    def known(x: Any, where: Any = ok, nothing: Any = jnp.nan) -> Any:
        return jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), x, nothing)

    scored = np.zeros(len(reference.pairs), bool)
    scored[list(context.constants.use)] = True
    out: Measured = {
        "Q": quality.q,
        "gate": known(quality.gate.astype(jnp.int32), nothing=-1),
        "gate_code": quality.gate_code,
        "gate_index": quality.gate_index,
        "valid": ok,
        "status": quality.status,
        "gate_free_Q": quality.gate_free,
        "mean_cost": known(jnp.sum(quality.pair_cost, axis=1)),
        "cost.<pair>": known(jnp.where(jnp.asarray(scored)[None], quality.pair_cost, jnp.nan)),
        "sub_task_cost.<sub_task>": known(quality.sub_task_cost),
        "sub_task_end_s.<sub_task>": known(jnp.where(aligned.reached, aligned.ended_s, jnp.nan)),
        "coverage.<pair>": jnp.where(jnp.asarray(scored)[None], quality.pair_coverage, jnp.nan),
        "coverage.<body>": quality.body_coverage,
        "worst_sub_task": known(quality.worst_sub_task, judged, -1),
        "worst_pair": known(quality.worst_pair, judged, -1),
        "worst_frame": known(frame, judged, -1),
        "worst_z": known(worst.z, judged),
        "worst_m": known(jnp.linalg.norm(worst.deviation[:, :3], axis=1), judged),
        "worst_rad": known(jnp.linalg.norm(worst.deviation[:, 3:], axis=1), judged),
        "worst_time_s": known(jnp.asarray(batch.time_s)[episode, frame], judged),
        "worst_axis": known(exceeded, judged),
        "worst_deviation": worst.deviation,
        "worst_direction_axis": worst.axis,
    }
    if context.frames:
        out[f"{FRAME}progress_bin"] = aligned.bins
        out[f"{FRAME}cost"] = jnp.sum(quality.frame_pair_cost, axis=1)
        out |= {f"{FRAME}cost.{p.name}": quality.frame_pair_cost[:, j] for j, p in enumerate(reference.pairs)}
    return out


def _gate_words(measured: Mapping[str, np.ndarray], facts: Facts) -> Sequence[str | None]:
    reference = facts.context.reference
    assert reference is not None
    rows = zip(measured["gate_code"], measured["gate_index"], measured["valid"], strict=True)
    return [gate_words(reference, int(code), int(index)) if ok else None for code, index, ok in rows]


def _direction_words(measured: Mapping[str, np.ndarray], facts: Facts) -> Sequence[str | None]:
    reference = facts.context.reference
    assert reference is not None
    names = ("worst_pair", "worst_deviation", "worst_direction_axis")
    return [
        direction_words(reference.pairs[int(pair)], deviation, axis) if pair >= 0 else None
        for pair, deviation, axis in zip(*(measured[n] for n in names), strict=True)
    ]


COLUMNS = (
    Column("Q", direction="higher", meaning="geometric quality: adherence to what the demonstrations keep, 0 to 1"),
    Column("gate", "truth", meaning="whether the terminal gate is open: Q is 0 where it is closed"),
    Column("gate_reason", "text", meaning="why the gate closed, empty where it is open", words=_gate_words),
    Column("valid", "truth", meaning="whether the execution could be judged"),
    Column("status", "status", meaning="ok, or why there is no Q"),
    Column("gate_free_Q", direction="higher", meaning="Q without the gate: exp(-mean cost)"),
    Column("mean_cost", direction="lower", meaning="mean frame cost over the execution"),
    Column("cost.<pair>", direction="lower", meaning="part of the mean cost that this relation caused"),
    Column("sub_task_cost.<sub_task>", direction="lower", meaning="mean frame cost within this sub-task"),
    Column("sub_task_end_s.<sub_task>", unit="s", meaning="when this sub-task ended"),
    Column("worst_sub_task", "text", meaning="sub-task that cost most", of="sub_task"),
    Column("worst_pair", "text", meaning="relation that cost most in it", of="pair"),
    Column("worst_frame", "count", meaning="frame in which that relation cost most"),
    Column("worst_direction", "text", meaning="what was off there, in words", words=_direction_words),
    Column("worst_z", direction="lower", meaning="departure there along the worst pinned direction, in spreads"),
    Column("worst_m", unit="m", direction="lower", meaning="how far the relation is shifted there from its nominal"),
    Column("worst_rad", unit="rad", direction="lower", meaning="how far it is turned there from its nominal"),
    Column("worst_time_s", unit="s", meaning="when that was"),
    Column("worst_axis", "vector", meaning="unit axis of the worst direction in the moved body's nominal frame: of its "
           "shift where that is at least half of it, else of its turn"),
    Column("coverage.<pair>", direction="higher", meaning="share of frames in which both bodies of it were seen"),
    Column("coverage.<body>", direction="higher", meaning="share of frames in which this body was seen"),
)  # fmt: skip

METRIC = Metric("geometric", geometric.GeometricParams, needs, measure, COLUMNS, section="geometric", settings="metric")
