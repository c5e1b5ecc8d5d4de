"""Accuracy at every place of the visual field."""

import pytest
import torch
from torch import nn

from sleepconv.experiments.data import ChannelStatistics, Images, Task, TensorSource, Translate, load_task
from sleepconv.experiments.figures.visual_field import (
    VisualField,
    mean_of,
    measure_visual_field,
    read_visual_field,
    visual_field_of,
)
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.training import train


class BrightCorner(nn.Module):
    """Says class 1 if the upper left pixel of the field is bright."""

    def forward(self, x):
        return torch.stack([0.5 - x[:, 0, 0, 0], x[:, 0, 0, 0] - 0.5], dim=1)


def bright_squares(*, size, canvas):
    images = Images(torch.full((6, 1, size, size), 255, dtype=torch.uint8), torch.ones(6).long(), ("dark", "bright"))
    source = TensorSource(
        images, Translate([0], [0], size=(canvas, canvas), statistics=ChannelStatistics((0.0,), (255.0,)))
    )
    return Task("squares", images.classes, (1, canvas, canvas), source, source)


def test_the_map_says_where_the_network_recognises_an_image():
    field = measure_visual_field(BrightCorner(), bright_squares(size=2, canvas=4))
    assert (field.rows, field.columns) == ([0, 1, 2], [0, 1, 2])
    assert field.accuracy == [[100.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_images_that_fill_the_field_are_shifted_by_up_to_eight_pixels():
    field = measure_visual_field(BrightCorner(), bright_squares(size=16, canvas=16))
    assert field.rows == field.columns == [-8, -6, -4, -2, 0, 2, 4, 6, 8]
    assert field.by_column() == {column: (500 / 9 if column <= 0 else 0.0) for column in field.columns}


def test_the_map_of_a_run_is_measured_once_and_kept_among_its_records(tmp_path, monkeypatch):
    run = Run("tiny", dataset="digits", connectivity="local", learning_rate=1e-2, network="three_layers", epochs=1)
    train(run, tmp_path, quiet=True)
    first = visual_field_of(RunFolder(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    assert visual_field_of(RunFolder(tmp_path)).accuracy == first.accuracy
    assert first.images == len(load_task("digits").evaluation)


def test_a_run_without_weights_has_no_map(tmp_path):
    folder = RunFolder(tmp_path)
    folder.claim(Run("tiny", dataset="digits", connectivity="local", learning_rate=1e-2))
    assert visual_field_of(folder) is None


def test_maps_of_different_places_are_not_averaged():
    with pytest.raises(ValueError, match="same places"):
        mean_of([VisualField([0], [0], [[1.0]], 1), VisualField([0], [1], [[1.0]], 1)])


def test_a_damaged_map_is_refused_with_its_name(tmp_path):
    (tmp_path / "visual_field.json").write_text("{")
    with pytest.raises(ValueError, match="visual_field.json is not a map"):
        read_visual_field(RunFolder(tmp_path))
