"""The numbers of a comparison of values: means, intervals and tests of every cell, in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import jax
import numpy as np

from jaxeval.run import compare_seeds
from jaxeval.run.compare_cells import Cell, Runs
from jaxeval.stats.bootstrap import bootstrap, stratified
from jaxeval.stats.estimate import Estimate, Status
from jaxeval.stats.proportions import normal_quantile
from jaxeval.stats.rank_tests_host import rank_sum, signed_rank
from jaxeval.stats.values import Mean, mean_difference, mean_of, within
from jaxeval.stats.values_host import Effect, centred, d_z, differences, hedges_g

Row = dict[str, Any]
Columns = Sequence[np.ndarray]
QUARTERS = (25, 50, 75)


def values_of(runs: Runs) -> np.ndarray:
    """The numbers of a policy's runs that count."""
    return np.array([r[runs.success] for r in runs.rows], float)


def differences_of(cell: Cell) -> np.ndarray:
    """a - b of every pair."""
    outcomes = np.array(cell.outcomes, float).reshape(-1, 2)
    return differences(outcomes[:, 0], outcomes[:, 1])


def compared(
    cells: Sequence[Cell], *, level: float, margin: float | None, resamples_n: int, seed: int
) -> list[dict[str, Any]]:
    """What each cell's two sides are, their difference and its tests: keys as in the table of the comparison."""
    sides = [values_of(runs) for cell in cells for runs in (cell.a, cell.b)]
    pairs = [differences_of(c) if c.paired else np.zeros(0) for c in cells]
    means = _means([*sides, *pairs], level)
    one, paired = means[: len(sides)], means[len(sides) :]
    apart = [k for k, c in enumerate(cells) if not c.paired]
    of_apart = dict(zip(apart, _differences([(sides[2 * k], sides[2 * k + 1]) for k in apart], level), strict=True))
    wide = _bootstraps(cells, sides, pairs, level=level, resamples_n=resamples_n, seed=seed)
    out = []
    for k, cell in enumerate(cells):
        a, b, d = sides[2 * k], sides[2 * k + 1], pairs[k]
        row = _side("a", cell.a, a, one[2 * k]) | _side("b", cell.b, b, one[2 * k + 1])
        mean = paired[k] if cell.paired else of_apart[k]
        row |= _paired(d, mean, level) if cell.paired else _unpaired(a, b, mean, level)
        row |= {
            "difference": _known(mean.value), "low": _known(mean.low), "high": _known(mean.high),
            "bootstrap_low": wide[k][0], "bootstrap_high": wide[k][1], "df": _known(mean.df),
            "equivalence_p": None if margin is None else _known(_within(mean, margin)),
            "status": Status.of(mean.status).value,
        }  # fmt: skip
        if compare_seeds.several_seeds(cell) and len(a) and len(b):
            row |= _over_seeds(cell, level, margin)
        out.append(row)
    return out


def _side(side: str, runs: Runs, x: np.ndarray, mean: Mean) -> Row:
    """What one policy's values in a cell are, and how many were left out."""
    low, middle, high = map(_known, _quartiles(x))
    facts = {
        "n": len(x), "mean": _known(mean.value), "low": _known(mean.low), "high": _known(mean.high),
        "sd": _known(mean.error) and float(mean.error) * math.sqrt(len(x)),
        "median": middle, "q1": low, "q3": high,
        "recorded_n": len(runs.all_rows), "excluded_n": sum(runs.excluded.values()), "unknown_n": runs.unknown_n,
    }  # fmt: skip
    return {f"{side}_{key}": value for key, value in facts.items()}


def _paired(d: np.ndarray, mean: Mean, level: float) -> Row:
    """Tests and effects of pairs; where differences do not vary, the rank test stands in for the t test."""
    ranks, effect = signed_rank(d), d_z(d, level=level)
    test = f"{'exact ' if ranks.exact else ''}signed-rank"
    return {
        "pairing": "paired", "pairs_n": len(d), "median_difference": _known(_quartiles(d)[1]), "interval": "paired t",
        **_tests(mean, "paired t", _known(ranks.p), test),
        **_effect(effect, "d_z"), "superiority": _known(ranks.superiority), "rank_biserial": _known(ranks.effect),
    }  # fmt: skip


def _unpaired(a: np.ndarray, b: np.ndarray, mean: Mean, level: float) -> Row:
    """Tests and effects of runs that share no start."""
    ranks, effect = rank_sum(a, b), hedges_g(a, b, level=level)
    return {
        "pairing": "unpaired", "pairs_n": 0, "interval": "Welch t",
        "median_difference": _known(_quartiles(a)[1] - _quartiles(b)[1]),
        **_tests(mean, "Welch t", _known(ranks.p), f"{'exact ' if ranks.exact else ''}Mann-Whitney"),
        **_effect(effect, "Hedges' g"), "superiority": _known(ranks.superiority), "rank_biserial": _known(ranks.effect),
    }  # fmt: skip


def _tests(mean: Mean, name: str, rank_p: float | None, rank_test: str) -> Row:
    constant = int(mean.status) == Status.CONSTANT.code
    p, test = (rank_p, rank_test) if constant else (_known(mean.p), name)
    return {"p": p, "test": test if p is not None else None, "rank_p": rank_p, "rank_test": rank_test}


def _effect(effect: Effect, name: str) -> Row:
    """A standardised difference; none where it cannot be had."""
    value, low, high = (_known(x) for x in effect[:3])
    return {"effect": value, "effect_low": low, "effect_high": high, "effect_of": name if value is not None else None}


def _over_seeds(cell: Cell, level: float, margin: float | None) -> Row:
    """What replaces interval and tests where several training seeds ran: a start enters more than once."""
    varied = compare_seeds.varied_means(compare_seeds.cell_strata(cell))
    low, high = varied.interval(level, math.inf)
    row: Row = {
        "low": low, "high": high, "interval": "seeds and starts (t)", "df": None, "p": None, "test": None,
        "rank_p": None, "rank_test": None, "effect_low": None, "effect_high": None,
        "seeds_n": max(len(seeds) for seeds in compare_seeds.seeds_of(cell)), "equivalence_p": None,
    }  # fmt: skip
    if not varied.varies:
        return row | {"status": Status.CONSTANT.value}
    return row | {
        "seeds_p": varied.p(), "equivalence_p": None if margin is None else varied.equivalence_p(margin),
        "wanting": varied.wanting(), "status": Status.OK.value,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------- arrays for one call


def _means(columns: Columns, level: float) -> list[Mean]:
    """Mean of every column."""
    with jax.enable_x64(True):
        means = _mean_of(*_padded(columns), level)
    return _each(means, len(columns))


def _differences(columns: Sequence[tuple[np.ndarray, np.ndarray]], level: float) -> list[Mean]:
    """Difference of means of every pair of columns, about one centre."""
    if not columns:
        return []
    about = [centred(a, b)[1] for a, b in columns]
    with jax.enable_x64(True):
        means = _mean_difference(*_padded([a for a, _ in about]), *_padded([b for _, b in about]), level)
    return _each(means, len(columns))


_mean_of = jax.jit(lambda x, valid, level: jax.vmap(partial(mean_of, level=level))(x, valid))
_mean_difference = jax.jit(
    lambda a, valid_a, b, valid_b, level: jax.vmap(partial(mean_difference, level=level))(a, valid_a, b, valid_b)
)
_within_margin = jax.jit(lambda made, margin: within(made, margin=margin).p)


def _within(mean: Mean, margin: float) -> float:
    with jax.enable_x64(True):
        return float(_within_margin(mean, margin))


def _padded(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Columns [C, N] filled up to powers of two, so that each size compiles once; and which entries are there."""
    size = max(8, 1 << (len(columns) - 1).bit_length()), _size(max(map(len, columns)))
    x, valid = np.zeros(size), np.zeros(size, bool)
    for k, column in enumerate(columns):
        x[k, : len(column)], valid[k, : len(column)] = column, True
    return x, valid


def _size(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length()) if n else 16


def _each(means: Mean, n: int) -> list[Mean]:
    columns = [np.asarray(x) for x in means]
    return [Mean(*(c[k] for c in columns)) for k in range(n)]


def _quartiles(x: np.ndarray) -> np.ndarray:
    """Lower quartile, median, upper quartile; NaN where there is no value."""
    if not np.isfinite(x).all() or not len(x):
        return np.full(3, np.nan)
    unit = float(np.abs(x).max()) or 1.0
    return np.percentile(x / unit, QUARTERS) * unit  # half-way between the largest floats there is none


def _mean(x: np.ndarray) -> float:
    """The sum of shares: a sum of values near the largest float would be infinite."""
    return float((x / len(x)).sum())


def _known(x: Any) -> float | None:
    return None if x is None or not math.isfinite(x) else float(x)


# -------------------------------------------------------------------------------------------------------- the bootstrap


def _bootstraps(
    cells: Sequence[Cell], sides: Columns, pairs: Columns, *, level: float, resamples_n: int, seed: int
) -> list[tuple[float | None, float | None]]:
    """Percentile interval of every difference: pairs, or each side's runs, drawn again; seeds too where there are many.

    A mean of the drawn is a sum of weights times values less their mean, over n. Cells of one size share their draws.
    """
    out: list[tuple[float | None, float | None]] = [(None, None)] * len(cells)
    several = [k for k, c in enumerate(cells) if compare_seeds.several_seeds(c) and c.a.rows and c.b.rows]
    if crossed := [k for k in several if cells[k].paired]:
        wide = compare_seeds.crossed_bootstrap(
            [cells[k] for k in crossed], level=level, resamples_n=resamples_n, seed=seed
        )
        out = [dict(zip(crossed, wide, strict=True)).get(k, drawn) for k, drawn in enumerate(out)]
    parts: dict[int, list[np.ndarray]] = {}
    for k, cell in enumerate(cells):
        of = [pairs[k]] if cell.paired else [sides[2 * k], -sides[2 * k + 1]]
        if k not in several and min(map(len, of)) > 1 and all(np.isfinite(x).all() for x in of):
            parts[k] = of

    def alike(k: int) -> tuple[int, ...]:
        return tuple(map(len, parts[k]))

    with jax.enable_x64(True):
        key = jax.random.key(seed)
        for sizes, group in groupby(sorted(parts, key=alike), key=alike):
            found, n = list(group), _size(sum(sizes))
            weight = np.zeros((max(8, 1 << (len(found) - 1).bit_length()), n))
            for i, k in enumerate(found):
                weight[i, : sum(sizes)] = np.concatenate([(x - _mean(x)) / len(x) for x in parts[k]])
            stratum = np.zeros(n, np.int32)
            stratum[: sum(sizes)] = np.repeat(np.arange(len(sizes)), sizes)
            drawn = _drawn(key, weight, stratum, np.arange(n) < sum(sizes), level, resamples_n=resamples_n)
            for i, k in enumerate(found):
                whole = sum(_mean(x) for x in parts[k])
                out[k] = _known(whole + float(drawn.low[i])), _known(whole + float(drawn.high[i]))
    return out


@partial(jax.jit, static_argnames="resamples_n")
def _drawn(key: Any, weight: Any, stratum: Any, valid: Any, level: Any, *, resamples_n: int) -> Estimate:
    """Of cells [C]; weight [C, N]."""
    again = stratified(stratum, valid=valid)
    return bootstrap(
        key, lambda times: weight @ times.astype(weight.dtype), again, resamples_n=resamples_n, level=level
    )


# ---------------------------------------------------------------------------------------------------------- planning


def more_needed(
    row: Mapping[str, Any], *, power: float, level: float, multiplier: float = 1.0
) -> tuple[int | None, str]:
    """How many more pairs (or episodes of each) would tell a difference as large as the one seen, and of what.

    n = (z_a + z_b)² / d_z² + z_a² / 2 for pairs, n = 2 (z_a + z_b)² / g² + z_a² / 4 a side, z_a of the level that the
    correction over cells leaves (``multiplier``) and z_b of the power. None where no number would do. Where pairs all
    differ alike, as many as the rank test needs.
    Source: Guenther 1981, Am. Stat. 35:243.
    """
    alpha = (1 - level) / multiplier
    paired = row["pairing"] == "paired"
    n, what = (row["pairs_n"], "pairs") if paired else (max(row["a_n"], row["b_n"]), "episodes of each")
    if row["effect"] is None:
        needed = math.ceil(1 - math.log2(alpha)) if paired and row["difference"] else n
        return (needed - n if needed > n else None), what
    with jax.enable_x64(True):
        z_a, z_b = float(normal_quantile(1 - alpha)), float(normal_quantile(2 * power - 1))
    squared = ((z_a + z_b) / max(abs(row["effect"]), 1e-9)) ** 2
    needed = squared + z_a**2 / 2 if paired else 2 * squared + z_a**2 / 4
    return (None if not n < needed < 1e9 else math.ceil(needed) - n), what
