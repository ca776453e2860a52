"""The bootstrap against the exact distribution of its draws, scipy, a numpy twin, and coverage by simulation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxeval.stats import bootstrap as B
from jaxeval.stats.estimate import PairCounts, Status

KEY = jax.random.key(7)
paired = partial(B.paired_bootstrap, level=0.95)
paired_many = jax.jit(jax.vmap(B.paired_bootstrap, (None, 0)))
draws = jax.jit(B._paired_draws, static_argnames="resamples_n")

PUBLISHED = {  # both, a only, b only, neither -> a - b and its percentile interval, as others published them
    (10, 30, 4, 6): (0.52, 0.34, 0.70),
    (26, 2, 20, 2): (-0.36, -0.52, -0.20),
    (148, 134, 52, 166): (0.164, 0.112, 0.216),
    (0, 15, 0, 485): (0.03, 0.016, 0.046),
    (62, 50, 44, 44): (0.03, -0.065, 0.125),
    (73, 19, 51, 7): (-0.213, -0.313, -0.107),
    (42, 42, 11, 5): (0.31, 0.18, 0.44),
}


def columns(rows):
    return PairCounts(*(jnp.asarray(c) for c in np.array(rows).T))


def exact_pmf(a, b, n):
    """P(sum of n draws of +1, -1, 0 = -n .. n), by polynomial powers."""
    pmf = np.ones(1)
    for _ in range(n):
        pmf = np.convolve(pmf, [b / n, 1 - (a + b) / n, a / n])
    return pmf


# ------------------------------------------------------------------------------------------------- matched pairs


def test_published_sets():
    found = np.stack(paired_many(KEY, columns(list(PUBLISHED)))[:3], axis=1)
    np.testing.assert_allclose(found, list(PUBLISHED.values()), atol=0.0101)
    np.testing.assert_allclose(found[:, 0], [v[0] for v in PUBLISHED.values()], atol=5e-4)


def test_degenerate_tables_have_a_status():
    rows = [(50, 0, 0, 50), (0, 0, 0, 0), (0, 9, 0, 0), (0, 0, 9, 0), (5, -1, 2, 3), (5, 1.5, 2, 3), (5, np.nan, 2, 3)]
    e = paired_many(KEY, columns(rows))
    S = Status
    wanted = [S.NO_DISCORDANT, S.NO_DATA, S.CONSTANT, S.CONSTANT, S.BAD_INPUT, S.BAD_INPUT, S.BAD_INPUT]
    assert [Status.of(s) for s in e.status] == wanted
    numbers = [[0.0] * 3, [np.nan] * 3, [1.0] * 3, [-1.0] * 3] + [[np.nan] * 3] * 3
    np.testing.assert_array_equal(np.stack(e[:3], axis=1), numbers)
    for level in (0.0, 1.0, -1.0, 95.0, np.nan):
        bad = B.paired_bootstrap(KEY, PairCounts(42, 42, 11, 5), level=level)
        assert Status.of(bad.status) is Status.BAD_INPUT and np.isnan(bad[:3]).all()


@pytest.mark.parametrize("a, b, n", [(2, 1, 7), (1, 0, 2), (30, 11, 256), (255, 0, 255), (256, 0, 256), (3, 200, 256)])
def test_the_table_that_is_inverted_is_the_exact_distribution(a, b, n):
    up, down = (jax.jit(B._share)(jnp.int32(k), jnp.int32(n)) for k in (a, b))
    cdf = np.asarray(jax.jit(B._sum_cdf)(up, down, jnp.int32(n)), np.float64) / 2**31
    exact = np.cumsum(exact_pmf(a, b, n))  # at -n .. n
    middle = cdf[B.BLOCK - n : B.BLOCK + n]
    np.testing.assert_allclose(middle, exact[:-1], atol=4e-7)
    assert (np.diff(cdf) >= 0).all() and cdf[B.BLOCK + n :].min(initial=1.0) == 1 and cdf[: B.BLOCK - n].sum() == 0


@pytest.mark.parametrize("k, n", [(0, 1), (1, 1), (1, 3), (2, 3), (999_999, 1_000_000), (7, 2_000_000_000), (0, 0)])
def test_shares_are_exact_integers(k, n):
    assert int(jax.jit(B._share)(jnp.int32(k), jnp.int32(n))) == k * 2**31 // max(n, 1)


def test_high_word():
    x, y = np.random.default_rng(0).integers(0, 2**32, (2, 1000), np.uint64)
    x[:2], y[:3] = 2**32 - 1, 2**32 - 1
    np.testing.assert_array_equal(B._high_word(*(jnp.asarray(z.astype(np.uint32)) for z in (x, y))), x * y >> 32)


@pytest.mark.parametrize("a, b, n", [(2, 1, 7), (1, 1, 2), (90, 41, 256), (300, 20, 600), (5, 5, 1000)])
def test_draws_follow_the_exact_distribution(a, b, n):
    """To two draws in each place up to 256 pairs, beyond by a chi-square test.

    The fault that would show is a_only and b_only drawn as independent binomials.
    """
    won = np.asarray(draws(KEY, jnp.int32(a), jnp.int32(b), jnp.int32(n), resamples_n=20_000))

    def p_value(pmf):
        support = np.arange(len(pmf)) - len(pmf) // 2
        common = support[pmf * len(won) >= 5]
        cut = np.clip(support, common[0], common[-1])
        wanted = np.bincount(cut - common[0], pmf) * len(won)
        seen = np.bincount(np.clip(won, common[0], common[-1]) - common[0])
        assert (seen[wanted == 0] == 0).all()
        return scipy.stats.chisquare(seen[wanted > 0], wanted[wanted > 0]).pvalue

    if n <= B.BLOCK:
        np.testing.assert_allclose(np.bincount(won + n, minlength=2 * n + 1), 20_000 * exact_pmf(a, b, n), atol=2)
    assert p_value(exact_pmf(a, b, n)) > 1e-3
    if a + b > n / 4:
        k = np.arange(n + 1)
        binomials = np.convolve(scipy.stats.binom.pmf(k, n, a / n), scipy.stats.binom.pmf(k, n, b / n)[::-1])
        assert p_value(binomials) < 1e-6


@given(st.tuples(*[st.integers(0, 60)] * 4))
@settings(deadline=None, max_examples=30)
def test_ends_are_quantiles_of_the_exact_distribution(cells):
    _, a, b, _ = cells
    n = sum(cells)
    e = B.paired_bootstrap(KEY, PairCounts(*cells), level=0.9)
    if n == 0 or a == n or b == n or a + b == 0:
        assert Status.of(e.status) is not Status.OK
        return
    assert Status.of(e.status) is Status.OK and -1 <= e.low <= e.high <= 1
    assert float(e.value) == pytest.approx((a - b) / n, abs=1e-6)
    cdf = np.concatenate([[0], np.cumsum(exact_pmf(a, b, n))])  # [i]: P(sum < i - n)
    for end, share in ((e.low, 0.05), (e.high, 0.95)):
        place = float(end) * n + n
        below, upto = cdf[int(np.floor(place + 1e-3))], cdf[int(np.ceil(place - 1e-3)) + 1]
        assert below - 1e-4 <= share <= upto + 1e-4, (below, upto)


def test_the_same_bits_alone_mapped_jitted_and_in_double_precision():
    rows = [(42, 42, 11, 5), (148, 134, 52, 166), (3, 1, 0, 2)]
    keys = jax.random.split(KEY, 3)
    mapped = jax.vmap(B.paired_bootstrap)(keys, columns(rows))
    for i, row in enumerate(rows):
        alone = paired(keys[i], PairCounts(*row))
        np.testing.assert_array_equal(np.stack(alone), [field[i] for field in mapped])
    args = (jnp.int32(134), jnp.int32(52), jnp.int32(500))
    single = np.asarray(draws(KEY, *args, resamples_n=1000))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(draws(KEY, *args, resamples_n=1000), single)
    assert np.abs(np.asarray(draws(jax.random.key(8), *args, resamples_n=1000)) - single).max() > 0


@pytest.mark.parametrize("resamples_n", [1, 7, 1000, 1_000_003])
def test_slices_reach_both_ends(resamples_n):
    """Two draws at even odds: a quarter, a half and a quarter of any number of resamples, to one."""
    won = np.asarray(draws(KEY, jnp.int32(1), jnp.int32(0), jnp.int32(2), resamples_n=resamples_n))
    for k, share in enumerate((0.25, 0.5, 0.25)):
        assert abs((won == k).sum() - share * resamples_n) <= 1.01


def test_swapping_the_sides_turns_the_interval_round():
    e, swapped = (paired(KEY, PairCounts(*c)) for c in ((42, 42, 11, 5), (42, 11, 42, 5)))
    assert float(swapped.value) == -float(e.value)
    np.testing.assert_allclose([-swapped.high, -swapped.low], [e.low, e.high], atol=0.0101)


def test_paired_agrees_with_scipy():
    both, a, b, neither = 42, 42, 11, 5
    x = np.repeat([1, 1, 0, 0], [both, a, b, neither])
    y = np.repeat([1, 0, 1, 0], [both, a, b, neither])
    theirs = scipy.stats.bootstrap(
        (x, y), lambda x, y, axis: x.mean(axis) - y.mean(axis), paired=True, vectorized=True, n_resamples=20_000,
        method="percentile", rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    np.testing.assert_allclose(paired(KEY, PairCounts(both, a, b, neither))[1:3], theirs, atol=0.0101)


def test_paired_interval_covers_the_truth():
    """.3 against .1 of 100 pairs: covered 96.8 % of the time (95 % nominal, on a lattice)."""
    tables = np.random.default_rng(0).multinomial(100, [0.4, 0.3, 0.1, 0.2], size=400)
    e = jax.jit(jax.vmap(partial(B.paired_bootstrap, resamples_n=1000)))(jax.random.split(KEY, 400), columns(tables))
    assert 0.93 <= np.mean((np.asarray(e.low) <= 0.2 + 1e-6) & (np.asarray(e.high) >= 0.2 - 1e-6)) <= 0.995


# ------------------------------------------------------------------------------------------------ drawing weights


def weights_of(make, resamples_n=2000, chunk_n=1000):
    """Weights of each resample, and the status; compiled as one."""

    def run(key):
        resampling = make()
        return B.draws(key, lambda w: w, resampling.draw, resamples_n=resamples_n, chunk_n=chunk_n), resampling.status

    weights, status = jax.jit(run)(KEY)
    return np.asarray(weights), Status.of(status)


VALID = jnp.array([True, False, True, True, False, True, True])


def test_independent_weights_are_multinomial():
    w, _ = weights_of(lambda: B.independent(jnp.array([True, True, False, True])), 20_000)
    assert (w.sum(1) == 3).all() and (w[:, 2] == 0).all()
    kinds, seen = np.unique(w[:, [0, 1, 3]], axis=0, return_counts=True)
    wanted = scipy.stats.multinomial.pmf(kinds, 3, [1 / 3] * 3) * len(w)
    assert len(kinds) == 10 and scipy.stats.chisquare(seen, wanted).pvalue > 1e-3


def test_chunks_and_padding_change_no_bit():
    def every(key):
        resampling, long = B.independent(VALID), B.independent(jnp.concatenate([VALID, jnp.zeros(20, bool)]))
        runs = [partial(B.draws, key, lambda w: w, resampling.draw, resamples_n=50, chunk_n=c) for c in (1000, 1, 7)]
        padded = B.draws(key, lambda w: w[:7], long.draw, resamples_n=50)
        mapped = jax.vmap(lambda r: resampling.draw(jax.random.fold_in(key, r)))(jnp.arange(50))
        return *(run() for run in runs), padded, mapped

    whole, *others = jax.jit(every)(KEY)
    with jax.enable_x64(True):
        others += jax.jit(every)(KEY)
    for other in others:
        np.testing.assert_array_equal(other, whole)
    assert len(others) == 9 and len(np.unique(whole, axis=0)) > 30


def test_strata_keep_their_size():
    stratum = jnp.array([3, 0, 9, 3, 0, 9, 3])
    w, status = weights_of(lambda: B.stratified(stratum, valid=VALID))
    assert status is Status.OK
    for s, size in ((3, 3), (9, 2)):
        assert (w[:, stratum == s].sum(1) == size).all()
    assert (w[:, ~np.asarray(VALID)] == 0).all() and len(np.unique(w, axis=0)) == 10 * 3
    alone = weights_of(lambda: B.stratified(jnp.array([3, 0, 9, 3, 0, 8, 3]), valid=VALID), 2)[1]
    assert alone is Status.NOT_ENOUGH


SEED = jnp.repeat(jnp.arange(4), 6)
START = jnp.tile(jnp.repeat(jnp.arange(3), 2), 4)  # the same numbers in every seed
EPISODE = jnp.arange(24)
ALL = jnp.ones(24, bool)


def test_nested_weights_are_products_within_parents():
    w = weights_of(lambda: B.nested(SEED, START, EPISODE, valid=ALL))[0].reshape(-1, 4, 3, 2)
    by_start, by_seed = w.sum(3) / 2, w.sum((2, 3)) / 6
    assert (by_seed == np.round(by_seed)).all() and (by_seed.sum(1) == 4).all()  # how often each seed was drawn
    assert (by_start == np.round(by_start)).all() and (by_start.sum(2) == 3 * by_seed).all()
    assert (w[by_seed == 0] == 0).all() and w.max() > 4
    unique, _ = weights_of(lambda: B.nested(SEED, START + 10 * SEED, EPISODE, valid=ALL))
    np.testing.assert_array_equal(unique, w.reshape(-1, 24))


def test_crossed_weights_share_the_starts_between_seeds():
    w = weights_of(lambda: B.crossed(SEED, START, valid=ALL))[0].reshape(-1, 4, 3, 2)
    seeds, starts = w.sum((2, 3)) / 6, w.sum((1, 3)) / 8
    np.testing.assert_array_equal(w, np.broadcast_to((seeds[:, :, None] * starts[:, None])[..., None], w.shape))
    assert (seeds.sum(1) == 4).all() and (starts.sum(1) == 3).all()
    nested = weights_of(lambda: B.nested(SEED, START, valid=ALL))[0].reshape(-1, 4, 3, 2)
    of_seed = nested.sum((2, 3))[..., None, None] / 6
    assert not (nested[:, 0] * of_seed[:, 1] == nested[:, 1] * of_seed[:, 0]).all()


def test_within_keeps_tasks_apart():
    task = jnp.repeat(jnp.arange(2), 12)
    w, status = weights_of(lambda: B.nested(SEED, EPISODE, valid=ALL, within=task))
    assert (w.reshape(-1, 2, 12).sum(2) == 12).all() and status is Status.OK
    one_seed_a_task = weights_of(lambda: B.nested(task, EPISODE, valid=ALL, within=task), 2)[1]
    assert one_seed_a_task is Status.NOT_ENOUGH


def test_one_seed_is_not_enough_however_many_episodes():
    y = (EPISODE % 3 > 0).astype(jnp.float32)
    one, two = jnp.zeros(24, int), EPISODE // 12

    def run(key):
        rate = lambda w: jnp.sum(w * y) / jnp.sum(w)  # noqa: E731
        resamplings = [
            B.nested(one, EPISODE, valid=ALL),
            B.crossed(one, EPISODE, valid=ALL),
            B.crossed(two, one, valid=ALL),
            B.nested(SEED, EPISODE, valid=SEED == 2),  # masked to one seed
            B.nested(SEED, EPISODE, valid=SEED >= 2),
        ]
        return [B.bootstrap(key, rate, r, resamples_n=10) for r in resamplings]

    *lone, several = jax.jit(run)(KEY)
    for e in lone:
        assert Status.of(e.status) is Status.NOT_ENOUGH
        assert float(e.value) == pytest.approx(2 / 3) and np.isnan(e.low) and np.isnan(e.high)
    assert Status.of(several.status) is Status.OK and np.isfinite(several[:3]).all()


# ---------------------------------------------------------------------------------------------------- any statistic

SAMPLE = np.random.default_rng(3).gamma(2.0, size=40)


def variance(x):
    def statistic(w):
        mean = jnp.sum(w * x) / jnp.sum(w)
        return jnp.sum(w * (x - mean) ** 2) / jnp.sum(w)

    return statistic


@pytest.mark.parametrize("name", ["percentile", "BCa"])
def test_intervals_agree_with_scipy(name):
    valid = jnp.arange(50) < 40
    statistic = variance(jnp.asarray(np.pad(SAMPLE, (0, 10))))
    if name == "BCa":
        e = jax.jit(lambda key: B.bootstrap_bca(key, statistic, valid, resamples_n=20_000))(KEY)
    else:
        e = jax.jit(lambda key: B.bootstrap(key, statistic, B.independent(valid), resamples_n=20_000))(KEY)
    theirs = scipy.stats.bootstrap(
        (SAMPLE,), lambda x, axis: x.var(axis), vectorized=True, n_resamples=20_000, method=name,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert float(e.value) == pytest.approx(SAMPLE.var(), rel=1e-5)
    np.testing.assert_allclose(e[1:3], theirs.confidence_interval, atol=0.06 * theirs.standard_error)
    other = {"percentile": "BCa", "BCa": "percentile"}[name]  # which the tolerance tells apart
    wrong = scipy.stats.bootstrap(
        (SAMPLE,), lambda x, axis: x.var(axis), vectorized=True, bootstrap_result=theirs, n_resamples=0, method=other
    ).confidence_interval
    assert np.abs(np.subtract(e[1:3], wrong)).min() > 0.1 * theirs.standard_error


def test_constants_and_interval_of_bca_against_numpy():
    rng = np.random.default_rng(1)
    drawn, left_out = np.round(rng.gamma(3.0, size=5000), 1), rng.gamma(3.0, size=30) * 1e-3
    value, valid = 2.5, np.arange(30) < 25
    norm = scipy.stats.norm
    bias = norm.ppf(np.mean(drawn < value) + np.mean(drawn == value) / 2)
    d = left_out[valid].mean() - left_out[valid]
    acceleration = np.sum(d**3) / (6 * np.sum(d**2) ** 1.5)
    z = bias + norm.ppf([0.05, 0.95])
    wanted = np.quantile(drawn, norm.cdf(bias + z / (1 - acceleration * z)))
    with jax.enable_x64(True):
        args = (jnp.asarray(drawn), jnp.asarray(value), jnp.asarray(left_out))
        found = B.bca_constants(*args, valid=jnp.asarray(valid))
        np.testing.assert_allclose(found, [bias, acceleration], rtol=1e-9)
        np.testing.assert_allclose(B.bca(*args, valid=jnp.asarray(valid), level=0.9), wanted, rtol=1e-9)
        np.testing.assert_allclose(B.percentile(args[0], level=0.9), np.quantile(drawn, [0.05, 0.95]), rtol=1e-12)


def test_what_cannot_be_said_has_a_status():
    x, here, nan = np.array([1.0, 2.0, 4.0, 8.0, 16.0], np.float32), np.ones(5, bool), np.nan
    cases = [  # scores, mask, NaN in the resamples without the first observation, level -> status, value, interval
        (x, here, False, 0.95, Status.OK, 6.2, True),
        (x * 0 + 1, here, False, 0.95, Status.CONSTANT, 1.0, True),
        (x, ~here, False, 0.95, Status.NO_DATA, nan, False),
        (x, x == 4, False, 0.95, Status.NOT_ENOUGH, 4.0, False),
        (x, here, True, 0.95, Status.DEGENERATE, 6.2, False),
        (np.where(x == 2, nan, x), here, False, 0.95, Status.DEGENERATE, nan, False),
        (x, here, False, 1.0, Status.BAD_INPUT, nan, False),
    ]

    def both(x, valid, lost, level):
        mean = lambda w: jnp.sum(w * x) / jnp.where(lost & (w[0] == 0), nan, jnp.sum(w))  # noqa: E731
        plain = B.bootstrap(KEY, mean, B.independent(valid), resamples_n=200, level=level)
        return plain, B.bootstrap_bca(KEY, mean, valid, resamples_n=200, level=level)

    for e in jax.jit(jax.vmap(both))(*(jnp.asarray(np.stack(c)) for c in list(zip(*cases, strict=True))[:4])):
        assert [Status.of(s) for s in e.status] == [c[4] for c in cases]
        np.testing.assert_allclose(e.value, [c[5] for c in cases], rtol=1e-6)
        for end in (e.low, e.high):
            assert np.isfinite(end).tolist() == [c[6] for c in cases]
        assert float(e.low[1]) == float(e.high[1]) == 1 and float(e.low[0]) < 6.2 < float(e.high[0])


def test_vector_statistics_and_counting_undefined_resamples():
    x = jnp.array([1.0, 2.0, 4.0])

    def run(key):
        three = lambda w: jnp.stack([jnp.sum(w * x) / 3, jnp.where(w[0] > 0, 5.0, jnp.nan), 7.0])  # noqa: E731
        r = B.independent(jnp.ones(3, bool))
        return B.bootstrap(key, three, r, resamples_n=2000), B.draws(key, three, r.draw, resamples_n=2000)

    e, drawn = jax.jit(run)(KEY)
    assert [Status.of(s) for s in e.status] == [Status.OK, Status.DEGENERATE, Status.CONSTANT]
    np.testing.assert_allclose(e.value, [7 / 3, 5, 7], rtol=1e-6)
    undefined = np.isnan(drawn).sum(0)
    assert undefined[0] == undefined[2] == 0 and undefined[1] / 2000 == pytest.approx(8 / 27, abs=0.05)


def cover(x, truth, run):
    low, high = jax.jit(jax.vmap(run))(jax.random.split(KEY, len(x)), jnp.asarray(x, jnp.float32))[1:3]
    return np.mean((np.asarray(low) <= truth) & (truth <= np.asarray(high)))


def test_coverage_of_the_mean_of_thirty():
    x = np.random.default_rng(0).exponential(size=(300, 30))
    valid = jnp.ones(30, bool)
    mean = lambda x: lambda w: jnp.sum(w * x) / 30  # noqa: E731
    assert 0.87 <= cover(x, 1.0, lambda k, x: B.bootstrap_bca(k, mean(x), valid, resamples_n=500)) <= 0.97


def test_three_seeds_are_covered_three_times_in_four():
    """As said in ``nested``: with three seeds the percentile interval is the range of the seeds' means."""
    x = np.random.default_rng(0).normal(size=(1000, 3))
    r = B.nested(jnp.arange(3), valid=jnp.ones(3, bool))
    share = cover(x, 0.0, lambda k, x: B.bootstrap(k, lambda w: jnp.sum(w * x) / 3, r, resamples_n=400))
    assert share == pytest.approx(0.75, abs=0.045)
