"""Listen for the calls of a model, also of a compiled one.

``torch.compile`` does not check for hooks before it runs a graph again, and models of one kind share their graphs: a
hook on the second model is passed over if the first had none. A hook fires for certain where PyTorch runs it outside of
its graphs, as it does for the compiled model itself, and for a model inside whose ``forward`` is not PyTorch's own.
"""

from collections.abc import Callable, Iterator
from functools import partial, wraps
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


class Listening:
    """Calls back before each call of a model in eval mode, whichever of its wrappers is called, until ``remove()``.

    >>> model = nn.Sequential(nn.Linear(1, 1))
    >>> listening = Listening(model, lambda: print("evaluated"))
    >>> _ = model.train()(torch.ones(1)), model.eval()(torch.ones(1))
    evaluated
    """

    def __init__(self, model: nn.Module, called: Callable[[], Any]) -> None:
        self.model = unwrapped(model)
        compiled = [wrapper for wrapper in _wrappers(model) if hasattr(wrapper, "_orig_mod")]
        apart = torch.compiler.disable(_hear)
        self._handles = [_hook(wrapper, apart, called) for wrapper in compiled]
        self._handles.append(_hook(self.model, _hear_outside_of_graphs if compiled else apart, called))
        self._forward = _own_forward(self.model)

    def remove(self) -> None:
        """No longer listen."""
        for handle in self._handles:
            handle.remove()
        if self._forward is not None and vars(self.model).get("forward") is self._forward:
            del self.model.forward


def _hook(module: nn.Module, hear: Callable[..., None], called: Callable[[], Any]) -> RemovableHandle:
    return module.register_forward_pre_hook(_Hook(hear, module, called), prepend=True)


class _Hook(partial):
    """A partial function, since a call of it makes no frame that would be compiled.

    A copy of the model is another model, so there the hook does nothing; nor does it in a saved one.
    """

    def __deepcopy__(self, memo: Any) -> "_Hook":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (_nothing,)


def _hear(listened_to: nn.Module, called: Callable[[], Any], module: nn.Module, _: Any) -> None:
    if module is listened_to and not module.training:
        called()


def _hear_outside_of_graphs(*arguments: Any) -> None:
    """Where the compiled model was heard already."""
    if not torch.compiler.is_compiling():
        _hear(*arguments)


def _nothing(module: nn.Module, _: Any) -> None:
    """What is left of the hook in a model that was saved whole."""


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of ``DistributedDataParallel`` and ``torch.compile``."""
    return list(_wrappers(model))[-1]


def _wrappers(model: nn.Module) -> Iterator[nn.Module]:
    """The model, then what it wraps, and so on."""
    inside: Any = model
    while inside is not None:
        yield inside
        ddp = isinstance(inside, nn.parallel.DistributedDataParallel)
        inside = inside.module if ddp else getattr(inside, "_orig_mod", None)


def _own_forward(model: nn.Module) -> MethodType | None:
    """Let the model have its class's forward as its own, which ``torch.compile`` sees, and takes for a user's."""
    if "forward" in vars(model):
        return None
    theirs: Any = type(model).forward

    @wraps(theirs)
    def forward(self: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        return theirs(self, *arguments, **keywords)

    model.forward = MethodType(forward, model)
    return model.forward
