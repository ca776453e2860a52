"""What tells one reference from another, and what refuses scores that were made with another."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.io.errors import InputError
from jaxeval.io.reference import load_reference, reference_hash, save_reference
from jaxeval.report.scored import _check_same
from jaxeval.run.score import _about
from jaxeval.types import Body, Pair, Reference, Shape, SubTask, TaskSpec

J, K, P, M = 2, 3, 1, 2
SPEC = TaskSpec("t", (Body("a", Shape("box", (0.1, 0.1, 0.1))), Body("b", Shape("sphere"))), (SubTask("s", ()),))


def reference(**changes: Any) -> Reference:
    rng = np.random.default_rng(3)
    L = P * M
    made = Reference(
        nominal=np.tile(np.float32([1, 0, 0, 0, 0, 0, 0]), (J, L, 1)),
        deviations=rng.normal(size=(K, J, L, 6)).astype(np.float32),
        seen=np.ones((K, J, L), bool),
        terminal=rng.normal(size=(K, J, 6)).astype(np.float32),
        demo_valid=np.ones(K, bool),
        converged=np.ones((J, L), bool),
        scale=np.tile(np.eye(3, dtype=np.float32), (J, 1, 1)),
        duration_s=np.ones(P, np.float32),
        pairs=(Pair("a", "b", "m_r"), Pair("a", "b", "m_s")),
        spec=SPEC,
        bins_n=M,
    )
    return dataclasses.replace(made, **changes)


def test_a_hash_is_the_same_on_the_device_and_on_the_disk(tmp_path: Path) -> None:
    mine = reference()
    on_device = dataclasses.replace(mine, **{n: jnp.asarray(getattr(mine, n)) for n in ("nominal", "seen", "scale")})
    in_float64 = dataclasses.replace(mine, nominal=mine.nominal.astype(np.float64) * np.array([1, -1, 1, 1, 1, 1, 1]))
    save_reference(tmp_path / "r", mine, about={"commit": "abc"})
    assert len({reference_hash(r) for r in (mine, on_device, in_float64, load_reference(tmp_path / "r")[0])}) == 1


def test_a_hash_is_another_for_everything_that_scores_depend_on() -> None:
    base = reference()
    changed = [
        {"nominal": base.nominal + 1e-3}, {"deviations": base.deviations[::-1]}, {"seen": ~base.seen},
        {"terminal": 2 * base.terminal}, {"demo_valid": ~base.demo_valid}, {"converged": ~base.converged},
        {"scale": 2 * base.scale}, {"duration_s": base.duration_s + 1}, {"bins_n": 3}, {"deviation": "decoupled"},
        {"pairs": base.pairs[::-1]}, {"spec": dataclasses.replace(SPEC, z_term=2.0)},
    ]  # fmt: skip
    assert len({reference_hash(reference(**change)) for change in ({}, *changed)}) == 1 + len(changed)


def test_a_report_refuses_another_reference_of_the_same_task(tmp_path: Path) -> None:
    mine, other = reference(), reference(duration_s=np.full(P, 2, np.float32))
    told = {
        "metrics": ["geometric"], "task": "t", "pairs": [p.name for p in mine.pairs], "sub_tasks": ["s"], "bins_n": M,
        "reference": "refs/t.npz",
    }  # fmt: skip
    _check_same(tmp_path, told, other)  # scores of an earlier version do not say
    told["reference_hash"] = reference_hash(mine)
    _check_same(tmp_path, told, mine)
    with pytest.raises(InputError, match=r"another of the same task; give the reference .* \(refs/t\.npz\), or score"):
        _check_same(tmp_path, told, other)


def test_scores_say_which_reference_they_were_made_with() -> None:
    mine = reference()
    plan = SimpleNamespace(metrics=(), params=(), reference=mine, task="t")
    scores = SimpleNamespace(metrics=(), described={}, skipped_pairs=(), notes=(), refused=())
    assert _about(scores, plan, {})["reference_hash"] == reference_hash(mine)  # type: ignore[arg-type]


def test_a_reference_that_means_nothing_is_one_sentence(tmp_path: Path) -> None:
    save_reference(tmp_path / "r", reference())
    table = json.loads((tmp_path / "r.json").read_text())
    for key, value in (("deviation", "log"), ("pairs", [{"a": "a", "b": "b", "role": "x"}]), ("spec", {"name": "t"})):
        (tmp_path / "r.json").write_text(json.dumps(table | {key: value}))
        with pytest.raises(InputError, match=r"r\.json: cannot be used \(.*\); expected a whole reference"):
            load_reference(tmp_path / "r")
