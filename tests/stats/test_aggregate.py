"""Aggregates over runs and tasks against numbers by hand, scipy.stats.trim_mean and the published method in a loop."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxeval.stats import aggregate as A
from jaxeval.stats.estimate import Status

KEY = jax.random.key(3)
ONES = jnp.ones((4, 3), int)
GOLDEN = jnp.array([[0.0, 0.5, 1.0], [0.1, 0.7, 1.4], [0.2, 0.6, 5.2], [0.5, 1.0, 0.8]])


def test_golden_matrix():
    """Task means .2, .7, 2.1. Pooled and sorted: 0 .1 .2 | .5 .5 .6 .7 .8 1 | 1 1.4 5.2."""
    assert float(A.mean(GOLDEN, ONES)) == pytest.approx(1.0)
    assert float(A.median(GOLDEN, ONES)) == pytest.approx(0.7)
    assert float(A.interquartile_mean(GOLDEN, ONES)) == pytest.approx(4.1 / 6)
    assert float(A.optimality_gap(GOLDEN, ONES)) == pytest.approx(1 - (0.8 + 2.8 + 3.8) / 12)
    assert float(A.optimality_gap(GOLDEN, ONES, gamma=0.5)) == pytest.approx(0.5 - (0.8 + 2.0 + 2.0) / 12)
    profile = A.performance_profile(GOLDEN, ONES, thresholds=jnp.array([-1.0, 0.5, 1.0, 6.0]))
    np.testing.assert_allclose(profile, [1, 7 / 12, 2 / 12, 0], atol=1e-6)  # .5 is not above .5
    means = A.mean_profile(GOLDEN, ONES, thresholds=jnp.array([0.0, 0.5, 1.0, 3.0]))
    np.testing.assert_allclose(means, [1, 2 / 3, 1 / 3, 0], atol=1e-6)
    wrong = [np.median(GOLDEN), np.mean(np.median(GOLDEN, 0)), scipy.stats.trim_mean(np.mean(GOLDEN, 0), 0.25)]
    assert np.abs(np.subtract(wrong, float(A.median(GOLDEN, ONES)))).min() > 0.03  # of runs, of medians, of means
    assert abs(np.mean(GOLDEN) - 4.1 / 6) > 0.3


def test_golden_improvement():
    """Task 0: a 1, 3 against b 0, 1, 5: of six pairs a wins 1>0 3>0 3>1 and ties 1=1. Task 1: never."""
    a, b = jnp.array([[1.0, 0.0], [3.0, 0.0]]), jnp.array([[0.0, 1.0], [1.0, 2.0], [5.0, 3.0]])
    run = partial(A.probability_of_improvement, a, jnp.ones((2, 2), int), b)
    assert float(run(jnp.ones((3, 2), int))) == pytest.approx((3.5 / 6 + 0) / 2)
    assert float(run(jnp.array([[1, 1], [1, 1], [0, 1]]))) == pytest.approx((3.5 / 4 + 0) / 2)
    assert float(run(jnp.array([[1, 0], [1, 0], [1, 0]]))) == pytest.approx(3.5 / 6)  # b never ran task 1
    assert np.isnan(run(jnp.zeros((3, 2), int)))


STATISTICS = {
    "mean": (A.mean, lambda x: np.mean(x)),
    "median": (A.median, lambda x: np.median(np.mean(x, 0))),
    "interquartile_mean": (A.interquartile_mean, lambda x: scipy.stats.trim_mean(x, 0.25, axis=None)),
    "optimality_gap": (A.optimality_gap, lambda x: 1 - np.mean(np.minimum(x, 1))),
}
compiled = {name: jax.jit(ours) for name, (ours, _) in STATISTICS.items()}


@given(st.integers(1, 9), st.integers(1, 7), st.integers(0, 2**32 - 1), st.booleans())
@settings(deadline=None, max_examples=30)
def test_statistics_agree_with_numpy_under_padding(runs, tasks, seed, ties):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (runs, tasks)).astype(float) if ties else rng.normal(0.5, 1, (runs, tasks))
    padded = np.full((9, 7), np.nan)
    padded[:runs, :tasks] = x
    with jax.enable_x64(True):
        scores = jnp.asarray(padded)
        weights = jnp.asarray(~np.isnan(padded), jnp.int32)
        for name, (_, oracle) in STATISTICS.items():
            assert float(compiled[name](scores, weights)) == pytest.approx(oracle(x), abs=1e-9), name
            assert float(compiled[name](scores, 3 * weights)) == pytest.approx(oracle(np.tile(x, (3, 1))), abs=1e-9), (
                name
            )


def test_integer_weights_mean_repetition():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(6, 5)), rng.integers(0, 4, (6, 5))
    w[0] += 1
    pooled = np.repeat(x.ravel(), w.ravel())
    means = np.array([np.repeat(x[:, t], w[:, t]).mean() for t in range(5)])
    with jax.enable_x64(True):
        ours = {name: float(f(jnp.asarray(x), jnp.asarray(w))) for name, f in compiled.items()}
    assert ours["interquartile_mean"] == pytest.approx(scipy.stats.trim_mean(pooled, 0.25), abs=1e-12)
    assert ours["mean"] == pytest.approx(means.mean(), abs=1e-12)
    assert ours["median"] == pytest.approx(np.median(means), abs=1e-12)


def test_laws():
    x = jnp.asarray(np.random.default_rng(1).normal(size=(8, 5)), jnp.float32)
    w = jnp.ones((8, 5), int)
    for f in compiled.values():
        moved = f(jax.random.permutation(KEY, x, axis=0)[:, ::-1], w)
        np.testing.assert_allclose(moved, f(x, w), rtol=1e-5)
    for name in ("mean", "median", "interquartile_mean"):
        np.testing.assert_allclose(compiled[name](2 * x + 1, w), 2 * compiled[name](x, w) + 1, rtol=1e-5)
        assert float(compiled[name](x.at[3, 2].add(1.0), w)) >= float(compiled[name](x, w))
    tau = jnp.linspace(-3, 3, 13)
    for profile in (A.performance_profile, A.mean_profile):
        assert (np.diff(profile(x, w, thresholds=tau)) <= 1e-6).all()
    forth, back = (A.probability_of_improvement(a, w, b, w) for a, b in ((x, x + 0.3), (x + 0.3, x)))
    assert float(forth) == pytest.approx(1 - float(back), abs=1e-6) and float(forth) < 0.5
    assert float(A.probability_of_improvement(x, w, x, w)) == pytest.approx(0.5)
    u = [scipy.stats.mannwhitneyu(x[:, t], x[:, t] + 0.3).statistic / 64 for t in range(5)]
    assert float(forth) == pytest.approx(np.mean(u), abs=1e-6)


# ------------------------------------------------------------------------------------------------------- intervals

SCORES = np.random.default_rng(5).gamma(2.0, 0.4, size=(10, 8)).astype(np.float32)


def published(statistic, x, resamples_n, seed=0):
    """Runs drawn with replacement for each task, the statistic of each resample in a loop, percentiles."""
    rng = np.random.default_rng(seed)
    runs, tasks = x.shape
    drawn = [statistic(x[rng.integers(0, runs, (runs, tasks)), np.arange(tasks)]) for _ in range(resamples_n)]
    return np.quantile(drawn, [0.025, 0.975]), np.std(drawn)


def test_intervals_agree_with_the_published_method():
    stacked = lambda x, w: jnp.stack([f(x, w) for f, _ in STATISTICS.values()])  # noqa: E731
    run = jax.jit(lambda key, x: A.interval(key, stacked, x, jnp.isfinite(x), resamples_n=4000))
    e = run(KEY, jnp.asarray(np.pad(SCORES, ((0, 2), (0, 1)), constant_values=np.nan)))
    for i, (_, statistic) in enumerate(STATISTICS.values()):
        wanted, spread = published(statistic, SCORES, 4000)
        assert float(e.value[i]) == pytest.approx(statistic(SCORES), abs=1e-5)
        np.testing.assert_allclose([e.low[i], e.high[i]], wanted, atol=0.2 * spread)  # both vary by .04 of it
        assert Status.of(e.status[i]) is Status.OK


def test_improvement_interval_agrees_with_the_published_method():
    a, b = SCORES, np.random.default_rng(6).gamma(2.0, 0.3, size=(7, 8)).astype(np.float32)

    def oracle(a, b):
        return np.mean((a[:, None] > b[None]) + 0.5 * (a[:, None] == b[None]))

    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(2000):
        x, y = (z[rng.integers(0, len(z), z.shape), np.arange(8)] for z in (a, b))
        drawn.append(oracle(x, y))
    run = jax.jit(lambda key, a, b: A.improvement(key, a, jnp.isfinite(a), b, jnp.isfinite(b)))
    e = run(KEY, jnp.asarray(a), jnp.asarray(b))
    assert float(e.value) == pytest.approx(oracle(a, b), abs=1e-6)
    np.testing.assert_allclose([e.low, e.high], np.quantile(drawn, [0.025, 0.975]), atol=0.3 * np.std(drawn))
    missing = run(KEY, jnp.asarray(a).at[:, 0].set(jnp.nan), jnp.asarray(b))  # a task that only b ran is left out
    assert float(missing.value) == pytest.approx(oracle(a[:, 1:], b[:, 1:]), abs=1e-6)
    assert Status.of(missing.status) is Status.OK


def test_statuses_and_mapping():
    x = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0]], np.float32)
    cases = [
        (x, x > 0, Status.OK, 19 / 6, True),
        (x, x < 0, Status.NO_DATA, np.nan, False),
        (x, np.array([[1, 1], [1, 0], [1, 0]], bool), Status.NOT_ENOUGH, (8 / 3 + 2) / 2, False),
        (x, np.array([[1, 0], [1, 0], [1, 0]], bool), Status.OK, 8 / 3, True),  # a task without runs is left out
        (x * 0 + 2, x > 0, Status.CONSTANT, 2.0, True),
        (np.where(x == 5, np.nan, x), x > 0, Status.BAD_INPUT, np.nan, False),
        (np.where(x == 5, np.inf, x), x > 0, Status.BAD_INPUT, np.nan, False),
        (np.where(x == 5, np.nan, x), x != 5, Status.OK, (8 / 3 + 3) / 2, True),  # NaN under the mask is never read
    ]
    scores, valid = (jnp.asarray(np.stack([c[i] for c in cases])) for i in (0, 1))
    one = lambda x, v: A.interval(KEY, A.mean, x, v, resamples_n=200)  # noqa: E731
    e = jax.jit(jax.vmap(one))(scores, valid)
    assert [Status.of(s) for s in e.status] == [c[2] for c in cases]
    np.testing.assert_allclose(e.value, [c[3] for c in cases], rtol=1e-6)
    assert np.isfinite(e.low).tolist() == np.isfinite(e.high).tolist() == [c[4] for c in cases]
    alone = jax.jit(one)(scores[0], valid[0])
    np.testing.assert_allclose(np.stack(alone), [field[0] for field in e], rtol=1e-6)
    again = jax.jit(one)(scores[0], valid[0])
    np.testing.assert_array_equal(np.stack(alone), np.stack(again))
