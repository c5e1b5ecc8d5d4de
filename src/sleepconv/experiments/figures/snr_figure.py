"""Figure 6 of Pogodin et al. (2021): how weights diverge between sleeps, at three learning rates."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleepconv.curves import Curve, before_sleep, draw_curves, floor_below, mark_agreement, snr_curves
from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save
from sleepconv.experiments.paper import recipe
from sleepconv.experiments.results.records import FREE
from sleepconv.experiments.runs import Run, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEARNING_RATES = tuple(recipe(f"cifar10_figure_6{panel}").learning_rate for panel in "abc")
_SLEEP_EVERY = 10
_CLOSE_UP = 100
_CAPTION = (
    "Figure 6. −log SNR of the weights of each locally connected layer of ResNet20 (first layer dark, last layer "
    "light) on CIFAR-10 with a sleep every 10 steps. Above: the first {steps} steps, while awake and right after each "
    "sleep; −∞: all neurons of a grid agree. Below: the whole run, just before each measured sleep. {sources}"
)


def find_runs_of_figure(folders: Sequence[RunFolder]) -> list[RunFolder | None]:
    """Choose a run for each learning rate: measured at every step if possible, the longest, with the lowest seed."""
    known = [(folder, folder.recipe()) for folder in folders]
    return [
        min(
            ((folder, run) for folder, run in known if _belongs(run, rate)),
            key=lambda found: (found[1].snr_every != 1, -found[1].scaled_epochs, found[1].seed),
            default=(None, None),
        )[0]
        for rate in LEARNING_RATES
    ]


def draw(folders: Sequence[RunFolder], out: Path) -> list[Path]:
    """Draw the figure from these runs as ``out/figure-6.png`` and ``.svg``; a panel without a run shows a dash."""
    pyplot = load_pyplot()
    shown = find_runs_of_figure(folders)
    metrics = [[] if folder is None else folder.metrics() for folder in shown]
    beginnings = [snr_curves(lines, sleep_every=_SLEEP_EVERY, last=_CLOSE_UP) for lines in metrics]
    all_sleeps = [before_sleep(lines) for lines in metrics]
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(2, 3, sharey=True, figsize=(7.2, 5.2))
        floor = floor_below(curve for panel in [*beginnings, *all_sleeps] for curve in panel.values())
        for column, rate in enumerate(LEARNING_RATES):
            letter = "ABC"[column]
            axes[0, column].set_title(f"{letter}. Learning rate {rate:g}", loc="left", fontsize=9)
            _draw_panel(axes[0, column], beginnings[column], floor)
            _draw_panel(axes[1, column], all_sleeps[column], floor, marker=".")
            axes[1, column].set_xlabel("steps")
        for row in axes:
            row[0].set_ylabel(r"$-\log\,\mathrm{SNR}_w$")
            mark_agreement(row[0], floor)
        _write_caption(figure, _CAPTION.format(steps=_CLOSE_UP, sources=_sources(shown)))
        paths = save(figure, out / "figure-6")
        pyplot.close(figure)
    return paths


def _belongs(run: Run, learning_rate: float) -> bool:
    """Whether a run has the figure's network and sleep; its length and weight decay may differ."""
    panel = recipe("cifar10_figure_6a")
    free = {name: getattr(run, name) for name in (*FREE, "name", "weight_decay", "epochs")}
    return run == panel.changed(learning_rate=run.learning_rate, **free) and isclose(run.learning_rate, learning_rate)


def _draw_panel(axes: Axes, curves: dict[str, Curve], floor: float, **style: Any) -> None:
    if curves:
        draw_curves(curves, axes, floor=floor, **style)
    else:
        axes.text(0.5, 0.5, "–", transform=axes.transAxes, ha="center", va="center", fontsize=20, color="0.5")
        axes.set_xticks([])


def _sources(shown: list[RunFolder | None]) -> str:
    parts = []
    for letter, folder in zip("ABC", shown, strict=True):
        run = folder.recipe() if folder is not None else None
        parts.append(f"{letter}: –" if run is None else f"{letter}: {run.name}, scale {run.scale:g}, seed {run.seed}")
    return "; ".join(parts) + "."


def _write_caption(figure: Figure, caption: str) -> None:
    figure.set_label(caption)
    lines = textwrap.wrap(caption, width=135)
    under = 0.03 * len(lines) + 0.01
    figure.tight_layout(rect=(0, under, 1, 1))
    figure.text(0.02, 0.012, "\n".join(lines), fontsize=7, va="bottom", linespacing=1.25)
