"""Filters of neurons that share, before a sleep and after it."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sleepconv.report.groups import Group
from sleepconv.report.pictures import picture
from sleepconv.sleep import Instant
from sleepconv.sleep.layers import SleepingLayer
from sleepconv.training.folder import WEIGHTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEURONS, CHANNELS = 6, 4


def filters_before_and_after_sleep(group: Group) -> str | None:
    """The first local layer's filters, from the first run with weights; None if there is none."""
    for folder in group.folders:
        if not (folder.path / WEIGHTS).is_file():
            continue
        model = folder.load_model()
        if (name := first_local_layer(model)) is None:
            return None
        layer: Any = model.get_submodule(name)
        pair = [_filters(layer), _filters(Instant()(copy.deepcopy(layer)))]
        titles = ["as trained: it had just slept" if torch.equal(*pair) else "as trained", "after a sleep"]
        caption = f"{group.label}, layer {name}, seed {folder.recipe().seed}"
        return picture(partial(_draw_pair, filters=pair, titles=titles), caption=caption, height=1.9)
    return None


def first_local_layer(model: nn.Module) -> str | None:
    """The name of the first two-dimensional locally connected layer with more than one weight per input channel."""
    for name, layer in model.named_modules():
        if isinstance(layer, SleepingLayer) and layer.weight.dim() == 6 and layer.weight.shape[-1] > 1:
            return name
    return None


def _filters(layer: Any) -> Tensor:
    """Filters of some neurons of one grid, along the middle row of the layer: (channels, neurons, in, k, k)."""
    weight, grids = layer.weight.detach(), layer.grids
    row = grids.shape[0] // 2
    members = (grids[row] == grids[row, 0]).nonzero().flatten()
    places = torch.linspace(0, len(members) - 1, min(NEURONS, len(members))).round().long()
    return weight[row, members[places], :CHANNELS].transpose(0, 1)


def _draw_pair(axes: Axes, filters: list[Tensor], titles: list[str]) -> None:
    """Both sets beside each other, each on its own scale."""
    axes.set_axis_off()
    for left, part, title in zip((0.0, 0.53), filters, titles, strict=True):
        panel, mosaic = axes.inset_axes((left, 0, 0.47, 1)), _mosaic(part)
        limit = float(np.nanmax(np.abs(mosaic))) or 1.0
        if mosaic.ndim == 3:
            panel.pcolormesh(np.nan_to_num(mosaic / limit / 2 + 0.5, nan=1.0), antialiased=False)
        else:
            panel.pcolormesh(mosaic, cmap="RdBu_r", vmin=-limit, vmax=limit, antialiased=False)
        panel.invert_yaxis()
        panel.set(xticks=[], yticks=[], xlabel="neurons of one grid →", aspect="equal")
        panel.set_title(title, fontsize=9)
        panel.spines[:].set_visible(False)


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
