"""Records of what is in memory: scores, data frames of pandas and pyarrow, columns; what a column means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from jaxeval.io.errors import InputError
from jaxeval.io.records import read_records
from jaxeval.io.records.columns import direction_of, meaning_of
from jaxeval.io.records.objects import records_from_columns, records_of

COLUMNS = {
    "policy": ["x", "x", "y"], "initial_condition_id": [7, 8, 7], "Q": [0.5, None, 1.0], "success": [True, False, None],
    "training_seed": ["0", "0", "1"],
}  # fmt: skip


@dataclass
class Scores:
    """As `score` returns them."""

    columns: dict[str, Any]


@pytest.fixture(scope="module")
def from_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], ...]:
    file = tmp_path_factory.mktemp("records") / "records.csv"
    pd.DataFrame(COLUMNS).to_csv(file, index=False)
    return read_records(file).rows


@pytest.mark.parametrize(
    "found",
    [
        Scores(COLUMNS | {"findings": [[], ["odd"], []]}),
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).convert_dtypes(),
        pa.table(COLUMNS),
        Scores({k: np.array(v, object) for k, v in COLUMNS.items()}),
        Scores({k: pd.Series(v) for k, v in COLUMNS.items()}),
    ],
    ids=["scores", "pandas", "pandas-na", "pyarrow", "numpy", "series"],
)
def test_every_kind_of_table_is_what_its_file_would_be(found: Any, from_file: tuple[dict[str, Any], ...]) -> None:
    assert records_of(found).rows == from_file
    assert records_of(records_of(found)).rows == from_file


def test_a_table_a_policy() -> None:
    less = {k: v for k, v in COLUMNS.items() if k != "policy"}
    made = records_of({"p": Scores(less), "q": pd.DataFrame(less)})
    assert made.policies == ("p", "q") and len(made) == 6 and made.rows[0]["initial_condition_id"] == "7"
    with pytest.raises(InputError, match="'q' is a str beside tables"):
        records_of({"p": Scores(less), "q": "file.csv"})
    with pytest.raises(InputError, match=r"scores: no column 'policy'"):
        records_from_columns(less, "scores")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"policy": ["x"], "Q": [1, 2]}, "mine: column 'policy' has 1 values and 'Q' 2, expected as many"),
        ({"policy": []}, "mine: found no row"),
        ({}, "mine: found no row"),
        ({"policy": ["x"], "Q": ["word"]}, "mine, row 1: Q is 'word', expected a number"),
    ],
)
def test_columns_that_are_no_records(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        records_from_columns(columns, "mine")


def test_what_holds_no_records_is_named() -> None:
    with pytest.raises(InputError, match="records: found a int, expected records, a path"):
        records_of(3)


def test_columns_that_no_metric_owns_go_before_what_the_registry_describes() -> None:
    assert direction_of("success_once") == "higher" and direction_of("time_s") is None
    length = meaning_of("smoothness.path_m")
    assert direction_of("smoothness.path_m") == "lower" and length is not None and length.unit == "m"
    speed = meaning_of("speed")
    assert speed is not None and speed.meaning == "execution speed, times nominal" and direction_of("speed") is None
