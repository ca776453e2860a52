"""The relative-motion handoff as a reader runs it, small: every row is there, the published ones beside ours."""

from __future__ import annotations

import pytest

from tests.experiments.ran import FIELDS, ran

pytest.importorskip("mujoco")
pytestmark = [pytest.mark.sim, pytest.mark.slow]


def test_counts_stand_beside_the_published_ones(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = ("episodes=2", "speeds=2", "embodiment=panda")
    result = ran("relative_handoff", tmp_path_factory, settings)
    assert all(set(row) == FIELDS for row in result.rows.values()) and len(result.rows) == 14
    row = result.rows["expert, r = 2, completed"]
    assert row["n"] == 2 and row["published"] == 0.95 and "published 95/100" in row["note"]
    assert row["low"] < row["ours"] < row["high"] or row["ours"] in (0.0, 1.0)
    assert result.rows["expert, r = 2, completed without handoff"]["published"] == 0.84
    assert result.rows["expert, r = 2, retained"]["ours"] == 1.0
    assert result.rows["sight, r = 2, completed"]["published"] is None  # there is no such cell
    assert 1 < result["expert, r = 2, translation median mm"] < 5.5
    assert result["sight, r = 2, parcel's offset from the expert's at the handoff, median mm"] > 0.1
    assert (result.folder / "handoff.png").read_bytes().startswith(b"\x89PNG")
