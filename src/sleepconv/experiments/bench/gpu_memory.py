"""The memory that training needs on a GPU, computed on tensors that have a size but no values; nothing is measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from sleepconv.experiments.results.sheets import Sheet
from sleepconv.functional.sharing import neurons_per_grid
from sleepconv.models import resnet18
from sleepconv.nn import to_locally_connected
from sleepconv.sleep.layers import SleepingLayer

_FLOAT32, _BFLOAT16 = 4, 2
_NOTES = [
    "Computed, not measured: parameters, their gradients, the optimizer's state, and what autograd keeps until the "
    "backward pass (with autocast also the weights in bfloat16). What one operation needs for a moment, and the "
    "allocator's gaps, come on top.",
    "Shared moments: `sleepconv.optim.CompactAdamW`, which shares weights in the same pass. Moments in bfloat16: its "
    "`moments_dtype`. Checkpointed blocks: `torch.utils.checkpoint` around each residual block, which costs one more "
    "forward pass.",
]


@dataclass(frozen=True)
class Memory:
    """Bytes of each kind.

    >>> Memory(4, 4, 8, 100).total
    116
    """

    weights: int
    gradients: int
    moments: int
    activations: int

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradients + self.moments + self.activations


def memory_sheet(batch: int = 256, side: int = 224) -> Sheet:
    """Return the memory of the half-width ResNet18 at ImageNet's size, with each of the options that reduce it."""
    with torch.device("meta"):
        images, convolutional = torch.empty(batch, 3, side, side), resnet18(width=32)
        local = to_locally_connected(convolutional, images[:2])
    half: dict[str, Any] = {"images": images, "autocast": True}
    rows = {
        "convolutional, float32": training_memory(convolutional, images),
        "locally connected, float32": training_memory(local, images),
        "convolutional, bfloat16 responses": training_memory(convolutional, **half),
        "locally connected, bfloat16 responses": training_memory(local, **half),
        "… and moments in bfloat16": training_memory(local, **half, moment_bytes=_BFLOAT16),
        "… or shared moments": training_memory(local, **half, shared=True),
        "… and checkpointed blocks": training_memory(local, **half, shared=True, blocks=residual_blocks(local)),
    }
    cells = [[name, *(f"{value / 1e9:.2f}" for value in _columns(memory))] for name, memory in rows.items()]
    title = f"Memory of training the half-width ResNet18, {side}×{side} pixels, batch {batch}, in GB (computed)"
    return Sheet(title, ["", "weights", "gradients", "moments", "kept for backward", "total"], cells, _NOTES)


def _columns(memory: Memory) -> list[int]:
    return [memory.weights, memory.gradients, memory.moments, memory.activations, memory.total]


def training_memory(
    model: nn.Module,
    images: Tensor,
    *,
    autocast: bool = False,
    moment_bytes: int = _FLOAT32,
    shared: bool = False,
    blocks: list[nn.Module] | None = None,
) -> Memory:
    """Return the memory of AdamW on this model; it and the images lie on the meta device.

    Args:
        model: the network.
        images: one batch.
        autocast: compute responses in bfloat16.
        moment_bytes: of one number of AdamW's two moments.
        shared: keep moments for one filter per grid only.
        blocks: modules that are computed again in the backward pass, instead of keeping what they need for it.
    """
    parameters = sum(p.numel() for p in model.parameters())
    # Autocast works on fake tensors, which claim to be on the CPU, but not on the meta device.
    with FakeTensorMode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        tensors = {name: _fake(t) for name, t in [*model.named_parameters(), *model.named_buffers()]}
        kept = _kept(tensors, lambda: functional_call(model, tensors, (_fake(images),)))
        if blocks:
            kept = _kept_outside(model, tensors, _fake(images), blocks)
    moments = 2 * (parameters - (_saved_by_sharing(model) if shared else 0))
    return Memory(_FLOAT32 * parameters, _FLOAT32 * parameters, moment_bytes * moments, kept)


def residual_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks of a residual network."""
    stages: Any = model.stages
    return [block for stage in stages for block in stage]


def _saved_by_sharing(model: nn.Module) -> int:
    layers: list[Any] = [module for module in model.modules() if isinstance(module, SleepingLayer)]
    saved = 0
    for layer in layers:
        positions = layer.grids.numel()
        grids = len(neurons_per_grid(layer.weight, layer.grids))
        saved += layer.weight.numel() // positions * (positions - grids)
    return saved


def _fake(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, requires_grad=tensor.requires_grad, device="cpu")


def _kept(tensors: Mapping[str, Tensor], run: Callable[[], object]) -> int:
    """Return the bytes that autograd keeps of a forward pass, each storage counted once, without these tensors."""
    storages = {tensor.untyped_storage()._cdata: 0 for tensor in tensors.values()}
    alive = []

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in storages:
            storages[storage._cdata] = storage.nbytes()
            alive.append(storage)  # or another would get its number
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run()
    return sum(storages.values())


def _kept_outside(model: nn.Module, tensors: dict[str, Tensor], images: Tensor, blocks: list[nn.Module]) -> int:
    """Return what is kept if these blocks are computed again: what they get, and the most that one of them adds."""
    largest = 0

    def again(block: nn.Module, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            nonlocal largest
            largest = max(largest, _kept({**tensors, "input": x}, lambda: forward(x.detach())))
            return checkpoint(forward, x, use_reentrant=True)

        return run

    before = [block.forward for block in blocks]
    try:
        for block, forward in zip(blocks, before, strict=True):
            block.forward = again(block, forward)
        return _kept(tensors, lambda: functional_call(model, tensors, (images.requires_grad_(),))) + largest
    finally:
        for block in blocks:
            del block.forward
