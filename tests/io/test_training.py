"""Training files: which action belongs to which observation, statistics, windows, and what is refused.

Each was seen to fail: pairs one row off; the episodes' ends ignored by windows; failures kept; sums in float32.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval.cli import main
from jaxeval.io import InputError, open_source, write_store
from jaxeval.io.store import Store
from jaxeval.io.writers.training import (
    Statistics,
    export_training,
    layout_of,
    load_training,
    statistics,
    training_pairs,
    write_training,
)
from jaxeval.policies.chunks import Chunks
from jaxeval.policies.policy import episode_key
from jaxeval.run.convert import RECORD, convert
from jaxeval.types import Episode

LAYOUT = {"place": [0, 1], "told": [1, 2], "speed": [2, 3]}


def episode(k: int, frames_n: int = 4, **changes: Any) -> Episode:
    """Frame t of episode k is seen as (10 k + t, 7, speed); the action that led to it is -(10 k + t)."""
    t = np.arange(frames_n, dtype=float)
    speed = 1.0 + k / 2
    poses = np.zeros((frames_n, 1, 7))
    poses[..., 0], poses[:, 0, 4] = 1.0, 0.01 * t
    action = -(10.0 * k + t)[:, None]
    action[0] = np.nan
    made = Episode.of(
        poses=poses,
        time_s=t / 50,
        valid=np.ones(frames_n, bool),
        actions=action,
        signals={
            "observation": np.stack([10.0 * k + t, np.full(frames_n, 7.0), np.full(frames_n, speed)], axis=1),
            "phase": np.minimum(t, 1.0),
        },
        success_at_end=k != 1,
        speed=speed,
        bodies=("parcel",),
        episode_id=f"stow/{k}",
        task="stow",
    )
    return dataclasses.replace(made, **changes)


def stored(path: Path, *episodes: Episode, layout: Any = LAYOUT) -> Store:
    configuration = {"observation_layout": layout} if layout else {}
    return write_store(path, episodes, task="stow", configuration=configuration)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Episodes 0 to 2 of 4, 3 and 6 frames, of which 1 failed."""
    return stored(tmp_path / "store", episode(0), episode(1, 3), episode(2, 6))


# ---------------------------------------------------------------------------------------------------------- pairs


def test_what_was_seen_goes_with_what_was_done_then() -> None:
    pairs = training_pairs(episode(0))
    assert pairs.observation[:, 0].tolist() == [0, 1, 2]
    assert pairs.action[:, 0].tolist() == [-1, -2, -3]  # with the action that led to the frame: NaN, -1, -2
    assert pairs.phase.tolist() == [0, 1, 1] and pairs.speed.tolist() == [1, 1, 1]
    assert pairs.done.tolist() == [False, False, True]
    unknown = training_pairs(episode(0, speed=None, signals={"observation": np.zeros((4, 3))}))
    assert np.isnan(unknown.speed).all() and (unknown.phase == -1).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"signals": None}, "stow/0: it holds no observations"),
        ({"signals": {"phase": np.zeros(4)}}, "stow/0: it holds no observations"),
        ({"signals": {"observation": np.zeros((3, 3))}}, r"observations have shape \(3, 3\) and actions \(4, 1\)"),
        ({"signals": {"observation": np.zeros(4)}}, r"observations have shape \(4,\)"),
        ({"actions": None}, "it holds no actions"),
        ({"actions": -np.arange(4.0)[:, None]}, "an action led to its first frame, expected NaN there"),
        ({"actions": np.array([np.nan, -1, np.nan, -3])[:, None]}, "at frame 1 the observation, or the action on it"),
        ({"frame_valid": np.array([True, True, True, False])}, "at frame 2 the observation, or the action on it"),
    ],
)
def test_what_makes_no_pairs_is_said_in_one_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        training_pairs(episode(0, **changes))
    assert "\n" not in str(caught.value) and ";" in str(caught.value)


def test_an_episode_of_one_frame_has_no_pair() -> None:
    with pytest.raises(InputError, match="it has 1 frame, expected at least 2"):
        training_pairs(episode(0, 1))


# ----------------------------------------------------------------------------------------------------- round trip


def test_a_store_comes_back_flat_with_successes_alone(tmp_path: Path, store: Store) -> None:
    made, left_out = export_training(store, tmp_path / "t.npz")
    assert left_out == [("stow/1", "it did not succeed")]
    back = load_training(tmp_path / "t.npz")
    assert back.episode_id == made.episode_id == ("stow/0", "stow/2")
    assert back.first.tolist() == [0, 3, 8]
    assert back.observation[:, 0].tolist() == [0, 1, 2, 20, 21, 22, 23, 24]
    assert back.action[:, 0].tolist() == [-1, -2, -3, -21, -22, -23, -24, -25]
    assert back.speed.tolist() == [1] * 3 + [2] * 5 and back.phase.tolist() == [0, 1, 1, 0, 1, 1, 1, 1]
    assert np.flatnonzero(back.done).tolist() == [2, 7]
    assert back.observation.dtype == back.action.dtype == np.float32
    assert back.layout == {"place": slice(0, 1), "told": slice(1, 2), "speed": slice(2, 3)}
    assert (back.observation[:, back.layout["speed"]][:, 0] == back.speed).all()
    assert back.meta == made.meta and back.meta["source_hash"] == store.hash
    assert (back.meta["task"], back.meta["episodes_n"], back.meta["pairs_n"]) == ("stow", 2, 8)
    np.testing.assert_array_equal(back.observation_statistics.mean, made.observation_statistics.mean)


def test_failures_come_along_when_asked_for_and_unknown_outcomes_do_not_otherwise(tmp_path: Path) -> None:
    store = stored(tmp_path / "s", episode(0), episode(1), episode(2, success_at_end=None))
    made, left_out = export_training(store, tmp_path / "t.npz", failures=True)
    assert (made.episode_id, left_out) == (("stow/0", "stow/1", "stow/2"), [])
    made, left_out = export_training(store, tmp_path / "t.npz", overwrite=True)
    assert made.episode_id == load_training(tmp_path / "t.npz").episode_id == ("stow/0",)
    assert left_out[1] == ("stow/2", "it is not known whether it succeeded")


def test_the_hash_is_of_the_contents(tmp_path: Path, store: Store) -> None:
    one, two = (export_training(store, tmp_path / f"{n}.npz")[0].meta["hash"] for n in "ab")
    other = export_training(store, tmp_path / "c.npz", failures=True)[0].meta["hash"]
    assert one == two != other


# ----------------------------------------------------------------------------------------------------- statistics


def test_statistics_are_over_pairs_not_over_episodes(tmp_path: Path, store: Store) -> None:
    made, _ = export_training(store, tmp_path / "t.npz")
    seen, done = made.observation_statistics, made.action_statistics
    # (0 + 1 + 2 + 20 + 21 + 22 + 23 + 24) / 8; the mean of the two episodes' means would be 11.5
    np.testing.assert_allclose(seen.mean, [113 / 8, 7, 13 / 8])
    square = (1 + 4 + 400 + 441 + 484 + 529 + 576) / 8 - (113 / 8) ** 2
    np.testing.assert_allclose(seen.std, [square**0.5, 0, (23 / 8 - (13 / 8) ** 2) ** 0.5])
    np.testing.assert_allclose(done.mean, [-(1 + 2 + 3 + 21 + 22 + 23 + 24 + 25) / 8])
    assert seen.constant.tolist() == [False, True, False] and done.constant.tolist() == [False]


def test_constant_entries_are_shifted_and_not_divided_by_zero(tmp_path: Path, store: Store) -> None:
    made, _ = export_training(store, tmp_path / "t.npz")
    for x in (made.observation, jnp.asarray(made.observation), jnp.asarray(made.observation[0])):
        normal = made.observation_statistics.normal(x)
        assert np.isfinite(normal).all() and normal.dtype == np.float32 and (normal[..., 1] == 0).all()
        np.testing.assert_allclose(made.observation_statistics.physical(normal), x, atol=1e-5)
    normal = made.observation_statistics.normal(made.observation)
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(normal.std(0), [1, 0, 1], atol=1e-6)
    # what differs by rounding alone is constant: 1000.0001 in float32 is 2e-5 off
    assert Statistics(np.array([1000.0, 0.0, 0.0]), np.array([2e-5, 5e-7, 2e-6])).constant.tolist() == [
        True,
        True,
        False,
    ]


def test_sums_do_not_lose_digits() -> None:
    x = np.full((200_000, 1), 1000.1, np.float32) + np.tile(np.float32([[-0.25], [0.25]]), (100_000, 1))
    mean, std = statistics([x[:70_000], x[70_000:]])
    np.testing.assert_allclose(mean, x.astype(float).mean(), rtol=1e-12)
    np.testing.assert_allclose(std, x.astype(float).std(), rtol=1e-9)


# -------------------------------------------------------------------------------------------------------- windows


def test_windows_stay_in_their_episode(tmp_path: Path, store: Store) -> None:
    made, _ = export_training(store, tmp_path / "t.npz")  # pairs 0 to 2 and 3 to 7
    w = made.windows(history_n=3, chunk_n=3)
    assert w.history[[0, 1, 2, 3, 5]].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [3, 3, 3], [3, 4, 5]]
    assert w.chunk[[0, 1, 2, 3, 7]].tolist() == [[0, 1, 2], [1, 2, 2], [2, 2, 2], [3, 4, 5], [7, 7, 7]]
    assert w.real[[0, 1, 2]].tolist() == [[True, True, True], [True, True, False], [True, False, False]]
    assert w.real[3:].sum(axis=1).tolist() == [3, 3, 3, 2, 1]


def test_a_learner_sees_in_training_what_it_sees_when_it_acts(tmp_path: Path, store: Store) -> None:
    made, _ = export_training(store, tmp_path / "t.npz")
    trained = made.observation[made.windows(history_n=3, chunk_n=2).history]
    chunks = Chunks(lambda key, history: jnp.zeros((2, 1)), history_n=3, chunk_n=2, actions_n=1, execute_n=1)
    acting = []
    for a, b in zip(made.first[:-1], made.first[1:], strict=True):
        state = chunks.init(made.observation[a], episode_key(0, 0))
        for t in range(a, b):
            state = chunks.act(state, made.observation[t], lambda _, yes, no, *x: yes(*x))[1]
            acting.append(np.asarray(state.history))
    np.testing.assert_array_equal(trained, np.stack(acting))


# ------------------------------------------------------------------------------------------------------- refusals


def test_episodes_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "t.npz"
    other = episode(2, signals={"observation": np.zeros((4, 2))})
    for episodes, layout, said in (
        ([episode(0), other], None, "stow/2: its observations and actions have 2 and 1 entries, expected 3 and 1"),
        ([episode(0)], {"place": slice(0, 2)}, "the layout is of 2 entries, expected 3"),
        ([], None, "there is no demonstration to write"),
    ):
        with pytest.raises(InputError, match=said):
            write_training(out, episodes, task="stow", layout=layout)
    assert list(tmp_path.iterdir()) == []


def test_stores_of_different_layouts_are_refused(tmp_path: Path, store: Store) -> None:
    same = stored(tmp_path / "b", episode(4))
    none = stored(tmp_path / "c", episode(4), layout=None)
    assert layout_of([store, same])["told"] == slice(1, 2) and layout_of([none]) == {}
    with pytest.raises(InputError, match="laid out differently, expected one layout"):
        layout_of([store, none])


def test_only_a_training_file_is_written_over(tmp_path: Path, store: Store) -> None:
    out = tmp_path / "t.npz"
    export_training(store, out)
    with pytest.raises(InputError, match="it exists already"):
        export_training(store, out)
    export_training(store, out, overwrite=True)
    np.savez(out, thesis=np.ones(3))
    with pytest.raises(InputError, match="it is no training file, so it is not overwritten"):
        export_training(store, out, overwrite=True)
    with np.load(out) as file:
        assert file.files == ["thesis"]


def changed(path: Path, **changes: Any) -> None:
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | changes))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: p.unlink(), "there is no such file"),
        (lambda p: p.write_bytes(p.read_bytes()[:700]), "it is damaged, or no training file"),
        (lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\n"), "this is a Git-LFS pointer"),
        (lambda p: np.savez(p, a=np.ones(3)), "it is damaged, or no training file"),
        (lambda p: changed(p, meta=np.array("[]")), "it is damaged, or no training file"),
        (lambda p: changed(p, action=np.zeros((8, 1), np.float32)), "their hash differs"),
        (lambda p: changed(p, action=np.zeros((8, 1))), "its arrays are not those of a training file"),
        (lambda p: changed(p, meta=np.array(json.dumps(told(p) | {"format_version": 2}))), "format_version is 2"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path: Path, store: Store, damage: Any, said: str) -> None:
    export_training(store, tmp_path / "t.npz")
    damage(tmp_path / "t.npz")
    with pytest.raises(InputError, match=said) as caught:
        load_training(tmp_path / "t.npz")
    assert "t.npz" in str(caught.value) and ";" in str(caught.value)


def told(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return json.loads(str(file["meta"]))


# ------------------------------------------------------------------------------------------------------- the verb


def test_convert_writes_a_training_file(tmp_path: Path, store: Store) -> None:
    more = stored(tmp_path / "more", episode(4))
    made = convert(open_source([store.path, more.path]), tmp_path / "t.npz", to="training")
    assert (made.kind, made.episodes_n, made.frames_n) == ("training", 3, 4 + 6 + 4)
    assert made.left_out == [("stow/1", "it did not succeed")]
    back = load_training(tmp_path / "t.npz")
    assert back.episode_id == ("stow/0", "stow/2", "stow/4") and back.layout["speed"] == slice(2, 3)
    np.testing.assert_array_equal(back.observation[:8], export_training(store, tmp_path / "u.npz")[0].observation)
    assert json.loads((tmp_path / f"t.npz.{RECORD}").read_text())["left_out"] == [["stow/1", "it did not succeed"]]


def test_convert_to_training_as_typed(tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["convert", str(store.path), f"out={tmp_path}/t.npz", "to=training"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "stow/1: it did not succeed" in said and "2 episodes, 10 frames" in said
    assert load_training(tmp_path / "t.npz").meta["pairs_n"] == 8
    assert main(asked) == 1 and "it exists already" in capsys.readouterr().err
    plain = write_store(tmp_path / "plain", [episode(0, signals=None)], task="stow")
    assert main(["convert", str(plain.path), f"out={tmp_path}/p.npz", "to=training"]) == 1
    assert "it holds no observations" in capsys.readouterr().err and not (tmp_path / "p.npz").exists()
