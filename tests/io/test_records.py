"""Evaluation records: every table reads alike, unknown stays unknown, and a bad row costs one row and one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxeval.io import bundled
from jaxeval.io.errors import InputError
from jaxeval.io.records import read_records, truth_of, without_repeats
from jaxeval.io.records.pairing import pair_runs
from jaxeval.io.tables import read_table
from jaxeval.report.tables import Column, csv_text, latex_text, plain_text, write_csv

ROWS: list[dict[str, Any]] = [
    {"policy": "expert", "speed": 2.0, "initial_condition_id": "7", "success_at_end": True, "stage.lifted": True,
     "cause": None, "Q": 0.5},
    {"policy": "act", "speed": 2.0, "initial_condition_id": "7", "success_at_end": False, "stage.lifted": True,
     "cause": "none of these, or \"other\"", "Q": None},
    {"policy": "act", "speed": 2.0, "initial_condition_id": "8", "success_at_end": None, "stage.lifted": None,
     "cause": None, "Q": 0.25},
]  # fmt: skip


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows in the format of the path's suffix."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        write_csv(path, rows)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".parquet"])
def test_every_format_holds_the_same_records(tmp_path: Path, suffix: str) -> None:
    records = read_records(written(tmp_path / f"records{suffix}", ROWS))
    for row, expected in zip(records.rows, ROWS, strict=True):
        assert {k: row.get(k) for k in expected} == expected
        assert type(row["success_at_end"]) in (bool, type(None))
        assert row["success_once"] is None and row["task"] is None  # never recorded: unknown, not False
    assert records.policies == ("expert", "act") and records.stages == ("lifted",) and not records.refused
    assert "act: success unknown in 1 of 2 episodes; they are in no rate" in records.notes


def test_nested_json_and_typed_cells(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"policy": "a", "success": 1, "stage": {"lifted": 0}, "poses": [1, 2]}\n')
    records = read_records(tmp_path / "a.jsonl")
    assert records.rows[0]["stage.lifted"] is False and records.rows[0]["success_at_end"] is True
    assert "poses" not in records.columns and any("`success` is read as success_at_end" in n for n in records.notes)
    (tmp_path / "b.csv").write_text("policy,success_at_end,n,word,q\na,TRUE,1,x,nan\na,0,2,,0.5\na,,3,none,1\n")
    table = read_table(tmp_path / "b.csv")
    assert table.column("n") == [1, 2, 3] and table.column("word") == ["x", None, "none"]
    assert table.column("q") == [None, 0.5, 1.0]
    assert [r["success_at_end"] for r in read_records(tmp_path / "b.csv").rows] == [True, False, None]


def test_bad_rows_are_told_one_by_one_and_nothing_else_is_lost(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(
        "policy,speed,success_at_end,excluded\n"
        "a,1,true,\na,1,maybe,\na,fast,true,\n,1,true,\na,1\na,1,false,collision\na,1,0,true\na,1,1,false\n"
    )
    records = read_records(tmp_path / "r.csv")
    assert [r["success_at_end"] for r in records.rows] == [True, False, False, True]
    assert [r["excluded"] for r in records.rows] == [None, "collision", "excluded", None]
    assert all(r["speed"] == 1 for r in records.rows)
    told = "\n".join(records.refused)
    assert len(records.refused) == 4
    for part in (
        "r.csv, line 3: success_at_end is 'maybe', expected true, false, yes, no, 1, 0 or nothing; correct the cell",
        "r.csv, line 4: speed is 'fast', expected a number",
        "r.csv, line 5: policy is empty, expected the policy's name",
        "r.csv, line 6: found 2 cells, expected 4 as in line 1",
    ):
        assert part in told


def test_folders_globs_lists_and_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    written(tmp_path / "in" / "a.csv", ROWS[:1])
    written(tmp_path / "in" / "deep" / "b.jsonl", ROWS[1:])
    (tmp_path / "in" / "lfs.csv").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    records = read_records(tmp_path / "in")
    assert sorted(r["policy"] for r in records.rows) == ["act", "act", "expert"]
    assert len(records.refused) == 1 and "Git-LFS pointer" in records.refused[0]
    assert len(read_records(f"{tmp_path}/in/**/*.jsonl")) == 2
    assert len(read_records([tmp_path / "in" / "a.csv", str(tmp_path / "in" / "deep")])) == 3
    several = read_records({"z": written(tmp_path / "in" / "c.csv", ROWS)})
    assert any("all is read as z as asked, though its `policy` says expert, act" in n for n in several.notes)
    named = read_records({"x": tmp_path / "in" / "a.csv", "y": [tmp_path / "in" / "deep" / "b.jsonl"]})
    assert [r["policy"] for r in named.rows] == ["x", "y", "y"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("none.csv", None, "there is no such file or folder"),
        ("lfs.jsonl", "version https://git-lfs.github.com/spec/v1\n", "Git-LFS pointer"),
        ("empty.csv", "", "the file is empty"),
        ("header.csv", "policy,success\n", "found no row"),
        ("no_policy.csv", "group,success\na,1\n", "no column 'policy'"),
        ("twice.csv", "policy,policy\na,b\n", "found the column 'policy' twice"),
        ("torn.parquet", "PAR1 and then nothing", "cut short or no parquet"),
        ("object.json", '{"a": 1}', "expected a list of objects"),
        ("lines.jsonl", "{bad\n[1]\n", "expected one a line"),
        ("what.xlsx", "x", "found a file of kind '.xlsx'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=expected):
        read_records(tmp_path / name)


def test_stores_and_scores_are_records_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column 'policy'.*columns.policy=group"):
        read_records("bundled:stack_cube_oracle")
    store = read_records({"oracle": "bundled:stack_cube_oracle"})
    recorded = bundled("stack_cube_oracle").episodes["success_at_end"].to_pylist()
    assert [r["success_at_end"] for r in store.rows] == recorded and len(store) == 40
    assert store.rows[0]["initial_condition_id"] == "StackCube-v1/seed=0" and store.rows[0]["initial_condition_hash"]
    by_group = read_records("bundled:stack_cube_oracle_tilt", columns={"policy": "group"})
    assert len(by_group.policies) > 1
    scores = [{"episode": "e0", "task": "t", "group": "g", "Q": 0.5, "success_at_end": None, "findings": ["x"]}]
    (tmp_path / "scores").mkdir()
    schema = pa.schema([("episode", pa.string()), ("task", pa.string()), ("group", pa.string()), ("Q", pa.float64()),
                        ("success_at_end", pa.bool_()), ("findings", pa.list_(pa.string()))])  # fmt: skip
    pq.write_table(pa.Table.from_pylist(scores, schema), tmp_path / "scores" / "scores.parquet")
    told = read_records({"p": tmp_path / "scores"})
    assert told.rows[0]["Q"] == 0.5 and any("success unknown in 1 of 1" in n for n in told.notes)
    with pytest.raises(InputError, match=r"no column 'kind'.*columns.policy"):
        read_records(tmp_path / "scores", columns={"policy": "kind"})


def test_published_counts_become_rows_that_give_the_counts_back() -> None:
    records = read_records("bundled:parcelstow")
    table = read_table(Path(records.places[0]))
    rows = [r for r in records.rows if r["task"] == "parcel" and r["speed"] == 2]
    expert, act = ([r for r in rows if r["policy"] == p] for p in ("expert", "ACT-A"))
    assert (len(expert), sum(r["success_at_end"] for r in expert)) == (100, 84)
    paired = pair_runs(expert, act)
    assert not paired.problem
    both = sum(expert[i]["success_at_end"] and act[j]["success_at_end"] for i, j in paired.pairs)
    a_only = sum(expert[i]["success_at_end"] and not act[j]["success_at_end"] for i, j in paired.pairs)
    assert (both, a_only, len(paired.pairs)) == (42, 42, 100)
    # two learners' pairing was never published, and is not made up
    other = [r for r in rows if r["policy"] == "ACT-B"]
    assert "give its pairs with expert only" in pair_runs(act, other).problem
    # every line with counts, none of those without
    told = sum(line["learner_n"] for line in table.rows if line["both"] is not None)
    made = [r for r in records.rows if r["policy"] != "expert" and r["initial_condition_id"] is not None]
    assert len(made) == told
    stages = {s: sum(bool(r[f"stage.{s}"]) for r in act) for s in ("lifted_clear", "reoriented", "inserted", "settled")}
    assert stages == {"lifted_clear": 100, "reoriented": 95, "inserted": 89, "settled": 88}
    assert sum(r["cause"] == "insertion_misalignment" for r in act) == 35


def test_counts_that_disagree_are_refused(tmp_path: Path) -> None:
    head = "task,learner,speed,both,expert_only,learner_only,neither\n"
    (tmp_path / "c.csv").write_text(head + "t,x,1,5,5,0,0\nt,y,1,5,4,1,0\n")
    with pytest.raises(InputError, match=r"line 3: expert has 9 of 10, expected 10 of 10"):
        read_records(tmp_path / "c.csv")
    (tmp_path / "c.csv").write_text(head + "t,x,1,5,-5,0,0\n")
    with pytest.raises(InputError, match="expert_only is -5, expected a count"):
        read_records(tmp_path / "c.csv")


def test_repeated_runs_are_said_and_counted_once() -> None:
    base = {"task": "t", "training_seed": 0, "initial_condition_id": None, "episode": None, "success_once": None}
    rows = [
        base | {"policy": "a", "speed": 1, "initial_condition_id": "0", "success_at_end": True},
        base | {"policy": "a", "speed": 1, "initial_condition_id": "0", "success_at_end": False},
        base | {"policy": "a", "speed": 2, "initial_condition_id": "0", "success_at_end": True},
        base | {"policy": "a", "speed": 1, "initial_condition_id": "0", "success_at_end": True, "training_seed": 1},
        base | {"policy": "a", "speed": 1, "success_at_end": True},
        base | {"policy": "a", "speed": 1, "success_at_end": True},
    ]
    kept, said = without_repeats(rows, range(6), ["speed"])
    assert kept == [0, 2, 3, 4, 5]  # without a start nothing says that a run is the same
    assert len(said) == 1 and "1 rows repeat a run" in said[0] and "1 of them with another outcome" in said[0]


@pytest.mark.parametrize("first", [{"excluded": "gripper jam"}, {"success_at_end": None}])
@pytest.mark.parametrize("late", [False, True])
def test_of_a_repeated_run_the_row_that_counts_is_kept(first: dict[str, Any], late: bool) -> None:
    """An execution that was broken off and run again counts with the outcome of its second run."""
    good = start(5, task="t", episode=None, success_once=None, success_at_end=True, excluded=None)
    rows = [good | {"success_at_end": False} | first, good, good | {"success_at_end": False}]
    rows = [rows[1], rows[0], rows[2]] if late else rows
    kept, said = without_repeats(rows, range(3), [])
    assert kept == [0 if late else 1]
    assert "2 rows repeat a run" in said[0] and "1 of them with another outcome" in said[0]
    broken = [rows[0 if not late else 1]] * 2
    assert without_repeats(broken, range(2), [])[0] == [0]  # none counts: one of them is still told as not counted
    once = [good | {"success_at_end": None, "success_once": True}, good]
    assert without_repeats(once, range(2), [])[0] == [0]
    assert without_repeats(once, range(2), [], success="success_at_end")[0] == [1]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_whether_a_run_is_excluded_may_be_said_in_a_word(tmp_path: Path, suffix: str) -> None:
    told = {"no": None, "N": None, "none": None, "False": None, "0": None, "": None, "yes": "excluded",
            "TRUE": "excluded", "1": "excluded", "dropped": "dropped"}  # fmt: skip
    rows = [{"policy": "a", "success": 1, "excluded": word} for word in told]
    assert [r["excluded"] for r in read_records(written(tmp_path / f"r{suffix}", rows)).rows] == list(told.values())
    assert [truth_of(v) for v in ("Yes", "n", 1, 0.0, True, 2, "maybe", None)] == [
        True, False, True, False, True, None, None, None
    ]  # fmt: skip


def test_names_are_text_and_the_same_from_every_format(tmp_path: Path) -> None:
    names = ("policy", "task", "episode", "initial_condition_id", "initial_condition_hash", "cause", "training_seed")
    cells = [("1.1", "7"), ("1.10", "007"), ("12345678901234567890", "0.1000000000000000055"), ("1e3", "0e12345")]
    rows = [dict.fromkeys(names, a) | {"initial_condition_hash": b} for a, b in cells]
    for suffix in (".csv", ".tsv", ".jsonl", ".json", ".parquet"):
        path = tmp_path / f"text{suffix}"
        if suffix == ".tsv":
            path.write_text(written(tmp_path / "text.csv", rows).read_text().replace(",", "\t"))
        else:
            written(path, rows)
        records = read_records(path)
        assert [{k: r[k] for k in names} for r in records.rows] == rows, suffix
    for suffix in (".csv", ".jsonl", ".parquet"):
        numbers = [{"group": 10000, "train_seed": 3.0, "start": 7, "success": True, "speed": 2}]
        columns = {"policy": "group", "initial_condition_id": "start"}
        (row,) = read_records(written(tmp_path / f"numbers{suffix}", numbers), columns=columns).rows
        assert (row["policy"], row["training_seed"], row["initial_condition_id"]) == ("10000", "3", "7")
        assert row["speed"] == 2 and not isinstance(row["speed"], str)
    mine = tmp_path / "mine.csv"
    mine.write_text("policy,start,success\na,1.1,1\na,1.10,0\n")
    records = read_records(mine, columns={"initial_condition_id": "start"})
    assert [r["initial_condition_id"] for r in records.rows] == ["1.1", "1.10"]
    assert [r["start"] for r in read_records(mine, names=["start"]).rows] == ["1.1", "1.10"]
    assert [r["start"] for r in read_records(mine).rows] == ["1.1", "1.10"]  # as a name would be


@pytest.mark.parametrize("found", ['"nan"', '"inf"', "Infinity"])
def test_a_speed_that_is_no_finite_number_is_unknown_and_told(tmp_path: Path, found: str) -> None:
    rows = [f'{{"policy": "a", "success": true, "speed": {s}}}' for s in (found, found, "2")]
    (tmp_path / "r.jsonl").write_text("\n".join(rows))
    records = read_records(tmp_path / "r.jsonl")
    assert [r["speed"] for r in records.rows] == [None, None, 2] and not records.refused
    assert sum("in 2 of 3 rows, expected a finite number; it is unknown there" in n for n in records.notes) == 1


def test_many_bad_rows_are_a_few_sentences_and_a_count(tmp_path: Path) -> None:
    lines = ["a,fast,1", "a,1,maybe", "a,1", "a,1,1"]
    (tmp_path / "r.csv").write_text("\n".join(["policy,speed,success", *lines * 50]))
    records = read_records(tmp_path / "r.csv")
    assert len(records) == 50 and len(records.refused) == 3 * (3 + 1)
    assert sum(r == f"{tmp_path}/r.csv: 47 more rows are left out for the same reason" for r in records.refused) == 3
    assert "or rename the column and name it with by=" in " ".join(records.refused)
    (tmp_path / "r.jsonl").write_text('{"policy": "a", "success": 1}\n' + "[]\n" * 9)
    assert len(read_table(tmp_path / "r.jsonl").refused) == 4


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_csv_may_have_another_delimiter(tmp_path: Path, delimiter: str) -> None:
    text = '\ufeffpolicy,"a,b",success\nx,"1,5",yes\n'
    (tmp_path / "r.csv").write_text(text.replace('"a,b"', '"a b"').replace('"1,5"', "2").replace(",", delimiter))
    (row,) = read_records(tmp_path / "r.csv").rows
    assert (row["policy"], row["a b"], row["success_at_end"]) == ("x", 2, True)
    (tmp_path / "c.csv").write_text(f'policy,"a{delimiter}b"\nx,1\n')
    assert read_table(tmp_path / "c.csv").columns == ("policy", f"a{delimiter}b")


@pytest.mark.parametrize("where", [5, None, [None], {"x": 5}, "", []])
def test_a_source_that_is_no_path_is_one_sentence(where: Any) -> None:
    with pytest.raises(InputError, match=r"records: .*expected"):
        read_records(where)


def test_counts_beside_which_a_column_is_lacking(tmp_path: Path) -> None:
    head = "task,learner,speed,both,expert_only,learner_only,neither,learner_n,expert_n\n"
    (tmp_path / "matched_outcomes.csv").write_text(head + "t,x,1,5,5,0,0,10,10\n")
    (tmp_path / "stage_counts.csv").write_text("policy,speed,episodes_n,success,lifted\nx,1,10,5,\nx,1,10,5,9\n")
    (tmp_path / "cause_counts.csv").write_text("policy,speed,cause,episodes_n\nx,1,success,5\nx,1,jam,5\n")
    rows = [r for r in read_records(tmp_path).rows if r["policy"] == "x"]
    assert sum(r["stage.lifted"] for r in rows) == 9 and sum(r["cause"] == "jam" for r in rows) == 5
    (tmp_path / "cause_counts.csv").write_text("policy,speed,episodes_n\nx,1,5\n")
    with pytest.raises(InputError, match="no column 'cause'"):
        read_records(tmp_path)


def start(k: int, *, policy: str = "a", **more: Any) -> dict[str, Any]:
    return {"policy": policy, "training_seed": None, "initial_condition_id": f"{k}"} | more


def test_pairs_join_on_starts_whatever_their_order() -> None:
    a = [start(k, initial_condition_hash=f"h{k}") for k in (3, 1, 2)]
    b = [start(k, policy="b", initial_condition_hash=f"h{k}") for k in (1, 2, 4, 3)]
    paired = pair_runs(a, b)
    assert {(a[i]["initial_condition_id"], b[j]["initial_condition_id"]) for i, j in paired.pairs} == {
        ("1", "1"), ("2", "2"), ("3", "3")
    }  # fmt: skip
    assert paired.note == "1 of b's starts were not run by the other"
    bare = pair_runs(a, [start(k, policy="b") for k in (1, 2, 3)])
    assert len(bare.pairs) == 3 and "3 of 3 pairs rest on initial_condition_id alone" in bare.note


def test_every_training_seed_pairs_with_the_one_run_of_its_start() -> None:
    a = [start(k) for k in range(3)]
    b = [start(k, policy="b", training_seed=s) for s in (0, 1) for k in range(3)]
    assert len(pair_runs(a, b).pairs) == 6
    both = pair_runs([r | {"training_seed": s} for s in (0, 1) for r in a], b)
    assert len(both.pairs) == 6 and "training seeds are paired by their number" in both.note
    apart = pair_runs([r | {"training_seed": s} for s in (7, 8) for r in a], b)
    assert not apart.pairs and "none in common" in apart.problem


def test_tables_print_what_they_hold() -> None:
    rows = [{"name": "a_b & 5%", "k": 3, "rate": 0.123456789, "on": True, "none": None},
            {"name": "<~>", "k": 12, "rate": -2e-5, "on": False, "none": None}]  # fmt: skip
    assert csv_text(rows).splitlines()[1] == "a_b & 5%,3,0.123456789,true,"
    latex = latex_text(rows, [Column("name"), Column("k", "k/n"), Column("rate", digits=2)], caption="50 % of_it")
    assert r"a\_b \& 5\% & 3 & 0.12 \\" in latex and r"\textless{}\textasciitilde{}\textgreater{} & 12 & 0.00" in latex
    assert r"\begin{tabular}{lrr}" in latex and r"\caption{50 \% of\_it}" in latex
    lines = plain_text(rows).splitlines()
    assert lines[0].split() == ["name", "k", "rate", "on", "none"] and lines[2].endswith("–") and "-2.0e-05" in lines[2]
