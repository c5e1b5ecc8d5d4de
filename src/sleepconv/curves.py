"""−log SNR over time: curves from records of sleep or from the lines of a run's metrics, and how they are drawn.

Nothing here needs PyTorch; matplotlib is imported when something is drawn. ``sleepconv.analysis`` has the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, log, nan
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AGREEMENT = "−∞"
"""What stands for −log SNR where the neurons of a grid agree exactly."""


class _Record(Protocol):
    """What is needed of a ``SleepRecord``."""

    step: int
    layers: dict[str, dict[str, float]]


@dataclass
class Curve:
    """−log SNR of one layer; −inf where all its neurons agree, NaN where a sleep went by unmeasured."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def negative_log(snr: float) -> float:
    """Return −log SNR (natural logarithm, Eq. 6): −inf where neurons agree exactly on a weight, inf for a mean of zero.

    >>> negative_log(float("inf")), negative_log(0.0)
    (-inf, inf)
    """
    return -log(snr) if snr > 0 else inf


def snr_curves(
    records: Iterable[_Record | Mapping[str, Any]],
    *,
    sleep_every: int | None = None,
    first: int = 0,
    last: float = inf,
) -> dict[str, Curve]:
    """Return −log SNR of each layer between two steps: a sawtooth, as layers learn apart and share in their sleep.

    Neighbouring measurements are joined only if no sleep lies between them, except the two around one sleep.

    Args:
        records: the ``records`` of a ``Sleep`` with ``statistics=True``, or the lines of a run's ``metrics.jsonl``.
        sleep_every: the steps from sleep to sleep, if sleeps went by between the lines.
        first: the first step to show.
        last: the last step to show.

    >>> lines = [{"kind": "snr", "step": 2, "when": when, "layers": {"conv1": snr}}
    ...          for when, snr in [("awake", 1.0), ("asleep", "inf")]]
    >>> snr_curves(lines, sleep_every=2)
    {'conv1': Curve(steps=[2, 2], values=[-0.0, -inf])}
    """
    curves: dict[str, Curve] = {}
    before: tuple[int, bool] | None = None
    for line in _lines(records):
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


def before_sleep(records: Iterable[_Record | Mapping[str, Any]]) -> dict[str, Curve]:
    """Return how far each layer's neurons had come apart just before each measured sleep.

    >>> before_sleep([{"kind": "snr", "step": 2, "when": "awake", "layers": {"conv1": 1.0}}])
    {}
    """
    lines = [line for line in _lines(records) if line["kind"] == "snr"]
    slept = {line["step"] for line in lines if line["when"] == "asleep"}
    return snr_curves(line for line in lines if line["when"] == "awake" and line["step"] in slept)


def draw_curves(
    curves: Mapping[str, Curve], axes: Axes | None = None, *, floor: float | None = None, marker: str = ""
) -> Axes:
    """Draw a line for each layer, from dark (first) to light (last), with a broken axis where all neurons agree.

    Args:
        curves: as ``snr_curves`` or ``sleep_curves`` return them.
        axes: matplotlib axes; by default a new figure's.
        floor: the height that stands for −∞, which is then not labelled; by default below all values.
        marker: matplotlib's name of a mark for each measurement.

    Returns:
        the axes.
    """
    axes = new_axes() if axes is None else axes
    height = floor_below(curves.values()) if floor is None else floor
    for colour, curve in zip(_layer_colours(len(curves)), curves.values(), strict=True):
        heights = [height if value == -inf else value for value in curve.values]
        axes.plot(curve.steps, heights, color=colour, lw=0.8, marker=marker, ms=1.5)
    if floor is None:
        axes.set(xlabel="steps", ylabel="−log SNR")
        axes.locator_params(axis="x", integer=True)
        if any(-inf in curve.values for curve in curves.values()):
            mark_agreement(axes, height)
    return axes


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


def new_axes(**size: Any) -> Axes:
    """Return the axes of a new figure; raise an ImportError that says how to install matplotlib."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install matplotlib") from error
    return pyplot.subplots(**size)[1]


def _lines(records: Iterable[_Record | Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Yield lines as those of a run's metrics; a record of a sleep makes two."""
    for record in records:
        if isinstance(record, Mapping):
            yield record
            continue
        for when, key in (("awake", "before"), ("asleep", "after")):
            layers = {name: snrs[key] for name, snrs in record.layers.items()}
            yield {"kind": "snr", "step": record.step, "when": when, "layers": layers}


def _layer_colours(layers: int) -> Sequence[Any]:
    """Return colours from dark blue to light green, in the order of the layers."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * place / max(1, layers - 1)) for place in range(layers)]


def _slept_between(before: tuple[int, bool], now: tuple[int, bool], every: int | None) -> bool:
    if every is None or before[0] == now[0]:
        return False
    since, until = (step // every if asleep or step % every else step // every - 1 for step, asleep in (before, now))
    return until > since
