"""Change-points common to demonstrations: when the gripper acts, objects start and stop, relations are reached.

Nothing here knows the task. In each demonstration three kinds of event are looked for:

- the gripper closes or opens (a change of its width, by amplitude);
- an object that is moved starts and stops moving in the support's frame;
- the gripper pauses: a minimum of its speed between two motions.

Events of the first two kinds, and the last pause, count where most demonstrations have them. A pause counts where it
means something: some relation "a in b's frame" that has changed is *reached* there, that is, at least two of its
coordinates agree over the demonstrations (spread under ``pinned_m``), while objects lie elsewhere in each. A pause at
a way-point that lies anywhere is part of the motion around it. Number and order of change-points follow from that.

Host, NumPy, float64; frames only index, every threshold is in metres and seconds. Source: SPECTRA III-A1 names
change-points without saying how; the method is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxeval.io.poses import inverse_turn, position_in, turned
from jaxeval.types import IDENTITY_POSE, Episode, InputError


@dataclass(frozen=True)
class ChangePointParams:
    """Thresholds in metres, metres a second, seconds, and shares of the demonstrations."""

    pause_m_s: float = 0.01  # a pause lies between two motions at least this fast
    pause_share: float = 0.5  # and is slower than this share of both peaks
    speed_window_s: float = 0.2  # over which speed is measured
    lever_m: float = 0.05  # metres that a radian counts
    correction_m: float = 0.005  # a motion between two pauses that gets no further is a correction: one pause
    width_m: float = 0.002  # smallest change of the gripper's width that counts
    moved_m: float = 0.01  # an object or a relation that gets this far has changed
    pinned_m: float = 0.01  # spread over demonstrations under which a coordinate is held
    merge_s: float = 0.25  # events closer than this are one
    turn_rad: float = np.pi / 4  # motions along directions closer than this are one
    agreement: float = 0.8  # share of the demonstrations that must have an event

    def check(self) -> ChangePointParams:
        """Self. ValueError names a threshold that is no positive number, or a share above 1."""
        for name, value in vars(self).items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < np.inf or (name in ("pause_share", "agreement") and value > 1):
                raise ValueError(f"change_points.{name} is {value!r}; expected a positive number (a share: at most 1)")
        return self


DEFAULTS = ChangePointParams()


@dataclass(frozen=True)
class ChangePoint:
    """What happens at a change-point.

    ``kind``: closing, closed, opening, opened (the gripper); starts, stops (``body``, an object); reached (``body``
    comes to its place in ``other``'s frame, held along ``axes``); end (the gripper stops for good).
    """

    kind: str
    body: str = ""
    other: str = ""
    axes: str = ""

    @property
    def name(self) -> str:
        """Short name, such as ``cubeA_at_cubeB``."""
        if self.kind == "reached":
            return f"{self.body}_at_{self.other}"
        return f"{self.body}_{self.kind}" if self.body else self.kind


@dataclass(frozen=True)
class ChangePoints:
    """Change-points common to K demonstrations, in order.

    ``frames`` [K, P]: where each lies in each demonstration, -1 where it has none. ``notes``: doubts, in sentences.
    """

    points: tuple[ChangePoint, ...]
    frames: Int[np.ndarray, "K P"]
    notes: tuple[str, ...]

    @property
    def complete(self) -> Bool[np.ndarray, " K"]:
        """Demonstrations that have every change-point."""
        return np.asarray((self.frames >= 0).all(axis=1))


# ------------------------------------------------------------------------------------------------- one demonstration


def tripod(
    T_w_a: Float[np.ndarray, "T 7"], T_w_b: Float[np.ndarray, "T 7"], lever_m: float
) -> Float[np.ndarray, "T 12"]:
    """Four points of a in b's frame: its origin and ``lever_m`` along each axis; turning in place moves them."""
    points = np.concatenate([np.zeros((1, 3)), lever_m * np.eye(3)])
    in_world = T_w_a[:, None, 4:] + turned(T_w_a[:, None, :4], points[None])
    return turned(inverse_turn(T_w_b[:, None, :4]), in_world - T_w_b[:, None, 4:]).reshape(len(T_w_a), 12)


def _apart(a: Float[np.ndarray, "... 12"], b: Float[np.ndarray, "... 12"]) -> np.ndarray | np.floating:
    """Root mean square distance of the four points."""
    return np.linalg.norm(a - b, axis=-1) / 2


def _speed(points: Float[np.ndarray, "T 12"], time_s: Float[np.ndarray, " T"], window_s: float) -> np.ndarray:
    """Metres a second over ``window_s`` about each frame."""
    before, after = np.maximum(time_s - window_s / 2, time_s[0]), np.minimum(time_s + window_s / 2, time_s[-1])
    moved = [np.interp(after, time_s, x) - np.interp(before, time_s, x) for x in points.T]
    return _apart(np.stack(moved, axis=-1), np.zeros(12)) / np.maximum(after - before, 1e-9)


@dataclass(frozen=True)
class _Track:
    """What is looked at in one demonstration: its valid frames."""

    episode: Episode
    frames: Int[np.ndarray, " t"]
    time_s: Float[np.ndarray, " t"]

    def poses(self, body: str) -> Float[np.ndarray, "t 7"]:
        return self.episode.body(body)[self.frames]

    def support(self, body: str) -> Float[np.ndarray, "t 7"]:
        """Poses of the support; the world's frame where it has none."""
        return self.poses(body) if body in self.episode.bodies else np.tile(IDENTITY_POSE, (len(self.frames), 1))

    def in_support(self, body: str, support: str, lever_m: float) -> Float[np.ndarray, "t 12"]:
        return tripod(self.poses(body), self.support(support), lever_m)


def _pauses(points: np.ndarray, time_s: np.ndarray, p: ChangePointParams) -> list[int]:
    """Frames at which the track arrives at each pause after a motion; the last where it ends slow."""
    v = _speed(points, time_s, p.speed_window_s)
    found: list[tuple[int, int]] = []  # (peak before, slowest frame)
    rising, top, low, after = True, 0, 0, 0  # frames of the running extremes
    for i in range(len(v)):
        if rising:
            top = i if v[i] >= v[top] else top
            if v[top] > p.pause_m_s and v[i] < p.pause_share * v[top]:
                rising, low, after = False, i, top
        elif v[i] <= v[low]:
            low = i
        elif v[i] > p.pause_m_s and v[low] < p.pause_share * v[i]:
            found.append((after, low))
            rising, top = True, i
    if not rising:
        found.append((after, low))
    out: list[int] = []
    for peak, slow in found:
        enough = max(1.5 * v[slow], p.pause_m_s)
        arrival = peak + int(np.argmax(v[peak : slow + 1] <= enough))
        if not out or _apart(points[arrival], points[out[-1]]) >= p.correction_m:
            out.append(arrival)
    return out


def _width_events(width: np.ndarray, amount_m: float) -> list[tuple[str, int]]:
    """(closing | closed | opening | opened, frame), from runs of the width that change it by over ``amount_m``."""
    pivots, sign = [0], 0
    extreme = 0
    for i in range(len(width)):
        change = width[i] - width[extreme]
        if sign == 0:
            if abs(width[i] - width[0]) > amount_m:
                sign, extreme = int(np.sign(width[i] - width[0])), i
        elif change * sign >= 0:
            extreme = i
        elif abs(change) > amount_m:
            pivots.append(extreme)
            sign, extreme = -sign, i
    pivots.append(extreme)
    out: list[tuple[str, int]] = []
    for a, b in pairwise(pivots):
        run = width[a : b + 1]
        if abs(run[-1] - run[0]) <= amount_m:
            continue
        names = ("opening", "opened") if run[-1] > run[0] else ("closing", "closed")
        out.append((names[0], a + int(np.argmax(np.abs(run - run[0]) > amount_m))))
        out.append((names[1], a + int(np.argmax(np.abs(run - run[-1]) <= amount_m))))
    return out


def _moves(points: np.ndarray, time_s: np.ndarray, p: ChangePointParams) -> tuple[int, int] | None:
    """Frames at which an object starts to leave its place and comes to rest at its last one; None if it stays.

    Counted from when it is ``moved_m`` away, so that a nudge by the closing gripper is not a start.
    """
    away = _apart(points, points[:1]) > p.moved_m
    short = _apart(points, points[-1:]) > p.moved_m
    if not away.any() or not short.any():
        return None
    still = _speed(points, time_s, p.speed_window_s) < p.pause_m_s
    left, came = int(np.argmax(away)), int(np.flatnonzero(short)[-1])
    starts, stops = np.flatnonzero(still[: left + 1]), np.flatnonzero(still[came:])
    return int(starts[-1]) if len(starts) else 0, came + int(stops[0]) if len(stops) else len(points) - 1


# ---------------------------------------------------------------------------------------------- all demonstrations


def rigid_frames(episodes: Sequence[Episode], *, within_m: float = 2e-4, moved_m: float = 0.01) -> dict[str, str]:
    """Bodies that ride on another one: name -> owner. The owner is the one whose size is known, else the first.

    Attached: the two stay within ``within_m`` of each other in every demonstration, and move in most. What never moves
    cannot be told from what lies beside it.
    """
    first, out = episodes[0], {}
    sized = {
        b
        for i, b in enumerate(first.bodies)
        if first.half_size_m is not None and np.isfinite(first.half_size_m[i]).all()
    }
    order = sorted(first.bodies, key=lambda b: (b not in sized, first.bodies.index(b)))

    def moves(e: Episode, body: str) -> bool:
        p = e.body(body)[e.valid_of(body), 4:]
        return len(p) > 0 and bool(np.linalg.norm(p - p[:1], axis=-1).max() > moved_m)

    def rides(e: Episode, rider: str, body: str) -> bool:
        both = e.valid_of(rider, body)
        points = tripod(e.body(rider)[both], e.body(body)[both], 0.05)
        return len(points) > 0 and bool(np.max(_apart(points, points[:1])) < within_m)

    moving = {b for b in order if np.mean([moves(e, b) for e in episodes]) > 0.5}
    for i, b in enumerate(order):
        owners = (a for a in order[:i] if a not in out and a in moving and all(rides(e, b, a) for e in episodes))
        if (owner := next(owners, None)) is not None:
            out[b] = owner
    return out


def change_points(
    episodes: Sequence[Episode],
    *,
    gripper: str = "tcp",
    support: str = "table",
    params: ChangePointParams = DEFAULTS,
) -> ChangePoints:
    """Change-points common to prepared demonstrations of one task (:class:`ChangePoints`).

    Poses enter only as relations between bodies, so a change of world frame changes nothing; the order of the
    demonstrations does not matter but for ties. Undefined with fewer than two demonstrations or without the gripper's
    poses: InputError. Objects that lie at the same place in every demonstration leave nothing to tell a constrained
    pause from a way-point: a note says so.
    """
    p = params.check()
    if len(episodes) < 2:
        raise InputError(f"{len(episodes)} demonstrations; expected at least 2 to find what they share; give more")
    bodies = episodes[0].bodies
    if gripper not in bodies:
        raise InputError(
            f"no body '{gripper}' among {', '.join(bodies)}; expected the gripper's poses; name its body with gripper="
        )
    tracks = []
    for e in episodes:
        frames = np.flatnonzero(e.valid_of(*bodies)) if e.bodies == bodies else np.zeros(0, int)
        if len(frames) < 2 or e.bodies != bodies:
            raise InputError(
                f"{e.episode_id or 'an episode'}: {len(frames)} valid frames and bodies {', '.join(e.bodies)}; "
                f"expected 2 or more and {', '.join(bodies)} as in the first demonstration; leave it out"
            )
        tracks.append(_Track(e, frames, np.asarray(e.time_s, np.float64)[frames]))
    notes: list[str] = []
    objects = [b for b in bodies if b not in (gripper, support, *rigid_frames(episodes))]
    anchors = _anchors(tracks, objects, gripper, support, p, notes)
    found = _with_reached(tracks, anchors, gripper, support, p)
    found = _merged(found, tracks, gripper, support, p)
    local = np.stack([f for _, f in found], axis=1) if found else np.zeros((len(tracks), 0), int)
    frames = np.stack([np.where(row >= 0, t.frames[row], -1) for t, row in zip(tracks, local, strict=True)])
    if moved := [o for o in objects if any(c.body == o for c, _ in found)]:
        start = np.stack([[position_in(t.poses(o)[0], t.support(support)[0]) for o in moved] for t in tracks])
        if spread(start).max() < p.pinned_m:
            notes.append(
                f"{', '.join(moved)} start within {p.pinned_m} m of the same place in most demonstrations: what the "
                "task holds cannot be told from what never varied; give demonstrations with varied starts"
            )
    if not found:
        notes.append("no change-point is common to the demonstrations")
    return ChangePoints(tuple(c for c, _ in found), frames, tuple(notes))


Events = list[tuple[ChangePoint, Int[np.ndarray, " K"]]]
"""Change-points in order, each with its frame among the valid ones of every demonstration (-1: none)."""


def spread(x: Float[np.ndarray, "K ..."]) -> np.ndarray:
    """Robust standard deviation over demonstrations without NaN: 1.4826 times the median distance from the median."""
    x = x[~np.isnan(x).reshape(len(x), -1).any(axis=1)]
    if len(x) == 0:
        return np.full(x.shape[1:], np.inf)
    return 1.4826 * np.median(np.abs(x - np.median(x, axis=0, keepdims=True)), axis=0)


def _time_of(frames: np.ndarray, tracks: Sequence[_Track]) -> np.ndarray:
    """Seconds from the start, NaN where a demonstration has no such event."""
    return np.array([t.time_s[i] if i >= 0 else np.nan for t, i in zip(tracks, frames, strict=True)])


def _gap(a: np.ndarray, b: np.ndarray, tracks: Sequence[_Track]) -> float:
    """Median seconds from one event to another over the demonstrations that have both."""
    return float(np.nanmedian(_time_of(b, tracks) - _time_of(a, tracks)))


def _anchors(
    tracks: Sequence[_Track],
    objects: Sequence[str],
    gripper: str,
    support: str,
    p: ChangePointParams,
    notes: list[str],
) -> Events:
    """Events of the gripper's width and of objects, and the end, that most demonstrations share, in common order."""
    widths = [None if t.episode.gripper_width_m is None else t.episode.gripper_width_m[t.frames] for t in tracks]
    known = [w for w in widths if w is not None and np.isfinite(w).all()]
    amount = max(p.width_m, 0.1 * float(np.median([np.ptp(w) for w in known]))) if known else p.width_m
    found: dict[tuple[str, str, int], np.ndarray] = {}

    def add(kind: str, body: str, k: int, frame: int) -> None:
        n = sum(1 for (a, b, _), f in found.items() if (a, b) == (kind, body) and f[k] >= 0)
        found.setdefault((kind, body, n), np.full(len(tracks), -1))[k] = frame

    for k, t in enumerate(tracks):
        width = widths[k]
        if width is not None and np.isfinite(width).all():
            for kind, frame in _width_events(width, amount):
                add(kind, "", k, frame)
        for body in objects:
            if (moves := _moves(t.in_support(body, support, p.lever_m), t.time_s, p)) is not None:
                add("starts", body, k, moves[0])
                add("stops", body, k, moves[1])
        if pauses := _pauses(t.in_support(gripper, support, p.lever_m), t.time_s, p):
            add("end", "", k, pauses[-1])
    common: Events = []
    for (kind, body, n), frames in found.items():
        share = float((frames >= 0).mean())
        if share >= p.agreement:
            common.append((ChangePoint(kind, body), frames))
        elif share > 1 - p.agreement:
            notes.append(
                f"{ChangePoint(kind, body).name} (occurrence {n + 1}) is in {share:.0%} of the demonstrations only: "
                "left out"
            )
    # as late as most demonstrations have it: median over demonstrations of the time relative to the whole
    length = np.array([t.time_s[-1] for t in tracks])
    common.sort(key=lambda c: float(np.nanmedian(_time_of(c[1], tracks) / length)))
    return _merged(common, tracks, gripper, support, p)


_RANK = {"closing": 0, "opening": 0, "starts": 1, "stops": 1, "closed": 2, "opened": 2, "reached": 3, "end": 4}
"""Of events that coincide, the one with the lowest rank stays."""


def _merged(events: Events, tracks: Sequence[_Track], gripper: str, support: str, p: ChangePointParams) -> Events:
    """Events apart by ``merge_s`` or more; a stop only of what has moved since the event before."""
    out: Events = []
    for point, frames in events:
        if out and _gap(out[-1][1], frames, tracks) < p.merge_s:
            if _RANK[point.kind] < _RANK[out[-1][0].kind]:
                out[-1] = (point, frames)
            continue
        if point.kind in ("stops", "end") and out:
            moved = [
                _apart(at[j], at[i])
                for t, i, j in zip(tracks, out[-1][1], frames, strict=True)
                if i >= 0 and j >= 0
                for at in [t.in_support(point.body or gripper, support, p.lever_m)]
            ]
            if not moved or float(np.median(moved)) < p.moved_m:
                continue
        out.append((point, frames))
    # events of one demonstration that are out of the common order are not events of it
    last = np.full(len(tracks), -1)
    for _, frames in out:
        frames[frames < last] = -1
        last = np.maximum(last, frames)
    return out


def _with_reached(
    tracks: Sequence[_Track], anchors: Events, gripper: str, support: str, p: ChangePointParams
) -> Events:
    """The anchors, and between them the pauses at which a relation is reached."""
    K = len(tracks)
    pauses = [_pauses(t.in_support(gripper, support, p.lever_m), t.time_s, p) for t in tracks]
    bounds = [np.zeros(K, int), *(f for _, f in anchors), np.array([len(t.frames) - 1 for t in tracks])]
    stations: list[tuple[ChangePoint | None, np.ndarray]] = []
    for g in range(len(bounds) - 1):
        if g > 0:
            stations.append(anchors[g - 1])
        inside = []
        for k, t in enumerate(tracks):
            a, b = bounds[g][k], bounds[g + 1][k]
            near = [t.time_s[f[k]] for _, f in anchors if f[k] >= 0]
            usable = a >= 0 and b >= 0
            inside.append(
                [i for i in pauses[k] if usable and a < i < b and all(abs(t.time_s[i] - s) >= p.merge_s for s in near)]
            )
        stations += [(None, frames) for frames in _matched(inside, bounds[g], bounds[g + 1], tracks, p)]
    return _reached(tracks, stations, gripper, support, p)


def _matched(
    inside: Sequence[Sequence[int]],
    starts: np.ndarray,
    ends: np.ndarray,
    tracks: Sequence[_Track],
    p: ChangePointParams,
) -> list[np.ndarray]:
    """Pauses of one stretch, put in correspondence: [K] frames of each that most demonstrations have.

    The template is a demonstration with the usual number of pauses; the others are matched to it in order, by where
    in the stretch they lie (dynamic programming; leaving one out costs as much as being off by a quarter of it).
    """
    counts = np.array([len(x) for x in inside])
    usual = int(np.bincount(counts).argmax())
    if usual == 0:
        return []

    def where(k: int) -> np.ndarray:
        a, b = tracks[k].time_s[starts[k]], tracks[k].time_s[ends[k]]
        return (tracks[k].time_s[list(inside[k])] - a) / max(b - a, 1e-9)

    alike = [k for k in range(len(tracks)) if counts[k] == usual]
    centre = np.median([where(k) for k in alike], axis=0)
    out = np.full((usual, len(tracks)), -1)
    for k in range(len(tracks)):
        for i, j in _in_order(centre, where(k) if counts[k] else np.zeros(0), skip=0.25):
            out[i, k] = inside[k][j]
    return [row for row in out if (row >= 0).mean() >= p.agreement]


def _in_order(a: np.ndarray, b: np.ndarray, *, skip: float) -> list[tuple[int, int]]:
    """Pairs (i, j) of two increasing sequences, in order, at the least cost: |a_i - b_j|, ``skip`` for one left out."""
    cost = np.zeros((len(a) + 1, len(b) + 1))
    cost[:, 0], cost[0, :] = skip * np.arange(len(a) + 1), skip * np.arange(len(b) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            both = cost[i, j] + abs(a[i] - b[j])
            cost[i + 1, j + 1] = min(both, cost[i, j + 1] + skip, cost[i + 1, j] + skip)
    pairs: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        if cost[i, j] == cost[i - 1, j - 1] + abs(a[i - 1] - b[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif cost[i, j] == cost[i - 1, j] + skip:
            i -= 1
        else:
            j -= 1
    return pairs[::-1]


@dataclass
class _Kept:
    """A station that is a change-point; for a relation reached, also the later pauses during which it stays so.

    ``on_the_way``: the relation was held before and has only moved on; if it moves further so, that counts instead.
    """

    point: ChangePoint
    frames: Int[np.ndarray, " K"]
    stays: list[np.ndarray]
    on_the_way: bool = False


class _Relative:
    """Where bodies were relative to each other and to the support, at a station: one frame of each demonstration."""

    def __init__(self, tracks: Sequence[_Track], support: str) -> None:
        bodies = tracks[0].episode.bodies
        self.position = {
            (a, b): [position_in(t.poses(a), t.poses(b)) for t in tracks] for a in bodies for b in bodies if a != b
        }
        self.in_support = {b: [position_in(t.poses(b), t.support(support)) for t in tracks] for b in bodies}

    def at(self, pair: tuple[str, str], frames: np.ndarray) -> Float[np.ndarray, "K 3"]:
        """Positions of a in b's frame at a station, NaN where a demonstration does not have it."""
        tracks = zip(self.position[pair], frames, strict=True)
        return np.array([x[i] if i >= 0 else np.full(3, np.nan) for x, i in tracks])

    def moved(self, body: str, before: np.ndarray, now: np.ndarray) -> float:
        """Median way of a body in the support's frame between two stations, metres."""
        steps = zip(self.in_support[body], before, now, strict=True)
        return float(np.median([np.linalg.norm(t[j] - t[i]) for t, i, j in steps if i >= 0 and j >= 0]))

    def same_way(self, pair: tuple[str, str], stations: tuple[np.ndarray, ...], turn_rad: float) -> bool:
        """Whether the motions between three stations in a row share their direction, to ``turn_rad``."""
        first, second, third = (self.at(pair, frames) for frames in stations)
        into, onward = second - first, third - second
        length = np.linalg.norm(into, axis=-1) * np.linalg.norm(onward, axis=-1)
        return bool(np.nanmedian((into * onward).sum(axis=-1) / np.maximum(length, 1e-12)) > np.cos(turn_rad))

    def newly_held(
        self,
        held_now: Mapping[tuple[str, str], np.ndarray],
        held_before: Mapping[tuple[str, str], np.ndarray],
        stations: tuple[np.ndarray, np.ndarray],
        gripper: str,
        moved_m: float,
    ) -> tuple[tuple[str, str], bool] | None:
        """The relation that the way from one station to the next reached, and whether it was not held before."""
        previous, frames = stations
        best: tuple[tuple[float, ...], tuple[str, str], bool] | None = None
        for pair, held in held_now.items():
            here = self.at(pair, frames)
            step = here - self.at(pair, previous)
            if held.sum() < 2 or np.isnan(step).all() or np.nanmedian(np.linalg.norm(step, axis=-1)) < moved_m:
                continue
            new = int((held & ~held_before[pair]).sum()) >= 2
            shift = np.abs(np.nanmedian(step, axis=0))[held & held_before[pair]].max(initial=0.0)
            if not new and shift < moved_m:
                continue
            # most axes held, objects rather than the gripper, nearest, what moved in the frame of what did not
            size = round(float(np.nanmedian(np.linalg.norm(here, axis=-1))), 6)
            backward = self.moved(pair[0], previous, frames) < self.moved(pair[1], previous, frames)
            rank = (-float(held.sum()), gripper in pair, size, backward)
            if best is None or rank < best[0]:
                best = (rank, pair, new)
        return None if best is None else best[1:]

    def arrived(self, k: _Kept, pinned_m: float) -> np.ndarray:
        """Frame of the first pause at which each demonstration is where the relation settles."""
        if not k.stays:
            return k.frames
        pair, axes = (k.point.body, k.point.other), ["xyz".index(x) for x in k.point.axes]
        settled = np.nanmedian(self.at(pair, k.stays[-1])[:, axes], axis=0)
        frames = k.frames.copy()
        for pause in (*k.stays[::-1], k.frames):
            off = np.abs(self.at(pair, pause)[:, axes] - settled).max(axis=1)
            frames = np.where(off < pinned_m, pause, frames)
        return frames


def _reached(
    tracks: Sequence[_Track],
    stations: Sequence[tuple[ChangePoint | None, np.ndarray]],
    gripper: str,
    support: str,
    p: ChangePointParams,
) -> Events:
    """Of the pauses (None) those that reach a relation; of a run along one direction, the last."""
    where = _Relative(tracks, support)
    riding = rigid_frames([t.episode for t in tracks])
    way = {
        b: np.median([np.linalg.norm(x - x[:1], axis=-1).max() for x in ways]) for b, ways in where.in_support.items()
    }
    rigid = {b: riding.get(b, b) if way[b] > p.moved_m else support for b in way}  # all that never moves is one body

    start = np.zeros(len(tracks), int)
    kept: list[_Kept] = []
    held_before = {pair: np.zeros(3, bool) for pair in where.position}
    for point, frames in stations:
        held_now = {pair: spread(where.at(pair, frames)) < p.pinned_m for pair in where.position}
        if point is not None:
            kept.append(_Kept(point, frames, []))
            held_before = held_now
            continue
        previous = kept[-1].frames if kept else start
        found = where.newly_held(held_now, held_before, (previous, frames), gripper, p.moved_m)
        if found is not None:
            pair, new = found
            axes = "".join(axis for axis, h in zip("xyz", held_now[pair], strict=True) if h)
            if not new and kept and kept[-1].on_the_way:
                last, before = kept[-1].point, kept[-2].frames if len(kept) > 1 else start
                alike = {rigid[last.body], rigid[last.other]} == {rigid[pair[0]], rigid[pair[1]]}
                if alike and where.same_way(pair, (before, previous, frames), p.turn_rad):
                    kept.pop()
            kept.append(_Kept(ChangePoint("reached", *pair, axes), frames, [], on_the_way=not new))
            held_before = held_now
        elif kept and kept[-1].point.kind == "reached":
            last = kept[-1].point
            if all(held_now[last.body, last.other]["xyz".index(x)] for x in last.axes):
                kept[-1].stays.append(frames)
    return [(k.point, where.arrived(k, p.pinned_m)) for k in kept]
