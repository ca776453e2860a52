"""Attribution of planted faults, and transfer to other arms and noisy poses, as a reader runs them."""

from __future__ import annotations

import pytest
import yaml

from tests.experiments.ran import FOLDER, ran
from tests.experiments.test_oracle_experiments import check_promises

pytestmark = pytest.mark.slow

EXPECTED = yaml.safe_load((FOLDER / "fault_expected.yaml").read_text())


@pytest.mark.parametrize("name", ["fault_attribution", "transfer"])
def test_the_result_is_as_promised(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    check_promises(ran(name, tmp_path_factory))


def test_faults_are_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = ran("fault_attribution", tmp_path_factory)
    assert result["off-centre and stalled: Q = 0"] == 1
    assert result["all faults: named right"] >= 0.75
    assert result["peg_insertion_side beside_hole: named right"] >= 0.9
    for task, faults in EXPECTED.items():
        for fault, expected in faults.items():
            assert result[f"{task} {fault}: Q"] < 0.999
            if "gate" in expected:
                assert result[f"{task} {fault}: Q"] == 0


def test_noise_costs_quality(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = ran("transfer", tmp_path_factory)
    exact = result["all tasks Q, noise 0 mm 0 deg"]
    assert exact >= 0.97
    free = [result[f"all tasks gate-free Q, noise {mm} mm {mm / 2:g} deg"] for mm in (0, 1, 2, 5, 10)]
    assert free == sorted(free, reverse=True)
    assert result["all tasks Q, noise 2 mm 1 deg"] < exact
    assert result["all tasks gate-free Q, noise 2 mm 1 deg"] >= 0.93
    assert result["all tasks Q, noise 2 mm 1 deg, smoothed"] > result["all tasks Q, noise 2 mm 1 deg"]
