"""The MuJoCo backend: many episodes of a task on the CPU, over threads, with their signals recorded.

``reset(keys, speed) -> state`` and ``step(state, action) -> state`` as on MJX, with B episodes side by side. Each has
an MjData of its own and ends at its own end; nothing that another does, its place in the batch, or the number of
threads changes a bit of it. Nothing here judges: metrics read the recorded signals.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import mujoco
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int
from scipy.spatial.transform import Rotation

from jaxeval.linalg import conjugate, product
from jaxeval.metrics.stages import StageSignals
from jaxeval.policies.batch import Batch
from jaxeval.policies.policy import Observation, Policy
from jaxeval.sim.mujoco.embodiment import Embodiment
from jaxeval.sim.mujoco.schedule import CONTROL_HZ
from jaxeval.sim.mujoco.task import SUBSTEPS, Task

CONTACTS_N = 16
"""Finger contacts that a row holds; of more, those with the greatest forces."""


class Signals(NamedTuple):
    """What is recorded at one control step, row 0 after the reset: leading axes ``[B]`` in a state, ``[T]`` recorded.

    All of a row is of one instant: forces are those that the solver finds for its positions, velocities and the command
    of the step that led to it. World frame: z up, metres, seconds, radians, newtons; poses are wxyz_xyz.
    """

    phase: Int[np.ndarray, "*B"]
    """Index into the task's phases, never falling."""
    fraction: Float[np.ndarray, "*B"]
    """Of the phase that has passed, 0 to 1."""
    time_s: Float[np.ndarray, "*B"]
    """Since the reset."""
    object_pose: Float[np.ndarray, "*B 7"]
    """T_world_object; the origin is the centre (of mass)."""
    object_velocity: Float[np.ndarray, "*B 6"]
    """Linear velocity of the centre, then angular velocity, both in the world's frame."""
    hand_pose: Float[np.ndarray, "*B 7"]
    """T_world_hand, of the TCP site."""
    fingertip_position: Float[np.ndarray, "*B F 3"]
    """Centres of mass of the fingertip bodies, thumb or opposing finger first."""
    fingertip_force: Float[np.ndarray, "*B F"]
    """Magnitude of the whole contact force of that fingertip body on the object, friction included."""
    receptacle_force: Float[np.ndarray, "*B"]
    """Of the receptacle on the object: magnitudes of the force of each of its walls, added up, so that two opposite
    walls that clamp the object do not cancel."""
    joint_position: Float[np.ndarray, "*B Q"]
    joint_velocity: Float[np.ndarray, "*B Q"]
    contact_point: Float[np.ndarray, "*B C 3"]
    """Contacts between fingertips and object, 0 beyond the last. C is ``CONTACTS_N``."""
    contact_normal: Float[np.ndarray, "*B C 3"]
    """Unit vectors into the object."""
    contact_force: Float[np.ndarray, "*B C 3"]
    """On the object."""
    contact_finger: Int[np.ndarray, "*B C"]
    """Index of the fingertip, -1 where there is no contact."""

    def stages(self) -> StageSignals:
        """What ``metrics.stages`` reads, all rows valid."""
        return StageSignals(
            phase=self.phase,
            T_world_object=self.object_pose,
            linear_m_s=self.object_velocity[..., :3],
            angular_rad_s=self.object_velocity[..., 3:],
            T_world_hand=self.hand_pose,
            finger_n=self.fingertip_force,
            receptacle_n=self.receptacle_force,
            valid=np.ones(self.phase.shape, bool),
        )


@dataclass(frozen=True)
class State:
    """B episodes between two control steps. ``data`` are continued in place: a state is stepped once."""

    signals: Signals
    observation: Float[np.ndarray, "B O"]
    action: Float[np.ndarray, "B A"]
    step: Int[np.ndarray, " B"]
    steps_n: Int[np.ndarray, " B"]
    speed: Float[np.ndarray, " B"]
    told_speed: Float[np.ndarray, " B"]
    data: tuple[mujoco.MjData, ...]

    @property
    def done(self) -> Bool[np.ndarray, " B"]:
        """Which episodes have run through their schedule."""
        return self.step >= self.steps_n


class Environments:
    """A task with an embodiment, any number of episodes at a time, on ``threads_n`` threads."""

    def __init__(self, task: Task, embodiment: Embodiment, *, threads_n: int = 1):
        self.task, self.embodiment, self.threads_n = task, embodiment, threads_n
        self.model = model = task.model(embodiment)
        self.joints = slice(0, len(embodiment.joints))
        self.thing = model.geom(task.thing.name).id
        self.thing_qpos = int(model.joint(task.thing.name).qposadr[0])
        self.thing_dof = int(model.joint(task.thing.name).dofadr[0])
        self.tips = np.array([model.body(b).id for b in embodiment.fingertips])
        self.tcp = model.site(embodiment.tcp).id
        self.geom_finger = np.array([_index(self.tips, b) for b in model.geom_bodyid])
        walls = np.array([i for i in range(model.ngeom) if model.geom(i).name.startswith("receptacle")])
        self.geom_wall = np.array([_index(walls, i) for i in range(model.ngeom)])
        self.walls_n = len(walls)
        self.layout = task.observed(embodiment)
        self._pool = ThreadPoolExecutor(threads_n) if threads_n > 1 else None

    def reset(self, keys: Sequence[Array], speed: Any, told_speed: Any = None) -> State:
        """Start an episode of every key at physical speed ``speed``; policies are told ``told_speed``, by default that.

        Both are one number or one for each key.
        """
        n = len(keys)
        data = tuple(mujoco.MjData(self.model) for _ in range(n))
        for d, key in zip(data, keys, strict=True):
            joints, pose = self.task.start(key, self.embodiment)
            d.qpos[self.joints] = joints
            d.qpos[self.thing_qpos :][:7] = [*pose[4:], *pose[:4]]
            d.ctrl[:] = self._command(np.zeros(len(self.embodiment.actuators)))
            mujoco.mj_forward(self.model, d)
        speed = np.broadcast_to(np.asarray(speed, float), (n,))
        told_speed = speed if told_speed is None else np.broadcast_to(np.asarray(told_speed, float), (n,))
        signals = self._read(data)
        action = np.zeros((n, len(self.embodiment.actuators)))
        steps_n = np.asarray(self.task.schedule.steps(speed), int)
        return self._state(signals, action, np.zeros(n, int), steps_n, speed, told_speed, data)

    def step(self, state: State, action: Float[np.ndarray, "B A"]) -> State:
        """One control step of every episode that is not done; those that are stay as they are.

        Raises:
            ValueError: the state has been stepped before.
        """
        running = np.flatnonzero(~state.done)
        if any(abs(state.data[i].time - state.step[i] / CONTROL_HZ) > 1e-6 for i in running):
            raise ValueError("this state has been stepped before; step the newest one, or reset again")
        action = np.where(state.done[:, None], state.action, np.asarray(action, float))

        def advance(episodes: Int[np.ndarray, " n"]) -> None:
            for i in episodes:
                d = state.data[i]
                d.ctrl[:] = self._command(action[i])
                mujoco.mj_step(self.model, d, nstep=SUBSTEPS)
                mujoco.mj_forward(self.model, d)

        if self._pool is None:
            advance(running)
        else:
            list(self._pool.map(advance, np.array_split(running, self.threads_n)))
        step = state.step + ~state.done
        signals = self._read(state.data)
        return self._state(signals, action, step, state.steps_n, state.speed, state.told_speed, state.data)

    def _command(self, action: Float[np.ndarray, " A"]) -> Float[np.ndarray, " U"]:
        """Targets of all drives, within the joints' ranges; held joints at the default."""
        e = self.embodiment
        held = [e.default[e.joints.index(a.joint)] for a in e.held]
        return np.clip(np.concatenate([e.target(action), held]), *self.model.actuator_ctrlrange.T)

    def _read(self, data: tuple[mujoco.MjData, ...]) -> Signals:
        """One row of every episode; element by element, so that no episode's bits depend on the others."""
        n, at, F = len(data), self.thing_qpos, len(self.tips)
        qpos, qvel = np.array([d.qpos for d in data]), np.array([d.qvel for d in data])
        v = qvel[:, self.thing_dof :][:, :6]
        R = np.array([d.geom_xmat[self.thing] for d in data]).reshape(n, 3, 3)
        angular = R[:, :, 0] * v[:, 3, None] + R[:, :, 1] * v[:, 4, None] + R[:, :, 2] * v[:, 5, None]
        hand = np.zeros((n, 7))
        for d, pose in zip(data, hand, strict=True):
            mujoco.mju_mat2Quat(pose[:4], d.site_xmat[self.tcp])
            pose[4:] = d.site_xpos[self.tcp]
        zero = np.zeros(n)
        return Signals(
            phase=np.zeros(n, np.int32),
            fraction=zero.copy(),
            time_s=np.array([d.time for d in data]),
            object_pose=np.concatenate([qpos[:, at + 3 : at + 7], qpos[:, at : at + 3]], axis=1),
            object_velocity=np.concatenate([v[:, :3], angular], axis=1),
            hand_pose=hand,
            fingertip_position=np.array([d.xipos[self.tips] for d in data]).reshape(n, F, 3),
            joint_position=qpos[:, self.joints],
            joint_velocity=qvel[:, self.joints],
            **self._contacts(data),
        )

    def _contacts(self, data: tuple[mujoco.MjData, ...]) -> dict[str, np.ndarray]:
        n, F, C = len(data), len(self.tips), CONTACTS_N
        found = [d.contact for d in data]
        episode = np.repeat(np.arange(n), [d.ncon for d in data])
        geoms = np.concatenate([c.geom for c in found]).reshape(-1, 2)
        address = np.concatenate([c.efc_address for c in found])
        ours = np.flatnonzero((geoms == self.thing).any(1) & (address >= 0))
        frame = np.concatenate([c.frame for c in found]).reshape(-1, 3, 3)[ours]
        point = np.concatenate([c.pos for c in found]).reshape(-1, 3)[ours]
        # rows of all episodes one after another: where each episode's constraint forces begin among them
        begins = np.cumsum([0, *(d.nefc for d in data)])
        forces = np.concatenate([d.efc_force for d in data])
        episode, address = episode[ours], address[ours] + begins[episode[ours]]
        # a contact's frame has its axes in rows, the normal from the first geom to the second; forces push them apart
        second = geoms[ours, 1] == self.thing
        other = np.where(second, geoms[ours, 0], geoms[ours, 1])
        axes = frame * np.where(second, 1.0, -1.0)[:, None, None]
        force = sum((forces[address + k, None] * axes[:, k] for k in range(3)), np.zeros((len(ours), 3)))

        def net(part: np.ndarray, parts_n: int) -> np.ndarray:
            """Magnitude of each part's whole force, of every episode."""
            total = np.zeros((n, parts_n, 3))
            np.add.at(total, (episode[part >= 0], part[part >= 0]), force[part >= 0])
            return np.sqrt(total[..., 0] ** 2 + total[..., 1] ** 2 + total[..., 2] ** 2)

        finger = self.geom_finger[other]
        rows = {
            "fingertip_force": net(finger, F),
            "receptacle_force": np.add.reduce(net(self.geom_wall[other], self.walls_n), axis=1),
            "contact_point": np.zeros((n, C, 3)),
            "contact_normal": np.zeros((n, C, 3)),
            "contact_force": np.zeros((n, C, 3)),
            "contact_finger": np.full((n, C), -1, np.int32),
        }
        held = np.flatnonzero(finger >= 0)
        firsts = np.searchsorted(episode[held], np.arange(n))
        place = np.arange(len(held)) - firsts[episode[held]]
        for i in np.flatnonzero(np.bincount(episode[held], minlength=n) > C):
            mine = episode[held] == i
            order = np.argsort(-np.abs(force[held[mine]]).sum(1), kind="stable")
            place[np.flatnonzero(mine)[order]] = np.arange(len(order))
        kept = place < C
        into = episode[held][kept], place[kept]
        rows["contact_point"][into] = point[held[kept]]
        rows["contact_normal"][into] = axes[held[kept], 0]
        rows["contact_force"][into] = force[held[kept]]
        rows["contact_finger"][into] = finger[held[kept]]
        return rows

    def _state(
        self, signals: Signals, action: Any, step: Any, steps_n: Any, speed: Any, told_speed: Any, data: Any
    ) -> State:
        phase, fraction = self.task.schedule.at(step, speed)
        signals.phase[:], signals.fraction[:] = phase, fraction
        observation = observed(self.task, self.embodiment, signals, action, told_speed)
        return State(signals, observation, action, step, steps_n, speed, told_speed, data)


def observed(
    task: Task,
    embodiment: Embodiment,
    signals: Signals,
    previous_action: Float[Any, "n A"],
    told_speed: Float[Any, " n"] | float,
) -> Float[Any, "n O"]:
    """What a learner sees of n rows of signals, as ``Task.observed`` lays it out. NumPy or JAX."""
    n, base = len(signals.phase), embodiment.T_world_base
    xp: Any = signals.phase.__array_namespace__()
    return xp.column_stack(
        [
            signals.joint_position,
            signals.joint_velocity,
            previous_action,
            in_base(base, signals.object_pose),
            in_base(base, signals.fingertip_position).reshape(n, -1),
            signals.fingertip_force,
            (signals.phase + signals.fraction) / len(task.schedule.phases),
            xp.broadcast_to(told_speed, n),
        ]
    )


def in_base(T_world_base: Float[np.ndarray, "7"], what: Float[Any, "*B n"]) -> Float[Any, "*B n"]:
    """World points (n = 3) or poses (n = 7, wxyz_xyz, w >= 0 after) in the base's frame, element by element.

    NumPy or JAX.
    """
    xp = what.__array_namespace__()
    w, x, y, z = T_world_base[:4]
    R = Rotation.from_quat(T_world_base[:4], scalar_first=True).as_matrix()
    p = what[..., -3:] - T_world_base[4:]
    point = p[..., 0, None] * R[0] + p[..., 1, None] * R[1] + p[..., 2, None] * R[2]
    if what.shape[-1] == 3:
        return point
    a, b, c, d = (what[..., k] for k in range(4))
    quaternion = xp.stack(product(conjugate((w, x, y, z)), (a, b, c, d)), axis=-1)
    return xp.concatenate([quaternion * xp.where(quaternion[..., :1] < 0, -1.0, 1.0), point], axis=-1)


def _index(where: np.ndarray, what: int) -> int:
    found = np.flatnonzero(where == what)
    return int(found[0]) if len(found) else -1


def seen(envs: Environments, state: State) -> Observation:
    """A state as policies see it: privileged poses, and ``phase``, ``fraction``, ``speed`` as facts.

    ``speed`` is the one that the policy is told. Its ``vector``, what a learner sees, is ``state.observation``.
    """
    s, thing, n = state.signals, envs.task.thing, len(state.speed)
    return Observation(
        time_s=s.time_s,
        poses={thing.name: s.object_pose, "tcp": s.hand_pose},
        joints=s.joint_position,
        joint_names=envs.embodiment.joints,
        T_world_base=np.broadcast_to(envs.embodiment.T_world_base, (n, 7)),
        gripper_width_m=np.full(n, np.nan),
        success=np.zeros(n, bool),
        robot=envs.embodiment.name,
        control_hz=CONTROL_HZ,
        half_size_m={thing.name: np.broadcast_to(np.array(thing.size) / 2, (n, 3))},
        facts={"phase": s.phase, "fraction": s.fraction, "speed": state.told_speed},
        vector=state.observation,
    )


class Recorded(NamedTuple):
    """Every episode to its own end, T rows each, row 0 after the reset."""

    signals: list[Signals]
    actions: list[Float[np.ndarray, "T A"]]
    """Row t's is what led to it, NaN at 0."""
    observations: list[Float[np.ndarray, "T O"]]
    """What the policy saw, row by row."""
    failed: list[str]
    """Why the policy gave up or was not obeyed, "" for neither."""


def record(
    envs: Environments,
    policy: Policy | Sequence[Policy],
    keys: Sequence[Array],
    speed: Any,
    told_speed: Any = None,
    *,
    width: int | None = None,
    each_step: Callable[[State], None] | None = None,
) -> Recorded:
    """Run every episode to its own end, by one policy or by one each.

    ``width``: what a traced policy's batch is padded to. ``each_step`` is called with every state after the reset's.
    """
    state = envs.reset(keys, speed, told_speed)
    n = len(keys)
    batch = Batch(policy, n, width)
    now = seen(envs, state)
    batch.init(now, keys)
    rows, actions, observations = [state.signals], [np.full_like(state.action, np.nan)], [state.observation]
    ends, failed = state.steps_n + 1, np.zeros(n, int)
    while not state.done.all():
        action, info = batch.act(now, ~state.done)
        failed = np.where((failed == 0) & ~state.done, info.failed, failed)
        state = envs.step(state, action)
        now = seen(envs, state)
        rows.append(state.signals)
        actions.append(state.action)
        observations.append(state.observation)
        if each_step is not None:
            each_step(state)
    columns = [np.stack([getattr(r, name) for r in rows], axis=1) for name in Signals._fields]
    acted, looked = np.stack(actions, axis=1), np.stack(observations, axis=1)
    return Recorded(
        [Signals(*(c[i, : ends[i]] for c in columns)) for i in range(n)],
        [acted[i, : ends[i]] for i in range(n)],
        [looked[i, : ends[i]] for i in range(n)],
        [batch.why(i, int(failed[i])) for i in range(n)],
    )


def run(
    envs: Environments,
    policy: Policy | Sequence[Policy],
    keys: Sequence[Array],
    speed: Any,
    told_speed: Any = None,
    **options: Any,
) -> tuple[list[Signals], list[Float[np.ndarray, "T A"]]]:
    """Signals and actions of what `record` records."""
    recorded = record(envs, policy, keys, speed, told_speed, **options)
    return recorded.signals, recorded.actions
