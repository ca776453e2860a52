"""Motion metrics of a scored set as the report needs them: read from files, and which executions to look at closely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.metrics.kinematic import FLOOR
from jaxeval.metrics.smoothness import SmoothnessParams, sparc_settings
from jaxeval.metrics.spectral_arc import Sparc, sparc, speed_spectrum
from jaxeval.metrics.status import Status
from jaxeval.report.scored import Scored, first_line, floats_of
from jaxeval.report.summary import lowest_groups

FRAME_MOTION = "frame_motion.parquet"
FAMILIES = ("smoothness.", "kinematic.")
SPARC, LEAST_W = "smoothness.sparc", "kinematic.min_w"
CHOSEN_GROUPS_N = 2
"""Groups of which executions are looked at closely; of each the lowest and the one in the middle."""
PATHS_N, PATH_GROUPS_N, POINTS_N = 60, 6, 150
"""Trajectories in the views of them, their groups, and the points of each: what keeps the page small."""
SINGULAR_SIGMA = 0.02
"""Least singular value below which a frame is said to be near a singularity: a joint speed of 1 rad/s then moves the
tip by less than 0.02 (m/s, or rad/s) along the direction in which the arm is weakest."""


@dataclass(frozen=True)
class Motion:
    """Motion metrics of a scored set by column of `scores.parquet`; NaN and "" where there is nothing to say.

    ``sub_tasks`` have their own SPARC.
    """

    number: dict[str, np.ndarray]
    text: dict[str, list[str]]
    sub_tasks: tuple[str, ...]

    def setting(self, column: str) -> str:
        """What a column of text says of the executions, such as the robot's name; empty where there is none."""
        return ", ".join(dict.fromkeys(t for t in self.text.get(column, ()) if t))

    @property
    def ranked_by(self) -> str:
        """Column that executions are chosen by, the lowest first: SPARC, or the least w where no SPARC is known."""
        known = [c for c in (SPARC, LEAST_W) if c in self.number and np.isfinite(self.number[c]).any()]
        return known[0] if known else ""

    @property
    def rank(self) -> np.ndarray:
        """Values of that column; NaN where there are none."""
        n = len(next(iter((self.number | self.text).values())))
        return self.number[self.ranked_by] if self.ranked_by else np.full(n, np.nan)


@dataclass(frozen=True)
class MotionTrack:
    """Frames of one execution [F]; NaN where not known. ``speed_m_s``, ``w`` are None where not scored.

    ``position_m`` [F, 3] in the world; ``sub_task``: index of each frame's, -1 outside all.
    """

    frame: np.ndarray
    t_s: np.ndarray
    position_m: np.ndarray | None
    speed_m_s: np.ndarray | None
    sub_task: np.ndarray
    w: np.ndarray | None
    sigma_min: np.ndarray | None

    @property
    def singular(self) -> np.ndarray:
        """Frames near a singularity."""
        if self.w is None or self.sigma_min is None:
            return np.zeros(len(self.t_s), bool)
        return (self.w < FLOOR) | (self.sigma_min < SINGULAR_SIGMA)


def read_motion(scored: Scored) -> Motion | None:
    """The motion metrics of a scored set, None where there are none."""

    def wanted(name: str) -> bool:
        whole = name.startswith(FAMILIES) and name.count(".") == 1
        return whole or name.startswith((f"{SPARC}.", f"{SPARC}_status."))

    names = [name for name in scored.table.column_names if wanted(name)]
    if not names:
        return None
    texts = [n for n in names if str(scored.table.schema.field(n).type) in ("string", "large_string", "null")]
    number = {name: scored.floats(name) for name in names if name not in texts}
    sub_tasks = [name.removeprefix(f"{SPARC}.") for name in names if name.startswith(f"{SPARC}.")]
    return Motion(number, {name: scored.texts(name) for name in texts}, tuple(sub_tasks))


def read_motion_frames(scored: Scored, rows: Sequence[int]) -> dict[int, MotionTrack] | None:
    """Frames of the executions asked for, by row; None when they were not written. InputError when unreadable."""
    import pyarrow.parquet as pq

    path = scored.folder / FRAME_MOTION
    if not path.is_file():
        return None
    try:
        present = pq.read_schema(path).names
        table = pq.read_table(path, filters=[("episode", "in", sorted({int(r) for r in rows}))]) if len(rows) else None
    except Exception as error:
        raise InputError(
            f"{path}: cannot be read ({first_line(error)}); expected what `jaxeval score` writes; score again"
        ) from error
    if missing := [x for x in ("episode", "frame", "t_s") if x not in present]:
        raise InputError(f"{path}: no column {missing[0]}; expected what `jaxeval score` writes; score again")
    if table is None:
        return {}
    got = {name: floats_of(table[name]) for name in present if not name.startswith("error_m.")}
    out: dict[int, MotionTrack] = {}
    for row in np.unique(got["episode"]).astype(int):
        mine = {name: values[got["episode"] == row] for name, values in got.items()}
        out[int(row)] = MotionTrack(
            frame=mine["frame"].astype(int),
            t_s=mine["t_s"],
            position_m=np.stack([mine[f"{a}_m"] for a in "xyz"], axis=1) if "x_m" in mine else None,
            speed_m_s=mine.get("speed_m_s"),
            sub_task=np.nan_to_num(mine.get("sub_task", np.full(len(mine["t_s"]), -1.0)), nan=-1).astype(int),
            w=mine.get("w"),
            sigma_min=mine.get("sigma_min"),
        )
    return out


# ---------------------------------------------------------------------------------------------- which to look at


def chosen_executions(scored: Scored, motion: Motion) -> list[tuple[int, str]]:
    """(row, why) of the executions drawn closely: the middle and the lowest of the groups with extreme means."""
    rank, found = motion.rank, []
    known = {g: rows for g in range(len(scored.groups))
             if len(rows := np.flatnonzero((scored.group == g) & np.isfinite(rank)))}  # fmt: skip
    means = sorted(known, key=lambda g: float(rank[known[g]].mean()))
    groups = list(dict.fromkeys([*means[-1:], *means[: CHOSEN_GROUPS_N - 1]]))
    by = "SPARC" if motion.ranked_by == SPARC else "least w"
    for g in groups:
        ordered = known[g][np.argsort(rank[known[g]], kind="stable")]
        middle, lowest = int(ordered[len(ordered) // 2]), int(ordered[0])
        found.append((middle, f"{scored.groups[g]}, " + (f"median {by}" if middle != lowest else "the only one")))
        if middle != lowest:
            found.append((lowest, f"{scored.groups[g]}, lowest {by}"))
    return found


def chosen_paths(scored: Scored, motion: Motion) -> list[int]:
    """Rows of the executions whose trajectories are shown: as many of each group, evenly over its rows."""
    groups, _ = lowest_groups(scored, motion.rank, PATH_GROUPS_N)
    each = PATHS_N // len(groups)
    out: list[int] = []
    for g in groups:
        rows = np.flatnonzero(scored.group == g)
        out += rows[np.unique(np.linspace(0, len(rows) - 1, min(each, len(rows))).round().astype(int))].tolist()
    return out


def thinned(n: int, most: int = POINTS_N) -> np.ndarray:
    """Up to ``most`` indices of n, evenly, first and last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)) if n else np.zeros(0, int)


def sub_task_spans(track: MotionTrack) -> list[tuple[int, float, float]]:
    """(sub-task, start, end in seconds) of each uninterrupted stretch; a stretch ends where the next frame begins."""
    if not len(track.t_s) or (track.sub_task < 0).all():
        return []
    starts = np.flatnonzero(np.diff(track.sub_task, prepend=track.sub_task[0] - 1))
    ends = np.append(track.t_s[starts[1:]], track.t_s[-1])
    return [(int(track.sub_task[a]), float(track.t_s[a]), float(b)) for a, b in zip(starts, ends, strict=True)]


# ----------------------------------------------------------------------------------------------------------- spectrum


@dataclass(frozen=True)
class Spectrum:
    """Normalised speed spectrum of one execution up to half its rate.

    ``limit_hz``: where its band ends, the lower of ``cutoff_hz`` and half the rate;
    ``end_hz``: the last bin that counts in SPARC; ``amplitude``: the threshold that decides it.
    """

    frequency_hz: np.ndarray
    magnitude: np.ndarray
    cutoff_hz: float
    limit_hz: float
    end_hz: float
    amplitude: float


def spectrum_of(track: MotionTrack, settings: dict[str, Any]) -> Spectrum | None:
    """The spectrum that SPARC is the arc length of, as it was scored; None where SPARC is not known.

    ``settings``: those of smoothness in `score.json`.
    """
    n = len(track.t_s)
    if track.speed_m_s is None or n == 0:
        return None
    params = replace(SmoothnessParams(), **{k: v for k, v in settings.items() if hasattr(SmoothnessParams, k)})
    more = (0, 2 ** int(np.ceil(np.log2(n))) - n)  # so that each length compiles once
    speed, time_s = (np.pad(x, more).astype(np.float32) for x in (track.speed_m_s, track.t_s))
    (frequency_hz, magnitude), found = _spectrum(speed, time_s, np.pad(np.ones(n, bool), more), params)
    if int(found.status) != Status.OK:
        return None
    limit_hz = min(float(params.cutoff_hz), float(found.rate_hz) / 2)
    return Spectrum(
        frequency_hz=np.asarray(frequency_hz, float),
        magnitude=np.asarray(magnitude, float),
        cutoff_hz=float(params.cutoff_hz),
        limit_hz=limit_hz,
        end_hz=float(found.end_hz),
        amplitude=float(params.amplitude),
    )


@jax.jit
def _spectrum(speed: Any, time_s: Any, valid: Any, params: SmoothnessParams) -> tuple[Any, Sparc]:
    found = sparc(speed, time_s, valid, **sparc_settings(params))
    return speed_spectrum(speed, time_s, valid, padlevel=params.padlevel), found
