"""The contract between whatever acts and whatever is acted on: a pair ``init``/``act`` with explicit state.

``init(observation, key) -> state`` begins an episode; ``act(state, observation) -> (action, state, info)`` goes one
control step on. Both take arrays and give arrays, of ONE episode, and are functions of their arguments alone: the same
key and observations give the same actions, and a state may be kept and continued later. ``policies.batch`` maps and
compiles them for the episodes that run side by side; nothing else needs to know whether a policy is a network, traced
by JAX, or a script on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxeval.types import STATIC, pytree


@pytree
class Observation:
    """What a policy sees of one episode at one control step; a simulator's has a leading axis [B]. Privileged: poses.

    ``poses`` are T_world_body rows (wxyz_xyz, metres), ``tcp`` among them, and in ManiSkill the support.
    ``half_size_m`` are half extents of the bodies whose size the environment tells. ``facts`` are further numbers by
    name: lengths of the scene; on MuJoCo ``phase`` (index), ``fraction`` of it and ``speed`` as told.
    ``gripper_width_m`` is NaN and ``success`` False where the environment does not tell them, as on MuJoCo.
    ``vector`` is all that a learner sees, as `World.layout` lays it out, None where the environment has no such thing;
    where the execution speed is part of it, it is the one that the policy is told, which need not be the physical one.

    Scripts on the host get NumPy arrays in float64, traced policies JAX's arrays in JAX's precision.
    """

    time_s: Any
    poses: Mapping[str, Float[Any, "*B 7"]]
    joints: Float[Any, "*B Q"]
    T_world_base: Float[Any, "*B 7"]
    gripper_width_m: Any
    success: Any
    half_size_m: Mapping[str, Float[Any, "*B 3"]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    images: Mapping[str, Any] = field(default_factory=dict)
    vector: Float[Any, "*B O"] | None = None
    joint_names: tuple[str, ...] = field(metadata=STATIC)
    robot: str = field(metadata=STATIC)
    control_hz: float = field(metadata=STATIC)

    def of(self, i: int) -> Observation:
        """Episode ``i`` of a batch, on the host."""

        def each(rows: Mapping[str, Any]) -> dict[str, Any]:
            return {name: x[i] for name, x in rows.items()}

        return Observation(
            time_s=self.time_s[i],
            poses=each(self.poses),
            joints=self.joints[i],
            T_world_base=self.T_world_base[i],
            gripper_width_m=self.gripper_width_m[i],
            success=self.success[i],
            half_size_m=each(self.half_size_m),
            facts=each(self.facts),
            images=each(self.images),
            vector=None if self.vector is None else self.vector[i],
            joint_names=self.joint_names,
            robot=self.robot,
            control_hz=self.control_hz,
        )


class Info(NamedTuple):
    """What a policy says of itself, as numbers. ``label``: the phase it is in. ``done``: it has nothing more to do.

    ``failed``: why it gave up, 0 where it did not. `Policy.labels` and `Policy.failures` have the words.
    """

    label: Any = 0
    done: Any = False
    failed: Any = 0


class Act(NamedTuple):
    """One step of a policy: the environment's own action, the next state, and what the policy says of itself."""

    action: Float[Any, " A"]
    state: Any
    info: Info = Info()


def nothing_said(state: Any) -> Sequence[str]:
    """No words."""
    return ()


@dataclass(frozen=True, eq=False)
class Policy:
    """``init(observation, key) -> state`` starts an episode, ``act(state, observation) -> Act`` goes one step on.

    ``key`` is a JAX key; all randomness of the episode comes from it. What a policy remembers (past observations,
    actions still to come) is part of its state: see ``policies.chunks``.

    ``state_axes``: axes of a batch's states, as ``jax.vmap`` takes them: None for what all episodes of a batch share,
    such as the number of steps so far, since they all start together; then what depends on it alone, as whether a new
    chunk is due, is decided once for the batch.
    ``host``: both functions are NumPy's (a script that plans, a server that is asked) and are called one episode at a
    time. ``traceable``: ``act`` may be traced, whatever ``init`` is; so scripts that plan on the host and then follow
    run on MJX.
    ``ends``: it says itself when an episode is over. Of one that does not, an episode ends when the task has been done
    for the task's hold time, or at its last step.
    ``labels(state)`` and ``failures(state)`` are the words for the numbers in `Info`, of an episode's last state
    (None for a policy that is traced).
    """

    name: str
    init: Callable[[Observation, Array], Any]
    act: Callable[[Any, Observation], Act]
    state_axes: Any = 0
    host: bool = False
    traceable: bool = True
    ends: bool = False
    labels: Callable[[Any], Sequence[str]] = nothing_said
    failures: Callable[[Any], Sequence[str]] = nothing_said


@dataclass(frozen=True, eq=False)
class World:
    """Where a policy will act: what a factory of policies may ask before it makes one.

    ``observation`` is one episode's at its first step (NumPy), to take shapes and names from. ``low`` and ``high`` are
    the bounds of an action, infinite where there are none. ``layout``: which entries of ``observation.vector`` hold
    what. ``source`` is what a simulator's own scripts need besides.
    """

    task: str
    simulator: str
    embodiment: str
    low: Float[np.ndarray, " A"]
    high: Float[np.ndarray, " A"]
    observation: Observation
    layout: Mapping[str, slice] = field(default_factory=dict)
    source: Any = None

    @property
    def actions_n(self) -> int:
        """Entries of an action."""
        return len(self.low)


def episode_key(seed: int, episode: int) -> Array:
    """Key of an episode, whatever the order, the batch or the process it runs in."""
    return jax.random.fold_in(jax.random.key(seed), episode)


def numpy_generator(key: Array, *stream: int) -> np.random.Generator:
    """A NumPy generator seeded by a JAX key, for code on the host; each ``stream`` is independent of the others.

    Zeros at the end of a stream do not count: stream 0 is that of no stream at all.
    """
    return np.random.default_rng([*np.asarray(jax.random.key_data(key)).tolist(), *stream])


ACTIONS = 2
"""Stream of the episode's key that random actions come from; others place the objects and plan scripts."""


def random_policy(low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]) -> Policy:
    """Uniform actions between ``low`` and ``high`` until the environment ends the episode: an untrained policy."""

    def init(_: Observation, key: Array) -> tuple[Array, int]:
        return key, 0

    def act(state: tuple[Array, int], _: Observation) -> Act:
        key, step = state
        action = numpy_generator(key, ACTIONS, step).uniform(low, high)
        return Act(action, (key, step + 1))

    return Policy("random", init, act, host=True, traceable=False, labels=lambda _: ("random",))
