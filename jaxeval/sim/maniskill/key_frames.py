"""Pictures of an episode at its start and at the end of each phase, as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxeval.sim.maniskill.environment import Environments


@dataclass(frozen=True)
class KeyFrames:
    """Where the pictures of a rollout go: ``FOLDER/<episode>/<frame>-<label>.png``."""

    folder: Path

    def draw(self, envs: Environments, copy: int, episode: str, labels: Sequence[str]) -> Path:
        """Write the human's view of one copy as it stands now; ``labels`` are those of all frames so far."""
        from PIL import Image

        path = self.folder / episode / f"{len(labels) - 1:04d}-{labels[-1]}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(envs.render()[copy]).save(path)
        return path
