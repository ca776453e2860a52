"""A scored set as the report needs it: the one reader of what `jaxeval score` wrote; frames are streamed once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.cleaning import accounts
from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.records.columns import OWN, meaning_of
from jaxeval.io.reference import reference_hash
from jaxeval.metrics.registry import all_metrics
from jaxeval.types import Reference

SCORES, FRAME_COSTS, ABOUT = "scores.parquet", "frame_costs.parquet", "score.json"
TEXT, NUMBERS = ("episode", "group", "status"), ("Q",)
Q_TEXT = ("gate_reason", "worst_sub_task", "worst_pair", "worst_direction")
Q_NUMBERS = ("gate_free_Q", "worst_frame", "worst_z")
"""Columns that only a scoring of Q leaves behind."""


@dataclass(frozen=True)
class About:
    """What is known about a column of scores: kind, unit, direction and meaning as the registry has them.

    ``section``: where its metric wants it told, "" for a column that no metric owns.
    """

    kind: str
    unit: str
    direction: str | None
    meaning: str
    section: str


@dataclass(frozen=True)
class Scored:
    """Scores of a set of executions, one entry an execution; NaN and "" where there is nothing to say.

    ``has_q``: Q was scored; without it every Q is NaN. ``valid``: the execution could be judged; ``closed``: it was,
    and its terminal gate closed. ``groups`` are in natural order ("tilt 5" before "tilt 10"); ``group`` is an index
    into them. ``told`` is `score.json`. ``columns``: what is known about those of `table` that were described when they
    were scored, or are described by a metric that is installed here; the rest is left out.
    """

    folder: Path
    record: dict[str, Any]
    has_q: bool
    text: dict[str, list[str]]
    number: dict[str, np.ndarray]
    valid: np.ndarray
    closed: np.ndarray
    groups: tuple[str, ...]
    group: np.ndarray
    ends_s: np.ndarray  # [episodes, P], NaN where a sub-task was never reached; P is 0 without Q or reference
    findings: dict[str, int]
    mended: list[str]  # a line a kind of change
    table: Any  # pyarrow.Table, all of scores.parquet
    columns: dict[str, About]

    @property
    def n(self) -> int:
        """Number of executions."""
        return len(self.valid)

    @property
    def q(self) -> np.ndarray:
        """Q of every execution."""
        return self.number["Q"]

    def floats(self, column: str) -> np.ndarray:
        """A column as float64, NaN where it is null."""
        return floats_of(self.table[column])

    def texts(self, column: str) -> list[str]:
        """A column as text, empty where it is null."""
        return texts_of(self.table[column])

    def values(self, column: str) -> list[Any]:
        """A column as it was written, None where it is null."""
        return self.table[column].to_pylist()

    def of_section(self, section: str) -> dict[str, About]:
        """Columns that metrics want told in that section, in their order."""
        return {name: about for name, about in self.columns.items() if about.section == section}

    @property
    def sections(self) -> tuple[str, ...]:
        """Names of all sections that columns are there of."""
        return tuple(dict.fromkeys(about.section for about in self.columns.values() if about.section))

    def rows_of(self, group: int) -> np.ndarray:
        """Judged executions of a group."""
        return np.flatnonzero((self.group == group) & self.valid)


@dataclass(frozen=True)
class Track:
    """Frame costs of one execution: frames, seconds, progress bins and cost of every pair [J, F]."""

    frame: np.ndarray
    t_s: np.ndarray
    progress_bin: np.ndarray
    cost: np.ndarray


@dataclass(frozen=True)
class Frames:
    """What is kept of `frame_costs.parquet`.

    ``mean_cost`` [groups, J, L]: mean over a group's judged executions of their mean cost in each progress bin, NaN
    where none has a frame; ``tracks`` and ``time_s`` for the executions asked for, by row.
    """

    mean_cost: np.ndarray
    tracks: dict[int, Track]
    time_s: dict[int, float]


def read_scored(folder: Path, reference: Reference | None) -> Scored:
    """Scores in a folder. InputError when they are missing, cannot be read, or were made with another reference."""
    folder = Path(folder)
    record = _read_record(folder / ABOUT)
    has_q = "geometric" in record.get("metrics", ("geometric",))
    if reference is not None:
        _check_same(folder / ABOUT, record, reference)
    ends = [f"sub_task_end_s.{s.name}" for s in reference.spec.sub_tasks] if has_q and reference is not None else []
    texts, numbers = TEXT + Q_TEXT * has_q, NUMBERS + Q_NUMBERS * has_q
    table = _read_table(folder / SCORES, [*texts, *numbers, "valid", "gate", *ends])
    n = table.num_rows
    if n == 0:
        raise InputError(f"{folder / SCORES}: it holds no execution; expected at least one; score some episodes")
    text = {name: texts_of(table[name]) for name in texts}
    number = {name: floats_of(table[name]) for name in numbers}
    valid = np.array([bool(x) for x in table["valid"].to_pylist()])
    if has_q:
        valid &= np.isfinite(number["Q"])
    closed = np.array([x is False for x in table["gate"].to_pylist()]) & valid
    text["group"] = [g or "all" for g in text["group"]]
    groups = tuple(sorted(set(text["group"]), key=natural))
    place = {g: i for i, g in enumerate(groups)}
    findings: dict[str, int] = {}
    if "findings" in table.column_names:
        for codes in table["findings"].to_pylist():
            for code in codes or ():
                findings[code] = findings.get(code, 0) + 1
    return Scored(
        folder=folder,
        record=record,
        has_q=has_q,
        text=text,
        number=number,
        valid=valid,
        closed=closed,
        groups=groups,
        group=np.array([place[g] for g in text["group"]]),
        ends_s=np.stack([floats_of(table[name]) for name in ends], axis=1) if ends else np.zeros((n, 0)),
        findings=findings,
        mended=accounts(table["mended"].to_pylist()) if "mended" in table.column_names else [],
        table=table,
        columns=_described(table.column_names, record.get("columns", {})),
    )


def _described(names: list[str], record: dict[str, Any]) -> dict[str, About]:
    """What is known about columns: as `score.json` keeps it, else as the registry has it."""
    sections = {c.name: metric.section for metric in all_metrics().values() for c in metric.columns}
    sections |= {c.name: "" for c in OWN}  # a recording has these too
    out: dict[str, About] = {}
    for name in names:
        if (known := record.get(name)) is not None:
            out[name] = About(*(known[k] for k in ("kind", "unit", "direction", "meaning", "section")))
        elif (column := meaning_of(name)) is not None:
            section = sections.get(column.name, "")
            out[name] = About(column.kind, column.unit, column.direction, column.meaning, section)
    return out


def _check_same(path: Path, record: dict[str, Any], reference: Reference) -> None:
    """InputError unless the scores were made with a reference like this one."""
    if "metrics" in record and "pairs" not in record:
        raise InputError(
            f"{path}: these scores were made without a reference, found reference=PATH; "
            "leave it out, or score again with it"
        )
    for key, mine in (
        ("task", reference.spec.name),
        ("pairs", [p.name for p in reference.pairs]),
        ("sub_tasks", [s.name for s in reference.spec.sub_tasks]),
        ("bins_n", reference.bins_n),
    ):
        if record.get(key) != mine:
            raise InputError(
                f"{path}: {key} is {record.get(key)}; expected {mine} as in the reference; "
                "give the reference that these scores were made with"
            )
    made_with = record.get("reference_hash")
    if made_with is not None and made_with != (mine := reference_hash(reference)):
        named = f" ({record['reference']})" if isinstance(record.get("reference"), str) else ""
        raise InputError(
            f"{path}: reference_hash is {str(made_with)[:12]}...; expected {mine[:12]}... as of the reference given, "
            f"another of the same task; give the reference that these scores were made with{named}, or score again"
        )


def read_frames(scored: Scored, reference: Reference, *, tracks: list[int], times: list[int]) -> Frames | None:
    """Frame costs of a scored set, streamed; None when they were not written. InputError when they cannot be read."""
    import pyarrow.parquet as pq

    path = scored.folder / FRAME_COSTS
    if not path.is_file():
        return None
    J, L = len(reference.pairs), reference.nominal.shape[1]
    total = np.zeros((len(scored.groups), J, L))
    count = np.zeros((len(scored.groups), 1, L))
    kept: dict[int, Track] = {}
    time_s: dict[int, float] = {}
    asked, timed = np.array(sorted(tracks), int), np.array(sorted(times), int)
    try:
        with pq.ParquetFile(path) as file:
            for episode, frame, t_s, progress_bin, cost in _whole_episodes(file, [p.name for p in reference.pairs]):
                if episode.max() >= scored.n or progress_bin.max() >= L:
                    raise InputError(
                        f"{path}: it names executions or progress bins that {SCORES} does not have; "
                        "expected the files of one run; score again"
                    )
                _add_bins(total, count, np.where(scored.valid, scored.group, -1)[episode], episode, progress_bin, cost)
                for row in np.intersect1d(episode, asked):
                    at = episode == row
                    kept[int(row)] = Track(frame[at], t_s[at], progress_bin[at], cost[:, at])
                hit = np.isin(episode, timed) & (frame == scored.number["worst_frame"][episode])
                time_s |= {int(e): float(t) for e, t in zip(episode[hit], t_s[hit], strict=True)}
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: cannot be read ({first_line(error)}); expected what `jaxeval score` writes; score again"
        ) from error
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    skipped = [j for j, p in enumerate(reference.pairs) if p.name in scored.record.get("skipped_pairs", ())]
    mean[:, skipped] = np.nan
    return Frames(mean, kept, time_s)


def natural(text: str) -> list[tuple[int, float, str]]:
    """Sort key that puts "tilt 5 deg" before "tilt 10 deg"."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(0, float(p), "") if i % 2 else (1, 0.0, p.lower()) for i, p in enumerate(parts)]


def _whole_episodes(file: Any, pairs: list[str]) -> Iterator[tuple[np.ndarray, ...]]:
    """(episode, frame, t_s, progress_bin, cost [J, F]) of a few episodes at a time, never part of one."""
    names = ["episode", "frame", "t_s", "progress_bin", *(f"cost.{p}" for p in pairs)]
    rest: list[np.ndarray] | None = None
    for batch in file.iter_batches(batch_size=262_144, columns=names):
        now = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
        if rest is not None:
            now = [np.concatenate(x) for x in zip(rest, now, strict=True)]
        if len(now[0]) == 0:
            continue
        cut = int(np.flatnonzero(now[0] != now[0][-1]).max(initial=-1)) + 1  # the last episode may not be over
        rest = [x[cut:] for x in now]
        if cut:
            yield (*(x[:cut] for x in now[:4]), np.stack([x[:cut] for x in now[4:]]).astype(float))
    if rest is not None:
        yield (*rest[:4], np.stack(rest[4:]).astype(float))


def _add_bins(
    total: np.ndarray,
    count: np.ndarray,
    group: np.ndarray,
    episode: np.ndarray,
    progress_bin: np.ndarray,
    cost: np.ndarray,
) -> None:
    """Add each execution's mean cost of every progress bin to its group's sums (in place)."""
    starts = np.flatnonzero(np.diff(episode, prepend=-1) | np.diff(progress_bin, prepend=-1))
    length = np.diff(starts, append=len(episode))
    mean = np.add.reduceat(cost, starts, axis=1) / length  # [J, runs]; a bin's frames stand together
    g, l = group[starts], progress_bin[starts]
    keep = g >= 0
    for j in range(cost.shape[0]):
        np.add.at(total[:, j], (g[keep], l[keep]), mean[j, keep])
    np.add.at(count[:, 0], (g[keep], l[keep]), 1)


def _read_record(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the folder that `jaxeval score` wrote; check scores=DIR")
    refuse_lfs_pointer(path)
    try:
        record = json.loads(path.read_text("utf-8"))
        if not isinstance(record, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise InputError(
            f"{path}: cannot be read ({first_line(error)}); expected JSON of `jaxeval score`; score again"
        ) from error
    return record


def _read_table(path: Path, names: list[str]) -> Any:
    """`scores.parquet`, which must have these columns. InputError when it cannot be read."""
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the folder that `jaxeval score` wrote; check scores=DIR")
    refuse_lfs_pointer(path)
    try:
        with pq.ParquetFile(path) as file:
            if missing := [x for x in names if x not in file.schema_arrow.names]:
                raise InputError(f"{path}: no column {missing[0]}; expected what `jaxeval score` writes; score again")
            return file.read()
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: cannot be read ({first_line(error)}); expected a whole parquet file; score again"
        ) from error


def floats_of(column: Any) -> np.ndarray:
    """A column as float64, NaN where it is null."""
    return np.array([np.nan if x is None else float(x) for x in column.to_pylist()])


def texts_of(column: Any) -> list[str]:
    """A column as text, empty where it is null."""
    return ["" if x is None else str(x) for x in column.to_pylist()]


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
