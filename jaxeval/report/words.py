"""Numbers into sentences: what moved, how far, about which axis, relative to what. Millimetres and degrees are here."""

from __future__ import annotations

import numpy as np

from jaxeval.metrics import geometric
from jaxeval.types import Pair, Reference

AXES = "xyz"
WHOLE_TILT_SHARE = 0.5
"""From this share on along the exceeded axis a tilt is told whole, else only its part about that axis."""


def direction_words(pair: Pair, deviation: np.ndarray, axis: np.ndarray) -> str:
    """One direction of one relation in words, such as "cubeA tilts 23 deg about its x axis relative to the table".

    ``deviation``: unscaled (rho, phi), metres and radians, in a's nominal frame; ``axis``: the unit direction v in
    scaled tangent coordinates that was exceeded. A direction that is at least half translation is told as a shift, by
    its length along v. A tilt is told whole (how far a's z axis leans, about which axis), since the two tilts are often
    held alike and v is then any of them; a turn about z that is free does not count in it. Of a body and the gripper it
    is the gripper that is told to be off, by the body's axes: "the gripper tilts 44 deg about the x axis of drawer".
    """
    deviation, axis = np.asarray(deviation, float), np.asarray(axis, float)
    gripper = pair.role.endswith("_g")
    subject, of = ("the gripper", pair.a) if gripper else (pair.a, "")
    relative = "" if gripper else f" relative to {f'the {pair.b}' if pair.role.endswith('_s') else pair.b}"
    if (axis[:3] ** 2).sum() >= 0.5:
        along = axis[:3] / np.linalg.norm(axis[:3])
        far_mm = abs(float(along @ deviation[:3])) * 1e3
        return f"{subject} is {far_mm:.0f} mm off along {axis_words(along, of=of)}{relative}"
    angle, about = _rotation(deviation[3:], axis[3:] / np.linalg.norm(axis[3:]))
    verb = "is turned" if int(np.argmax(np.abs(about))) == 2 else "tilts"
    return f"{subject} {verb} {np.degrees(angle):.0f} deg about {axis_words(about, of=of)}{relative}"


def _rotation(phi: np.ndarray, along: np.ndarray) -> tuple[float, np.ndarray]:
    """(angle, unit axis) to tell of the rotation vector phi, of which the direction ``along`` was exceeded."""
    whole, level = float(np.linalg.norm(phi)), np.array([phi[0], phi[1], 0.0])
    size = float(np.linalg.norm(level))
    cos = np.cos(whole / 2) if whole > 0 else 1.0
    up = phi[2] / whole * np.sin(whole / 2) if whole > 0 else 0.0  # z of the quaternion
    if along[2] ** 2 >= 0.75:
        return 2 * abs(float(np.arctan2(up, cos))), np.array([0.0, 0.0, 1.0])
    share = abs(float(along @ level)) / size if size > 0 else 0.0
    if along[2] ** 2 > 0.25 or share < WHOLE_TILT_SHARE:
        return abs(float(along @ phi)), along
    return 2 * float(np.arccos(min(1.0, float(np.hypot(cos, up))))), level / size


def axis_words(unit: np.ndarray, *, of: str = "") -> str:
    """A unit vector in a body's frame by name: "its x axis", or "a diagonal of the x and y axes of cubeA" (``of``).

    One axis is named alone when the vector lies within 30 deg of it; axes over 70 deg away are not named.
    """
    square = np.asarray(unit, float) ** 2
    whose, owner = ("the", f" of {of}") if of else ("its", "")
    if square.max() >= 0.75:
        return f"{whose} {AXES[int(square.argmax())]} axis{owner}"
    named = [AXES[c] for c in range(3) if square[c] >= 0.12]
    return f"a diagonal of {whose} {', '.join(named[:-1])} and {named[-1]} axes{owner}"


def gate_words(reference: Reference, code: int, index: int) -> str:
    """Why the terminal gate closed, in words; empty when it is open."""
    if code == geometric.GATE_OPEN:
        return ""
    if code == geometric.GATE_SUB_TASK:
        return f"sub-task '{reference.spec.sub_tasks[index].name}' is never reached"
    if code == geometric.GATE_TERMINAL:
        return f"final position of {reference.pairs[index // 6].name} is off"
    return "the episode's success flag is False"
