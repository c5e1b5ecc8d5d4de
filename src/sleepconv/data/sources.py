"""What a loader draws from: anything that turns places in an epoch and chances into a batch."""

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor

from sleepconv.data.images import Images
from sleepconv.data.statistics import Statistics

Batch = tuple[Float32[Tensor, "batch channels height width"], Int64[Tensor, "batch"]]
CHANCES = 3


@runtime_checkable
class Transform(Protocol):
    """Pixels in, normalised images out; all randomness comes in as uniform numbers in [0, 1)."""

    statistics: Statistics

    def __call__(
        self,
        pixels: UInt8[Tensor, "batch channels height width"],
        chance: Float[Tensor, "batch chances"],
    ) -> Float32[Tensor, "batch channels canvas_height canvas_width"]:
        """Turn a batch of pixels into network inputs."""
        ...


@runtime_checkable
class Source(Protocol):
    """Labelled images that a loader can draw in any order.

    >>> from sleepconv.data import digits, on_visual_field
    >>> source: Source = TensorSource(digits(), on_visual_field())
    >>> images, labels = source.batch(np.array([0, 1]), np.zeros((2, 3)))
    >>> images.shape
    torch.Size([2, 1, 12, 24])
    """

    classes: tuple[str, ...]
    statistics: Statistics

    def __len__(self) -> int: ...

    @property
    def labels(self) -> Int64[Tensor, "images"]:
        """The label of every image, in the source's own order."""
        ...

    def order(self, random: np.random.Generator) -> np.ndarray:
        """A random order of all images for one epoch."""
        ...

    def batch(self, positions: np.ndarray, chance: np.ndarray) -> Batch:
        """The images at ``positions``, changed as ``chance`` (one row of uniform numbers per image) says."""
        ...


class TensorSource:
    """Images in memory (or memory-mapped) with a transform for whole batches.

    >>> from sleepconv.data.digits import digits, on_visual_field
    >>> source = TensorSource(digits(), on_visual_field(columns=range(5)))
    >>> inputs, labels = source.batch(np.array([0, 7]), np.zeros((2, CHANCES)))
    >>> inputs.shape
    torch.Size([2, 1, 12, 24])
    """

    def __init__(self, images: Images, transform: Transform) -> None:
        self.images, self.transform = images, transform
        self.classes, self.statistics = images.classes, transform.statistics

    def __len__(self) -> int:
        return len(self.images)

    @property
    def labels(self) -> Int64[Tensor, "images"]:
        """The label of every image, in the source's own order."""
        return self.images.labels[self.images.rows]

    def order(self, random: np.random.Generator) -> np.ndarray:
        """A random order of all images for one epoch."""
        return random.permutation(len(self))

    def batch(self, positions: np.ndarray, chance: np.ndarray) -> Batch:
        """Gather, then transform, on the device of the images."""
        pixels, labels = self.images.take(torch.from_numpy(positions).to(self.images.pixels.device))
        return self.transform(pixels, torch.from_numpy(chance)), labels
