"""Configurations that stores keep in meta.json: keys in which several agree, settings gathered over several calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxeval.io.store.store import Store
from jaxeval.io.store.write import write_meta
from jaxeval.types import Finding

Configuration = dict[str, Any]
NONE: Any = object()
"""Stands for a key that one of several lacks."""


def agreed(
    configurations: Sequence[tuple[Path, Mapping[str, Any]]], *, within: str = ""
) -> tuple[Configuration, list[Finding]]:
    """Keys and values in which the configurations of several sources agree, and a finding for every key that differs.

    ``configurations``: the path and the configuration of each, empty for a file that has none. Dictionaries agree
    key by key.
    """
    kept: Configuration = {}
    differ: list[Finding] = []
    for key in dict.fromkeys(key for _, configuration in configurations for key in configuration):
        values = [configuration.get(key, NONE) for _, configuration in configurations]
        if all(value == values[0] for value in values):
            kept[key] = values[0]
        elif all(isinstance(value, Mapping) for value in values):
            inner = [(path, value) for (path, _), value in zip(configurations, values, strict=True)]
            kept[key], more = agreed(inner, within=f"{within}{key}.")
            differ += more
        else:
            other = next(k for k, value in enumerate(values) if value != values[0])
            one, two = ("nothing" if v is NONE else json.dumps(v) for v in (values[0], values[other]))
            found = f"its configuration has {one} under {within}{key}, that of {configurations[other][0]} {two}"
            what = ("the same in all sources", "the key is left out")
            differ.append(Finding("configurations_differ", "info", str(configurations[0][0]), found, *what))
    return kept, differ


def gathered(before: Mapping[str, Any], now: Mapping[str, Any]) -> Configuration:
    """What was asked for in two calls that filled one store: each value once; ``first`` and ``episodes`` as one range.

    A setting that only one call gave has null for the other. Ranges that do not touch stay two: ``first`` and
    ``episodes`` are then lists.
    """
    before, now = ({k: json.loads(json.dumps(v)) for k, v in configuration.items()} for configuration in (before, now))
    asked, ranged = dict(before), "episodes" in before and "episodes" in now
    for key in dict.fromkeys([*before, *now]):
        one, two = before.get(key), now.get(key)
        if ranged and key in ("first", "episodes"):
            continue
        if one != two and not isinstance(one, dict) and not isinstance(two, dict):
            values = [*_values(one), *_values(two)]
            asked[key] = [v for k, v in enumerate(values) if v not in values[:k]]
        elif key not in before:
            asked[key] = two
    if ranged and (ranges := _joined([*_ranges(before), *_ranges(now)])) != _ranges(before):
        first, episodes = [a for a, _ in ranges], [b - a for a, b in ranges]
        alone = len(ranges) == 1
        asked |= {"first": first[0], "episodes": episodes[0]} if alone else {"first": first, "episodes": episodes}
    return asked


def add_configuration(store: Store, now: Mapping[str, Any]) -> None:
    """Note in a store's meta.json what a further call asked for; nothing is written where that is nothing new."""
    if not now:
        return
    asked = gathered(before := store.meta["configuration"], now)
    if asked != before:
        store.meta["configuration"] = asked
        write_meta(store.path / "meta.json", store.meta)


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _ranges(entry: Mapping[str, Any]) -> list[tuple[int, int]]:
    pairs = zip(_values(entry.get("first", 0)), _values(entry["episodes"]), strict=True)
    return [(first, first + n) for first, n in pairs]


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in as few ranges as can be."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((first, end))
    return joined
