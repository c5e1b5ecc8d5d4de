"""Images that stay encoded on disk and are decoded, cropped and flipped in parallel batch by batch."""

import warnings
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from sleepconv.data.buffers import Buffers
from sleepconv.data.jpeg import Decoders, open_image, resized_crop
from sleepconv.data.sources import Batch
from sleepconv.data.statistics import IMAGENET, Statistics


@runtime_checkable
class EncodedImages(Protocol):
    """Labelled image files, wherever they lie."""

    labels: Int64[np.ndarray, "stored"]
    classes: tuple[str, ...]

    def name(self, row: int) -> str:
        """What to call this image in a message."""
        ...

    def read(self, row: int) -> bytes:
        """The content of the image file."""
        ...

    def order(self, rows: Int64[np.ndarray, "images"], random: np.random.Generator) -> np.ndarray:
        """Put the numbers of ``rows`` in a random order that suits where the images lie."""
        ...


class EncodedSource:
    """Batches for ImageNet-style training: resize the short side to 256, crop 224 at random, flip, normalise.

    With ``train=False``: resize, centre crop, normalise.

    Args:
        encoded: the image files.
        rows: which of them belong to this split.
        train: random crops and flips, or centre crops.
        decoders: the threads that decode, and what to do with corrupt images.
        short_side: the size to which the short side is resized.
        size: the size of the crop.
        statistics: for the normalisation.

    >>> import io
    >>> from PIL import Image
    >>> class OneGreyImage:
    ...     classes, labels = ("grey",), np.zeros(1, np.int64)
    ...     def name(self, row):
    ...         return "grey.jpg"
    ...     def read(self, row):
    ...         file = io.BytesIO()
    ...         Image.new("RGB", (300, 260), "grey").save(file, "JPEG")
    ...         return file.getvalue()
    >>> source = EncodedSource(OneGreyImage(), np.zeros(1, np.int64), train=False, decoders=Decoders(1))
    >>> source.batch(np.array([0]), np.zeros((1, 3)))[0].shape
    torch.Size([1, 3, 224, 224])
    """

    def __init__(
        self,
        encoded: EncodedImages,
        rows: Int64[np.ndarray, "images"],
        *,
        train: bool,
        decoders: Decoders,
        short_side: int = 256,
        size: int = 224,
        statistics: Statistics = IMAGENET,
    ) -> None:
        if not 1 <= size <= short_side:
            raise ValueError(f"a crop of {size} does not fit a short side of {short_side}")
        self.encoded, self.rows, self.classes, self.train = encoded, rows, encoded.classes, train
        self.decoders, self.short_side, self.size, self.statistics = decoders, short_side, size, statistics
        factors = statistics.scale_and_shift(torch.device("cpu"))
        self._scale, self._shift = (np.tile(factor.flatten().numpy(), size) for factor in factors)
        self._buffers = Buffers()
        self._skipped: set[int] = set()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Int64[Tensor, "images"]:
        """The label of every image, in the source's own order."""
        return torch.from_numpy(self.encoded.labels[self.rows])

    def order(self, random: np.random.Generator) -> np.ndarray:
        """A random order of all images for one epoch."""
        return self.encoded.order(self.rows, random)

    def batch(self, positions: np.ndarray, chance: np.ndarray) -> Batch:
        """Decode in parallel; a corrupt image is an error or makes the batch smaller, as the decoders say."""
        rows = self.rows[positions]
        inputs = self._buffers.take((len(rows), self.size, self.size * 3))

        def work(index: int) -> None:
            pixels = self._crop(int(rows[index]), chance[index])
            np.multiply(pixels.reshape(self.size, -1), self._scale, out=inputs[index], casting="same_kind")
            np.add(inputs[index], self._shift, out=inputs[index])

        good = self.decoders.run(work, len(rows))
        labels = torch.from_numpy(self.encoded.labels[rows])
        if not good.all():
            self._report_skipped(rows[~good].tolist())
            inputs, labels = inputs[good], labels[good]
        # In the memory order of the decoder, which is PyTorch's channels_last.
        return torch.from_numpy(inputs).view(-1, self.size, self.size, 3).permute(0, 3, 1, 2), labels

    def _report_skipped(self, rows: list[int]) -> None:
        """Name each image that is left out, once."""
        new = sorted(set(rows) - self._skipped)
        self._skipped.update(new)
        if new:
            names = ", ".join(self.encoded.name(row) for row in new[:5])
            warnings.warn(f"{len(self._skipped)} corrupt images are left out by now, new: {names}", stacklevel=2)

    def _crop(self, row: int, chance: np.ndarray) -> UInt8[np.ndarray, "size size 3"]:
        image = open_image(self.encoded.read(row), self.encoded.name(row))
        if not self.train:
            return resized_crop(image, short_side=self.short_side, size=self.size, chance=(0.5, 0.5))
        place, flip = (float(chance[0]), float(chance[1])), bool(chance[2] < 0.5)
        return resized_crop(image, short_side=self.short_side, size=self.size, chance=place, flip=flip)
