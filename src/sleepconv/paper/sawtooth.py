"""−log SNR of each layer over training and sleep, as curves: apart while awake, together in sleep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any

from sleepconv.training.progress import negative_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AGREEMENT = "−∞"


@dataclass
class Curve:
    """−log SNR of one layer; −inf where all its neurons agree, NaN where a sleep went by unmeasured."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def sawtooth(
    metrics: Iterable[dict[str, Any]], *, sleep_every: int | None = None, first: int = 0, last: float = inf
) -> dict[str, Curve]:
    """The curve of each layer between two steps, from the lines of a run's metrics.

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
    """How far each layer's neurons had come apart just before each measured sleep."""
    lines = [line for line in metrics if line["kind"] == "snr"]
    slept = {line["step"] for line in lines if line["when"] == "asleep"}
    return sawtooth(line for line in lines if line["when"] == "awake" and line["step"] in slept)


def draw_sawtooth(axes: Axes, curves: dict[str, Curve], *, floor: float, marker: str = "") -> None:
    """One line per layer, from dark (first) to light (last); where all neurons agree it touches ``floor``."""
    for colour, curve in zip(layer_colours(len(curves)), curves.values(), strict=True):
        heights = [floor if value == -inf else value for value in curve.values]
        axes.plot(curve.steps, heights, color=colour, lw=0.8, marker=marker, ms=1.5)


def floor_below(curves: Iterable[Curve]) -> float:
    """A height clearly below all finite values, to stand for −∞.

    >>> floor_below([Curve([1, 2, 3], [4.0, -6.0, float("-inf")])])
    -8.0
    """
    finite = [value for curve in curves for value in curve.values if isfinite(value)] or [0.0]
    return min(finite) - max(1.0, 0.2 * (max(finite) - min(finite)))


def mark_agreement(axes: Axes, floor: float) -> None:
    """Call ``floor`` −∞ on the y axis, and show that the axis is broken above it."""
    top = axes.get_ylim()[1]
    height = top - floor
    ticks = [tick for tick in axes.get_yticks() if floor + 0.12 * height < tick <= top]
    axes.set_yticks([floor, *ticks], [AGREEMENT, *[f"{tick:g}".replace("-", "−") for tick in ticks]])
    axes.set_ylim(floor - 0.03 * height, top)
    for shift in (0.06, 0.085):
        ends = [floor + (shift - 0.01) * height, floor + (shift + 0.01) * height]
        axes.plot([-0.02, 0.02], ends, transform=axes.get_yaxis_transform(), color="black", lw=0.8, clip_on=False)


def layer_colours(layers: int) -> Sequence[Any]:
    """From dark blue to light green, in the order of the layers."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * place / max(1, layers - 1)) for place in range(layers)]


def _slept_between(before: tuple[int, bool], now: tuple[int, bool], every: int | None) -> bool:
    if every is None or before[0] == now[0]:
        return False
    since, until = (step // every if asleep or step % every else step // every - 1 for step, asleep in (before, now))
    return until > since
