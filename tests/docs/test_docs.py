"""Every command and snippet of README, CONTRIBUTING and docs/ runs, every link leads somewhere, and README is short."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jaxeval.align import PREDICATES
from jaxeval.cli import VERBS, main
from jaxeval.cli_words import settings_of
from jaxeval.io import bundled, source
from jaxeval.io.source import all_readers, bundled_path
from jaxeval.io.spec import spec_from_dict, task_names
from jaxeval.metrics import registry
from jaxeval.types import FINDINGS, SHAPES, SYMMETRIES
from tests.docs.pages import LANGUAGES, LEVELS, PAGES, ROOT, Step, blocks, steps, wanted

README_WORDS_N = 900
NOT_RUN_N = 8
"""Blocks that are not run, all pages together: more than these need a reason that a reader of this file believes."""
BY_NAME = {str(p.relative_to(ROOT)): p for p in PAGES}
RUN_AT = [
    pytest.param(name, level, id=f"{name}-{level}", marks=[] if level == "fast" else [getattr(pytest.mark, level)])
    for name, page in BY_NAME.items()
    for level in LEVELS
    if any(step.level == level for step in steps(page))
]


# ----------------------------------------------------------------------------------- what a reader has of their own


def write_inputs(folder: Path) -> None:
    """Files under the names that the pages use for a reader's own: small, and made of the bundled recordings."""
    runs = folder / "my_runs"
    runs.mkdir()
    for end in (".h5", ".json"):
        shutil.copy(bundled_path("maniskill/StackCube-v1.h5").with_suffix(end), runs)
    rows, ratings = ["t,trial," + ",".join(f"{b}_{e}" for b in ("hand", "cube") for e in END)], ["episode,rater,rating"]
    for e in bundled("stack_cube_demos").read(0, 3):
        both = np.concatenate([e.body("tcp"), e.body("cubeA")], axis=1)
        for t, row in zip(e.time_s.tolist(), both.tolist(), strict=True):
            rows.append(",".join(map(str, [t, e.episode_id, *row])))
    (folder / "runs.csv").write_text("\n".join(rows) + "\n")
    names = [str(i) for i in bundled("stack_cube_tilt").episodes.column("episode_id").to_pylist()]  # type: ignore[attr-defined]
    generator = np.random.default_rng(0)
    for k, name in enumerate(names):
        ratings += [f"{name},{rater},{5 - k // 10 - int(generator.integers(2))}" for rater in ("ann", "bob")]
    (folder / "ratings.csv").write_text("\n".join(ratings) + "\n")
    (folder / "arm.urdf").write_text(ARM)


END = ("qw", "qx", "qy", "qz", "x", "y", "z")
ARM = """<robot name="arm"><link name="base"/><link name="upper"/><link name="hand"/>
<joint name="turn" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 0.3"/><axis xyz="0 0 1"/>
<limit lower="-2" upper="2" velocity="2" effort="9"/></joint>
<joint name="lift" type="revolute"><parent link="upper"/><child link="hand"/><origin xyz="0.4 0 0"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1" velocity="2" effort="9"/></joint></robot>
"""


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with a reader's own files, as the working directory; what a page registers is forgotten."""
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(source, "READERS", list(source.READERS))
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    settings_of.cache_clear()


# ------------------------------------------------------------------------------------------------------ running them


@pytest.mark.parametrize(("name", "level"), RUN_AT)
def test_what_a_page_has_a_reader_do_runs(name: str, level: str, at_home: Path) -> None:
    """The steps of a page at one level, in its order, with what they need of the others."""
    told: dict[str, object] = {"__name__": "page"}
    for step in wanted(BY_NAME[name], level):
        run(step, told)


def run(step: Step, told: dict[str, object]) -> None:
    """Does one step, or fails with where it stands."""
    if isinstance(step.what, list):
        run_command(step.what, step.where)
        settings_of.cache_clear()
    elif step.what.file:
        Path(step.what.file).write_text(step.what.text, encoding="utf-8")
    else:
        code = "\n" * step.what.line + step.what.text
        exec(compile(code, step.where.split(":")[0], "exec"), told)


def run_command(words: list[str], where: str) -> None:
    """Runs `jaxeval ...` in this process; of `make`, `pip` and `python` it is checked that what they name is there.

    A rollout runs one episode, at the first and the last of its speeds.
    """
    if words[0] == "jaxeval":
        if words[1] == "rollout":
            words = [re.sub(r"^episodes=\d+$", "episodes=1", w) for w in words]
            words = [re.sub(r"^speed=([^,]+),.*,([^,]+)$", r"speed=\1,\2", w) for w in words]
        assert main(words[1:]) == 0, f"{where}: {' '.join(words)}"
        return
    if words[0] == "make":
        targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
        assert {w for w in words[1:] if "=" not in w} <= targets, where
        return
    if words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        asked = [e for w in words[2:] if (m := re.search(r"\[([\w,]+)\]$", w)) for e in m[1].split(",")]
        assert set(asked) <= set(project["optional-dependencies"]), where
        return
    assert words[0] == "python" and words[1].endswith(".py"), f"{where}: nobody checks {' '.join(words)}"
    script = ROOT / words[1]
    assert script.is_file(), f"{where}: there is no {words[1]}"
    keys = [w.split("=")[0] for w in words[2:] if "=" in w] + [w.lstrip("-") for w in words[2:] if w.startswith("--")]
    known = script.read_text(encoding="utf-8")
    assert not [k for k in keys if not re.search(rf"\b{k}\b", known)], f"{where}: {words[1]} has not all of {keys}"


# --------------------------------------------------------------------------------------------------- reading them


@pytest.mark.parametrize("page", PAGES, ids=list(BY_NAME))
def test_every_block_names_its_language_and_every_comment_stands_above_a_block(page: Path) -> None:
    found = blocks(page)
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") + text.startswith("```") == 2 * len(found), "a fence that is not closed, or indented"
    assert not [b.line for b in found if b.language not in LANGUAGES]
    for block in found:
        assert block.told in ("", *LEVELS) or block.reason or block.file, f"{page.name}: {block.told}"
        if block.language == "toml":
            tomllib.loads(block.text)
    assert text.count("<!--") == sum(bool(b.told) for b in found)


def test_what_is_not_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [f"{name}:{b.line}: {b.reason}" for name, page in BY_NAME.items() for b in blocks(page) if b.reason]
    with capsys.disabled():
        print(f"\n{len(reasons)} blocks of the documentation are not run" + "".join(f"\n  {r}" for r in reasons))
    assert len(reasons) <= NOT_RUN_N and all(len(r.split(": ")[1].split()) > 1 for r in reasons)


@pytest.mark.parametrize("page", PAGES, ids=list(BY_NAME))
def test_links_and_pictures_are_there(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            titles = re.findall(r"(?m)^#+ (.+)$", target.read_text(encoding="utf-8"))
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in slugs, f"{page.name}: {link}, there are {sorted(slugs)}"


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    readme = BY_NAME["README.md"].read_text(encoding="utf-8")
    assert len(readme.split()) <= README_WORDS_N
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


# ---------------------------------------------------------------------------------- tables that must not fall behind


def test_the_spec_page_has_every_predicate_shape_symmetry_and_task() -> None:
    page = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"(?m)^\| `(\w+)` \|", page))
    assert {*PREDICATES, *SHAPES, *SYMMETRIES} <= rows
    assert not [task for task in task_names() if f"`{task}`" not in page]
    for kind in PREDICATES:
        (example,) = re.findall(rf"\| `(\{{kind: {kind}\b[^`]*)` \|", page)
        bodies = "cube: {shape: {kind: sphere, radius_m: 0.03}}, table: {frame_of: cube}, tcp: {frame_of: cube}"
        spec_of(
            f"name: x\nbodies: {{{bodies}, tray: {{frame_of: cube}}}}\nsub_tasks: [{{name: a, until: [{example}]}}]"
        )


def spec_of(text: str) -> object:
    import yaml

    return spec_from_dict(yaml.safe_load(text))


def test_the_format_page_has_every_reader_option_and_finding() -> None:
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    own = [r for r in all_readers() if r.says]
    assert own and not [r.name for r in own if r.name.split(" (")[0].split(" files")[0] not in page]
    assert not [o for r in own for o in r.options if f"`{o}`" not in page]
    assert not [code for code in FINDINGS if f"`{code}`" not in page]


def test_the_metric_page_has_every_family_and_column() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    for metric in registry.all_metrics().values():
        if metric.measure.__module__.startswith("jaxeval."):
            assert f"`{metric.name}`" in page
            assert not [c.name for c in metric.columns if stem(c.name) not in page]


def stem(column: str) -> str:
    """What a column is called on the page: of families of a quantile, a moment or a sub-task, once."""
    plain = re.sub(r"\.<(sub_task)>$", "", column)
    return re.sub(r"_(mean|p50|p90|p95|p99)$", "", plain) if plain.startswith("tracking") else plain


def test_every_verb_and_task_is_told_of() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert not [verb for verb in VERBS if f"jaxeval {verb}" not in text]
    assert not [task for task in task_names() if f"`{task}`" not in text]


QUOTED = (  # file of benchmarks/results, work, size, peer (as they begin), what the page says of it
    ("geometric", "score", "B=4 ", "scipy", "ratio", "SciPy loop: 82 times"),
    ("geometric", "score", "B=1000 ", "scipy", "ratio", "2,900 times"),
    ("geometric", "score", "B=1000 ", "numpy", "ratio", "vectorised NumPy: 7 times"),
    ("geometric", "stream", "100000", "", "ours_s", "| 17 s |"),
    ("geometric", "stream", "100000", "", "peak_gib", "1.4 GiB"),
    ("sparc", "SPARC, as score measures it", "", "monalysa", "ratio", "monalysa: 18 times"),
    ("sparc", "SPARC, sparc_batch", "", "monalysa", "ratio", "monalysa: 72 times"),
    ("kinematics", "manipulability", "Panda, 100,000", "Pinocchio", "ratio", "38 times"),
    ("kinematics", "inverse", "", "PyRoKi, 64", "ratio", "30 times"),
    ("stats", "paired bootstrap", "", "scipy", "ratio", "10 times"),
    ("stats", "ICC", "", "pingouin", "ratio", "pingouin: 78 times"),
    ("force_closure", "margin", "", "QHull", "ratio", "17 times"),
)


@pytest.mark.parametrize(("file", "work", "size", "peer", "key", "says"), QUOTED)
def test_the_performance_page_says_what_was_measured(
    file: str, work: str, size: str, peer: str, key: str, says: str
) -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    made = json.loads((ROOT / "benchmarks" / "results" / f"{file}-2core.json").read_text(encoding="utf-8"))
    begins = {"work": work, "size": size, "peer": peer}
    row = next(r for r in made["rows"] if all((r.get(k) or "").startswith(v) for k, v in begins.items()))
    (number,) = re.findall(r"[\d,.]*\d", says)
    assert says in page and float(number.replace(",", "")) == pytest.approx(row[key], rel=0.06)
