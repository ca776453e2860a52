"""No estimator says OK of what is no number, or of an interval without width: all of them over degenerate inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.stats import aggregate, bootstrap, paired, planning, proportions, ranking, sequential
from jaxeval.stats import calibration as C
from jaxeval.stats.agreement import alpha_bootstrap, icc_2_1, icc_2_k
from jaxeval.stats.estimate import PairCounts, Status
from jaxeval.stats.logistic import logistic_fit

N = 6
MOST_N = 500
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
LEVELS = [0.95, 0.95, 0.95, 0.5, 0.0, 1.0, 95.0, np.nan]
STEPS = np.arange(N, dtype=float)
COLUMNS = np.array(
    [
        STEPS, STEPS[::-1], STEPS % 2, STEPS * 0, STEPS * 0 + 0.1, STEPS / 10, STEPS + 1e6, STEPS * 1e30, STEPS * 1e-30,
        np.where(STEPS == 2, np.nan, STEPS), np.where(STEPS == 2, np.inf, STEPS), [0, 0, 0, 0, 0, 1.0],
        [-3, 0.2, 1.7, 0.5, 0.5, 1], [1.0, 1, 1, 2, 2, 2],
    ]
)  # fmt: skip
MASKS = np.array([np.arange(N) < n for n in (0, 1, 2, 3, 5, 6)] + [np.arange(N) != 2])
COUNTS = [0.0, 1, 2, 7, 100, 8e6, 2.0**30, 1e38, -1, 0.5, np.nan, np.inf]


def sampled(n: int, *choices: Any) -> list[np.ndarray]:
    """n random combinations of one of each."""
    return [np.asarray(c)[RNG.integers(0, len(c), n)] for c in choices]


def pairs(x: Any, y: Any, valid: Any, level: Any) -> list[Any]:
    success = y == 1
    truth = (success, valid)
    fits = [C.transfer(x, success, valid & (jnp.arange(N) % 2 == i), valid & (jnp.arange(N) % 2 != i)) for i in (0,)]
    return [
        ranking.spearman(x, y, valid, level=level),
        ranking.kendall(x, y, valid, level=level),
        ranking.exact_p(x, y, valid),
        ranking.permutation_p(KEY, x, y, valid, resamples_n=9),
        C.auroc(x, *truth, level=level),
        C.youden(x, *truth),
        C.balanced_accuracy(x, *truth, threshold=0.5, level=level),
        C.brier(x, *truth),
        C.ece(C.quantile_bins(x, *truth)),
        C.ece(C.width_bins(x, *truth)),
        logistic_fit(x[:, None], *truth, level=level),
        *(part for made in fits for part in made if hasattr(part, "status")),
    ]


def ratings(x: Any, y: Any, z: Any, valid: Any, level: Any) -> list[Any]:
    table, there = jnp.stack([x, y, z], axis=1), jnp.broadcast_to(valid[:, None], (N, 3))
    alphas = [partial(alpha_bootstrap, scale=scale, resamples_n=30) for scale in ("nominal", "ordinal", "interval")]
    return [
        icc_2_1(table, there, level=level),
        icc_2_k(table, there, level=level),
        *(of(KEY, table, there, level=level) for of in alphas),
    ]


def runs(x: Any, y: Any, valid: Any, level: Any) -> list[Any]:
    scores, there = jnp.stack([x, y], axis=1), jnp.stack([valid, valid], axis=1)
    of = (aggregate.mean, aggregate.median, aggregate.interquartile_mean)
    more = {"resamples_n": 30, "level": level}
    mean = bootstrap.bootstrap_bca(KEY, lambda w: jnp.sum(w * x) / jnp.sum(w), valid, **more)
    return [
        *(aggregate.interval(KEY, statistic, scores, there, **more) for statistic in of),
        aggregate.improvement(KEY, scores, there, scores[::-1], there, **more),
        mean,
    ]


def tables(both: Any, a_only: Any, b_only: Any, neither: Any, level: Any) -> list[Any]:
    counts, other = PairCounts(both, a_only, b_only, neither), PairCounts(neither, b_only, a_only, both)
    k_a, k_b, n = both, a_only, both + a_only + neither
    strata = [jnp.stack(v) for v in ((k_a, b_only), (n, n), (k_b, a_only), (n, n))]
    return [
        paired.tango(counts, level=level),
        paired.equivalence(counts, margin=level),
        paired.mcnemar_exact(counts),
        paired.mcnemar_mid_p(counts),
        paired.decrease_difference(counts, other, level=level),
        paired.no_interaction(counts, other),
        sequential.evidence(counts),
        sequential.share_of_discordant(counts, level=level),
        proportions.wilson(both, n, level=level),
        proportions.agresti_coull(both, n, level=level),
        proportions.clopper_pearson(both, n, level=level),
        proportions.newcombe(k_a, n, k_b, n, level=level),
        proportions.mantel_haenszel(*strata, level=level),
    ]


def few_pairs(both: Any, a_only: Any, b_only: Any, level: Any) -> list[Any]:
    return [bootstrap.paired_bootstrap(KEY, PairCounts(both, a_only, b_only, 7), resamples_n=50, level=level)]


def plans(p: Any, q: Any, width: Any, level: Any) -> list[Any]:
    return [
        planning.episodes_for_half_width(p, width, level=level),
        planning.episodes_for_difference(p, q, level=level),
        planning.pairs_for_difference(p, q, power=0.9, level=level),
    ]


RATES = [0.0, 1.0, 0.5, 0.5 + 1e-7, 1e-30, 1e-38, 0.3, 1.5, -0.1, np.nan]
SWEEPS: list[tuple[Callable[..., list[Any]], list[np.ndarray]]] = [
    (pairs, sampled(500, COLUMNS, COLUMNS, MASKS, LEVELS)),
    (ratings, sampled(500, COLUMNS, COLUMNS, COLUMNS, MASKS, LEVELS)),
    (runs, sampled(300, COLUMNS, COLUMNS, MASKS, LEVELS)),
    (tables, sampled(500, COUNTS, COUNTS, COUNTS, COUNTS, LEVELS)),
    (tables, sampled(300, COUNTS[:5], COUNTS[:5], COUNTS[:5], COUNTS[:5], LEVELS)),
    (few_pairs, sampled(100, [0.0, 1, 7, 300, 2**30, 2**31, 1e38], [0.0, 3, 2**30], [0.0, 3, 2**30, np.nan], LEVELS)),
    (plans, sampled(300, RATES, RATES, [0.1, 1e-30, 1e-3, 2.0, np.inf, np.nan, 0.0], LEVELS)),
]


@cache
def swept(estimators: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return jax.jit(jax.vmap(estimators))


@pytest.mark.parametrize("which", range(len(SWEEPS)), ids=[f"{k}-{f.__name__}" for k, (f, _) in enumerate(SWEEPS)])
def test_ok_is_a_number_and_an_interval_with_a_width(which: int) -> None:
    estimators, drawn = SWEEPS[which]
    inputs = [np.resize(v, (MOST_N, *v.shape[1:])) for v in drawn]  # repeated, so that `tables` compiles once
    ok_n = 0
    for i, made in enumerate(swept(estimators)(*inputs)):
        ok = np.asarray(made.status) == Status.OK.code
        ok_n += ok.sum()
        fields = {k: np.asarray(v)[ok] for k, v in made._asdict().items() if jnp.issubdtype(v.dtype, jnp.floating)}
        told = f"{i}, {type(made).__name__}, first at {[v[ok][:1] for v in inputs]}"
        for name, values in fields.items():
            open_below = estimators is ratings and i == 1 and name == "low"  # of ICC(2,k): there is no lower bound
            assert (~np.isnan(values) if open_below else np.isfinite(values)).all(), (told, name)
        if "low" in fields:
            low, high = fields["low"], fields["high"]
            flat = low >= high
            assert not flat.any(), (told, [v[ok][flat.reshape(len(flat), -1).any(1)][:2] for v in inputs])
        if "value" in fields and "low" in fields:
            assert ((fields["low"] <= fields["value"]) & (fields["value"] <= fields["high"])).all(), told
    assert ok_n > 5


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1.7, -3.0])
def test_a_prediction_that_is_no_probability_is_bad_input_wherever_it_is_judged(odd: float) -> None:
    p, won = np.array([odd, 0.2]), np.array([True, False])
    for bins in (C.quantile_bins(p, won), C.width_bins(p, won)):
        assert Status.of(bins.status) is Status.BAD_INPUT and np.isnan(bins.predicted).all() and not bins.n.any()
        assert Status.of(C.ece(bins).status) is Status.BAD_INPUT and np.isnan(C.ece(bins).value)
    assert Status.of(C.brier(p, won).status) is Status.BAD_INPUT
    by_hand = C.Bins(np.array([1, 1]), p, np.array([1.0, 0.0]))
    assert Status.of(C.ece(by_hand).status) is Status.BAD_INPUT
    first = C.quantile_bins(p, won, np.array([False, True]))  # where it does not count it does no harm
    assert Status.of(C.ece(first).status) is Status.OK and float(C.ece(first).value) == pytest.approx(0.2)


@pytest.mark.parametrize("x64", [False, True])
def test_more_pairs_than_integers_hold_are_bad_input(x64: bool) -> None:
    with jax.enable_x64(x64):
        made = bootstrap.paired_bootstrap(KEY, PairCounts(2**30, 2**30, 5, 7), resamples_n=50)
        assert Status.of(made.status) is Status.BAD_INPUT and np.isnan([made.value, made.low, made.high]).all()


@pytest.mark.parametrize("x64", [False, True])
def test_perfect_correlation_of_many_rows_keeps_a_width(x64: bool) -> None:
    with jax.enable_x64(x64):
        for of in (ranking.spearman, ranking.kendall):
            made = jax.jit(of)(np.arange(3000.0), np.arange(3000.0))
            assert 0.99 < made.low < made.value == made.high == 1 and Status.of(made.status) is Status.OK


def test_features_of_any_size_give_the_same_fit() -> None:
    x, won = np.array([[1.0], [2], [3], [4], [5], [6]]), np.arange(6) % 2 == 1
    slopes = [float(jax.jit(logistic_fit)(x * size, won).coefficients[1]) * size for size in (1.0, 1e25, 1e-25)]
    assert slopes == pytest.approx([slopes[0]] * 3, rel=1e-5)
