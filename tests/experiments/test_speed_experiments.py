"""The calibration of the expert and its diagnostics: rules by hand, and both scripts as a reader runs them, small."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.ran import FIELDS, FOLDER, Result, ran

pytest.importorskip("mujoco")
sys.path.append(str(FOLDER))

import expert_diagnostics as diagnostics  # pyright: ignore[reportMissingImports]
import speed_calibration as calibration  # pyright: ignore[reportMissingImports]
from stow_runs import Runs, _kind, interval  # pyright: ignore[reportMissingImports]

GRID = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5)
SMALL = ("embodiments=panda", "episodes=2", "speeds=1,3")


# -------------------------------------------------------------------------------------------------- rules, by hand


@pytest.mark.parametrize(
    "rates, limits",
    [
        ((1, 1, 1, 1, 1, 58 / 64, 57 / 64), (0.5, 2.0)),  # the least that counts counts
        ((1, 0.9, 1, 1, 0.9, 1, 1), (1.0, 1.25)),  # good ones beyond a bad one are no neighbours
        ((0, 0, 1, 0, 0, 0, 0), (1.0, 1.0)),
        ((1,) * 7, (0.5, 2.5)),  # as far as there are candidates
        ((1, 1, 0.9, 1, 1, 1, 1), None),  # not at nominal speed: nowhere
    ],
)
def test_the_calibrated_range_is_the_run_around_nominal_speed(rates, limits) -> None:
    assert calibration.calibrated(GRID, rates) == limits
    assert calibration.calibrated(GRID[::-1], rates[::-1]) == limits


def test_there_is_no_range_without_the_nominal_speed_among_the_candidates() -> None:
    assert calibration.calibrated((0.5, 2.0), (1.0, 1.0)) is None
    assert calibration.calibrated((1.0,), (1.0,)) == (1.0, 1.0)
    assert calibration.calibrated((1.0, 2.0), (0.6, 0.4), least=0.5) == (1.0, 1.0)


def test_the_rule_gives_the_published_range_from_the_published_counts() -> None:
    told = calibration.PUBLISHED["parcel_stow"]
    assert calibration.calibrated([*told.successes], [told.rate(r) for r in told.successes]) == told.range
    assert told.rate(1.1) is None and told.rate(2.5) == 19 / 64


def test_published_medians_are_those_of_their_speed() -> None:
    assert diagnostics.published(diagnostics.SUCCESS, 2.25) == 0.8
    assert diagnostics.published(diagnostics.SUCCESS, 1.75) is None and diagnostics.published((), 1.0) is None
    column, times, values = diagnostics.DIAGNOSTICS["insertion depth, mm"]
    assert column == "stages.depth_max_m" and times * 0.0495 == diagnostics.published(values, 2.25)


def test_interval_is_wilsons() -> None:
    assert interval(0, 2) == pytest.approx((0.0, 1.959964**2 / (2 + 1.959964**2)), abs=1e-6)


def made(**columns: list) -> Runs:
    """Runs of columns given by hand."""
    runs = Runs.__new__(Runs)
    runs.columns = {name: np.array(values, dtype=_kind(values)) for name, values in columns.items()}
    return runs


def test_quantities_are_of_the_episodes_that_have_them() -> None:
    runs = made(speed=[1.0, 1.0, 1.0, 2.0], success_at_end=[True, None, False, True], x=[0.1, None, 0.3, 9.0])
    assert runs.successes(1.0) == (1, 3)
    value, n = runs.quantile("x", 1.0, times=10.0)
    assert value == pytest.approx(2.0) and n == 2
    assert runs.quantile("x", 1.0, 1.0)[0] == pytest.approx(0.3)
    assert np.isnan(runs.quantile("x", 3.0)[0]) and runs.quantile("x", 3.0)[1] == 0


def test_an_embodiment_that_never_acquires_is_drawn_and_told(tmp_path: Path, monkeypatch) -> None:
    """Nothing that it did not reach has a row, and no row is NaN."""
    names = [column for column, _, _ in diagnostics.DIAGNOSTICS.values()] + ["hand.speed_m_s"]
    runs = made(speed=[1.0], success_at_end=[False], cause=["not acquired"], **{name: [None] for name in names})
    for script in (diagnostics, calibration):
        monkeypatch.setattr(script, "rolled_out", lambda *_, **__: runs)
        monkeypatch.setattr(script, "keep_compiled_code", lambda: None)
    diagnostics.main(str(tmp_path / "d"), "", "panda", "1", "1")
    calibration.main(str(tmp_path / "c"), "", "peg_insertion", "panda", "1", "1")
    told = {name: Result(tmp_path / name, "").rows for name in "dc"}
    assert [*told["d"]] == ["panda: success, r = 1"]
    assert told["d"]["panda: success, r = 1"]["note"] == "1 not acquired"
    assert [*told["c"]] == ["panda: success, r = 1", "panda: candidates in the calibrated range"]
    assert told["c"]["panda: success, r = 1"]["published"] == 182 / 200
    assert told["c"]["panda: candidates in the calibrated range"]["ours"] == 0


def test_negative_margins_are_within_the_figure() -> None:
    columns = {column: [0.1, 0.1] for column, _, _ in diagnostics.DIAGNOSTICS.values()}
    runs = made(speed=[1.0, 2.0], success_at_end=[True] * 2, **columns | {"grasp.margin.acquired": [0.004, -0.002]})
    axes = {ax.get_title(): ax.get_ylim() for ax in diagnostics.figure({"panda": runs}, [1.0, 2.0]).axes}
    low, high = axes["force-closure margin at acquisition, 1e-3"]
    assert low < -2 and high > 4
    assert axes["insertion depth, mm"][0] == 0 and axes["insertion depth, mm"][1] > 100


# ------------------------------------------------------------------------------------------ as a reader runs them


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"data={tmp_path_factory.mktemp('rollouts')}"


@pytest.mark.sim
@pytest.mark.slow
def test_calibration_runs_from_nothing(tmp_path_factory: pytest.TempPathFactory, data: str) -> None:
    result = ran("speed_calibration", tmp_path_factory, (*SMALL, data))
    assert all(set(row) == FIELDS for row in result.rows.values()) and len(result.rows) == 9
    nominal = result.rows["panda: success, r = 1"]
    assert nominal["note"] == "2/2" and nominal["published"] == 63 / 64 and nominal["n"] == 2
    assert result["panda: success, r = 3"] == 0.0
    assert result["panda: calibrated range, to, r"] == 1.0
    assert result.rows["panda: calibrated range, to, r"]["published"] == 2.0
    slow, fast = (result[f"panda: peak hand speed, m/s, r = {r}"] for r in (1, 3))
    assert 0.1 < slow < fast < 3 * slow * 1.05  # three times as fast at most, the drives lag
    assert (result.folder / "calibration.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.sim
@pytest.mark.slow
def test_diagnostics_run_from_nothing(tmp_path_factory: pytest.TempPathFactory, data: str) -> None:
    result = ran("expert_diagnostics", tmp_path_factory, (*SMALL, data))
    assert all(set(row) == FIELDS for row in result.rows.values())
    assert len(result.rows) == 2 * (1 + len(diagnostics.DIAGNOSTICS))
    assert result["panda: success, r = 1"] == 1.0
    assert result.rows["panda: success, r = 3"]["note"].startswith("2 ")
    assert 50 < result["panda: insertion depth, mm, r = 1"] < 75
    assert result.rows["panda: insertion depth, mm, r = 1"]["published"] == 56.3
    assert 0.5 < result["panda: peak hand-parcel translation, mm, r = 1"] < 4
    assert 1 < result["panda: force-closure margin at acquisition, 1e-3, r = 1"] < 20
    assert result.told["figures"] == ["diagnostics.png", "causes.png"]
    assert all((result.folder / name).read_bytes().startswith(b"\x89PNG") for name in result.told["figures"])
