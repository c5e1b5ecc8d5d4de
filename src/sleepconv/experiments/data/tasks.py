"""A dataset made ready for training: the paper's split, translations and normalisation, by name."""

from sleepconv.names import did_you_mean

from sleepconv.experiments.data.cifar import CIFAR10, CIFAR10_16X16, CIFAR100
from sleepconv.experiments.data.description import Dataset
from sleepconv.experiments.data.digits import DIGITS
from sleepconv.experiments.data.fashion_mnist import FASHION_MNIST
from sleepconv.experiments.data.imagenet import IMAGENET_1K
from sleepconv.experiments.data.tiny_imagenet import TINY_IMAGENET
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sleepconv.experiments.data.cifar import cifar10, cifar10_16x16, cifar100
from sleepconv.experiments.data.description import Dataset
from sleepconv.experiments.data.digits import FIELD, SIZE, digits, on_visual_field
from sleepconv.experiments.data.encoded import EncodedSource
from sleepconv.experiments.data.fashion_mnist import fashion_mnist, fashion_mnist_folder
from sleepconv.experiments.data.imagenet import imagenet_folders
from sleepconv.experiments.data.images import Images, split_rows
from sleepconv.experiments.data.encoded import Decoders, OnCorrupt, check_on_corrupt
from sleepconv.experiments.data.description import StrPath, cache_directory, data_directory
from sleepconv.experiments.data.images import Source, TensorSource
from sleepconv.experiments.data.images import IMAGENET, Statistics, measured_once
from sleepconv.experiments.data.tiny_imagenet import tiny_imagenet
from sleepconv.experiments.data.translations import Translate


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (DIGITS, CIFAR10, CIFAR10_16X16, CIFAR100, TINY_IMAGENET, IMAGENET_1K, FASHION_MNIST)
}


def find_dataset(name: str) -> Dataset:
    """The dataset of that name; a typo is answered with the nearest name.

    >>> find_dataset("cifar10").title
    'CIFAR-10'
    >>> find_dataset("cifer10")
    Traceback (most recent call last):
    ValueError: there is no dataset 'cifer10'; did you mean 'cifar10'?
    """
    if name in DATASETS:
        return DATASETS[name]
    hint = did_you_mean(name, DATASETS) or f"; there are {', '.join(DATASETS)}"
    raise ValueError(f"there is no dataset {name!r}{hint}")


TINY_CROP = (48, 48)
IMAGENET_CROP = 224
HELD_OUT = {
    "digits": 144,
    "cifar10": 5_000,
    "cifar10-16x16": 5_000,
    "cifar100": 5_000,
    "tiny-imagenet": 10_000,
    "imagenet": 10_000,
    "fashion-mnist": 6_000,
}
READERS = {
    "cifar10": cifar10,
    "cifar10-16x16": cifar10_16x16,
    "cifar100": cifar100,
    "fashion-mnist": fashion_mnist,
}


@dataclass(frozen=True)
class Task:
    """What to train on and what to evaluate on, ready for `Batches`.

    >>> task = load_task("digits")
    >>> task.input_size, len(task.train), len(task.evaluation)
    ((1, 12, 24), 1437, 360)
    """

    name: str
    classes: tuple[str, ...]
    input_size: tuple[int, int, int]
    train: Source
    evaluation: Source


@dataclass(frozen=True)
class Options:
    """How a task is made; see `load_task`."""

    data_dir: Path
    padding: int
    tuning: bool
    split_seed: int
    complete: bool
    on_corrupt: OnCorrupt
    device: str

    def held_out(self, name: str, available: int) -> int:
        """How many training images become the validation set."""
        if not self.tuning:
            return 0
        return HELD_OUT[name] if self.complete else min(HELD_OUT[name], max(1, available // 10))


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
) -> Task:
    """Load a dataset as the paper uses it (section 5, Datasets and Data augmentations).

    Args:
        name: digits, cifar10, cifar10-16x16, cifar100, tiny-imagenet, imagenet or fashion-mnist.
        data_dir: where the data lie; see `data_directory`.
        padding: the greatest translation of training images in pixels; ImageNet has its own crops, so another number
            than 0 has no effect there and is warned of.
        tuning: train without a held-out part of the training set and evaluate on that part (45k/5k for CIFAR,
            90k/10k for TinyImageNet, 1.271M/10k for ImageNet), instead of all of it and the test set.
        split_seed: decides which images are held out.
        complete: insist on the official number of images.
        on_corrupt: "error" or "skip", for datasets of JPEG files.
        device: where batches are made, for datasets held in memory.

    >>> task = load_task("digits", padding=2)
    >>> task.input_size, len(task.train), len(task.evaluation)
    ((1, 12, 24), 1437, 360)
    """
    dataset = find_dataset(name)
    check_on_corrupt(on_corrupt)
    if padding < 0:
        raise ValueError(f"padding is 0 or more pixels, not {padding}")
    options = Options(data_directory(data_dir), padding, tuning, split_seed, complete, on_corrupt, device)
    makers: dict[str, Callable[[Dataset, Options], Task]] = {
        "digits": _digits,
        "tiny-imagenet": _tiny_imagenet,
        "imagenet": _imagenet,
    }
    return makers.get(name, _padded)(dataset, options)


def _digits(dataset: Dataset, options: Options) -> Task:
    train, evaluation = _split(dataset, options, lambda train: digits(train=train))
    rows, columns = (
        [(extent - SIZE) // 2 + shift for shift in range(-reach, reach + 1)]
        for extent in FIELD
        for reach in [min(options.padding, (extent - SIZE) // 2)]
    )
    middle_row, middle_column = rows[len(rows) // 2], columns[len(columns) // 2]
    return _tensor_task(
        dataset,
        (train, on_visual_field(rows=rows, columns=columns)),
        (evaluation, on_visual_field(rows=[middle_row], columns=[middle_column])),
    )


def _padded(dataset: Dataset, options: Options) -> Task:
    """CIFAR and Fashion-MNIST: pad with the training mean, crop back; evaluate the images as they are."""
    reader = READERS[dataset.name]
    train, evaluation = _split(
        dataset, options, lambda train: reader(options.data_dir, train=train, complete=options.complete)
    )
    statistics = _training_statistics(dataset, options, train)
    translations = (
        Translate.after_padding(padding, size=train.image_size, statistics=statistics)
        for padding in (options.padding, 0)
    )
    return _tensor_task(dataset, (train, next(translations)), (evaluation, next(translations)))


def _tiny_imagenet(dataset: Dataset, options: Options) -> Task:
    def read(train: bool) -> Images:
        return tiny_imagenet(options.data_dir, train=train, complete=options.complete, on_corrupt=options.on_corrupt)

    crop, centre = (
        Translate.within((64, 64), size=TINY_CROP, padding=padding, statistics=IMAGENET)
        for padding in (options.padding, 0)
    )
    train, evaluation = _split(dataset, options, read)
    return _tensor_task(dataset, (train, crop), (evaluation, centre))


def _imagenet(dataset: Dataset, options: Options) -> Task:
    if options.padding:
        warnings.warn(
            f"padding={options.padding} has no effect: ImageNet's crops are its translations; say padding=0",
            stacklevel=3,
        )
    decoders = Decoders(on_corrupt=options.on_corrupt)
    train = imagenet_folders(options.data_dir, train=True, complete=options.complete)
    held_out = options.held_out(dataset.name, len(train.labels))
    kept, held = (rows.numpy() for rows in split_rows(len(train.labels), held_out, options.split_seed))
    test, rows = train, held
    if not options.tuning:
        test = imagenet_folders(options.data_dir, train=False, complete=options.complete)
        rows = np.arange(len(test.labels))
    return Task(
        dataset.name,
        train.classes,
        (3, IMAGENET_CROP, IMAGENET_CROP),
        EncodedSource(train, kept, train=True, decoders=decoders),
        EncodedSource(test, rows, train=False, decoders=decoders),
    )


def _split(dataset: Dataset, options: Options, read: Callable[[bool], Images]) -> tuple[Images, Images]:
    train = read(True).to(options.device)
    if not options.tuning:
        return train, read(False).to(options.device)
    return train.split(options.held_out(dataset.name, len(train)), options.split_seed)


def _training_statistics(dataset: Dataset, options: Options, train: Images) -> Statistics:
    folder = options.data_dir / dataset.folder
    if dataset.name == "fashion-mnist":
        folder = fashion_mnist_folder(options.data_dir)
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]
    split = f"{dataset.name}-{len(train)}-seed{options.split_seed if options.tuning else 0}"
    cache = cache_directory(options.data_dir) / f"statistics-{split}.json"
    return measured_once(train, cache, fingerprint=repr(facts))


def _tensor_task(dataset: Dataset, train: tuple[Images, Translate], evaluation: tuple[Images, Translate]) -> Task:
    images, translation = train
    input_size = (images.pixels.shape[1], *translation.size)
    return Task(dataset.name, images.classes, input_size, TensorSource(*train), TensorSource(*evaluation))
