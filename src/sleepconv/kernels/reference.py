"""The layer as one would write it on paper: a loop over positions. Slow, and easy to verify by reading."""

from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sleepconv.kernels.geometry import Geometry, empty_activations


def forward(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Compute y[b, o, i] = Σ_{c, u} w[i, o, c, u] · x[b, c, i·stride + u·dilation − padding], 0 outside the input."""
    padded = _padded(x, geometry)
    y = empty_activations(x, geometry.y_shape)
    for position in product(*map(range, geometry.output_size)):
        window = _window(padded, position, geometry)
        for group in range(geometry.groups):
            ins, outs = _channels(group, geometry)
            y[_at(outs, position)] = torch.einsum("bc...,oc...->bo", window[:, ins], weight[position][outs])
    return y


def input_gradient(grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Send the gradient of each output neuron back through its filter to the inputs in its window."""
    padded = torch.zeros_like(_padded(grad.new_zeros(geometry.x_shape), geometry))
    for position in product(*map(range, geometry.output_size)):
        window = _window(padded, position, geometry)
        for group in range(geometry.groups):
            ins, outs = _channels(group, geometry)
            window[:, ins] += torch.einsum("bo,oc...->bc...", grad[_at(outs, position)], weight[position][outs])
    inside = [slice(p, p + n) for p, n in zip(geometry.padding, geometry.input_size, strict=True)]
    return empty_activations(grad, geometry.x_shape).copy_(padded[:, :, *inside])


def weight_gradient(x: Tensor, grad: Tensor, geometry: Geometry) -> Tensor:
    """Sum over the batch the gradient of each neuron times the inputs in its window."""
    padded = _padded(x, geometry)
    dw = x.new_zeros(geometry.weight_shape)
    for position in product(*map(range, geometry.output_size)):
        window = _window(padded, position, geometry)
        for group in range(geometry.groups):
            ins, outs = _channels(group, geometry)
            dw[position][outs] = torch.einsum("bc...,bo->oc...", window[:, ins], grad[_at(outs, position)])
    return dw


def share_(weight: Tensor, grids: Tensor) -> None:
    """Set w_i to (Σ_{j in the grid of i} w_j) / (number of neurons of that grid), summed in double precision."""
    for grid in grids.unique():
        neurons = grids == grid
        weight[neurons] = weight[neurons].double().mean(dim=0).to(weight.dtype)


def _padded(x: Tensor, g: Geometry) -> Tensor:
    axes = zip(g.input_size, g.output_size, g.kernel_size, g.stride, g.padding, g.dilation, strict=True)
    sides: list[int] = []
    for size, out, kernel, stride, before, dilation in reversed(list(axes)):
        behind = (out - 1) * stride + (kernel - 1) * dilation + 1 - before - size
        sides += [before, max(behind, 0)]
    return pad(x, sides)


def _window(padded: Tensor, position: tuple[int, ...], g: Geometry) -> Tensor:
    places = [
        slice(i * s, i * s + (k - 1) * d + 1, d)
        for i, s, k, d in zip(position, g.stride, g.kernel_size, g.dilation, strict=True)
    ]
    return padded[:, :, *places]


def _channels(group: int, g: Geometry) -> tuple[slice, slice]:
    ins, outs = g.in_channels // g.groups, g.out_channels // g.groups
    return slice(group * ins, (group + 1) * ins), slice(group * outs, (group + 1) * outs)


def _at(channels: slice, position: tuple[int, ...]) -> tuple[Any, ...]:
    return (slice(None), channels, *position)
