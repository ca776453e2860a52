"""ParcelStow on MJX with a Panda beside MuJoCo: starts, the first steps, forces, batches, ends. On a CPU it compiles
for a minute; after that the compilation cache has it.

Tolerances are those of float32: positions of about 1 have steps of 1.2e-7 and go through some ten joints; velocities
are differences of such over 5 ms. The wrong readings that they tell apart are 1e-3 and more.
"""

# ruff: noqa: E402
import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from jaxeval.policies.policy import episode_key
from jaxeval.sim.mujoco import environment as host
from jaxeval.sim.mujoco.mjx import Environments, run
from jaxeval.sim.mujoco.schedule import CONTROL_HZ
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW
from jaxeval.types import InputError

SCHEDULE = PARCEL_STOW.schedule

pytestmark = pytest.mark.sim
KEYS = [episode_key(0, k) for k in range(3)]
SPEEDS = np.array([1.0, 2.0, 3.0])
POSITION, VELOCITY, FORCE = 3e-6, 2e-4, 0.02


@pytest.fixture(scope="module")
def in_c(panda):
    return host.Environments(PARCEL_STOW, panda)


@pytest.fixture(scope="module")
def envs(panda):
    pytest.importorskip("mujoco.mjx")
    return Environments(PARCEL_STOW, panda)


@pytest.fixture(scope="module")
def before(envs):
    return jax.vmap(envs.before)(envs.starts(KEYS), SPEEDS)


@pytest.fixture(scope="module")
def stepped(envs):
    """`step` of three episodes, compiled once; of a state before the reset it is the reset."""
    return jax.vmap(envs.step)


def gripped(in_c, expert):
    """States of C where the expert has just closed the hand."""
    state = in_c.reset(KEYS, SPEEDS)
    memory = [expert.init(host.seen(in_c, state).of(i), key) for i, key in enumerate(KEYS)]
    while (state.signals.phase < SCHEDULE.index("LIFT")).all():
        acts = [expert.act(memory[i], host.seen(in_c, state).of(i)) for i in range(len(KEYS))]
        memory = [a.state for a in acts]
        state = in_c.step(state, np.stack([a.action for a in acts]))
    return state


def alike(ours, theirs):
    """Whether rows of signals without contacts are those of C, to float32."""
    np.testing.assert_array_equal(ours.phase, theirs.phase)
    for name in ("fraction", "time_s", "object_pose", "fingertip_position", "joint_position"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=POSITION, err_msg=name)
    for name in ("object_velocity", "joint_velocity"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=VELOCITY, err_msg=name)
    np.testing.assert_allclose(ours.hand_pose[..., 4:], theirs.hand_pose[..., 4:], atol=POSITION)
    same = np.abs((np.asarray(ours.hand_pose)[..., :4] * theirs.hand_pose[..., :4]).sum(-1))
    np.testing.assert_allclose(same, 1, atol=1e-6)


def test_mjx_that_is_not_there_is_refused_in_a_sentence(panda, monkeypatch):
    monkeypatch.delattr(mujoco, "mjx", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco.mjx", None)
    with pytest.raises(InputError, match=r"pip install 'jaxeval\[mujoco\]'"):
        Environments(PARCEL_STOW, panda)


def test_the_expert_follows_one_formula_in_numpy_and_in_jax(in_c, expert):
    """Random moments, a dwell among them, from a correction that is not 0; the jaws go from open to closed in CLOSE."""
    first = host.seen(in_c, in_c.reset(KEYS[:1], 1.0)).of(0)
    plan = expert.init(first, KEYS[0])
    plan = plan._replace(correction=np.linspace(-0.4, 0.4, 7))
    in_jax = jax.tree.map(jnp.asarray, plan)
    follow = jax.jit(expert.act)

    def at(phase, fraction):
        facts = {"phase": np.int64(phase), "fraction": np.float64(fraction)}
        return dataclasses.replace(first, joints=np.concatenate([joints, first.joints[7:]]), facts=facts)

    random = np.random.default_rng(1)
    joints = plan.script.knots[4, 0] + 0.1
    for phase in range(len(SCHEDULE.names)):
        for fraction in (0.0, random.uniform(), 1.0):
            action, after, info = expert.act(plan, at(phase, fraction))
            ours, then, _ = follow(in_jax, at(phase, fraction))
            assert expert.labels(after)[info.label] == SCHEDULE.names[phase]
            assert isinstance(action, np.ndarray) and action.dtype == np.float64
            np.testing.assert_allclose(ours, action, atol=3e-6)
            np.testing.assert_allclose(then.correction, after.correction, atol=1e-6)
            changed = not np.array_equal(after.correction, plan.correction)
            assert changed == SCHEDULE.names[phase].endswith("DWELL")
    jaws = [expert.act(plan, at(SCHEDULE.index("CLOSE"), f)).action[-1] for f in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose(jaws, [0, (0.0125 - 0.04) / 0.08, (0.0125 - 0.04) / 0.04])


@pytest.mark.slow
def test_starts_are_those_of_c_bit_for_bit(envs, in_c, before):
    joints, poses = envs.starts(KEYS)
    theirs = in_c.reset(KEYS, SPEEDS)
    np.testing.assert_array_equal(joints, theirs.signals.joint_position)
    np.testing.assert_array_equal(poses, theirs.signals.object_pose)
    assert joints.dtype == poses.dtype == np.float64
    rounded = np.array([d.qpos for d in theirs.data], np.float32)
    np.testing.assert_array_equal(before.qpos, rounded)
    np.testing.assert_array_equal(before.steps_n, SCHEDULE.steps(SPEEDS))


@pytest.mark.slow
def test_the_first_steps_of_the_expert_are_those_of_c(envs, in_c, expert):
    """Three speeds, ten control steps; the arm has then moved 10 to 60 mrad towards where it parks."""
    ours, actions = run(envs, expert, KEYS, SPEEDS, steps_n=10)
    theirs, acted = host.run(in_c, expert, KEYS, SPEEDS)
    for k in range(3):
        assert len(ours[k].phase) == len(actions[k]) == 11
        alike(ours[k], host.Signals(*(x[:11] for x in theirs[k])))
        assert np.isnan(actions[k][0]).all()
        np.testing.assert_allclose(actions[k][1:], acted[k][1:11], atol=1e-5)
        moved = np.abs(theirs[k].joint_position[10] - theirs[k].joint_position[0]).max()
        assert moved > 1e-2


@pytest.mark.slow
def test_reset_and_observation_are_those_of_c(envs, in_c, before, stepped):
    told = before._replace(told_speed=jnp.full(3, 1.5))
    ours, theirs = stepped(told, np.ones((3, 8))), in_c.reset(KEYS, SPEEDS, told_speed=1.5)
    alike(ours.signals, theirs.signals)
    np.testing.assert_array_equal(ours.step, [0, 0, 0])
    np.testing.assert_array_equal(ours.action, np.zeros((3, 8)))  # nothing led to it
    action = np.linspace(-0.3, 0.2, 24).reshape(3, 8)
    ours, theirs = stepped(ours, action), in_c.step(theirs, action)
    alike(ours.signals, theirs.signals)
    assert ours.observation.shape == theirs.observation.shape
    for name, part in in_c.layout.items():
        atol = VELOCITY if name == "joint_velocity" else POSITION
        np.testing.assert_allclose(ours.observation[:, part], theirs.observation[:, part], atol=atol, err_msg=name)
    np.testing.assert_array_equal(ours.observation[:, in_c.layout["speed"]], np.full((3, 1), 1.5))


@pytest.mark.slow
def test_forces_of_a_grasp_are_those_of_c(in_c, expert, before, stepped):
    """From C's positions and velocities with the parcel in the hand one step on: the same row of forces."""
    there = gripped(in_c, expert)
    qpos, qvel = (jnp.asarray(np.array([getattr(d, x) for d in there.data])) for x in ("qpos", "qvel"))
    state = before._replace(qpos=qpos, qvel=qvel, step=jnp.asarray(there.step, jnp.int32))
    ours, theirs = stepped(state, there.action).signals, in_c.step(there, there.action).signals
    assert (theirs.fingertip_force > 3).all()
    np.testing.assert_allclose(ours.fingertip_force, theirs.fingertip_force, atol=FORCE)
    np.testing.assert_allclose(ours.object_pose[:, 4:], theirs.object_pose[:, 4:], atol=1e-5)
    np.testing.assert_allclose(ours.object_pose[:, :4], theirs.object_pose[:, :4], atol=5e-4)  # on two edges it rocks
    np.testing.assert_array_equal(ours.receptacle_force, np.zeros(3))
    for k in range(3):
        held = theirs.contact_finger[k] >= 0
        assert held.sum() == 8
        apart = np.linalg.norm(ours.contact_point[k][:8, None] - theirs.contact_point[k][None, held], axis=-1)
        same = np.flatnonzero(held)[apart.argmin(1)]  # of theirs, for every one of ours
        assert sorted(same) == list(range(8))
        for name, atol in (("contact_point", 1e-4), ("contact_normal", 1e-3), ("contact_force", 3 * FORCE)):
            np.testing.assert_allclose(getattr(ours, name)[k][:8], getattr(theirs, name)[k][same], atol=atol)
        np.testing.assert_array_equal(ours.contact_finger[k][:8], theirs.contact_finger[k][same])
        np.testing.assert_array_equal(ours.contact_finger[k][8:], np.full(8, -1))
        np.testing.assert_array_equal(ours.contact_force[k][8:], np.zeros((8, 3)))
        magnitude = np.abs(ours.contact_force[k]).sum(1)
        assert (np.diff(magnitude) <= 0).all()  # the greatest first


@pytest.mark.slow
def test_an_episode_that_is_done_stays_as_it_is(before, stepped):
    state = stepped(before, np.zeros((3, 8)))
    ended = state._replace(steps_n=state.steps_n.at[1].set(0))
    assert ended.done.tolist() == [False, True, False]
    after = stepped(ended, np.full((3, 8), 0.1))
    for name, old, new in zip(state._fields, ended, after, strict=True):
        jax.tree.map(lambda a, b, name=name: np.testing.assert_array_equal(a[1], b[1], err_msg=name), old, new)
    assert after.step.tolist() == [1, 0, 1]
    assert (np.abs(after.qpos - state.qpos).max(1) > 0).tolist() == [True, False, True]
    np.testing.assert_allclose(after.signals.time_s, np.array([1, 0, 1]) / CONTROL_HZ)


@pytest.mark.slow
def test_an_episode_alone_is_the_one_in_a_batch(envs, before, stepped):
    action = np.linspace(-0.2, 0.3, 24).reshape(3, 8)
    many = stepped(stepped(before, action), action)
    alone = envs.reset(tuple(x[2] for x in envs.starts(KEYS)), SPEEDS[2])
    alone = envs.step(alone, action[2])
    for name, a, b in zip(many._fields, many, alone, strict=True):
        atol = 1e-2 if name == "warm_start" else VELOCITY  # an acceleration, and velocities
        jax.tree.map(lambda a, b, n=name, t=atol: np.testing.assert_allclose(a[2], b, atol=t, err_msg=n), a, b)
    np.testing.assert_allclose(many.qpos[2], alone.qpos, atol=POSITION)
