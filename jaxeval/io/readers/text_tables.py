"""Lines of a text file with a row of numbers each: what every such format needs to read a damaged one honestly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.findings import FileFindings

R = TypeVar("R")

BAD_SHARE = 0.1
"""With more unreadable lines than this share the file is of another kind, and refused."""
ARCHIVES = {b"PK\x03\x04": "a zip archive", b"\x1f\x8b": "a gzip archive", b"\x89HDF": "an HDF5 file"}

TABLE_FINDINGS: dict[str, tuple[str, str]] = {
    "unreadable_line": ("warning", "lines that are no row of numbers: they are left out, which leaves a gap"),
    "cut_line": ("warning", "the last line has no end, so that its last number may be cut short: it is left out"),
    "no_line_end": ("info", "the last line has no end but its numbers are whole: rows after it may be lost"),
}
"""Findings of `parsed_lines`: code -> (severity, meaning)."""


@dataclass(frozen=True)
class Line:
    """A line that is not blank. ``whole`` is False for a last line without its end (it may be cut anywhere)."""

    number: int  # from 1
    text: str
    whole: bool


def looks_odd(path: Path) -> bool:
    """Whether a text reader should refuse the file aloud: empty, a Git-LFS pointer, an archive, or not text."""
    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError:
        return False
    return not head.strip() or b"\0" in head or head.startswith((b"version https://git-lfs", *ARCHIVES))


def first_line(path: Path, *, comment: str = "#") -> str:
    """The first line that is neither blank nor a comment, among the first 64 kB; empty if there is none."""
    try:
        with open(path, "rb") as file:
            text = file.read(65536).decode("utf-8-sig", errors="replace")
    except OSError:
        return ""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not (comment and line.startswith(comment))), "")


def text_lines(path: Path, *, expected: str) -> list[Line]:
    """Lines of a text file that are not blank.

    Raises:
        InputError: no such file, a Git-LFS pointer, an archive or other binary file, or nothing in it.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; check the path")
    refuse_lfs_pointer(path)
    data = path.read_bytes()
    for mark, what in ARCHIVES.items():
        if data.startswith(mark):
            raise InputError(f"{path}: this is {what}, expected {expected} as text; unpack it")
    if b"\0" in data:
        raise InputError(f"{path}: this is not text (it holds zero bytes), expected {expected}; check the file")
    texts = data.decode("utf-8-sig", errors="replace").splitlines()
    ended = data.endswith((b"\n", b"\r"))
    lines = [Line(k, text.strip(), ended or k < len(texts)) for k, text in enumerate(texts, 1) if text.strip()]
    if not lines:
        raise InputError(f"{path}: the file is empty, expected {expected}; record or copy it again")
    return lines


def parsed_lines(
    path: Path, lines: list[Line], parse: Callable[[str], R], findings: FileFindings, *, expected: str
) -> list[R]:
    """``parse`` of every line; a line for which it raises ValueError is left out and listed.

    Raises:
        InputError: more than a tenth of the lines (`BAD_SHARE`) cannot be parsed, or none is left.
    """
    out: list[R] = []
    bad: list[tuple[Line, str]] = []
    for line in lines:
        try:
            out.append(parse(line.text))
            if not line.whole:
                findings.add("no_line_end", f"line {line.number} has no end", "a whole line", "it is kept")
        except (ValueError, ArithmeticError) as error:
            if line.whole:
                bad.append((line, str(error)))
            else:
                findings.add("cut_line", f"line {line.number} ends early", "a whole line", "it is left out")
    if bad:
        line, reason = bad[0]
        if not out or len(bad) > BAD_SHARE * len(lines):
            raise InputError(f"{path}: line {line.number}: {reason}; expected {expected}; check how it was written")
        found = f"{len(bad)} of {len(lines)} lines are no rows (first line {line.number}: {reason})"
        findings.add("unreadable_line", found, expected, "they are left out")
    if not out:
        raise InputError(f"{path}: it holds no row, expected {expected}; record or copy it again")
    return out


def without_cut_line(lines: list[Line], last_field: Callable[[str], str], findings: FileFindings) -> list[Line]:
    """The lines without a last one whose last number may be cut short.

    A last line that lacks its end is kept only if all last numbers of the file have as many decimals as its own:
    in any other file a digit may be gone, which would be a wrong number that nobody notices.
    """
    if not lines or lines[-1].whole:
        return lines
    decimals = {len(last_field(line.text).partition(".")[2]) for line in lines}
    if len(lines) > 1 and len(decimals) == 1 and decimals != {0}:
        return lines
    number = lines[-1].number
    findings.add("cut_line", f"line {number} has no end, its last number may be cut", "a whole line", "it is left out")
    return lines[:-1]


def number(text: str) -> float:
    """A float as data files write it; ValueError otherwise (Python alone would also take ``1_0`` for ten)."""
    if "_" in text:
        raise ValueError(f"'{text}' is not a number")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"'{_short(text)}' is not a number") from None


def _short(text: str) -> str:
    return text if len(text) <= 24 else text[:24] + "..."
