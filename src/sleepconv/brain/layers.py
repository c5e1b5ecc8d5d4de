"""The layers of a network, by name: which there are, and which are worth comparing with neurons."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from torch import nn

ENDS_A_STEP = ("torch.nn.modules.activation", "torch.nn.modules.pooling")


def find_layers(model: nn.Module, names: Iterable[str]) -> dict[str, nn.Module]:
    """The modules of these names; an unknown name is refused with the nearest ones.

    >>> find_layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), ["1"])
    {'1': ReLU()}
    """
    modules = {name: module for name, module in model.named_modules() if name}
    for name in names:
        if name not in modules:
            near = get_close_matches(name, modules, n=3, cutoff=0.4) or list(modules)[:10]
            raise ValueError(f"{type(model).__name__} has no layer {name!r}; the nearest are {', '.join(near)}")
    return {name: modules[name] for name in names}


def comparable_layers(model: nn.Module) -> list[str]:
    """The layers to compare with neurons: blocks, and the activations and poolings between them, in order.

    Nested ``Sequential`` containers are opened; a module with a forward of its own counts as one block. A network
    that has neither blocks nor activations is compared in all its modules but the last, its readout.

    >>> from sleepconv.models import resnet20
    >>> comparable_layers(resnet20())[:3], comparable_layers(resnet20())[-1]
    (['relu', 'stages.0.0', 'stages.0.1'], 'pool')
    """
    opened = list(_opened(model, ""))
    chosen = [name for name, module in opened if _is_block(module) or _ends_a_step(module)]
    return chosen or [name for name, _ in opened[:-1] or opened]


def _opened(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if isinstance(child, nn.Sequential | nn.ModuleList):
            yield from _opened(child, f"{path}.")
        else:
            yield path, child


def _is_block(module: nn.Module) -> bool:
    return any(True for _ in module.children())


def _ends_a_step(module: nn.Module) -> bool:
    return any(kind.__module__ in ENDS_A_STEP for kind in type(module).__mro__)
