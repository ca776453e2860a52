"""Settings on the command line and fields in Python are the same, and errors name none that there is not."""

from __future__ import annotations

import ast
import inspect
import math
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from jaxeval.cli_words import _all, settings_of
from jaxeval.metrics.geometric import GeometricParams
from jaxeval.metrics.registry import all_metrics
from jaxeval.run import agree, compare, video
from jaxeval.run.convert import convert
from jaxeval.run.fit import fit_source
from jaxeval.run.inspect import inspect as inspect_source
from jaxeval.run.plan import plan
from jaxeval.run.propose import propose
from jaxeval.run.rollout import rollout
from jaxeval.segment.change_points import ChangePointParams

BLOCKS: list[tuple[str, str, type]] = [
    *[("score", m.block, m.Params) for m in all_metrics().values()],
    ("demo", "metric", GeometricParams),
    ("propose", "change_points", ChangePointParams),
]
FIELDS = [(block, Params, f.name) for verb, block, Params in BLOCKS if verb != "demo" for f in fields(Params)]
BAD = (-1, -1.0, 0.3, math.nan, "nobody knows", 1e9)
ROOT = Path(__file__).resolve().parents[1]


def plain(value: Any) -> Any:
    return {} if value == () else float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize(("verb", "block", "Params"), BLOCKS, ids=lambda x: getattr(x, "__name__", x))
def test_a_metrics_settings_are_its_params_with_the_same_defaults(verb: str, block: str, Params: type) -> None:
    written = {k: plain(v) for k, v in settings_of(verb)[block].items()}
    assert written == {f.name: plain(f.default) for f in fields(Params)}


@pytest.mark.parametrize(("block", "Params", "name"), FIELDS, ids=lambda x: getattr(x, "__name__", x))
def test_check_names_the_setting_as_it_is_called(block: str, Params: type, name: str) -> None:
    for bad in BAD:
        try:
            Params(**{name: bad}).check()
        except ValueError as error:
            assert f"{block}.{name}" in str(error), error


@pytest.mark.parametrize(
    ("verb", "takes"),
    [
        ("plan", plan),
        ("video", video.Setting),
        ("compare", compare.Settings),
        ("agree", agree.Settings),
        ("convert", convert),
        ("fit", fit_source),
        ("inspect", inspect_source),
        ("propose", propose),
    ],
)
def test_a_verbs_settings_have_the_defaults_of_what_they_are_handed_to(verb: str, takes: Any) -> None:
    written = settings_of(verb)
    written = written | (written.get("language_model") or {})
    shared = [p for p in inspect.signature(takes).parameters.values() if p.name in written and p.name != "out"]
    assert shared
    for p in shared:
        if p.default not in (inspect.Parameter.empty, MISSING) and not isinstance(p.default, ChangePointParams):
            empty = p.default in ((), None) and not written[p.name] and written[p.name] is not False
            assert empty or written[p.name] == p.default, p.name


def test_settings_of_a_rollout_are_those_of_its_function() -> None:
    known = set(inspect.signature(rollout).parameters) - {"configuration", "progress"}
    assert set(settings_of("rollout")) == known | {"own_task", "own_policy", "experiment", "debug"}


def test_sentences_name_settings_that_there_are() -> None:
    """Every `block.name=` in a sentence of the code is a setting of some verb."""
    verbs = [p.stem for p in (ROOT / "conf").glob("*.yaml")]
    there = {name for verb in verbs for name in _all(verb)}
    blocks = {name.split(".")[0] for name in there if "." in name}
    named = re.compile(rf"\b((?:{'|'.join(blocks)})\.[a-z]\w*)(?==| is )")
    wrong = {}
    for path in (ROOT / "jaxeval").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                wrong |= {name: path.name for name in named.findall(node.value) if name not in there}
    assert not wrong
