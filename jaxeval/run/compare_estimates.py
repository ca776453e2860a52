"""The numbers of a comparison: every estimate of every cell in one call on arrays, in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxeval.run.compare_cells import Cell
from jaxeval.stats.bootstrap import paired_bootstrap
from jaxeval.stats.estimate import Estimate, PairCounts, Test
from jaxeval.stats.exact_host import boschloo
from jaxeval.stats.multiplicity import benjamini_hochberg, holm
from jaxeval.stats.paired import (
    decrease_difference,
    decrease_difference_unpaired,
    equivalence,
    mcnemar_exact,
    mcnemar_mid_p,
    no_interaction,
    pooled_difference,
    tango,
)
from jaxeval.stats.planning import episodes_for_difference, pairs_for_difference
from jaxeval.stats.proportions import mantel_haenszel, newcombe, wilson
from jaxeval.types import one_of

CORRECTIONS = {"holm": holm, "bh": benjamini_hochberg}
EXACT_TABLES = 150 * 150
"""Runs of a times runs of b up to which the unpaired test is exact."""


class PairedCells(NamedTuple):
    """Of every cell [C], from its 2x2 counts."""

    difference: Estimate
    bootstrap: Estimate
    exact: Test
    mid_p: Test
    equivalent: Test


def rates(k: Sequence[int], n: Sequence[int], level: float) -> Estimate:
    """k/n of every entry with Wilson's interval."""
    with jax.enable_x64(True):
        return _host(_rates(*_padded((np.asarray(k), np.asarray(n))), level), len(k))


@jax.jit
def _rates(k: Any, n: Any, level: Any) -> Estimate:
    return jax.vmap(lambda k, n: wilson(k, n, level=level))(k, n)


def paired_cells(cells: Sequence[Cell], *, level: float, margin: float, resamples_n: int, seed: int) -> PairedCells:
    """Differences and tests of every cell; those without pairs have counts of 0 and so no data."""
    with jax.enable_x64(True):
        key = jax.random.key(seed)
        counts = _padded(_counts(cells))
        return _host(_paired(key, counts, level, margin, resamples_n=resamples_n), len(cells))


@partial(jax.jit, static_argnames="resamples_n")
def _paired(key: Any, counts: PairCounts, level: Any, margin: Any, *, resamples_n: int) -> PairedCells:
    def one(counts: PairCounts) -> PairedCells:
        return PairedCells(
            tango(counts, level=level),
            paired_bootstrap(key, counts, resamples_n=resamples_n, level=level),  # a cell's draws are its own
            mcnemar_exact(counts),
            mcnemar_mid_p(counts),
            equivalence(counts, margin=margin),
        )

    return jax.vmap(one)(counts)


def unpaired_cells(cells: Sequence[Cell], level: float) -> tuple[Estimate, list[tuple[float, str]]]:
    """Newcombe's difference, p and the test it is of, of every cell, as if no run shared its start with another."""
    k_a, n_a, k_b, n_b = _rates_of(cells)
    with jax.enable_x64(True):
        padded = _padded((k_a, n_a, k_b, n_b))
        intervals = _host(jax.vmap(partial(newcombe, level=level))(*padded), len(cells))
        return intervals, [unpaired_p(*map(int, row)) for row in zip(k_a, n_a, k_b, n_b, strict=True)]


def unpaired_p(k_a: int, n_a: int, k_b: int, n_b: int) -> tuple[float, str]:
    """Boschloo's p, and beyond EXACT_TABLES the score test's (z² is Pearson's chi-square without correction).

    z = (p_a - p_b) / sqrt(p (1 - p) (1 / n_a + 1 / n_b)), p of both together. Boschloo's test takes minutes for
    thousands of runs, where the two agree.
    """
    if n_a * n_b <= EXACT_TABLES:
        return float(boschloo(k_a, n_a, k_b, n_b).p), "Boschloo"
    p = (k_a + k_b) / (n_a + n_b)
    spread = math.sqrt(p * (1 - p) * (1 / n_a + 1 / n_b))
    return (math.erfc(abs(k_a / n_a - k_b / n_b) / spread / math.sqrt(2)) if spread else 1.0), "score"


def adjusted(p: Sequence[float], correction: str) -> np.ndarray:
    """p-values corrected over all that are known; NaN stays NaN."""
    with jax.enable_x64(True):
        known = np.isfinite(np.asarray(p, float))
        corrected = np.asarray(CORRECTIONS[correction](*_padded((np.where(known, p, 1.0), known))))
        return np.where(known, corrected[: len(known)], np.nan)


def multiplier(p_adjusted: np.ndarray, correction: str, alpha: float) -> float:
    """What the correction would multiply the next p by that fell to alpha, beside those that are there already.

    Of m that are known, R at most alpha: the next in order is the (R + 1)-th smallest, which Holm multiplies by m - R
    and Benjamini and Hochberg by m / (R + 1). At least 1.
    """
    one_of("correction", correction, CORRECTIONS)
    known = p_adjusted[np.isfinite(p_adjusted)]
    m, seen = len(known), int((known <= alpha).sum())
    return max(1.0, float(m - seen) if correction == "holm" else m / (seen + 1))


def pooled(cells: Sequence[Cell], level: float) -> tuple[Estimate, str]:
    """One difference over strata, and how it was had: over the paired cells, or over all where none is paired."""
    paired = [c for c in cells if c.paired]
    with jax.enable_x64(True):
        if paired:
            return _host(_pooled(_padded(_counts(paired)), level)), "pairs pooled over strata (score)"
        return _host(_mantel_haenszel(*_padded(_rates_of(cells)), level)), "Mantel-Haenszel (unpaired)"


_pooled = jax.jit(lambda counts, level: pooled_difference(counts, level=level))
_mantel_haenszel = jax.jit(lambda k_a, n_a, k_b, n_b, level: mantel_haenszel(k_a, n_a, k_b, n_b, level=level))


def _padded(counts: Any) -> Any:
    """Counts [C] filled up with zeros to a power of two, 8 at least, so that each size compiles once."""
    return jax.tree.map(lambda x: np.pad(x, (0, max(8, 1 << (len(x) - 1).bit_length()) - len(x))), counts)


def change(first: Cell, last: Cell, level: float) -> tuple[Estimate, float]:
    """How much the difference a - b grows from the first cell to the last, and p of no change (NaN: not tested).

    Positive: b loses more than a.
    """
    with jax.enable_x64(True):
        if first.paired and last.paired:
            estimate, test = _host(_change(last.counts, first.counts, level))
            return estimate, float(test.p)
        k_a, n_a = np.array([last.a.k, first.a.k]), np.array([len(last.a.rows), len(first.a.rows)])
        k_b, n_b = np.array([last.b.k, first.b.k]), np.array([len(last.b.rows), len(first.b.rows)])
        return _host(_change_unpaired(k_a, n_a, k_b, n_b, level)), float("nan")


@jax.jit
def _change(before: PairCounts, after: PairCounts, level: Any) -> tuple[Estimate, Test]:
    return decrease_difference(before, after, level=level), no_interaction(before, after)


@jax.jit
def _change_unpaired(k_a: Any, n_a: Any, k_b: Any, n_b: Any, level: Any) -> Estimate:
    return decrease_difference_unpaired(k_a, n_a, k_b, n_b, level=level)


def more_needed(
    row: Mapping[str, Any], *, power: float, level: float, multiplier: float = 1.0
) -> tuple[int | None, str]:
    """How many more pairs (or episodes of each) would tell a difference as large as the one seen, and of what.

    ``multiplier``: what the correction over cells multiplies p by; the planned level is divided by it. An exact test
    needs 1 / |d| more than the plan. None where no number would do.
    """
    alpha = (1 - level) / multiplier
    with jax.enable_x64(True):
        if row["pairing"] == "paired":
            n, what = row["pairs_n"], "pairs"
            plan = pairs_for_difference(row["a_only"] / n, row["b_only"] / n, power=power, level=1 - alpha)
        else:
            n, what = max(row["a_n"], row["b_n"]), "episodes of each"
            plan = episodes_for_difference(row["a_rate"], row["b_rate"], power=power, level=1 - alpha)
        needed = float(plan.n) + 1 / max(abs(row["difference"]), 1e-9)
    return (None if not needed > n else math.ceil(needed) - n), what


def _rates_of(cells: Sequence[Cell]) -> tuple[np.ndarray, ...]:
    """k and n of a, k and n of b, [C] each."""
    counts = [(c.a.k, len(c.a.rows), c.b.k, len(c.b.rows)) for c in cells]
    return tuple(np.array(counts).T)


def _counts(cells: Sequence[Cell]) -> PairCounts:
    """2x2 counts of every cell, [C] each."""
    return PairCounts(*(np.array(x) for x in zip(*(c.counts for c in cells), strict=True)))


def _host(tree: Any, n: int | None = None) -> Any:
    """The same with numpy arrays, of the first n cells."""
    return jax.tree.map(lambda x: np.asarray(x)[:n] if n is not None else np.asarray(x), tree)


def not_distinguishable(more: int | None, what: str) -> dict[str, Any]:
    """The verdict on a difference that was not found, with how many more pairs or runs would tell, where known."""
    if more is None:
        return {"verdict": "not distinguishable"}
    digits = max(0, len(str(more)) - 2)  # two significant ones are kept
    return {"verdict": f"not distinguishable: about {round(more, -digits):,} more {what} would tell", "more_n": more}
