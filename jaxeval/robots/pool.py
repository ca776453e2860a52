"""Frozen pools of configurations that give a manipulability cost its scale: shipped, versioned, never changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from jaxeval.metrics.kinematic import CostPool
from jaxeval.robots.load import data_folder
from jaxeval.types import InputError


def load_pool(name: str) -> CostPool:
    """A pool that comes with the package, such as ``panda_uniform_v1``; InputError lists those there are.

    >>> pool = load_pool("panda_uniform_v1")
    >>> round(float(pool.p10), 2), round(float(pool.p90), 2)
    (6.57, 32.48)
    """
    path = data_folder("pools") / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in data_folder("pools").glob("*.json")))
        raise InputError(
            f"pool '{name}': none of that name comes with the package; expected one of {known}; "
            "or make one with CostPool(p10=..., p90=..., name=...)"
        )
    return pool_of(path)


def pool_of(path: Path) -> CostPool:
    """The pool in a file."""
    percentiles = json.loads(path.read_text("utf-8"))["cost_percentiles"]
    return CostPool(p10=np.float64(percentiles["10"]), p90=np.float64(percentiles["90"]), name=path.stem)  # type: ignore[arg-type]
