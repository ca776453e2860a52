"""The report of a scored set: one self-contained HTML of sections, each drawn where its columns are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.report import summary
from jaxeval.report.html import Pictures, write_page
from jaxeval.report.scored import SCORES, Scored, read_scored
from jaxeval.report.section import TABLE_N, Context, Part
from jaxeval.report.sections import sections_of
from jaxeval.types import Reference

FIGURES = (
    "quality", "cost", "constraints", "worst_*", "motion", "manipulability", "trajectories", "funnel", "causes",
    "success", "grasp", "tracking", "section_*",
)  # fmt: skip
"""Files that a report may leave in its `figures` folder."""


def write_report(scores_dir: Path, reference: Reference | None, *, about: dict[str, Any], out: Path) -> Path:
    """Write `out`/report.html and `out`/figures/*.png of the scores in `scores_dir`; returns the HTML's path.

    Geometric quality is told where the ``reference`` that it was scored against is given; ``about`` is what is known
    about it (provenance). InputError when scores are missing, damaged, made with another reference or hold nothing to
    tell, or when `out` cannot be written. The HTML appears whole or not at all.
    """
    scored = read_scored(Path(scores_dir), reference)
    pictures = Pictures(Path(out) / "figures")
    context = Context(reference if scored.has_q else None, pictures)
    parts: list[Part] = []
    for section in sections_of(scored):
        if (part := section.draw(scored, context)) is not None:
            parts.append(part)
            context.drawn.append(section.title)
    if not parts:
        raise InputError(
            f"{scored.folder / SCORES}: no column of a metric, expected at least one; score with metrics=[NAME]"
        )
    order = next((part.order for part in parts if part.order is not None), np.arange(scored.n))
    path = write_page(
        Path(out) / "report.html",
        "page.html.j2",
        subject=context.drawn[0],
        scored=scored,
        task=scored.record.get("task", "an unnamed task"),
        instruction="" if reference is None else reference.spec.instruction,
        parts=parts,
        remarks=context.remarks,
        columns=(columns := [column for part in parts for column in part.columns]),
        rows=[_row(scored, i, [column.of(i) for column in columns]) for i in order[:TABLE_N].tolist()],
        skipped=summary.skipped(scored, about) + context.skipped,
        versions=summary.versions(),
        provenance=summary.provenance(scored, about),
    )
    pictures.remove_others(FIGURES)
    return path


def _row(scored: Scored, i: int, cells: list[Any]) -> dict[str, Any]:
    """A line of the table of executions."""
    group = scored.text["group"][i]
    return {
        "episode": scored.text["episode"][i], "group": group, "group_key": scored.groups.index(group), "cells": cells,
    }  # fmt: skip
