"""Robots as arrays: kinematics against Pinocchio on every arm, hand-worked arms from URDF and MJCF, refusals."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.metrics.kinematic import Manipulability, joint_limit_margin, manipulability
from jaxeval.robots import forward_kinematics, jacobian, load_pool, load_robot, read_robot, robot_names
from jaxeval.robots.load import data_folder
from jaxeval.robots.model import Chain, Robot, chain, jacobian_of
from jaxeval.types import InputError

ARMS = robot_names()


def pinocchio_of(name: str):
    """The arm built in Pinocchio from the description as shipped (joint axes as they are, not turned to z)."""
    pin = pytest.importorskip("pinocchio")
    told = json.loads((data_folder("robots") / f"{name}.json").read_text())
    model, parent = pin.Model(), 0
    for j in told["joints"]:
        kind = pin.JointModelPrismaticUnaligned if j["kind"] == "prismatic" else pin.JointModelRevoluteUnaligned
        at = pin.SE3(np.array(j["R"]), np.array(j["t_m"]))
        parent = model.addJoint(parent, kind(np.array(j["axis"])), at, j["name"])
    tip = pin.SE3(np.array(told["tip"]["R"]), np.array(told["tip"]["t_m"]))
    frame = model.addFrame(pin.Frame("tip", parent, tip, pin.FrameType.OP_FRAME))
    return pin, model, frame


def measured(robot: Robot, q: jax.Array) -> tuple[Chain, jax.Array, Manipulability]:
    at = chain(robot, q)
    J = jacobian_of(robot, at)
    return at, J, manipulability(J)


@pytest.mark.parametrize("name", ARMS)
def test_kinematics_and_manipulability_are_pinocchios(name: str) -> None:
    robot = load_robot(name)
    pin, model, frame = pinocchio_of(name)
    data = model.createData()
    lower, upper = robot.range()
    q = np.random.default_rng(3).uniform(lower, upper, (1000, robot.joints_n))
    with jax.enable_x64():
        at, J, m = jax.jit(partial(measured, robot))(jnp.asarray(q.T))
        J = np.moveaxis(np.asarray(J), -1, 0)
    theirs, tip, turned = [], [], []
    for row in q:
        pin.computeJointJacobians(model, data, row)
        pin.updateFramePlacements(model, data)
        theirs.append(pin.getFrameJacobian(model, data, frame, pin.LOCAL_WORLD_ALIGNED))
        tip.append(data.oMf[frame].translation.copy())
        turned.append(data.oMf[frame].rotation.copy())
    T = np.array(theirs)
    np.testing.assert_allclose(J, T, atol=1e-9)
    np.testing.assert_allclose(at.tip.t.T, tip, atol=1e-9)
    np.testing.assert_allclose(np.stack([at.tip.x, at.tip.y, at.tip.z], axis=1).transpose(2, 0, 1), turned, atol=1e-9)
    small = T if robot.joints_n >= 6 else T.swapaxes(1, 2)  # fewer joints than rows: the other product
    full = np.sqrt(np.maximum(np.linalg.det(small @ small.swapaxes(1, 2)), 0.0))
    linear = np.sqrt(np.maximum(np.linalg.det(T[:, :3] @ T[:, :3].swapaxes(1, 2)), 0.0))
    np.testing.assert_allclose(m.full, full, atol=1e-6)
    np.testing.assert_allclose(m.translational, linear, atol=1e-6)
    np.testing.assert_allclose(m.sigma_min, np.linalg.svd(T, compute_uv=False)[:, -1], atol=1e-9)


def test_the_panda_matches_the_published_configurations() -> None:
    robot, told = load_robot("panda"), json.loads(Path("tests/golden/manipulability_reference.json").read_text())
    for name, at in told.items():
        q = jnp.array(at["q"])
        m = manipulability(jacobian(robot, q))
        np.testing.assert_allclose(forward_kinematics(robot, q)[4:], at["tcp"], atol=1e-6, err_msg=name)
        assert abs(float(m.translational) - at["w_trans_tcp"]) < 1e-4, name
        assert abs(float(m.full) - at["w_full6_tcp"]) < 1e-4, name


PLANAR_URDF = """<robot name="planar">
 <link name="base"/><link name="upper"/><link name="fore"/><link name="hand"/><link name="slider"/>
 <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 .1"/>
  <axis xyz="0 0 1"/><limit lower="-2" upper="2" velocity="1.5" effort="1"/></joint>
 <joint name="elbow" type="continuous"><parent link="upper"/><child link="fore"/><origin xyz=".3 0 0"/>
  <axis xyz="0 0 -1"/></joint>
 <joint name="wrist" type="fixed"><parent link="fore"/><child link="hand"/>
  <origin xyz=".2 0 0" rpy="0 0 1.5707963"/></joint>
 <joint name="slide" type="prismatic"><parent link="hand"/><child link="slider"/><axis xyz="1 0 0"/>
  <limit lower="0" upper=".1" velocity="0.2" effort="1"/></joint>
</robot>"""
PLANAR_MJCF = """<mujoco><compiler angle="radian"/><worldbody><body name="base"><body name="upper" pos="0 0 .1">
 <joint name="shoulder" type="hinge" axis="0 0 1" range="-2 2" limited="true"/><geom type="mesh" mesh="absent"/>
 <body name="fore" pos=".3 0 0"><joint name="elbow" type="hinge" axis="0 0 -1"/>
  <body name="hand" pos=".2 0 0" euler="0 0 1.5707963"><body name="slider">
   <joint name="slide" type="slide" axis="1 0 0" range="0 .1" limited="true"/><site name="grasp" pos="0 0 0"/>
 </body></body></body></body></body></worldbody><asset><mesh name="absent" file="absent.stl"/></asset></mujoco>"""


def planar(folder: Path, kind: str):
    path = folder / ("planar.urdf" if kind == "urdf" else "planar.xml")
    path.write_text(PLANAR_URDF if kind == "urdf" else PLANAR_MJCF)
    return read_robot(path, base_link="base", tip_link="slider" if kind == "urdf" else "grasp")


@pytest.mark.parametrize("kind", ["urdf", "mjcf"])
def test_an_arm_worked_by_hand(tmp_path: Path, kind: str) -> None:
    robot = planar(tmp_path, kind)
    assert robot.joint_names == ("shoulder", "elbow", "slide") and robot.sliding == (False, False, True)
    # shoulder 90 deg: the upper arm along y. The elbow's axis is -z, so 90 deg turns back along x: hand at
    # (.2, .3, .1), its x axis along the world's y; the slide adds 5 cm there.
    pose = forward_kinematics(robot, jnp.array([np.pi / 2, np.pi / 2, 0.05]))
    np.testing.assert_allclose(pose[4:], [0.2, 0.35, 0.1], atol=1e-6)
    J = jacobian(robot, jnp.array([np.pi / 2, np.pi / 2, 0.05]))
    np.testing.assert_allclose(J[:, 0], [-0.35, 0.2, 0, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(J[:, 1], [0.05, -0.2, 0, 0, 0, -1], atol=1e-6)  # (tip - elbow) = (.2, .05), axis -z
    np.testing.assert_allclose(J[:, 2], [0, 1, 0, 0, 0, 0], atol=1e-6)
    assert np.isinf(robot.upper[1]) and robot.range()[1][1] == np.pi  # continuous
    assert robot.velocity_limit[0] == 1.5 if kind == "urdf" else np.isnan(robot.velocity_limit[0])


def test_what_cannot_be_read_is_said_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "planar.urdf"
    path.write_text(PLANAR_URDF)
    for base, tip, said in [("base", "nose", "no link 'nose'"), ("hand", "upper", "does not hang on hand"), ("hand", "hand", "no moving joint")]:  # fmt: skip  # noqa: E501
        with pytest.raises(InputError, match=said):
            read_robot(path, base_link=base, tip_link=tip)
    for old, new, said in [('xyz=".3 0 0"', 'xyz=".3 0"', "3 numbers"), ('xyz=".3 0 0"', 'xyz="a 0 0"', "3 numbers"), ('xyz="0 0 1"', 'xyz="0 0 0"', "zero axis"), ('type="continuous"', 'type="floating"', "is floating"), ('<parent link="base"/>', "", "no parent link")]:  # fmt: skip  # noqa: E501
        path.write_text(PLANAR_URDF.replace(old, new, 1))
        with pytest.raises(InputError, match=said):
            read_robot(path, base_link="base", tip_link="hand")
    path.write_text(PLANAR_URDF.replace('lower="-2" upper="2"', 'lower="-2"'))
    with pytest.raises(InputError, match="shoulder"):
        read_robot(path, base_link="base", tip_link="hand")
    path.write_text(PLANAR_URDF[:200])
    with pytest.raises(InputError, match="not whole XML"):
        read_robot(path, base_link="base", tip_link="hand")
    (tmp_path / "broken.xml").write_text("<mujoco>")
    with pytest.raises(InputError, match="not readable as MJCF"):
        read_robot(tmp_path / "broken.xml", base_link="base", tip_link="hand")
    with pytest.raises(InputError, match="no such file"):
        read_robot(tmp_path / "none.urdf", base_link="a", tip_link="b")
    with pytest.raises(InputError, match="panda"):
        load_robot("nobody")
    with pytest.raises(InputError, match="panda_uniform_v1"):
        load_pool("nobody")


def test_a_urdf_is_read_as_pinocchio_reads_it(tmp_path: Path) -> None:
    pin = pytest.importorskip("pinocchio")
    rng, links, text = np.random.default_rng(0), ["l0"], ['<robot name="random"><link name="l0"/>']
    for i in range(5):
        xyz, rpy, axis = (" ".join(map(str, rng.normal(size=3))) for _ in range(3))
        kind = ["revolute", "prismatic", "fixed", "revolute", "revolute"][i]
        links.append(f"l{i + 1}")
        text.append(
            f'<link name="l{i + 1}"/><joint name="j{i}" type="{kind}"><parent link="l{i}"/><child link="l{i + 1}"/>'
        )
        text.append(f'<origin xyz="{xyz}" rpy="{rpy}"/><axis xyz="{axis}"/>')
        text.append('<limit lower="-1" upper="1" velocity="1" effort="1"/></joint>')
    path = tmp_path / "random.urdf"
    path.write_text("".join(text) + "</robot>")
    robot, model = read_robot(path, base_link="l0", tip_link="l5"), pin.buildModelFromUrdf(str(path))
    data, q = model.createData(), rng.uniform(-1, 1, 4)
    pin.framesForwardKinematics(model, data, q)
    at = data.oMf[model.getFrameId("l5")]
    tip = chain(robot, jnp.asarray(q, jnp.float32)).tip
    np.testing.assert_allclose(tip.t, at.translation, atol=1e-5)
    np.testing.assert_allclose(np.stack([tip.x, tip.y, tip.z], axis=1), at.rotation, atol=1e-5)


def test_limit_margin_by_hand() -> None:
    lower, upper = jnp.array([-1.0, -jnp.inf, 0.0]), jnp.array([1.0, jnp.inf, 4.0])
    assert joint_limit_margin(jnp.array([0.0, 9.0, 2.0]), lower, upper) == 1.0
    assert joint_limit_margin(jnp.array([0.5, 9.0, 2.0]), lower, upper) == 0.5
    assert joint_limit_margin(jnp.array([0.0, 9.0, 4.0]), lower, upper) == 0.0
    assert joint_limit_margin(jnp.array([1.5, 9.0, 2.0]), lower, upper) == -0.5
