"""Five published grasps measured again: the same margins, and how far they hang on what nobody measures.

    python experiments/force_closure_known_grasps.py out=outputs/force_closure_known_grasps

Every published score of the five (Ferrari-Canny with two lengths of edges, min-weight, volume, risk margins) beside
ours, exact; the batched margin in float32; then the exact margin over the number of edges (4 to 64), the turn of the
edges in the tangent plane, and the torque length. Margins and min-weights are told in thousandths.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from record import Record, arguments, keep_compiled_code

from jaxeval.metrics.grasp import UNIT_NORMAL, grasp_margins, tail_friction
from jaxeval.metrics.grasp_host import (
    Sensitivity,
    cone_wrenches,
    exact_margin,
    hull_volume,
    margin_cvar,
    margin_sensitivity,
)
from jaxeval.report.figures import OKABE_ITO

SOURCE = "scores published with five grasps of boxes, friction 0.7, 8 edges, torques in N m about the box's centre"
GRASPS = Path(__file__).resolve().parents[1] / "jaxeval" / "data" / "parcelstow" / "grasps.json"
FRICTION, FRICTION_SD, TORQUE_LENGTH_M, ORIGIN_M = 0.7, 0.1, 1.0, np.zeros(3)
EDGES_N, TORQUE_LENGTHS_M, TURNS_N = (4, 6, 8, 12, 16, 24, 32, 64), (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0), 4
TURNS_RAD = np.linspace(0, np.pi / 4, 25)  # one spacing of eight edges


class Grasp(NamedTuple):
    name: str
    points_m: np.ndarray
    normals: np.ndarray
    scores: dict[str, Any]

    def wrenches(self, **how: Any) -> np.ndarray:
        """Of the published setting, but for what is given."""
        setting = {"friction": FRICTION, "torque_length_m": TORQUE_LENGTH_M, "origin_m": ORIGIN_M}
        return cone_wrenches(self.points_m, self.normals, **(setting | how))


def main(out: str) -> None:
    """Measure everything, write `result.json` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Force closure of five known grasps", SOURCE, out)
    grasps = read()
    for grasp in grasps:
        add_published(record, grasp)
    batched(record, grasps)
    print("sensitivity ...", file=sys.stderr, flush=True)
    found = [sensitivity(g) for g in grasps]
    turned = [np.array([exact_margin(g.wrenches(turn_rad=float(t))).margin for t in TURNS_RAD]) for g in grasps]
    for grasp, s, margins in zip(grasps, found, turned, strict=True):
        add_sensitivity(record, grasp.name, s, margins)
    record.add_figure("sensitivity.png", sensitivity_figure(grasps, found, turned))
    record.finish()


def read() -> list[Grasp]:
    """The five grasps, in metres."""
    told = json.loads(GRASPS.read_text())["grasps"]
    return [
        Grasp(f"grasp {k}", np.array(g["points_mm"]) / 1e3, np.array(g["normals"]), g["scores"])
        for k, g in enumerate(told, 1)
    ]


def add_published(record: Record, grasp: Grasp) -> None:
    """Every published score beside ours."""
    unit, normal = grasp.wrenches(), grasp.wrenches(edges=UNIT_NORMAL)
    exact, scores = exact_margin(unit), grasp.scores
    add = partial(add_beside, record, grasp.name)
    add("Ferrari-Canny margin", exact.margin, scores["ferrari_canny"], "edges of length 1")
    add("margin, edges n + mu t", exact_margin(normal).margin, scores["eps_nominal"], "normal component 1")
    add("min-weight", exact.min_weight, scores["l_star"], "HiGHS")
    note = "N^3 (N m)^3, edges of length 1"
    add("hull volume", hull_volume(unit), scores["gws_volume"], note, unit=1e-6)
    for beta, published in scores["eps_beta"].items():
        mu = FRICTION - FRICTION_SD * tail_factor(float(beta))
        risky, at = exact_margin(grasp.wrenches(edges=UNIT_NORMAL, friction=mu)), f"at friction {mu:.4f}"
        add(f"margin at the tail's mean friction, beta {beta}", risky.margin, published, at)
        add(f"min-weight there, beta {beta}", risky.min_weight, scores["risk_min_weight"][beta], at)
    cvar = margin_cvar(
        grasp.points_m, grasp.normals, friction_mean=FRICTION, friction_sd=FRICTION_SD, beta=0.95,
        torque_length_m=TORQUE_LENGTH_M, origin_m=ORIGIN_M, edges=UNIT_NORMAL,
    )  # fmt: skip
    add("CVaR of the margin, beta 0.95", cvar, scores["eps_beta"]["0.95"], "the published is not a mean of margins")


def tail_factor(beta: float) -> float:
    """How many standard deviations the tail's mean lies below the mean, in float64."""
    from scipy.stats import norm

    factor = float(norm.pdf(norm.ppf(beta)) / (1 - beta))
    assert abs(factor + float(tail_friction(mean=0.0, sd=1.0, beta=beta))) < 1e-4
    return factor


def add_beside(
    record: Record, name: str, quantity: str, ours: float, published: float, note: str, *, unit: float = 1e-3
) -> None:
    """A row in units of ``unit`` whose note says how far apart the two are."""
    note = f"{note}; apart by {abs(ours / published - 1):.1e} of it"
    record.add(f"{name}, {quantity}, 1e{round(np.log10(unit))}", ours / unit, published=published / unit, note=note)


def batched(record: Record, grasps: list[Grasp]) -> None:
    """The batched margin in float32, and its distance from the exact one."""
    W = jnp.asarray(np.stack([g.wrenches() for g in grasps]), jnp.float32)
    found = grasp_margins(W, jnp.ones(W.shape[:2], bool))
    for grasp, margin, weight in zip(grasps, found.margin, found.min_weight, strict=True):
        add = partial(add_beside, record, grasp.name)
        add("Ferrari-Canny margin, batched", float(margin), grasp.scores["ferrari_canny"], "float32, 16 walks")
        add("min-weight, batched", float(weight), grasp.scores["l_star"], "float32")


def sensitivity(grasp: Grasp) -> Sensitivity:
    return margin_sensitivity(
        grasp.points_m, grasp.normals, friction=FRICTION, torque_length_m=TORQUE_LENGTH_M, origin_m=ORIGIN_M,
        edges_n=EDGES_N, torque_lengths_m=TORQUE_LENGTHS_M, turns_n=TURNS_N,
    )  # fmt: skip


def add_sensitivity(record: Record, name: str, found: Sensitivity, turned: np.ndarray) -> None:
    """Middle and range of the margin over turns of the edges, for every setting."""
    settings = [(f"{n} edges", "torque length 1 m", low, high) for n, low, high in found.edges]
    settings += [(f"torque length {x:g} m", "8 edges", low, high) for x, low, high in found.torque_length_m]
    for setting, other, low, high in settings:
        note = f"{other}, {1e3 * low:.4g} to {1e3 * high:.4g} over {TURNS_N} turns"
        record.add(f"{name}, margin with {setting}, 1e-3", 1e3 * (low + high) / 2, n=TURNS_N, note=note)
    gain = float(turned.max() / turned.min() - 1)
    record.add(f"{name}, highest over lowest margin of a turn, minus 1", gain, n=len(turned), note="8 edges")


def sensitivity_figure(grasps: list[Grasp], found: list[Sensitivity], turned: list[np.ndarray]) -> Figure:
    """Margin against the number of edges, their turn, and the torque length."""
    figure = Figure(figsize=(11.0, 4.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for grasp, s, margins, colour, marker in zip(grasps, found, turned, OKABE_ITO, "osD^v", strict=False):
        look = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.4}
        n, low, high = (np.array(x) for x in zip(*s.edges, strict=True))
        left.fill_between(n, 1e3 * low, 1e3 * high, color=colour, alpha=0.2, linewidth=0)
        left.plot(n, 1e3 * (low + high) / 2, label=grasp.name, **look)
        middle.plot(np.degrees(TURNS_RAD), 1e3 * margins, markevery=4, **look)
        length, low, high = (np.array(x) for x in zip(*s.torque_length_m, strict=True))
        right.plot(1e3 * length, 1e3 * (low + high) / 2, **look)
    left.set_xscale("log", base=2)
    plain_ticks(left.xaxis, EDGES_N[::2] + EDGES_N[-1:])
    left.set_xlabel("edges of a cone (band: turns of them)")
    left.legend(frameon=False, fontsize=9, loc="lower right")
    middle.set_xlabel("turn of 8 edges about the normal, deg")
    middle.set_xticks(np.arange(0, 46, 15))
    right.set(xscale="log", yscale="log", xlabel="torque length, mm")
    plain_ticks(right.xaxis, [1e3 * x for x in TORQUE_LENGTHS_M])
    plain_ticks(right.yaxis, (1, 2, 5, 10, 20, 50, 100, 200))
    for ax, told in (
        (left, "few edges: too small a margin"),
        (middle, "an arbitrary basis moves it"),
        (right, "the torque length sets its size"),
    ):
        ax.set_title(told, loc="left", fontsize=11, fontweight="bold")
        ax.set_ylabel("Ferrari-Canny margin, 1e-3")
        ax.grid(axis="y", color="#e4e4e4")
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def plain_ticks(axis: Axis, at: Sequence[float]) -> None:
    """Ticks of a logarithmic axis as numbers."""
    axis.set_ticks([*at], labels=[f"{x:g}" for x in at])
    axis.set_ticks([], minor=True)


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/force_closure_known_grasps"))
