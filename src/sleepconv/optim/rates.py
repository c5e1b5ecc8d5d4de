"""Learning rates that grow with the number of neurons that share."""

from typing import Any

from sleepconv.functional.sizes import check_finite
from sleepconv.sleep import Sleep


def scaled_groups(
    sleep: Sleep, *, lr: float, weight_decay: float = 0.0, rest_lr: float | None = None
) -> list[dict[str, Any]]:
    r"""Make parameter groups for SGD in which a layer's rate grows with the number of neurons that share.

    .. math:: \eta_l = \eta \, N_l, \qquad \lambda_l = \lambda / N_l, \qquad
        N_l = \frac{\text{neurons}}{\text{grids}} \text{ of layer } l

    The gradient of a shared filter is the *sum* over its N neurons, while a sleep takes the *mean* of their steps. With
    these rates and a sleep after every step, SGD (with or without momentum) on a locally connected network is SGD with
    the rate η on a convolution with one filter per grid, up to rounding; where the grids of a layer differ in size, the
    gradient of a filter with n neurons counts N/n times.

    Args:
        sleep: determines which layers share, and who shares with whom.
        lr: η, the rate of a convolution with one filter per grid.
        weight_decay: λ of that convolution.
        rest_lr: the rate of the model's other parameters (BatchNorm, classifier); by default η.

    Returns:
        one group for each weight that is shared, and one for the rest, to be passed to ``torch.optim.SGD``.

    >>> import sleepconv, torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(36 * 4, 2))
    >>> sleep = Sleep(sleepconv.to_locally_connected(model, torch.randn(1, 1, 8, 8)), every=1)
    >>> [group["lr"] for group in scaled_groups(sleep, lr=0.5)]
    [2.0, 0.5]
    """
    if not isinstance(sleep, Sleep):
        raise TypeError(f"scaled_groups takes a Sleep, got {type(sleep).__name__}")
    rest_lr = lr if rest_lr is None else rest_lr
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("rest_lr", rest_lr)):
        check_finite(name, value, least=0)
    groups: list[dict[str, Any]] = []
    layers: dict[str, Any] = sleep.layers
    for name, grids in sleep.grids.items():
        neurons = grids.numel() / len(grids.unique())
        groups.append({"params": [layers[name].weight], "lr": lr * neurons, "weight_decay": weight_decay / neurons})
    sharing = {id(layer.weight) for layer in layers.values()}
    rest = [parameter for parameter in sleep.model.parameters() if id(parameter) not in sharing]
    if rest:
        groups.append({"params": rest, "lr": rest_lr, "weight_decay": weight_decay})
    return groups
