"""Which layers of a model sleep."""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from sleepconv.nn.selection import select


@runtime_checkable
class SleepingLayer(Protocol):
    """A layer whose neurons share in their sleep: one filter per position, and the grid of each position."""

    weight: nn.Parameter

    @property
    def grids(self) -> Tensor:
        """The grid of each position."""
        ...


def sleeping_layers(
    model: nn.Module, *, include: Iterable[str] | None = None, exclude: Iterable[str] = ()
) -> dict[str, nn.Module]:
    """The model's layers without weight sharing, by name; the model itself, if it is one, is called "".

    Args:
        model: a model or a layer.
        include: names of modules; only these, or layers inside of them, sleep.
        exclude: names of modules that do not sleep, nor what is inside of them.
    """
    found: dict[str, Any] = {n: m for n, m in model.named_modules() if isinstance(m, SleepingLayer)}
    if not found:
        raise ValueError("model has no locally connected layer; call to_locally_connected(model, sample) first")
    chosen = select(model, found, include=include, exclude=exclude)
    if not chosen:
        raise ValueError(f"include and exclude leave no layer to sleep; the model has {', '.join(found)}")
    return chosen
