"""Sleep on several processes: DDP, where each holds all weights, and FSDP2, where each holds some rows of every weight.

FSDP2 (``torch.distributed.fsdp.fully_shard``) turns every weight into a ``DTensor``. A rule that ``works_on_shards``
(``Instant``: processes exchange only the sums of each grid) gets these; for all others the whole model is gathered.
``full_tensor`` and ``sharded_like`` are the package's only ways from shards to a whole tensor and back.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from sleepconv.functional.sharing import grid_sums, neurons_per_grid, set_grids_, share_weights_

_FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


def is_distributed(tensor: object) -> bool:
    """Whether the tensor is a ``DTensor``; does not import that module, which takes a second.

    >>> is_distributed(torch.zeros(3))
    False
    """
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


@torch.no_grad()
def full_tensor(tensor: Any) -> Tensor:
    """Return all of a tensor: gather a ``DTensor``, for which every process must call this, and detach any other.

    >>> full_tensor(torch.ones(2)).tolist()
    [1.0, 1.0]
    """
    return tensor.full_tensor() if is_distributed(tensor) else tensor.detach()


def sharded_like(full: Tensor, like: Any) -> Tensor:
    """Shard a full tensor as ``like`` is sharded; return it as it is if there is nothing to shard.

    >>> sharded_like(torch.ones(2), torch.zeros(2)).tolist()
    [1.0, 1.0]
    """
    if not is_distributed(like) or is_distributed(full):
        return full
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full, like.device_mesh, like.placements)


@torch.no_grad()
def share_(
    weight: Float[Tensor, "*positions_and_filter"], grids: Int64[Tensor, "*positions"]
) -> Float[Tensor, "*positions_and_filter"]:
    r"""Call ``share_weights_``, or share a ``DTensor`` in place, for which every process must call this.

    .. math:: w_i \leftarrow \frac{1}{|G(i)|} \sum_{ranks} \sum_{j \in G(i)\ on\ rank} w_j

    >>> share_(torch.tensor([[1.0], [10.0], [3.0], [20.0]]), torch.tensor([0, 1, 0, 1])).flatten().tolist()
    [2.0, 15.0, 2.0, 15.0]
    """
    if not is_distributed(weight):
        return share_weights_(weight, grids)
    sharded: Any = weight
    mesh_axis = _axis_of_shards(sharded)
    if mesh_axis is None:
        share_weights_(sharded.to_local(), grids)
    else:
        _share_rows_(sharded, grids, mesh_axis)
    return weight


def check_placements(layers: Mapping[str, nn.Module]) -> None:
    """Raise a ValueError if a layer's weight is sharded in a way that sleep does not support."""
    for layer in layers.values():
        if is_distributed(layer.weight):
            _axis_of_shards(layer.weight)


def reshard_(model: nn.Module) -> None:
    """Free the gathered weights of an FSDP2 model; any other model is left alone.

    FSDP2 may keep gathered copies after a forward pass, and changes of those would be lost.

    >>> reshard_(nn.Linear(1, 1))
    """
    if "torch.distributed.fsdp" in sys.modules:
        for module in model.modules():
            if isinstance(module, torch.distributed.fsdp.FSDPModule):
                module.reshard()


@contextmanager
def gathered(layers: Mapping[str, nn.Module], model: nn.Module) -> Iterator[None]:
    """Gather all parameters of the model on every process; on exit, shard what these layers have learned.

    Meanwhile every process can run the model by itself. If processes learned different weights (from random patterns,
    say), those of the first process count. After an exception the sharded weights are as they were before. A model that
    is not sharded is left alone.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> layer = LocallyConnected1d(1, 1, 3, input_size=9)
    >>> with gathered({"": layer}, layer):
    ...     type(layer.weight)
    <class 'torch.nn.parameter.Parameter'>
    """
    sharded: dict[str, Any] = {name: layer.weight for name, layer in layers.items() if is_distributed(layer.weight)}
    check_placements(layers)
    with _full_parameters(model), _without_hooks_of_torch(model):
        yield
        learned: dict[str, Any] = {name: layers[name].weight for name in sharded}
    parts = {name: sharded_like(learned[name].detach(), weight) for name, weight in sharded.items()}
    with torch.no_grad():
        for name, weight in sharded.items():
            weight.copy_(parts[name])


@torch.no_grad()
def agree_(layers: Mapping[str, nn.Module], model: nn.Module) -> None:
    """Give all replicas of a DDP model the weights of the first; any other model is left alone.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> layer = LocallyConnected1d(1, 1, 3, input_size=9)
    >>> agree_({"": layer}, layer)
    """
    if isinstance(model, nn.parallel.DistributedDataParallel):
        first = torch.distributed.get_global_rank(model.process_group, 0)
        for layer in layers.values():
            torch.distributed.broadcast(layer.weight.detach(), first, group=model.process_group)  # type: ignore


def _share_rows_(weight: Any, grids: Tensor, mesh_axis: int) -> None:
    """Add up the rows of this process, then the sums of all processes."""
    neurons = neurons_per_grid(weight, grids)
    local, rows = weight.to_local(), _rows_here(weight, grids, mesh_axis)
    if len(rows):
        sums, _ = grid_sums(local, rows, number=len(neurons))
    else:
        dtype = torch.promote_types(weight.dtype, torch.float32)
        sums = local.new_zeros((len(neurons), *weight.shape[grids.dim() :]), dtype=dtype)
    torch.distributed.all_reduce(sums, group=weight.device_mesh.get_group(mesh_axis))
    sums /= neurons.to(sums.device).reshape([-1] + [1] * (sums.dim() - 1))
    if len(rows):
        set_grids_(local, rows, sums)


def _rows_here(weight: Any, grids: Tensor, mesh_axis: int) -> Tensor:
    """Return the grids of this process's rows; ``Shard`` splits rows as ``torch.chunk`` does."""
    parts = grids.chunk(weight.device_mesh.size(mesh_axis))
    rank = weight.device_mesh.get_local_rank(mesh_axis)
    return parts[rank] if rank < len(parts) else grids[:0]


def _axis_of_shards(weight: Any) -> int | None:
    """Return the axis of the device mesh over which the rows are sharded; over the others they are replicated."""
    from torch.distributed.tensor import Replicate, Shard

    sharding = [axis for axis, place in enumerate(weight.placements) if not isinstance(place, Replicate)]
    if len(sharding) > 1 or any(type(weight.placements[a]) is not Shard or weight.placements[a].dim for a in sharding):
        raise ValueError(
            "the weight of a sleeping layer must be sharded by axis 0, Shard(0), over at most one axis of the mesh and "
            f"replicated over the others, which is what fully_shard does by default, got {weight.placements}"
        )
    return sharding[0] if sharding else None


@contextmanager
def _full_parameters(model: nn.Module) -> Iterator[None]:
    sharded: list[tuple[nn.Module, str, Any]] = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if is_distributed(parameter)
    ]
    # On a mesh of one process the full tensor is the shard itself, hence the clones.
    full = {p: nn.Parameter(full_tensor(p).clone(), p.requires_grad) for _, _, p in sharded}
    try:
        for module, name, parameter in sharded:
            module._parameters[name] = full[parameter]
        yield
    finally:
        for module, name, parameter in sharded:
            module._parameters[name] = parameter


@contextmanager
def _without_hooks_of_torch(model: nn.Module) -> Iterator[None]:
    """Disable the hooks that gather and reshard parameters around each forward pass."""
    before = [(module, name, getattr(module, name)) for module in model.modules() for name in _FORWARD_HOOKS]
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
