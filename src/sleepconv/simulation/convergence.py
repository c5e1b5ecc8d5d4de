"""Curves of convergence: how well neurons share after so many inputs, for Fig. 4 and 5 and the noisy theorem."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional import hebbian_step_, pooled_weight_snr, weight_snr
from sleepconv.functional.sizes import check_finite
from sleepconv.simulation.circuit import CircuitConstants, CircuitState, paper_learning_rate, present_each_
from sleepconv.simulation.theory import fixed_point, noisy_error_bound, noisy_fixed_point

_Curve = dict[str, Any]
_Systems = Float[Tensor, "systems neurons 1 inputs"]
_Sample = dict[str, Float[Tensor, "systems"]]

_AT_ONCE = 100  # inputs that are drawn together, and presentations that are condensed together


@dataclass(frozen=True)
class Convergence:
    """A simulation of neurons that come to share; the defaults are those of the paper's appendix.

    Args:
        rule: "hebbian" (Eq. 4, and with finite inhibition the biased update of the appendix) or "circuit" (Eq. 8).
        steps: number of inputs that are shown.
        inhibition: α; None, only for the Hebbian rule, means perfect inhibition.
        input_mean: inputs are drawn from N(input_mean, 1); the appendix says N(1, 1), but the floor 2 log(γ / (1 + γ))
            that it prints is that of N(0, 1). Weights are drawn from N(1, 1).
        kernel_sizes: neurons have k² weights, for each k.
        decays: γ; there is a curve for each kernel size and decay.
        runs: number of repetitions.
        neurons: how many neurons share.
        momentum: of the weights, per step of the Hebbian rule or per Euler step of the circuit.
        tau_ms: τ of the circuit.
        bias: b of the circuit.
        step_ms: Euler step of the circuit.
        presentation_ms: how long the circuit sees each input.
        seed: of weights and inputs.

    >>> setup = Convergence("circuit", steps=10_000, inhibition=10.0)
    >>> setup.recorded_steps[-1], setup.samples > 600
    (10000, True)
    """

    rule: str
    steps: int
    inhibition: float | None = None
    input_mean: float = 0.0
    kernel_sizes: tuple[int, ...] = (3, 6, 9)
    decays: tuple[float, ...] = (0.1, 0.01, 0.001)
    runs: int = 10
    neurons: int = 100
    momentum: float = 0.95
    tau_ms: float = 30.0
    bias: float = 1.0
    step_ms: float = 1.0
    presentation_ms: float = 150.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.rule not in ("hebbian", "circuit"):
            raise ValueError(f"`rule` must be 'hebbian' or 'circuit', got {self.rule!r}")
        if self.inhibition is not None:
            check_finite("inhibition", self.inhibition, least=0)
        if self.rule == "circuit":
            _ = self.constants
        check_finite("input_mean", self.input_mean)
        for decay in self.decays:
            check_finite("decays", decay, least=0)
        if min(self.steps, self.runs) < 1 or self.neurons < 2:
            raise ValueError(
                "`steps` and `runs` must be at least 1 and `neurons` at least 2, "
                f"got steps={self.steps}, runs={self.runs}, neurons={self.neurons}"
            )

    @property
    def constants(self) -> CircuitConstants:
        """Return the circuit's constants."""
        if self.inhibition is None:
            raise ValueError("a circuit has finite inhibition; give inhibition=10.0, the paper's")
        return CircuitConstants(
            self.inhibition, self.tau_ms, self.bias, self.step_ms, self.presentation_ms, self.momentum
        )

    @property
    def recorded_steps(self) -> list[int]:
        """Return the steps after which the SNR is measured: 200 evenly spaced ones, and 40 spaced logarithmically."""
        even = {round(self.steps * part / 200) for part in range(201)}
        logarithmic = {round(self.steps ** (part / 40)) for part in range(41)}
        return sorted(even | logarithmic)

    @property
    def samples(self) -> int:
        """Return how often ``curves`` calls ``advance``."""
        return len(self.kernel_sizes) * len(self.recorded_steps)

    def curves(self, advance: Callable[[], object] = lambda: None) -> list[_Curve]:
        """Simulate, and return a curve for each kernel size and decay, with its theory.

        A curve has ``negative_log_snr`` (Eq. 6) of each run and, averaged over runs, ``negative_log_pooled_snr``, the
        ``preserved_mean`` (the share of the initial mean weight that is left) and the circuit's share of
        ``negative_rates``.

        >>> setup = Convergence("hebbian", steps=10, kernel_sizes=(1,), decays=(0.1,), runs=2, neurons=5)
        >>> [curve] = setup.curves()
        >>> curve["steps"], len(curve["negative_log_snr"])
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 2)
        """
        with one_thread():
            return [curve for size in self.kernel_sizes for curve in _curves_of_size(self, size, advance)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute on one thread, which is faster for tensors as small as these.

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


def _curves_of_size(setup: Convergence, kernel_size: int, advance: Callable[[], object]) -> Iterator[_Curve]:
    generator = torch.Generator().manual_seed(1000 * setup.seed + kernel_size)
    shape = (setup.runs, setup.neurons, kernel_size**2)
    initial = 1 + torch.randn(shape, dtype=torch.float64, generator=generator)
    samples = []
    for sample in _SIMULATIONS[setup.rule](setup, initial, generator):
        samples.append(sample)
        advance()
    measured = {name: torch.stack([sample[name] for sample in samples], dim=-1) for name in samples[0]}
    for i, decay in enumerate(setup.decays):
        of_runs = {name: values.unflatten(0, (-1, setup.runs))[i] for name, values in measured.items()}
        curve: _Curve = {"kernel_size": kernel_size, "decay": decay, "steps": setup.recorded_steps}
        curve["negative_log_snr"] = of_runs.pop("negative_log_snr").tolist()
        curve |= {name: values.mean(dim=0).tolist() for name, values in of_runs.items()}
        yield curve | {"theory": _theory(setup, initial, decay)}


def _theory(setup: Convergence, initial: Float[Tensor, "runs neurons inputs"], decay: float) -> dict[str, float]:
    """Return −log SNR at the fixed points, averaged over runs, for the true covariance of the inputs."""
    covariance = setup.input_mean**2 + torch.eye(initial.shape[-1], dtype=torch.float64)
    ends: dict[str, float] = {}
    for name, inhibition in {"ideal": None, "biased": setup.inhibition}.items():
        settled = fixed_point(initial, covariance, decay=decay, inhibition=inhibition)
        ends |= {name: float(negative_log_snr(settled).mean())}
        ends |= {f"{name}_pooled": float(negative_log_snr(settled, pooled=True).mean())}
    return ends


def _simulate_hebbian(setup: Convergence, initial: Tensor, generator: torch.Generator) -> Iterator[_Sample]:
    start, decay = _systems(setup, initial)
    weight, velocity, step, recorded = start.clone(), torch.zeros_like(start), 0, set(setup.recorded_steps)
    yield _measured(weight, start)
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
                yield _measured(weight, start)


def _simulate_circuit(setup: Convergence, initial: Tensor, generator: torch.Generator) -> Iterator[_Sample]:
    constants, (start, decay) = setup.constants, _systems(setup, initial)
    state, step, recorded = CircuitState.at_rest(start), 0, set(setup.recorded_steps)
    negative: list[Tensor] = []  # since the last sample
    yield _measured(start, start) | {"negative_rates": torch.zeros_like(decay)}
    for patterns in _inputs(setup, initial.shape[-1], generator):
        for _ in present_each_(state, patterns, rate=paper_learning_rate, decay=decay, constants=constants, first=step):
            step += 1
            negative.append((state.above_bias < -constants.bias).double().mean(dim=(1, 2)))
            if step in recorded:
                yield _measured(state.weight, start) | {"negative_rates": torch.stack(negative).mean(dim=0)}
                negative.clear()


_SIMULATIONS = {"hebbian": _simulate_hebbian, "circuit": _simulate_circuit}


def _systems(setup: Convergence, initial: Float[Tensor, "runs neurons inputs"]) -> tuple[_Systems, Tensor]:
    """Return the weights of a system for each decay and run, and its decay."""
    decay = torch.tensor(setup.decays, dtype=initial.dtype).repeat_interleave(setup.runs)
    return initial.repeat(len(setup.decays), 1, 1).unsqueeze(2), decay


def _inputs(
    setup: Convergence, inputs: int, generator: torch.Generator
) -> Iterator[Float[Tensor, "patterns systems inputs"]]:
    """Draw inputs, which differ between runs and are the same for all decays."""
    for first in range(0, setup.steps, _AT_ONCE):
        drawn = torch.randn(_AT_ONCE, setup.runs, inputs, dtype=torch.float64, generator=generator)
        yield (setup.input_mean + drawn[: setup.steps - first]).repeat(1, len(setup.decays), 1)


def _measured(weight: _Systems, start: _Systems) -> _Sample:
    weight, start = weight.squeeze(2), start.squeeze(2)
    return {
        "negative_log_snr": negative_log_snr(weight),
        "negative_log_pooled_snr": negative_log_snr(weight, pooled=True),
        "preserved_mean": preserved_mean(weight, start),
    }


def negative_log_snr(
    weight: Float[Tensor, "*systems neurons inputs"], *, pooled: bool = False
) -> Float[Tensor, "*systems"]:
    """Return −log SNR of each system: of Eq. 6, or log(Σ variance / Σ mean²), whose sums are over inputs.

    >>> negative_log_snr(torch.tensor([[[0.0], [2.0]], [[1.0], [3.0]]]))
    tensor([-0.0000, -1.3863])
    """
    measure = pooled_weight_snr if pooled else weight_snr
    return -torch.vmap(measure)(weight.reshape(-1, *weight.shape[-2:])).log().view(weight.shape[:-2])


def preserved_mean(
    weight: Float[Tensor, "*systems neurons inputs"], initial: Float[Tensor, "*systems neurons inputs"]
) -> Float[Tensor, "*systems"]:
    r"""Return which share of the initial mean weight is left: :math:`\mu^\top \mu^{init} / |\mu^{init}|^2`.

    Eq. 4 leaves all of it; noise, finite inhibition or wrong connections shrink it.

    >>> preserved_mean(torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [6.0]]))
    tensor(0.5000)
    """
    mean, start = weight.mean(dim=-2), initial.mean(dim=-2)
    return (mean * start).sum(dim=-1) / start.square().sum(dim=-1)


@dataclass(frozen=True)
class NoisyConvergence:
    r"""A simulation of Eq. 4 in which every neuron sees noise of its own, and of the appendix's theorem about it.

    Each step activates one input, drawn at random, so that C = I, and has the learning rate c / (t + delay). If cγ > 1,
    the squared error falls as 1/t, down to a floor that noise leaves.

    Args:
        steps: number of inputs that are shown.
        noises: standard deviations σ of the noise in each input.
        decay: γ.
        rate: c.
        delay: of the learning rate, in steps.
        kernel_size: neurons have as many weights as its square.
        runs: number of repetitions.
        neurons: how many neurons share.
        seed: of weights, inputs and noise.

    >>> NoisyConvergence(decay=0.1)
    Traceback (most recent call last):
    ValueError: rate·decay must exceed 1 for the error to fall as 1/t, got 0.2
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
        """Check the arguments."""
        check_finite("decay", self.decay, least=0)
        check_finite("rate", self.rate, least=0)
        for noise in self.noises:
            check_finite("noises", noise, least=0)
        if self.rate * self.decay <= 1:
            raise ValueError(f"rate·decay must exceed 1 for the error to fall as 1/t, got {self.rate * self.decay:.3g}")

    @property
    def recorded_steps(self) -> list[int]:
        """Return the steps after which the error is measured, 120 of them spaced logarithmically."""
        return sorted({0, *(round(self.steps ** (part / 120)) for part in range(121))})

    @property
    def samples(self) -> int:
        """Return how often ``curves`` calls ``advance``."""
        return len(self.recorded_steps)

    @property
    def covariance(self) -> Float[Tensor, "inputs inputs"]:
        """Return C of the inputs."""
        return torch.eye(self.kernel_size**2, dtype=torch.float64)

    def curves(self, advance: Callable[[], object] = lambda: None) -> list[_Curve]:
        r"""Simulate, and return a curve for each noise: :math:`\|W - W^*\|_F^2 / \|W^*\|_F^2`, with W* from Eq. 5.

        >>> noiseless, noisy = NoisyConvergence(steps=3, noises=(0.0, 0.1), runs=2, neurons=4).curves()
        >>> noiseless["floor"], 0 < noisy["floor"] < noisy["bound"][-1]
        (0.0, True)
        """
        generator = torch.Generator().manual_seed(self.seed)
        shape = (self.runs, self.neurons, self.kernel_size**2)
        initial = 1 + torch.randn(shape, dtype=torch.float64, generator=generator)
        settled = fixed_point(initial, self.covariance, decay=self.decay)
        errors = []
        with one_thread():
            for weight in self._simulate(initial, generator):
                errors.append(_relative_error(weight.squeeze(2).unflatten(0, (-1, self.runs)), settled))
                advance()
        return [
            {"noise": noise, "steps": self.recorded_steps, "error": error.tolist()} | self._theory(initial, noise)
            for noise, error in zip(self.noises, torch.stack(errors, dim=-1), strict=True)
        ]

    def _simulate(self, initial: Tensor, generator: torch.Generator) -> Iterator[_Systems]:
        """Yield the weights of a system for each noise and run, at the recorded steps."""
        start = initial.repeat(len(self.noises), 1, 1).unsqueeze(2)
        weight, velocity = start.clone(), torch.zeros_like(start)
        sigma = torch.tensor(self.noises, dtype=torch.float64).repeat_interleave(self.runs).view(-1, 1, 1, 1)
        standard = torch.empty_like(start, dtype=torch.float32)  # in float64, drawing would take five times as long
        patterns, recorded = self.kernel_size * self.covariance, set(self.recorded_steps)
        yield weight
        for step in range(1, self.steps + 1):
            active = torch.randint(len(patterns), (self.runs,), generator=generator).repeat(len(self.noises))
            hebbian_step_(
                weight,
                velocity,
                start,
                patterns[active].unsqueeze(1),
                rate=self.rate / (step + self.delay),
                decay=self.decay,
                noise=sigma * standard.normal_(generator=generator),
            )
            if step in recorded:
                yield weight

    def _theory(self, initial: Float[Tensor, "runs neurons inputs"], noise: float) -> dict[str, Any]:
        """Return the error's floor, and the theorem's bound at the recorded steps, averaged over runs."""
        covariance, inputs = self.covariance, self.kernel_size**2
        # E‖x + ξ‖⁴ if ‖x‖² is the number of inputs and ξ is Gaussian.
        fourth_moment = (inputs * (1 + noise**2)) ** 2 + 4 * inputs * noise**2 + 2 * inputs * noise**4
        rates = [self.rate / (step + self.delay) for step in range(1, self.steps + 1)]
        settled = fixed_point(initial, covariance, decay=self.decay)
        floors, bounds = [], []
        for start, end in zip(initial, settled, strict=True):
            floor = noisy_fixed_point(start, covariance, decay=self.decay, noise=noise)
            bound = noisy_error_bound(
                start, covariance, rates, decay=self.decay, noise=noise, fourth_moment=fourth_moment
            )
            floors.append(_relative_error(floor, end))
            bounds.append(bound[self.recorded_steps] / end.square().sum())
        return {
            "floor": float(torch.stack(floors).mean()),
            "bound": torch.stack(bounds).mean(dim=0).tolist(),
        }


def _relative_error(weight: Float[Tensor, "*batch neurons inputs"], settled: Tensor) -> Float[Tensor, "*batch"]:
    return (weight - settled).square().sum(dim=(-2, -1)) / settled.square().sum(dim=(-2, -1))
