"""Means and their differences by Student's t, against SciPy and statsmodels; by hand; what has no answer says so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.weightstats import ttost_ind, ttost_paired

from jaxeval.stats.estimate import Status
from jaxeval.stats.values import mean_difference, mean_of, within
from jaxeval.stats.values_host import centred, d_z, differences, hedges_g

N = 16
seeds = st.integers(0, 2**31 - 1)


@jax.jit
def every(a: Any, valid_a: Any, b: Any, valid_b: Any, level: Any, margin: Any) -> Any:
    one, two = mean_of(a, valid_a, level=level), mean_difference(a, valid_a, b, valid_b, level=level)
    return one, two, within(one, margin=margin), within(two, margin=margin)


def padded(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Values filled up with NaN that does not count, in random places."""
    x = np.asarray(x, float)
    place = np.sort(np.random.default_rng(len(x)).permutation(N)[: len(x)])
    out, valid = np.full(N, np.nan), np.zeros(N, bool)
    out[place], valid[place] = x, True
    return out, valid


def told(a: Any, b: Any, *, level: float = 0.95, margin: float = 1.0, x64: bool = True) -> Any:
    with jax.enable_x64(x64):
        return every(*padded(a), *padded(b), level, margin)


def status(made: Any) -> Status:
    return Status.of(made.status)


@settings(deadline=None, max_examples=30)
@given(seeds, st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_scipy_and_statsmodels_say_the_same(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(rng.normal(), 1, rng.integers(2, N + 1))
    b = rng.normal(0, 3, rng.integers(2, N + 1)) * 10 ** rng.uniform(-1, 1)
    one, two, same, apart = told(a, b, level=level)
    for made, theirs in ((one, scipy.stats.ttest_1samp(a, 0)), (two, scipy.stats.ttest_ind(a, b, equal_var=False))):
        assert (float(made.p), float(made.df)) == pytest.approx((theirs.pvalue, theirs.df), rel=1e-9)
        assert (float(made.low), float(made.high)) == pytest.approx(tuple(theirs.confidence_interval(level)), rel=1e-8)
    assert float(same.p) == pytest.approx(ttost_paired(a, np.zeros_like(a), -1, 1)[0], rel=1e-8, abs=1e-12)
    assert float(apart.p) == pytest.approx(ttost_ind(a, b, -1, 1, usevar="unequal")[0], rel=1e-8, abs=1e-12)


def test_golden_by_hand() -> None:
    # 1 2 4 5: mean 3, squares 4 1 1 4, s² = 10/3, error = sqrt(10/12); t(3) at 95 % is 3.182446
    one, *_ = told([1, 2, 4, 5], [0, 1])
    error = np.sqrt(10 / 12)
    assert float(one.error) == pytest.approx(error) and float(one.low) == pytest.approx(3 - 3.182446 * error, abs=1e-5)
    for wrong in (3 - 1.959964 * error, 3 - 2.776445 * error, 3 - 3.182446 * np.sqrt(10 / 16)):  # z; t(4); s² over n
        assert abs(float(one.low) - wrong) > 0.1
    # a: 1 2 6, variance 7; b: 1 1.5, variance 1/8: error² = 7/3 + 1/16, df = (115/48)² / ((7/3)² / 2 + (1/16)² / 1)
    _, two, *_ = told([1, 2, 6], [1, 1.5])
    assert float(two.value) == 1.75 and float(two.error) == pytest.approx(np.sqrt(115 / 48))
    assert float(two.df) == pytest.approx((115 / 48) ** 2 / ((7 / 3) ** 2 / 2 + (1 / 16) ** 2))
    for wrong in (3, 1, 2):  # pooled; of the smaller side; of the larger
        assert abs(float(two.df) - wrong) > 0.1
    assert float(two.error) != pytest.approx(np.sqrt((14 + 1 / 8) / 3 * (1 / 3 + 1 / 2)), rel=0.02)  # one variance


def test_margin_and_interval_agree() -> None:
    a = np.array([-0.1, 0.2, 0.1, -0.1, 0.0, 0.05])
    reach = max(abs(float(x)) for x in told(a, a, level=0.9)[0][1:3])
    for margin, proven in ((reach * 1.001, True), (reach * 0.999, False)):
        assert (float(told(a, a, margin=margin)[2].p) < 0.05) is proven


@pytest.mark.parametrize(
    ("a", "b", "of_one", "of_two"),
    [
        ([], [1, 2], Status.NO_DATA, Status.NO_DATA),
        ([3], [1, 2], Status.NOT_ENOUGH, Status.NOT_ENOUGH),
        ([3, 3, 3], [1, 1], Status.CONSTANT, Status.CONSTANT),
        ([0, 0], [0, 0], Status.CONSTANT, Status.CONSTANT),
        ([0.1 + 0.2, 0.3], [1, 2], Status.CONSTANT, Status.OK),  # but for rounding
        ([1, np.inf], [1, 2], Status.BAD_INPUT, Status.BAD_INPUT),
        ([1, 2], [np.nan, 2], Status.OK, Status.BAD_INPUT),
        ([1, 1e308], [1, 2], Status.BAD_INPUT, Status.BAD_INPUT),
        ([1e300, -1e300, 2e300], [1, 2], Status.OK, Status.OK),
        ([1e-300, 2e-300], [3e-300, 1e-300], Status.OK, Status.OK),
    ],
)
def test_what_has_no_answer_says_so(a: list, b: list, of_one: Status, of_two: Status) -> None:
    for made, expected in zip(told(a, b), (of_one, of_two, of_one, of_two), strict=True):
        assert status(made) is expected
        ok = expected is Status.OK
        assert np.isfinite(float(made.p)) == ok
        if not hasattr(made, "value"):
            continue
        assert np.isfinite(float(made.value)) == (ok or expected in (Status.CONSTANT, Status.NOT_ENOUGH))
        assert np.isfinite([float(made.low), float(made.high)]).all() == (ok or expected is Status.CONSTANT)
        if ok:
            assert float(made.low) < float(made.value) < float(made.high)


def test_a_level_or_a_margin_that_cannot_be() -> None:
    for level in (0.0, 1.0, 95.0, np.nan):
        assert [status(m) for m in told([1, 2], [2, 4], level=level)] == [Status.BAD_INPUT] * 4
    for margin in (0.0, -1.0, np.inf, np.nan):
        one, _, same, _ = told([1, 2], [2, 4], margin=margin)
        assert status(one) is Status.OK and status(same) is Status.BAD_INPUT and np.isnan(float(same.p))


def test_float32_holds_what_was_centred_on_the_host() -> None:
    rng = np.random.default_rng(7)
    a, b = 1e9 + rng.normal(0.5, 0.1, 12), 1e9 + rng.normal(0.3, 0.1, 9)
    d = differences(a[:9], b)
    expected = scipy.stats.ttest_ind(a, b, equal_var=False), scipy.stats.ttest_rel(a[:9], b)
    _, (a_, b_) = centred(a, b)
    for made, theirs in ((told(a_, b_, x64=False)[1], expected[0]), (told(d, b_, x64=False)[0], expected[1])):
        assert float(made.p) == pytest.approx(theirs.pvalue, rel=1e-3)
        assert float(made.low) == pytest.approx(theirs.confidence_interval().low, abs=1e-5)
    assert status(told(a, b, x64=False)[1]) is Status.CONSTANT  # as they are: all is rounded away, and that is said


def test_vmap_is_a_loop() -> None:
    x, valid = zip(*(padded(np.random.default_rng(k).normal(size=k)) for k in (0, 1, 2, 9)), strict=True)
    with jax.enable_x64(True):
        rows = jax.jit(jax.vmap(mean_of))(np.array(x), np.array(valid))
        for k, row in enumerate(zip(*rows, strict=True)):
            np.testing.assert_allclose(np.array(row), np.array(every(x[k], valid[k], x[3], valid[3], 0.95, 1.0)[0]))


# ------------------------------------------------------------------------------------------- before, and how large


def test_differences_are_equal_where_rounding_alone_parts_them() -> None:
    a, b = np.array([0.3, 0.2, 0.7, 0.1 + 0.2]), np.array([0.2, 0.1, 0.6, 0.3])
    assert len(set(a - b)) == 3 and (a - b)[3] > 0
    d = differences(a, b)
    assert len(set(d[:3].tolist())) == 1 and d[3] == 0.0
    far = differences(1e9 + a, 1e9 + b)  # seven digits are left
    assert len(set(far[:3].tolist())) == 1 and far[3] == 0.0
    assert differences(np.array([1.0, 2.0]), np.array([1 - 1e-9, 2.0])).tolist() == pytest.approx([1e-9, 0], rel=1e-6)
    assert not np.isfinite(differences(np.array([1e308]), np.array([-1e308]))).any()


@pytest.mark.parametrize("t_size", [0.1, 2.0, 29.0, 60.0])
def test_the_ends_of_effects_put_what_was_seen_into_the_tails(t_size: float) -> None:
    rng = np.random.default_rng(int(10 * t_size))
    d = rng.normal(size=12)
    d = (d - d.mean()) / d.std(ddof=1) + t_size / np.sqrt(12)
    made = d_z(d, level=0.9)
    tails = [scipy.stats.nct.cdf(t_size, 11, e * np.sqrt(12)) for e in (made.low, made.high)]
    assert made.value == pytest.approx(t_size / np.sqrt(12)) and tails == pytest.approx([0.95, 0.05], abs=2e-3)
    a, b = rng.normal(size=7) + t_size / 2, rng.normal(size=9)
    g = hedges_g(a, b)
    pooled = np.sqrt((6 * a.var(ddof=1) + 8 * b.var(ddof=1)) / 14)
    assert g.value == pytest.approx((a.mean() - b.mean()) / pooled * (1 - 3 / (4 * 14 - 1)), rel=1e-3)
    assert abs(g.value - (a.mean() - b.mean()) / pooled) > 0.02 * abs(g.value)  # Cohen's d is biased
    assert g.low < g.value < g.high and hedges_g(b, a).value == pytest.approx(-g.value)
    far = hedges_g(1e9 + a, 1e9 + b)
    assert far[:3] == pytest.approx(g[:3], rel=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([], [1.0], Status.NO_DATA), ([1.0], [1.0, 2], Status.NOT_ENOUGH), ([2.0, 2], [1.0, 1], Status.CONSTANT),
        ([1.0, np.inf], [1.0, 2], Status.BAD_INPUT),
    ],
)  # fmt: skip
def test_effects_without_an_answer_say_so(a: list, b: list, expected: Status) -> None:
    for made in (hedges_g(np.array(a), np.array(b)), d_z(np.array(a))):
        assert made.status is expected and np.isnan(made[:3]).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "exponential"])
def test_coverage_is_as_told(kind: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20_000, N)) if kind == "normal" else rng.exponential(size=(20_000, N)) - 1
    y = 3 * (rng.normal(size=(20_000, 2 * N)) if kind == "normal" else rng.exponential(size=(20_000, 2 * N)) - 1)
    with jax.enable_x64(True):
        one = jax.jit(jax.vmap(lambda x: mean_of(x, jnp.full(N, True))))(x)
        two = jax.jit(jax.vmap(lambda x, y: mean_difference(x, jnp.full(N, True), y, jnp.full(2 * N, True))))(x, y)
    for made, (least, most) in ((one, (0.945, 0.955) if kind == "normal" else (0.90, 0.93)), (two, (0.935, 0.955))):
        assert least < np.mean((np.asarray(made.low) <= 0) & (np.asarray(made.high) >= 0)) < most
