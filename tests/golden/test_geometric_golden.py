"""Q worked by hand on eight demonstrations, beside what the plausible wrong formulas would give."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.align import Alignment
from jaxeval.metrics.geometric import (
    GATE_OPEN,
    GATE_TERMINAL,
    GeometricParams,
    GeometricQuality,
    constraints,
    fit_reference,
    geometric_quality,
)
from jaxeval.types import Pair, Predicate, Reference, SubTask, TaskSpec
from tests.executions import axis_turn, plain_bodies, quick_jit

MM = 1e-3
SPEC = TaskSpec(
    name="golden",
    bodies=plain_bodies("cube", "table"),
    sub_tasks=(SubTask("only", (Predicate("gripper_open", value=0.01),)),),
)
PAIR = (Pair("cube", "table", "m_s"),)
S = math.sqrt(10 / 36) * 0.04  # metres a radian of a cube of 40 mm: 0.0210819

# Eight demonstrations, a sign in each of x, y, z: every two columns are orthogonal and add up to nothing, so that the
# covariance is diagonal with 8 a^2 / 7 on it for an amplitude a.
SIGNS = np.array([[(k >> i & 1) * 2.0 - 1 for i in range(3)] for k in range(8)])
TO_AMPLITUDE = math.sqrt(7 / 8)
SIGMA_MM = np.array([[3.5, 20.0, 1.0], [20.0, 20.0, 1.0]])  # of x, y, z, in the two bins
OFFSET = np.array([0.3, -0.2, 0.1])  # the nominal is somewhere, not at the origin


@quick_jit
def learn(relative: jax.Array, bins: jax.Array, duration_s: jax.Array, demo_valid: jax.Array) -> Reference:
    return fit_reference(
        relative, bins, duration_s, demo_valid, scale=jnp.eye(3)[None] * S, pairs=PAIR, spec=SPEC, bins_n=2
    )


@quick_jit
def score(poses: jax.Array, bins: jax.Array, reference: Reference, params: GeometricParams) -> GeometricQuality:
    n = jnp.zeros(1)
    aligned = Alignment(jnp.zeros(1, int), jnp.ones(1, bool), bins, n, n + 1)
    return geometric_quality(
        poses, aligned, jnp.asarray(-1), reference=reference, params=params, bodies=("cube", "table")
    )


@pytest.fixture(scope="module")
def reference() -> Reference:
    """One frame in each of the two bins; the nominal is turned, so that the axes are the nominal's own."""
    t = TO_AMPLITUDE * SIGMA_MM[None] * MM * SIGNS[:, None]  # [8, 2, 3] in the nominal's frame
    R = turned_axes()
    relative = np.zeros((8, 1, 2, 7))
    relative[..., :4] = axis_turn([0, 0, 1], math.pi / 2)
    relative[:, 0, :, 4:] = t @ R.T + OFFSET
    bins = jnp.tile(jnp.arange(2), (8, 1))
    return learn(jnp.asarray(relative, jnp.float32), bins, jnp.ones((8, 1)), jnp.ones(8, bool))


def turned_axes() -> np.ndarray:
    """The nominal's axes in the table's frame: a quarter turn about z."""
    return np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])


def executed(reference: Reference, frames: list[tuple[float, float, float, float, int]], **params) -> GeometricQuality:
    """Q of frames (x mm, y mm, z mm from the nominal in its own axes, degrees about its x axis, bin)."""
    poses = np.zeros((len(frames), 2, 7))
    poses[..., 0] = 1
    half = math.sqrt(0.5)
    for k, (x, y, z, degrees, _) in enumerate(frames):
        c, s = math.cos(math.radians(degrees) / 2), math.sin(math.radians(degrees) / 2)
        poses[k, 0, :4] = [half * c, half * s, half * s, half * c]  # quarter turn about z, then about the new x
        poses[k, 0, 4:] = turned_axes() @ np.array([x, y, z]) * MM + OFFSET
    bins = jnp.asarray([frame[-1] for frame in frames])
    out = score(jnp.asarray(poses, jnp.float32), bins, reference, GeometricParams(**params))
    return jax.tree.map(np.asarray, out)


# Bin 0: sigma = 3.5, 20, 1 mm. x is pinned (3.5 < 4), y is not, z is floored to 3 mm and pinned; the demonstrations do
# not turn, so three rotations are floored and pinned: n = 5. Bin 1: sigma = 20, 20, 1 mm: z and three rotations, n = 4.
#   frame 1, bin 0: d = (8.75, 50, 6) mm.  z_x = 8.75 / 3.5 = 2.5, z_z = 6 / 3 = 2. e = 1.0 + 0.5.  c = 1.5 / 5 = 0.3
#   frame 2, bin 1: d = (100, 0, -9) mm.   z_z = 9 / 3 = 3. e = 1.5.                                 c = 1.5 / 4 = 0.375
#   frame 3, bin 1: d = (0, 0, 4.2) mm.    z_z = 1.4 < 1.5.                                          c = 0
#   mean c = 0.675 / 3 = 0.225, Q = exp(-0.225) = 0.798516
FRAMES = [(8.75, 50.0, 6.0, 0.0, 0), (100.0, 0.0, -9.0, 0.0, 1), (0.0, 0.0, 4.2, 0.0, 1)]
Q = 0.798516


def test_spread_and_pins_by_hand(reference: Reference) -> None:
    np.testing.assert_allclose(reference.nominal[0, :, 4:], np.tile(OFFSET, (2, 1)), atol=1e-6)
    found = constraints(reference, GeometricParams())
    assert found.pinned.sum(axis=-1).tolist() == [[5, 4]]
    np.testing.assert_allclose(np.sort(found.sigma_m[0]) / MM, [[3, 3, 3, 3, 3.5, 20], [3, 3, 3, 3, 20, 20]], rtol=1e-4)
    x = int(np.argmin(np.abs(np.asarray(found.sigma_m[0, 0]) - 3.5 * MM)))
    np.testing.assert_allclose(np.abs(found.directions[0, 0, :, x]), [1, 0, 0, 0, 0, 0], atol=1e-3)
    assert np.linalg.norm(reference.deviations[0, 0, 0]) / MM == pytest.approx(
        TO_AMPLITUDE * math.sqrt(3.5**2 + 20**2 + 1), rel=1e-4
    )


def test_q_by_hand(reference: Reference) -> None:
    out = executed(reference, FRAMES)
    np.testing.assert_allclose(out.frame_cost, [0.3, 0.375, 0.0], atol=2e-4)
    assert out.q == pytest.approx(Q, abs=1e-4) and out.gate_code == GATE_OPEN
    assert out.gate_free == out.q and out.pair_cost[0] == pytest.approx(0.225, abs=1e-4)
    assert (out.worst_frame, out.worst_pair, out.worst_sub_task) == (1, 0, 0)
    assert out.worst_z == pytest.approx(3.0, abs=1e-3)
    np.testing.assert_allclose(out.worst_deviation, [0.1, 0, -0.009, 0, 0, 0], atol=1e-6)
    # x carries 1.0 / 5, z carries 0.5 / 5 and 1.5 / 4, each over three frames
    np.testing.assert_allclose(out.direction_cost[0], [0.2 / 3, 0, (0.1 + 0.375) / 3, 0, 0, 0], atol=2e-4)


@pytest.mark.parametrize(
    ("wrong", "costs"),
    [
        # 1/K instead of 1/(K-1): sigma_x = 3.5 sqrt(7/8) = 3.27395, z_x = 2.67261
        ("1/K", [(1.17261 + 0.5) / 5, 0.375, 0]),
        ("squared hinge", [(1.0 + 0.25) / 5, 2.25 / 4, 0]),
        # z_z = 6, 9 and 4.2 against 1 mm
        ("sigma without floor", [(1.0 + 4.5) / 5, 7.5 / 4, 2.7 / 4]),
        ("sum over directions, not over n", [1.5, 1.5, 0]),
        ("over all six directions", [1.5 / 6, 1.5 / 6, 0]),
        ("n of the whole episode", [3.0 * 1.5 / 13, 3.0 * 1.5 / 13, 0]),  # 3.0 / 13 instead of 0.225
        ("variance for sigma, in mm", [(0 + 0) / 5, 0, 0]),  # 8.75 / 12.25 and 6 / 9: nothing exceeds
        ("no admissible radius", [(2.5 + 2) / 5, 3 / 4, 1.4 / 4]),
        ("unpinned directions count", [(1.0 + 1.0 + 0.5) / 6, (3.5 + 1.5) / 6, 0]),
        ("median over frames", [0.3, 0.3, 0.3]),
        ("root of the sum of squares", [math.sqrt(1.25) / 5, 0.375, 0]),
    ],
)
def test_the_wrong_formulas_give_other_numbers(reference: Reference, wrong: str, costs: list[float]) -> None:
    other = math.exp(-sum(costs) / 3)
    assert abs(other - Q) > 2e-3, wrong
    assert executed(reference, FRAMES).q != pytest.approx(other, abs=1e-3)


def test_a_tilt_by_hand(reference: Reference) -> None:
    """20 deg about x: S phi = 0.0210819 * 0.349066 = 7.35895 mm, z = 2.45298, e = 0.95298, c = 0.95298 / 5."""
    out = executed(reference, [(0, 0, 0, 20.0, 0)] * 2)
    assert out.gate_free == pytest.approx(math.exp(-0.190596), abs=1e-5)
    assert out.gate_free != pytest.approx(1.0, abs=1e-3)  # in radians against millimetres, nothing would exceed
    assert out.gate_free != pytest.approx(math.exp(-(0.02 * math.radians(20) / 0.003 - 1.5) / 5), abs=1e-3)  # half edge
    np.testing.assert_allclose(out.worst_deviation, [0, 0, 0, math.radians(20), 0, 0], atol=1e-5)


def test_a_negative_tilt_costs_the_same(reference: Reference) -> None:
    a, b = (executed(reference, [(0, 0, 0, d, 0)] * 2).gate_free for d in (20.0, -20.0))
    assert a == pytest.approx(b, abs=1e-6)


def test_penalties_and_weighting_by_hand(reference: Reference) -> None:
    def q(**params: object) -> float:
        return float(executed(reference, FRAMES, **params).q)

    assert q(penalty="squared") == pytest.approx(math.exp(-((1.25) / 5 + 2.25 / 4) / 3), abs=1e-4)
    saturating = ((1 - math.exp(-1)) + (1 - math.exp(-0.5))) / 5 + (1 - math.exp(-1.5)) / 4
    assert q(penalty="saturating") == pytest.approx(math.exp(-saturating / 3), abs=1e-4)
    # every bin the same: 0.3 from bin 0, (0.375 + 0) / 2 from bin 1
    assert q(weighting="progress") == pytest.approx(math.exp(-(0.3 + 0.1875) / 2), abs=1e-4)
    assert q(z_0=2.25) == pytest.approx(math.exp(-(0.25 / 5 + 0.75 / 4) / 3), abs=1e-4)


def test_thresholds_by_hand(reference: Reference) -> None:
    """sigma_pin 3.2 mm lets x go: n = 4. sigma_0 3.8 mm: z_x = 8.75 / 3.8 = 2.30263, z_z = 1.57895 and 2.36842."""
    assert executed(reference, FRAMES, sigma_pin_m=0.0032).q == pytest.approx(
        math.exp(-(0.5 / 4 + 1.5 / 4) / 3), abs=1e-4
    )
    c = (0.80263 + 0.07895) / 5 + 0.86842 / 4
    assert executed(reference, FRAMES, sigma_0_m=0.0038).q == pytest.approx(math.exp(-c / 3), abs=1e-4)


def test_the_gate_by_hand(reference: Reference) -> None:
    """Demonstrations end 0.935 mm off, z = 0.312, times 1.5 = 0.468; never below z_0 = 1.5. Only z is pinned there."""
    open_, shut = (executed(reference, [*FRAMES[:2], (0, 0, z, 0, 1)]) for z in (4.4, 4.6))
    assert open_.gate_code == GATE_OPEN and shut.gate_code == GATE_TERMINAL
    assert open_.q > 0.79 and shut.q == 0 and shut.gate_free > 0.79
    found = constraints(reference, GeometricParams())
    assert np.abs(found.directions[0, 1, 2, int(shut.gate_index)]) == pytest.approx(1, abs=1e-3)
    assert executed(reference, [(300.0, 300.0, 0, 0, 1)] * 2).gate_code == GATE_OPEN  # x and y are anybody's
    assert executed(reference, [(0, 0, 0, 90.0, 1)] * 2).gate_code == GATE_OPEN  # a turn is no matter of the gate
    wide = executed(reference, [(0, 0, 4.6, 0, 1)] * 2, term_factor=6.0)  # 0.312 * 6 = 1.87
    assert wide.gate_code == GATE_OPEN


def test_a_demonstration_that_does_not_count_does_not_count(reference: Reference) -> None:
    """Seven demonstrations and a wild one, masked, are the seven."""
    relative = np.zeros((8, 1, 2, 7), np.float32)
    relative[..., 0] = 1
    relative[:, 0, :, 4:] = 0.01 * SIGNS[:, None]
    wild = relative.copy()
    wild[7, ..., 4:] = 5.0
    bins, ones = jnp.tile(jnp.arange(2), (8, 1)), jnp.ones((8, 1))
    counts = jnp.arange(8) < 7
    one, other = (learn(jnp.asarray(r), bins, ones, counts) for r in (relative, wild))
    np.testing.assert_array_equal(one.nominal, other.nominal)
    a, b = (constraints(r, GeometricParams()).sigma_m for r in (one, other))
    np.testing.assert_array_equal(a, b)
    # mean of seven of x = +-10 mm with four and three of a sign: 10 / 7; sum of squares 7 * 100 - 7 * (10 / 7)^2
    expected = np.cov(0.01 * SIGNS[:7].T)
    sigma = np.sqrt(np.linalg.eigvalsh(expected))
    np.testing.assert_allclose(np.sort(a[0, 0])[3:], sigma, rtol=1e-4)


def test_nothing_pinned_is_no_number(reference: Reference) -> None:
    metres = np.random.default_rng(0).normal(size=reference.deviations.shape)
    loose = dataclasses.replace(reference, deviations=jnp.asarray(metres, jnp.float32))
    out = executed(loose, FRAMES)
    assert out.status == 2 and np.isnan(out.q)
    assert executed(reference, [(0, 0, 0, 0, -1), (0, 0, 0, 0, -1)]).status == 1
