"""`jaxeval gather`: the runs of a multirun as one table, and one figure of what the swept settings did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.files import replacing
from jaxeval.io.store import open_store
from jaxeval.report.gathered import draw
from jaxeval.report.tables import plain_text, write_csv
from jaxeval.stats.proportions import wilson
from jaxeval.stats.values import mean_of

SWEPT, SCORES = "sweep.json", "scores.parquet"
ALL = "all"
"""The group that holds all episodes of a run."""
CONDITIONS = ("speed", "told_speed")
"""What episodes of one run may differ in besides their group; a column where they do."""


@dataclass(frozen=True)
class Gathered:
    """``rows``: one a run and group, what was swept as columns; ``unfinished``: folders of runs that left nothing."""

    value: str
    swept: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    unfinished: tuple[str, ...]
    table: Path
    figure: Path | None


def gather(folder: str | Path, *, value: str | None = None) -> Gathered:
    """One table of the runs under ``folder``, written there as gathered.parquet and gathered.csv; gathered.png.

    Every row has the settings that were swept, ``run``, ``group`` (``speed``, ``told_speed`` where episodes differ in
    it; empty in the row of all episodes of a run), ``n`` (episodes), ``known`` (those with a value) and
    ``mean``, ``low``, ``high`` of ``value``: a rate with Wilson's interval where values are true or false, else a mean
    with Student's. ``value``: a column of scores.parquet or of a store's episodes; None: Q where there is one, else
    success at the end. The figure is a curve over the speeds, where
    there are several, else over one swept setting, and a heat map over two.

    Raises:
        InputError: no finished run lies there, runs are of several verbs, or none has such numbers.
    """
    folder = Path(folder)
    found = sorted(folder.rglob(SWEPT)) if folder.is_dir() else []
    if not found:
        raise InputError(
            f"{folder}: no {SWEPT} in it or below, which every finished run of a multirun leaves; expected the out= of "
            "`jaxeval score -m ...` or `jaxeval rollout -m ...`; name that folder"
        )
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in found]
    verbs = sorted({note["verb"] for note in notes})
    if len(verbs) > 1 or verbs[0] not in ("score", "rollout"):
        raise InputError(f"{folder}: runs of {', '.join(verbs)}; expected those of score, or those of rollout, alone")
    keys = list(dict.fromkeys(key for note in notes for key in note["swept"]))
    names = _names(keys)
    columns = [_columns(path.parent, verbs[0]) for path in found]
    value = value or ("Q" if all("Q" in c for c in columns) else "success_at_end")
    varying = [name for name in CONDITIONS if len({x for c in columns for x in _condition(c, name)}) > 1]
    rows: list[dict[str, Any]] = []
    for path, note, table in zip(found, notes, columns, strict=True):
        if value not in table:
            there = ", ".join(sorted(n for n in table if _is_number(table[n])))
            raise InputError(f"{path.parent}: no column '{value}'; expected one of {there}; choose one with value=")
        settings = {names[key]: note["swept"].get(key) for key in keys}
        run = str(path.parent.relative_to(folder))
        rows += [settings | {"run": run} | row for row in _rows(table, value, varying, str(path.parent))]
    unfinished = _unfinished(folder, {path.parent for path in found})
    figure = draw(rows, tuple(names.values()), value, folder / "gathered.png")
    write_csv(folder / "gathered.csv", rows)
    return Gathered(value, tuple(names.values()), tuple(rows), tuple(unfinished), _parquet(folder, rows), figure)


def text(gathered: Gathered) -> str:
    """The printed table, and what is left out of it."""
    lines = [plain_text([{k: v for k, v in row.items() if k != "run"} for row in gathered.rows])]
    if gathered.unfinished:
        lines.append(f"left out, not finished ({len(gathered.unfinished)}): {', '.join(gathered.unfinished)}")
    if gathered.figure is None:
        lines.append(f"no figure: {len(gathered.swept)} settings were swept; one gives a curve, two a heat map")
    else:
        lines.append(f"figure: {gathered.figure}")
    return "\n".join(lines)


def _names(keys: Sequence[str]) -> dict[str, str]:
    """Column names of swept keys: their last part, or the whole where that is another's or a column's of its own."""
    last = [key.rpartition(".")[2] for key in keys]
    own = {"run", "group", *CONDITIONS, "n", "known", "mean", "low", "high"}
    return {k: k if last.count(name) > 1 or name in own else name for k, name in zip(keys, last, strict=True)}


def _columns(run: Path, verb: str) -> dict[str, list[Any]]:
    """Of a run's episodes."""
    import pyarrow.parquet as pq

    try:
        if verb == "rollout":
            return open_store(run).episodes.to_pydict()
        return pq.read_table(run / SCORES).to_pydict()
    except OSError as error:
        raise InputError(f"{run / SCORES}: cannot be read ({error}); run this part of the sweep again") from error


def _is_number(values: Sequence[Any]) -> bool:
    known = [v for v in values if v is not None]
    return bool(known) and all(isinstance(v, bool | int | float) for v in known)


def _condition(table: Mapping[str, Sequence[Any]], name: str) -> Sequence[Any]:
    """A condition of every episode, as a column of its own or as an attribute; none where neither is there."""
    return table.get(name) or table.get(f"attribute.{name}") or ()


def _rows(table: Mapping[str, Sequence[Any]], value: str, varying: Sequence[str], where: str) -> list[dict[str, Any]]:
    """A row for all episodes of a run, and one for each group and condition that varies, where there are several."""
    n = len(table[value])
    groups = [str(g) if g not in (None, "") else ALL for g in table.get("group") or [None] * n]
    conditions = [_condition(table, name) or [None] * n for name in varying]
    keys = list(zip(groups, *conditions, strict=True))
    rows = [{"group": ALL, **dict.fromkeys(varying), **_measured(table[value], value, where)}]
    if len(set(keys)) > 1:
        for key in dict.fromkeys(keys):
            of = [v for v, k in zip(table[value], keys, strict=True) if k == key]
            name, *at = key
            rows.append({"group": name, **dict(zip(varying, at, strict=True)), **_measured(of, value, where)})
    return rows


def _unfinished(folder: Path, done: set[Path]) -> list[str]:
    """Folders beside finished runs, or beside those that hold them, that hold none."""
    above = {folder, *(p.parent for p in done)}
    below = sorted(p for a in above for p in a.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [str(p.relative_to(folder)) for p in below if not any(d == p or p in d.parents for d in done)]


def _measured(values: Sequence[Any], value: str, where: str) -> dict[str, Any]:
    """Episodes, those with a value, and the rate or mean with its 95 % interval (None where there is none)."""
    known = [v for v in values if v is not None and v == v]
    if not _is_number(known):
        if known:
            raise InputError(f"{where}: {value} holds {known[0]!r}; expected numbers or truths; choose another value=")
        return {"n": len(values), "known": 0, "mean": None, "low": None, "high": None}
    if all(isinstance(v, bool) for v in known):
        made: Any = wilson(sum(known), len(known))
    else:
        with jax.enable_x64(True):
            made = mean_of(np.asarray(known, float), np.ones(len(known), bool))
    numbers = {key: float(x) for key, x in (("mean", made.value), ("low", made.low), ("high", made.high))}
    finite = {key: x if np.isfinite(x) else None for key, x in numbers.items()}
    return {"n": len(values), "known": len(known), **finite}


def _parquet(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in names}
    for name, column in columns.items():
        kinds = {type(v) for v in column if v is not None}
        if len(kinds) > 1:  # a swept setting that is a number here and a word there
            columns[name] = [float(v) if kinds <= {int, float} and v is not None else v for v in column]
            if not kinds <= {int, float}:
                columns[name] = [None if v is None else str(v) for v in column]
    path = folder / "gathered.parquet"
    with replacing(path) as part:
        pq.write_table(pa.table(columns), part)
    return path
