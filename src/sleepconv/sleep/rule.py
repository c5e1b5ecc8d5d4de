"""What a rule is: how a sleeping network shares its weights."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from sleepconv.sleep.layers import sleeping_layers


class Rule(Protocol):
    """What ``Sleep`` asks of a rule.

    >>> class Forget:
    ...     def sleep_(self, layers, model):
    ...         for layer in layers.values():
    ...             nn.init.zeros_(layer.weight)
    >>> from sleepconv import Sleep
    >>> from sleepconv.nn import LocallyConnected2d
    >>> layer = LocallyConnected2d(1, 4, 3, input_size=9)
    >>> record = Sleep(layer, every=10, rule=Forget()).sleep()
    >>> layer.weight.abs().max().item()
    0.0
    """

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers of the model share, in place."""


class OnAnything:
    """What all rules have in common: they act on a tensor, on a layer and on a model."""

    def __call__(self, target: Tensor | nn.Module, grids: Tensor | None = None) -> Any:
        """Share the weights of a tensor, a layer or a model, in place."""
        if isinstance(target, Tensor):
            if grids is None:
                raise ValueError("a bare tensor does not know its grids; give them, as from lateral_grids")
            layer = _BareLayer(target, grids)
            self.sleep_({"the tensor": layer}, layer)
        elif isinstance(target, nn.Module):
            self.sleep_(sleeping_layers(target), target)
        else:
            raise TypeError(f"a rule acts on a tensor, a layer or a model, not on a {type(target).__name__}")
        return target

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers of the model share, in place."""
        raise NotImplementedError


class _BareLayer(nn.Module):
    def __init__(self, weight: Tensor, grids: Tensor) -> None:
        super().__init__()
        self.weight, self.grids = weight, grids
