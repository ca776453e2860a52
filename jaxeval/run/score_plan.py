"""What is to be scored and how, apart from where: a plan scores any range of episodes of a source, in any process.

    plan = make_plan(reference, source, ["geometric", "smoothness"])     # picklable
    whole = merge([plan.score(source, a, b) for a, b in ranges])         # each range perhaps in a process of its own

Alignment is computed once a batch; each metric then measures what it declared it needs. Merging the ranges of a source
gives the rows of one run: text and statuses are identical, numbers agree to 1e-6 (jerk, a third derivative, to 5e-5).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval import align
from jaxeval.io.errors import InputError
from jaxeval.io.files import replacing
from jaxeval.io.source import Source, open_source
from jaxeval.io.spec import known_spec
from jaxeval.io.store import Store
from jaxeval.io.store.attributes import PREFIX, typed
from jaxeval.metrics.registry import (
    FRAME,
    INPUT,
    TRACKING,
    Column,
    Context,
    Facts,
    Metric,
    Needs,
    Recorded,
    all_metrics,
    columns_of,
    described,
    metric_named,
    refused_metrics,
)
from jaxeval.run.fit import align_to_spec, quick_jit
from jaxeval.run.scorers.grasp import CONTACTS
from jaxeval.types import FINDINGS, TRACKING_FINDINGS, EpisodeBatch, Reference, TaskSpec

if TYPE_CHECKING:
    import pandas

NOT_ASKED = "geometric quality was not asked for"
SMALL_N = 512
"""Sources of up to this many episodes are measured by code that compiles in half the time and runs ten times slower."""
FRAMES_OF = {"geometric": "frame_costs.parquet"}
FRAME_MOTION = "frame_motion.parquet"
"""Files that hold a row a frame: of the geometric metric, and of all others."""
STAGED = ("stages", "grasp")
"""What is measured by default, without a reference, of a task whose spec has ``stages``: what was recorded for it."""


@dataclass(frozen=True)
class Scores:
    """Scores of episodes as columns (one entry an episode, in the source's order), with notes and refused files."""

    columns: dict[str, list[Any]]
    skipped_pairs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    metrics: tuple[str, ...] = ()
    described: dict[str, Column] = field(default_factory=dict)  # by full name, those that somebody described
    start: int = 0  # row of the source with which the columns begin

    @property
    def n(self) -> int:
        """Episodes."""
        return len(self.columns["episode"])

    @property
    def q(self) -> np.ndarray:
        """Q of every episode; NaN where `status` is not "ok"."""
        return np.asarray(self.columns["Q"], float)

    def to_pandas(self) -> pandas.DataFrame:
        """A row an episode; null where there is no number."""
        import pandas

        return pandas.DataFrame(self.columns)

    def __repr__(self) -> str:
        judged = sum(bool(v) for v in self.columns["valid"])
        return f"Scores({self.n} episodes, {judged} valid, metrics {', '.join(self.metrics)})"

    def _repr_html_(self) -> str:
        return self.to_pandas()._repr_html_()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class ScorePlan:
    """Which metrics, how they are set, what they read, and the reference: all that scoring needs beside episodes.

    ``spec``: what episodes are aligned with where there is no reference and a metric asks for it, else None.
    """

    reference: Reference | None
    spec: TaskSpec | None
    metrics: tuple[Metric, ...]
    params: tuple[Any, ...]
    needs: tuple[Needs, ...]
    aligned: tuple[str, ...]  # bodies that alignment looks at
    task: str
    quick: bool
    batch_n: int
    notes: tuple[str, ...]

    @property
    def bodies(self) -> tuple[str, ...]:
        """Bodies to read: those that end sub-tasks, then those of the metrics."""
        return tuple(dict.fromkeys((*self.aligned, *(b for need in self.needs for b in need.bodies))))

    def score(
        self,
        source: Source | str | Path,
        start: int = 0,
        stop: int | None = None,
        *,
        frames_to: Path | None = None,
        progress: bool = False,
    ) -> Scores:
        """Scores of the episodes [start, stop) of a source, an open one or its path.

        ``frames_to``: a folder for the values of frames; their `episode` is the row in the source.
        """
        source = source if isinstance(source, Source) else open_source(source)
        start, stop, _ = slice(start, stop).indices(source.n_episodes)
        table = source.table(start, stop)
        length = np.asarray(table["length"], int)
        refused = refusals(table["findings"])
        seen: list[np.ndarray] = []
        measured: list[list[dict[str, np.ndarray]]] = [[] for _ in self.metrics]
        writers = _FrameWriters(frames_to)
        stream = source.batches(
            bodies=self.bodies or source.bodies[:1],
            episodes_n=self.batch_n,
            start=start,
            stop=stop,
            joints=any(need.joints for need in self.needs) or self.uses_joints,
            signals=tuple(dict.fromkeys(name for need in self.needs for name in need.signals)),
        )
        with writers:
            for rows, data in _with_progress(stream, stop - start, progress):
                n, filled = full_batch(rows, data)
                lengths = np.resize(length[rows - start], len(filled.time_s))
                lengths[n:] = lengths[n - 1]
                for parts, got in zip(measured, self.measure(filled, lengths, frames_to is not None), strict=True):
                    parts.append({k: v[:n] for k, v in got.items()})
                for metric, parts in zip(self.metrics, measured, strict=True):
                    writers.add(metric, data, rows, n, parts[-1])
                    parts[-1] = {k: v for k, v in parts[-1].items() if not k.startswith(FRAME)}
                seen.append(rows - start)
        order = np.argsort(np.concatenate(seen), kind="stable") if seen else np.zeros(0, int)
        columns, about = self._columns(table, refused, measured, order)
        unwritten = "frames: these metrics are of whole episodes, so no file of frames is written; see `jaxeval video`"
        return Scores(
            columns=columns,
            skipped_pairs=tuple(name for need in self.needs for name in need.skipped),
            notes=(*self.notes, unwritten) if frames_to is not None and not writers.open else self.notes,
            refused=tuple((str(p), s) for p, s in source.refused),
            metrics=tuple(m.name for m in self.metrics),
            described=about,
            start=start,
        )

    def measure(self, batch: EpisodeBatch, length: np.ndarray, frames: bool) -> Iterator[dict[str, np.ndarray]]:
        """What each metric measures of a padded batch, in order."""
        views: dict[Any, EpisodeBatch] = {}

        def on_device(need: Needs) -> EpisodeBatch:
            """What was declared, on the device: once for all that declare the same."""
            key = (need.bodies, need.signals, need.joints)
            if key not in views:
                views[key] = jax.device_put(_only(batch, need))
            return views[key]

        aligned = None
        own = Needs(bodies=self.aligned, joints=self.uses_joints)
        if self.reference is not None:
            aligned = _aligner(self.quick)(on_device(own), self.reference)
        elif self.spec is not None:
            aligned = _spec_aligner(self.spec, self.quick)(on_device(own))
        done: dict[str, dict[str, Any]] = {}
        for metric, params, need in zip(self.metrics, self.params, self.needs, strict=True):
            context = Context(
                aligned=aligned if self.reference is not None or need.alignment else None,
                reference=self.reference,
                robot=need.robot,
                constants=need.constants,
                measured={k: v for name in need.after for k, v in done[name].items()},
                length=jnp.asarray(length),
                frames=frames,
            )
            if metric.host:
                got = metric.measure(_only(batch, need), context, params)
            else:
                got = _compiled(metric.measure, self.quick)(on_device(need), context, params)
            done[metric.name] = {k: v for k, v in got.items() if not k.startswith(FRAME)}
            yield {k: np.asarray(v) for k, v in got.items()}

    def _columns(
        self,
        table: dict[str, list[Any]],
        refused: list[str | None],
        measured: list[list[dict[str, np.ndarray]]],
        order: np.ndarray,
    ) -> tuple[dict[str, list[Any]], dict[str, Column]]:
        """Columns of `scores.parquet`, in row order, the contract's first; and those that a metric describes."""
        n = len(refused)
        columns: dict[str, list[Any]] = {"episode": table["episode_id"], "task": [self.task] * n}
        columns["group"] = table["group"]
        # without geometric quality an episode is valid when nothing at the door forbids judging it
        columns |= {name: [None] * n for name in ("Q", "gate", "gate_reason")}
        columns["valid"] = [r is None for r in refused]
        columns["status"] = [r or NOT_ASKED for r in refused]
        about: dict[str, Column] = {}
        for metric, need, parts in zip(self.metrics, self.needs, measured, strict=True):
            whole = {k: np.concatenate([p[k] for p in parts])[order] for k in parts[0]} if parts else {}
            context = Context(reference=self.reference, robot=need.robot, constants=need.constants)
            got = columns_of(metric, whole, Facts(context, self.labels(need), refused))
            if "valid" in got:
                got["valid"] = [bool(v) for v in got["valid"]]
            columns |= got
            about |= {name: c for name in got if (c := described(name, metric.columns)) is not None}
        columns["findings"] = [sorted(set(f or ())) for f in table["findings"]]
        columns["mended"] = table["mended"]
        for name, values in table.items():
            if name not in ("episode_id", "task", "group", "findings", "mended"):
                columns.setdefault(name, values)  # stages judge success again
        return columns, about

    @property
    def uses_joints(self) -> bool:
        """Whether a sub-task that episodes are aligned with ends by a joint."""
        spec = self.spec if self.reference is None else self.reference.spec
        return spec is not None and bool(align.needed_joints(spec))

    def labels(self, need: Needs) -> dict[str, tuple[str, ...]]:
        """Names that ``<label>`` stands for in the columns of a metric."""
        out: dict[str, tuple[str, ...]] = {"body": need.bodies}
        if self.reference is not None:
            out["pair"] = tuple(p.name for p in self.reference.pairs)
            out["sub_task"] = tuple(s.name for s in self.reference.spec.sub_tasks)
        return out | dict(need.labels)


def merge(parts: Sequence[Scores]) -> Scores:
    """The scores of one run from those of its ranges, whatever their order; ValueError where ranges do not adjoin."""
    parts = sorted(parts, key=lambda p: p.start)
    for one, other in pairwise(parts):
        if one.start + one.n != other.start:
            raise ValueError(
                f"ranges do not adjoin: rows {one.start} to {one.start + one.n - 1} are followed by row {other.start}"
            )
    first = parts[0]
    columns = {name: [v for p in parts for v in p.columns[name]] for name in first.columns}
    attributes = {name.removeprefix(PREFIX): values for name, values in columns.items() if name.startswith(PREFIX)}
    rows = [
        {name: values[k] for name, values in attributes.items() if values[k] is not None}
        for k in range(sum(p.n for p in parts))
    ]
    of_one_kind = typed(columns["episode"], rows)  # as in one run
    columns |= {PREFIX + name: values.to_pylist() for name, values in of_one_kind.items()}
    return dataclasses.replace(first, columns=columns)


# ---------------------------------------------------------------------------------------------------- making a plan


def make_plan(
    reference: Reference | None,
    source: Source,
    chosen: Sequence[str] | None = None,
    *,
    spec: TaskSpec | None = None,
    settings: Mapping[str, Any] | None = None,
    batch_n: int = 1024,
) -> ScorePlan:
    """A plan for the episodes of a source.

    ``chosen``: names of metrics, ``["all"]`` for all that the data allow (what is left out, and why, stands in the
    notes); by default Q with a reference, without one stages of tasks whose spec has them and smoothness of others.
    ``spec``: of the task, where the package has none or another. ``settings``: Params by the name of their metric,
    defaults for the rest.

    Raises:
        InputError: the source is of another task than reference or spec, a metric lacks something or is set wrongly.
    """
    known = _spec_of(source, reference, spec)
    if reference is not None:
        align.require_joints(reference.spec, source.joint_names, str(source.parts[0].path))
    if isinstance(batch_n, bool) or not isinstance(batch_n, int) or batch_n < 1:
        raise InputError(f"batch_n is {batch_n!r}, expected a whole number from 1 on; correct the setting")
    settings, recorded = dict(settings or {}), recorded_of(source, reference, known)
    names, everything = _chosen(chosen, recorded, spec is not None)
    if unknown := [name for name in settings if name not in all_metrics()]:
        metric_named(unknown[0])
    made: list[tuple[Metric, Any, Needs]] = []
    notes: list[str] = []
    for name in names:
        metric = metric_named(name)
        try:
            params = _checked(metric, settings.get(name))
            need = metric.needs_of(recorded, params)
            if lacking := [m for m in need.after if m not in [x.name for x, _, _ in made]]:
                raise InputError(
                    f"metrics: {name} reads what {lacking[0]} measures, which is not among them; add {lacking[0]}",
                    code="no_metric",
                    key=lacking[0],
                )
        except InputError as error:
            if not everything or error.code == "setting":
                raise
            notes.append(f"{name} is left out: {error}")
            continue
        made.append((metric, params, need))
        notes += need.notes
    if everything:
        notes += [f"{name} is left out: {why}" for name, why in refused_metrics().items()]
    if not made:
        raise InputError(
            f"{recorded.where}: no metric can be measured ({notes[0]}); name the one you want with metrics=[...]"
        )
    own = known if reference is None and any(need.alignment for _, _, need in made) else None
    aligned = own if reference is None else reference.spec
    spec_bodies = () if aligned is None else tuple(b.name for b in aligned.bodies)
    return ScorePlan(
        reference=reference,
        spec=own,
        metrics=tuple(m for m, _, _ in made),
        params=tuple(p for _, p, _ in made),
        needs=tuple(n for _, _, n in made),
        aligned=tuple(b for b in spec_bodies if b in source.bodies),
        task=source.task or (known.name if known is not None else ""),
        quick=source.n_episodes <= SMALL_N,
        batch_n=batch_n,
        notes=tuple(notes),
    )


def _spec_of(source: Source, reference: Reference | None, spec: TaskSpec | None) -> TaskSpec | None:
    """Spec of the task of a source: the one given, else the package's of that name, if there is one.

    With a reference: the first of those given, the reference's and the package's that has ``stages``, else the
    reference's, with whose sub-tasks episodes are aligned. InputError where the source is of another task.
    """
    for what, declared in (("the reference", None if reference is None else reference.spec), ("the task spec", spec)):
        if declared is not None and source.task != declared.name and (source.task or what == "the reference"):
            raise InputError(
                f"{source.parts[0].path}: episodes of task '{source.task}', expected '{declared.name}' as in "
                f"{what}; {'fit a reference' if what == 'the reference' else 'give a spec'} of that task or give other "
                "episodes",
                code="other_task",
            )
    known = known_spec(source.task)
    if reference is None:
        return spec or known
    return next((s for s in (spec, reference.spec, known) if s is not None and s.stages is not None), reference.spec)


def recorded_of(source: Source, reference: Reference | None, spec: TaskSpec | None = None) -> Recorded:
    """What a source holds, as metrics ask."""
    stores = [p for p in source.parts if isinstance(p, Store)]
    signals = [p.signals if isinstance(p, Store) else _signals_of(p) for p in source.parts]
    named = "; ".join(f"{p.path} ({', '.join(p.joint_names[:2]) or 'unnamed'}, ...)" for p in source.parts[:4])
    return Recorded(
        where=str(source.parts[0].path),
        task=source.task,
        bodies=source.bodies,
        joint_names=source.joint_names,
        signals=tuple(s for s in signals[0] if all(s in more for more in signals[1:])),
        reference=reference,
        configuration=tuple(p.meta["configuration"] for p in stores),
        joints_differ=named if len({p.joint_names for p in source.parts}) > 1 else "",
        spec=spec,
    )


def _signals_of(part: Any) -> tuple[str, ...]:
    """Signals that every episode of a file in memory has."""
    each = [tuple(e.signals or ()) for e in part.iter_episodes()]
    return tuple(s for s in (each[0] if each else ()) if all(s in more for more in each))


def _chosen(chosen: Sequence[str] | None, recorded: Recorded, spec_given: bool) -> tuple[list[str], bool]:
    """(names of metrics in the order of the registry, whether those that cannot be had are to be left out)."""
    there, spec = list(all_metrics()), recorded.spec
    if chosen is None and recorded.reference is not None:
        return ["geometric"], False
    if chosen is None and spec is not None and spec.stages is not None:
        return [name for name in STAGED if name != "grasp" or set(CONTACTS) <= set(recorded.signals)], False
    if chosen is None:
        return ["smoothness", "stages"] if spec_given else ["smoothness"], False
    wanted = [chosen] if isinstance(chosen, str) else list(chosen)
    if wanted == ["all"]:
        return there, True
    for name in wanted:
        metric_named(name)
    if not wanted:
        raise InputError(f"metrics is empty; expected any of {', '.join(there)}; name at least one")
    return [name for name in there if name in wanted], False


def _checked(metric: Metric, params: Any) -> Any:
    """The metric's Params, given or by default; InputError in a sentence where they cannot be."""
    params = metric.Params() if params is None else params
    if not isinstance(params, metric.Params):
        try:  # the pure function's own Params: the fields that it has
            params = metric.Params(**{f.name: getattr(params, f.name) for f in dataclasses.fields(params)})
        except TypeError as error:
            raise InputError(
                f"settings of {metric.name} are {type(params).__name__}, expected {metric.Params.__name__}; give those",
                code="setting",
                key=metric.name,
            ) from error
    try:
        return params.check() if hasattr(params, "check") else params
    except (ValueError, TypeError) as error:
        raise InputError(f"{error}; correct the setting", code="setting", key=metric.name) from error


# ------------------------------------------------------------------------------------------------- a batch at a time


def full_batch(rows: np.ndarray, batch: EpisodeBatch) -> tuple[int, EpisodeBatch]:
    """The batch filled up to a power of two of episodes with copies of its last, so that each size compiles once."""
    n = len(rows)
    fill = (1 << max(0, n - 1).bit_length()) - n
    if fill == 0:
        return n, batch
    return n, jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], fill, axis=0)]), batch)


def _only(batch: EpisodeBatch, need: Needs) -> EpisodeBatch:
    """The batch with what a metric declared and no more: then it is compiled for itself, whatever is beside it."""
    bodies, poses, valid = batch.bodies, batch.poses, batch.valid
    if need.bodies and need.bodies != bodies:
        order = [bodies.index(b) for b in need.bodies]
        bodies, poses, valid = need.bodies, poses[:, :, order], valid[:, :, order]
    signals = {name: batch.signals[name] for name in need.signals}
    joints, names = (batch.joints, batch.joint_names) if need.joints else (None, ())
    return dataclasses.replace(
        batch, poses=poses, valid=valid, bodies=bodies, joints=joints, joint_names=names, signals=signals
    )


@cache
def _compiled(f: Callable[..., Any], quick: bool) -> Callable[..., Any]:
    """Jitted once a process: fast to compile for small sources, else fast to run."""
    return quick_jit(f) if quick else jax.jit(f)


@cache
def _aligner(quick: bool) -> Callable[..., align.Alignment]:
    return quick_jit(align_to) if quick else jax.jit(align_to)


@cache
def _spec_aligner(spec: TaskSpec, quick: bool) -> Callable[[EpisodeBatch], align.Alignment]:
    """Alignment of a batch with the sub-tasks of a spec, whose boundaries alone count."""
    to_spec = partial(align_to_spec, spec=spec, bins_n=1)
    return quick_jit(to_spec) if quick else jax.jit(to_spec)


def align_to(batch: EpisodeBatch, reference: Reference) -> align.Alignment:
    """Alignment of every episode of a batch with the sub-tasks of a reference."""
    return align_to_spec(batch, spec=reference.spec, bins_n=reference.bins_n, mean_duration_s=reference.duration_s)


def refusals(findings: Sequence[Sequence[str] | None]) -> list[str | None]:
    """Why each episode cannot be judged, by the codes of what was found at the door; None where it can."""
    errors = {code for code, (severity, _) in FINDINGS.items() if severity == "error"}
    out: list[str | None] = []
    for codes in findings:
        bad = sorted(set(codes or ()) & errors)
        kind = TRACKING if set(bad) & TRACKING_FINDINGS else INPUT
        out.append(f"{kind}: {FINDINGS[bad[0]][1]}" if bad else None)
    return out


def _with_progress(batches: Iterator[Any], total: int, show: bool) -> Iterator[Any]:
    if not show:
        yield from batches
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="episode", desc="scoring", leave=False, disable=None) as bar:
        for rows, batch in batches:
            yield rows, batch
            bar.update(len(rows))


# ------------------------------------------------------------------------------------------------------ frames on disk


class _FrameWriters:
    """Files with a row a frame: `episode` (row of the source), `frame`, `t_s`, and what was measured in each frame.

    Each appears whole when the block ends well, and not at all if it does not.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.open: dict[str, Any] = {}
        self.files = ExitStack()
        self.pending: dict[str, tuple[np.ndarray, dict[str, np.ndarray]]] = {}

    def __enter__(self) -> _FrameWriters:
        return self

    def add(self, metric: Metric, data: EpisodeBatch, rows: np.ndarray, n: int, measured: Mapping[str, Any]) -> None:
        """What one metric measured of a batch; metrics that share a file share its rows."""
        if self.folder is None:
            return
        mine = {k.removeprefix(FRAME): v for k, v in measured.items() if k.startswith(FRAME)}
        if not mine:
            return
        file = FRAMES_OF.get(metric.name, FRAME_MOTION)
        held = self.pending.get(file)
        if held is not None and held[0] is not rows:
            self._write(file)
            held = None
        if held is None:
            b, t = np.nonzero(data.frame_valid[:n])
            columns = {"episode": rows[b], "frame": t.astype(np.int32), "t_s": data.time_s[b, t].astype(float)}
            self.pending[file] = held = (rows, columns | {"": np.stack([b, t])})
        b, t = held[1][""]
        held[1].update({k: v[b, t] for k, v in mine.items()})

    def _write(self, file: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert self.folder is not None
        _, columns = self.pending.pop(file)
        del columns[""]
        table = pa.table({k: pa.array(v, from_pandas=v.dtype.kind == "f") for k, v in columns.items()})
        if file not in self.open:
            unfinished = self.files.enter_context(replacing(self.folder / file))
            self.open[file] = pq.ParquetWriter(unfinished, table.schema, compression="zstd")
        self.open[file].write_table(table)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                for file in list(self.pending):
                    self._write(file)
            for writer in self.open.values():
                writer.close()
        except BaseException:
            self.files.__exit__(*sys.exc_info())
            raise
        self.files.__exit__(kind, error, trace)
