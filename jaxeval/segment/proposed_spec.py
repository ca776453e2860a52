"""A task spec from demonstrations alone: change-points written in the closed vocabulary of predicates.

For every change-point common to the demonstrations, several predicates are tried with thresholds taken from the
demonstrations, each from where the sub-task before ended; the one that first holds nearest to the change-point, over
all demonstrations, is kept, and of those about as near the simplest and most lenient. What comes out is an ordinary
TaskSpec: it is aligned, fitted and scored like one written by hand, and can be edited.

Host; the predicates are those of :mod:`jaxeval.align`. Source: SPECTRA III-A1; how it is done is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval.align import PREDICATES, Frames, Signals
from jaxeval.io.poses import position_in
from jaxeval.segment.change_points import (
    DEFAULTS,
    ChangePoint,
    ChangePointParams,
    ChangePoints,
    change_points,
    rigid_frames,
    spread,
)
from jaxeval.types import Body, Episode, EpisodeBatch, InputError, Predicate, Shape, SubTask, TaskSpec, pad_episodes

GUESS_M = 0.05
"""Half extents of the box that stands for a body of unknown size."""

NEAR_S = 0.15
"""Predicates whose mean error is within this of the best are equally near: of them the preferred one is taken."""

FAR_S = 0.5
"""A change-point that no predicate finds to within this, on average, is left out."""


@dataclass(frozen=True)
class Proposal:
    """A task spec made from demonstrations, and how well it finds the boundaries that were seen in them.

    ``points``: the change-points, one a sub-task; ``found`` [K, P]: their frames, -1 for none; ``ends`` [K, P]: frames
    at which the sub-tasks' predicates hold, T (the padded length) when never. ``episodes``: which demonstrations.
    """

    spec: TaskSpec
    points: tuple[ChangePoint, ...]
    found: Int[np.ndarray, "K P"]
    ends: Int[np.ndarray, "K P"]
    reached: Bool[np.ndarray, "K P"]
    error_s: Float[np.ndarray, " P"]  # mean distance in time of the end from the change-point
    episodes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def reached_n(self) -> Int[np.ndarray, " P"]:
        """Demonstrations that the predicates up to each sub-task segment."""
        return self.reached.sum(axis=0)

    @property
    def complete_n(self) -> int:
        """Demonstrations that the whole sequence of predicates segments."""
        return int(self.reached[:, -1].sum())


def propose_spec(
    episodes: Sequence[Episode],
    *,
    name: str,
    gripper: str = "tcp",
    support: str = "table",
    shapes: Mapping[str, Shape] | None = None,
    instruction: str = "",
    params: ChangePointParams = DEFAULTS,
) -> Proposal:
    """Task spec whose sub-tasks end at the change-points of prepared demonstrations (:class:`Proposal`).

    Bodies are those of the demonstrations; their shapes are taken from ``shapes``, else a box of the mean recorded
    half size, else a guessed box, which a note says. Bodies that ride on others become named frames of them. What was
    brought to what is taken for manipulated and reference object; where nothing was, both are left to be inferred.
    InputError where nothing is common to the demonstrations, or the support has no pose.
    """
    if support not in episodes[0].bodies:
        raise InputError(
            f"task {name}: no body '{support}' among {', '.join(episodes[0].bodies)}; expected the poses of what "
            "things rest on; name its body with support="
        )
    common = change_points(episodes, gripper=gripper, support=support, params=params)
    notes = list(common.notes)
    if not common.points:
        raise InputError(
            f"task {name}: no change-point is common to the {len(episodes)} demonstrations; expected a gripper that "
            "stops, acts, or moves something in most of them; check that they are of one task, or write the spec"
        )
    bodies = _bodies(episodes, shapes or {}, notes)
    fitted = _Fitted(episodes, common, gripper=gripper, support=support, params=params)
    sub_tasks: list[SubTask] = []
    kept: list[int] = []
    for p, point in enumerate(common.points):
        until, error_s = fitted.end_of(p)
        if until is None:
            notes.append(
                f"change-point {point.name}: no predicate finds it to within {FAR_S} s (best {error_s:.2f} s); left out"
            )
            continue
        kept.append(p)
        sub_tasks.append(SubTask(_unique(point.name, [s.name for s in sub_tasks]), until, _means(point)))
    if not sub_tasks:
        raise InputError(
            f"task {name}: none of the {len(common.points)} change-points can be said in predicates; expected one at "
            "least; write the spec"
        )
    manipulated, reference, frames = _parts(common.points, bodies, gripper, support)
    spec = TaskSpec(
        name=name,
        bodies=bodies,
        sub_tasks=tuple(sub_tasks),
        support=support,
        gripper=gripper,
        manipulated=manipulated,
        reference=reference,
        frames=frames,
        instruction=instruction,
    )
    ends, reached = np.stack(fitted.ends, axis=1), np.stack(fitted.reached, axis=1)
    if (whole := int(reached[:, -1].sum())) < len(episodes):
        notes.append(f"the predicates segment {whole} of {len(episodes)} demonstrations completely")
    return Proposal(
        spec=spec,
        points=tuple(common.points[p] for p in kept),
        found=common.frames[:, kept],
        ends=ends,
        reached=reached,
        error_s=np.array(fitted.errors_s),
        episodes=tuple(e.episode_id for e in episodes),
        notes=tuple(notes),
    )


def _unique(name: str, taken: Sequence[str]) -> str:
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _means(point: ChangePoint) -> str:
    body, other = point.body, point.other
    return {
        "closing": "the gripper begins to close",
        "closed": "the gripper has closed",
        "opening": "the gripper begins to open",
        "opened": "the gripper has opened",
        "starts": f"{body} begins to move",
        "stops": f"{body} comes to rest",
        "reached": f"{body} comes to its place at {other}",
        "end": "the gripper comes to rest",
    }[point.kind]


def _bodies(episodes: Sequence[Episode], shapes: Mapping[str, Shape], notes: list[str]) -> tuple[Body, ...]:
    """Bodies and named frames, owners first; a note on each shape that is a guess."""
    first, riding = episodes[0], rigid_frames(episodes)
    for name in shapes:
        if name not in first.bodies:
            raise InputError(f"shapes: no body '{name}'; expected one of {', '.join(first.bodies)}; correct its name")
    made: dict[str, Body] = {}
    guessed: list[str] = []
    for i, name in enumerate(first.bodies):
        if name in riding:
            continue
        sizes = [
            e.half_size_m[i] for e in episodes if e.half_size_m is not None and np.isfinite(e.half_size_m[i]).all()
        ]
        if name in shapes:
            shape = shapes[name]
        elif sizes:
            x, y, z = (round(float(v), 5) for v in np.maximum(np.mean(sizes, axis=0), 1e-5))
            shape = Shape("box", (x, y, z))
        else:
            guessed.append(name)
            shape = Shape("box", (GUESS_M, GUESS_M, GUESS_M))
        made[name] = Body(name, shape)
    if guessed:
        notes.append(
            f"{', '.join(guessed)}: of unknown size, guessed as boxes of half size {GUESS_M} m; put their shapes into "
            "the spec, for a radian counts in metres by them"
        )
    frames = [Body(name, made[owner].shape, frame_of=owner) for name, owner in riding.items()]
    return (*made.values(), *frames)


def _parts(
    points: Sequence[ChangePoint], bodies: Sequence[Body], gripper: str, support: str
) -> tuple[tuple[str, ...], str, tuple[tuple[str, str], ...]]:
    """Manipulated objects, reference object, named frames: from what was brought to what, the last time counting."""
    owner = {b.name: b.frame_of or b.name for b in bodies}
    started: set[str] = set()
    brought: list[tuple[str, str]] = []  # (what was moved, to what), named frames as they are
    for q in points:
        if q.kind == "starts":
            started.add(q.body)
        elif q.kind == "reached" and not {gripper, support} & {owner[q.body], owner[q.other]}:
            swap = owner[q.other] in started and owner[q.body] not in started
            brought.append((q.other, q.body) if swap else (q.body, q.other))
    if not brought:
        return (), "", ()
    reference = owner[brought[-1][1]]
    manipulated = tuple(dict.fromkeys(owner[a] for a, _ in brought if owner[a] != reference))
    frames = {owner[n]: n for pair in brought for n in pair if owner[n] != n}
    return manipulated, reference, tuple(frames.items())


# --------------------------------------------------------------------------------------- predicates and thresholds


_ROLES = Frames(("body", "other", "support", "gripper"), (), "support", "gripper")
"""Bodies are renamed by the part they play in a predicate, so that one program serves all bodies."""


@cache
def _margin_of(kind: str, related: bool, axes: str, window_s: float) -> Callable[..., Float[Array, "K T"]]:
    """Margins of one predicate over a batch, its lengths traced: compiled once for any bodies and thresholds."""

    def one(
        poses: Array, time_s: Array, valid: Array, width: Array, start: Array, value: Any, offset: Any
    ) -> Float[Array, " T"]:
        signals = Signals(poses, time_s, valid, width, jnp.zeros((poses.shape[0], 0), poses.dtype), start)
        other = "other" if related else ""
        predicate = Predicate(kind, "body", other, value, window_s, axes, (offset[0], offset[1], offset[2]))
        return PREDICATES[kind](predicate, _ROLES, signals)

    quick = {"xla_backend_optimization_level": "0"} if jax.default_backend() == "cpu" else {}
    return jax.jit(jax.vmap(one, in_axes=(0, 0, 0, 0, 0, None, None)), compiler_options=quick)


def _up(x: float) -> float:
    """Rounded up to a tenth of a millimetre, and at least one millimetre: thresholds that a person can read."""
    return max(float(np.ceil(x * 1e4 - 1e-6) / 1e4), 1e-3)


class _Fitted:
    """Sub-tasks fitted one after the other; ``ends``, ``reached`` and ``errors_s`` grow with them."""

    def __init__(
        self,
        episodes: Sequence[Episode],
        common: ChangePoints,
        *,
        gripper: str,
        support: str,
        params: ChangePointParams,
    ) -> None:
        self.episodes, self.common, self.gripper, self.support, self.params = episodes, common, gripper, support, params
        self.batch: EpisodeBatch = pad_episodes(list(episodes))
        self.riding = rigid_frames(episodes)
        self.rows = np.arange(len(episodes))
        self.valid = np.asarray(self.batch.valid.all(axis=2))  # frames in which every body was seen
        self.start = np.argmax(self.valid, axis=1)
        self.alive: np.ndarray = np.asarray(self.valid.any(axis=1))
        self.ends: list[np.ndarray] = []
        self.reached: list[np.ndarray] = []
        self.errors_s: list[float] = []

    def end_of(self, p: int) -> tuple[tuple[Predicate, ...] | None, float]:
        """Predicates that end the sub-task at change-point ``p``, and their mean error; None where none comes near."""
        wanted = self.common.frames[:, p]
        tried = []  # (error, way, leniency, predicates, end, found)
        for way, columns in enumerate(self._ways(self.common.points[p], wanted)):
            margins = [[(u, self._margin(u)) for u in column] for column in columns]
            for choice in product(*map(enumerate, margins)):
                end, found = self._first(np.min([margin for _, (_, margin) in choice], axis=0))
                lenient = sum(n for n, _ in choice)
                tried.append(
                    (self._error(end, found, wanted), -way, lenient, tuple(u for _, (u, _) in choice), end, found)
                )
        best = min((t[0] for t in tried), default=np.inf)
        if best > FAR_S:
            return None, best
        error, _, _, until, end, found = max(
            (t for t in tried if t[0] <= best + NEAR_S), key=lambda t: (t[1], t[2], -t[0])
        )
        self.ends.append(np.where(found, end, self.valid.shape[1]))
        self.reached.append(found)
        self.errors_s.append(error)
        self.start, self.alive = np.where(found, end, self.start), found
        return until, error

    def _margin(self, u: Predicate) -> Float[np.ndarray, "K T"]:
        b, index = self.batch, self.batch.bodies.index
        parts = [index(n) for n in (u.body or self.gripper, u.other or self.support, self.support, self.gripper)]
        margin = _margin_of(u.kind, bool(u.other), u.axes, u.window_s)
        numbers = (np.float32(u.value), np.asarray(u.offset_m, np.float32))
        return np.asarray(margin(b.poses[:, :, parts], b.time_s, self.valid, b.gripper_width_m, self.start, *numbers))

    def _first(self, margin: Float[np.ndarray, "K T"]) -> tuple[np.ndarray, np.ndarray]:
        """First frame after the start at which the margin is not negative, and whether there is one."""
        frames = np.arange(margin.shape[1])
        later = frames[None] > self.start[:, None]
        holds = np.asarray(self.valid & later & self.alive[:, None] & (margin >= 0), bool)
        return np.asarray(holds.argmax(axis=1)), np.asarray(holds.any(axis=1))

    def _error(self, end: np.ndarray, found: np.ndarray, wanted: np.ndarray) -> float:
        """Mean seconds between ends and change-points; over 1 s, and never, count as 1 s and 2 s."""
        time_s = self.batch.time_s
        off = np.abs(time_s[self.rows, end] - time_s[self.rows, np.maximum(wanted, 0)])
        return float(np.mean(np.where(found, np.minimum(off, 1.0), 2.0), where=wanted >= 0))

    # ------------------------------------------------------------------------------------------ what is tried

    def _ways(self, point: ChangePoint, wanted: np.ndarray) -> list[list[list[Predicate]]]:
        """Ways of saying a change-point, the preferred first; each a list of columns of thresholds, the preferred last.

        One predicate of every column makes a conjunction. Rest is asked for only where place alone does not tell.
        """
        if point.kind in ("closing", "opening"):
            valid, width = self.valid, self.batch.gripper_width_m
            span = np.where(valid, width, -np.inf).max(axis=1) - np.where(valid, width, np.inf).min(axis=1)
            return [[[Predicate(f"gripper_{point.kind}", value=_up(0.1 * float(np.median(span))))]]]
        if point.kind == "closed":
            return [[[Predicate("gripper_closed", value=0.0005, window_s=w) for w in (0.4, 0.1, 0.2)]]]
        if point.kind == "opened":
            least = float(self.batch.gripper_width_m[self.rows, np.maximum(wanted, 0)][wanted >= 0].min())
            return [[[Predicate("gripper_open", value=round(share * least, 4)) for share in (0.99, 0.95, 0.9)]]]
        if point.kind == "starts":
            return [[[Predicate("moving", point.body, value=v) for v in (0.001, 0.002, 0.005)]]]
        mover = point.body if point.kind == "stops" else self.gripper
        rest = [Predicate("at_rest", mover, value=v, window_s=0.1) for v in (0.001, 0.002, 0.004, 0.008)]
        if point.kind == "reached":
            places = [self._near(point.body, point.other, point.axes, wanted)]
        else:
            away, held = self._moved(mover, wanted), self._held(mover, wanted)
            places = [place for place in ((away, held) if point.kind == "end" else (held, away)) if place]
        return [way for place in places for way in ([place], [place, rest])]

    def _moved(self, body: str, wanted: np.ndarray) -> list[Predicate]:
        """``moving`` by a share of what the body has moved by the change-point."""
        have = wanted >= 0
        way = self._position(body, self.support, wanted) - self._position(body, self.support, self.start)
        least = float(np.linalg.norm(way[have], axis=-1).min())
        if least < self.params.moved_m:
            return []
        return [Predicate("moving", body, value=_up(share * least)) for share in (0.9, 0.7, 0.5)]

    def _held(self, body: str, wanted: np.ndarray) -> list[Predicate]:
        """``near`` where the body, or a frame on it, is held in another's frame after having come there."""
        have, riders = wanted >= 0, [body, *(n for n, owner in self.riding.items() if owner == body)]
        best: tuple[tuple[float, float], str, str, str] | None = None
        for a in riders:
            for b in self.batch.bodies:
                if b in riders or (b == self.gripper and body != self.gripper):
                    continue
                x = self._position(a, b, wanted)[have]
                held = spread(x) < self.params.pinned_m
                came = np.abs(np.median(x - self._position(a, b, self.start)[have], axis=0))
                if held.sum() < 2 or np.where(held, came, 0.0).max() < self.params.moved_m:
                    continue
                rank = (-float(held.sum()), float(np.linalg.norm(np.median(x, axis=0))))
                if best is None or rank < best[0]:
                    best = (rank, a, b, "".join(axis for axis, h in zip("xyz", held, strict=True) if h))
        return [] if best is None else self._near(*best[1:], wanted)

    def _position(self, body: str, other: str, frames: np.ndarray) -> Float[np.ndarray, "K 3"]:
        a, b = (self.batch.poses[self.rows, np.maximum(frames, 0), self.batch.bodies.index(n)] for n in (body, other))
        return position_in(a.astype(np.float64), b.astype(np.float64))

    def _near(self, body: str, other: str, axes: str, wanted: np.ndarray) -> list[Predicate]:
        """``near`` about the median place, from as tight as the demonstrations allow (over ``pinned_m``) to lenient."""
        x = self._position(body, other, wanted)[wanted >= 0]
        chosen = np.array([a in axes for a in "xyz"])
        offset = np.where(chosen, np.round(np.median(x, axis=0), 4), 0.0) + 0.0
        off = np.linalg.norm((x - offset) * chosen, axis=-1)
        furthest, usual = float(off.max()), float(np.quantile(off, 0.9))
        values = (usual, 1.1 * furthest, *(furthest + m for m in (0.002, 0.005, 0.01, 0.02)))
        values = sorted({_up(max(v, self.params.pinned_m)) for v in values})
        return [
            Predicate(
                "near", body, other, v, axes=axes, offset_m=(float(offset[0]), float(offset[1]), float(offset[2]))
            )
            for v in values
        ]
