"""The weights of a network that has slept, with one filter per grid instead of one per neuron.

After a sleep the neurons of a grid have the same filter, bit for bit. Then one filter per grid is kept, under the
weight's name followed by ``@grids``; a locally connected ResNet20 shrinks from 163 MB to 10 MB.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sleepconv.sleep.distributed import full_tensor, sharded_like
from sleepconv.sleep.layers import SleepingLayer, has_assigned_grids, unwrapped

_SHARED = "@grids"
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def compact_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's ``state_dict``, with one filter per grid where the neurons of each grid agree to the bit.

    Save what it returns as you would save a ``state_dict``: after a sleep it is as much smaller as a grid has neurons.
    Names are those of the model inside DDP and ``torch.compile``; weights that FSDP2 has sharded are gathered.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> from sleepconv.sleep import Instant
    >>> layer = Instant()(LocallyConnected1d(1, 1, 3, input_size=32))
    >>> {name: tuple(value.shape) for name, value in compact_state(layer).items()}
    {'bias': (1,), 'weight@grids': (3, 1, 1, 3)}
    """
    model = unwrapped(model)
    state = {name: full_tensor(value) for name, value in model.state_dict().items()}
    for name, grids in _grids_of_weights(model).items():
        weight = state[name]
        filters = weight.flatten(0, grids.dim() - 1)[_first_of_each_grid(grids)]
        if _same_bits(filters[grids.to(filters.device)], weight):
            state[name + _SHARED] = filters
            del state[name]
    return state


@torch.no_grad()
def load_compact_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load the weights that ``compact_state`` returned, exactly.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> from sleepconv.sleep import Instant
    >>> asleep, other = (LocallyConnected1d(1, 1, 3, input_size=32) for _ in range(2))
    >>> asleep = Instant()(asleep)
    >>> load_compact_state(other, compact_state(asleep))
    >>> torch.equal(other.weight, asleep.weight)
    True
    """
    model = unwrapped(model)
    given = dict(state)
    for name, grids in _grids_of_weights(model).items():
        if name + _SHARED in given:
            given[name] = given.pop(name + _SHARED)[grids]
    own = model.state_dict()
    for problem, names in (("lacks", own.keys() - given.keys()), ("has no place for", given.keys() - own.keys())):
        if names:
            raise ValueError(f"these weights are of another network: it {problem} {', '.join(sorted(names)[:5])}")
    for name, value in own.items():
        if value.shape != given[name].shape:
            shapes = f"{tuple(given[name].shape)}, not {tuple(value.shape)}"
            raise ValueError(f"these weights are of another network: {name} is {shapes}")
        value.copy_(sharded_like(given[name], value))


def _first_of_each_grid(grids: Tensor) -> Tensor:
    """Return the first neuron of each grid, as an index into the flattened grids.

    >>> _first_of_each_grid(torch.tensor([0, 1, 0, 2, 1]))
    tensor([0, 1, 3])
    """
    flat = grids.flatten()
    places = torch.full((int(flat.max()) + 1,), len(flat))
    return places.scatter_reduce(0, flat, torch.arange(len(flat)), "amin")


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same bits: 0 and -0 differ, a NaN equals itself.

    >>> _same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    False
    """
    integers = _SAME_SIZE[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(integers), b.contiguous().view(integers))


def _grids_of_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the grids of each weight; not assigned ones, which another machine may have learned differently."""
    modules = ((name, module) for name, module in model.named_modules() if isinstance(module, SleepingLayer))
    layers = [(name, layer) for name, layer in modules if not has_assigned_grids(layer)]
    return {f"{name}.weight" if name else "weight": layer.grids.cpu() for name, layer in layers}
