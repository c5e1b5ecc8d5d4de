"""Translations of whole batches: each image lies at its own place on a canvas that is zero elsewhere.

Padding and random crops (CIFAR), the centre crop that leaves room to move (TinyImageNet) and digits on a
larger visual field are one operation: the corner of the image is drawn from a set of rows and columns.
"""

import math
import threading
import weakref

import numpy as np
import threading
from collections.abc import Sequence

import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor

from sleepconv.experiments.data.images import Statistics


class Buffers:
    """Float arrays for batches. Memory is given out again when no array or tensor on it is left.

    Each time it is lent as a new array that does not own it. Whatever is made of that array, a view or a tensor, keeps
    it alive, so the memory is free when the array is gone: weak references tell, whatever counts Python keeps.

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
        """An array of this shape with undefined content."""
        values = math.prod(shape)
        with self._lock:
            free = [memory for memory, user in self._lent if user() is None and len(memory) >= values]
            memory = free[0] if free else np.empty(values, dtype=np.float32)
            # Through a memoryview: NumPy lets a view of a view keep the owner alive instead of the array between them.
            lent = np.frombuffer(memory.data, dtype=np.float32, count=values)
            others = [pair for pair in self._lent if pair[0] is not memory]
            self._lent = [(memory, weakref.ref(lent)), *others][: self.keep]
            return lent.reshape(shape)


Size = tuple[int, int]


def translate(
    pixels: UInt8[Tensor, "batch channels height width"],
    corners: Int64[Tensor, "batch 2"],
    *,
    size: Size,
    statistics: Statistics,
) -> Float32[Tensor, "batch channels canvas_height canvas_width"]:
    r"""Normalise each image and lay it on a canvas of zeros with its upper left corner at ``corners``.

    .. math:: y_{n}(i, j) = (x_{n}(i - r_n, j - c_n) - mean) / std \text{ inside the image, else } 0

    Corners may be negative: what falls outside the canvas is cut off. Zero after normalisation is the
    training mean before it, the paper's padding.

    >>> one = torch.full((1, 1, 2, 2), 255, dtype=torch.uint8)
    >>> translate(one, torch.tensor([[0, 1]]), size=(2, 3), statistics=Statistics((0.0,), (255.0,)))
    tensor([[[[0., 1., 1.],
              [0., 1., 1.]]]])
    """
    rows, columns = (sorted(set(corners[:, axis].tolist())) for axis in (0, 1))
    return Translate(rows, columns, size=size, statistics=statistics).at(pixels, corners)


class Translate:
    """Lay each image of a batch at a random corner out of ``rows`` × ``columns`` (see `translate`).

    >>> crop = Translate.after_padding(4, size=(32, 32), statistics=Statistics((120.0,) * 3, (60.0,) * 3))
    >>> chance = torch.rand(2, 3, dtype=torch.float64)
    >>> crop(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), chance).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(self, rows: Sequence[int], columns: Sequence[int], *, size: Size, statistics: Statistics) -> None:
        if not len(rows) or not len(columns) or min(size) < 1:
            raise ValueError(f"a translation needs rows, columns and a canvas, not {rows!r}, {columns!r}, {size!r}")
        self.rows, self.columns = torch.tensor(list(rows)), torch.tensor(list(columns))
        self.size, self.statistics = size, statistics
        self._extent = tuple((min(axis), max(axis)) for axis in (rows, columns))
        self._local = threading.local()
        self._buffers = Buffers()

    @classmethod
    def after_padding(cls, padding: int, *, size: Size, statistics: Statistics) -> "Translate":
        """Pad with the mean on every side, then crop back to ``size`` at random (CIFAR)."""
        if padding < 0 or padding > min(size):
            raise ValueError(f"padding is from 0 to the image's size {min(size)}, not {padding}")
        shifts = range(-padding, padding + 1)
        return cls(shifts, shifts, size=size, statistics=statistics)

    @classmethod
    def within(cls, image: Size, *, size: Size, padding: int, statistics: Statistics) -> "Translate":
        """Centre-crop to ``size`` + 2·``padding``, then crop to ``size`` at random (TinyImageNet)."""
        room = min(full - part for full, part in zip(image, size, strict=True)) // 2
        if not 0 <= padding <= room:
            raise ValueError(
                f"padding is from 0 to {room} for crops of {size[0]}×{size[1]} out of {image[0]}×{image[1]}, "
                f"not {padding}"
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
        """Translate by ``chance``: uniform numbers in [0, 1), the first two choose the row and the column."""
        picked = [
            choices[(chance[:, axis] * len(choices)).long()] for axis, choices in enumerate((self.rows, self.columns))
        ]
        return self.at(pixels, torch.stack(picked, dim=1))

    def at(
        self, pixels: UInt8[Tensor, "batch channels height width"], corners: Int64[Tensor, "batch 2"]
    ) -> Float32[Tensor, "batch channels canvas_height canvas_width"]:
        """Translate to the given corners, which lie within those of this object."""
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
        """Normalised images with the zeros that any allowed window may see, and the windows' origin."""
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
        """A field per thread, kept between batches: its margins are never written, so they stay zero."""
        kept: Tensor | None = getattr(self._local, "field", None)
        if kept is None or kept.shape[1:] != shape or len(kept) < batch or kept.device != device:
            kept = self._local.field = torch.zeros((batch, *shape), dtype=torch.float32, device=device)
        return kept[:batch]


def _span(full: int, part: int, low: int, high: int) -> tuple[int, int, int, int, int]:
    """Along one axis: the pixels [start, stop) that some window sees, zeros before and after, the origin.

    A window with the image at corner c starts ``origin - c`` pixels into the field.
    """
    start, stop = max(0, -high), min(full, part - low)
    if start >= stop:
        raise ValueError(f"an image of size {full} at {low} to {high} never meets a canvas of size {part}")
    before, after = max(0, high), max(0, part - low - full)
    return start, stop, before, after, high
