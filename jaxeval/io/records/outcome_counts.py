"""Published 2x2 counts as records: a row an episode with made-up starts, which say so.

A publication that gives how often both, one or neither of two policies succeeded on the same starts gives everything
that a paired comparison of those two needs. Which start it was is not known, and no statistic here asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxeval.io.errors import InputError
from jaxeval.io.tables import Table

CELLS = ("both", "expert_only", "learner_only", "neither")
MADE_UP = "counts"
"""What a made-up start begins with; real pairs are those with the policy under ``paired_with`` alone."""


def is_counts(table: Table) -> bool:
    """Whether a table holds 2x2 counts: the columns `learner` and those of `CELLS`."""
    return {"learner", *CELLS} <= set(table.columns)


def rows_of_counts(
    table: Table, *, reference: str = "expert", conditions: Sequence[str] = ("speed",)
) -> tuple[list[dict[str, Any]], list[str]]:
    """Records of a table of 2x2 counts, and what must be said of them.

    Each line is a learner beside the ``reference`` policy in one (task, conditions). The reference's rows stand once:
    its successes on the first starts, and of these the first ``both`` are the learner's too. Two learners share no
    known pairing; their rows carry ``paired_with`` = the reference, which a pairing must respect. Lines without counts
    (starts that did not match) give no row.

    Raises:
        InputError: a count that cannot be, or lines that disagree about the reference's successes in one cell.
    """
    conditions = [c for c in conditions if c in table.columns]
    rows: list[dict[str, Any]] = []
    marginals: dict[tuple[Any, ...], tuple[int, int]] = {}
    without: list[str] = []
    for k, line in enumerate(table.rows):
        cell = (line.get("task"), *(line[c] for c in conditions))
        name = " ".join([str(line["learner"]), *(f"{c} {v}" for c, v in zip(("task", *conditions), cell, strict=True))])
        if all(line[c] is None for c in CELLS):
            without.append(name)
            continue
        if bad := [c for c in CELLS if not isinstance(line[c], int) or isinstance(line[c], bool) or line[c] < 0]:
            raise InputError(
                f"{table.where(k)}: {bad[0]} is {line[bad[0]]!r}, expected a count of pairs; correct the line"
            )
        both, reference_only, learner_only, neither = (line[c] for c in CELLS)
        marginal = (both + reference_only, both + reference_only + learner_only + neither)
        if marginals.setdefault(cell, marginal) != marginal:
            raise InputError(
                f"{table.where(k)}: {reference} has {marginal[0]} of {marginal[1]}, expected {marginals[cell][0]} of "
                f"{marginals[cell][1]} as in a line before of the same cell; correct one of them or give them apart"
            )
        outcomes = [True] * both + [False] * reference_only + [True] * learner_only + [False] * neither
        rows += [_row(str(line["learner"]), conditions, cell, i, s, reference) for i, s in enumerate(outcomes)]
    for cell, (k, n) in marginals.items():
        rows += [_row(reference, conditions, cell, i, i < k, reference) for i in range(n)]
    notes = [
        f"{table.path.name}: counts, not recordings: starts are made up, and only pairings with {reference} are real"
    ]
    if without:
        notes.append(
            f"{table.path.name}: {len(without)} lines hold no pairs (their starts did not match): {without[0]}, ..."
        )
    return rows, notes


def with_stages(
    rows: list[dict[str, Any]], table: Table, stages: Table, causes: Table, *, reference: str = "expert"
) -> list[dict[str, Any]]:
    """The rows of `rows_of_counts` with ``stage.*`` and ``cause``, from counts of both by policy and speed.

    A line of ``stages`` says how many of ``episodes_n`` reached each stage; which of them is not known and made up, so
    only counts may be taken of these columns. A policy that has no pairs in ``table`` gets rows without a start. Lines
    that fit no line of ``table``, or two tasks, are left out.

    Raises:
        InputError: a column that is lacking.
    """
    for needed, there in (
        (("speed", "learner_n", "expert_n"), table),
        (("policy", "speed", "episodes_n", "success"), stages),
        (("policy", "speed", "cause", "episodes_n"), causes),
    ):
        for name in needed:
            there.column(name)
    out = list(rows)
    names = [c for c in stages.columns if c not in ("policy", "speed", "evaluation_seed", "episodes_n", "success")]
    for line in stages.rows:
        policy, speed, n = line["policy"], line["speed"], line["episodes_n"]
        alike = [
            other
            for other in table.rows
            if other["speed"] == speed
            and (
                (other["learner"] == policy and other["learner_n"] == n)
                or (policy, other["expert_n"]) == (reference, n)
            )
        ]
        reached = [n, line["success"], *(line[name] for name in names)]
        if len(tasks := {other.get("task") for other in alike}) != 1 or not all(isinstance(k, int) for k in reached):
            continue
        (task,) = tasks
        mine = [r for r in out if (r["policy"], r["task"], r["speed"]) == (policy, task, speed)]
        if not mine:
            mine = [_row(policy, ["speed"], (task, speed), i, i < line["success"], None) for i in range(n)]
            out += mine
        if len(mine) != n or sum(r["success_at_end"] for r in mine) != line["success"]:
            continue
        mine.sort(key=lambda r: not r["success_at_end"])
        counted = [(c["cause"], c["episodes_n"]) for c in causes.rows if (c["policy"], c["speed"]) == (policy, speed)]
        counted.sort(key=lambda c: c[0] != "success")
        listed = [cause for cause, times in counted for _ in range(times or 0)]
        for i, row in enumerate(mine):
            row |= {f"stage.{name}": i < line[name] for name in names}
            row["cause"] = listed[i] if len(listed) == n else None
    return out


def _row(
    policy: str, conditions: Sequence[str], cell: tuple[Any, ...], i: int, success: bool, paired_with: str | None
) -> dict[str, Any]:
    """A row with a made-up start; without a start where it is paired with nobody."""
    start = None if paired_with is None else "/".join([MADE_UP, *(str(v) for v in cell), str(i)])
    return {
        "policy": policy, "training_seed": None, "task": cell[0],
        **dict(zip(conditions, cell[1:], strict=True)), "episode": None, "initial_condition_id": start,
        "initial_condition_hash": None, "success_once": None, "success_at_end": success, "paired_with": paired_with,
    }  # fmt: skip
