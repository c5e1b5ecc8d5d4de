"""A pool of neurons that learns by the Hebbian rule (Eq. 4 of Pogodin et al., 2021)."""

from math import isfinite
from typing import TYPE_CHECKING, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional.sharing import hebbian_step_
from sleepconv.functional.sizes import check_finite
from sleepconv.sleep.patterns import standard_normal
from sleepconv.sleep.pools import Pool
from sleepconv.sleep.rules import LARGEST, DivergenceError
from sleepconv.sleep.watching import notice, watched

if TYPE_CHECKING:
    from sleepconv.sleep.hebbian import Hebbian


class PoolLearning:
    """A pool in its sleep: w^init, the momentum, and whether it is done."""

    def __init__(self, pool: Pool, rule: "Hebbian") -> None:
        self.pool, self.rule = pool, rule
        self.initial = pool.weight.clone()
        self.velocity = torch.zeros_like(pool.weight)
        size = float(self.initial.norm()) + 1e-30
        if not isfinite(size):
            raise ValueError("the weights contain NaN or infinity")
        # Sharing never spreads weights: twice their spread (with some room if neurons see different things) diverges.
        self.limit = 2 * self.spread() + (0.5 if rule.noise or rule.equalisation < 1 else 1e-3) * size
        self.largest = 10 * size
        self.steps, self.done = 0, False
        notice(pool, pool.weight)
        self.generator = torch.Generator().manual_seed(rule.seed)

    def learn(self, patterns: Tensor) -> None:
        """Take one step of Eq. 4 on these patterns (groups, patterns, inputs).

        If neurons see different things, patterns are (groups, neurons, patterns, inputs).
        """
        if self.done:
            return
        rule, noise = self.rule, None
        chosen = rate_at(rule, self.steps)
        rate = self.stable_rate(patterns.flatten(0, -3)) if chosen is None else chosen
        if patterns.dim() == 4:
            own, patterns = patterns, patterns.mean(dim=1)
            noise = own - patterns.unsqueeze(1)
        if rule.noise:
            shape = (self.pool.weight.shape[0], self.pool.neurons, *patterns.shape[1:])
            of_inputs = rule.noise * standard_normal(shape, self.generator, patterns)
            noise = of_inputs if noise is None else noise + of_inputs
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

    def learn_one_at_a_time(self, patterns: Tensor, *, ends_step: bool = True) -> None:
        """Take a step of Eq. 4, or a part of it, for each of these patterns, of whose inputs one at most is active.

        A weight moves while its own input is active, and decays while another is. Both act alike on each neuron's
        distance from the mean, and on the mean: affine maps, composed here for all patterns, one pass over the weights.
        """
        if self.done:
            return
        powers = patterns.double().square()
        power = powers.sum(dim=-1, keepdim=True)
        chosen = rate_at(self.rule, self.steps)
        # By default each presentation has the highest stable rate, unless the active neurons hardly fire.
        stable = (power > 0) / (power.clamp_min(0.1 * power.amax()) + self.rule.decay)
        rates = stable if chosen is None else torch.full_like(power, chosen)
        inhibition = self.rule.inhibition
        pull_on_mean = 0.0 if inhibition is None else 1 / (1 + inhibition)
        mean, start = (w.mean(dim=1, keepdim=True) for w in (self.pool.weight, self.initial))
        differences = self._presented(self.pool.weight - mean, self.initial - start, rates, powers)
        self.pool.weight.copy_(differences.add_(self._presented(mean, start, rates, pull_on_mean * powers)))
        notice(self.pool, self.pool.weight, patterns)
        self.finish_step(float(rates.max()), None, float(power.max()), ends=ends_step)

    def _presented(self, value: Tensor, initial: Tensor, rates: Tensor, pulls: Tensor) -> Tensor:
        """Apply v ← v − rate·(pull·v + γ(v − initial)) for one presentation after the other."""
        decays = self.rule.decay * rates
        return presented(value, initial, 1 - decays - rates * pulls, decays.expand_as(pulls))

    def _swept(self, value: Tensor, initial: Tensor, rate: float, pull: float) -> Tensor:
        inputs, idle, own = value.shape[-1], 1 - rate * self.rule.decay, rate * pull
        decays_after = idle ** torch.arange(inputs - 1, -1, -1, dtype=torch.float64)
        pulled = initial * (own * decays_after).to(initial)
        return value.sub_(initial).mul_(idle ** (inputs - 1) * (idle - own)).sub_(pulled).add_(initial)

    def stable_rate(self, patterns: Tensor) -> float:
        """Return (1 − momentum) / (largest variance of these inputs + γ), at which no direction can overshoot."""
        noise = self.rule.noise**2 * patterns.shape[-1]
        return (1 - self.rule.momentum) / (_largest_variance(patterns) + noise + self.rule.decay)

    def finish_step(self, rate: float, patterns: Tensor | None, variance: float = 0.0, *, ends: bool = True) -> None:
        """Count the step if it ends, and notice divergence and the end."""
        self.steps += ends
        size = float(self.pool.weight.norm())
        if not isfinite(size) or size > self.largest or self.spread() > self.limit:
            self.diverge(rate, patterns, variance)
        target = self.rule.target
        if target is not None and ends and (self.steps % 4 == 0 or patterns is None):
            self.done = self.pool.negative_log_snr() < target

    def spread(self) -> float:
        """Return how far the neurons are from their mean."""
        return float((self.pool.weight - self.pool.weight.mean(dim=1, keepdim=True)).norm())

    def diverge(self, rate: float, patterns: Tensor | None, variance: float) -> NoReturn:
        """Raise an error that names the stable rates."""
        stable = 1 / (variance + self.rule.decay) if patterns is None else self.stable_rate(patterns)
        raise DivergenceError(f"the weights diverge at rate {rate:.3g}; a rate below {2 * stable:.3g} is stable here")


def presented(
    value: Float[Tensor, "groups neurons channels inputs"],
    initial: Float[Tensor, "groups neurons channels inputs"],
    factors: Float[Tensor, "groups presentations inputs"],
    additions: Float[Tensor, "groups presentations inputs"],
) -> Float[Tensor, "groups neurons channels inputs"]:
    """Apply v ← factor·v + addition·initial for one presentation after the other, in one pass over the values.

    >>> v, initial = torch.tensor([1.0, 2.0]).view(2, 1, 1, 1, 1).unbind()
    >>> presented(v, initial, torch.tensor([0.5, 0.25]).view(1, 2, 1), torch.tensor([0.0, 3.0]).view(1, 2, 1)).item()
    6.125
    """
    later = factors.flip(1).cumprod(dim=1).flip(1)
    added = (additions * torch.cat([later[:, 1:], torch.ones_like(later[:, :1])], dim=1)).sum(dim=1)
    kept = later[:, 0]
    return value.mul_(kept[:, None, None].to(value)).addcmul_(initial, added[:, None, None].to(value))


def rate_at(rule: "Hebbian", step: int) -> float | None:
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
