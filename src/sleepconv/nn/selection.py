"""Choose layers of a model by the names of modules."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from torch import nn

Layer = TypeVar("Layer")


def select(
    model: nn.Module, layers: Mapping[str, Layer], *, include: Iterable[str] | None = None, exclude: Iterable[str] = ()
) -> dict[str, Layer]:
    """Those of the named layers that are in, or inside of, an included module and not of an excluded one.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    >>> list(select(model, dict(model.named_modules()), include=["1"], exclude=["1.0"]))
    ['1', '1.1']
    """
    include, exclude = None if include is None else list(include), list(exclude)
    known = dict(model.named_modules())
    for name in [*(include or ()), *exclude]:
        if name not in known:
            raise ValueError(f"the model has no module {name!r}; the layers to choose from are {_listed(layers)}")
    return {
        name: layer
        for name, layer in layers.items()
        if (include is None or _inside(name, include)) and not _inside(name, exclude)
    }


def _inside(name: str, parents: list[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") or parent == "" for parent in parents)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
