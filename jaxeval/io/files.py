"""Files written whole or not at all: into a neighbour first, which then takes the file's place."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; it becomes ``path`` when the block ends, and is removed when it raises.

    The folder is made where there is none. InputError where nothing can be written there; whatever else is raised in
    the block passes through. Readers see the file as it was or as it is now, never half of it. The neighbour's name
    starts with a dot and ends in `.writing` and the file's own suffix, since some libraries go by the suffix.
    """
    path = Path(path)
    part = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:8]}.writing{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        os.replace(part, path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); expected a writable folder; choose another "
            "with out=DIR"
        ) from error
    finally:
        if part.parent.is_dir():
            part.unlink(missing_ok=True)


def write_bytes(path: str | Path, data: bytes) -> Path:
    """Write a file whole or not at all; returns its path. InputError where nothing can be written there."""
    with replacing(path) as part:
        part.write_bytes(data)
    return Path(path)


def write_text(path: str | Path, text: str) -> Path:
    """Write text as UTF-8 with the line ends it has, whole or not at all; returns its path."""
    return write_bytes(path, text.encode())


def write_json(path: str | Path, value: Any, *, indent: int | None = 2) -> Path:
    """Write a value as JSON, whole or not at all; returns the path. What JSON cannot hold raises before anything is."""
    return write_text(path, json.dumps(value, indent=indent))
