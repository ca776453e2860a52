"""Steps that several tasks share: a grasp from above, and randomised transport in free space."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.policies.scripted.arm import down, rigid
from jaxeval.policies.scripted.oracle import Aim, Grip, Move, Scene, Script

UP = np.array([0.0, 0.0, 1.0])


def raised(T: RigidTransform, height_m: float) -> RigidTransform:
    """The same pose, higher."""
    return RigidTransform.from_translation(height_m * UP) * T


def along(T: RigidTransform, x_m: float = 0.0, y_m: float = 0.0, z_m: float = 0.0) -> RigidTransform:
    """The pose moved along its own axes."""
    return T * RigidTransform.from_translation([x_m, y_m, z_m])


def constant(T: RigidTransform) -> Aim:
    """An aim that does not depend on what is seen."""
    return lambda _: T


def nearest_closing(scene: Scene, axes: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "3"]:
    """Of the directions and their opposites, the one that turns the hand least."""
    now = scene.commanded.rotation.as_matrix()[:, 1]
    both = np.concatenate([axes, -axes])
    return both[np.argmax(both @ now)]


def pick(scene: Scene, rng: np.random.Generator, grasp: RigidTransform) -> Script:
    """Reach above ``grasp`` from a random side, go straight down, close."""
    above = raised(grasp, 0.05 + scene.room * rng.uniform(0.0, 0.03))
    beside = [*rng.uniform(-0.03, 0.03, 2), rng.uniform(0.0, 0.04)]
    beside = RigidTransform.from_translation(scene.room * np.array(beside)) * above
    return (
        Move("reach", constant(beside)),
        Move("reach", constant(raised(grasp, 0.05))),
        Move("approach", constant(grasp), speed=0.4, settle_s=0.2),
        Grip("grasp", 0.0),
    )


def carry(
    rng: np.random.Generator,
    goal: Callable[[Scene], RigidTransform],
    *,
    body: str,
    lift_m: tuple[float, float] = (0.08, 0.14),
    lateral_m: float = 0.03,
    up_m: float = 0.06,
    vias_n: int = 2,
) -> Script:
    """Lift by a random height and carry ``body`` through random via points on the way to ``goal(scene)``.

    ``goal`` is where the body shall be when transport ends; the steps aim at places between there and where it
    was lifted to, and turn it along. The last one, to the goal itself, is not a carry waypoint but the planned pose.
    """
    height = rng.uniform(*lift_m)
    steps: list[Move] = [Move("lift", lambda s: raised(s.commanded, s.room * height), speed=0.7)]
    shares = np.sort(rng.uniform(0.25, 0.75, vias_n)) if vias_n > 1 else rng.uniform(0.35, 0.65, vias_n)
    for k, share in enumerate(shares):
        offset = np.array([*rng.uniform(-lateral_m, lateral_m, 2), rng.uniform(0.0, up_m)])
        left = float((share - (shares[k - 1] if k else 0.0)) / (1.0 - (shares[k - 1] if k else 0.0)))

        def aim(s: Scene, left: float = left, offset: np.ndarray = offset, last: bool = k > 0) -> RigidTransform:
            return between(s, body, goal(s), left, s.room * offset, keep_height=not last)

        steps.append(Move("carry", aim, carry=body))
    return (*steps, Move("carry", lambda s: s.brought(body, goal(s)), settle_s=0.5))


def between(
    s: Scene, body: str, goal: RigidTransform, share: float, offset: np.ndarray, *, keep_height: bool
) -> RigidTransform:
    """The hand pose that brings a held body ``share`` of the way to ``goal``, and ``offset`` off it; never lower."""
    now = s.pose(body)
    turn = Rotation.from_rotvec(share * (goal.rotation * now.rotation.inv()).as_rotvec())
    at = now.translation + share * (goal.translation - now.translation)
    at[2] = max(at[2], goal.translation[2], now.translation[2] if keep_height else 0.0)
    return s.brought(body, RigidTransform.from_components(at + offset, turn * now.rotation))


def over(scene: Scene, body: str) -> RigidTransform:
    """Pose of a body as first seen."""
    return rigid(scene.seen.poses[body])


def from_above(scene: Scene, body: str, axes: Float[np.ndarray, "n 3"]) -> RigidTransform:
    """Grasp of a body at its centre from above, closing along the nearest of ``axes``."""
    return down(nearest_closing(scene, axes), scene.pose(body).translation)
