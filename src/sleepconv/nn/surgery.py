"""Exchange layers of a model for others, and say what was left alone."""

import copy
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from sleepconv.nn.dry_run import rehearse


class NothingConvertedWarning(UserWarning):
    """The model came back as it was."""


def own_copy(model: nn.Module, inplace: bool) -> nn.Module:
    """The model to operate on: itself or a copy."""
    if isinstance(model, (torch.jit.ScriptModule, nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise TypeError(f"convert the plain model before it becomes a {type(model).__name__}")
    return model if inplace else copy.deepcopy(model)


def exchange(model: nn.Module, layers: Mapping[nn.Module, Any], *, copy_weights: bool) -> nn.Module:
    """Replace layers by copies without sharing, with these or with fresh weights; forward hooks move along."""
    for old, new in layers.items():
        if not copy_weights:
            new.reset_parameters()
        new._forward_hooks.update(old._forward_hooks)
        new._forward_pre_hooks.update(old._forward_pre_hooks)
    return replace_layers(model, layers)


def replace_layers(model: nn.Module, replacements: Mapping[nn.Module, Any]) -> nn.Module:
    """Put the new layers wherever the old ones are; the model itself may be one."""
    for module in model.modules():
        for name, child in module._modules.items():
            if child is not None and child in replacements:
                module._modules[name] = replacements[child]
    return replacements.get(model, model)


def warn_left_alone(names: Iterable[str], why: str) -> None:
    """Name the layers that stay as they are; the caller is two frames below the user."""
    if names := list(names):
        warnings.warn(f"left as it is, since it {why}: {', '.join(names)}", UserWarning, stacklevel=4)


def make_contiguous_where_viewed(model: nn.Module, sample_input: Any, layers: Iterable[Any]) -> None:
    """Where the model's own code insists on contiguous responses (``.view``), give it those."""
    try:
        rehearse(model, sample_input)
    except RuntimeError as error:
        if "view" not in str(error):
            raise
        for layer in layers:
            layer.contiguous_output = True
        rehearse(model, sample_input)
