"""What readers of several episodes have in common: one scene a file, and the hash of where its bodies started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from jaxeval.io.findings import FileFindings
from jaxeval.io.initial_condition import initial_condition_hash
from jaxeval.types import Episode

FARTHEST_M = 1e6
"""A body that starts beyond this is a damaged number."""

SCENE_FINDINGS: dict[str, tuple[str, str]] = {
    "scene_differs": ("error", "an episode holds other bodies than most do: it is left out"),
}
"""Findings of `same_scene`."""


def same_scene(episodes: list[Episode], places: list[str], findings: FileFindings) -> list[Episode]:
    """The episodes that hold the bodies that most of them do; the others are listed as left out, by their `places`."""
    (bodies, _), *others = Counter(e.bodies for e in episodes).most_common()
    for episode, where in zip(episodes, places, strict=True):
        if others and episode.bodies != bodies:
            found, expected = (", ".join(b) or "no bodies" for b in (episode.bodies, bodies))
            findings.add("scene_differs", found, expected, "left out; give one scene a file", where=where)
    return [e for e in episodes if e.bodies == bodies]


def start_hash(poses: Mapping[str, np.ndarray], movable: tuple[str, ...]) -> str | None:
    """`initial_condition_hash` of the `movable` bodies' first poses; None without any
    or any frame, or if a number is none."""
    if not movable or not len(poses[movable[0]]):
        return None
    first = np.stack([poses[body][0] for body in movable])
    known = np.isfinite(first).all() and np.abs(first).max() < FARTHEST_M
    return initial_condition_hash(first, movable) if known else None
