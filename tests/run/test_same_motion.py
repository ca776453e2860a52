"""One motion, seven formats: the same Q and the same smoothness, whichever file it comes out of.

Four bundled executions of StackCube (two demonstrations, two tilted) are written as a store, by robomimic's layout, by
RoboLab's, as LeRobotDatasets, as MCAP, as rosbag2 and as TUM folders, read back and scored against one reference.

What formats cannot hold is given back the way a user would, and nothing else: MCAP, rosbag2 and TUM name no task and
hold no gripper width, RoboLab's joints have no names and so no width. Their episodes get the task's name and, for the
comparison of all of Q, the recorded width; a second comparison scores them without it, where the predicates on the
gripper cannot hold, and asks only that all formats without a width agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from jaxeval.io import open_source, write_store
from jaxeval.io.writers.lerobot import write_lerobot
from jaxeval.run.score import Scores, score
from jaxeval.types import Episode
from tests.executions import episodes, learned, of_tilt
from tests.io.foreign import write_robolab, write_robomimic
from tests.io.samples import write_sample_mcap, write_sample_rosbag2, write_sample_tum

BODIES = ("cubeA", "cubeB", "tcp", "table")
CLOSE = 1e-4
HAS_WIDTH = ("store", "robomimic", "lerobot", "maniskill")


@pytest.fixture(scope="module")
def motions() -> list[Episode]:
    """Four executions, of one padding bucket, as every format can hold them: rows of actions follow frames."""
    return [*episodes()[31:33], of_tilt(10)[0], of_tilt(45)[0]]


def write_maniskill(folder: Path, some: Sequence[Episode]) -> Path:
    """As ManiSkill records it with observations: states of actors and of the Panda, obs/extra/tcp_pose."""
    with h5py.File(folder / "StackCube-v1.h5", "w") as file:
        for k, e in enumerate(some):
            traj, velocity = file.create_group(f"traj_{k}"), np.zeros((e.n_frames, 6))
            for body in ("cubeA", "cubeB", "table"):
                name = "table-workspace" if body == "table" else body
                pose = np.concatenate([e.body(body)[:, 4:], e.body(body)[:, :4], velocity], axis=1)
                traj[f"env_states/actors/{name}"] = pose
            root = np.tile([-0.615, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], (e.n_frames, 1))
            traj["env_states/articulations/panda"] = np.concatenate([root, e.joints, np.zeros((e.n_frames, 9))], axis=1)
            traj["obs/extra/tcp_pose"] = np.concatenate([e.body("tcp")[:, 4:], e.body("tcp")[:, :4]], axis=1)
            traj["success"] = np.full(e.n_frames - 1, e.success_at_end)
    return folder / "StackCube-v1.h5"


def each(folder: Path, some: Sequence[Episode], write: Callable[[Path, Episode], Path]) -> list[Path]:
    return [write(folder / f"run_{k}", e) for k, e in enumerate(some)]


def as_store(folder: Path, some: Sequence[Episode]) -> Path:
    write_store(folder / "s", some, task="stack_cube")
    return folder / "s"


def as_lerobot(folder: Path, some: Sequence[Episode]) -> Path:
    write_lerobot(folder / "set", some, fps=20)
    return folder / "set"


WRITE: dict[str, Callable[[Path, Sequence[Episode]], Path | list[Path]]] = {
    "store": as_store,
    "maniskill": write_maniskill,
    "robomimic": lambda folder, some: write_robomimic(folder / "d.hdf5", some),
    "robolab": write_robolab,
    "lerobot": as_lerobot,
    "mcap": partial(each, write=write_sample_mcap),
    "rosbag2": partial(each, write=write_sample_rosbag2),
    "tum": partial(each, write=write_sample_tum),
}


def read(path: Path | list[Path], recorded: Sequence[Episode], *, width: bool) -> list[Episode]:
    """Episodes of the task's bodies and name; with the recorded width, or with none."""
    out = []
    for e, r in zip(open_source(path).iter_episodes(), recorded, strict=True):
        assert set(BODIES) <= set(e.bodies) and e.n_frames == r.n_frames
        changes: dict[str, Any] = {"gripper_width_m": r.gripper_width_m if width else None}
        if width and e.gripper_width_m is not None:  # the format holds one: it must be the recorded one
            np.testing.assert_allclose(e.gripper_width_m, r.gripper_width_m, atol=1e-6)
            changes = {}
        out.append(
            dataclasses.replace(
                e.with_bodies(BODIES), half_size_m=None, task="stack_cube", joints=None, joint_names=(),
                actions=None, sub_task=None, success_once=r.success_once, success_at_end=r.success_at_end, **changes,
            )
        )  # fmt: skip
    return out


def scored(folder: Path, some: Sequence[Episode]) -> Scores:
    write_store(folder, some, task="stack_cube", precision="float64")
    return score(learned(), open_source(folder), metrics=["geometric", "smoothness"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, motions: list[Episode]) -> dict[str, Path | list[Path]]:
    folder = tmp_path_factory.mktemp("formats")
    out = {}
    for name, write in WRITE.items():
        (folder / name).mkdir()
        out[name] = write(folder / name, motions)
    return out


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory, motions: list[Episode]) -> dict[bool, Scores]:
    """Scores of the executions as they are bundled, with and without their gripper's width."""
    folder = tmp_path_factory.mktemp("truth")
    as_store(folder, motions)
    return {w: scored(folder / f"{w}", read(folder / "s", motions, width=w)) for w in (True, False)}


@pytest.mark.parametrize("name", list(WRITE))
@pytest.mark.parametrize("width", [True, False], ids=["width", "no width"])
def test_every_format_gives_the_same_q_and_the_same_smoothness(
    tmp_path: Path, files: dict[str, Any], truth: dict[bool, Scores], motions: list[Episode], name: str, width: bool
) -> None:
    made, wanted = scored(tmp_path / "s", read(files[name], motions, width=width)), truth[width]
    assert made.columns["valid"] == [True] * 4
    for column in ("Q", "gate_free_Q", "smoothness.sparc", "smoothness.turn_sparc", "smoothness.path_m"):
        np.testing.assert_allclose(made.columns[column], wanted.columns[column], atol=CLOSE, err_msg=column)
    for column in ("gate", "gate_reason", "worst_pair", "worst_sub_task"):
        assert made.columns[column] == wanted.columns[column], column


def test_the_comparison_can_fail(truth: dict[bool, Scores]) -> None:
    """The executions differ in Q and in smoothness, and the width decides the gate: no constant would pass."""
    with_width, without = truth[True], truth[False]
    assert np.ptp(with_width.q) > 0.05 and np.ptp(with_width.columns["smoothness.sparc"]) > 100 * CLOSE
    assert with_width.columns["gate"][:2] == [True, True] and without.columns["gate"][:2] == [False, False]


@pytest.mark.parametrize("name", HAS_WIDTH)
def test_formats_that_hold_the_width_give_it_back(files: dict[str, Any], motions: list[Episode], name: str) -> None:
    for e, r in zip(open_source(files[name]).iter_episodes(), motions, strict=True):
        np.testing.assert_allclose(e.gripper_width_m, r.gripper_width_m, atol=1e-6)
