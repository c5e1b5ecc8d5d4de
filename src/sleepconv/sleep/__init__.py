"""Sleep: which layers share, when, and by which rule.

``Sleep.sleep`` (in ``sleep``) is what happens at a sleep. It finds the layers (``layers``), gathers them if processes
hold parts of them (``distributed``) and lets a rule change their weights: ``Instant`` or ``Circuit`` (``rules``) or
``Hebbian`` (``hebbian``; its step is Eq. 4, ``sleepconv.functional.hebbian_step_``) or ``NetworkCircuit``
(``network_circuit``). All but ``Instant`` show patterns (``patterns``) to pools of neurons (``pools``), which learn
(``plasticity``), and can be watched (``watching``); some patterns pass through the network (``passing``). Who shares
with whom can be learned (``lateral``, ``lateral_networks``). ``compact`` saves what has slept; ``lightning`` has a
callback for PyTorch Lightning.
"""

from sleepconv.sleep.compact import compact_state, load_compact_state
from sleepconv.sleep.hebbian import Hebbian, LayerReport
from sleepconv.sleep.lateral import Lateral, LateralLearning, learn_connections, learn_grids, read_grids
from sleepconv.sleep.lateral_networks import learn_all_connections, learn_all_grids_
from sleepconv.sleep.layers import SleepingLayer, sleeping_layers
from sleepconv.sleep.network_circuit import NetworkCircuit
from sleepconv.sleep.rules import Circuit, CircuitReport, DivergenceError, Instant, Rule
from sleepconv.sleep.sleep import Sleep, SleepRecord

__all__ = [
    "Circuit",
    "CircuitReport",
    "DivergenceError",
    "Hebbian",
    "Instant",
    "Lateral",
    "LateralLearning",
    "LayerReport",
    "NetworkCircuit",
    "Rule",
    "Sleep",
    "SleepRecord",
    "SleepingLayer",
    "compact_state",
    "learn_all_connections",
    "learn_all_grids_",
    "learn_connections",
    "learn_grids",
    "load_compact_state",
    "read_grids",
    "sleeping_layers",
]
