"""The five known grasps as a reader runs the script; the benchmark agrees with its peers before it times them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.ran import FIELDS, FOLDER, Result, ran

pytestmark = pytest.mark.slow
GRASPS = FOLDER.parent / "jaxeval" / "data" / "parcelstow" / "grasps.json"
SCORES = [grasp["scores"] for grasp in json.loads(GRASPS.read_text())["grasps"]]
EACH = pytest.mark.parametrize("k", range(1, 6))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return ran("force_closure_known_grasps", tmp_path_factory, settings=())


def test_rows_and_figure_are_whole(result: Result) -> None:
    assert all(set(row) == FIELDS for row in result.rows.values())
    assert (result.folder / result.told["figures"][0]).read_bytes().startswith(b"\x89PNG")
    assert "grasp 5, hull volume, 1e-6" in result.printed


@EACH
def test_published_scores(k: int, result: Result) -> None:
    told, scores = (lambda quantity: result[f"grasp {k}, {quantity}"]), SCORES[k - 1]
    want = {
        "Ferrari-Canny margin, 1e-3": 1e3 * scores["ferrari_canny"],
        "margin, edges n + mu t, 1e-3": 1e3 * scores["eps_nominal"],
        "min-weight, 1e-3": 1e3 * scores["l_star"],
        "hull volume, 1e-6": 1e6 * scores["gws_volume"],
    }
    for beta in ("0.5", "0.9", "0.95", "0.99"):
        want[f"margin at the tail's mean friction, beta {beta}, 1e-3"] = 1e3 * scores["eps_beta"][beta]
        want[f"min-weight there, beta {beta}, 1e-3"] = 1e3 * scores["risk_min_weight"][beta]
    for quantity, published in want.items():
        assert told(quantity) == pytest.approx(published, rel=1e-6), quantity
        assert result.rows[f"grasp {k}, {quantity}"]["published"] == pytest.approx(published, rel=1e-12)
    assert told("Ferrari-Canny margin, batched, 1e-3") == pytest.approx(want["Ferrari-Canny margin, 1e-3"], rel=1e-4)
    assert told("min-weight, batched, 1e-3") == pytest.approx(want["min-weight, 1e-3"], rel=1e-4)


@EACH
def test_the_published_risk_margin_is_no_mean_of_margins(k: int, result: Result) -> None:
    row = result.rows[f"grasp {k}, CVaR of the margin, beta 0.95, 1e-3"]
    assert 1e-4 < abs(row["ours"] / row["published"] - 1) < 0.06


@EACH
def test_what_moves_a_margin(k: int, result: Result) -> None:
    """More edges hold more of the cone. A longer torque length takes from the margin, less than from the torques."""
    margins = [result[f"grasp {k}, margin with {n} edges, 1e-3"] for n in (4, 8, 16, 32, 64)]
    assert margins == sorted(margins)
    lengths_m = (0.01, 0.05, 0.2, 1.0)
    margins = np.array([result[f"grasp {k}, margin with torque length {x:g} m, 1e-3"] for x in lengths_m])
    assert (np.diff(margins) < 0).all()
    assert (np.diff(margins * lengths_m) > 0).all()  # L margin(L): the same wrenches with forces times L
    assert 0.02 < result[f"grasp {k}, highest over lowest margin of a turn, minus 1"] < 0.3


def test_the_benchmark_agrees_with_its_peers(tmp_path: Path) -> None:
    script = FOLDER.parent / "benchmarks" / "force_closure.py"
    environment = os.environ | {"JAX_NUMPY_RANK_PROMOTION": "allow"}  # as readers run it
    command = [sys.executable, str(script), f"out={tmp_path}", "quick=true"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads((tmp_path / "force_closure.json").read_text())["rows"]
    assert {row["peer"] for row in rows} == {"QHull", "QHull, 2 processes", "HiGHS"}
    assert all(row["ours_s"] > 0 and row["ratio"] > 0 for row in rows)
    groups = {(group["contacts"], group["which"]): group for group in rows[0]["agreement"]}
    assert len(groups) == 8 and sum(g["grasps"] for (n, _), g in groups.items() if n == "3-5") == 60
    assert all(group["worst"] < 1e-3 for group in groups.values())
