"""How well a score predicts success: discrimination, thresholds, calibration, and what of it transfers.

Written for one set of rows [N]; `valid` says which count. A prediction of success is always ``score > threshold``.
Logistic fits are in `jaxeval.stats.logistic`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from jaxeval.stats.estimate import Estimate, Scalar, Status, is_level, status_of
from jaxeval.stats.logistic import Logistic, logistic_fit, predict
from jaxeval.stats.proportions import bisect, normal_quantile, wilson
from jaxeval.stats.ranking import midranks

Column = Num[Array, " N"] | Num[np.ndarray, " N"]
Truth = Bool[Array, " N"] | Bool[np.ndarray, " N"]
Codes = Int[Array, " N"] | Int[np.ndarray, " N"]
Judged = TypeVar("Judged", Estimate, "Score")


class Discrimination(NamedTuple):
    """An AUROC with its interval, and how many successes and failures it rests on."""

    value: Float[Array, "..."]
    low: Float[Array, "..."]
    high: Float[Array, "..."]
    successes_n: Int[Array, "..."]
    failures_n: Int[Array, "..."]
    status: Int[Array, "..."]


class Threshold(NamedTuple):
    """A fitted threshold with Youden's J = sensitivity + specificity - 1 there."""

    threshold: Float[Array, ""]
    j: Float[Array, ""]
    status: Int[Array, ""]


class Score(NamedTuple):
    """A single number with its status; NaN where there is none."""

    value: Float[Array, ""]
    status: Int[Array, ""]


class Bins(NamedTuple):
    """Reliability by bins of predicted probability: rows, mean prediction, share of successes (NaN where n is 0).

    Without rows anywhere: NO_DATA where there are none, BAD_INPUT where a probability lies outside [0, 1].
    """

    n: Int[Array, " B"] | Int[np.ndarray, " B"]
    predicted: Float[Array, " B"] | Float[np.ndarray, " B"]
    observed: Float[Array, " B"] | Float[np.ndarray, " B"]
    status: Int[Array, ""] | int = Status.OK.code


class Transfer(NamedTuple):
    """What was fitted on one part of the rows and how it did on another: one row of a hold-out table."""

    fit_n: Int[Array, ""]
    test_n: Int[Array, ""]
    fit_success: Float[Array, ""]
    test_success: Float[Array, ""]
    threshold: Threshold
    logistic: Logistic
    auroc: Discrimination
    balanced_accuracy: Estimate
    balanced_accuracy_zero: Estimate
    brier: Score
    brier_base_rate: Score
    ece: Score


# ------------------------------------------------------------------------------------------------------- discrimination


def auroc(score: Column, success: Truth, valid: Truth | None = None, *, level: Scalar = 0.95) -> Discrimination:
    """Area under the ROC curve: how often a success scores above a failure; higher is better, .5 is chance.

    A = (sum of the successes' ranks - m (m + 1) / 2) / (m f): m successes, f failures, ties count one half (mid-ranks).
    In [0, 1]. Interval: the ends t solve |A - t| = z sqrt(V(t)) with c = (m + f) / 2 - 1 and

        V(t) = t (1 - t) (1 + c (1 - t) / (2 - t) + c t / (1 + t)) / (m f),

    Hanley and McNeil's variance at the true area instead of the found one, so that it stays in [0, 1] and has a width
    at 0 and 1. It knows the counts alone, and is wide where many scores are tied. Simulated
    coverage of 95 %: .94 to .98 for areas from .5 to .97, 5 to 200 rows a class (normal scores).

    Undefined: ONE_CLASS without successes or without failures, NO_DATA without rows, BAD_INPUT for a NaN or infinite
    score or a level outside (0, 1). Invariant to increasing maps of the score; score -> -score gives 1 - A. All scores
    equal: .5.
    Source: Hanley & McNeil 1982, Radiology 143:29; interval Newcombe 2006, Stat. Med. 25:559, method 5.
    Oracle: sklearn.metrics.roc_auc_score; scipy.optimize.brentq for the ends.

    >>> a = jax.jit(auroc)(jnp.array([0.1, 0.4, 0.35, 0.8]), jnp.array([False, False, True, True]))
    >>> print(f"{a.value:.2f} [{a.low:.2f}, {a.high:.2f}], {a.successes_n} of {a.successes_n + a.failures_n}")
    0.75 [0.23, 0.97], 2 of 4
    """
    x, keep = _kept(score, valid)
    won = keep & jnp.asarray(success)
    m, f = jnp.sum(won).astype(jnp.int32), jnp.sum(keep & ~won).astype(jnp.int32)
    status = _status(x, keep, m, f, level)
    usable = keep & jnp.isfinite(x)
    m_, f_ = (jnp.maximum(c, 1).astype(x.dtype) for c in (m, f))
    excess = jnp.where(won, midranks(jnp.where(usable, x, 0.0), usable) - (m_ + f_ + 1) / 2, 0.0)  # keeps digits
    a = jnp.clip(jnp.sum(excess) / (m_ * f_) + 0.5, 0.0, 1.0)

    z, c = normal_quantile(level), (m_ + f_) / 2 - 1

    def inside(t: Array) -> Array:
        variance = t * (1 - t) * (1 + c * (1 - t) / (2 - t) + c * t / (1 + t)) / (m_ * f_)
        return (a - t) ** 2 <= z * z * variance

    ends = jnp.stack([jnp.zeros_like(a), jnp.ones_like(a)])
    low, high = jax.vmap(lambda end: bisect(inside, a, end))(ends)
    low, high = jnp.where(a == 0, 0.0, low), jnp.where(a == 1, 1.0, high)
    ok = status == Status.OK.code
    a, low, high = (jnp.where(ok, v, jnp.nan) for v in (a, low, high))
    return Discrimination(a, low, high, m, f, status)


def auroc_by_group(
    score: Column,
    success: Truth,
    group: Codes,
    valid: Truth | None = None,
    *,
    groups_n: int,
    level: Scalar = 0.95,
) -> tuple[Discrimination, Discrimination]:
    """`auroc` of all rows together, and of each group 0 .. groups_n - 1 with an entry each.

    A group of one class is undefined (ONE_CLASS) and does not keep the pooled one from being computed; each tells its
    successes and failures.

    >>> score, won = jnp.array([0.1, 0.7, 0.3, 0.9]), jnp.array([False, False, False, True])
    >>> by_group = jax.jit(auroc_by_group, static_argnames="groups_n")
    >>> pooled, each = by_group(score, won, jnp.array([0, 0, 1, 1]), groups_n=2)
    >>> [Status.of(s).name for s in each.status], float(pooled.value)
    (['ONE_CLASS', 'OK'], 1.0)
    """
    _, keep = _kept(score, valid)
    of = (jnp.asarray(group)[None] == jnp.arange(groups_n)[:, None]) & keep[None]
    each = jax.vmap(lambda mine: auroc(score, success, mine, level=level))(of)
    return auroc(score, success, keep, level=level), each


def youden(score: Column, success: Truth, valid: Truth | None = None) -> Threshold:
    """The threshold between two neighbouring scores at which J = sensitivity + specificity - 1 is greatest.

    Success is predicted where score > threshold; the threshold is half-way between neighbouring distinct scores, the
    lowest of equally good ones. J in [-1, 1]; J <= 0 says that higher scores do not go with success.

    Undefined: ONE_CLASS, NO_DATA, CONSTANT where all scores are equal, BAD_INPUT for a score that is not finite.
    Source: Youden 1950, Cancer 3:32. Oracle: sklearn.metrics.roc_curve.

    >>> t = jax.jit(youden)(jnp.array([0.1, 0.4, 0.6, 0.8]), jnp.array([False, False, True, True]))
    >>> print(f"{t.threshold:.2f} {t.j:.2f}")
    0.50 1.00
    """
    x, keep = _kept(score, valid)
    won = jnp.asarray(success)
    m, f = jnp.sum(keep & won), jnp.sum(keep & ~won)
    order = jnp.argsort(jnp.where(keep, x, jnp.inf))
    x, keep, won = x[order], keep[order], won[order]
    below = jnp.cumsum(keep & won), jnp.cumsum(keep & ~won)  # at or below row i
    j = below[1] / jnp.maximum(f, 1) - below[0] / jnp.maximum(m, 1)
    if not x.size:  # no row to take the best of
        nothing = jnp.full((), jnp.nan, x.dtype)
        return Threshold(nothing, nothing, _status(x, keep, m, f))
    after = jnp.concatenate([x[1:], x[-1:]])
    splits = (x < after) & jnp.concatenate([keep[1:], jnp.zeros(1, bool)])
    at = jnp.argmax(jnp.where(splits, j, -2.0))
    status = _status(x, keep, m, f)
    status = jnp.where((status == Status.OK.code) & ~jnp.any(splits), Status.CONSTANT.code, status)
    middle = x[at] + (after[at] - x[at]) / 2
    middle = jnp.where(middle < after[at], middle, x[at])  # of neighbouring floats
    ok = status == Status.OK.code
    return Threshold(jnp.where(ok, middle, jnp.nan), jnp.where(ok, j[at], jnp.nan).astype(x.dtype), status)


def balanced_accuracy(
    score: Column, success: Truth, valid: Truth | None = None, *, threshold: Scalar, level: Scalar = 0.95
) -> Estimate:
    """Mean of sensitivity and specificity of "success where score > threshold"; higher is better, .5 is chance.

    (p + q) / 2 with p = share of successes above, q = share of failures at or below. In [0, 1]. Interval: the distances
    of Wilson's ends from p and q, added in squares and halved (MOVER; Zou & Donner 2008, Stat. Med. 27:1693).

    Undefined: ONE_CLASS, NO_DATA, BAD_INPUT for a score or a threshold that is not finite or a level outside (0, 1).
    Oracle: sklearn.metrics.balanced_accuracy_score.

    >>> b = jax.jit(balanced_accuracy)(jnp.array([0.1, 0.4, 0.6, 0.8]), jnp.array([0, 1, 0, 1]) == 1, threshold=0.5)
    >>> print(f"{b.value:.2f} [{b.low:.2f}, {b.high:.2f}]")
    0.50 [0.21, 0.79]
    """
    x, keep = _kept(score, valid)
    won, above = jnp.asarray(success), x > threshold
    m, f = jnp.sum(keep & won), jnp.sum(keep & ~won)
    status = _status(x, keep, m, f, level)
    no_number = (status == Status.OK.code) & ~jnp.isfinite(jnp.asarray(threshold, x.dtype))
    status = jnp.where(no_number, Status.BAD_INPUT.code, status)
    p = wilson(jnp.sum(keep & won & above), jnp.maximum(m, 1), level=level)
    q = wilson(jnp.sum(keep & ~won & ~above), jnp.maximum(f, 1), level=level)
    value = (p.value + q.value) / 2
    low = value - jnp.hypot(p.value - p.low, q.value - q.low) / 2
    high = value + jnp.hypot(p.high - p.value, q.high - q.value) / 2
    ok = status == Status.OK.code
    value, low, high = (jnp.where(ok, v, jnp.nan) for v in (value, low, high))
    return Estimate(value, low, high, status)


# ---------------------------------------------------------------------------------------------------------- calibration


def brier(probability: Column, success: Truth, valid: Truth | None = None) -> Score:
    """Brier score: mean of (p - y)^2, y 1 for a success; lower is better. In [0, 1].

    Undefined: NO_DATA, BAD_INPUT for a probability outside [0, 1]. Source: Brier 1950, Mon. Weather Rev. 78:1.
    Oracle: sklearn.metrics.brier_score_loss.

    >>> print(f"{brier(jnp.array([0.1, 0.9, 0.8]), jnp.array([False, True, False])).value:.2f}")
    0.22
    """
    p, keep = _kept(probability, valid)
    n = jnp.sum(keep)
    status = _of_probabilities(p, keep)
    y = jnp.asarray(success).astype(p.dtype)
    value = jnp.sum(jnp.where(keep, (p - y) ** 2, 0.0)) / jnp.maximum(n, 1)
    return Score(jnp.where(status == Status.OK.code, value, jnp.nan), status)


def brier_base_rate(success: Truth, valid: Truth | None = None, *, base_rate: Scalar) -> Score:
    """`brier` of one rate predicted for every row: the success rate of the rows that a model would be fitted on.

    = s (1 - base_rate)^2 + (1 - s) base_rate^2, s the share of successes here.

    >>> print(f"{brier_base_rate(jnp.array([True, False, False, False]), base_rate=0.5).value:.2f}")
    0.25
    """
    rate = jnp.broadcast_to(jnp.asarray(base_rate, jnp.result_type(float)), success.shape)
    return brier(rate, success, valid)


def quantile_bins(probability: Column, success: Truth, valid: Truth | None = None, *, bins_n: int = 5) -> Bins:
    """Reliability in bins of equal mass: edges at the quantiles k / bins_n of the predictions themselves.

    A bin is (lower edge, upper edge], the first has its lower edge too; quantiles are linearly interpolated (numpy's
    default). Ties fall into one bin, so bins may differ in size or be empty. Oracle: numpy.quantile.

    >>> quantile_bins(jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([False, True, True, True]), bins_n=2).n.tolist()
    [2, 2]
    """
    p, keep = _kept(probability, valid)
    n = jnp.sum(keep).astype(jnp.int32)
    ordered = jnp.sort(jnp.where(keep, p, jnp.inf))
    k = jnp.arange(1, bins_n) * jnp.maximum(n - 1, 0)
    if not p.size:  # no row to take a quantile of
        ordered = jnp.zeros(1, p.dtype)
    low = k // bins_n
    high, share = jnp.minimum(low + 1, ordered.size - 1), (k % bins_n) / bins_n
    edges = ordered[low] + jnp.where(share > 0, share * (ordered[high] - ordered[low]), 0.0)
    return _bins(p, success, keep, jnp.sum(p[:, None] > edges[None], axis=1), bins_n)


def width_bins(probability: Column, success: Truth, valid: Truth | None = None, *, bins_n: int = 10) -> Bins:
    """Reliability in bins of equal width: (k / bins_n, (k + 1) / bins_n], the first has 0 too.

    >>> width_bins(jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([False, True, True, True]), bins_n=2).n.tolist()
    [4, 0]
    """
    p, keep = _kept(probability, valid)
    edges = jnp.arange(1, bins_n) / bins_n
    return _bins(p, success, keep, jnp.sum(p[:, None] > edges[None].astype(p.dtype), axis=1), bins_n)


def ece(bins: Bins) -> Score:
    """Expected calibration error over stated bins: sum n_b |predicted - observed| / n; lower is better. In [0, 1].

    It depends on the bins, so say which. Undefined: NO_DATA without rows; BAD_INPUT as the bins, for a number of rows
    below 0 and for a mean prediction or share of a bin with rows outside [0, 1].
    Source: Naeini et al. 2015, AAAI. Oracle: tables of a public release in tests/stats/test_calibration.py.

    >>> print(f"{ece(Bins(jnp.array([3, 1]), jnp.array([0.2, 0.9]), jnp.array([0.3, 1.0]))).value:.3f}")
    0.100
    """
    n = jnp.asarray(bins.n)
    gap = jnp.abs(jnp.asarray(bins.predicted, float) - jnp.asarray(bins.observed, float))
    total = jnp.sum(jnp.asarray(n, float))
    rates = jnp.stack([jnp.asarray(v, float) for v in (bins.predicted, bins.observed)])
    bad = jnp.any(n < 0) | jnp.any((n > 0)[None] & ~((rates >= 0) & (rates <= 1)))
    status = jnp.asarray(bins.status, jnp.int32)
    found = status_of((bad, Status.BAD_INPUT), (total == 0, Status.NO_DATA))
    status = jnp.where(status == Status.OK.code, found, status)
    value = jnp.sum(jnp.where(n > 0, n * gap, 0.0)) / jnp.maximum(total, 1.0)
    return Score(jnp.where(status == Status.OK.code, value, jnp.nan), status)


# ------------------------------------------------------------------------------------------------------------ hold-outs


def holdout(
    codes: Codes, *, fit: tuple[int, ...], test: tuple[int, ...]
) -> tuple[Bool[Array, " N"], Bool[Array, " N"]]:
    """(rows to fit on, rows to test on) by the levels of one column: a speed, a policy, a seed. Others are in neither.

    Combine columns with &. Levels must not be in both (ValueError): what was fitted on is no test.

    >>> [mask.tolist() for mask in holdout(jnp.array([0, 1, 2, 1]), fit=(0,), test=(1,))]
    [[True, False, False, False], [False, True, False, True]]
    """
    if both := set(fit) & set(test):
        raise ValueError(f"levels {sorted(both)} are to be fitted on and tested on; expected each in one of them")
    known = jnp.asarray(codes)
    return jnp.isin(known, jnp.asarray(fit, int)), jnp.isin(known, jnp.asarray(test, int))


def leave_one_out(codes: Codes, *, levels_n: int) -> tuple[Bool[Array, "L N"], Bool[Array, "L N"]]:
    """(fit, test) masks for each level in turn: tested on it, fitted on all the others. For jax.vmap of `transfer`.

    >>> [mask.tolist() for mask in leave_one_out(jnp.array([0, 1]), levels_n=2)]
    [[[False, True], [True, False]], [[True, False], [False, True]]]
    """
    test = jnp.asarray(codes)[None] == jnp.arange(levels_n)[:, None]
    return ~test, test


def transfer(
    score: Column, success: Truth, fit: Truth, test: Truth, *, bins_n: int = 5, level: Scalar = 0.95
) -> Transfer:
    """Threshold and one-dimensional logistic model fitted on ``fit`` rows, judged on ``test`` rows.

    Youden's threshold, AUROC of the test rows, balanced accuracy at that threshold and at 0, Brier score of the
    logistic model beside that of predicting the fit rows' success rate, ECE in ``bins_n`` bins of equal mass. Every
    part has its status; where the logistic fit has no value, Brier score and ECE take its status. A row in both masks
    makes all BAD_INPUT. The form of ParcelStow's Table 8 (appendix I).

    >>> score, won = jnp.array([0.1, 0.4, 0.5, 0.9] * 2), jnp.array([False, True, False, True] * 2)
    >>> made = jax.jit(transfer)(score, won, jnp.arange(8) < 4, jnp.arange(8) >= 4)
    >>> int(made.fit_n), int(made.test_n), float(made.auroc.value)
    (4, 4, 0.75)
    """
    fit, test = jnp.asarray(fit), jnp.asarray(test)
    won = jnp.asarray(success)
    overlap = jnp.any(fit & test)
    x = jnp.where(overlap, jnp.nan, jnp.asarray(score, float))  # so every part says BAD_INPUT
    threshold = youden(x, success, fit)
    model = logistic_fit(x[:, None], success, fit, level=level)
    p = predict(model, x[:, None])
    fit_n, test_n = jnp.sum(fit).astype(jnp.int32), jnp.sum(test).astype(jnp.int32)
    fit_rate, test_rate = (
        jnp.where(n > 0, jnp.sum(rows & won) / jnp.maximum(n, 1), jnp.nan) for n, rows in ((fit_n, fit), (test_n, test))
    )
    at_threshold = balanced_accuracy(x, success, test, threshold=threshold.threshold, level=level)
    base = _after(
        brier_base_rate(success, test, base_rate=jnp.where(fit_n > 0, fit_rate, 0.0)),
        status_of((fit_n == 0, Status.NO_DATA)),
    )
    bad = status_of((overlap, Status.BAD_INPUT))
    return Transfer(
        fit_n,
        test_n,
        fit_rate,
        test_rate,
        threshold,
        model,
        auroc(x, success, test, level=level),
        _after(at_threshold, threshold.status),
        balanced_accuracy(x, success, test, threshold=0.0, level=level),
        _after(brier(p, success, test), model.status),
        _after(base, bad),
        _after(ece(quantile_bins(p, success, test, bins_n=bins_n)), model.status),
    )


# --------------------------------------------------------------------------------------------------------------- inside


def _kept(values: Column, valid: Truth | None) -> tuple[Float[Array, " N"], Bool[Array, " N"]]:
    x = jnp.asarray(values, float)
    return x, jnp.ones(x.shape, bool) if valid is None else jnp.asarray(valid)


def _status(x: Array, keep: Array, m: Array, f: Array, level: Scalar = 0.95) -> Int[Array, ""]:
    return status_of(
        (jnp.any(keep & ~jnp.isfinite(x)) | ~is_level(level), Status.BAD_INPUT),
        (m + f == 0, Status.NO_DATA),
        ((m == 0) | (f == 0), Status.ONE_CLASS),
    )


def _of_probabilities(p: Array, keep: Array) -> Int[Array, ""]:
    return status_of((jnp.any(keep & ~((p >= 0) & (p <= 1))), Status.BAD_INPUT), (~jnp.any(keep), Status.NO_DATA))


def _after(made: Judged, before: Array) -> Judged:
    """An estimate that rests on something else: where that has no value, it has none either, for the same reason."""
    ok = before == Status.OK.code
    none = {name: jnp.where(ok, v, jnp.nan) for name, v in made._asdict().items() if name != "status"}
    return made._replace(**none, status=jnp.where(ok, made.status, before))


def _bins(p: Array, success: Truth, keep: Array, index: Array, bins_n: int) -> Bins:
    status = _of_probabilities(p, keep)
    member = (index[None] == jnp.arange(bins_n)[:, None]) & keep[None] & (status == Status.OK.code)
    n = jnp.sum(member, axis=1).astype(jnp.int32)
    sums = (jnp.sum(jnp.where(member, v[None], 0.0), axis=1) for v in (p, jnp.asarray(success).astype(p.dtype)))
    predicted, observed = (jnp.where(n > 0, s / jnp.maximum(n, 1), jnp.nan) for s in sums)
    return Bins(n, predicted, observed, status)
