"""What makes a rollout resumable: every finished episode is a small store of its own, until all are one store."""

from __future__ import annotations

import dataclasses
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
    """``OUT.parts/``, which holds the finished episodes until ``OUT`` takes them all in; get one from `held`.

    A part appears whole, by one rename, and holds its episode's outcome too. ``told`` is what all episodes of the
    store depend on; it is kept beside the parts, and in the store under ``configuration.rollout``.
    """

    out: Path
    told: Mapping[str, Any]

    @classmethod
    @contextmanager
    def held(cls, out: Path, told: Mapping[str, Any]) -> Iterator[Parts]:
        """Hold ``out`` for this process, as long as it lives, and clear what a killed one left half written.

        Raises:
            InputError: ``out`` cannot be written, is being written, or its parts depend on something else than `told`.
        """
        parts = cls(out, json.loads(json.dumps(told)))
        parts.stored()  # refuses another rollout's store, before anything is made beside it
        try:
            parts.folder.mkdir(parents=True, exist_ok=True)
            lock = (parts.folder / "lock").open("w")
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

    def finished(self, part: str) -> bool:
        """Whether an episode is there."""
        return (self.folder / part / "meta.json").is_file()

    def keep(self, part: str, episode: Episode, outcome: Outcome) -> None:
        """Write one episode, all or nothing."""
        write_store(
            self.folder / part,
            [episode],
            task=self.told["task"],
            precision="float64",
            configuration=dataclasses.asdict(outcome),
            overwrite=True,
        )

    def stored(self) -> set[str]:
        """Ids of the episodes that ``out`` has already; InputError where it is another rollout's."""
        if not self._begun():
            return set()
        store = open_store(self.out)
        if store.task != self.told["task"]:
            raise InputError(
                f"{self.out}: it holds episodes of '{store.task}', not of '{self.told['task']}'; choose another folder"
            )
        self._same(self.out, store.meta["configuration"].get("rollout"))
        return set(store.column("episode_id").tolist())

    def succeeded(self, ids: Collection[str]) -> int:
        """How many of these episodes are finished and succeeded, in the store or beside it."""
        kept = [json.loads(part.read_text())["configuration"] for part in self._kept()]
        wins = {told["episode_id"] for told in kept if told["success"]}
        if self._begun():
            store = open_store(self.out)
            columns = (store.column(c).tolist() for c in ("episode_id", "success_at_end"))
            wins |= {name for name, success in zip(*columns, strict=True) if success}
        return len(wins & set(ids))

    def collect(
        self, parts: Sequence[str], configuration: dict[str, Any] | None, compression: Compression
    ) -> tuple[Store, dict[str, Outcome]]:
        """Take these parts into ``out``, in this order, and remove them; the outcomes of all of its episodes.

        Parts of episodes that were not asked for this time stay, for a rollout that asks for them again.
        """
        finished = (open_store(self.folder / part).read()[0] for part in parts)
        if self._begun():
            add_configuration(append_store(self.out, finished), configuration or {})
        else:
            if self.out.exists():
                self.out.rmdir()
            told = {**(configuration or {}), "rollout": self.told}
            write_store(self.out, finished, task=self.told["task"], configuration=told, compression=compression)
        store = open_store(self.out)
        outcomes = self._outcomes(store)
        for part in self._kept():
            if json.loads(part.read_text())["configuration"]["episode_id"] in outcomes:
                shutil.rmtree(part.parent)
        return store, outcomes

    def _begun(self) -> bool:
        """Whether ``out`` is there and not an empty folder, as a multirun makes it."""
        return self.out.exists() and not (self.out.is_dir() and not any(self.out.iterdir()))

    def _outcomes(self, store: Store) -> dict[str, Outcome]:
        """Outcomes of a store's episodes by id, those of the parts among them; written beside its tables."""
        path = store.path / "rollout.jsonl"
        known = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        known += [json.loads(part.read_text())["configuration"] for part in self._kept()]
        lines = {told["episode_id"]: Outcome(**told) for told in known}
        columns = (store.column(c).tolist() for c in ("episode_id", "success_at_end", "length", "group"))
        outcomes = {
            name: lines.get(name) or Outcome(name, bool(success), length, float("nan"), "", group)
            for name, success, length, group in zip(*columns, strict=True)
        }
        half = path.with_suffix(".writing")
        half.write_text("".join(json.dumps(dataclasses.asdict(o)) + "\n" for o in outcomes.values()))
        half.rename(path)
        return outcomes

    def _kept(self) -> list[Path]:
        return sorted(self.folder.glob("*/meta.json"))

    def _agree(self) -> None:
        path = self.folder / "setting.json"
        if path.is_file() and self._kept():
            self._same(path, json.loads(path.read_text()))
            return
        half = path.with_suffix(".writing")
        half.write_text(json.dumps(self.told) + "\n")
        half.rename(path)

    def _same(self, where: Path, found: Any) -> None:
        if not isinstance(found, dict):
            raise InputError(f"{where}: it does not say how its episodes were run, as expected; choose another folder")
        for key, value in self.told.items():
            if found.get(key) != value:
                raise InputError(
                    f"{where}: its episodes were run with {key} {found.get(key)!r}, not {value!r}; choose another "
                    "folder or the same setting"
                )
