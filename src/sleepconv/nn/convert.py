"""From convolutional to locally connected and back, for any PyTorch model."""

import copy
import warnings
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from sleepconv.nn.dry_run import Visit, check_convertible, two_of_each, visit_convolutions
from sleepconv.nn.layout import contiguous_outputs, forget_layout, keep_layout
from sleepconv.nn.locally_connected import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
)

COUNTERPARTS: dict[type[nn.Module], type[LocallyConnected]] = {
    nn.Conv1d: LocallyConnected1d,
    nn.Conv2d: LocallyConnected2d,
    nn.Conv3d: LocallyConnected3d,
}


HOOKS = [name for name in vars(nn.Module()) if name.endswith(("_hooks", "_with_kwargs", "_always_called", "_hook"))]


class NothingConvertedWarning(UserWarning):
    """The model came back as it was."""


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
    BatchNorm and ReLU modules get a class that keeps the responses' memory layout; their results and ``state_dict``
    keys do not change.

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

    >>> conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2))
    >>> local = to_locally_connected(conv, torch.randn(1, 3, 16, 16))
    >>> local[2].weight.shape
    torch.Size([7, 7, 8, 8, 3, 3])
    """
    if keep_first < 0:
        raise ValueError(f"keep_first is the number of convolutions to keep, 0 or more, not {keep_first}")
    if isinstance(model, (torch.jit.ScriptModule, nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise TypeError(f"convert the plain model before it becomes a {type(model).__name__}")
    model = model if inplace else copy.deepcopy(model)
    visits = visit_convolutions(model, sample_input)
    chosen = [visit for visit in visits.values() if visit.sizes][keep_first:]
    check_convertible(model, chosen)
    _warn_of_what_stays(model, visits, bool(chosen))
    if not chosen:
        return model
    replacements = {visit.module: _local(visit, copy_weights) for visit in chosen}
    converted = _replace(model, replacements)
    keep_layout(converted)
    try:
        _check_converted(converted, sample_input, {visit.name: replacements[visit.module] for visit in chosen})
    except BaseException:
        forget_layout(converted)
        _replace(converted, {new: old for old, new in replacements.items()})
        raise
    if converted is model:
        converted.register_forward_hook(contiguous_outputs)
    return converted


def to_convolutional(model: nn.Module, *, inplace: bool = False) -> nn.Module:
    """Replace every locally connected layer by the convolution with its mean filter; the way back.

    >>> local = LocallyConnected2d(3, 8, 3, input_size=16)
    >>> to_convolutional(local)
    Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
    """
    model = model if inplace else copy.deepcopy(model)
    layers = [module for module in model.modules() if isinstance(module, LocallyConnected)]
    if not layers:
        warnings.warn("the model has no locally connected layer; nothing was changed", NothingConvertedWarning, 2)
    forget_layout(model)
    for number, hook in list(model._forward_hooks.items()):
        if hook is contiguous_outputs:
            del model._forward_hooks[number]
    return _replace(model, {layer: layer._to_convolution() for layer in layers})


def _local(visit: Visit, copy_weights: bool) -> LocallyConnected:
    counterpart = next(local for conv, local in COUNTERPARTS.items() if isinstance(visit.module, conv))
    (size,) = visit.sizes
    layer = counterpart._from_convolution(visit.module, size)
    if not copy_weights:
        layer.reset_parameters()
    return layer


def _replace(model: nn.Module, replacements: dict[nn.Module, Any]) -> nn.Module:
    for old, new in replacements.items():
        for name in HOOKS:
            setattr(new, name, getattr(old, name))
    for module in model.modules():
        for name, child in module._modules.items():
            if child in replacements:
                module._modules[name] = replacements[child]
    return replacements.get(model, model)


def _warn_of_what_stays(model: nn.Module, visits: dict[str, Visit], converting: bool) -> None:
    unreached = [name for name, visit in visits.items() if not visit.sizes]
    transposed = [
        name for name, module in model.named_modules() if isinstance(module, nn.modules.conv._ConvTransposeNd)
    ]
    for names, why in [
        (unreached, "was not reached by the sample input"),
        (transposed, "is a transposed convolution"),
    ]:
        if names:
            warnings.warn(f"left as it is, since it {why}: {', '.join(names)}", UserWarning, stacklevel=3)
    if not converting:
        warnings.warn(
            "no convolution was converted: the model has none that the sample input reaches, or keep_first keeps all",
            NothingConvertedWarning,
            stacklevel=3,
        )


def _check_converted(model: nn.Module, sample_input: Any, layers: dict[str, LocallyConnected]) -> None:
    """Run the converted model: its own code must call the new layers, and must get along with their responses."""
    called: set[nn.Module] = set()
    with ExitStack() as stack:
        for layer in layers.values():
            handle = layer.register_forward_hook(lambda module, inputs, output: called.add(module))
            stack.callback(handle.remove)
        try:
            visit_convolutions(model, two_of_each(sample_input))
        except RuntimeError as error:
            if "view" not in str(error):
                raise
            for layer in layers.values():  # the model insists on contiguous responses
                layer.contiguous_output = True
            visit_convolutions(model, two_of_each(sample_input))
    idle = [name for name, layer in layers.items() if layer not in called]
    if idle:
        raise ValueError(
            f"{', '.join(idle)} would not be used: the model keeps its convolutions also outside of its submodules "
            "(in a list, dict or closure) and calls them there; use nn.ModuleList, nn.ModuleDict or attributes"
        )
