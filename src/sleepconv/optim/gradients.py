"""Gradients and moments that neurons share, and how much the gradients of such neurons have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sleepconv.functional.sharing import grid_sums
from sleepconv.sleep import Sleep
from sleepconv.sleep.distributed import full_tensor, share_
from sleepconv.sleep.layers import sleeping_layers, unwrapped
from sleepconv.sleep.sleep import check_held


def share_gradients(optimizer: Optimizer, sleep: Sleep) -> RemovableHandle:
    r"""Average gradients within grids before each optimizer step, so that AdamW normalises by the size of the mean.

    .. math::
        \bar g &= \tfrac{1}{|G|} \textstyle\sum_{j \in G} g_j, \qquad
        m \leftarrow \beta_1 m + (1 - \beta_1)\,\bar g, \qquad u \leftarrow \beta_2 u + (1 - \beta_2)\,\bar g^2 \\
        w_i &\leftarrow (1 - \eta\lambda)\,w_i - \eta\,\hat m / (\sqrt{\hat u} + \epsilon)

    Without this, AdamW divides every neuron's gradient by that neuron's own size, which is mostly noise: after a sleep
    the common step is √N times shorter than a convolution's. With it and a sleep after every step, AdamW on a locally
    connected network is AdamW on a convolution with one filter per grid (nine for 3×3), whose gradient is N times
    larger: the same steps up to rounding, except for ε, which counts for more beside a smaller gradient.

    The paper shares weights only. Neurons that share gradients while awake never differ, so ``sleep`` must come after
    every step.

    Args:
        optimizer: any PyTorch optimizer; the gradients are shared, in place, before each of its steps.
        sleep: determines which layers share, and who shares with whom.

    Returns:
        a handle whose ``remove()`` undoes this.

    >>> import sleepconv
    >>> model = sleepconv.to_locally_connected(torch.nn.Conv2d(1, 4, 3), torch.randn(1, 1, 9, 9), copy_weights=True)
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    >>> sleep = Sleep(model, every=1)
    >>> handles = share_gradients(optimizer, sleep), sleep.attach(optimizer)
    """
    _check_arguments("share_gradients", optimizer, sleep)
    if sleep.every != 1:
        raise ValueError(
            f"share_gradients needs a sleep after every step (every=1), got every={sleep.every}: neurons that share "
            "gradients while awake have nothing left to share asleep; see SlowMomentum for rarer sleep"
        )

    def before_step(optimizer: Optimizer, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        closure = keywords.get("closure", arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            _share_gradients_(sleep)
            return None
        return (arguments[0], *arguments[2:]), {**keywords, "closure": _sharing(closure, sleep)}

    return optimizer.register_step_pre_hook(before_step)


def _sharing(closure: Callable[[], float], sleep: Sleep) -> Callable[[], float]:
    """Wrap a closure of ``Optimizer.step`` so that it shares the gradients it has computed."""

    @wraps(closure)
    def shared() -> float:
        loss = closure()
        _share_gradients_(sleep)
        return loss

    return shared


@torch.no_grad()
def _share_gradients_(sleep: Sleep) -> None:
    grids = sleep.grids
    layers: dict[str, Any] = sleep.layers
    for name, layer in layers.items():
        if layer.weight.grad is not None:
            share_(layer.weight.grad, grids[name])


def share_moments(optimizer: Optimizer, sleep: Sleep) -> RemovableHandle:
    r"""Average the optimizer's running moments within grids in each sleep, as the weights are averaged.

    .. math:: m_i \leftarrow \frac{1}{|G(i)|} \sum_{j \in G(i)} m_j

    This averages every tensor of the optimizer's state that has entries for each neuron of a sleeping layer: AdamW's
    two moments, or SGD's momentum. The paper shares weights only. ``share_moments_`` does so once, without a ``Sleep``.

    Args:
        optimizer: any PyTorch optimizer.
        sleep: determines which layers share, who shares with whom, and when; it need not be attached.

    Returns:
        a handle whose ``remove()`` undoes this.

    >>> import sleepconv, torch
    >>> model = sleepconv.to_locally_connected(torch.nn.Conv2d(1, 4, 3), torch.randn(1, 1, 9, 9))
    >>> optimizer, sleep = torch.optim.AdamW(model.parameters()), Sleep(model, every=1)
    >>> handles = share_moments(optimizer, sleep), sleep.attach(optimizer)
    >>> model(torch.randn(2, 1, 9, 9)).sum().backward()
    >>> optimizer.step()
    >>> moment = optimizer.state[model.weight]["exp_avg"]
    >>> torch.equal(moment[0, 0], moment[3, 3])
    True
    """
    _check_arguments("share_moments", optimizer, sleep)

    return sleep.register_sleep_hook(lambda layers: _share_moments_(optimizer, layers, sleep.grids))


def share_moments_(optimizer: Optimizer, model: nn.Module | Sleep) -> None:
    """Average the optimizer's running moments within grids now, in a loop that shares weights without a ``Sleep``.

    Args:
        optimizer: any PyTorch optimizer.
        model: the model or layer, whose own grids count; or a ``Sleep``, whose layers and grids do.

    >>> import sleepconv, torch
    >>> model = sleepconv.to_locally_connected(torch.nn.Conv2d(1, 4, 3), torch.randn(1, 1, 9, 9))
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> model(torch.randn(2, 1, 9, 9)).sum().backward()
    >>> optimizer.step()
    >>> model = sleepconv.sleep.Instant()(model)
    >>> share_moments_(optimizer, model)
    >>> moment = optimizer.state[model.weight]["exp_avg"]
    >>> torch.equal(moment[0, 0], moment[3, 3])
    True
    """
    if not isinstance(optimizer, Optimizer) or not isinstance(model, nn.Module | Sleep):
        got = f"{type(optimizer).__name__} and {type(model).__name__}"
        raise TypeError(f"share_moments_ takes an optimizer and a model or a Sleep, got {got}")
    layers: dict[str, Any] = model.layers if isinstance(model, Sleep) else sleeping_layers(unwrapped(model))
    check_held(layers, optimizer)
    own = {name: layer.grids for name, layer in layers.items()}
    _share_moments_(optimizer, layers, model.grids if isinstance(model, Sleep) else own)


@torch.no_grad()
def _share_moments_(optimizer: Optimizer, layers: Mapping[str, Any], grids: Mapping[str, Tensor]) -> None:
    for name, layer in layers.items():
        for moment in optimizer.state.get(layer.weight, {}).values():
            if isinstance(moment, Tensor) and _is_per_neuron(moment, grids[name]):
                share_(moment, grids[name])


def _is_per_neuron(moment: Tensor, grids: Tensor) -> bool:
    """Whether the moment has the weight's leading axes, the neurons' positions; Adafactor's has shorter filters."""
    return moment.dim() > grids.dim() and moment.shape[: grids.dim()] == grids.shape


def _check_arguments(function: str, optimizer: Optimizer, sleep: Sleep) -> None:
    if not isinstance(optimizer, Optimizer) or not isinstance(sleep, Sleep):
        got = f"{type(optimizer).__name__} and {type(sleep).__name__}"
        raise TypeError(f"{function} takes an optimizer and a Sleep, got {got}")
    check_held(sleep.layers, optimizer)


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

    Layers without a gradient, such as frozen ones, are left out.

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
    gradient = full_tensor(layer.weight.grad).to(torch.float64)
    sums, neurons = grid_sums(gradient, grids)
    filters, inputs = len(neurons), gradient.numel() // grids.numel()
    counts = neurons.to(sums).reshape(-1, *[1] * (sums.dim() - 1))
    # Each grid's mean is weighted by its number of neurons.
    means = sums.square().div_(counts).sum() / (grids.numel() * inputs)
    own = gradient.square().mean()
    return Coherence(float((means / own).sqrt()) if own else 0.0, sqrt(filters / grids.numel()))
