"""`score` with any subset of metrics: columns, refusals, and that neither batches nor order change a number."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.io import InputError, open_source, write_store
from jaxeval.io.source import Source
from jaxeval.run import score_plan
from jaxeval.run.score import NOT_ASKED, Scores, score
from jaxeval.run.scorers.kinematic import KinematicSetting
from jaxeval.run.scorers.smoothness import SmoothnessSetting
from jaxeval.run.scorers.tracking import TrackingSetting
from jaxeval.types import Episode, Reference
from tests.executions import episodes, learned, truncated

CONTRACT = ["episode", "task", "group", "Q", "gate", "gate_reason", "valid", "status"]
LAST = ["findings", "mended", "length", "success_once", "success_at_end", "seed", "speed", "initial_condition_id",
        "initial_condition_hash", "source"]  # fmt: skip
SUB_TASKS = ("reach", "approach", "grasp", "transport", "place", "release", "retreat")
PAIRS = ("cubeA | cubeB", "cubeA | table", "cubeB | table", "cubeA | tcp", "cubeB | tcp")
GEOMETRIC = (
    ["gate_free_Q", "mean_cost"]
    + [f"cost.{pair}" for pair in PAIRS]
    + [f"{column}.{name}" for name in SUB_TASKS for column in ("sub_task_cost", "sub_task_end_s")]
    + [
        "worst_sub_task",
        "worst_pair",
        "worst_frame",
        "worst_direction",
        "worst_z",
        "worst_m",
        "worst_rad",
        "worst_time_s",
        "worst_axis",
    ]
    + [f"coverage.{name}" for name in (*PAIRS, "cubeA", "cubeB", "table", "tcp")]
)
N = 4
RATE_HZ = 20.0


@pytest.fixture(scope="module")
def reference() -> Reference:
    return learned()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return source(tmp_path_factory.mktemp("runs") / "s", list(episodes()[31 : 31 + N]))


@pytest.fixture(scope="module")
def geometric(reference: Reference, runs: Source) -> Scores:
    return score(reference, runs)


def source(path: Path, some: list[Episode]) -> Source:
    write_store(path, some, task="stack_cube", precision="float64")
    return open_source(path)


def with_track(e: Episode, offset_m: tuple[float, float, float]) -> Episode:
    """The episode with one more body: an estimate of cubeA, off by a known vector."""
    seen = e.body("cubeA").copy()
    seen[:, 4:] += offset_m
    poses = np.concatenate([e.poses, seen[:, None]], axis=1)
    valid = np.ones(poses.shape[:2], bool)
    return dataclasses.replace(e, poses=poses, valid=valid, bodies=(*e.bodies, "seen"), half_size_m=None)


# ------------------------------------------------------------------------------------------------------- columns


def test_geometric_alone_gives_its_columns_and_nothing_else(geometric: Scores) -> None:
    assert list(geometric.columns) == CONTRACT + GEOMETRIC + LAST
    assert all(len(column) == N for column in geometric.columns.values())
    assert (geometric.q > 0.9).all() and geometric.columns["gate"] == [True] * N


def test_more_metrics_change_no_number_of_the_others(geometric: Scores, reference: Reference, runs: Source) -> None:
    both = score(reference, runs, metrics=["kinematic", "geometric", "smoothness"])
    names = list(both.columns)
    assert names[: len(CONTRACT)] == CONTRACT and names[len(CONTRACT) :][: len(GEOMETRIC)] == GEOMETRIC
    families = [n.split(".")[0] for n in names if n.startswith(("smoothness.", "kinematic."))]
    assert families == sorted(families, reverse=True)  # smoothness before kinematic, however they were asked for
    for name, column in geometric.columns.items():
        assert both.columns[name] == column, name
    for name in SUB_TASKS:  # with a reference, motion is told per sub-task; the parts end where Q's do
        ends = both.columns[f"sub_task_end_s.{name}"]
        assert all(
            d is None or d <= e + 1e-3 for d, e in zip(both.columns[f"smoothness.duration_s.{name}"], ends, strict=True)
        )
    parts = np.array([both.columns[f"smoothness.path_m.{name}"] for name in SUB_TASKS], float)
    whole = np.array(both.columns["smoothness.path_m"])
    assert (np.nansum(parts, axis=0) <= whole * 1.001).all() and (np.nansum(parts, axis=0) > 0.8 * whole).all()


def test_smoothness_needs_no_reference(tmp_path: Path, runs: Source) -> None:
    made = score(None, runs, out=tmp_path, frames=True)
    table = pq.read_table(tmp_path / "scores.parquet")
    assert table.column_names[: len(CONTRACT)] == CONTRACT and table.column_names == list(made.columns)
    for name in ("Q", "gate", "gate_reason"):
        assert table[name].null_count == N
    assert table["valid"].to_pylist() == [True] * N and set(table["status"].to_pylist()) == {NOT_ASKED}
    assert not [
        n for n in table.column_names if n.startswith(("cost.", "kinematic.", "tracking.", "smoothness.path_m."))
    ]
    for row, e in zip(table.to_pylist(), runs.iter_episodes(), strict=True):
        moved = np.linalg.norm(np.diff(e.body("tcp")[:, 4:], axis=0), axis=1)
        assert row["episode"] == e.episode_id and row["smoothness.body"] == "tcp"
        assert abs(row["smoothness.duration_s"] - e.time_s[-1]) < 1e-4
        assert abs(row["smoothness.path_m"] - moved.sum()) < 0.02 * moved.sum()


def test_another_body_is_measured_where_asked(runs: Source) -> None:
    still = score(None, runs, settings={"smoothness": SmoothnessSetting(body="table")})
    assert still.columns["smoothness.body"] == ["table"] * N
    assert max(still.columns["smoothness.path_m"]) < 1e-3
    assert still.columns["smoothness.sparc"] == [None] * N  # of a body that stands still: no number, and why
    assert all(status != "ok" for status in still.columns["smoothness.sparc_status"])


def test_frames_agree_with_the_scores(tmp_path: Path, reference: Reference, runs: Source) -> None:
    made = score(reference, runs, metrics=["smoothness", "kinematic"], out=tmp_path, frames=True)
    frames = pq.read_table(tmp_path / "frame_motion.parquet").to_pydict()
    of = {name: np.array(values, float) for name, values in frames.items()}
    assert set(np.unique(of["episode"])) == set(range(N))
    for k, e in enumerate(runs.iter_episodes()):
        mine = of["episode"] == k
        np.testing.assert_array_equal(of["frame"][mine], np.arange(e.n_frames))
        np.testing.assert_allclose(of["t_s"][mine], e.time_s, atol=1e-5)
        xyz = np.stack([of[f"{axis}_m"][mine] for axis in "xyz"], axis=1)
        np.testing.assert_allclose(xyz, e.body("tcp")[:, 4:], atol=1e-6)
        assert abs(of["w"][mine].min() - made.columns["kinematic.min_w"][k]) < 1e-6
        assert abs(of["sigma_min"][mine].min() - made.columns["kinematic.min_sigma"][k]) < 1e-6
        assert abs(of["w"][mine].mean() - made.columns["kinematic.mean_w"][k]) < 0.01
        path = (of["speed_m_s"][mine] / RATE_HZ).sum()  # speeds are between frames: about the path
        assert abs(path - made.columns["smoothness.path_m"][k]) < 0.05 * path
        assert of["sub_task"][mine].max() == len(SUB_TASKS) - 1


# ----------------------------------------------------------------------------------------------------- kinematics


def test_joints_found_from_poses_give_the_recorded_manipulability(tmp_path: Path) -> None:
    """The Panda of ManiSkill stands at x = -0.615 m; its gripper's poses alone give back w to 5 %."""
    recorded = truncated(episodes()[31], 60)
    bare = dataclasses.replace(recorded, joints=None, joint_names=())
    arm = {"kinematic": KinematicSetting(robot="panda", T_world_base=(1.0, 0, 0, 0, -0.615, 0, 0))}
    told = score(None, source(tmp_path / "a", [recorded]), metrics=["kinematic"]).columns
    found = score(None, source(tmp_path / "b", [bare]), metrics=["kinematic"], settings=arm).columns
    assert told["kinematic.joints"] == ["recorded"] and found["kinematic.joints"] == ["inverse kinematics"]
    assert told["kinematic.coverage"] == found["kinematic.coverage"] == [1.0]
    for name in ("kinematic.min_w", "kinematic.mean_w"):
        assert abs(found[name][0] - told[name][0]) < 0.05 * told[name][0], name


# ------------------------------------------------------------------------------------------------------- tracking


def test_a_track_that_is_off_by_a_known_vector(tmp_path: Path) -> None:
    e = with_track(episodes()[31], (0.003, -0.004, 0.012))  # 13 mm
    lost = np.ones(e.n_frames, bool)
    lost[20:60] = False
    some = [e, dataclasses.replace(e, frame_valid=lost, episode_id="40 frames lost")]
    made = score(
        None,
        source(tmp_path / "s", some),
        metrics=["tracking"],
        settings={"tracking": TrackingSetting(tracks=(("seen", "cubeA"),))},
    )
    for quantile in ("p50", "p95"):
        np.testing.assert_allclose(made.columns[f"tracking.seen.translation_m_{quantile}"], 0.013, atol=1e-6)
    np.testing.assert_allclose(made.columns["tracking.seen.coverage"], [1, (e.n_frames - 40) / e.n_frames], atol=1e-6)
    assert made.columns["tracking.seen.status"] == ["ok", "ok"]
    assert max(made.columns["tracking.seen.rotation_rad_p50"]) < 1e-3


# ------------------------------------------------------------------------------------------------ what is refused


def test_episodes_that_cannot_be_judged_have_no_numbers_and_say_why(tmp_path: Path, reference: Reference) -> None:
    good = episodes()[31]
    jump = good.poses.copy()
    jump[100:, good.bodies.index("tcp"), 4] += 0.4
    some = [
        good,
        dataclasses.replace(good, poses=jump, episode_id="jump"),
        dataclasses.replace(good, frame_valid=np.zeros_like(good.frame_valid), episode_id="invalid"),
        good,
    ]
    made = score(
        reference, source(tmp_path / "s", some), metrics=["geometric", "smoothness", "kinematic"], out=tmp_path / "o"
    )
    table = pq.read_table(tmp_path / "o" / "scores.parquet")
    about = {"worst_frame", "length", "seed", "speed", "valid", "success_once", "success_at_end", "gate"}
    numbers = [n for n, t in zip(table.column_names, table.schema.types, strict=True) if str(t) == "double"]
    for row, said in ((1, "insufficient tracking: a body moves more than"), (2, "bad input: every frame is invalid")):
        for name in [n for n in numbers if n not in about]:
            assert table[name][row].as_py() is None, (row, name)
        assert table["valid"][row].as_py() is False
        for name in [n for n in table.column_names if n.endswith("status")]:
            assert table[name][row].as_py().startswith(said), name
    assert table["valid"].to_pylist() == [True, False, False, True]
    assert made.columns["Q"][0] == made.columns["Q"][3] > 0.9
    assert made.columns["smoothness.path_m"][0] == made.columns["smoothness.path_m"][3]


BARE = {"joints": None, "joint_names": (), "actions": None}


@pytest.mark.parametrize(
    ("metrics", "settings", "said"),
    [
        (["geometric"], {}, "geometric needs a reference, found none; fit one"),
        (["speed"], {}, "no metric 'speed'; expected any of geometric, smoothness, kinematic, tracking"),
        ([], {}, "metrics is empty"),
        (["tracking"], {}, "no tracks to compare, expected tracking.tracks={ESTIMATE: TRUTH}"),
        (
            ["tracking"],
            {"tracking": TrackingSetting(tracks=(("spoon", "cubeA"),))},
            "no body spoon; it has cubeA, cubeB, tcp, table",
        ),
        (
            ["smoothness"],
            {"smoothness": SmoothnessSetting(body="spoon")},
            "no body spoon whose motion could be measured",
        ),
        (["kinematic"], {}, "joint names none are those of no arm that comes with the package"),
        (
            ["kinematic"],
            {"kinematic": KinematicSetting(robot="panda")},
            "kinematic.T_world_base=[w,x,y,z,x,y,z] to find them",
        ),
        (
            ["kinematic"],
            {"kinematic": KinematicSetting(robot="panda", T_world_base=(1.0, 0, 0))},
            "expected a unit quaternion",
        ),
        (
            ["kinematic"],
            {"kinematic": KinematicSetting(robot="arm.urdf")},
            "kinematic.base_link and kinematic.tip_link",
        ),
    ],
)
def test_a_metric_that_lacks_something_says_so_in_one_sentence(
    tmp_path: Path, metrics: list[str], settings: dict[str, Any], said: str
) -> None:
    bare = source(tmp_path / "s", [dataclasses.replace(episodes()[31], **BARE)])
    with pytest.raises(InputError) as caught:
        score(None, bare, metrics=metrics, settings=settings, out=tmp_path / "out", frames=True)
    assert said in str(caught.value) and "\n" not in str(caught.value) and ";" in str(caught.value)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.parent.name == "out"]


def test_nothing_half_written_is_left_when_it_fails_half_way(
    tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = source(tmp_path / "runs", list(episodes()[31 : 31 + N]) * 2)
    out = tmp_path / "out"
    whole, calls = score_plan.full_batch, []

    def fails_later(*batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise InputError("the disk is gone; plug it in")
        return whole(*batch)

    monkeypatch.setattr(score_plan, "full_batch", fails_later)
    metrics = ["geometric", "smoothness"]
    with pytest.raises(InputError, match="the disk is gone"):
        score(reference, runs, metrics=metrics, out=out, frames=True, batch_n=N)
    assert len(calls) == 2 and not list(out.iterdir())
    monkeypatch.undo()
    score(reference, runs, metrics=metrics, out=out, frames=True, batch_n=N)
    made = {"scores.parquet", "score.json", "frame_costs.parquet", "frame_motion.parquet"}
    assert {p.name for p in out.iterdir()} == made


# ---------------------------------------------------------------------------------------------- batches and order


def test_neither_the_batch_nor_the_order_changes_a_number(tmp_path: Path, reference: Reference) -> None:
    """15 episodes as 4 + 4 + 4 + 3 and, backward, as 3 a batch: batches fill up to 4, so nothing new is compiled."""
    some = [e for e in episodes() if 128 < e.n_frames <= 256][:15]
    metrics = ["geometric", "smoothness", "kinematic"]
    ahead = score(reference, source(tmp_path / "a", some), metrics=metrics, batch_n=4)
    back = score(reference, source(tmp_path / "b", some[::-1]), metrics=metrics, batch_n=3)
    assert ahead.columns["episode"] == [e.episode_id for e in some]
    same(ahead, back)


def test_rows_keep_the_order_of_the_source_whatever_their_lengths(tmp_path: Path) -> None:
    e = episodes()[31]
    some = [dataclasses.replace(truncated(e, n), episode_id=f"{n} frames") for n in (176, 40, 170, 50)]
    made = score(None, source(tmp_path / "a", some))
    assert made.columns["episode"] == [x.episode_id for x in some] and made.columns["length"] == [176, 40, 170, 50]
    np.testing.assert_allclose(made.columns["smoothness.duration_s"], [175 / 20, 39 / 20, 169 / 20, 49 / 20], atol=1e-4)
    same(made, score(None, source(tmp_path / "b", some[::-1])))


def same(ahead: Scores, back: Scores) -> None:
    """The same rows, one in the other order."""
    for name, column in ahead.columns.items():
        for one, other in zip(column, back.columns[name][::-1], strict=True):
            if isinstance(one, float):
                assert other == pytest.approx(one, rel=1e-5, abs=1e-6), name
            else:
                assert one == other, name
