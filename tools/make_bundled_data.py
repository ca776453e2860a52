"""Make the package data; the same recordings and rollouts give the same bytes.

python tools/make_bundled_data.py --recordings DIR [--out jaxeval/data]
python tools/make_bundled_data.py --rollouts DIR [--out jaxeval/data]

The recordings are ``StackCube-v1.npz`` and others, and ManiSkill's own files under
``sample_traj/<env>/motionplanning/sample.h5`` and ``.json``. The rollouts are the stores of `make demonstrations` and
`make deviations`: ``<task>_oracle`` (the first 40 are taken), ``<task>_oracle_tilt``, ``<task>_oracle_faults`` and
``<task>_oracle_<arm>``. The Panda's poses are rounded to a micrometre and 2e-6 rad; all but its clean ones leave joints
and actions out, which halves their size.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
from pathlib import Path

import numpy as np

from jaxeval.io import open_store, read_recordings, store_hash, write_store
from jaxeval.types import Episode

STORES = {
    "stack_cube_demos": "StackCube-v1.npz",
    "stack_cube_tilt": "StackCube-v1_tilt.npz",
    "peg_insertion_side_demos": "PegInsertionSide-v1.npz",
    "place_sphere_demos": "PlaceSphere-v1.npz",
    "poke_cube_demos": "PokeCube-v1.npz",
}
TRAJECTORIES = ("StackCube-v1", "PegInsertionSide-v1")
DEMONSTRATIONS_N = 40
STEP = 1e-6
"""Metres, and units of a quaternion's components."""
LIMIT_BYTES = 11_000_000


def main() -> None:
    """Write what is asked for, and say how large the package data are."""
    parser = argparse.ArgumentParser(description="Make the package data from recordings and rollouts.")
    parser.add_argument("--recordings", type=Path, metavar="DIR")
    parser.add_argument("--rollouts", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "jaxeval" / "data", metavar="DIR")
    args = parser.parse_args()
    if args.recordings:
        from_recordings(args.recordings, args.out)
    if args.rollouts:
        from_rollouts(args.rollouts, args.out)
    total = sum(f.stat().st_size for f in args.out.rglob("*") if f.is_file())
    print(f"{args.out}: {total / 1e6:.2f} MB")
    if total > LIMIT_BYTES:
        raise SystemExit(f"{args.out}: {total} bytes, more than the {LIMIT_BYTES} that the package may carry")


def from_rollouts(rollouts: Path, out: Path) -> None:
    """The first demonstrations of each task, and every changed execution."""
    for path in sorted(p.parent for p in rollouts.glob("*_oracle*/meta.json")):
        source = open_store(path)
        clean = path.name.endswith("_oracle")
        episodes = source.read(0, min(DEMONSTRATIONS_N, source.n_episodes)) if clean else source.read()
        configuration = source.meta["configuration"] | {"rolled_out_with": "ManiSkill 3.0.1", "control_freq_hz": 20}
        store = write_store(
            out / path.name,
            [smaller(e, joints=clean) for e in episodes],
            task=source.task,
            configuration=configuration,
            overwrite=True,
            compression="zstd",
        )
        print(f"{path.name}: {store.n_episodes} episodes, {store.n_frames} frames, hash {store_hash(store)[:16]}")


def smaller(e: Episode, *, joints: bool) -> Episode:
    """Rounded poses; joints and actions only if asked for."""
    rounded = dataclasses.replace(e, poses=np.round(e.poses / STEP) * STEP) if "/robot=" not in e.episode_id else e
    return rounded if joints else dataclasses.replace(rounded, joints=None, actions=None, joint_names=())


def from_recordings(recordings: Path, out: Path) -> None:
    """Write the recordings' stores and copy the trajectory files."""
    for name, file in STORES.items():
        episodes = read_recordings(recordings / file)
        configuration = {"recorded_with": "ManiSkill 3.0.1", "env": file.removesuffix(".npz"), "control_freq_hz": 20}
        store = write_store(
            out / name,
            episodes,
            task=episodes[0].task,
            configuration=configuration,
            overwrite=True,
            compression="zstd",
        )
        print(f"{name}: {store.n_episodes} episodes, {store.n_frames} frames, hash {store_hash(store)[:16]}")
    folder = out / "maniskill"
    folder.mkdir(exist_ok=True)
    for env in TRAJECTORIES:
        for suffix in (".h5", ".json"):
            source = recordings / "sample_traj" / env / "motionplanning" / f"sample{suffix}"
            shutil.copyfile(source, folder / f"{env}{suffix}")


if __name__ == "__main__":
    main()
