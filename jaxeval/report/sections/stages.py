"""Stages: how far executions came, why they ended, and success by condition; stages are whatever columns say.

A stage is a column ``stage.<name>``, its time ``stages.<name>_s``; ``cause`` says how an execution ended.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from jaxeval.report import stages_figures, summary
from jaxeval.report.conditions import Condition, conditions, percent, rates
from jaxeval.report.html import Picture
from jaxeval.report.scored import Scored
from jaxeval.report.section import Cell, Context, Part, Section, TableColumn, template_of
from jaxeval.report.sections.generic import TABLE_GROUPS_N, cell, means, not_known

STAGE, CAUSE, SUCCESS = "stage.", "cause", "success_at_end"
SUCCEEDED, REST, UNKNOWN = "success", "other causes", "not known"
LEVELS_N, CONDITIONS_N, CAUSES_N = 6, 3, 9
"""Levels that have a funnel; conditions that success is drawn by; causes told apart in the figure."""


def draw(scored: Scored, context: Context) -> Part | None:
    """Funnel, causes, success by condition, times of stages, and a table of what else was measured."""
    names = scored.table.column_names
    stages = [name.removeprefix(STAGE) for name in names if name.startswith(STAGE)]
    if not stages and CAUSE not in names:
        return None
    by = conditions(scored)
    success = scored.floats(SUCCESS) if SUCCESS in names else None
    columns = scored.of_section(SECTION.name)
    own = {CAUSE, SUCCESS, *(STAGE + stage for stage in stages), *(f"stages.{stage}_s" for stage in stages)}
    rest = {name: about for name, about in columns.items() if name not in own}
    page = template_of(
        __file__,
        by=by[0].title,
        funnel=_funnel(scored, stages, success, by[0], context),
        **_causes(scored, by[0], context),
        **_success(success, by, context),
        times=_times(scored, stages, by[0]),
        measures=means(scored, _levels(by[0])[:TABLE_GROUPS_N], rest),
        not_known=not_known(scored, {name: about for name, about in columns.items() if name != CAUSE}),
    )
    numbers = list(context.executions(scored))
    if success is not None:
        numbers.append((f"{rates([success])[0]['k']} of {int(np.isfinite(success).sum())}", "succeeded"))
    return Part(body=page.sections(), numbers=tuple(numbers), columns=_columns(scored, stages))


SECTION = Section("stages", "Stages", draw)


def _columns(scored: Scored, stages: list[str]) -> tuple[TableColumn, ...]:
    """Columns of the table of executions: the last stage reached, and the cause."""
    reached = {stage: scored.floats(STAGE + stage) == 1 for stage in stages}
    causes = scored.texts(CAUSE) if CAUSE in scored.table.column_names else []

    def last(i: int) -> Cell:
        came = [k for k, stage in enumerate(stages) if reached[stage][i]]
        return Cell(_words(stages[came[-1]]) if came else "none", came[-1] if came else -1)

    found = [TableColumn("Last stage", last)] if stages else []
    found += [TableColumn("Cause", lambda i: Cell(causes[i] or UNKNOWN))] if causes else []
    return tuple(found)


def _words(stage: str) -> str:
    return stage.replace("_", " ")


def _levels(condition: Condition) -> list[tuple[str, np.ndarray]]:
    """(words, executions) of each level that has any."""
    named = zip(condition.names, condition.rows, strict=True)
    return [(f"{condition.title} {name}" if _is_number(name) else name, rows) for name, rows in named if len(rows)]


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _funnel(
    scored: Scored, stages: list[str], success: np.ndarray | None, condition: Condition, context: Context
) -> Picture | None:
    """Share of executions that reached each stage, a panel a level; success last."""
    if not stages:
        return None
    levels = _levels(condition)
    if len(levels) > LEVELS_N:
        names = summary.shortened([name for name, _ in levels[LEVELS_N:]])
        context.skipped.append((f"Levels of {condition.title} left out of the figure of stages", names))
    truths = {_words(stage): scored.floats(STAGE + stage) for stage in stages}
    truths |= {} if success is None else {SUCCEEDED: success}
    panels = []
    for name, rows in levels[:LEVELS_N]:
        found = rates([values[rows] for values in truths.values()])
        panels.append((f"{name} (n = {len(rows)})", list(zip(truths, found, strict=True))))
    words = "; ".join(f"{name}: " + ", ".join(f"{stage} {row['k']} of {row['n']}" for stage, row in rows)
                     for name, rows in panels)  # fmt: skip
    return context.pictures.add(
        "funnel",
        f"Executions that reached each stage. {words}",
        lambda: stages_figures.rates_figure(panels, "executions that reached it, %", shared=True),
    )


def _causes(scored: Scored, condition: Condition, context: Context) -> dict[str, Any]:
    """The table of causes (levels as columns) and its figure, success first and then the most frequent."""
    if CAUSE not in scored.table.column_names:
        return {"causes": None, "endings": None}
    words = np.array([w or UNKNOWN for w in scored.texts(CAUSE)])
    levels = _levels(condition)
    total = Counter(words.tolist())
    order = [SUCCEEDED] * (SUCCEEDED in total) + [w for w, _ in total.most_common() if w != SUCCEEDED]
    count = np.array([[int((words[rows] == w).sum()) for w in order] for _, rows in levels])
    rows = [(w, [*count[:, k].tolist()], total[w]) for k, w in enumerate(order)]
    titles = [f"{name} (n = {len(mine)})" for name, mine in levels]
    drawn = [SUCCEEDED, *(w for w in order if w != SUCCEEDED)]
    counts = {w: count[:, order.index(w)] if w in order else np.zeros(len(levels), int) for w in drawn}
    if len(drawn) > CAUSES_N + 1:
        rest = sum((counts[w] for w in drawn[CAUSES_N:]), np.zeros(len(levels), int))
        drawn, counts = [*drawn[:CAUSES_N], REST], {**counts, REST: rest}
    causes_text = ", ".join(f"{n} {w}" for w, n in total.most_common())
    picture = context.pictures.add(
        "causes",
        f"How executions ended: {causes_text}",
        lambda: stages_figures.endings_figure(titles, drawn, np.stack([counts[w] for w in drawn], axis=1)),
    )
    more = max(0, len(rows) - summary.LISTED_N)
    return {"causes": {"titles": titles, "rows": rows[: summary.LISTED_N], "more": more}, "endings": picture}


def _success(success: np.ndarray | None, by: list[Condition], context: Context) -> dict[str, Any]:
    """Success at every level of every condition with its interval: a table, and a figure of the first conditions."""
    if success is None:
        return {"success": None, "success_picture": None}
    rows, panels = [], []
    for condition in by:
        found = rates([success[mine] for mine in condition.rows])
        named = [(name, row) for name, row in zip(condition.names, found, strict=True) if row["n"]]
        rows += [(condition.title, name, row["k"], row["n"], percent(row)) for name, row in named]
        panels.append((f"by {condition.title}", named))
    alt = "Success: " + "; ".join(f"{title} {name} {k} of {n}" for title, name, k, n, _ in rows[: summary.LISTED_N])
    picture = context.pictures.add(
        "success",
        alt,
        lambda: stages_figures.rates_figure(panels[:CONDITIONS_N], "executions that succeeded, %", shared=False),
    )
    return {"success": rows, "success_picture": picture}


def _times(scored: Scored, stages: list[str], condition: Condition) -> dict[str, Any] | None:
    """Mean time of reaching each stage, a column a level; None where no times were scored."""
    timed = [stage for stage in stages if f"stages.{stage}_s" in scored.table.column_names]
    if not timed:
        return None
    levels, rows = _levels(condition), []
    for stage in timed:
        column = f"stages.{stage}_s"
        values, about = scored.floats(column), scored.columns.get(column)
        rows.append((_words(stage), [cell(values[mine]) for _, mine in levels], about.meaning if about else ""))
    return {"titles": [name for name, _ in levels], "rows": rows}
