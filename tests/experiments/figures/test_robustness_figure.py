import pytest

from sleepconv import cli
from sleepconv.experiments.figures import convergence_figures as records
from sleepconv.simulation.robustness import AGAINST, Robustness

SMALL = {"decays": (0.1, 0.01), "neurons": 6, "inputs": 2, "runs": 2, "steps": 5}


@pytest.fixture
def small_setups(monkeypatch):
    setups = {f"robustness-{against}": Robustness(against, **SMALL) for against in AGAINST}
    monkeypatch.setattr(records, "SETUPS", setups)


def test_one_command_draws_a_figure_for_each_imperfection(small_setups, tmp_path, capsys):
    assert cli.main(["figure", "robustness", "--out", str(tmp_path)]) == 0
    drawn = capsys.readouterr().out.split()
    assert drawn == [
        str(tmp_path / f"figure-robustness-{against}.{kind}") for against in AGAINST for kind in ("png", "svg")
    ]
    assert {path.name for path in tmp_path.glob("*.json")} == {f"robustness-{against}.json" for against in AGAINST}


def test_the_caption_says_what_was_drawn(small_setups, tmp_path):
    options = [
        "--against",
        "noise",
        "--values",
        "0",
        "0.5",
        "--inhibition",
        "7",
        "--neurons",
        "5",
        "--repetitions",
        "1",
    ]
    assert cli.main(["figure", "robustness", *options, "--out", str(tmp_path)]) == 0
    marked = "-inhibition=7-values=0,0.5-neurons=5-runs=1"
    record = records.read_simulation(tmp_path / f"robustness-noise{marked}.json")
    assert record["curves"][0]["values"] == [0.0, 0.5]
    text = (tmp_path / f"figure-robustness-noise{marked}.svg").read_text().replace("\u00a0", " ")
    for said in ("γ/(γ + σ²(1 − 1/N))", "5 neurons", "mean of 1 runs", "α = 7", "after 5 steps"):
        assert said in text


@pytest.mark.parametrize("options", [["--tau", "20"], ["--measure", "pooled"], ["--scale", "0.1"]])
def test_options_of_other_figures_are_refused(options, tmp_path, capsys):
    assert cli.main(["figure", "robustness", *options, "--out", str(tmp_path)]) == 1
    assert f"{options[0]} does not apply to figure robustness" in capsys.readouterr().err
