"""Episodes of a MuJoCo task for the scripts beside this one: rolled out where they are not there yet, then judged."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.source import open_source
from jaxeval.run.rollout import rollout
from jaxeval.run.score import score
from jaxeval.stats.proportions import wilson


class Runs:
    """Columns of `jaxeval score metrics=[stages,grasp]` of one store, as arrays; NaN and None where unknown."""

    def __init__(self, store: Path) -> None:
        columns = score(None, open_source(store), metrics=["stages", "grasp"]).columns
        self.columns = {name: np.array(values, dtype=_kind(values)) for name, values in columns.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def at(self, speed: float) -> np.ndarray:
        """Rows of a speed."""
        return np.flatnonzero(self["speed"] == speed)

    def successes(self, speed: float) -> tuple[int, int]:
        """Successes and episodes at a speed."""
        rows = self.at(speed)
        return int(sum(self["success_at_end"][k] is True for k in rows)), len(rows)

    def quantile(self, name: str, speed: float, at: float = 0.5, times: float = 1.0) -> tuple[float, int]:
        """Quantile over the episodes of a speed that have the quantity, and how many those are."""
        values = self[name][self.at(speed)].astype(float)
        values = values[np.isfinite(values)]
        return (float(np.quantile(values, at) * times) if len(values) else float("nan")), len(values)


def _kind(values: list[Any]) -> Any:
    number = all(v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in values)
    return float if number else object


def rolled_out(
    data: str | Path, task: str, embodiment: str, speeds: Sequence[float], *, episodes: int, seed: int, **more: Any
) -> Runs:
    """The expert's episodes at these speeds, keys of ``seed``; those that the store under ``data`` lacks are run.

    Episodes of a speed that the store holds beyond ``episodes`` count too.
    """
    store = Path(data) / f"{task}_{embodiment}_seed{seed}"
    rollout(
        task, store, embodiment=embodiment, speed=speeds, episodes=episodes, seed=seed,
        progress=sys.stderr.isatty(), **more,
    )  # fmt: skip
    return Runs(store)


def interval(k: int, n: int) -> tuple[float, float]:
    """Wilson's, 95 %."""
    rate = wilson(k, n)
    return float(rate.low), float(rate.high)
