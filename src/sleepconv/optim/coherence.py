"""How much the gradients of the neurons that share have in common."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import nn

from sleepconv.functional.sharing import grid_sums
from sleepconv.sleep.distributed import is_distributed
from sleepconv.sleep.layers import sleeping_layers, unwrapped


@dataclass(frozen=True)
class Coherence:
    r"""The size of a grid's mean gradient relative to that of its neurons' gradients.

    .. math:: c = \frac{\mathrm{rms}(\bar g)}{\mathrm{rms}(g_i)}

    An optimizer that normalises every neuron's gradient by that neuron's own size, as AdamW does, moves the mean of
    the neurons c times as far as it would move one filter with the gradient :math:`\bar g`.

    Attributes:
        ratio: c, over all grids of a layer.
        independent: what c would be if the N gradients of a grid were independent with mean zero, 1/√N.

    >>> Coherence(ratio=0.1, independent=0.095).ratio
    0.1
    """

    ratio: float
    independent: float


@torch.no_grad()
def gradient_coherence(model: nn.Module) -> dict[str, Coherence]:
    """Measure the coherence of the gradients that the last ``backward()`` left in the locally connected layers.

    Layers without a gradient, because they are frozen, say, are left out.

    >>> import sleepconv
    >>> conv = nn.Conv2d(3, 4, 3)
    >>> model = sleepconv.to_locally_connected(conv, torch.randn(1, 3, 32, 32), copy_weights=True)
    >>> model(torch.ones(8, 3, 32, 32)).sum().backward()  # the same input, so the same gradient, everywhere
    >>> measured = gradient_coherence(model)[""]
    >>> round(measured.ratio, 3), round(measured.independent, 3)
    (1.0, 0.1)
    """
    layers: dict[str, Any] = sleeping_layers(unwrapped(model))
    found = {name: _coherence(layer) for name, layer in layers.items() if layer.weight.grad is not None}
    if not found:
        raise ValueError("no locally connected layer has a gradient; call backward() first")
    return found


def _coherence(layer: Any) -> Coherence:
    grids = layer.grids
    gradient = layer.weight.grad.to(torch.float64)
    gradient = gradient.full_tensor() if is_distributed(gradient) else gradient
    sums, neurons = grid_sums(gradient, grids)
    filters, inputs = len(neurons), gradient.numel() // grids.numel()
    counts = neurons.to(sums).reshape(-1, *[1] * (sums.dim() - 1))
    # Each grid's mean counts as often as it has neurons, as their own gradients do.
    means = sums.square().div_(counts).sum() / (grids.numel() * inputs)
    own = gradient.square().mean()
    return Coherence(float((means / own).sqrt()) if own else 0.0, sqrt(filters / grids.numel()))
