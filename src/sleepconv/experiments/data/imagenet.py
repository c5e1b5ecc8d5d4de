"""ImageNet from the usual train/ and val/ class folders; images are decoded and cropped batch by batch."""

import os
import warnings
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from sleepconv.experiments.data.decoding import Decoders, open_image, random_resized_crop, resized_crop
from sleepconv.experiments.data.description import INCOMPLETE, Dataset, StrPath, data_directory
from sleepconv.experiments.data.images import IMAGENET, Batch, ChannelStatistics
from sleepconv.experiments.data.translations import Buffers
from sleepconv.experiments.runs.run import Crops

_SUFFIXES = (".jpeg", ".jpg", ".png")


class ImageFolders:
    """Image files in one folder per class.

    Args:
        folder: the folder of the class folders.
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
        self.classes = _class_folders(folder) if classes is None else classes
        files = [self._list(name) for name in self.classes]
        self.files = [name for names in files for name in names]
        self.labels = np.repeat(np.arange(len(files)), [len(names) for names in files])

    def __len__(self) -> int:
        return len(self.files)

    def _list(self, name: str) -> list[str]:
        try:
            found = sorted(entry.name for entry in os.scandir(self.folder / name) if _is_image(entry.name))
        except (FileNotFoundError, NotADirectoryError):
            found = []
        if not found:
            raise FileNotFoundError(f"the class folder {self.folder / name} is missing or has no image; restore it")
        return found

    def name(self, row: int) -> str:
        """Return the path of an image."""
        return os.path.join(self.folder, self.classes[self.labels[row]], self.files[row])

    def read(self, row: int) -> bytes:
        """Return the content of an image file."""
        with open(self.name(row), "rb") as file:
            return file.read()


def imagenet_folders(data_dir: StrPath | None = None, *, train: bool = True, complete: bool = True) -> ImageFolders:
    """List ImageNet: 1,281,167 training images, or the 50,000 official validation images as the test set.

    ``complete=False`` accepts fewer than the official thousand classes; train/ and val/ must still agree.

    >>> imagenet_folders("no/such/folder")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: train is missing; `sleepconv data get imagenet` says where to get ImageNet
    """
    folder = data_directory(data_dir) / IMAGENET_1K.folder
    classes, others = _class_folders(folder / "train"), _class_folders(folder / "val")
    if classes != others:
        first = min(set(classes) ^ set(others))
        lacking = folder / ("val" if first in classes else "train")
        raise FileNotFoundError(
            f"the class folder {lacking / first} is missing: train/ has {len(classes)} classes, val/ {len(others)}"
        )
    if complete and len(classes) != 1000:
        raise ValueError(f"{folder / 'train'} has {len(classes)} class folders, but ImageNet has 1000; {INCOMPLETE}")
    return ImageFolders(folder / ("train" if train else "val"), classes)


IMAGENET_1K = Dataset(
    name="imagenet",
    title="ImageNet",
    read=imagenet_folders,
    train_images=1_281_167,
    test_images=50_000,
    held_out=10_000,
    folder="imagenet",
    advice=(
        "ImageNet cannot be downloaded without an account: take ILSVRC2012_img_train.tar and "
        "ILSVRC2012_img_val.tar from https://image-net.org (or the Kaggle copy) and arrange them in class "
        "folders, train/n01440764/*.JPEG … and val/n01440764/*.JPEG …"
    ),
)


def check_crops(crops: str) -> None:
    """Raise a ValueError unless this is one of ``Crops``."""
    if crops not in get_args(Crops):
        raise ValueError(f"`crops` must be one of {', '.join(get_args(Crops))}, got {crops!r}")


class EncodedSource:
    """Batches for ImageNet-style training: resize the short side to 256, crop 224 at random, flip, normalise.

    With ``crops="random_resized"`` size and shape of the crops are random too; see ``random_resized_crop``.

    With ``train=False`` it resizes, takes the centre crop and normalises.

    Args:
        files: the image files.
        rows: the files that belong to this split.
        train: whether to crop and flip at random, or to take the centre crop.
        decoders: the threads that decode, and what they do with corrupt images.
        short_side: the size to which the short side is resized.
        size: the size of the crop.
        crops: "random", as the paper's text says, or "random_resized", as its published runs did.
        statistics: mean and standard deviation for the normalisation.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "grey").mkdir()
    >>> Image.new("RGB", (300, 260), "grey").save(folder / "grey" / "1.jpg")
    >>> source = EncodedSource(ImageFolders(folder), np.arange(1), train=False, decoders=Decoders(1))
    >>> source.batch(np.array([0]), np.zeros((1, 3)))[0].shape
    torch.Size([1, 3, 224, 224])
    """

    def __init__(
        self,
        files: ImageFolders,
        rows: Int64[np.ndarray, "images"],
        *,
        train: bool,
        decoders: Decoders,
        short_side: int = 256,
        size: int = 224,
        statistics: ChannelStatistics = IMAGENET,
        crops: Crops = "random",
    ) -> None:
        check_crops(crops)
        if not 1 <= size <= short_side:
            raise ValueError(f"`size` must be from 1 to `short_side` ({short_side}), got {size}")
        self.files, self.rows, self.classes, self.train, self.crops = files, rows, files.classes, train, crops
        self.decoders, self.short_side, self.size, self.statistics = decoders, short_side, size, statistics
        factors = statistics.scale_and_shift(torch.device("cpu"))
        self._scale, self._shift = (np.tile(factor.flatten().numpy(), size) for factor in factors)
        self._buffers = Buffers()
        self._skipped: set[int] = set()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Int64[Tensor, "images"]:
        """The label of every image, in the order of the source."""
        return torch.from_numpy(self.files.labels[self.rows])

    def order(self, random: np.random.Generator) -> np.ndarray:
        """Return the images in random order, for one epoch."""
        return random.permutation(len(self))

    def batch(self, positions: np.ndarray, chance: np.ndarray) -> Batch:
        """Decode images in parallel; a corrupt image raises an error or is left out, as the decoders say."""
        rows = self.rows[positions]
        inputs = self._buffers.take((len(rows), self.size, self.size * 3))

        def work(index: int) -> None:
            pixels = self._crop(int(rows[index]), chance[index])
            np.multiply(pixels.reshape(self.size, -1), self._scale, out=inputs[index], casting="same_kind")
            np.add(inputs[index], self._shift, out=inputs[index])

        good = self.decoders.run(work, len(rows))
        labels = torch.from_numpy(self.files.labels[rows])
        if not good.all():
            self._report_skipped(rows[~good].tolist())
            inputs, labels = inputs[good], labels[good]
        # In the memory order of the decoder, which is PyTorch's channels_last.
        return torch.from_numpy(inputs).view(-1, self.size, self.size, 3).permute(0, 3, 1, 2), labels

    def _report_skipped(self, rows: list[int]) -> None:
        """Warn of images that are left out, once of each."""
        new = sorted(set(rows) - self._skipped)
        self._skipped.update(new)
        if new:
            names = ", ".join(self.files.name(row) for row in new[:5])
            warnings.warn(f"{len(self._skipped)} corrupt images have been left out so far, new: {names}", stacklevel=2)

    def _crop(self, row: int, chance: np.ndarray) -> UInt8[np.ndarray, "size size 3"]:
        image = open_image(self.files.read(row), self.files.name(row))
        if not self.train:
            return resized_crop(image, short_side=self.short_side, size=self.size, chance=(0.5, 0.5))
        if self.crops == "random_resized":
            # More than the three numbers are needed; all of them follow from these.
            random = np.random.default_rng((chance * 2**53).astype(np.int64))
            return random_resized_crop(image, size=self.size, random=random)
        place, flip = (float(chance[0]), float(chance[1])), bool(chance[2] < 0.5)
        return resized_crop(image, short_side=self.short_side, size=self.size, chance=place, flip=flip)


def _class_folders(folder: Path) -> tuple[str, ...]:
    """Return the names of the class folders in ``folder``, sorted."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is missing; it should have one folder of images per class (`sleepconv data get imagenet` says "
            "where to get ImageNet)"
        )
    entries = list(os.scandir(folder))
    names = tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))
    if not names:
        loose = sum(_is_image(entry.name) for entry in entries)
        raise ValueError(
            f"{folder} has no class folders but {loose} images outside of any; sort them into one folder per class "
            "(ImageNet's val/ according to its ground-truth list)"
        )
    return names


def _is_image(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)
