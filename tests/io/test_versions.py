"""Text that looks like numbers and is none: versions 1.1 and 1.10 stay apart, speeds 0.5 and 0.50 are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jaxeval.cli import main
from jaxeval.cli_words import overrides
from jaxeval.io.errors import InputError
from jaxeval.io.records import read_records
from jaxeval.io.tables import written_apart
from jaxeval.run.agree import agree
from jaxeval.run.compare_cells import Cell, level_of
from jaxeval.run.holdouts import in_order


def rows(*versions: str, n: int = 4) -> str:
    lines = [
        f"{p},{v},{k},h{k},{(k + len(v) + len(p)) % 2},0.5" for p in ("a", "bb") for v in versions for k in range(n)
    ]
    return "\n".join(["policy,version,initial_condition_id,initial_condition_hash,success,speed", *lines]) + "\n"


def levels(where: object) -> dict[object, int]:
    return dict(Counter(row["version"] for row in read_records(where).rows))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "apart"),
    [
        ([["1.1", "1.10"]], True),
        ([["1.1"], ["1.10"]], True),
        ([["7", "007"]], True),
        ([["1.1", "main"]], False),  # is text already
        ([["1.1"], ["main"]], True),  # and so in both files
        ([["1", "1.0"]], False),
        ([["1"], ["1.0", "2.5"]], False),
        ([["0.5", "1", "", "1.5"]], False),
        ([["true"], ["1"]], False),
        ([["1.1", ""], ["1.1"]], False),
    ],
)
def test_columns_in_which_one_number_is_written_in_two_ways(
    tmp_path: Path, columns: list[list[str]], apart: bool
) -> None:
    for k, cells in enumerate(columns):
        body = "".join(f"{cell},0.5{'0' * (i % 2)}\n" for i, cell in enumerate(cells))
        (tmp_path / f"{k}.csv").write_text(f"version,speed\n{body}")
    (tmp_path / "not.csv").write_bytes(b"\xff\xfe\x00")
    assert written_apart(sorted(tmp_path.iterdir())) == ({"version"} if apart else set())


def test_versions_are_conditions_apart(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(rows("1.1", "1.10"))
    assert levels(tmp_path / "r.csv") == {"1.1": 8, "1.10": 8}
    for name, version in (("x", "1.1"), ("y", "1.10")):
        (tmp_path / f"{name}.csv").write_text(rows(version))
    assert levels([tmp_path / "x.csv", tmp_path / "y.csv"]) == {"1.1": 8, "1.10": 8}
    assert levels(tmp_path / "x.csv") == {1.1: 8}
    assert {row["speed"] for row in read_records(tmp_path / "r.csv").rows} == {0.5}


def test_compare_by_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.csv").write_text(rows("1.1", "1.10", n=6))
    got: list[Any] = []

    def asked(cells: Sequence[Cell], by: str, ends: tuple[Any, Any], settings: Any) -> None:
        there = [cell.at[by] for cell in cells]
        got.extend([there, *(level_of(there, end) for end in ends)])
        raise InputError("asked")

    monkeypatch.setattr("jaxeval.run.compare._decreases", asked)
    words = ["compare", f"records={tmp_path}/r.csv", "a=a", "b=bb", "by=version", f"out={tmp_path}/o"]
    assert main([*words, "resamples_n=100", "nominal=1.10", "last=1.1"]) == 1
    assert got == [["1.1", "1.10"], "1.10", "1.1"]


def test_numbers_that_are_typed_as_names_stay_as_they_are() -> None:
    assert overrides("compare", ["nominal=1.10", "last=2"]) == ["nominal='1.10'", "last=2"]
    assert overrides("agree", ["fit=[1.10,1.5,a]"]) == ["fit=['1.10',1.5,a]"]
    assert overrides("compare", ["nominal=0.5", "last=null"]) == ["nominal=0.5", "last=null"]
    assert overrides("convert", ["group=1.10", "rename.x=1.10"]) == ["group='1.10'", "++rename.x='1.10'"]


def test_agree_holds_versions_out_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"e{k},{k / 10},{k % 3 > 0},{('1.1', '1.10')[k % 2]},{('0.5', '0.50')[k % 2]}" for k in range(12)]
    (tmp_path / "s.csv").write_text("\n".join(["episode,Q,success,version,score", *lines]) + "\n")
    got: dict[str, Any] = {}

    def asked(metrics: Any, success: Any, levels: Any, **settings: Any) -> None:
        got.update(metrics, levels=in_order(levels))
        raise InputError("asked")

    monkeypatch.setattr("jaxeval.run.agree.held_out", asked)
    with pytest.raises(InputError, match="asked"):
        agree(tmp_path / "s.csv", success="success", holdout="version", columns=["Q", "score"])
    assert got["levels"] == ["1.1", "1.10"] and (got["score"] == 0.5).all()
