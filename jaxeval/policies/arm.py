"""Arms that oracles move: which kinematic model, which action, and how the hand's frame lies on the tip's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.robots import Robot, load_robot


@dataclass(frozen=True)
class Arm:
    """One robot of a simulator, as the oracles see it.

    ``robot``: name of its chain under ``jaxeval.robots``. ``tip_to_hand`` maps hand coordinates to the chain's tip's;
    the hand's z axis is the way it approaches and its y axis the way it closes. ``action(joints, opening)`` is the
    environment's action for arm joints and an opening between 0 (closed) and 1 (open), under joint position control.
    ``base`` and ``tip`` take the simulator's agent and give the poses of both ends of the chain.
    """

    robot: str
    action: Callable[[Float[np.ndarray, " n"], float], Float[np.ndarray, " A"]]
    open_m: float
    tip_to_hand: RigidTransform = RigidTransform.identity()
    base: Callable[[Any], Any] = lambda agent: agent.robot.pose
    tip: Callable[[Any], Any] = lambda agent: agent.tcp.pose

    def width_m(self, joints: Mapping[str, float]) -> float:
        """Opening of the gripper from joint positions by name."""
        return float(sum(joints[j] for j in self.chain().gripper_joints))

    def chain(self) -> Robot:
        """Its kinematics."""
        return load_robot(self.robot)


def _panda(joints: np.ndarray, opening: float) -> np.ndarray:
    return np.concatenate([joints, [2 * opening - 1]])


PANDA = Arm("panda", _panda, open_m=0.08)
ARMS: dict[str, Arm] = {"panda": PANDA, "panda_wristcam": PANDA}
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


def rigid(pose: Float[np.ndarray, "7"]) -> RigidTransform:
    """wxyz_xyz row -> transform."""
    return RigidTransform.from_components(pose[4:], Rotation.from_quat(pose[:4], scalar_first=True))


def row(T: RigidTransform) -> Float[np.ndarray, "7"]:
    """Transform -> wxyz_xyz row."""
    return np.concatenate([T.rotation.as_quat(scalar_first=True), T.translation])
