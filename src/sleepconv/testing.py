"""Public checks that a network is convolutional after its sleep."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from sleepconv.kernels.lattice import grid_indices, repeated_corner
from sleepconv.nn.modules import LocallyConnected
from sleepconv.sleep.distributed import full_tensor
from sleepconv.sleep.layers import Border, sharing_grids, sleeping_layers

_Shift = tuple[int, ...]


@torch.no_grad()
def assert_convolutional(
    model: nn.Module, *, tolerance: float = 1e-6, border: Border = "all", period: int | None = None
) -> None:
    """Raise an AssertionError unless the filters of each grid are equal in every locally connected layer.

    Weights that contain NaN or infinity fail the check.

    Args:
        model: a model or a layer.
        tolerance: how far two filters of a grid may differ, relative to the largest weight of the layer.
        border: "all", or "interior" to check only neurons that see no padding.
        period: the period of the input patterns that define the grids; by default each layer's own. With 1, all
            filters of a layer must be equal.

    >>> import sleepconv
    >>> layer = sleepconv.nn.LocallyConnected2d(1, 4, 3, input_size=9)
    >>> assert_convolutional(sleepconv.sleep.Instant()(layer))
    """
    for name, layer in sleeping_layers(model).items():
        weight, grids = full_tensor(layer.weight), sharing_grids(layer, border, period)
        scale = float(weight.abs().amax())
        if not isfinite(scale):
            raise AssertionError(f"the weight of layer {name!r} contains NaN or infinity")
        grid, neuron, difference = max(_differences(weight, grids), key=lambda found: found[2])
        if not difference <= tolerance * scale:
            raise AssertionError(
                f"layer {name!r} is not convolutional: in grid {grid} the filter of neuron {neuron} differs from the "
                f"grid's first by {difference:.3g}, {difference / scale:.3g} of the largest weight; "
                f"the tolerance is {tolerance:g}"
            )


@torch.no_grad()
def assert_grid_equivariant(
    layer: nn.Module, shifts: int | Sequence[int | _Shift] | None = None, *, tolerance: float = 1e-5
) -> None:
    r"""Raise an AssertionError unless the layer's interior commutes with shifts of its input.

    .. math:: z_{i + s / stride}(x) = z_i(x(\cdot + s))

    for all neurons i and i + s / stride whose windows do not overlap the padding. After sleep this holds for shifts s
    by the grids' spacing × stride (3 pixels for a 3×3 layer); for a convolution by any multiple of the stride. The
    input is random, with a fixed seed. Weights or responses that contain NaN or infinity fail the check.

    Args:
        layer: a locally connected layer.
        shifts: in input pixels; an int shifts along each axis in turn, a tuple along all axes at once. By default the
            spacing of the grids × the stride.
        tolerance: how far responses may differ, relative to the largest.

    >>> import sleepconv
    >>> layer = sleepconv.sleep.Instant()(sleepconv.nn.LocallyConnected2d(1, 4, 3, input_size=9))
    >>> assert_grid_equivariant(layer)
    >>> assert_grid_equivariant(layer, shifts=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: a shift by (1, 0) pixels should move ...
    """
    if not isinstance(layer, LocallyConnected):
        raise TypeError(f"expected a locally connected layer, such as LocallyConnected2d, got {type(layer).__name__}")
    chosen = _spacing_shifts(layer) if shifts is None else _as_shifts(shifts, layer.axes)
    if not all(bool(parameter.isfinite().all()) for parameter in layer.parameters()):
        raise AssertionError("the weights of this layer contain NaN or infinity")
    for shift in chosen:
        moved = _neurons_moved(layer, shift)
        before, after = _overlapping_responses(layer, shift, moved)
        scale, error = float(before.abs().amax()), (before - after).abs()
        if not isfinite(scale):
            raise AssertionError(f"the responses of this layer ({before.dtype}) contain NaN or infinity")
        if not float(error.amax()) <= tolerance * scale:
            raise AssertionError(_describe_failure(layer, shift, moved, error, scale, tolerance))


def _differences(weight: Tensor, grids: Tensor) -> Iterator[tuple[int, _Shift, float]]:
    """Yield for each grid the neuron whose filter differs most from that of the grid's first, and by how much."""
    for number, indices in grid_indices(grids):
        first = weight[indices[0]][(0,) * grids.dim()]
        positions = (grids == number).nonzero()
        apart = [(weight[index] - first).abs().flatten(grids.dim()).amax(-1).flatten() for index in indices]
        worst = int(torch.cat(apart).argmax())
        yield number, tuple(positions[worst].tolist()), float(torch.cat(apart)[worst])


def _spacing_shifts(layer: LocallyConnected) -> list[_Shift]:
    shifts, corner = [], repeated_corner(layer.grids)
    assert corner is not None  # lateral grids are regular lattices
    for axis, (spacing, stride) in enumerate(zip(corner.shape, layer.stride, strict=True)):
        first, last = _interior(layer, axis)
        if spacing <= last - first:
            shifts.append(_along(axis, spacing * stride, layer.axes))
    if not shifts:
        raise ValueError(
            f"there is nothing to compare: the interior of this layer, of output size {layer.output_size}, has no two "
            "neurons of one grid; check a larger layer"
        )
    return shifts


def _as_shifts(shifts: int | Sequence[int | _Shift], axes: int) -> list[_Shift]:
    listed = [shifts] if isinstance(shifts, int) else list(shifts)
    vectors = [
        vector
        for shift in listed
        for vector in ([_along(a, shift, axes) for a in range(axes)] if isinstance(shift, int) else [tuple(shift)])
    ]
    if not vectors or any(len(v) != axes or min(v) < 0 or max(v) == 0 for v in vectors):
        raise ValueError(f"`shifts` must be positive ints, or tuples of {axes} (one per axis), got {shifts!r}")
    return vectors


def _along(axis: int, shift: int, axes: int) -> _Shift:
    return tuple(shift if a == axis else 0 for a in range(axes))


def _interior(layer: LocallyConnected, axis: int) -> tuple[int, int]:
    """Return the first and the last neuron along an axis whose windows do not overlap the padding."""
    neurons = layer.interior[axis]
    return neurons.start, neurons.stop - 1


def _neurons_moved(layer: LocallyConnected, shift: _Shift) -> _Shift:
    """Return by how many neurons the responses move when the input moves by this many pixels."""
    if any(s % stride for s, stride in zip(shift, layer.stride, strict=True)):
        raise ValueError(
            f"a shift by {shift} pixels does not move the responses by an integer number of neurons; with "
            f"stride={layer.stride} use multiples of the stride"
        )
    moved = tuple(s // stride for s, stride in zip(shift, layer.stride, strict=True))
    for axis, distance in enumerate(moved):
        first, last = _interior(layer, axis)
        if distance > last - first:
            raise ValueError(
                f"there is nothing to compare after a shift by {shift} pixels: along axis {axis} the interior has "
                f"{max(last - first + 1, 0)} neurons, and the responses move by {distance}"
            )
    return moved


def _overlapping_responses(layer: LocallyConnected, shift: _Shift, moved: _Shift) -> tuple[Tensor, Tensor]:
    """Return the responses to two overlapping views of one scene, cut to where both should be equal."""
    extent = [size + s for size, s in zip(layer.input_size, shift, strict=True)]
    generator = torch.Generator().manual_seed(0)
    scene = torch.randn(2, layer.in_channels, *extent, generator=generator, device=generator.device)
    scene = scene.to(layer.weight.device, layer.weight.dtype)
    corners = [slice(0, n) for n in layer.input_size], [slice(s, None) for s in shift]
    first_view, second_view = (layer(scene[(..., *corner)].contiguous()) for corner in corners)
    bounds: list[Any] = [_interior(layer, axis) for axis in range(layer.axes)]
    here = [slice(first + m, last + 1) for (first, last), m in zip(bounds, moved, strict=True)]
    there = [slice(first, last + 1 - m) for (first, last), m in zip(bounds, moved, strict=True)]
    return first_view[(..., *here)], second_view[(..., *there)]


def _describe_failure(
    layer: LocallyConnected, shift: _Shift, moved: _Shift, error: Tensor, scale: float, tolerance: float
) -> str:
    worst = int(error.argmax())
    _, channel, *place = (int(index) for index in torch.unravel_index(torch.tensor(worst), error.shape))
    there = tuple(p + _interior(layer, axis)[0] for axis, p in enumerate(place))
    here = tuple(t + m for t, m in zip(there, moved, strict=True))
    difference = float(error.flatten()[worst])
    return (
        f"a shift by {shift} pixels should move the responses by {moved} neurons, but neurons {here} and {there}, "
        f"channel {channel}, differ by {difference:.3g}, {difference / scale:.3g} of the largest response; "
        f"the tolerance is {tolerance:g}"
    )
