"""A layer's neurons as pools that share: the neurons of one lateral grid, and what they see of a repeated pattern."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional.measures import weight_snr
from sleepconv.functional.sizes import padding_sides
from sleepconv.kernels.lattice import Index, grid_indices
from sleepconv.sleep.layers import Border, sharing_grids


@dataclass
class Pool:
    """The neurons of one grid, as matrices that the Hebbian rule works on; groups stand for the channels' groups."""

    index: list[Index]
    phase: tuple[int, ...]
    weight: Float[Tensor, "groups neurons channels inputs"]

    @property
    def neurons(self) -> int:
        """How many neurons of each channel share."""
        return self.weight.shape[1]

    def negative_log_snr(self) -> float:
        """−log SNR of the pool (Eq. 6); −∞ where all its weights agree."""
        return -float(weight_snr(self.weight.movedim(1, 0).flatten(1)).log())


class LayerPools:
    """All pools of a layer, copies of its weights, ``sharing`` those of more than one neuron."""

    def __init__(self, layer: Any, *, period: int | None = None, border: Border = "all") -> None:
        self.layer = layer
        self.kernel: tuple[int, ...] = getattr(layer, "kernel_size", ())
        self.stride: tuple[int, ...] = getattr(layer, "stride", ())
        self.dilation: tuple[int, ...] = getattr(layer, "dilation", ())
        self.groups: int = getattr(layer, "groups", 1)
        self.grids = sharing_grids(layer, border, period)
        self.period = self._pattern_period(period if self.kernel else None)
        if layer.weight.dim() == self.grids.dim():
            raise ValueError(
                f"the weight of shape {tuple(layer.weight.shape)} has an axis for each of the neurons' positions, but "
                "none for their filters; give (*positions, channels, inputs)"
            )
        self.inputs = layer.weight[(0,) * self.grids.dim()][0].numel()
        self.pools = [self._pool(indices) for _, indices in grid_indices(self.grids)]
        self.sharing = [pool for pool in self.pools if pool.neurons > 1]

    @property
    def in_channels(self) -> int:
        """Channels (or features) of the input."""
        return self.layer.in_channels if self.kernel else self.inputs

    def _pattern_period(self, period: int | None) -> tuple[int, ...]:
        if period is not None:
            return (period,) * len(self.kernel)
        whole = (k * d for k, d in zip(self.kernel, self.dilation, strict=True))
        # What a grid's neurons share is the phase modulo the period of lateral_grids, of which k·d is a multiple.
        return tuple(whole)

    def _pool(self, indices: list[Index]) -> Pool:
        filters = torch.cat([self.layer.weight.detach()[i].flatten(0, self.grids.dim() - 1) for i in indices])
        filters = filters.to(torch.promote_types(filters.dtype, torch.float32))
        weight = filters.reshape(len(filters), self.groups, -1, self.inputs).transpose(0, 1).contiguous()
        return Pool(indices, tuple(axis.start for axis in indices[0]), weight)

    def windows(
        self, pool: Pool, cell: Float[Tensor, "patterns in_channels *period"]
    ) -> Float[Tensor, "groups patterns inputs"]:
        """What the pool's neurons see of patterns that repeat the cell for ever, also in the padding."""
        seen: Any = cell
        sides = padding_sides(self.layer.padding, self.kernel, self.stride, self.dilation) if self.kernel else ()
        for axis, k in enumerate(self.kernel):
            first = pool.phase[axis] * self.stride[axis] - sides[axis][0]
            places = (first + torch.arange(k, device=cell.device) * self.dilation[axis]) % cell.shape[2 + axis]
            seen = seen.index_select(2 + axis, places)
        return seen.reshape(len(cell), self.groups, self.inputs).transpose(0, 1).contiguous()

    def respond(
        self, pool: Pool, windows: Float[Tensor, "groups patterns inputs"]
    ) -> Float[Tensor, "patterns channels"]:
        """The pool's equalised response: lateral connections give every neuron the mean one."""
        mean = pool.weight.mean(dim=1)
        answer = torch.bmm(windows, mean.mT).transpose(0, 1).flatten(1)
        bias = getattr(self.layer, "bias", None)
        if bias is None or bias.dim() == 1:
            return answer if bias is None else answer + bias
        return answer + torch.cat([bias[:, *i].flatten(1) for i in pool.index], dim=1).mean(1)

    def learned_weight(self) -> Tensor:
        """The pools' weights as the layer holds its own, rounded to their dtype."""
        weight = torch.empty_like(self.layer.weight, requires_grad=False)
        for pool in self.pools:
            filters = pool.weight.transpose(0, 1).reshape(pool.neurons, *weight.shape[self.grids.dim() :])
            counts = [self.grids[i].numel() for i in pool.index]
            for index, part in zip(pool.index, filters.split(counts), strict=True):
                weight[index].copy_(part.reshape(weight[index].shape))
        return weight


def condition_number(windows: Float[Tensor, "patterns inputs"]) -> float:
    """Largest over least variance of the inputs; infinite if they do not span all directions."""
    if len(windows) < windows.shape[1]:
        return float("inf")
    values = torch.linalg.svdvals(windows.double())
    return float((values[0] / values[-1]).square())


def one_period(shapes: Mapping[str, Sequence[int]], strides: Mapping[str, Sequence[int]]) -> int:
    """The period that the layer-by-layer sleep of these kernels and strides has; a ValueError names what does not fit.

    >>> one_period({"a": (3, 3), "shortcut": (1, 1)}, {"a": (2, 2), "shortcut": (2, 2)})
    3
    """
    sizes = {name: set(kernel) - {1} for name, kernel in shapes.items()}
    periods = set().union(*sizes.values())
    instead = 'use patterns="one_grid" or "independent", or Instant(), which need no common period'
    if len(periods) > 1:
        listed = ", ".join(f"{name} {tuple(shapes[name])}" for name, size in sizes.items() if size)
        raise ValueError(
            f"patterns pass from layer to layer only if all filters have one size, not {listed}; {instead}"
        )
    period = next(iter(periods), 1)
    clashing = [name for name, stride in strides.items() if any(_common_factor(s, period) for s in stride)]
    if clashing:
        raise ValueError(
            f"the stride of {', '.join(clashing)} has a factor in common with the period {period}, so that patterns "
            f"would lose it there; {instead}"
        )
    return period


def _common_factor(a: int, b: int) -> bool:
    return torch.gcd(torch.tensor(a), torch.tensor(b)).item() > 1
