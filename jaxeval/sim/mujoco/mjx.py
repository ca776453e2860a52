"""The MJX backend: episodes of a task as pure functions of JAX arrays, for a GPU or wherever JAX runs.

``reset(start, speed) -> state`` and ``step(state, action) -> state`` are of ONE episode; vmap and jit them for many.
Starts are those of ``environment``, drawn on the host in float64 and then rounded to JAX's precision: both backends
begin alike, in float32 to 3e-8 m of the object and 1.2e-7 rad of a joint. A row of signals means the same.

What differs from ``environment``, and why; the model itself is compiled from the same mjspec:

- shapes are static: of every contact dimension the ``CONTACTS_KEPT_N`` deepest contacts count, of which an expert's
  episodes have at most 12. MJX makes two for every capsule and box and four for every two boxes, touching or not: 108
  with the Panda, 220 with the G1. Its Newton solver writes every elliptic cone out one by one in what is compiled,
  into a matrix of all rows of constraints squared: 138 rows for the G1 instead of 882, with which it did not compile;
- the solver stops after ``ITERATIONS`` Newton steps with ``LINE_SEARCH`` steps along each; MJX takes all of the latter
  always. With a parcel in the hand accelerations are as far from C's as with MuJoCo's 100 and 50 (9e-4 of 4, which is
  float32), in less than half the time; 30 steps of conjugate gradients take longer and are .1 off;
- two boxes touch at 4 points at most, 8 in C; float32 unless ``jax_enable_x64`` is set.

A row of signals takes one more evaluation of the dynamics than the physics steps have, as in C; steps and rows are one
loop, so that the dynamics are compiled once. Unroll episodes with a scan (`record`) where compiling matters.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxeval import se3
from jaxeval.policies.batch import mapped
from jaxeval.policies.policy import Observation, Policy
from jaxeval.sim.mujoco.embodiment import Embodiment
from jaxeval.sim.mujoco.schedule import CONTROL_HZ
from jaxeval.sim.mujoco.task import SUBSTEPS, Task
from jaxeval.types import InputError

if TYPE_CHECKING:
    from jaxeval.sim.mujoco.environment import Recorded, Signals

CONTACTS_KEPT_N = 16
ITERATIONS, LINE_SEARCH = 8, 8
CHUNK = 50
"""Control steps of `run` that are compiled as one."""

Start = tuple[Float[Any, "*B Q"], Float[Any, "*B 7"]]
"""Joint positions and object pose (wxyz_xyz), as ``Task.start`` gives them."""


class State(NamedTuple):
    """One episode between two control steps (or, after a vmap, B); all of it are arrays, so a state may be kept.

    ``step`` is -1 before the reset. ``warm_start`` is the acceleration that the solver begins from.
    """

    signals: Signals
    observation: Float[Array, " O"]
    action: Float[Array, " A"]
    step: Int[Array, ""]
    steps_n: Int[Array, ""]
    speed: Float[Array, ""]
    told_speed: Float[Array, ""]
    qpos: Float[Array, " nq"]
    qvel: Float[Array, " nv"]
    warm_start: Float[Array, " nv"]

    @property
    def done(self) -> Bool[Array, ""]:
        """Whether the episode has run through its schedule."""
        return self.step >= self.steps_n


class Environments:
    """A task with an embodiment.

    Raises:
        InputError: MJX is not installed.
    """

    def __init__(self, task: Task, embodiment: Embodiment):
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints that optional packages are not there
                from mujoco import mjx
        except ImportError as error:
            raise InputError("this backend needs MJX, which is not there; pip install 'jaxeval[mujoco]'") from error
        from jaxeval.sim.mujoco.environment import Environments as OnHost

        self.task, self.embodiment, self._mjx = task, embodiment, mjx
        mjspec = task.mjspec(embodiment)
        mjspec.add_numeric(name="max_contact_points", data=[float(CONTACTS_KEPT_N)])
        mjspec.option.iterations, mjspec.option.ls_iterations = ITERATIONS, LINE_SEARCH
        self.model = model = mjspec.compile()
        self._host = OnHost(task, embodiment)  # indices of what is read, the same in both
        self._held = [embodiment.default[embodiment.joints.index(a.joint)] for a in embodiment.held]
        self._model, self._blank = mjx.put_model(model), mjx.make_data(model)
        self._advance = jax.jit(self._advanced)

    def starts(self, keys: Sequence[Array]) -> Start:
        """Of the episodes with these keys, stacked: on the host, float64, those of every backend."""
        joints, poses = zip(*(self.task.start(key, self.embodiment) for key in keys), strict=True)
        return np.array(joints), np.array(poses)

    def reset(self, start: Start, speed: Any, told_speed: Any = None) -> State:
        """Begin an episode at physical speed ``speed``; policies are told ``told_speed``, by default that."""
        return self._advance(self.before(start, speed, told_speed), jnp.zeros(len(self.embodiment.actuators)))

    def step(self, state: State, action: Float[Array, " A"]) -> State:
        """One control step; an episode that is done stays as it is. Of a state `before` the reset, the reset."""
        return self._advance(state, jnp.asarray(action, state.qpos.dtype))

    def before(self, start: Start, speed: Any, told_speed: Any = None) -> State:
        """What `step` turns into the state after the reset: so that a scan over steps is all that is compiled."""
        from jaxeval.sim.mujoco.environment import CONTACTS_N, Signals

        joints, pose = (jnp.asarray(x, float) for x in start)
        speed = jnp.asarray(speed, float)
        told_speed = speed if told_speed is None else jnp.asarray(told_speed, float)
        h, e, m, C = self._host, self.embodiment, self.model, CONTACTS_N
        F, Q, A = len(e.fingertips), len(e.joints), len(e.actuators)
        qpos = jnp.asarray(m.qpos0, float).at[h.joints].set(joints)
        qpos = qpos.at[h.thing_qpos : h.thing_qpos + 7].set(jnp.concatenate([pose[4:], pose[:4]]))
        integer, of = jnp.zeros((), jnp.int32), jnp.zeros
        shapes = {"object_pose": (7,), "object_velocity": (6,), "hand_pose": (7,), "fingertip_position": (F, 3)}
        shapes |= {"fingertip_force": (F,), "joint_position": (Q,), "joint_velocity": (Q,)}
        shapes |= {f"contact_{what}": (C, 3) for what in ("point", "normal", "force")} | {"contact_finger": (C,)}
        integers = ("phase", "contact_finger")
        row: dict[str, Any] = {
            name: jnp.zeros(shapes.get(name, ()), jnp.int32 if name in integers else float) for name in Signals._fields
        }
        return State(
            signals=Signals(**row),
            observation=of(max(part.stop for part in h.layout.values())),
            action=of(A),
            step=integer - 1,
            steps_n=self.task.schedule.steps(speed).astype(jnp.int32),
            speed=speed,
            told_speed=told_speed,
            qpos=qpos,
            qvel=of(m.nv),
            warm_start=of(m.nv),
        )

    def _advanced(self, state: State, action: Float[Array, " A"]) -> State:
        """`step`, of one episode."""
        moving = (state.step >= 0) & ~state.done
        action = jnp.where(state.step >= 0, action, 0.0)
        with jax.numpy_rank_promotion("allow"):  # MJX promotes ranks
            low, high = self.model.actuator_ctrlrange.T
            command = jnp.concatenate([self.embodiment.target(action), jnp.asarray(self._held, action.dtype)])
            command = jnp.clip(command, low, high)

            def substep(body: tuple[Array, Array, Array], k: Array) -> tuple[tuple[Array, Array, Array], Signals]:
                """The row of signals of this instant, then a physics step; not after the last."""
                qpos, qvel, warm_start = body
                now = self._blank.replace(qpos=qpos, qvel=qvel, qacc_warmstart=warm_start, ctrl=command)
                now = self._mjx.forward(self._model, now)
                after = self._mjx.implicit(self._undamped(now), now)
                on = moving & (k < SUBSTEPS)
                body = jnp.where(on, after.qpos, qpos), jnp.where(on, after.qvel, qvel), now.qacc
                return body, self._read(now)

            body = state.qpos, state.qvel, state.warm_start
            body, rows = jax.lax.scan(substep, body, jnp.arange(SUBSTEPS + 1))
            signals = jax.tree.map(lambda x: x[-1], rows)
            step = state.step + 1
            phase, fraction = self.task.schedule.at(step, state.speed)
            signals = signals._replace(
                phase=phase.astype(jnp.int32), fraction=fraction, time_s=(step / CONTROL_HZ).astype(fraction.dtype)
            )
            new = State(
                signals,
                self._observed(signals, action, state.told_speed),
                action,
                step,
                state.steps_n,
                state.speed,
                state.told_speed,
                *body,
            )
            return jax.tree.map(lambda old, new: jnp.where(state.done, old, new), state, new)

    def _undamped(self, now: Any) -> Any:
        """The model as the integrator is to take it: a drive at its bound does not damp.

        C leaves such a drive out of the derivative by velocity, MJX does not: that slows a saturated joint.
        """
        m = self._model
        low, high = m.actuator_forcerange.T
        bounded = (now.actuator_force <= low) | (now.actuator_force >= high)
        damping = jnp.where(bounded, 0.0, m.actuator_biasprm[:, 2])
        return m.replace(actuator_biasprm=m.actuator_biasprm.at[:, 2].set(damping))

    def _observed(
        self, signals: Signals, action: Float[Array, " A"], told_speed: Float[Array, ""]
    ) -> Float[Array, " O"]:
        from jaxeval.sim.mujoco.environment import observed

        row = jax.tree.map(lambda x: x[None], signals)
        return observed(self.task, self.embodiment, row, action[None], told_speed)[0]

    def _read(self, d: Any) -> Signals:
        """A row of signals of MJX data for which forces are known; what the schedule says is left at 0."""
        from jaxeval.sim.mujoco.environment import Signals

        h = self._host
        v = d.qvel[h.thing_dof : h.thing_dof + 6]
        at = d.qpos[h.thing_qpos : h.thing_qpos + 7]
        zero = jnp.zeros((), d.qpos.dtype)
        row: dict[str, Any] = {
            "phase": jnp.zeros((), jnp.int32),
            "fraction": zero,
            "time_s": zero,
            "object_pose": jnp.concatenate([at[3:], at[:3]]),
            "object_velocity": jnp.concatenate([v[:3], d.geom_xmat[h.thing].reshape(3, 3) @ v[3:]]),
            "hand_pose": se3.from_matrix(d.site_xmat[h.tcp].reshape(3, 3), d.site_xpos[h.tcp]),
            "fingertip_position": d.xipos[h.tips],
            "joint_position": d.qpos[h.joints],
            "joint_velocity": d.qvel[h.joints],
        }
        return Signals(**row, **self._contacts(d))

    def _contacts(self, d: Any) -> dict[str, Any]:
        """Forces on the object; of K contacts those of fingers first, the greatest forces before others."""
        from jaxeval.sim.mujoco.environment import CONTACTS_N

        h, c = self._host, d._impl.contact
        ours = (c.geom == h.thing).any(1) & (c.dist < c.includemargin)
        second = c.geom[:, 1] == h.thing
        other = jnp.where(second, c.geom[:, 0], c.geom[:, 1])
        # a contact's frame has its axes in rows, the normal from the first geom to the second; forces push them apart
        axes = c.frame.reshape(-1, 3, 3) * jnp.where(second, 1.0, -1.0)[:, None, None]
        along = d._impl.efc_force[c.efc_address[:, None] + np.arange(3)]
        force = (along[:, :, None] * axes).sum(1) * ours[:, None]

        def net(part: Int[Array, " K"], parts_n: int) -> Float[Array, " P"]:
            """Magnitude of each part's whole force."""
            mine = part[None] == jnp.arange(parts_n)[:, None]
            return jnp.sqrt(((mine[..., None] * force[None]).sum(1) ** 2).sum(-1))

        finger = jnp.where(ours, jnp.asarray(h.geom_finger, jnp.int32)[other], -1)
        wall = jnp.where(ours, jnp.asarray(h.geom_wall, jnp.int32)[other], -1)
        n = min(CONTACTS_N, len(finger))
        _, first = jax.lax.top_k(jnp.where(finger >= 0, jnp.abs(force).sum(1), -1.0), n)
        held = finger[first] >= 0

        def rows(x: Float[Array, "K 3"]) -> Float[Array, "C 3"]:
            return jnp.zeros((CONTACTS_N, 3), x.dtype).at[:n].set(jnp.where(held[:, None], x[first], 0.0))

        return {
            "fingertip_force": net(finger, len(h.tips)),
            "receptacle_force": net(wall, h.walls_n).sum(),
            "contact_point": rows(c.pos),
            "contact_normal": rows(axes[:, 0]),
            "contact_force": rows(force),
            "contact_finger": jnp.full(CONTACTS_N, -1, jnp.int32).at[:n].set(jnp.where(held, finger[first], -1)),
        }


def seen(envs: Environments, state: State) -> Observation:
    """A state of one episode as policies see it; the same that ``environment.seen`` gives of many."""
    s, thing = state.signals, envs.task.thing
    dtype = state.qpos.dtype
    return Observation(
        time_s=s.time_s,
        poses={thing.name: s.object_pose, "tcp": s.hand_pose},
        joints=s.joint_position,
        joint_names=envs.embodiment.joints,
        T_world_base=jnp.asarray(envs.embodiment.T_world_base, dtype),
        gripper_width_m=jnp.asarray(jnp.nan, dtype),
        success=jnp.asarray(False),
        robot=envs.embodiment.name,
        control_hz=CONTROL_HZ,
        half_size_m={thing.name: jnp.asarray(np.array(thing.size) / 2, dtype)},
        facts={"phase": s.phase, "fraction": s.fraction, "speed": state.told_speed},
        vector=state.observation,
    )


def record(
    envs: Environments,
    policy: Policy | Sequence[Policy],
    keys: Sequence[Array],
    speed: Any,
    told_speed: Any = None,
    *,
    width: int | None = None,
    steps_n: int | None = None,
) -> Recorded:
    """Every episode of a policy to its own end, or its first ``steps_n`` control steps, as ``environment.record`` does.

    Signals are in JAX's precision. The policy is scanned with the physics: one compiled program for `CHUNK` steps.

    Raises:
        InputError: the policy's ``act`` cannot be traced, or episodes have several policies.
    """
    from jaxeval.sim.mujoco.environment import Recorded, Signals

    several = [policy] if isinstance(policy, Policy) else list(policy)
    policy = several[0]
    if not policy.traceable or any(other is not policy for other in several):
        raise InputError(
            f"policy '{policy.name}' on MJX: expected one policy whose act JAX can trace; run it with simulator=mujoco"
        )
    n = len(keys)
    keys = [*keys, *[keys[-1]] * ((width or n) - n)]
    starts = envs.starts(keys)
    speeds = jnp.asarray(_padded(speed, n, len(keys)), float)
    told_speed = speeds if told_speed is None else jnp.asarray(_padded(told_speed, n, len(keys)), float)
    state, memory = _begun(envs, policy, starts, keys, speeds, told_speed)
    go_on = _rollout_of(envs, policy)
    rows: list[Any] = []
    ends = np.asarray(state.steps_n if steps_n is None else jnp.minimum(state.steps_n, steps_n)) + 1
    while len(rows) * CHUNK < ends.max():
        (state, memory), made = go_on(state, memory)
        rows.append(jax.tree.map(np.array, made))
    signals, taken, looked, failed = jax.tree.map(lambda *x: np.concatenate(x), *rows)
    taken[0] = np.nan
    codes = [np.concatenate([failed[:end, i], [0]]) for i, end in enumerate(ends)]
    words = [int(code[np.argmax(code != 0)]) for code in codes]
    failures = policy.failures(None) if not policy.host else ()
    return Recorded(
        [Signals(*(c[:end, i] for c in signals)) for i, end in enumerate(ends[:n])],
        [taken[:end, i] for i, end in enumerate(ends[:n])],
        [looked[:end, i] for i, end in enumerate(ends[:n])],
        ["" if not w else failures[w] if w < len(failures) else f"the policy gave up with code {w}" for w in words[:n]],
    )


def run(envs: Environments, policy: Policy, keys: Sequence[Array], speed: Any, told_speed: Any = None, **options: Any):
    """Signals and actions of what `record` records."""
    recorded = record(envs, policy, keys, speed, told_speed, **options)
    return recorded.signals, recorded.actions


def _padded(x: Any, n: int, width: int) -> np.ndarray:
    x = np.broadcast_to(np.asarray(x, float), (n,))
    return np.concatenate([x, np.repeat(x[-1:], width - n)])


def _begun(
    envs: Environments, policy: Policy, starts: Start, keys: Sequence[Array], speeds: Array, told_speed: Array
) -> tuple[State, Any]:
    """States before the reset, and the policy's memories of what the host sees after it."""
    from jaxeval.sim.mujoco.environment import seen as seen_on_host

    state = jax.vmap(envs.before)(starts, speeds, told_speed)
    first = seen_on_host(envs._host, envs._host.reset(keys, np.asarray(speeds, float), np.asarray(told_speed, float)))
    if policy.host:
        plans = [policy.init(first.of(i), key) for i, key in enumerate(keys)]
        return state, jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *plans)
    init, _ = mapped(policy)
    return state, init(jax.tree.map(jnp.asarray, first), jnp.stack(keys))


def _rollout_of(envs: Environments, policy: Policy) -> Any:
    """``(state, memory) -> (state, memory), rows [CHUNK, B, ...]``: the next `CHUNK` control steps.

    Rows are signals, actions, observations and the policy's failures. Step -1 is the reset, at which nobody acts.
    """
    _, act = mapped(policy)

    def go(state: State, memory: Any) -> tuple[tuple[State, Any], tuple[Signals, Array, Array, Array]]:
        def step(carry: tuple[State, Any], _: None) -> Any:
            state, memory = carry
            begun = state.step[0] >= 0  # all episodes of a batch start together
            with jax.numpy_rank_promotion("allow"):
                action, then, info = act(memory, jax.vmap(lambda s: seen(envs, s))(state))
            memory = jax.tree.map(lambda old, new: jnp.where(begun, new, old), memory, then)
            failed = jnp.where(begun & ~state.done, info.failed, 0)
            state = jax.vmap(envs.step)(state, action)
            return (state, memory), (state.signals, state.action, state.observation, failed)

        return jax.lax.scan(step, (state, memory), None, CHUNK)

    return jax.jit(go)
