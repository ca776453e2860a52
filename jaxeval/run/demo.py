"""`jaxeval demo`: fit, score and report on the bundled ManiSkill executions."""

from __future__ import annotations

from pathlib import Path

from jaxeval.io.reference import save_reference
from jaxeval.io.source import open_source
from jaxeval.io.spec import load_spec
from jaxeval.metrics.geometric import GeometricParams
from jaxeval.run.fit import fit_source, provenance
from jaxeval.run.fit import table as fit_table
from jaxeval.run.report import report
from jaxeval.run.score import score
from jaxeval.run.score import table as score_table

TASK, DEMONSTRATIONS, EXECUTIONS = "stack_cube", "bundled:stack_cube_demos", "bundled:stack_cube_tilt"
DEMONSTRATIONS_N = 30
METRICS = ("geometric", "smoothness", "kinematic")


def demo(out: Path, params: GeometricParams) -> Path:
    """Learn StackCube from 30 recorded demonstrations, score 40 executions tilted by 0 to 45 deg; the report's path."""
    print(f"1/3 learning {TASK} from {DEMONSTRATIONS_N} recorded ManiSkill demonstrations ...", flush=True)
    source = open_source(DEMONSTRATIONS)
    made = fit_source(source, load_spec(TASK), demonstrations_n=DEMONSTRATIONS_N)
    reference = save_reference(
        out / "reference", made.reference, about=provenance(made, source, {"episodes": DEMONSTRATIONS})
    )
    print(fit_table(made), flush=True)
    print("\n2/3 scoring 40 executions in which the carried cube is tilted by 0, 10, 25 or 45 deg ...", flush=True)
    about = {"reference": "reference", "demonstrations": provenance(made, source, {"episodes": DEMONSTRATIONS})}
    scores = score(
        made.reference, open_source(EXECUTIONS), params, metrics=METRICS, out=out, frames=True, progress=True,
        about=about,
    )  # fmt: skip
    print(score_table(scores), flush=True)
    print("\n3/3 writing the report ...", flush=True)
    return report(out, reference, out)
