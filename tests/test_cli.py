"""The verbs as a person types them: what they leave behind, and one sentence for each kind of bad input."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.cli import main
from jaxeval.io import bundled_path, open_source, write_store
from jaxeval.io.reference import load_reference, save_reference
from jaxeval.io.spec import load_spec
from jaxeval.run.fit import fit
from jaxeval.types import Episode

CONTRACT = ["episode", "task", "group", "Q", "gate", "gate_reason", "valid", "status"]


@pytest.fixture(scope="module")
def demos() -> list[Episode]:
    return list(open_source("bundled:stack_cube_demos").iter_episodes())


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, demos: list[Episode]) -> Path:
    path = tmp_path_factory.mktemp("reference") / "stack_cube"
    save_reference(path, fit(demos[:30], load_spec("stack_cube")).reference, about={"demonstrations_hash": "0"})
    return path


def store(path: Path, episodes: list[Episode]) -> Path:
    write_store(path, episodes, task="stack_cube")
    return path


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr (progress bars aside)."""
    err = [line for line in capsys.readouterr().err.replace("\r", "\n").splitlines() if line.startswith("jaxeval")]
    assert len(err) == 1, err
    return err[0]


def test_fit_score_and_what_they_leave(
    tmp_path: Path, demos: list[Episode], capsys: pytest.CaptureFixture[str]
) -> None:
    few = store(tmp_path / "demos", demos[:12])
    assert main(["fit", f"episodes={few}", f"out={tmp_path}/ref"]) == 0
    about = json.loads((tmp_path / "ref.json").read_text())["about"]
    assert about["demonstrations_hash"] == open_source(few).hash and len(about["demonstrations"]) == 12
    args = ["score", f"reference={tmp_path}/ref", f"episodes={few}", f"out={tmp_path}/scores", "frames=true"]
    assert main(args) == 0
    table = pq.read_table(tmp_path / "scores" / "scores.parquet")
    assert table.column_names[: len(CONTRACT)] == CONTRACT and table.num_rows == 12
    q = np.array(table["Q"].to_pylist())
    assert ((q > 0.9) & (q <= 1)).all()
    frames = pq.read_table(tmp_path / "scores" / "frame_costs.parquet")
    episode, cost = frames["episode"].to_numpy(), frames["cost"].to_numpy().astype(float)
    mean = np.array([cost[episode == k].mean() for k in range(12)])
    np.testing.assert_allclose(np.exp(-mean), table["gate_free_Q"].to_numpy(), atol=1e-5)
    by_pair = sum(np.array(table[c].to_pylist()) for c in table.column_names if c.startswith("cost."))
    np.testing.assert_allclose(by_pair, table["mean_cost"].to_numpy(), atol=1e-5)
    assert "mean Q" in capsys.readouterr().out


def test_multirun_scores_each_setting_in_its_own_folder(tmp_path: Path, reference: Path, demos: list[Episode]) -> None:
    few = store(tmp_path / "runs", demos[31:34])
    args = ["score", "-m", f"reference={reference}", f"episodes={few}", f"out={tmp_path}/sweep"]
    assert main([*args, "metric.sigma_pin_m=0.004,0.009"]) == 0
    written = sorted((tmp_path / "sweep").rglob("scores.parquet"))
    assert len(written) == 2
    told = [json.loads((p.parent / "score.json").read_text())["params"]["sigma_pin_m"] for p in written]
    assert sorted(told) == [0.004, 0.009]


def test_a_folder_with_one_bad_file_scores_the_rest(
    tmp_path: Path, reference: Path, demos: list[Episode], capsys: pytest.CaptureFixture[str]
) -> None:
    store(tmp_path / "in" / "good", demos[31:33])
    (tmp_path / "in" / "bad.h5").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert main(["score", f"reference={reference}", f"episodes={tmp_path}/in", f"out={tmp_path}/out"]) == 0
    assert "Git-LFS pointer" in capsys.readouterr().err
    told = json.loads((tmp_path / "out" / "score.json").read_text())
    assert len(told["refused"]) == 1 and pq.read_table(tmp_path / "out" / "scores.parquet").num_rows == 2


def test_episodes_that_cannot_be_judged_keep_their_row(tmp_path: Path, reference: Path, demos: list[Episode]) -> None:
    good = demos[31]
    nan = good.poses.copy()
    nan[50:60] = np.nan
    jump = good.poses.copy()
    jump[100:, good.bodies.index("cubeA"), 4] += 0.4
    cut = {"poses": good.poses[:1], "time_s": good.time_s[:1], "valid": good.valid[:1]}
    one = dataclasses.replace(good, **cut, gripper_width_m=None, sub_task=None, joints=None, actions=None)
    episodes = [
        good,
        dataclasses.replace(good, poses=nan, episode_id="nan"),
        dataclasses.replace(good, poses=jump, episode_id="jump"),
        dataclasses.replace(good, valid=np.zeros_like(good.valid), episode_id="invalid"),
        dataclasses.replace(one, episode_id="one frame"),
    ]
    runs = store(tmp_path / "runs", episodes)
    assert main(["score", f"reference={reference}", f"episodes={runs}", f"out={tmp_path}/out"]) == 0
    rows = pq.read_table(tmp_path / "out" / "scores.parquet").to_pylist()
    assert [r["Q"] is None for r in rows] == [False, False, True, True, True]
    assert abs(rows[1]["Q"] - rows[0]["Q"]) < 0.02
    assert rows[2]["status"].startswith("insufficient tracking")
    assert "no frame" in rows[3]["status"] or "every frame is invalid" in rows[3]["status"]
    assert "fewer than two valid frames" in rows[4]["status"]
    assert all(r["valid"] is (r["Q"] is not None) for r in rows)


@pytest.mark.parametrize(
    ("episodes", "extra", "expected"),
    [
        ("/nowhere/none.h5", [], "there is no such file or folder"),
        ("bundled:poke_cube_demos", [], "expected 'stack_cube' as in the reference"),
        ("bundled:stack_cube_demos", ["metric.sigma_0_m=0.005"], "no direction would ever be pinned"),
        ("bundled:stack_cube_demos", ["metric.penalty=cubic"], "expected one of hinge, squared, saturating"),
        ("bundled:stack_cube_demos", ["out=/proc/nowhere/out"], "expected a writable folder"),
        ("bundled:nothing", [], "no such data in the package"),
    ],
)
def test_bad_input_to_score_is_one_sentence(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str], episodes: str, extra: list[str], expected: str
) -> None:
    out = [] if any(x.startswith("out=") for x in extra) else [f"out={tmp_path}/out"]
    assert main(["score", f"reference={reference}", f"episodes={episodes}", *out, *extra]) == 1
    assert expected in sentence(capsys)
    assert not list(tmp_path.rglob("*.parquet")) and not list(tmp_path.rglob("*.writing*"))


def test_bodies_that_do_not_match_the_reference(
    tmp_path: Path, reference: Path, demos: list[Episode], capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = [dataclasses.replace(e, bodies=("red", "green", "hand", "desk")) for e in demos[:2]]
    runs = store(tmp_path / "runs", renamed)
    assert main(["score", f"reference={reference}", f"episodes={runs}", f"out={tmp_path}/out"]) == 1
    assert "red, green, hand, desk" in sentence(capsys)


def test_bad_input_to_fit_is_one_sentence(
    tmp_path: Path, demos: list[Episode], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "episodes=bundled:stack_cube_demos", "demonstrations_n=1", f"out={tmp_path}/r"]) == 1
    assert "at least 2 demonstrations" in sentence(capsys)
    one = store(tmp_path / "one", demos[:1])
    assert main(["fit", f"episodes={one}", f"out={tmp_path}/r"]) == 1
    assert "1 of 1 demonstrations" in sentence(capsys)
    h5 = tmp_path / "cut.h5"
    h5.write_bytes(bundled_path("maniskill/StackCube-v1.h5").read_bytes()[:3000])
    assert main(["fit", f"episodes={h5}", f"out={tmp_path}/r"]) == 1
    assert "cut.h5" in sentence(capsys)
    assert not list(tmp_path.glob("r.*"))


def test_a_reference_survives_the_disk(reference: Path, demos: list[Episode]) -> None:
    made = fit(demos[:30], load_spec("stack_cube")).reference
    back, about = load_reference(reference)
    assert back.spec == made.spec and back.pairs == made.pairs and about == {"demonstrations_hash": "0"}
    np.testing.assert_allclose(back.nominal, made.nominal, atol=1e-6)


def test_a_broken_reference_is_one_sentence(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in (".npz", ".json"):
        shutil.copy(f"{reference}{suffix}", tmp_path / f"broken{suffix}")
    (tmp_path / "broken.npz").write_bytes((tmp_path / "broken.npz").read_bytes()[:500])
    assert main(["score", f"reference={tmp_path}/broken", "episodes=bundled:stack_cube_demos"]) == 1
    assert "fit it again" in sentence(capsys)


def test_unknown_verb_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scroe"]) == 2
    assert "expected one of fit, score, report, demo" in capsys.readouterr().err
    assert main([]) == 0
    assert "learn a reference" in capsys.readouterr().out


def test_agree_joins_scores_and_ratings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"e{k},{k / 12},{k > 5}" for k in range(12)]
    (tmp_path / "scores.csv").write_text("\n".join(["episode,Q,success_at_end", *lines]))
    rated = [f"e{k},{rater},{k // 3 + (k % 2 and rater == 'x')}" for k in range(12) for rater in "xy"]
    (tmp_path / "ratings.csv").write_text("\n".join(["episode,rater,rating", *rated]))
    args = ["agree", f"metrics={tmp_path}/scores.csv", f"out={tmp_path}/out", "resamples_n=200"]
    assert main([*args, f"ratings={tmp_path}/ratings.csv"]) == 0
    out = capsys.readouterr().out
    assert "ICC(2,1)" in out and out.splitlines()[-1] == f"agreement: {tmp_path}/out/agreement.csv"
    assert main(["agree", f"metrics={tmp_path}/none.csv", f"out={tmp_path}/out"]) == 1
    assert "there is no such file" in sentence(capsys)


def test_settings_that_are_named_by_the_person(tmp_path: Path) -> None:
    """Keys of `rename`, `options`, `columns`, `records` are anything at all: no plus sign is asked for."""
    args = ["convert", "bundled:stack_cube_oracle", f"out={tmp_path}/out", "rename.cubeA=box"]
    assert main(args) == 0
    assert open_source(tmp_path / "out").bodies == ("table", "box", "cubeB", "tcp")
