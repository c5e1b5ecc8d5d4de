"""Draw the pictures of the documentation: ``python docs/pictures/make.py [NAME ...]``; all take about a minute.

``accuracy-maps.png`` comes from ``sleepconv demo --out demo``, ``figure-*.png`` from ``sleepconv figure`` (records of
simulations are in ``results/convergence``).
"""

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from sleepconv.brain import (
    Recording,
    activations,
    ceiling,
    predictivity,
    principal_axes,
)
from sleepconv.experiments.data import Statistics, Translate, digits
from sleepconv.experiments.figures.drawing import COLOURS, STYLE, load_pyplot
from sleepconv.functional import lateral_grids
from sleepconv.nn import LocallyConnected2d
from sleepconv.simulation.circuit import CircuitConstants, euler_rates, rate_fixed_point
from sleepconv.sleep import Instant

HERE = Path(__file__).parent
pyplot = load_pyplot()
NINE = pyplot.get_cmap("tab10").colors[:9]


def layers() -> Figure:
    """Who is wired to whom, and which weights are one: after Fig. 1 of the paper."""
    figure, axes = pyplot.subplots(1, 3, figsize=(8, 2.4), layout="constrained")
    for panel, title in zip(axes, ["fully connected", "locally connected", "convolutional"], strict=True):
        for out in range(4):
            for source in range(6) if title.startswith("fully") else range(out, out + 3):
                colour = NINE[source - out] if title == "convolutional" else NINE[(4 + out) % 9]
                panel.plot([source, out + 1], [0, 1], color=colour, linewidth=1.6, zorder=1)
        for count, height, start in [(6, 0, 0), (4, 1, 1)]:
            panel.scatter(
                range(start, start + count), [height] * count, s=110, color="white", edgecolor="#333", zorder=2
            )
        panel.set_title(title, fontsize=10)
        panel.set_axis_off()
    return figure


def grids() -> Figure:
    """The lateral grids of three layers, as ``lateral_grids`` numbers them."""
    figure, axes = pyplot.subplots(1, 3, figsize=(8, 2.6), gridspec_kw={"wspace": 0.15})
    kinds = [("3×3: nine grids", 3, 1), ("3×3, stride 3: one grid", 3, 3), ("2×2: four grids", 2, 1)]
    for panel, (title, kernel, stride) in zip(axes, kinds, strict=True):
        numbers = lateral_grids((8, 8), kernel, stride)
        for (row, column), number in np.ndenumerate(numbers.numpy()):
            panel.scatter(column, -row, s=95, color=NINE[number])
            panel.text(column, -row, str(number), ha="center", va="center", fontsize=7, color="white")
        panel.set_title(title, fontsize=10)
        panel.set_aspect("equal")
        panel.set_axis_off()
    return figure


def sleep() -> Figure:
    """The filters of one channel before and after sleep."""
    torch.manual_seed(0)
    layer = LocallyConnected2d(1, 1, 3, input_size=11)
    awake = layer.weight.detach().clone()
    asleep = Instant()(layer).weight.detach()
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 4), layout="constrained")
    for panel, weight, title in zip(
        axes, [awake, asleep], ["awake: 81 filters", "asleep: nine, one per grid"], strict=True
    ):
        filters = weight[:, :, 0, 0] / weight.abs().max()
        mosaic = np.full((9 * 4 - 1, 9 * 4 - 1), np.nan)
        for row in range(9):
            for column in range(9):
                mosaic[row * 4 : row * 4 + 3, column * 4 : column * 4 + 3] = filters[row, column]
        panel.imshow(mosaic, cmap="RdBu", vmin=-1, vmax=1)
        panel.set_title(title, fontsize=10)
        panel.set_axis_off()
    return figure


def circuit() -> Figure:
    """The rates of Eq. 8 during one presentation, and where Eq. 9 says that they settle."""
    torch.manual_seed(0)
    drive, constants = 2 + torch.randn(6), CircuitConstants()
    rates, inhibitory = euler_rates(drive, steps=constants.steps, constants=constants)
    settled = rate_fixed_point(drive, inhibition=constants.inhibition, bias=constants.bias)
    figure, panel = pyplot.subplots(figsize=(7, 3.2), layout="constrained")
    panel.plot(rates, color=COLOURS[0], linewidth=1.2)
    panel.plot(inhibitory, color=COLOURS[1], linewidth=2)
    panel.hlines(settled, 0, constants.steps, color="#333", linestyle=":", linewidth=1)
    for colour, height, text in [(COLOURS[0], 0.92, "excitatory neurons"), (COLOURS[1], 0.83, "the inhibitory one")]:
        panel.text(0.98, height, text, color=colour, ha="right", transform=panel.transAxes)
    panel.text(0.98, 0.74, "dotted: Eq. 9", color="#333", ha="right", transform=panel.transAxes)
    panel.set(xlabel="ms after the pattern appears", ylabel="rate", ylim=(-1.2, 5))
    return figure


def translations() -> Figure:
    """A digit, and what a network with 16 repetitions and padding 4 may see of it in one batch."""
    images = digits()
    translate = Translate(range(-3, 4), range(-3, 4), size=(8, 8), statistics=Statistics((0.0,), (255.0,)))
    pixels = images.pixels[3:4].expand(16, -1, -1, -1).contiguous()
    seen = translate(pixels, torch.rand(16, 2, generator=torch.Generator().manual_seed(1)))
    figure = pyplot.figure(figsize=(8, 2.1), layout="constrained")
    whole, many = figure.subplots(1, 2, width_ratios=[1, 4.2])
    _show(whole, images.pixels[3, 0], "an image")
    framed = np.pad(seen[:, 0].numpy(), ((0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    _show(many, np.concatenate([np.concatenate(row, axis=1) for row in np.split(framed, 2)]), "sixteen translations")
    return figure


def _show(panel: Axes, image: np.ndarray, title: str) -> None:
    panel.imshow(image, cmap="gray")
    panel.set_title(title, fontsize=10)
    panel.set_axis_off()


def brain() -> Figure:
    """A made-up brain is the second layer of a network, with noise: which layer predicts it?"""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    model = nn.Sequential(
        *(part for n in (1, 8, 8, 8) for part in (nn.Conv2d(n, 8, 3, stride=2, padding=1), nn.ReLU()))
    )
    pictures = random.normal(size=(600, 1, 12, 12)).astype(np.float32)
    names = ["1", "3", "5", "7"]
    answers = activations(model, pictures, names)
    neurons = answers["3"].reshape(600, -1)
    neurons = neurons[:, neurons.std(0) > 0.05][:, :30]
    repeats = neurons[:, :, None] + neurons.std(0)[:, None] * random.normal(size=(600, neurons.shape[1], 6))
    recording = Recording("made up", "V2", np.zeros((600, 8, 8), np.uint8), repeats.astype(np.float32))
    fits = [predictivity(principal_axes(answers[n].reshape(600, -1)), recording.mean_responses()) for n in names]
    figure, panel = pyplot.subplots(figsize=(6, 2.8), layout="constrained")
    panel.bar(range(1, 5), [fit.r for fit in fits], yerr=[fit.r_error for fit in fits], color=COLOURS[0])
    panel.axhline(ceiling(recording.responses), color=COLOURS[1], linestyle="--", label="noise ceiling")
    panel.set(xlabel="layer of the network", ylabel="r with the neurons", xticks=range(1, 5), ylim=(0, 1))
    panel.legend()
    return figure


PICTURES = {function.__name__: function for function in (layers, grids, sleep, circuit, translations, brain)}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        with pyplot.rc_context(STYLE):
            PICTURES[name]().savefig(HERE / f"{name}.png", dpi=130, metadata={"Software": None})
