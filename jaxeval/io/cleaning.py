"""Putting a recording in order: rows are sorted, dropped or split, each with a finding; no frame is ever invented.

Values within a frame are the business of `Episode.prepared` (unit quaternions, their sign, time from zero) and of
`rotations.quaternions_of_matrices`; here are the rows: stamps that repeat, come late, step back, or leave a gap.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from jaxeval.io.errors import InputError
from jaxeval.types import FINDINGS, Episode, Finding

GAP_S = 5.0
"""A longer pause between two frames ends an episode: nothing is known of what happened meanwhile."""
LATE_N = 5
"""A run of at most so many rows behind the latest stamp came late and is sorted in; a longer one is a new recording."""

CLEANING_FINDINGS: dict[str, tuple[str, str]] = {
    "no_stamp": ("warning", "rows whose time stamp is NaN or infinite: they have no place in time and are left out"),
    "late_rows": ("warning", "a few rows stand after rows of later stamps: they are sorted in"),
    "repeated_stamp": ("warning", "rows repeat the stamp of another: the first in the file is kept"),
    "stamps_step_back": ("warning", "stamps step back for good: recordings were joined, and are split again"),
    "long_gap": ("warning", "a pause longer than `gap_s`: the recording is split there"),
}
"""What `in_order` does: code -> (severity, meaning). `clean` also does what `Episode.prepared` does."""

GAP_STEPS = 10
"""A pause of at most so many median steps is no gap, however long: slow recordings stay whole."""
PER_FRAME = ("poses", "time_s", "valid", "frame_valid", "gripper_width_m", "sub_task", "joints", "actions")


@dataclass(frozen=True)
class Cleaned:
    """Episodes in order, and one finding for everything that was done to get there."""

    episodes: tuple[Episode, ...]
    actions: tuple[Finding, ...]


def clean(episode: Episode, *, gap_s: float = GAP_S, late_n: int = LATE_N) -> Cleaned:
    """Episodes fit for the metrics: `in_order`, then `Episode.prepared`, with every change listed in ``mended`` too.

    Cleaning what was cleaned changes nothing.

    Raises:
        InputError: the stamps are in no order at all, or none is finite.
    """
    ordered = in_order(episode, gap_s=gap_s, late_n=late_n)
    done = tuple(recording.prepared() for recording in ordered.episodes)
    changes = (f for e in done for f in e.mended if f not in episode.mended)
    return Cleaned(done, tuple(dict.fromkeys((*ordered.actions, *changes))))


def in_order(episode: Episode, *, gap_s: float = GAP_S, late_n: int = LATE_N) -> Cleaned:
    """The episode with increasing stamps, split where it was joined or pauses for over `gap_s` seconds.

    A pause must also be over `GAP_STEPS` median steps. Rows are moved, dropped or split, never changed or added; an
    episode already in order comes back as it is. Of several parts (``ID/part=0`` and so on) only the last may keep
    ``success_at_end`` and only the first the seed and the initial condition; ``success_once`` stays where it follows
    (False everywhere, True where the end succeeds).

    Raises:
        InputError: the stamps are in no order at all, or none is finite.
    """
    where = _name(episode)
    time_s = np.asarray(episode.time_s, np.float64)
    rows = np.flatnonzero(np.isfinite(time_s))
    if not rows.size:
        raise InputError(f"{where}: none of {len(time_s)} time stamps is a finite number; record header time stamps")
    actions = []
    if lost := len(time_s) - len(rows):
        first = int(np.flatnonzero(~np.isfinite(time_s))[0])
        actions.append(action("no_stamp", where, f"{lost} rows (first {first}) have no finite stamp", "left out"))
    order = order_of(time_s[rows], where=where, late_n=late_n)
    actions += order.actions(where, time_s[rows], _different(episode.poses[rows], order))
    parts: list[np.ndarray] = []
    for recording in order.recordings:
        kept = rows[recording]
        steps = np.diff(time_s[kept])
        longest_s = max(gap_s, GAP_STEPS * float(np.median(steps))) if steps.size else gap_s
        gaps = np.flatnonzero(steps > longest_s)
        for at in gaps:
            found = f"{steps[at]:.3g} s without a frame after row {kept[at]}"
            actions.append(action("long_gap", where, found, "split there", expected=f"at most {longest_s:.3g} s"))
        parts += np.split(kept, gaps + 1)
    if not actions:
        return Cleaned((episode,), ())
    account = dataclasses.replace(episode, mended=(*episode.mended, *actions))
    return Cleaned(tuple(_part(account, rows, k, len(parts)) for k, rows in enumerate(parts)), tuple(actions))


def accounts(mended: Iterable[Sequence[str] | None], *, info: bool = True) -> list[str]:
    """One line for each kind of change, from the sentences of all episodes (``Source.table()["mended"]``).

    ``info=False`` leaves out what is only a matter of form: the start of the clock and the sign of quaternions.

    >>> accounts([["zero_quaternion: 2 frames (first 5) hold (0,0,0,0); marked invalid"], [], None])
    ['mended in 1 episode: zero_quaternion: 2 frames (first 5) hold (0,0,0,0); marked invalid']
    """
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for sentences in mended:
        for sentence in sentences or ():
            first.setdefault(sentence.partition(":")[0], sentence)
        counts.update({sentence.partition(":")[0] for sentence in sentences or ()})
    severity = {**FINDINGS, **CLEANING_FINDINGS}
    return [
        f"mended in {n} episode{'s' * (n != 1)}: {first[code]}{' (the first of them)' * (n > 1)}"
        for code, n in sorted(counts.items())
        if info or severity.get(code, ("warning",))[0] != "info"
    ]


# ------------------------------------------------------------------------------------------------ order of stamps


@dataclass(frozen=True)
class Order:
    """Rows by stamp. ``recordings`` are row numbers, each list with increasing stamps.

    The other fields count what was sorted, dropped and split.
    """

    recordings: tuple[Int[np.ndarray, " n"], ...]
    late: tuple[int, ...] = ()
    repeated: tuple[tuple[int, int], ...] = ()  # (row left out, row of that stamp which stays)
    steps_back: tuple[tuple[int, float], ...] = ()  # (first row of a recording, by how much its stamp is earlier)

    def actions(
        self, where: str, stamps: np.ndarray, different_n: int = 0, *, unit_s: float = 1.0, what: str = "pose"
    ) -> list[Finding]:
        """Findings for what was done to rows with these `stamps` (in units of `unit_s` seconds)."""
        out = []
        if self.late:
            found = f"{_listed(self.late)} stand after rows of later stamps"
            out.append(action("late_rows", where, found, f"sorted in (at most {LATE_N} in a row are)"))
        if self.repeated:
            found = f"{_listed([row for row, _ in self.repeated])} repeat a stamp"
            found += f", {different_n} of them with another {what}" if different_n else ""
            out.append(action("repeated_stamp", where, found, "the first of a stamp is kept"))
        for row, back in self.steps_back:
            found = f"stamps step back by {back * unit_s:.4g} s at row {row}"
            out.append(action("stamps_step_back", where, found, "split there: joined recordings"))
        return out


def order_of(stamps: Shaped[np.ndarray, " n"], *, where: str, late_n: int = LATE_N) -> Order:
    """How to put finite stamps (of any unit) in order.

    Rows behind the latest stamp so far came late if at most `late_n` of them follow one another and the stamps then
    catch up (or the rows end, at most `late_n` median steps behind); otherwise a new recording begins at the first of
    them. Equal stamps of one recording are one row.

    Raises:
        InputError: so many steps back (over one in ten rows) that the order of the rows says nothing.
    """
    n = len(stamps)
    steps = np.diff(stamps)
    if bool((steps > 0).all()):
        return Order((np.arange(n),))
    forward = steps[steps > 0]
    close = late_n * float(np.median(forward)) if forward.size else 0.0
    values = stamps.tolist()
    waiting, held = deque(range(n)), list[int]()
    recordings, late, steps_back = [[waiting.popleft()]], list[int](), list[tuple[int, float]]()
    top = values[0]
    while waiting or held:
        if waiting and len(held) <= late_n:
            row = waiting.popleft()
            if values[row] < top:
                held.append(row)
            else:
                late += held
                recordings[-1] += [*held, row]
                held, top = [], values[row]
        elif not waiting and len(held) <= late_n and top - values[min(held, key=values.__getitem__)] <= close:
            late += held
            recordings[-1] += held
            held = []
        else:
            first, *rest = held
            steps_back.append((first, float(top - values[first])))
            recordings.append([first])
            waiting.extendleft(reversed(rest))
            held, top = [], values[first]
    if len(recordings) > 2 and 10 * len(recordings) > n:
        raise InputError(
            f"{where}: the time stamps step back {len(recordings) - 1} times in {n} rows; "
            "expected rows in the order of time; sort the file by its stamps"
        )
    kept, repeated = [], []
    for recording in recordings:
        rows = np.array(recording)
        rows = rows[np.argsort(stamps[rows], kind="stable")]
        same = np.concatenate([[False], np.diff(stamps[rows]) == 0])
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(rows))))
        repeated += list(zip(rows[same].tolist(), rows[first[same]].tolist(), strict=True))
        kept.append(rows[~same])
    return Order(tuple(kept), tuple(late), tuple(sorted(repeated)), tuple(steps_back))


def _different(poses: np.ndarray, order: Order) -> int:
    """How many of the repeated rows hold another pose than the row that stays."""
    return sum(not np.array_equal(poses[a], poses[b], equal_nan=True) for a, b in order.repeated)


# ---------------------------------------------------------------------------------------------------------- parts


def _part(e: Episode, rows: np.ndarray, k: int, parts_n: int) -> Episode:
    arrays = {name: getattr(e, name) for name in PER_FRAME}
    taken: dict[str, Any] = {name: x[rows] for name, x in arrays.items() if x is not None}
    if e.signals is not None:
        taken["signals"] = {name: x[rows] for name, x in e.signals.items()}
    if parts_n == 1:
        return dataclasses.replace(e, **taken)
    at_end = e.success_at_end if k == parts_n - 1 else None
    start = {"seed": e.seed, "initial_condition_id": e.initial_condition_id}
    start["initial_condition_hash"] = e.initial_condition_hash
    return dataclasses.replace(
        e,
        **taken,
        **(start if k == 0 else dict.fromkeys(start)),
        success_at_end=at_end,
        success_once=False if e.success_once is False else (True if at_end else None),
        episode_id=f"{e.episode_id}/part={k}",
    )


def action(code: str, where: str, found: str, done: str, *, expected: str = "increasing time stamps") -> Finding:
    """A finding for one change that was made to a recording."""
    return Finding(code, CLEANING_FINDINGS[code][0], where, found, expected, done)


def _listed(rows: list[int] | tuple[int, ...]) -> str:
    """``1 row (7)``, ``5 rows (3, 9, 12 and 2 more)``."""
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return f"{len(rows)} row{'s' * (len(rows) != 1)} ({', '.join(map(str, rows[:3]))}{more})"


def _name(e: Episode) -> str:
    return f"{e.source}[{e.episode_id}]" if e.source else (e.episode_id or "episode")
