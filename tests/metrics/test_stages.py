"""The monitor on episodes built by hand, one change at a time; against a state machine; its laws; hand motion."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from jaxeval.metrics import hand_motion as hm
from jaxeval.metrics import stages as s
from jaxeval.metrics.stages import Cause, StageGeometry, StageParams, StageSignals
from jaxeval.types import Symmetry
from tests.executions import quick_jit
from tests.oracles import stages_numpy as oracle

STEPS = {
    "PARK": 2,
    "APPROACH": 4,
    "PREGRASP_DWELL": 2,
    "CLOSE": 4,
    "GRASP_DWELL": 4,
    "LIFT": 12,
    "REORIENT": 16,
    "TRANSFER": 16,
    "PREINSERT_DWELL": 12,
    "INSERT": 24,
    "INSERT_DWELL": 12,
    "RELEASE": 12,
    "RETREAT": 12,
    "SETTLE": 30,
}
PHASES = tuple(STEPS)
START = dict(zip(PHASES, np.cumsum([0, *STEPS.values()]).tolist(), strict=False))
T, LENGTH = 162, 192
"""Steps of the episodes below, and the length to which all are padded, so that the monitor compiles once a dtype."""

TURN = Rotation.from_euler("z", 45, degrees=True)
STOWED = TURN * Rotation.from_euler("y", -90, degrees=True)
D, ENTRANCE = TURN.apply([1, 0, 0]), np.array([0.4914, 0.1414, 0.93])
HOLD = Rotation.from_rotvec([0.3, -0.2, 0.5]), np.array([0.03, -0.01, 0.07])  # of the object in the hand


def wxyz(R: Rotation) -> np.ndarray:
    return R.as_quat(scalar_first=True)


GEOMETRY = StageGeometry(
    T_world_entrance=np.concatenate([wxyz(TURN), ENTRANCE]),
    half_section_m=np.array([0.0825, 0.05]),
    interior_depth_m=0.11,
    goal_wxyz=wxyz(STOWED),
    pre_insert_m=ENTRANCE - 0.05 * D,
    lift_z_m=0.76,
    phases=PHASES,
).check()
PARAMS = StageParams().check()
BATCH = 17  # one of every way to end, and one more
monitors = quick_jit(lambda x, g, p: jax.vmap(partial(s.monitor, geometry=g, params=p))(x))


@dataclasses.dataclass
class Told:
    """An episode to be changed: where the object is, how it is turned off its path, what pushes on it."""

    position: np.ndarray  # [T, 3]
    tilt: np.ndarray  # [T] rad about the object's width axis, on top of the goal's orientation
    hand_offset: np.ndarray  # [T, 3] of the hand, from where it holds the object
    hand_turn: np.ndarray  # [T] rad of the hand about its own y axis, the object staying at its place in the hand
    finger: np.ndarray  # [T, 3]
    receptacle: np.ndarray
    linear: np.ndarray
    angular: np.ndarray
    valid: np.ndarray
    phase: np.ndarray

    def at_depth(self, frames: slice, depth: float | np.ndarray) -> None:
        self.position[frames] = ENTRANCE + np.multiply.outer(np.broadcast_to(depth, self.position[frames].shape[:1]), D)

    def signals(self) -> StageSignals:
        R = STOWED * Rotation.from_rotvec(self.tilt[:, None] * [0, 1, 0])
        hand = R * HOLD[0].inv() * Rotation.from_rotvec(self.hand_turn[:, None] * [0, 1, 0])
        away = self.position - hand.apply(HOLD[1]) + self.hand_offset
        return StageSignals(
            phase=self.phase,
            T_world_object=np.concatenate([wxyz(R), self.position], axis=1),
            linear_m_s=self.linear,
            angular_rad_s=self.angular,
            T_world_hand=np.concatenate([wxyz(hand), away], axis=1),
            finger_n=self.finger,
            receptacle_n=self.receptacle,
            valid=self.valid,
        )


def perfect() -> Told:
    """Straight ramps whose row i of n is at (i + 1/2) / n, so that no threshold is met exactly."""
    lift, mid = np.array([0.35, 0, 0.841]), np.array([0.403022, 0.053022, 0.8855])
    e = Told(
        position=np.tile([0.35, 0, 0.721], (T, 1)),
        tilt=np.full(T, np.pi / 2),
        hand_offset=np.zeros((T, 3)),
        hand_turn=np.zeros(T),
        finger=np.zeros((T, 3)),
        receptacle=np.zeros(T),
        linear=np.zeros((T, 3)),
        angular=np.zeros((T, 3)),
        valid=np.ones(T, bool),
        phase=np.repeat(np.arange(14), list(STEPS.values())),
    )
    path = {"LIFT": (e.position[0], lift), "REORIENT": (lift, mid), "TRANSFER": (mid, ENTRANCE - 0.05 * D)}
    path["INSERT"] = (ENTRANCE - 0.05 * D, ENTRANCE + 0.06 * D)
    for name, (a, b) in path.items():
        n, t = STEPS[name], START[name]
        f = ((np.arange(n) + 0.5) / n)[:, None]
        e.position[t : t + n], e.position[t + n :] = a + f * (b - a), b
        e.linear[t : t + n] = (b - a) / n * 50
    turning = np.arange(16) + 0.5
    e.tilt[28:44], e.tilt[44:] = np.pi / 2 * (1 - turning / 16), 0.0
    e.finger[8:111] = [3.0, 2.0, 0.0]
    e.hand_offset[111:] = -0.1 * D
    e.receptacle[96:] = 1.2  # its weight
    return e


def changed(change: Callable[[Told], None]) -> StageSignals:
    e = perfect()
    change(e)
    return e.signals()


def judge(
    episodes: Sequence[StageSignals], geometry: StageGeometry = GEOMETRY, params: StageParams = PARAMS
) -> s.Stages:
    """Of up to BATCH episodes at once, padded with rows that are not valid."""
    more = [*episodes, *[episodes[-1]] * (BATCH - len(episodes))]
    out = monitors(s.stack_signals(more, length=LENGTH), geometry, params)
    return jax.tree.map(lambda x: np.asarray(x)[: len(episodes)], out)


def run(signals: StageSignals, geometry: StageGeometry = GEOMETRY, params: StageParams = PARAMS) -> s.Stages:
    """Of one episode."""
    return jax.tree.map(lambda x: x[0], judge([signals], geometry, params))


# -------------------------------------------------------------------------------------------- one change at a time


def stops(e: Told, depth: float = 0.02) -> None:
    """Never deeper than this."""
    along = (e.position - ENTRANCE) @ D
    e.position -= np.multiply.outer(np.maximum(along - depth, 0), D)


def never_gripped(e: Told) -> None:
    e.finger[:, 0] = np.minimum(e.finger[:, 0], 0.95)


def opens_early(e: Told) -> None:
    e.finger[48:] = 0
    e.position[52:] = [0.42, 0.07, 0.72]


def passes_above(e: Told) -> None:
    e.position[44:, 2] += 0.06


def pushes(e: Told) -> None:
    stops(e)
    e.receptacle[85:95] = 2.1


def slips_at_contact(e: Told) -> None:
    stops(e)
    e.receptacle[80:] = 0.5
    e.hand_offset[85:111] = [0, 0, 0.009]


def slips_first(e: Told) -> None:
    stops(e)
    e.hand_offset[75:111] = [0, 0, 0.009]
    e.receptacle[76:] = 0.5


def slips_untouched(e: Told) -> None:
    stops(e)
    e.hand_turn[85:111] = np.radians(10.5)
    e.receptacle[:] = 0


def begins_turned(e: Told) -> None:
    stops(e)
    e.tilt[60:] = np.radians(12)


def begins_beside(e: Told) -> None:
    stops(e)
    e.position[60:] += 0.084 * TURN.apply([0, 1, 0])


def stops_short(e: Told) -> None:
    stops(e, 0.035)


def keeps_hold(e: Told) -> None:
    e.finger[111:] = [0.3, 0.3, 0.0]


def slides_out(e: Told) -> None:
    e.at_depth(slice(140, None), 0.03)


def keeps_moving(e: Told) -> None:
    e.linear[111:] = [0, 0, 0.03]


def leans(e: Told) -> None:
    e.tilt[111:] = np.radians(11)


def unreadable(e: Told) -> None:
    e.linear[30, 1] = np.nan


CAUSES: dict[Callable[[Told], None], Cause] = {
    lambda e: None: Cause.SUCCESS,
    unreadable: Cause.NOT_JUDGED,
    never_gripped: Cause.NOT_ACQUIRED,
    opens_early: Cause.DROPPED,
    passes_above: Cause.NEVER_PRE_INSERT,
    pushes: Cause.JAMMED,
    slips_at_contact: Cause.JAMMED,
    slips_first: Cause.SLIPPED,
    slips_untouched: Cause.SLIPPED,
    begins_turned: Cause.MISALIGNED,
    begins_beside: Cause.MISALIGNED,
    stops_short: Cause.NOT_INSERTED,
    keeps_hold: Cause.NOT_RELEASED,
    slides_out: Cause.LEFT_BOX,
    keeps_moving: Cause.NOT_SETTLED,
    leans: Cause.TERMINAL_ORIENTATION,
}


def test_a_perfect_episode() -> None:
    """Steps by hand: LIFT begins at 16 and rises 10 mm a step, and so on. Lost steps, phases, latches all show here."""
    out = run(perfect().signals())
    assert START["LIFT"] == 16 and START["INSERT"] == 72 and START["RELEASE"] == 108 and len(perfect().phase) == T
    # rise 25 mm; height .766; 14.06 deg; 29.97 mm; depth 43.96 mm; fifth step without force from 111 on; twentieth
    assert out.reached == s.Reached(18, 20, 41, 54, 92, 115, 134)
    assert out.moments == s.Moments(
        lift=16, transfer=44, insert=72, release=108, touched=96, let_go=-1, dropped=-1, slipped=-1, jammed=-1
    )
    assert bool(out.success) and bool(out.success_once) and bool(out.success_at_end)
    assert (int(out.cause), int(out.drop_phase), int(out.status)) == (Cause.SUCCESS, -1, s.STATUS_OK)
    np.testing.assert_allclose([out.depth_max_m, out.depth_final_m], 0.06, atol=1e-6)
    np.testing.assert_allclose([out.angle_before_insert_rad, out.angle_final_rad], 0, atol=1e-6)
    assert float(out.receptacle_peak_n) == pytest.approx(1.2)


@pytest.mark.parametrize("change", CAUSES, ids=lambda change: change.__name__)
def test_each_cause_by_changing_one_thing(change: Callable[[Told], None]) -> None:
    out, want = run(changed(change)), CAUSES[change]
    assert Cause(int(out.cause)) == want
    assert bool(out.success) == (want == Cause.SUCCESS)


def test_every_cause_has_an_episode_and_its_own_sentence() -> None:
    assert set(CAUSES.values()) == set(Cause)
    told = [s.sentence(c, PHASES.index("TRANSFER"), phases=PHASES) for c in Cause]
    assert len(set(told)) == len(Cause) and "dropped in TRANSFER" in told
    assert [int(c) for c in Cause] == list(range(len(Cause)))  # the order is the precedence


LOW = 0.4  # N: less than holds


@pytest.mark.parametrize("enough", [True, False])
def test_counts_that_latch(enough: bool) -> None:
    """One step less than the count is nothing: 10 to drop, 5 to release, 20 to settle, 10 to jam."""
    short = 0 if enough else 1

    def lost(e: Told) -> None:
        e.finger[46 : 56 - short] = [LOW, 0, 0]

    def freed(e: Told) -> None:
        e.finger[111:] = [3, 2, 0]
        e.finger[120 : 125 - short] = [LOW, 0, 0]

    def stilled(e: Told) -> None:
        e.angular[111:] = [0, 0.3, 0]
        e.angular[130 : 150 - short] = [0, 0.1, 0]

    def pressed(e: Told) -> None:
        stops(e)
        e.receptacle[85 : 95 - short] = 2.1

    out = run(changed(lost))
    assert [int(x) for x in (out.moments.let_go, out.moments.dropped)] == ([46, 55] if enough else [-1, -1])
    assert int(out.drop_phase) == (PHASES.index("TRANSFER") if enough else -1)
    assert bool(out.success)  # regained, inserted and let go: a drop undoes nothing
    assert int(run(changed(freed)).reached.released) == (124 if enough else -1)
    assert int(run(changed(stilled)).reached.settled) == (149 if enough else -1)
    jam = run(changed(pressed))
    assert int(jam.moments.jammed) == (94 if enough else -1)
    assert Cause(int(jam.cause)) == (Cause.JAMMED if enough else Cause.NOT_INSERTED)


def test_flicker_counts_for_nothing() -> None:
    def twice_four(e: Told) -> None:
        e.finger[111:] = [3, 2, 0]
        e.finger[112:116] = e.finger[117:121] = 0

    def twitches(e: Told) -> None:
        e.linear[120::19] = [0.05, 0, 0]

    assert int(run(changed(twice_four)).reached.released) == -1
    assert Cause(int(run(changed(twitches)).cause)) == Cause.NOT_SETTLED


def test_success_once_success_and_success_at_end_are_three_things() -> None:
    def touched_again(e: Told) -> None:
        e.finger[-1] = [0.6, 0, 0]

    out = run(changed(slides_out))
    assert bool(out.success_once) and not bool(out.success) and not bool(out.success_at_end)
    out = run(changed(touched_again))
    assert bool(out.success_once) and bool(out.success) and not bool(out.success_at_end)


def test_settling_at_the_very_last_step() -> None:
    for late, settled in ((138, 161), (139, -1)):  # released at late + 4, settled 19 later

        def change(e: Told, late: int = late) -> None:
            e.finger[111:late] = [3, 2, 0]

        assert int(run(changed(change)).reached.settled) == settled


def test_stages_need_not_fall() -> None:
    """An object tilted all the way is never reoriented nor at the pose before insertion, and yet inserted."""

    def straightens_late(e: Told) -> None:
        e.tilt[28:80] = np.radians(20)

    out = run(changed(straightens_late))
    assert (int(out.reached.reoriented), int(out.reached.pre_insert)) == (-1, -1)
    assert int(out.reached.inserted) == 92 and bool(out.success)
    assert float(out.angle_before_insert_rad) == pytest.approx(np.radians(20), abs=1e-6)


def test_pressing_before_the_pose_before_insertion_is_no_jam() -> None:
    def both(e: Told) -> None:
        pushes(e)
        e.position[44:, 2] += 0.06

    out = run(changed(both))
    assert int(out.moments.jammed) == 94 and Cause(int(out.cause)) == Cause.NEVER_PRE_INSERT


def test_what_came_first_a_jam_or_a_drop() -> None:
    def jam_then_drop(e: Told) -> None:
        pushes(e)
        e.finger[96:] = 0

    def drop_then_jam(e: Told) -> None:
        pushes(e)
        e.finger[90:] = 0

    assert [Cause(int(run(changed(f)).cause)) for f in (jam_then_drop, drop_then_jam)] == [Cause.JAMMED, Cause.DROPPED]


def test_a_slip_with_a_jam_by_force_is_the_jam() -> None:
    def both(e: Told) -> None:
        pushes(e)
        e.hand_offset[50:111] = [0, 0.0085, 0]

    out = run(changed(both))
    assert int(out.moments.slipped) == 50 and Cause(int(out.cause)) == Cause.JAMMED


def test_outside_the_section_is_not_inserted() -> None:
    def beside(e: Told) -> None:
        e.position[72:] += 0.084 * TURN.apply([0, 1, 0])

    def above(e: Told) -> None:
        e.position[72:, 2] += 0.049

    def through_the_back(e: Told) -> None:
        e.at_depth(slice(85, None), 0.12)

    assert int(run(changed(beside)).reached.inserted) == -1 and float(run(changed(beside)).depth_max_m) == 0
    assert int(run(changed(above)).reached.inserted) == 92
    assert int(run(changed(through_the_back)).reached.inserted) == -1


def test_inserted_before_acquired_is_not_inserted() -> None:
    """An object that was batted in is no success."""

    def batted(e: Told) -> None:
        e.finger[:] = 0

    out = run(changed(batted))
    assert set(map(int, out.reached)) == {-1} and Cause(int(out.cause)) == Cause.NOT_ACQUIRED
    assert int(out.angle_before_insert_status) == s.STATUS_NOT_HELD and np.isnan(out.angle_before_insert_rad)


def test_both_insertion_depths_from_one_program() -> None:
    """The default and the printed threshold, and one that is never met: leaves, so that nothing is compiled again."""
    run(perfect().signals())
    programs = monitors._cache_size()
    for depth_m, step in ((0.04, 92), (0.05, 94), (0.0601, -1)):
        out = run(perfect().signals(), params=dataclasses.replace(PARAMS, insert_depth_m=depth_m))
        assert (int(out.reached.inserted), bool(out.success)) == (step, step > 0)
    assert monitors._cache_size() == programs


# ------------------------------------------------------------------------------------------------ gate, padding, batch


def test_what_cannot_be_judged() -> None:
    def no_rotation(e: StageSignals) -> StageSignals:
        T_world_hand = np.array(e.T_world_hand)
        T_world_hand[40, :4] *= 1.01
        return dataclasses.replace(e, T_world_hand=T_world_hand)

    good = perfect().signals()
    for signals, status in (
        (changed(unreadable), s.STATUS_INPUT),
        (no_rotation(good), s.STATUS_INPUT),
        (dataclasses.replace(good, valid=np.zeros(T, bool)), s.STATUS_TOO_SHORT),
    ):
        out = run(signals)
        assert (int(out.status), int(out.cause), bool(out.success)) == (status, Cause.NOT_JUDGED, False)
        assert {int(x) for x in (*out.reached, *out.moments)} == {-1}
        assert np.isnan([out.depth_max_m, out.angle_final_rad, out.receptacle_peak_n]).all()
    unread = dataclasses.replace(changed(unreadable), valid=np.arange(T) != 30)
    assert Cause(int(run(unread).cause)) == Cause.SUCCESS


def test_a_row_that_is_not_valid_breaks_a_run() -> None:
    def gap(e: Told) -> None:
        e.valid[113] = False

    assert int(run(changed(gap)).reached.released) == 118


def test_padding_batch_compilation_and_precision_change_nothing() -> None:
    everyone = [changed(change) for change in CAUSES]
    shorter = jax.tree.map(lambda x: x[:150], everyone[0])
    together = judge([*everyone, shorter])
    for i, one in enumerate([*everyone, shorter]):
        assert_same(jax.tree.map(lambda x, i=i: x[i], together), run(one))
    assert Cause(int(together.cause[-1])) == Cause.SUCCESS and int(together.moments.release[-1]) == 108
    assert_same(s.monitor(shorter, geometry=GEOMETRY, params=PARAMS), run(shorter))  # eager, and not padded

    def rubbish(x: np.ndarray) -> np.ndarray:  # in the rows that pad
        return np.concatenate([x, np.full((LENGTH - len(x), *x.shape[1:]), np.nan if x.dtype.kind == "f" else 9)])

    soiled = dataclasses.replace(jax.tree.map(rubbish, shorter), valid=np.arange(LENGTH) < 150)
    assert_same(run(soiled), run(shorter))
    with jax.enable_x64(True):
        wide = judge([*everyone, shorter])
    assert wide.depth_max_m.dtype == np.float64 and together.depth_max_m.dtype == np.float32
    assert_same(wide, together)


def assert_same(a: s.Stages, b: s.Stages) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), atol=2e-6)


def test_funnel_and_causes_of_a_batch() -> None:
    batch = judge([changed(change) for change in CAUSES])
    counts = s.funnel(batch)
    assert jax.tree.map(int, counts) == s.Funnel(
        judged_n=15, acquired=14, lifted=14, reoriented=14, pre_insert=12, inserted=5, released=4, settled=3, success=1
    )
    causes = s.cause_counts(batch, phases=PHASES)
    assert sum(causes.values()) == len(CAUSES)
    assert causes["dropped in TRANSFER"] == 1 and causes["jammed at the receptacle"] == 2 and causes["success"] == 1


# ------------------------------------------------------------------------------------------------------- other tasks


def test_an_upright_object_on_a_plate_may_be_turned_about_its_axis() -> None:
    """Put down from above: the same monitor with the insertion pointing down and a symmetric object."""
    phases = tuple("LOWER" if name == "INSERT" else name for name in PHASES)
    down = Rotation.from_euler("y", 90, degrees=True)  # x points down
    geometry = StageGeometry(
        T_world_entrance=np.concatenate([wxyz(down), [0.5, 0.2, 0.85]]),
        half_section_m=np.array([0.06, 0.06]),
        interior_depth_m=0.06,
        goal_wxyz=np.array([1.0, 0, 0, 0]),
        pre_insert_m=np.array([0.5, 0.2, 0.9]),
        lift_z_m=0.76,
        phases=phases,
        insert_phase="LOWER",
        symmetry=Symmetry("spin", axis=(0.0, 0.0, 1.0)),
    ).check()
    e = perfect()
    e.position[44:] = [0.5, 0.2, 0.9]
    e.position[72:96, 2] = np.linspace(0.9, 0.805, 24)
    e.position[96:, 2] = 0.805
    yaw, lean = np.radians(70), np.radians(6)
    R = Rotation.from_euler("zx", [yaw, 0]) * Rotation.from_rotvec([lean, 0, 0])
    signals = dataclasses.replace(
        e.signals(), T_world_object=np.concatenate([np.tile(wxyz(R), (T, 1)), e.position], axis=1)
    )
    out = run(signals, geometry)
    assert Cause(int(out.cause)) == Cause.SUCCESS and int(out.moments.insert) == 72
    assert float(out.angle_final_rad) == pytest.approx(lean, abs=1e-4)
    assert float(out.depth_final_m) == pytest.approx(0.045, abs=1e-6)
    strict = run(signals, dataclasses.replace(geometry, symmetry=Symmetry()))
    assert Cause(int(strict.cause)) == Cause.TERMINAL_ORIENTATION
    assert float(strict.angle_final_rad) == pytest.approx(R.magnitude(), abs=1e-5) and R.magnitude() > yaw


def test_one_finger_acquires_nothing_and_nothing_is_lifted_unheld() -> None:
    def thumb_alone(e: Told) -> None:
        e.finger[:, 1:] = 0.9

    def tossed(e: Told) -> None:
        e.finger[19:26] = [LOW, 0, 0]  # in the air, 7 steps: too few to be dropped

    assert int(run(changed(thumb_alone)).reached.acquired) == -1
    out = run(changed(tossed))
    assert int(out.reached.lifted) == 26 and int(out.moments.dropped) == -1


def test_retained_until_the_insertion_begins_or_contact() -> None:
    """A drop that begins later is not one in free space; nothing is retained that was not acquired."""
    for open_at, touch_at, kept in (
        (48, 200, False),
        (71, 200, False),
        (72, 200, True),
        (60, 58, True),
        (60, 61, False),
    ):

        def change(e: Told, open_at: int = open_at, touch_at: int = touch_at) -> None:
            stops(e)
            e.receptacle[:] = 0
            e.receptacle[touch_at:] = 0.3
            e.finger[open_at:] = 0

        out = run(changed(change))
        assert int(out.moments.let_go) == open_at and bool(s.retained(out)) == kept
    assert bool(s.retained(run(perfect().signals()))) and not bool(s.retained(run(changed(never_gripped))))


def test_the_point_that_is_inserted() -> None:
    """A tip 20 mm ahead of the centre along the insertion is inserted where the centre would be 20 mm deeper."""
    ahead = STOWED.inv().apply(0.02 * D)
    out = run(perfect().signals(), dataclasses.replace(GEOMETRY, point_m=ahead))
    assert float(out.depth_max_m) == pytest.approx(0.08, abs=1e-6)
    assert int(out.reached.inserted) == 87  # -.05 + .02 + .11 (15.5 / 24) = 41.0 mm; 36.5 mm a step before


def test_settings_that_make_no_sense() -> None:
    for bad in (
        {"drop_steps": 0},
        {"jam_steps": 2.5},
        {"insert_depth_m": 0.0},
        {"final_rad": 10.0},
        {"hold_n": np.nan},
    ):
        with pytest.raises(ValueError, match=f"metric.{next(iter(bad))} is .*expected"):
            StageParams(**bad).check()
    for bad in (
        {"phases": PHASES[:-3]},
        {"phases": PHASES[::-1]},
        {"insert_phase": "LOWER"},
        {"goal_wxyz": np.array([1.0, 1, 0, 0])},
        {"half_section_m": np.array([0.1, -0.1])},
        {"pre_insert_m": np.zeros(2)},
    ):
        with pytest.raises(ValueError, match=r"expected|the task has"):
            dataclasses.replace(GEOMETRY, **bad).check()
    one_finger = dataclasses.replace(perfect().signals(), finger_n=np.ones((T, 1)))
    with pytest.raises(ValueError, match="thumb"):
        s.monitor(one_finger, geometry=GEOMETRY, params=PARAMS)
    with pytest.raises(ValueError, match="does not hold an episode of 162 steps"):
        s.stack_signals([perfect().signals()], length=161)


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
    assert bool(got["success_at_end"]) <= bool(got["success"]) <= bool(got["success_once"])
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
    assert (float(out.slip_m), int(out.slip_status)) == (pytest.approx(0.005, abs=1e-6), hm.STATUS_OK)
    assert float(out.slip_rad) == pytest.approx(0, abs=1e-3)
    assert float(motion(e, release=107).slip_m) == pytest.approx(0.004, abs=1e-6)
    assert float(motion(e, acquired=17).slip_m) > 0.049
    assert float(motion(e, release=-1).slip_m) == pytest.approx(0.1, abs=1e-6)
    never = motion(e, acquired=-1)
    assert np.isnan([never.slip_m, never.slip_rad]).all() and int(never.slip_status) == hm.STATUS_NO_GRASP


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
    assert (float(out.arm_utilisation), int(out.arm_status)) == (0.25, hm.STATUS_OK)  # .5 / 2, not 4 / 4 nor 9
    assert float(motion(perfect(), velocity=velocity, lift=17).arm_utilisation) == pytest.approx(0.2)
    none = motion(perfect(), velocity=velocity, limit=np.array([np.inf, 0, np.nan]))
    assert np.isnan(none.arm_utilisation) and int(none.arm_status) == hm.STATUS_NO_LIMIT
    none = motion(perfect(), velocity=velocity, lift=-1)
    assert np.isnan([none.arm_utilisation, none.speed_m_s]).all()
    assert {int(none.arm_status), int(none.speed_status)} == {hm.STATUS_NO_LIFT}


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
    assert np.isnan([alone.speed_m_s, alone.turn_rad_s]).all() and int(alone.speed_status) == hm.STATUS_NO_MOTION


def test_gradients_are_finite() -> None:
    e = perfect().signals()
    arrays = tuple(jnp.asarray(x, "float32") for x in (e.T_world_hand, e.T_world_object, np.zeros((T, 2))))
    rest = (jnp.arange(T, dtype="float32") / 50, jnp.asarray(e.valid), jnp.ones(2))
    steps = {k: jnp.asarray(v, jnp.int32) for k, v in {"acquired": 18, "lift": 16, "release": 108}.items()}

    def total(*moving: jax.Array) -> jax.Array:
        out = hm.hand_motion(*moving, *rest, **steps)
        return out.slip_m + out.slip_rad + out.arm_utilisation + out.speed_m_s + out.turn_rad_s

    for gradient in quick_jit(jax.grad(total, argnums=(0, 1, 2)))(*arrays):
        assert np.isfinite(gradient).all()
