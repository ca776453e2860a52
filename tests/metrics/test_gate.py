"""The terminal gate: planted failures close it for the reason they should, and clean runs never do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from jaxeval.metrics.geometric import GATE_OPEN, GATE_SUB_TASK, GATE_SUCCESS, GATE_TERMINAL, GeometricQuality
from jaxeval.types import Episode
from tests.executions import demonstrations, episodes, learned, learned_from, of_tilt, scores, spec, truncated

SUB_TASKS = [s.name for s in spec().sub_tasks]
PLACE, TRANSPORT = SUB_TASKS.index("place"), SUB_TASKS.index("transport")


def released_at(e: Episode) -> int:
    """Frame at which the gripper lets go: first opening after its narrowest."""
    width = e.gripper_width_m
    closed = int(np.argmin(width))
    return closed + int(np.argmax(width[closed:] > width[closed] + 0.003))


def placed_off(e: Episode, metres: float) -> Episode:
    """cubeA lies ``metres`` further along x from the release on."""
    poses = e.poses.copy()
    poses[released_at(e) :, e.bodies.index("cubeA"), 4] += metres
    return dataclasses.replace(e, poses=poses, success_at_end=None)


def stopped(e: Episode, share: float = 0.5) -> Episode:
    return dataclasses.replace(truncated(e, int(share * e.n_frames)), success_at_end=None)


def stalled(e: Episode, share: float = 0.5) -> Episode:
    """The robot stands still from half-way on while the clock runs to the end."""
    at = int(share * e.n_frames)
    frames = np.minimum(np.arange(e.n_frames), at)
    return dataclasses.replace(e, poses=e.poses[frames], gripper_width_m=e.gripper_width_m[frames], success_at_end=None)


def assert_closed(out: GeometricQuality, code: int) -> None:
    assert out.gate_code.tolist() == [code] * len(out.q)
    assert (out.q == 0).all() and not out.gate.any()
    assert (out.gate_free > 0).all() and (out.status == 0).all()


def test_the_open_gate_lets_the_gate_free_quality_through() -> None:
    out = scores(of_tilt(0))
    assert out.gate.all() and (out.gate_code == GATE_OPEN).all() and (out.gate_index == -1).all()
    np.testing.assert_array_equal(out.q, out.gate_free)


@pytest.mark.parametrize("metres", [0.012, -0.012])
def test_an_off_centre_placement_is_found_where_it_lies(metres: float) -> None:
    out = scores([placed_off(e, metres) for e in of_tilt(0)])
    assert_closed(out, GATE_TERMINAL)
    reference = learned()
    pairs = [reference.pairs[i // 6] for i in out.gate_index]
    assert {p.role for p in pairs} <= {"m_r", "m_s"} and {"cubeA"} == {p.a for p in pairs}
    assert (out.gate_index == pairs_index("cubeA", "cubeB") * 6 + out.gate_index % 6).all()
    assert (out.gate_free > 0.5).all()  # without the gate, 12 mm at the very end cost little


def pairs_index(a: str, b: str) -> int:
    return next(j for j, p in enumerate(learned().pairs) if (p.a, p.b) == (a, b))


def test_a_placement_within_what_demonstrations_do_is_let_through() -> None:
    out = scores([placed_off(e, 0.0005) for e in of_tilt(0)])
    assert out.gate.all()


def test_a_run_stopped_half_way_never_reaches_the_place() -> None:
    out = scores([stopped(e) for e in of_tilt(0)])
    assert_closed(out, GATE_SUB_TASK)
    assert set(out.gate_index.tolist()) <= {TRANSPORT, PLACE}
    early = scores([stopped(e, 0.1) for e in of_tilt(0)])
    assert_closed(early, GATE_SUB_TASK)
    assert (early.gate_index == 0).all()


def test_a_run_without_its_last_frames_misses_the_last_sub_task() -> None:
    out = scores([dataclasses.replace(truncated(e, released_at(e) + 2), success_at_end=None) for e in of_tilt(0)])
    assert_closed(out, GATE_SUB_TASK)
    assert (out.gate_index > PLACE).all()


def test_a_stalled_run_does_not_get_there_by_waiting() -> None:
    out = scores([stalled(e) for e in of_tilt(0)])
    assert_closed(out, GATE_SUB_TASK)
    assert set(out.gate_index.tolist()) <= {TRANSPORT, PLACE}


def test_the_success_flag_closes_the_gate_where_there_is_one() -> None:
    runs = of_tilt(0)
    assert_closed(scores([dataclasses.replace(e, success_at_end=False) for e in runs]), GATE_SUCCESS)
    unknown = scores([dataclasses.replace(e, success_at_end=None) for e in runs])
    assert unknown.gate.all()
    np.testing.assert_array_equal(unknown.q, scores(runs).q)
    reference = learned()
    poses_alone = dataclasses.replace(reference, spec=dataclasses.replace(reference.spec, use_success_flag=False))
    out = scores([dataclasses.replace(e, success_at_end=False) for e in runs], poses_alone)
    assert out.gate.all()


def test_the_first_reason_is_told() -> None:
    """Stopped half-way and not successful: the sub-task comes first, then the place, then the flag."""
    runs = of_tilt(0)
    both = scores([dataclasses.replace(stopped(e), success_at_end=False) for e in runs])
    assert (both.gate_code == GATE_SUB_TASK).all()
    both = scores([dataclasses.replace(placed_off(e, 0.012), success_at_end=False) for e in runs])
    assert (both.gate_code == GATE_TERMINAL).all()


def test_the_failed_demonstration_is_not_let_through() -> None:
    (failed,) = [e for e in episodes() if e.success_at_end is False]
    out = scores([dataclasses.replace(failed, success_at_end=None)], length=512)
    assert failed.seed == 30 and not out.gate[0] and out.q[0] == 0


def test_a_held_out_clean_run_is_always_let_through() -> None:
    """Three references, each from two thirds of the demonstrations, judge the third left out.

    tests/experiments does the same with every task that has demonstrations.
    """
    good, _, _ = demonstrations()
    third = np.arange(len(good)) % 3
    quality = []
    for k in range(3):
        reference = learned_from(third != k)
        held_out = [e for e, t in zip(good, third, strict=True) if t == k]
        runs = held_out + of_tilt(0)
        out = scores(runs, reference)
        closed = [(e.episode_id, int(c)) for e, c in zip(runs, out.gate_code, strict=True) if c != GATE_OPEN]
        assert closed == []
        quality += out.q[: len(held_out)].tolist()
    assert np.mean(quality) >= 0.97
