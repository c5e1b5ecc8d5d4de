import math
import xml.etree.ElementTree as ET

import pytest

from sleepconv import cli
from sleepconv.experiments.figures import convergence_figures
from sleepconv.experiments.figures import convergence_figures as records
from sleepconv.simulation.convergence import Convergence, NoisyConvergence

SMALL = {
    "hebbian": Convergence("hebbian", steps=30, kernel_sizes=(1, 2), runs=2, neurons=5),
    "hebbian-biased": Convergence(
        "hebbian", steps=30, inhibition=10.0, input_mean=0.0, kernel_sizes=(2,), runs=2, neurons=5
    ),
    "circuit": Convergence("circuit", steps=5, inhibition=10.0, input_mean=0.0, kernel_sizes=(2,), runs=2, neurons=5),
    "hebbian-noisy": NoisyConvergence(steps=50, runs=2, neurons=5),
}


@pytest.fixture
def small_setups(monkeypatch):
    monkeypatch.setattr(records, "SETUPS", SMALL)


@pytest.mark.parametrize("name", convergence_figures.FIGURES)
def test_the_command_draws_png_and_svg_from_a_record_beside_them(name, small_setups, tmp_path, capsys):
    assert cli.main(["figure", name, "--out", str(tmp_path), "--seed", "3"]) == 0
    record = records.read_simulation(tmp_path / f"{convergence_figures.FIGURES[name].record}.json")
    assert record["setup"]["seed"] == 3
    png, svg = (tmp_path / f"figure-{name}.{kind}" for kind in ("png", "svg"))
    assert capsys.readouterr().out.split() == [str(png), str(svg)]
    assert png.read_bytes().startswith(b"\x89PNG")
    ET.parse(svg)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_figure_is_redrawn_from_its_record_to_the_same_bytes(small_setups, tmp_path, monkeypatch):
    cli.main(["figure", "4a", "--out", str(tmp_path)])
    first = (tmp_path / "figure-4a.svg").read_bytes()

    def simulate(*_, **__):
        raise AssertionError("drawing must not simulate")

    monkeypatch.setattr(records, "simulate", simulate)
    assert cli.main(["figure", "4a", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "figure-4a.svg").read_bytes() == first


def test_both_figures_of_the_circuit_share_one_record():
    assert convergence_figures.FIGURES["4b"].record == convergence_figures.FIGURES["5b"].record == "circuit"


def test_a_curve_that_reaches_infinite_snr_is_drawn_up_to_there(small_setups, tmp_path):
    record = records.load_or_simulate("hebbian", tmp_path)
    for run in record["curves"][0]["negative_log_snr"]:
        run[-1] = -math.inf
    record["curves"][0]["theory"]["ideal"] = -math.inf
    records.write_simulation(tmp_path / "infinite.json", record)
    for path in convergence_figures.draw("4a", records.read_simulation(tmp_path / "infinite.json"), tmp_path):
        assert path.stat().st_size > 1000


def test_a_folder_that_is_a_file_is_one_line_of_error(small_setups, tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    assert cli.main(["figure", "4a", "--out", str(tmp_path / "taken")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("sleepconv: ")
    assert error.count("\n") == 1


def test_an_unknown_figure_is_refused_with_those_that_exist(capsys):
    with pytest.raises(SystemExit):
        cli.main(["figure", "7"])
    assert "4-noise" in capsys.readouterr().err
