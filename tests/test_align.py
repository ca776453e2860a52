"""From frames to stages: each predicate holds exactly where it should, sub-tasks are latched, bins are as by hand."""

from __future__ import annotations

import dataclasses
import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval import align
from jaxeval.types import Predicate, SubTask, TaskSpec
from tests.executions import axis_turn, multiply, plain_bodies, quick_jit

BODIES = ("cube", "bin", "tcp", "table")
DT = 0.1


@cache
def task(*predicates: Predicate | tuple[Predicate, ...]) -> TaskSpec:
    """A task whose sub-tasks end with these predicates."""
    until = [p if isinstance(p, tuple) else (p,) for p in predicates]
    return TaskSpec(
        name="t",
        bodies=plain_bodies(*BODIES),
        sub_tasks=tuple(SubTask(f"s{k}", u) for k, u in enumerate(until)),
    )


@partial(jax.jit, static_argnames=("spec", "bodies", "bins_n", "joint_names"))
def aligned(poses, time_s, valid, width, durations, joints, *, spec, bodies, bins_n, joint_names=()):
    return align.align_episode(
        *(poses, time_s, valid, width),
        spec=spec,
        bodies=bodies,
        bins_n=bins_n,
        mean_duration_s=durations,
        joints=joints,
        joint_names=joint_names,
    )


@dataclasses.dataclass
class Track:
    """A made-up execution of which a test sets what matters: x [T, 3] by body, gripper width, joint."""

    n: int = 24
    dt: float = DT
    at: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    width: np.ndarray | float = 0.08
    valid: np.ndarray | None = None
    joint: np.ndarray | float = 0.0
    turn: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def t(self) -> np.ndarray:
        return np.arange(self.n) * self.dt

    def poses(self) -> np.ndarray:
        out = np.zeros((self.n, len(BODIES), 7))
        out[..., 0] = 1
        for name, x in self.at.items():
            out[:, BODIES.index(name), 4:] = x
        for name, q in self.turn.items():
            out[:, BODIES.index(name), :4] = q
        return out

    def run(self, *predicates, bins_n=4, durations=None, bodies=BODIES, poses=None) -> align.Alignment:
        poses = self.poses() if poses is None else poses
        columns = [BODIES.index(b) for b in bodies]
        valid = np.ones(self.n, bool) if self.valid is None else self.valid
        width, joint = np.broadcast_to(self.width, self.n), np.broadcast_to(self.joint, self.n)
        spec = task(*predicates)
        durations = None if durations is None else jnp.asarray(durations, jnp.float32)
        arrays = (jnp.asarray(x, jnp.float32) for x in (poses[:, columns], self.t))
        width, joints = jnp.asarray(width, jnp.float32), jnp.asarray(joint, jnp.float32)[:, None]
        out = aligned(
            *(*arrays, jnp.asarray(valid), width, durations, joints),
            spec=spec,
            bodies=bodies,
            bins_n=bins_n,
            joint_names=("drawer",),
        )
        return jax.tree.map(np.asarray, out)


def along(axis: str, values: np.ndarray) -> np.ndarray:
    return np.outer(values, np.eye(3)["xyz".index(axis)])


def scenes(f: float) -> dict[str, tuple[Track, Predicate, float]]:
    """Per predicate: a track sampled ``f`` times as often, the predicate, and the second at which it begins to hold."""
    n, dt = round(23 * f) + 1, DT / f
    t = np.arange(n) * dt
    late = np.maximum(t - 1.0, 0.0)  # still for a second, then off
    up, out = along("z", 0.1 * late), along("x", 0.1 * late)

    def track(**kwargs) -> Track:
        return Track(n=n, dt=dt, **kwargs)

    return {
        "gripper_closing": (track(width=0.08 - 0.02 * late), Predicate("gripper_closing", value=0.003), 1.15),
        # narrows at 0.02 m/s until 2 s, then rests: over the last 0.2 s, 1 mm at 2.15 s
        "gripper_closed": (
            track(width=0.08 - 0.02 * np.minimum(late, 1.0)),
            Predicate("gripper_closed", value=0.001, window_s=0.2),
            2.15,
        ),
        "gripper_opening": (track(width=0.02 + 0.02 * late), Predicate("gripper_opening", value=0.003), 1.15),
        "gripper_open": (track(width=0.02 + 0.02 * late), Predicate("gripper_open", value=0.025), 1.25),
        "lifted": (track(at={"cube": up + np.array([0, 0, 0.5])}), Predicate("lifted", "cube", value=0.025), 1.25),
        # 0.1 m from the point (0.1, 0, 0) of the bin at the start, 0.1 m/s nearer from 1 s on
        "near": (
            track(at={"cube": out, "bin": np.zeros(3)}),
            Predicate("near", "cube", "bin", value=0.055, offset_m=(0.1, 0.0, 0.0)),
            1.45,
        ),
        "away": (track(at={"cube": out}), Predicate("away", "cube", "bin", value=0.045), 1.45),
        # both move off at 1 s, 0.1 m/s: the gripper has moved 15 mm in the last 0.4 s at 1.15 s
        "held": (
            track(at={"cube": out, "tcp": out + np.array([0, 0, 0.1])}),
            Predicate("held", "cube", value=0.015, window_s=0.4),
            1.15,
        ),
        "released": (track(at={"tcp": up}), Predicate("released", "cube", value=0.015, window_s=0.4), 1.15),
        "moving": (track(at={"cube": out + np.array([0.3, 0.2, 0])}), Predicate("moving", "cube", value=0.025), 1.25),
        # on the move at 0.1 m/s until 1 s: 15 mm in the last 0.3 s at 1.15 s
        "at_rest": (
            track(at={"cube": along("x", 0.1 * np.minimum(t, 1.0))}),
            Predicate("at_rest", "cube", value=0.015, window_s=0.3),
            1.15,
        ),
        # from 0.1 rad at 0.2 rad/s from 1 s on: 0.475 of the way to 0.5 rad at 1.95 s
        "joint_past": (
            track(joint=0.1 + 0.2 * late),
            Predicate("joint_past", "drawer", value=0.475, offset_m=(0.1, 0.5, 0.0)),
            1.95,
        ),
    }


def test_every_predicate_has_a_scene() -> None:
    assert set(scenes(1.0)) == set(align.PREDICATES)
    assert all((f.__doc__ or "").strip() for f in align.PREDICATES.values())


@pytest.mark.parametrize("kind", align.PREDICATES)
def test_a_predicate_first_holds_when_it_should(kind: str) -> None:
    track, predicate, expected_s = scenes(1.0)[kind]
    a = track.run(predicate)
    assert a.reached.tolist() == [True]
    assert a.ends[0] == math.ceil(expected_s / DT)  # the first frame at which it holds
    assert a.ended_s[0] == pytest.approx(expected_s, abs=1e-4)  # the boundary lies between two frames
    if kind == "near":
        unmet = dataclasses.replace(predicate, offset_m=(0.1, 0.06, 0.0))
    else:
        unmet = dataclasses.replace(predicate, value=predicate.value * 1e3)
    if kind not in ("gripper_closed", "at_rest"):  # the two that hold below their value
        assert not track.run(unmet).reached[0]


@pytest.mark.parametrize("kind", align.PREDICATES)
def test_thresholds_are_metres_and_seconds_not_frames(kind: str) -> None:
    _, _, expected_s = scenes(1.0)[kind]
    track, predicate, _ = scenes(2.0)[kind]
    a = track.run(predicate)
    assert a.reached[0] and a.ended_s[0] == pytest.approx(expected_s, abs=1e-3)


def test_lifted_and_near_are_measured_in_the_other_bodys_frame() -> None:
    """The whole scene upside down and elsewhere: the table's z axis is up, wherever it points."""
    world = np.array([[*axis_turn([1, 0.2, 0], 3.0), 5.0, -3.0, 2.0]])
    for kind in ("lifted", "near", "away", "held", "released", "moving", "at_rest"):
        track, predicate, expected_s = scenes(1.0)[kind]
        poses = multiply(np.broadcast_to(world, (track.n, len(BODIES), 7)), track.poses())
        assert track.run(predicate, poses=poses).ends[0] == math.ceil(expected_s / DT)


def test_axes_choose_what_counts_as_near() -> None:
    above = Track(at={"cube": along("z", np.linspace(0.5, 0.3, 24)) + along("x", np.linspace(0.12, 0.005, 24))})
    flat = Predicate("near", "cube", "bin", value=0.0501, axes="xy")
    assert above.run(flat).ends[0] == 14  # 0.12 - 14 * 0.005 = 0.05
    assert not above.run(dataclasses.replace(flat, axes="xyz")).reached[0]
    assert not above.run(dataclasses.replace(flat, axes="z")).reached[0]


def test_a_body_carried_along_is_held_and_one_left_behind_is_not() -> None:
    carried, predicate, _ = scenes(1.0)["held"]
    left = dataclasses.replace(carried, at={**carried.at, "cube": np.zeros(3)})
    assert not left.run(predicate).reached[0]
    still = dataclasses.replace(carried, at={"cube": np.zeros(3), "tcp": np.zeros(3)})
    assert not still.run(predicate).reached[0]  # a gripper at rest holds nothing
    # turned about the gripper, the cube stays where it is in the gripper's frame
    t = carried.t
    q = axis_turn([0, 0, 1], 0.5 * t)
    arm = np.stack([np.cos(0.5 * t), np.sin(0.5 * t), 0 * t], axis=1) * 0.1
    swung = Track(at={"tcp": along("y", 0.1 * t), "cube": along("y", 0.1 * t) + arm}, turn={"tcp": q, "cube": q})
    assert swung.run(predicate).reached[0]


# ----------------------------------------------------------------------------------------------- latched, ordered

CLOSE = Predicate("gripper_open", value=0.05)
LIFT = Predicate("lifted", "cube", value=0.05)


def test_sub_tasks_are_ordered_and_latched() -> None:
    n = 24
    width = np.where(np.isin(np.arange(n), [3, 4, 12]), 0.06, 0.01)  # "open" at 3, 4 and once more at 12
    height = np.where(np.arange(n) >= 8, 0.1, 0.0)
    track = Track(width=width, at={"cube": along("z", height)})
    a = track.run(CLOSE, LIFT, CLOSE)
    assert a.ends.tolist() == [3, 8, 12] and a.reached.all()
    # the width crosses 0.05 four fifths of the way from 0.01 to 0.06, the height 0.05 half-way from 0 to 0.1
    assert a.ended_s == pytest.approx([0.28, 0.75, 1.18], abs=1e-5)
    assert a.started_s == pytest.approx([0, 0.28, 0.75], abs=1e-5)
    # a condition that held before its turn does not count: the gripper was open at 3 and 4, but not after the lift
    early = dataclasses.replace(track, width=np.where(np.arange(n) < 8, width, 0.01))
    b = early.run(CLOSE, LIFT, CLOSE)
    assert b.reached.tolist() == [True, True, False] and b.ends.tolist() == [3, 8, n]
    # height is counted from where the sub-task began: lifted already, it must rise by as much again
    c = track.run(LIFT, LIFT)
    assert c.reached.tolist() == [True, False]


def test_all_predicates_of_a_sub_task_hold_at_once() -> None:
    n = 24
    track = Track(
        width=np.where(np.isin(np.arange(n), [3, 10, 11]), 0.06, 0.01),
        at={"cube": along("z", np.where(np.isin(np.arange(n), [4, 5, 11, 12]), 0.1, 0.0))},
    )
    assert track.run((CLOSE, LIFT)).ends.tolist() == [11]


def test_a_sub_task_never_reached_stops_the_rest() -> None:
    track = Track(width=0.01)
    a = track.run(LIFT, Predicate("at_rest", "cube", value=0.01, window_s=0.1))
    assert a.reached.tolist() == [False, False] and a.ends.tolist() == [24, 24]
    assert (a.bins < 4).all()  # no frame gets into the second sub-task


def test_bodies_that_are_not_there_leave_their_predicates_out() -> None:
    track = Track(width=np.where(np.arange(24) >= 5, 0.06, 0.01))
    no_tcp = ("cube", "bin", "table")
    held = Predicate("held", "cube", value=0.01, window_s=0.2)
    assert track.run((CLOSE, held), bodies=no_tcp).ends.tolist() == [5]
    a = track.run(held, CLOSE, bodies=no_tcp)  # nothing is left of the first: it is passed over, without frames
    assert a.reached.tolist() == [True, True] and a.ends.tolist() == [0, 5]
    assert (a.bins >= 4).all() and a.duration_s[0] == 0
    b = track.run(LIFT, held, CLOSE, bodies=no_tcp)  # but not when the one before it is never reached
    assert not b.reached.any() and (b.bins < 4).all()
    spec = task(CLOSE)
    assert align.missing_bodies(held, spec, no_tcp) == ("tcp",)
    assert align.missing_bodies(Predicate("near", "cube", "lid"), spec, no_tcp) == ("lid",)
    assert align.missing_bodies(LIFT, spec, ("cube",)) == ("table",)
    assert align.missing_bodies(dataclasses.replace(LIFT, other="bin"), spec, ("cube", "bin")) == ()
    assert align.missing_bodies(Predicate("joint_past", "drawer"), spec, ()) == ()
    assert align.missing_bodies(CLOSE, spec, ()) == ()


def test_a_gripper_of_unknown_width_meets_nothing() -> None:
    track = Track(width=np.nan)
    for kind in ("gripper_closing", "gripper_closed", "gripper_opening", "gripper_open"):
        assert not track.run(scenes(1.0)[kind][1]).reached[0]


# ---------------------------------------------------------------------------------------------------------- bins


def test_bins_by_hand() -> None:
    """Two sub-tasks of 0.78 s (8 frames) and 0.57 s (6 frames), M = 4; the rest is the last bin."""
    n = 20
    track = Track(
        n=n,
        width=np.where(np.arange(n) >= 8, 0.06, 0.01),
        at={"cube": along("z", np.where(np.arange(n) >= 14, 0.1, 0.0))},
    )
    a = track.run(CLOSE, LIFT)
    assert a.ends.tolist() == [8, 14]
    first = [0, 0, 1, 1, 2, 2, 3, 3]
    second = [4, 4, 5, 6, 6, 7]  # elapsed 0.02, 0.12, ... 0.52 s of 0.57 s, times 4: 0.1, 0.8, 1.5, 2.2, 2.9, 3.6
    assert a.bins.tolist() == first + second + [7] * 6
    assert a.duration_s == pytest.approx([0.78, 0.57], abs=1e-5)
    one = track.run(CLOSE, LIFT, bins_n=1)
    assert one.bins.tolist() == [0] * 8 + [1] * 12


def test_progress_is_elapsed_time_not_the_count_of_frames() -> None:
    track = Track(n=12, width=np.where(np.arange(12) >= 9, 0.06, 0.01))
    poses, valid = track.poses(), jnp.ones(12, bool)
    time_s = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 2.5, 4.0, 4.1, 4.2])
    a = aligned(
        *(jnp.asarray(x, jnp.float32) for x in (poses, time_s)),
        valid,
        jnp.asarray(track.width, jnp.float32),
        None,
        jnp.zeros((12, 0)),
        spec=task(CLOSE),
        bodies=BODIES,
        bins_n=4,
    )
    assert a.bins.tolist() == [0] * 8 + [2, 3, 3, 3]


def test_an_unfinished_sub_task_goes_by_the_demonstrations_clock_and_is_capped() -> None:
    track = Track(n=20, width=np.where(np.arange(20) == 4, 0.06, 0.01))
    a = track.run(CLOSE, LIFT, durations=[9.0, 0.8])  # the first is finished: its own 0.4 s count, not 9 s
    assert a.reached.tolist() == [True, False]
    assert a.bins.tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7] + [7] * 8
    own = track.run(CLOSE, LIFT)  # without demonstrations: over the time there is, 1.5 s
    assert own.bins[4:].tolist() == [4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7]


def test_a_lost_frame_at_the_boundary_does_not_move_it() -> None:
    track, predicate, expected_s = scenes(1.0)["lifted"]
    lost = np.arange(track.n) == math.ceil(expected_s / DT) - 1
    poses = track.poses()
    poses[lost] = poses[np.flatnonzero(lost)[0] - 1]  # as prepared: it repeats the one before
    a = dataclasses.replace(track, valid=~lost).run(predicate, poses=poses)
    assert a.ended_s[0] == pytest.approx(expected_s, abs=1e-4)


def test_invalid_frames_have_no_bin_and_end_nothing() -> None:
    n = 20
    valid = ~np.isin(np.arange(n), [0, 1, 8, 15])
    track = Track(n=n, width=np.where(np.arange(n) >= 8, 0.06, 0.01), valid=valid)
    a = track.run(CLOSE)
    assert a.ends.tolist() == [9] and a.started_s[0] == pytest.approx(0.2)  # frame 8 opens, but is not valid
    assert (a.bins[~valid] == -1).all() and (a.bins[valid] >= 0).all()
    none = dataclasses.replace(track, valid=np.zeros(n, bool)).run(CLOSE, LIFT)
    assert not none.reached.any() and (none.bins == -1).all()


@pytest.mark.parametrize("kind", align.PREDICATES)
def test_padding_changes_nothing(kind: str) -> None:
    track, predicate, _ = scenes(1.0)[kind]
    a = track.run(predicate, CLOSE)
    more = np.minimum(np.arange(track.n + 50), track.n - 1)

    def pad(x: np.ndarray | float) -> np.ndarray:
        return np.broadcast_to(x, track.n)[more]

    longer = dataclasses.replace(
        track, n=track.n + 50, width=pad(track.width), joint=pad(track.joint), valid=np.arange(track.n + 50) < track.n
    )
    spec, poses = task(predicate, CLOSE), track.poses()[more]
    arrays = (jnp.asarray(x, jnp.float32) for x in (poses, track.t[more]))
    b = aligned(
        *(*arrays, jnp.asarray(longer.valid), jnp.asarray(longer.width, jnp.float32), None),
        jnp.asarray(longer.joint, jnp.float32)[:, None],
        spec=spec,
        bodies=BODIES,
        bins_n=4,
        joint_names=("drawer",),
    )
    assert a.reached.tolist() == b.reached.tolist()
    assert a.ends[a.reached].tolist() == b.ends[a.reached].tolist()
    np.testing.assert_array_equal(a.bins, b.bins[: track.n])
    assert (np.asarray(b.bins[track.n :]) == -1).all()
    np.testing.assert_allclose(a.duration_s, b.duration_s, atol=1e-6)


# ------------------------------------------------------------------------------------------------- representatives


def test_empty_bins_lie_on_the_geodesic_and_are_not_seen() -> None:
    """M = 4; sub-task 0 has frames in bins 0 and 3 only, sub-task 1 in bin 6 only, sub-task 2 in none."""
    bins = jnp.asarray([0, 0, 3, 3, 6, -1])
    angle = np.radians([-2.0, 2.0, 88.0, 92.0, 45.0, 170.0])
    track = np.concatenate([axis_turn([0, 0, 1], angle), np.stack([angle, 0 * angle, 0 * angle], 1)], 1)
    track[:, 4:] = [[0, 0, 0], [0, 0, 0], [0, 0, 0.3], [0, 0, 0.3], [1, 2, 3], [9, 9, 9]]
    fill = quick_jit(partial(align.bin_poses, sub_tasks_n=3, bins_n=4))
    poses, seen, converged = fill(jnp.asarray(track[None], jnp.float32), bins)
    assert seen[0].tolist() == [True, False, False, True] + [False, False, True, False] + [False] * 4
    assert converged.all()
    yaw = 2 * np.degrees(np.arctan2(poses[0, :4, 3], poses[0, :4, 0]))
    np.testing.assert_allclose(yaw, [0, 30, 60, 90], atol=1e-3)
    np.testing.assert_allclose(poses[0, :4, 6], [0, 0.1, 0.2, 0.3], atol=1e-6)
    np.testing.assert_allclose(poses[0, 4:8, 4:], np.tile([1.0, 2, 3], (4, 1)), atol=1e-6)  # the one bin there is
    np.testing.assert_array_equal(poses[0, 8:], np.tile([1.0, 0, 0, 0, 0, 0, 0], (4, 1)))


def test_relative_tracks_are_a_in_the_frame_of_b() -> None:
    track = Track(n=3, at={"bin": np.array([1.0, 0, 0])}, turn={"bin": axis_turn([0, 0, 1], np.pi / 2)})
    track.at["cube"] = np.array([1.0, 0.2, 0])
    out = jax.jit(lambda p: align.relative_tracks(p, ((0, 1), (1, 0))))(jnp.asarray(track.poses(), jnp.float32))
    assert out.shape == (2, 3, 7)
    np.testing.assert_allclose(out[0, 0, 4:], [0.2, 0, 0], atol=1e-6)  # 0.2 m along the bin's own x axis
    np.testing.assert_allclose(out[1, 0, 4:], [0, -0.2, 0], atol=1e-6)
