"""Weight sharing on tensors: at once (each filter becomes the mean of its grid) or by one Hebbian step."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from sleepconv.kernels import kernel_for
from sleepconv.kernels.lattice import grid_indices, summed_grids


@torch.no_grad()
def share_weights_(
    weight: Float[Tensor, "*positions_and_filter"], grids: Int64[Tensor, "*positions"]
) -> Float[Tensor, "*positions_and_filter"]:
    r"""Set every filter to the mean of its lateral grid, in place.

    .. math:: w_i \leftarrow \frac{1}{|G(i)|} \sum_{j \in G(i)} w_j

    The limit of Eq. 5 of Pogodin et al. (2021) for small weight decay, reached at once. Needs hardly any memory beyond
    the weights.

    Args:
        weight: one filter per output position: the leading axes are those of ``grids`` (one to three spatial axes, or
            tokens), the others belong to the filter.
        grids: the grid of each position, as from ``lateral_grids``.

    >>> weight = torch.tensor([[1.0], [10.0], [3.0], [20.0]])
    >>> share_weights_(weight, torch.tensor([0, 1, 0, 1])).flatten().tolist()
    [2.0, 15.0, 2.0, 15.0]
    """
    grids = grids.cpu()
    neurons = neurons_per_grid(weight, grids)
    if int(neurons.max()) < 2:
        raise ValueError(
            f"there is nothing to share: each of the {grids.numel()} grids has one neuron; "
            "leave this layer out, or give a shorter period to lateral_grids"
        )
    kernel_for(weight).share_(weight, grids)
    return weight


@torch.no_grad()
def grid_sums(
    weight: Float[Tensor, "*positions_and_filter"], grids: Int64[Tensor, "*positions"], *, number: int = 0
) -> tuple[Float[Tensor, "grids *filter"], Int64[Tensor, "grids"]]:
    """Return the sum of the filters of each grid, and how many neurons each grid has.

    Half-precision filters are summed, and returned, in float32. Sums and counts of the parts of a layer (on several
    processes) add up to those of the layer; since a part may lack some grids, ``number`` is the least number of grids
    to return.

    >>> grid_sums(torch.tensor([[1.0], [10.0], [3.0]]), torch.tensor([0, 1, 0]))
    (tensor([[ 4.],
            [10.]]), tensor([2, 1]))
    """
    neurons = neurons_per_grid(weight, grids, number)
    dtype = torch.promote_types(weight.dtype, torch.float32)
    sums = weight.new_zeros((len(neurons), *weight.shape[grids.dim() :]), dtype=dtype)
    for grid, _, total in summed_grids(weight, grids):
        sums[grid] = total
    return sums, neurons


@torch.no_grad()
def set_grids_(
    weight: Float[Tensor, "*positions_and_filter"],
    grids: Int64[Tensor, "*positions"],
    filters: Float[Tensor, "grids *filter"],
) -> Float[Tensor, "*positions_and_filter"]:
    """Give every neuron its grid's filter, in place.

    >>> set_grids_(torch.zeros(3, 1), torch.tensor([0, 1, 0]), torch.tensor([[2.0], [5.0]])).tolist()
    [[2.0], [5.0], [2.0]]
    """
    neurons_per_grid(weight, grids)
    for grid, indices in grid_indices(grids):
        for index in indices:
            weight[index] = filters[grid]
    return weight


@torch.no_grad()
def hebbian_step_(
    weight: Float[Tensor, "grids neurons channels inputs"],
    velocity: Float[Tensor, "grids neurons channels inputs"],
    initial: Float[Tensor, "grids neurons channels inputs"],
    patterns: Float[Tensor, "grids patterns inputs"],
    *,
    rate: float,
    decay: float | Float[Tensor, "grids"],
    momentum: float = 0.0,
    inhibition: float | None = None,
    noise: Float[Tensor, "grids neurons patterns inputs"] | None = None,
) -> Float[Tensor, "grids neurons channels inputs"]:
    r"""Pull the neurons of each grid and channel towards their common mean response, in place (anti-Hebbian).

    .. math:: \Delta w_i \propto -(z_i - \kappa \bar z)\,x - \gamma\,(w_i - w_i^{init}), \qquad
        z_i = w_i^\top x

    Eq. 4 of Pogodin et al. (2021), averaged over the patterns, with κ = 1; with finite inhibition α the
    biased update of the appendix, κ = α / (1 + α). With noise ξ, neuron i (in all its channels) sees x + ξᵢ
    instead of x. Momentum is that of ``torch.optim.SGD``: v ← momentum·v − Δ, w ← w − rate·v.

    Args:
        weight: changed in place, and returned.
        velocity: the momentum's memory, zero at first, changed in place.
        initial: the weights at the start of this sleep, w^init.
        patterns: the inputs x that all neurons of a grid see.
        rate: the learning rate of this step.
        decay: γ, one value or one per grid.
        momentum: the fraction of the velocity that is kept at each step.
        inhibition: α; None means perfect inhibition.
        noise: ξ, added to each neuron's view of each pattern.

    >>> weight = torch.tensor([0.0, 2.0]).reshape(1, 2, 1, 1)
    >>> velocity, initial = torch.zeros_like(weight), weight.clone()
    >>> hebbian_step_(weight, velocity, initial, torch.ones(1, 1, 1), rate=0.5, decay=0.1).flatten().tolist()
    [0.5, 1.5]
    """
    grids, neurons, channels, inputs = weight.shape
    gamma = torch.as_tensor(decay, dtype=weight.dtype, device=weight.device).reshape(-1, 1, 1, 1)
    if noise is None:
        seen, layout, axis = patterns, (grids, -1, neurons, channels), 2
    else:
        seen, layout, axis = (patterns[:, None] + noise).flatten(0, 1), (grids, neurons, -1, channels), 1
    responses = torch.bmm(seen, weight.reshape(len(seen), -1, inputs).mT)
    by_neuron = responses.view(layout)
    by_neuron -= by_neuron.mean(dim=axis, keepdim=True) * (1 if inhibition is None else inhibition / (1 + inhibition))
    pull = torch.bmm(responses.mT, seen / seen.shape[1]).view(weight.shape)
    velocity.mul_(momentum).add_(pull).addcmul_(gamma, weight).addcmul_(gamma, initial, value=-1)
    return weight.sub_(velocity, alpha=rate)


def neurons_per_grid(weight: Tensor, grids: Tensor, number: int = 0) -> Int64[Tensor, "grids"]:
    """Return the number of neurons of each grid, after checking that ``weight`` has a filter for each neuron."""
    if not weight.is_floating_point():
        raise TypeError(f"`weight` must have a floating point dtype, got {weight.dtype}")
    if grids.dtype != torch.int64:
        raise TypeError(f"`grids` must have the dtype torch.int64, got {grids.dtype}")
    positions = tuple(weight.shape[: grids.dim()])
    if positions != tuple(grids.shape) or grids.numel() == 0:
        raise ValueError(
            f"the leading axes of weight are {positions}, but grids covers {tuple(grids.shape)}: "
            "both must have the same output neurons, at least one"
        )
    if int(grids.min()) < 0:
        raise ValueError(f"`grids` must not be negative, got {int(grids.min())}")
    return torch.bincount(grids.flatten(), minlength=number)
