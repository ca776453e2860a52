"""The experiments on the oracles' executions run as a reader runs them, and show what the project claims.

They read the bundled stores, or those of the folder that JAXEVAL_ORACLE_DATA names. Limits are the claims' own.
"""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[2] / "experiments"
DATA = os.environ.get("JAXEVAL_ORACLE_DATA", "")
FIELDS = {"quantity", "ours", "low", "high", "n", "published", "note"}


class Result:
    """One result.json, and the folder and the printed lines that came with it."""

    def __init__(self, folder: Path, printed: str) -> None:
        self.folder, self.printed = folder, printed
        self.told: dict[str, Any] = json.loads((folder / "result.json").read_text())
        self.rows = {row["quantity"]: row for row in self.told["rows"]}

    def __getitem__(self, quantity: str) -> float:
        return self.rows[quantity]["ours"]


def ran(name: str, factory: pytest.TempPathFactory) -> Result:
    """What a script left behind; it runs once, however many workers ask for it."""
    folder = factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / name
    printed = folder.with_suffix(".printed")
    with FileLock(folder.with_suffix(".lock")):
        if not printed.exists():
            environment = os.environ | {"JAX_NUMPY_RANK_PROMOTION": "allow"}  # as readers run it
            command = [sys.executable, str(FOLDER / f"{name}.py"), f"out={folder}", f"data={DATA}"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
            assert done.returncode == 0, done.stderr[-3000:]
            printed.write_text(done.stdout)
    return Result(folder, printed.read_text())


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
