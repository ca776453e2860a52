"""Agreement as people take it away: the printed table, agreement.csv, agreement.tex and agreement.png."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxeval.io.files import write_bytes, write_text
from jaxeval.report.figures import FAINT, INK, OKABE_ITO, label, png
from jaxeval.report.tables import Column, latex_text, plain_text, write_csv

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

OVERALL, ALL, SUCCESSES = "overall", "all", "successes"
LINES_N = 8
"""Groups that a figure shows with every pooling of them."""


@dataclass(frozen=True)
class AgreementRow:
    """One number of the result; the fields are the columns of agreement.csv.

    ``quantity``: ICC(2,1), ICC(2,k), alpha (nominal | ordinal | interval), Spearman, Kendall, AUROC. ``scope``: all
    executions or successes alone. ``status`` is "ok" or the sentence that says why there is no value; ``p_by`` how the
    two-sided p was found. ``left_out``: items without all ratings, or rows without a number.
    """

    quantity: str
    against: str
    metric: str
    scope: str
    policy: str
    task: str
    n: int
    left_out: int
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    p_by: str
    status: str

    @property
    def cell(self) -> str:
        """Value and n for a table of many: "0.81 (105)"."""
        return f"{'undefined' if self.value is None else f'{self.value:.2f}'} ({self.n})"


@dataclass(frozen=True)
class Agreed:
    """Everything `agree` found. ``metrics``: columns compared, "-name" where lower is better; ``level``: of intervals.

    ``held_out`` and ``coefficients`` are rows of `jaxeval.run.holdouts`: metrics as predictors of success.
    """

    rows: tuple[AgreementRow, ...]
    metrics: tuple[str, ...]
    notes: tuple[str, ...]
    held_out: tuple[dict[str, Any], ...] = ()
    coefficients: tuple[dict[str, Any], ...] = ()
    level: float = 0.95

    def to_pandas(self) -> pandas.DataFrame:
        """The rows of `agreement.csv`."""
        import pandas

        return pandas.DataFrame(list(map(vars, self.rows)))

    def of(self, quantity: str, **fields: Any) -> list[AgreementRow]:
        """Rows of a quantity whose fields are these."""
        return [r for r in self.rows if r.quantity == quantity and all(getattr(r, k) == v for k, v in fields.items())]


def table(agreed: Agreed) -> str:
    """What was found, as text: the raters' agreement, and a line a task with a column a metric."""
    blocks = []
    raters = [r for r in agreed.rows if r.metric == "ratings"]
    if raters:
        columns = [Column("quantity"), Column("scope"), Column("value"), Column("interval"), Column("n", "executions")]
        rows = [
            {"quantity": r.quantity, "scope": r.scope, "n": r.n, "value": _shown(r), "interval": _interval(r)}
            for r in raters
        ]
        blocks.append("agreement of the raters (n: executions that count)\n" + plain_text(rows, columns))
    for title, rows in _pivots(agreed):
        blocks.append(f"{title}\n" + plain_text(rows))
    blocks += [f"{caption}\n" + plain_text(rows, columns) for _, caption, rows, columns in _predictors(agreed)]
    why = dict.fromkeys(r.status for r in agreed.rows if r.value is None)
    warned = [
        f"warning: {r.quantity}, {r.scope}: {r.status}" for r in raters if r.value is not None and r.status != "ok"
    ]
    notes = [*(f"undefined: {status}" for status in why), *warned, *(f"note: {note}" for note in agreed.notes)]
    return "\n\n".join([*blocks, "\n".join(notes)]).rstrip()


def latex(agreed: Agreed) -> str:
    """The same as LaTeX tables: one for each kind of number."""
    parts = []
    raters = [r for r in agreed.rows if r.metric == "ratings"]
    if raters:
        rows = [
            {
                "coefficient": r.quantity,
                "executions": r.scope,
                "value": _shown(r),
                f"{100 * agreed.level:g} % interval": _interval(r),
                "n": r.n,
            }
            for r in raters
        ]
        parts.append(latex_text(rows, caption="Agreement of the raters.", label="tab:raters"))
    for i, (title, rows) in enumerate(_pivots(agreed)):
        parts.append(latex_text(rows, caption=f"{title}.", label=f"tab:agreement-{i + 1}"))
    for name, caption, rows, columns in _predictors(agreed):
        parts.append(latex_text(rows, columns, caption=f"{caption}.", label=f"tab:{name}"))
    return "\n".join(parts)


def _predictors(agreed: Agreed) -> Iterable[tuple[str, str, Sequence[dict[str, Any]], list[Column]]]:
    """(file's stem, caption, rows, columns) of what there is of metrics as predictors of success."""
    if agreed.held_out:
        shown = {"fit_success": 2, "test_success": 2, "AUROC": 2, "balanced_accuracy": 2, "balanced_accuracy_0": 2}
        shown |= {"Brier": 2, "Brier_0": 2, "ECE": 2}
        titles = {"fit_n": "n fit", "test_n": "n test", "fit_success": "success fit", "test_success": "success test",
                  "balanced_accuracy": "ba", "balanced_accuracy_0": "ba at 0", "Brier_0": "Brier0"}  # fmt: skip
        columns = [Column(k, titles.get(k, k), shown.get(k)) for k in agreed.held_out[0] if not k.startswith("AUROC_")]
        yield "holdouts", "Success predicted where it was not fitted", agreed.held_out, columns
    if agreed.coefficients:
        columns = [Column(k, digits=2 if k in ("coefficient", "low", "high") else None) for k in agreed.coefficients[0]]
        caption = "Log odds of success by one standard deviation of the metric"
        yield "coefficients", caption, agreed.coefficients, columns


def _shown(r: AgreementRow) -> str:
    return f"undefined ({r.status.split(':')[0]})" if r.value is None else f"{r.value:.3f}"


def _interval(r: AgreementRow) -> str:
    return "" if r.low is None or r.high is None else f"{r.low:.3f} to {r.high:.3f}"


def _pivots(agreed: Agreed) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    """(title, a row a task or policy, a column a metric) for every quantity and scope, n in brackets."""
    rows = [r for r in agreed.rows if r.metric != "ratings"]
    for quantity in dict.fromkeys(r.quantity for r in rows):
        for scope in dict.fromkeys(r.scope for r in rows):
            mine = [r for r in rows if r.quantity == quantity and r.scope == scope]
            if not mine:
                continue
            words = "successes alone" if scope == SUCCESSES else "all executions"
            against = mine[0].against.split(" (")[0]
            lines: dict[tuple[str, str], dict[str, Any]] = {}
            for r in mine:
                line = lines.setdefault((r.policy, r.task), {})
                if any(x.policy for x in mine):
                    line.setdefault("policy", r.policy or "all")
                line.setdefault("task", r.task)
                line[r.metric] = r.cell
            yield f"{quantity} of each metric with {against}, {words} (n)", list(lines.values())


def figure(agreed: Agreed) -> Figure:
    """Overall rank correlation, or AUROC by policy and task, of every metric with its interval."""
    from matplotlib.figure import Figure

    quantity = "AUROC" if agreed.of("AUROC") else "Spearman"
    mine = [r for r in agreed.of(quantity) if quantity == "AUROC" or r.task == OVERALL]
    several = quantity == "AUROC"
    lines = list(dict.fromkeys((r.policy, r.task, r.scope) for r in mine))
    if len(lines) > LINES_N and any(
        l[0] and l[1] != OVERALL for l in lines
    ):  # the single cells and everything pooled, without what lies between
        lines = [l for l in lines if bool(l[0]) == (l[1] != OVERALL)]
    metrics = list(agreed.metrics)
    wanted = 1.4 + 0.26 * len(metrics) * len(lines) + 0.14 * len(lines)
    made = Figure(figsize=(8.4, min(max(wanted, 2.2), 40)), layout="constrained")
    ax = made.subplots()
    y, names = 0.0, list[tuple[float, str]]()
    for group in lines:
        for k, metric in enumerate(metrics):
            r = next(r for r in mine if (r.policy, r.task, r.scope) == group and r.metric == metric)
            names.append((y, label(metric)))
            colour = OKABE_ITO[k % len(OKABE_ITO)]
            if r.value is None or r.low is None or r.high is None:
                white = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
                ax.text(
                    0.5 if several else 0.0, y, _shown(r), va="center", ha="center", fontsize=9, color=FAINT, bbox=white
                )
            else:
                ax.plot([r.low, r.high], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
                ax.plot([r.value], [y], "o", color=colour, markersize=6, clip_on=False)
            words = r.against.removeprefix("success (").removesuffix(")") if several else f"n = {r.n}"
            ax.text(1.02, y, words, va="center", fontsize=9, color=INK, transform=ax.get_yaxis_transform())
            y += 1
        words = " · ".join(v for v in (group[0], group[1], "" if several else group[2]) if v)
        ax.text(0.0, y - len(metrics) - 0.55, label(words, 60), fontsize=10, fontweight="bold", color=INK, va="bottom",
                transform=ax.get_yaxis_transform())  # fmt: skip
        y += 1.1
    ax.set_yticks([at for at, _ in names], [name for _, name in names])
    ax.set_ylim(y - 1.2, -1.4)
    ax.set_xlim((0, 1) if several else (-1, 1))
    ax.axvline(0.5 if several else 0.0, color=FAINT, linewidth=1, zorder=0)
    ax.set_xlabel(
        "AUROC against success (at the right: successes of executions)"
        if several
        else f"Spearman's rank correlation with {mine[0].against}"
    )
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
    return made


def write(agreed: Agreed, out: str | Path) -> tuple[Path, Path, Path]:
    """agreement.csv (every number in full), agreement.tex, agreement.png in a folder; returns their paths.

    Metrics as predictors stand in holdouts.csv and coefficients.csv, and in the same .tex; where there are none, those
    of an earlier run are removed.
    """
    folder = Path(out)
    made = {name: rows for name, _, rows, _ in _predictors(agreed)}
    for name in ("holdouts", "coefficients"):
        if name in made:
            write_csv(folder / f"{name}.csv", made[name])
        else:
            (folder / f"{name}.csv").unlink(missing_ok=True)
    return (
        write_csv(folder / "agreement.csv", [vars(r) for r in agreed.rows]),
        write_text(folder / "agreement.tex", latex(agreed)),
        write_bytes(folder / "agreement.png", png(figure(agreed))),
    )
