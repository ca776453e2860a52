"""Chunks of actions: golden episodes worked by hand, and that host, jit and vmap tell the same episode.

Each was seen to fail: weights exp(+rate i); chunks made at the wrong steps; a history padded with zeros; a key that is
not folded with the step; a state that is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.policies.chunks import IN_STEP, Chunks, ChunkState, chunked
from jaxeval.policies.policy import Observation, Policy, episode_key
from jaxeval.types import InputError

HALVED = float(np.log(2.0))
"""The rate at which each later chunk weighs half of the one before."""


def seen(vector: Sequence[float] | np.ndarray | None) -> Observation:
    return Observation(
        time_s=0.0,
        poses={},
        joints=np.zeros(0),
        joint_names=(),
        T_world_base=np.array([1.0, 0, 0, 0, 0, 0, 0]),
        gripper_width_m=float("nan"),
        success=False,
        robot="panda",
        control_hz=50,
        vector=None if vector is None else np.asarray(vector, float),
    )


def actions(policy: Policy, vectors: Sequence[Sequence[float]] | np.ndarray, key: int = 0) -> np.ndarray:
    """Of one episode with these observations."""
    state, out = policy.init(seen(vectors[0]), episode_key(0, key)), []
    for vector in vectors:
        act = policy.act(state, seen(vector))
        state = act.state
        out.append(act.action)
    return np.stack(out)


class Told:
    """Predicts the chunk that a table has for the step, which is what the observation tells; lists those steps."""

    def __init__(self, chunks: dict[int, list[float]]):
        self.chunks, self.steps = chunks, list[int]()

    def __call__(self, key: jax.Array, history: jax.Array) -> np.ndarray:
        self.steps.append(int(history[-1, 0]))
        return np.array(self.chunks[self.steps[-1]])[:, None]


# ------------------------------------------------------------------------------------------------- golden episodes

CHUNKS = {0: [5.0, 3.0, 7.0], 1: [9.0, 14.0, 21.0], 2: [28.0, 0.0, 1.0], 3: [42.0, 2.0, 3.0]}
"""Chunk by the step at which it is made."""


@pytest.mark.parametrize(
    "rate, execute_n, expected",
    [
        # weights 1, 1/2, 1/4 from the oldest: (3 + 9/2) / 1.5, (7 + 14/2 + 28/4) / 1.75, (21 + 0 + 42/4) / 1.75;
        # from the newest, these would be 7, 21 and 27
        (HALVED, 1, [5.0, 5.0, 12.0, 18.0]),
        (-HALVED, 1, [5.0, 7.0, 21.0, 27.0]),
        (0.0, 1, [5.0, 6.0, 49 / 3, 21.0]),
        (HALVED, 2, [5.0, 3.0, (7 + 28 / 2) / 1.5, 0.0]),
        (None, 1, [5.0, 9.0, 28.0, 42.0]),
        (None, 2, [5.0, 3.0, 28.0, 0.0]),
        (None, 3, [5.0, 3.0, 7.0, 42.0]),
        (HALVED, 3, [5.0, 3.0, 7.0, 42.0]),  # no two chunks speak of one step
    ],
)
def test_the_action_is_what_the_chunks_say_of_the_step(
    rate: float | None, execute_n: int, expected: list[float]
) -> None:
    predict = Told(CHUNKS)
    settings = {"execute_n": execute_n, "ensemble_rate": rate, "host": True}
    policy = chunked("told", predict, actions_n=1, history_n=1, chunk_n=3, **settings)
    found = actions(policy, [[float(s)] for s in range(4)])
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6)
    assert predict.steps == list(range(0, 4, execute_n))


def test_all_chunks_of_a_long_episode_are_weighed_as_published() -> None:
    """100 actions a chunk, rate .01: against the sum written out, in which the opposite sign is 7 % off."""
    C, T = 100, 130
    said = np.random.default_rng(0).normal(size=(T, C, 2)) + 0.05 * np.arange(T)[:, None, None]
    policy = chunked(
        "act",
        lambda _, history: said[int(history[-1, 0])],
        actions_n=2,
        history_n=1,
        chunk_n=C,
        execute_n=1,
        ensemble_rate=0.01,
        host=True,
    )
    found = actions(policy, np.arange(T, dtype=float)[:, None])

    def mean(t: int, sign: float) -> np.ndarray:
        made = np.arange(max(0, t - C + 1), t + 1)
        weights = np.exp(sign * 0.01 * np.arange(len(made)))
        return (weights[:, None] * said[made, t - made]).sum(0) / weights.sum()

    np.testing.assert_allclose(found, [mean(t, -1) for t in range(T)], atol=2e-5)
    assert np.abs(found[-1] - mean(T - 1, 1)).max() > 0.05 * np.abs(found[-1]).max()


def test_histories_begin_with_copies_of_the_first_observation() -> None:
    policy = chunked(
        "history", lambda _, history: history[:, 0][None], actions_n=3, history_n=3, chunk_n=1, execute_n=1
    )
    found = actions(policy, [[4.0], [5.0], [6.0], [7.0]])
    np.testing.assert_array_equal(found, [[4, 4, 4], [4, 4, 5], [4, 5, 6], [5, 6, 7]])


def test_each_chunk_has_a_key_of_its_own_folded_from_the_episodes() -> None:
    policy = chunked(
        "noise", lambda key, _: jax.random.uniform(key, (4, 1)), actions_n=1, history_n=1, chunk_n=4, execute_n=2
    )
    found = actions(policy, np.zeros((4, 1)), key=7)[:, 0]
    first, later = (jax.random.uniform(jax.random.fold_in(episode_key(0, 7), step), (4, 1)) for step in (0, 2))
    np.testing.assert_array_equal(found, [first[0, 0], first[1, 0], later[0, 0], later[1, 0]])


# ------------------------------------------------------------------------------------------------- one formula


W = jnp.asarray(np.random.default_rng(1).normal(size=(6, 10)), jnp.float32)
VECTORS = np.random.default_rng(2).normal(size=(3, 9, 3)).astype(np.float32)
"""Of 3 episodes with 9 steps."""
Pure = Callable[[Any, Any], tuple[Any, ChunkState]]


def noisy(key: jax.Array, history: jax.Array) -> jax.Array:
    """A small learner: 5 actions of 2 numbers, from 2 observations of 3 and from noise."""
    flat = jnp.tanh(history.reshape(1, -1) @ W) + 0.1 * jax.random.normal(key, (1, 10))
    return flat.reshape(5, 2)


SETTINGS = {"actions_n": 2, "history_n": 2, "chunk_n": 5}


@pytest.fixture(scope="module", params=[(3, None), (1, 0.1), (2, 0.1)], ids=["open loop", "ensemble", "every other"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SETTINGS | {"execute_n": request.param[0], "ensemble_rate": request.param[1]}


@pytest.fixture(scope="module")
def on_the_host(settings: dict[str, Any]) -> np.ndarray:
    """Actions [3, 9, 2] of the host's policy, episode by episode."""
    policy = chunked("noisy", noisy, **settings, host=True)
    return np.stack([actions(policy, VECTORS[k], key=k) for k in range(3)])


def rolled(act: Pure, state: Any, vectors: np.ndarray) -> np.ndarray:
    out = []
    for vector in vectors:
        action, state = act(state, jnp.asarray(vector))
        out.append(np.asarray(action))
    return np.stack(out)


def test_eager_and_jitted_are_the_hosts(settings: dict[str, Any], on_the_host: np.ndarray) -> None:
    chunks = Chunks(noisy, **settings)
    for act, n in ((chunks.act, 4), (jax.jit(chunks.act), 9)):  # eager, every step compiles its branches
        found = rolled(act, chunks.init(jnp.asarray(VECTORS[1, 0]), episode_key(0, 1)), VECTORS[1, :n])
        np.testing.assert_allclose(found, on_the_host[1, :n], atol=1e-6)


@pytest.mark.parametrize("episodes", [(0, 1, 2), (2, 0), (1,)])
@pytest.mark.parametrize("in_step", [True, False])
def test_an_episode_is_the_same_in_any_batch(
    settings: dict[str, Any], on_the_host: np.ndarray, episodes: tuple[int, ...], in_step: bool
) -> None:
    chunks = Chunks(noisy, **settings)
    keys = jnp.stack([episode_key(0, k) for k in episodes])
    axes = IN_STEP if in_step else 0
    state = jax.vmap(chunks.init, out_axes=axes)(jnp.asarray(VECTORS[list(episodes), 0]), keys)
    assert state.step.shape == (() if in_step else (len(episodes),))
    act = jax.jit(jax.vmap(chunks.act, in_axes=(axes, 0), out_axes=(0, axes)))
    found = rolled(act, state, VECTORS[list(episodes)].swapaxes(0, 1))
    np.testing.assert_allclose(found.swapaxes(0, 1), on_the_host[list(episodes)], atol=1e-6)


def test_episodes_may_be_at_different_steps(on_the_host: np.ndarray, settings: dict[str, Any]) -> None:
    """The second episode starts 4 steps after the first, in one batch."""
    chunks = Chunks(noisy, **settings)
    start = [chunks.init(jnp.asarray(VECTORS[k, 0]), episode_key(0, k)) for k in range(2)]
    act, alone = jax.jit(jax.vmap(chunks.act)), jax.jit(chunks.act)
    ahead = start[0]
    for t in range(4):
        _, ahead = alone(ahead, jnp.asarray(VECTORS[0, t]))
    state = jax.tree.map(lambda *x: jnp.stack(x), ahead, start[1])
    vectors = np.stack([VECTORS[0, 4:9], VECTORS[1, :5]], axis=1)
    found = rolled(act, state, vectors)
    np.testing.assert_allclose(found[:, 0], on_the_host[0, 4:9], atol=1e-6)
    np.testing.assert_allclose(found[:, 1], on_the_host[1, :5], atol=1e-6)


def test_a_batch_in_step_predicts_only_when_it_is_due() -> None:
    chunks = Chunks(noisy, execute_n=3, **SETTINGS)
    one = chunks.init(jnp.asarray(VECTORS[0, 0]), episode_key(0, 0))
    in_step = one._replace(**{n: jnp.stack([getattr(one, n)] * 3) for n in ("key", "history", "planned")})
    each = jax.tree.map(lambda x: jnp.stack([x] * 3), one)
    vectors = jnp.asarray(VECTORS[:, 0])
    text = [
        str(jax.make_jaxpr(jax.vmap(chunks.act, in_axes=(axes, 0), out_axes=(0, axes)))(state, vectors))
        for axes, state in ((IN_STEP, in_step), (0, each))
    ]
    assert " cond[" in text[0] and " cond[" not in text[1]  # with a step for each, both branches are computed


def test_it_runs_inside_a_scan_as_step_by_step(on_the_host: np.ndarray, settings: dict[str, Any]) -> None:
    chunks = Chunks(noisy, **settings)
    start = chunks.init(jnp.asarray(VECTORS[2, 0]), episode_key(0, 2))

    def step(state: ChunkState, vector: jax.Array) -> tuple[ChunkState, jax.Array]:
        action, state = chunks.act(state, vector)
        return state, action

    _, found = jax.jit(lambda s, v: jax.lax.scan(step, s, v))(start, jnp.asarray(VECTORS[2]))
    np.testing.assert_allclose(found, on_the_host[2], atol=1e-6)


def test_a_state_may_be_kept_and_continued(settings: dict[str, Any], on_the_host: np.ndarray) -> None:
    policy = chunked("noisy", noisy, **settings, host=True)
    state = policy.init(seen(VECTORS[0, 0]), episode_key(0, 0))
    for t in range(4):
        state = policy.act(state, seen(VECTORS[0, t])).state
    kept = jax.tree.map(lambda x: np.array(jax.random.key_data(x) if x is state.key else x), state)
    for _ in range(2):
        again, out = state, []
        for t in range(4, 9):
            act = policy.act(again, seen(VECTORS[0, t]))
            again = act.state
            out.append(act.action)
        np.testing.assert_array_equal(np.stack(out), on_the_host[0, 4:])
    for name in ("history", "planned", "said_n", "step"):
        np.testing.assert_array_equal(getattr(state, name), getattr(kept, name))


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"history_n": 0}, "history_n is 0; expected a whole number from 1 on"),
        ({"execute_n": 6}, "execute_n is 6; expected at most chunk_n, 5"),
        ({"execute_n": 1, "ensemble_rate": float("inf")}, "ensemble_rate is inf; expected a finite number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        chunked("noisy", noisy, **(SETTINGS | {"execute_n": 5} | wrong))


def test_chunks_of_another_shape_and_environments_without_vectors_are_refused() -> None:
    policy = chunked("noisy", noisy, actions_n=3, history_n=2, chunk_n=5, execute_n=1)
    state = policy.init(seen(VECTORS[0, 0]), episode_key(0, 0))
    with pytest.raises(InputError, match=r"a chunk of shape \(5, 2\); expected \(5, 3\)"):
        policy.act(state, seen(VECTORS[0, 0]))
    with pytest.raises(InputError, match="policy 'noisy': the environment of panda gives no observation vector"):
        policy.act(state, seen(None))
