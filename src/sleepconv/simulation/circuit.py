r"""The circuit of section 4.2: excitatory neurons, one inhibitory neuron, and weights that learn meanwhile.

.. math::
    \tau \dot r_i = -r_i + w_i^\top x - \alpha r_{inh} + b, \qquad
    \tau \dot r_{inh} = -r_{inh} + \frac1N \sum_j r_j - b

Eq. 8 of Pogodin et al. (2021), followed in Euler steps. In each of them a weight also learns by
:math:`\Delta w_i \propto -(r_i - b)\,x - \gamma\,(w_i - w_i^{init})`.

As long as one input x is shown, all this is linear, and a weight leaves the plane of its displacement from w^init and
its velocity, both as they were when x appeared, only along x. So the Euler steps of a presentation reduce to small
matrices, the same for every neuron: ``presentation_maps`` computes them (or, if the learning rate stays the same,
``steady_presentation_maps``), ``present_`` applies them. The result is that of the Euler steps, up to rounding.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional.sizes import check_finite

_NOT_NEGATIVE = ("inhibition", "momentum")
_MOST_STEPS = 100_000  # in a presentation; many presentations are condensed together


@dataclass(frozen=True)
class CircuitConstants:
    """Constants of Eq. 8 and of its simulation, with the paper's values.

    Args:
        inhibition: α.
        tau_ms: τ.
        bias: b.
        step_ms: length of an Euler step.
        presentation_ms: how long an input is shown.
        momentum: of the weights, per Euler step.

    >>> CircuitConstants().steps
    150
    """

    inhibition: float = 10.0
    tau_ms: float = 30.0
    bias: float = 1.0
    step_ms: float = 1.0
    presentation_ms: float = 150.0
    momentum: float = 0.95

    def __post_init__(self) -> None:
        """Check the constants."""
        for field in fields(self):
            check_finite(field.name, getattr(self, field.name), least=0 if field.name in _NOT_NEGATIVE else None)
        if self.tau_ms <= 0:
            raise ValueError(f"`tau_ms` must be above 0, got {self.tau_ms}")
        if self.momentum >= 1:
            raise ValueError(f"`momentum` must be below 1, got {self.momentum}")
        # Mean and inhibition turn by (−1 ± i√α) / τ; Euler's method damps that if |1 + step · (−1 ± i√α) / τ| < 1.
        stable = 2.0 * self.tau_ms / (1 + self.inhibition)
        if not 0 < self.step_ms < stable:
            raise ValueError(
                f"`step_ms` must be between 0 and {stable:.3g}, where Euler's method is stable for "
                f"inhibition={self.inhibition} and tau_ms={self.tau_ms}, got {self.step_ms}"
            )
        if not 0.5 < self.presentation_ms / self.step_ms <= _MOST_STEPS:
            raise ValueError(
                f"`presentation_ms` must be between one and {_MOST_STEPS:,} steps of {self.step_ms} ms, "
                f"got {self.presentation_ms}"
            )

    @property
    def steps(self) -> int:
        """Return the number of Euler steps of a presentation."""
        return round(self.presentation_ms / self.step_ms)

    @property
    def fraction(self) -> float:
        """Return the length of an Euler step in units of τ."""
        return self.step_ms / self.tau_ms


def paper_learning_rate(step: int) -> float:
    r"""Return the learning rate of Fig. 4B at an Euler step.

    .. math:: \eta_t = 0.0003 / \sqrt{1 + t/2} \quad\text{for } t > 50, \text{ before that } 0

    The paper states it for presentations; counted in Euler steps, it gives the curves that the paper describes.

    >>> paper_learning_rate(50), round(paper_learning_rate(198), 6)
    (0.0, 3e-05)
    """
    return 0.0003 / (1 + step / 2) ** 0.5 if step > 50 else 0.0


def rate_fixed_point(
    drive: Float[Tensor, "*batch neurons"], *, inhibition: float | Float[Tensor, "..."], bias: float
) -> Float[Tensor, "*batch neurons"]:
    r"""Return the rates at which the circuit settles.

    .. math:: r_i^* = b + w_i^\top x - \frac{\alpha_i}{1 + \bar\alpha} \, \frac1N \sum_j w_j^\top x

    Eq. 9 of Pogodin et al. (2021) if all neurons are inhibited alike; :math:`\bar\alpha` is the mean over neurons.

    Args:
        drive: :math:`w_i^\top x`.
        inhibition: α, one number or a tensor that broadcasts with ``drive``, as one value per neuron does.
        bias: b.

    >>> rate_fixed_point(torch.tensor([1.0, 3.0]), inhibition=1.0, bias=1.0)
    tensor([1., 3.])
    >>> rate_fixed_point(torch.tensor([1.0, 3.0]), inhibition=torch.tensor([0.0, 2.0]), bias=1.0)
    tensor([2., 2.])
    """
    if not isinstance(inhibition, Tensor):
        check_finite("inhibition", inhibition, least=0)
    alpha = torch.as_tensor(inhibition, dtype=drive.dtype, device=drive.device)
    if not bool((alpha.isfinite() & (alpha >= 0)).all()):
        raise ValueError(f"`inhibition` must be finite and at least 0, got {inhibition}")
    mean_drive = drive.mean(dim=-1, keepdim=True)
    mean_alpha = alpha.mean(dim=-1, keepdim=True)
    return bias + drive - alpha * (mean_drive / (1 + mean_alpha))


def rectified_fixed_point(
    drive: Float[Tensor, "*batch neurons"], *, inhibition: float | None, bias: float
) -> Float[Tensor, "*batch neurons"]:
    r"""Return the rates at which the circuit settles if rates cannot be negative.

    .. math:: r_i = [b + w_i^\top x - c]_+, \qquad
        c = \max_n \frac{\sum_{i \le n} w_i^\top x - (N - n)\, b}{n + N / \alpha}

    The drives are sorted here, the strongest first; the n that attains the maximum is the number of active neurons.
    Where no rate of Eq. 9 is negative, it is Eq. 9. Not in the paper.

    Args:
        drive: :math:`w_i^\top x`.
        inhibition: α; None means perfect inhibition.
        bias: b.

    >>> rectified_fixed_point(torch.tensor([1.0, -3.0, 5.0]), inhibition=10.0, bias=1.0)
    tensor([0.0000, 0.0000, 3.6923])
    """
    if inhibition is not None:
        check_finite("inhibition", inhibition, least=0)
        if inhibition == 0:
            return (bias + drive).clamp(min=0)
    neurons = drive.shape[-1]
    active = torch.arange(1, neurons + 1).to(drive)
    strongest = drive.sort(dim=-1, descending=True).values.cumsum(dim=-1)
    slack = 0.0 if inhibition is None else neurons / inhibition
    common = ((strongest - (neurons - active) * bias) / (active + slack)).amax(dim=-1, keepdim=True)
    if inhibition is not None:
        common = common.clamp(min=-inhibition * bias)  # no neuron is active
    return (bias + drive - common).clamp(min=0)


def euler_rates(
    drive: Float[Tensor, "*batch neurons"], *, steps: int, constants: CircuitConstants | None = None
) -> tuple[Float[Tensor, "time *batch neurons"], Float[Tensor, "time *batch 1"]]:
    """Follow Eq. 8 from rest (rᵢ = b, r_inh = 0) with constant weights.

    Returns:
        The rates and the inhibitory rate at the start and after each of the Euler steps.

    >>> rates, inhibitory = euler_rates(torch.tensor([1.0, 3.0]), steps=1)
    >>> rates[-1]
    tensor([1.0333, 1.1000])
    """
    constants = constants or CircuitConstants()
    rates, inhibitory = [torch.full_like(drive, constants.bias)], [torch.zeros_like(drive[..., :1])]
    for _ in range(steps):
        r, r_inh = rates[-1], inhibitory[-1]
        excite = -r + drive - constants.inhibition * r_inh + constants.bias
        inhibit = -r_inh + r.mean(dim=-1, keepdim=True) - constants.bias
        rates.append(r + constants.fraction * excite)
        inhibitory.append(r_inh + constants.fraction * inhibit)
    return torch.stack(rates), torch.stack(inhibitory)


@dataclass
class CircuitState:
    """Weights and rates of circuits, one for each grid and channel, between two presentations.

    ``displacement`` is w − w^init, ``velocity`` the momentum of the weights, ``above_bias`` r − b.

    >>> CircuitState.at_rest(torch.ones(1, 2, 1, 3)).above_bias.flatten()
    tensor([0., 0.])
    """

    initial: Float[Tensor, "grids neurons channels inputs"]
    displacement: Float[Tensor, "grids neurons channels inputs"]
    velocity: Float[Tensor, "grids neurons channels inputs"]
    above_bias: Float[Tensor, "grids neurons channels"]
    inhibitory: Float[Tensor, "grids channels"]

    @classmethod
    def at_rest(cls, weight: Float[Tensor, "grids neurons channels inputs"]) -> "CircuitState":
        """Return circuits with these weights, rates equal to the bias and a silent inhibitory neuron."""
        grids, neurons, channels, _ = weight.shape
        return cls(
            initial=weight.clone(),
            displacement=torch.zeros_like(weight),
            velocity=torch.zeros_like(weight),
            above_bias=weight.new_zeros(grids, neurons, channels),
            inhibitory=weight.new_zeros(grids, channels),
        )

    @property
    def weight(self) -> Float[Tensor, "grids neurons channels inputs"]:
        """Return the weights."""
        return self.initial + self.displacement


@dataclass(frozen=True)
class PresentationMaps:
    """What a presentation of an input x does to a circuit, as matrices; those of several presentations are stacked.

    ``motion`` maps the five numbers (r − b, r_inh, D·x, V·x, w^init·x) of a neuron with displacement D and velocity V
    to four: the new r − b, the new r_inh, and by how much x is added to the displacement and to the velocity. Its
    first matrix acts on each neuron's differences from the mean, its second on the means. ``carry`` maps (D, V) to
    the rest of the new displacement and velocity.

    >>> norms, rates, decay = torch.ones(7, 1), torch.zeros(7, 150), torch.zeros(1)  # seven presentations to one grid
    >>> maps = presentation_maps(norms, rates, decay=decay, constants=CircuitConstants())
    >>> maps.motion.shape, maps[0].motion.shape
    (torch.Size([7, 1, 2, 4, 5]), torch.Size([1, 2, 4, 5]))
    """

    motion: Float[Tensor, "*presentations grids 2 4 5"]
    carry: Float[Tensor, "*presentations grids 2 2"]

    def __getitem__(self, presentation: int) -> "PresentationMaps":
        """Return the maps of one presentation."""
        return PresentationMaps(self.motion[presentation], self.carry[presentation])


def presentation_maps(
    squared_norm: Float[Tensor, "*presentations grids"],
    learning_rates: Float[Tensor, "*presentations steps"],
    *,
    decay: Float[Tensor, "grids"],
    constants: CircuitConstants,
) -> PresentationMaps:
    """Condense the Euler steps of presentations into small matrices.

    Args:
        squared_norm: |x|² of the input that each grid sees.
        learning_rates: of each Euler step.
        decay: γ of each grid.
        constants: those of the circuit.

    >>> maps = presentation_maps(
    ...     torch.ones(1, 1), torch.zeros(1, 150), decay=torch.tensor([0.1]), constants=CircuitConstants()
    ... )
    >>> maps.carry[0, 0, 0]
    tensor([1., 0.])
    """
    shape = squared_norm.shape
    # Each of the four numbers as a combination of the five at the start, for differences (0) and means (1).
    above, inhibitory, along, moving = squared_norm.new_zeros((4, 5, 2, *shape)).unbind()
    above[0], inhibitory[1] = 1, 1
    # D = kept·D₀ + gained·V₀ + along·x, and likewise V.
    displacement, velocity = squared_norm.new_zeros((2, 2, *shape)).unbind()
    displacement[0], velocity[1] = 1, 1
    alpha = squared_norm.new_tensor([0.0, constants.inhibition])  # inhibition reaches all neurons alike
    alpha = alpha.view(2, *(1 for _ in shape))
    for rate in learning_rates.unsqueeze(-2).unbind(dim=-1):
        drive = along * squared_norm
        drive[2] += displacement[0]
        drive[3] += displacement[1]
        drive[4] += 1
        moving.mul_(constants.momentum).add_(above).addcmul_(along, decay)
        along.addcmul_(moving, rate, value=-1)
        velocity.mul_(constants.momentum).addcmul_(displacement, decay)
        displacement.addcmul_(velocity, rate, value=-1)
        excite = drive.sub_(above).addcmul_(inhibitory, alpha, value=-1)
        inhibitory.lerp_(above, constants.fraction)
        above.add_(excite, alpha=constants.fraction)
    motion = torch.stack([above, inhibitory, along, moving])
    carry = torch.stack([displacement, velocity])
    return PresentationMaps(motion.movedim((2, 0, 1), (-3, -2, -1)), carry.movedim((0, 1), (-2, -1)))


def steady_presentation_maps(
    squared_norm: Float[Tensor, "*presentations grids"],
    rate: float,
    *,
    decay: Float[Tensor, "grids"],
    constants: CircuitConstants,
) -> PresentationMaps:
    r"""Condense presentations with one learning rate for all Euler steps, whose number then costs hardly any time.

    The maps are parts of :math:`T^n`, where T is what one of the n steps does to the numbers of ``PresentationMaps``
    and to how much x has been added to D and V. The power is taken in float64.

    Args:
        squared_norm: |x|² of the input that each grid sees.
        rate: learning rate of every Euler step.
        decay: γ of each grid.
        constants: those of the circuit.

    >>> norms, rates = torch.ones(7, 1, dtype=torch.float64), torch.full((7, 150), 0.01, dtype=torch.float64)
    >>> rest = {"decay": torch.tensor([0.1], dtype=torch.float64), "constants": CircuitConstants()}
    >>> steady, maps = steady_presentation_maps(norms, 0.01, **rest), presentation_maps(norms, rates, **rest)
    >>> torch.allclose(steady.motion, maps.motion), torch.allclose(steady.carry, maps.carry)
    (True, True)
    """
    dtype, squared_norm = squared_norm.dtype, squared_norm.double()
    fraction, kept = constants.fraction, 1 - constants.fraction
    above, inhibitory, displaced, moving, initial, along, gained = range(7)
    step = torch.eye(7).to(squared_norm).repeat(*squared_norm.shape, 2, 1, 1)
    decay, inhibition = decay.unsqueeze(-1), squared_norm.new_tensor([0.0, constants.inhibition])  # the means only
    step[..., above, above] = kept
    step[..., above, inhibitory] = -fraction * inhibition
    step[..., above, [displaced, initial]] = fraction
    step[..., above, along] = fraction * squared_norm.unsqueeze(-1)
    step[..., inhibitory, [above, inhibitory]] = squared_norm.new_tensor([fraction, kept])
    # By how much x is added to V follows the rates, V itself only D; D and what is added to it follow them.
    step[..., gained, above] = 1
    for place, velocity in ((along, gained), (displaced, moving)):
        step[..., velocity, place], step[..., velocity, velocity] = decay, constants.momentum
        step[..., place, :] -= rate * step[..., velocity, :]
    steps = torch.linalg.matrix_power(step, constants.steps).to(dtype)
    motion = steps[..., [above, inhibitory, along, gained], :along]
    return PresentationMaps(motion, steps[..., 0, displaced : moving + 1, displaced : moving + 1])


def present_(state: CircuitState, pattern: Float[Tensor, "grids inputs"], maps: PresentationMaps) -> CircuitState:
    """Show circuits an input for one presentation, in place.

    >>> state = CircuitState.at_rest(torch.tensor([1.0, 3.0], dtype=torch.float64).reshape(1, 2, 1, 1))
    >>> x, decay = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    >>> rates = torch.zeros(150, dtype=torch.float64)
    >>> maps = presentation_maps(x.square().sum(dim=1), rates, decay=decay, constants=CircuitConstants())
    >>> (1 + present_(state, x, maps).above_bias).flatten()  # Eq. 9: 0.1818, 2.1818
    tensor([0.1855, 2.1731], dtype=torch.float64)
    """
    x = pattern[:, None, None]
    displaced, moving, initial = (
        torch.bmm(tensor.flatten(1, 2), pattern.unsqueeze(2)).view_as(state.above_bias)
        for tensor in (state.displacement, state.velocity, state.initial)
    )
    inhibitory = state.inhibitory.unsqueeze(1).expand_as(state.above_bias)
    numbers = torch.stack([state.above_bias, inhibitory, displaced, moving, initial])
    means = numbers.mean(dim=2, keepdim=True)
    differences = torch.einsum("gij,jgnc->ignc", maps.motion[:, 0], numbers - means)
    means = torch.einsum("gij,jgnc->ignc", maps.motion[:, 1], means)
    state.inhibitory = means[1].squeeze(1)
    state.above_bias, _, along, moved = differences.add_(means).unbind()

    displacement, velocity = state.displacement, state.velocity
    carry = maps.carry[:, :, :, None, None, None]
    state.displacement = (displacement * carry[:, 0, 0]).addcmul_(velocity, carry[:, 0, 1])
    state.displacement.addcmul_(along.unsqueeze(-1), x)
    velocity.mul_(carry[:, 1, 1]).addcmul_(displacement, carry[:, 1, 0]).addcmul_(moved.unsqueeze(-1), x)
    return state


def present_each_(
    state: CircuitState,
    patterns: Float[Tensor, "presentations grids inputs"],
    *,
    rate: float | Callable[[int], float],
    decay: Float[Tensor, "grids"],
    constants: CircuitConstants,
    first: int = 0,
) -> Iterator[CircuitState]:
    """Show circuits one input after the other, in place, and yield them after each presentation.

    All presentations are condensed at once, so give about a hundred at a time.

    Args:
        state: of the circuits; changed in place.
        patterns: inputs of each presentation.
        rate: the learning rate, or a function of the Euler step.
        decay: γ of each grid.
        constants: those of the circuit.
        first: how many presentations there were before these.

    >>> state, patterns = CircuitState.at_rest(torch.ones(1, 2, 1, 3)), torch.ones(4, 1, 3)
    >>> shown = present_each_(state, patterns, rate=0.0, decay=torch.zeros(1), constants=CircuitConstants())
    >>> len([after.weight for after in shown])
    4
    """
    euler_steps = range(first * constants.steps, (first + len(patterns)) * constants.steps)
    rates = patterns.new_tensor([rate(step) if callable(rate) else rate for step in euler_steps])
    norms = patterns.square().sum(dim=-1)
    maps = presentation_maps(norms, rates.view(len(patterns), -1), decay=decay, constants=constants)
    for i, pattern in enumerate(patterns):
        yield present_(state, pattern, maps[i])
