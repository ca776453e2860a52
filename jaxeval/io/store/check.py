"""What must hold of a store's files for it to be read: what another program that edits parquet could have changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from jaxeval.io.errors import InputError

NEEDED = ("shard", "first_frame", "length", "origin_m")
"""Columns of ``episodes.parquet`` that say where frames lie: never null."""
OFF_UNIT = 1e-4
"""The writer normalises quaternions: a squared length off by more was not written by it."""


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value) and len(set(value)) == len(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


META: dict[str, Callable[[Any], bool]] = {
    "task": lambda value: isinstance(value, str),
    "bodies": _names,
    "sub_task_names": _names,
    "joint_names": _names,
    "joints_n": _count,
    "actions_n": _count,
    "precision": lambda value: value in ("float32", "float64"),
}
"""What the values of ``meta.json`` must be."""


def _widths(value: Any) -> bool:
    return isinstance(value, dict) and all(_count(v) for v in value.values())


def check_meta(path: Path, meta: dict[str, Any]) -> None:
    """InputError for a key that is missing from ``meta.json`` or holds another kind of value."""
    for key, fits in META.items():
        if key not in meta:
            raise InputError(f"{path}: key '{key}' is missing; write the store again")
        if not fits(meta[key]):
            raise InputError(f"{path}: '{key}' is {str(meta[key])[:80]!r}, which no store says; write it again")
    if not _widths(signals := meta.get("signals", {})):
        raise InputError(f"{path}: 'signals' is {str(signals)[:80]!r}, which no store says; write it again")


def check_columns(path: Path, schema: pa.Schema, expected: pa.Schema) -> None:
    """InputError for a column that is missing or of another kind; a column of nulls alone may have no type."""
    for field in expected:
        if field.name not in schema.names:
            raise InputError(f"{path}: column {field.name} is missing; write the store again with write_store")
        found, wanted = _kind(schema.field(field.name).type), _kind(field.type)
        if found != wanted and not (found == "nothing" and field.nullable and field.name not in NEEDED):
            raise InputError(f"{path}: column {field.name} holds {found}, expected {wanted}; write the store again")


def _kind(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_dictionary(type_):
        return _kind(type_.value_type)
    if t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_):
        return f"lists of {_kind(type_.value_type)}"
    kinds = {
        "numbers": t.is_floating, "whole numbers": t.is_integer, "flags": t.is_boolean, "nothing": t.is_null,
        "texts": lambda x: t.is_string(x) or t.is_large_string(x),
    }  # fmt: skip
    return next((name for name, is_it in kinds.items() if is_it(type_)), str(type_))


def check_episodes(path: Path, table: pa.Table) -> None:
    """InputError for nulls, negative lengths, origins and sizes that are no three numbers in ``episodes.parquet``."""
    for name in NEEDED:
        if table[name].null_count:
            raise InputError(f"{path}: column {name} lacks {table[name].null_count} values; write the store again")
    if table.num_rows and pc.min(table["length"]).as_py() < 1:  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError(f"{path}: column length holds numbers below 1; write the store again")
    for name in ("origin_m", *(n for n in table.column_names if n.startswith("half_size_m."))):
        rows = [row for row in table[name].to_pylist() if row is not None]
        if any(len(row) != 3 or not all(v is not None and np.isfinite(v) for v in row) for row in rows):
            raise InputError(f"{path}: column {name} holds rows that are no three numbers; write the store again")


def check_attributes(path: Path, schema: pa.Schema) -> None:
    """InputError for a column of an attribute that holds none of the kinds that an attribute may be."""
    for field in schema:
        kinds = ("texts", "flags", "whole numbers", "numbers", "nothing")
        if field.name.startswith("attribute.") and _kind(field.type) not in kinds:
            raise InputError(
                f"{path}: column {field.name} holds {_kind(field.type)}, expected one of {', '.join(kinds)}"
            )


def check_frames(
    path: Path, bodies: tuple[str, ...], time_s: Float[np.ndarray, " T"], poses: Float[np.ndarray, "T N 7"]
) -> None:
    """InputError for stamps that are no numbers, or poses that are not finite and of unit quaternions.

    The writer leaves no such frame, valid or not, so this costs a pass over the data and no mask.
    """
    if not np.isfinite(time_s.sum()):
        raise InputError(f"{path}: column t_s holds NaN; the store was changed after it was written: write it again")
    q = poses[..., :4]
    unit = np.abs(np.einsum("tnk,tnk->tn", q, q) - 1) < OFF_UNIT
    if not (unit.all() and np.isfinite(poses.sum())):
        frame, body = np.argwhere(~(unit & np.isfinite(poses).all(axis=-1)))[0]
        raise InputError(
            f"{path}: pose.{bodies[body]} of frame {frame} is no unit quaternion and position; the store was changed "
            "after it was written: write it again"
        )
