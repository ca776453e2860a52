"""The verbs as a person types them: what they leave behind, and one sentence for each kind of bad input."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.cli import VERBS, main
from jaxeval.io import bundled_path, open_source, write_store
from jaxeval.io.errors import InputError
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
    cut = {
        "poses": good.poses[:1],
        "time_s": good.time_s[:1],
        "valid": good.valid[:1],
        "frame_valid": good.frame_valid[:1],
    }
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


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_the_verbs_own(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"jaxeval {verb} ") and "Hydra" not in out and "override" not in out
    settings = [line.split(":")[0] for line in out.splitlines() if line[:1].isalpha() and ": " in line]
    assert ("task" in settings) == (verb in ("fit", "rollout"))
    assert "closed vocabulary" not in out and ("sigma_pin_m: 0.004" in out) == (verb in ("score", "demo"))


RECORDS = "policy,initial_condition_id,initial_condition_hash,success,speed\n" + "".join(
    f"{policy},{k},h{k},{'yes' if k % n else 'no'},1\n"
    for policy, n in (("10000", 2), ('"π₀ (ft, 10k)"', 3))
    for k in range(12)
)


def test_compare_takes_names_and_paths_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "it's mine, ü (1)"
    folder.mkdir()
    (folder / "a=b.csv").write_text(RECORDS)
    for b in ("π₀ (ft, 10k)", "['π₀ (ft, 10k)']"):
        args = ["compare", f"records={folder}/a=b.csv", "a=10000", f"b={b}", f"out={folder}/out", "resamples_n=100"]
        assert main([*args, "conditions=speed"]) == 0
        out = capsys.readouterr().out
        assert "6/12" in out and "8/12" in out and out.splitlines()[-1] == f"report: {folder}/out/report.html"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("b=null", "b is empty, expected a policy"),
        ("a=null", "a is null, expected one name"),
        ("a=20000", "no policy '20000', found 10000"),
        ("level=abc", "level is 'abc', expected a number"),
        ("margin=[1]", "margin is [1], expected a number"),
        ("resamples_n=abc", "resamples_n is 'abc', expected a whole number"),
        ("resamples_n=200.5", "resamples_n is 200.5, expected a whole number"),
        ("seed=x", "seed is 'x', expected a whole number"),
        ("records=5", "5: there is no such file or folder"),
        ("records=null", "records: found None, expected a path"),
        ("columns=group", "columns is 'group'"),
        ("conditions=nope", "no column 'nope'"),
        ("by=[speed]", "by is ['speed'], expected one name"),
        ("last=[2]", "last is [2], expected one level"),
        ("correction={a:1}", "correction is {'a': 1}, expected one name"),
        ("out=null", "out is null, expected a folder"),
    ],
)
def test_bad_settings_of_compare_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, expected: str
) -> None:
    (tmp_path / "r.csv").write_text(RECORDS)
    args = ["a=10000", "b=10000", f"records={tmp_path}/r.csv", f"out={tmp_path}/out"]
    args = [arg for arg in args if arg.partition("=")[0] != setting.partition("=")[0]]
    assert main(["compare", *args, setting]) == 1
    assert expected in sentence(capsys)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["half_width=abc"], "half_width is 'abc', expected a share above 0 and up to 0.5"),
        (["half_width=5"], "give half_width=0.05 for 5 points"),
        (["half_width=0"], "half_width is 0, expected a share"),
        (["half_width=0.1", "power=80"], "power is 80, expected a share above 0 and below 1"),
        (["half_width=0.1", "power=null"], "power is None, expected a share"),
        (["half_width=0.1", "level=95"], "give level=0.95 for 95 %"),
        (["a=84", "b=53"], "give a=0.84 for 84 %"),
        (["a=0.5", "b=[1]"], "b is [1], expected a share"),
        (["a_only=0.8", "b_only=0.7"], "a_only and b_only are 0.8 and 0.7"),
    ],
)
def test_bad_settings_of_plan_are_one_sentence(
    capsys: pytest.CaptureFixture[str], settings: list[str], expected: str
) -> None:
    assert main(["plan", *settings]) == 1
    assert expected in sentence(capsys)


def test_agree_takes_one_for_a_list_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    got: dict[str, Any] = {}

    def asked(metrics: Any, ratings: Any, **settings: Any) -> None:
        got.update(settings, metrics=metrics, ratings=ratings)
        raise InputError("asked")

    monkeypatch.setattr("jaxeval.run.agree.agree", asked)
    args = ["agree", f"metrics={tmp_path}/s ü.csv", f"out={tmp_path}/out", "ratings=r (1).csv"]
    single = ["columns=margin", "lower=margin", "given=speed", "holdout=speed", "fit=1"]
    for given in (single, [f"{key}=[{value}]" for key, _, value in (x.partition("=") for x in single)]):
        given[3] = single[3]
        assert main([*args, *given]) == 1
        assert got["columns"] == ["margin"] and got["given"] == ["speed"] and got["fit"] == [1]
        assert got["settings"].lower == ("margin",) and got["ratings"] == "r (1).csv"
        assert got["metrics"] == [f"{tmp_path}/s ü.csv"] and got["holdout"] == "speed"
    assert main([*args, "holdout=policy", "fit=10000"]) == 1 and got["fit"] == ["10000"]
    assert main([*args]) == 1 and got["fit"] is None and got["columns"] is None and not got["given"]
    capsys.readouterr()
    for setting, expected in (
        ("level=x", "level is 'x', expected a number"),
        ("seed=-1", "seed is -1, expected a whole number from 0"),
        ("metrics=null", "metrics is empty"),
        ("ratings=[a,b]", "ratings is ['a', 'b'], expected one name"),
        ("columns={Q:x}", "columns holds {'Q': 'x'}, expected names"),
    ):
        assert main([*[a for a in args if a.partition("=")[0] != setting.partition("=")[0]], setting]) == 1
        assert expected in sentence(capsys)


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
