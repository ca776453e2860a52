"""The table in docs/coverage.md is what the script counts, and the known value of Wilson's interval is met."""

import re
from pathlib import Path

import pytest

from tests.experiments.ran import FIELDS, Result, ran

pytestmark = pytest.mark.slow
DOC = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return ran("interval_coverage", tmp_path_factory, settings=())


def test_rows_are_whole(result: Result) -> None:
    for row in result.rows.values():
        assert set(row) == FIELDS
        assert 0 <= row["ours"] <= 1


def test_by_hand(result: Result) -> None:
    """Ten episodes at p = .05: Wilson's interval of 0 and of 1 successes holds .05, that of 2 does not."""
    assert result["Wilson at p = .05, n = 10"] == pytest.approx(0.95**10 + 10 * 0.05 * 0.95**9, abs=1e-6)


def test_clopper_pearson_never_falls_short(result: Result) -> None:
    assert all(result[f"Clopper-Pearson n = {n}, least"] >= 0.95 for n in (10, 25, 100))


@pytest.mark.parametrize(
    "name, method",
    [("Wilson", "wilson"), ("Clopper-Pearson", "clopper_pearson"), ("Newcombe", "newcombe"), ("Tango", "tango")],
)
def test_the_documented_table(name: str, method: str, result: Result) -> None:
    line = next(s for s in DOC.read_text().splitlines() if s.startswith("|") and f".{method}`" in s)
    told = [float(x) for x in re.findall(r"\d+\.\d+", line)]
    counted = [100 * result[f"{name} n = {n}, {what}"] for n in (10, 25, 100) for what in ("least", "mean")]
    assert told == pytest.approx(counted, abs=0.051)
