"""What the report says of a scored set, as plain values: which executions, why, by which method, what is missing."""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import jax
import numpy as np

from jaxeval.metrics import geometric
from jaxeval.report.scored import Frames, Scored, natural
from jaxeval.types import FINDINGS, Reference

WORST_N, CLOSED_N = 6, 3
"""Executions looked at closely; how many of those have a closed gate if there are."""
LISTED_N = 40
"""Lines of any list but the table of executions."""


def worst_executions(scored: Scored, n: int = WORST_N) -> list[int]:
    """Rows of the lowest executions that lost something: some with a closed gate first, then by Q."""
    lossy = [int(i) for i in np.argsort(scored.number["gate_free_Q"], kind="stable") if scored.valid[i]]
    shut = [i for i in lossy if scored.closed[i]]
    open_ = [i for i in lossy if not scored.closed[i] and scored.number["gate_free_Q"][i] < 1]
    shut_n = min(len(shut), max(CLOSED_N, n - len(open_)))
    return shut[:shut_n] + open_[: n - shut_n]


def chosen_groups(scored: Scored, n: int) -> tuple[list[int], list[str]]:
    """Groups to draw, in their order, and the names of those left out: with too many, the lowest means are drawn."""
    return lowest_groups(scored, np.where(scored.valid, scored.q, np.nan), n)


def lowest_groups(scored: Scored, values: np.ndarray, n: int) -> tuple[list[int], list[str]]:
    """Up to n groups, in their order, by the lowest mean of what is known of ``values``, and the names of the rest."""
    every = list(range(len(scored.groups)))
    if len(every) <= n:
        return every, []
    known = np.isfinite(values)
    means = [values[mine].mean() if (mine := known & (scored.group == g)).any() else np.inf for g in every]
    low = sorted(every, key=means.__getitem__)[:n]
    return sorted(low), [scored.groups[g] for g in every if g not in low]


def mean(values: np.ndarray) -> float | None:
    """Mean, or None of nothing."""
    return float(values.mean()) if len(values) else None


def _most(words: list[str]) -> str:
    """The most frequent word that is not empty, with its share of the words there are."""
    given = [w for w in words if w]
    if not given:
        return "–"
    word, n = Counter(given).most_common(1)[0]
    return f"{word} ({n} of {len(words)})"


def group_summary(scored: Scored, g: int) -> dict[str, Any]:
    """A line of the table of groups."""
    rows = scored.rows_of(g)
    q = scored.q[rows]
    return {
        "name": scored.groups[g],
        "n": int((scored.group == g).sum()),
        "judged": len(rows),
        "mean": mean(q),
        "low": float(q.min()) if len(q) else None,
        "high": float(q.max()) if len(q) else None,
        "closed": int(scored.closed[rows].sum()),
        "pair": _most([scored.text["worst_pair"][i] for i in rows]),
        "sub_task": _most([scored.text["worst_sub_task"][i] for i in rows]),
    }


def headline(scored: Scored) -> str:
    """Which group is lowest, and to what it lost its quality."""
    rows = {g: rows for g in range(len(scored.groups)) if len(rows := scored.rows_of(g))}
    if not rows:
        return "No execution could be judged; the reasons stand under “What was skipped”."
    means = {g: float(scored.q[i].mean()) for g, i in rows.items()}
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    words = (
        f"Mean Q is highest in “{scored.groups[high]}” ({means[high]:.3f}) and lowest in “{scored.groups[low]}” "
        f"({means[low]:.3f}). "
        if len(means) > 1
        else ""
    )
    lost = [i for i in rows[low] if scored.text["worst_pair"][i]]
    if not lost:
        return words
    pair, n = Counter(scored.text["worst_pair"][i] for i in lost).most_common(1)[0]
    sub_task, m = Counter(scored.text["worst_sub_task"][i] for i in lost).most_common(1)[0]
    where = "Here" if len(means) == 1 else "There"
    return (
        f"{words}{where} the worst relation is most often “{pair}” ({n} of {len(rows[low])}) and the costliest "
        f"sub-task “{sub_task}” ({m} of {len(rows[low])})."
    )


def execution_row(scored: Scored, i: int, frames: Frames | None) -> dict[str, Any]:
    """A line of the table of executions: Q, and the gate's reason or the largest departure in words."""
    time = None if frames is None else frames.time_s.get(i)
    frame = scored.number["worst_frame"][i]
    reason = scored.text["gate_reason"][i]
    if not scored.valid[i]:
        reason, kind = scored.text["status"][i], "not judged"
    elif scored.closed[i]:
        kind = "gate closed"
    else:
        reason, kind = scored.text["worst_direction"][i] or "nothing beyond the admissible radius", ""
    return {
        "episode": scored.text["episode"][i],
        "group": scored.text["group"][i],
        "q": float(scored.q[i]) if scored.valid[i] else None,
        "kind": kind,
        "reason": reason,
        "sub_task": scored.text["worst_sub_task"][i],
        "frame": int(frame) if np.isfinite(frame) else None,
        "time": time,
    }


def costly_stretch(t_s: np.ndarray, cost: np.ndarray, *, quiet: float = 0.05) -> tuple[float, float, float] | None:
    """(start, end, share of all cost) of the uninterrupted stretch that cost most; None where nothing was lost.

    Frames below ``quiet`` times the largest frame cost end a stretch. A single spike can hold the worst frame and still
    matter little: this says where the quality went.
    """
    if not cost.max(initial=0.0) > 0:
        return None
    loud = np.concatenate([[0], (cost > quiet * cost.max()).astype(int), [0]])
    starts, ends = np.flatnonzero(np.diff(loud) == 1), np.flatnonzero(np.diff(loud) == -1)
    sums = [float(cost[a:b].sum()) for a, b in zip(starts, ends, strict=True)]
    k = int(np.argmax(sums))
    return float(t_s[starts[k]]), float(t_s[ends[k] - 1]), sums[k] / float(cost.sum())


@dataclass(frozen=True)
class ConstraintMap:
    """What a reference holds: pinned directions [J, L], the median spread along them in mm [J, L] (NaN where none).

    ``admissible_mm``: the smallest and largest deviation that costs nothing along a pinned direction.
    """

    pinned_n: np.ndarray
    spread_mm: np.ndarray
    admissible_mm: tuple[float, float] | None


def constraint_map(reference: Reference, params: geometric.GeometricParams) -> ConstraintMap:
    """The constraint map of a reference under given thresholds; spreads are the demonstrations' own, not floored."""
    found = jax.jit(geometric.constraints)(reference, params)
    pinned, directions = np.asarray(found.pinned), np.asarray(found.directions, float)
    d = np.asarray(reference.deviations, float)[np.asarray(reference.demo_valid)]
    along = np.einsum("kjla,jlai->kjli", d, directions)
    spread = np.sqrt((along**2).sum(axis=0) / max(len(d) - 1, 1))
    median = np.ma.median(np.ma.array(spread, mask=~pinned), axis=-1)
    sigma = np.asarray(found.sigma_m, float)[pinned] * 1e3 * float(geometric.admissible_radius(reference, params))
    return ConstraintMap(
        pinned.sum(axis=-1), 1e3 * np.ma.filled(median, np.nan), (sigma.min(), sigma.max()) if sigma.size else None
    )


def parameters(params: geometric.GeometricParams) -> list[tuple[str, str, str]]:
    """(symbol, value, meaning) of every parameter that had a say."""
    out = [
        (
            "σ_pin",
            f"{float(params.sigma_pin_m) * 1e3:g} mm",
            "directions in which demonstrations spread less are pinned",
        ),
        ("σ₀", f"{float(params.sigma_0_m) * 1e3:g} mm", "floor of the spread"),
    ]
    if params.calibrated:
        words = f"{float(params.z_0_quantile):g} quantile of the demonstrations’ leave-one-out z"
        out.append(("z₀", words, "admissible radius in spreads"))
    else:
        out.append(("z₀", f"{float(params.z_0):g}", "admissible radius in spreads"))
    return [
        *out,
        (
            "gate factor",
            f"{float(params.term_factor):g}",
            "times the demonstrations’ largest terminal z opens the gate",
        ),
        ("penalty", params.penalty, "of the excess e"),
        ("weighting", params.weighting, "what counts the same in the mean: every frame, or every progress bin"),
    ]


def provenance(scored: Scored, about: dict[str, Any]) -> list[tuple[str, str]]:
    """What is known about the reference and this run, flat; lists of remarks stand under what was skipped."""
    said = ("reference", "commit", "configuration", "episodes")
    known = {k: v for k, v in scored.record.items() if k in said} | about
    out: list[tuple[str, str]] = [("scores", str(scored.folder))]

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for k, v in value.items():
                flatten(f"{prefix}{' / ' if prefix else ''}{str(k).replace('_', ' ')}", v)
        elif isinstance(value, list | tuple):
            text = ", ".join(str(v) for v in value[:6]) + (f" … ({len(value)} in all)" if len(value) > 6 else "")
            out.append((prefix, text or "none"))
        else:
            out.append((prefix, "not known" if value is None else str(value)))

    flatten("", {k: v for k, v in known.items() if k not in ("left_out", "notes", "versions")})
    return out


def skipped(scored: Scored, about: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """What was not judged, and what was remarked on the way: (title, lines); none is empty.

    ``about``: what is known about the reference, empty without one.
    """
    words = scored.record
    not_judged = [
        f"{scored.text['episode'][i]}: {scored.text['status'][i] or 'no reason given'}"
        for i in np.flatnonzero(~scored.valid)
    ]
    left_out = [": ".join(str(x) for x in pair) for pair in about.get("left_out", ())]
    remarks = [
        f"{code}: {n} executions ({FINDINGS[code][1]})" for code, n in scored.findings.items() if code in FINDINGS
    ]
    files = [str(r[1]) if isinstance(r, list | tuple) and len(r) > 1 else str(r) for r in words.get("refused", ())]
    sections = [
        ("Relations that were not scored (a body is missing)", [str(p) for p in words.get("skipped_pairs", ())]),
        ("Executions that were not judged", not_judged),
        ("Files that were refused", files),
        ("Demonstrations left out of the fit", left_out),
        ("Notes of the scoring", [str(x) for x in words.get("notes", ())]),
        ("Notes of the fit", [str(x) for x in about.get("notes", ())]),
        ("Remarks on the recordings", sorted(remarks, key=natural)),
        ("Changed before anything was measured", scored.mended),
    ]
    return [(title, shortened(lines)) for title, lines in sections if lines]


def unsure(reference: Reference) -> list[str]:
    """Relations and in how many bins their mean is not unique."""
    count = (~np.asarray(reference.converged)).sum(axis=1)
    bins_n = reference.nominal.shape[1]
    return [f"{p.name}: {n} of {bins_n}" for p, n in zip(reference.pairs, count, strict=True) if n]


def shortened(lines: list[str]) -> list[str]:
    """The first LISTED_N lines, and how many more there are."""
    return lines if len(lines) <= LISTED_N else [*lines[:LISTED_N], f"… and {len(lines) - LISTED_N} more"]


def versions() -> list[tuple[str, str]]:
    """Versions of what the numbers rest on."""
    out = [("python", platform.python_version())]
    for name in ("jaxeval", "jax", "jaxlib", "jaxlie", "numpy", "pyarrow", "matplotlib", "plotly"):
        try:
            out.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            out.append((name, "not installed as a package"))
    return out
