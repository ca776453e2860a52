"""Whether two runs of the same experiments gave the same numbers: every row of every `result.json` of two folders.

    python tools/same_results.py BEFORE AFTER [tolerance=1e-6]

Files are matched by their path under the folder, rows by their quantity. `ours`, `low`, `high`, `published` may
differ by tolerance * max(1, |before|); `n`, `note` and the order of rows may not differ. A file or a row that stands
on one side alone is a difference. Exit code 0: all equal; 1: something differs; 2: it cannot be told.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, TypeGuard

RESULT = "result.json"
NUMBERS = ("ours", "low", "high", "published")
EXACT = ("n", "note")


def differences(before: Path, after: Path, tolerance: float) -> tuple[int, list[str]]:
    """How many rows are equal, and a line for each row, file or order that is not."""
    found = [{p.relative_to(folder) for p in folder.rglob(RESULT)} for folder in (before, after)]
    if not found[0] | found[1]:
        print(f"{before}, {after}: found no {RESULT}, expected one an experiment; check both paths", file=sys.stderr)
        raise SystemExit(2)
    equal_n, lines = 0, []
    for path in sorted(found[0] | found[1]):
        if missing := [folder for folder, its in zip((before, after), found, strict=True) if path not in its]:
            lines.append(f"{path}: not in {missing[0]}")
            continue
        old, new = (_rows(folder / path) for folder in (before, after))
        for quantity in dict.fromkeys([*old, *new]):
            if quantity not in old or quantity not in new:
                lines.append(f"{path}: '{quantity}': not in {before if quantity not in old else after}")
                continue
            told = _differing(old[quantity], new[quantity], tolerance)
            equal_n += not told
            lines += [f"{path}: '{quantity}': {'; '.join(told)}"] if told else []
        common = [q for q in old if q in new]
        if common != [q for q in new if q in old]:
            lines.append(f"{path}: the rows stand in another order")
    return equal_n, lines


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    """Rows by quantity; SystemExit with one sentence where the file cannot be read."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        out = {row["quantity"]: row for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{path}: cannot be read ({error!r}), expected rows with a quantity; run it again", file=sys.stderr)
        raise SystemExit(2) from None
    if len(out) < len(rows):
        print(f"{path}: found a quantity twice in {len(rows)} rows, expected it once; name rows apart", file=sys.stderr)
        raise SystemExit(2)
    return out


def _differing(old: dict[str, Any], new: dict[str, Any], tolerance: float) -> list[str]:
    """What differs between two rows, in words."""
    told = [f"{key} {old.get(key)!r} -> {new.get(key)!r}" for key in EXACT if old.get(key) != new.get(key)]
    for key in NUMBERS:
        x, y = old.get(key), new.get(key)
        if not _near(x, y, tolerance):
            apart = f" ({abs(x - y):.2g} apart)" if isinstance(x, float) and isinstance(y, float) else ""
            told.append(f"{key} {x!r} -> {y!r}{apart}")
    return told


def _near(x: Any, y: Any, tolerance: float) -> bool:
    """Whether two numbers, two lists of them or two nulls are the same but for the tolerance; NaN is like NaN."""
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(_near(a, b, tolerance) for a, b in zip(x, y, strict=True))
    if _is_number(x) and _is_number(y):
        return x == y or (math.isnan(x) and math.isnan(y)) or abs(x - y) <= tolerance * max(1.0, abs(x))
    return type(x) is type(y) and x == y


def _is_number(x: Any) -> TypeGuard[float]:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def main(argv: list[str]) -> int:
    """Prints what differs; returns the exit code."""
    settings = [word for word in argv if word.startswith("tolerance=")]
    folders = [Path(word) for word in argv if word not in settings]
    try:
        tolerance = float(settings[-1].partition("=")[2]) if settings else 1e-6
    except ValueError:
        tolerance = math.nan
    if len(folders) != 2 or not tolerance >= 0:
        print("expected two folders and a tolerance from 0: BEFORE AFTER [tolerance=1e-6]", file=sys.stderr)
        return 2
    if absent := [folder for folder in folders if not folder.is_dir()]:
        print(f"{absent[0]}: there is no such folder, expected one with {RESULT} below; check it", file=sys.stderr)
        return 2
    equal_n, lines = differences(folders[0], folders[1], tolerance)
    print("\n".join([*lines, f"{equal_n} rows equal, {len(lines)} differences"]))
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
