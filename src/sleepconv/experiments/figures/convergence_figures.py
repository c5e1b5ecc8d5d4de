"""Figures 4 and 5 of Pogodin et al. (2021), and one of the noisy theorem: simulated once, drawn from the record."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from sleepconv.experiments.figures.drawing import COLOURS, STYLE, THEORY_DASH, load_pyplot, save, write_caption
from sleepconv.files import json_number, parse_json, write_atomically
from sleepconv.simulation.convergence import Convergence, NoisyConvergence
from sleepconv.simulation.robustness import AGAINST, Robustness

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Setup = Convergence | NoisyConvergence | Robustness
_Simulation = dict[str, Any]
_DASHES = ["-", (0, (5, 1.2)), (0, (1, 1))]

# Inputs have zero mean, as the printed floor 2 log(γ / (1 + γ)) assumes. With the text's N(1, 1) the mean input is the
# strongest direction, and finite inhibition shrinks the mean weight along it as fast as the neurons come to share.
SETUPS: dict[str, _Setup] = {
    "hebbian": Convergence("hebbian", steps=2000),
    "hebbian-biased": Convergence("hebbian", steps=10_000, inhibition=10.0),
    "circuit": Convergence("circuit", steps=10_000, inhibition=10.0),
    "hebbian-noisy": NoisyConvergence(),
    **{f"robustness-{against}": Robustness(against) for against in AGAINST},
}


_ANY = ("steps", "neurons", "runs")
_HEBBIAN = (*_ANY, "kernel_sizes", "decays", "input_mean", "momentum")
_CIRCUIT = (*_HEBBIAN, "inhibition", "tau_ms", "bias", "step_ms", "presentation_ms")


@dataclass(frozen=True)
class _FigureText:
    """A figure's simulation, what can be changed in it, and texts."""

    record: str
    parameters: tuple[str, ...]
    title: str
    time: str
    theory: str
    caption: str


FIGURES = {
    "4a": _FigureText(
        "hebbian",
        _HEBBIAN,
        "Ideal Hebbian rule (Eq. 4)",
        "iterations",
        "ideal",
        "{measure} of the weights of {neurons} neurons under Eq. 4, mean of {runs} runs{shaded}. "
        "Inputs N({input_mean:g}, 1){as_in_the_text}, weights N(1, 1), momentum {momentum:g}, learning "
        "rate 0.5/(1000 + t). Black dashed lines: the least possible, from Eq. 5 with the inputs' "
        "true covariance{white}. {other_measure}",
    ),
    "4b": _FigureText(
        "circuit",
        _CIRCUIT,
        "Inhibitory circuit (Eq. 8), α = {inhibition:g}",
        "iterations ({presentation_ms:g} ms each)",
        "ideal",
        "{measure} of the weights of {neurons} neurons in the circuit of Eq. 8 (τ = {tau_ms:g} ms, b = {bias:g}), mean "
        "of {runs} runs{shaded}. {lowest} Black dashed lines: the least possible with perfect inhibition (Eq. 5). "
        "Inputs N({input_mean:g}, 1){as_in_the_text}; unlike in the text, the learning rate 0.0003/√(1 + t/2), t > 50, "
        "and momentum {momentum:g} count Euler steps of {step_ms:g} ms. {negative_rates} {other_measure}",
    ),
    "5a": _FigureText(
        "hebbian-biased",
        (*_HEBBIAN, "inhibition"),
        "Biased Hebbian rule, α = {inhibition:g}",
        "iterations",
        "biased",
        "{measure} of the weights of {neurons} neurons under the biased update of the appendix, which finite "
        "inhibition leads to, mean of {runs} runs{shaded}. {lowest} Black dashed lines: its fixed point in closed "
        "form. Inputs N({input_mean:g}, 1){as_in_the_text}, weights N(1, 1), momentum {momentum:g}, learning "
        "rate 0.5/(1000 + t). {other_measure}",
    ),
    "5b": _FigureText(
        "circuit",
        _CIRCUIT,
        "Inhibitory circuit (Eq. 8), α = {inhibition:g}",
        "iterations ({presentation_ms:g} ms each)",
        "biased",
        "The simulation of Fig. 4B (τ = {tau_ms:g} ms, b = {bias:g}) beside the closed form of the biased rule (black "
        "dashed lines), {measure}, mean of {runs} runs{shaded}. The closed form supposes rates that have settled; in "
        "the circuit they take part of each presentation to do so, which shifts where it ends. Inputs "
        "N({input_mean:g}, 1){as_in_the_text}; learning rate and momentum count Euler steps of {step_ms:g} ms. "
        "{negative_rates} {other_measure}",
    ),
    "4-noise": _FigureText(
        "hebbian-noisy",
        (*_ANY, "decay", "noises"),
        "Noisy inputs, learning rates of order 1/t",
        "iterations",
        "floor",
        "Squared distance from the fixed point W* of Eq. 5 when every neuron sees its input with its "
        "own noise of deviation σ, mean of {runs} runs ({neurons} neurons, k = {kernel_size}, γ = "
        "{decay:g}, one input grid active at a time, learning rate {rate:g}/(t + {delay})). Dashed: "
        "the floor that the mean dynamics predict. Dotted: the upper bound of the noisy theorem, its "
        "recursion iterated.",
    ),
}


def load_or_simulate(name: str, folder: Path, *, seed: int = 0, **changes: Any) -> _Simulation:
    """Return the record ``folder/name.json``; simulate and write it unless it has this seed and setup.

    Args:
        name: of a simulation, one of ``SETUPS``.
        folder: of the record.
        seed: of the simulation.
        changes: of the setup, such as ``inhibition=3.0``; they are part of the record's name.

    >>> record = load_or_simulate("hebbian", Path("figures"))  # doctest: +SKIP
    """
    path, setup = folder / f"{name}{suffix(changes)}.json", replace(SETUPS[name], seed=seed, **changes)
    if path.exists():
        record = read_simulation(path)
        if record["setup"] == _plain(asdict(setup)):
            return record
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not writable; choose another folder with --out")
    write_simulation(path, simulate(setup, title=name))
    return read_simulation(path)


def suffix(changes: dict[str, Any]) -> str:
    """Return what the names of records and figures have in addition if their setup was changed.

    >>> suffix({"inhibition": 3.0, "decays": (0.1, 0.01)})
    '-inhibition=3-decays=0.1,0.01'
    """
    texts = {
        name: ",".join(f"{v:g}" for v in (value if isinstance(value, tuple) else (value,)))
        for name, value in changes.items()
    }
    return "".join(f"-{name}={text}" for name, text in texts.items())


def simulate(setup: _Setup, *, title: str = "simulation") -> _Simulation:
    """Run a simulation with a progress bar; the record has its setup and its curves.

    >>> record = simulate(Convergence("hebbian", steps=3, kernel_sizes=(1,), decays=(0.1,), runs=1, neurons=2))
    >>> record["setup"]["steps"], record["curves"][0]["steps"]
    (3, [0, 1, 2, 3])
    """
    with tqdm(total=setup.samples, desc=title, unit=" samples", leave=False, disable=None) as bar:
        curves = setup.curves(advance=bar.update)
    return {"setup": _plain(asdict(setup)), "curves": curves}


def draw(name: str, record: _Simulation, folder: Path, *, pooled: bool = False, marked: str = "") -> list[Path]:
    """Draw one figure from its simulation's record as ``folder/figure-name.png`` and ``.svg``.

    Args:
        name: one of ``FIGURES``.
        record: of its simulation.
        folder: for the figure.
        pooled: draw log(Σ variance / Σ mean²) instead of −log SNR of Eq. 6.
        marked: appended to the file's name.
    """
    pyplot = load_pyplot()
    text = FIGURES[name]
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots()
        if name == "4-noise":
            _draw_errors(axes, record)
        else:
            _draw_snr(axes, record, theory=text.theory, pooled=pooled)
        words = record["setup"] | _words(record, pooled)
        axes.set_title(text.title.format(**words), loc="left", fontsize=10)
        axes.set_xlabel(text.time.format(**words))
        number = name.upper().replace("-NOISE", " (noise)")
        write_caption(figure, f"Figure {number}. {text.caption.format(**words)}")
        paths = save(figure, folder / f"figure-{name}{'-pooled' if pooled else ''}{marked}")
        pyplot.close(figure)
    return paths


def write_simulation(path: Path, record: _Simulation) -> None:
    """Write a simulation's record atomically; numbers that JSON lacks become "inf", "-inf" or "nan".

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_simulation(Path(folder) / "mine.json", {"setup": {}, "curves": [{"floor": float("inf")}]})
    ...     read_simulation(Path(folder) / "mine.json")["curves"]
    [{'floor': 'inf'}]
    """
    write_atomically(path, json.dumps(_plain(record), allow_nan=False) + "\n")


def read_simulation(path: Path) -> _Simulation:
    """Read a simulation's record; raise a ValueError if the file is something else.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_simulation(Path(folder) / "mine.json", {"setup": {"steps": 3}, "curves": []})
    ...     read_simulation(Path(folder) / "mine.json")["setup"]
    {'steps': 3}
    """
    try:
        record = parse_json(path.read_text())
        if isinstance(record["setup"], dict) and isinstance(record["curves"], list):
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is not the record of a simulation; move it away or choose another folder with --out")


def _plain(value: Any) -> Any:
    """Turn tuples into lists, round numbers to seven digits and spell out those that JSON lacks."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return json_number(float(f"{value:.7g}"))
    return value


def _draw_snr(axes: Axes, record: _Simulation, *, theory: str, pooled: bool) -> None:
    sizes, decays = record["setup"]["kernel_sizes"], record["setup"]["decays"]
    if len(sizes) > len(_DASHES) or len(decays) > len(COLOURS):
        raise ValueError(f"a figure has at most {len(_DASHES)} kernel sizes and {len(COLOURS)} decays")
    for curve in record["curves"]:
        style = {
            "color": COLOURS[decays.index(curve["decay"])],
            "linestyle": _DASHES[sizes.index(curve["kernel_size"])],
        }
        if pooled:
            axes.plot(curve["steps"], numbers(curve["negative_log_pooled_snr"]), lw=1.4, **style)
            continue
        runs = numbers(curve["negative_log_snr"])
        axes.plot(curve["steps"], runs.mean(axis=0), lw=1.4, **style)
        axes.fill_between(curve["steps"], runs.min(axis=0), runs.max(axis=0), color=style["color"], alpha=0.1, lw=0)
    eq_6, of_sums = r"$-\log\,\mathrm{SNR}_w$", r"$\log\,(\Sigma\,\mathrm{variance} / \Sigma\,\mathrm{mean}^2)$"
    axes.set_ylabel(of_sums if pooled else eq_6)
    axes.set_xlim(0, record["curves"][0]["steps"][-1])
    _draw_theory(axes, record, f"{theory}_pooled" if pooled else theory)
    _snr_legend(axes, sizes, decays)


def _draw_theory(axes: Axes, record: _Simulation, theory: str) -> None:
    """Draw one line per decay (those of the kernel sizes nearly coincide), labelled at the right."""
    decays, curves = record["setup"]["decays"], record["curves"]
    ends = {d: float(np.mean([float(c["theory"][theory]) for c in curves if c["decay"] == d])) for d in decays}
    bottom, top = axes.get_ylim()
    height = top
    for decay in sorted((d for d in decays if np.isfinite(ends[d])), key=lambda d: -ends[d]):
        axes.axhline(ends[decay], color="black", ls=THEORY_DASH, lw=0.9, zorder=1)
        height = min(ends[decay], height - 0.045 * (top - bottom))
        colour = COLOURS[decays.index(decay)]
        edge = axes.get_yaxis_transform()
        axes.text(1.01, height, f"γ = {decay:g}", color=colour, transform=edge, va="center", fontsize=7)


def _snr_legend(axes: Axes, sizes: list[int], decays: list[float]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=c, label=f"γ = {d:g}") for c, d in zip(COLOURS, decays, strict=False)]
    handles += [Line2D([], [], color="0.35", ls=s, label=f"k = {k}") for s, k in zip(_DASHES, sizes, strict=False)]
    handles.append(Line2D([], [], color="black", ls=THEORY_DASH, lw=0.9, label="theory"))
    axes.legend(handles=handles, ncols=3, loc="upper right", fontsize=8, handlelength=2.4, columnspacing=1.2)


def _draw_errors(axes: Axes, record: _Simulation) -> None:
    for colour, curve in zip(COLOURS, record["curves"], strict=False):
        steps = np.array(curve["steps"])[1:]
        axes.loglog(steps, numbers(curve["error"]).mean(axis=0)[1:], color=colour, label=f"σ = {curve['noise']:g}")
        axes.loglog(steps, numbers(curve["bound"])[1:], color=colour, ls=":", lw=1.2)
        if float(curve["floor"]) > 0:
            axes.axhline(float(curve["floor"]), color=colour, ls=THEORY_DASH, lw=0.9)
    late = steps[steps >= steps[-1] / 20]
    last = np.nanmean(numbers(record["curves"][0]["error"]), axis=0)[-1]
    axes.loglog(late, 0.4 * last * late[-1] / late, color="0.5", lw=0.8)
    middle = late[len(late) // 2]
    axes.text(middle, 0.3 * last * late[-1] / middle, "1/t", color="0.4", ha="right", va="top", fontsize=8)
    axes.set_xlim(1, steps[-1])
    axes.set_ylabel(r"$\|W - W^*\|_F^2 \;/\; \|W^*\|_F^2$")
    for label, line in [("simulated", "-"), ("floor", THEORY_DASH), ("theorem's bound", ":")]:
        axes.plot([], [], color="0.35", ls=line, lw=1, label=label)
    axes.legend(loc="lower left", fontsize=8, ncols=2)


def _words(record: _Simulation, pooled: bool) -> dict[str, str]:
    """Return what captions say about the curves: all of it is measured, or follows from the setup."""
    curves, setup = record["curves"], record["setup"]
    if "negative_log_snr" not in curves[0]:
        return {}
    means = [numbers(curve["negative_log_snr"]).mean(axis=0) for curve in curves]
    of_sums = [numbers(curve["negative_log_pooled_snr"]) for curve in curves]
    shown, other = (of_sums, means) if pooled else (means, of_sums)
    names = ("log(Σ\u00a0variance / Σ\u00a0mean²)", "−log SNR (Eq. 6)")
    ends = [line[-1] for line in other]
    white = "" if setup["input_mean"] else ", here I, which gives 2\u00a0log(γ/(1\u00a0+\u00a0γ)) for many neurons"
    return {
        "measure": names[0] if pooled else names[1],
        "shaded": "" if pooled else " (shaded: least to greatest)",
        "as_in_the_text": " as in the text" if setup["input_mean"] == 1 else " (the text: N(1, 1))",
        "white": white,
        "lowest": _lowest(curves, shown),
        "other_measure": f"{names[1] if pooled else names[0]} ends at {max(ends):.1f} to {min(ends):.1f}.".replace(
            "-", "−"
        ),
        "negative_rates": _negative_rates(curves),
    }


def _lowest(curves: list[Any], lines: list[np.ndarray]) -> str:
    best = [curve["steps"][int(np.nanargmin(line))] for curve, line in zip(curves, lines, strict=True)]
    where = f"The curves are lowest after {min(best):,} to {max(best):,} iterations"
    later = max(best) < curves[0]["steps"][-1]
    return f"{where}; then finite inhibition slowly adds its bias." if later else f"{where}."


def _negative_rates(curves: list[Any]) -> str:
    """Report how many rates were below zero, which the circuit of Eq. 8 does not forbid."""
    shares = [np.mean(numbers(curve["negative_rates"])[1:]) for curve in curves if "negative_rates" in curve]
    if not shares:
        return ""
    return f"Rates below zero at the end of a presentation: {min(shares):.1%} to {max(shares):.1%} by curve."


def numbers(values: list[Any]) -> np.ndarray:
    """Convert a record's numbers; infinities, which records spell out, leave a gap in a curve."""
    numbers = np.array(values, dtype=float)
    return np.where(np.isfinite(numbers), numbers, np.nan)
