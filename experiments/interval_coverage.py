"""How often the intervals of jaxeval.stats hold the truth, counted exactly over all outcomes: at worst, and on average.

    python experiments/interval_coverage.py out=outputs/interval_coverage

For n = 10, 25 and 100: rates (Wilson, Clopper-Pearson, Agresti-Coull) over true rates .001 apart; differences of
independent rates (Newcombe) over pairs of rates .01 apart; differences on matched pairs (Tango, the percentile
bootstrap) over pairs of shares "a alone", "b alone". Their change between two conditions is counted for n = 10 and 25
over fewer shares. Differences pooled over four strata are simulated. `resamples` is how many the bootstrap draws,
`draws` how many evaluations are simulated. The nominal level is 95 %.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from record import SEED, Record, arguments, keep_compiled_code
from scipy.special import gammaln, xlogy

from jaxeval.report.figures import OKABE_ITO
from jaxeval.stats.bootstrap import paired_bootstrap
from jaxeval.stats.estimate import Estimate, PairCounts
from jaxeval.stats.paired import decrease_difference, pooled_difference, tango
from jaxeval.stats.proportions import agresti_coull, clopper_pearson, mantel_haenszel, newcombe, wilson

SOURCE = (
    "coverage is the sum of the probabilities of all outcomes whose interval holds the truth; "
    "Brown, Cai & DasGupta 2001, Statistical Science 16:101"
)
SIZES = (10, 25, 100)
RATES = np.arange(1, 1000) / 1000
RATES_APART = np.arange(1, 100) / 100
SHARES = np.concatenate([[0.001, 0.002, 0.005], np.arange(1, 50) / 50])
FEW_SHARES = ((0.02, 0.02), (0.1, 0.1), (0.3, 0.3), (0.05, 0.0), (0.2, 0.05), (0.5, 0.1), (0.8, 0.1), (0.1, 0.4))
STRATA_RATES = np.array([0.9, 0.5, 0.95, 0.1])  # of a
STRATA_AGAINST = np.array([0.0, 0.2, 0.02, 0.05])  # pairs that b alone wins, differing as tasks do
UP_TO_MOST = jnp.arange(SIZES[-1] + 1)  # successes; more than n have no interval and are cut off
CHUNK = 64  # outcomes at a time
TIE = 1e-6  # an interval that ends at the truth holds it, whatever float32 makes of both
ONE_RATE: dict[str, Callable[..., Estimate]] = {
    "Wilson": wilson,
    "Clopper-Pearson": clopper_pearson,
    "Agresti-Coull": agresti_coull,
}


def main(out: str, resamples: str, draws: str) -> None:
    """Count everything, write `result.json` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Coverage of 95 % intervals", SOURCE, out)
    curves: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}
    for name, method in ONE_RATE.items():
        run = jax.jit(jax.vmap(method, (0, None)))
        for n in SIZES:
            rates, shares = of_rates(run, n)
            worst = int(np.argmin(shares))
            record.add(f"{name} n = {n}, least", float(shares[worst]), n=n, note=f"p = {rates[worst]:.4f}")
            even = np.isin(rates, RATES)
            record.add(f"{name} n = {n}, mean", shares[even].mean(), n=n, note=f"of {len(RATES)}")
            curves[name, n] = rates, shares
    rates, shares = curves["Wilson", 10]
    at = float(shares[np.searchsorted(rates, 0.05)])
    record.add("Wilson at p = .05, n = 10", at, n=10, note="P(X <= 1), by hand .9139")
    run = jax.jit(jax.vmap(jax.vmap(newcombe, (None, None, 0, None)), (0, None, None, None)))
    for n in SIZES:
        tell(record, "Newcombe", n, *of_two_rates(run, n))
    for name, method in paired_methods(int(resamples)).items():
        run = jax.jit(jax.vmap(method))
        for n in SIZES:
            a_only, b_only = outcomes(n)
            low, high = table(run, n)
            shares, where, expected = of_shares(low, high, n)
            tell(record, name, n, shares, where)
            some = np.flatnonzero(expected >= 5)
            worst = some[np.argmin(shares[some])]
            note = f"{where[worst]}; 5 pairs or more"
            record.add(f"{name} n = {n}, least, 5 expected to differ", float(shares[worst]), n=n, note=note)
            s = np.arange(1, 200) / 200
            by_share = [covered(low, high, chances(a_only, b_only, n, 5 * p / 6, p / 6), 2 * p / 3) for p in s]
            curves[name, n] = s, np.array(by_share)
    for n in SIZES[:2]:
        tell(record, "decrease_difference", n, *of_changes(n))
    for n in SIZES:
        for name, shares, names in simulated(n, int(draws)):
            tell(record, name, n, shares, names)
    record.add_figure("interval_coverage.png", figure(curves))
    record.finish()


def tell(record: Record, name: str, n: int, shares: np.ndarray, where: list[str]) -> None:
    """Two rows: coverage at worst, and where; on average over what was tried."""
    worst = int(np.argmin(shares))
    record.add(f"{name} n = {n}, least", float(shares[worst]), n=n, note=where[worst])
    record.add(f"{name} n = {n}, mean", shares.mean(), n=n, note=f"of {len(shares)}")


def covered(low: np.ndarray, high: np.ndarray, chance: np.ndarray, truth: float) -> float:
    """Probability that the interval holds the truth."""
    return float(chance[(low <= truth + TIE) & (truth - TIE <= high)].sum())


def binomial(n: int, p: np.ndarray) -> np.ndarray:
    """P(X = k) [n + 1, P]."""
    k = np.arange(n + 1)[:, None]
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.exp(ways + xlogy(k, p) + xlogy(n - k, 1 - p))


# ----------------------------------------------------------------------------------------------------- independent


def of_rates(run: Callable[..., Estimate], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rates and the coverage at each: at RATES, and just beyond every end of an interval, where the least must lie."""
    found = run(UP_TO_MOST, n)
    low, high = (np.asarray(x, float)[: n + 1, None] for x in (found.low, found.high))
    beyond = np.concatenate([low[:, 0] - 2 * TIE, high[:, 0] + 2 * TIE])
    rates = np.unique(np.concatenate([RATES, beyond[(beyond > 0) & (beyond < 1)]]))
    inside = (low <= rates + TIE) & (high >= rates - TIE)
    return rates, (binomial(n, rates) * inside).sum(axis=0)


def of_two_rates(run: Callable[..., Estimate], n: int) -> tuple[np.ndarray, list[str]]:
    """Coverage of Newcombe's interval at all p_a >= p_b of RATES_APART; the other half is its mirror image."""
    found = run(UP_TO_MOST, n, UP_TO_MOST, n)
    low, high = (np.asarray(x)[: n + 1, : n + 1] for x in (found.low, found.high))
    chance = binomial(n, RATES_APART)
    shares, where = [], []
    for d in range(len(RATES_APART)):
        truth = d / 100
        inside = ((low <= truth + TIE) & (truth - TIE <= high)).astype(float)
        a, b = chance[:, d:], chance[:, : len(RATES_APART) - d]
        shares += list(((inside @ b) * a).sum(axis=0))
        where += [f"p = {p + truth:.2f}, {p:.2f}" for p in RATES_APART[: len(RATES_APART) - d]]
    return np.array(shares), where


# ---------------------------------------------------------------------------------------------------- matched pairs


def outcomes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """All (a_only, b_only) of n pairs."""
    a_only, b_only = np.divmod(np.arange((n + 1) ** 2), n + 1)
    possible = a_only + b_only <= n
    return a_only[possible], b_only[possible]


def chances(a_only: np.ndarray, b_only: np.ndarray, n: int, p_a_only: float, p_b_only: float) -> np.ndarray:
    """Probability of each outcome."""
    rest = n - a_only - b_only
    ways = gammaln(n + 1) - gammaln(a_only + 1) - gammaln(b_only + 1) - gammaln(rest + 1)
    neither = max(1 - p_a_only - p_b_only, 0.0)
    return np.exp(ways + xlogy(a_only, p_a_only) + xlogy(b_only, p_b_only) + xlogy(rest, neither))


def paired_methods(resamples_n: int) -> dict[str, Callable[[PairCounts], Estimate]]:
    key = jax.random.key(SEED)
    return {
        "Tango": tango,
        "paired bootstrap": lambda counts: paired_bootstrap(key, counts, resamples_n=resamples_n),
    }


def table(run: Callable[[PairCounts], Estimate], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of each outcome: of those where a wins at least as often, and mirrored for the rest."""
    a_only, b_only = outcomes(n)
    won = a_only >= b_only
    a, b = a_only[won], b_only[won]
    more = -len(a) % CHUNK
    cells = np.stack([n - a - b, a, b, np.zeros_like(a)])
    chunks = np.split(np.pad(cells, ((0, 0), (0, more)), mode="edge"), (len(a) + more) // CHUNK, axis=1)
    ends = [(found.low, found.high) for found in (run(PairCounts(*jnp.asarray(chunk))) for chunk in chunks)]
    found_low, found_high = np.concatenate(ends, axis=1)[:, : len(a)]
    low, high = np.full((n + 1, n + 1), np.nan), np.full((n + 1, n + 1), np.nan)
    low[a, b], high[a, b] = found_low, found_high
    low[b, a], high[b, a] = -found_high, -found_low
    return low[a_only, b_only], high[a_only, b_only]


def of_shares(low: np.ndarray, high: np.ndarray, n: int) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Coverage at all shares (a alone >= b alone) that leave room for one another; how many pairs then differ."""
    a_only, b_only = outcomes(n)
    pairs = [(a, b) for a in SHARES for b in (0.0, *SHARES) if b <= a and a + b <= 1 + 1e-9]
    shares = [covered(low, high, chances(a_only, b_only, n, a, b), a - b) for a, b in pairs]
    names = [f"a alone {a:.3f}, b alone {b:.3f}" for a, b in pairs]
    return np.array(shares), names, np.array([n * (a + b) for a, b in pairs])


def of_changes(n: int) -> tuple[np.ndarray, list[str]]:
    """Coverage of `decrease_difference` at all pairs of FEW_SHARES, one for each condition."""
    a_only, b_only = (jnp.asarray(x) for x in outcomes(n))
    over = jax.vmap(decrease_difference, (None, 0))
    cells = PairCounts(n - a_only - b_only, a_only, b_only, jnp.zeros_like(a_only))
    found = jax.jit(lambda cells: jax.lax.map(lambda one: over(one, cells), cells))(cells)
    low, high = np.asarray(found.low), np.asarray(found.high)
    chance = [chances(*outcomes(n), n, *p) for p in FEW_SHARES]
    shares, where = [], []
    for i, p in enumerate(FEW_SHARES):
        for j, q in enumerate(FEW_SHARES):
            truth = (p[0] - p[1]) - (q[0] - q[1])
            inside = (low <= truth + TIE) & (truth - TIE <= high)
            shares.append(float(chance[i] @ inside @ chance[j]))
            where.append(f"a, b alone {p[0]}, {p[1]} then {q[0]}, {q[1]}")
    return np.array(shares), where


# ---------------------------------------------------------------------------------------------------- pooled strata


def simulated(n: int, draws_n: int) -> list[tuple[str, np.ndarray, list[str]]]:
    """Coverage of the two pooled differences with n episodes in each of four strata of different rates."""
    rng = np.random.default_rng(SEED)
    mantel, pooled, names = [], [], []
    run_mantel = jax.jit(jax.vmap(lambda a, b: mantel_haenszel(a, jnp.full(4, n), b, jnp.full(4, n))))
    run_pooled = jax.jit(
        jax.vmap(lambda a, b, rest: pooled_difference(PairCounts(rest, a, b, jnp.zeros(4, jnp.int32))))
    )
    for truth in (0.0, 0.05, 0.1):
        a, b = (rng.binomial(n, p, (draws_n, 4)) for p in (STRATA_RATES, STRATA_RATES - truth))
        mantel.append(held(run_mantel(jnp.asarray(a), jnp.asarray(b)), truth))
        cells = np.stack(
            [rng.multinomial(n, [q + truth, q, 1 - truth - 2 * q], draws_n) for q in STRATA_AGAINST], axis=1
        )
        pooled.append(held(run_pooled(*(jnp.asarray(cells[..., i]) for i in range(3))), truth))
        names.append(f"difference {truth}, {draws_n} simulated")
    return [("Mantel-Haenszel, 4 strata", np.array(mantel), names), ("pooled Tango, 4 strata", np.array(pooled), names)]


def held(found: Estimate, truth: float) -> float:
    low, high = np.asarray(found.low), np.asarray(found.high)
    return float(np.mean((low <= truth + TIE) & (truth - TIE <= high)))


# ------------------------------------------------------------------------------------------------------------ figure


def figure(curves: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Coverage against the true rate; below, of matched pairs against the share of pairs that differ."""
    made = Figure(figsize=(9.6, 5.6), layout="constrained")
    axes = made.subplots(2, len(SIZES), sharey="row")
    rows = (("Wilson", "Clopper-Pearson", "Agresti-Coull"), ("Tango", "paired bootstrap"))
    labels = ("true rate p", "share of pairs that differ, 5 of 6 for a")
    for row, names, label, bottom in zip(axes, rows, labels, (0.8, 0.6), strict=True):
        for ax, n in zip(row, SIZES, strict=True):
            ax.axhline(0.95, color="#222222", linewidth=0.8, linestyle="--")
            for name, colour in zip(names, OKABE_ITO, strict=False):
                ax.plot(*curves[name, n], color=colour, linewidth=1.1, label=name)
            ax.set(title=f"n = {n}", xlabel=label, ylim=(bottom, 1.003), xlim=(0, 1))
            ax.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("coverage")
        row[-1].legend(frameon=False, fontsize=9, loc="lower center")
    return made


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/interval_coverage", resamples="2000", draws="20000"))
