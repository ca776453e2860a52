"""Evaluation records: what came of every episode of every policy, a row an episode, read from any table.

    policy  training_seed  task  speed  told_speed  episode  initial_condition_id  initial_condition_hash
    success_once  success_at_end  stage.<name>  cause  excluded  Q and any other column

Only `policy` must be there. Unknown is None, never False: an episode whose success nobody recorded has success unknown.
`excluded` is the reason why an episode is not counted, or yes; empty or no where it is counted. A store's
`episodes.parquet` and the `scores.parquet` of `jaxeval score` are such tables too: their column `attribute.X` is read
as `X`, so that the policy, its training seed and the speed it was told come from the episodes' attributes. Of stores
without attributes (format 1) the policy is given with the path, or taken from their group (columns.policy=group).
"""

from __future__ import annotations

import glob
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError
from jaxeval.io.files import children, once
from jaxeval.io.records.outcome_counts import is_counts, rows_of_counts, with_stages
from jaxeval.io.store.attributes import PREFIX
from jaxeval.io.tables import NAMES, QUANTITIES, SUFFIXES, Table, few, name_of, read_table, written_apart

BUNDLED = "bundled:"
SUCCESS = ("success_at_end", "success_once")
STAGE = "stage."
ALIASES = {
    "success": "success_at_end", "train_seed": "training_seed", "model_seed": "training_seed", "episode_id": "episode",
}  # fmt: skip
"""Other names of columns, taken where the column itself is not there."""
SAME = 1e-5
"""Two numbers that differ by a smaller share are one, of which one was kept in float32."""
COUNTS, STAGE_COUNTS, CAUSE_COUNTS = "matched_outcomes.csv", "stage_counts.csv", "cause_counts.csv"
"""A folder with a table of the first name is published counts, not rows."""

NOT_EXCLUDED = ("", "none", "null", "nan")
"""What `excluded` says, besides the words for false, where an episode is counted."""
WORDS: dict[str, bool] = {word: True for word in ("true", "t", "yes", "y", "1", "1.0")}
WORDS |= {word: False for word in ("false", "f", "no", "n", "0", "0.0")}
"""Words for true and false, in lower case."""

Fault = tuple[str, str]
"""A column, and what is wrong with its cell."""
Where = str | Path | Sequence[str | Path] | Mapping[str, Any]


@dataclass(frozen=True)
class Records:
    """Evaluation records, one row a run, with notes and refused rows. ``places``: file and line of each row.

    ``refused`` says which rows and files were left out and why: of many rows with one fault in one column of a file the
    first few, and a count. ``notes`` are what a reader of a result must know.
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
                f"records: no policy '{policy}', found {shortened(self.policies, 20)}; expected one of these; "
                "correct a=... or b=..."
            )
        return [k for k, row in enumerate(self.rows) if row["policy"] == policy]


def read_records(where: Where, *, columns: Mapping[str, str] | None = None, names: Collection[str] = ()) -> Records:
    """Records of a file, a glob, a folder, a list of these, ``bundled:NAME``, or {policy: any of these}.

    ``columns`` names columns that are called something else in the files: {"policy": "group"}. A row with a cell that
    cannot be is left out, and so is a file of a folder that holds no records; ``refused`` tells which. Policies, tasks,
    causes, episodes, seeds and what names a start are text, the same from every format; so are columns in ``names``,
    and those in which one number is written in two ways (`tables.written_apart`).

    Raises:
        InputError: nothing there, no file that can be read, or no column that says which policy it was.
    """
    rows: list[dict[str, Any]] = []
    places: list[str] = []
    refused: list[str] = []
    notes: list[str] = []
    text = {*NAMES, *names, *(old for new, old in (columns or {}).items() if new in NAMES)}
    files: list[tuple[str | None, Path, bool]] = []
    for _, of_policy in groupby(sorted(_files(where), key=lambda f: f[0] or ""), key=lambda f: f[0]):
        kept, twice = once(of_policy, lambda f: f[1])
        files, notes = files + kept, notes + twice
    text |= written_apart(path for _, path, _ in files)
    for policy, path, alone in files:
        try:
            table = read_table(path, names=text | {PREFIX + name for name in text})
            made = _records(table, policy, {new: _bare(old) for new, old in (columns or {}).items()}, notes)
        except InputError as error:
            if alone:
                raise
            refused.append(str(error))
            continue
        refused += table.refused
        faults: dict[str, list[str]] = {}
        for place, row, fault in made:
            if fault:
                faults.setdefault(fault[0], []).append(f"{place}: {fault[1]}; the row is left out")
            else:
                places.append(place)
                rows.append(row)
        refused += [sentence for sentences in faults.values() for sentence in few(path, sentences)]
    if not rows:
        why = f": {refused[0]}" if refused else "; check the path"
        raise InputError(f"records {where}: no row could be read, expected a row an episode{why}")
    return Records(tuple(rows), tuple(places), tuple(refused), tuple([*notes, *_unknown(rows)]))


# ------------------------------------------------------------------------------------------------------------- files


def in_package(path: str | Path) -> Path:
    """Where the package keeps ``bundled:NAME``; any other path as it is. InputError where there is no such data."""
    text = str(path)
    if not text.startswith(BUNDLED):
        return Path(path)
    found = Path(str(resources.files("jaxeval"))) / "data" / text.removeprefix(BUNDLED)
    if not found.exists():
        raise InputError(f"{text}: no such data in the package; expected bundled:parcelstow or a bundled store")
    return found


def _files(where: Where, policy: str | None = None) -> Iterator[tuple[str | None, Path, bool]]:
    """(policy, file, whether it was named itself and not found in a folder)."""
    if isinstance(where, Mapping):
        for name, of_policy in where.items():
            yield from _files(of_policy, str(name))
        return
    if not isinstance(where, (str, Path)):
        if not isinstance(where, Sequence):
            raise InputError(
                f"records: found {where!r}, expected a path, a list of paths, or a path a policy; correct the setting"
            )
        if not where:
            raise InputError("records: the list of files is empty; expected at least one; name a file or a folder")
        for one in where:
            yield from _files(one, policy)
        return
    text = str(where)
    if not text.strip():
        raise InputError("records: the path is empty, expected a file, a folder or a glob; give records=PATH")
    if text.startswith(BUNDLED):
        yield from ((policy, f, a) for f, a in _inside(in_package(text)))
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
    inside = children(path)
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
) -> list[tuple[str, dict[str, Any], Fault | None]]:
    """(file and line, row, what is wrong with it if anything) of every record."""
    if is_counts(table):
        rows, said = rows_of_counts(table)
        beside = [table.path.with_name(n) for n in (STAGE_COUNTS, CAUSE_COUNTS)]
        if all(p.is_file() for p in beside):
            rows = with_stages(rows, table, *(read_table(p) for p in beside))
        notes += said
        return [(str(table.path), row, None) for row in rows]
    table = _without_prefix(table)
    names = _names(table, renamed, policy, notes)
    old = next((old for old, new in names.items() if new == "policy"), None)
    own = dict.fromkeys(str(found[old]) for found in table.rows if found[old] is not None) if old and policy else {}
    if len(own) > 1:
        notes.append(f"{table.path}: all is read as {policy} as asked, though its `{old}` says {shortened(list(own))}")
    out = []
    odd: Counter[tuple[str, str]] = Counter()
    for k, found in enumerate(table.rows):
        row = {new: found[old] for old, new in names.items()}
        if policy is not None:
            row["policy"] = policy
        out.append((table.where(k), row, _put_right(row, odd)))
    notes += [
        f"{table.path}: {key} is {value} in {n} of {len(table)} rows, expected a finite number; it is unknown there"
        for (key, value), n in odd.items()
    ]
    return out


def _without_prefix(table: Table) -> Table:
    """The table with every column ``attribute.X`` as ``X``.

    Raises:
        InputError: the table has a column ``X`` too, and the two disagree in a row.
    """
    attributes = [c for c in table.columns if c.startswith(PREFIX)]
    if not attributes:
        return table
    rows = [{c: v for c, v in row.items() if not c.startswith(PREFIX)} for row in table.rows]
    for column in attributes:
        name = column.removeprefix(PREFIX)
        for k, (row, old) in enumerate(zip(rows, table.rows, strict=True)):
            former, found = old[column], row.get(name)
            if found is not None and former is not None and not _alike(found, former):
                raise InputError(
                    f"{table.where(k)}: {name} is {found!r} and {column} is {former!r}, expected one value in both; "
                    "leave out the column that is wrong",
                    key=name,
                )
            row[name] = former if found is None else found
    columns = tuple(dict.fromkeys(c.removeprefix(PREFIX) for c in table.columns))
    return replace(table, columns=columns, rows=tuple({c: row[c] for c in columns} for row in rows))


def _bare(column: str) -> str:
    return column.removeprefix(PREFIX)


def _alike(a: Any, b: Any) -> bool:
    """The same, as numbers where both are, else as text."""
    x, y = _number(a), _number(b)
    if x is not None and y is not None:
        return math.isclose(x, y, rel_tol=SAME)
    return a == b or name_of(a) == name_of(b)


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
            f"{table.path}: no column 'policy', found {shortened(table.columns, 20)}; expected the policy of every "
            f"row; give it with the path (records.NAME=PATH){hint}"
        )
    return names


def _put_right(row: dict[str, Any], odd: Counter[tuple[str, str]]) -> Fault | None:
    """Gives every known column of a row its type; returns what cannot be, if anything.

    Numbers that are not finite are unknown; ``odd`` counts them by column and by what was found.
    """
    fault: Fault | None = None
    for key, value in row.items():
        if value is None:
            continue
        if key in NAMES:
            row[key] = name_of(value)
        elif key in QUANTITIES:
            number = row[key] = _number(value)
            if number is None:
                hint = "correct the cell" + ("" if key == "Q" else ", or rename the column and name it with by=...")
                fault = key, f"{key} is {value!r}, expected a number; {hint}"
            elif not math.isfinite(number):
                odd[key, repr(value)] += 1
                row[key] = None
        elif key in SUCCESS or key.startswith(STAGE):
            row[key] = truth_of(value)
            if row[key] is None:
                fault = key, f"{key} is {value!r}, expected true, false, yes, no, 1, 0 or nothing; correct the cell"
        elif key == "excluded":
            row[key] = _reason(value)
    for key in ("task", "training_seed", "episode", "initial_condition_id", "initial_condition_hash", *SUCCESS):
        row.setdefault(key, None)
    if row.get("policy") is None:
        return "policy", "policy is empty, expected the policy's name; fill the cell"
    return fault


def _number(value: Any) -> float | int | None:
    if isinstance(value, str):
        try:
            return None if "_" in value else float(value)
        except ValueError:
            return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _reason(value: Any) -> str | None:
    """Why an episode is not counted; None where it is."""
    truth, text = truth_of(value), str(value).strip()
    if truth is False or text.lower() in NOT_EXCLUDED:
        return None
    return "excluded" if truth else text


def truth_of(value: Any) -> bool | None:
    """What a cell says: true/false, yes/no (also t, f, y, n) in any case, 1 and 0 as number or text; else None.

    >>> [truth_of(cell) for cell in (True, "No", 1.0, "0", 2, "perhaps", None)]
    [True, False, True, False, None, None, None]
    """
    if isinstance(value, str):
        return WORDS.get(value.strip().lower())
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def _unknown(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What no row, or not every row, says of success."""
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        lost = sum(all(row[s] is None for s in SUCCESS) for row in mine)
        if lost:
            yield f"{policy}: success unknown in {lost} of {len(mine)} episodes; they are in no rate"


def without_repeats(
    rows: Sequence[Mapping[str, Any]], keep: Sequence[int], conditions: Sequence[str], *, success: str | None = None
) -> tuple[list[int], list[str]]:
    """The indexes ``keep`` with every run once, and a sentence for each policy of which some were there more often.

    A run is (policy, training seed, task, conditions, start); the start is the initial condition's id, else the
    episode. Of a run that was repeated the first row stays that counts: not excluded, and its ``success`` (None: either
    of the two) known; where none counts, the first. Rows without a start are all kept.
    """
    wanted = SUCCESS if success is None else (success,)

    def counts(k: int) -> bool:
        return rows[k].get("excluded") is None and any(rows[k][s] is not None for s in wanted)

    runs: dict[tuple[Any, ...], list[int]] = {}
    for k in keep:
        row = rows[k]
        start = row["initial_condition_id"] if row["initial_condition_id"] is not None else row["episode"]
        key = (row["policy"], row["training_seed"], row["task"], *(row.get(c) for c in conditions), start)
        runs.setdefault(key if start is not None else (k,), []).append(k)
    kept: set[int] = set()
    starts: dict[str, list[str]] = {}
    differing: Counter[str] = Counter()
    for key, run in runs.items():
        best = next((k for k in run if counts(k)), run[0])
        kept.add(best)
        if len(run) > 1:
            policy = rows[best]["policy"]
            starts.setdefault(policy, []).extend([str(key[-1])] * (len(run) - 1))
            differing[policy] += sum(counts(k) and any(rows[k][s] != rows[best][s] for s in wanted) for k in run)
    said = [
        f"{policy}: {len(of)} rows repeat a run of the same seed, task, condition and start ({shortened(of)}), "
        f"{differing[policy]} of them with another outcome; of each the first that counts is kept"
        for policy, of in starts.items()
    ]
    return [k for k in keep if k in kept], said


def shortened(names: Sequence[str], n: int = 5) -> str:
    """The first few names, and how many more there are.

    >>> shortened(["3", "7", "12"], 2)
    '3, 7 and 1 more'
    """
    names = [str(name) for name in names]
    return ", ".join(names) if len(names) <= n else f"{', '.join(names[:n])} and {len(names) - n} more"
