"""JPEG files to pixels with Pillow: whole, or resized and cropped in one pass, several at once."""

import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

OnCorrupt = Literal["error", "skip"]


class CorruptImageError(ValueError):
    """An image file that cannot be used; ``name`` says which."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} {reason}; replace or remove it, or skip such images with on_corrupt='skip'")
        self.name = name


def available_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_image(content: bytes, name: str) -> "Image":
    """The decoded RGB image in ``content``; ``name`` is for the error message."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("decoding images needs Pillow: pip install 'sleepconv[data]'") from error
    try:
        image = Image.open(io.BytesIO(content))
        image.load()
        return image if image.mode == "RGB" else image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise CorruptImageError(name, f"is not a readable image ({error})") from error


def decode(content: bytes, name: str, size: tuple[int, int]) -> np.ndarray:
    """Decode an image that must have the given height and width: uint8, (height, width, 3)."""
    image = open_image(content, name)
    if (image.height, image.width) != size:
        raise CorruptImageError(name, f"has {image.height}×{image.width} pixels, not {size[0]}×{size[1]}")
    return np.asarray(image)


def resized_crop(image: "Image", *, short_side: int, size: int, chance: tuple[float, float]) -> "Image":
    """Resize the short side, then crop ``size``×``size``, computing only the pixels that are kept.

    ``chance`` in [0, 1) chooses the crop's row and column; (0.5, 0.5) is the centre.
    """
    from PIL import Image

    short = min(image.width, image.height)
    width, height = (side * short_side // short for side in (image.width, image.height))
    left = int(chance[1] * (width - size + 1))
    top = int(chance[0] * (height - size + 1))
    across, down = image.width / width, image.height / height
    box = (left * across, top * down, (left + size) * across, (top + size) * down)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


class Decoders:
    """A pool of decoding threads (Pillow decodes and resizes without holding Python's lock).

    Corrupt images are named in ``corrupt`` and raise an error, or are left out with ``on_corrupt="skip"``.
    """

    def __init__(self, threads: int | None = None, on_corrupt: OnCorrupt = "error") -> None:
        if on_corrupt not in ("error", "skip"):
            raise ValueError(f'on_corrupt is "error" or "skip", not {on_corrupt!r}')
        self.corrupt: dict[str, str] = {}
        self.on_corrupt = on_corrupt
        self._pool = ThreadPoolExecutor(threads or available_cores(), thread_name_prefix="decode")

    def run(self, work: Callable[[int], None], count: int) -> np.ndarray:
        """Call ``work(i)`` for i < ``count`` in parallel; return which calls met no corrupt image."""
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
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)
