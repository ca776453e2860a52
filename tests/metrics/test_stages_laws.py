"""The monitor against a state machine, whatever is done to an episode; its laws; and motion in the hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from jaxeval.metrics import hand_motion as hm
from jaxeval.metrics.stages import Cause, StageParams, StageSignals
from jaxeval.metrics.status import Status
from tests.executions import quick_jit
from tests.metrics.stow_episodes import (
    BATCH,
    CAUSES,
    GEOMETRY,
    LENGTH,
    PARAMS,
    STOWED,
    T,
    Told,
    assert_same,
    changed,
    judge,
    perfect,
    run,
    stops,
    unreadable,
    wxyz,
)
from tests.oracles import stages_numpy as oracle

# --------------------------------------------------------------------------------- laws, against a state machine

KINDS = (
    "open",
    "grip",
    "weak",
    "press",
    "drift",
    "fall",
    "tilt",
    "swing",
    "move",
    "spin",
    "lift_off",
    "stop",
    "hide",
    "twist",
    "clear",
)
window = st.tuples(st.sampled_from(KINDS), st.integers(0, T - 1), st.integers(1, 60), st.floats(0.05, 1.0))


READABLE = [change for change in CAUSES if change is not unreadable]


def disturbed(change: Callable[[Told], None], windows: Sequence[tuple[str, int, int, float]]) -> StageSignals:
    """An episode that ends in some way, disturbed within windows of time."""
    e = perfect()
    change(e)
    for kind, start, length, size in windows:
        at = slice(start, start + length)
        if kind in ("open", "weak"):
            e.finger[at] *= 0 if kind == "open" else size
        elif kind == "grip":
            e.finger[at] = [3, 2, 0]
        elif kind == "press":
            e.receptacle[at] = 4 * size
        elif kind == "drift":
            e.hand_offset[start:] += [0, 0, 0.02 * size]
        elif kind == "fall":
            e.position[at, 2] -= 0.3 * size
        elif kind in ("tilt", "swing"):
            e.tilt[at if kind == "swing" else slice(start, None)] += 0.5 * size
        elif kind == "move":
            e.linear[at] += [0.04 * size, 0, 0]
        elif kind == "spin":
            e.angular[at] += [0, 0.4 * size, 0]
        elif kind == "lift_off":
            e.at_depth(slice(start, None), 0.1 * size - 0.03)
        elif kind == "stop":
            stops(e, 0.08 * size)
        elif kind == "twist":
            e.hand_turn[at] += 0.4 * size
        elif kind == "clear":
            e.receptacle[:] = 0
        elif kind == "hide":
            e.valid[start : start + length // 20] = False
    return e.signals()


def assert_as_the_machine_says(episodes: Sequence[StageSignals], params: StageParams = PARAMS) -> list[Cause]:
    with jax.enable_x64(True):
        out = judge(episodes, params=params)
    for i, signals in enumerate(episodes):
        want = oracle.monitor(signals, GEOMETRY, params)
        got = {**out.reached._asdict(), **out.moments._asdict(), **out._asdict()}
        for name, value in want.items():
            np.testing.assert_allclose(float(got[name][i]), float(value), atol=1e-6, err_msg=name)
        laws({name: x[i] for name, x in got.items() if isinstance(x, np.ndarray)})
    return [Cause(int(c)) for c in out.cause]


def laws(got: dict[str, np.ndarray]) -> None:
    """Exactly one cause, and success if and only if all of its conditions hold."""
    conditions = [int(got[name]) >= 0 for name in ("acquired", "inserted", "released", "settled")]
    conditions += [float(got["depth_final_m"]) >= 0.04, float(got["angle_final_rad"]) <= np.radians(10)]
    assert bool(got["success"]) == all(conditions) == (Cause(int(got["cause"])) == Cause.SUCCESS)
    assert bool(got["still_at_end"]) <= bool(got["success"]) <= bool(got["success_once"])
    order = [int(got[name]) for name in ("acquired", "inserted", "released", "settled")]
    assert order == sorted(order, key=lambda step: np.inf if step < 0 else step)
    for name in ("lifted", "reoriented", "pre_insert", "slipped", "let_go", "jammed"):
        assert int(got[name]) == -1 or 0 <= int(got["acquired"]) <= int(got[name])
    assert (int(got["drop_phase"]) >= 0) == (int(got["dropped"]) >= 0)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(READABLE), st.lists(window, max_size=5))
def test_the_monitor_is_the_state_machine(change: Callable[[Told], None], windows: list) -> None:
    assert_as_the_machine_says([disturbed(change, windows)])


def test_the_disturbed_episodes_end_in_every_way() -> None:
    """What the law above ranges over: among 136 drawn episodes every cause, and the machine agrees on each."""
    rng, causes = np.random.default_rng(0), []

    def draw() -> StageSignals:
        n = int(rng.integers(4))
        windows = zip(rng.choice(KINDS, n), rng.integers(T, size=n), rng.integers(1, 60, n), rng.random(n), strict=True)
        return disturbed(READABLE[rng.integers(len(READABLE))], [*windows])

    for steps_n in range(4, 12):
        params = dataclasses.replace(PARAMS, jam_steps=steps_n, drop_steps=steps_n)
        causes += assert_as_the_machine_says([draw() for _ in range(BATCH)], params)
    assert set(causes) == set(Cause) - {Cause.NOT_JUDGED}, {c.name: causes.count(c) for c in Cause}


def test_a_turn_of_the_world_about_the_vertical_changes_nothing() -> None:
    R, t = Rotation.from_euler("z", 0.7), np.array([0.3, -0.2, 0.0])

    def moved(poses: np.ndarray) -> np.ndarray:
        poses = np.asarray(poses)
        return np.concatenate([wxyz(R * oracle.rotation(poses[..., :4])), R.apply(poses[..., 4:]) + t], axis=-1)

    geometry = dataclasses.replace(
        GEOMETRY,
        T_world_entrance=moved(GEOMETRY.T_world_entrance),
        goal_wxyz=wxyz(R * STOWED),
        pre_insert_m=R.apply(GEOMETRY.pre_insert_m) + t,
    )
    for change in READABLE:
        e = changed(change)
        turned = {"T_world_object": moved(e.T_world_object), "T_world_hand": moved(e.T_world_hand)}
        turned |= {"linear_m_s": R.apply(e.linear_m_s), "angular_rad_s": R.apply(e.angular_rad_s)}
        assert_same(run(dataclasses.replace(e, **turned), geometry), run(e))


# -------------------------------------------------------------------------------------------------------- hand motion

LIMIT = np.array([2.0, np.inf, 4.0])
motion_of = quick_jit(hm.hand_motion)


def motion(e: Told, *, velocity: np.ndarray | None = None, limit: np.ndarray = LIMIT, **steps: int) -> hm.HandMotion:
    signals, more = e.signals(), [(0, LENGTH - T), (0, 0)]
    velocity = np.zeros((T, 3)) if velocity is None else velocity
    bounds = {"acquired": 18, "lift": 16, "release": 108} | steps
    arrays = (signals.T_world_hand, signals.T_world_object, velocity)
    return motion_of(
        *(jnp.asarray(np.pad(x, more, constant_values=np.nan), "float32") for x in arrays),
        jnp.asarray(np.pad(np.arange(T) / 50, more[:1]), "float32"),
        jnp.asarray(np.pad(e.valid, more[:1])),
        jnp.asarray(limit, "float32"),
        **{k: jnp.asarray(v, jnp.int32) for k, v in bounds.items()},
    )


def test_motion_in_the_hand_counts_from_the_acquisition_to_the_release() -> None:
    e = perfect()  # lets go at 111 and moves off by 100 mm
    e.hand_offset[:18], e.hand_offset[50:60], e.hand_offset[107] = [0.05, 0, 0], [0, 0, -0.004], [0.003, 0, 0.004]
    out = motion(e)
    assert (float(out.slip_m), int(out.slip_status)) == (pytest.approx(0.005, abs=1e-6), Status.OK)
    assert float(out.slip_rad) == pytest.approx(0, abs=1e-3)
    assert float(motion(e, release=107).slip_m) == pytest.approx(0.004, abs=1e-6)
    assert float(motion(e, acquired=17).slip_m) > 0.049
    assert float(motion(e, release=-1).slip_m) == pytest.approx(0.1, abs=1e-6)
    never = motion(e, acquired=-1)
    assert np.isnan([never.slip_m, never.slip_rad]).all() and int(never.slip_status) == Status.NO_GRASP


def test_rotation_in_the_hand_is_the_angle_between_the_two() -> None:
    R = Rotation.random(12, rng=np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(12, 3))
    hand = np.concatenate([wxyz(R), x], axis=1)
    turn = Rotation.from_rotvec(np.linspace(0, 1.2, 12)[:, None] * [0.6, 0, 0.8])
    body = np.concatenate([wxyz(R * turn), x + R.apply([0.1, 0.0, 0.02])], axis=1)
    with jax.enable_x64(True):
        metres, radians = hm.relative_motion(jnp.asarray(hand), jnp.asarray(body), jnp.asarray(3, jnp.int32))
    np.testing.assert_allclose(radians, np.abs(np.linspace(0, 1.2, 12) - 1.2 * 3 / 11), atol=1e-9)
    np.testing.assert_allclose(metres, 0, atol=1e-9)


def test_the_arms_speed_is_used_from_the_lift_on() -> None:
    velocity = np.zeros((T, 3))
    velocity[15], velocity[16], velocity[120] = [2, 9, 4], [-0.5, 9, 0.2], [0.1, 9, 0.8]
    out = motion(perfect(), velocity=velocity)
    assert (float(out.arm_utilisation), int(out.arm_status)) == (0.25, Status.OK)  # .5 / 2, not 4 / 4 nor 9
    assert float(motion(perfect(), velocity=velocity, lift=17).arm_utilisation) == pytest.approx(0.2)
    none = motion(perfect(), velocity=velocity, limit=np.array([np.inf, 0, np.nan]))
    assert np.isnan(none.arm_utilisation) and int(none.arm_status) == Status.NO_LIMIT
    none = motion(perfect(), velocity=velocity, lift=-1)
    assert np.isnan([none.arm_utilisation, none.speed_m_s]).all()
    assert {int(none.arm_status), int(none.speed_status)} == {Status.NO_LIFT}


def test_peak_speeds_of_the_hand() -> None:
    e = perfect()
    e.hand_offset[:] = 0
    e.position[:16] += np.linspace(1, 0, 16)[:, None] * [0.4, 0, 0]  # fast, but before the lift
    e.tilt[:] = np.where(np.arange(T) < 28, np.pi / 2, np.maximum(np.pi / 2 - 0.03 * (np.arange(T) - 28), 0))
    out = motion(e, lift=17)
    turn = 0.03 * 50
    assert float(out.turn_rad_s) == pytest.approx(turn, rel=1e-3)
    hand = e.signals().T_world_hand[16:, 4:]
    central = np.linalg.norm(hand[2:] - hand[:-2], axis=1) * 25
    assert float(out.speed_m_s) == pytest.approx(central.max(), rel=1e-3) and central.max() < 0.8
    e.valid[:] = np.arange(T) % 2 == 0
    alone = motion(e)
    assert np.isnan([alone.speed_m_s, alone.turn_rad_s]).all() and int(alone.speed_status) == Status.LONE_STEPS


def test_gradients_are_finite() -> None:
    e = perfect().signals()
    arrays = tuple(jnp.asarray(x, "float32") for x in (e.T_world_hand, e.T_world_object, np.zeros((T, 2))))
    rest = (jnp.arange(T, dtype="float32") / 50, jnp.asarray(e.valid), jnp.array([1.0, 0.0]))  # no limit
    steps = {k: jnp.asarray(v, jnp.int32) for k, v in {"acquired": 18, "lift": 16, "release": 108}.items()}

    def total(*moving: jax.Array) -> jax.Array:
        out = hm.hand_motion(*moving, *rest, **steps)
        return out.slip_m + out.slip_rad + out.arm_utilisation + out.speed_m_s + out.turn_rad_s

    for gradient in quick_jit(jax.grad(total, argnums=(0, 1, 2)))(*arrays):
        assert np.isfinite(gradient).all()
