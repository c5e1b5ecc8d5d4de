"""The Hebbian sleep of whole layers and networks: pools of neurons, driven by patterns until they share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from math import isfinite
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sleepconv.functional.sharing import hebbian_step_
from sleepconv.functional.sizes import check_finite
from sleepconv.sleep.patterns import (
    network_period,
    one_grid_patterns,
    pass_through,
    random_cell,
    standard_normal,
)
from sleepconv.sleep.pools import LayerPools, Pool, condition_number

Rate = float | Callable[[int], float]
LARGEST = 1e15  # of a decay, a noise or a rate: float32, in which weights may learn, still has room for its square


@dataclass(frozen=True)
class Settings:
    """What the Hebbian rule was told; see ``Hebbian``."""

    decay: float
    momentum: float
    inhibition: float | None
    noise: float
    rate: Rate | None
    steps: int
    target: float | None
    patterns_per_step: int | None
    seed: int

    def rate_at(self, step: int) -> float | None:
        """The learning rate of a step; none: the fastest that is stable."""
        if not callable(self.rate):
            return self.rate
        rate = self.rate(step)
        check_finite(f"rate({step})", rate, least=0, most=LARGEST)
        return rate


class DivergenceError(ValueError):
    """The learning rate was too high; the weights are as they were before the sleep.

    >>> from sleepconv.sleep import Hebbian
    >>> weight = torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))
    >>> Hebbian(rate=50.0, patterns="independent")(weight, torch.zeros(6, dtype=torch.int64))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sleepconv.sleep.hebbian.DivergenceError: ...
    """


class PoolLearning:
    """A pool in its sleep: w^init, the momentum, and when it is done."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self.pool, self.settings = pool, settings
        self.initial = pool.weight.clone()
        self.velocity = torch.zeros_like(pool.weight)
        # Sharing never spreads weights: twice their spread (and some room for noise) is divergence.
        size = float(self.initial.norm()) + 1e-30
        if not isfinite(size):
            raise ValueError("there are weights that are not finite; nothing can be learned from them")
        self.limit = 2 * self.spread() + (0.5 if settings.noise else 1e-3) * size
        self.largest = 10 * size
        self.steps, self.done = 0, False
        self.generator = torch.Generator().manual_seed(settings.seed)

    def spread(self) -> float:
        """How far the neurons are from their mean."""
        return float((self.pool.weight - self.pool.weight.mean(dim=1, keepdim=True)).norm())

    def learn(self, patterns: Tensor) -> None:
        """One step of Eq. 4 on these patterns (groups, patterns, inputs)."""
        if self.done:
            return
        settings = self.settings
        noise = None
        if settings.noise:
            shape = (self.pool.weight.shape[0], self.pool.neurons, *patterns.shape[1:])
            noise = settings.noise * standard_normal(shape, self.generator, patterns)
        rate = self.rate(patterns)
        options: dict[str, Any] = {"decay": settings.decay, "momentum": settings.momentum}
        options |= {"inhibition": settings.inhibition, "noise": noise}
        hebbian_step_(self.pool.weight, self.velocity, self.initial, patterns, rate=rate, **options)
        self.finish_step(rate, patterns)

    def sweep_one_grid(self, amplitude: float, rate: float) -> None:
        """Activate every input grid in turn, in closed form (no momentum, no noise).

        While another grid is active a weight only decays; while its own is, Eq. 4 has x = amplitude. Both act alike
        on each neuron's distance from the mean, and on the mean: affine maps, one pass over the weights per sweep.
        """
        if self.done:
            return
        if rate * self.settings.decay > 2:
            self.diverge(rate, None, amplitude**2)
        inhibition = self.settings.inhibition
        pull_on_mean = 0.0 if inhibition is None else 1 / (1 + inhibition)
        mean, start = (w.mean(dim=1, keepdim=True) for w in (self.pool.weight, self.initial))
        differences = self._swept(self.pool.weight - mean, self.initial - start, rate, amplitude**2)
        self.pool.weight.copy_(differences.add_(self._swept(mean, start, rate, pull_on_mean * amplitude**2)))
        self.finish_step(rate, None, amplitude**2)

    def _swept(self, value: Tensor, initial: Tensor, rate: float, pull: float) -> Tensor:
        inputs, idle, own = value.shape[-1], 1 - rate * self.settings.decay, rate * pull
        decays_after = idle ** torch.arange(inputs - 1, -1, -1, dtype=torch.float64)
        pulled = initial * (own * decays_after).to(initial)
        return value.sub_(initial).mul_(idle ** (inputs - 1) * (idle - own)).sub_(pulled).add_(initial)

    def rate(self, patterns: Tensor) -> float:
        """The learning rate of this step; by default 1 / (largest variance of these inputs + γ), which is stable."""
        rate = self.settings.rate_at(self.steps)
        return self.stable_rate(patterns) if rate is None else rate

    def stable_rate(self, patterns: Tensor) -> float:
        """A rate at which no direction of these patterns can overshoot (momentum adds up steps: smaller ones then)."""
        extra = self.settings.noise**2 * patterns.shape[-1]
        return (1 - self.settings.momentum) / (_largest_variance(patterns) + extra + self.settings.decay)

    def finish_step(self, rate: float, patterns: Tensor | None, variance: float = 0.0) -> None:
        """Notice divergence, and the end."""
        self.steps += 1
        size = float(self.pool.weight.norm())
        if not isfinite(size) or size > self.largest or self.spread() > self.limit:
            self.diverge(rate, patterns, variance)
        target = self.settings.target
        if target is not None and (self.steps % 4 == 0 or patterns is None):
            self.done = self.pool.negative_log_snr() < target

    def diverge(self, rate: float, patterns: Tensor | None, variance: float) -> NoReturn:
        """Say which rates are stable."""
        stable = 1 / (variance + self.settings.decay) if patterns is None else self.stable_rate(patterns)
        raise DivergenceError(f"the weights diverge at rate {rate:.3g}; a rate below {2 * stable:.3g} is stable here")


@dataclass(frozen=True)
class LayerReport:
    """How a layer slept: −log SNR (the pool that shares least), the inputs' condition number, the steps taken.

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


def sleep_alone(layers: Mapping[str, LayerPools], settings: Settings, kind: str) -> dict[str, LayerReport]:
    """Every layer by itself: ``one_grid`` or ``independent`` patterns."""
    return {name: _sleep_layer(pools, settings, kind) for name, pools in layers.items()}


def _sleep_layer(pools: LayerPools, settings: Settings, kind: str) -> LayerReport:
    condition, steps = float("nan"), 0
    for number, pool in enumerate(pools.sharing):
        learning = PoolLearning(pool, settings)
        drive = _one_grid if kind == "one_grid" else _independent
        seen = drive(pools, learning)
        condition = condition_number(seen) if number == 0 else condition
        steps = max(steps, learning.steps)
    return LayerReport(_worst(pools), condition, steps)


def _one_grid(pools: LayerPools, learning: PoolLearning) -> Tensor:
    settings, inputs = learning.settings, pools.inputs
    patterns = one_grid_patterns(inputs).to(learning.initial)
    if settings.momentum or settings.noise or settings.patterns_per_step:
        size = settings.patterns_per_step or inputs
        for step in range(settings.steps):
            if learning.done:
                break
            chosen = (torch.arange(size, device=patterns.device) + step * size) % inputs
            learning.learn(patterns[chosen].expand(pools.groups, -1, -1))
        return patterns
    amplitude = inputs**0.5
    for step in range(settings.steps):
        if learning.done:
            break
        rate = settings.rate_at(step)
        learning.sweep_one_grid(amplitude, 1 / (inputs + settings.decay) if rate is None else rate)
    return patterns


def _independent(pools: LayerPools, learning: PoolLearning) -> Tensor:
    settings = learning.settings
    size = settings.patterns_per_step or max(1, pools.inputs // 4)
    generator = torch.Generator().manual_seed(settings.seed)
    seen: list[Tensor] = []
    for _ in range(settings.steps):
        if learning.done:
            break
        windows = pools.windows(learning.pool, random_cell(pools, size, generator, learning.initial))
        learning.learn(windows)
        if len(seen) * size < 4 * pools.inputs:
            seen.append(windows[0])
    return torch.cat(seen) if seen else learning.initial.new_zeros(0, pools.inputs)


def sleep_layer_by_layer(
    model: nn.Module, layers: Mapping[str, LayerPools], settings: Settings, image_shape: tuple[int, ...], in_turn: bool
) -> dict[str, LayerReport]:
    """Patterns made by the input layer pass from layer to layer; all learn at once, or one after the other."""
    period = network_period({name: pools.layer for name, pools in layers.items()})
    learnings = {name: {id(pool): PoolLearning(pool, settings) for pool in p.sharing} for name, p in layers.items()}
    seen: dict[str, list[Tensor]] = {name: [] for name in layers}
    awake: set[str] = set(layers)

    def plasticity(name: str, pools: LayerPools, pool: Pool, windows: Tensor) -> None:
        scaled = windows / windows.square().mean().sqrt().clamp_min(1e-30)
        if pool.neurons < 2:
            return
        if pool is pools.sharing[0] and len(seen[name]) * len(scaled[0]) < 4 * pools.inputs:
            seen[name].append(scaled[0])
        if name in awake:
            learnings[name][id(pool)].learn(scaled)

    generator = torch.Generator().manual_seed(settings.seed)
    like = next(iter(layers.values())).layer.weight
    for turn in [{name} for name in layers] if in_turn else [set(layers)]:
        awake.clear()
        awake.update(turn)
        for _ in _steps(settings, [learnings[name] for name in turn]):
            images = _periodic_images(settings.patterns_per_step or 64, image_shape, period, generator, like)
            try:
                pass_through(model, layers, images, plasticity, period)
            except RuntimeError as error:
                shape = f"(channels, *size) = {image_shape}"
                raise ValueError(f"the network does not take images of {shape} ({error}); give image_shape") from error
            _check_reached(seen)
    return {name: _report(pools, learnings[name], seen[name]) for name, pools in layers.items()}


def _check_reached(seen: Mapping[str, list[Tensor]]) -> None:
    missed = ", ".join(name for name, windows in seen.items() if not windows)
    if missed:
        raise ValueError(
            f"no pattern reached {missed}: the network, in eval mode, does not call what sleeps there; exclude it from "
            'sleep, or use patterns="one_grid" or "independent", or Instant()'
        )


def _report(pools: LayerPools, learnings: dict[int, PoolLearning], seen: list[Tensor]) -> LayerReport:
    steps = max(learning.steps for learning in learnings.values())
    return LayerReport(_worst(pools), condition_number(torch.cat(seen)), steps)


def _steps(settings: Settings, learnings: list[dict[int, PoolLearning]]) -> Any:
    for step in count():
        if step >= settings.steps or all(learning.done for pools in learnings for learning in pools.values()):
            return
        yield step


def _periodic_images(
    number: int, shape: tuple[int, ...], period: int, generator: torch.Generator, like: Tensor
) -> Tensor:
    channels, *size = shape
    cell = standard_normal((number, channels, *(period,) * len(size)), generator, like)
    for axis, n in enumerate(size):
        cell = cell.index_select(2 + axis, torch.arange(n, device=cell.device) % period)
    return cell


def _worst(pools: LayerPools) -> float:
    return max(pool.negative_log_snr() for pool in pools.sharing)


def _largest_variance(patterns: Tensor, rounds: int = 12) -> float:
    """The largest eigenvalue of the patterns' covariance (power iteration, and a tenth more to be safe)."""
    vector = patterns.mean(dim=1, keepdim=True) + patterns[:, :1]
    for _ in range(rounds):
        vector = torch.nn.functional.normalize(vector, dim=-1)
        vector = torch.bmm(torch.bmm(vector, patterns.mT), patterns) / patterns.shape[1]
    return 1.1 * float(vector.norm(dim=-1).max())
