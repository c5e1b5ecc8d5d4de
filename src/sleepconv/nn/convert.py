"""From convolutional to locally connected and back, for any PyTorch model."""

import copy
import warnings
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sleepconv.nn.dry_run import Kind, Visit, check_convertible, visit_layers
from sleepconv.nn.layout import forget_layout
from sleepconv.nn.locally_connected import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
)
from sleepconv.nn.per_patch import PerPatchLinear
from sleepconv.nn.surgery import (
    NothingConvertedWarning,
    exchange,
    own_copy,
    replace_layers,
    warn_left_alone,
)

COUNTERPARTS: dict[type[nn.Module], type[LocallyConnected]] = {
    nn.Conv1d: LocallyConnected1d,
    nn.Conv2d: LocallyConnected2d,
    nn.Conv3d: LocallyConnected3d,
}


CONVOLUTIONS = Kind(
    becomes="locally connected",
    modules=(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    functions=(F.conv1d, F.conv2d, F.conv3d),
    methods=("forward", "_conv_forward"),
    size=lambda conv, x: tuple(x.shape[-len(conv.kernel_size) :]),  # type: ignore[arg-type]
)


def to_locally_connected(
    model: nn.Module,
    sample_input: Tensor | tuple[Any, ...] | dict[str, Any],
    *,
    keep_first: int = 0,
    copy_weights: bool = False,
    inplace: bool = False,
) -> nn.Module:
    """Give every output position of every convolution a filter of its own.

    The model runs once on ``sample_input`` to learn the size of every layer; its BatchNorm statistics, its random
    state and its train/eval mode stay as they were. Stride, padding, dilation, groups, bias and padding mode are kept.
    Responses lie in memory as a convolution's do, or as the next layer reads them fastest where all that is between is
    known to handle that (see ``keep_layout``).

    Args:
        model: any model with convolutions, or a bare convolution.
        sample_input: one batch as the model will see it (a tuple: positional arguments; a dict: keyword arguments).
        keep_first: leave this many convolutions, in the order in which they run, as they are; 1 is the paper's
            "1st layer conv".
        copy_weights: start from the convolutions' filters instead of fresh ones, so that the network computes the same.
        inplace: change ``model`` itself instead of a copy. An optimizer built before still holds the convolutions'
            weights: build it afterwards.

    Returns:
        the locally connected model.

    >>> import torch
    >>> conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2))
    >>> local = to_locally_connected(conv, torch.randn(1, 3, 16, 16))
    >>> local[2].weight.shape
    torch.Size([7, 7, 8, 8, 3, 3])
    """
    if keep_first < 0:
        raise ValueError(f"keep_first is the number of convolutions to keep, 0 or more, not {keep_first}")
    model = own_copy(model, inplace, CONVOLUTIONS)
    visits = visit_layers(model, sample_input, CONVOLUTIONS)
    chosen = [visit for visit in visits.values() if visit.sizes][keep_first:]
    check_convertible(model, chosen, CONVOLUTIONS)
    _warn_of_what_stays(model, visits, bool(chosen))
    layers: dict[str, tuple[nn.Module, Any]] = {visit.name: (visit.module, _local(visit)) for visit in chosen}
    return exchange(model, layers, sample_input, copy_weights=copy_weights) if layers else model


def to_convolutional(model: nn.Module, *, inplace: bool = False) -> nn.Module:
    """Replace every layer without weight sharing by the shared one with its mean weights; the way back.

    A locally connected layer becomes a convolution, a per-patch linear layer an ``nn.Linear``.

    >>> local = LocallyConnected2d(3, 8, 3, input_size=16)
    >>> to_convolutional(local)
    Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
    """
    model = model if inplace else copy.deepcopy(model)
    shared: dict[nn.Module, nn.Module] = {}
    for layer in model.modules():
        if isinstance(layer, LocallyConnected):
            shared[layer] = layer._to_convolution()
        elif isinstance(layer, PerPatchLinear):
            shared[layer] = layer.to_linear()
    if not shared:
        text = "the model has no locally connected and no per-patch layer; nothing was changed"
        warnings.warn(text, NothingConvertedWarning, stacklevel=2)
    forget_layout(model)
    return replace_layers(model, shared)


def _local(visit: Visit) -> LocallyConnected:
    counterpart = next(local for conv, local in COUNTERPARTS.items() if isinstance(visit.module, conv))
    (size,) = visit.sizes
    return counterpart._from_convolution(visit.module, size)


def _warn_of_what_stays(model: nn.Module, visits: dict[str, Visit], converting: bool) -> None:
    transposed = nn.modules.conv._ConvTransposeNd
    warn_left_alone((n for n, visit in visits.items() if not visit.sizes), "was not reached by the sample input")
    warn_left_alone(
        (n for n, module in model.named_modules() if isinstance(module, transposed)), "is a transposed convolution"
    )
    if not converting:
        warnings.warn(
            "no convolution was converted: the model has none that the sample input reaches, or keep_first keeps all",
            NothingConvertedWarning,
            stacklevel=3,
        )
