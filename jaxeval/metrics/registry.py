"""The one list of metrics: names, settings, what each needs and measures, and what its columns mean.

A metric is registered once, by :func:`register` or by an entry point of the group ``jaxeval.metrics``. It is then known
to `jaxeval score`, its settings on the command line, `scores.parquet`, `agree`, `compare` and the report. Names, types,
units, directions and meanings of columns are read from here and stand nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Array, Int

from jaxeval.align import Alignment
from jaxeval.metrics.status import SENTENCES
from jaxeval.types import STATIC, EpisodeBatch, InputError, Reference, TaskSpec, pytree

GROUP = "jaxeval.metrics"
"""Entry-point group under which an installed package offers its metrics: the object is a :class:`Metric`."""
FRAME = "frame."
"""What `measure` returns under this prefix has a value a frame, and is kept only where frames are asked for."""
KINDS = ("number", "count", "truth", "text", "vector", "status")
DIRECTIONS = ("higher", "lower")

Measured = dict[str, Any]
"""What `measure` returns: arrays with the episodes as their first axis, by column name.

A column whose name holds ``<label>`` has a second axis, one entry for each of that label's names (see :class:`Column`).
Arrays that no column names are allowed; a column's ``words`` may read them, and so may metrics that come ``after``.
"""


@dataclass(frozen=True)
class Column:
    """One column of `scores.parquet`, or a family: ``<label>`` in the name stands for each of the label's names.

    Labels: ``pair`` and ``sub_task`` of the reference, ``body`` of those read, and those that ``Needs.labels`` adds.

    ``kind``: number, null where it is not finite; count, a whole number, null where it is negative; truth, null where
    it is negative; text; vector, a list of numbers; status, text that says why there is no number. ``unit`` as people
    write it, "" for none. ``direction``: which is better, "higher" or "lower", None where neither is. ``meaning``: one
    line. ``short``: title in the printed table of groups, "" to leave the column out of it. ``of``: a text column holds
    an index into the names of this label. ``sentences``: a status column holds a code, these are its sentences, those
    of `metrics.status` if they are not given.
    ``words``: makes a text or status column from everything that was measured, None to leave it out. ``always``: told
    of episodes too whose tracking is insufficient for judging them.
    """

    name: str
    kind: str = "number"
    unit: str = ""
    direction: str | None = None
    meaning: str = ""
    short: str = ""
    of: str = ""
    sentences: Mapping[int, str] | None = None
    words: Callable[[Mapping[str, np.ndarray], Facts], Sequence[str | None] | None] | None = None
    always: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"column {self.name}: kind is '{self.kind}'; expected one of {', '.join(KINDS)}")
        if self.direction not in (None, *DIRECTIONS):
            raise ValueError(f"column {self.name}: direction is '{self.direction}'; expected higher, lower or None")


@dataclass(frozen=True)
class Recorded:
    """What a source holds, as far as a metric may ask before it measures. ``where`` names it in messages."""

    where: str
    task: str
    bodies: tuple[str, ...]
    joint_names: tuple[str, ...]
    signals: tuple[str, ...]
    reference: Reference | None
    configuration: tuple[Mapping[str, Any], ...] = ()  # of the stores, as they were written
    joints_differ: str = ""  # why joint_names is empty though joints were recorded
    spec: TaskSpec | None = None  # of the task: given, the reference's, or one that the package has


@dataclass(frozen=True)
class Needs:
    """The inputs that a metric asks for (bodies, signals, joints, reference), and constants made once for all batches.

    ``bodies``, ``signals``: names, in the order in which `measure` sees them. ``joints``: recorded joints come along.
    ``reference``: a reference and the alignment with it must be there (they come along wherever they are).
    ``alignment``: without a reference, the alignment with the sub-tasks of ``Recorded.spec`` comes along.
    ``after``: metrics whose measurements of the same batch it reads. ``robot``, ``constants``: pytrees handed to
    `measure` in its context. ``labels``: names for ``<label>`` in columns. ``skipped``: relations that cannot be
    measured; ``notes``: that and whatever else is to be said, a sentence each.
    """

    bodies: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    joints: bool = False
    reference: bool = False
    alignment: bool = False
    after: tuple[str, ...] = ()
    robot: Any = None
    constants: Any = None
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@pytree
class Context:
    """What `measure` may use beside the batch and its Params; a pytree, static where marked.

    ``aligned``: sub-tasks and progress bins of the batch, None where there is neither a reference nor
    ``Needs.alignment``. ``measured``: what the metrics of ``Needs.after`` measured of this batch. ``frames``: whether
    values of frames (FRAME) will be kept.
    """

    aligned: Alignment | None = None
    reference: Reference | None = None
    robot: Any = None
    constants: Any = None
    measured: dict[str, Any] = field(default_factory=dict)
    length: Int[Array, " B"] | None = None  # frames of each episode, the rest of its row is padding
    frames: bool = field(default=False, metadata=STATIC)


@dataclass(frozen=True)
class Facts:
    """What is at hand where measurements become columns: ``context`` without a batch, and names by label."""

    context: Context
    labels: Mapping[str, tuple[str, ...]]
    refused: Sequence[str | None]


Measure = Callable[[EpisodeBatch, Context, Any], Measured]


@dataclass(frozen=True)
class Metric:
    """One metric, or a family measured together.

    ``Params``: a dataclass (a pytree, unless ``host``) with defaults for all fields and, if it likes, ``check()`` that
    returns itself or raises ValueError in one sentence; its fields are the settings ``<name>.<field>``.
    ``needs``: a :class:`Needs`, or a function of (:class:`Recorded`, params) that returns one or raises InputError
    saying what the recording lacks. ``measure``: pure; (batch [B, T, ...], context, params) -> :data:`Measured`; jitted
    by the caller unless ``host``, which runs it on NumPy arrays. ``section``: where the report tells of it; a section
    that the report does not know gets a table and a histogram by group. ``settings``: where the settings stand on the
    command line, if not under ``name``.
    """

    name: str
    Params: type
    needs: Needs | Callable[[Recorded, Any], Needs]
    measure: Measure
    columns: tuple[Column, ...]
    section: str
    host: bool = False
    settings: str = ""

    @property
    def block(self) -> str:
        """Where its settings stand on the command line."""
        return self.settings or self.name

    def needs_of(self, recorded: Recorded, params: Any) -> Needs:
        """What it needs of a recording; InputError where that is not to be had, in one sentence."""
        needs = self.needs(recorded, params) if callable(self.needs) else self.needs
        if needs.reference and recorded.reference is None:
            raise InputError(
                f"metrics: {self.name} needs a reference, found none; "
                f"fit one with `jaxeval fit` and give reference=PATH, or leave {self.name} out",
                code="no_reference",
                key=self.name,
            )
        for what, wanted, there in (
            ("body", needs.bodies, recorded.bodies),
            ("signal", needs.signals, recorded.signals),
        ):
            if absent := [n for n in wanted if n not in there]:
                raise InputError(
                    f"{recorded.where}: no {what} {', '.join(absent)}; it has {', '.join(there) or 'none'}; "
                    f"record what is missing or leave {self.name} out of metrics",
                    code=f"no_{what}",
                    key=absent[0],
                )
        if needs.joints and not recorded.joint_names:
            raise InputError(
                f"{recorded.where}: {self.name} needs joints, found none that are named; "
                f"record them or leave {self.name} out of metrics",
                code="no_joints",
                key=self.name,
            )
        return needs


# -------------------------------------------------------------------------------------------------------- the registry


_REGISTERED: dict[str, Metric] = {}
_ORDER = ("geometric", "smoothness", "kinematic", "tracking", "stages", "grasp")
"""Order of the package's own in tables and files; others follow by name."""


def register(metric: Metric) -> Metric:
    """Add a metric for this process; ValueError if another has its name. Returns it, so that it may be assigned."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", metric.name):
        raise ValueError(f"metric name is '{metric.name}'; expected lower-case letters, digits and _, a letter first")
    there = _REGISTERED.get(metric.name) or _offered()[0].get(metric.name)
    if there is not None and there is not metric:
        raise ValueError(f"a metric '{metric.name}' is registered already; give yours another name")
    _REGISTERED[metric.name] = metric
    return metric


K = TypeVar("K")


def offered(group: str, kind: type[K]) -> tuple[dict[str, K], dict[str, str]]:
    """What installed packages offer under an entry-point group, by its ``name``; by entry point why one is refused.

    The objects are of one ``kind``. One that cannot be loaded, is of another kind or has a name that another has costs
    itself alone.
    """
    out: dict[str, K] = {}
    refused: dict[str, str] = {}
    for point in sorted(entry_points(group=group), key=lambda p: p.name):
        try:
            found = point.load()
        except Exception as error:
            why = (
                f"cannot be loaded ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no word'})"
            )
        else:
            name = str(getattr(found, "name", point.name))
            if isinstance(found, kind) and name not in out:
                out[name] = found
                continue
            why = f"is a {type(found).__name__}, expected a {kind.__module__}.{kind.__qualname__}"
            if isinstance(found, kind):
                why = f"is a second {kind.__name__.lower()} '{name}', expected another name"
        refused[point.name] = (
            f"entry point {group}: {point.name} = {point.value} {why}; correct that package or remove it"
        )
    return out, refused


@cache
def _offered() -> tuple[dict[str, Metric], dict[str, str]]:
    return offered(GROUP, Metric)


def all_metrics() -> dict[str, Metric]:
    """Every metric there is, by name: the package's own first, in a fixed order."""
    found = _offered()[0] | _REGISTERED
    place = {name: i for i, name in enumerate(_ORDER)}
    return {name: found[name] for name in sorted(found, key=lambda n: (place.get(n, len(_ORDER)), n))}


def refused_metrics() -> dict[str, str]:
    """Of installed packages' metrics that cannot be used: name of the entry point -> why, a sentence."""
    return _offered()[1]


def metric_named(name: str) -> Metric:
    """The metric of that name; InputError lists those there are."""
    found = all_metrics()
    if name not in found and name in refused_metrics():
        raise InputError(f"metrics: {refused_metrics()[name]}", code="no_metric", key=name)
    if name not in found:
        raise InputError(
            f"metrics: no metric '{name}'; expected any of {', '.join(found)}; correct the name",
            code="no_metric",
            key=name,
        )
    return found[name]


def described(name: str, more: Iterable[Column] = ()) -> Column | None:
    """The description of a column of `scores.parquet` by its full name (``cost.cubeA | cubeB``), None if unknown."""
    exact, patterns = _index()
    if name in exact:
        return exact[name]
    for column in more:
        if column.name == name:
            return column
    return next((column for pattern, column in patterns if pattern.fullmatch(name)), None)


def _index() -> tuple[dict[str, Column], list[tuple[re.Pattern[str], Column]]]:
    columns = [c for metric in all_metrics().values() for c in metric.columns]
    exact = {c.name: c for c in columns if "<" not in c.name}
    patterns = [
        (re.compile(re.sub(r"<\w+>", "(.+)", re.escape(c.name).replace(r"\<", "<").replace(r"\>", ">"))), c)
        for c in columns
        if "<" in c.name
    ]
    return exact, sorted(patterns, key=lambda p: -len(p[1].name))


# ------------------------------------------------------------------------------------- from measurements to columns


def label_of(column: Column) -> str:
    """The label in a column's name, "" for none."""
    found = re.search(r"<(\w+)>", column.name)
    return found[1] if found else ""


def columns_of(metric: Metric, measured: Mapping[str, np.ndarray], facts: Facts) -> dict[str, list[Any]]:
    """Columns of `scores.parquet` by full name, in row order; those that were not measured are left out.

    ``facts.refused`` says of each episode why it is not to be judged, or None: then its values are null and its
    statuses say that.
    """
    out: dict[str, list[Any]] = {}
    for group in _families(metric.columns):
        label = label_of(group[0])
        if not label:
            for column in group:
                if (values := _values(column, measured, facts)) is not None:
                    out[column.name] = values
            continue
        for i, name in enumerate(facts.labels.get(label, ())):
            for column in group:
                if (values := _values(column, measured, facts, i)) is not None:
                    out[column.name.replace(f"<{label}>", name)] = values
    return out


def _families(columns: tuple[Column, ...]) -> Iterable[list[Column]]:
    """Runs of neighbouring columns of one label: what belongs to one name stays together."""
    run: list[Column] = []
    for column in columns:
        if run and label_of(column) != label_of(run[0]):
            yield run
            run = []
        run.append(column)
    if run:
        yield run


def _values(column: Column, measured: Mapping[str, np.ndarray], facts: Facts, i: int | None = None) -> list[Any] | None:
    refused = facts.refused
    if column.always:
        refused = [None if r is None or r.startswith(TRACKING) else r for r in refused]
    if column.words is not None:
        if (words := column.words(measured, facts)) is None:
            return None
        if column.kind == "status":
            return [r or w for r, w in zip(refused, words, strict=True)]
        return [None if r else w for r, w in zip(refused, words, strict=True)]
    if column.name not in measured:
        return None
    values = np.asarray(measured[column.name])
    values = values if i is None else values[:, i]
    if column.kind == "status":
        sentences = column.sentences or SENTENCES
        return [r or sentences[int(v)] for r, v in zip(refused, values, strict=True)]
    known = np.array([r is None for r in refused], bool)
    if column.kind == "number":
        values = np.asarray(values, float)
        known &= np.isfinite(values)
    elif column.kind == "vector":
        values = np.asarray(values, float)
        known &= np.isfinite(values).all(axis=-1)
    elif values.dtype != bool:
        known &= values >= 0
    if column.kind == "text":
        names = facts.labels.get(column.of, ())
        return [names[int(v)] if k else None for v, k in zip(values, known, strict=True)]
    if column.kind == "truth":
        return [bool(v) if k else None for v, k in zip(values, known, strict=True)]
    return [v if k else None for v, k in zip(values.tolist(), known, strict=True)]


TRACKING, INPUT = "insufficient tracking", "bad input"
"""How the two kinds of refusal begin."""
