"""Physics steps a second of ParcelStow: MuJoCo on this machine's cores, MJX on whatever device JAX has here.

    python benchmarks/parcel_stow.py [embodiments=panda,g1] [mjx_batches=1,16,64,1024 or none] [quick=true]

All episodes begin where the expert has just gripped the object, so that grasp and table contacts are solved, and hold
their last action. What is timed is `step` as a rollout calls it: four physics steps, the forces of the instant after,
and the row of signals. A ratio is MuJoCo's time over MJX's for as many episodes, MuJoCo with all cores. Batches of
MuJoCo greater than 100 are timed as 100 and scaled. `compile_s` is wall time, with nothing cached. A policy step is a
network's action for 20 episodes, in one batched call and episode by episode; its ratio is the physics' time over its.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from record import arguments, median_s, row, write

from jaxeval.policies.batch import Batch
from jaxeval.policies.policy import Act, Observation, Policy, World, episode_key
from jaxeval.sim.mujoco import environment as mujoco
from jaxeval.sim.mujoco import mjx
from jaxeval.sim.mujoco.backend import world_of
from jaxeval.sim.mujoco.embodiment import Embodiment, load_embodiment
from jaxeval.sim.mujoco.task import SUBSTEPS
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW
from jaxeval.types import InputError

UNIT = "physics steps/s"
MOST_N = 100
"""Episodes of MuJoCo that are timed at once."""
STARTS_N = 4
"""Different starts; batches repeat them."""


class Gripped:
    """Where the expert lifts: joint and object states, and the action it holds, of `STARTS_N` episodes."""

    def __init__(self, embodiment: Embodiment) -> None:
        envs, expert = mujoco.Environments(PARCEL_STOW, embodiment), PARCEL_STOW.expert(embodiment)
        keys = [episode_key(0, k) for k in range(STARTS_N)]
        state = envs.reset(keys, 1.0)
        batch = Batch(expert, STARTS_N)
        batch.init(mujoco.seen(envs, state), keys)
        lift = PARCEL_STOW.schedule.index("LIFT")
        while (state.signals.phase < lift).all():
            action, _ = batch.act(mujoco.seen(envs, state), [True] * STARTS_N)
            state = envs.step(state, action)
        self.keys, self.action, self.step = keys, state.action, int(state.step[0])
        self.qpos = np.array([d.qpos for d in state.data])
        self.qvel = np.array([d.qvel for d in state.data])

    def tiled(self, x: np.ndarray, n: int) -> np.ndarray:
        return x[np.arange(n) % STARTS_N]


def on_host(embodiment: Embodiment, at: Gripped, n: int, threads_n: int, steps_n: int) -> float:
    """Seconds that MuJoCo takes for so many control steps of n episodes."""
    envs = mujoco.Environments(PARCEL_STOW, embodiment, threads_n=threads_n)
    action = at.tiled(at.action, n)

    def start() -> mujoco.State:
        state = envs.reset([at.keys[i % STARTS_N] for i in range(n)], 1.0)
        for d, qpos, qvel in zip(state.data, at.tiled(at.qpos, n), at.tiled(at.qvel, n), strict=True):
            d.qpos[:], d.qvel[:] = qpos, qvel
        return state

    states = iter([start() for _ in range(6)])  # a state is stepped once: one for every time

    def steps() -> None:
        state = next(states)
        for _ in range(steps_n):
            state = envs.step(state, action)

    return median_s(steps)


def network(world: World, width: int = 256) -> Policy:
    """An MLP of three layers with random weights: what a small learner costs."""
    sizes = [max(part.stop for part in world.layout.values()), width, width, width, world.actions_n]
    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    layers = [jax.random.normal(k, s) / s[0] ** 0.5 for k, s in zip(keys, pairwise(sizes), strict=True)]

    def act(state: jax.Array, seen: Observation) -> Act:
        x = seen.vector
        for W in layers[:-1]:
            x = jax.nn.gelu(x @ W)
        return Act(0.01 * jnp.tanh(x @ layers[-1]), state)

    return Policy("network", lambda seen, key: jnp.zeros(()), act, state_axes=None)


def acting(policy: Policy, envs: mujoco.Environments, at: Gripped, n: int, steps_n: int, *, one_by_one: bool) -> float:
    """Seconds that a policy takes for ``steps_n`` control steps of n episodes: one call a step, or one an episode."""
    keys = [at.keys[i % STARTS_N] for i in range(n)]
    seen = mujoco.seen(envs, envs.reset(keys, 1.0))
    policies = [replace(policy, name=str(i)) for i in range(n)] if one_by_one else policy
    batch = Batch(policies, n)
    batch.init(seen, keys)

    def steps() -> None:
        for _ in range(steps_n):
            batch.act(seen, [True] * n)

    return median_s(steps)


def policy_rows(name: str, embodiment: Embodiment, at: Gripped, steps_n: int, n: int = 20) -> list[dict[str, Any]]:
    """What a policy adds to a control step of the physics and its signals."""
    envs = mujoco.Environments(PARCEL_STOW, embodiment)
    policy = network(world_of(envs, "mujoco"))
    physics = on_host(embodiment, at, n, 1, steps_n)
    peer = f"MuJoCo physics and signals, B={n}, one thread"
    out = []
    for one_by_one in (False, True):
        s = acting(policy, envs, at, n, steps_n, one_by_one=one_by_one)
        work = f"policy step, {'episode by episode, eager' if one_by_one else 'one batch'}"
        size = f"{name}, B={n}, MLP 3 x 256"
        out.append(row(work, size, s, peer=peer, peer_s=physics, unit="control steps/s", amount=n * steps_n))
    return out


def on_device(envs: mjx.Environments, at: Gripped, n: int, steps_n: int) -> tuple[float, float]:
    """Seconds that MJX takes for the same, and seconds to compile it (the first also to trace it)."""
    starts = envs.starts([at.keys[i % STARTS_N] for i in range(n)])
    state = jax.vmap(envs.before)(starts, jnp.ones(n))
    qpos, qvel, action = (jnp.asarray(at.tiled(x, n)) for x in (at.qpos, at.qvel, at.action))
    state = state._replace(qpos=qpos, qvel=qvel, step=jnp.full(n, at.step, jnp.int32))

    def steps(state: mjx.State) -> mjx.State:
        return jax.lax.scan(lambda s, _: (jax.vmap(envs.step)(s, action), None), state, None, steps_n)[0]

    began = time.perf_counter()
    compiled = jax.jit(steps).lower(state).compile()
    compile_s = time.perf_counter() - began
    return median_s(lambda: compiled(state)), compile_s


def rows_of(name: str, quick: bool, batches: list[int]) -> list[dict[str, Any]]:
    """Rows of one embodiment."""
    embodiment = load_embodiment(name)
    at = Gripped(embodiment)
    steps_n, cores = 2 if quick else 20, os.cpu_count() or 1
    rows = []
    for threads_n in sorted({1, min(2, cores)}):
        for n in (1, 20) if quick else (1, 20, 100):
            s = on_host(embodiment, at, n, threads_n, steps_n)
            size = f"{name}, B={n}, threads={threads_n}"
            rows.append(row("MuJoCo step", size, s, unit=UNIT, amount=n * steps_n * SUBSTEPS))
    rows += policy_rows(name, embodiment, at, steps_n)
    if not batches:
        return rows
    try:
        envs = mjx.Environments(PARCEL_STOW, embodiment)
    except InputError as missing:
        print(f"MJX is left out: {missing}", file=sys.stderr)
        return rows
    versions = {p: version(p) for p in ("mujoco", "mujoco-mjx")}
    for n in batches:
        few = min(n, MOST_N)
        peer_s = on_host(embodiment, at, few, cores, steps_n) * n / few
        s, compile_s = on_device(envs, at, n, steps_n)
        where = jax.devices()[0].platform
        rows.append(
            row("MJX step", f"{name}, B={n}, {where}", s, peer=f"MuJoCo, {cores} threads", peer_s=peer_s, unit=UNIT,
                amount=n * steps_n * SUBSTEPS, compile_s=compile_s, device=jax.devices()[0].device_kind,
                versions=versions)
        )  # fmt: skip
    return rows


def main(out: str, embodiments: str, mjx_batches: str, quick: str) -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    batches = [] if mjx_batches == "none" else [1, 4] if quick == "true" else [int(b) for b in mjx_batches.split(",")]
    rows = [r for name in embodiments.split(",") for r in rows_of(name, quick == "true", batches)]
    write(Path(out), "parcel_stow", rows)


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/benchmarks", embodiments="panda", mjx_batches="1,16,64", quick="false"))
