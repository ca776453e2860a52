"""Search where the Panda stands and how deep its jaws hold the tasks' objects; print what panda.yaml is to say.

    python tools/place_panda.py        # needs jaxeval[mujoco]; about half a minute

Base: a grid around the table, turned towards the point between parcel and receptacle, both ways round of the hand, the
whole path of ParcelStow planned from each. Kept are bases off the table, whose joints stay ``MARGIN_RAD`` from their
limits and whose least singular value stays above ``SIGMA``; the best asks least of the joints' speeds at nominal speed.
The sister tasks are planned from the base so found, and what they ask is printed.

Grasp: from above, the jaws across the object's width: the tasks turn the object about that axis, and with the hand
behind the parcel as it enters, the jaws lie in the receptacle's loose direction and the palm stays outside. The hand's
origin goes as deep as it can, in steps of a millimetre, with ``CLEARANCE_M`` left between jaws and table at the grasp
and between palm and receptacle at the insertion. Closed, the jaws are sent ``PAST_M`` past the object's side.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from jaxeval.policies.scripted.expert import Chain, joint_knots
from jaxeval.sim.mujoco.embodiment import Embodiment, load_embodiment
from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW, PEG_INSERTION, UPRIGHT_PLACEMENT
from jaxeval.types import InputError

BASE_X, BASE_Y, BASE_Z = (
    (-0.3, -0.2, -0.1, 0.0, 0.1),
    (-0.6, -0.45, -0.3, -0.15, 0.0, 0.15, 0.3, 0.45),
    (0.55, 0.7, 0.85),
)
FOOT_M = 0.1
MIDDLE = (0.44, 0.08)
MARGIN_RAD, SIGMA, CLEARANCE_M, PAST_M = 0.5, 0.15, 0.010, 0.015
ALONG_M = {"parcel": 0.0, "peg": 0.02, "block": 0.02}
WAYS_ROUND = ((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0))
START_RAD = (0.0, 0.0, 0.0, -2.2, 0.0, 2.2, 0.785)


def at_base(
    panda: Embodiment, task: Task, base: tuple[float, float, float], hand: tuple[float, ...], depth_m: float
) -> Embodiment:
    """The Panda there, holding the object that way round with the hand's origin ``depth_m`` above its centre."""
    yaw, thing = np.arctan2(MIDDLE[1] - base[1], MIDDLE[0] - base[0]), task.thing
    grasp = replace(
        panda.grasps["parcel"],
        X_object_hand=np.array([*hand, ALONG_M[thing.name], 0.0, depth_m]),
        closed={"left_jaw": round(thing.size[1] / 2 - PAST_M, 4)},
    )
    pose = np.concatenate([Rotation.from_euler("z", yaw).as_quat(scalar_first=True), base])
    return replace(panda, T_world_base=pose, grasps={thing.name: grasp})


def planned(panda: Embodiment, task: Task) -> tuple[Chain, np.ndarray, tuple[np.ndarray, ...]]:
    """Its arm, where it waits above the object, and the knots of every leg; InputError if it cannot reach them."""
    model = task.model(panda)
    posture = model.qpos0.copy()
    posture[: len(panda.joints)] = panda.default
    chain = Chain(model, [a.joint for a in panda.actuators if a.part == "arm"], panda.tcp, posture)
    legs = task.legs(panda)
    above = legs[1].hand(task.thing.start)[0]  # type: ignore[operator,misc]
    goal = np.concatenate([above.rotation.as_quat(scalar_first=True), above.translation])
    park = np.array(START_RAD)
    for _ in range(3):
        park = chain.solve(goal, park)[0]
    return chain, park, joint_knots(chain, legs, task.thing.start, park)


def asked(panda: Embodiment, task: Task) -> tuple[float, float, float]:
    """Largest share of a joint's speed limit at nominal speed, distance from limits (rad), least singular value."""
    chain, _, knots = planned(panda, task)
    limit = panda.velocity_limit[panda.actuated][panda.is_arm]
    share = 0.0
    for phase, rows in zip(task.schedule.phases, knots, strict=True):
        if phase.scaled and len(rows) > 1:  # cosine easing: peak over mean is pi / 2
            speed = np.abs(np.diff(rows, axis=0)) * (len(rows) - 1) / phase.seconds * np.pi / 2
            share = max(share, float((speed / limit).max()))
    joints = np.concatenate(knots)
    margin = float(np.minimum(joints - chain.lower, chain.upper - joints).min())
    return share, margin, min(chain.singular_values(q)[-1] for q in joints)


def clearance(panda: Embodiment, task: Task) -> float:
    """Least distance of jaws from the table at the grasp, and of the palm from the receptacle at the insertion."""
    import mujoco

    chain, _, knots = planned(panda, task)
    model, data = chain.model, mujoco.MjData(chain.model)

    def least(phase: str, hand: str, scene: str) -> float:
        data.qpos[:] = chain.posture
        data.qpos[chain.qpos] = knots[task.schedule.index(phase)][-1]
        mujoco.mj_kinematics(model, data)
        names = [model.geom(i).name for i in range(model.ngeom)]
        pairs = [(a, b) for a, x in enumerate(names) if hand in x for b, y in enumerate(names) if scene in y]
        return min(mujoco.mj_geomDistance(model, data, a, b, 0.2, None) for a, b in pairs)

    return min(least("APPROACH", "jaw", "table"), least(task.geometry.insert_phase, "palm", "receptacle"))


def best_base(panda: Embodiment) -> tuple[tuple[float, float, float], tuple[float, ...]]:
    """Base and way round of the hand; prints the five best."""
    (cx, cy, _), (sx, sy, _) = PARCEL_STOW.boxes[0].centre, PARCEL_STOW.boxes[0].size
    found = []
    for hand in WAYS_ROUND:
        for base in ((x, y, z) for z in BASE_Z for x in BASE_X for y in BASE_Y):
            off = np.maximum(np.abs([base[0] - cx, base[1] - cy]) - np.array([sx, sy]) / 2, 0.0)
            if np.hypot(*off) < FOOT_M:
                continue
            try:
                share, margin, sigma = asked(at_base(panda, PARCEL_STOW, base, hand, 0.003), PARCEL_STOW)
            except InputError:
                continue
            if margin >= MARGIN_RAD and sigma >= SIGMA:
                found.append((share, base, hand, margin, sigma))
    found.sort()
    for share, base, hand, margin, sigma in found[:5]:
        print(f"{share:.3f} of a speed limit, {margin:.2f} rad, {sigma:.3f}: base {base}, hand {hand}")
    return found[0][1], found[0][2]


def main() -> None:
    """Search, and print."""
    panda = load_embodiment("panda")
    base, hand = best_base(panda)
    for task in (PARCEL_STOW, PEG_INSERTION, UPRIGHT_PLACEMENT):
        depths = np.arange(-8, 15) * 1e-3
        best = next(
            b for d in depths if clearance(b := at_base(panda, task, base, hand, float(d)), task) >= CLEARANCE_M
        )
        grasp = best.grasps[task.thing.name]
        if task is PARCEL_STOW:
            panda = replace(panda, T_world_base=best.T_world_base)
            print(f"T_world_base: {best.T_world_base.round(8).tolist()}")
            print(f"default: {planned(best, task)[1].round(4).tolist()}")
        print(f"{task.thing.name}: X_object_hand: {grasp.X_object_hand.round(4).tolist()}, closed: {grasp.closed}")
        print("    {:.3f} of a speed limit, {:.2f} rad, {:.3f}".format(*asked(best, task)))


if __name__ == "__main__":
    main()
