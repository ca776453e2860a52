"""`jaxeval report`: a scored set and the reference it was scored against in, one HTML out."""

from __future__ import annotations

import json
from pathlib import Path

from jaxeval.io.errors import InputError
from jaxeval.io.reference import load_reference
from jaxeval.metrics.geometric import GeometricParams
from jaxeval.report.html import write_report
from jaxeval.report.scored import ABOUT


def report(scores: Path, reference: Path, out: Path | None) -> Path:
    """Write the report of the scores in a folder into `out` (None: that folder); returns its path."""
    scores = Path(scores)
    learned, about = load_reference(reference)
    return write_report(
        scores, learned, about=about, params=scored_params(scores), out=scores if out is None else Path(out)
    )


def scored_params(scores: Path) -> GeometricParams:
    """The parameters that a folder of scores was made with."""
    path = Path(scores) / ABOUT
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected the folder that `jaxeval score` wrote; check scores=DIR")
    try:
        return GeometricParams(**json.loads(path.read_text())["params"]).check()
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path}: params cannot be used ({error}); expected those of `jaxeval score`; score again"
        ) from error
