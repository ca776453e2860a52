"""The experiment on agreement runs as a reader runs it, and shows what it claims."""

from __future__ import annotations

import pytest

from tests.experiments.ran import FIELDS, Result, ran

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return ran("rating_agreement", tmp_path_factory)


def test_it_leaves_what_an_experiment_leaves(result: Result) -> None:
    assert all(set(row) == FIELDS and row["note"] for row in result.told["rows"])
    assert result.told["figures"] == ["recovered.png", "severity.png"]
    for figure in result.told["figures"]:
        assert (result.folder / figure).read_bytes().startswith(b"\x89PNG")
    assert "undefined (" in result.printed and "result: " in result.printed


def test_published_tables_are_found(result: Result) -> None:
    published = [row for row in result.told["rows"] if row["published"] is not None]
    assert len(published) == 5
    for row in published:
        assert row["ours"] == pytest.approx(row["published"], abs=0.005), row["quantity"]


def test_reliabilities_put_in_are_recovered(result: Result) -> None:
    for reliability in (0.3, 0.5, 0.7, 0.9):
        name = f"numbers, reliability {reliability} ICC(2,1)"
        assert result[name] == pytest.approx(reliability, abs=0.03)
        assert 0.92 < result[f"{name} coverage"] < 0.975
        row = result.rows[name]
        assert row["low"] < reliability < row["high"]
        for name in (
            f"five points, reliability {reliability} ICC(2,1)",
            f"five points, reliability {reliability} alpha (ordinal)",
            f"numbers, reliability {reliability} alpha (interval)",
        ):
            assert 0.75 < result[f"{name} coverage"] < 0.98
            assert result[name] == pytest.approx(reliability, abs=0.12)


def test_q_ranks_planted_severities_and_raters_who_see_them(result: Result) -> None:
    assert result["all tasks Spearman of Q and severity, all"] > 0.5
    assert result["mean of tasks Spearman of Q and severity, all"] > 0.7
    assert result["mean of tasks Spearman of Q and mean rating, all"] > 0.7
    for scope in ("all", "successes"):
        assert result[f"simulated raters, {scope} ICC(2,k)"] > result[f"simulated raters, {scope} ICC(2,1)"] > 0.5
    assert result["mean of tasks Spearman of success and severity, all"] > 0.4
    # success does not vary among successes: undefined, and left out of means
    assert result["tasks with Spearman of success and severity defined, successes"] == 0
    assert "mean of tasks Spearman of success and severity, successes" not in result.rows
