"""Lateral connections learned throughout a network, layer by layer from the input up."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sleepconv.sleep.lateral import (
    LateralLearning,
    Sweep,
    checked_layer,
    learned_connections,
    one_grid_at_a_time,
    read_grids,
    repeated_patterns,
)
from sleepconv.sleep.layers import sleeping_layers, unwrapped
from sleepconv.sleep.passing import eval_mode, identity, not_compiled, replaced_forwards
from sleepconv.sleep.patterns import network_period


@torch.no_grad()
def learn_all_grids_(
    model: nn.Module,
    *,
    image_shape: tuple[int, ...] | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    learning: LateralLearning = LateralLearning(),  # noqa: B008 (it is frozen)
) -> dict[str, Tensor]:
    """Learn the grids of all layers of a network, from the input up, and assign them to the layers.

    Repeated patterns drive a layer that no other local layer reaches, as the paper assumes of the area below the first.
    A layer that has learned generates the patterns for the next: one of its learned grids fires at a time, all other
    layers are silent, and batch normalisation, whose statistics are those of being awake, is left out.

    Args:
        model: any model with locally connected layers, all of one filter size (or 1).
        image_shape: (channels, *size) of the network's input; by default that of its first local layer.
        include: names of modules; only these, and layers inside them, learn.
        exclude: names of modules that keep their grids, as do layers inside them.
        learning: the rule's settings.

    Returns:
        The learned grids by layer.

    >>> import sleepconv
    >>> model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
    >>> model = sleepconv.to_locally_connected(model, torch.zeros(1, 1, 9, 9))
    >>> [int(grids.max()) + 1 for grids in learn_all_grids_(model).values()]
    [9, 9]
    """
    layers: dict[str, Any] = sleeping_layers(unwrapped(model), include=include, exclude=exclude)
    learned = _learn_network(unwrapped(model), layers, image_shape, learning)
    for name, (_, grids) in learned.items():
        layers[name].grids = grids
    return {name: grids for name, (_, grids) in learned.items()}


@torch.no_grad()
def learn_all_connections(
    model: nn.Module,
    *,
    image_shape: tuple[int, ...] | None = None,
    include: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    learning: LateralLearning = LateralLearning(),  # noqa: B008 (it is frozen)
) -> dict[str, Tensor]:
    """Return the connections of all layers of a network, learned as by ``learn_all_grids_``, for ``Lateral``.

    >>> import sleepconv
    >>> model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
    >>> model = sleepconv.to_locally_connected(model, torch.zeros(1, 1, 9, 9))
    >>> sleep = sleepconv.Sleep(model, every=10, rule=sleepconv.sleep.Lateral(learn_all_connections(model)))
    """
    layers: dict[str, Any] = sleeping_layers(unwrapped(model), include=include, exclude=exclude)
    learned = _learn_network(unwrapped(model), layers, image_shape, learning)
    return {name: connections for name, (connections, _) in learned.items()}


class _Reached(Exception):  # noqa: N818 (no error: it ends a pass through the network)
    """Activity has reached the layer that learns."""

    def __init__(self, activity: Tensor) -> None:
        super().__init__()
        self.activity = activity


def _learn_network(
    model: nn.Module, layers: Mapping[str, Any], image_shape: tuple[int, ...] | None, learning: LateralLearning
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return connections and grids of each layer, learned from the input up."""
    period = learning.period or network_period(layers, instead="learn each layer's by itself, with learn_grids(layer)")
    first = next(iter(layers.values()))
    dark = first.weight.new_zeros(image_shape or (first.in_channels, *first.input_size))
    learned: dict[str, tuple[Tensor, Tensor]] = {}
    with eval_mode(model), not_compiled():
        for name in _calling_order(model, layers, dark):
            layer = checked_layer(layers[name])
            below = {layers[n]: learned[n][1] for n in reversed(learned)}
            try:
                sweep = _from_below(model, layer, below, dark)
                if sweep is None:
                    shape = (layer.in_channels, *layer.input_size)
                    sweep = repeated_patterns(shape, (period,) * layer.axes, learning.drive)
                connections = learned_connections(layer, sweep, learning)
            except ValueError as error:
                raise ValueError(f"layer {name!r}: {error}") from error
            learned[name] = connections, read_grids(connections, layer.output_size)
    return learned


def _calling_order(model: nn.Module, layers: Mapping[str, Any], dark: Tensor) -> list[str]:
    """Return the layers' names in the order in which the network calls them."""
    called: dict[str, None] = {}
    handles = [
        layer.register_forward_pre_hook(lambda module, inputs, name=name: called.setdefault(name))
        for name, layer in layers.items()
    ]
    try:
        model(dark[None])
    except RuntimeError as error:
        raise ValueError(
            f"the network does not take images of (channels, *size) = {tuple(dark.shape)} ({error}); give image_shape"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if missed := ", ".join(name for name in layers if name not in called):
        raise ValueError(f"the network, in eval mode, does not call {missed}; exclude these layers")
    return list(called)


def _from_below(model: nn.Module, layer: Any, below: Mapping[Any, Tensor], dark: Tensor) -> Sweep | None:
    """Return the patterns from the nearest layer below whose activity reaches this one, or None."""
    for source, grids in below.items():
        generated = one_grid_at_a_time([grids], source.out_channels)
        sweep = partial(_passed, model, layer, below, dark, source, generated)
        activity = sweep(torch.Generator())
        if not torch.equal(activity, activity[:1].expand_as(activity)):
            return sweep
    return None


def _passed(
    model: nn.Module,
    layer: Any,
    below: Iterable[Any],
    dark: Tensor,
    source: Any,
    generated: Sweep,
    generator: torch.Generator,
) -> Tensor:
    """Let one layer generate patterns while the others, and the input, are silent; return what reaches ``layer``."""
    patterns = generated(generator).to(dark)

    def reached(x: Tensor) -> Tensor:
        raise _Reached(x)

    def silent(other: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: x.new_zeros(len(x), other.out_channels, *other.output_size)

    bypassed = dict.fromkeys((m for m in model.modules() if isinstance(m, _BatchNorm)), identity)
    forwards = bypassed | {other: silent(other) for other in below} | {source: lambda x: patterns, layer: reached}
    try:
        with replaced_forwards(forwards):
            model(dark.expand(len(patterns), *dark.shape))
    except _Reached as end:
        return end.activity
    raise ValueError("no pattern reaches it")
