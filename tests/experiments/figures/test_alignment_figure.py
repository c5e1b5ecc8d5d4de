import json

import pytest

from sleepconv.cli import main
from sleepconv.experiments.figures.alignment_figure import read_alignment


@pytest.fixture
def angles(record):
    """Add angles to the record of a run."""

    def add(name, steps, **fields):
        folder = record(name, top1=50.0, **fields)
        with open(folder / "metrics.jsonl", "a") as file:
            for step, angle in steps:
                layers = {"conv1": angle, "classifier": angle / 2}
                file.write(json.dumps({"kind": "alignment", "step": step, "layers": layers}) + "\n")

    return add


def test_angles_are_read_layer_by_layer_and_scales_are_never_mixed(angles, tmp_path):
    angles("miniature_kolen_pollack_local", [(5, 80.0), (10, 40.0)], scale=0.1)
    angles("miniature_kolen_pollack_sleep_every_1", [(5, 60.0)], scale=0.01)
    read = read_alignment([tmp_path])
    assert read.scale == 0.1
    assert read.angles == {
        ("kolen_pollack", "local"): {"conv1": [(5, 80.0), (10, 40.0)], "classifier": [(5, 40.0), (10, 20.0)]}
    }
    assert list(read_alignment([tmp_path], scale=0.01).angles) == [("kolen_pollack", "sleep_every_1")]


def test_the_figure_is_drawn_and_its_absence_explained(angles, tmp_path, capsys):
    assert main(["figure", "alignment", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "`sleepconv sweep wake --scale 1` trains some" in capsys.readouterr().err
    angles("miniature_kolen_pollack_local", [(5, 80.0), (10, 40.0)])
    angles("miniature_feedback_alignment_convolutional", [(5, 90.0)])
    assert main(["figure", "alignment", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "alignment-wake-scale-1.png").stat().st_size > 5000


def test_a_table_that_has_no_angles_is_refused():
    with pytest.raises(ValueError, match="the table must be one of wake, wake-bartunov, got '1'"):
        read_alignment([], table="1")
