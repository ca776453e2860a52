"""Specs of the MuJoCo tasks: an expert's episodes have all sub-tasks, each ending in the phase that does it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

pytest.importorskip("mujoco")
pytestmark = pytest.mark.sim

from jaxeval.io.spec import load_spec, read_task  # noqa: E402
from jaxeval.policies.scripted.arm import rigid  # noqa: E402
from jaxeval.run.propose import _segmented  # noqa: E402
from jaxeval.run.rollout import rollout  # noqa: E402
from jaxeval.sim.mujoco.embodiment import load_embodiment  # noqa: E402
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task, mujoco_task_names, task_from_dict  # noqa: E402
from jaxeval.types import InputError  # noqa: E402


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
    box = {name: {b.name: b for b in load_mujoco_task(name).boxes} for name in mujoco_task_names()}
    for name in mujoco_task_names():
        task, spec = load_mujoco_task(name), load_spec(name)
        sizes = {b.name: b.shape.size_m for b in spec.bodies}
        model = task.model(load_embodiment("panda"))
        for geom in (task.thing.name, "table"):
            np.testing.assert_allclose(model.geom(geom).size, sizes[geom])
        assert model.body(task.thing.name).mass == pytest.approx(task.thing.mass)
        assert spec.instruction and spec.reference == "receptacle"
    near, plate = box["peg_insertion"]["receptacle_near"].size, box["upright_placement"]["receptacle_plate"].size
    stow = load_spec("parcel_stow").stages
    for name, size in {
        "peg_insertion": (near[2], near[1], near[1]),
        "upright_placement": (plate[2], plate[0], plate[1]),
        "parcel_stow": (stow.depth_m, 2 * stow.half_section_m[0], 2 * stow.half_section_m[1]),
    }.items():
        (receptacle,) = (b for b in load_spec(name).bodies if b.name == "receptacle")
        np.testing.assert_allclose(receptacle.shape.size_m, np.array(size) / 2)


@pytest.mark.parametrize("name", ["parcel_stow", "peg_insertion"])
def test_the_opening_of_the_stages_is_what_the_boxes_leave_free(name: str) -> None:
    """A millimetre further on every side there is a wall, and behind the depth there is one."""
    task, g = load_mujoco_task(name), load_mujoco_task(name).geometry
    wide, high, deep = *np.asarray(g.half_section_m).tolist(), float(g.interior_depth_m)

    def blocked(*at: float) -> bool:
        world = rigid(np.asarray(g.T_world_entrance)).apply(at)
        inside = [
            np.abs(Rotation.from_euler("z", -b.yaw_rad).apply(world - b.centre)) <= np.array(b.size) / 2
            for b in task.boxes
        ]
        return bool(np.all(inside, axis=1).any())

    for y, z in ((wide, 0), (-wide, 0), (0, high), (0, -high)):
        for depth in (0.1 * deep, 0.5 * deep, 0.9 * deep):
            assert not blocked(depth, y - np.sign(y) * 1e-4, z - np.sign(z) * 1e-4)
            assert blocked(depth, y + np.sign(y) * 1e-3, z + np.sign(z) * 1e-3)
    assert not blocked(-1e-3, 0, 0) and blocked(deep + 1e-3, 0, 0)


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        ("mujoco.mass_kg", ..., r"mujoco\.mass_kg is 'missing'; expected a value"),
        ("mujoco.mass_kg", 0, r"mujoco\.mass_kg is 0; expected a number from 1e-06 on"),
        ("mujoco.mass", 1, r"mujoco\.mass is 1; expected only the keys mass_kg, start"),
        ("mujoco.boxes.table", ..., r"mujoco\.boxes\.table is 'missing'; expected a box"),
        ("mujoco.boxes.shelf", {"centre_m": [0, 0, 0]}, r"bodies\.shelf is 'missing'; expected a box"),
        ("mujoco.path.FLY", {"position_m": [0, 0, 0], "wxyz": [1, 0, 0, 0]}, r"mujoco\.path is 'FLY'; expected phases"),
        ("mujoco.start.turns_deg", [["z", "far"]], r"mujoco\.start\.turns_deg is 'far'; expected a number"),
        ("stages.phases.PARK.seconds", 0, r"stages\.phases\.PARK\.seconds is 0; expected a number from 0\.001 on"),
        ("stages.phases.PARK.scaled", "no", r"stages\.phases\.PARK\.scaled is 'no'; expected true or false"),
        ("stages.friction", ..., r"stages\.friction is 'missing'; expected a value: the scene takes it from there"),
        ("bodies.parcel.shape", {"kind": "sphere", "radius_m": 0.1}, r"bodies\.parcel is 'sphere'; expected a box"),
    ],
)
def test_a_wrong_key_of_the_scene_gets_one_sentence(where: str, value, says: str) -> None:
    data, _ = read_task("parcel_stow")
    *parents, key = where.split(".")
    table = data
    for parent in parents:
        table = table[parent]
    if value is ...:
        del table[key]
    else:
        table[key] = value
    with pytest.raises(InputError, match=says):
        task_from_dict(data)
