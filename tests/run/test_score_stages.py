"""Stages of recordings that no simulator of ours made, told by the task's spec, and sub-tasks as stages of any task."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import jaxeval
from jaxeval import cli
from jaxeval.io import InputError, open_source
from jaxeval.io.reference import ARRAYS
from jaxeval.io.spec import load_spec, spec_from_dict, task_names
from jaxeval.io.spec_write import spec_to_dict, write_spec
from jaxeval.io.store import write_store
from jaxeval.metrics.stages import Cause, StageGeometry, sentence
from jaxeval.run.score import score, table
from jaxeval.run.score_plan import make_plan
from jaxeval.types import Episode, Reference, TaskSpec
from tests.executions import episodes
from tests.metrics.stow_episodes import CAUSES, GEOMETRY, PHASES, changed

PUSHING = ["PUSH" if name == "INSERT" else name for name in PHASES]
SPEC = """
name: crate_in_bay
bodies:
  crate: {shape: {kind: box, half_size_m: [0.04, 0.0275, 0.02]}}
  claw: {shape: {kind: box, half_size_m: [0.02, 0.1, 0.03]}}
support: crate
gripper: claw
sub_tasks:
  - {name: reach, until: [{kind: near, body: claw, other: crate, value_m: 0.012}]}
stages:
  object: crate
  phases: PUSHING
  insert_phase: PUSH
  entrance: {position_m: [0.4914, 0.1414, 0.93], turns_deg: [[z, 45]]}
  half_section_m: [0.0825, 0.05]
  depth_m: 0.11
  goal: {turns_deg: [[z, 45], [y, -90]]}
  pre_insert_m: [0.45604466094067264, 0.10604466094067262, 0.93]
  lift_z_m: 0.76
""".replace("PUSHING", str(PUSHING))


def recorded(k: int, change) -> Episode:
    """An episode of tests/metrics/stow_episodes as hardware would record it: no joints, no told speed, no contacts."""
    s = changed(change)
    trembling = np.zeros((len(s.phase), 7))
    trembling[:, 4] = 1e-6 * np.sin(np.arange(len(s.phase)))  # no pose of a real track repeats to the bit
    return Episode.of(
        poses=np.stack([s.T_world_hand + trembling, s.T_world_object], axis=1),
        time_s=np.arange(len(s.phase)) / 50,
        signals={
            "phase": s.phase.astype(float),
            "object_velocity": np.concatenate([s.linear_m_s, s.angular_rad_s], axis=1),
            "fingertip_force": s.finger_n,
            "receptacle_force": s.receptacle_n,
        },
        bodies=("claw", "crate"),
        episode_id=str(k),
        group="arm in the laboratory",
        task="crate_in_bay",
    )


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory) -> tuple[Path, Path]:
    """(store, spec) of one episode for each way to end, of a task that is none of the package's."""
    folder = tmp_path_factory.mktemp("laboratory")
    (folder / "crate.yaml").write_text(SPEC)
    store = write_store(folder / "store", [recorded(k, c) for k, c in enumerate(CAUSES)], task="crate_in_bay")
    return store.path, folder / "crate.yaml"


def test_a_recording_from_hardware_is_staged_by_its_own_spec(laboratory, tmp_path: Path, capsys) -> None:
    store, spec = laboratory
    assert cli.main(["score", f"episodes={store}", f"spec={spec}", f"out={tmp_path}"]) == 0
    table = pq.read_table(tmp_path / "scores.parquet").to_pydict()
    drops = PHASES.index("TRANSFER")
    expected = [sentence(cause, drops, phases=PHASES) for cause in CAUSES.values()]
    assert table["cause"] == expected and len(set(expected)) > 10
    assert table["task"] == ["crate_in_bay"] * len(CAUSES)
    for name, least in (("acquired", Cause.NOT_ACQUIRED), ("inserted", Cause.NOT_INSERTED)):
        judged = [c for c in CAUSES.values() if c != Cause.NOT_JUDGED]
        told = [v for v, c in zip(table[f"stage.{name}"], CAUSES.values(), strict=True) if c != Cause.NOT_JUDGED]
        assert told == [c == Cause.SUCCESS or c > least for c in judged]
    assert table["success_at_end"][:3] == [True, None, False]
    assert "told_speed" not in table and "grasp.margin.acquired" not in table  # neither was recorded
    assert table["hand.arm_utilisation"] == [None] * len(CAUSES) and table["hand.slip_m"][0] < 1e-5
    assert "arm in the laboratory" in capsys.readouterr().out


def test_an_episode_in_memory_is_staged_too(laboratory) -> None:
    """Without the signals of the gripper's fingers it is not, and the sentence says which one is missing."""
    spec = load_spec(laboratory[1])
    e = dataclasses.replace(recorded(3, list(CAUSES)[3]), task="")
    many = [e] * len(CAUSES)  # as many as the store has: nothing is compiled again
    assert jaxeval.score(None, many, "stages", spec=spec).columns["cause"][0] == "dropped in TRANSFER"
    deaf = dataclasses.replace(e, signals={k: v for k, v in (e.signals or {}).items() if k != "fingertip_force"})
    with pytest.raises(InputError, match="no signal fingertip_force; it has phase, object_velocity, receptacle_force"):
        jaxeval.score_episode(None, deaf, "stages", spec=spec)


def blank(spec: TaskSpec) -> Reference:
    """A reference of that task that was learned from nothing."""
    arrays = {name: np.zeros(0) for name in ARRAYS}
    return Reference(**arrays, pairs=(), spec=spec, bins_n=10)


def test_with_a_reference_the_sub_tasks_are_the_references(laboratory) -> None:
    source = open_source("bundled:stack_cube_tilt")
    other = dataclasses.replace(load_spec("stack_cube"), sub_tasks=load_spec("stack_cube").sub_tasks[:2])
    reference = blank(load_spec("stack_cube"))
    names = [s.name for s in reference.spec.sub_tasks]
    assert make_plan(reference, source, ["stages"], spec=other).needs[0].labels == {"sub_task": tuple(names)}
    assert make_plan(None, source, ["stages"], spec=other).needs[0].labels == {"sub_task": tuple(names[:2])}
    staged = load_spec(laboratory[1])
    of_crates, crates = blank(dataclasses.replace(staged, stages=None)), open_source(laboratory[0])
    assert make_plan(of_crates, crates, ["stages"], spec=staged).needs[0].bodies == ("crate", "claw")


def test_without_its_spec_or_with_another_one_it_is_not(laboratory) -> None:
    store, spec = laboratory
    source = open_source(store)
    with pytest.raises(InputError, match=r"found no spec of the task 'crate_in_bay'; give spec=FILE.yaml"):
        score(None, source, metrics=["stages"])
    with pytest.raises(InputError, match=r"episodes of task 'crate_in_bay', expected 'stack_cube' as in the task spec"):
        score(None, source, metrics=["stages"], spec="stack_cube")
    bare = dataclasses.replace(load_spec(spec), stages=None)
    with pytest.raises(InputError, match="grasp needs `stages` in the spec of the task, found none in that of crate"):
        score(None, source, metrics=["grasp"], spec=bare)
    with pytest.raises(InputError, match="grasp needs the friction between finger and object, found none"):
        score(None, source, metrics=["stages", "grasp"], spec=spec)


def test_stages_of_a_spec_are_read_written_and_kept(tmp_path: Path) -> None:
    for name in task_names():
        spec = load_spec(name)
        assert spec_from_dict(spec_to_dict(spec)) == spec
        assert load_spec(write_spec(spec, tmp_path / "again.yaml")) == spec
        assert hash(spec) == hash(load_spec(name))
    assert [n for n in task_names() if load_spec(n).stages] == ["parcel_stow", "peg_insertion", "upright_placement"]
    geometry = StageGeometry.of(spec_from_dict(yaml.safe_load(SPEC)))
    for name, ours in vars(GEOMETRY).items():
        if name not in ("phases", "insert_phase", "symmetry"):
            np.testing.assert_allclose(getattr(geometry, name), ours, atol=1e-12, err_msg=name)
    assert geometry.phase("PUSH") == GEOMETRY.phase("INSERT")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("object", "box", r"stages\.object is 'box'; expected one of the bodies \(crate, claw\)"),
        ("object", ..., r"stages\.object is 'missing'; expected a value"),
        ("deep_m", 0.1, r"stages\.deep_m is 0\.1; expected only the keys object"),
        ("depth_m", "deep", r"stages\.depth_m is 'deep'; expected a number"),
        ("depth_m", -0.1, r"interior_depth_m are sizes; expected positive metres"),
        ("half_section_m", [0.1], r"stages\.half_section_m is \[0\.1\]; expected 2 numbers"),
        ("goal", {"wxyz": [2, 0, 0, 0]}, r"quaternion of length 2; expected 1"),
        ("goal", {}, r"stages\.goal is \{\}; expected one of wxyz and turns_deg"),
        ("goal", {"turns_deg": [["w", 3]]}, r"expected an axis \(x, y or z\) and degrees"),
        ("entrance", {"wxyz": [1, 0, 0, 0]}, r"stages\.entrance\.position_m is 'missing'"),
        ("phases", ["LIFT", "PUSH", "TRANSFER", "RELEASE"], r"expected LIFT, TRANSFER, insertion, RELEASE to follow"),
        ("phases", ["LIFT", "PUSH"], r"no phase 'TRANSFER'; the task has LIFT, PUSH"),
        ("friction", -1, r"stages\.friction is -1; expected a number from 0 on"),
    ],
)
def test_a_wrong_key_gets_one_sentence(key: str, value, says: str) -> None:
    data = yaml.safe_load(SPEC)
    if value is ...:
        del data["stages"][key]
    else:
        data["stages"][key] = value
    with pytest.raises(InputError, match=says) as caught:
        spec_from_dict(data, where="crate.yaml")
    assert str(caught.value).startswith("crate.yaml: stages") and "\n" not in str(caught.value)


# -------------------------------------------------------------------------------------------- sub-tasks as stages


@pytest.fixture(scope="module")
def stacked(tmp_path_factory) -> list[dict]:
    """Executions of StackCube: whole, cut off before each sub-task ended, and whole without this or that known."""
    folder = tmp_path_factory.mktemp("stacked")
    e = next(e for e in episodes() if e.success_at_end)
    names = [s.name for s in load_spec("stack_cube").sub_tasks]
    whole = score(None, write(folder / "whole", [e] * (4 + len(names))), metrics=["stages"]).columns
    ends = [whole[f"stages.{name}_s"][0] for name in names]
    assert ends == sorted(ends) and np.isfinite(ends).all()
    cut = [upto(e, end) for end in ends]
    blind = dataclasses.replace(e, gripper_width_m=None, episode_id="blind", success_at_end=None)
    unknown = dataclasses.replace(e, episode_id="unknown", success_at_end=None)
    failed = dataclasses.replace(e, episode_id="failed", success_at_end=False)
    made = score(None, write(folder / "cut", [e, *cut, unknown, failed, blind]), metrics=["stages"])
    rows = [dict(zip(made.columns, values, strict=True)) for values in zip(*made.columns.values(), strict=True)]
    return [{"names": names, "table": table(made)}, *rows]


def write(path: Path, some: list[Episode]):
    return open_source(write_store(path, some, task="stack_cube").path)


def upto(e: Episode, end_s: float) -> Episode:
    """What there was of an execution before that time; it did not succeed."""
    n = int((e.time_s < end_s - 1e-6).sum())
    return dataclasses.replace(
        e,
        poses=e.poses[:n],
        time_s=e.time_s[:n],
        valid=e.valid[:n],
        frame_valid=e.frame_valid[:n],
        gripper_width_m=None if e.gripper_width_m is None else e.gripper_width_m[:n],
        sub_task=None,
        sub_task_names=(),
        joints=None,
        joint_names=(),
        actions=None,
        signals=None,
        success_at_end=False,
        episode_id=f"{n} frames",
    )


def test_the_cause_is_the_first_sub_task_not_reached(stacked: list[dict]) -> None:
    told, whole, *others = stacked
    names, cut = told["names"], others[: len(told["names"])]
    assert whole["cause"] == "success" and all(whole[f"stage.{name}"] is True for name in names)
    for p, row in enumerate(cut):
        assert row["cause"] == f"{names[p]} not reached"
        assert [row[f"stage.{name}"] for name in names] == [k < p for k in range(len(names))]
        assert [row[f"stages.{name}_s"] is None for name in names] == [k >= p for k in range(len(names))]
        assert row["success_at_end"] is False and row["stages.status"] == "ok"
    assert "stage.acquired" not in whole and "told_speed" not in whole
    for text in (*names, f"1 {names[0]} not reached"):
        assert text in told["table"]


def test_success_stays_the_recorded_one_and_what_was_not_recorded_is_not_told(stacked: list[dict]) -> None:
    names = stacked[0]["names"]
    unknown, failed, blind = stacked[-3:]
    assert (unknown["success_at_end"], unknown["cause"]) == (None, "all sub-tasks reached")
    assert (failed["success_at_end"], failed["cause"]) == (False, "all sub-tasks reached, but no success")
    by_width = [any(u.kind.startswith("gripper_") for u in s.until) for s in load_spec("stack_cube").sub_tasks]
    first = by_width.index(True)
    assert [blind[f"stage.{name}"] for name in names] == [True] * first + [None] * (len(names) - first)
    assert blind["stages.status"].startswith("what a sub-task ends by was never recorded")
    assert blind["cause"] == f"not judged: {blind['stages.status']}"
