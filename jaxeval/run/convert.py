"""`jaxeval convert`: a store from anything that can be read; LeRobotDataset v3.0 or TUM files, a training file."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.cleaning import clean as put_in_order
from jaxeval.io.errors import InputError
from jaxeval.io.files import write_text
from jaxeval.io.readers.trajectories import write_tum
from jaxeval.io.source import RECORD, Loaded, Source
from jaxeval.io.store import Store, write_store
from jaxeval.io.store.configurations import agreed
from jaxeval.io.store.write import atomic_folder
from jaxeval.io.writers.lerobot import write_lerobot
from jaxeval.io.writers.training import layout_of, shown, write_training
from jaxeval.types import Episode, Finding

KINDS = ("store", "lerobot", "tum", "training")


@dataclass
class Converted:
    """Where it went, how much, and everything that was changed, lost or left out on the way."""

    path: Path
    kind: str
    episodes_n: int = 0
    frames_n: int = 0
    actions: list[Finding] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


def convert(
    source: Source,
    out: str | Path,
    *,
    to: str = "store",
    task: str | None = None,
    group: str | None = None,
    rename: Mapping[str, str] | None = None,
    bodies: Sequence[str] | None = None,
    clean: bool = True,
    fps: float | None = None,
    precision: str = "float32",
    overwrite: bool = False,
    progress: bool = False,
) -> Converted:
    """Write the episodes of a source as a store, a LeRobotDataset v3.0, a folder of TUM files or a training file.

    ``rename`` gives bodies other names, ``bodies`` keeps some (by their new names), ``task`` and ``group`` replace the
    recorded ones. With ``clean``, repeated and late stamps, joined recordings and long pauses are put in order and
    listed; without, an episode that has them is written as it is, and its findings say so. An episode that cannot be
    written costs that episode. A store keeps what the configurations of the stores it is made of agree in. A training
    file (`io.writers.training`) holds what the policy saw and did in episodes that succeeded, nothing of bodies.
    `conversion.json`, in the folder or beside it, lists every change.

    Raises:
        InputError: an unknown kind, a body there is not, `out` exists or cannot be written, or nothing is left.
    """
    out, rename = Path(out), dict(rename or {})
    if to not in KINDS:
        raise InputError(f"to is '{to}'; expected one of {', '.join(KINDS)}; correct the setting")
    if precision not in ("float32", "float64"):
        raise InputError(f"precision is '{precision}'; expected float32 or float64; correct the setting")
    if to in ("tum", "lerobot") and out.exists() and (out.is_file() or any(out.iterdir())):
        if not overwrite:
            raise InputError(f"{out}: it exists already; give overwrite=true or choose another path")
        if not _record_of(to, out).is_file():
            raise InputError(f"{out}: it was not written by convert, so it is not overwritten; choose another path")
    if absent := [b for b in rename if b not in source.bodies]:
        raise InputError(_absent(source, absent, source.bodies))
    names = tuple(rename.get(b, b) for b in source.bodies)
    if len(set(names)) < len(names):
        raise InputError(
            f"rename gives two bodies the same name ({', '.join(names)}); expected one name each; correct it"
        )
    if absent := [b for b in bodies or () if b not in names]:
        raise InputError(_absent(source, absent, names))
    made = Converted(out, to, refused=[(str(p), why) for p, why in source.refused])
    made.actions += list(source.findings)
    kept = tuple(bodies) if bodies else names
    episodes = _converted(source, made, rename, kept, clean, task, group, progress)
    name = task or (source.tasks[0] if len(source.tasks) == 1 else "") or "unnamed"
    if to == "store":
        configurations: list[tuple[Path, dict[str, Any]]] = [(p.path, _configuration(p)) for p in source.parts]
        configuration, differ = agreed(configurations)
        made.actions += differ
        write_store(
            out,
            _counted(episodes, made),
            task=name,
            configuration=configuration,
            precision=precision,  # type: ignore[arg-type]
            overwrite=overwrite,
        )
    elif to == "lerobot":
        made.actions += write_lerobot(out, list(_counted(episodes, made)), fps=fps, task=task, overwrite=overwrite)
    elif to == "training":
        demonstrations, layout = _counted(shown(episodes, made.left_out), made), layout_of(source.parts)
        about = {"source_hash": source.hash}
        write_training(out, demonstrations, task=name, layout=layout, about=about, overwrite=overwrite)
    else:
        with atomic_folder(out, replace=overwrite) as folder:
            for e in _counted(episodes, made):
                _tum(folder, e, made)
            if not made.episodes_n:
                raise InputError(f"{out}: there is no episode to write, expected at least 1; check what was read")
    made.actions = list(dict.fromkeys(made.actions))
    _record(made)
    return made


def _configuration(part: Any) -> dict[str, Any]:
    """What a store keeps of how its episodes were made; a file keeps nothing of it."""
    return part.meta["configuration"] if isinstance(part, Store) else {}


def _absent(source: Source, absent: Sequence[str], known: Sequence[str]) -> str:
    return f"{source.parts[0].path}: no body {', '.join(absent)}; it has {', '.join(known)}; choose among these"


def _converted(
    source: Source,
    made: Converted,
    rename: Mapping[str, str],
    kept: tuple[str, ...],
    clean: bool,
    task: str | None,
    group: str | None,
    progress: bool,
) -> Iterator[Episode]:
    """Episodes as they are to be written; what happens to each is noted in ``made``."""
    for e in _shown(source, progress, clean):
        at = {rename.get(b, b): b for b in e.bodies}
        e = dataclasses.replace(
            e.with_bodies(tuple(at[b] for b in kept)),
            bodies=kept,
            task=task or e.task,
            group=e.group if group is None else group,
        )
        try:
            done = put_in_order(e).episodes if clean else (e,)
        except InputError as error:
            made.left_out.append((e.episode_id, str(error)))
            continue
        made.actions += (f for one in done for f in one.mended)
        yield from done


def _shown(source: Source, progress: bool, clean: bool) -> Iterator[Episode]:
    """The source's episodes; without ``clean`` those of files as their rows stand."""
    parts = source.parts
    episodes = (e for p in parts for e in (p.as_read if isinstance(p, Loaded) and not clean else p.iter_episodes()))
    if not progress:
        return episodes
    from tqdm import tqdm

    return iter(tqdm(episodes, total=source.n_episodes, unit="episode", desc="writing", leave=False, disable=None))


def _counted(episodes: Iterator[Episode], made: Converted) -> Iterator[Episode]:
    for e in episodes:
        if not (e.frame_valid & e.valid.any(axis=1) if e.bodies else e.frame_valid).any():
            made.left_out.append((e.episode_id, "it has no valid frame"))
            continue
        made.episodes_n += 1
        made.frames_n += e.n_frames
        yield e


def _tum(folder: Path, e: Episode, made: Converted) -> None:
    """One folder an episode, one file a body."""
    name = re.sub(r"[^\w.=-]+", "_", e.episode_id) or f"episode_{made.episodes_n:06d}"
    inside = folder / name
    if inside.exists():
        inside = folder / f"{name}_{made.episodes_n:06d}"
    inside.mkdir()
    for body in e.bodies:
        write_tum(inside / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', body)}.txt", e, body)
    lost = [k for k in ("gripper_width_m", "joints", "actions", "sub_task", "signals") if getattr(e, k) is not None]
    if lost and not any(f.code == "not_in_tum" for f in made.actions):
        found = f"{', '.join(lost)}, success and seeds"
        made.actions.append(Finding("not_in_tum", "info", str(made.path), found, "poses alone", "left out"))


def _record_of(kind: str, out: Path) -> Path:
    """Where the record of a conversion is: in a folder of TUM files, beside what else was written."""
    return out / RECORD if kind == "tum" else out.with_name(f"{out.name}.{RECORD}")


def _record(made: Converted) -> None:
    """`conversion.json`: in the folder of TUM files, beside what else is written, which holds only its own."""
    path = _record_of(made.kind, made.path)
    record: dict[str, Any] = dataclasses.asdict(made) | {"path": made.path.name}
    write_text(path, json.dumps(record, indent=1, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def text(made: Converted) -> str:
    """What was written and changed, for people."""
    lines = [f"{'refused':9}{why}" for _, why in made.refused]
    lines += [f"{'left out':9}{name}: {why}" for name, why in made.left_out]
    counted: dict[str, list[Finding]] = {}
    for action in made.actions:
        counted.setdefault(action.code, []).append(action)
    for code, found in counted.items():
        more = f" (and {len(found) - 1} more of {code})" if len(found) > 1 else ""
        lines.append(f"{found[0].severity:9}{found[0]}{more}")
    lines.append(f"{made.episodes_n} episodes, {made.frames_n} frames")
    return "\n".join(lines)
