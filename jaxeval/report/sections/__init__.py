"""The report's sections, each drawn where its columns are there; one that nobody wrote for gets the generic one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from jaxeval.report.scored import Scored
from jaxeval.report.section import Section
from jaxeval.report.sections import generic, geometric, grasp, motion, stages, tracking

SECTIONS: tuple[Section, ...] = (
    geometric.SECTION, motion.SECTION, stages.SECTION, grasp.SECTION, tracking.SECTION,
)  # fmt: skip
"""Those with words of their own, in the page's order. Names are those of `Metric.section`."""


def sections_of(scored: Scored) -> Iterator[Section]:
    """Sections that columns of a scored set are there of: the known ones in their order, then the rest."""
    there = scored.sections
    yield from (section for section in SECTIONS if section.name in there)
    known = {section.name for section in SECTIONS}
    for name in there:
        if name not in known:
            yield Section(name, name.replace("_", " ").capitalize(), partial(generic.draw, name=name))
