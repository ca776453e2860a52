"""The contract between whatever acts and whatever is acted on: a pair ``init``/``act`` with explicit state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float


@dataclass(frozen=True)
class Observation:
    """What a policy sees of one environment at one control step, on the host. It holds privileged state: poses.

    ``poses`` are T_world_body rows (wxyz_xyz, metres), ``tcp`` among them, and in ManiSkill the support.
    ``half_size_m`` are half extents of the bodies whose size the environment tells. ``facts`` are further numbers by
    name: lengths of the scene; on MuJoCo ``phase`` (index), ``fraction`` of it and ``speed`` as told.
    ``gripper_width_m`` is NaN and ``success`` False where the environment does not tell them, as on MuJoCo.
    ``vector`` is all that a learner sees, None where the environment has no such thing; where the execution speed is
    part of it, it is the one that the policy is told, which need not be the physical one.
    """

    time_s: float
    poses: Mapping[str, Float[np.ndarray, "7"]]
    joints: Float[np.ndarray, " Q"]
    joint_names: tuple[str, ...]
    T_world_base: Float[np.ndarray, "7"]
    gripper_width_m: float
    success: bool
    robot: str
    control_hz: float
    half_size_m: Mapping[str, Float[np.ndarray, "3"]] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, np.ndarray] = field(default_factory=dict)
    vector: Float[np.ndarray, " O"] | None = None


class Act(NamedTuple):
    """One step of a policy: the environment's own action, the next state, and what the policy says of itself.

    ``label`` names the phase it is in. ``done``: it has nothing more to do. ``failed``: why it gave up, "" otherwise.
    """

    action: Float[np.ndarray, " A"]
    state: Any
    label: str = ""
    done: bool = False
    failed: str = ""


@dataclass(frozen=True)
class Policy:
    """``init(observation, key) -> state`` starts an episode, ``act(state, observation) -> Act`` goes one step on.

    Both are functions of their arguments alone: the same key and observations give the same actions, and a state may
    be kept and continued later. ``key`` is a JAX key; all randomness of the episode comes from it. What a policy
    remembers (past observations, actions still to come) is part of its state: see ``policies.chunks``.
    """

    name: str
    init: Callable[[Observation, Array], Any]
    act: Callable[[Any, Observation], Act]


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


def random_policy(low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"], *, steps_n: int | None = None) -> Policy:
    """Uniform actions between ``low`` and ``high``: what an untrained policy scores.

    After ``steps_n`` steps it is done; without, it goes on until the environment ends the episode.
    """

    def init(_: Observation, key: Array) -> tuple[Array, int]:
        return key, 0

    def act(state: tuple[Array, int], _: Observation) -> Act:
        key, step = state
        action = numpy_generator(key, ACTIONS, step).uniform(low, high)
        return Act(action, (key, step + 1), "random", done=steps_n is not None and step + 1 >= steps_n)

    return Policy("random", init, act)
