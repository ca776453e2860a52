"""`jaxeval propose`: what it writes, that it aligns as it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxeval.cli import main
from jaxeval.io import open_source
from jaxeval.io.errors import InputError
from jaxeval.io.spec import load_spec
from jaxeval.io.spec_write import spec_to_dict
from jaxeval.run import propose as run


def test_the_verb_writes_a_spec_that_segments_the_demonstrations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.yaml"
    args = ["propose", "episodes=bundled:stack_cube_demos", "demonstrations_n=12", f"out={path}"]
    assert main(args) == 0
    told = capsys.readouterr().out
    assert "12 of 12 demonstrations are segmented completely" in told and told.endswith(f"spec: {path}\n")
    spec = load_spec(path)
    assert (spec.name, spec.manipulated, spec.reference) == ("stack_cube", ("cubeA",), "cubeB")
    assert spec.body("cubeA").shape.size_m == (0.02, 0.02, 0.02)
    assert main(args) == 1 and "overwrite" in capsys.readouterr().err
    assert load_spec(path) == spec


def test_ends_found_on_the_way_are_those_of_the_alignment(tmp_path: Path) -> None:
    source = open_source("bundled:stack_cube_demos")
    made = run.propose(source, out=tmp_path / "cubes.yaml", demonstrations_n=12, name="cubes")
    assert made.proposal is not None and made.spec.name == "cubes"
    np.testing.assert_array_equal(made.ends, made.proposal.ends)
    np.testing.assert_array_equal(made.reached, made.proposal.reached)
    assert made.complete_n == made.proposal.complete_n == 12
    assert (np.diff(made.ends, axis=1) > 0).all()
    assert all("not successful" in why for _, why in made.left_out)


def test_a_language_model_is_told_of_the_bodies_and_its_spec_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model answers with the hand-written spec under another name; the adapter has its own tests."""
    asked: dict[str, Any] = {}

    def answer(instruction: str, bodies: dict[str, str], **given: Any) -> Any:
        asked.update(instruction=instruction, bodies=bodies, **given)
        return load_spec("stack_cube")

    monkeypatch.setattr(run, "ask_for_spec", answer)
    source = open_source("bundled:stack_cube_demos")
    model = {"instruction": "Stack them.", "endpoint": "http://localhost:1/v1", "model": "m"}
    out = tmp_path / "s.yaml"
    made = run.propose(source, out=out, by="language_model", demonstrations_n=12, **model)
    assert made.complete_n == 12 and made.proposal is None
    assert asked["bodies"]["cubeA"].startswith("half size [0.02, 0.02, 0.02] m, gets 0.")
    assert (
        "12 demonstrations" in asked["demonstrations_summary"] and "cubeA and cubeB" in asked["demonstrations_summary"]
    )
    assert "language model 'm'" in out.read_text()
    assert json.dumps(spec_to_dict(load_spec(out))) == json.dumps(spec_to_dict(made.spec))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": "magic"}, "expected one of change_points, language_model"),
        ({"by": "language_model"}, "instruction, endpoint or model"),
        ({"out": "spec.txt"}, "ends in .yaml"),
        ({"demonstrations_n": 1000}, "expected at least 1000"),
        ({"gripper": "hand"}, "no body 'hand'"),
    ],
)
def test_bad_settings_are_one_sentence_and_leave_nothing(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    given = {"out": tmp_path / "spec.yaml"} | given
    with pytest.raises(InputError, match=message):
        run.propose(open_source("bundled:poke_cube_demos"), **given)
    assert not list(tmp_path.iterdir())
