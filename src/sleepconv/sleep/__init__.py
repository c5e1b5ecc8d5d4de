"""Sleep: which layers share, when, and by which rule."""

from sleepconv.sleep.hebbian import DivergenceError, LayerReport
from sleepconv.sleep.layers import SleepingLayer, sleeping_layers
from sleepconv.sleep.rules import Circuit, Hebbian, Instant, Rule

__all__ = [
    "Circuit",
    "DivergenceError",
    "Hebbian",
    "Instant",
    "LayerReport",
    "Rule",
    "SleepingLayer",
    "sleeping_layers",
]
