"""Recordings of scripted demonstrations kept as one ``.npz``: ``ep000/pose/<body>`` and so on, ``meta`` as JSON.

Poses in the file are position xyz then quaternion wxyz, in the world frame, float64; an Episode wants wxyz_xyz.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.initial_condition import initial_condition_id, task_name
from jaxeval.io.readers.hdf5 import measured, rate_hz
from jaxeval.io.readers.scene import start_hash
from jaxeval.types import Episode

PANDA_JOINTS = (*(f"panda_joint{i}" for i in range(1, 8)), "panda_finger_joint1", "panda_finger_joint2")
DERIVED = ("tcp", "peg_head", "box_hole", "goal", "goal_region")
"""Bodies that are frames on others, or the robot's: they do not count in the initial condition."""


def wxyz_xyz(xyz_wxyz: np.ndarray) -> np.ndarray:
    """[..., 7] position then quaternion -> quaternion then position, float64."""
    poses = np.asarray(xyz_wxyz, np.float64)
    return np.concatenate([poses[..., 3:7], poses[..., :3]], axis=-1)


def read_recordings(path: str | Path) -> list[Episode]:
    """Every episode of one file, poses of all its bodies and of the table, at the recorded rate.

    Raises:
        InputError: not such a file, truncated, a Git-LFS pointer, or a missing key.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file; check the path")
    refuse_lfs_pointer(path)
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: not a whole .npz archive, expected a recording of demonstrations; copy it again")
    try:
        with np.load(path, allow_pickle=False) as file:
            keys = set(file.files)
            if not {"meta", "n_episodes"} <= keys:
                raise InputError(f"{path}: no key 'meta' or 'n_episodes'; expected a recording of demonstrations")
            meta = json.loads(str(file["meta"]))
            if not isinstance(meta, list) or not all(isinstance(m, dict) for m in meta):
                raise InputError(f"{path}: 'meta' is no list with an object an episode; record it again")
            return [_episode(path, file, keys, m, k) for k, m in enumerate(meta)]
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        said = str(error).replace("\n", " ")
        raise InputError(f"{path}: truncated or corrupt, not readable as .npz ({said}); copy it again") from error
    except KeyError as error:
        key = str(error.args[0]).removesuffix(" is not a file in the archive")
        raise InputError(f"{path}: key '{key}' is missing; record it again") from error
    except InputError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError, SyntaxError) as error:  # of 'meta', or of an array
        said = str(error).partition("\n")[0]
        raise InputError(
            f"{path}: it holds another kind of value than a recording does ({said}); record it again"
        ) from error


def _array(path: Path, file: Any, key: str, *shape: int | None, kinds: str = "biuf") -> np.ndarray:
    """The array under `key` with that shape (None: any length); InputError otherwise."""
    found = file[key]
    fits = found.ndim == len(shape) and all(want in (None, n) for n, want in zip(found.shape, shape, strict=True))
    if not fits or found.dtype.kind not in kinds:
        wanted = ", ".join("T" if n is None else str(n) for n in shape)
        raise InputError(
            f"{path}: '{key}' holds {found.dtype} of shape {found.shape}, expected "
            f"{'texts' if kinds == 'U' else 'numbers'} of shape ({wanted}); record it again"
        )
    return found if kinds == "U" else measured(found)


def _episode(path: Path, file: Any, keys: set[str], meta: dict[str, Any], k: int) -> Episode:
    prefix = f"ep{k:03d}/"
    env_id, seed, tilt = str(meta["task"]), int(meta["seed"]), meta.get("tilt")
    rate = rate_hz(meta["control_freq"])
    if rate is None:
        raise InputError(f"{path}: control_freq {meta['control_freq']!r} of {prefix[:-1]} is no rate in Hz; record it")
    names = sorted(key.removeprefix(f"{prefix}pose/") for key in keys if key.startswith(f"{prefix}pose/"))
    if not names:
        raise InputError(f"{path}: key '{prefix}pose/...' is missing; record it again")
    n = len(_array(path, file, f"{prefix}pose/{names[0]}", None, 7))
    poses = np.stack([_array(path, file, f"{prefix}pose/{name}", n, 7) for name in names], axis=1)
    table = np.broadcast_to(np.asarray(meta["table_pose"], np.float64), (n, 1, 7))
    poses = wxyz_xyz(np.concatenate([poses, table], axis=1))
    bodies = (*names, "table")
    actors = tuple(name for name in names if name not in DERIVED)
    phase = _array(path, file, f"{prefix}phase", n, kinds="U").tolist()
    labels = tuple(dict.fromkeys(phase))
    success = _array(path, file, f"{prefix}success", n, kinds="b") != 0
    return Episode.of(
        poses=poses,
        time_s=np.arange(n) / rate,
        gripper_width_m=_array(path, file, f"{prefix}gripper_width", n),
        sub_task=np.array([labels.index(p) for p in phase], np.int32),
        joints=_array(path, file, f"{prefix}qpos", n, len(PANDA_JOINTS)),
        actions=_array(path, file, f"{prefix}action", n, None),
        half_size_m=_half_sizes(meta, bodies),
        success_once=bool(success.any()),
        success_at_end=bool(success[-1]) if n else None,
        seed=seed,
        speed=1.0,
        bodies=bodies,
        sub_task_names=labels,
        joint_names=PANDA_JOINTS,
        episode_id=f"{env_id}/seed={seed}" if tilt is None else f"{env_id}_tilt/seed={seed}/tilt={tilt:g}",
        initial_condition_id=initial_condition_id(env_id, seed),
        initial_condition_hash=start_hash({b: poses[:, bodies.index(b)] for b in actors}, actors),
        group=path.stem if tilt is None else f"tilt {tilt:g} deg",
        task=task_name(env_id),
        source=path.name,
    )


def _half_sizes(meta: dict[str, Any], bodies: tuple[str, ...]) -> np.ndarray:
    """[N, 3] half extents in metres of the bodies whose size the recording states, NaN elsewhere."""
    cube, radius = meta.get("cube_half_size"), meta.get("radius")
    peg = meta.get("peg_half_sizes", meta.get("peg_half"))
    known = {"cubeA": cube, "cubeB": cube, "cube": cube, "sphere": radius, "peg": peg}
    sizes = [np.nan if known.get(b) is None else known[b] for b in bodies]
    return np.stack([np.broadcast_to(np.asarray(size, np.float64), 3) for size in sizes])
