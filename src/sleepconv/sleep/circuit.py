"""The inhibitory circuit at work in a layer's pools."""

from collections.abc import Callable
from math import isfinite

import torch

from sleepconv.simulation.circuit import CircuitConstants, CircuitState, present_, presentation_maps
from sleepconv.sleep.hebbian import DivergenceError
from sleepconv.sleep.patterns import random_cell
from sleepconv.sleep.pools import LayerPools, Pool

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
