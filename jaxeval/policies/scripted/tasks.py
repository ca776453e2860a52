"""Scripts of the seven tasks: waypoints from what is seen first, free space randomised, contacts as planned.

Grasp, insertion and placement do not depend on the generator; how the arm gets from one to the other does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.policies.scripted.arm import down
from jaxeval.policies.scripted.carrying import UP, along, carry, from_above, nearest_closing, pick, raised
from jaxeval.policies.scripted.oracle import Grip, Hold, Move, Scene, Script

HANDLE_M, FINGER_M = 0.04, 0.012
"""How far the handle stands out from the front; half the thickness of the closed fingers along the push."""

Build = Callable[[Scene, np.random.Generator], Script]


def stack_cube(scene: Scene, rng: np.random.Generator) -> Script:
    """Cube A onto cube B, turned as it was grasped."""
    start = scene.pose("cubeA")
    grasp = from_above(scene, "cubeA", start.rotation.as_matrix()[:, :2].T)
    top = 2 * scene.half("cubeB")[2] * UP

    def goal(s: Scene, height_m: float = 0.0) -> RigidTransform:
        return upright(s.pose("cubeA"), s.pose("cubeB").translation + top + height_m * UP)

    return (
        *pick(scene, rng, grasp),
        *carry(rng, lambda s: goal(s, 0.05), body="cubeA"),
        Move("place", lambda s: s.brought("cubeA", goal(s, 0.02)), 0.5, 0.3),
        Move("place", lambda s: s.brought("cubeA", goal(s, 0.001)), 0.3, 0.2),
        Grip("release", 1.0),
        *retreat(rng),
        Hold("settle", 0.5),
        Hold("settle", 1.0, until_success=True),
    )


def place_sphere(scene: Scene, rng: np.random.Generator) -> Script:
    """Ball into the shallow bin."""
    grasp = raised(from_above(scene, "sphere", np.eye(3)[:2]), 0.004)  # the open fingers clear the bin's walls
    radius, bottom = scene.half("sphere")[2], scene.seen.facts["bin_bottom_half_m"]

    def goal(s: Scene, height_m: float = 0.0) -> RigidTransform:
        """Above the bin's middle; the ball turned as the hand was when it grasped, since its own turn says nothing."""
        at = s.pose("bin").translation + (bottom + radius + height_m) * UP
        upright = grasp.rotation * s.commanded.rotation.inv() * s.pose("sphere").rotation
        return RigidTransform.from_components(at, upright)

    return (
        *pick(scene, rng, grasp),
        *carry(rng, lambda s: goal(s, 0.05), body="sphere"),
        Move("place", lambda s: s.brought("sphere", goal(s, 0.02)), 0.5, 0.3),
        Move("place", lambda s: s.brought("sphere", goal(s, 0.001)), 0.3, 0.2),
        Grip("release", 1.0),
        Hold("release", 0.8),
        *retreat(rng),
        Hold("settle", 0.5),
        Hold("settle", 2.0, until_success=True),
    )


def place_can(scene: Scene, rng: np.random.Generator) -> Script:
    """Upright can into the tray, grasped across from above and kept upright."""
    half = scene.half("can")[2]
    now = scene.commanded.rotation.as_matrix()[:, 1]
    grasp = down(now, scene.pose("can").translation + (half - min(0.02, half)) * UP)
    bottom = scene.seen.facts["tray_bottom_half_m"]

    def goal(s: Scene, height_m: float = 0.0) -> RigidTransform:
        return upright(s.pose("can"), s.pose("tray").translation + (bottom + half + height_m) * UP)

    return (
        *pick(scene, rng, grasp),
        *carry(rng, lambda s: goal(s, 0.06), body="can"),
        Move("place", lambda s: s.brought("can", goal(s, 0.02)), 0.5, 0.3),
        Move("place", lambda s: s.brought("can", goal(s, 0.001)), 0.3, 0.2),
        Grip("release", 1.0),
        *retreat(rng),
        Hold("settle", 0.5),
        Hold("settle", 1.0, until_success=True),
    )


def peg_insertion_side(scene: Scene, rng: np.random.Generator) -> Script:
    """Peg into the hole in the side of the box, grasped behind its middle."""
    peg, length = scene.pose("peg"), scene.half("peg")[0]
    behind = peg.apply([-max(0.05, length / 2 + 0.01), 0.0, 0.0])
    grasp = down(nearest_closing(scene, peg.rotation.as_matrix()[:, 1][None]), behind)
    before = -(length + 0.03)

    def seated(s: Scene, x_m: float) -> RigidTransform:
        """The peg with its head ``x_m`` past the middle of the hole."""
        return along(s.pose("box_hole"), x_m) * along(s.pose("peg"), length).inv() * s.pose("peg")

    return (
        *pick(scene, rng, grasp),
        *carry(rng, lambda s: seated(s, before), body="peg", lift_m=(0.06, 0.12), lateral_m=0.02, vias_n=1),
        *[Move("align", lambda s: s.brought("peg", seated(s, -(length + 0.01))), 0.4, 0.4) for _ in range(2)],
        *[Move("insert", lambda s, x=x: s.brought("peg", seated(s, x)), 0.4) for x in (-length / 2, 0.0, 0.004)],
        Hold("settle", 0.5),
        Hold("settle", 1.0, until_success=True),
    )


def plug_charger(scene: Scene, rng: np.random.Generator) -> Script:
    """Charger's two prongs into the receptacle; the hand leans back by 15 degrees to clear it."""
    charger = scene.pose("charger")
    base = along(charger, -scene.seen.facts["charger_base_half_m"])
    flat = down(nearest_closing(scene, charger.rotation.as_matrix()[:, 1][None]), base.translation)
    lean = np.sign(flat.rotation.as_matrix()[:, 0] @ charger.rotation.as_matrix()[:, 0]) * np.radians(15)
    grasp = flat * RigidTransform.from_rotation(Rotation.from_rotvec([0.0, lean, 0.0]))

    def plugged(s: Scene, x_m: float) -> RigidTransform:
        """The charger ``x_m`` short of its seat."""
        return along(s.pose("goal"), -x_m)

    return (
        *pick(scene, rng, grasp),
        *carry(rng, lambda s: plugged(s, 0.05), body="charger", lift_m=(0.08, 0.12), lateral_m=0.02, up_m=0.03),
        *[Move("align", lambda s, x=x: s.brought("charger", plugged(s, x)), 0.3, 0.5) for x in (0.05, 0.022, 0.022)],
        *[Move("insert", lambda s, x=x: s.brought("charger", plugged(s, x)), 0.15, 0.3) for x in (0.01, 0.0, 0.0)],
        Hold("settle", 0.5),
        Hold("settle", 1.0, until_success=True),
    )


def poke_cube(scene: Scene, rng: np.random.Generator) -> Script:
    """Cube pushed onto the goal with the end of the peg, which is held along the way it shall go."""
    peg, length, height = scene.pose("peg"), scene.half("peg")[0], scene.half("peg")[2]
    cube, goal = scene.pose("cube").translation, scene.pose("goal_region").translation
    push = (goal - cube) * [1.0, 1.0, 0.0]
    heading = RigidTransform.from_rotation(Rotation.from_rotvec(np.arctan2(push[1], push[0]) * UP))
    grasp = down(nearest_closing(scene, peg.rotation.as_matrix()[:, 1][None]), peg.apply([-0.085, 0.0, 0.0]))

    def behind(gap_m: float, z_m: float, centre: np.ndarray = cube) -> RigidTransform:
        """The peg in line with the cube, its end ``gap_m`` before the cube's face."""
        line = RigidTransform.from_translation([centre[0], centre[1], z_m]) * heading
        return along(line, -(length + scene.half("cube")[0] + gap_m))

    low = height + 0.001
    return (
        *pick(scene, rng, grasp),
        *carry(rng, lambda s: behind(0.05, height + 0.05), body="peg", lift_m=(0.06, 0.12), lateral_m=0.02),
        Move("align", lambda s: s.brought("peg", behind(0.04, low)), 0.5, 0.3),
        Move("align", lambda s: s.brought("peg", behind(0.01, low)), 0.4),
        *[Move("poke", lambda s, g=g: s.brought("peg", behind(g, low, goal)), speed=0.4) for g in (0.05, 0.015, 0.015)],
        Hold("settle", 0.5),
        Hold("settle", 1.5, until_success=True),
    )


def close_drawer(scene: Scene, rng: np.random.Generator) -> Script:
    """Drawer pushed shut by its handle, with the closed gripper pointing down."""
    closing = nearest_closing(scene, scene.pose("drawer").rotation.as_matrix()[:, 1][None])
    offset = np.array([*rng.uniform(-0.03, 0.03, 2), rng.uniform(0.03, 0.08)])

    def before(s: Scene, gap_m: float, push: float = 0.0) -> RigidTransform:
        """Fingers ``gap_m`` in front of the handle once the drawer is ``push`` of its opening further in."""
        x = HANDLE_M + FINGER_M + gap_m - push * s.seen.facts["drawer_open_m"]
        return down(closing, s.pose("drawer").apply([x, 0.0, 0.0]))

    def pushes(*shares: float) -> Script:
        """Each share is of what is left; a carry waypoint but for the last."""
        return tuple(
            Move("push", lambda s, share=share: before(s, -0.001, share), 0.4, carry="tcp" if share < 1 else "")
            for share in shares
        )

    return (
        Grip("close", 0.0, 0.4),
        Move("reach", lambda s: RigidTransform.from_translation(offset) * before(s, 0.06)),
        Move("reach", lambda s: before(s, 0.05)),
        Move("approach", lambda s: before(s, 0.004), 0.4, 0.2),
        *pushes(0.33, 0.5, 1.0),
        Hold("push", 0.3),
        *retreat(rng),
        Hold("settle", 0.5),
        Hold("settle", 1.0, until_success=True),
    )


def retreat(rng: np.random.Generator) -> Script:
    """Straight up and away from what was let go of."""
    height = rng.uniform(0.08, 0.12)
    return (Move("retreat", lambda s: raised(s.commanded, height), speed=0.7),)


def upright(now: RigidTransform, at: np.ndarray) -> RigidTransform:
    """A body standing on the face it started on, turned about the vertical as it is now, at ``at``."""
    R = now.rotation.as_matrix()
    axis = np.argmax(np.abs(R[2]))
    up = np.sign(R[2, axis]) * UP
    lean = np.cross(R[:, axis], up)  # its length is the angle's sine
    angle_per_sine = 1 / np.sinc(np.arctan2(np.linalg.norm(lean), R[:, axis] @ up) / np.pi)
    return RigidTransform.from_components(at, Rotation.from_rotvec(angle_per_sine * lean) * now.rotation)


TASKS: dict[str, Build] = {
    "stack_cube": stack_cube,
    "place_sphere": place_sphere,
    "peg_insertion_side": peg_insertion_side,
    "plug_charger": plug_charger,
    "poke_cube": poke_cube,
    "close_drawer": close_drawer,
    "place_can": place_can,
}
