"""Runs one by one: how far each has come, what it reached, what it took, and how far its neurons came apart."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, isinf, nan
from statistics import median
from typing import TYPE_CHECKING, Any

from sleepconv.experiments.paper import RECIPES
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.runs.listing import readable
from sleepconv.experiments.runs.records import changes
from sleepconv.experiments.runs.reports import log_noise, negative_log
from sleepconv.experiments.runs.sheets import Sheet, number

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


NOTES = (
    "top-1: in percent, after the last epoch so far, on the test set, or on the validation split where it says so; "
    "in training: on the images of that epoch, while it learned. running: the same network with BatchNorm's running "
    "averages, where its statistics were estimated again for the evaluation.",
    "s / epoch: training and evaluation, the median over epochs. CPU s: time of all cores in training, which does not "
    "grow with what else the machine does. asleep: part of the training time. total: all epochs and evaluations.",
    "−log SNR: the median over layers at the last measurement, awake and right after sleep; "
    f"{AGREEMENT}: neurons agree exactly, after sleep in all weights, awake in at least one (Eq. 6 then is infinite).",
)


def overview(folders: Iterable[RunFolder]) -> list[dict[str, Any]]:
    """What `sleepconv runs` shows, for a script; runs of a name stand together, by scale and seed."""
    entries = [_entry(folder) for folder in folders]
    return sorted(entries, key=lambda entry: (entry["scale"], entry["validation"], _place(entry), entry["seed"]))


def as_sheet(entries: Sequence[dict[str, Any]], *, brief: bool = False) -> Sheet:
    """The overview as a table; a brief one has only what the runs reached."""
    columns = ["run", "scale", "seed", "epochs", "top-1", "in training", "s / epoch", "CPU s", "asleep", "total"]
    columns += ["−log SNR awake", "after sleep"]
    shown = columns.index("in training") + 1 if brief else len(columns)
    title = f"{len(entries)} run{'s' * (len(entries) != 1)}"
    return Sheet(title, columns[:shown], [_cells(entry)[:shown] for entry in entries], NOTES[:1] if brief else NOTES)


def _entry(folder: RunFolder) -> dict[str, Any]:
    run, reports = folder.recipe(), folder.metrics()
    epochs, evaluations = ([r for r in reports if r["kind"] == kind] for kind in ("epoch", "evaluation"))
    times = [trained["seconds"] + tested["seconds"] for trained, tested in zip(epochs, evaluations, strict=False)]
    trained = sum(epoch["seconds"] for epoch in epochs)
    cpu = [epoch["cpu_seconds"] for epoch in epochs if "cpu_seconds" in epoch]
    return {
        "name": run.name,
        "changed": _changed(run),
        "path": os.fspath(folder.path),
        "scale": run.scale,
        "seed": run.seed,
        "validation": run.tuning,
        "epochs_done": len(evaluations),
        "epochs": run.scaled_epochs,
        "finished": folder.summary() is not None,
        "weights_lost": folder.weights_lost(),
        "top1": evaluations[-1]["top1"] if evaluations else None,
        "running_top1": evaluations[-1].get("running", {}).get("top1") if evaluations else None,
        "train_top1": epochs[-1]["top1"] if epochs else None,
        "seconds_per_epoch": median(times) if times else None,
        "cpu_seconds_per_epoch": median(cpu) if cpu else None,
        "asleep": sum(epoch["sleep_seconds"] for epoch in epochs) / trained if run.sleep_every and trained else None,
        "seconds": sum(times),
        **_last_snr(reports),
    }


def _changed(run: Run) -> dict[str, Any]:
    """What the run has otherwise than the recipe of its name."""
    known = changes(run) if run.name in RECIPES else {}
    return {key: have for key, (have, _) in known.items() if key != "tuning"}


def _last_snr(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median over layers of −log SNR, last measured awake and asleep; infinities are strings, as JSON has none."""
    last = {report["when"]: report["layers"] for report in reports if report["kind"] == "snr"}
    found = {}
    for when in ("awake", "asleep"):
        middle = log_noise(last[when]) if last.get(when) else None
        found[f"negative_log_snr_{when}"] = str(middle) if middle is not None and isinf(middle) else middle
    return found


def _place(entry: dict[str, Any]) -> tuple[int, str]:
    """Recipes in the order of their tables, then what has no recipe."""
    order = list(RECIPES)
    return (order.index(entry["name"]) if entry["name"] in RECIPES else len(order), entry["name"])


def _cells(entry: dict[str, Any]) -> list[str]:
    changes = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in entry["changed"].items())
    done, epochs = entry["epochs_done"], entry["epochs"]
    return [
        entry["name"] + (f" ({changes})" if changes else ""),
        f"{entry['scale']:g}",
        str(entry["seed"]),
        (str(epochs) if entry["finished"] else f"{done} of {epochs}") + ", weights lost" * entry["weights_lost"],
        number(entry["top1"]) + _how_evaluated(entry),
        number(entry["train_top1"]),
        number(entry["seconds_per_epoch"], ".0f"),
        number(entry["cpu_seconds_per_epoch"], ".0f"),
        number(None) if entry["asleep"] is None else f"{100 * entry['asleep']:.1f} %",
        readable(entry["seconds"]),
        *[_snr(entry[f"negative_log_snr_{when}"]) for when in ("awake", "asleep")],
    ]


def _how_evaluated(entry: dict[str, Any]) -> str:
    """In brackets, if it was not on the test set with running averages."""
    notes = ["validation"] if entry["validation"] and entry["top1"] is not None else []
    if entry["running_top1"] is not None:
        notes.append(f"running: {number(entry['running_top1'])}")
    return f" ({', '.join(notes)})" if notes else ""


def _snr(value: float | str | None) -> str:
    return {"-inf": AGREEMENT, "inf": "∞"}[value] if isinstance(value, str) else number(value)
