"""`jaxeval score`: episodes in, `scores.parquet` out, by any of the metrics. Streams, in one pass over the data."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.cleaning import accounts
from jaxeval.io.errors import InputError
from jaxeval.io.files import replacing, write_text
from jaxeval.io.records.columns import OWN
from jaxeval.io.reference import reference_hash
from jaxeval.io.source import Source
from jaxeval.io.spec import load_spec
from jaxeval.metrics.registry import all_metrics, metric_named
from jaxeval.run.score_plan import NOT_ASKED as NOT_ASKED
from jaxeval.run.score_plan import ScorePlan, make_plan
from jaxeval.run.score_plan import Scores as Scores
from jaxeval.run.scorers.stages import stages_table
from jaxeval.types import Reference, TaskSpec

SCORES, ABOUT = "scores.parquet", "score.json"


def score(
    reference: Reference | None,
    source: Source,
    params: Any = None,
    *,
    metrics: Sequence[str] | None = None,
    spec: TaskSpec | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    frames: bool = False,
    batch_n: int = 1024,
    progress: bool = False,
    about: dict[str, Any] | None = None,
) -> Scores:
    """Score every episode of a source; with `out`, also write `scores.parquet` and `score.json` there.

    ``metrics``: names of registered metrics, or ``["all"]`` for all that the data allow; by default Q with a reference,
    without one stages of tasks whose spec has them and smoothness of others. With a reference, motion is told per
    sub-task too. ``spec``: of the task, or the path of its YAML, where the package has none of that name.
    ``settings``: Params by the name of their metric; ``params`` is short for those of geometric quality. `frames` adds
    `frame_costs.parquet` (geometric) and `frame_motion.parquet` (the rest), a row a frame. `batch_n` episodes go to the
    device at a time. An episode that cannot be judged keeps its row: its numbers are null and a status says why.
    InputError when the source is of another task than reference or spec, when a metric lacks what it needs, or when
    `out` cannot be written; nothing half-written is left.
    """
    settings = dict(settings or {}) | ({} if params is None else {"geometric": params})
    spec = load_spec(spec) if isinstance(spec, (str, Path)) else spec
    plan = make_plan(reference, source, metrics, spec=spec, settings=settings, batch_n=batch_n)
    folder = open_folder(out) if out is not None else None
    scores = plan.score(source, frames_to=folder if frames else None, progress=progress)
    notes = [*source.notes, *(str(f) for f in source.findings if f.severity != "info")]
    notes += accounts(scores.columns["mended"], info=False)
    scores = dataclasses.replace(scores, notes=(*notes, *scores.notes))
    if folder is not None:
        _write(folder, scores, _about(scores, plan, about or {}))
    return scores


# ------------------------------------------------------------------------------------------------- printed tables


def table(scores: Scores) -> str:
    """What was found, by group, as text: Q and the relation that broke most often, stages, means of all else."""
    c = scores.columns
    blocks = [quality_table(scores)] if "worst_pair" in c else []
    blocks += [stages_table(c)] if "cause" in c else []
    if (shown := _shown(scores)) or not blocks:
        blocks.append(means_table(scores, shown))
    return "\n\n".join(blocks)


def quality_table(scores: Scores) -> str:
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
        counts = (
            f"{q[scored].mean():9.3f}{q[scored].min():8.3f}{q[scored].max():8.3f}"
            if scored.any()
            else f"{'-':>9}{'-':>8}{'-':>8}"
        )
        broke = [p for p in pair[scored] if p is not None]
        worst = max(dict.fromkeys(broke), key=broke.count) if broke else "-"
        closed = int((gate[mine] == False).sum())  # noqa: E712  (None means not scored)
        lines.append(
            f"{name or '-':24}{mine.sum():>9}{counts}{closed:>13}{int(mine.sum() - scored.sum()):>12}  {worst}"
        )
    return "\n".join(lines)


def _shown(scores: Scores) -> dict[str, str]:
    """Columns of the table of means with their titles: those that their metric gives a short one."""
    return {name: column.short for name, column in scores.described.items() if column.short}


def means_table(scores: Scores, shown: dict[str, str]) -> str:
    """Means by group of columns with their titles, as text; "-" where none is known."""
    c, group = scores.columns, np.asarray(scores.columns["group"], object)
    widths = [len(title) + 2 for title in shown.values()]
    titles = "".join(f"{title:>{width}}" for title, width in zip(shown.values(), widths, strict=True))
    lines = [f"{'group':24}{'episodes':>9}{titles}"]
    for name in dict.fromkeys(group):
        mine = np.flatnonzero(group == name)
        cells = []
        for column, width in zip(shown, widths, strict=True):
            values = [v for i in mine if (v := c[column][i]) is not None]
            cells.append(f"{np.mean(values):{width}.3f}" if values else f"{'-':>{width}}")
        lines.append(f"{name or '-':24}{len(mine):>9}" + "".join(cells))
    return "\n".join(lines)


def columns_table(chosen: Sequence[str] | None) -> str:
    """What every column of `scores.parquet` holds, of the metrics chosen (None: of all), as text."""
    names = list(all_metrics()) if chosen is None or list(chosen) == ["all"] else list(chosen)
    rows = [("column", "type", "unit", "better", "meaning")]
    for c in (*OWN, *(c for name in names for c in metric_named(name).columns)):
        rows.append((c.name, c.kind, c.unit, c.direction or "", c.meaning))
    widths = [max(len(r[i]) for r in rows) for i in range(4)]
    return "\n".join("  ".join(f"{x:{w}}" for x, w in zip(r, widths, strict=False)) + f"  {r[4]}" for r in rows)


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

    kinds = {
        "number": pa.float64(), "count": pa.int64(), "truth": pa.bool_(), "text": pa.string(), "status": pa.string(),
        "vector": pa.list_(pa.float64()),
    }  # fmt: skip
    texts = pa.list_(pa.string())
    fixed = {"findings": texts, "mended": texts, "length": pa.int32(), "worst_frame": pa.int32()}
    own = {c.name: c for c in OWN}

    def array(name: str, values: list[Any]) -> Any:
        column = scores.described.get(name) or own.get(name)
        if name in fixed or column is not None:
            return pa.array(values, fixed.get(name) or kinds[column.kind])  # type: ignore[union-attr]
        known = {type(v) for v in values} - {type(None)}  # an attribute of the recording
        plain = {frozenset((str,)): pa.string(), frozenset((bool,)): pa.bool_(), frozenset((int,)): pa.int64()}
        return pa.array(values, plain.get(frozenset(known), pa.float64()))

    with replacing(folder / SCORES) as unfinished:
        pq.write_table(pa.table({k: array(k, v) for k, v in scores.columns.items()}), unfinished, compression="zstd")
    write_text(folder / ABOUT, json.dumps(about, indent=1) + "\n")


def _about(scores: Scores, plan: ScorePlan, about: dict[str, Any]) -> dict[str, Any]:
    """What `score.json` says: the metrics and how they were set, what the columns are, and what was noticed."""
    record: dict[str, Any] = {"metrics": list(scores.metrics), "task": plan.task}
    set_as = {metric.name: _plain(params) for metric, params in zip(plan.metrics, plan.params, strict=True)}
    reference = plan.reference
    if reference is not None:
        record |= {
            "params": set_as.get("geometric") or _plain(metric_named("geometric").Params()),
            "pairs": [p.name for p in reference.pairs],
            "sub_tasks": [s.name for s in reference.spec.sub_tasks],
            "bins_n": reference.bins_n,
            "reference_hash": reference_hash(reference),
        }
    sections = {c.name: m.section for m in plan.metrics for c in m.columns}
    return record | {
        "settings": {name: values for name, values in set_as.items() if name != "geometric"},
        "columns": {
            name: {
                "kind": c.kind, "unit": c.unit, "direction": c.direction, "meaning": c.meaning,
                "section": sections.get(c.name, ""), "title": c.short or name,
            }
            for name, c in scores.described.items()
        },
        "skipped_pairs": list(scores.skipped_pairs),
        "notes": list(scores.notes),
        "refused": [list(r) for r in scores.refused],
        **about,
    }  # fmt: skip


def _plain(params: Any) -> dict[str, Any]:
    """Fields of a frozen dataclass as JSON has them."""
    values = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    return {k: v if v is None or isinstance(v, (str, bool, int, tuple)) else float(v) for k, v in values.items()}
