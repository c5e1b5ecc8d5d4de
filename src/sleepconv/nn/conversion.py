"""From linear layers that all tokens share to one per patch, for any PyTorch model."""

import copy
import warnings
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sleepconv.nn.dry_run import Kind, Size, Visit, check_convertible, possible_runs, rehearse, visit_layers
from sleepconv.nn.layout import forget_layout, keep_layout
from sleepconv.nn.modules import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
    PerPatchLinear,
)

Layer = TypeVar("Layer")


def select(
    model: nn.Module, layers: Mapping[str, Layer], *, include: Iterable[str] | None = None, exclude: Iterable[str] = ()
) -> dict[str, Layer]:
    """Those of the named layers that are in, or inside of, an included module and not of an excluded one.

    A module that has several names can be chosen by any of them.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    >>> list(select(model, dict(model.named_modules()), include=["1"], exclude=["1.0"]))
    ['1', '1.1']
    """
    include, exclude = None if include is None else list(include), list(exclude)
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    known = {name: module for module, all_names in names.items() for name in all_names}
    for name in [*(include or ()), *exclude]:
        if name not in known:
            raise ValueError(f"the model has no module {name!r}; the layers to choose from are {_listed(layers)}")
    return {
        name: layer
        for name, layer in layers.items()
        if (include is None or _inside(names[known[name]], include)) and not _inside(names[known[name]], exclude)
    }


def _inside(names: list[str], parents: list[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") or parent == "" for parent in parents for name in names)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


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
    _warn_of_linears_that_stay(model, visits, include, exclude)
    if not chosen:
        return model
    _leave_fused_path(model)
    layers: dict[str, tuple[nn.Module, Any]] = {visit.name: (visit.module, _per_patch(visit)) for visit in chosen}
    return exchange(model, layers, sample_input, copy_weights=copy_weights)


def _per_patch(visit: Visit) -> PerPatchLinear:
    ((patches,),) = visit.sizes
    return PerPatchLinear.from_linear(visit.module, patches)  # type: ignore[arg-type]


def _warn_of_linears_that_stay(
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
