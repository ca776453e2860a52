"""Writing episodes as a LeRobot v3.0 data set, with pyarrow alone, and saying what the format cannot hold.

LeRobot frames are at k / fps. An episode whose time stamps lie on that grid is copied, with the frames that it lacks
marked in ``observation.valid``; any other is resampled, and the finding says how far the result is from the recording.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxeval.io.errors import InputError
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.hdf5 import rate_hz
from jaxeval.io.readers.lerobot_names import AXES, POSE, VALID
from jaxeval.io.store.write import atomic_folder
from jaxeval.io.writers.grid import gridded
from jaxeval.types import Episode, Finding

ROUNDED_M = 1e-9
"""Smaller rounding than this is not worth a finding."""
QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
XYZW_LAST = [4, 5, 6, 1, 2, 3, 0]
"""Columns of a wxyz_xyz pose in the order of `AXES`."""

WRITE_FINDINGS: dict[str, tuple[str, str]] = {
    "resampled": ("warning", "time stamps are not at k / fps: frames are interpolated onto that grid"),
    "frames_missing": (
        "info",
        "invalid or missing frames: they repeat a valid one, observation.valid is false",
    ),
    "rounded": ("info", "poses are kept in float32"),
    "not_written": ("info", "what the format has no place for is left out"),
    "partly_known": ("warning", "something is known for some episodes only: it is left out for all"),
    "success_time_lost": ("warning", "success was reached and lost again: the flag at the end alone is kept"),
}
"""Findings of `write_lerobot`: code -> (severity, meaning)."""


def write_lerobot(
    path: str | Path,
    episodes: Sequence[Episode],
    *,
    fps: float | None = None,
    robot_type: str = "unknown",
    task: str | None = None,
    overwrite: bool = False,
) -> list[Finding]:
    """Write a data set at `path`, all or nothing, and return a finding for everything that is lost or changed.

    Without `fps` it is one over the median time step of all episodes. `task` replaces the episodes' own. Features are
    ``observation.pose.NAME`` (x, y, z, qx, qy, qz, qw; metres, world frame), ``observation.gripper_width``,
    ``observation.joints``, ``observation.valid`` (of the frame; where some body was lost in a frame, also
    ``observation.valid.NAME``), ``action`` (row t follows frame t, the last repeats the one before),
    ``next.success`` (at the last frame, written if every outcome is known), ``next.done``.

    Raises:
        InputError: `path` exists and is not to be overwritten, there is no episode, they hold different bodies, joints
            or actions, or an episode has fewer than two valid frames or time stamps that do not increase. Nothing is
            left behind.
    """
    path = Path(path)
    findings = FileFindings(path, WRITE_FINDINGS)
    if path.exists() and not overwrite:
        raise InputError(f"{path}: it exists already; choose another path, or pass overwrite=True")
    layout = _layout(path, episodes, findings)
    prepared = [_checked(path, e) for e in episodes]
    if any((e.frame_valid[:, None] & ~e.valid).any() for e in prepared):
        layout.features.update({f"{VALID}{b}": ("bool", None, 1) for b in layout.bodies})
    if fps is None:
        fps = _rate(prepared)
    elif rate_hz(fps) is None:
        raise InputError(f"{path}: fps is {fps!r}, expected a positive number; correct it")
    fps = float(round(fps)) if abs(fps - round(fps)) < 1e-3 * fps else float(fps)
    texts = [task or e.task or "unknown" for e in episodes]
    tasks = list(dict.fromkeys(texts))
    with atomic_folder(path, replace=overwrite) as folder:
        frames_n, rounded_m, statistics = 0, 0.0, []
        data = folder / "data" / "chunk-000" / "file-000.parquet"
        data.parent.mkdir(parents=True)
        with pq.ParquetWriter(data, layout.schema()) as writer:
            for number, (before, e) in enumerate(zip(episodes, prepared, strict=True)):
                columns = _columns(layout, before, e, fps, findings)
                n = len(columns["next.done"])
                columns |= {
                    "timestamp": (np.arange(n) / fps)[:, None],
                    "frame_index": np.arange(n)[:, None],
                    "episode_index": np.full((n, 1), number),
                    "index": frames_n + np.arange(n)[:, None],
                    "task_index": np.full((n, 1), tasks.index(texts[number])),
                }
                writer.write_table(layout.table(columns))
                rounded_m = max(rounded_m, *(_rounding_m(columns[f"{POSE}{body}"]) for body in layout.bodies))
                statistics.append({name: _statistics(values) for name, values in columns.items()})
                frames_n += n
        _write_meta(folder, layout, statistics, texts, tasks, fps, robot_type)
    if rounded_m > ROUNDED_M:
        findings.add("rounded", "positions in float64", "float32", f"off by up to {rounded_m:.1g} m")
    return findings.found


# ------------------------------------------------------------------------------------------------- the features


@dataclass(frozen=True)
class _Layout:
    """Features by name: (type, names of the entries or None, how many)."""

    bodies: tuple[str, ...]
    features: dict[str, tuple[str, list[str] | None, int]]

    def schema(self) -> pa.Schema:
        """Columns of the data file: a list of fixed size for several entries, a scalar for one."""
        types = {"float32": pa.float32(), "int64": pa.int64(), "bool": pa.bool_()}
        return pa.schema(
            [(f, types[kind] if n == 1 else pa.list_(types[kind], n)) for f, (kind, _, n) in self.features.items()]
        )

    def table(self, columns: dict[str, np.ndarray]) -> pa.Table:
        """Columns [T, n] as a table of this schema."""
        schema, arrays = self.schema(), []
        for name, (kind, _, n) in self.features.items():
            flat = pa.array(np.ascontiguousarray(columns[name]).astype(kind).ravel())
            arrays.append(flat if n == 1 else pa.FixedSizeListArray.from_arrays(flat, n))
        return pa.Table.from_arrays(arrays, schema=schema)

    def described(self) -> dict[str, Any]:
        """The features as ``info.json`` holds them."""
        return {f: {"dtype": kind, "shape": [n], "names": names} for f, (kind, names, n) in self.features.items()}


def _layout(path: Path, episodes: Sequence[Episode], findings: FileFindings) -> _Layout:
    if not episodes:
        raise InputError(f"{path}: there are no episodes to write, expected at least 1; check what was read before")
    first = episodes[0]
    if not first.bodies:
        raise InputError(f"{path}: the episodes hold no body, expected at least 1; give poses to them first")
    for e in episodes:
        if (e.bodies, e.joint_names) != (first.bodies, first.joint_names):
            raise InputError(
                f"{path}: {e.episode_id or 'an episode'} holds {', '.join((*e.bodies, *e.joint_names))}, expected "
                f"{', '.join((*first.bodies, *first.joint_names))} as the first; write one scene a data set"
            )
    if bad := [b for b in first.bodies if "/" in b]:
        raise InputError(f"{path}: body '{bad[0]}' has a slash, which LeRobot does not allow; rename it")
    features: dict[str, tuple[str, list[str] | None, int]] = {
        f"{POSE}{body}": ("float32", list(AXES), 7) for body in first.bodies
    }
    if _known(path, episodes, "gripper_width_m", findings):
        features["observation.gripper_width"] = ("float32", ["gripper_width"], 1)
    if joints_n := _known(path, episodes, "joints", findings):
        features["observation.joints"] = ("float32", list(first.joint_names) or None, joints_n)
    if actions_n := _known(path, episodes, "actions", findings):
        features["action"] = ("float32", None, actions_n)
    features["observation.valid"] = ("bool", None, 1)
    if _known(path, episodes, "success_at_end", findings):
        features["next.success"] = ("bool", None, 1)
    features["next.done"] = ("bool", None, 1)
    features["timestamp"] = ("float32", None, 1)
    features |= {name: ("int64", None, 1) for name in ("frame_index", "episode_index", "index", "task_index")}
    lost = {
        "sub-task labels": any(e.sub_task is not None for e in episodes),
        "half sizes": any(e.half_size_m is not None for e in episodes),
        "seeds": any(e.seed is not None for e in episodes),
        "initial-condition ids": any(e.initial_condition_id is not None for e in episodes),
        "groups": any(bool(e.group) for e in episodes),
        "speeds": any(e.speed is not None for e in episodes),
        "names of episodes": any(bool(e.episode_id) for e in episodes),
        "signals": any(bool(e.signals) for e in episodes),
    }
    if any(lost.values()):
        found = ", ".join(name for name, there in lost.items() if there)
        findings.add("not_written", found, "a place in the format", "left out; keep the store for these")
    return _Layout(first.bodies, features)


def _known(path: Path, episodes: Sequence[Episode], key: str, findings: FileFindings) -> int:
    """Entries a frame of `key` (1 for flags), 0 if it is unknown for some; InputError if they differ."""
    values = [getattr(e, key) for e in episodes]
    known_n = sum(v is not None for v in values)
    if known_n < len(values):
        if known_n:
            found = f"{key} of {known_n} of {len(values)} episodes"
            findings.add("partly_known", found, "all or none", "left out for all", where=f"{path}/{key}")
        return 0
    widths = {1 if np.ndim(v) < 2 else v.shape[1] for v in values}
    if len(widths) > 1:
        raise InputError(f"{path}: {key} has {sorted(widths)} entries a frame, expected one width; write them apart")
    return widths.pop()


def _checked(path: Path, e: Episode) -> Episode:
    """The episode prepared; InputError for what cannot be put on a grid."""
    bad = [f for f in e.check() if f.code in ("shape", "no_valid_frame", "too_few_frames", "time_not_increasing")]
    if bad:
        raise InputError(
            f"{path}: {e.episode_id or 'an episode'}: {bad[0].found}, expected {bad[0].expected}; {bad[0].action}"
        )
    return e.prepared()


def _rate(episodes: Sequence[Episode]) -> float:
    return 1.0 / float(np.median(np.concatenate([np.diff(e.time_s[e.frame_valid]) for e in episodes])))


# ------------------------------------------------------------------------------------------------- one episode


def _columns(layout: _Layout, before: Episode, e: Episode, fps: float, findings: FileFindings) -> dict[str, np.ndarray]:
    """[n, k] of every observed feature of one episode at k / fps; `e` is `before` prepared."""
    where = f"{findings.path}/{e.episode_id or 'an episode'}"
    grid = gridded(e, fps, where=where)
    n, recorded_n = len(grid.frame_valid), int(e.frame_valid.sum())
    if grid.apart is not None:
        found = f"{recorded_n} frames at uneven times or another rate than {fps:g} fps"
        action = f"{n} frames, off by up to {grid.apart[0]:.2g} m and {grid.apart[1]:.2g} deg at the recorded times"
        findings.add("resampled", found, "time stamps at k / fps", action, where=where)
    measured = grid.frame_valid & grid.valid.all(axis=1)
    if not measured.all() or recorded_n < before.n_frames:
        lost_n = before.n_frames - recorded_n + int((e.frame_valid & ~e.valid.all(axis=1)).sum())
        found = f"{n - int(measured.sum())} of {n} frames without a measurement, {lost_n} recorded ones invalid"
        findings.add("frames_missing", found, "a pose in each", "see observation.valid", where=where)
    last = np.arange(n) == n - 1
    columns: dict[str, Any] = {f"{POSE}{b}": grid.poses[:, i, XYZW_LAST] for i, b in enumerate(layout.bodies)}
    columns |= {"observation.valid": grid.frame_valid[:, None], "next.done": last[:, None]}
    if f"{VALID}{layout.bodies[0]}" in layout.features:
        columns |= {f"{VALID}{b}": grid.valid[:, i, None] for i, b in enumerate(layout.bodies)}
    if "observation.gripper_width" in layout.features:
        columns["observation.gripper_width"] = np.asarray(grid.gripper_width_m)[:, None]
    if "observation.joints" in layout.features:
        columns["observation.joints"] = grid.joints
    if "action" in layout.features:
        led = np.asarray(grid.actions)
        columns["action"] = _held(np.concatenate([led[1:], led[-1:]]))
    if "next.success" in layout.features:
        columns["next.success"] = (last & bool(e.success_at_end))[:, None]
        if e.success_once and not e.success_at_end:
            found = "success before the end alone"
            findings.add("success_time_lost", found, "its frame", "written as none", where=where)
    return columns


def _rounding_m(poses: np.ndarray) -> float:
    """Largest change of a position [n, 7] (x, y, z first) by float32."""
    return float(np.abs(poses[:, :3] - poses[:, :3].astype(np.float32)).max())


def _held(values: np.ndarray) -> np.ndarray:
    """[n, A] with each number that is not finite replaced by the last one before it that is, or nought."""
    finite = np.isfinite(values)
    at = np.maximum.accumulate(np.where(finite, np.arange(len(values))[:, None], -1), axis=0)
    return np.where(at < 0, 0.0, np.take_along_axis(values, np.maximum(at, 0), axis=0))


# ----------------------------------------------------------------------------------------------------- the meta


def _statistics(values: np.ndarray) -> dict[str, list[Any]]:
    values = np.asarray(values, np.float64)
    table = {
        "min": values.min(axis=0),
        "max": values.max(axis=0),
        "mean": values.mean(axis=0),
        "std": values.std(axis=0),
    }
    table |= {name: np.quantile(values, q, axis=0) for name, q in QUANTILES.items()}
    return {name: v.tolist() for name, v in table.items()} | {"count": [len(values)]}


def _together(statistics: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """Statistics of all episodes from those of each; quantiles are means weighted by frames, as LeRobot's are."""
    n = np.array([s["count"][0] for s in statistics], np.float64)[:, None]
    get = {name: np.array([s[name] for s in statistics]) for name in statistics[0]}
    mean = (n * get["mean"]).sum(axis=0) / n.sum()
    variance = (n * (get["std"] ** 2 + (get["mean"] - mean) ** 2)).sum(axis=0) / n.sum()
    table = {"min": get["min"].min(axis=0), "max": get["max"].max(axis=0), "mean": mean, "std": np.sqrt(variance)}
    table |= {name: (n * get[name]).sum(axis=0) / n.sum() for name in QUANTILES}
    return {name: v.tolist() for name, v in table.items()} | {"count": [int(n.sum())]}


def _write_meta(
    folder: Path,
    layout: _Layout,
    statistics: list[dict[str, dict[str, list[Any]]]],
    texts: list[str],
    tasks: list[str],
    fps: float,
    robot_type: str,
) -> None:
    lengths = [s["next.done"]["count"][0] for s in statistics]
    ends = np.cumsum(lengths).tolist()
    info = {
        "codebase_version": "v3.0",
        "robot_type": robot_type,
        "total_episodes": len(lengths),
        "total_frames": ends[-1],
        "total_tasks": len(tasks),
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": int(fps) if fps.is_integer() else fps,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": layout.described(),
    }
    meta = folder / "meta"
    (meta / "episodes" / "chunk-000").mkdir(parents=True)
    (meta / "info.json").write_text(json.dumps(info, indent=4, ensure_ascii=False), encoding="utf-8")
    together = {name: _together([s[name] for s in statistics]) for name in layout.features}
    (meta / "stats.json").write_text(json.dumps(together, indent=4), encoding="utf-8")
    noughts = [0] * len(lengths)
    table: dict[str, Any] = {
        "episode_index": list(range(len(lengths))),
        "tasks": [[text] for text in texts],
        "length": lengths,
        "data/chunk_index": noughts,
        "data/file_index": noughts,
        "dataset_from_index": [0, *ends[:-1]],
        "dataset_to_index": ends,
        "meta/episodes/chunk_index": noughts,
        "meta/episodes/file_index": noughts,
    }
    for name in layout.features:
        table |= {f"stats/{name}/{key}": [s[name][key] for s in statistics] for key in statistics[0][name]}
    pq.write_table(pa.table(table), meta / "episodes" / "chunk-000" / "file-000.parquet")
    pq.write_table(_task_table(tasks), meta / "tasks.parquet")


def _task_table(tasks: list[str]) -> pa.Table:
    """Tasks as pandas keeps a frame whose index is the text, which is how LeRobot looks them up."""
    index = "__index_level_0__"

    def column(name: str | None, field_name: str, kind: str, numpy: str) -> dict[str, Any]:
        return {"name": name, "field_name": field_name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}

    pandas = {
        "index_columns": [index],
        "column_indexes": [column(None, "None", "unicode", "object") | {"metadata": {"encoding": "UTF-8"}}],
        "columns": [column("task_index", "task_index", "int64", "int64"), column(None, index, "unicode", "object")],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.2.0",
    }
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), index: pa.array(tasks, pa.string())})
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})
