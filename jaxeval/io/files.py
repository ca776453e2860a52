"""Files written whole or not at all: into a neighbour first, which then takes the file's place."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from jaxeval.io.errors import InputError

Named = TypeVar("Named")


def children(folder: Path) -> list[Path]:
    """What a folder holds, in order, but hidden entries and links to the folder itself or one that holds it.

    Raises:
        InputError: the folder cannot be read.
    """
    try:
        inside = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError as error:
        raise InputError(
            f"{folder}: this folder cannot be read ({error.strerror or error}); expected one that you may list; change "
            "its permissions or name another"
        ) from error
    above = (folder.resolve(), *folder.resolve().parents)
    return [p for p in inside if not (p.is_symlink() and p.resolve() in above)]


def once(found: Iterable[Named], path_of: Callable[[Named], Path]) -> tuple[list[Named], list[str]]:
    """What was found, each file or folder once, and a sentence for each other name of one: a link, or named again.

    The name that is no link stays, else the first.
    """
    by_place: dict[Path, list[Named]] = {}
    for one in found:
        by_place.setdefault(path_of(one).resolve(), []).append(one)
    kept, said = list[Named](), list[str]()
    for same in by_place.values():
        stays = next((one for one in same if not path_of(one).is_symlink()), same[0])
        kept.append(stays)
        others = [path_of(one) for one in same if one is not stays]
        said += [
            f"{other} is {path_of(stays)}, a second time; it counts once"
            if other != path_of(stays)
            else f"{other} is named twice; it counts once"
            for other in others
        ]
    return kept, said


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
