"""Make the package data from a folder of recordings; the same recordings give the same bytes.

python tools/make_bundled_data.py --recordings DIR [--out jaxeval/data]

DIR holds ``StackCube-v1.npz`` and the other recordings, and ManiSkill's own files under
``sample_traj/<env>/motionplanning/sample.h5`` and ``.json``.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from jaxeval.io import read_recordings, store_hash, write_store

STORES = {
    "stack_cube_demos": "StackCube-v1.npz",
    "stack_cube_tilt": "StackCube-v1_tilt.npz",
    "peg_insertion_side_demos": "PegInsertionSide-v1.npz",
    "place_sphere_demos": "PlaceSphere-v1.npz",
    "poke_cube_demos": "PokeCube-v1.npz",
}
TRAJECTORIES = ("StackCube-v1", "PegInsertionSide-v1")
LIMIT_BYTES = 4_000_000


def main() -> None:
    """Write the stores and copy the trajectory files."""
    parser = argparse.ArgumentParser(description="Make the package data from recordings.")
    parser.add_argument("--recordings", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "jaxeval" / "data", metavar="DIR")
    args = parser.parse_args()
    for name, file in STORES.items():
        episodes = read_recordings(args.recordings / file)
        configuration = {"recorded_with": "ManiSkill 3.0.1", "env": file.removesuffix(".npz"), "control_freq_hz": 20}
        store = write_store(
            args.out / name,
            episodes,
            task=episodes[0].task,
            configuration=configuration,
            overwrite=True,
            compression="zstd",
        )
        print(f"{name}: {store.n_episodes} episodes, {store.n_frames} frames, hash {store_hash(store)[:16]}")
    folder = args.out / "maniskill"
    folder.mkdir(exist_ok=True)
    for env in TRAJECTORIES:
        for suffix in (".h5", ".json"):
            source = args.recordings / "sample_traj" / env / "motionplanning" / f"sample{suffix}"
            shutil.copyfile(source, folder / f"{env}{suffix}")
    total = sum(f.stat().st_size for f in args.out.rglob("*") if f.is_file())
    print(f"{args.out}: {total / 1e6:.2f} MB")
    if total > LIMIT_BYTES:
        raise SystemExit(f"{args.out}: {total} bytes, more than the {LIMIT_BYTES} that the package may carry")


if __name__ == "__main__":
    main()
