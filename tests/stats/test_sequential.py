"""Anytime-valid comparison: exact values, agreement of its three forms, size and savings by simulation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxeval.stats import sequential as Q
from jaxeval.stats.estimate import PairCounts, Status

evidence, share = jax.jit(Q.evidence), jax.jit(Q.share_of_discordant)
watch = jax.jit(Q.watch)


def oracle(a, b):
    return (a + b) * np.log(2) + scipy.special.betaln(1 + a, 1 + b)


def test_by_hand():
    """After a wins once: 2 Beta(2, 1) = 1. Twice: 4 / 3. Once each: 4 / 6. Twelve of twelve: 4096 / 13."""
    for (a, b), e in {(1, 0): 1, (2, 0): 4 / 3, (1, 1): 2 / 3, (0, 12): 4096 / 13}.items():
        assert float(jnp.exp(evidence(PairCounts(9, a, b, 4)).log_e)) == pytest.approx(e, rel=1e-5)


@given(st.integers(0, 3000), st.integers(0, 3000))
@settings(deadline=None, max_examples=30)
def test_evidence_and_interval_against_scipy(a, b):
    counts = PairCounts(5, a, b, 2)
    assert float(evidence(counts).log_e) == pytest.approx(oracle(a, b), rel=3e-6, abs=3e-5)
    with jax.enable_x64(True):
        precise, e = evidence(counts), share(counts, level=0.9)
    assert float(precise.log_e) == pytest.approx(oracle(a, b), abs=1e-9)
    swapped = evidence(PairCounts(5, b, a, 2))
    assert float(swapped.log_e) == pytest.approx(float(evidence(counts).log_e), abs=1e-5)

    def kept(q):
        return (
            scipy.special.xlogy(a, q) + scipy.special.xlog1py(b, -q) - np.log(0.1) - scipy.special.betaln(1 + a, 1 + b)
        )

    if a + b:
        point = a / (a + b)
        low = 0.0 if a == 0 else scipy.optimize.brentq(kept, 1e-300, point, xtol=1e-14)
        high = 1.0 if b == 0 else scipy.optimize.brentq(kept, point, 1 - 1e-16, xtol=1e-14)
        np.testing.assert_allclose(e[:3], [point, low, high], atol=1e-8)
        refuted = not float(e.low) < 0.5 < float(e.high)
        assert refuted == (float(precise.log_e) >= np.log(10))


def test_the_running_product_is_the_closed_form():
    rng = np.random.default_rng(0)
    a, b, valid = rng.random((3, 300)) < np.array([[0.6], [0.4], [0.9]])
    w = watch(*(jnp.asarray(x) for x in (a, b, valid)))
    wins = np.cumsum(a & ~b & valid), np.cumsum(b & ~a & valid)
    np.testing.assert_allclose(w.log_e, oracle(*wins), atol=2e-5)
    stop = int(np.argmax(oracle(*wins) >= np.log(20)))
    assert stop > 0 and (int(w.stop), int(w.winner)) == (stop, 1)
    assert int(w.pairs_n) == valid[: stop + 1].sum()
    lost = watch(*(jnp.asarray(x) for x in (b, a, valid)))
    assert (int(lost.stop), int(lost.winner)) == (stop, -1)
    with jax.enable_x64(True):
        np.testing.assert_allclose(watch(*(jnp.asarray(x) for x in (a, b, valid))).log_e, oracle(*wins), atol=1e-10)


def test_concordant_and_invalid_pairs_change_nothing():
    yes, no = jnp.ones(8, bool), jnp.zeros(8, bool)
    short = watch(yes, no, yes)
    long = watch(
        *(jnp.stack(x, axis=1).reshape(-1) for x in ((yes, yes, yes, no), (no, no, yes, no), (yes, no, yes, yes)))
    )
    assert int(short.stop) == 7 and int(long.stop) == 28
    np.testing.assert_array_equal(long.log_e[::4], short.log_e)
    assert int(long.pairs_n) == 7 * 3 + 1


def test_statuses():
    yes, no = jnp.ones(5, bool), jnp.zeros(5, bool)
    for a, b, valid, status, log_e in (
        (yes, no, no, Status.NO_DATA, np.nan),
        (yes, yes, yes, Status.NO_DISCORDANT, 0.0),
        (yes, no, yes, Status.OK, np.log(32 / 6)),
    ):
        w = watch(a, b, valid)
        assert Status.of(w.status) is status and int(w.stop) == -1 and int(w.winner) == 0
        assert float(w.log_e[-1]) == pytest.approx(log_e, abs=1e-5, nan_ok=True)
        assert int(w.pairs_n) == int(valid.sum())
    for level in (0.0, 1.0, 2.0, np.nan):
        assert Status.of(watch(yes, no, yes, level=level).status) is Status.BAD_INPUT
        assert int(watch(yes, no, yes, level=level).stop) == -1
        assert Status.of(share(PairCounts(1, 2, 3, 4), level=level).status) is Status.BAD_INPUT
    for counts, status, log_e, interval in (
        ((0, 0, 0, 0), Status.NO_DATA, np.nan, [np.nan] * 3),
        ((50, 0, 0, 50), Status.NO_DISCORDANT, 0.0, [np.nan, 0.0, 1.0]),
        ((1, -2, 3, 4), Status.BAD_INPUT, np.nan, [np.nan] * 3),
        ((1, 2.5, 3, 4), Status.BAD_INPUT, np.nan, [np.nan] * 3),
        ((np.nan, 2, 3, 4), Status.BAD_INPUT, np.nan, [np.nan] * 3),
    ):
        e, s = evidence(PairCounts(*counts)), share(PairCounts(*counts))
        assert Status.of(e.status) is Status.of(s.status) is status
        np.testing.assert_array_equal(e.log_e, np.float32(log_e))
        np.testing.assert_allclose(s[:3], interval)


def outcomes(key, p_a, p_b, shared, pairs_n):
    """Two outcomes on each start; with probability `shared` both hang on the same luck, else each on its own."""
    luck, own, which = jax.random.uniform(key, (3, pairs_n))
    return luck < p_a, jnp.where(which < shared, luck, own) < p_b


@partial(jax.jit, static_argnames="pairs_n")
@partial(jax.vmap, in_axes=(0, None, None, None, None))
def simulate(key, p_a, p_b, shared, pairs_n):
    a, b = outcomes(key, p_a, p_b, shared, pairs_n)
    w = Q.watch(a, b, jnp.ones(pairs_n, bool))
    wins = jnp.cumsum(a & ~b), jnp.cumsum(b & ~a)
    # The fault to show: a test of fixed size after every pair.
    z = jnp.abs(wins[0] - wins[1]) / jnp.sqrt(jnp.maximum(wins[0] + wins[1], 1))
    return w.stop, w.pairs_n, w.winner, jnp.any((z > 1.96) & (wins[0] + wins[1] >= 10))


KEYS = jax.random.split(jax.random.key(0), 4000)


@pytest.mark.parametrize("p, shared", [(0.05, 0.0), (0.5, 0.0), (0.84, 0.0), (0.84, 0.7), (0.95, 0.5)])
def test_size_is_kept_whenever_one_looks(p, shared):
    """Neither is better: .05 at most, looking after each of 400 pairs, plus three standard errors of 4,000 runs."""
    stop, pairs_n, _, peeked = (np.asarray(x) for x in simulate(KEYS, p, p, shared, 400))
    size = np.mean(stop >= 0)
    assert size <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    assert (pairs_n[stop < 0] == 400).all()
    if p == 0.5:
        assert np.mean(peeked) > 0.15 and size > 0.01  # looking at a fixed test each time is wrong; ours has a size


def test_pairs_saved():
    """.84 against .53: about 41 pairs instead of 100, with .97 power within 100 (a fixed test of .97 takes 72)."""
    _, pairs_n, winner, _ = (np.asarray(x) for x in simulate(KEYS, 0.84, 0.53, 0.0, 100))
    assert np.mean(winner == 1) == pytest.approx(0.972, abs=0.01) and np.mean(winner == -1) < 0.002
    assert np.mean(pairs_n) == pytest.approx(40.7, abs=1.5)
    turned = simulate(KEYS[:100], 0.53, 0.84, 0.0, 100)[2]
    assert np.mean(turned) < -0.9


def test_the_interval_holds_at_every_look():
    """True share .8 of discordant pairs: missed at any of 200 looks by 5 % of the runs at most (1,000 runs)."""
    won = np.random.default_rng(0).random((1000, 200)) < 0.8
    a = np.cumsum(won, 1)
    b = np.arange(1, 201) - a
    log_e = scipy.special.betaln(1 + a, 1 + b) - a * np.log(0.8) - b * np.log(0.2)
    missed = (log_e >= np.log(20)).any(1)
    assert 0.005 < missed.mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)
    rows = [(i, int(t)) for i in range(40) for t in (0, 9, 99, 199)]  # and the interval is that set
    zero = jnp.zeros(len(rows))
    counts = PairCounts(zero, *(jnp.asarray([x[r] for r in rows], float) for x in (a, b)), zero)
    e = jax.jit(jax.vmap(Q.share_of_discordant))(counts)
    inside = (np.asarray(e.low) < 0.8) & (np.asarray(e.high) > 0.8)
    assert inside.tolist() == [bool(log_e[r] < np.log(20)) for r in rows]
