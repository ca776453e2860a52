"""Sections of the report: drawn where their columns are, with the numbers of the scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from statsmodels.stats.proportion import proportion_confint

from jaxeval.io.errors import InputError
from jaxeval.metrics.registry import all_metrics
from jaxeval.report.conditions import conditions
from jaxeval.report.scored import read_scored
from jaxeval.report.sections import SECTIONS, sections_of
from jaxeval.run.report import report
from tests.report.scored_set import Page, pixels


def scores(folder: Path, rows: list[dict[str, Any]], **told: Any) -> Path:
    """A folder as `jaxeval score` leaves it, of these rows beside what every row has."""
    folder.mkdir(parents=True, exist_ok=True)
    every = {"task": "t", "group": "", "Q": None, "gate": None, "valid": True, "status": "ok"}
    table = pa.Table.from_pylist([{"episode": f"e{i}", **every, **row} for i, row in enumerate(rows)])
    pq.write_table(table, folder / "scores.parquet")
    (folder / "score.json").write_text(json.dumps({"metrics": ["stages"], "task": "t", **told}))
    return folder


def staged(n: int, speed: float, reached: list[bool], cause: str, **more: Any) -> list[dict[str, Any]]:
    names = ["grasp <it>", "hang_up"]
    stages = {f"stage.{name}": r for name, r in zip(names, reached, strict=True)}
    times = {f"stages.{name}_s": 2.0 * speed if r else None for name, r in zip(names, reached, strict=True)}
    return [{"speed": speed, **stages, **times, "cause": cause, "success_at_end": cause == "success", **more}] * n


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    margins = {"grasp.margin.acquired": 0.02, "grasp.contacts.acquired": 4.0, "grasp.status.acquired": "closure"}
    none = {"grasp.margin.acquired": None, "grasp.contacts.acquired": 0.0, "grasp.status.acquired": "no <finger>"}
    return [
        *staged(8, 1.0, [True, True], "success", **margins),
        *staged(2, 1.0, [True, False], "hang_up not reached", **margins | {"grasp.margin.acquired": -0.01}),
        *staged(3, 2.0, [True, True], "success", **margins),
        *staged(7, 2.0, [False, False], "grasp <it> not reached", **none),
    ]


@pytest.fixture(scope="module")
def made(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = report(scores(tmp_path_factory.mktemp("staged"), rows), None, None)
    return path, path.read_text()


def test_stages_of_any_name_have_a_funnel_causes_and_success(made: tuple[Path, str]) -> None:
    path, html = made
    page = Page(html)
    assert "<h1>Stages of 20 executions of t</h1>" in html and "<b>11 of 20</b><span>succeeded</span>" in html
    told = {str(i["alt"]) for i in page.images}
    assert any("speed 2 (n = 10): grasp <it> 3 of 10, hang up 3 of 10, success 3 of 10" in alt for alt in told)
    assert any("speed 1 (n = 10): grasp <it> 10 of 10, hang up 8 of 10, success 8 of 10" in alt for alt in told)
    assert page.tables["causes"][1:] == [
        ["success", "8", "3", "11"], ["grasp <it> not reached", "0", "7", "7"], ["hang_up not reached", "2", "0", "2"],
    ]  # fmt: skip
    assert page.tables["stage-times"][1:] == [["grasp <it>", "2", "4 (3)", *[stage_meaning("grasp <it>")]],
                                              ["hang up", "2 (8)", "4 (3)", stage_meaning("hang_up")]]  # fmt: skip
    for name in ("funnel", "causes", "success", "grasp"):
        grey = pixels((path.parent / "figures" / f"{name}.png").read_bytes())
        assert grey.shape[1] >= 1200 and grey.std() > 15
    assert "<it>" not in html


def stage_meaning(name: str) -> str:
    """No metric describes a stage of these names unless stages are a family."""
    from jaxeval.io.records.columns import meaning_of

    found = meaning_of(f"stages.{name}_s")
    return found.meaning if found else ""


def test_success_by_condition_has_wilson_intervals(made: tuple[Path, str]) -> None:
    rows = Page(made[1]).tables["success"][1:]
    assert [r[:4] for r in rows] == [["speed", "1", "8", "10"], ["speed", "2", "3", "10"]]
    for k, row in ((8, rows[0]), (3, rows[1])):
        low, high = proportion_confint(k, 10, method="wilson")
        assert row[4] == f"{10 * k} [{100 * low:.0f}, {100 * high:.0f}]"


def test_the_table_of_executions_tells_the_last_stage_and_the_cause(made: tuple[Path, str]) -> None:
    table = Page(made[1]).tables["executions"]
    assert table[0] == ["Execution", "Group", "Last stage", "Cause"]
    assert table[1] == ["e0", "all", "hang up", "success"] and table[9][2:] == ["grasp <it>", "hang_up not reached"]
    assert table[20] == ["e19", "all", "none", "grasp <it> not reached"]


def test_grasps_are_told_by_outcome_and_statuses_are_counted(made: tuple[Path, str]) -> None:
    tables = Page(made[1]).tables
    assert tables["grasp"] == [
        ["Moment", "Outcome", "Executions", "With a margin", "Mean margin", "Mean contacts", "Margin above 0"],
        ["acquired", "succeeded", "11", "11", "0.0200", "4.0", "11 of 11"],
        ["acquired", "failed", "9", "2", "−0.0100", "0.9", "0 of 2"],
    ]
    assert tables["grasp-statuses"][1:] == [["closure", "13"], ["no <finger>", "7"]]


def test_conditions_are_what_differs_and_each_parting_is_told_once(tmp_path: Path) -> None:
    rows = [
        {"speed": 1.0 + k % 2, "told_speed": 3.0 * (1 + k % 2), "group": f"g{k % 3}", "attribute.policy": "ab"[k // 6],
         "attribute.simulator": "mujoco", "attribute.k": k, "stage.a": True}
        for k in range(12)
    ] * 2  # fmt: skip
    rows = [row | {"attribute.k": k} for k, row in enumerate(rows)]
    found = conditions(read_scored(scores(tmp_path / "a", rows), None))
    assert [(c.title, c.names) for c in found] == [
        ("speed", ["1", "2"]), ("group", ["g0", "g1", "g2"]), ("policy", ["a", "b"]),
    ]  # fmt: skip
    assert [len(r) for r in found[1].rows] == [8, 8, 8]
    alike = conditions(read_scored(scores(tmp_path / "b", [{"stage.a": True}] * 3), None))
    assert [(c.column, c.levels) for c in alike] == [("group", ("all",))]


def test_tracks_are_drawn_and_ordered_by_their_error(tmp_path: Path) -> None:
    rows = [
        {"tracking.seen.translation_m_mean": 1e-3 * e, "tracking.seen.coverage": 0.5, "tracking.seen.lost_n": 4,
         "tracking.seen.status": "ok"} for e in (1.0, 3.0, 2.0)
    ]  # fmt: skip
    rows.append({"tracking.seen.coverage": 0.0, "tracking.seen.lost_n": 9, "tracking.seen.status": "never seen"})
    path = report(scores(tmp_path, rows, metrics=["tracking"]), None, None)
    html = path.read_text()
    tables = Page(html).tables
    assert tables["tracking-1"][1:] == [["all", "4", "2.0 (3)", "38"]]
    assert tables["tracking-frames-1"][1:] == [["all", "4", "5.2"]]
    assert [r[0] for r in tables["executions"][1:]] == ["e1", "e2", "e0", "e3"]
    assert tables["executions"][4][2:] == ["–", "0"] and "tracking.seen.status: 1 of 4: never seen" in html
    assert pixels((path.parent / "figures" / "tracking.png").read_bytes()).std() > 15


def test_every_section_is_asked_for_by_a_metric_and_the_unknown_gets_the_generic_one(tmp_path: Path) -> None:
    assert {s.name for s in SECTIONS} == {m.section for m in all_metrics().values()}
    about = {"kind": "number", "unit": "m", "direction": "higher", "meaning": "how far", "section": "own_words"}
    folder = scores(
        tmp_path,
        [{"own.far_m": float(k), "stage.a": True, "cause": "success"} for k in range(4)],
        columns={"own.far_m": about},
    )
    found = [s.title for s in sections_of(read_scored(folder, None))]
    assert found == ["Geometric quality", "Stages", "Own words"]  # every table has a column Q
    html = report(folder, None, None).read_text()
    assert "<h2>Own words</h2>" in html and "how far" in html and "Q by group" not in html


def test_scores_of_no_metric_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column of a metric, expected at least one; score with metrics="):
        report(scores(tmp_path, [{"speed": 1.0}]), None, None)


def test_a_second_report_leaves_no_figure_of_another_kind(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    report(scores(tmp_path, rows), None, None)
    assert (tmp_path / "figures" / "funnel.png").is_file()
    track = {"tracking.seen.translation_m_mean": 0.01, "tracking.seen.coverage": 1.0}
    report(scores(tmp_path, [track] * 2), None, None)
    assert [p.name for p in (tmp_path / "figures").iterdir()] == ["tracking.png"]
    assert np.asarray(pixels((tmp_path / "figures" / "tracking.png").read_bytes())).size
