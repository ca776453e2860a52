"""Numbers into sentences: what moved, how far, about which axis, relative to what. Millimetres and degrees live here."""

from __future__ import annotations

import numpy as np

from jaxeval.metrics import geometric as G
from jaxeval.types import Pair, Reference

AXES = "xyz"
WHOLE_TURN_SHARE = 0.7
"""From this share of the rotation vector on, the whole angle is told, else only the part about the exceeded direction."""


def direction_words(pair: Pair, deviation: np.ndarray, axis: np.ndarray) -> str:
    """One direction of one relation in words, such as "cubeA tilts 23 deg about its x axis relative to the table".

    ``deviation``: unscaled (rho, phi), metres and radians, in a's nominal frame; ``axis``: the unit direction v in
    scaled tangent coordinates that was exceeded. A direction that is at least half translation is told as a shift, by
    its length along v. A rotation is told whole, angle |phi| about phi's own axis, where phi lies mostly along v;
    otherwise (much of it about a direction that demonstrations leave free) only the part along v is.
    """
    deviation, axis = np.asarray(deviation, float), np.asarray(axis, float)
    shift = bool((axis[:3] ** 2).sum() >= 0.5)
    vector = deviation[:3] if shift else deviation[3:]
    along = axis[:3] if shift else axis[3:]
    along = along / max(float(np.linalg.norm(along)), 1e-12)
    part, whole = abs(float(along @ vector)), float(np.linalg.norm(vector))
    other = body_words(pair, pair.b)
    if shift:
        return f"{pair.a} is {part * 1e3:.0f} mm off along {axis_words(along)} relative to {other}"
    if part >= WHOLE_TURN_SHARE * whole > 0:
        part, along = whole, vector / whole
    verb = "is turned" if int(np.argmax(np.abs(along))) == 2 else "tilts"
    return f"{pair.a} {verb} {np.degrees(part):.0f} deg about {axis_words(along)} relative to {other}"


def axis_words(unit: np.ndarray) -> str:
    """A unit vector in a body's frame by name: "its x axis", or "a diagonal of its x and y axes".

    One axis is named alone when the vector lies within 30 deg of it; axes over 70 deg away are not named.
    """
    square = np.asarray(unit, float) ** 2
    if square.max() >= 0.75:
        return f"its {AXES[int(square.argmax())]} axis"
    named = [AXES[c] for c in range(3) if square[c] >= 0.12]
    return f"a diagonal of its {', '.join(named[:-1])} and {named[-1]} axes"


def body_words(pair: Pair, body: str) -> str:
    """A body's name in a sentence: the support and the gripper are things one has only one of."""
    if body == pair.b and pair.role.endswith("_g"):
        return "the gripper"
    if body == pair.b and pair.role.endswith("_s"):
        return f"the {body}"
    return body


def gate_words(reference: Reference, code: int, index: int) -> str:
    """Why the terminal gate closed, in words; empty when it is open."""
    if code == G.GATE_OPEN:
        return ""
    if code == G.GATE_SUB_TASK:
        return f"sub-task '{reference.spec.sub_tasks[index].name}' is never reached"
    if code == G.GATE_TERMINAL:
        return f"final position of {reference.pairs[index // 6].name} is off"
    return "the episode's success flag is False"
