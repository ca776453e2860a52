"""The simulators by name. A task's spec lists those that it runs in, the first being its default."""

from __future__ import annotations

from importlib import import_module
from typing import Any

SIMULATORS = {
    "mujoco": ("jaxeval.sim.mujoco.backend:MuJoCo", {}),
    "mjx": ("jaxeval.sim.mujoco.backend:MuJoCo", {"name": "mjx"}),
    "maniskill": ("jaxeval.sim.maniskill.backend:ManiSkill", {}),
}
"""Name -> class that takes a `engine.Setting`, and what it is made with besides."""


def simulator_class(name: str) -> tuple[type[Any], dict[str, Any]]:
    """The class and its further arguments, imported now."""
    target, options = SIMULATORS[name]
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute), dict(options)
