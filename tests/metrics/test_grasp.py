"""Grasp margins: worked by hand, published grasps, an exact oracle on random grasps, laws, slopes."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import ConvexHull, QhullError

from jaxeval.metrics import grasp as G
from jaxeval.metrics import grasp_host as H
from jaxeval.metrics.status import Status
from tests.executions import quick_jit

KNOWN = json.loads(
    (Path(__file__).resolve().parents[2] / "jaxeval" / "data" / "parcelstow" / "grasps.json").read_text()
)["grasps"]
SETTING = {"friction": 0.7, "torque_length_m": 1.0, "origin_m": np.zeros(3)}
HALF_M = np.array([0.04, 0.0275, 0.02])
ROWS_N, BATCH_N = 40, 48


def contacts(known: dict) -> tuple[np.ndarray, np.ndarray]:
    return np.array(known["points_mm"]) / 1e3, np.array(known["normals"])


def random_grasps(n: int) -> list[np.ndarray]:
    """Wrenches of 3, 4, 5 contacts in turn, on an ellipsoid or, every other time, on the faces of a box."""
    rng, out = np.random.default_rng(11), []
    for k in range(n):
        C = 3 + k % 3
        v = rng.normal(size=(C, 3))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        p, inward = HALF_M * v, -v / HALF_M
        if k % 2:
            axis, side = rng.integers(3, size=C), rng.choice([-1.0, 1.0], C)
            p, inward = rng.uniform(-HALF_M, HALF_M, (C, 3)), np.zeros((C, 3))
            p[np.arange(C), axis], inward[np.arange(C), axis] = side * HALF_M[axis], -side
        inward /= np.linalg.norm(inward, axis=1, keepdims=True)
        out.append(H.cone_wrenches(p, inward, friction=0.5, torque_length_m=1.0, origin_m=np.zeros(3)))
    return out


def batch(wrenches: list[np.ndarray], dtype: str = "float32") -> G.GraspMargin:
    """All compiled at one size: BATCH_N grasps of ROWS_N wrenches."""
    W, valid = np.zeros((BATCH_N, ROWS_N, 6)), np.zeros((BATCH_N, ROWS_N), bool)
    for k, w in enumerate(wrenches):
        W[k, : len(w)], valid[k, : len(w)] = w, True
    found = G.grasp_margins(jnp.asarray(W, dtype), jnp.asarray(valid))
    return jax.tree.map(lambda x: np.asarray(x)[: len(wrenches)], found)


# ------------------------------------------------------------------------------------------------------- by hand


def test_a_cross_and_a_simplex_by_hand() -> None:
    cross = np.concatenate([np.eye(6), -np.eye(6)])
    simplex = np.concatenate([np.eye(6), -np.ones((1, 6))])
    scaled = cross * np.array([1, 1, 1, 0.1, 0.1, 0.1])
    # cross: sum |x_k| / a_k = 1, at 1 / sqrt(sum 1 / a_k^2); simplex: (-6, 1, 1, 1, 1, 1) x = 1 holds all but e_0
    right = [6**-0.5, 1 / np.sqrt(5 + 36.0), 1 / np.sqrt(3 + 300)]
    weights = [1 / 12, 1 / 7, 1 / 12]
    found = batch([cross, simplex, scaled])
    np.testing.assert_allclose(found.margin, right, rtol=1e-5)
    np.testing.assert_allclose(found.min_weight, weights, rtol=1e-5)
    for W, margin, weight in zip([cross, simplex, scaled], right, weights, strict=True):
        exact = H.exact_margin(W)
        assert exact.margin == pytest.approx(margin, rel=1e-9) and exact.min_weight == pytest.approx(weight, rel=1e-9)
    assert H.hull_volume(cross) == pytest.approx(2**6 / 720)  # 2^n / n!


def test_outside_by_hand() -> None:
    # all of the cross moved by (2, 0, ..): the origin is 1 from its nearest corner (1, 0, ..), seen from outside
    W = np.concatenate([np.eye(6), -np.eye(6)]) + np.eye(6)[0] * 2
    found, exact = batch([W]), H.exact_margin(W)
    assert found.status[0] == exact.status == Status.NO_CLOSURE
    assert float(found.margin[0]) == pytest.approx(-1, abs=1e-6) and exact.margin == pytest.approx(-1)
    np.testing.assert_allclose(found.direction[0], -np.eye(6)[0], atol=1e-6)
    # alpha = l + beta: sum alpha w = 0 with sum alpha = 1 asks for -2 along x: weights (a, b) of +-x with a - b = -2
    assert found.min_weight[0] == 0 and exact.min_weight < 0
    # on the boundary: no closure, and a margin of 0
    on = np.concatenate([np.eye(6), -np.eye(6)]) + np.eye(6)[0]
    assert batch([on]).status[0] == H.exact_margin(on).status == Status.NO_CLOSURE
    assert batch([on]).margin[0] == H.exact_margin(on).margin == 0


def test_edges_of_one_contact_by_hand() -> None:
    p, n = jnp.array([[0.0, 0.0, 0.02]]), jnp.array([[0.0, 0.0, -1.0]])
    wrenches = partial(G.contact_wrenches, p, n, jnp.ones(1, bool), friction=0.5, torque_length_m=0.1, edges_n=4)
    W, valid = wrenches(origin_m=jnp.zeros(3), edges=G.UNIT_NORMAL)
    # a = x, b = n x a = -y; torque (0, 0, .2) x f = .2 (-f_y, f_x, 0)
    right = [[0.5, 0, -1, 0, 0.1, 0], [0, -0.5, -1, 0.1, 0, 0], [-0.5, 0, -1, 0, -0.1, 0], [0, 0.5, -1, -0.1, 0, 0]]
    np.testing.assert_allclose(W, right, atol=1e-7)
    assert bool(valid.all())
    unit, _ = wrenches(origin_m=jnp.zeros(3))
    np.testing.assert_allclose(unit, np.array(right) / np.sqrt(1.25), atol=1e-7)
    own, _ = wrenches(origin_m=p[0])
    np.testing.assert_allclose(own[:, 3:], 0, atol=1e-7)
    with pytest.raises(ValueError, match="unit normal"):
        wrenches(origin_m=jnp.zeros(3), edges="long")


# ------------------------------------------------------------------------------------------------ published grasps


@pytest.mark.parametrize("known", KNOWN, ids=range(len(KNOWN)))
def test_published_grasps(known: dict) -> None:
    p, n = contacts(known)
    scores, close = known["scores"], partial(pytest.approx, rel=1e-6)
    unit, normal = H.cone_wrenches(p, n, **SETTING), H.cone_wrenches(p, n, edges=G.UNIT_NORMAL, **SETTING)
    exact = H.exact_margin(unit)
    assert exact.margin == close(scores["ferrari_canny"]) and exact.min_weight == close(scores["l_star"])
    assert H.exact_margin(normal).margin == close(scores["eps_nominal"])
    assert H.hull_volume(unit) == close(scores["gws_volume"])
    # the wrong lengths and the other basis give other numbers
    assert H.exact_margin(normal).margin > 1.1 * exact.margin
    assert abs(H.exact_margin(H.cone_wrenches(p, n, turn_rad=0.3, **SETTING)).margin / exact.margin - 1) > 1e-3


def test_published_risk_is_the_margin_at_the_mean_friction_of_the_tail() -> None:
    betas = ("0.5", "0.9", "0.95", "0.99")
    with jax.enable_x64():
        tail = [float(G.tail_friction(mean=0.7, sd=0.1, beta=float(b))) for b in betas]
    assert tail[2] == pytest.approx(0.7 - 0.1 * 2.062713, abs=1e-6)
    for known in KNOWN[:2]:
        for beta, mu in zip(betas, tail, strict=True):
            risky = H.exact_margin(
                H.cone_wrenches(*contacts(known), edges=G.UNIT_NORMAL, **(SETTING | {"friction": mu}))
            )
            assert risky.margin == pytest.approx(known["scores"]["eps_beta"][beta], rel=1e-6)
            assert risky.min_weight == pytest.approx(known["scores"]["risk_min_weight"][beta], rel=1e-6)


def test_cvar_is_the_mean_of_the_tail() -> None:
    how = {"friction_mean": 0.7, "friction_sd": 0.1, "torque_length_m": 1.0, "edges": G.UNIT_NORMAL}
    p, n = contacts(KNOWN[0])
    fine = H.margin_cvar(p, n, origin_m=np.zeros(3), **how)
    assert fine == pytest.approx(0.000773, rel=1e-3)  # published .000778: another quantity
    exact = H.margin_cvar(p, n, origin_m=np.zeros(3), nodes_n=16, **how)
    assert exact == pytest.approx(fine, rel=5e-3)
    arrays = (jnp.asarray(p, jnp.float32), jnp.asarray(n, jnp.float32), jnp.ones(5, bool))
    ours = quick_jit(lambda *x: G.margin_cvar(*x, origin_m=jnp.zeros(3), nodes_n=16, **how))(*arrays)
    assert float(ours) == pytest.approx(exact, rel=1e-3)


def test_many_edges_are_cut_down_to_the_same_margin() -> None:
    p, n = contacts(KNOWN[1])
    W = H.cone_wrenches(p[:4], n[:4], edges_n=16, **SETTING)
    assert len(W) > H.WHOLE_N
    assert H.exact_margin(W).margin == pytest.approx(-ConvexHull(W).equations[:, -1].max(), rel=1e-9)


def test_where_qhull_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on 1 in 1000 grasps of a box's faces: the planes come from corners moved by 1e-11, and are those of before."""

    class GivesUp(ConvexHull):
        def __init__(self, points: np.ndarray, **how: str) -> None:
            if not how:
                raise QhullError("a wide merge")
            super().__init__(points, **how)

    wrenches = [H.cone_wrenches(*contacts(KNOWN[0]), **SETTING), *random_grasps(36)]
    before = [(H.exact_margin(W), H.hull_volume(W)) for W in wrenches]
    monkeypatch.setattr("scipy.spatial.ConvexHull", GivesUp)
    assert {exact.status for exact, _ in before} >= {Status.CLOSURE, Status.NO_CLOSURE}
    for W, (exact, volume) in zip(wrenches, before, strict=True):
        moved = H.exact_margin(W)
        assert moved.status == exact.status and moved.margin == pytest.approx(exact.margin, rel=1e-9, abs=1e-15)
        np.testing.assert_allclose(moved.direction, exact.direction, atol=1e-6)
        assert H.hull_volume(W) == pytest.approx(volume, rel=1e-7)


# ------------------------------------------------------------------------------------------------------ the oracle


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_grasps_against_the_exact_margin(dtype: str) -> None:
    wrenches = random_grasps(BATCH_N)
    exact = [H.exact_margin(W) for W in wrenches]
    with jax.enable_x64(dtype == "float64"):
        found = batch(wrenches, dtype)
    np.testing.assert_array_equal(found.status, [e.status for e in exact])
    np.testing.assert_array_equal(found.rank, [e.rank for e in exact])
    closure = found.status == Status.CLOSURE
    assert 10 < closure.sum() < 38  # both kinds are there
    right = np.array([e.margin for e in exact])
    np.testing.assert_allclose(found.margin, right, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(
        found.min_weight[closure], [e.min_weight for e in exact if e.status == Status.CLOSURE], rtol=5e-4
    )
    # direction: where the support is the margin
    support = [(W @ d).max() for W, d in zip(wrenches, found.direction, strict=True)]
    np.testing.assert_allclose(np.array(support)[right != 0], right[right != 0], rtol=1e-3, atol=1e-6)


def test_a_turn_of_all_wrenches_changes_nothing_and_padding_neither() -> None:
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    wrenches = random_grasps(12)
    plain, turned = batch(wrenches), batch([W @ turn.T for W in wrenches])
    shuffled = batch([rng.permutation(W) for W in wrenches])
    for other in (turned, shuffled):
        np.testing.assert_array_equal(plain.status, other.status)
        np.testing.assert_allclose(plain.margin, other.margin, rtol=2e-3, atol=2e-6)


# ---------------------------------------------------------------------------------------------------------- slopes


def test_slopes_are_those_of_the_exact_margin() -> None:
    wrenches = random_grasps(BATCH_N)
    W, valid = np.zeros((BATCH_N, ROWS_N, 6)), np.zeros((BATCH_N, ROWS_N), bool)
    for k, w in enumerate(wrenches):
        W[k, : len(w)], valid[k, : len(w)] = w, True

    def both(W: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = G.grasp_margins(W, jnp.asarray(valid))
        return jnp.sum(found.margin) + jnp.sum(found.min_weight), found.status

    with jax.enable_x64():
        slope, status = jax.grad(both, has_aux=True)(jnp.asarray(W))
    slope = np.asarray(slope)
    assert np.isfinite(slope).all() and (np.abs(slope).max(axis=(1, 2))[status == Status.CLOSURE] > 0.01).all()
    rng, step = np.random.default_rng(0), 1e-7
    for k in [*np.flatnonzero(status == Status.CLOSURE)[:4], *np.flatnonzero(status == Status.NO_CLOSURE)[:4]]:
        d = rng.normal(size=wrenches[k].shape)

        def value(t: float, k: int = k, d: np.ndarray = d) -> float:
            e = H.exact_margin(wrenches[k] + t * d)
            return e.margin + (e.min_weight if e.status == Status.CLOSURE else 0.0)

        along = float((slope[k, : len(d)] * d).sum())
        ahead, behind = (value(step) - value(0)) / step, (value(0) - value(-step)) / step
        # at a facet that holds a whole cone's polygon the margin has a kink: the slope lies between its sides
        assert min(ahead, behind) - 2e-3 <= along <= max(ahead, behind) + 2e-3, (k, along, ahead, behind)
