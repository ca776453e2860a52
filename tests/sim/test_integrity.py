"""The ParcelStow scene is honest, and each test of that can fail: it does on a scene that was broken on purpose.

A check runs on the scene as it is, and beside it on broken ones, where it has to say what is wrong. Docstrings of the
second kind say what was broken and what is seen.
"""

# ruff: noqa: E402
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from jaxeval.metrics.stages import StageParams
from jaxeval.policies.policy import Policy
from jaxeval.sim.mujoco.embodiment import Embodiment, load_embodiment
from jaxeval.sim.mujoco.environment import Environments, State
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW
from tests.sim import integrity as i

SCHEDULE = PARCEL_STOW.schedule

pytestmark = pytest.mark.sim
SLOW_G1 = ["panda", pytest.param("g1", marks=pytest.mark.slow)]


class Robot(NamedTuple):
    """An embodiment, the scene with it, its expert."""

    embodiment: Embodiment
    envs: Environments
    expert: Policy


@pytest.fixture(scope="module", params=["panda", "g1"])
def robot(request) -> Robot:
    embodiment = load_embodiment(request.param)
    return Robot(embodiment, Environments(PARCEL_STOW, embodiment), PARCEL_STOW.expert(embodiment))


@pytest.fixture(scope="module")
def stowed(robot) -> list[State]:
    return i.stowed(robot.envs, robot.expert)


def broken(robot: Robot, how: str) -> Environments:
    """The scene with the parcel welded to the hand, without gravity, with a weightless parcel, or with a spring."""
    if how == "sucked":
        return i.Sucking(PARCEL_STOW, robot.embodiment)
    change = {"welded": i.welded(robot.embodiment), "no gravity": i.no_gravity, "weightless": i.weightless}[how]
    return Environments(i.altered(change), robot.embodiment)


# --------------------------------------------------------------------------------------------------- what moves it


def test_nothing_ties_the_parcel(robot):
    i.check_nothing_ties_the_parcel(robot.envs.model)


@pytest.mark.parametrize(
    "how, says",
    [("welded", "an equality"), ("no gravity", "no weight"), ("weightless", "no weight")],
)
def test_a_tied_parcel_is_found_out(robot, how, says):
    """A weld to the hand added, gravity off, the parcel's weight compensated: an equality too many, no weight."""
    with pytest.raises(AssertionError, match=says):
        i.check_nothing_ties_the_parcel(broken(robot, how).model)


def test_only_contacts_and_weight_move_the_parcel(robot):
    i.check_only_contacts_and_weight_move_the_parcel(robot.envs, robot.expert)


@pytest.mark.parametrize(
    "how, says", [("welded", "force of"), ("sucked", "force of"), ("no gravity", "weight"), ("weightless", "force of")]
)
def test_a_force_from_elsewhere_is_found_out(robot, how, says):
    """A weld pulls with tens of newtons at the first step; a spring with some once the hand is 3 cm near;
    without gravity the weight is missing; with the parcel's weight compensated 1.18 N point upwards."""
    with pytest.raises(AssertionError, match=says):
        i.check_only_contacts_and_weight_move_the_parcel(broken(robot, how), robot.expert)


def test_the_parcel_falls_when_the_hand_opens(robot):
    i.check_falls_when_the_hand_opens(robot.envs, robot.expert)


@pytest.mark.parametrize("how", ["welded", "sucked", "no gravity", "weightless"])
def test_a_parcel_that_does_not_fall_is_found_out(robot, how):
    """Welded, sucked or without weight, the parcel is above .80 m .6 s after the hand has opened."""
    with pytest.raises(AssertionError, match=r"the parcel is at 0\.8.. m, the hand open"):
        i.check_falls_when_the_hand_opens(broken(robot, how), robot.expert)


@pytest.mark.parametrize("robot", ["panda"], indirect=True)  # the other hand's fingers reach below the parcel
def test_a_parcel_that_slips_out_of_a_closed_hand_is_found_out(robot):
    """Friction .05 in place of .5: the hand comes up without the parcel."""
    slippery = Environments(dataclasses.replace(PARCEL_STOW, friction=0.05), robot.embodiment)
    with pytest.raises(AssertionError, match="was not lifted"):
        i.check_falls_when_the_hand_opens(slippery, robot.expert)


def test_the_parcel_is_not_dragged_without_contact(robot):
    i.check_is_not_dragged_without_contact(robot.envs, robot.expert)


@pytest.mark.parametrize("how", ["welded", "sucked"])
def test_a_dragged_parcel_is_found_out(robot, how):
    """Welded to the open hand, or drawn to it by a spring, the parcel goes along to where the hand goes."""
    with pytest.raises(AssertionError, match="was dragged"):
        i.check_is_not_dragged_without_contact(broken(robot, how), robot.expert)


# ----------------------------------------------------------------------------------------------- what it runs into


def test_the_parcel_and_the_hand_collide_with_every_box(robot):
    i.check_collides_with_every_box(robot.envs)


@pytest.mark.parametrize("name", [box.name for box in PARCEL_STOW.boxes])
def test_a_box_that_lets_things_through_is_found_out(robot, name):
    """The contact bits of one box cleared: the parcel is in it and does not touch it."""
    ghostly = Environments(i.altered(i.ghostly(name)), robot.embodiment)
    with pytest.raises(AssertionError, match=f"the parcel does not touch {name}"):
        i.check_collides_with_every_box(ghostly)


def test_a_finger_that_goes_through_things_is_found_out(robot):
    """The contact bits of the first fingertip cleared: it would meet neither the parcel nor a wall."""

    def change(spec) -> None:
        for geom in spec.body(robot.embodiment.fingertips[0]).geoms:
            geom.contype = geom.conaffinity = 0

    with pytest.raises(AssertionError, match="a part of the hand does not touch the parcel"):
        i.check_collides_with_every_box(Environments(i.altered(change), robot.embodiment))


@pytest.mark.parametrize("robot", ["panda"], indirect=True)  # no robot takes part
def test_the_parcel_enters_only_where_there_is_room(robot):
    i.check_enters_only_where_there_is_room(robot.envs)


@pytest.mark.parametrize("robot", ["panda"], indirect=True)
@pytest.mark.parametrize(
    "change, says",
    [
        (i.moved("receptacle_top", 0.03 * i.UP), r"15.\] mm off it came to 0.090 m, expected -0.02 m"),
        (i.moved("receptacle_floor", -0.03 * i.UP), r"-15.\] mm off it came to 0.090 m, expected -0.02 m"),
        (i.moved("receptacle_side_a", -0.03 * i.ACROSS), r"42. -42. .* off it came to 0.090 m, expected -0.02 m"),
        (i.moved("receptacle_side_b", 0.03 * i.ACROSS), r"-42. +42. .* off it came to 0.090 m, expected -0.02 m"),
        (i.moved("receptacle_top", -0.005 * i.UP), r"8.\] mm off it came to -0.0.. m, expected 0.09 m"),
        (i.ghostly("receptacle_back"), r"0.\] mm off it came to 0.[1-9].. m, expected 0.09 m"),
    ],
)
def test_an_entrance_that_is_wider_or_narrower_is_found_out(robot, change, says):
    """Each wall in turn 3 cm further out: a parcel outside the clearance goes to the back. The top 5 mm down: one
    within the clearance does not. The back's contact bits cleared: the centred one goes through."""
    with pytest.raises(AssertionError, match=says):
        i.check_enters_only_where_there_is_room(Environments(i.altered(change), robot.embodiment))


# ----------------------------------------------------------------------------------------------- what is a success


@pytest.mark.parametrize("robot", SLOW_G1, indirect=True)
def test_only_a_well_aimed_stow_succeeds(robot):
    i.check_only_a_well_aimed_stow_succeeds(robot.envs)


@pytest.mark.parametrize("robot", SLOW_G1, indirect=True)
def test_a_stow_through_a_wider_entrance_is_found_out(robot):
    """The top 3 cm up: an expert that aims 3 cm too high puts the parcel in and succeeds."""
    wider = Environments(i.altered(i.moved("receptacle_top", 0.03 * i.UP)), robot.embodiment)
    with pytest.raises(AssertionError, match=r"30.\] mm and 0.00 rad off: success"):
        i.check_only_a_well_aimed_stow_succeeds(wider)


def test_a_stowed_parcel_counts_only_in_place(robot, stowed):
    i.check_a_stowed_parcel_counts_only_in_place(robot.envs, stowed)


@pytest.mark.parametrize(
    "params, says",
    [
        (StageParams(final_rad=1.0), "turned 12 deg, .*: success"),
        (StageParams(insert_depth_m=0.01), "turned 0 deg, .*: success"),
        (StageParams(final_rad=0.1), "turned 8 deg, .*: settled at a wrong orientation"),
    ],
)
def test_a_monitor_that_lets_things_pass_is_found_out(robot, stowed, params, says):
    """57 degrees allowed in place of 10, a depth of 1 cm in place of 4: a success each; 5.7 degrees: one too few."""
    with pytest.raises(AssertionError, match=says):
        i.check_a_stowed_parcel_counts_only_in_place(robot.envs, stowed, params)


# ------------------------------------------------------------------------------------------------ scoring and clocks


def test_scoring_changes_nothing(robot):
    states = []

    def score(state) -> None:
        states.append(state)
        if len(states) % 40 == 0:
            i.judged(i.recorded(states))

    i.check_scoring_changes_nothing(robot.envs, robot.expert, score)
    assert len(states) == SCHEDULE.steps(3.0)


@pytest.mark.parametrize("where", ["data", "signals"])
def test_a_score_that_writes_is_found_out(robot, where):
    """A scorer that damps the parcel by a thousandth; one that scales the recorded quaternions by a last bit."""

    def score(state) -> None:
        if where == "data":
            state.data[0].qvel[robot.envs.thing_dof] *= 0.999
        else:
            state.signals.object_pose[:, :4] = np.nextafter(state.signals.object_pose[:, :4], 2)

    says = {"data": "scoring changed the simulation", "signals": "object_pose differs"}[where]
    with pytest.raises(AssertionError, match=says):
        i.check_scoring_changes_nothing(robot.envs, robot.expert, score)


def test_every_episode_has_its_own_clock(robot):
    i.check_every_episode_has_its_own_clock(robot.envs)


@pytest.mark.parametrize("clock, says", [(i.FirstsClock, "r = 2.5: fraction"), (i.LastsEnd, "r = 3.0: done is False")])
def test_a_shared_clock_is_found_out(robot, clock, says):
    """The first episode's phases for all: the second is ahead one step into LIFT. The last one's end for all: the first
    is not done after its 445 steps."""
    shared = dataclasses.replace(PARCEL_STOW, schedule=clock(SCHEDULE.phases))
    with pytest.raises(AssertionError, match=says):
        i.check_every_episode_has_its_own_clock(Environments(shared, robot.embodiment))
