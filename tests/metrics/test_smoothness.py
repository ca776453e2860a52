"""SPARC against golden values, its laws and the trials of bad clocks; jerk, path and times of analytic curves."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxeval.metrics import smoothness as s
from jaxeval.metrics.smoothness import SmoothnessParams
from jaxeval.metrics.status import Status
from jaxeval.types import pad_episodes
from tests.executions import axis_turn, episodes, moved, quick_jit, random_poses
from tests.oracles import smoothness_numpy as oracle

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sparc_reference.json").read_text())
SIGNALS = oracle.known_signals()
PARAMS = SmoothnessParams()
LENGTH = 320
"""Every trajectory here is padded to this many frames, so that each function compiles once a dtype."""

sparc_of = quick_jit(s.sparc)
sparcs_of = quick_jit(jax.vmap(s.sparc))
jerk_of = quick_jit(s.jerk_of)
quality_of = quick_jit(partial(s.motion_quality, params=PARAMS, sub_tasks_n=3))


def padded(x: np.ndarray, time_s: np.ndarray, valid: np.ndarray | None = None, dtype: str = "") -> tuple:
    """(x, time, valid) with frames of rubbish after the last; float64 where that is on."""
    dtype = dtype or ("float64" if jax.config.jax_enable_x64 else "float32")
    valid = np.ones(len(time_s), bool) if valid is None else valid
    more = LENGTH - len(time_s)
    x = np.pad(np.asarray(x, float), [(0, more)] + [(0, 0)] * (np.ndim(x) - 1), constant_values=7.0)
    time_s = np.pad(np.asarray(time_s, float), (0, more), constant_values=-3.0)
    return jnp.asarray(x, dtype), jnp.asarray(time_s, dtype), jnp.asarray(np.pad(valid, (0, more)))


def told(result: s.Sparc) -> str:
    assert np.isnan(result.value) == (int(result.status) != Status.OK)
    return Status(int(result.status)).sentence


def reach(time_s: np.ndarray, *, distance_m: float = 0.3, duration_s: float = 2.0) -> np.ndarray:
    """Positions of a minimum-jerk reach along a slanted line."""
    along = np.array([0.6, 0.0, 0.8]) * distance_m
    return oracle.minimum_jerk(time_s / duration_s)[:, None] * along + np.array([0.4, -0.2, 0.1])


def at_rate(rate_hz: float, duration_s: float = 2.0) -> np.ndarray:
    return np.arange(round(duration_s * rate_hz) + 1) / rate_hz


# ------------------------------------------------------------------------------------------------------------- golden


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-8), ("float32", 1e-4)])
def test_sparc_of_every_known_signal(dtype: str, tolerance: float) -> None:
    assert set(SIGNALS) == set(GOLDEN["signals"])
    for name, speed in SIGNALS.items():
        known = GOLDEN["signals"][name]
        assert (len(speed), speed.sum()) == (known["n"], pytest.approx(known["sum"], abs=1e-9)), name
        np.testing.assert_allclose(speed[: len(known["first"])], known["first"], atol=1e-12, err_msg=name)
        with jax.enable_x64(dtype == "float64"):
            out = sparc_of(*padded(speed, np.arange(len(speed)) / known["rate_hz"], dtype=dtype))
            if known["sparc"] is None:
                assert told(out) == {"single": "too short", "const_zero": "no motion"}[name]
            else:
                assert told(out) == "ok", name
                assert float(out.value) == pytest.approx(known["sparc"], abs=tolerance), name


def test_the_wrong_formulas_give_other_numbers() -> None:
    """What bins mirrored past half the rate, padding from the padded length, and the first fall below make of it."""
    slow = GOLDEN["signals"]["min_jerk_T3_fs10"]
    assert slow["unclamped"] < -3 and slow["monalysa==0.2.1"] < -3 < slow["sparc"]
    speed = SIGNALS["two_separated"]
    longer = oracle.sparc(np.pad(speed, (0, 261)), 100.0)[0]  # 512 samples instead of 251
    assert abs(longer - GOLDEN["signals"]["two_separated"]["sparc"]) > 1e-4
    K = 2**12
    M = np.abs(np.fft.rfft(speed, K))[: int(10 * K / 100) + 1] / speed.sum()
    first_below = int(np.argmax(M < 0.05))
    arc = -np.sum(np.hypot(1 / (first_below - 1), np.diff(M[:first_below])))
    assert arc > -1.5  # the real one is -3.12: the spectrum dips and comes back


def test_sparc_agrees_with_the_common_implementations_from_20_hz_on() -> None:
    for name, known in GOLDEN["signals"].items():
        if known["rate_hz"] >= 20 and known["sparc"] is not None:
            for theirs in ("siva82kb/SPARC@3650934", "monalysa==0.2.1"):
                assert known[theirs] == pytest.approx(known["sparc"], abs=1e-6), name
    monalysa = pytest.importorskip("monalysa.quality.smoothness")
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for n, rate_hz in ((20, 20.0), (64, 23.0), (65, 50.0), (150, 30.0), (257, 100.0), (300, 240.0)):
            speed = np.abs(np.convolve(rng.normal(size=n + 6), np.hanning(7), "valid"))
            value = sparc_of(*padded(speed, np.arange(n) / rate_hz)).value
            assert float(value) == pytest.approx(monalysa.sparc(speed, rate_hz)[0], abs=1e-6), (n, rate_hz)


@pytest.mark.parametrize("padlevel", [0, 1, 5])
def test_sparc_agrees_with_one_long_transform(padlevel: int) -> None:
    rng = np.random.default_rng(padlevel)
    with jax.enable_x64(True):
        f = quick_jit(partial(s.sparc, padlevel=padlevel, cutoff_hz=6.0, amplitude=0.1))
        for n in (2, 3, 33, 64, 65, 300):
            speed = rng.uniform(0, 1, n)
            want, end_hz = oracle.sparc(speed, 17.0, cutoff_hz=6.0, amplitude=0.1, padlevel=padlevel)
            out = f(*padded(speed, np.arange(n) / 17.0))
            assert float(out.end_hz) == pytest.approx(end_hz)
            if end_hz == 0:  # the only bin of the band is that of 0 Hz
                assert told(out) == "too short"
            else:
                assert float(out.value) == pytest.approx(want, abs=1e-9)


# --------------------------------------------------------------------------------------------------------------- laws


def test_padding_place_scale_and_stretch_change_nothing() -> None:
    speed, t = SIGNALS["two_separated"], np.arange(251) / 100
    want = GOLDEN["signals"]["two_separated"]["sparc"]
    with jax.enable_x64(True):
        bare = quick_jit(s.sparc)(jnp.asarray(speed), jnp.asarray(t), jnp.ones(251, bool))
        later = np.pad(speed, (40, 0), constant_values=np.nan), np.pad(t, (40, 0), constant_values=9.0)
        shifted = sparc_of(*padded(*later, valid=np.arange(291) >= 40))
        for out in (bare, shifted, sparc_of(*padded(7 * speed, t + 50))):
            assert float(out.value) == pytest.approx(want, abs=1e-9)
        # twice as slow with twice the cutoff's room below half the rate: the same bins
        slow = quick_jit(partial(s.sparc, cutoff_hz=5.0))(*padded(speed, 2 * t))
        assert float(slow.value) == pytest.approx(want, abs=1e-9)


def test_jit_vmap_and_chunks_agree_and_a_sweep_is_one_trace() -> None:
    rng = np.random.default_rng(0)
    even = [(rng.uniform(0, 1, n), np.arange(n) / 20) for n in (5, 60, 130, 320)]
    uneven = [(x, t + rng.uniform(0, 0.3 / 20, len(t))) for x, t in even[1:3]]
    rows = [padded(x, t, dtype="float32") for x, t in even + uneven]
    batch = tuple(jnp.stack(x) for x in zip(*rows, strict=True))
    together = sparcs_of(*batch)
    chunks = quick_jit(partial(s.sparc_batch, rows_n=3))(*batch)
    for k, row in enumerate(rows):
        one = sparc_of(*row)
        others = [jax.tree.map(lambda x, k=k: x[k], o) for o in (together, chunks)]
        for field in s.Sparc._fields:
            for other in others:
                np.testing.assert_allclose(getattr(other, field), getattr(one, field), rtol=2e-5, err_msg=field)
    traces = []

    @quick_jit
    def f(amplitude: jax.Array) -> jax.Array:
        traces.append(1)
        return s.sparc(*rows[1], amplitude=amplitude).value

    assert len({float(f(jnp.float32(a))) for a in (0.02, 0.2, 0.5)}) == 3 and len(traces) == 1


@pytest.mark.slow
def test_eager_agrees_with_jit() -> None:
    t = at_rate(50.0)
    poses = np.concatenate([axis_turn([0, 1, 0], 0.3 * t), reach(t)], axis=1)
    arrays = (*padded(poses, t, dtype="float32"), jnp.asarray(np.arange(LENGTH) // 40))
    eager = s.motion_quality(*arrays, params=PARAMS, sub_tasks_n=3)
    for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(quality_of(*arrays)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3)


def test_gradients_are_finite_also_at_rest_and_right_elsewhere() -> None:
    with jax.enable_x64(True):
        x, t, valid = padded(reach(at_rate(20.0)), at_rate(20.0))

        def value(x: jax.Array) -> jax.Array:
            return s.sparc(s.speed_of(x, t, valid), t, valid).value

        f = quick_jit(jax.value_and_grad(value))
        assert np.isfinite(f(jnp.zeros_like(x) + 1.0)[1]).all()
        bent = x + 0.02 * jnp.sin(7 * t)[:, None]
        slope = f(bent)[1]
        along = np.random.default_rng(0).normal(size=x.shape)
        h = 1e-6
        numeric = (f(bent + h * along)[0] - f(bent - h * along)[0]) / (2 * h)
        assert float(jnp.sum(slope * along)) == pytest.approx(float(numeric), rel=1e-4)
        assert np.asarray(slope)[41:].any() == np.False_  # nothing from the padding


# ------------------------------------------------------------------------------------------------- trials: bad clocks


def test_trial_19_epoch_stamps_give_the_speeds_of_float64() -> None:
    e = episodes()[0]
    late = dataclasses.replace(e, time_s=e.time_s + 1.3e9).prepared()
    tcp = e.bodies.index("tcp")
    batch = pad_episodes([late], length=LENGTH)
    speed_of = quick_jit(s.speed_of)
    got = speed_of(*(jnp.asarray(x[0]) for x in (batch.poses[:, :, tcp, 4:], batch.time_s, batch.valid[:, :, tcp])))
    assert got.dtype == jnp.float32
    with jax.enable_x64(True):
        exact = np.asarray(speed_of(*padded(e.poses[:, tcp, 4:], e.time_s)))
    moving = exact > 0.01
    assert moving.sum() > 30
    np.testing.assert_allclose(np.asarray(got)[moving], exact[moving], rtol=2e-3)
    want = np.linalg.norm(np.gradient(e.poses[:, tcp, 4:], e.time_s, axis=0), axis=1)
    np.testing.assert_allclose(exact[1 : e.n_frames - 1], want[1:-1], atol=1e-9)
    naive = (e.time_s + 1.3e9).astype(np.float32)
    assert "run backward" in told(sparc_of(*padded(want, naive, dtype="float32")))  # without rebasing: refused


def test_trial_20_and_22_a_status_and_no_crash() -> None:
    t, speed = np.arange(101) / 50, SIGNALS["min_jerk"]

    def said(**change: tuple[int | slice, float]) -> str:
        x, time_s, valid = speed.copy(), t.copy(), np.ones(101, bool)
        for array, name in ((x, "speed"), (time_s, "time"), (valid, "valid")):
            if name in change:
                array[change[name][0]] = change[name][1]
        return told(sparc_of(*padded(x, time_s, valid)))

    assert said() == "ok"
    assert said(speed=(slice(None), 0.0)) == "no motion"
    assert said(speed=(slice(None), 5e-4)) == "no motion"
    assert said(speed=(slice(None), 0.2)) == "ok"  # constant speed is a rectangle: -2.40
    assert said(valid=(slice(1, None), False)) == said(valid=(slice(None), False)) == "too short"
    assert said(speed=(30, np.nan)).startswith("bad input") and said(time=(30, np.inf)).startswith("bad input")
    assert said(speed=(30, -0.1)).startswith("bad input")
    assert said(valid=(30, False)) == "has gaps"
    assert said(time=(slice(60, None), t[60:] + 12.0)) == "has gaps"
    assert said(time=(40, t[39])) == said(time=(slice(50, None), t[50:] - 26.0)) == Status.TIME.sentence
    assert said(valid=(slice(0, 20), False)) == "ok"  # frames missing at an end are no gap
    assert told(sparc_of(*padded(speed, 10 * t))) == "fps too low"


@pytest.mark.parametrize("analytic", [True, False], ids=["speeds", "positions"])
def test_trial_21_a_reach_at_many_rates_agrees_or_the_rate_is_too_low(analytic: bool) -> None:
    values = {}
    with jax.enable_x64(True):
        for rate_hz in (5, 6, 8, 10, 16, 20, 30, 50, 100):
            t = at_rate(rate_hz)
            x, time_s, valid = padded(reach(t), t)
            speed = s.speed_of(x, time_s, valid)
            if analytic:
                speed = padded(0.15 * oracle.minimum_jerk_speed(t / 2), t)[0]
            values[rate_hz] = sparc_of(speed, time_s, valid)
        assert told(values.pop(5)) == "fps too low"
        assert {told(v) for v in values.values()} == {"ok"}
        numbers = [float(v.value) for v in values.values()]
        assert max(numbers) - min(numbers) < 0.01 * 1.4  # within 1 %
        assert oracle.sparc(0.15 * oracle.minimum_jerk_speed(at_rate(5) / 2), 5.0)[0] == pytest.approx(-1.401, abs=1e-3)


def test_the_lowest_rate_is_where_a_reach_of_a_second_is_still_right() -> None:
    f = quick_jit(partial(s.sparc, rate_min_hz=1.0))
    found = {}
    with jax.enable_x64(True):
        for rate_hz in (5, 6, 7, 8, 100):
            x, time_s, valid = padded(reach(at_rate(rate_hz, 1.0), duration_s=1.0), at_rate(rate_hz, 1.0))
            found[rate_hz] = float(f(s.speed_of(x, time_s, valid), time_s, valid).value)
    off = {rate_hz: abs(v / found[100] - 1) for rate_hz, v in found.items()}
    assert off[5] > 0.03 and max(off[r] for r in (6, 7, 8)) < 0.01


def test_uneven_stamps_are_brought_to_an_even_grid() -> None:
    """Jitter of the stamps, dropped frames and a drifting clock: linear interpolation beats taking them for even."""
    rng = np.random.default_rng(3)
    even = at_rate(50.0)
    jitter = np.sort(even + np.pad(rng.uniform(-0.4, 0.4, 99), 1) / 50)
    dropped = np.delete(even, [13, 40, 42, 66, 80])
    drift = 2 * (even / 2) ** 1.3
    with jax.enable_x64(True):
        for t in (jitter, dropped, drift):
            speed = 0.15 * oracle.minimum_jerk_speed(t / 2) + 0.04 * np.sin(7 * t) ** 2
            exact = 0.15 * oracle.minimum_jerk_speed(even / 2) + 0.04 * np.sin(7 * even) ** 2
            out = sparc_of(*padded(speed, t))
            want = oracle.sparc(exact, 50.0)[0]
            taken_for_even = oracle.sparc(speed, (len(t) - 1) / 2)[0]
            assert told(out) == "ok"
            assert abs(float(out.value) - want) < 0.005 * abs(want)
            assert abs(float(out.value) - want) < abs(taken_for_even - want)


# --------------------------------------------------------------------------------------------- jerk, path and times


def curve(name: str, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """(positions, |jerk| at every frame, path length) of 2 s of an analytic curve."""
    if name == "minimum jerk":
        tau = t / 2
        return reach(t), 0.3 * np.abs(60 - 360 * tau + 360 * tau**2) / 8, 0.3
    radius, omega, climb = 0.2, 2.5, 0.1 if name == "helix" else 0.0
    x = np.stack([radius * np.cos(omega * t), radius * np.sin(omega * t), climb * t], axis=1)
    return x, np.full(len(t), radius * omega**3), 2 * np.hypot(radius * omega, climb)


@pytest.mark.parametrize("name", ["minimum jerk", "circle", "helix"])
@pytest.mark.parametrize(
    ("rate_hz", "dtype"), [(20.0, "float32"), (50.0, "float32"), (100.0, "float32"), (100.0, "float64")]
)
def test_analytic_curves(name: str, rate_hz: float, dtype: str) -> None:
    rng = np.random.default_rng(1)
    t = at_rate(rate_hz)
    t = t + np.pad(rng.uniform(-0.2, 0.2, len(t) - 2), 1) / rate_hz  # uneven stamps
    x, jerk, length = curve(name, t)
    poses = np.concatenate([np.tile([1.0, 0, 0, 0], (len(t), 1)), x], axis=1)
    with jax.enable_x64(dtype == "float64"):
        whole = quality_of(*padded(poses, t, dtype=dtype), jnp.full(LENGTH, -1)).whole
    assert float(whole.path_m) == pytest.approx(length, rel=0.01)
    assert float(whole.duration_s) == pytest.approx(2.0, rel=1e-5)
    assert float(whole.jerk_mean_m_s3) == pytest.approx(np.trapezoid(jerk, t) / 2, rel=0.01)
    assert float(whole.jerk_peak_m_s3) == pytest.approx(jerk.max(), rel=0.01)
    assert Status(int(whole.turn_sparc_status)).sentence == "no motion" and float(whole.turn_rad) == 0


def test_jerk_is_the_least_squares_polynomials() -> None:
    rng = np.random.default_rng(5)
    t = np.cumsum(rng.uniform(0.01, 0.05, 60))
    x = rng.normal(size=(60, 3)).cumsum(axis=0) * 0.01
    with jax.enable_x64(True):
        out = jerk_of(*padded(x, t))
    assert int(out.status) == Status.OK and out.known[:60].all() and not out.known[60:].any()
    np.testing.assert_allclose(out.vector[:60], oracle.jerk(x, t, window_s=0.4), rtol=1e-6, atol=1e-6)
    few = jerk_of(*padded(x[:5], t[:5]))
    sparse = jerk_of(*padded(x, t * 10))
    dense = jerk_of(*padded(x, t / 20))
    assert [Status(int(o.status)).sentence for o in (few, sparse)] == ["too short", "fps too low"]
    assert int(dense.status) in (Status.WINDOW, Status.OK)
    assert int(jerk_of(*padded(np.tile(x, (5, 1)), np.arange(300) / 400)).status) == Status.WINDOW


def test_the_same_motion_at_20_50_and_100_hz() -> None:
    def motion(t: np.ndarray) -> np.ndarray:
        x = reach(t, duration_s=1.5) + 0.05 * np.sin(3 * t)[:, None] ** 2
        turn = axis_turn([1, 2, 3], 1.2 * oracle.minimum_jerk(t / 1.8))
        return np.concatenate([turn, x], axis=1)

    nowhere = jnp.full(LENGTH, -1)
    out = [quality_of(*padded(motion(t), t, dtype="float32"), nowhere).whole for t in map(at_rate, (20, 50, 100))]
    for field in dataclasses.fields(s.Motion):
        values = np.array([float(getattr(o, field.name)) for o in out])
        if field.name.endswith("status"):
            assert (values == 0).all()
        elif field.name != "idle_s":
            assert np.ptp(values) < 0.03 * abs(values[-1]), (field.name, values)
    assert float(out[-1].turn_rad) == pytest.approx(1.2, rel=1e-3)


def test_the_whole_and_its_sub_tasks() -> None:
    """A reach, a rest and a reach back, judged apart; paths and times add up; a short part has no number."""
    t = np.arange(151) / 50
    out_and_back = oracle.minimum_jerk(t) - oracle.minimum_jerk(t - 2.0)
    poses = np.concatenate([axis_turn([0, 0, 1], 0.5 * out_and_back), out_and_back[:, None] * [0.2, 0, 0]], axis=1)
    label = np.digitize(t, [1.001, 2.001])
    labels = np.pad(label, (0, LENGTH - 151), constant_values=-1)
    found = quality_of(*padded(poses, t, dtype="float32"), jnp.asarray(labels))
    whole, parts = found.whole, found.sub_tasks
    assert [Status(int(c)).sentence for c in parts.sparc_status] == ["ok", "no motion", "ok"]
    for name in ("path_m", "turn_rad", "duration_s", "idle_s"):
        assert float(getattr(parts, name).sum()) == pytest.approx(float(getattr(whole, name)), rel=1e-5)
    assert float(parts.path_m[0]) == pytest.approx(0.2, rel=1e-3)
    np.testing.assert_allclose(parts.duration_s, [1, 1, 1], rtol=1e-4)
    np.testing.assert_allclose(parts.sparc[::2], [-1.405, -1.405], atol=0.01)
    np.testing.assert_allclose(parts.turn_sparc[::2], [-1.405, -1.405], atol=0.01)
    assert float(whole.sparc) < -2  # a pause between two smooth reaches is not smooth as a whole
    assert 0.99 < float(parts.idle_s[1]) <= 1.0 + 1e-5 and float(parts.jerk_mean_m_s3[0]) > 1
    lone = np.where(np.arange(LENGTH) == 70, 2, 0)
    short = quality_of(*padded(poses, t, dtype="float32"), jnp.asarray(lone)).sub_tasks
    assert Status(int(short.sparc_status[2])).sentence == "too short"
    assert Status(int(short.sparc_status[0])).sentence == "has gaps"
    assert [int(short.status[k]) for k in range(3)] == [Status.OK, Status.TOO_SHORT, Status.OK]
    for motion in (whole, parts, short):
        for name, code in (("path_m", "status"), ("sparc", "sparc_status"), ("jerk_peak_m_s3", "jerk_status")):
            np.testing.assert_array_equal(np.isnan(getattr(motion, name)), np.asarray(getattr(motion, code)) != 0)


def test_demonstrations_in_another_world_frame_and_padded_are_the_same() -> None:
    e = episodes()[3].prepared()
    tcp, turn = e.bodies.index("tcp"), random_poses(1, 4)[0]
    label = jnp.asarray(np.pad(np.minimum(e.sub_task, 2), (0, LENGTH - e.n_frames), constant_values=-1))
    base = quality_of(*padded(e.poses[:, tcp], e.time_s, dtype="float32"), label)
    other = quality_of(*padded(moved(e, turn).poses[:, tcp], e.time_s, dtype="float32"), label)
    bare = quick_jit(partial(s.motion_quality, params=PARAMS, sub_tasks_n=3))(
        *(jnp.asarray(x) for x in (e.poses[:, tcp].astype(np.float32), e.time_s.astype(np.float32), e.valid_of("tcp"))),
        label[: e.n_frames],
    )
    for field in dataclasses.fields(s.Motion):
        for want, *got in zip(*(jax.tree.leaves(o) for o in (base, other, bare)), strict=True):
            np.testing.assert_allclose(got, np.broadcast_to(want, (2, *want.shape)), rtol=2e-3, err_msg=field.name)
    assert int(base.whole.status) == 0 and float(base.whole.sparc) < -1.4


def test_invalid_frames_are_bridged_and_never_read() -> None:
    t = at_rate(50.0)
    x, valid = reach(t), np.ones(101, bool)
    x[30:33], valid[30:33] = np.nan, False
    arrays = padded(x, t, valid)
    path, idle = (float(quick_jit(f)(*arrays)) for f in (s.path_length, s.idle_time))
    time = float(quick_jit(s.time_to_completion)(*arrays[1:]))
    assert path == pytest.approx(0.3, rel=1e-4) and time == pytest.approx(2.0)
    speed = np.asarray(quick_jit(s.speed_of)(*padded(x, t, valid)))
    assert np.isfinite(speed).all() and (speed[30:33] == 0).all() and (speed[101:] == 0).all()
    assert speed[29] > 0.1  # one-sided beside the hole
    slow = np.linalg.norm(np.diff(reach(t), axis=0), axis=1) * 50 < 0.005
    assert idle == pytest.approx(slow.sum() / 50, abs=1e-5)


def test_angular_speed() -> None:
    rng = np.random.default_rng(2)
    t = np.cumsum(rng.uniform(0.01, 0.03, 100))
    q = Rotation.from_rotvec(np.outer(1.7 * t, [0.6, 0, 0.8])).as_quat(scalar_first=True)
    q *= rng.choice([-1.0, 1.0], (100, 1))  # q and -q are one rotation
    speed = quick_jit(s.angular_speed_of)(*padded(q, t, dtype="float32"))
    np.testing.assert_allclose(speed[:100], 1.7, rtol=1e-3)


# ------------------------------------------------------------------------------------------------- noise and settings


def test_noise_lowers_sparc_and_more_so_at_more_noise() -> None:
    t = at_rate(17.0, 3.0)
    arrays = padded(reach(t, duration_s=3.0), t, dtype="float32")
    floor = quick_jit(partial(s.noise_floor, params=PARAMS))
    means = [float(floor(jax.random.key(0), *arrays, sigma_m=sigma).value.mean()) for sigma in (0.0, 0.001, 0.005)]
    assert means[0] == pytest.approx(-1.40, abs=0.01) and means == sorted(means, reverse=True)
    assert means[2] == pytest.approx(-3.24, abs=0.25)  # as published for 5 mm
    again = floor(jax.random.key(0), *arrays, sigma_m=0.005)
    assert float(again.value.mean()) == means[2] and len(set(np.asarray(again.value))) == 64


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cutoff_hz": 0.0}, "smoothness.cutoff_hz is 0.0; expected a positive number"),
        ({"amplitude": 1.0}, "between 0 and 1"),
        ({"gap_steps": 1.0}, "above 1"),
        ({"padlevel": -1}, "at least 0"),
        ({"jerk_half_n": 2}, "at least 3"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change: dict, says: str) -> None:
    assert PARAMS.check() is PARAMS
    with pytest.raises(ValueError, match=says):
        SmoothnessParams(**change).check()
