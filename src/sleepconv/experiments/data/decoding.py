"""Decode image files, in parallel, and crop them."""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from sleepconv.experiments.runs.machine import available_cores

if TYPE_CHECKING:
    from PIL.Image import Image

OnCorrupt = Literal["error", "skip"]


class CorruptImageError(ValueError):
    """An image file that cannot be used, called ``name``.

    >>> CorruptImageError("n01440764_1.jpg", "is cut short").name
    'n01440764_1.jpg'
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"{name} {reason}; replace or remove it, or skip such images with on_corrupt='skip' (--on-corrupt skip)"
        )
        self.name = name


def check_on_corrupt(on_corrupt: str) -> None:
    """Raise an error if ``on_corrupt`` is neither "error" nor "skip"."""
    if on_corrupt not in get_args(OnCorrupt):
        raise ValueError(f"`on_corrupt` must be 'error' or 'skip', got {on_corrupt!r}")


def open_image(content: bytes, name: str) -> "Image":
    """Decode an image file to RGB; ``name`` is for the error message."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("decoding images needs Pillow: pip install pillow") from error
    try:
        image = Image.open(io.BytesIO(content))
        image.decodermaxblock = len(content)  # in one block: 4 % faster than in the default 64 kB blocks
        image.load()
        return image if image.mode == "RGB" else image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise CorruptImageError(name, f"is not a readable image ({error})") from error


def decode(content: bytes, name: str, size: tuple[int, int]) -> np.ndarray:
    """Decode an image file that must have this height and width to an array (height, width, 3) of uint8."""
    image = open_image(content, name)
    if (image.height, image.width) != size:
        raise CorruptImageError(name, f"has {image.height}×{image.width} pixels, not {size[0]}×{size[1]}")
    return np.asarray(image)


def resized_crop(
    image: "Image", *, short_side: int, size: int, chance: tuple[float, float], flip: bool = False
) -> UInt8[np.ndarray, "size size 3"]:
    """Resize the short side to ``short_side`` and crop ``size``×``size``, computing only the crop.

    The crop is cut from the original at an integer pixel position and then resized (bilinear, antialiased).
    ``chance`` in [0, 1) chooses row and column; (0.5, 0.5) is the centre.
    """
    short = min(image.width, image.height)
    extent = -(-size * short // short_side)
    top, left = (
        int(share * (side - extent + 1)) for share, side in zip(chance, (image.height, image.width), strict=True)
    )
    pixels = _cut(image, top, left, extent, extent, flip)
    # The output has floor(extent · scale) pixels; the last digit must not turn 224 into 223.
    scale = short_side / short * (1 + 1e-9)
    resized = interpolate(pixels, scale_factor=scale, mode="bilinear", antialias=True)
    return resized[0, :, :size, :size].permute(1, 2, 0).numpy()


def random_resized_crop(image: "Image", *, size: int, random: np.random.Generator) -> UInt8[np.ndarray, "size size 3"]:
    """Cut out 8 to 100 % of the area, 3:4 to 4:3 in shape, resize it to ``size``×``size``, and flip it, all at random.

    What ``torchvision.transforms.RandomResizedCrop`` does by default, followed by a random flip: area and logarithm of
    the shape are drawn up to ten times, until the crop fits; if it never does, the largest one in the middle is taken.
    """
    sides = np.array([image.height, image.width])
    for _ in range(10):
        area, shape = random.uniform(0.08, 1.0), np.exp(random.uniform(-1, 1) * np.log(4 / 3))
        extent = np.rint(np.sqrt(area * sides.prod() * np.array([1 / shape, shape]))).astype(int)
        if (extent >= 1).all() and (extent <= sides).all():
            top, left = (random.integers(0, room + 1) for room in sides - extent)
            break
    else:
        extent = np.minimum(sides, np.rint(sides[::-1] * 4 / 3).astype(int))
        top, left = (sides - extent) // 2
    flip = bool(random.random() < 0.5)
    pixels = _cut(image, int(top), int(left), int(extent[0]), int(extent[1]), flip)
    resized = interpolate(pixels, size=(size, size), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


def _cut(image: "Image", top: int, left: int, height: int, width: int, flip: bool) -> Tensor:
    """Return a part of an image as a batch of one."""
    cut = image.crop((left, top, left + width, top + height))
    if flip:
        from PIL.Image import Transpose

        cut = cut.transpose(Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(cut))[None].permute(0, 3, 1, 2)


class Decoders:
    """A pool of decoding threads (Pillow decodes and resizes without holding Python's lock).

    A corrupt image is recorded in ``corrupt`` and raises an error, or is left out with ``on_corrupt="skip"``.

    >>> def work(i):
    ...     if i == 1:
    ...         raise CorruptImageError("1.jpg", "is cut short")
    >>> decoders = Decoders(2, on_corrupt="skip")
    >>> decoders.run(work, 3).tolist(), list(decoders.corrupt)
    ([True, False, True], ['1.jpg'])
    >>> decoders.close()
    """

    def __init__(self, threads: int | None = None, on_corrupt: OnCorrupt = "error") -> None:
        check_on_corrupt(on_corrupt)
        self.corrupt: dict[str, str] = {}
        self.on_corrupt = on_corrupt
        self._pool = ThreadPoolExecutor(threads or available_cores(), thread_name_prefix="decode")

    def run(self, work: Callable[[int], None], count: int) -> np.ndarray:
        """Call ``work(i)`` for i < ``count`` in parallel; return an array that is False where the image was corrupt."""
        return np.fromiter(self._pool.map(lambda i: self._one(work, i), range(count)), bool, count)

    def _one(self, work: Callable[[int], None], index: int) -> bool:
        try:
            work(index)
        except CorruptImageError as error:
            self.corrupt[error.name] = str(error)
            if self.on_corrupt == "error":
                raise
            return False
        return True

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(cancel_futures=True)
