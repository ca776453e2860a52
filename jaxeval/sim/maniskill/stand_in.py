"""ManiSkill without any graphics device: inert materials in place of sapien's, which alone ask for one."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any


class Inert:
    """Takes any argument and any attribute, and does nothing: a material or a texture that nobody will look at."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def without_renderer() -> None:
    """Let environments load with ``render_backend="none"`` where no Vulkan device exists; before the first is made.

    sapien 3.0.3 makes a render material for every robot link and coloured body even when nothing is rendered, and
    asks the device for it. Bodies, masses and contacts do not depend on materials. A process that did this cannot
    render any more.
    """
    import sapien.render
    from sapien.pysapien import render  # the builders' own name for the same module
    from sapien.wrapper import urdf_loader

    for module in (sapien.render, render, urdf_loader):
        for name in ("RenderMaterial", "RenderTexture2D"):
            if hasattr(module, name):
                setattr(module, name, Inert)


def renderer_is_gone() -> bool:
    """Whether `without_renderer` was called in this process."""
    import sapien.render

    return sapien.render.RenderMaterial is Inert
