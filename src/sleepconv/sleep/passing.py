"""A network asleep: patterns pass through it, and its layers learn from what reaches them."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sleepconv.sleep.patterns import INSTEAD, Activity, network_period, periodic_images
from sleepconv.sleep.pools import LayerPools, Pool

# What a pool learns from its windows: (groups, patterns, inputs), or (groups, neurons, patterns, inputs) if its neurons
# see different things. It may return the answer (patterns, channels, 1); None: that of ``LayerPools.respond``.
Learning = Callable[[str, LayerPools, Pool, Tensor], Tensor | None]

# Presentations that pass through a network together, when a step is a whole sweep of them.
_AT_ONCE = 256


class SleepingNetwork:
    """A network whose sleeping layers learn from patterns that pass through it.

    Args:
        model: the network.
        layers: the pools of its sleeping layers, by name.
        activity: how the neurons between layers generate patterns; batch normalisation, whose statistics are those of
            being awake, is then left out. None: responses are passed on as they are.
        generator: of the random images at the network's input.
        image_shape: (channels, \\*size) of the network's input, by default that of the first layer.
        equalisation: κ; each neuron answers κz̄ + (1−κ)zᵢ.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Mapping[str, LayerPools],
        activity: Activity | None,
        generator: torch.Generator,
        *,
        image_shape: tuple[int, ...] | None = None,
        equalisation: float = 1.0,
    ) -> None:
        first = next(iter(layers.values())).layer
        self.model, self.layers, self.activity, self.generator = model, layers, activity, generator
        self.period = network_period({name: pools.layer for name, pools in layers.items()})
        self.image_shape = image_shape or (first.in_channels, *first.input_size)
        self.equalisation = equalisation

    @property
    def sweep(self) -> list[int]:
        """How many patterns to pass at once, one batch after the other, so that every layer's grids had their turn."""
        grids = max(pools.in_channels * self.period ** len(pools.kernel) for pools in self.layers.values())
        return [min(_AT_ONCE, grids - done) for done in range(0, grids, _AT_ONCE)]

    def present(self, number: int, learn: Learning) -> None:
        """Pass this many random patterns through the network; its layers learn from them, one after the other."""
        self._present(number, learn, self.equalisation)

    def explore(self, number: int) -> list[str]:
        """Pass patterns that are perfectly equalised, and return the layers that they reach, in that order.

        No layer learns. An error names a layer at which patterns do not repeat.
        """
        order: list[str] = []

        def note(name: str, pools: LayerPools, pool: Pool, windows: Tensor) -> None:
            if name not in order:
                order.append(name)

        self._present(number, note, 1.0)
        self.check_reached(order)
        return order

    def check_reached(self, names: Any) -> None:
        """Raise a ValueError that names the layers that no pattern reached."""
        missed = ", ".join(name for name in self.layers if name not in names)
        if missed:
            raise ValueError(
                f"no pattern reached {missed}: the network, in eval mode, does not call these layers; exclude them "
                f"from sleep, or {INSTEAD}"
            )

    @torch.no_grad()
    def _present(self, number: int, learn: Learning, equalisation: float) -> None:
        like = next(iter(self.layers.values())).layer.weight
        images = periodic_images(number, self.image_shape, self.period, self.generator, like)
        bypassed = [] if self.activity is None else [m for m in self.model.modules() if isinstance(m, _BatchNorm)]
        forwards: dict[Any, Callable[[Tensor], Tensor]] = dict.fromkeys(bypassed, identity)
        for name, pools in self.layers.items():
            forwards[pools.layer] = self._forward(name, pools, learn, equalisation)
        try:
            with eval_mode(self.model), replaced_forwards(forwards), not_compiled():
                self.model(images)
        except RuntimeError as error:
            raise ValueError(
                f"the network does not take images of (channels, *size) = {self.image_shape} ({error}); give "
                "image_shape"
            ) from error

    def _forward(
        self, name: str, pools: LayerPools, learn: Learning, equalisation: float
    ) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            alike = equalisation == 1
            _check_size(name, pools.layer, x)
            if alike:
                _check_pattern(name, x, self.period, varies=self.activity is None)
            drive = (_cell_in_the_middle(x, self.period) if alike else x).to(pools.pools[0].weight)
            active = drive if self.activity is None else self.activity(name, drive, self.period)
            out: Any = x.new_zeros(len(x), pools.layer.out_channels, *pools.layer.output_size)
            for pool in pools.pools:
                windows = pools.windows(pool, active) if alike else pools.own_windows(pool, active)
                answer = learn(name, pools, pool, windows)
                pools.place_(out, pool, pools.respond(pool, windows, equalisation) if answer is None else answer)
            return out

        return forward


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


def _check_size(name: str, layer: Any, x: Tensor) -> None:
    if tuple(x.shape[2:]) != tuple(layer.input_size):
        raise ValueError(
            f"layer {name!r} takes inputs of size {layer.input_size}, but the patterns that reach it have size "
            f"{tuple(x.shape[2:])}; give image_shape, the (channels, *size) of the network's input"
        )


def _check_pattern(name: str, x: Tensor, period: int, *, varies: bool) -> None:
    if not _repeats(x, period):
        raise ValueError(
            f"the patterns that reach layer {name!r} do not repeat with the period {period}, so the neurons of a grid "
            "would see different patterns: something before it (a local layer that does not sleep, added positions, "
            "resizing, or the zero padding of many kept layers) has broken them; "
            f"{INSTEAD}"
        )
    cell = _cell_in_the_middle(x, period).flatten(2)
    if varies and period > 1 and bool(((cell - cell[..., :1]).abs().amax() <= 1e-6 * cell.abs().amax()) & cell.any()):
        raise ValueError(
            f"the patterns that reach layer {name!r} do not vary with the period {period} any more: something before "
            "it (pooling over a whole period, or with a stride that has a factor in common with it) has lost them; "
            f"{INSTEAD}"
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
