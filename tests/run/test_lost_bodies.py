"""Bodies that a tracker lost, from demonstrations to scores."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from jaxeval.io import write_store
from jaxeval.io.source import open_source
from jaxeval.run.fit import fit
from jaxeval.run.score import score
from jaxeval.types import Episode
from tests.executions import episodes, learned, of_tilt, spec


def without(e: Episode, body: str, frames: np.ndarray | slice) -> Episode:
    valid = e.valid.copy()
    valid[frames, e.bodies.index(body)] = False
    return dataclasses.replace(e, valid=valid, episode_id=f"{e.episode_id}, {body} lost")


def test_losing_the_body_that_costs_never_gives_a_better_number(tmp_path: Path) -> None:
    e = of_tilt(25)[0]
    n = e.n_frames
    seen = np.arange(n) % 10 > 0  # nine frames of ten
    runs = [e, without(e, "cubeA", ~seen), without(e, "cubeA", slice(n // 2)), without(e, "cubeA", slice(n - 30, n))]
    made = score(learned(), open_source(write_store(tmp_path / "s", runs, task=e.task).path))
    c = made.columns
    assert c["status"] == ["ok", "ok", "insufficient tracking", "insufficient tracking"]
    assert np.isfinite(made.q[:2]).all() and c["Q"][2:] == [None, None] and c["gate"][2:] == [None, None]
    assert made.q[1] == pytest.approx(made.q[0], rel=0.05) and c["valid"] == [True, True, False, False]
    np.testing.assert_allclose(c["coverage.cubeA"], [1, seen.mean(), 1 - (n // 2) / n, 1 - 30 / n], atol=1e-6)
    assert c["coverage.cubeA | tcp"] == c["coverage.cubeA"] and c["coverage.cubeB | table"] == [1.0] * 4


@pytest.mark.slow
def test_a_demonstration_that_does_not_show_a_relation_is_left_out_and_says_which() -> None:
    good = list(episodes()[:8])
    good[2] = without(good[2], "cubeB", slice(good[2].n_frames - 30, good[2].n_frames))
    good[5] = without(good[5], "cubeA", slice(10, 12))  # two frames: their bins are filled
    made = fit(good, spec())
    ((name, why),) = [left for left in made.left_out if "lost" in left[0]]
    assert name == good[2].episode_id and why.startswith("insufficient tracking: cubeA | cubeB is not seen")
    assert np.isfinite(np.asarray(made.reference.deviations)).all()
    whole = fit([e for k, e in enumerate(good) if k != 2], spec())
    np.testing.assert_allclose(made.reference.nominal, whole.reference.nominal, atol=1e-6)
