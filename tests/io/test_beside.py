"""What lies beside a store is no source, and a file's episodes bear the file's name, not an invented one."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxeval.io import InputError, open_source, write_store
from jaxeval.run.convert import convert
from tests.io.breakable import SAMPLES, motion


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two stores, one of them converted, and what else lies beside them."""
    st = tmp_path / "st"
    write_store(st / "a", [motion()], task="push")
    convert(open_source(st / "a"), st / "b")
    write_store(st / "a.parts" / "0001", [motion(1)], task="push")
    (st / "a.frames").mkdir()
    (st / "a.frames" / "1.png").write_bytes(b"")
    assert (st / "b.conversion.json").is_file()
    return st


def test_a_glob_a_list_and_a_folder_pass_over_what_we_wrote_beside_a_store(folder: Path) -> None:
    for spec in (str(folder / "*"), sorted(map(str, folder.iterdir())), folder):
        source = open_source(spec)
        assert [p.path.name for p in source.parts] == ["a", "b"] and not source.refused, spec


def test_what_is_named_alone_is_looked_at(folder: Path) -> None:
    assert open_source(folder / "a.parts").n_episodes == 1
    with pytest.raises(InputError, match="no reader for this kind of file"):
        open_source(folder / "b.conversion.json")
    with pytest.raises(InputError, match="no file matches this pattern"):
        open_source(str(folder / "*.json"))


@pytest.mark.parametrize("name", list(SAMPLES))
def test_no_reader_invents_a_group(tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    sample.write(tmp_path)
    groups = {e.group for e in open_source(tmp_path / sample.path, **sample.options).iter_episodes()}
    path = tmp_path / sample.path
    told = {"store": {motion().group}, "robolab": {"pi05"}, "maniskill": {"test"}}.get(name, {""})  # as they say
    assert groups <= {path.stem, path.name, *told}, groups
