"""Figure 6 of Pogodin et al. (2021): how weights diverge between sleeps, at three learning rates."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, isclose, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save
from sleepconv.experiments.paper import recipe
from sleepconv.experiments.results.records import FREE
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.runs.reports import AGREEMENT, negative_log

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
    beginnings = [sawtooth(lines, sleep_every=_SLEEP_EVERY, last=_CLOSE_UP) for lines in metrics]
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
        draw_sawtooth(axes, curves, floor=floor, **style)
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
    lines = textwrap.wrap(caption, width=135)
    under = 0.03 * len(lines) + 0.01
    figure.tight_layout(rect=(0, under, 1, 1))
    figure.text(0.02, 0.012, "\n".join(lines), fontsize=7, va="bottom", linespacing=1.25)


@dataclass
class Curve:
    """−log SNR of one layer; −inf where all its neurons agree, NaN where a sleep went by unmeasured."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def sawtooth(
    metrics: Iterable[dict[str, Any]], *, sleep_every: int | None = None, first: int = 0, last: float = inf
) -> dict[str, Curve]:
    """Return the curve of each layer between two steps, from the lines of a run's metrics.

    Neighbouring measurements are joined only if no sleep lies between them, except the two around one sleep.

    >>> lines = [{"kind": "snr", "step": 2, "when": when, "layers": {"conv1": snr}}
    ...          for when, snr in [("awake", 1.0), ("asleep", "inf")]]
    >>> sawtooth(lines, sleep_every=2)
    {'conv1': Curve(steps=[2, 2], values=[-0.0, -inf])}
    """
    curves: dict[str, Curve] = {}
    before: tuple[int, bool] | None = None
    for line in metrics:
        if line["kind"] != "snr" or not first <= line["step"] <= last:
            continue
        now = line["step"], line["when"] == "asleep"
        apart = before is not None and _slept_between(before, now, sleep_every)
        for name, snr in line["layers"].items():
            curve = curves.setdefault(name, Curve())
            curve.steps += [now[0]] * (1 + apart)
            curve.values += [nan] * apart + [negative_log(float(snr))]
        before = now
    return curves


def before_sleep(metrics: Iterable[dict[str, Any]]) -> dict[str, Curve]:
    """Return how far each layer's neurons had come apart just before each measured sleep."""
    lines = [line for line in metrics if line["kind"] == "snr"]
    slept = {line["step"] for line in lines if line["when"] == "asleep"}
    return sawtooth(line for line in lines if line["when"] == "awake" and line["step"] in slept)


def draw_sawtooth(axes: Axes, curves: dict[str, Curve], *, floor: float, marker: str = "") -> None:
    """Draw a line for each layer, from dark (first) to light (last), at ``floor`` where all neurons agree."""
    for colour, curve in zip(_layer_colours(len(curves)), curves.values(), strict=True):
        heights = [floor if value == -inf else value for value in curve.values]
        axes.plot(curve.steps, heights, color=colour, lw=0.8, marker=marker, ms=1.5)


def floor_below(curves: Iterable[Curve]) -> float:
    """Return a height clearly below all finite values, to stand for −∞.

    >>> floor_below([Curve([1, 2, 3], [4.0, -6.0, float("-inf")])])
    -8.0
    """
    finite = [value for curve in curves for value in curve.values if isfinite(value)] or [0.0]
    return min(finite) - max(1.0, 0.2 * (max(finite) - min(finite)))


def mark_agreement(axes: Axes, floor: float) -> None:
    """Label ``floor`` as −∞ on the y axis, and show that the axis is broken above it."""
    top = axes.get_ylim()[1]
    height = top - floor
    ticks = [tick for tick in axes.get_yticks() if floor + 0.12 * height < tick <= top]
    axes.set_yticks([floor, *ticks], [AGREEMENT, *[f"{tick:g}".replace("-", "−") for tick in ticks]])
    axes.set_ylim(floor - 0.03 * height, top)
    for shift in (0.06, 0.085):
        ends = [floor + (shift - 0.01) * height, floor + (shift + 0.01) * height]
        axes.plot([-0.02, 0.02], ends, transform=axes.get_yaxis_transform(), color="black", lw=0.8, clip_on=False)


def _layer_colours(layers: int) -> Sequence[Any]:
    """Return colours from dark blue to light green, in the order of the layers."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * place / max(1, layers - 1)) for place in range(layers)]


def _slept_between(before: tuple[int, bool], now: tuple[int, bool], every: int | None) -> bool:
    if every is None or before[0] == now[0]:
        return False
    since, until = (step // every if asleep or step % every else step // every - 1 for step, asleep in (before, now))
    return until > since
