"""The Hebbian rule (Eq. 4 of Pogodin et al., 2021) at work on layers and networks.

``Hebbian.sleep_`` is a sleep from beginning to end. It copies the weights of each layer into pools of neurons that
share (``sleepconv.sleep.pools``), shows them patterns (``sleepconv.sleep.patterns``) by one of ``_DRIVES``, and gives
the layers what their pools have learned. A pool learns in ``PoolLearning`` (``sleepconv.sleep.plasticity``), whose
step is Eq. 4, ``sleepconv.functional.hebbian_step_``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, prod
from typing import Any

import torch
from torch import Tensor, nn

from sleepconv.functional.sizes import check_finite
from sleepconv.sleep.layers import Border, check_border, check_something_to_share, driven_grids
from sleepconv.sleep.passing import SleepingNetwork
from sleepconv.sleep.patterns import (
    Activity,
    Disinhibited,
    Spontaneous,
    network_period,
    one_grid_patterns,
    random_cell,
)
from sleepconv.sleep.plasticity import PoolLearning, rate_at
from sleepconv.sleep.pools import LayerPools, Pool, condition_number
from sleepconv.sleep.rules import (
    LARGEST,
    OnAnything,
    Rate,
    check_image_shape,
    check_number,
    check_rate,
    check_seed,
    write_back_,
)

# A sleep of more takes hours even for a small layer, or more memory than there is.
_MOST_STEPS, _MOST_PATTERNS = 10**6, 10**5


@dataclass(frozen=True)
class LayerReport:
    """How a layer slept; where its pools differ, the pool that did worst.

    Attributes:
        negative_log_snr: −log SNR (Eq. 6).
        condition: the inputs' condition number.
        steps: the steps taken.
        negative_log_pooled_snr: log(Σ variance / Σ mean²) over all weights: unlike in Eq. 6, a few that agree cannot
            hide the others.
        mean_shift: how far the mean filters have moved, relative to their size.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> from sleepconv.sleep import Hebbian
    >>> rule = Hebbian(decay=1e-4)
    >>> layer = rule(LocallyConnected2d(1, 4, 3, input_size=9))
    >>> rule.reports[""].negative_log_snr < -10
    True
    """

    negative_log_snr: float
    condition: float
    steps: int
    negative_log_pooled_snr: float
    mean_shift: float


def layer_report(pools: Sequence[Pool], initial: Sequence[Tensor], *, seen: Tensor, steps: int) -> LayerReport:
    """Compare pools with their weights before the sleep; ``seen`` are patterns (patterns, inputs) of one pool."""
    shifts = []
    for pool, before in zip(pools, initial, strict=True):
        mean = before.mean(dim=1)
        shifts.append(float((pool.weight.mean(dim=1) - mean).norm() / mean.norm().clamp_min(1e-30)))
    snr, pooled = (max(of(pool) for pool in pools) for of in (Pool.negative_log_snr, Pool.negative_log_pooled_snr))
    return LayerReport(snr, condition_number(seen), steps, pooled, max(shifts))


@dataclass(frozen=True)
class Hebbian(OnAnything):
    r"""Pull the neurons of a grid towards their common mean response by anti-Hebbian learning.

    .. math:: \Delta w_i \propto -(z_i - \tfrac1N \textstyle\sum_j z_j)\,x - \gamma\,(w_i - w_i^{init})

    Eq. 4 of Pogodin et al. (2021), with w^init the weights at the start of *this* sleep. It converges to Eq. 5, whose
    limit for small γ is ``Instant``. With finite ``inhibition`` α it is the biased update of the appendix.

    Args:
        decay: γ.
        patterns: "one_grid" or "independent", which drive every layer by itself, or "disinhibited", "spontaneous" or
            "layer_by_layer", which pass through the network; see ``sleepconv.sleep.patterns``.
        patterns_per_step: how many patterns a step averages over; by default a quarter of the filter's inputs
            (independent), 64 (spontaneous, layer by layer), or a sweep of all input grids, one at a time (one grid,
            disinhibited).
        momentum: of the updates; .95 in the paper's simulations.
        inhibition: α; None means perfect inhibition.
        noise: standard deviation of what each neuron sees beside the pattern (appendix, "Noisy case").
        rate: the learning rate, or a function of the step; by default as high as is stable for the inputs. The paper's
            Fig. 4A has ``lambda step: 0.5 / (1000 + step)``.
        steps: largest number of steps (of sweeps, where a step is one), a million at most.
        target: stop as soon as −log SNR is below this; None: take all steps.
        equalisation: κ, how far lateral connections equalise the responses that are passed on: neuron i answers
            κz̄ + (1−κ)zᵢ. The paper has 1. Below 1, the next layer's neurons see different things until this one shares.
        in_turn: with patterns that pass through the network, let layers learn one after the other, in the order in
            which patterns reach them (as by neuromodulation), instead of together.
        image_shape: with such patterns, (channels, height, width) of the network's input, if it is not that
            of the first sleeping layer.
        border: "all" neurons share, or only those of the "interior", whose windows see no padding; the others then keep
            their weights.
        seed: of patterns and noise.

    Attributes:
        reports: how each layer did in the last sleep, by name.

    >>> weight = torch.tensor([[[1.0]], [[10.0]], [[3.0]], [[20.0]]])
    >>> Hebbian(decay=1e-6)(weight, torch.tensor([0, 1, 0, 1])).flatten().round(decimals=3).tolist()
    [2.0, 15.0, 2.0, 15.0]
    """

    decay: float = 1e-4
    patterns: str = "one_grid"
    patterns_per_step: int | None = None
    momentum: float = 0.0
    inhibition: float | None = None
    noise: float = 0.0
    rate: Rate | None = None
    steps: int = 200
    target: float | None = None
    equalisation: float = 1.0
    in_turn: bool = False
    image_shape: tuple[int, ...] | None = None
    border: Border = "all"
    seed: int = 0
    reports: dict[str, LayerReport] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.patterns not in _DRIVES:
            raise ValueError(f"`patterns` must be one of {', '.join(_DRIVES)}, got {self.patterns!r}")
        check_finite("decay", self.decay, least=0, most=LARGEST)
        check_finite("noise", self.noise, least=0, most=LARGEST)
        check_number("steps", self.steps, most=_MOST_STEPS)
        if self.patterns_per_step is not None:
            check_number("patterns_per_step", self.patterns_per_step, most=_MOST_PATTERNS)
        if self.image_shape is not None:
            check_image_shape(self.image_shape)
        if self.rate is not None:
            check_rate(self.rate)
        if self.rate == 0:
            raise ValueError("`rate` must be above 0, got 0")
        check_finite("momentum", self.momentum, least=0)
        if self.momentum >= 1:
            raise ValueError(f"`momentum` must be below 1, got {self.momentum}")
        if self.inhibition is not None:
            check_finite("inhibition", self.inhibition, least=0)
        if self.target not in (None, inf, -inf):
            check_finite("target", self.target)
        check_finite("equalisation", self.equalisation, least=0, most=1)
        if self.equalisation < 1 and self.patterns not in _THROUGH_THE_NETWORK:
            through = ", ".join(_THROUGH_THE_NETWORK)
            raise ValueError(
                f"`equalisation` below 1 needs patterns that pass through the network ({through}), got {self.patterns}"
            )
        if not isinstance(self.in_turn, bool):
            raise ValueError(f"`in_turn` must be True or False, got {self.in_turn!r}")
        check_border(self.border)
        check_seed(self.seed)
        if self.decay == 0 and self.noise > 0:
            raise ValueError(
                "`decay` must be above 0 if inputs are noisy: otherwise the noise shrinks all weights to 0"
            )

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers learn; the layers get their new weights at the end."""
        check_something_to_share(layers, self.grids(layers))
        self.reports.clear()
        period = self._period(layers)
        # A sleep may begin in an evaluation that runs under autocast.
        device: Any = next(iter(layers.values())).weight.device
        with torch.autocast(device.type, enabled=False):
            pools = {name: LayerPools(layer, period=period, border=self.border) for name, layer in layers.items()}
            self.reports.update(_DRIVES[self.patterns](self, model, pools))
        write_back_(pools)

    def grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return who shares with whom in each of these layers."""
        period = self._period(layers)
        return {name: driven_grids(layer, self.border, period) for name, layer in layers.items()}

    def _period(self, layers: Mapping[str, Any]) -> int | None:
        """Return the network's period if patterns pass through it; None: each layer has its own."""
        return network_period(layers) if self.patterns in _THROUGH_THE_NETWORK else None


def _sleep_alone(
    drive: Callable[[LayerPools, PoolLearning], Tensor],
    rule: Hebbian,
    model: nn.Module,
    layers: Mapping[str, LayerPools],
) -> dict[str, LayerReport]:
    """Drive every pool of every layer by itself."""
    reports = {}
    for name, pools in layers.items():
        learnings, seen = [], None
        for pool in pools.sharing:
            learnings.append(PoolLearning(pool, rule))
            patterns = drive(pools, learnings[-1])
            seen = patterns if seen is None else seen
        assert seen is not None
        reports[name] = _report(learnings, seen)
    return reports


def _one_grid(pools: LayerPools, learning: PoolLearning) -> Tensor:
    rule, inputs = learning.rule, pools.inputs
    patterns = one_grid_patterns(inputs).to(learning.initial)
    in_closed_form = not (rule.momentum or rule.noise or rule.patterns_per_step)
    size = rule.patterns_per_step or inputs
    for step in range(rule.steps):
        if learning.done:
            break
        if in_closed_form:
            rate = rate_at(rule, step)
            learning.sweep_one_grid(inputs**0.5, 1 / (inputs + rule.decay) if rate is None else rate)
        else:
            chosen = (torch.arange(size, device=patterns.device) + step * size) % inputs
            learning.learn(patterns[chosen].expand(pools.groups, -1, -1))
    return patterns


def _independent(pools: LayerPools, learning: PoolLearning) -> Tensor:
    rule = learning.rule
    size = rule.patterns_per_step or max(1, pools.inputs // 4)
    generator = torch.Generator().manual_seed(rule.seed)
    seen: list[Tensor] = []
    for _ in range(rule.steps):
        if learning.done:
            break
        windows = pools.windows(learning.pool, random_cell(pools, size, generator, learning.initial))
        learning.learn(windows)
        if len(seen) * size < 4 * pools.inputs:
            seen.append(windows[0])
    return torch.cat(seen)


class _NetworkSleep:
    """A Hebbian sleep in which patterns pass through the network."""

    def __init__(self, rule: Hebbian, model: nn.Module, layers: Mapping[str, LayerPools]) -> None:
        generator = torch.Generator().manual_seed(rule.seed)
        activity = _THROUGH_THE_NETWORK[rule.patterns](generator)
        shape, equalisation = rule.image_shape, rule.equalisation
        self.rule, self.layers = rule, layers
        self.network = SleepingNetwork(model, layers, activity, generator, image_shape=shape, equalisation=equalisation)
        self.learnings = {n: {id(pool): PoolLearning(pool, rule) for pool in p.sharing} for n, p in layers.items()}
        self.seen: dict[str, list[Tensor]] = {name: [] for name in layers}
        self.plastic, self.ends_step = set(layers), True
        self.one_at_a_time = rule.patterns == "disinhibited" and not (rule.momentum or rule.noise or equalisation < 1)

    def run(self) -> dict[str, LayerReport]:
        """Let all layers learn at once, or one after the other, and report."""
        rule, turns = self.rule, [set(self.layers)]
        sweep = self.one_at_a_time and rule.patterns_per_step is None
        batches = self.network.sweep if sweep else [rule.patterns_per_step or 64]
        if rule.in_turn or rule.equalisation < 1:
            order = self.network.explore(batches[0])
            turns = [{name} for name in order] if rule.in_turn else turns
        for self.plastic in turns:
            for _ in range(rule.steps):
                if all(learning.done for name in self.plastic for learning in self.learnings[name].values()):
                    break
                for i, number in enumerate(batches, start=1):
                    self.ends_step = i == len(batches)
                    self.network.present(number, self.learn)
                self.network.check_reached([name for name, windows in self.seen.items() if windows])
        return {name: _report(list(self.learnings[name].values()), torch.cat(self.seen[name])) for name in self.layers}

    def learn(self, name: str, pools: LayerPools, pool: Pool, windows: Tensor) -> None:
        """Take a step on what a pool sees, if it is its layer's turn."""
        if pool.neurons < 2:
            return
        if self.rule.patterns == "spontaneous":
            windows = windows - windows.mean(dim=-2, keepdim=True)
        scaled = windows / windows.square().mean().sqrt().clamp_min(1e-30)
        seen, learning = self.seen[name], self.learnings[name][id(pool)]
        if pool is pools.sharing[0] and sum(map(len, seen)) < 4 * pools.in_channels * prod(pools.period):
            seen.append(scaled[0] if scaled.dim() == 3 else scaled[0].mean(dim=0))
        if name in self.plastic:
            if self.one_at_a_time:
                learning.learn_one_at_a_time(scaled, ends_step=self.ends_step)
            else:
                learning.learn(scaled)


def _report(learnings: Sequence[PoolLearning], seen: Tensor) -> LayerReport:
    steps = max(learning.steps for learning in learnings)
    return layer_report([one.pool for one in learnings], [one.initial for one in learnings], seen=seen, steps=steps)


def _sleep_as_a_network(rule: Hebbian, model: nn.Module, layers: Mapping[str, LayerPools]) -> dict[str, LayerReport]:
    return _NetworkSleep(rule, model, layers).run()


# How patterns of each kind reach the pools, which learn meanwhile; a new kind needs an entry here.
_DRIVES: dict[str, Callable[[Hebbian, nn.Module, Mapping[str, LayerPools]], dict[str, LayerReport]]] = {
    "one_grid": partial(_sleep_alone, _one_grid),
    "independent": partial(_sleep_alone, _independent),
    "layer_by_layer": _sleep_as_a_network,
    "disinhibited": _sleep_as_a_network,
    "spontaneous": _sleep_as_a_network,
}
_THROUGH_THE_NETWORK: dict[str, Callable[[torch.Generator], Activity | None]] = {
    "layer_by_layer": lambda generator: None,
    "disinhibited": Disinhibited,
    "spontaneous": Spontaneous,
}
