"""`jaxeval compare value=COLUMN`: policies by any number that their episodes have, cell by cell, as by success."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.records.columns import Direction, direction_of, meaning_of
from jaxeval.io.records.records import SUCCESS, Records, _number
from jaxeval.io.tables import NAMES
from jaxeval.report.comparison_parts import BETWEEN
from jaxeval.report.comparison_values import Samples, ValueComparison, amount
from jaxeval.run import compare_estimates, compare_seeds, compare_values_estimates
from jaxeval.run.compare_cells import Cell, Runs, cells_of, conditions_of, first_and_last, strata
from jaxeval.stats.exact_host import fisher

Better = Literal["auto", "higher", "lower"]
BETTER = ("auto", "higher", "lower")
POWER = 0.8
NO_SPREAD = "not known: the differences do not vary, or there is one start"
BY_POLICY_P = 0.05
"""Fisher's p of values that are missing up to which it is said that their lack depends on the policy."""


@dataclass(frozen=True)
class Judged:
    """How differences are judged and worded. ``direction``: which values are better, None where it is not known."""

    value: str
    direction: Direction | None
    level: float
    margin: float | None
    unit: str = ""

    def word(self, larger: str, smaller: str) -> str:
        """Which of two is better, in words; where no direction was given, which is higher."""
        if self.direction is None:
            return f"{larger} higher (which is better was not given)"
        return f"{larger if self.direction == 'higher' else smaller} better"

    @property
    def same(self) -> str:
        """The margin in words."""
        assert self.margin is not None
        return f"within {amount(self.margin, self.unit)}"


def compare_values(
    records: Records,
    a: str,
    bs: Sequence[str],
    *,
    value: str,
    better: Better,
    by: str | None,
    pairing: Literal["required", "auto", "none"],
    pair_on: str,
    conditions: str | Sequence[str] | None,
    ends: tuple[Any, Any],
    settings: Any,
) -> ValueComparison:
    """Compare policy a with others by the numbers in column ``value``; the rest as in `compare`.

    Raises:
        InputError: no such column of numbers, runs that cannot be paired, or a setting that cannot be.
    """
    if better not in BETTER:
        raise InputError(f"better is {better!r}, expected one of {', '.join(BETTER)}; correct the setting")
    records = _with_numbers(records, [a, *bs], value)
    given = [conditions] if isinstance(conditions, str) else conditions or ()
    if value in (by, *given):
        raise InputError(
            f"value is '{value}', which is a condition too; expected another column; correct by=... or value=..."
        )
    named = [c for c in conditions_of(records, by, conditions) if c != value]
    cells, notes = cells_of(records, a, bs, conditions=named, success=value, pairing=pairing, pair_on=pair_on)
    meaning = meaning_of(value)
    direction = direction_of(value) if better == "auto" else better
    judged = Judged(value, direction, settings.level, settings.margin, meaning.unit if meaning else "")
    rows = _rows(cells, judged, pairing, settings)
    return ValueComparison(
        a=a,
        bs=tuple(bs),
        by=by,
        conditions=tuple(named),
        value=value,
        meaning=meaning.meaning if meaning else "",
        unit=judged.unit,
        direction=direction,
        settings={
            "value": value, "better": better, "level": settings.level, "margin": settings.margin,
            "correction": settings.correction, "resamples_n": settings.resamples_n, "seed": settings.seed,
            "pairing": pairing, "pair_on": pair_on,
        },
        cells=rows,
        samples=[_samples(cell) for cell in cells],
        pooled=list(_pooled(cells, judged)),
        changes=[_change(*pair, by, judged) for pair in first_and_last(cells, by, ends)] if by else [],
        notes=[*_of_values(records.notes), *notes],
        refused=list(records.refused),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- the column


def _with_numbers(records: Records, policies: Sequence[str], value: str) -> Records:
    """The records with the column as finite numbers in every row; None, and a note, where there is none."""
    for policy in dict.fromkeys(policies):
        records.of(policy)
    if value in SUCCESS:
        raise InputError(
            f"value is {value}, which is true or false, expected a column of numbers; give success={value}"
        )
    if value in NAMES:
        raise InputError(f"value is {value}, which is a name, expected a column of numbers; {_others(records, value)}")
    if value not in records.columns:
        raise InputError(f"records: no column '{value}', expected it for value=...; {_others(records, value)}")
    made: list[dict[str, Any]] = []
    odd: Counter[tuple[str, str]] = Counter()
    words: list[tuple[str, Any]] = []
    for row, place in zip(records.rows, records.places, strict=True):
        found = row.get(value)
        number = None if found is None else _number(found)
        if found is not None and number is None and row["policy"] in policies:
            words.append((place, found))
        if number is not None:
            number = _float(number)
            if not math.isfinite(number):
                odd[row["policy"], f"{number:g}"] += row["policy"] in policies
                number = None
        made.append({**row, value: number})
    mine = [row for row in made if row["policy"] in policies]
    if words and all(row[value] is None for row in mine):
        place, found = words[0]
        true_or_false = all(isinstance(w, bool) for _, w in words)
        hint = f"give columns.success_at_end={value}" if true_or_false else _others(records, value)
        raise InputError(f"{place or 'records'}: {value} is {found!r}, expected a column of numbers; {hint}")
    notes = [
        f"{policy}: {value} is {found} in {n} of {sum(r['policy'] == policy for r in made)} rows, expected a finite "
        "number; it is unknown there"
        for (policy, found), n in odd.items()
        if n
    ]
    if words:
        notes.append(
            f"{words[0][0] or 'records'}: {value} is {words[0][1]!r}, expected a number; it is unknown there"
            + (f" and in {len(words) - 1} rows like it" if len(words) > 1 else "")
        )
    return replace(records, rows=tuple(made), notes=(*records.notes, *notes))


def _float(number: float | int) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number beyond the largest float
        return math.copysign(math.inf, number)


def _others(records: Records, value: str) -> str:
    """Which columns hold numbers, as the end of a sentence."""
    numeric = [
        c for c in records.columns
        if c not in (*NAMES, *SUCCESS, value) and any(_number(r.get(c)) is not None for r in records.rows)
    ]  # fmt: skip
    if not numeric:
        return "no column holds numbers; record one"
    shown = [*numeric[:12], *([f"{len(numeric) - 12} more"] if len(numeric) > 12 else [])]
    return f"give one of {', '.join(shown)}"


def _of_values(notes: Sequence[str]) -> list[str]:
    """What was said of the records, without what matters to rates alone."""
    return [note for note in notes if not note.endswith("they are in no rate")]


# -------------------------------------------------------------------------------------------------------------- cells


def _rows(cells: Sequence[Cell], judged: Judged, pairing: str, settings: Any) -> list[dict[str, Any]]:
    """A row a cell: who, their values, the difference, the tests, the verdict."""
    s = settings
    compared = compare_values_estimates.compared(
        cells, level=s.level, margin=s.margin, resamples_n=s.resamples_n, seed=s.seed
    )
    p = _adjusted(
        [next((r[k] for k in ("p", "seeds_p") if r.get(k) is not None), None) for r in compared], s.correction
    )
    ranks = _adjusted([r["rank_p"] for r in compared], s.correction)
    same = _adjusted([r["equivalence_p"] for r in compared], s.correction)
    known = np.array([math.nan if x is None else x for x in p])
    multiplier = compare_estimates.multiplier(known, s.correction, 1 - s.level)
    out = []
    for k, cell in enumerate(cells):
        row: dict[str, Any] = {
            "task": cell.task, **cell.at, "a": cell.a.policy, "b": cell.b.policy, "value": judged.value, **compared[k],
        }  # fmt: skip
        key = "p_adjusted" if row.get("seeds_p") is None else "seeds_p_adjusted"
        row |= {"p_adjusted": None, key: p[k], "rank_p_adjusted": ranks[k], "equivalence_p_adjusted": same[k]}
        row |= _verdict(row, cell, judged, multiplier)
        row["note"] = BETWEEN.join(_remarks(row, cell, pairing, judged))
        out.append(row)
    return out


def _adjusted(p: Sequence[float | None], correction: str) -> list[float | None]:
    """p corrected over all that are known."""
    corrected = compare_estimates.adjusted([math.nan if x is None else x for x in p], correction)
    return [None if math.isnan(x) else float(x) for x in corrected]


def _verdict(row: Mapping[str, Any], cell: Cell, judged: Judged, multiplier: float) -> dict[str, Any]:
    """Which is better, whether they are equivalent, or how much more would tell; in words."""
    alpha = 1 - judged.level
    if none := [runs for runs in (cell.a, cell.b) if not runs.rows]:
        return {"verdict": f"not known: {none[0].uncounted()}"}
    if row["difference"] is None:
        return {"verdict": f"not known: {row['status']}"}
    by_seed = row.get("seeds_p") is not None
    p = row["seeds_p_adjusted" if by_seed else "p_adjusted"]
    if p is None:
        return {"verdict": f"not known: {row['status']}"}
    same = row["equivalence_p_adjusted"] is not None and row["equivalence_p_adjusted"] <= alpha
    if p <= alpha and row["difference"]:
        ordered = (row["a"], row["b"]) if row["difference"] > 0 else (row["b"], row["a"])
        return {"verdict": judged.word(*ordered) + (f", though equivalent {judged.same}" if same else "")}
    if same:
        return {"verdict": f"equivalent {judged.same}"}
    if by_seed:
        return {"verdict": f"not distinguishable: {row['wanting']} ({row['seeds_n']} seeds)"}
    if row["difference"] == 0:
        return {"verdict": "not distinguishable: no difference was seen"}
    more, what = compare_values_estimates.more_needed(row, power=POWER, level=judged.level, multiplier=multiplier)
    return compare_estimates.not_distinguishable(more, what)


def _remarks(row: Mapping[str, Any], cell: Cell, pairing: str, judged: Judged) -> Iterator[str]:
    """What a reader of the cell's numbers must know."""
    if pairing == "none":
        yield "unpaired as asked: if starts are shared, the paired comparison tells more"
    elif cell.pairing is not None and not cell.pairing.pairs and cell.pairing.problem:
        yield f"unpaired: {cell.pairing.problem}"
    elif cell.pairing is not None and cell.pairing.note:
        yield cell.pairing.note
    conditional = list(_conditional(cell, judged.value))
    yield from (runs.rule() for runs in (cell.a, cell.b) if runs.rule() and (runs.excluded or not conditional))
    yield from conditional
    n_a, n_b, pairs_n = len(cell.a.rows), len(cell.b.rows), row["pairs_n"]
    if n_a and n_b and cell.paired and not (n_a == n_b == pairs_n):
        yield f"means are over the {n_a} and {n_b} runs of each, the difference over the {pairs_n} pairs"
    constant = row["status"].startswith("constant")
    if constant and row["difference"]:
        yield "the differences do not vary: the interval has no width, and p is the rank test's"
    if None not in (row["p"], row["rank_p"]) and not constant:
        alpha = 1 - judged.level
        if (row["p"] <= alpha) != (row["rank_p"] <= alpha):
            tests = (f"{row[f'{of}test']} p {row[f'{of}p']:.2g}" for of in ("", "rank_"))
            yield f"the tests disagree before correction: {', '.join(tests)}"
    if compare_seeds.several_seeds(cell):
        yield compare_seeds.remark(cell, untested="pairs or runs", given="the means' own intervals")


def _conditional(cell: Cell, value: str) -> Iterator[str]:
    """That the comparison is of episodes that have a number, where some have none."""
    lost = [(runs, runs.unknown_n, len(runs.kept)) for runs in (cell.a, cell.b)]
    if not any(n for _, n, _ in lost) or not all(n < kept for _, n, kept in lost):
        return
    counts = " and ".join(f"{n} of {kept} of {runs.policy}" for runs, n, kept in lost)
    (_, m, kept_a), (_, n, kept_b) = lost
    p = float(fisher(m, kept_a, n, kept_b).p)
    depends = f"; which have one depends on the policy (Fisher's p {p:.2g})" if p <= BY_POLICY_P else ""
    yield f"without {value}: {counts}; the comparison is conditional on having it{depends}"


def _samples(cell: Cell) -> Samples:
    """The numbers behind a row."""
    d = compare_values_estimates.differences_of(cell) if cell.paired else None
    return Samples(compare_values_estimates.values_of(cell.a), compare_values_estimates.values_of(cell.b), d)


# ------------------------------------------------------------------------------------------------ over several cells


def _pooled(cells: Sequence[Cell], judged: Judged) -> Iterator[dict[str, Any]]:
    """One difference over all cells of a policy b, and over those of each task where there are several."""
    for about, used in strata(cells):
        row = about | {"pairs_n": sum(len(c.outcomes) for c in used)}
        found = compare_seeds.varied_means(compare_seeds.pooled_strata(used))
        yield row | _difference_of(found, about["a"], about["b"], judged, any(map(compare_seeds.several_seeds, used)))


def _difference_of(found: compare_seeds.Varied, a: str, b: str, judged: Judged, seeds: bool) -> dict[str, Any]:
    """Difference, interval and verdict of what several cells say."""
    low, high = found.interval(judged.level, math.inf)
    words = "not distinguishable"
    if not found.varies:
        words = NO_SPREAD
    elif low > 0 or high < 0:
        words = judged.word(*((a, b) if found.value > 0 else (b, a)))
    return {"difference": found.value, "low": low, "high": high,
            "how": "over seeds and starts (t)" if seeds else "over starts (t)", "verdict": words}  # fmt: skip


def _change(first: Cell, last: Cell, by: str, judged: Judged) -> dict[str, Any]:
    """How much each policy's mean changes between two levels of `by`, and how much more a's than b's."""
    found = compare_seeds.varied_means(compare_seeds.change_strata(first, last))
    low, high = found.interval(judged.level, math.inf)
    means = {f"{side}_{end}": _mean(getattr(cell, side))
             for side in ("a", "b") for end, cell in (("from", first), ("to", last))}  # fmt: skip
    seen = low > 0 or high < 0
    paired = first.paired and last.paired
    by_seed = any(map(compare_seeds.several_seeds, (first, last)))
    return {
        "task": first.task, **{k: v for k, v in first.at.items() if k != by}, "a": first.a.policy, "b": first.b.policy,
        "by": by, "from": first.at[by], "to": last.at[by], **means, "difference": found.value, "low": low, "high": high,
        "pairing": "paired" if paired else "unpaired",
        "how": "over seeds and starts (t)" if by_seed else "over starts (t)",
        "verdict": NO_SPREAD if not found.varies else "a - b changes" if seen else "changes are not distinguishable",
    }  # fmt: skip


def _mean(runs: Runs) -> float:
    return float(compare_values_estimates.values_of(runs).mean())
