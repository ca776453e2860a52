"""`jaxeval score`: episodes in, `scores.parquet` out, by any of the metrics. Streams, in one pass over the data."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxeval.align import needed_joints, require_joints
from jaxeval.io.attributes import PREFIX
from jaxeval.io.errors import InputError
from jaxeval.io.source import Source
from jaxeval.metrics.geometric import GeometricParams
from jaxeval.metrics.kinematic import KinematicParams
from jaxeval.metrics.smoothness import SmoothnessParams
from jaxeval.metrics.stages import StageParams
from jaxeval.metrics.tracking import TrackingParams
from jaxeval.run.score_geometric import GeometricScorer, align_alone
from jaxeval.run.score_motion import ArmSetting, KinematicScorer, MotionWriter, SmoothnessScorer, TrackingScorer
from jaxeval.run.score_stages import GraspSetting, StageScorer, stages_table
from jaxeval.run.scorer import FRAME, Batch, Scorer, refusals
from jaxeval.sim.tasks.mujoco_tasks import mujoco_task_names
from jaxeval.types import EpisodeBatch, Reference

SCORES, ABOUT = "scores.parquet", "score.json"
METRICS = ("geometric", "smoothness", "kinematic", "tracking", "stages")
NOT_ASKED = "geometric quality was not asked for"
TEXT = ("episode", "task", "group", "gate_reason", "status", "worst_sub_task", "worst_pair", "worst_direction",
        "initial_condition_id", "initial_condition_hash", "source")  # fmt: skip
"""Columns that are text even where every row is null."""
MOTION_COLUMNS = {
    "smoothness.sparc": "SPARC", "smoothness.jerk_mean_m_s3": "jerk, m/s^3", "smoothness.path_m": "path, m",
    "smoothness.duration_s": "time, s", "smoothness.idle_s": "idle, s", "kinematic.score": "kinematic score",
    "kinematic.min_w": "least w, mean",
}  # fmt: skip
"""Columns of the printed table, with their titles."""


@dataclass(frozen=True)
class Settings:
    """How the metrics beside Q are set. ``body``: whose motion smoothness measures (None: the gripper's).

    ``tracks``: estimate -> truth, names of bodies, for the tracking metrics.
    """

    smoothness: SmoothnessParams = field(default_factory=SmoothnessParams)
    kinematic: KinematicParams = field(default_factory=KinematicParams)
    tracking: TrackingParams = field(default_factory=TrackingParams)
    body: str | None = None
    arm: ArmSetting = field(default_factory=ArmSetting)
    tracks: tuple[tuple[str, str], ...] = ()
    stages: StageParams = field(default_factory=StageParams)
    grasp: GraspSetting = field(default_factory=GraspSetting)


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of every episode as columns (row order of the source), and what was said on the way."""

    columns: dict[str, list[Any]]
    skipped_pairs: tuple[str, ...]
    notes: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def q(self) -> np.ndarray:
        """Q of every episode; NaN where `status` is not "ok"."""
        return np.asarray(self.columns["Q"], float)


def full_batch(rows: np.ndarray, batch: EpisodeBatch) -> tuple[int, EpisodeBatch]:
    """The batch filled up to a power of two of episodes with copies of its last, so that each size compiles once."""
    n = len(rows)
    fill = (1 << max(0, n - 1).bit_length()) - n
    if fill == 0:
        return n, batch
    return n, jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], fill, axis=0)]), batch)


def score(
    reference: Reference | None,
    source: Source,
    params: GeometricParams | None = None,
    *,
    metrics: Sequence[str] | None = None,
    settings: Settings | None = None,
    out: str | Path | None = None,
    frames: bool = False,
    batch_n: int = 1024,
    progress: bool = False,
    about: dict[str, Any] | None = None,
) -> Scores:
    """Score every episode of a source; with `out`, also write `scores.parquet` and `score.json` there.

    ``metrics`` is any subset of METRICS; by default Q with a reference, without one stages of MuJoCo's tasks and
    smoothness of others. With a reference,
    motion is told per sub-task too. `frames` adds `frame_costs.parquet` (geometric) and `frame_motion.parquet` (the
    rest), a row a frame. `batch_n` episodes go to the device at a time. An episode that cannot be judged keeps its row:
    its numbers are null and a status says why. InputError when the source is of another task than the reference, when a
    metric lacks what it needs, or when `out` cannot be written; nothing half-written is left.
    """
    chosen = _checked(metrics, reference, source.task)
    settings = settings or Settings()
    if reference is not None and source.task != reference.spec.name:
        raise InputError(
            f"{source.parts[0].path}: episodes of task '{source.task}', expected '{reference.spec.name}' as in the "
            "reference; fit a reference of that task or give other episodes"
        )
    if isinstance(batch_n, bool) or not isinstance(batch_n, int) or batch_n < 1:
        raise InputError(f"batch_n is {batch_n!r}, expected a whole number from 1 on; correct the setting")
    folder = open_folder(out) if out is not None else None
    notes = [str(f) for f in source.findings if f.severity != "info"]
    scorers = _scorers(chosen, reference, source, params or GeometricParams(), settings, folder if frames else None)
    geometric = next((s for s in scorers if isinstance(s, GeometricScorer)), None)
    if geometric is not None and (note := geometric.note(source.parts[0].path)):
        notes.append(note)
    if frames and chosen == ("stages",):
        notes.append("frames: stages are of whole episodes, so no file of frames is written; see `jaxeval video`")
    writers: list[Any] = [w for w in (geometric and geometric.writer,) if w]
    motion = MotionWriter(folder) if folder is not None and frames and len(scorers) > len(writers) else None
    writers += [motion] if motion else []
    table = source.table()
    length = np.asarray(table["length"])
    seen: list[np.ndarray] = []
    measured: dict[str, list[dict[str, np.ndarray]]] = {s.name: [] for s in scorers}
    needed = [b for s in scorers for b in s.bodies]
    if reference is not None and geometric is None:  # sub-tasks end by predicates on the bodies of the spec
        needed = [b.name for b in reference.spec.bodies if b.name in source.bodies] + needed
    bodies = tuple(dict.fromkeys(needed)) or source.bodies[:1]
    signals = tuple(dict.fromkeys(name for s in scorers for name in s.signals))
    joints = any(s.joints for s in scorers)
    if reference is not None:
        require_joints(reference.spec, source.joint_names, str(source.parts[0].path))
        joints = joints or bool(needed_joints(reference.spec))
    stream = source.batches(bodies=bodies, episodes_n=batch_n, joints=joints, signals=signals)
    try:
        for rows, data in _with_progress(stream, source.n_episodes, progress):
            n, filled = full_batch(rows, data)
            aligned = None
            if reference is not None:
                aligned = geometric.align(filled) if geometric else align_alone(filled, reference, bodies=bodies)
            batch = Batch(filled, n, rows, length[rows], aligned)
            of_frames: dict[str, np.ndarray] = {}
            for scorer in scorers:
                got = scorer.measure(batch)
                of_frames |= {k: v for k, v in got.items() if k.startswith(FRAME)}
                measured[scorer.name].append({k: v for k, v in got.items() if not k.startswith(FRAME)})
            if motion is not None and of_frames:
                motion.add(batch, of_frames)
            seen.append(rows)
        for writer in writers:
            writer.close()
        task = source.task if reference is None else reference.spec.name
        columns = _columns(table, task, scorers, np.concatenate(seen), measured)
        skipped = geometric.skipped if geometric else ()
        scores = Scores(columns, skipped, tuple(notes), tuple((str(p), s) for p, s in source.refused))
        if folder is not None:
            about = _about(scores, reference, params, chosen, settings, about or {})
            _write(folder, scores, about)
    finally:
        for writer in writers:
            writer.abandon()
    return scores


def _checked(metrics: Sequence[str] | None, reference: Reference | None, task: str) -> tuple[str, ...]:
    """Metrics asked for, in the order of METRICS; without any, what the task and a reference allow."""
    if metrics is None:
        alone = ("stages",) if task in mujoco_task_names() else ("smoothness",)
        return ("geometric",) if reference is not None else alone
    every = tuple(m for m in METRICS if m != "stages" or task in mujoco_task_names())
    wanted = every if list(metrics) == ["all"] else tuple(metrics)
    if unknown := [m for m in wanted if m not in METRICS]:
        raise InputError(f"metrics: no metric '{unknown[0]}'; expected any of {', '.join(METRICS)}; correct the name")
    if not wanted:
        raise InputError(f"metrics is empty; expected any of {', '.join(METRICS)}; name at least one")
    if "geometric" in wanted and reference is None:
        raise InputError(
            "metrics: geometric quality needs a reference, found none; "
            "fit one with `jaxeval fit` and give reference=PATH, or leave geometric out"
        )
    return tuple(m for m in METRICS if m in wanted)


def _scorers(
    chosen: tuple[str, ...],
    reference: Reference | None,
    source: Source,
    params: GeometricParams,
    settings: Settings,
    frames_to: Path | None,
) -> list[Scorer]:
    s = settings
    make: dict[str, Any] = {
        "geometric": lambda: GeometricScorer(reference, params, source.bodies, frames_to),  # type: ignore[arg-type]
        "smoothness": lambda: SmoothnessScorer(source, reference, s.smoothness, s.body),
        "kinematic": lambda: KinematicScorer(source, reference, s.kinematic, s.arm),
        "tracking": lambda: TrackingScorer(source, reference, s.tracking, s.tracks),
        "stages": lambda: StageScorer(source, s.stages, s.grasp),
    }
    return [make[name]() for name in chosen]


def _columns(
    table: dict[str, list[Any]],
    task: str,
    scorers: list[Scorer],
    seen: np.ndarray,
    measured: dict[str, list[dict[str, np.ndarray]]],
) -> dict[str, list[Any]]:
    """Columns of `scores.parquet`, in row order; the contract's first."""
    order, n = np.argsort(seen, kind="stable"), len(seen)
    refused = refusals(table["findings"])
    columns: dict[str, list[Any]] = {"episode": table["episode_id"], "task": [task] * n, "group": table["group"]}
    none: list[Any] = [None] * n
    # without geometric quality an episode is valid when nothing at the door forbids judging it
    columns |= {"Q": none, "gate": none, "gate_reason": none, "valid": [r is None for r in refused]}
    columns["status"] = [r or NOT_ASKED for r in refused]
    for scorer in scorers:
        parts = measured[scorer.name]
        whole = {k: np.concatenate([p[k] for p in parts])[order] for k in parts[0]}
        columns |= scorer.columns(whole, refused)
    columns["findings"] = [sorted(set(f or ())) for f in table["findings"]]
    for name in ("length", "success_once", "success_at_end", "seed", "speed", "initial_condition_id",
                 "initial_condition_hash", "source"):  # fmt: skip
        columns.setdefault(name, table[name])  # stages judge success again
    return columns | {name: values for name, values in table.items() if name.startswith(PREFIX)}


def table(scores: Scores) -> str:
    """Mean Q by group, closed gates and the relation that broke most often, and stages if judged, as text."""
    c = scores.columns
    group, q = np.asarray(c["group"], object), scores.q
    if "worst_pair" not in c:
        return stages_table(scores.columns) if "cause" in c else motion_table(scores)
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
    lines += ["", stages_table(c)] if "cause" in c else []
    return "\n".join(lines)


def motion_table(scores: Scores) -> str:
    """Means of the motion metrics by group, as text; "-" where none is known."""
    c, group = scores.columns, np.asarray(scores.columns["group"], object)
    shown = [(name, title, len(title) + 2) for name, title in MOTION_COLUMNS.items() if name in c]
    lines = [f"{'group':24}{'episodes':>9}" + "".join(f"{title:>{width}}" for _, title, width in shown)]
    for name in dict.fromkeys(group):
        mine = np.flatnonzero(group == name)
        cells = []
        for column, _, width in shown:
            values = [v for i in mine if (v := c[column][i]) is not None]
            cells.append(f"{np.mean(values):{width}.3f}" if values else f"{'-':>{width}}")
        lines.append(f"{name or '-':24}{len(mine):>9}" + "".join(cells))
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------- writing


def open_folder(out: str | Path) -> Path:
    """The folder, made if need be; InputError where nothing can be written there."""
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


def _write(folder: Path, scores: Scores, about: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "gate": pa.bool_(), "valid": pa.bool_(), "worst_frame": pa.int32(), "length": pa.int32(),
        "success_once": pa.bool_(), "success_at_end": pa.bool_(), "seed": pa.int64(), "findings": pa.list_(pa.string()),
    } | {name: pa.string() for name in TEXT}  # fmt: skip

    def array(name: str, values: list[Any]) -> Any:
        kinds = {type(v) for v in values} - {type(None)}
        plain = pa.string() if str in kinds else pa.bool_() if kinds == {bool} else pa.float64()
        if kinds == {int} and name.startswith(PREFIX):
            plain = pa.int64()
        return pa.array(list(values), types.get(name, plain))

    part = folder / f".{SCORES}.writing"
    try:
        pq.write_table(pa.table({k: array(k, v) for k, v in scores.columns.items()}), part, compression="zstd")
        os.replace(part, folder / SCORES)
    finally:
        part.unlink(missing_ok=True)
    part = folder / f".{ABOUT}.writing"
    part.write_text(json.dumps(about, indent=1) + "\n")
    os.replace(part, folder / ABOUT)


def _about(
    scores: Scores,
    reference: Reference | None,
    params: GeometricParams | None,
    chosen: tuple[str, ...],
    settings: Settings,
    about: dict[str, Any],
) -> dict[str, Any]:
    """What `score.json` says: the metrics and how they were set, and what was noticed."""
    told: dict[str, Any] = {"metrics": list(chosen), "task": scores.columns["task"][0]}
    if reference is not None:
        told |= {
            "params": _plain(params or GeometricParams()),
            "pairs": [p.name for p in reference.pairs],
            "sub_tasks": [s.name for s in reference.spec.sub_tasks],
            "bins_n": reference.bins_n,
        }
    return told | {
        "settings": {
            name: _plain(getattr(settings, name))
            for name in ("smoothness", "kinematic", "tracking", "arm", "stages", "grasp")
        }
        | {"body": settings.body, "tracks": [list(t) for t in settings.tracks]},
        "skipped_pairs": list(scores.skipped_pairs),
        "notes": list(scores.notes),
        "refused": [list(r) for r in scores.refused],
        **about,
    }


def _plain(params: Any) -> dict[str, Any]:
    """Fields of a frozen dataclass as JSON has them."""
    values = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    return {k: v if v is None or isinstance(v, (str, bool, int, tuple)) else float(v) for k, v in values.items()}


def _with_progress(batches: Iterator[Any], total: int, show: bool) -> Iterator[Any]:
    if not show:
        yield from batches
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="episode", desc="scoring", leave=False, disable=None) as bar:
        for rows, batch in batches:
            yield rows, batch
            bar.update(len(rows))
