"""Measure and draw what sleep does to any model, in any training loop.

- How far have the neurons that share come apart? ``negative_log_snrs``, now; ``snr_curves`` over a training run with
  sleep; ``sleep_curves`` step by step within one sleep, or ``watch`` in a loop of your own. ``draw_curves`` draws them.
- What drives a layer in its sleep? ``pattern_covariances``, and ``draw_covariance``. Where should it settle then?
  ``predicted_negative_log_snrs``.
- What do the filters of a grid look like, before and after? ``grid_filters``, ``filters_before_and_after``, and
  ``draw_filters``.

Functions that let a model sleep do so on a copy. Drawing needs matplotlib; every function that draws takes axes, or
makes a figure of its own, and returns the axes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sleepconv.curves import Curve, before_sleep, draw_curves, negative_log, new_axes, snr_curves
from sleepconv.functional.measures import pooled_weight_snr
from sleepconv.sleep import Circuit, Hebbian, Instant, Rule, SleepingLayer
from sleepconv.sleep.distributed import full_tensor
from sleepconv.sleep.layers import layer_snrs, sleeping_layers, unwrapped
from sleepconv.sleep.watching import Course, watch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Course",
    "Curve",
    "before_sleep",
    "draw_covariance",
    "draw_curves",
    "draw_filters",
    "filters_before_and_after",
    "first_layer_with_filters",
    "grid_filters",
    "negative_log_snrs",
    "pattern_covariances",
    "predicted_negative_log_snrs",
    "sleep_curves",
    "snr_curves",
    "watch",
]


def negative_log_snrs(
    model: nn.Module, *, grids: Mapping[str, Tensor] | None = None, pooled: bool = False
) -> dict[str, float]:
    r"""Return −log SNR of each locally connected layer: the lower, the more alike are the filters of a grid.

    .. math:: -\log SNR_w \text{ (Eq. 6)} \qquad\text{or, pooled,}\qquad
        \log \frac{\sum_{j} \mathrm{Var}_i (w_i)_j}{\sum_{j} (\frac1N \sum_i (w_i)_j)^2}

    Eq. 6 averages a ratio over the weights of a filter, so that a few weights on which all neurons agree, such as dead
    ones at exactly zero variance, decide it. The pooled form sums both parts over the weights first.

    Args:
        model: any model with locally connected or per-patch layers.
        grids: who shares with whom in each layer, such as the ``grids`` of a ``Sleep``; by default each layer's own.
        pooled: return the pooled form.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> layer = LocallyConnected2d(1, 4, 3, input_size=9)
    >>> negative_log_snrs(layer)[""] > -np.inf, negative_log_snrs(Instant()(layer))
    (True, {'': -inf})
    """
    layers: dict[str, Any] = sleeping_layers(unwrapped(model))
    if not pooled:
        return {name: negative_log(snr) for name, snr in layer_snrs(layers, grids).items()}
    return {
        name: negative_log(
            float(pooled_weight_snr(full_tensor(layer.weight), layer.grids if grids is None else grids[name]))
        )
        for name, layer in layers.items()
    }


def sleep_curves(rule: Rule, model: nn.Module, *, every: int = 1, pooled: bool = False) -> dict[str, Curve]:
    """Let a copy of the model sleep, and return −log SNR of each layer before the first step and after each.

    Args:
        rule: ``Hebbian``, whose steps are counted, or ``Circuit``, whose presentations are.
        model: any model with locally connected layers; it stays as it is.
        every: measure after every so many steps.
        pooled: measure the pooled form of ``negative_log_snrs``.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> curves = sleep_curves(Hebbian(decay=1e-3, steps=3), LocallyConnected2d(1, 4, 3, input_size=9))
    >>> curves[""].steps
    [0, 1, 2, 3]
    """
    return {name: course.curve(pooled=pooled) for name, course in _sleep_of_copy(rule, model, every=every).items()}


def pattern_covariances(rule: Rule, model: nn.Module) -> dict[str, Float[Tensor, "grids groups inputs inputs"]]:
    r"""Let a copy of the model sleep, and return the covariance C of the patterns that drove each layer.

    .. math:: C = \langle x x^\top \rangle

    This is the C of Eq. 5: which directions neurons can share depends on it. It is measured, from all patterns of one
    sleep: for ``patterns="one_grid"`` it is exactly I, for random patterns it tends to I (times the circuit's
    ``input_power`` over the inputs, if that is less), and for patterns that pass through a network it is what arrives.
    ``groups`` are those of a grouped layer, otherwise 1.

    Args:
        rule: ``Hebbian`` or ``Circuit``.
        model: any model with locally connected layers; it stays as it is.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> pattern_covariances(Hebbian(steps=1), LocallyConnected1d(1, 1, 2, input_size=7))[""][0, 0].round(decimals=4)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    courses = _sleep_of_copy(rule, model, covariance=True)
    return {name: course.covariance for name, course in courses.items()}


def predicted_negative_log_snrs(rule: Hebbian | Circuit, model: nn.Module) -> dict[str, float]:
    r"""Return the −log SNR at which theory says that each layer settles, given the patterns of one sleep of a copy.

    .. math:: w_i^* = (C + \gamma I)^{-1} (C \mu^{init} + \gamma\, w_i^{init})

    Eq. 5 of Pogodin et al. (2021), or its biased form for finite inhibition, with the measured covariance C. That is
    where small learning rates lead. A sleep that is too short ends above it; one that shows a single input grid at a
    time at the highest stable rate, as ``Hebbian`` does by default, moves each weight to its mean and ends below.

    Args:
        rule: its decay γ, inhibition α and patterns count.
        model: any model with locally connected layers, before its sleep; it stays as it is.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> layer, rule = LocallyConnected2d(1, 4, 3, input_size=9), Hebbian(decay=1e-2, rate=1e-2)
    >>> predicted = predicted_negative_log_snrs(rule, layer)[""]
    >>> abs(predicted - negative_log_snrs(rule(layer))[""]) < 0.2
    True
    """
    courses = _sleep_of_copy(rule, model, covariance=True)
    constants: dict[str, Any] = {"decay": rule.decay, "inhibition": rule.inhibition}
    return {name: course.predicted(**constants) for name, course in courses.items()}


def grid_filters(
    layer: Any, *, neurons: int = 6, channels: int = 4
) -> Float[Tensor, "channels neurons in_channels kernel_height kernel_width"]:
    """Return the filters of some neurons of one grid, along the middle of the visual field.

    Args:
        layer: a locally connected layer in two dimensions.
        neurons: how many neurons at most, evenly chosen.
        channels: how many output channels at most.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> grid_filters(LocallyConnected2d(3, 8, 3, input_size=32)).shape
    torch.Size([4, 6, 3, 3, 3])
    """
    if not isinstance(layer, SleepingLayer) or layer.weight.dim() != 6:
        raise TypeError(
            f"expected a LocallyConnected2d, whose filters have two dimensions, got {type(layer).__name__}; "
            "first_layer_with_filters(model) names one"
        )
    weight, grids = full_tensor(layer.weight).detach(), layer.grids
    row = grids.shape[0] // 2
    members = (grids[row] == grids[row, 0]).nonzero().flatten()
    places = torch.linspace(0, len(members) - 1, min(neurons, len(members))).round().long()
    return weight[row, members[places], :channels].transpose(0, 1)


def filters_before_and_after(layer: Any, rule: Any = None, **chosen: int) -> tuple[Tensor, Tensor]:
    """Return ``grid_filters`` of a layer as it is, and as it would be after a sleep.

    Args:
        layer: a locally connected layer in two dimensions; it stays as it is.
        rule: a rule that can be called on a layer; by default ``Instant()``.
        chosen: further arguments of ``grid_filters``.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> before, after = filters_before_and_after(LocallyConnected2d(3, 8, 3, input_size=32))
    >>> bool(after.var(dim=1).max() < before.var(dim=1).min())
    True
    """
    asleep = (rule or Instant())(copy.deepcopy(layer))
    return grid_filters(layer, **chosen), grid_filters(asleep, **chosen)


def first_layer_with_filters(model: nn.Module) -> str | None:
    """Name the first two-dimensional locally connected layer with a kernel larger than 1×1, or return None.

    >>> first_layer_with_filters(nn.Conv2d(3, 4, 3)) is None
    True
    """
    for name, layer in model.named_modules():
        if isinstance(layer, SleepingLayer) and layer.weight.dim() == 6 and layer.weight.shape[-1] > 1:
            return name
    return None


def draw_filters(
    filters: Float[Tensor, "channels neurons in_channels kernel_height kernel_width"],
    axes: Axes | None = None,
    *,
    title: str = "",
) -> Axes:
    """Draw filters, one row per channel and one column per neuron.

    Three input channels are drawn as colours around grey; otherwise the first input channel is drawn, red above zero.

    Args:
        filters: as ``grid_filters`` returns them.
        axes: matplotlib axes; by default a new figure's.
        title: to write above them.

    Returns:
        the axes.
    """
    axes, mosaic = new_axes() if axes is None else axes, _mosaic(filters)
    limit = float(np.nanmax(np.abs(mosaic))) or 1.0
    if mosaic.ndim == 3:
        axes.pcolormesh(np.nan_to_num(mosaic / limit / 2 + 0.5, nan=1.0), antialiased=False)
    else:
        axes.pcolormesh(mosaic, cmap="RdBu_r", vmin=-limit, vmax=limit, antialiased=False)
    axes.invert_yaxis()
    axes.set(xticks=[], yticks=[], xlabel="neurons of one grid →", aspect="equal")
    axes.set_title(title, fontsize=9)
    axes.spines[:].set_visible(False)
    return axes


def draw_covariance(covariance: Float[Tensor, "inputs inputs"], axes: Axes | None = None) -> Axes:
    """Draw a covariance of patterns, red where inputs are active together and blue where they exclude each other.

    Args:
        covariance: that of one grid and group, such as ``pattern_covariances(rule, model)["conv1"][0, 0]``.
        axes: matplotlib axes; by default a new figure's.

    Returns:
        the axes.
    """
    axes = new_axes() if axes is None else axes
    limit = float(covariance.abs().max()) or 1.0
    mesh = axes.pcolormesh(covariance.cpu().numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, antialiased=False)
    axes.invert_yaxis()
    axes.set(xlabel="input", ylabel="input", aspect="equal")
    axes.figure.colorbar(mesh, ax=axes, shrink=0.8, label="⟨x xᵀ⟩")
    return axes


def _sleep_of_copy(rule: Any, model: nn.Module, *, covariance: bool = False, every: int = 1) -> dict[str, Course]:
    asleep = copy.deepcopy(unwrapped(model))
    with watch(asleep, covariance=covariance, every=every) as courses:
        rule.sleep_(sleeping_layers(asleep), asleep)
    if not courses:
        raise ValueError(f"{rule!r} takes no steps that could be watched; use Hebbian or Circuit")
    return courses


def _mosaic(filters: Tensor) -> np.ndarray:
    """Arrange filters with gaps (NaN): three input channels as colours, otherwise only the first channel."""
    channels, neurons, inputs, height, width = filters.shape
    shape = (channels * (height + 1) - 1, neurons * (width + 1) - 1, *([3] if inputs == 3 else []))
    mosaic = np.full(shape, np.nan)
    for channel in range(channels):
        for neuron in range(neurons):
            one = filters[channel, neuron]
            tile = one.permute(1, 2, 0) if inputs == 3 else one[0]
            top, left = channel * (height + 1), neuron * (width + 1)
            mosaic[top : top + height, left : left + width] = tile.cpu().numpy()
    return mosaic
