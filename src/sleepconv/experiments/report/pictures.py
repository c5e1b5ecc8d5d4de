"""Drawings for the report, as SVG inside HTML figures."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from io import StringIO
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sleepconv.experiments.figures.drawing import STYLE, load_pyplot
from sleepconv.experiments.figures.snr_figure import Curve, draw_sawtooth, floor_below, mark_agreement, sawtooth
from sleepconv.experiments.figures.visual_field import VisualField, draw_visual_field
from sleepconv.experiments.report.groups import Group
from sleepconv.experiments.runs.folder import WEIGHTS
from sleepconv.sleep import Instant
from sleepconv.sleep.layers import SleepingLayer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 4.0, 2.6  # inches
_SAWTEETH = 30  # measurements shown
_NEURONS, _CHANNELS = 6, 4  # filters shown


def learning_curves(groups: Sequence[Group]) -> list[str]:
    """Draw accuracy and loss over the epochs, with a line for each run."""
    panels = [
        ("evaluation", "top1", "Top-1 accuracy on the evaluation set, %"),
        ("epoch", "top1", "Top-1 accuracy in training, %"),
        ("epoch", "loss", "Training loss"),
    ]
    return [
        _picture(partial(_draw_curves, groups=groups, kind=kind, quantity=quantity), caption=caption)
        for kind, quantity, caption in panels
        if any(folder.metrics(kind) for group in groups for folder in group.folders)
    ]


def sawteeth(group: Group) -> str | None:
    """Draw −log SNR of each layer over the last measurements of the first run that has any; None if no run has."""
    for folder in group.folders:
        lines = folder.metrics("snr")
        if not lines:
            continue
        first = sorted({line["step"] for line in lines})[-_SAWTEETH:][0]
        curves = sawtooth(lines, sleep_every=group.run.sleep_every, first=first)
        layers = ", ".join(curves) if len(curves) <= 4 else f"{len(curves)} layers"
        caption = f"{group.label}, seed {folder.recipe().seed}: {layers} (first dark, last light)"
        return _picture(partial(_draw_sawteeth, curves=curves), caption=caption)
    return None


def filters_before_and_after_sleep(group: Group) -> str | None:
    """Draw the first local layer's filters, from the first run with weights; None if there is none."""
    for folder in group.folders:
        if not (folder.path / WEIGHTS).is_file():
            continue
        model = folder.load_model()
        if (name := _first_local_layer(model)) is None:
            return None
        layer: Any = model.get_submodule(name)
        pair = [_filters(layer), _filters(Instant()(copy.deepcopy(layer)))]
        titles = ["as trained: it had just slept" if torch.equal(*pair) else "as trained", "after a sleep"]
        caption = f"{group.label}, layer {name}, seed {folder.recipe().seed}"
        return _picture(partial(_draw_pair, filters=pair, titles=titles), caption=caption, height=1.9)
    return None


def visual_field_map(label: str, field: VisualField, runs: int) -> str:
    """Draw the map of accuracy over the visual field."""

    def draw(axes: Axes) -> None:
        mesh = draw_visual_field(axes, field)
        axes.set(xlabel="column of the upper left corner", ylabel="row")
        axes.figure.colorbar(mesh, ax=axes, shrink=0.8, label="top-1, %")

    of = "1 run" if runs == 1 else f"mean of {runs} runs"
    caption = f"{label}: {of}, {field.images} images at each place"
    tall = len(field.rows) > len(field.columns) / 2
    return _picture(draw, caption=caption, height=3.0 if tall else 1.7)


def _picture(draw: Callable[[Axes], object], *, caption: str, height: float = _HEIGHT) -> str:
    """Return what ``draw`` draws on axes as an HTML figure."""
    pyplot = load_pyplot()
    with pyplot.rc_context(STYLE | {"font.family": "sans-serif", "svg.hashsalt": caption}):
        figure, axes = pyplot.subplots(figsize=(_WIDTH, height))
        draw(axes)
        figure.tight_layout(pad=0.4)
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True)
        pyplot.close(figure)
    return f"<figure>{_inline(text.getvalue(), caption)}<figcaption>{escape(caption)}</figcaption></figure>"


def _inline(svg: str, title: str) -> str:
    """Remove what only an SVG file needs: prologue, metadata, fixed size, and ids that would repeat on the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[\w.]+_[0-9]+"', "", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title, quote=True)}"', 1).strip()


def _draw_curves(axes: Axes, groups: Sequence[Group], kind: str, quantity: str) -> None:
    for group in groups:
        for folder in group.folders:
            lines = folder.metrics(kind)
            epochs, values = ([line[name] for line in lines] for name in ("epoch", quantity))
            axes.plot(epochs, values, color=group.colour, lw=1.1, alpha=0.75, marker="." if len(lines) < 3 else "")
    axes.set(xlabel="epochs", xlim=(0, None))
    axes.locator_params(axis="x", integer=True)
    if quantity == "top1":
        axes.set_ylim(0, 101)
    else:
        axes.set_ylim(bottom=0)


def _draw_sawteeth(axes: Axes, curves: dict[str, Curve]) -> None:
    floor = floor_below(curves.values())
    draw_sawtooth(axes, curves, floor=floor, marker=".")
    axes.set(xlabel="steps", ylabel="−log SNR")
    axes.locator_params(axis="x", integer=True)
    if any(-inf in curve.values for curve in curves.values()):
        mark_agreement(axes, floor)


def _first_local_layer(model: nn.Module) -> str | None:
    """Find the first two-dimensional locally connected layer with a kernel larger than 1."""
    for name, layer in model.named_modules():
        if isinstance(layer, SleepingLayer) and layer.weight.dim() == 6 and layer.weight.shape[-1] > 1:
            return name
    return None


def _filters(layer: Any) -> Tensor:
    """Take filters of some neurons of one grid along the layer's middle row: (channels, neurons, in, k, k)."""
    weight, grids = layer.weight.detach(), layer.grids
    row = grids.shape[0] // 2
    members = (grids[row] == grids[row, 0]).nonzero().flatten()
    places = torch.linspace(0, len(members) - 1, min(_NEURONS, len(members))).round().long()
    return weight[row, members[places], :_CHANNELS].transpose(0, 1)


def _draw_pair(axes: Axes, filters: list[Tensor], titles: list[str]) -> None:
    """Draw two sets of filters side by side, each on its own colour scale."""
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
