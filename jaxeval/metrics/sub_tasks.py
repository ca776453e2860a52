"""Stages of any task: which of its sub-tasks an episode reached, in order, and the first that it did not reach.

Where each sub-task ends is found by ``align.align_episode`` with the predicates of the task's spec. Written for one
episode and vmapped by the caller. For grasp-and-insert tasks with recorded forces see ``metrics.stages``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval.align import Alignment, missing_bodies, needed_bodies
from jaxeval.metrics.status import Status
from jaxeval.types import TaskSpec


class SubTaskStages(NamedTuple):
    """Of each sub-task whether it was reached and when it ended; of the episode the first that was not reached."""

    reached: Int[Array, "... P"]  # 1 reached, 0 not, -1 where that cannot be known
    ended_s: Float[Array, "... P"]  # NaN where it was not reached
    missed: Int[Array, "..."]  # index of the first sub-task not reached, -1 for none
    status: Int[Array, "..."]


def asked(spec: TaskSpec, bodies: tuple[str, ...]) -> tuple[bool, ...]:
    """Which sub-tasks can be asked about: at least one predicate looks only at bodies that there are."""
    return tuple(any(not missing_bodies(u, spec, bodies) for u in s.until) for s in spec.sub_tasks)


def seen(
    valid: Bool[Array, "T N"],
    frame_valid: Bool[Array, " T"],
    gripper_width_m: Float[Array, " T"],
    joints: Float[Array, "T Q"] | None,
    *,
    spec: TaskSpec,
    bodies: tuple[str, ...],
    joint_names: tuple[str, ...] = (),
) -> Bool[Array, " P"]:
    """Of each sub-task, whether every predicate that can be asked was measured in some frame."""
    out: list[Array] = []
    for sub_task in spec.sub_tasks:
        all_seen = jnp.any(frame_valid)
        for u in sub_task.until:
            if missing_bodies(u, spec, bodies):
                continue
            there = frame_valid
            for body in needed_bodies(u, spec):
                there = there & valid[:, bodies.index(body)]
            if u.kind.startswith("gripper_"):
                there = there & jnp.isfinite(gripper_width_m)
            if u.kind == "joint_past" and joints is not None:
                there = there & jnp.isfinite(joints[:, joint_names.index(u.body)])
            all_seen = all_seen & jnp.any(there)
        out.append(all_seen)
    return jnp.stack(out)


def sub_task_stages(
    aligned: Alignment, seen: Bool[Array, " P"], *, asked: tuple[bool, ...] | Bool[np.ndarray, " P"]
) -> SubTaskStages:
    """The sub-tasks that an episode reached, and the first that it did not reach.

    Sub-tasks are in order, so that none is reached after one that was not. Of a sub-task that was not ``asked`` nothing
    is known, and the next one is looked at. From one on that was not ``seen``, while all before it were reached,
    nothing is known: Status.UNSEEN.

    >>> found = Alignment(jnp.array([3, 9]), jnp.array([True, False]), jnp.zeros(9, int), jnp.zeros(2), jnp.ones(2))
    >>> sub_task_stages(found, jnp.array([True, True]), asked=(True, True)).missed.item()
    1
    """
    reached: list[Array] = []
    alive, blind, missed = jnp.asarray(True), jnp.asarray(False), jnp.asarray(-1, jnp.int32)
    for p, ask in enumerate(asked):
        if not ask:
            reached.append(jnp.asarray(-1, jnp.int32))
            continue
        blind = blind | (alive & ~seen[p])
        misses = alive & ~blind & ~aligned.reached[p]
        missed = jnp.where(misses, p, missed).astype(jnp.int32)
        alive = alive & ~misses
        reached.append(jnp.where(blind, -1, aligned.reached[p] & alive).astype(jnp.int32))
    all_reached = jnp.stack(reached)
    return SubTaskStages(
        reached=all_reached,
        ended_s=jnp.where(all_reached == 1, aligned.ended_s, jnp.nan),
        missed=missed,
        status=jnp.where(blind, Status.UNSEEN, Status.OK),
    )
