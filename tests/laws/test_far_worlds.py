"""Where the world's origin lies and when its clock began is nobody's business: no metric, and no Q, knows of either.

Recordings are moved by 1 km to 1000 km and by the 1.7e9 s since 1970, in float64, and measured by every path by which
poses reach a metric: from memory, from a store in float64, from a store in float32.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxeval.io import bundled, write_store
from jaxeval.io.in_memory import source_of
from jaxeval.io.source import Source, open_source
from jaxeval.io.spec import load_spec
from jaxeval.metrics.registry import metric_named
from jaxeval.run.fit import fit
from jaxeval.run.score import score
from jaxeval.types import NEAR_M, Episode, Reference, near_origin

EPOCH_S = 1.7e9
BASE = np.array([1.0, 0, 0, 0, -0.615, 0, 0])
"""Of the arm in the recordings."""


def moved(e: Episode, by_m: float, start_s: float = EPOCH_S) -> Episode:
    poses = e.poses.copy()
    poses[..., 4:] += offset(by_m)
    return dataclasses.replace(e, poses=poses, time_s=e.time_s + start_s, joints=None)


def offset(by_m: float) -> np.ndarray:
    return by_m * np.array([1.0, -0.77, 0.031])


@pytest.fixture(scope="module")
def runs() -> list[Episode]:
    some = [e.with_bodies(("cubeA", "cubeB", "table", "tcp")) for e in bundled("stack_cube_tilt").read()[::13]]
    seen = [np.concatenate([e.poses, e.poses[:, :1] + np.array([0, 0, 0, 0, 0.004, 0, 0])], axis=1) for e in some]
    return [
        dataclasses.replace(
            e,
            poses=p,
            valid=np.ones(p.shape[:2], bool),
            bodies=(*e.bodies, "seen"),
            half_size_m=None,
            joints=None,
            joint_names=(),
        )
        for e, p in zip(some, seen, strict=True)
    ]


@pytest.fixture(scope="module")
def reference() -> Reference:
    return fit(bundled("stack_cube_demos").read(0, 10), load_spec("stack_cube")).reference


def measured(source: Source, reference: Reference, base: np.ndarray) -> dict[str, list[Any]]:
    given: dict[str, dict[str, Any]] = {
        "kinematic": {"robot": "panda", "T_world_base": tuple(base.tolist())},
        "tracking": {"tracks": (("seen", "cubeA"),)},
        "smoothness": {"body": "tcp"},
    }
    settings = {name: metric_named(name).Params(**how) for name, how in given.items()}
    return score(reference, source, metrics=["geometric", "stages", *given], settings=settings).columns


@pytest.fixture(scope="module")
def near(runs: list[Episode], reference: Reference) -> dict[str, list[Any]]:
    return measured(source_of(runs, task="stack_cube"), reference, BASE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_m", "path"), [(1e3, "memory"), (1e5, "float64"), (1e6, "memory"), (1e6, "float64"), (1e6, "float32")]
)
def test_a_far_world_and_another_clock_change_nothing(
    by_m: float, path: str, runs: list[Episode], reference: Reference, near: dict[str, list[Any]], tmp_path: Path
) -> None:
    far = [moved(e, by_m) for e in runs]
    if path == "memory":
        source = source_of(far, task="stack_cube")
    else:
        write_store(tmp_path / "s", far, task="stack_cube", precision=path)  # type: ignore[arg-type]
        source = open_source(tmp_path / "s")
    base = BASE.copy()
    base[4:] += offset(by_m)
    got, numbers = measured(source, reference, base), 0
    for name, values in near.items():
        if name in ("source", "findings", "mended"):
            continue
        for a, b in zip(values, got[name], strict=True):
            if isinstance(a, float):
                assert b is not None, name
                assert b == pytest.approx(a, rel=1e-4, abs=1e-6, nan_ok=True), name
                numbers += 1
            else:
                assert a == b or isinstance(a, list), name
    assert numbers > 200


def test_the_origin_is_whole_metres_amid_what_was_seen() -> None:
    poses = np.zeros((3, 3, 7))
    poses[..., 0] = 1
    poses[:, 1, 4:], poses[:, 2, 4:] = [1000.3, 0, -7.7], [1001.4, 2, -7.7]
    valid = np.ones((3, 3), bool)
    valid[:, 0] = False  # never seen: it stands at the world's origin
    assert near_origin(poses, valid).tolist() == [1001.0, 1.0, -8.0]
    poses[..., 4:] = NEAR_M
    assert near_origin(poses, valid).tolist() == [0, 0, 0]
    assert near_origin(poses, np.zeros((3, 3), bool)).tolist() == [0, 0, 0]
