"""The relative-motion handoff: Eq. 9 and 10 by hand and as laws, the controller without physics, and the expert's own.

Tolerances are of the hand before it opens: an expert handed over to its own motion stays within ``SAME_M``.
"""

# ruff: noqa: E402
import dataclasses

import jax
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.metrics.stages import StageParams, monitor, retained, stack_signals
from jaxeval.policies.policy import Act, Policy, episode_key
from jaxeval.policies.scripted.arm import rigid, row
from jaxeval.policies.scripted.expert import Chain
from jaxeval.policies.scripted.handoff import ExpertMotion, commanded_hand, handoff, relative_hand_motion
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.environment import run, seen
from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW
from jaxeval.types import InputError

SCHEDULE = PARCEL_STOW.schedule

pytestmark = pytest.mark.sim
SAME_M, SAME_RAD = 6e-4, np.radians(0.2)
"""How far the hand is from the expert's at most, while it carries: the drives' errors are not the same everywhere."""
SPEED = 1.5
LIFT, RELEASE = SCHEDULE.index("LIFT"), SCHEDULE.index("RELEASE")


@pytest.fixture(scope="module")
def controller(panda):
    return PARCEL_STOW.handoff_controller(panda)


@pytest.fixture(scope="module")
def recorded(envs, expert):
    """Signals and actions of one episode of the expert."""
    signals, actions = run(envs, [expert], [episode_key(7, 0)], SPEED)
    return signals[0], actions[0]


@pytest.fixture(scope="module")
def motion(controller, recorded):
    return controller.commanded_motion(recorded[0].phase, recorded[1])


def placed(x, y, z, yaw_deg) -> RigidTransform:
    return RigidTransform.from_components([x, y, z], Rotation.from_euler("z", yaw_deg, degrees=True))


# ------------------------------------------------------------------------------------------------- Eq. 9 and 10


def test_the_relative_motion_by_hand_and_not_in_another_order():
    """The expert's hand looks along y, goes 2 m that way and turns left: ahead and left, for another hand too."""
    T_E = [placed(1, 0, 0, 90), placed(1, 2, 0, 180)]
    relative = relative_hand_motion(np.array([row(T) for T in T_E]))
    np.testing.assert_allclose(relative[0], [1, 0, 0, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(relative[1], row(placed(2, 0, 0, 90)), atol=1e-12)
    T_pi = placed(5, 0, 0, 90)
    commanded = commanded_hand(row(T_pi), relative)
    np.testing.assert_allclose(commanded, [row(T_pi), row(placed(5, 2, 0, 180))], atol=1e-12)
    before, in_world = T_E[0].inv() * T_E[1] * T_pi, T_E[1] * T_E[0].inv() * T_pi
    np.testing.assert_allclose(before.translation, [2, 5, 0], atol=1e-12)  # the wrong orders, by hand too
    np.testing.assert_allclose(in_world.translation, [1, 6, 0], atol=1e-12)


def test_laws_of_the_relative_motion():
    """From its own first pose it is the path itself; where the expert's world lies does not matter to it; a hand moved
    by a rigid motion is commanded along the path moved by it."""
    rng = np.random.default_rng(0)

    def poses(n):
        return RigidTransform.from_components(rng.normal(size=(n, 3)), Rotation.random(n, rng))

    for _ in range(5):
        path, hand, moved = poses(7), poses(1)[0], poses(1)[0]
        rows = np.array([row(T) for T in path])
        relative = relative_hand_motion(rows)
        assert same(commanded_hand(rows[0], relative), rows)
        assert same(relative_hand_motion(np.array([row(moved * T) for T in path])), relative)
        commanded = commanded_hand(row(hand), relative)
        assert same(commanded_hand(row(moved * hand), relative), np.array([row(moved * rigid(T)) for T in commanded]))


def same(a, b, *, within=1e-12) -> bool:
    """Whether two rows of poses are, q and -q being one rotation."""
    apart = [rigid(x).inv() * rigid(y) for x, y in zip(a, b, strict=True)]
    return max(max(np.abs(T.translation).max(), T.rotation.magnitude()) for T in apart) < within


# -------------------------------------------------------------------------------------------- without physics


@pytest.fixture(scope="module")
def acquired(envs, expert, recorded):
    """What a policy sees at the handoff, and its action before it: reset, with joints and hand as recorded there."""
    signals, actions = recorded
    at = int(np.argmax(signals.phase == LIFT))
    here = seen(envs, envs.reset([episode_key(7, 0)], SPEED)).of(0)
    poses = dict(here.poses) | {"tcp": signals.hand_pose[at]}
    return dataclasses.replace(here, poses=poses, joints=signals.joint_position[at]), actions[at]


def carried_through(controller, motion, acquired, moved: RigidTransform, *, last: np.ndarray | None = None):
    """Arm joints (less what they were ahead of the measured ones) and hand targets that are commanded, step by step,
    with the hand moved by ``moved`` at the handoff."""
    here, action = acquired
    action = action if last is None else last

    def once(state, _):
        assert not state, "the policy is asked after the handoff"
        return Act(action, True)

    policy = handoff(Policy("once", lambda *_: False, once, host=True), motion, controller)
    state = policy.init(here, episode_key(0, 0))
    first = int(np.ceil(SCHEDULE.durations(SPEED)[:LIFT].sum() - 1e-3))
    at = [first - 1, *range(first, first + len(motion.phase))]
    poses = dict(here.poses) | {"tcp": row(moved * rigid(here.poses["tcp"]))}
    out = []
    for step in at:
        phase, fraction = SCHEDULE.at(step, SPEED)
        facts = {"phase": float(phase), "fraction": float(fraction), "speed": SPEED}
        act = policy.act(state, dataclasses.replace(here, poses=poses, facts=facts))
        state = act.state
        out.append(controller.targets(act.action))
    joints, shape = (np.array(x[1:]) for x in zip(*out, strict=True))
    measured = here.joints[: joints.shape[1]]
    return joints - (out[0][0] - measured), shape


def test_a_hand_moved_at_the_handoff_is_commanded_along_the_moved_path(controller, motion, acquired):
    few = ExpertMotion(motion.phase[:150], motion.joints[:150])
    moved = RigidTransform.from_components([0.004, -0.003, 0.002], Rotation.from_rotvec([0.01, -0.02, 0.05]))
    relative = relative_hand_motion(np.array([controller.chain.pose(q) for q in few.joints]))
    anchor = acquired[0].poses["tcp"]
    for offset in (RigidTransform.identity(), moved):
        joints, _ = carried_through(controller, few, acquired, offset)
        path = np.array([controller.chain.pose(q) for q in joints])
        expected = commanded_hand(row(offset * rigid(anchor)), relative)
        assert same(path, expected, within=1e-4)
        jumps = np.abs(np.diff(joints, axis=0)).max()
        assert jumps < np.abs(np.diff(few.joints, axis=0)).max() + 2e-3  # no joint leaps where the hand does not
    assert np.linalg.norm(expected[:, 4:] - commanded_hand(anchor, relative)[:, 4:], axis=1).min() > 4e-3


def test_an_arm_that_holds_its_elbow_elsewhere_keeps_it_there(controller, motion, acquired):
    """The hand where the expert's is, the elbow not: the first command is where the arm is, no joint leaps later."""
    here, action = acquired
    chain, measured = controller.chain, here.joints[:7]
    elsewhere, off_m, _ = chain.solve(
        here.poses["tcp"], measured, rest=measured + np.array([0.5, 0, -0.5, 0, 0.5, 0, 0])
    )
    assert np.abs(elsewhere - measured).max() > 0.2 and off_m < 1e-4
    few = ExpertMotion(motion.phase[:80], motion.joints[:80])
    held = dataclasses.replace(here, joints=np.append(elsewhere, here.joints[7:]))
    joints, _ = carried_through(controller, few, (held, action), RigidTransform.identity())
    np.testing.assert_allclose(joints[0], elsewhere, atol=1e-3)
    assert np.abs(np.diff(joints, axis=0)).max() < 2 * np.abs(np.diff(few.joints, axis=0)).max()
    path, straight = (np.array([chain.pose(q) for q in rows]) for rows in (joints, few.joints))
    assert same(path, commanded_hand(here.poses["tcp"], relative_hand_motion(straight)), within=1e-3)


def test_the_hand_keeps_its_commanded_shape_until_release_and_then_opens(controller, motion, acquired, panda):
    last = acquired[1].copy()
    last[-1] -= 0.1  # 4 mm tighter than the expert
    _, shape = carried_through(controller, motion, acquired, RigidTransform.identity(), last=last)
    tight = panda.target(last)[-1]
    assert tight == pytest.approx(0.0125 - 0.004)
    assert (shape[motion.phase < RELEASE] == tight).all()
    opening = shape[motion.phase == RELEASE, 0]
    n = 50 * 0.6 / SPEED  # control steps that RELEASE lasts, from 0.02 s / .4 s on
    middle = tight + (0.04 - tight) / 2
    assert len(opening) == n and opening[10] == pytest.approx(middle, abs=1e-3) and (np.diff(opening) > 0).all()
    assert shape[motion.phase > RELEASE] == pytest.approx(0.04)


def test_motions_that_do_not_fit_are_refused_in_one_sentence(controller, motion, acquired, recorded, panda):
    slow = ExpertMotion(np.repeat(motion.phase, 2), np.repeat(motion.joints, 2, axis=0))
    with pytest.raises(
        InputError, match=r"40 steps after the handoff .* phase 6 .* motion in phase 5; record the expert"
    ):
        carried_through(controller, slow, acquired, RigidTransform.identity())
    with pytest.raises(InputError, match="ends in phase 4; expected one that goes on past the handoff, phase 5"):
        early = recorded[0].phase < LIFT
        controller.commanded_motion(recorded[0].phase[early], recorded[1][early])
    for at in ("PARK", "THROW"):
        with pytest.raises(InputError, match=f"no handoff at '{at}'; expected one of APPROACH, "):
            PARCEL_STOW.handoff_controller(panda, at=at)


# ------------------------------------------------------------------------------------------------------- physics


def test_the_expert_handed_over_to_its_own_motion_does_as_before(envs, expert, controller, recorded, motion):
    before, acted = recorded
    signals, actions = run(envs, [handoff(expert, motion, controller)], [episode_key(7, 0)], SPEED)
    after = signals[0]
    first, last = int(np.argmax(before.phase == LIFT)), int(np.argmax(before.phase == RELEASE))
    np.testing.assert_array_equal(actions[0][: first + 1], acted[: first + 1])  # its own until then ...
    assert (actions[0][first + 1 :] != acted[first + 1 :]).any()  # ... and not afterwards
    apart = [rigid(a).inv() * rigid(b) for a, b in zip(before.hand_pose[:last], after.hand_pose[:last], strict=True)]
    assert max(np.linalg.norm(T.translation) for T in apart) < SAME_M
    assert max(T.rotation.magnitude() for T in apart) < SAME_RAD
    judged = jax.tree.map(np.asarray, jax.jit(jax.vmap(judge))(stack_signals([before.stages(), after.stages()])))
    assert judged.success.tolist() == [True, True] and retained(judged).tolist() == [True, True]


def judge(signals):
    return monitor(signals, geometry=PARCEL_STOW.geometry, params=StageParams())


def test_commanding_what_was_measured_lags_twice(envs, expert, controller, recorded):
    """Why the expert's motion is the commanded one: drives that lag .1 s at .3 m/s and more are 2 cm behind again."""
    before = recorded[0]
    arm = controller.measured_motion(before.phase, before.joint_position[:, :7])
    after = run(envs, [handoff(expert, arm, controller)], [episode_key(7, 0)], SPEED)[0][0]
    assert np.linalg.norm(after.hand_pose[:, 4:] - before.hand_pose[:, 4:], axis=1).max() > 0.02


# -------------------------------------------------------------------------------------------- inverse kinematics


@pytest.mark.parametrize("name", ["panda", "g1"])
def test_inverse_kinematics_meets_poses_with_joints_at_their_limits(name):
    """Poses of the arm with two joints at a limit, from up to .3 rad away: most are met (one in three where joints at
    limits take part in the step), and none by leaving the ranges."""
    embodiment = load_embodiment(name)
    chain = PARCEL_STOW.handoff_controller(embodiment).chain
    rng, met = np.random.default_rng(0), []
    for _ in range(40):
        joints = rng.uniform(chain.lower, chain.upper)
        at = rng.choice(len(joints), 2, replace=False)
        joints[at] = np.where(rng.random(2) < 0.5, chain.lower[at], chain.upper[at])
        start = np.clip(joints + rng.uniform(-0.3, 0.3, len(joints)), chain.lower, chain.upper)
        found, off_m, off_rad = chain.solve(chain.pose(joints), start)
        assert (found >= chain.lower).all() and (found <= chain.upper).all()
        met.append(off_m < 1e-3 and off_rad < 5e-3)
    assert sum(met) >= 36


def test_what_the_goal_leaves_free_is_drawn_to_rest(controller, panda):
    chain: Chain = controller.chain
    joints = panda.default[:7] + np.array([0.3, -0.2, 0.4, 0.1, 0.3, -0.2, 0.5])
    stayed, _, _ = chain.solve(chain.pose(joints), joints, rest=joints)
    np.testing.assert_allclose(stayed, joints, atol=1e-9)
    drawn, off_m, off_rad = chain.solve(chain.pose(joints), joints)
    assert np.abs(drawn - joints).max() > 0.05 and off_m < 1e-4 and off_rad < 1e-3
