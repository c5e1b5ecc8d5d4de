"""Gradients that the neurons of a grid have in common."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sleepconv.sleep import Sleep
from sleepconv.sleep.distributed import share_
from sleepconv.sleep.sleep import check_held


def share_gradients(optimizer: Optimizer, sleep: Sleep) -> RemovableHandle:
    r"""Let the optimizer see each grid's mean gradient, so that AdamW normalises by *its* size.

    .. math::
        \bar g &= \tfrac{1}{|G|} \textstyle\sum_{j \in G} g_j, \qquad
        m \leftarrow \beta_1 m + (1 - \beta_1)\,\bar g, \qquad u \leftarrow \beta_2 u + (1 - \beta_2)\,\bar g^2 \\
        w_i &\leftarrow (1 - \eta\lambda)\,w_i - \eta\,\hat m / (\sqrt{\hat u} + \epsilon)

    AdamW by itself divides every neuron's gradient by that neuron's own size, which is mostly noise: after a sleep the
    common step is √N times shorter than a convolution's. With shared gradients and a sleep after every step, AdamW on a
    locally connected network is AdamW on a convolution with one filter per grid (nine for 3×3), whose gradient is N
    times larger: the same steps to rounding, but for ε, which counts for more beside a smaller gradient.

    The paper shares weights only. Neurons that share gradients awake are never apart, so ``sleep`` must come after
    every step.

    Args:
        optimizer: any PyTorch optimizer; the gradients are shared, in place, before each of its steps.
        sleep: says which layers share, and who shares with whom.

    Returns:
        a handle whose ``remove()`` ends it.

    >>> import sleepconv
    >>> model = sleepconv.to_locally_connected(torch.nn.Conv2d(1, 4, 3), torch.randn(1, 1, 9, 9), copy_weights=True)
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    >>> sleep = Sleep(model, every=1)
    >>> handles = share_gradients(optimizer, sleep), sleep.attach(optimizer)
    """
    if not isinstance(optimizer, Optimizer) or not isinstance(sleep, Sleep):
        got = f"{type(optimizer).__name__} and {type(sleep).__name__}"
        raise TypeError(f"share_gradients takes an optimizer and a Sleep, got {got}")
    check_held(sleep.layers, optimizer)
    if sleep.every != 1:
        raise ValueError(
            f"share_gradients needs a sleep after every step (every=1), got every={sleep.every}: neurons that share "
            "their gradients awake have nothing left to share asleep; see SlowMomentum for rarer sleep"
        )

    def before_step(optimizer: Optimizer, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        closure = keywords.get("closure", arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            _share_gradients_(sleep)
            return None
        return (arguments[0], *arguments[2:]), {**keywords, "closure": _sharing(closure, sleep)}

    return optimizer.register_step_pre_hook(before_step)


def _sharing(closure: Callable[[], float], sleep: Sleep) -> Callable[[], float]:
    """A closure of ``Optimizer.step`` that shares the gradients it has computed."""

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
