"""Words of the command line: one sentence of ours for every word that cannot be meant, and nothing lost in silence."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

from jaxeval.cli import VERBS, main
from jaxeval.cli_words import _all, overrides, settings_of
from jaxeval.io.errors import InputError

HYDRAS = ("hydra", "override ", "Traceback", "not in struct", "HYDRA_FULL_ERROR", "Config search path", "usage:")
"""What would tell that somebody else is speaking."""


def said(capsys: pytest.CaptureFixture[str]) -> str:
    told = capsys.readouterr()
    assert not told.out and not [h for h in HYDRAS if h in told.err], told
    assert len(told.err.splitlines()) == 1 and told.err.startswith("jaxeval "), told.err
    return told.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "rollout task=stackcube",
            "task=stackcube: there is no such task, closest: stack_cube; expected one of close_dr",
        ),
        ("rollout -m task=stack_cube,nope", "task=nope: there is no such task, expected one of close_drawer"),
        ("fit task=nope episodes=x", "upright_placement; one of your own is given with spec=FILE"),
        ("score metric=nope episodes=x", "metric=nope: there is no such metric, expected one of geometric"),
        ("score episods=x", "episods: no setting of `jaxeval score`, closest: episodes; expected one of reference,"),
        ("score +episods=x", "episods: no setting of `jaxeval score`, closest: episodes"),
        ("score smoothness.bdoy=tcp", "closest: smoothness.body"),
        ("score metric.sigma_pin=1", "closest: metric.sigma_pin_m"),
        ("score smoothness=5", "smoothness holds body, cutoff_hz"),
        ("score smoothness.body.x=5", "closest: smoothness.body"),
        ("score episodes=[1", "episodes=[1: the value cannot be read"),
        ("score episodes=${foo}", "episodes: Interpolation key 'foo' not found; expected settings"),
        ("score ~episodes=x", "a setting cannot be taken away"),
        ("score --foo", "--foo: no such option, expected key=value"),
        ("score pyproject.toml", "expected key=value, such as episodes=pyproject.toml"),
        ("plan p", "p: no setting, expected key=value; `jaxeval plan --help` lists the keys"),
        ("video a b", "a, b: 2 paths, expected one"),
        ("convert a out=x episodes=b", "a and episodes=b: episodes are given twice, expected once; leave one out"),
    ],
)
def test_a_word_that_cannot_be_meant_is_one_sentence(
    words: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[1])
    assert main(words.split()) == 1
    assert expected in said(capsys)


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_takes_a_key_twice_or_one_that_it_lacks(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = next(iter(settings_of(verb)))
    for one in (key, f"+{key}"):
        assert main([verb, f"{key}=a", f"{one}=b"]) == 1
        assert f"{key} is given 2 times ({key}=a {one}=b), expected once" in said(capsys)
    assert main([verb, "outt=x"]) == 1
    assert f"outt: no setting of `jaxeval {verb}`" in said(capsys)


@pytest.mark.parametrize("verb", VERBS)
def test_every_setting_that_there_is_can_be_given(verb: str) -> None:
    blocks = [k for k in _all(verb) if any(other.startswith(f"{k}.") for other in _all(verb))]
    words = [f"{k}=null" for k in _all(verb) if k not in blocks and k not in ("task", "metric")]
    assert len(overrides(verb, words)) == len(words)


def test_several_paths_are_all_taken(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("run=3.tum", "it's [1], 2.tum", "c.tum")]
    for path in paths:
        path.write_text("")
    words = [str(p) for p in paths]
    given = overrides("convert", [*words, "out=x"])
    from hydra.core.override_parser.overrides_parser import OverridesParser

    read = {o.key_or_group: o.value() for o in OverridesParser.create().parse_overrides(given)}
    assert read == {"episodes": words, "out": "x"}
    for one in words:
        (alone,) = OverridesParser.create().parse_overrides(overrides("inspect", [one]))
        assert alone.key_or_group == "episodes" and alone.value() == one
    assert overrides("inspect", ["bundled:stack_cube_demos"]) == ["episodes=bundled:stack_cube_demos"]
    with pytest.raises(InputError, match="expected one"):
        overrides("video", words)


def test_convert_of_several_words_holds_all_of_them(tmp_path: Path) -> None:
    for k in range(3):
        rows = [f"{t / 10} {0.01 * t * k} 0 0 0 0 0 1" for t in range(20)]
        (tmp_path / f"run={k}.tum").write_text("\n".join(rows) + "\n")
    assert main(["convert", *sorted(map(str, tmp_path.glob("*.tum"))), f"out={tmp_path}/store"]) == 0
    from jaxeval.io import open_source

    assert open_source(tmp_path / "store").n_episodes == 3


@pytest.mark.parametrize("words", ["--help", "score --help", "--version", "plan p=0.5 half_width=0.2"])
@pytest.mark.parametrize("lines", [True, False])
def test_a_reader_that_leaves_ends_the_program_quietly(
    words: str, lines: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As `jaxeval ... | head` does, in the middle of the output or at its end."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w", buffering=1 if lines else 8192) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(words.split()) == 1
        print("and no more")
        monkeypatch.undo()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("folder", ["experiments", "benchmarks"])
def test_a_script_takes_no_key_twice(folder: str) -> None:
    arguments = runpy.run_path(str(Path(__file__).resolve().parents[1] / folder / "record.py"))["arguments"]
    assert arguments(["out=a"], out="b", n="1") == {"out": "a", "n": "1"}
    with pytest.raises(SystemExit, match="out is given twice, expected once"):
        arguments(["out=a", "out=b"], out="c")
