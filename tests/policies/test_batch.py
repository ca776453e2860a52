"""Policies in batches: a neighbour changes no bit, one compiled call for all, and actions that cannot be sent."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.policies import Act, Info, Observation, Policy
from jaxeval.policies.batch import Batch
from jaxeval.policies.chunks import chunked
from jaxeval.policies.policy import episode_key

W = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
VECTORS = np.random.default_rng(1).normal(size=(8, 6, 5))
"""Of 8 episodes with 6 steps."""
WIDTH = 8


def seen(vectors: np.ndarray) -> Observation:
    n = len(vectors)
    zero = np.zeros(n)
    return Observation(
        time_s=zero, poses={}, joints=np.zeros((n, 2)), T_world_base=np.zeros((n, 7)), gripper_width_m=zero,
        success=zero.astype(bool), vector=vectors, joint_names=("a", "b"), robot="panda", control_hz=50.0,
    )  # fmt: skip


def network(traces: list[int] | None = None, **options: object) -> Policy:
    """Action: tanh of a product, plus noise of the episode's key; gives up with code 2 past the fourth step."""

    def init(_: Observation, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return key, jnp.zeros((), jnp.int32)

    def act(state: tuple[jax.Array, jax.Array], now: Observation) -> Act:
        if traces is not None:
            traces.append(1)
        key, step = state
        noise = jax.random.normal(jax.random.fold_in(key, step), (3,))
        info = Info(step, step >= 5, jnp.where(step > 4, 2, 0))
        return Act(jnp.tanh(jnp.asarray(now.vector, jnp.float32) @ W) + 0.1 * noise, (key, step + 1), info)

    words = {"labels": lambda _: "abcdef", "failures": lambda _: ("", "one", "two")}
    return Policy("network", init, act, **words, **options)  # type: ignore[arg-type]


def run(policy: Policy, episodes: list[int], width: int | None = WIDTH) -> tuple[np.ndarray, Batch, Info]:
    batch = Batch(policy, len(episodes), width)
    batch.init(seen(VECTORS[episodes, 0]), [episode_key(0, k) for k in episodes])
    out, info = [], Info()
    for t in range(6):
        action, info = batch.act(seen(VECTORS[episodes, t]), [True] * len(episodes))
        out.append(np.array(action))
    return np.stack(out, axis=1), batch, info


def test_a_neighbour_and_a_place_in_the_batch_change_no_bit() -> None:
    policy = network()
    every, *_ = run(policy, list(range(8)))
    some, *_ = run(policy, [5, 2, 7])
    np.testing.assert_array_equal(some, every[[5, 2, 7]])
    assert len({a.tobytes() for a in every}) == 8  # or the comparison would say nothing


def test_a_batch_of_another_width_agrees_to_float32() -> None:
    np.testing.assert_allclose(run(network(), [3], None)[0], run(network(), [3])[0], atol=2e-6)


def test_one_trace_serves_all_batches_and_steps() -> None:
    traces: list[int] = []
    policy = network(traces)
    for episodes in ([0], [1, 2, 3], list(range(8))):
        run(policy, episodes)
    assert len(traces) == 1


def test_on_the_host_the_same_functions_give_the_same_actions_one_by_one() -> None:
    traces: list[int] = []
    theirs, batch, info = run(network(traces, host=True), [4, 6])
    np.testing.assert_allclose(theirs, run(network(), [4, 6])[0], atol=2e-6)
    assert len(traces) == 12 and info.done.tolist() == [True, True] and batch.why(1, int(info.failed[1])) == "two"
    assert batch.labels(0)[int(info.label[0])] == "f"


def test_what_a_traced_policy_says_is_in_its_tables() -> None:
    _, batch, info = run(network(), [4, 6, 1])
    assert info.label.shape == (3,) and batch.labels(2)[int(info.label[2])] == "f"
    assert batch.why(0, int(info.failed[0])) == "two" and batch.why(0, 0) == ""
    assert batch.why(0, 9) == "the policy gave up with code 9"


@pytest.mark.parametrize("host", [False, True])
def test_an_action_that_is_not_finite_is_not_sent_and_the_others_go_on(host: bool) -> None:
    def act(state: jax.Array, now: Observation) -> Act:
        return Act(jnp.asarray(now.vector, jnp.float32)[:2], state)

    batch = Batch(Policy("pole", lambda now, key: jnp.zeros(()), act, host=host), 2, None if host else 4)
    vectors = np.array([[[1.0, 2], [3, np.nan], [5, 6]], [[1.0, 2], [3, 4], [5, 6]]])
    batch.init(seen(vectors[:, 0]), [episode_key(0, 0)] * 2)
    out = [np.array(batch.act(seen(vectors[:, t]), [True, True])[0]) for t in range(3)]
    np.testing.assert_array_equal(np.stack(out, axis=1), [[[1, 2], [1, 2], [5, 6]], [[1, 2], [3, 4], [5, 6]]])
    assert batch.why(0, 0) == "the policy's action at step 1 is not finite" and batch.why(1, 0) == ""


def test_who_is_done_keeps_the_last_action() -> None:
    batch = Batch(network(), 2, WIDTH)
    batch.init(seen(VECTORS[:2, 0]), [episode_key(0, k) for k in range(2)])
    first, _ = batch.act(seen(VECTORS[:2, 0]), [True, True])
    first = np.array(first)
    then, _ = batch.act(seen(VECTORS[:2, 1]), [False, True])
    np.testing.assert_array_equal(then[0], first[0])
    assert (then[1] != first[1]).all()


def test_chunks_are_predicted_when_they_are_due_for_the_whole_batch() -> None:
    def predict(key: jax.Array, history: jax.Array) -> jax.Array:
        return jnp.tile(history[-1, :3], (4, 1))

    policy = chunked("held", predict, actions_n=3, history_n=1, chunk_n=4, execute_n=3)
    found, *_ = run(policy, [0, 1, 2])
    expected = VECTORS[:3][:, [0, 0, 0, 3, 3, 3], :3]  # a chunk repeats what was seen when it was made
    np.testing.assert_allclose(found, expected, atol=1e-6)
