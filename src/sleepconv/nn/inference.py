"""The way back: networks without weight sharing as networks of convolutions."""

import copy
import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from sleepconv.functional.sizes import check_finite
from sleepconv.kernels.lattice import repeated_corner
from sleepconv.nn.conversion import NothingConvertedWarning, replace_layers
from sleepconv.nn.grid_convolution import GridConvolution
from sleepconv.nn.layout import forget_layout
from sleepconv.nn.modules import LocallyConnected, PerPatchLinear

_NEGLIGIBLE = 1e-3  # of the weights' root mean square


def to_convolutional(model: nn.Module, *, inplace: bool = False) -> nn.Module:
    """Replace every layer without weight sharing by the shared layer with its mean weights.

    A locally connected layer becomes a convolution, a per-patch linear layer an ``nn.Linear``. The network computes the
    same only if all filters of each layer agree: after ``copy_weights=True``, or after a sleep across grids
    (``Instant(period=...)``). A sleep within the grids leaves one filter per grid, nine in a 3×3 layer, and their mean
    is another network: there is a warning with the measured difference. ``to_grid_convolutional`` keeps what such a
    network computes.

    Args:
        model: a model or a layer.
        inplace: change ``model`` itself instead of a copy.

    Returns:
        The convolutional model.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> local = LocallyConnected2d.from_conv2d(nn.Conv2d(3, 8, 3), 16)
    >>> to_convolutional(local)
    Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
    """
    layers = _layers(model)
    _warn_if_changed(layers)
    new = {
        name: layer.to_linear() if isinstance(layer, PerPatchLinear) else layer._to_convolution()
        for name, layer in layers.items()
    }
    return forget_layout(_with(model, layers, new, inplace))


def to_grid_convolutional(model: nn.Module, *, tolerance: float = 1e-6, inplace: bool = False) -> nn.Module:
    """Replace every layer that has slept by an equal one that holds each filter once: inference as convolutions.

    A locally connected layer whose filters agree within its lateral grids becomes a ``GridConvolution`` with one filter
    per grid (k² for a k×k layer), a per-patch layer whose matrices agree an ``nn.Linear``. The outputs stay the same,
    up to rounding; files are as small as the convolutional network's × k²; it runs on any device, faster than the
    locally connected network, and can be exported without sleepconv.

    Args:
        model: a model or a layer, after a sleep.
        tolerance: how far two filters of a grid may differ, relative to the largest weight of the layer; beyond that
            there is a ValueError. Each grid's filter is the mean.
        inplace: change ``model`` itself instead of a copy.

    Returns:
        The model with one filter per grid.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> from sleepconv.sleep import Instant
    >>> local = Instant()(LocallyConnected2d(3, 8, 3, input_size=16))
    >>> to_grid_convolutional(local)
    GridConvolution(3, 8, kernel_size=(3, 3), spacing=(3, 3), stride=(1, 1), bias=True)
    >>> local.weight.numel(), to_grid_convolutional(local).weight.numel()
    (42336, 1944)
    """
    check_finite("tolerance", tolerance, least=0)
    layers = _layers(model)
    new = {
        name: layer.to_linear() if isinstance(layer, PerPatchLinear) else _on_grids(name, layer, spacing)
        for name, layer in layers.items()
        for spacing in [_shared_spacing(name, layer, tolerance)]
    }
    return _with(model, layers, new, inplace)


_Layer = LocallyConnected | PerPatchLinear


def _layers(model: nn.Module) -> dict[str, _Layer]:
    layers = {name: m for name, m in model.named_modules() if isinstance(m, (LocallyConnected, PerPatchLinear))}
    if not layers:
        text = "nothing was converted: the model has no locally connected or per-patch layer"
        warnings.warn(text, NothingConvertedWarning, stacklevel=3)
    return layers


def _with(model: nn.Module, layers: dict[str, _Layer], new: Mapping[str, nn.Module], inplace: bool) -> nn.Module:
    """Return the model, or a copy, with the new layers; the large weights of the old ones are not copied."""
    if not inplace:
        memory = {id(layer.weight): nn.Parameter(layer.weight.new_empty(0)) for layer in layers.values()}
        model, new = copy.deepcopy((model, new), memory)  # at once: what both refer to stays common to them
    return replace_layers(model, {model.get_submodule(name): layer for name, layer in new.items()})


def _warn_if_changed(layers: dict[str, _Layer]) -> None:
    """Warn, on behalf of the caller's caller, that means replace filters that differ."""
    changes = {name: _deviation(layer) for name, layer in layers.items()}
    changed = [name for name, change in changes.items() if change > _NEGLIGIBLE]
    if changed:
        worst = max(changed, key=changes.__getitem__)
        warnings.warn(
            f"to_convolutional changes what the network computes: in {len(changed)} of {len(layers)} layers filters "
            f"differ from their mean, most in {worst or 'the model itself'}, by {changes[worst]:.0%} of their root "
            "mean square; after a sleep within grids, to_grid_convolutional(model) keeps the outputs",
            UserWarning,
            stacklevel=3,
        )


@torch.no_grad()
def _deviation(layer: _Layer) -> float:
    """Return the root mean square of weights, or biases of neurons, minus their mean, relative to their own."""
    axes = tuple(range(layer.weight.dim() - (2 if isinstance(layer, PerPatchLinear) else 2 + layer.axes)))
    found = [torch.var_mean(layer.weight, axes, correction=0)]
    if layer.bias is not None and layer.bias.dim() > 1:
        over = (0,) if isinstance(layer, PerPatchLinear) else tuple(range(1, layer.bias.dim()))
        found.append(torch.var_mean(layer.bias, over, correction=0))
    variances = [(float(variance.mean()), float(mean.square().mean())) for variance, mean in found]
    return max((variance / ((variance + square) or 1)) ** 0.5 for variance, square in variances)


def _on_grids(name: str, layer: LocallyConnected, spacing: tuple[int, ...]) -> GridConvolution:
    if type(layer)._respond is not LocallyConnected._respond:
        raise ValueError(
            f"layer {name!r} cannot become a GridConvolution: {type(layer).__name__} overrides how a locally connected "
            "layer computes or learns; if it has feedback weights, call sleepconv.wake.with_weight_transport first"
        )
    return GridConvolution.from_locally_connected(layer, spacing)


@torch.no_grad()
def _shared_spacing(name: str, layer: _Layer, tolerance: float) -> tuple[int, ...]:
    """Return the smallest spacing, along each axis, of neurons with equal filters; raise if they do not share."""
    corner = repeated_corner(layer.grids)
    assert corner is not None  # lateral grids are regular lattices
    largest = float(layer.weight.abs().amax())
    limit = tolerance * largest
    spacing = tuple(_period(layer.weight, axis, own, limit) for axis, own in enumerate(corner.shape))
    if all(spacing):
        return spacing
    apart = max(_difference(layer.weight, axis, own) for axis, own in enumerate(corner.shape)) / largest
    inside = isinstance(layer, LocallyConnected) and _shares_inside(layer, corner.shape, limit)
    raise ValueError(
        f"layer {name!r}: filters of one grid differ by {apart:.2g} of the largest weight, the tolerance is "
        f"{tolerance:g}; "
        + (
            "only its border does not share: let it sleep once with border='all'"
            if inside
            else "let the network sleep first, as sleepconv.sleep.Instant()(model) does, or raise `tolerance`"
        )
    )


def _shares_inside(layer: LocallyConnected, spacing: Sequence[int], limit: float) -> bool:
    weight = layer.weight[layer.interior]
    return all(n > t for n, t in zip(weight.shape, spacing, strict=False)) and all(
        _difference(weight, axis, step, limit) <= limit for axis, step in enumerate(spacing)
    )


def _period(weight: Tensor, axis: int, own: int, limit: float) -> int:
    """Return the least step along an axis that leads to equal filters, or 0."""
    steps = range(1, max(own, weight.shape[axis] // 2) + 1)
    return next((step for step in steps if _difference(weight, axis, step, limit) <= limit), 0)


def _difference(weight: Tensor, axis: int, step: int, limit: float = float("inf")) -> float:
    """Return the largest difference between filters this many steps apart, or the first one above the limit."""
    largest = 0.0
    for i in range(weight.shape[axis] - step):
        found = float((weight.select(axis, i + step) - weight.select(axis, i)).abs().amax())
        if not found <= limit:
            return found
        largest = max(largest, found)
    return largest
