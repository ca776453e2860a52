"""What all pages share: templates, figures inside a page (and beside it as PNG), and how a page is written."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.files import write_bytes, write_text
from jaxeval.report.figures import png


@dataclass(frozen=True)
class Picture:
    """A figure as the page holds it."""

    name: str
    alt: str
    data: str  # base64 of the PNG


class Pictures:
    """Makes figures one at a time, leaves each as a PNG in a folder and gives the page its copy."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be made ({error.strerror}); expected a writable folder; choose another with out=DIR"
            ) from error
        self.folder = folder
        self.made: set[str] = set()

    def add(self, name: str, alt: str, make: Callable[[], Any]) -> Picture:
        """Make a figure (matplotlib's) called ``name``; ``alt`` says in words what it shows."""
        data = png(make())
        write_bytes(self.folder / f"{name}.png", data)
        self.made.add(f"{name}.png")
        return Picture(name, alt, base64.b64encode(data).decode())

    def remove_others(self, names: Iterable[str]) -> None:
        """Remove figures that an earlier page in the same folder left; ``names`` may be patterns such as worst_*."""
        for stale in {p for name in names for p in self.folder.glob(f"{name}.png")}:
            if stale.name not in self.made:
                stale.unlink()


@cache
def templates() -> Any:
    """Templates of the package's pages. Everything put into them is escaped; a name that is not given raises."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("jaxeval.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["q"] = lambda x: "–" if x is None or not np.isfinite(x) else f"{x:.3f}"
    return environment


def write_page(path: Path, template: str, **values: Any) -> Path:
    """Write a page that stands alone, whole or not at all; returns its path."""
    return write_text(path, templates().get_template(template).render(values))
