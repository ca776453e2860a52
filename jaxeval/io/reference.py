"""References on disk: `<name>.npz` (arrays) beside `<name>.json` (spec, pairs, versions, where it came from)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.io.files import replacing, write_text
from jaxeval.se3 import DEVIATIONS
from jaxeval.types import Body, Pair, Predicate, Reference, Shape, StageSpec, SubTask, Symmetry, TaskSpec, one_of

FORMAT_VERSION = 1
ARRAYS = ("nominal", "deviations", "seen", "terminal", "demo_valid", "converged", "scale", "duration_s")


def save_reference(path: str | Path, reference: Reference, *, about: dict[str, Any] | None = None) -> Path:
    """Write a reference as `path`.npz and `path`.json (the suffix of `path` does not matter); returns the .npz path.

    `about` holds what else should be kept: configuration, commit, hash of the demonstrations, notes. Each file appears
    whole or not at all. InputError when the folder cannot be written.
    """
    stem = _stem(path)
    table = {
        "format_version": FORMAT_VERSION,
        "spec": dataclasses.asdict(reference.spec),
        "pairs": [dataclasses.asdict(p) for p in reference.pairs],
        "bins_n": reference.bins_n,
        "deviation": reference.deviation,
        "about": about or {},
    }
    npz, text = stem.with_name(stem.name + ".npz"), stem.with_name(stem.name + ".json")
    with replacing(npz) as unfinished:
        np.savez_compressed(unfinished, **{name: np.asarray(getattr(reference, name)) for name in ARRAYS})  # type: ignore[arg-type]
        write_text(text, json.dumps(table, indent=1) + "\n")
    return npz


def load_reference(path: str | Path) -> tuple[Reference, dict[str, Any]]:
    """(reference, the ``about`` saved with it) from a path with or without suffix; InputError where there is none."""
    stem = _stem(path)
    npz, text = stem.with_name(stem.name + ".npz"), stem.with_name(stem.name + ".json")
    for file in (npz, text):
        if not file.is_file():
            raise InputError(f"{file}: no such file; expected a reference made by `jaxeval fit`; check the path")
    try:
        table = json.loads(text.read_text("utf-8"))
        with np.load(npz) as arrays:
            values = {name: arrays[name] for name in ARRAYS}
    except KeyError as error:
        raise InputError(f"{npz}: array {error} is missing; expected a whole reference; fit it again") from error
    except Exception as error:
        raise InputError(f"{stem}: cannot be read ({error}); expected a whole reference; fit it again") from error
    if table.get("format_version") != FORMAT_VERSION:
        found = table.get("format_version")
        raise InputError(f"{text}: format_version is {found}; expected {FORMAT_VERSION}; fit the reference again")
    try:
        reference = Reference(
            **values,
            spec=spec_from_plain(table["spec"]),
            pairs=tuple(Pair(**p) for p in table["pairs"]),
            bins_n=int(table["bins_n"]),
            deviation=one_of("deviation", str(table["deviation"]), DEVIATIONS),
        )
        return reference, table["about"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{text}: cannot be used ({error}); expected a whole reference; fit it again") from error


def reference_hash(reference: Reference) -> str:
    """SHA-256 (hex) of all that scores depend on: arrays (in float32), pairs, task spec, bins and kind of deviation.

    The same before and after the disk; what is merely known about a reference does not count.
    """
    spec = dataclasses.asdict(reference.spec)
    del spec["stages"], spec["simulators"]  # nothing that a reference holds was learned from them
    content = {"spec": spec, "pairs": [dataclasses.asdict(p) for p in reference.pairs]}
    total = hashlib.sha256(
        json.dumps(content | {"bins_n": reference.bins_n, "deviation": reference.deviation}, sort_keys=True).encode()
    )
    for name in ARRAYS:
        array = np.asarray(getattr(reference, name))
        array = array if array.dtype == bool else array.astype("<f4") + np.float32(0)  # -0 is 0
        total.update(f"{name}{array.shape}".encode() + array.tobytes())
    return total.hexdigest()


def spec_from_plain(data: dict[str, Any]) -> TaskSpec:
    """TaskSpec back from `dataclasses.asdict` of one (after a trip through JSON)."""

    def body(raw: dict[str, Any]) -> Body:
        shape, symmetry = _tuples(raw["shape"]), _tuples(raw["symmetry"])
        return Body(raw["name"], Shape(**shape), Symmetry(**symmetry), raw["frame_of"])

    def sub_task(raw: dict[str, Any]) -> SubTask:
        return SubTask(raw["name"], tuple(Predicate(**_tuples(p)) for p in raw["until"]), raw["means"])

    rest = {k: v for k, v in _tuples(data).items() if k not in ("bodies", "sub_tasks", "stages")}
    stages = data.get("stages")
    return TaskSpec(
        bodies=tuple(body(b) for b in data["bodies"]),
        sub_tasks=tuple(sub_task(s) for s in data["sub_tasks"]),
        stages=None if stages is None else StageSpec(**_tuples(stages)),
        **rest,
    )


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    """Lists to tuples, so that the spec stays hashable."""

    def turn(x: Any) -> Any:
        return tuple(turn(v) for v in x) if isinstance(x, list) else x

    return {k: turn(v) for k, v in data.items()}


def _stem(path: str | Path) -> Path:
    path = Path(path)
    return path.with_suffix("") if path.suffix in (".npz", ".json") else path
