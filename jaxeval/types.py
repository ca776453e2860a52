"""The shapes everything else speaks: Episode, TaskSpec, Reference, and the one gate that checks them.

Axis glossary, used in every annotation of the package:

    B episodes   T frames   N bodies   J interaction pairs   P sub-tasks   M bins a sub-task
    L = P * M progress bins   K demonstrations   D = 6 tangent directions (3 translations, 3 rotations)

Poses are ``wxyz_xyz`` rows (unit quaternion, then metres), named ``T_world_body``: they map body coordinates to
world coordinates. Time is in seconds from the episode's start. Masks are positive: ``valid`` is True where data count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
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
    "non_finite_pose": ("warning", "NaN or infinite poses or times; those frames are marked invalid"),
    "zero_quaternion": ("warning", "(0,0,0,0) quaternions; those frames are marked invalid"),
    "unnormalised_quaternion": ("warning", "quaternions off unit length by more than 1e-3; they are normalised"),
    "time_gap": ("warning", "a gap of over ten median steps and over 0.5 s"),
    "frozen": ("warning", "every pose is bit-identical over 0.5 s or more: a stall or a frozen track"),
    "units": ("warning", "positions beyond 20 m: probably millimetres"),
    "quaternion_order": ("warning", "resting bodies stand upright only if the quaternions are read in the other order"),
    "epoch_time": ("info", "time stamps do not start at zero; they are rebased in float64"),
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


# --------------------------------------------------------------------------------------------------- episodes


@pytree
class Episode:
    """What happened: one execution, on the host, in float64.

    Invalid frames keep their place (``valid`` is False there); their poses are never read. Optional arrays are None
    when the source does not hold them: unknown is not zero and not False.
    """

    poses: Float[np.ndarray, "T N 7"]  # T_world_body, wxyz_xyz
    time_s: Float[np.ndarray, " T"]
    valid: Bool[np.ndarray, " T"]
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
    bodies: tuple[str, ...] = field(metadata=STATIC)
    sub_task_names: tuple[str, ...] = field(default=(), metadata=STATIC)
    joint_names: tuple[str, ...] = field(default=(), metadata=STATIC)
    episode_id: str = field(default="", metadata=STATIC)
    initial_condition_id: str | None = field(default=None, metadata=STATIC)
    initial_condition_hash: str | None = field(default=None, metadata=STATIC)
    group: str = field(default="", metadata=STATIC)
    task: str = field(default="", metadata=STATIC)
    source: str = field(default="", metadata=STATIC)

    @property
    def n_frames(self) -> int:
        """Frames, invalid ones included."""
        return int(self.poses.shape[0])

    def body(self, name: str) -> Float[np.ndarray, "T 7"]:
        """Poses of one body; KeyError names the bodies there are."""
        if name not in self.bodies:
            raise KeyError(f"{self.source or self.episode_id}: no body '{name}'; it has {', '.join(self.bodies)}")
        return self.poses[:, self.bodies.index(name)]

    def check(self, *, jump_m: float = JUMP_M, up_axis: int = 2) -> tuple[Finding, ...]:
        """Everything doubtful about this episode, as named findings (see FINDINGS). Nothing is changed."""
        return _check(self, jump_m=jump_m, up_axis=up_axis)

    def prepared(self) -> Episode:
        """Copy fit for the metrics: time rebased in float64, bad frames invalid, quaternions unit and continuous.

        Invalid frames repeat the last valid one, its time too: nothing non-finite enters traced code, and time does
        not step back.
        """
        return _prepare(self)


def _bad_frames(poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frames with a non-finite pose, and frames with a zero quaternion."""
    non_finite = ~np.isfinite(poses).all(axis=(1, 2))
    zero = (np.abs(np.where(np.isfinite(poses), poses, 1.0)[..., :4]) < 1e-9).all(axis=-1).any(axis=-1)
    return np.asarray(non_finite, bool), np.asarray(zero, bool)


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Half-open [start, stop) runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _check(e: Episode, *, jump_m: float, up_axis: int) -> tuple[Finding, ...]:
    out: list[Finding] = []
    name = f"{e.source}[{e.episode_id}]" if e.source else (e.episode_id or "episode")

    def add(code: str, found: str, expected: str, action: str) -> None:
        out.append(Finding(code, FINDINGS[code][0], name, found, expected, action))

    n = e.n_frames
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "poses": (e.poses.shape, (n, len(e.bodies), 7)),
        "time_s": (e.time_s.shape, (n,)),
        "valid": (e.valid.shape, (n,)),
    }
    for key, array in (("gripper_width_m", e.gripper_width_m), ("sub_task", e.sub_task)):
        if array is not None:
            shapes[key] = (array.shape, (n,))
    signals = [(f"signals[{name!r}]", array) for name, array in (e.signals or {}).items()]
    for key, array in (("joints", e.joints), ("actions", e.actions), *signals):
        if array is not None:
            shapes[key] = (array.shape, (n, *array.shape[1:2]))
    if e.half_size_m is not None:
        shapes["half_size_m"] = (e.half_size_m.shape, (len(e.bodies), 3))
    for key, (got, want) in shapes.items():
        if got != want:
            add("shape", f"{key} has shape {got}", f"{want}", "write the arrays with one row a frame")
    if out:
        return tuple(out)

    non_finite, zero = _bad_frames(e.poses)
    non_finite |= ~np.isfinite(e.time_s)
    valid = e.valid & ~non_finite & ~zero
    if not valid.any():
        add("no_valid_frame", f"0 of {n} frames are valid", "at least 2", "check the tracker or the mask")
        return tuple(out)
    if int(valid.sum()) < 2:
        add("too_few_frames", f"{int(valid.sum())} valid frame", "at least 2", "record the whole execution")
    if (bad := int((non_finite & e.valid).sum())) > 0:
        frame = int(np.flatnonzero(non_finite & e.valid)[0])
        add("non_finite_pose", f"{bad} frames (first {frame}) hold NaN or inf", "finite numbers", "marked invalid")
    if (bad := int((zero & e.valid & ~non_finite).sum())) > 0:
        frame = int(np.flatnonzero(zero & e.valid & ~non_finite)[0])
        add("zero_quaternion", f"{bad} frames (first {frame}) hold (0,0,0,0)", "unit quaternions", "marked invalid")

    poses, time_s = e.poses[valid], np.asarray(e.time_s, np.float64)[valid]
    frames = np.flatnonzero(valid)
    norms = np.linalg.norm(poses[..., :4], axis=-1)
    if (off := float(np.abs(norms - 1).max(initial=0.0))) > 1e-3:
        add("unnormalised_quaternion", f"length off by up to {off:.3g}", "unit quaternions", "normalised")
    if (far := float(np.abs(poses[..., 4:]).max(initial=0.0))) > 20.0:
        add("units", f"a position component of {far:.4g}", "metres", "divide by 1000 if these are millimetres")

    if time_s[0] != 0:
        add("epoch_time", f"time starts at {time_s[0]:.6g} s", "0 at the first frame", "rebased in float64")
    steps = np.diff(time_s)
    if steps.size and (steps <= 0).any():
        frame = int(frames[1:][steps <= 0][0])
        add(
            "time_not_increasing",
            f"{int((steps <= 0).sum())} steps repeat or go back (first at frame {frame})",
            "increasing seconds",
            "sort, split or drop those frames",
        )
    elif steps.size and (steps > max(10 * float(np.median(steps)), 0.5)).any():
        frame = int(frames[int(np.argmax(steps))])
        add("time_gap", f"{steps.max():.3g} s after frame {frame}", "an even rate", "scored as recorded")

    moved = np.linalg.norm(np.diff(poses[..., 4:], axis=0), axis=-1)  # [T-1, N]
    if moved.size and float(moved.max()) > jump_m:
        t, b = np.unravel_index(int(np.argmax(moved)), moved.shape)
        add(
            "pose_jump",
            f"{e.bodies[int(b)]} moves {moved[t, b]:.3g} m between frames {frames[int(t)]} and {frames[int(t) + 1]}",
            f"at most {jump_m} m",
            "split the recording or mark the lost frames invalid",
        )
    still = (np.diff(poses, axis=0) == 0).all(axis=(1, 2)) & (len(e.bodies) > 0)
    for a, b in _runs(still):
        span = float(time_s[b] - time_s[a])
        if span < FROZEN_S:
            continue
        where = f"frames {frames[a]}-{frames[b]} ({span:.2f} s) hold identical poses of every body"
        if b < len(moved) and float(moved[b].max()) > FROZEN_JUMP_M:
            jump = f"{where}, then {e.bodies[int(moved[b].argmax())]} jumps {moved[b].max():.3g} m"
            add("frozen_then_jump", jump, "a live track", "mark those frames invalid")
        else:
            add("frozen", where, "a live track", "a stall of the robot is scored as one")

    upright, other = _upright_share(poses, up_axis)
    if other - upright > 0.5:
        add(
            "quaternion_order",
            f"{upright:.0%} of the bodies that tell stand upright at the start as read, {other:.0%} in another order",
            "wxyz",
            "check the order that the source declares",
        )
    if not e.bodies:
        add("no_body", "joints alone", "poses of bodies", "forward kinematics of a named robot gives the tip's")
    if e.gripper_width_m is None:
        add("no_gripper_width", "no gripper width", "metres a frame", "record the sum of the finger joints")
    if e.success_at_end is None:
        add("success_unknown", "no success flag", "success_at_end", "the gate uses poses alone")
    return tuple(out)


def _upright_share(poses: np.ndarray, up_axis: int) -> tuple[float, float]:
    """Share of bodies with one axis along `up_axis` at the first frame: as read, and read in another order.

    Bodies resting on a table have a face down. The angle between successive quaternions is the same in either
    order, so continuity cannot tell them apart; gravity can. Only bodies that stand in one reading alone count.
    """

    def tilt_deg(wxyz: np.ndarray) -> np.ndarray:
        w, x, y, z = (wxyz / np.maximum(np.linalg.norm(wxyz, axis=-1, keepdims=True), 1e-12)).T
        rotation = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
        return np.degrees(np.arccos(np.minimum(np.abs(rotation[up_axis]).max(axis=0), 1.0)))

    first = poses[0, :, :4]
    as_read, best = tilt_deg(first), (1.0, 1.0)
    for order in ([3, 0, 1, 2], [1, 2, 3, 0]):  # xyzw taken for wxyz, and wxyz taken for xyzw
        swapped = tilt_deg(first[:, order])
        # stands within 3 deg in one reading and is off by over 15 in the other; half turns stand in any order
        stands, falls = (as_read < 3) & (swapped > 15), (swapped < 3) & (as_read > 15)
        if (n := int(stands.sum() + falls.sum())) > 0:
            shares = float(stands.sum() / n), float(falls.sum() / n)
            best = max(best, shares, key=lambda share: share[1] - share[0])
    return best


def _prepare(e: Episode) -> Episode:
    non_finite, zero = _bad_frames(e.poses)
    time_s = np.asarray(e.time_s, np.float64)
    valid = e.valid & ~non_finite & ~zero & np.isfinite(time_s)
    if not valid.any():
        return dataclasses.replace(e, valid=valid, poses=np.tile(IDENTITY_POSE, (*e.poses.shape[:2], 1)))
    first = int(np.argmax(valid))
    last_valid = np.maximum.accumulate(np.where(valid, np.arange(e.n_frames), first))
    poses = np.array(e.poses, np.float64)[last_valid]
    poses[..., :4] /= np.linalg.norm(poses[..., :4], axis=-1, keepdims=True)
    flips = np.sign(np.sum(poses[1:, :, :4] * poses[:-1, :, :4], axis=-1))
    sign = np.cumprod(np.concatenate([np.ones((1, flips.shape[1])), np.where(flips < 0, -1.0, 1.0)]), axis=0)
    poses[..., :4] *= sign[..., None]
    time_s = time_s[last_valid] - time_s[first]
    width = e.gripper_width_m
    if width is not None:
        width = np.asarray(width, np.float64)[last_valid]
    return dataclasses.replace(e, poses=poses, time_s=time_s, valid=valid, gripper_width_m=width)


IDENTITY_POSE = np.array([1.0, 0, 0, 0, 0, 0, 0])


@pytree
class EpisodeBatch:
    """Episodes of one padding bucket, padded at the end with ``valid = False``; what the metrics are vmapped over.

    ``gripper_width_m`` is NaN and ``success`` is -1 where unknown. ``rows`` are the episodes' table rows (host only).
    """

    poses: Float[np.ndarray, "B T N 7"]
    time_s: Float[np.ndarray, "B T"]
    valid: Bool[np.ndarray, "B T"]
    gripper_width_m: Float[np.ndarray, "B T"]
    success: Int[np.ndarray, " B"]  # 1, 0, or -1 for unknown
    joints: Float[np.ndarray, "B T Q"] | None = None  # only when asked for; NaN where not recorded
    signals: dict[str, Float[np.ndarray, "B T ..."]] = field(default_factory=dict)  # those that were asked for
    bodies: tuple[str, ...] = field(metadata=STATIC)

    @property
    def n_episodes(self) -> int:
        """Episodes of the batch."""
        return int(self.poses.shape[0])


def bucket_length(n_frames: int, *, smallest: int = 64) -> int:
    """Padding bucket of an episode: the power of two at or above its length, so that each bucket compiles once."""
    return max(smallest, 1 << max(0, int(n_frames) - 1).bit_length())


def pad_episodes(
    episodes: list[Episode] | tuple[Episode, ...],
    *,
    length: int | None = None,
    dtype: Any = np.float32,
    joints_n: int = 0,
    signals: tuple[str, ...] = (),
) -> EpisodeBatch:
    """Stack prepared episodes of the same bodies into one padded batch (poses of the padding repeat the last frame).

    ``joints_n`` joints of every episode come along if it is not 0, NaN for episodes that recorded none, and the
    ``signals`` of these names, which every episode must have.
    """
    bodies = episodes[0].bodies
    if any(e.bodies != bodies for e in episodes):
        raise ValueError(f"episodes of one batch must list the same bodies in the same order, got {bodies} and others")
    longest = max(e.n_frames for e in episodes)
    length = length or bucket_length(longest)
    if length < longest:
        raise ValueError(f"a batch of length {length} does not hold an episode of {longest} frames; use a longer one")
    index = np.minimum(np.arange(length), np.array([[e.n_frames - 1] for e in episodes]))
    real = np.arange(length) < np.array([[e.n_frames] for e in episodes])

    def take(get: Callable[[Episode], np.ndarray]) -> np.ndarray:
        return np.stack([get(e)[i] for e, i in zip(episodes, index, strict=True)])

    return EpisodeBatch(
        poses=take(lambda e: e.poses).astype(dtype),
        time_s=take(lambda e: e.time_s).astype(dtype),
        valid=take(lambda e: e.valid) & real,
        gripper_width_m=take(
            lambda e: np.full(e.n_frames, np.nan) if e.gripper_width_m is None else e.gripper_width_m
        ).astype(dtype),
        success=np.array([-1 if e.success_at_end is None else int(e.success_at_end) for e in episodes], np.int32),
        joints=None
        if not joints_n
        else take(lambda e: np.full((e.n_frames, joints_n), np.nan) if e.joints is None else e.joints).astype(dtype),
        signals={name: take(lambda e, name=name: e.signals[name]).astype(dtype) for name in signals},  # type: ignore[index]
        bodies=bodies,
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
class TaskSpec:
    """What the task is: bodies, ordered sub-tasks, and the terminal gate. Hashable, hence static under jit.

    ``manipulated`` and ``reference`` may be empty: they are then inferred from the demonstrations. ``frames`` maps a
    body to the named frame that stands for it in the (m | r) pair, such as peg -> peg_head.
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

    def body(self, name: str) -> Body:
        """Body of that name; KeyError lists those there are."""
        for b in self.bodies:
            if b.name == name:
                return b
        raise KeyError(f"task {self.name}: no body '{name}'; it declares {', '.join(b.name for b in self.bodies)}")


# ------------------------------------------------------------------------------------------------ the reference


@pytree
class Reference:
    """What was learned from demonstrations: nominal relative poses and how the demonstrations spread about them.

    The spread is kept as the demonstrations' own deviations, so that every threshold and floor can be changed when
    scoring, without the demonstrations.
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
