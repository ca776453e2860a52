"""The same key is the same episode, bit for bit: in any batch, on any threads, in any order, however often."""

# ruff: noqa: E402
import dataclasses
import itertools

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from jaxeval.policies.policy import episode_key
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW
from tests.sim.integrity import Leaking, OneGenerator, check_repeats, judged

pytestmark = pytest.mark.sim


# ---------------------------------------------------------------------------------------------------- whole episodes


@pytest.mark.parametrize("name, speeds", [("panda", (3.0, 2.5, 2.0)), ("g1", (3.0, 2.5))])
def test_an_episode_is_the_same_bit_for_bit_in_any_batch_on_any_threads(name, speeds):
    """Different speeds side by side; alone, all at once on two threads, and all at once again."""
    embodiment = load_embodiment(name)
    expert = PARCEL_STOW.expert(embodiment)
    check_repeats(PARCEL_STOW, embodiment, expert, speeds, [(1, 1), (2, len(speeds)), (1, len(speeds))])


@pytest.mark.slow
def test_twenty_episodes_are_the_same_bit_for_bit_and_succeed_alike(panda, expert):
    """At r = 2, where some fail: starts, all signals, and so the flags, with 1 and 2 threads, 1 and 20 at a time."""
    episodes = check_repeats(PARCEL_STOW, panda, expert, [2.0] * 20, [(1, 1), (1, 20), (2, 1), (2, 20)])
    successes = sum(bool(judged(s).success) for s in episodes)
    assert 10 <= successes < 20, "they succeed or fail all alike: the flags compare nothing"
    assert len({s.object_pose[0].tobytes() for s in episodes}) == 20


def test_starts_from_one_generator_are_found_out(panda, expert):
    """Starts drawn one after another, whatever the key: the second time an episode starts elsewhere."""
    task = OneGenerator(**vars(PARCEL_STOW))
    with pytest.raises(AssertionError, match="episode 0 on 1 threads, 1 at a time: object_pose differs"):
        check_repeats(task, panda, expert, [3.0], [(1, 1), (1, 1)])


def test_a_policy_that_draws_from_one_generator_is_found_out(panda, expert):
    """A policy that errs, not by its episode's key, but by how many episodes there were: the hand goes elsewhere."""
    count = itertools.count()
    forgetful = dataclasses.replace(expert, init=lambda seen, _: expert.init(seen, episode_key(9, next(count))))
    with pytest.raises(AssertionError, match="episode 0 on 1 threads, 1 at a time: object_pose differs"):
        check_repeats(PARCEL_STOW, panda, forgetful, [3.0], [(1, 1), (1, 1)])


def test_what_leaks_from_one_episode_to_another_is_found_out(panda, expert):
    """The solver's first guess taken from the batch's first episode: one that is not alone differs in its last bits."""
    with pytest.raises(AssertionError, match=r"episode 1 on 1 threads, 2 at a time: .* differs"):
        check_repeats(PARCEL_STOW, panda, expert, [3.0, 3.0], [(1, 1), (1, 2)], kind=Leaking)


# ------------------------------------------------------------------------------------------------------------- starts


def test_a_start_is_the_same_on_every_machine(panda):
    """Numbers of one start, as they were drawn on another day: a paired comparison over months needs no less."""
    q, pose = PARCEL_STOW.start(episode_key(0, 7), panda)
    assert pose[4:].tolist() == [0.34319237287599313, -0.006503448465057847, 0.721]
    assert q[:3].tolist() == [0.21492581543195557, 0.4515849629302583, -0.49266130382854517]
    hand, parcel = PARCEL_STOW.start(episode_key(0, 7), load_embodiment("g1"))
    np.testing.assert_array_equal(parcel, pose)  # whatever the robot
    assert hand[:3].tolist() == [0.1323258154319556, -0.3675150370697417, 0.25813869617145485]


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
