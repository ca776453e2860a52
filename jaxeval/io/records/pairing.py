"""Which runs of two policies began alike: a join on the start's id, verified by the recorded start itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxeval.io.records.records import shortened

Row = Mapping[str, Any]
KEYS = ("initial_condition_id", "initial_condition_hash", "seed", "episode")
"""Columns that may name a start, the surest first."""


@dataclass(frozen=True)
class Pairing:
    """Pairs of rows that began alike, as indexes into the two lists; or why there are none.

    ``problem`` says why the runs must not be paired, and is empty where they may; ``note`` what a reader must know
    of the pairs. ``mismatched`` are ids that match while what is known of the starts differs.
    """

    key: str
    pairs: tuple[tuple[int, int], ...]
    problem: str = ""
    note: str = ""
    mismatched: tuple[str, ...] = ()


def pair_runs(a: Sequence[Row], b: Sequence[Row], *, key: str = KEYS[0]) -> Pairing:
    """Pairs the runs of a and b, which are of one task and one condition, on ``key``.

    Every training seed's run of a start is paired with the other policy's one run of it; where both have several
    seeds, with the run of the equal seed. A pair is right when both hashes are equal (where `initial_condition_hash`
    is known on both sides; else, where ``key`` is the episode's number, when both environment seeds are). One pair that
    is not right spoils them all: the ids then do not name starts.
    """
    name_a, name_b = _policy(a), _policy(b)
    for one, other in ((a, name_b), (b, name_a)):
        partner = next((r["paired_with"] for r in one if r.get("paired_with") is not None), other)
        if partner not in (other, _policy(one)):
            return Pairing(key, (), f"the counts of {_policy(one)} give its pairs with {partner} only")
    runs_a, runs_b = _by_start(a, key), _by_start(b, key)
    for name, rows, runs in ((name_a, a, runs_a), (name_b, b, runs_b)):
        if not runs:
            return Pairing(key, (), f"{name} has no {key} ({len(rows)} of {len(rows)} unknown){_other_key(a, b, key)}")
    common = [start for start in runs_a if start in runs_b]
    if not common:
        return Pairing(key, (), f"no {key} of {name_a} is one of {name_b}{_other_key(a, b, key)}")
    seeds_a, seeds_b = (dict.fromkeys(s for runs in r.values() for s in runs) for r in (runs_a, runs_b))
    several = len(seeds_a) > 1 and len(seeds_b) > 1
    if several and not (set(seeds_a) & set(seeds_b)):
        detail = f"training seeds {shortened(list(seeds_a))} of {name_a}, {shortened(list(seeds_b))} of {name_b}"
        return Pairing(key, (), f"both have several training seeds and none in common ({detail})")
    pairs = [
        (i, j)
        for start in common
        for seed_a, i in runs_a[start].items()
        for seed_b, j in runs_b[start].items()
        if not several or seed_a == seed_b
    ]
    wrong, unchecked = _differing(a, b, pairs, key)
    if wrong:
        starts = list(dict.fromkeys(str(a[i][key]) for i, _ in wrong))
        what = "initial_condition_hash" if _hashed(a, b, *wrong[0]) else "seed"
        detail = f"{len(wrong)} of {len(pairs)} pairs of equal {key} did not begin alike: {what} differs at"
        return Pairing(key, (), f"{detail} {shortened(starts)}{_other_key(a, b, key)}", mismatched=tuple(starts))
    notes = []
    if all(a[i].get("paired_with") is not None for i, _ in unchecked):
        notes += ["pairs as the publication counted them"] if unchecked else []
    elif unchecked:
        notes.append(f"{len(unchecked)} of {len(pairs)} pairs rest on {key} alone: no hash of how they began")
        others = sum(_both_known(a, b, i, j, "seed") and a[i]["seed"] != b[j]["seed"] for i, j in unchecked)
        notes += [f"in {others} of these `seed` differs"] if others else []
    for name, runs, other in ((name_a, runs_a, runs_b), (name_b, runs_b, runs_a)):
        if alone := [s for s in runs if s not in other]:
            runs_n = sum(len(runs[s]) for s in alone)
            detail = f" ({runs_n} runs)" if runs_n > len(alone) else ""
            notes.append(f"{len(alone)} of {name}'s starts{detail} were not run by the other")
    for name, rows, runs in ((name_a, a, runs_a), (name_b, b, runs_b)):
        if lost := len(rows) - sum(len(r) for r in runs.values()):
            notes.append(f"{lost} of {name}'s runs have no {key} of their own")
    for side, (name, rows, runs) in enumerate(((name_a, a, runs_a), (name_b, b, runs_b))):
        in_pairs = {pair[side] for pair in pairs}
        left = [rows[k]["training_seed"] for s in common for k in runs[s].values() if k not in in_pairs]
        if left:
            seeds = shortened(sorted(map(str, set(left))))
            detail = f"{len(left)} of {name}'s {len(rows)} runs (training seed {seeds})"
            notes.append(f"{detail} are in no pair: the other has no run of their seed")
    if several:
        notes.append("training seeds are paired by their number")
    return Pairing(key, tuple(pairs), note="; ".join(notes))


def _policy(rows: Sequence[Row]) -> str:
    return str(rows[0]["policy"]) if rows else "the other"


def _by_start(rows: Sequence[Row], key: str) -> dict[Any, dict[Any, int]]:
    """start -> training seed -> index; the first run of each."""
    out: dict[Any, dict[Any, int]] = {}
    for k, row in enumerate(rows):
        if (start := row.get(key)) is not None:
            out.setdefault(start, {}).setdefault(row.get("training_seed"), k)
    return out


def _both_known(a: Sequence[Row], b: Sequence[Row], i: int, j: int, column: str) -> bool:
    return a[i].get(column) is not None and b[j].get(column) is not None


def _hashed(a: Sequence[Row], b: Sequence[Row], i: int, j: int) -> bool:
    return _both_known(a, b, i, j, "initial_condition_hash")


def _differing(
    a: Sequence[Row], b: Sequence[Row], pairs: Sequence[tuple[int, int]], key: str
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Pairs known to have begun differently, and pairs of which that cannot be told."""
    wrong, unchecked = [], []
    for i, j in pairs:
        if _hashed(a, b, i, j):
            by = "initial_condition_hash"
        elif key == "episode" and _both_known(a, b, i, j, "seed"):
            by = "seed"
        else:
            unchecked.append((i, j))
            continue
        if a[i][by] != b[j][by]:
            wrong.append((i, j))
    return wrong, unchecked


def _other_key(a: Sequence[Row], b: Sequence[Row], besides: str) -> str:
    """Which other column would pair the runs, as the end of a sentence; empty where none does."""
    said = []
    for key in KEYS:
        if key == besides:
            continue
        runs_a, runs_b = _by_start(a, key), _by_start(b, key)
        common = [s for s in runs_a if s in runs_b]
        if not common:
            continue
        pairs = [(i, j) for s in common for i in runs_a[s].values() for j in runs_b[s].values()]
        wrong, _ = _differing(a, b, pairs, key)
        if wrong:
            said.append(f"{key} matches but its starts differ in {len(wrong)} of {len(pairs)}")
        else:
            said.append(f"{key} matches in {len(common)} of {max(len(runs_a), len(runs_b))}")
    return f"; {', '.join(said)}" if said else "; no other column matches either"
