"""A metric from outside the package: registered once, scored, printed, reported, and compared with success."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from jaxeval.cli_words import help_of, overrides, settings_of
from jaxeval.io import InputError, open_source, write_store
from jaxeval.io.records.columns import direction_of, meaning_of
from jaxeval.metrics import registry
from jaxeval.metrics.registry import Column, Metric, Needs, register
from jaxeval.metrics.status import SENTENCES
from jaxeval.run.agree import agree
from jaxeval.run.report import report
from jaxeval.run.score import columns_table, score, table
from jaxeval.types import pytree
from tests.executions import episodes


@pytree
class ReachParams:
    """How far the gripper must come to count as a reach."""

    least_m: float = 0.01

    def check(self) -> ReachParams:
        if not self.least_m > 0:
            raise ValueError(f"reach.least_m is {self.least_m}; expected a positive number")
        return self


def measure(batch, context, params):
    """The farthest that the gripper was from where it began."""
    away = jnp.linalg.norm(batch.poses[:, :, 0, 4:] - batch.poses[:, :1, 0, 4:], axis=-1)
    far_m = jnp.max(jnp.where(batch.valid[:, :, 0], away, 0.0), axis=1)
    return {"reach.far_m": far_m, "reach.status": (far_m < params.least_m).astype(int)}


REACH = Metric("reach", ReachParams, Needs(bodies=("tcp",)), measure, (
    Column("reach.far_m", unit="m", direction="higher", meaning="farthest from its start", short="reach, m"),
    Column("reach.status", "status", meaning="ok, or why not", sentences={0: "ok", 1: "it hardly moved"}),
), section="reach")  # fmt: skip


@pytest.fixture
def registered() -> Iterator[None]:
    register(REACH)
    settings_of.cache_clear()
    yield
    registry._REGISTERED.pop("reach")
    settings_of.cache_clear()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outside") / "s"
    return write_store(path, [e for e in episodes() if 128 < e.n_frames <= 256][:4], task="stack_cube").path


def test_it_is_scored_printed_reported_and_compared(registered: None, store: Path, tmp_path: Path) -> None:
    made = score(None, open_source(store), metrics=["reach"], out=tmp_path)
    for far_m, e in zip(made.columns["reach.far_m"], open_source(store).iter_episodes(), strict=True):
        tcp = e.body("tcp")[:, 4:]
        assert abs(far_m - np.linalg.norm(tcp - tcp[0], axis=1).max()) < 1e-5
    assert made.columns["reach.status"] == ["ok"] * 4 and "reach, m" in table(made)
    strict = score(None, open_source(store), metrics=["reach"], settings={"reach": ReachParams(least_m=9.0)})
    assert strict.columns["reach.status"] == ["it hardly moved"] * 4
    written = pq.read_table(tmp_path / "scores.parquet")
    assert written.schema.field("reach.far_m").type == "double" and written.column_names == list(made.columns)
    page = report(tmp_path, None, None).read_text()
    assert "<h2>Reach</h2>" in page and "farthest from its start" in page
    assert (tmp_path / "figures" / "section_reach.png").stat().st_size > 5000
    told = written.append_column("success_at_end_seen", [[True, True, False, False]])
    pq.write_table(told, tmp_path / "scores.parquet")
    found = agree(tmp_path / "scores.parquet", success="success_at_end_seen")
    assert found.metrics == ("reach.far_m",)  # higher is better: its sign is not turned
    assert direction_of("reach.far_m") == "higher" and meaning_of("reach.far_m").unit == "m"


def test_its_settings_are_on_the_command_line(registered: None) -> None:
    assert settings_of("score")["reach"] == {"least_m": 0.01}
    assert overrides("score", ["episodes=x", "reach.least_m=0.2"])[-1] == "+reach=default"
    assert "reach:" in help_of("score") and "  least_m: 0.01" in help_of("score")
    assert "farthest from its start" in columns_table(["reach"])
    with pytest.raises(InputError, match=r"reach\.lest_m: no setting .* closest: reach\.least_m"):
        overrides("score", ["reach.lest_m=0.2"])


def test_what_it_lacks_or_is_set_to_wrongly_is_said(registered: None, store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"reach\.least_m is -1"):
        score(None, open_source(store), metrics=["reach"], settings={"reach": ReachParams(least_m=-1.0)})
    bare = write_store(tmp_path / "b", [e.with_bodies(("cubeA",)) for e in episodes()[:1]], task="stack_cube")
    with pytest.raises(InputError, match="no body tcp; it has cubeA; record what is missing or leave reach out"):
        score(None, open_source(bare.path), metrics=["reach"])
    with pytest.raises(ValueError, match="a metric 'reach' is registered already"):
        register(Metric("reach", ReachParams, Needs(), measure, (), section="reach"))
    with pytest.raises(ValueError, match="metric name is 'My Reach'"):
        register(Metric("My Reach", ReachParams, Needs(), measure, (), section="reach"))


def test_an_installed_package_offers_it_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "reach_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: reach-package\nVersion: 1.0\n")
    points = ["reach = reach_package:METRIC", "gone = reach_package.gone:METRIC", "odd = reach_package:ReachParams"]
    (about / "entry_points.txt").write_text("\n".join(["[jaxeval.metrics]", *points, ""]))
    lines = Path(__file__).read_text().split("@pytest.fixture\n")[0].split("from tests.")[0] + "\n"
    body = Path(__file__).read_text().split("@pytest.fixture\n")[0].split("import episodes\n", 1)[1]
    (tmp_path / "reach_package.py").write_text(lines + body + "\nMETRIC = REACH\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._offered.cache_clear()
    try:
        found = registry.all_metrics()
        assert list(found)[:6] == ["geometric", "smoothness", "kinematic", "tracking", "stages", "grasp"]
        assert found["reach"].columns[0].unit == "m" and found["reach"].measure.__module__ == "reach_package"
        with pytest.raises(InputError, match=r"gone = reach_package\.gone:METRIC cannot be loaded \(ModuleNotFound"):
            registry.metric_named("gone")
        with pytest.raises(InputError, match=r"is a type, expected a jaxeval\.metrics\.registry\.Metric"):
            registry.metric_named("odd")
    finally:
        monkeypatch.undo()
        registry._offered.cache_clear()


def test_every_column_that_is_written_is_described_once() -> None:
    names = [c.name for m in registry.all_metrics().values() for c in m.columns]
    assert not {n for n in names if names.count(n) > 1}
    for metric in registry.all_metrics().values():
        for column in metric.columns:
            assert column.meaning, column.name
            if column.kind == "status" and column.words is None:
                assert all((column.sentences or SENTENCES).values()), column.name
