"""Trajectories in space, to be turned and hovered over by the page's script: what plotly.js draws, as plain values."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxeval.report.figures import INK, OKABE_ITO
from jaxeval.report.motion import MotionTrack, thinned
from jaxeval.report.motion_figures import ALARM

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
"""Line styles of groups beside their colours, in the order of OKABE_ITO."""
NEAR_N = 20
"""Frames near a singularity that are marked in space, of one execution."""


def plotly_js() -> str:
    """The source of plotly.js as it comes with plotly, for a script element; 4.7 MB."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def trajectories_in_space(
    paths: Sequence[tuple[int, str, MotionTrack]], groups: list[str], sub_tasks: list[str]
) -> dict[str, Any]:
    """Trajectories to turn and to hover over (mm, world frame): data, layout and config for plotly, as JSON has them.

    ``paths``: (index into ``groups``, execution, frames). A trace an execution, thinned; a group's are shown and hidden
    together. Names are escaped here: plotly reads its texts as markup.
    """
    data: list[dict[str, Any]] = []
    near: list[tuple[Any, ...]] = []
    starts: list[np.ndarray] = []
    named: set[int] = set()
    for g, execution, track in paths:
        assert track.position_m is not None
        seen = np.flatnonzero(np.isfinite(track.position_m).all(axis=1))
        if not len(seen):
            continue
        at = seen[thinned(len(seen))]
        x = np.round(1e3 * track.position_m, 1)
        meta = [_shown(execution, 80), _shown(groups[g], 40)]
        stage = [_shown(sub_tasks[p], 40) if 0 <= p < len(sub_tasks) else "" for p in track.sub_task[at]]
        data.append({
            "type": "scatter3d", "mode": "lines", "name": meta[1], "legendgroup": str(g), "showlegend": g not in named,
            "meta": meta, **{axis: x[at, k].tolist() for k, axis in enumerate("xyz")},
            "line": {"color": OKABE_ITO[g], "width": 4, "dash": DASHES[g]},
            "customdata": [[_number(t, 2), _number(v, 0), p] for t, v, p in
                           zip(track.t_s[at], 1e3 * _speed(track)[at], stage, strict=True)],
            "hovertemplate": "%{meta[0]}<br>%{customdata[0]} s, %{customdata[1]} mm/s<br>%{customdata[2]}"
                             "<extra>%{meta[1]}</extra>",
        })  # fmt: skip
        named.add(g)
        starts.append(x[seen[0]])
        bad = seen[track.singular[seen]]
        near += [(*x[i], meta[0], _number(track.t_s[i], 2)) for i in bad[thinned(len(bad), NEAR_N)]]
    if starts:
        data.append({"type": "scatter3d", "mode": "markers", "name": "start", "hoverinfo": "skip",
                     "marker": {"size": 2.5, "color": INK},
                     **{axis: [float(s[k]) for s in starts] for k, axis in enumerate("xyz")}})  # fmt: skip
    if near:
        data.append({"type": "scatter3d", "mode": "markers", "name": "near a singularity",
                     "marker": {"size": 5, "color": ALARM, "symbol": "diamond"},
                     "customdata": [list(n[3:]) for n in near],
                     "hovertemplate": "%{customdata[0]}<br>%{customdata[1]} s, near a singularity<extra></extra>",
                     **{axis: [float(n[k]) for n in near] for k, axis in enumerate("xyz")}})  # fmt: skip
    camera = {"eye": {"x": 1.05, "y": -1.75, "z": 1.0}, "center": {"x": 0, "y": 0, "z": -0.2}}
    axes = {f"{a}axis": {"title": {"text": f"{a}, mm"}} for a in "xyz"}
    layout = {
        "scene": {"aspectmode": "data", "camera": camera, **axes},
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0}, "paper_bgcolor": "#ffffff", "font": {"color": INK},
        "legend": {"x": 0, "y": 1, "itemsizing": "constant"}, "hoverlabel": {"align": "left", "namelength": -1},
    }  # fmt: skip
    return {"data": data, "layout": layout, "config": {
        "displaylogo": False, "responsive": True,
        "modeBarButtons": [["toImage", "orbitRotation", "pan3d", "zoom3d", "resetCameraDefault3d"]],
    }}  # fmt: skip


def _shown(text: str, n: int) -> str:
    """Text as plotly shows it letter by letter, cut to n."""
    return html.escape(text if len(text) <= n else text[: n - 1] + "…", quote=False)


def _speed(track: MotionTrack) -> np.ndarray:
    return np.full(len(track.t_s), np.nan) if track.speed_m_s is None else track.speed_m_s


def _number(value: Any, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"
