"""Who shares with whom: the one definition of the lateral grids, and of the border."""

from collections.abc import Sequence
from math import gcd

import torch
from jaxtyping import Int64
from torch import Tensor

from sleepconv.functional.sizes import Padding, Sizes, padding_sides, per_axis
from sleepconv.functional.sizes import output_size as output_size_of


def lateral_grids(
    output_size: Sequence[int],
    kernel_size: Sizes,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    *,
    period: Sizes | None = None,
) -> Int64[Tensor, "*output_size"]:
    r"""Return the lateral grid of each output neuron: neurons with the same number share weights in sleep.

    Input patterns repeat every ``period`` pixels. Output neurons i and i' receive the same input from such a pattern
    when their windows start at the same phase,

    .. math:: i \cdot stride \equiv i' \cdot stride \pmod{period},

    so along each axis a grid takes every (period / gcd(period, stride))-th neuron (section 4.1 of Pogodin
    et al., 2021, where the stride is 1 and the period is the kernel size k). The period is k, or
    k·dilation where the two have a common factor, so that the patterns still span the inputs of a dilated
    filter. The filter size 1 gives one grid, and so does a patch embedding (stride = k).

    Args:
        output_size: the layer's output size, one entry per spatial axis (one, two or three axes).
        kernel_size: filter size k, one int or one per axis.
        stride: the layer's stride.
        dilation: the layer's dilation.
        period: the period of the input patterns; by default the layer's own.

    Returns:
        The number of each output neuron's grid, counted from 0 in the order in which the grids start.

    >>> lateral_grids((2, 5), kernel_size=3)
    tensor([[0, 1, 2, 0, 1],
            [3, 4, 5, 3, 4]])
    >>> lateral_grids((4, 4), kernel_size=1).unique().tolist()
    [0]
    """
    axes = len(output_size)
    if not 1 <= axes <= 3 or any(n < 1 for n in output_size):
        raise ValueError(
            f"`output_size` must have one to three positive entries, one per axis, got {tuple(output_size)}"
        )
    kernel, strides, dilations = (
        per_axis(name, value, axes)
        for name, value in [("kernel_size", kernel_size), ("stride", stride), ("dilation", dilation)]
    )
    periods = pattern_period(kernel, dilations) if period is None else per_axis("period", period, axes)
    grids = torch.zeros(tuple(output_size), dtype=torch.int64)
    for axis, (size, p, s) in enumerate(zip(output_size, periods, strides, strict=True)):
        spacing = min(p // gcd(p, s), size)
        phase = torch.arange(size) % spacing
        grids = grids * spacing + phase.reshape([-1 if a == axis else 1 for a in range(axes)])
    return grids


def pattern_period(kernel_size: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Return the period of the patterns that span a filter's inputs: k, or k·dilation if they have a common factor.

    >>> pattern_period((3, 3), (1, 2)), pattern_period((3, 3), (3, 3))
    ((3, 3), (9, 9))
    """
    return tuple(k * d if gcd(k, d) > 1 else k for k, d in zip(kernel_size, dilation, strict=True))


def interior_neurons(
    input_size: Sequence[int], kernel_size: Sizes, stride: Sizes = 1, dilation: Sizes = 1, *, padding: Padding = 0
) -> tuple[slice, ...]:
    """Return, for each axis, the neurons whose windows lie inside the image; the others are the border.

    >>> interior_neurons((32, 32), 3, padding=1)
    (slice(1, 31, None), slice(1, 31, None))
    """
    axes = len(input_size)
    kernel, strides = per_axis("kernel_size", kernel_size, axes), per_axis("stride", stride, axes)
    dilations = per_axis("dilation", dilation, axes)
    outputs = output_size_of(input_size, kernel, stride=strides, padding=padding, dilation=dilations)
    interior = []
    for axis, (before, _) in enumerate(padding_sides(padding, kernel, strides, dilations)):
        first = -(-before // strides[axis])
        room = input_size[axis] - 1 - (kernel[axis] - 1) * dilations[axis] + before
        end = min(room // strides[axis] + 1, outputs[axis])
        interior.append(slice(first, max(first, end)))
    return tuple(interior)


def leave_border_alone(
    grids: Int64[Tensor, "*output_size"], interior: Sequence[slice]
) -> Int64[Tensor, "*output_size"]:
    """Give every neuron outside the interior its own grid, so that it shares with no other.

    >>> leave_border_alone(torch.tensor([0, 1, 0, 1, 0, 1]), [slice(1, 5)])
    tensor([2, 1, 0, 1, 0, 3])
    """
    border = torch.ones_like(grids, dtype=torch.bool)
    border[tuple(interior)] = False
    alone = grids.clone()
    alone[border] = torch.arange(int(border.sum()), device=grids.device) + int(grids.max()) + 1
    return alone


def joined_grids(grids: Sequence[Int64[Tensor, "*output_size"]]) -> Int64[Tensor, "*output_size"]:
    """Join grids that have neurons in common: neurons share if a chain of these grids leads from one to the other.

    >>> joined_grids([torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 1, 2, 3, 0, 1])])
    tensor([0, 0, 0, 0, 0, 0])
    >>> joined_grids([torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 3])])
    tensor([0, 1, 2, 0])
    """
    if len(grids) == 1:
        return grids[0]
    joined, before = torch.arange(grids[0].numel(), device=grids[0].device), None
    while before is None or not torch.equal(joined, before):
        before = joined
        for numbers in (each.flatten() for each in grids):
            least = joined.new_full((int(numbers.max()) + 1,), joined.numel())
            joined = least.scatter_reduce(0, numbers, joined, "amin")[numbers]
    return joined.unique(return_inverse=True)[1].reshape(grids[0].shape)


def adjusted_rand_index(first: Int64[Tensor, "*neurons"], second: Int64[Tensor, "*neurons"]) -> float:
    r"""Return how well two partitions of the same neurons agree: 1 if they are the same, about 0 if by chance only.

    .. math:: ARI = \frac{\sum_{gh} \binom{n_{gh}}{2} - E}{\frac12 (A + B) - E}, \qquad E = \frac{AB}{\binom{n}{2}}

    Hubert and Arabie (1985), where n_gh neurons belong to grid g of one partition and h of the other, and A and B count
    the pairs within the grids of each. The numbers of the grids do not matter.

    >>> adjusted_rand_index(torch.tensor([0, 1, 0, 1]), torch.tensor([5, 2, 5, 2]))
    1.0
    >>> adjusted_rand_index(torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 0, 0]))
    0.0
    """
    if first.shape != second.shape or first.numel() == 0:
        raise ValueError(
            f"both partitions must have the same neurons, at least one, got {tuple(first.shape)} and "
            f"{tuple(second.shape)}"
        )
    both = torch.stack([first.flatten(), second.flatten()])
    together, own, other = (_pairs(numbers.unique(dim=-1, return_counts=True)[1]) for numbers in (both, *both))
    chance = own * other / max(_pairs(torch.tensor([first.numel()])), 1)
    most = (own + other) / 2
    return 1.0 if most == chance else (together - chance) / (most - chance)


def _pairs(counts: Tensor) -> int:
    return int((counts * (counts - 1)).sum()) // 2
