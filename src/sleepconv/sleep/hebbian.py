"""The Hebbian rule (Eq. 4 of Pogodin et al., 2021) at work on layers and networks.

``Hebbian.sleep_`` is a sleep from beginning to end. It copies the weights of each layer into pools of neurons that
share (``sleepconv.sleep.pools``), shows them patterns (``sleepconv.sleep.patterns``) by one of ``_DRIVES``, and gives
the layers what their pools have learned. A pool learns in ``_PoolLearning``, whose step is Eq. 4,
``sleepconv.functional.hebbian_step_``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf, isfinite, prod
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sleepconv.functional.sharing import hebbian_step_
from sleepconv.functional.sizes import check_finite, check_int
from sleepconv.sleep.layers import Border, check_border, check_something_to_share, driven_grids
from sleepconv.sleep.patterns import (
    Activity,
    Disinhibited,
    Spontaneous,
    network_period,
    one_grid_patterns,
    pass_through,
    periodic_images,
    random_cell,
    standard_normal,
)
from sleepconv.sleep.pools import LayerPools, Pool, condition_number
from sleepconv.sleep.rules import (
    LARGEST,
    DivergenceError,
    OnAnything,
    Rate,
    check_number,
    check_rate,
    check_seed,
    write_back_,
)
from sleepconv.sleep.watching import notice, watched

# A sleep of more takes hours even for a small layer, or more memory than there is.
_MOST_STEPS, _MOST_PATTERNS, _MOST_PIXELS = 10**6, 10**5, 10**8
# Presentations that pass through a network together, when a step is a whole sweep of them.
_AT_ONCE = 256


@dataclass(frozen=True)
class LayerReport:
    """How a layer slept: −log SNR (of the pool that shares least), the inputs' condition number, the steps taken.

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
        in_turn: with patterns that pass through the network, let layers learn one after the other instead of together.
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
            pixels = prod(check_int("image_shape", size) for size in self.image_shape)
            check_number("pixels of image_shape", pixels, most=_MOST_PIXELS)
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
    drive: "Callable[[LayerPools, _PoolLearning], Tensor]",
    rule: Hebbian,
    model: nn.Module,
    layers: Mapping[str, LayerPools],
) -> dict[str, LayerReport]:
    """Drive every pool of every layer by itself."""
    reports = {}
    for name, pools in layers.items():
        steps, seen = 0, None
        for pool in pools.sharing:
            learning = _PoolLearning(pool, rule)
            patterns = drive(pools, learning)
            seen = patterns if seen is None else seen
            steps = max(steps, learning.steps)
        assert seen is not None
        reports[name] = _report(pools, steps, seen)
    return reports


def _one_grid(pools: LayerPools, learning: "_PoolLearning") -> Tensor:
    rule, inputs = learning.rule, pools.inputs
    patterns = one_grid_patterns(inputs).to(learning.initial)
    in_closed_form = not (rule.momentum or rule.noise or rule.patterns_per_step)
    size = rule.patterns_per_step or inputs
    for step in range(rule.steps):
        if learning.done:
            break
        if in_closed_form:
            rate = _rate_at(rule, step)
            learning.sweep_one_grid(inputs**0.5, 1 / (inputs + rule.decay) if rate is None else rate)
        else:
            chosen = (torch.arange(size, device=patterns.device) + step * size) % inputs
            learning.learn(patterns[chosen].expand(pools.groups, -1, -1))
    return patterns


def _independent(pools: LayerPools, learning: "_PoolLearning") -> Tensor:
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


def _sleep_as_a_network(rule: Hebbian, model: nn.Module, layers: Mapping[str, LayerPools]) -> dict[str, LayerReport]:
    """Send random periodic images through the network; all layers learn at once, or one after the other."""
    period = network_period({name: pools.layer for name, pools in layers.items()})
    learnings = {name: {id(pool): _PoolLearning(pool, rule) for pool in p.sharing} for name, p in layers.items()}
    seen: dict[str, list[Tensor]] = {name: [] for name in layers}
    awake: set[str] = set()
    one_at_a_time = rule.patterns == "disinhibited" and not (rule.momentum or rule.noise)

    def plasticity(name: str, pools: LayerPools, pool: Pool, windows: Tensor) -> None:
        if pool.neurons < 2:
            return
        if rule.patterns == "spontaneous":
            windows = windows - windows.mean(dim=1, keepdim=True)
        scaled = windows / windows.square().mean().sqrt().clamp_min(1e-30)
        if pool is pools.sharing[0] and len(seen[name]) * len(scaled[0]) < 4 * pools.inputs:
            seen[name].append(scaled[0])
        if name in awake and one_at_a_time:
            learnings[name][id(pool)].learn_one_at_a_time(scaled)
        elif name in awake:
            learnings[name][id(pool)].learn(scaled)

    first = next(iter(layers.values())).layer
    shape = rule.image_shape or (first.in_channels, *first.input_size)
    generator = torch.Generator().manual_seed(rule.seed)
    activity = _THROUGH_THE_NETWORK[rule.patterns](generator)
    passes = [rule.patterns_per_step or 64]
    if one_at_a_time and rule.patterns_per_step is None:
        grids = max(pools.in_channels * period ** len(pools.kernel) for pools in layers.values())
        passes = [min(_AT_ONCE, grids - done) for done in range(0, grids, _AT_ONCE)]
    for turn in [{name} for name in layers] if rule.in_turn else [set(layers)]:
        awake.clear()
        awake.update(turn)
        for _ in range(rule.steps):
            if all(learning.done for name in turn for learning in learnings[name].values()):
                break
            for number in passes:
                images = periodic_images(number, shape, period, generator, first.weight)
                try:
                    pass_through(model, layers, images, plasticity, period, activity)
                except RuntimeError as error:
                    raise ValueError(
                        f"the network does not take images of (channels, *size) = {shape} ({error}); give image_shape"
                    ) from error
            _check_reached(seen)
    steps = {name: max(learning.steps for learning in learnings[name].values()) for name in layers}
    return {name: _report(pools, steps[name], torch.cat(seen[name])) for name, pools in layers.items()}


def _check_reached(seen: Mapping[str, list[Tensor]]) -> None:
    missed = ", ".join(name for name, windows in seen.items() if not windows)
    if missed:
        raise ValueError(
            f"no pattern reached {missed}: the network, in eval mode, does not call these layers; exclude them from "
            'sleep, or use patterns="one_grid" or "independent", or Instant()'
        )


def _report(pools: LayerPools, steps: int, seen: Tensor) -> LayerReport:
    worst = max(pool.negative_log_snr() for pool in pools.sharing)
    return LayerReport(worst, condition_number(seen), steps)


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


class _PoolLearning:
    """A pool in its sleep: w^init, the momentum, and whether it is done."""

    def __init__(self, pool: Pool, rule: Hebbian) -> None:
        self.pool, self.rule = pool, rule
        self.initial = pool.weight.clone()
        self.velocity = torch.zeros_like(pool.weight)
        size = float(self.initial.norm()) + 1e-30
        if not isfinite(size):
            raise ValueError("the weights contain NaN or infinity")
        # Sharing never spreads weights: twice their spread (with some room for noise) is divergence.
        self.limit = 2 * self.spread() + (0.5 if rule.noise else 1e-3) * size
        self.largest = 10 * size
        self.steps, self.done = 0, False
        notice(pool, pool.weight)
        self.generator = torch.Generator().manual_seed(rule.seed)

    def learn(self, patterns: Tensor) -> None:
        """Take one step of Eq. 4 on these patterns (groups, patterns, inputs)."""
        if self.done:
            return
        rule, noise = self.rule, None
        if rule.noise:
            shape = (self.pool.weight.shape[0], self.pool.neurons, *patterns.shape[1:])
            noise = rule.noise * standard_normal(shape, self.generator, patterns)
        chosen = _rate_at(rule, self.steps)
        rate = self.stable_rate(patterns) if chosen is None else chosen
        hebbian_step_(
            self.pool.weight,
            self.velocity,
            self.initial,
            patterns,
            rate=rate,
            decay=rule.decay,
            momentum=rule.momentum,
            inhibition=rule.inhibition,
            noise=noise,
        )
        notice(self.pool, self.pool.weight, patterns)
        self.finish_step(rate, patterns)

    def sweep_one_grid(self, amplitude: float, rate: float) -> None:
        """Activate every input grid in turn, in closed form (no momentum, no noise).

        While another grid is active a weight only decays; while its own is, Eq. 4 has x = amplitude. Both act alike
        on each neuron's distance from the mean, and on the mean: affine maps, one pass over the weights per sweep.
        """
        if self.done:
            return
        if rate * self.rule.decay > 2:
            self.diverge(rate, None, amplitude**2)
        inhibition = self.rule.inhibition
        pull_on_mean = 0.0 if inhibition is None else 1 / (1 + inhibition)
        mean, start = (w.mean(dim=1, keepdim=True) for w in (self.pool.weight, self.initial))
        differences = self._swept(self.pool.weight - mean, self.initial - start, rate, amplitude**2)
        self.pool.weight.copy_(differences.add_(self._swept(mean, start, rate, pull_on_mean * amplitude**2)))
        if watched():
            one_at_a_time = amplitude * torch.eye(self.pool.weight.shape[-1]).to(self.initial)
            notice(self.pool, self.pool.weight, one_at_a_time.expand(len(self.initial), -1, -1))
        self.finish_step(rate, None, amplitude**2)

    def learn_one_at_a_time(self, patterns: Tensor) -> None:
        """Take a step of Eq. 4 for each of these patterns, of whose inputs one at most is active.

        A weight moves while its own input is active, and decays while another is. Both act alike on each neuron's
        distance from the mean, and on the mean: affine maps, composed here for all patterns, one pass over the weights.
        """
        if self.done:
            return
        powers = patterns.double().square()
        power = powers.sum(dim=-1, keepdim=True)
        chosen = _rate_at(self.rule, self.steps)
        # By default each presentation has the highest stable rate, unless the active neurons hardly fire.
        stable = (power > 0) / (power.clamp_min(0.1 * power.amax()) + self.rule.decay)
        rates = stable if chosen is None else torch.full_like(power, chosen)
        inhibition = self.rule.inhibition
        pull_on_mean = 0.0 if inhibition is None else 1 / (1 + inhibition)
        mean, start = (w.mean(dim=1, keepdim=True) for w in (self.pool.weight, self.initial))
        differences = self._presented(self.pool.weight - mean, self.initial - start, rates, powers)
        self.pool.weight.copy_(differences.add_(self._presented(mean, start, rates, pull_on_mean * powers)))
        notice(self.pool, self.pool.weight, patterns)
        self.finish_step(float(rates.max()), None, float(power.max()))

    def _presented(self, value: Tensor, initial: Tensor, rates: Tensor, pulls: Tensor) -> Tensor:
        """Apply v ← v − rate·(pull·v + γ(v − initial)) for one presentation after the other."""
        factors = 1 - rates * (self.rule.decay + pulls)
        later = factors.flip(1).cumprod(dim=1).flip(1)
        added = (self.rule.decay * rates * torch.cat([later[:, 1:], torch.ones_like(later[:, :1])], dim=1)).sum(dim=1)
        kept = later[:, 0]
        return value.mul_(kept[:, None, None].to(value)).addcmul_(initial, added[:, None, None].to(value))

    def _swept(self, value: Tensor, initial: Tensor, rate: float, pull: float) -> Tensor:
        inputs, idle, own = value.shape[-1], 1 - rate * self.rule.decay, rate * pull
        decays_after = idle ** torch.arange(inputs - 1, -1, -1, dtype=torch.float64)
        pulled = initial * (own * decays_after).to(initial)
        return value.sub_(initial).mul_(idle ** (inputs - 1) * (idle - own)).sub_(pulled).add_(initial)

    def stable_rate(self, patterns: Tensor) -> float:
        """Return (1 − momentum) / (largest variance of these inputs + γ), at which no direction can overshoot."""
        noise = self.rule.noise**2 * patterns.shape[-1]
        return (1 - self.rule.momentum) / (_largest_variance(patterns) + noise + self.rule.decay)

    def finish_step(self, rate: float, patterns: Tensor | None, variance: float = 0.0) -> None:
        """Count the step, and notice divergence and the end."""
        self.steps += 1
        size = float(self.pool.weight.norm())
        if not isfinite(size) or size > self.largest or self.spread() > self.limit:
            self.diverge(rate, patterns, variance)
        target = self.rule.target
        if target is not None and (self.steps % 4 == 0 or patterns is None):
            self.done = self.pool.negative_log_snr() < target

    def spread(self) -> float:
        """Return how far the neurons are from their mean."""
        return float((self.pool.weight - self.pool.weight.mean(dim=1, keepdim=True)).norm())

    def diverge(self, rate: float, patterns: Tensor | None, variance: float) -> NoReturn:
        """Raise an error that names the stable rates."""
        stable = 1 / (variance + self.rule.decay) if patterns is None else self.stable_rate(patterns)
        raise DivergenceError(f"the weights diverge at rate {rate:.3g}; a rate below {2 * stable:.3g} is stable here")


def _rate_at(rule: Hebbian, step: int) -> float | None:
    """Return the learning rate that was chosen for a step; None: the highest that is stable."""
    if not callable(rule.rate):
        return rule.rate
    rate = rule.rate(step)
    check_finite(f"rate({step})", rate, least=0, most=LARGEST)
    return rate


def _largest_variance(patterns: Tensor, rounds: int = 12) -> float:
    """Estimate the largest eigenvalue of the patterns' covariance (power iteration, plus a tenth to be safe)."""
    vector = patterns.mean(dim=1, keepdim=True) + patterns[:, :1]
    for _ in range(rounds):
        vector = torch.nn.functional.normalize(vector, dim=-1)
        vector = torch.bmm(torch.bmm(vector, patterns.mT), patterns) / patterns.shape[1]
    return 1.1 * float(vector.norm(dim=-1).max())
