import numpy as np
import pytest
import torch

from sleepconv.brain import Preparation

PLAIN = {"mean": (0.0,) * 3, "std": (1.0,) * 3}


def test_images_of_the_inputs_size_are_only_normalised():
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    mean, std = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
    expected = (images - np.array(mean)) / np.array(std)
    prepared = Preparation((3, 32, 32), mean, std)(images)
    np.testing.assert_allclose(prepared.permute(0, 2, 3, 1), expected, atol=1e-5)


def test_scaling_down_averages_what_a_pixel_covers():
    checks = np.indices((64, 64)).sum(axis=0) % 2 * np.uint8(255)
    prepared = Preparation((3, 16, 16), **PLAIN)(checks[None].astype(np.uint8))
    torch.testing.assert_close(prepared, torch.full((1, 3, 16, 16), 127.5), atol=3.0, rtol=0)


def test_grey_becomes_three_equal_channels_and_colour_becomes_luminance():
    grey = np.full((1, 8, 8), 100, np.uint8)
    assert Preparation((3, 8, 8), **PLAIN)(grey).unique().tolist() == [100]
    red = np.zeros((1, 8, 8, 3), np.uint8)
    red[..., 0] = 100
    assert Preparation((1, 8, 8), (0.0,), (1.0,))(red).unique().tolist() == pytest.approx([29.9])


def test_a_wide_image_loses_its_sides_and_keeps_its_proportions():
    wide = np.zeros((1, 8, 16), np.uint8)
    wide[:, :, 4:12] = 200
    assert Preparation((3, 8, 8), **PLAIN)(wide).unique().tolist() == [200]


def test_a_channel_that_cannot_be_normalised_is_an_error():
    for mean, std in [((0.0,) * 3, (1.0,)), ((0.0,) * 3, (1.0, 0.0, 1.0))]:
        with pytest.raises(ValueError, match="a value for each of 3 channels, with `std` above 0"):
            Preparation((3, 8, 8), mean, std)
