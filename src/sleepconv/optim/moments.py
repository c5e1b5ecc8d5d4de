"""Moments that the neurons of a grid have in common."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sleepconv.sleep import Sleep
from sleepconv.sleep.distributed import share_
from sleepconv.sleep.sleep import check_held


def share_moments(optimizer: Optimizer, sleep: Sleep) -> RemovableHandle:
    r"""Average the optimizer's running moments within grids in each sleep, as the weights are averaged.

    .. math:: m_i \leftarrow \frac{1}{|G(i)|} \sum_{j \in G(i)} m_j

    Every tensor of the optimizer's state that has entries for each neuron of a sleeping layer is averaged: AdamW's two
    moments, or SGD's momentum. The paper shares weights only.

    Args:
        optimizer: any PyTorch optimizer.
        sleep: says which layers share, who shares with whom, and when.

    Returns:
        a handle whose ``remove()`` ends it.

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

    check_held(sleep.layers, optimizer)

    def after_sleep(layers: Mapping[str, Any]) -> None:
        grids = sleep.grids
        for name, layer in layers.items():
            for moment in optimizer.state.get(layer.weight, {}).values():
                if isinstance(moment, Tensor) and _is_per_neuron(moment, grids[name]):
                    share_(moment, grids[name])

    return sleep.register_sleep_hook(after_sleep)


def _is_per_neuron(moment: Tensor, grids: Tensor) -> bool:
    """Whether it begins with the neurons' positions, as the weight does; Adafactor's has shorter filters than that."""
    return moment.dim() > grids.dim() and moment.shape[: grids.dim()] == grids.shape
