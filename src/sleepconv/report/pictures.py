"""The report's pictures: small ones that stand side by side on a desk and below each other on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from io import StringIO
from math import inf
from typing import TYPE_CHECKING

from sleepconv.paper.drawing import STYLE, load_pyplot
from sleepconv.paper.sawtooth import Curve, draw_sawtooth, floor_below, mark_agreement, sawtooth
from sleepconv.paper.visual_field import VisualField, draw_visual_field
from sleepconv.report.groups import Group

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 4.0, 2.6
SAWTEETH = 30


def picture(draw: Callable[[Axes], object], *, caption: str, height: float = HEIGHT) -> str:
    """What ``draw`` puts on axes, as an HTML figure with the drawing inside."""
    pyplot = load_pyplot()
    with pyplot.rc_context(STYLE | {"font.family": "sans-serif", "svg.hashsalt": caption}):
        figure, axes = pyplot.subplots(figsize=(WIDTH, height))
        draw(axes)
        figure.tight_layout(pad=0.4)
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True)
        pyplot.close(figure)
    return f"<figure>{_inline(text.getvalue(), caption)}<figcaption>{escape(caption)}</figcaption></figure>"


def learning_curves(groups: Sequence[Group]) -> list[str]:
    """Accuracy and loss over the epochs, a line per run."""
    panels = [
        ("evaluation", "top1", "Top-1 accuracy on the evaluation set, %"),
        ("epoch", "top1", "Top-1 accuracy in training, %"),
        ("epoch", "loss", "Training loss"),
    ]
    return [
        picture(partial(_draw_curves, groups=groups, kind=kind, quantity=quantity), caption=caption)
        for kind, quantity, caption in panels
        if any(folder.metrics(kind) for group in groups for folder in group.folders)
    ]


def sawteeth(group: Group) -> str | None:
    """−log SNR of each layer over the last measurements of the first run that has some; None if none has."""
    for folder in group.folders:
        lines = folder.metrics("snr")
        if not lines:
            continue
        first = sorted({line["step"] for line in lines})[-SAWTEETH:][0]
        curves = sawtooth(lines, sleep_every=group.run.sleep_every, first=first)
        layers = ", ".join(curves) if len(curves) <= 4 else f"{len(curves)} layers"
        caption = f"{group.label}, seed {folder.recipe().seed}: {layers} (first dark, last light)"
        return picture(partial(_draw_sawteeth, curves=curves), caption=caption)
    return None


def visual_field_map(label: str, field: VisualField, runs: int) -> str:
    """The map of accuracy over the visual field."""

    def draw(axes: Axes) -> None:
        mesh = draw_visual_field(axes, field)
        axes.set(xlabel="column of the upper left corner", ylabel="row")
        axes.figure.colorbar(mesh, ax=axes, shrink=0.8, label="top-1, %")

    of = "1 run" if runs == 1 else f"mean of {runs} runs"
    caption = f"{label}: {of}, {field.images} images at each place"
    tall = len(field.rows) > len(field.columns) / 2
    return picture(draw, caption=caption, height=3.0 if tall else 1.7)


def _draw_curves(axes: Axes, groups: Sequence[Group], kind: str, quantity: str) -> None:
    for group in groups:
        for folder in group.folders:
            lines = folder.metrics(kind)
            epochs, values = ([line[name] for line in lines] for name in ("epoch", quantity))
            axes.plot(epochs, values, color=group.colour, lw=1.1, alpha=0.75, marker="." if len(lines) < 3 else "")
    axes.set(xlabel="epochs", xlim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    if quantity == "top1":
        axes.set_ylim(0, 101)
    else:
        axes.set_ylim(bottom=0)


def _draw_sawteeth(axes: Axes, curves: dict[str, Curve]) -> None:
    floor = floor_below(curves.values())
    draw_sawtooth(axes, curves, floor=floor, marker=".")
    axes.set(xlabel="steps", ylabel="−log SNR")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if any(-inf in curve.values for curve in curves.values()):
        mark_agreement(axes, floor)


def _inline(svg: str, title: str) -> str:
    """The drawing without what only a file needs: prologue, metadata, fixed size, and names that would repeat."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[\w.]+_[0-9]+"', "", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title, quote=True)}"', 1).strip()
