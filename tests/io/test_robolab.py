"""RoboLab's files: values against what was written, where the robot stands, and the outcome in the results."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from jaxeval.io import InputError, bundled
from jaxeval.io.readers.robolab import is_robolab, read_robolab
from jaxeval.io.readers.robomimic import is_robomimic
from jaxeval.types import Episode, Finding
from tests.io.foreign import write_robolab


@pytest.fixture(scope="module")
def recorded() -> list[Episode]:
    return bundled("stack_cube_demos").read(0, 2)


def codes(findings: list[Finding]) -> set[str]:
    return {f.code for f in findings}


def test_values_against_what_was_written(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robolab(tmp_path, recorded)
    assert (is_robolab(path), is_robomimic(path)) == (True, False)
    episodes, findings = read_robolab(path)
    assert codes(findings) == {"tcp_is_end_effector_link", "tcp_frame_assumed", "no_gripper"}
    for e, r in zip(episodes, recorded, strict=True):
        assert e.bodies == ("cubeA", "cubeB", "table", "tcp")
        for body in r.bodies:
            np.testing.assert_array_equal(e.body(body), r.body(body))
        np.testing.assert_array_equal(e.joints, r.joints)
        np.testing.assert_array_equal(e.actions, r.actions)
        np.testing.assert_allclose(e.time_s, np.arange(r.n_frames) * 0.05)
        assert e.gripper_width_m is None
    assert [(e.success_once, e.success_at_end) for e in episodes] == [(None, False), (True, True)]
    assert [(e.seed, e.group, e.task) for e in episodes] == [(100, "pi05", "stack_task"), (101, "pi05", "stack_task")]


def test_the_robots_root_places_its_end_effector(tmp_path: Path, recorded: list[Episode]) -> None:
    root = np.array([np.cos(0.4), 0.1, -0.2, np.sin(0.4), 0.3, -0.5, 0.8])
    root[:4] /= np.linalg.norm(root[:4])
    episodes, findings = read_robolab(write_robolab(tmp_path, recorded, root=root))
    assert "tcp_frame_assumed" not in codes(findings)
    for e, r in zip(episodes, recorded, strict=True):
        np.testing.assert_allclose(e.body("tcp"), r.body("tcp"), atol=1e-7)


def test_the_step_comes_from_results_configuration_or_the_caller(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robolab(tmp_path, recorded, results=False)
    with pytest.raises(InputError, match=r"no time step.*control_freq_hz"):
        read_robolab(path)
    assert read_robolab(path, control_freq_hz=10)[0][0].time_s[1] == pytest.approx(0.1)
    (path.parent / "env_cfg.json").write_text(json.dumps({"decimation": 8, "sim": {"dt": 1 / 120}}))
    episodes, findings = read_robolab(path)
    assert episodes[0].time_s[1] == pytest.approx(1 / 15) and "no_results" in codes(findings)
    with pytest.raises(InputError, match="expected a positive number"):
        read_robolab(path, control_freq_hz=-1)


def test_outcomes_that_differ_or_lack_are_unknown(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robolab(tmp_path, recorded)
    with h5py.File(path, "a") as file:
        file["data/demo_1"].attrs["success"] = False
    episodes, findings = read_robolab(path)
    assert [e.success_at_end for e in episodes] == [False, None] and "success_disagrees" in codes(findings)
    results = tmp_path / "out" / "episode_results.jsonl"
    results.write_text(results.read_text().splitlines()[1].replace('"run": 0', '"run": 7') + "\n{half a li")
    with pytest.raises(InputError, match="no time step"):  # the lines are of another run
        read_robolab(path)
    episodes, findings = read_robolab(path, control_freq_hz=20)
    assert [e.success_at_end for e in episodes] == [None, False]
    assert {"bad_results", "success_unknown"} <= codes(findings)


def test_older_results_name_the_run_at_the_end_of_its_name(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robolab(tmp_path, recorded[:1])
    lines = [
        {"env_name": "StackTask", "run_name": f"StackTask_{k}", "episode": k, "success": k == 0, "dt": 0.05 + k}
        for k in (0, 1)
    ]
    (tmp_path / "out" / "episode_results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (e,), _ = read_robolab(path)
    assert e.success_at_end is True and e.time_s[1] == pytest.approx(0.05)


def test_isaac_lab_3_and_missing_groups_are_doubts(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robolab(tmp_path, recorded)
    with h5py.File(path, "a") as file:
        file["data"].attrs["isaaclab_version"] = "3.0.0"
        for k in range(2):
            del file[f"data/demo_{k}/ee_pose"]
    episodes, findings = read_robolab(path)
    assert {"quaternion_order", "no_tcp"} <= codes(findings) and "tcp" not in episodes[0].bodies
    with h5py.File(path, "a") as file:
        del file["data/demo_0/states/rigid_object"]
    episodes, findings = read_robolab(path)
    assert len(episodes) == 1
    assert "demo_0 has no 'states/rigid_object'" in next(f.found for f in findings if f.code == "unreadable_episode")
