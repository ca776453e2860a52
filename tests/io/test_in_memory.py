"""Episodes from arrays and from plain tables, and lists of episodes as sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jaxeval as je
from jaxeval.io import InputError
from jaxeval.io.in_memory import source_of
from tests.executions import episodes

pd = pytest.importorskip("pandas")
N = 30


def frame_of(some: int = 2) -> pd.DataFrame:
    """Two trials of a cube and a hand: position along x by row, the cube's last two rows of trial b not seen."""
    rows = []
    for trial in "abcdef"[:some]:
        for t in range(N):
            lost = trial == "b" and t >= N - 2
            cube = [np.nan] * 7 if lost else [1, 0, 0, 0, 0.01 * t, 0, 0.02]
            rows.append(
                [
                    trial,
                    0.05 * t,
                    *cube,
                    0,
                    1,
                    0,
                    0,
                    0.01 * t,
                    0,
                    0.1,
                    0.04,
                    1 if trial == "a" else 0,
                    f"policy {trial}",
                ]
            )
    pose = [f"{body}_{end}" for body in ("cube", "hand") for end in ("qw", "qx", "qy", "qz", "x", "y", "z")]
    return pd.DataFrame(rows, columns=["trial", "t", *pose, "width", "ok", "who"])


COLUMNS = {
    "time_s": "t", "episode": "trial", "cube": "cube_*", "tcp": "hand_*", "gripper_width_m": "width",
    "success_at_end": "ok", "policy": "who",
}  # fmt: skip


def test_a_data_frame_becomes_episodes() -> None:
    a, b = je.episodes_from_table(frame_of(), columns=COLUMNS, task="push")
    assert (a.episode_id, b.episode_id) == ("a", "b") and a.bodies == ("cube", "tcp") and a.task == "push"
    assert a.success_at_end is True and b.success_at_end is False
    assert dict(a.attributes) == {"policy": "policy a"} and dict(b.attributes) == {"policy": "policy b"}
    np.testing.assert_allclose(a.body("cube")[:, 4], 0.01 * np.arange(N))
    np.testing.assert_allclose(a.body("tcp")[0], [0, 1, 0, 0, 0, 0, 0.1])
    ready = b.prepared()
    assert ready.frame_valid.all() and ready.valid[:, 1].all()  # the hand was seen throughout
    np.testing.assert_array_equal(ready.valid[:, 0], np.arange(N) < N - 2)
    assert repr(a).startswith("Episode('a', push: cube, tcp; 30 frames in 1.45 s") and "\n" not in repr(a)


def test_the_same_table_as_csv_npz_and_columns(tmp_path: Path) -> None:
    frame = frame_of()
    frame.to_csv(tmp_path / "runs.csv", index=False)
    frame.to_parquet(tmp_path / "runs.parquet")
    np.savez(
        tmp_path / "run.npz",
        t_s=frame.t[:N],
        cube=frame.iloc[:N, 2:9].to_numpy(float),
        hand=frame.iloc[:N, 9:16].to_numpy(float),
    )
    wanted = je.episodes_from_table(frame, columns=COLUMNS)
    for table in (tmp_path / "runs.csv", str(tmp_path / "runs.parquet"), {k: list(v) for k, v in frame.items()}):
        for one, other in zip(je.episodes_from_table(table, columns=COLUMNS), wanted, strict=True):
            np.testing.assert_array_equal(one.poses, other.poses)
            assert one.episode_id == other.episode_id and dict(one.attributes) == dict(other.attributes)
            assert one.success_at_end == other.success_at_end
    (alone,) = je.episodes_from_table(tmp_path / "run.npz", columns={"time_s": "t_s", "cube": "cube", "tcp": "hand"})
    np.testing.assert_array_equal(alone.poses, wanted[0].poses)
    listed = dict(COLUMNS) | {"cube": [f"cube_{end}" for end in ("qw", "qx", "qy", "qz", "x", "y", "z")]}
    np.testing.assert_array_equal(je.episodes_from_table(frame, columns=listed)[0].poses, wanted[0].poses)
    standing = je.episodes_from_table(frame.rename(columns={"t": "time_s", "trial": "episode"}))
    assert [e.bodies for e in standing] == [("cube", "hand")] * 2  # found by the names of their columns


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"cube": "cube_*"}, "table: no column for time_s among trial, t, "),
        (COLUMNS | {"time_s": "seconds"}, "table: no column 'seconds', found trial, t, "),
        ({"time_s": "t"}, "no body's pose among trial, t, "),
        (COLUMNS | {"cube": ["cube_qw", "cube_x"]}, "2 columns of the body 'cube', expected 7"),
        (COLUMNS | {"tilt": "cube_x"}, "tilt of episode a is 0.0 and 0.01, expected one value an episode"),
    ],
)
def test_a_table_that_lacks_something_is_refused_in_a_sentence(columns: dict, said: str) -> None:
    with pytest.raises(InputError) as caught:
        je.episodes_from_table(frame_of(), columns=columns)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_arrays_of_the_wrong_shape_are_refused() -> None:
    poses = np.tile([1.0, 0, 0, 0, 0, 0, 0], (5, 2, 1))
    both = {"poses": poses, "bodies": ["cube", "tcp"]}
    for bad, said in (
        (lambda: je.episode(poses, np.arange(5), ["cube"]), r"found shape \[5, 2, 7\], expected \[T, 1, 7\]"),
        (lambda: je.episode(time_s=np.arange(4), **both), r"found shape \[4\], expected \[5\]"),
        (lambda: je.episode({"cube": poses[:, 0, :6]}, np.arange(5)), r"found cube \[5, 6\], expected \[T, 7\]"),
        (lambda: je.episodes_from_table(3), "found a int, expected a data frame"),
        (lambda: source_of(3), "found a int, expected a path, a store, a source or a list of episodes"),
        (lambda: source_of([]), "found an empty list"),
        (lambda: source_of([3]), "found a list of other things"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            bad()


def test_whatever_holds_episodes_is_a_source(tmp_path: Path) -> None:
    from jaxeval.io import write_store

    some = list(episodes()[:2])
    store = write_store(tmp_path / "s", some, task="stack_cube")
    for given in (some, store, tmp_path / "s", str(tmp_path / "s"), [tmp_path / "s"], je.open_source(tmp_path / "s")):
        source = source_of(given)
        assert source.n_episodes == 2 and source.task == "stack_cube"
        assert [e.episode_id for e in source.iter_episodes()] == [e.episode_id for e in some]
    assert source_of(some[0]).n_episodes == 1
