"""What `jaxeval score` asks of a metric: measure a padded batch, then turn what was measured into columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jaxeval.align import Alignment
from jaxeval.types import FINDINGS, TRACKING_FINDINGS, EpisodeBatch

Measured = dict[str, np.ndarray]

FRAME = "frame."
"""Arrays measured under this prefix have a value a frame [n, T] and go to `frame_motion.parquet`, not to a column."""
TRACKING, INPUT = "insufficient tracking", "bad input"


@dataclass(frozen=True)
class Batch:
    """A padded batch filled up to a power of two of episodes, and its alignment if there is a reference.

    The first ``n`` episodes are real: rows ``rows`` of the table, of ``length`` frames each.
    """

    data: EpisodeBatch
    n: int
    rows: np.ndarray
    length: np.ndarray
    aligned: Alignment | None

    def body(self, name: str) -> np.ndarray:
        """Poses of one body, [B, T, 7]."""
        return self.data.poses[:, :, self.data.bodies.index(name)]

    def valid(self, *names: str) -> np.ndarray:
        """Frames in which all these bodies were seen, [B, T]."""
        valid = np.asarray(self.data.valid)[:, :, [self.data.bodies.index(n) for n in names]]
        return np.logical_and.reduce(valid, axis=2)


class Scorer(Protocol):
    """One metric, or a family of them. It sees every batch once, in any order."""

    name: str
    bodies: tuple[str, ...]  # that it reads
    joints: bool  # whether it reads joints
    signals: tuple[str, ...]  # that it reads

    def measure(self, batch: Batch) -> Measured:
        """Arrays with a row an episode (n of them)."""
        ...

    def columns(self, measured: Measured, refused: Sequence[str | None]) -> dict[str, list[Any]]:
        """Columns of `scores.parquet` in row order; ``refused`` says why an episode is not to be judged, or None."""
        ...


def refusals(findings: Sequence[Sequence[str] | None]) -> list[str | None]:
    """Why each episode cannot be judged, by the codes of what was found at the door; None where it can."""
    errors = {code for code, (severity, _) in FINDINGS.items() if severity == "error"}
    out: list[str | None] = []
    for codes in findings:
        bad = sorted(set(codes or ()) & errors)
        kind = TRACKING if set(bad) & TRACKING_FINDINGS else INPUT
        out.append(f"{kind}: {FINDINGS[bad[0]][1]}" if bad else None)
    return out


def where(values: Any, mask: Any) -> list[Any]:
    """Python values, None where the mask is False: a column that says "unknown" and not NaN."""
    values = values.tolist() if isinstance(values, np.ndarray) else values
    return [v if m else None for v, m in zip(values, mask, strict=True)]


def known(values: np.ndarray, refused: Sequence[str | None]) -> list[float | None]:
    """Numbers as Python floats, None where they are NaN or the episode was refused."""
    values = np.asarray(values, float)
    return where(values, np.isfinite(values) & np.array([r is None for r in refused]))


def told(status: np.ndarray, sentences: dict[int, str], refused: Sequence[str | None]) -> list[str]:
    """Statuses as sentences; the refusal where there is one."""
    return [r or sentences[int(s)] for r, s in zip(refused, status, strict=True)]
