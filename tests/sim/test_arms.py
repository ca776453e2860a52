"""Other arms than the Panda: their frames are the simulator's, and the oracles bring their objects to their goals."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mani_skill")
pytestmark = pytest.mark.maniskill


@pytest.mark.parametrize("robot", ["fetch", "so100"])
def test_an_arms_frames_and_width_are_the_simulators(robot: str) -> None:
    from jaxeval.policies.scripted.arm import ARMS, rigid
    from jaxeval.robots import forward_kinematics
    from jaxeval.sim.maniskill.environment import Environments

    envs, arm = Environments("stack_cube", robot=robot), ARMS[robot]
    seen = envs.reset([3]).of(0)
    links = envs.env.agent.robot.links_map
    joints = np.array([seen.joints[seen.joint_names.index(j)] for j in arm.chain().joint_names])
    tip = rigid(np.asarray(forward_kinematics(arm.chain(), joints), np.float64))
    hand, tcp = rigid(seen.T_world_base) * tip * arm.tip_to_hand, rigid(seen.poses["tcp"])
    np.testing.assert_allclose(hand.translation, tcp.translation, atol=1e-5)
    assert (hand.rotation.inv() * tcp.rotation).magnitude() < 1e-4
    np.testing.assert_allclose(seen.half_size_m["cubeA"], 0.02, atol=1e-6)

    ends = (
        ("l_gripper_finger_link", "r_gripper_finger_link") if robot == "fetch" else ("Fixed_Jaw_tip", "Moving_Jaw_tip")
    )
    a, b = (links[name].pose.p[0].numpy() for name in ends)
    # Fetch's finger frames are 30.85 mm apart when its fingers touch
    expected = np.linalg.norm(a - b) - (0.03085 if robot == "fetch" else 0.0)
    assert seen.gripper_width_m == pytest.approx(expected, abs=1e-5)
    middle = tcp.inv().apply((a + b) / 2)  # the closing axis is y: the fingers lie on it, in front of nothing else
    assert abs(middle[0]) < 1e-5 and abs(tcp.inv().apply(b)[1] - tcp.inv().apply(a)[1]) > 0.9 * np.linalg.norm(a - b)


def test_an_arm_of_five_joints_takes_the_nearest_pose_that_it_has() -> None:
    import jax.numpy as jnp
    from scipy.spatial.transform import RigidTransform, Rotation

    from jaxeval.policies.scripted.arm import ARMS, down, row
    from jaxeval.robots import inverse_kinematics

    arm, base = ARMS["so100"], RigidTransform.from_translation([0.0, 0.0, 0.11])
    rng = np.random.default_rng(0)
    wanted = []
    for _ in range(8):
        angle, yaw = rng.uniform(-0.8, 0.8), rng.uniform(-3, 3)
        at = [0.17 * np.sin(angle), -0.0452 - 0.17 * np.cos(angle), rng.uniform(0.03, 0.12)]
        lean = RigidTransform.from_rotation(Rotation.from_rotvec(rng.normal(0, 0.03, 3)))
        wanted.append(down(np.array([np.cos(yaw), np.sin(yaw), 0.0]), np.array(at)) * lean)
    wanted = RigidTransform.concatenate(wanted)
    taken = arm.nearest(base, wanted)

    def off(T: RigidTransform) -> np.ndarray:
        """Rotation, in degrees, that no joints are found for."""
        tips = base.inv() * T * arm.tip_to_hand.inv()
        found = inverse_kinematics(arm.chain(), jnp.asarray([row(t) for t in tips], jnp.float32), iterations_n=40)
        assert float(jnp.max(found.position_error_m)) < 2e-3
        return np.degrees(found.rotation_error_rad)

    assert off(taken).max() < 0.1 < np.median(off(wanted))
    np.testing.assert_allclose(taken.translation, wanted.translation, atol=1e-12)  # the grasp stays where it was
    assert ((taken.rotation.inv() * wanted.rotation).magnitude() < 0.1).all()


def test_fetch_stacks_the_cube_under_its_own_id() -> None:
    from jaxeval.sim.engine import Job, Setting
    from jaxeval.sim.maniskill.backend import ManiSkill, episode_of, run_batch
    from jaxeval.sim.maniskill.environment import Environments

    runs, job = ManiSkill(Setting("stack_cube", "oracle", embodiment="fetch", batch_n=1)), Job(0)
    [trace] = run_batch(Environments("stack_cube", robot="fetch"), [job], runs)
    episode = episode_of(trace, job, runs)
    assert episode.success_at_end and not trace.failed
    assert (episode.task, episode.episode_id) == ("stack_cube", "StackCubeFetch-v1/seed=0/robot=fetch")
    assert episode.gripper_width_m.max() == pytest.approx(0.08, abs=1e-3)
    held = episode.gripper_width_m[episode.sub_task == episode.sub_task_names.index("carry")]
    np.testing.assert_allclose(held, 0.04, atol=1e-3)
