"""`jaxeval score`: a Reference and episodes in, `scores.parquet` out. Streams; no Python loop over episodes."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import align
from jaxeval.io.errors import InputError
from jaxeval.io.source import Source
from jaxeval.metrics import geometric as G
from jaxeval.metrics.fused import FusedQuality, Tables, quality_by_tables, tables
from jaxeval.report.words import direction_words, gate_words
from jaxeval.run.fit import quick_jit
from jaxeval.types import FINDINGS, TRACKING_FINDINGS, EpisodeBatch, Reference

SCORES, FRAME_COSTS, ABOUT = "scores.parquet", "frame_costs.parquet", "score.json"


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of every episode as columns (row order of the source), and what was said on the way."""

    columns: dict[str, list[Any] | np.ndarray]
    skipped_pairs: tuple[str, ...]
    notes: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def q(self) -> np.ndarray:
        """Q of every episode; NaN where `status` is not "ok"."""
        return np.asarray(self.columns["Q"], float)


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
    poses, success = jnp.asarray(batch.poses), jnp.asarray(batch.success)
    quality = quality_by_tables(poses, aligned, success, made, reference=reference, params=params, bodies=bodies)
    return quality, aligned


@cache
def _once() -> tuple[Callable[..., Tables], Callable[..., G.Departure]]:
    """:func:`fused.tables` and :func:`geometric.explain_frame` over episodes, compiled quickly: they run briefly."""

    def explain(poses: Any, bins: Any, pairs: Any, found: Any, reference: Any, *, bodies: tuple[str, ...]) -> Any:
        return jax.vmap(partial(G.explain_frame, found=found, reference=reference, bodies=bodies))(poses, bins, pairs)

    return quick_jit(tables, static_argnames=("bodies",)), quick_jit(explain, static_argnames=("bodies",))


def align_to(batch: EpisodeBatch, reference: Reference, *, bodies: tuple[str, ...]) -> align.Alignment:
    """Alignment of every episode of a batch with the sub-tasks of a reference."""
    one = partial(
        align.align_episode,
        spec=reference.spec,
        bodies=bodies,
        bins_n=reference.bins_n,
        mean_duration_s=reference.duration_s,
    )
    signals = (batch.poses, batch.time_s, batch.valid, batch.gripper_width_m)
    return jax.vmap(one)(*(jnp.asarray(x) for x in signals))


def full_batch(rows: np.ndarray, batch: EpisodeBatch) -> tuple[int, EpisodeBatch]:
    """The batch filled up to a power of two of episodes with copies of its last, so that each size compiles once."""
    n = len(rows)
    fill = (1 << max(0, n - 1).bit_length()) - n
    if fill == 0:
        return n, batch
    return n, jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], fill, axis=0)]), batch)


def score(
    reference: Reference,
    source: Source,
    params: G.GeometricParams | None = None,
    *,
    out: str | Path | None = None,
    frames: bool = False,
    batch_n: int = 1024,
    progress: bool = False,
    about: dict[str, Any] | None = None,
) -> Scores:
    """Score every episode of a source; with `out`, also write `scores.parquet` and `score.json` there.

    `frames` adds `frame_costs.parquet` (a row a frame). `batch_n` episodes go to the device at a time. An episode that
    cannot be judged keeps its row: Q is null and `status` says why. InputError when the source is of another task, when
    no pair can be scored, or when `out` cannot be written; nothing half-written is left.
    """
    params = (params or G.GeometricParams()).check()
    spec = reference.spec
    if source.task != spec.name:
        raise InputError(
            f"{source.parts[0].path}: episodes of task '{source.task}', expected '{spec.name}' as in the reference; "
            "fit a reference of that task or give other episodes"
        )
    bodies = scored_bodies(reference, source.bodies)
    skipped = tuple(p.name for p in reference.pairs if p.a not in bodies or p.b not in bodies)
    notes = [str(f) for f in source.findings if f.severity != "info"]
    if skipped:
        missing = [b.name for b in spec.bodies if b.name not in bodies]
        over = ", ".join(_passed_over(reference, bodies)) or "none"
        notes.append(
            f"{source.parts[0].path}: no body {', '.join(missing)}, so {', '.join(skipped)} are not scored and "
            f"sub-tasks that depend on it alone are passed over ({over}); "
            "record it (for the gripper: obs_mode=state_dict) to score them"
        )
    table = source.table()
    folder = _open_folder(out) if out is not None else None
    collected: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
    fold, explain = _once()
    made = fold(reference, params, bodies=bodies)
    writer = _FrameWriter(folder, reference) if folder is not None and frames else None
    try:
        for rows, batch in _with_progress(
            source.batches(bodies=bodies, episodes_n=batch_n), source.n_episodes, progress
        ):
            n, filled = full_batch(rows, batch)
            quality, aligned = score_batch(filled, made, reference, params, bodies=bodies)
            frame, episode = np.asarray(quality.worst_frame), np.arange(len(quality.worst_frame))
            at = (filled.poses[episode, frame], np.asarray(aligned.bins)[episode, frame], quality.worst_pair)
            worst = explain(*at, made.found, reference, bodies=bodies)
            collected.append((rows, {k: np.asarray(v)[:n] for k, v in _small(quality, aligned, worst).items()}))
            if writer is not None:
                writer.add(rows, batch, np.asarray(quality.frame_pair_cost)[:n], np.asarray(aligned.bins)[:n])
        columns = _columns(table, collected, reference, skipped)
        scores = Scores(columns, skipped, tuple(notes), tuple((str(p), s) for p, s in source.refused))
        if folder is not None:
            if writer is not None:
                writer.close()
            _write(folder, scores, reference, params, about or {})
    finally:
        if writer is not None:
            writer.abandon()
    return scores


def _passed_over(reference: Reference, bodies: tuple[str, ...]) -> tuple[str, ...]:
    """Sub-tasks none of whose predicates can be asked for want of a body."""
    spec = reference.spec
    return tuple(s.name for s in spec.sub_tasks if all(align.missing_bodies(u, spec, bodies) for u in s.until))


def _small(quality: FusedQuality, aligned: align.Alignment, worst: G.Departure) -> dict[str, Any]:
    kept = ("q", "gate_free", "gate_code", "gate_index", "status", "pair_cost", "sub_task_cost")
    where = ("worst_frame", "worst_pair", "worst_sub_task")
    return (
        {name: getattr(quality, name) for name in kept + where}
        | {"ends": aligned.ends, "reached": aligned.reached, "bins_valid": jnp.any(aligned.bins >= 0, axis=1)}
        | {"started_s": aligned.started_s, "ended_s": aligned.ended_s}
        | {"worst_z": worst.z, "worst_deviation": worst.deviation, "worst_axis": worst.axis}
    )


def _columns(
    table: dict[str, list[Any]],
    collected: list[tuple[np.ndarray, dict[str, np.ndarray]]],
    reference: Reference,
    skipped: tuple[str, ...],
) -> dict[str, Any]:
    """Columns of `scores.parquet`, in row order; the contract's first."""
    order = np.argsort(np.concatenate([rows for rows, _ in collected]), kind="stable")
    got = {k: np.concatenate([part[k] for _, part in collected])[order] for k in collected[0][1]}
    n, spec = len(order), reference.spec
    status = got["status"].copy()
    findings = [frozenset(f or ()) for f in table["findings"]]
    errors = {code for code, (severity, _) in FINDINGS.items() if severity == "error"}
    texts = [G.STATUS_SENTENCES[int(s)] for s in status]
    for i, codes in enumerate(findings):
        if bad := sorted(codes & errors):
            status[i] = G.STATUS_TRACKING if codes & TRACKING_FINDINGS else G.STATUS_INPUT
            texts[i] = f"{G.STATUS_SENTENCES[int(status[i])]}: {FINDINGS[bad[0]][1]}"
    ok = status == G.STATUS_OK
    code, index = got["gate_code"], got["gate_index"]
    pairs = [p.name for p in reference.pairs]
    judged = ok & (got["gate_free"] < 1)
    words = [
        direction_words(reference.pairs[p], d, v) if j else None
        for p, d, v, j in zip(got["worst_pair"], got["worst_deviation"], got["worst_axis"], judged, strict=True)
    ]

    def where(values: Any, mask: np.ndarray) -> list[Any]:
        return [v if m else None for v, m in zip(values, mask, strict=True)]

    columns: dict[str, Any] = {
        "episode": table["episode_id"],
        "task": [spec.name] * n,
        "group": table["group"],
        "Q": where(got["q"].astype(float).tolist(), ok),
        "gate": where((code == G.GATE_OPEN).tolist(), ok),
        "gate_reason": [
            gate_words(reference, int(c), int(i)) if k else None for c, i, k in zip(code, index, ok, strict=True)
        ],
        "valid": ok.tolist(),
        "status": texts,
        "gate_free_Q": where(got["gate_free"].astype(float).tolist(), ok),
        "mean_cost": where((-np.log(np.maximum(got["gate_free"].astype(float), 1e-300))).tolist(), ok),
    }
    for j, name in enumerate(pairs):
        shown = ok & (name not in skipped)
        columns[f"cost.{name}"] = where(got["pair_cost"][:, j].astype(float).tolist(), shown)
    for p, sub_task in enumerate(spec.sub_tasks):
        columns[f"sub_task_cost.{sub_task.name}"] = where(got["sub_task_cost"][:, p].astype(float).tolist(), ok)
        columns[f"sub_task_end_s.{sub_task.name}"] = where(
            got["ended_s"][:, p].astype(float).tolist(), ok & got["reached"][:, p]
        )
    columns |= {
        "worst_sub_task": where([spec.sub_tasks[int(p)].name for p in got["worst_sub_task"]], judged),
        "worst_pair": where([pairs[int(j)] for j in got["worst_pair"]], judged),
        "worst_frame": where(got["worst_frame"].tolist(), judged),
        "worst_direction": words,
        "worst_z": where(got["worst_z"].astype(float).tolist(), judged),
        "findings": [sorted(f) for f in findings],
    }
    for name in ("length", "success_once", "success_at_end", "seed", "speed", "initial_condition_id",
                 "initial_condition_hash", "source"):  # fmt: skip
        columns[name] = table[name]
    return columns


def table(scores: Scores) -> str:
    """Mean Q by group, closed gates and the relation that broke most often, as text."""
    c = scores.columns
    group, q = np.asarray(c["group"], object), scores.q
    gate, pair = np.asarray(c["gate"], object), np.asarray(c["worst_pair"], object)
    lines = [
        f"{'group':24}{'episodes':>9}{'mean Q':>9}{'min':>8}{'max':>8}{'gate closed':>13}"
        f"{'not scored':>12}  worst relation"
    ]
    for name in dict.fromkeys(group):
        mine = group == name
        scored = mine & np.isfinite(q)
        told = (
            f"{q[scored].mean():9.3f}{q[scored].min():8.3f}{q[scored].max():8.3f}"
            if scored.any()
            else f"{'-':>9}{'-':>8}{'-':>8}"
        )
        broke = [p for p in pair[scored] if p is not None]
        worst = max(dict.fromkeys(broke), key=broke.count) if broke else "-"
        closed = int((gate[mine] == False).sum())  # noqa: E712  (None means not scored)
        lines.append(f"{name or '-':24}{mine.sum():>9}{told}{closed:>13}{int(mine.sum() - scored.sum()):>12}  {worst}")
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------- writing


def _open_folder(out: str | Path) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"{folder}: cannot write there ({error.strerror}); expected a writable folder; choose another with out=DIR"
        ) from error
    return folder


def _write(
    folder: Path, scores: Scores, reference: Reference, params: G.GeometricParams, about: dict[str, Any]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = {"episode", "task", "group", "gate_reason", "status", "worst_sub_task", "worst_pair", "worst_direction",
            "initial_condition_id", "initial_condition_hash", "source"}  # fmt: skip
    types = {name: pa.string() for name in text} | {
        "Q": pa.float64(), "gate": pa.bool_(), "valid": pa.bool_(), "gate_free_Q": pa.float64(),
        "mean_cost": pa.float64(), "worst_frame": pa.int32(), "worst_z": pa.float64(), "length": pa.int32(),
        "success_once": pa.bool_(), "success_at_end": pa.bool_(), "seed": pa.int64(), "speed": pa.float64(),
        "findings": pa.list_(pa.string()),
    }  # fmt: skip
    arrays = {name: pa.array(list(v), types.get(name, pa.float64())) for name, v in scores.columns.items()}
    part = folder / f".{SCORES}.writing"
    try:
        pq.write_table(pa.table(arrays), part, compression="zstd")
        os.replace(part, folder / SCORES)
    finally:
        part.unlink(missing_ok=True)
    told = {
        "task": reference.spec.name,
        "params": {f.name: _plain(getattr(params, f.name)) for f in dataclasses.fields(params)},  # type: ignore[arg-type]
        "pairs": [p.name for p in reference.pairs],
        "sub_tasks": [s.name for s in reference.spec.sub_tasks],
        "bins_n": reference.bins_n,
        "skipped_pairs": list(scores.skipped_pairs),
        "notes": list(scores.notes),
        "refused": [list(r) for r in scores.refused],
        **about,
    }
    part = folder / f".{ABOUT}.writing"
    part.write_text(json.dumps(told, indent=1) + "\n")
    os.replace(part, folder / ABOUT)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, bool)) else float(value)


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

    def add(self, rows: np.ndarray, batch: EpisodeBatch, cost: np.ndarray, bins: np.ndarray) -> None:
        """Rows of a batch's valid frames; `cost` [B, J, T]."""
        import pyarrow as pa

        b, t = np.nonzero(bins >= 0)
        by_pair = np.moveaxis(cost, 1, 2)[b, t]  # [F, J]
        arrays = [rows[b], t.astype(np.int32), batch.time_s[b, t].astype(float), bins[b, t], by_pair.sum(axis=1)]
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


def _with_progress(batches: Iterator[Any], total: int, show: bool) -> Iterator[Any]:
    if not show:
        yield from batches
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="episode", desc="scoring", leave=False, disable=None) as bar:
        for rows, batch in batches:
            yield rows, batch
            bar.update(len(rows))
