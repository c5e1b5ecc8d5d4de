"""How images of an experiment become a network's input: its size, its colours, its normalisation."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor
from torch.nn.functional import interpolate

from sleepconv.brain.datasets import Pictures
from sleepconv.data import IMAGENET, Statistics, load_task
from sleepconv.data.locations import StrPath

# Of the 50,000 training images each, so that networks can be scored without the images that they were trained on.
CIFAR10 = Statistics(
    (125.306918046875, 122.95039414062497, 113.86538318359375),
    (62.993219278136934, 62.088707640014185, 66.70489964063097),
)
CIFAR100 = Statistics(
    (129.30416560546874, 124.06996269531253, 112.43405005859375),
    (68.1702428992064, 65.39180804385748, 70.41837018804938),
)
STATISTICS = {"cifar10": CIFAR10, "cifar100": CIFAR100, "tiny-imagenet": IMAGENET, "imagenet": IMAGENET}
LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Preparation:
    """Bring images to ``input_size`` (channels, height, width) and normalise them as in training.

    Grey images get three equal channels for a network that sees colour, and colours become luminance for one that
    does not. The largest middle part of the input's shape is scaled to the input's size, with antialiasing.

    >>> Preparation((3, 32, 32), CIFAR10)(np.zeros((5, 96, 96), np.uint8)).shape
    torch.Size([5, 3, 32, 32])
    """

    input_size: tuple[int, int, int]
    statistics: Statistics

    def __call__(self, images: Pictures) -> Float32[Tensor, "images channels height width"]:
        """The network's input for a batch of images."""
        pixels = torch.from_numpy(images.astype(np.float32))
        pixels = pixels[:, None] if pixels.ndim == 3 else pixels.movedim(3, 1)
        pixels = _scaled(_coloured(pixels, self.input_size[0]), self.input_size[1:])
        scale, shift = self.statistics.scale_and_shift(pixels.device)
        return pixels * scale + shift


def preparation_for(dataset: str, input_size: tuple[int, int, int], data_dir: StrPath | None = None) -> Preparation:
    """The preparation for a network that was trained on a dataset.

    >>> preparation_for("cifar10", (3, 32, 32)).statistics == CIFAR10
    True
    """
    statistics = STATISTICS.get(dataset) or load_task(dataset, data_dir=data_dir).train.statistics
    return Preparation(input_size, statistics)


def _coloured(pixels: Tensor, channels: int) -> Tensor:
    if pixels.shape[1] == channels:
        return pixels
    if channels == 3:
        return pixels.expand(-1, 3, -1, -1)
    return (pixels * torch.tensor(LUMINANCE)[:, None, None]).sum(dim=1, keepdim=True)


def _scaled(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    height, width = pixels.shape[2:]
    scale = min(height / size[0], width / size[1])
    part = [round(extent * scale) for extent in size]
    top, left = (height - part[0]) // 2, (width - part[1]) // 2
    pixels = pixels[:, :, top : top + part[0], left : left + part[1]]
    return pixels if tuple(part) == size else interpolate(pixels, size, mode="bilinear", antialias=True)
