"""A world without physics: the arm goes where it is told, and closed fingers hold what they closed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.policies.policy import Act, Observation, Policy, episode_key
from jaxeval.policies.scripted.arm import rigid, row
from jaxeval.robots import load_robot

REST = np.array([0.0, np.pi / 8, 0.0, -5 * np.pi / 8, 0.0, 3 * np.pi / 4, np.pi / 4])
BASE = np.array([1.0, 0, 0, 0, -0.615, 0, 0])
HZ = 20.0
PANDA = load_robot("panda")
JOINT_NAMES = (*PANDA.joint_names, *PANDA.gripper_joints)


ORIGINS = [np.asarray(a, np.float64) for a in (PANDA.R_parent_joint, PANDA.t_parent_joint)]
TIP = [np.asarray(a, np.float64) for a in (PANDA.R_last_tip, PANDA.t_last_tip)]


def hand(joints: np.ndarray) -> RigidTransform:
    """T_world_hand by forward kinematics of our own in float64: a chain of turns about z, joint by joint."""
    R, t = np.eye(3), BASE[4:]
    for R_joint, t_joint, angle in zip(*ORIGINS, joints, strict=True):
        c, s = np.cos(angle), np.sin(angle)
        t = t + R @ t_joint
        R = R @ R_joint @ [[c, -s, 0], [s, c, 0], [0, 0, 1]]
    return RigidTransform.from_components(t + R @ TIP[1], Rotation.from_matrix(R @ TIP[0]))


def at(x: float, y: float, z: float, yaw_deg: float = 0.0) -> np.ndarray:
    """Pose row of a body turned about the vertical."""
    return row(RigidTransform.from_components([x, y, z], Rotation.from_euler("z", yaw_deg, degrees=True)))


@dataclass
class World:
    """``held``: the body that closing fingers hold, wherever on it they are."""

    held: str
    poses: dict[str, np.ndarray]
    half_size_m: Mapping[str, np.ndarray] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    joints: np.ndarray = field(default_factory=lambda: REST.copy())
    opening: float = 1.0
    grasp: RigidTransform | None = None
    steps: int = 0

    def seen(self) -> Observation:
        width = 0.04 * self.opening
        return Observation(
            time_s=np.float64(self.steps / HZ),
            poses={**self.poses, "tcp": row(hand(self.joints))},
            joints=np.append(self.joints, [width, width]),
            joint_names=JOINT_NAMES,
            T_world_base=BASE,
            gripper_width_m=2 * width,
            success=False,
            robot="panda",
            control_hz=HZ,
            half_size_m=self.half_size_m,
            facts=self.facts,
        )

    def step(self, action: np.ndarray) -> None:
        self.joints, self.opening = action[:7], (action[7] + 1) / 2
        self.steps += 1
        if self.opening > 0.5:
            self.grasp = None
        elif self.held and self.grasp is None:
            self.grasp = hand(self.joints).inv() * rigid(self.poses[self.held])
        if self.grasp is not None:
            self.poses[self.held] = row(hand(self.joints) * self.grasp)


@dataclass
class Run:
    """What happened: frame t is what was seen after action t; frame 0 has none."""

    seen: list[Observation]
    acts: list[Act]
    labels: Sequence[str]
    failures: Sequence[str]

    def during(self, label: str) -> np.ndarray:
        """Frames of a phase."""
        return 1 + np.flatnonzero([self.labels[act.info.label] == label for act in self.acts])

    def pose(self, body: str, frame: int = -1) -> RigidTransform:
        return rigid(self.seen[frame].poses[body])

    @property
    def joints(self) -> np.ndarray:
        return np.stack([s.joints[:7] for s in self.seen])


def run(world: World, policy: Policy, key: int = 0) -> tuple[Run, Act]:
    """Everything until the policy is done, and its last word."""
    seen = [world.seen()]
    state = policy.init(seen[0], episode_key(0, key))
    acts: list[Act] = []
    while not (act := policy.act(state, seen[-1])).info.done:
        assert len(acts) < 1000
        world.step(act.action)
        state = act.state
        acts.append(act)
        seen.append(world.seen())
    return Run(seen, acts, policy.labels(act.state), policy.failures(act.state)), act


CUBE = np.full(3, 0.02)


def scenes() -> dict[str, World]:
    """One start of every task but the drawer's, which is pushed and not held."""
    can, tray = np.array([0.033, 0.033, 0.05]), np.array([0.085, 0.085, 0.014])
    peg, thin = np.array([0.1, 0.02, 0.02]), np.array([0.12, 0.025, 0.025])
    seat = row(RigidTransform.from_components([0.0, 0.12, 0.1], Rotation.from_euler("z", 80, degrees=True)))
    hole = {"box_hole": seat, "box_with_hole": seat}
    bodies = {
        "stack_cube": World(
            "cubeA",
            {"cubeA": at(-0.05, -0.1, 0.02, 20), "cubeB": at(0.0, 0.1, 0.02, 50)},
            {"cubeA": CUBE, "cubeB": CUBE},
        ),
        "place_sphere": World(
            "sphere",
            {"sphere": at(-0.08, -0.08, 0.02), "bin": at(0.05, 0.1, 0.005)},
            {"sphere": CUBE},
            {"bin_bottom_half_m": 0.005},
        ),
        "place_can": World(
            "can",
            {"can": at(-0.08, -0.1, 0.05, 70), "tray": at(0.05, 0.1, 0.0025, 10)},
            {"can": can, "tray": tray},
            {"tray_bottom_half_m": 0.0025},
        ),
        "peg_insertion_side": World("peg", {"peg": at(-0.05, -0.15, 0.02, 60), **hole}, {"peg": peg}),
        "plug_charger": World(
            "charger", {"charger": at(-0.08, -0.1, 0.015, 20), "goal": seat}, {}, {"charger_base_half_m": 0.02}
        ),
        "poke_cube": World(
            "peg",
            {"peg": at(-0.12, -0.1, 0.025), "cube": at(0.05, -0.1, 0.02), "goal_region": at(0.15, -0.1, 0.0)},
            {"peg": thin, "cube": CUBE},
        ),
    }
    return bodies
