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


def caption(path):
    texts = [element.text or "" for element in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    return " ".join(" ".join(texts).replace("\u00a0", " ").split())


def test_parameters_are_simulated_drawn_and_said(small_setups, tmp_path, capsys):
    options = ["--inhibition", "3", "--tau", "20", "--presentation", "60", "--decays", "0.1", "0.02", "--neurons", "4"]
    assert cli.main(["figure", "4b", *options, "--out", str(tmp_path)]) == 0
    marked = "-inhibition=3-tau_ms=20-presentation_ms=60-decays=0.1,0.02-neurons=4"
    setup = records.read_simulation(tmp_path / f"circuit{marked}.json")["setup"]
    assert (setup["inhibition"], setup["tau_ms"], setup["presentation_ms"]) == (3.0, 20.0, 60.0)
    text = caption(tmp_path / f"figure-4b{marked}.svg")
    for said in ("α = 3", "τ = 20 ms", "60 ms each", "γ = 0.02", "4 neurons", "Inputs N(0, 1) (the text: N(1, 1))"):
        assert said in text


def test_the_inputs_of_the_papers_text_are_a_variant(small_setups, tmp_path):
    assert cli.main(["figure", "4a", "--input-mean", "1", "--out", str(tmp_path)]) == 0
    text = caption(tmp_path / "figure-4a-input_mean=1.svg")
    assert "Inputs N(1, 1) as in the text" in text
    assert "here I" not in text


def test_figures_4_and_5_have_zero_mean_inputs_by_default():
    setups = [convergence_figures.SETUPS[convergence_figures.FIGURES[name].record] for name in ("4a", "4b", "5a", "5b")]
    assert {setup.input_mean for setup in setups} == {0.0}


def test_the_pooled_measure_is_drawn_from_the_same_record(small_setups, tmp_path, monkeypatch):
    cli.main(["figure", "5a", "--out", str(tmp_path)])
    monkeypatch.setattr(records, "simulate", None)
    assert cli.main(["figure", "5a", "--measure", "pooled", "--out", str(tmp_path)]) == 0
    assert "log(Σ variance / Σ mean²) of the weights" in caption(tmp_path / "figure-5a-pooled.svg")
    assert "log(Σ variance / Σ mean²) ends at" in caption(tmp_path / "figure-5a.svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["4a", "--tau", "20"], "--tau does not apply to figure 4a"),
        (["4a", "--inhibition", "3"], "--inhibition does not apply to figure 4a"),
        (["4-noise", "--measure", "pooled"], "--measure does not apply to figure 4-noise"),
        (["4a", "--runs", "results"], "--runs does not apply to figure 4a"),
        (["6", "--repetitions", "3"], "--repetitions does not apply to figure 6"),
        (["robustness", "--values", "1"], "--values needs --against"),
        (["4b", "--tau", "1"], "`step_ms` must be between 0 and"),
        (["4a", "--decays", "1", "2", "3", "4"], "at most 3 kernel sizes and 3 decays"),
    ],
)
def test_parameters_that_a_figure_does_not_have_are_refused(options, message, small_setups, tmp_path, capsys):
    assert cli.main(["figure", *options, "--out", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err
