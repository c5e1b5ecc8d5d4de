"""Channel means and deviations for normalisation: ImageNet's constants, or computed once and cached."""

import json
import warnings
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from sleepconv.data.images import Images
from sleepconv.data.locations import writable
from sleepconv.files import write_atomically


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
