import subprocess
import sys

import pytest
import torch

from sleepconv.experiments.data import Batches, TensorSource, digits, on_visual_field


def test_digits_are_split_without_overlap_by_seed():
    train, test = digits(train=True), digits(train=False)
    assert (len(train), len(test)) == (1437, 360)
    assert not set(train.rows.tolist()) & set(test.rows.tolist())
    assert test.labels[test.rows].bincount(minlength=10).min() > 20


def test_digits_lie_at_the_chosen_place_on_a_black_field():
    images = digits(train=False)
    pixels, _ = images.take(torch.arange(5))
    placed = on_visual_field(rows=[3], columns=[11])(pixels, torch.rand(5, 3))
    assert placed.shape == (5, 1, 12, 24)
    torch.testing.assert_close(placed[:, :, 3:11, 11:19], pixels / 255)
    outside = placed.clone()
    outside[:, :, 3:11, 11:19] = 0
    assert (outside == 0).all()


def test_training_on_the_left_never_shows_a_digit_on_the_right():
    source = TensorSource(digits(), on_visual_field(columns=range(5)))
    for inputs, _ in Batches(source, batch_size=200).epoch(0):
        assert (inputs[..., 12:] == 0).all()


def test_every_place_where_a_digit_fits_is_used_by_default():
    pixels = torch.zeros(5000, 1, 8, 8, dtype=torch.uint8)
    pixels[:, :, 0, 0] = 255
    chance = torch.rand(5000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    corners = on_visual_field()(pixels, chance).flatten(1).argmax(dim=1).unique()
    assert len(corners) == 5 * 17


@pytest.mark.parametrize("columns", [[17], [-1], []])
def test_places_where_a_digit_does_not_fit_are_refused(columns):
    with pytest.raises(ValueError, match="`columns` must be upper left corners of 8×8 digits on a 12×24 field"):
        on_visual_field(columns=columns)


def test_importing_the_data_package_needs_neither_scikit_learn_nor_pillow():
    code = "import sys, sleepconv.experiments.data; sys.exit(any(name in sys.modules for name in ('sklearn', 'PIL')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
