"""What a lost body does to Q: nothing to the relations of others, and no better number for want of a measurement."""

from __future__ import annotations

import dataclasses
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxeval import align
from jaxeval.metrics import fused
from jaxeval.metrics import geometric as G
from jaxeval.metrics.geometric import GeometricParams, geometric_quality
from jaxeval.metrics.status import Status
from jaxeval.types import Body, InputError, Pair, Predicate, Reference, Shape, SubTask, TaskSpec
from tests.executions import multiply, quick_jit, random_poses
from tests.metrics.test_fused import BODIES, L, M, P, case, on_device, precision
from tests.oracles import geometric_numpy as oracle

T = 40


def masks() -> np.ndarray:
    """[4, T, N]: nothing lost; a tenth of each body; a third of a; a in the last frame."""
    valid = np.ones((4, T, len(BODIES)), bool)
    valid[1] = np.random.default_rng(1).random((T, len(BODIES))) > 0.1
    valid[1, -1] = True
    valid[2, 5:20, BODIES.index("a")] = False
    valid[3, -1, BODIES.index("a")] = False
    return valid


def public(poses: Any, alignment: Any, success: Any, *, valid: Any, **told: Any) -> Any:
    return jax.vmap(lambda p, a, s, v: geometric_quality(p, a, s, valid=v, **told))(poses, alignment, success, valid)


@cache
def compiled(kernel: Any) -> Any:
    """In float64, of the executions of `case`."""
    reference, _, alignment, success = on_device(case("float64"))
    told = {"reference": reference, "bodies": BODIES}
    return quick_jit(lambda poses, valid, p: kernel(poses, alignment, success, valid=valid, params=p, **told))


def quality(kernel: Any, poses: np.ndarray, valid: np.ndarray, params: GeometricParams | None = None) -> Any:
    with precision("float64"):
        return jax.tree.map(np.asarray, compiled(kernel)(poses, valid, on_device(params or GeometricParams())))


def made() -> Any:
    with precision("float64"):
        return case("float64")


def test_the_kernel_the_public_function_and_the_twin_agree() -> None:
    """Whatever stands for a body that was not seen: NaN here, for the kernel alone."""
    params, valid = GeometricParams(), masks()
    reference, poses, alignment, success = made()
    ours = quality(fused.fused_quality, np.where(valid[..., None], poses, np.nan), valid)
    theirs = quality(public, poses, valid)
    for field in dataclasses.fields(ours):
        got, want = getattr(ours, field.name), getattr(theirs, field.name)
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12, err_msg=field.name)
    assert ours.status.tolist() == [Status.OK, Status.OK, Status.TRACKING, Status.OK]
    for k in range(4):
        bins, reached = alignment.bins[k], alignment.reached[k]
        want = oracle.score(poses[k], bins, reached, int(success[k]), reference, params, BODIES, valid[k])
        assert want["enough"] == (ours.status[k] == Status.OK)
        np.testing.assert_allclose(ours.q[k], want["q"], rtol=1e-9)
        for name in ("pair_cost", "frame_pair_cost", "sub_task_cost", "pair_coverage"):
            np.testing.assert_allclose(getattr(ours, name)[k], want[name], rtol=1e-8, atol=1e-10, err_msg=name)
        assert (ours.gate_code[k], ours.gate_index[k]) == (want["gate_code"], want["gate_index"])


@pytest.mark.slow
def test_gradients_agree_and_none_comes_from_what_was_not_seen() -> None:
    valid = masks()
    reference, poses, alignment, success = made()

    def gradients(kernel: Any, poses: np.ndarray) -> Any:
        def total(poses: Any, params: Any) -> Any:
            told = {"reference": on_device(reference), "bodies": BODIES, "valid": jnp.asarray(valid), "params": params}
            out = kernel(poses, on_device(alignment), on_device(success), **told)
            return jnp.sum(jnp.where(out.status == 0, out.gate_free, 0.0))

        with precision("float64"):
            run = quick_jit(jax.grad(total, argnums=(0, 1)))
            return jax.tree.map(np.asarray, run(jnp.asarray(poses), on_device(GeometricParams())))

    ours = gradients(fused.fused_quality, np.where(valid[..., None], poses, np.nan))
    theirs = gradients(public, poses)
    assert np.isfinite(ours[0]).all() and (ours[0][~valid] == 0).all()
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


# ------------------------------------------------------------------------------------------- worked by hand, and laws


def by_hand(of_b: int = 2) -> tuple[Reference, np.ndarray]:
    """Cubes a and b over a table: (a | table) has 3 pinned directions, (b | table) ``of_b``; one bin, four frames.

    sigma is the floor of 3 mm for pinned directions and 1 m for the others, z_0 = 1.5. a is 9 mm off in x (z = 3,
    e = 1.5) and b 12 mm (z = 4, e = 2.5), always.
    """
    names = ("a", "b", "table")
    bodies = tuple(Body(n, Shape("box", (0.02, 0.02, 0.02))) for n in names)
    spec = TaskSpec(name="by hand", bodies=bodies, sub_tasks=(SubTask("all", ()),))
    pairs = (Pair("a", "table", "m_s"), Pair("b", "table", "r_s"))
    rng = np.random.default_rng(0)
    deviations = np.zeros((9, 2, 1, 6))
    for j, pinned_n in enumerate((3, of_b)):
        deviations[:, j, 0, pinned_n:] = np.linalg.qr(rng.normal(size=(9, 6)))[0][:, pinned_n:] * np.sqrt(8)
    reference = Reference(
        nominal=np.tile(np.eye(7)[0], (2, 1, 1)), deviations=deviations, seen=np.ones((9, 2, 1), bool),
        terminal=np.full((9, 2, 6), 0.02), demo_valid=np.ones(9, bool), converged=np.ones((2, 1), bool),
        scale=np.tile(np.eye(3), (2, 1, 1)), duration_s=np.ones(1), pairs=pairs, spec=spec, bins_n=1,
    )  # fmt: skip
    poses = np.tile(np.eye(7)[0], (4, 3, 1))
    poses[:, 0, 4], poses[:, 1, 4] = 0.009, 0.012
    return reference, poses


def at_hand(poses: np.ndarray, valid: np.ndarray | None, reference: Reference, **changes: float) -> G.GeometricQuality:
    n = len(poses)
    alignment = align.Alignment(*(jnp.asarray(x) for x in ([n], [True], np.zeros(n, np.int32), [0.0], [1.0])))
    with precision("float64"):
        run = quick_jit(partial(geometric_quality, params=GeometricParams(**changes), bodies=("a", "b", "table")))
        out = run(
            poses,
            alignment,
            jnp.asarray(1),
            reference=on_device(reference),
            valid=None if valid is None else jnp.asarray(valid),
        )
        return jax.tree.map(np.asarray, out)


def test_n_counts_the_pinned_directions_that_were_seen() -> None:
    reference, poses = by_hand()
    valid = np.ones((4, 3), bool)
    valid[1, 1] = False  # b is lost in one frame of four
    out = at_hand(poses, valid, reference, coverage_min=0.5)
    whole, alone = (1.5 + 2.5) / 5, 1.5 / 3  # over 5 pinned directions, and over the 3 that were seen
    np.testing.assert_allclose(out.frame_cost, [whole, alone, whole, whole], rtol=1e-9)
    np.testing.assert_allclose(out.q, np.exp(-(3 * whole + alone) / 4), rtol=1e-9)
    over_all = 1.5 / 5  # the plausible mistake: a direction that nobody saw counts as one without excess
    assert abs(float(out.q) - np.exp(-(3 * whole + over_all) / 4)) > 0.02
    np.testing.assert_allclose(out.pair_coverage, [1, 0.75])
    np.testing.assert_allclose(out.body_coverage, [1, 0.75, 1])


def test_a_frame_of_which_nothing_pinned_was_seen_has_no_weight() -> None:
    reference, poses = by_hand(of_b=0)
    valid = np.ones((4, 3), bool)
    valid[1, 0] = False  # a is lost, and b has nothing pinned: a cost of 0 would be one that nobody measured
    out = at_hand(poses, valid, reference, coverage_min=0.5)
    np.testing.assert_allclose(out.frame_cost, [0.5, 0, 0.5, 0.5], rtol=1e-9)
    np.testing.assert_allclose(out.q, np.exp(-0.5), rtol=1e-9)
    assert abs(float(out.q) - np.exp(-0.375)) > 0.05  # the mean over all four frames


@pytest.mark.parametrize(("lost", "status"), [([1], Status.TRACKING), ([], Status.OK), ([3], Status.TRACKING)])
def test_losing_what_costs_gives_no_number(lost: list[int], status: int) -> None:
    reference, poses = by_hand()
    valid = np.ones((4, 3), bool)
    valid[lost, 1] = False
    out = at_hand(poses, valid if lost else None, reference)  # 3 of 4 frames are under 80 %
    assert out.status == status and np.isnan(out.q) == (status != Status.OK)
    assert np.isnan(out.gate_free) == (status != Status.OK)


def test_a_gate_pair_not_seen_at_the_end_gives_no_number() -> None:
    _, poses, alignment, _ = made()
    params, valid = GeometricParams(coverage_min=0.1), np.ones((4, T, len(BODIES)), bool)
    at_end = alignment.bins == L - 1
    valid[at_end & (np.cumsum(at_end, axis=1) > 1), BODIES.index("a")] = False  # seen once in the last bin: enough
    assert (quality(fused.fused_quality, poses, valid, params).status == Status.OK).all()
    valid[at_end, BODIES.index("a")] = False
    assert (quality(fused.fused_quality, poses, valid, params).status == Status.TRACKING).all()


def test_losing_one_body_leaves_the_excess_of_other_pairs_untouched() -> None:
    params, k = GeometricParams(coverage_min=0.0), 3
    reference, poses, alignment, _ = made()
    valid = np.ones((4, T, len(BODIES)), bool)
    whole = quality(fused.fused_quality, poses, valid, params)
    valid[:, 10:15, BODIES.index("tcp")] = False
    part = quality(fused.fused_quality, poses, valid, params)
    gone = np.array(["tcp" in (p.a, p.b) for p in reference.pairs])
    pinned_n = np.array([[axes.pinned.sum() for axes in row] for row in oracle.constraints(reference, params)])
    by_pair = pinned_n[:, np.maximum(alignment.bins[k], 0)]  # [J, T]
    lost = np.isin(np.arange(T), range(10, 15))
    n, seen_n = by_pair.sum(axis=0), by_pair.sum(axis=0) - np.where(lost, by_pair[gone].sum(axis=0), 0)
    excess, of_part = whole.frame_pair_cost[k] * n, part.frame_pair_cost[k] * seen_n
    np.testing.assert_allclose(of_part[~gone], excess[~gone], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(of_part[gone][:, ~lost], excess[gone][:, ~lost], rtol=1e-9, atol=1e-12)
    assert (of_part[gone][:, lost] == 0).all() and excess[gone][:, lost].max() > 0


def test_a_change_of_the_world_frame_changes_nothing_where_bodies_are_lost() -> None:
    _, poses, _, _ = made()
    by = random_poses(1, 3)[0]
    here, away = (
        quality(fused.fused_quality, p, masks()) for p in (poses, multiply(np.broadcast_to(by, poses.shape), poses))
    )
    np.testing.assert_allclose(away.pair_cost, here.pair_cost, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(away.status, here.status)


# ---------------------------------------------------------------------------------------------------------- alignment

SPEC = TaskSpec(
    name="lift",
    bodies=tuple(Body(n, Shape("box", (0.02,) * 3)) for n in ("cube", "table", "tcp")),
    sub_tasks=(SubTask("lift", (Predicate("lifted", "cube", value=0.035),)), SubTask("rest", ())),
)


def lifted(valid: np.ndarray | None = None, **more: Any) -> align.Alignment:
    """A cube that rises by 10 mm a frame of 0.1 s: 35 mm at 0.35 s."""
    poses = np.tile(np.eye(7)[0], (12, 3, 1))
    poses[:, 0, 6] = 0.01 * np.arange(12)
    if valid is not None:
        poses[~valid] = np.nan
    told: dict[str, Any] = {"spec": SPEC, "bodies": ("cube", "table", "tcp"), "bins_n": 2} | more
    run = partial(align.align_episode, gripper_width_m=None, **told)
    arrays = (jnp.asarray(poses, jnp.float32), jnp.arange(12) / 10.0, jnp.ones(12, bool))
    return jax.tree.map(np.asarray, run(*arrays, valid=None if valid is None else jnp.asarray(valid)))


def test_predicates_hold_and_look_only_where_their_bodies_were_seen() -> None:
    valid = np.ones((12, 3), bool)
    valid[2:7, 2] = False  # the gripper, which the predicate does not look at
    assert lifted(valid).ends[0] == lifted().ends[0] == 4
    assert lifted().ended_s[0] == pytest.approx(0.35, abs=1e-4)
    valid[3:6, 0] = False  # the cube, around the crossing: it ends when seen again, at the time where a line crosses
    out = lifted(valid)
    assert out.ends[0] == 6 and out.ended_s[0] == pytest.approx(0.35, abs=1e-4)
    assert (out.bins >= 0).all()  # the frames are there all the same
    valid[:1, 0] = False  # not seen at the start: its height is that of when it was first seen
    assert lifted(valid).ended_s[0] == pytest.approx(0.45, abs=1e-4)
    valid[:, 0] = False
    assert lifted(valid).reached.tolist() == [False, False]


def test_a_joint_that_was_not_recorded_is_named() -> None:
    spec = dataclasses.replace(SPEC, sub_tasks=(SubTask("pull", (Predicate("joint_past", "drawer", value=0.9),)),))
    with pytest.raises(InputError, match="sub-task 'pull' ends by the joint 'drawer', found the joints j1, j2"):
        lifted(spec=spec, joints=jnp.zeros((12, 2)), joint_names=("j1", "j2"))
    spec = dataclasses.replace(
        SPEC, sub_tasks=(SubTask("pull", (Predicate("joint_past", "drawer", value=0.5, offset_m=(0.0, 1.0, 0.0)),)),)
    )
    drawer = jnp.asarray(np.where(np.arange(12) == 3, np.nan, np.arange(12) / 10)[:, None], jnp.float32)
    assert lifted(spec=spec, joints=drawer, joint_names=("drawer",)).ends.tolist() == [5]


def test_poses_of_other_bodies_are_refused() -> None:
    with pytest.raises(InputError, match="3 poses a frame, expected those of cube, table; name every column"):
        lifted(bodies=("cube", "table"))
    reference, poses = by_hand()
    alignment = align.Alignment(*(jnp.asarray(x) for x in ([4], [True], np.zeros(4, np.int32), [0.0], [1.0])))
    with pytest.raises(InputError, match="3 poses a frame for the bodies a, table"):
        told = {"reference": on_device(reference), "params": GeometricParams(), "bodies": ("a", "table")}
        geometric_quality(jnp.asarray(poses), alignment, jnp.asarray(1), **told)


def test_the_demonstrations_of_a_pair_are_the_frames_that_show_it() -> None:
    bins = jnp.asarray([0, 0, 1, 1, 2, 2, 3, 3])
    track = np.tile(np.eye(7)[0], (2, 8, 1))
    track[:, :, 4] = np.arange(8)
    valid = np.ones((2, 8), bool)
    valid[1, [1, 2, 3]] = False
    track[~valid] = np.nan
    run = quick_jit(partial(align.bin_poses, sub_tasks_n=2, bins_n=2))
    poses, seen, converged = run(jnp.asarray(track, jnp.float32), bins, valid=jnp.asarray(valid))
    assert seen.tolist() == [[True] * 4, [True, False, True, True]] and converged.all()
    np.testing.assert_allclose(poses[:, :, 4], [[0.5, 2.5, 4.5, 6.5], [0, 0, 4.5, 6.5]], atol=1e-6)
    assert P * M == L
