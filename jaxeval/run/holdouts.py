"""Metrics as predictors of success: fitted on some speeds, policies or seeds, judged on others; and given the speed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.tables import name_of
from jaxeval.stats.calibration import holdout, transfer
from jaxeval.stats.estimate import Status
from jaxeval.stats.logistic import FEATURES_N, dummies, logistic_fit, standardised

Row = dict[str, Any]
UNKNOWN = "–"
"""Level of an execution whose column is empty: it is neither fitted nor tested on."""
QUICK_N = 512
"""Rows up to which compiling a program well takes longer than what it saves."""


def held_out(
    metrics: Mapping[str, np.ndarray],
    success: np.ndarray,
    levels: np.ndarray,
    *,
    by: str,
    fit: Any = None,
    bins_n: int = 5,
    level: float = 0.95,
) -> list[Row]:
    """A row a metric and protocol: sizes, Youden's threshold, AUROC, balanced accuracy, Brier scores, ECE, status.

    ``metrics`` [N] each (NaN: unknown), ``success`` [N] of True, False, None, ``levels`` [N] of column ``by``. With
    ``fit`` the metric is fitted on these levels (a list, or one) and judged on all others; without, each level in turn
    is held out.

    Raises:
        InputError: a level that does not occur, fewer than two levels, or none left to test on.
    """
    there = in_order(levels)
    if len(there) < 2:
        raise InputError(
            f"holdout={by}: found {len(there)} level ({', '.join(there)}), expected at least two; name another column"
        )
    fit = listed(fit)
    chosen = None if fit is None else [_name(v) for v in fit]
    if lost := [v for v in chosen or () if v not in there]:
        raise InputError(f"fit: {by} has no {', '.join(lost)}, found {', '.join(there)}; correct the setting")
    if chosen is not None and set(chosen) == set(there):
        raise InputError(f"fit names every level of {by}, expected some to be left to test on; take one out")
    codes = np.array([there.index(_name(v)) if _name(v) in there else -1 for v in levels])
    protocols = (
        [(f"{by} = {v}", tuple(k for k in range(len(there)) if k != i), (i,)) for i, v in enumerate(there)]
        if chosen is None
        else [_split(there, chosen, by)]
    )
    known = np.array([s is not None for s in success])
    won = np.array([s is True for s in success])
    rows: list[Row] = []
    with jax.enable_x64(True):
        judge = compiled(_judged, len(filled(won)), "bins_n")
        for metric, values in metrics.items():
            valid = known & np.isfinite(values)
            masks = [holdout(codes, fit=f, test=t) for _, f, t in protocols]
            fits, tests = (np.stack([np.asarray(m[i]) & valid for m in masks]) for i in (0, 1))
            columns = filled(np.where(valid, values, 0.0)), filled(won), filled(fits, 1), filled(tests, 1)
            made = jax.tree.map(np.asarray, judge(*columns, level=level, bins_n=bins_n))
            for i, (protocol, _, _) in enumerate(protocols):
                t = jax.tree.map(lambda a, i=i: a[i], made)
                rows.append({"held out": protocol, "metric": metric} | _row(t))
    return rows


def _judged(x: Any, won: Any, fits: Any, tests: Any, *, level: Any, bins_n: int) -> Any:
    return jax.vmap(lambda f, t: transfer(x, won, f, t, bins_n=bins_n, level=level))(fits, tests)


def _split(there: Sequence[str], chosen: Sequence[str], by: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    rest = [v for v in there if v not in chosen]
    index = [tuple(there.index(v) for v in some) for some in (chosen, rest)]
    return f"{by} = {', '.join(rest)}", index[0], index[1]


def _row(t: Any) -> Row:
    parts = (t.threshold.status, t.logistic.status, t.auroc.status)
    why = dict.fromkeys(Status.of(int(s)).value for s in parts if int(s) != Status.OK.code)
    return {
        "fit_n": int(t.fit_n),
        "test_n": int(t.test_n),
        "fit_success": _known(t.fit_success),
        "test_success": _known(t.test_success),
        "threshold": _known(t.threshold.threshold),
        "AUROC": _known(t.auroc.value),
        "AUROC_low": _known(t.auroc.low),
        "AUROC_high": _known(t.auroc.high),
        "balanced_accuracy": _known(t.balanced_accuracy.value),
        "balanced_accuracy_0": _known(t.balanced_accuracy_zero.value),
        "Brier": _known(t.brier.value),
        "Brier_0": _known(t.brier_base_rate.value),
        "ECE": _known(t.ece.value),
        "status": "; ".join(why) or Status.OK.value,
    }


def coefficients(
    metrics: Mapping[str, np.ndarray],
    success: np.ndarray,
    policy: np.ndarray,
    given: Mapping[str, np.ndarray],
    *,
    level: float = 0.95,
) -> list[Row]:
    """Change of the log odds of success by one standard deviation of each metric, given other columns.

    A logistic model for each policy alone, and one of all policies in which each has its own intercept (the form of
    ParcelStow's appendix I). Columns of numbers enter as they are, others by their levels.

    Raises:
        InputError: more features than a fit takes, or a column that does not vary within any policy.
    """
    known = np.array([s is not None for s in success])
    won = np.array([s is True for s in success])
    policies = in_order(policy)
    for name, values in given.items():
        pairs = {(_name(p), _name(v)) for p, v in zip(policy, values, strict=True) if _name(v) != UNKNOWN}
        if len(pairs) == len({p for p, _ in pairs}):
            where = " within any policy, whose own intercept tells it already" if len(pairs) > 1 else ""
            raise InputError(f"given={name}: it does not vary{where}, expected several levels; leave it out")
    others = [_features(name, values) for name, values in given.items()]
    rows: list[Row] = []
    with jax.enable_x64(True):
        fit = compiled(_slopes, len(filled(won)))
        for metric, values in metrics.items():
            complete = known & np.isfinite(values) & np.all([np.isfinite(f).all(axis=1) for f in others], axis=0)
            cells: list[tuple[str, np.ndarray, list[np.ndarray]]] = [
                (p, np.array([_name(v) == p for v in policy]), []) for p in policies
            ]
            if len(policies) != 1:
                codes = np.array([policies.index(_name(v)) if _name(v) in policies else 0 for v in policy])
                effects = [np.asarray(dummies(codes, levels_n=len(policies)))] if len(policies) > 1 else []
                cells.append(("all, each its own intercept" if effects else "all", np.ones(len(won), bool), effects))
            for name, mine, effects in cells:
                x = np.concatenate([np.where(complete, values, 0.0)[:, None], *others, *effects], axis=1)
                if x.shape[1] > FEATURES_N:
                    raise InputError(
                        f"given={','.join(given)}: {x.shape[1]} features with {len(policies)} policies, expected at "
                        f"most {FEATURES_N}; leave some out"
                    )
                made = fit(filled(np.where(np.isfinite(x), x, 0.0)), filled(won), filled(complete & mine), level=level)
                value, low, high = (_known(v[1]) for v in (made.coefficients, made.low, made.high))
                row = {"policy": name, "metric": metric, "given": ", ".join(given), "n": int(made.n)}
                row |= {"coefficient": value, "low": low, "high": high}
                rows.append(row | {"status": Status.of(int(made.status)).value})
    return rows


def _slopes(x: Any, won: Any, valid: Any, *, level: Any) -> Any:
    """The fit with the metric, the first feature, in units of its standard deviation."""
    return logistic_fit(x.at[:, 0].set(standardised(x[:, :1], valid)[:, 0]), won, valid, level=level)


def listed(value: Any) -> list[Any] | None:
    """A list unchanged, one name or number as a list of one; None stays None.

    >>> listed("Q"), listed(["Q"]), listed(None)
    (['Q'], ['Q'], None)
    """
    if value is None:
        return None
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def filled(column: np.ndarray, axis: int = 0) -> np.ndarray:
    """An array filled up with zeros to a power of two of rows, so that few lengths are compiled for."""
    rows_n = column.shape[axis]
    more = max(32, 1 << (rows_n - 1).bit_length()) - rows_n
    return np.pad(column, [(0, more if k == axis else 0) for k in range(column.ndim)])


@cache
def _compiled(f: Callable[..., Any], quick: bool, static: tuple[str, ...]) -> Callable[..., Any]:
    options: dict[str, Any] = {}
    if quick and jax.default_backend() == "cpu":
        options["xla_backend_optimization_level"] = 0
        if jax.__version_info__[:2] == (0, 10):  # an XLA that does not know an option refuses it
            options["xla_cpu_use_fusion_emitters"] = False
    return jax.jit(f, static_argnames=static, compiler_options=options)


def compiled(f: Callable[..., Any], rows_n: int, *static: str) -> Callable[..., Any]:
    """The function, jitted once: for few rows in little time, for many so that it runs fast."""
    return _compiled(f, rows_n <= QUICK_N, static)


def in_order(levels: Iterable[Any]) -> list[str]:
    """The names of the levels there are: numbers by size, then words as they come; None is no level."""
    return sorted(dict.fromkeys(name for v in levels if (name := name_of(v)) is not None), key=_size)


def _size(name: str) -> tuple[int, float]:
    try:
        return 0, float(name)
    except ValueError:
        return 1, 0.0


def _name(value: Any) -> str:
    return name_of(value) or UNKNOWN


def _features(name: str, values: np.ndarray) -> np.ndarray:
    """[N, D]: the column itself if it holds numbers, else a column for each level but the first; NaN where unknown."""
    if all(v is None or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in values):
        return np.array([[np.nan if v is None else float(v)] for v in values])
    there = in_order(values)
    if len(there) < 2:
        raise InputError(f"given={name}: it does not vary, expected several levels; leave it out")
    out = np.array([[float(_name(v) == level) for level in there[1:]] for v in values])
    out[[_name(v) == UNKNOWN for v in values]] = np.nan
    return out


def _known(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
