"""Drawings for the report, as SVG inside HTML figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sleepconv.analysis import (
    draw_curves,
    draw_filters,
    filters_before_and_after,
    first_layer_with_filters,
    snr_curves,
)
from sleepconv.experiments.figures.drawing import STYLE, load_pyplot
from sleepconv.experiments.figures.visual_field import VisualField, draw_visual_field
from sleepconv.experiments.report.groups import Group
from sleepconv.experiments.runs.folder import WEIGHTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 4.0, 2.6  # inches
_SAWTEETH = 30  # measurements shown


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
        curves = snr_curves(lines, sleep_every=group.run.sleep_every, first=first)
        layers = ", ".join(curves) if len(curves) <= 4 else f"{len(curves)} layers"
        caption = f"{group.label}, seed {folder.recipe().seed}: {layers} (first dark, last light)"
        return _picture(partial(draw_curves, curves, marker="."), caption=caption)
    return None


def filters_before_and_after_sleep(group: Group) -> str | None:
    """Draw the first local layer's filters, from the first run with weights; None if there is none."""
    for folder in group.folders:
        if not (folder.path / WEIGHTS).is_file():
            continue
        model = folder.load_model()
        if (name := first_layer_with_filters(model)) is None:
            return None
        pair = filters_before_and_after(model.get_submodule(name))
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


def _draw_pair(axes: Axes, filters: tuple[Tensor, Tensor], titles: list[str]) -> None:
    """Draw two sets of filters side by side, each on its own colour scale."""
    axes.set_axis_off()
    for left, part, title in zip((0.0, 0.53), filters, titles, strict=True):
        draw_filters(part, axes.inset_axes((left, 0, 0.47, 1)), title=title)
