"""``PlaceCan-v1``: pick an upright can up and set it down upright in a tray."""

# pyright: reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import sapien
import torch
from mani_skill.envs.sapien_env import BaseEnv
from mani_skill.sensors.camera import CameraConfig
from mani_skill.utils import sapien_utils
from mani_skill.utils.registration import register_env
from mani_skill.utils.scene_builder.table import TableSceneBuilder
from mani_skill.utils.structs import Actor, Pose
from transforms3d.euler import euler2quat

Range = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Sizes of can and tray and where they start. Metres, world frame: z up, the table's top at z = 0."""

    radius: float
    """Of the can."""
    half_length: float
    """Of the can, along its axis."""
    inner_half: float
    """From the tray's centre to the inner face of a wall."""
    wall_height: float
    """Of a wall above the tray's floor."""
    can_x: Range
    can_y: Range
    tray_x: Range
    tray_y: Range
    eye: tuple[float, float, float]
    """Of both cameras, which see the scene from the side opposite the robot."""
    target: tuple[float, float, float]
    """What both cameras look at."""
    base_z: float | None = None
    """Height that the robot is put on, if the scene builder's is not right."""


ARM = Layout(
    radius=0.033,
    half_length=0.05,
    inner_half=0.08,
    wall_height=0.0225,
    can_x=(-0.12, -0.04),
    can_y=(-0.15, 0.15),
    tray_x=(0.03, 0.10),
    tray_y=(-0.12, 0.12),
    eye=(0.6, 0.5, 0.5),
    target=(-0.05, 0.0, 0.1),
)
"""For a Panda."""

FETCH = replace(
    ARM,
    can_x=(-0.48, -0.42),
    can_y=(-0.25, -0.12),
    tray_x=(-0.47, -0.42),
    tray_y=(0.0, 0.1),
    eye=(0.1, 0.5, 0.5),
    target=(-0.45, 0.0, 0.1),
)
"""The same nearer to the robot, which the table keeps away: with its hand pointing down Fetch reaches to x = -0.3."""

DESKTOP_ARM = Layout(
    radius=0.02,
    half_length=0.05,
    inner_half=0.05,
    wall_height=0.0135,
    can_x=(-0.58, -0.54),
    can_y=(-0.12, -0.07),
    tray_x=(-0.535, -0.505),
    tray_y=(0.0, 0.07),
    eye=(-0.15, 0.3, 0.3),
    target=(-0.52, 0.0, 0.05),
    base_z=0.11,
)
"""For an SO-100, whose first axis is at x = -0.68: all starts 0.12-0.19 m from it. The can is slimmer, for a gripper
that opens 80 mm at most, but as tall. The arm is put 11 cm up: else its grasp, pointing down, stays below 11 cm.
"""

LAYOUTS = {"so100": DESKTOP_ARM, "fetch": FETCH}

CAN_DENSITY = 440.0  # kg/m^3: the larger can weighs 0.15 kg, the smaller 0.055 kg
SHEET = 0.0025  # half the thickness of the tray's bottom and walls
GAP = 0.02  # least free space between can and tray at the start: room for a finger
MAX_YAW = np.deg2rad(30.0)  # of the tray
UPRIGHT = np.cos(np.deg2rad(5.0))
HEIGHT_TOLERANCE = 0.005
CONTACT_SLACK = 0.001  # a can that stands against a wall touches it up to this deep
ALONG_X_TO_Z = euler2quat(0.0, -np.pi / 2, 0.0)  # sapien's cylinders lie along x


@register_env("PlaceCan-v1", max_episode_steps=100)
class PlaceCanEnv(BaseEnv):
    """A can stands on the table beside a tray; the robot is to set it down upright in the tray.

    Bodies: ``can`` (dynamic; origin at its centre, z along its axis and up at the start) and ``tray`` (kinematic;
    origin at the centre of its bottom plate, z up).

    An episode draws the can's place and its yaw (full circle), the tray's place and its yaw (within 30 deg),
    uniformly over those layouts that leave 2 cm between the two.

    Success: the can stands upright (within 5 deg, top up) on the tray's floor (height within 5 mm), wholly inside the
    walls, at rest, and not grasped.
    """

    SUPPORTED_ROBOTS: ClassVar[list[str]] = ["panda", "panda_wristcam", "fetch", "so100"]
    SUPPORTED_REWARD_MODES = ("sparse", "none")

    def __init__(
        self, *args: Any, robot_uids: str = "panda", robot_init_qpos_noise: float = 0.02, **kwargs: Any
    ) -> None:
        self.robot_init_qpos_noise = robot_init_qpos_noise
        self.layout = LAYOUTS.get(robot_uids, ARM)
        super().__init__(*args, robot_uids=robot_uids, **kwargs)

    def body_half_sizes(self) -> dict[str, tuple[float, float, float]]:
        """Half extents (x, y, z), metres, of each body's bounding box along its own axes.

        The can's box is centred at its origin; the tray's begins ``SHEET`` below its origin.
        """
        outer = self.layout.inner_half + 2 * SHEET
        return {
            "can": (self.layout.radius, self.layout.radius, self.layout.half_length),
            "tray": (outer, outer, SHEET + self.layout.wall_height / 2),
        }

    # ------------------------------------------------------------------------------------------------- the scene

    @property
    def _default_sensor_configs(self) -> list[CameraConfig]:
        pose = sapien_utils.look_at(self.layout.eye, self.layout.target)
        return [CameraConfig("base_camera", pose, 512, 512, 1.0, 0.01, 100)]

    @property
    def _default_human_render_camera_configs(self) -> CameraConfig:
        pose = sapien_utils.look_at(self.layout.eye, self.layout.target)
        return CameraConfig("render_camera", pose, 512, 512, 1.0, 0.01, 100)

    def _load_agent(self, options: dict) -> None:
        super()._load_agent(options, sapien.Pose(p=[-0.615, 0, 0]))

    def _load_scene(self, options: dict) -> None:
        self.table_scene = TableSceneBuilder(self, robot_init_qpos_noise=self.robot_init_qpos_noise)
        self.table_scene.build()
        self.can = self._build_can()
        self.tray = self._build_tray()

    def _build_can(self) -> Actor:
        lay = self.layout
        builder = self.scene.create_actor_builder()
        axis = sapien.Pose(q=ALONG_X_TO_Z)
        builder.add_cylinder_collision(axis, lay.radius, lay.half_length, density=CAN_DENSITY)
        builder.add_cylinder_visual(
            axis, lay.radius, lay.half_length, material=sapien.render.RenderMaterial(base_color=[0.75, 0.1, 0.1, 1.0])
        )
        builder.initial_pose = sapien.Pose(p=[lay.can_x[0], lay.can_y[0], lay.half_length])
        return builder.build(name="can")

    def _build_tray(self) -> Actor:
        lay = self.layout
        builder = self.scene.create_actor_builder()
        outer = lay.inner_half + 2 * SHEET
        middle = lay.inner_half + SHEET  # of a wall's thickness
        high = lay.wall_height / 2
        boxes: list[tuple[list[float], list[float]]] = [([0, 0, 0], [outer, outer, SHEET])]  # centre, half extents
        for side in (-1, 1):
            boxes.append(([side * middle, 0, SHEET + high], [SHEET, outer, high]))
            boxes.append(([0, side * middle, SHEET + high], [outer, SHEET, high]))
        material = sapien.render.RenderMaterial(base_color=[0.2, 0.3, 0.6, 1.0])
        for centre, half in boxes:
            builder.add_box_collision(sapien.Pose(centre), half)
            builder.add_box_visual(sapien.Pose(centre), half, material=material)
        builder.initial_pose = sapien.Pose(p=[lay.tray_x[1], lay.tray_y[1], SHEET])
        return builder.build_kinematic(name="tray")

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict) -> None:
        # Drawn before the robot's joint noise, so that an episode's layout depends on its seed alone and not on how
        # many environments run beside it.
        drawn = np.stack([draw(self.layout, self._batched_episode_rng[i]) for i in env_idx.tolist()])
        with torch.device(self.device):
            self.table_scene.initialize(env_idx)
            if self.layout.base_z is not None:
                stand = self.agent.robot.pose
                p = stand.p.clone()
                p[:, 2] = self.layout.base_z
                self.agent.robot.set_pose(Pose.create_from_pq(p=p, q=stand.q))
            can_x, can_y, can_yaw, tray_x, tray_y, tray_yaw = torch.as_tensor(drawn, dtype=torch.float32).unbind(-1)
            self.can.set_pose(standing(can_x, can_y, self.layout.half_length, can_yaw))
            self.tray.set_pose(standing(tray_x, tray_y, SHEET, tray_yaw))

    # ------------------------------------------------------------------------------------------------- the outcome

    def evaluate(self) -> dict[str, torch.Tensor]:
        """``success`` and its parts, each bool of shape (environments,)."""
        can, tray = self.can.pose, self.tray.pose
        place = (tray.inv() * can).p
        reach = self.layout.inner_half - self.layout.radius + CONTACT_SLACK
        upright = 1 - 2 * (can.q[:, 1] ** 2 + can.q[:, 2] ** 2) >= UPRIGHT  # the z component of the can's own z
        on_floor = (place[:, 2] - SHEET - self.layout.half_length).abs() <= HEIGHT_TOLERANCE
        inside = (place[:, :2].abs() <= reach).all(dim=1)
        static = self.can.is_static(lin_thresh=1e-2, ang_thresh=0.5)
        grasped = self.agent.is_grasping(self.can)
        return {
            "is_can_upright": upright,
            "is_can_on_floor": on_floor,
            "is_can_inside": inside,
            "is_can_static": static,
            "is_can_grasped": grasped,
            "success": upright & on_floor & inside & static & ~grasped,
        }

    def _get_obs_extra(self, info: dict) -> dict[str, torch.Tensor]:
        seen = {"is_grasped": info["is_can_grasped"], "tcp_pose": self.agent.tcp_pose.raw_pose}
        if "state" in self.obs_mode:
            seen["can_pose"] = self.can.pose.raw_pose
            seen["tray_pose"] = self.tray.pose.raw_pose
        return seen


@register_env("PlaceCanFetch-v1", max_episode_steps=100)
class PlaceCanFetchEnv(PlaceCanEnv):
    """PlaceCan within Fetch's reach."""

    SUPPORTED_ROBOTS: ClassVar[list[str]] = ["fetch"]


@register_env("PlaceCanSO100-v1", max_episode_steps=100)
class PlaceCanSO100Env(PlaceCanEnv):
    """PlaceCan within an SO-100's reach."""

    SUPPORTED_ROBOTS: ClassVar[list[str]] = ["so100"]


def draw(layout: Layout, rng: np.random.RandomState) -> np.ndarray:
    """(6,): x, y, yaw of the can, then of the tray, metres and radians; drawn again until they are ``GAP`` apart."""
    low, high = np.transpose(
        [layout.can_x, layout.can_y, (-np.pi, np.pi), layout.tray_x, layout.tray_y, (-MAX_YAW, MAX_YAW)]
    )
    while True:
        drawn = rng.uniform(low, high)
        (x, y), yaw = drawn[:2] - drawn[3:5], drawn[5]
        in_tray = np.array([np.cos(yaw) * x + np.sin(yaw) * y, np.cos(yaw) * y - np.sin(yaw) * x])
        beyond = np.maximum(np.abs(in_tray) - (layout.inner_half + 2 * SHEET), 0.0)
        if np.hypot(*beyond) >= layout.radius + GAP:
            return drawn


def standing(x: torch.Tensor, y: torch.Tensor, height: float, yaw: torch.Tensor) -> Pose:
    """Poses (environments,) at ``height`` metres above the table, turned by ``yaw`` about the vertical."""
    zero = torch.zeros_like(yaw)
    p = torch.stack([x, y, torch.full_like(x, height)], dim=-1)
    q = torch.stack([torch.cos(yaw / 2), zero, zero, torch.sin(yaw / 2)], dim=-1)
    return Pose.create_from_pq(p=p, q=q)
