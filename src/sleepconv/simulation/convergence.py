"""Neurons that come to share, simulated: the curves of Fig. 4 and 5, and of the noisy theorem in the appendix.

``Convergence`` follows the Hebbian rule or the circuit; ``NoisyConvergence`` follows the Hebbian rule when no two
neurons see quite the same input.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional import hebbian_step_, weight_snr
from sleepconv.functional.sizes import check_finite
from sleepconv.simulation.circuit import CircuitConstants, CircuitState, paper_learning_rate, present_each_
from sleepconv.simulation.theory import fixed_point, least_negative_log_snr, noisy_error_bound, noisy_fixed_point

_Curve = dict[str, Any]
_Weights = Float[Tensor, "systems neurons channels inputs"]

# Inputs are drawn, and presentations condensed, this many at a time: enough to be fast, few enough to cache.
_AT_ONCE = 100


@dataclass(frozen=True)
class Convergence:
    """A simulation of neurons that come to share; defaults are the paper's (A.5, details for convergence plots).

    Args:
        rule: "hebbian" (Eq. 4, or the appendix's biased update) or "circuit" (Eq. 8).
        steps: number of inputs shown.
        inhibition: α; None means perfect inhibition, which only the Hebbian rule can have.
        input_mean: inputs are drawn from N(input_mean, 1); weights always from N(1, 1).

    >>> setup = Convergence("circuit", steps=10_000, inhibition=10.0)
    >>> setup.recorded_steps[-1], setup.samples > 600
    (10000, True)
    """

    rule: str
    steps: int
    inhibition: float | None = None
    input_mean: float = 1.0
    kernel_sizes: tuple[int, ...] = (3, 6, 9)
    decays: tuple[float, ...] = (0.1, 0.01, 0.001)
    runs: int = 10
    neurons: int = 100
    momentum: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that this can be simulated."""
        if self.rule not in ("hebbian", "circuit"):
            raise ValueError(f"`rule` must be 'hebbian' or 'circuit', got {self.rule!r}")
        if self.rule == "circuit" and self.inhibition is None:
            raise ValueError("a circuit has finite inhibition; use inhibition=10.0, the paper's")
        if min(self.steps, self.runs) < 1 or self.neurons < 2:
            raise ValueError(
                f"`steps` and `runs` must be at least 1 and `neurons` at least 2, got steps={self.steps}, "
                f"runs={self.runs}, neurons={self.neurons}"
            )
        for decay in self.decays:
            check_finite("decays", decay, least=0)
        if self.inhibition is not None:
            check_finite("inhibition", self.inhibition, least=0)

    @property
    def recorded_steps(self) -> list[int]:
        """The steps after which the SNR is measured: 200 at equal distances, and some more at first."""
        even = {round(self.steps * i / 200) for i in range(201)}
        early = {round(self.steps ** (i / 40)) for i in range(41)}
        return sorted(even | early)

    @property
    def samples(self) -> int:
        """Number of times that ``curves`` calls ``advance``."""
        return len(self.recorded_steps) * len(self.kernel_sizes)

    def curves(self, advance: Callable[[], object] = lambda: None) -> list[_Curve]:
        """Simulate, and return one curve per kernel size and decay: −log SNR of each run, and its theory.

        >>> setup = Convergence("hebbian", steps=10, kernel_sizes=(1,), decays=(0.1,), runs=2, neurons=5)
        >>> [curve] = setup.curves()
        >>> curve["steps"], len(curve["negative_log_snr"])
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 2)
        """
        with one_thread():
            return [curve for size in self.kernel_sizes for curve in _curves_of_one_size(self, size, advance)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: more do not help such small tensors, and are slow on a busy machine.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _curves_of_one_size(setup: Convergence, kernel_size: int, advance: Callable[[], object]) -> list[_Curve]:
    generator = torch.Generator().manual_seed(1000 * setup.seed + kernel_size)
    shape = (setup.runs, setup.neurons, kernel_size**2)
    initial = 1 + torch.randn(shape, dtype=torch.float64, generator=generator)
    simulate = _hebbian_samples if setup.rule == "hebbian" else _circuit_samples
    samples = []
    for sample in simulate(setup, initial, generator):
        samples.append(sample)
        advance()
    by_decay = torch.stack(samples, dim=-1).reshape(2, len(setup.decays), setup.runs, -1)
    curves: list[_Curve] = []
    for decay, (negative_log_snr, negative_rates) in zip(setup.decays, by_decay.transpose(0, 1), strict=True):
        curve = {"kernel_size": kernel_size, "decay": decay, "steps": setup.recorded_steps}
        curve["negative_log_snr"] = negative_log_snr.tolist()
        if setup.rule == "circuit":
            curve["negative_rates"] = negative_rates.mean(dim=0).tolist()
        curves.append(curve | {"theory": _theory(setup, initial, decay)})
    return curves


def _theory(setup: Convergence, initial: Float[Tensor, "runs neurons inputs"], decay: float) -> dict[str, float]:
    """Return −log SNR at the fixed points, exact for the inputs' true covariance, averaged over runs."""
    covariance = torch.eye(initial.shape[-1], dtype=torch.float64) + setup.input_mean**2

    def average(inhibition: float | None) -> float:
        ends = [least_negative_log_snr(run, covariance, decay=decay, inhibition=inhibition) for run in initial]
        return sum(ends) / len(ends)

    return {"ideal": average(None), "biased": average(setup.inhibition)}


def _hebbian_samples(setup: Convergence, initial: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    start = _systems(setup, initial)
    weight, velocity = start.clone(), torch.zeros_like(start)
    decay, recorded, step = _decay_of_systems(setup), set(setup.recorded_steps), 0
    yield _sample(weight)
    for patterns in _inputs(setup, initial.shape[-1], generator):
        for pattern in patterns:
            step += 1
            hebbian_step_(
                weight,
                velocity,
                start,
                pattern.unsqueeze(1),
                rate=0.5 / (1000 + step),
                decay=decay,
                momentum=setup.momentum,
                inhibition=setup.inhibition,
            )
            if step in recorded:
                yield _sample(weight)


def _circuit_samples(setup: Convergence, initial: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    assert setup.inhibition is not None
    constants = CircuitConstants(inhibition=setup.inhibition, momentum=setup.momentum)
    state, recorded = CircuitState.at_rest(_systems(setup, initial)), set(setup.recorded_steps)
    decay, step, negative = _decay_of_systems(setup), 0, []
    yield _sample(state.weight)
    for patterns in _inputs(setup, initial.shape[-1], generator):
        options: dict[str, Any] = {"decay": decay, "constants": constants, "first": step}
        for _ in present_each_(state, patterns, rate=paper_learning_rate, **options):
            step += 1
            negative.append((state.above_bias < -constants.bias).double().mean(dim=(1, 2)))
            if step in recorded:
                yield _sample(state.weight, torch.stack(negative).mean(dim=0))
                negative.clear()


def _systems(setup: Convergence, initial: Float[Tensor, "runs neurons inputs"]) -> _Weights:
    return initial.repeat(len(setup.decays), 1, 1).unsqueeze(2)


def _decay_of_systems(setup: Convergence) -> Float[Tensor, "systems"]:
    return torch.tensor(setup.decays, dtype=torch.float64).repeat_interleave(setup.runs)


def _inputs(
    setup: Convergence, inputs: int, generator: torch.Generator
) -> Iterator[Float[Tensor, "patterns systems inputs"]]:
    """Draw the inputs of all steps, some at a time."""
    for start in range(0, setup.steps, _AT_ONCE):
        drawn = torch.randn(_AT_ONCE, setup.runs, inputs, dtype=torch.float64, generator=generator)
        yield (setup.input_mean + drawn[: setup.steps - start]).repeat(1, len(setup.decays), 1)


def _sample(weight: _Weights, negative_rates: Tensor | None = None) -> Float[Tensor, "2 systems"]:
    """Return −log SNR of each system and the fraction of negative rates since the last sample."""
    snr = torch.vmap(weight_snr)(weight.squeeze(2))
    return torch.stack([-snr.log(), torch.zeros_like(snr) if negative_rates is None else negative_rates])


@dataclass(frozen=True)
class NoisyConvergence:
    """A simulation of the Hebbian rule (Eq. 4) with noise in each neuron's input and learning rates c / (t + delay).

    Each step activates one input grid, drawn at random, so patterns have the covariance I. The theorem's error
    falls as 1/t if cγ > 1, down to a floor that the noise leaves.

    Args:
        noises: standard deviations σ of the noise, per input.
        decay: γ.
        rate: c.
        delay: added to t, so that the first rates are not too high.

    >>> NoisyConvergence(decay=0.1)
    Traceback (most recent call last):
    ValueError: rate·decay must exceed 1 for errors to fall as 1/t, got 0.2
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
        """Check that errors fall as 1/t down to a floor."""
        check_finite("decay", self.decay, least=0)
        check_finite("rate", self.rate, least=0)
        if self.rate * self.decay <= 1:
            raise ValueError(f"rate·decay must exceed 1 for errors to fall as 1/t, got {self.rate * self.decay:.3g}")

    @property
    def recorded_steps(self) -> list[int]:
        """The steps after which the error is measured, at equal distances on a logarithmic axis."""
        return sorted({0} | {round(self.steps ** (i / 120)) for i in range(121)})

    @property
    def samples(self) -> int:
        """Number of times that ``curves`` calls ``advance``."""
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
        """C of the patterns, which have one active input each."""
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
