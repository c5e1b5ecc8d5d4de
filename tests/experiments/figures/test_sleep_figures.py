"""The figures of activity asleep and awake, and of the schedule."""

import xml.etree.ElementTree as ET

import pytest
import torch

from sleepconv import cli
from sleepconv.experiments.figures import activity_figure, schedule_figure
from sleepconv.experiments.figures.schedule_figure import Schedule
from sleepconv.models import three_layers
from sleepconv.nn import to_locally_connected

SMALL = Schedule(depth=2, channels=1, size=6, patterns=8, equalisations=(0.5, 1.0), steps=2, long_steps=(1, 2))


def test_the_schedule_is_simulated_once_and_drawn_from_its_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(schedule_figure, "Schedule", lambda: SMALL)
    assert cli.main(["figure", "schedule", "--out", str(tmp_path), "--seed", "3"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / f"figure-schedule.{kind}") for kind in ("png", "svg")]
    first = (tmp_path / "figure-schedule.svg").read_bytes()
    ET.fromstring(first)

    def simulate(*_, **__):
        raise AssertionError("drawing must not simulate")

    monkeypatch.setattr(schedule_figure, "simulate", simulate)
    assert cli.main(["figure", "schedule", "--out", str(tmp_path), "--seed", "3"]) == 0
    assert (tmp_path / "figure-schedule.svg").read_bytes() == first


def test_the_activity_asleep_repeats_and_its_answers_repeat_after_sharing_only():
    torch.manual_seed(0)
    model = to_locally_connected(three_layers(width=4), torch.zeros(1, 1, 12, 24))
    panels = list(activity_figure._panels(model, torch.rand(1, 1, 12, 24)).values())
    fires, before, after = panels[3:]
    assert int((fires > 0).sum()) == fires.numel() // 9
    torch.testing.assert_close(after[3:], after[:-3], rtol=0, atol=1e-3)
    assert (before[3:] - before[:-3]).abs().max() > 0.1


def test_the_command_draws_activity(tmp_path, capsys):
    assert cli.main(["figure", "activity", "--out", str(tmp_path)]) == 0
    png, svg = capsys.readouterr().out.split()
    assert png.endswith("figure-activity.png")
    ET.parse(svg)


def test_a_network_without_layers_that_sleep_is_refused():
    with pytest.raises(ValueError, match="no locally connected layer"):
        activity_figure._panels(three_layers(), torch.zeros(1, 1, 12, 24))
