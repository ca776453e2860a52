"""How far a reference carries: to other arms, and to poses that a tracker would have seen (SPECTRA, section IV-C).

    python experiments/transfer.py out=outputs/transfer [data=FOLDER]

References are learned from 30 demonstrations of the Panda in simulation. They score executions of the same script by
other arms (StackCube and PlaceCan; arms of which there is no store are left out, and it is said), and unseen executions
of the Panda whose poses were disturbed as :mod:`jaxeval.sim.pose_noise` does it, half a degree for each millimetre.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from bundled_task import Demonstrations, load, pick
from matplotlib.figure import Figure
from oracle_data import TASKS, executions
from record import Record, arguments, keep_compiled_code, of_mean

from jaxeval.io import InputError
from jaxeval.io.smoothing import smoothed
from jaxeval.metrics.fused import FusedQuality
from jaxeval.metrics.status import Status
from jaxeval.report.figures import OKABE_ITO
from jaxeval.report.words import gate_words
from jaxeval.sim.pose_noise import PoseNoise, add_noise
from jaxeval.types import Episode, Reference

DEMONSTRATIONS_N, UNSEEN_N = 30, 10
ARMS = ("fetch", "so100")
OTHER_ARM = {"stack_cube": 0.95, "place_can": 0.93}
"""Published Q of a real arm (UR3), by the reference of a simulated one."""
LEVELS_MM = (0, 1, 2, 5, 10)
DEGREES_PER_MM = 0.5
COLOURS = (*OKABE_ITO[:6], "#222222")
SOURCE = (
    "SPECTRA: 'Shades of Success: Evaluating Manipulation Quality from Object-Centric Constraints', section IV-C "
    "(a real UR3 with tracked poses, by a simulated Panda's reference; ours: other arms and trackers in simulation)"
)


def at(mm: float) -> PoseNoise:
    """White noise of that many millimetres along each axis and half as many degrees about each."""
    return PoseNoise(position_m=mm / 1e3, rotation_rad=math.radians(DEGREES_PER_MM * mm))


SMOOTHED, WINDOW_S = "smoothed", 0.5
"""Kinds of noise whose tracks, the gripper's too, are smoothed over that long before they are scored."""
NOISE: dict[str, tuple[PoseNoise, str]] = {
    f"noise {mm} mm {DEGREES_PER_MM * mm:g} deg": (at(mm), "white from frame to frame") for mm in LEVELS_MM
} | {
    "noise 2 mm 1 deg, low-frequency": (
        replace(at(2), slow_share=1.0, correlation_s=1.0),
        "drifting, correlated over 1 s",
    ),
    "noise 2 mm 1 deg, dropouts": (replace(at(2), dropout_rate_hz=0.2), "white, and 0.2 times a second lost for 0.5 s"),
    "noise 2 mm 1 deg, delay": (replace(at(2), delay_s=0.1), "white, and objects seen 0.1 s late"),
    "dropouts alone": (replace(at(0), dropout_rate_hz=0.2), "exact poses, 0.2 times a second lost for 0.5 s"),
    "delay alone": (replace(at(0), delay_s=0.1), "exact poses, objects seen 0.1 s late"),
}
NOISE |= {
    f"{name}, {SMOOTHED}": (NOISE[name][0], f"{NOISE[name][1]}; then all tracks smoothed over {WINDOW_S} s")
    for name in (*(f"noise {mm} mm {DEGREES_PER_MM * mm:g} deg" for mm in LEVELS_MM), "noise 2 mm 1 deg, low-frequency")
}


@dataclass(frozen=True)
class Scored:
    """Q of some executions with what cost it."""

    q: np.ndarray
    gate_free: np.ndarray
    cost: dict[str, float]  # mean over executions, by relation
    gates: Counter[str]

    def told(self) -> str:
        """In words: gate, and the relations that cost most."""
        dear = sorted(self.cost.items(), key=lambda item: -item[1])
        costs = ", ".join(f"{name} {value:.3f}" for name, value in dear if value >= 0.0005) or "none"
        closed = ", ".join(f"{n} {why}" for why, n in self.gates.most_common())
        gate = f"gate closed on {sum(self.gates.values())}" + (f" ({closed})" if closed else "")
        return f"cost by relation: {costs}; {gate}; without the gate {self.gate_free.mean():.3f}"


def main(out: str, data: str) -> None:
    """Measure everything; write `result.json` and the figure into `out`."""
    keep_compiled_code()
    record = Record("Transfer to other arms and to tracked poses", SOURCE, out)
    noisy: dict[str, dict[str, Scored]] = {}
    for task in TASKS:
        print(f"{task} ...", file=sys.stderr, flush=True)
        demonstrations = load(task, executions("oracle", task, data))
        reference = pick(demonstrations.learn(demonstrations.first(DEMONSTRATIONS_N)[None]), 0)
        noisy[task] = under_noise(demonstrations, reference)
        if task in OTHER_ARM:
            other_arms(record, task, demonstrations, reference, data)
    noise_rows(record, noisy)
    record.add_figure("pose_noise.png", noise_figure(noisy))
    record.finish()


def other_arms(record: Record, task: str, demonstrations: Demonstrations, reference: Reference, data: str) -> None:
    """Rows of the other arms' executions of a task."""
    for arm in ARMS:
        try:
            runs = executions(f"oracle_{arm}", task, data)
        except InputError as error:
            print(f"{task}, {arm}: left out: {error}", file=sys.stderr, flush=True)
            continue
        succeeded = [e for e in runs if e.success_at_end is not False]
        found = scored(reference, demonstrations.score(demonstrations.padded(succeeded), reference), len(succeeded))
        note = f"successful executions of the same script ({len(succeeded)} of {len(runs)}), reference from 30 of the "
        note += f"Panda; published: a real UR3; {found.told()}"
        published = OTHER_ARM[task]
        record.add(f"{task} Q, {arm}", found.q.mean(), interval=of_mean(found.q), n=found.q.size, published=published,
                   note=note)  # fmt: skip


def under_noise(demonstrations: Demonstrations, reference: Reference) -> dict[str, Scored]:
    """The unseen executions under every kind of noise."""
    unseen = demonstrations.episodes[DEMONSTRATIONS_N : DEMONSTRATIONS_N + UNSEEN_N]
    runs: list[Episode] = []
    for name, (noise, _) in NOISE.items():
        seen = [add_noise(e, noise, key=0, spec=demonstrations.spec) for e in unseen]
        runs += [smoothed(e, WINDOW_S) for e in seen] if name.endswith(SMOOTHED) else seen
    quality = demonstrations.score(demonstrations.padded(runs), reference)
    n = len(unseen)
    return {name: scored(reference, quality, n, start=i * n) for i, name in enumerate(NOISE)}


def scored(reference: Reference, quality: FusedQuality, n: int, *, start: int = 0) -> Scored:
    """Rows [start, start + n) of what a batch scored, but for those of which too little was seen to judge them."""
    mine = start + np.flatnonzero(np.asarray(quality.status)[start : start + n] == Status.OK)
    cost = np.asarray(quality.pair_cost, float)[mine].mean(axis=0)
    code, index = np.asarray(quality.gate_code)[mine], np.asarray(quality.gate_index)[mine]
    words = [gate_words(reference, int(c), int(i)) for c, i in zip(code, index, strict=True)]
    return Scored(
        q=np.asarray(quality.q, float)[mine],
        gate_free=np.asarray(quality.gate_free, float)[mine],
        cost={p.name: float(c) for p, c in zip(reference.pairs, cost, strict=True)},
        gates=Counter(w for w in words if w),
    )


def noise_rows(record: Record, noisy: dict[str, dict[str, Scored]]) -> None:
    """Mean Q over unseen executions: of all tasks, then of each."""
    for name, (_, kind) in NOISE.items():
        q = np.concatenate([found[name].q for found in noisy.values()])
        free = np.concatenate([found[name].gate_free for found in noisy.values()])
        closed = sum(sum(found[name].gates.values()) for found in noisy.values())
        note = f"unseen executions of seven tasks, objects tracked with errors ({kind}), gripper exact; gate closed on "
        note += str(closed)
        record.add(f"all tasks Q, {name}", q.mean(), interval=of_mean(q), n=q.size, note=note)
        note = f"the same without the terminal gate ({kind})"
        record.add(f"all tasks gate-free Q, {name}", free.mean(), interval=of_mean(free), n=free.size, note=note)
    for task, found in noisy.items():
        for name, (_, kind) in NOISE.items():
            q = found[name].q
            note = f"{kind}; {found[name].told()}"
            record.add(f"{task} Q, {name}", q.mean(), interval=of_mean(q), n=q.size, note=note)


def noise_figure(noisy: dict[str, dict[str, Scored]]) -> Figure:
    """Left: Q against white noise, by task, and without the gate. Right: kinds of error at 2 mm, all tasks."""
    figure = Figure(figsize=(13.5, 5.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    white = list(NOISE)[: len(LEVELS_MM)]
    markers = "osD^vPX"
    x = np.arange(len(LEVELS_MM))
    for ax, what, text in ((left, "q", "Q"), (middle, "gate_free", "Q without the terminal gate")):
        for i, (task, found) in enumerate(noisy.items()):
            mean = [getattr(found[name], what).mean() for name in white]
            ax.plot(
                x, mean, marker=markers[i], color=COLOURS[i], linewidth=2,
                markersize=7, label=task.replace("_", " "),
            )  # fmt: skip
        ax.set_xticks(x, [f"{mm}\n{DEGREES_PER_MM * mm:g}" for mm in LEVELS_MM])
        ax.set_xlabel("white noise: mm along, deg about each axis", fontsize=11)
        ax.set_title(text, loc="left", fontsize=12, fontweight="bold")
    middle.legend(fontsize=10, frameon=False, loc="lower left")
    kinds = [name for name in NOISE if not name.endswith("deg") and SMOOTHED not in name]
    kinds = ["noise 0 mm 0 deg", "noise 2 mm 1 deg", *kinds]
    labels = ["exact", "white", "low-frequency", "white + dropouts", "white + delay", "dropouts alone", "delay alone"]
    kinds += [f"noise 2 mm 1 deg, {SMOOTHED}", f"noise 2 mm 1 deg, low-frequency, {SMOOTHED}"]
    labels += ["white, smoothed", "low-frequency, smoothed"]
    for offset, what, colour, label in (
        (-0.2, "q", OKABE_ITO[0], "Q"),
        (0.2, "gate_free", OKABE_ITO[4], "without gate"),
    ):
        mean = [np.mean([getattr(found[name], what).mean() for found in noisy.values()]) for name in kinds]
        right.barh(np.arange(len(kinds)) + offset, mean, height=0.38, color=colour, label=label)
        for y, value in enumerate(mean):
            right.text(value + 0.01, y + offset, f"{value:.2f}", va="center", fontsize=10)
    right.set_yticks(np.arange(len(kinds)), labels, fontsize=11)
    right.invert_yaxis()
    right.set_xlim(0, 1.12)
    right.set_title("2 mm, 1 deg: mean of the tasks", loc="left", fontsize=12, fontweight="bold")
    right.legend(fontsize=10, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2)
    for ax in (left, middle, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="x" if ax is right else "y", color="#e4e4e4")
        ax.set_axisbelow(True)
    for ax in (left, middle):
        ax.set_ylim(-0.02, 1.05)
    return figure


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/transfer", data=""))
