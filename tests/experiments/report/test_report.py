"""The HTML page about runs."""

import re
import shutil
from html.parser import HTMLParser

import pytest
import torch

from sleepconv import cli
from sleepconv.experiments.data import ChannelStatistics, Images, Task, TensorSource, Translate
from sleepconv.experiments.report.groups import group
from sleepconv.experiments.runs import Run, find_runs, run_path
from sleepconv.experiments.runs.folder import RECIPE, WEIGHTS, RunFolder
from sleepconv.experiments.training import train

SECTIONS = [
    "What was run",
    "Accuracy",
    "Learning curves",
    "Training and sleep",
    "Filters before and after sleep",
    "Accuracy over the visual field",
    "Environment",
]
VOID = {"meta", "br", "wbr", "img", "link", "hr"}


class Page(HTMLParser):
    """Checks that tags are closed in order; collects text by section, addresses and names."""

    def __init__(self, path):
        super().__init__()
        self.open, self.sections, self.addresses, self.names, self.title = [], {}, [], [], None
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        self.names += [value for name, value in attributes if name == "id"]

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.title = data
        elif self.title is not None and data.strip():
            self.sections.setdefault(self.title, []).append(data.strip())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of a network that sleeps, and one of a convolutional one, trained for two epochs."""
    root = tmp_path_factory.mktemp("runs")
    base = Run("resting", "digits", "local", 1e-2, network="three_layers", epochs=2, sleep_every=4, batch_size=256)
    convolutional = base.changed(name="conv <&>", connectivity="convolutional", sleep_every=None)
    for run in (base, base.changed(seed=1), convolutional):
        train(run, run_path(root, run), quiet=True)
    return root


def report(runs, path):
    assert cli.main(["report", str(runs), "--out", str(path)]) == 0
    return Page(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("page") / "report.html"


@pytest.fixture(scope="module")
def page(runs, path):
    return report(runs, path)


def test_the_page_has_every_section_and_parses(page):
    assert list(page.sections) == SECTIONS
    assert "–" not in {text for name in SECTIONS[2:] for text in page.sections[name]}


def test_the_page_needs_nothing_but_itself(page, path):
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    text = re.sub(r'xmlns(:xlink)?="[^"]*"|data:image/png;base64[^"]*', "", path.read_text(encoding="utf-8"))
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    assert "<script" not in text


def test_names_within_the_page_are_unique(page):
    assert len(page.names) == len(set(page.names))


def test_the_numbers_are_those_of_the_records(runs, page):
    top1 = [folder.summary()["top1"] for folder in find_runs(runs / "resting")]
    assert f"{sum(top1) / 2:.1f}" in page.sections["Accuracy"]
    assert f"{max(top1) - min(top1):.1f}" in page.sections["Accuracy"]
    assert "0, 1" in page.sections["What was run"]
    assert find_runs(runs)[0].environment()["torch"] in page.sections["Environment"]
    assert any("mean of 2 runs, 360 images" in text for text in page.sections["Accuracy over the visual field"])


def test_the_environments_of_all_starts_are_listed(record, tmp_path):
    folder = RunFolder(record("cifar10_local", top1=50.0))
    folder.record_resumption({"processor": "slide rule", "cores": 1, "device": "cpu"}, step=3)
    shown = report(tmp_path / "runs", tmp_path / "report.html").sections["Environment"]
    assert shown[-6:] == ["processor", "abacus, slide rule", "cores", "1", "device", "cpu"]


def test_names_are_escaped(page, path):
    text = path.read_text(encoding="utf-8")
    assert "conv <&>" not in text
    assert "conv &lt;&amp;&gt;" in text


def test_the_command_says_where_the_page_is(runs, tmp_path, capsys):
    report(runs / "resting", tmp_path / "report.html")
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")


def test_a_run_that_has_just_begun_shows_dashes(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "begun")
    folder.path.mkdir(parents=True)
    folder.write(RECIPE, Run("begun", "cifar10", "local", 1e-3).as_json())
    page = report(tmp_path / "runs", tmp_path / "report.html")
    assert page.sections["Accuracy"].count("–") == 6
    assert "0 of 1 finished, 0 of 200 epochs so far" in page.sections["Accuracy"]
    for name in SECTIONS[2:]:
        assert page.sections[name][-1].startswith("–")


def test_filters_of_colour_images_are_shown_and_without_the_data_the_map_is_a_dash(tmp_path):
    images = Images(torch.randint(256, (40, 3, 16, 16), dtype=torch.uint8), torch.arange(40) % 2, ("cat", "dog"))
    still = Translate([0], [0], size=(16, 16), statistics=ChannelStatistics((120.0,) * 3, (60.0,) * 3))
    task = Task("cifar10", images.classes, (3, 16, 16), TensorSource(images, still), TensorSource(images, still))
    run = Run("colour", "cifar10", "local", 1e-2, network="three_layers", epochs=1, batch_size=20)
    train(run, tmp_path / "runs", task=task, quiet=True)
    options = ["--out", str(tmp_path / "report.html"), "--data-dir", str(tmp_path / "nowhere")]
    assert cli.main(["report", str(tmp_path / "runs"), *options]) == 0
    page = Page(tmp_path / "report.html")
    assert {"as trained", "after a sleep"} <= set(page.sections["Filters before and after sleep"])
    assert page.sections["Accuracy over the visual field"][-1] == "–"


def test_runs_of_one_name_are_told_apart_by_what_differs(tmp_path):
    base = Run("mine", "digits", "local", 1e-3)
    for place, run in enumerate([base, base.changed(scale=0.1), base.changed(seed=1)]):
        (tmp_path / str(place)).mkdir()
        RunFolder(tmp_path / str(place)).write(RECIPE, run.as_json())
    groups = group(find_runs(tmp_path))
    assert [(one.label, len(one.folders)) for one in groups] == [("mine (scale=1)", 2), ("mine (scale=0.1)", 1)]


@pytest.mark.parametrize("missing", ["nowhere", "."])
def test_a_folder_without_runs_is_one_line_of_error(missing, tmp_path, capsys):
    assert cli.main(["report", str(tmp_path / missing), "--out", str(tmp_path / "report.html")]) == 1
    assert "no run in" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "visual_field.json"])
def test_a_run_with_damaged_weights_or_map_is_named_and_the_others_are_reported(runs, tmp_path, capsys, name):
    shutil.copytree(runs, tmp_path / "runs")
    (damaged,) = (tmp_path / "runs" / "resting").glob("*-seed-1")
    (damaged / name).write_bytes(b"damaged")
    page = report(tmp_path / "runs", tmp_path / "report.html")
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{damaged} left out: {damaged / name} is" in line
    assert list(page.sections) == SECTIONS
    assert "0, 1" not in page.sections["What was run"]


def test_a_finished_run_whose_weights_are_missing_is_reported_and_said_to_lack_them(runs, tmp_path, capsys):
    shutil.copytree(runs, tmp_path / "runs")
    (without,) = (tmp_path / "runs" / "resting").glob("*-seed-1")
    (without / WEIGHTS).unlink()
    page = report(tmp_path / "runs", tmp_path / "report.html")
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"sleepconv: the weights of {without} are missing; the report does without them"
    assert page.sections["Filters before and after sleep"][-1] == "– for 1 of 3 runs, whose weights are missing."
    assert "0, 1" in page.sections["What was run"]


def test_a_folder_in_place_of_the_page_is_refused(runs, tmp_path, capsys):
    assert cli.main(["report", str(runs), "--out", str(tmp_path)]) == 1
    assert "is a folder; name a file" in capsys.readouterr().err
