"""The realistic circuit: excitatory rates and one inhibitory neuron, plastic at every Euler step.

.. math::
    \\tau \\dot r_i = -r_i + w_i^\\top x - \\alpha r_{inh} + b, \\qquad
    \\tau \\dot r_{inh} = -r_{inh} + \\frac1N \\sum_j r_j - b

Eq. 8 of Pogodin et al. (2021), with the anti-Hebbian plasticity −(rᵢ − b)x − γ(wᵢ − wᵢ^init) in each step.

While an input x is presented, everything is linear and all motion of the weights lies along x, along their
distance from w^init at the start (D) and along the momentum at the start (V). The steps of a presentation
therefore act on a few numbers per neuron, and identically on each neuron's difference from the mean: they are
condensed into small matrices (``presentation_maps``) which ``present_`` applies. This is exact to rounding.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from sleepconv.functional.sizes import check_finite

_LEAST = {"inhibition": 0.0, "momentum": 0.0}
_MOST_STEPS = 100_000  # of a presentation; 100 presentations are simulated at once, with a learning rate for each step


@dataclass(frozen=True)
class CircuitConstants:
    """The constants of Eq. 8 and of its simulation; the defaults are the paper's.

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
        """Check that the circuit can be simulated with these constants."""
        for constant in fields(self):
            check_finite(constant.name, getattr(self, constant.name), least=_LEAST.get(constant.name))
        if self.tau_ms <= 0:
            raise ValueError(f"`tau_ms` must be above 0, got {self.tau_ms}")
        if self.momentum >= 1:
            raise ValueError(f"`momentum` must be below 1, got {self.momentum}")
        longest = 2.0 * self.tau_ms / (1 + self.inhibition)
        if not 0 < self.step_ms < longest:
            raise ValueError(
                f"`step_ms` must be between 0 and {longest:.3g}, where Euler's method is stable for "
                f"inhibition={self.inhibition} and tau_ms={self.tau_ms}, got {self.step_ms}"
            )
        if not 0.5 < self.presentation_ms / self.step_ms <= _MOST_STEPS:
            raise ValueError(
                f"`presentation_ms` must be between one and {_MOST_STEPS:,} steps of {self.step_ms} ms, "
                f"got {self.presentation_ms}"
            )

    @property
    def steps(self) -> int:
        """Number of Euler steps in a presentation."""
        return round(self.presentation_ms / self.step_ms)


def paper_learning_rate(step: int) -> float:
    r"""Return the circuit's learning rate in the paper's Fig. 4B, with t the number of Euler steps before this one.

    .. math:: \eta_t = \frac{0.0003}{\sqrt{1 + t / 2}} \text{ for } t > 50, \qquad \eta_t = 0 \text{ before}

    The text (A.5) has k ≥ 50 and counts presentations, with which the circuit does not do what the text describes.

    >>> paper_learning_rate(50), round(paper_learning_rate(198), 6)
    (0.0, 3e-05)
    """
    return 0.0003 / math.sqrt(1 + step / 2) if step > 50 else 0.0


def rate_fixed_point(
    drive: Float[Tensor, "*batch neurons"], *, inhibition: float | Float[Tensor, "..."], bias: float
) -> Float[Tensor, "*batch neurons"]:
    r"""Return the rates at which the circuit settles for the drive :math:`w_i^\top x`.

    .. math:: r_i^* = b + w_i^\top x - \frac{\alpha_i}{1 + \bar\alpha} \frac1N \sum_j w_j^\top x

    Eq. 9 of Pogodin et al. (2021), where all neurons are inhibited alike.

    Args:
        drive: :math:`w_i^\top x`.
        inhibition: α, one number, or a tensor that broadcasts with ``drive``: one per neuron, say.
        bias: b.

    >>> rate_fixed_point(torch.tensor([1.0, 3.0]), inhibition=1.0, bias=1.0)
    tensor([1., 3.])
    >>> rate_fixed_point(torch.tensor([1.0, 3.0]), inhibition=torch.tensor([0.0, 2.0]), bias=1.0)
    tensor([2., 2.])
    """
    if not isinstance(inhibition, Tensor):
        check_finite("inhibition", inhibition, least=0)
    alpha = torch.as_tensor(inhibition, dtype=drive.dtype, device=drive.device)
    if not bool(((alpha >= 0) & alpha.isfinite()).all()):
        raise ValueError(f"`inhibition` must be finite numbers, at least 0, got {inhibition}")
    return bias + drive - alpha / (1 + alpha.mean(dim=-1, keepdim=True)) * drive.mean(dim=-1, keepdim=True)


def euler_rates(
    drive: Float[Tensor, "*batch neurons"], *, steps: int, constants: CircuitConstants | None = None
) -> tuple[Float[Tensor, "time *batch neurons"], Float[Tensor, "time *batch 1"]]:
    """Follow Eq. 8 from rest (rᵢ = b, r_inh = 0) with the weights held still; the first entry is the start.

    >>> rates, inhibitory = euler_rates(torch.tensor([1.0, 3.0]), steps=1)
    >>> rates[-1]
    tensor([1.0333, 1.1000])
    """
    constants = constants or CircuitConstants()
    fraction = constants.step_ms / constants.tau_ms
    above, inhibitory = torch.zeros_like(drive), torch.zeros_like(drive[..., :1])
    course = [(above, inhibitory)]
    for _ in range(steps):
        excited = above + fraction * (drive - above - constants.inhibition * inhibitory)
        inhibitory = inhibitory + fraction * (above.mean(dim=-1, keepdim=True) - inhibitory)
        above = excited
        course.append((above, inhibitory))
    return constants.bias + torch.stack([r for r, _ in course]), torch.stack([i for _, i in course])


@dataclass
class CircuitState:
    """What a circuit carries from one presentation to the next, for many grids and channels at once.

    The weights are ``initial + displacement``; ``above_bias`` is rᵢ − b.

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
        """Start with these weights, rates equal to the bias and a silent inhibitory neuron."""
        still = torch.zeros_like(weight)
        return cls(weight.clone(), still, still.clone(), still[..., 0].clone(), still[:, 0, :, 0].clone())

    @property
    def weight(self) -> Float[Tensor, "grids neurons channels inputs"]:
        """Return the present weights."""
        return self.initial + self.displacement


@dataclass(frozen=True)
class PresentationMaps:
    """What the Euler steps of a presentation do, or of several (all tensors may have leading axes).

    ``motion`` takes the numbers (r − b, r_inh, D·x, V·x, w^init·x) to (r − b, r_inh, how far D moves along x,
    how far V moves along x): its first matrix holds for each neuron's differences from the mean, its second
    for the means. ``carry`` says how D and V mix apart from that.

    >>> norms, still, decay = torch.ones(7, 1), torch.zeros(7, 150), torch.zeros(1)  # seven presentations to one grid
    >>> maps = presentation_maps(norms, still, decay=decay, constants=CircuitConstants())
    >>> maps.motion.shape, maps[0].motion.shape
    (torch.Size([7, 1, 2, 4, 5]), torch.Size([1, 2, 4, 5]))
    """

    motion: Float[Tensor, "*presentations grids 2 4 5"]
    carry: Float[Tensor, "*presentations grids 2 2"]

    def __getitem__(self, presentation: int) -> "PresentationMaps":
        """Return the maps of one of several presentations."""
        return PresentationMaps(self.motion[presentation], self.carry[presentation])


def presentation_maps(
    squared_norm: Float[Tensor, "*presentations grids"],
    learning_rates: Float[Tensor, "*presentations steps"],
    *,
    decay: Float[Tensor, "grids"],
    constants: CircuitConstants,
) -> PresentationMaps:
    """Condense the Euler steps of presentations into small matrices, for all presentations and grids at once.

    Args:
        squared_norm: |x|² of the input that each grid sees.
        learning_rates: one per Euler step.
        decay: γ of each grid.
        constants: of the circuit.

    >>> norms, learning_rates, decay = torch.ones(1, 1), torch.zeros(1, 150), torch.tensor([0.1])
    >>> presentation_maps(norms, learning_rates, decay=decay, constants=CircuitConstants()).carry[0, 0, 0]
    tensor([1., 0.])
    """
    fraction = constants.step_ms / constants.tau_ms
    columns = (5, 2, *squared_norm.shape)
    above, inhibitory, weight, velocity = squared_norm.new_zeros((4, *columns)).unbind()
    above[0], inhibitory[1] = 1, 1
    carry = squared_norm.new_zeros((2, 2, *squared_norm.shape))
    carry[0, 0], carry[1, 1] = 1, 1
    # The inhibitory neuron acts on the mean only: differences from it move as if there were no inhibition.
    inhibition = torch.tensor([0, constants.inhibition]).to(squared_norm).reshape(2, *[1] * squared_norm.dim())
    for rate in learning_rates.unsqueeze(-2).unbind(dim=-1):
        drive = weight * squared_norm
        drive[2:4] += carry[0].unsqueeze(1)
        drive[4] += 1
        velocity.mul_(constants.momentum).add_(above).addcmul_(weight, decay)
        weight.addcmul_(velocity, rate, value=-1)
        drive.sub_(above).addcmul_(inhibitory, inhibition, value=-1)
        inhibitory.lerp_(above, fraction)
        above.add_(drive, alpha=fraction)
        carry[1].mul_(constants.momentum).addcmul_(carry[0], decay)
        carry[0].addcmul_(carry[1], rate, value=-1)
    motion = torch.stack([above, inhibitory, weight, velocity], dim=1).movedim((2, 1, 0), (-3, -2, -1))
    return PresentationMaps(motion, carry.movedim((0, 1), (-2, -1)))


def present_(state: CircuitState, pattern: Float[Tensor, "grids inputs"], maps: PresentationMaps) -> CircuitState:
    """Show the circuit one input for one presentation, in place; rates are carried over from the last one.

    >>> state = CircuitState.at_rest(torch.tensor([1.0, 3.0], dtype=torch.float64).reshape(1, 2, 1, 1))
    >>> x, decay = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    >>> still = torch.zeros(150, dtype=torch.float64)
    >>> maps = presentation_maps(x.square().sum(dim=1), still, decay=decay, constants=CircuitConstants())
    >>> (1 + present_(state, x, maps).above_bias).flatten()  # Eq. 9: 0.1818, 2.1818
    tensor([0.1855, 2.1731], dtype=torch.float64)
    """
    displaced, moving, driven = (
        torch.bmm(pattern.unsqueeze(1), tensor.flatten(1, 2).mT).reshape(tensor.shape[:3])
        for tensor in (state.displacement, state.velocity, state.initial)
    )
    inhibitory = state.inhibitory.unsqueeze(1)
    values = torch.stack([state.above_bias, torch.zeros_like(driven), displaced, moving, driven])
    mean = values.mean(dim=2, keepdim=True)
    deviations = torch.einsum("goi,ignc->ognc", maps.motion[:, 0], values - mean)
    mean[1] = inhibitory
    means = torch.einsum("goi,ignc->ognc", maps.motion[:, 1], mean)
    state.inhibitory = means[1].squeeze(1)
    state.above_bias, _, along, velocity_along = (deviations + means).unbind()

    keep, pull, spring, slow = maps.carry.flatten(start_dim=-2)[:, None, None].unsqueeze(-2).unbind(dim=-1)
    row = pattern[:, None, None]
    displacement = (state.displacement * keep).addcmul_(state.velocity, pull)
    displacement.addcmul_(along.unsqueeze(-1), row)
    state.velocity.mul_(slow).addcmul_(state.displacement, spring).addcmul_(velocity_along.unsqueeze(-1), row)
    state.displacement = displacement
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
    """Show the circuit one input after the other, in place, and yield its state after each presentation.

    Args:
        state: changed in place.
        patterns: the inputs; their Euler steps are condensed together, so pass some hundred at most.
        rate: the learning rate of the weights, or a function of the Euler step such as ``paper_learning_rate``.
        decay: γ of each grid.
        constants: of the circuit.
        first: the number of presentations so far, from which the Euler steps are counted.

    >>> state = CircuitState.at_rest(torch.tensor([1.0, 3.0]).reshape(1, 2, 1, 1))
    >>> states = present_each_(state, torch.ones(2, 1, 1), rate=0.0, decay=torch.zeros(1), constants=CircuitConstants())
    >>> [(1 + after.above_bias).flatten() for after in states][-1]  # Eq. 9: 0.1818, 2.1818
    tensor([0.1820, 2.1819])
    """
    steps = range(first * constants.steps, (first + len(patterns)) * constants.steps)
    rates = state.initial.new_tensor([rate(step) if callable(rate) else rate for step in steps])
    norms = patterns.square().sum(dim=-1)
    maps = presentation_maps(norms, rates.view(len(patterns), -1), decay=decay, constants=constants)
    for presentation, pattern in enumerate(patterns):
        yield present_(state, pattern, maps[presentation])
