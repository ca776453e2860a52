"""One self-contained HTML of a scored set: no network, figures inside (and beside it as PNG), every word escaped."""

from __future__ import annotations

import base64
import os
import platform
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.metrics import geometric as G
from jaxeval.report import figures as F
from jaxeval.report.scored import FRAME_COSTS, Frames, Scored, natural, read_frames, read_scored
from jaxeval.types import FINDINGS, Reference

TABLE_N, WORST_N, CLOSED_N = 200, 6, 3
"""Rows of the table of executions; executions looked at closely; how many of those may have a closed gate, if others exist."""
GROUPS_N, MAPS_N, LISTED_N = 12, 6, 40
"""Groups in the figure of Q; cost maps; lines of any other list."""


@dataclass(frozen=True)
class Picture:
    """A figure as the page holds it."""

    name: str
    alt: str
    data: str  # base64 of the PNG


def write_report(
    scores_dir: Path, reference: Reference, *, about: dict[str, Any], params: G.GeometricParams, out: Path
) -> Path:
    """Write `out`/report.html and `out`/figures/*.png of the scores in `scores_dir`; returns the HTML's path.

    ``about``: what is known about the reference (provenance). InputError when scores are missing, damaged or made with
    another reference, or when `out` cannot be written. The HTML appears whole or not at all.
    """
    params = params.check()
    scored = read_scored(Path(scores_dir), reference)
    order = np.lexsort((np.where(scored.valid, scored.number["gate_free_Q"], 0), np.where(scored.valid, scored.q, 2.0)))
    shown = order if scored.n <= TABLE_N else order[:TABLE_N]
    worst = worst_executions(scored)
    frames = read_frames(scored, reference, tracks=worst, times=sorted({*shown.tolist(), *worst}))
    skipped: list[tuple[str, list[str]]] = _skipped(scored, reference, frames, about)

    held = constraint_map(reference, params)
    folder = _folder(Path(out) / "figures")
    page = _Page(folder)
    groups, left_out = chosen_groups(scored, GROUPS_N)
    if left_out:
        skipped.append(("Groups that the figures leave out (the lowest means are drawn)", _cut(left_out)))
    context = {
        "spec": reference.spec,
        "scored": scored,
        "judged_n": int(scored.valid.sum()),
        "closed_n": int(scored.closed.sum()),
        "mean": _mean(scored.q[scored.valid]),
        "headline": _headline(scored),
        "groups": [_group(scored, g) for g in (range(len(scored.groups)) if len(scored.groups) <= LISTED_N else groups)],
        "rows": [_row(scored, int(i), frames) for i in shown],
        "quality": page.add("quality", _quality_alt(scored, groups), lambda: _quality(scored, groups)),
        "maps": page.add("cost", _cost_alt(scored, frames), lambda: _maps(scored, reference, frames, groups[:MAPS_N]))
        if frames is not None and np.isfinite(frames.mean_cost).any()
        else None,
        "constraints": page.add(
            "constraints",
            "Number of pinned directions and the spread along them, for every relation and progress bin of the reference",
            lambda: _constraints(reference, params, held),
        ),
        "admissible_mm": held.admissible_mm,
        "worst": [_worst(scored, reference, i, k, frames, page) for k, i in enumerate(worst, start=1)],
        "method": _method(reference, params),
        "params": _params(params),
        "reference": reference,
        "demonstrations_n": int(np.asarray(reference.demo_valid).sum()),
        "versions": versions(),
        "provenance": _provenance(scored, about),
        "skipped": skipped,
        "frame_costs": FRAME_COSTS,
    }
    return _write(Path(out) / "report.html", _environment().get_template("template.html.j2").render(context))


class _Page:
    """Makes figures one at a time, leaves each beside the page as a PNG and gives the page its copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, alt: str, make: Callable[[], Any]) -> Picture:
        data = F.png(make())
        _replace(self.folder / f"{name}.png", data)
        return Picture(name, alt, base64.b64encode(data).decode())


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("jaxeval.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["q"] = lambda x: "–" if x is None or not np.isfinite(x) else f"{x:.3f}"
    return environment


def versions() -> list[tuple[str, str]]:
    """Versions of what the numbers rest on."""
    out = [("python", platform.python_version())]
    for name in ("jaxeval", "jax", "jaxlib", "jaxlie", "numpy", "pyarrow", "matplotlib"):
        try:
            out.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            out.append((name, "not installed as a package"))
    return out


# ---------------------------------------------------------------------------------------------- choosing and summarising


def worst_executions(scored: Scored, n: int = WORST_N) -> list[int]:
    """Rows of the lowest executions that lost something: some with a closed gate first, then by Q."""
    lossy = [int(i) for i in np.argsort(scored.number["gate_free_Q"], kind="stable") if scored.valid[i]]
    shut = [i for i in lossy if scored.closed[i]]
    open_ = [i for i in lossy if not scored.closed[i] and scored.number["gate_free_Q"][i] < 1]
    shut_n = min(len(shut), max(CLOSED_N, n - len(open_)))
    return shut[:shut_n] + open_[: n - shut_n]


def chosen_groups(scored: Scored, n: int) -> tuple[list[int], list[str]]:
    """Groups to draw, in their order, and the names of those left out: with too many, the lowest means are drawn."""
    every = list(range(len(scored.groups)))
    if len(every) <= n:
        return every, []
    means = [_mean(scored.q[scored.rows_of(g)]) for g in every]
    low = sorted(every, key=lambda g: np.inf if means[g] is None else means[g])[:n]
    return sorted(low), [scored.groups[g] for g in every if g not in low]


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _most(words: list[str]) -> str:
    """The most frequent word that is not empty, with its share of the words there are."""
    told = [w for w in words if w]
    if not told:
        return "–"
    word, n = Counter(told).most_common(1)[0]
    return f"{word} ({n} of {len(words)})"


def _group(scored: Scored, g: int) -> dict[str, Any]:
    rows = scored.rows_of(g)
    q = scored.q[rows]
    return {
        "name": scored.groups[g],
        "n": int((scored.group == g).sum()),
        "judged": len(rows),
        "mean": _mean(q),
        "low": float(q.min()) if len(q) else None,
        "high": float(q.max()) if len(q) else None,
        "closed": int(scored.closed[rows].sum()),
        "pair": _most([scored.text["worst_pair"][i] for i in rows]),
        "sub_task": _most([scored.text["worst_sub_task"][i] for i in rows]),
    }


def _headline(scored: Scored) -> str:
    """Two sentences: which group is lowest, and what most executions lost their quality to."""
    told = []
    judged = np.flatnonzero(scored.valid)
    means = {g: float(scored.q[rows].mean()) for g in range(len(scored.groups)) if len(rows := scored.rows_of(g))}
    if len(means) > 1:
        low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        told.append(
            f"Mean Q is highest in “{scored.groups[high]}” ({means[high]:.3f}) and lowest in "
            f"“{scored.groups[low]}” ({means[low]:.3f})."
        )
    lost = [i for i in judged if scored.text["worst_pair"][i]]
    if lost:
        pair, n = Counter(scored.text["worst_pair"][i] for i in lost).most_common(1)[0]
        sub_task, m = Counter(scored.text["worst_sub_task"][i] for i in lost).most_common(1)[0]
        told.append(
            f"Of the {len(lost)} executions that lost something, {n} lost most in the relation “{pair}” at their worst "
            f"frame and {m} lost most in the sub-task “{sub_task}”."
        )
    return " ".join(told)


def _row(scored: Scored, i: int, frames: Frames | None) -> dict[str, Any]:
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
        "group_key": scored.groups.index(scored.text["group"][i]),
        "q": float(scored.q[i]) if scored.valid[i] else None,
        "kind": kind,
        "reason": reason,
        "sub_task": scored.text["worst_sub_task"][i],
        "frame": int(frame) if np.isfinite(frame) else None,
        "time": time,
    }


def _worst(scored: Scored, reference: Reference, i: int, rank: int, frames: Frames | None, page: _Page) -> dict[str, Any]:
    row = _row(scored, i, frames)
    row |= {
        "gate_free": float(scored.number["gate_free_Q"][i]),
        "pair": scored.text["worst_pair"][i],
        "direction": scored.text["worst_direction"][i],
        "gate_reason": scored.text["gate_reason"][i],
        "z": float(scored.number["worst_z"][i]),
        "picture": None,
        "stretch": None,
    }
    track = None if frames is None else frames.tracks.get(i)
    if track is None or row["frame"] is None or not (track.frame == row["frame"]).any():
        return row
    row["stretch"] = costly_stretch(track.t_s, track.cost.sum(axis=0))
    alt = f"Frame cost of {row['episode']} over time by relation; the worst frame is at {row['time']:.2f} s"
    row["picture"] = page.add(
        f"worst_{rank}",
        alt,
        lambda: F.track_figure(
            track.t_s, track.cost, [p.name for p in reference.pairs], [s.name for s in reference.spec.sub_tasks],
            scored.ends_s[i], int(np.flatnonzero(track.frame == row["frame"])[0]),
        ),
    )  # fmt: skip
    return row


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


# ------------------------------------------------------------------------------------------------------------ pictures


def _quality(scored: Scored, groups: list[int]) -> Any:
    parts = [(scored.groups[g], scored.q[rows := scored.rows_of(g)], scored.closed[rows]) for g in groups]
    return F.quality_figure(parts)


def _quality_alt(scored: Scored, groups: list[int]) -> str:
    told = [f"{scored.groups[g]} {m:.3f}" for g in groups if (m := _mean(scored.q[scored.rows_of(g)])) is not None]
    return "Q of every execution by group; means: " + ", ".join(told)


def _maps(scored: Scored, reference: Reference, frames: Frames | None, groups: list[int]) -> Any:
    assert frames is not None
    drawn = [g for g in groups if np.isfinite(frames.mean_cost[g]).any()]
    top = max(float(np.nanmax(frames.mean_cost[drawn])), 1e-3)
    return F.cost_figure(
        [(f"{scored.groups[g]} (n = {len(scored.rows_of(g))})", frames.mean_cost[g]) for g in drawn],
        [p.name for p in reference.pairs], [s.name for s in reference.spec.sub_tasks], reference.bins_n, top,
    )  # fmt: skip


def _cost_alt(scored: Scored, frames: Frames | None) -> str:
    return "Mean frame cost of every relation over progress, one map a group, sub-tasks from left to right"


@dataclass(frozen=True)
class ConstraintMap:
    """What a reference holds: pinned directions [J, L], the median spread along them in mm [J, L] (NaN where nothing is
    pinned), and the smallest and largest deviation in mm that costs nothing along a pinned direction.
    """

    pinned_n: np.ndarray
    spread_mm: np.ndarray
    admissible_mm: tuple[float, float] | None


def constraint_map(reference: Reference, params: G.GeometricParams) -> ConstraintMap:
    """The constraint map of a reference under given thresholds. Spreads are the demonstrations' own, before the floor."""
    found = jax.jit(G.constraints)(reference, params)
    pinned, directions = np.asarray(found.pinned), np.asarray(found.directions, float)
    d = np.asarray(reference.deviations, float)[np.asarray(reference.demo_valid)]
    along = np.einsum("kjla,jlai->kjli", d, directions)
    spread = np.sqrt((along**2).sum(axis=0) / max(len(d) - 1, 1))
    median = np.ma.median(np.ma.array(spread, mask=~pinned), axis=-1)
    sigma = np.asarray(found.sigma_m, float)[pinned] * 1e3 * float(G.admissible_radius(reference, params))
    return ConstraintMap(
        pinned.sum(axis=-1), 1e3 * np.ma.filled(median, np.nan), (sigma.min(), sigma.max()) if sigma.size else None
    )


def _constraints(reference: Reference, params: G.GeometricParams, held: ConstraintMap) -> Any:
    return F.constraint_figure(
        held.pinned_n, held.spread_mm, [p.name for p in reference.pairs], [s.name for s in reference.spec.sub_tasks],
        reference.bins_n, 1e3 * float(params.sigma_pin_m),
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------- method and the rest


def _params(params: G.GeometricParams) -> list[tuple[str, str, str]]:
    """(symbol, value, meaning) of every parameter that had a say."""
    out = [
        ("σ_pin", f"{float(params.sigma_pin_m) * 1e3:g} mm", "directions in which demonstrations spread less are pinned"),
        ("σ₀", f"{float(params.sigma_0_m) * 1e3:g} mm", "floor of the spread"),
    ]
    if params.calibrated:
        told = f"{float(params.z_0_quantile):g} quantile of the demonstrations’ leave-one-out z"
        out.append(("z₀", told, "admissible radius in spreads"))
    else:
        out.append(("z₀", f"{float(params.z_0):g}", "admissible radius in spreads"))
    return [
        *out,
        ("gate factor", f"{float(params.term_factor):g}", "times the demonstrations’ largest terminal z opens the gate"),
        ("penalty", params.penalty, "of the excess e"),
        ("weighting", params.weighting, "what counts the same in the mean: every frame, or every progress bin"),
    ]


def _method(reference: Reference, params: G.GeometricParams) -> dict[str, str]:
    penalty = {"hinge": "eᵢ", "squared": "eᵢ²", "saturating": "(1 − exp(−eᵢ))"}[params.penalty]
    mean = "frames" if params.weighting == "frames" else "progress bins"
    log = "Log" if reference.deviation == "se3_log" else "Log on R³ × SO(3)"
    return {"penalty": penalty, "mean": mean, "log": log}


def _provenance(scored: Scored, about: dict[str, Any]) -> list[tuple[str, str]]:
    """What is known about the reference and this run, flat; lists of remarks stand under what was skipped."""
    known = {**{k: v for k, v in scored.told.items() if k in ("reference", "commit", "configuration", "episodes")}, **about}
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


def _skipped(
    scored: Scored, reference: Reference, frames: Frames | None, about: dict[str, Any]
) -> list[tuple[str, list[str]]]:
    """What this report does not judge or show, and what was remarked on the way: (title, lines), empty ones left out."""
    told = scored.told
    not_judged = [
        f"{scored.text['episode'][i]}: {scored.text['status'][i] or 'no reason given'}" for i in np.flatnonzero(~scored.valid)
    ]
    left_out = [": ".join(str(x) for x in pair) for pair in about.get("left_out", ())]
    unsure = np.argwhere(~np.asarray(reference.converged))
    names = [reference.pairs[int(j)].name for j in sorted(set(unsure[:, 0].tolist()))] if len(unsure) else []
    remarks = [f"{code}: {n} executions ({FINDINGS[code][1]})" for code, n in scored.findings.items() if code in FINDINGS]
    files = [str(r[1]) if isinstance(r, list | tuple) and len(r) > 1 else str(r) for r in told.get("refused", ())]
    sections = [
        ("Relations that were not scored (a body is missing)", [str(p) for p in told.get("skipped_pairs", ())]),
        ("Executions that were not judged", not_judged),
        ("Files that were refused", files),
        ("Demonstrations left out of the fit", left_out),
        ("Notes of the scoring", [str(x) for x in told.get("notes", ())]),
        ("Notes of the fit", [str(x) for x in about.get("notes", ())]),
        ("Remarks on the recordings", sorted(remarks, key=natural)),
        ("Relations whose mean over demonstrations is not unique or did not converge in some bins", names),
        (
            "Figures left out",
            [f"cost over progress and over time, and times of worst frames: {FRAME_COSTS} was not written (frames=true)"]
            if frames is None
            else [],
        ),
        ("Cost maps left out", [f"only {MAPS_N} of {len(scored.groups)} groups are drawn"] * (len(scored.groups) > MAPS_N)),
    ]
    return [(title, _cut(lines)) for title, lines in sections if lines]


def _cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LISTED_N else [*lines[:LISTED_N], f"… and {len(lines) - LISTED_N} more"]


# ----------------------------------------------------------------------------------------------------------- writing


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be made ({error.strerror}); expected a writable folder; choose another with out=DIR"
        ) from error
    return path


def _write(path: Path, text: str) -> Path:
    _replace(path, text.encode())
    return path


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); expected a writable folder; choose another with out=DIR"
        ) from error
    finally:
        part.unlink(missing_ok=True)
