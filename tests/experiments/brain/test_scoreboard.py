import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sleepconv.experiments.brain import scoreboard as table
from sleepconv.experiments.brain.scoreboard import read_all_scores, write_scores
from sleepconv.experiments.results.sheets import Sheet


def entry(region: str, score: float | None, **more) -> dict:
    layers = {"first": {"r": 0.2}, "second": {"r": 0.3}}
    numbers = {"score": score, "score_error": 0.01, "r": 0.3, "r_error": 0.02, "ceiling": 0.9, "ridge": {"r": 0.25}}
    facts = {"dataset": f"toy-{region}", "region": region, "method": "pls", "layer": "second", "layers": layers}
    return numbers | facts | {"neurons": 9, "neurons_left_out": 1} | more


def record(row: str, kind: str = "trained", name: str | None = None, **scores: float | None) -> dict:
    entries = [entry(region, score) for region, score in scores.items()]
    return {"name": name or f"{row}-{kind}", "row": row, "kind": kind, "scores": entries}


RECORDS = [
    record("ws(1)", V1=0.5, V4=0.3, IT=0.2),
    record("conv", V1=0.4, V4=0.4, IT=0.2, name="conv-seed-0"),
    record("conv", V1=0.6, V4=0.4, IT=0.2, name="conv-seed-1"),
    record("LC", "untrained", V1=0.9, V4=0.1, IT=0.1),
    record("pixels", "pixels", V1=0.1, V4=None, IT=0.1),
]


def rows_of(sheet: Sheet) -> dict[str, Sequence[str]]:
    return {row[0]: row[1:] for row in sheet.rows}


def test_rows_stand_in_the_papers_order_and_baselines_below():
    rows = list(rows_of(table.main_sheet(RECORDS)))
    assert rows == ["conv", "ws(1)", "LC, untrained", "pixels", "ceiling"]


def test_a_cell_has_the_mean_over_seeds_its_deviation_and_the_papers_number():
    rows = rows_of(table.main_sheet(RECORDS))
    assert rows["conv"][2] == "**.400 ± .010** (.459)"
    assert rows["conv"][0] == "**.500 ± .010** (.493)"
    assert rows["ws(1)"][2] == ".300 ± .010 (.468)"


def test_other_recipes_and_scales_are_rows_of_their_own():
    short, long = (record("conv", V1=v, name=f"c-scale-{s}-seed-0") for s, v in [(0.1, 0.2), (1, 0.4)])
    rows = rows_of(table.main_sheet([short, long]))
    assert rows["conv, c-scale-0.1"][0] == ".200 ± .010 (.493)"
    assert rows["conv, c-scale-1"][0] == "**.400 ± .010** (.493)"


def test_networks_that_the_paper_does_not_have_stand_without_its_numbers():
    others = ["ws(10), slow momentum", "LC, 4 reps", "conv, feedback alignment", "ViT, shared"]
    rows = rows_of(table.main_sheet([record("ws(10)", V1=0.4), *(record(row, V1=0.3) for row in others)]))
    assert rows["ws(10)"][0] == "**.400 ± .010** (.508)"
    assert all(rows[row][:2] == [".300 ± .010", "–"] for row in others)


@pytest.mark.parametrize("folder", ["brain", "brain-miniature", "brain-patches", "brain-relu"])
def test_every_row_has_a_line_of_its_own(folder):
    records = read_all_scores([Path(__file__).parents[3] / "results" / folder])
    rows = {(record["row"], record["kind"]) for record in records if record["kind"] != "pixels"}
    assert len({table._style(*row) for row in rows}) == len(rows)


def test_baselines_are_never_bold():
    assert rows_of(table.main_sheet(RECORDS))["LC, untrained"][0] == ".900 ± .010"


def test_what_has_no_data_shows_as_a_dash_and_lacks_a_mean():
    rows = rows_of(table.main_sheet(RECORDS))
    assert rows["conv"][1] == "– (.313)"
    assert rows["pixels"][2] == "–"
    assert rows["pixels"][5] == "–"
    assert rows["conv"][5].startswith("**.367 ± ")


def test_every_dataset_is_in_the_details_with_plain_r():
    assert "| ws(1) | toy-V1 | V1 | second | .300 ± .020 | .500 ± .010 | .900 | .250 | 9 | 1 |" in table.rendered(
        RECORDS, "markdown"
    )


def test_the_paper_says_lc_fits_v1_best():
    assert max(table.PAPER, key=lambda row: table.PAPER[row]["V1"]) == "LC"
    assert max(table.PAPER, key=lambda row: table.PAPER[row]["mean"]) == "ws(1)"


def test_records_read_back_as_written_and_make_the_same_table(tmp_path):
    for item in RECORDS:
        write_scores(tmp_path, item)
    assert table.main_sheet(read_all_scores([tmp_path])) == table.main_sheet(RECORDS)


def test_a_file_that_is_no_record_is_named(tmp_path, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    (tmp_path / "other.json").write_text(json.dumps({"scores": 3}))
    with pytest.raises(ValueError, match="other.json is not a record"):
        read_all_scores([tmp_path])
    with pytest.raises(FileNotFoundError, match="no record in"):
        read_all_scores([empty])


def test_the_figure_has_a_panel_per_dataset_and_the_same_bytes_each_time(tmp_path):
    first = [path.read_bytes() for path in table.draw(RECORDS, tmp_path / "layers")]
    assert first == [path.read_bytes() for path in table.draw(RECORDS, tmp_path / "layers")]
    text = (tmp_path / "layers.svg").read_text()
    assert all(f"toy-{region}" in text for region in ("V1", "V4", "IT"))


def test_the_table_that_is_checked_in_is_that_of_its_records():
    folder = Path(__file__).parents[3] / "results" / "brain"
    if not folder.is_dir():
        pytest.skip("no network has been scored yet")
    assert (folder / "table.md").read_text() == table.rendered(read_all_scores([folder]), "markdown") + "\n"


def test_tables_are_made_without_pytorch():
    code = "import sys, sleepconv.experiments.brain.scoreboard; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
