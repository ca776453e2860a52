"""Geometric quality Q as a scorer: against a reference, with the relation that broke and the costs of every frame."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import align
from jaxeval.io.errors import InputError
from jaxeval.metrics import geometric as G
from jaxeval.metrics.fused import FusedQuality, Tables, quality_by_tables, tables
from jaxeval.report.words import direction_words, gate_words
from jaxeval.run.fit import align_to_spec, quick_jit
from jaxeval.run.scorer import Batch, Measured, where
from jaxeval.types import EpisodeBatch, Reference

FRAME_COSTS = "frame_costs.parquet"


def scored_bodies(reference: Reference, present: tuple[str, ...]) -> tuple[str, ...]:
    """Bodies of the reference's spec that the episodes have. InputError when no pair can be scored."""
    spec = reference.spec
    bodies = tuple(b.name for b in spec.bodies if b.name in present)
    if not G.scored_pairs(reference, bodies):
        wanted = ", ".join(p.name for p in reference.pairs)
        raise InputError(
            f"the episodes hold the bodies {', '.join(present)}; expected those of the reference's pairs ({wanted}); "
            "use a reference of this task or rename the bodies"
        )
    return bodies


@partial(jax.jit, static_argnames=("bodies",))
def score_batch(
    batch: EpisodeBatch, made: Tables, reference: Reference, params: G.GeometricParams, *, bodies: tuple[str, ...]
) -> tuple[FusedQuality, align.Alignment]:
    """(quality and parts, alignment) of a padded batch; ``made`` are :func:`jaxeval.metrics.fused.tables`."""
    aligned = align_to(batch, reference, bodies=bodies)
    poses, success, valid = (jnp.asarray(x) for x in (batch.poses, batch.success, batch.valid))
    told: dict[str, Any] = {"reference": reference, "params": params, "bodies": bodies, "valid": valid}
    return quality_by_tables(poses, aligned, success, made, **told), aligned


@cache
def _once() -> tuple[Callable[..., Tables], Callable[..., G.Departure]]:
    """:func:`fused.tables` and :func:`geometric.explain_frame` over episodes, compiled quickly: they run briefly."""

    def explain(poses: Any, bins: Any, pairs: Any, found: Any, reference: Any, *, bodies: tuple[str, ...]) -> Any:
        return jax.vmap(partial(G.explain_frame, found=found, reference=reference, bodies=bodies))(poses, bins, pairs)

    return quick_jit(tables, static_argnames=("bodies",)), quick_jit(explain, static_argnames=("bodies",))


def align_to(batch: EpisodeBatch, reference: Reference, *, bodies: tuple[str, ...]) -> align.Alignment:
    """Alignment of every episode of a batch of these bodies with the sub-tasks of a reference."""
    G.require_columns(batch.poses.shape[2], bodies)
    batch = dataclasses.replace(batch, bodies=bodies)
    told: dict[str, Any] = {"spec": reference.spec, "bins_n": reference.bins_n}
    return align_to_spec(batch, mean_duration_s=reference.duration_s, **told)


def align_alone(data: EpisodeBatch, reference: Reference, *, bodies: tuple[str, ...]) -> align.Alignment:
    """:func:`align_to` where no quality is asked for: for motion by sub-task."""
    return _quick_alignment()(of_bodies(data, bodies, reference), reference, bodies=bodies)


def of_bodies(data: EpisodeBatch, bodies: tuple[str, ...], reference: Reference) -> EpisodeBatch:
    """The batch with these bodies and no others, and with joints and signals only where alignment looks at them."""
    order = [data.bodies.index(b) for b in bodies]
    same = data.bodies == bodies
    joints = data.joints if align.needed_joints(reference.spec) else None
    return dataclasses.replace(
        data,
        poses=data.poses if same else data.poses[:, :, order],
        valid=data.valid if same else data.valid[:, :, order],
        bodies=bodies,
        joints=joints,
        joint_names=() if joints is None else data.joint_names,
        signals={},
    )


@cache
def _quick_alignment() -> Callable[..., align.Alignment]:
    return quick_jit(align_to, static_argnames=("bodies",))


class GeometricScorer:
    """Q of every episode; with ``frames_to``, the cost of every frame into `frame_costs.parquet` there."""

    name = "geometric"
    signals = ()

    def __init__(
        self, reference: Reference, params: G.GeometricParams, present: tuple[str, ...], frames_to: Path | None
    ) -> None:
        self.reference, self.params = reference, params.check()
        self.bodies, self.joints = scored_bodies(reference, present), bool(align.needed_joints(reference.spec))
        self.skipped = tuple(p.name for p in reference.pairs if p.a not in self.bodies or p.b not in self.bodies)
        fold, self._explain = _once()
        self.made = fold(reference, self.params, bodies=self.bodies)
        self.writer = _FrameWriter(frames_to, reference) if frames_to is not None else None
        self._quality: FusedQuality

    def note(self, path: Path) -> str | None:
        """What cannot be scored for want of a body, in one sentence."""
        if not self.skipped:
            return None
        missing = [b.name for b in self.reference.spec.bodies if b.name not in self.bodies]
        over = ", ".join(_passed_over(self.reference, self.bodies)) or "none"
        return (
            f"{path}: no body {', '.join(missing)}, so {', '.join(self.skipped)} are not scored and "
            f"sub-tasks that depend on it alone are passed over ({over}); "
            "record it (for the gripper: obs_mode=state_dict) to score them"
        )

    def align(self, data: EpisodeBatch) -> align.Alignment:
        """Alignment of a filled batch, from the call that also measures it."""
        self._quality, aligned = score_batch(
            self._own(data), self.made, self.reference, self.params, bodies=self.bodies
        )
        return aligned

    def _own(self, data: EpisodeBatch) -> EpisodeBatch:
        """The batch with the bodies that Q is compiled for, and no others."""
        return of_bodies(data, self.bodies, self.reference)

    def measure(self, batch: Batch) -> Measured:
        """What `columns` needs of each episode."""
        data, n, aligned, quality = self._own(batch.data), batch.n, batch.aligned, self._quality
        assert aligned is not None
        frame, episode = np.asarray(quality.worst_frame), np.arange(len(quality.worst_frame))
        at = (data.poses[episode, frame], np.asarray(aligned.bins)[episode, frame], quality.worst_pair)
        worst = self._explain(*at, self.made.found, self.reference, bodies=self.bodies)
        if self.writer is not None:
            self.writer.add(batch, np.asarray(quality.frame_pair_cost)[:n], np.asarray(aligned.bins)[:n])
        return {k: np.asarray(v)[:n] for k, v in _small(quality, aligned, worst).items()}

    def columns(self, measured: Measured, refused: Sequence[str | None]) -> dict[str, list[Any]]:
        """Q, gate, costs of relations and sub-tasks, and the worst departure in words."""
        got, reference, spec = measured, self.reference, self.reference.spec
        ok = (got["status"] == G.STATUS_OK) & np.array([r is None for r in refused])
        code, index = got["gate_code"], got["gate_index"]
        pairs = [p.name for p in reference.pairs]
        judged = ok & (got["gate_free"] < 1)
        gate_free = got["gate_free"].astype(float)
        words = [
            direction_words(reference.pairs[p], d, v) if j else None
            for p, d, v, j in zip(got["worst_pair"], got["worst_deviation"], got["worst_axis"], judged, strict=True)
        ]
        columns: dict[str, list[Any]] = {
            "Q": where(got["q"].astype(float), ok),
            "gate": where(code == G.GATE_OPEN, ok),
            "gate_reason": [
                gate_words(reference, int(c), int(i)) if k else None for c, i, k in zip(code, index, ok, strict=True)
            ],
            "valid": ok.tolist(),
            "status": [r or G.STATUS_SENTENCES[int(s)] for r, s in zip(refused, got["status"], strict=True)],
            "gate_free_Q": where(gate_free, ok),
            "mean_cost": where(-np.log(np.maximum(gate_free, 1e-300)), ok),
        }
        for j, name in enumerate(pairs):
            columns[f"cost.{name}"] = where(got["pair_cost"][:, j].astype(float), ok & (name not in self.skipped))
        for p, sub_task in enumerate(spec.sub_tasks):
            columns[f"sub_task_cost.{sub_task.name}"] = where(got["sub_task_cost"][:, p].astype(float), ok)
            ends = where(got["ended_s"][:, p].astype(float), ok & got["reached"][:, p])
            columns[f"sub_task_end_s.{sub_task.name}"] = ends
        columns |= {
            "worst_sub_task": where([spec.sub_tasks[int(p)].name for p in got["worst_sub_task"]], judged),
            "worst_pair": where([pairs[int(j)] for j in got["worst_pair"]], judged),
            "worst_frame": where(got["worst_frame"], judged),
            "worst_direction": words,
            "worst_z": where(got["worst_z"].astype(float), judged),
        }
        known = np.array([r is None for r in refused])
        for j, name in enumerate(pairs):
            columns[f"coverage.{name}"] = where(
                got["pair_coverage"][:, j].astype(float), known & (name not in self.skipped)
            )
        for i, name in enumerate(self.bodies):
            columns[f"coverage.{name}"] = where(got["body_coverage"][:, i].astype(float), known)
        return columns


def _passed_over(reference: Reference, bodies: tuple[str, ...]) -> tuple[str, ...]:
    """Sub-tasks none of whose predicates can be asked for want of a body."""
    spec = reference.spec
    return tuple(s.name for s in spec.sub_tasks if all(align.missing_bodies(u, spec, bodies) for u in s.until))


def _small(quality: FusedQuality, aligned: align.Alignment, worst: G.Departure) -> dict[str, Any]:
    kept = ("q", "gate_free", "gate_code", "gate_index", "status", "pair_cost", "sub_task_cost",
            "pair_coverage", "body_coverage")  # fmt: skip
    where = ("worst_frame", "worst_pair", "worst_sub_task")
    return (
        {name: getattr(quality, name) for name in kept + where}
        | {"ends": aligned.ends, "reached": aligned.reached, "bins_valid": jnp.any(aligned.bins >= 0, axis=1)}
        | {"started_s": aligned.started_s, "ended_s": aligned.ended_s}
        | {"worst_z": worst.z, "worst_deviation": worst.deviation, "worst_axis": worst.axis}
    )


class _FrameWriter:
    """`frame_costs.parquet`: episode (row of scores.parquet), frame, t_s, progress bin, cost in all and by pair."""

    def __init__(self, folder: Path, reference: Reference) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.pairs = [p.name for p in reference.pairs]
        kinds = [("episode", pa.int64()), ("frame", pa.int32()), ("t_s", pa.float64()), ("progress_bin", pa.int32())]
        kinds += [("cost", pa.float32())] + [(f"cost.{name}", pa.float32()) for name in self.pairs]
        self.schema = pa.schema(kinds)
        self.part, self.path = folder / f".{FRAME_COSTS}.writing", folder / FRAME_COSTS
        self.writer = pq.ParquetWriter(self.part, self.schema, compression="zstd")

    def add(self, batch: Batch, cost: np.ndarray, bins: np.ndarray) -> None:
        """Rows of a batch's valid frames; `cost` [B, J, T]."""
        import pyarrow as pa

        b, t = np.nonzero(bins >= 0)
        by_pair = np.moveaxis(cost, 1, 2)[b, t]  # [F, J]
        time_s = batch.data.time_s[b, t].astype(float)
        arrays = [batch.rows[b], t.astype(np.int32), time_s, bins[b, t], by_pair.sum(axis=1)]
        arrays += list(by_pair.T)
        self.writer.write_table(pa.table([pa.array(x) for x in arrays], schema=self.schema))

    def close(self) -> None:
        """Finish the file and give it its name."""
        self.writer.close()
        os.replace(self.part, self.path)

    def abandon(self) -> None:
        """Remove what is unfinished; nothing after :meth:`close`."""
        self.writer.close()
        self.part.unlink(missing_ok=True)
