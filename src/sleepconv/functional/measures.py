"""Measures of how far a set of filters is from weight sharing."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from sleepconv.functional.sharing import neurons_per_grid
from sleepconv.kernels.lattice import grid_indices


@torch.no_grad()
def weight_snr(
    weight: Float[Tensor, "*neurons_and_filter"] | nn.Module, grids: Int64[Tensor, "*neurons"] | None = None
) -> Float[Tensor, ""]:
    r"""Return the signal-to-noise ratio of the weights among neurons that share: mean² over variance.

    .. math:: SNR_w = \frac{1}{k^2} \sum_j
        \frac{(\frac1N \sum_i (w_i)_j)^2}{\frac1N \sum_i ((w_i)_j - \frac1N \sum_{i'} (w_{i'})_j)^2}

    Eq. 6 of Pogodin et al. (2021), averaged over weights. In a layer it is computed within each grid and averaged over
    the grids; grids with one neuron are left out. It is infinite if all neurons agree on a weight.

    Args:
        weight: a locally connected or per-patch layer, or the weight of one together with its ``grids``. Without
            ``grids``, a tensor of shape (neurons, weights) or (neurons, channels, weights) whose neurons all share.
        grids: the grid of each neuron, as from ``lateral_grids``; its axes are the leading axes of ``weight``. A
            layer's own grids by default.

    >>> weight_snr(torch.tensor([[1.0], [3.0]]))
    tensor(4.)
    >>> weight_snr(torch.tensor([[1.0], [5.0], [3.0], [5.0]]), grids=torch.tensor([0, 1, 0, 1]))
    tensor(inf)
    >>> from sleepconv.nn import LocallyConnected2d
    >>> weight_snr(LocallyConnected2d(1, 4, 3, input_size=9)) < 1
    tensor(True)
    """
    moments = _moments(weight, grids)
    return torch.stack([_ratio(m.mean.square(), m.variance).mean() for m in moments]).mean()


@torch.no_grad()
def pooled_weight_snr(
    weight: Float[Tensor, "*neurons_and_filter"] | nn.Module, grids: Int64[Tensor, "*neurons"] | None = None
) -> Float[Tensor, ""]:
    r"""Return the signal-to-noise ratio of all weights together: the sum of mean² over the sum of the variances.

    .. math:: \frac{\sum_j (\frac1N \sum_i (w_i)_j)^2}
        {\sum_j \frac1N \sum_i ((w_i)_j - \frac1N \sum_{i'} (w_{i'})_j)^2}

    Not in the paper. Eq. 6 (``weight_snr``) is a mean of ratios, which one weight on which all neurons happen to agree
    can make arbitrarily large; this ratio of sums is not. In a layer the sums are over weights and grids.

    Args:
        weight: a layer or a tensor, as for ``weight_snr``.
        grids: the grid of each neuron, as for ``weight_snr``.

    >>> weight = torch.tensor([[1.0, 2.0], [3.0, 2.0]])  # the second weight is shared already
    >>> pooled_weight_snr(weight), weight_snr(weight)
    (tensor(8.), tensor(inf))
    """
    moments = _moments(weight, grids)
    return _ratio(sum(m.mean.square().sum() for m in moments), sum(m.variance.sum() for m in moments))


class _Moments(NamedTuple):
    """Mean and variance of each weight over the neurons that share it."""

    mean: Tensor
    variance: Tensor


def _moments(weight: Any, grids: Tensor | None) -> list[_Moments]:
    """Return the moments within each grid of several neurons."""
    if isinstance(weight, nn.Module):
        weight, grids = _of_layer(weight, grids)
    if grids is None:
        return [_moments_of_one_set(weight)]
    grids = grids.cpu()
    neurons = neurons_per_grid(weight, grids)
    if int(neurons.max()) < 2:
        raise ValueError(f"each of the {grids.numel()} grids has one neuron: there is no variance within grids")
    return [
        _moments_of_grid([weight[index] for index in indices], grids.dim())
        for grid, indices in grid_indices(grids)
        if neurons[grid] > 1
    ]


def _of_layer(layer: Any, grids: Tensor | None) -> tuple[Tensor, Tensor]:
    if not hasattr(layer, "weight") or not hasattr(layer, "grids"):
        raise TypeError(
            f"expected a tensor or a layer with `weight` and `grids`, such as LocallyConnected2d, got "
            f"{type(layer).__name__}; for the layers of a model call weight_snr on each"
        )
    return layer.weight, layer.grids if grids is None else grids


def _moments_of_one_set(weight: Tensor) -> _Moments:
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        got = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"expected a floating point tensor or a layer, got {got}")
    if weight.dim() > 3:
        raise ValueError(
            f"a weight of shape {tuple(weight.shape)} needs `grids`: call weight_snr(layer) or "
            "weight_snr(layer.weight, layer.grids), or weight_snr(weight.flatten(1)) if axis 0 counts neurons that "
            "all share"
        )
    if weight.dim() < 1 or len(weight) < 2:
        raise ValueError(f"a variance needs at least two neurons (axis 0), got shape {tuple(weight.shape)}")
    offsets = weight - weight[0]
    return _from_offsets(weight[0], offsets.sum(dim=0), offsets.square().sum(dim=0), len(weight))


def _moments_of_grid(blocks: list[Tensor], positions: int) -> _Moments:
    """Sum moments row by row, without copying the weights."""
    first = blocks[0][(0,) * positions].to(torch.promote_types(blocks[0].dtype, torch.float32))
    total, squares, neurons = torch.zeros_like(first), torch.zeros_like(first), 0
    for row in (row for block in blocks for row in block):
        offsets = (row - first).reshape(-1, *first.shape)
        total += offsets.sum(dim=0)
        squares += offsets.square_().sum(dim=0)
        neurons += len(offsets)
    return _from_offsets(first, total, squares, neurons)


def _from_offsets(first: Tensor, total: Tensor, squares: Tensor, neurons: int) -> _Moments:
    """Return the moments from sums of differences to the first neuron, which are exactly 0 for equal weights."""
    offset = total / neurons
    return _Moments(first + offset, (squares / neurons - offset.square()).clamp(min=0))


def _ratio(signal: Any, noise: Any) -> Tensor:
    return torch.where(noise == 0, torch.inf, signal / noise)
