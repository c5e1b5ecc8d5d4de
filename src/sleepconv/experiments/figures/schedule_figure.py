"""Does sleep need a schedule? Layers that learn at once or in turn, where lateral connections equalise imperfectly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sleepconv.experiments.figures.convergence_figures import read_simulation, simulate, write_simulation
from sleepconv.experiments.figures.drawing import COLOURS, STYLE, load_pyplot, save, write_caption
from sleepconv.nn import to_locally_connected
from sleepconv.sleep import Hebbian

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RECORD = "schedule.json"
_LABELS = {False: "all layers at once", True: "in turn"}
_CAPTION = (
    "A sleeping network of {depth} locally connected 3×3 layers with {channels} channels and {size}×{size} neurons "
    "each; patterns: spontaneous activity, {patterns} in a step. Lateral connections equalise responses by κ: neuron i "
    "answers κz̄ + (1 − κ)zᵢ. A: how far the mean filter of the worst grid has moved in a sleep of {steps} steps (in "
    "turn: for each layer), γ = {decay:g}. B: −log SNR of the worst grid after the same sleeps. C: all layers at once, "
    "κ = {long_equalisation:g}, γ = {long_decay:g}, in sleeps of other lengths: γ pulls the mean filters back, slowly."
)


@dataclass(frozen=True)
class Schedule:
    """Sleeps of a small network: at once and in turn for several κ, and longer ones at once.

    >>> setup = Schedule(depth=1, channels=1, size=6, patterns=2, equalisations=(1.0,), steps=1, long_steps=())
    >>> [sleep["mean_shift"] < 1e-3 for sleep in setup.curves()]
    [True, True]
    """

    depth: int = 3
    channels: int = 4
    size: int = 12
    patterns: int = 64
    equalisations: tuple[float, ...] = (0.0, 0.3, 0.6, 0.9, 1.0)
    steps: int = 60
    decay: float = 1e-3
    long_equalisation: float = 0.5
    long_decay: float = 1e-2
    long_steps: tuple[int, ...] = (3, 10, 30, 100, 300)
    seed: int = 0

    @property
    def samples(self) -> int:
        """Number of sleeps."""
        return 2 * len(self.equalisations) + len(self.long_steps)

    def curves(self, advance: Callable[[int], object] = lambda samples: None) -> list[dict[str, Any]]:
        """Return how the worst grid did in each sleep."""
        sleeps: list[dict[str, Any]] = [
            {"equalisation": kappa, "in_turn": in_turn, "steps": self.steps, "decay": self.decay}
            for kappa in self.equalisations
            for in_turn in (False, True)
        ]
        long = {"equalisation": self.long_equalisation, "in_turn": False, "decay": self.long_decay}
        sleeps += [long | {"steps": steps} for steps in self.long_steps]
        results = []
        for options in sleeps:
            results.append(options | self._sleep(**options))
            advance(1)
        return results

    def _sleep(self, **options: Any) -> dict[str, float]:
        rule = Hebbian(patterns="spontaneous", patterns_per_step=self.patterns, seed=self.seed, **options)
        rule(self._network())
        reports = rule.reports.values()
        return {
            "negative_log_snr": max(report.negative_log_snr for report in reports),
            "negative_log_pooled_snr": max(report.negative_log_pooled_snr for report in reports),
            "mean_shift": max(report.mean_shift for report in reports),
        }

    def _network(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            pairs = [
                (nn.Conv2d(self.channels, self.channels, 3, padding=1, bias=False), nn.ReLU())
                for _ in range(self.depth)
            ]
            sample = torch.zeros(1, self.channels, self.size, self.size)
            return to_locally_connected(nn.Sequential(*[module for pair in pairs for module in pair]), sample)


def load_or_simulate(folder: Path, *, seed: int = 0, setup: Schedule | None = None) -> dict[str, Any]:
    """Return the record ``folder/schedule.json``; simulate and write it unless it has this seed and setup."""
    setup, path = replace(setup or Schedule(), seed=seed), folder / _RECORD
    wanted = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(setup).items()}
    if path.exists() and (record := read_simulation(path))["setup"] == wanted:
        return record
    folder.mkdir(parents=True, exist_ok=True)
    write_simulation(path, simulate(setup, title="schedule"))  # type: ignore[arg-type]
    return read_simulation(path)


def draw(record: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the figure from its record as ``folder/figure-schedule.png`` and ``.svg``."""
    pyplot = load_pyplot()
    setup = record["setup"]
    short, long = (
        record["curves"][: 2 * len(setup["equalisations"])],
        record["curves"][2 * len(setup["equalisations"]) :],
    )
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(1, 3)
        _draw_against_equalisation(axes[0], short, "mean_shift", scale=100)
        axes[0].set(title="A. What moves", ylabel="shift of the mean filters, %", ylim=(-3, None))
        axes[0].legend(fontsize=8, loc=(0.02, 0.12))
        _draw_against_equalisation(axes[1], short, "negative_log_snr")
        axes[1].set(title="B. What is shared", ylabel=r"$-\log\,\mathrm{SNR}_w$")
        shifts = [100 * sleep["mean_shift"] for sleep in long]
        axes[2].semilogx([sleep["steps"] for sleep in long], shifts, "o-", ms=3, color=COLOURS[0])
        axes[2].set(title="C. What returns", xlabel="steps", ylabel="shift of the mean filters, %", ylim=(-3, None))
        for panel in axes:
            panel.title.set_fontsize(9)
        write_caption(figure, _CAPTION.format(**setup), width=8.2, plot=2.9)
        paths = save(figure, folder / "figure-schedule")
        pyplot.close(figure)
    return paths


def _draw_against_equalisation(axes: Axes, sleeps: list[dict[str, Any]], measure: str, *, scale: float = 1) -> None:
    for (in_turn, label), colour in zip(_LABELS.items(), COLOURS, strict=False):
        points = [(s["equalisation"], scale * float(s[measure])) for s in sleeps if s["in_turn"] == in_turn]
        axes.plot(*zip(*points, strict=True), "o-", ms=3, color=colour, label=label)
    axes.set_xlabel("equalisation κ")
