"""Our own ManiSkill environments: what an episode draws, what stays still, and what counts as success."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mani_skill")
pytestmark = pytest.mark.maniskill

STEPS = 20  # one second of control


@contextmanager
def environment(name: str, robot: str, rebuilt_each_episode: bool = False) -> Iterator[Any]:
    import gymnasium

    from jaxeval.sim.maniskill.stand_in import without_renderer

    without_renderer()
    import jaxeval.sim.maniskill.tasks.close_drawer
    import jaxeval.sim.maniskill.tasks.place_can  # noqa: F401

    env = gymnasium.make(
        name,
        robot_uids=robot,
        obs_mode="none",
        reward_mode="sparse",
        control_mode="pd_joint_delta_pos",
        sim_backend="physx_cpu",
        render_backend="none",
        max_episode_steps=10_000,
        reconfiguration_freq=int(rebuilt_each_episode),
    )
    try:
        yield env.unwrapped
    finally:
        env.close()


def wait(env: Any, steps: int = STEPS) -> dict[str, Any]:
    """The outcome after the robot has been told to stay where it is."""
    still = np.zeros(env.action_space.shape, np.float32)
    for _ in range(steps):
        info = env.step(still)[-1]
    return {name: value[0].item() for name, value in info.items() if name != "elapsed_steps"}


def place_in_tray(env: Any, xyz: tuple[float, float, float], lean: float = 0.0) -> None:
    """Put the can at ``xyz`` metres in the tray's frame, leaning by ``lean`` radians towards the tray's x."""
    import sapien

    env.can.set_pose(env.tray.pose * sapien.Pose(xyz, [np.cos(lean / 2), 0, np.sin(lean / 2), 0]))


@pytest.mark.parametrize(
    ("name", "robot"),
    [
        ("PlaceCan-v1", "so100"),
        ("CloseDrawer-v1", "panda_wristcam"),
        ("CloseDrawer-v1", "fetch"),
    ],
)
def test_an_episode_is_its_seed_and_rests(name: str, robot: str) -> None:
    with environment(name, robot, rebuilt_each_episode=robot != "fetch") as env:
        starts = []
        for seed in (0, 1, 0):
            env.reset(seed=seed)
            starts.append(env.get_state().numpy().copy())
        np.testing.assert_array_equal(starts[0], starts[2])
        assert np.abs(starts[0] - starts[1]).max() > 1e-2

        if name == "PlaceCan-v1":
            bodies = {"can": env.scene.actors["can"], "tray": env.scene.actors["tray"]}
        else:
            bodies = {link: env.scene.articulations["cabinet"].links_map[link] for link in ("cabinet", "drawer")}
        assert set(env.body_half_sizes()) == set(bodies)
        before = {body: at.pose.p.clone() for body, at in bodies.items()}
        assert not wait(env)["success"]
        for body, at in bodies.items():
            assert float((at.pose.p - before[body]).norm()) < 2e-4, body


def test_what_counts_as_a_placed_can() -> None:
    with environment("PlaceCan-v1", "panda") as env:
        env.reset(seed=0)
        (radius, _, half_length), (outer, _, _) = env.body_half_sizes().values()
        floor, inner = 0.0025, outer - 0.005  # in the tray's frame
        standing = floor + half_length

        place_in_tray(env, (0, 0, standing + 0.002))
        assert not env.evaluate()["is_can_grasped"].item()
        dropped = wait(env)
        assert dropped["success"]

        for degrees, upright in ((4.0, True), (6.0, False)):
            place_in_tray(env, (0, 0, standing), np.deg2rad(degrees))
            tilted = env.evaluate()
            assert tilted["is_can_upright"].item() is upright and tilted["success"].item() is upright

        # Leaning, 70 deg from upright: its foot on the floor, its flank on the wall's edge, beyond the can's middle.
        lean, wall = np.deg2rad(70), 0.0225
        beyond = wall / np.cos(lean) - half_length
        assert beyond > 0
        x = inner - radius * np.cos(lean) - beyond * np.sin(lean)
        place_in_tray(env, (x, 0, floor + half_length * np.cos(lean) + radius * np.sin(lean)), lean)
        leaning = wait(env)
        tilt = np.arccos(env.can.pose.to_transformation_matrix()[0, 2, 2].item())
        assert np.deg2rad(60) < tilt < np.deg2rad(80)  # it still leans
        assert leaning["is_can_static"] and not leaning["is_can_upright"] and not leaning["success"]

        place_in_tray(env, (0, 0, floor + radius), np.pi / 2)  # on its side
        lying = wait(env)
        assert lying["is_can_static"] and not lying["is_can_upright"] and not lying["success"]

        place_in_tray(env, (0, 0, standing + 0.1))  # in the air
        assert not env.evaluate()["success"].item()

        place_in_tray(env, (-outer - radius - 0.01, 0, half_length - floor))  # upright on the table beside the tray
        beside = wait(env)
        assert beside["is_can_upright"] and beside["is_can_static"]
        assert not beside["is_can_inside"] and not beside["success"]


def test_a_pushed_drawer_shuts_and_stays_shut() -> None:
    with environment("CloseDrawer-v1", "panda") as env:
        env.reset(seed=0)
        assert 0.08 <= env.drawer_joint.qpos.item() <= 0.14
        # The drawer's origin lies in the plane of its 1 cm thick plate, on the cabinet's x, which faces the robot.
        cabinet = env.cabinet.links_map["cabinet"].pose
        out = env.body_half_sizes()["cabinet"][0] + 0.01 + env.drawer_joint.qpos.item()
        relative = (cabinet.inv() * env.drawer.pose).raw_pose[0].numpy()
        np.testing.assert_allclose(relative, [out, 0, 0, 1, 0, 0, 0], atol=1e-6)
        assert cabinet.to_transformation_matrix()[0, 0, 0].item() <= -np.cos(np.deg2rad(20))

        env.cabinet.set_qf(np.full((1, 1), -10.0))  # newtons, as a finger pushes
        pushed = wait(env)
        assert pushed["success"] and pushed["drawer_opening"] < 1e-3
        env.cabinet.set_qf(np.zeros((1, 1)))
        env.cabinet.set_qvel(np.full((1, 1), -0.5))  # slammed: it may not bounce open
        assert wait(env)["drawer_opening"] < 1e-3

        for opening, shut in ((0.0076, False), (0.0074, True)):  # 5 % of 0.15 m is 7.5 mm
            env.cabinet.set_qpos(np.full((1, 1), opening))
            env.cabinet.set_qvel(np.zeros((1, 1)))
            assert wait(env)["success"] is shut
        env.cabinet.set_qvel(np.full((1, 1), 0.05))  # shut, but moving
        moving = env.evaluate()
        assert moving["is_drawer_closed"].item() and not moving["success"].item()
