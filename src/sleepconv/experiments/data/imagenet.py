"""ImageNet from the usual train/ and val/ class folders."""

import os
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from sleepconv.experiments.data.description import Dataset
from sleepconv.experiments.data.description import StrPath, data_directory

SUFFIXES = (".jpeg", ".jpg", ".png")
IMAGENET_1K = Dataset(
    name="imagenet",
    title="ImageNet",
    folder="imagenet",
    advice=(
        "ImageNet cannot be downloaded without an account: take ILSVRC2012_img_train.tar and "
        "ILSVRC2012_img_val.tar from https://image-net.org (or the Kaggle copy) and arrange them in class "
        "folders, train/n01440764/*.JPEG … and val/n01440764/*.JPEG …"
    ),
)


class ImageFolders:
    """Image files in one folder per class.

    Args:
        folder: holds the class folders.
        classes: the class folders to read; all by default.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
    ...     (folder / name).parent.mkdir(exist_ok=True)
    ...     (folder / name).touch()
    >>> ImageFolders(folder).classes, ImageFolders(folder).labels.tolist()
    (('cat', 'dog'), [0, 0, 1])
    """

    def __init__(self, folder: Path, classes: tuple[str, ...] | None = None) -> None:
        self.folder = folder
        self.classes = class_folders(folder) if classes is None else classes
        files = [self._list(name) for name in self.classes]
        self.files = [name for names in files for name in names]
        self.labels = np.repeat(np.arange(len(files)), [len(names) for names in files])

    def _list(self, name: str) -> list[str]:
        try:
            found = sorted(entry.name for entry in os.scandir(self.folder / name) if _is_image(entry.name))
        except (FileNotFoundError, NotADirectoryError):
            found = []
        if not found:
            raise FileNotFoundError(f"the class folder {self.folder / name} is missing or has no image; restore it")
        return found

    def name(self, row: int) -> str:
        """The path of an image."""
        return os.path.join(self.folder, self.classes[self.labels[row]], self.files[row])

    def read(self, row: int) -> bytes:
        """The content of an image file."""
        with open(self.name(row), "rb") as file:
            return file.read()

    def order(self, rows: Int64[np.ndarray, "images"], random: np.random.Generator) -> np.ndarray:
        """A plain permutation."""
        return random.permutation(len(rows))


def imagenet_folders(data_dir: StrPath | None = None, *, train: bool = True, complete: bool = True) -> ImageFolders:
    """List ImageNet: 1,281,167 training images, or as test set the 50,000 official validation images.

    ``complete=False`` accepts fewer than the official thousand classes; train/ and val/ must still agree.

    >>> imagenet_folders("no/such/folder")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: train is missing; `sleepconv data get imagenet` says where ImageNet comes from
    """
    folder = data_directory(data_dir) / IMAGENET_1K.folder
    classes, others = class_folders(folder / "train"), class_folders(folder / "val")
    if classes != others:
        first = min(set(classes) ^ set(others))
        lacking = folder / ("val" if first in classes else "train")
        raise FileNotFoundError(
            f"the class folder {lacking / first} is missing: train/ has {len(classes)} classes, val/ {len(others)}"
        )
    if complete and len(classes) != 1000:
        raise ValueError(
            f"{folder / 'train'} has {len(classes)} class folders, but ImageNet has 1000; complete=False accepts that"
        )
    return ImageFolders(folder / ("train" if train else "val"), classes)


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of the class folders in ``folder``, sorted."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is missing; it holds one folder of images per class (`sleepconv data get imagenet` says where "
            "ImageNet comes from)"
        )
    entries = list(os.scandir(folder))
    names = tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))
    if not names:
        loose = sum(_is_image(entry.name) for entry in entries)
        raise ValueError(
            f"{folder} has no class folders but {loose} loose images; sort them into one folder per class "
            "(for ImageNet's val/ with its ground-truth list)"
        )
    return names


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)
