"""Evaluation records: what came of every episode of every policy, a row an episode, read from any table.

    policy  training_seed  task  speed  told_speed  episode  initial_condition_id  initial_condition_hash
    success_once  success_at_end  stage.<name>  cause  excluded  Q and any other column

Only `policy` must be there. Unknown is None, never False: an episode whose success nobody recorded has success unknown.
`excluded` is the reason why an episode is not counted. A store's `episodes.parquet` and the `scores.parquet` of
`jaxeval score` are such tables too; both lack `policy`, which is then given with the path.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError
from jaxeval.io.outcome_counts import is_counts, rows_of_counts, with_stages
from jaxeval.io.tables import SUFFIXES, Table, read_table

BUNDLED = "bundled:"
SUCCESS = ("success_at_end", "success_once")
STAGE = "stage."
ALIASES = {
    "success": "success_at_end", "train_seed": "training_seed", "model_seed": "training_seed", "episode_id": "episode",
}  # fmt: skip
"""Other names of columns, taken where the column itself is not there."""
TEXT = ("policy", "task", "cause", "initial_condition_id", "initial_condition_hash")
NUMBERS = ("speed", "told_speed", "Q")
COUNTS, STAGE_COUNTS, CAUSE_COUNTS = "matched_outcomes.csv", "stage_counts.csv", "cause_counts.csv"
"""A folder with a table of the first name is published counts, not rows."""

Where = str | Path | Sequence[str | Path] | Mapping[str, Any]


@dataclass(frozen=True)
class Records:
    """Rows of every file, and what was said on the way. ``places``: file and line of each row.

    ``refused`` holds a sentence for each row or file that was left out; ``notes`` what a reader of a result must know.
    """

    rows: tuple[dict[str, Any], ...]
    places: tuple[str, ...]
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that some row has, in order of appearance."""
        return tuple(dict.fromkeys(key for row in self.rows for key in row))

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies in order of appearance."""
        return tuple(dict.fromkeys(row["policy"] for row in self.rows))

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, in order of their columns."""
        return tuple(c.removeprefix(STAGE) for c in self.columns if c.startswith(STAGE))

    def of(self, policy: str) -> list[int]:
        """Indexes of a policy's rows. InputError where there are none."""
        if policy not in self.policies:
            raise InputError(
                f"records: no policy '{policy}', found {', '.join(self.policies)}; expected one of these; "
                "correct a=... or b=..."
            )
        return [k for k, row in enumerate(self.rows) if row["policy"] == policy]


def read_records(where: Where, *, columns: Mapping[str, str] | None = None) -> Records:
    """Records of a file, a glob, a folder, a list of these, ``bundled:NAME``, or {policy: any of these}.

    ``columns`` names columns that are called something else in the files: {"policy": "group"}. A row with a cell that
    cannot be is left out, and so is a file of a folder that holds no records; each is told in ``refused``.

    Raises:
        InputError: nothing there, no file that can be read, or no column that says which policy it was.
    """
    rows: list[dict[str, Any]] = []
    places: list[str] = []
    refused: list[str] = []
    notes: list[str] = []
    for policy, path, alone in _files(where):
        try:
            table = read_table(path)
            made = _records(table, policy, columns or {}, notes)
        except InputError as error:
            if alone:
                raise
            refused.append(str(error))
            continue
        refused += table.refused
        for place, row, fault in made:
            if fault:
                refused.append(f"{place}: {fault}; the row is left out")
            else:
                places.append(place)
                rows.append(row)
    if not rows:
        why = f": {refused[0]}" if refused else "; check the path"
        raise InputError(f"records {where}: no row could be read, expected a row an episode{why}")
    return Records(tuple(rows), tuple(places), tuple(refused), tuple([*notes, *_unknown(rows)]))


# ------------------------------------------------------------------------------------------------------------- files


def _files(where: Where, policy: str | None = None) -> Iterator[tuple[str | None, Path, bool]]:
    """(policy, file, whether it was named itself and not found in a folder)."""
    if isinstance(where, Mapping):
        for name, of_policy in where.items():
            yield from _files(of_policy, str(name))
        return
    if not isinstance(where, (str, Path)):
        if not where:
            raise InputError("records: the list of files is empty; expected at least one; name a file or a folder")
        for one in where:
            yield from _files(one, policy)
        return
    text = str(where)
    if text.startswith(BUNDLED):
        path = Path(str(resources.files("jaxeval"))) / "data" / text.removeprefix(BUNDLED)
        if not path.exists():
            raise InputError(f"{text}: no such data in the package; expected bundled:parcelstow or a bundled store")
        yield from ((policy, f, a) for f, a in _inside(path))
    elif Path(text).exists():
        yield from ((policy, f, a) for f, a in _inside(Path(text)))
    elif found := sorted(glob.glob(text, recursive=True)):
        for one in found:
            yield from ((policy, f, a) for f, a in _inside(Path(one)))
    else:
        raise InputError(f"{text}: there is no such file or folder, expected evaluation records; check the path")


def _inside(path: Path) -> Iterator[tuple[Path, bool]]:
    """The tables of a folder: a store's or a scored set's one, published counts, or every table below it."""
    if path.is_file():
        yield path, True
        return
    for name in (COUNTS, "scores.parquet", "episodes.parquet"):
        if (path / name).is_file():
            yield path / name, True
            return
    inside = sorted(p for p in path.iterdir() if not p.name.startswith("."))
    found = [(f, False) for p in inside if p.is_dir() for f, _ in _inside_or_none(p)]
    found += [(p, False) for p in inside if p.is_file() and p.suffix.lower() in SUFFIXES and p.suffix != ".json"]
    if not found:
        raise InputError(f"{path}: found no table in the folder, expected {', '.join(SUFFIXES)}; check the path")
    yield from found


def _inside_or_none(path: Path) -> list[tuple[Path, bool]]:
    try:
        return list(_inside(path))
    except InputError:
        return []


# -------------------------------------------------------------------------------------------------------------- rows


def _records(
    table: Table, policy: str | None, renamed: Mapping[str, str], notes: list[str]
) -> list[tuple[str, dict[str, Any], str]]:
    """(file and line, row, what is wrong with it if anything) of every record."""
    if is_counts(table):
        rows, said = rows_of_counts(table)
        beside = [table.path.with_name(n) for n in (STAGE_COUNTS, CAUSE_COUNTS)]
        if all(p.is_file() for p in beside):
            rows = with_stages(rows, table, *(read_table(p) for p in beside))
        notes += said
        return [(str(table.path), row, "") for row in rows]
    names = _names(table, renamed, policy, notes)
    out = []
    for k, found in enumerate(table.rows):
        row = {new: found[old] for old, new in names.items()}
        if policy is not None:
            row["policy"] = policy
        out.append((table.where(k), row, _put_right(row)))
    return out


def _names(table: Table, renamed: Mapping[str, str], policy: str | None, notes: list[str]) -> dict[str, str]:
    """Column in the file -> column in the records."""
    for new, old in renamed.items():
        if old not in table.columns:
            raise InputError(
                f"{table.path}: no column '{old}', found {', '.join(table.columns)}; expected it for columns.{new}; "
                "correct the setting"
            )
    taken = {old: new for new, old in renamed.items()}
    names = {c: taken.get(c, c) for c in table.columns if c in taken or c not in renamed}
    for old, new in ALIASES.items():
        if old in names and names[old] == old and new not in names.values():
            names[old] = new
            if old == "success":
                notes.append(f"{table.path}: the column `success` is read as success_at_end")
    if "policy" not in names.values() and policy is None:
        hint = ", or columns.policy=group" if "group" in table.columns else ""
        raise InputError(
            f"{table.path}: no column 'policy', found {', '.join(table.columns)}; expected the policy of every row; "
            f"give it with the path (records.NAME=PATH){hint}"
        )
    return names


def _put_right(row: dict[str, Any]) -> str:
    """Gives every known column of a row its type, and says what cannot be, if anything."""
    fault = "" if row.get("policy") is not None else "policy is empty, expected the policy's name; fill the cell"
    for key, value in row.items():
        if value is None:
            continue
        if key in TEXT:
            row[key] = _name(value)
        elif key in NUMBERS:
            row[key] = _number(value)
            if row[key] is None:
                fault = f"{key} is {value!r}, expected a number; correct the cell"
        elif key in SUCCESS or key.startswith(STAGE):
            row[key] = _truth(value)
            if row[key] is None:
                fault = f"{key} is {value!r}, expected true, false, 1, 0 or nothing; correct the cell"
        elif key == "excluded":
            truth = _truth(value)
            row[key] = (str(value) if truth is None else "excluded" if truth else None) or None
    for key in ("task", "training_seed", "episode", "initial_condition_id", "initial_condition_hash", *SUCCESS):
        row.setdefault(key, None)
    return fault


def _number(value: Any) -> float | int | None:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _name(value: Any) -> str:
    """A name as text: 3, 3.0 and "3" are one."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _truth(value: Any) -> bool | None:
    """True or False where the cell says so, else None."""
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False}.get(value.strip().lower())
    return bool(value) if value in (0, 1) else None


def _unknown(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What no row, or not every row, says of success."""
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        lost = sum(all(row[s] is None for s in SUCCESS) for row in mine)
        if lost:
            yield f"{policy}: success unknown in {lost} of {len(mine)} episodes; they are in no rate"


def without_repeats(
    rows: Sequence[Mapping[str, Any]], keep: Sequence[int], conditions: Sequence[str]
) -> tuple[list[int], list[str]]:
    """The indexes ``keep`` less those of a run that was there before, and a sentence for each policy that had some.

    A run is (policy, training seed, task, conditions, start); the start is the initial condition's id, else the
    episode. Rows without either are all kept.
    """
    seen: dict[tuple[Any, ...], int] = {}
    kept: list[int] = []
    repeats: dict[str, list[str]] = {}
    differing: dict[str, int] = {}
    for k in keep:
        row = rows[k]
        start = row["initial_condition_id"] if row["initial_condition_id"] is not None else row["episode"]
        key = (row["policy"], row["training_seed"], row["task"], *(row.get(c) for c in conditions), start)
        if start is None or key not in seen:
            seen[key] = k
            kept.append(k)
            continue
        repeats.setdefault(row["policy"], []).append(str(start))
        first = rows[seen[key]]
        differing[row["policy"]] = differing.get(row["policy"], 0) + any(first[s] != row[s] for s in SUCCESS)
    said = [
        f"{policy}: {len(starts)} rows repeat a run of the same seed, task, condition and start "
        f"({shortened(starts)}), {differing[policy]} of them with another outcome; the first of each is kept"
        for policy, starts in repeats.items()
    ]
    return kept, said


def shortened(names: Sequence[str], n: int = 5) -> str:
    """The first few names, and how many more there are.

    >>> shortened(["3", "7", "12"], 2)
    '3, 7 and 1 more'
    """
    names = [str(name) for name in names]
    return ", ".join(names) if len(names) <= n else f"{', '.join(names[:n])} and {len(names) - n} more"
