"""How a sleeping network shares its weights: at once, by Hebbian learning, or through an inhibitory circuit.

A rule acts on a tensor (with its grids), on a layer or on a model: ``rule(target)``.

``Hebbian`` and ``Circuit`` learn on copies of the weights. An error or Ctrl-C meanwhile leaves all layers as they were;
at the end each layer gets its new weights in one copy, layer after layer, so that Ctrl-C at that moment leaves each of
them either as it was or slept. ``Instant`` needs no second copy of the weights: it works in place, grid after grid, and
Ctrl-C leaves each filter either as it was or shared. The next sleep shares whatever was left.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from math import inf, isfinite, prod
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sleepconv.functional.grids import joined_grids
from sleepconv.functional.sharing import neurons_per_grid
from sleepconv.functional.sizes import check_finite, check_int
from sleepconv.simulation.circuit import CircuitConstants, CircuitState, present_, presentation_maps
from sleepconv.sleep.distributed import check_placements, share_
from sleepconv.sleep.hebbian import (
    LARGEST,
    DivergenceError,
    LayerReport,
    Rate,
    Settings,
    sleep_alone,
    sleep_layer_by_layer,
)
from sleepconv.sleep.layers import Border, check_border, sharing_grids, sleeping_layers
from sleepconv.sleep.patterns import KINDS, network_period, random_cell
from sleepconv.sleep.pools import LayerPools, Pool


class Rule(Protocol):
    """What ``Sleep`` asks of a rule.

    A rule that may fail, or that takes long enough to be interrupted, had better learn on copies and change the weights
    at its end.

    A rule can also have ``grids(layers)``, the grids within which each of the layers shares, by name: the moments and
    the recorded SNR follow them, instead of the layers' own.

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
    """What all rules have in common: they act on a tensor, on a layer and on a model, within grids that they choose."""

    border: Border = "all"

    def grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Who shares with whom in each of these layers."""
        period = self.period_of(layers)
        return {name: sharing_grids(layer, self.border, period) for name, layer in layers.items()}

    def period_of(self, layers: Mapping[str, Any]) -> int | None:
        """The period of the patterns, if it is one for all layers; None: each layer has its own."""
        return None

    def __call__(self, target: Tensor | nn.Module, grids: Tensor | None = None) -> Any:
        """Share the weights of a tensor, a layer or a model, in place."""
        if isinstance(target, Tensor):
            if grids is None:
                raise ValueError("a bare tensor does not know its grids; give them, as from lateral_grids")
            layer = _BareLayer(target, grids)
            self.sleep_({"the tensor": layer}, layer)
        elif isinstance(target, nn.Module):
            self.sleep_(sleeping_layers(target), target)
        else:
            raise TypeError(f"a rule acts on a tensor, a layer or a model, not on a {type(target).__name__}")
        return target

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers of the model share, in place."""
        raise NotImplementedError


class _BareLayer(nn.Module):
    def __init__(self, weight: Tensor, grids: Tensor) -> None:
        super().__init__()
        self.weight, self.grids = weight, grids


CHUNK = 100


def paper_circuit_rate(step: int) -> float:
    """The learning rate of the paper's Fig. 4B, counted in Euler steps.

    >>> paper_circuit_rate(0), round(paper_circuit_rate(198), 6)
    (0.0, 3e-05)
    """
    return 0.0003 / (1 + step / 2) ** 0.5 if step > 50 else 0.0


def run_circuit(
    layer: LayerPools,
    pool: Pool,
    constants: CircuitConstants,
    *,
    decay: float,
    presentations: int,
    rate: float | Callable[[int], float],
    input_power: float,
    generator: torch.Generator,
) -> None:
    """Present patterns to one pool, in place."""
    state = CircuitState.at_rest(pool.weight.double())
    scale = min(1.0, input_power / layer.inputs) ** 0.5
    decays = state.initial.new_full((layer.groups,), decay)
    for first in range(0, presentations, CHUNK):
        number = min(CHUNK, presentations - first)
        windows = scale * layer.windows(pool, random_cell(layer, number, generator, state.initial))
        steps = range(first * constants.steps, (first + number) * constants.steps)
        rates = state.initial.new_tensor([rate(step) if callable(rate) else rate for step in steps])
        norms = windows.square().sum(dim=-1).mT
        maps = presentation_maps(norms, rates.view(number, -1), decay=decays, constants=constants)
        for presentation in range(number):
            present_(state, windows[:, presentation], maps[presentation])
        size = float(state.weight.norm())
        if not isfinite(size) or size > 4 * float(state.initial.norm()) + 1e-30:
            stable = (1 - constants.momentum) * constants.step_ms / constants.tau_ms / float(norms.max())
            raise DivergenceError(f"the circuit's weights diverge; rates below about {stable:.2g} are stable here")
    pool.weight.copy_(state.weight)


# A sleep of more takes hours even of a small layer, or more memory than there is.
MOST_STEPS, MOST_PATTERNS, MOST_PIXELS, MOST_EULER_STEPS = 10**6, 10**5, 10**8, 10**8


@dataclass(frozen=True)
class Instant(OnAnything):
    r"""Every grid's filters become their mean, at once: what the paper's experiments do (section 5).

    .. math:: w_i \leftarrow \frac{1}{|G(i)|} \sum_{j \in G(i)} w_j

    Args:
        border: "all" neurons share, or only those of the "interior", whose windows see no padding; the others then keep
            their weights.
        period: of the patterns, the same for all layers; by default each layer's own, that of its kernel. The network's
            period gives the limit of ``Hebbian(patterns="layer_by_layer")`` where its patterns span a layer's inputs.
            With 1 a layer shares one filter, as a convolution does: a control, since no patterns of that period span
            the inputs of larger filters than 1×1. Several periods follow one another in each sleep: neurons that share
            through patterns of period 3 and of period 4, both of which span the inputs of 3×3 filters, come to have one
            filter for a whole layer over the next sleeps, if it has at least 6 neurons along each axis (soon, if it
            has many).

    >>> weight = torch.tensor([[1.0], [10.0], [3.0], [20.0]])
    >>> Instant()(weight, torch.tensor([0, 1, 0, 1])).flatten().tolist()
    [2.0, 15.0, 2.0, 15.0]
    """

    border: Border = "all"
    period: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_border(self.border)
        if isinstance(self.period, str) or (isinstance(self.period, Sequence) and not self.period):
            raise ValueError(f"`period` must be an int or several ints, got {self.period!r}")
        if isinstance(self.period, Sequence):
            object.__setattr__(self, "period", tuple(self.period))
        for period in () if self.period is None else self._periods:
            check_int("period", period)  # type: ignore[arg-type]

    @property
    def _periods(self) -> tuple[int | None, ...]:
        return tuple(self.period) if isinstance(self.period, Sequence) else (self.period,)

    def grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Who shares with whom in each of these layers, be it through several periods."""
        return {name: joined_grids(self._grids_in_turn(layer)) for name, layer in layers.items()}

    def _grids_in_turn(self, layer: Any) -> list[Tensor]:
        return [sharing_grids(layer, self.border, period) for period in self._periods]

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Share in all these layers, one after the other, in place."""
        check_something_to_share(layers, self.grids(layers))
        check_placements(layers)
        for layer in layers.values():
            for grids in self._grids_in_turn(layer):
                if len(self._periods) == 1 or int(grids.flatten().bincount().max()) > 1:
                    share_(layer.weight, grids)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Hebbian(OnAnything):
    r"""Anti-Hebbian learning pulls the neurons of a grid towards their common mean response.

    .. math:: \Delta w_i \propto -(z_i - \tfrac1N \textstyle\sum_j z_j)\,x - \gamma\,(w_i - w_i^{init})

    Eq. 4 of Pogodin et al. (2021), with w^init the weights at the start of *this* sleep. It ends at Eq. 5, whose limit
    for small γ is ``Instant``. With finite ``inhibition`` α it is the biased update of the appendix.

    Args:
        decay: γ.
        patterns: "one_grid", "independent" or "layer_by_layer"; see ``sleepconv.sleep.patterns``.
        patterns_per_step: how many patterns a step averages over; by default a quarter of the filter's inputs
            (independent), 64 (layer by layer), or a sweep of all input grids, one at a time (one grid).
        momentum: of the updates; the paper's simulations have .95.
        inhibition: α; none means perfect inhibition.
        noise: standard deviation of what each neuron sees beside the pattern (appendix, "Noisy case").
        rate: the learning rate, or a function of the step; by default as fast as is stable for the inputs, whatever
            their number. The paper's Fig. 4A has ``lambda step: 0.5 / (1000 + step)``.
        steps: at most so many steps (of one grid, unless patterns_per_step is given: sweeps); a million at most.
        target: stop where −log SNR is below this; none: take all steps.
        in_turn: layer by layer, let one layer learn after the other instead of all at once.
        image_shape: layer by layer, (channels, height, width) of the network's input, if it is not that of the first
            sleeping layer.
        border: "all" neurons share, or only those of the "interior", whose windows see no padding; the others then keep
            their weights.
        seed: of patterns and noise.

    After a sleep, ``reports`` says how each layer did.

    >>> weight = torch.tensor([[[1.0]], [[10.0]], [[3.0]], [[20.0]]])
    >>> Hebbian(decay=1e-6)(weight, torch.tensor([0, 1, 0, 1])).flatten().round(decimals=3).tolist()
    [2.0, 15.0, 2.0, 15.0]
    """

    decay: float = 1e-4
    patterns: str = "one_grid"
    patterns_per_step: int | None = None
    momentum: float = 0.0
    inhibition: float | None = None
    noise: float = 0.0
    rate: Rate | None = None
    steps: int = 200
    target: float | None = None
    in_turn: bool = False
    image_shape: tuple[int, ...] | None = None
    border: Border = "all"
    seed: int = 0
    reports: dict[str, LayerReport] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.patterns not in KINDS:
            raise ValueError(f"patterns is one of {', '.join(KINDS)}, not {self.patterns!r}")
        check_finite("decay", self.decay, least=0, most=LARGEST)
        check_finite("noise", self.noise, least=0, most=LARGEST)
        _check_number("steps", self.steps, most=MOST_STEPS)
        if self.patterns_per_step is not None:
            _check_number("patterns_per_step", self.patterns_per_step, most=MOST_PATTERNS)
        if self.image_shape is not None:
            _check_number(
                "pixels of image_shape", prod(check_int("image_shape", n) for n in self.image_shape), MOST_PIXELS
            )
        if self.rate is not None:
            _check_rate(self.rate)
        if self.rate == 0:
            raise ValueError("`rate` must be above 0, got 0")
        check_finite("momentum", self.momentum, least=0)
        if self.momentum >= 1:
            raise ValueError(f"`momentum` must be below 1, got {self.momentum}")
        if self.inhibition is not None:
            check_finite("inhibition", self.inhibition, least=0)
        if self.target not in (None, inf, -inf):
            check_finite("target", self.target)
        check_border(self.border)
        _check_seed(self.seed)
        if self.decay == 0 and self.noise > 0:
            raise ValueError(
                "with noisy inputs and a decay of zero all weights shrink to nothing; choose a decay above zero"
            )

    def period_of(self, layers: Mapping[str, Any]) -> int | None:
        """The network's, if patterns pass through it."""
        return network_period(layers) if self.patterns == "layer_by_layer" else None

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers learn; they get their new weights when all is done."""
        check_something_to_share(layers, self.grids(layers))
        settings = Settings(**{f.name: getattr(self, f.name) for f in fields(Settings)})
        self.reports.clear()
        with _full_precision(layers):
            period = self.period_of(layers)
            pools = {name: LayerPools(layer, period=period, border=self.border) for name, layer in layers.items()}
            if self.patterns == "layer_by_layer":
                first = next(iter(pools.values())).layer
                shape = self.image_shape or (first.in_channels, *first.input_size)
                self.reports.update(sleep_layer_by_layer(model, pools, settings, shape, self.in_turn))
            else:
                self.reports.update(sleep_alone(pools, settings, self.patterns))
        _write_back(pools)


@dataclass(frozen=True)
class Circuit(OnAnything):
    r"""Excitatory neurons and one inhibitory neuron per grid and channel find out by themselves what to share.

    .. math::
        \tau \dot r_i = -r_i + w_i^\top x - \alpha r_{inh} + b, \qquad
        \tau \dot r_{inh} = -r_{inh} + \tfrac1N \textstyle\sum_j r_j - b

    Eq. 8 of Pogodin et al. (2021) in Euler steps, with the plasticity −(rᵢ − b) x − γ (wᵢ − wᵢ^init) in each. Random
    patterns, new in each presentation, drive every layer. Its bias (finite α) grows slowly: ``presentations`` is
    where the paper's Fig. 4B is best.

    Args:
        inhibition: α.
        tau_ms: τ.
        bias: b.
        decay: γ.
        presentations: how many patterns.
        presentation_ms: how long each.
        step_ms: of Euler's method.
        momentum: per Euler step.
        rate: of the Euler step; by default 0.0003 / √(1 + t/2) from t = 50 on.
        input_power: |x|² of the patterns is at most this, so that the paper's rates suit filters of any width.
        border: "all" neurons share, or only those of the "interior", whose windows see no padding; the others then keep
            their weights.
        seed: of the patterns.

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
    rate: Rate = paper_circuit_rate
    input_power: float = 81.0
    border: Border = "all"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_border(self.border)
        most = MOST_EULER_STEPS // self._constants.steps
        _check_number(f"presentations, of {self._constants.steps} Euler steps,", self.presentations, most)
        _check_rate(self.rate)
        check_finite("decay", self.decay, least=0, most=LARGEST)
        if self.input_power != inf:
            check_finite("input_power", self.input_power)
        if self.input_power <= 0:
            raise ValueError(f"`input_power` must be above 0, got {self.input_power}")
        _check_seed(self.seed)

    @property
    def _constants(self) -> CircuitConstants:
        return CircuitConstants(**{f.name: getattr(self, f.name) for f in fields(CircuitConstants)})

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers' circuits run; they get their new weights when all is done."""
        check_something_to_share(layers, self.grids(layers))
        pools = {name: LayerPools(layer, border=self.border) for name, layer in layers.items()}
        for layer in pools.values():
            generator = torch.Generator().manual_seed(self.seed)
            for pool in layer.sharing:
                run_circuit(
                    layer,
                    pool,
                    self._constants,
                    decay=self.decay,
                    presentations=self.presentations,
                    rate=self.rate,
                    input_power=self.input_power,
                    generator=generator,
                )
        _write_back(pools)


def _check_rate(rate: Rate) -> None:
    if not callable(rate):
        check_finite("rate", rate, least=0, most=LARGEST, or_else="a function of the step")


def _check_seed(seed: int) -> None:
    try:
        torch.Generator().manual_seed(seed)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"`seed` must be an int of 64 bits, got {seed!r}") from error


@torch.no_grad()
def _write_back(pools: Mapping[str, LayerPools]) -> None:
    """Give the layers what their pools have learned, each in one copy, which Ctrl-C cannot interrupt."""
    learned = [(layer.layer.weight, layer.learned_weight()) for layer in pools.values()]
    for weight, new in learned:
        weight.copy_(new)


def _check_number(name: str, value: int, most: int) -> None:
    """Refuse a computation that would not end."""
    if check_int(name, value) > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value:,}")


def _full_precision(layers: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Without autocast: sleep may begin before an evaluation that runs under it."""
    return torch.autocast(next(iter(layers.values())).weight.device.type, enabled=False)


def check_something_to_share(layers: Mapping[str, Any], grids: Mapping[str, Tensor]) -> None:
    """Raise a ValueError that names a layer whose grids all have one neuron."""
    for name, layer in layers.items():
        if int(neurons_per_grid(layer.weight, grids[name]).max()) < 2:
            own = int(neurons_per_grid(layer.weight, layer.grids).max()) < 2
            grid = "grid" if own else "grid, as the rule's border and period choose them,"
            raise ValueError(
                f"layer {name!r}: every {grid} has one neuron, so there is nothing to share; exclude it from sleep"
            )
