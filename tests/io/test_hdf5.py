"""What all HDF5 readers share: files cut anywhere, damaged bytes, and one motion through every format."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from jaxeval.io import InputError, bundled, bundled_path
from jaxeval.io.readers.hdf5 import refuse_hdf5
from jaxeval.io.readers.lerobot import read_lerobot
from jaxeval.io.readers.maniskill import is_maniskill, read_maniskill
from jaxeval.io.readers.robolab import is_robolab, read_robolab
from jaxeval.io.readers.robomimic import is_robomimic, read_robomimic
from jaxeval.io.writers.lerobot import write_lerobot
from jaxeval.types import Episode
from tests.io.foreign import write_robolab, write_robomimic

Read = Callable[[Path], tuple[list[Episode], list]]
KINDS = ("maniskill", "robomimic", "robolab")


@pytest.fixture(scope="module")
def recorded() -> list[Episode]:
    return bundled("stack_cube_demos").read(0, 3)


def made(kind: str, folder: Path, episodes: list[Episode]) -> tuple[Path, Read, Callable[[Path], bool]]:
    """A file of that kind, its reader, its predicate."""
    if kind == "robomimic":
        return write_robomimic(folder / "d.hdf5", episodes), read_robomimic, is_robomimic
    if kind == "robolab":
        return write_robolab(folder, episodes), read_robolab, is_robolab
    for suffix in (".h5", ".json"):
        shutil.copyfile(bundled_path("maniskill/StackCube-v1.h5").with_suffix(suffix), folder / f"t{suffix}")
    return folder / "t.h5", read_maniskill, is_maniskill


@pytest.mark.parametrize("kind", KINDS)
def test_cut_anywhere_gives_whole_episodes_or_refuses(tmp_path: Path, recorded: list[Episode], kind: str) -> None:
    path, read, _ = made(kind, tmp_path, recorded)
    whole, wanted = path.read_bytes(), {e.episode_id: e for e in read(path)[0]}
    outcomes = set()
    for cut in np.linspace(0, len(whole) - 1, 30).astype(int):
        path.write_bytes(whole[:cut])
        try:
            episodes, findings = read(path)
        except InputError as error:
            assert path.name in str(error) and "copy" in str(error)
            outcomes.add("refused")
            continue
        outcomes.add("read")
        assert "truncated" in {f.code for f in findings}
        for e in episodes:
            assert e.bodies == wanted[e.episode_id].bodies
            np.testing.assert_array_equal(e.poses, wanted[e.episode_id].poses)
            np.testing.assert_array_equal(e.joints, wanted[e.episode_id].joints)
    assert outcomes == {"refused", "read"}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers like 1e300 overflow when squared
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_bytes_never_end_in_a_traceback(tmp_path: Path, recorded: list[Episode], kind: str) -> None:
    path, read, _ = made(kind, tmp_path, recorded[:2])
    whole = path.read_bytes()
    costs = []
    for seed in range(40):
        chance, spoilt = random.Random(seed), bytearray(whole)
        start = chance.randrange(len(whole))
        for _ in range(chance.randrange(1, 40)):
            at = min(start + chance.randrange(400), len(whole) - 1)
            spoilt[at] = chance.randrange(256)
        path.write_bytes(spoilt)
        try:
            episodes, findings = read(path)
            for e in episodes:
                e.check()
        except InputError as error:
            costs.append(len(recorded))
            assert "\n" not in str(error)
        else:
            costs.append(sum(f.code == "unreadable_episode" for f in findings))
    assert sum(costs) > 0 and min(costs) == 0  # some damage is seen, some only changes numbers


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_of_its_kind_by_content_not_by_name(tmp_path: Path, recorded: list[Episode], kind: str) -> None:
    path, _, is_it = made(kind, tmp_path, recorded[:1])
    renamed = path.rename(path.with_suffix(".recording"))
    judges = {"maniskill": is_maniskill, "robomimic": is_robomimic, "robolab": is_robolab}
    assert is_it(renamed) and [k for k, judge in judges.items() if judge(renamed)] == [kind]
    renamed.write_bytes(renamed.read_bytes()[:-10])
    assert is_it(renamed)  # a truncated one still is
    renamed.write_bytes(b"hello")
    assert not any(judge(renamed) for judge in judges.values())


def test_what_is_of_no_kind_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["frames"] = np.zeros(3)
    with pytest.raises(InputError, match="it holds frames, expected traj_0"):
        refuse_hdf5(tmp_path / "other.h5")
    for content, said in ((b"", "not an HDF5 file"), (b"version https://git-lfs.github.com", "Git-LFS pointer")):
        (tmp_path / "bad.h5").write_bytes(content)
        with pytest.raises(InputError, match=said):
            refuse_hdf5(tmp_path / "bad.h5")
    with pytest.raises(InputError, match="it is a folder"):
        refuse_hdf5(tmp_path)


def test_another_scene_is_left_out_even_if_it_comes_first(tmp_path: Path, recorded: list[Episode]) -> None:
    path = write_robomimic(tmp_path / "d.hdf5", recorded)
    with h5py.File(path, "a") as file:
        del file["data/demo_0/obs/cubeB_pos"]
    episodes, findings = read_robomimic(path)
    assert [e.episode_id for e in episodes] == ["Stack/demo_1", "Stack/demo_2"]
    (finding,) = [f for f in findings if f.code == "scene_differs"]
    assert finding.where.endswith("demo_0") and "cubeB" in finding.expected


def test_one_motion_is_the_same_through_every_format(tmp_path: Path, recorded: list[Episode]) -> None:
    write_lerobot(tmp_path / "set", recorded)
    read = {
        "robomimic": read_robomimic(write_robomimic(tmp_path / "d.hdf5", recorded))[0],
        "robolab": read_robolab(write_robolab(tmp_path, recorded))[0],
        "lerobot": read_lerobot(tmp_path / "set")[0],
    }
    for kind, episodes in read.items():
        for e, r in zip(episodes, recorded, strict=True):
            assert set(e.bodies) == set(r.bodies), kind
            for body in r.bodies:
                np.testing.assert_allclose(e.body(body), r.body(body), atol=1e-7, err_msg=kind)
            np.testing.assert_allclose(e.time_s, r.time_s, atol=1e-6, err_msg=kind)
            np.testing.assert_allclose(e.actions[1:], r.actions[1:], atol=1e-6, err_msg=kind)
            np.testing.assert_allclose(e.joints[:, :7], r.joints[:, :7], atol=1e-6, err_msg=kind)
            if e.gripper_width_m is not None:
                np.testing.assert_allclose(e.gripper_width_m, r.gripper_width_m, atol=1e-8, err_msg=kind)
            assert not {f.code for f in e.check()} & {"quaternion_order", "pose_jump", "unnormalised_quaternion"}
