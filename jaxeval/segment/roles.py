"""Which bodies play which part: manipulated, reference, support, gripper, found from how they move (host, NumPy).

Source: SPECTRA III-A1. Thresholds are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxeval.io.poses import turn_from
from jaxeval.types import Episode, Pair, TaskSpec

MOVED_M = 0.01


@dataclass(frozen=True)
class Roles:
    """Parts inferred from demonstrations. ``travel_m``, ``wander_m``: how far each object gets, how much it varies."""

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
        if b.frame_of is None
        and b.name not in (spec.support, spec.gripper, *spec.ignored)
        and b.name in episodes[0].bodies
    ]
    travel = {name: np.zeros(len(episodes)) for name in objects}
    wander = {name: np.zeros(len(episodes)) for name in objects}
    for k, episode in enumerate(episodes):
        support, held = _support(episode, spec), (spec.support,) if spec.support in episode.bodies else ()
        for name in objects:
            p = (episode.body(name)[:, 4:] - support)[episode.valid_of(name, *held)]
            if not len(p):
                continue  # never seen: as if it did not move
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
            f"least ({mean_wander[found_reference]:.4f} m against {mean_wander[spec.reference]:.4f} m); "
            "the spec is used"
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
    return Roles(manipulated, reference, {n: float(travel[n].mean()) for n in objects}, mean_wander, tuple(notes))


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


def suggest_symmetries(
    final: np.ndarray, pairs: Sequence[Pair], spec: TaskSpec, *, turned_rad: float = np.pi / 3
) -> tuple[str, ...]:
    """Sentences on bodies that end up turned differently in equally successful demonstrations.

    ``final`` [K, J, 7]: T_b_a of every pair at the last frame in which it was seen, wxyz_xyz. Where the turns of a
    about one of its own axes fall on n equal steps, a discrete symmetry is suggested; where they are spread, a spin;
    where they share no axis, any rotation. Only the object pairs, and only bodies that declare no symmetry. Ours.
    """
    out: list[str] = []
    for j, pair in enumerate(pairs):
        if pair.role not in ("m_r", "m_s") or spec.body(pair.a).symmetry.kind != "none" or len(final) < 4:
            continue
        turns = _turns_from_medoid(final[:, j, :4])
        angles = np.linalg.norm(turns, axis=-1)
        if angles.max() < turned_rad:
            continue
        far = turns[angles > np.radians(10)]
        axis = np.linalg.svd(far)[2][0]
        along = turns @ axis
        start = f"{pair.a} ends turned by up to {np.degrees(angles.max()):.0f} deg relative to {pair.b}"
        written = [round(float(v), 2) + 0.0 for v in axis * np.sign(axis[np.argmax(np.abs(axis))])]
        if np.linalg.norm(turns - along[:, None] * axis, axis=-1).max() > np.radians(20):
            out.append(
                f"{start} in successful demonstrations; if it looks the same however turned, declare symmetry: all"
            )
            continue
        fold = next((n for n in (2, 3, 4, 6) if _on_steps(along, n)), None)
        kind = f"{{kind: discrete, fold: {fold}, axis: {written}}}" if fold else f"{{kind: spin, axis: {written}}}"
        out.append(f"{start}, about one axis; if it looks the same then, declare symmetry: {kind}")
    return tuple(out)


def _turns_from_medoid(wxyz: np.ndarray) -> np.ndarray:
    """Rotation vectors [K, 3], in the body's frame, from the quaternion nearest to all others to each."""
    centre = wxyz[np.argmax((wxyz @ wxyz.T) ** 2 @ np.ones(len(wxyz)))]
    q = turn_from(centre, wxyz)
    w, v = q[:, 0], q[:, 1:] * np.where(q[:, :1] < 0, -1.0, 1.0)
    sine = np.linalg.norm(v, axis=-1)
    angle = 2 * np.arctan2(sine, np.abs(w))
    return v * (angle / np.maximum(sine, 1e-12))[:, None]


def _on_steps(angle: np.ndarray, n: int) -> bool:
    """Whether all angles lie within 5 degrees of multiples of a whole turn / n, on more than one of them."""
    step = 2 * np.pi / n
    nearest = np.round(angle / step)
    return bool((np.abs(angle - nearest * step) < np.radians(5)).all() and len(set(nearest % n)) > 1)
