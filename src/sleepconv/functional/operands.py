"""What the operators check before a kernel computes: kernels read memory as these sizes say."""

from collections.abc import Sequence

from torch import Tensor

from sleepconv.functional.sizes import per_axis, whole
from sleepconv.kernels import Geometry


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
