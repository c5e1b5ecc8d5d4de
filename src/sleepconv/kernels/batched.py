"""Pure PyTorch, for any device: one batched matrix product per filter tap and no unfolded copy of the input.

With activations as (*space, batch, channels), tap u of all filters is a batch (over positions) of products between
the (batch × in) inputs that u sees and the (in × out) weights of u.
"""

from typing import Any

import torch
from torch import Tensor

from sleepconv.kernels.geometry import Axes, Geometry, by_position, empty_activations, position_major
from sleepconv.kernels.lattice import summed_grids


def forward(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Compute y[i] = Σ_u x[i·stride + u·dilation − padding] · w[i, :, :, u]ᵀ."""
    inputs = position_major(x)
    y = empty_activations(x, geometry.y_shape).zero_()
    outputs = by_position(y)
    for tap in geometry.taps:
        seen, seeing = _overlap(tap, geometry)
        products = torch.matmul(_grouped(inputs[seen], geometry), _tap(weight, seeing, tap, geometry).mT)
        _grouped(outputs[seeing], geometry).add_(products)
    return y


def input_gradient(grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Compute dx[i·stride + u·dilation − padding] += dy[i] · w[i, :, :, u], tap by tap."""
    grads = position_major(grad)
    dx = empty_activations(grad, geometry.x_shape).zero_()
    inputs = by_position(dx)
    for tap in geometry.taps:
        seen, seeing = _overlap(tap, geometry)
        products = torch.matmul(_grouped(grads[seeing], geometry), _tap(weight, seeing, tap, geometry))
        _grouped(inputs[seen], geometry).add_(products)
    return dx


def weight_gradient(x: Tensor, grad: Tensor, geometry: Geometry) -> Tensor:
    """Compute dw[i, :, :, u] = dy[i]ᵀ · x[i·stride + u·dilation − padding]."""
    inputs, grads = position_major(x), position_major(grad)
    dw = x.new_zeros(geometry.weight_shape)
    for tap in geometry.taps:
        seen, seeing = _overlap(tap, geometry)
        products = torch.matmul(_grouped(grads[seeing], geometry).mT, _grouped(inputs[seen], geometry))
        _tap(dw, seeing, tap, geometry).copy_(products)
    return dw


def share_(weight: Tensor, grids: Tensor) -> None:
    """Set the filters of one grid after the other to their mean, with memory for one row of neurons."""
    neurons = torch.bincount(grids.flatten()).tolist()
    for grid, indices, total in summed_grids(weight, grids):
        mean = total / neurons[grid]
        for index in indices:
            weight[index] = mean


def _overlap(tap: Axes, g: Geometry) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the inputs that this tap sees, and the output positions that see one there (not the padding)."""
    seen, seeing = [], []
    axes = zip(tap, g.input_size, g.output_size, g.stride, g.padding, g.dilation, strict=True)
    for u, size, out, stride, padding, dilation in axes:
        offset = u * dilation - padding
        first = max(0, -(offset // stride))
        end = max(first, min(out, (size - 1 - offset) // stride + 1))
        start = first * stride + offset
        seen.append(slice(start, start + (end - first - 1) * stride + 1 if end > first else start, stride))
        seeing.append(slice(first, end))
    return tuple(seen), tuple(seeing)


def _grouped(activations: Tensor, g: Geometry) -> Tensor:
    """Return a view of shape (*space, groups, batch, channels of a group)."""
    return activations.unflatten(-1, (g.groups, -1)).movedim(-2, -3)


def _tap(weight: Tensor, seeing: tuple[slice, ...], tap: Axes, g: Geometry) -> Tensor:
    """Return a view of shape (*space, groups, out, in) of one tap of the filters at these positions."""
    places: tuple[Any, ...] = (*seeing, slice(None), slice(None), *tap)
    return weight[places].unflatten(len(seeing), (g.groups, -1))
