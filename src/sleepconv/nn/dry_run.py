"""Run a model once, without a trace, to learn what its convolutions see."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
FUNCTIONS = (F.conv1d, F.conv2d, F.conv3d)


@dataclass(eq=False)
class Visit:
    """What one convolution saw: the input sizes, and whether its weight was used outside its own forward."""

    name: str
    module: nn.Module
    sizes: set[tuple[int, ...]] = field(default_factory=set)
    first_call: int = -1
    used_directly: bool = False


def visit_convolutions(model: nn.Module, sample_input: Any) -> dict[str, Visit]:
    """Run the model on the sample; say for every convolution, by name and in the order of their calls, what it saw.

    The model runs in eval mode, and once more in training mode (for auxiliary heads) if it is in that.
    """
    convolutions = {n: m for n, m in model.named_modules() if isinstance(m, CONVOLUTIONS)}
    visits = {name: Visit(name or "the model itself", module) for name, module in convolutions.items()}
    _run(model, sample_input, visits, training=False)
    if model.training:
        with suppress(ValueError):  # BatchNorm refuses to train on one value per channel
            _run(model, sample_input, visits, training=True)
    return dict(sorted(visits.items(), key=lambda item: item[1].first_call))


def check_convertible(model: nn.Module, visits: list[Visit]) -> None:
    """Raise a ValueError that names the first convolution which cannot become locally connected, and says why."""
    owners = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    for visit in visits:
        problem = _problem(visit, owners)
        if problem:
            raise ValueError(f"{visit.name} cannot become locally connected: {problem}")


def _problem(visit: Visit, owners: Counter[int]) -> str | None:
    conv: Any = visit.module
    if len(visit.sizes) > 1:
        sizes = " and ".join(map(str, sorted(visit.sizes)))
        return f"it is used with inputs of different sizes, {sizes}; use a module of its own for each size"
    if parametrize.is_parametrized(conv) or not isinstance(conv._parameters.get("weight"), nn.Parameter):
        return "its weight is parametrized (weight_norm, spectral_norm, ...); remove the parametrization first"
    if owners[id(conv._parameters["weight"])] > 1:
        return "its weight is tied to another module's; untie them first"
    if owners[id(conv._parameters.get("bias"))] > 1:
        return "its bias is tied to another module's; untie them first"
    if visit.used_directly:
        return "its weight is also used directly, outside of the module; call the module instead"
    base = next(c for c in CONVOLUTIONS if isinstance(conv, c))
    if type(conv).forward is not base.forward or type(conv)._conv_forward is not base._conv_forward:
        return f"{type(conv).__name__} computes in a way of its own; use a plain {base.__name__}"
    return None


def _run(model: nn.Module, sample_input: Any, visits: dict[str, Visit], *, training: bool) -> None:
    arguments, keywords = _as_call(sample_input)
    watch = _DirectUses(model, visits)
    with ExitStack() as stack:
        stack.enter_context(_untouched(model))
        for visit in visits.values():
            for handle in _hooks(visit, watch):
                stack.callback(handle.remove)
        if not training:
            model.eval()
        stack.enter_context(watch)
        model(*arguments, **keywords)


def two_of_each(sample_input: Any) -> Any:
    """The sample with every batch of one doubled: a batch of one hides how its numbers lie in memory."""
    return tree_map_only(Tensor, lambda t: torch.cat([t, t]) if t.dim() and len(t) == 1 else t, sample_input)


def _as_call(sample_input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(sample_input, Tensor):
        return (sample_input,), {}
    if isinstance(sample_input, (tuple, list)) and any(isinstance(value, Tensor) for value in sample_input):
        return tuple(sample_input), {}
    if isinstance(sample_input, dict):
        return (), sample_input
    raise TypeError(
        "sample_input is a tensor as the model takes it, a tuple of positional or a dict of keyword arguments, "
        f"not {sample_input!r:.80}"
    )


def _hooks(visit: Visit, watch: "_DirectUses") -> Iterator[Any]:
    axes = len(visit.module.kernel_size)  # type: ignore[arg-type]

    def before(module: nn.Module, inputs: tuple[Tensor, ...], keywords: dict[str, Tensor]) -> None:
        x = inputs[0] if inputs else keywords["input"]
        visit.sizes.add(tuple(x.shape[-axes:]))
        watch.calls += 1
        visit.first_call = watch.calls if visit.first_call < 0 else visit.first_call
        watch.inside = True

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        watch.inside = False

    yield visit.module.register_forward_pre_hook(before, with_kwargs=True)
    yield visit.module.register_forward_hook(after)


class _DirectUses(TorchFunctionMode):
    """Notices convolutions that are computed through ``torch.nn.functional`` instead of a module."""

    def __init__(self, model: nn.Module, visits: dict[str, Visit]) -> None:
        super().__init__()
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.owners = {id(v.module._parameters.get("weight")): v for v in visits.values()}
        self.inside, self.calls = False, 0

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.inside and isinstance(result, Tensor):
            given = [*args, *(kwargs or {}).values()]
            used = [self.owners[id(value)] for value in given if id(value) in self.owners]
            for visit in used:
                visit.used_directly = True
            if func in FUNCTIONS and not used:
                name = next((self.names[id(value)] for value in given if id(value) in self.names), "a computed weight")
                warnings.warn(f"left as it is, since it is used directly through {func.__name__}: {name}", stacklevel=2)
        return result


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Restore the buffers, the modes and the random state."""
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
