"""The sleep rules: what a rule is, ``Instant`` and ``Circuit``; ``Hebbian`` is in ``sleepconv.sleep.hebbian``.

All rules but ``Instant`` learn on copies of the weights. If an error or Ctrl-C interrupts them, all layers keep their
old weights. At the end each layer gets its new weights in one copy, layer after layer; Ctrl-C at that moment leaves
each layer either unchanged or fully updated. ``Instant`` needs no second copy of the weights: it works in place, grid
after grid, and Ctrl-C leaves each filter either unchanged or shared. The next sleep shares the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf, prod
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from sleepconv.functional.grids import joined_grids
from sleepconv.functional.sizes import check_finite, check_int
from sleepconv.simulation.circuit import CircuitConstants, CircuitState, paper_learning_rate, present_each_
from sleepconv.sleep.distributed import check_placements, share_
from sleepconv.sleep.layers import (
    Border,
    check_border,
    check_something_to_share,
    has_assigned_grids,
    sharing_grids,
    sleeping_layers,
)
from sleepconv.sleep.patterns import random_cell
from sleepconv.sleep.pools import LayerPools, Pool
from sleepconv.sleep.watching import notice, watched

Rate = float | Callable[[int], float]

LARGEST = 1e15  # bound on a decay, noise or rate: its square must fit into float32, in which weights may learn

_AT_ONCE = 100  # presentations whose Euler steps are condensed together
_MOST_EULER_STEPS = 10**8  # more take hours even for a small layer
_MOST_PIXELS = 10**8  # more do not fit into memory


class Rule(Protocol):
    """What ``Sleep`` needs of a rule: one method, and two optional attributes.

    A rule that may fail, or that takes long enough to be interrupted, should learn on copies and change the weights at
    its end.

    ``grids(layers)``, if it exists, returns the grids within which each of the layers shares, by name. Shared moments
    and recorded SNRs then follow them instead of the layers' own.

    ``works_on_shards = True`` says that ``sleep_`` can change weights that FSDP2 has sharded (``DTensor``), and that it
    computes the same on every process; ``sleepconv.sleep.distributed.share_`` takes such weights. For all other rules
    the whole model is gathered on every process, and the first process's result counts.

    >>> class Forget:
    ...     def sleep_(self, layers, model):
    ...         for layer in layers.values():
    ...             nn.init.zeros_(layer.weight)
    >>> from sleepconv import Sleep
    >>> from sleepconv.nn import LocallyConnected2d
    >>> layer = LocallyConnected2d(1, 4, 3, input_size=9)
    >>> record = Sleep(layer, every=10, rule=Forget()).sleep()
    >>> layer.weight.abs().max().item()
    0.0
    """

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers of the model share, in place."""


class OnAnything:
    """Base class of our rules, which makes them callable on a tensor (with its grids), a layer or a model."""

    border: Border = "all"

    def __call__(self, target: Tensor | nn.Module, grids: Tensor | None = None) -> Any:
        """Share the weights of a tensor, a layer or a model, in place."""
        if isinstance(target, Tensor):
            if grids is None:
                raise ValueError("a bare tensor does not know its grids; pass them as well, as from lateral_grids")
            layer = _BareLayer(target, grids)
            self.sleep_({"the tensor": layer}, layer)
        elif isinstance(target, nn.Module):
            self.sleep_(sleeping_layers(target), target)
        else:
            raise TypeError(f"a rule takes a tensor, a layer or a model, got {type(target).__name__}")
        return target

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers of the model share, in place."""
        raise NotImplementedError

    def grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return who shares with whom in each of these layers."""
        return {name: sharing_grids(layer, self.border) for name, layer in layers.items()}


class _BareLayer(nn.Module):
    def __init__(self, weight: Tensor, grids: Tensor) -> None:
        super().__init__()
        self.weight, self.grids = weight, grids


@dataclass(frozen=True)
class Instant(OnAnything):
    r"""Set every filter to the mean of its grid at once, as the paper's experiments do (section 5).

    .. math:: w_i \leftarrow \frac{1}{|G(i)|} \sum_{j \in G(i)} w_j

    Args:
        border: "all" neurons share, or only those of the "interior", whose windows see no padding; the others then keep
            their weights.
        period: of the patterns, the same for all layers; by default each layer's own, its kernel size. The network's
            period gives the limit of ``Hebbian(patterns="layer_by_layer")`` where its patterns span a layer's inputs.
            With 1 the neurons of a layer share one filter, as in a convolution: a control, since patterns of that
            period span the inputs of 1×1 filters only. Several periods are applied in turn in each sleep: with periods
            3 and 4, both of which span the inputs of 3×3 filters, a layer with at least 6 neurons along each axis
            converges to one filter over several sleeps (the faster, the more neurons it has).

    >>> weight = torch.tensor([[1.0], [10.0], [3.0], [20.0]])
    >>> Instant()(weight, torch.tensor([0, 1, 0, 1])).flatten().tolist()
    [2.0, 15.0, 2.0, 15.0]
    """

    works_on_shards: ClassVar[bool] = True

    border: Border = "all"
    period: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        check_border(self.border)
        if isinstance(self.period, str) or (isinstance(self.period, Sequence) and not self.period):
            raise ValueError(f"`period` must be an int or several ints, got {self.period!r}")
        if isinstance(self.period, Sequence):
            object.__setattr__(self, "period", tuple(self.period))
        for period in () if self.period is None else self._periods:
            check_int("period", period)  # type: ignore[arg-type]

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Share in all these layers, one after the other, in place."""
        check_something_to_share(layers, self.grids(layers))
        check_placements(layers)
        for layer in layers.values():
            for grids in self._grids_in_turn(layer):
                if len(self._periods) == 1 or int(grids.flatten().bincount().max()) > 1:
                    share_(layer.weight, grids)  # type: ignore[arg-type]

    def grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return who shares with whom in each of these layers, directly or through a chain of several periods."""
        return {name: joined_grids(self._grids_in_turn(layer)) for name, layer in layers.items()}

    def _grids_in_turn(self, layer: Any) -> list[Tensor]:
        if self.period is not None and has_assigned_grids(layer):
            raise ValueError("`period` would replace the layer's assigned grids; use Instant(), or `del layer.grids`")
        return [sharing_grids(layer, self.border, period) for period in self._periods]

    @property
    def _periods(self) -> tuple[int | None, ...]:
        return tuple(self.period) if isinstance(self.period, Sequence) else (self.period,)


@dataclass(frozen=True)
class CircuitReport:
    """How a layer slept in its circuits; ``sleepconv.analysis`` has its course step by step.

    Attributes:
        negative_log_snr: −log SNR (Eq. 6) at the end, of the grid whose neurons agree least.
        steps: presentations.
        negative_rates: the share of neurons whose rate was below zero at the end of a presentation.

    >>> rule, weight = Circuit(presentations=200), torch.randn(20, 1, 4, generator=torch.Generator().manual_seed(0))
    >>> _ = rule(weight, torch.zeros(20, dtype=torch.int64))
    >>> rule.reports["the tensor"].steps
    200
    """

    negative_log_snr: float
    steps: int
    negative_rates: float


@dataclass(frozen=True)
class Circuit(OnAnything):
    r"""Let excitatory neurons and an inhibitory one, for each grid and channel, share by their own dynamics.

    .. math::
        \tau \dot r_i = -r_i + w_i^\top x - \alpha r_{inh} + b, \qquad
        \tau \dot r_{inh} = -r_{inh} + \tfrac1N \textstyle\sum_j r_j - b

    Eq. 8 of Pogodin et al. (2021) in Euler steps; in each, the weights learn by −(rᵢ − b) x − γ (wᵢ − wᵢ^init), with
    w^init the weights at the start of *this* sleep. Every presentation shows each layer a new random pattern. The
    finite inhibition slowly biases the weights, so more presentations than the default, at which the paper's Fig. 4B
    is lowest, do harm.

    Args:
        inhibition: α.
        tau_ms: τ.
        bias: b.
        decay: γ.
        presentations: number of patterns shown.
        presentation_ms: how long each is shown.
        step_ms: length of an Euler step.
        momentum: of the weights, per Euler step.
        rate: the learning rate, or a function of the Euler step; by default
            ``sleepconv.simulation.circuit.paper_learning_rate``.
        input_power: most that the mean |x|² of the patterns may be, so that the paper's rates suit wide filters too.
        border: "all" neurons share, or only those of the "interior", whose windows see no padding; the others keep
            their weights.
        seed: of the patterns.

    After a sleep, ``reports`` says how each layer did.

    >>> weight = torch.tensor([1.0, 3.0]).reshape(2, 1, 1)
    >>> bool(Circuit(presentations=300)(weight, torch.zeros(2, dtype=torch.int64)).std() < 0.5)
    True
    """

    inhibition: float = 10.0
    tau_ms: float = 30.0
    bias: float = 1.0
    decay: float = 0.01
    presentations: int = 2000
    presentation_ms: float = 150.0
    step_ms: float = 1.0
    momentum: float = 0.95
    rate: Rate = paper_learning_rate
    input_power: float = 81.0
    border: Border = "all"
    seed: int = 0
    reports: dict[str, CircuitReport] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the arguments."""
        steps = self._constants.steps
        check_number(f"presentations, of {steps} Euler steps,", self.presentations, most=_MOST_EULER_STEPS // steps)
        check_rate(self.rate)
        check_finite("decay", self.decay, least=0, most=LARGEST)
        if self.input_power != inf:
            check_finite("input_power", self.input_power)
        if self.input_power <= 0:
            raise ValueError(f"`input_power` must be above 0, got {self.input_power}")
        check_border(self.border)
        check_seed(self.seed)

    @property
    def _constants(self) -> CircuitConstants:
        return CircuitConstants(
            **{constant.name: getattr(self, constant.name) for constant in fields(CircuitConstants)}
        )

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Run the circuits of these layers; the layers get their new weights at the end."""
        check_something_to_share(layers, self.grids(layers))
        self.reports.clear()
        pools = {name: LayerPools(layer, border=self.border) for name, layer in layers.items()}
        for name, layer in pools.items():
            generator = torch.Generator().manual_seed(self.seed)
            reports = [self._run_(layer, pool, generator) for pool in layer.sharing]
            self.reports[name] = _worst(reports)
        write_back_(pools)

    def _run_(self, layer: LayerPools, pool: Pool, generator: torch.Generator) -> CircuitReport:
        state, constants = CircuitState.at_rest(pool.weight.double()), self._constants
        decay = state.initial.new_full((layer.groups,), self.decay)
        scale = min(1.0, self.input_power / layer.inputs) ** 0.5
        most = 4 * float(state.initial.norm()) + 1e-30
        negative = 0.0
        notice(pool, state.initial)
        for first in range(0, self.presentations, _AT_ONCE):
            number = min(_AT_ONCE, self.presentations - first)
            windows = layer.windows(pool, random_cell(layer, number, generator, state.initial))
            patterns = scale * windows.transpose(0, 1)
            shown = present_each_(state, patterns, rate=self.rate, decay=decay, constants=constants, first=first)
            for pattern, _ in zip(patterns, shown, strict=True):
                negative += float((state.above_bias < -self.bias).double().mean())
                if watched():
                    notice(pool, state.weight, pattern[:, None])
            if not float(state.weight.norm()) <= most:
                strongest = float(patterns.square().sum(dim=-1).max())
                stable = (1 - self.momentum) * constants.fraction / strongest
                raise DivergenceError(f"the circuit's weights diverge; rates below about {stable:.2g} are stable here")
        pool.weight.copy_(state.weight)
        return CircuitReport(pool.negative_log_snr(), self.presentations, negative / self.presentations)


def _worst(reports: list[CircuitReport]) -> CircuitReport:
    """Return the report of a layer from those of its pools."""
    return CircuitReport(
        max(report.negative_log_snr for report in reports),
        reports[0].steps,
        sum(report.negative_rates for report in reports) / len(reports),
    )


class DivergenceError(ValueError):
    """The learning rate was too high; the weights are as they were before the sleep.

    >>> from sleepconv.sleep import Hebbian
    >>> weight = torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))
    >>> Hebbian(rate=50.0, patterns="independent")(weight, torch.zeros(6, dtype=torch.int64))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sleepconv.sleep.rules.DivergenceError: ...
    """


@torch.no_grad()
def write_back_(pools: Mapping[str, LayerPools]) -> None:
    """Give the layers what their pools have learned, each in one copy, which Ctrl-C cannot interrupt."""
    learned = [(layer.layer.weight, layer.learned_weight()) for layer in pools.values()]
    for weight, new in learned:
        weight.copy_(new)


def check_rate(rate: Rate) -> None:
    """Raise a ValueError unless this is a learning rate or a function."""
    if not callable(rate):
        check_finite("rate", rate, least=0, most=LARGEST, or_else="a function of the step")


def check_seed(seed: int) -> None:
    """Raise a ValueError unless ``torch.Generator`` takes this seed."""
    try:
        torch.Generator().manual_seed(seed)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"`seed` must be an int of 64 bits, got {seed!r}") from error


def check_image_shape(shape: Sequence[int]) -> None:
    """Raise a ValueError unless this can be (channels, *size) of the images at a network's input."""
    if isinstance(shape, str) or not isinstance(shape, Sequence) or len(shape) < 2:
        raise ValueError(f"`image_shape` must be (channels, *size), got {shape!r}")
    pixels = prod(check_int("image_shape", size) for size in shape)
    check_number("pixels of image_shape", pixels, most=_MOST_PIXELS)


def check_number(name: str, value: int, *, most: int) -> None:
    """Raise a ValueError if there are so many of them that a sleep would not end."""
    if check_int(name, value) > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value:,}")
