"""TUM and EuRoC text and BOP results: the numbers by hand, the same motion in each, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxeval.io import InputError, bundled
from jaxeval.io.readers.bop import bop_symmetries, is_bop, read_bop
from jaxeval.io.readers.trajectories import (
    TRAJECTORY_FINDINGS,
    is_euroc,
    is_tum,
    is_tum_folder,
    read_euroc,
    read_tum,
    read_tum_folder,
    write_tum,
)
from jaxeval.types import Episode, Finding, Symmetry
from tests.executions import small_episode
from tests.io.samples import EPOCH_NS, EUROC_HEADER, write_sample_bop, write_sample_euroc, write_sample_tum

ROW = "0.1 0.2 0.3 0.6 0 0 0.8"  # x y z, then a quaternion xyzw
BOP_HEADER = "scene_id,im_id,obj_id,score,R,t,time"
EYE = "1 0 0 0 1 0 0 0 1"


def codes(findings: list[Finding]) -> list[str]:
    return [f.code for f in findings]


def text(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end)
    return path


def real() -> Episode:
    """A bundled demonstration: four bodies, 174 frames."""
    return bundled("stack_cube_demos").read(0, 1)[0]


# ---------------------------------------------------------------------------------------------------------- TUM


def test_tum_worked_by_hand(tmp_path: Path) -> None:
    path = text(tmp_path / "cube.txt", "# a comment", "", f"10.5 {ROW}", "10.75,1,2,3,0,0,0,1", "  11\t1 2 3 0 0 0 1 ")
    (e,), findings = read_tum(path)
    np.testing.assert_array_equal(e.poses[:, 0], [[0.8, 0.6, 0, 0, 0.1, 0.2, 0.3], *[[1.0, 0, 0, 0, 1, 2, 3]] * 2])
    np.testing.assert_array_equal(e.time_s, [0, 0.25, 0.5])
    assert (e.bodies, e.episode_id, e.source, e.success_at_end) == (("cube",), "cube", str(path), None)
    assert e.valid.all() and e.gripper_width_m is None
    assert codes(findings) == ["rebased"] and "10.5 s" in str(findings[0])


def test_names_in_a_comment_decide_the_columns(tmp_path: Path) -> None:
    path = text(
        tmp_path / "cube.txt", "# timestamp [s] tx ty tz q_w q_x q_y q_z", "0 1 2 3 0.8 0.6 0 0", "1 1 2 3 0.8 0.6 0 0"
    )
    (e,), findings = read_tum(path)
    np.testing.assert_array_equal(e.poses[1, 0], [0.8, 0.6, 0, 0, 1, 2, 3])
    assert codes(findings) == ["named_columns"]
    usual = text(tmp_path / "b.txt", "# timestamp tx ty tz qx qy qz qw", f"0 {ROW}")
    assert read_tum(usual)[1] == []


def test_nanoseconds_of_epoch_stamps_survive(tmp_path: Path) -> None:
    stamps = [f"1403636580.{k:09d}" for k in (0, 1, 250, 999_999_999)]  # float64 would give steps of 238 ns
    (e,), _ = read_tum(text(tmp_path / "cube.txt", *(f"{s} {ROW}" for s in stamps)))
    np.testing.assert_allclose(e.time_s, [0, 1e-9, 250e-9, 0.999999999], rtol=1e-12, atol=0)


def test_write_tum_keeps_every_digit_and_leaves_invalid_frames_out(tmp_path: Path) -> None:
    e = real()
    valid = np.ones(e.n_frames, bool)
    valid[[0, 7]] = False
    write_tum(tmp_path / "cubeA.txt", dataclasses.replace(e, frame_valid=valid), "cubeA")
    table = np.loadtxt(tmp_path / "cubeA.txt")
    np.testing.assert_array_equal(table[:, 0], e.time_s[valid])
    np.testing.assert_array_equal(table[:, 1:4], e.body("cubeA")[valid, 4:])
    np.testing.assert_array_equal(table[:, 4:], e.body("cubeA")[valid][:, [1, 2, 3, 0]])
    (back,), _ = read_tum(tmp_path / "cubeA.txt")
    np.testing.assert_array_equal(back.poses[:, 0], e.body("cubeA")[valid])
    np.testing.assert_allclose(back.time_s, e.time_s[valid] - e.time_s[1], atol=1e-9)
    with pytest.raises(InputError, match="no body 'cup' to write; the episode has cubeA"):
        write_tum(tmp_path / "x.txt", e, "cup")
    with pytest.raises(InputError, match="no valid frame"):
        write_tum(tmp_path / "x.txt", dataclasses.replace(e, frame_valid=~np.ones(e.n_frames, bool)), "cubeA")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "the file is empty"),
        (["# timestamp tx ty tz qx qy qz qw"], "comments alone"),
        (["0 1 2 3 0 0 0"], "line 1: 7 columns, not 8"),
        (["hello world"], "line 1: 2 columns, not 8"),
        ([f"0 {ROW}", f"one {ROW}"], "line 2: 'one' is not a number"),
        ([f"1_0 {ROW}"], "'1_0' is not a number"),
        (["0 0 0 0 1 1 2 3", "1 0 0 0 1 1 2 3"], "quaternions have length 3.87, not 1"),
        ([f"1403636580838555574 {ROW}"], "are these nanoseconds"),
        ([f"nan {ROW}"], "not finite"),
        ([f"{1 - k / 100} {ROW}" for k in range(60)], "stamps step back 59 times in 60 rows"),
    ],
)
def test_tum_files_that_are_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    with pytest.raises(InputError, match=r"cube\.txt.*: .*" + told.replace(".", r"\.")):
        read_tum(text(tmp_path / "cube.txt", *lines))


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for read, name in ((read_tum, "a.txt"), (read_euroc, "a.csv"), (read_bop, "a.csv")):
        for data, told in (
            (b"PK\x03\x04rest", "this is a zip archive"),
            (b"\x1f\x8brest", "this is a gzip archive"),
            (b"1\x00 2\x00", "this is not text"),
            (b"version https://git-lfs.github.com/spec/v1\n", "this is a Git-LFS pointer"),
            (b" \n\n", "the file is empty"),
        ):
            (tmp_path / name).write_bytes(data)
            with pytest.raises(InputError, match=told):
                read(tmp_path / name)
        with pytest.raises(InputError, match="there is no such file"):
            read(tmp_path / "none")


def test_a_few_bad_lines_are_left_out_and_listed(tmp_path: Path) -> None:
    lines = [f"{k / 10} {ROW}" for k in range(40)]
    lines[7] = "0.7 0.1 0.2 x 0.6 0 0 0.8"
    lines[9] += " 5"
    (e,), findings = read_tum(text(tmp_path / "cube.txt", *lines))
    np.testing.assert_allclose(e.time_s, np.delete(np.arange(40), [7, 9]) / 10, atol=1e-12)
    assert codes(findings) == ["unreadable_line"]
    assert "2 of 40 lines" in findings[0].found and "first line 8: 'x' is not a number" in findings[0].found


def test_nan_and_zero_rows_stay_as_invalid_frames(tmp_path: Path) -> None:
    lines = [f"{k / 10} {ROW}" for k in range(40)]
    lines[3], lines[5] = "0.3 nan nan nan 0 0 0 1", "0.5 0 0 0 0 0 0 0"
    (e,), _ = read_tum(text(tmp_path / "cube.txt", *lines))
    assert {"non_finite_pose", "zero_quaternion"} <= {f.code for f in e.check()}
    assert np.flatnonzero(~e.prepared().valid.any(axis=1)).tolist() == [3, 5]


def test_a_number_cut_at_the_end_is_not_believed(tmp_path: Path) -> None:
    def last_qw(*lines: str) -> tuple[float, list[str]]:
        (e,), findings = read_tum(text(tmp_path / "cube.txt", *lines, end=""))
        return float(e.poses[-1, 0, 0]), codes(findings)

    free = ["0 1 2 3 0.999 0 0 0.0447", "1 1 2 3 0.9989 0 0 0.046891", "2 1 2 3 0.99 0 0 0.141067"]
    assert last_qw(*free) == (0.046891, ["cut_line"])  # a file of free digits
    assert last_qw(*free[:2], "2 1 2 3 0.99 0 0 0.1") == (0.046891, ["cut_line"])
    assert last_qw(*free[:2], "2 1 2 3 0.99 0") == (0.046891, ["cut_line"])
    fixed = ["0 1 2 3 0.9990 0.0000 0.0000 0.0447", "1 1 2 3 0.9989 0.0000 0.0000 0.0469"]
    assert last_qw(*fixed) == (0.0469, ["no_line_end"])
    assert last_qw(*fixed, "2 1 2 3 0.9900 0.0000 0.0000 0.14") == (0.0469, ["cut_line"])


# --------------------------------------------------------------------------------------------------------- EuRoC


def test_euroc_worked_by_hand(tmp_path: Path) -> None:
    rows = [f"{EPOCH_NS + ns},0.1,0.2,0.3,0.8,0.6,0,0,9" for ns in (0, 5_000_000, 10_000_001)]
    (e,), findings = read_euroc(text(tmp_path / "cube.csv", EUROC_HEADER, *rows))
    np.testing.assert_array_equal(e.poses[:, 0], [[0.8, 0.6, 0, 0, 0.1, 0.2, 0.3]] * 3)
    np.testing.assert_array_equal(e.time_s, [0, 0.005, 0.010000001])
    assert e.bodies == ("cube",) and codes(findings) == ["rebased"]


def test_euroc_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    header = "q_x,q_y,q_z,q_w,p_x,p_y,p_z,extra,timestamp"
    (e,), _ = read_euroc(text(tmp_path / "cube.csv", header, "0.6,0,0,0.8,1,2,3,x,0", "0.6,0,0,0.8,1,2,3,,1000000000"))
    np.testing.assert_array_equal(e.poses[1, 0], [0.8, 0.6, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(e.time_s, [0, 1])
    (tmp_path / "state_groundtruth_estimate0").mkdir()
    data = text(tmp_path / "state_groundtruth_estimate0" / "data.csv", EUROC_HEADER, "0,1,2,3,1,0,0,0,0")
    assert read_euroc(data)[0][0].bodies == ("state_groundtruth_estimate0",)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([EUROC_HEADER], "a header alone"),
        ([EUROC_HEADER.replace(",q_RS_w []", "")], "no column 'q_w' among timestamp"),
        ([EUROC_HEADER + ",p_x", "0,1,2,3,1,0,0,0,0,0"], "2 columns 'p_x'"),
        ([EUROC_HEADER.replace("p_RS_R_y [m]", "p_RS_R_y [mm]"), "0,1,2,3,1,0,0,0,0"], "not in metres"),
        ([EUROC_HEADER, "1.4036e+18,1,2,3,1,0,0,0,0"], "a spreadsheet may have rounded it"),
        ([EUROC_HEADER, "0,1,2,3,1,0,0"], "7 columns, the header has 9"),
        ([EUROC_HEADER, "0,1,2,a,1,0,0,0,0"], "'a' is not a number"),
        ([EUROC_HEADER, f"{10**19},1,2,3,1,0,0,0,0"], "beyond 9.2e18 ns"),
        (["1,2,3"], "no column 'timestamp'"),
    ],
)
def test_euroc_files_that_are_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told.replace(".", r"\.").replace("+", r"\+")):
        read_euroc(text(tmp_path / "cube.csv", *lines))


# ------------------------------------------------------------------------------------------------------- folders


@pytest.mark.parametrize("write", [write_sample_tum, write_sample_euroc])
def test_a_folder_of_bodies_gives_the_recorded_arrays(tmp_path: Path, write) -> None:
    e = real()
    (back,), findings = read_tum_folder(write(tmp_path / "demo", e))
    assert sorted(back.bodies) == sorted(e.bodies) and back.episode_id == "demo" and back.valid.all()
    for body in e.bodies:
        np.testing.assert_allclose(back.body(body), e.body(body), atol=1e-9)
    np.testing.assert_allclose(back.time_s, e.time_s, atol=1e-9)
    assert codes(findings) == ["one_episode", "rebased"]


def test_frames_that_a_body_lacks_are_invalid(tmp_path: Path) -> None:
    text(tmp_path / "tcp.txt", *(f"{k / 10} {ROW}" for k in range(10)))
    slow = [f"{k / 10 + 0.04} 1 1 1 0 0 0 1" for k in (0, 1, 2, 5, 6)]
    slow.append("0.92 2 2 2 0 0 0 1")
    text(tmp_path / "cube.txt", *slow, "0.94 9 9 9 0 0 0 1", "1.5 1 1 1 0 0 0 1")  # one beside, one beyond
    (e,), findings = read_tum_folder(tmp_path)
    seen = e.valid_of("cube")
    assert np.flatnonzero(~seen).tolist() == [3, 4, 7, 8] and e.valid_of("tcp").all()
    assert np.isnan(e.body("cube")[~seen]).all() and not np.isnan(e.body("tcp")).any()
    np.testing.assert_array_equal(e.body("cube")[seen, 4], [1, 1, 1, 1, 1, 2])
    (unmatched,) = [f for f in findings if f.code == "unmatched"]
    assert "cube has 6 of 10 frames of tcp's clock, and 2 rows beside it" in unmatched.found


def test_which_folders_are_one_episode(tmp_path: Path) -> None:
    episode, several, far = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    write_sample_tum(episode, small_episode(20))
    write_sample_tum(several, small_episode(20, bodies=("ep000", "ep001")))
    write_sample_tum(far, small_episode(20, bodies=("cube",)))
    text(far / "tcp.txt", *(f"{k} {ROW}" for k in range(20)))
    assert [is_tum_folder(p) for p in (episode, several, far, tmp_path)] == [True, False, False, False]
    assert len(read_tum_folder(several)[0][0].bodies) == 2  # asked for, it is one
    with pytest.raises(InputError, match="no stamp in common"):
        read_tum_folder(far)
    with pytest.raises(InputError, match="0 trajectory files"):
        read_tum_folder(tmp_path)
    text(episode / "spoon.txt", "0 1 2")
    assert not is_tum_folder(episode)
    with pytest.raises(InputError, match=r"spoon\.txt: line 1: 3 columns"):
        read_tum_folder(episode)


def test_what_is_what(tmp_path: Path) -> None:
    tum = text(tmp_path / "a.txt", "# x", f"0 {ROW}")
    notes = text(tmp_path / "README.txt", "This folder holds trajectories.")
    euroc = text(tmp_path / "a.csv", EUROC_HEADER)
    bop = text(tmp_path / "b.csv", BOP_HEADER)
    table = text(tmp_path / "c.csv", "name,score", "a,1")
    empty, zipped = text(tmp_path / "d.txt", end=""), tmp_path / "e.csv"
    zipped.write_bytes(b"PK\x03\x04")
    damaged = text(tmp_path / "f.txt", "0.1 2 3")
    paths = (tum, notes, euroc, bop, table, empty, zipped, damaged, tmp_path, tmp_path / "none.txt")
    assert [is_tum(p) for p in paths] == [1, 0, 0, 0, 0, 1, 0, 1, 0, 0]
    assert [is_euroc(p) for p in paths] == [0, 0, 1, 0, 0, 0, 1, 0, 0, 0]
    assert [is_bop(p) for p in paths] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert all(severity in ("info", "warning", "error") for severity, _ in TRAJECTORY_FINDINGS.values())


# ----------------------------------------------------------------------------------------------------------- BOP


def test_bop_worked_by_hand(tmp_path: Path) -> None:
    quarter = "0 -1 0 1 0 0 0 0 1"  # x to y: about z
    path = text(
        tmp_path / "est.csv",
        BOP_HEADER,
        f"3,10,7,0.2,{EYE},1 2 3,-1",
        f"3,10,7,0.9,{quarter},100 -200 300,-1",
        f"3,10,2,0.5,{EYE},0 0 1000,-1",
        f"3,11,7,0.9,{EYE},1 2 3,-1",
        f"3,12,7,0.9,{EYE},1 2 3,-1",
        f"3,12,2,0.9,{EYE},1 2 3,-1",
        f"1,0,7,0.9,{EYE},1 2 3,-1",
        f"1,40,2,0.9,{EYE},1 2 3,-1",
        f"1,40,7,0.9,{EYE},1 2 3,-1",
        f"1,40,9,0.9,{EYE},1 2 3,-1",
    )
    (first, second), findings = read_bop(path, fps=10)
    assert (first.episode_id, second.episode_id) == ("est/scene=1", "est/scene=3")
    assert second.bodies == ("obj_000002", "obj_000007")
    h = np.sqrt(0.5)
    np.testing.assert_allclose(second.body("obj_000007")[0], [h, 0, 0, h, 0.1, -0.2, 0.3], atol=1e-12)
    np.testing.assert_allclose(second.time_s, [0, 0.1, 0.2])
    assert second.valid.tolist() == [[True, True], [False, True], [True, True]] and second.frame_valid.all()
    assert np.isnan(second.body("obj_000002")[1]).all()
    np.testing.assert_allclose(first.time_s, [0, 4])  # key frames: images 1 to 39 are not claimed to exist
    assert codes(findings) == [
        "camera_frame", "other_objects", "missing_detections", "several_detections", "missing_detections"
    ]  # fmt: skip
    assert "1 rows repeat" in findings[3].found and "obj_000002 in 2 of 3 images" in findings[4].found
    (only, _), _ = read_bop(path, fps=10, objects=("obj_000007",))
    assert only.valid.all() and only.bodies == ("obj_000007",)
    assert codes(read_bop(path)[1])[0] == "default_fps"
    np.testing.assert_allclose(read_bop(path)[0][1].time_s, [0, 1 / 30, 2 / 30])


def test_bop_gives_the_recorded_poses_and_gaps(tmp_path: Path) -> None:
    e = real()
    (back,), findings = read_bop(write_sample_bop(tmp_path, e, missing=(0, 50, 51)), fps=20)
    right = e.prepared().poses
    keep = back.valid.all(axis=1)
    assert np.flatnonzero(~keep).tolist() == [0, 50, 51]
    same = np.abs((back.poses[keep][..., :4] * right[keep][..., :4]).sum(-1))
    np.testing.assert_allclose(same, 1, atol=1e-9)
    np.testing.assert_allclose(back.poses[keep][..., 4:], right[keep][..., 4:], atol=1e-9)
    np.testing.assert_allclose(back.time_s, e.time_s, atol=1e-9)
    assert np.isfinite(back.prepared().poses).all() and not (back.prepared().poses == 0).all(axis=-1).any()
    assert codes(findings) == ["camera_frame", "missing_detections"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([BOP_HEADER], "a header alone"),
        ([BOP_HEADER.replace("R,", "")], "no one column 'R'"),
        ([BOP_HEADER, f"1,0,5,1,{EYE} 1,1 2 3,-1"], "R has 10 numbers"),
        ([BOP_HEADER, f"1,0,5,1,{EYE},1 2,-1"], "t 2, not 9 and 3"),
        ([BOP_HEADER, f"1,0.5,5,1,{EYE},1 2 3,-1"], "'0.5' is no number of a scene"),
        ([BOP_HEADER, f"1,0,5,1,{EYE},1 2 3"], "6 columns, the header has 7"),
        ([BOP_HEADER, "1,0,5,1,1 0 0 0 1 0 0 0 -1,1 2 3,-1"], "scene 1: row 0 has determinant -1"),
        ([BOP_HEADER, f"1,0,5,1,{EYE},1 2 3,0", f"2,0,6,1,{EYE},1 2 3,0"], "no object in common"),
    ],
)
def test_bop_files_that_are_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    path = text(tmp_path / "est.csv", *lines)
    with pytest.raises(InputError, match=told.replace(".", r"\.")):
        read_bop(path, fps=30)


def test_bop_settings_and_scenes(tmp_path: Path) -> None:
    path = text(tmp_path / "est.csv", BOP_HEADER, f"1,0,5,1,{EYE},1 2 3,0", "2,0,5,1,2 0 0 0 1 0 0 0 1,1 2 3,0")
    (e,), findings = read_bop(path, fps=30)
    assert e.episode_id == "est/scene=1" and codes(findings)[-1] == "unreadable_scene"
    for fps in (0, -1, float("nan")):
        with pytest.raises(InputError, match="images a second above 0"):
            read_bop(path, fps=fps)
    with pytest.raises(InputError, match="no object obj_000009; it has obj_000005"):
        read_bop(path, fps=30, objects=("obj_000009",))


def test_bop_symmetries(tmp_path: Path) -> None:
    half_z = [-1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    shifted = [-1, 0, 0, 40, 0, -1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    spin = {"axis": [0, 0, 2], "offset": [0, 0, 15]}
    info = {
        "1": {"diameter": 100, "symmetries_discrete": None},
        "2": {"symmetries_discrete": [half_z]},
        "3": {"symmetries_continuous": [spin]},
        "4": {"symmetries_continuous": [spin, {"axis": [1, 0, 0], "offset": [0, 0, 0]}]},
        "5": {"symmetries_discrete": [shifted]},
        "6": {"symmetries_continuous": [{"axis": [0, 0, 1], "offset": [15, 0, 0]}]},
    }
    (tmp_path / "models_info.json").write_text(json.dumps(info))
    good = tuple(f"obj_{k:06d}" for k in range(1, 5))
    out = bop_symmetries(tmp_path, objects=good)
    assert out["obj_000001"] == Symmetry() and out["obj_000004"] == Symmetry("all")
    assert out["obj_000003"] == Symmetry("spin", axis=(0, 0, 1))  # an offset along the axis is none
    turned = out["obj_000002"]
    assert turned.kind == "discrete" and turned.copies_wxyz[0] == (1, 0, 0, 0)
    np.testing.assert_allclose(
        Rotation.from_quat(turned.copies_wxyz[1], scalar_first=True).as_matrix(), np.diag([-1, -1, 1]), atol=1e-9
    )
    for name, told in (("5", "40 mm"), ("6", "15 mm")):
        with pytest.raises(InputError, match=f"obj_00000{name}: its symmetry moves the origin .* by {told}"):
            bop_symmetries(tmp_path / "models_info.json", objects=(f"obj_00000{name}",))
    flip = {"1": {"symmetries_continuous": [spin], "symmetries_discrete": [np.diag([1, -1, -1, 1]).ravel().tolist()]}}
    for bad, told in (
        (flip, "a spin joined with a flip"),
        ([1], "not a models_info"),
        ({"a": {}}, "not a models_info"),
    ):
        (tmp_path / "models_info.json").write_text(json.dumps(bad))
        with pytest.raises(InputError, match=told):
            bop_symmetries(tmp_path)
    (tmp_path / "models_info.json").write_text('{"1": {"symmetries_discrete": [[1, 2]]}}')
    with pytest.raises(InputError, match="cannot be read"):
        bop_symmetries(tmp_path)
