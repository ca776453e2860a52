"""Random policies and learners on MuJoCo: the same contract as elsewhere, and what they are told of the speed.

Each was seen to fail: random actions from a generator shared by the episodes, or from the stream that places the
object; a vector that holds the physical speed.
"""

import numpy as np
import pytest

pytest.importorskip("mujoco")

from jaxeval.policies.chunks import chunked
from jaxeval.policies.policy import Act, Observation, Policy, episode_key
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.environment import Environments, run, seen
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW

pytestmark = pytest.mark.sim


@pytest.fixture(scope="module", params=["panda", "g1"])
def embodiment(request):
    return load_embodiment(request.param)


@pytest.fixture(scope="module")
def envs(embodiment):
    return Environments(PARCEL_STOW, embodiment)


@pytest.fixture(scope="module")
def start(envs):
    return envs.reset([episode_key(0, 4)], 1.0)


def drawn(policy, observation, key, n):
    """Actions of one episode of a policy that does not look."""
    state, out = policy.init(observation, episode_key(0, key)), []
    for _ in range(n):
        act = policy.act(state, observation)
        assert not act.info.done
        state = act.state
        out.append(act.action)
    return np.stack(out)


def test_random_targets_span_the_joints_ranges_and_no_more(embodiment, envs, start):
    tried = embodiment.target(drawn(PARCEL_STOW.random(embodiment), seen(envs, start).of(0), 0, 600))
    low, high = embodiment.joint_range[embodiment.actuated].T
    assert (tried >= low - 1e-9).all() and (tried <= high + 1e-9).all()
    assert (np.ptp(tried, axis=0) > 0.97 * (high - low)).all()
    np.testing.assert_allclose(tried.mean(axis=0), (low + high) / 2, atol=0.08 * (high - low).max())


def test_random_actions_are_the_keys_own_and_not_the_starts(embodiment, envs, start):
    policy, observation = PARCEL_STOW.random(embodiment), seen(envs, start).of(0)
    one, again, other = (drawn(policy, observation, key, 3) for key in (4, 4, 5))
    np.testing.assert_array_equal(one, again)
    assert (one != other).all() and (one[0] != one[1]).all()
    # the object's place is drawn from the same key: as shares of their ranges the first numbers must differ
    low, high = embodiment.joint_range[embodiment.actuated].T
    place = (observation.poses["parcel"][4:6] - PARCEL_STOW.thing.start.translation[:2]) / 0.01
    share = (embodiment.target(one[0]) - low) / (high - low)
    assert np.abs(share[:2] - (place + 1) / 2).max() > 1e-3


@pytest.fixture(scope="module")
def panda():
    e = load_embodiment("panda")
    return e, Environments(PARCEL_STOW, e)


def test_a_random_episode_is_the_same_in_any_batch(panda):
    embodiment, envs = panda
    policy, keys = PARCEL_STOW.random(embodiment), [episode_key(0, k) for k in range(2)]
    both, acted = run(envs, policy, keys, 10.0)
    (alone,), (acted_alone,) = run(envs, [policy], keys[1:], 10.0)
    np.testing.assert_array_equal(acted[1], acted_alone)
    for name in ("object_pose", "joint_position", "fingertip_force"):
        np.testing.assert_array_equal(getattr(both[1], name), getattr(alone, name))
    assert (acted[0][1:] != acted[1][1:]).any() and len(acted[0]) == PARCEL_STOW.schedule.steps(10.0) + 1


def test_a_learner_sees_the_environments_observation_with_the_speed_that_it_is_told(panda):
    embodiment, envs = panda
    told, observations = [], []

    def predict(key, history):
        told.append(float(history[-1, -1]))
        return np.tile(np.asarray(history[:, -1]).mean(), (4, len(embodiment.actuators)))

    policy = chunked(
        "told", predict, actions_n=len(embodiment.actuators), history_n=2, chunk_n=4, execute_n=4, host=True
    )
    _, (acted,) = run(
        envs, [policy], [episode_key(0, 0)], 10.0, 0.25, each_step=lambda s: observations.append(s.observation[0])
    )
    steps = int(PARCEL_STOW.schedule.steps(10.0))
    assert len(acted) - 1 == steps and told == [0.25] * -(-steps // 4)
    assert (acted[1:] == 0.25).all() and np.isnan(acted[0]).all()

    state = envs.reset([episode_key(0, 0)], 10.0, 0.25)
    np.testing.assert_array_equal(seen(envs, state).of(0).vector, state.observation[0])
    layout = PARCEL_STOW.observed(embodiment)
    assert state.observation[0, layout["speed"]] == [0.25] and layout["speed"].stop == state.observation.shape[1]
    np.testing.assert_array_equal(observations[0][layout["previous_action"]], np.full(acted.shape[1], 0.25))


def test_one_scripted_policy_runs_on_any_environment_that_gives_what_it_reads(panda):
    """Joints held where the observation has them: no part of the contract is MuJoCo's own."""
    embodiment, envs = panda

    def act(state: np.ndarray, now: Observation) -> Act:
        return Act(embodiment.action(state), state)

    policy = Policy("hold", lambda now, key: now.joints[embodiment.actuated], act, host=True)
    (signals,), _ = run(envs, [policy], [episode_key(0, 0)], 10.0)
    moved = np.abs(signals.joint_position - signals.joint_position[0])[:, embodiment.actuated]
    assert moved.max() < 0.02
