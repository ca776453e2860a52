"""Trajectories as text, one file a body: TUM ``.txt`` (seconds, xyzw) and EuRoC ``.csv`` (nanoseconds, wxyz).

A file is an episode with one body, called as the file is; a folder of them on one clock is an episode with several.
Stamps are read exactly and rebased before they are rounded. Rows are put in order by `cleaning.in_order`: what is
sorted, dropped or split is a finding, and so is every line that is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np

from jaxeval.io.cleaning import in_order
from jaxeval.io.errors import InputError
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.text_tables import (
    TABLE_FINDINGS,
    Line,
    first_line,
    looks_odd,
    number,
    parsed_lines,
    text_lines,
    without_cut_line,
)
from jaxeval.io.readers.tracks import Track, nearest_rows, recordings_of, seconds_from
from jaxeval.types import Episode, Finding

TUM = "rows of `t x y z qx qy qz qw` (seconds, metres, quaternion xyzw)"
EUROC = "a header `#timestamp [ns],p_x [m],p_y,p_z,q_w,q_x,q_y,q_z` and rows of it"
TUM_HEADER = "# timestamp tx ty tz qx qy qz qw"
Row = tuple[int, list[float]]  # stamp in ns, then wxyz_xyz

TRAJECTORY_FINDINGS: dict[str, tuple[str, str]] = {
    **TABLE_FINDINGS,
    "rebased": ("info", "stamps do not start at zero: time counts from the first row, subtracted before rounding"),
    "named_columns": ("info", "a comment names the columns in another order than the format's: the names count"),
    "one_episode": ("info", "the files of a folder are bodies of one episode, on the clock of one of them"),
    "unmatched": ("warning", "a body has no stamp near a frame of the clock: those frames are invalid"),
}
"""Findings of `read_tum`, `read_euroc` and `read_tum_folder`: code -> (severity, meaning)."""

_Read = Callable[[Path, list[Line], FileFindings], Track]


def read_tum(path: str | Path) -> tuple[list[Episode], list[Finding]]:
    """The episode of one TUM file (``t x y z qx qy qz qw``, seconds; ``#`` starts a comment), or its parts.

    A comment that names all eight columns decides their order. Commas between columns are accepted.

    Raises:
        InputError: no such file, not text, a Git-LFS pointer, over a tenth of the lines no rows, columns 5 to 8 no
            quaternions, or stamps that are no seconds or in no order.
    """
    return _read_file(Path(path), TUM, _tum_track)


def read_euroc(path: str | Path) -> tuple[list[Episode], list[Finding]]:
    """The episode of one EuRoC file (header with names, integer nanoseconds, wxyz), or its parts.

    Columns are found by name: ``timestamp``, ``p_*_x`` to ``z`` and ``q_*_w`` to ``z``; others are ignored. A
    ``data.csv`` is called as its folder is.

    Raises:
        InputError: as `read_tum`, or the header lacks a column.
    """
    return _read_file(Path(path), EUROC, _euroc_track)


def read_tum_folder(path: str | Path) -> tuple[list[Episode], list[Finding]]:
    """One episode of the TUM and EuRoC files of a folder: its bodies, on the clock of the file with the most rows.

    A row belongs to the frame whose stamp is nearest, within half a median step; a frame that some body lacks is
    invalid, with NaN for that body. Findings say how many frames of each body match.

    Raises:
        InputError: no such folder, fewer than two files, one of them refused or joined of several recordings, or
            no stamp in common.
    """
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"{path}: there is no such folder; check the path")
    findings = FileFindings(path, TRAJECTORY_FINDINGS)
    files = _trajectory_files(path)
    if len(files) < 2:
        raise InputError(f"{path}: {len(files)} trajectory files, expected one for each of several bodies; check it")
    read = [_whole_track(file, findings) for file in files]
    tracks, mended = [track for track, _ in read], [f for _, actions in read for f in actions]
    names = [t.name for t in tracks]
    if len(set(names)) < len(names):
        raise InputError(f"{path}: two files of one name among {', '.join(names)}; name each after its body")
    clock = max(tracks, key=lambda t: len(t.stamps_ns))
    poses = np.full((len(clock.stamps_ns), len(tracks), 7), np.nan)
    valid = np.zeros((len(poses), len(tracks)), bool)
    for n, track in enumerate(tracks):
        rows, frames = nearest_rows(track, clock.stamps_ns, within_ns=clock.step_ns / 2)
        poses[frames, n] = track.poses[rows]
        valid[frames, n] = True
        if not rows.size:
            raise InputError(f"{path}: {track.name} and {clock.name} have no stamp in common; check that one clock ran")
        if (missing := len(clock.stamps_ns) - len(rows)) > 0 or len(rows) < len(track.stamps_ns):
            found = f"{track.name} has {len(rows)} of {len(clock.stamps_ns)} frames of {clock.name}'s clock"
            found += f", and {len(track.stamps_ns) - len(rows)} rows beside it"
            done = f"it is not valid in {missing} frames"
            findings.add("unmatched", found, "every body at every stamp", done, where=str(path / track.name))
    found = f"{len(tracks)} files: {', '.join(names)}, on the clock of {clock.name}"
    findings.add("one_episode", found, "bodies of one episode", "open files one by one if they are episodes")
    return _episodes(path, path.name, tuple(names), clock.stamps_ns, poses, valid, findings, mended)


def write_tum(path: str | Path, episode: Episode, body: str) -> None:
    """Write the frames in which one body is valid as TUM text, every number with all its digits.

    Stamps are those of the recording's clock (``start_ns``), to a nanosecond, where it is known.

    Raises:
        InputError: the episode has no such body, or no valid frame.
    """
    if body not in episode.bodies:
        raise InputError(f"{path}: no body '{body}' to write; the episode has {', '.join(episode.bodies)}")
    valid = episode.valid_of(body)
    if not valid.any():
        raise InputError(f"{path}: episode {episode.episode_id} has no valid frame of {body} to write; check its mask")
    poses = np.asarray(episode.body(body), np.float64)[valid]
    stamps = [_seconds(t, episode.start_ns) for t in np.asarray(episode.time_s, np.float64)[valid].tolist()]
    rows = np.column_stack([poses[:, 4:], poses[:, [1, 2, 3, 0]]]).tolist()
    text = "\n".join(" ".join([t, *map(repr, row)]) for t, row in zip(stamps, rows, strict=True))
    Path(path).write_text(f"{TUM_HEADER}\n{text}\n", encoding="utf-8")


# ------------------------------------------------------------------------------------------------- what is what


def is_tum(path: str | Path) -> bool:
    """A ``.tum`` file, or a ``.txt`` whose first row begins with a number or that is damaged (empty, no text)."""
    path = Path(path)
    if not path.is_file() or path.suffix.lower() not in (".txt", ".tum"):
        return False
    if path.suffix.lower() == ".tum" or looks_odd(path):
        return True
    fields = _fields(first_line(path))
    return len(fields) > 1 and _is_number(fields[0])


def is_euroc(path: str | Path) -> bool:
    """A ``.csv`` whose first line names ``timestamp`` or EuRoC's positions, or that is damaged (empty, no text)."""
    path = Path(path)
    if not path.is_file() or path.suffix.lower() != ".csv":
        return False
    names = [_bare(name) for name in first_line(path, comment="").split(",")]
    return looks_odd(path) or names[0].startswith("timestamp") or any(re.fullmatch(r"p_\w*x", n) for n in names)


def is_tum_folder(path: str | Path) -> bool:
    """A folder of two or more TUM or EuRoC files that run at the same time and are not just numbered.

    ``cube.txt`` beside ``tcp.txt`` is one episode; ``ep000.txt`` beside ``ep001.txt`` are two.
    """
    path = Path(path)
    files = _trajectory_files(path) if path.is_dir() else []
    if len(files) < 2 or len({re.sub(r"\d", "", _name(f)) for f in files}) < 2:
        return False
    spans = []
    for file in files:
        try:
            lines, read = _opened(file)
            ends = lines if len(lines) < 100 else lines[:64] + lines[-2:-1]
            track = read(file, ends, FileFindings(file, TRAJECTORY_FINDINGS))
        except InputError:
            return False
        spans.append((int(track.stamps_ns.min()), int(track.stamps_ns.max())))
    common = min(end for _, end in spans) - max(start for start, _ in spans)
    return 2 * common > max(end - start for start, end in spans)


def _trajectory_files(path: Path) -> list[Path]:
    return [f for f in sorted(path.iterdir()) if not f.name.startswith(".") and (is_tum(f) or is_euroc(f))]


def _opened(path: Path) -> tuple[list[Line], _Read]:
    if path.suffix.lower() == ".csv":
        return text_lines(path, expected=EUROC), _euroc_track
    return text_lines(path, expected=TUM), _tum_track


def _name(path: Path) -> str:
    return path.resolve().parent.name if path.name == "data.csv" else path.stem


# ------------------------------------------------------------------------------------------------------ episodes


def _read_file(path: Path, expected: str, read: _Read) -> tuple[list[Episode], list[Finding]]:
    findings = FileFindings(path, TRAJECTORY_FINDINGS)
    track = read(path, text_lines(path, expected=expected), findings)
    valid = np.ones((len(track.poses), 1), bool)
    return _episodes(path, track.name, (track.name,), track.stamps_ns, track.poses[:, None], valid, findings)


def _episodes(
    path: Path,
    name: str,
    bodies: tuple[str, ...],
    stamps_ns: np.ndarray,
    poses: np.ndarray,
    valid: np.ndarray,
    findings: FileFindings,
    mended: Sequence[Finding] = (),
) -> tuple[list[Episode], list[Finding]]:
    start_ns = int(stamps_ns[0])
    if start_ns:
        findings.add("rebased", f"the first stamp is {start_ns / 1e9:.9g} s", "0", "time counts from there")
    whole = Episode.of(
        poses=poses,
        time_s=seconds_from(stamps_ns, start_ns),
        valid=valid,
        bodies=bodies,
        episode_id=name,
        source=str(path),
        start_ns=start_ns,
        mended=tuple(mended),
    )
    ordered = in_order(whole)
    return list(ordered.episodes), [*findings.found, *ordered.actions]


def _whole_track(path: Path, findings: FileFindings) -> tuple[Track, list[Finding]]:
    """The track of a file that holds one recording, and what was done to its rows; that joins `findings` too."""
    own = FileFindings(path, TRAJECTORY_FINDINGS)
    lines, read = _opened(path)
    recordings, actions = recordings_of(read(path, lines, own), where=str(path))
    findings.found += [*own.found, *actions]
    if len(recordings) > 1:
        raise InputError(f"{path}: {len(recordings)} recordings joined ({actions[-1].found}); expected one; split it")
    return recordings[0], actions


def _track(path: Path, rows: list[Row], expected: str) -> Track:
    stamps_ns = np.array([stamp for stamp, _ in rows], np.int64)
    poses = np.array([pose for _, pose in rows], np.float64)
    length = np.linalg.norm(poses[:, :4], axis=1)
    usable = length[np.isfinite(length) & (length > 1e-9)]
    if usable.size and abs(float(np.median(usable)) - 1) > 0.05:
        raise InputError(
            f"{path}: its quaternions have length {float(np.median(usable)):.3g}, not 1; expected {expected}; "
            "check the order of the columns"
        )
    return Track(_name(path), stamps_ns, poses)


# ------------------------------------------------------------------------------------------------------- one file


def _tum_track(path: Path, lines: list[Line], findings: FileFindings) -> Track:
    columns = _tum_columns(lines, findings)
    rows = [line for line in lines if not line.text.startswith("#")]
    if not rows:
        raise InputError(f"{path}: it holds comments alone, expected {TUM}; record or copy it again")
    rows = without_cut_line(rows, lambda text: (_fields(text) or [""])[-1], findings)

    def parse(text: str) -> Row:
        fields = _fields(text)
        if len(fields) != 8:
            raise ValueError(f"{len(fields)} columns, not 8")
        t, *xyz_wxyz = (fields[k] for k in columns)
        values = [number(f) for f in xyz_wxyz]
        return _nanoseconds(t), values[3:] + values[:3]

    return _track(path, parsed_lines(path, rows, parse, findings, expected=TUM), TUM)


def _tum_columns(lines: list[Line], findings: FileFindings) -> list[int]:
    """Where t, x, y, z, qw, qx, qy, qz stand: as the format says, or as a comment names them."""
    names = ["t", "x", "y", "z", "qx", "qy", "qz", "qw"]
    usual = sorted(names)
    for line in lines:
        if line.text.startswith("#"):
            said = [re.sub(r"[\[(].*", "", field).lower() for field in _fields(line.text.lstrip("#"))]
            said = [re.sub(r"^[tp]_?(?=[xyz]$)|_", "", re.sub("^time(stamp)?$", "t", name)) for name in said if name]
            if sorted(said) == usual and said != names:
                findings.add("named_columns", line.text[:200], TUM_HEADER, "the names in the file are followed")
                names = said
    return [names.index(c) for c in ("t", "x", "y", "z", "qw", "qx", "qy", "qz")]


def _euroc_track(path: Path, lines: list[Line], findings: FileFindings) -> Track:
    header, *rows = lines
    names = header.text.split(",")
    columns, scale = _euroc_columns(path, names)
    if not rows:
        raise InputError(f"{path}: it holds a header alone, expected rows under it; record or copy it again")
    if max(columns) == len(names) - 1:
        rows = without_cut_line(rows, lambda text: text.rpartition(",")[2].strip(), findings)

    def parse(text: str) -> Row:
        fields = [f.strip() for f in text.split(",")]
        if len(fields) != len(names):
            raise ValueError(f"{len(fields)} columns, the header has {len(names)}")
        t, *xyz_wxyz = (fields[k] for k in columns)
        values = [number(f) for f in xyz_wxyz]
        if scale == 1:
            if not re.fullmatch(r"[+-]?\d+", t):
                raise ValueError(f"stamp '{t[:24]}' is no integer of nanoseconds (a spreadsheet may have rounded it)")
            return _in_range(int(t)), values[3:] + values[:3]
        return _nanoseconds(t), values[3:] + values[:3]

    return _track(path, parsed_lines(path, rows, parse, findings, expected=EUROC), EUROC)


def _euroc_columns(path: Path, names: list[str]) -> tuple[list[int], int]:
    """(columns of t, x, y, z, qw, qx, qy, qz, nanoseconds in a unit of the stamps), by the names in the header."""
    bare = [_bare(name) for name in names]
    units = [(re.findall(r"\[([^\]]*)\]", name) or [""])[0].strip().lower() for name in names]
    patterns = {"timestamp": r"timestamp|time|t"}
    patterns |= {f"p_{c}": rf"p_(\w+_)?{c}" for c in "xyz"} | {f"q_{c}": rf"q_(\w+_)?{c}" for c in "wxyz"}
    found = {key: [k for k, name in enumerate(bare) if re.fullmatch(p, name)] for key, p in patterns.items()}
    for key, at in found.items():
        if len(at) != 1:
            what = "no column" if not at else f"{len(at)} columns"
            raise InputError(
                f"{path}: {what} '{key}' among {', '.join(bare)[:200]}; expected {EUROC}; check the header"
            )
    columns = [at[0] for at in found.values()]
    if odd := [names[k].strip() for k in columns[1:4] if units[k] not in ("", "m")]:
        raise InputError(f"{path}: column '{odd[0]}' is not in metres; expected {EUROC}; convert it")
    if units[columns[0]] not in ("", "ns", "s"):
        raise InputError(f"{path}: stamps in '{units[columns[0]]}', expected [ns] or [s]; convert them")
    return columns, 10**9 if units[columns[0]] == "s" else 1


def _bare(name: str) -> str:
    """``#timestamp [ns]`` -> ``timestamp``."""
    return re.sub(r"\[.*", "", name).strip().lstrip("#").strip().lower()


def _fields(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def _nanoseconds(seconds: str) -> int:
    """Seconds as written, in whole nanoseconds."""
    number(seconds)  # refuses what Decimal alone would take
    value = Decimal(seconds)
    if not value.is_finite():
        raise ValueError(f"stamp '{seconds}' is not finite")
    if abs(value) >= 2**63 // 10**9:
        raise ValueError(f"stamp '{seconds[:24]}' is beyond 9.2e9 s (are these nanoseconds?)")
    return int((value * 10**9).to_integral_value())


def _seconds(time_s: float, start_ns: int | None) -> str:
    """A stamp as text: all digits of the time, or of the clock that began at ``start_ns``."""
    if not start_ns:
        return repr(time_s)
    ns = start_ns + round(time_s * 1e9)
    return f"{'-' * (ns < 0)}{abs(ns) // 10**9}.{abs(ns) % 10**9:09d}"


def _in_range(stamp_ns: int) -> int:
    if abs(stamp_ns) >= 2**63:
        raise ValueError(f"stamp '{stamp_ns}' is beyond 9.2e18 ns")
    return stamp_ns
