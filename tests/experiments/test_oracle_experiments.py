"""The experiments on the oracles' executions run as a reader runs them, and show what the project claims.

They read the bundled stores, or those of the folder that JAXEVAL_ORACLE_DATA names. Limits are the claims' own.
"""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

from tests.experiments.ran import DATA, FIELDS, FOLDER, Result, ran

pytestmark = pytest.mark.slow


def check_promises(result: Result) -> None:
    """What every result.json holds."""
    assert set(result.told) == {"title", "source", "rows", "figures", "command", "versions"}
    for row in result.told["rows"]:
        assert set(row) == FIELDS
        assert math.isfinite(row["ours"]) and row["note"] and row["n"] > 0
        assert row["low"] - 1e-9 <= row["ours"] <= row["high"] + 1e-9
        assert row["quantity"] in result.printed
    for figure in result.told["figures"]:
        assert (result.folder / figure).read_bytes().startswith(b"\x89PNG")
    assert not list(result.folder.glob(".*"))  # nothing half-written


@pytest.mark.parametrize("name", ["constraint_recovery", "reference_stability"])
def test_the_result_is_as_promised(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    check_promises(ran(name, tmp_path_factory))


# ---------------------------------------------------------------------------------------------- constraint recovery


def test_most_constraints_are_recovered(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = ran("constraint_recovery", tmp_path_factory)
    row = result.rows["constraint recovery, all checks"]
    assert row["n"] == 258 and row["ours"] >= 0.9
    assert result["constraint recovery, throughout"] >= 0.9 and result["constraint recovery, at the end"] >= 0.9


def test_few_demonstrations_and_other_thresholds_recover_less(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = ran("constraint_recovery", tmp_path_factory)
    default = result["constraint recovery, all checks"]
    assert result["constraint recovery, K=5"] < default
    assert result["constraint recovery, sigma_pin=9 mm"] < default
    assert result["constraint recovery, sigma_pin=infinite"] < 0.2


def test_every_miss_is_listed_and_explained(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = ran("constraint_recovery", tmp_path_factory)
    missed = list(csv.DictReader((result.folder / "misses.csv").open(newline="")))
    checks = result.rows["constraint recovery, all checks"]
    assert len(missed) == checks["n"] - round(checks["ours"] * checks["n"])
    for row in missed:
        assert row["truth"] != row["ours"]
        assert row["why_it_differs"] != "not explained", row


def test_draws_are_counted_as_the_fit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a task with sizes that vary and on one with a free symmetry: the fast way and `fit_reference` agree."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from bundled_task import load, pick
    from oracle_data import executions
    from pinned_counts import PINNED_M, pinned_of, spreads

    for task in ("peg_insertion_side", "place_can"):
        some = executions("oracle", task, DATA)[:12]
        demonstrations = load(task, some)
        fitted = pick(demonstrations.learn(demonstrations.first(9)[None]), 0)
        rows, used = np.arange(10)[None], np.arange(10)[None] < 9
        spread = spreads(demonstrations, rows, demonstrations.pairs, used)[0]
        clear = np.abs(spread - PINNED_M).min(axis=-1) > 1e-6  # of float32's noise
        assert clear.mean() > 0.99
        assert ((spread < PINNED_M).sum(axis=-1) == pinned_of(fitted))[clear].all()


# ----------------------------------------------------------------------------------------------------------- stability


def test_the_reference_hardly_depends_on_the_demonstrations_drawn(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = ran("reference_stability", tmp_path_factory)
    assert result["pinned count agrees"] >= 0.85
    assert result["pinned count agrees, two fits"] >= result["pinned count agrees"]
