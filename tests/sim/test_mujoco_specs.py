"""Specs of the MuJoCo tasks: an expert's episodes have all sub-tasks, each ending in the phase that does it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytestmark = pytest.mark.sim

from jaxeval.io.spec import load_spec  # noqa: E402
from jaxeval.run.propose import _segmented  # noqa: E402
from jaxeval.run.rollout import rollout  # noqa: E402
from jaxeval.sim.mujoco.tasks import parcel_stow, peg_insertion, upright_placement  # noqa: E402
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task, mujoco_task_names  # noqa: E402


@pytest.mark.parametrize("name", mujoco_task_names())
def test_every_sub_task_ends_in_the_phase_that_does_it(name, tmp_path) -> None:
    task, spec = load_mujoco_task(name), load_spec(name)
    made = rollout(name, tmp_path / name, embodiment="panda", episodes=2, processes=1)
    episodes = made.store.read(0, 2)
    assert {b.name for b in spec.bodies} == {*episodes[0].bodies}
    ends, reached = _segmented([e.prepared() for e in episodes], spec)
    assert reached.all()
    expected = ["APPROACH", "LIFT", "TRANSFER", task.geometry.insert_phase, "RETREAT"]
    for episode, rows in zip(episodes, ends, strict=True):
        assert episode.success_at_end
        assert [task.schedule.names[int(episode.signals["phase"][row])] for row in rows] == expected


def test_sizes_are_those_of_the_scene() -> None:
    """The thing and the table of every task; the receptacle is a hole with its walls, a plate, a box's inside."""
    for name in mujoco_task_names():
        task, spec = load_mujoco_task(name), load_spec(name)
        sizes = {b.name: b.shape.size_m for b in spec.bodies}
        np.testing.assert_allclose(sizes[task.thing.name], np.array(task.thing.size) / 2)
        np.testing.assert_allclose(sizes["table"], np.array(parcel_stow.TABLE.size) / 2)
        assert spec.instruction and spec.reference == "receptacle"
    peg, place, stow = peg_insertion, upright_placement, parcel_stow
    for name, size in {
        "peg_insertion": (peg.DEPTH, peg.HOLE + 2 * peg.WALL, peg.HOLE + 2 * peg.WALL),
        "upright_placement": (place.PLATE_HIGH, place.PLATE, place.PLATE),
        "parcel_stow": (stow.DEPTH, stow.WIDTH, stow.HEIGHT),
    }.items():
        (receptacle,) = (b for b in load_spec(name).bodies if b.name == "receptacle")
        np.testing.assert_allclose(receptacle.shape.size_m, np.array(size) / 2)
