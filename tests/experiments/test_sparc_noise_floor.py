"""The noise-floor script runs as a reader runs it, on few draws, and shows what it claims."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "sparc_noise_floor.py"
FIELDS = {"quantity", "ours", "low", "high", "n", "published", "note"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sparc_noise_floor")
    environment = os.environ | {"JAX_NUMPY_RANK_PROMOTION": "allow"}  # as readers run it
    command = [sys.executable, str(SCRIPT), f"out={out}", "draws=16", "episodes=4"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "reach noise 5 mm, steps" in done.stdout
    return out


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[str, dict]:
    told = json.loads((folder / "result.json").read_text())
    assert set(told) == {"title", "source", "rows", "figures", "command", "versions"}
    assert all(set(row) == FIELDS and row["note"] for row in told["rows"])
    assert told["figures"] == ["reach.png", "demonstrations.png"]
    for figure in told["figures"]:
        assert (folder / figure).read_bytes().startswith(b"\x89PNG")
    return {row["quantity"]: row for row in told["rows"]}


def test_noise_a_jump_and_stutter_are_as_published(rows: dict[str, dict]) -> None:
    assert rows["reach clean"]["ours"] == pytest.approx(-1.40, abs=0.01)
    for quantity, tolerance in (
        ("reach noise 1 mm, steps", 0.25),
        ("reach noise 5 mm, steps", 0.25),
        ("reach jump 5 cm, steps", 0.02),
        ("pick, 0.5 s pause, place", 0.02),
    ):
        assert rows[quantity]["ours"] == pytest.approx(rows[quantity]["published"], abs=tolerance), quantity
    assert rows["reach stutter 4, steps"]["ours"] < rows["reach stutter 2, steps"]["ours"] < -2
    for way in ("steps", "central differences"):
        values = [rows[f"reach noise {mm} mm, {way}"]["ours"] for mm in (1, 2, 3, 5)]
        assert values == sorted(values, reverse=True)
    assert rows["reach noise 1 mm, central differences"]["ours"] > rows["reach noise 1 mm, steps"]["ours"] + 0.3


def test_the_rate_does_not_matter_to_a_clean_reach(rows: dict[str, dict]) -> None:
    values = [rows[f"reach clean at {rate} Hz"]["ours"] for rate in (6, 8, 10, 17, 20, 30, 50, 100)]
    assert max(values) - min(values) < 0.02
    assert rows["reach refused at 5 Hz"]["ours"] == 1 and "fps too low" in rows["reach refused at 5 Hz"]["note"]


def test_sub_tasks_of_demonstrations_are_smooth_and_the_whole_is_not(rows: dict[str, dict]) -> None:
    for name in ("reach", "lift", "place", "retreat"):
        assert rows[f"stack_cube {name}"]["ours"] == pytest.approx(-1.41, abs=0.02)
    assert rows["stack_cube demonstrations"]["ours"] < -3
