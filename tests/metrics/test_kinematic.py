"""Kinematic metrics: worked by hand, singular configurations, gradients, invariances, the frozen pool."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.linalg import volume
from jaxeval.metrics import kinematic as K
from jaxeval.metrics.status import Status
from jaxeval.robots import jacobian, load_pool, load_robot
from jaxeval.robots.model import chain, jacobian_of

STRAIGHT = jnp.zeros(
    7
)  # the Panda's axes 1, 3, 5 and 7 on parallel lines: no rotation about one horizontal axis is left


def test_a_two_link_arm_by_hand() -> None:
    # links .5 and .3 m, elbow at 90 deg: w = l1 l2 |sin| = .15 in the plane
    J = jnp.zeros((6, 2)).at[:2].set(jnp.array([[-0.3, -0.3], [0.5, 0.0]])).at[5].set(1.0)
    assert float(volume(J[:2])) == pytest.approx(0.15, abs=1e-7)
    m = K.manipulability(J, torque_length_m=0.0 + 1e-9)  # without rotation the full index is that of the plane
    assert float(m.full) == pytest.approx(0.15, abs=1e-6)
    stretched = J.at[:2].set(jnp.array([[0.0, 0.0], [0.8, 0.3]]))
    assert float(volume(stretched[:2])) == 0.0


@pytest.mark.parametrize("name", ["panda", "so101"])
def test_singular_is_zero_and_not_nan_and_gradients_are_finite(name: str) -> None:
    robot = load_robot(name)

    def w(q):
        m = K.manipulability(jacobian(robot, q))
        return m.full + m.translational + m.sigma_min + m.inverse_condition

    both = jax.jit(jax.value_and_grad(w))
    zero = jnp.zeros(robot.joints_n)
    value, slope = both(zero)
    assert np.isfinite(value) and np.isfinite(slope).all()
    m = K.manipulability(jacobian(robot, zero))
    if name == "panda":  # with all joints at zero its axes 1, 3, 5 and 7 are parallel
        assert abs(float(m.full)) < 1e-6 and abs(float(m.sigma_min)) < 1e-6
    random = jnp.asarray(np.random.default_rng(0).uniform(*robot.range()), jnp.float32)
    step, slope = 1e-3, both(random)[1]
    for i in range(robot.joints_n):
        d = jnp.zeros(robot.joints_n).at[i].set(step)
        assert float(slope[i]) == pytest.approx(
            float((both(random + d)[0] - both(random - d)[0]) / (2 * step)), abs=2e-3
        )


def test_no_translation_lost_at_a_nearly_straight_elbow() -> None:
    m = K.manipulability(jacobian(load_robot("panda"), jnp.array([0, 0, 0, -0.0698, 0, np.pi / 2, np.pi / 4])))
    assert float(m.translational) == pytest.approx(0.07037, abs=1e-5)  # looks well
    assert float(m.full) == pytest.approx(0.00232, abs=1e-5)  # is not


def test_indices_do_not_depend_on_the_frame_and_do_on_the_torque_length() -> None:
    robot = load_robot("panda")
    J = np.asarray(jacobian(robot, jnp.array([0.1, 0.2, 0.3, -1.5, 0.2, 1.4, 0.3])), float)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = np.concatenate([Q @ J[:3], Q @ J[3:]])
    a, b = K.manipulability(jnp.asarray(J)), K.manipulability(jnp.asarray(turned))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert float(x) == pytest.approx(float(y), abs=1e-6)
    half = K.manipulability(jnp.asarray(J), torque_length_m=0.5)
    assert float(half.full) == pytest.approx(float(a.full) / 8, rel=1e-5)  # three rows of it halved
    assert float(half.translational) == float(a.translational)


def test_velocity_utilisation_by_hand_and_with_uneven_times() -> None:
    time_s = jnp.array([0.0, 0.1, 0.3, 0.4, 0.5])
    q = jnp.array([[0.0, 0.0], [0.1, 0.0], [0.5, 0.2], [0.5, 0.2], [9.0, 0.2]])  # 1, 2, 0, 85 rad/s; 0, 1, 0, 0
    valid = jnp.array([True, True, True, True, False])
    use = partial(K.joint_velocity_utilisation, q, time_s, valid)
    assert float(use(jnp.array([4.0, 2.0]))) == pytest.approx(0.5)
    assert float(use(jnp.array([4.0, jnp.nan]), since_s=0.25)) == pytest.approx(0.0)
    assert np.isnan(use(jnp.array([jnp.nan, jnp.nan])))
    assert float(use(jnp.array([jnp.nan, 2.0]))) == pytest.approx(0.5)


def test_the_frozen_pool_is_what_it_says() -> None:
    robot, pool = load_robot("panda"), load_pool("panda_uniform_v1")
    assert float(pool.p10) == pytest.approx(6.57, abs=0.005) and float(pool.p90) == pytest.approx(32.48, abs=0.005)
    q = np.random.default_rng(7).uniform(*robot.range(), (4000, 7))
    translational = jax.jit(lambda q: K.manipulability(jacobian_of(robot, chain(robot, q))).translational)
    w = translational(jnp.asarray(q.T, jnp.float32))
    cost = K.manipulability_cost(w, jnp.ones(4000, bool))
    share = float((K.pool_score(cost, pool) <= 0).mean()), float((K.pool_score(cost, pool) >= 1).mean())
    assert share[0] == pytest.approx(0.1, abs=0.02) and share[1] == pytest.approx(0.1, abs=0.02)


def test_cost_by_hand() -> None:
    w, ok = jnp.array([0.2, 0.01, 0.001, 0.2]), jnp.array([True, True, True, False])
    np.testing.assert_allclose(
        K.manipulability_cost(w, ok), [1 / 0.200001, 1 / 0.010001, 1 / 0.010001, 100.0], rtol=1e-6
    )
    pool = K.CostPool(p10=jnp.array(5.0), p90=jnp.array(25.0))
    np.testing.assert_allclose([K.pool_score(jnp.array(c), pool) for c in (0.0, 15.0, 99.0)], [0.0, 0.5, 1.0])


def test_quality_of_an_execution_ignores_padding_and_counts_what_was_not_reached() -> None:
    robot, pool = load_robot("panda"), load_pool("panda_uniform_v1")
    rng, T = np.random.default_rng(0), 20
    ready = np.array([0, -np.pi / 4, 0, -3 * np.pi / 4, 0, np.pi / 2, np.pi / 4])
    q = np.asarray(ready + 0.02 * np.cumsum(rng.normal(size=(T, 7)), axis=0), np.float32)
    time_s, valid = np.arange(T, dtype=np.float32) / 20, np.ones(T, bool)
    reached = valid.copy()
    reached[5] = False

    @jax.jit
    def quality(q, time_s, valid, reached):
        J = jacobian_of(robot, chain(robot, q.T))
        limits = {k: jnp.asarray(getattr(robot, k), jnp.float32) for k in ("lower", "upper", "velocity_limit")}
        return K.kinematic_quality(J, q, time_s, valid, reached, pool=pool, **limits)

    whole = quality(q, time_s, valid, reached)
    assert float(whole.coverage) == pytest.approx(0.95)
    w = np.asarray(whole.w)
    assert float(whole.cost) == pytest.approx((100 + (1 / (np.delete(w, 5) + 1e-6)).sum()) / 20, rel=1e-4)
    assert float(whole.min_w) == pytest.approx(np.delete(w, 5).min()) and w[5] == 0
    padded = quality(
        np.concatenate([q, np.full((12, 7), 9.0, np.float32)]), np.concatenate([time_s, np.full(12, time_s[-1])]),
        np.concatenate([valid, np.zeros(12, bool)]), np.concatenate([reached, np.zeros(12, bool)]),
    )  # fmt: skip
    for name in (
        "score",
        "cost",
        "coverage",
        "min_w",
        "mean_w",
        "min_sigma",
        "min_limit_margin",
        "velocity_utilisation",
    ):
        assert float(getattr(whole, name)) == pytest.approx(float(getattr(padded, name)), rel=1e-5), name
    none = quality(q, time_s, np.zeros(T, bool), reached)
    assert int(none.status) == Status.NO_FRAMES and np.isnan(none.score) and np.isnan(none.cost)


def test_params_are_checked() -> None:
    assert K.KinematicParams().check().torque_length_m == 1.0
    with pytest.raises(ValueError, match="torque_length_m is -1"):
        K.KinematicParams(torque_length_m=-1.0).check()
