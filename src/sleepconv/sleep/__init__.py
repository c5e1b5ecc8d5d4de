"""Sleep: which layers share, when, and by which rule.

``Sleep.sleep`` (in ``sleep``) is what happens at a sleep. It finds the layers (``layers``), gathers them if processes
hold parts of them (``distributed``) and lets a rule change their weights: ``Instant`` or ``Circuit`` (``rules``) or
``Hebbian`` (``hebbian``; its step is Eq. 4, ``sleepconv.functional.hebbian_step_``) or ``NetworkCircuit``
(``network_circuit``). All but ``Instant`` show patterns (``patterns``) to pools of neurons (``pools``), which learn
(``plasticity``); some patterns pass through the network (``passing``). ``lightning`` has a callback for PyTorch
Lightning.
"""

from sleepconv.sleep.hebbian import Hebbian, LayerReport
from sleepconv.sleep.layers import SleepingLayer, sleeping_layers
from sleepconv.sleep.network_circuit import NetworkCircuit
from sleepconv.sleep.rules import Circuit, DivergenceError, Instant, Rule
from sleepconv.sleep.sleep import Sleep, SleepRecord

__all__ = [
    "Circuit",
    "DivergenceError",
    "Hebbian",
    "Instant",
    "LayerReport",
    "NetworkCircuit",
    "Rule",
    "Sleep",
    "SleepRecord",
    "SleepingLayer",
    "sleeping_layers",
]
