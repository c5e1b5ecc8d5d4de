"""The tables' runs, epoch by epoch."""

import json
import re

import pytest

from sleepconv.cli import main
from sleepconv.experiments.figures import learning_figure
from sleepconv.experiments.runs.folder import METRICS, RunFolder
from sleepconv.experiments.runs.reports import NUMBERS


def line(kind, epoch, top1):
    return {"kind": kind, "epoch": epoch, "step": epoch, "top1": top1} | dict.fromkeys(NUMBERS["epoch"][3:], 1.0)


@pytest.fixture
def learned(record):
    def write(name, **changes):
        folder = RunFolder(record(name, top1=60.0, **changes))
        for epoch in (1, 2):
            folder.append(line("epoch", epoch, 30.0 * epoch))
            folder.append(line("evaluation", epoch, 25.0 * epoch))
        return folder

    return write


def test_each_table_with_records_has_a_panel_and_each_of_its_rows_a_name(learned, tmp_path, capsys):
    learned("cifar10_convolutional", scale=0.1)
    learned("cifar10_padding0_local", scale=0.1)
    learned("cifar10_padding0_sleep_every_1", scale=0.1)
    learned("cifar10_sleep_every_10", scale=0.01)
    learned("cifar100_local", scale=1.0)
    assert main(["figure", "learning", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "learning-cifar10-scale-0.1.png").stat().st_size > 10_000
    said = set(re.findall(r">([^<>]*)</text>", (tmp_path / "learning-cifar10-scale-0.1.svg").read_text()))
    panels = {"epochs (scale 0.1)", "cifar10, padding 0", "cifar10, padding 4"}
    assert panels | {"conv", "LC", "LC - ws(1)", "top-1, in training, %"} <= said
    assert "LC - ws(10)" not in said
    assert capsys.readouterr().err == "sleepconv: runs at scale 0.01 left out: --scale 0.01 shows them\n"


def test_our_own_rows_have_a_column_beside_the_paper_s(learned, tmp_path):
    for row in ("convolutional", "sleep_every_1", "two_periods_sleep_every_1"):
        learned(f"miniature_{row}", scale=1.0)
    columns = learning_figure.read_learning([tmp_path / "runs"], dataset="cifar10-16x16").columns
    paper, ours = (["convolutional", row] for row in ("sleep_every_1", "two_periods_sleep_every_1"))
    assert {title: list(rows) for title, rows in columns.items()} == {
        "ResNet8 on 16×16 images, padding 2": paper,
        "ResNet8 on 16×16 images, padding 2, our variants": ours,
    }


@pytest.mark.parametrize("ours", [True, False])
def test_runs_that_another_column_has_are_drawn_once(learned, tmp_path, ours):
    for row in ("convolutional", "local", *["two_periods_sleep_every_1"] * ours):
        learned(f"miniature_{row}", scale=0.1)
    columns = learning_figure.read_learning([tmp_path / "runs"], dataset="cifar10-16x16").columns
    assert [*columns] == [f"ResNet8 on 16×16 images, padding 2{', our variants' * ours}"]


def test_a_row_has_a_mean_over_seeds_on_the_test_set_and_in_training_within_a_band(learned, tmp_path, monkeypatch):
    learned("cifar10_local", scale=0.1)
    second = learned("cifar10_local", seed=1, scale=0.1)
    reports = [line("epoch", 1, 32.0), line("evaluation", 1, 29.0), line("evaluation", 2, 50.0), line("epoch", 3, 70.0)]
    (second.path / METRICS).write_text("".join(json.dumps(report) + "\n" for report in reports))
    drawn = []
    monkeypatch.setattr(learning_figure, "save", lambda figure, stem: drawn.append(figure) or [])
    learning_figure.draw(learning_figure.read_learning([tmp_path / "runs"]), tmp_path)
    tested, trained = ((panel.get_lines()[0], panel.collections[0].get_paths()[0]) for panel in drawn[0].axes)
    assert tested[0].get_xydata().tolist() == [[1, 27], [2, 50]]
    assert trained[0].get_xydata().tolist() == [[1, 31], [2, 60], [3, 70]]
    assert {tuple(point) for point in tested[1].vertices} == {(1, 25), (1, 29), (2, 50)}
    assert {tuple(point) for point in trained[1].vertices} == {(1, 30), (1, 32), (2, 60), (3, 70)}
    assert [panel.get_ylim()[0] for panel in drawn[0].axes] == [40, 60]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--scale", "0.5"], "runs at scale 0.1 left out"),
        (["--scale", "0.5"], "no finished run of the tables of cifar10 at scale 0.5"),
        (["--scale", "nan"], "`scale` must be finite and above 0, got nan"),
        (["--seed", "1"], "--seed does not apply to figure learning"),
        (["--dataset", "imagenet"], "`sleepconv sweep table2 --dataset imagenet --scale 1` trains some"),
        (
            ["--dataset", "digits"],
            "no table has the dataset 'digits'; there are cifar10, cifar100, tiny-imagenet, imagenet, cifar10-16x16",
        ),
        (["--runs", "nowhere"], "the folder nowhere does not exist"),
    ],
)
def test_nothing_to_draw_is_one_clear_error(learned, tmp_path, capsys, options, says):
    learned("cifar10_local", scale=0.1)
    assert main(["figure", "learning", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path), *options]) == 1
    assert says in capsys.readouterr().err
    assert not list(tmp_path.glob("*.png"))


def test_a_run_whose_reports_are_damaged_is_left_out_and_said_and_one_epoch_is_seen(learned, tmp_path, monkeypatch):
    trained, tested = json.dumps(line("epoch", 1, 5)), json.dumps(line("evaluation", 1, 7))
    for seed, reports in enumerate(["{", tested.replace("top1", "top5"), trained, f"{trained}\n{tested}"]):
        (learned("cifar10_local", seed=seed, scale=0.005).path / METRICS).write_text(reports + "\n")
    learning = learning_figure.read_learning([tmp_path / "runs"])
    assert [said.rpartition(" left out: ")[0][-1] for said in learning.left_out] == ["0", "1", "2"]
    drawn = []
    monkeypatch.setattr(learning_figure, "save", lambda figure, stem: drawn.append(figure) or [])
    learning_figure.draw(learning, tmp_path)
    lines = [panel.get_lines()[0] for panel in drawn[0].axes]
    assert [(list(line.get_ydata()), line.get_marker()) for line in lines] == [([7], "."), ([5], ".")]
