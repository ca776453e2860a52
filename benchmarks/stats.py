"""Statistics beside what one would use instead. `python benchmarks/stats.py out=DIR`.

Every pair gets the same input and its agreement is asserted before anything is timed. pingouin is GPL and no dependency
of this project: where it is not installed, two-way analysis of variance by pandas takes its place, and a sentence says
how to install it. `quick=true` takes fewer resamples and items.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.stats
from record import arguments, median_s, row, write

from jaxeval.stats.aggregate import interquartile_mean, interval
from jaxeval.stats.agreement import icc_2_1
from jaxeval.stats.bootstrap import paired_bootstrap
from jaxeval.stats.estimate import PairCounts

KEY = jax.random.key(0)
Ends = tuple[float, float]


def agree(what: str, ours: Any, theirs: Any, within: Any) -> None:
    """SystemExit unless ours and theirs differ by `within` at most."""
    if not np.all(np.abs(np.subtract(ours, theirs)) <= within):
        sys.exit(f"benchmark: {what}: ours {np.asarray(ours)}, theirs {np.asarray(theirs)}, more than {within} apart")


# ------------------------------------------------------------------------------------------------- matched pairs


def scipy_paired(counts: np.ndarray, resamples_n: int) -> Ends:
    """Ends of the same interval by scipy, which draws indices of the outcomes."""
    a, b = np.repeat([1.0, 1, 0, 0], counts), np.repeat([1.0, 0, 1, 0], counts)
    found = scipy.stats.bootstrap(
        (a, b),
        lambda a, b, axis: a.mean(axis) - b.mean(axis),
        paired=True,
        vectorized=True,
        n_resamples=resamples_n,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return found.confidence_interval.low, found.confidence_interval.high


def pairs(resamples_n: int) -> list[dict[str, Any]]:
    """One table, and 104 of 200 pairs each."""
    run = jax.jit(jax.vmap(partial(paired_bootstrap, resamples_n=resamples_n)))
    rng = np.random.default_rng(0)
    cells = np.array([[42, 42, 11, 5]]), rng.multinomial(200, rng.dirichlet([4, 3, 1, 2], size=104))
    rows = []
    for work, tables, repeats_n in (("paired bootstrap", cells[0], 15), ("104 pairings", cells[1], 5)):
        keys, counts = jax.random.split(KEY, len(tables)), PairCounts(*jnp.asarray(tables.T))

        def peer(tables: np.ndarray = tables) -> list[Ends]:
            return [scipy_paired(table, resamples_n) for table in tables]

        n = tables.sum(1)
        found = run(keys, counts)
        agree(work, np.stack([found.low, found.high], 1), peer(), 2.01 / n[:, None])  # two places of the lattice
        rows.append(
            row(
                work,
                f"{len(tables)} x {n[0]} pairs, {resamples_n} resamples",
                median_s(lambda keys=keys, counts=counts: run(keys, counts), repeats_n=repeats_n),
                peer="scipy.stats.bootstrap",
                peer_s=median_s(peer, repeats_n=1 if len(tables) > 1 else repeats_n),
                unit="resamples/s",
                amount=len(tables) * resamples_n,
            )
        )
    return rows


# ------------------------------------------------------------------------------------------------ aggregates


def published_interval(scores: np.ndarray, resamples_n: int) -> Ends:
    """Stratified bootstrap of the interquartile mean as published: indices, a loop, scipy's trimmed mean."""
    rng = np.random.default_rng(0)
    runs_n, tasks_n = scores.shape
    tasks = np.arange(tasks_n)
    found = np.empty(resamples_n)
    for i in range(resamples_n):
        found[i] = scipy.stats.trim_mean(scores[rng.integers(0, runs_n, (runs_n, tasks_n)), tasks].ravel(), 0.25)
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def aggregate(resamples_n: int) -> dict[str, Any]:
    """The interquartile mean of ten runs of 26 tasks and its interval."""
    scores = np.random.default_rng(1).gamma(1.5, 0.6, size=(10, 26)).astype(np.float32)
    run = jax.jit(lambda key, x: interval(key, interquartile_mean, x, jnp.isfinite(x), resamples_n=resamples_n))
    device = jnp.asarray(scores)
    found, peer = run(KEY, device), partial(published_interval, scores, resamples_n)
    low, high = peer()
    agree("interquartile mean", found.value, scipy.stats.trim_mean(scores.ravel(), 0.25), 1e-5)
    agree("interquartile mean", (found.low, found.high), (low, high), 0.04 * (high - low))
    return row(
        "interquartile mean",
        f"10 x 26, {resamples_n} resamples",
        median_s(lambda: run(KEY, device)),
        peer="NumPy loop, trim_mean",
        peer_s=median_s(peer, repeats_n=1, warm_up_n=0),
        unit="resamples/s",
        amount=resamples_n,
    )


# -------------------------------------------------------------------------------------------------- agreement


def pandas_icc(table: pd.DataFrame) -> Any:
    """ICC(2,1) from the mean squares of a two-way analysis of variance."""
    n, k = table["item"].nunique(), table["rater"].nunique()
    total = table["rating"].mean()
    items, raters = (np.asarray(table.groupby(of)["rating"].mean()) - total for of in ("item", "rater"))
    between, columns = k * np.sum(items**2), n * np.sum(raters**2)
    rest = ((table["rating"] - total) ** 2).sum() - between - columns
    msr, msc, mse = between / (n - 1), columns / (k - 1), rest / ((n - 1) * (k - 1))
    return (msr - mse) / (msr + (k - 1) * mse + k * (msc - mse) / n)


def icc_peer() -> tuple[str, Callable[[pd.DataFrame], Any]]:
    """pingouin where it is installed."""
    if find_spec("pingouin") is None:
        print("stats: pingouin is not installed; pip install pingouin (GPL) to time it")
        return "two-way ANOVA, pandas", pandas_icc
    import pingouin  # pyright: ignore[reportMissingImports]

    def run(table: pd.DataFrame) -> float:
        found = pingouin.intraclass_corr(data=table, targets="item", raters="rater", ratings="rating")
        return float(found.set_index("Type")["ICC"].filter(regex=r"^ICC(2|\(A,1\))$").iloc[0])

    return "pingouin", run


def agreement(items_n: int) -> dict[str, Any]:
    """Two raters of many items."""
    rng = np.random.default_rng(2)
    item = rng.normal(size=(items_n, 1))
    ratings = (item + 0.2 * np.arange(2) + 0.5 * rng.normal(size=(items_n, 2))).astype(np.float32)
    table = pd.DataFrame(
        {
            "item": np.repeat(np.arange(items_n), 2),
            "rater": np.tile(np.arange(2), items_n),
            "rating": ratings.reshape(-1).astype(float),
        }
    )
    name, peer = icc_peer()
    run, device = jax.jit(icc_2_1), jnp.asarray(ratings)
    agree("ICC", run(device).value, peer(table), 1e-4)
    return row(
        "ICC",
        f"{items_n} items x 2 raters",
        median_s(lambda: run(device), repeats_n=15),
        peer=name,
        peer_s=median_s(lambda: peer(table)),
        unit="items/s",
        amount=items_n,
    )


def main(argv: list[str]) -> None:
    """Measure, print, write `out`/stats.json."""
    settings = arguments(argv, out="outputs/benchmarks", quick="false")
    quick = settings["quick"] == "true"
    rows = pairs(2000 if quick else 20_000)
    rows += [aggregate(2000 if quick else 50_000), agreement(6000 if quick else 60_000)]
    write(Path(settings["out"]), "stats", rows)


if __name__ == "__main__":
    main(sys.argv[1:])
