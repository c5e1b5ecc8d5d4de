"""Locally connected layers as functions: a convolution's connectivity with a separate filter at every position."""

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional import operators, plain
from sleepconv.functional.sizes import Padding, Sizes, check_int, padding_sides, per_axis


def locally_connected1d(
    x: Float[Tensor, "*batch in_channels length"],
    weight: Float[Tensor, "out_length out_channels in_channels_per_group kernel"],
    bias: Float[Tensor, "out_channels *out_length"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    position_major: bool = False,
) -> Float[Tensor, "*batch out_channels out_length"]:
    """Apply a separate filter at every position of a sequence: ``locally_connected2d`` with one spatial axis.

    >>> locally_connected1d(torch.ones(1, 1, 4), torch.ones(2, 1, 1, 3)).tolist()
    [[[3.0, 3.0]]]
    """
    return _locally_connected(1, x, weight, bias, stride, padding, dilation, groups, position_major)


def locally_connected2d(
    x: Float[Tensor, "*batch in_channels height width"],
    weight: Float[Tensor, "out_height out_width out_channels in_channels_per_group kernel_height kernel_width"],
    bias: Float[Tensor, "out_channels *out_size"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    position_major: bool = False,
) -> Float[Tensor, "*batch out_channels out_height out_width"]:
    r"""Apply a separate filter at every position of an image.

    .. math:: z_{o,ij} = b_{o(ij)} + \sum_{c,u,v} w_{ij,ocuv}\; x_{c,\; i s + u d - p,\; j s + v d - p}

    Eq. 2 of Pogodin et al. (2021) with channels: a convolution's connectivity (stride s, padding p, dilation d)
    without its weight sharing. If all filters are equal, the result is that of ``torch.nn.functional.conv2d``.

    Args:
        x: the input, with or without a batch axis.
        weight: ``weight[i, j]`` is the filter at output position (i, j).
        bias: (out_channels,), shared over space, or (out_channels, out_height, out_width), one per neuron.
        stride: as in ``conv2d``.
        padding: as in ``conv2d``: zeros around the input; an int, a tuple of ints, "valid" or "same".
        dilation: as in ``conv2d``.
        groups: as in ``conv2d``.
        position_major: store the responses position by position, as the layer computes them and as the next one reads
            them, instead of copying them to a contiguous tensor. Their shape is the same, but ``.view(...)`` fails on
            them, and some of PyTorch's backward passes misread gradients with this layout.

    Returns:
        The responses, (batch, out_channels, out_height, out_width).

    >>> x, weight = torch.randn(8, 3, 6, 6), torch.randn(4, 4, 5, 3, 3, 3)
    >>> locally_connected2d(x, weight).shape
    torch.Size([8, 5, 4, 4])
    """
    return _locally_connected(2, x, weight, bias, stride, padding, dilation, groups, position_major)


def locally_connected3d(
    x: Float[Tensor, "*batch in_channels depth height width"],
    weight: Float[Tensor, "out_depth out_height out_width out_channels in_channels_per_group kd kh kw"],
    bias: Float[Tensor, "out_channels *out_size"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    position_major: bool = False,
) -> Float[Tensor, "*batch out_channels out_depth out_height out_width"]:
    """Apply a separate filter at every position of a volume: ``locally_connected2d`` with three spatial axes.

    >>> locally_connected3d(torch.ones(1, 1, 2, 2, 2), torch.ones(1, 1, 1, 1, 1, 2, 2, 2)).item()
    8.0
    """
    return _locally_connected(3, x, weight, bias, stride, padding, dilation, groups, position_major)


def _locally_connected(
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    position_major: bool,
) -> Tensor:
    tensors = {"input": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if x.dim() == axes + 1:
        one = x.unsqueeze(0)
        return _locally_connected(axes, one, weight, bias, stride, padding, dilation, groups, position_major).squeeze(0)
    tensors = {name: autocast(value) for name, value in tensors.items()}
    operators.check_tensors(tensors, axes)
    x, weight = tensors["input"], tensors["weight"]
    strides, dilations = per_axis("stride", stride, axes), per_axis("dilation", dilation, axes)
    sides = padding_sides(padding, weight.shape[-axes:], strides, dilations)
    geometry = strides, [amount for side in sides for amount in side], dilations, check_int("groups", groups)
    if operators.needs_plain_operations():
        y = plain.locally_connected(x, weight, operators.checked_geometry(*geometry, x=x, weight=weight))
    else:
        y = operators.apply(x, weight, geometry, position_major)
    return y if bias is None else y + broadcast_bias(axes, tensors["bias"], weight)


def autocast(tensor: Tensor) -> Tensor:
    """Cast as autocast does a convolution's arguments: all but float64 to its dtype."""
    device = tensor.device.type
    active = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if not active or not tensor.is_floating_point() or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def broadcast_bias(axes: int, bias: Tensor, weight: Tensor) -> Tensor:
    """Return the bias, one per channel or one per neuron of this weight, as it is added to the responses."""
    out_channels, space = weight.shape[axes], weight.shape[:axes]
    if tuple(bias.shape) == (out_channels,):
        return bias.view(-1, *(1,) * axes)
    if tuple(bias.shape) != (out_channels, *space):
        raise ValueError(
            f"bias must have shape ({out_channels},), shared over space, or {(out_channels, *space)}, one per neuron, "
            f"got {tuple(bias.shape)}"
        )
    return bias
