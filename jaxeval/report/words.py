"""Numbers into sentences: what moved, how far, about which axis, relative to what. Millimetres and degrees live here."""

from __future__ import annotations

import numpy as np

from jaxeval.metrics import geometric as G
from jaxeval.types import Pair, Reference

AXES = "xyz"


def direction_words(pair: Pair, deviation: np.ndarray, axis: np.ndarray) -> str:
    """One direction of one relation in words, such as "cubeA tilts 23 deg about its x axis relative to the table".

    ``deviation``: unscaled (rho, phi), metres and radians, in a's nominal frame; ``axis``: the unit direction v in
    scaled tangent coordinates that was exceeded. A direction that is at least half translation is told as a shift.
    """
    deviation, axis = np.asarray(deviation, float), np.asarray(axis, float)
    if (axis[:3] ** 2).sum() >= 0.5:
        c = int(np.argmax(np.abs(axis[:3])))
        return f"{pair.a} is {abs(deviation[c]) * 1e3:.0f} mm off along its {AXES[c]} axis relative to {_the(pair.b)}"
    c = int(np.argmax(np.abs(axis[3:])))
    verb = "is turned" if c == 2 else "tilts"
    return f"{pair.a} {verb} {np.degrees(abs(deviation[3 + c])):.0f} deg about its {AXES[c]} axis relative to {_the(pair.b)}"


def _the(body: str) -> str:
    return {"tcp": "the gripper", "table": "the table"}.get(body, body)


def gate_words(reference: Reference, code: int, index: int) -> str:
    """Why the terminal gate closed, in words; empty when it is open."""
    if code == G.GATE_OPEN:
        return ""
    if code == G.GATE_SUB_TASK:
        return f"sub-task '{reference.spec.sub_tasks[index].name}' is never reached"
    if code == G.GATE_TERMINAL:
        return f"final position of {reference.pairs[index // 6].name} is off"
    return "the episode's success flag is False"
