"""Runs that learn without weight transport."""

import pytest

from sleepconv.experiments.runs import RunFolder
from sleepconv.experiments.training import train
from sleepconv.wake import alignment
from sleepconv.wake.feedback_layers import FeedbackLayer

LAYERS = ["layers.0.0", "layers.1.0", "layers.2.0", "classifier"]


@pytest.mark.parametrize("wake", ["kolen_pollack", "weight_mirrors"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(wake, small, tmp_path, assert_same_end):
    run = small.changed(wake=wake, epochs=2)
    train(run, tmp_path / "whole", quiet=True)
    train(run, tmp_path / "stopped", quiet=True, max_steps=4)
    train(run, tmp_path / "stopped", quiet=True)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")


def test_angles_are_recorded_and_the_trained_network_has_its_feedback(small, tmp_path):
    mirrored = {"patterns": 64, "decay": 0.5}
    train(small.changed(wake="kolen_pollack", wake_options=mirrored, epochs=5), tmp_path, quiet=True)
    reports = RunFolder(tmp_path).metrics("alignment")
    assert len(reports) > 2
    assert all(list(report["layers"]) == LAYERS for report in reports)
    first, last = (reports[place]["layers"] for place in (0, -1))
    assert all(last[name] < first[name] < 90 for name in LAYERS)
    model = RunFolder(tmp_path).load_model()
    assert isinstance(model.get_submodule("layers.0.0"), FeedbackLayer)
    assert alignment(model) == pytest.approx(last, abs=1e-4)


@pytest.mark.parametrize("wake", ["sign_symmetry", "feedback_alignment", "direct_feedback_alignment"])
@pytest.mark.parametrize("network", [{"connectivity": "convolutional", "sleep_every": None}, {"slow_momentum": 0.5}])
def test_every_rule_trains_convolutional_and_sleeping_networks(wake, network, small, tmp_path):
    summary = train(small.changed(wake=wake, epochs=1, **network), tmp_path, quiet=True)
    assert summary is not None
    angles = RunFolder(tmp_path).metrics("alignment")
    assert bool(angles) == (wake != "direct_feedback_alignment")


def test_options_that_do_not_fit_are_refused_before_anything_is_written(small, tmp_path):
    with pytest.raises(ValueError, match="wake_options={'size': 1} do not fit the rule 'kolen_pollack'"):
        train(small.changed(wake="kolen_pollack", wake_options={"size": 1}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="`wake_options` needs another `wake` than backprop"):
        small.changed(wake_options={"scale": 1.0})
    with pytest.raises(ValueError, match="`wake` must be one of backprop, feedback_alignment"):
        small.changed(wake="hebbian")
