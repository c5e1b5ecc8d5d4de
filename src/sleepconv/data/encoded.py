"""Images that stay encoded on disk and are decoded, cropped and flipped in parallel batch by batch."""

from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from sleepconv.data.jpeg import Decoders, open_image, resized_crop
from sleepconv.data.sources import Batch
from sleepconv.data.statistics import IMAGENET, Statistics


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

    def __len__(self) -> int:
        return len(self.rows)

    def order(self, random: np.random.Generator) -> np.ndarray:
        """A random order of all images for one epoch."""
        return self.encoded.order(self.rows, random)

    def batch(self, positions: np.ndarray, chance: np.ndarray) -> Batch:
        """Decode in parallel; a corrupt image is an error or makes the batch smaller, as the decoders say."""
        rows = self.rows[positions]
        pixels = np.empty((len(rows), self.size, self.size, 3), dtype=np.uint8)

        def work(index: int) -> None:
            pixels[index] = self._crop(int(rows[index]), chance[index])

        good = self.decoders.run(work, len(rows))
        labels = torch.from_numpy(self.encoded.labels[rows])
        if not good.all():
            pixels, labels = pixels[good], labels[good]
        return self._normalised(torch.from_numpy(pixels)), labels

    def _crop(self, row: int, chance: np.ndarray) -> np.ndarray:
        image = open_image(self.encoded.read(row), self.encoded.name(row))
        where = (float(chance[0]), float(chance[1])) if self.train else (0.5, 0.5)
        crop = np.asarray(resized_crop(image, short_side=self.short_side, size=self.size, chance=where))
        return crop[:, ::-1] if self.train and chance[2] < 0.5 else crop

    def _normalised(
        self, pixels: UInt8[Tensor, "batch height width channels"]
    ) -> Float32[Tensor, "batch channels height width"]:
        """In the memory order of the decoder, which is PyTorch's channels_last."""
        scale, shift = self.statistics.scale_and_shift(pixels.device)
        return torch.mul(pixels.permute(0, 3, 1, 2), scale).add_(shift)
