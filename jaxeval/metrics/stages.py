"""Which stages of a pick-and-insert task an episode reached, whether it succeeded, and the one cause if it did not.

The monitor reads recorded signals, one row a control step; it never runs inside a stepper and changes no state. Written
for one episode with a mask and vmapped by the caller. Source: ParcelStow, sections 4.1.1 and 4.3.1, tables 2 and 3.

What the paper leaves open is read as follows:

- a rise is measured from the object's height at the first valid step;
- the first stable acquired state, to which motion in the hand is referred, is the first step that is acquired;
- an object is held while it has been acquired and its finger forces add up to more than ``hold_n``;
- insertion, release and settling count from the acquisition on, each from the latch of the one before; the earlier
  stages are not required of each other, so a funnel of them need not fall;
- a drop, a slip or a jam that the episode recovers from undoes nothing: success is decided by its own conditions;
- insertion is under way from the first step of its phase to the first of RELEASE, dwell included;
- the object is in the receptacle at the end if it meets the condition of insertion at the last valid step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval import se3
from jaxeval.linalg import safe_norm
from jaxeval.metrics.hand_motion import relative_motion
from jaxeval.metrics.status import Sentences, Status
from jaxeval.types import STATIC, Symmetry, TaskSpec, a_count, a_number, bucket_length, pytree


class Cause(Sentences):
    """How an episode ended, ``sentence`` for people. Exactly one holds: the first member that applies, in this order.

    NOT_INSERTED and those before it are of episodes that never met the condition of insertion. A drop that began after
    a jam is that jam; a slip is the cause only if it came before any contact with the receptacle and without a jam.
    """

    NOT_JUDGED = 0, "not judged: a signal is not finite or no step is valid"
    SUCCESS = 1, "success"
    NOT_ACQUIRED = 2, "not acquired"
    DROPPED = 3, "dropped"
    NEVER_PRE_INSERT = 4, "never reached the pose before insertion"
    JAMMED = 5, "jammed at the receptacle"
    SLIPPED = 6, "slipped in the hand before it touched the receptacle"
    MISALIGNED = 7, "misaligned when the insertion began"
    NOT_INSERTED = 8, "not inserted in time"
    NOT_RELEASED = 9, "inserted but not released"
    LEFT_BOX = 10, "left the receptacle after it was inserted"
    NOT_SETTLED = 11, "released but not settled in time"
    TERMINAL_ORIENTATION = 12, "settled at a wrong orientation"


@pytree
class StageParams:
    """Thresholds of the monitor; all are leaves, so a sweep over them is one vmapped call. Counts are control steps.

    ``insert_depth_m`` is 0.040: the paper prints 0.050, at which its own median depth of 49.5 mm would not be the
    80 % successes it reports; ``StageParams(insert_depth_m=0.05)`` has the printed one. The counts are at 50 Hz.
    """

    rise_m: float | Float[Array, ""] = 0.020  # acquired: at least this far up ...
    grip_n: float | Float[Array, ""] = 1.0  # ... with more than this on the thumb and on another finger
    near_m: float | Float[Array, ""] = 0.030  # pre-insert: nearer than this
    oriented_rad: float | Float[Array, ""] = math.radians(15)  # reoriented, pre-insert: within less than this
    insert_depth_m: float | Float[Array, ""] = 0.040  # inserted: at least this far past the entrance plane
    hold_n: float | Float[Array, ""] = 0.5  # finger forces: released below, dropped at or below
    drop_steps: int | Int[Array, ""] = 10
    release_steps: int | Int[Array, ""] = 5
    settle_m_s: float | Float[Array, ""] = 0.02
    settle_rad_s: float | Float[Array, ""] = 0.2
    settle_steps: int | Int[Array, ""] = 20
    final_rad: float | Float[Array, ""] = math.radians(10)  # success: at most this at the end
    jam_n: float | Float[Array, ""] = 2.0
    jam_steps: int | Int[Array, ""] = 10
    slip_m: float | Float[Array, ""] = 0.008
    slip_rad: float | Float[Array, ""] = math.radians(10)
    touch_n: float | Float[Array, ""] = 0.1  # more than this is contact with the receptacle

    def check(self) -> StageParams:
        """Itself, or ValueError in one sentence. Call it on the host, before jit."""
        for name, value in vars(self).items():
            if name.endswith("_steps"):
                a_count(f"stages.{name}", value, 1)
            elif not 0 < a_number(f"stages.{name}", value) < math.inf:
                raise ValueError(f"stages.{name} is {value}; expected a positive number")
        for name in ("oriented_rad", "final_rad", "slip_rad"):
            if float(getattr(self, name)) > math.pi:
                raise ValueError(f"stages.{name} is {float(getattr(self, name))}; expected radians, at most pi")
        return self


@pytree
class StageGeometry:
    """Where the stages of a task are, in the world's frame (z up), and what its phases are called.

    ``T_world_entrance`` has its origin at the centre of the entrance plane, its x axis along the insertion and its y
    and z axes across; the object's ``point_m`` is inserted while it is within ``half_section_m`` (y, z) of that axis
    and at a depth up to ``interior_depth_m``. An object put down on a plate is inserted downwards: the x axis points
    down and the entrance plane lies one insertion depth above the height at which the object counts as placed.
    ``symmetry`` is the object's: turns that are no error of orientation.
    """

    T_world_entrance: Float[Array | np.ndarray, "7"]
    half_section_m: Float[Array | np.ndarray, "2"]
    interior_depth_m: float | Float[Array, ""]
    goal_wxyz: Float[Array | np.ndarray, "4"]  # orientation of the object when it is inserted
    pre_insert_m: Float[Array | np.ndarray, "3"]  # position of the object before insertion
    lift_z_m: float | Float[Array, ""]  # lifted at or above this height
    point_m: Float[Array | np.ndarray, "3"] = field(default_factory=lambda: np.zeros(3))  # in the object's frame
    phases: tuple[str, ...] = field(metadata=STATIC)
    insert_phase: str = field(default="INSERT", metadata=STATIC)
    symmetry: Symmetry = field(default=Symmetry(), metadata=STATIC)

    @classmethod
    def of(cls, spec: TaskSpec) -> StageGeometry:
        """That of a task whose spec has ``stages``; ValueError where it has none."""
        if (s := spec.stages) is None:
            raise ValueError(f"task {spec.name} has no `stages` in its spec; expected where they are; add them")
        return cls(
            T_world_entrance=np.array(s.T_world_entrance),
            half_section_m=np.array(s.half_section_m),
            interior_depth_m=s.depth_m,
            goal_wxyz=np.array(s.goal_wxyz),
            pre_insert_m=np.array(s.pre_insert_m),
            lift_z_m=s.lift_z_m,
            point_m=np.array(s.point_m),
            phases=s.phases,
            insert_phase=s.insert_phase,
            symmetry=spec.body(s.object).symmetry,
        )

    def phase(self, name: str) -> int:
        """Index of a phase; ValueError lists those there are."""
        if name not in self.phases:
            raise ValueError(f"no phase '{name}'; the task has {', '.join(self.phases)}")
        return self.phases.index(name)

    def check(self) -> StageGeometry:
        """Itself, or ValueError in one sentence. Call it on the host, before jit."""
        order = [self.phase(name) for name in ("LIFT", "TRANSFER", self.insert_phase, "RELEASE")]
        if order != sorted(set(order)):
            raise ValueError(
                f"phases are {', '.join(self.phases)}; expected LIFT, TRANSFER, insertion, RELEASE to follow"
            )
        for name, n in (("T_world_entrance", 7), ("half_section_m", 2), ("goal_wxyz", 4), ("pre_insert_m", 3)):
            value = np.asarray(getattr(self, name), float)
            if value.shape != (n,) or not np.isfinite(value).all():
                raise ValueError(f"geometry.{name} is {value.tolist()}; expected {n} finite numbers")
        for name in ("T_world_entrance", "goal_wxyz"):
            length = float(np.linalg.norm(np.asarray(getattr(self, name), float)[:4]))
            if abs(length - 1) > UNIT:
                raise ValueError(f"geometry.{name} has a quaternion of length {length:.4g}; expected 1")
        if not (np.asarray(self.half_section_m) > 0).all() or not float(self.interior_depth_m) > 0:
            raise ValueError("geometry.half_section_m and interior_depth_m are sizes; expected positive metres")
        return self


UNIT = 1e-3
"""A quaternion whose length is off by more is no rotation."""


@pytree
class StageSignals:
    """What the monitor reads, one row a control step (row 0 after the reset), in the world's frame.

    Rows that are not ``valid`` (padding at the end) are never read; one amid the others breaks a run of steps.
    """

    phase: Int[Array | np.ndarray, "*B T"]  # index into StageGeometry.phases, never falling
    T_world_object: Float[Array | np.ndarray, "*B T 7"]
    linear_m_s: Float[Array | np.ndarray, "*B T 3"]  # velocity of the object
    angular_rad_s: Float[Array | np.ndarray, "*B T 3"]
    T_world_hand: Float[Array | np.ndarray, "*B T 7"]
    finger_n: Float[Array | np.ndarray, "*B T F"]  # force of each fingertip on the object, thumb (or its like) first
    receptacle_n: Float[Array | np.ndarray, "*B T"]  # force of the receptacle on the object
    valid: Bool[Array | np.ndarray, "*B T"]


def stack_signals(episodes: Sequence[StageSignals], *, length: int | None = None) -> StageSignals:
    """One batch of episodes, padded at the end with rows that are not valid to ``length`` or the next power of two."""
    longest = max(np.shape(e.valid)[0] for e in episodes)
    length = length or bucket_length(longest)
    if length < longest:
        raise ValueError(f"a batch of length {length} does not hold an episode of {longest} steps; use a longer one")

    def stack(*rows: Any) -> np.ndarray:
        more = [[(0, length - len(x))] + [(0, 0)] * (np.ndim(x) - 1) for x in rows]
        return np.stack([np.pad(np.asarray(x), pad) for x, pad in zip(rows, more, strict=True)])

    return jax.tree.map(stack, *episodes)


class Reached(NamedTuple):
    """First step at which each stage held, -1 for never. Latched: what happens later does not change it."""

    acquired: Int[Array, "..."]
    lifted: Int[Array, "..."]
    reoriented: Int[Array, "..."]
    pre_insert: Int[Array, "..."]
    inserted: Int[Array, "..."]
    released: Int[Array, "..."]
    settled: Int[Array, "..."]


class Moments(NamedTuple):
    """First step of phases and of events, -1 for never: where to take contact sets and windows.

    Contact sets are taken at ``Reached.acquired``, at ``transfer`` (the end of the reorientation) and at ``insert``.
    """

    lift: Int[Array, "..."]
    transfer: Int[Array, "..."]
    insert: Int[Array, "..."]
    release: Int[Array, "..."]
    touched: Int[Array, "..."]  # the object touched the receptacle
    let_go: Int[Array, "..."]  # first step without grip of the first drop
    dropped: Int[Array, "..."]  # step at which the drop was certain: ``drop_steps`` steps without grip
    slipped: Int[Array, "..."]  # past the limits of motion in the hand, before RELEASE
    jammed: Int[Array, "..."]  # ``jam_steps`` steps of force during insertion, or a slip that came after contact


class Stages(NamedTuple):
    """What the monitor says of one episode. Angles are errors of orientation, lower is better."""

    reached: Reached
    moments: Moments
    success: Bool[Array, "..."]  # the paper's: latched stages and the state at the end
    success_once: Bool[Array, "..."]  # it would have been one, had the episode ended at some step
    still_at_end: Bool[Array, "..."]  # success, and let go and still at the last step
    cause: Int[Array, "..."]  # a Cause
    drop_phase: Int[Array, "..."]  # phase in which the first drop began, -1 for none
    depth_max_m: Float[Array, "..."]  # greatest depth within the section since acquisition, 0 if never past the plane
    depth_final_m: Float[Array, "..."]  # the same of the last step
    angle_final_rad: Float[Array, "..."]
    angle_before_insert_rad: Float[Array, "..."]  # least one while held, before the insertion phase
    angle_before_insert_status: Int[Array, "..."]
    receptacle_peak_n: Float[Array, "..."]
    status: Int[Array, "..."]  # of everything else: not 0 is NOT_JUDGED, numbers NaN and steps -1


def _first(holds: Bool[Array, " T"]) -> Int[Array, ""]:
    """First step at which a condition holds, -1 for never."""
    return jnp.where(jnp.any(holds), jnp.argmax(holds), -1).astype(jnp.int32)


def _since(first: Int[Array, ""], steps_n: int) -> Bool[Array, " T"]:
    """Whether a step is at or after ``first``; at no step if that is -1."""
    return (first >= 0) & (jnp.arange(steps_n, dtype=jnp.int32) >= first)


def _run(holds: Bool[Array, " T"]) -> Int[Array, " T"]:
    """Steps in a row at which a condition has held, this one included."""
    step = jnp.arange(holds.shape[0], dtype=jnp.int32)
    return step - jax.lax.cummax(jnp.where(holds, -1, step))


class _Rows(NamedTuple):
    """Signals on the device, in one precision; rows that are not valid are at rest at the origin."""

    valid: Bool[Array, " T"]
    phase: Int[Array, " T"]
    body: Float[Array, "T 7"]
    hand: Float[Array, "T 7"]
    linear: Float[Array, "T 3"]
    angular: Float[Array, "T 3"]
    finger: Float[Array, "T F"]
    receptacle: Float[Array, " T"]


def _gated(signals: StageSignals) -> tuple[_Rows, Int[Array, ""]]:
    """(rows, status): if one valid row cannot be used, none is valid."""
    s, dtype = signals, jnp.asarray(signals.T_world_object).dtype
    if s.finger_n.shape[-1] < 2:
        raise ValueError(f"finger_n has {s.finger_n.shape[-1]} column; expected the thumb's and at least one more")
    floats = (s.T_world_object, s.T_world_hand, s.linear_m_s, s.angular_rad_s, s.finger_n, s.receptacle_n[:, None])
    body, hand, *rest = (jnp.asarray(x, dtype) for x in floats)
    given = jnp.asarray(s.valid)
    fine = jnp.all(jnp.isfinite(jnp.concatenate([body, hand, *rest], axis=1)), axis=1)
    for pose in (body, hand):
        fine = fine & (jnp.abs(jnp.sum(pose[:, :4] ** 2, axis=1) - 1) < 2 * UNIT)
    status = jnp.where(jnp.any(given & ~fine), Status.BAD_SIGNAL, Status.OK)
    status = jnp.where(jnp.any(given), status, Status.NO_STEPS)

    valid = given & (status == Status.OK)
    identity = jnp.asarray(se3.IDENTITY, dtype)[None]
    body, hand = (jnp.where(valid[:, None], x, identity) for x in (body, hand))
    linear, angular, finger, receptacle = (jnp.where(valid[:, None], x, 0.0) for x in rest)
    phase = jnp.asarray(s.phase, jnp.int32)
    return _Rows(valid, phase, body, hand, linear, angular, finger, receptacle[:, 0]), status


def _angles(wxyz: Float[Array, "T 4"], goal_wxyz: Float[Array, "4"], symmetry: Symmetry) -> Float[Array, " T"]:
    """Angle of every rotation from the goal, of the symmetric copy that is nearest."""
    pair = se3.PairGeometry(jnp.eye(3, dtype=wxyz.dtype), symmetry)

    def angle(q: Float[Array, "4"]) -> Float[Array, ""]:
        goal, pose = jnp.pad(goal_wxyz, (0, 3)), jnp.pad(q, (0, 3))
        return safe_norm(se3.log_decoupled(se3.symmetric_error(goal, pose, pair))[3:])

    return jax.vmap(angle)(wxyz)


class _Track(NamedTuple):
    """What stages and events are asked of, row by row; ``last`` is the index of the last valid row."""

    rows: _Rows
    force: Float[Array, " T"]  # sum of the finger forces
    angle: Float[Array, " T"]  # error of orientation
    depth: Float[Array, " T"]  # past the entrance plane
    within: Bool[Array, " T"]  # within the section
    inside: Bool[Array, " T"]  # inserted, as far as place goes
    still: Bool[Array, " T"]  # slower than what counts as settled
    held: Bool[Array, " T"]
    acquired: Int[Array, ""]
    last: Int[Array, ""]

    def since(self, first: Int[Array, ""]) -> Bool[Array, " T"]:
        """Rows from ``first`` on; none if that is -1."""
        return _since(first, self.angle.shape[0])


def _track(s: _Rows, geometry: StageGeometry, p: StageParams) -> _Track:
    """Where the object is in the receptacle, how it is turned, and since when it is held."""
    valid, dtype = s.valid, s.body.dtype
    T_world_entrance = jnp.asarray(geometry.T_world_entrance, dtype)
    point = jnp.concatenate([jnp.asarray(se3.IDENTITY[:4], dtype), jnp.asarray(geometry.point_m, dtype)])
    at = jax.vmap(lambda q: se3.relative_pose(se3.compose(q, point), T_world_entrance)[4:])(s.body)
    depth = at[:, 0]
    within = jnp.all(jnp.abs(at[:, 1:]) <= jnp.asarray(geometry.half_section_m, dtype)[None], axis=1)
    height, force = s.body[:, 6], jnp.sum(s.finger, axis=1)
    rise = height - height[jnp.argmax(valid)]
    gripped = (s.finger[:, 0] > p.grip_n) & (jnp.max(s.finger[:, 1:], axis=1) > p.grip_n)
    acquired = _first(valid & gripped & (rise >= p.rise_m))
    return _Track(
        rows=s,
        force=force,
        angle=_angles(s.body[:, :4], jnp.asarray(geometry.goal_wxyz, dtype), geometry.symmetry),
        depth=depth,
        within=within,
        inside=valid & within & (depth >= p.insert_depth_m) & (depth <= geometry.interior_depth_m),
        still=(safe_norm(s.linear) < p.settle_m_s) & (safe_norm(s.angular) < p.settle_rad_s),
        held=valid & _since(acquired, valid.shape[0]) & (force > p.hold_n),
        acquired=acquired,
        last=jnp.maximum(valid.shape[0] - 1 - jnp.argmax(valid[::-1]), 0),
    )


def _stages_of(k: _Track, geometry: StageGeometry, p: StageParams) -> Reached:
    """First steps of the stages."""
    s, position = k.rows, k.rows.body[:, 4:]
    oriented = k.angle < p.oriented_rad
    near = safe_norm(position - jnp.asarray(geometry.pre_insert_m, position.dtype)[None]) < p.near_m
    inserted = _first(k.inside & k.since(k.acquired))
    released = _first(_run(s.valid & k.since(inserted) & (k.force < p.hold_n)) >= p.release_steps)
    return Reached(
        acquired=k.acquired,
        lifted=_first(k.held & (position[:, 2] >= geometry.lift_z_m)),
        reoriented=_first(k.held & oriented & (s.phase < geometry.phase(geometry.insert_phase))),
        pre_insert=_first(k.held & oriented & near),
        inserted=inserted,
        released=released,
        settled=_first(_run(k.inside & k.since(released) & k.still) >= p.settle_steps),
    )


def _moments_of(k: _Track, reached: Reached, geometry: StageGeometry, p: StageParams) -> Moments:
    """First steps of phases and events; drops and jams while not yet inserted."""
    s = k.rows
    start_insert, start_release = geometry.phase(geometry.insert_phase), geometry.phase("RELEASE")
    carrying = s.valid & k.since(k.acquired) & (s.phase < start_release)
    open_ = carrying & ~k.since(reached.inserted)
    without_grip = _run(open_ & (k.force <= p.hold_n))
    dropped = _first(without_grip >= p.drop_steps)
    touched = _first(s.valid & (s.receptacle > p.touch_n))
    moved_m, turned_rad = relative_motion(s.hand, s.body, k.acquired)
    slip = carrying & ((moved_m > p.slip_m) | (turned_rad > p.slip_rad))
    slipped = _first(slip)
    pressed = _run(open_ & (s.phase >= start_insert) & (s.receptacle > p.jam_n)) >= p.jam_steps
    knocked = slip & ~k.since(reached.inserted) & ((touched >= 0) & (touched <= slipped))
    return Moments(
        lift=_first(s.valid & (s.phase >= geometry.phase("LIFT"))),
        transfer=_first(s.valid & (s.phase >= geometry.phase("TRANSFER"))),
        insert=_first(s.valid & (s.phase >= start_insert)),
        release=_first(s.valid & (s.phase >= start_release)),
        touched=touched,
        let_go=jnp.where(dropped >= 0, dropped + 1 - without_grip[dropped], -1),
        dropped=dropped,
        slipped=slipped,
        jammed=_first(pressed | knocked),
    )


def _cause_of(
    k: _Track, reached: Reached, moments: Moments, success: Bool[Array, ""], judged: Bool[Array, ""], p: StageParams
) -> Int[Array, ""]:
    """The first Cause that holds."""
    begin, inside = moments.insert, k.inside[k.last]
    misaligned = (begin >= 0) & ~((k.angle <= p.final_rad) & k.within)[begin]
    never, jam = reached.inserted < 0, (reached.pre_insert >= 0) & (moments.jammed >= 0)
    holds = {
        Cause.NOT_JUDGED: ~judged,
        Cause.SUCCESS: success,
        Cause.NOT_ACQUIRED: k.acquired < 0,
        Cause.DROPPED: never & (moments.dropped >= 0) & ~(jam & (moments.jammed < moments.let_go)),
        Cause.NEVER_PRE_INSERT: never & (reached.pre_insert < 0),
        Cause.JAMMED: never & jam,
        Cause.SLIPPED: never & (moments.slipped >= 0),
        Cause.MISALIGNED: never & misaligned,
        Cause.NOT_INSERTED: never,
        Cause.NOT_RELEASED: reached.released < 0,
        Cause.LEFT_BOX: ~inside,
        Cause.NOT_SETTLED: reached.settled < 0,
        Cause.TERMINAL_ORIENTATION: jnp.asarray(True),
    }
    return jnp.argmax(jnp.stack([holds[cause] for cause in Cause])).astype(jnp.int32)


def monitor(signals: StageSignals, *, geometry: StageGeometry, params: StageParams) -> Stages:
    """Stages, events, cause and measures of one episode's recorded signals (table 3 of the paper, our reading above).

    With ``F`` the sum of the finger forces, ``p`` the object's position, ``e`` its orientation error, ``x`` the depth:

    - acquired: rise >= rise_m, thumb and another finger > grip_n. held: acquired before, F > hold_n
    - lifted: held, height >= lift_z_m. reoriented: held, before insertion, e < oriented_rad
    - pre-insert: held, |p - pre_insert_m| < near_m, e < oriented_rad
    - inserted: acquired before, within the section, insert_depth_m <= x <= interior_depth_m
    - released: F < hold_n for release_steps since inserted
    - settled: inserted, slower than settle_m_s and settle_rad_s for settle_steps since released
    - success: settled once; at the last step inserted and e <= final_rad
    - drop: F <= hold_n for drop_steps before RELEASE while not yet inserted
    - slip: motion in the hand since acquisition > slip_m or > slip_rad before RELEASE
    - jam: receptacle force > jam_n for jam_steps during insertion while not yet inserted, or a slip at or after the
      first contact with the receptacle; a cause only if the pose before insertion had been reached

    Unchanged by padding, and when poses and geometry turn about z together. Oracle: a state machine, step by step.
    """
    s, status = _gated(signals)
    judged = status == Status.OK
    k = _track(s, geometry, params)
    reached = _stages_of(k, geometry, params)
    moments = _moments_of(k, reached, geometry, params)
    aligned = k.angle <= params.final_rad
    success = (reached.settled >= 0) & k.inside[k.last] & aligned[k.last]
    before = k.held & (s.phase < geometry.phase(geometry.insert_phase))
    before_status = jnp.where(judged, jnp.where(jnp.any(before), Status.OK, Status.NOT_HELD), status)
    in_section = jnp.where(s.valid & k.within & k.since(k.acquired), jnp.maximum(k.depth, 0.0), 0.0)

    def known(x: Float[Array, ""], code: Int[Array, ""] = status) -> Float[Array, ""]:
        return jnp.where(code == Status.OK, x, jnp.nan)

    return Stages(
        reached=reached,
        moments=moments,
        success=success,
        success_once=jnp.any(k.since(reached.settled) & k.inside & aligned),
        still_at_end=success & (k.force[k.last] < params.hold_n) & k.still[k.last],
        cause=_cause_of(k, reached, moments, success, judged, params),
        drop_phase=jnp.where(moments.dropped >= 0, s.phase[moments.let_go], -1),
        depth_max_m=known(jnp.max(in_section)),
        depth_final_m=known(in_section[k.last]),
        angle_final_rad=known(k.angle[k.last]),
        angle_before_insert_rad=known(jnp.min(jnp.where(before, k.angle, jnp.inf)), before_status),
        angle_before_insert_status=before_status,
        receptacle_peak_n=known(jnp.max(s.receptacle)),
        status=status,
    )


# ---------------------------------------------------------------------------------------------------- many episodes


def retained(stages: Stages) -> Bool[Array, "..."]:
    """Whether an acquired object was still in the hand when the insertion began or it first touched the receptacle.

    The primary endpoint of the relative-motion handoff (section 4.3.2): not lost in free space. A touch before the
    acquisition ends nothing; an object acquired after the insertion began was not carried there.
    """
    m, acquired, never = stages.moments, stages.reached.acquired, jnp.iinfo(jnp.int32).max
    touched = jnp.where(m.touched >= acquired, m.touched, -1)
    let_go, touched, insert = (jnp.where(x >= 0, x, never) for x in (m.let_go, touched, m.insert))
    return (acquired >= 0) & (acquired <= insert) & (let_go >= jnp.minimum(touched, insert))


class Funnel(NamedTuple):
    """Episodes that reached each stage, of ``judged_n``. Counts as they are: a later one may exceed an earlier one."""

    judged_n: Int[Array, ""]
    acquired: Int[Array, ""]
    lifted: Int[Array, ""]
    reoriented: Int[Array, ""]
    pre_insert: Int[Array, ""]
    inserted: Int[Array, ""]
    released: Int[Array, ""]
    settled: Int[Array, ""]
    success: Int[Array, ""]


def funnel(stages: Stages) -> Funnel:
    """Counts over a batch of episodes (leaves [B]); those that were not judged count nowhere."""
    reached = {name: jnp.sum(first >= 0) for name, first in stages.reached._asdict().items()}
    return Funnel(judged_n=jnp.sum(stages.status == Status.OK), **reached, success=jnp.sum(stages.success))


def sentence(cause: int, drop_phase: int, *, phases: tuple[str, ...]) -> str:
    """The cause for people; a drop names its phase.

    >>> sentence(Cause.DROPPED, 1, phases=("CLOSE", "LIFT"))
    'dropped in LIFT'
    >>> sentence(Cause.SUCCESS, -1, phases=("CLOSE", "LIFT"))
    'success'
    """
    reason = Cause(int(cause))
    return f"{reason.sentence} in {phases[int(drop_phase)]}" if reason == Cause.DROPPED else reason.sentence


def cause_counts(stages: Stages, *, phases: tuple[str, ...]) -> dict[str, int]:
    """Episodes of a batch by cause, in the order of Cause and then of phases; causes without any are left out."""
    pairs = zip(np.ravel(stages.cause).tolist(), np.ravel(stages.drop_phase).tolist(), strict=True)
    keys = sorted((cause, phase if cause == Cause.DROPPED else -1) for cause, phase in pairs)
    counts: dict[str, int] = {}
    for cause, phase in keys:
        text = sentence(cause, phase, phases=phases)
        counts[text] = counts.get(text, 0) + 1
    return counts
