"""`sleepconv brain` replaces and removes only what it has made."""

import json

import numpy as np
import pytest

from sleepconv.cli import main


@pytest.fixture
def score(runs, recordings, capsys):
    """Score the run on one recording and give the exit code and what was said."""
    for name in ("it", "labels"):
        (recordings / f"{name}.npz").unlink()

    def command(out) -> tuple[int, str]:
        options = ["--data", str(recordings), "--out", str(out), "--layers", "pool"]
        return main(["brain", "score", str(runs), *options]), capsys.readouterr().err

    return command


def test_a_folder_of_activations_of_the_user_stays(score, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "activations" / "mine.npy"
    mine.parent.mkdir()
    np.save(mine, np.arange(3))
    assert score(".") == (0, "")
    assert mine.is_file()
    assert not list(tmp_path.glob("activations-*"))


@pytest.mark.parametrize("name", ["table.md", "layers.png", "layers.svg"])
def test_a_file_of_the_user_in_the_place_of_a_table_is_refused_before_scoring(score, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("my own")
    code, said = score(out)
    assert code == 1
    assert f"{out / name} exists and was not written by `sleepconv brain`" in said
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [(name, "my own")]


def test_a_file_that_is_no_record_is_refused_before_scoring(score, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "package.json").write_text("{}")
    code, said = score(out)
    assert code == 1
    assert "package.json is not a record of `sleepconv brain score`; move it away or choose another folder" in said
    assert [path.name for path in out.iterdir()] == ["package.json"]


def test_a_file_as_out_is_refused(score, tmp_path):
    (tmp_path / "out").write_text("")
    assert score(tmp_path / "out") == (
        1,
        f"sleepconv: {tmp_path / 'out'} is a file; name a folder, or a path below one\n",
    )


def test_its_own_tables_are_replaced_and_records_say_what_they_were_made_with(score, recordings, tmp_path, capsys):
    assert score(tmp_path / "out") == (0, "")
    record = json.loads((tmp_path / "out" / "small-scale-1-seed-0.json").read_text())
    assert list(record["data"]) == ["toy-v4"]
    table = ["brain", "table", str(tmp_path / "out"), "--out", str(tmp_path / "again")]
    assert [main(table), main(table)] == [0, 0]
    assert score(tmp_path / "out") == (0, "")
    (tmp_path / "again" / "table.md").write_text("my own")
    assert main(table) == 1
    assert "table.md exists and was not written by" in capsys.readouterr().err


def test_two_recordings_of_one_name_are_refused(score, recordings, tmp_path):
    (recordings / "copy.npz").write_bytes((recordings / "v4.npz").read_bytes())
    code, said = score(tmp_path / "out")
    assert code == 1
    assert "two datasets are called 'toy-v4'" in said
