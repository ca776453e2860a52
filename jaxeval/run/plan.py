"""`jaxeval plan`: how many episodes an evaluation needs, for an interval or for a difference of two policies."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxeval.io.errors import InputError
from jaxeval.report.tables import Column
from jaxeval.stats.estimate import Status
from jaxeval.stats.planning import Plan, episodes_for_difference, episodes_for_half_width, pairs_for_difference
from jaxeval.stats.sequential import watch

COLUMNS = [Column("wanted"), Column("expected"), Column("needed_n", "episodes"), Column("of", "of what")]
"""Columns of the printed table."""
RATES = ("p", "half_width", "a", "b", "a_only", "b_only")
"""Settings that may be left out."""
WATCHED_N, RUNS_N = 500, 2000
"""Pairs up to which a comparison that is watched is simulated; simulations."""


def plan(
    *,
    p: float | None = None,
    half_width: float | None = None,
    a: float | None = None,
    b: float | None = None,
    a_only: float | None = None,
    b_only: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
) -> list[dict[str, Any]]:
    """A row for every question that was asked: an interval of half_width, rates a and b apart, pairs apart.

    InputError where nothing was asked, half of a question is missing, a setting is no share that it can be, or no
    number of episodes would do.
    """
    settings = {"p": p, "half_width": half_width, "a": a, "b": b, "a_only": a_only, "b_only": b_only, "power": power,
            "level": level}  # fmt: skip
    for name, value in settings.items():
        _share(name, value)
    if a_only is not None and b_only is not None and a_only + b_only > 1:
        raise InputError(
            f"a_only and b_only are {a_only:g} and {b_only:g}, expected shares of the same starts, 1 together at most; "
            "correct one"
        )
    for name, other in (("a", "b"), ("a_only", "b_only")):
        given = {"a": a, "b": b, "a_only": a_only, "b_only": b_only}
        if (given[name] is None) != (given[other] is None):
            there, lacking = (name, other) if given[other] is None else (other, name)
            raise InputError(f"{there} is given and {lacking} is not, expected both; give {lacking}=... as well")
    asked = f"the two apart, {100 * power:g} % power, {100 * level:g} % intervals"
    rows: list[dict[str, Any]] = []
    with jax.enable_x64(True):
        if half_width is not None:
            rate = 0.5 if p is None else p
            wanted = f"within ± {100 * half_width:g} points, {100 * level:g} % intervals"
            n = _whole(episodes_for_half_width(rate, half_width, level=level), wanted)
            rows.append({"wanted": wanted, "expected": f"success {rate:g}", "needed_n": n, "of": "the policy"})
        if a is not None and b is not None:
            n = _whole(episodes_for_difference(a, b, power=power, level=level), asked)
            rows.append({"wanted": asked, "expected": f"success {a:g} and {b:g}", "needed_n": n, "of": "each policy"})
        if a_only is not None and b_only is not None:
            n = _whole(pairs_for_difference(a_only, b_only, power=power, level=level), asked)
            expected = f"a alone {a_only:g}, b alone {b_only:g}"
            rows.append({"wanted": asked, "expected": expected, "needed_n": n, "of": "each policy, on the same starts"})
            if n <= WATCHED_N:
                mean, most = _watched(a_only, b_only, 8 * n, level)
                wanted = f"the two apart, watched pair by pair, {100 * level:g} % at any stop"
                meaning = f"each policy on average; 9 times of 10 at most {most} pairs"
                rows.append({"wanted": wanted, "expected": expected, "needed_n": mean, "of": meaning})
    if not rows:
        raise InputError(
            "nothing is asked; expected half_width=..., or a=... b=..., or a_only=... b_only=...; give one"
        )
    return rows


def _share(name: str, value: Any) -> None:
    """InputError unless a setting is a share that it can be. Power and level must be there, the others may be None."""
    if value is None and name in RATES:
        return
    share = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    expected, good = "from 0 to 1, such as 0.8 for 80 %", 0 <= share <= 1
    if name == "half_width":
        expected, good = "above 0 and up to 0.5, such as 0.05 for 5 points", 0 < share <= 0.5
    elif name not in RATES:
        expected, good = "above 0 and below 1, such as 0.8 for 80 %", 0 < share < 1
    if not good:
        unit, most = ("points", 50) if name == "half_width" else ("%", 100)
        hint = f"give {name}={share / 100:g} for {share:g} {unit}" if 1 <= share <= most else "correct the setting"
        raise InputError(f"{name} is {value!r}, expected a share {expected}; {hint}")


def _watched(a_only: float, b_only: float, pairs_n: int, level: float) -> tuple[int, str]:
    """Pairs after which a comparison watched pair by pair is decided: the mean, and the 90 % quantile in words.

    Simulated, always with the same key; comparisons not decided after ``pairs_n`` count as so many.
    """
    drawn = jax.random.uniform(jax.random.key(0), (RUNS_N, pairs_n))
    a, b = drawn < a_only, (drawn >= a_only) & (drawn < a_only + b_only)
    seen = jax.jit(jax.vmap(lambda a, b: watch(a, b, jnp.ones(pairs_n, bool), level=level)))(a, b)
    pairs = np.asarray(seen.pairs_n)
    most = int(np.ceil(np.quantile(pairs, 0.9)))
    return int(np.ceil(pairs.mean())), f"{most}" if most < pairs_n else f"over {most}"


def _whole(planned: Plan, wanted: str) -> int:
    if int(planned.status) != Status.OK.code:
        why = Status.of(planned.status)
        why_not = "the two are expected to be equal" if why is Status.DEGENERATE else why.value
        raise InputError(
            f"{wanted}: no number of episodes would do ({why_not}); expected rates between 0 and 1 that differ, power "
            "and level between 0 and 1; correct the setting"
        )
    return int(planned.n)
