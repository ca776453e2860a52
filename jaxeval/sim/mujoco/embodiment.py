"""An embodiment: a robot's MJCF (primitive geometry, inertias, limits) and the small file that says how a task uses it.

``embodiments/NAME.yaml`` beside ``embodiments/NAME.xml``. Lengths in metres, angles in radians, poses wxyz_xyz. Keys:

``mjcf``: file name. The MJCF holds the robot alone: bodies, joints (all hinge or slide, with ranges), inertias,
    ``damping``/``armature``/``frictionloss``, one site for the TCP, couplings of passive joints as ``<equality>
    <joint>``. It has one root body, no actuators, no free joint, no floor, no options, no keyframes: the task adds
    actuators from this file, options and scene. Names must not start with ``parcel``, ``receptacle`` or ``table``.
    What touches the parcel or the scene is a box or a capsule with ``contype="2" conaffinity="5"`` (the bits are
    ``HAND``, and ``PARCEL | SCENE``); every other geom has ``contype="0" conaffinity="0"``. The task sets the friction
    of all that touches, so that a contact's friction is the task's.
``T_world_base``: pose of the root body in the task's world (table top at z = .70, parcel at (.35, 0, .721)).
``why_there``: one sentence, why the base is there.
``gravity_compensation``: whether the robot holds its own weight (all its bodies get ``gravcomp="1"``).
``actuators``: list in the order of the action, each ``joint``, ``kp``, ``kd``, ``effort`` (N m or N, symmetric bound),
    ``scale`` (default .5: ``q_target = q_default + scale u``) and ``part``: ``arm`` for what inverse kinematics moves
    and the integral correction acts on (waist and arm), ``hand`` for what opens and closes.
``held`` (optional): list of ``joint``, ``kp``, ``kd``, ``effort``: drives that hold the default and are no part of the
    action (another arm, a neck). Joints with neither drive are passive.
``velocity_limits``: joint -> rad/s or m/s, for every joint of the MJCF, passive ones included.
``default``: joint -> position of the default posture, where PARK ends; joints not named are at 0. It is q_default, and
    (fingers) the open hand.
``fingertips``: bodies whose contact force with the parcel counts, the thumb or the opposing finger first.
``tcp``: name of the site that is the hand frame.
``grasps``: object name (``parcel``, ``peg``, ``block``) -> ``X_object_hand`` (pose of the TCP in the object's frame
    when it is held), ``closed`` (joint -> commanded position of the closed hand, for every actuated hand joint),
    ``approach`` (direction in the object's frame along which the hand comes, not necessarily of unit length),
    ``standoff_m`` (how far back along it the hand waits), ``found`` (how the grasp was found: the search's bounds,
    its criterion, the result).
``notes``: free text, what deviates from published figures and why.

The object's frame: origin at its centre, axes along its extents; the parcel's are .08 (x) x .055 (y) x .04 (z), the
peg's .16 x .04 x .04, the block's .15 x .05 x .05, and when it lies on the table its z is up and its x is 45 degrees
left of the world's.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from jaxtyping import Float

from jaxeval.types import InputError

if TYPE_CHECKING:
    import mujoco

PARCEL, HAND, SCENE = 1, 2, 4
"""Contact bits: what is handled, the hand, table and receptacle. Each collides with the other two, none with itself."""

FOLDER = Path(__file__).parent / "embodiments"


@dataclass(frozen=True)
class Actuator:
    """One position (PD) drive: ``force = kp (target - q) - kd qd``, bounded by ``effort``.

    ``part`` is ``arm``, ``hand`` (``target = default + scale u``) or ``held`` (``target = default``).
    """

    joint: str
    kp: float
    kd: float
    effort: float
    part: str = "held"
    scale: float = 0.5


@dataclass(frozen=True)
class Grasp:
    """How one object is held: the hand's pose in its frame, the closed hand, and from where the hand comes."""

    X_object_hand: Float[np.ndarray, "7"]
    closed: Mapping[str, float]
    approach: Float[np.ndarray, "3"]
    standoff_m: float
    found: str


@dataclass(frozen=True)
class Embodiment:
    """A robot as a task uses it; see this module's text for what each part means.

    ``joints`` are those of the MJCF, in its order (Q); arrays over joints are in this order, over actuators (A) in the
    order of ``actuators``, over fingertips (F) in the order of ``fingertips``. ``held`` drives are no actuators.
    ``couplings`` are (joint, driver, coefficients): ``q = c0 + c1 driver + c2 driver^2 + ...``.
    """

    name: str
    mjcf: Path
    T_world_base: Float[np.ndarray, "7"]
    gravity_compensation: bool
    actuators: tuple[Actuator, ...]
    joints: tuple[str, ...]
    default: Float[np.ndarray, " Q"]
    velocity_limit: Float[np.ndarray, " Q"]
    joint_range: Float[np.ndarray, "Q 2"]
    is_slide: np.ndarray
    couplings: tuple[tuple[int, int, tuple[float, ...]], ...]
    fingertips: tuple[str, ...]
    tcp: str
    grasps: Mapping[str, Grasp]
    held: tuple[Actuator, ...] = ()
    notes: str = ""

    def mjspec(self) -> mujoco.MjSpec:
        """A fresh MjSpec of the robot alone at its base, with its drives (actuators first, then held)."""
        import mujoco

        mjspec = mujoco.MjSpec.from_file(str(self.mjcf))
        root = mjspec.worldbody.first_body()
        root.quat, root.pos = self.T_world_base[:4], self.T_world_base[4:]
        for body in mjspec.bodies[1:]:
            body.gravcomp = float(self.gravity_compensation)
        for a in self.actuators + self.held:
            low, high = mjspec.joint(a.joint).range
            drive = mjspec.add_actuator(name=a.joint, target=a.joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            drive.set_to_position(kp=a.kp, kv=a.kd)
            drive.ctrllimited, drive.ctrlrange = True, [low, high]
            drive.forcelimited, drive.forcerange = True, [-a.effort, a.effort]
        return mjspec

    def jittered(self, offsets: Float[np.ndarray, " Q"]) -> Float[np.ndarray, " Q"]:
        """The default posture with driven hinge joints moved by ``offsets``, within limits; passive ones as coupled."""
        driven = {a.joint for a in self.actuators + self.held if not self.is_slide[self.joints.index(a.joint)]}
        q = self.default + np.where([j in driven for j in self.joints], offsets, 0.0)
        q = np.clip(q, self.joint_range[:, 0], self.joint_range[:, 1])
        for joint, driver, coefficients in self.couplings:
            q[joint] = sum(c * q[driver] ** k for k, c in enumerate(coefficients))
        return q

    @cached_property
    def actuated(self) -> np.ndarray:
        """Index into ``joints`` of every actuator's joint, ``[A]``."""
        return np.array([self.joints.index(a.joint) for a in self.actuators])

    @cached_property
    def is_arm(self) -> np.ndarray:
        """Which actuators belong to the arm (waist included), ``[A]`` bool."""
        return np.array([a.part == "arm" for a in self.actuators])

    @cached_property
    def scale(self) -> np.ndarray:
        """``q_target = default + scale u``, ``[A]``."""
        return np.array([a.scale for a in self.actuators])

    def target(self, action: Float[Any, "*B A"]) -> Float[Any, "*B A"]:
        """Commanded positions of the actuated joints. NumPy or JAX."""
        return self.default[self.actuated] + self.scale * action

    def action(self, target: Float[Any, "*B A"]) -> Float[Any, "*B A"]:
        """The action that commands ``target``: the inverse of ``Embodiment.target``. NumPy or JAX."""
        return (target - self.default[self.actuated]) / self.scale

    def closed(self, grasp: str) -> Float[np.ndarray, " A"]:
        """Commanded positions of the actuated joints with the hand closed, the arm's at the default."""
        q = self.default[self.actuated].copy()
        for i, a in enumerate(self.actuators):
            q[i] = self.grasps[grasp].closed.get(a.joint, q[i])
        return q


def embodiment_names() -> list[str]:
    """Names that ``load_embodiment`` takes."""
    return sorted(p.stem for p in FOLDER.glob("*.yaml"))


def path_of(name: str | Path) -> Path:
    """The description of that name, or a file of yours (a path ending in .yaml); InputError lists those there are."""
    path = Path(name).expanduser() if str(name).endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise InputError(f"embodiment '{name}': there is none; expected one of {', '.join(embodiment_names())}")
    return path


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not readable as YAML ({' '.join(str(error).split())}); correct the file") from error


def load_embodiment(name: str | Path) -> Embodiment:
    """The embodiment of that name, or of a description file of yours (a path ending in .yaml).

    Raises:
        InputError: no such embodiment, a key is missing or unknown, or description and MJCF do not fit.
    """
    path = path_of(name)
    described = _read(path)
    _keys(path, "", described, REQUIRED, OPTIONAL)
    try:
        return _described(path, described)
    except InputError:
        raise
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: a value is not of the kind expected ({error}); compare with panda.yaml") from error


def _described(path: Path, described: Any) -> Embodiment:
    import mujoco

    for i, a in enumerate(described["actuators"]):
        _keys(path, f"actuators[{i}].", a, {"joint", "kp", "kd", "effort", "part"}, {"scale"})
        if a["part"] not in ("arm", "hand"):
            raise InputError(f"{path}: 'actuators[{i}].part' is {a['part']!r}; expected 'arm' or 'hand'")
    for i, a in enumerate(described.get("held", [])):
        _keys(path, f"held[{i}].", a, {"joint", "kp", "kd", "effort"}, set())
    for key, g in described["grasps"].items():
        _keys(path, f"grasps.{key}.", g, {"X_object_hand", "closed", "approach", "standoff_m", "found"}, set())
    try:
        mjspec = mujoco.MjSpec.from_file(str(path.with_name(described["mjcf"])))
    except (ValueError, FileNotFoundError) as error:
        raise InputError(f"{path}: its MJCF '{described['mjcf']}' cannot be read: {error}") from error
    joints = tuple(j.name for j in mjspec.joints)
    _known(path, "velocity_limits", described["velocity_limits"], joints)
    _known(path, "default", described["default"], joints)
    _known(path, "actuators", [a["joint"] for a in described["actuators"]], joints)
    _known(path, "held", [a["joint"] for a in described.get("held", [])], joints)
    _known(path, "fingertips", described["fingertips"], [b.name for b in mjspec.bodies])
    _known(path, "tcp", [described["tcp"]], [s.name for s in mjspec.sites])
    hand = [a["joint"] for a in described["actuators"] if a["part"] == "hand"]
    for key, g in described["grasps"].items():
        _known(path, f"grasps.{key}.closed", g["closed"], hand)
    if missing := [j for j in joints if j not in described["velocity_limits"]]:
        raise InputError(f"{path}: 'velocity_limits' lacks {', '.join(missing)}; give the limit of every joint")
    return Embodiment(
        name=path.stem,
        mjcf=path.with_name(described["mjcf"]),
        T_world_base=_pose(path, "T_world_base", described["T_world_base"]),
        gravity_compensation=bool(described["gravity_compensation"]),
        actuators=tuple(Actuator(**a) for a in described["actuators"]),
        joints=joints,
        default=np.array([float(described["default"].get(j, 0.0)) for j in joints]),
        velocity_limit=np.array([float(described["velocity_limits"][j]) for j in joints]),
        joint_range=np.array([j.range for j in mjspec.joints]),
        is_slide=np.array([j.type == mujoco.mjtJoint.mjJNT_SLIDE for j in mjspec.joints]),
        couplings=tuple(
            (joints.index(e.name1), joints.index(e.name2), tuple(float(c) for c in e.data[:5]))
            for e in mjspec.equalities
            if e.type == mujoco.mjtEq.mjEQ_JOINT
        ),
        fingertips=tuple(described["fingertips"]),
        tcp=described["tcp"],
        grasps={
            key: Grasp(
                _pose(path, f"grasps.{key}.X_object_hand", g["X_object_hand"]),
                {joint: float(q) for joint, q in g["closed"].items()},
                np.array(g["approach"], float),
                float(g["standoff_m"]),
                g["found"],
            )
            for key, g in described["grasps"].items()
        },
        held=tuple(Actuator(**a) for a in described.get("held", [])),
        notes=described.get("notes", ""),
    )


REQUIRED = {
    "mjcf",
    "T_world_base",
    "why_there",
    "gravity_compensation",
    "actuators",
    "velocity_limits",
    "default",
    "fingertips",
    "tcp",
    "grasps",
}
OPTIONAL = {"held", "notes"}


def _keys(path: Path, where: str, described: Any, required: set[str], optional: set[str]) -> None:
    found = set(described) if isinstance(described, Mapping) else set()
    if wrong := sorted(required - found) or sorted(found - required - optional):
        state = "is missing" if required - found else "is not known"
        raise InputError(f"{path}: key '{where}{wrong[0]}' {state}; expected {', '.join(sorted(required | optional))}")


def _known(path: Path, where: str, names: Any, known: Any) -> None:
    if wrong := [n for n in names if n not in known]:
        raise InputError(
            f"{path}: '{where}' names '{wrong[0]}', which the MJCF does not have; it has {', '.join(known)}"
        )


def _pose(path: Path, where: str, described: Any) -> Float[np.ndarray, "7"]:
    pose = np.array(described, float)
    length = np.linalg.norm(pose[:4]) if pose.shape == (7,) else 0.0
    if abs(length - 1) > 1e-4:
        raise InputError(
            f"{path}: '{where}' is {described}; expected seven numbers, a unit quaternion (w, x, y, z) and a position"
        )
    pose[:4] /= length
    return pose
