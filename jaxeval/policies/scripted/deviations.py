"""Controlled deviations and planted faults: changes of a script that leave everything else of an execution alone.

``tilt`` turns the carried object at every carry waypoint and has it back as planned before placement; the faults are
those that the method's paper shows. Each draws from a generator of its own, so that the clean run of the same key has
the same start, the same grasp and the same via points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import RigidTransform, Rotation

from jaxeval.policies.scripted.arm import row
from jaxeval.policies.scripted.oracle import Aim, Grip, Hold, Move, Scene, Script, Step, Stop
from jaxeval.types import InputError

ROLLED = ("peg_insertion_side", "plug_charger", "poke_cube", "close_drawer")
"""Tasks whose object is rolled about its own long axis (x), as tilting it would run it into the table."""

DOWN = np.array([0.0, 0.0, -0.01])

Change = Callable[[Script, Scene, np.random.Generator], Script]


def tilt(task: str, angle_rad: float) -> Change:
    """Turn by ``angle_rad`` about the hand at each carry waypoint, and back on the way to the planned pose.

    The axis is one random horizontal direction for the whole execution, or the object's own x axis (ROLLED).
    """

    def change(script: Script, _: Scene, rng: np.random.Generator) -> Script:
        heading, sign = rng.uniform(0, 2 * np.pi), rng.choice([-1.0, 1.0])
        horizontal = np.array([np.cos(heading), np.sin(heading), 0.0])

        def turned(T: RigidTransform, about: np.ndarray, angle: float) -> RigidTransform:
            """Turn in the world about the fixed point ``about``."""
            axis = T.rotation.as_matrix()[:, 0] if task in ROLLED else horizontal
            there = RigidTransform.from_translation(about)
            return there * RigidTransform.from_rotation(Rotation.from_rotvec(angle * axis)) * there.inv()

        out: list[Step] = []
        already = False
        for step in script:
            if isinstance(step, Move) and step.carry:
                out.append(replace(step, aim=_tilted(step.aim, step.carry, turned, sign * angle_rad, already)))
                already = True
            else:
                out.append(step)
        return tuple(out)

    return change


def _tilted(
    aim: Aim,
    body: str,
    turned: Callable[[RigidTransform, np.ndarray, float], RigidTransform],
    angle: float,
    already: bool,
) -> Aim:
    """The aim in a world where nothing is tilted, and the tilt on top of it."""

    def tilted(s: Scene) -> RigidTransform:
        held = s.pose(body)
        if already:
            back = turned(held, s.commanded.translation, -angle)
            held = back * held
            seen = replace(s.seen, poses={**s.seen.poses, body: row(held)})
            s = Scene(seen, back * s.commanded)
        goal = aim(s)
        return turned(goal * s.commanded.inv() * held, goal.translation, angle) * goal

    return tilted


# ------------------------------------------------------------------------------------------------- planted faults


def grasp_off_centre(script: Script, _: Scene, rng: np.random.Generator) -> Script:
    """The object is grasped 4 to 7 mm off its middle, along the fingers' width."""
    off = RigidTransform.from_translation([rng.choice([-1.0, 1.0]) * rng.uniform(0.004, 0.007), 0.0, 0.0])
    return _reaimed(script, ("reach", "approach"), lambda aim: lambda s: aim(s) * off)


def place_off_centre(script: Script, scene: Scene, rng: np.random.Generator) -> Script:
    """The object is put down beside where it belongs: 10 to 14 mm, or against the wall of a tray."""
    size = rng.uniform(0.034, 0.042) if "tray" in scene.seen.poses else rng.uniform(0.010, 0.014)
    heading = rng.uniform(0, 2 * np.pi)
    off = RigidTransform.from_translation(size * np.array([np.cos(heading), np.sin(heading), 0.0]))
    last = max(i for i, step in enumerate(script) if step.name == "place")  # transport ends where it should
    return tuple(
        replace(step, aim=_shifted(step.aim, off)) if i == last and isinstance(step, Move) else step
        for i, step in enumerate(script)
    )


def _shifted(aim: Aim, off: RigidTransform) -> Aim:
    return lambda s: off * aim(s)


def beside_hole(script: Script, scene: Scene, rng: np.random.Generator) -> Script:
    """Before it is inserted, the peg is pushed 12 to 16 mm beside the hole against the box, and taken back."""
    side = rng.choice([-1.0, 1.0]) * rng.uniform(0.012, 0.016)
    hole = scene.pose("box_hole")

    def moved(x_m: float, y_m: float) -> Aim:
        there = hole * RigidTransform.from_translation([x_m, y_m, 0.0]) * hole.inv()
        return lambda s: there * s.commanded

    first = next(i for i, step in enumerate(script) if step.name == "insert")
    push = (
        Move("miss", moved(0.0, side), 0.4),
        Move("miss", moved(0.014, 0.0), 0.3, 0.3),
        Move("miss", moved(-0.016, 0.0), 0.4),
        Move("miss", moved(0.002, -side), 0.4, 0.4),
    )
    return (*script[:first], *push, *script[first - 1 : first], *script[first:])


def bin_dragged(script: Script, scene: Scene, rng: np.random.Generator) -> Script:
    """While the fingers open, the hand goes 10 mm down and 25 to 35 mm sideways: a finger drags the (now loose) bin."""
    closing = scene.commanded.rotation.as_matrix()[:, 1] * [1.0, 1.0, 0.0]
    way = rng.choice([-1.0, 1.0]) * rng.uniform(0.025, 0.035) * closing / np.linalg.norm(closing)
    first = next(i for i, step in enumerate(script) if step.name == "release")
    drag = (
        Grip("drag", 0.85, 0.4),
        *[Move("drag", _shifted(lambda s: s.commanded, RigidTransform.from_translation(t)), 0.3) for t in (DOWN, way)],
    )
    return (*script[:first], *drag, *script[first:])


def stall(script: Script, _: Scene, rng: np.random.Generator) -> Script:
    """The arm stops half way and stands still for 4 s."""
    moves = [i for i, step in enumerate(script) if isinstance(step, Move) and step.carry]
    last = int(rng.choice(moves))
    return (*script[: last + 1], Hold("stalled", 4.0), Stop("stalled"))


def _reaimed(script: Script, names: tuple[str, ...], change: Callable[[Aim], Aim]) -> Script:
    return tuple(
        replace(step, aim=change(step.aim)) if isinstance(step, Move) and step.name in names else step
        for step in script
    )


@dataclass(frozen=True)
class Fault:
    """A planted fault: which tasks it makes sense in, and which bodies must be loose for it."""

    change: Change
    tasks: tuple[str, ...]
    loose: tuple[str, ...] = ()


ALL = ("stack_cube", "place_sphere", "peg_insertion_side", "plug_charger", "poke_cube", "close_drawer", "place_can")
FAULTS: dict[str, Fault] = {
    "grasp_off_centre": Fault(
        # not in peg insertion: its demonstrations hold the peg anywhere along its length
        grasp_off_centre,
        ("stack_cube", "plug_charger", "poke_cube", "place_can"),
    ),
    "place_off_centre": Fault(place_off_centre, ("stack_cube", "place_can")),
    "beside_hole": Fault(beside_hole, ("peg_insertion_side",)),
    "bin_dragged": Fault(bin_dragged, ("place_sphere",), loose=("bin",)),
    "stall": Fault(stall, ALL),
}


def fault(name: str, task: str) -> Fault:
    """A planted fault by name; InputError says which there are, and for which tasks."""
    if name not in FAULTS:
        raise InputError(f"fault '{name}': expected one of {', '.join(FAULTS)}; choose one of these")
    if task not in FAULTS[name].tasks:
        raise InputError(f"fault '{name}': not for task '{task}'; expected one of {', '.join(FAULTS[name].tasks)}")
    return FAULTS[name]
