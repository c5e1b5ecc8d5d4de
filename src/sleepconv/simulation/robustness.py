"""Robustness curves: how well neurons share, and what is left of their mean, when the circuit is not perfect.

``Robustness(against).curves()`` sweeps one imperfection, with the closed form beside the simulation where there is one:

``noise``
    Each neuron sees noise of its own in every input (standard deviation σ).
``missing``
    Each lateral connection of Eq. 4 is missing with some probability; the others stay as they are, or grow until each
    neuron receives as much as before ("rescaled").
``wrong``
    A fraction of the neurons is wired to another grid, whose inputs are independent of their own.
``inhibition``
    Inhibition differs between neurons (coefficient of variation, log-normal).
``rectified``
    Rates cannot be negative; the larger the bias b, the fewer neurons would be.
``dale``
    Inputs are excitatory, so that no weight may be negative; the larger the mean of the initial weights (in standard
    deviations), the fewer would be.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sleepconv.functional.sizes import check_finite, check_int
from sleepconv.simulation.circuit import rectified_fixed_point
from sleepconv.simulation.convergence import negative_log_snr, one_thread, preserved_mean
from sleepconv.simulation.euler import unconstrained
from sleepconv.simulation.theory import lateral_fixed_point

_GRIDS = 3  # that exchange neurons, if some are wired wrongly
_MOMENTUM = 0.9

_VALUES: dict[str, tuple[float, ...]] = {
    "noise": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "missing": (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9),
    "wrong": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4),
    "inhibition": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "rectified": (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    "dale": (0.0, 0.25, 0.5, 1.0, 2.0, 3.0),
}
AGAINST = tuple(_VALUES)


@dataclass(frozen=True)
class _Neurons:
    """A way in which neurons share, for all runs."""

    variant: str
    initial: Float[Tensor, "runs neurons inputs"]
    response: Float[Tensor, "*#runs neurons neurons"] | None  # M of r − b = M z, if rates are linear
    bias: float = 0.0  # of rectified rates
    noise: float = 0.0
    grids: int = 1  # the neurons of each see an input of their own
    constrain: Callable[[Tensor, Tensor], Tensor] = unconstrained

    @property
    def same_input(self) -> Bool[Tensor, "neurons neurons"]:
        """Return which neurons see the same input."""
        sees = torch.arange(self.grids).repeat_interleave(self.initial.shape[1] // self.grids)
        return sees[:, None] == sees


@dataclass(frozen=True)
class Robustness:
    r"""A sweep of one imperfection of the circuit, under the Hebbian rule with settled rates.

    .. math:: \Delta w_i \propto -(r_i - b)\,x_i - \gamma\,(w_i - w_i^{init})

    Rates r are those at which the circuit settles (Eq. 9; with perfect inhibition this is Eq. 4). Weights and inputs
    are drawn as for Fig. 4A: from N(1, 1) and N(0, 1).

    Args:
        against: "noise", "missing", "wrong", "inhibition", "rectified" or "dale", as described above.
        values: how much of it, in increasing order; by default a range that shows where sharing fails.
        decays: γ; there are curves for each.
        inhibition: α, the mean one if it differs; None means perfect inhibition (on average).
        neurons: how many share.
        inputs: of each neuron.
        runs: number of repetitions.
        steps: number of learning steps.
        patterns: how many inputs a step averages over.
        seed: of everything that is drawn.

    >>> sweep = Robustness("noise", values=(0.0, 1.0), decays=(0.1,), neurons=10, runs=2, steps=300)
    >>> [curve] = sweep.curves()
    >>> [round(mean, 2) for mean in curve["theory"]["preserved_mean"]]  # γ / (γ + σ² (1 − 1/N))
    [1.0, 0.1]
    """

    against: str
    values: tuple[float, ...] = ()
    decays: tuple[float, ...] = (0.1, 0.01, 0.001)
    inhibition: float | None = None
    neurons: int = 100
    inputs: int = 9
    runs: int = 3
    steps: int = 2000
    patterns: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.against not in _VALUES:
            raise ValueError(f"`against` must be one of {', '.join(_VALUES)}, got {self.against!r}")
        if not self.values:
            object.__setattr__(self, "values", _VALUES[self.against])
        most = 1.0 if self.against in ("missing", "wrong") else None
        for value in self.values:
            check_finite("values", value, least=0, most=most)
        for decay in self.decays:
            check_finite("decays", decay, least=0)
            if decay == 0:
                raise ValueError("`decays` must be above 0, got 0")
        if self.inhibition is not None:
            check_finite("inhibition", self.inhibition, least=0)
        for name, least in {"neurons": 2, "inputs": 1, "runs": 1, "steps": 1, "patterns": 1}.items():
            check_int(name, getattr(self, name), least=least)

    @property
    def samples(self) -> int:
        """Return how often ``curves`` calls ``advance``."""
        return len(self.values)

    def curves(self, advance: Callable[[], object] = lambda: None) -> list[dict[str, Any]]:
        """Simulate, and return a curve for each variant and decay.

        A curve has, for each value, ``negative_log_snr`` (Eq. 6) and ``preserved_mean`` of each run, and both in
        ``theory`` by the closed form, averaged over runs; ``theory`` is None where there is no closed form.
        """
        curves: dict[tuple[str, float], dict[str, Any]] = {}
        with one_thread():
            for value in self.values:
                for neurons in _KINDS[self.against](self, value, self._start(value)):
                    for decay, found in zip(self.decays, self._measures(neurons, value), strict=True):
                        new = {"variant": neurons.variant, "decay": decay, "values": list(self.values)}
                        _append(curves.setdefault((neurons.variant, decay), new), found)
                advance()
        return list(curves.values())

    def _generator(self, value: float, purpose: int) -> torch.Generator:
        return torch.Generator().manual_seed(1000 * self.seed + 10 * (1 + self.values.index(value)) + purpose)

    def _start(self, value: float) -> Float[Tensor, "runs neurons inputs"]:
        mean = value if self.against == "dale" else 1.0
        number = self.neurons * (_GRIDS if self.against == "wrong" else 1)
        shape = (self.runs, number, self.inputs)
        generator = torch.Generator().manual_seed(1000 * self.seed)  # the same weights for all values
        return mean + torch.randn(shape, dtype=torch.float64, generator=generator)

    def _measures(self, neurons: _Neurons, value: float) -> Iterator[dict[str, Any]]:
        """Yield what the simulation and the closed form give for each decay."""
        ended = self._learn(neurons, self._generator(value, 0)).unflatten(0, (-1, self.runs))
        covariance = torch.eye(self.inputs, dtype=torch.float64)
        for weight, decay in zip(ended, self.decays, strict=True):
            found: dict[str, Any] = {key: of_runs.tolist() for key, of_runs in _measured(weight, neurons).items()}
            found["theory"] = None
            if neurons.response is not None:
                settled = lateral_fixed_point(
                    neurons.initial,
                    covariance,
                    neurons.response,
                    decay=decay,
                    noise=neurons.noise,
                    same_input=neurons.same_input,
                )
                found["theory"] = {key: float(x.mean()) for key, x in _measured(settled, neurons).items()}
            yield found

    def _learn(self, neurons: _Neurons, generator: torch.Generator) -> Float[Tensor, "systems neurons inputs"]:
        """Return the weights after all steps, for a system of each decay and run."""
        initial = neurons.initial.repeat(len(self.decays), 1, 1)
        gamma = torch.tensor(self.decays, dtype=torch.float64).repeat_interleave(self.runs)[:, None, None]
        weight, velocity = initial.clone(), torch.zeros_like(initial)
        for step in range(self.steps):
            x = self._inputs(neurons, generator)
            drive = (weight.unflatten(1, (x.shape[1], -1)) @ x.mT).flatten(1, 2)
            above_bias = self._respond(neurons, drive)
            pull = (above_bias.unflatten(1, (x.shape[1], -1)) @ x).flatten(1, 2) / self.patterns
            velocity = _MOMENTUM * velocity + pull + gamma * (weight - initial)
            # A constant rate first, for the slow directions, then one that falls to zero, to average over the inputs.
            rate = 0.07 / (1 + neurons.noise**2) * min(1, 2 * (1 - step / self.steps)) ** 2
            weight = neurons.constrain(weight - rate * velocity, initial)
        if not float(weight.norm()) <= 10 * float(initial.norm()):
            raise ValueError(
                f"the weights diverge with decays={self.decays}, inputs={self.inputs} and patterns={self.patterns}; "
                "use smaller decays, fewer inputs or more patterns"
            )
        return weight

    def _inputs(
        self, neurons: _Neurons, generator: torch.Generator
    ) -> Float[Tensor, "systems grids_or_neurons patterns inputs"]:
        """Draw what the neurons of each grid see, or each neuron, if they see noise.

        Inputs differ between runs and are the same for all decays. They are drawn in float32, five times faster.
        """
        x = torch.randn((self.runs, neurons.grids, self.patterns, self.inputs), generator=generator)
        if neurons.noise:
            x = x.repeat_interleave(neurons.initial.shape[1] // neurons.grids, dim=1)
            x = x + neurons.noise * torch.randn(x.shape, generator=generator)
        return x.double().repeat(len(self.decays), 1, 1, 1)

    def _respond(
        self, neurons: _Neurons, drive: Float[Tensor, "systems neurons patterns"]
    ) -> Float[Tensor, "systems neurons patterns"]:
        """Return r − b."""
        if neurons.response is None:
            rates = rectified_fixed_point(drive.mT, inhibition=self.inhibition, bias=neurons.bias)
            return rates.mT - neurons.bias
        return (neurons.response @ drive.unflatten(0, (-1, self.runs))).flatten(0, 1)

    @property
    def _equalised(self) -> float:
        """Return α / (1 + α), the share of the mean response that inhibition takes away."""
        return 1.0 if self.inhibition is None else self.inhibition / (1 + self.inhibition)

    @property
    def _all_to_all(self) -> Float[Tensor, "neurons neurons"]:
        return torch.eye(self.neurons, dtype=torch.float64) - self._equalised / self.neurons


def _noise(setup: Robustness, value: float, initial: Tensor) -> list[_Neurons]:
    return [_Neurons("", initial, setup._all_to_all, noise=value)]


def _missing(setup: Robustness, value: float, initial: Tensor) -> list[_Neurons]:
    drawn = torch.rand(setup.runs, setup.neurons, setup.neurons, generator=setup._generator(value, 1))
    lateral = (drawn >= value).double() / setup.neurons
    rescaled = lateral / lateral.sum(dim=-1, keepdim=True).clamp_min(1 / setup.neurons)
    eye = torch.eye(setup.neurons, dtype=torch.float64)
    return [
        _Neurons("as they are", initial, eye - setup._equalised * lateral),
        _Neurons("rescaled", initial, eye - setup._equalised * rescaled),
    ]


def _wrong(setup: Robustness, value: float, initial: Tensor) -> list[_Neurons]:
    sees = torch.arange(_GRIDS).repeat_interleave(setup.neurons)
    place = torch.arange(setup.neurons).repeat(_GRIDS)
    # The first neurons of each grid (their weights are random) are wired to the other grids in turn.
    shift = torch.where(place < round(value * setup.neurons), 1 + place % (_GRIDS - 1), 0)
    wired = (sees + shift) % _GRIDS
    together = (wired[:, None] == wired).double()
    eye = torch.eye(len(sees), dtype=torch.float64)
    return [_Neurons("", initial, eye - setup._equalised * together / together.sum(dim=1), grids=_GRIDS)]


def _inhibition(setup: Robustness, value: float, initial: Tensor) -> list[_Neurons]:
    spread = torch.log1p(torch.tensor(value, dtype=torch.float64).square()).sqrt()
    normal = torch.randn(setup.runs, setup.neurons, 1, dtype=torch.float64, generator=setup._generator(value, 1))
    strength = (spread * normal).exp()
    strength = strength / strength.mean(dim=1, keepdim=True)
    eye = torch.eye(setup.neurons, dtype=torch.float64)
    return [_Neurons("", initial, eye - setup._equalised * strength / setup.neurons)]


def _rectified(setup: Robustness, value: float, initial: Tensor) -> list[_Neurons]:
    return [
        _Neurons("rectified", initial, None, bias=value),
        _Neurons("linear", initial, setup._all_to_all),
    ]


def _excitatory(weight: Tensor, initial: Tensor) -> Tensor:
    return weight.clamp(min=0)


def _dale(setup: Robustness, value: float, initial: Tensor) -> list[_Neurons]:
    response = setup._all_to_all
    return [
        _Neurons("Dale's law", initial.clamp(min=0), response, constrain=_excitatory),
        _Neurons("any sign", initial, response),
    ]


_KINDS: dict[str, Callable[[Robustness, float, Tensor], list[_Neurons]]] = {
    "noise": _noise,
    "missing": _missing,
    "wrong": _wrong,
    "inhibition": _inhibition,
    "rectified": _rectified,
    "dale": _dale,
}


def _measured(weight: Float[Tensor, "runs neurons inputs"], neurons: _Neurons) -> dict[str, Float[Tensor, "runs"]]:
    """Measure within the neurons of each grid, and average over grids."""
    weight, initial = (w.unflatten(1, (neurons.grids, -1)) for w in (weight, neurons.initial))
    return {
        "negative_log_snr": negative_log_snr(weight).mean(dim=1),
        "preserved_mean": preserved_mean(weight, initial).mean(dim=1),
    }


def _append(curve: dict[str, Any], found: dict[str, Any]) -> None:
    for key in ("negative_log_snr", "preserved_mean"):
        curve.setdefault(key, []).append(found[key])
    if found["theory"] is None:
        curve["theory"] = None
        return
    for key, value in found["theory"].items():
        curve.setdefault("theory", {}).setdefault(key, []).append(value)
