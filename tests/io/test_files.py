"""Files are written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxeval.io.errors import InputError
from jaxeval.io.files import replacing, write_bytes, write_json, write_text


def test_a_file_is_as_it_was_until_it_is_whole(tmp_path: Path) -> None:
    path = write_text(tmp_path / "made" / "a.txt", "old\r\nµ")
    assert path.read_bytes() == "old\r\nµ".encode()
    with pytest.raises(RuntimeError), replacing(path) as part:
        part.write_text("half")
        assert part.suffix == ".txt" and path.read_bytes() == "old\r\nµ".encode()
        raise RuntimeError
    assert path.read_bytes() == "old\r\nµ".encode() and list(path.parent.iterdir()) == [path]
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new" and list(path.parent.iterdir()) == [path]


def test_json_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [1, None]}
    with pytest.raises(TypeError):
        write_json(tmp_path / "b.json", {"a": {1, 2}})
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "a.txt", tmp_path):
        with pytest.raises(InputError, match=r"cannot be written \(.+\); expected a writable folder") as error:
            write_text(path, "a")
        assert "\n" not in str(error.value)
    assert not list(tmp_path.rglob("*.writing*")) and not list(tmp_path.parent.glob(".*.writing*"))
