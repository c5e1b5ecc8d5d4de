"""The datasets by name."""

import difflib

from sleepconv.data.cifar import CIFAR10, CIFAR10_16X16, CIFAR100
from sleepconv.data.description import Dataset
from sleepconv.data.digits import DIGITS
from sleepconv.data.fashion_mnist import FASHION_MNIST
from sleepconv.data.imagenet import IMAGENET_1K
from sleepconv.data.tiny_imagenet import TINY_IMAGENET

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
    known = {_plain(each): each for each in DATASETS}
    near = difflib.get_close_matches(_plain(name), known, n=1, cutoff=0.5)
    hint = f"did you mean {known[near[0]]!r}?" if near else f"there are {', '.join(DATASETS)}"
    raise ValueError(f"there is no dataset {name!r}; {hint}")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
