"""Learners that predict chunks of actions from a history of observations: what they remember, and what they do next.

A learner is one function, ``predict(key, history [H, O]) -> chunk [C, A]``: row j of its chunk is the action for j
steps from now, and the history's last row is now. (A model whose prediction begins with the oldest observation, as
Diffusion Policy's, leaves out the first H - 1 rows of it.) All else is here, as pure functions of arrays whose shapes
never change, so that rollouts ``jit`` and ``vmap`` them, as a `Policy`.

At step 0 the history is filled with copies of the first observation (our reading; the sources do not say). Every
``execute_n`` steps there is a new chunk, made with ``fold_in(key, step)``. In the open loop it replaces what was
planned. With temporal ensembling, the action for a step is the mean of what all chunks so far say of that step, with
weights ``exp(-rate i)``, i = 0 for the oldest of them. As the oldest comes first, each new chunk is averaged in when it
comes, and none need be kept.

Source: ACT (Zhao et al. 2023, section 4: chunks of 100, ``execute_n`` 1, rate .01); Diffusion Policy (Chi et al. 2023:
histories of 2, ``execute_n`` 8, open loop).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval.policies.policy import Act, Observation, Policy
from jaxeval.types import InputError

Predict = Callable[[Array, Float[Array, "H O"]], Any]
"""``predict(key, history) -> chunk``, oldest observation first; any arrays, NumPy's too."""
Vector = Float[Array, " O"] | Float[np.ndarray, " O"]
Branch = Callable[..., Any]
"""As ``jax.lax.cond``: predicate, two functions, operands."""


class ChunkState(NamedTuple):
    """What is remembered between two steps of one episode."""

    key: Array
    """The episode's."""
    history: Float[Array, "H O"]
    """Last observations, oldest first."""
    planned: Float[Array, "C A"]
    """Row j: the action for j steps from now, as far as chunks have spoken of it."""
    said_n: Int[Array, " C"]
    """How many chunks spoke of it."""
    step: Int[Array, ""]
    """Actions so far."""


IN_STEP = ChunkState(key=0, history=0, planned=0, said_n=None, step=None)  # pyright: ignore[reportArgumentType]
"""Axes of a batch whose episodes are all at the same step, as `Policy.state_axes`: then ``predict`` is computed only
when it is due, while a batch with a step for each episode computes it at every step."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """How chunks of ``chunk_n`` actions (A = ``actions_n``) are made and used; ``ensemble_rate`` None: open loop."""

    predict: Predict
    history_n: int
    chunk_n: int
    actions_n: int
    execute_n: int
    ensemble_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("history_n", "chunk_n", "actions_n", "execute_n"):
            if (n := getattr(self, name)) < 1:
                raise InputError(f"{name} is {n}; expected a whole number from 1 on; correct the policy's settings")
        if self.execute_n > self.chunk_n:
            raise InputError(
                f"execute_n is {self.execute_n}; expected at most chunk_n, {self.chunk_n}, the actions that a chunk "
                "holds; correct the policy's settings"
            )
        if self.ensemble_rate is not None and not np.isfinite(self.ensemble_rate):
            raise InputError(
                f"ensemble_rate is {self.ensemble_rate}; expected a finite number, or null for open loop; correct it"
            )

    def init(self, vector: Vector, key: Array) -> ChunkState:
        """The state before the first action; ``vector`` is the observation that it is made from."""
        vector = jnp.asarray(vector, jnp.result_type(float))
        return ChunkState(
            key=key,
            history=jnp.broadcast_to(vector[None], (self.history_n, *vector.shape)),
            planned=jnp.zeros((self.chunk_n, self.actions_n), vector.dtype),
            said_n=jnp.zeros(self.chunk_n, jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )

    def act(
        self, state: ChunkState, vector: Vector, branch: Branch = jax.lax.cond
    ) -> tuple[Float[Array, " A"], ChunkState]:
        """The action on what is seen now, and the state after it."""
        state, key, due = _seen(state, vector, self.execute_n)
        state = branch(due, self._planned_anew, _as_it_is, state, key)
        return _next(state)

    def _planned_anew(self, state: ChunkState, key: Array) -> ChunkState:
        chunk = self.predict(key, state.history)
        if (found := np.shape(chunk)) != state.planned.shape:
            raise InputError(
                f"predict gave a chunk of shape {found}; expected {state.planned.shape}, chunk_n and actions_n; "
                "correct it or the policy's settings"
            )
        return _averaged(state, jnp.asarray(chunk, state.planned.dtype), self._shares)

    @cached_property
    def _shares(self) -> Float[np.ndarray, " N"]:
        """What a chunk counts for in the mean with those before it, by how many these are.

        With w_i = exp(-rate i), ``w_n / (w_0 + ... + w_n)``; always 1 in the open loop.
        """
        if self.ensemble_rate is None:
            return np.ones(self.chunk_n)
        exponent = -self.ensemble_rate * np.arange(self.chunk_n)
        return np.exp(exponent - np.logaddexp.accumulate(exponent))  # logarithms: no weight overflows


@jax.jit
def _seen(state: ChunkState, vector: Vector, execute_n: int) -> tuple[ChunkState, Array, Bool[Array, ""]]:
    """With this observation in its history, in place of the oldest; the step's key; whether a chunk is due."""
    now = jnp.asarray(vector, state.history.dtype)[None]
    state = state._replace(history=jnp.concatenate([state.history[1:], now]))
    return state, jax.random.fold_in(state.key, state.step), state.step % execute_n == 0


def _as_it_is(state: ChunkState, _: Array) -> ChunkState:
    return state


@jax.jit
def _averaged(state: ChunkState, chunk: Float[Array, "C A"], shares: Float[Array, " N"]) -> ChunkState:
    """``(1 - share) mean + share chunk``: the chunk itself where none spoke before, and in the open loop."""
    share = jnp.asarray(shares, chunk.dtype)[state.said_n][:, None]
    planned = (1 - share) * state.planned + share * chunk
    return state._replace(planned=planned, said_n=state.said_n + 1)


@jax.jit
def _next(state: ChunkState) -> tuple[Float[Array, " A"], ChunkState]:
    """The action planned for now; what was planned for a step from now is planned for now after it."""
    planned = jnp.concatenate([state.planned[1:], jnp.zeros_like(state.planned[:1])])
    said_n = jnp.concatenate([state.said_n[1:], jnp.zeros_like(state.said_n[:1])])
    return state.planned[0], state._replace(planned=planned, said_n=said_n, step=state.step + 1)


def _on_the_host(due: Any, yes: Callable[..., Any], no: Callable[..., Any], *operands: Any) -> Any:
    """Takes the one branch that is due, so that ``predict`` need not be traceable."""
    return (yes if due else no)(*operands)


def chunked(
    name: str,
    predict: Predict,
    *,
    actions_n: int,
    history_n: int,
    chunk_n: int,
    execute_n: int,
    ensemble_rate: float | None = None,
    host: bool = False,
) -> Policy:
    """A learner as a policy: ``Chunks`` on the observation's ``vector``, whose batches predict when a chunk is due.

    With ``host``, ``predict`` is called on the host, an episode at a time, and need not be traceable.

    Raises:
        InputError: the settings make no sense; later, the environment gives no vector, or a chunk has another shape.
    """
    chunks = Chunks(predict, history_n, chunk_n, actions_n, execute_n, ensemble_rate)

    def vector(seen: Observation) -> Any:
        if seen.vector is None:
            raise InputError(
                f"policy '{name}': the environment of {seen.robot} gives no observation vector, expected one; "
                "run this policy on a task that has one"
            )
        return seen.vector

    def init(seen: Observation, key: Array) -> ChunkState:
        return chunks.init(vector(seen), key)

    def act(state: ChunkState, seen: Observation) -> Act:
        action, state = chunks.act(state, vector(seen), _on_the_host if host else jax.lax.cond)
        return Act(action, state)

    return Policy(name, init, act, state_axes=IN_STEP, host=host, traceable=not host, labels=lambda _: (name,))
