"""What a reader noticed about a file, collected one of a code; each format has its own table of codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jaxeval.types import Finding


@dataclass
class FileFindings:
    """Findings of one file; one of a code, unless `where` says which part of the file.

    ``codes`` is the format's table, code -> (severity, meaning).
    """

    path: Path
    codes: Mapping[str, tuple[str, str]]
    found: list[Finding] = field(default_factory=list)

    def add(self, code: str, found: str, expected: str, action: str, *, where: str = "") -> None:
        """Note one thing; the same code at the same place is kept once."""
        where = where or str(self.path)
        if not any(f.code == code and f.where == where for f in self.found):
            self.found.append(Finding(code, self.codes[code][0], where, found, expected, action))
