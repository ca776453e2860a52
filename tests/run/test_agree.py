"""`agree` on small tables: what it finds, how tables are joined, and one sentence where they cannot be."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from jaxeval.io.errors import InputError
from jaxeval.report.agreement import OVERALL, SUCCESSES, Agreed, latex, table, write
from jaxeval.run.agree import Settings, agree

TASKS, RATERS_N = ("stack_cube", "place_can"), 4
QUICK = Settings(resamples_n=100)


def made(seed: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """24 executions with their scores, and wide ratings of them; one rating is missing."""
    rng = np.random.default_rng(seed)
    scores, ratings = [], []
    for k in range(24):
        q = float(rng.uniform(0.3, 1))
        scores.append(
            {
                "episode": f"e{k}",
                "task": TASKS[k % 2],
                "group": ("act", "dp", "pi")[k % 3],
                "Q": q,
                "smoothness.path_m": 2 - q + float(rng.normal()) * 0.2,
                "smoothness.path_m.reach": 1.0 + k,
                "kinematic.min_w": 0.05,
                "kinematic.robot": "panda",
                "success_at_end": q > 0.5,
            }
        )
        seen = np.clip(np.round(5 * q + rng.normal(0, 0.5, RATERS_N)), 1, 5).astype(int)
        ratings.append({"episode": f"e{k}"} | {f"rater_{r}": int(v) for r, v in enumerate(seen)})
    ratings[3]["rater_2"] = None
    return scores, ratings


def save(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as CSV, JSON lines or parquet, by the name's ending."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with open(path, "w", newline="") as file:
            lines = csv.DictWriter(file, list(rows[0]))
            lines.writeheader()
            lines.writerows(rows)
    return path


def long(ratings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"episode": row["episode"], "rater": rater, "rating": value}
        for row in ratings
        for rater, value in row.items()
        if rater != "episode"
    ]


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Agreed, list[dict[str, Any]], list[dict[str, Any]], Path]:
    folder = tmp_path_factory.mktemp("agree")
    scores, ratings = made()
    paths = save(folder / "scores.parquet", scores), save(folder / "wide.csv", ratings)
    return agree(*paths, settings=QUICK), scores, ratings, folder


def test_metrics_against_mean_ratings(rated: tuple[Agreed, Any, Any, Path]) -> None:
    found, scores, ratings, _ = rated
    assert found.metrics == ("Q", "-smoothness.path_m", "kinematic.min_w")  # not text, nor a sub-task's
    raters = [f"rater_{r}" for r in range(RATERS_N)]
    mean = np.array([np.mean([row[r] for r in raters if row[r] is not None]) for row in ratings])
    q, path = (np.array([row[c] for row in scores]) for c in ("Q", "smoothness.path_m"))
    won, task = np.array([row["success_at_end"] for row in scores]), np.array([row["task"] for row in scores])
    for scope, rows in (("all", won | True), (SUCCESSES, won)):
        for name, mine in ((OVERALL, rows), *((t, rows & (task == t)) for t in TASKS)):
            for metric, values in (("Q", q), ("-smoothness.path_m", -path)):
                where = {"metric": metric, "scope": scope, "task": name}
                (rho,), (tau,) = found.of("Spearman", **where), found.of("Kendall", **where)
                assert rho.n == tau.n == mine.sum() and rho.left_out == 0
                assert rho.value == pytest.approx(scipy.stats.spearmanr(values[mine], mean[mine]).statistic, abs=1e-5)
                assert tau.value == pytest.approx(scipy.stats.kendalltau(values[mine], mean[mine]).statistic, abs=1e-5)
                assert rho.p is not None and 0 < rho.p < 1
                assert rho.p_by == ("all orders" if mine.sum() <= 8 else "9999 random orders")
            (constant,) = found.of("Spearman", metric="kinematic.min_w", scope=scope, task=name)
            assert constant.value is None and constant.p is None and constant.status.startswith("constant")


def test_agreement_of_raters(rated: tuple[Agreed, Any, Any, Path]) -> None:
    found, scores, _, _ = rated
    won_n = sum(row["success_at_end"] for row in scores)
    for scope, n in (("all", 24), (SUCCESSES, won_n)):
        (icc,), (alpha,) = found.of("ICC(2,1)", scope=scope), found.of("alpha (ordinal)", scope=scope)
        assert (icc.n + icc.left_out, alpha.n) == (n, n)  # alpha takes the one with a missing rating, ICC does not
        assert icc.low < icc.value < icc.high and alpha.low <= alpha.value <= alpha.high  # type: ignore[operator]
    assert found.of("ICC(2,1)", scope="all")[0].left_out == 1
    assert found.of("ICC(2,k)")[0].value > found.of("ICC(2,1)")[0].value  # type: ignore[operator]


def test_long_tables_and_other_kinds_say_the_same(rated: tuple[Agreed, Any, Any, Path], tmp_path: Path) -> None:
    found, scores, ratings, _ = rated
    half = [{k: v for k, v in row.items() if k != "Q"} for row in scores]
    others = [{"episode": r["episode"], "task": r["task"], "group": r["group"], "Q": r["Q"]} for r in scores]
    files = [save(tmp_path / "a.csv", others), save(tmp_path / "b.jsonl", half)]  # columns in two files
    again = agree(files, save(tmp_path / "long.jsonl", long(ratings)[::-1]), settings=QUICK)
    assert len(found.rows) == len(again.rows)
    for a in found.rows:
        (b,) = again.of(a.quantity, metric=a.metric, scope=a.scope, task=a.task)  # tasks come in another order
        if not a.quantity.startswith("alpha"):  # whose resamples draw items by their place
            assert (a.n, a.left_out, a.status) == (b.n, b.left_out, b.status)
            np.testing.assert_allclose(
                [np.nan if v is None else v for v in (a.value, a.low, a.high)],
                [np.nan if v is None else v for v in (b.value, b.low, b.high)],
                atol=1e-5,
            )


def test_files_and_words(rated: tuple[Agreed, Any, Any, Path]) -> None:
    found, _, _, folder = rated
    printed = table(found)
    assert "undefined (24)" in printed and "undefined: constant: the values do not vary" in printed
    assert "lower is better" in printed and "ICC(2,1)" in printed
    in_csv, in_tex, in_png = write(found, folder / "out")
    rows = list(csv.DictReader(in_csv.open()))
    assert len(rows) == len(found.rows)
    assert float(rows[0]["value"]) == found.rows[0].value and rows[0]["status"] == "ok"
    assert next(r for r in rows if r["metric"] == "kinematic.min_w")["value"] == ""
    assert in_tex.read_text() == latex(found) and r"-smoothness.path\_m" in latex(found)
    assert "booktabs" not in latex(found) and r"\toprule" not in latex(found)
    assert in_png.read_bytes().startswith(b"\x89PNG")


def test_metrics_against_success(rated: tuple[Agreed, Any, Any, Path], tmp_path: Path) -> None:
    _, scores, _, folder = rated
    found = agree(folder / "scores.parquet", settings=QUICK)
    q, won = (np.array([row[c] for row in scores]) for c in ("Q", "success_at_end"))
    task, policy = (np.array([row[c] for row in scores]) for c in ("task", "group"))
    cells = 0
    for p in ("", "act", "dp", "pi"):
        for t in (OVERALL, *TASKS):
            mine = ((policy == p) | (p == "")) & ((task == t) | (t == OVERALL))
            (row,) = found.of("AUROC", metric="Q", policy=p, task=t)
            assert row.n == mine.sum() and f"({won[mine].sum()} of {mine.sum()})" in row.against
            if 0 < won[mine].sum() < mine.sum():
                expected = sklearn.metrics.roc_auc_score(won[mine], q[mine])
                assert row.value == pytest.approx(expected, abs=1e-6)
                rho = found.of("Spearman", metric="Q", policy=p, task=t)[0]
                assert rho.value == pytest.approx(scipy.stats.spearmanr(q[mine], won[mine]).statistic, abs=1e-5)
                cells += 1
            else:
                assert row.value is None and row.status.startswith("one class")
    assert cells >= 8
    (useless,) = found.of("AUROC", metric="kinematic.min_w", policy="", task=OVERALL)
    assert useless.value == 0.5
    assert write(found, tmp_path)[2].stat().st_size > 1000


def test_one_class_in_a_cell_and_the_pooled_one_still_computed(tmp_path: Path) -> None:
    scores, _ = made(1)
    for row in scores:
        row["success_at_end"] = row["success_at_end"] or row["group"] == "act"
    found = agree(save(tmp_path / "s.csv", scores), columns=["Q"], settings=QUICK)
    (one,), (pooled,) = (found.of("AUROC", policy=p, task=OVERALL) for p in ("act", ""))
    assert one.value is None and one.status.startswith("one class") and "8 of 8" in one.against
    assert pooled.value is not None
    assert "undefined (8)" in table(found)


def test_what_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    scores, ratings = made()
    good, rated = save(tmp_path / "scores.csv", scores), save(tmp_path / "r.csv", ratings)
    alone = save(tmp_path / "alone.csv", [{"episode": r["episode"], "rater_0": r["rater_0"]} for r in ratings])
    words = save(tmp_path / "words.csv", [r | {"rater_1": "good"} for r in ratings])
    twice = save(tmp_path / "twice.csv", [*long(ratings), long(ratings)[0]])
    other = save(tmp_path / "other.csv", [r | {"episode": f"x{r['episode']}"} for r in ratings])
    nothing = save(tmp_path / "nothing.csv", [{"episode": r["episode"], "stars": 3} for r in ratings])
    unlike = save(tmp_path / "unlike.csv", [r | {"Q": 0.1} for r in scores])
    bare = save(tmp_path / "bare.csv", [{"episode": r["episode"], "weight": 1.0} for r in scores])
    blind = save(tmp_path / "blind.csv", [{"episode": r["episode"], "Q": r["Q"]} for r in scores])
    again = save(tmp_path / "again.csv", scores + [r | {"task": "poke_cube"} for r in scores])
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (good, alone, {}, "at least 2 raters"),
        (good, words, {}, "line 2: the rating of rater_1 is 'good', expected a number"),
        (good, twice, {}, "rater_0 rates episode 'e0' a second time"),
        (good, other, {}, "none of its 24 executions is scored"),
        (good, nothing, {}, "expected episode, rater, rating"),
        ([good, unlike], rated, {}, "expected one row an execution"),
        (bare, rated, {}, "found no metric among episode, weight"),
        (good, rated, {"columns": ["Quality"]}, "no column 'Quality'"),
        (good, rated, {"columns": ["kinematic.robot"]}, "holds no numbers"),
        (good, rated, {"success": "won"}, "no column 'won'"),
        (good, rated, {"settings": Settings(lower="Quality")}, "lower: there is no metric Quality, found Q"),
        (good, None, {"given": "group"}, "given=group: it does not vary within any policy"),
        (good, None, {"success": "task"}, "success is known of no execution"),
        (good, rated, {"settings": Settings(level=95)}, "level is 95"),
        (blind, None, {}, "success is known of no execution"),
        (again, rated, {}, "2 scored executions are episode 'e0'"),
        ([], rated, {}, "metrics is empty"),
    ]
    for metrics, file, more, expected in cases:
        with pytest.raises(InputError) as told:
            agree(metrics, file, **({"settings": QUICK} | more))
        assert expected in str(told.value) and "\n" not in str(told.value), told.value


def test_executions_that_lack_their_other_half_are_counted(tmp_path: Path) -> None:
    scores, ratings = made()
    found = agree(save(tmp_path / "s.csv", scores[:20]), save(tmp_path / "r.csv", ratings[2:]), settings=QUICK)
    assert "4 of 22 rated executions are not scored; they count in the raters' agreement only" in found.notes
    assert "2 scored executions are not rated and are left out" in found.notes
    assert found.of("alpha (ordinal)", scope="all")[0].n == 22
    (rho,) = found.of("Spearman", metric="Q", scope="all", task=OVERALL)
    assert (rho.n, rho.left_out) == (18, 4)


def test_one_name_alone_is_a_list_of_it_and_success_may_be_words(tmp_path: Path) -> None:
    scores, _ = made()
    plain = save(tmp_path / "a.csv", scores)
    words = [r | {"success_at_end": "Yes" if r["success_at_end"] else "no"} for r in scores]
    listed = agree(plain, columns=["Q"], settings=Settings(resamples_n=100, lower=["Q"]))
    alone = agree(save(tmp_path / "b.csv", words), columns="Q", settings=Settings(resamples_n=100, lower="Q"))
    assert listed == alone and alone.metrics == ("-Q",)
    words[0]["success_at_end"] = "perhaps"
    odd = agree(save(tmp_path / "c.csv", words), columns="Q", settings=QUICK)
    assert any("1 of 24 executions say 'perhaps'" in note for note in odd.notes)
    assert odd.of("AUROC", policy="", task=OVERALL)[0].n == 23


def test_an_infinite_value_is_left_out_and_told(tmp_path: Path) -> None:
    scores, _ = made()
    scores[2]["Q"] = float("inf")
    found = agree(save(tmp_path / "s.parquet", scores), columns="Q", settings=QUICK)
    assert found.of("AUROC", policy="", task=OVERALL)[0].left_out == 1
    assert "note: Q: 1 of 24 values are infinite or no number; they are left out" in table(found)


def test_files_of_an_earlier_run_go_and_the_heading_says_the_level(
    rated: tuple[Agreed, Any, Any, Path], tmp_path: Path
) -> None:
    found, _, _, folder = rated
    for name in ("holdouts.csv", "coefficients.csv", "notes.csv"):
        (tmp_path / name).write_text("old")
    write(found, tmp_path)
    assert sorted(p.name for p in tmp_path.glob("*.csv")) == ["agreement.csv", "notes.csv"]
    wide = agree(folder / "scores.parquet", folder / "wide.csv", settings=Settings(level=0.8, resamples_n=100))
    assert r"80 \% interval" in latex(wide) and r"95 \% interval" in latex(found)


def test_raters_who_never_differ_are_a_warning(tmp_path: Path) -> None:
    scores, _ = made()
    ratings = [{"episode": r["episode"], "rater_a": 1 + k % 5, "rater_b": 1 + k % 5} for k, r in enumerate(scores)]
    files = save(tmp_path / "s.csv", scores), save(tmp_path / "r.csv", ratings)
    found = agree(*files, columns="Q", settings=QUICK)
    (icc,) = found.of("ICC(2,1)", scope="all")
    assert (icc.value, icc.low, icc.high) == (1, 1, 1) and icc.status.startswith("constant")
    assert "warning: ICC(2,1), all: constant" in table(found)
