"""The circuit of Eq. 8 in every layer of a network that generates its own patterns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sleepconv.functional.sizes import check_finite
from sleepconv.simulation.circuit import CircuitConstants, PresentationMaps, steady_presentation_maps
from sleepconv.sleep.hebbian import LayerReport, layer_report
from sleepconv.sleep.layers import Border, check_border, check_something_to_share, driven_grids
from sleepconv.sleep.passing import SleepingNetwork
from sleepconv.sleep.patterns import Disinhibited, network_period
from sleepconv.sleep.plasticity import presented
from sleepconv.sleep.pools import LayerPools, Pool
from sleepconv.sleep.rules import (
    LARGEST,
    DivergenceError,
    OnAnything,
    check_image_shape,
    check_number,
    check_seed,
    write_back_,
)
from sleepconv.sleep.watching import notice

_MOST_SWEEPS = 10**4


@dataclass(frozen=True)
class NetworkCircuit(OnAnything):
    r"""Let the circuit of Eq. 8 share in every layer while patterns pass from circuit to circuit.

    .. math::
        \tau \dot r_i = -r_i + w_i^\top x - \alpha r_{inh} + b, \qquad
        \tau \dot r_{inh} = -r_{inh} + \tfrac1N \textstyle\sum_j r_j - b

    Eq. 8 of Pogodin et al. (2021) in Euler steps, with the plasticity −(rᵢ − b) x − γ (wᵢ − wᵢ^init). Layers are driven
    as by ``Hebbian(patterns="disinhibited")``: one grid of a layer's input fires at a time. A circuit passes on its
    mean rate, :math:`\bar r - b = \bar z / (1 + \alpha)` (Eq. 9), so patterns would shrink (1 + α)-fold in each layer;
    the homeostasis of the neurons between layers is the gain control that restores them. The circuit is the paper's;
    its place in a network, the gain control and the rest before each presentation are ours.

    Args:
        inhibition: α. The default is the paper's and meant for a single sleep, which shortens the mean filters by about
            half. A network that is trained needs far stronger inhibition, and shorter steps: on CIFAR-10,
            for 200 epochs, 300 was not enough, and 3000 with ``step_ms=0.01`` was.
        tau_ms: τ.
        bias: b; without consequence for what is learned, because rates may be negative, as in the paper.
        decay: γ, for inputs of covariance I.
        sweeps: how often every grid gets its turn. A layer with fewer grids than others is plastic for a shorter time,
            since finite inhibition shrinks the weights of a circuit that learns for too long.
        presentation_ms: how long a grid fires.
        step_ms: length of an Euler step.
        speed: η|x|²τ, the learning rate of the weights relative to that of the rates; 1/4 (for a rate of 1) is where
            weights begin to overshoot.
        image_shape: (channels, height, width) of the network's input, if it is not that of the first sleeping layer.
        border: "all" neurons share, or only those of the "interior", whose windows see no padding.
        seed: of the order of the grids, and of the images at the network's input.

    Attributes:
        reports: how each layer did in the last sleep, by name; its steps are the presentations.

    >>> from sleepconv.nn import LocallyConnected2d
    >>> model = nn.Sequential(LocallyConnected2d(2, 4, 3, input_size=9), LocallyConnected2d(4, 4, 3, input_size=7))
    >>> rule = NetworkCircuit()
    >>> rule(model) is model
    True
    >>> max(report.negative_log_snr for report in rule.reports.values()) < -6
    True
    """

    inhibition: float = 10.0
    tau_ms: float = 30.0
    bias: float = 1.0
    decay: float = 1e-4
    sweeps: int = 3
    presentation_ms: float = 150.0
    step_ms: float = 1.0
    speed: float = 0.5
    image_shape: tuple[int, ...] | None = None
    border: Border = "all"
    seed: int = 0
    reports: dict[str, LayerReport] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the arguments; ``constants`` checks those of the circuit."""
        assert self.constants
        check_border(self.border)
        check_number("sweeps", self.sweeps, most=_MOST_SWEEPS)
        check_finite("decay", self.decay, least=0, most=LARGEST)
        check_finite("speed", self.speed, least=0, most=LARGEST)
        if self.speed == 0:
            raise ValueError("`speed` must be above 0, got 0")
        if self.image_shape is not None:
            check_image_shape(self.image_shape)
        check_seed(self.seed)

    @property
    def constants(self) -> CircuitConstants:
        """The circuit's constants; there is no momentum, which is a device of the paper's simulations."""
        return CircuitConstants(
            inhibition=self.inhibition,
            tau_ms=self.tau_ms,
            bias=self.bias,
            step_ms=self.step_ms,
            presentation_ms=self.presentation_ms,
            momentum=0.0,
        )

    def sleep_(self, layers: Mapping[str, nn.Module], model: nn.Module) -> None:
        """Let these layers learn; the layers get their new weights at the end."""
        grids = self.grids(layers)
        check_something_to_share(layers, grids)
        self.reports.clear()
        period = network_period(layers)
        device: Any = next(iter(layers.values())).weight.device
        with torch.autocast(device.type, enabled=False):
            pools = {name: LayerPools(layer, period=period, border=self.border) for name, layer in layers.items()}
            generator = torch.Generator().manual_seed(self.seed)
            activity = Disinhibited(generator)
            network = SleepingNetwork(model, pools, activity, generator, image_shape=self.image_shape)
            circuits = _Circuits(self, network)
            for _ in range(self.sweeps):
                for number in network.sweep:
                    network.present(number, circuits.learn)
                network.check_reached([name for name in pools if circuits.seen[id(pools[name].sharing[0])]])
            self.reports.update({name: circuits.report(name) for name in pools})
        write_back_(pools)

    def grids(self, layers: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return who shares with whom in each of these layers."""
        period = network_period(layers)
        return {name: driven_grids(layer, self.border, period) for name, layer in layers.items()}


class _Circuits:
    """The circuits of all pools: one inhibitory neuron for each pool and channel."""

    def __init__(self, rule: NetworkCircuit, network: SleepingNetwork) -> None:
        self.rule, self.layers = rule, network.layers
        self.initial = {id(pool): pool.weight.clone() for pools in self.layers.values() for pool in pools.sharing}
        self.presentations = {
            name: rule.sweeps * pools.in_channels * network.period ** len(pools.kernel)
            for name, pools in self.layers.items()
        }
        if not all(bool(weight.isfinite().all()) for weight in self.initial.values()):
            raise ValueError("the weights contain NaN or infinity")
        self.seen: dict[int, list[Tensor]] = {pool: [] for pool in self.initial}
        for pool in (pool for pools in self.layers.values() for pool in pools.sharing):
            notice(pool, pool.weight)
        self._latest: tuple[Tensor, PresentationMaps] | None = None

    def learn(self, name: str, pools: LayerPools, pool: Pool, windows: Tensor) -> Tensor:
        """Show one pattern after the other to a pool, and return its mean rates above b when they have settled.

        One input at most is active in a presentation, which begins at rest: all motion lies along its weights.
        """
        answer = pools.respond(pool, windows) / (1 + self.rule.inhibition)
        if pool.neurons < 2:
            return answer
        seen = self.seen[id(pool)]
        windows = windows[:, : self.presentations[name] - sum(map(len, seen))]
        if windows.shape[1]:
            seen.append(windows[0])
            self._present_(pools, pool, windows)
        return answer

    def _present_(self, pools: LayerPools, pool: Pool, windows: Tensor) -> None:
        powers = windows.double().square() * pools.inputs
        maps = self._maps(powers.sum(dim=-1), pools.inputs)
        keep = maps.carry[..., 0, 0].T.unsqueeze(-1)
        initial = self.initial[id(pool)]
        mean, start = (w.mean(dim=1, keepdim=True) for w in (pool.weight, initial))
        parts = []
        for part, value, origin in ((0, pool.weight - mean, initial - start), (1, mean, start)):
            of_displacement, of_initial = (maps.motion[..., part, 2, i].T.unsqueeze(-1) for i in (2, 4))
            factors = keep + powers * of_displacement
            parts.append(presented(value, origin, factors, 1 - factors + powers * of_initial))
        pool.weight.copy_(parts[0].add_(parts[1]))
        notice(pool, pool.weight, windows * pools.inputs**0.5)
        if not float(pool.weight.norm()) <= 4 * float(initial.norm()) + 1e-30:
            raise DivergenceError(f"the circuit's weights diverge at speed={self.rule.speed}; 0.25 is stable")

    def report(self, name: str) -> LayerReport:
        """Say how a layer slept."""
        pools = self.layers[name].sharing
        seen = torch.cat(self.seen[id(pools[0])])
        return layer_report(pools, [self.initial[id(pool)] for pool in pools], seen=seen, steps=len(seen))

    def _maps(self, powers: Tensor, inputs: int) -> PresentationMaps:
        """Condense the Euler steps of these presentations; all pools of a layer see the same powers."""
        powers = powers.T.cpu()
        if self._latest is None or not torch.equal(self._latest[0], powers):
            constants = self.rule.constants
            rate = self.rule.speed * constants.step_ms / constants.tau_ms / inputs
            decay = powers.new_full((powers.shape[1],), self.rule.decay)
            self._latest = powers, steady_presentation_maps(powers, rate, decay=decay, constants=constants)
        return self._latest[1]
