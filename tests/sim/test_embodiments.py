"""The Unitree G1 against its own description as Pinocchio reads it; what its hand has to be able to do."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from jaxeval.robots.embodiments import EMBODIMENTS  # noqa: E402
from jaxeval.sim.mujoco.embodiment import FOLDER, HAND, PARCEL, SCENE, load_embodiment  # noqa: E402
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW  # noqa: E402
from jaxeval.types import InputError  # noqa: E402

pytestmark = pytest.mark.sim
REFERENCE = json.loads((Path(__file__).parent.parent / "golden" / "g1_reference.json").read_text())
FINGERS = ("thumb", "index", "middle", "ring", "pinky")


@pytest.fixture(scope="module")
def g1():
    return load_embodiment("g1")


@pytest.fixture(scope="module")
def robot(g1):
    return g1.mjspec().compile()


def at(model, qpos):
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    return data


def test_joints_limits_and_drives_are_the_robots(g1, robot) -> None:
    arm = [a for a in g1.actuators if a.part == "arm"]
    assert [a.joint for a in arm] == REFERENCE["joints"] == list(g1.joints[:10])
    assert len(g1.joints) == robot.nv == 21 and len(g1.actuators) == 16 and len(g1.fingertips) == 5
    np.testing.assert_allclose(g1.joint_range[:10].T, [REFERENCE["lower"], REFERENCE["upper"]], atol=1e-8)
    np.testing.assert_array_equal(g1.velocity_limit[:10], REFERENCE["velocity"])
    np.testing.assert_array_equal([a.effort for a in arm], REFERENCE["effort"])
    assert [a.joint for a in g1.actuators if a.part == "hand"] == [
        "thumb_cmc_roll",
        "thumb_cmc_pitch",
        *(f"{f}_mcp_pitch" for f in FINGERS[1:]),
    ]


@pytest.mark.parametrize("name", list(EMBODIMENTS))
def test_what_scoring_knows_of_the_joints_is_what_the_robot_has(name: str) -> None:
    ours, embodiment = EMBODIMENTS[name], load_embodiment(name)
    assert ours.names == set(embodiment.joints)
    limits = dict(zip(embodiment.joints, embodiment.velocity_limit.tolist(), strict=True))
    assert {**ours.arm, **ours.hand} == limits
    assert list(ours.arm) == [a.joint for a in embodiment.actuators if a.part == "arm"]


def test_wrist_poses_are_pinocchios(robot) -> None:
    for row in REFERENCE["configurations"]:
        data = at(robot, [*row["q"], *np.zeros(11)])
        base, wrist = data.body("pelvis"), data.body("right_wrist_yaw_link")
        R = base.xmat.reshape(3, 3).T
        np.testing.assert_allclose(R @ (wrist.xpos - base.xpos), row["t_m"], atol=1e-6)
        np.testing.assert_allclose(R @ wrist.xmat.reshape(3, 3), row["R"], atol=1e-6)


def test_inertia_without_the_hand_is_pinocchios(g1) -> None:
    """Mass, centres and inertias of every link at once: joint-space inertia matrices, the drives' rotors taken off.

    The head left out of the lump that is the torso (1.04 kg, .45 m up) would take .2 kg m2 from the waist's entries.
    """
    spec = g1.mjspec()
    for joint in [a.joint for a in g1.actuators if a.part == "hand"]:
        spec.delete(spec.actuator(joint))
    for equality in list(spec.equalities):
        spec.delete(equality)
    spec.delete(spec.body("right_hand"))
    model = spec.compile()
    assert model.nv == 10
    mass = model.body("waist_yaw_link").subtreemass[0]
    np.testing.assert_allclose(mass, REFERENCE["mass_above_pelvis_kg"], atol=1e-6)
    for row in REFERENCE["configurations"]:
        data, M = at(model, row["q"]), np.zeros((10, 10))
        mujoco.mj_fullM(model, data, M)
        np.testing.assert_allclose(M - np.diag(model.dof_armature), row["inertia_kg_m2"], atol=1e-6)


def test_hand_weighs_half_a_kilogram_and_its_fingers_are_of_human_length(robot) -> None:
    assert robot.body("right_hand").subtreemass[0] == pytest.approx(0.501, abs=1e-6)
    data = at(robot, np.zeros(robot.nq))
    for finger, length in zip(FINGERS[1:], (0.085, 0.090, 0.085, 0.078), strict=True):  # knuckle to tip's centre
        proximal, distal = data.body(f"{finger}_proximal"), robot.body(f"{finger}_distal")
        tip = 2 * data.geom_xpos[distal.geomadr[0]] - data.xpos[distal.id]
        assert np.linalg.norm(tip - proximal.xpos) == pytest.approx(length, abs=1e-6)


def test_last_phalanges_follow_their_fingers(g1, robot) -> None:
    assert len(g1.couplings) == robot.neq == 5
    assert all(robot.eq_type == mujoco.mjtEq.mjEQ_JOINT)
    names = {g1.joints[j]: (g1.joints[d], c[:2]) for j, d, c in g1.couplings}
    assert names["thumb_dip"] == ("thumb_cmc_pitch", (0.0, 0.8)) and names["ring_dip"] == ("ring_mcp_pitch", (0.0, 0.8))
    for joint, driver, coefficients in g1.couplings:  # and the default posture keeps to it
        assert g1.default[joint] == pytest.approx(coefficients[1] * g1.default[driver], abs=1e-4)


def test_fingers_close(g1) -> None:
    """The closed hand's pads come nearer than the parcel is wide, the open hand's stand clear of it on both sides."""
    model = g1.mjspec().compile()
    model.opt.timestep, model.opt.integrator = 1 / 200, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    width = PARCEL_STOW.thing.size[1]
    data = at(model, g1.default)
    gaps = []
    for closed in (False, True):
        data.ctrl[:] = g1.closed("parcel") if closed else g1.default[g1.actuated]
        mujoco.mj_step(model, data, nstep=300)
        thumb, *others = (model.body(f"{f}_distal").geomadr[0] for f in FINGERS[:3])
        gaps.append([mujoco.mj_geomDistance(model, data, thumb, other, 1.0, None) for other in others])
        assert np.abs(data.qvel).max() < 0.01
    assert min(gaps[0]) > width + 0.02 and max(gaps[1]) < width - 0.005


def test_default_posture_touches_nothing_and_shapes_do_not_overlap(g1) -> None:
    model = PARCEL_STOW.model(g1)
    start = np.concatenate([g1.default, PARCEL_STOW.thing.start.translation, [1, 0, 0, 0]])
    data = at(model, start)
    hand = np.flatnonzero(model.geom_contype == HAND)
    assert not (model.geom_contype[data.contact.geom[: data.ncon]] == HAND).any()
    up = model.body_parentid
    for i in hand:
        for j in hand[hand > i]:
            a, b = model.geom_bodyid[[i, j]]
            if b in (a, up[a], up[up[a]]) or a in (up[b], up[up[b]]):
                continue  # shapes meet at the joints between them
            assert mujoco.mj_geomDistance(model, data, i, j, 0.1, None) > 0, (model.body(a).name, model.body(b).name)


def test_only_hand_and_forearm_touch_and_all_shapes_are_primitive(robot) -> None:
    shapes = {int(mujoco.mjtGeom.mjGEOM_CAPSULE), int(mujoco.mjtGeom.mjGEOM_BOX)}
    assert set(robot.geom_type) == shapes and robot.nmesh == 0
    touching = robot.geom_contype != 0
    assert set(robot.geom_contype[touching]) == {HAND} and set(robot.geom_conaffinity[touching]) == {PARCEL | SCENE}
    assert not robot.geom_conaffinity[~touching].any()
    bodies = {robot.body(b).name for b in robot.geom_bodyid[touching]}
    segments = {f"{f}_{part}" for f in FINGERS for part in ("proximal", "distal")}
    assert bodies == segments | {"right_hand", "right_elbow_link", "right_wrist_pitch_link"}


# ------------------------------------------------------------------------------------------------------- descriptions


def test_actions_command_offsets_from_the_default():
    panda = load_embodiment("panda")
    np.testing.assert_array_equal(panda.target(np.zeros(8)), panda.default[:8])
    assert panda.target(np.eye(8)[1])[1] == pytest.approx(panda.default[1] + 0.5)
    np.testing.assert_allclose(panda.action(panda.target(np.linspace(-1, 1, 8))), np.linspace(-1, 1, 8))


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("tcp: tcp", "tip: tcp", "key 'tcp' is missing"),
        ("tcp: tcp", "tcp: flange", "'tcp' names 'flange', which the MJCF does not have"),
        ("{joint: joint2,", "{joint: elbow,", "'actuators' names 'elbow'"),
        ("joint3: 2.175, ", "", "'velocity_limits' lacks joint3"),
        ("T_world_base: [0.95", "T_world_base: [1.95", "'T_world_base' is .*; expected seven numbers"),
        ("part: hand", "part: gripper", "expected 'arm' or 'hand'"),
        ("mjcf: panda.xml", "mjcf: pandas.xml", "its MJCF 'pandas.xml' cannot be read"),
    ],
)
def test_a_description_that_does_not_fit_is_refused_in_one_sentence(tmp_path, old, new, says):
    shutil.copy(FOLDER / "panda.xml", tmp_path)
    text = (FOLDER / "panda.yaml").read_text()
    assert old in text
    (tmp_path / "odd.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=says):
        load_embodiment(tmp_path / "odd.yaml")


def test_an_unknown_embodiment_is_answered_with_those_there_are():
    with pytest.raises(InputError, match=r"embodiment 'pandas': there is none; expected one of .*panda"):
        load_embodiment("pandas")
