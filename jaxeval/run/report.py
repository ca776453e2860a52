"""`jaxeval report`: a scored set, and the reference it was scored against if there is one, in one HTML out."""

from __future__ import annotations

from pathlib import Path

from jaxeval.io.reference import load_reference
from jaxeval.report.page import write_report


def report(scores: Path, reference: Path | None, out: Path | None) -> Path:
    """Write the report of the scores in a folder into `out` (None: that folder); returns its path.

    Without a reference it tells everything that was scored but geometric quality.
    """
    scores = Path(scores)
    learned, about = load_reference(reference) if reference is not None else (None, {})
    return write_report(scores, learned, about=about, out=scores if out is None else Path(out))
