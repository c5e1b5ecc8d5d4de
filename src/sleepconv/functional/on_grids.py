"""A convolution with one filter per lateral grid: what a locally connected layer computes after its sleep."""

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional import operators
from sleepconv.functional.locally_connected import autocast, broadcast_bias
from sleepconv.functional.sizes import Padding, Sizes, check_int, padded_output_size, padding_sides, per_axis
from sleepconv.kernels import Geometry, kernel_for
from sleepconv.kernels.geometry import channel_major

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def grid_convolution(
    x: Float[Tensor, "..."],
    weight: Float[Tensor, "..."],
    bias: Float[Tensor, "out_channels *out_size"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    position_major: bool = False,
) -> Float[Tensor, "..."]:
    r"""Apply at every position the filter of its lateral grid.

    .. math:: z_{o,ij} = b_o + \sum_{c,u,v} w_{i \bmod t,\; j \bmod t,\; ocuv}\; x_{c,\; i s + u d - p,\; j s + v d - p}

    This is Eq. 2 of Pogodin et al. (2021) for filters that agree within each grid, where t is the spacing of the grids
    (``lateral_grids``: 3 for a 3×3 layer). Such a layer is t² convolutions with stride s·t, one per grid, whose
    responses are interleaved, and is computed so wherever PyTorch differentiates, traces or exports it, and on other
    devices. On the CPU the native kernel does the same without the copies.

    Args:
        x: the input, with or without a batch axis; one to three spatial axes, of any size.
        weight: (*spacing, out_channels, in_channels / groups, *kernel_size): ``weight[a, b]`` is the filter of the
            neurons (a, b), (a + spacing, b), (a, b + spacing), …
        bias: (out_channels,), or (out_channels, *out_size), one per neuron.
        stride: as in ``conv2d``.
        padding: as in ``conv2d``.
        dilation: as in ``conv2d``.
        groups: as in ``conv2d``.
        position_major: let the native kernel return responses that are stored position by position.

    Returns:
        The responses, (batch, out_channels, *out_size).

    >>> weight = torch.tensor([1.0, 10.0]).reshape(2, 1, 1, 1)  # two grids, 1 → 1 channels, filters of one tap
    >>> grid_convolution(torch.ones(1, 1, 5), weight).tolist()
    [[[1.0, 10.0, 1.0, 10.0, 1.0]]]
    """
    axes = (weight.dim() - 2) // 2
    if weight.dim() not in (4, 6, 8):
        raise ValueError(
            "expected a 4-, 6- or 8-dimensional weight (spacing, out_channels, in_channels / groups, kernel size), "
            f"got shape {tuple(weight.shape)}"
        )
    if x.dim() == axes + 1:
        options: Any = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return grid_convolution(x.unsqueeze(0), weight, bias, position_major=position_major, **options).squeeze(0)
    if x.dim() != axes + 2:
        raise ValueError(f"expected an input of shape (batch, channels, {axes} spatial axes), got {tuple(x.shape)}")
    x, weight = autocast(x), autocast(weight)
    strides, dilations = per_axis("stride", stride, axes), per_axis("dilation", dilation, axes)
    kernel = tuple(weight.shape[-axes:])
    sides = padding_sides(padding, kernel, strides, dilations)
    size = padded_output_size(x.shape[2:], kernel, strides, sides, dilations)
    weight = weight[tuple(slice(n) for n in size)]  # a small image has neurons of the first grids only
    one_each = weight[(0,) * axes].expand(*size, *weight.shape[axes:])
    flat = [amount for side in sides for amount in side]
    geometry = operators.checked_geometry(strides, flat, dilations, check_int("groups", groups), x=x, weight=one_each)
    y = _responses(x, weight, geometry, position_major)
    return y if bias is None else y + broadcast_bias(axes, autocast(bias), one_each)


def _responses(x: Tensor, weight: Tensor, geometry: Geometry, position_major: bool) -> Tensor:
    differentiated = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    on_grids = getattr(kernel_for(x), "forward_on_grids", None)
    if differentiated or on_grids is None or not operators.kernels_apply_to(x, weight):
        return _as_convolutions(x, weight, geometry)
    y = on_grids(x, weight, geometry)
    return y if position_major else channel_major(y)


def _as_convolutions(x: Tensor, weight: Tensor, g: Geometry) -> Tensor:
    """Convolve once per grid, with the stride of its neurons, and interleave the responses."""
    axes = len(g.stride)
    spacing = tuple(weight.shape[:axes])
    neurons = [-(-n // t) for n, t in zip(g.output_size, spacing, strict=True)]
    strides = [s * t for s, t in zip(g.stride, spacing, strict=True)]
    responses: list[Tensor] = []
    for corner in product(*map(range, spacing)):
        starts = [_padding_and_surplus(g, axis, corner[axis], strides[axis], neurons[axis]) for axis in range(axes)]
        padding = [amount for amount, _ in starts]
        convolution = _CONVOLUTIONS[axes]
        y = convolution(x, weight[corner], stride=strides, padding=padding, dilation=g.dilation, groups=g.groups)
        own: list[Any] = [slice(q, q + n) for (_, q), n in zip(starts, neurons, strict=True)]
        responses.append(y[(..., *own)])
    if len(responses) == 1:
        return responses[0]
    y = torch.stack(responses, dim=2).unflatten(2, spacing)
    order = [axis for a in range(axes) for axis in (2 + axes + a, 2 + a)]  # neuron, grid along each axis
    y = y.permute(0, 1, *order).reshape(
        g.batch, g.out_channels, *[n * t for n, t in zip(neurons, spacing, strict=True)]
    )
    inside: list[Any] = [slice(n) for n in g.output_size]
    return y[(..., *inside)].contiguous()


def _padding_and_surplus(g: Geometry, axis: int, corner: int, stride: int, neurons: int) -> tuple[int, int]:
    """Return a padding with which a convolution meets all neurons of a grid, and how many windows precede the first.

    A convolution pads both sides alike. With more padding before the image than the grid's first neuron needs, in steps
    of the grid's stride, the input is not cut for every grid, which would copy it.
    """
    reach = (g.kernel_size[axis] - 1) * g.dilation[axis] + 1
    padding, surplus = g.padding[axis] - corner * g.stride[axis], 0
    while padding < 0 or (g.input_size[axis] + 2 * padding - reach) // stride + 1 < surplus + neurons:
        padding, surplus = padding + stride, surplus + 1
    return padding, surplus
