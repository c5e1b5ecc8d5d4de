"""Choose layers of a model by the names of modules."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from torch import nn

Layer = TypeVar("Layer")


def select(
    model: nn.Module, layers: Mapping[str, Layer], *, include: Iterable[str] | None = None, exclude: Iterable[str] = ()
) -> dict[str, Layer]:
    """Those of the named layers that are in, or inside of, an included module and not of an excluded one.

    A module that has several names can be chosen by any of them.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    >>> list(select(model, dict(model.named_modules()), include=["1"], exclude=["1.0"]))
    ['1', '1.1']
    """
    include, exclude = None if include is None else list(include), list(exclude)
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    known = {name: module for module, all_names in names.items() for name in all_names}
    for name in [*(include or ()), *exclude]:
        if name not in known:
            raise ValueError(f"the model has no module {name!r}; the layers to choose from are {_listed(layers)}")
    return {
        name: layer
        for name, layer in layers.items()
        if (include is None or _inside(names[known[name]], include)) and not _inside(names[known[name]], exclude)
    }


def _inside(names: list[str], parents: list[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") or parent == "" for parent in parents for name in names)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
