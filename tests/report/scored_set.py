"""A scored set and its report, and what the tests read of a page."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jaxeval.types import Reference


@dataclasses.dataclass(frozen=True)
class Made:
    """A scored set on disk and the report of it."""

    scores: Path
    reference: Reference
    path: Path
    html: str


class Page(HTMLParser):
    """Images, resources, and the cells of every table with an id."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.loads: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.table, self.cell = "", False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [str(v) for k, v in attrs if k in ("src", "href", "srcset", "data", "action", "poster")]
        if tag == "link":
            self.loads.append("link")
        if tag == "img":
            self.images.append(given)
        if tag == "table":
            self.table = given.get("id") or ""
            self.tables[self.table] = []
        if tag == "tr":
            self.tables[self.table].append([])
        if tag in ("td", "th"):
            self.tables[self.table][-1].append("")
            self.cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.cell = False

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.tables[self.table][-1][-1] += data


def pixels(data: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("L"), float)


def rewritten(made: Made, folder: Path, change: Callable[[list[dict]], list[dict]]) -> Path:
    """A copy of the scores whose rows `change` has edited; no frames."""
    folder.mkdir()
    table = pq.read_table(made.scores / "scores.parquet")
    rows = change(table.to_pylist())
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / "scores.parquet")
    (folder / "score.json").write_text((made.scores / "score.json").read_text())
    return folder
