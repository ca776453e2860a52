"""Smoothness of one body's motion: of the whole execution, and of every sub-task where there is a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.metrics import smoothness
from jaxeval.metrics.registry import FRAME, Column, Context, Facts, Measured, Metric, Needs, Recorded
from jaxeval.types import STATIC, EpisodeBatch, InputError, pytree

GRIPPER = "tcp"
CHUNK_N = 16


@pytree
class SmoothnessSetting(smoothness.SmoothnessParams):
    """SmoothnessParams, and the ``body`` whose motion is measured (None: the gripper's)."""

    body: str | None = field(default=None, metadata=STATIC)


def moving_body(recorded: Recorded, body: str | None) -> str:
    """The body whose motion is measured: the one asked for, else the gripper's, else the only one there is."""
    gripper = GRIPPER if recorded.reference is None else recorded.reference.spec.gripper
    there = recorded.bodies
    found = body or (gripper if gripper in there else there[0] if len(there) == 1 else None)
    if found is None or found not in there:
        raise InputError(
            f"{recorded.where}: no body {body or gripper} whose motion could be measured; "
            f"it has {', '.join(there) or 'none at all'}; choose one with smoothness.body=NAME",
            code="no_body",
            key=body or gripper,
        )
    return found


def needs(recorded: Recorded, params: SmoothnessSetting) -> Needs:
    """The one body."""
    return Needs(bodies=(moving_body(recorded, params.body),))


def measure(batch: EpisodeBatch, context: Context, params: SmoothnessSetting) -> Measured:
    """Motion of the whole and of sub-tasks; positions and speed of every frame."""
    poses, reference = jnp.asarray(batch.poses)[:, :, 0], context.reference
    labels = jnp.full(poses.shape[:2], -1, jnp.int32)
    sub_tasks_n = 0
    if context.aligned is not None and reference is not None:
        bins, sub_tasks_n = context.aligned.bins, len(reference.spec.sub_tasks)
        labels = jnp.where(bins >= 0, bins // reference.bins_n, -1).astype(jnp.int32)
    rows = (poses, jnp.asarray(batch.time_s), jnp.asarray(batch.valid)[:, :, 0], labels)

    def one(row: tuple[Any, Any, Any, Any]) -> tuple[smoothness.MotionQuality, Any]:
        poses, time_s, valid, labels = row
        quality = smoothness.motion_quality(poses, time_s, valid, labels, params=params, sub_tasks_n=sub_tasks_n)
        return quality, smoothness.speed_of(poses[:, 4:], time_s, valid)

    # a few episodes at a time, so that their spectra stay in a CPU's cache
    n = len(poses)
    chunks = n // math.gcd(n, CHUNK_N)
    folded = jax.tree.map(lambda x: x.reshape(chunks, -1, *x.shape[1:]), rows)
    quality, speed = jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), jax.lax.map(jax.vmap(one), folded))
    out: Measured = {f"smoothness.{k}": v for k, v in vars(quality.whole).items()}
    out |= {f"smoothness.{k}.<sub_task>": v for k, v in vars(quality.sub_tasks).items() if sub_tasks_n}
    if context.frames:
        out |= {f"{FRAME}{axis}_m": jnp.where(rows[2], poses[:, :, 4 + i], jnp.nan) for i, axis in enumerate("xyz")}
        out |= {f"{FRAME}speed_m_s": speed, f"{FRAME}sub_task": labels}
    return out


def _body(measured: Mapping[str, np.ndarray], facts: Facts) -> Sequence[str | None]:
    return [facts.labels["body"][0]] * len(facts.refused)


QUANTITIES: tuple[tuple[str, str, str, str], ...] = (
    ("path_m", "m", "length of the path", "path, m"),
    ("turn_rad", "rad", "angle turned in all", ""),
    ("duration_s", "s", "time from the first valid frame to the last", "time, s"),
    ("idle_s", "s", "time in steps slower than idle_m_s", "idle, s"),
    ("status", "", "ok, or why path, turn, duration and idle time are not known", ""),
    ("sparc", "", "spectral arc length of the speed, at most -1, whatever its size and duration", "SPARC"),
    ("sparc_status", "", "ok, or why there is no SPARC", ""),
    ("turn_sparc", "", "spectral arc length of the angular speed", ""),
    ("turn_sparc_status", "", "ok, or why there is no SPARC of turning", ""),
    ("jerk_mean_m_s3", "m/s^3", "mean jerk over time", "jerk, m/s^3"),
    ("jerk_peak_m_s3", "m/s^3", "largest jerk", ""),
    ("jerk_status", "", "ok, or why there is no jerk", ""),
)
"""Name, unit, meaning and printed title of every quantity of :class:`jaxeval.metrics.smoothness.Motion`."""


def _column(name: str, unit: str, meaning: str, short: str, *, of: str = "") -> Column:
    where = ", within this sub-task" if of else ""
    if name.endswith("status"):
        return Column(f"smoothness.{name}{of}", "status", meaning=meaning + where)
    better = "higher" if name.endswith("sparc") else "lower"
    short = "" if of else short
    return Column(f"smoothness.{name}{of}", unit=unit, direction=better, meaning=meaning + where, short=short)


COLUMNS = (
    Column("smoothness.body", "text", meaning="whose motion was measured", words=_body),
    *(_column(*q) for q in QUANTITIES),
    *(_column(*q, of=".<sub_task>") for q in QUANTITIES),
)

METRIC = Metric("smoothness", SmoothnessSetting, needs, measure, COLUMNS, section="motion")
