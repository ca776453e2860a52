"""`jaxeval report`: a scored set, and the reference it was scored against if there is one, in one HTML out."""

from __future__ import annotations

import json
from pathlib import Path

from jaxeval.io.errors import InputError
from jaxeval.io.reference import load_reference
from jaxeval.metrics.geometric import GeometricParams
from jaxeval.report.html import write_report
from jaxeval.report.scored import ABOUT


def report(scores: Path, reference: Path | None, out: Path | None) -> Path:
    """Write the report of the scores in a folder into `out` (None: that folder); returns its path.

    Without a reference it tells how executions moved, not their geometric quality.
    """
    scores = Path(scores)
    learned, about = load_reference(reference) if reference is not None else (None, {})
    params = None if learned is None else scored_params(scores)
    return write_report(scores, learned, about=about, params=params, out=scores if out is None else Path(out))


def scored_params(scores: Path) -> GeometricParams | None:
    """The parameters that a folder of scores was made with; None where geometric quality was not scored."""
    path = Path(scores) / ABOUT
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the folder that `jaxeval score` wrote; check scores=DIR")
    try:
        told = json.loads(path.read_text())
        if "geometric" not in told.get("metrics", ("geometric",)):
            return None
        return GeometricParams(**told["params"]).check()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: params cannot be used ({error}); expected those of `jaxeval score`; score again"
        ) from error
