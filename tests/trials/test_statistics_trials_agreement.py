"""Trials 9 and 10: agreement where nothing varies, one rater, and an AUROC of one class."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import get_args

import jax
import numpy as np
import pytest

from jaxeval.io.errors import InputError
from jaxeval.run.agree import agree
from jaxeval.stats.agreement import Scale, alpha_bootstrap, icc_2_1, icc_2_k, krippendorff_alpha
from jaxeval.stats.calibration import auroc_by_group
from jaxeval.stats.estimate import Status
from jaxeval.stats.ranking import pooled_mean, spearman


def test_9_fifteen_raters_who_always_say_three() -> None:
    """Undefined, "constant": not 0, not 1, and not NaN without a word."""
    threes = np.full((10, 15), 3)
    key = jax.random.key(0)
    for made in (
        jax.jit(icc_2_1)(threes),
        jax.jit(icc_2_k)(threes),
        *(jax.jit(partial(krippendorff_alpha, scale=scale))(threes) for scale in get_args(Scale)),
        jax.jit(partial(alpha_bootstrap, scale="ordinal", resamples_n=20))(key, threes),
    ):
        assert Status.of(made.status) is Status.CONSTANT and "do not vary" in Status.of(made.status).value
        assert np.isnan([made.value, made.low, made.high]).all() and int(made.items_n) == 10


def test_9_one_rater_is_an_error(tmp_path: Path) -> None:
    assert Status.of(jax.jit(icc_2_1)(np.arange(10.0)[:, None]).status) is Status.NOT_ENOUGH
    scores, ratings = tmp_path / "scores.csv", tmp_path / "ratings.csv"
    scores.write_text("episode,Q\n" + "".join(f"{k},{k / 10}\n" for k in range(10)))
    ratings.write_text("episode,rater,rating\n" + "".join(f"{k},ann,{k % 5 + 1}\n" for k in range(10)))
    with pytest.raises(InputError, match="found ratings by ann, expected at least 2 raters"):
        agree(scores, ratings)


def test_9_a_constant_metric_is_left_out_of_pooled_means() -> None:
    metric = np.array([[0.1, 0.5, 0.9, 0.7], [0.5, 0.5, 0.5, 0.5], [0.2, 0.4, 0.9, 0.8]])
    rating = np.array([[1, 3, 5, 4], [1, 2, 3, 4], [2, 1, 5, 4]])
    tasks = jax.jit(jax.vmap(spearman))(metric, rating)
    assert [Status.of(s) for s in tasks.status] == [Status.OK, Status.CONSTANT, Status.OK]
    assert np.isnan(tasks.value[1])
    mean = pooled_mean(tasks.value, tasks.status)
    assert float(mean.value) == pytest.approx((1 + 0.8) / 2)  # of two tasks, not (1 + 0 + .8) / 3
    assert (int(mean.used_n), int(mean.left_out_n)) == (2, 1)


def test_10_an_area_of_one_class() -> None:
    score = np.array([0.9, 0.8, 0.3, 0.1, 0.7, 0.6])
    success = np.array([1, 1, 1, 0, 0, 1], bool)
    pooled, each = jax.jit(partial(auroc_by_group, groups_n=2))(score, success, np.array([0, 0, 0, 1, 1, 1]))
    assert [Status.of(s) for s in each.status] == [Status.ONE_CLASS, Status.OK] and np.isnan(each.value[0])
    assert each.successes_n.tolist() == [3, 1] and each.failures_n.tolist() == [0, 2]
    assert Status.of(pooled.status) is Status.OK and float(pooled.value) == pytest.approx(6 / 8)
    assert (int(pooled.successes_n), int(pooled.failures_n)) == (4, 2)
