"""Aggregates know of a metric only what their statistic does: its unit, its zero and, of ranks, its scale are nobody's
business, also where float32 would hold all values as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxeval.io.records import read_records
from jaxeval.run.agree import Settings, agree
from jaxeval.run.compare import Settings as CompareSettings
from jaxeval.run.compare import compare

N = 20
SAME = {"float64 of a day": lambda x: 1.7e9 + x, "a hair": lambda x: 0.5 + 1e-9 * x, "negative": lambda x: 3 - 2 * x}
RISING = {"steep": lambda x: np.exp(20 * x), "cubed": lambda x: x**3 - 7e5, "clock": lambda x: 1.7e9 + 1e-3 * x}
Map = Callable[[np.ndarray], np.ndarray]


def metric() -> np.ndarray:
    return np.round(np.random.default_rng(4).normal(size=N), 2)


def agreed(path: Path, values: np.ndarray) -> dict[str, tuple[float | None, ...]]:
    won = metric() + np.random.default_rng(5).normal(size=N) > 0
    columns = {"episode": [f"e{k}" for k in range(N)], "kinematic.min_w": values, "success_at_end": won}
    pq.write_table(pa.table(columns), path / "scores.parquet")
    made = agree([path / "scores.parquet"], settings=Settings(resamples_n=100))
    return {r.quantity: (r.value, r.low, r.high, r.p) for r in made.rows if r.metric == "kinematic.min_w"}


@pytest.mark.parametrize("name", RISING)
def test_what_ranks_say_of_a_metric_is_what_they_say_of_any_that_orders_alike(name: str, tmp_path: Path) -> None:
    before, after = agreed(tmp_path, metric()), agreed(tmp_path, RISING[name](metric()))
    assert {"AUROC", "Spearman", "Kendall"} == set(before) and before == after  # to the last bit


def test_success_from_the_tenth_of_twenty_rising_values_is_told_apart_wholly(tmp_path: Path) -> None:
    for values in (1.7e9 + np.arange(N), 0.5 + 1e-9 * np.arange(N)):
        columns = {
            "episode": [f"e{k}" for k in range(N)],
            "kinematic.min_w": values,
            "success_at_end": np.arange(N) >= 10,
        }
        pq.write_table(pa.table(columns), tmp_path / "scores.parquet")
        made = agree([tmp_path / "scores.parquet"], settings=Settings(resamples_n=100))
        assert next(r.value for r in made.rows if r.quantity == "AUROC") == 1.0


@pytest.mark.parametrize("name", SAME)
def test_a_comparison_of_values_follows_their_unit(name: str, tmp_path: Path) -> None:
    """Differences, intervals and means are mapped; tests and effects stay (their sign where the map turns it)."""
    scale = float(SAME[name](np.ones(1))[0] - SAME[name](np.zeros(1))[0]) if name == "negative" else None
    scale = scale if scale is not None else {"float64 of a day": 1.0, "a hair": 1e-9}[name]
    before, after = (compared(tmp_path, f) for f in (lambda x: x, SAME[name]))
    ends = ("low", "high") if scale > 0 else ("high", "low")
    assert after["difference"] == pytest.approx(scale * before["difference"], rel=1e-4)
    for key, of in zip(("low", "high"), ends, strict=True):
        assert after[key] == pytest.approx(scale * before[of], rel=1e-4)
    for key in ("p", "rank_p"):
        assert after[key] == pytest.approx(before[key], rel=1e-4)
    assert after["effect"] == pytest.approx(np.sign(scale) * before["effect"], rel=1e-4)
    assert after["a_mean"] == pytest.approx(SAME[name](np.array([before["a_mean"]]))[0], rel=1e-12)


def compared(path: Path, f: Map) -> dict[str, float]:
    x = metric()
    b = np.round(x + np.random.default_rng(6).normal(0.3, 0.5, N), 2)
    rows = [
        {"policy": policy, "episode": f"{policy}{k}", "initial_condition_id": f"s{k}", "success": True, "m": float(v)}
        for policy, values in (("a", x), ("b", b))
        for k, v in enumerate(f(values))
    ]
    pq.write_table(pa.Table.from_pylist(rows), path / "runs.parquet")
    records = read_records(str(path / "runs.parquet"))
    (cell,) = compare(records, "a", ["b"], value="m", settings=CompareSettings(resamples_n=200)).cells
    return dict(cell)


def test_raters_agree_whatever_the_zero_of_their_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    truth = rng.integers(1, 6, N)
    marks = np.clip(truth[:, None] + rng.integers(-1, 2, (N, 3)), 1, 5)
    episodes = [f"e{k}" for k in range(N)]
    scores = {"episode": episodes, "kinematic.min_w": truth.astype(float), "success_at_end": truth > 2}
    pq.write_table(pa.table(scores), tmp_path / "scores.parquet")
    found: list[dict[tuple[str, ...], float | None]] = []
    for zero in (0.0, 1.7e9):
        rated = {"episode": episodes, **{f"rater_{r}": zero + marks[:, r] for r in range(3)}}
        pq.write_table(pa.table(rated), tmp_path / "ratings.parquet")
        made = agree([tmp_path / "scores.parquet"], tmp_path / "ratings.parquet", settings=Settings(resamples_n=100))
        found.append({(r.quantity, r.metric, r.scope): r.value for r in made.rows})
    assert len(found[0]) > 8 and found[1] == pytest.approx(found[0], rel=1e-4)


def test_cells_that_say_na_are_not_known_and_cost_no_row(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("episode,rater_1,rater_2,note\ne0,1,NA,NA\ne1,2,2,fine\ne2,n/a,3,\n")
    from jaxeval.io.tables import read_table

    rows = read_table(path).rows
    assert [(r["rater_1"], r["rater_2"]) for r in rows] == [(1, None), (2, 2), (None, 3)]
    assert [r["note"] for r in rows] == ["NA", "fine", None]
