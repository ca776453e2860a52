"""The names that a notebook uses: from demonstrations to a comparison with one import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jaxeval as je
from jaxeval.io import InputError
from jaxeval.io.reference import save_reference
from tests.executions import episodes, learned


def test_every_name_resolves_and_is_listed() -> None:
    names = {"open_source", "fit", "score", "score_episode", "load_spec", "load_reference", "compare", "episode",
             "episodes_from_table"}  # fmt: skip
    assert names <= set(dir(je))
    for name in names:
        assert callable(getattr(je, name)) and getattr(je, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        je.scores  # noqa: B018


def test_from_demonstrations_to_a_comparison() -> None:
    demos = list(je.open_source("bundled:stack_cube_demos").iter_episodes())
    reference = je.fit(demos, spec="stack_cube")
    np.testing.assert_allclose(np.asarray(reference.nominal), np.asarray(learned().nominal), atol=1e-5)
    scores = je.score(reference, "bundled:stack_cube_tilt", batch_n=16)
    frame = scores.to_pandas()
    means = frame.groupby("group")["Q"].mean()
    assert list(frame.columns[:8]) == ["episode", "task", "group", "Q", "gate", "gate_reason", "valid", "status"]
    assert means["tilt 0 deg"] > 0.97 and means["tilt 45 deg"] < means["tilt 25 deg"] < means["tilt 0 deg"]
    assert repr(scores) == "Scores(40 episodes, 40 valid, metrics geometric)"
    row = je.score_episode(reference, demos[31])
    assert row["episode"] == demos[31].episode_id and row["Q"] > 0.9 and row["status"] == "ok"
    groups = frame.assign(policy=frame["group"], initial_condition_id=[str(k % 10) for k in range(40)])
    made = je.compare(groups, "tilt 0 deg", "tilt 45 deg", value="Q", pairing="none")
    told = made.to_pandas()
    assert len(told) == 1 and told["a_mean"][0] > told["b_mean"][0]


def test_a_reference_keeps_its_notes_and_they_make_nothing_compile_again(tmp_path: Path) -> None:
    import dataclasses

    import jax

    from jaxeval.types import Notes

    reference = learned()
    told = dataclasses.replace(reference, notes=Notes(["fewer than 7 demonstrations"]))
    traced = []

    @jax.jit
    def first(r: je.Reference) -> jax.Array:
        traced.append(1)
        return r.nominal[0, 0]

    np.testing.assert_array_equal(first(reference), first(told))
    assert len(traced) == 1 and jax.tree.map(lambda x: x, told).notes[0] == "fewer than 7 demonstrations"
    about = {"notes": ["a note"], "left_out": [["seed 3", "not successful"]]}
    path = save_reference(tmp_path / "r", reference, about=about)
    assert tuple(je.load_reference(path).notes) == ("left out: seed 3: not successful", "a note")
    assert repr(told) == "Reference(stack_cube: 39 demonstrations, 5 relations, 7 sub-tasks of 10 bins; 1 notes)"


def test_what_cannot_be_meant_is_said_in_a_sentence() -> None:
    for bad, said in (
        (lambda: je.score(None, 3), "episodes: found a int, expected a path"),
        (lambda: je.score_episode(None, episodes()), "expected an Episode; `score` takes several"),
        (lambda: je.score("nowhere", [episodes()[0]]), "no such file; expected a reference made by `jaxeval fit`"),
        (lambda: je.fit([episodes()[0]], spec="nope"), "no such task spec; known tasks are"),
        (lambda: je.score(None, [episodes()[0]], "geometric"), "geometric needs a reference"),
    ):
        with pytest.raises(InputError, match=said):
            bad()
