import json
from pathlib import Path

import pytest

from sleepconv.cli import main
from sleepconv.experiments.results.overview import as_sheet, run_rows
from sleepconv.experiments.runs import RunFolder, find_runs

REPORTS = [
    {"kind": "snr", "step": 2, "when": "awake", "layers": {"a": 1.0, "b": 1.0}},
    {"kind": "snr", "step": 4, "when": "awake", "layers": {"a": 1.0, "b": "inf", "c": 2.718281828}},
    {"kind": "snr", "step": 4, "when": "asleep", "layers": {"a": "inf", "b": "inf", "c": 3.0}},
    {"kind": "epoch", "epoch": 1, "step": 4, "top1": 60.0, "loss": 1.0, "seconds": 9.0, "sleep_seconds": 1.0},
    {"kind": "evaluation", "epoch": 1, "step": 4, "top1": 40.0, "seconds": 2.0},
    {"kind": "epoch", "epoch": 2, "step": 8, "top1": 70.0, "loss": 1.0, "seconds": 11.0, "cpu_seconds": 21.0}
    | {"sleep_seconds": 4.0},
    {"kind": "evaluation", "epoch": 2, "step": 8, "top1": 50.0, "seconds": 2.0},
]


def with_reports(path: Path) -> Path:
    for report in REPORTS:
        RunFolder(path).append(report)
    return path


def test_says_what_a_run_reached_and_what_it_took(record, tmp_path):
    with_reports(record("cifar10_sleep_every_10", top1=50.0, scale=0.01))
    (entry,) = run_rows(find_runs(tmp_path))
    assert (entry["top1"], entry["train_top1"]) == (50.0, 70.0)
    assert (entry["seconds_per_epoch"], entry["cpu_seconds_per_epoch"], entry["seconds"]) == (12.0, 21.0, 24.0)
    assert entry["asleep"] == 0.25
    assert entry["negative_log_snr_awake"] == pytest.approx(-1.0)
    assert entry["negative_log_snr_asleep"] == "-inf"


def test_a_run_that_is_under_way_says_how_far_it_is(record, tmp_path):
    path = with_reports(record("cifar10_local", top1=50.0, scale=0.1))
    (path / "summary.json").unlink()
    assert "2 of 20" in as_sheet(run_rows(find_runs(tmp_path))).text()


def test_a_run_without_reports_shows_dashes(record, tmp_path):
    (record("cifar10_local", top1=50.0, scale=0.1) / "summary.json").unlink()
    (cells,) = as_sheet(run_rows(find_runs(tmp_path))).rows
    assert cells == ["cifar10_local", "0.1", "0", "0 of 20", *"–––––", "0 s", "–", "–"]


def test_rates_that_are_not_the_recipes_are_named(record, tmp_path):
    record("cifar10_local", top1=50.0, learning_rate=0.5, tuning=True)
    (cells,) = as_sheet(run_rows(find_runs(tmp_path))).rows
    assert cells[0] == "cifar10_local (learning rate 0.5)"


def test_runs_stand_in_the_order_of_the_recipes_and_seeds(record, tmp_path):
    for name, seed in [("cifar10_local", 1), ("cifar10_convolutional", 0), ("cifar10_local", 0)]:
        record(name, top1=50.0, seed=seed)
    entries = run_rows(find_runs(tmp_path))
    assert [(entry["name"], entry["seed"]) for entry in entries] == [
        ("cifar10_convolutional", 0),
        ("cifar10_local", 0),
        ("cifar10_local", 1),
    ]


def test_the_verb_prints_for_people_and_for_scripts(record, tmp_path, capsys):
    with_reports(record("cifar10_local", top1=50.0))
    assert main(["runs", str(tmp_path), "--format", "markdown"]) == 0
    assert "| cifar10_local | 1 | 0 | 200 | 50.0 | 70.0 |" in capsys.readouterr().out
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "cifar10_local"


def test_a_brief_overview_has_what_was_reached_and_how_it_was_evaluated(record, tmp_path, capsys):
    path = with_reports(record("cifar10_local", top1=50.0, tuning=True))
    last = {"kind": "evaluation", "epoch": 3, "step": 12, "top1": 55.0, "seconds": 2.0, "running": {"top1": 51.0}}
    RunFolder(path).append(last)
    assert main(["runs", str(tmp_path), "--brief", "--format", "markdown"]) == 0
    said = capsys.readouterr().out
    assert "| run | scale | seed | epochs | top-1 | in training |\n" in said
    assert "| 55.0 (validation, running: 51.0) | 70.0 |\n" in said


def test_keep_copies_records_without_weights_and_leaves_unfinished_runs(record, tmp_path, capsys):
    finished = with_reports(record("cifar10_local", top1=50.0))
    (finished / "model.safetensors").write_bytes(b"weights")
    (with_reports(record("cifar10_local", top1=50.0, seed=1)) / "summary.json").unlink()
    command = ["keep", str(tmp_path / "runs"), "--into", str(tmp_path / "kept")]
    assert main(command) == 0
    assert "seed-1 left out: it is not finished" in capsys.readouterr().err
    (copy,) = find_runs(tmp_path / "kept")
    assert sorted(file.name for file in copy.path.iterdir()) == [
        "environment.json",
        "metrics.jsonl",
        "recipe.json",
        "summary.json",
    ]
    assert copy.metrics() == RunFolder(finished).metrics()
    assert main(command) == 0


def test_keep_of_nothing_is_an_error(tmp_path, capsys):
    assert main(["keep", str(tmp_path), "--into", str(tmp_path / "kept")]) == 1
    assert "no run in" in capsys.readouterr().err


def test_neurons_whose_mean_is_zero_are_infinitely_far_apart_in_valid_json(record, tmp_path, capsys):
    RunFolder(record("cifar10_local", top1=50.0)).append(
        {"kind": "snr", "step": 2, "when": "awake", "layers": {"a": 0.0}}
    )
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["negative_log_snr_awake"] == "inf"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("summary.json", (b'"set"', b'"sez"')),
        ("environment.json", (b"{", b"\xff")),
        ("recipe.json", (b"{", b"")),
        ("metrics.jsonl", (b'"seconds": 9.0', b'"seconfs": 9.0')),
        ("metrics.jsonl", (b'"loss": 1.0', b'"loss": "x"')),
        ("metrics.jsonl", (b'"layers"', b'"layerz"')),
        ("metrics.jsonl", (b'"b": 1.0', b'"b": null')),
        ("metrics.jsonl", (b'"when": "awake"', b'"when": "aware"')),
    ],
)
def test_a_damaged_run_is_named_once_and_the_others_are_shown(record, tmp_path, capsys, name, damage):
    with_reports(record("cifar10_local", top1=50.0))
    file = with_reports(record("cifar10_convolutional", top1=50.0)) / name
    file.write_bytes(file.read_bytes().replace(*damage, 1))
    assert main(["runs", str(tmp_path / "runs"), "--json"]) == 0
    said = capsys.readouterr()
    assert [entry["name"] for entry in json.loads(said.out)] == ["cifar10_local"]
    (line,) = said.err.splitlines()
    assert f"{file.parent} left out: " in line
    assert name in line


def test_a_folder_in_place_of_a_recipe_is_named_too(record, tmp_path, capsys):
    record("cifar10_local", top1=50.0)
    (tmp_path / "runs" / "odd" / "recipe.json").mkdir(parents=True)
    assert main(["runs", str(tmp_path / "runs"), "--json"]) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)) == 1
    assert "odd left out: " in said.err


def test_a_run_that_cannot_be_kept_does_not_keep_the_others_back(record, tmp_path, capsys):
    record("cifar10_convolutional", top1=50.0)  # without metrics
    with_reports(record("cifar10_local", top1=50.0))
    assert main(["keep", str(tmp_path / "runs"), "--into", str(tmp_path / "kept")]) == 1
    assert "seed-0 was not kept: " in capsys.readouterr().err
    (copy,) = find_runs(tmp_path / "kept")
    assert copy.recipe().name == "cifar10_local"


def test_keep_does_not_overwrite_another_run(record, tmp_path, capsys):
    with_reports(record("cifar10_local", top1=50.0))
    with_reports(record("cifar10_local", top1=60.0, runs="others"))
    assert main(["keep", str(tmp_path / "runs"), "--into", str(tmp_path / "kept")]) == 0
    assert main(["keep", str(tmp_path / "others"), "--into", str(tmp_path / "kept")]) == 1
    assert "contains another run" in capsys.readouterr().err
    (copy,) = find_runs(tmp_path / "kept")
    assert copy.summary()["top1"] == 50.0
