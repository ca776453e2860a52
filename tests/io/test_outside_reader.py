"""A format from outside the package: registered or offered by an entry point, with options, and faults of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxeval.cli import main
from jaxeval.io import InputError, open_source, source
from jaxeval.io.source import all_readers, refused_readers

READER = '''"""Poses of a cube, a line a frame: seconds, x, y, z."""

import jaxeval as je
import numpy as np
from jaxeval.io import InputError
from jaxeval.io.source import Reader, file_reader, suffix


def read(path, *, scale=1.0):
    try:
        rows = np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise InputError(f"{path}: {error}, expected seconds, x, y, z a line; write it again") from error
    turns = np.tile([1.0, 0.0, 0.0, 0.0], (len(rows), 1))
    cube = np.concatenate([turns, rows[:, 1:] * scale], axis=1)
    return [je.episode({"cube": cube}, rows[:, 0], task="push", episode_id=path.stem)], []


def breaks(path):
    if path.suffix == ".bad":
        raise KeyError("no such thing")
    return False


XYZ = file_reader("xyz text (.xyz)", suffix(".xyz"), read, says="metres, seconds")
BREAKS = Reader("breaking", breaks, open)
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of files beside an installed package that offers formats."""
    about = tmp_path / "site" / "xyz_package-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: xyz-package\nVersion: 1.0\n")
    points = [
        "xyz = xyz_package:XYZ",
        "breaking = xyz_package:BREAKS",
        "gone = xyz_package:GONE",
        "odd = xyz_package:read",
    ]
    (about / "entry_points.txt").write_text("\n".join(["[jaxeval.readers]", *points, ""]))
    (tmp_path / "site" / "xyz_package.py").write_text(READER)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    source._offered.cache_clear()
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a.xyz").write_text("0 0 0 0\n0.1 1 2 3\n0.2 2 2 3\n")
    yield runs
    monkeypatch.undo()
    source._offered.cache_clear()


def test_an_installed_package_offers_it_by_an_entry_point(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [r.name for r in all_readers()][:2] == ["breaking", "xyz text (.xyz)"]
    assert open_source(installed).parts[0].read()[0].body("cube")[1, 4:].tolist() == [1, 2, 3]
    (scaled,) = open_source(installed / "a.xyz", scale=0.001).iter_episodes()
    assert scaled.body("cube")[1, 6] == pytest.approx(0.003) and scaled.task == "push"
    assert main(["inspect", str(installed), "options.scale=2"]) == 0
    assert "xyz text (.xyz): metres, seconds" in capsys.readouterr().out
    assert set(refused_readers()) == {"gone", "odd"}
    assert "odd = xyz_package:read is a function, expected a jaxeval.io.source.Reader" in refused_readers()["odd"]


def test_a_fault_of_it_costs_one_file(installed: Path) -> None:
    (installed / "b.xyz").write_text("0 zero 0 0\n")
    (installed / "c.bad").write_text("")
    found = open_source(installed)
    assert found.n_episodes == 1 and [path.name for path, _ in found.refused] == ["b.xyz", "c.bad"]
    assert "expected seconds, x, y, z a line" in found.refused[0][1]
    assert "c.bad: the reader 'breaking' could not look at it (KeyError: 'no such thing')" in found.refused[1][1]
    with pytest.raises(InputError, match=r"no reader for this kind .*gone = xyz_package:GONE cannot be loaded"):
        (installed / "d.none").write_text("")
        open_source(installed / "d.none")
    (installed / "mine.csv").write_text("t,x\n0,1\n")
    with pytest.raises(InputError, match=r"mine\.csv: no reader .* read by jaxeval\.episodes_from_table"):
        open_source(installed / "mine.csv")


def test_one_registered_by_hand_is_asked_before_those_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "READERS", list(source.READERS))
    mine = dataclasses.replace(all_readers()[0], name="mine", accepts=source.suffix(".npz"))
    assert source.register(mine) is mine
    (tmp_path / "x.npz").write_text("")
    found = source.reader_of(tmp_path / "x.npz")
    assert found is not None and found.name == "mine"
