"""Putting recordings in order: rows are sorted, dropped or split, never changed or made, and all of it is listed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxeval.io import InputError
from jaxeval.io.cleaning import CLEANING_FINDINGS, Cleaned, clean, in_order, order_of
from jaxeval.types import Episode
from tests.executions import per_frame, small_episode


def rows(e: Episode, order: list[int] | np.ndarray) -> Episode:
    return per_frame(e, lambda x: x[np.asarray(order)])


def codes(cleaned: Cleaned) -> list[str]:
    return [a.code for a in cleaned.actions]


def test_an_episode_in_order_comes_back_as_it_is() -> None:
    e = small_episode(40)
    assert in_order(e) == Cleaned((e,), ())
    (same,) = clean(e).episodes
    assert clean(e).actions == ()
    np.testing.assert_array_equal(same.poses, e.prepared().poses)


def test_repeated_stamps_keep_the_first_row() -> None:
    e = small_episode(30)
    poses = e.poses.copy()
    poses[7, :, 4] += 0.001
    time_s = e.time_s.copy()
    time_s[[7, 12]] = time_s[[6, 11]]
    poses[12] = poses[11]
    out = in_order(dataclasses.replace(e, poses=poses, time_s=time_s))
    assert codes(out) == ["repeated_stamp"]
    assert "2 rows (7, 12) repeat a stamp, 1 of them with another pose" in out.actions[0].found
    np.testing.assert_array_equal(out.episodes[0].poses, np.delete(poses, [7, 12], axis=0))
    assert out.episodes[0].episode_id == "made up" and out.episodes[0].success_at_end is True


def test_late_rows_are_sorted_in_with_everything_that_belongs_to_them() -> None:
    e = dataclasses.replace(
        small_episode(30), sub_task=np.arange(30, dtype=np.int32), joints=np.arange(60.0).reshape(30, 2)
    )
    order = np.arange(30)
    order[[10, 11]] = order[[11, 10]]
    late = [*order[:20], *range(23, 26), 20, 21, 22, *range(26, 30)]  # three rows late by three
    out = in_order(rows(e, late))
    assert codes(out) == ["late_rows"] and "4 rows (11, 23, 24 and 1 more)" in out.actions[0].found
    (back,) = out.episodes
    for name in ("time_s", "poses", "sub_task", "joints", "gripper_width_m", "valid"):
        np.testing.assert_array_equal(getattr(back, name), getattr(e, name))


def test_a_long_run_of_earlier_stamps_is_a_new_recording() -> None:
    e = small_episode(40)
    six = [*range(20), *range(13, 20), *range(20, 40)]  # 6 rows behind: over LATE_N
    out = in_order(rows(e, six))
    assert codes(out) == ["stamps_step_back"] and "0.3 s at row 20" in out.actions[0].found
    assert [p.n_frames for p in out.episodes] == [20, 27]
    five = [*range(20), *range(14, 20), *range(20, 40)]
    assert codes(in_order(rows(e, five))) == ["late_rows", "repeated_stamp"]
    assert codes(in_order(rows(e, six), late_n=6)) == ["late_rows", "repeated_stamp"]
    swapped_at_the_end = in_order(rows(e, [*range(38), 39, 38]))
    assert codes(swapped_at_the_end) == ["late_rows"] and swapped_at_the_end.episodes[0].success_at_end is True
    assert codes(in_order(rows(e, [*range(40), 3]))) == ["stamps_step_back"]  # far behind: where it belongs is unknown


def test_only_the_last_part_keeps_the_outcome_and_the_first_its_start() -> None:
    e = dataclasses.replace(small_episode(40), seed=3, initial_condition_id="s/seed=3", initial_condition_hash="ab")
    joined = rows(e, [*range(40), *range(20)])
    first, last = in_order(joined).episodes
    assert (first.episode_id, last.episode_id) == ("made up/part=0", "made up/part=1")
    assert (first.success_at_end, first.success_once) == (None, None)
    assert (last.success_at_end, last.success_once) == (True, True)
    assert (first.seed, first.initial_condition_id, first.initial_condition_hash) == (3, "s/seed=3", "ab")
    assert (last.seed, last.initial_condition_id, last.initial_condition_hash) == (None, None, None)
    failed = in_order(dataclasses.replace(joined, success_once=True, success_at_end=False)).episodes
    assert [(p.success_once, p.success_at_end) for p in failed] == [(None, None), (None, False)]
    never = in_order(dataclasses.replace(joined, success_once=False, success_at_end=False)).episodes
    assert [(p.success_once, p.success_at_end) for p in never] == [(False, None), (False, False)]
    unknown = in_order(dataclasses.replace(joined, success_once=None, success_at_end=None)).episodes
    assert [(p.success_once, p.success_at_end) for p in unknown] == [(None, None)] * 2


def test_gaps_split_unless_the_recording_is_slow() -> None:
    e = small_episode(40)
    late = dataclasses.replace(e, time_s=e.time_s + np.where(np.arange(40) >= 25, 12.0, 0.0))
    out = in_order(late)
    assert codes(out) == ["long_gap"] and "12.1 s without a frame after row 24" in out.actions[0].found
    assert [p.n_frames for p in out.episodes] == [25, 15]
    assert in_order(late, gap_s=20.0).actions == ()
    slow = dataclasses.replace(e, time_s=np.arange(40) * 8.0)
    assert in_order(slow).actions == ()


def test_rows_without_a_stamp_are_left_out() -> None:
    e = small_episode(30)
    time_s = e.time_s.copy()
    time_s[[3, 9]] = np.nan, np.inf
    out = in_order(dataclasses.replace(e, time_s=time_s))
    assert codes(out) == ["no_stamp"] and "2 rows (first 3)" in out.actions[0].found
    np.testing.assert_array_equal(out.episodes[0].poses, np.delete(e.poses, [3, 9], axis=0))
    with pytest.raises(InputError, match="none of 30 time stamps is a finite number"):
        in_order(dataclasses.replace(e, time_s=np.full(30, np.nan)))


def test_stamps_in_no_order_are_refused() -> None:
    e = small_episode(200)
    for order in (np.arange(200)[::-1], np.random.default_rng(0).permutation(200)):
        with pytest.raises(InputError, match=r"made up: the time stamps step back \d+ times in 200 rows"):
            in_order(rows(e, order))


def test_clean_lists_what_preparing_changes() -> None:
    e = small_episode(30)
    poses = e.poses.copy()
    poses[5:, 0, :4] *= -1
    poses[9, 1, :4] *= 1.01
    poses[12, 0, :4] = 0
    poses[14, 0, 4] = np.nan
    out = clean(dataclasses.replace(e, poses=poses, time_s=e.time_s + 1.4e9))
    assert sorted(codes(out)) == sorted(
        ["epoch_time", "non_finite_pose", "zero_quaternion", "unnormalised_quaternion", "quaternion_sign"]
    )
    (done,) = out.episodes
    assert np.flatnonzero(~done.valid[:, 0]).tolist() == [12, 14] and done.valid[:, 1].all() and done.time_s[0] == 0
    keep = done.valid
    np.testing.assert_allclose(done.poses[keep], e.poses[keep], atol=1e-12)
    assert {a.severity for a in out.actions} <= {"info", "warning"}


def test_the_work_grows_with_the_rows_alone() -> None:
    n = 100_000
    stamps = np.arange(n)
    stamps[1::2] -= 3  # half the rows late
    order = order_of(stamps, where="x")
    assert len(order.recordings) == 1 and len(order.late) > n // 3
    with pytest.raises(InputError):
        order_of(stamps[::-1], where="x")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=30, max_size=60), st.integers(0, 4))
def test_no_row_vanishes_and_none_is_made(steps: list[int], turns: int) -> None:
    """Every row is in one part, or listed as a repeat; parts have increasing stamps."""
    rng = np.random.default_rng(len(steps) + turns)
    stamps = np.cumsum(steps) * 0.05
    for at in rng.integers(0, len(steps), turns):
        stamps[at:] -= rng.uniform(0, 2)
    e = rows(small_episode(60), np.arange(len(steps)))
    e = dataclasses.replace(e, time_s=stamps, sub_task=np.arange(len(steps), dtype=np.int32))
    try:
        out = in_order(e, gap_s=0.5)
    except InputError:
        return
    kept = np.concatenate([p.sub_task for p in out.episodes])
    assert len(set(kept)) == len(kept)
    repeated = sum(int(a.found.split()[0]) for a in out.actions if a.code == "repeated_stamp")
    assert len(kept) + repeated == len(steps)
    for part in out.episodes:
        assert (np.diff(part.time_s) > 0).all()
        np.testing.assert_array_equal(part.poses, e.poses[part.sub_task])
    assert {a.code for a in out.actions} <= set(CLEANING_FINDINGS)
