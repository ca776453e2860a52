"""Every printed figure that follows from counts is met, and what cannot be met says why."""

import csv

import pytest
from scipy.stats import binomtest

from tests.experiments.ran import FIELDS, Result, ran

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return ran("parcelstow_tables", tmp_path_factory, settings=())


def test_rows_are_whole(result: Result) -> None:
    assert len(result.rows) > 150
    for row in result.rows.values():
        assert set(row) == FIELDS
    printed = result.printed.splitlines()
    assert sum("Table 1" in line for line in printed) == 18 + 6


def test_every_count_matches_or_says_why(result: Result) -> None:
    off = {name: row["note"] for name, row in result.rows.items() if "does not match" in row["note"]}
    assert set(off) == {"pairings: DAgger, r = 2, same starts", "pairings: Diffusion Policy, r = 2, same starts"}
    assert all("other starts" in note for note in off.values())
    assert "no reason found" not in result.printed


def test_the_published_interval_and_test(result: Result) -> None:
    row = result.rows["Figure 4: bootstrap interval, ACT-A, r = 2"]
    assert row["ours"] == pytest.approx(0.31)
    assert (row["low"], row["high"]) == (pytest.approx(0.18, abs=0.01), pytest.approx(0.44, abs=0.01))
    assert result["Figure 4: exact McNemar p, ACT-A, r = 2"] == pytest.approx(binomtest(11, 53).pvalue, rel=1e-6)
    assert result["pairings: counts and difference exact"] == 104


def test_equality_is_shown_only_where_it_is(result: Result) -> None:
    assert "equivalent" in result.rows["Figure 4a: G, ACT-A, r = 1"]["note"]
    assert "equivalent" not in result.rows["Figure 4a: G, ACT-A, r = 1.5"]["note"]


def test_act_loses_more_than_its_expert(result: Result) -> None:
    """The published claim, which needs a difference of differences; Diffusion Policy's smaller loss shows nothing."""
    for learner in ("ACT-A", "ACT-B", "ACT-C"):
        assert result.rows[f"decrease beyond the expert's: {learner}"]["low"] > 0
    row = result.rows["decrease beyond the expert's: Diffusion Policy"]
    assert row["low"] < 0 < row["high"] and "unpaired" in row["note"]


def test_leaves_tables_and_figures(result: Result) -> None:
    with (result.folder / "pairings.csv").open() as file:
        pairs = list(csv.DictReader(file))
    assert len(pairs) == 104
    assert all(
        float(p["tango_low"]) < float(p["difference"]) < float(p["tango_high"]) for p in pairs if p["neither"] != "0"
    )
    for name in (*result.told["figures"], "result.csv", "result.tex"):
        assert (result.folder / name).stat().st_size > 500
