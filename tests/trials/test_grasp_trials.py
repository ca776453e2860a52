"""Trials 23 and 24: grasps that common code answers with one and the same -1, and grasps in other units."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.metrics import grasp as G
from jaxeval.metrics import grasp_host as H
from jaxeval.metrics.status import Status

KNOWN = json.loads(
    (Path(__file__).resolve().parents[2] / "jaxeval" / "data" / "parcelstow" / "grasps.json").read_text()
)["grasps"][0]
POINTS_M, NORMALS = np.array(KNOWN["points_mm"]) / 1e3, np.array(KNOWN["normals"])

FLOOR = (np.array([[0.03, 0, -0.02], [-0.03, 0.02, -0.02], [-0.03, -0.02, -0.02]]), np.tile([0.0, 0, 1], (3, 1)))
OPPOSED = (np.array([[0, 0.0275, 0], [0, -0.0275, 0]]), np.array([[0, -1.0, 0], [0, 1, 0]]))
IN_LINE = (np.array([[-0.01, 0, 0], [0.02, 0, 0], [0.03, 0, 0]]), np.array([[1.0, 0, 0], [-1, 0, 0], [-1, 0, 0]]))
BROKEN = (np.where(np.arange(3)[None] + np.arange(5)[:, None] == 3, np.nan, POINTS_M), NORMALS)

CASES = {
    "five fingers": (POINTS_M, NORMALS, 0.7, Status.CLOSURE, 6),
    "three on one face": (*FLOOR, 0.7, Status.NO_CLOSURE, 6),
    "two contacts": (*OPPOSED, 0.7, Status.DEGENERATE, 5),
    "three in line": (*IN_LINE, 0.7, Status.DEGENERATE, 5),
    "no friction": (POINTS_M, NORMALS, 0.0, Status.DEGENERATE, 5),
    "two, no friction": (*OPPOSED, 0.0, Status.DEGENERATE, 1),
    "a NaN contact": (*BROKEN, 0.7, Status.BAD_CONTACT, 0),
    "normals that are not unit": (POINTS_M, 2 * NORMALS, 0.7, Status.BAD_CONTACT, 0),
    "negative friction": (POINTS_M, NORMALS, -0.1, Status.BAD_CONTACT, 0),
}


@jax.jit
def margin_of(p: jax.Array, n: jax.Array, valid: jax.Array, friction: jax.Array, length: jax.Array) -> G.GraspMargin:
    W, counts = G.contact_wrenches(p, n, valid, friction=friction, torque_length_m=length, origin_m=jnp.zeros(3))
    return G.grasp_margin(W, counts)


def batched(p: np.ndarray, n: np.ndarray, friction: float, length: float = 1.0) -> G.GraspMargin:
    """Padded to five contacts, the rest not valid and full of NaN."""
    fill = np.full((5 - len(p), 3), np.nan)
    arrays = [jnp.asarray(np.concatenate([x, fill]), jnp.float32) for x in (p, n)]
    return margin_of(*arrays, jnp.arange(5) < len(p), jnp.float32(friction), jnp.float32(length))


def exact(p: np.ndarray, n: np.ndarray, friction: float, length: float = 1.0) -> H.ExactMargin:
    return H.exact_margin(H.cone_wrenches(p, n, friction=friction, torque_length_m=length, origin_m=np.zeros(3)))


@pytest.mark.parametrize("name", CASES)
def test_trial_23_four_different_answers(name: str) -> None:
    p, n, friction, status, rank = CASES[name]
    ours, right = batched(p, n, friction), exact(p, n, friction)
    assert (int(ours.status), int(ours.rank)) == (right.status, right.rank) == (status, rank)
    assert np.isnan(float(ours.margin)) == (status == Status.BAD_CONTACT) == np.isnan(right.margin)
    if status == Status.BAD_CONTACT:
        return
    assert float(ours.margin) == pytest.approx(right.margin, rel=1e-3, abs=1e-6)
    assert (float(ours.margin) > 0) == (status == Status.CLOSURE)
    if name == "three on one face":  # normal forces alone: at least 1 / sqrt(1 + mu^2) away
        assert float(ours.margin) == pytest.approx(-1 / np.sqrt(1 + 0.7**2), rel=1e-3)
    if name in ("two contacts", "three in line", "two, no friction"):
        assert float(ours.margin) == 0  # their flat hulls hold the origin: no ball in six dimensions


def test_trial_23_no_contact_is_bad_input() -> None:
    none = batched(np.zeros((0, 3)), np.zeros((0, 3)), 0.7)
    assert int(none.status) == exact(np.zeros((0, 3)), np.zeros((0, 3)), 0.7).status == Status.BAD_CONTACT
    assert "none is valid" in Status(int(none.status)).sentence


def test_trial_24_units_and_torque_length(capsys: pytest.CaptureFixture[str]) -> None:
    metres, millimetres = exact(POINTS_M, NORMALS, 0.7), exact(1e3 * POINTS_M, NORMALS, 0.7, 1e3)
    assert millimetres.margin == pytest.approx(metres.margin, rel=1e-9)
    assert float(batched(1e3 * POINTS_M, NORMALS, 0.7, 1e3).margin) == pytest.approx(metres.margin, rel=1e-3)
    undeclared = exact(1e3 * POINTS_M, NORMALS, 0.7)
    assert undeclared.margin > 50 * metres.margin  # the same number of another unit, which nothing would tell
    for length in (0.01, 0.05, 1.0, 50.0):  # closure and min-weight do not depend on it
        for answer in (exact(POINTS_M, NORMALS, 0.7, length), batched(POINTS_M, NORMALS, 0.7, length)):
            assert int(answer.status) == Status.CLOSURE
            assert float(answer.min_weight) == pytest.approx(metres.min_weight, rel=1e-3)
    told = H.margin_sensitivity(
        POINTS_M, NORMALS, friction=0.7, torque_length_m=1.0, origin_m=np.zeros(3),
        edges_n=(4, 8, 32), torque_lengths_m=(0.05, 1.0), turns_n=2,
    )  # fmt: skip
    print(told)
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("4 edges", "32 edges", "0.050 m"))
    widths = [high / low - 1 for _, low, high in told.edges]
    assert widths[0] > 0.1 and widths[2] < 0.02  # the basis of the tangent plane matters with few edges
    assert told.edges[0][1] < told.edges[2][1] and told.torque_length_m[0][1] > 5 * told.torque_length_m[1][1]
