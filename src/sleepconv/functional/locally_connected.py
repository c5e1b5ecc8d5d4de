"""Locally connected layers as functions: a convolution's connectivity, with a filter of its own at every position."""

from collections.abc import Sequence
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional import operators, plain
from sleepconv.functional.sizes import Sizes, per_axis, whole

Padding = Sizes | str


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
    """Apply a filter of its own at every position of a sequence: ``locally_connected2d`` with one spatial axis.

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
    r"""Apply a filter of its own at every position of an image.

    .. math:: z_{o,ij} = b_{o(ij)} + \sum_{c,u,v} w_{ij,ocuv}\; x_{c,\; i s + u d - p,\; j s + v d - p}

    Eq. 2 of Pogodin et al. (2021) with channels: a convolution's connectivity (stride s, padding p, dilation d)
    without its weight sharing. If all filters agree the result is ``torch.nn.functional.conv2d``'s.

    Args:
        x: the input, with or without a batch axis.
        weight: ``weight[i, j]`` is the filter at output position (i, j).
        bias: (out_channels,), shared over space, or (out_channels, out_height, out_width), one per neuron.
        stride: as in ``conv2d``.
        padding: as in ``conv2d``: zeros around the input; a number, one per axis, "valid" or "same".
        dilation: as in ``conv2d``.
        groups: as in ``conv2d``.
        position_major: leave the responses in memory position by position, as the layer computes them and as the next
            one reads them, instead of rearranging them into a contiguous tensor. Their shape is the same; but
            ``.view(...)`` fails on them, and some of PyTorch's backward passes misread gradients that lie like that.

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
    """Apply a filter of its own at every position of a volume: ``locally_connected2d`` with three spatial axes.

    >>> locally_connected3d(torch.ones(1, 1, 2, 2, 2), torch.ones(1, 1, 1, 1, 1, 2, 2, 2)).item()
    8.0
    """
    return _locally_connected(3, x, weight, bias, stride, padding, dilation, groups, position_major)


def output_size(
    input_size: Sequence[int],
    kernel_size: Sizes,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
) -> tuple[int, ...]:
    """The size of the output, as for a convolution: ⌊(n + p − d (k − 1) − 1) / s⌋ + 1 per axis, p counting both sides.

    >>> output_size((32, 32), 3, stride=2, padding=1)
    (16, 16)
    """
    axes = len(input_size)
    kernel, strides = per_axis("kernel_size", kernel_size, axes), per_axis("stride", stride, axes)
    dilations = per_axis("dilation", dilation, axes)
    sides = padding_sides(padding, kernel, strides, dilations)
    sizes = tuple(
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, k, s, d in zip(input_size, sides, kernel, strides, dilations, strict=True)
    )
    if any(size < 1 for size in sizes):
        raise ValueError(
            f"an input of size {tuple(input_size)} is smaller than a filter of size {kernel} with "
            f"dilation={dilation}, padding={padding!r}: nothing to compute; enlarge the input or the padding"
        )
    return sizes


def padding_sides(
    padding: Padding, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """How much padding lies before and behind each axis; "same" puts the odd one behind, as ``conv2d`` does."""
    if isinstance(padding, str) and padding == "valid":
        return ((0, 0),) * len(kernel)
    if isinstance(padding, str) and padding == "same":
        if any(s != 1 for s in stride):
            raise ValueError(f'padding="same" needs stride 1, not {tuple(stride)}; give the padding as numbers')
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, str):
        raise ValueError(f'padding is a number, one per axis, "same" or "valid", not {padding!r}')
    return tuple((p, p) for p in per_axis("padding", padding, len(kernel), least=0))


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
    _check_tensors(axes, x, weight, bias)
    groups = whole("groups", groups)
    if x.dim() == axes + 1:
        one = x.unsqueeze(0)
        return _locally_connected(axes, one, weight, bias, stride, padding, dilation, groups, position_major).squeeze(0)
    strides, dilations = per_axis("stride", stride, axes), per_axis("dilation", dilation, axes)
    before = _check_shapes(axes, x, weight, strides, padding, dilations, groups)
    x, weight, bias = _autocast(x), _autocast(weight), None if bias is None else _autocast(bias)
    _check_dtypes(x, weight, bias)
    if plain.needs_plain_operations():
        y = plain.locally_connected(x, weight, strides, before, dilations, groups)
    else:
        y = operators.locally_connected(x, weight, strides, before, dilations, groups, position_major)
    return y if bias is None else y + _broadcast_bias(axes, bias, weight)


def _check_tensors(axes: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    for name, value in (("input", x), ("weight", weight), ("bias", bias)):
        if not isinstance(value, Tensor) and (name != "bias" or value is not None):
            raise TypeError(f"the {name} is a tensor, not a {type(value).__name__}")
    if x.dim() not in (axes + 1, axes + 2):
        raise ValueError(
            f"the input has {axes + 2} axes (batch, channels and {axes} of space), not shape {tuple(x.shape)}"
        )
    if weight.dim() != 2 * axes + 2:
        raise ValueError(
            f"the weight has {2 * axes + 2} axes (output space, out_channels, in_channels / groups, kernel), "
            f"not shape {tuple(weight.shape)}"
        )
    tensors = {"input": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    if not all(t.is_floating_point() for t in tensors.values()):
        raise TypeError(
            f"locally connected layers compute with real floating-point numbers, not {_said(tensors, 'dtype')}"
        )
    if len({t.device for t in tensors.values()}) > 1:
        raise ValueError(f"all on one device, please, not {_said(tensors, 'device')}; use .to(device)")


def _check_dtypes(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    tensors = {"input": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    if len({t.dtype for t in tensors.values()}) > 1:
        raise TypeError(f"all of one dtype, please, not {_said(tensors, 'dtype')}; use .to(dtype)")


def _said(tensors: dict[str, Tensor], attribute: str) -> str:
    return ", ".join(f"{name} {getattr(tensor, attribute)}" for name, tensor in tensors.items())


def _check_shapes(
    axes: int,
    x: Tensor,
    weight: Tensor,
    stride: tuple[int, ...],
    padding: Padding,
    dilation: tuple[int, ...],
    groups: int,
) -> tuple[int, ...]:
    """Check that the weight fits the input; return the padding before each axis."""
    have, (out_channels, in_channels), kernel = (
        weight.shape[:axes],
        weight.shape[axes : axes + 2],
        weight.shape[-axes:],
    )
    if prod(weight.shape[axes:]) == 0 or groups < 1 or out_channels % groups:
        raise ValueError(
            f"filters of shape {tuple(weight.shape[axes:])} (out_channels, in_channels / groups, kernel) with "
            f"groups={groups}: every size is at least 1 and groups divides out_channels"
        )
    if x.shape[1] != in_channels * groups:
        raise ValueError(
            f"the input has {x.shape[1]} channels, but the weight takes {in_channels * groups} "
            f"({in_channels} in each of {groups} group(s))"
        )
    size = tuple(x.shape[2:])
    need = output_size(size, tuple(kernel), stride=stride, padding=padding, dilation=dilation)
    if tuple(have) != need:
        raise ValueError(
            f"the weight covers {tuple(have)} output positions, but an input of size {size} with "
            f"kernel {tuple(kernel)}, stride={stride}, padding={padding!r}, dilation={dilation} has {need}"
        )
    return tuple(side[0] for side in padding_sides(padding, tuple(kernel), stride, dilation))


def _autocast(tensor: Tensor) -> Tensor:
    """What autocast does to a convolution's arguments: all but float64 to its dtype."""
    device = tensor.device.type
    active = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if not active or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def _broadcast_bias(axes: int, bias: Tensor, weight: Tensor) -> Tensor:
    out_channels, space = weight.shape[axes], weight.shape[:axes]
    if tuple(bias.shape) == (out_channels,):
        return bias.view(-1, *(1,) * axes)
    if tuple(bias.shape) != (out_channels, *space):
        raise ValueError(
            f"the bias has shape {tuple(bias.shape)}; expected ({out_channels},), shared over space, or "
            f"{(out_channels, *space)}, one per neuron"
        )
    return bias
