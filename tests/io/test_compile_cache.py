"""Compiled code between runs: never another processor's, never a word on stderr that is not ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from jaxeval.io import compile_cache

OURS = re.compile(r"jaxeval \w+: |note: |refused: |left out: |.*\d+%\||$")
"""What may stand on stderr: our sentences, and progress bars."""
CPUINFO = """processor\t: {core}
vendor_id\t: GenuineIntel
model\t\t: 85
microcode\t: 0x{core}
cpu MHz\t\t: 26{core}.0
flags\t\t: fpu sse avx {more}
"""


def processor(path: Path, *cores: str) -> str:
    path.write_text("\n".join(cores), encoding="utf-8")
    return compile_cache._processor(path)


def test_a_processor_is_what_it_can_do_and_not_how_it_is_today(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    one = processor(file, CPUINFO.format(core=10, more="avx2"))
    assert "avx2" in one and "MHz" not in one and "microcode" not in one
    assert processor(file, CPUINFO.format(core=11, more="avx2")) == one
    assert processor(file, *(CPUINFO.format(core=k, more="avx2") for k in (10, 11))) == one
    assert processor(file, CPUINFO.format(core=10, more="avx2 avx512f")) != one
    assert compile_cache._processor(tmp_path / "none")  # no such file: what the platform says


def test_the_folder_is_of_the_processor_and_the_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    here = compile_cache._folder()
    assert here is not None and here.parent == tmp_path and here == compile_cache._folder()
    monkeypatch.setattr(compile_cache, "_processor", lambda: "another")
    assert compile_cache._folder() != here
    monkeypatch.undo()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_cache, "version", lambda package: "9.9.9")
    assert compile_cache._folder() != here


@pytest.mark.parametrize("where", ["/dev/null", "/proc/nowhere", "file/in/it", "a\0b"])
def test_no_folder_is_no_cache_and_no_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    if "\0" in where:
        monkeypatch.setattr(compile_cache.os, "environ", {"XDG_CACHE_HOME": where})
    else:
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", where if where[0] == "/" else str(tmp_path / where))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_cache._folder() is None


def run(folder: Path, cache: Path | str, *words: str) -> str:
    """A verb as a person runs it; what it said on stderr."""
    ours = ("JAX_", "TF_CPP", "XLA_")  # the tests' own settings, of which a person has none
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)} | {
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),  # compiles faster
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    command = [sys.executable, "-m", "jaxeval.cli", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_second_run_says_nothing_nor_does_one_without_a_cache(tmp_path: Path) -> None:
    plan = ("plan", "half_width=0.2", "p=0.8")
    assert run(tmp_path, "/dev/null", *plan) == ""
    cache = tmp_path / "cache"
    assert [run(tmp_path, cache, *plan) for _ in range(2)] == ["", ""]
    assert list((cache / compile_cache.cache_name()).iterdir())


@pytest.mark.slow
@pytest.mark.sim
def test_every_verb_run_twice_says_only_what_is_ours(tmp_path: Path) -> None:
    demos = "episodes=bundled:stack_cube_demos"
    (tmp_path / "m.csv").write_text("episode,Q,success\n" + "".join(f"e{k},{k / 9},{k > 4}\n" for k in range(9)))
    for words in (
        ("fit", demos, "out=r"),
        ("score", "reference=r", demos, "out=s", "frames=true"),
        ("score", "metrics=[geometric,smoothness,kinematic]", "reference=r", demos, "out=all"),
        ("report", "scores=s", "reference=r"),
        ("demo",),
        ("inspect", "bundled:stack_cube_demos"),
        ("convert", "bundled:stack_cube_demos", "out=c", "overwrite=true"),
        ("propose", demos, "out=p.yaml", "overwrite=true"),
        ("compare", "records=bundled:parcelstow", "a=expert", "b=Diffusion Policy", "pairing=auto", "resamples_n=100"),
        ("plan", "a_only=0.42", "b_only=0.11"),
        ("agree", "metrics=m.csv", "resamples_n=100"),
        ("rollout", "task=parcel_stow", "episodes=1", "out=o"),
        ("video", "o", "out=v", "width=64", "height=64", "fps=2"),
    ):
        for again in range(2):
            first = (f"episodes={again + 1}",) if words[0] == "rollout" else ()
            now = [w for w in words if not (first and w.startswith("episodes="))]
            said = run(tmp_path, tmp_path / "cache", *now, *first).replace("\r", "\n").splitlines()
            assert not [line for line in said if not OURS.match(line)], words
