"""Phases of a task and when they are: what the execution speed r changes, and all that it changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

CONTROL_HZ = 50
"""Control steps a second."""
SLACK = 1e-3
"""Of a control step: a phase that begins within this of a step begins with it, in float32 as in float64."""


@dataclass(frozen=True)
class Phase:
    """``seconds`` at nominal speed; at speed r it lasts ``seconds / r`` if ``scaled``, else as long."""

    name: str
    seconds: float
    scaled: bool


@dataclass(frozen=True)
class Schedule:
    """Phases one after another. Control step n is the time n / CONTROL_HZ after reset.

    Methods take NumPy or JAX arrays, any broadcasting shapes, and give arrays of the same library; ``speed`` is r > 0.
    """

    phases: tuple[Phase, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the phases, in order."""
        return tuple(p.name for p in self.phases)

    def index(self, name: str) -> int:
        """Of the phase with that name."""
        return self.names.index(name)

    def durations(self, speed: Any) -> Any:
        """Of each phase in control steps (not rounded), ``[..., P]``."""
        speed = _last_axis(speed)
        nominal = CONTROL_HZ * np.array([p.seconds for p in self.phases])
        scaled = np.array([p.scaled for p in self.phases])
        return _row(nominal * ~scaled, speed) + _row(nominal * scaled, speed) / speed

    def steps(self, speed: Any) -> Any:
        """Control steps of an episode, rounded up to whole ones: 705 for ParcelStow at r = 1, 489 at 2.25."""
        return -((-(self.durations(speed).sum(-1) - SLACK)) // 1)

    def at(self, step: Any, speed: Any) -> tuple[Any, Any]:
        """Phase index and the fraction of it that has passed, 0 to 1, at a control step; past the end P - 1 and 1."""
        durations = self.durations(speed)
        ends = durations.cumsum(-1)
        step = _last_axis(step)
        passed = (step >= ends - SLACK)[..., :-1]
        index = passed.sum(-1)
        now = index[..., None] == _row(np.arange(len(self.phases)), index[..., None])
        fraction = (now * ((step - ends) / durations + 1)).sum(-1)
        return index, fraction.clip(0.0, 1.0)


def _last_axis(x: Any) -> Any:
    return (x if hasattr(x, "shape") else np.asarray(x, float))[..., None]


def _row(values: np.ndarray, like: Any) -> np.ndarray:
    """Values along the last of as many axes as ``like`` has."""
    return values.reshape((1,) * (like.ndim - 1) + (-1,))
