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

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import gcd
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sleepconv.sleep.pools import LayerPools, Pool

_Plasticity = Callable[[str, LayerPools, Pool, Tensor], None]
_Cell = Float[Tensor, "patterns channels *period"]

_INSTEAD = 'use patterns="one_grid" or "independent", or Instant()'


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
    images = standard_normal((patterns, channels, *(period,) * len(size)), generator, like)
    for axis, n in enumerate(size, start=2):
        images = images.index_select(axis, torch.arange(n, device=images.device) % period)
    return images


def standard_normal(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Draw numbers on the CPU, the same for every device, and move them to the device and dtype of ``like``."""
    return torch.randn(shape, generator=generator, device=generator.device).to(like)


def network_period(layers: Mapping[str, Any], *, instead: str = _INSTEAD) -> int:
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


@torch.no_grad()
def pass_through(
    model: nn.Module,
    layers: Mapping[str, LayerPools],
    images: Float[Tensor, "patterns channels *size"],
    plasticity: _Plasticity,
    period: int,
    activity: "Activity | None" = None,
) -> None:
    """Send periodic images through the network; every layer's pools learn, then answer with equalised responses.

    With ``activity``, the neurons between layers generate the patterns, and batch normalisation, whose statistics are
    those of being awake, is left out.
    """
    bypassed = [] if activity is None else [m for m in model.modules() if isinstance(m, _BatchNorm)]
    forwards = {
        pools.layer: _sleeping_forward(name, pools, plasticity, period, activity) for name, pools in layers.items()
    }
    with eval_mode(model), replaced_forwards(forwards | dict.fromkeys(bypassed, identity)), not_compiled():
        model(images)


class Activity(Protocol):
    """What the neurons between two layers make of the responses that drive them."""

    def __call__(self, name: str, cell: _Cell) -> _Cell:
        """Return the activity that reaches layer ``name``, one period of it."""


class _Homeostasis:
    """Neurons that keep the mean and the spread of their drive constant over presentations, grid by grid."""

    def __init__(self) -> None:
        self._averages: dict[str, tuple[Tensor, Tensor]] = {}

    def __call__(self, name: str, cell: _Cell) -> _Cell:
        """Return (y − m) / s with m and s slow averages over the presentations so far."""
        mean, variance = cell.mean(dim=0), cell.var(dim=0, correction=0)
        if name in self._averages:
            before = self._averages[name]
            mean, variance = before[0].lerp(mean, 0.1), before[1].lerp(variance, 0.1)
        self._averages[name] = mean, variance
        return (cell - mean) / variance.add(1e-12 * variance.max() + 1e-30).sqrt()


class Disinhibited:
    """One grid of one channel fires at a time, all others are silent (variant of Fig. 3B in every layer).

    Its activity is [b + ŷ]₊ with the tonic input b = 1 and the homeostatic drive ŷ. The grids take turns, in an order
    that is random for every layer.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._homeostasis, self._generator = _Homeostasis(), generator
        self._order: dict[str, Tensor] = {}

    def __call__(self, name: str, cell: _Cell) -> _Cell:
        """Return the activity of the grid whose turn it is."""
        drive = self._homeostasis(name, cell).flatten(1)
        presentations = torch.arange(len(cell), device=cell.device)
        chosen = self._next(name, drive.shape[1], len(cell)).to(cell.device)
        active = torch.zeros_like(drive)
        active[presentations, chosen] = (1 + drive[presentations, chosen]).clamp_min(0)
        return active.view_as(cell)

    def _next(self, name: str, grids: int, number: int) -> Tensor:
        order = self._order.get(name, torch.zeros(0, dtype=torch.int64))
        while len(order) < number:
            order = torch.cat([order, torch.randperm(grids, generator=self._generator)])
        self._order[name] = order[number:]
        return order[:number]


class Spontaneous:
    """Homeostatic neurons with spontaneous activity that a grid has in common: [ŷ + ξ]₊ with ξ from N(0, 1)."""

    def __init__(self, generator: torch.Generator) -> None:
        self._homeostasis, self._generator = _Homeostasis(), generator

    def __call__(self, name: str, cell: _Cell) -> _Cell:
        """Return the rectified sum of drive and spontaneous activity."""
        drive = self._homeostasis(name, cell)
        return (drive + standard_normal(tuple(cell.shape), self._generator, cell)).clamp_min(0)


def identity(x: Tensor) -> Tensor:
    """Return the input: what a bypassed module computes."""
    return x


@contextmanager
def replaced_forwards(forwards: Mapping[Any, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Let modules compute something else for a while."""
    before = [(module, vars(module).get("forward")) for module in forwards]
    for module, forward in forwards.items():
        module.forward = forward
    try:
        yield
    finally:
        for module, own in before:
            del module.forward
            if own is not None:
                module.forward = own


def _sleeping_forward(
    name: str, pools: LayerPools, plasticity: _Plasticity, period: int, activity: Activity | None
) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        _check_pattern(name, pools.layer, x, period, varies=activity is None)
        cell = _cell_in_the_middle(x, period).to(pools.pools[0].weight)
        if activity is not None:
            cell = activity(name, cell)
        out: Any = x.new_zeros(len(x), pools.layer.out_channels, *pools.layer.output_size)
        for pool in pools.pools:
            windows = pools.windows(pool, cell)
            plasticity(name, pools, pool, windows)
            answer = pools.respond(pool, windows).reshape(len(x), -1, *(1,) * len(pools.kernel))
            for index in pool.index:
                out[(slice(None), slice(None), *index)] = answer
        return out

    return forward


def _check_pattern(name: str, layer: Any, x: Tensor, period: int, *, varies: bool) -> None:
    if tuple(x.shape[2:]) != tuple(layer.input_size):
        raise ValueError(
            f"layer {name!r} takes inputs of size {layer.input_size}, but the patterns that reach it have size "
            f"{tuple(x.shape[2:])}; give image_shape, the (channels, *size) of the network's input"
        )
    if not _repeats(x, period):
        raise ValueError(
            f"the patterns that reach layer {name!r} do not repeat with the period {period}, so the neurons of a grid "
            "would see different patterns: something before it (a local layer that does not sleep, added positions, "
            "resizing, or the zero padding of many kept layers) has broken them; "
            f"{_INSTEAD}"
        )
    cell = _cell_in_the_middle(x, period).flatten(2)
    if varies and period > 1 and bool(((cell - cell[..., :1]).abs().amax() <= 1e-6 * cell.abs().amax()) & cell.any()):
        raise ValueError(
            f"the patterns that reach layer {name!r} do not vary with the period {period} any more: something before "
            "it (pooling over a whole period, or with a stride that has a factor in common with it) has lost them; "
            f"{_INSTEAD}"
        )


def _repeats(x: Tensor, period: int) -> bool:
    """Whether the pattern, in the middle of the image, repeats after a period along each axis."""
    middle = x
    for axis in range(2, x.dim()):
        middle = middle.narrow(axis, *_undisturbed(x.shape[axis], period))
    allowed = torch.finfo(x.dtype).eps ** 0.5 * middle.abs().amax()
    for axis in range(2, x.dim()):
        rest = middle.shape[axis] - period
        if rest > 0:
            apart = (middle.narrow(axis, period, rest) - middle.narrow(axis, 0, rest)).abs().amax()
            if not bool(apart <= allowed):
                return False
    return True


def _undisturbed(size: int, period: int) -> tuple[int, int]:
    """Return start and length of two periods, or of as much as there is room for, away from the border.

    There, pooling or a convolution that was kept may have disturbed the pattern.

    >>> _undisturbed(12, 3), _undisturbed(6, 3), _undisturbed(4, 3)
    ((3, 6), (1, 4), (0, 4))
    """
    length = min(2 * period, size - 2) if size - 2 > period else size
    return (size - length) // 2, length


def _cell_in_the_middle(x: Tensor, period: int) -> Tensor:
    """Return one period of a repeated pattern, beginning at its phase 0."""
    cell = x
    for axis in range(2, x.dim()):
        start, length = _undisturbed(x.shape[axis], period)
        cell = cell.narrow(axis, start, min(period, length)).roll(start % period, axis)
    return cell


def not_compiled() -> AbstractContextManager[Any]:
    """Run compiled models eagerly, so that plasticity does not become part of a graph."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put all modules into evaluation mode for a while."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
