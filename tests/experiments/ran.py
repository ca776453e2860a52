"""Experiments run as a reader runs them, once for all tests; executions are bundled, or of JAXEVAL_ORACLE_DATA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

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


def ran(name: str, factory: pytest.TempPathFactory, settings: tuple[str, ...] = (f"data={DATA}",)) -> Result:
    """What a script left behind; it runs once, however many workers ask for it."""
    folder = factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / name
    printed = folder.with_suffix(".printed")
    with FileLock(folder.with_suffix(".lock")):
        if not printed.exists():
            environment = os.environ | {"JAX_NUMPY_RANK_PROMOTION": "allow"}  # as readers run it
            command = [sys.executable, str(FOLDER / f"{name}.py"), f"out={folder}", *settings]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
            assert done.returncode == 0, done.stderr[-3000:]
            printed.write_text(done.stdout)
    return Result(folder, printed.read_text())
