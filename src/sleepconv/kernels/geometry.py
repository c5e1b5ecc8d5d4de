"""The shape of one locally connected computation, and the memory layout of its activations."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from math import prod
from operator import mul

import torch
from torch import Tensor

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """The sizes and options of a layer. Spatial ones have one entry per axis.

    ``padding`` is that before the first input; that behind the last one follows from ``output_size``.

    >>> same = dict(batch=1, in_channels=3, out_channels=8, kernel_size=(3, 3), dilation=(1, 1), groups=1)
    >>> layer = Geometry(input_size=(32, 32), output_size=(16, 16), stride=(2, 2), padding=(1, 1), **same)
    >>> layer.positions, layer.weight_shape
    (256, (16, 16, 8, 3, 3, 3))
    """

    batch: int
    in_channels: int
    out_channels: int
    input_size: Axes
    output_size: Axes
    kernel_size: Axes
    stride: Axes
    padding: Axes
    dilation: Axes
    groups: int

    @property
    def positions(self) -> int:
        """The number of output positions."""
        return prod(self.output_size)

    @property
    def x_shape(self) -> Axes:
        """Shape of the input: (batch, channels, *space)."""
        return (self.batch, self.in_channels, *self.input_size)

    @property
    def y_shape(self) -> Axes:
        """Shape of the output: (batch, channels, *space)."""
        return (self.batch, self.out_channels, *self.output_size)

    @property
    def weight_shape(self) -> Axes:
        """Shape of the weight: (*space, out_channels, in_channels / groups, *kernel)."""
        return (*self.output_size, self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    @cached_property
    def taps(self) -> list[Axes]:
        """The positions in a filter: (0, 0), (0, 1), … in two dimensions."""
        return list(product(*map(range, self.kernel_size)))


def position_major(x: Tensor) -> Tensor:
    """Return the values as a contiguous (*space, batch, channels) tensor, without a copy if they are stored so.

    In this order the inputs of one filter tap are a (batch × channels) matrix without gaps, so a locally connected
    layer is one small matrix product per position and needs no unfolded copy of its input.
    """
    ordered = by_position(x)
    if ordered.is_contiguous() or not x.is_contiguous():
        return ordered.contiguous()
    # Transposing a (batch·channels) × positions matrix is several times faster than copying a 4-d permutation.
    return x.reshape(x.shape[0] * x.shape[1], -1).t().contiguous().view(ordered.shape)


def empty_activations(like: Tensor, shape: Sequence[int], *, dtype: torch.dtype | None = None) -> Tensor:
    """Allocate activations of shape (batch, channels, *space) that are stored position by position.

    The result is not a view of a tensor with another order of axes: autograd refuses operations in place on views that
    an operator returns.
    """
    batch, channels, *space = shape
    along_batch, *along_space = accumulate([channels, batch, *reversed(space[1:])], mul)
    # One image is channels last. Its batch axis gets the stride that PyTorch uses then: with any other, PyTorch's batch
    # normalization reads the gradient that comes back, or this tensor, in the wrong order.
    along_batch = prod(shape) if batch == 1 else along_batch
    return like.new_empty_strided(tuple(shape), (along_batch, 1, *reversed(along_space)), dtype=dtype)


def by_position(x: Tensor) -> Tensor:
    """Return a view as (*space, batch, channels), contiguous if ``x`` is stored position by position."""
    return x.movedim((0, 1), (-2, -1))


def channel_major(x: Tensor) -> Tensor:
    """Return a contiguous copy of activations that are stored position by position."""
    y = x.new_empty(x.shape)
    if x.numel():
        channels = x.shape[0] * x.shape[1]
        y.view(channels, -1).copy_(by_position(x).reshape(-1, channels).t())
    return y
