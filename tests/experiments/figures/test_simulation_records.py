import json
import math
from dataclasses import replace

import pytest

from sleepconv.experiments.figures import convergence_figures as records
from sleepconv.simulation.convergence import Convergence


@pytest.fixture
def small(monkeypatch):
    setup = Convergence("hebbian", steps=5, kernel_sizes=(1,), decays=(0.1,), runs=2, neurons=3)
    monkeypatch.setitem(records.SETUPS, "small", setup)
    return setup


def test_a_record_is_simulated_once_per_seed_and_setup(small, tmp_path, monkeypatch):
    first = records.load_or_simulate("small", tmp_path)
    mark = {**first, "curves": []}
    records.write_simulation(tmp_path / "small.json", mark)
    assert records.load_or_simulate("small", tmp_path) == mark
    assert records.load_or_simulate("small", tmp_path, seed=1)["curves"] != []
    records.write_simulation(tmp_path / "small.json", mark)
    monkeypatch.setitem(records.SETUPS, "small", replace(small, steps=6))
    assert records.load_or_simulate("small", tmp_path)["setup"]["steps"] == 6


def test_what_is_read_is_what_was_simulated(small, tmp_path):
    simulated = records.load_or_simulate("small", tmp_path)
    stored = records.load_or_simulate("small", tmp_path)
    assert stored["setup"] == simulated["setup"]
    assert stored["curves"][0]["negative_log_snr"][0] == pytest.approx(
        simulated["curves"][0]["negative_log_snr"][0], rel=1e-6
    )


def test_infinite_snr_survives_in_strict_json(tmp_path):
    records.write_simulation(
        tmp_path / "record.json", {"setup": {}, "curves": [{"negative_log_snr": [0.5, -math.inf]}]}
    )

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    record = json.loads((tmp_path / "record.json").read_text(), parse_constant=refuse)
    assert [float(value) for value in record["curves"][0]["negative_log_snr"]] == [0.5, -math.inf]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"setup": 1}', "3", '{"setup": {}, "curves": [1e999]}'])
def test_a_file_that_is_no_record_is_named_and_kept(small, tmp_path, content):
    (tmp_path / "small.json").write_text(content)
    with pytest.raises(ValueError, match=r"small\.json is not the record of a simulation"):
        records.load_or_simulate("small", tmp_path)
    assert (tmp_path / "small.json").read_text() == content


def test_an_interrupted_simulation_leaves_nothing(small, tmp_path, monkeypatch):
    def interrupt(self, advance):
        advance()
        raise KeyboardInterrupt

    monkeypatch.setattr(Convergence, "curves", interrupt)
    with pytest.raises(KeyboardInterrupt):
        records.load_or_simulate("small", tmp_path)
    assert list(tmp_path.iterdir()) == []
