"""The part ``stages`` of a task spec, read and written; `jaxeval.io.spec` describes its form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.metrics.stages import StageGeometry
from jaxeval.types import StageSpec, TaskSpec

if TYPE_CHECKING:
    from scipy.spatial.transform import Rotation

Fail = Callable[[str, Any, str], InputError]
"""(key, what was found, what was expected) -> the error to raise."""
NEEDED = ("object", "phases", "entrance", "half_section_m", "depth_m", "goal", "pre_insert_m", "lift_z_m")
OPTIONAL = ("hand", "point_m", "insert_phase", "friction")


def stages_of(raw: Any, *, gripper: str, fail: Fail) -> StageSpec:
    """``stages`` of a task spec from plain data; ``gripper`` is the hand if no other is named."""
    table(raw, "stages", NEEDED, OPTIONAL, fail)
    phases = raw["phases"]
    if not isinstance(phases, (list, tuple, Mapping)) or not all(isinstance(name, str) for name in phases):
        raise fail("stages.phases", phases, "names in order, [APPROACH, ...], or a table with them as keys")
    friction = raw.get("friction")
    return StageSpec(
        object=str(raw["object"]),
        hand=str(raw.get("hand", gripper)),
        phases=tuple(phases),
        T_world_entrance=(
            *wxyz_of(raw["entrance"], "stages.entrance", fail, also=("position_m",)),
            *numbers(raw["entrance"].get("position_m"), "stages.entrance.position_m", fail),
        ),
        half_section_m=numbers(raw["half_section_m"], "stages.half_section_m", fail, n=2),
        depth_m=number(raw["depth_m"], "stages.depth_m", fail),
        goal_wxyz=wxyz_of(raw["goal"], "stages.goal", fail),
        pre_insert_m=numbers(raw["pre_insert_m"], "stages.pre_insert_m", fail),
        lift_z_m=number(raw["lift_z_m"], "stages.lift_z_m", fail),
        point_m=numbers(raw.get("point_m", (0.0, 0.0, 0.0)), "stages.point_m", fail),
        insert_phase=str(raw.get("insert_phase", "INSERT")),
        friction=None if friction is None else number(friction, "stages.friction", fail, least=0.0),
    )


def check_stages(spec: TaskSpec, fail: Fail) -> None:
    """Raise what ``fail`` makes of a spec whose stages name no body of it, or are no stages."""
    stages, bodies = spec.stages, [b.name for b in spec.bodies]
    if stages is None:
        return
    for key, name in (("object", stages.object), ("hand", stages.hand)):
        if name not in bodies:
            raise fail(f"stages.{key}", name, f"one of the bodies ({', '.join(bodies)})")
    try:
        StageGeometry.of(spec).check()
    except ValueError as error:
        raise fail("stages", str(error), "what jaxeval.io.spec describes") from error


def stages_to_dict(stages: StageSpec) -> dict[str, Any]:
    """Plain data that `stages_of` reads back equal."""
    s = stages
    out: dict[str, Any] = {
        "object": s.object,
        "hand": s.hand,
        "phases": list(s.phases),
        "insert_phase": s.insert_phase,
        "entrance": {"position_m": list(s.T_world_entrance[4:]), "wxyz": list(s.T_world_entrance[:4])},
        "half_section_m": list(s.half_section_m),
        "depth_m": s.depth_m,
        "goal": {"wxyz": list(s.goal_wxyz)},
        "pre_insert_m": list(s.pre_insert_m),
        "lift_z_m": s.lift_z_m,
        "point_m": list(s.point_m),
    }
    return out if s.friction is None else out | {"friction": s.friction}


# ------------------------------------------------------------------------------------------------- values of a table


def table(raw: Any, key: str, needed: tuple[str, ...], optional: tuple[str, ...], fail: Fail) -> None:
    """Raise unless it is a table with all the needed keys and no unknown one."""
    if not isinstance(raw, Mapping):
        raise fail(key, raw, f"a table with {', '.join(needed)}")
    if absent := [k for k in needed if k not in raw]:
        raise fail(f"{key}.{absent[0]}", "missing", "a value")
    if unknown := [k for k in raw if k not in needed + optional]:
        raise fail(f"{key}.{unknown[0]}", raw[unknown[0]], f"only the keys {', '.join(needed + optional)}")


def number(raw: Any, key: str, fail: Fail, *, least: float = -np.inf) -> float:
    """A finite number, not less than the least."""
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not np.isfinite(raw) or raw < least:
        raise fail(key, raw, "a number" if least == -np.inf else f"a number from {least:g} on")
    return float(raw)


def numbers(raw: Any, key: str, fail: Fail, *, n: int = 3) -> tuple[float, ...]:
    """``n`` finite numbers."""
    if not isinstance(raw, (list, tuple)) or len(raw) != n:
        raise fail(key, raw, f"{n} numbers")
    return tuple(number(x, key, fail) for x in raw)


def wxyz_of(raw: Any, key: str, fail: Fail, *, also: tuple[str, ...] = ()) -> tuple[float, ...]:
    """The orientation of a table ``{wxyz: [w, x, y, z]}`` or ``{turns_deg: [[z, 45], [y, -90]]}``, as it was given."""
    table(raw, key, also, ("wxyz", "turns_deg"), fail)
    if "wxyz" in raw and "turns_deg" not in raw:
        return numbers(raw["wxyz"], f"{key}.wxyz", fail, n=4)
    x, y, z, w = rotation_of(raw, key, fail, also=also).as_quat().tolist()
    return w, x, y, z


def rotation_of(raw: Any, key: str, fail: Fail, *, also: tuple[str, ...] = ()) -> Rotation:
    """The rotation of such a table. Turns are about the body's own axes, one after the other."""
    from scipy.spatial.transform import Rotation

    table(raw, key, also, ("wxyz", "turns_deg"), fail)
    if ("wxyz" in raw) == ("turns_deg" in raw):
        raise fail(key, dict(raw), "one of wxyz and turns_deg")
    if "wxyz" in raw:
        return Rotation.from_quat(numbers(raw["wxyz"], f"{key}.wxyz", fail, n=4), scalar_first=True)
    turns, key = raw["turns_deg"], f"{key}.turns_deg"
    if not isinstance(turns, (list, tuple)) or not turns:
        raise fail(key, turns, "turns one after the other, such as [[z, 45], [y, -90]]")
    out: Rotation | None = None
    for turn in turns:
        if not isinstance(turn, (list, tuple)) or len(turn) != 2 or turn[0] not in ("x", "y", "z"):
            raise fail(key, turn, "an axis (x, y or z) and degrees, such as [z, 45]")
        about = Rotation.from_euler(turn[0], np.deg2rad(number(turn[1], key, fail)))
        out = about if out is None else out * about
    assert out is not None
    return out
