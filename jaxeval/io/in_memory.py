"""Episodes from memory or from a plain table: a list of episodes as a source, arrays or columns as episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.source import Loaded, Source, open_source
from jaxeval.types import Episode, InputError

POSE = ("qw", "qx", "qy", "qz", "x", "y", "z")
"""Endings of the seven columns of a body's pose T_world_body: unit quaternion, then metres."""
FIELDS = {
    "episode": "episode_id", "time_s": "time_s", "gripper_width_m": "gripper_width_m", "group": "group",
    "seed": "seed", "speed": "speed", "success_once": "success_once", "success_at_end": "success_at_end",
}  # fmt: skip
"""What a column may be beside a body's pose or an attribute, and the field of Episode that it fills."""


def source_of(episodes: Any, *, task: str = "") -> Source:
    """A source of anything that holds episodes: a source, a store, a path or several, an episode or several.

    ``task`` names the task of episodes in memory that name none. InputError where it is none of these.
    """
    if isinstance(episodes, Source):
        return episodes
    if isinstance(episodes, (str, Path)):
        return open_source(episodes)
    if hasattr(episodes, "iter_episodes"):
        return Source([episodes], [])
    some = [episodes] if isinstance(episodes, Episode) else list(episodes) if isinstance(episodes, Sequence) else None
    if some and all(isinstance(e, (str, Path)) for e in some):
        return open_source(some)  # type: ignore[arg-type]
    if some and all(isinstance(e, Episode) for e in some):
        named = [
            dataclasses.replace(e, task=e.task or task, episode_id=e.episode_id or str(k)) for k, e in enumerate(some)
        ]
        return Source([Loaded(Path("episodes in memory"), named, [])], [])
    found = (
        f"a {type(episodes).__name__}" if some is None else "an empty list" if not some else "a list of other things"
    )
    raise InputError(
        f"episodes: found {found}, expected a path, a store, a source or a list of episodes; give one of these"
    )


def episode(
    poses: np.ndarray | Mapping[str, np.ndarray],
    time_s: np.ndarray | Sequence[float],
    bodies: Sequence[str] | None = None,
    **fields: Any,
) -> Episode:
    """One episode of arrays: poses [T, N, 7] of ``bodies``, or {body: [T, 7]}; T_world_body, wxyz_xyz, metres.

    ``time_s`` [T]. ``fields`` are Episode's: task, episode_id, gripper_width_m, joints, joint_names, success_at_end,
    valid, attributes ... InputError where shapes do not fit. A pose that is not finite counts as not seen.

    >>> e = episode({"cube": np.tile([1, 0, 0, 0, 0.5, 0, 0.02], (3, 1))}, [0.0, 0.1, 0.2], task="push")
    >>> e.bodies, e.n_frames
    (('cube',), 3)
    """
    if isinstance(poses, Mapping):
        names, tracks = tuple(poses), [np.asarray(p, np.float64) for p in poses.values()]
        shapes = {name: p.shape for name, p in zip(names, tracks, strict=True)}
        if len(set(shapes.values())) != 1 or any(len(s) != 2 or s[1] != 7 for s in shapes.values()):
            given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "no body"
            raise InputError(f"poses: found {given}, expected [T, 7] of every body (wxyz_xyz); correct the arrays")
        array, named = np.stack(tracks, axis=1), names
    else:
        array, named = np.asarray(poses, np.float64), tuple(bodies or ())
        if array.ndim != 3 or array.shape[1:] != (len(named), 7):
            raise InputError(
                f"poses: found shape {list(array.shape)}, expected [T, {len(named)}, 7] of the bodies "
                f"{', '.join(named) or '(none named)'}; name the bodies with bodies=[...] or correct the array",
                code="shape",
                key="poses",
            )
    times = np.asarray(time_s, np.float64)
    if times.shape != array.shape[:1]:
        raise InputError(f"time_s: found shape {list(times.shape)}, expected [{len(array)}]; give a stamp a frame")
    return Episode.of(poses=array, time_s=times, bodies=named, **fields)


def episodes_from_table(
    table: Any, columns: Mapping[str, str | Sequence[str]] | None = None, *, task: str = ""
) -> list[Episode]:
    """Episodes of a table with a row a frame: a data frame, columns by name, or the path of a CSV, parquet or npz file.

    ``columns`` says what stands where, {what: column}: ``time_s`` (needed), ``episode``, ``gripper_width_m``,
    ``group``, ``seed``, ``speed``, ``success_once``, ``success_at_end``; a body's name: its seven columns, wxyz_xyz in
    metres, or a pattern ``cube_*`` that stands for cube_qw, cube_qx, cube_qy, cube_qz, cube_x, cube_y, cube_z, or in an
    npz file one array [T, 7]; any other name with one column becomes an attribute. Without ``columns`` those of these
    names are taken, and as bodies all that have the seven columns of a pattern. Rows of an episode keep their order.

    Raises:
        InputError: a column is missing, no time or body is found, or what is told of an episode changes within it.
    """
    found, where = _table(table)
    columns = dict(columns or _standing(found))
    if "time_s" not in columns:
        raise InputError(
            f"{where}: no column for time_s among {', '.join(found)}, expected seconds a frame; name it with columns=",
            key="time_s",
        )

    def of(column: str) -> np.ndarray:
        if column not in found:
            raise InputError(f"{where}: no column '{column}', found {', '.join(found)}; correct columns", key=column)
        return np.asarray(found[column])

    poses: dict[str, np.ndarray] = {}
    facts: dict[str, np.ndarray] = {}
    for what, column in columns.items():
        if not isinstance(column, str):
            names = list(column)
        elif column.endswith("*"):
            names = [column[:-1] + end for end in POSE]
        elif what not in FIELDS and of(column).ndim == 2:
            poses[what] = np.asarray(of(column), np.float64)
            continue
        else:
            facts[what] = of(column)
            continue
        if len(names) != 7:
            raise InputError(
                f"{where}: {len(names)} columns of the body '{what}', expected 7 ({', '.join(POSE)}); correct columns",
                key=what,
            )
        poses[what] = np.stack([np.asarray(of(n), np.float64) for n in names], axis=1)
    if not poses:
        raise InputError(
            f"{where}: no body's pose among {', '.join(found)}, expected seven columns a body such as "
            f"{', '.join('cube_' + end for end in POSE)}; name them with columns=, e.g. columns={{'cube': 'cube_*'}}"
        )
    rows_n = len(facts["time_s"])
    ids = [str(x) for x in facts["episode"]] if "episode" in facts else [where] * rows_n
    out = []
    for name in dict.fromkeys(ids):
        at = np.flatnonzero(np.array([i == name for i in ids]))
        fields: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        for what, values in facts.items():
            if what in ("episode", "time_s"):
                continue
            if what == "gripper_width_m":
                fields[what] = np.asarray(values[at], np.float64)
            elif (value := _constant(values[at], f"{where}: {what} of episode {name}")) is not None:
                (fields if what in FIELDS else attributes)[what] = _as_field(what, value)
        mine = {body: track[at] for body, track in poses.items()}
        times = np.asarray(facts["time_s"][at], np.float64)
        out.append(episode(mine, times, task=task, episode_id=name, attributes=attributes, source=where, **fields))
    return out


def _as_field(what: str, value: Any) -> Any:
    if what.startswith("success"):
        return bool(value)
    return (
        int(value) if what == "seed" else float(value) if what == "speed" else str(value) if what == "group" else value
    )


def _constant(values: np.ndarray, where: str) -> Any:
    """The one value of a column within an episode, None where it is null throughout."""
    known = [v for v in values.tolist() if v is not None and v == v]
    if len(set(known)) > 1:
        other = next(v for v in known if v != known[0])
        raise InputError(
            f"{where} is {known[0]!r} and {other!r}, expected one value an episode; "
            "take that column out of columns, or name the one that tells episodes apart"
        )
    return known[0] if known else None


def _standing(found: Mapping[str, Any]) -> dict[str, str]:
    """Columns by the names that they have when nobody says otherwise."""
    named: dict[str, str] = {name: name for name in FIELDS if name in found}
    if "time_s" not in named and "t_s" in found:
        named["time_s"] = "t_s"
    prefixes = [name.removesuffix("qw") for name in found if name.endswith("qw")]
    bodies = [p for p in prefixes if p and all(p + end in found for end in POSE)]
    return named | {p.rstrip("_.-/ ") or p: f"{p}*" for p in bodies}


def _table(table: Any) -> tuple[dict[str, Any], str]:
    """(columns by name, what to call the table in messages)."""
    if isinstance(table, (str, Path)):
        path = Path(table).expanduser()
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; check the path")
        try:
            if path.suffix == ".npz":
                with np.load(path) as arrays:
                    return {name: arrays[name] for name in arrays.files}, str(path)
            if path.suffix == ".parquet":
                import pyarrow.parquet as pq

                return _plain(pq.read_table(path).to_pydict()), str(path)
            if path.suffix == ".csv":
                from pyarrow import csv

                return _plain(csv.read_csv(path).to_pydict()), str(path)
        except Exception as error:
            raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]}); write it again") from error
        raise InputError(f"{path}: expected a .csv, .parquet or .npz table; `open_source` reads other formats")
    if isinstance(table, Mapping):
        return dict(table), "table"
    for name, given in (("to_pydict", {}), ("to_dict", {"orient": "list"})):  # pyarrow; pandas
        if callable(read := getattr(table, name, None)):
            return _plain(read(**given)), "table"
    raise InputError(f"table: found a {type(table).__name__}, expected a data frame, columns by name, or a path")


def _plain(columns: Any) -> dict[str, np.ndarray]:
    """Columns as arrays: numbers with NaN for nulls, else objects."""
    out: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        kinds = {type(v) for v in values} - {type(None)}
        numbers = bool(kinds) and kinds <= {int, float}
        out[name] = (
            np.array(values, float) if numbers and kinds != {int} else np.array(values, None if numbers else object)
        )
    return out
