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
from sleepconv.sleep.patterns import eval_mode, identity, network_period, not_compiled, replaced_forwards


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

    Repeated patterns on the network's input drive the first layer. A layer that has learned generates the patterns for
    the next: one of its learned grids fires at a time, all other layers are silent, and batch normalisation, whose
    statistics are those of being awake, is left out.

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
    shape = image_shape or (first.in_channels, *first.input_size)
    images = repeated_patterns(shape, (period,) * (len(shape) - 1), learning.drive)
    learned: dict[str, tuple[Tensor, Tensor]] = {}
    with eval_mode(model), not_compiled():
        for name in _calling_order(model, layers, images(torch.Generator())):
            below = {layers[n]: learned[n][1] for n in reversed(learned)}
            try:
                connections = learned_connections(
                    checked_layer(layers[name]), _from_below(model, layers[name], below, images), learning
                )
            except ValueError as error:
                raise ValueError(f"layer {name!r}: {error}") from error
            learned[name] = connections, read_grids(connections, layers[name].output_size)
    return learned


def _calling_order(model: nn.Module, layers: Mapping[str, Any], images: Tensor) -> list[str]:
    """Return the layers' names in the order in which the network calls them."""
    called: dict[str, None] = {}
    handles = [
        layer.register_forward_pre_hook(lambda module, inputs, name=name: called.setdefault(name))
        for name, layer in layers.items()
    ]
    try:
        model(images[:1].to(next(iter(layers.values())).weight))
    except RuntimeError as error:
        raise ValueError(
            f"the network does not take images of (channels, *size) = {tuple(images.shape[1:])} ({error}); give "
            "image_shape"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if missed := ", ".join(name for name in layers if name not in called):
        raise ValueError(f"the network, in eval mode, does not call {missed}; exclude these layers")
    return list(called)


def _from_below(model: nn.Module, layer: Any, below: Mapping[Any, Tensor], images: Sweep) -> Sweep:
    """Return the patterns from the nearest layer below, or from the input, that reach a layer."""
    for source, grids in below.items():
        generated = one_grid_at_a_time([grids], source.out_channels)
        sweep = partial(_passed, model, layer, below, source, generated, images)
        activity = sweep(torch.Generator())
        if not torch.equal(activity, activity[:1].expand_as(activity)):
            return sweep
    return partial(_passed, model, layer, below, None, images, images)


def _passed(
    model: nn.Module,
    layer: Any,
    below: Iterable[Any],
    source: Any,
    generated: Sweep,
    images: Sweep,
    generator: torch.Generator,
) -> Tensor:
    """Let a layer, or the input, generate patterns while the others below are silent; return what reaches ``layer``."""
    patterns = generated(generator).to(layer.weight)

    def reached(x: Tensor) -> Tensor:
        raise _Reached(x)

    def silent(other: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: x.new_zeros(len(x), other.out_channels, *other.output_size)

    forwards: dict[Any, Callable[[Tensor], Tensor]] = {
        m: identity for m in model.modules() if isinstance(m, _BatchNorm)
    }
    forwards |= {other: silent(other) for other in below} | {layer: reached}
    if source is not None:
        forwards[source] = lambda x: patterns
        dark = images(torch.Generator())[:1]
        shown = torch.zeros(len(patterns), *dark.shape[1:]).to(patterns)
    with replaced_forwards(forwards):
        try:
            model(patterns if source is None else shown)
        except _Reached as end:
            return end.activity
    raise ValueError("no pattern reaches it")
