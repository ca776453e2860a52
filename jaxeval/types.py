"""The data classes that every module takes or returns: Episode, EpisodeBatch, TaskSpec, Reference, Finding.

Axis glossary, used in every annotation of the package:

    B episodes   T frames   N bodies   J interaction pairs   P sub-tasks   M bins a sub-task
    L = P * M progress bins   K demonstrations   D = 6 tangent directions (3 translations, 3 rotations)

A pose is seven numbers ``wxyz_xyz`` along the last axis (unit quaternion with w first, then metres), named
``T_world_body``: it maps body coordinates to world coordinates. Time is in seconds from the episode's start.
Masks are positive: ``valid`` is True where data count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

C = TypeVar("C")

STATIC: dict[str, Any] = {"static": True}
"""Field metadata that marks a pytree field as static (part of the tree definition, hashed, never traced)."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def pytree(cls: type[C]) -> type[C]:
    """Frozen keyword-only dataclass whose fields are leaves, but for those declared ``field(metadata=STATIC)``."""
    cls = dataclass(frozen=True, kw_only=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    static = [f.name for f in fields if f.metadata.get("static")]
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    return jax.tree_util.register_dataclass(cls, leaves, static)


# --------------------------------------------------------------------------------------------------- findings


class InputError(ValueError):
    """An input that cannot be used. The message is one sentence: file, key, what was found, expected, what to do.

    ``code`` names the kind of fault ("input" where nothing finer is said) and ``key`` the setting, column, body or
    frame that it is about, so that a program need not read the sentence.
    """

    def __init__(self, message: str = "", *, code: str = "input", key: str | None = None) -> None:
        super().__init__(message)
        self.code, self.key = code, key


def one_of(what: str, value: str, there: Iterable[str]) -> str:
    """The value, if it is one of those there are; ValueError names them. What branches on an option asks this first."""
    if value not in (known := tuple(there)):
        raise ValueError(f"{what} '{value}' is not one of {', '.join(known)}")
    return value


def a_number(what: str, value: Any) -> float:
    """The value as a float; ValueError names the setting where it is no number: a text, a truth, a list."""
    if isinstance(value, (str, bool, list, tuple, dict)) or value is None:
        raise ValueError(f"{what} is {value!r}; expected a number")
    return float(value)


def a_count(what: str, value: Any, least: int) -> int:
    """The value as an int; ValueError names the setting where it is no whole number, or less than the least."""
    number = a_number(what, value)
    if not number.is_integer() or number < least:
        raise ValueError(f"{what} is {value!r}; expected a whole number, at least {least}")
    return int(number)


@dataclass(frozen=True)
class Finding:
    """One thing noticed at the door. ``error`` findings stop an episode from being scored; the rest are reported."""

    code: str
    severity: str  # "error" | "warning" | "info"
    where: str
    found: str
    expected: str
    action: str

    def __str__(self) -> str:
        return f"{self.where}: {self.found}; expected {self.expected}; {self.action}"


FINDINGS: dict[str, tuple[str, str]] = {
    "too_few_frames": ("error", "fewer than two valid frames: nothing to align"),
    "shape": ("error", "an array's shape does not match the number of frames or bodies"),
    "time_not_increasing": ("error", "time stamps repeat or run backward"),
    "no_valid_frame": ("error", "every frame is invalid"),
    "pose_jump": ("error", "a body moves more than `jump_m` between consecutive valid frames: tracking was lost"),
    "frozen_then_jump": ("error", "every pose is bit-identical for a while and then jumps: tracking was frozen"),
    "attribute": ("error", "an attribute has a name or a value that cannot be kept"),
    "non_finite_pose": ("warning", "NaN or infinite poses or times; those are marked invalid"),
    "zero_quaternion": ("warning", "(0,0,0,0) quaternions; those are marked invalid"),
    "body_lost": ("warning", "a body has no valid pose at all: its relations cannot be judged"),
    "unnormalised_quaternion": ("warning", "quaternions off unit length by more than 1e-3; they are normalised"),
    "time_gap": ("warning", "a gap of over ten median steps and over 0.5 s"),
    "frozen": ("warning", "every pose is bit-identical over 0.5 s or more: a stall or a frozen track"),
    "units": ("warning", "positions beyond 20 m: probably millimetres"),
    "quaternion_order": ("warning", "resting bodies stand upright only if the quaternions are read in the other order"),
    "epoch_time": ("info", "time stamps do not start at zero; they are rebased in float64"),
    "quaternion_sign": ("info", "quaternions change sign from one frame to the next: made continuous (q = -q)"),
    "no_gripper_width": ("info", "no gripper width: predicates on the gripper cannot hold"),
    "no_body": ("warning", "no pose of any body: only what joints tell can be measured"),
    "success_unknown": ("info", "no success flag: the terminal gate does not use one"),
}
"""Every finding that :meth:`Episode.check` can return: code -> (severity, meaning)."""

TRACKING_FINDINGS = frozenset({"pose_jump", "frozen_then_jump"})
"""Findings after which Q is "insufficient tracking" instead of a number."""

JUMP_M = 0.3
FROZEN_S = 0.5
FROZEN_JUMP_M = 0.05
IDENTITY_POSE = np.array([1.0, 0, 0, 0, 0, 0, 0])

# --------------------------------------------------------------------------------------------------- episodes


Attribute = str | bool | int | float
"""What an attribute of an episode may be: text, truth, a whole number of 64 bits or a finite number."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Episode:
    """One recorded execution of a task: host arrays in float64, its outcome, and facts about it.

    ``frame_valid`` is False for a frame that does not exist for anybody (a bad time stamp, a frame that was lost as a
    whole); ``valid`` is False for a body that was lost in a frame. Both keep their places, and their poses are never
    read. Optional arrays are None when the source does not hold them: unknown is not zero and not False.
    ``attributes`` are all other facts of this one episode (policy, embodiment, simulator, told_speed, ...).
    ``mended`` is the account of what was changed since it was recorded: rows that were sorted, dropped or split
    (``io.cleaning``), and what :meth:`prepared` did.
    """

    poses: Float[np.ndarray, "T N 7"]  # T_world_body, wxyz_xyz
    time_s: Float[np.ndarray, " T"]
    valid: Bool[np.ndarray, "T N"]
    frame_valid: Bool[np.ndarray, " T"]
    gripper_width_m: Float[np.ndarray, " T"] | None = None
    sub_task: Int[np.ndarray, " T"] | None = None  # recorded label, an index into sub_task_names, -1 for none
    joints: Float[np.ndarray, "T Q"] | None = None
    actions: Float[np.ndarray, "T A"] | None = None
    half_size_m: Float[np.ndarray, "N 3"] | None = None  # half extents of each body, NaN where unknown
    signals: dict[str, Float[np.ndarray, "T ..."]] | None = None  # what else was recorded: [T] or [T, n] by name
    success_once: bool | None = None
    success_at_end: bool | None = None
    seed: int | None = None
    speed: float | None = None  # times nominal; None when the source does not say
    bodies: tuple[str, ...]
    sub_task_names: tuple[str, ...] = ()
    joint_names: tuple[str, ...] = ()
    episode_id: str = ""
    initial_condition_id: str | None = None
    initial_condition_hash: str | None = None
    group: str = ""
    task: str = ""
    source: str = ""
    start_ns: int | None = None  # the recording's clock at time_s = 0, whole nanoseconds; None: no clock but its own
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    mended: tuple[Finding, ...] = ()  # what was changed on the way from the recording to these arrays

    @classmethod
    def of(
        cls,
        *,
        poses: Float[np.ndarray, "T N 7"],
        valid: Bool[np.ndarray, " T"] | Bool[np.ndarray, "T N"] | None = None,
        frame_valid: Bool[np.ndarray, " T"] | None = None,
        **fields: Any,
    ) -> Episode:
        """An episode whose masks may be left out (all valid), or given once for all bodies.

        ``valid`` [T] alone says which frames exist; ``valid`` [T, N] which bodies were seen in which.
        """
        frames_n, bodies_n = poses.shape[:2]
        if valid is not None and valid.ndim == 1:
            frame_valid = valid if frame_valid is None else frame_valid & valid
            valid = np.repeat(valid[:, None], bodies_n, axis=1)
        return cls(
            poses=poses,
            valid=np.ones((frames_n, bodies_n), bool) if valid is None else valid,
            frame_valid=np.ones(frames_n, bool) if frame_valid is None else frame_valid,
            **fields,
        )

    def __repr__(self) -> str:
        """One line: id, task and bodies, frames, time, and how it ended."""
        time_s = np.asarray(self.time_s, np.float64)
        known = time_s[self.frame_valid & np.isfinite(time_s)] if time_s.shape == self.frame_valid.shape else time_s[:0]
        span_s = float(known[-1] - known[0]) if len(known) else 0.0
        end = {True: "success", False: "failure", None: "success unknown"}[self.success_at_end]
        seen = int(self.frame_valid.sum())
        what = f"{self.task or 'no task'}: {', '.join(self.bodies) or 'no body'}"
        return f"Episode({self.episode_id!r}, {what}; {self.n_frames} frames in {span_s:.4g} s, {seen} valid; {end})"

    @property
    def n_frames(self) -> int:
        """Frames, invalid ones included."""
        return int(self.poses.shape[0])

    def body(self, name: str) -> Float[np.ndarray, "T 7"]:
        """Poses of one body; KeyError names the bodies there are."""
        return self.poses[:, self._index(name)]

    def valid_of(self, *names: str) -> Bool[np.ndarray, " T"]:
        """Frames that exist and in which all these bodies are valid."""
        return self.frame_valid & self.valid[:, [self._index(n) for n in names]].all(axis=1)

    def _index(self, name: str) -> int:
        if name not in self.bodies:
            raise KeyError(f"{self.source or self.episode_id}: no body '{name}'; it has {', '.join(self.bodies)}")
        return self.bodies.index(name)

    def with_bodies(self, bodies: tuple[str, ...]) -> Episode:
        """The episode with these bodies alone, in this order; KeyError for one that it does not have."""
        if bodies == self.bodies:
            return self
        order = [self._index(b) for b in bodies]
        half = None if self.half_size_m is None else self.half_size_m[order]
        poses, valid = self.poses[:, order], self.valid[:, order]
        return dataclasses.replace(self, poses=poses, valid=valid, half_size_m=half, bodies=bodies)

    def check(self, *, jump_m: float = JUMP_M, up_axis: int = 2) -> tuple[Finding, ...]:
        """Everything doubtful about this episode, as named findings (see FINDINGS). Nothing is changed."""
        from jaxeval import door

        return door.check(self, jump_m=jump_m, up_axis=up_axis)

    def prepared(self) -> Episode:
        """Copy fit for the metrics: time rebased in float64, bad poses invalid, quaternions unit and continuous.

        A body's invalid poses repeat its last valid one, and a frame without a usable stamp gets one between its
        neighbours': nothing non-finite enters traced code, and every frame keeps its place. ``mended`` says what was
        changed. Preparing twice is preparing once.
        """
        from jaxeval import door

        return door.prepare(self)


@pytree
class EpisodeBatch:
    """Episodes padded at the end to one length, with frames that do not exist; metrics are vmapped over the axis B.

    ``frame_valid`` says which frames exist, ``valid`` which bodies were seen in them (never in one that does not).
    ``gripper_width_m`` is NaN and ``success`` is -1 where unknown. ``joint_names`` are () where episodes differ.
    Positions count from ``origin_m`` of their episode, whole metres in the world (see `near_origin`; None: from the
    world's origin), so that nothing is lost in float32 of a recording far from it.
    """

    poses: Float[np.ndarray, "B T N 7"]
    time_s: Float[np.ndarray, "B T"]
    valid: Bool[np.ndarray, "B T N"]
    frame_valid: Bool[np.ndarray, "B T"]
    gripper_width_m: Float[np.ndarray, "B T"]
    success: Int[np.ndarray, " B"]  # 1, 0, or -1 for unknown
    joints: Float[np.ndarray, "B T Q"] | None = None  # only when asked for; NaN where not recorded
    signals: dict[str, Float[np.ndarray, "B T ..."]] = field(default_factory=dict)  # those that were asked for
    origin_m: Float[np.ndarray, "B 3"] | None = None
    bodies: tuple[str, ...] = field(metadata=STATIC)
    joint_names: tuple[str, ...] = field(default=(), metadata=STATIC)

    @property
    def n_episodes(self) -> int:
        """Episodes of the batch."""
        return int(self.poses.shape[0])


def bucket_length(n_frames: int, *, smallest: int = 64) -> int:
    """Padding bucket of an episode: the power of two at or above its length, so that each bucket compiles once."""
    return max(smallest, 1 << max(0, int(n_frames) - 1).bit_length())


NEAR_M = 4.0
"""Positions further than this from the world's origin lose over 0.2 micrometres in float32: they are counted from
another."""
WORLD_POINTS = ("contact_point", "fingertip_position")
"""Signals that are points of the world, x y z each."""


def near_origin(poses: Float[np.ndarray, "T N 7"], valid: Bool[np.ndarray, "T N"]) -> Float[np.ndarray, "3"]:
    """Where an episode's positions are counted from before they are rounded to float32.

    The world's origin where all lie within `NEAR_M` of it, else whole metres amid the bodies at the first frame.
    """
    seen = valid.any(axis=0)
    if not np.abs(poses[:, seen, 4:]).max(initial=0.0) > NEAR_M:
        return np.zeros(3)
    return np.round(np.median(poses[0, seen, 4:], axis=0))


def from_origin(name: str, values: np.ndarray, origin_m: Float[np.ndarray, "3"]) -> np.ndarray:
    """A signal of an episode whose positions count from ``origin_m``."""
    if name not in WORLD_POINTS or not origin_m.any():
        return values
    return values - np.tile(origin_m, values.shape[-1] // 3)


def pad_episodes(
    episodes: list[Episode] | tuple[Episode, ...],
    *,
    length: int | None = None,
    dtype: Any = np.float32,
    joints_n: int = 0,
    signals: tuple[str, ...] = (),
) -> EpisodeBatch:
    """Stack prepared episodes of the same bodies into one padded batch (poses of the padding repeat the last frame).

    Bodies are matched by name and stand in the order of the first episode's; InputError where they are not the same.
    ``joints_n`` joints of every episode come along if it is not 0, NaN for episodes that recorded none, and the
    ``signals`` of these names, which every episode must have.
    """
    bodies = episodes[0].bodies
    for e in episodes:
        if set(e.bodies) != set(bodies) or len(e.bodies) != len(bodies):
            raise InputError(
                f"{e.episode_id or 'an episode'}: it has the bodies {', '.join(e.bodies)}, expected "
                f"{', '.join(bodies)} as in {episodes[0].episode_id or 'the first of the batch'}; pad it by itself",
                key="bodies",
            )
    episodes = [e.with_bodies(bodies) for e in episodes]
    longest = max(e.n_frames for e in episodes)
    length = length or bucket_length(longest)
    if length < longest:
        raise ValueError(f"a batch of length {length} does not hold an episode of {longest} frames; use a longer one")
    index = np.minimum(np.arange(length), np.array([[e.n_frames - 1] for e in episodes]))
    real = np.arange(length) < np.array([[e.n_frames] for e in episodes])

    def take(get: Callable[[Episode], np.ndarray]) -> np.ndarray:
        return np.stack([get(e)[i] for e, i in zip(episodes, index, strict=True)])

    origin = {id(e): near_origin(e.poses, e.valid) for e in episodes}

    def near(e: Episode) -> np.ndarray:
        return np.concatenate([e.poses[..., :4], e.poses[..., 4:] - origin[id(e)]], axis=-1)

    return EpisodeBatch(
        poses=take(lambda e: near(e) if origin[id(e)].any() else e.poses).astype(dtype),
        time_s=take(lambda e: e.time_s).astype(dtype),
        valid=take(lambda e: e.valid & e.frame_valid[:, None]) & real[..., None],
        frame_valid=take(lambda e: e.frame_valid) & real,
        gripper_width_m=take(
            lambda e: np.full(e.n_frames, np.nan) if e.gripper_width_m is None else e.gripper_width_m
        ).astype(dtype),
        success=np.array([-1 if e.success_at_end is None else int(e.success_at_end) for e in episodes], np.int32),
        joints=None
        if not joints_n
        else take(lambda e: np.full((e.n_frames, joints_n), np.nan) if e.joints is None else e.joints).astype(dtype),
        signals={
            name: take(lambda e, name=name: from_origin(name, e.signals[name], origin[id(e)])).astype(dtype)  # type: ignore[index]
            for name in signals
        },
        origin_m=np.array([origin[id(e)] for e in episodes]),
        bodies=bodies,
        joint_names=episodes[0].joint_names if len({e.joint_names for e in episodes}) == 1 else (),
    )


# ----------------------------------------------------------------------------------------------------- the task


SHAPES = ("box", "cylinder", "sphere", "mesh")
SYMMETRIES = ("none", "spin", "discrete", "all")
ROLES = ("m_r", "m_s", "r_s", "m_g", "r_g")


@dataclass(frozen=True)
class Shape:
    """Rigid surface of a body, for the metres of a rotation. ``size_m`` by kind:

    box: half extents (x, y, z); cylinder: (radius, radius, half length), axis z; sphere: (radius,) * 3;
    mesh: unused, ``vertices_m`` and ``faces`` hold the triangles.
    """

    kind: str  # of SHAPES
    size_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    vertices_m: tuple[tuple[float, float, float], ...] = ()
    faces: tuple[tuple[int, int, int], ...] = ()

    def __post_init__(self) -> None:
        one_of("shape kind", self.kind, SHAPES)


@dataclass(frozen=True)
class Symmetry:
    """Proper rotations of a body about its frame's origin that leave it looking the same.

    none; spin: any turn about ``axis``; discrete: the turns in ``copies_wxyz`` (identity included); all: any rotation.
    """

    kind: str = "none"  # of SYMMETRIES
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)
    copies_wxyz: tuple[tuple[float, float, float, float], ...] = ((1.0, 0.0, 0.0, 0.0),)

    def __post_init__(self) -> None:
        one_of("symmetry kind", self.kind, SYMMETRIES)


@dataclass(frozen=True)
class Body:
    """A rigid body of the task, or a named frame on one (``frame_of`` names the body, whose shape it borrows)."""

    name: str
    shape: Shape
    symmetry: Symmetry = Symmetry()
    frame_of: str | None = None


@dataclass(frozen=True)
class Predicate:
    """One test of the closed vocabulary (``align.PREDICATES``): thresholds in metres, radians and seconds."""

    kind: str
    body: str = ""
    other: str = ""
    value: float = 0.0
    window_s: float = 0.0
    axes: str = "xyz"
    offset_m: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        for axis in self.axes or " ":
            one_of("axis", axis, "xyz")


@dataclass(frozen=True)
class SubTask:
    """A stage of the task; it ends at the first frame at which every predicate of ``until`` holds."""

    name: str
    until: tuple[Predicate, ...]
    means: str = ""  # one line for people


@dataclass(frozen=True)
class Pair:
    """Interaction pair "a | b": the pose of ``a`` in the frame of ``b``. ``role`` is one of ROLES."""

    a: str
    b: str
    role: str

    def __post_init__(self) -> None:
        one_of("role", self.role, ROLES)

    @property
    def name(self) -> str:
        """The pair as written: "a | b"."""
        return f"{self.a} | {self.b}"


@dataclass(frozen=True)
class StageSpec:
    """Where the stages of a grasp-and-insert task are, in the world's frame (z up, metres), and what its phases are.

    ``object`` is the body that is picked up and inserted, ``hand`` the body that is the hand. ``phases`` are the names
    that the recorded signal ``phase`` counts through. ``metrics.stages.StageGeometry`` says what each number means;
    ``friction`` is the coefficient between finger and object, None where it is not known.
    """

    object: str
    hand: str
    phases: tuple[str, ...]
    T_world_entrance: tuple[float, ...]  # wxyz_xyz
    half_section_m: tuple[float, ...]
    depth_m: float
    goal_wxyz: tuple[float, ...]
    pre_insert_m: tuple[float, ...]
    lift_z_m: float
    point_m: tuple[float, ...] = (0.0, 0.0, 0.0)
    insert_phase: str = "INSERT"
    friction: float | None = None


@dataclass(frozen=True)
class TaskSpec:
    """What the task is: bodies, ordered sub-tasks, and the terminal gate. Hashable, hence static under jit.

    ``manipulated`` and ``reference`` may be empty: they are then inferred from the demonstrations. ``frames`` maps a
    body to the named frame that stands for it in the (m | r) pair, such as peg -> peg_head. ``simulators`` are those
    that the task runs in, the default first; empty for a task that is only recorded. ``stages`` is None for a task that
    is no grasp-and-insert: its stages are then its sub-tasks.
    """

    name: str
    bodies: tuple[Body, ...]
    sub_tasks: tuple[SubTask, ...]
    support: str = "table"
    gripper: str = "tcp"
    manipulated: tuple[str, ...] = ()
    reference: str = ""
    frames: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    z_term: float | None = None
    use_success_flag: bool = True
    instruction: str = ""
    simulators: tuple[str, ...] = ()
    stages: StageSpec | None = None

    def body(self, name: str) -> Body:
        """Body of that name; KeyError lists those there are."""
        for b in self.bodies:
            if b.name == name:
                return b
        raise KeyError(f"task {self.name}: no body '{name}'; it declares {', '.join(b.name for b in self.bodies)}")


# ------------------------------------------------------------------------------------------------ the reference


class Notes(tuple[str, ...]):
    """Sentences that go with a pytree and change nothing: all are equal, so that none makes a function compile again.

    >>> Notes(["use 30 demonstrations"]) == Notes()
    True
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Notes)

    def __hash__(self) -> int:
        return 0


@pytree
class Reference:
    """What was learned from demonstrations: nominal relative poses and how the demonstrations spread about them.

    The spread is kept as the demonstrations' own deviations, so that every threshold and floor can be changed when
    scoring, without the demonstrations. ``notes``: what was said when it was learned.
    """

    nominal: Float[Array, "J L 7"]  # T_b_a, wxyz_xyz
    deviations: Float[Array, "K J L 6"]  # scaled deviation d of each demonstration's representative pose, metres
    seen: Bool[Array, "K J L"]  # the demonstration has frames in that bin (else filled by a geodesic)
    terminal: Float[Array, "K J 6"]  # scaled deviation at each demonstration's last valid frame, against bin L-1
    demo_valid: Bool[Array, " K"]
    converged: Bool[Array, "J L"]  # the Lie mean over demonstrations converged and is unique
    scale: Float[Array, "J 3 3"]  # S_a, metres a radian
    duration_s: Float[Array, " P"]  # mean duration of each sub-task over the demonstrations
    pairs: tuple[Pair, ...] = field(metadata=STATIC)
    spec: TaskSpec = field(metadata=STATIC)
    bins_n: int = field(metadata=STATIC)  # M
    deviation: str = field(default="se3_log", metadata=STATIC)  # of se3.DEVIATIONS
    notes: Notes = field(default=Notes(), metadata=STATIC)

    def __repr__(self) -> str:
        """One line: task, demonstrations, relations, and how many notes there are."""
        spec, demonstrations_n = self.spec, self.demo_valid.shape[-1]
        size = f"{len(self.pairs)} relations, {len(spec.sub_tasks)} sub-tasks of {self.bins_n} bins"
        return f"Reference({spec.name}: {demonstrations_n} demonstrations, {size}; {len(self.notes)} notes)"
