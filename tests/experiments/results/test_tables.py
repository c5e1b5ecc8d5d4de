import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sleepconv.cli import main
from sleepconv.experiments.paper import SEARCHES, TABLES, recipe
from sleepconv.experiments.results.searches import Search, Trial
from sleepconv.experiments.results.tables import blocks, rendered


@pytest.fixture
def runs(tmp_path):
    return [tmp_path / "results", tmp_path / "runs"]


def rows_of(block):
    return {row["row"]: row for row in block.rows}


def test_ours_stands_beside_the_papers_with_mean_difference_and_max_minus_min(record, runs):
    for seed, (plain, sleepy) in enumerate([(80.0, 78.0), (82.0, 79.0)]):
        record("cifar10_convolutional", top1=plain, seed=seed, scale=0.1)
        record("cifar10_sleep_every_1", top1=sleepy, seed=seed, scale=0.1)
    (block,), left_out = blocks(1, runs, dataset="cifar10")
    row = rows_of(block)["LC - ws(1)"]
    assert not left_out
    assert block.scale == 0.1
    assert (row["top1"], row["top1_difference"], row["top1_spread"], row["seeds"]) == (78.5, -2.5, 1.0, [0, 1])
    assert (row["top1_paper"], row["top1_difference_paper"], row["top1_spread_paper"]) == (87.4, -0.8, 0.5)
    line = next(line for line in rendered([block], "text").splitlines() if "ws(1)" in line)
    assert line.split()[3:] == ["2", "78.5", "87.4", "−2.5", "−0.8", "1.0", "0.5"]


def test_what_is_missing_is_a_dash_and_never_zero(record, runs):
    record("cifar10_local", top1=70.0)
    (block,), _ = blocks(1, runs, dataset="cifar10")
    lines = rendered([block], "text").splitlines()
    shown = [" ".join(line.split()) for line in lines]
    assert "LC 1 70.0 80.9 – −7.4 – 0.8" in shown
    assert "conv – – 88.3 – – – 0.7" in shown


def test_scales_are_never_mixed(record, runs):
    record("cifar10_local", top1=50.0, scale=0.01)
    record("cifar10_local", top1=70.0, scale=0.1)
    found, _ = blocks(1, runs, dataset="cifar10")
    assert [(block.scale, rows_of(block)["LC"]["top1"]) for block in found] == [(0.01, 50.0), (0.1, 70.0)]
    (only,), _ = blocks(1, runs, dataset="cifar10", scale=0.1)
    assert rows_of(only)["LC"]["top1"] == 70.0
    assert "scale 0.1" in rendered([only], "text")


def test_records_that_are_not_the_row_are_left_out_and_named(record, runs):
    record("cifar10_local", top1=1.0, learning_rate=0.5)
    record("cifar10_local", top1=2.0, tuning=True, seed=1)
    (record("cifar10_local", top1=3.0, seed=2) / "summary.json").unlink()
    (record("cifar10_local", top1=4.0, seed=3) / "recipe.json").write_text("{")
    (record("cifar10_local", top1=5.0, seed=4) / "metrics.jsonl").write_text("{\n")
    record("cifar10_local", top1=60.0, seed=5, precision="float32", snr_every=7)
    (block,), left_out = blocks(1, runs, dataset="cifar10")
    assert rows_of(block)["LC"]["seeds"] == [5]
    assert len(left_out) == 5
    assert "learning_rate=0.5, not 0.001" in left_out[0]
    assert "tuning=True, not False" in left_out[1]
    assert "not finished" in left_out[2]
    assert "not a recipe of this version" in left_out[3]
    assert "metrics.jsonl is damaged" in left_out[4]


def test_a_seed_that_is_there_twice_counts_once(record, runs):
    record("cifar10_local", top1=60.0, runs="results")
    record("cifar10_local", top1=61.0, runs="runs")
    (block,), left_out = blocks(1, runs, dataset="cifar10")
    assert rows_of(block)["LC"]["top1"] == 60.0
    assert "has the same recipe, scale and seed" in left_out[0]
    (block,), left_out = blocks(1, [runs[0], runs[0]], dataset="cifar10")
    assert rows_of(block)["LC"]["seeds"] == [0]
    assert not left_out


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("form", ["text", "markdown", "latex", "csv"])
def test_every_table_is_there_in_every_format_without_any_record(table, form):
    found, _ = blocks(table, [])
    text = rendered(found, form)
    assert all(block.scale is None for block in found)
    labels = [row["row"] for block in found for row in block.rows]
    assert len(labels) >= 3
    assert all(label in text.replace("--", "–") for label in labels)


def test_rows_without_records_can_be_left_out(record, runs):
    record("cifar10_local", top1=40.0)
    (block,), _ = blocks(1, runs, dataset="cifar10", trained=True)
    assert [row["row"] for row in block.rows] == ["LC"]
    (block,), _ = blocks(1, runs, trained=True)  # other datasets have no records
    assert block.dataset == "cifar10"
    assert rendered(blocks(1, [], trained=True)[0], "csv") == ""


def test_top_5_where_the_paper_has_it(record, runs):
    record("cifar100_local", top1=40.0, top5=70.0)
    (small,), _ = blocks(1, runs, dataset="cifar10")
    (large,), _ = blocks(8, runs, dataset="cifar100")
    assert "top-5" not in rendered([small], "text")
    assert "top-5 max − min" in rendered([large], "text")


def test_formats_parse(record, runs):
    record("imagenet_first_convolutional_sleep_every_1", top1=60.0, top5=80.0)
    found, _ = blocks(13, runs)
    lines = list(csv.DictReader(io.StringIO(rendered(found, "csv"))))
    assert len(lines) == 9
    ours = next(line for line in lines if line["recipe"] == "imagenet_first_convolutional_sleep_every_1")
    assert (ours["top1"], ours["top1_paper"], ours["seeds"], ours["scale"]) == ("60.0", "63.6", "0", "1.0")
    assert lines[0]["top1"] == ""
    markdown = rendered(found, "markdown").splitlines()
    assert len({line.count("|") for line in markdown if line.startswith("|")}) == 1
    latex = rendered(found, "latex")
    assert latex.count(r"\begin{") == latex.count(r"\end{") == 2
    assert "–" not in latex.replace("--", "")


def test_hyperparameters_that_a_search_chose_stand_beside_the_papers(record, runs, tmp_path, capsys):
    for number, run in enumerate(SEARCHES["tiny_imagenet_local_grid"]()):
        record("", top1=30.0 + number, run=run.changed(scale=0.5))
    command = ["sweep", "tiny_imagenet_local_grid", "--scale", "0.5", "--runs", str(tmp_path / "runs")]
    assert main(command) == 0
    assert "best of tiny_imagenet_local_grid at scale 0.5: learning rate 0.0005, weight decay 0.0001" in (
        capsys.readouterr().out
    )
    (block,), _ = blocks(11, runs, dataset="tiny-imagenet")
    row = rows_of(block)["LC"]
    assert (row["learning_rate"], row["weight_decay"], row["top1"]) == (5e-4, 1e-4, 33.0)
    assert (row["learning_rate_paper"], row["weight_decay_paper"]) == (5e-4, 1e-4)
    assert (block.scale, rows_of(block)["conv"]["learning_rate"]) == (0.5, None)


def test_a_damaged_run_is_named_once_and_shown_as_a_dash(record, tmp_path, capsys):
    record("cifar10_local", top1=70.0)
    for seed, name in enumerate(["summary.json", "recipe.json"]):
        (record("cifar10_convolutional", top1=80.0, seed=seed) / name).write_bytes(b"{\xff")
    assert main(["table", "1", "--runs", str(tmp_path / "runs"), "--json"]) == 0
    said = capsys.readouterr()
    first, second, *_ = json.loads(said.out)[0]["rows"]
    assert (first["top1"], second["top1"]) == (None, 70.0)
    assert len(said.err.splitlines()) == said.err.count(" left out: ") == 2


def test_a_damaged_record_of_a_search_is_named_once_and_the_others_are_shown(tmp_path, capsys):
    Search("cifar10_local_grid", 1.0, [Trial(1e-3, 1e-4, 80.9, [0])]).write(tmp_path)
    damaged = Search("cifar10_convolutional_grid", 1.0, [Trial(1e-3, 1e-4, 80.9, [0])]).write(tmp_path)
    damaged.write_text(damaged.read_text().replace("80.9", '"8"'))
    assert main(["table", "11", "--runs", str(tmp_path), "--json"]) == 0
    said = capsys.readouterr()
    first, second, *_ = json.loads(said.out)[0]["rows"]
    assert (first["top1"], second["top1"]) == (None, 80.9)
    assert said.err.splitlines() == [line for line in said.err.splitlines() if f"{damaged} left out: " in line]
    assert said.err.count("\n") == 1


def test_the_command_writes_files_and_says_what_it_left_out(record, tmp_path, capsys):
    record("cifar10_local", top1=1.0, batch_size=64)
    where = ["--runs", str(tmp_path / "runs"), "--dataset", "cifar10"]
    assert main(["table", "1", *where, "--format", "markdown", "--out", str(tmp_path / "t.md")]) == 0
    assert (tmp_path / "t.md").read_text().startswith("**Table 1, cifar10, padding 4")
    assert "batch_size=64, not 512" in capsys.readouterr().err
    assert main(["table", "1", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["rows"][0]["top1_paper"] == 88.3


@pytest.mark.parametrize("arguments", [["3"], ["1", "--dataset", "imagenet"]])
def test_a_wrong_table_is_one_line_without_a_traceback(arguments, capsys):
    assert main(["table", *arguments]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_hyperparameters_of_the_recipes_are_those_shown_as_the_papers():
    for block in blocks(12, [])[0]:
        for row in block.rows:
            assert recipe(row["recipe"]).learning_rate == row["learning_rate_paper"]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_no_record_can_have_is_refused(scale, runs):
    with pytest.raises(ValueError, match="`scale` must be finite and above 0"):
        blocks(1, runs, scale=scale)


def test_a_table_needs_no_pytorch():
    code = (
        "import sys; from sleepconv.cli import main\n"
        "assert main(['table', '1', '--dataset', 'cifar10', '--runs', 'results']) == 0\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'torch'])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert "Table 1, cifar10" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_rules_without_weight_transport_stand_below_backpropagation_by_connectivity(record, runs):
    record("miniature_local", top1=60.0, scale=0.1)
    record("miniature_kolen_pollack_local", top1=58.0, scale=0.1)
    record("miniature_kolen_pollack_local", top1=59.0, scale=0.1, seed=1)
    (block,), left_out = blocks("wake", runs)
    assert not left_out
    rows = rows_of(block)
    assert (rows["backprop"]["LC"], rows["Kolen–Pollack"]["LC"], rows["Kolen–Pollack"]["conv"]) == (60.0, 58.5, None)
    assert rows["Kolen–Pollack"]["seeds"] == [0, 1]
    lines = [" ".join(line.split()) for line in rendered([block], "text").splitlines()]
    assert "Kolen–Pollack 2 – 58.5 – –" in lines


def test_published_errors_stand_as_accuracies_beside_ours(record, runs):
    record("bartunov_feedback_alignment_local", top1=50.0)
    (block,), _ = blocks("wake-bartunov", runs)
    row = rows_of(block)["feedback alignment"]
    assert (row["LC"], round(row["LC published"], 2), row["conv published"]) == (50.0, 62.56, None)
    assert "published" in rendered([block], "markdown")
