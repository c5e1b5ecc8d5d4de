r"""Lateral connections that a layer learns from correlations, the grids read from them, and sleep along them.

The discussion of Pogodin et al. (2021) claims that "if layer l can generate repeated patterns, layer l+1 can modify its
lateral connectivity based on input correlations". They did not build it; all of this is ours.

The layer below activates one of its lateral grids at a time (Fig. 3B of the paper). The neurons at position i, one in
each channel, answer with the energy :math:`a_i = \sum_c z_{ic}^2`, relative to that of the input; f is a less its slow
average, over its slow standard deviation. A synapse keeps a trace of the correlation, random at birth,

.. math:: H_{ij} \leftarrow H_{ij} + \eta\,(f_i f_j - H_{ij})

and the synapses of a neuron compete: each loses a part θ of what the strongest has, and what is left is normalised,

.. math:: L_{ij} \propto [H_{ij} - \theta \max_{j'} H_{ij'}]_+, \qquad \textstyle\sum_j L_{ij} = 1

One assumption is needed. A pattern of period k reaches the neurons of two grids with the same numbers in another order,
and filters that were drawn independently know no order: nothing in the activity could tell the grids apart. So
receptive fields are centred at birth: synapses get weaker with the distance from the middle of the window, as a
Gaussian of ``field`` times the filter's size.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf, prod, sqrt
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from sleepconv.functional.grids import lateral_grids, pattern_period
from sleepconv.functional.sizes import check_finite, check_int
from sleepconv.nn.modules import LocallyConnected
from sleepconv.sleep.rules import OnAnything, check_seed

Drive = Literal["grids", "waves"]
Sweep = Callable[[torch.Generator], Float[Tensor, "patterns channels *size"]]

_CHANCE = 4  # standard deviations: weaker correlations are taken for chance, so that a neuron may have no partners
_SETTLED = 1e-4
_MOST_ROUNDS = 100


@dataclass(frozen=True)
class LateralLearning:
    """How lateral connections are learned; see ``sleepconv.sleep.lateral`` for the rule and its assumption.

    Args:
        drive: what the network's input, or the layer's own, shows: one of its "grids" at a time, or "waves", whose
            crests pass along each axis, one period apart.
        period: of these patterns; by default that of ``lateral_grids``, or in a network the common one.
        field: standard deviation of the receptive field at birth, relative to the filter's size; ``inf`` gives all
            synapses the same weight, and nothing can be learned.
        noise: standard deviation of each neuron's noise, relative to that of its activity.
        sweeps: how often each pattern is shown, each time with other activity in the input channels.
        rate: η, per sweep.
        threshold: θ.
        seed: of the first connections, the patterns and the noise.

    >>> LateralLearning(noise=1.0).sweeps
    60
    """

    drive: Drive = "grids"
    period: int | None = None
    field: float = 1 / 6
    noise: float = 0.0
    sweeps: int = 60
    rate: float = 0.05
    threshold: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.drive not in get_args(Drive):
            raise ValueError(f"`drive` must be one of {', '.join(get_args(Drive))}, got {self.drive!r}")
        if self.period is not None:
            check_int("period", self.period)
        if self.field != inf:
            check_finite("field", self.field)
        if not self.field > 0:
            raise ValueError(f"`field` must be above 0, got {self.field}")
        check_finite("noise", self.noise, least=0)
        check_int("sweeps", self.sweeps)
        check_finite("rate", self.rate, least=0, most=1)
        if not self.rate:
            raise ValueError("`rate` must be above 0: otherwise the connections stay random")
        check_finite("threshold", self.threshold, least=0, most=1)
        if self.threshold == 1:
            raise ValueError("`threshold` must be below 1: otherwise no connection is left")
        check_seed(self.seed)


def learn_grids(
    layer: nn.Module,
    inputs: Float[Tensor, "patterns channels *size"] | None = None,
    *,
    learning: LateralLearning = LateralLearning(),  # noqa: B008 (it is frozen)
) -> Int64[Tensor, "*output_size"]:
    """Learn the lateral grids of a layer from correlations, starting from random connections.

    The grids can be assigned, ``layer.grids = learn_grids(layer)``; all rules and measures then follow them.

    Args:
        layer: a locally connected layer with the weights it has at birth.
        inputs: what drives it; by default the repeated patterns that the layer below would generate.
        learning: the rule's settings.

    Returns:
        The number of each neuron's grid, as from ``lateral_grids``, counted in the order in which the grids start.

    >>> from sleepconv.functional import adjusted_rand_index
    >>> from sleepconv.nn import LocallyConnected2d
    >>> layer = LocallyConnected2d(8, 16, 3, input_size=12, padding=1)
    >>> adjusted_rand_index(learn_grids(layer), layer.grids)
    1.0
    """
    return read_grids(learn_connections(layer, inputs, learning=learning), checked_layer(layer).output_size)


@torch.no_grad()
def learn_connections(
    layer: nn.Module,
    inputs: Float[Tensor, "patterns channels *size"] | None = None,
    *,
    learning: LateralLearning = LateralLearning(),  # noqa: B008 (it is frozen)
) -> Float[Tensor, "neurons neurons"]:
    """Return the lateral connections L of a layer, learned as by ``learn_grids``; each neuron's sum to 1.

    ``Lateral`` sleeps along them.

    >>> from sleepconv.nn import LocallyConnected1d
    >>> connections = learn_connections(LocallyConnected1d(8, 16, 3, input_size=9, padding=1))
    >>> connections.shape, bool((connections[0].nonzero().flatten() % 3 == 0).all())
    (torch.Size([9, 9]), True)
    """
    return learned_connections(checked_layer(layer), _shown(inputs, checked_layer(layer), learning), learning)


@torch.no_grad()
def read_grids(
    connections: Float[Tensor, "neurons neurons"], output_size: tuple[int, ...] | None = None
) -> Int64[Tensor, "*output_size"]:
    """Read the grids from lateral connections: activity spreads along them and competes until it settles.

    The rounds M ← M², M ← M ∘ M, each row normalised, are those of Markov clustering (van Dongen, 2000). A few wrong
    connections do not join two grids.

    Args:
        connections: how strongly neuron i listens to neuron j; not negative.
        output_size: the shape of the answer; by default (neurons,).

    >>> read_grids(torch.tensor([[0.5, 0.1, 0.4], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]))
    tensor([0, 1, 0])
    """
    size = _checked_connections(connections)
    spread = connections.float() + connections.float().T
    spread = spread / spread.sum(dim=1, keepdim=True)
    for _ in range(_MOST_ROUNDS):
        before, spread = spread, (spread @ spread).square_()
        spread = spread / spread.sum(dim=1, keepdim=True)
        if float((spread - before).abs().max()) < _SETTLED:
            break
    together = spread > 0.5 * spread.amax(dim=1, keepdim=True)
    together |= together.T.clone()
    first, joined = None, torch.arange(size, device=connections.device)
    while first is None or not torch.equal(first, joined):
        first, joined = joined, torch.where(together, joined, size).amin(dim=1).minimum(joined)
    grids = joined.unique(return_inverse=True)[1].cpu()
    return grids if output_size is None else grids.reshape(output_size)


@dataclass(frozen=True)
class Lateral(OnAnything):
    r"""Share along soft lateral connections: each filter becomes the mean that they weigh.

    .. math:: w_i \leftarrow \sum_j L_{ij} w_j

    Connections that join all neurons of a grid with equal weight, and no others, give ``Instant``. Learned ones are
    uneven, so the mean is taken several times, as lateral activity settles. Not in the paper.

    Args:
        connections: by the name of each layer that sleeps ("" if the model is one layer), as from
            ``learn_connections``.
        rounds: how often the mean is taken in a sleep.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> layer = LocallyConnected2d(8, 16, 3, input_size=12, padding=1)
    >>> layer = Lateral({"": learn_connections(layer)})(layer)
    >>> bool((layer.weight[0, 0] - layer.weight[3, 3]).abs().max() < 1e-4)
    True
    """

    connections: Mapping[str, Float[Tensor, "neurons neurons"]]
    rounds: int = 8
    _grids: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the arguments, and read the grids."""
        check_int("rounds", self.rounds)
        if not isinstance(self.connections, Mapping):
            raise TypeError(
                f"`connections` must map names of layers to matrices, got {type(self.connections).__name__}"
            )
        self._grids.update({name: read_grids(matrix) for name, matrix in self.connections.items()})
        for name, matrix in self.connections.items():
            if not bool(((matrix.sum(dim=1) - 1).abs() < 1e-2).all()):
                raise ValueError(
                    f"the connections of each neuron of layer {name!r} must sum to 1, as those of learn_connections(); "
                    "divide them by their sum"
                )

    def grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the grids read from the connections of each of these layers."""
        found = {}
        for name, layer in layers.items():
            neurons = layer.grids.numel()
            have = self._grids.get(name)
            if have is None or have.numel() != neurons:
                got = "none" if have is None else f"those of {have.numel()}"
                raise ValueError(f"layer {name!r} needs the connections of {neurons} neurons, got {got}")
            found[name] = have.reshape(layer.grids.shape)
        return found

    @torch.no_grad()
    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Take the means in all these layers; each gets its new weights at the end."""
        grids, means = self.grids(layers), {}
        for name, layer in layers.items():
            weight: Any = layer.weight
            filters = weight.flatten(0, grids[name].dim() - 1).flatten(1)
            mean = filters.to(torch.promote_types(filters.dtype, torch.float32))
            matrix = self.connections[name].to(mean)
            for _ in range(self.rounds):
                mean = matrix @ mean
            means[name] = mean.view(weight.shape)
        for name, layer in layers.items():
            layer.weight.copy_(means[name])  # type: ignore[operator]


def learned_connections(layer: LocallyConnected, sweep: Sweep, learning: LateralLearning) -> Tensor:
    """Return the connections that a layer learns from sweeps of patterns."""
    generator = torch.Generator().manual_seed(learning.seed)
    neurons = prod(layer.output_size)
    if neurons < 2:
        raise ValueError(f"a layer of output size {layer.output_size} has one neuron, so there is nothing to connect")
    centred = _at_birth(layer, learning.field)
    trace = torch.rand(neurons, neurons, generator=generator).to(centred.weight)
    mean = variance = None
    for _ in range(learning.sweeps):
        patterns = sweep(generator).to(centred.weight)
        activity = _energy(centred(patterns), patterns)
        if learning.noise:
            noise = torch.randn(activity.shape, generator=generator).to(activity)
            activity = activity + learning.noise * activity.std(dim=0, correction=0).mean() * noise
        mean = _slow(mean, activity.mean(dim=0), learning.rate)
        variance = _slow(variance, activity.var(dim=0, correction=0), learning.rate)
        deviation = (activity - mean) / variance.sqrt()
        trace.lerp_(deviation.T @ deviation / len(deviation), learning.rate)
    chance = sqrt(learning.rate / ((2 - learning.rate) * len(activity)))
    return _competed(trace, learning.threshold, _CHANCE * chance)


def _slow(average: Tensor | None, now: Tensor, rate: float) -> Tensor:
    return now if average is None else average.lerp(now, rate)


def _energy(
    responses: Float[Tensor, "patterns channels *size"], inputs: Float[Tensor, "patterns in_channels *input_size"]
) -> Float[Tensor, "patterns neurons"]:
    """Return the energy at each position relative to the input's; refuse neurons that no pattern changes."""
    energy = responses.square().sum(dim=1).flatten(1)
    if not bool(energy.isfinite().all()):
        raise ValueError("the responses to the patterns contain NaN or infinity; check the weights and inputs")
    constant = int((energy.std(dim=0, correction=0) <= 1e-6 * energy.mean()).sum())
    if constant:
        raise ValueError(
            f"the activity of {constant} of {energy.shape[1]} neurons is the same for all {len(energy)} patterns, so "
            "it has no correlations; drive the layer with patterns that differ within each neuron's window"
        )
    return energy / inputs.square().flatten(1).mean(dim=1, keepdim=True).clamp_min(1e-30)


def _competed(trace: Tensor, threshold: float, least: float) -> Tensor:
    """Return the connections that survive competition; a neuron listens to itself as to its strongest partner.

    Correlations below ``least`` may be due to chance and are left out.
    """
    between = trace.clone().fill_diagonal_(-inf)
    strongest = between.amax(dim=1, keepdim=True)
    left = (between - (threshold * strongest).clamp_min(least)).clamp_min(0)
    own = left.amax(dim=1)
    left.diagonal().copy_(torch.where(own > 0, own, 1.0))
    return left / left.sum(dim=1, keepdim=True)


def _at_birth(layer: LocallyConnected, width: float) -> LocallyConnected:
    """Return a copy whose synapses weaken as a Gaussian around the window's middle, or the tap behind it."""
    strength = torch.ones(())
    for k in layer.kernel_size:
        distance = (torch.arange(k) - k // 2) / (width * k)
        strength = strength[..., None] * torch.exp(-distance.square() / 2)
    copied = deepcopy(layer).float()
    copied.weight.mul_(strength.to(copied.weight))
    if copied.bias is not None:
        copied.bias.zero_()
    return copied


def _shown(inputs: Tensor | None, layer: LocallyConnected, learning: LateralLearning) -> Sweep:
    """Return the patterns that drive a single layer."""
    shape = (layer.in_channels, *layer.input_size)
    if inputs is None:
        own = pattern_period(layer.kernel_size, layer.dilation)
        return repeated_patterns(
            shape, own if learning.period is None else (learning.period,) * layer.axes, learning.drive
        )
    if tuple(inputs.shape[1:]) != shape or len(inputs) < 2:
        raise ValueError(
            f"`inputs` must have the shape (patterns, {', '.join(map(str, shape))}) with at least 2 patterns, got "
            f"{tuple(inputs.shape)}"
        )
    return lambda generator: inputs


def repeated_patterns(shape: tuple[int, ...], period: tuple[int, ...], drive: Drive) -> Sweep:
    """Return sweeps of patterns that repeat with this period along each axis."""
    channels, *size = shape
    if max(period) == 1:
        raise ValueError(
            "patterns of period 1 are the same everywhere, so no correlation tells neurons apart: a layer of 1×1 "
            "filters has one grid. Use lateral_grids(), or give the period of patterns that come from another layer"
        )
    if drive == "grids":
        return one_grid_at_a_time([lateral_grids(size, 1, period=period)], channels)
    along = [[p if a == axis else 1 for a in range(len(size))] for axis, p in enumerate(period) if p > 1]
    return one_grid_at_a_time([lateral_grids(size, 1, period=crests) for crests in along], channels)


def one_grid_at_a_time(partitions: list[Tensor], channels: int) -> Sweep:
    """Return sweeps in which each grid fires once, each channel with a random rate that the whole grid has."""
    firing = torch.cat([(grids == n)[None] for grids in partitions for n in range(int(grids.max()) + 1)]).float()

    def sweep(generator: torch.Generator) -> Tensor:
        rates = torch.randn(len(firing), channels, generator=generator).abs()
        order = torch.randperm(len(firing), generator=generator)
        return rates.reshape(*rates.shape, *(1,) * (firing.dim() - 1)) * firing[order].unsqueeze(1)

    return sweep


def checked_layer(layer: nn.Module) -> LocallyConnected:
    """Return the layer if it is one that learns grids."""
    if not isinstance(layer, LocallyConnected):
        raise TypeError(
            f"grids are learned by a locally connected layer, such as LocallyConnected2d, got {type(layer).__name__}; "
            "token layers have one grid"
        )
    return layer


def _checked_connections(connections: Tensor) -> int:
    """Return the number of neurons of a matrix of lateral connections."""
    shape = tuple(connections.shape)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0] or not connections.is_floating_point():
        raise ValueError(
            f"`connections` must be a floating point matrix, one row and column per neuron, got {shape} "
            f"{connections.dtype}"
        )
    if not bool((connections.isfinite() & (connections >= 0)).all()) or not bool((connections.sum(dim=1) > 0).all()):
        raise ValueError(
            "`connections` must not be negative, NaN or infinite, and every neuron must have one, at least to itself"
        )
    return shape[0]
