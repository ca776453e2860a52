"""ParcelStow on MuJoCo with a Panda: the scene's honesty, the recorded signals, the expert, and that episodes repeat.

Each integrity test was seen to fail once: with the parcel welded to the hand (falls, drags), with the receptacle's
contact bits cleared (collides, too high), with a shared generator instead of one a key (repeats).
"""

# ruff: noqa: E402
import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.metrics.stages import Cause, StageParams, monitor, stack_signals
from jaxeval.policies.expert import Chain
from jaxeval.policies.policy import episode_key
from jaxeval.sim.embodiment import FOLDER, load_embodiment
from jaxeval.sim.mujoco import Environments, run, seen
from jaxeval.sim.task import rigid, straight
from jaxeval.sim.tasks.parcel_stow import AXIS, ENTRANCE, PARCEL_STOW, R_STOW, SCHEDULE
from jaxeval.types import InputError

pytestmark = pytest.mark.sim
WEIGHT = 0.12 * 9.81


@pytest.fixture(scope="module")
def panda():
    return load_embodiment("panda")


@pytest.fixture(scope="module")
def envs(panda):
    return Environments(PARCEL_STOW, panda)


@pytest.fixture(scope="module")
def expert(panda):
    return PARCEL_STOW.expert(panda)


@pytest.fixture(scope="module")
def nominal(envs, expert):
    """Signals of two episodes of the expert at r = 1."""
    return run(envs, [expert] * 2, [episode_key(0, k) for k in range(2)], 1.0)[0]


def judged(signals):
    batch = stack_signals([s.stages() for s in signals])
    one = jax.jit(jax.vmap(lambda s: monitor(s, geometry=PARCEL_STOW.geometry, params=StageParams())))
    return jax.tree.map(np.asarray, one(batch))


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
    np.testing.assert_allclose(SCHEDULE.observed(step, 2.0), (index + fraction) / 14)


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


def test_nothing_ties_the_parcel(envs):
    m = envs.model
    assert m.eq_type.tolist() == [int(mujoco.mjtEq.mjEQ_JOINT)]  # the jaws' coupling
    assert m.body("parcel").parentid[0] == 0 and m.joint("parcel").type[0] == int(mujoco.mjtJoint.mjJNT_FREE)
    assert m.body("parcel").mass[0] == pytest.approx(0.12)
    assert set(m.geom_friction[m.geom_contype > 0, 0].tolist()) == {0.5}


def pushed(envs, start: RigidTransform) -> float:
    """How deep (m) a parcel on a rail along the axis comes that is pushed with 1 N from ``start``, 5 cm in front."""
    d = mujoco.MjData(envs.model)
    d.qpos[envs.joints] = envs.embodiment.default
    d.ctrl[:] = envs.embodiment.default[envs.embodiment.actuated]
    d.qpos[envs.thing_qpos :][:7] = [*start.translation, *start.rotation.as_quat(scalar_first=True)]
    body, at = envs.model.body("parcel").id, d.qpos[envs.thing_qpos :][:7]
    along = start.translation @ AXIS
    for _ in range(400):
        v = d.qvel[envs.thing_dof :][:6]
        v[:3], v[3:] = (v[:3] @ AXIS) * AXIS, 0.0
        at[:3] = start.translation + (at[:3] @ AXIS - along) * AXIS
        at[3:] = start.rotation.as_quat(scalar_first=True)
        d.xfrc_applied[body, :3] = AXIS + np.array([0, 0, WEIGHT]) - 5.0 * v[:3]
        mujoco.mj_step(envs.model, d)
    return float((d.qpos[envs.thing_qpos :][:3] - ENTRANCE) @ AXIS)


def test_a_centred_parcel_goes_in_and_one_outside_the_clearance_does_not(envs):
    before = ENTRANCE - 0.05 * AXIS
    across = np.array([-AXIS[1], AXIS[0], 0])

    def depth(offset: np.ndarray, rotation: Rotation = R_STOW) -> float:
        return pushed(envs, RigidTransform.from_components(before + offset, rotation))

    up = np.array([0, 0, 1.0])
    for fits in (0 * up, 0.008 * up, -0.008 * up, 0.05 * across):  # 10 mm of room up and down, 55 mm across
        assert depth(fits) == pytest.approx(0.09, abs=1e-3)  # the back wall at .11 less half the parcel's .04
    for too_far in (0.015 * up, -0.015 * up, 0.06 * across, -0.06 * across):
        assert depth(too_far) == pytest.approx(-0.02, abs=3e-3)  # at the wall's front, half a parcel before the plane
    rolled = R_STOW * Rotation.from_euler("z", 45, degrees=True)  # about d: .08 cos 45 + .055 sin 45 = .095 < .10
    assert depth(0 * up, rolled) == pytest.approx(0.09, abs=1e-3)
    assert depth(0.006 * up, rolled) == pytest.approx(-0.02, abs=3e-3)  # ... but not 6 mm up


def test_the_parcel_collides_with_every_wall(envs):
    for box in PARCEL_STOW.boxes[1:]:
        outwards = np.subtract(box.centre, ENTRANCE + 0.055 * AXIS)
        outwards = np.array([0, 0, 1.0]) if box.name.endswith("floor") else -outwards / np.linalg.norm(outwards)
        d = mujoco.MjData(envs.model)
        d.qpos[envs.thing_qpos :][:7] = [*np.add(box.centre, 0.0), *R_STOW.as_quat(scalar_first=True)]
        mujoco.mj_forward(envs.model, d)
        touched = {envs.model.geom(int(g)).name for pair in d.contact.geom for g in pair}
        assert box.name in touched, box.name


def test_the_parcel_falls_when_the_hand_opens(envs, expert, panda):
    """Lifted at 300, opened then: it lies on the table again within half a second; held, it does not."""
    for opened in (False, True):
        state = envs.reset([episode_key(0, 0)], 1.0)
        memory = expert.init(seen(envs, state, 0), episode_key(0, 0))
        action = np.zeros(8)
        for step in range(370):
            if step < 340:
                act = expert.act(memory, seen(envs, state, 0))
                memory, action = act.state, act.action.copy()
            elif opened:
                action[-1] = 0.0
            state = envs.step(state, action[None])
            if step == 339:
                assert state.signals.object_pose[0, 6] > 0.78
        height = state.signals.object_pose[0, 6]
        assert (height < 0.73) if opened else (height > 0.78)


def test_the_parcel_stays_when_an_open_hand_leaves(envs, expert):
    """The hand goes to the parcel and on without closing: the parcel is not dragged along."""
    state = envs.reset([episode_key(0, 0)], 1.0)
    memory = expert.init(seen(envs, state, 0), episode_key(0, 0))
    start = state.signals.object_pose[0, 4:6].copy()
    for _ in range(400):  # into REORIENT
        act = expert.act(memory, seen(envs, state, 0))
        memory = act.state
        state = envs.step(state, np.append(act.action[:-1], 0.0)[None])
    assert np.linalg.norm(state.signals.object_pose[0, 4:6] - start) < 2e-3
    assert state.signals.object_pose[0, 6] == pytest.approx(0.72, abs=1e-3)


def test_the_arm_itself_keeps_clear_of_what_it_does_not_collide_with(envs, panda, expert):
    """Links have no contacts, for speed; along the planned path they stay 3 cm away from table and receptacle."""
    knots = expert.init(seen(envs, envs.reset([episode_key(0, 0)], 1.0), 0), episode_key(0, 0)).knots
    d, m = mujoco.MjData(envs.model), envs.model
    boxes = [m.geom(b.name).id for b in PARCEL_STOW.boxes]
    links = [g for g in range(m.ngeom) if not m.geom_contype[g] and m.body(m.geom_bodyid[g]).name > "link1"]
    for q in np.concatenate(knots):
        d.qpos[:7] = q
        mujoco.mj_kinematics(m, d)
        nearest = min(mujoco.mj_geomDistance(m, d, a, b, 0.1, None) for a in links for b in boxes)
        assert nearest > 0.03


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


def test_observation_holds_what_its_layout_says(envs, panda):
    state = envs.reset([episode_key(0, 5)], 1.0, told_speed=2.0)
    state = envs.step(state, np.full((1, 8), 0.01))
    at, o, s = envs.layout, state.observation[0], state.signals
    sizes = {name: part.stop - part.start for name, part in at.items()}
    assert list(sizes.values()) == [9, 9, 8, 7, 6, 2, 1, 1] and len(o) == 43
    np.testing.assert_array_equal(o[at["joint_velocity"]], s.joint_velocity[0])
    np.testing.assert_array_equal(o[at["previous_action"]], np.full(8, 0.01))
    np.testing.assert_allclose(o[at["phase"]], 1 / 25 / 14)
    assert o[at["speed"]] == 2.0
    T_world_object = rigid(panda.T_world_base) * rigid(o[at["object_pose"]])
    np.testing.assert_allclose(T_world_object.translation, s.object_pose[0, 4:], atol=1e-12)
    tip = rigid(panda.T_world_base).apply(o[at["fingertip_position"]][:3])
    np.testing.assert_allclose(tip, s.fingertip_position[0, 0], atol=1e-12)


# ------------------------------------------------------------------------------------------------------ repeating


def test_an_episode_is_the_same_bit_for_bit_in_any_batch_on_any_threads(envs, panda, expert):
    keys = [episode_key(3, k) for k in range(4)]
    speeds = np.array([3.0, 2.5, 3.0, 2.0])
    many = Environments(PARCEL_STOW, panda, threads_n=2)
    together, actions = run(many, [expert] * 4, keys, speeds)
    for k in (0, 3):
        alone, acted = run(envs, [expert], [keys[k]], speeds[k])
        assert len(alone[0].phase) == SCHEDULE.steps(speeds[k]) + 1
        for name, a, b in zip(alone[0]._fields, alone[0], together[k], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
        np.testing.assert_array_equal(acted[0], actions[k])
    states = many.reset(keys, 1.0), envs.reset(keys[2:3], 1.0)
    np.testing.assert_array_equal(states[0].observation[2], states[1].observation[0])


def test_starts_are_the_keys_own_and_within_their_ranges(envs, panda):
    starts = [PARCEL_STOW.start(episode_key(0, k), panda) for k in range(200)]
    again = PARCEL_STOW.start(episode_key(0, 7), panda)
    np.testing.assert_array_equal(starts[7][0], again[0])
    off = np.array([pose[4:] for _, pose in starts]) - PARCEL_STOW.thing.start.translation
    assert (np.abs(off[:, :2]) <= 0.01).all() and (np.abs(off[:, :2]).max(0) > 0.0095).all() and (off[:, 2] == 0).all()
    joints = np.array([q for q, _ in starts]) - panda.default
    assert (np.abs(joints[:, :7]).max(0) > 0.045).all() and (np.abs(joints[:, :7]) <= 0.05).all()
    assert (joints[:, 7:] == 0).all()  # jaws slide: no radians
    state = envs.reset([episode_key(0, 7)], 1.0)
    np.testing.assert_array_equal(state.signals.object_pose[0], again[1])
    assert not state.signals.joint_velocity.any() and not state.signals.object_velocity.any()


def test_a_state_is_stepped_once(envs):
    state = envs.reset([episode_key(0, 0)], 1.0)
    envs.step(state, np.zeros((1, 8)))
    with pytest.raises(ValueError, match="stepped before"):
        envs.step(state, np.zeros((1, 8)))


def test_what_the_policy_is_told_changes_nothing_but_the_observation(envs):
    key = [episode_key(0, 1)]
    a, b = envs.reset(key, 2.0), envs.reset(key, 2.0, told_speed=1.0)
    for _ in range(5):
        a, b = envs.step(a, np.full((1, 8), 0.02)), envs.step(b, np.full((1, 8), 0.02))
    for x, y in zip(a.signals, b.signals, strict=True):
        np.testing.assert_array_equal(x, y)
    assert np.flatnonzero(a.observation[0] != b.observation[0]).tolist() == [42]


# --------------------------------------------------------------------------------------------------------- expert


def test_the_expert_succeeds_at_nominal_speed_and_not_far_beyond(envs, expert, nominal):
    fast, _ = run(envs, [expert], [episode_key(0, 0)], 3.0)
    stages = judged([*nominal, *fast])
    assert stages.success.tolist() == [True, True, False], [Cause(int(c)).sentence for c in stages.cause]
    assert (stages.angle_before_insert_rad < np.radians(3)).all()
    assert (np.degrees(stages.angle_final_rad[:2]) < 3).all()
    assert (np.abs(stages.depth_max_m[:2] - 0.06) < 0.015).all()


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


# ----------------------------------------------------------------------------------------------------- embodiment


def test_actions_command_offsets_from_the_default(panda):
    np.testing.assert_array_equal(panda.target(np.zeros(8)), panda.default[:8])
    assert panda.target(np.eye(8)[1])[1] == pytest.approx(panda.default[1] + 0.5)
    np.testing.assert_allclose(panda.action(panda.target(np.linspace(-1, 1, 8))), np.linspace(-1, 1, 8))


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("tcp: tcp", "tip: tcp", "key 'tcp' is missing"),
        ("tcp: tcp", "tcp: flange", "'tcp' names 'flange', which the MJCF does not have"),
        ("{joint: joint2,", "{joint: elbow,", "'actuators' names 'elbow'"),
        ("joint3: 2.175, ", "", "'velocity_limits' lacks joint3"),
        ("T_world_base: [0.95", "T_world_base: [1.95", "'T_world_base' is .*; expected seven numbers"),
        ("part: hand", "part: gripper", "expected 'arm' or 'hand'"),
        ("mjcf: panda.xml", "mjcf: pandas.xml", "its MJCF 'pandas.xml' cannot be read"),
    ],
)
def test_a_description_that_does_not_fit_is_refused_in_one_sentence(tmp_path, old, new, says):
    shutil.copy(FOLDER / "panda.xml", tmp_path)
    text = (FOLDER / "panda.yaml").read_text()
    assert old in text
    (tmp_path / "odd.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=says):
        load_embodiment(tmp_path / "odd.yaml")


def test_an_unknown_embodiment_is_answered_with_those_there_are():
    with pytest.raises(InputError, match=r"embodiment 'pandas': there is none; expected one of .*panda"):
        load_embodiment("pandas")
