"""What a rule is: how a sleeping network shares its weights."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from sleepconv.sleep.layers import Border, sharing_grids, sleeping_layers


class Rule(Protocol):
    """What ``Sleep`` asks of a rule.

    A rule that may fail, or that takes long enough to be interrupted, had better learn on copies and change the weights
    at its end.

    A rule can also have ``grids(layers)``, the grids within which each of the layers shares, by name: the moments and
    the recorded SNR follow them, instead of the layers' own.

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
    """What all rules have in common: they act on a tensor, on a layer and on a model, within grids that they choose."""

    border: Border = "all"

    def grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Who shares with whom in each of these layers."""
        period = self.period_of(layers)
        return {name: sharing_grids(layer, self.border, period) for name, layer in layers.items()}

    def period_of(self, layers: Mapping[str, Any]) -> int | None:
        """The period of the patterns, if it is one for all layers; None: each layer has its own."""
        return None

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
