"""The report of motion: its numbers are the scores', the unknown is said to be, its figures show what was scored."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from jaxeval.cli import main
from jaxeval.io.errors import InputError
from jaxeval.report.motion import (
    PATH_GROUPS_N,
    PATHS_N,
    POINTS_N,
    SPARC,
    MotionTrack,
    chosen_executions,
    chosen_paths,
    read_motion,
    read_motion_frames,
    spectrum_of,
    sub_task_spans,
)
from jaxeval.report.motion_figures import manipulability_figure, motion_figure
from jaxeval.report.motion_space import trajectories_in_space
from jaxeval.report.page import write_report
from jaxeval.report.scored import Scored, read_scored
from jaxeval.run.report import report
from tests.report.scored_set import Made, Page, rewritten


@pytest.fixture(scope="module")
def scored(made: Made) -> Scored:
    return read_scored(made.scores, made.reference)


def rows_of(made: Made) -> list[dict]:
    return pq.read_table(made.scores / "scores.parquet").to_pylist()


def minus(text: str) -> str:
    """With the true minus sign of the report."""
    return text.replace("-", "−")


def without_q(made: Made, folder: Path, change: Callable[[list[dict]], list[dict]] = lambda rows: rows) -> Path:
    """The scores as they are when made without a reference; no frames."""
    folder.mkdir(parents=True)
    kept = [c for c in rows_of(made)[0] if "." not in c or re.fullmatch(r"(smoothness|kinematic)\.\w+", c)]
    kept = [c for c in kept if not c.startswith(("worst_", "mean_cost", "gate_"))]
    rows = change([{c: r[c] for c in kept} | {"Q": None, "gate": None} for r in rows_of(made)])
    pq.write_table(pa.Table.from_pylist(rows), folder / "scores.parquet")
    told = json.loads((made.scores / "score.json").read_text())
    told = {k: v for k, v in told.items() if k not in ("params", "pairs", "sub_tasks", "bins_n")}
    (folder / "score.json").write_text(json.dumps(told | {"metrics": ["smoothness", "kinematic"]}))
    return folder


def shown(html: str) -> str:
    """What a page says, without its scripts, styles and pictures."""
    return re.sub(r"(?s)<script.*?</script>|<style.*?</style>|base64,[^\"]*", "", html.replace(get_plotlyjs(), ""))


def track(n: int = 5, **given: np.ndarray) -> MotionTrack:
    """A straight motion along x of n frames a tenth of a second apart; nothing more known than what is given."""
    t = np.arange(n) / 10
    known = {"position_m": np.stack([t, 0 * t, 0 * t], axis=1), "speed_m_s": np.ones(n), "w": None, "sigma_min": None}
    return MotionTrack(np.arange(n), t, sub_task=given.pop("sub_task", np.full(n, -1)), **(known | given))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- the tables


def test_means_by_group_are_those_of_the_scores_in_their_units(made: Made) -> None:
    tables, scores = Page(made.html).tables, rows_of(made)
    assert tables["smoothness"][0][2:] == [
        "SPARC", "SPARC of turning", "Mean jerk, m/s³", "Path, mm", "Turning, deg", "Time, s", "Idle, s",
    ]  # fmt: skip
    for name, n, sparc, _, jerk, path, turning, time, idle in tables["smoothness"][1:]:
        mean = {c: np.mean([r[f"smoothness.{c}"] for r in scores if r["group"] == name])
                for c in ("sparc", "jerk_mean_m_s3", "path_m", "turn_rad", "duration_s", "idle_s")}  # fmt: skip
        assert (n, sparc, jerk) == ("10", minus(f"{mean['sparc']:.2f}"), f"{mean['jerk_mean_m_s3']:.2f}")
        assert (path, turning) == (f"{1e3 * mean['path_m']:.0f}", f"{np.degrees(mean['turn_rad']):.0f}")
        assert (time, idle) == (f"{mean['duration_s']:.2f}", f"{mean['idle_s']:.2f}")
    for name, _, score, cost, reached, least_w, least_sigma, _, used in tables["kinematic"][1:]:
        mine = [r for r in scores if r["group"] == name]
        assert score == f"{np.mean([r['kinematic.score'] for r in mine]):.3f}"
        assert cost == f"{np.mean([r['kinematic.cost'] for r in mine]):.2f}" and reached == "100.0"
        assert least_w == f"{min(r['kinematic.min_w'] for r in mine):.3f}"  # of any: a mean would hide the worst
        assert least_sigma == f"{min(r['kinematic.min_sigma'] for r in mine):.3f}"
        assert used == f"{100 * np.mean([r['kinematic.velocity_utilisation'] for r in mine]):.0f}"


def test_sub_tasks_have_their_own_sparc_and_the_unknown_ones_are_counted(made: Made) -> None:
    table, scores = Page(made.html).tables["sub-tasks"], rows_of(made)
    assert table[0][2:] == [s.name for s in made.reference.spec.sub_tasks]
    unknown = [r for r in scores if r["smoothness.sparc.release"] is None]
    assert 0 < len(unknown) < 40  # the bundled executions hardly move while they release
    for row in table[1:]:
        for sub_task, cell in zip(table[0][2:], row[2:], strict=True):
            known = [v for r in scores if r["group"] == row[0] and (v := r[f"smoothness.sparc.{sub_task}"]) is not None]
            assert cell == minus(f"{np.mean(known):.2f}") + (f" ({len(known)})" if len(known) < 10 else "")
    assert f"SPARC of the sub-task “release” is not known for {len(unknown)} of 40 executions: no motion." in made.html


def test_what_is_not_known_is_said_and_never_shown_as_a_number(made: Made, tmp_path: Path) -> None:
    def change(rows: list[dict]) -> list[dict]:
        for r in rows[:3]:
            r |= {"smoothness.sparc": None, "smoothness.sparc_status": "has gaps"}
        for r in rows:
            if r["group"] == "tilt 45 deg":
                r |= {c: None for c in r if c.startswith("kinematic.") and isinstance(r[c], float)}
                r |= {"kinematic.status": "no <joints>"}
        return rows

    folder = without_q(made, tmp_path / "scores", change)
    html = report(folder, None, tmp_path / "out").read_text()
    tables, scores = Page(html).tables, pq.read_table(folder / "scores.parquet").to_pylist()
    known = [v for r in scores if r["group"] == scores[0]["group"] and (v := r[SPARC]) is not None]
    row = next(r for r in tables["smoothness"] if r[0] == scores[0]["group"])
    assert row[2] == minus(f"{np.mean(known):.2f}") + f" ({len(known)})" and len(known) < 10
    assert next(r for r in tables["kinematic"] if r[0] == "tilt 45 deg")[2:] == ["–"] * 7
    assert "SPARC is not known for 3 of 40 executions: has gaps." in html
    assert "Kinematics are not known for 10 of 40 executions: no &lt;joints&gt;." in html
    last = Page(html).tables["executions"][-1]
    assert last[2] == "–" and last[-1] == "has gaps"
    assert not re.search(r"\b(nan|None|inf)\b", shown(html)) and "known for 37" in html


def test_tracks_against_the_truth_have_their_table(made: Made, tmp_path: Path) -> None:
    def change(rows: list[dict]) -> list[dict]:
        seen = {"rotation_symmetric_rad_mean": 0.1, "coverage": 0.5, "status": "ok"}
        seen = {f"tracking.seen.{k}": v for k, v in seen.items()}
        return [r | seen | {"tracking.seen.translation_m_mean": 0.001 * (i % 2)} for i, r in enumerate(rows)]

    folder = without_q(made, tmp_path / "scores", change)
    told = json.loads((folder / "score.json").read_text())
    told["settings"]["tracking"] = {"tracks": [["seen", "cubeA"]], "near_m": 0.05, "near_rad": 0.0873}
    (folder / "score.json").write_text(json.dumps(told))
    html = report(folder, None, tmp_path / "out").read_text()
    table = Page(html).tables["tracking-1"]
    assert "Track of seen against cubeA" in html and "50 mm" in html
    assert table[0][2:] == ["Position off, mm", "Turned off, deg", "Frames tracked, %"]
    assert all(row[2:] == ["0.5", "5.7", "50"] for row in table[1:])


# ------------------------------------------------------------------------------------------------- without a reference


def test_scores_without_q_are_reported_without_a_reference(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = without_q(made, tmp_path / "scores")
    assert main(["report", f"scores={folder}", f"out={tmp_path / 'out'}"]) == 0
    path = tmp_path / "out" / "report.html"
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {path}"
    html = path.read_text()
    assert "<h1>Motion of 40 executions of stack_cube</h1>" in html and "How it moved" in html
    for absent in ("Q by group", "Worst executions", "What the demonstrations hold", "mean Q", "z₀", "reference=PATH"):
        assert absent not in html, absent
    assert "frame_motion.parquet was not written" in html and not list((path.parent / "figures").iterdir())
    rows = Page(html).tables["executions"]
    assert rows[0] == [
        "Execution", "Group", "SPARC", "Mean jerk, m/s³", "Path, mm", "Time, s", "Kinematic score", "Cost",
        "Frames reached, %", "Least w",
    ]  # fmt: skip
    order = sorted(rows_of(made), key=lambda r: r[SPARC])
    assert [r[0] for r in rows[1:]] == [r["episode"] for r in order]
    assert [r[2] for r in rows[1:]] == [minus(f"{r[SPARC]:.2f}") for r in order]


def test_scores_of_q_without_their_reference_say_so(made: Made, tmp_path: Path) -> None:
    html = report(rewritten(made, tmp_path / "scores", lambda rows: rows), None, tmp_path / "out").read_text()
    assert "give the reference that they were made with (reference=PATH)" in html
    assert "Q by group" not in html and set(Page(html).tables) >= {"smoothness", "sub-tasks", "executions"}


def test_a_reference_for_scores_of_motion_alone_is_no_reason_to_tell_q(made: Made, tmp_path: Path) -> None:
    folder = without_q(made, tmp_path / "scores")
    with pytest.raises(InputError, match="made without a reference, found reference=PATH; leave it out"):
        report(folder, made.scores.parent / "reference", tmp_path / "out")
    told = json.loads((made.scores / "score.json").read_text()) | {"metrics": ["smoothness", "kinematic"]}
    (folder / "score.json").write_text(json.dumps(told))  # scored with a reference, for its sub-tasks
    html = report(folder, made.scores.parent / "reference", tmp_path / "out").read_text()
    assert "Q by group" not in html and made.reference.spec.instruction in html


def test_nothing_to_tell_is_one_sentence(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "scores"
    folder.mkdir()
    table = pq.read_table(made.scores / "scores.parquet")
    table = table.drop_columns([c for c in table.column_names if c.startswith(("smoothness.", "kinematic."))])
    pq.write_table(table, folder / "scores.parquet")
    (folder / "score.json").write_text((made.scores / "score.json").read_text())
    with pytest.raises(InputError, match="it holds no metric but geometric quality, expected the reference as well"):
        report(folder, None, tmp_path / "out")


# ------------------------------------------------------------------------------------------------------ what is drawn


def test_the_middle_and_the_lowest_of_the_extreme_groups_are_drawn(made: Made, scored: Scored) -> None:
    motion = read_motion(scored)
    assert motion is not None
    scores = rows_of(made)
    by_group = {g: sorted((r[SPARC], r["episode"]) for r in scores if r["group"] == g) for g in scored.groups}
    means = sorted(by_group, key=lambda g: np.mean([v for v, _ in by_group[g]]))
    want = [(by_group[g][k][1], f"{g}, {why} SPARC") for g in (means[-1], means[0])
            for k, why in ((5, "median"), (0, "lowest"))]  # fmt: skip
    found = chosen_executions(scored, motion)
    assert [(scored.text["episode"][i], why) for i, why in found] == want
    for (i, why), (episode, _) in zip(found, want, strict=True):
        assert f"{why}: {episode}, SPARC {scores[i][SPARC]:.2f}" in made.html  # in words, for those who do not see


def test_the_drawn_spectrum_has_the_arc_length_that_was_scored(made: Made, scored: Scored) -> None:
    scores, settings = rows_of(made), scored.record["settings"]["smoothness"]
    tracks = read_motion_frames(scored, [1, 39])
    assert tracks is not None
    for i, one in tracks.items():
        drawn = spectrum_of(one, settings)
        assert drawn is not None and drawn.limit_hz == pytest.approx(10.0)
        inside = drawn.frequency_hz <= drawn.end_hz * (1 + 1e-9)
        f, M = drawn.frequency_hz[inside] / drawn.end_hz, drawn.magnitude[inside]
        assert -np.hypot(np.diff(f), np.diff(M)).sum() == pytest.approx(scores[i][SPARC], rel=1e-4)
        K = 2 ** (int(np.ceil(np.log2(len(one.t_s)))) + 4)
        plain = np.abs(np.fft.rfft(one.speed_m_s, K)) / np.sum(one.speed_m_s)
        np.testing.assert_allclose(drawn.magnitude, plain, atol=2e-5)  # the stamps are even
        np.testing.assert_allclose(drawn.frequency_hz, np.fft.rfftfreq(K, 0.05), rtol=1e-5)
    assert spectrum_of(track(8, speed_m_s=np.zeros(8)), settings) is None
    slow = spectrum_of(track(8), settings | {"cutoff_hz": 10.0})
    assert slow is not None and slow.limit_hz == pytest.approx(5.0)  # half the rate, not the cutoff


def test_frames_near_a_singularity_and_those_not_reached_are_told_apart() -> None:
    w, sigma = np.array([0.2, 0.009, 0.2, np.nan, np.nan, 0.011]), np.array([0.2, 0.2, 0.019, np.nan, np.nan, 0.021])
    one = track(6, w=w, sigma_min=sigma)
    assert one.singular.tolist() == [False, True, True, False, False, False]
    ax = manipulability_figure([("one", one)], []).axes[0]
    marked = next(line for line in ax.lines if line.get_marker() == "D")
    np.testing.assert_allclose(np.asarray(marked.get_xdata()), [0.1, 0.2])
    hatched = [p for p in ax.patches if p.get_hatch()]
    assert len(hatched) == 1
    left, right = hatched[0].get_extents().transformed(ax.transData.inverted()).intervalx
    assert (left, right) == pytest.approx((0.25, 0.45))


def test_sub_tasks_end_where_the_next_begins_and_are_marked() -> None:
    one = track(6, sub_task=np.array([0, 0, 1, 1, 1, -1]))
    assert sub_task_spans(one) == [(0, 0.0, 0.2), (1, 0.2, 0.5), (-1, 0.5, 0.5)]
    ax = motion_figure([("one", one, None, -1.5)], ["reach", "grasp"]).axes[0]
    assert [t.get_text() for t in ax.texts] == ["reach", "grasp"]
    assert [float(np.asarray(line.get_xdata())[0]) for line in ax.lines[1:]] == [0.2]
    assert sub_task_spans(track()) == []


def test_a_large_set_with_odd_names_stays_small_and_is_data(made: Made, tmp_path: Path) -> None:
    odd = "</script><b>{i}</b>%{{x}} $\\alpha$ & “é”"

    def change(rows: list[dict]) -> list[dict]:
        return [r | {"episode": odd.format(i=i), "group": f"<i>g{i % 30}"} for i, r in enumerate(rows * 30)]

    folder = rewritten(made, tmp_path / "scores", change)
    frames = pq.read_table(made.scores / "frame_motion.parquet")
    with pq.ParquetWriter(folder / "frame_motion.parquet", frames.schema) as writer:
        for k in range(30):
            writer.write_table(frames.set_column(0, "episode", pa.array(frames["episode"].to_numpy() + 40 * k)))
    path = write_report(folder, None, about={}, out=tmp_path / "out")
    html = path.read_text()
    ours = html.replace(get_plotlyjs(), "")
    assert len(html) - len(ours) == len(get_plotlyjs())  # once
    assert len(re.sub(r"base64,[^\"]*", "", ours)) < 1_200_000
    assert "<i>g" not in ours and "<b>" not in shown(html).replace("<li><b>", "")
    data = re.search(r'(?s)<script type="application/json" id="space-data">(.*?)</script>', ours)
    assert data is not None
    space = json.loads(data[1], parse_constant=pytest.fail)  # NaN is no JSON
    Figure(data=space["data"], layout=space["layout"])  # raises on what plotly does not know
    lines = [t for t in space["data"] if t["mode"] == "lines"]
    assert len(lines) == PATHS_N and max(len(t["x"]) for t in lines) == POINTS_N
    assert len({t["legendgroup"] for t in lines}) == PATH_GROUPS_N == sum(t["showlegend"] for t in lines)
    for t in lines:
        assert t["meta"][0].startswith("&lt;/script&gt;&lt;b&gt;") and t["name"].startswith("&lt;i&gt;g")
    assert f"{PATHS_N} of 1200 executions in {PATH_GROUPS_N} of 30 groups" in html
    assert sorted(f.name for f in (path.parent / "figures").iterdir()) == [
        "manipulability.png", "motion.png", "trajectories.png",
    ]  # fmt: skip
    pictures = [base64.b64decode(str(i["src"]).split(",")[1]) for i in Page(html).images]
    assert sorted(pictures) == sorted(f.read_bytes() for f in (path.parent / "figures").iterdir())


def test_trajectories_in_space_are_thinned_but_whole(scored: Scored) -> None:
    motion = read_motion(scored)
    assert motion is not None and chosen_paths(scored, motion) == list(range(40))
    tracks = read_motion_frames(scored, [7])
    assert tracks is not None and len(tracks[7].t_s) > POINTS_N and tracks[7].position_m is not None
    sub_tasks = scored.record["sub_tasks"]
    line, start = trajectories_in_space([(0, "seven", tracks[7])], ["tilt"], sub_tasks)["data"]
    x = 1e3 * tracks[7].position_m
    assert len(line["x"]) == POINTS_N
    for axis, column in zip("xyz", x.T, strict=True):
        assert (line[axis][0], line[axis][-1]) == pytest.approx((column[0], column[-1]), abs=0.051)
        assert start[axis] == [line[axis][0]]
    first, last = line["customdata"][0], line["customdata"][-1]
    assert (first[0], first[2], last[2]) == ("0.00", "reach", "retreat") and last[0] == f"{tracks[7].t_s[-1]:.2f}"
    lost = track(4, position_m=np.array([[0, 0, 0], [np.nan, 0, 0], [1, 0, 0], [2, 0, 0.0]]), speed_m_s=None,
                 w=np.array([0.001, 0.001, 0.2, 0.2]), sigma_min=np.ones(4))  # fmt: skip
    line, _, near = trajectories_in_space([(0, "x", lost)], ["g"], [])["data"]
    assert line["x"] == [0, 1000, 2000] and near["x"] == [0] and line["customdata"][0][1] == "–"


def test_figures_that_cannot_be_drawn_are_named(made: Made, tmp_path: Path) -> None:
    def change(rows: list[dict]) -> list[dict]:
        blank = {SPARC: None, "smoothness.sparc_status": "fps too low", "kinematic.min_w": None}
        return [r | blank for r in rows[:2]]

    folder = without_q(made, tmp_path / "scores", change)
    frames = pq.read_table(made.scores / "frame_motion.parquet", filters=[("episode", "<", 2)])
    pq.write_table(frames, folder / "frame_motion.parquet")
    path = report(folder, None, tmp_path / "out")
    html = path.read_text()
    assert "neither SPARC nor w is known of any" in html and "SPARC is not known for 2 of 2" in html
    assert [f.name for f in (path.parent / "figures").iterdir()] == ["trajectories.png"]  # these are known all the same


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda d: (d / "frame_motion.parquet").write_bytes(b"PAR1 no"), "frame_motion.parquet: cannot be read"),
        (lambda d: pq.write_table(pa.table({"episode": [0]}), d / "frame_motion.parquet"), "no column frame"),
    ],
)
def test_damaged_frames_are_one_sentence(made: Made, tmp_path: Path, break_it, says: str) -> None:
    folder = without_q(made, tmp_path / "scores")
    break_it(folder)
    with pytest.raises(InputError) as error:
        report(folder, None, tmp_path / "out")
    assert says in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out" / "report.html").exists()
