"""Run a model without side effects, to find out what its shared layers see."""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

Size = tuple[int, ...]
Rehearsal = tuple[Any, bool]  # the sample, and whether in training mode

_LIKE_ITSELF = (Tensor.new_empty, Tensor.new_full, Tensor.new_ones, Tensor.new_tensor, Tensor.new_zeros)
_LIKE_ANOTHER = (Tensor.to, Tensor.type_as)


@dataclass(frozen=True)
class Kind:
    """A kind of layer with shared weights, and what the dry run should note of it.

    Attributes:
        becomes: what the layers are converted to, for error messages.
        modules: the classes of the layers.
        functions: the functions that compute the same on bare weights.
        methods: the methods that define how a layer computes; a subclass that overrides one is not converted.
        size: the size that a layer's counterpart depends on, from the layer and its input.
        describe: such a size in words.
        opaque: modules whose inner layers are not called as layers.
    """

    becomes: str
    modules: tuple[type[nn.Module], ...]
    functions: tuple[Callable[..., Tensor], ...]
    methods: tuple[str, ...]
    size: Callable[[nn.Module, Tensor], Size]
    describe: Callable[[Size], str] = str
    opaque: tuple[type[nn.Module], ...] = ()

    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        """Return the layers by name, without those inside opaque modules."""
        hidden = {inner for m in model.modules() if isinstance(m, self.opaque) for inner in m.modules()}
        return {n: m for n, m in model.named_modules() if isinstance(m, self.modules) and m not in hidden}


@dataclass(eq=False)
class Visit:
    """What one layer saw: its input sizes, and whether its weight was used outside its forward method."""

    name: str
    module: nn.Module
    sizes: set[Size] = field(default_factory=set)
    first_call: int = -1
    used_directly: bool = False


def visit_layers(model: nn.Module, sample_input: Any, kind: Kind) -> tuple[dict[str, Visit], list[Rehearsal]]:
    """Run the model on the sample; return what every such layer saw, in the order of their calls, and the runs made.

    The model runs in eval mode and, if it is in training mode, also in that (for auxiliary heads). One of the two may
    fail, since it may need other arguments.
    """
    visits = {name: Visit(name or "the model itself", module) for name, module in kind.find(model).items()}
    failures: list[Exception] = []
    runs: list[Rehearsal] = []
    for training in (False, True) if model.training else (False,):
        for sample in (sample_input, two_of_each(sample_input)):  # BatchNorm may refuse to train on a batch of one
            attempt = {name: replace(visit, sizes=set(visit.sizes)) for name, visit in visits.items()}
            try:
                _watched_run(model, sample, kind, attempt, training=training)
            except Exception as error:
                failures.append(error)
                continue
            visits = attempt
            runs.append((sample, training))
            break
    if not runs:
        raise failures[0]
    return dict(sorted(visits.items(), key=lambda item: item[1].first_call)), runs


def rehearse(model: nn.Module, sample_input: Any, *, training: bool = False, differentiable: bool = False) -> Any:
    """Run the model on the sample, uncompiled and without side effects, and return its output."""
    arguments, keywords = as_call(sample_input)
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with _untouched(model), eager, torch.set_grad_enabled(differentiable):
        if not training:
            model.eval()
        elif not model.training:
            model.train()
        return model(*arguments, **keywords)


def two_of_each(sample_input: Any) -> Any:
    """Return the sample with every batch of one doubled."""
    return tree_map_only(Tensor, lambda t: torch.cat([t, t]) if t.dim() and len(t) == 1 else t, sample_input)


def as_call(sample_input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword arguments of a call with this sample."""
    if isinstance(sample_input, Tensor):
        return (sample_input,), {}
    if isinstance(sample_input, (tuple, list)) and any(isinstance(v, Tensor) for v in tree_leaves(sample_input)):
        return tuple(sample_input), {}
    if isinstance(sample_input, dict):
        return (), sample_input
    raise TypeError(
        "`sample_input` must be a tensor, a tuple of positional arguments or a dict of keyword arguments, "
        f"got {sample_input!r:.80}"
    )


def check_convertible(model: nn.Module, visits: list[Visit], kind: Kind) -> None:
    """Raise a ValueError that names the first layer that cannot be converted, and why."""
    owners = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    for visit in visits:
        problem = _problem(visit, owners, kind)
        if problem:
            raise ValueError(f"{visit.name} cannot become {kind.becomes}: {problem}, or leave it as it is (`exclude`)")


def _problem(visit: Visit, owners: Counter[int], kind: Kind) -> str | None:
    layer = visit.module
    if len(visit.sizes) > 1:
        sizes = " and ".join(map(kind.describe, sorted(visit.sizes)))
        return f"it is used with inputs of different sizes, {sizes}; use a separate module for each size"
    if parametrize.is_parametrized(layer) or not isinstance(layer._parameters.get("weight"), nn.Parameter):
        return "its weight is parametrized (weight_norm, spectral_norm, pruning, ...); remove the parametrization first"
    if owners[id(layer._parameters["weight"])] > 1:
        return "its weight is tied to another module's; untie them first"
    if owners[id(layer._parameters.get("bias"))] > 1:
        return "its bias is tied to another module's; untie them first"
    if visit.used_directly:
        return "its weight is also used directly, outside the module; call the module instead"
    base = next(module for module in kind.modules if isinstance(layer, module))
    if any(getattr(type(layer), method, None) is not getattr(base, method, None) for method in kind.methods):
        return f"{type(layer).__name__} overrides how a {base.__name__} computes; use a plain {base.__name__}"
    return None


def _watched_run(model: nn.Module, sample_input: Any, kind: Kind, visits: dict[str, Visit], *, training: bool) -> None:
    watch = _DirectUses(model, kind, visits)
    with ExitStack() as stack:
        for visit in visits.values():
            stack.callback(visit.module.register_forward_pre_hook(watch.noting(visit), with_kwargs=True).remove)
        for module in model.modules():
            if isinstance(module, (*kind.modules, *kind.opaque)):
                stack.callback(module.register_forward_pre_hook(watch.enter).remove)
                stack.callback(module.register_forward_hook(watch.leave).remove)
        stack.enter_context(watch)
        rehearse(model, sample_input, training=training)


class _DirectUses(TorchFunctionMode):
    """A watch on what layers see, and on weights used through ``torch.nn.functional`` instead of a module."""

    def __init__(self, model: nn.Module, kind: Kind, visits: dict[str, Visit]) -> None:
        super().__init__()
        self.kind = kind
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.owners = {id(v.module._parameters.get("weight")): v for v in visits.values()}
        self.depth, self.calls = 0, 0

    def noting(self, visit: Visit) -> Callable[..., None]:
        """Return a hook that notes the size of each input of this layer."""

        def note(module: nn.Module, inputs: tuple[Tensor, ...], keywords: dict[str, Tensor]) -> None:
            visit.sizes.add(self.kind.size(module, inputs[0] if inputs else keywords["input"]))
            self.calls += 1
            visit.first_call = self.calls if visit.first_call < 0 else visit.first_call

        return note

    def enter(self, *_: Any) -> None:
        """Note that a layer begins to compute."""
        self.depth += 1

    def leave(self, *_: Any) -> None:
        """Note that a layer has computed."""
        self.depth -= 1

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.depth and isinstance(result, Tensor):
            given = _used_by_value(func, [*args, *(kwargs or {}).values()])
            used = [self.owners[id(value)] for value in given if id(value) in self.owners]
            for visit in used:
                visit.used_directly = True
            if func in self.kind.functions and not used:
                name = next((self.names[id(value)] for value in given if id(value) in self.names), "a computed weight")
                warnings.warn(f"not converted, since it is used directly through {func.__name__}: {name}", stacklevel=2)
        return result


def _used_by_value(func: Callable, given: list[Any]) -> list[Any]:
    """Return the arguments without those that only determine dtype and device."""
    return [] if func in _LIKE_ITSELF else given[:1] if func in _LIKE_ANOTHER else given


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Restore the buffers, the modes and the random state at the end."""
    modes = {module: module.training for module in model.modules()}
    buffers = [(m, name, b, b.clone()) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        with torch.no_grad():
            for module, name, buffer, value in buffers:
                module._buffers[name] = buffer.copy_(value)
