"""Draw docs/tasks/*: of every ManiSkill task four pictures of one execution, and the map that 30 demonstrations give.

python tools/make_task_gallery.py [--data DIR] [--tasks a,b] [--only pictures|maps] [--out DIR]

Demonstrations are `<task>_oracle`: bundled, or stores of `jaxeval rollout` in DIR. The pictures need ManiSkill and a
Vulkan driver (docs/maniskill.md says how to get one in software), the maps neither.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxeval.io import open_source
from jaxeval.io.spec import load_spec
from jaxeval.metrics.geometric import GeometricParams
from jaxeval.policies.policy import episode_key
from jaxeval.policies.scripted.make import oracle_of
from jaxeval.report import figures as F
from jaxeval.report.summary import constraint_map
from jaxeval.run.fit import fit_source
from jaxeval.types import Reference

OUT = Path(__file__).resolve().parents[1] / "docs" / "tasks"
DEMONSTRATIONS_N = 30
SIDE_PX, GAP_PX = 360, 6
SEED = 3

Point = tuple[float, float, float]
Moment = tuple[str, float]
"""A step of the script by its label, and how far into it, 0 to 1."""


@dataclass(frozen=True)
class Shot:
    """Where the camera stands and looks, metres in the world, and when it takes its four pictures."""

    eye: Point
    target: Point
    fov: float  # radians
    moments: tuple[Moment, ...]


PLACED = (("start", 0.0), ("grasp", 1.0), ("carry", 0.4), ("retreat", 0.8))
PUSHED_IN = (("start", 0.0), ("grasp", 1.0), ("align", 0.3), ("insert", 1.0))
SHOTS: dict[str, Shot] = {
    "stack_cube": Shot((0.50, 0.45, 0.40), (-0.08, -0.10, 0.12), 0.55, PLACED),
    "place_sphere": Shot((0.50, 0.35, 0.40), (-0.04, -0.07, 0.11), 0.45, PLACED),
    "place_can": Shot((0.50, 0.50, 0.40), (-0.01, 0.06, 0.14), 0.55, PLACED),
    "peg_insertion_side": Shot((0.75, -0.15, 0.50), (-0.03, 0.04, 0.05), 1.00, PUSHED_IN),
    "plug_charger": Shot((0.00, -0.65, 0.32), (-0.01, -0.07, 0.06), 0.52, PUSHED_IN),
    "poke_cube": Shot(
        (0.20, 0.65, 0.35), (0.03, -0.03, 0.06), 0.60, (("start", 0.0), ("grasp", 1.0), ("align", 0.6), ("poke", 1.0))
    ),
    "close_drawer": Shot(
        (-0.35, 0.55, 0.45), (0.05, 0.03, 0.07), 0.50,
        (("start", 0.0), ("approach", 1.0), ("push", 0.4), ("retreat", 0.8)),
    ),
}  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- pictures


def play(envs: Any, task: str) -> Iterator[Any]:
    """Run the task's oracle once; the label of every frame as it stands, the first one's too."""
    policy = oracle_of(task)
    seen = envs.reset([SEED]).of(0)
    state, label = policy.init(seen, episode_key(0, SEED)), "start"
    while True:
        yield label
        act = policy.act(state, seen)
        if act.info.done:
            if failed := policy.failures(act.state)[act.info.failed] or not seen.success:
                raise SystemExit(f"{task}, seed {SEED}: {failed if isinstance(failed, str) else 'no success'}")
            return
        state, label = act.state, policy.labels(act.state)[act.info.label]
        seen = envs.step(act.action[None]).of(0)


def frames_of(moments: tuple[Moment, ...], labels: list[str]) -> list[int]:
    """Frame of each moment in an execution with those labels."""
    at = {name: [t for t, label in enumerate(labels) if label == name] for name in set(labels)}
    return [at[name][round(share * (len(at[name]) - 1))] for name, share in moments]


def pictures(task: str, shot: Shot) -> list[np.ndarray]:
    """The four pictures, uint8 [H, W, 3]: one run to learn when they are due, and the same again to take them."""
    from mani_skill.utils.sapien_utils import look_at

    from jaxeval.sim.maniskill.environment import Environments

    envs = Environments(task, pictures=True)
    wanted = frames_of(shot.moments, list(play(envs, task)))
    taken: dict[int, np.ndarray] = {}
    for t, _ in enumerate(play(envs, task)):
        if t in wanted:
            (camera,) = envs.env.scene.human_render_cameras.values()
            camera.camera.set_local_pose(look_at(shot.eye, shot.target).sp)
            camera.camera.set_fovy(shot.fov, True)
            taken[t] = envs.render()[0]
    envs.close()
    return [taken[t] for t in wanted]


def strip(pictures: list[np.ndarray], captions: list[str]) -> Any:
    """Pictures side by side, each with its caption."""
    from PIL import Image, ImageDraw, ImageFont

    whole = Image.new("RGB", (len(pictures) * (SIDE_PX + GAP_PX) - GAP_PX, SIDE_PX), "white")
    draw, font = ImageDraw.Draw(whole), ImageFont.load_default(18)
    for i, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        left = i * (SIDE_PX + GAP_PX)
        whole.paste(Image.fromarray(picture).resize((SIDE_PX, SIDE_PX), Image.Resampling.LANCZOS), (left, 0))
        box = draw.textbbox((left + 12, 8), caption, font=font)
        draw.rectangle((box[0] - 6, box[1] - 4, box[2] + 6, box[3] + 4), fill="white")
        draw.text((left + 12, 8), caption, font=font, fill=F.INK)
    return whole


# --------------------------------------------------------------------------------------------------------------- maps


def learned(task: str, data: Path | None) -> Reference:
    """What the first demonstrations of a task teach."""
    source = open_source(data / f"{task}_oracle" if data else f"bundled:{task}_oracle")
    return fit_source(source, load_spec(task), demonstrations_n=DEMONSTRATIONS_N).reference


def draw_map(reference: Reference) -> tuple[bytes, str]:
    """The constraint map as PNG in few colours, and the same as text: pinned at start..end (least-most), spread."""
    from PIL import Image

    params, M = GeometricParams(), reference.bins_n
    held = constraint_map(reference, params)
    rows, sub_tasks = [p.name for p in reference.pairs], [s.name for s in reference.spec.sub_tasks]
    figure = F.constraint_figure(held.pinned_n, held.spread_mm, rows, sub_tasks, M, 1e3 * float(params.sigma_pin_m))
    out = io.BytesIO()
    whole = Image.open(io.BytesIO(F.png(figure))).convert("RGB")
    whole.quantize(64, dither=Image.Dither.NONE).save(out, format="png", optimize=True)
    lines = []
    for name, pinned, spread in zip(rows, held.pinned_n, held.spread_mm, strict=True):
        lines.append(name)
        for sub_task, n, mm in zip(sub_tasks, pinned.reshape(-1, M), spread.reshape(-1, M), strict=True):
            told = f"up to {np.nanmax(mm):.1f} mm" if np.isfinite(mm).any() else "none pinned"
            lines.append(f"  {sub_task:12}{n[0]}..{n[-1]} ({n.min()}-{n.max()}), {told}")
    return out.getvalue(), "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of stores <task>_oracle (default: the bundled ones)")
    parser.add_argument("--tasks", default=",".join(SHOTS), help="tasks, by commas")
    parser.add_argument("--only", choices=("pictures", "maps"))
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for task in given.tasks.split(","):
        if given.only != "maps":
            path = given.out / f"{task}.jpg"
            shot = SHOTS[task]
            whole = strip(pictures(task, shot), [label for label, _ in shot.moments])
            whole.save(path, quality=85, optimize=True)
            print(f"{path}: {path.stat().st_size / 1e3:.0f} kB", flush=True)
        if given.only != "pictures":
            path = given.out / f"{task}_map.png"
            data, told = draw_map(learned(task, given.data))
            path.write_bytes(data)
            print(f"{path}: {len(data) / 1e3:.0f} kB\n{told}", flush=True)


if __name__ == "__main__":
    main()
