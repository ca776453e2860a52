"""Poses: what holds for every rotation, frame, shape and symmetry, in float64 unless the test says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from jaxeval import se3
from jaxeval.linalg import safe_norm
from jaxeval.types import Shape, Symmetry
from tests.executions import axis_turn, multiply, quick_jit, random_poses

FEW = settings(max_examples=8, deadline=None)
SEEDS = st.integers(0, 2**31)
N = 64  # poses in a batch; one shape, so that everything compiles once

LONG_BOX = Shape("box", (0.05, 0.02, 0.01))
CYLINDER = Shape("cylinder", (0.03, 0.03, 0.06))
Z = (0.0, 0.0, 1.0)
SQUARE = Symmetry("discrete", Z, tuple(map(tuple, axis_turn(Z, np.arange(4) * np.pi / 2).tolist())))
SPIN, ALL, NONE = Symmetry("spin", Z), Symmetry("all"), Symmetry()
SPIN_X = Symmetry("spin", (2.0, 0.0, 0.0))  # an axis need not have unit length


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@cache
def batched(f: object) -> object:
    return quick_jit(jax.vmap(f))


def scipy_of(poses: np.ndarray) -> Rotation:
    return Rotation.from_quat(np.asarray(poses)[..., :4], scalar_first=True)


# -------------------------------------------------------------------------------------------------------- group


@FEW
@given(SEEDS)
def test_group_operations_agree_with_numpy(seed: int) -> None:
    a, b, c = random_poses(N, seed), random_poses(N, seed + 1), random_poses(N, seed + 2)
    np.testing.assert_allclose(batched(se3.compose)(a, b), multiply(a, b), atol=1e-12)
    ab_c = batched(se3.compose)(multiply(a, b), c)
    np.testing.assert_allclose(ab_c, batched(se3.compose)(a, multiply(b, c)), atol=1e-12)
    identity = multiply(np.asarray(batched(se3.inverse)(a)), a)
    np.testing.assert_allclose(np.abs(identity), np.tile(se3.IDENTITY, (N, 1)), atol=1e-12)


@FEW
@given(SEEDS)
def test_relative_pose_does_not_see_the_world_frame(seed: int) -> None:
    a, b, world = random_poses(N, seed), random_poses(N, seed + 1), random_poses(N, seed + 2, metres=100.0)
    relative = batched(se3.relative_pose)
    np.testing.assert_allclose(relative(multiply(world, a), multiply(world, b)), relative(a, b), atol=1e-11)
    np.testing.assert_allclose(multiply(b, np.asarray(relative(a, b))), a, atol=1e-12)


@FEW
@given(SEEDS, st.floats(-9, 0.49))
def test_exp_and_log_undo_each_other_at_every_size(seed: int, power: float) -> None:
    """Also for small turns far from the origin, where a rough V in exp is metres x radians off."""
    rng = np.random.default_rng(seed)
    xi = rng.normal(size=(N, 6))
    xi[:, 3:] *= 10**power / np.linalg.norm(xi[:, 3:], axis=1, keepdims=True)
    back = batched(se3.log)(batched(se3.exp)(xi))
    np.testing.assert_allclose(back, xi, atol=1e-12, rtol=1e-11)
    phi, rho = xi[:, 3:], xi[:, :3]
    top = [
        [[0, -p[2], p[1], r[0]], [p[2], 0, -p[0], r[1]], [-p[1], p[0], 0, r[2]]] for p, r in zip(phi, rho, strict=True)
    ]
    for k in range(0, N, 16):
        T = expm(np.vstack([top[k], np.zeros(4)]))
        pose = np.asarray(batched(se3.exp)(xi))[k]
        np.testing.assert_allclose(pose[4:], T[:3, 3], atol=1e-12)
        np.testing.assert_allclose(scipy_of(pose).as_matrix(), T[:3, :3], atol=1e-12)


def test_exp_of_a_small_turn_keeps_a_long_arm_in_float32() -> None:
    """jaxlie's exp is 1.5 mm off here: it takes V = R below 3 mrad."""
    xi = np.array([[1.0, 0, 0, 0, 0, 3e-3]], np.float32)
    pose = quick_jit(jax.vmap(se3.exp))(xi)
    assert pose.dtype == jnp.float32
    np.testing.assert_allclose(pose[0, 4:], [1.0, 1.5e-3, 0], atol=3e-6)


def test_log_decoupled_keeps_the_translation() -> None:
    poses = random_poses(N, 3)
    out = np.asarray(batched(se3.log_decoupled)(poses))
    np.testing.assert_array_equal(out[:, :3], poses[:, 4:])
    np.testing.assert_allclose(out[:, 3:], scipy_of(poses).as_rotvec(), atol=1e-12)
    np.testing.assert_allclose(batched(se3.log)(poses)[:, 3:], out[:, 3:], atol=1e-12)
    negated = poses * np.array([-1.0] * 4 + [1.0] * 3)
    np.testing.assert_allclose(batched(se3.log)(negated), batched(se3.log)(poses), atol=1e-14)


EDGES = np.array(
    [
        *([1.0, 0, 0, 0], [-1.0, 0, 0, 0]),  # no turn
        *([0.0, 1, 0, 0], [0.0, 0, 0.6, 0.8], [0.0, -1, 0, 0]),  # half turns
        *(axis_turn([1, 2, 3], a) for a in (1e-12, 1e-7, 1e-4, 3e-2, 0.0316, 0.0317, np.pi - 1e-7, np.pi - 1e-12)),
    ]
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", [se3.log, se3.log_decoupled, safe_norm])
def test_jacobians_are_finite_where_formulas_are_not(function: object, dtype: type) -> None:
    poses = np.concatenate([np.tile(EDGES, (2, 1)), np.repeat([[0, 0, 0], [0.3, -0.2, 0.1]], len(EDGES), 0)], 1)
    values, slopes = batched(lambda x: (function(x), jax.jacobian(function)(x)))(jnp.asarray(poses, dtype))
    assert np.isfinite(values).all() and np.isfinite(slopes).all()
    assert np.abs(np.asarray(slopes)).max() < 10
    assert np.isfinite(jax.grad(safe_norm)(jnp.zeros(3, dtype))).all()


def test_jacobian_of_log_is_the_finite_difference() -> None:
    poses, h = random_poses(N, 5), 1e-6
    slopes = np.asarray(batched(jax.jacobian(se3.log))(poses))
    for axis in range(7):
        step = h * np.eye(7)[axis]
        difference = (batched(se3.log)(poses + step) - batched(se3.log)(poses - step)) / (2 * h)
        kept = np.abs(poses[:, 0]) > 1e-3
        np.testing.assert_allclose(slopes[kept, :, axis], np.asarray(difference)[kept], atol=2e-7)


# --------------------------------------------------------------------------------------------------- the metres


def test_scale_of_shapes_by_hand() -> None:
    def scale(shape: Shape) -> np.ndarray:
        return se3.scale_matrix(se3.surface_second_moment(shape))

    # cube of edge e = 40 mm: Lambda^2 = (e^2/4 * 1/3 + e^2/12 * 2/3) I = 5/36 e^2 I, so S = sqrt(10/36) e
    np.testing.assert_allclose(scale(Shape("box", (0.02,) * 3)), np.eye(3) * 0.0210818511, atol=1e-9)
    np.testing.assert_allclose(scale(Shape("sphere", (0.03,) * 3)), np.eye(3) * np.sqrt(2 / 3) * 0.03, atol=1e-12)
    # box 2 x 4 x 6 (half 1, 2, 3): faces yz 24, zx 12, xy 8 (each twice), together 88.
    # <x^2> = (48 * 1 + 24 / 3 + 16 / 3) / 88 = 0.69697; <y^2> = (24 * 4 + (48 + 16) * 4 / 3) / 88 = 2.06061;
    # <z^2> = (16 * 9 + (48 + 24) * 9 / 3) / 88 = 4.09091
    moments = [0.69696970, 2.06060606, 4.09090909]
    box = Shape("box", (1.0, 2.0, 3.0))
    np.testing.assert_allclose(se3.surface_second_moment(box), np.diag(moments), atol=1e-8)
    np.testing.assert_allclose(scale(box), np.diag(np.sqrt([6.15151515, 4.78787879, 2.75757576])), atol=1e-8)
    np.testing.assert_allclose(
        se3.surface_second_moment(box, size_m=np.array([0.02] * 3)), np.eye(3) * 5 / 36 * 0.04**2, atol=1e-12
    )
    # cylinder R = 1, half length 1: wall 4 pi, caps 2 pi: <x^2> = (4/2 + 2/4) / 6, <z^2> = (4/3 + 2) / 6
    can = Shape("cylinder", (1.0, 1.0, 1.0))
    np.testing.assert_allclose(se3.surface_second_moment(can), np.diag([2.5 / 6, 2.5 / 6, 10 / 18]), atol=1e-12)
    with pytest.raises(ValueError, match="'cone' is not one of box, cylinder, sphere, mesh"):
        scale(Shape("cone"))


def test_cylinder_scale_is_the_rms_displacement_of_its_surface() -> None:
    """Monte Carlo: points on the surface, turned by a small angle."""
    rng, n, (radius, _, half) = np.random.default_rng(0), 400_000, CYLINDER.size_m
    on_wall = rng.random(n) < 2 * half / (2 * half + radius)
    angle, r = rng.uniform(0, 2 * np.pi, n), np.where(on_wall, radius, radius * np.sqrt(rng.random(n)))
    z = np.where(on_wall, rng.uniform(-half, half, n), half * rng.choice([-1, 1], n))
    points = np.stack([r * np.cos(angle), r * np.sin(angle), z], axis=1)
    S = se3.scale_matrix(se3.surface_second_moment(CYLINDER))
    for phi in np.eye(3) * 1e-3:
        rms = np.sqrt((np.cross(phi, points) ** 2).sum(axis=1).mean())
        assert np.linalg.norm(S @ phi) == pytest.approx(rms, rel=3e-3)


def box_mesh(half: np.ndarray, origin: np.ndarray, turn: np.ndarray) -> Shape:
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * half @ turn.T + origin
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = tuple(f for a, b, c, d in quads for f in ((a, b, c), (a, c, d)))
    return Shape("mesh", vertices_m=tuple(map(tuple, corners.tolist())), faces=faces)


def test_a_mesh_of_a_box_is_the_box_wherever_its_origin_lies() -> None:
    half = np.array([0.05, 0.02, 0.01])
    want = se3.surface_second_moment(Shape("box", tuple(half)))
    np.testing.assert_allclose(
        se3.surface_second_moment(box_mesh(half, np.zeros(3), np.eye(3))), want, rtol=1e-12, atol=1e-18
    )
    np.testing.assert_allclose(
        se3.surface_second_moment(box_mesh(half, np.array([3.0, -2, 1]), np.eye(3))), want, atol=1e-13
    )
    R = Rotation.from_rotvec([0.3, -1.0, 0.4]).as_matrix()
    np.testing.assert_allclose(se3.surface_second_moment(box_mesh(half, np.ones(3), R)), R @ want @ R.T, atol=1e-13)


# --------------------------------------------------------------------------------------------------- symmetries


def geometry(a: Symmetry = NONE, b: Symmetry = NONE, shape: Shape = LONG_BOX) -> se3.PairGeometry:
    return se3.PairGeometry(se3.scale_matrix(se3.surface_second_moment(shape)), a, b)


@cache
def deviate(a: Symmetry, b: Symmetry, shape: Shape = LONG_BOX, kind: str = "se3_log", project: bool = False) -> object:
    g = geometry(a, b, shape)

    def one(nominal: jax.Array, T: jax.Array) -> jax.Array:
        free = se3.free_projector(nominal, g) if project else None
        return se3.deviation(nominal, T, g._replace(scale=jnp.asarray(g.scale)), free=free, kind=kind)

    return quick_jit(jax.vmap(one))


def group_elements(s: Symmetry, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if s.kind == "spin":
        q = axis_turn(s.axis, rng.uniform(-np.pi, np.pi, n))
    elif s.kind == "discrete":
        q = np.asarray(s.copies_wxyz)[rng.integers(0, len(s.copies_wxyz), n)]
    elif s.kind == "all":
        q = random_poses(n, seed)[:, :4]
    else:
        q = np.tile([1.0, 0, 0, 0], (n, 1))
    return np.concatenate([q, np.zeros((n, 3))], axis=1)


def near(nominal: np.ndarray, seed: int, *, metres: float = 0.02, radians: float = 0.2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    offsets = rng.normal(size=(len(nominal), 6)) * np.repeat([metres, radians], 3) / np.sqrt(3)
    return multiply(nominal, np.asarray(batched(se3.exp)(offsets)))


BODIES = [
    *((SPIN, NONE, CYLINDER), (SQUARE, NONE, LONG_BOX), (ALL, NONE, LONG_BOX)),
    *((NONE, SPIN, LONG_BOX), (NONE, SQUARE, LONG_BOX), (NONE, ALL, LONG_BOX)),
    *((SPIN_X, SPIN, LONG_BOX), (SQUARE, SPIN, LONG_BOX), (SQUARE, SQUARE, LONG_BOX), (ALL, SPIN, LONG_BOX)),
]
NAMES = [f"{a.kind}-{b.kind}" for a, b, _ in BODIES]


@pytest.mark.parametrize(("a", "b", "shape"), BODIES, ids=NAMES)
def test_a_symmetric_turn_of_either_body_changes_no_deviation(a: Symmetry, b: Symmetry, shape: Shape) -> None:
    nominal = random_poses(N, 11)
    T = near(nominal, 12)
    turned = multiply(multiply(group_elements(b, N, 13), T), group_elements(a, N, 14))
    f = deviate(a, b, shape, project=True)
    np.testing.assert_allclose(f(nominal, turned), f(nominal, T), atol=1e-10)
    assert np.abs(np.asarray(deviate(NONE, NONE, shape)(nominal, turned) - f(nominal, T))).max() > 0.01
    copies = multiply(multiply(group_elements(b, N, 15), nominal), group_elements(a, N, 16))
    np.testing.assert_allclose(f(nominal, copies), np.zeros((N, 6)), atol=1e-10)


def test_two_spinning_bodies_on_one_axis_are_compared_by_the_direction_of_their_axes() -> None:
    """A can lying on the centre of a turntable: its position says nothing about the turntable's turn."""
    lying = np.array([[*axis_turn([0, 1, 0], np.pi / 2), 0.0, 0, 0.03]] * N)
    turned = multiply(group_elements(SPIN, N, 1), multiply(lying, group_elements(SPIN, N, 2)))
    np.testing.assert_allclose(deviate(SPIN, SPIN, CYLINDER)(lying, turned), np.zeros((N, 6)), atol=1e-9)
    tilted = multiply(turned, np.array([[*axis_turn([1, 0, 0], 0.1), 0, 0, 0]] * N))
    size = np.linalg.norm(deviate(SPIN, SPIN, CYLINDER)(lying, tilted), axis=1)
    assert size.max() <= 0.1 * float(geometry(shape=CYLINDER).scale[0, 0]) + 1e-9 and size.max() > 1e-3


@pytest.mark.parametrize(("a", "b", "shape"), BODIES[:6], ids=NAMES[:6])
def test_a_symmetry_never_makes_a_deviation_longer(a: Symmetry, b: Symmetry, shape: Shape) -> None:
    nominal = random_poses(N, 21)
    for spread in (0.05, 3.0):
        T = near(nominal, 22, radians=spread)
        plain = np.linalg.norm(deviate(NONE, NONE, shape, "decoupled")(nominal, T), axis=1)
        with_symmetry = np.linalg.norm(deviate(a, b, shape, "decoupled", True)(nominal, T), axis=1)
        assert (with_symmetry <= plain * (1 + 0.02 * spread) + 1e-9).all()


@pytest.mark.parametrize("kind", ["se3_log", "decoupled"])
def test_a_discrete_symmetry_changes_nothing_near_the_nominal(kind: str) -> None:
    nominal = random_poses(N, 31)
    T = near(nominal, 32, radians=0.1)
    want = deviate(NONE, NONE, LONG_BOX, kind)(nominal, T)
    np.testing.assert_allclose(deviate(SQUARE, SQUARE, LONG_BOX, kind)(nominal, T), want, atol=1e-12)


def test_what_is_free_is_the_symmetric_turn_and_nothing_else() -> None:
    nominal = random_poses(N, 41)

    def free(a: Symmetry, b: Symmetry) -> np.ndarray:
        return np.asarray(quick_jit(jax.vmap(lambda T: se3.free_projector(T, geometry(a, b))))(nominal))

    S = geometry().scale
    for a, b, rank in (
        (NONE, NONE, 0),
        (SQUARE, SQUARE, 0),
        (SPIN, NONE, 1),
        (ALL, NONE, 3),
        (NONE, SPIN, 1),
        (NONE, ALL, 3),
    ):
        P = free(a, b)
        np.testing.assert_allclose(P @ P, P, atol=1e-9)
        np.testing.assert_allclose(P, np.swapaxes(P, 1, 2), atol=1e-9)
        np.testing.assert_allclose(np.trace(P, axis1=1, axis2=2), rank, atol=1e-6)
    # of a: turns about its own axis. Of b: the motion of a, carried round by b, from a difference quotient
    axis = np.concatenate([np.zeros(3), S @ Z])
    np.testing.assert_allclose(free(SPIN, NONE) @ axis, np.tile(axis, (N, 1)), atol=1e-12)
    step = 1e-5
    carried = multiply(np.array([*axis_turn(Z, step), 0, 0, 0])[None], nominal)
    tangent = np.asarray(deviate(NONE, NONE)(nominal, carried)) / step
    np.testing.assert_allclose(np.einsum("nij,nj->ni", free(NONE, SPIN), tangent), tangent, atol=1e-5)
    # a sphere's three rotations are free and its three translations are not
    np.testing.assert_allclose(free(ALL, NONE), np.tile(np.diag([0.0, 0, 0, 1, 1, 1]), (N, 1, 1)), atol=1e-12)
    # two bodies round about one line: the same turn twice is one free direction
    coaxial = np.array([[1.0, 0, 0, 0, 0, 0, 0.1]])
    P = quick_jit(jax.vmap(lambda T: se3.free_projector(T, geometry(SPIN, SPIN))))(coaxial)
    assert float(jnp.trace(P[0])) == pytest.approx(1)


@pytest.mark.parametrize(
    ("a", "b", "shape", "dtype"),
    [*((*row, np.float32) for row in [(NONE, NONE, LONG_BOX), *BODIES]), (NONE, NONE, LONG_BOX, np.float64)],
    ids=["none-none", *NAMES, "none-none-float64"],
)
def test_deviation_gradients_are_finite_at_the_nominal_and_at_pi(
    a: Symmetry, b: Symmetry, shape: Shape, dtype: type
) -> None:
    g = geometry(a, b, shape)
    g = g._replace(scale=jnp.asarray(g.scale, dtype))
    nominal = jnp.asarray([*axis_turn([1, 1, 0], 0.7), 0.1, -0.2, 0.3], dtype)
    errors = np.concatenate([EDGES, np.zeros((len(EDGES), 3))], axis=1)
    T = jnp.asarray(multiply(np.asarray(nominal, np.float64)[None], errors), dtype).at[0].set(nominal)
    along = jnp.asarray([0.3, -1.0, 0.5, 0.7, 0.2, -0.9], dtype)  # NaN in any component would show
    slope = quick_jit(jax.vmap(jax.grad(lambda T: along @ se3.deviation(nominal, T, g))))(T)
    assert slope.dtype == dtype and np.isfinite(slope).all()
    free = a.kind in ("spin", "all") and b.kind in ("spin", "all")
    assert free or np.abs(np.asarray(slope)).max(axis=1).min() > 1e-3  # and is not zero either


def test_deviation_is_metres_of_the_surface_and_blind_to_the_frame_of_b() -> None:
    nominal, b = random_poses(N, 51), random_poses(N, 52)
    T = near(nominal, 53)
    f = deviate(NONE, NONE)
    np.testing.assert_allclose(f(multiply(b, nominal), multiply(b, T)), f(nominal, T), atol=1e-12)
    small = np.tile([0, 0, 0, 1e-3, 0, 0.0], (N, 1))
    d = f(nominal, multiply(nominal, np.asarray(batched(se3.exp)(small))))
    np.testing.assert_allclose(np.linalg.norm(d, axis=1), 1e-3 * float(geometry().scale[0, 0]), rtol=1e-6)
    # decoupled: the offset in the nominal's frame, straight, whatever the turn
    turned = multiply(nominal, np.tile([0.0, 0, 1, 0, 0.01, 0, 0], (N, 1)))
    straight = deviate(NONE, NONE, LONG_BOX, "decoupled")(nominal, turned)[:, :3]
    np.testing.assert_allclose(straight, np.tile([0.01, 0, 0], (N, 1)), atol=1e-12)
    bent = np.linalg.norm(f(nominal, turned)[:, :3], axis=1)  # V^-1 stretches it by pi/2 at a half turn
    np.testing.assert_allclose(bent, 0.01 * np.pi / 2, rtol=1e-6)


# -------------------------------------------------------------------------------------------------------- means


mean_of = quick_jit(lambda poses, weights: se3.lie_mean(poses, weights))


@FEW
@example(29, 0.625)  # one rotation is 100 degrees from the mean
@given(SEEDS, st.floats(0.01, 0.7))
def test_mean_is_where_the_weighted_logs_add_up_to_nothing(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    poses = near(np.tile(random_poses(1, seed), (N, 1)), seed + 1, metres=0.1, radians=spread)
    weights = rng.random(N) * (rng.random(N) < 0.7)
    m = mean_of(poses, weights)
    if float(m.spread_rad) >= np.pi / 2:  # the mean may then be one of several, and says so
        assert not m.unique
        return
    assert m.converged and m.unique
    inverse = (scipy_of(m.pose).inv() * scipy_of(poses)).as_rotvec()
    np.testing.assert_allclose(weights @ inverse / weights.sum(), np.zeros(3), atol=1e-9)
    order = rng.permutation(N)
    np.testing.assert_allclose(mean_of(poses[order], weights[order]).pose, m.pose, atol=1e-9)
    world = random_poses(1, seed + 2)
    moved = mean_of(multiply(np.tile(world, (N, 1)), poses), weights)
    want = multiply(world, np.asarray(m.pose)[None])[0]
    np.testing.assert_allclose(np.abs(want[:4] @ np.asarray(moved.pose[:4])), 1, atol=1e-12)
    np.testing.assert_allclose(moved.pose[4:], want[4:], atol=1e-9)


def test_mean_of_nearby_rotations_is_scipys() -> None:
    """scipy's mean is the chordal one: equal to second order in the spread, and exactly so for two rotations."""
    poses = near(np.tile(random_poses(1, 7), (N, 1)), 8, radians=0.03)
    poses[:, 4:] = 0
    want = scipy_of(poses).mean().as_quat(scalar_first=True)
    assert abs(want @ np.asarray(mean_of(poses, np.ones(N)).pose[:4])) == pytest.approx(1, abs=1e-9)
    two, weights = random_poses(N, 9), np.eye(N)[0] + np.eye(N)[1]
    two[:, 4:], two[1, :4] = 0, (scipy_of(two[0]) * Rotation.from_rotvec([0.9, -1, 0.5])).as_quat(scalar_first=True)
    half = scipy_of(two[:2]).mean().as_quat(scalar_first=True)
    assert abs(half @ np.asarray(mean_of(two, weights).pose[:4])) == pytest.approx(1, abs=1e-12)


def test_segment_means_are_the_means_of_the_segments() -> None:
    segment = np.random.default_rng(0).integers(-1, 6, N)
    segment[segment == 4] = 0  # nobody in segment 4
    centres = random_poses(7, 61)
    poses = near(centres[segment], 62, radians=0.3)
    means, seen, converged = quick_jit(partial(se3.segment_lie_mean, segments_n=6))(poses, jnp.asarray(segment))
    assert seen.tolist() == [True, True, True, True, False, True] and converged.all()
    for l in (0, 1, 2, 3, 5):
        one = mean_of(poses, (segment == l).astype(float))
        np.testing.assert_allclose(np.abs(np.sum(means[l, :4] * one.pose[:4])), 1, atol=1e-10)
        np.testing.assert_allclose(means[l, 4:], one.pose[4:], atol=1e-8)
    np.testing.assert_array_equal(means[4], se3.IDENTITY)


@pytest.mark.parametrize(
    ("a", "shape"), [(SPIN, CYLINDER), (SQUARE, LONG_BOX), (ALL, LONG_BOX)], ids=["spin", "discrete", "all"]
)
def test_mean_does_not_see_a_symmetric_turn_of_one_demonstration(a: Symmetry, shape: Shape) -> None:
    g = geometry(a, NONE, shape)
    poses = near(np.tile(random_poses(1, 71), (N, 1)), 72, radians=0.1)
    turned = multiply(poses, group_elements(a, N, 73))
    both = quick_jit(lambda p: se3.lie_mean(p, jnp.ones(N), geometry=g._replace(scale=jnp.asarray(g.scale))))
    one, other = both(poses), both(turned)
    assert one.converged and other.converged and one.unique and other.unique
    np.testing.assert_allclose(one.pose[4:], other.pose[4:], atol=1e-6)
    d = deviate(a, NONE, shape, project=True)(np.asarray(one.pose)[None], np.asarray(other.pose)[None])
    np.testing.assert_allclose(d, np.zeros((1, 6)), atol=1e-6)


@FEW
@given(SEEDS, st.floats(0, 1))
def test_interpolation_follows_the_geodesic_at_even_speed(seed: int, f: float) -> None:
    start, end = random_poses(N, seed), random_poses(N, seed + 1)
    walk = quick_jit(jax.vmap(se3.interpolate, in_axes=(0, 0, None)))
    at = np.asarray(walk(start, end, f))
    whole = (scipy_of(start).inv() * scipy_of(end)).magnitude()
    np.testing.assert_allclose((scipy_of(start).inv() * scipy_of(at)).magnitude(), f * whole, atol=1e-7)
    np.testing.assert_allclose((scipy_of(at).inv() * scipy_of(end)).magnitude(), (1 - f) * whole, atol=1e-7)
    np.testing.assert_allclose(np.asarray(walk(start, end, 1.0))[:, 4:], end[:, 4:], atol=1e-9)
    np.testing.assert_allclose(walk(start, end, 0.0), start, atol=1e-12)
