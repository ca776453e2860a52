"""`jaxeval video`: an episode of a MuJoCo rollout as it was recorded, as a film, key frames and a strip.

A replay, no re-run: in every frame joints and object are where the store says that they were. Nothing is simulated.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from jaxeval.io.errors import InputError
from jaxeval.io.store import Store
from jaxeval.metrics.stages import Cause, Stages, sentence
from jaxeval.sim.film import Caption, Cell, Gif, Mp4, captioned, durations_ms, save_small, strip
from jaxeval.sim.mujoco.backend import SIGNALS, stages_of
from jaxeval.sim.mujoco.embodiment import load_embodiment
from jaxeval.sim.mujoco.pictures import Force, Replay, forces_of_fingers, require_drawing
from jaxeval.sim.mujoco.task import Task
from jaxeval.sim.mujoco.tasks.named import load_mujoco_task
from jaxeval.types import Episode

END_S = 2.0
"""How long the last frame stands."""
FASTEST_FPS = 50
"""Viewers show a GIF's frame for no less than .02 s."""
SMALLEST_PX, LARGEST_PX = 64, 4096
PALETTE_N = 8
"""Key frames that a GIF's colours are taken from."""
STRIP_N = 8
"""Pictures of a strip; where there are more phases, the first of these are left out until they are as few."""
LEFT_OUT = ("DWELL", "APPROACH", "RETREAT", "CLOSE")
TOLD_N = 3


@dataclass(frozen=True)
class Setting:
    """How a film looks. ``playback`` is film time in real time: .5 is slow motion."""

    fps: float = 25.0
    width: int = 640
    height: int = 480
    camera: str = "overview"
    playback: float = 1.0

    def check(self) -> Setting:
        """Itself, or InputError in one sentence."""
        for name, least, most in (("fps", 1.0, FASTEST_FPS), ("playback", 0.01, 100.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
                raise InputError(f"{name} is {value!r}, expected a number from {least:g} to {most:g}; correct it")
        for name in ("width", "height"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not SMALLEST_PX <= value <= LARGEST_PX:
                raise InputError(
                    f"{name} is {value!r}, expected a whole number of pixels from {SMALLEST_PX} to {LARGEST_PX}; "
                    "correct it"
                )
        return self


@dataclass(frozen=True)
class Drawn:
    """The files that were made of an episode. ``mp4`` is None where ``notes`` say why."""

    episode_id: str
    verdict: str
    gif: Path
    mp4: Path | None
    strip: Path
    key_frames: Path
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Story:
    """An episode of a task as pictures need it: its frames, phases, and how it ended when."""

    episode: Episode
    task: Task
    embodiment: str
    policy: str = ""

    @cached_property
    def stages(self) -> Stages:
        """What the monitor says of it."""
        return stages_of(self.episode, self.task)

    @property
    def succeeded(self) -> bool:
        """Whether it was a success."""
        return int(self.stages.cause) == Cause.SUCCESS

    @property
    def verdict(self) -> str:
        """How it ended, for people."""
        phases = self.task.schedule.names
        return sentence(int(self.stages.cause), int(self.stages.drop_phase), phases=phases)

    @property
    def decided(self) -> int:
        """Frame at which what it failed by began; the last one where that cannot be said, or of a success."""
        moments = self.stages.moments
        frame = {
            Cause.DROPPED: moments.let_go,
            Cause.JAMMED: moments.jammed,
            Cause.SLIPPED: moments.slipped,
            Cause.MISALIGNED: moments.insert,
        }.get(Cause(int(self.stages.cause)), -1)
        return int(frame) if frame >= 0 else self.episode.n_frames - 1

    @property
    def about(self) -> str:
        """The episode in a line."""
        speed = "" if self.episode.speed is None else f"speed {self.episode.speed:g}"
        number = "" if self.episode.seed is None else f"episode {self.episode.seed}"
        parts = (self.task.name, Path(self.embodiment).stem, self.policy, speed, number)
        return ", ".join(phrase for phrase in parts if phrase)

    @cached_property
    def phase(self) -> Int[np.ndarray, " T"]:
        """Index into the task's phases."""
        assert self.episode.signals is not None
        return self.episode.signals["phase"].astype(int)

    @cached_property
    def ends(self) -> dict[str, int]:
        """Phase -> its last frame, for phases that have one."""
        return {
            name: int(np.flatnonzero(self.phase == k)[-1])
            for k, name in enumerate(self.task.schedule.names)
            if (self.phase == k).any()
        }

    @property
    def phase_frames(self) -> list[tuple[str, int]]:
        """(phase, frame) of a strip: ends of the phases that say most, and in its phase what it failed by."""
        ends = dict(self.ends)
        first, last = next(iter(ends)), list(ends)[-1]
        for kind in LEFT_OUT:
            if len(ends) > STRIP_N:
                ends = {k: v for k, v in ends.items() if not k.endswith(kind) or k in (first, last)}
        decided = self.task.schedule.names[self.phase[self.decided]]
        if not self.succeeded:
            ends[decided] = self.decided
        return sorted(ends.items(), key=lambda item: item[1])

    def caption(self, frame: int) -> Caption:
        """What is written on the picture of that frame."""
        signals = self.episode.signals or {}
        fingers, receptacle = signals["fingertip_force"][frame].sum(), signals["receptacle_force"][frame]
        over = frame >= self.decided
        return Caption(
            about=self.about,
            label=self.task.schedule.names[self.phase[frame]],
            time_s=float(self.episode.time_s[frame]),
            note=f"fingers {fingers:.1f} N   receptacle {receptacle:.1f} N",
            verdict=self.verdict if over else "",
            good=self.succeeded,
        )

    def forces(self, frame: int) -> list[Force]:
        """Of the fingers on the object."""
        s = self.episode.signals or {}
        point, force = (s[name][frame].reshape(-1, 3) for name in ("contact_point", "contact_force"))
        return forces_of_fingers(point, force, s["contact_finger"][frame].astype(int))

    def put(self, replay: Replay, frame: int) -> None:
        """The scene as it was in that frame."""
        assert self.episode.joints is not None
        thing = self.episode.body(self.task.thing.name)[frame]
        replay.put(self.episode.joints[frame], self.episode.joint_names, thing)

    def shown(self, fps: float, playback: float) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """(frames, how many times each is shown) at ``fps``: the newest at every instant, the last for ``END_S``."""
        time_s = self.episode.time_s - self.episode.time_s[0]
        ticks = np.arange(int(time_s[-1] / playback * fps + 1e-6) + 1) * playback / fps
        at = np.searchsorted(time_s, ticks + 1e-6, side="right") - 1
        last = len(time_s) - 1
        at = np.append(at[at < last], np.full(max(1, round(END_S * fps)), last))
        return np.unique(at, return_counts=True)


def story_of(store: Store, episode: str | int | None = None) -> Story:
    """An episode of a MuJoCo rollout's store: by id, by number, the first "success" or "failure", or the first at all.

    Raises:
        InputError: the store is no MuJoCo rollout's, or it has no such episode.
    """
    require_drawing()
    rollout = store.meta["configuration"].get("rollout")
    if not isinstance(rollout, dict) or "embodiment" not in rollout:
        found = (
            f"episodes of ManiSkill's '{store.task}'" if isinstance(rollout, dict) else "no word of how they were run"
        )
        raise InputError(
            f"{store.path}: it holds {found}, expected those of a MuJoCo rollout, which can be drawn from joints and "
            "poses; choose a store that `jaxeval rollout` wrote of a MuJoCo task"
        )
    row = _row(store, episode)
    found = store.read(row, row + 1)[0]
    if found.joints is None or not set(SIGNALS) | {"phase"} <= set(found.signals or ()):
        raise InputError(
            f"{store.path}: {found.episode_id} lacks joints or signals, expected those of a MuJoCo rollout; "
            "roll it out again"
        )
    policy = rollout.get("policy")
    return Story(found, load_mujoco_task(rollout["task"]), str(rollout["embodiment"]), policy if policy else "")


def _row(store: Store, episode: str | int | None) -> int:
    n = store.n_episodes
    if n == 0:
        raise InputError(f"{store.path}: it has no episode; roll some out")
    if episode is None:
        return 0
    if episode in ("success", "failure"):
        wanted = episode == "success"
        rows = [
            k for k, ok in enumerate(store.column("success_at_end").tolist()) if ok is not None and bool(ok) == wanted
        ]
        if not rows:
            raise InputError(
                f"{store.path}: no {episode} among its {n} episodes; give episode=ID or a number below {n}"
            )
        return rows[0]
    ids: list[str] = store.column("episode_id").tolist()
    if str(episode) in ids:
        return ids.index(str(episode))
    if re.fullmatch(r"\d+", str(episode)) and int(episode) < n:
        return int(episode)
    some = ", ".join(ids[:TOLD_N]) + (f" and {n - TOLD_N} more" if n > TOLD_N else "")
    raise InputError(
        f"{store.path}: no episode '{episode}'; expected success, failure, a number below {n}, or one of {some}"
    )


def video(
    store: Store,
    out: str | Path,
    *,
    episode: str | int | None = None,
    setting: Setting | None = None,
    progress: bool = False,
) -> Drawn:
    """Draw an episode into ``out``: NAME.gif, NAME.mp4, NAME_strip.png, NAME_keyframes/NN_PHASE.png.

    All files appear when all are done; those of an earlier call are replaced.

    Raises:
        InputError: as of `story_of`, a setting makes no sense, or nothing can be drawn here.
    """
    return draw(story_of(store, episode), Path(out), setting or Setting(), progress=progress)


def draw(story: Story, out: Path, setting: Setting, *, progress: bool = False) -> Drawn:
    """`video` of an episode that is at hand."""
    setting.check()
    out.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "_", story.episode.episode_id.replace("=", "-")) or "episode"
    embodiment = load_embodiment(story.embodiment)
    with (
        tempfile.TemporaryDirectory(dir=out, prefix=".") as half,
        Replay(story.task, embodiment, width=setting.width, height=setting.height, camera=setting.camera) as replay,
    ):
        made = Path(half)
        fine: dict[int, np.ndarray] = {}
        for frame in {*story.ends.values(), *(frame for _, frame in story.phase_frames)}:
            story.put(replay, frame)
            fine[frame] = replay.draw(story.forces(frame), fine=True)
        key_frames = _key_frames(story, fine, made / f"{name}_keyframes")
        _strip(story, fine, made / f"{name}_strip.png")
        mp4 = _film(story, replay, made / name, setting, key_frames, progress)
        for file in sorted(made.iterdir()):
            target = out / file.name
            if target.is_dir():
                shutil.rmtree(target)
            file.replace(target)
    return Drawn(
        episode_id=story.episode.episode_id,
        verdict=story.verdict,
        gif=out / f"{name}.gif",
        mp4=None if mp4.problem else out / f"{name}.mp4",
        strip=out / f"{name}_strip.png",
        key_frames=out / f"{name}_keyframes",
        notes=(mp4.problem,) if mp4.problem else (),
    )


def _key_frames(story: Story, drawn: Mapping[int, np.ndarray], folder: Path) -> list[Any]:
    folder.mkdir()
    pictures = []
    for k, (phase, frame) in enumerate(story.ends.items()):
        pictures.append(captioned(drawn[frame], story.caption(frame)))
        pictures[-1].save(folder / f"{k:02d}_{phase}.png")
    return pictures


def _strip(story: Story, drawn: Mapping[int, np.ndarray], path: Path) -> None:
    cells = []
    for phase, frame in story.phase_frames:
        marked = frame == story.decided and not story.succeeded
        cells.append(Cell(drawn[frame], phase, float(story.episode.time_s[frame]), marked))
    save_small(strip(story.about, story.verdict, story.succeeded, cells), path)


def _film(story: Story, replay: Replay, stem: Path, setting: Setting, palette_of: list[Any], progress: bool) -> Mp4:
    frames, times = story.shown(setting.fps, setting.playback)
    some = np.unique(np.linspace(0, len(palette_of) - 1, PALETTE_N).astype(int))
    gif = Gif([palette_of[k] for k in some])
    mp4 = Mp4(stem.with_name(f"{stem.name}.mp4"), (setting.width, setting.height), setting.fps)
    interrupted = True
    try:
        stands_ms = durations_ms(times, setting.fps)
        for frame, n, ms in zip(_counted(frames, progress), times, stands_ms, strict=True):
            story.put(replay, int(frame))
            picture = captioned(replay.draw(story.forces(int(frame))), story.caption(int(frame)))
            gif.add(picture, ms)
            mp4.add(picture, int(n))
        interrupted = False
    finally:
        mp4.close(interrupted=interrupted)
    gif.save(stem.with_name(f"{stem.name}.gif"))
    return mp4


def _counted(frames: Int[np.ndarray, " n"], progress: bool) -> Iterable[int]:
    from tqdm import tqdm

    return tqdm(frames.tolist(), desc="drawing", unit="frame", leave=False, disable=None if progress else True)


def text(drawn: Drawn) -> str:
    """What was made, a line each."""
    lines = [f"{drawn.episode_id}: {drawn.verdict}", f"film: {drawn.gif}"]
    lines += [f"film: {drawn.mp4}"] if drawn.mp4 else [f"note: {note}" for note in drawn.notes]
    return "\n".join([*lines, f"strip: {drawn.strip}", f"key frames: {drawn.key_frames}"])
