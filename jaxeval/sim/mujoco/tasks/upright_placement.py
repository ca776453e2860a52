"""Upright placement: pick a lying block up, turn it upright by 90 degrees, lower it onto a plate and let it stand.

The second sister of ParcelStow. Published are its phases after the grasp and the cycle of 6.7 + 14.8 / r seconds; the
five phases up to the grasp are read as ParcelStow's, with which that sum comes out exactly and without a dwell before
the lowering. The geometry is ours:

- block .15 x .05 x .05 m, .12 kg, the size of a slim bottle: it stands stably up to a tilt of atan(25 / 75) = 18 deg,
  and its width fits hands that are open for ParcelStow's parcel. It lies where that parcel lies, turned as that is;
- plate .10 m square, 40 mm high, .18 m from there along ``AXIS``: far enough that an open hand at the grasp does not
  touch it (its edge is 55 mm from the block's end), and as high as a G1 needs to keep .1 rad from its limits when it
  backs off. A block off the plate's middle by the tolerated 20 mm still stands on it wholly: 20 + 25 < 50 mm;
- 50 mm above the plate the lowering begins. The hand holds the block above its middle, so that the palm, level at the
  end, stays above the plate.

The hand ends behind the block, pointing along ``AXIS``, and backs off the same way. World frame as ParcelStow's.
"""

from __future__ import annotations

import numpy as np

from jaxeval.metrics.stages import StageGeometry, StageParams
from jaxeval.sim.mujoco.schedule import Phase, Schedule
from jaxeval.sim.mujoco.task import Task, Thing
from jaxeval.sim.mujoco.tasks.parcel_stow import ACQUISITION, AXIS, R_START, R_STOW, TABLE, TABLE_TOP, pose, wall
from jaxeval.sim.mujoco.tasks.peg_insertion import QUARTERS, R_DOWN, UP

SCHEDULE = Schedule(
    (
        *ACQUISITION,
        Phase("LIFT", 2.4, True),
        Phase("REORIENT", 3.2, True),
        Phase("TRANSFER", 3.2, True),
        Phase("LOWER", 2.0, True),
        Phase("PLACE_DWELL", 0.8, True),
        Phase("RELEASE", 1.2, True),
        Phase("RETREAT", 2.0, True),
        Phase("SETTLE", 1.0, False),
    )
)
"""6.7 + 14.8 / r seconds."""

LENGTH, SIDE = 0.15, 0.05
"""Of the block: along its x, which stands up at the end, and across."""
HELD_M = 0.02
"""How far beyond its middle the hand is to hold it: 95 mm above the plate at the end."""
PLATE, PLATE_HIGH = 0.10, 0.04
START = np.array([0.35, 0.0, TABLE_TOP + SIDE / 2 + 0.001])
LIFTED = START + 0.12 * UP
SPOT = np.array([*(START + 0.18 * AXIS)[:2], TABLE_TOP + PLATE_HIGH])
"""Middle of the plate."""
PLACED = SPOT + LENGTH / 2 * UP
ABOVE = PLACED + 0.05 * UP
TURNED = (LIFTED + ABOVE) / 2
"""Half-way to the pose before the lowering, where the reorientation ends."""
SPOT_M, STANDING_M = 0.02, 0.003
"""Tolerances: of the block's centre across, and of its height. A block that has fallen is 50 mm too low."""


def _placed() -> StageGeometry:
    """Inserted downwards: the least depth is reached ``STANDING_M`` above the height at which it stands."""
    least = float(StageParams().insert_depth_m)
    return StageGeometry(
        T_world_entrance=np.concatenate([R_DOWN.as_quat(scalar_first=True), PLACED + (least + STANDING_M) * UP]),
        half_section_m=np.array([SPOT_M, SPOT_M]),
        interior_depth_m=least + 2 * STANDING_M,
        goal_wxyz=R_STOW.as_quat(scalar_first=True),
        pre_insert_m=ABOVE,
        lift_z_m=START[2] + 0.04,
        phases=SCHEDULE.names,
        insert_phase="LOWER",
        symmetry=QUARTERS,
    )


UPRIGHT_PLACEMENT = Task(
    name="upright_placement",
    schedule=SCHEDULE,
    boxes=(
        TABLE,
        wall("plate", SPOT - PLATE_HIGH / 2 * UP, PLATE, PLATE, PLATE_HIGH),
    ),
    thing=Thing("block", (LENGTH, SIDE, SIDE), 0.12, pose(START, R_START)),
    friction=0.5,
    path={
        "LIFT": pose(LIFTED, R_START),
        "REORIENT": pose(TURNED, R_STOW),
        "TRANSFER": pose(ABOVE, R_STOW),
        "LOWER": pose(PLACED, R_STOW),
    },
    retreat=-0.10 * AXIS,
    geometry=_placed(),
    seen_within_m=0.003,
)
