"""A rollout that goes on where it was stopped, with a simulator that does nothing: what it counts and what it notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxeval.io.store import open_store
from jaxeval.sim.parts import Outcome, Parts
from jaxeval.sim.rollout import rollout
from jaxeval.types import Episode


@dataclass(frozen=True)
class Nothing:
    """Episodes of three frames; those of odd numbers fail."""

    task: str = "stack_cube"
    compression: str = "zstd"

    def told(self) -> dict[str, Any]:
        return {"task": self.task, "seed": 0}

    def id_of(self, job: int) -> str:
        return f"episode={job}"

    def part_of(self, job: int) -> str:
        return f"{job:03d}"

    def batches(self, jobs: Sequence[int]) -> list[list[int]]:
        return [[job] for job in jobs]

    def require(self) -> None: ...

    def close(self) -> None: ...

    @staticmethod
    def begin() -> None: ...

    def work(self, parts: Parts, batch: list[int]) -> list[Outcome]:
        outcomes = []
        for job in batch:
            poses = np.tile([1.0, 0, 0, 0, 0, 0, 0], (3, 1, 1))
            told = {"episode_id": self.id_of(job), "success_at_end": job % 2 == 0, "task": self.task}
            e = Episode(
                poses=poses,
                time_s=np.arange(3.0),
                valid=np.ones((3, 1), bool),
                frame_valid=np.ones(3, bool),
                bodies=("tcp",),
                **told,
            )
            outcomes.append(Outcome(e.episode_id, job % 2 == 0, 3, 0.0, ""))
            parts.keep(self.part_of(job), e, outcomes[-1])
        return outcomes


def run(jobs: range, out: Path, **asked: Any) -> list[Outcome]:
    return rollout(Nothing(), list(jobs), out, processes_n=1, configuration=asked or None)[1]  # type: ignore[arg-type]


def test_progress_counts_what_succeeded_before_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(range(4), tmp_path / "o")
    with Parts.held(tmp_path / "o", Nothing().told()) as parts:  # killed with two more done
        Nothing().work(parts, [4, 5])
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
    told = {"speed": [1.0, 2.0], "first": 0, "episodes": 6, "rollout": Nothing().told()}
    assert open_store(tmp_path / "o").meta["configuration"] == told
    assert open_store(tmp_path / "o").n_episodes == 6
