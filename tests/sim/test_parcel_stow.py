"""ParcelStow on MuJoCo: schedule, geometry, the recorded signals and observation, and the expert."""

# ruff: noqa: E402
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.metrics.stages import Cause
from jaxeval.policies.policy import episode_key
from jaxeval.policies.scripted.arm import rigid
from jaxeval.policies.scripted.expert import Chain, eased
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.environment import Environments, run, seen
from jaxeval.sim.mujoco.task import straight
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW
from jaxeval.types import InputError
from tests.sim.integrity import WEIGHT, judged

SCHEDULE, R_STOW = PARCEL_STOW.schedule, PARCEL_STOW.path["INSERT"].rotation
AXIS = np.array([np.cos(np.pi / 4), np.sin(np.pi / 4), 0.0])
"""``d``: from the entrance into the receptacle."""

pytestmark = pytest.mark.sim


@pytest.fixture(scope="module")
def nominal(envs, expert):
    """Signals of two episodes of the expert at r = 1."""
    return run(envs, [expert] * 2, [episode_key(0, k) for k in range(2)], 1.0)[0]


# ------------------------------------------------------------------------------------------------------- schedule


@pytest.mark.parametrize(
    "speed, steps", [(0.5, 1095), (1.0, 705), (1.5, 575), (2.0, 510), (2.25, 489), (2.5, 471), (3.0, 445)]
)
def test_episode_lengths_are_the_published_ones_rounded_up(speed, steps):
    assert SCHEDULE.steps(speed) == steps


def test_phases_begin_where_their_durations_add_up_to():
    # at r = 2: PARK 25, APPROACH to 150, dwell to 180, CLOSE to 255, dwell to 285, LIFT (1.2 / 2 s) to 315
    step = np.array([0, 24, 25, 150, 255, 284, 285, 300, 315, 510, 600])
    index, fraction = SCHEDULE.at(step, 2.0)
    assert index.tolist() == [0, 0, 1, 2, 4, 4, 5, 5, 6, 13, 13]
    np.testing.assert_allclose(fraction, [0, 24 / 25, 0, 0, 0, 29 / 30, 0, 0.5, 0, 1, 1], atol=1e-12)


def test_easing_is_a_cosine_of_numbers_and_of_arrays_alike():
    at, expected = [0.0, 1 / 3, 0.5, 2 / 3, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0]
    for found in ([eased(f) for f in at], eased(np.array(at)), jax.jit(eased)(jnp.asarray(at))):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_speeds_of_a_batch_are_each_episodes_own_and_jax_agrees():
    step, speed = np.array([300, 300, 470]), np.array([1.0, 2.0, 2.5])
    alone = [SCHEDULE.at(int(s), float(r)) for s, r in zip(step, speed, strict=True)]
    for found in (
        SCHEDULE.at(step, speed),
        jax.jit(SCHEDULE.at)(jnp.asarray(step), jnp.asarray(speed, jnp.float32)),
        jax.vmap(SCHEDULE.at)(jnp.asarray(step), jnp.asarray(speed, jnp.float32)),
    ):
        assert np.asarray(found[0]).tolist() == [int(a[0]) for a in alone]
        np.testing.assert_allclose(found[1], [float(a[1]) for a in alone], atol=1e-5)


# ---------------------------------------------------------------------------------------------------------- scene


def test_geometry_is_the_published_one():
    centres = {b.name: b.centre for b in PARCEL_STOW.boxes}
    np.testing.assert_allclose(centres["receptacle_back"], [0.57625281, 0.22625281, 0.93], atol=1e-8)
    np.testing.assert_allclose(centres["receptacle_side_a"], [0.59569825, 0.1148835, 0.93], atol=1e-8)
    np.testing.assert_allclose(centres["receptacle_floor"], [0.53029087, 0.18029087, 0.79], atol=1e-8)
    np.testing.assert_allclose(PARCEL_STOW.path["INSERT"].translation, [0.53382641, 0.18382641, 0.93], atol=1e-8)
    np.testing.assert_allclose(PARCEL_STOW.geometry.pre_insert_m, [0.45604466, 0.10604466, 0.93], atol=1e-8)
    assert PARCEL_STOW.path["REORIENT"].rotation.apply([1, 0, 0]) == pytest.approx([0, 0, 1])


@pytest.mark.parametrize("name, clear_m", [("panda", 0.03), ("g1", 0.03)])
def test_the_robot_keeps_clear_of_what_it_does_not_collide_with(name, clear_m):
    """Links have no contacts, for speed; along the planned path those that move stay away from table and receptacle."""
    robot = load_embodiment(name)
    envs, expert = Environments(PARCEL_STOW, robot), PARCEL_STOW.expert(robot)
    knots = expert.init(seen(envs, envs.reset([episode_key(0, 0)], 1.0)).of(0), episode_key(0, 0)).knots
    d, m = mujoco.MjData(envs.model), envs.model
    boxes = [m.geom(b.name).id for b in PARCEL_STOW.boxes]
    root = m.body_rootid[m.body(robot.fingertips[0]).id]
    links = [g for g in range(m.ngeom) if not m.geom_contype[g] and m.geom_bodyid[g] not in (0, root)]
    d.qpos[envs.joints] = robot.default
    for q in np.concatenate(knots):
        d.qpos[robot.actuated[robot.is_arm]] = q
        mujoco.mj_kinematics(m, d)
        nearest, link = min((mujoco.mj_geomDistance(m, d, a, b, 0.1, None), a) for a in links for b in boxes)
        assert nearest > clear_m, (m.body(m.geom_bodyid[link]).name, nearest)


# -------------------------------------------------------------------------------------------------------- signals


def test_forces_at_rest_are_the_parcels_weight(nominal):
    s = nominal[0]
    assert s.receptacle_force[-1] == pytest.approx(WEIGHT, rel=1e-2)
    assert s.fingertip_force[-1].tolist() == [0, 0]
    held = np.flatnonzero(s.phase == SCHEDULE.index("PREINSERT_DWELL"))[-1]
    there = s.contact_finger[held] >= 0
    assert 4 <= there.sum() <= 8 and set(s.contact_finger[held][there]) == {0, 1}
    force, normal = s.contact_force[held][there], s.contact_normal[held][there]
    np.testing.assert_allclose(force.sum(0), [0, 0, WEIGHT], atol=0.25)  # it hardly accelerates
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1, atol=1e-9)
    assert (np.einsum("ci,ci->c", force, normal) >= 0).all()
    inwards = s.object_pose[held, 4:] - s.contact_point[held][there]
    assert (np.einsum("ci,ci->c", inwards, normal) > 0.02).all()  # half of .055
    by_finger = [np.linalg.norm(force[s.contact_finger[held][there] == f].sum(0)) for f in (0, 1)]
    np.testing.assert_allclose(s.fingertip_force[held], by_finger)


def test_velocities_are_of_the_centre_and_in_the_world(envs):
    """A parcel thrown with a spin: differences of its recorded poses are its recorded velocities."""
    state = envs.reset([episode_key(0, 0)], 1.0)
    d = state.data[0]
    d.qpos[envs.thing_qpos + 2] = 1.5
    d.qvel[envs.thing_dof :][:6] = [0.3, -0.2, 1.0, 0.0, 0.0, 4.0]  # angular in its own frame ...
    d.qpos[envs.thing_qpos + 3 :][:4] = R_STOW.as_quat(scalar_first=True)
    before = envs.step(state, np.zeros((1, 8)))
    after = envs.step(before, np.zeros((1, 8))).signals
    before = before.signals
    linear = (after.object_pose - before.object_pose)[0, 4:] / 0.02
    R = [Rotation.from_quat(s.object_pose[0, :4], scalar_first=True) for s in (before, after)]
    mean = (before.object_velocity + after.object_velocity)[0] / 2
    np.testing.assert_allclose(mean[:3], linear, atol=0.03)  # half a physics step of gravity
    np.testing.assert_allclose(mean[3:], (R[1] * R[0].inv()).as_rotvec() / 0.02, atol=1e-3)
    np.testing.assert_allclose(mean[3:], -4.0 * AXIS, atol=1e-3)  # ... whose z is -d in the world
    np.testing.assert_allclose([before.time_s[0], after.time_s[0]], [0.02, 0.04])


@pytest.mark.parametrize("name, sizes", [("panda", [9, 9, 8, 7, 6, 2, 1, 1]), ("g1", [21, 21, 16, 7, 15, 5, 1, 1])])
def test_observation_holds_what_its_layout_says(name, sizes):
    """The published groups in their order: 147 numbers there, with 51 joints."""
    robot = load_embodiment(name)
    envs = Environments(PARCEL_STOW, robot)
    state = envs.reset([episode_key(0, 5)], 1.0, told_speed=2.0)
    state = envs.step(state, np.full(state.action.shape, 0.01))
    at, o, s = envs.layout, state.observation[0], state.signals
    assert [part.stop - part.start for part in at.values()] == sizes and len(o) == sum(sizes)
    np.testing.assert_array_equal(o[at["joint_position"]], s.joint_position[0])
    np.testing.assert_array_equal(o[at["joint_velocity"]], s.joint_velocity[0])
    np.testing.assert_array_equal(o[at["previous_action"]], np.full(len(robot.actuators), 0.01))
    np.testing.assert_allclose(o[at["phase"]], 1 / 25 / 14)
    assert o[at["speed"]] == 2.0
    T_world_object = rigid(robot.T_world_base) * rigid(o[at["object_pose"]])
    np.testing.assert_allclose(T_world_object.translation, s.object_pose[0, 4:], atol=1e-12)
    tips = rigid(robot.T_world_base).apply(o[at["fingertip_position"]].reshape(-1, 3))
    bodies = [state.data[0].body(tip).xipos for tip in robot.fingertips]
    np.testing.assert_allclose(tips, bodies, atol=1e-12)


# --------------------------------------------------------------------------------------------------------- expert


def test_the_expert_succeeds_at_nominal_speed_and_not_far_beyond(envs, expert, nominal):
    fast, _ = run(envs, [expert], [episode_key(0, 0)], 3.0)
    stages = [judged(s) for s in (*nominal, *fast)]
    assert [bool(s.success) for s in stages] == [True, True, False], [Cause(int(s.cause)).sentence for s in stages]
    assert all(s.angle_before_insert_rad < np.radians(3) for s in stages)
    for s in stages[:2]:
        assert s.angle_final_rad < np.radians(3) and abs(s.depth_max_m - 0.06) < 0.015


def test_inverse_kinematics_meets_poses_and_says_when_it_cannot(panda, envs):
    posture = envs.model.qpos0.copy()
    posture[:9] = panda.default
    arm = [a.joint for a in panda.actuators if a.part == "arm"]
    chain = Chain(envs.model, arm, "tcp", posture)
    data = mujoco.MjData(envs.model)
    data.qpos[:] = posture
    data.qpos[:7] += [0.2, -0.1, 0.1, 0.3, -0.2, 0.1, 0.2]
    mujoco.mj_forward(envs.model, data)
    wanted = np.concatenate([Rotation.from_matrix(data.site("tcp").xmat.reshape(3, 3)).as_quat(scalar_first=True),
                             data.site("tcp").xpos])  # fmt: skip
    q, off_m, off_rad = chain.solve(wanted, panda.default[:7])
    assert off_m < 1e-5 and off_rad < 1e-4
    data.qpos[:7] = q
    mujoco.mj_forward(envs.model, data)
    np.testing.assert_allclose(data.site("tcp").xpos, wanted[4:], atol=1e-5)
    far = dataclasses.replace(panda, T_world_base=np.array([1.0, 0, 0, 0, -1.0, 0, 0.7]))
    with pytest.raises(InputError, match=r"APPROACH: the arm comes within .* of waypoint 1; .* move the base"):
        PARCEL_STOW.expert(far)


def test_a_straight_line_ends_at_its_goal():
    a = RigidTransform.from_components([0, 0, 0], Rotation.identity())
    b = RigidTransform.from_components([0.8, 0, 0], Rotation.from_euler("z", 80, degrees=True))
    line = straight(a, b)
    assert len(line) == 8 and len(straight(a, b, first=True)) == 9
    np.testing.assert_allclose(line.translation[:, 0], np.arange(1, 9) / 10)
    np.testing.assert_allclose(np.degrees(line[3].rotation.magnitude()), 40)
