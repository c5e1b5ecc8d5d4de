"""What a loader draws from: anything that turns places in an epoch and chances into a batch."""

import zlib

import numpy as np
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
import json
import warnings
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from sleepconv.experiments.data.description import writable
from sleepconv.files import write_atomically
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor


def random_stream(purpose: str, *, seed: int, epoch: int = 0, step: int = 0) -> np.random.Generator:
    """The random numbers for one purpose at one moment of a run; the same arguments give the same numbers.

    >>> random_stream("crops", seed=1, epoch=2, step=3).integers(100, size=3).tolist()
    [93, 0, 82]
    """
    for name, value in (("seed", seed), ("epoch", epoch), ("step", step)):
        if not 0 <= value < 2**63:
            raise ValueError(f"{name} is a whole number from 0 to 2**63 - 1, not {value}")
    # Fixed width: SeedSequence pads with zeros, so (1, 2) and (1, 2, 0) would give the same numbers.
    key = np.array([zlib.crc32(purpose.encode()), seed, epoch, step], dtype=np.uint64)
    return np.random.default_rng(np.random.SeedSequence(key.view(np.uint32).tolist()))


@dataclass(frozen=True)
class Images:
    """Labelled images; ``rows`` says which of the stored ones belong, so that a split copies no pixel.

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
        """Refuse labels that name no class or do not match the images in number."""
        if len(self.labels) != len(self.pixels):
            raise ValueError(f"{len(self.pixels)} images came with {len(self.labels)} labels; each image needs one")
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
        """Pixels and labels of some of the images, by their place among ``rows``."""
        rows = self.rows[positions]
        return self.pixels.index_select(0, rows), self.labels[rows]

    def to(self, device: torch.device | str) -> "Images":
        """The same images on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("pixels", "labels", "rows")}
        return replace(self, **moved)

    def split(self, held_out: int, seed: int = 0) -> tuple["Images", "Images"]:
        """Split off ``held_out`` random images: (the rest, the held-out ones). The seed decides which."""
        kept, held = split_rows(len(self), held_out, seed)
        return replace(self, rows=self.rows[kept]), replace(self, rows=self.rows[held])


def split_rows(count: int, held_out: int, seed: int) -> tuple[Int64[Tensor, "kept"], Int64[Tensor, "held_out"]]:
    """Choose ``held_out`` of ``count`` numbers by seed; both parts come sorted.

    >>> split_rows(5, held_out=0, seed=0)[0]
    tensor([0, 1, 2, 3, 4])
    """
    if not 0 <= held_out < count:
        raise ValueError(f"cannot hold out {held_out} of {count} images; give a number from 0 to {count - 1}")
    order = random_stream("split", seed=seed).permutation(count)
    return torch.from_numpy(np.sort(order[held_out:])), torch.from_numpy(np.sort(order[:held_out]))


def check_labels(labels: Int64[Tensor, "images"], classes: int, where: object) -> None:
    """Refuse a label that names no class, with the first record that has one."""
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"record {first} of {where} has label {int(labels[first])}, but the {classes} classes are "
            f"numbered 0 to {classes - 1} ({len(wrong)} such records); it is damaged or another dataset"
        )


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of each channel, in units of pixel values (0 to 255).

    >>> scale, shift = Statistics((120.0,), (60.0,)).scale_and_shift(torch.device("cpu"))
    >>> round((scale * 180 + shift).item(), 3)
    1.0
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what cannot normalise."""
        if len(self.mean) != len(self.std) or not all(s > 0 for s in self.std):
            raise ValueError(f"each channel needs a mean and a deviation above 0, not {self.mean}, {self.std}")

    def scale_and_shift(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The factors a, b of the normalisation a·x + b, shaped for (batch, channels, height, width)."""
        return _scale_and_shift(self, device)


@lru_cache(maxsize=32)
def _scale_and_shift(
    statistics: Statistics, device: torch.device
) -> tuple[Float32[Tensor, "channels 1 1"], Float32[Tensor, "channels 1 1"]]:
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (statistics.mean, statistics.std))
    return (1 / std).float().to(device), (-mean / std).float().to(device)


IMAGENET = Statistics((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))


def measure(images: Images) -> Statistics:
    """Exact mean and deviation of every channel, from the histogram of its pixel values.

    >>> pixels = torch.tensor([0, 2], dtype=torch.uint8).reshape(2, 1, 1, 1)
    >>> measure(Images(pixels, torch.zeros(2, dtype=torch.int64), ("only",)))
    Statistics(mean=(1.0,), std=(1.0,))
    """
    # NumPy, one thread: many short parallel regions stall for seconds when another program has the cores.
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
        raise ValueError(f"a channel of these {len(images)} images is constant, so it cannot be normalised")
    return Statistics(tuple(mean.tolist()), tuple(std.tolist()))


def measured_once(images: Images, cache: Path, fingerprint: str) -> Statistics:
    """`measure`, remembered in the file ``cache`` as long as the ``fingerprint`` of the data is the same."""
    known = _read(cache, fingerprint)
    if known is not None:
        return known
    statistics = measure(images)
    try:
        with writable(cache.parent):
            write_atomically(cache, json.dumps({"fingerprint": fingerprint, **asdict(statistics)}) + "\n")
    except OSError as error:
        warnings.warn(f"the statistics will be computed again next time: {error}", stacklevel=2)
    return statistics


def _read(cache: Path, fingerprint: str) -> Statistics | None:
    try:
        stored = json.loads(cache.read_text())
        if stored["fingerprint"] != fingerprint:
            return None
        return Statistics(tuple(stored["mean"]), tuple(stored["std"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


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

    >>> from sleepconv.experiments.data import digits, on_visual_field
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
        """The label of every image, in the source's own order."""
        return self.images.labels[self.images.rows]

    def order(self, random: np.random.Generator) -> np.ndarray:
        """A random order of all images for one epoch."""
        return random.permutation(len(self))

    def batch(self, positions: np.ndarray, chance: np.ndarray) -> Batch:
        """Gather, then transform, on the device of the images."""
        pixels, labels = self.images.take(torch.from_numpy(positions).to(self.images.pixels.device))
        return self.transform(pixels, torch.from_numpy(chance)), labels
