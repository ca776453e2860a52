"""Two runs of the same experiments, row by row: what counts as a difference and what does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from same_results import main  # pyright: ignore[reportMissingImports]

ROWS = [
    {"quantity": "clean Q", "ours": 0.99, "low": 0.98, "high": 1.0, "n": 10, "published": [0.9, 1.0], "note": "mean"},
    {"quantity": "jerk", "ours": 4e5, "low": None, "high": None, "n": None, "published": None, "note": ""},
]


def written(folder: Path, rows: list[dict[str, Any]], name: str = "spectra") -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "result.json").write_text(json.dumps({"rows": rows, "command": str(folder)}))
    return folder


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, None),
        ({"ours": 0.99 + 5e-7}, None),
        ({"ours": 0.99 + 5e-6}, "ours 0.99 -> 0.990005 (5e-06 apart)"),
        ({"ours": None}, "ours 0.99 -> None"),
        ({"low": 0.97}, "low 0.98 -> 0.97"),
        ({"n": 11}, "n 10 -> 11"),
        ({"published": [0.9]}, "published [0.9, 1.0] -> [0.9]"),
        ({"note": "median"}, "note 'mean' -> 'median'"),
        ({"quantity": "Q"}, "'clean Q': not in"),
    ],
)
def test_a_row_is_equal_or_told(changed: dict, told: str | None, tmp_path: Path, capsys: Any) -> None:
    before, after = written(tmp_path / "b", ROWS), written(tmp_path / "a", [ROWS[0] | changed, ROWS[1]])
    assert main([str(before), str(after)]) == (told is not None)
    said = capsys.readouterr().out
    assert ("2 rows equal, 0 differences" in said) if told is None else (told in said and "1 rows equal" in said)


def test_large_numbers_may_differ_by_their_share_and_the_tolerance_is_a_setting(tmp_path: Path) -> None:
    before, after = written(tmp_path / "b", ROWS), written(tmp_path / "a", [ROWS[0], ROWS[1] | {"ours": 4e5 + 0.3}])
    assert main([str(before), str(after)]) == 0
    assert main([str(before), str(after), "tolerance=1e-9"]) == 1


def test_what_stands_on_one_side_alone_is_a_difference(tmp_path: Path, capsys: Any) -> None:
    before, after = written(tmp_path / "b", ROWS), written(tmp_path / "a", ROWS[::-1])
    assert main([str(before), str(after)]) == 1 and "another order" in capsys.readouterr().out
    written(before, ROWS, "more")
    assert main([str(before), str(after)]) == 1 and f"more/result.json: not in {after}" in capsys.readouterr().out


def test_what_cannot_be_told_is_said(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "none"), str(tmp_path)]) == 2 and "no such folder" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    for broken in ("{", json.dumps({"rows": [ROWS[0], ROWS[0]]})):
        (tmp_path / "result.json").write_text(broken)
        with pytest.raises(SystemExit) as stop:
            main([str(tmp_path), str(tmp_path)])
        assert stop.value.code == 2
    with pytest.raises(SystemExit):
        main([str(tmp_path / "empty"), str(tmp_path / "empty")])
