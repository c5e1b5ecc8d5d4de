"""Labelled images, their statistics, and the sources that `Batches` draws from."""

import zlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor

Batch = tuple[Float32[Tensor, "batch channels height width"], Int64[Tensor, "batch"]]
CHANCES = 3  # random numbers per image: row, column and flip


@dataclass(frozen=True)
class Images:
    """Labelled images; ``rows`` selects some of those stored, so that a split copies no pixels.

    >>> images = Images(torch.zeros(10, 3, 4, 4, dtype=torch.uint8), torch.arange(10) % 2, ("cat", "dog"))
    >>> train, validation = images.split(held_out=3, seed=0)
    >>> len(train), len(validation)
    (7, 3)
    """

    pixels: UInt8[Tensor, "stored channels height width"]
    labels: Int64[Tensor, "stored"]
    classes: tuple[str, ...]
    rows: Int64[Tensor, "images"] = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check that there is one valid label for each image."""
        if len(self.labels) != len(self.pixels):
            raise ValueError(f"each image needs one label, got {len(self.pixels)} images and {len(self.labels)} labels")
        check_labels(self.labels, len(self.classes), "these images")
        if self.rows is None:
            object.__setattr__(self, "rows", torch.arange(len(self.labels)))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[2], self.pixels.shape[3]

    def take(self, positions: Int64[Tensor, "taken"]) -> tuple[Tensor, Tensor]:
        """Return the pixels and labels of the images at these positions in ``rows``."""
        rows = self.rows[positions]
        return self.pixels.index_select(0, rows), self.labels[rows]

    def to(self, device: torch.device | str) -> "Images":
        """Return the same images on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("pixels", "labels", "rows")}
        return replace(self, **moved)

    def split(self, held_out: int, seed: int = 0) -> tuple["Images", "Images"]:
        """Split into (the rest, ``held_out`` random images), chosen by ``seed``."""
        kept, held = split_rows(len(self), held_out, seed)
        return replace(self, rows=self.rows[kept]), replace(self, rows=self.rows[held])


@dataclass(frozen=True)
class ChannelStatistics:
    """Mean and standard deviation of each channel, in units of pixel values (0 to 255).

    >>> scale, shift = ChannelStatistics((120.0,), (60.0,)).scale_and_shift(torch.device("cpu"))
    >>> round((scale * 180 + shift).item(), 3)
    1.0
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that the statistics can normalise."""
        if len(self.mean) != len(self.std) or not all(s > 0 for s in self.std):
            raise ValueError(f"each channel needs a mean and a deviation above 0, got {self.mean} and {self.std}")

    def scale_and_shift(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return a and b of the normalisation a·x + b, shaped to broadcast over (batch, channels, height, width)."""
        return _scale_and_shift(self, device)


@lru_cache(maxsize=32)
def _scale_and_shift(
    statistics: ChannelStatistics, device: torch.device
) -> tuple[Float32[Tensor, "channels 1 1"], Float32[Tensor, "channels 1 1"]]:
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (statistics.mean, statistics.std))
    return (1 / std).float().to(device), (-mean / std).float().to(device)


IMAGENET = ChannelStatistics((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))


def measure(images: Images) -> ChannelStatistics:
    """Compute the exact mean and deviation of each channel, from the histogram of its pixel values.

    >>> pixels = torch.tensor([0, 2], dtype=torch.uint8).reshape(2, 1, 1, 1)
    >>> measure(Images(pixels, torch.zeros(2, dtype=torch.int64), ("only",)))
    ChannelStatistics(mean=(1.0,), std=(1.0,))
    """
    # NumPy in one thread: many short parallel regions stall for seconds when another program uses the cores.
    pixels = images.pixels.cpu().numpy()
    counts = np.zeros((pixels.shape[1], 256))
    for rows in images.rows.cpu().split(1024):
        for channel, values in enumerate(pixels[rows.numpy()].swapaxes(0, 1)):
            counts[channel] += np.bincount(values.ravel(), minlength=256)
    values = np.arange(256.0)
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    std = np.sqrt(np.maximum(shares @ values**2 - mean**2, 0))
    if not (std > 0).all():
        raise ValueError(f"cannot normalise {len(images)} images: a channel is constant")
    return ChannelStatistics(tuple(mean.tolist()), tuple(std.tolist()))


@runtime_checkable
class Transform(Protocol):
    """A function from pixels to normalised images; its randomness is given as uniform numbers in [0, 1)."""

    statistics: ChannelStatistics

    def __call__(
        self,
        pixels: UInt8[Tensor, "batch channels height width"],
        chance: Float[Tensor, "batch chances"],
    ) -> Float32[Tensor, "batch channels canvas_height canvas_width"]:
        """Transform a batch of pixels into network inputs."""
        ...


@runtime_checkable
class Source(Protocol):
    """Labelled images that `Batches` can draw in any order.

    >>> from sleepconv.experiments.data import digits, on_visual_field
    >>> source: Source = TensorSource(digits(), on_visual_field())
    >>> images, labels = source.batch(np.array([0, 1]), np.zeros((2, 3)))
    >>> images.shape
    torch.Size([2, 1, 12, 24])
    """

    classes: tuple[str, ...]
    statistics: ChannelStatistics

    def __len__(self) -> int: ...

    @property
    def labels(self) -> Int64[Tensor, "images"]:
        """The label of every image, in the order of the source."""
        ...

    def order(self, random: np.random.Generator) -> np.ndarray:
        """Return the images in random order, for one epoch."""
        ...

    def batch(self, positions: np.ndarray, chance: np.ndarray) -> Batch:
        """Return the images at ``positions``, transformed by ``chance`` (a row of uniform numbers for each image)."""
        ...


class TensorSource:
    """Images in memory (or memory-mapped) and the transform that makes batches of them.

    >>> from sleepconv.experiments.data.digits import digits, on_visual_field
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
        """The label of every image, in the order of the source."""
        return self.images.labels[self.images.rows]

    def order(self, random: np.random.Generator) -> np.ndarray:
        """Return the images in random order, for one epoch."""
        return random.permutation(len(self))

    def batch(self, positions: np.ndarray, chance: np.ndarray) -> Batch:
        """Gather and transform images on their device."""
        pixels, labels = self.images.take(torch.from_numpy(positions).to(self.images.pixels.device))
        return self.transform(pixels, torch.from_numpy(chance)), labels


def split_rows(count: int, held_out: int, seed: int) -> tuple[Int64[Tensor, "kept"], Int64[Tensor, "held_out"]]:
    """Split the numbers below ``count`` into (the rest, ``held_out`` random ones), both sorted.

    >>> split_rows(5, held_out=0, seed=0)[0]
    tensor([0, 1, 2, 3, 4])
    """
    if not 0 <= held_out < count:
        raise ValueError(f"cannot hold out {held_out} of {count} images; `held_out` must be from 0 to {count - 1}")
    order = random_stream("split", seed=seed).permutation(count)
    return torch.from_numpy(np.sort(order[held_out:])), torch.from_numpy(np.sort(order[:held_out]))


def check_labels(labels: Int64[Tensor, "images"], classes: int, where: object) -> None:
    """Raise an error that gives the first record whose label is not that of a class, if there is one."""
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"record {first} of {where} has label {int(labels[first])}, but the {classes} classes are "
            f"numbered 0 to {classes - 1} ({len(wrong)} such records); the data are damaged or another dataset"
        )


def random_stream(purpose: str, *, seed: int, epoch: int = 0, step: int = 0) -> np.random.Generator:
    """Return a generator for one purpose at one step of a run; the same arguments give the same numbers.

    >>> random_stream("crops", seed=1, epoch=2, step=3).integers(100, size=3).tolist()
    [93, 0, 82]
    """
    for name, value in (("seed", seed), ("epoch", epoch), ("step", step)):
        if not 0 <= value < 2**63:
            raise ValueError(f"`{name}` must be an integer from 0 to 2**63 - 1, got {value}")
    # Fixed width: SeedSequence pads with zeros, so (1, 2) and (1, 2, 0) would give the same numbers.
    key = np.array([zlib.crc32(purpose.encode()), seed, epoch, step], dtype=np.uint64)
    return np.random.default_rng(np.random.SeedSequence(key.view(np.uint32).tolist()))
