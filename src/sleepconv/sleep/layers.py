"""Which layers of a model sleep."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from torch import Tensor, nn


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
    found = {n: m for n, m in model.named_modules() if _sleeps(m)}
    for name in [*(include or ()), *exclude]:
        if name not in dict(model.named_modules()):
            raise ValueError(f"the model has no module {name!r}; its sleeping layers are {', '.join(found) or 'none'}")
    chosen = {
        name: module
        for name, module in found.items()
        if (include is None or _inside(name, include)) and not _inside(name, exclude)
    }
    if not chosen:
        raise ValueError("model has no locally connected layer; call to_locally_connected(model, sample) first")
    return chosen


def _sleeps(module: nn.Module) -> bool:
    return isinstance(module, SleepingLayer)


def _inside(name: str, parents: Iterable[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") or parent == "" for parent in parents)
