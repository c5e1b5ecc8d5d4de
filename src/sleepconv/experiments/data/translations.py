"""Translations: each image of a batch is placed at its own position on a canvas of zeros.

Padding and random crops (CIFAR), the centre crop that leaves room to move (TinyImageNet) and digits on a
larger visual field are one operation: the corner of the image is drawn from a set of rows and columns.
"""

import math
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor

from sleepconv.experiments.data.images import ChannelStatistics

_Size = tuple[int, int]


def translate(
    pixels: UInt8[Tensor, "batch channels height width"],
    corners: Int64[Tensor, "batch 2"],
    *,
    size: _Size,
    statistics: ChannelStatistics,
) -> Float32[Tensor, "batch channels canvas_height canvas_width"]:
    r"""Normalise each image and place it on a canvas of zeros with its upper left corner at ``corners``.

    .. math:: y_{n}(i, j) = (x_{n}(i - r_n, j - c_n) - mean) / std \text{ inside the image, else } 0

    Corners may be negative: what falls outside the canvas is cut off. Zero after normalisation is the
    training mean before it, as in the padding of the paper.

    >>> one = torch.full((1, 1, 2, 2), 255, dtype=torch.uint8)
    >>> translate(one, torch.tensor([[0, 1]]), size=(2, 3), statistics=ChannelStatistics((0.0,), (255.0,)))
    tensor([[[[0., 1., 1.],
              [0., 1., 1.]]]])
    """
    rows, columns = (sorted(set(corners[:, axis].tolist())) for axis in (0, 1))
    return Translate(rows, columns, size=size, statistics=statistics).at(pixels, corners)


class Translate:
    """Place each image of a batch with its corner at random in ``rows`` × ``columns`` (see `translate`).

    >>> crop = Translate.after_padding(4, size=(32, 32), statistics=ChannelStatistics((120.0,) * 3, (60.0,) * 3))
    >>> chance = torch.rand(2, 3, dtype=torch.float64)
    >>> crop(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), chance).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(
        self, rows: Sequence[int], columns: Sequence[int], *, size: _Size, statistics: ChannelStatistics
    ) -> None:
        if not len(rows) or not len(columns) or min(size) < 1:
            raise ValueError(
                f"`rows` and `columns` must not be empty and `size` must be positive, "
                f"got {rows!r}, {columns!r} and {size!r}"
            )
        self.rows, self.columns = torch.tensor(list(rows)), torch.tensor(list(columns))
        self.size, self.statistics = size, statistics
        self._extent = tuple((min(axis), max(axis)) for axis in (rows, columns))
        self._local = threading.local()
        self._buffers = Buffers()

    @classmethod
    def after_padding(cls, padding: int, *, size: _Size, statistics: ChannelStatistics) -> "Translate":
        """Pad with the mean on every side, then crop back to ``size`` at random (CIFAR)."""
        if padding < 0 or padding > min(size):
            raise ValueError(f"`padding` must be from 0 to the size of the image, {min(size)}, got {padding}")
        shifts = range(-padding, padding + 1)
        return cls(shifts, shifts, size=size, statistics=statistics)

    @classmethod
    def within(cls, image: _Size, *, size: _Size, padding: int, statistics: ChannelStatistics) -> "Translate":
        """Centre-crop to ``size`` + 2·``padding``, then crop to ``size`` at random (TinyImageNet)."""
        room = min(full - part for full, part in zip(image, size, strict=True)) // 2
        if not 0 <= padding <= room:
            raise ValueError(
                f"`padding` must be from 0 to {room} for crops of {size[0]}×{size[1]} out of {image[0]}×{image[1]}, "
                f"got {padding}"
            )
        rows, columns = (
            [shift - (full - part) // 2 for shift in range(-padding, padding + 1)]
            for full, part in zip(image, size, strict=True)
        )
        return cls(rows, columns, size=size, statistics=statistics)

    def __call__(
        self,
        pixels: UInt8[Tensor, "batch channels height width"],
        chance: Float[Tensor, "batch chances"],
    ) -> Float32[Tensor, "batch channels canvas_height canvas_width"]:
        """Translate images by ``chance``, uniform numbers in [0, 1): the first two choose the row and the column."""
        picked = [
            choices[(chance[:, axis] * len(choices)).long()] for axis, choices in enumerate((self.rows, self.columns))
        ]
        return self.at(pixels, torch.stack(picked, dim=1))

    def at(
        self, pixels: UInt8[Tensor, "batch channels height width"], corners: Int64[Tensor, "batch 2"]
    ) -> Float32[Tensor, "batch channels canvas_height canvas_width"]:
        """Place images at these corners, which must be among ``rows`` × ``columns``."""
        field, origin = self._normalised_field(pixels)
        if all(low == high for low, high in self._extent):
            return field.clone()
        windows = field.unfold(2, self.size[0], 1).unfold(3, self.size[1], 1).permute(0, 2, 3, 1, 4, 5)
        offsets = (torch.tensor(origin) - corners).to(pixels.device)
        chosen = [torch.arange(len(pixels), device=pixels.device), offsets[:, 0], offsets[:, 1]]
        if pixels.device.type != "cpu":
            return windows[chosen]
        out = torch.from_numpy(self._buffers.take((len(pixels), pixels.shape[1], *self.size)))
        return torch.ops.aten.index.Tensor_out(windows, chosen, out=out)

    def _normalised_field(self, pixels: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Return normalised images with the zeros around them that a window can see, and the origin of the windows."""
        spans = [
            _span(full, part, *extent)
            for full, part, extent in zip(pixels.shape[2:], self.size, self._extent, strict=True)
        ]
        shape = (pixels.shape[1], *(before + stop - start + after for start, stop, before, after, _ in spans))
        field = self._zeros(len(pixels), shape, pixels.device)
        (top, bottom, above, *_), (left, right, beside, *_) = spans
        inner = field[:, :, above : above + bottom - top, beside : beside + right - left]
        scale, shift = self.statistics.scale_and_shift(pixels.device)
        torch.mul(pixels[:, :, top:bottom, left:right], scale, out=inner)
        inner.add_(shift)
        return field, (spans[0][4], spans[1][4])

    def _zeros(self, batch: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Return a field that this thread reuses between batches: its margins are never written, so they stay zero."""
        kept: Tensor | None = getattr(self._local, "field", None)
        if kept is None or kept.shape[1:] != shape or len(kept) < batch or kept.device != device:
            kept = self._local.field = torch.zeros((batch, *shape), dtype=torch.float32, device=device)
        return kept[:batch]


def _span(full: int, part: int, low: int, high: int) -> tuple[int, int, int, int, int]:
    """Return, for one axis: start and stop of the pixels that a window can see, zeros before and after, the origin.

    A window with the image at corner c starts ``origin - c`` pixels into the field.
    """
    start, stop = max(0, -high), min(full, part - low)
    if start >= stop:
        raise ValueError(f"an image of size {full} at {low} to {high} never overlaps a canvas of size {part}")
    before, after = max(0, high), max(0, part - low - full)
    return start, stop, before, after, high


class Buffers:
    """Float arrays for batches, whose memory is reused when no array or tensor refers to it any more.

    Memory is lent as a new array that does not own it. Every view or tensor made from that array keeps it alive, so
    the memory is free when the array is gone, which a weak reference tells.

    >>> buffers = Buffers()
    >>> first = buffers.take((2, 3))
    >>> second = buffers.take((2, 3))  # the first is still in use
    >>> np.shares_memory(first, second)
    False
    """

    def __init__(self, keep: int = 5) -> None:
        self.keep = keep
        self._lent: list[tuple[np.ndarray, weakref.ref[np.ndarray]]] = []
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of this shape with undefined content."""
        values = math.prod(shape)
        with self._lock:
            free = [memory for memory, user in self._lent if user() is None and len(memory) >= values]
            memory = free[0] if free else np.empty(values, dtype=np.float32)
            # Through a memoryview, because a NumPy view of a view keeps only the owner alive, not the array in between.
            lent = np.frombuffer(memory.data, dtype=np.float32, count=values)
            others = [pair for pair in self._lent if pair[0] is not memory]
            self._lent = [(memory, weakref.ref(lent)), *others][: self.keep]
            return lent.reshape(shape)
