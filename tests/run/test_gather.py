"""A multirun's folders have short names that differ, and its runs become one table and one figure."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.cli import main
from jaxeval.cli_sweep import LONGEST_N, folder_name, swept, value_of
from jaxeval.io import write_store
from jaxeval.io.in_memory import episode
from jaxeval.report.gathered import curve, heat_map
from jaxeval.run.gather import gather, text
from jaxeval.types import InputError

# ------------------------------------------------------------------------------------------------------------- names


def test_names_of_folders_are_short_and_differ() -> None:
    settings = [
        {"metric.sigma_pin_m": "0.004"},
        {"metric.sigma_pin_m": "0.009"},
        {"reference": "/a/b/first"},
        {"reference": "/c/d/first"},  # another path, the same last part
        {"episodes": "bundled:a/b"},
        {"episodes": "bundled_a_b"},
        {"stages.near_m": "1", "tracking.near_m": "1"},
        {"metric.near_m": "1"},
        {"columns": "x" * 300},
        {"columns": "x" * 301},
    ]
    names = [folder_name(s) for s in settings]
    assert all(a != b for a, b in combinations(names, 2))
    assert all(len(n) <= LONGEST_N and "/" not in n and ":" not in n for n in names)
    assert names[0] == "sigma_pin_m=0.004" and names[6] == "stages.near_m=1,tracking.near_m=1"
    assert names[2].startswith("reference=first-")


def test_what_every_run_was_told_alike_is_not_swept() -> None:
    words = ["-m", "reference=/data/r", "metric.z_0=1,2", "+frames=true", "hydra.sweep.dir=/x"]
    told = ["reference=/data/r", "metric.z_0=2", "+frames=true", "bins_n=5", "hydra.sweep.dir=/x"]
    assert swept(told, words) == {"metric.z_0": "2", "bins_n": "5"}


# ------------------------------------------------------------------------------------------------------- a multirun


@pytest.fixture(scope="module")
def multirun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    assert main(["fit", "episodes=bundled:stack_cube_demos", "demonstrations_n=5", f"out={folder / 'r'}"]) == 0
    words = ["score", "-m", f"reference={folder / 'r'}", "episodes=bundled:stack_cube_tilt", f"out={folder / 'out'}"]
    assert main([*words, "metric.z_0=1.5,3"]) == 0
    return folder / "out"


def test_the_runs_of_a_sweep_become_a_table_and_a_curve(multirun: Path, capsys: Any) -> None:
    assert sorted(p.name for p in multirun.iterdir() if p.is_dir()) == ["z_0=1.5", "z_0=3"]
    capsys.readouterr()
    assert main(["gather", str(multirun)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"gathered: {multirun / 'gathered.parquet'}" and (multirun / "gathered.png").is_file()
    rows = pq.read_table(multirun / "gathered.parquet").to_pylist()
    assert [(r["z_0"], r["group"]) for r in rows[:2]] == [(1.5, "all"), (1.5, "tilt 0 deg")] and len(rows) == 10
    scores = pq.read_table(multirun / "z_0=3" / "scores.parquet").to_pydict()
    q = np.array([x for x, g in zip(scores["Q"], scores["group"], strict=True) if g == "tilt 45 deg"])
    row = next(r for r in rows if r["z_0"] == 3 and r["group"] == "tilt 45 deg")
    assert (row["n"], row["known"], row["run"]) == (10, 10, "z_0=3")
    assert row["mean"] == pytest.approx(q.mean(), abs=1e-6)
    half = 2.262157 * q.std(ddof=1) / np.sqrt(10)  # Student's t with 9 degrees of freedom
    assert (row["low"], row["high"]) == pytest.approx((q.mean() - half, q.mean() + half), abs=1e-5)


def test_speeds_are_columns_and_unfinished_stores_are_named(tmp_path: Path) -> None:
    """Two stores of a rollout, by hand: 2 of 2 at speed 1 and told 1, 0 of 1 at speed 1 told 2, 1 of 1 at speed 2."""
    poses = np.tile([1.0, 0, 0, 0, 0, 0, 0], (3, 1))
    runs = [(1.0, 1.0, True), (1.0, 1.0, True), (1.0, 2.0, False), (2.0, 1.0, True)]
    for robot in ("g1", "panda"):
        made = [
            episode({"tcp": poses}, [0.0, 0.1, 0.2], task="t", episode_id=str(k), speed=r, success_at_end=won,
                    group="act", attributes={"told_speed": told})
            for k, (r, told, won) in enumerate(runs)
        ]  # fmt: skip
        write_store(tmp_path / "t" / robot, made, task="t")
        note = {"verb": "rollout", "swept": {"embodiment": robot}}
        (tmp_path / "t" / robot / "sweep.json").write_text(json.dumps(note))
    (tmp_path / "t" / "so100").mkdir()
    gathered = gather(tmp_path)
    rows = [(r["embodiment"], r["speed"], r["told_speed"], r["n"], r["mean"]) for r in gathered.rows]
    assert rows[:4] == [("g1", None, None, 4, 0.75), ("g1", 1, 1, 2, 1), ("g1", 1, 2, 1, 0), ("g1", 2, 1, 1, 1)]
    assert gathered.unfinished == ("t/so100",) and gathered.figure is not None


def test_a_value_without_end_is_a_word_on_the_axis() -> None:
    rows = rows_of(z_0=[1.5, value_of("inf")])
    ax = curve(rows, "z_0", "Q").axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1.5", "inf"]


def test_truths_become_rates_with_wilsons_interval(multirun: Path) -> None:
    gathered = gather(multirun, value="success_at_end")
    row = gathered.rows[0]
    n = row["known"]
    assert row["mean"] == 1.0 and row["high"] == 1.0
    assert row["low"] == pytest.approx(n / (n + 1.959964**2), abs=1e-5)


def test_unfinished_runs_are_named_and_left_out(multirun: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    shutil.copytree(multirun, folder)
    (folder / "z_0=3" / "sweep.json").unlink()
    gathered = gather(folder)
    assert gathered.unfinished == ("z_0=3",) and {r["z_0"] for r in gathered.rows} == {1.5}
    assert "left out, not finished (1): z_0=3" in text(gathered)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "speeed"}, "no column 'speeed'; expected one of "),
        ({"value": "gate_reason"}, "gate_reason holds "),
        ({"verb": "fit"}, "runs of fit, score; expected those of score"),
        ({"empty": True}, "no sweep.json in it or below"),
    ],
)
def test_what_cannot_be_gathered_is_one_sentence(multirun: Path, tmp_path: Path, change: Any, says: str) -> None:
    folder = tmp_path / "sweep"
    shutil.copytree(multirun, folder)
    if "verb" in change:
        path = folder / "z_0=3" / "sweep.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"verb": "fit"}))
    if "empty" in change:
        shutil.rmtree(folder)
    with pytest.raises(InputError, match=says):
        gather(folder, value=change.get("value"))


# ---------------------------------------------------------------------------------------------------------- figures


def rows_of(**settings: list[Any]) -> list[dict[str, Any]]:
    (a, xs), *more = settings.items()
    b, ys = more[0] if more else ("run", [""])
    return [
        {a: x, b: y, "group": "all", "mean": i + 10 * j, "low": i + 10 * j - 0.5, "high": i + 10 * j + 0.5}
        for i, x in enumerate(xs)
        for j, y in enumerate(ys)
    ]


def test_a_curve_goes_through_the_means_in_the_order_of_the_setting() -> None:
    figure = curve(list(reversed(rows_of(z_0=[1.5, 3.0, 9.0]))), "z_0", "Q")
    line = figure.axes[0].get_lines()[0]
    np.testing.assert_allclose(np.asarray(line.get_xdata(), float), [1.5, 3.0, 9.0])
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), [0, 1, 2])


def test_words_stand_side_by_side() -> None:
    ax = curve(rows_of(penalty=["hinge", "squared"]), "penalty", "Q").axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["hinge", "squared"]


def test_a_heat_map_has_each_mean_at_its_pair_and_a_hole_where_no_run_is() -> None:
    rows = rows_of(across=[1, 2, 3], up=["a", "b"])[:-1]  # without (3, "b")
    image = heat_map(rows, "across", "up", "Q").axes[0].get_images()[0]
    grid = np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan)
    np.testing.assert_array_equal(grid, [[0, 1, 2], [10, 11, np.nan]])
