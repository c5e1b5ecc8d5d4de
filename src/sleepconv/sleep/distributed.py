"""Sleep where the neurons of a grid lie on several processes (FSDP2).

FSDP2 (``torch.distributed.fsdp.fully_shard``) deals out the rows of every weight. Instant sharing only exchanges the
sums of each grid; for the other rules the whole model is gathered. Under DDP every process holds all weights.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from sleepconv.functional.sharing import grid_sums, neurons_per_grid, set_grids_, share_weights_

FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


@torch.no_grad()
def share_(
    weight: Float[Tensor, "*positions_and_filter"], grids: Int64[Tensor, "*positions"]
) -> Float[Tensor, "*positions_and_filter"]:
    r"""``share_weights_``, also for a weight whose rows lie on several processes, which then all must call it.

    .. math:: w_i \leftarrow \frac{1}{|G(i)|} \sum_{ranks} \sum_{j \in G(i)\ on\ rank} w_j

    >>> share_(torch.tensor([[1.0], [10.0], [3.0], [20.0]]), torch.tensor([0, 1, 0, 1])).flatten().tolist()
    [2.0, 15.0, 2.0, 15.0]
    """
    if not is_distributed(weight):
        return share_weights_(weight, grids)
    mesh_axis = _axis_with_rows(weight)
    if mesh_axis is None:
        share_weights_(_local(weight), grids)
    else:
        _share_rows_(weight, grids, mesh_axis)
    return weight


@contextmanager
def gathered(layers: Mapping[str, nn.Module], model: nn.Module) -> Iterator[None]:
    """Gather the whole model, as if it were on one process; at the end deal out what these layers learned.

    Every process has all parameters meanwhile and can run the model by itself. Where processes learned different
    weights (from random patterns, say), those of the first process count. After an exception the dealt-out weights are
    as they were before. A model on one process is left alone.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> layer = LocallyConnected1d(1, 1, 3, input_size=9)
    >>> with gathered({"": layer}, layer):
    ...     type(layer.weight)
    <class 'torch.nn.parameter.Parameter'>
    """
    dealt_out: dict[str, Any] = {name: layer.weight for name, layer in layers.items() if is_distributed(layer.weight)}
    check_placements(layers)
    with _whole_parameters(model), _hooks_of_torch_silenced(model):
        yield
        learned: dict[str, Any] = {name: layers[name].weight for name in dealt_out}
    parts = {name: dealt_out_like(weight, learned[name].detach()) for name, weight in dealt_out.items()}
    with torch.no_grad():
        for name, weight in dealt_out.items():
            weight.copy_(parts[name])


def check_placements(layers: Mapping[str, nn.Module]) -> None:
    """Raise a ValueError if a layer's weights are dealt out in a way that sleep does not know."""
    for layer in layers.values():
        if is_distributed(layer.weight):
            _axis_with_rows(layer.weight)


def whole_weight(layer: nn.Module) -> Tensor:
    """All of a layer's weights, gathered if they lie on several processes, which then all must call it.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> whole_weight(LocallyConnected1d(1, 2, 3, input_size=9)).shape
    torch.Size([7, 2, 1, 3])
    """
    weight: Any = layer.weight
    return _gather(weight) if is_distributed(weight) else weight.detach()


@torch.no_grad()
def agree_(layers: Mapping[str, nn.Module], model: nn.Module) -> None:
    """Give all replicas of a DDP model the first one's weights; any other model is left alone.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> layer = LocallyConnected1d(1, 1, 3, input_size=9)
    >>> agree_({"": layer}, layer)
    """
    if isinstance(model, nn.parallel.DistributedDataParallel):
        first = torch.distributed.get_global_rank(model.process_group, 0)
        for layer in layers.values():
            torch.distributed.broadcast(layer.weight.detach(), first, group=model.process_group)  # type: ignore


def reshard_(model: nn.Module) -> None:
    """Make the dealt-out weights of an FSDP2 model the current ones; any other model is left alone.

    FSDP2 may keep gathered copies after a forward pass, and what is changed in those is lost.

    >>> reshard_(nn.Linear(1, 1))
    """
    if "torch.distributed.fsdp" in sys.modules:
        for module in model.modules():
            if isinstance(module, torch.distributed.fsdp.FSDPModule):
                module.reshard()


def is_distributed(weight: object) -> bool:
    """Whether the weight is a ``DTensor``; without importing them, which takes a second.

    >>> is_distributed(torch.zeros(3))
    False
    """
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(weight, tensors.DTensor)


def _share_rows_(weight: Any, grids: Tensor, mesh_axis: int) -> None:
    """Add up this process's rows, then the sums of all processes."""
    neurons = neurons_per_grid(weight, grids)
    local, rows = _local(weight), _rows_here(weight, grids, mesh_axis)
    if len(rows):
        sums, _ = grid_sums(local, rows, number=len(neurons))
    else:
        dtype = torch.promote_types(weight.dtype, torch.float32)
        sums = local.new_zeros((len(neurons), *weight.shape[grids.dim() :]), dtype=dtype)
    torch.distributed.all_reduce(sums, group=weight.device_mesh.get_group(mesh_axis))
    sums /= neurons.to(sums.device).reshape([-1] + [1] * (sums.dim() - 1))
    if len(rows):
        set_grids_(local, rows, sums)


def _local(weight: Any) -> Tensor:
    return weight.to_local()


def _axis_with_rows(weight: Any) -> int | None:
    """The axis of the device mesh over which the rows are dealt out; the weight is replicated over the others."""
    from torch.distributed.tensor import Replicate, Shard

    dealing = [axis for axis, place in enumerate(weight.placements) if not isinstance(place, Replicate)]
    if len(dealing) > 1 or any(type(weight.placements[a]) is not Shard or weight.placements[a].dim for a in dealing):
        raise ValueError(
            f"the weight of a sleeping layer is placed as {weight.placements}; sleep knows weights that are dealt out "
            "by axis 0 over one axis of the mesh, Shard(0), and replicated over the others: what fully_shard does "
            "by default"
        )
    return dealing[0] if dealing else None


def _rows_here(weight: Any, grids: Tensor, mesh_axis: int) -> Tensor:
    """The part of the grids that belongs to this process; ``Shard`` deals out rows as ``torch.chunk`` does."""
    parts = grids.chunk(weight.device_mesh.size(mesh_axis))
    rank = weight.device_mesh.get_local_rank(mesh_axis)
    return parts[rank] if rank < len(parts) else grids[:0]


@torch.no_grad()
def _gather(tensor: Any) -> Tensor:
    return tensor.full_tensor().clone()  # on one process it would be the dealt-out part itself


@contextmanager
def _whole_parameters(model: nn.Module) -> Iterator[None]:
    dealt_out: list[tuple[nn.Module, str, Any]] = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if is_distributed(parameter)
    ]
    whole = {parameter: nn.Parameter(_gather(parameter), parameter.requires_grad) for _, _, parameter in dealt_out}
    try:
        for module, name, parameter in dealt_out:
            module._parameters[name] = whole[parameter]
        yield
    finally:
        for module, name, parameter in dealt_out:
            module._parameters[name] = parameter


@contextmanager
def _hooks_of_torch_silenced(model: nn.Module) -> Iterator[None]:
    """Leave out the hooks that gather parameters, and deal them out again, around each forward pass."""
    before = [(module, name, getattr(module, name)) for module in model.modules() for name in FORWARD_HOOKS]
    try:
        for module, name, hooks in before:
            users = [(key, hook) for key, hook in hooks.items() if not _is_of_torch(hook)]
            setattr(module, name, type(hooks)(users))
        yield
    finally:
        for module, name, hooks in before:
            setattr(module, name, hooks)


def _is_of_torch(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.")


def dealt_out_like(part: Any, whole: Tensor) -> Tensor:
    """Deal out a whole tensor as ``part`` is, if that lies on several processes; otherwise return it.

    >>> dealt_out_like(torch.zeros(2), torch.ones(2)).tolist()
    [1.0, 1.0]
    """
    if not is_distributed(part) or is_distributed(whole):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, part.device_mesh, part.placements)
