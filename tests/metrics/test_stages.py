"""The monitor on episodes built by hand, one change at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxeval.metrics import stages as s
from jaxeval.metrics.stages import Cause, StageGeometry, StageParams, StageSignals
from jaxeval.metrics.status import Status
from jaxeval.types import Symmetry
from tests.metrics.stow_episodes import (
    CAUSES,
    GEOMETRY,
    LENGTH,
    PARAMS,
    PHASES,
    START,
    STOWED,
    TURN,
    D,
    T,
    Told,
    assert_same,
    changed,
    judge,
    monitors,
    never_gripped,
    perfect,
    pushes,
    run,
    slides_out,
    stops,
    unreadable,
    wxyz,
)


def test_a_perfect_episode() -> None:
    """Steps by hand: LIFT begins at 16 and rises 10 mm a step, and so on. Lost steps, phases, latches all show here."""
    out = run(perfect().signals())
    assert START["LIFT"] == 16 and START["INSERT"] == 72 and START["RELEASE"] == 108 and len(perfect().phase) == T
    # rise 25 mm; height .766; 14.06 deg; 29.97 mm; depth 43.96 mm; fifth step without force from 111 on; twentieth
    assert out.reached == s.Reached(18, 20, 41, 54, 92, 115, 134)
    assert out.moments == s.Moments(
        lift=16, transfer=44, insert=72, release=108, touched=96, let_go=-1, dropped=-1, slipped=-1, jammed=-1
    )
    assert bool(out.success) and bool(out.success_once) and bool(out.still_at_end)
    assert (int(out.cause), int(out.drop_phase), int(out.status)) == (Cause.SUCCESS, -1, Status.OK)
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


def test_steps_in_a_row_by_hand() -> None:
    held = jax.numpy.array([True, True, False, True, False, False, True, True, True])
    assert s._run(held).tolist() == [1, 2, 0, 1, 0, 0, 1, 2, 3]


def test_flicker_counts_for_nothing() -> None:
    def twice_four(e: Told) -> None:
        e.finger[111:] = [3, 2, 0]
        e.finger[112:116] = e.finger[117:121] = 0

    def twitches(e: Told) -> None:
        e.linear[120::19] = [0.05, 0, 0]

    assert int(run(changed(twice_four)).reached.released) == -1
    assert Cause(int(run(changed(twitches)).cause)) == Cause.NOT_SETTLED


def test_success_once_success_and_still_at_end_are_three_things() -> None:
    def touched_again(e: Told) -> None:
        e.finger[-1] = [0.6, 0, 0]

    def moved_again(e: Told) -> None:
        e.linear[-1] = [0.03, 0, 0]

    out = run(changed(slides_out))
    assert bool(out.success_once) and not bool(out.success) and not bool(out.still_at_end)
    for change in (touched_again, moved_again):
        out = run(changed(change))
        assert bool(out.success_once) and bool(out.success) and not bool(out.still_at_end)


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

    def jam_elsewhere_then_drop(e: Told) -> None:
        jam_then_drop(e)
        e.position[44:, 2] += 0.06  # never at the pose before insertion: the force is no jam

    for change, cause in (
        (jam_then_drop, Cause.JAMMED),
        (drop_then_jam, Cause.DROPPED),
        (jam_elsewhere_then_drop, Cause.DROPPED),
    ):
        assert Cause(int(run(changed(change)).cause)) == cause


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
    assert int(out.angle_before_insert_status) == Status.NOT_HELD and np.isnan(out.angle_before_insert_rad)


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
        (changed(unreadable), Status.BAD_SIGNAL),
        (no_rotation(good), Status.BAD_SIGNAL),
        (dataclasses.replace(good, valid=np.zeros(T, bool)), Status.NO_STEPS),
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


@pytest.mark.parametrize("open_at, kept", [(48, False), (200, True)])
def test_a_touch_before_the_acquisition_ends_no_retention(open_at: int, kept: bool) -> None:
    """Shoved along the table against the receptacle, taken up, then let go in the air, or not."""

    def change(e: Told) -> None:
        stops(e)
        e.receptacle[:] = 0
        e.receptacle[3:6] = 0.3
        e.finger[open_at:] = 0

    out = run(changed(change))
    assert int(out.moments.touched) == 3 < int(out.reached.acquired) and bool(s.retained(out)) == kept


def test_nothing_is_carried_that_is_acquired_after_the_insertion_began() -> None:
    def change(e: Told) -> None:
        e.finger[:75] = 0

    out = run(changed(change))
    assert int(out.reached.acquired) == 75 > int(out.moments.insert) and not bool(s.retained(out))


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
        with pytest.raises(ValueError, match=f"stages.{next(iter(bad))} is .*expected"):
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
