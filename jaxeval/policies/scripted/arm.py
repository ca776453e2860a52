"""Arms that oracles move: which kinematic model, which action, and how the hand's frame lies on the tip's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import RigidTransform, Rotation, Slerp

from jaxeval.robots import Robot, load_robot

AS_IT_IS = RigidTransform.identity()


@dataclass(frozen=True)
class Arm:
    """One robot of a simulator, as the oracles see it.

    ``robot``: name of its chain under ``jaxeval.robots``. ``tip_to_hand`` maps hand coordinates to the chain's tip's;
    the hand's z axis is the way it approaches, its y axis the way it closes, its origin where it holds: between the
    fingers, short of their ends by 9 mm (Panda, Fetch) or 17 mm (SO-100). ``action(joints, opening, seen)`` is the
    environment's action for arm joints and an opening between 0 (closed) and 1 (open), under joint position control,
    ``seen`` being all joints' measured positions by name. ``base`` and ``tip`` take the simulator's agent and give the
    poses of both ends of the chain. ``width`` is the gripper's opening from joint positions by name; by default the sum
    of the chain's gripper joints. ``takes(T_base_tip)`` is the pose nearest to one asked for (or to many) that the arm
    has joints for. ``room``: how far lifts and detours go, as a share of the Panda's. ``grip_s``: how long its gripper
    takes to close or open, likewise.
    """

    robot: str
    action: Callable[[Float[np.ndarray, " n"], float, Mapping[str, float]], Float[np.ndarray, " A"]]
    tip_to_hand: RigidTransform = AS_IT_IS
    base: Callable[[Any], Any] = lambda agent: agent.robot.pose
    tip: Callable[[Any], Any] = lambda agent: agent.tcp.pose
    width: Callable[[Mapping[str, float]], float] | None = None
    takes: Callable[[RigidTransform], RigidTransform] | None = None
    room: float = 1.0
    grip_s: float = 1.0

    def width_m(self, joints: Mapping[str, float]) -> float:
        """Opening of the gripper from joint positions by name."""
        if self.width is not None:
            return self.width(joints)
        return float(sum(joints[j] for j in self.chain().gripper_joints))

    def nearest(self, T_world_base: RigidTransform, T_world_hand: RigidTransform) -> RigidTransform:
        """The hand pose (or poses) nearest to those asked for that the arm has joints for, limits aside."""
        if self.takes is None:
            return T_world_hand
        tips = T_world_base.inv() * T_world_hand * self.tip_to_hand.inv()
        return T_world_base * self.takes(tips) * self.tip_to_hand

    def chain(self) -> Robot:
        """Its kinematics."""
        return load_robot(self.robot)


def axes(x: Sequence[float], y: Sequence[float], z: Sequence[float]) -> Rotation:
    """The rotation whose columns are these."""
    return Rotation.from_matrix(np.column_stack([x, y, z]))


# --------------------------------------------------------------------------------------------------------- the Panda


def _panda(joints: np.ndarray, opening: float, _: Mapping[str, float]) -> np.ndarray:
    return np.concatenate([joints, [2 * opening - 1]])


PANDA = Arm("panda", _panda)

# ------------------------------------------------------------------------------------------------------------- Fetch

FETCH_CLOSED_M, FETCH_OPEN_M = -0.01, 0.04
"""Where each finger is sent: past closed, for force; open as wide as the Panda's, of 0.05 m that it has."""


FETCH_BODY = {"head_pan_joint": 0.0, "head_tilt_joint": 0.0, "torso_lift_joint": 0.386}
"""Where head and torso stay, as the episode starts: each is sent from where it *is*, so that nothing else holds it."""
FETCH_BASE = {"root_x_axis_joint": 1.0, "root_z_rotation_joint": 3.14}
"""Full speed of the base, m/s and rad/s."""


def _fetch(joints: np.ndarray, opening: float, seen: Mapping[str, float]) -> np.ndarray:
    """Arm, gripper (its range scaled to -1..1), head and torso (times 0.1 from where they are), base (speeds)."""
    finger = FETCH_CLOSED_M + opening * (FETCH_OPEN_M - FETCH_CLOSED_M)
    body = [np.clip((stays - seen[j]) / 0.1, -1, 1) for j, stays in FETCH_BODY.items()]
    base = [np.clip(-2.0 * seen[j] / fastest, -1, 1) for j, fastest in FETCH_BASE.items()]
    return np.concatenate([joints, [(finger - 0.02) / 0.03], body, base])


FETCH = Arm(
    "fetch_arm",
    _fetch,
    # gripper_link's x points out of the gripper and its fingers end 31 mm before it; closing as the Panda's at rest
    tip_to_hand=RigidTransform.from_components([0.022, 0.0, 0.0], axes([0, 0, 1], [0, -1, 0], [1, 0, 0])),
    base=lambda agent: agent.torso_lift_link.pose,
)

# ------------------------------------------------------------------------------------------------------------ SO-100

SO100_CLOSED_RAD, SO100_OPEN_RAD = -1.1, 0.0
SO100_LEAD_RAD = ((-0.40, 0.15), (-0.485, 0.01), (-np.inf, 0.001))
"""Down to which angle the jaw is sent at most how far past where it is: free, from 54 mm between the tips on, and from
48 mm, where a 40 mm object is held. Its drive makes 1000 N m of a radian: the last is some 13 N, which holds without
pushing the object askew between jaws that are not parallel.
"""
SO100_PAN_M = np.array([0.0, -0.0452])
"""Where the vertical axis of the first joint stands in the base's frame."""


def _so100(joints: np.ndarray, opening: float, seen: Mapping[str, float]) -> np.ndarray:
    angle, now = SO100_CLOSED_RAD + opening * (SO100_OPEN_RAD - SO100_CLOSED_RAD), seen["gripper"]
    lead = next(lead for least, lead in SO100_LEAD_RAD if now > least)
    return np.concatenate([joints, [max(angle, now - lead)]])


def so100_width_m(joints: Mapping[str, float]) -> float:
    """Distance between the tips of the fixed and of the moving jaw, by the description's frames at both tips.

    The moving jaw turns about the fixed one's z axis, at (-20.2, -24.4) mm of its frame.
    """
    angle = -0.9 - joints["gripper"]
    c, s = np.cos(angle), np.sin(angle)
    x, y = 0.01, -0.073  # of the moving jaw's tip; its frame is turned over, so that x counts the other way
    at = np.array([-0.0202 + c * x - s * y, -0.0244 + s * x + c * y])
    return float(np.linalg.norm(at - [0.01, -0.097]))


def so100_takes(T_base_tip: RigidTransform) -> RigidTransform:
    """The jaw's direction turned into the vertical plane in which the arm reaches there; the grasp point stays.

    Five joints: shoulder pan chooses the plane, three more place and pitch the wrist in it, and the last rolls.
    """
    T = T_base_tip
    for _ in range(3):  # turning about the grasp point moves the wrist, and so the plane, a little
        towards = T.translation[..., :2] - SO100_PAN_M
        aside = np.stack([-towards[..., 1], towards[..., 0], 0 * towards[..., 0]], axis=-1)
        aside /= np.linalg.norm(aside, axis=-1, keepdims=True)
        out = -T.rotation.as_matrix()[..., :, 1]
        within = out - aside * np.sum(out * aside, axis=-1, keepdims=True)
        within /= np.linalg.norm(within, axis=-1, keepdims=True)
        turn = Rotation.from_rotvec(np.cross(out, within))  # small: its sine is its angle, and what is left is next
        hold = (T * SO100_HAND).translation
        T = RigidTransform.from_components(hold, turn * T.rotation * SO100_HAND.rotation) * SO100_HAND.inv()
    return T


# The fixed jaw points along its -y; the moving jaw comes from -x. 9 mm is where the fixed one's inside is: a 40 mm
# object is held 2 mm nearer to it than it is approached.
SO100_HAND = RigidTransform.from_components([-0.014, -0.089, 0.0], axes([0, 0, -1], [1, 0, 0], [0, -1, 0]))
SO100 = Arm(
    "so100_maniskill",
    _so100,
    tip_to_hand=SO100_HAND,
    tip=lambda agent: agent.finger1_link.pose,
    width=so100_width_m,
    takes=so100_takes,
    room=0.5,
    grip_s=2.5,
)

ARMS: dict[str, Arm] = {"panda": PANDA, "panda_wristcam": PANDA, "fetch": FETCH, "so100": SO100}
"""Arms by the simulator's name of the robot."""


def down(closing: Float[np.ndarray, "3"], at: Float[np.ndarray, "3"]) -> RigidTransform:
    """T_world_hand that points straight down at ``at`` and closes along the horizontal part of ``closing``."""
    return facing(np.array([0.0, 0.0, -1.0]), closing, at)


def facing(approach: np.ndarray, closing: np.ndarray, at: np.ndarray) -> RigidTransform:
    """T_world_hand that points along ``approach`` and closes along the part of ``closing`` square to it."""
    z = approach / np.linalg.norm(approach)
    y = closing - z * (closing @ z)
    y = y / np.linalg.norm(y)
    return RigidTransform.from_components(at, Rotation.from_matrix(np.column_stack([np.cross(y, z), y, z])))


def line(start: RigidTransform, goal: RigidTransform, shares: Float[np.ndarray, " S"]) -> RigidTransform:
    """Poses on the straight line from ``start`` (share 0) to ``goal`` (1), turning about one axis."""
    at = start.translation + shares[:, None] * (goal.translation - start.translation)
    turn = Slerp([0.0, 1.0], Rotation.concatenate([start.rotation, goal.rotation]))(shares)
    return RigidTransform.from_components(at, turn)


def rigid(pose: Float[np.ndarray, "*B 7"]) -> RigidTransform:
    """wxyz_xyz row, or rows -> transform, or transforms."""
    return RigidTransform.from_components(pose[..., 4:], Rotation.from_quat(pose[..., :4], scalar_first=True))


def row(T: RigidTransform) -> Float[np.ndarray, "*B 7"]:
    """Transform, or transforms -> wxyz_xyz row, or rows: the inverse of ``rigid``."""
    return np.concatenate([T.rotation.as_quat(scalar_first=True), T.translation], axis=-1)
