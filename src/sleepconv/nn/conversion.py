"""Conversion of whole models: from shared layers to ones without weight sharing; ``inference`` leads back."""

import copy
import warnings
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sleepconv.functional.sizes import check_int, output_size
from sleepconv.nn.dry_run import Kind, Rehearsal, Size, Visit, check_convertible, rehearse, visit_layers
from sleepconv.nn.layout import Chains
from sleepconv.nn.modules import (
    LocallyConnected,
    LocallyConnected1d,
    LocallyConnected2d,
    LocallyConnected3d,
    PerPatchLinear,
)
from sleepconv.nn.planning import too_large

_Layer = TypeVar("_Layer")

_COUNTERPARTS: dict[type[nn.Module], type[LocallyConnected]] = {
    nn.Conv1d: LocallyConnected1d,
    nn.Conv2d: LocallyConnected2d,
    nn.Conv3d: LocallyConnected3d,
}
_HOOKS = [name for name in vars(nn.Module()) if name.endswith(("_hooks", "_with_kwargs", "_always_called", "_hook"))]


def to_locally_connected(
    model: nn.Module,
    sample_input: Tensor | tuple[Any, ...] | dict[str, Any],
    *,
    keep_first: int = 0,
    copy_weights: bool = False,
    inplace: bool = False,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
    pointwise: bool = False,
) -> nn.Module:
    """Replace the convolutions of a model by locally connected layers: every output position gets its own filter.

    The model runs on ``sample_input`` before the replacement, to find the size of every layer, and after it, to check
    the result: in eval mode, and in training mode if it can. Its buffers (BatchNorm statistics), the random state and
    train/eval mode are restored. Stride, padding, dilation, groups, bias and padding mode are kept. Responses have the
    memory layout of a convolution's, or that which the next layer reads fastest where all operations in between are
    known to handle it (see ``keep_layout``).

    What stays shared is named in a warning: convolutions that the sample does not reach, or that are used with inputs
    of several sizes (a filter per position fits one size only); transposed convolutions, which have no locally
    connected counterpart here (upsampling followed by a convolution is converted); linear layers that act on every
    position of an image, unless ``pointwise`` is set. There is also a warning before a conversion that needs more than
    half of the machine's memory; ``memory_table`` shows what a model needs without allocating it.

    Args:
        model: any model with convolutions, or a convolution.
        sample_input: one batch as the model will see it (a tuple: positional arguments; a dict: keyword arguments).
        keep_first: leave this many convolutions, in the order in which they run, as they are; 1 is the paper's
            "1st layer conv".
        copy_weights: start from the convolutions' filters instead of fresh ones, so that the network computes the same.
        inplace: change ``model`` itself instead of a copy. An optimizer built before still holds the convolutions'
            weights: build it afterwards.
        include: names of modules; only these, or layers inside them, are converted.
        exclude: names of modules that are not converted, nor layers inside them.
        pointwise: also convert linear layers that act on (batch, height, width, features), such as ConvNeXt's: 1×1
            convolutions in all but name. They become per-patch layers, with one matrix per position.

    Returns:
        The locally connected model.

    >>> import torch
    >>> conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2))
    >>> local = to_locally_connected(conv, torch.randn(1, 3, 16, 16))
    >>> local[2].weight.shape
    torch.Size([7, 7, 8, 8, 3, 3])
    """
    check_int("keep_first", keep_first, least=0)
    model = _own_copy(model, inplace, _CONVOLUTIONS)
    visits, runs = visit_layers(model, sample_input, _POSITIONWISE)
    first = [name for name, visit in visits.items() if visit.sizes and not _linear(visit)][:keep_first]
    candidates = {name: visit for name, visit in visits.items() if not _linear(visit) or any(visit.sizes)}
    candidates = select(model, candidates, include=include, exclude=exclude)
    candidates = {name: visit for name, visit in candidates.items() if name not in first}
    chosen = [visit for visit in candidates.values() if len(visit.sizes) == 1 and (pointwise or not _linear(visit))]
    check_convertible(model, chosen, _POSITIONWISE)
    transposed = {n: m for n, m in model.named_modules() if isinstance(m, nn.modules.conv._ConvTransposeNd)}
    left = _reasons(candidates.values(), pointwise)
    left[_TRANSPOSED] = list(select(model, transposed, include=include, exclude=exclude))
    for why, names in left.items():
        _warn_left_alone(why, names)
    if not chosen:
        text = "no convolution was converted: none was chosen, or those that were cannot be"
        warnings.warn(text, NothingConvertedWarning, stacklevel=2)
        return model
    if problem := too_large({visit.name: _weight_bytes(visit) for visit in chosen}, chosen[0].module.weight):
        warnings.warn(problem, UserWarning, stacklevel=2)
    layers = {visit.name: (visit.module, _counterpart(visit)) for visit in chosen}
    return _exchange(model, layers, runs, sample_input, copy_weights=copy_weights)


def to_per_patch(
    model: nn.Module,
    sample_input: Tensor | tuple[Any, ...] | dict[str, Any],
    *,
    copy_weights: bool = False,
    inplace: bool = False,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
) -> nn.Module:
    """Replace the linear layers of a model that act on tokens by per-patch ones: every patch gets its own matrix.

    Appendix A.4 of Pogodin et al. (2021): vision transformers and MLPs share weights between patches too, and a sleep
    can do it for them. A linear layer acts on tokens if its input has three axes or more; it shares weights over the
    axis before the last, the patches. (In the token mixing of an MLP-Mixer those are channels; on (batch, height,
    width, features) only positions along the width get their own matrix.) Linear layers on (batch, features) are not
    converted. ``nn.MultiheadAttention`` does not call its projections as layers and is left alone, with a warning. To
    convert a patch embedding that is a convolution, use ``to_locally_connected``; ``to_convolutional`` undoes both.
    The model runs on ``sample_input`` before and after, as in ``to_locally_connected``.

    Args:
        model: any model with linear layers, or an ``nn.Linear``.
        sample_input: one batch as the model will see it (a tuple: positional arguments; a dict: keyword arguments).
        copy_weights: start from the linear layers' weights instead of fresh ones, so that the network computes the
            same.
        inplace: change ``model`` itself instead of a copy. An optimizer built before still holds the old weights: build
            it afterwards.
        include: names of modules; only these, or layers inside them, are converted.
        exclude: names of modules that are not converted, nor layers inside them.

    Returns:
        The model without weight sharing between patches.

    >>> import torch
    >>> tokens = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    >>> to_per_patch(tokens, torch.randn(2, 16, 8))[0]
    PerPatchLinear(8, 32, num_patches=16, bias=True)
    """
    model = _own_copy(model, inplace, _LINEARS)
    visits, runs = visit_layers(model, sample_input, _LINEARS)
    visits = select(model, visits, include=include, exclude=exclude)
    chosen = [visit for visit in visits.values() if any(visit.sizes)]
    check_convertible(model, chosen, _LINEARS)
    _warn_left_alone("it was not reached by the sample input", _unreached(visits))
    attention = {name: m for name, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)}
    _warn_left_alone(
        "nn.MultiheadAttention uses its weights directly (write its projections as nn.Linear layers)",
        select(model, attention, include=include, exclude=exclude),
    )
    if not chosen:
        text = "no linear layer was converted: the sample input reaches none of the selected ones that acts on tokens"
        warnings.warn(text, NothingConvertedWarning, stacklevel=2)
        return model
    _leave_fused_path(model)
    layers = {visit.name: (visit.module, _per_patch(visit)) for visit in chosen}
    return _exchange(model, layers, runs, sample_input, copy_weights=copy_weights)


class NothingConvertedWarning(UserWarning):
    """A conversion that changed nothing.

    >>> from sleepconv import to_locally_connected
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = to_locally_connected(nn.Linear(2, 2), torch.zeros(1, 2))
    >>> caught[0].category.__name__
    'NothingConvertedWarning'
    """


def select(
    model: nn.Module, layers: Mapping[str, _Layer], *, include: Iterable[str] | None = None, exclude: Iterable[str] = ()
) -> dict[str, _Layer]:
    """Return those of the named layers that are, or are inside, an included module and not an excluded one.

    A module that has several names can be chosen by any of them.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    >>> list(select(model, dict(model.named_modules()), include=["1"], exclude=["1.0"]))
    ['1', '1.1']
    """
    include = None if include is None else module_names("include", include)
    exclude = module_names("exclude", exclude)
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    known = {name: module for module, all_names in names.items() for name in all_names}
    for name in [*(include or ()), *exclude]:
        if name not in known:
            choices = ", ".join(layers) or "none"
            raise ValueError(f"the model has no module {name!r}; the layers to choose from are: {choices}")
    return {
        name: layer
        for name, layer in layers.items()
        if (include is None or _inside(names[known[name]], include)) and not _inside(names[known[name]], exclude)
    }


def module_names(argument: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that were given for this argument; refuse a string, whose letters would pass for names.

    >>> module_names("include", ["conv1", "stages.0"])
    ('conv1', 'stages.0')
    """
    if isinstance(names, str):
        raise TypeError(f"`{argument}` must be a list of names of modules, got the string {names!r}; use [{names!r}]")
    return tuple(names)


def _inside(names: list[str], parents: tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") or parent == "" for parent in parents for name in names)


_CONVOLUTIONS = Kind(
    becomes="locally connected",
    modules=tuple(_COUNTERPARTS),
    functions=(F.conv1d, F.conv2d, F.conv3d),
    methods=("forward", "_conv_forward"),
    size=lambda conv, x: tuple(x.shape[-len(conv.kernel_size) :]),  # type: ignore[arg-type]
)


def _positions(layer: nn.Module, x: Tensor) -> Size:
    if isinstance(layer, nn.Linear):
        return tuple(x.shape[1:-1]) if x.dim() >= 4 else ()
    return _CONVOLUTIONS.size(layer, x)


# Linear layers are watched in the same run: on (batch, height, width, features) they are 1×1 convolutions.
_POSITIONWISE = replace(
    _CONVOLUTIONS,
    modules=(*_COUNTERPARTS, nn.Linear),
    size=_positions,
    opaque=(nn.MultiheadAttention,),
)
_TRANSPOSED = "it is a transposed convolution (nn.Upsample followed by a convolution would be)"


def _linear(visit: Visit) -> bool:
    return isinstance(visit.module, nn.Linear)


def _reasons(candidates: Iterable[Visit], pointwise: bool) -> dict[str, list[str]]:
    """Return the names of the layers that are left as they are, by the reason."""
    left: dict[str, list[str]] = {}
    for visit in candidates:
        if not visit.sizes:
            left.setdefault("it was not reached by the sample input", []).append(visit.name)
        elif _linear(visit) and not pointwise:
            left.setdefault("linear layers share weights between positions (pointwise=True converts them)", []).append(
                visit.name
            )
        elif len(visit.sizes) > 1:
            sizes = " and ".join(map(str, sorted(visit.sizes)))
            left.setdefault("it is used with inputs of different sizes", []).append(f"{visit.name} ({sizes})")
    return left


def _counterpart(visit: Visit) -> LocallyConnected | PerPatchLinear:
    """Return the layer without weight sharing, with the weights of the shared one."""
    (size,) = visit.sizes
    if isinstance(visit.module, nn.Linear):
        return PerPatchLinear.from_linear(visit.module, size)
    counterpart = next(local for conv, local in _COUNTERPARTS.items() if isinstance(visit.module, conv))
    return counterpart._from_convolution(visit.module, size)


def _weight_bytes(visit: Visit) -> int:
    """Return the size of the counterpart's weight."""
    (size,), layer = visit.sizes, visit.module
    weight: Any = layer.weight
    if not isinstance(layer, nn.Linear):
        geometry: dict[str, Any] = {name: getattr(layer, name) for name in ("stride", "padding", "dilation")}
        size = output_size(size, layer.kernel_size, **geometry)  # type: ignore[arg-type]
    return prod(size) * weight.numel() * weight.element_size()


def _patches(linear: nn.Module, x: Tensor) -> Size:
    return tuple(x.shape[-2:-1]) if x.dim() >= 3 else ()


_LINEARS = Kind(
    becomes="a per-patch layer",
    modules=(nn.Linear,),
    functions=(F.linear,),
    methods=("forward",),
    size=_patches,
    describe=lambda size: f"{size[0]} patches" if size else "no patches",
    opaque=(nn.MultiheadAttention,),
)


def _per_patch(visit: Visit) -> PerPatchLinear:
    ((patches,),) = visit.sizes
    return PerPatchLinear.from_linear(visit.module, patches)  # type: ignore[arg-type]


def _leave_fused_path(model: nn.Module) -> None:
    """Keep nn.TransformerEncoderLayer from passing its weights, in eval mode, to a fused function that shares them."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0


def _own_copy(model: nn.Module, inplace: bool, kind: Kind) -> nn.Module:
    """Return the model to operate on, itself or a copy, if layers of this kind can be exchanged in it."""
    if isinstance(model, (torch.jit.ScriptModule, nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise TypeError(f"convert the plain model before it becomes a {type(model).__name__}")
    lazy = [
        f"{name or 'the model itself'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if _any_lazy(module._buffers) or (isinstance(module, kind.modules) and _any_lazy(module._parameters))
    ]
    if lazy:
        raise ValueError(f"{', '.join(lazy)}: lazy layers have no sizes yet; run model(sample) once, then convert")
    if inplace:
        return model
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise ValueError(
            f"the model cannot be copied ({error}); if it is pruned, make that permanent (torch.nn.utils.prune.remove),"
            " otherwise convert it with inplace=True"
        ) from error


def _any_lazy(tensors: Mapping[str, Any]) -> bool:
    return any(map(is_lazy, tensors.values()))


def _unreached(visits: Mapping[str, Visit]) -> list[str]:
    return [visit.name for visit in visits.values() if not visit.sizes]


def _warn_left_alone(why: str, names: Iterable[str]) -> None:
    """Warn, on behalf of the user's call two frames above, that these layers were not converted."""
    if names := [name or "the model itself" for name in names]:
        warnings.warn(f"not converted, since {why}: {', '.join(names)}", UserWarning, stacklevel=3)


def _exchange(
    model: nn.Module,
    layers: Mapping[str, tuple[nn.Module, Any]],
    runs: list[Rehearsal],
    sample_input: Any,
    *,
    copy_weights: bool,
) -> nn.Module:
    """Replace each old layer by its new one, check the result and choose the layout; restore the model on failure.

    Args:
        model: the model to change.
        layers: the old and the new layer, by name.
        runs: what the model could do before.
        sample_input: one batch as the model will see it.
        copy_weights: keep the new layers' weights instead of drawing fresh ones.
    """
    if not copy_weights:
        for _, new in layers.values():
            new.reset_parameters()
    converted: Any = replace_layers(model, dict(layers.values()))
    chains = Chains(converted)
    try:
        _check_converted(converted, chains, {name: new for name, (_, new) in layers.items()}, runs, sample_input)
    except BaseException:
        replace_layers(converted, {new: old for old, new in layers.values()})
        raise
    chains.keep_layout()
    return converted


def replace_layers(model: nn.Module, replacements: Mapping[nn.Module, Any]) -> nn.Module:
    """Put the new layers wherever the old ones are; the model itself may be one.

    They get the old ones' hooks, and the buffers, parameters and modules that were registered beside weight and bias.
    """
    for old, new in replacements.items():
        for name in _HOOKS:
            setattr(new, name, getattr(old, name))
        for name in ("_parameters", "_buffers", "_modules"):
            setattr(new, name, getattr(old, name) | getattr(new, name))
        new._non_persistent_buffers_set = old._non_persistent_buffers_set
    for module in model.modules():
        for name, child in module._modules.items():
            if child is not None and child in replacements:
                module._modules[name] = replacements[child]
    return replacements.get(model, model)


def _check_converted(
    model: nn.Module, chains: Chains, layers: Mapping[str, Any], runs: list[Rehearsal], sample_input: Any
) -> None:
    """Watch the converted model run; raise an error if it fails where it did not before, or ignores a new layer."""
    called: set[nn.Module] = set()
    with ExitStack() as stack:
        for layer in layers.values():
            handle = layer.register_forward_hook(lambda module, inputs, output: called.add(module))
            stack.callback(handle.remove)
        chains.watch(sample_input)
        for sample, training in runs:
            if training not in chains.modes:  # being watched, which needs gradients, may be what it cannot do
                rehearse(model, sample, training=training)
    idle = [name for name, layer in layers.items() if layer not in called]
    if idle:
        raise ValueError(
            f"{', '.join(idle)} would not be used: the model also keeps its layers outside its submodules (in a list, "
            "dict or closure) and calls them there; use nn.ModuleList, nn.ModuleDict or attributes"
        )
