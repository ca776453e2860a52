"""Shared by all HDF5 readers: opening (truncated files too), reading arrays, one sentence for an array that is missing.

A file that ends early is read as far as its data sets lie whole before its end. Whatever HDF5 raises on damaged bytes
becomes an InputError that names file and key.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.scene import SCENE_FINDINGS, same_scene
from jaxeval.types import Episode

SUFFIXES = (".h5", ".hdf5")
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)
"""What h5py raises on damaged files, beside InputError (which is a ValueError and must be caught first)."""
BEYOND = 1e30
"""No length, angle, rate or time is that large; its square still is a float64."""
LARGEST = 1 << 31
"""Entries of the largest data set that is read; more means damaged dimensions."""

HDF5_FINDINGS: dict[str, tuple[str, str]] = {
    "truncated": ("warning", "the file ends early: only episodes that lie whole before its end are read"),
    "unreadable_episode": ("error", "an episode cannot be read: it is left out"),
    **SCENE_FINDINGS,
}
"""Findings that `opened` and `read_each` add: part of every HDF5 reader's table."""


# -------------------------------------------------------------------------------------------------------- nodes


@dataclass(frozen=True)
class Node:
    """A group of an open file; keys are paths below it, such as ``obs/extra``."""

    path: Path
    handle: Any
    size: int  # bytes that the file has, which a truncated one declares more of

    @property
    def name(self) -> str:
        """Where the group lies in the file."""
        return str(self.handle.name).strip("/")

    def names(self) -> list[str]:
        """Names in this group, in order."""
        try:
            return sorted(str(k) for k in self.handle)
        except DAMAGE as error:
            self._refuse("its list of names", error)

    def group(self, *keys: str) -> Node | None:
        """The group under `keys`, or None if it is missing or no group."""
        found = self._find("/".join(keys))
        return Node(self.path, found, self.size) if hasattr(found, "keys") else None

    def has(self, key: str) -> bool:
        """Whether a data set of numbers lies under `key`."""
        return getattr(getattr(self._find(key), "dtype", None), "kind", "") in tuple("biuf")

    def array(self, key: str, *, rows: int | None = None, columns: int | None = None, hint: str = "") -> np.ndarray:
        """The numbers under `key` in float64 (see `measured`).

        With `columns` it must be [T, columns], with `rows` its first axis must be that long.

        Raises:
            InputError: missing, no numbers, another shape, or part of it lies beyond the end of the file.
        """
        found = self._find(key)
        ends = f"; {hint or 'record it again'}"
        if found is None:
            raise InputError(f"{self.path}: {self.name} has no '{key}'{ends}")
        if not self.has(key):
            kind = "a group" if hasattr(found, "keys") else f"{getattr(found, 'dtype', 'no array')}"
            raise InputError(f"{self.path}: {self.name}/{key} is {kind}, expected numbers{ends}")
        shape = tuple(found.shape or ())
        expected = (rows, columns) if columns is not None else (rows,)
        fits = len(shape) >= 1 and (columns is None or len(shape) == 2)
        if not fits or any(e is not None and s != e for s, e in zip(shape, expected, strict=False)):
            want = ", ".join("T" if e is None else str(e) for e in expected)
            raise InputError(f"{self.path}: {self.name}/{key} has shape {shape}, expected ({want}){ends}")
        if int(np.prod(shape, dtype=np.float64)) > LARGEST:
            raise InputError(f"{self.path}: {self.name}/{key} claims shape {shape}: it is damaged; copy the file again")
        try:
            end = _storage_end(found)
            if end > self.size:
                raise OSError(f"{found.name} needs bytes up to {end}, the file has {self.size}")
            return measured(found[()])
        except DAMAGE as error:
            self._refuse(key, error)

    def flags(self, key: str, *, rows: int | None = None) -> np.ndarray:
        """[T] of bool under `key`; InputError for anything but noughts and ones."""
        values = self.array(key, rows=rows)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1 or not np.isin(values, (0.0, 1.0)).all():
            raise InputError(
                f"{self.path}: {self.name}/{key} holds other values than 0 and 1; expected one flag a frame"
            )
        return values.astype(bool)

    def strings(self, key: str) -> list[str]:
        """The texts under `key`, bytes decoded; InputError if it holds something else."""
        found: Any = self._find(key)
        try:
            if getattr(getattr(found, "dtype", None), "kind", "") not in tuple("SUO"):
                raise TypeError("it holds no texts")
            return [v.decode() if isinstance(v, bytes) else str(v) for v in np.ravel(found[()])]
        except DAMAGE as error:
            self._refuse(key, error)

    def attribute(self, key: str) -> Any | None:
        """The attribute as a plain number or text; None if it is missing or not to be read."""
        try:
            value = self.handle.attrs.get(key)
            value = value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value
            return value.decode() if isinstance(value, bytes) else value
        except DAMAGE:
            return None

    def json(self, key: str) -> dict[str, Any] | None:
        """The JSON object in an attribute; None if it is missing or no such thing."""
        try:
            value = json.loads(self.attribute(key) or "")
        except (ValueError, TypeError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _find(self, key: str) -> Any | None:
        node = self.handle
        for name in filter(None, key.split("/")):
            try:
                node = node[name] if hasattr(node, "keys") and name in node else None
            except DAMAGE as error:
                self._refuse(key, error)
            if node is None:
                return None
        return node

    def _refuse(self, key: str, error: BaseException) -> NoReturn:
        said = str(error.args[0] if error.args else error)
        raise InputError(
            f"{self.path}: {self.name or 'the file'} cannot be read ({key}: {said}); copy the file again"
        ) from error


def _storage_end(dataset: Any) -> int:
    """Where the data set's last byte lies in the file."""
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        return 0 if offset is None else int(offset) + int(dataset.id.get_storage_size())
    chunks = (dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks()))
    return max((int(c.byte_offset) + int(c.size) for c in chunks), default=0)


# ----------------------------------------------------------------------------------------------------- episodes


def numbered(node: Node, stem: str) -> list[str]:
    """Names such as ``demo_0``, ``demo_1``, ``demo_10``, by their numbers."""
    return sorted((k for k in node.names() if re.fullmatch(rf"{stem}_\d+", k)), key=lambda k: int(k[len(stem) + 1 :]))


def read_each(
    parent: Node, names: list[str], read: Callable[[Node], Episode], findings: FileFindings, hint: str
) -> list[Episode]:
    """`read` of the groups `names`; one that cannot be read or holds another scene is listed and left out.

    Raises:
        InputError: the first reason, if nothing is left.
    """
    episodes: list[Episode] = []
    reasons: list[str] = []
    places: list[str] = []
    for name in names:
        where = f"{parent.path}/{name}"
        try:
            group = parent.group(name)
            if group is None:
                raise InputError(f"{parent.path}: {name} is no group, expected an episode; {hint}")
            episode = read(group)
        except InputError as error:
            reasons.append(str(error))
            findings.add("unreadable_episode", str(error), "a whole episode", hint, where=where)
            continue
        episodes.append(episode)
        places.append(where)
    if not episodes:
        raise InputError(reasons[0])
    return same_scene(episodes, places, findings)


def measured(values: Any) -> np.ndarray:
    """The numbers in float64; those that cannot be measurements (infinite, or beyond `BEYOND`) become NaN."""
    with np.errstate(invalid="ignore"):
        numbers = np.asarray(values, np.float64)
        return np.where(np.abs(numbers) < BEYOND, numbers, np.nan)


def rate_hz(value: Any) -> float | None:
    """A rate as files give it, or None if it is no positive finite number."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < BEYOND
    return float(value) if known else None


# ------------------------------------------------------------------------------------------------------ opening


@contextmanager
def opened(path: Path, findings: FileFindings, kind: str) -> Iterator[Node]:
    """The root of the file at `path`, which should be a `kind`; a truncated one reads as zeros past its end.

    Raises:
        InputError: no such file, a Git-LFS pointer, not HDF5, or truncated before its list of names.
    """
    if not path.is_file():
        found = "it is a folder" if path.exists() else "there is no such file"
        raise InputError(f"{path}: {found}, expected {kind}; check the path")
    refuse_lfs_pointer(path)
    file, declared = _open(path, kind)
    size = path.stat().st_size
    if declared is not None:
        found = f"{size} of {declared} bytes"
        findings.add("truncated", found, "the whole file", "whole episodes are read; copy the file again")
    try:
        yield Node(path, file, size)
    finally:
        file.close()


def holds(path: Path, test: Callable[[Node], bool]) -> bool:
    """Whether `path` is an HDF5 file, whole or truncated, that passes `test`; False for all else, without an error."""
    try:
        if not path.is_file() or not _looks_hdf5(path):
            return False
        file, _ = _open(path, "HDF5")
    except (InputError, OSError):
        return False
    try:
        return test(Node(path, file, path.stat().st_size))
    except (InputError, *DAMAGE):
        return False
    finally:
        file.close()


def refuse_hdf5(path: str | Path) -> NoReturn:
    """Raise InputError that says why an HDF5 file (or a file with that suffix) is of no known format.

    Raises:
        InputError: always.
    """
    path = Path(path)
    kinds = "traj_0 (ManiSkill) or data/demo_0 (robomimic, RoboLab)"
    with opened(path, FileFindings(path, HDF5_FINDINGS), "an HDF5 recording") as root:
        names = root.names()
    raise InputError(
        f"{path}: it holds {', '.join(names[:5]) or 'nothing'}, expected {kinds}; convert it to one of these"
    )


def _looks_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(8) == b"\x89HDF\r\n\x1a\n" or path.suffix.lower() in SUFFIXES


def _open(path: Path, kind: str) -> tuple[Any, int | None]:
    """(h5py file, bytes that it declares if it has fewer)."""
    import h5py

    try:
        return h5py.File(path, "r"), None
    except DAMAGE as error:
        stored = re.search(r"truncated file.*stored_eof = (\d+)", str(error))
        if stored is None:
            raise InputError(
                f"{path}: not an HDF5 file or its head is damaged, expected {kind}; copy it again"
            ) from error
        declared = int(stored[1])
        try:
            file = h5py.File(_Padded(path, declared), "r")
            list(file)
        except DAMAGE as damaged:
            raise InputError(
                f"{path}: the file is truncated ({path.stat().st_size} of {declared} bytes) and its list of episodes "
                "is lost; copy it again"
            ) from damaged
        return file, declared


class _Padded(io.RawIOBase):
    """A file read as if it were `length` bytes long, zeros where there are none."""

    def __init__(self, path: Path, length: int) -> None:
        self._file, self._length, self._at = open(path, "rb"), length, 0  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        n = max(0, min(len(view), self._length - self._at))
        self._file.seek(self._at)
        data = self._file.read(n)
        view[:n] = data + bytes(n - len(data))
        self._at += n
        return n

    def close(self) -> None:
        self._file.close()
        super().close()
