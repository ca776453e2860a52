"""The five known grasps as a reader runs the script; the benchmark agrees with its peers before it times them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {"quantity", "ours", "low", "high", "n", "published", "note"}

pytestmark = pytest.mark.slow


def ran(script: str, *arguments: str) -> str:
    environment = os.environ | {"JAX_NUMPY_RANK_PROMOTION": "allow"}  # as readers run it
    command = [sys.executable, str(ROOT / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_five_known_grasps(tmp_path: Path) -> None:
    printed = ran("experiments/force_closure_known_grasps.py", f"out={tmp_path}")
    told = json.loads((tmp_path / "result.json").read_text())
    assert set(told) == {"title", "source", "rows", "figures", "command", "versions"}
    assert all(set(row) == FIELDS for row in told["rows"])
    assert (tmp_path / told["figures"][0]).read_bytes().startswith(b"\x89PNG")
    rows = {row["quantity"]: row for row in told["rows"]}
    assert "grasp 5, hull volume" in printed
    exact = [r for q, r in rows.items() if r["published"] is not None and "CVaR" not in q and "batched" not in q]
    assert len(exact) == 5 * 12
    for row in exact:
        assert row["ours"] == pytest.approx(row["published"], rel=1e-6), row["quantity"]
    for k in range(1, 6):
        cvar = rows[f"grasp {k}, CVaR of the margin, beta 0.95"]
        assert 1e-4 < abs(cvar["ours"] / cvar["published"] - 1) < 0.06
        batched = rows[f"grasp {k}, Ferrari-Canny margin, batched"]
        assert batched["ours"] == pytest.approx(batched["published"], rel=1e-3)
        margins = [rows[f"grasp {k}, margin with {n} edges"]["ours"] for n in (4, 8, 16, 64)]
        assert margins == sorted(margins)
        lengths = [rows[f"grasp {k}, margin with torque length {x} m"]["ours"] for x in ("0.01", "0.05", "0.2", "1")]
        assert lengths == sorted(lengths, reverse=True)


def test_the_benchmark_agrees_with_its_peers(tmp_path: Path) -> None:
    printed = ran("benchmarks/force_closure.py", f"out={tmp_path}", "quick=true")
    rows = json.loads((tmp_path / "force_closure.json").read_text())["rows"]
    assert {row["peer"] for row in rows} == {"QHull", "QHull, two threads", "HiGHS"}
    assert all(row["ratio"] > 0 and row["agreement"] for row in rows) and "closure" in printed
