"""Robustness curves: what imperfections of the circuit do to sharing, simulated once and drawn from records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sleepconv.experiments.figures.convergence_figures import numbers
from sleepconv.experiments.figures.drawing import COLOURS, STYLE, THEORY_DASH, load_pyplot, save, write_caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARAMETERS = ("values", "decays", "inhibition", "steps", "neurons", "runs")

_MARKERS = ["o", "^"]

# What is swept: the label of its axis, and what the caption says about it.
_TEXTS = {
    "noise": (
        "noise σ in each input",
        "Each neuron sees noise of its own, of deviation σ, in every input. The share of the mean weight that is left "
        "is γ/(γ + σ²(1 − 1/N)) if inhibition is perfect.",
    ),
    "missing": (
        "share of lateral connections that are missing",
        "Lateral connections are missing at random. The others stay as they are, or are rescaled until each neuron "
        "receives as much as before.",
    ),
    "wrong": (
        "share of neurons that are wired to a wrong grid",
        "Some neurons of each of three grids are wired to the other grids, whose inputs are independent of theirs. "
        "Measured within the neurons that see the same input.",
    ),
    "inhibition": (
        "coefficient of variation of α",
        "Inhibition differs between neurons (log-normal). Each neuron's weights are in proportion to its inhibition, "
        "so that −log SNR is about 2 log of the coefficient of variation as soon as that exceeds γ.",
    ),
    "rectified": (
        "bias b",
        "Rates cannot be negative (triangles: they can). The drive has a deviation of {drive:.1f} at first. The closed "
        "form is that of linear rates; there is none for rectified ones.",
    ),
    "dale": (
        "mean of the initial weights, in standard deviations",
        "All inputs are excitatory: weights start at zero where the draw was negative, and never become negative. "
        "Triangles: weights of any sign. The closed form leaves out that weights may reach zero while they learn.",
    ),
}


def draw(record: dict[str, Any], folder: Path, *, marked: str = "") -> list[Path]:
    """Draw −log SNR and the preserved mean from a record as ``folder/figure-robustness-AGAINST.png`` and ``.svg``.

    Args:
        record: of a ``sleepconv.simulation.robustness.Robustness``.
        folder: for the figure.
        marked: appended to the file's name.
    """
    pyplot, setup = load_pyplot(), record["setup"]
    if len(setup["decays"]) > len(COLOURS):
        raise ValueError(f"a figure has at most {len(COLOURS)} decays, got {len(setup['decays'])}")
    label, explanation = _TEXTS[setup["against"]]
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(1, 2)
        for panel, measure in zip(panels, ("negative_log_snr", "preserved_mean"), strict=True):
            _draw_curves(panel, record, measure)
            panel.set_xlabel(label)
        panels[0].set_ylabel(r"$-\log\,\mathrm{SNR}_w$")
        panels[1].set_ylabel("share of the mean weight left")
        panels[1].set_ylim(min(-0.04, panels[1].get_ylim()[0]), max(1.08, panels[1].get_ylim()[1]))
        _legend(panels, record)
        write_caption(figure, _caption(record, explanation), width=7.4, plot=3.0)
        paths = save(figure, folder / f"figure-robustness-{setup['against']}{marked}")
        pyplot.close(figure)
    return paths


def _draw_curves(panel: Axes, record: dict[str, Any], measure: str) -> None:
    setup = record["setup"]
    variants = list(dict.fromkeys(curve["variant"] for curve in record["curves"]))
    for curve in record["curves"]:
        colour, marker = COLOURS[setup["decays"].index(curve["decay"])], _MARKERS[variants.index(curve["variant"])]
        values, runs = np.array(curve["values"]), numbers(curve[measure])
        middle = runs.mean(axis=1)
        errors = [middle - runs.min(axis=1), runs.max(axis=1) - middle]
        style: dict[str, Any] = {"ms": 4.5, "mfc": "none", "mew": 1.1, "elinewidth": 0.8, "clip_on": False, "zorder": 3}
        panel.errorbar(values, middle, yerr=errors, fmt=marker, color=colour, **style)
        if curve["theory"] is not None:
            panel.plot(values, numbers(curve["theory"][measure]), color=colour, ls=THEORY_DASH, lw=1)
    positive = [value for value in setup["values"] if value > 0]
    if positive and max(positive) > 30 * min(positive):
        panel.set_xscale("symlog", linthresh=min(positive), linscale=0.5)
        ticks = [0, *_decades(positive)]
        ticks = ticks if len(ticks) > 2 else setup["values"]
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()


def _decades(values: list[float]) -> list[float]:
    powers = [10.0**exponent for exponent in range(-12, 13)]
    return [power for power in powers if 0.999 * min(values) <= power <= 1.001 * max(values)]


def _legend(panels: Any, record: dict[str, Any]) -> None:
    from matplotlib.lines import Line2D

    variants = list(dict.fromkeys(curve["variant"] for curve in record["curves"]))
    decays = record["setup"]["decays"]
    handles = [Line2D([], [], color=c, lw=3, label=f"γ = {d:g}") for c, d in zip(COLOURS, decays, strict=False)]
    handles += [
        Line2D([], [], color="0.35", ls="", marker=m, mfc="none", label=name or "simulated")
        for m, name in zip(_MARKERS, variants, strict=False)
    ]
    handles.append(Line2D([], [], color="0.35", ls=THEORY_DASH, lw=1, label="closed form"))
    options = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "fontsize": 7.5, "handlelength": 2.0}
    half = len(decays)
    panels[0].legend(handles=handles[:half], ncols=half, **options)
    panels[1].legend(handles=handles[half:], ncols=3, **options)


def _caption(record: dict[str, Any], explanation: str) -> str:
    setup = record["setup"]
    inhibition = "perfect" if setup["inhibition"] is None else f"α = {setup['inhibition']:g}"
    inhibition += " on average" if setup["against"] == "inhibition" else ""
    drive = (setup["inputs"] * 2) ** 0.5  # of weights from N(1, 1) and inputs from N(0, 1)
    weights = "" if setup["against"] == "dale" else " weights N(1, 1),"
    return (
        f"{explanation.format(drive=drive)} Marks: {setup['neurons']} neurons that share {setup['inputs']} weights, "
        f"mean of {setup['runs']} runs (bars: least to greatest) after {setup['steps']} steps of the Hebbian rule with "
        f"settled rates, inputs N(0, 1),{weights} inhibition {inhibition}. Lines: the closed form."
    )
