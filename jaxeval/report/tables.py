"""Tables as people take them away: CSV for programs, LaTeX for papers, aligned text for the terminal. One place.

A table is a list of rows, each a dict; `Column` says what is shown of them, under which title and how it is rounded.
CSV holds every number in full; LaTeX and text round it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxeval.io.files import write_text

Row = Mapping[str, Any]

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "–": "--", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$",
    "κ": r"$\kappa$",
    "α": r"$\alpha$", "ρ": r"$\rho$", "τ": r"$\tau$", "σ": r"$\sigma$", "µ": r"$\mu$", "μ": r"$\mu$", "…": r"\ldots{}",
}  # fmt: skip
"""What LaTeX would not print as it stands."""


@dataclass(frozen=True)
class Column:
    """What is shown of the rows' key ``key``. ``digits``: decimals of a float; None: three significant
    ones, without zeros at the end."""

    key: str
    title: str = ""
    digits: int | None = None

    @property
    def heading(self) -> str:
        """Title where there is one, else the key."""
        return self.title or self.key


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """Every key of the rows in the order of its first appearance."""
    return [Column(key) for key in dict.fromkeys(key for row in rows for key in row)]


def shown(value: Any, digits: int | None = None) -> str:
    """One cell as people read it; "–" where nothing is known.

    >>> shown(0.31415, 3), shown(0.5, 3), shown(0.5), shown(3.14e-7), shown(1234.5), shown(None), shown(True)
    ('0.314', '0.500', '0.5', '3.1e-07', '1234', '–', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "yes" if value else "no"
    if isinstance(value, (int, str)):
        return str(value)
    if hasattr(value, "ndim") and "int" in str(value.dtype):
        return str(int(value))
    number = float(value)
    if math.isnan(number):
        return "–"
    if digits is not None:
        text = f"{number:.{digits}f}"
        return text.lstrip("-") if float(text) == 0 else text
    if number == 0 or math.isinf(number):
        return f"{number:.0f}"
    if abs(number) < 1e-3:
        return f"{number:.1e}"
    text = f"{number:.{max(0, 2 - math.floor(math.log10(abs(number))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def csv_text(rows: Sequence[Row], columns: Sequence[Column] | None = None) -> str:
    """The rows as CSV: keys as the first line, floats in full, true/false, nothing where nothing is known."""
    chosen = columns_of(rows) if columns is None else list(columns)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.key for c in chosen])
    writer.writerows([[_in_full(row.get(c.key)) for c in chosen] for row in rows])
    return out.getvalue()


def latex_text(
    rows: Sequence[Row], columns: Sequence[Column] | None = None, *, caption: str = "", label: str = ""
) -> str:
    """The rows as a LaTeX `tabular` (no package needed), in a `table` where there is a caption; numbers stand right."""
    chosen = columns_of(rows) if columns is None else list(columns)
    align = "".join("r" if _numeric(rows, c.key) else "l" for c in chosen)
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\hline"]
    lines += [" & ".join(escaped(c.heading) for c in chosen) + r" \\", r"\hline"]
    lines += [" & ".join(_latex_cell(row.get(c.key), c.digits) for c in chosen) + r" \\" for row in rows]
    lines += [r"\hline", r"\end{tabular}"]
    if caption:
        named = [rf"\label{{{label}}}"] if label else []
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{escaped(caption)}}}", *named, *lines, r"\end{table}"]
    return "\n".join(lines) + "\n"


def plain_text(rows: Sequence[Row], columns: Sequence[Column] | None = None) -> str:
    """The rows as aligned text, numbers to the right."""
    chosen = columns_of(rows) if columns is None else list(columns)
    cells = [[c.heading for c in chosen], *([shown(row.get(c.key), c.digits) for c in chosen] for row in rows)]
    right = [_numeric(rows, c.key) for c in chosen]
    widths = [max(len(line[k]) for line in cells) for k in range(len(chosen))]
    return "\n".join(
        "  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in cells
    )


def write_csv(path: Path, rows: Sequence[Row], columns: Sequence[Column] | None = None) -> Path:
    """Write `csv_text` to a file, whole or not at all; returns the path."""
    return write_text(path, csv_text(rows, columns))


def write_latex(
    path: Path, rows: Sequence[Row], columns: Sequence[Column] | None = None, *, caption: str = "", label: str = ""
) -> Path:
    """Write `latex_text` to a file, whole or not at all; returns the path."""
    return write_text(path, latex_text(rows, columns, caption=caption, label=label))


def escaped(text: str) -> str:
    r"""Text as LaTeX prints it.

    >>> escaped("stage.pre_insertion: 50 %")
    'stage.pre\\_insertion: 50 \\%'
    """
    return "".join(SPECIAL.get(c, c) for c in text)


def _latex_cell(value: Any, digits: int | None) -> str:
    text = shown(value, digits)
    if isinstance(value, str) or value is None:
        return escaped(text)
    return escaped(text) if not text.startswith("-") else f"$-${escaped(text[1:])}"


def _in_full(value: Any) -> Any:
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "true" if value else "false"
    if value is None or isinstance(value, (int, str)):
        return value
    if hasattr(value, "item"):  # of numpy or jax
        return _in_full(value.item())
    return "" if isinstance(value, float) and math.isnan(value) else repr(value)


def _numeric(rows: Sequence[Row], key: str) -> bool:
    """Whether a column holds numbers and nothing else that is known."""
    known = [row.get(key) for row in rows if row.get(key) is not None]
    return bool(known) and not any(isinstance(v, (str, bool)) for v in known)
