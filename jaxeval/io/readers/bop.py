"""Pose estimates in the results format of the BOP benchmark: ``scene_id,im_id,obj_id,score,R,t,time``.

R is nine numbers row by row, t three in millimetres, both of the object in the camera's frame; a scene is an episode
and image k is at k / fps. What an image lacks is a gap: its frame is invalid, with NaN for the object.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.rotations import quaternions_of_matrices
from jaxeval.io.readers.text_tables import (
    TABLE_FINDINGS,
    first_line,
    number,
    parsed_lines,
    text_lines,
    without_cut_line,
)
from jaxeval.types import Episode, Finding, Symmetry

BOP = "a header `scene_id,im_id,obj_id,score,R,t,time` and rows of it"
COLUMNS = ("scene_id", "im_id", "obj_id", "score", "R", "t")
FPS = 30.0
"""Images a second where the caller does not say: the format holds no clock."""
CENTRED_M = 1e-3
"""A symmetry counts as one about the origin of the model's frame if it is off by less."""

BOP_FINDINGS: dict[str, tuple[str, str]] = {
    **TABLE_FINDINGS,
    "default_fps": ("warning", "no rate is given and the format holds none: 30 images a second are taken"),
    "camera_frame": ("info", "poses are in the camera's frame, which must not move for them to be a world's"),
    "several_detections": ("info", "an object is found several times in an image: the highest score counts"),
    "missing_detections": ("warning", "an object is not found in some images: those frames are invalid"),
    "other_objects": ("warning", "objects that not every scene holds: they are left out"),
    "unreadable_scene": ("error", "a scene cannot be read: it is left out"),
}
"""Findings of `read_bop`: code -> (severity, meaning); with ``rotation_defect`` of `quaternions_of_matrices`."""


class _Row(NamedTuple):
    scene: int
    image: int
    body: str
    score: float
    R: list[float]
    t_m: list[float]


def is_bop(path: str | Path) -> bool:
    """A ``.csv`` whose first line names ``scene_id`` and ``obj_id``."""
    path = Path(path)
    names = [n.strip() for n in first_line(path, comment="").split(",")] if path.suffix.lower() == ".csv" else []
    return {"scene_id", "obj_id"} <= set(names)


def read_bop(
    path: str | Path, *, fps: float | None = None, objects: tuple[str, ...] | None = None
) -> tuple[list[Episode], list[Finding]]:
    """An episode a scene, with bodies ``obj_000001`` and so on; ``objects`` names those that a frame must hold.

    Of several detections of one object in one image the highest score counts. Where a scene lists at least half of
    the image numbers between its first and last, those it lacks are invalid frames; else its images are key frames.

    Raises:
        InputError: no such file, not this format, over a tenth of the lines no rows, a rate that is not positive, no
            readable scene, an object there is not, or no object that every scene holds.
    """
    path = Path(path)
    if fps is not None and not (np.isfinite(fps) and fps > 0):
        raise InputError(f"{path}: fps = {fps}, expected images a second above 0; give the rate of the video")
    findings = FileFindings(path, BOP_FINDINGS)
    rows = _rows(path, findings)
    if fps is None:
        findings.add("default_fps", "no rate", "fps, images a second", f"{FPS:g} is taken; give the video's")
    findings.add(
        "camera_frame", "poses in the camera's frame", "a world frame", "taken as one: the camera stands still"
    )
    scenes: dict[int, list[_Row]] = {}
    for row in rows:
        scenes.setdefault(row.scene, []).append(row)
    bodies = _bodies(path, scenes, objects, findings)
    episodes: list[Episode] = []
    reasons: list[str] = []
    for scene, found in sorted(scenes.items()):
        where = f"{path} scene {scene}"
        try:
            episodes.append(_episode(path, where, scene, found, bodies, fps or FPS, findings))
        except InputError as error:
            reasons.append(str(error))
            findings.add("unreadable_scene", str(error), "rotations and metres", "left out", where=where)
    if not episodes:
        raise InputError(reasons[0])
    return episodes, findings.found


def bop_symmetries(path: str | Path, *, objects: tuple[str, ...] | None = None) -> dict[str, Symmetry]:
    """Symmetries of the objects in a ``models_info.json`` (or of the folder that holds one), by ``obj_000001``.

    One continuous axis is ``spin``, several are ``all``, discrete turns are ``discrete`` with the identity added.

    Raises:
        InputError: no such file, not this format, or an object (of `objects`, if given) whose symmetry is not one of
            `Symmetry`: about a point 1 mm or more from the origin of its frame, or a spin joined with a flip.
    """
    path = Path(path) / "models_info.json" if Path(path).is_dir() else Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file; check the path")
    refuse_lfs_pointer(path)
    try:
        info = {f"obj_{int(key):06d}": dict(value) for key, value in json.loads(path.read_text("utf-8-sig")).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a models_info.json ({error}); expected objects by number") from error
    if absent := [name for name in objects or () if name not in info]:
        raise InputError(f"{path}: no object {', '.join(absent)}; it has {', '.join(info)}")
    out = {}
    for name in objects or tuple(info):
        where = f"{path}: {name}"
        try:
            out[name] = _symmetry(info[name], where)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{where}: its symmetries cannot be read ({error}); expected BOP's fields") from error
    return out


# ---------------------------------------------------------------------------------------------------------- rows


def _rows(path: Path, findings: FileFindings) -> list[_Row]:
    header, *lines = text_lines(path, expected=BOP)
    names = [n.strip() for n in header.text.split(",")]
    if missing := [c for c in COLUMNS if names.count(c) != 1]:
        raise InputError(f"{path}: no one column '{missing[0]}' among {', '.join(names)[:200]}; expected {BOP}")
    if not lines:
        raise InputError(f"{path}: it holds a header alone, expected rows under it; check the estimator")
    at = [names.index(c) for c in COLUMNS]
    if max(at) == len(names) - 1:
        lines = without_cut_line(lines, lambda text: text.rpartition(",")[2].split(" ")[-1], findings)

    def parse(text: str) -> _Row:
        fields = [f.strip() for f in text.split(",")]
        if len(fields) != len(names):
            raise ValueError(f"{len(fields)} columns, the header has {len(names)}")
        scene, image, obj, score, R, t = (fields[k] for k in at)
        matrix, t_mm = [number(x) for x in R.split()], [number(x) for x in t.split()]
        if len(matrix) != 9 or len(t_mm) != 3:
            raise ValueError(f"R has {len(matrix)} numbers and t {len(t_mm)}, not 9 and 3")
        return _Row(_id(scene), _id(image), f"obj_{_id(obj):06d}", number(score), matrix, [x / 1000 for x in t_mm])

    return parsed_lines(path, lines, parse, findings, expected=BOP)


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ValueError(f"'{text[:24]}' is no number of a scene, image or object")
    return int(text)


def _bodies(
    path: Path, scenes: dict[int, list[_Row]], objects: tuple[str, ...] | None, findings: FileFindings
) -> tuple[str, ...]:
    """The objects that make up a frame: those asked for, or those that every scene holds."""
    held = [{row.body for row in rows} for rows in scenes.values()]
    there = sorted(set.union(*held))
    if absent := [name for name in objects or () if name not in there]:
        raise InputError(f"{path}: no object {', '.join(absent)}; it has {', '.join(there)}; choose among these")
    if objects:
        return tuple(objects)
    common = sorted(set.intersection(*held))
    if not common:
        raise InputError(f"{path}: its {len(scenes)} scenes have no object in common; split the file by scene")
    if left := [name for name in there if name not in common]:
        findings.add("other_objects", ", ".join(left), "objects of every scene", "left out; split the file by scene")
    return tuple(common)


# --------------------------------------------------------------------------------------------------------- scenes


def _episode(
    path: Path, where: str, scene: int, rows: list[_Row], bodies: tuple[str, ...], fps: float, findings: FileFindings
) -> Episode:
    best: dict[tuple[int, str], _Row] = {}
    for row in rows:
        key = (row.image, row.body)
        if row.body in bodies and (key not in best or not row.score <= best[key].score):
            best[key] = row
    wanted = sum(row.body in bodies for row in rows)
    if wanted > len(best):
        found = f"{wanted - len(best)} rows repeat an object of an image"
        findings.add("several_detections", found, "one a frame", "the highest score counts", where=where)
    images = np.array(sorted({row.image for row in rows}))
    if 2 * len(images) >= images[-1] - images[0] + 1:
        images = np.arange(images[0], images[-1] + 1)
    frame = {int(image): k for k, image in enumerate(images)}
    poses = np.full((len(images), len(bodies), 7), np.nan)
    if best:
        wxyz, defects = quaternions_of_matrices(
            np.array([row.R for row in best.values()]).reshape(-1, 3, 3), where=where
        )
        findings.found += defects
        for (image, body), q, row in zip(best, wxyz, best.values(), strict=True):
            poses[frame[image], bodies.index(body)] = [*q, *row.t_m]
    seen = np.asarray(~np.isnan(poses).any(axis=-1))
    counts = Counter({body: int(seen[:, n].sum()) for n, body in enumerate(bodies)})
    if short := {body: n for body, n in counts.items() if n < len(images)}:
        found = ", ".join(f"{body} in {n} of {len(images)} images" for body, n in short.items())
        done = f"in {int((~seen.all(axis=1)).sum())} frames an object is not valid"
        findings.add("missing_detections", found, "every object in every image", done, where=where)
    return Episode.of(
        poses=poses,
        time_s=(images - images[0]) / fps,
        valid=seen,
        bodies=bodies,
        episode_id=f"{path.stem}/scene={scene}",
        source=str(path),
    )


# ----------------------------------------------------------------------------------------------------- symmetries


def _symmetry(info: dict[str, Any], where: str) -> Symmetry:
    turns = [np.array(m, np.float64).reshape(4, 4) for m in info.get("symmetries_discrete") or []]
    axes, copies = [], [(1.0, 0.0, 0.0, 0.0)]
    for spin in info.get("symmetries_continuous") or []:
        axis = np.array(spin["axis"], np.float64).reshape(3)
        axis = axis / np.linalg.norm(axis)
        offset_mm = np.array(spin.get("offset", [0, 0, 0]), np.float64).reshape(3)
        _centred(offset_mm - axis * (axis @ offset_mm), where)
        axes.append(axis)
    for turn in turns:
        _centred(turn[:3, 3], where)
        q = quaternions_of_matrices(turn[None, :3, :3], where=where)[0][0]
        if all(abs(q @ np.array(c)) < 1 - 1e-6 for c in copies):
            copies.append(tuple(q.tolist()))
    if any(abs(a @ axes[0]) < 1 - 1e-6 for a in axes):
        return Symmetry("all")
    if axes:
        flips = [c for c in copies if np.linalg.norm(np.cross(c[1:], axes[0])) > 1e-3]
        if flips:
            raise InputError(f"{where}: a spin joined with a flip, expected one or the other; drop one from the file")
        x, y, z = axes[0].tolist()
        return Symmetry("spin", axis=(x, y, z))
    return Symmetry("discrete", copies_wxyz=tuple(copies)) if len(copies) > 1 else Symmetry()


def _centred(off_mm: np.ndarray, where: str) -> None:
    """InputError if a symmetry leaves the origin of the model's frame, or is not a number."""
    off_m = float(np.linalg.norm(off_mm)) / 1000
    if not off_m < CENTRED_M:
        raise InputError(
            f"{where}: its symmetry moves the origin of the model's frame by {off_m * 1000:.3g} mm, expected under "
            f"{CENTRED_M * 1000:g} mm; centre the model, or leave the object out with objects=..."
        )
