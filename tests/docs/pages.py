"""README, CONTRIBUTING and docs/ as blocks and commands that can be run, each with what it needs.

A block is fenced and names its language. A comment directly above it may say something about it:

    <!-- not run: REASON -->    nothing of it is run; the reason is listed
    <!-- slow -->               it runs with the slow tests (`sim`: with those on MuJoCo, `maniskill`: with ManiSkill)
    <!-- file: NAME -->         it is written to a file of that name beside the page's outputs
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from jaxeval.sim.mujoco.tasks.named import mujoco_task_names

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
LANGUAGES = ("sh", "python", "yaml", "toml", "text")
LEVELS = ("fast", "slow", "sim", "maniskill")
SLOW_VERBS = ("fit", "report", "demo", "compare", "agree", "propose", "gather")
"""Verbs that learn, draw or resample: seconds each."""
_FENCE = re.compile(r"(?ms)^(?:<!-- (?P<told>[^\n]*?) -->\n\s*)?^```(?P<language>\w*)\n(?P<text>.*?)^```$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its first line's number, and what the comment above it says."""

    language: str
    text: str
    line: int
    told: str

    @property
    def reason(self) -> str:
        """Why it is not run, "" if it is."""
        return self.told.removeprefix("not run:").strip() if self.told.startswith("not run:") else ""

    @property
    def file(self) -> str:
        """The file that it is written to, "" if it is run."""
        return self.told.removeprefix("file:").strip() if self.told.startswith("file:") else ""

    @property
    def lines(self) -> list[list[str]]:
        """Words of each command of a block of shell commands."""
        text = self.text.replace("\\\n", " ")
        return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


@dataclass(frozen=True)
class Step:
    """One thing to do: a command's words, or a block of Python or a file; what it needs; and where it stands."""

    what: list[str] | Block
    level: str
    where: str

    @property
    def names(self) -> list[str]:
        """What it may read: values of a command's settings, texts in quotes of a block."""
        if isinstance(self.what, list):
            return [w.partition("=")[2] or w for w in self.what[1:]]
        return re.findall(r"[\"']([^\"'\n]+)[\"']", self.what.text)

    @property
    def writes(self) -> list[str]:
        """Paths that it may write."""
        if isinstance(self.what, list):
            return [w.removeprefix("out=") for w in self.what if w.startswith("out=")]
        return [self.what.file] if self.what.file else [n for n in self.names if not n.startswith("bundled:")]

    def reads(self, paths: list[str]) -> bool:
        """Whether it names one of these, what is in it, or what a module stands for: ``my_module:make``."""
        inside = [
            (f"{path}/", f"{path.removesuffix('.py')}:" if path.endswith(".py") else f"{path}/") for path in paths
        ]
        return any(name in paths or name.startswith(starts) for name in self.names for starts in inside)


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["text"], text[: m.start("text")].count("\n"), (m["told"] or "").strip())
        for m in _FENCE.finditer(text)
    ]


def steps(page: Path) -> list[Step]:
    """What a page has a reader do, in its order, but for what is not run.

    A command needs what its verb needs, and what the command needed that wrote a path which it names.
    """
    made: list[tuple[Step, int]] = []
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line + 1}"
        told = LEVELS.index(block.told) if block.told in LEVELS else 0
        if block.reason:
            continue
        if block.file or block.language != "sh":
            if block.file or block.language == "python":
                made.append((Step(block, "", where), told))
            continue
        made += [(Step(words, "", where), max(told, LEVELS.index(_level(words)))) for words in block.lines]
    out: list[Step] = []
    written: dict[str, int] = {}
    for step, own in made:
        level = max([own, *(n for path, n in written.items() if step.reads([path]))])
        if isinstance(step.what, list):
            written |= dict.fromkeys(step.writes, level)
        out.append(replace(step, level=LEVELS[level]))
    return out


def wanted(page: Path, level: str) -> list[Step]:
    """The steps of a level, and those before them that write what they name or, of Python, share their names."""
    out: list[Step] = []
    for step in reversed(steps(page)):
        is_code = not isinstance(step.what, list) and LEVELS.index(step.level) <= LEVELS.index(level)
        later = [s for s in out if is_code and not isinstance(s.what, list)]
        if step.level == level or later or any(s.reads(step.writes) for s in out):
            out.insert(0, step)
    return out


def _level(words: list[str]) -> str:
    """What a command needs by its verb."""
    verb = words[1] if words[0] == "jaxeval" and len(words) > 1 else ""
    if verb == "rollout":
        tasks = [w.removeprefix("task=") for w in words if w.startswith("task=")]
        own = tasks and (":" in tasks[0] or tasks[0].endswith(".yaml"))
        return "sim" if tasks and (own or tasks[0] in mujoco_task_names()) else "maniskill"
    return "sim" if verb == "video" else "slow" if verb in SLOW_VERBS else "fast"
