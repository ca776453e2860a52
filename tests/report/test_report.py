"""The report: what it says equals what was scored, it stands alone, and its sentences are right."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from plotly.offline import get_plotlyjs

from jaxeval.io.errors import InputError
from jaxeval.metrics import geometric as G
from jaxeval.report.figures import track_figure
from jaxeval.report.page import write_report
from jaxeval.report.scored import _add_bins, natural, read_frames, read_scored
from jaxeval.report.section import TABLE_N
from jaxeval.report.summary import constraint_map, costly_stretch, worst_executions
from jaxeval.report.words import axis_words, direction_words, gate_words
from jaxeval.run.fit import Fit, table
from jaxeval.run.report import report
from jaxeval.types import Pair
from tests.report.scored_set import Made, Page, pixels, rewritten

ON_TABLE, ON_CUBE, IN_GRIPPER = (
    Pair("cubeA", "table", "m_s"),
    Pair("cubeA", "cubeB", "m_r"),
    Pair("cubeA", "tcp", "m_g"),
)


# ------------------------------------------------------------------------------------------------------------ the page


def test_the_page_loads_nothing_and_escapes_everything(made: Made) -> None:
    page = Page(made.html)
    assert page.loads and all(x.startswith("data:image/png;base64,") for x in page.loads)
    ours = re.sub(r"base64,[^\"]*", "", made.html.replace(get_plotlyjs(), "", 1))
    assert "://" not in ours and "@import" not in ours and len(ours) < 1_500_000
    assert "default-src 'none'; img-src data:" in ours  # so that nothing in it can fetch, whatever it is made to draw
    assert "a &lt;note&gt;" in made.html and "<note>" not in made.html
    assert not list(made.path.parent.rglob("*.writing"))


def test_every_figure_is_there_and_is_not_blank(made: Made) -> None:
    page = Page(made.html)
    files = sorted((made.path.parent / "figures").glob("*.png"))
    assert [f.stem for f in files] == [
        "constraints", "cost", "manipulability", "motion", "quality", "trajectories",
        *(f"worst_{k}" for k in range(1, 7)),
    ]  # fmt: skip
    inside = {base64.b64decode(str(i["src"]).split(",")[1]) for i in page.images}
    assert inside == {f.read_bytes() for f in files}
    for image in page.images:
        assert len(str(image["alt"])) > 20
        grey = pixels(base64.b64decode(str(image["src"]).split(",")[1]))
        assert grey.shape[1] >= 1200 and grey.shape[0] >= 300 and grey.std() > 15


def test_the_table_holds_every_execution_with_its_numbers(made: Made) -> None:
    rows = Page(made.html).tables["executions"][1:]
    scores = {r["episode"]: r for r in pq.read_table(made.scores / "scores.parquet").to_pylist()}
    times = {
        (r["episode"], r["frame"]): r["t_s"] for r in pq.read_table(made.scores / "frame_costs.parquet").to_pylist()
    }
    order = list(scores)
    assert {r[0] for r in rows} == set(scores) and len(rows) == len(scores) == 40
    for episode, group, q, reason, sub_task, time, sparc, least_w in rows:
        want = scores[episode]
        assert (sparc, least_w) == (f"−{-want['smoothness.sparc']:.2f}", f"{want['kinematic.min_w']:.3f}")
        assert (group, q, sub_task) == (want["group"], f"{want['Q']:.3f}", want["worst_sub_task"])
        assert reason == (want["gate_reason"] or want["worst_direction"])
        assert time == f"{times[order.index(episode), want['worst_frame']]:.2f} s"
    shown = [float(r[2]) for r in rows]
    assert shown == sorted(shown)


def test_the_groups_are_summarised_in_natural_order(made: Made) -> None:
    scores = pq.read_table(made.scores / "scores.parquet").to_pylist()
    rows = Page(made.html).tables["groups"][1:]
    assert [r[0] for r in rows] == ["tilt 0 deg", "tilt 10 deg", "tilt 25 deg", "tilt 45 deg"]
    for name, n, judged, mean, low, high, closed, _, _ in rows:
        q = [r["Q"] for r in scores if r["group"] == name]
        assert (n, judged, closed) == ("10", "10", "0")
        assert (mean, low, high) == (f"{np.mean(q):.3f}", f"{min(q):.3f}", f"{max(q):.3f}")


def test_the_cost_map_is_the_mean_over_executions_of_their_mean_in_a_bin(made: Made) -> None:
    scored = read_scored(made.scores, made.reference)
    frames = read_frames(scored, made.reference, tracks=[3], times=[3])
    assert frames is not None
    table = pq.read_table(made.scores / "frame_costs.parquet").to_pydict()
    episode, bins = np.array(table["episode"]), np.array(table["progress_bin"])
    cost = np.array(table["cost.cubeA | table"])
    g = scored.groups.index("tilt 45 deg")
    l = int(np.nanargmax(frames.mean_cost[g, 1]))
    means = [
        cost[(episode == e) & (bins == l)].mean() for e in scored.rows_of(g) if ((episode == e) & (bins == l)).any()
    ]
    assert frames.mean_cost[g, 1, l] == pytest.approx(np.mean(means), rel=1e-6) and np.mean(means) > 0.05
    np.testing.assert_allclose(frames.tracks[3].cost[1], cost[episode == 3])


def test_bins_of_unequal_length_count_each_execution_once() -> None:
    total, count = np.zeros((1, 1, 2)), np.zeros((1, 1, 2))
    episode, bins = np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 1, 0])
    _add_bins(total, count, np.zeros(5, int), episode, bins, np.array([[1.0, 1.0, 1.0, 5.0, 3.0]]))
    assert total[0, 0].tolist() == [4.0, 5.0] and count[0, 0].tolist() == [2.0, 1.0]  # pooled frames would give 6 of 4


def test_what_was_skipped_is_named(made: Made, tmp_path: Path) -> None:
    def change(rows: list[dict]) -> list[dict]:
        rows[0] |= {
            "Q": None,
            "gate": None,
            "gate_free_Q": None,
            "valid": False,
            "status": "insufficient tracking: lost",
        }
        rows[0] |= {"worst_direction": None, "worst_frame": None, "worst_sub_task": None, "findings": ["pose_jump"]}
        rows[1] |= {"Q": 0.0, "gate": False, "gate_reason": "sub-task 'place' is never reached"}
        return rows

    folder = rewritten(made, tmp_path / "scores", change)
    told = json.loads((folder / "score.json").read_text())
    told |= {"skipped_pairs": ["cubeA | tcp"], "notes": ["no body tcp"], "refused": [["x.h5", "x.h5: truncated"]]}
    (folder / "score.json").write_text(json.dumps(told))
    about = {"left_out": [["seed=30", "not successful"]], "demonstrations_hash": None}
    path = write_report(folder, made.reference, about=about, out=tmp_path / "out")
    html = path.read_text()
    for text in (
        "insufficient tracking: lost", "cubeA | tcp", "no body tcp", "x.h5: truncated", "seed=30: not successful",
        "pose_jump: 1 executions", "frame_costs.parquet was not written", "Not drawn",
    ):  # fmt: skip
        assert text in html, text
    rows = {r[0]: r for r in Page(html).tables["executions"][1:]}
    scores = pq.read_table(folder / "scores.parquet").to_pylist()
    assert rows[scores[0]["episode"]][2:4] == ["–", "not judgedinsufficient tracking: lost"]
    assert rows[scores[1]["episode"]][2:4] == ["0.000", "gate closedsub-task 'place' is never reached"]
    assert rows[scores[1]["episode"]][5] == f"frame {scores[1]['worst_frame']}"
    assert sorted(f.stem for f in (path.parent / "figures").glob("*.png")) == ["constraints", "quality"]


def test_a_large_set_gives_a_small_page(made: Made, tmp_path: Path) -> None:
    def change(rows: list[dict]) -> list[dict]:
        return [r | {"episode": f"{i}", "group": f"g{i % 30}", "Q": i / 1500, "gate_free_Q": i / 1500}
                for i, r in enumerate(rows * 30)]  # fmt: skip

    folder = rewritten(made, tmp_path / "scores", change)
    path = write_report(folder, made.reference, about={}, out=tmp_path / "out")
    html = path.read_text()
    rows = Page(html).tables["executions"][1:]
    assert len(html) < 700_000 and [r[0] for r in rows] == [str(i) for i in range(TABLE_N)]
    assert "200 lowest of 1200" in html and "Groups left out of the figure of Q" in html


def test_a_second_report_leaves_no_figure_of_the_first(made: Made, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("worst_6", "trajectories"):
        (tmp_path / "figures" / f"{name}.png").write_bytes(b"old")
    folder = rewritten(made, tmp_path / "scores", lambda rows: rows[:2])
    write_report(folder, made.reference, about={}, out=tmp_path)
    assert not [f for f in (tmp_path / "figures").iterdir() if f.read_bytes() == b"old"]


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda d: (d / "scores.parquet").unlink(), "scores.parquet: no such file"),
        (lambda d: (d / "score.json").unlink(), "score.json: no such file"),
        (lambda d: (d / "score.json").write_text("{"), "score.json: "),
        (lambda d: (d / "scores.parquet").write_bytes(b"PAR1 no"), "scores.parquet: cannot be read"),
        (lambda d: (d / "frame_costs.parquet").write_bytes(b"PAR1 no"), "frame_costs.parquet: cannot be read"),
        (lambda d: (d / "score.json").write_text((d / "score.json").read_text().replace("cubeB", "x")), "pairs is"),
    ],
)
def test_bad_input_is_one_sentence(made: Made, tmp_path: Path, break_it, says: str) -> None:
    folder = rewritten(made, tmp_path / "scores", lambda rows: rows)
    break_it(folder)
    with pytest.raises(InputError) as error:
        report(folder, made.scores.parent / "reference", tmp_path / "out")
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out" / "report.html").exists()


def test_an_output_that_is_a_file_is_refused(made: Made, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        report(made.scores, made.scores.parent / "reference", tmp_path / "out")


# ---------------------------------------------------------------------------------------------------------------- words


def direction(*rho: float, turn_deg: tuple[float, float, float] = (0, 0, 0)) -> np.ndarray:
    return np.array([*rho, *np.radians(turn_deg)])


def turn_vector(*wxyz: float) -> np.ndarray:
    q = np.array(wxyz) / np.linalg.norm(wxyz)
    return q[1:] / np.linalg.norm(q[1:]) * 2 * np.arccos(q[0])


def unit(*v: float) -> np.ndarray:
    return np.array(v) / np.linalg.norm(v)


@pytest.mark.parametrize(
    ("pair", "deviation", "axis", "says"),
    [
        (ON_TABLE, direction(0, 0, 0, turn_deg=(-23, 0, 0)), unit(0, 0, 0, 1, 0, 0),
         "cubeA tilts 23 deg about its x axis relative to the table"),
        (ON_CUBE, direction(0, 0, 0.012), unit(0, 0, 1, 0, 0, 0),
         "cubeA is 12 mm off along its z axis relative to cubeB"),
        (IN_GRIPPER, direction(0, 0, 0, turn_deg=(0, 0, 40)), unit(0, 0, 0, 0, 0, 1),
         "the gripper is turned 40 deg about the z axis of cubeA"),
        # both tilts are held alike, so v is one axis of them; the body leans 25 deg, not 18 about x
        (ON_TABLE, direction(0, 0, 0, turn_deg=(17.68, 17.68, 0)), unit(0, 0, 0, 1, 0, 0),
         "cubeA tilts 25 deg about a diagonal of its x and y axes relative to the table"),
        # a tilt of 45 deg about x, then a free turn of 45 deg about z: 2 acos(.8536) = 63 deg in all, but it leans 45
        (ON_TABLE, np.concatenate([np.zeros(3), turn_vector(0.8536, 0.3536, 0.1464, 0.3536)]), unit(0, 0, 0, 1, 0, 0),
         "cubeA tilts 45 deg about its x axis relative to the table"),
        # the part about x is small beside the tilt about y, which may be free: only x is told
        (ON_TABLE, direction(0, 0, 0, turn_deg=(10, 40, 0)), unit(0, 0, 0, 1, 0, 0),
         "cubeA tilts 10 deg about its x axis relative to the table"),
        # 3-4-5: along v it is 5 mm off, not 4; 30 mm along z are free
        (ON_CUBE, direction(0.003, 0.004, 0.030), unit(3, 4, 0, 0, 0, 0),
         "cubeA is 5 mm off along a diagonal of its x and y axes relative to cubeB"),
        # mostly a shift: told as one, although the body is turned as well
        (ON_CUBE, direction(0.02, 0, 0, turn_deg=(0, 30, 0)), unit(0.8, 0, 0, 0, 0.6, 0),
         "cubeA is 20 mm off along its x axis relative to cubeB"),
    ],
)  # fmt: skip
def test_a_direction_in_words(pair: Pair, deviation: np.ndarray, axis: np.ndarray, says: str) -> None:
    assert direction_words(pair, deviation, axis) == says
    assert direction_words(pair, deviation, -axis) == says


@pytest.mark.parametrize("v", [(0.74, 0.13, 0.13), (0.34, 0.33, 0.33), (0.5, 0.5, 0.0)])
def test_an_axis_always_has_a_name(v: tuple[float, float, float]) -> None:
    assert re.fullmatch(r"a diagonal of its [xyz](, [xyz])? and [xyz] axes", axis_words(np.sqrt(v)))


def test_a_gate_in_words(made: Made) -> None:
    assert gate_words(made.reference, G.GATE_OPEN, -1) == ""
    named = made.reference.spec.sub_tasks[3].name
    assert gate_words(made.reference, G.GATE_SUB_TASK, 3) == f"sub-task '{named}' is never reached"
    assert gate_words(made.reference, G.GATE_TERMINAL, 6 + 2) == "final position of cubeA | table is off"
    assert gate_words(made.reference, G.GATE_SUCCESS, -1) == "the episode's success flag is False"


# ------------------------------------------------------------------------------------------------------- what is chosen


def test_the_stretch_that_cost_most_is_not_the_highest_spike() -> None:
    t_s, cost = np.arange(10.0), np.array([0, 4, 0, 0, 2, 2, 2, 2, 0, 0.0])
    assert costly_stretch(t_s, cost) == (4.0, 7.0, pytest.approx(8 / 12))
    assert costly_stretch(t_s, np.zeros(10)) is None


def test_worst_executions_hold_closed_gates_and_open_ones(made: Made, tmp_path: Path) -> None:
    def change(rows: list[dict]) -> list[dict]:
        for r in rows[::4][:5]:
            r |= {"Q": 0.0, "gate": False, "gate_reason": "the episode's success flag is False"}
        return rows

    scored = read_scored(rewritten(made, tmp_path / "scores", change), made.reference)
    worst = worst_executions(scored)
    assert [bool(scored.closed[i]) for i in worst] == [True] * 3 + [False] * 3
    low = np.sort(scored.q[~scored.closed])[:3]
    np.testing.assert_array_equal(scored.q[worst[3:]], low)


def test_the_constraint_map_counts_what_the_reference_pins(made: Made) -> None:
    held = constraint_map(made.reference, G.GeometricParams())
    found = G.constraints(made.reference, G.GeometricParams())
    np.testing.assert_array_equal(held.pinned_n, np.asarray(found.pinned).sum(-1))
    assert held.admissible_mm is not None and held.admissible_mm[0] == pytest.approx(4.5)
    assert np.nanmax(held.spread_mm) < 4.0 and (np.isfinite(held.spread_mm) == (held.pinned_n > 0)).all()


def test_natural_order() -> None:
    assert sorted(["tilt 25 deg", "tilt 5 deg", "clean", "tilt 10.5 deg"], key=natural) == [
        "clean", "tilt 5 deg", "tilt 10.5 deg", "tilt 25 deg",
    ]  # fmt: skip


def test_the_table_of_a_fit_keeps_names_of_any_length_apart(made: Made) -> None:
    sub_tasks = [dataclasses.replace(s, name=f"{s.name}_of_the_red_cube") for s in made.reference.spec.sub_tasks]
    spec = dataclasses.replace(made.reference.spec, sub_tasks=tuple(sub_tasks))
    _, head, *rows = table(Fit(dataclasses.replace(made.reference, spec=spec), (), (), ())).splitlines()
    assert head.split()[-len(sub_tasks) :] == [s.name for s in sub_tasks]
    assert len(rows) == len(made.reference.pairs)
    for row in rows:
        assert len(row) == len(head)
        assert all(re.fullmatch(r"[0-6](-[0-6])?", cell) for cell in row.split()[3:])
        assert len(row.split()) == 3 + len(sub_tasks)


def test_a_relation_too_cheap_to_see_is_not_in_the_legend() -> None:
    cost = np.array([[0.0, 2.0, 1.0], [0.0, 0.01, 0.0], [0.5, 0.0, 0.0]])
    figure = track_figure(np.arange(3.0), cost, ["a | b", "a | c", "b | c"], ["push"], np.array([2.0]), 1)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a | b", "b | c"]
