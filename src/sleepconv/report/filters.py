"""Filters of neurons that share, before a sleep and after it."""

from __future__ import annotations

import copy
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from sleepconv.report.groups import Group
from sleepconv.report.pictures import picture
from sleepconv.sleep import Instant
from sleepconv.sleep.layers import SleepingLayer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEURONS, CHANNELS = 6, 4


def filters_before_and_after_sleep(group: Group) -> list[str]:
    """Two pictures of the first local layer's filters, from the first run with weights; none without one."""
    for folder in group.folders:
        try:
            model = folder.load_model()
        except FileNotFoundError:
            continue
        if (name := first_local_layer(model)) is None:
            return []
        before = _filters(model.get_submodule(name))
        rested = copy.deepcopy(model.get_submodule(name))
        after = _filters(Instant()(rested))
        where = f"{group.label}, layer {name}"
        state = "as trained, just after a sleep" if torch.equal(before, after) else "as trained, before a sleep"
        return [_draw(before, f"{where}: {state}"), _draw(after, f"{where}: after a sleep")]
    return []


def first_local_layer(model: nn.Module) -> str | None:
    """The name of the first two-dimensional locally connected layer with more than one weight per input channel."""
    for name, layer in model.named_modules():
        if isinstance(layer, SleepingLayer) and layer.weight.dim() == 6 and layer.weight.shape[-1] > 1:
            return name
    return None


def _filters(layer: nn.Module) -> Tensor:
    """Filters of some neurons of one grid, along the middle row of the layer: (channels, neurons, in, k, k)."""
    weight, grids = layer.weight.detach(), layer.grids  # type: ignore[union-attr, operator]
    row = grids.shape[0] // 2
    members = (grids[row] == grids[row, 0]).nonzero().flatten()
    chosen = members[:: ceil(len(members) / NEURONS)]
    return weight[row, chosen, :CHANNELS].transpose(0, 1)


def _draw(filters: Tensor, caption: str) -> str:
    mosaic = _mosaic(filters)

    def draw(axes: Axes) -> None:
        limit = float(np.nanmax(np.abs(mosaic))) or 1.0
        if mosaic.ndim == 3:
            axes.pcolormesh(np.nan_to_num(mosaic / limit / 2 + 0.5, nan=1.0), antialiased=False)
        else:
            axes.pcolormesh(mosaic, cmap="RdBu_r", vmin=-limit, vmax=limit, antialiased=False)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.set(xticks=[], yticks=[], xlabel="neurons of one grid →", ylabel="channels")
        axes.spines[:].set_visible(False)

    return picture(draw, caption=caption)


def _mosaic(filters: Tensor) -> np.ndarray:
    """Filters beside each other with gaps (NaN): three input channels as colours, of others the first."""
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
