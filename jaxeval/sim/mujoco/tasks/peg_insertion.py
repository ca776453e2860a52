"""Peg insertion: pick a lying peg up, turn it upright by 90 degrees, and lower it into a hole with mm of room.

The first sister of ParcelStow. Published are its phases after the grasp and the cycle of 7.7 + 15.8 / r seconds; the
five phases up to the grasp are read as ParcelStow's, with which that sum comes out exactly and without a dwell before
the insertion. The geometry is ours:

- peg .16 x .04 x .04 m, .08 kg. It lies where ParcelStow's parcel lies, turned as that is;
- hole .045 m square and .06 m deep, 2.5 mm of room on every side, without a chamfer: a peg that has found it can lean
  by atan(5 / 60) = 5 deg at most, within the 10 deg of success. With 2 mm half of a G1's episodes at r = .5 jam, with 3
  mm none does at r = 3. Four walls of 20 mm on a base, top .80 m, .20 m from the start along ``AXIS``;
- the tip is 30 mm over the hole when the insertion begins and is brought 50 mm into it, 10 mm past the depth that
  counts and 10 mm short of the floor: let go of, the peg falls the rest.

Friction is ten times stiffer than in ParcelStow: with that task's, a peg held above its middle creeps in a Panda's jaws
until its tip is 2.5 mm off, all the room there is, when the insertion begins at r = .5; like this, .6 mm.

The hand holds the peg above its middle and ends behind it, pointing along ``AXIS``. World frame as ParcelStow's.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from jaxeval.metrics.stages import StageGeometry
from jaxeval.sim.mujoco.schedule import Phase, Schedule
from jaxeval.sim.mujoco.task import Box, Task, Thing
from jaxeval.sim.mujoco.tasks.parcel_stow import ACQUISITION, AXIS, R_START, R_STOW, TABLE, TABLE_TOP, pose, wall
from jaxeval.types import Symmetry

SCHEDULE = Schedule(
    (
        *ACQUISITION,
        Phase("LIFT", 2.4, True),
        Phase("REORIENT", 3.2, True),
        Phase("TRANSFER", 3.2, True),
        Phase("INSERT", 3.0, True),
        Phase("INSERT_DWELL", 0.8, True),
        Phase("RELEASE", 1.2, True),
        Phase("RETREAT", 2.0, True),
        Phase("SETTLE", 2.0, False),
    )
)
"""7.7 + 15.8 / r seconds."""

LENGTH, SIDE = 0.16, 0.04
"""Of the peg: along its x, which stands up at the end, and across."""
HELD_M = 0.02
"""How far beyond its middle the hand is to hold it: with the tip in the hole, that is 50 mm above the hole's top, and a
palm reaches 32 mm (Panda) or 37 mm (G1) to either side of the hand's middle."""
ROOM = 0.0025
HOLE, DEPTH, WALL, HOLE_TOP = SIDE + 2 * ROOM, 0.06, 0.02, 0.80
UP = np.array([0.0, 0.0, 1.0])
R_DOWN = R_START * Rotation.from_euler("y", np.pi / 2)
"""Of an entrance that one enters from above: its x points down."""
QUARTERS = Symmetry(
    "discrete", copies_wxyz=tuple((float(np.cos(a)), float(np.sin(a)), 0.0, 0.0) for a in np.pi / 4 * np.arange(4))
)
"""Of a square bar, one end of which goes first: turns by 90 degrees about its length."""
ACROSS = np.array([-AXIS[1], AXIS[0], 0.0])
START = np.array([0.35, 0.0, TABLE_TOP + SIDE / 2 + 0.001])
LIFTED = START + 0.12 * UP
ENTRANCE = np.array([*(START + 0.20 * AXIS)[:2], HOLE_TOP])
"""Middle of the hole's opening."""
ABOVE = ENTRANCE + (LENGTH / 2 + 0.03) * UP
INSERTED = ENTRANCE + (LENGTH / 2 - 0.05) * UP
TURNED = np.array([*(LIFTED + ABOVE)[:2] / 2, ABOVE[2]])
"""Half-way to the hole and as high as over it, where the reorientation ends: from there the peg is carried level."""


def _receptacle() -> tuple[Box, ...]:
    """Five fixed boxes: a base that stands on the table, and the hole's four walls on it."""
    off, outer, bottom = (HOLE + WALL) / 2, HOLE + 2 * WALL, HOLE_TOP - DEPTH
    middle = ENTRANCE - DEPTH / 2 * UP
    return (
        wall("base", np.array([*ENTRANCE[:2], (TABLE_TOP + bottom) / 2]), outer, outer, bottom - TABLE_TOP),
        wall("near", middle - off * AXIS, WALL, outer, DEPTH),
        wall("far", middle + off * AXIS, WALL, outer, DEPTH),
        wall("left", middle + off * ACROSS, HOLE, WALL, DEPTH),
        wall("right", middle - off * ACROSS, HOLE, WALL, DEPTH),
    )


def _hole() -> StageGeometry:
    """Inserted is the middle of the peg's lower end; turns by a quarter about its length are no error."""
    return StageGeometry(
        T_world_entrance=np.concatenate([R_DOWN.as_quat(scalar_first=True), ENTRANCE]),
        half_section_m=np.array([HOLE / 2, HOLE / 2]),
        interior_depth_m=DEPTH + 0.001,  # contacts give by a fraction of a millimetre
        goal_wxyz=R_STOW.as_quat(scalar_first=True),
        pre_insert_m=ABOVE,
        lift_z_m=START[2] + 0.04,
        point_m=np.array([-LENGTH / 2, 0.0, 0.0]),
        phases=SCHEDULE.names,
        symmetry=QUARTERS,
    )


PEG_INSERTION = Task(
    name="peg_insertion",
    schedule=SCHEDULE,
    boxes=(TABLE, *_receptacle()),
    thing=Thing("peg", (LENGTH, SIDE, SIDE), 0.08, pose(START, R_START)),
    friction=0.5,
    path={
        "LIFT": pose(LIFTED, R_START),
        "REORIENT": pose(TURNED, R_STOW),
        "TRANSFER": pose(ABOVE, R_STOW),
        "INSERT": pose(INSERTED, R_STOW),
    },
    retreat=-0.10 * AXIS,
    geometry=_hole(),
    seen_within_m=0.003,
    friction_stiffness=100.0,
)
