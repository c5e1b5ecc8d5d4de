"""Momentum from sleep to sleep, for networks that sleep rarely."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sleepconv.functional.sizes import check_finite
from sleepconv.sleep import Sleep
from sleepconv.sleep.distributed import sharded_like, share_


class SlowMomentum:
    r"""Momentum from sleep to sleep, along what the neurons of a grid learned in common.

    .. math:: U \leftarrow \beta\,U + (\bar w - a), \qquad w \leftarrow a + \eta\,U, \qquad a \leftarrow w

    Here :math:`\bar w` are the weights that a sleep has just shared and a those after the previous sleep. A sleeping
    network is local SGD with neurons as workers: averaging removes most of what each of N neurons learned by itself, so
    the common step is short. Slow momentum (after SlowMo, Wang et al., 2020, without its division by the learning
    rate) makes it 1/(1 − β) times as long where successive steps agree. The paper has none: β = 0 and η = 1.

    Only sleeps that come when they are due take this step; ``sleep()`` and ``sleep_if_awake()`` share the weights and
    leave a and U as they are, and frozen layers take none. Both are as large as the weights, since not every rule
    leaves the neurons of a grid exactly equal: neither ``Hebbian`` nor ``Instant`` with several periods does.

    Args:
        sleep: the sleep to extend; build this before training, from the weights at which training starts.
        momentum: β, from 0 to below 1.
        rate: η, above 0.

    >>> import sleepconv
    >>> model = sleepconv.to_locally_connected(torch.nn.Conv2d(1, 1, 3), torch.randn(1, 1, 9, 9), copy_weights=True)
    >>> start, sleep = model.weight.detach().clone(), Sleep(model, every=1)
    >>> outer = SlowMomentum(sleep, momentum=0.5)
    >>> for _ in range(2):
    ...     with torch.no_grad():
    ...         _ = model.weight.add_(1.0)
    ...     record = sleep.step()
    >>> (model.weight - start).mean().round(decimals=3).item()  # 1, then 1 + 0.5 more
    2.5
    """

    def __init__(self, sleep: Sleep, *, momentum: float, rate: float = 1.0) -> None:
        if not isinstance(sleep, Sleep):
            raise TypeError(f"`sleep` must be a Sleep, got {type(sleep).__name__}")
        check_finite("momentum", momentum, least=0)
        if momentum >= 1:
            raise ValueError(f"`momentum` must be below 1, got {momentum}")
        check_finite("rate", rate, least=0)
        if rate == 0:
            raise ValueError("`rate` must be above 0, got 0")
        self.sleep, self.momentum, self.rate = sleep, momentum, rate
        layers: dict[str, Any] = sleep.layers
        with torch.no_grad():
            copies = {name: layer.weight.detach().clone() for name, layer in layers.items() if _learns(layer)}
        self._anchors = {name: share_(copy, sleep.grids[name]) for name, copy in copies.items()}
        self._velocities = {name: torch.zeros_like(anchor) for name, anchor in self._anchors.items()}
        self._handle = sleep.register_sleep_hook(self._after_sleep)

    def remove(self) -> None:
        """Stop extending the sleeps."""
        self._handle.remove()

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return a and U of each layer by name."""
        return {"anchors": dict(self._anchors), "velocities": dict(self._velocities)}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Continue from where ``state_dict()`` was taken; the tensors may be full where the layers are sharded."""
        for part, own in self.state_dict().items():
            given = state.get(part, {})
            if {name: t.shape for name, t in given.items()} != {name: t.shape for name, t in own.items()}:
                raise ValueError(f"`state[{part!r}]` must have the layers and shapes of this model's sleeping layers")
        for part, own in self.state_dict().items():
            for name, tensor in own.items():
                tensor.copy_(sharded_like(state[part][name], tensor))

    def _after_sleep(self, layers: Mapping[str, Any]) -> None:
        if not self.sleep.due:
            return
        for name, layer in layers.items():
            if not _learns(layer):
                continue
            if name not in self._anchors:
                raise RuntimeError(f"layer {name!r} was added after SlowMomentum was built; build it again")
            anchor, velocity = self._anchors[name], self._velocities[name]
            velocity.mul_(self.momentum).add_(layer.weight).sub_(anchor)
            anchor.add_(velocity, alpha=self.rate)
            layer.weight.copy_(anchor)


def _learns(layer: Any) -> bool:
    return bool(layer.weight.requires_grad)
