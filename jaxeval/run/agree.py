"""`jaxeval agree`: do raters agree, does a metric agree with them, does a metric tell success from failure.

Ratings are a long table (episode, rater, rating) or a wide one (episode, rater_1, rater_2, ...); metrics are
`scores.parquet` or any table with a row an episode. Both are joined on `episode`, and on `task` and `policy` where both
have these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.files import once
from jaxeval.io.records import ALIASES, in_package, truth_of
from jaxeval.io.records import SUCCESS as RECORDED
from jaxeval.io.records.columns import direction_of
from jaxeval.io.tables import NAMES, Table, read_table, written_apart
from jaxeval.metrics.registry import all_metrics
from jaxeval.report.agreement import ALL, OVERALL, SUCCESSES, Agreed, AgreementRow
from jaxeval.run.holdouts import coefficients, compiled, filled, held_out, listed
from jaxeval.stats.agreement import alpha_bootstrap, icc_2_1, icc_2_k
from jaxeval.stats.calibration import auroc
from jaxeval.stats.estimate import Status
from jaxeval.stats.ranking import EXACT_N, exact_p, kendall, order_of, permutation_p, spearman

SUCCESS = (*RECORDED, *(name for name, of in ALIASES.items() if of in RECORDED))
POLICY = ("policy", "group")
KEYS = ("episode", "task", "policy")
PERMUTED_N, PERMUTATIONS_N, KENDALL_N = 200, 9999, 5000
"""Rows up to which p of rho comes from random orders, and their number; rows up to which tau is computed at all, as its
work grows with the square."""


@dataclass(frozen=True)
class Settings:
    """How agreement is judged. ``level``: of every interval; ``lower``: further metrics of which lower is better."""

    level: float = 0.95
    resamples_n: int = 2000
    seed: int = 0
    lower: str | Sequence[str] = ()

    def check(self) -> Settings:
        """The settings themselves, if they can be; InputError with one sentence if not."""
        if not 0 < self.level < 1:
            raise InputError(
                f"level is {self.level!r}, expected a number between 0 and 1, such as 0.95; correct the setting"
            )
        if self.resamples_n < 100:
            raise InputError(f"resamples_n is {self.resamples_n}, expected at least 100; correct the setting")
        return self


@dataclass
class _Joined:
    """Executions, one entry each: keys, success (None: unknown), the metrics (sign turned where lower is better)."""

    task: np.ndarray
    policy: np.ndarray
    success: np.ndarray  # of object: True, False, None
    metrics: dict[str, np.ndarray]
    ratings: np.ndarray | None = None  # [rows, raters], NaN where missing
    raters: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def agree(
    metrics: str | Path | Sequence[str | Path],
    ratings: str | Path | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    success: str | None = None,
    holdout: str | None = None,
    fit: Any = None,
    given: str | Sequence[str] = (),
    settings: Settings | None = None,
) -> Agreed:
    """Agreement of raters and of metrics with them; without ratings, of metrics with success.

    With ``ratings``: ICC(2,1), ICC(2,k), Krippendorff's alpha at three levels, Spearman's and Kendall's correlation of
    every metric with the mean rating, over all tasks and in each, of all executions and of successes alone. Without:
    AUROC and rank correlation of every metric with success, for each policy in each task, and pooled. ``columns`` names
    the metrics (None: Q, and the registered metrics' numbers of whole executions), ``success`` the column that says it.

    ``holdout`` names a column (speed, policy, training_seed): each metric predicts success on levels of it that it was
    not fitted on, or on all but the levels in ``fit``. ``given`` names columns to condition a logistic model on. A list
    of one may be that one alone.

    Raises:
        InputError: a table that cannot be read or joined, fewer than two raters, no metric, or what `held_out` and
            `coefficients` refuse.
    """
    settings, given = (settings or Settings()).check(), listed(given) or ()
    files = [in_package(f) for f in ([metrics] if isinstance(metrics, (str, Path)) else metrics)]
    if not files:
        raise InputError("metrics is empty, expected at least one table of scores; give metrics=FILE")
    names = {*NAMES, *(written_apart(files) & {holdout, *given})}
    files, notes = once(files, lambda f: f)
    tables = [read_table(f, names=names) for f in files]
    notes += [sentence for t in tables for sentence in t.refused]
    rated = None if ratings is None else read_table(ratings)
    notes += [] if rated is None else list(rated.refused)
    merged = _merged(tables)
    chosen = _metrics(tables, listed(columns))
    _refuse_unknown(listed(settings.lower) or (), chosen)
    joined = _joined(merged, chosen, _success(tables, success), settings)
    if fit is not None and holdout is None:
        raise InputError("fit is given without holdout, expected the column that its levels are of; give holdout=NAME")
    predicted = []
    if holdout is not None:
        levels = _column(tables, merged, holdout)
        predicted = held_out(joined.metrics, joined.success, levels, by=holdout, fit=fit, level=settings.level)
    columns_given = {name: _column(tables, merged, name) for name in given}
    slopes = []
    if given:
        slopes = coefficients(joined.metrics, joined.success, joined.policy, columns_given, level=settings.level)
    if rated is not None:
        joined = _with_ratings(joined, merged, rated)
        rows = [*_of_raters(joined, settings), *_with_raters(joined, settings)]
    else:
        rows = list(_with_success(joined, tables, settings))
    if len(merged) > KENDALL_N:
        notes.append(f"Kendall's correlation is left out wherever it would compare more than {KENDALL_N} executions")
    all_notes = tuple([*notes, *joined.notes])
    return Agreed(tuple(rows), tuple(joined.metrics), all_notes, tuple(predicted), tuple(slopes), settings.level)


# ------------------------------------------------------------------------------------------------------------- reading


def _merged(tables: Sequence[Table]) -> dict[tuple[str, ...], dict[str, Any]]:
    """(episode, task, policy) -> its columns, of all tables; an execution's columns may stand in several."""
    out: dict[tuple[str, ...], dict[str, Any]] = {}
    for table in tables:
        table.column("episode")
        for k, row in enumerate(table.rows):
            key = _key(row)
            known = {name: v for name, v in row.items() if v is not None}
            mine = out.setdefault(key, {})
            for name, v in known.items():
                if name in mine and mine[name] != v:
                    raise InputError(
                        f"{table.where(k)}: found {name} = {v!r} for episode {key[0]!r}, of which an earlier row says "
                        f"{mine[name]!r}, expected one row an execution; add a column `policy` or `task` that tells "
                        "them apart"
                    )
            mine |= known
    return out


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    policy = next((row[c] for c in POLICY if row.get(c) is not None), "")
    return tuple("" if v is None else str(v) for v in (row.get("episode"), row.get("task"), policy))


def _metrics(tables: Sequence[Table], columns: Sequence[str] | None) -> list[str]:
    """Metric columns: those named, else Q and the registered metrics' numbers of whole executions."""
    there = dict.fromkeys(c for t in tables for c in t.columns)
    files = ", ".join(str(t.path) for t in tables)
    if columns is not None:
        for name in columns:
            if name not in there:
                raise InputError(
                    f"{files}: no column '{name}', found {', '.join(there)}; expected the metrics named by columns; "
                    "correct the setting"
                )
            if not _numbers(tables, name):
                raise InputError(
                    f"{files}: the column '{name}' holds no numbers, expected a metric; choose others with columns"
                )
        return list(columns)
    wanted = default_columns()
    chosen = [c for c in there if c in wanted and _numbers(tables, c)]
    if not chosen:
        raise InputError(
            f"{files}: found no metric among {', '.join(there)}, expected Q or a number of {', '.join(all_metrics())}; "
            "name the columns with columns=[...]"
        )
    return chosen


def default_columns() -> set[str]:
    """Q, and every number of a whole execution that a registered metric says is better higher or lower."""
    numbers = (c for m in all_metrics().values() if m.name != "geometric" for c in m.columns if c.kind == "number")
    return {"Q"} | {c.name for c in numbers if c.direction is not None and "<" not in c.name}


def _refuse_unknown(lower: Sequence[str], chosen: Sequence[str]) -> None:
    """InputError where a metric that is lower when better is none."""
    if lost := [name for name in lower if name not in chosen]:
        raise InputError(
            f"lower: there is no metric {', '.join(lost)}, found {', '.join(chosen)}; correct the setting, or name the "
            "metric in columns too"
        )


def _numbers(tables: Sequence[Table], name: str) -> bool:
    """Whether a column holds numbers, and nothing else that is known."""
    found = [row[name] for t in tables if name in t.columns for row in t.rows if row[name] is not None]
    return bool(found) and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in found)


def _column(tables: Sequence[Table], merged: dict[tuple[str, ...], dict[str, Any]], name: str) -> np.ndarray:
    """A column of every execution, None where it is empty."""
    there = dict.fromkeys(c for t in tables for c in t.columns)
    if name not in there:
        raise InputError(f"{tables[0].path}: no column '{name}', found {', '.join(there)}; correct the setting")
    return np.array([row.get(name) for row in merged.values()], object)


def _success(tables: Sequence[Table], named: str | None) -> str | None:
    there = dict.fromkeys(c for t in tables for c in t.columns)
    if named is not None and named not in there:
        raise InputError(
            f"{tables[0].path}: no column '{named}', found {', '.join(there)}; expected it for success; correct the "
            "setting"
        )
    return named or next((c for c in SUCCESS if c in there), None)


def _joined(
    merged: dict[tuple[str, ...], dict[str, Any]], chosen: Sequence[str], success: str | None, settings: Settings
) -> _Joined:
    rows = list(merged.values())
    turned = {name: direction_of(name) == "lower" or name in (listed(settings.lower) or ()) for name in chosen}
    notes = [f"{name}: lower is better, compared with its sign turned" for name in chosen if turned[name]]
    if success is None:
        notes.append(f"no column says success ({' or '.join(SUCCESS)}); nothing is told of successes alone")
    values = {
        f"-{name}" if turned[name] else name: np.array([_float(r.get(name)) for r in rows])
        * (-1.0 if turned[name] else 1.0)
        for name in chosen
    }
    for name in chosen:
        known = [r[name] for r in rows if r.get(name) is not None]
        if odd := sum(not math.isfinite(v) for v in known):
            notes.append(f"{name}: {odd} of {len(known)} values are infinite or no number; they are left out")
    truth = [truth_of(r.get(success)) if success else None for r in rows]
    unread = [
        r[success] for r, t in zip(rows, truth, strict=True) if success and t is None and r.get(success) is not None
    ]
    if unread:
        notes.append(
            f"{success}: {len(unread)} of {len(rows)} executions say {unread[0]!r} or the like, neither true nor "
            "false; their success is taken as unknown"
        )
    return _Joined(
        task=np.array([key[1] for key in merged], object),
        policy=np.array([key[2] for key in merged], object),
        success=np.array(truth, object),
        metrics=values,
        notes=notes,
    )


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else math.nan


def _with_ratings(joined: _Joined, merged: dict[tuple[str, ...], dict[str, Any]], rated: Table) -> _Joined:
    """The rated executions, with their ratings; those of which no metric is known keep NaN in every metric."""
    by_key, raters, shared = _read_ratings(rated)
    index: dict[tuple[str, ...], list[int]] = {}
    for i, key in enumerate(merged):
        index.setdefault(tuple(key[KEYS.index(c)] for c in shared), []).append(i)
    found: list[tuple[int | None, dict[str, float]]] = []
    for key, mine in by_key.items():
        at = index.get(key, [])
        if len(at) > 1:
            pairs = ", ".join(f"{c} {v!r}" for c, v in zip(shared, key, strict=True))
            raise InputError(
                f"{rated.path}: {len(at)} scored executions are {pairs}, expected one; add the column that tells them "
                f"apart ({', '.join(c for c in KEYS if c not in shared)}) to the ratings"
            )
        found.append((at[0] if at else None, mine))
    lost = sum(i is None for i, _ in found)
    if lost == len(found):
        raise InputError(
            f"{rated.path}: none of its {len(found)} executions is scored, expected the same {' and '.join(shared)} as "
            f"in the metrics (ratings: {next(iter(by_key))[0]!r}, metrics: {next(iter(merged))[0]!r}); make them match"
        )
    notes = [*joined.notes]
    if lost:
        notes.append(
            f"{lost} of {len(found)} rated executions are not scored; they count in the raters' agreement only"
        )
    unrated = len(merged) - (len(found) - lost)
    if unrated:
        notes.append(f"{unrated} scored executions are not rated and are left out")
    keys, at = list(by_key), [i for i, _ in found]
    place = shared.index("task") if "task" in shared else None

    def taken(column: np.ndarray, none: Any) -> np.ndarray:
        return np.array([none if i is None else column[i] for i in at], column.dtype)

    task = [
        key[place] if i is None and place is not None else known
        for key, i, known in zip(keys, at, taken(joined.task, ""), strict=True)
    ]
    return _Joined(
        task=np.array(task, object),
        policy=taken(joined.policy, ""),
        success=taken(joined.success, None),
        metrics={name: taken(v, math.nan) for name, v in joined.metrics.items()},
        ratings=np.array([[mine.get(r, math.nan) for r in raters] for _, mine in found]),
        raters=raters,
        notes=notes,
    )


def _read_ratings(rated: Table) -> tuple[dict[tuple[str, ...], dict[str, float]], tuple[str, ...], list[str]]:
    """({keys: {rater: rating}}, raters, the key columns that the ratings have)."""
    rated.column("episode")
    wide = [c for c in rated.columns if c.startswith("rater") and c not in ("rater", "rating")]
    long = {"rater", "rating"} <= set(rated.columns)
    if not long and not wide:
        raise InputError(
            f"{rated.path}: found the columns {', '.join(rated.columns)}, expected episode, rater, rating (a row a "
            "rating) or episode, rater_1, rater_2, ... (a row an execution); rename the columns"
        )
    shared = [c for c in KEYS if c == "episode" or (c in rated.columns)]
    by_key: dict[tuple[str, ...], dict[str, float]] = {}
    for k, row in enumerate(rated.rows):
        key = tuple("" if row[c] is None else str(row[c]) for c in shared)
        cells = [(str(row["rater"]), row["rating"])] if long else [(c, row[c]) for c in wide]
        mine = by_key.setdefault(key, {})
        for rater, value in cells:
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError(
                    f"{rated.where(k)}: the rating of {rater} is {value!r}, expected a number; correct the cell"
                )
            if rater in mine:
                raise InputError(
                    f"{rated.where(k)}: {rater} rates episode {key[0]!r} a second time, expected once; remove one of "
                    "the rows"
                )
            mine[rater] = float(value)
    raters = tuple(dict.fromkeys(r for mine in by_key.values() for r in mine))
    if len(raters) < 2:
        raise InputError(
            f"{rated.path}: found ratings by {', '.join(raters) or 'nobody'}, expected at least 2 raters: one rater "
            "has nobody to agree with; add the others' ratings"
        )
    return by_key, raters, shared


# ------------------------------------------------------------------------------------------------------------- numbers


def _of_raters(joined: _Joined, settings: Settings) -> Iterable[AgreementRow]:
    """Agreement of the raters with each other, of all executions and of successes alone."""
    assert joined.ratings is not None
    key = jax.random.key(settings.seed)
    middle = float(np.nanmedian(joined.ratings))  # no coefficient knows of it, float32 does
    ratings = filled(np.nan_to_num(joined.ratings - middle))
    measure = compiled(_agreements, len(ratings), "resamples_n")
    for scope, mine in _scopes(joined):
        there = filled(np.isfinite(joined.ratings) & mine[:, None])
        found = measure(key, ratings, there, level=settings.level, resamples_n=settings.resamples_n)
        for quantity, r in found.items():
            n = int(r.items_n)
            ends = (r.value, r.low, r.high)
            where = ("each other", "ratings", scope, "", OVERALL)
            yield _row(quantity, where, n, int(mine.sum()) - n, ends, None, "", r.status)


def _agreements(key: Any, ratings: Any, valid: Any, *, level: Any, resamples_n: int) -> dict[str, Any]:
    """Every coefficient of the raters' agreement, by name."""
    bootstrap = partial(alpha_bootstrap, key, ratings, valid, level=level, resamples_n=resamples_n)
    alphas = {f"alpha ({scale})": bootstrap(scale=scale) for scale in ("nominal", "ordinal", "interval")}
    iccs = {"ICC(2,1)": icc_2_1(ratings, valid, level=level), "ICC(2,k)": icc_2_k(ratings, valid, level=level)}
    return iccs | alphas


def _with_raters(joined: _Joined, settings: Settings) -> Iterable[AgreementRow]:
    """Rank correlation of every metric with the mean rating, overall and by task."""
    assert joined.ratings is not None
    rated = np.isfinite(joined.ratings)
    mean = np.where(rated, joined.ratings, 0).sum(axis=1) / np.maximum(rated.sum(axis=1), 1)
    mean = np.where(rated.any(axis=1), mean, np.nan)
    for scope, mine in _scopes(joined):
        for task in [OVERALL, *_names(joined.task)]:
            rows = mine & ((joined.task == task) | (task == OVERALL))
            yield from _ranked(joined.metrics, mean, rows, settings, ("mean rating", scope, "", task))


def _with_success(joined: _Joined, tables: Sequence[Table], settings: Settings) -> Iterable[AgreementRow]:
    """AUROC and rank correlation of every metric with success: pooled, by task, by policy, and each policy in each."""
    known = np.array([s is not None for s in joined.success])
    if not known.any():
        raise InputError(
            f"{tables[0].path}: success is known of no execution, expected a column {' or '.join(SUCCESS)} with true "
            "or false; record it, or give ratings=FILE"
        )
    if not known.all():
        joined.notes.append(f"success unknown in {int((~known).sum())} of {known.size} executions; they are left out")
    won = np.array([s is True for s in joined.success])
    tasks, policies = _names(joined.task), _names(joined.policy)
    cells = [("", OVERALL), *(("", t) for t in tasks), *((p, OVERALL) for p in policies)]
    cells += [(p, t) for p in policies for t in tasks]
    for policy, task in dict.fromkeys(cells):
        rows = known & ((joined.policy == policy) | (policy == "")) & ((joined.task == task) | (task == OVERALL))
        if rows.any():
            yield from _ranked(joined.metrics, won, rows, settings, ("success", ALL, policy, task))


def _scopes(joined: _Joined) -> list[tuple[str, np.ndarray]]:
    won = np.array([s is True for s in joined.success])
    everything = (ALL, np.ones(won.size, bool))
    return [everything] if all(s is None for s in joined.success) else [everything, (SUCCESSES, won)]


def _names(column: np.ndarray) -> list[str]:
    """Names in order of appearance, where there are several."""
    names = list(dict.fromkeys(str(v) for v in column if v))
    return names if len(names) > 1 else []


def _ranked(
    metrics: dict[str, np.ndarray],
    truth: np.ndarray,
    rows: np.ndarray,
    settings: Settings,
    where: tuple[str, str, str, str],
) -> Iterable[AgreementRow]:
    """Every metric held against the truth over some rows: AUROC where that is success, Spearman and Kendall.

    ``where``: against, scope, policy, task. Metrics known of the same rows are computed together.
    """
    against, scope, policy, task = where
    success = truth.dtype == bool
    alike: dict[bytes, list[str]] = {}
    for name, values in metrics.items():
        alike.setdefault((rows & np.isfinite(values) & np.isfinite(truth)).tobytes(), []).append(name)
    found: dict[str, list[AgreementRow]] = {}
    for mask, names in alike.items():
        there = np.frombuffer(mask, bool)
        n, lost = int(there.sum()), int(rows.sum() - there.sum())
        # of every metric, those not meant here left at 0: so all calls have one shape
        x = np.stack([order_of(v, there & (name in names)) for name, v in metrics.items()])
        y = there & truth if success else order_of(truth, there)
        columns = (filled(x, 1), filled(y), filled(there))
        taus = n <= KENDALL_N
        made = compiled(_correlations, columns[0].shape[1], "taus")(*columns, level=settings.level, taus=taus)
        made = jax.tree.map(np.asarray, made)
        exact, drawn = _p_values(x[:, there], y[there], n, columns[0].shape[1], settings)
        for name in names:
            k = list(metrics).index(name)
            of = {quantity: jax.tree.map(lambda v, k=k: v[k], r) for quantity, r in made.items()}
            mine = found.setdefault(name, [])
            target = against
            if success:
                target, a = f"success ({int(y.sum())} of {n})", of["AUROC"]
                place = (target, name, scope, policy, task)
                mine.append(_row("AUROC", place, n, lost, (a.value, a.low, a.high), None, "", a.status))
            for quantity in ("Spearman", "Kendall") if taus else ("Spearman",):
                r = of[quantity]
                p, how = r.p, "t" if quantity == "Spearman" else "normal"
                if int(r.status) == Status.OK.code and quantity in exact:
                    p, how = exact[quantity][k], "all orders"
                elif int(r.status) == Status.OK.code and quantity in drawn:
                    p, how = drawn[quantity][k], f"{PERMUTATIONS_N} random orders"
                place = (against, name, scope, policy, task)
                mine.append(_row(quantity, place, n, lost, (r.value, r.low, r.high), p, how, r.status))
    for name in metrics:
        yield from found[name]


def _correlations(x: Any, y: Any, valid: Any, *, level: Any, taus: bool) -> dict[str, Any]:
    """Of every metric x[M]: AUROC where y is success, Spearman, and Kendall if asked."""
    ranks = [("Spearman", spearman), ("Kendall", kendall)][: 1 + taus]
    made = {name: jax.vmap(lambda v, of=of: of(v, jnp.asarray(y, float), valid, level=level))(x) for name, of in ranks}
    return made | ({"AUROC": jax.vmap(lambda v: auroc(v, y, valid, level=level))(x)} if y.dtype == bool else {})


def _p_values(
    x: np.ndarray, y: np.ndarray, n: int, places: int, settings: Settings
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """p of every metric x[M] from all orders where n rows are few, and from random ones where they are not many."""
    if not 3 <= n <= PERMUTED_N or not (x != x[:, :1]).any() or not (y != y[0]).any():
        return {}, {}
    places = EXACT_N if n <= EXACT_N else min(places, filled(np.zeros(PERMUTED_N)).size)
    x, y = (np.pad(v.astype(float), [*[(0, 0)] * (v.ndim - 1), (0, places - n)]) for v in (x, y))
    valid = np.arange(places) < n
    if n <= EXACT_N:
        return {name: np.asarray(p) for name, p in compiled(_all_orders, places)(x, y, valid).items()}, {}
    key = jax.random.key(settings.seed)
    return {}, {"Spearman": np.asarray(_random_orders(key, x, y, valid))}


def _all_orders(x: Any, y: Any, valid: Any) -> dict[str, Any]:
    return {
        "Spearman": jax.lax.map(lambda v: exact_p(v, y, valid, of="spearman").p, x),
        "Kendall": jax.lax.map(lambda v: exact_p(v, y, valid, of="kendall").p, x),
    }


@jax.jit  # runs longer than it compiles
def _random_orders(key: Any, x: Any, y: Any, valid: Any) -> Any:
    return jax.vmap(lambda v: permutation_p(key, v, y, valid, resamples_n=PERMUTATIONS_N).p)(x)


def _row(
    quantity: str,
    where: tuple[str, str, str, str, str],
    n: int,
    left_out: int,
    ends: tuple[Any, Any, Any],
    p: Any,
    p_by: str,
    status: Any,
) -> AgreementRow:
    """``where``: against, metric, scope, policy, task; ``ends``: value, low, high."""

    def known(v: Any) -> float | None:
        return None if v is None or math.isnan(float(v)) else float(v)  # -inf stays: there is no lower bound

    value, low, high = ends
    status_text, by = Status.of(status).value, "" if known(p) is None else p_by
    return AgreementRow(quantity, *where, n, left_out, known(value), known(low), known(high), known(p), by, status_text)
