"""What every experiment leaves behind: `result.json`, figures beside it, a printed table with ours beside published.

`result.json`: {"title", "source", "rows": [{"quantity", "ours", "low", "high", "n", "published", "note"}], "figures",
"command", "versions"}. `published` is a number, [low, high] for a range, or null; nothing is NaN. Intervals cover 95 %.
`result.csv` and `result.tex` hold the same rows.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from jaxeval.io.compile_cache import keep_compiled_code as keep_compiled_code
from jaxeval.stats.proportions import wilson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULT = "result.json"
RESAMPLES_N, SEED = 5000, 20240
Interval = tuple[float, float]


def arguments(argv: list[str], **defaults: str) -> dict[str, str]:
    """`key=value ...` over the defaults; SystemExit names a key that the script does not have, or has twice."""
    given = dict(defaults)
    if twice := [key for key, times in Counter(word.partition("=")[0] for word in argv).items() if times > 1]:
        raise SystemExit(f"{Path(sys.argv[0]).name}: {twice[0]} is given twice, expected once; leave one out")
    for word in argv:
        key, equals, value = word.partition("=")
        if not equals or key not in defaults:
            known = " ".join(f"{k}={v}" for k, v in defaults.items())
            raise SystemExit(f"{Path(sys.argv[0]).name}: cannot use '{word}'; expected {known}")
        given[key] = value
    return given


@dataclass(frozen=True)
class Row:
    """One measured number. `n`: how many episodes (or samples) it rests on; `low`, `high`: its 95 % interval."""

    quantity: str
    ours: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    published: float | list[float] | None = None
    note: str = ""


class Record:
    """Rows and figures of one experiment, gathered in order and written once, at the end."""

    def __init__(self, title: str, source: str, out: str | Path) -> None:
        self.title, self.source, self.out = title, source, Path(out)
        self.rows: list[Row] = []
        self.figures: list[str] = []
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SystemExit(f"{self.out}: cannot be made ({error.strerror}); choose another with out=DIR") from error

    def add(
        self,
        quantity: str,
        ours: float,
        *,
        interval: Interval | None = None,
        n: int | None = None,
        published: float | list[float] | None = None,
        note: str = "",
    ) -> None:
        """Add a row; ValueError for a number that is not finite or a quantity that is there already."""
        low, high = (None, None) if interval is None else (float(interval[0]), float(interval[1]))
        if not all(math.isfinite(x) for x in (ours, low, high) if x is not None):
            raise ValueError(f"{quantity}: ours = {ours}, low = {low}, high = {high}; expected finite numbers")
        if any(row.quantity == quantity for row in self.rows):
            raise ValueError(f"{quantity}: a row of this name is there already")
        self.rows.append(Row(quantity, float(ours), low, high, None if n is None else int(n), published, note))

    def add_figure(self, name: str, figure: Figure) -> None:
        """Write a figure into the output folder."""
        from jaxeval.report.figures import png

        _write(self.out / name, png(figure))
        self.figures.append(name)

    def finish(self) -> Path:
        """Print the table and write it: `result.csv`, `result.tex`, and `result.json`, whose path is returned."""
        from jaxeval.report.tables import write_csv, write_latex

        print(table(self.rows))
        rows = [asdict(row) for row in self.rows]
        flat = [row | {"published": _flat(row["published"])} for row in rows]
        write_csv(self.out / "result.csv", flat)
        write_latex(self.out / "result.tex", flat, caption=self.title)
        result: dict[str, Any] = {
            "title": self.title,
            "source": self.source,
            "rows": rows,
            "figures": self.figures,
            "command": " ".join(["python", *sys.argv]),
            "versions": versions(),
        }
        path = self.out / RESULT
        _write(path, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
        print(f"result: {path}")
        return path


def _flat(published: float | list[float] | None) -> float | str | None:
    return number(published) if isinstance(published, list) else published


def table(rows: list[Row]) -> str:
    """The rows as text: ours, its interval, how many, published, note."""
    wide = max((len(row.quantity) for row in rows), default=8)
    lines = [f"{'quantity':{wide}} {'ours':>9} {'95 % interval':>17} {'n':>5} {'published':>14}  note"]
    for row in rows:
        interval = "" if row.low is None else f"{number(row.low)} .. {number(row.high)}"
        n = "" if row.n is None else str(row.n)
        cells = f"{number(row.ours):>9} {interval:>17} {n:>5} {number(row.published):>14}"
        lines.append(f"{row.quantity:{wide}} {cells}  {row.note}".rstrip())
    return "\n".join(lines)


def number(value: float | list[float] | None) -> str:
    """A number for the table; a range by its ends; a dash for none."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return " .. ".join(number(v) for v in value)
    if value != 0 and abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:.3f}"


def versions() -> dict[str, str]:
    """Versions of what the numbers rest on."""
    out = {"python": platform.python_version()}
    for name in ("jaxeval", "jax", "jaxlib", "jaxlie", "numpy"):
        try:
            out[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            out[name] = "not installed as a package"
    return out


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise SystemExit(f"{path}: cannot be written ({error.strerror}); choose another with out=DIR") from error
    finally:
        part.unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------------- intervals


def bootstrap(statistic: Callable[[np.ndarray], float], n: int) -> Interval:
    """Percentile bootstrap, 95 %: ``statistic(rows)`` over RESAMPLES_N draws of n rows of n, with a fixed seed."""
    rng = np.random.default_rng(SEED)
    values = [statistic(rng.integers(0, n, n)) for _ in range(RESAMPLES_N)]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def of_mean(values: np.ndarray) -> Interval:
    """Percentile bootstrap interval of a mean over episodes."""
    rows = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLES_N, len(values)))
    low, high = np.quantile(np.asarray(values, float)[rows].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def of_share(hits: int, n: int) -> Interval:
    """Wilson interval of a share: a bootstrap of n equal outcomes would have no width."""
    share = wilson(hits, n)
    return float(share.low), float(share.high)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation, ties sharing their mean rank; 0 where one side is constant."""
    rx, ry = rankdata(x), rankdata(y)
    rx, ry = rx - rx.mean(), ry - ry.mean()
    scale = float(np.sqrt((rx @ rx) * (ry @ ry)))
    return float(rx @ ry) / scale if scale > 0 else 0.0
