"""How well lateral grids are learned, sweep after sweep and against noise: simulated once, drawn from the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm import tqdm

from sleepconv.experiments.figures.convergence_figures import read_simulation, write_simulation
from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save, write_caption
from sleepconv.functional import adjusted_rand_index
from sleepconv.nn import LocallyConnected2d
from sleepconv.sleep import LateralLearning, learn_grids

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RECORD = "learned-grids"
_COLOURS = {(3, 1): "#0072b2", (3, 2): "#56b4e9", (5, 1): "#d55e00", (5, 2): "#e69f00"}
_SLOW = 5  # how much longer, at as much smaller a rate, the patient learner learns

_CAPTION = (
    "Agreement of learned lateral grids with the given ones (1: perfect, 0: chance) in layers of {size}×{size} neurons "
    "with {in_channels} input and {out_channels} output channels, mean of {seeds} seeds (shaded: least to greatest). "
    "Left: without noise; crosses: with flat receptive fields. Right: after {usual} sweeps, or (dashed) {slow} times "
    "as many at 1/{slow} of the rate."
)

_Case = tuple[dict[str, Any], LateralLearning]


@dataclass(frozen=True)
class LearnedGrids:
    """What is simulated: layers of different filters and strides, each learning from random connections.

    >>> curves = LearnedGrids(layers=((3, 1),), noises=(0.0,), sweeps=(60,), seeds=1, size=9).curves()
    >>> [(curve["field"], curve["ari"]) for curve in curves if curve["sweeps"] == 60][0]
    (0.16666666666666666, [1.0])
    """

    layers: tuple[tuple[int, int], ...] = ((3, 1), (3, 2), (5, 1), (5, 2))
    noises: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
    sweeps: tuple[int, ...] = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60)
    seeds: int = 5
    size: int = 15
    in_channels: int = 16
    out_channels: int = 16
    seed: int = 0

    def curves(self, advance: Callable[[], object] = lambda: None) -> list[dict[str, Any]]:
        """Return the adjusted Rand index of each case, for each seed."""
        curves = []
        for layer, learning in self.cases():
            scores = []
            for seed in range(self.seed, self.seed + self.seeds):
                scores.append(self._score(layer["kernel_size"], layer["stride"], replace(learning, seed=seed)))
                advance()
            how = {name: getattr(learning, name) for name in ("noise", "sweeps", "rate", "field")}
            curves.append({**layer, **how, "ari": scores})
        return curves

    def cases(self) -> Iterator[_Case]:
        """Yield every layer with every way to learn; a flat receptive field is the control."""
        usual = LateralLearning()
        patient = replace(usual, sweeps=_SLOW * usual.sweeps, rate=usual.rate / _SLOW)
        for kernel_size, stride in self.layers:
            layer = {"kernel_size": kernel_size, "stride": stride}
            for noise in self.noises:
                yield layer, replace(usual, noise=noise)
                yield layer, replace(patient, noise=noise)
            for sweeps in self.sweeps:
                yield layer, replace(usual, sweeps=sweeps)
            yield layer, replace(usual, field=inf)

    def _score(self, kernel_size: int, stride: int, learning: LateralLearning) -> float:
        with torch.random.fork_rng():
            torch.manual_seed(learning.seed)
            size = self.size * stride
            options: dict[str, Any] = {"input_size": size, "stride": stride, "padding": kernel_size // 2}
            layer = LocallyConnected2d(self.in_channels, self.out_channels, kernel_size, **options)
        return adjusted_rand_index(learn_grids(layer, learning=learning), layer.grids)


def load_or_learn(folder: Path, setup: LearnedGrids) -> dict[str, Any]:
    """Return the record in this folder; simulate and write it unless it is there with this setup.

    >>> record = load_or_learn(Path("figures"), LearnedGrids())  # doctest: +SKIP
    """
    path = folder / f"{RECORD}.json"
    if not path.exists() or _as_tuples(read_simulation(path)["setup"]) != asdict(setup):
        folder.mkdir(parents=True, exist_ok=True)
        total = setup.seeds * len(list(setup.cases()))
        with tqdm(total=total, desc=RECORD, unit=" layers", leave=False, disable=None) as bar:
            write_simulation(path, {"setup": asdict(setup), "curves": setup.curves(bar.update)})
    return read_simulation(path)


def draw(record: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the figure from its record as ``folder/figure-learned-grids.png`` and ``.svg``."""
    pyplot = load_pyplot()
    setup, usual = record["setup"], LateralLearning()
    with pyplot.rc_context(STYLE):
        figure, (learning, noise) = pyplot.subplots(1, 2, figsize=(7.6, 3.2), sharey=True)
        for kernel_size, stride in setup["layers"]:
            of_layer = [c for c in record["curves"] if (c["kernel_size"], c["stride"]) == (kernel_size, stride)]
            centred = [c for c in of_layer if c["field"] != "inf"]
            style = {
                "color": _COLOURS.get((kernel_size, stride), "0.3"),
                "label": f"k = {kernel_size}, stride {stride}",
            }
            early = [c for c in centred if c["noise"] == 0 and c["sweeps"] in setup["sweeps"]]
            _draw_curve(learning, early, "sweeps", ls="-", **style)
            _draw_curve(noise, [c for c in centred if c["sweeps"] == usual.sweeps], "noise", ls="-", **style)
            slow = [c for c in centred if c["sweeps"] == _SLOW * usual.sweeps]
            _draw_curve(noise, slow, "noise", ls=(0, (4, 2)), **style | {"label": None})
            flat = [c for c in of_layer if c["field"] == "inf"]
            learning.plot([c["sweeps"] for c in flat], [np.mean(c["ari"]) for c in flat], "x", color=style["color"])
        _label(learning, noise)
        write_caption(figure, _CAPTION.format(**setup, usual=usual.sweeps, slow=_SLOW), width=7.6, plot=3.0)
        paths = save(figure, folder / f"figure-{RECORD}")
        pyplot.close(figure)
    return paths


def _draw_curve(axes: Axes, curves: list[dict[str, Any]], over: str, **style: Any) -> None:
    by_place = {c[over]: c["ari"] for c in curves}
    places = sorted(by_place)
    scores = np.array([by_place[place] for place in places], dtype=float).reshape(len(places), -1)
    axes.plot(places, scores.mean(axis=1), lw=1.4, **style)
    axes.fill_between(places, scores.min(axis=1), scores.max(axis=1), color=style["color"], alpha=0.12, lw=0)


def _label(learning: Axes, noise: Axes) -> None:
    learning.set_title("From random connections", loc="left", fontsize=9)
    learning.set_xlabel("sweeps over all patterns")
    learning.set_ylabel("adjusted Rand index")
    learning.set_ylim(-0.05, 1.05)
    learning.legend(fontsize=8, loc="center right")
    noise.set_title("With noise", loc="left", fontsize=9)
    noise.set_xlabel("noise of each neuron / spread of its activity")


def _as_tuples(setup: dict[str, Any]) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return tuple(map(plain, value)) if isinstance(value, list) else value

    return {name: plain(value) for name, value in setup.items()}
