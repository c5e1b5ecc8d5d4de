"""What a model needs in memory, known before anything is allocated."""

import copy
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from sleepconv.functional.sizes import check_int
from sleepconv.memory import machine_memory
from sleepconv.nn.dry_run import as_call

_SHARE = 0.5  # of the machine's memory, above which a conversion warns
_COPIES = 4  # weights, gradients and AdamW's two moments


@dataclass(frozen=True)
class LayerMemory:
    """The bytes that one layer needs in training.

    Attributes:
        name: the layer's name in the model.
        weights: its parameters.
        gradient: their gradients; 0 for frozen ones.
        moments: what the optimizer keeps for each of them.
        activations: what autograd keeps of the layer's inputs and outputs until the backward pass.

    >>> LayerMemory("conv1", weights=4, gradient=4, moments=8, activations=100).total
    116
    """

    name: str
    weights: int
    gradient: int
    moments: int
    activations: int

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradient + self.moments + self.activations


def memory_table(
    model: nn.Module, sample_input: Tensor | tuple[Any, ...] | dict[str, Any], *, moments: int = 2
) -> list[LayerMemory]:
    """Return what each layer of a model needs in memory for training on a batch like the sample.

    The model runs forward once, in training mode, on meta tensors, which have a size but no values: nothing is
    allocated. It is measured as it is. To plan a conversion, build the model on the meta device and convert it there,
    as in the example; ``sleepconv size`` does that. Memory that the forward pass of a layer needs only for a moment is
    not counted.

    Args:
        model: a model, on any device; it is not changed.
        sample_input: one batch as the model will see it (a tuple: positional arguments; a dict: keyword arguments).
        moments: how many numbers the optimizer keeps per weight: 2 for Adam and AdamW, 1 for momentum, 0 for SGD.

    Returns:
        One entry for each module that has parameters of its own or keeps activations, in the model's order.

    >>> from sleepconv import to_locally_connected
    >>> with torch.device("meta"):
    ...     images, conv = torch.empty(1, 64, 128, 128), nn.Conv2d(64, 64, 3, padding=1, bias=False)
    >>> (layer,) = memory_table(to_locally_connected(conv, images), images)
    >>> layer.weights, round(layer.total / 1e9, 1)
    (2415919104, 9.7)
    """
    check_int("moments", moments, least=0)
    bare = _on_meta(model).train()
    sample = tree_map_only(Tensor, lambda t: t.detach().to("meta"), sample_input)
    kept = _Kept(bare)
    kept.run(sample)
    table = []
    for name, module in bare.named_modules():
        own = list(module.parameters(recurse=False))
        weights, learned = _bytes(own), _bytes([p for p in own if p.requires_grad])
        if own or kept.activations.get(module):
            found = kept.activations.get(module, 0)
            table.append(LayerMemory(name, weights, learned, moments * learned, found))
    return table


def too_large(sizes: Mapping[str, int], like: Any) -> str | None:
    """Say so if training weights of these bytes, on the device of this tensor, needs more than half of its memory."""
    device = like.device
    available = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else machine_memory()
    weights = sum(sizes.values())
    if available is None or _COPIES * weights <= _SHARE * available:
        return None
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
    named = ", ".join(f"{name} ({_COPIES * sizes[name] / 1e9:.1f} GB)" for name in largest)
    return (
        f"the locally connected layers need {_COPIES * weights / 1e9:.1f} GB with gradients and AdamW's moments "
        f"({weights / 1e9:.1f} GB for the weights alone), and there are {available / 1e9:.1f} GB; most is in {named}. "
        "Leave large layers as they are (`keep_first`, `exclude`), or give them a larger stride, more groups or fewer "
        "channels; sleepconv.nn.memory_table and `sleepconv size` show each layer without allocating it"
    )


def _on_meta(model: nn.Module) -> Any:
    """Return a copy of the model without memory."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = buffer.detach().to("meta")
    return copy.deepcopy(model, memo)


def _bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class _Kept:
    """The tensors that autograd keeps, each counted once, where it is first kept."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.activations: dict[nn.Module, int] = {}
        self.storages = {t.untyped_storage()._cdata: t for t in [*model.parameters(), *model.buffers()]}
        self.running: list[nn.Module] = [model]

    def run(self, sample_input: Any) -> None:
        """Run the model forward and note what is kept."""
        arguments, keywords = as_call(sample_input)
        with ExitStack() as stack:
            for module in self.model.modules():
                stack.callback(module.register_forward_pre_hook(self._enter).remove)
                stack.callback(module.register_forward_hook(self._leave, always_call=True).remove)
            stack.enter_context(torch.device("meta"))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor))
            self.model(*arguments, **keywords)

    def _enter(self, module: nn.Module, *_: Any) -> None:
        self.running.append(module)

    def _leave(self, *_: Any) -> None:
        self.running.pop()

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = tensor  # so that the storage lives, and its number is not used again
            module = self.running[-1]
            self.activations[module] = self.activations.get(module, 0) + storage.nbytes()
        return tensor
