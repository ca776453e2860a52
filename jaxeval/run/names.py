"""What a notebook calls: the same work as the command line's, on anything that holds episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxeval.io.in_memory import source_of
from jaxeval.io.reference import load_reference as read_reference
from jaxeval.io.spec import load_spec
from jaxeval.run.fit import fit_source
from jaxeval.run.score import Scores
from jaxeval.run.score import score as score_source
from jaxeval.types import Episode, InputError, Notes, Reference, TaskSpec


def fit(
    episodes: Any,
    spec: str | Path | TaskSpec | None = None,
    *,
    demonstrations_n: int | None = None,
    bins_n: int = 10,
    deviation: str = "se3_log",
) -> Reference:
    """Learn a reference from successful demonstrations; what was noticed stands in its ``notes``.

    ``episodes``: a list of episodes, a path, ``bundled:NAME``, a store or a source. ``spec``: the task, as the name of
    a known one, the path of a YAML file, or a TaskSpec; None: the task that the episodes name. ``demonstrations_n``:
    how many of those that count are used, None for all. InputError where none can be used.
    """
    named = spec.name if isinstance(spec, TaskSpec) else ""
    known = spec if isinstance(spec, TaskSpec) else None if spec is None else load_spec(spec)
    source = source_of(episodes, task=named or (known.name if known else ""))
    known = known or load_spec(source.task)
    made = fit_source(source, known, demonstrations_n=demonstrations_n, bins_n=bins_n, deviation=deviation)
    left_out = tuple(f"left out: {name}: {why}" for name, why in made.left_out)
    return dataclasses.replace(made.reference, notes=Notes((*left_out, *made.notes)))


def load_reference(path: str | Path) -> Reference:
    """The reference that `jaxeval fit` or `save_reference` wrote, with its notes; InputError where there is none."""
    reference, about = read_reference(path)
    left_out = (f"left out: {name}: {why}" for name, why in about.get("left_out", ()))
    return dataclasses.replace(reference, notes=Notes((*left_out, *about.get("notes", ()))))


def score(
    reference: Reference | str | Path | None,
    episodes: Any,
    metrics: str | Sequence[str] | None = None,
    *,
    spec: str | Path | TaskSpec | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    frames: bool = False,
    batch_n: int = 1024,
    progress: bool = False,
) -> Scores:
    """Scores of every episode, a row each: ``.columns``, ``.q``, ``.to_pandas()``, ``.notes``.

    ``reference``: a Reference or its path, None for metrics that need none. ``episodes``: as in :func:`fit`.
    ``metrics``: names of registered metrics (None: Q with a reference, without one stages of tasks whose spec has them
    and smoothness of others), or "all" for what the data allow. ``spec``: the task, where the package has none of that
    name: the path of a YAML file or a TaskSpec. ``settings``: Params by the name of their metric. ``out``: a folder for
    `scores.parquet`. InputError as :func:`jaxeval.run.score.score`.
    """
    learned = load_reference(reference) if isinstance(reference, (str, Path)) else reference
    task_spec = load_spec(spec) if isinstance(spec, (str, Path)) else spec
    source = source_of(
        episodes, task=learned.spec.name if learned is not None else "" if task_spec is None else task_spec.name
    )
    wanted = [metrics] if isinstance(metrics, str) else metrics
    how: dict[str, Any] = {"settings": settings, "out": out, "frames": frames, "batch_n": batch_n, "progress": progress}
    return score_source(learned, source, metrics=wanted, spec=task_spec, **how)


def score_episode(
    reference: Reference | str | Path | None,
    episode: Episode,
    metrics: str | Sequence[str] | None = None,
    *,
    spec: str | Path | TaskSpec | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The row of one episode, {column: value}; None where there is no number, and a status says why."""
    if not isinstance(episode, Episode):
        raise InputError(f"episode: found a {type(episode).__name__}, expected an Episode; `score` takes several")
    scores = score(reference, [episode], metrics, spec=spec, settings=settings)
    return {name: values[0] for name, values in scores.columns.items()}
