"""The layer as PyTorch operators, so that autograd, ``torch.compile`` and ``torch.export`` know it.

Three bilinear operators, closed under differentiation: the derivatives of each are the two others, so any number of
backward passes works. Where only autograd is watching, ``apply`` and its two gradients call the kernels themselves:
PyTorch's dispatcher would add a fifth to the time of a small layer. A gradient has the memory layout of the tensor that
it belongs to: some of PyTorch's backward passes (instance and batch normalization) misread gradients that have another
layout.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor, library, nn
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.autograd import forward_ad

from sleepconv.functional.sizes import Sides, check_divisible, check_int, describe_padding, padded_output_size, per_axis
from sleepconv.kernels import Geometry, kernel_for, triton
from sleepconv.kernels.geometry import channel_major, empty_activations

_PLAIN_TYPES = (Tensor, nn.Parameter)
_WEIGHT_AXES = "output size, out_channels, in_channels / groups, kernel size"


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
    """Return the geometry of two of the three tensors and the spatial size of the third; raise if they do not fit.

    ``padding`` has one entry per axis, or two (before and behind) if the sides may differ.

    >>> import torch
    >>> checked_geometry([1], [0], [1], 1, x=torch.ones(2, 3, 6), weight=torch.ones(4, 5, 3, 3)).y_shape
    (2, 5, 4)
    """
    axes = len(stride)
    if not 1 <= axes <= 3:
        raise ValueError(f"`stride` must have one to three entries, one per spatial axis, got {list(stride)}")
    check_int("groups", groups)
    strides, dilations = per_axis("stride", stride, axes), per_axis("dilation", dilation, axes)
    sides = _padding_sides(padding, axes)
    given = {"input": x, "weight": weight, "gradient": grad}
    tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
    check_tensors(tensors, axes)
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
    geometry = Geometry(
        batch=batch,
        in_channels=in_channels,
        out_channels=out_channels,
        input_size=per_axis("input_size", input_size, axes),
        output_size=tuple(output_size),
        kernel_size=per_axis("kernel_size", kernel_size, axes),
        stride=strides,
        padding=tuple(before for before, _ in sides),
        dilation=dilations,
        groups=groups,
    )
    _check_channels(tensors, geometry)
    _check_fit(tensors, geometry, sides)
    return geometry


def check_tensors(tensors: Mapping[str, Tensor], axes: int) -> None:
    """Raise an error unless the tensors have the right ranks, one floating-point dtype and one device."""
    for name, tensor in tensors.items():
        rank, meaning = (2 * axes + 2, _WEIGHT_AXES) if name == "weight" else (axes + 2, "batch, channels, space")
        if tensor.dim() != rank and name != "bias":
            raise ValueError(f"expected a {rank}-dimensional {name} ({meaning}), got shape {tuple(tensor.shape)}")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must have a real floating-point dtype, got {tensor.dtype}")
    if len({tensor.dtype for tensor in tensors.values()}) > 1:
        raise TypeError(f"{_and(tensors)} must have the same dtype, got {_and(t.dtype for t in tensors.values())}")
    if len({tensor.device for tensor in tensors.values()}) > 1:
        devices = _and(t.device for t in tensors.values())
        raise ValueError(f"{_and(tensors)} must be on the same device, got {devices}")


def _and(values: Iterable[object]) -> str:
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}"


def _padding_sides(padding: Sequence[int], axes: int) -> tuple[tuple[int, int], ...]:
    if len(padding) == 2 * axes:
        flat = per_axis("padding", padding, 2 * axes, least=0)
        return tuple(zip(flat[::2], flat[1::2], strict=True))
    return tuple((p, p) for p in per_axis("padding", padding, axes, least=0))


def _check_channels(tensors: Mapping[str, Tensor], g: Geometry) -> None:
    if not g.in_channels or not g.out_channels:
        raise ValueError(
            "a layer needs at least one input and one output channel, "
            f"got in_channels={g.in_channels} and out_channels={g.out_channels}"
        )
    if "input" in tensors and "weight" in tensors:
        per_group = tensors["weight"].shape[len(g.stride) + 1]
        if g.in_channels != per_group * g.groups:
            raise ValueError(
                f"the input has {g.in_channels} channels, but the weight takes {per_group * g.groups} "
                f"({per_group} in each of {g.groups} groups)"
            )
    check_divisible("in_channels", g.in_channels, "groups", g.groups)
    check_divisible("out_channels", g.out_channels, "groups", g.groups)


def _check_fit(tensors: Mapping[str, Tensor], g: Geometry, sides: Sides) -> None:
    expected = {"input": g.x_shape, "weight": g.weight_shape, "gradient": g.y_shape}
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != expected[name]:
            (other,) = (other for other in tensors if other != name)
            raise ValueError(
                f"with {other} of shape {tuple(tensors[other].shape)} and groups={g.groups}, {name} must have shape "
                f"{expected[name]}, got {tuple(tensor.shape)}"
            )
    need = padded_output_size(g.input_size, g.kernel_size, g.stride, sides, g.dilation)
    if g.output_size != need:
        raise ValueError(
            f"the {'weight' if 'weight' in tensors else 'gradient'} covers {g.output_size} output positions, but an "
            f"input of size {g.input_size} with kernel_size={g.kernel_size}, stride={g.stride}, "
            f"padding={describe_padding(sides)}, dilation={g.dilation} has {need}"
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
    """Apply to every output position its own filter; ``padding`` is as in ``checked_geometry``.

    The result is contiguous, or stored position by position.
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
    """Return the gradient of ``locally_connected`` with respect to its input of this spatial size.

    The result is contiguous, or stored position by position.
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
    """Return the gradient of ``locally_connected`` with respect to its weight of this kernel size."""
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
    x, weight, *ctx.options, _ = inputs
    ctx.save_for_backward(x, weight)


def _differentiate_locally_connected(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = input_gradient_like(x, grad, weight, ctx.options)
    if ctx.needs_input_grad[1]:
        dw = weight_gradient_like(x, grad, weight, ctx.options)
    return dx, dw, None, None, None, None, None


def _setup_input_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, weight, _, *ctx.options, _ = inputs
    ctx.save_for_backward(grad, weight)


def _differentiate_input_gradient(ctx: Any, grad_dx: Tensor) -> tuple[Tensor | None, ...]:
    grad, weight = ctx.saved_tensors
    d_grad = d_weight = None
    if ctx.needs_input_grad[0]:
        d_grad = _response_like(grad, grad_dx, weight, ctx.options)
    if ctx.needs_input_grad[1]:
        d_weight = weight_gradient_like(grad_dx, grad, weight, ctx.options)
    return d_grad, d_weight, None, None, None, None, None, None


def _setup_weight_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, grad, _, *ctx.options = inputs
    ctx.save_for_backward(x, grad)


def _differentiate_weight_gradient(ctx: Any, grad_dw: Tensor) -> tuple[Tensor | None, ...]:
    x, grad = ctx.saved_tensors
    d_x = d_grad = None
    if ctx.needs_input_grad[0]:
        d_x = input_gradient_like(x, grad, grad_dw, ctx.options)
    if ctx.needs_input_grad[1]:
        d_grad = _response_like(grad, x, grad_dw, ctx.options)
    return d_x, d_grad, None, None, None, None, None


locally_connected.register_autograd(_differentiate_locally_connected, setup_context=_setup_locally_connected)
input_gradient.register_autograd(_differentiate_input_gradient, setup_context=_setup_input_gradient)
weight_gradient.register_autograd(_differentiate_weight_gradient, setup_context=_setup_weight_gradient)


def _see_through(operator: library.CustomOpDef, compute: Callable[..., Tensor]) -> None:
    """Let ``torch.compile`` trace into the Triton kernel, as it does into operators made by ``triton_op``.

    Elsewhere, and in ``torch.export``, the operator stays whole: the other kernels are calls to PyTorch or to C++.
    """

    def decompose(mode: Any, op: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if kernel_for(args[0]) is not triton or _stays_whole():
            return mode.__torch_dispatch__(op, types, args, kwargs)
        with mode:
            return compute(*args, **(kwargs or {}))

    operator.register_torch_dispatch(FunctionalTensorMode, decompose)


def _stays_whole() -> bool:
    """Return whether ``torch.export`` is tracing; before PyTorch 2.7, which does not tell, always."""
    try:
        from torch.export._trace import custom_triton_ops_decomposition_disabled  # it imports all of torch.compile
    except ImportError:
        return True
    return custom_triton_ops_decomposition_disabled()


for _operator in (locally_connected, input_gradient, weight_gradient):
    _see_through(_operator, _operator._init_fn)


def apply(x: Tensor, weight: Tensor, options: Sequence[Any], position_major: bool) -> Tensor:
    """Compute ``locally_connected``, without the dispatcher where only autograd is watching."""
    geometry = _kernel_geometry(x, weight, None, options)
    if geometry is None:
        return locally_connected(x, weight, *options, position_major)
    return _EagerLocallyConnected.apply(x, weight, *options, position_major, geometry)


def input_gradient_like(x: Tensor, grad: Tensor, weight: Tensor, options: Sequence[Any]) -> Tensor:
    """Return the gradient with respect to ``x`` in the memory layout of ``x``."""
    position_major = not x.is_contiguous()
    geometry = None if torch.is_grad_enabled() else _kernel_geometry(x, weight, grad, options)
    if geometry is None:
        return _laid_out_like(x, input_gradient(grad, weight, list(x.shape[2:]), *options, position_major))
    dx = kernel_for(grad).input_gradient(grad, weight, geometry)
    return _laid_out_like(x, dx if position_major else channel_major(dx))


def weight_gradient_like(x: Tensor, grad: Tensor, weight: Tensor, options: Sequence[Any]) -> Tensor:
    """Return the gradient with respect to ``weight``, whose values do not matter."""
    geometry = None if torch.is_grad_enabled() else _kernel_geometry(x, weight, grad, options)
    if geometry is None:
        return weight_gradient(x, grad, list(weight.shape[-len(options[0]) :]), *options)
    return kernel_for(x).weight_gradient(x, grad, geometry)


class _EagerLocallyConnected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, *arguments: Any) -> Tensor:
        *ctx.options, position_major, geometry = arguments
        ctx.save_for_backward(x, weight)
        y = kernel_for(x).forward(x, weight, geometry)
        return y if position_major else channel_major(y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *_differentiate_locally_connected(ctx, grad), None


def needs_plain_operations() -> bool:
    """Return whether our operators would fail here, or have zero derivatives: they lack rules for these transforms."""
    if torch.compiler.is_compiling():
        return torch.onnx.is_in_onnx_export()
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return transformed or forward_ad._current_level >= 0 or torch.jit.is_tracing()


def kernels_apply_to(*tensors: Tensor) -> bool:
    """Return whether kernels may be called on these tensors of the CPU without PyTorch's dispatcher.

    They may not if something besides autograd has to see the operator (a compiler, a transform, a mode), or if PyTorch
    has to prepare a tensor first (subclasses, lazy negation).
    """
    if torch.compiler.is_compiling() or needs_plain_operations():
        return False
    plain = _plain_keys()
    if not plain or torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return False
    for tensor in tensors:
        if type(tensor) not in _PLAIN_TYPES or torch._C._dispatch_keys(tensor).raw_repr() not in plain:
            return False
    return True


def _kernel_geometry(x: Tensor, weight: Tensor, grad: Tensor | None, options: Sequence[Any]) -> Geometry | None:
    """Return the geometry for a kernel; None if the operator has to call it, or to report what does not fit."""
    last = weight if grad is None else grad
    same = x.is_floating_point() and x.dtype == weight.dtype == last.dtype
    if not same or not kernels_apply_to(x, weight, last):
        return None
    *per_axis_options, groups = options
    geometry = _fitting_geometry(x.shape, weight.shape, *map(tuple, per_axis_options), groups)
    return geometry if geometry is None or grad is None or grad.shape == geometry.y_shape else None


@cache
def _plain_keys() -> set[int]:
    """Return the dispatch keys of ordinary tensors on the CPU, made with and without inference mode.

    Empty where an older PyTorch does not tell them.
    """
    keys: set[int] = set()
    for mode in (False, True) if hasattr(torch._C.DispatchKeySet, "raw_repr") else ():
        with torch.inference_mode(mode):
            keys.add(torch._C._dispatch_keys(torch.empty(0, device="cpu")).raw_repr())
    return keys


@lru_cache(maxsize=4096)
def _fitting_geometry(x_shape: Sequence[int], weight_shape: Sequence[int], *options: Any) -> Geometry | None:
    """Return ``checked_geometry`` of tensors of these shapes, checking them once; None if they do not fit."""
    x, weight = (torch.empty(shape, device="meta") for shape in (x_shape, weight_shape))
    try:
        return checked_geometry(*options, x=x, weight=weight)
    except ValueError:
        return None


def _response_like(like: Tensor, x: Tensor, weight: Tensor, options: Sequence[Any]) -> Tensor:
    return _laid_out_like(like, locally_connected(x, weight, *options, not like.is_contiguous()))


def _laid_out_like(x: Tensor, result: Tensor) -> Tensor:
    return result if result.stride() == x.stride() else torch.empty_like(x).copy_(result)


def _empty(like: Tensor, shape: Sequence[int], position_major: bool) -> Tensor:
    return empty_activations(like, shape) if position_major else like.new_empty(shape)
