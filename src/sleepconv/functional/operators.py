"""The layer as PyTorch operators, so that autograd, ``torch.compile`` and ``torch.export`` know it.

Three bilinear operators, closed under differentiation: the derivatives of each are the two others, so any number of
backward passes works. A gradient lies in memory as the tensor that it belongs to: some of PyTorch's own backward
passes (instance and batch normalisation's) read a gradient that lies otherwise in the wrong order.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, library

from sleepconv.functional.sizes import per_axis, whole
from sleepconv.kernels import Geometry, kernel_for
from sleepconv.kernels.geometry import channel_major, empty_activations


def checked_geometry(
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *,
    x: Tensor | None = None,
    weight: Tensor | None = None,
    grad: Tensor | None = None,
    size: Sequence[int] = (),
) -> Geometry:
    """The geometry that two of the three tensors and the spatial size of the third describe, if they fit each other.

    >>> import torch
    >>> checked_geometry([1], [0], [1], 1, x=torch.ones(2, 3, 6), weight=torch.ones(4, 5, 3, 3)).y_shape
    (2, 5, 4)
    """
    axes = len(stride)
    whole("groups", groups)
    if not 1 <= axes <= 3:
        raise ValueError(f"stride has one to three numbers, one per axis of space, not {list(stride)}")
    steps = per_axis("stride", stride, axes), per_axis("padding", padding, axes, least=0)
    dilations = per_axis("dilation", dilation, axes)
    given = {"input": x, "weight": weight, "gradient": grad}
    tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
    _check_tensors(tensors, axes)
    if x is not None:
        batch, in_channels, *input_size = x.shape
    else:
        assert weight is not None
        assert grad is not None
        batch, in_channels, input_size = grad.shape[0], weight.shape[axes + 1] * groups, list(size)
    if weight is not None:
        output_size, out_channels, kernel_size = weight.shape[:axes], weight.shape[axes], list(weight.shape[-axes:])
    else:
        assert grad is not None
        output_size, out_channels, kernel_size = grad.shape[2:], grad.shape[1], list(size)
    sizes = per_axis("the input's size", input_size, axes), tuple(output_size)
    kernel = per_axis("the filters' size", kernel_size, axes)
    geometry = Geometry(batch, in_channels, out_channels, *sizes, kernel, *steps, dilations, groups)
    _check_fit(tensors, geometry)
    return geometry


def _check_tensors(tensors: dict[str, Tensor], axes: int) -> None:
    for name, tensor in tensors.items():
        rank = 2 * axes + 2 if name == "weight" else axes + 2
        if tensor.dim() != rank:
            raise ValueError(
                f"with {axes} axes of space, one per entry of stride, the {name} has {rank} axes, "
                f"not shape {tuple(tensor.shape)}"
            )
    said = ", ".join(f"{name} {tensor.dtype} on {tensor.device}" for name, tensor in tensors.items())
    if not all(tensor.is_floating_point() for tensor in tensors.values()):
        raise TypeError(f"locally connected layers compute with real floating-point numbers, not {said}")
    if len({tensor.dtype for tensor in tensors.values()}) > 1:
        raise TypeError(f"all of one dtype, please, not {said}; use .to(dtype)")
    if len({tensor.device for tensor in tensors.values()}) > 1:
        raise ValueError(f"all on one device, please, not {said}; use .to(device)")


def _check_fit(tensors: dict[str, Tensor], g: Geometry) -> None:
    if not g.in_channels or not g.out_channels or g.in_channels % g.groups or g.out_channels % g.groups:
        raise ValueError(
            f"{g.in_channels} channels in, {g.out_channels} out and groups={g.groups}: "
            "there is at least one of each, and groups divides both"
        )
    expected = {"input": g.x_shape, "weight": g.weight_shape, "gradient": g.y_shape}
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != expected[name]:
            shapes = ", ".join(f"{n} {tuple(t.shape)}" for n, t in tensors.items())
            raise ValueError(
                f"{shapes} do not fit each other with groups={g.groups}: the {name} should be {expected[name]}"
            )
    axes = zip(g.input_size, g.kernel_size, g.stride, g.padding, g.dilation, strict=True)
    rooms = [(n + 2 * p - d * (k - 1) - 1, s) for n, k, s, p, d in axes]
    least = tuple(max(0, room // s + 1) for room, s in rooms)
    most = tuple((room + 1) // s + 1 for room, s in rooms)  # "same" may put one more zero behind than before
    if not all(1 <= low <= have <= high for low, have, high in zip(least, g.output_size, most, strict=True)):
        raise ValueError(
            f"there are weights or gradients for {g.output_size} output positions, but an input of size {g.input_size} "
            f"with kernel {g.kernel_size}, stride={g.stride}, padding={g.padding}, dilation={g.dilation} has {least}"
        )


@library.custom_op("sleepconv::locally_connected", mutates_args=())
def locally_connected(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    position_major: bool,
) -> Tensor:
    """Every output position applies its own filter. ``padding`` counts the zeros before the first input.

    The result is contiguous, or lies in memory position by position.
    """
    geometry = checked_geometry(stride, padding, dilation, groups, x=x, weight=weight)
    y = kernel_for(x).forward(x, weight, geometry)
    return y if position_major else channel_major(y)


@library.custom_op("sleepconv::locally_connected_input_gradient", mutates_args=())
def input_gradient(
    grad: Tensor,
    weight: Tensor,
    input_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    position_major: bool,
) -> Tensor:
    """Gradient of ``locally_connected`` with respect to its input of this spatial size.

    The result is contiguous, or lies in memory position by position.
    """
    geometry = checked_geometry(stride, padding, dilation, groups, weight=weight, grad=grad, size=input_size)
    dx = kernel_for(grad).input_gradient(grad, weight, geometry)
    return dx if position_major else channel_major(dx)


@library.custom_op("sleepconv::locally_connected_weight_gradient", mutates_args=())
def weight_gradient(
    x: Tensor,
    grad: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Gradient of ``locally_connected`` with respect to its weight of this kernel size."""
    geometry = checked_geometry(stride, padding, dilation, groups, x=x, grad=grad, size=kernel_size)
    return kernel_for(x).weight_gradient(x, grad, geometry)


@locally_connected.register_fake
def _(x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, position_major: bool) -> Tensor:
    geometry = checked_geometry(stride, padding, dilation, groups, x=x, weight=weight)
    return _empty(x, geometry.y_shape, position_major)


@input_gradient.register_fake
def _(
    grad: Tensor,
    weight: Tensor,
    input_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    position_major: bool,
) -> Tensor:
    geometry = checked_geometry(stride, padding, dilation, groups, weight=weight, grad=grad, size=input_size)
    return _empty(grad, geometry.x_shape, position_major)


@weight_gradient.register_fake
def _(x: Tensor, grad: Tensor, kernel_size: Any, *geometry: Any) -> Tensor:
    return x.new_empty(checked_geometry(*geometry, x=x, grad=grad, size=kernel_size).weight_shape)


def _setup_locally_connected(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, *ctx.geometry, _ = inputs
    ctx.save_for_backward(x, weight)


def _differentiate_locally_connected(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    axes = len(ctx.geometry[0])
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = _input_gradient_like(x, grad, weight, ctx.geometry)
    if ctx.needs_input_grad[1]:
        dw = weight_gradient(x, grad, list(weight.shape[-axes:]), *ctx.geometry)
    return dx, dw, None, None, None, None, None


def _setup_input_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, weight, _, *ctx.geometry, _ = inputs
    ctx.save_for_backward(grad, weight)


def _differentiate_input_gradient(ctx: Any, grad_dx: Tensor) -> tuple[Tensor | None, ...]:
    grad, weight = ctx.saved_tensors
    axes = len(ctx.geometry[0])
    d_grad = d_weight = None
    if ctx.needs_input_grad[0]:
        d_grad = _response_like(grad, grad_dx, weight, ctx.geometry)
    if ctx.needs_input_grad[1]:
        d_weight = weight_gradient(grad_dx, grad, list(weight.shape[-axes:]), *ctx.geometry)
    return d_grad, d_weight, None, None, None, None, None, None


def _setup_weight_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, grad, _, *ctx.geometry = inputs
    ctx.save_for_backward(x, grad)


def _differentiate_weight_gradient(ctx: Any, grad_dw: Tensor) -> tuple[Tensor | None, ...]:
    x, grad = ctx.saved_tensors
    d_x = d_grad = None
    if ctx.needs_input_grad[0]:
        d_x = _input_gradient_like(x, grad, grad_dw, ctx.geometry)
    if ctx.needs_input_grad[1]:
        d_grad = _response_like(grad, x, grad_dw, ctx.geometry)
    return d_x, d_grad, None, None, None, None, None


locally_connected.register_autograd(_differentiate_locally_connected, setup_context=_setup_locally_connected)
input_gradient.register_autograd(_differentiate_input_gradient, setup_context=_setup_input_gradient)
weight_gradient.register_autograd(_differentiate_weight_gradient, setup_context=_setup_weight_gradient)


def _response_like(like: Tensor, x: Tensor, weight: Tensor, geometry: Sequence[Any]) -> Tensor:
    return _lying_like(like, locally_connected(x, weight, *geometry, not like.is_contiguous()))


def _input_gradient_like(x: Tensor, grad: Tensor, weight: Tensor, geometry: Sequence[Any]) -> Tensor:
    return _lying_like(x, input_gradient(grad, weight, list(x.shape[2:]), *geometry, not x.is_contiguous()))


def _lying_like(x: Tensor, result: Tensor) -> Tensor:
    return result if result.stride() == x.stride() else torch.empty_like(x).copy_(result)


def _empty(like: Tensor, shape: Sequence[int], position_major: bool) -> Tensor:
    return empty_activations(like, shape) if position_major else like.new_empty(shape)
