"""Executions of the scripted oracles: from a folder of stores, or those that come with the package."""

from __future__ import annotations

from pathlib import Path

from jaxeval.io import bundled, open_source
from jaxeval.types import Episode

TASKS = (
    "stack_cube",
    "place_sphere",
    "peg_insertion_side",
    "plug_charger",
    "poke_cube",
    "close_drawer",
    "place_can",
)


def executions(kind: str, task: str, data: str) -> list[Episode]:
    """Episodes of the store `<task>_<kind>` in the folder `data`, or bundled where that is empty.

    Kinds: ``oracle`` (clean demonstrations), ``oracle_tilt``, ``oracle_faults``, ``oracle_fetch``, ``oracle_so100``.
    """
    name = f"{task}_{kind}"
    return list((open_source(Path(data) / name) if data else bundled(name)).iter_episodes())
