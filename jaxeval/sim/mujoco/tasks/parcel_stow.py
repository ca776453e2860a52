"""ParcelStow: pick a parcel off a table, turn it by 90 degrees about its width, put it into a box open in front.

Numbers are those of the published task (Expert-learner comparison across execution speed, appendix A and its released
geometry): parcel .08 x .055 x .04 m, 10 mm of room on either side of its height in the receptacle, 55 mm on either side
of its width. World frame: the table's top at z = .70, the receptacle's axis ``d`` horizontal, 45 degrees left of x.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.metrics.stages import StageGeometry
from jaxeval.sim.mujoco.schedule import Phase, Schedule
from jaxeval.sim.mujoco.task import Box, Task, Thing

ACQUISITION = (
    Phase("PARK", 0.5, False),
    Phase("APPROACH", 2.5, False),
    Phase("PREGRASP_DWELL", 0.6, False),
    Phase("CLOSE", 1.5, False),
    Phase("GRASP_DWELL", 0.6, False),
)
SCHEDULE = Schedule(
    (
        *ACQUISITION,
        Phase("LIFT", 1.2, True),
        Phase("REORIENT", 1.6, True),
        Phase("TRANSFER", 1.6, True),
        Phase("PREINSERT_DWELL", 0.4, True),
        Phase("INSERT", 1.0, True),
        Phase("INSERT_DWELL", 0.4, True),
        Phase("RELEASE", 0.6, True),
        Phase("RETREAT", 1.0, True),
        Phase("SETTLE", 0.6, False),
    )
)
"""6.3 + 7.8 / r seconds."""

YAW = np.pi / 4
AXIS = np.array([np.cos(YAW), np.sin(YAW), 0.0])
"""``d``: from the entrance into the receptacle."""
R_START = Rotation.from_euler("z", YAW)
R_STOW = R_START * Rotation.from_euler("y", -np.pi / 2)
ENTRANCE = np.array([0.4914, 0.1414, 0.93])
"""Centre of the entrance plane."""
DEPTH, WIDTH, HEIGHT, WALL = 0.11, 0.165, 0.10, 0.02
"""Of the receptacle's interior (along the axis, across, upwards), and its walls' thickness."""
FLOOR_TOP, TABLE_TOP = 0.88, 0.70
TABLE = Box("table", (0.55, 0.0, 0.68), (0.81, 1.092, 0.04))
START = np.array([0.35, 0.0, 0.721])
LIFTED = START + np.array([0.0, 0.0, 0.12])
PRE_INSERT = ENTRANCE - 0.05 * AXIS
INSERTED = ENTRANCE + 0.06 * AXIS
TURNED = (LIFTED + PRE_INSERT) / 2
"""Half-way to the pose before insertion, where the reorientation ends."""


def wall(name: str, centre: np.ndarray, *size: float) -> Box:
    """A box of the receptacle, which is turned by ``YAW``."""
    x, y, z = centre.tolist()
    return Box(f"receptacle_{name}", (x, y, z), (size[0], size[1], size[2]), YAW)


def _receptacle() -> tuple[Box, ...]:
    """Five fixed boxes: a floor that stands on the table, a top, a back and two sides."""
    inner = ENTRANCE + DEPTH / 2 * AXIS
    side = (WIDTH + WALL) / 2 * np.array([np.sin(YAW), -np.cos(YAW), 0.0])
    up = np.array([0.0, 0.0, 1.0])
    floor = FLOOR_TOP - TABLE_TOP
    tall = HEIGHT + 2 * WALL
    return (
        wall("floor", inner + (FLOOR_TOP - floor / 2 - inner[2]) * up, DEPTH, WIDTH, floor),
        wall("top", inner + (HEIGHT + WALL) / 2 * up, DEPTH, WIDTH, WALL),
        wall("back", ENTRANCE + (DEPTH + WALL / 2) * AXIS, WALL, WIDTH + 2 * WALL, tall),
        wall("side_a", inner + side, DEPTH, WALL, tall),
        wall("side_b", inner - side, DEPTH, WALL, tall),
    )


pose = RigidTransform.from_components

PARCEL_STOW = Task(
    name="parcel_stow",
    schedule=SCHEDULE,
    boxes=(TABLE, *_receptacle()),
    thing=Thing("parcel", (0.08, 0.055, 0.04), 0.12, pose(START, R_START)),
    friction=0.5,
    path={
        "LIFT": pose(LIFTED, R_START),
        "REORIENT": pose(TURNED, R_STOW),
        "TRANSFER": pose(PRE_INSERT, R_STOW),
        "INSERT": pose(INSERTED, R_STOW),
    },
    retreat=-0.10 * AXIS,
    geometry=StageGeometry(
        T_world_entrance=np.concatenate([R_START.as_quat(scalar_first=True), ENTRANCE]),
        half_section_m=np.array([WIDTH / 2, HEIGHT / 2]),
        interior_depth_m=DEPTH,
        goal_wxyz=R_STOW.as_quat(scalar_first=True),
        pre_insert_m=PRE_INSERT,
        lift_z_m=0.76,
        phases=SCHEDULE.names,
    ),
    seen_within_m=0.003,
)
