"""How a sleeping network gets its inputs.

``one_grid``
    The lateral connections of the input layer activate one input grid at a time, x₁, x₂, …, until all directions are
    spanned (section 4.1 and A.4 of the paper).
``independent``
    Every layer is driven by its own random pattern, repeated over the visual field, as if from LGN.
``layer_by_layer``
    The network's input repeats a random pattern; the equalised responses of a layer, passed through whatever lies
    between, drive the next one (section 4.1).
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import gcd
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sleepconv.sleep.pools import LayerPools, Pool, one_period

KINDS = ("one_grid", "independent", "layer_by_layer")

Plasticity = Callable[[str, LayerPools, Pool, Tensor], None]


def one_grid_patterns(inputs: int) -> Float[Tensor, "inputs inputs"]:
    """One input grid at a time, each so strong that a whole sweep has the covariance I.

    >>> one_grid_patterns(2)
    tensor([[1.4142, 0.0000],
            [0.0000, 1.4142]])
    """
    return torch.eye(inputs) * inputs**0.5


def random_cell(
    pools: LayerPools, patterns: int, generator: torch.Generator, like: Tensor
) -> Float[Tensor, "patterns in_channels *period"]:
    """Random patterns, one period of each."""
    return standard_normal((patterns, pools.in_channels, *pools.period), generator, like)


def standard_normal(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Numbers drawn on the CPU, the same for every device, and brought to where the other tensor is."""
    return torch.randn(shape, generator=generator, device=generator.device).to(like)


@torch.no_grad()
def pass_through(
    model: nn.Module,
    layers: Mapping[str, LayerPools],
    images: Float[Tensor, "patterns channels *size"],
    plasticity: Plasticity,
    period: int,
) -> None:
    """Send periodic images through the network; every layer's pools learn, then answer with equalised responses."""
    with _eval_mode(model), _sleeping_forwards(layers, plasticity, period), _not_compiled():
        model(images)


def network_period(layers: Mapping[str, Any]) -> int:
    """The one period of a network's patterns; layers of 1×1 filters follow the others."""
    shapes = {name: layer.kernel_size for name, layer in layers.items() if hasattr(layer, "kernel_size")}
    strides = {name: layers[name].stride for name in shapes}
    if len(shapes) < len(layers):
        flat = ", ".join(name for name in layers if name not in shapes)
        raise ValueError(f'{flat}: token layers have no period; use patterns="one_grid" or "independent"')
    period = one_period(shapes, strides)
    dilated = [name for name, layer in layers.items() if any(gcd(d, period) > 1 for d in layer.dilation)]
    if dilated:
        raise ValueError(
            f"the dilation of {', '.join(dilated)} has a factor in common with the period {period}, so that patterns "
            'would not span its inputs; use patterns="one_grid" or "independent", or Instant()'
        )
    return period


@contextmanager
def _sleeping_forwards(layers: Mapping[str, LayerPools], plasticity: Plasticity, period: int) -> Iterator[None]:
    before = [(pools.layer, vars(pools.layer).get("forward")) for pools in layers.values()]
    for name, pools in layers.items():
        pools.layer.forward = _sleeping_forward(name, pools, plasticity, period)
    try:
        yield
    finally:
        for layer, forward in before:
            del layer.forward
            if forward is not None:
                layer.forward = forward


def _sleeping_forward(name: str, pools: LayerPools, plasticity: Plasticity, period: int) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        _check_pattern(name, pools.layer, x, period)
        cell = _cell_in_the_middle(x, period).to(pools.pools[0].weight)
        out: Any = x.new_zeros(len(x), pools.layer.out_channels, *pools.layer.output_size)
        for pool in pools.pools:
            windows = pools.windows(pool, cell)
            plasticity(name, pools, pool, windows)
            answer = pools.respond(pool, windows).reshape(len(x), -1, *(1,) * len(pools.kernel))
            for index in pool.index:
                out[(slice(None), slice(None), *index)] = answer
        return out

    return forward


def _check_pattern(name: str, layer: Any, x: Tensor, period: int) -> None:
    if tuple(x.shape[2:]) != tuple(layer.input_size):
        raise ValueError(
            f"layer {name!r} takes inputs of size {layer.input_size}, but the patterns that reach it have size "
            f"{tuple(x.shape[2:])}; give image_shape, (channels, *size) of the network's input"
        )
    instead = 'use patterns="one_grid" or "independent", or Instant()'
    if not _repeats(x, period):
        raise ValueError(
            f"the patterns that reach layer {name!r} do not repeat with the period {period}, so that the neurons of a "
            "grid would see different ones: what lies before it (a local layer that does not sleep, an added position, "
            "resizing, or zero padding of so many kept layers that it shows in the middle) has broken them; "
            f"{instead}"
        )
    cell = _cell_in_the_middle(x, period).flatten(2)
    if period > 1 and bool(((cell - cell[..., :1]).abs().amax() <= 1e-6 * cell.abs().amax()) & cell.any()):
        raise ValueError(
            f"the patterns that reach layer {name!r} do not vary with the period {period} any more: what lies before "
            "it (pooling over a whole period, or with a stride that has a factor in common with it) has lost them; "
            f"{instead}"
        )


def _repeats(x: Tensor, period: int) -> bool:
    """Whether the pattern, in the middle of the image, comes again after a period along each axis."""
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
    """Where two periods, or as much as there is room for, lie away from the border: the first place and how many.

    The border of pooling, or of a convolution that was kept, may disturb the pattern.

    >>> _undisturbed(12, 3), _undisturbed(6, 3), _undisturbed(4, 3)
    ((3, 6), (1, 4), (0, 4))
    """
    length = min(2 * period, size - 2) if size - 2 > period else size
    return (size - length) // 2, length


def _cell_in_the_middle(x: Tensor, period: int) -> Tensor:
    """One period of a repeated pattern, from its phase 0 on."""
    cell = x
    for axis in range(2, x.dim()):
        start, length = _undisturbed(x.shape[axis], period)
        cell = cell.narrow(axis, start, min(period, length)).roll(start % period, axis)
    return cell


def _not_compiled() -> AbstractContextManager[Any]:
    """Plasticity is not to become part of a graph, if the model or a part of it is compiled."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
