"""``CloseDrawer-v1``: push an open drawer shut."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import sapien
import torch
from mani_skill.envs.sapien_env import BaseEnv
from mani_skill.sensors.camera import CameraConfig
from mani_skill.utils import sapien_utils
from mani_skill.utils.registration import register_env
from mani_skill.utils.scene_builder.table import TableSceneBuilder
from mani_skill.utils.structs import Articulation, Pose
from sapien.wrapper.articulation_builder import LinkBuilder

Box = tuple[tuple[float, float, float], tuple[float, float, float]]
"""Centre and half extents along the body's axes."""

# All lengths in metres. Cabinet and drawer have parallel axes: x out of the front, z up.
CABINET = (0.10, 0.10, 0.04)  # outer half extents
WALL = 0.004  # half the thickness of the cabinet's boards
PLATE = (0.005, 0.098, 0.036)  # half extents of the drawer's front plate, which lies before the cabinet's boards
HANDLE = (0.02, 0.04, 0.01)  # half extents of the bar on the middle of the plate
TRUNK = 0.18  # length of the drawer behind its plate
BOARD = 0.003  # half the thickness of the drawer's boards
PLAY = 0.002  # between drawer and cabinet, on each side
TRAVEL = 0.15  # of the joint
DAMPING = 20.0  # N s/m: a drawer let go of stops within a few millimetres
FRICTION = 0.05  # coefficient of the joint
CENTRE = (0.17, 0.0)  # of the cabinet on the table, before the draw
SHIFT = 0.05  # of the cabinet, either way, along x and along y
MAX_YAW = np.deg2rad(20.0)  # of the cabinet, away from facing the robot
OPENING = (0.08, 0.14)  # of the drawer at the start
CLOSED = 0.05  # share of the travel
REST = 0.01  # m/s

EYE, TARGET = (-0.45, 0.6, 0.55), (0.05, 0.0, 0.05)  # of the cameras: the drawer's front, past the arm


@register_env("CloseDrawer-v1", max_episode_steps=100)
class CloseDrawerEnv(BaseEnv):
    """A low cabinet faces the robot with its drawer pulled out; the robot is to push the drawer shut.

    One articulation, ``cabinet``. Its fixed root link ``cabinet`` has its origin at the centre of the box. Its link
    ``drawer`` has its origin at the centre of the front plate's outer face; a bar for a handle stands 40 mm out from
    there, so a gripper that points down meets the bar before its hand meets the cabinet. The prismatic
    ``drawer_joint`` reads 0 m when shut and opens along x to 0.15 m.

    An episode draws the cabinet's place (within 5 cm along x and y), its yaw (within 20 deg of facing the robot) and
    the opening (0.08-0.14 m), all uniformly.

    Success: the joint is within 5 % of its range from shut, and at rest.
    """

    SUPPORTED_ROBOTS: ClassVar[list[str]] = ["panda", "panda_wristcam", "fetch"]
    SUPPORTED_REWARD_MODES = ("sparse", "none")

    def __init__(
        self, *args: Any, robot_uids: str = "panda", robot_init_qpos_noise: float = 0.02, **kwargs: Any
    ) -> None:
        self.robot_init_qpos_noise = robot_init_qpos_noise
        super().__init__(*args, robot_uids=robot_uids, **kwargs)

    def body_half_sizes(self) -> dict[str, tuple[float, float, float]]:
        """Half extents (x, y, z), metres, of each body's bounding box along its own axes.

        The cabinet's box is centred at its origin; the drawer's reaches from its back to the handle's outer face,
        40 mm before the origin.
        """
        length = TRUNK + 2 * PLATE[0] + 2 * HANDLE[0]
        return {"cabinet": CABINET, "drawer": (length / 2, PLATE[1], PLATE[2])}

    # ------------------------------------------------------------------------------------------------- the scene

    @property
    def _default_sensor_configs(self) -> list[CameraConfig]:
        return [CameraConfig("base_camera", sapien_utils.look_at(EYE, TARGET), 512, 512, 1.0, 0.01, 100)]

    @property
    def _default_human_render_camera_configs(self) -> CameraConfig:
        return CameraConfig("render_camera", sapien_utils.look_at(EYE, TARGET), 512, 512, 1.0, 0.01, 100)

    def _load_agent(self, options: dict) -> None:
        super()._load_agent(options, sapien.Pose(p=[-0.615, 0, 0]))

    def _load_scene(self, options: dict) -> None:
        self.table_scene = TableSceneBuilder(self, robot_init_qpos_noise=self.robot_init_qpos_noise)
        self.table_scene.build()
        self.cabinet = self._build_cabinet()
        self.drawer = self.cabinet.links_map["drawer"]
        self.drawer_joint = self.cabinet.active_joints_map["drawer_joint"]
        self.drawer_joint.set_friction(FRICTION)  # the builder hands on the damping only

    def _build_cabinet(self) -> Articulation:
        builder = self.scene.create_articulation_builder()
        cabinet = builder.create_link_builder()
        cabinet.set_name("cabinet")
        add_boxes(cabinet, cabinet_boxes(), [0.55, 0.4, 0.25, 1.0])
        drawer = builder.create_link_builder(cabinet)
        drawer.set_name("drawer")
        drawer.set_joint_name("drawer_joint")
        shut = sapien.Pose([CABINET[0] + 2 * PLATE[0], 0, 0])  # the plate's outer face in the cabinet's frame
        drawer.set_joint_properties("prismatic", [[0.0, TRAVEL]], shut, sapien.Pose(), FRICTION, DAMPING)
        add_boxes(drawer, drawer_boxes(), [0.8, 0.7, 0.5, 1.0])
        builder.initial_pose = sapien.Pose([*CENTRE, CABINET[2]], [0, 0, 0, 1])
        return builder.build(name="cabinet", fix_root_link=True)

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict) -> None:
        # Drawn before the robot's joint noise, so that an episode's layout depends on its seed alone and not on how
        # many environments run beside it.
        x, y = CENTRE
        low = [x - SHIFT, y - SHIFT, np.pi - MAX_YAW, OPENING[0]]
        high = [x + SHIFT, y + SHIFT, np.pi + MAX_YAW, OPENING[1]]
        drawn = np.stack([self._batched_episode_rng[i].uniform(low, high) for i in env_idx.tolist()])
        with torch.device(self.device):
            self.table_scene.initialize(env_idx)
            x, y, yaw, opening = torch.as_tensor(drawn, dtype=torch.float32).unbind(-1)
            zero = torch.zeros_like(yaw)
            p = torch.stack([x, y, torch.full_like(x, CABINET[2])], dim=-1)
            q = torch.stack([torch.cos(yaw / 2), zero, zero, torch.sin(yaw / 2)], dim=-1)
            self.cabinet.set_pose(Pose.create_from_pq(p=p, q=q))
            self.cabinet.set_qpos(opening[:, None])
            self.cabinet.set_qvel(zero[:, None])

    # ------------------------------------------------------------------------------------------------- the outcome

    def evaluate(self) -> dict[str, torch.Tensor]:
        """``success``, its parts (bool) and ``drawer_opening`` (metres), each of shape (environments,)."""
        opening = self.drawer_joint.qpos.reshape(-1)
        closed = opening <= CLOSED * TRAVEL
        static = self.drawer_joint.qvel.reshape(-1).abs() <= REST
        return {
            "drawer_opening": opening,
            "is_drawer_closed": closed,
            "is_drawer_static": static,
            "success": closed & static,
        }

    def _get_obs_extra(self, info: dict) -> dict[str, torch.Tensor]:
        seen = {"tcp_pose": self.agent.tcp_pose.raw_pose}
        if "state" in self.obs_mode:
            seen["drawer_pose"] = self.drawer.pose.raw_pose
            seen["drawer_opening"] = info["drawer_opening"]
        return seen


def cabinet_boxes() -> list[Box]:
    """Bottom, top, two sides and back, in the cabinet's frame; the front is open."""
    x, y, z = CABINET
    boxes: list[Box] = [((WALL - x, 0, 0), (WALL, y, z))]
    for side in (-1, 1):
        boxes.append(((WALL, 0, side * (z - WALL)), (x - WALL, y, WALL)))
        boxes.append(((WALL, side * (y - WALL), 0), (x - WALL, WALL, z - 2 * WALL)))
    return boxes


def drawer_boxes() -> list[Box]:
    """Front plate, handle, bottom, two sides and back, in the drawer's frame; the plate is the fourth wall."""
    y, z = (CABINET[axis] - 2 * WALL - PLAY for axis in (1, 2))
    middle = -2 * PLATE[0] - TRUNK / 2
    boxes: list[Box] = [
        ((-PLATE[0], 0, 0), PLATE),
        ((HANDLE[0], 0, 0), HANDLE),
        ((middle, 0, BOARD - z), (TRUNK / 2, y, BOARD)),
        ((middle - TRUNK / 2 + BOARD, 0, BOARD), (BOARD, y, z - BOARD)),
    ]
    for side in (-1, 1):
        boxes.append(((middle + BOARD, side * (y - BOARD), BOARD), (TRUNK / 2 - BOARD, BOARD, z - BOARD)))
    return boxes


def add_boxes(link: LinkBuilder, boxes: list[Box], colour: list[float]) -> None:
    """Give a link its boxes, for contact and for the eye."""
    material = sapien.render.RenderMaterial(base_color=colour)
    for centre, half in boxes:
        link.add_box_collision(sapien.Pose(centre), half)
        link.add_box_visual(sapien.Pose(centre), half, material=material)
