"""From linear layers that all tokens share to one per patch, for any PyTorch model."""

import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sleepconv.nn.dry_run import Kind, Size, Visit, check_convertible, visit_layers
from sleepconv.nn.per_patch import PerPatchLinear
from sleepconv.nn.selection import select
from sleepconv.nn.surgery import (
    NothingConvertedWarning,
    exchange,
    own_copy,
    warn_left_alone,
)


def _patches(linear: nn.Module, x: Tensor) -> Size:
    return tuple(x.shape[-2:-1]) if x.dim() >= 3 else ()


def _said(size: Size) -> str:
    return f"{size[0]} patches" if size else "no patches"


LINEARS = Kind(
    becomes="a per-patch layer",
    modules=(nn.Linear,),
    functions=(F.linear,),
    methods=("forward",),
    size=_patches,
    say=_said,
    opaque=(nn.MultiheadAttention,),
)


def to_per_patch(
    model: nn.Module,
    sample_input: Tensor | tuple[Any, ...] | dict[str, Any],
    *,
    copy_weights: bool = False,
    inplace: bool = False,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
) -> nn.Module:
    """Give every patch a matrix of its own in every linear layer that acts on tokens.

    Appendix A.4 of Pogodin et al. (2021): vision transformers and MLPs share weights between patches too, and a sleep
    can do it for them. The model runs once on ``sample_input``: a linear layer acts on tokens if its input has three
    axes or more; the axis before the last is then the one over which it shares, the patches. (In the token mixing of an
    MLP-Mixer those are channels; on (batch, height, width, features) only places along the width get their own.) Linear
    layers on (batch, features) stay. BatchNorm statistics, random state and train/eval mode stay as they were.
    ``nn.MultiheadAttention`` does not call its projections as layers and is left alone, with a warning. A patch
    embedding that is a convolution belongs to ``to_locally_connected``; ``to_convolutional`` is the way back from both.

    Args:
        model: any model with linear layers, or a bare ``nn.Linear``.
        sample_input: one batch as the model will see it (a tuple: positional arguments; a dict: keyword arguments).
        copy_weights: start from the linear layers' weights, so that the network computes the same, not from fresh ones.
        inplace: change ``model`` itself instead of a copy. An optimizer built before still holds the old weights: build
            it afterwards.
        include: names of modules; only these, or layers inside of them, are converted.
        exclude: names of modules that are left as they are, and what is inside of them.

    Returns:
        the model without sharing between patches.

    >>> import torch
    >>> tokens = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    >>> to_per_patch(tokens, torch.randn(2, 16, 8))[0]
    PerPatchLinear(8, 32, num_patches=16, bias=True)
    """
    model = own_copy(model, inplace, LINEARS)
    visits = select(model, visit_layers(model, sample_input, LINEARS), include=include, exclude=exclude)
    chosen = [visit for visit in visits.values() if any(visit.sizes)]
    check_convertible(model, chosen, LINEARS)
    _warn_of_what_stays(model, visits, include, exclude)
    if not chosen:
        return model
    _leave_fused_path(model)
    layers: dict[str, tuple[nn.Module, Any]] = {visit.name: (visit.module, _per_patch(visit)) for visit in chosen}
    return exchange(model, layers, sample_input, copy_weights=copy_weights)


def _per_patch(visit: Visit) -> PerPatchLinear:
    ((patches,),) = visit.sizes
    return PerPatchLinear.from_linear(visit.module, patches)  # type: ignore[arg-type]


def _warn_of_what_stays(
    model: nn.Module, visits: Mapping[str, Visit], include: Collection[str] | None, exclude: Collection[str]
) -> None:
    attention = {name: m for name, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)}
    warn_left_alone((visit.name for visit in visits.values() if not visit.sizes), "was not reached by the sample input")
    warn_left_alone(
        (name or "the model itself" for name in select(model, attention, include=include, exclude=exclude)),
        "is an nn.MultiheadAttention, which uses its weights directly (write its projections as nn.Linear layers)",
    )
    if not any(any(visit.sizes) for visit in visits.values()):
        text = "no linear layer was converted: the sample input reaches none, of those chosen, that acts on tokens"
        warnings.warn(text, NothingConvertedWarning, stacklevel=3)


def _leave_fused_path(model: nn.Module) -> None:
    """In eval mode an nn.TransformerEncoderLayer hands its weights to one fused function, which shares them."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
