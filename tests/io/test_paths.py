"""A path is what it leads to: files under several names count once, and it is said; a folder inside itself ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxeval.cli import main
from jaxeval.io import open_source, write_store
from jaxeval.io.errors import InputError
from jaxeval.io.files import children, once
from jaxeval.io.records import read_records
from jaxeval.run.agree import agree
from jaxeval.run.convert import convert
from jaxeval.run.score import score
from tests.executions import small_episode

ROWS = "policy,episode,initial_condition_id,success\n" + "".join(
    f"{policy},{policy}{k},s{k},{str(won).lower()}\n" for k in range(4) for policy, won in (("x", True), ("y", k > 1))
)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder of one store, a link to it that sorts before it, and a link to the folder itself."""
    write_store(tmp_path / "runs" / "r1", [small_episode(), small_episode()], task="push")
    (tmp_path / "runs" / "latest").symlink_to("r1")
    (tmp_path / "runs" / "self").symlink_to(".")
    return tmp_path / "runs"


def test_a_store_and_a_link_to_it_are_one(runs: Path) -> None:
    for named in (runs, [runs, runs / "r1"], [runs / "latest", runs / "r1"], str(runs / "*")):
        source = open_source(named)  # type: ignore[arg-type]
        assert [p.path.name for p in source.parts] == ["r1"] and source.n_episodes == 2, named
        assert any("counts once" in note for note in source.notes), named
    assert open_source(runs / "latest").n_episodes == 2 and not open_source(runs / "latest").notes
    notes = score(None, open_source(runs), metrics=["smoothness"]).notes
    assert any("latest" in note and "counts once" in note for note in notes)


def test_records_count_once_for_a_policy(tmp_path: Path) -> None:
    a = tmp_path / "a.csv"
    a.write_text(ROWS)
    (tmp_path / "latest.csv").symlink_to(a)
    plain = read_records(a)
    for where in ([a, a], [tmp_path / "latest.csv", a], tmp_path, str(tmp_path / "*.csv")):
        records = read_records(where)  # type: ignore[arg-type]
        assert records.rows == plain.rows and "counts once" in " ".join(records.notes), where
    both = read_records({"one": a, "other": a})  # the same file under two policies is what was asked for
    assert len(both.rows) == 2 * len(plain.rows)


def test_scores_count_once(tmp_path: Path) -> None:
    a = tmp_path / "a.csv"
    a.write_text("episode,Q,success_at_end\n" + "".join(f"e{k},0.{k},{k > 4}\n" for k in range(1, 9)))
    (tmp_path / "b.csv").symlink_to(a)
    made = agree([a, tmp_path / "b.csv", a])
    assert [r.n for r in made.rows if r.quantity == "AUROC"] == [8]
    assert sum("counts once" in note for note in made.notes) == 2


def test_the_real_name_stays_and_every_other_is_named(tmp_path: Path) -> None:
    (tmp_path / "r").touch()
    (tmp_path / "a").symlink_to("r")
    kept, said = once([tmp_path / "a", tmp_path / "r", tmp_path / "r"], lambda p: p)
    assert kept == [tmp_path / "r"]
    assert said == [
        f"{tmp_path / 'a'} is {tmp_path / 'r'}, a second time; it counts once",
        f"{tmp_path / 'r'} is named twice; it counts once",
    ]


def test_a_folder_that_cannot_be_listed_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\); expected one that you may list"):
        children(tmp_path)


def test_a_data_set_of_lerobot_is_overwritten_where_convert_wrote_it(runs: Path, tmp_path: Path) -> None:
    source, out = open_source(runs / "r1"), tmp_path / "lerobot"
    convert(source, out, to="lerobot")
    with pytest.raises(InputError, match="give overwrite=true"):
        convert(source, out, to="lerobot")
    assert convert(source, out, to="lerobot", overwrite=True).episodes_n == 2
    assert open_source(out).n_episodes == 2
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(InputError, match="not written by convert"):
        convert(source, other, to="lerobot", overwrite=True)
    assert (other / "thesis.tex").is_file()


def test_the_command_line_says_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(runs)]) == 0
    said = capsys.readouterr()
    assert "counts once" in said.err and said.out.count("format  ") == 1
