"""Every column that the report tells of by name is described where metrics are registered."""

import pytest

from jaxeval.io.records.columns import meaning_of
from jaxeval.report import motion_words as W
from jaxeval.report.scored import NUMBERS, Q_NUMBERS, Q_TEXT, TEXT
from jaxeval.report.sections.tracking import ERRORS, FRAMES

COLUMNS = [
    *TEXT, *NUMBERS, *Q_TEXT, *Q_NUMBERS,
    *(q.column for q in (*W.SMOOTHNESS, *W.KINEMATIC)),
    *(f"tracking.seen.{q.column}" for q in (*ERRORS, *FRAMES)),
]  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_the_report_is_described(column: str) -> None:
    found = meaning_of(column)
    assert found is not None and found.meaning
    units = {"_m": "m", "_rad": "rad", "_s": "s", "_m_s3": "m/s^3"}
    ends = [u for u in units if column.removesuffix("_mean").removesuffix("_p95").endswith(u)]
    if ends:
        assert found.unit == units[max(ends, key=len)]
