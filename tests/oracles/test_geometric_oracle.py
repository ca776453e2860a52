"""The public functions against the float64 NumPy/SciPy twin, on bundled executions of three tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import pytest

from jaxeval import align
from jaxeval.io import bundled
from jaxeval.io.spec import load_spec
from jaxeval.metrics.geometric import GeometricParams, GeometricQuality, geometric_quality
from jaxeval.run.fit import fit, spec_bodies, with_bodies
from jaxeval.types import Episode, EpisodeBatch, Reference, pad_episodes
from tests.executions import quick_jit
from tests.oracles import geometric_numpy as twin

TASKS = ("stack_cube", "peg_insertion_side", "place_sphere")
SCORED_N = 6
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    with jax.enable_x64(dtype == "float64"):
        yield


@cache
def case(task: str, dtype: str) -> tuple[Reference, EpisodeBatch, tuple[str, ...]]:
    """A reference from twelve demonstrations, and six other executions: departed ones too where there are."""
    spec = load_spec(task)
    demos = bundled(f"{task}_demos").read(0, 12 + SCORED_N)
    others: list[Episode] = demos[12:]
    if task == "stack_cube":
        others = [*others[:2], *[e for e in bundled("stack_cube_tilt").read() if e.group != "clean"][-SCORED_N + 2 :]]
    bodies = spec_bodies(spec, others[0].bodies)
    if dtype == "float32":
        exact, _, _ = case(task, "float64")
        reference = jax.tree.map(lambda x: x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x, exact)
    else:
        with precision(dtype):
            reference = fit(demos[:12], spec, dtype=np.dtype(dtype)).reference
    with precision(dtype):
        # prepared once more in float64: a store keeps quaternions in float32, of unit length to 1e-7 only
        batch = pad_episodes([with_bodies(e.prepared(), bodies) for e in others], dtype=np.dtype(dtype))
    return reference, batch, bodies


@cache
def aligned(task: str, dtype: str) -> align.Alignment:
    reference, batch, bodies = case(task, dtype)
    one = partial(
        align.align_episode,
        spec=reference.spec,
        bodies=bodies,
        bins_n=reference.bins_n,
        mean_duration_s=reference.duration_s,
    )
    with precision(dtype):
        found = quick_jit(jax.vmap(one))(batch.poses, batch.time_s, batch.frame_valid, batch.gripper_width_m)
    return jax.tree.map(np.asarray, found)


@partial(jax.jit, static_argnames="bodies")
def quality(
    poses: jax.Array,
    alignment: align.Alignment,
    success: jax.Array,
    reference: Reference,
    params: GeometricParams,
    *,
    bodies: tuple[str, ...],
) -> GeometricQuality:
    """Of every execution; one compile serves all numbers of a reference and of the Params."""
    one = partial(geometric_quality, reference=reference, params=params, bodies=bodies)
    return jax.vmap(one)(poses, alignment, success)


def both(
    task: str, dtype: str, params: GeometricParams, **changed: Any
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(public, twin) of every execution."""
    reference, batch, bodies = case(task, dtype)
    reference = dataclasses.replace(reference, **changed)
    alignment = aligned(task, dtype)
    with precision(dtype):
        public = quality(batch.poses, alignment, batch.success, reference, params, bodies=bodies)
        public = jax.tree.map(np.asarray, public)
    for k in range(batch.n_episodes):
        ours = {f.name: getattr(public, f.name)[k] for f in dataclasses.fields(public)}
        success = int(batch.success[k])
        yield (
            ours,
            twin.score(batch.poses[k], alignment.bins[k], alignment.reached[k], success, reference, params, bodies),
        )


def assert_same(ours: dict[str, Any], theirs: dict[str, Any], dtype: str) -> None:
    for name in ("gate_code", "gate_index"):
        assert ours[name] == theirs[name], name
    for name in ("q", "gate_free", "pair_cost", "sub_task_cost"):
        np.testing.assert_allclose(ours[name], theirs[name], atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype], err_msg=name)
    scale = 1 + np.abs(theirs["frame_pair_cost"])
    assert (np.abs(ours["frame_pair_cost"] - theirs["frame_pair_cost"]) / scale).max() < 10 * TOLERANCE[dtype]


CASES = [*((task, "float64") for task in TASKS), ("stack_cube", "float32"), ("place_sphere", "float32")]


@pytest.mark.parametrize(("task", "dtype"), CASES)
def test_q_is_that_of_the_twin(task: str, dtype: str) -> None:
    seen = list(both(task, dtype, GeometricParams()))
    assert len(seen) == SCORED_N
    for ours, theirs in seen:
        assert_same(ours, theirs, dtype)
    assert any(theirs["gate_free"] < 0.999 for _, theirs in seen)  # something to agree on


def test_the_spheres_rotations_are_free() -> None:
    """The sphere may look any way: neither pins its rotation, with the symmetry of place_sphere's spec."""
    reference, _, _ = case("place_sphere", "float64")
    turns = [reference.spec.body(p.a).symmetry.kind == "all" for p in reference.pairs]
    assert any(turns)
    assert twin.any_turns(reference) == turns


OPTIONS = {
    "squared": ({"penalty": "squared"}, {}),
    "saturating": ({"penalty": "saturating"}, {}),
    "progress": ({"weighting": "progress"}, {}),
    "tight": ({"z_0": 0.5, "sigma_pin_m": 0.009, "sigma_0_m": 0.001}, {}),
    "strict gate": ({"term_factor": 0.3, "z_0": 0.3}, {}),
    "calibrated": ({"calibrated": True, "z_0_quantile": 0.9}, {}),
    "decoupled": ({}, {"deviation": "decoupled"}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_are_those_of_the_twin(option: str) -> None:
    params, changed = OPTIONS[option]
    for ours, theirs in both("stack_cube", "float64", GeometricParams(**params), **changed):
        assert_same(ours, theirs, "float64")


@pytest.mark.parametrize("task", TASKS)
def test_bins_are_those_of_a_plain_loop(task: str) -> None:
    reference, batch, bodies = case(task, "float64")
    found = aligned(task, "float64")
    for k in range(batch.n_episodes):
        bins, reached, ends = twin.align(
            batch.poses[k],
            batch.time_s[k],
            batch.frame_valid[k],
            batch.gripper_width_m[k],
            spec=reference.spec,
            bodies=bodies,
            bins_n=reference.bins_n,
            mean_duration_s=np.asarray(reference.duration_s),
        )
        np.testing.assert_array_equal(found.reached[k], reached)
        np.testing.assert_array_equal(found.ends[k], ends)
        np.testing.assert_array_equal(found.bins[k], bins)
    single = aligned(task, "float32").bins
    assert (
        single != found.bins
    ).sum() <= 0.005 * batch.frame_valid.sum()  # a frame on the edge between two bins may go either way


def test_bins_of_a_run_that_stops_half_way() -> None:
    """In a sub-task that is never finished the clock is the demonstrations' mean duration."""
    reference, batch, bodies = case("stack_cube", "float64")
    k, cut = 0, int(aligned("stack_cube", "float64").ends[0, 2]) - 5
    valid = batch.frame_valid[k] & (np.arange(batch.frame_valid.shape[1]) < cut)
    valid[10:14] = False
    arrays = (batch.poses[k], batch.time_s[k], valid, batch.gripper_width_m[k])
    told = {"spec": reference.spec, "bodies": bodies, "bins_n": reference.bins_n}
    with precision("float64"):
        found = quick_jit(partial(align.align_episode, **told, mean_duration_s=reference.duration_s))(*arrays)
    bins, reached, _ = twin.align(*arrays, **told, mean_duration_s=np.asarray(reference.duration_s))
    assert reached.tolist() == [p < 2 for p in range(len(reached))]
    np.testing.assert_array_equal(found.bins, bins)
    np.testing.assert_array_equal(found.reached, reached)
