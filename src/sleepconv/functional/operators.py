"""The layer as PyTorch operators, so that autograd, ``torch.compile`` and ``torch.export`` know it.

Three bilinear operators, closed under differentiation: the derivatives of each are the two others, so any number of
backward passes works.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, library

from sleepconv.functional.operands import checked_geometry
from sleepconv.kernels import kernel_for
from sleepconv.kernels.geometry import channels_second


@library.custom_op("sleepconv::locally_connected", mutates_args=())
def locally_connected(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Every output position applies its own filter. ``padding`` counts the zeros before the first input."""
    geometry = checked_geometry(stride, padding, dilation, groups, x=x, weight=weight)
    return kernel_for(x).forward(x, weight, geometry)


@library.custom_op("sleepconv::locally_connected_input_gradient", mutates_args=())
def input_gradient(
    grad: Tensor,
    weight: Tensor,
    input_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Gradient of ``locally_connected`` with respect to its input of this spatial size."""
    geometry = checked_geometry(stride, padding, dilation, groups, weight=weight, grad=grad, size=input_size)
    return kernel_for(grad).input_gradient(grad, weight, geometry)


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
def _(x: Tensor, weight: Tensor, *geometry: Any) -> Tensor:
    return _empty_activations(x, checked_geometry(*geometry, x=x, weight=weight).y_shape)


@input_gradient.register_fake
def _(grad: Tensor, weight: Tensor, input_size: Any, *geometry: Any) -> Tensor:
    return _empty_activations(grad, checked_geometry(*geometry, weight=weight, grad=grad, size=input_size).x_shape)


@weight_gradient.register_fake
def _(x: Tensor, grad: Tensor, kernel_size: Any, *geometry: Any) -> Tensor:
    return x.new_empty(checked_geometry(*geometry, x=x, grad=grad, size=kernel_size).weight_shape)


def _setup_locally_connected(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, *ctx.geometry = inputs
    ctx.save_for_backward(x, weight)


def _differentiate_locally_connected(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    axes = len(ctx.geometry[0])
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = input_gradient(grad, weight, list(x.shape[2:]), *ctx.geometry)
    if ctx.needs_input_grad[1]:
        dw = weight_gradient(x, grad, list(weight.shape[-axes:]), *ctx.geometry)
    return dx, dw, None, None, None, None


def _setup_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    first, second, ctx.size, *ctx.geometry = inputs
    ctx.save_for_backward(first, second)


def _differentiate_input_gradient(ctx: Any, grad_dx: Tensor) -> tuple[Tensor | None, ...]:
    grad, weight = ctx.saved_tensors
    axes = len(ctx.geometry[0])
    d_grad = d_weight = None
    if ctx.needs_input_grad[0]:
        d_grad = locally_connected(grad_dx, weight, *ctx.geometry)
    if ctx.needs_input_grad[1]:
        d_weight = weight_gradient(grad_dx, grad, list(weight.shape[-axes:]), *ctx.geometry)
    return d_grad, d_weight, None, None, None, None, None


def _differentiate_weight_gradient(ctx: Any, grad_dw: Tensor) -> tuple[Tensor | None, ...]:
    x, grad = ctx.saved_tensors
    d_x = d_grad = None
    if ctx.needs_input_grad[0]:
        d_x = input_gradient(grad, grad_dw, list(x.shape[2:]), *ctx.geometry)
    if ctx.needs_input_grad[1]:
        d_grad = locally_connected(x, grad_dw, *ctx.geometry)
    return d_x, d_grad, None, None, None, None, None


locally_connected.register_autograd(_differentiate_locally_connected, setup_context=_setup_locally_connected)
input_gradient.register_autograd(_differentiate_input_gradient, setup_context=_setup_gradient)
weight_gradient.register_autograd(_differentiate_weight_gradient, setup_context=_setup_gradient)


def _empty_activations(like: Tensor, shape: Sequence[int]) -> Tensor:
    batch, channels, *space = shape
    return channels_second(like.new_empty([*space, batch, channels]))
