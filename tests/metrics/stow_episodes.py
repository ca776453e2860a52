"""Episodes of a grasp, a turn and an insertion, built by hand: a perfect one, and one change for each way to end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np
from scipy.spatial.transform import Rotation

from jaxeval.metrics import stages as s
from jaxeval.metrics.stages import Cause, StageGeometry, StageParams, StageSignals
from tests.executions import quick_jit

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


def assert_same(a: s.Stages, b: s.Stages) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), atol=2e-6)
