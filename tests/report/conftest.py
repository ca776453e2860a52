"""One scored set for all tests of reports."""

from __future__ import annotations

import pytest

from jaxeval.io import open_source
from jaxeval.io.reference import save_reference
from jaxeval.run.fit import fit
from jaxeval.run.report import report
from jaxeval.run.score import score
from tests.executions import episodes, spec
from tests.report.scored_set import Made


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("scored")
    learned = fit(episodes()[:31], spec())
    about = {"demonstrations_hash": "0123abcd", "left_out": [list(x) for x in learned.left_out], "notes": ["a <note>"]}
    save_reference(folder / "reference", learned.reference, about=about)
    metrics = ("geometric", "smoothness", "kinematic")
    tilted = open_source("bundled:stack_cube_tilt")
    score(learned.reference, tilted, metrics=metrics, out=folder / "scores", frames=True)
    path = report(folder / "scores", folder / "reference", folder / "out")
    return Made(folder / "scores", learned.reference, path, path.read_text())
