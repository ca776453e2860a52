"""Change-points of made-up demonstrations whose events are known; of bundled ones against hand-written specs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from jaxeval.io import bundled
from jaxeval.io.poses import position_in, turned
from jaxeval.io.spec import load_spec
from jaxeval.run.propose import _segmented
from jaxeval.segment.change_points import (
    ChangePointParams,
    ChangePoints,
    change_points,
    rigid_frames,
)
from jaxeval.segment.proposed_spec import propose_spec
from jaxeval.types import Episode, InputError, Shape

FPS = 20.0


class Story:
    """A demonstration told move by move; `at[name]` is the second at which something happened."""

    def __init__(self, width: float | None, **places: Sequence[float]) -> None:
        self.places = {name: np.array(place, float) for name, place in places.items()}
        self.rows: dict[str, list[np.ndarray]] = {name: [] for name in places}
        self.width, self.widths = width, []
        self.at: dict[str, float] = {}

    @property
    def now(self) -> float:
        return len(self.widths) / FPS

    def _frame(self) -> None:
        for name, place in self.places.items():
            self.rows[name].append(place.copy())
        self.widths.append(np.nan if self.width is None else self.width)

    def rest(self, seconds: float) -> None:
        for _ in range(round(seconds * FPS)):
            self._frame()

    def move(
        self, to: np.ndarray, by: Sequence[float] = (0, 0, 0), *others: str, seconds: float, mark: str = ""
    ) -> None:
        """The gripper along a minimum-jerk line to a place, or beside it, carrying others with it."""
        start = {name: self.places[name].copy() for name in ("tcp", *others)}
        way = to + np.array(by) - start["tcp"]
        for i in range(round(seconds * FPS)):
            s = (i + 1) / round(seconds * FPS)
            for name, place in start.items():
                self.places[name] = place + way * (10 * s**3 - 15 * s**4 + 6 * s**5)
            self._frame()
        self.at[mark] = self.now

    def grip(self, width: float) -> None:
        start = self.width
        assert start is not None
        for s in (0.33, 0.67, 1.0):
            self.width = start + (width - start) * s
            self._frame()

    def episode(self, k: int) -> Episode:
        n = len(self.widths)
        poses = np.zeros((n, len(self.rows), 7))
        poses[..., 0] = 1
        for b, rows in enumerate(self.rows.values()):
            poses[:, b, 4:] = rows
        width = None if self.width is None else np.array(self.widths)
        return Episode.of(
            poses=poses,
            time_s=np.arange(n) / FPS,
            valid=np.ones(n, bool),
            gripper_width_m=width,
            bodies=tuple(self.rows),
            episode_id=str(k),
        )


def carried(k: int) -> tuple[Episode, dict[str, float]]:
    """A block is taken over a way-point, which lies anywhere, to above a tray, let down and let go."""
    rng = np.random.default_rng(k)
    block, tray = np.append(rng.uniform(-0.2, 0.2, 2), 0.02), np.append(rng.uniform(0.3, 0.5, 2), 0.0)
    s = Story(0.08, tcp=[0, 0, 0.4], block=block, tray=tray, table=[0, 0, -0.4])
    s.move(block, [0, 0, 0.1], seconds=rng.uniform(1.0, 1.6), mark="above")
    s.move(block, seconds=0.8)
    s.at["closing"] = s.now
    s.grip(0.04)
    s.rest(0.4)
    s.at["starts"] = s.now
    s.move(np.append(rng.uniform(-0.2, 0.3, 2), rng.uniform(0.2, 0.4)), [0, 0, 0], "block", seconds=rng.uniform(1, 1.5))
    s.move(tray, [0, 0, 0.12], "block", seconds=rng.uniform(1, 1.5), mark="over")
    s.move(tray, [0, 0, 0.03], "block", seconds=0.8)
    s.at["opening"] = s.now
    s.grip(0.08)
    s.rest(0.3)
    s.move(tray, [*rng.uniform(-0.1, 0.1, 2), 0.25], seconds=1.0, mark="end")
    s.rest(0.5)
    return s.episode(k), s.at


def pushed(k: int) -> tuple[Episode, dict[str, float]]:
    """A drawer of a cabinet that stands anywhere is pushed in by a gripper that stays shut."""
    rng = np.random.default_rng(k)
    cabinet = np.append(rng.uniform(0.4, 0.6, 2), 0.2)
    drawer = cabinet - [rng.uniform(0.15, 0.25), 0, 0]
    s = Story(0.0, tcp=[0, 0, 0.5], drawer=drawer, cabinet=cabinet, table=[0, 0, -0.4])
    s.move(drawer, [-0.1, 0, 0], seconds=rng.uniform(1.2, 1.8), mark="before")
    s.move(drawer, [-0.02, 0, 0], seconds=0.8)
    s.at["starts"] = s.now
    s.move(cabinet, [-0.07, 0, 0], "drawer", seconds=rng.uniform(1.2, 1.6), mark="shut")
    s.rest(0.4)
    s.move(cabinet, [-rng.uniform(0.2, 0.3), 0, 0], seconds=1.0, mark="end")
    s.rest(0.5)
    return s.episode(k), s.at


def seconds_off(found: ChangePoints, told: Sequence[tuple[Episode, dict[str, float]]], marks: list[str]) -> float:
    """Largest distance of any change-point from its mark."""
    times = np.stack([e.time_s[row] for (e, _), row in zip(told, found.frames, strict=True)])
    return float(np.abs(times - np.array([[at[m] for m in marks] for _, at in told])).max())


def test_a_carried_block_and_no_way_point() -> None:
    told = [carried(k) for k in range(10)]
    found = change_points([e for e, _ in told])
    assert [c.name for c in found.points] == [
        "tcp_at_block",
        "closing",
        "block_starts",
        "block_at_tray",
        "opening",
        "end",
    ]
    assert found.complete.all() and found.points[3].axes == "xyz" and not found.notes
    assert seconds_off(found, told, ["above", "closing", "starts", "over", "opening", "end"]) <= 0.25


def test_a_pushed_drawer_and_a_shut_gripper() -> None:
    told = [pushed(k) for k in range(10)]
    found = change_points([e for e, _ in told])
    assert [c.name for c in found.points] == ["tcp_at_drawer", "drawer_starts", "drawer_stops", "end"]
    assert seconds_off(found, told, ["before", "starts", "shut", "end"]) <= 0.25
    made = propose_spec([e for e, _ in told], name="shut", shapes={"drawer": Shape("box", (0.2, 0.2, 0.1))})
    assert made.complete_n == 10 and (made.error_s < 0.25).all()
    assert made.spec.body("drawer").shape.size_m == (0.2, 0.2, 0.1)
    assert any("table" in note and "drawer" not in note for note in made.notes if "guessed" in note)


def test_other_world_other_order_other_rate_and_lost_frames() -> None:
    episodes = [carried(k)[0] for k in range(10)]
    before = change_points(episodes)
    turn, shift = np.array([np.cos(0.6), 0.0, 0.0, np.sin(0.6)]), np.array([0.3, -2.0, 0.5])

    def elsewhere(e: Episode) -> Episode:
        poses = e.poses.copy()
        poses[..., 4:] = turned(turn, poses[..., 4:]) + shift
        poses[..., :4] = turn  # the bodies stood straight
        return dataclasses.replace(e, poses=poses)

    moved = change_points([elsewhere(e) for e in episodes])
    assert moved.points == before.points
    np.testing.assert_array_equal(moved.frames, before.frames)

    order = np.random.default_rng(0).permutation(10)
    shuffled = change_points([episodes[k] for k in order])
    assert shuffled.points == before.points
    np.testing.assert_array_equal(shuffled.frames, before.frames[order])

    halved = [dataclasses.replace(e, frame_valid=np.arange(e.n_frames) % 2 == 0) for e in episodes]  # 10 Hz
    slow = change_points(halved)
    assert slow.points == before.points
    assert np.abs(slow.frames - before.frames).max() <= 5
    assert all(e.frame_valid[row].all() for e, row in zip(halved, slow.frames, strict=True))


def test_an_event_of_some_demonstrations_is_not_common_and_said_so() -> None:
    def twice(e: Episode) -> Episode:
        """The gripper also closes at the very end."""
        assert e.gripper_width_m is not None
        width = e.gripper_width_m.copy()
        width[-4:] = 0.02
        return dataclasses.replace(e, gripper_width_m=width)

    episodes = [carried(k)[0] for k in range(10)]
    found = change_points([twice(e) if k < 4 else e for k, e in enumerate(episodes)])
    assert found.points == change_points(episodes).points
    assert any("closing" in note and "40%" in note for note in found.notes)


def test_starts_that_never_vary_are_said() -> None:
    episode = carried(0)[0]
    assert "varied starts" in " ".join(change_points([episode] * 4).notes)


def test_position_in_a_turned_frame() -> None:
    half = np.sqrt(0.5)  # b is turned by 90 degrees about z: its x axis points along the world's y
    a, b = np.array([1.0, 0, 0, 0, 1, 3, 0]), np.array([half, 0, 0, half, 1, 1, 0])
    np.testing.assert_allclose(position_in(a, b), [2, 0, 0], atol=1e-12)


def test_bad_input_is_one_sentence() -> None:
    episodes = [carried(k)[0] for k in range(2)]
    with pytest.raises(InputError, match="at least 2"):
        change_points(episodes[:1])
    with pytest.raises(InputError, match="no body 'hand'"):
        change_points(episodes, gripper="hand")
    with pytest.raises(InputError, match="no body 'floor'"):
        propose_spec(episodes, name="x", support="floor")
    with pytest.raises(ValueError, match="merge_s"):
        change_points(episodes, params=ChangePointParams(merge_s=0.0))
    still = [
        dataclasses.replace(e, poses=np.repeat(e.poses[:1], e.n_frames, 0), gripper_width_m=None) for e in episodes
    ]
    with pytest.raises(InputError, match="no change-point"):
        propose_spec(still, name="x")


@pytest.mark.parametrize(("task", "recovery"), [("stack_cube", 0.95), ("peg_insertion_side", 0.75)])
def test_recovers_the_boundaries_of_hand_written_specs(task: str, recovery: float) -> None:
    """Within 10 frames, with at most 1.5 times as many change-points; the start of an insertion is missed."""
    episodes = [e.prepared() for e in bundled(f"{task}_demos").read()[:12] if e.success_at_end is not False]
    found = change_points(episodes)
    by_hand, reached = _segmented(episodes, load_spec(task))
    assert reached.all() and len(found.points) <= 1.5 * by_hand.shape[1]
    apart = np.abs(by_hand[:, :, None] - np.where(found.frames < 0, -1000, found.frames)[:, None])  # [K, P, found]
    assert (apart.min(axis=2) <= 10).mean() >= recovery
    assert (apart.min(axis=1) > 10)[found.frames >= 0].mean() <= 0.2
    if task == "peg_insertion_side":
        assert rigid_frames(episodes) == {"peg_head": "peg"}
