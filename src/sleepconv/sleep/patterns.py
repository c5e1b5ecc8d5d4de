"""The patterns that drive a sleeping network, and their way through it.

``one_grid``
    The lateral connections of the input layer activate one input grid at a time, x₁, x₂, …, until all directions are
    spanned (section 4.1 and A.4 of the paper).
``independent``
    Every layer is driven by its own random pattern, repeated over the visual field, as if from LGN.
``layer_by_layer``
    The network's input repeats a random pattern; the equalised responses of a layer, passed through whatever lies
    between, drive the next one (section 4.1, read as a feedforward chain). In deep rectified networks such patterns
    span few directions: only the first layers share.
``disinhibited``
    As before, but the neurons between two layers generate the pattern: one of their lateral grids at a time is
    released from inhibition, and fires as its drive and a tonic input let it (Fig. 3B of the paper in every layer).
``spontaneous``
    As before, but the neurons of each grid between two layers keep their mean activity and its spread constant and add
    spontaneous activity that the grid has in common; plasticity follows the covariance. None of this is the paper's.

How pools of neurons learn from them is in ``sleepconv.sleep.hebbian``.
"""

from collections.abc import Mapping
from math import gcd
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.sleep.pools import LayerPools, phase_means, tiled

_Map = Float[Tensor, "patterns channels *size"]

INSTEAD = 'use Hebbian(patterns="one_grid"), Circuit() or Instant()'


def one_grid_patterns(inputs: int) -> Float[Tensor, "inputs inputs"]:
    """Return one input grid at a time, each so strong that a whole sweep has the covariance I.

    >>> one_grid_patterns(2)
    tensor([[1.4142, 0.0000],
            [0.0000, 1.4142]])
    """
    return torch.eye(inputs) * inputs**0.5


def random_cell(
    pools: LayerPools, patterns: int, generator: torch.Generator, like: Tensor
) -> Float[Tensor, "patterns in_channels *period"]:
    """Draw random patterns for a layer, one period of each."""
    return standard_normal((patterns, pools.in_channels, *pools.period), generator, like)


def periodic_images(
    patterns: int, shape: tuple[int, ...], period: int, generator: torch.Generator, like: Tensor
) -> Float[Tensor, "patterns channels *size"]:
    """Draw random images of this shape (channels, *size) that repeat along each axis."""
    channels, *size = shape
    return tiled(standard_normal((patterns, channels, *(period,) * len(size)), generator, like), size)


def standard_normal(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Draw numbers on the CPU, the same for every device, and move them to the device and dtype of ``like``."""
    return torch.randn(shape, generator=generator, device=generator.device).to(like)


def network_period(layers: Mapping[str, Any], *, instead: str = INSTEAD) -> int:
    """Return the period of patterns that pass from layer to layer; layers of 1×1 filters follow the others.

    A ValueError names the layers that have no common period, or in which patterns would lose it, and says what to do
    ``instead``.
    """
    flat = [name for name, layer in layers.items() if not hasattr(layer, "kernel_size")]
    if flat:
        raise ValueError(f"{', '.join(flat)}: token layers have no period; {instead}")
    sizes = {name: set(layer.kernel_size) - {1} for name, layer in layers.items()}
    periods = set().union(*sizes.values())
    if len(periods) > 1:
        listed = ", ".join(f"{name} {tuple(layers[name].kernel_size)}" for name, size in sizes.items() if size)
        raise ValueError(
            f"patterns pass from layer to layer only if all filters have the same size, got {listed}; {instead}"
        )
    period = next(iter(periods), 1)
    for what, loss in (("stride", "lose it there"), ("dilation", "not span its inputs")):
        clashing = [name for name, layer in layers.items() if any(gcd(n, period) > 1 for n in getattr(layer, what))]
        if clashing:
            raise ValueError(
                f"the {what} of {', '.join(clashing)} has a factor in common with the period {period}, so that "
                f"patterns would {loss}; {instead}"
            )
    return period


class Activity(Protocol):
    """What the neurons between two layers make of the responses that drive them."""

    def __call__(self, name: str, drive: _Map, period: int) -> _Map:
        """Return the activity that reaches layer ``name``, given one period of the drive, or a map of any size."""


class _Homeostasis:
    """Neurons that keep the mean and the spread of their drive constant over presentations, grid by grid."""

    def __init__(self) -> None:
        self._averages: dict[str, tuple[Tensor, Tensor]] = {}

    def __call__(self, name: str, drive: _Map, period: int) -> _Map:
        """Return (y − m) / s with m and s slow averages, over the presentations so far, of each grid's mean drive."""
        cell = phase_means(drive, period)
        mean, variance = cell.mean(dim=0, keepdim=True), cell.var(dim=0, correction=0, keepdim=True)
        if name in self._averages:
            before = self._averages[name]
            mean, variance = before[0].lerp(mean, 0.1), before[1].lerp(variance, 0.1)
        self._averages[name] = mean, variance
        spread = variance.add(1e-12 * variance.max() + 1e-30).sqrt()
        return (drive - tiled(mean, drive.shape[2:])) / tiled(spread, drive.shape[2:])


class Disinhibited:
    """One grid of one channel fires at a time, all others are silent (Fig. 3B of the paper in every layer).

    It fires at the rate 1 + tanh(ŷ)/4: a tonic input of 1, and the homeostatic drive ŷ, which saturates, so that no
    grid stays silent in its turn. The grids take turns, in an order that is random for every layer. Fig. 3B and
    section 4.1 are the paper's; disinhibition, tonic input and homeostasis are ours.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._homeostasis, self._generator = _Homeostasis(), generator
        self._order: dict[str, Tensor] = {}

    def __call__(self, name: str, drive: _Map, period: int) -> _Map:
        """Return the activity of the grid whose turn it is."""
        cell = torch.zeros_like(phase_means(drive, period))
        chosen = self._next(name, cell[0].numel(), len(cell)).to(cell.device)
        cell.flatten(1).scatter_(1, chosen[:, None], 1)
        return tiled(cell, drive.shape[2:]) * (1 + self._homeostasis(name, drive, period).tanh() / 4)

    def _next(self, name: str, grids: int, number: int) -> Tensor:
        order = self._order.get(name, torch.zeros(0, dtype=torch.int64))
        while len(order) < number:
            order = torch.cat([order, torch.randperm(grids, generator=self._generator)])
        self._order[name] = order[number:]
        return order[:number]


class Spontaneous:
    """Homeostatic neurons with spontaneous activity that a grid has in common: [ŷ + ξ]₊ with ξ from N(0, 1).

    That each layer's lateral connections generate patterns is the paper's; homeostasis and spontaneous activity are
    ours, as is the covariance rule by which ``Hebbian`` learns from it.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._homeostasis, self._generator = _Homeostasis(), generator

    def __call__(self, name: str, drive: _Map, period: int) -> _Map:
        """Return the rectified sum of drive and spontaneous activity."""
        homeostatic = self._homeostasis(name, drive, period)
        own = standard_normal(tuple(phase_means(drive, period).shape), self._generator, drive)
        return (homeostatic + tiled(own, drive.shape[2:])).clamp_min(0)
