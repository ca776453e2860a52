"""The two sister tasks of ParcelStow: their schedules, what their geometry lets through, and their experts."""

# ruff: noqa: E402
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.metrics.stages import Cause, StageParams, monitor, stack_signals
from jaxeval.policies.policy import episode_key
from jaxeval.policies.scripted.arm import rigid
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.environment import Environments, run
from jaxeval.sim.mujoco.tasks.named import PEG_INSERTION, UPRIGHT_PLACEMENT, load_mujoco_task, mujoco_task_names
from jaxeval.types import InputError

pytestmark = pytest.mark.sim
TABLE_TOP = 0.70
PEG_LENGTH, DEPTH, ROOM = 0.16, 0.06, 0.0025
"""Of the peg and its hole: 2.5 mm of room on every side."""
SPOT_M = 0.02
INSERTED, PLACED = PEG_INSERTION.path["INSERT"].translation, UPRIGHT_PLACEMENT.path["LOWER"].translation
SISTERS = (PEG_INSERTION, UPRIGHT_PLACEMENT)
BEYOND = {"peg_insertion": 8.0, "upright_placement": 16.0}


@cache
def environments(task_name, embodiment):
    return Environments(load_mujoco_task(task_name), load_embodiment(embodiment))


@jax.jit
def judge(batch, geometry):
    return jax.vmap(lambda s: monitor(s, geometry=geometry, params=StageParams()))(batch)


def judged(task, stages):
    return jax.tree.map(np.asarray, judge(stack_signals(stages), task.geometry))


# ------------------------------------------------------------------------------------------------------- schedule


@pytest.mark.parametrize(
    "task, speed, steps",
    [  # peg: 50 (7.7 + 15.8 / r); upright: 50 (6.7 + 14.8 / r), rounded up
        (PEG_INSERTION, 0.5, 1965),
        (PEG_INSERTION, 1.0, 1175),
        (PEG_INSERTION, 1.5, 912),
        (UPRIGHT_PLACEMENT, 0.5, 1815),
        (UPRIGHT_PLACEMENT, 1.0, 1075),
        (UPRIGHT_PLACEMENT, 1.5, 829),
    ],
)
def test_episodes_last_as_long_as_published(task, speed, steps):
    assert task.schedule.steps(speed) == steps


@pytest.mark.parametrize(
    "task, ends",
    [  # at r = 2: 5.7 s up to the grasp, then half of LIFT 2.4, REORIENT 3.2, TRANSFER 3.2 s, ...; SETTLE as it is
        (PEG_INSERTION, [25, 150, 180, 255, 285, 345, 425, 505, 580, 600, 630, 680, 780]),
        (UPRIGHT_PLACEMENT, [25, 150, 180, 255, 285, 345, 425, 505, 555, 575, 605, 655, 705]),
    ],
)
def test_phases_end_where_their_durations_add_up_to(task, ends):
    np.testing.assert_allclose(task.schedule.durations(2.0).cumsum(), ends)
    assert task.schedule.steps(2.0) == ends[-1]


# ------------------------------------------------------------------------------------------------------- geometry


def touching(task, pose):
    """Deepest overlap of the object there with the receptacle, metres; 0 for none."""
    envs = environments(task.name, "panda")
    model, data = envs.model, mujoco.MjData(envs.model)
    data.qpos[envs.thing_qpos :][:7] = [*pose.translation, *pose.rotation.as_quat(scalar_first=True)]
    mujoco.mj_forward(model, data)
    pairs = [(d.dist, model.geom(g).name) for d in data.contact for g in d.geom if envs.thing in d.geom]
    return max([-dist for dist, name in pairs if name.startswith("receptacle")], default=0.0)


def let_go(task, pose, seconds=2.0):
    """Where the object comes to lie that starts there at rest, the robot far and still."""
    envs = environments(task.name, "panda")
    state = envs.reset([episode_key(0, 0)], 1.0)
    state.data[0].qpos[envs.thing_qpos :][:7] = [*pose.translation, *pose.rotation.as_quat(scalar_first=True)]
    for _ in range(int(50 * seconds)):
        state = envs.step(state, np.zeros((1, 8)))
    assert np.abs(state.signals.object_velocity).max() < 0.01
    return rigid(state.signals.object_pose[0])


def held(task, *, off=(0.0, 0.0, 0.0), turned_deg=(0.0, 0.0, 0.0)):
    """The pose at the end of the path, moved and then turned about its lower end in its own frame (x is up)."""
    goal = list(task.path.values())[-1]
    tip = RigidTransform.from_translation([-task.thing.size[0] / 2, 0, 0])
    turn = RigidTransform.from_rotation(Rotation.from_rotvec(turned_deg, degrees=True))
    return goal * RigidTransform.from_translation(off) * tip * turn * tip.inv()


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("axis", [1, 2])
def test_the_peg_fits_the_hole_within_its_room_and_not_outside(side, axis):
    def moved(m):
        return touching(PEG_INSERTION, held(PEG_INSERTION, off=side * m * np.eye(3)[axis]))

    assert touching(PEG_INSERTION, held(PEG_INSERTION)) == 0
    assert moved(ROOM - 2e-4) == 0
    assert moved(ROOM + 2e-4) == pytest.approx(2e-4, abs=1e-6)


@pytest.mark.parametrize(
    "turned_deg, fits",
    [  # leaning by a, its side is 20 + 50 sin a mm off the middle of the hole's mouth, the wall 22.5: up to 2.9 deg
        ((0, 1.8, 0), True),
        ((0, 4, 0), False),
        ((0, 0, -1.8), True),
        ((0, 0, -4), False),
        # turned about its length by a, its corners are 20 (cos a + sin a) off: up to 7.7 deg
        ((7.4, 0, 0), True),
        ((8.0, 0, 0), False),
        ((45, 0, 0), False),
        ((90, 0, 0), True),
    ],
)
def test_the_peg_does_not_fit_over_rotated(turned_deg, fits):
    assert (touching(PEG_INSERTION, held(PEG_INSERTION, turned_deg=turned_deg)) == 0) == fits


def test_a_peg_let_go_of_over_the_hole_falls_in_and_beside_it_does_not():
    up = 0.055
    ins, out = (let_go(PEG_INSERTION, held(PEG_INSERTION, off=(up, 0, z))) for z in (0.0, 0.012))
    np.testing.assert_allclose(ins.translation, INSERTED - [0, 0, DEPTH - 0.05], atol=5e-4)
    assert out.translation[2] == pytest.approx(TABLE_TOP + PEG_INSERTION.thing.size[2] / 2, abs=1e-3)  # it lies


def test_the_block_stands_by_itself_and_falls_from_an_edge():
    stands = let_go(UPRIGHT_PLACEMENT, held(UPRIGHT_PLACEMENT))
    np.testing.assert_allclose(stands.translation, PLACED, atol=2e-4)
    for lean, falls in ((12.0, False), (25.0, True)):  # it tips beyond atan(25 / 75) = 18.4 deg
        pose = held(UPRIGHT_PLACEMENT, off=(0.012, 0, 0), turned_deg=(0, 0, lean))
        down = np.arccos(np.clip(let_go(UPRIGHT_PLACEMENT, pose).rotation.apply([1, 0, 0])[2], -1, 1))
        assert (np.degrees(down) > 80) == falls and (falls or np.degrees(down) < 1)


@pytest.mark.parametrize("task", SISTERS, ids=lambda t: t.name)
def test_nothing_ties_the_object_and_the_receptacle_stands_on_the_table(task):
    model = environments(task.name, "panda").model
    assert model.eq_type.tolist() == [int(mujoco.mjtEq.mjEQ_JOINT)]  # the jaws' coupling
    assert model.joint(task.thing.name).type[0] == int(mujoco.mjtJoint.mjJNT_FREE)
    bottoms = [b.centre[2] - b.size[2] / 2 for b in task.boxes if b.name.startswith("receptacle")]
    assert min(bottoms) == pytest.approx(TABLE_TOP)
    assert task.geometry.check() is task.geometry
    assert task.thing.start.translation[2] - task.thing.size[2] / 2 == pytest.approx(TABLE_TOP + 0.001)


# --------------------------------------------------------------------------------------------------------- expert


@cache
def episodes(task_name, embodiment):
    """Recorded stages of one episode at nominal speed and of one far beyond."""
    task, envs = load_mujoco_task(task_name), environments(task_name, embodiment)
    experts, keys = [task.expert(envs.embodiment)] * 2, [episode_key(0, 0)] * 2
    return [s.stages() for s in run(envs, experts, keys, np.array([1.0, BEYOND[task_name]]))[0]]


@pytest.mark.parametrize("embodiment", ["panda", "g1"])
@pytest.mark.parametrize("task", SISTERS, ids=lambda t: t.name)
def test_the_expert_succeeds_at_nominal_speed_and_not_far_beyond(task, embodiment):
    stages = judged(task, episodes(task.name, embodiment))
    assert stages.success.tolist() == [True, False], [Cause(int(c)).sentence for c in stages.cause]
    assert np.degrees(stages.angle_final_rad[0]) < 5
    assert stages.moments.touched[0] >= stages.moments.insert[0] > 0


@pytest.mark.parametrize("task", SISTERS, ids=lambda t: t.name)
def test_what_lies_is_neither_inserted_nor_placed(task):
    """A success whose object is found lying beneath at the last step is none: it left the receptacle."""
    good, _ = episodes(task.name, "panda")
    poses = good.T_world_object.copy()
    poses[-1, :4] = task.thing.start.rotation.as_quat(scalar_first=True)
    poses[-1, 6] = TABLE_TOP + 0.04 + task.thing.size[2] / 2
    stages = judged(task, [good, replace(good, T_world_object=poses)])
    assert stages.cause.tolist() == [Cause.SUCCESS, Cause.LEFT_BOX] and stages.success_once.all()


def test_tolerances_are_those_that_the_geometry_says():
    """Placed within 20 mm of the spot, upright and turned by quarters about its length; a peg deep enough."""
    spot, hole = UPRIGHT_PLACEMENT.geometry, PEG_INSERTION.geometry
    down = rigid(np.asarray(spot.T_world_entrance)).inv().apply(PLACED)
    least = StageParams().insert_depth_m
    assert least < down[0] < spot.interior_depth_m and spot.half_section_m.tolist() == [SPOT_M, SPOT_M]
    np.testing.assert_allclose(down[1:], 0, atol=1e-12)
    tip = rigid(np.asarray(hole.T_world_entrance)).inv().apply(held(PEG_INSERTION).apply(hole.point_m))
    np.testing.assert_allclose(tip, [0.05, 0, 0], atol=1e-12)
    assert hole.point_m.tolist() == [-PEG_LENGTH / 2, 0, 0] and tip[0] > least


# ------------------------------------------------------------------------------------------------------- registry


def test_tasks_are_found_by_name():
    assert mujoco_task_names() == ["parcel_stow", "peg_insertion", "upright_placement"]
    assert [load_mujoco_task(n).name for n in mujoco_task_names()] == mujoco_task_names()
    with pytest.raises(InputError, match="task 'peg': there is none on MuJoCo; expected one of parcel_stow, peg_ins"):
        load_mujoco_task("peg")
