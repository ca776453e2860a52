"""Inverse kinematics: what it finds is checked by Pinocchio or forward kinematics, what cannot be reached is said."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.robots import follow, forward_kinematics, inverse_kinematics, load_robot
from tests.robots.test_model import pinocchio_of


def poses_of(robot, q) -> jax.Array:
    return jax.jit(jax.vmap(partial(forward_kinematics, robot)))(jnp.asarray(q, jnp.float32))


def reachable(robot, n: int, seed: int) -> jax.Array:
    lower, upper = robot.range()
    return poses_of(robot, np.random.default_rng(seed).uniform(lower, upper, (n, robot.joints_n)))


@pytest.fixture(scope="module")
def panda():
    robot = load_robot("panda")
    middle = jnp.asarray(sum(robot.range()) / 2, jnp.float32)
    solve = jax.jit(lambda targets, near: inverse_kinematics(robot, targets, near=near))

    def padded(targets, near=middle):  # always 1,000 targets: compiled once
        fill = jnp.concatenate([targets, jnp.repeat(targets[-1:], 1000 - len(targets), axis=0)])
        return jax.tree.map(lambda x: x[: len(targets)], solve(fill, near))

    return robot, padded


def test_99_of_100_reachable_targets_are_found_and_pinocchio_agrees(panda) -> None:
    robot, solve = panda
    targets = reachable(robot, 1000, seed=1)
    found = solve(targets)
    assert float(found.converged.mean()) >= 0.99
    lower, upper = robot.range()
    assert (np.asarray(found.joints) >= lower - 1e-6).all() and (np.asarray(found.joints) <= upper + 1e-6).all()
    assert (np.asarray(found.limit_margin) >= -1e-6).all()
    pin, model, frame = pinocchio_of("panda")
    data = model.createData()
    for q, ok, target in zip(np.asarray(found.joints, float), found.converged, np.asarray(targets), strict=True):
        if not ok:
            continue
        pin.framesForwardKinematics(model, data, q)
        at = data.oMf[frame]
        assert np.linalg.norm(at.translation - target[4:]) < 1e-3
        wanted = pin.Quaternion(*map(float, target[:4])).matrix()
        assert np.linalg.norm(pin.log3(at.rotation.T @ wanted)) < np.radians(0.1) + 1e-5


def test_what_cannot_be_reached_is_flagged(panda) -> None:
    robot, solve = panda
    targets = reachable(robot, 1000, seed=2)
    away = targets[:, 4:] / jnp.linalg.norm(targets[:, 4:], axis=1)[:, None]
    found = solve(targets.at[:, 4:].set(2.5 * away))  # the arm is shorter than 1.3 m
    assert not found.converged.any()
    assert float(found.position_error_m.min()) > 1.0
    upside = targets.at[:, 6].add(-2.0)
    assert not solve(upside).converged.any()


def test_converged_means_within_the_tolerances_asked_for() -> None:
    robot = load_robot("panda")
    targets = reachable(robot, 64, seed=3)
    found = jax.jit(partial(inverse_kinematics, robot, seeds_n=2, iterations_n=5))(targets)
    poses = poses_of(robot, found.joints)
    off = jnp.linalg.norm(poses[:, 4:] - targets[:, 4:], axis=1)
    assert 0 < int(found.converged.sum()) < 64  # too few seeds and steps: some of each
    np.testing.assert_allclose(found.position_error_m, off, atol=1e-5)
    assert float(off[found.converged].max()) < 1e-3


def test_near_chooses_among_the_solutions_and_nothing_is_random(panda) -> None:
    robot, solve = panda
    targets = reachable(robot, 32, seed=4)
    first, again = solve(targets), solve(targets)
    np.testing.assert_array_equal(first.joints, again.joints)
    near = jnp.array([0.5, 0.2, -0.4, -1.5, 0.3, 1.8, 0.6])
    closer = solve(targets, near)
    both = np.asarray(first.converged & closer.converged)
    a, b = (np.linalg.norm(x.joints - near[None], axis=1) for x in (closer, first))
    assert (a <= b + 1e-4)[both].all()
    assert (
        np.linalg.norm(closer.joints - near[None], axis=1) <= np.linalg.norm(first.joints - near[None], axis=1) + 1e-4
    )[both].all()


@pytest.mark.parametrize("name", ["so101", "fetch"])  # five joints; one slides and some have no limits
def test_other_arms(name: str) -> None:
    robot = load_robot(name)
    found = jax.jit(partial(inverse_kinematics, robot))(reachable(robot, 200, seed=5))
    assert float(found.converged.mean()) >= 0.98


def test_a_path_is_followed_with_least_steps_and_a_gap_is_said() -> None:
    robot = load_robot("panda")
    start = jnp.array([0.0, np.pi / 8, 0.0, -5 * np.pi / 8, 0.0, 3 * np.pi / 4, np.pi / 4])
    s = jnp.linspace(0, 1, 60)
    path = start[None] + s[:, None] * jnp.array([0.4, -0.2, 0.0, 0.3, 0.1, -0.2, 0.2])[None]
    targets = poses_of(robot, path).at[30, 4].add(3.0)  # one frame out of reach
    found = jax.jit(partial(follow, robot))(targets, start)
    assert np.flatnonzero(~np.asarray(found.converged)).tolist() == [30]
    assert float(found.position_error_m[30]) > 1.0
    kept = np.asarray(found.joints)[np.asarray(found.converged)]
    assert np.abs(np.diff(kept, axis=0)).max() < 0.06  # no jump to another branch, not after the lost frame either
    walked, given = (np.linalg.norm(np.diff(x, axis=0), axis=1).sum() for x in (kept, np.asarray(path)))
    assert walked <= given + 1e-3  # least steps: no longer than the path that the poses were made with
    np.testing.assert_allclose(
        poses_of(robot, kept)[:, 4:], np.asarray(targets)[np.asarray(found.converged), 4:], atol=1e-3
    )
