"""Which relations can be judged in which frames, and whether enough of them was seen to judge an execution at all.

A body that was lost costs nothing while it is lost. What guards Q against that: a relation counts only where both its
bodies are valid, a frame whose constrained relations are all lost has no weight, and an execution of which a
constrained relation was seen in too few frames, or not at its end, gets a status and no number. Ours.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxeval.types import InputError, Pair, one_of

WEIGHTINGS = ("frames", "progress")
"""Of `frame_weights`."""
ENDS_IN = ("m_r", "m_s")
"""Roles of the pairs that the terminal gate judges."""
SLACK = 1e-6
"""Of a share of frames in float32."""


class Visibility(NamedTuple):
    """``pairs``: frames with a progress bin in which both bodies are valid. Shares are of the frames with a bin.

    ``last``: the last such frame of each pair. ``enough``: the execution can be judged.
    """

    pairs: Bool[Array, "J T"]
    last: Int[Array, " J"]
    pair_coverage: Float[Array, " J"]
    body_coverage: Float[Array, " N"]
    enough: Bool[Array, ""]


def ends_in(pairs: tuple[Pair, ...], use: tuple[int, ...]) -> np.ndarray:
    """Which pairs the terminal gate judges, [J]."""
    return np.array([j in use and p.role in ENDS_IN for j, p in enumerate(pairs)], bool)


def visibility(
    valid: Bool[Array, "T N"] | None,
    bins: Int[Array, " T"],
    pinned: Bool[Array, " J"],
    terminal: Bool[Array, " J"],
    *,
    pairs: tuple[Pair, ...],
    use: tuple[int, ...],
    bodies: tuple[str, ...],
    coverage_min: float | Float[Array, ""],
    dtype: jnp.dtype,
) -> Visibility:
    """What was seen of one execution. ``pinned``: pairs with a constraint anywhere; ``terminal``: and at the end.

    Not ``enough`` where a pinned pair was seen in less than ``coverage_min`` of the frames, or a pair of the terminal
    gate in no frame of the execution's last progress bin. ``use``: pairs of which ``bodies`` has both.
    """
    T, J = bins.shape[0], len(pairs)
    frames = bins >= 0
    frames_n = jnp.maximum(jnp.sum(frames), 1)

    def share(n: Int[Array, " X"]) -> Float[Array, " X"]:
        return jnp.where(n == frames_n, 1.0, n.astype(dtype) / frames_n.astype(dtype))  # 1 is exactly 1

    there = jnp.broadcast_to(frames[:, None], (T, len(bodies))) if valid is None else valid & frames[:, None]
    column = np.array([[bodies.index(p.a), bodies.index(p.b)] if j in use else [0, 0] for j, p in enumerate(pairs)])
    scored = np.zeros(J, bool)
    scored[list(use)] = True
    column = column.reshape(J, 2).astype(np.int32)
    seen = (there[:, column[:, 0]] & there[:, column[:, 1]]).T & jnp.asarray(scored)[:, None]
    coverage = share(jnp.sum(seen, axis=1))
    last_bin = bins[jnp.max(jnp.where(frames, jnp.arange(T), 0))]
    at_end = jnp.any(seen & (bins == last_bin)[None], axis=1)
    gate = jnp.asarray(ends_in(pairs, use))
    low = pinned & jnp.asarray(scored) & (coverage < jnp.asarray(coverage_min, dtype) - SLACK)
    return Visibility(
        pairs=seen,
        last=jnp.max(jnp.where(seen, jnp.arange(T)[None], 0), axis=1).astype(jnp.int32),
        pair_coverage=coverage,
        body_coverage=share(jnp.sum(there, axis=0)),
        enough=~jnp.any(low) & ~jnp.any(gate & terminal & ~at_end),
    )


def judged_frames(
    seen: Bool[Array, "J T"], n: Int[Array, " T"], all_n: Int[Array, " T"], bins: Int[Array, " T"]
) -> Bool[Array, " T"]:
    """Frames that have a weight in the mean cost.

    ``n`` counts the pinned directions of the pairs that were seen, ``all_n`` those of all scored pairs. A frame in
    which nothing is pinned costs nothing and counts, as an unconstrained part of the task; one in which something is
    pinned and none of it was seen would cost nothing for want of a measurement, and does not count.
    """
    return (bins >= 0) & jnp.any(seen, axis=0) & ((n > 0) | (all_n == 0))


def frame_weights(bins: Int[Array, " T"], *, L: int, weighting: str, dtype: jnp.dtype) -> Float[Array, " T"]:
    """Weight of every frame in the mean cost, adding up to 1 over valid frames: equal, or equal per progress bin."""
    one_of("weighting", weighting, WEIGHTINGS)
    valid = (bins >= 0).astype(dtype)
    if weighting == "progress":
        count = jax.ops.segment_sum(valid, jnp.where(bins >= 0, bins, L), num_segments=L + 1)[:L]
        share = jnp.where(count > 0, 1.0 / jnp.maximum(count, 1.0), 0.0)
        valid = valid * share[jnp.clip(bins, 0, L - 1)]
    return valid / jnp.maximum(jnp.sum(valid), 1e-12)


def seen_enough(
    bins: Int[Array, " T"], valid: Bool[Array, "J T"], *, pairs: tuple[Pair, ...], sub_tasks_n: int, bins_n: int
) -> Bool[Array, "J P"]:
    """Whether a demonstration shows each pair in each of its sub-tasks, and those of the gate in its last bin. Ours.

    Without, there would be no pose to learn from; a sub-task without frames is none of the demonstration's.
    """
    frames = bins >= 0
    shown = valid & frames[None]
    of_sub_task = (jnp.where(frames, bins // bins_n, -1)[None] == jnp.arange(sub_tasks_n)[:, None]) & frames[None]
    in_each = jnp.any(of_sub_task[None] & shown[:, None], axis=2) | ~jnp.any(of_sub_task, axis=1)[None]  # [J, P]
    last_bin = bins[jnp.max(jnp.where(frames, jnp.arange(bins.shape[0]), 0))]
    at_end = jnp.any(shown & (bins == last_bin)[None], axis=1)
    return in_each & (at_end | ~jnp.asarray(ends_in(pairs, tuple(range(len(pairs))))))[:, None]


def require_columns(columns_n: int, bodies: tuple[str, ...]) -> None:
    """InputError where poses have not one column for every name of ``bodies``."""
    if columns_n != len(bodies) or len(set(bodies)) != len(bodies):
        raise InputError(f"{columns_n} poses a frame for the bodies {', '.join(bodies)}; name every column once")
