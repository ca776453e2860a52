"""What SPARC says of a clean motion once a tracker has seen it: noise, a jump, repeated frames, and the frame rate.

    python experiments/sparc_noise_floor.py out=outputs/sparc_noise_floor

A minimum-jerk reach (0.3 m, 3 s) and the gripper's path in bundled StackCube demonstrations, spoiled in known ways.
What an extractor's noise does to a clean motion is its floor: smaller differences between executions mean nothing.
`draws` sets how often noise is drawn, `episodes` how many demonstrations are used.
"""

from __future__ import annotations

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from record import Record, arguments, keep_compiled_code, of_mean

from jaxeval.io import bundled
from jaxeval.metrics.smoothness import (
    SmoothnessParams,
    noise_floor,
    sparc_batch,
    sparc_settings,
    speed_of,
)
from jaxeval.metrics.status import Status
from jaxeval.report.figures import OKABE_ITO
from jaxeval.types import pad_episodes

SOURCE = (
    "kinematic evaluation of extracted trajectories with the spectral arc length (Balasubramanian et al. 2015); the "
    "published numbers are of a 3 s minimum-jerk reach at 17 frames a second, speeds from steps between frames"
)
PARAMS = SmoothnessParams()
DISTANCE_M, DURATION_S, RATE_HZ = 0.3, 3.0, 17.0
SIGMAS_MM = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0)
RATES_HZ = (5, 6, 8, 10, 17, 20, 30, 50, 100)
PUBLISHED = {1.0: -2.22, 5.0: -3.24}
JUMP_M = 0.05
PICK_S, PAUSES_S = 2.0, (0.0, 0.5, 1.0, 2.0)
LENGTH = 512  # frames that everything is padded to, so that each function compiles once


def main(out: str, draws: str, episodes: str) -> None:
    """Measure everything, write `result.json` and the figures into `out`."""
    keep_compiled_code()
    record = Record("SPARC of clean motions behind a noisy tracker", SOURCE, out)
    draws_n = int(draws)
    time_s = grid(RATE_HZ, DURATION_S)
    clean = reach(time_s)
    record.add(
        "reach clean", value(clean, time_s), published=-1.40, note=f"{DISTANCE_M} m in {DURATION_S:.0f} s at 17 Hz"
    )
    floors = noisy_reach(record, clean, time_s, draws_n)
    spoiled_reach(record, clean, time_s)
    pauses(record)
    by_rate = rates(record, draws_n)
    record.add_figure("reach.png", reach_figure(floors, by_rate))
    demonstrations(record, int(episodes), draws_n)
    record.finish()


# --------------------------------------------------------------------------------------------------------- motions


def minimum_jerk(tau: np.ndarray) -> np.ndarray:
    tau = np.clip(tau, 0, 1)
    return 10 * tau**3 - 15 * tau**4 + 6 * tau**5


def grid(rate_hz: float, duration_s: float) -> np.ndarray:
    return np.arange(round(duration_s * rate_hz) + 1) / rate_hz


def reach(time_s: np.ndarray) -> np.ndarray:
    """Positions [T, 3] of the reach, along x."""
    return minimum_jerk(time_s / DURATION_S)[:, None] * np.array([DISTANCE_M, 0, 0])


def padded(positions: np.ndarray, time_s: np.ndarray) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(positions, time, valid) of LENGTH frames."""
    more = LENGTH - len(time_s)
    return (
        jnp.asarray(np.pad(positions, ((0, more), (0, 0))), jnp.float32),
        jnp.asarray(np.pad(time_s, (0, more)), jnp.float32),
        jnp.asarray(np.arange(LENGTH) < len(time_s)),
    )


@partial(jax.jit, static_argnames="by_steps")
def sparcs(positions: jax.Array, time_s: jax.Array, valid: jax.Array, by_steps: bool = False):
    """SPARC of every row of positions [B, T, 3]; speeds from central differences, or from steps between frames."""

    def speeds(x: jax.Array, t: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        if not by_steps:
            return speed_of(x, t, v), t, v
        both = v[1:] & v[:-1]
        seconds = jnp.where(both, jnp.diff(t), 1.0)
        return jnp.linalg.norm(jnp.diff(x, axis=0), axis=1) / seconds, 0.5 * (t[1:] + t[:-1]), both

    return sparc_batch(*jax.vmap(speeds)(positions, time_s, valid), **sparc_settings(PARAMS))


@partial(jax.jit, static_argnames="draws_n")
def floor_of(key, positions, time_s, valid, sigma_m, draws_n: int):
    return noise_floor(key, positions, time_s, valid, sigma_m=sigma_m, params=PARAMS, draws_n=draws_n)


def value(positions: np.ndarray, time_s: np.ndarray, *, by_steps: bool = False) -> float:
    """SPARC of one motion; SystemExit with its status if there is none."""
    found = sparcs(*(x[None] for x in padded(positions, time_s)), by_steps=by_steps)
    if int(found.status[0]) != Status.OK:
        raise SystemExit(f"SPARC of {len(time_s)} frames: {Status(int(found.status[0])).sentence}")
    return float(found.value[0])


# ------------------------------------------------------------------------------------------------------- the reach


def noisy_reach(record: Record, clean: np.ndarray, time_s: np.ndarray, draws_n: int) -> dict[str, np.ndarray]:
    """Rows of iid noise, with speeds taken both ways; returns the values [sigmas, draws] of both."""
    floors = {"central differences": [], "steps": []}
    rng = np.random.default_rng(0)
    for sigma_mm in SIGMAS_MM:
        found = floor_of(jax.random.key(1), *padded(clean, time_s), sigma_mm / 1000, draws_n)
        floors["central differences"].append(np.asarray(found.value, float))
        rows = [padded(clean + rng.normal(0, sigma_mm / 1000, clean.shape), time_s) for _ in range(draws_n)]
        found = sparcs(*(jnp.stack(x) for x in zip(*rows, strict=True)), by_steps=True)
        floors["steps"].append(np.asarray(found.value, float))
    for way, values in floors.items():
        for sigma_mm, v in zip(SIGMAS_MM, values, strict=True):
            if sigma_mm > 0:
                note = f"iid noise on each coordinate at 17 Hz; spread of single draws {v.std():.2f}"
                published = PUBLISHED.get(sigma_mm)
                name = f"reach noise {sigma_mm:g} mm, {way}"
                record.add(name, v.mean(), interval=of_mean(v), n=v.size, published=published, note=note)
    return {way: np.stack(v) for way, v in floors.items()}


def spoiled_reach(record: Record, clean: np.ndarray, time_s: np.ndarray) -> None:
    """Rows of a jump and of repeated frames."""
    jumped = clean.copy()
    jumped[30:] += np.array([JUMP_M, 0, 0])
    for way, by_steps in (("central differences", False), ("steps", True)):
        note = "the position jumps by 5 cm along the path at frame 30 and stays off"
        published = -1.81 if by_steps else None
        record.add(f"reach jump 5 cm, {way}", value(jumped, time_s, by_steps=by_steps), published=published, note=note)
        for repeats_n in (2, 4):
            held = clean[np.arange(len(clean)) // repeats_n * repeats_n]
            note = f"every frame shown {repeats_n} times, as a tracker does that is slower than its camera"
            record.add(f"reach stutter {repeats_n}, {way}", value(held, time_s, by_steps=by_steps), note=note)


def pauses(record: Record) -> None:
    """Rows of a clean reach, a pause, and a reach back: a pause costs as much as millimetres of noise."""
    for pause_s in PAUSES_S:
        time_s = grid(RATE_HZ, 2 * PICK_S + pause_s)
        there, back = minimum_jerk(time_s / PICK_S), minimum_jerk((time_s - PICK_S - pause_s) / PICK_S)
        x = (there - back)[:, None] * np.array([DISTANCE_M, 0, 0])
        note = f"two clean reaches of {PICK_S:g} s with {pause_s:g} s of rest between them"
        if published := (-2.78 if pause_s == 0.5 else None):
            note += "; published: a clean pick, pause and place, durations not told"
        record.add(f"pick, {pause_s:g} s pause, place", value(x, time_s), published=published, note=note)


def rates(record: Record, draws_n: int) -> dict[float, np.ndarray]:
    """Rows of the frame rate, clean and at 1 mm; returns the values [rates, draws], NaN where there is none."""
    out = {}
    for sigma_mm in (0.0, 1.0):
        values = []
        for rate_hz in RATES_HZ:
            time_s = grid(rate_hz, DURATION_S)
            found = floor_of(jax.random.key(2), *padded(reach(time_s), time_s), sigma_mm / 1000, draws_n)
            v = np.asarray(found.value, float)
            values.append(v)
            if np.isfinite(v).all():
                what = "clean" if sigma_mm == 0 else f"noise {sigma_mm:g} mm"
                note = f"central differences; spread of single draws {v.std():.2f}"
                record.add(f"reach {what} at {rate_hz} Hz", v.mean(), interval=of_mean(v), n=v.size, note=note)
            elif sigma_mm == 0:
                share = np.mean(np.asarray(found.status) != Status.OK)
                note = f"share without a value: {Status(int(found.status[0])).sentence}"
                record.add(f"reach refused at {rate_hz} Hz", float(share), n=v.size, note=note)
        out[sigma_mm] = np.stack(values)
    return out


def reach_figure(floors: dict[str, np.ndarray], by_rate: dict[float, np.ndarray]) -> Figure:
    """SPARC against noise (left) and against the frame rate (right)."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for (way, values), colour, marker in zip(floors.items(), OKABE_ITO, "os", strict=False):
        band(left, np.array(SIGMAS_MM), values, colour, marker, f"speeds from {way}")
    left.plot(
        list(PUBLISHED), list(PUBLISHED.values()), "kx", markersize=9, markeredgewidth=2, label="published, steps"
    )
    left.set_xlabel("noise of each coordinate, mm")
    left.set_ylabel("SPARC (-1.4: a smooth reach)")
    left.set_title("a 0.3 m reach of 3 s at 17 Hz", loc="left", fontsize=11, fontweight="bold")
    for (sigma_mm, values), colour, marker in zip(by_rate.items(), OKABE_ITO[2:], "os", strict=False):
        shown = np.isfinite(values).all(axis=1)
        label = "clean" if sigma_mm == 0 else f"{sigma_mm:g} mm of noise"
        band(right, np.array(RATES_HZ)[shown], values[shown], colour, marker, label)
    right.set_xscale("log")
    right.set_xticks([r for r in RATES_HZ if r != 6], [str(r) for r in RATES_HZ if r != 6])
    right.minorticks_off()
    right.axvspan(4.6, 5.8, color="#eeeeee")
    right.annotate("fps too low", (5.2, 0.03), xycoords=("data", "axes fraction"), rotation=90, ha="center", fontsize=9)
    right.set_xlim(4.6, 115)
    right.set_xlabel("frames a second")
    right.set_title("the same reach at other rates", loc="left", fontsize=11, fontweight="bold")
    for ax in (left, right):
        plain(ax)
    return figure


def band(ax, x: np.ndarray, values: np.ndarray, colour: str, marker: str, label: str) -> None:
    """Mean of the draws, and where nine of ten of them lie."""
    low, high = np.quantile(values, [0.05, 0.95], axis=1)
    ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, values.mean(axis=1), color=colour, marker=marker, markersize=5, label=label)


def plain(ax) -> None:
    ax.grid(axis="y", color="#e4e4e4")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)


# -------------------------------------------------------------------------------------------------- demonstrations


def demonstrations(record: Record, episodes_n: int, draws_n: int) -> None:
    """Rows and figure of StackCube demonstrations: whole, by sub-task of the recording script, and under noise."""
    runs = [e for e in bundled("stack_cube_demos").iter_episodes() if e.success_at_end is not False][:episodes_n]
    batch = pad_episodes([e.prepared() for e in runs], length=LENGTH)
    tcp = batch.bodies.index("tcp")
    x, t, valid = (jnp.asarray(a) for a in (batch.poses[:, :, tcp, 4:], batch.time_s, batch.valid[:, :, tcp]))
    whole = np.asarray(sparcs(x, t, valid).value, float)
    note = "path of the gripper over a whole demonstration, 20 Hz"
    record.add("stack_cube demonstrations", whole.mean(), interval=of_mean(whole), n=whole.size, note=note)

    label = np.full(valid.shape, -1)
    for row, e in zip(label, runs, strict=True):
        row[: e.n_frames] = e.sub_task
    parts = {}
    for k, name in enumerate(runs[0].sub_task_names):
        found = sparcs(x, t, valid & jnp.asarray(label == k))
        ok = np.asarray(found.status) == Status.OK
        parts[name] = np.asarray(found.value, float)[ok]
        if ok.any():
            said = sorted({Status(int(c)).sentence for c in np.asarray(found.status)[~ok]})
            note = f"only the frames that the script calls '{name}'"
            note += f"; {np.sum(~ok)} without a value: {', '.join(said)}" if said else ""
            mean = parts[name].mean()
            record.add(f"stack_cube {name}", mean, interval=of_mean(parts[name]), n=int(ok.sum()), note=note)

    key, values = jax.random.key(3), [whole]
    for k, sigma_mm in enumerate(SIGMAS_MM[1:]):
        noise = jax.random.normal(jax.random.fold_in(key, k), x.shape)
        v = np.asarray(sparcs(x + sigma_mm / 1000 * noise, t, valid).value, float)
        values.append(v)
        note = f"one draw a demonstration; its spread over demonstrations {v.std():.2f}, clean {whole.std():.2f}"
        record.add(f"stack_cube noise {sigma_mm:g} mm", v.mean(), interval=of_mean(v), n=v.size, note=note)
    record.add_figure("demonstrations.png", demonstrations_figure(parts, np.stack(values), whole))


def demonstrations_figure(parts: dict[str, np.ndarray], noisy: np.ndarray, whole: np.ndarray) -> Figure:
    """SPARC of the whole and of every sub-task (left), and of the whole under noise (right)."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown = {"whole": whole} | {name: v for name, v in parts.items() if v.size}
    left.boxplot(
        list(shown.values()),
        orientation="horizontal",
        widths=0.6,
        medianprops={"color": OKABE_ITO[5], "linewidth": 2},
        flierprops={"markersize": 3},
    )
    left.set_yticks(np.arange(len(shown)) + 1, list(shown))
    left.invert_yaxis()
    left.axvline(-1.405, color="#8a8a8a", linestyle=":", label="a minimum-jerk reach")
    left.set_xlabel("SPARC")
    left.set_title("StackCube demonstrations, gripper", loc="left", fontsize=11, fontweight="bold")
    band(right, np.array(SIGMAS_MM), noisy, OKABE_ITO[0], "o", "whole demonstrations, 20 Hz")
    right.set_xlabel("noise of each coordinate, mm")
    right.set_ylabel("SPARC")
    right.set_title("the same behind a noisy tracker", loc="left", fontsize=11, fontweight="bold")
    plain(right)
    left.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize=9)
    return figure


if __name__ == "__main__":
    main(**arguments(sys.argv[1:], out="outputs/sparc_noise_floor", draws="200", episodes="40"))
