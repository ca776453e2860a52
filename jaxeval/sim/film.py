"""Pictures into files: captions on them, several side by side, a GIF, and an MP4 where ffmpeg is at hand."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

INK, PAPER, FAINT = (34, 34, 34), (255, 255, 255), (138, 138, 138)
GOOD, BAD = (0, 128, 92), (190, 48, 20)
STRIP_BYTES = 250_000
"""A strip has as many colours, of at most 256, as keep its file below this."""
COLUMNS_N, CELL_PX = 4, 320
"""Of a strip, and the width of one of its pictures."""
CENTISECOND_MS = 10
"""GIF counts time in these."""


@dataclass(frozen=True)
class Caption:
    """What is written on a picture: of the episode, of the moment, and, once it is known, how it ended."""

    about: str
    label: str
    time_s: float
    note: str = ""
    verdict: str = ""
    good: bool = True


@dataclass
class Gif:
    """Frames of a GIF with one palette for all, kept as bytes a pixel until they are written.

    ``palette_of`` are pictures that have all colours.
    """

    palette_of: Sequence[Image.Image]
    frames: list[Image.Image] = field(default_factory=list)
    durations_ms: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        small = [np.asarray(picture.reduce(2)) for picture in self.palette_of]
        self._palette = _few_colours(Image.fromarray(np.concatenate(small)))

    def add(self, picture: Image.Image, duration_ms: int) -> None:
        """One more frame."""
        self.frames.append(picture.quantize(palette=self._palette, dither=Image.Dither.NONE))
        self.durations_ms.append(duration_ms)

    def save(self, path: Path) -> None:
        """Write it; it repeats for ever."""
        self.frames[0].save(
            path, save_all=True, append_images=self.frames[1:], duration=self.durations_ms, loop=0, disposal=1
        )


class Mp4:
    """Frames into ``ffmpeg``, if there is one on the PATH; ``problem`` says in a sentence why there is no file."""

    def __init__(self, path: Path, size: tuple[int, int], fps: float):
        self.path, self.problem = path, ""
        self._process: subprocess.Popen[bytes] | None = None
        program = shutil.which("ffmpeg")
        if program is None:
            self.problem = "no program ffmpeg on the PATH, so no MP4 was made; the GIF shows the same"
            return
        even = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # H.264 halves colours both ways
        words = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "{}x{}".format(*size), "-r", f"{fps:g}", "-i", "-"]
        made = ["-an", "-vf", even, "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(path)]
        self._errors = path.with_suffix(".log").open("w+b")
        self._process = subprocess.Popen(
            [program, "-y", "-loglevel", "error", *words, *made],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors,
        )  # fmt: skip

    def add(self, picture: Image.Image, times: int = 1) -> None:
        """The picture for so many frames."""
        if self._process is None or self.problem:
            return
        assert self._process.stdin is not None
        data = picture.tobytes()
        try:
            for _ in range(times):
                self._process.stdin.write(data)
        except OSError:  # `close` says why, if the program did
            self.problem = "ffmpeg ended before the film did, so no MP4 was made; the GIF shows the same"

    def close(self, *, interrupted: bool = False) -> None:
        """End the program and wait for it; afterwards the file is there or ``problem`` says why not."""
        if self._process is None:
            return
        if interrupted:
            self._process.kill()
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
        except OSError:
            pass
        code = self._process.wait()
        self._process = None
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        self._errors.close()
        Path(self._errors.name).unlink()
        if code:
            self.problem = f"ffmpeg made no MP4 ({said[-1] if said else f'exit code {code}'}); the GIF shows the same"
        if self.problem:
            self.path.unlink(missing_ok=True)


def captioned(pixels: UInt8[np.ndarray, "H W 3"], caption: Caption) -> Image.Image:
    """The picture with a line of text above, one below, and above that one the verdict in its colour."""
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    width, height = picture.size
    draw = ImageDraw.Draw(picture)
    size = max(9, round(height / 27))
    bar, pad = round(1.75 * size), round(0.6 * size)
    middle = height - bar / 2
    about = _within(caption.about, width - 2 * pad, _font(size))
    draw.text((pad, pad / 2), about, INK, _font(size), stroke_width=2, stroke_fill=PAPER)
    draw.rectangle((0, height - bar, width, height), INK)
    draw.text((pad, middle), caption.label, PAPER, _font(size, bold=True), anchor="lm")
    left = pad + max(13 * size, _font(size, bold=True).getlength(caption.label) + size)
    draw.text((left, middle), f"{caption.time_s:.2f} s", PAPER, _font(size), anchor="lm")
    draw.text((width - pad, middle), caption.note, PAPER, _font(round(0.85 * size)), anchor="rm")
    if caption.verdict:
        draw.rectangle((0, height - 2 * bar, width, height - bar), GOOD if caption.good else BAD)
        words = _within(caption.verdict, width - 2 * pad, _font(size, bold=True))
        draw.text((pad, middle - bar), words, PAPER, _font(size, bold=True), anchor="lm")
    return picture


@dataclass(frozen=True)
class Cell:
    """A picture of a strip, and what stands below it. A marked one has a frame in the colour of a failure."""

    pixels: UInt8[np.ndarray, "H W 3"]
    label: str
    time_s: float
    marked: bool = False


def strip(title: str, verdict: str, good: bool, cells: Sequence[Cell]) -> Image.Image:
    """Pictures side by side in rows, each with its name and time, below a title and how the episode ended."""
    columns = min(COLUMNS_N, len(cells))
    rows = -(-len(cells) // columns)
    high = round(CELL_PX * cells[0].pixels.shape[0] / cells[0].pixels.shape[1])
    size, gap = 16, 8
    below = 2 * size
    width = columns * CELL_PX + (columns + 1) * gap
    top = 2 * size + gap
    page = Image.new("RGB", (width, top + rows * (high + below) + gap), PAPER)
    draw = ImageDraw.Draw(page)
    bold = _font(size, bold=True)
    verdict = _within(verdict, width - 2 * gap, bold)
    words = width - gap - bold.getlength(verdict)
    draw.text((gap, top / 2), _within(title, words - 2 * gap, _font(size)), INK, _font(size), anchor="lm")
    draw.text((width - gap, top / 2), verdict, GOOD if good else BAD, bold, anchor="rm")
    for k, cell in enumerate(cells):
        x, y = gap + k % columns * (CELL_PX + gap), top + k // columns * (high + below)
        picture = Image.fromarray(np.ascontiguousarray(cell.pixels)).resize((CELL_PX, high), Image.Resampling.LANCZOS)
        page.paste(picture, (x, y))
        colour = BAD if cell.marked else INK
        if cell.marked:
            draw.rectangle((x - 2, y - 2, x + CELL_PX + 1, y + high + 1), outline=BAD, width=4)
        draw.text((x, y + high + 0.45 * below), cell.label, colour, bold, anchor="lm")
        draw.text((x + CELL_PX, y + high + 0.45 * below), f"{cell.time_s:.2f} s", colour, _font(size), anchor="rm")
    return page


def save_small(page: Image.Image, path: Path) -> None:
    """A PNG below ``STRIP_BYTES``, with as many colours as go into that."""
    for colours in (256, 128, 64, 32, 16):
        _few_colours(page, colours).save(path, optimize=True)
        if path.stat().st_size < STRIP_BYTES:
            return


def _few_colours(picture: Image.Image, colours: int = 256) -> Image.Image:
    """With a palette of its own, improved by k-means: small things of rare colours, as arrows are, keep theirs."""
    return picture.quantize(colours, kmeans=4, dither=Image.Dither.NONE)


def durations_ms(shown: Iterable[int], fps: float) -> list[int]:
    """How long each frame of a GIF stands that is shown ``shown`` times at ``fps``: rounded, but never out of step."""
    ends = np.round(np.cumsum(list(shown)) / fps * 1000 / CENTISECOND_MS).astype(int)
    return (np.diff(ends, prepend=0) * CENTISECOND_MS).tolist()


def _within(text: str, width: float, font: Any) -> str:
    """The text, its end left out where it is wider."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


@cache
def _font(size: int, *, bold: bool = False) -> Any:
    """DejaVu Sans, as in the report's figures; matplotlib brings it."""
    import matplotlib

    name = f"DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)
