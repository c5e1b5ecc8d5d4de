r"""A circuit to change: Eq. 8 in plain Euler steps, with any wiring, rates, delays, noise and plasticity.

.. math::
    \tau \dot r_i &= -r_i + f\Big(w_i^\top x_i - \sum_m A_{im} h_m + b\Big) \\
    \tau \dot h_m &= -h_m + \sum_j E_{mj} (r_j - b)

With :math:`f(u) = u`, one inhibitory neuron, :math:`E_{mj} = 1/N` and :math:`A_{im} = \alpha` this is Eq. 8 of Pogodin
et al. (2021), and equals ``sleepconv.simulation.circuit``, which is faster but holds for nothing else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional.sizes import check_finite
from sleepconv.simulation.circuit import CircuitConstants, paper_learning_rate

_Plasticity = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def linear(current: Tensor) -> Tensor:
    """Return the current: rates of Eq. 8, which may be negative.

    >>> linear(torch.tensor([-1.0, 2.0]))
    tensor([-1.,  2.])
    """
    return current


def rectified(current: Tensor) -> Tensor:
    """Return rates that are never negative.

    >>> rectified(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return current.clamp(min=0)


def saturating(most: float) -> Callable[[Tensor], Tensor]:
    """Return a transfer function whose rates lie between 0 and ``most``, linear in between.

    >>> saturating(5.0)(torch.tensor([-1.0, 2.0, 9.0]))
    tensor([0., 2., 5.])
    """
    check_finite("most", most, least=0)
    return lambda current: current.clamp(min=0, max=most)


def anti_hebbian(
    above_bias: Float[Tensor, "*batch neurons"], x: Tensor, weight: Tensor, initial: Tensor, decay: float
) -> Float[Tensor, "*batch neurons inputs"]:
    r"""Return :math:`(r_i - b)\,x_i + \gamma\,(w_i - w_i^{init})`, against which the weights move.

    >>> anti_hebbian(torch.tensor([2.0]), torch.tensor([[1.0, 3.0]]), torch.ones(1, 2), torch.zeros(1, 2), 0.5)
    tensor([[2.5000, 6.5000]])
    """
    return above_bias.unsqueeze(-1) * x + decay * (weight - initial)


def unconstrained(weight: Tensor, initial: Tensor) -> Tensor:
    """Return the weights as they are.

    >>> unconstrained(torch.tensor([-1.0]), torch.tensor([2.0]))
    tensor([-1.])
    """
    return weight


def keep_signs(weight: Tensor, initial: Tensor) -> Tensor:
    """Return weights that have the signs of the initial ones, or are zero: Dale's law for the inputs.

    A weight that starts at zero may take either sign.

    >>> keep_signs(torch.tensor([-1.0, -1.0]), torch.tensor([2.0, -2.0]))
    tensor([ 0., -1.])
    """
    return torch.where(weight.sign() * initial.sign() < 0, 0.0, weight)


@dataclass(frozen=True)
class EulerState:
    """A circuit at one moment; ``past`` are the inhibitory rates of the last steps, if inhibition is delayed.

    >>> state = EulerCircuit().at_rest(torch.ones(4, 3))
    >>> state.rates, state.inhibitory
    (tensor([1., 1., 1., 1.]), tensor([0.]))
    """

    weight: Float[Tensor, "*batch neurons inputs"]
    initial: Float[Tensor, "*batch neurons inputs"]
    velocity: Float[Tensor, "*batch neurons inputs"]
    rates: Float[Tensor, "*batch neurons"]
    inhibitory: Float[Tensor, "*batch inhibitory"]
    past: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class EulerCircuit:
    """The circuit of Eq. 8, step by step, in which every part can be replaced.

    Args:
        constants: τ, b, momentum and the lengths of steps and presentations; α unless ``inhibition`` is given.
        decay: γ.
        transfer: f, from currents to rates: ``linear``, ``rectified``, ``saturating(most)`` or a function of yours.
        excitation: E, the connections from the neurons to the inhibitory ones; 1/N to one inhibitory neuron by
            default. Leading axes make a batch of circuits.
        inhibition: A, the connections back; α by default. One row per neuron: α may differ.
        delay_ms: how late inhibition arrives.
        noise: standard deviation of the rates of linear neurons without inhibition, caused by white noise in currents.
        plasticity: what the weights move against, given r − b, x, w, w^init and γ.
        constrain: maps new weights, given w^init, to allowed ones, such as ``keep_signs``.
        seed: of the noise.

    >>> drive = torch.tensor([[1.0], [-3.0], [5.0]])  # one input each, of strength 1
    >>> for transfer in (linear, rectified):
    ...     settled = EulerCircuit(transfer=transfer).run(drive, torch.ones(9, 1), rate=0.0)
    ...     print(settled.rates.round(decimals=4))
    tensor([ 1.0909, -2.9091,  5.0909])
    tensor([0.0000, 0.0000, 3.6923])
    """

    constants: CircuitConstants = field(default_factory=CircuitConstants)
    decay: float = 0.01
    transfer: Callable[[Tensor], Tensor] = linear
    excitation: Float[Tensor, "*#batch inhibitory neurons"] | None = None
    inhibition: Float[Tensor, "*#batch neurons inhibitory"] | None = None
    delay_ms: float = 0.0
    noise: float = 0.0
    plasticity: _Plasticity = anti_hebbian
    constrain: Callable[[Tensor, Tensor], Tensor] = unconstrained
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name in ("decay", "delay_ms", "noise"):
            check_finite(name, getattr(self, name), least=0)
        for name in ("excitation", "inhibition"):
            matrix = getattr(self, name)
            if matrix is not None and matrix.dim() < 2:
                raise ValueError(f"`{name}` must be a matrix of connections, got the shape {tuple(matrix.shape)}")
        if self.excitation is None or self.inhibition is None:
            return
        if self.excitation.shape[-2:] != self.inhibition.mT.shape[-2:]:
            raise ValueError(
                "`excitation` must have the shape (inhibitory, neurons) and `inhibition` (neurons, inhibitory), "
                f"got {tuple(self.excitation.shape)} and {tuple(self.inhibition.shape)}"
            )

    def at_rest(self, weight: Float[Tensor, "*batch neurons inputs"]) -> EulerState:
        """Return the state with these weights, rates equal to the bias and silent inhibitory neurons."""
        excitation, _ = self._wiring(weight)
        rates = torch.full_like(weight[..., 0], self.constants.bias)
        inhibitory = rates.new_zeros(*rates.shape[:-1], excitation.shape[-2])
        past = (inhibitory,) * round(self.delay_ms / self.constants.step_ms)
        return EulerState(weight, weight, torch.zeros_like(weight), rates, inhibitory, past)

    def step(
        self,
        state: EulerState,
        x: Float[Tensor, "*batch inputs"] | Float[Tensor, "*batch neurons inputs"],
        *,
        rate: float,
        noise: float | Float[Tensor, "*batch neurons"] = 0.0,
    ) -> EulerState:
        """Return the state one Euler step later.

        Args:
            state: the present one, which stays as it is.
            x: the input that all neurons see, or one for each neuron.
            rate: the learning rate.
            noise: added to the currents.
        """
        x = x if x.dim() == state.weight.dim() else x.unsqueeze(-2)
        excitation, inhibition = self._wiring(state.weight)
        bias, fraction = self.constants.bias, self.constants.fraction
        above_bias = state.rates - bias
        arriving = state.past[0] if state.past else state.inhibitory
        current = (state.weight * x).sum(dim=-1) - _apply(inhibition, arriving) + bias + noise
        rates = state.rates + fraction * (self.transfer(current) - state.rates)
        inhibitory = state.inhibitory + fraction * (_apply(excitation, above_bias) - state.inhibitory)
        pull = self.plasticity(above_bias, x, state.weight, state.initial, self.decay)
        velocity = self.constants.momentum * state.velocity + pull
        return replace(
            state,
            weight=self.constrain(state.weight - rate * velocity, state.initial),
            velocity=velocity,
            rates=rates,
            inhibitory=inhibitory,
            past=(*state.past[1:], state.inhibitory) if state.past else (),
        )

    def follow(
        self,
        weight: Float[Tensor, "*batch neurons inputs"],
        patterns: Float[Tensor, "presentations *batch_and_inputs"],
        *,
        rate: float | Callable[[int], float] = paper_learning_rate,
    ) -> Iterator[EulerState]:
        """Present one pattern after the other, and yield the state after every Euler step.

        Args:
            weight: at the start.
            patterns: of each presentation, what all neurons see (*batch, inputs) or each (*batch, neurons, inputs).
            rate: the learning rate, or a function of the Euler step.

        >>> course = EulerCircuit().follow(torch.tensor([[1.0], [3.0]]), torch.ones(1, 1), rate=0.0)
        >>> rates = torch.stack([state.rates for state in course])
        >>> rates.shape, rates[0]
        (torch.Size([150, 2]), tensor([1.0333, 1.1000]))
        """
        if patterns.dim() < 2 or patterns.shape[-1] != weight.shape[-1]:
            raise ValueError(
                f"`patterns` must have the shape (presentations, ..., {weight.shape[-1]}), as the neurons have "
                f"{weight.shape[-1]} inputs, got {tuple(patterns.shape)}"
            )
        generator = torch.Generator().manual_seed(self.seed)
        strength = self.noise * (2 / self.constants.fraction) ** 0.5
        state, count = self.at_rest(weight), 0
        for x in patterns:
            for _ in range(self.constants.steps):
                drawn = strength * torch.randn(state.rates.shape, generator=generator).to(weight) if strength else 0.0
                state = self.step(state, x, rate=rate(count) if callable(rate) else rate, noise=drawn)
                yield state
                count += 1

    def run(
        self,
        weight: Float[Tensor, "*batch neurons inputs"],
        patterns: Float[Tensor, "presentations *batch_and_inputs"],
        *,
        rate: float | Callable[[int], float] = paper_learning_rate,
    ) -> EulerState:
        """Present one pattern after the other, as ``follow`` does, and return the last state."""
        state = self.at_rest(weight)
        for later in self.follow(weight, patterns, rate=rate):
            state = later
        return state

    def _wiring(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return E and A."""
        neurons = weight.shape[-2]
        excitation, inhibition = self.excitation, self.inhibition
        if excitation is None:
            number = 1 if inhibition is None else inhibition.shape[-1]
            excitation = weight.new_full((number, neurons), 1 / neurons)
        if inhibition is None:
            # Several inhibitory neurons divide the work.
            number = excitation.shape[-2]
            inhibition = weight.new_full((neurons, number), self.constants.inhibition / number)
        if excitation.shape[-1] != neurons or inhibition.shape[-2] != neurons:
            raise ValueError(
                f"there are weights of {neurons} neurons, but `excitation` or `inhibition` connects "
                f"{excitation.shape[-1]} and {inhibition.shape[-2]}"
            )
        return excitation.to(weight), inhibition.to(weight)


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
