"""``StackCubeFetch-v1`` and ``StackCubeSO100-v1``: ManiSkill's StackCube where these arms reach it from above.

Cubes, table and success are those of ``StackCube-v1``; only where the cubes start is the arm's own. There, they lie up
to 1.2 m from Fetch, which the table keeps away and which reaches 0.7 m with its hand pointing down, and 0.7 m from an
SO-100, which reaches 0.3 m.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from mani_skill.envs.tasks.tabletop.stack_cube import StackCubeEnv
from mani_skill.utils.registration import register_env
from mani_skill.utils.structs import Pose


@dataclass(frozen=True)
class Sector:
    """Where cubes start: a piece of a ring on the table. Metres and radians, world frame, angles from x."""

    centre_x: float
    """Of the ring; where the arm's first, vertical axis stands."""
    radius: tuple[float, float]
    half_angle: float
    base_z: float | None = None
    """Height that the robot is put on, if the scene builder's is not right."""


FETCH = Sector(-1.017, (0.57, 0.67), np.deg2rad(20))
SO100 = Sector(-0.68, (0.13, 0.20), np.deg2rad(50), base_z=0.11)
"""On a block 11 cm high: with its hand pointing down and no block, it cannot lift its grasp above 11 cm."""

HALF = 0.02  # of a cube's edge
APART = 2 * (np.hypot(HALF, HALF) + 0.001)  # least distance of centres, as StackCube-v1 has it


class StackCubeReachEnv(StackCubeEnv):
    """StackCube with cubes in a `Sector`: ``cubeA`` and ``cubeB`` uniform over it, each turned by any angle."""

    sector: ClassVar[Sector]

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict) -> None:
        # Drawn before the robot's joint noise, so that an episode's layout depends on its seed alone.
        drawn = np.stack([draw(self.sector, self._batched_episode_rng[i]) for i in env_idx.tolist()])
        with torch.device(self.device):
            self.table_scene.initialize(env_idx)
            if self.sector.base_z is not None:
                self.agent.robot.set_pose(raised(self.agent.robot.pose, self.sector.base_z))
            for cube, at in zip((self.cubeA, self.cubeB), drawn.swapaxes(0, 1), strict=True):
                x, y, yaw = torch.as_tensor(at, dtype=torch.float32).unbind(-1)
                zero = torch.zeros_like(yaw)
                p = torch.stack([x, y, torch.full_like(x, HALF)], dim=-1)
                q = torch.stack([torch.cos(yaw / 2), zero, zero, torch.sin(yaw / 2)], dim=-1)
                cube.set_pose(Pose.create_from_pq(p=p, q=q))

    def _get_obs_extra(self, info: dict) -> dict[str, Any]:
        return {"tcp_pose": self.agent.tcp_pose.raw_pose}


@register_env("StackCubeFetch-v1", max_episode_steps=100)
class StackCubeFetchEnv(StackCubeReachEnv):
    """StackCube within Fetch's reach."""

    SUPPORTED_ROBOTS: ClassVar[list[str]] = ["fetch"]
    sector = FETCH


@register_env("StackCubeSO100-v1", max_episode_steps=100)
class StackCubeSO100Env(StackCubeReachEnv):
    """StackCube within an SO-100's reach."""

    SUPPORTED_ROBOTS: ClassVar[list[str]] = ["so100"]
    sector = SO100


def draw(sector: Sector, rng: np.random.RandomState) -> np.ndarray:
    """(2, 3): x, y, yaw of either cube; drawn again until they are ``APART``."""
    low, high = sector.radius
    while True:
        u = rng.uniform(size=(2, 3))
        radius = np.sqrt(low**2 + u[:, 0] * (high**2 - low**2))  # uniform over the area
        angle = sector.half_angle * (2 * u[:, 1] - 1)
        x, y = sector.centre_x + radius * np.cos(angle), radius * np.sin(angle)
        if np.hypot(x[0] - x[1], y[0] - y[1]) >= APART:
            return np.stack([x, y, 2 * np.pi * u[:, 2]], axis=1)


def raised(pose: Pose, z: float) -> Pose:
    """The same poses, at another height."""
    p = pose.p.clone()
    p[:, 2] = z
    return Pose.create_from_pq(p=p, q=pose.q)
