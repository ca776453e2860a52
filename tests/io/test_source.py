"""One way in: what a spec stands for, what a refused file costs, and that parts speak alike."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxeval.io import InputError, bundled, bundled_names, bundled_path, open_source, source, write_store
from jaxeval.io.source import Loaded

STORE, FILE = "bundled:stack_cube_demos", "bundled:maniskill/StackCube-v1.h5"


def test_bundled_names_are_opened() -> None:
    assert {"stack_cube_demos", "stack_cube_tilt", "poke_cube_demos", "maniskill/StackCube-v1.h5"} < set(
        bundled_names()
    )
    for name in bundled_names():
        assert bundled(name).n_episodes == len(list(bundled(name).iter_episodes())) > 0
    with pytest.raises(InputError, match=r"bundled:spoons: no such data in the package; it has .*stack_cube_demos"):
        open_source("bundled:spoons")


def test_bundled_data_are_small() -> None:
    folder = bundled_path("stack_cube_demos").parent
    assert sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) < 11_000_000


def test_store_and_file_speak_alike() -> None:
    for spec, episodes_n in ((STORE, 40), (FILE, 3)):
        part = open_source(spec)
        assert (part.task, part.n_episodes, part.refused) == ("stack_cube", episodes_n, [])
        assert {"cubeA", "cubeB", "table"} <= set(part.bodies)
        assert sum(1 for _ in part.iter_episodes()) == episodes_n
        assert len(part.hash) == 64 and part.hash == open_source(spec).hash
        with pytest.raises(InputError, match="no body spoon"):
            part.batches(bodies=("spoon",), episodes_n=4)


def test_batches_of_several_parts_count_rows_through() -> None:
    both = open_source([FILE, STORE])
    assert both.n_episodes == 43 and both.bodies == ("cubeA", "cubeB", "table", "tcp")
    episodes = list(both.iter_episodes())
    rows: list[int] = []
    for index, batch in both.batches(bodies=("cubeB", "cubeA"), episodes_n=8, dtype=np.float64):
        for k, row in enumerate(index):
            e = episodes[row]
            np.testing.assert_array_equal(batch.poses[k, : e.n_frames, 0], e.body("cubeB"))
            assert batch.frame_valid[k].sum() == e.frame_valid.sum()
            assert batch.success[k] == e.success_at_end
        rows += index.tolist()
    assert sorted(rows) == list(range(43))


def test_files_in_memory_share_batches(tmp_path: Path) -> None:
    for k in range(4):
        shutil.copyfile(bundled_path("maniskill/StackCube-v1.h5"), tmp_path / f"{k}.h5")
    batches = list(open_source(tmp_path).batches(bodies=("cubeA",), episodes_n=100))
    assert [rows.size for rows, _ in batches] == [12]


def test_a_folder_is_searched_and_a_bad_file_costs_itself(tmp_path: Path) -> None:
    nested = tmp_path / "StackCube-v1" / "motionplanning"
    nested.mkdir(parents=True)
    shutil.copyfile(bundled_path("maniskill/StackCube-v1.h5"), nested / "a.h5")
    (tmp_path / "b.hdf5").write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "notes.txt").write_text("not asked for")
    shutil.copytree(bundled_path("stack_cube_demos"), tmp_path / "whole")
    shutil.copytree(bundled_path("stack_cube_demos"), tmp_path / "broken")
    (tmp_path / "broken" / "episodes.parquet").unlink()
    shutil.copytree(bundled_path("stack_cube_demos"), tmp_path / ".half.1234.writing")
    found = open_source(tmp_path)
    assert [p.path.name for p in found.parts] == ["a.h5", "whole"]
    assert [p.name for p, _ in found.refused] == ["b.hdf5", "broken"]
    assert "Git-LFS pointer" in found.refused[0][1] and "episodes.parquet" in found.refused[1][1]
    assert {f.code for f in found.findings} >= {"no_json", "tcp_by_forward_kinematics"}
    assert open_source(tmp_path / "wh*").n_episodes == 40
    with pytest.raises(InputError, match="Git-LFS pointer"):
        open_source(tmp_path / "b.hdf5")
    with pytest.raises(InputError, match=r"Git-LFS pointer.*\(and 1 more refused\)"):
        open_source([tmp_path / "b.hdf5", tmp_path / "broken"])


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file or folder"):
        open_source(tmp_path / "typo")
    with pytest.raises(InputError, match="there is no such file or folder"):
        open_source([STORE, str(tmp_path / "typo.h5")])
    with pytest.raises(InputError, match="no file matches this pattern"):
        open_source(str(tmp_path / "*.h5"))
    with pytest.raises(InputError, match="holds nothing readable"):
        open_source(tmp_path)
    (tmp_path / "film.mp4").write_bytes(b"0")
    with pytest.raises(InputError, match=r"film\.mp4: no reader for this kind of file; expected one of: jaxeval store"):
        open_source(tmp_path / "film.mp4")
    with pytest.raises(InputError, match="no source given"):
        open_source([])


def test_several_tasks_are_told_apart() -> None:
    mixed = open_source([STORE, "bundled:poke_cube_demos"])
    assert mixed.tasks == ("stack_cube", "poke_cube")
    with pytest.raises(InputError, match="stack_cube, poke_cube, expected one task"):
        _ = mixed.task
    assert mixed.of_task("poke_cube").n_episodes == 20
    with pytest.raises(InputError, match="no episodes of spoon"):
        mixed.of_task("spoon")


def test_a_reader_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "READERS", list(source.READERS))
    episodes = bundled("stack_cube_demos").read(0, 2)
    source.register(source.Reader("toy", source.suffix(".toy"), lambda path: Loaded(path, episodes, [])))
    (tmp_path / "x.toy").write_text("")
    assert open_source(tmp_path).n_episodes == 2


def test_converting_a_file_to_a_store_keeps_it(tmp_path: Path) -> None:
    file = open_source(FILE)
    store = write_store(tmp_path / "s", file.iter_episodes(), task=file.task)
    for a, b in zip(store.iter_episodes(), file.iter_episodes(), strict=True):
        np.testing.assert_allclose(a.poses, b.poses, atol=1e-7)
        np.testing.assert_array_equal(a.actions, b.actions)
        assert (a.seed, a.success_at_end, a.initial_condition_hash) == (
            b.seed,
            b.success_at_end,
            b.initial_condition_hash,
        )
