"""How far a set of filters is from sharing its weights."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from sleepconv.functional.sharing import neurons_per_grid
from sleepconv.kernels.lattice import grid_indices


@torch.no_grad()
def weight_snr(
    weight: Float[Tensor, "*neurons_and_filter"], grids: Int64[Tensor, "*neurons"] | None = None
) -> Float[Tensor, ""]:
    r"""Return the signal-to-noise ratio of the weights among neurons that share: mean² over variance.

    .. math:: SNR_w = \frac{1}{k^2} \sum_j
        \frac{(\frac1N \sum_i (w_i)_j)^2}{\frac1N \sum_i ((w_i)_j - \frac1N \sum_{i'} (w_{i'})_j)^2}

    Eq. 6 of Pogodin et al. (2021), averaged over weights. In a layer it is taken within each grid and
    averaged over the grids; grids with one neuron are left out. A weight on which all neurons agree makes it
    infinite.

    Args:
        weight: without ``grids``, axis 0 counts the neurons and the rest is the filter; with ``grids``, the
            leading axes are those of ``grids``.
        grids: the grid of each neuron, as from ``lateral_grids``.

    >>> weight_snr(torch.tensor([[1.0], [3.0]]))
    tensor(4.)
    >>> weight_snr(torch.tensor([[1.0], [5.0], [3.0], [5.0]]), grids=torch.tensor([0, 1, 0, 1]))
    tensor(inf)
    """
    if grids is None:
        return _snr_of_one_set(weight)
    neurons = neurons_per_grid(weight, grids)
    if int(neurons.max()) < 2:
        raise ValueError(f"every grid has one neuron ({grids.numel()} in all): there is no variance within grids")
    ratios = [
        _snr_of_grid([weight[index] for index in indices], grids.dim())
        for grid, indices in grid_indices(grids)
        if neurons[grid] > 1
    ]
    return torch.stack(ratios).mean()


def _snr_of_one_set(weight: Tensor) -> Tensor:
    if len(weight) < 2:
        raise ValueError(f"weight has {len(weight)} neurons on axis 0; a variance needs two or more")
    offsets = weight - weight[0]
    return _ratio(weight[0], offsets.sum(dim=0), offsets.square().sum(dim=0), len(weight))


def _snr_of_grid(blocks: list[Tensor], positions: int) -> Tensor:
    """Add up moments row by row, so that no copy of the weights is made."""
    first = blocks[0][(0,) * positions].to(torch.promote_types(blocks[0].dtype, torch.float32))
    total, squares, neurons = torch.zeros_like(first), torch.zeros_like(first), 0
    for row in (row for block in blocks for row in block):
        offsets = (row - first).reshape(-1, *first.shape)
        total += offsets.sum(dim=0)
        squares += offsets.square_().sum(dim=0)
        neurons += len(offsets)
    return _ratio(first, total, squares, neurons)


def _ratio(first: Tensor, total: Tensor, squares: Tensor, neurons: int) -> Tensor:
    """Take mean² / variance from sums of differences to the first neuron, exactly zero for equal weights."""
    offset = total / neurons
    variance = (squares / neurons - offset.square()).clamp(min=0)
    return torch.where(variance == 0, torch.inf, (first + offset).square() / variance).mean()
