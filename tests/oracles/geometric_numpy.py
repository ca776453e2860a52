"""Float64 NumPy/SciPy twin of the geometric quality, written from the definition and not from the package.

Rotations are scipy's, logarithms go through the matrix V of the exponential map, frames and sub-tasks are plain loops.
Only data are taken from a Reference: nominal poses, the demonstrations' deviations, scales, the task spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from jaxeval.types import Predicate, Reference, TaskSpec

Pose = tuple[Rotation, np.ndarray]


# ------------------------------------------------------------------------------------------------------------ poses


def pose(wxyz_xyz: np.ndarray) -> Pose:
    x = np.asarray(wxyz_xyz, np.float64)
    return Rotation.from_quat(x[..., :4], scalar_first=True), x[..., 4:]


def in_frame_of(a: Pose, b: Pose) -> Pose:
    """b^-1 a."""
    back = b[0].inv()
    return back * a[0], back.apply(a[1] - b[1])


def hat(phi: np.ndarray) -> np.ndarray:
    x, y, z = phi
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


def log(T: Pose) -> np.ndarray:
    """(rho, phi) with T = Exp((rho, phi)): phi the rotation vector, and V(phi) rho = t."""
    phi, K = T[0].as_rotvec(), hat(T[0].as_rotvec())
    angle = float(np.linalg.norm(phi))
    if angle < 1e-4:
        V = np.eye(3) + K / 2 + K @ K / 6 - angle**2 * (K / 24 + K @ K / 120)
    else:
        V = np.eye(3) + (1 - np.cos(angle)) / angle**2 * K + (angle - np.sin(angle)) / angle**3 * K @ K
    return np.concatenate([np.linalg.solve(V, T[1]), phi])


def scaled_deviation(nominal: Pose, T: Pose, scale: np.ndarray, *, kind: str, any_turn: bool) -> np.ndarray:
    """d = (rho, S phi), metres. ``any_turn``: the body looks the same however it is turned."""
    rotation, t = in_frame_of(T, nominal)
    if any_turn:
        return np.concatenate([t, np.zeros(3)])
    if kind == "decoupled":
        return np.concatenate([t, scale @ rotation.as_rotvec()])
    xi = log((rotation, t))
    return np.concatenate([xi[:3], scale @ xi[3:]])


# ------------------------------------------------------------------------------------------------------ constraints


@dataclass
class Axes:
    """Directions as columns, smallest spread first; floored spreads; which are pinned."""

    directions: np.ndarray
    sigma: np.ndarray
    pinned: np.ndarray


def axes_of(deviations: np.ndarray, *, sigma_0: float, sigma_pin: float, any_turn: bool, divisor: float) -> Axes:
    """Principal axes of deviations [K, 6]. Of a body that looks the same however turned, only translations count."""
    D = 3 if any_turn else 6
    d = deviations[:, :D]
    variance, vectors = np.linalg.eigh(d.T @ d / divisor)
    spread = np.sqrt(np.maximum(variance, 0))
    floored = spread <= sigma_0
    block = vectors[:, floored]
    # within the floored block: the eigenvectors of diag(1..6) seen from inside it
    _, turn = np.linalg.eigh(block.T @ np.diag(np.arange(1.0, D + 1)) @ block)
    directions = np.zeros((6, 6))
    directions[:D, :D] = np.concatenate([block @ turn, vectors[:, ~floored]], axis=1)
    directions[D:, D:] = np.eye(6 - D)
    sigma = np.concatenate([np.maximum(spread, sigma_0), np.full(6 - D, np.inf)])
    return Axes(directions, sigma, sigma < sigma_pin)


def any_turns(reference: Reference) -> list[bool]:
    kinds = [reference.spec.body(p.a).symmetry.kind for p in reference.pairs]
    assert set(kinds) <= {"none", "all"}, "the twin knows no other symmetry"
    assert all(reference.spec.body(p.b).symmetry.kind == "none" for p in reference.pairs)
    return [kind == "all" for kind in kinds]


def constraints(reference: Reference, params: Any) -> list[list[Axes]]:
    """Axes of every pair and bin."""
    counts = np.asarray(reference.demo_valid)
    d = np.asarray(reference.deviations, np.float64)[counts]
    K, J, L, _ = d.shape
    told = {"sigma_0": float(params.sigma_0_m), "sigma_pin": float(params.sigma_pin_m), "divisor": max(K - 1, 1)}
    turns = any_turns(reference)
    return [[axes_of(d[:, j, l], any_turn=turns[j], **told) for l in range(L)] for j in range(J)]


def radius(reference: Reference, params: Any) -> float:
    """z_0; calibrated: the quantile of every demonstration's z against the axes of the others."""
    if not params.calibrated:
        return float(params.z_0)
    counts = np.asarray(reference.demo_valid)
    d = np.asarray(reference.deviations, np.float64)[counts]
    K, J, L, _ = d.shape
    told = {"sigma_0": float(params.sigma_0_m), "sigma_pin": float(params.sigma_pin_m), "divisor": max(K - 2, 1)}
    turns = any_turns(reference)
    all_z = []
    for k in range(K):
        for j in range(J):
            for l in range(L):
                shifted = d[:, j, l] + d[k, j, l] / (K - 1)  # about the mean of the others, to first order
                axes = axes_of(np.delete(shifted, k, axis=0), any_turn=turns[j], **told)
                all_z.append((np.abs(axes.directions.T @ shifted[k]) / axes.sigma)[axes.pinned])
    return float(np.quantile(np.concatenate(all_z), float(params.z_0_quantile)))


# --------------------------------------------------------------------------------------------------------- the score

PENALTY = {"hinge": lambda e: e, "squared": lambda e: e * e, "saturating": lambda e: 1 - np.exp(-e)}


def score(
    poses: np.ndarray,
    bins: np.ndarray,
    reached: np.ndarray,
    success: int,
    reference: Reference,
    params: Any,
    bodies: Any,
    valid: np.ndarray | None = None,
) -> dict[str, Any]:
    """Q of one execution and its parts; `poses` [T, N, 7], `bins` [T] with -1 for frames that do not count.

    `valid` [T, N]: which bodies were seen. q is NaN where too little was.
    """
    valid = np.ones(poses.shape[:2], bool) if valid is None else valid
    found, z_0 = constraints(reference, params), radius(reference, params)
    used = [j for j, p in enumerate(reference.pairs) if p.a in bodies and p.b in bodies]
    turns = any_turns(reference)
    nominal = np.asarray(reference.nominal, np.float64)
    scale = np.asarray(reference.scale, np.float64)
    frames = [t for t in range(len(bins)) if bins[t] >= 0]
    T, J, L, P = len(bins), len(reference.pairs), nominal.shape[1], len(reference.spec.sub_tasks)
    seen = np.zeros((T, J), bool)
    for t in frames:
        for j in used:
            a, b = (bodies.index(name) for name in (reference.pairs[j].a, reference.pairs[j].b))
            seen[t, j] = valid[t, a] and valid[t, b]

    z = np.zeros((T, J, 6))
    for t in frames:
        for j in (j for j in used if seen[t, j]):
            a, b = (pose(poses[t, bodies.index(name)]) for name in (reference.pairs[j].a, reference.pairs[j].b))
            axes = found[j][bins[t]]
            d = scaled_deviation(
                pose(nominal[j, bins[t]]), in_frame_of(a, b), scale[j], kind=reference.deviation, any_turn=turns[j]
            )
            z[t, j] = np.abs(axes.directions.T @ d) / axes.sigma

    cost = np.zeros((T, J))
    pinned_n = np.zeros(T, int)
    judged = []
    for t in frames:
        pinned_n[t] = sum(int(found[j][bins[t]].pinned.sum()) for j in used if seen[t, j])
        all_n = sum(int(found[j][bins[t]].pinned.sum()) for j in used)
        if seen[t].any() and (pinned_n[t] > 0 or all_n == 0):
            judged.append(t)
        for j in (j for j in used if seen[t, j]):
            excess = np.maximum(0, z[t, j, found[j][bins[t]].pinned] - z_0)
            cost[t, j] = PENALTY[params.penalty](excess).sum() / max(pinned_n[t], 1)
    weight = np.zeros(T)
    for t in judged:
        weight[t] = 1.0 if params.weighting == "frames" else 1.0 / np.sum(bins[judged] == bins[t])
    weight /= weight.sum()

    gate_free = float(np.exp(-(weight @ cost).sum()))
    z_end, enough = np.zeros((J, 6)), True
    coverage = seen[frames].mean(axis=0)
    for j in used:
        when = [t for t in frames if seen[t, j]]
        z_end[j] = z[when[-1], j] if when else 0.0
        pinned = any(axes.pinned.any() for axes in found[j])
        enough &= not pinned or coverage[j] >= float(params.coverage_min)
        last = found[j][-1]
        placed = any(last.pinned[i] and (last.directions[:3, i] ** 2).sum() >= 0.5 for i in range(6))
        if reference.pairs[j].role in ("m_r", "m_s") and placed:
            enough &= any(bins[t] == bins[frames[-1]] for t in when)
    code, index = gate(z_end, found, reached, success, reference, params, z_0, used)
    counts = np.isin(np.arange(T), judged)
    sub_task = [cost[counts & (bins // (L // P) == p)].sum(axis=1) for p in range(P)]
    return {
        "q": np.nan if not enough else gate_free if code == 0 else 0.0,
        "enough": enough,
        "pair_coverage": np.where(np.isin(np.arange(J), used), coverage, 0.0),
        "gate_free": gate_free,
        "gate_code": code,
        "gate_index": index,
        "pair_cost": weight @ cost,
        "frame_pair_cost": cost.T,
        "sub_task_cost": np.array([c.mean() if c.size else 0.0 for c in sub_task]),
    }


def gate(
    z_end: np.ndarray,
    found: list[list[Axes]],
    reached: np.ndarray,
    success: int,
    reference: Reference,
    params: Any,
    z_0: float,
    used: list[int],
) -> tuple[int, int]:
    """1: a sub-task never reached; 2: misplaced at the end; 3: the success flag is False; 0: open."""
    if not reached.all():
        return 1, int(np.flatnonzero(~reached)[0])
    terminal = np.asarray(reference.terminal, np.float64)[np.asarray(reference.demo_valid)]
    worst, where = 0.0, -1
    for j in used:
        if reference.pairs[j].role not in ("m_r", "m_s"):
            continue
        axes = found[j][-1]
        placed = [i for i in range(6) if axes.pinned[i] and (axes.directions[:3, i] ** 2).sum() >= 0.5]
        demonstrated = [np.abs(axes.directions[:, i] @ d) / axes.sigma[i] for i in placed for d in terminal[:, j]]
        limit = max(float(params.term_factor) * max(demonstrated, default=0.0), z_0)
        if reference.spec.z_term is not None:
            limit = reference.spec.z_term
        for i in placed:
            if z_end[j, i] > limit and z_end[j, i] / limit > worst:
                worst, where = z_end[j, i] / limit, 6 * j + i
    if where >= 0:
        return 2, where
    return (3, -1) if success == 0 and reference.spec.use_success_flag else (0, -1)


# ---------------------------------------------------------------------------------------------------- the alignment


class Watch:
    """Predicates of one sub-task, asked frame by frame. A margin in the predicate's unit: it holds from zero up."""

    def __init__(
        self, poses: np.ndarray, time: np.ndarray, valid: np.ndarray, width: np.ndarray, bodies: Any, spec: Any
    ):
        self.poses, self.time, self.valid, self.width = poses, time, valid, width
        self.bodies, self.spec = list(bodies), spec

    def track(self, name: str, frame: str) -> np.ndarray:
        a, b = (pose(self.poses[:, self.bodies.index(n)]) for n in (name, frame))
        return in_frame_of(a, b)[1]

    def earlier(self, t: int, window_s: float) -> int:
        """Last frame at least (to 0.1 ms) a window before frame t, or -1."""
        back = [s for s in range(t + 1) if self.time[s] <= self.time[t] - window_s + 1e-4]
        return back[-1] if back else -1

    def margin(self, p: Predicate, t: int, start: int) -> float:
        since = [s for s in range(start, t + 1) if self.valid[s]]
        if p.kind == "gripper_closing":
            return max((self.width[s] for s in since), default=-np.inf) - p.value - self.width[t]
        if p.kind == "gripper_opening":
            return self.width[t] - min((self.width[s] for s in since), default=np.inf) - p.value
        if p.kind == "gripper_open":
            return self.width[t] - p.value
        if p.kind == "gripper_closed":
            before = self.earlier(t, p.window_s)
            narrow = self.width[t] < self.width[self.valid].max() - p.value
            return p.value - abs(self.width[t] - self.width[before]) if before >= 0 and narrow else -np.inf
        if p.kind == "lifted":
            height = self.track(p.body, p.other or self.spec.support)[:, 2]
            return height[t] - height[start] - p.value
        if p.kind in ("near", "away"):
            kept = [axis in p.axes for axis in "xyz"]
            apart = (self.track(p.body, p.other)[t] - p.offset_m)[kept]
            distance = float(np.sqrt((apart**2).sum()))
            return p.value - distance if p.kind == "near" else distance - p.value
        if p.kind == "at_rest":
            before = self.earlier(t, p.window_s)
            place = self.poses[:, self.bodies.index(p.body), 4:]
            return p.value - float(np.linalg.norm(place[t] - place[before])) if before >= 0 else -np.inf
        raise ValueError(f"the twin does not know {p.kind}")


def align(
    poses: np.ndarray,
    time: np.ndarray,
    valid: np.ndarray,
    width: np.ndarray,
    *,
    spec: TaskSpec,
    bodies: tuple[str, ...],
    bins_n: int,
    mean_duration_s: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bins [T], reached [P], ends [P]) of one execution."""
    T, P = len(time), len(spec.sub_tasks)
    watch = Watch(poses, time, valid, width, bodies, spec)
    bins, reached, ends = np.full(T, -1), np.zeros(P, bool), np.full(P, T)
    previous = int(np.flatnonzero(valid)[0])
    began = time[previous]
    for p, sub_task in enumerate(spec.sub_tasks):
        margins = np.full(T, -np.inf)
        end = None
        for t in range(T):
            margins[t] = min(watch.margin(u, t, previous) for u in sub_task.until)
            if end is None and t > previous and valid[t] and margins[t] >= 0:
                end = t
                break
        if end is None:
            for t in range(previous, T):
                if valid[t]:
                    done = (time[t] - began) / mean_duration_s[p]
                    bins[t] = p * bins_n + min(int(done * bins_n + 1e-4), bins_n - 1)
            return bins, reached, ends
        before = max((s for s in range(end) if valid[s]), default=end)
        crossed = time[end]
        if np.isfinite(margins[before]) and margins[before] < 0:
            part = margins[before] / (margins[before] - margins[end])
            crossed = time[before] + part * (time[end] - time[before])
        for t in range(previous, end):
            if valid[t]:
                # the frame that opens a sub-task may lie before the crossing that the previous one ended at: bin 0
                done = max(0.0, (time[t] - began) / (crossed - began))
                bins[t] = p * bins_n + min(int(done * bins_n + 1e-4), bins_n - 1)
        reached[p], ends[p] = True, end
        previous, began = end, crossed
    for t in range(previous, T):
        if valid[t]:
            bins[t] = P * bins_n - 1
    return bins, reached, ends
