"""A plan is picklable and scores any range in any process; ranges merge to one run; what a plan refuses."""

from __future__ import annotations

import dataclasses
import math
import pickle
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.io import InputError, open_source, write_store
from jaxeval.run.score import score
from jaxeval.run.score_plan import ScorePlan, Scores, make_plan, merge
from tests.executions import episodes, learned

METRICS = ["geometric", "smoothness", "kinematic"]
BATCH_N = 4


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve executions in two stores: a range may end within one, begin in the other, and lack an attribute."""
    folder = tmp_path_factory.mktemp("plan")
    some = [e for e in episodes() if 128 < e.n_frames <= 256][:12]
    told: dict[str, dict[str, Any]] = {"a": {"tries": 1}, "b": {"tries": 0.5, "policy": "oracle"}}
    for name, mine in (("a", some[:5]), ("b", some[5:])):
        mine = [dataclasses.replace(e, attributes=told[name]) for e in mine]
        write_store(folder / name, mine, task="stack_cube", precision="float64")
    return [folder / "a", folder / "b"]


JERK = 5e-5
"""A third derivative in float32: rounding positions to float32 moves it by more than this."""


def same(one: Scores, other: Scores, bound: float) -> None:
    """The same columns, text and statuses; numbers within a bound."""
    assert list(one.columns) == list(other.columns)
    for name, column in one.columns.items():
        within = JERK if ".jerk_" in name else bound
        for x, y in zip(column, other.columns[name], strict=True):
            if isinstance(x, float) and isinstance(y, float):
                assert math.isclose(x, y, rel_tol=within, abs_tol=within), (name, x, y)
            elif isinstance(x, list) and name == "worst_axis":
                np.testing.assert_allclose(x, y, atol=1e-4)
            else:
                assert x == y, (name, x, y)


def test_four_ranges_of_an_unpickled_plan_are_the_rows_of_one_run(stores: list[Path]) -> None:
    source = open_source([str(p) for p in stores])
    plan = make_plan(learned(), source, METRICS, batch_n=BATCH_N)
    whole = plan.score(source)
    again: ScorePlan = pickle.loads(pickle.dumps(plan))
    cuts = [0, 3, 6, 9, 12]  # the second range begins in one store and ends in the other
    parts = [again.score(source, a, b) for a, b in pairwise(cuts)]
    merged = merge(parts[::-1])
    assert merged.n == 12 and merged.metrics == tuple(METRICS)
    same(whole, merged, 1e-6)
    assert merged.columns["attribute.policy"] == [None] * 5 + ["oracle"] * 7
    assert [type(v) for v in merged.columns["attribute.tries"]] == [float] * 12
    direct = score(learned(), source, metrics=METRICS, batch_n=BATCH_N)
    assert direct.columns == whole.columns
    with pytest.raises(ValueError, match="rows 0 to 2 are followed by row 6"):
        merge([parts[0], parts[2]])


def run_range(plan: bytes, paths: list[str], start: int, stop: int) -> Scores:
    """In a process of its own: the plan from its bytes, the source from its paths."""
    return pickle.loads(plan).score(open_source(paths), start, stop)


@pytest.mark.slow
def test_four_processes_give_what_one_gives(stores: list[Path]) -> None:
    paths = [str(p) for p in stores]
    plan = make_plan(learned(), open_source(paths), METRICS)
    whole = plan.score(open_source(paths))
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(run_range, pickle.dumps(plan), paths, a, a + 3) for a in (0, 3, 6, 9)]
        merged = merge([job.result() for job in jobs])
    same(whole, merged, 1e-6)


def test_frames_of_a_range_name_the_rows_of_the_source(stores: list[Path], tmp_path: Path) -> None:
    source = open_source([str(p) for p in stores])
    plan = make_plan(learned(), source, METRICS, batch_n=BATCH_N)
    part = plan.score(source, 4, 8, frames_to=tmp_path)
    for file in ("frame_costs.parquet", "frame_motion.parquet"):
        rows = pq.read_table(tmp_path / file)["episode"].to_numpy()
        assert sorted(set(rows.tolist())) == [4, 5, 6, 7]
        assert [int((rows == 4 + k).sum()) for k in range(4)] == part.columns["length"]


def test_all_measures_what_the_data_allow_and_says_what_was_left_out(stores: list[Path]) -> None:
    source = open_source([str(stores[0])])
    made = score(None, source, metrics=["all"], batch_n=BATCH_N)
    assert made.metrics == ("smoothness", "kinematic", "stages")
    told = "\n".join(made.notes)
    for name, why in (
        ("geometric", "geometric needs a reference, found none"),
        ("tracking", "no tracks to compare"),
        ("grasp", "grasp needs `stages` in the spec of the task, found none in that of stack_cube"),
    ):
        assert f"{name} is left out: " in told and why in told, name
    with pytest.raises(InputError, match=r"cutoff_hz is -1") as caught:  # a setting that cannot be is no lack
        score(None, source, metrics=["all"], settings={"smoothness": _rough()})
    assert caught.value.code == "setting"


def _rough() -> Any:
    from jaxeval.run.scorers.smoothness import SmoothnessSetting

    return SmoothnessSetting(cutoff_hz=-1.0)


def test_the_worst_departure_is_kept_as_numbers_that_the_words_say(stores: list[Path]) -> None:
    """Of a cube lifted off by 30 mm while it is carried: the numbers are the planted ones, and the words' ones."""
    e = next(e for e in episodes() if 128 < e.n_frames <= 256)
    poses = e.poses.copy()
    cube, held = e.bodies.index("cubeA"), slice(int(0.5 * e.n_frames), int(0.62 * e.n_frames))
    poses[held, cube, 6] += 0.030
    off = dataclasses.replace(e, poses=poses, episode_id="30 mm up")
    store = write_store(stores[0].parent / f"off{e.n_frames}", [off] * BATCH_N, task="stack_cube", overwrite=True)
    c = score(learned(), open_source(store.path), batch_n=BATCH_N).columns
    time_s, frame = c["worst_time_s"][0], c["worst_frame"][0]
    assert held.start <= frame < held.stop and abs(time_s - e.time_s[frame]) < 1e-5
    assert 0.024 < c["worst_m"][0] < 0.036 and c["worst_rad"][0] < 1.0  # a free turn about z comes along
    axis = np.array(c["worst_axis"][0])
    assert axis.shape == (3,) and abs(np.linalg.norm(axis) - 1) < 1e-5
    millimetres = int(c["worst_direction"][0].split(" mm")[0].split()[-1])
    assert millimetres <= 1e3 * c["worst_m"][0] + 0.5  # the words tell the part along the axis
