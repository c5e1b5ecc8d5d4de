"""Activity of a locally connected network awake, with an image, and asleep, with a pattern that its grids generate."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sleepconv.experiments.data import load_task
from sleepconv.experiments.data.images import CHANCES
from sleepconv.experiments.figures.drawing import STYLE, load_pyplot, save, write_caption
from sleepconv.experiments.runs import RunFolder
from sleepconv.models import three_layers
from sleepconv.nn import to_locally_connected
from sleepconv.sleep import Hebbian, sleeping_layers
from sleepconv.sleep.passing import SleepingNetwork
from sleepconv.sleep.patterns import Disinhibited, network_period
from sleepconv.sleep.pools import LayerPools, tiled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_IMAGE = 7  # of the test images
_CAPTION = (
    "{network}. Above, awake: an image, and the rectified responses of one channel of the first two layers. Below, "
    'asleep (Hebbian(patterns="disinhibited")): one grid of that channel is released from inhibition, and its neurons '
    "fire at the same rate. All neurons of a grid of the second layer see the same. Before they have shared, they "
    "answer differently; after one sweep over all grids, alike. Each map has its own colours."
)


def draw(folder: Path, *, run: RunFolder | None = None, seed: int = 0) -> list[Path]:
    """Draw ``folder/figure-activity.png`` and ``.svg`` from a run's network, or from one that has not learned yet.

    Args:
        folder: for the figure.
        run: a locally connected run whose weights were kept; its dataset is read from the default folder.
        seed: of the network's weights, if there is no run.
    """
    pyplot = load_pyplot()
    task = load_task("digits" if run is None else run.recipe().dataset)
    image = task.evaluation.batch(np.array([_IMAGE]), np.zeros((1, CHANCES)))[0]
    model = _untrained(image, seed) if run is None else run.load_model()
    about = "A locally connected network that has not learned yet" if run is None else f"Network of {run.recipe().name}"
    panels = _panels(model, image)
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(2, 3)
        for panel, (title, values) in zip(axes.flat, panels.items(), strict=True):
            _draw_map(panel, title, values)
        axes[0, 0].set_ylabel("awake", fontsize=10)
        axes[1, 0].set_ylabel("asleep", fontsize=10)
        write_caption(figure, _CAPTION.format(network=about), width=8.2, plot=3.3)
        paths = save(figure, folder / "figure-activity")
        pyplot.close(figure)
    return paths


def _untrained(image: Tensor, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return to_locally_connected(three_layers(), image)


def _panels(model: nn.Module, image: Tensor) -> dict[str, Tensor]:
    """Return what the panels show, by their titles."""
    first, second = _awake(model, image)
    slept = deepcopy(model)
    Hebbian(patterns="disinhibited", steps=1)(slept)
    channel, active = _generated(model)
    before, after = (_answers(network, active)[0] for network in (model, slept))
    answering = int(before.abs().sum(dim=(1, 2)).argmax())
    return {
        "image": image[0].mean(dim=0),
        "first layer": first[0, channel],
        "second layer": second[0, answering],
        "first layer: one grid fires": active[0, channel],
        "second layer, before it has shared": before[answering],
        "and after": after[answering],
    }


@torch.no_grad()
def _awake(model: nn.Module, image: Tensor) -> list[Tensor]:
    """Return what the first two layers pass on: what reaches the second and the third."""
    seen: list[Tensor] = []
    layers = list(sleeping_layers(model).values())[1:3]
    if len(layers) < 2:
        raise ValueError("figure activity needs a network of at least three locally connected layers")
    handles = [layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])) for layer in layers]
    model.eval()(image)
    for handle in handles:
        handle.remove()
    return seen


def _pools(model: nn.Module) -> dict[str, LayerPools]:
    layers = sleeping_layers(model)
    period = network_period(layers)
    return {name: LayerPools(layer, period=period) for name, layer in layers.items()}


def _generated(model: nn.Module) -> tuple[int, Tensor]:
    """Let patterns pass through the sleeping network; return one that reaches its second layer, and its channel."""
    pools, generator = _pools(model), torch.Generator().manual_seed(0)
    second, disinhibited = list(pools)[1], Disinhibited(generator)
    cells: dict[str, Tensor] = {}

    def activity(name: str, drive: Tensor, period: int) -> Tensor:
        cells[name] = disinhibited(name, drive, period)
        return cells[name]

    SleepingNetwork(model, pools, activity, generator).present(16, lambda *_: None)
    active = tiled(cells[second][:1], pools[second].layer.input_size)
    return int(active[0].sum(dim=(1, 2)).argmax()), active


def _answers(model: nn.Module, active: Tensor) -> Tensor:
    """Return what each neuron of the second layer answers by itself."""
    second = list(_pools(model).values())[1]
    out = active.new_zeros(len(active), second.layer.out_channels, *second.layer.output_size)
    for pool in second.pools:
        second.place_(out, pool, second.respond(pool, second.own_windows(pool, active), equalisation=0.0))
    return out


def _draw_map(axes: Axes, title: str, values: Any) -> None:
    signed, largest = bool(values.min() < 0), float(values.abs().max()) or 1.0
    lowest, colours = (-largest, "RdBu_r") if signed else (0.0, "viridis")
    axes.imshow(values.detach().numpy(), interpolation="nearest", vmin=lowest, vmax=largest, cmap=colours)
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
