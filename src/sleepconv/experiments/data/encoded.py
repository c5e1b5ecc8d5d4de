"""Images that stay encoded on disk and are decoded, cropped and flipped in parallel batch by batch."""

import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from jaxtyping import UInt8
from torch.nn.functional import interpolate
import warnings
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from sleepconv.experiments.data.translations import Buffers
from sleepconv.experiments.data.images import Batch
from sleepconv.experiments.data.images import IMAGENET, Statistics


if TYPE_CHECKING:
    from PIL.Image import Image

OnCorrupt = Literal["error", "skip"]


class CorruptImageError(ValueError):
    """An image file that cannot be used; ``name`` says which.

    >>> CorruptImageError("n01440764_1.jpg", "is cut short").name
    'n01440764_1.jpg'
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"{name} {reason}; replace or remove it, or skip such images with on_corrupt='skip' (--on-corrupt skip)"
        )
        self.name = name


def check_on_corrupt(on_corrupt: str) -> None:
    """Refuse another word for what to do with corrupt images."""
    if on_corrupt not in get_args(OnCorrupt):
        raise ValueError(f'on_corrupt is "error" or "skip", not {on_corrupt!r}')


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
        image.decodermaxblock = len(content)  # in one go: 4 % faster than in the default 64 kB blocks
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


def resized_crop(
    image: "Image", *, short_side: int, size: int, chance: tuple[float, float], flip: bool = False
) -> UInt8[np.ndarray, "size size 3"]:
    """Resize the short side to ``short_side`` and crop ``size``×``size``, computing only what is kept.

    The crop is cut from the original at a whole pixel and then resized (bilinear, antialiased), so its place
    is as random as after the resize. ``chance`` in [0, 1) chooses row and column; (0.5, 0.5) is the centre.
    """
    short = min(image.width, image.height)
    extent = -(-size * short // short_side)
    top, left = (
        int(share * (side - extent + 1)) for share, side in zip(chance, (image.height, image.width), strict=True)
    )
    cut = image.crop((left, top, left + extent, top + extent))
    if flip:
        from PIL.Image import Transpose

        cut = cut.transpose(Transpose.FLIP_LEFT_RIGHT)
    pixels = torch.from_numpy(np.array(cut))[None].permute(0, 3, 1, 2)
    # The output has floor(extent · scale) pixels; the last digit must not turn 224 into 223.
    scale = short_side / short * (1 + 1e-9)
    resized = interpolate(pixels, scale_factor=scale, mode="bilinear", antialias=True)
    return resized[0, :, :size, :size].permute(1, 2, 0).numpy()


class Decoders:
    """A pool of decoding threads (Pillow decodes and resizes without holding Python's lock).

    Corrupt images are named in ``corrupt`` and raise an error, or are left out with ``on_corrupt="skip"``.

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
