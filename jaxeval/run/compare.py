"""`jaxeval compare`: policies on the same starts, cell by cell: rates, differences, tests, and a verdict in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, overload

from jaxeval.io.errors import InputError
from jaxeval.io.records import STAGE, SUCCESS
from jaxeval.io.records.objects import records_of
from jaxeval.report.comparison import Comparison
from jaxeval.report.comparison_parts import BETWEEN
from jaxeval.report.comparison_values import ValueComparison
from jaxeval.run import compare_estimates, compare_seeds
from jaxeval.run.compare_cells import (
    Cell,
    Runs,
    cells_of,
    chosen_success,
    conditions_of,
    first_and_last,
    strata,
    told_at,
)
from jaxeval.run.compare_values import Better, compare_values
from jaxeval.stats.estimate import Estimate, Status

Pairing = Literal["required", "auto", "none"]
SUCCEEDED, UNKNOWN = "success", "unknown"
"""Causes of runs that say none: those that succeeded, and those that did not."""
POWER = 0.8
MARGIN = 0.05
"""Of rates where none is given."""


@dataclass(frozen=True)
class Settings:
    """How the cells are judged. ``level``: of every interval; ``margin``: differences within it are none.

    The margin is a rate, MARGIN where it is None; of values it is in the column's unit, and None claims nothing.
    ``correction``: of the p-values over all cells, "holm" or "bh" (Benjamini-Hochberg).
    """

    level: float = 0.95
    margin: float | None = None
    correction: Literal["holm", "bh"] = "holm"
    resamples_n: int = 20_000
    seed: int = 0

    @property
    def rate_margin(self) -> float:
        """The margin of rates."""
        return MARGIN if self.margin is None else self.margin

    def check(self, *, of_rates: bool = True) -> Settings:
        """The settings themselves, if they can be; InputError with one sentence if not."""
        most = 1 if of_rates else math.inf
        a_margin = "a rate between 0 and 1, such as 0.05 for 5 points" if of_rates else "a number above 0 in its unit"
        for name, good, expected in (
            ("level", 0 < self.level < 1, "a number between 0 and 1, such as 0.95"),
            ("margin", self.margin is None or 0 < self.margin < most, a_margin),
            (
                "correction",
                self.correction in compare_estimates.CORRECTIONS,
                " or ".join(compare_estimates.CORRECTIONS),
            ),
            ("resamples_n", self.resamples_n >= 100, "at least 100"),
        ):
            if not good:
                raise InputError(f"{name} is {getattr(self, name)!r}, expected {expected}; correct the setting")
        return self


@overload
def compare(
    records: Any,
    a: str,
    b: str | Sequence[str],
    *,
    value: None = None,
    success: str | None = None,
    by: str | None = None,
    pairing: Pairing = "required",
    pair_on: str = "initial_condition_id",
    conditions: str | Sequence[str] | None = None,
    nominal: Any = None,
    last: Any = None,
    settings: Settings | None = None,
    columns: Mapping[str, str] | None = None,
) -> Comparison: ...
@overload
def compare(
    records: Any,
    a: str,
    b: str | Sequence[str],
    *,
    value: str,
    better: Better = "auto",
    by: str | None = None,
    pairing: Pairing = "required",
    pair_on: str = "initial_condition_id",
    conditions: str | Sequence[str] | None = None,
    nominal: Any = None,
    last: Any = None,
    settings: Settings | None = None,
    columns: Mapping[str, str] | None = None,
) -> ValueComparison: ...
def compare(
    records: Any,
    a: str,
    b: str | Sequence[str],
    *,
    value: str | None = None,
    better: Better = "auto",
    success: str | None = None,
    by: str | None = None,
    pairing: Pairing = "required",
    pair_on: str = "initial_condition_id",
    conditions: str | Sequence[str] | None = None,
    nominal: Any = None,
    last: Any = None,
    settings: Settings | None = None,
    columns: Mapping[str, str] | None = None,
) -> Comparison | ValueComparison:
    """Compare policy a with one or several others, in every task and condition that both ran.

    ``records``: a path or several, Records, what `score` returns, a data frame, one of these a policy (`records_of`).
    ``value`` is a column of numbers to compare instead of success (`compare_values`), of which ``better`` says whether
    higher or lower values are; "auto" asks `direction_of`.
    ``by`` is the condition along which success is followed, ``nominal`` and ``last`` the levels between which decreases
    count (None: from 1 where it was run, else from the first; to the last). Cells whose starts match are compared in
    pairs (Tango, McNemar); the others, where ``pairing`` allows them, as unpaired (Newcombe, Boschloo), and say so.
    Where several training seeds of a policy ran, intervals and verdicts are over seeds and starts (`compare_seeds`).

    Raises:
        InputError: the records cannot be read or paired, or a setting cannot be.
    """
    settings = (settings or Settings()).check(of_rates=value is None)
    if value is None and better != "auto":
        raise InputError(f"better is {better!r} and value is not given, expected the column; give value=COLUMN")
    if value is not None and success is not None:
        raise InputError(f"success={success} and value={value} are both given, expected one of them; leave one out")
    records = records_of(records, columns=columns, names=(pair_on,))
    bs = [b] if isinstance(b, str) else list(dict.fromkeys(b))
    if not bs:
        raise InputError("b is empty, expected at least one policy to compare with; give b=NAME or b=[NAME,NAME]")
    ends = ends_of(by, nominal, last)
    if value is not None:
        return compare_values(
            records, a, bs, value=value, better=better, by=by, pairing=pairing, pair_on=pair_on, conditions=conditions,
            ends=ends, settings=settings,
        )  # fmt: skip
    used, flicker = chosen_success(records, [a, *bs], success)
    named = conditions_of(records, by, conditions)
    cells, notes = cells_of(records, a, bs, conditions=named, success=used, pairing=pairing, pair_on=pair_on)
    decreases = list(_decreases(cells, by, ends, settings)) if by else []
    rows = _rows(cells, used, pairing, settings)
    runs = _runs(cells)
    return Comparison(
        a=a,
        bs=tuple(bs),
        by=by,
        conditions=tuple(named),
        success=used,
        settings={
            "level": settings.level, "margin": settings.rate_margin, "correction": settings.correction,
            "resamples_n": settings.resamples_n, "seed": settings.seed, "pairing": pairing, "pair_on": pair_on,
        },
        cells=rows,
        pooled=list(_pooled(cells, settings)),
        decreases=decreases,
        stages=_stages(runs, records.stages, settings.level),
        causes=list(_causes(runs)),
        notes=[*records.notes, *([flicker] if flicker else []), *notes, *_not_nested(runs, records.stages)],
        refused=list(records.refused),
    )  # fmt: skip


def ends_of(by: str | None, nominal: Any, last: Any) -> tuple[Any, Any]:
    """The levels of ``by`` between which change is reported; InputError where one is given and ``by`` is not."""
    if by is None and (given := [n for n, v in (("nominal", nominal), ("last", last)) if v is not None]):
        raise InputError(f"{given[0]} is given and by is not, expected the condition it is a level of; give by=COLUMN")
    return nominal, last


# -------------------------------------------------------------------------------------------------------------- cells


def _rows(cells: Sequence[Cell], success: str, pairing: str, settings: Settings) -> list[dict[str, Any]]:
    """A row a cell: who, how many of how many, the difference, the tests, the verdict."""
    s, other = settings, next(name for name in SUCCESS if name != success)
    rates = {
        side: compare_estimates.rates([r.k for r in runs], [len(r.rows) for r in runs], s.level)
        for side in ("a", "b")
        if (runs := [getattr(c, side) for c in cells])
    }
    compared = _compared(cells, s)
    p = [next((row[k] for k in ("p", "seeds_p") if row.get(k) is not None), math.nan) for row in compared]
    same = [math.nan if row["equivalence_p"] is None else row["equivalence_p"] for row in compared]
    p_adjusted, same_adjusted = (compare_estimates.adjusted(values, s.correction) for values in (p, same))
    multiplier = compare_estimates.multiplier(p_adjusted, s.correction, 1 - s.level)
    out = []
    for k, cell in enumerate(cells):
        row: dict[str, Any] = {"task": cell.task, **cell.at, "a": cell.a.policy, "b": cell.b.policy, "success": success}
        row |= _side("a", cell.a, _at(rates["a"], k), other) | _side("b", cell.b, _at(rates["b"], k), other)
        row |= compared[k]
        seeds = row.get("seeds_p") is not None
        row |= (
            {"p_adjusted": None, "seeds_p_adjusted": float(p_adjusted[k])}
            if seeds
            else {"p_adjusted": float(p_adjusted[k])}
        )
        row["equivalence_p_adjusted"] = float(same_adjusted[k])
        row = {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}
        row |= _verdict(row, cell, s, multiplier)
        row["note"] = BETWEEN.join(_remarks(cell, pairing))
        out.append(row)
    return out


def _compared(cells: Sequence[Cell], settings: Settings) -> list[dict[str, Any]]:
    """Difference and tests of every cell: in pairs where it has any, else as of runs that share no start."""
    s = settings
    pairs = compare_estimates.paired_cells(
        cells, level=s.level, margin=s.rate_margin, resamples_n=s.resamples_n, seed=s.seed
    )
    out: list[dict[str, Any]] = []
    for k, cell in enumerate(cells):
        estimate, boot, counts = _at(pairs.difference, k), _at(pairs.bootstrap, k), cell.counts
        out.append({
            "pairing": "paired", "pairs_n": sum(counts), **counts._asdict(), "difference": estimate.value,
            "low": estimate.low, "high": estimate.high, "interval": "Tango score",
            "bootstrap_low": boot.low, "bootstrap_high": boot.high,
            "p": float(pairs.exact.p[k]), "test": "exact McNemar", "p_mid": float(pairs.mid_p.p[k]),
            "equivalence_p": float(pairs.equivalent.p[k]), "status": Status.of(estimate.status).value,
        })  # fmt: skip
    if apart := [k for k, c in enumerate(cells) if not c.paired]:
        newcombe, tests = compare_estimates.unpaired_cells([cells[k] for k in apart], s.level)
        for i, k in enumerate(apart):
            estimate = _at(newcombe, i)
            out[k] = {
                "pairing": "unpaired", "difference": estimate.value, "low": estimate.low, "high": estimate.high,
                "interval": "Newcombe", "p": tests[i][0], "test": tests[i][1], "equivalence_p": None,
                "status": Status.of(estimate.status).value,
            }  # fmt: skip
    several = [k for k, c in enumerate(cells) if compare_seeds.several_seeds(c) and c.a.rows and c.b.rows]
    for k in several:
        estimate = compare_seeds.varied(compare_seeds.cell_strata(cells[k]))
        low, high = estimate.interval(s.level)
        out[k] |= {
            "low": low, "high": high, "interval": "seeds and starts (t)", "p": None, "p_mid": None, "test": None,
            "seeds_p": estimate.p(), "seeds_n": max(len(seeds) for seeds in compare_seeds.seeds_of(cells[k])),
            "equivalence_p": estimate.equivalence_p(s.rate_margin), "wanting": estimate.wanting(),
            "status": Status.OK.value,
        }  # fmt: skip
    if paired := [k for k in several if cells[k].paired]:
        wide = compare_seeds.crossed_bootstrap(
            [cells[k] for k in paired], level=s.level, resamples_n=s.resamples_n, seed=s.seed
        )
        for k, (low, high) in zip(paired, wide, strict=True):
            out[k] |= {"bootstrap_low": low, "bootstrap_high": high}
    return out


def _side(side: str, runs: Runs, rate: Estimate, other: str) -> dict[str, Any]:
    """What one policy did in a cell. ``other``: the definition of success that is not used, counted beside."""
    beside = [r[other] for r in runs.kept if r[other] is not None]
    facts = {
        "k": runs.k, "n": len(runs.rows), "rate": rate.value, "low": rate.low, "high": rate.high,
        "recorded_n": len(runs.all_rows), "excluded_n": sum(runs.excluded.values()), "unknown_n": runs.unknown_n,
        f"{other}_k": sum(beside) if beside else None, f"{other}_n": len(beside) if beside else None,
    }  # fmt: skip
    return {f"{side}_{key}": value for key, value in facts.items()}


def _at(estimate: Estimate, k: int) -> Estimate:
    return Estimate(*(float(x[k]) for x in estimate[:3]), int(estimate.status[k]))  # type: ignore[arg-type]


def _remarks(cell: Cell, pairing: str) -> Iterator[str]:
    """What a reader of the cell's numbers must know."""
    if pairing == "none":
        yield "unpaired as asked: if starts are shared, the paired comparison tells more"
    elif cell.pairing is not None and cell.pairing.problem:
        yield f"unpaired: {cell.pairing.problem}"
    elif cell.pairing is not None and cell.pairing.note:
        yield cell.pairing.note
    for runs in (cell.a, cell.b):
        if rule := runs.rule():
            yield rule
    n_a, n_b, pairs_n = len(cell.a.rows), len(cell.b.rows), sum(map(int, cell.counts))
    if n_a != n_b or (cell.paired and pairs_n != n_a):
        over = f"the difference is over the {pairs_n} pairs" if cell.paired else "each over its own"
        yield f"unequal denominators, {cell.a.k}/{n_a} and {cell.b.k}/{n_b}: {over}"
    if compare_seeds.several_seeds(cell):
        yield compare_seeds.remark(cell, untested="counted pairs or runs", given="Wilson's intervals")


# ------------------------------------------------------------------------------------------------------------- verdict


def _verdict(row: Mapping[str, Any], cell: Cell, settings: Settings, multiplier: float) -> dict[str, Any]:
    """Which is better, whether they are equivalent, or how much more would tell; in words."""
    alpha = 1 - settings.level
    points = f"within {100 * settings.rate_margin:g} points"
    if none := [runs for runs in (cell.a, cell.b) if not runs.rows]:
        return {"verdict": f"not known: {none[0].uncounted()}"}
    if row["difference"] is None:
        return {"verdict": f"not known: {row['status']}"}
    by_seed = row.get("seeds_p") is not None
    seen = row["seeds_p_adjusted" if by_seed else "p_adjusted"] <= alpha
    same = row["equivalence_p_adjusted"] is not None and row["equivalence_p_adjusted"] <= alpha
    if seen:
        better = row["a"] if row["difference"] > 0 else row["b"]
        return {"verdict": f"{better} better" + (f", though equivalent {points}" if same else "")}
    if same:
        return {"verdict": f"equivalent {points}"}
    if by_seed:
        return {"verdict": f"not distinguishable: {row['wanting']} ({row['seeds_n']} seeds)"}
    if row["pairing"] == "paired" and row["a_only"] + row["b_only"] == 0:
        return {"verdict": f"not distinguishable: no discordant pairs in {row['pairs_n']}"}
    if row["difference"] == 0:
        return {"verdict": "not distinguishable: no difference was seen"}
    more, what = compare_estimates.more_needed(row, power=POWER, level=settings.level, multiplier=multiplier)
    return compare_estimates.not_distinguishable(more, what)


# ------------------------------------------------------------------------------------------------ over several cells


def _pooled(cells: Sequence[Cell], settings: Settings) -> Iterator[dict[str, Any]]:
    """One difference over all cells of a policy b, and over those of each task where there are several."""
    for about, used in strata(cells):
        if any(map(compare_seeds.several_seeds, used)):
            wide = compare_seeds.varied(compare_seeds.pooled_strata(used))
            value, (low, high), how = wide.value, wide.interval(settings.level), "over seeds and starts (t)"
        else:
            found, how = compare_estimates.pooled(used, settings.level)
            value, low, high = map(float, found[:3])
        a, b = about["a"], about["b"]
        yield about | {
            "pairs_n": sum(sum(map(int, c.counts)) for c in used), "difference": value, "low": low, "high": high,
            "how": how, "verdict": f"{a} better" if low > 0 else f"{b} better" if high < 0 else "not distinguishable",
        }  # fmt: skip


def _decreases(cells: Sequence[Cell], by: str, ends: tuple[Any, Any], settings: Settings) -> Iterator[dict[str, Any]]:
    """How much each policy loses from the nominal level of `by` to the last, and how much more b loses than a."""
    for c0, c1 in first_and_last(cells, by, ends):
        several = compare_seeds.several_seeds(c0) or compare_seeds.several_seeds(c1)
        if several:
            wide = compare_seeds.varied(compare_seeds.change_strata(c0, c1))
            value, (low, high), p = wide.value, wide.interval(settings.level, 2.0), math.nan
        else:
            estimate, p = compare_estimates.change(c0, c1, settings.level)
            value, low, high = map(float, estimate[:3])
        lost = {side: _rate(getattr(c0, side)) - _rate(getattr(c1, side)) for side in ("a", "b")}
        row = {"task": c0.task, **{k: v for k, v in c0.at.items() if k != by}, "a": c0.a.policy, "b": c0.b.policy,
               "by": by, "from": c0.at[by], "to": c1.at[by]}  # fmt: skip
        for side in ("a", "b"):
            runs0, runs1 = getattr(c0, side), getattr(c1, side)
            row |= {f"{side}_from": f"{runs0.k}/{len(runs0.rows)}", f"{side}_to": f"{runs1.k}/{len(runs1.rows)}"}
        row |= {"a_decrease": lost["a"], "b_decrease": lost["b"], "difference": value, "low": low,
                "high": high, "p": None if math.isnan(p) else p,
                "pairing": "paired" if c0.paired and c1.paired else "unpaired"}  # fmt: skip
        row |= {"how": "over seeds and starts (t)"} if several else {}
        more, less = (row["b"], row["a"]) if row["difference"] > 0 else (row["a"], row["b"])
        seen = low > 0 or high < 0
        row["verdict"] = f"{more} loses more than {less}" if seen else "decreases are not distinguishable"
        yield row


def _rate(runs: Runs) -> float:
    return runs.k / len(runs.rows) if runs.rows else math.nan


def _runs(cells: Sequence[Cell]) -> list[tuple[Cell, Runs]]:
    """Runs of every policy in every task and condition, each once, with a cell that they stand in."""
    seen: dict[tuple[Any, ...], tuple[Cell, Runs]] = {}
    for side in ("a", "b"):
        for cell in cells:
            runs = getattr(cell, side)
            seen.setdefault((runs.policy, cell.task, *cell.at.items()), (cell, runs))
    return list(seen.values())


def _stages(runs: Sequence[tuple[Cell, Runs]], stages: Sequence[str], level: float) -> list[dict[str, Any]]:
    """How many runs reached each stage, counted as they are; the last stage is success."""
    out: list[dict[str, Any]] = []
    for cell, mine in runs:
        if not any(r.get(STAGE + s) is not None for r in mine.kept for s in stages):
            continue
        for stage, key in [*((s, STAGE + s) for s in stages), (SUCCEEDED, mine.success)]:
            known = [r[key] for r in mine.kept if r.get(key) is not None]
            if known:
                out.append({"policy": mine.policy, "task": cell.task, **cell.at, "stage": stage, "k": sum(known),
                            "n": len(known), "unknown_n": len(mine.kept) - len(known)})  # fmt: skip
    estimates = compare_estimates.rates([r["k"] for r in out], [r["n"] for r in out], level) if out else None
    for k, row in enumerate(out):
        assert estimates is not None
        row |= {"rate": float(estimates.value[k]), "low": float(estimates.low[k]), "high": float(estimates.high[k])}
    return out


def _not_nested(runs: Sequence[tuple[Cell, Runs]], stages: Sequence[str]) -> Iterator[str]:
    """A sentence for each pair of stages of which the later was reached by more of the runs that say both."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell, mine in runs:
        for early, late in pairwise(stages):
            known = [(r[STAGE + early], r[STAGE + late]) for r in mine.kept
                     if r.get(STAGE + early) is not None and r.get(STAGE + late) is not None]  # fmt: skip
            before, after = (sum(r[i] for r in known) for i in (0, 1))
            if after > before:
                at = " ".join([mine.policy, ", ".join(told_at(cell.at))]).strip()
                found.setdefault((early, late), []).append(f"{at}: {before} {early}, {after} {late}")
    for (early, late), where in found.items():
        yield (
            f"stages are not nested: in {len(where)} cells more runs reached {late} than {early} "
            f"(such as {where[0]}); they are counted as they are"
        )


def _causes(runs: Sequence[tuple[Cell, Runs]]) -> Iterator[dict[str, Any]]:
    """How many runs ended by each cause; none where no cause was recorded."""
    if not any(r.get("cause") is not None for _, mine in runs for r in mine.kept):
        return
    for cell, mine in runs:
        counts = Counter(r.get("cause") or (SUCCEEDED if r[mine.success] else UNKNOWN) for r in mine.kept)
        for cause, count in sorted(counts.items(), key=lambda c: (c[0] != SUCCEEDED, -c[1], c[0])):
            yield {"policy": mine.policy, "task": cell.task, **cell.at, "cause": cause, "k": count, "n": len(mine.kept)}
