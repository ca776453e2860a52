"""Which bodies play which part: manipulated, reference, support, gripper, found from how they move (host, NumPy).

Source: SPECTRA III-A1. Thresholds are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxeval.types import Episode, Pair, TaskSpec

MOVED_M = 0.01


@dataclass(frozen=True)
class Roles:
    """Parts inferred from demonstrations. ``travel_m``/``wander_m``: per object, mean path end to end and mean spread."""

    manipulated: tuple[str, ...]
    reference: str
    travel_m: dict[str, float]
    wander_m: dict[str, float]
    notes: tuple[str, ...]


def infer_roles(episodes: Sequence[Episode], spec: TaskSpec) -> Roles:
    """Manipulated objects and reference object of a task, from its demonstrations, checked against the spec.

    Reference r: the task object (not support, gripper, named frame or ignored) whose position in the support's frame
    varies least over time, averaged over demonstrations. Manipulated: the other objects that move more than 1 cm in
    most demonstrations. What the spec fixes is kept; a disagreement is a note. ValueError when nothing is manipulated.
    """
    objects = [
        b.name
        for b in spec.bodies
        if b.frame_of is None and b.name not in (spec.support, spec.gripper, *spec.ignored) and b.name in episodes[0].bodies
    ]
    travel = {name: np.zeros(len(episodes)) for name in objects}
    wander = {name: np.zeros(len(episodes)) for name in objects}
    for k, episode in enumerate(episodes):
        support = _support(episode, spec)
        for name in objects:
            p = (episode.body(name)[:, 4:] - support)[episode.valid]
            travel[name][k] = np.linalg.norm(p - p[0], axis=-1).max()
            wander[name][k] = np.sqrt(((p - p.mean(axis=0)) ** 2).sum(axis=-1).mean())
    mean_wander = {name: float(wander[name].mean()) for name in objects}
    found_reference = min(objects, key=lambda name: mean_wander[name]) if len(objects) > 1 else ""
    moved = [name for name in objects if np.mean(travel[name] > MOVED_M) > 0.5]
    found = tuple(name for name in moved if name != found_reference)
    notes: list[str] = []
    reference = spec.reference or found_reference
    manipulated = spec.manipulated or tuple(name for name in moved if name != reference)
    if spec.reference and found_reference and spec.reference != found_reference:
        notes.append(
            f"task {spec.name}: the spec names '{spec.reference}' as reference object, but '{found_reference}' varies "
            f"least ({mean_wander[found_reference]:.4f} m against {mean_wander[spec.reference]:.4f} m); the spec is used"
        )
    if spec.manipulated and set(spec.manipulated) != set(found):
        notes.append(
            f"task {spec.name}: the spec names {', '.join(spec.manipulated)} as manipulated, the demonstrations move "
            f"{', '.join(found) or 'nothing'}; the spec is used"
        )
    if not manipulated:
        raise ValueError(
            f"task {spec.name}: no object moves more than {MOVED_M} m in most of the {len(episodes)} demonstrations "
            f"({', '.join(objects)}); expected at least one manipulated object; name it in the task spec"
        )
    return Roles(
        manipulated, reference, {n: float(travel[n].mean()) for n in objects}, mean_wander, tuple(notes)
    )


def _support(episode: Episode, spec: TaskSpec) -> np.ndarray:
    return episode.body(spec.support)[:, 4:] if spec.support in episode.bodies else np.zeros((episode.n_frames, 3))


def interaction_pairs(roles: Roles, spec: TaskSpec) -> tuple[Pair, ...]:
    """Pairs (m | r), (m | s), (r | s), (m | g), (r | g), in that order; named frames stand in for bodies in (m | r).

    With a single object, it is compared with the support and the gripper only. Source: SPECTRA III-A1.
    """
    r, s, g = roles.reference, spec.support, spec.gripper
    frames = dict(spec.frames)
    pairs: list[Pair] = []
    if r:
        pairs += [Pair(frames.get(m, m), frames.get(r, r), "m_r") for m in roles.manipulated]
    pairs += [Pair(m, s, "m_s") for m in roles.manipulated]
    if r:
        pairs.append(Pair(r, s, "r_s"))
    pairs += [Pair(m, g, "m_g") for m in roles.manipulated]
    if r:
        pairs.append(Pair(r, g, "r_g"))
    return tuple(pairs)
