import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sleepconv.experiments.data import ChannelStatistics, Translate, translate
from sleepconv.experiments.data.images import IMAGENET
from sleepconv.experiments.data.translations import Buffers

STATISTICS = ChannelStatistics((100.0, 110.0, 120.0), (50.0, 60.0, 70.0))


def random_pixels(count: int, size: int = 32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def chance(count: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((count, 3)))


def normalised(pixels: torch.Tensor, statistics: ChannelStatistics = STATISTICS) -> torch.Tensor:
    mean, std = (torch.tensor(v)[:, None, None] for v in (statistics.mean, statistics.std))
    return (pixels.float() - mean) / std


def one_by_one(pixels: torch.Tensor, corners: list[list[int]], size: tuple[int, int]) -> torch.Tensor:
    """The readable twin: pixel by pixel."""
    values = normalised(pixels)
    out = torch.zeros(len(pixels), 3, *size)
    for n, (row, column) in enumerate(corners):
        for i in range(size[0]):
            for j in range(size[1]):
                if 0 <= i - row < pixels.shape[2] and 0 <= j - column < pixels.shape[3]:
                    out[n, :, i, j] = values[n, :, i - row, j - column]
    return out


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    corners=st.lists(st.tuples(st.integers(-5, 8), st.integers(-5, 8)).map(list), min_size=1, max_size=5),
)
def test_equals_laying_each_image_pixel_by_pixel(size, corners):
    pixels = random_pixels(len(corners), size=6)
    lows = [min(c[axis] for c in corners) for axis in (0, 1)]
    if any(low >= extent for low, extent in zip(lows, size, strict=True)):
        with pytest.raises(ValueError, match="never overlaps"):
            translate(pixels, torch.tensor(corners), size=size, statistics=STATISTICS)
        return
    out = translate(pixels, torch.tensor(corners), size=size, statistics=STATISTICS)
    torch.testing.assert_close(out, one_by_one(pixels, corners, size), atol=1e-5, rtol=1e-5)


def test_padding_is_exactly_zero_after_normalisation():
    statistics = ChannelStatistics((100.5,) * 3, (50.0,) * 3)
    moved = translate(random_pixels(1), torch.tensor([[4, -3]]), size=(32, 32), statistics=statistics)
    assert (moved[:, :, :4] == 0).all()
    assert (moved[:, :, :, 29:] == 0).all()
    assert (moved[:, :, 4:, :29] != 0).all()


def test_random_crops_are_windows_of_the_padded_image():
    pixels, draws = random_pixels(20), chance(20)
    crops = Translate.after_padding(4, size=(32, 32), statistics=STATISTICS)(pixels, draws)
    padded = torch.nn.functional.pad(normalised(pixels), (4, 4, 4, 4))
    windows = padded.unfold(2, 32, 1).unfold(3, 32, 1)
    for crop, options in zip(crops, windows, strict=True):
        distance = (options - crop[:, None, None]).abs().amax(dim=(0, 3, 4))
        assert distance.min() < 1e-5


def test_crops_are_uniform_over_all_positions():
    moved = Translate.after_padding(2, size=(8, 8), statistics=STATISTICS)
    marked = torch.zeros(20_000, 3, 8, 8, dtype=torch.uint8)
    marked[:, :, 4, 4] = 255
    where = moved(marked, chance(len(marked)))[:, 0].flatten(1).argmax(dim=1)
    counts = torch.bincount(where, minlength=64).view(8, 8)
    assert counts[2:7, 2:7].sum() == 20_000
    expected = 20_000 / 25
    chi_square = ((counts[2:7, 2:7] - expected) ** 2 / expected).sum()
    assert chi_square < 60  # 24 degrees of freedom: beyond this once in 100,000 seeds


def test_tiny_imagenet_crops_stay_within_the_centre_and_reach_its_edges():
    padding = 4
    pixels = torch.zeros(1000, 3, 64, 64, dtype=torch.uint8)
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    pixels[:, 0], pixels[:, 1] = rows.to(torch.uint8), columns.to(torch.uint8)
    crop = Translate.within(
        (64, 64), size=(48, 48), padding=padding, statistics=ChannelStatistics((0.0,) * 3, (1.0,) * 3)
    )
    corner = crop(pixels, chance(1000))[:, :2, 0, 0]
    assert corner.min() == 8 - padding
    assert corner.max() == 8 + padding
    centre = Translate.within((64, 64), size=(48, 48), padding=0, statistics=IMAGENET)(pixels, chance(1000))
    torch.testing.assert_close(centre, normalised(pixels[:, :, 8:56, 8:56], IMAGENET), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("padding", [-1, 9])
def test_tiny_imagenet_padding_over_8_is_refused(padding):
    with pytest.raises(ValueError, match="`padding` must be from 0 to 8 for crops of 48×48 out of 64×64"):
        Translate.within((64, 64), size=(48, 48), padding=padding, statistics=IMAGENET)


@pytest.mark.parametrize("padding", [-1, 33])
def test_padding_beyond_the_image_is_refused(padding):
    with pytest.raises(ValueError, match="`padding` must be from 0"):
        Translate.after_padding(padding, size=(32, 32), statistics=STATISTICS)


def test_no_padding_only_normalises():
    pixels = random_pixels(3)
    out = Translate.after_padding(0, size=(32, 32), statistics=STATISTICS)(pixels, chance(3))
    torch.testing.assert_close(out, normalised(pixels), atol=1e-5, rtol=1e-5)


def test_a_batch_is_not_changed_by_making_the_next_one():
    crop = Translate.after_padding(0, size=(32, 32), statistics=STATISTICS)
    first = crop(random_pixels(4), chance(4))
    before = first.clone()
    crop(random_pixels(4, seed=1), chance(4, seed=1))
    assert torch.equal(first, before)


def test_a_smaller_last_batch_sees_nothing_of_the_one_before():
    crop = Translate.after_padding(4, size=(32, 32), statistics=STATISTICS)
    crop(random_pixels(8), chance(8))
    pixels, draws = random_pixels(3, seed=1), chance(3, seed=1)
    fresh = Translate.after_padding(4, size=(32, 32), statistics=STATISTICS)
    assert torch.equal(crop(pixels, draws), fresh(pixels, draws))


def test_translations_of_no_image_are_no_images():
    crop = Translate.after_padding(4, size=(32, 32), statistics=STATISTICS)
    assert crop(random_pixels(0), chance(0)).shape == (0, 3, 32, 32)


def test_nowhere_to_go_is_refused():
    with pytest.raises(ValueError, match="`rows` and `columns` must not be empty"):
        Translate([], [0], size=(4, 4), statistics=STATISTICS)


# What a user may keep of an array that was taken.
KEPT: dict[str, Callable[[np.ndarray], object]] = {
    "the array": lambda array: array,
    "a view": lambda array: array[1:],
    "a view of a view": lambda array: array[1:].reshape(-1)[:3],
    "a tensor": torch.from_numpy,
    "a view of a tensor": lambda array: torch.from_numpy(array)[1:].view(-1),
    "an array on a tensor": lambda array: torch.from_numpy(array)[1:].numpy(),
}


@pytest.mark.parametrize("fewer", [0, 1], ids=["counts of before Python 3.14", "counts from 3.14 on"])
@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_memory_in_use_is_not_given_out_however_python_counts_references(keep, fewer, monkeypatch):
    counted = sys.getrefcount
    monkeypatch.setattr(sys, "getrefcount", lambda value: counted(value) - 1 - fewer)  # the lambda's is one more
    buffers = Buffers()
    kept = keep(buffers.take((4, 10)))
    for _ in range(7):
        assert not np.shares_memory(buffers.take((4, 10)), np.asarray(kept))


@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_memory_that_nobody_uses_is_given_out_again(keep):
    buffers = Buffers()
    array = buffers.take((4, 10))
    address = array.ctypes.data
    kept = keep(array)
    del array, kept
    assert buffers.take((3, 10)).ctypes.data == address


def test_memory_that_is_too_small_is_not_given_out():
    buffers = Buffers()
    buffers.take((2, 10))
    buffers.take((3, 10))[:] = 1


def test_a_process_without_images_in_a_batch_takes_an_empty_array():
    assert Buffers().take((0, 3, 4, 4)).shape == (0, 3, 4, 4)
