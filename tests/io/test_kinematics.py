"""Tip poses on the host against the compiled kinematics of one configuration."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.io.kinematics import tip_poses
from jaxeval.io.poses import composed
from jaxeval.robots import forward_kinematics, load_robot

STILL = np.array([1.0, 0, 0, 0, 0, 0, 0])


def test_tips_are_those_of_the_robots_own_kinematics() -> None:
    panda = load_robot("panda")
    rng = np.random.default_rng(0)
    q = rng.uniform(*panda.range(), (5, 7))
    ours = tip_poses(panda, q, np.tile(STILL, (5, 1)))
    of_one = jax.jit(lambda angles: forward_kinematics(panda, angles))
    for row, angles in zip(ours, q, strict=True):
        theirs = np.asarray(of_one(jnp.asarray(angles, jnp.float32)), float)
        np.testing.assert_allclose(row[4:], theirs[4:], atol=2e-6)
        assert abs(row[:4] @ theirs[:4]) > 1 - 1e-6


def test_the_base_is_composed_and_bad_frames_are_marked() -> None:
    panda = load_robot("panda")
    q = np.tile([0.1, -0.5, 0.2, -2.0, 0.3, 1.5, 0.4], (4, 1))
    base = np.tile([np.sqrt(0.5), 0, 0, np.sqrt(0.5), 1.0, 2.0, 3.0], (4, 1))  # a quarter turn about z
    still = tip_poses(panda, q, np.tile(STILL, (4, 1)))
    q[1, 3], base[2, :4] = np.nan, 0
    moved = tip_poses(panda, q, base)
    x, y, z = still[0, 4:]
    np.testing.assert_allclose(moved[0, 4:], [1 - y, 2 + x, 3 + z], atol=1e-9)
    expected = composed(base, still)[[0, 3]]
    expected[:, :4] *= np.sign(np.sum(moved[[0, 3], :4] * expected[:, :4], axis=1, keepdims=True))
    np.testing.assert_allclose(moved[[0, 3]], expected, atol=1e-9)
    assert (moved[1:3] == 0).all()
