"""Draw docs/stack_cube_q.png, the README's figure: learn StackCube from 30 demonstrations, score the tilted executions.

python tools/make_readme_figure.py [OUT.png]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from jaxeval.io import open_source
from jaxeval.io.spec import load_spec
from jaxeval.metrics.geometric import GeometricParams
from jaxeval.report import figures as F
from jaxeval.report.scored import read_frames, read_scored
from jaxeval.report.summary import constraint_map
from jaxeval.run.fit import fit_source
from jaxeval.run.score import score

OUT = Path(__file__).resolve().parents[1] / "docs" / "stack_cube_q.png"
SHOWN = "tilt 45 deg"


def main(out: Path) -> None:
    reference = fit_source(
        open_source("bundled:stack_cube_demos"), load_spec("stack_cube"), demonstrations_n=30
    ).reference
    with tempfile.TemporaryDirectory() as folder:
        score(reference, open_source("bundled:stack_cube_tilt"), out=folder, frames=True)
        scored = read_scored(Path(folder), reference)
        frames = read_frames(scored, reference, tracks=[], times=[])
    assert frames is not None
    cost = frames.mean_cost[scored.groups.index(SHOWN)]
    held = constraint_map(reference, GeometricParams())
    rows, sub_tasks = [p.name for p in reference.pairs], [s.name for s in reference.spec.sub_tasks]

    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[1.15, 2])
    upper, lower = parts
    top, (middle, bottom) = upper.subplots(), lower.subplots(2, 1)
    groups = [(g, scored.q[i := scored.rows_of(k)], scored.closed[i]) for k, g in enumerate(scored.groups)]
    F.draw_quality(top, groups)
    F.title(top, "Q of 40 executions in which the carried cube is tilted by 0 to 45 deg")
    mesh = F.draw_cost_map(middle, cost, rows, sub_tasks, reference.bins_n, top=float(cost[cost == cost].max()))
    F.title(middle, f"where it is lost: mean frame cost, {SHOWN}", above_names=True)
    F.colour_bar(lower, mesh, middle, "cost")
    mesh = F.draw_pinned_count(bottom, held.pinned_n, rows, sub_tasks, reference.bins_n, names=False)
    F.title(bottom, "what the demonstrations hold: pinned directions, of 6")
    F.colour_bar(lower, mesh, bottom, "count", ticks=range(7)).ax.invert_yaxis()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(F.png(figure))
    print(f"{out}: {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
