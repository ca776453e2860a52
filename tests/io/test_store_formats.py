"""Stores of format 1 give the episodes, the hash and the Q that they gave when they were written."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.io import InputError, append_store, open_store, write_store
from jaxeval.io.source import Source
from jaxeval.io.store import store as store_module
from jaxeval.run.score import score
from tests.executions import learned

FORMAT_1 = Path(__file__).parents[1] / "data" / "format_1"
GOLDEN = json.loads((FORMAT_1 / "golden.json").read_text())
"""By the version that wrote them: ``whole`` has every frame, ``frames_lost`` lacks 5 to 15 % of them."""
NAMES = sorted(GOLDEN)


@pytest.mark.parametrize("name", NAMES)
def test_episodes_hash_and_q_are_as_they_were(name: str) -> None:
    store, golden = open_store(FORMAT_1 / name), GOLDEN[name]
    assert store.version == 1 and store.hash == golden["hash"]
    episodes = store.read()
    assert [e.n_frames for e in episodes] == golden["length"]
    assert [int(e.frame_valid.sum()) for e in episodes] == golden["valid_n"]
    for e, total in zip(episodes, golden["sum"], strict=True):
        np.testing.assert_array_equal(e.valid, np.repeat(e.frame_valid[:, None], len(e.bodies), axis=1))
        assert e.attributes == {} and e.poses[e.frame_valid].sum() == pytest.approx(total, abs=1e-9)
    made = score(learned(), Source([store], []))
    assert made.columns["gate"] == golden["gate"]
    np.testing.assert_allclose(made.columns["mean_cost"], golden["mean_cost"], atol=1e-6)
    np.testing.assert_allclose(made.columns["Q"], golden["Q"], atol=1e-6)
    assert made.columns["coverage.cubeA | cubeB"] == [1.0] * 3  # of the frames there are


@pytest.mark.parametrize("name", NAMES)
def test_the_same_episodes_have_the_same_hash_in_both_formats(name: str, tmp_path: Path) -> None:
    shutil.copytree(FORMAT_1 / name, tmp_path / "s")
    old, new = open_store(FORMAT_1 / name), store_module._upgraded(open_store(tmp_path / "s"))
    assert new.version == 2 and new.hash == old.hash
    (_, a), (_, b) = (next(s.batches(bodies=("tcp", "cubeA"), episodes_n=3)) for s in (old, new))
    np.testing.assert_array_equal(a.valid, b.valid)
    np.testing.assert_array_equal(a.frame_valid, b.frame_valid)
    e = new.read()[0]
    lost = dataclasses.replace(e, valid=e.valid & (np.arange(len(e.bodies)) > 0))
    told = dataclasses.replace(e, attributes={"policy": "act"})
    stores = [write_store(tmp_path / f"{k}", [x], task="t") for k, x in enumerate((e, lost, told))]
    assert len({s.hash for s in stores}) == 3  # what format 1 cannot say counts where it is said


def test_appending_to_format_1_rewrites_it_and_loses_nothing(tmp_path: Path) -> None:
    shutil.copytree(FORMAT_1 / "frames_lost", tmp_path / "s")
    (tmp_path / "s" / "notes.txt").write_text("kept")
    old = open_store(tmp_path / "s")
    findings, episodes = old.column("findings").tolist(), old.read()
    new = append_store(tmp_path / "s", [episodes[0]])
    assert new.version == 2 and new.n_episodes == 4 and (tmp_path / "s" / "notes.txt").read_text() == "kept"
    assert [list(f) for f in new.column("findings")[:3]] == [list(f) for f in findings]
    for a, b in zip(new.read(0, 3), episodes, strict=True):
        np.testing.assert_array_equal(a.valid, b.valid)
        np.testing.assert_array_equal(a.poses, b.poses)
    names = pq.read_schema(tmp_path / "s" / "frames" / "part-00000.parquet").names
    assert "frame_valid" in names and "valid.cubeA" in names and "valid" not in names


def test_a_format_of_the_future_is_refused(tmp_path: Path) -> None:
    shutil.copytree(FORMAT_1 / "whole", tmp_path / "s")
    meta = json.loads((tmp_path / "s" / "meta.json").read_text()) | {"format_version": 3}
    (tmp_path / "s" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(InputError, match="format_version 3, expected 1 or 2"):
        open_store(tmp_path / "s")
