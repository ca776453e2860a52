"""Trials of the estimators of pairs: inputs on which tools of this kind break, each with its right answer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxeval.stats.estimate import PairCounts, Status
from jaxeval.stats.paired import equivalence, mcnemar_exact, mcnemar_mid_p, tango
from jaxeval.stats.proportions import newcombe, wilson


def test_1_policy_against_itself() -> None:
    counts = PairCounts(both=50, a_only=0, b_only=0, neither=50)
    e = jax.jit(tango)(counts)
    assert e.value == 0 and Status.of(e.status) is Status.NO_DISCORDANT
    assert float(e.high) == pytest.approx(3.841459 / 103.841459, abs=1e-6) and e.low == -e.high
    for test in (mcnemar_exact, mcnemar_mid_p):
        p, status = jax.jit(test)(counts)
        assert p == 1 and Status.of(status) is Status.NO_DISCORDANT
    assert jax.jit(equivalence)(counts, margin=0.05).p < 0.05  # a hundred pairs may claim "equal within .05" ...
    assert jax.jit(equivalence)(PairCounts(5, 0, 0, 5), margin=0.05).p > 0.05  # ... ten may not


def test_2_pairs_of_two_published_evaluations() -> None:
    e = jax.jit(tango)(PairCounts(both=42, a_only=42, b_only=11, neither=5))
    assert float(e.value) == pytest.approx(0.31) and Status.of(e.status) is Status.OK
    assert (float(e.low), float(e.high)) == pytest.approx((0.18, 0.44), abs=0.01)  # the bootstrap's, published
    p = float(jax.jit(mcnemar_exact)(PairCounts(both=42, a_only=42, b_only=11, neither=5)).p)
    assert p == pytest.approx(2.2e-5, rel=0.03)

    none = jax.jit(wilson)(0, 500)
    assert none.low == 0 and round(float(none.high), 4) == 0.0076
    gain = jax.jit(tango)(PairCounts(both=0, a_only=15, b_only=0, neither=485))
    assert float(gain.value) == pytest.approx(0.03) and 0.016 < gain.low < 0.02 and 0.046 < gain.high < 0.05
    apart = newcombe(15, 500, 0, 500)  # were they not matched: wider
    assert jnp.isclose(apart.value, gain.value) and apart.low < gain.low
