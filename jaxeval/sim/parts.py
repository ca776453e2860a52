"""What makes a rollout resumable: every finished batch is a small store of its own, until all are one store."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError
from jaxeval.io.store import Compression, Store, append_store, open_store, write_store
from jaxeval.io.store.configurations import add_configuration
from jaxeval.types import Episode


@dataclass(frozen=True)
class Outcome:
    """How one episode went: a line of ``OUT/rollout.jsonl``. ``seconds``: wall time, NaN where it is not known."""

    episode_id: str
    success: bool
    frames: int
    seconds: float
    failed: str
    group: str = ""


@dataclass(frozen=True)
class Parts:
    """``OUT.parts/``, which holds the finished batches until ``OUT`` takes them all in; get one from `held`.

    A part appears whole, by one rename, and holds its episodes' outcomes too. ``identity`` is what all episodes of the
    store depend on; it is kept beside the parts, and in the store under ``configuration.rollout``.
    """

    out: Path
    identity: Mapping[str, Any]

    @classmethod
    @contextmanager
    def held(cls, out: Path, identity: Mapping[str, Any]) -> Iterator[Parts]:
        """Hold ``out`` for this process, as long as it lives, and clear what a killed one left half written.

        Raises:
            InputError: ``out`` cannot be written, is being written, or its parts depend on another `identity`.
        """
        parts = cls(out, json.loads(json.dumps(identity)))
        parts.stored()  # refuses another rollout's store, before anything is made beside it
        try:
            parts.folder.mkdir(parents=True, exist_ok=True)
            lock = (parts.folder / "lock").open("w", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{out}: cannot write there ({error.strerror}); choose another folder") from error
        with lock:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # no such locks on Windows
                pass
            except OSError as error:
                raise InputError(f"{out}: another rollout is writing it; wait, or choose another folder") from error
            for half in (*out.parent.glob(f".{out.name}.*.writing"), *parts.folder.glob(".*.writing")):
                shutil.rmtree(half, ignore_errors=True)
            parts._agree()
            try:
                yield parts
            finally:
                if not parts._kept():  # all are in the store, or none was made
                    shutil.rmtree(parts.folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where the parts are."""
        return self.out.with_name(self.out.name + ".parts")

    def finished(self) -> set[str]:
        """Ids of the episodes that parts hold."""
        return {outcome.episode_id for path in self._kept() for outcome in _outcomes_of(path)}

    def keep(self, made: Sequence[tuple[Episode, Outcome]]) -> None:
        """Write a batch, all or nothing."""
        names = "\n".join(outcome.episode_id for _, outcome in made)
        write_store(
            self.folder / hashlib.sha256(names.encode()).hexdigest()[:16],
            [episode for episode, _ in made],
            task=self.identity["task"],
            precision="float64",
            configuration={"outcomes": [dataclasses.asdict(outcome) for _, outcome in made]},
            overwrite=True,
            compression="none",
            as_they_are=True,
        )

    def stored(self) -> set[str]:
        """Ids of the episodes that ``out`` has already; InputError where it is another rollout's."""
        if not self._begun():
            return set()
        store = open_store(self.out)
        if store.task != self.identity["task"]:
            raise InputError(
                f"{self.out}: it holds episodes of '{store.task}', not of '{self.identity['task']}'; "
                "choose another folder"
            )
        self._same(self.out, store.meta["configuration"].get("rollout"))
        return set(store.column("episode_id").tolist())

    def succeeded(self, ids: Collection[str]) -> int:
        """How many of these episodes are finished and succeeded, in the store or beside it."""
        wins = {o.episode_id for path in self._kept() for o in _outcomes_of(path) if o.success}
        if self._begun():
            store = open_store(self.out)
            columns = (store.column(c).tolist() for c in ("episode_id", "success_at_end"))
            wins |= {name for name, success in zip(*columns, strict=True) if success}
        return len(wins & set(ids))

    def collect(
        self, ids: Sequence[str], configuration: dict[str, Any] | None, compression: Compression
    ) -> tuple[Store, dict[str, Outcome]]:
        """Take these episodes into ``out``, in this order, and remove them; the outcomes of all of its episodes.

        A part with episodes that were not asked for this time stays, for a rollout that asks for them again.
        """
        finished = self._read(ids)
        if self._begun():
            add_configuration(append_store(self.out, finished), configuration or {})
        else:
            if self.out.exists():
                self.out.rmdir()
            kept = {**(configuration or {}), "rollout": self.identity}
            write_store(self.out, finished, task=self.identity["task"], configuration=kept, compression=compression)
        store = open_store(self.out)
        outcomes = self._outcomes(store)
        for path in self._kept():
            if all(outcome.episode_id in outcomes for outcome in _outcomes_of(path)):
                shutil.rmtree(path.parent)
        return store, outcomes

    def _read(self, ids: Sequence[str]) -> Iterator[Episode]:
        """Episodes of the parts in the order of ``ids``; a part is read once for a run of episodes that it holds."""
        where = {o.episode_id: (path, k) for path in self._kept() for k, o in enumerate(_outcomes_of(path))}
        open_path, episodes = None, []
        for name in ids:
            path, k = where[name]
            if path != open_path:
                open_path, episodes = path, open_store(path.parent).read()
            yield episodes[k]

    def _begun(self) -> bool:
        """Whether ``out`` is there and not an empty folder, as a multirun makes it."""
        return self.out.exists() and not (self.out.is_dir() and not any(self.out.iterdir()))

    def _outcomes(self, store: Store) -> dict[str, Outcome]:
        """Outcomes of a store's episodes by id, those of the parts among them; written beside its tables."""
        path = store.path / "rollout.jsonl"
        known = [Outcome(**json.loads(line)) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []
        known += [outcome for part in self._kept() for outcome in _outcomes_of(part)]
        lines = {outcome.episode_id: outcome for outcome in known}
        columns = (store.column(c).tolist() for c in ("episode_id", "success_at_end", "length", "group"))
        outcomes = {
            name: lines.get(name) or Outcome(name, bool(success), length, float("nan"), "", group)
            for name, success, length, group in zip(*columns, strict=True)
        }
        half = path.with_suffix(".writing")
        half.write_text("".join(json.dumps(dataclasses.asdict(o)) + "\n" for o in outcomes.values()), encoding="utf-8")
        half.rename(path)
        return outcomes

    def _kept(self) -> list[Path]:
        return sorted(self.folder.glob("*/meta.json"))

    def _agree(self) -> None:
        path = self.folder / "setting.json"
        if path.is_file() and self._kept():
            self._same(path, json.loads(path.read_text("utf-8")))
            return
        half = path.with_suffix(".writing")
        half.write_text(json.dumps(self.identity) + "\n", encoding="utf-8")
        half.rename(path)

    def _same(self, where: Path, found: Any) -> None:
        if not isinstance(found, dict):
            raise InputError(f"{where}: it does not say how its episodes were run, as expected; choose another folder")
        for key, value in self.identity.items():
            if found.get(key) != value:
                raise InputError(
                    f"{where}: its episodes were run with {key} {found.get(key)!r}, not {value!r}; choose another "
                    "folder or the same setting"
                )


def _outcomes_of(meta: Path) -> list[Outcome]:
    """Of a part's episodes, in order, from its ``meta.json``."""
    kept = json.loads(meta.read_text("utf-8"))["configuration"]
    return [Outcome(**outcome) for outcome in kept.get("outcomes", [kept])]  # [kept]: a part of one episode, as once
