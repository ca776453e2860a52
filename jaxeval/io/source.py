"""One way in for every format: `open_source` takes a path, a list, a glob or ``bundled:NAME``.

A `Source` is one or more parts (stores, or files read into memory) that speak alike. A part that cannot be read is
listed in ``refused`` and the others go on. A new format is a `Reader`, in the list below, given to `register`, or
offered by an installed package under the entry-point group ``jaxeval.readers``.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from inspect import signature
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jaxeval.io.cleaning import CLEANING_FINDINGS, clean
from jaxeval.io.errors import InputError
from jaxeval.io.files import children, once
from jaxeval.io.readers.bop import is_bop, read_bop
from jaxeval.io.readers.hdf5 import refuse_hdf5
from jaxeval.io.readers.lerobot import is_lerobot, read_lerobot
from jaxeval.io.readers.maniskill import is_maniskill, read_maniskill
from jaxeval.io.readers.mcap import is_mcap, read_mcap
from jaxeval.io.readers.recordings import read_recordings
from jaxeval.io.readers.robolab import is_robolab, read_robolab
from jaxeval.io.readers.robomimic import is_robomimic, read_robomimic
from jaxeval.io.readers.rosbag2 import is_rosbag2, read_rosbag2
from jaxeval.io.readers.trajectories import is_euroc, is_tum, is_tum_folder, read_euroc, read_tum, read_tum_folder
from jaxeval.io.store import Store, open_store
from jaxeval.io.store.attributes import PREFIX, attributes_of, typed
from jaxeval.io.store.read import lacks_signals, mended_of
from jaxeval.metrics.registry import offered
from jaxeval.robots import load_robot
from jaxeval.types import Attribute, Episode, EpisodeBatch, Finding, bucket_length, pad_episodes

BUNDLED = "bundled:"
RECORD = "conversion.json"
"""What `jaxeval convert` says of what it wrote, in the folder or beside it under a longer name."""
BESIDE = (f".{RECORD}", ".parts", ".frames")
"""Endings of what `convert` and `rollout` leave beside a store, which is no source of its own."""
TABLES = (".csv", ".tsv", ".parquet")
"""Endings of files that are a person's own tables where no reader accepts them."""
Batches = Iterator[tuple[np.ndarray, EpisodeBatch]]


class Part(Protocol):
    """What a store and a file in memory have in common."""

    path: Path
    task: str
    bodies: tuple[str, ...]
    n_episodes: int
    joint_names: tuple[str, ...]

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the episodes' contents."""
        ...

    def read(self, start: int = 0, stop: int | None = None) -> list[Episode]:
        """Episodes [start, stop) in float64, prepared."""
        ...

    def iter_episodes(self) -> Iterator[Episode]:
        """Every episode in order."""
        ...

    def batches(
        self,
        *,
        bodies: tuple[str, ...],
        episodes_n: int,
        dtype: Any = np.float32,
        joints: bool = False,
        signals: tuple[str, ...] = (),
    ) -> Batches:
        """(rows, padded batch) of one padding bucket at a time."""
        ...


class Loaded:
    """Episodes of one file, in memory: for files of a size that people copy about; convert larger ones to a store.

    They are cleaned, checked and prepared here, once for all formats: what a store of the file would hold.
    """

    def __init__(self, path: Path, episodes: list[Episode], findings: list[Finding]) -> None:
        if not episodes:
            raise InputError(f"{path}: it holds no episodes, expected at least 1; check how it was recorded")
        episodes, differ = _same_bodies(path, episodes)
        cleaned = [clean(e) for e in episodes]
        listed = {*findings, *(f for e in episodes for f in e.mended)}
        split = [f for c in cleaned for f in c.actions if f.code in CLEANING_FINDINGS and f not in listed]
        self.path, self.findings = path, [*findings, *differ, *split]
        self.episodes = [e for c in cleaned for e in c.episodes]
        self.as_read = [e.prepared() for e in episodes] if split else self.episodes
        """The episodes with their rows as the file has them: repeated and late ones, and pauses, where they are."""
        self.episode_findings = [tuple(dict.fromkeys(f.code for f in (*e.mended, *e.check()))) for e in self.episodes]
        episodes = self.episodes
        self.task, self.bodies, self.n_episodes = episodes[0].task, episodes[0].bodies, len(episodes)
        self.joint_names = episodes[0].joint_names

    def read(self, start: int = 0, stop: int | None = None) -> list[Episode]:
        """Episodes [start, stop)."""
        return self.episodes[start:stop]

    def iter_episodes(self) -> Iterator[Episode]:
        """Every episode in order."""
        return iter(self.episodes)

    def batches(
        self,
        *,
        bodies: tuple[str, ...],
        episodes_n: int,
        dtype: Any = np.float32,
        joints: bool = False,
        signals: tuple[str, ...] = (),
    ) -> Batches:
        """(rows, padded batch) of one bucket at a time; InputError at once for a body or a signal there is not."""
        return _pad([(self, 0, range(self.n_episodes))], tuple(bodies), episodes_n, dtype, joints, signals)

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the episodes' contents, poses to float32 as a store keeps them."""
        total = hashlib.sha256()
        for e in self.episodes:
            facts = [e.episode_id, e.bodies, e.success_at_end, e.seed, e.group, e.speed]
            total.update(json.dumps(facts).encode() + e.poses.astype(np.float32).tobytes())
            total.update(e.time_s.tobytes() + e.frame_valid.tobytes())
            if (lost := e.frame_valid[:, None] & ~e.valid).any():
                total.update(lost.tobytes())
            if e.attributes:
                total.update(json.dumps(dict(e.attributes)).encode())
        return total.hexdigest()


def _same_bodies(path: Path, episodes: list[Episode]) -> tuple[list[Episode], list[Finding]]:
    """The episodes with the bodies that all of them have, and a finding where some have more."""
    common = tuple(b for b in episodes[0].bodies if all(b in e.bodies for e in episodes))
    if all(e.bodies == common for e in episodes):
        return episodes, []
    dropped = sorted({b for e in episodes for b in e.bodies} - set(common))
    if not common:
        raise InputError(f"{path}: its episodes share no body; expected one scene a file; split the file")

    found = f"not every episode has {', '.join(dropped)}" if dropped else "episodes list their bodies in other orders"
    finding = Finding("other_bodies", "warning", str(path), found, "one scene a file", f"{', '.join(common)} are kept")
    return [e.with_bodies(common) for e in episodes], [finding]


def _pad(
    parts: list[tuple[Loaded, int, range]],
    bodies: tuple[str, ...],
    episodes_n: int,
    dtype: Any,
    joints: bool,
    signals: tuple[str, ...],
) -> Batches:
    widths = {e.joints.shape[1] for part, *_ in parts for e in part.episodes if joints and e.joints is not None}
    joints_n = max(widths, default=0)
    for part, *_ in parts:
        if absent := [b for b in bodies if b not in part.bodies]:
            raise InputError(
                f"{part.path}: no body {', '.join(absent)}; it has {', '.join(part.bodies)}; "
                "choose among these or record the missing ones"
            )
        for e in part.episodes:
            if lacking := [s for s in signals if s not in (e.signals or {})]:
                raise lacks_signals(part.path, lacking, e.signals or ())

    def generate() -> Batches:
        pending: dict[int, list[tuple[int, Episode]]] = {}
        for part, offset, mine in parts:
            for row, e in zip((offset + k for k in mine), part.read(mine.start, mine.stop), strict=True):
                kept = pending.setdefault(bucket_length(e.n_frames), [])
                kept.append((row, e.with_bodies(bodies)))
                if len(kept) == episodes_n:
                    yield finished(pending, bucket_length(e.n_frames))
        for length in sorted(pending):
            yield finished(pending, length)

    def finished(pending: dict[int, list[tuple[int, Episode]]], length: int) -> tuple[np.ndarray, EpisodeBatch]:
        rows, episodes = zip(*pending.pop(length), strict=True)
        return np.array(rows, np.int64), pad_episodes(
            episodes, length=length, dtype=dtype, joints_n=joints_n, signals=signals
        )

    return generate()


# ------------------------------------------------------------------------------------------------------- readers

Read = Callable[..., tuple[list[Episode], list[Finding]]]


@dataclass(frozen=True)
class Reader:
    """A format: whether a path is of it, how to open it, and the options that it takes.

    ``open`` is given the path, and those of ``options`` that the user set, by name. `file_reader` makes one of a
    function that reads a whole file.
    """

    name: str
    accepts: Callable[[Path], bool]
    open: Callable[..., Part]
    options: tuple[str, ...] = ()
    says: str = ""  # what the format itself fixes: quaternion order, units, clock


GROUP = "jaxeval.readers"
"""Entry-point group under which an installed package offers its formats: the object is a :class:`Reader`."""
READERS: list[Reader] = []
"""The package's own formats and those registered; the first that accepts a path opens it, after `_offered`."""


def file_reader(name: str, accepts: Callable[[Path], bool], read: Read, says: str = "") -> Reader:
    """A format read whole into memory; the keyword-only parameters of ``read`` are its options.

    ``read`` takes a path and returns the episodes and what was noticed about the file; it raises InputError, in one
    sentence, for a file that it cannot read, which costs that file alone.
    """
    options = tuple(p.name for p in signature(read).parameters.values() if p.kind is p.KEYWORD_ONLY)
    return Reader(name, accepts, lambda path, **given: Loaded(path, *read(path, **given)), options, says)


def register(reader: Reader) -> Reader:
    """Add a format for this process, asked before those there are. Returns it, so that it may be assigned."""
    READERS.insert(0, reader)
    return reader


@cache
def _offered() -> tuple[dict[str, Reader], dict[str, str]]:
    return offered(GROUP, Reader)


def all_readers() -> list[Reader]:
    """Every format in the order in which they are asked: those of installed packages, then those of `READERS`."""
    return [*_offered()[0].values(), *READERS]


def refused_readers() -> dict[str, str]:
    """Of installed packages' formats that cannot be used: name of the entry point -> why, a sentence."""
    return _offered()[1]


def suffix(*suffixes: str) -> Callable[[Path], bool]:
    """Accepts files by the end of their name."""
    return lambda path: path.is_file() and path.suffix.lower() in suffixes


def marker(file: str) -> Callable[[Path], bool]:
    """Accepts folders that hold `file`."""
    return lambda path: path.is_dir() and (path / file).exists()


def _read_lerobot(path: Path, *, robot: str | None = None) -> tuple[list[Episode], list[Finding]]:
    return read_lerobot(path, robot=None if robot is None else load_robot(robot))


def _read_npz(path: Path) -> tuple[list[Episode], list[Finding]]:
    return read_recordings(path), []


# Damaged files still end in their suffix, so a suffix has a reader of last resort, registered before those that look.
for _name, _accepts, _read, _says in (
    ("HDF5 of no known layout", suffix(".h5", ".hdf5"), refuse_hdf5, ""),
    ("ManiSkill trajectory (.h5, .hdf5)", is_maniskill, read_maniskill, "wxyz, metres, 1/control_freq"),
    ("robomimic (.hdf5)", is_robomimic, read_robomimic, "xyzw, metres, 1/control_freq"),
    ("RoboLab (.hdf5)", is_robolab, read_robolab, "wxyz, metres, simulation step"),
    ("recording (.npz)", suffix(".npz"), _read_npz, "wxyz, metres, 1/control_freq"),
    ("TUM (.txt, .tum)", is_tum, read_tum, "xyzw, metres, stamps in seconds"),
    ("EuRoC (.csv)", is_euroc, read_euroc, "order and units by column name, stamps in nanoseconds"),
    ("BOP results (.csv)", is_bop, read_bop, "rotation matrices, millimetres, im_id/fps"),
    ("TUM or EuRoC files of one motion (folder)", is_tum_folder, read_tum_folder, "as TUM and EuRoC"),
    ("MCAP (.mcap)", is_mcap, read_mcap, "xyzw, metres, header stamps"),
    ("rosbag2 (folder, .db3)", is_rosbag2, read_rosbag2, "xyzw, metres, header stamps"),
    ("LeRobotDataset v2.1, v3.0 (folder)", is_lerobot, _read_lerobot, "order by feature name, timestamp in seconds"),
):
    register(file_reader(_name, _accepts, _read, _says))
register(Reader("jaxeval store (folder)", marker("meta.json"), open_store, says="wxyz, metres, stamps in seconds"))


# ------------------------------------------------------------------------------------------------------- sources


class Source:
    """Parts of one task, as one: rows count through the parts in order."""

    def __init__(self, parts: list[Part], refused: list[tuple[Path, str]], notes: Sequence[str] = ()) -> None:
        self.parts, self.refused, self.notes = parts, refused, tuple(notes)
        self.bodies = tuple(b for b in parts[0].bodies if all(b in p.bodies for p in parts))
        named = {p.joint_names for p in parts}
        self.joint_names = parts[0].joint_names if len(named) == 1 else ()  # () where the parts differ
        self.n_episodes = sum(p.n_episodes for p in parts)
        self.findings: list[Finding] = [f for p in parts for f in getattr(p, "findings", [])]

    def __repr__(self) -> str:
        return f"Source({self.n_episodes} episodes in {len(self.parts)} parts, {len(self.refused)} refused)"

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks there are."""
        return tuple(dict.fromkeys(p.task for p in self.parts))

    @property
    def task(self) -> str:
        """The task; InputError if the parts are of several."""
        if len(self.tasks) > 1:
            raise InputError(
                f"{self.parts[0].path} and others: episodes of {', '.join(self.tasks)}, expected one task; "
                "give the files of one, or take of_task(NAME)"
            )
        return self.parts[0].task

    def table(self, start: int = 0, stop: int | None = None) -> dict[str, list[Any]]:
        """What is known of the episodes [start, stop) beside their frames, in row order: one list a column.

        The columns of `TABLE`, then ``attribute.<name>`` of every attribute that some episode of the source has (None
        where one does not); InputError where an attribute is not of one kind.
        """
        ranges = list(self._ranges(start, stop))
        tables = [_table(p, mine) for p, _, mine in ranges]
        columns = {name: [v for t in tables for v in t[name]] for name in TABLE}
        attributes = typed(columns["episode_id"], [row for p, _, mine in ranges for row in _attributes(p, mine)])
        nothing: list[Any] = [None] * len(columns["episode_id"])
        columns |= {PREFIX + name: nothing for p in self.parts for name in _attribute_names(p)}
        return columns | {PREFIX + name: column.to_pylist() for name, column in attributes.items()}

    def _ranges(self, start: int, stop: int | None) -> Iterator[tuple[Part, int, range]]:
        """(part, row of the source with which it begins, its episodes among the rows [start, stop))."""
        start, stop, _ = slice(start, stop).indices(self.n_episodes)
        offset = 0
        for part in self.parts:
            mine = range(max(start - offset, 0), min(stop - offset, part.n_episodes))
            yield part, offset, mine if mine else range(0)
            offset += part.n_episodes

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the contents of the parts, in order."""
        if len(self.parts) == 1:
            return self.parts[0].hash
        return hashlib.sha256("".join(p.hash for p in self.parts).encode()).hexdigest()

    def of_task(self, task: str) -> Source:
        """The parts of one task; InputError if there are none."""
        parts = [p for p in self.parts if p.task == task]
        if not parts:
            raise InputError(f"{self.parts[0].path}: no episodes of {task}, only of {', '.join(self.tasks)}")
        return Source(parts, self.refused, self.notes)

    def iter_episodes(self) -> Iterator[Episode]:
        """Every episode, part after part."""
        for part in self.parts:
            yield from part.iter_episodes()

    def batches(
        self,
        *,
        bodies: tuple[str, ...],
        episodes_n: int,
        start: int = 0,
        stop: int | None = None,
        dtype: Any = np.float32,
        joints: bool = False,
        signals: tuple[str, ...] = (),
    ) -> Batches:
        """(rows, padded batch) of one padding bucket at a time; files in memory share their batches.

        ``start``, ``stop``: a range of the source's rows; the rows that come with a batch are the source's.

        Raises:
            InputError: at once, if a part lacks one of `bodies` or `signals`.
        """
        how: dict[str, Any] = {"episodes_n": episodes_n, "dtype": dtype, "joints": joints, "signals": signals}
        streams: list[tuple[Batches, int]] = []
        loaded: list[tuple[Loaded, int, range]] = []
        for part, offset, mine in self._ranges(start, stop):
            if isinstance(part, Loaded):
                loaded.append((part, offset, mine))
            else:
                stream = part.batches(bodies=bodies, start=mine.start, stop=mine.stop, **how)  # type: ignore[call-arg]
                streams.append((stream, offset))
        streams.append((_pad(loaded, tuple(bodies), **how), 0))
        return ((rows + offset, batch) for stream, offset in streams for rows, batch in stream)


TABLE = (
    "episode_id", "task", "group", "length", "success_once", "success_at_end", "seed", "speed",
    "initial_condition_id", "initial_condition_hash", "source", "findings", "mended",
)  # fmt: skip
"""Columns of `Source.table`; `findings` holds the codes of `Episode.check`, `mended` sentences of `Episode.mended`."""


def _attributes(part: Part, rows: range) -> list[dict[str, Attribute]]:
    if isinstance(part, Store):
        return attributes_of(part.episodes.slice(rows.start, len(rows)))
    return [dict(e.attributes) for e in part.read(rows.start, rows.stop)]


def _attribute_names(part: Part) -> tuple[str, ...]:
    if isinstance(part, Store):
        return part.attribute_names
    return tuple(dict.fromkeys(name for e in part.iter_episodes() for name in e.attributes))


def _table(part: Part, rows: range) -> dict[str, list[Any]]:
    if isinstance(part, Store):
        known = part.episodes.slice(rows.start, len(rows))
        table = {name: known.column(name).to_pylist() for name in TABLE}
        return table | {"mended": [_sentences(mended_of(row)) for row in table["mended"]]}
    episodes = part.read(rows.start, rows.stop)
    table = {n: [getattr(e, n) for e in episodes] for n in TABLE if n not in ("length", "findings", "mended")}
    findings = getattr(part, "episode_findings", [()] * part.n_episodes)[rows.start : rows.stop]
    table |= {"length": [e.n_frames for e in episodes], "findings": [list(f) for f in findings]}
    return table | {"mended": [_sentences(e.mended) for e in episodes]}


def _sentences(mended: tuple[Finding, ...]) -> list[str]:
    """``code: found; what was done``, without the name of the episode, so that equal ones are equal."""
    return [f"{f.code}: {f.found}; {f.action}" for f in mended]


def open_source(path: str | Path | list[str | Path] | tuple[str | Path, ...], **options: Any) -> Source:
    """Open what `path` names: a store, a file, a folder of those (searched through), a glob, ``bundled:NAME``, a list.

    What `convert` and `rollout` leave beside a store (BESIDE) is read only where it is the one thing named.
    ``options`` are what a format cannot say of itself, such as ``fps`` of BOP results; each goes to the readers that
    take it.

    Raises:
        InputError: nothing is there, nothing of what is there can be read (the sentence of the first refusal), or an
            option is none of any format.
    """
    if unknown := [o for o in options if not any(o in r.options for r in all_readers())]:
        known = ", ".join(sorted({o for r in all_readers() for o in r.options}))
        raise InputError(f"{unknown[0]}: no format takes this option; expected one of {known}; correct the name")
    named = list(path) if isinstance(path, list | tuple) else [path]
    named = [one for one in named if not _is_beside(Path(one))] or named if len(named) > 1 else named
    paths, notes = once((found for one in named for found in _expand(one)), lambda p: p)
    parts: list[Part] = []
    refused: list[tuple[Path, str]] = []
    for one in paths:
        try:
            parts.append(open_part(one, **options))
        except InputError as error:
            refused.append((one, str(error)))
    if not parts:
        if not refused:
            raise InputError("no source given, expected a path, a glob or bundled:NAME; name at least one")
        more = f" (and {len(refused) - 1} more refused)" if len(refused) > 1 else ""
        raise InputError(refused[0][1] + more)
    return Source(parts, refused, notes)


def reader_of(path: Path) -> Reader | None:
    """The first reader that accepts a path."""
    for reader in all_readers():
        try:
            if reader.accepts(path):
                return reader
        except Exception as error:  # of another package, or of a disk
            raise InputError(
                f"{path}: the reader '{reader.name}' could not look at it ({type(error).__name__}: {error}); "
                "correct that reader or the file"
            ) from error
    return None


def open_part(path: Path, **options: Any) -> Part:
    """Open one store or file with the first reader that accepts it; InputError if none does or it refuses."""
    if (reader := reader_of(path)) is not None:
        return reader.open(path, **{k: v for k, v in options.items() if k in reader.options})
    table = path.suffix.lower() in TABLES and path.is_file()
    hint = "; a table with a row a frame is read by jaxeval.episodes_from_table, in Python" if table else ""
    raise InputError(f"{path}: no reader for this kind of file; expected one of: {_known()}{hint}")


def _known() -> str:
    """Every format by name, and why an installed package's cannot be used."""
    return "; ".join([", ".join(r.name for r in all_readers()), *refused_readers().values()])


def _expand(path_or_glob: str | Path) -> list[Path]:
    """Paths that one path or pattern stands for; folders that are no store are searched for what the readers accept."""
    text = str(path_or_glob)
    if text.startswith(BUNDLED):
        return [bundled_path(text.removeprefix(BUNDLED))]
    path = Path(text).expanduser()
    if path.exists():
        paths = [path]
    else:
        paths = [p for p in map(Path, sorted(glob.glob(str(path), recursive=True))) if not _is_beside(p)]
        if not paths:
            what = "no file matches this pattern" if glob.has_magic(text) else "there is no such file or folder"
            raise InputError(f"{path}: {what}; check the path")
    out: list[Path] = []
    for p in paths:
        found = list(_search(p))
        if not found and p.is_dir():
            raise InputError(f"{p}: this folder is no store and holds nothing readable; expected: {_known()}")
        out += found or [p]
    return out


def _is_beside(path: Path) -> bool:
    return path.name == RECORD or path.name.endswith(BESIDE)


def _search(path: Path) -> Iterator[Path]:
    try:
        found = reader_of(path) is not None
    except InputError:  # said when it is opened
        found = True
    if found:
        yield path
    elif path.is_dir():
        for child in children(path):
            if not _is_beside(child):
                yield from _search(child)


# ------------------------------------------------------------------------------------------------------- bundled


def bundled_names() -> tuple[str, ...]:
    """Names of the stores and files that come with the package."""
    root = _data()
    return tuple(str(p.relative_to(root)) for p in _search(root))


def bundled_path(name: str) -> Path:
    """Where the package keeps `name`, such as ``stack_cube_demos`` or ``maniskill/StackCube-v1.h5``.

    Raises:
        InputError: there is none of that name; the message lists those there are.
    """
    path = _data() / name
    if reader_of(path) is None or not path.resolve().is_relative_to(_data().resolve()):
        raise InputError(f"{BUNDLED}{name}: no such data in the package; it has {', '.join(bundled_names())}")
    return path


def bundled(name: str) -> Part:
    """The bundled store or file of that name, opened.

    >>> store = bundled("stack_cube_demos")
    >>> store.task, store.n_episodes, store.bodies
    ('stack_cube', 40, ('cubeA', 'cubeB', 'tcp', 'table'))
    """
    return open_part(bundled_path(name))


def _data() -> Path:
    return Path(str(resources.files("jaxeval.io"))).parent / "data"
