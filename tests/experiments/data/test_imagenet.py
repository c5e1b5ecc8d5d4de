import io
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from sleepconv.experiments.data import (
    Batches,
    CorruptImageError,
    Decoders,
    EncodedSource,
    ImageFolders,
    imagenet_folders,
    load_task,
)
from sleepconv.experiments.data.decoding import random_resized_crop, resized_crop
from sleepconv.experiments.data.images import IMAGENET


def source_of(files, *, train: bool = True, on_corrupt="error") -> EncodedSource:
    rows = np.arange(len(files.labels))
    return EncodedSource(files, rows, train=train, decoders=Decoders(2, on_corrupt=on_corrupt))


def photograph(height: int, width: int) -> Image.Image:
    random = np.random.default_rng(0)
    small = Image.fromarray(random.integers(0, 256, (20, 20, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def test_class_folders_become_labels_in_the_order_of_their_names(small_imagenet, data_dir):
    files = imagenet_folders(data_dir, complete=False)
    assert files.classes == ("n01", "n02")
    assert files.labels.tolist() == [0] * 6 + [1] * 6
    assert files.name(7).endswith("train/n02/n02_1.JPEG")
    assert len(imagenet_folders(data_dir, train=False, complete=False).labels) == 6


@pytest.mark.parametrize("size", [(375, 500), (500, 375), (256, 256), (256, 341), (384, 512), (100, 130), (1000, 999)])
def test_a_crop_is_what_pillow_resamples_from_the_same_place(size):
    image = photograph(*size)
    crop = resized_crop(image, short_side=256, size=224, chance=(0.3, 0.8))
    short = min(size)
    extent = -(-224 * short // 256)
    top, left = int(0.3 * (size[0] - extent + 1)), int(0.8 * (size[1] - extent + 1))
    box = (left, top, left + 224 * short / 256, top + 224 * short / 256)
    pillow = np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR, box=box)).astype(int)
    assert crop.shape == (224, 224, 3)
    assert np.abs(crop[2:-2, 2:-2].astype(int) - pillow[2:-2, 2:-2]).max() <= 2


@pytest.mark.parametrize("size", [(375, 500), (300, 257), (2000, 1000)])
def test_the_centre_crop_is_resize_256_then_the_middle_224_to_a_pixel(size):
    ramps = np.meshgrid(*(np.linspace(0, 255, side) for side in size), indexing="ij")
    image = Image.fromarray(np.stack([*ramps, ramps[0]], axis=-1).astype(np.uint8))
    height, width = (side * 256 // min(size) for side in size)
    resized = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)).astype(int)
    top, left = (height - 224) // 2, (width - 224) // 2
    crop = resized_crop(image, short_side=256, size=224, chance=(0.5, 0.5)).astype(int)
    difference = np.abs(crop - resized[top : top + 224, left : left + 224])
    assert difference.max() <= 2  # a pixel of the resized image is one step of the ramp


def test_a_flip_mirrors_the_same_crop():
    image = photograph(256, 400)
    plain, mirrored = (
        resized_crop(image, short_side=256, size=224, chance=(0.5, 0.5), flip=flip) for flip in (False, True)
    )
    assert np.array_equal(plain, mirrored[:, ::-1])
    assert not np.array_equal(plain, mirrored)


def test_crops_and_flips_cover_all_their_choices():
    rows, columns = np.meshgrid(np.arange(64), np.arange(64), indexing="ij")
    image = Image.fromarray(np.stack([rows, columns, rows], axis=-1).astype(np.uint8))
    corners = {
        tuple(resized_crop(image, short_side=64, size=56, chance=tuple(chance))[0, 0, :2])
        for chance in np.random.default_rng(0).random((3000, 2))
    }
    assert corners == {(i, j) for i in range(9) for j in range(9)}


def crop_box(image, seed):
    """The box of a random resized crop of an image whose pixels say where they are; corners are one pixel inside."""
    crop = random_resized_crop(image, size=64, random=np.random.default_rng(seed)).astype(float)
    (top, left), (bottom, right) = crop[0, 0, :2], crop[-1, -1, :2]
    return top, bottom, *sorted((left, right)), left > right


def test_random_resized_crops_have_8_to_100_percent_of_the_area_and_limited_shapes():
    rows, columns = np.meshgrid(np.arange(200), np.arange(250), indexing="ij")
    image = Image.fromarray(np.stack([rows, columns, rows], axis=-1).astype(np.uint8))
    boxes = np.array([crop_box(image, seed) for seed in range(400)])
    heights, widths = boxes[:, 1] - boxes[:, 0] + 1, boxes[:, 3] - boxes[:, 2] + 1
    areas, shapes = heights * widths / (200 * 250), widths / heights
    assert areas.min() > 0.06
    assert areas.min() < 0.15
    assert areas.max() > 0.85
    assert 0.68 < shapes.min() < 0.8
    assert 1.25 < shapes.max() < 1.46
    assert 0.4 < boxes[:, 4].mean() < 0.6  # flipped


def test_a_crop_that_never_fits_is_the_largest_in_the_middle():
    rows, columns = np.meshgrid(np.arange(10), np.arange(250), indexing="ij")
    image = Image.fromarray(np.stack([rows, columns, rows], axis=-1).astype(np.uint8))
    boxes = np.array([crop_box(image, seed)[:4] for seed in range(30)])
    widths = boxes[:, 3] - boxes[:, 2] + 1
    assert (np.abs(widths - 13) <= 2).any()
    assert widths.max() <= 15


def test_crops_are_an_option_of_imagenet(small_imagenet, data_dir):
    options = {"data_dir": data_dir, "complete": False}
    plain, resized = (load_task("imagenet", **options, crops=crops).train for crops in ("random", "random_resized"))
    chance = np.random.default_rng(0).random((2, 3))
    seen = [source.batch(np.arange(2), chance)[0].clone() for source in (plain, resized, resized)]
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], seen[2])
    with pytest.raises(ValueError, match="`crops` must be 'random' for digits, got 'random_resized'"):
        load_task("digits", crops="random_resized")
    with pytest.raises(ValueError, match="`crops` must be one of random, random_resized, got 'centre'"):
        load_task("imagenet", crops="centre")


def test_batches_are_normalised_and_reproducible(small_imagenet, data_dir):
    source = source_of(imagenet_folders(data_dir, complete=False))
    batches = Batches(source, batch_size=5)
    seen = [(inputs.clone(), labels) for inputs, labels in batches.epoch(1)]
    inputs, labels = batches.batch(1, 1)
    assert inputs.shape == (5, 3, 224, 224)
    assert torch.equal(inputs, seen[1][0])
    assert torch.equal(labels, seen[1][1])
    assert -3 < inputs.min() < inputs.max() < 3


def test_evaluation_has_no_chance(small_imagenet, data_dir):
    source = source_of(imagenet_folders(data_dir, train=False, complete=False), train=False)
    first, _ = source.batch(np.arange(6), np.zeros((6, 3)))
    second, _ = source.batch(np.arange(6), np.full((6, 3), 0.9))
    assert torch.equal(first, second)
    scale, shift = IMAGENET.scale_and_shift(torch.device("cpu"))
    assert torch.allclose((first - shift) / scale, ((first - shift) / scale).round(), atol=1e-3)


def test_a_batch_in_use_is_not_overwritten_by_later_ones(small_imagenet, data_dir):
    source = source_of(imagenet_folders(data_dir, complete=False))
    held, _ = source.batch(np.arange(4), np.zeros((4, 3)))
    view, before = held[1:2], held.clone()
    del held
    for seed in range(6):
        source.batch(np.arange(4, 8), np.random.default_rng(seed).random((4, 3)))
    assert torch.equal(view, before[1:2])


def test_a_corrupt_image_is_named_and_an_error_by_default(small_imagenet, data_dir):
    bad = small_imagenet / "train" / "n01" / "n01_2.JPEG"
    bad.write_bytes(bad.read_bytes()[:300])
    source = source_of(imagenet_folders(data_dir, complete=False))
    with pytest.raises(CorruptImageError, match=r"n01_2\.JPEG is not a readable image"):
        list(Batches(source, batch_size=4).epoch(0))


def test_corrupt_images_are_skipped_as_told_named_and_counted(small_imagenet, data_dir):
    for name in ("n01_2.JPEG", "n01_4.JPEG"):
        (small_imagenet / "train" / "n01" / name).write_bytes(b"not an image")
    source = source_of(imagenet_folders(data_dir, complete=False), on_corrupt="skip")
    with pytest.warns(UserWarning, match=r"corrupt images have been left out so far, new: .*n01_[24]\.JPEG"):
        labels = [label for _, part in Batches(source, batch_size=4).epoch(0) for label in part.tolist()]
    assert sorted(labels) == [0] * 4 + [1] * 6
    assert sorted(name[-10:] for name in source.decoders.corrupt) == ["n01_2.JPEG", "n01_4.JPEG"]
    with warnings.catch_warnings(action="error"):  # each is named once
        list(Batches(source, batch_size=4).epoch(1))


def test_another_word_for_skipping_is_refused():
    with pytest.raises((ValueError, TypeError), match="on_corrupt"):
        Decoders(on_corrupt="ignore")


def test_a_class_folder_missing_on_one_side_is_named(small_imagenet, data_dir):
    (small_imagenet / "val" / "n02").rename(small_imagenet / "away")
    with pytest.raises(FileNotFoundError, match=r"class folder .*val/n02 is missing"):
        imagenet_folders(data_dir, complete=False)


def test_an_empty_class_folder_is_named(small_imagenet, data_dir):
    for path in (small_imagenet / "train" / "n02").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"train/n02 is missing or has no image"):
        imagenet_folders(data_dir, complete=False)


def test_a_flat_val_folder_is_refused(tmp_path):
    (tmp_path / "ILSVRC2012_val_00000001.JPEG").write_bytes(b"")
    with pytest.raises(ValueError, match="has no class folders but 1 images outside of any"):
        ImageFolders(tmp_path)


def test_fewer_than_a_thousand_classes_are_refused(small_imagenet, data_dir):
    with pytest.raises(ValueError, match="has 2 class folders, but ImageNet has 1000"):
        imagenet_folders(data_dir)


def test_grey_and_four_colour_files_become_rgb(tmp_path):
    (tmp_path / "a").mkdir()
    for mode in ("L", "CMYK"):
        content = io.BytesIO()
        photograph(300, 300).convert(mode).save(content, "JPEG")
        (tmp_path / "a" / f"{mode}.jpg").write_bytes(content.getvalue())
    inputs, _ = source_of(ImageFolders(tmp_path)).batch(np.arange(2), np.zeros((2, 3)))
    assert inputs.shape == (2, 3, 224, 224)
