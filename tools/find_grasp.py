"""Search how the five-finger hand of an embodiment holds a task's object, and print what its description is to say.

    python tools/find_grasp.py [EMBODIMENT] [--task NAME] [--candidates N] [--starts N]     # needs jaxeval[mujoco]

The hand comes from above, the fingers on one side of the object's width, the thumb on the other, so that the task turns
the object about the line between the pads. A candidate says how far the last phalanges are bent against the palm when
they touch (radians), how far beyond the object's centre the middle finger's tip reaches (m), where along the row of
fingers the thumb presses (m), and how much farther than touching the closed hand is commanded (radians, thumb and
fingers). Postures that touch a body of the object's width follow from kinematics: every finger's pad in one plane, the
thumb's in the other.

ParcelStow's grasp also sets the default posture: the hand waits over its parcel, the tips of the open hand
``--opening`` clear of either side. The sister tasks' objects lie in the same place and are taken from that posture, so
their fingers are bent nearly as much (``SISTER_BEND``); they are held ``ALONG_M`` beyond the middle of their length.

Each candidate carries the object through the task at twice the nominal speed, from a few of the task's own starts. Its
score is the worst of them: peak motion in the hand from acquisition to release, a millimetre and a degree weighing the
same, with 100 for a failure and 20 if the hand touches the table or the receptacle. The best is told where in the hand
the object comes to lie when it closes, and is then tried from ``--starts`` others at nominal speed. The search starts
from ``FIRST`` and is seeded: the same command gives the same grasp.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import mujoco
import numpy as np
from scipy.optimize import brentq, fsolve
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.metrics.stages import StageParams, monitor, stack_signals
from jaxeval.policies.scripted.expert import Chain
from jaxeval.sim.mujoco.embodiment import HAND, SCENE, Embodiment, Grasp, load_embodiment
from jaxeval.sim.mujoco.environment import Environments, Signals, State, run
from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task, mujoco_task_names
from jaxeval.types import InputError

FINGERS = ("index", "middle", "ring", "pinky")
THUMB = ("thumb_cmc_roll", "thumb_cmc_pitch", "thumb_dip")
BOUNDS = {
    "bend": (np.radians(52), np.radians(72)),
    "reach": (0.0, 0.008),
    "thumb_along": (-0.008, 0.008),
    "thumb_squeeze": (0.10, 0.40),
    "finger_squeeze": (0.03, 0.14),
}
FIRST = {"bend": np.radians(60), "reach": 0.006, "thumb_along": 0.0, "thumb_squeeze": 0.2, "finger_squeeze": 0.1}
SISTER_BEND = (np.radians(52), np.radians(60))
STANDOFF_M = 0.12
ALONG_M = {"peg": 0.02, "block": 0.02}


@dataclass(frozen=True)
class Hand:
    """Postures of a hand in its palm's frame: x along the fingers, y out of the palm, z to the thumb's side."""

    model: mujoco.MjModel
    palm: str = "right_hand"

    def pad(self, finger: str, **joints: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Ends of the last phalanx's capsule, base first, and its radius."""
        data = mujoco.MjData(self.model)
        for name, q in joints.items():
            data.qpos[self.model.joint(name).qposadr] = q
        mujoco.mj_kinematics(self.model, data)
        palm, body = data.body(self.palm), self.model.body(f"{finger}_distal")
        R, base = palm.xmat.reshape(3, 3).T, data.xpos[body.id]
        tip = 2 * data.geom_xpos[body.geomadr[0]] - base
        return R @ (base - palm.xpos), R @ (tip - palm.xpos), float(self.model.geom_size[body.geomadr[0], 0])

    def follows(self, joint: str) -> float:
        """Ratio of a passive joint to the one it follows."""
        return float(self.model.eq_data[self.model.eq_obj1id == self.model.joint(joint).id, 1][0])


def postures(
    hand: Hand, width: float, opening: float, *, bend: float, reach: float, thumb_along: float, **_: float
) -> tuple[dict[str, float], dict[str, float], RigidTransform]:
    """Open and touching positions of the driven hand joints, and the pose of a body of that width in the palm's frame.

    The body's z points against the way of the fingers, its y from the fingers to the thumb.
    """
    way, across = np.array([np.cos(bend), np.sin(bend), 0.0]), np.array([-np.sin(bend), np.cos(bend), 0.0])

    def finger(name: str, q: float) -> tuple[np.ndarray, np.ndarray, float]:
        return hand.pad(name, **{f"{name}_mcp_pitch": q, f"{name}_dip": hand.follows(f"{name}_dip") * q})

    def inner(name: str, q: float) -> float:  # where the phalanx is nearest to the body, along across
        base, tip, radius = finger(name, q)
        return float(max(base @ across, tip @ across) + radius)

    def outer(name: str, q: float) -> float:
        _, tip, radius = finger(name, q)
        return float(tip @ across + radius)

    def bent(name: str, side: Callable[[str, float], float], plane: float, near: float) -> float:
        low, high = hand.model.joint(f"{name}_mcp_pitch").range
        grid = np.linspace(low, high, 60)
        off = np.array([side(name, q) - plane for q in grid])
        cells = np.flatnonzero(off[:-1] * off[1:] < 0)
        i = cells[np.argmin(np.abs(grid[cells] - near))]
        return float(brentq(lambda q: side(name, q) - plane, grid[i], grid[i + 1]))  # type: ignore[arg-type]

    def thumb(plane: float, near: np.ndarray) -> np.ndarray:
        def off(q: np.ndarray) -> list[float]:
            base, tip, radius = hand.pad("thumb", **dict(zip(THUMB, [*q, hand.follows(THUMB[2]) * q[1]], strict=True)))
            return [float(min(base @ across, tip @ across) - radius - plane), float(tip[2] - thumb_along)]

        return np.asarray(fsolve(off, near, xtol=1e-9))

    middle = bend / (1 + hand.follows("middle_dip"))  # its last phalanx lies along the face
    face, tip = inner("middle", middle), finger("middle", middle)[1]
    touch = {f: bent(f, inner, face, middle) for f in FINGERS}
    opened = {f: bent(f, outer, face - opening, touch[f]) for f in FINGERS}
    thumb_touch = thumb(face + width, np.array([1.85, 0.5]))
    thumb_open = thumb(face + width + opening, thumb_touch)
    at = (tip @ way - reach) * way + (face + width / 2) * across
    R = Rotation.from_matrix(np.stack([np.cross(across, -way), across, -way], axis=1))
    named = [
        {**dict(zip(THUMB[:2], t, strict=True)), **{f"{f}_mcp_pitch": q for f, q in fingers.items()}}
        for t, fingers in ((thumb_open, opened), (thumb_touch, touch))
    ]
    return named[0], named[1], RigidTransform.from_components(at, R)


def candidate(embodiment: Embodiment, task: Task, opening: float, **told: float) -> Embodiment:
    """The embodiment with that grasp; for ParcelStow, also open and waiting over the parcel by default."""
    model = embodiment.mjspec().compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    palm, site = data.body("right_hand"), data.site(embodiment.tcp)
    R = palm.xmat.reshape(3, 3).T
    T_palm_hand = RigidTransform.from_components(
        R @ (site.xpos - palm.xpos), Rotation.from_matrix(R @ site.xmat.reshape(3, 3))
    )
    opened, touch, T_palm_object = postures(Hand(model), task.thing.size[1], opening, **told)
    thing = task.thing.name
    X = RigidTransform.from_translation([ALONG_M.get(thing, 0.0), 0, 0]) * T_palm_object.inv() * T_palm_hand
    closed = {j: q + told["finger_squeeze"] for j, q in touch.items()}
    closed["thumb_cmc_roll"] = touch["thumb_cmc_roll"]
    closed["thumb_cmc_pitch"] = touch["thumb_cmc_pitch"] + told["thumb_squeeze"]
    grasp = Grasp(row(X), closed, np.array([0.0, 0.0, -1.0]), STANDOFF_M, "")

    shaped = replace(embodiment, grasps={**embodiment.grasps, thing: grasp})
    if thing in ALONG_M:
        return shaped

    arm = [a.joint for a in embodiment.actuators if a.part == "arm"]
    scene = task.model(embodiment)
    chain = Chain(scene, arm, embodiment.tcp, scene.qpos0)
    waiting = task.thing.start * RigidTransform.from_translation([0, 0, STANDOFF_M]) * X
    q = np.clip(embodiment.default[embodiment.actuated][embodiment.is_arm], chain.lower + 0.1, chain.upper - 0.1)
    for _ in range(10):  # from wherever it starts
        q, off_m, _ = chain.solve(row(waiting), q)
    if off_m > 1e-3:
        raise ValueError(f"the hand cannot wait over the parcel: {1e3 * off_m:.0f} mm off")
    default = np.zeros(len(embodiment.joints))
    for joint, value in [*zip(arm, q, strict=True), *opened.items()]:
        default[embodiment.joints.index(joint)] = value
    shaped = replace(shaped, default=default)
    return replace(shaped, default=shaped.jittered(np.zeros(len(default))))  # passive joints follow


def row(T: RigidTransform) -> np.ndarray:
    """Transform -> wxyz_xyz."""
    return np.concatenate([T.rotation.as_quat(scalar_first=True), T.translation])


@dataclass(frozen=True)
class Trial:
    """What one episode came to; motions in the hand are from acquisition to release."""

    success: bool
    motion_mm: float
    motion_deg: float
    touched: int

    @property
    def score(self) -> float:
        """Less is better."""
        return (0.0 if self.success else 100.0) + self.motion_mm + self.motion_deg + 20.0 * (self.touched > 0)


def tried(e: Embodiment, task: Task, keys: list[jax.Array], speed: float) -> tuple[list[Trial], RigidTransform]:
    """The expert's episodes with that grasp, and the hand's pose in the object's frame when it has closed."""
    envs = Environments(task, e)
    touched = np.zeros(len(keys), int)
    bits = envs.model.geom_contype

    def watch(state: State) -> None:
        for i, d in enumerate(state.data):
            pairs = bits[d.contact.geom[: d.ncon]]
            touched[i] += int(((pairs == HAND).any(1) & (pairs == SCENE).any(1)).sum())

    signals, _ = run(envs, [task.expert(e)] * len(keys), keys, speed, each_step=watch)
    lift = int(np.flatnonzero(signals[0].phase == task.schedule.index("LIFT"))[0])
    batch = stack_signals([s.stages() for s in signals])
    judge = jax.vmap(lambda s: monitor(s, geometry=task.geometry, params=StageParams()))
    success = np.asarray(jax.jit(judge)(batch).success)
    trials = [trial(task, *of) for of in zip(signals, success.tolist(), touched.tolist(), strict=True)]
    return trials, in_hand(signals[0])[lift].inv()


def in_hand(s: Signals) -> RigidTransform:
    """The object in the hand's frame at every step."""
    hand, thing = (
        RigidTransform.from_components(p[:, 4:], Rotation.from_quat(p[:, :4], scalar_first=True))
        for p in (s.hand_pose, s.object_pose)
    )
    return hand.inv() * thing


def trial(task: Task, s: Signals, success: bool, touched: int) -> Trial:
    """One episode with its motion in the hand."""
    z, force = s.object_pose[:, 6], s.fingertip_force
    acquired = np.flatnonzero((z >= z[0] + 0.02) & (force[:, 0] > 1) & (force[:, 1:].max(1) > 1))
    if not len(acquired):
        return Trial(False, 100.0, 100.0, touched)
    inside = in_hand(s)
    release = int(np.flatnonzero(s.phase >= task.schedule.index("RELEASE"))[0])
    moved = (inside[acquired[0]].inv() * inside)[acquired[0] : release]
    return Trial(
        success,
        float(1e3 * np.linalg.norm(moved.translation, axis=1).max()),
        float(np.degrees(moved.rotation.magnitude().max())),
        touched,
    )


def main() -> None:
    parse = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parse.add_argument("embodiment", nargs="?", default="g1")
    parse.add_argument("--task", default="parcel_stow", choices=mujoco_task_names())
    parse.add_argument("--candidates", type=int, default=40)
    parse.add_argument("--starts", type=int, default=20)
    parse.add_argument("--opening", type=float, default=0.016, metavar="M")
    told = parse.parse_args()
    embodiment, task = load_embodiment(told.embodiment), load_mujoco_task(told.task)
    bounds = BOUNDS | ({"bend": SISTER_BEND} if task.thing.name in ALONG_M else {})
    random = np.random.default_rng(0)
    keys = [jax.random.fold_in(jax.random.key(20), i) for i in range(2 + told.starts)]
    best, least = FIRST, np.inf
    for i in range(told.candidates):
        if 1 <= i < told.candidates // 2:
            x = {k: random.uniform(*b) for k, b in bounds.items()}
        else:  # the first, later near the best so far
            step = {k: (i > 0) * random.normal(0, 0.1 * (b[1] - b[0])) for k, b in bounds.items()}
            x = {k: float(np.clip(best[k] + step[k], *b)) for k, b in bounds.items()}
        try:
            trials, _ = tried(candidate(embodiment, task, told.opening, **x), task, keys[:2], 2.0)
        except (ValueError, InputError) as error:  # no such posture, or the arm does not reach
            print(f"{i:3d} {error}")
            continue
        score = max(t.score for t in trials)
        if score < least:
            best, least = x, score
        print(f"{i:3d} {score:7.2f}", *(f"{k} {v:.4f}" for k, v in x.items()), "*" * (best is x), flush=True)
    chosen = candidate(embodiment, task, told.opening, **best)
    _, X_object_hand = tried(chosen, task, keys[:1], 1.0)
    grasp = replace(chosen.grasps[task.thing.name], X_object_hand=row(X_object_hand))
    chosen = replace(chosen, grasps={**chosen.grasps, task.thing.name: grasp})
    report(chosen, task, best, tried(chosen, task, keys[2:], 1.0)[0])


def report(e: Embodiment, task: Task, x: dict[str, float], trials: list[Trial]) -> None:
    """The description's ``default`` and ``grasps`` and the figures of the final trials."""
    grasp = e.grasps[task.thing.name]
    print("default:", {j: round(float(q), 4) for j, q in zip(e.joints, e.default, strict=True)})
    print("X_object_hand:", [round(float(v), 6) for v in grasp.X_object_hand])
    print("closed:", {j: round(float(q), 4) for j, q in grasp.closed.items()})
    print("candidate:", {k: round(v, 4) for k, v in x.items()})
    for name in ("success", "motion_mm", "motion_deg", "touched"):
        v = np.array([getattr(t, name) for t in trials], float)
        print(f"{name}: mean {v.mean():.2f}, median {np.median(v):.2f}, {v.min():.2f} to {v.max():.2f}, of {len(v)}")


if __name__ == "__main__":
    main()
