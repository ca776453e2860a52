"""A policy for the episodes that run side by side: one call a control step, whatever the policy is.

A traced policy is mapped over the batch and compiled once: batches are padded to one width, so that no episode's
actions depend on its neighbours or on how many there are. A script on the host is called episode by episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxeval.policies.policy import Act, Info, Observation, Policy


class Batch:
    """``n`` episodes of a policy, or of one policy each; all start together.

    ``width``: how many episodes a traced policy is compiled for; None: as many as there are.
    """

    def __init__(self, policy: Policy | Sequence[Policy], n: int, width: int | None = None):
        self.policies = [policy] * n if isinstance(policy, Policy) else list(policy)
        first = self.policies[0]
        self.traced = not first.host and all(p is first for p in self.policies)
        self.n, self.width = n, max(n, width or n)
        self.lost = np.full(n, -1)
        """Step at which an episode's action first was not finite, -1 for none."""
        self._steps_n = 0
        self._last: Float[np.ndarray, "B A"] | None = None
        self._states: Any = None

    def init(self, seen: Observation, keys: Sequence[Array]) -> None:
        """Begin every episode on its first observation (``seen`` has a leading axis of ``n``)."""
        if self.traced:
            init, _ = _compiled(self.policies[0])
            self._states = init(self._padded(seen), jax.numpy.stack([*keys, *[keys[-1]] * (self.width - self.n)]))
        else:
            self._states = [p.init(seen.of(i), key) for i, (p, key) in enumerate(zip(self.policies, keys, strict=True))]

    def act(self, seen: Observation, running: Sequence[bool] | np.ndarray) -> tuple[Float[np.ndarray, "B A"], Info]:
        """Actions and what is said of every episode; of those not ``running`` the last action again.

        An action that is not finite is not sent: the episode keeps its last one (zeros at its first step), and
        ``lost`` holds the step.
        """
        running = np.asarray(running, bool)
        if self.traced:
            _, step = _compiled(self.policies[0])
            action, self._states, said = step(self._states, self._padded(seen))
            action = np.asarray(action, np.float64)[: self.n]
            info = Info(*(np.broadcast_to(np.asarray(x), (self.width,))[: self.n] for x in said))
        else:
            acts = [p.act(self._states[i], seen.of(i)) if running[i] else None for i, p in enumerate(self.policies)]
            action, info = self._gathered(acts)
        last = np.zeros_like(action) if self._last is None else self._last
        finite = np.isfinite(action).all(axis=1)
        self.lost = np.where((self.lost < 0) & running & ~finite, self._steps_n, self.lost)
        self._last = np.where((running & finite)[:, None], action, last)
        self._steps_n += 1
        return self._last, info

    def labels(self, i: int) -> Sequence[str]:
        """Words for the labels of episode ``i``."""
        return self.policies[i].labels(self._state(i))

    def why(self, i: int, failed: int) -> str:
        """Why the policy gave episode ``i`` up (``failed`` as in `Info`) or could not be obeyed; "" for neither."""
        if self.lost[i] >= 0:
            return f"the policy's action at step {self.lost[i]} is not finite"
        words = self.policies[i].failures(self._state(i))
        return "" if not failed else words[failed] if failed < len(words) else f"the policy gave up with code {failed}"

    def _state(self, i: int) -> Any:
        return None if self.traced else self._states[i]

    def _gathered(self, acts: Sequence[Act | None]) -> tuple[Float[np.ndarray, "B A"], Info]:
        size = next(np.shape(a.action)[0] for a in acts if a is not None)
        action = np.zeros((self.n, size))
        said = [Info() if a is None else a.info for a in acts]
        for i, act in enumerate(acts):
            if act is not None:
                action[i], self._states[i] = act.action, act.state
        return action, Info(*(np.array(x) for x in zip(*said, strict=True)))

    def _padded(self, seen: Observation) -> Observation:
        more = self.width - self.n
        if not more:
            return seen
        return jax.tree.map(lambda x: np.concatenate([x, np.repeat(np.asarray(x)[-1:], more, axis=0)]), seen)


def mapped(policy: Policy) -> tuple[Any, Any]:
    """Of a traced policy: ``init`` and ``act`` of a batch. ``act`` gives (actions, states, info)."""
    axes = policy.state_axes

    def act(state: Any, seen: Observation) -> tuple[Any, Any, Info]:
        action, state, info = policy.act(state, seen)
        return action, state, info

    init = jax.vmap(policy.init, in_axes=0, out_axes=axes)
    return init, jax.vmap(act, in_axes=(axes, 0), out_axes=(0, axes, 0))


@cache
def _compiled(policy: Policy) -> tuple[Any, Any]:
    """What is `mapped`, compiled, once a process."""
    init, act = mapped(policy)
    return jax.jit(init), jax.jit(act)
