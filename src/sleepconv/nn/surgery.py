"""Exchange layers of a model for others, and say what was left alone."""

import copy
import warnings
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from sleepconv.nn.dry_run import Kind, possible_runs, rehearse
from sleepconv.nn.layout import keep_layout

HOOKS = [name for name in vars(nn.Module()) if name.endswith(("_hooks", "_with_kwargs", "_always_called", "_hook"))]


class NothingConvertedWarning(UserWarning):
    """The model came back as it was.

    >>> from sleepconv import to_locally_connected
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = to_locally_connected(nn.Linear(2, 2), torch.zeros(1, 2))
    >>> caught[0].category.__name__
    'NothingConvertedWarning'
    """


def own_copy(model: nn.Module, inplace: bool, kind: Kind) -> nn.Module:
    """The model to operate on, where layers of this kind are to be exchanged: itself or a copy."""
    if isinstance(model, (torch.jit.ScriptModule, nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise TypeError(f"convert the plain model before it becomes a {type(model).__name__}")
    lazy = [
        f"{name or 'the model itself'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if _any_lazy(module._buffers) or (isinstance(module, kind.modules) and _any_lazy(module._parameters))
    ]
    if lazy:
        raise ValueError(f"{', '.join(lazy)}: sizes not known yet; run the model once, model(sample), and then convert")
    if inplace:
        return model
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise ValueError(
            f"the model cannot be copied ({error}); if it is pruned, make that final (torch.nn.utils.prune.remove), "
            "otherwise convert it with inplace=True"
        ) from error


def _any_lazy(tensors: Mapping[str, Any]) -> bool:
    return any(map(is_lazy, tensors.values()))


def exchange(
    model: nn.Module, layers: Mapping[str, tuple[nn.Module, Any]], sample_input: Any, *, copy_weights: bool
) -> nn.Module:
    """Replace layers by copies without sharing, with these or with fresh weights; the model stays whole if it fails.

    Args:
        model: what to operate on.
        layers: the old and the new layer, by name.
        sample_input: to see that the model's code gets along with the new layers.
        copy_weights: keep the new layers' weights.
    """
    for _, new in layers.values():
        if not copy_weights:
            new.reset_parameters()
    runs = possible_runs(model, sample_input)
    converted: Any = replace_layers(model, dict(layers.values()))
    try:
        _check_converted(converted, runs, {name: new for name, (_, new) in layers.items()})
    except BaseException:
        replace_layers(converted, {new: old for old, new in layers.values()})
        raise
    return keep_layout(converted, sample_input)


def replace_layers(model: nn.Module, replacements: Mapping[nn.Module, Any]) -> nn.Module:
    """Put the new layers wherever the old ones are; the model itself may be one.

    They get the old ones' hooks, and the buffers, parameters and modules that were registered beside weight and bias.
    """
    for old, new in replacements.items():
        for name in HOOKS:
            setattr(new, name, getattr(old, name))
        for name in ("_parameters", "_buffers", "_modules"):
            setattr(new, name, getattr(old, name) | getattr(new, name))
        new._non_persistent_buffers_set = old._non_persistent_buffers_set
    for module in model.modules():
        for name, child in module._modules.items():
            if child is not None and child in replacements:
                module._modules[name] = replacements[child]
    return replacements.get(model, model)


def warn_left_alone(names: Iterable[str], why: str) -> None:
    """Name the layers that stay as they are; the caller is two frames below the user."""
    if names := list(names):
        warnings.warn(f"left as it is, since it {why}: {', '.join(names)}", UserWarning, stacklevel=4)


def _check_converted(model: nn.Module, runs: list[tuple[Any, bool]], layers: Mapping[str, Any]) -> None:
    """Run the converted model: its own code must call the new layers."""
    called: set[nn.Module] = set()
    with ExitStack() as stack:
        for layer in layers.values():
            handle = layer.register_forward_hook(lambda module, inputs, output: called.add(module))
            stack.callback(handle.remove)
        for sample, training in runs:
            rehearse(model, sample, training=training)
    idle = [name for name, layer in layers.items() if layer not in called]
    if idle:
        raise ValueError(
            f"{', '.join(idle)} would not be used: the model keeps its layers also outside of its submodules "
            "(in a list, dict or closure) and calls them there; use nn.ModuleList, nn.ModuleDict or attributes"
        )
