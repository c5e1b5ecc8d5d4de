"""`load_task`: a dataset prepared for training, with the paper's split, translations and normalisation.

A new dataset is a file beside this one with a reader and a `Dataset`, listed here, or a reader of yours, registered by
`register_dataset`. It is padded and cropped like CIFAR unless ``_PREPARE`` names another function for it.
"""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sleepconv.experiments.data.cifar import CIFAR10, CIFAR10_16X16, CIFAR100
from sleepconv.experiments.data.decoding import Decoders, OnCorrupt, check_on_corrupt
from sleepconv.experiments.data.description import Dataset, StrPath, cache_directory, data_directory, writing_to
from sleepconv.experiments.data.digits import (
    DIGIT_SIZE,
    DIGITS,
    DIGITS_LEFT,
    FIELD,
    SEEN_COLUMNS,
    on_visual_field,
)
from sleepconv.experiments.data.fashion_mnist import FASHION_MNIST
from sleepconv.experiments.data.imagenet import IMAGENET_1K, EncodedSource, check_crops
from sleepconv.experiments.data.images import (
    IMAGENET,
    ChannelStatistics,
    Images,
    Source,
    TensorSource,
    measure,
    split_rows,
)
from sleepconv.experiments.data.tiny_imagenet import IMAGE_SIZE, TINY_IMAGENET
from sleepconv.experiments.data.translations import Translate
from sleepconv.experiments.runs.registry import DATASETS
from sleepconv.experiments.runs.run import Crops
from sleepconv.files import write_atomically

for _ours in (DIGITS, DIGITS_LEFT, CIFAR10, CIFAR10_16X16, CIFAR100, TINY_IMAGENET, IMAGENET_1K, FASHION_MNIST):
    DATASETS.add(_ours.name, _ours)
_TINY_CROP = (48, 48)
_Reader = TypeVar("_Reader", bound=Callable[..., Any])
IMAGENET_CROP = 224


@dataclass(frozen=True)
class Task:
    """What to train on and what to evaluate on, as sources for `Batches`.

    >>> task = load_task("digits")
    >>> task.input_size, len(task.train), len(task.evaluation)
    ((1, 12, 24), 1437, 360)
    """

    name: str
    classes: tuple[str, ...]
    input_size: tuple[int, int, int]
    train: Source
    evaluation: Source


def load_task(
    name: str,
    *,
    data_dir: StrPath | None = None,
    padding: int = 0,
    tuning: bool = False,
    split_seed: int = 0,
    complete: bool = True,
    on_corrupt: OnCorrupt = "error",
    device: str = "cpu",
    crops: Crops = "random",
) -> Task:
    """Load a dataset as the paper uses it (section 5, Datasets and Data augmentations).

    Args:
        name: digits, digits-left, cifar10, cifar10-16x16, cifar100, tiny-imagenet, imagenet, fashion-mnist, or one that
            `register_dataset` has registered.
        data_dir: the data directory; see `data_directory`.
        padding: the greatest translation of training images in pixels; has no effect on ImageNet, whose crops are its
            translations, and on ``digits-left``.
        tuning: evaluate on a part of the training set that is held out from training (45k/5k for CIFAR, 90k/10k for
            TinyImageNet, 1.271M/10k for ImageNet) instead of the test set.
        split_seed: the seed that chooses the held-out images.
        complete: whether to require the official number of images.
        on_corrupt: "error" or "skip", for datasets of JPEG files.
        device: the device on which batches are made, for datasets held in memory.
        crops: of ImageNet's training images: "random" (resize the short side to 256, crop 224 at random), as the text
            says, or "random_resized" (size and shape of the crop are random too), as the published runs did.

    >>> task = load_task("digits", padding=2)
    >>> task.input_size, len(task.train), len(task.evaluation)
    ((1, 12, 24), 1437, 360)
    """
    dataset = find_dataset(name)
    check_on_corrupt(on_corrupt)
    if padding < 0:
        raise ValueError(f"`padding` must be at least 0, got {padding}")
    check_crops(crops)
    if crops != "random" and name != "imagenet":
        raise ValueError(f"`crops` must be 'random' for {name}, got {crops!r}; only ImageNet has other crops")
    options = _Options(data_directory(data_dir), padding, tuning, split_seed, complete, on_corrupt, device, crops)
    return _PREPARE.get(name, _padded)(dataset, options)


def find_dataset(name: str) -> Dataset:
    """Return the dataset of that name; for a typo, suggest the nearest name.

    >>> find_dataset("cifar10").title
    'CIFAR-10'
    >>> find_dataset("cifer10")
    Traceback (most recent call last):
    ValueError: there is no dataset 'cifer10'; did you mean 'cifar10'?
    """
    return DATASETS[name]


def register_dataset(name: str, **facts: Any) -> Callable[[_Reader], _Reader]:
    """Register a reader of images as a dataset, for ``Run(dataset=name)`` and `load_task`.

    The decorated function is called as ``read(data_dir, train=True, complete=True)`` and returns `Images`: pixels and
    labels of the training or of the test set. Padding, translations and normalisation are those of CIFAR.

    Args:
        name: the name of the dataset.
        facts: what else a `Dataset` has: title, folder, files, held_out, ...

    >>> import torch
    >>> @register_dataset("noise")
    ... def noise(data_dir, *, train=True, complete=True):
    ...     pixels = torch.randint(0, 256, (20 if train else 10, 3, 8, 8), dtype=torch.uint8)
    ...     return Images(pixels, torch.arange(len(pixels)) % 2, ("even", "odd"))
    >>> task = load_task("noise", padding=1)
    >>> task.input_size, len(task.train), len(task.evaluation)
    ((3, 8, 8), 20, 10)
    """

    def register(read: _Reader) -> _Reader:
        DATASETS.add(name, Dataset(name=name, read=read, **{"title": name, "folder": "", **facts}))
        return read

    return register


@dataclass(frozen=True)
class _Options:
    """The arguments of `load_task`."""

    data_dir: Path
    padding: int
    tuning: bool
    split_seed: int
    complete: bool
    on_corrupt: OnCorrupt
    device: str
    crops: Crops

    def held_out(self, dataset: Dataset, available: int) -> int:
        """Return how many training images become the validation set."""
        if not self.tuning:
            return 0
        tenth = max(1, available // 10)
        if dataset.held_out is None:
            return tenth
        return dataset.held_out if self.complete else min(dataset.held_out, tenth)


def _padded(dataset: Dataset, options: _Options) -> Task:
    """Pad with the training mean and crop at random; evaluate the images as they are (CIFAR, Fashion-MNIST)."""
    train, evaluation = _split(dataset, options)
    statistics = _training_statistics(dataset, options, train)
    translations = (
        Translate.after_padding(padding, size=train.image_size, statistics=statistics)
        for padding in (options.padding, 0)
    )
    return _tensor_task(dataset, (train, next(translations)), (evaluation, next(translations)))


def _digits(dataset: Dataset, options: _Options) -> Task:
    train, evaluation = _split(dataset, options)
    rows, columns = (
        [(extent - DIGIT_SIZE) // 2 + shift for shift in range(-reach, reach + 1)]
        for extent in FIELD
        for reach in [min(options.padding, (extent - DIGIT_SIZE) // 2)]
    )
    middle_row, middle_column = rows[len(rows) // 2], columns[len(columns) // 2]
    return _tensor_task(
        dataset,
        (train, on_visual_field(rows=rows, columns=columns)),
        (evaluation, on_visual_field(rows=[middle_row], columns=[middle_column])),
    )


def _digits_left(dataset: Dataset, options: _Options) -> Task:
    train, evaluation = _split(dataset, options)
    middle = on_visual_field(rows=[(FIELD[0] - DIGIT_SIZE) // 2], columns=[SEEN_COLUMNS[len(SEEN_COLUMNS) // 2]])
    return _tensor_task(dataset, (train, on_visual_field(columns=SEEN_COLUMNS)), (evaluation, middle))


def _tiny_imagenet(dataset: Dataset, options: _Options) -> Task:
    crop, centre = (
        Translate.within(IMAGE_SIZE, size=_TINY_CROP, padding=padding, statistics=IMAGENET)
        for padding in (options.padding, 0)
    )
    train, evaluation = _split(dataset, options, on_corrupt=options.on_corrupt)
    return _tensor_task(dataset, (train, crop), (evaluation, centre))


def _imagenet(dataset: Dataset, options: _Options) -> Task:
    if options.padding:
        warnings.warn(
            f"padding={options.padding} has no effect: ImageNet's crops are its translations; use padding=0",
            stacklevel=3,
        )
    decoders = Decoders(on_corrupt=options.on_corrupt)
    train = dataset.read(options.data_dir, train=True, complete=options.complete)
    held_out = options.held_out(dataset, len(train))
    kept, held = (rows.numpy() for rows in split_rows(len(train), held_out, options.split_seed))
    test, rows = train, held
    if not options.tuning:
        test = dataset.read(options.data_dir, train=False, complete=options.complete)
        rows = np.arange(len(test))
    return Task(
        dataset.name,
        train.classes,
        (3, IMAGENET_CROP, IMAGENET_CROP),
        EncodedSource(train, kept, train=True, decoders=decoders, crops=options.crops),
        EncodedSource(test, rows, train=False, decoders=decoders),
    )


_PREPARE: dict[str, Callable[[Dataset, _Options], Task]] = {
    "digits": _digits,
    "digits-left": _digits_left,
    "tiny-imagenet": _tiny_imagenet,
    "imagenet": _imagenet,
}


def _split(dataset: Dataset, options: _Options, **more: str) -> tuple[Images, Images]:
    """Read what to train on and what to evaluate on."""

    def read(train: bool) -> Images:
        images: Images = dataset.read(options.data_dir, train=train, complete=options.complete, **more)
        return images.to(options.device)

    train = read(True)
    if not options.tuning:
        return train, read(False)
    return train.split(options.held_out(dataset, len(train)), options.split_seed)


def _training_statistics(dataset: Dataset, options: _Options, train: Images) -> ChannelStatistics:
    if not dataset.folder:  # no files that could tell whether a stored result is still right
        return measure(train)
    folder = dataset.directory(options.data_dir)
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]
    split = f"{dataset.name}-{len(train)}-seed{options.split_seed if options.tuning else 0}"
    cache = cache_directory(options.data_dir) / f"statistics-{split}.json"
    return measured_once(train, cache, fingerprint=repr(facts))


def _tensor_task(dataset: Dataset, train: tuple[Images, Translate], evaluation: tuple[Images, Translate]) -> Task:
    images, translation = train
    input_size = (images.pixels.shape[1], *translation.size)
    return Task(dataset.name, images.classes, input_size, TensorSource(*train), TensorSource(*evaluation))


def measured_once(images: Images, cache: Path, fingerprint: str) -> ChannelStatistics:
    """Return `measure(images)`, stored in the file ``cache`` for as long as the data have this ``fingerprint``."""
    known = _read_statistics(cache, fingerprint)
    if known is not None:
        return known
    statistics = measure(images)
    try:
        with writing_to(cache.parent):
            write_atomically(cache, json.dumps({"fingerprint": fingerprint, **asdict(statistics)}) + "\n")
    except OSError as error:
        warnings.warn(f"the statistics will be computed again next time: {error}", stacklevel=2)
    return statistics


def _read_statistics(cache: Path, fingerprint: str) -> ChannelStatistics | None:
    try:
        stored = json.loads(cache.read_text())
        if stored["fingerprint"] != fingerprint:
            return None
        return ChannelStatistics(tuple(stored["mean"]), tuple(stored["std"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
