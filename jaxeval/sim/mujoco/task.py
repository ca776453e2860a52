"""A task on a table for MuJoCo and MJX: one free object, fixed boxes, phases, a path, and where episodes start.

The scene is an embodiment's robot at its base, a table, fixed boxes and the object. Nothing ties the object to the hand
or to anything else: it moves only by contact. World frame: z up, metres.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.metrics.stages import StageGeometry
from jaxeval.policies.policy import Policy, numpy_generator, random_policy
from jaxeval.policies.scripted.arm import line, rigid
from jaxeval.policies.scripted.expert import Chain, Leg, expert
from jaxeval.policies.scripted.handoff import SharedController
from jaxeval.sim.mujoco.embodiment import HAND, PARCEL, SCENE, Embodiment
from jaxeval.sim.mujoco.schedule import CONTROL_HZ, Schedule
from jaxeval.types import InputError

if TYPE_CHECKING:
    import mujoco

PHYSICS_HZ = 200
SUBSTEPS = PHYSICS_HZ // CONTROL_HZ
CONTACT_S = 2 / PHYSICS_HZ
"""Time constant of contacts, the shortest that is stable. Friction that is not perfectly stiff lets what is held drift
while the hand turns, by about the turn rate squared times the distance to the turning joint times half of this a
second: with a Panda 1.6 mm in all at r = 1, 2.5 at r = 2 (0.3 and 0.5 at 1 kHz), 4 and 8 with MuJoCo's own .02."""
JOINT_JITTER_RAD = 0.05
OVERVIEW, LOOKED_AT, FIELD_DEG = (0.68, -0.60, 1.22), (0.41, 0.07, 0.835), 34.0
"""Where the camera is, what it looks at, and the height of its field of view: hand and receptacle from the side."""
WOOD, STEEL, CARDBOARD = (0.80, 0.72, 0.60, 1.0), (0.55, 0.70, 0.85, 0.45), (0.90, 0.60, 0.16, 1.0)
"""Colours of the table, the receptacle (through which one sees) and the object."""
PATH_POSES = 8
"""Poses that a straight leg of the path is cut into."""


@dataclass(frozen=True)
class Box:
    """A fixed box, turned about z by ``yaw_rad``: centre, full size (m). Names of the receptacle's begin with that."""

    name: str
    centre: tuple[float, float, float]
    size: tuple[float, float, float]
    yaw_rad: float = 0.0


@dataclass(frozen=True)
class Thing:
    """The box that is handled: full size (m), mass (kg).

    ``start`` is its nominal T_world_object, moved by up to ``jitter_m`` in x and y.
    """

    name: str
    size: tuple[float, float, float]
    mass: float
    start: RigidTransform
    jitter_m: float = 0.01


@dataclass(frozen=True)
class Task:
    """A task, whatever the embodiment and the backend.

    ``path`` maps the phases in which the object is carried, in order, to the object's pose at their end, straight lines
    between. APPROACH goes straight to the grasp, CLOSE closes the hand, RELEASE opens it, RETREAT moves it by
    ``retreat`` in the world, and phases that end in DWELL integrate the joints' error. ``friction`` is that of every
    contact. ``seen_within_m``: how far off the expert sees where the object lies, see ``policies.scripted.expert``.
    ``friction_stiffness`` (MuJoCo's ``impratio``): what is held creeps less the stiffer friction is against normals;
    1, MuJoCo's own, lets a grasp slide slowly.
    """

    name: str
    schedule: Schedule
    boxes: tuple[Box, ...]
    thing: Thing
    friction: float
    path: Mapping[str, RigidTransform]
    retreat: Float[np.ndarray, "3"]
    geometry: StageGeometry
    seen_within_m: float = 0.0
    friction_stiffness: float = 10.0

    def mjspec(self, embodiment: Embodiment) -> mujoco.MjSpec:
        """The scene as an MjSpec: robot first (Q joints), then the object (one free joint named as it is)."""
        import mujoco

        mjspec = embodiment.mjspec()
        mjspec.modelname = f"{self.name}_{embodiment.name}"
        option = mjspec.option
        option.timestep = 1 / PHYSICS_HZ
        option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        option.impratio = self.friction_stiffness
        for geom in mjspec.geoms:
            if geom.contype:
                geom.friction[0], geom.solref[0] = self.friction, CONTACT_S
        world = mjspec.worldbody
        touching = {"friction": [self.friction, 0.005, 0.0001], "solref": [CONTACT_S, 1.0]}
        for box in self.boxes:
            world.add_geom(
                name=box.name,
                type=mujoco.mjtGeom.mjGEOM_BOX,
                pos=box.centre,
                size=np.array(box.size) / 2,
                quat=Rotation.from_euler("z", box.yaw_rad).as_quat(scalar_first=True),
                rgba=WOOD if box.name == "table" else STEEL,
                contype=SCENE,
                conaffinity=PARCEL | HAND,
                **touching,
            )
        thing = world.add_body(
            name=self.thing.name,
            pos=self.thing.start.translation,
            quat=self.thing.start.rotation.as_quat(scalar_first=True),
        )
        thing.add_freejoint(name=self.thing.name)
        thing.add_geom(
            name=self.thing.name,
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=np.array(self.thing.size) / 2,
            mass=self.thing.mass,
            rgba=CARDBOARD,
            contype=PARCEL,
            conaffinity=HAND | SCENE,
            **touching,
        )
        world.add_light(pos=[0, -1, 2.5], dir=[0.2, 0.4, -1], castshadow=False)
        world.add_camera(name="overview", pos=OVERVIEW, quat=_towards(OVERVIEW, LOOKED_AT), fovy=FIELD_DEG)
        mjspec.visual.global_.offwidth, mjspec.visual.global_.offheight = 960, 720
        return mjspec

    def model(self, embodiment: Embodiment) -> mujoco.MjModel:
        """The compiled scene, which MuJoCo and MJX both take."""
        return self.mjspec(embodiment).compile()

    def start(self, key: Array, embodiment: Embodiment) -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, "7"]]:
        """Joint positions and object pose (wxyz_xyz) of the episode with that key; all velocities are 0.

        Uniform offsets of the object in x and y, then of every driven hinge joint by up to ``JOINT_JITTER_RAD``;
        passive joints follow their couplings. Float64 on the host: the same on every backend.
        """
        random = numpy_generator(key)
        jitter = random.uniform(-self.thing.jitter_m, self.thing.jitter_m, 2)
        rest, at = self.thing.start, np.append(jitter, 0.0)
        pose = np.concatenate([rest.rotation.as_quat(scalar_first=True), rest.translation + at])
        joints = embodiment.jittered(random.uniform(-JOINT_JITTER_RAD, JOINT_JITTER_RAD, len(embodiment.joints)))
        return joints, pose

    def legs(self, embodiment: Embodiment) -> tuple[Leg, ...]:
        """The task as a script of the hand, phase by phase, for ``policies.scripted.expert``."""
        grasp = embodiment.grasps[self.thing.name]
        X_object_hand = rigid(grasp.X_object_hand)
        back = RigidTransform.from_translation(-grasp.standoff_m * grasp.approach / np.linalg.norm(grasp.approach))
        carried = list(self.path.values())

        def approach(T_world_object: RigidTransform) -> RigidTransform:
            return straight(T_world_object * back * X_object_hand, T_world_object * X_object_hand, first=True)

        def lift(T_world_object: RigidTransform) -> RigidTransform:
            return straight(T_world_object, carried[0]) * X_object_hand

        hand: dict[str, Any] = {"APPROACH": approach, next(iter(self.path)): lift}
        for name, start, goal in zip(list(self.path)[1:], carried, carried[1:], strict=False):
            hand[name] = straight(start, goal) * X_object_hand
        placed = carried[-1] * X_object_hand
        hand["RETREAT"] = straight(placed, RigidTransform.from_translation(self.retreat) * placed)
        legs: list[Leg] = []
        closed = 0.0
        for name in self.schedule.names:
            closed = {"CLOSE": 1.0, "RELEASE": 0.0}.get(name, closed)
            legs.append(Leg(name, hand.get(name), closed, name.endswith("DWELL")))
        return tuple(legs)

    def expert(self, embodiment: Embodiment) -> Policy:
        """The scripted expert of this task for that embodiment; InputError if its arm cannot reach the path."""
        e = embodiment
        chain, arm = self._chain(e)
        opened, closed = e.default[e.actuated], e.closed(self.thing.name)
        place = np.cumsum(e.is_arm) - 1  # of an actuator among the arm's

        def action(joints: Float[Any, " n"], share: Any) -> Float[Any, " A"]:
            xp = joints.__array_namespace__()
            return e.action(xp.where(e.is_arm, joints[place], opened + share * (closed - opened)))

        return expert(
            chain,
            self.legs(e),
            thing=self.thing.name,
            nominal=self.thing.start,
            park=opened[e.is_arm],
            seen_within_m=self.seen_within_m,
            arm=arm,
            action=action,
        )

    def random(self, embodiment: Embodiment) -> Policy:
        """Every driven joint sent anywhere in its range at every step, until the schedule ends."""
        low, high = embodiment.joint_range[embodiment.actuated].T
        return random_policy(embodiment.action(low), embodiment.action(high))

    def handoff_controller(self, embodiment: Embodiment, *, at: str = "LIFT") -> SharedController:
        """What ``policies.scripted.handoff`` gives the arm to at the first step of phase ``at``.

        Raises:
            InputError: no such phase, or one before which no policy has acted.
        """
        e, names = embodiment, self.schedule.names
        if at not in names[1:]:
            raise InputError(f"no handoff at '{at}'; expected one of {', '.join(names[1:])}")
        chain, arm = self._chain(e)

        def targets(action: Float[np.ndarray, "*T A"]) -> tuple[np.ndarray, np.ndarray]:
            target = e.target(action)
            return target[..., e.is_arm], target[..., ~e.is_arm]

        def action(joints: Float[np.ndarray, " n"], hand: Float[np.ndarray, " h"]) -> Float[np.ndarray, " A"]:
            target = np.empty(len(e.actuators))
            target[e.is_arm], target[~e.is_arm] = joints, hand
            return e.action(target)

        return SharedController(
            chain=chain,
            arm=tuple(arm),
            at=self.schedule.index(at),
            release=self.schedule.index("RELEASE"),
            opened=e.default[e.actuated][~e.is_arm],
            targets=targets,
            action=action,
        )

    def _chain(self, embodiment: Embodiment) -> tuple[Chain, list[str]]:
        """Inverse kinematics of the arm in this task's world, and its joints."""
        e, model = embodiment, self.model(embodiment)
        posture = np.array(model.qpos0)
        posture[: len(e.joints)] = e.default
        arm = [a.joint for a in e.actuators if a.part == "arm"]
        return Chain(model, arm, e.tcp, posture), arm

    def observed(self, embodiment: Embodiment) -> dict[str, slice]:
        """Which entries of the observation hold what, in order; poses and positions in the base's frame.

        ``fingertip_position`` are the centres of mass of the fingertip bodies, x y z each, the thumb first, as
        ``fingertip_force`` (N). ``phase`` is (index + fraction) / phases. ``speed`` is the one the policy is told.
        """
        Q, A, F = len(embodiment.joints), len(embodiment.actuators), len(embodiment.fingertips)
        sizes = {
            "joint_position": Q,
            "joint_velocity": Q,
            "previous_action": A,
            "object_pose": 7,
            "fingertip_position": 3 * F,
            "fingertip_force": F,
            "phase": 1,
            "speed": 1,
        }
        ends = np.cumsum([*sizes.values()])
        return {name: slice(int(end) - n, int(end)) for (name, n), end in zip(sizes.items(), ends, strict=True)}


def _towards(eye: tuple[float, float, float], target: tuple[float, float, float]) -> np.ndarray:
    """Orientation (wxyz) of a camera at ``eye`` that looks at ``target``: it looks along -z, its x is level."""
    back = np.subtract(eye, target) / np.linalg.norm(np.subtract(eye, target))
    right = np.cross([0, 0, 1], back) / np.linalg.norm(np.cross([0, 0, 1], back))
    axes = np.column_stack([right, np.cross(back, right), back])
    return Rotation.from_matrix(axes).as_quat(scalar_first=True)


def straight(start: RigidTransform, goal: RigidTransform, *, first: bool = False) -> RigidTransform:
    """``PATH_POSES`` poses on the straight line from after ``start`` (with ``first``, from it) to ``goal``."""
    return line(start, goal, np.arange(0 if first else 1, PATH_POSES + 1) / PATH_POSES)
