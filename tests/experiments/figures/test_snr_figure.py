"""Figure 6 and the curves that it draws."""

import math
import xml.etree.ElementTree as ET

import pytest

from sleepconv import cli
from sleepconv.curves import before_sleep, snr_curves
from sleepconv.experiments.figures.snr_figure import LEARNING_RATES, find_runs_of_figure
from sleepconv.experiments.runs import Run, find_runs, run_path
from sleepconv.experiments.runs.folder import RECIPE, RunFolder

LAYERS = ("conv1", "stages.0.0.conv1")


def snr_lines(*, rate, steps=40, every=10):
    """A sawtooth as training leaves it: measured after each step, and again after each sleep."""
    for step in range(1, steps + 1):
        awake = 1 / (rate * ((step - 1) % every + 1))
        yield {"kind": "snr", "step": step, "when": "awake", "layers": dict.fromkeys(LAYERS, awake)}
        if step % every == 0:
            yield {"kind": "snr", "step": step, "when": "asleep", "layers": dict.fromkeys(LAYERS, "inf")}


@pytest.fixture
def make_run(tmp_path):
    def make(rate, *, name="rate", **changes):
        run = Run(name=f"{name}_{rate:g}", dataset="cifar10", connectivity="local", learning_rate=rate, sleep_every=10)
        run = run.changed(**changes)
        folder = RunFolder(run_path(tmp_path / "runs", run))
        folder.path.mkdir(parents=True)
        folder.write(RECIPE, run.as_json())
        for line in snr_lines(rate=rate):
            folder.append(line)
        return folder

    return make


def test_the_curve_rises_between_sleeps_and_falls_to_minus_infinity_in_each():
    curve = snr_curves(snr_lines(rate=1e-3), sleep_every=10)["conv1"]
    assert curve.values[:9] == sorted(curve.values[:9])
    assert curve.steps[9:12] == [10, 10, 11]
    assert curve.values[10] == -math.inf
    assert curve.values[11] == pytest.approx(curve.values[0])
    assert not any(math.isnan(value) for value in curve.values)


def test_measurements_with_an_unmeasured_sleep_between_them_are_not_joined():
    lines = [line for line in snr_lines(rate=1e-3) if line["step"] in (10, 30, 35)]
    curve = snr_curves(lines, sleep_every=10)["conv1"]
    gaps = [step for step, value in zip(curve.steps, curve.values, strict=True) if math.isnan(value)]
    assert gaps == [30]
    awake_only = [line for line in lines if line["when"] == "awake"]
    assert sum(map(math.isnan, snr_curves(awake_only, sleep_every=10)["conv1"].values)) == 2


def test_before_sleep_keeps_only_what_a_sleep_followed():
    assert before_sleep(snr_lines(rate=1e-3))["conv1"].steps == [10, 20, 30, 40]


def test_runs_are_found_by_what_they_are_and_the_largest_scale_and_least_seed_is_shown(make_run, tmp_path):
    make_run(5e-4, scale=0.1)
    shown = make_run(5e-4, name="other", scale=0.5, seed=1)
    make_run(5e-4, name="later", scale=0.5, seed=2)
    make_run(5e-3, name="other-period", sleep_every=1)
    make_run(5e-2, name="other-data", dataset="cifar100")
    found = find_runs_of_figure(find_runs(tmp_path))
    assert [folder and folder.path for folder in found] == [shown.path, None, None]


def test_a_run_measured_at_every_step_is_preferred_to_a_longer_one(make_run, tmp_path):
    make_run(5e-4, scale=2.0)
    detailed = make_run(5e-4, name="detailed", snr_every=1)
    assert find_runs_of_figure(find_runs(tmp_path))[0].path == detailed.path


def test_the_command_draws_png_and_svg_and_marks_minus_infinity(make_run, tmp_path, capsys):
    for rate in LEARNING_RATES:
        make_run(rate)
    assert cli.main(["figure", "6", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
    png, svg = (tmp_path / f"figure-6.{kind}" for kind in ("png", "svg"))
    assert capsys.readouterr().out.split() == [str(png), str(svg)]
    assert png.read_bytes().startswith(b"\x89PNG")
    text = "".join(ET.parse(svg).getroot().itertext())
    assert "−∞" in text
    assert "scale 1, seed 0" in text
    assert ": –" not in text


def test_missing_runs_are_empty_panels_with_a_dash(make_run, tmp_path):
    make_run(5e-3)
    assert cli.main(["figure", "6", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]) == 0
    text = [part.strip() for part in ET.parse(tmp_path / "figure-6.svg").getroot().itertext()]
    assert text.count("–") == 4
    assert any("A: –; B: rate_0.005" in part for part in text)


def test_without_any_run_the_figure_is_all_dashes(tmp_path):
    assert cli.main(["figure", "6", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "figure-6.png").is_file()
