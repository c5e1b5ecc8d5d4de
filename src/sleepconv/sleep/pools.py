"""A layer's neurons as pools: the neurons of one lateral grid, what they see of a repeated pattern, and answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional.grids import lateral_grids
from sleepconv.functional.measures import pooled_weight_snr, weight_snr
from sleepconv.functional.sizes import padding_sides
from sleepconv.kernels.lattice import Index, grid_indices
from sleepconv.sleep.layers import Border, driven_grids, has_assigned_grids


@dataclass
class Pool:
    """The neurons of one grid, as matrices for the Hebbian rule; ``groups`` are those of a grouped convolution."""

    index: list[Index]
    phase: tuple[int, ...]
    weight: Float[Tensor, "groups neurons channels inputs"]
    layer: Any = None

    @property
    def neurons(self) -> int:
        """Number of neurons of each channel that share."""
        return self.weight.shape[1]

    def negative_log_snr(self) -> float:
        """Return −log SNR of the pool (Eq. 6); −∞ where all its weights agree."""
        return -float(weight_snr(self.weight.movedim(1, 0).flatten(1)).log())

    def negative_log_pooled_snr(self) -> float:
        """Return log(Σ variance / Σ mean²) over all weights; unlike Eq. 6, a few that agree cannot hide the others."""
        return -float(pooled_weight_snr(self.weight.movedim(1, 0).flatten(1).double()).log())


class LayerPools:
    """All pools of a layer, with copies of its weights; ``sharing`` are those of more than one neuron."""

    def __init__(self, layer: Any, *, period: int | None = None, border: Border = "all") -> None:
        self.layer = layer
        self.kernel: tuple[int, ...] = getattr(layer, "kernel_size", ())
        self.stride: tuple[int, ...] = getattr(layer, "stride", ())
        self.dilation: tuple[int, ...] = getattr(layer, "dilation", ())
        self.groups: int = getattr(layer, "groups", 1)
        self.grids = driven_grids(layer, border, period)
        self.period = self._pattern_period(period if self.kernel else None)
        if self.kernel and has_assigned_grids(layer):
            self._check_same_view(period)
        if layer.weight.dim() == self.grids.dim():
            raise ValueError(
                "the weight must have the shape (*positions, channels, inputs), but has no axes for the filters "
                f"after those of the positions, got {tuple(layer.weight.shape)}"
            )
        self.inputs = layer.weight[(0,) * self.grids.dim()][0].numel()
        self.pools = [self._pool(indices) for _, indices in grid_indices(self.grids)]
        self.sharing = [pool for pool in self.pools if pool.neurons > 1]

    @property
    def in_channels(self) -> int:
        """Number of channels (or features) of the input."""
        return self.layer.in_channels if self.kernel else self.inputs

    def _pattern_period(self, period: int | None) -> tuple[int, ...]:
        if period is not None:
            return (period,) * len(self.kernel)
        # What a grid's neurons share is the phase modulo the period of lateral_grids, of which k·d is a multiple.
        return tuple(k * d for k, d in zip(self.kernel, self.dilation, strict=True))

    def _check_same_view(self, period: int | None) -> None:
        """Raise a ValueError if assigned grids join neurons that a repeated pattern reaches differently."""
        period = None if period is None else (period,) * len(self.kernel)  # type: ignore[assignment]
        views = lateral_grids(self.grids.shape, self.kernel, self.stride, self.dilation, period=period)
        for grid in self.grids.unique().tolist():
            if len(views[self.grids == grid].unique()) > 1:
                raise ValueError(
                    f"grid {grid} of the assigned grids joins neurons that see different patterns, which only "
                    "Instant() and Lateral() allow; use one of these, or `del layer.grids`"
                )

    def _pool(self, indices: list[Index]) -> Pool:
        filters = torch.cat([self.layer.weight.detach()[i].flatten(0, self.grids.dim() - 1) for i in indices])
        filters = filters.to(torch.promote_types(filters.dtype, torch.float32))
        weight = filters.reshape(len(filters), self.groups, -1, self.inputs).transpose(0, 1).contiguous()
        return Pool(indices, tuple(axis.start for axis in indices[0]), weight, self.layer)

    def windows(
        self, pool: Pool, cell: Float[Tensor, "patterns in_channels *period"]
    ) -> Float[Tensor, "groups patterns inputs"]:
        """Return what the pool's neurons see of patterns that repeat the cell everywhere, also in the padding."""
        seen: Any = cell
        sides = padding_sides(self.layer.padding, self.kernel, self.stride, self.dilation) if self.kernel else ()
        for axis, k in enumerate(self.kernel):
            first = pool.phase[axis] * self.stride[axis] - sides[axis][0]
            places = (first + torch.arange(k, device=cell.device) * self.dilation[axis]) % cell.shape[2 + axis]
            seen = seen.index_select(2 + axis, places)
        return seen.reshape(len(cell), self.groups, self.inputs).transpose(0, 1).contiguous()

    def own_windows(
        self, pool: Pool, activity: Float[Tensor, "patterns in_channels *size"]
    ) -> Float[Tensor, "groups neurons patterns inputs"]:
        """Return what each neuron of the pool sees where activity differs between the neurons of a grid.

        In the padding, each grid goes on with its mean activity.
        """
        seen = self._continued(activity)
        for axis, (k, stride, dilation) in enumerate(zip(self.kernel, self.stride, self.dilation, strict=True)):
            seen = seen.unfold(2 + axis, (k - 1) * dilation + 1, stride)[..., ::dilation]
        neurons = torch.cat([seen[:, :, *i].flatten(2, 1 + len(self.kernel)) for i in pool.index], dim=2)
        grouped = neurons.reshape(len(activity), self.groups, -1, pool.neurons, *self.kernel)
        return grouped.permute(1, 3, 0, 2, *range(4, grouped.dim())).flatten(3).contiguous()

    def _continued(self, activity: Tensor) -> Tensor:
        """Continue a map into the padding, grid by grid."""
        sides = padding_sides(self.layer.padding, self.kernel, self.stride, self.dilation)
        cell, size = phase_means(activity, self.period[0]), activity.shape[2:]
        shifted = cell.roll([low for low, _ in sides], dims=tuple(range(2, cell.dim())))
        whole = tiled(shifted, [n + low + high for n, (low, high) in zip(size, sides, strict=True)]).contiguous()
        whole[:, :, *(slice(low, low + n) for n, (low, _) in zip(size, sides, strict=True))] = activity
        return whole

    def respond(self, pool: Pool, windows: Tensor, equalisation: float = 1.0) -> Float[Tensor, "patterns channels _"]:
        """Return what the pool's neurons answer: the mean response z̄, with which lateral connections equalise them.

        Where neurons have windows of their own (groups, neurons, patterns, inputs), each answers κz̄ + (1−κ)zᵢ.
        """
        bias = getattr(self.layer, "bias", None)
        if windows.dim() == 3:
            answer = torch.bmm(windows, pool.weight.mean(dim=1).mT).transpose(0, 1).flatten(1).unsqueeze(-1)
        else:
            answer = torch.einsum("gnpi,gnci->pgcn", windows, pool.weight).flatten(1, 2)
        if bias is not None:
            of_each = bias[:, None] if bias.dim() == 1 else torch.cat([bias[:, *i].flatten(1) for i in pool.index], 1)
            answer = answer + (of_each if windows.dim() == 4 else of_each.mean(dim=1, keepdim=True))
        return answer.lerp(answer.mean(dim=-1, keepdim=True), equalisation)

    def place_(self, out: Tensor, pool: Pool, answer: Float[Tensor, "patterns channels _"]) -> None:
        """Write the pool's answer (one for all its neurons, or one each) into the layer's output."""
        counts = [self.grids[i].numel() for i in pool.index]
        for index, part in zip(pool.index, answer.expand(-1, -1, pool.neurons).split(counts, dim=2), strict=True):
            target = out[:, :, *index]
            target.copy_(part.reshape(target.shape))

    def learned_weight(self) -> Tensor:
        """Return the pools' weights in the layer's layout and dtype."""
        weight = torch.empty_like(self.layer.weight, requires_grad=False)
        for pool in self.pools:
            filters = pool.weight.transpose(0, 1).reshape(pool.neurons, *weight.shape[self.grids.dim() :])
            counts = [self.grids[i].numel() for i in pool.index]
            for index, part in zip(pool.index, filters.split(counts), strict=True):
                weight[index].copy_(part.reshape(weight[index].shape))
        return weight


def condition_number(windows: Float[Tensor, "patterns inputs"]) -> float:
    """Return the largest over the smallest variance of the inputs; infinite if they do not span all directions."""
    if len(windows) < windows.shape[1]:
        return float("inf")
    values = torch.linalg.svdvals(windows.double())
    return float((values[0] / values[-1]).square())


def phase_means(x: Float[Tensor, "patterns channels *size"], period: int) -> Float[Tensor, "patterns channels *period"]:
    """Average a map over all places of the same phase.

    >>> phase_means(torch.tensor([[[1.0, 5.0, 3.0]]]), 2)
    tensor([[[2., 5.]]])
    """
    for axis in range(2, x.dim()):
        if x.shape[axis] > period:
            phases = torch.arange(x.shape[axis], device=x.device) % period
            shape = (*x.shape[:axis], period, *x.shape[axis + 1 :])
            counts = phases.bincount().reshape(-1, *(1,) * (x.dim() - axis - 1))
            x = x.new_zeros(shape).index_add(axis, phases, x) / counts
    return x


def tiled(cell: Float[Tensor, "patterns channels *period"], size: Sequence[int]) -> Tensor:
    """Repeat a cell until it fills a map of this size.

    >>> tiled(torch.tensor([[[2.0, 5.0]]]), [3])
    tensor([[[2., 5., 2.]]])
    """
    for axis, n in enumerate(size, start=2):
        if n != cell.shape[axis]:
            cell = cell.index_select(axis, torch.arange(n, device=cell.device) % cell.shape[axis])
    return cell
