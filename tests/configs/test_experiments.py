"""Every preset of conf/experiment composes, is of the verb that it says, and runs at its least."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from jaxeval.cli import main
from jaxeval.io.source import bundled_path
from jaxeval.io.spec import conf_dir

PRESETS = {p.stem: yaml.safe_load(p.read_text()) for p in sorted((conf_dir() / "experiment").glob("*.yaml"))}
NEEDS = {"rollout": [pytest.mark.sim], "fit": [pytest.mark.slow], "score": [pytest.mark.slow]}


def marked(name: str) -> Any:
    return pytest.param(name, marks=NEEDS[PRESETS[name]["verb"]])


def ends(values: str) -> str:
    first, *_, last = values.split(",")
    return f"{first},{last}"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "stack_cube"
    assert main(["fit", "episodes=bundled:stack_cube_demos", "demonstrations_n=5", f"out={out}"]) == 0
    return out


@pytest.mark.parametrize("name", [marked(name) for name in PRESETS])
def test_a_preset_runs_at_its_least(
    name: str, reference: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = PRESETS[name]
    verb, sweeps = preset["verb"], preset["hydra"]["sweeper"]["params"]
    over = next((key for key in ("of", "task") if key in sweeps), "")
    tasks = [f"{over}={ends(sweeps[over])}"] if over else []  # a task is a compilation: the first and the last
    runs_n = math.prod(len(str(values).split(",")) for values in sweeps.values()) if not tasks else 2
    words = [verb, f"experiment={name}", "debug=tiny", f"out={tmp_path / 'out'}", *tasks]
    if verb == "rollout":
        words += ["task=parcel_stow", "policy=random"]
    elif "episodes" not in preset:
        words.append("episodes=bundled:stack_cube_demos" if verb == "fit" else "episodes=bundled:stack_cube_tilt")
    if verb == "score" and "reference" not in preset:
        words.append(f"reference={reference}")
    monkeypatch.chdir(tmp_path)
    if name == "spectra_sensitivity":
        assert main(["fit", "experiment=spectra_references", "debug=tiny", f"task={ends(sweeps['of'])}"]) == 0
    assert main(words) == 0, capsys.readouterr().err
    done = [*(tmp_path / "out").rglob("sweep.json")] if verb != "fit" else [*(tmp_path / "out").glob("*.npz")]
    assert len(done) == runs_n
    if verb != "fit":
        assert main(["gather", str(tmp_path / "out")]) == 0
        assert (tmp_path / "out" / "gathered.png").is_file() == (len(sweeps) in (1, 2))


@pytest.mark.parametrize("chosen", ["experiment=spectra_calibrated", "+experiment=spectra_calibrated"])
def test_a_preset_of_another_verb_is_refused_in_a_sentence(chosen: str, tmp_path: Path, capsys: Any) -> None:
    words = ["fit", chosen, "episodes=bundled:stack_cube_demos", f"out={tmp_path / 'o'}"]
    assert main(words) == 1
    assert "is one of `jaxeval score`; run `jaxeval score experiment=spectra_calibrated`" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_every_preset_says_its_table_and_its_command() -> None:
    for name, preset in PRESETS.items():
        text = (conf_dir() / "experiment" / f"{name}.yaml").read_text()
        assert f"jaxeval {preset['verb']} experiment={name}" in text
        assert "SPECTRA, Table" in text or "ParcelStow, " in text


def test_a_preset_over_tasks_has_recordings_of_each() -> None:
    """The first and the last of these run above; the others differ from them by their recordings alone."""
    over = {name: preset for name, preset in PRESETS.items() if "of" in preset["hydra"]["sweeper"]["params"]}
    assert over
    for preset in over.values():
        for task in preset["hydra"]["sweeper"]["params"]["of"].split(","):
            assert bundled_path(preset["episodes"].removeprefix("bundled:").replace("${of}", task)).exists()
