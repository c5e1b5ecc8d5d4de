"""Learning rates that know how many neurons share."""

from typing import Any

from torch import nn

from sleepconv.sleep.layers import sleeping_layers


def scaled_groups(
    model: nn.Module, *, lr: float, weight_decay: float = 0.0, rest_lr: float | None = None, scaled: bool = True
) -> list[dict[str, Any]]:
    r"""Make parameter groups for SGD in which a layer's rate grows with the number of neurons that share.

    .. math:: \eta_l = \eta \, N_l, \qquad \lambda_l = \lambda / N_l, \qquad
        N_l = \frac{\text{neurons}}{\text{grids}} \text{ of layer } l

    The gradient of a shared filter is the *sum* over its N neurons, while a sleep takes the *mean* of their steps. With
    these rates and a sleep after every step, SGD (with or without momentum) on a locally connected network is SGD with
    the rate η on a convolution with one filter per grid, to rounding; where the grids of a layer differ in size, a
    filter with n neurons learns at the rate η N/n.

    Args:
        model: any model with locally connected layers.
        lr: η, the rate of a convolution with one filter per grid.
        weight_decay: λ of that convolution.
        rest_lr: the rate of all other parameters (BatchNorm, classifier); by default η.
        scaled: False leaves the rates of all layers at η: groups for AdamW, which normalises gradients by itself.

    Returns:
        one group for each locally connected weight, and one for the rest, as ``torch.optim.SGD`` takes them.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * 4, 2))
    >>> import sleepconv
    >>> local = sleepconv.to_locally_connected(model, torch.randn(1, 1, 8, 8))
    >>> [group["lr"] for group in scaled_groups(local, lr=0.5)]
    [2.0, 0.5]
    """
    groups: list[dict[str, Any]] = []
    layers: list[Any] = list(sleeping_layers(model).values())
    for layer in layers:
        neurons = layer.grids.numel() / len(layer.grids.unique()) if scaled else 1
        groups.append({"params": [layer.weight], "lr": lr * neurons, "weight_decay": weight_decay / neurons})
    sharing = {id(layer.weight) for layer in layers}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in sharing]
    if rest:
        groups.append({"params": rest, "lr": lr if rest_lr is None else rest_lr, "weight_decay": weight_decay})
    return groups
