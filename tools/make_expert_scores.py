"""Make `jaxeval/data/parcelstow/expert_mujoco.parquet`: how the experts' episodes on MuJoCo went, a row an episode.

    python tools/make_expert_scores.py outputs/rollouts     # what experiments/expert_diagnostics.py rolled out

Scores alone, of both embodiments, without frames; `policy` is the embodiment's expert.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jaxeval.io.source import open_source
from jaxeval.run.score import score

OUT = Path(__file__).resolve().parents[1] / "jaxeval" / "data" / "parcelstow" / "expert_mujoco.parquet"
EMBODIMENTS, SEED = ("g1", "panda"), 2
DROPPED = ("Q", "gate", "gate_reason", "valid", "status", "group", "findings", "source", "seed", "told_speed",
           "stages.status", "hand.slip_status", "hand.arm_status", "hand.speed_status")  # fmt: skip


def main(folder: str) -> None:
    """Score the stores and write the table."""
    tables = []
    for name in EMBODIMENTS:
        columns = score(
            None, open_source(Path(folder) / f"parcel_stow_{name}_seed{SEED}"), metrics=["stages", "grasp"]
        ).columns
        times = [k for k in columns if k.startswith("stages.") and k.endswith("_s")]
        kept = {
            k: v for k, v in columns.items() if k not in (*DROPPED, *times) and not k.startswith("grasp.min_weight")
        }
        table = pa.table({"policy": [f"{name} expert"] * len(kept["episode"]), **kept})
        single = [pa.field(f.name, pa.float32() if pa.types.is_floating(f.type) else f.type) for f in table.schema]
        tables.append(table.cast(pa.schema(single)))
    pq.write_table(
        pa.concat_tables(tables, promote_options="permissive"), OUT, compression="zstd", compression_level=19
    )
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
