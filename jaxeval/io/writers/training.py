"""Demonstrations for learners: pairs of an observation and the action that followed it, flat, in one ``.npz`` file.

Arrays of the file: pairs of all episodes one after another, none padded (N pairs of E episodes).

    observation [N, O] float32    what the policy saw; the speed that it was told is one entry
    action [N, A] float32         what it did then
    speed [N] float32             the physical one, times nominal; NaN where unknown
    phase [N] int32               index of the phase; -1 where unknown
    first [E + 1] int64           episode k is the pairs first[k] to first[k + 1]
    episode_id [E]                text
    observation_mean, observation_std [O], action_mean, action_std [A]: float64, over all pairs
    meta                          JSON: format, task, source_hash, observation_layout (what each entry holds), hash
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.files import replacing
from jaxeval.io.store import Store
from jaxeval.types import Episode

FORMAT, FORMAT_VERSION = "jaxeval-training", 1
LAYOUT = "observation_layout"
"""Key of a store's configuration that says which entries of an observation hold what: name -> [first, last + 1]."""
CONSTANT = 1e-6
"""An entry whose standard deviation is no more than this (or than this times its mean) does not vary."""
ARRAYS = {
    "observation": (np.float32, 2),
    "action": (np.float32, 2),
    "speed": (np.float32, 1),
    "phase": (np.int32, 1),
    "first": (np.int64, 1),
    "observation_mean": (np.float64, 1),
    "observation_std": (np.float64, 1),
    "action_mean": (np.float64, 1),
    "action_std": (np.float64, 1),
}
"""Type and number of axes of the file's arrays; ``episode_id`` and ``meta`` are text."""

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile)
"""What NumPy and JSON raise on files that are not as expected."""


class TrainingPairs(NamedTuple):
    """Pairs of one episode: row t is the observation at frame t and the action that led from it to frame t + 1."""

    observation: Float[np.ndarray, "T-1 O"]
    action: Float[np.ndarray, "T-1 A"]
    speed: Float[np.ndarray, " T-1"]
    """Physical, times nominal; NaN where the episode does not say."""
    phase: Int[np.ndarray, " T-1"]
    """In which the action was chosen; -1 where the episode does not say."""
    done: Bool[np.ndarray, " T-1"]
    """True in the last row: no action follows it."""


class Statistics(NamedTuple):
    """Mean and (population) standard deviation of every entry."""

    mean: Float[np.ndarray, " n"]
    std: Float[np.ndarray, " n"]

    @property
    def constant(self) -> Bool[np.ndarray, " n"]:
        """Entries that do not vary, see ``CONSTANT``; they are shifted, not scaled."""
        return self.std <= CONSTANT * np.maximum(1.0, np.abs(self.mean))

    def normal(self, x: Any) -> Any:
        """``(x - mean) / std`` of ``[..., n]``, NumPy or JAX."""
        mean, scale = self._rows(x)
        return (x - mean) / scale

    def physical(self, x: Any) -> Any:
        """The inverse of ``normal``."""
        mean, scale = self._rows(x)
        return x * scale + mean

    def _rows(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        shape = (1,) * (x.ndim - 1) + (-1,)
        scale = np.where(self.constant, 1.0, self.std)
        return self.mean.astype(x.dtype).reshape(shape), scale.astype(x.dtype).reshape(shape)


class Windows(NamedTuple):
    """For each pair, row numbers of what a learner gets and of what it shall predict; no window leaves its episode."""

    history: Int[np.ndarray, "N H"]
    """Of observations, oldest first; before the episode's first, the first is repeated, as in ``policies.chunks``."""
    chunk: Int[np.ndarray, "N C"]
    """Of actions from now on; after the episode's last, the last is repeated."""
    real: Bool[np.ndarray, "N C"]
    """Which of them are no repetitions."""


@dataclass(frozen=True)
class TrainingSet:
    """What a training file holds; see this module's text."""

    observation: Float[np.ndarray, "N O"]
    action: Float[np.ndarray, "N A"]
    speed: Float[np.ndarray, " N"]
    phase: Int[np.ndarray, " N"]
    first: Int[np.ndarray, " E+1"]
    episode_id: tuple[str, ...]
    observation_statistics: Statistics
    action_statistics: Statistics
    layout: Mapping[str, slice]
    """Which entries of an observation hold what; empty where the source does not say."""
    meta: Mapping[str, Any]

    @property
    def done(self) -> Bool[np.ndarray, " N"]:
        """True at the last pair of every episode."""
        return np.isin(np.arange(len(self.action)), self.first[1:] - 1)

    def windows(self, *, history_n: int, chunk_n: int) -> Windows:
        """The windows of every pair: ``observation[history]`` is [N, H, O], ``action[chunk]`` is [N, C, A]."""
        now = np.arange(len(self.action))[:, None]
        episode = np.searchsorted(self.first, now, side="right")
        last = self.first[episode] - 1
        ahead = now + np.arange(chunk_n)
        history = np.maximum(now + np.arange(1 - history_n, 1), self.first[episode - 1])
        return Windows(history, np.minimum(ahead, last), ahead <= last)


def training_pairs(episode: Episode) -> TrainingPairs:
    """The observation at every frame but the last, and the action taken there.

    ``Episode.actions`` has in row t what led to frame t, so the pair of frame t has ``observation[t]`` and
    ``actions[t + 1]``. Speeds and phases come along where they are known.

    Raises:
        InputError: the episode holds no observations or no actions, has under two frames, invalid frames or numbers
            that are not finite, or an action that led to its first frame.
    """
    name, e = episode.episode_id or "episode", episode
    signals = e.signals or {}
    if "observation" not in signals:
        raise InputError(
            f"{name}: it holds no observations, expected what the policy saw under signals['observation']; "
            "run the rollout with observations=true"
        )
    if e.actions is None:
        raise InputError(f"{name}: it holds no actions, expected one row a frame; record what the policy did")
    if e.n_frames < 2:
        raise InputError(f"{name}: it has {e.n_frames} frame, expected at least 2; leave it out")
    if np.isfinite(e.actions[0]).any():
        raise InputError(
            f"{name}: an action led to its first frame, expected NaN there, as row t is what led to frame t; "
            "move the actions one row down, or give the whole episode"
        )
    observation, action = np.asarray(signals["observation"]), np.asarray(e.actions)
    if observation.ndim != 2 or len(observation) != e.n_frames or len(action) != e.n_frames:
        raise InputError(
            f"{name}: observations have shape {observation.shape} and actions {action.shape}, expected a row for each "
            f"of {e.n_frames} frames; write the arrays so"
        )
    observation, action = observation[:-1], action[1:]
    bad = ~(
        np.isfinite(observation).all(axis=1) & np.isfinite(action).all(axis=1) & e.frame_valid[:-1] & e.frame_valid[1:]
    )
    if bad.any():
        raise InputError(
            f"{name}: at frame {int(np.argmax(bad))} the observation, or the action on it, is not finite or not valid, "
            f"and so at {int(bad.sum())} frames; expected none; leave this episode out"
        )
    n = len(action)
    phase = np.asarray(signals["phase"][:-1]) if "phase" in signals else np.full(n, -1)
    return TrainingPairs(
        observation=observation.astype(np.float32),
        action=action.astype(np.float32),
        speed=np.full(n, np.nan if e.speed is None else e.speed, np.float32),
        phase=phase.astype(np.int32),
        done=np.arange(n) == n - 1,
    )


def shown(episodes: Iterable[Episode], left_out: list[tuple[str, str]]) -> Iterator[Episode]:
    """Episodes that succeeded; ids of the others, and why they are no demonstrations, are added to ``left_out``."""
    for e in episodes:
        if e.success_at_end:
            yield e
        else:
            why = "it is not known whether it succeeded" if e.success_at_end is None else "it did not succeed"
            left_out.append((e.episode_id, why))


def layout_of(stores: Sequence[Any]) -> dict[str, slice]:
    """Which entries of an observation hold what, as stores' configurations say under ``LAYOUT``; empty if none does.

    Raises:
        InputError: they differ.
    """
    layouts = [(getattr(s, "meta", None) or {}).get("configuration", {}).get(LAYOUT) for s in stores]
    if any(t != layouts[0] for t in layouts):
        raise InputError(
            f"{stores[0].path} and others: their observations are laid out differently, expected one layout; "
            "export the stores of one embodiment"
        )
    return {name: slice(*ends) for name, ends in (layouts[0] or {}).items()} if layouts else {}


def export_training(
    store: Store, out: str | Path, *, failures: bool = False, overwrite: bool = False
) -> tuple[TrainingSet, list[tuple[str, str]]]:
    """Write a store's demonstrations to ``out``; returns what was written, and (id, reason) of the episodes left out.

    With ``failures``, episodes that did not succeed are written too.

    Raises:
        InputError: no episode is left, one lacks observations or actions, or ``out`` cannot be written.
    """
    left_out: list[tuple[str, str]] = []
    episodes = store.iter_episodes() if failures else shown(store.iter_episodes(), left_out)
    layout, about = layout_of([store]), {"source_hash": store.hash}
    return write_training(out, episodes, task=store.task, layout=layout, about=about, overwrite=overwrite), left_out


def write_training(
    out: str | Path,
    episodes: Iterable[Episode],
    *,
    task: str,
    layout: Mapping[str, slice] | None = None,
    about: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> TrainingSet:
    """Write the pairs of all ``episodes`` to ``out``, all or nothing; ``about`` is kept in its JSON.

    Raises:
        InputError: no episode, episodes of different widths, one that ``training_pairs`` refuses, a layout that does
            not fit, or ``out`` exists or cannot be written.
    """
    out = Path(out)
    if out.exists() and not overwrite:
        raise InputError(f"{out}: it exists already; give overwrite=true or choose another path")
    if out.exists() and _format_of(out) != FORMAT:
        raise InputError(f"{out}: it is no training file, so it is not overwritten; choose another path")
    pairs: list[TrainingPairs] = []
    names: list[str] = []
    for e in episodes:
        made = training_pairs(e)
        widths = made.observation.shape[1], made.action.shape[1]
        if pairs and widths != (want := (pairs[0].observation.shape[1], pairs[0].action.shape[1])):
            raise InputError(
                f"{e.episode_id}: its observations and actions have {widths[0]} and {widths[1]} entries, expected "
                f"{want[0]} and {want[1]} as in the first episode; export episodes of one embodiment"
            )
        pairs.append(made)
        names.append(e.episode_id)
    if not pairs:
        raise InputError(f"{out}: there is no demonstration to write, expected at least 1; check which succeeded")
    wide = pairs[0].observation.shape[1]
    layout = dict(layout or {})
    if layout and (laid_out := max(s.stop for s in layout.values())) != wide:
        raise InputError(
            f"{out}: the layout is of {laid_out} entries, expected {wide} as in the observations; write the store again"
        )
    arrays: dict[str, np.ndarray] = {
        name: np.concatenate([getattr(p, name) for p in pairs]) for name in ("observation", "action", "speed", "phase")
    }
    arrays["first"] = np.cumsum([0, *(len(p.action) for p in pairs)], dtype=np.int64)
    for name in ("observation", "action"):
        mean, std = statistics([getattr(p, name) for p in pairs])
        arrays |= {f"{name}_mean": mean, f"{name}_std": std}
    arrays["episode_id"] = np.array(names)
    meta = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": task,
        "episodes_n": len(pairs),
        "pairs_n": len(arrays["action"]),
        LAYOUT: {name: [s.start, s.stop] for name, s in layout.items()},
        **(about or {}),
        "hash": _hash(arrays),
    }
    with replacing(out) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, meta=np.array(json.dumps(meta)), **arrays)  # pyright: ignore[reportArgumentType]
    return _set(arrays, meta)


def statistics(parts: Sequence[Float[np.ndarray, "_ n"]]) -> Statistics:
    """Of all rows of all parts, in float64."""
    rows_n = sum(map(len, parts))
    mean = sum((p.sum(axis=0, dtype=np.float64) for p in parts), np.zeros(parts[0].shape[1])) / rows_n
    square = sum((((p - mean) ** 2).sum(axis=0) for p in parts), np.zeros(parts[0].shape[1]))
    return Statistics(mean, np.sqrt(square / rows_n))


def load_training(path: str | Path) -> TrainingSet:
    """Read a file that ``write_training`` wrote; its hash is checked.

    Raises:
        InputError: it is missing, damaged, another kind of file, or of another version.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; write it with jaxeval convert to=training")
    refuse_lfs_pointer(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*ARRAYS, "episode_id")}
            meta = json.loads(str(file["meta"]))
        fits = meta["format"] == FORMAT and all(
            (arrays[name].dtype, arrays[name].ndim) == kind for name, kind in ARRAYS.items()
        )
        version, said = meta["format_version"], meta["hash"]
    except UNREADABLE as error:
        raise InputError(f"{path}: it is damaged, or no training file of jaxeval's; write it again") from error
    if not fits:
        raise InputError(f"{path}: its arrays are not those of a training file of jaxeval's; write it again")
    if version != FORMAT_VERSION:
        raise InputError(f"{path}: its format_version is {version}, expected {FORMAT_VERSION}; write it again")
    if _hash(arrays) != said:
        raise InputError(f"{path}: its arrays are not those that were written (their hash differs); copy it again")
    return _set(arrays, meta)


def _set(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> TrainingSet:
    return TrainingSet(
        **{name: arrays[name] for name in ("observation", "action", "speed", "phase", "first")},
        episode_id=tuple(arrays["episode_id"].tolist()),
        observation_statistics=Statistics(arrays["observation_mean"], arrays["observation_std"]),
        action_statistics=Statistics(arrays["action_mean"], arrays["action_std"]),
        layout={name: slice(*ends) for name, ends in meta[LAYOUT].items()},
        meta=meta,
    )


def _hash(arrays: Mapping[str, np.ndarray]) -> str:
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name}:{array.dtype.str}:{array.shape};".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _format_of(path: Path) -> str | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            return json.loads(str(file["meta"]))["format"]
    except UNREADABLE:
        return None
