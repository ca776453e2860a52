"""What a multirun calls its folders, and what each run keeps of what was swept, for `jaxeval gather`."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LONGEST_N = 80
"""Characters of a folder's name."""
SWEPT = "sweep.json"
"""The file beside a run's results that says what was swept."""
given: list[str] = []
"""The words of the command line, as Hydra got them."""


def swept(overrides: Sequence[str], words: Sequence[str]) -> dict[str, str]:
    """Of what a run of a multirun was told, that in which runs may differ, key -> value.

    What the command line gives one value is left out; all else has several, there or in the sweeper's settings.

    >>> swept(["a.b=1", "reference=/x/r", "bins_n=5"], ["a.b=1,2", "reference=/x/r"])
    {'a.b': '1', 'bins_n': '5'}
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides([w for w in words if not w.startswith("-")])
    fixed = {o.key_or_group for o in parsed if not o.is_sweep_override()}
    assigned = ((key.lstrip("+"), value) for key, _, value in (o.partition("=") for o in overrides))
    own = ((key, value) for key, value in assigned if key not in fixed and not key.startswith("hydra"))
    return {key: re.sub(r"\\(.)", r"\1", value) for key, value in own}


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """The last part of every dotted key; the whole where two would be alike.

    >>> short_keys(["metric.z_0", "stages.near_m", "tracking.near_m"])
    {'metric.z_0': 'z_0', 'stages.near_m': 'stages.near_m', 'tracking.near_m': 'tracking.near_m'}
    """
    last = Counter(key.rpartition(".")[2] for key in keys)
    return {key: key if last[name := key.rpartition(".")[2]] > 1 else name for key in keys}


def folder_name(settings: Mapping[str, str]) -> str:
    """A short name for a run, of the keys and values that were swept; distinct ones have distinct names.

    Paths are reduced to their last part and odd characters replaced; a name that lost something by that ends in a hash
    of the whole.

    >>> folder_name({"metric.sigma_pin_m": "0.004", "metric.penalty": "squared"})
    'sigma_pin_m=0.004,penalty=squared'
    >>> folder_name({"reference": "/data/runs/first"})
    'reference=first-4a6a2f'
    """
    names = short_keys(list(settings))
    whole = ",".join(f"{names[key]}={value}" for key, value in settings.items())
    plain = ",".join(f"{names[key]}={_plain(value)}" for key, value in settings.items())
    if plain == whole and len(plain) <= LONGEST_N:
        return plain or "run"
    digest = hashlib.sha256(",".join(f"{key}={value}" for key, value in settings.items()).encode()).hexdigest()[:6]
    return f"{plain[: LONGEST_N - 7]}-{digest}"


def _plain(value: str) -> str:
    """A value as part of a folder's name."""
    last = value.strip("'\"").rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.+-]+", "_", last).strip("_") or "_"


def register_resolvers() -> None:
    """``${swept:}``: the folder of a run; ``${swept_rollout:}``: its task, and what was swept beyond what stores hold.

    A rollout's store is of one task, embodiment and policy, whose folders are made below (`cli`).
    """
    from omegaconf import OmegaConf

    def name(*, _root_: Any) -> str:
        return folder_name(swept(list(_root_.hydra.overrides.task), given))

    def rollout_name(*, _root_: Any) -> str:
        settings = swept(list(_root_.hydra.overrides.task), given)
        rest = {k: v for k, v in settings.items() if k not in IN_FOLDERS and k not in ADDED}
        task = _root_.get("task")
        task = task["name"] if task else _plain(str(_root_.get("own_task") or _root_.get("env_id") or "rollout"))
        return ",".join([task, *([folder_name(rest)] if rest else [])])

    def floor_below(threshold: Any) -> float:
        """SPECTRA's floor: 3 mm, or three quarters of a threshold that is lower than 4 mm."""
        return min(0.003, 0.75 * float(threshold))

    OmegaConf.register_new_resolver("floor_below", floor_below, replace=True)
    OmegaConf.register_new_resolver("swept", name, replace=True)
    OmegaConf.register_new_resolver("swept_rollout", rollout_name, replace=True)


IN_FOLDERS = ("task", "own_task", "env_id", "policy", "own_policy", "embodiment", "robot")
"""Settings of a rollout that are its store's folder."""
ADDED = (
    "speed", "told_speed", "speed_range", "episodes", "first", "tilt_deg", "fault", "processes", "batch_n", "frames",
)  # fmt: skip
"""Settings of a rollout of which a store takes in one after the other: no sweep makes another store for them."""


def keep_swept(folder: Path, verb: str) -> None:
    """Write what was swept beside a run's results."""
    from hydra.core.hydra_config import HydraConfig

    from jaxeval.io.files import write_json

    settings = swept(list(HydraConfig.get().overrides.task), given)
    settings = {k: v for k, v in settings.items() if verb != "rollout" or k not in ADDED}
    write_json(folder / SWEPT, {"verb": verb, "swept": {k: value_of(v) for k, v in settings.items()}})


def value_of(text: str) -> Any:
    """A finite number where it is written as one, else the text.

    >>> value_of("0.004"), value_of("3"), value_of("hinge"), value_of("inf")
    (0.004, 3, 'hinge', 'inf')
    """
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text.strip("'\"")
