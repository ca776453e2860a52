"""A rollout that goes on where it was stopped, with a simulator that does nothing: what it counts and what it notes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxeval.io.store import open_store
from jaxeval.sim.engine import rollout
from jaxeval.sim.parts import Outcome, Parts
from jaxeval.types import Episode


@dataclass(frozen=True)
class Nothing:
    """Episodes of three frames, two a batch; those of odd numbers fail."""

    task: str = "stack_cube"
    compression: str = "zstd"

    def identity(self) -> dict[str, Any]:
        return {"task": self.task, "seed": 0}

    def id_of(self, job: int) -> str:
        return f"episode={job}"

    def batches(self, jobs: Sequence[int]) -> list[list[int]]:
        return [list(jobs[i : i + 2]) for i in range(0, len(jobs), 2)]

    def require(self) -> None: ...

    def close(self) -> None: ...

    @staticmethod
    def begin() -> None: ...

    def work(self, batch: Sequence[int], out: Path) -> list[tuple[Episode, Outcome]]:
        made = []
        for job in batch:
            e = Episode(
                poses=np.tile([1.0, 0, 0, 0, job, 0, 0], (3, 1, 1)),
                time_s=np.arange(3.0),
                valid=np.ones((3, 1), bool),
                frame_valid=np.ones(3, bool),
                bodies=("tcp",),
                episode_id=self.id_of(job),
                success_at_end=job % 2 == 0,
                task=self.task,
            )
            made.append((e, Outcome(e.episode_id, job % 2 == 0, 3, float(job), "")))
        return made


def run(jobs: range, out: Path, **asked: Any) -> list[Outcome]:
    return rollout(Nothing(), list(jobs), out, processes_n=1, configuration=asked or None)[1]  # type: ignore[arg-type]


def test_progress_counts_what_succeeded_before_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(range(4), tmp_path / "o")
    with Parts.held(tmp_path / "o", Nothing().identity()) as parts:  # killed with two more done
        parts.keep(Nothing().work([4, 5], tmp_path))
    capsys.readouterr()
    assert sum(o.success for o in run(range(8), tmp_path / "o")) == 4
    bars = [line for line in capsys.readouterr().err.replace("\r", "\n").splitlines() if line]
    assert "6/8" in bars[0] and "8/8" in bars[-1] and "4 succeeded" in bars[-1]


def test_a_call_counts_only_the_episodes_that_it_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(range(4), tmp_path / "o")
    capsys.readouterr()
    run(range(3, 6), tmp_path / "o")
    assert "1 succeeded" in capsys.readouterr().err.replace("\r", "\n").splitlines()[-1]


def test_meta_says_what_all_calls_asked_for(tmp_path: Path) -> None:
    run(range(4), tmp_path / "o", speed=[1.0], first=0, episodes=4)
    run(range(2), tmp_path / "o")
    run(range(4), tmp_path / "o", speed=[1.0], first=0, episodes=4)
    assert open_store(tmp_path / "o").meta["configuration"]["speed"] == [1.0]
    run(range(2, 6), tmp_path / "o", speed=[2.0], first=2, episodes=4)
    told = {"speed": [1.0, 2.0], "first": 0, "episodes": 6, "rollout": Nothing().identity()}
    assert open_store(tmp_path / "o").meta["configuration"] == told
    assert open_store(tmp_path / "o").n_episodes == 6


def test_a_part_holds_a_batch_and_what_was_not_asked_for_again_stays_in_it(tmp_path: Path) -> None:
    out = tmp_path / "o"
    with Parts.held(out, Nothing().identity()) as parts:  # killed with two batches done, in whatever order
        for batch in ([2, 3], [0, 1]):
            parts.keep(Nothing().work(batch, out))
    assert len(list(parts.folder.glob("*/meta.json"))) == 2
    assert [o.episode_id for o in run(range(3), out)] == [f"episode={k}" for k in range(3)]
    assert parts.finished() == {"episode=2", "episode=3"}  # the whole of a part that is still needed
    every = run(range(5), out)
    assert [o.seconds for o in every] == [0.0, 1.0, 2.0, 3.0, 4.0] and not parts.folder.exists()
    assert [e.poses[0, 0, 4] for e in open_store(out).read()] == [0, 1, 2, 3, 4]


def test_a_part_of_one_episode_as_earlier_versions_left_it_is_taken_in(tmp_path: Path) -> None:
    out = tmp_path / "o"
    with Parts.held(out, Nothing().identity()) as parts:
        parts.keep(Nothing().work([0], out))
    (meta,) = parts.folder.glob("*/meta.json")
    told = json.loads(meta.read_text())
    meta.write_text(json.dumps(told | {"configuration": told["configuration"]["outcomes"][0]}))
    assert run(range(1), out)[0].seconds == 0.0 and open_store(out).n_episodes == 1
