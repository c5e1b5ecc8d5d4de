"""CIFAR-10 and CIFAR-100 from the official binary archives; no pickle is ever loaded."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sleepconv.experiments.data.description import (
    INCOMPLETE,
    Dataset,
    Download,
    File,
    StrPath,
    data_directory,
    read_lines,
    require_file,
)
from sleepconv.experiments.data.images import Images, check_labels

_PIXELS = 3 * 32 * 32
_CHUNK_RECORDS = 1000
_SITE = "https://www.cs.toronto.edu/~kriz/"


def cifar10(data_dir: StrPath | None = None, *, train: bool = True, complete: bool = True) -> Images:
    """Read CIFAR-10: 50,000 training or 10,000 test images, uint8, 3×32×32, ten classes.

    ``complete=False`` accepts files with fewer records than the official ones.

    >>> cifar10("no/such/folder", train=False)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: there is no such file; run `sleepconv data get cifar10`
    """
    names = [file.name for file in CIFAR10.files if file.name.startswith("data_batch" if train else "test")]
    return _read(CIFAR10, data_dir, names, label_bytes=1, class_file="batches.meta.txt", complete=complete)


def cifar10_16x16(data_dir: StrPath | None = None, *, train: bool = True, complete: bool = True) -> Images:
    """Read CIFAR-10 at half its size, for small experiments: each pixel is the rounded mean of 2×2 pixels.

    >>> cifar10_16x16("no/such/folder", train=False)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: there is no such file; run `sleepconv data get cifar10`
    """
    images = cifar10(data_dir, train=train, complete=complete)
    small = torch.cat([_halved(part) for part in images.pixels.split(_CHUNK_RECORDS)])
    return replace(images, pixels=small)


def cifar100(data_dir: StrPath | None = None, *, train: bool = True, complete: bool = True) -> Images:
    """Read CIFAR-100 with its fine labels: 50,000 training or 10,000 test images in a hundred classes.

    >>> cifar100("no/such/folder", train=False)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: there is no such file; run `sleepconv data get cifar100`
    """
    names = ["train.bin" if train else "test.bin"]
    return _read(CIFAR100, data_dir, names, label_bytes=2, class_file="fine_label_names.txt", complete=complete)


CIFAR10 = Dataset(
    name="cifar10",
    title="CIFAR-10",
    read=cifar10,
    train_images=50_000,
    test_images=10_000,
    held_out=5_000,
    folder="cifar-10-batches-bin",
    downloads=(
        Download("cifar-10-binary.tar.gz", _SITE + "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
    files=(
        File("data_batch_1.bin", 30_730_000, "5dd7e06a14cb22eb9f671a540d1b7c25"),
        File("data_batch_2.bin", 30_730_000, "5ea93a67294ea407fff1d09f752e9692"),
        File("data_batch_3.bin", 30_730_000, "942cd6a4bcdd0dd3c604fbe906cb4421"),
        File("data_batch_4.bin", 30_730_000, "ae636b3ba5c66a11e91e8cb52e771fcb"),
        File("data_batch_5.bin", 30_730_000, "53f37980c15c3d472c316c40844f3f0d"),
        File("test_batch.bin", 30_730_000, "803d5f7f4d78ea53de84dbe85f74fb6d"),
        File("batches.meta.txt"),
    ),
)
CIFAR10_16X16 = replace(CIFAR10, name="cifar10-16x16", title="CIFAR-10 at 16×16", read=cifar10_16x16)
CIFAR100 = Dataset(
    name="cifar100",
    title="CIFAR-100",
    read=cifar100,
    train_images=50_000,
    test_images=10_000,
    held_out=5_000,
    folder="cifar-100-binary",
    downloads=(
        Download("cifar-100-binary.tar.gz", _SITE + "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
    ),
    files=(
        File("train.bin", 153_700_000, "6172c7755cfe09b2fe270c85cebc1b15"),
        File("test.bin", 30_740_000, "4499cfba6c016c1be1438163640a0898"),
        File("fine_label_names.txt"),
        File("coarse_label_names.txt"),
    ),
)


def _read(
    dataset: Dataset,
    data_dir: StrPath | None,
    names: list[str],
    *,
    label_bytes: int,
    class_file: str,
    complete: bool,
) -> Images:
    folder = data_directory(data_dir) / dataset.folder
    classes = _class_names(require_file(folder / class_file, dataset.name), dataset)
    paths = [require_file(folder / name, dataset.name) for name in names]
    record = label_bytes + _PIXELS
    counts = [_records(path, dataset, record, complete) for path in paths]
    pixels = torch.empty((sum(counts), 3, 32, 32), dtype=torch.uint8)
    labels = torch.empty(sum(counts), dtype=torch.int64)
    first = 0
    for path, count in zip(paths, counts, strict=True):
        rows = slice(first, first + count)
        _fill(path, record, pixels[rows], labels[rows])
        check_labels(labels[rows], len(classes), path)
        first += count
    return Images(pixels, labels, classes)


def _halved(pixels: Tensor) -> Tensor:
    return F.avg_pool2d(pixels.float(), 2).round_().to(torch.uint8)


def _fill(path: Path, record: int, pixels: Tensor, labels: Tensor) -> None:
    """Read records (label bytes, then three planes of pixels) in chunks, so that memory holds the images only once."""
    flat = pixels.view(len(pixels), _PIXELS).numpy()
    with path.open("rb") as file:
        for first in range(0, len(pixels), _CHUNK_RECORDS):
            count = min(_CHUNK_RECORDS, len(pixels) - first)
            chunk = np.fromfile(file, np.uint8, count * record).reshape(count, record)
            flat[first : first + count] = chunk[:, -_PIXELS:]
            labels[first : first + count] = torch.from_numpy(chunk[:, record - _PIXELS - 1].astype(np.int64))


def _records(path: Path, dataset: Dataset, record: int, complete: bool) -> int:
    size = path.stat().st_size
    official = next(file.size for file in dataset.files if file.name == path.name)
    wrong = size != official if complete else size == 0 or size % record
    if wrong:
        raise ValueError(
            f"{path} has {size:,} bytes, but the official {dataset.title} file has {official:,} "
            f"({record:,} per image); it is truncated or another version: remove it and "
            f"run `sleepconv data get {dataset.name}`{f', or {INCOMPLETE}' if size and size % record == 0 else ''}"
        )
    return size // record


def _class_names(path: Path, dataset: Dataset) -> tuple[str, ...]:
    names = tuple(line.strip() for line in read_lines(path) if line.strip())
    expected = {"cifar10": 10, "cifar100": 100}[dataset.name]
    if len(names) != expected:
        raise ValueError(f"{path} names {len(names)} classes, but {dataset.title} has {expected}")
    return names
