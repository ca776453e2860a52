"""What makes a simulated pick-and-insert honest: checks that assert it of a scene, and changes that break it.

Each ``check_*`` raises AssertionError on a scene in which the object is tied, pulled or let through walls, in which
episodes share a clock or a generator, or in which scoring leaves traces. Tests run a check on the scene as it is, and
on one changed by the second half of this file, where it has to fail.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import jax
import mujoco
import numpy as np
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.metrics.stages import Cause, StageParams, Stages, monitor, stack_signals
from jaxeval.policies.policy import Policy, episode_key
from jaxeval.policies.scripted.arm import rigid
from jaxeval.sim.mujoco.embodiment import Embodiment
from jaxeval.sim.mujoco.environment import Environments, Signals, State, run, seen
from jaxeval.sim.mujoco.schedule import Schedule
from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW

SCHEDULE, R_STOW = PARCEL_STOW.schedule, PARCEL_STOW.path["INSERT"].rotation
ENTRANCE = PARCEL_STOW.geometry.T_world_entrance[4:]
AXIS = np.array([np.cos(np.pi / 4), np.sin(np.pi / 4), 0.0])
"""``d``: from the entrance into the receptacle."""

GRAVITY, MASS = 9.81, 0.12
WEIGHT = MASS * GRAVITY
UP = np.array([0.0, 0.0, 1.0])
ACROSS = np.array([-AXIS[1], AXIS[0], 0.0])
LIFTED_STEP = 340
"""Near the end of LIFT at r = 1: the parcel is 12 cm up."""
LENGTH = 1024
"""Rows that episodes are padded to before they are judged: one compilation for all."""


@cache
def _judge() -> Callable[..., Stages]:
    return jax.jit(lambda s, params: monitor(s, geometry=PARCEL_STOW.geometry, params=params))


def judged(signals: Signals, params: StageParams | None = None) -> Stages:
    """What the monitor says of one episode, or of the beginning of one."""
    one = jax.tree.map(lambda x: x[0], stack_signals([signals.stages()], length=LENGTH))
    return jax.tree.map(np.asarray, _judge()(one, StageParams() if params is None else params))


def recorded(states: Sequence[State]) -> Signals:
    """Signals ``[T, ...]`` of the first episode of states one after another."""
    return Signals(*(np.stack([getattr(s.signals, name)[0] for s in states]) for name in Signals._fields))


def forked(state: State) -> State:
    """The same state once more, to be continued another way."""
    return dataclasses.replace(state, data=tuple(copy.copy(d) for d in state.data))


def play(envs: Environments, policy: Policy, steps: int, *, speed: float = 1.0, grip: bool = True) -> Iterator[State]:
    """The states of an episode's first steps, its reset first; without ``grip`` the hand stays open."""
    key = episode_key(0, 0)
    state = envs.reset([key], speed)
    memory = policy.init(seen(envs, state).of(0), key)
    yield state
    for _ in range(steps):
        act = policy.act(memory, seen(envs, state).of(0))
        memory = act.state
        command = act.action if grip else np.where(envs.embodiment.is_arm, act.action, 0.0)
        state = envs.step(state, command[None])
        yield state


# --------------------------------------------------------------------------------------------------- what moves it


def check_nothing_ties_the_parcel(model: mujoco.MjModel) -> None:
    """A free body of the world, in no equality, tendon or drive, with the published mass and friction."""
    m, body, joint = model, model.body("parcel").id, model.joint("parcel")
    assert m.body_parentid[body] == 0 and joint.type[0] == mujoco.mjtJoint.mjJNT_FREE, "the parcel is not free"
    assert (m.eq_type == mujoco.mjtEq.mjEQ_JOINT).all(), "an equality that is no coupling of joints"
    assert not np.isin([m.eq_obj1id, m.eq_obj2id], joint.id).any(), "the parcel is coupled"
    assert m.ntendon == 0 and m.nmocap == 0, "a tendon, or a body moved from outside"
    assert (m.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT).all(), "a drive of something else than a joint"
    assert not np.isin(m.actuator_trnid[:, 0], joint.id).any(), "the parcel is driven"
    assert m.body_gravcomp[body] == 0 and m.opt.gravity.tolist() == [0, 0, -GRAVITY], "no weight"
    assert abs(m.body_mass[body] - MASS) < 1e-12, "another mass"
    assert set(m.geom_friction[m.geom_contype > 0, 0].tolist()) == {0.5}, "another friction"


def contact_wrenches(envs: Environments, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forces ``[C, 3]`` and torques about its centre ``[C, 3]`` on the parcel (world), and the other geoms ``[C]``."""
    forces, torques, others = np.zeros((0, 3)), np.zeros((0, 3)), []
    for i, contact in enumerate(data.contact):
        if envs.thing not in contact.geom:
            continue
        wrench = np.zeros(6)
        mujoco.mj_contactForce(envs.model, data, i, wrench)  # in the contact's frame, on its second geom
        sign = 1.0 if contact.geom[1] == envs.thing else -1.0
        force, torque = sign * (wrench.reshape(2, 3) @ contact.frame.reshape(3, 3))
        arm = contact.pos - data.geom_xpos[envs.thing]
        forces, torques = np.vstack([forces, force]), np.vstack([torques, torque + np.cross(arm, force)])
        others.append(contact.geom[0] if contact.geom[1] == envs.thing else contact.geom[1])
    return forces, torques, np.array(others, int)


def check_only_contacts_and_weight_move_the_parcel(envs: Environments, policy: Policy) -> None:
    """At every other step of an episode at r = 3: weight and contacts act on the parcel, nothing else."""
    dofs = slice(envs.thing_dof, envs.thing_dof + 6)
    gripped = walled = 0
    for step, state in enumerate(play(envs, policy, int(SCHEDULE.steps(3.0)), speed=3.0)):
        if step % 2:
            continue
        d, s = state.data[0], state.signals
        forces, torques, others = contact_wrenches(envs, d)
        # all generalised forces but inertia's and gravity's; turning ones are in the parcel's frame
        acting = (d.qfrc_smooth + d.qfrc_bias + d.qfrc_constraint)[dofs]
        force = acting[:3] - forces.sum(0)
        torque = d.geom_xmat[envs.thing].reshape(3, 3) @ acting[3:] - torques.sum(0)
        assert np.abs(force).max() < 1e-9, f"a force of {np.round(force, 3)} N from nowhere"
        assert np.abs(torque).max() < 1e-9, f"a torque of {np.round(torque, 5)} N m from nowhere"
        np.testing.assert_allclose(-d.qfrc_bias[dofs][:3], -WEIGHT * UP, atol=1e-9, err_msg="weight")
        finger = envs.geom_finger[others]
        by_finger = [np.linalg.norm(forces[finger == f].sum(0)) for f in range(len(envs.tips))]
        np.testing.assert_allclose(s.fingertip_force[0], by_finger, atol=1e-9)
        by_wall = [np.linalg.norm(forces[others == envs.model.geom(b.name).id].sum(0)) for b in envs.task.boxes[1:]]
        np.testing.assert_allclose(s.receptacle_force[0], sum(by_wall), atol=1e-9)
        gripped += min(by_finger[0], max(by_finger[1:])) > 1
        walled += sum(by_wall) > 0
    assert gripped > 30 and walled > 0, "it was never held or never at the receptacle, so nothing was checked"


def check_falls_when_the_hand_opens(envs: Environments, policy: Policy) -> None:
    """Lifted, then held for .6 s: it stays up. Lifted, then let go: it lies on the table, on whichever side."""
    *_, lifted = play(envs, policy, LIFTED_STEP)
    assert lifted.signals.object_pose[0, 6] > 0.78, "the parcel was not lifted"
    opened = np.where(envs.embodiment.is_arm, lifted.action, 0.0)
    for action, low, high in ((lifted.action, 0.78, 0.9), (opened, 0.70, 0.745)):
        state = forked(lifted)
        for _ in range(30):
            state = envs.step(state, action)
        height = state.signals.object_pose[0, 6]
        assert low < height < high, f"the parcel is at {height:.3f} m, the hand {'open' if high < 0.78 else 'closed'}"


def check_is_not_dragged_without_contact(envs: Environments, policy: Policy) -> None:
    """An open hand goes to the parcel, up and on into REORIENT: the parcel stays where it lies."""
    start, *_, end = (s.signals.object_pose[0, 4:] for s in play(envs, policy, 400, grip=False))
    assert np.linalg.norm((end - start)[:2]) < 2e-3, "the parcel was dragged"
    assert abs(end[2] - 0.72) < 1e-3, "the parcel was lifted"


# ----------------------------------------------------------------------------------------------- what it runs into


def check_collides_with_every_box(envs: Environments) -> None:
    """The parcel put into the table and each wall touches it; so would everything of the hand that touches."""
    m = envs.model
    collides = ((m.geom_contype[:, None] & m.geom_conaffinity) | (m.geom_contype & m.geom_conaffinity[:, None])) > 0
    robot = (m.geom_bodyid > 0) & (np.arange(m.ngeom) != envs.thing)
    hand = np.flatnonzero(np.isin(m.geom_bodyid, envs.tips) | (robot & (m.geom_contype > 0)))
    assert collides[hand, envs.thing].all(), "a part of the hand does not touch the parcel"
    for box in envs.task.boxes:
        d = mujoco.MjData(m)
        d.qpos[envs.joints] = envs.embodiment.default
        d.qpos[envs.thing_qpos :][:7] = [*box.centre, *R_STOW.as_quat(scalar_first=True)]
        mujoco.mj_forward(m, d)
        touched = {m.geom(int(g)).name for pair in d.contact.geom if envs.thing in pair for g in pair}
        assert box.name in touched, f"the parcel does not touch {box.name}"
        assert collides[hand, m.geom(box.name).id].all(), f"a part of the hand does not touch {box.name}"


def pushed(envs: Environments, offset: np.ndarray, rotation: Rotation) -> float:
    """How deep (m) a parcel on a rail along the axis comes, pushed with 1 N from 5 cm before the entrance.

    On a rail: it neither turns nor moves across, so only what stands in its way stops it; its weight is carried.
    """
    start, quaternion = ENTRANCE - 0.05 * AXIS + offset, rotation.as_quat(scalar_first=True)
    d = mujoco.MjData(envs.model)
    d.qpos[envs.joints] = envs.embodiment.default
    d.ctrl[:] = envs.embodiment.default[envs.embodiment.actuated]
    body, at, along = envs.model.body("parcel").id, d.qpos[envs.thing_qpos :][:7], 0.0
    for _ in range(400):
        v = d.qvel[envs.thing_dof :][:6]
        v[:3], v[3:] = (v[:3] @ AXIS) * AXIS, 0.0
        at[:] = [*(start + along * AXIS), *quaternion]
        d.xfrc_applied[body, :3] = AXIS + WEIGHT * UP - 5.0 * v[:3]
        mujoco.mj_step(envs.model, d)
        along = (at[:3] - start) @ AXIS
    return along - 0.05


def check_enters_only_where_there_is_room(envs: Environments) -> None:
    """Pushed straight: within the clearance to the back wall, outside it no further than the walls' front."""
    back, front = 0.09, -0.02  # the back wall at .11 and the entrance at 0, less half the parcel's .04
    rolled = R_STOW * Rotation.from_euler("z", 45, degrees=True)  # about d: .08 cos 45 + .055 sin 45 = .0955 < .10
    for mm, rotation, expected in (
        (0 * UP, R_STOW, back),
        (8 * UP, R_STOW, back),  # 10 mm of room up and down
        (-8 * UP, R_STOW, back),
        (50 * ACROSS, R_STOW, back),  # 55 mm across
        (0 * UP, rolled, back),
        (15 * UP, R_STOW, front),
        (-15 * UP, R_STOW, front),
        (60 * ACROSS, R_STOW, front),
        (-60 * ACROSS, R_STOW, front),
        (6 * UP, rolled, front),
    ):
        depth = pushed(envs, mm / 1e3, rotation)
        assert abs(depth - expected) < 3e-3, f"{np.round(mm)} mm off it came to {depth:.3f} m, expected {expected} m"


# ----------------------------------------------------------------------------------------------- what is a success


def aimed(task: Task, offset: np.ndarray, turn: Rotation) -> Task:
    """The task with the path's last two poses moved by ``offset`` (m) and turned: for an expert that aims off."""
    off = {
        name: RigidTransform.from_components(task.path[name].translation + offset, turn * task.path[name].rotation)
        for name in ("TRANSFER", "INSERT")
    }
    return dataclasses.replace(task, path={**task.path, **off})


def check_only_a_well_aimed_stow_succeeds(envs: Environments) -> None:
    """Whole episodes at r = 1, judged: centred and 6 mm up or down succeed, beside the clearance or turned do not."""
    ahead = Rotation.identity()
    turned = Rotation.from_euler("z", 20, degrees=True)
    aims = [
        (0 * UP, ahead, True),
        (6 * UP, ahead, True),
        (-6 * UP, ahead, True),
        (30 * UP, ahead, False),
        (-30 * UP, ahead, False),
        (70 * ACROSS, ahead, False),
        (-70 * ACROSS, ahead, False),
        (0 * UP, turned, False),
    ]
    experts = [aimed(PARCEL_STOW, mm / 1e3, turn).expert(envs.embodiment) for mm, turn, _ in aims]
    signals, _ = run(envs, experts, [episode_key(0, 0)] * len(aims), 1.0)
    for (mm, turn, succeeds), one in zip(aims, signals, strict=True):
        stages = judged(one)
        says = f"aimed {np.round(mm)} mm and {turn.magnitude():.2f} rad off: {Cause(int(stages.cause)).sentence}"
        assert bool(stages.success) == succeeds, says


def stowed(envs: Environments, policy: Policy) -> list[State]:
    """The states of an episode at r = 1 up to its SETTLE: the parcel is in, the robot has gone."""
    return list(play(envs, policy, int(SCHEDULE.steps(1.0)) - 30))


def check_a_stowed_parcel_counts_only_in_place(
    envs: Environments, states: Sequence[State], params: StageParams | None = None
) -> None:
    """Moved by hand after a good insertion (``stowed``): where it is at the end is what counts.

    The parcel is upright at a depth of 6 to 7 cm, so 8 degrees about the vertical are within the published 10, and 4 cm
    towards the entrance leave less than the depth asked for.
    """
    for degrees, moved, cause in (
        (0, 0 * UP, Cause.SUCCESS),
        (8, 0 * UP, Cause.SUCCESS),
        (12, 0 * UP, Cause.TERMINAL_ORIENTATION),
        (-12, 0 * UP, Cause.TERMINAL_ORIENTATION),
        (0, -0.04 * AXIS, Cause.LEFT_BOX),
        (0, 0.12 * UP, Cause.LEFT_BOX),  # on top of the receptacle
        (0, 0.20 * ACROSS, Cause.LEFT_BOX),  # beside it
    ):
        state, later = forked(states[-1]), []
        pose = state.data[0].qpos[envs.thing_qpos :][:7]
        turn = Rotation.from_euler("z", degrees, degrees=True)
        pose[:] = [
            *(pose[:3] + moved),
            *(turn * Rotation.from_quat(pose[3:], scalar_first=True)).as_quat(scalar_first=True),
        ]
        while not state.done.all():
            state = envs.step(state, state.action)
            later.append(state)
        found = Cause(int(judged(recorded([*states, *later]), params).cause))
        assert found == cause, f"turned {degrees} deg, moved {np.round(moved, 3)} m: {found.sentence}"


# -------------------------------------------------------------------------------------- scoring, clocks, repeating


def assert_same_bits(some: Signals, others: Signals, says: str) -> None:
    """Every signal of two episodes, bit for bit."""
    for name, a, b in zip(Signals._fields, some, others, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), f"{says}: {name} differs"


def bits(envs: Environments, state: State) -> list[bytes]:
    """All that the physics of each episode continues from."""
    every = mujoco.mjtState.mjSTATE_INTEGRATION
    rows = [np.zeros(mujoco.mj_stateSize(envs.model, every)) for _ in state.data]
    for row, d in zip(rows, state.data, strict=True):
        mujoco.mj_getState(envs.model, d, row, every)
    return [row.tobytes() for row in rows]


def check_scoring_changes_nothing(envs: Environments, policy: Policy, score: Callable[[State], Any]) -> None:
    """An episode at r = 3 that is scored at every step is, bit for bit, the one that nobody scores."""

    def scored(state: State) -> None:
        before = bits(envs, state)
        score(state)
        assert bits(envs, state) == before, "scoring changed the simulation"

    alone, _ = run(envs, [policy], [episode_key(0, 0)], 3.0)
    watched, _ = run(envs, [policy], [episode_key(0, 0)], 3.0, each_step=scored)
    assert_same_bits(alone[0], watched[0], "scored and not scored")


def check_every_episode_has_its_own_clock(envs: Environments) -> None:
    """Three speeds in one batch, no policy: phase, fraction, time and end of each are those of its own speed."""
    speeds, ends = (3.0, 2.5, 2.25), (445, 471, 489)
    state = envs.reset([episode_key(0, k) for k in range(3)], speeds)
    for t in range(max(ends) + 1):
        s = state.signals
        for k, (r, end) in enumerate(zip(speeds, ends, strict=True)):
            # from the published durations: seconds, those from LIFT to RETREAT over r
            seconds = [p.seconds / (r if 5 <= i <= 12 else 1.0) for i, p in enumerate(SCHEDULE.phases)]
            begins = np.cumsum([0.0, *seconds])
            now = min(t, end) / 50
            phase = min(int(np.searchsorted(begins, now + 1e-9, side="right")) - 1, 13)
            fraction = min((now - begins[phase]) / seconds[phase], 1.0)
            assert s.phase[k] == phase, f"step {t}, r = {r}: phase {s.phase[k]}, expected {phase}"
            assert abs(s.fraction[k] - fraction) < 1e-6, f"step {t}, r = {r}: fraction {s.fraction[k]}, not {fraction}"
            told = state.observation[k, envs.layout["phase"]]
            assert abs(told - (phase + fraction) / 14) < 1e-6, f"step {t}, r = {r}: the policy is told {told}"
            assert abs(s.time_s[k] - now) < 1e-9, f"step {t}, r = {r}: time {s.time_s[k]}, expected {now}"
            assert state.done[k] == (t >= end), f"step {t}, r = {r}: done is {state.done[k]}"
        state = envs.step(state, np.zeros(state.action.shape))


def check_repeats(
    task: Task,
    embodiment: Embodiment,
    policy: Policy,
    speeds: Sequence[float],
    setups: Sequence[tuple[int, int]],
    *,
    kind: type[Environments] = Environments,
) -> list[Signals]:
    """Episodes in every setup (threads, batch size), all signals and actions bit for bit those of the first setup."""
    n, first = len(speeds), None
    for threads_n, batch in setups:
        envs = kind(task, embodiment, threads_n=threads_n)
        episodes: list[tuple[Signals, np.ndarray]] = []
        for begin in range(0, n, batch):
            some = range(begin, min(begin + batch, n))
            keys = [episode_key(3, k) for k in some]
            episodes += zip(*run(envs, [policy] * len(some), keys, [speeds[k] for k in some]), strict=True)
        first = first or episodes
        for k, (one, other) in enumerate(zip(first, episodes, strict=True)):
            says = f"episode {k} on {threads_n} threads, {batch} at a time"
            assert len(one[0].phase) == SCHEDULE.steps(speeds[k]) + 1, says
            assert_same_bits(one[0], other[0], says)
            assert one[1].tobytes() == other[1].tobytes(), f"{says}: actions differ"
    assert first is not None
    return [signals for signals, _ in first]


# ------------------------------------------------------------------------------------------------- broken on purpose


def altered(change: Callable[[mujoco.MjSpec], None], task: Task = PARCEL_STOW) -> Task:
    """The task with its scene changed before it is compiled."""

    class Altered(Task):
        def mjspec(self, embodiment: Embodiment) -> mujoco.MjSpec:
            spec = task.mjspec(embodiment)
            change(spec)
            return spec

    return Altered(**vars(task))


def welded(embodiment: Embodiment) -> Callable[[mujoco.MjSpec], None]:
    """The parcel fixed to the hand where the grasp has it."""

    def change(spec: mujoco.MjSpec) -> None:
        site = spec.site(embodiment.tcp)
        X_body_hand = RigidTransform.from_components(site.pos, Rotation.from_quat(site.quat, scalar_first=True))
        X_body_object = X_body_hand * rigid(embodiment.grasps["parcel"].X_object_hand).inv()
        weld = spec.add_equality(
            type=mujoco.mjtEq.mjEQ_WELD, objtype=mujoco.mjtObj.mjOBJ_BODY, name1=site.parent.name, name2="parcel"
        )
        weld.data[:11] = [0, 0, 0, *X_body_object.translation, *X_body_object.rotation.as_quat(scalar_first=True), 1]

    return change


def no_gravity(spec: mujoco.MjSpec) -> None:
    """Gravity off, for all."""
    spec.option.gravity = [0, 0, 0]


def weightless(spec: mujoco.MjSpec) -> None:
    """The parcel's own weight compensated."""
    spec.body("parcel").gravcomp = 1


def ghostly(*names: str) -> Callable[[mujoco.MjSpec], None]:
    """Contact bits of these geoms cleared."""

    def change(spec: mujoco.MjSpec) -> None:
        for name in names:
            spec.geom(name).contype = spec.geom(name).conaffinity = 0

    return change


def moved(name: str, by: np.ndarray) -> Callable[[mujoco.MjSpec], None]:
    """One wall elsewhere, so that the entrance is wider."""

    def change(spec: mujoco.MjSpec) -> None:
        spec.geom(name).pos = spec.geom(name).pos + by

    return change


class Sucking(Environments):
    """The hand draws the parcel to itself within 3 cm, by a spring of 60 N/m that also carries its weight."""

    def step(self, state: State, action: np.ndarray) -> State:
        for d in state.data:
            away = d.site_xpos[self.tcp] - d.geom_xpos[self.thing]
            near = np.linalg.norm(away) < 0.03
            d.xfrc_applied[self.model.body("parcel").id, :3] = 60.0 * away + WEIGHT * UP if near else 0.0
        return super().step(state, action)


class Leaking(Environments):
    """Every episode's solver starts from where the batch's first one has come to: as good, and not the same bits."""

    def step(self, state: State, action: np.ndarray) -> State:
        for d in state.data[1:]:
            d.qacc_warmstart[:] = state.data[0].qacc_warmstart
        return super().step(state, action)


class FirstsClock(Schedule):
    """All episodes are in the phase that the first one is in."""

    def at(self, step: Any, speed: Any) -> tuple[Any, Any]:
        first = np.broadcast_to(np.ravel(speed)[0], np.shape(speed))
        return super().at(step, first)


class LastsEnd(Schedule):
    """All episodes end when the slowest one does."""

    def steps(self, speed: Any) -> Any:
        return np.broadcast_to(np.max(super().steps(speed)), np.shape(speed))


class OneGenerator(Task):
    """Starts are drawn one after another from one generator, whatever the key."""

    drawn = 0

    def start(self, key: Any, embodiment: Embodiment) -> tuple[np.ndarray, np.ndarray]:
        type(self).drawn += 1
        return super().start(episode_key(0, self.drawn), embodiment)
