"""The comparison of backends, on episodes whose differences are known: one of MuJoCo's, and copies changed by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco")
sys.path.append(str(Path(__file__).resolve().parents[2] / "experiments"))

import backend_agreement as script  # pyright: ignore[reportMissingImports]
from record import Record  # pyright: ignore[reportMissingImports]
from scipy.spatial.transform import Rotation

from jaxeval.policies.policy import episode_key
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.environment import Environments, run
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW

SCHEDULE = PARCEL_STOW.schedule

pytestmark = pytest.mark.sim


@pytest.fixture(scope="module")
def episode():
    panda = load_embodiment("panda")
    return run(Environments(PARCEL_STOW, panda), [PARCEL_STOW.expert(panda)], [episode_key(0, 0)], 1.0)[0][0]


def rows(record) -> dict:
    return {row.quantity: row for row in record.rows}


def moved(episode, first: int, by_m: float = 0.0, by_rad: float = 0.0):
    """The object elsewhere from a step on, its quaternion with the other sign."""
    pose = episode.object_pose.copy()
    pose[first:, 6] += by_m
    turn = Rotation.from_rotvec([by_rad, 0, 0]) * Rotation.from_quat(pose[first:, :4], scalar_first=True)
    pose[first:, :4] = -turn.as_quat(scalar_first=True)
    return episode._replace(object_pose=pose)


def test_differences_of_the_first_second_are_the_greatest_within_it(episode, tmp_path):
    joints = episode.joint_position.copy()
    joints[7, 3] -= 2e-3
    ours = moved(episode, 50, by_m=1e-3, by_rad=1e-5)._replace(joint_position=joints)
    record = Record("", "", tmp_path)
    script.first_second(record, "both", [ours, episode], [episode, episode], np.array([1.0, 2.0]))
    script.first_second(record, "late", [moved(episode, 51, by_m=1.0)], [episode], np.ones(1))
    found = {name: row.ours for name, row in rows(record).items()}
    greatest = "both: first second, greatest {} difference, {}"
    assert found[greatest.format("joint position", "rad")] == pytest.approx(2e-3)
    assert found[greatest.format("object position", "m")] == pytest.approx(1e-3)
    assert found[greatest.format("object rotation", "rad")] == pytest.approx(1e-5)
    assert found["late: first second, greatest object position difference, m"] == 0
    assert {row.n for row in record.rows} == {1}


def test_episodes_that_end_otherwise_are_counted_and_named(episode, tmp_path):
    """A parcel that jumps 30 cm up at the insertion has left the hand and is not inserted; an unchanged one is."""
    late = int(np.argmax(episode.phase == SCHEDULE.index("INSERT")))
    ours = script.judged(PARCEL_STOW, [episode, moved(episode, late, by_m=0.3)])
    theirs = script.judged(PARCEL_STOW, [episode, episode])
    record = Record("", "", tmp_path)
    script.stages(record, "panda", ours, theirs, np.ones(2))
    found = rows(record)
    assert found["panda, r = 1: success, MJX"].ours == 0.5 and found["panda, r = 1: success, MuJoCo"].ours == 1.0
    assert found["panda, r = 1: same success"].note == "1/2; MJX / MuJoCo, 1: SLIPPED / SUCCESS"
    assert found["panda, r = 1: same stage pre_insert"].note == "2/2; greatest difference 0 steps"
    assert found["panda, r = 1: same stage inserted"].note == "1/2; greatest difference 0 steps"
