"""Cells of a comparison: the runs of two policies in one task and one condition, counted and paired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from jaxeval.io.errors import InputError
from jaxeval.io.readers.text_tables import number
from jaxeval.io.records import SUCCESS, Records, without_repeats
from jaxeval.io.records.pairing import Pairing, pair_runs
from jaxeval.io.tables import name_of
from jaxeval.stats.estimate import PairCounts

PAIRINGS = ("required", "auto", "none")
CONDITIONS = ("speed", "told_speed")
"""Columns that are conditions wherever they hold anything."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Runs:
    """Runs of one policy in one cell. ``rows`` are those that count: not excluded, and of known success.

    ``success`` is the column that is compared: one of SUCCESS, or any column of numbers. ``all_rows`` are all that were
    recorded, ``excluded`` how many for each reason, ``unknown_n`` those in which the column is unknown.
    """

    policy: str
    success: str
    all_rows: tuple[Row, ...]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Those that count."""
        return tuple(r for r in self.kept if r[self.success] is not None)

    @cached_property
    def kept(self) -> tuple[Row, ...]:
        """Those that were not excluded."""
        return tuple(r for r in self.all_rows if r.get("excluded") is None)

    @property
    def excluded(self) -> dict[str, int]:
        """Reason -> runs excluded for it."""
        return dict(Counter(r["excluded"] for r in self.all_rows if r.get("excluded") is not None))

    @property
    def unknown_n(self) -> int:
        """Runs not excluded whose success, or value, is unknown."""
        return len(self.kept) - len(self.rows)

    @cached_property
    def k(self) -> int:
        """Successes."""
        return sum(r[self.success] for r in self.rows)

    def uncounted(self) -> str:
        """That no run counts and why, in words."""
        return f"{self.policy} has no run that counts: {' and '.join(self._lost())} of {len(self.all_rows)}"

    def _lost(self) -> list[str]:
        """How many runs do not count, by reason."""
        parts = [f"{n} excluded ({reason})" for reason, n in self.excluded.items()]
        lacking = "of unknown success" if self.success in SUCCESS else f"without {self.success}"
        return parts + ([f"{self.unknown_n} {lacking}"] if self.unknown_n else [])

    def rule(self) -> str:
        """Why fewer runs count than were recorded, in words; empty where all do."""
        if not (parts := self._lost()):
            return ""
        sentence = f"{self.policy}: {' and '.join(parts)} of {len(self.all_rows)}"
        as_failures = f" (were they failures: {self.k}/{len(self.all_rows)})"
        return sentence + (as_failures if self.success in SUCCESS else "")


@dataclass(frozen=True)
class Cell:
    """Policies a and b in one task and one condition; ``at`` is the condition, a value a column."""

    task: str | None
    at: dict[str, Any]
    a: Runs
    b: Runs
    pairing: Pairing | None
    """None where pairs were not asked for."""

    @property
    def paired(self) -> bool:
        """Whether there are pairs to compare."""
        return self.pairing is not None and bool(self.pairing.pairs)

    @cached_property
    def outcomes(self) -> list[tuple[bool, bool]]:
        """(a succeeded, b succeeded) of every pair; of values, both numbers."""
        pairs = self.pairing.pairs if self.pairing else ()
        return [(self.a.rows[i][self.a.success], self.b.rows[j][self.b.success]) for i, j in pairs]

    @cached_property
    def counts(self) -> PairCounts:
        """The 2x2 counts of the pairs."""
        counted = Counter(self.outcomes)
        return PairCounts(counted[True, True], counted[True, False], counted[False, True], counted[False, False])

    @cached_property
    def seeds(self) -> list[Any]:
        """Training seed of every pair: b's where b has several, else a's."""
        pairs = self.pairing.pairs if self.pairing else ()
        of_b = [self.b.rows[j]["training_seed"] for _, j in pairs]
        return of_b if len(set(of_b)) > 1 else [self.a.rows[i]["training_seed"] for i, _ in pairs]

    @property
    def starts(self) -> list[Any]:
        """Start of every pair."""
        assert self.pairing is not None
        return [self.a.rows[i][self.pairing.key] for i, _ in self.pairing.pairs]

    @property
    def name(self) -> str:
        """The cell as messages name it."""
        return ", ".join([self.b.policy, *([f"task {self.task}"] if self.task else []), *told_at(self.at)])


def told_at(at: Mapping[str, Any]) -> list[str]:
    """A condition in words: ["speed 2", "told_speed 1"]."""
    return [f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in at.items()]


def level_of(levels: Sequence[Any], wanted: Any) -> Any:
    """The level that somebody means by a text or a number: the same, else of the same name, else the same number.

    >>> level_of(["1.1", "1.10"], "1.10"), level_of([0.5, 1.1], "1.10"), level_of(["1.1", "1.10"], 1.1)
    ('1.10', 1.1, '1.1')
    """
    if wanted is None:
        return None
    found = [v for v in levels if v == wanted] or [v for v in levels if name_of(v) == name_of(wanted)]
    if not found and isinstance(wanted, str):
        with suppress(ValueError):
            found = [v for v in levels if v == number(wanted)]
    return found[0] if found else wanted


def chosen_success(records: Records, policies: Sequence[str], wanted: str | None) -> tuple[str, str]:
    """The column of success to use (``success_once`` or ``success_at_end``), and a sentence where the two disagree.

    Without a wish it is success_at_end where that is known, else success_once. InputError where neither is known.
    """
    if wanted is not None and wanted not in SUCCESS:
        raise InputError(f"success is '{wanted}', expected {' or '.join(SUCCESS)}; correct the setting")
    policies = list(dict.fromkeys(policies))
    for policy in policies:
        records.of(policy)
    rows = [row for row in records.rows if row["policy"] in policies]
    of = {p: [s for s in SUCCESS if any(r[s] is not None for r in rows if r["policy"] == p)] for p in policies}
    known = [s for s in SUCCESS if all(s in its for its in of.values())]
    if not known or (wanted and wanted not in known):
        lacking = wanted or " and ".join(SUCCESS)
        without = [p for p, its in of.items() if (wanted not in its if wanted else not its)]
        if not without:
            sentence = "; ".join(
                f"{p} has {' and '.join(its)} only" for p, its in of.items() if len(its) < len(SUCCESS)
            )
            raise InputError(
                f"records: success is not the same thing for all: {sentence}; expected one of them for every policy; "
                "record it or name its column with columns.success_at_end=COLUMN"
            )
        n = sum(row["policy"] in without for row in rows)
        raise InputError(
            f"records: success unknown: {lacking} is empty in all {n} rows of {', '.join(without)}; "
            "expected true or false; record it or name its column with columns.success_at_end=COLUMN"
        )
    used = wanted or known[0]
    both = [row for row in rows if all(row[s] is not None for s in SUCCESS)]
    flickered = sum(row["success_once"] and not row["success_at_end"] for row in both)
    if not flickered:
        return used, ""
    sentence = (
        f"{flickered} of {len(both)} episodes succeeded once and not at the end; both counts are shown, {used} is used"
    )
    return used, sentence


def conditions_of(records: Records, by: str | None, given: str | Sequence[str] | None) -> list[str]:
    """Columns whose values make a cell: ``by`` and those given, else those of CONDITIONS that hold anything."""
    given = [given] if isinstance(given, str) else given
    named: list[str] = list(dict.fromkeys([*([by] if by else []), *(given or ())]))
    if missing := [c for c in named if c not in records.columns]:
        raise InputError(
            f"records: no column '{missing[0]}', found {', '.join(records.columns)}; expected it for by=... or "
            "conditions=...; correct the setting"
        )
    if given is None:
        named += [c for c in CONDITIONS if c not in named and any(r.get(c) is not None for r in records.rows)]
    return named


def cells_of(
    records: Records,
    a: str,
    bs: Sequence[str],
    *,
    conditions: Sequence[str],
    success: str,
    pairing: Literal["required", "auto", "none"] = "required",
    pair_on: str = "initial_condition_id",
) -> tuple[list[Cell], list[str]]:
    """The cells in which both policies ran, by b, then task, then condition; and what must be said of the records.

    ``success`` is the column that is compared, which every row has (None where unknown).
    A condition of which a policy has no value in a task does not divide its runs: they stand in every cell.

    Raises:
        InputError: no such policy, no cell in which both ran, or (pairing "required") runs that cannot be paired.
    """
    if pairing not in PAIRINGS:
        raise InputError(f"pairing is '{pairing}', expected one of {', '.join(PAIRINGS)}; correct the setting")
    notes: list[str] = []
    kept: dict[str, list[Row]] = {}
    for policy in dict.fromkeys([a, *bs]):
        indexes, said = without_repeats(records.rows, records.of(policy), conditions, success=success)
        kept[policy] = [records.rows[k] for k in indexes]
        notes += said
    cells: list[Cell] = []
    for b in bs:
        alone: list[str] = []
        for task in dict.fromkeys(row["task"] for row in [*kept[a], *kept[b]]):
            mine, theirs = ([r for r in kept[p] if r["task"] == task] for p in (a, b))
            at_a, at_b = _divided(mine, conditions), _divided(theirs, conditions)
            for at in _levels(theirs, mine, conditions):
                here_a, here_b = at_a(at), at_b(at)
                if here_a and here_b:
                    runs = Runs(a, success, tuple(here_a)), Runs(b, success, tuple(here_b))
                    found = _found(*runs, pairing, pair_on)
                    cells.append(Cell(task, at, *runs, found))
                else:
                    where = ", ".join([*([str(task)] if task else []), *told_at(at)])
                    alone.append(f"{where} ({a if here_a else b} alone)")
        if alone:
            notes.append(f"{b}: {len(alone)} cells in which only one of the two ran are left out: {alone[0]}, ...")
    if not cells:
        raise InputError(
            f"records: {a} and {', '.join(bs)} never ran in one cell, by {', '.join(['task', *conditions])}; expected "
            "equal tasks and conditions; correct the records or conditions=..."
        )
    for b in bs:
        _counted([cell for cell in cells if cell.b.policy == b])
    if pairing == "required":
        _refuse(cells)
    return cells, notes


def strata(cells: Sequence[Cell]) -> Iterator[tuple[dict[str, Any], list[Cell]]]:
    """What is pooled: (task, a, b and how many cells count, those cells) of every b, by task and over all tasks.

    Paired cells count, or where there are none all that have runs on both sides; one cell alone is not pooled.
    """
    for b in dict.fromkeys(c.b.policy for c in cells):
        mine = [c for c in cells if c.b.policy == b]
        tasks = list(dict.fromkeys(c.task for c in mine))
        groups = [(t, [c for c in mine if c.task == t]) for t in tasks]
        groups += [("all tasks", mine)] if len(tasks) > 1 else []
        for task, group in groups:
            used = [c for c in group if c.paired] or [c for c in group if c.a.rows and c.b.rows]
            if len(group) > 1 and used:
                about = {"task": task, "a": group[0].a.policy, "b": b, "strata_n": len(used)}
                yield about | {"left_out_n": len(group) - len(used)}, used


def first_and_last(cells: Sequence[Cell], by: str, ends: tuple[Any, Any]) -> Iterator[tuple[Cell, Cell]]:
    """The cells between which change along ``by`` is reported, of every b, task and rest of the conditions.

    ``ends`` are the levels; None: from 1 where it was run, else from the first, and to the last. Both have runs that
    count. InputError where a level that is given was not run.
    """
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        rest = tuple((k, v) for k, v in cell.at.items() if k != by)
        groups.setdefault((cell.b.policy, cell.task, *rest), []).append(cell)
    levels = list(dict.fromkeys(cell.at[by] for cell in cells if cell.at[by] is not None))
    ends = level_of(levels, ends[0]), level_of(levels, ends[1])
    for name, end in zip(("nominal", "last"), ends, strict=True):
        if end is not None and end not in levels:
            found = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in levels)
            raise InputError(f"{name} is {end!r}, found {found} in {by}; expected one of these; correct the setting")
    for group in groups.values():
        of = {c.at[by]: c for c in group if c.at[by] is not None}  # an unknown level is none
        if len(levels := list(of)) < 2:
            continue
        first = ends[0] if ends[0] is not None else 1 if 1 in of else levels[0]
        last = ends[1] if ends[1] is not None else levels[-1] if levels[-1] != first else levels[0]
        if first == last or first not in of or last not in of:
            continue
        if all(runs.rows for c in (of[first], of[last]) for runs in (c.a, c.b)):
            yield of[first], of[last]


def _levels(first: Sequence[Row], second: Sequence[Row], conditions: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of conditions that was run, in order; a column that a side lacks comes from the other."""
    lacking = [[c for c in conditions if all(r.get(c) is None for r in rows)] for rows in (first, second)]
    finer = [rows for rows, less in zip((first, second), lacking, strict=True) if len(less) == min(map(len, lacking))]
    levels = dict.fromkeys(tuple(r.get(c) for c in conditions) for rows in finer for r in rows)
    return [dict(zip(conditions, level, strict=True)) for level in sorted(levels, key=_order)]


def _order(level: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers by size, then words, then nothing."""
    return tuple(
        (0, v, "") if isinstance(v, (int, float)) else (2, 0, "") if v is None else (1, 0, str(v)) for v in level
    )


def _divided(rows: Sequence[Row], conditions: Sequence[str]) -> Callable[[Mapping[str, Any]], list[Row]]:
    """The rows of a condition; a column in which no row has a value does not divide them."""
    divides = [c for c in conditions if any(r.get(c) is not None for r in rows)]
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(tuple(row.get(c) for c in divides), []).append(row)
    return lambda at: parts.get(tuple(at[c] for c in divides), [])


def _found(a: Runs, b: Runs, pairing: str, pair_on: str) -> Pairing | None:
    """The pairs of two policies' runs, or why there are none; None where none were asked for."""
    if pairing == "none":
        return None
    if none := "; ".join(dict.fromkeys(runs.uncounted() for runs in (a, b) if not runs.rows)):
        return Pairing(pair_on, (), none)
    return pair_runs(a.rows, b.rows, key=pair_on) if a.success in SUCCESS else _with_values(a, b, pair_on)


def _with_values(a: Runs, b: Runs, pair_on: str) -> Pairing:
    """The pairs that have both values, of all that began alike: a start was run though its value may be unknown."""
    made = pair_runs(a.kept, b.kept, key=pair_on)
    if not made.pairs:
        return made
    places: list[dict[int, int]] = []
    for runs in (a, b):
        known = [k for k, row in enumerate(runs.kept) if row[runs.success] is not None]
        places.append({k: place for place, k in enumerate(known)})
    pairs = tuple((places[0][i], places[1][j]) for i, j in made.pairs if i in places[0] and j in places[1])
    if len(pairs) == len(made.pairs):
        return replace(made, pairs=pairs)
    lacking = [(i not in places[0], j not in places[1]) for i, j in made.pairs]
    sides = {(True, False): f"of {a.policy} alone", (False, True): f"of {b.policy} alone", (True, True): "of both"}
    counts = ", ".join(f"{n} {of}" for which, of in sides.items() if (n := lacking.count(which)))
    note = f"{len(lacking) - len(pairs)} of {len(lacking)} pairs have no {a.success} on a side ({counts})"
    if not pairs:
        return replace(made, pairs=(), problem=f"no pair has {a.success} on both sides: {note}")
    return replace(made, pairs=pairs, note="; ".join(n for n in (note, made.note) if n))


def _counted(cells: Sequence[Cell]) -> None:
    """InputError where a policy has runs and none that counts, in no cell."""
    for side in ("a", "b"):
        runs = [getattr(cell, side) for cell in cells]
        if runs and not any(r.rows for r in runs):
            every = Runs(runs[0].policy, runs[0].success, tuple(row for r in runs for row in r.all_rows))
            raise InputError(
                f"records: {every.uncounted()}; expected at least one that is not excluded and says {every.success}; "
                "correct the records or compare another policy"
            )


def _refuse(cells: Sequence[Cell]) -> None:
    """InputError where a cell's runs cannot be paired; one without runs that count has nothing to pair."""
    bad = [cell for cell in cells if not cell.paired and cell.a.rows and cell.b.rows]
    if not bad:
        return
    of = {cell.b.policy: cell for cell in reversed(bad)}
    problems = "; ".join(f"{c.name}: {c.pairing.problem}" for c in list(of.values())[::-1][:3] if c.pairing)
    raise InputError(
        f"records: {len(bad)} of {len(cells)} cells cannot be paired: {problems}; expected runs from the same starts; "
        "record them, name another key with pair_on=..., or give pairing=auto to compare such cells as unpaired"
    )
