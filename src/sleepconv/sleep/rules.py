"""How a sleeping network shares its weights: at once, by Hebbian learning, or through an inhibitory circuit.

A rule acts on a tensor (with its grids), on a layer or on a model: ``rule(target)``. It either ends or leaves the
weights as they were.
"""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from sleepconv.functional.sharing import neurons_per_grid, share_weights_
from sleepconv.sleep.distributed import share_
from sleepconv.sleep.layers import sleeping_layers


class Rule(Protocol):
    """What ``Sleep`` asks of a rule."""

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers of the model share, in place."""


@dataclass(frozen=True)
class Instant:
    r"""Every grid's filters become their mean, at once: what the paper's experiments do (section 5).

    .. math:: w_i \leftarrow \frac{1}{|G(i)|} \sum_{j \in G(i)} w_j

    >>> weight = torch.tensor([[1.0], [10.0], [3.0], [20.0]])
    >>> Instant()(weight, torch.tensor([0, 1, 0, 1])).flatten().tolist()
    [2.0, 15.0, 2.0, 15.0]
    """

    def __call__(self, target: Tensor | nn.Module, grids: Tensor | None = None) -> Any:
        """Share the weights of a tensor, a layer or a model, in place."""
        if isinstance(target, Tensor):
            if grids is None:
                raise ValueError("a bare tensor does not know its grids; give them, as from lateral_grids")
            return share_weights_(target, grids)
        self.sleep_(sleeping_layers(target), target)
        return target

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Share in all these layers. An interrupt from the keyboard waits until all have shared: a few milliseconds."""
        check_something_to_share(layers)
        with _undisturbed():
            for layer in layers.values():
                share_(layer.weight, layer.grids)  # type: ignore[arg-type]


def check_something_to_share(layers: Mapping[str, Any]) -> None:
    """Raise a ValueError that names a layer whose grids all have one neuron."""
    for name, layer in layers.items():
        if int(neurons_per_grid(layer.weight, layer.grids).max()) < 2:
            raise ValueError(
                f"layer {name!r}: every grid has one neuron, so there is nothing to share; exclude it from sleep"
            )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold back Ctrl-C until the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *arguments: caught.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught and callable(before):
            before(*caught[0])
