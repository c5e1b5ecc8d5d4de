"""Sharing when no two neurons see quite the same input: the noisy theorem of the appendix, simulated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional import hebbian_step_
from sleepconv.simulation.convergence import one_thread
from sleepconv.simulation.theory import fixed_point, noisy_error_bound, noisy_fixed_point


@dataclass(frozen=True)
class NoisyConvergence:
    """Hebbian sharing (Eq. 4) with noise in each neuron's input and learning rates c / (t + delay).

    Each step activates one input grid, drawn at random: patterns of covariance I. The theorem's error falls
    as 1/t if cγ > 1, down to a floor that the noise leaves.

    Args:
        noises: standard deviations σ of the noise, per input.
        decay: γ.
        rate: c.
        delay: steps by which the rates are further down the 1/t course when learning begins.

    >>> NoisyConvergence(decay=0.1)
    Traceback (most recent call last):
    ValueError: rate·decay is 0.2; errors fall as 1/t only if it exceeds 1
    """

    steps: int = 100_000
    noises: tuple[float, ...] = (0.0, 0.1, 0.3)
    decay: float = 1.0
    rate: float = 2.0
    delay: int = 2000
    kernel_size: int = 3
    runs: int = 10
    neurons: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse setups without a floor, or that would not come down to it as 1/t."""
        if self.decay <= 0:
            raise ValueError(
                f"decay={self.decay} with noisy inputs: the noise then shrinks all weights to nothing. "
                "Choose a decay above zero"
            )
        if self.rate * self.decay <= 1:
            raise ValueError(f"rate·decay is {self.rate * self.decay:.3g}; errors fall as 1/t only if it exceeds 1")

    @property
    def recorded_steps(self) -> list[int]:
        """Return the steps after which the error is taken, at equal distances on a logarithmic axis."""
        return sorted({0} | {round(self.steps ** (i / 120)) for i in range(121)})

    @property
    def samples(self) -> int:
        """Return how often ``curves`` calls ``advance``."""
        return len(self.recorded_steps)

    def curves(self, advance: Callable[[], object] = lambda: None) -> list[dict[str, Any]]:
        r"""Simulate; errors, floors and bounds are :math:`\|W - W^*\|_F^2 / \|W^*\|_F^2`, W* from Eq. 5.

        >>> noiseless, noisy = NoisyConvergence(steps=3, noises=(0.0, 0.1), runs=2, neurons=4).curves()
        >>> noiseless["floor"], 0 < noisy["floor"] < noisy["bound"][-1]
        (0.0, True)
        """
        generator = torch.Generator().manual_seed(self.seed)
        shape = (self.runs, self.neurons, self.kernel_size**2)
        initial = 1 + torch.randn(shape, dtype=torch.float64, generator=generator)
        settled = fixed_point(initial, self.covariance, decay=self.decay)
        samples = []
        with one_thread():
            for weight in self._weights(initial, generator):
                samples.append(_relative_error(weight.squeeze(2).unflatten(0, (-1, self.runs)), settled))
                advance()
        errors = torch.stack(samples, dim=-1)
        return [
            {
                "noise": noise,
                "steps": self.recorded_steps,
                "error": errors[i].tolist(),
                **self._theory(initial, noise),
            }
            for i, noise in enumerate(self.noises)
        ]

    @property
    def covariance(self) -> Float[Tensor, "inputs inputs"]:
        """Return C of the patterns, which have one active input each."""
        return torch.eye(self.kernel_size**2, dtype=torch.float64)

    def _weights(self, initial: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
        start = initial.repeat(len(self.noises), 1, 1).unsqueeze(2)
        weight, velocity, recorded = start.clone(), torch.zeros_like(start), set(self.recorded_steps)
        deviation = torch.tensor(self.noises, dtype=torch.float64).repeat_interleave(self.runs).reshape(-1, 1, 1, 1)
        unit_noise = torch.empty_like(start, dtype=torch.float32)  # drawn five times faster than in float64
        patterns = self.covariance * self.kernel_size
        yield weight
        for step in range(1, self.steps + 1):
            chosen = torch.randint(len(patterns), (self.runs,), generator=generator).repeat(len(self.noises))
            noise = unit_noise.normal_(generator=generator) * deviation
            rate = self.rate / (step + self.delay)
            hebbian_step_(weight, velocity, start, patterns[chosen, None], rate=rate, decay=self.decay, noise=noise)
            if step in recorded:
                yield weight

    def _theory(self, initial: Float[Tensor, "runs neurons inputs"], noise: float) -> dict[str, Any]:
        settled = fixed_point(initial, self.covariance, decay=self.decay)
        floors = [noisy_fixed_point(run, self.covariance, decay=self.decay, noise=noise) for run in initial]
        rates = [self.rate / (step + self.delay) for step in range(1, self.steps + 1)]
        inputs = self.kernel_size**2
        # E‖x + ξ‖⁴ for ‖x‖² = inputs and Gaussian ξ of variance σ².
        fourth = inputs**2 * (1 + noise**2) ** 2 + 4 * inputs * noise**2 + 2 * inputs * noise**4
        bounds = [
            noisy_error_bound(run, self.covariance, rates, decay=self.decay, noise=noise, fourth_moment=fourth)
            for run in initial
        ]
        relative = torch.stack(bounds) / settled.square().sum(dim=(1, 2))[:, None]
        return {
            "floor": float(_relative_error(torch.stack(floors), settled).mean()),
            "bound": relative.mean(dim=0)[self.recorded_steps].tolist(),
        }


def _relative_error(weight: Float[Tensor, "*noises runs neurons inputs"], settled: Tensor) -> Tensor:
    return (weight - settled).square().sum(dim=(-2, -1)) / settled.square().sum(dim=(-2, -1))
